/* Does a reducer's state stay what it is when a tile adds nothing?
 *
 * `update` is evaluated with what is known of the leaves on such a tile, as terms: constants fold, what
 * is neutral leaves, a condition that is the mask takes its other side. Each slot has to come out as itself.
 * One kind may differ: a reference that is stored, which `update` makes of the other slots, and of leaves
 * that are the same on every tile, by one expression, as the mean is made of a sum and of how many are live
 * in the row. It is that expression of the slots as they are. Only before the first tile it may be something
 * else; so it must be seen through a guard, (where (finite ref) ref c), that gives its initial value then,
 * and not by `final`.
 *
 * A state that counts positions, live ones or not, never rests: each tile is in its count, and the reference
 * that divides by it moves. It is right only once all positions were counted.   (space.md §6 F9) */
#include <math.h>

#include "rules/fuse_impl.h"

typedef struct known {
    ir_term term;
    rl_fact fact;
} known;

typedef struct evaluation {
    ir_program *p;
    known *at; /* by term of the lambda; none: not evaluated */
    bool *done;
} evaluation;

static bool has_dims_of(const ir_program *p, ir_term t, const ir_node *node)
{
    const ir_node *x = ir_get(p, t);
    bool same = x->dims.n == node->dims.n && x->dtype == node->dtype;
    for (i64 i = 0; same && i < x->dims.n; i++)
        same = x->dims.at[i].i == node->dims.at[i].i;
    return same;
}

static bool is_value(const known *x, f64 value)
{
    return x->fact.is_known && x->fact.value == value;
}

/* The operand that the operator leaves as it is; none. */
static ir_term kept_operand(ir_op op, const known *x, i64 n)
{
    const f64 infinity = (f64)INFINITY;
    f64 neutral = op == IR_mul || op == IR_div ? 1 : op == IR_max ? -infinity : op == IR_min ? infinity : 0;
    bool on_right = op == IR_add || op == IR_sub || op == IR_mul || op == IR_div || op == IR_max ||
                    op == IR_min;
    if (op == IR_where && x[0].fact.is_mask)
        return x[2].term;
    if (op == IR_where && x[1].term.i == x[2].term.i)
        return x[1].term;
    if (n == 2 && on_right && is_value(&x[1], neutral))
        return x[0].term;
    if (n == 2 && on_right && op != IR_sub && op != IR_div && is_value(&x[0], neutral))
        return x[1].term;
    return (ir_term){0};
}

static rl_fact fact_of(f64 value)
{
    return (rl_fact){.is_known = true, .is_finite = isfinite(value), .value = value};
}

static known evaluate(evaluation *e, ir_term t)
{
    ir_program *p = e->p;
    if (e->done[t.i])
        return e->at[t.i];
    e->done[t.i] = true;
    ir_node node = *ir_get(p, t);
    known *x = NEW_N(p->a, known, node.arg_count), *out = &e->at[t.i];
    *out = (known){.term = t};
    if (node.op == IR_const && dtype_is_float((dtype)node.dtype))
        out->fact = fact_of(node.attr.f);
    if (node.arg_count == 0)
        return *out;
    rl_fact facts[3] = {{0}};
    ir_term *args = NEW_N(p->a, ir_term, node.arg_count);
    for (i64 i = 0; i < node.arg_count; i++) {
        x[i] = evaluate(e, node.args[i]);
        args[i] = x[i].term;
        if (i < COUNT_OF(facts))
            facts[i] = x[i].fact;
    }
    const ir_node *test = ir_get(p, args[0]);
    bool guards = node.op == IR_where && test->op == IR_finite && test->args[0].i == args[1].i;
    rl_label label = {.op = node.op, .reducer = (ir_reducer)node.attr.reducer};
    if (node.op == IR_matmul)
        label.op = IR_tile_matmul;
    if (node.arg_count <= COUNT_OF(facts))
        out->fact = rl_fact_of(&label, facts, node.arg_count, guards, false);
    bool is_nothing = node.op == IR_sub && args[0].i == args[1].i;
    /* while the references stay; where they are not finite nothing has been accumulated */
    bool is_ratio = node.op == IR_where && test->op == IR_finite && is_value(&x[1], 1) && is_value(&x[2], 0);
    if (is_nothing || is_ratio)
        out->fact = fact_of(is_ratio);
    ir_term kept = kept_operand(node.op, x, node.arg_count);
    out->term = kept.i && has_dims_of(p, kept, &node)
                    ? kept
                    : ir_make(p, node.op, node.attr, args, node.arg_count);
    return *out;
}

/* What each result of the lambda is, formals replaced by what stands for them. */
static void results_of(ir_program *p, ir_term lambda, const known *formals, ir_term *out)
{
    i64 n = ir_formal_count(p, lambda), count = ir_result_count(p, lambda);
    evaluation e = {p, NEW_N(p->a, known, lambda.i + 1), NEW_N(p->a, bool, lambda.i + 1)};
    for (i64 i = 0; i < n; i++) {
        u32 formal = ir_get(p, lambda)->args[i].i;
        e.at[formal] = formals[i];
        e.done[formal] = true;
    }
    for (i64 i = 0; i < count; i++)
        out[i] = evaluate(&e, ir_result(p, lambda, i)).term;
}

static bool uses(const ir_program *p, ir_term t, ir_term what, bool *seen)
{
    const ir_node *node = ir_get(p, t);
    if (t.i == what.i)
        return true;
    bool any = false;
    for (i64 i = 0; i < node->arg_count && !seen[t.i]; i++)
        any = any || uses(p, node->args[i], what, seen);
    seen[t.i] = true;
    return any;
}

static bool lambda_uses(const ir_program *p, ir_term lambda, i64 result, ir_term what)
{
    arena *scratch = arena_child(p->a);
    bool any = uses(p, ir_result(p, lambda, result), what, NEW_N(scratch, bool, p->nodes.n));
    arena_free(scratch);
    return any;
}

/* Is the formal seen through (where (finite formal) formal initial) alone? */
static bool is_guarded(const ir_program *p, ir_term lambda, ir_term formal, f64 initial)
{
    for (u32 k = 1; k < lambda.i; k++) {
        const ir_node *node = ir_get(p, (ir_term){k});
        for (i64 i = 0; i < node->arg_count; i++) {
            if (node->args[i].i != formal.i || node->op == IR_lambda || node->op == IR_finite)
                continue;
            const ir_node *test = node->op == IR_where ? ir_get(p, node->args[0]) : NULL;
            const ir_node *other = node->op == IR_where ? ir_get(p, node->args[2]) : NULL;
            if (i != 1 || !test || test->op != IR_finite || test->args[0].i != formal.i ||
                other->op != IR_const || other->attr.f != initial)
                return false;
        }
    }
    return true;
}

typedef struct reducer_parts {
    ir_program *p;
    ir_term begin, update, final;
    i64 slots, formals;
    const ir_term *formal;
    const bool *is_fixed; /* by formal: the same on every tile */
} reducer_parts;

/* Is `made`, an expression of the slots, what `update` makes slot k of, on every tile? */
static bool is_reference(const reducer_parts *r, i64 k, ir_term made)
{
    ir_program *p = r->p;
    ir_term begin = ir_result(p, r->begin, k);
    const ir_node *initial = ir_get(p, begin);
    arena *scratch = arena_child(p->a);
    bool stands = initial->op == IR_const && is_guarded(p, r->update, r->formal[k], initial->attr.f) &&
                  !uses(p, made, r->formal[k], NEW_N(scratch, bool, p->nodes.n));
    for (i64 i = r->slots; stands && i < r->formals; i++) /* lanes and leaves */
        stands = r->is_fixed[i] || !uses(p, made, r->formal[i], NEW_N(scratch, bool, p->nodes.n));
    for (i64 i = 0; stands && i < ir_result_count(p, r->final); i++)
        stands = !lambda_uses(p, r->final, i, ir_get(p, r->final)->args[k]);
    arena_free(scratch);
    if (!stands)
        return false;
    ir_term *outs = NEW_N(p->a, ir_term, r->formals), again;
    ir_term lambda = ir_lambda(p, r->formal, r->formals, &made, 1);
    for (i64 i = 0; i < r->formals; i++)
        outs[i] = i < r->slots ? ir_result(p, r->update, i) : r->formal[i];
    ir_apply(p, lambda, outs, r->formals, &again);
    return again.i == outs[k].i;
}

bool rl_reducer_rests(rl_graph *g, const rl_closed *reducer, const rl_fact *leaves, i64 leaf_count)
{
    arena *a = arena_child(g->a);
    ir_program *p = ir_program_new(a, "", "");
    rl_copy_atoms(p, g->own);
    ir_term whole = rl_copy_closed(p, g->own, reducer->term, DT_NONE);
    const ir_node *node = ir_get(p, whole);
    reducer_parts r = {.p = p, .begin = node->args[0], .update = node->args[1], .final = node->args[2]};
    r.slots = ir_result_count(p, r.update);
    r.formals = ir_formal_count(p, r.update);
    ir_term *formal = NEW_N(a, ir_term, r.formals), *out = NEW_N(a, ir_term, r.slots);
    known *given = NEW_N(a, known, r.formals);
    bool *is_fixed = NEW_N(a, bool, r.formals);
    for (i64 i = 0; i < r.formals; i++)
        formal[i] = ir_get(p, r.update)->args[i];
    r.formal = formal;
    for (i64 i = 0; i < r.formals; i++) {
        i64 leaf = i - (r.formals - leaf_count);
        const rl_fact *f = leaf >= 0 && i >= r.slots ? &leaves[leaf] : NULL;
        given[i] = (known){.term = formal[i]};
        if (f && (f->is_known || f->is_mask))
            given[i].fact = *f;
        is_fixed[i] = f && f->is_fixed;
    }
    r.is_fixed = is_fixed;
    results_of(p, r.update, given, out);
    bool rests = true, any = false;
    for (i64 k = 0; rests && k < r.slots; k++) {
        if (out[k].i == formal[k].i || !is_reference(&r, k, out[k]))
            continue;
        given[k].term = out[k];
        any = true;
    }
    if (any)
        results_of(p, r.update, given, out);
    for (i64 k = 0; rests && k < r.slots; k++)
        rests = out[k].i == given[k].term.i;
    arena_free(a);
    return rests;
}
