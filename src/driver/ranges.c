/* What integers an input may hold. An index operand of gather or scatter must lie in [0, extent), an
 * integer divisor must not be 0; that demand is carried backwards through operators that move, convert, shift, count or choose
 * values, until it reaches inputs. Demands on one input intersect; one that leaves nothing is
 * dropped (after `where(i < 0, i + n, i)` both branches demand, and the plain one comes first).
 * Whatever computes an index in another way is left alone: the run itself checks every index. */
#include "driver/driver.h"

#define DEFAULT_HIGH 7

typedef struct demand {
    bool any;
    i64 low, high;
} demand;

typedef struct walk {
    const ir_program *p;
    demand *terms;
} walk;

static void ask(walk *w, ir_term t, i64 low, i64 high)
{
    demand *d = &w->terms[t.i];
    i64 l = d->any ? MAX(d->low, low) : low, h = d->any ? MIN(d->high, high) : high;
    if (l <= h)
        *d = (demand){true, l, h};
}

/* The least and greatest value of a term that is a constant, an iota, or one of those moved. */
static bool bounds(const ir_program *p, ir_term t, i64 *low, i64 *high)
{
    const ir_node *n = ir_get(p, t);
    switch (n->op) {
    case IR_const:
        if (dtype_is_float((dtype)n->dtype))
            return false;
        *low = *high = n->attr.i;
        return true;
    case IR_iota:
        *low = 0;
        *high = ir_extent(p, n->attr.axis.at[0]) - 1;
        return true;
    case IR_rename:
    case IR_slice:
    case IR_reshape:
    case IR_expand:
    case IR_cast:
        return bounds(p, n->args[0], low, high);
    default:
        return false;
    }
}

/* x + c must lie in [low, high], c in [c_low, c_high]. */
static void ask_shifted(walk *w, ir_term x, demand d, i64 c_low, i64 c_high)
{
    i64 low, high;
    if (!__builtin_sub_overflow(d.low, c_low, &low) &&
        !__builtin_sub_overflow(d.high, c_high, &high))
        ask(w, x, low, high);
}

/* The sum of all elements along the axis (if not `is_whole`: of the first ones) must lie in d. */
static void ask_parts(walk *w, const ir_node *n, demand d, bool is_whole)
{
    i64 count = 1;
    for (i64 i = 0; i < n->attr.axis.n; i++)
        if (__builtin_mul_overflow(count, ir_extent(w->p, n->attr.axis.at[i]), &count))
            return;
    if (count < 1 || d.high < 0)
        return;
    i64 low = d.low <= 0 ? 0 : is_whole ? (d.low - 1) / count + 1 : d.low;
    if (low <= d.high / count)
        ask(w, n->args[0], low, d.high / count);
}

static void pass_on(walk *w, const ir_node *n, demand d)
{
    i64 low, high;
    switch (n->op) {
    case IR_rename:
    case IR_slice:
    case IR_reshape:
    case IR_expand:
    case IR_cast:
        ask(w, n->args[0], d.low, d.high);
        break;
    case IR_gather:
        ask(w, n->args[0], d.low, d.high);
        break;
    case IR_concat:
        for (i64 i = 0; i < n->arg_count; i++)
            ask(w, n->args[i], d.low, d.high);
        break;
    case IR_where:
        ask(w, n->args[2], d.low, d.high);
        ask(w, n->args[1], d.low, d.high);
        break;
    case IR_reduce: /* the largest or smallest of them is one of them */
        if (n->attr.reducer == IR_MAX || n->attr.reducer == IR_MIN)
            ask(w, n->args[0], d.low, d.high);
        if (n->attr.reducer == IR_SUM)
            ask_parts(w, n, d, true);
        break;
    case IR_scan: /* a count so far is a sum of one element at least */
        if (n->attr.reducer == IR_SUM)
            ask_parts(w, n, d, false);
        break;
    case IR_add:
        if (bounds(w->p, n->args[1], &low, &high))
            ask_shifted(w, n->args[0], d, low, high);
        else if (bounds(w->p, n->args[0], &low, &high))
            ask_shifted(w, n->args[1], d, low, high);
        break;
    case IR_sub:
        if (bounds(w->p, n->args[1], &low, &high) && low != INT64_MIN && high != INT64_MIN)
            ask_shifted(w, n->args[0], d, -high, -low);
        break;
    default:
        break;
    }
}

static void ask_indices(walk *w, const ir_node *n)
{
    for (i64 i = 0; i < n->attr.axis.n; i++)
        ask(w, n->args[1 + i], 0, ir_extent(w->p, n->attr.axis.at[i]) - 1);
}

static bool divides(const ir_program *p, const ir_node *n)
{
    bool is_division = n->op == IR_floordiv || n->op == IR_truncdiv || n->op == IR_mod ||
                       n->op == IR_fmod;
    return is_division && dtype_kind_of((dtype)ir_get(p, n->args[1])->dtype) == DK_INT;
}

rt_range *driver_ranges(arena *a, const ir_program *p)
{
    walk w = {p, NEW_N(a, demand, p->nodes.n)};
    /* Users come after what they use, so one pass from the end sees every demand on a term. */
    for (u32 t = (u32)p->nodes.n; t-- > 1;) {
        const ir_node *n = ir_get(p, (ir_term){t});
        if (w.terms[t].any)
            pass_on(&w, n, w.terms[t]);
        if (n->op == IR_gather || n->op == IR_scatter)
            ask_indices(&w, n);
        if (divides(p, n))
            ask(&w, n->args[1], 1, DEFAULT_HIGH);
    }
    rt_range *ranges = NEW_N(a, rt_range, p->inputs.n);
    for (i64 i = 0; i < p->inputs.n; i++) {
        demand d = {0};
        if (p->inputs.at[i].term.i)
            d = w.terms[p->inputs.at[i].term.i];
        ranges[i] = d.any ? (rt_range){d.low, d.high} : (rt_range){0, DEFAULT_HIGH};
        /* Storage bounds what an index can be. */
        i64 top = p->inputs.at[i].dtype == DT_i8    ? INT8_MAX
                  : p->inputs.at[i].dtype == DT_i32 ? INT32_MAX
                                                    : INT64_MAX;
        ranges[i].high = MIN(ranges[i].high, top);
        ranges[i].low = MAX(ranges[i].low, -top);
        ranges[i].low = MIN(ranges[i].low, ranges[i].high);
    }
    return ranges;
}
