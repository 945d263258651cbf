/* The type rule where axes are involved: what ordinary operators do with cut operands, and the rows
 * of tiled.def. An axis p of a value cuts its atom into tiles when the value has the atom, and is a
 * sum still to be taken when it has not; the rules keep the two apart, so that tiles of one axis
 * always meet tiles of the same axis.                                                (docs/) */
#include "ir/type.h"

static const ir_node *operand(const rule *r, i64 i)
{
    return &r->p->nodes.at[r->args[i].i];
}

static const ir_node *node_of(const rule *r, ir_term t)
{
    return &r->p->nodes.at[t.i];
}

static const char *name_of(const rule *r, ir_atom d)
{
    return ir_atom_name(r->p, d);
}

ir_term ir_term_in(ir_terms set, ir_term t)
{
    for (i64 i = 0; i < set.n; i++)
        if (set.at[i].i == t.i)
            return t;
    return (ir_term){0};
}

ir_terms ir_terms_union(arena *a, ir_terms x, ir_terms y)
{
    if (y.n == 0)
        return x;
    if (x.n == 0)
        return y;
    ir_term *out = NEW_N(a, ir_term, x.n + y.n);
    i64 n = 0, i = 0, j = 0;
    while (i < x.n || j < y.n) {
        if (j == y.n || (i < x.n && x.at[i].i < y.at[j].i))
            out[n++] = x.at[i++];
        else if (i == x.n || y.at[j].i < x.at[i].i)
            out[n++] = y.at[j++];
        else
            out[n++] = (j++, x.at[i++]);
    }
    return (ir_terms){out, n};
}

static ir_atoms all_axes(const rule *r, i64 from, i64 to)
{
    ir_atoms axes = {0};
    for (i64 i = from; i < to; i++)
        axes = ir_type_union(r->a, axes, operand(r, i)->axes);
    return axes;
}

static ir_terms all_runs(const rule *r, i64 from, i64 to)
{
    ir_terms runs = {0};
    for (i64 i = from; i < to; i++)
        runs = ir_terms_union(r->a, runs, operand(r, i)->runs);
    return runs;
}

const char *ir_type_aligned(const rule *r, i64 from, i64 to)
{
    ir_atoms axes = all_axes(r, from, to);
    for (i64 k = 0; k < axes.n; k++) {
        ir_atom p = axes.at[k];
        i64 whole = -1, tile = -1, partial = -1;
        for (i64 i = from; i < to; i++) {
            bool has_atom = ir_has(operand(r, i)->dims, p), is_cut = ir_has(operand(r, i)->axes, p);
            if (has_atom)
                *(is_cut ? &tile : &whole) = i + 1;
            else if (is_cut)
                partial = i + 1;
        }
        if (partial >= 0 && (tile >= 0 || whole >= 0))
            return arena_printf(r->a, "operand %lld is partial over %s, operand %lld has it",
                                (long long)partial, name_of(r, p),
                                (long long)(tile >= 0 ? tile : whole));
        if (whole >= 0)
            return arena_printf(r->a,
                                "tiles do not align: operand %lld has %s whole, operand %lld cut",
                                (long long)whole, name_of(r, p), (long long)tile);
    }
    return NULL;
}

/* Atoms that the operator rearranges are there as a whole. */
static const char *touched(const rule *r, ir_atoms list, ir_atoms axes)
{
    for (i64 i = 0; i < list.n; i++) {
        if (ir_has(axes, list.at[i]))
            return arena_printf(r->a, "%s is cut by its axis, and is wanted whole",
                                name_of(r, list.at[i]));
        if (r->op != IR_expand && ir_is_ragged(r->p, list.at[i]))
            return arena_printf(r->a, "%s is a part of a split with dead lanes",
                                name_of(r, list.at[i]));
    }
    return NULL;
}

ir_type ir_type_spread(const rule *r, ir_type type)
{
    for (i64 i = 0; i < r->n; i++)
        type.is_open = type.is_open || operand(r, i)->is_open;
    type.runs = all_runs(r, 0, r->n);
    type.axes = all_axes(r, 0, r->n);
    ir_class class_ = r->row->class_;
    if (type.axes.n > 0) {
        if (r->op == IR_matmul || r->op == IR_rename || r->op == IR_scatter || r->op == IR_opaque)
            return WRONG("wants operands without axes");
        CHECK(ir_type_aligned(r, 0, r->n));
    }
    if (class_ == IR_INDEX || class_ == IR_GATHER || class_ == IR_PLAIN) {
        CHECK(touched(r, r->attr->axis, type.axes));
        CHECK(touched(r, r->attr->to, type.axes));
    }
    return type;
}

/* ---- operands ------------------------------------------------------------------------------- */

static const char *not_kind(const rule *r, i64 i, ir_kind kind, const char *what)
{
    if (ir_kind_of(operand(r, i)->op) != kind)
        return arena_printf(r->a, "operand %lld is no %s", (long long)i + 1, what);
    return NULL;
}

/* A value of the program: not one of a lambda's body. */
static const char *not_closed_value(const rule *r, i64 i)
{
    const char *text = not_kind(r, i, IR_A_VALUE, "value");
    if (!text && operand(r, i)->is_open)
        text = "a formal parameter outside of its lambda";
    return text;
}

/* What is below an operator that goes through all tiles of `axes` cannot use the state of a loop
 * that is at one of them. */
static const char *runs_inside(const rule *r, ir_terms runs, ir_atoms axes)
{
    for (i64 i = 0; i < runs.n; i++)
        for (i64 j = 0; j < axes.n; j++)
            if (ir_has(node_of(r, runs.at[i])->attr.par, axes.at[j]))
                return arena_printf(r->a, "a run over %s below it", name_of(r, axes.at[j]));
    return NULL;
}

/* Each axis one of the operand, and its atom there or not. */
static const char *not_in_state(const rule *r, ir_atoms axes, const ir_node *x, ir_state state)
{
    for (i64 i = 0; i < axes.n; i++) {
        ir_atom p = axes.at[i];
        bool has_axis = ir_has(x->axes, p), has_atom = ir_has(x->dims, p);
        if (has_axis && has_atom == (state == IR_PARTITION))
            continue;
        const char *is = !has_axis ? "replicate" : has_atom ? "partition" : "partial";
        return arena_printf(r->a, "wants a %s over %s, the operand is %s",
                            state == IR_PARTITION ? "partition" : "partial", name_of(r, p), is);
    }
    return NULL;
}

/* ---- views ---------------------------------------------------------------------------------- */

static ir_type same_as(const rule *r, const ir_node *x)
{
    (void)r;
    return (ir_type){.dtype = x->dtype, .dims = x->dims, .axes = x->axes, .runs = x->runs};
}

static ir_type type_view(const rule *r)
{
    CHECK(not_closed_value(r, 0));
    const ir_node *x = operand(r, 0);
    ir_atoms par = r->attr->par;
    if (par.n == 0)
        return WRONG(":par is empty");
    for (i64 i = 0; i < par.n; i++) {
        if (ir_has(x->axes, par.at[i]))
            return WRONG("the operand has the axis of %s already", name_of(r, par.at[i]));
        if (!ir_has(x->dims, par.at[i]))
            return WRONG("%s is not an atom of the operand", name_of(r, par.at[i]));
    }
    ir_type type = same_as(r, x);
    type.axes = ir_type_union(r->a, x->axes, ir_type_sort(r->a, par.at, par.n));
    return type;
}

static ir_type type_comb(const rule *r)
{
    CHECK(not_closed_value(r, 0));
    const ir_node *x = operand(r, 0);
    if (r->attr->par.n == 0)
        return WRONG(":par is empty");
    CHECK(not_in_state(r, r->attr->par, x, IR_PARTITION));
    CHECK(runs_inside(r, x->runs, r->attr->par));
    ir_type type = same_as(r, x);
    type.axes = ir_type_minus(r->a, x->axes, r->attr->par);
    return type;
}

static ir_type type_collection(const rule *r)
{
    CHECK(not_closed_value(r, 0));
    const ir_node *x = operand(r, 0);
    ir_atoms par = r->attr->par, to = r->attr->to;
    if (par.n != 1 || to.n != 1)
        return WRONG("wants one axis and one atom");
    CHECK(not_in_state(r, par, x, IR_PARTIAL));
    CHECK(runs_inside(r, x->runs, par));
    if (ir_has(x->dims, to.at[0]) || ir_has(x->axes, to.at[0]))
        return WRONG("%s is already an atom or axis of the operand", name_of(r, to.at[0]));
    ir_type type = same_as(r, x);
    type.axes = ir_type_minus(r->a, x->axes, par);
    type.dims = ir_type_union(r->a, x->dims, ir_type_sort(r->a, to.at, 1));
    return type;
}

static const char *reducer_wrong(const rule *r, dtype t)
{
    if ((r->attr->reducer == IR_OR || r->attr->reducer == IR_AND) && t != DT_bool)
        return arena_printf(r->a, "reducer %s wants bools, not %s",
                            ir_reducer_text(r->attr->reducer), dtype_name(t));
    return NULL;
}

static ir_type type_reduce_par(const rule *r)
{
    CHECK(not_closed_value(r, 0));
    const ir_node *x = operand(r, 0);
    if (r->attr->axis.n > 0)
        return WRONG("wants either :axis or :par");
    CHECK(not_in_state(r, r->attr->par, x, IR_PARTIAL));
    CHECK(runs_inside(r, x->runs, r->attr->par));
    CHECK(reducer_wrong(r, x->dtype));
    ir_type type = same_as(r, x);
    type.axes = ir_type_minus(r->a, x->axes, r->attr->par);
    return type;
}

static ir_type type_splitdim(const rule *r)
{
    CHECK(not_kind(r, 0, IR_A_VALUE, "value"));
    const ir_node *x = operand(r, 0);
    ir_atoms axis = r->attr->axis, to = r->attr->to;
    if (axis.n != 1 || to.n != 2)
        return WRONG(":axis wants one atom, :to its two parts");
    const ir_split *s = ir_split_of(r->p, to.at[0]);
    if (!s || s->whole.i != axis.at[0].i || s->outer.i != to.at[0].i || s->inner.i != to.at[1].i)
        return WRONG("%s and %s are not declared as the parts of %s", name_of(r, to.at[0]),
                     name_of(r, to.at[1]), name_of(r, axis.at[0]));
    if (x->axes.n > 0)
        return WRONG("wants an operand without axes");
    CHECK(ir_type_inside(r, axis, x->dims, "the operand"));
    ir_atoms rest = ir_type_minus(r->a, x->dims, axis);
    for (i64 i = 0; i < 2; i++)
        if (ir_has(rest, to.at[i]))
            return WRONG("%s is already an atom of the operand", name_of(r, to.at[i]));
    ir_type type = same_as(r, x);
    type.is_open = x->is_open;
    type.dims = ir_type_union(r->a, rest, ir_type_sort(r->a, to.at, 2));
    return type;
}

/* ---- lambdas and reducers ------------------------------------------------------------------- */

static i64 formal_count(const ir_node *lambda)
{
    return lambda->attr.ints.at[0];
}

static const ir_node *formal_of(const rule *r, const ir_node *lambda, i64 i)
{
    return node_of(r, lambda->args[i]);
}

static const ir_node *result_of(const rule *r, const ir_node *lambda, i64 i)
{
    return node_of(r, lambda->args[formal_count(lambda) + i]);
}

static i64 result_count(const ir_node *lambda)
{
    return lambda->arg_count - formal_count(lambda);
}

static bool same_type(const ir_node *x, const ir_node *y)
{
    return x->dtype == y->dtype && ir_type_same_atoms(x->dims, y->dims);
}

/* Terms that the results of a lambda are made of, in no order. */
typedef struct body {
    ir_term *at;
    i64 n;
} body;

static body body_of(const rule *r, const ir_term *results, i64 n)
{
    bool *seen = NEW_N(r->a, bool, r->p->nodes.n);
    VEC(ir_term) all = {0};
    for (i64 i = 0; i < n; i++)
        if (!seen[results[i].i]) {
            seen[results[i].i] = true;
            vec_push(r->a, &all, results[i]);
        }
    for (i64 k = 0; k < all.n; k++) {
        const ir_node *node = node_of(r, all.at[k]);
        for (i64 i = 0; i < node->arg_count; i++)
            if (!seen[node->args[i].i]) {
                seen[node->args[i].i] = true;
                vec_push(r->a, &all, node->args[i]);
            }
    }
    return (body){all.at, all.n};
}

static ir_type type_lambda(const rule *r)
{
    if (r->attr->ints.n != 1)
        return WRONG("wants the number of its formals");
    i64 formals = r->attr->ints.at[0];
    if (formals < 0 || formals >= r->n)
        return WRONG("wants a result");
    for (i64 i = 0; i < formals; i++)
        if (operand(r, i)->op != IR_formal || operand(r, i)->attr.i != i)
            return WRONG("operand %lld is not formal %lld", (long long)i + 1, (long long)i);
    for (i64 i = formals; i < r->n; i++)
        CHECK(not_kind(r, i, IR_A_VALUE, "value"));
    body b = body_of(r, r->args + formals, r->n - formals);
    for (i64 k = 0; k < b.n; k++) {
        const ir_node *node = node_of(r, b.at[k]);
        if (node->op == IR_formal) {
            if (node->attr.i >= formals || r->args[node->attr.i].i != b.at[k].i)
                return WRONG("formal %lld of its body is none of its own", (long long)node->attr.i);
            continue;
        }
        bool is_tiled = node->axes.n > 0 || node->attr.par.n > 0 ||
                        (ir_row(node->op)->class_ == IR_TILED && node->op != IR_tile_matmul);
        if (is_tiled || node->op == IR_in || node->op == IR_opaque)
            return WRONG("%s in its body", node->op == IR_in ? "an input" : ir_row(node->op)->name);
    }
    return (ir_type){0};
}

static ir_type type_formal(const rule *r)
{
    CHECK(ir_type_sorted(r, r->attr->to, ":to"));
    if (r->attr->i < 0 || r->attr->i > 1000000 || r->attr->f != 0.0)
        return WRONG("wants a number");
    return (ir_type){.dtype = r->attr->dtype,
                     .dims = ir_type_sort(r->a, r->attr->to.at, r->attr->to.n),
                     .is_open = true};
}

/* Formals [at, at + n) of a lambda have the types of formals [from, from + n) of another. */
static const char *formals_differ(const rule *r, const ir_node *x, i64 at, const ir_node *y,
                                  i64 from, i64 n, const char *what)
{
    for (i64 i = 0; i < n; i++)
        if (!same_type(formal_of(r, x, at + i), formal_of(r, y, from + i)))
            return arena_printf(r->a, "%s: formal %lld has another type than in update", what,
                                (long long)(at + i));
    return NULL;
}

static const char *state_differs(const rule *r, const ir_node *x, const ir_node *update, i64 n,
                                 const char *what)
{
    if (result_count(x) != n)
        return arena_printf(r->a, "%s has %lld results, the state has %lld slots", what,
                            (long long)result_count(x), (long long)n);
    for (i64 i = 0; i < n; i++)
        if (!same_type(result_of(r, x, i), formal_of(r, update, i)))
            return arena_printf(r->a, "%s: result %lld has another type than the state", what,
                                (long long)i);
    return NULL;
}

static ir_type type_reducer(const rule *r)
{
    if (r->n < 3 || r->n > 4)
        return WRONG("wants identity, update, final and perhaps merge");
    for (i64 i = 0; i < r->n; i++)
        CHECK(not_kind(r, i, IR_A_LAMBDA, "lambda"));
    if (r->attr->ints.n != 1 || r->attr->ints.at[0] < 0 || r->attr->ints.at[0] > 1)
        return WRONG(":lanes wants 0 or 1");
    const ir_node *identity = operand(r, 0), *update = operand(r, 1), *final = operand(r, 2);
    i64 slots = result_count(identity), lanes = r->attr->ints.at[0];
    i64 leaves = formal_count(update) - slots - lanes;
    if (formal_count(identity) != 0)
        return WRONG("identity has formals");
    if (leaves < 0)
        return WRONG("update has %lld formals, the state %lld slots",
                     (long long)formal_count(update), (long long)slots);
    for (i64 i = 0; i < slots; i++) {
        const ir_node *x = result_of(r, identity, i);
        if (x->dtype != formal_of(r, update, i)->dtype || x->dims.n > 0)
            return WRONG("identity: result %lld wants the dtype of the state and no dims",
                         (long long)i);
    }
    CHECK(state_differs(r, update, update, slots, "update"));
    if (lanes > 0) {
        const ir_node *x = formal_of(r, update, slots);
        if (!dtype_is_float(x->dtype) || x->dims.n > 0)
            return WRONG("update: the number of lanes is a float without dims");
    }
    if (formal_count(final) != slots + leaves)
        return WRONG("final has %lld formals, wants %lld", (long long)formal_count(final),
                     (long long)(slots + leaves));
    CHECK(formals_differ(r, final, 0, update, 0, slots, "final"));
    CHECK(formals_differ(r, final, slots, update, slots + lanes, leaves, "final"));
    if (r->n == 3)
        return (ir_type){0};
    const ir_node *merge = operand(r, 3);
    if (formal_count(merge) != 2 * slots + leaves)
        return WRONG("merge has %lld formals, wants %lld", (long long)formal_count(merge),
                     (long long)(2 * slots + leaves));
    CHECK(formals_differ(r, merge, 0, update, 0, slots, "merge"));
    CHECK(formals_differ(r, merge, slots, update, 0, slots, "merge"));
    CHECK(formals_differ(r, merge, 2 * slots, update, slots + lanes, leaves, "merge"));
    CHECK(state_differs(r, merge, update, slots, "merge"));
    return (ir_type){0};
}

/* ---- loops ---------------------------------------------------------------------------------- */

static ir_type type_rolled(const rule *r)
{
    const ir_node *x = operand(r, 0);
    i64 producers = r->n - 2;
    CHECK(not_closed_value(r, 0));
    CHECK(not_kind(r, 1, IR_A_LAMBDA, "lambda"));
    const ir_node *h = operand(r, 1);
    for (i64 i = 2; i < r->n; i++) {
        CHECK(not_kind(r, i, IR_A_COMPONENT, "component"));
        for (i64 j = 2; j < i; j++)
            if (r->args[i].i == r->args[j].i)
                return WRONG("operand %lld is the same producer again", (long long)i + 1);
    }
    if (formal_count(h) != 1 + 2 * producers || result_count(h) != 1)
        return WRONG("the transport has %lld formals and %lld results, wants %lld and 1",
                     (long long)formal_count(h), (long long)result_count(h),
                     (long long)(1 + 2 * producers));
    if (!same_type(formal_of(r, h, 0), x) || !same_type(result_of(r, h, 0), x))
        return WRONG("formal 0 and the result of the transport want the type of the body");
    for (i64 i = 0; i < 2 * producers; i++)
        if (!same_type(formal_of(r, h, 1 + i), operand(r, 2 + i % producers)))
            return WRONG("formal %lld of the transport has another type than its producer",
                         (long long)i + 1);
    ir_type type = same_as(r, x);
    for (i64 i = 2; i < r->n; i++)
        type.axes = ir_type_union(r->a, type.axes, operand(r, i)->axes);
    type.runs = all_runs(r, 0, r->n);
    CHECK(reducer_wrong(r, x->dtype));
    return type;
}

/* Marks the formals, by number, that a result of the lambda depends on, and adds the atoms of the
 * terms in between. */
static void mark_formals(const rule *r, const ir_node *lambda, i64 result, bool *uses,
                         ir_atoms *dims)
{
    i64 formals = formal_count(lambda);
    body b = body_of(r, &lambda->args[formals + result], 1);
    for (i64 k = 0; k < b.n; k++) {
        const ir_node *node = node_of(r, b.at[k]);
        *dims = ir_type_union(r->a, *dims, node->dims);
        if (node->op == IR_formal)
            uses[node->attr.i] = true;
    }
}

bool *ir_leaves_of_result(const ir_program *p, arena *a, const ir_node *reducer, i64 result,
                          i64 leaves, ir_atoms *dims)
{
    rule own = {.p = p, .a = a};
    const rule *r = &own;
    const ir_node *update = node_of(r, reducer->args[1]), *final = node_of(r, reducer->args[2]);
    const ir_node *merge = reducer->arg_count > 3 ? node_of(r, reducer->args[3]) : NULL;
    i64 slots = result_count(update), lanes = reducer->attr.ints.at[0];
    bool *slot = NEW_N(r->a, bool, slots), *done = NEW_N(r->a, bool, slots);
    bool *leaf = NEW_N(r->a, bool, leaves + 1);
    bool *by_final = NEW_N(r->a, bool, formal_count(final));
    mark_formals(r, final, result, by_final, dims);
    for (i64 i = 0; i < slots; i++)
        slot[i] = by_final[i];
    for (i64 i = 0; i < leaves; i++)
        leaf[1 + i] = by_final[slots + i];
    for (bool more = true; more;) {
        more = false;
        for (i64 k = 0; k < slots; k++) {
            if (!slot[k] || done[k])
                continue;
            done[k] = more = true;
            bool *u = NEW_N(r->a, bool, formal_count(update));
            bool *m = NEW_N(r->a, bool, 2 * slots + leaves);
            mark_formals(r, update, k, u, dims);
            if (merge)
                mark_formals(r, merge, k, m, dims);
            for (i64 i = 0; i < slots; i++)
                slot[i] = slot[i] || u[i] || m[i] || m[slots + i];
            for (i64 i = 0; i < leaves; i++)
                leaf[1 + i] = leaf[1 + i] || u[slots + lanes + i] || m[2 * slots + i];
        }
    }
    return leaf;
}

static ir_type type_comp(const rule *r)
{
    ir_ints ints = r->attr->ints;
    if (r->attr->reducer != IR_NO_REDUCER) {
        if (ints.n > 0)
            return WRONG(":result is for reducer terms");
        if (r->n == 2)
            return WRONG("a transport without producers");
        if (r->n > 2)
            return type_rolled(r);
        CHECK(not_closed_value(r, 0));
        CHECK(reducer_wrong(r, operand(r, 0)->dtype));
        return same_as(r, operand(r, 0));
    }
    CHECK(not_kind(r, 0, IR_A_REDUCER, "reducer"));
    const ir_node *reducer = operand(r, 0), *update = node_of(r, reducer->args[1]),
                  *final = node_of(r, reducer->args[2]);
    if (ints.n != 1 || ints.at[0] < 0 || ints.at[0] >= result_count(final))
        return WRONG(":result wants one of the %lld results", (long long)result_count(final));
    i64 leaves = r->n - 1, first = formal_count(update) - leaves;
    if (first != result_count(update) + reducer->attr.ints.at[0])
        return WRONG(
            "%lld leaves, the reducer has %lld", (long long)leaves,
            (long long)(formal_count(update) - result_count(update) - reducer->attr.ints.at[0]));
    for (i64 i = 0; i < leaves; i++) {
        CHECK(not_closed_value(r, 1 + i));
        if (!same_type(operand(r, 1 + i), formal_of(r, update, first + i)))
            return WRONG("leaf %lld has another type than formal %lld of update", (long long)i + 1,
                         (long long)(first + i));
    }
    CHECK(ir_type_aligned(r, 1, r->n));
    ir_type type = same_as(r, result_of(r, final, ints.at[0]));
    /* The axes of the leaves that matter, and of what is cut by another leaf and met on the way. */
    ir_atoms all = all_axes(r, 1, r->n), met = {0};
    bool *matters = ir_leaves_of_result(r->p, r->a, reducer, ints.at[0], leaves, &met);
    type.axes = (ir_atoms){0};
    for (i64 i = 1; i < r->n; i++)
        if (matters[i])
            type.axes = ir_type_union(r->a, type.axes, operand(r, i)->axes);
    for (i64 i = 0; i < all.n; i++)
        if (ir_has(met, all.at[i]))
            type.axes = ir_type_union(r->a, type.axes, ir_type_sort(r->a, &all.at[i], 1));
    type.runs = all_runs(r, 1, r->n);
    return type;
}

static bool uses_formal(const rule *r, const ir_node *lambda, i64 number)
{
    i64 formals = formal_count(lambda);
    body b = body_of(r, lambda->args + formals, lambda->arg_count - formals);
    for (i64 k = 0; k < b.n; k++)
        if (b.at[k].i == lambda->args[number].i)
            return true;
    return false;
}

/* What final and merge see must be the same at every tile. */
static const char *varying_leaf(const rule *r, const ir_node *comp, ir_atoms axes)
{
    const ir_node *reducer = node_of(r, comp->args[0]), *update = node_of(r, reducer->args[1]);
    i64 slots = result_count(update), lanes = reducer->attr.ints.at[0];
    for (i64 i = 1; i < comp->arg_count; i++) {
        const ir_node *x = node_of(r, comp->args[i]);
        bool varies = false;
        for (i64 j = 0; j < axes.n; j++) {
            varies = varies || ir_has(x->axes, axes.at[j]);
            const ir_split *s = ir_split_of(r->p, axes.at[j]);
            if (lanes && s && ir_is_ragged(r->p, axes.at[j]) && ir_has(x->dims, axes.at[j]) &&
                ir_has(x->dims, s->outer.i == axes.at[j].i ? s->inner : s->outer))
                return arena_printf(r->a, "the number of live positions of %s is not one number",
                                    name_of(r, axes.at[j]));
        }
        if (varies && (uses_formal(r, node_of(r, reducer->args[2]), slots + i - 1) ||
                       (reducer->arg_count > 3 &&
                        uses_formal(r, node_of(r, reducer->args[3]), 2 * slots + i - 1))))
            return arena_printf(r->a, "final or merge uses leaf %lld, which varies with the tile",
                                (long long)i);
    }
    return NULL;
}

/* Producers are in the loop; what a body sees of running results, its transport follows. */
static const char *component_wrong(const rule *r, const ir_node *comp)
{
    ir_terms own = {r->args, r->n};
    bool is_reducer = comp->attr.reducer == IR_NO_REDUCER;
    ir_terms producers = {0};
    if (!is_reducer && comp->arg_count > 2)
        producers = (ir_terms){comp->args + 2, comp->arg_count - 2};
    for (i64 i = 0; i < producers.n; i++)
        if (!ir_term_in(own, producers.at[i]).i)
            return "a producer of a component is not in the loop";
    for (i64 k = is_reducer ? 1 : 0; k < (is_reducer ? comp->arg_count : 1); k++) {
        ir_terms runs = node_of(r, comp->args[k])->runs;
        for (i64 i = 0; i < runs.n; i++) {
            const ir_node *run = node_of(r, runs.at[i]);
            if (!ir_term_in(own, run->args[0]).i)
                continue;
            if (!ir_type_same_atoms(run->attr.par, r->attr->par))
                return "a run over other axes than the loop's";
            if (!ir_term_in(producers, run->args[0]).i)
                return "a body uses a running result without a transport for it";
        }
    }
    return is_reducer ? varying_leaf(r, comp, r->attr->par) : NULL;
}

/* Bounds over all positions of the outer atoms fit 64 bits. */
static bool bound_fits(const rule *r, const i64 *at, ir_atoms atoms)
{
    i64 low = at[0], high = at[0];
    for (i64 i = 0; i < atoms.n; i++) {
        i64 span;
        if (!mul_i64(at[1 + i], ir_extent(r->p, atoms.at[i]) - 1, &span) ||
            !add_i64(span < 0 ? low : high, span, span < 0 ? &low : &high))
            return false;
    }
    return true;
}

static const char *visit_wrong(const rule *r)
{
    ir_atoms to = r->attr->to, par = r->attr->par;
    ir_ints ints = r->attr->ints;
    if (ints.n == 0)
        return to.n > 0 ? "outer atoms without a visit list" : NULL;
    if (par.n != 1)
        return "a visit list is for one axis";
    const char *text = ir_type_sorted(r, to, ":visit");
    if (text)
        return text;
    if (ir_has(to, par.at[0]))
        return "a visit list that depends on its own axis";
    i64 bound = 1 + to.n;
    if (ints.n % (2 * bound) != 0)
        return ":visit wants a low and a high bound for each range";
    for (i64 i = 0; i < ints.n; i += bound)
        if (!bound_fits(r, ints.at + i, to))
            return "a bound of the visit list does not fit 64 bits";
    return NULL;
}

static ir_type type_loop(const rule *r)
{
    ir_atoms par = r->attr->par;
    ir_type type = {0};
    if (par.n == 0)
        return WRONG(":par is empty");
    for (i64 i = 0; i < r->n; i++) {
        CHECK(not_kind(r, i, IR_A_COMPONENT, "component"));
        if (i > 0 && r->args[i - 1].i >= r->args[i].i)
            return WRONG("the components are not a sorted set");
    }
    for (i64 i = 0; i < r->n; i++) {
        const ir_node *comp = operand(r, i);
        CHECK(not_in_state(r, par, comp, IR_PARTIAL));
        CHECK(component_wrong(r, comp));
        type.axes = ir_type_union(r->a, type.axes, comp->axes);
    }
    type.axes = ir_type_minus(r->a, type.axes, par);
    ir_terms all = all_runs(r, 0, r->n);
    ir_term *free = NEW_N(r->a, ir_term, all.n);
    for (i64 i = 0; i < all.n; i++)
        if (!ir_term_in((ir_terms){r->args, r->n}, node_of(r, all.at[i])->args[0]).i)
            free[type.runs.n++] = all.at[i];
    type.runs.at = free;
    CHECK(runs_inside(r, type.runs, par));
    CHECK(visit_wrong(r));
    return type;
}

static ir_type type_run(const rule *r)
{
    CHECK(not_kind(r, 0, IR_A_COMPONENT, "component"));
    const ir_node *x = operand(r, 0);
    if (r->attr->par.n == 0)
        return WRONG(":par is empty");
    CHECK(not_in_state(r, r->attr->par, x, IR_PARTIAL));
    ir_type type = same_as(r, x);
    type.axes = ir_type_minus(r->a, x->axes, r->attr->par);
    return type;
}

static ir_type type_get(const rule *r)
{
    const ir_node *from = operand(r, 0), *x = operand(r, 1);
    ir_kind kind = ir_kind_of(from->op);
    if (kind != IR_A_BUNDLE && kind != IR_A_TUPLE)
        return WRONG("operand 1 is neither a loop nor a tuple");
    if (!ir_term_in((ir_terms){from->args, from->arg_count}, r->args[1]).i)
        return WRONG("operand 2 is not in it");
    ir_type type = same_as(r, x);
    if (kind == IR_A_BUNDLE) {
        type.axes = ir_type_minus(r->a, x->axes, from->attr.par);
        type.runs = from->runs;
    }
    return type;
}

static ir_type type_tuple(const rule *r)
{
    for (i64 i = 0; i < r->n; i++)
        CHECK(not_closed_value(r, i));
    return (ir_type){.runs = all_runs(r, 0, r->n)};
}

ir_type ir_type_tiled(const rule *r)
{
    switch (r->op) {
    case IR_reduce:
        return type_reduce_par(r);
    case IR_view:
        return type_view(r);
    case IR_comb:
        return type_comb(r);
    case IR_collection:
        return type_collection(r);
    case IR_splitdim:
        return type_splitdim(r);
    case IR_comp:
        return type_comp(r);
    case IR_loop:
        return type_loop(r);
    case IR_get:
        return type_get(r);
    case IR_run:
        return type_run(r);
    case IR_tuple:
        return type_tuple(r);
    case IR_formal:
        return type_formal(r);
    case IR_lambda:
        return type_lambda(r);
    case IR_reducer:
        return type_reducer(r);
    default:
        return WRONG("an operator without a type");
    }
}
