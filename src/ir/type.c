/* The type rule: dtype and dims of a node from its operator, attributes and operands. It trusts
 * nothing, so that the verifier can use it on a damaged program, and throws nothing but a full
 * memory: what is wrong comes back as text. */
#include "ir/type.h"

#define MAX_LIST 1000

static const ir_node *operand(const rule *r, i64 i)
{
    return &r->p->nodes.at[r->args[i].i];
}

static const char *name_of(const rule *r, ir_atom d)
{
    return ir_atom_name(r->p, d);
}

static bool is_atom(const rule *r, ir_atom d)
{
    return d.i > 0 && (i64)d.i < r->p->atoms.n;
}

/* Every member an atom of the program? `-` is fine where `none_allowed`. Only the list of a concat,
 * one an operand, may be long: the checks of the others take quadratic time. */
static const char *list_wrong(const rule *r, ir_atoms list, const char *what, bool none_allowed)
{
    if (list.n > MAX_LIST && r->op != IR_concat)
        return arena_printf(r->a, "%s has more than %d atoms", what, MAX_LIST);
    for (i64 i = 0; i < list.n; i++) {
        if (none_allowed && list.at[i].i == 0)
            continue;
        if (!is_atom(r, list.at[i]))
            return arena_printf(r->a, "%s has something that is no atom of the program", what);
    }
    return NULL;
}

static const char *twice(const rule *r, ir_atoms list, const char *what)
{
    for (i64 i = 0; i < list.n; i++)
        for (i64 j = 0; j < i; j++)
            if (list.at[i].i && list.at[i].i == list.at[j].i)
                return arena_printf(r->a, "%s names %s twice", what, name_of(r, list.at[i]));
    return NULL;
}

const char *ir_type_sorted(const rule *r, ir_atoms set, const char *what)
{
    for (i64 i = 1; i < set.n; i++)
        if (set.at[i - 1].i >= set.at[i].i)
            return arena_printf(r->a, "%s is not a sorted set", what);
    return NULL;
}

ir_atoms ir_type_sort(arena *a, const ir_atom *at, i64 n)
{
    ir_atom *out = NEW_N(a, ir_atom, n);
    for (i64 i = 0; i < n; i++) { /* sets are small */
        i64 j = i;
        for (; j > 0 && out[j - 1].i > at[i].i; j--)
            out[j] = out[j - 1];
        out[j] = at[i];
    }
    return (ir_atoms){out, n};
}

static bool is_subset(ir_atoms a, ir_atoms b)
{
    i64 j = 0;
    for (i64 i = 0; i < a.n; i++) {
        while (j < b.n && b.at[j].i < a.at[i].i)
            j++;
        if (j == b.n || b.at[j].i != a.at[i].i)
            return false;
    }
    return true;
}

ir_atoms ir_type_union(arena *a, ir_atoms x, ir_atoms y)
{
    if (is_subset(y, x))
        return x;
    if (is_subset(x, y))
        return y;
    ir_atom *out = NEW_N(a, ir_atom, x.n + y.n);
    i64 n = 0, i = 0, j = 0;
    while (i < x.n || j < y.n) {
        if (j == y.n || (i < x.n && x.at[i].i < y.at[j].i))
            out[n++] = x.at[i++];
        else if (i == x.n || y.at[j].i < x.at[i].i)
            out[n++] = y.at[j++];
        else
            out[n++] = (j++, x.at[i++]);
    }
    return (ir_atoms){out, n};
}

/* y may be in any order. */
ir_atoms ir_type_minus(arena *a, ir_atoms x, ir_atoms y)
{
    ir_atom *out = NEW_N(a, ir_atom, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++) {
        bool is_gone = false;
        for (i64 j = 0; j < y.n; j++)
            is_gone = is_gone || y.at[j].i == x.at[i].i;
        if (!is_gone)
            out[n++] = x.at[i];
    }
    return (ir_atoms){out, n};
}

ir_atoms ir_atoms_union(ir_program *p, ir_atoms a, ir_atoms b)
{
    return ir_type_union(p->a, a, b);
}

ir_atoms ir_atoms_minus(ir_program *p, ir_atoms a, ir_atoms b)
{
    return ir_type_minus(p->a, a, b);
}

ir_atoms ir_atoms_set(ir_program *p, const ir_atom *at, i64 n)
{
    ir_atoms set = ir_type_sort(p->a, at, n);
    for (i64 i = 1; i < n; i++)
        if (set.at[i - 1].i == set.at[i].i)
            eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, p->origin),
                      "a set names %s twice", ir_atom_name(p, set.at[i]));
    return set;
}

bool ir_has(ir_atoms set, ir_atom d)
{
    for (i64 i = 0; i < set.n; i++)
        if (set.at[i].i == d.i)
            return true;
    return false;
}

bool ir_type_same_atoms(ir_atoms x, ir_atoms y)
{
    return x.n == y.n && (x.n == 0 || memcmp(x.at, y.at, (size_t)x.n * sizeof *x.at) == 0);
}

/* The members of `list`, all wanted in `set`. */
const char *ir_type_inside(const rule *r, ir_atoms list, ir_atoms set, const char *where)
{
    for (i64 i = 0; i < list.n; i++)
        if (list.at[i].i && !ir_has(set, list.at[i]))
            return arena_printf(r->a, "%s is not an atom of %s", name_of(r, list.at[i]), where);
    return NULL;
}

static const char *meets(const rule *r, ir_atoms list, ir_atoms set, const char *where)
{
    for (i64 i = 0; i < list.n; i++)
        if (ir_has(set, list.at[i]))
            return arena_printf(r->a, "%s is already an atom of %s", name_of(r, list.at[i]), where);
    return NULL;
}

static bool product(const rule *r, ir_atoms list, i64 *out)
{
    i64 n = 1;
    for (i64 i = 0; i < list.n; i++)
        if (!mul_i64(n, ir_extent(r->p, list.at[i]), &n))
            return false;
    *out = n;
    return true;
}

static ir_type fine(dtype t, ir_atoms dims)
{
    return (ir_type){.dtype = t, .dims = dims};
}

/* All of the operands i in [from, to) have one dtype. */
const char *ir_type_one_dtype(const rule *r, i64 from, i64 to)
{
    for (i64 i = from + 1; i < to; i++)
        if (operand(r, i)->dtype != operand(r, from)->dtype)
            return arena_printf(r->a, "operands of %s and %s; cast one of them",
                                dtype_name(operand(r, from)->dtype),
                                dtype_name(operand(r, i)->dtype));
    return NULL;
}

static ir_type type_pointwise(const rule *r)
{
    i64 first = r->row->rule == IR_SELECT ? 1 : 0;
    CHECK(ir_type_one_dtype(r, first, r->n));
    dtype t = operand(r, first)->dtype, result = t;
    dtype_kind kind = dtype_kind_of(t);
    const char *wanted = NULL;
    switch ((ir_rule)r->row->rule) {
    case IR_FLOAT:
        wanted = kind == DK_FLOAT ? NULL : "floats";
        break;
    case IR_INTEGER:
        wanted = kind == DK_INT ? NULL : "integers";
        break;
    case IR_LOGIC:
        wanted = kind == DK_FLOAT ? "integers or bools" : NULL;
        break;
    case IR_COMPARE:
        result = DT_bool;
        break;
    case IR_BOOLEAN:
        wanted = kind == DK_BOOL ? NULL : "bools";
        break;
    case IR_TEST:
        result = DT_bool;
        wanted = kind == DK_FLOAT ? NULL : "floats";
        break;
    case IR_SELECT:
        if (operand(r, 0)->dtype != DT_bool)
            return WRONG("the condition is %s, not bool", dtype_name(operand(r, 0)->dtype));
        break;
    case IR_OWN: /* cast */
        result = r->attr->dtype;
        break;
    case IR_SAME:
        if (kind == DK_BOOL && (r->op == IR_sub || r->op == IR_neg))
            wanted = "numbers (xor and not are for bools)";
        break;
    }
    if (wanted)
        return WRONG("operand of %s, wants %s", dtype_name(t), wanted);
    ir_atoms dims = operand(r, 0)->dims;
    for (i64 i = 1; i < r->n; i++)
        dims = ir_type_union(r->a, dims, operand(r, i)->dims);
    return fine(result, dims);
}

static ir_type type_leaf(const rule *r)
{
    if (r->op == IR_iota) {
        if (r->attr->axis.n != 1)
            return WRONG("wants one atom");
        return fine(DT_i64, ir_type_sort(r->a, r->attr->axis.at, 1));
    }
    if (r->op == IR_const) {
        dtype t = r->attr->dtype;
        if (dtype_is_float(t) ? r->attr->i != 0 : r->attr->f != 0.0)
            return WRONG("a value of another kind than %s", dtype_name(t));
        i64 x = r->attr->i;
        if ((t == DT_bool && (x < 0 || x > 1)) || (t == DT_i8 && x != (i8)x) ||
            (t == DT_i32 && x != (i32)x))
            return WRONG("%lld does not fit %s", (long long)x, dtype_name(t));
        return fine(t, (ir_atoms){0});
    }
    i64 i = ir_input_find(r->p, r->attr->name);
    if (i < 0)
        return WRONG("there is no input %s", intern_text(r->p->names, r->attr->name));
    const ir_port *port = &r->p->inputs.at[i];
    VEC(ir_atom) all = {0};
    for (i64 k = 0; k < port->rank; k++) {
        if (port->dims[k].extent == 0)
            return WRONG("input %s has no elements", intern_text(r->p->names, port->name));
        for (i64 j = 0; j < port->dims[k].atoms.n; j++)
            vec_push(r->a, &all, port->dims[k].atoms.at[j]);
    }
    return fine(port->dtype, ir_type_sort(r->a, all.at, all.n));
}

static ir_type type_reduction(const rule *r)
{
    ir_atoms axis = r->attr->axis, dims = operand(r, 0)->dims;
    dtype t = operand(r, 0)->dtype;
    CHECK(ir_type_sorted(r, axis, ":axis"));
    if (axis.n == 0)
        return WRONG(":axis is empty");
    if (r->op != IR_reduce) {
        CHECK(ir_type_one_dtype(r, 0, 2));
        dims = ir_type_union(r->a, dims, operand(r, 1)->dims);
        CHECK(ir_type_inside(r, axis, dims, "an operand"));
    } else {
        CHECK(ir_type_inside(r, axis, dims, "the operand"));
        ir_reducer reducer = r->attr->reducer;
        if ((reducer == IR_OR || reducer == IR_AND) && t != DT_bool)
            return WRONG("reducer %s wants bools, not %s", ir_reducer_text(reducer), dtype_name(t));
    }
    return fine(t, ir_type_minus(r->a, dims, axis));
}

/* Lowest and highest position that a slice reads; false when they do not fit 64 bits. */
static bool slice_range(const rule *r, i64 *low, i64 *high)
{
    *low = *high = r->attr->ints.at[0];
    for (i64 i = 0; i < r->attr->to.n; i++) {
        i64 step = r->attr->ints.at[1 + i], span;
        if (!mul_i64(step, ir_extent(r->p, r->attr->to.at[i]) - 1, &span))
            return false;
        i64 *end = step < 0 ? low : high;
        if (!add_i64(*end, span, end))
            return false;
    }
    return true;
}

/* A value has one dtype. */
static const char *not_values(const rule *r)
{
    static const char *const kinds[] = {"value", "component", "bundle",
                                        "tuple", "lambda",    "reducer"};
    for (i64 i = 0; i < r->n; i++) {
        ir_kind kind = ir_kind_of(operand(r, i)->op);
        if (kind != IR_A_VALUE)
            return arena_printf(r->a, "operand %lld is a %s, not a value", (long long)i + 1,
                                kinds[kind]);
    }
    return NULL;
}

static ir_type type_slice(const rule *r)
{
    ir_atoms axis = r->attr->axis, to = r->attr->to, dims = operand(r, 0)->dims;
    if (axis.n != 1)
        return WRONG(":axis wants one atom");
    CHECK(ir_type_inside(r, axis, dims, "the operand"));
    CHECK(twice(r, to, ":to"));
    if (r->attr->ints.n != to.n + 1)
        return WRONG("wants a start, and a step for each atom of :to");
    CHECK(ir_type_sorted(r, to, ":to"));
    for (i64 i = 0; i < to.n; i++)
        if (r->attr->ints.at[1 + i] == 0)
            return WRONG("the step of %s is 0; expand repeats", name_of(r, to.at[i]));
    i64 low, high, extent = ir_extent(r->p, axis.at[0]);
    if (!slice_range(r, &low, &high) || low < 0 || high >= extent)
        return WRONG("reads outside of %s, which has extent %lld", name_of(r, axis.at[0]),
                     (long long)extent);
    return fine(operand(r, 0)->dtype, ir_type_union(r->a, ir_type_minus(r->a, dims, axis),
                                                    ir_type_sort(r->a, to.at, to.n)));
}

static ir_type type_concat(const rule *r)
{
    ir_atoms axis = r->attr->axis, to = r->attr->to, dims = {0};
    if (axis.n != r->n)
        return WRONG(":axis wants one atom (or -) an operand");
    if (to.n != 1)
        return WRONG(":to wants one atom");
    CHECK(ir_type_one_dtype(r, 0, r->n));
    i64 sum = 0;
    for (i64 i = 0; i < r->n; i++) {
        ir_atoms own = {&axis.at[i], axis.at[i].i ? 1 : 0};
        CHECK(ir_type_inside(r, own, operand(r, i)->dims, "its operand"));
        ir_atoms rest = ir_type_minus(r->a, operand(r, i)->dims, own);
        CHECK(meets(r, to, rest, "an operand"));
        dims = ir_type_union(r->a, dims, rest);
        if (!add_i64(sum, ir_extent(r->p, axis.at[i]), &sum))
            return WRONG("the extents do not fit 64 bits");
    }
    if (sum != ir_extent(r->p, to.at[0]))
        return WRONG("the operands have %lld positions, %s has %lld", (long long)sum,
                     name_of(r, to.at[0]), (long long)ir_extent(r->p, to.at[0]));
    return fine(operand(r, 0)->dtype, ir_type_union(r->a, dims, ir_type_sort(r->a, to.at, 1)));
}

static ir_type type_index_map(const rule *r)
{
    ir_atoms axis = r->attr->axis, to = r->attr->to, dims = operand(r, 0)->dims;
    dtype t = operand(r, 0)->dtype;
    CHECK(twice(r, axis, ":axis"));
    CHECK(twice(r, to, ":to"));
    CHECK(ir_type_inside(r, axis, dims, "the operand"));
    ir_atoms rest = ir_type_minus(r->a, dims, axis);
    CHECK(meets(r, to, rest, "the operand"));
    if (to.n == 0)
        return WRONG(":to is empty");
    if (r->op == IR_rename) {
        CHECK(ir_type_sorted(r, axis, ":axis"));
        if (axis.n != to.n)
            return WRONG(":axis has %lld atoms, :to has %lld", (long long)axis.n, (long long)to.n);
        for (i64 i = 0; i < to.n; i++)
            if (ir_extent(r->p, axis.at[i]) != ir_extent(r->p, to.at[i]))
                return WRONG("%s and %s have different extents", name_of(r, axis.at[i]),
                             name_of(r, to.at[i]));
    } else if (r->op == IR_reshape) {
        i64 before, after;
        if (axis.n == 0)
            return WRONG(":axis is empty");
        if (!product(r, axis, &before) || !product(r, to, &after) || before != after)
            return WRONG(":axis and :to have different products");
    } else {
        CHECK(ir_type_sorted(r, to, ":to"));
    }
    return fine(t, ir_type_union(r->a, rest, ir_type_sort(r->a, to.at, to.n)));
}

static ir_type type_gather(const rule *r)
{
    ir_atoms axis = r->attr->axis, dims = operand(r, 0)->dims;
    bool is_scatter = r->op == IR_scatter;
    i64 last = is_scatter ? r->n - 1 : r->n; /* of the indices */
    if (last < 2)
        return WRONG("wants an index");
    if (axis.n != last - 1)
        return WRONG(":axis wants one atom an index");
    CHECK(twice(r, axis, ":axis"));
    CHECK(ir_type_inside(r, axis, dims, is_scatter ? "the base" : "the operand"));
    ir_atoms result = ir_type_minus(r->a, dims, axis);
    for (i64 i = 1; i < last; i++) {
        if (dtype_kind_of(operand(r, i)->dtype) != DK_INT)
            return WRONG("an index of %s; wants integers", dtype_name(operand(r, i)->dtype));
        result = ir_type_union(r->a, result, operand(r, i)->dims);
    }
    dtype t = operand(r, 0)->dtype;
    if (!is_scatter)
        return fine(t, result);
    if (operand(r, last)->dtype != t)
        return WRONG("a value of %s for a base of %s", dtype_name(operand(r, last)->dtype),
                     dtype_name(t));
    if ((r->attr->reducer == IR_OR || r->attr->reducer == IR_AND) && t != DT_bool)
        return WRONG("reducer %s wants bools, not %s", ir_reducer_text(r->attr->reducer),
                     dtype_name(t));
    return fine(t, dims);
}

static ir_type type_whole_axis(const rule *r)
{
    ir_atoms axis = r->attr->axis, to = r->attr->to, dims = operand(r, 0)->dims;
    dtype t = operand(r, 0)->dtype;
    if (axis.n != 1)
        return WRONG(":axis wants one atom");
    CHECK(ir_type_inside(r, axis, dims, "the operand"));
    if (r->op == IR_scan) {
        if ((r->attr->reducer == IR_OR || r->attr->reducer == IR_AND) && t != DT_bool)
            return WRONG("reducer %s wants bools, not %s", ir_reducer_text(r->attr->reducer),
                         dtype_name(t));
        return fine(t, dims);
    }
    if (to.n > 1)
        return WRONG(":to wants one atom at most");
    if (r->attr->ints.n != 1 || r->attr->ints.at[0] < 0 || r->attr->ints.at[0] > 1)
        return WRONG(":ints wants (0), ascending, or (1), descending");
    ir_atoms rest = ir_type_minus(r->a, dims, axis);
    CHECK(meets(r, to, rest, "the operand"));
    if (to.n == 1 && ir_extent(r->p, to.at[0]) > ir_extent(r->p, axis.at[0]))
        return WRONG("%s is longer than %s", name_of(r, to.at[0]), name_of(r, axis.at[0]));
    return fine(DT_i64, ir_type_union(r->a, rest, ir_type_sort(r->a, to.at, to.n)));
}

/* Attributes that the operator does not have are zero, those that it has are well-formed. */
static const char *attributes_wrong(const rule *r)
{
    const ir_attr *x = r->attr;
    u32 has = ir_attrs_of(r->op);
    if ((x->name && !(has & IR_HAS_NAME)) || (x->dtype && !(has & IR_HAS_DTYPE)) ||
        ((x->i || x->f != 0.0) && !(has & IR_HAS_VALUE)) ||
        (x->reducer && !(has & IR_HAS_REDUCER)) || (x->axis.n && !(has & IR_HAS_AXIS)) ||
        (x->to.n && !(has & IR_HAS_TO)) || (x->ints.n && !(has & IR_HAS_INTS)) ||
        (x->par.n && !(has & IR_HAS_PAR)))
        return "an attribute that the operator does not have";
    if ((has & IR_HAS_DTYPE) && (x->dtype == DT_NONE || x->dtype >= DT_COUNT))
        return "wants a dtype";
    if (x->reducer >= IR_REDUCER_COUNT || ((has & IR_HAS_REDUCER) && r->op != IR_scatter &&
                                           r->op != IR_comp && x->reducer == IR_NO_REDUCER))
        return "wants a reducer";
    if ((has & IR_HAS_NAME) && (i64)x->name >= intern_count(r->p->names))
        return "a name that is none";
    const char *text = list_wrong(r, x->axis, ":axis", r->op == IR_concat);
    text = text ? text : list_wrong(r, x->to, ":to", false);
    text = text ? text : list_wrong(r, x->par, ":par", false);
    return text ? text : ir_type_sorted(r, x->par, ":par");
}

static ir_type type_ordinary(const rule *r)
{
    const ir_attr *attr = r->attr;
    switch ((ir_class)r->row->class_) {
    case IR_LEAF:
        return type_leaf(r);
    case IR_EWISE:
        return type_pointwise(r);
    case IR_REDUCE:
    case IR_MATMUL:
        return type_reduction(r);
    case IR_INDEX:
        return r->op == IR_slice    ? type_slice(r)
               : r->op == IR_concat ? type_concat(r)
                                    : type_index_map(r);
    case IR_GATHER:
        return type_gather(r);
    case IR_PLAIN:
        return type_whole_axis(r);
    case IR_OPAQUE:
        CHECK(ir_type_sorted(r, attr->to, ":to"));
        if (attr->ints.n != 1 || attr->ints.at[0] < 0)
            return WRONG(":ints wants the number of the result");
        return fine(attr->dtype, ir_type_sort(r->a, attr->to.at, attr->to.n));
    case IR_TILED: /* tile-matmul */
        return type_reduction(r);
    }
    return WRONG("an operator without a class");
}

ir_type ir_type_of(const ir_program *p, arena *a, ir_op op, const ir_attr *attr,
                   const ir_term *args, i64 arg_count)
{
    rule rule_ = {p, a, ir_row(op), op, attr, args, arg_count}, *r = &rule_;
    if (op == IR_NO_OP || op >= IR_OP_COUNT)
        return WRONG("no operator");
    if (r->row->arity >= 0 ? arg_count != r->row->arity : arg_count < 1)
        return WRONG("%lld operands, wants %s%d", (long long)arg_count,
                     r->row->arity < 0 ? "at least " : "", r->row->arity < 0 ? 1 : r->row->arity);
    for (i64 i = 0; i < arg_count; i++)
        if (args[i].i == 0 || (i64)args[i].i >= p->nodes.n)
            return WRONG("operand %lld is no term of the program", (long long)i + 1);
    CHECK(attributes_wrong(r));
    if ((r->row->class_ == IR_TILED && op != IR_tile_matmul) || attr->par.n > 0)
        return ir_type_tiled(r);
    CHECK(not_values(r));
    ir_type type = type_ordinary(r);
    return type.wrong ? type : ir_type_spread(r, type);
}

const char *ir_port_wrong(const ir_program *p, arena *a, const ir_port *port, bool is_output)
{
    VEC(ir_atom) seen = {0};
    bool is_empty = false;
    if (is_output && port->term.i && (i64)port->term.i < p->nodes.n &&
        ir_kind_of(p->nodes.at[port->term.i].op) != IR_A_VALUE)
        return arena_printf(a, "a %s is not a value", ir_row(p->nodes.at[port->term.i].op)->name);
    if (port->dtype == DT_NONE || port->dtype >= DT_COUNT)
        return "no dtype";
    for (i64 i = 0; i < port->rank; i++) {
        const ir_dim *dim = &port->dims[i];
        i64 extent = 1;
        is_empty = is_empty || dim->extent == 0;
        for (i64 j = 0; j < dim->atoms.n; j++) {
            ir_atom d = dim->atoms.at[j];
            if (d.i == 0 || (i64)d.i >= p->atoms.n)
                return arena_printf(a, "dim %lld has something that is no atom", (long long)i);
            for (i64 k = 0; k < seen.n; k++)
                if (seen.at[k].i == d.i)
                    return arena_printf(a, "%s stands twice in the dims; rename one",
                                        ir_atom_name(p, d));
            vec_push(a, &seen, d);
            if (!mul_i64(extent, ir_extent(p, d), &extent))
                return arena_printf(a, "dim %lld does not fit 64 bits", (long long)i);
        }
        if (dim->atoms.n == 0 ? dim->extent != 0 && dim->extent != 1 : extent != dim->extent)
            return arena_printf(a, "dim %lld has extent %lld, its atoms make %lld", (long long)i,
                                (long long)dim->extent, (long long)extent);
    }
    if (!is_output)
        return NULL;
    if (is_empty)
        return port->term.i ? "without elements, and yet it has a term" : NULL;
    if (port->term.i == 0 || (i64)port->term.i >= p->nodes.n)
        return "no term";
    const ir_node *node = &p->nodes.at[port->term.i];
    if (node->is_open)
        return "it contains a formal parameter outside of its lambda";
    if (node->runs.n > 0)
        return "it contains a run outside of its loop";
    if (node->axes.n > 0)
        return arena_printf(a, "the term still has the axis of %s; comb joins tiles",
                            ir_atom_name(p, node->axes.at[0]));
    if (node->dtype != port->dtype)
        return arena_printf(a, "a term of %s, declared %s", dtype_name(node->dtype),
                            dtype_name(port->dtype));
    for (i64 i = 0; i < node->dims.n; i++) {
        bool is_there = false;
        for (i64 k = 0; k < seen.n; k++)
            is_there = is_there || seen.at[k].i == node->dims.at[i].i;
        if (!is_there)
            return arena_printf(a, "the term varies along %s, which is not among the dims",
                                ir_atom_name(p, node->dims.at[i]));
    }
    if (port->writes < 0 || port->writes > p->inputs.n)
        return "it writes to no input";
    if (port->writes) {
        const ir_port *in = &p->inputs.at[port->writes - 1];
        bool is_same = in->dtype == port->dtype && in->rank == port->rank;
        for (i64 i = 0; is_same && i < in->rank; i++)
            is_same = in->dims[i].extent == port->dims[i].extent;
        if (!is_same)
            return arena_printf(a, "it writes %s, which has another dtype or shape",
                                intern_text(p->names, in->name));
    }
    return NULL;
}
