/* The solver's frame: the system is copied into a workspace over one float type, each reduction is
 * factored in order of dependency, and the factors become a reducer. Here too: max and min, where
 * the reduction never needs the earlier result and is split from it. */
#include <math.h>
#include <stdio.h>

#include "rules/repair_impl.h"

const char *rl_term_text(arena *a, const ir_program *p, ir_term t)
{
    str s = str_new(a);
    ir_print_term(&s, p, t);
    return str_text(&s);
}

/* ---- the workspace -------------------------------------------------------------------------- */

static ir_program *copy_atoms(arena *a, const ir_program *from, const char *name)
{
    ir_program *p = ir_program_new(a, from->file, name);
    for (i64 i = 1; i < from->atoms.n; i++)
        ir_atom_new(p, ir_atom_name(from, (ir_atom){(u32)i}), from->atoms.at[i].extent);
    return p;
}

static ir_term add_port(ir_program *p, arena *scratch, const char *name, dtype t, ir_atoms dims)
{
    ir_dim *at = NEW_N(scratch, ir_dim, dims.n);
    for (i64 i = 0; i < dims.n; i++)
        at[i] = (ir_dim){ir_extent(p, dims.at[i]), {&dims.at[i], 1}};
    i64 n = ir_add_input(
        p,
        (ir_port){.name = intern_cstr(p->names, name), .dtype = (u8)t, .rank = dims.n, .dims = at});
    return p->inputs.at[n].term;
}

const char *rl_fresh_name(solver *s, const char *prefix, i64 k)
{
    const ir_program *p = s->system->p;
    const char *name = arena_printf(s->a, "%s.%lld", prefix, (long long)k);
    for (i64 i = 0; i < p->inputs.n; i++)
        if (strcmp(intern_text(p->names, p->inputs.at[i].name), name) == 0) {
            name = arena_printf(s->a, "%s_", name);
            i = -1;
        }
    return name;
}

static void set_port(solver *s, ir_term leaf, ir_term source)
{
    i64 n = (i64)leaf.i + 1;
    vec_reserve(s->a, &s->ports, n);
    for (; s->ports.n < n; s->ports.n++)
        s->ports.at[s->ports.n] = (ir_term){0};
    s->ports.at[leaf.i] = source;
}

static bool touches(ir_atoms a, ir_atoms b)
{
    for (i64 i = 0; i < a.n; i++)
        if (ir_has(b, a.at[i]))
            return true;
    return false;
}

static ir_term import_input(solver *s, ir_term t)
{
    const ir_program *p = s->system->p;
    const ir_node *n = ir_get(p, t);
    const char *name = intern_text(p->names, n->attr.name);
    ir_term leaf = add_port(s->f->w, s->a, name, (dtype)n->dtype, n->dims);
    rl_sign sign = RL_ANY;
    for (i64 i = 0; i < p->inputs.n; i++)
        if (p->inputs.at[i].term.i == t.i && s->system->signs)
            sign = (rl_sign)s->system->signs[i];
    rl_form_leaf(s->f, leaf, touches(n->dims, s->system->axis) ? DEP_X : 0, sign);
    set_port(s, leaf, t);
    return leaf;
}

static ir_term import(solver *s, ir_term t, bool is_root)
{
    const ir_program *p = s->system->p;
    if (!is_root && s->imported.at[t.i].i)
        return s->imported.at[t.i];
    if (!is_root)
        for (i64 k = 0; k < s->system->n; k++)
            if (s->system->at[k].value.i == t.i)
                eqf_throw(s->f->w->ctx, EQF_E_ARGUMENT, p->file, NULL,
                          "repair: reduction %lld is used before its place", (long long)k);
    ir_node n = *ir_get(p, t);
    ir_term *args = NEW_N(s->a, ir_term, n.arg_count), result;
    for (i64 i = 0; i < n.arg_count; i++)
        args[i] = import(s, n.args[i], false);
    bool is_float = dtype_is_float((dtype)n.dtype);
    if (n.op == IR_in) {
        result = import_input(s, t);
        if (is_float)
            result = ir_cast(s->f->w, s->f->real, result);
    } else if (n.op == IR_const && is_float) {
        result = rl_tm_real(s->f, n.attr.f);
    } else if (n.op == IR_cast && is_float) {
        result = ir_cast(s->f->w, s->f->real, args[0]);
    } else {
        if (n.op == IR_opaque && is_float)
            n.attr.dtype = (u8)s->f->real;
        n.attr.name =
            n.op == IR_opaque ? intern_cstr(s->f->w->names, intern_text(p->names, n.attr.name)) : 0;
        result = ir_make(s->f->w, (ir_op)n.op, n.attr, args, n.arg_count);
    }
    if (!is_root)
        s->imported.at[t.i] = result;
    return result;
}

static bool mentions_f64(const ir_program *p, ir_term t, u8 *seen)
{
    if (seen[t.i])
        return false;
    seen[t.i] = 1;
    const ir_node *n = ir_get(p, t);
    bool found = n->dtype == DT_f64;
    for (i64 i = 0; i < n->arg_count && !found; i++)
        found = mentions_f64(p, n->args[i], seen);
    return found;
}

static dtype real_of(arena *a, const rl_system *system)
{
    u8 *seen = NEW_N(a, u8, system->p->nodes.n);
    for (i64 k = 0; k < system->n; k++)
        if (mentions_f64(system->p, system->at[k].body, seen))
            return DT_f64;
    return DT_f32;
}

/* ---- accumulators --------------------------------------------------------------------------- */

ir_term rl_slot_leaf(solver *s, i64 slot)
{
    return s->slot_leaf[slot];
}

i64 rl_leaf_index(const solver *s, ir_term t)
{
    for (i64 i = 0; i < s->leaves.n; i++)
        if (s->leaves.at[i].leaf.i == t.i)
            return i;
    return -1;
}

/* x * t without a new multiplication, or none: constants and signs inside t take it. */
static ir_term absorbed(form *f, ir_term t, f64 x)
{
    ir_node n = *ir_get(f->w, t);
    ir_term args[2] = {{0}, {0}};
    f64 value;
    for (i64 i = 0; i < n.arg_count && i < 2; i++)
        args[i] = n.args[i];
    switch (n.op) {
    case IR_const:
        return rl_tm_is_const(f, t, &value) ? rl_tm_real(f, x * value) : (ir_term){0};
    case IR_neg:
        return x == -1 ? args[0] : rl_tm_2(f, IR_mul, rl_tm_real(f, -x), args[0]);
    case IR_sub:
        return x == -1 ? rl_tm_2(f, IR_sub, args[1], args[0]) : (ir_term){0};
    case IR_mul:
    case IR_matmul:
    case IR_div:
    case IR_reduce:
        if (n.op == IR_reduce && n.attr.reducer != IR_SUM)
            return (ir_term){0};
        for (i64 i = 0; i < (n.op == IR_div ? 1 : n.arg_count); i++) {
            ir_term a = absorbed(f, args[i], x);
            if (a.i) {
                args[i] = a;
                return rl_tm_again(f, t, args);
            }
        }
        return (ir_term){0};
    default:
        return (ir_term){0};
    }
}

slot_use rl_add_accumulator(solver *s, i64 k, ir_reducer op, ir_term term, poly target, i64 block)
{
    for (i64 i = 0; i < s->accs.n; i++) {
        const accumulator *a = &s->accs.at[i];
        rat c;
        if (a->op != op)
            continue;
        if (op == IR_SUM ? rl_poly_ratio(s->f, target, a->target, &c)
                         : rl_poly_eq(target, a->target))
            return (slot_use){i, op == IR_SUM ? c : (rat){1, 1}};
    }
    if (s->accs.n == 16)
        return (slot_use){-1, {0, 1}};
    /* One term with a rational in front is kept without it; later ones refer to it. */
    rat c = {1, 1};
    if (op == IR_SUM && target.n == 1 && !rl_rat_is(target.at[0].c, 1)) {
        rat inverse = rl_rat_of(target.at[0].c.d, target.at[0].c.n);
        poly plain = rl_poly_scale(s->f, target, inverse, 0);
        f64 x = rl_rat_value(inverse);
        ir_term simple = absorbed(s->f, term, x);
        if (!simple.i)
            simple = rl_tm_2(s->f, IR_mul, rl_tm_real(s->f, x), term);
        if (rl_poly_eq(rl_poly_flat(s->f, rl_form_of(s->f, simple)), plain)) {
            c = target.at[0].c;
            term = simple;
            target = plain;
        }
    }
    i64 slot = s->accs.n;
    vec_push(s->a, &s->accs,
             (accumulator){.op = op,
                           .term = term,
                           .target = target,
                           .reduction = k,
                           .block = block,
                           .is_count = term.i == s->f->lanes.i});
    s->slot_leaf[slot] = add_port(s->f->w, s->a, rl_fresh_name(s, "a", slot), s->f->real,
                                  ir_get(s->f->w, term)->dims);
    rl_form_leaf(s->f, s->slot_leaf[slot], DEP_S, RL_ANY);
    return (slot_use){slot, c};
}

static bool fail(solver *s, ir_term blocking, const char *reason)
{
    s->blocking = blocking;
    s->reason = reason;
    return false;
}

/* ---- max and min ---------------------------------------------------------------------------- */

static ir_reducer opposite(ir_reducer op)
{
    return op == IR_MAX ? IR_MIN : IR_MAX;
}

static ir_term extremum_of(solver *s, i64 k, ir_reducer op, ir_term g, ir_atoms rows)
{
    ir_atoms dims = ir_get(s->f->w, g)->dims;
    ir_atoms there = ir_atoms_minus(s->f->w, rows, ir_atoms_minus(s->f->w, rows, dims));
    ir_term term = there.n ? rl_tm_reduce(s->f, op, g, there) : g;
    slot_use use = rl_add_accumulator(s, k, op, term, rl_form_of(s->f, term), -1);
    return use.slot < 0 ? (ir_term){0} : rl_slot_leaf(s, use.slot);
}

static bool is_row_free(form *f, poly p, ir_atoms rows)
{
    for (i64 i = 0; i < p.n; i++)
        if (touches(rl_mono_dims(f, p.at[i].mono), rows))
            return false;
    return true;
}

static poly part_with_s(form *f, poly p)
{
    poly sum = rl_poly_zero();
    for (i64 i = 0; i < p.n; i++)
        if (rl_mono_dep(f, p.at[i].mono) & DEP_S)
            sum = rl_poly_add(f, sum, rl_poly_mono(f, p.at[i].mono, p.at[i].c));
    return sum;
}

static ir_term order(solver *s, i64 k, ir_reducer op, ir_term t, ir_atoms rows);

/* F = (G + t) or G * phi by its normal form. */
static ir_term order_by_form(solver *s, i64 k, ir_reducer op, ir_term t, ir_atoms rows)
{
    form *f = s->f;
    poly p = rl_poly_flat(f, rl_form_of(f, t)), shift = part_with_s(f, p);
    if (f->stop || p.n == 0)
        return (ir_term){0};
    if (shift.n == 0)
        return extremum_of(s, k, op, t, rows);
    if (!(rl_poly_dep(f, shift) & DEP_X) && shift.n < p.n && is_row_free(f, shift, rows)) {
        ir_term g = extremum_of(s, k, op, rl_print_poly(f, rl_poly_sub(f, p, shift)), rows);
        return g.i ? rl_tm_2(f, IR_add, g, rl_print_poly(f, shift)) : g;
    }
    u32 phi = rl_poly_common(f, p);
    poly rest = rl_poly_scale(f, p, (rat){1, 1}, rl_mono_pow(f, phi, (rat){-1, 1}));
    if (!phi || (rl_poly_dep(f, rest) & DEP_S) || touches(rl_mono_dims(f, phi), rows))
        return (ir_term){0};
    ir_term scale = rl_print_mono(f, (rat){1, 1}, phi), g = rl_print_poly(f, rest);
    ir_term high = extremum_of(s, k, op, g, rows);
    if (!high.i)
        return high;
    bool keeps_order = true;
    mono m = f->monos.at[phi];
    for (i64 i = 0; i < m.n; i++)
        keeps_order = keeps_order && (f->factors.at[m.at[i].factor].sign != RL_ANY ||
                                      (rl_rat_is_int(m.at[i].q) && m.at[i].q.n % 2 == 0));
    if (keeps_order)
        return rl_tm_2(f, IR_mul, high, scale);
    ir_term low = extremum_of(s, k, opposite(op), g, rows);
    if (!low.i)
        return low;
    return rl_tm_where(f, ir_2(f->w, IR_lt, scale, rl_tm_real(f, 0)),
                       rl_tm_2(f, IR_mul, low, scale), rl_tm_2(f, IR_mul, high, scale));
}

static bool is_pure_result(solver *s, ir_term t, ir_atoms rows)
{
    return rl_form_dep(s->f, t) == DEP_S && !touches(ir_get(s->f->w, t)->dims, rows);
}

/* By the operator at the root: what keeps (or turns) the order is gone through. */
static ir_term order_by_operator(solver *s, i64 k, ir_reducer op, ir_term t, ir_atoms rows)
{
    form *f = s->f;
    ir_node n = *ir_get(f->w, t);
    ir_op same = op == IR_MAX ? IR_max : IR_min;
    if (n.op == same) {
        ir_term a = order(s, k, op, n.args[0], rows);
        ir_term b = a.i ? order(s, k, op, n.args[1], rows) : a;
        return b.i ? rl_tm_2(f, same, a, b) : b;
    }
    if (n.op == IR_abs && op == IR_MAX) {
        ir_term a = order(s, k, op, n.args[0], rows);
        ir_term b = a.i ? order(s, k, op, rl_tm_1(f, IR_neg, n.args[0]), rows) : a;
        return b.i ? rl_tm_2(f, IR_max, a, b) : b;
    }
    if (n.op == IR_neg) {
        ir_term a = order(s, k, opposite(op), n.args[0], rows);
        return a.i ? rl_tm_1(f, IR_neg, a) : a;
    }
    const ir_op_row *row = ir_row((ir_op)n.op);
    if (n.arg_count == 1 && row->class_ == IR_EWISE && (row->flags & IR_MONOTONE) &&
        dtype_is_float((dtype)n.dtype)) {
        ir_term a = order(s, k, op, n.args[0], rows);
        return a.i ? rl_tm_1(f, (ir_op)n.op, a) : a;
    }
    if (n.arg_count != 2)
        return (ir_term){0};
    for (int i = 0; i < 2; i++) {
        ir_term fixed = n.args[i], moving = n.args[1 - i];
        bool is_shift = n.op == IR_add || n.op == IR_sub;
        bool is_scale =
            (n.op == IR_mul || (n.op == IR_div && i == 1)) && rl_form_sign(f, fixed) != RL_ANY;
        if (!is_pure_result(s, fixed, rows) || (!is_shift && !is_scale))
            continue;
        bool turns = n.op == IR_sub && i == 0;
        ir_term a = order(s, k, turns ? opposite(op) : op, moving, rows);
        if (!a.i)
            return a;
        return i == 0 ? rl_tm_2(f, (ir_op)n.op, fixed, a) : rl_tm_2(f, (ir_op)n.op, a, fixed);
    }
    return (ir_term){0};
}

/* Reduce_op over tiles, and over `rows` inside each, of t: a term in slots and results, or none. */
static ir_term order(solver *s, i64 k, ir_reducer op, ir_term t, ir_atoms rows)
{
    const ir_node *n = ir_get(s->f->w, t);
    if (n->op == IR_reduce && n->attr.reducer == op)
        return order(s, k, op, n->args[0], ir_atoms_union(s->f->w, rows, n->attr.axis));
    i64 before = s->accs.n;
    ir_term r = order_by_form(s, k, op, t, rows);
    if (r.i || s->f->stop)
        return r;
    s->accs.n = before;
    return order_by_operator(s, k, op, t, rows);
}

/* The smallest subterm in which tile and results do not come apart, for the message. */
static ir_term blocking_order(solver *s, ir_term t)
{
    form *f = s->f;
    for (;;) {
        ir_node n = *ir_get(f->w, t);
        i64 mixed = -1;
        for (i64 i = 0; i < n.arg_count; i++)
            if (rl_form_dep(f, n.args[i]) == DEP_MIXED) {
                bool is_row = n.op == IR_reduce;
                const ir_op_row *row = ir_row((ir_op)n.op);
                if (is_row || (n.arg_count == 1 && (row->flags & IR_MONOTONE)) || n.op == IR_neg)
                    mixed = i;
            }
        if (mixed < 0)
            return t;
        t = n.args[mixed];
    }
}

bool rl_solve_order(solver *s, i64 k)
{
    form *f = s->f;
    ir_reducer op = s->system->at[k].op;
    ir_term body = s->body[k];
    rl_how *how = &s->how[k];
    how->blocks = 1;
    how->form = rl_form_dep(f, body) & DEP_S ? RL_SPLIT : RL_PLAIN;
    ir_term r = order(s, k, op, body, (ir_atoms){0});
    if (f->stop)
        return fail(s, body, f->stop);
    if (!r.i)
        return fail(s, blocking_order(s, body),
                    "orders the tile differently for different results");
    /* Rounding is monotone, so an extremum of one rounded sum is the rounded sum of the extremum.
     */
    const ir_node *n = ir_get(f->w, body);
    const ir_node *in = n->op == IR_reduce ? ir_get(f->w, n->args[0]) : n;
    bool one_sum = (in->op == IR_add || in->op == IR_sub) &&
                   rl_form_dep(f, in->args[0]) != DEP_MIXED &&
                   rl_form_dep(f, in->args[1]) != DEP_MIXED;
    how->fp = how->form == RL_PLAIN || one_sum ? RL_EXACT : RL_REASSOCIATED;
    s->readout[k] = r;
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void check_system(eqf_ctx *ctx, const rl_system *system)
{
    const char *wrong = NULL;
    if (system->axis.n < 1)
        wrong = "no axis";
    if (system->n < 1 || system->n > RL_MAX_REDUCTIONS)
        wrong = "wants 1 to 8 reductions";
    for (i64 k = 0; !wrong && k < system->n; k++) {
        const rl_reduction *r = &system->at[k];
        if (r->op != IR_SUM && r->op != IR_MAX && r->op != IR_MIN)
            wrong = "wants sums, maxima and minima";
        else if (!dtype_is_float((dtype)ir_get(system->p, r->body)->dtype))
            wrong = "wants floats";
        else if (touches(ir_get(system->p, r->body)->dims, system->axis))
            wrong = "a body must combine the tile's own positions";
    }
    if (wrong)
        eqf_throw(ctx, EQF_E_ARGUMENT, system->p->file, NULL, "repair: %s", wrong);
}

static void add_result_leaf(solver *s, i64 k)
{
    form *f = s->f;
    ir_term body = s->body[k];
    ir_term leaf =
        add_port(f->w, s->a, rl_fresh_name(s, "s", k), f->real, ir_get(f->w, body)->dims);
    rl_form_leaf(f, leaf, DEP_S, rl_form_sign(f, body));
    s->s_of[k] = s->leaves.n;
    vec_push(s->a, &s->leaves, (s_leaf){.leaf = leaf, .reduction = k, .slot = -1, .stored = -1});
    s->imported.at[s->system->at[k].value.i] = leaf;
}

static ir_term uncut_leaf(void *user, ir_term leaf, bool under)
{
    (void)under;
    solver *s = user;
    i64 i = rl_leaf_index(s, leaf);
    return i >= 0 && s->leaves.at[i].cut.i ? s->leaves.at[i].cut : leaf;
}

rl_repair rl_solve_repair(arena *a, const rl_system *system, rl_want want)
{
    check_system(arena_ctx(a), system);
    solver *s = NEW(a, solver);
    *s = (solver){.a = a, .system = system, .want = want};
    ir_program *w = copy_atoms(a, system->p, "workspace");
    s->f = rl_form_new(a, w, real_of(a, system), ir_atoms_set(w, system->axis.at, system->axis.n));
    s->imported.at = NEW_N(a, ir_term, system->p->nodes.n);
    s->imported.n = s->imported.cap = system->p->nodes.n;
    s->f->lanes = add_port(w, a, rl_fresh_name(s, "lanes", 0), s->f->real, (ir_atoms){0});
    rl_form_leaf(s->f, s->f->lanes, DEP_X, RL_POSITIVE);
    s->f->lanes_factor = rl_factor_leaf(s->f, s->f->lanes);
    rl_repair out = {.found = true};
    for (i64 k = 0; k < system->n && out.found; k++) {
        s->body[k] = import(s, system->at[k].body, true);
        out.found = system->at[k].op == IR_SUM ? rl_solve_sum(s, k) : rl_solve_order(s, k);
        if (!out.found)
            out.blocked_reduction = k;
        else
            add_result_leaf(s, k);
    }
    memcpy(out.how, s->how, sizeof out.how);
    if (!out.found) {
        substitution whole = {.f = s->f, .leaf = uncut_leaf, .user = s};
        out.blocking = rl_term_text(a, w, rl_substitute(&whole, s->blocking, false));
        const char *numbers = s->f->stop ? "" : rl_explain_by_numbers(s, out.blocked_reduction);
        out.reason = arena_printf(a, "no repair: %s %s%s", out.blocking, s->reason, numbers);
        return out;
    }
    rl_build_lambdas(s, &out);
    out.certificate = rl_write_certificate(s);
    return out;
}

bool rl_system_of_program(arena *a, const ir_program *p, ir_atoms axis, rl_system *out)
{
    rl_reduction *at = NEW_N(a, rl_reduction, RL_MAX_REDUCTIONS);
    i64 n = 0;
    /* Operands come before their users, so term order is order of dependency. */
    for (i64 i = 1; i < p->nodes.n; i++) {
        const ir_node *node = &p->nodes.at[i];
        bool reduces = node->op == IR_reduce || node->op == IR_matmul;
        if (!reduces || !touches(node->attr.axis, axis))
            continue;
        ir_reducer op = node->op == IR_matmul ? IR_SUM : (ir_reducer)node->attr.reducer;
        for (i64 j = 0; j < axis.n; j++)
            if (!ir_has(node->attr.axis, axis.at[j]))
                return false;
        if (n == RL_MAX_REDUCTIONS || (op != IR_SUM && op != IR_MAX && op != IR_MIN))
            return false;
        at[n++] = (rl_reduction){op, {(u32)i}, {(u32)i}};
    }
    *out = (rl_system){.p = p, .axis = axis, .at = at, .n = n};
    return n > 0;
}
