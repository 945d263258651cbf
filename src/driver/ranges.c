/* What numbers an input may hold. An index operand of gather or scatter must lie in [0, extent), an
 * integer divisor must not be 0; that demand is carried backwards through operators that move,
 * convert, shift, scale, round, count or choose values, until it reaches inputs. Demands on one
 * input intersect; one that leaves nothing is dropped (after `where(i < 0, i + n, i)` both branches
 * demand, and the plain one comes first). Floats that become indices (the q of a quantile) are
 * bounded in the same way, unless a condition on themselves chooses: that one is to be seen on both
 * sides. Whatever computes an index in another way is left alone: the run itself checks every
 * index. */
#include <math.h>

#include "driver/driver.h"

#define DEFAULT_HIGH 7
#define MOST_EXACT 0x1p53

/* Of an integer [low, high], of a float [from, to]. */
typedef struct demand {
    bool any;
    i64 low, high;
    f64 from, to;
} demand;

typedef struct walk {
    const ir_program *p;
    demand *terms;
    u64 *inputs; /* by term: what it depends on, a bit for some of the inputs each */
} walk;

static bool is_float(const walk *w, ir_term t)
{
    return dtype_is_float((dtype)ir_get(w->p, t)->dtype);
}

static void ask(walk *w, ir_term t, i64 low, i64 high)
{
    demand *d = &w->terms[t.i];
    i64 l = d->any ? MAX(d->low, low) : low, h = d->any ? MIN(d->high, high) : high;
    if (l <= h)
        *d = (demand){.any = true, .low = l, .high = h};
}

static void ask_float(walk *w, ir_term t, f64 from, f64 to)
{
    demand *d = &w->terms[t.i];
    f64 f = d->any ? MAX(d->from, from) : from, g = d->any ? MIN(d->to, to) : to;
    if (f <= g) /* no infinity, no NaN */
        *d = (demand){.any = true, .from = f, .to = g};
}

static void ask_same(walk *w, ir_term t, demand d)
{
    if (is_float(w, t))
        ask_float(w, t, d.from, d.to);
    else
        ask(w, t, d.low, d.high);
}

/* The argument of a conversion whose result must lie in d. */
static void ask_cast(walk *w, const ir_node *n, demand d)
{
    bool from_float = is_float(w, n->args[0]), to_float = dtype_is_float((dtype)n->dtype);
    if (from_float == to_float)
        ask_same(w, n->args[0], d);
    else if (from_float) /* cut towards 0; half a step is far from what rounds up */
        ask_float(w, n->args[0], (f64)d.low - (d.low < 0 ? 0.5 : 0),
                  (f64)d.high + (d.high >= 0 ? 0.5 : 0));
    else if (fabs(d.from) < MOST_EXACT && fabs(d.to) < MOST_EXACT)
        ask(w, n->args[0], (i64)ceil(d.from), (i64)floor(d.to));
}

/* The number that a term is, wherever it stands. */
static bool is_number(const ir_program *p, ir_term t, f64 *x)
{
    const ir_node *n = ir_get(p, t);
    *x = n->attr.f;
    return n->op == IR_const && dtype_is_float((dtype)n->dtype) && isfinite(*x);
}

/* Float arithmetic with one number. */
static void ask_computed(walk *w, const ir_node *n, demand d)
{
    f64 c = 0;
    bool right = n->arg_count == 2 && is_number(w->p, n->args[1], &c);
    bool left = !right && n->arg_count == 2 && is_number(w->p, n->args[0], &c);
    ir_term x = n->args[left ? 1 : 0];
    f64 from = d.from, to = d.to;
    switch (n->op) {
    case IR_add:
        from -= c;
        to -= c;
        break;
    case IR_sub:
        from = right ? d.from + c : c - d.to;
        to = right ? d.to + c : c - d.from;
        break;
    case IR_mul:
    case IR_div:
        if (c == 0 || (n->op == IR_div && left))
            return;
        c = n->op == IR_div ? 1 / c : c;
        from = (c > 0 ? d.from : d.to) / c;
        to = (c > 0 ? d.to : d.from) / c;
        break;
    case IR_neg:
        from = -d.to;
        to = -d.from;
        break;
    default: /* rounded */
        from = ceil(d.from);
        to = floor(d.to);
        break;
    }
    if ((left || right || n->arg_count == 1) && isfinite(from) && isfinite(to))
        ask_float(w, x, from, to);
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
    case IR_view:
    case IR_comb:
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
    bool real = dtype_is_float((dtype)n->dtype);
    switch (n->op) {
    case IR_rename:
    case IR_slice:
    case IR_reshape:
    case IR_expand:
    case IR_gather:
    case IR_view:
    case IR_comb:
        ask_same(w, n->args[0], d);
        break;
    case IR_cast:
        ask_cast(w, n, d);
        break;
    case IR_concat:
        for (i64 i = 0; i < n->arg_count; i++)
            ask_same(w, n->args[i], d);
        break;
    case IR_where:
        for (i64 i = 2; i > 0; i--)
            if (!real || !(w->inputs[n->args[0].i] & w->inputs[n->args[i].i]))
                ask_same(w, n->args[i], d);
        break;
    case IR_reduce: /* the largest or smallest of them is one of them */
        if (n->attr.reducer == IR_MAX || n->attr.reducer == IR_MIN)
            ask_same(w, n->args[0], d);
        if (n->attr.reducer == IR_SUM && !real)
            ask_parts(w, n, d, true);
        break;
    case IR_scan: /* a count so far is a sum of one element at least */
        if (n->attr.reducer == IR_SUM && !real)
            ask_parts(w, n, d, false);
        break;
    case IR_mul:
    case IR_div:
    case IR_neg:
    case IR_floor:
    case IR_ceil:
    case IR_round:
    case IR_trunc:
        if (real)
            ask_computed(w, n, d);
        break;
    case IR_add:
        if (real)
            ask_computed(w, n, d);
        else if (bounds(w->p, n->args[1], &low, &high))
            ask_shifted(w, n->args[0], d, low, high);
        else if (bounds(w->p, n->args[0], &low, &high))
            ask_shifted(w, n->args[1], d, low, high);
        break;
    case IR_sub:
        if (real)
            ask_computed(w, n, d);
        else if (bounds(w->p, n->args[1], &low, &high) && low != INT64_MIN && high != INT64_MIN)
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

/* Of a float that nothing bounds: unit variance (rt_range), but for matrices that stand in for learned
 * ones. Through those values would grow layer by layer, and rounding with them: their deviation is that
 * of a layer as long as the longest dim. */
static rt_range unbounded(const ir_port *port)
{
    rt_range r = {.high = DEFAULT_HIGH};
    i64 longest = 1;
    for (i64 i = 0; i < port->rank; i++)
        longest = MAX(longest, port->dims[i].extent);
    if (port->role == IR_INPUT || port->rank < 2)
        return r;
    r.is_bounded = true;
    r.to = sqrt(3 / (f64)longest);
    r.from = -r.to;
    return r;
}

rt_range *driver_ranges(arena *a, const ir_program *p)
{
    walk w = {p, NEW_N(a, demand, p->nodes.n), NEW_N(a, u64, p->nodes.n)};
    for (i64 i = 0; i < p->inputs.n; i++)
        w.inputs[p->inputs.at[i].term.i] |= 1ull << i % 64;
    for (i64 t = 1; t < p->nodes.n; t++)
        for (i64 k = 0; k < p->nodes.at[t].arg_count; k++)
            w.inputs[t] |= w.inputs[p->nodes.at[t].args[k].i];
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
        if (dtype_is_float((dtype)p->inputs.at[i].dtype)) {
            ranges[i] = d.any ? (rt_range){.high = DEFAULT_HIGH,
                                           .is_bounded = true,
                                           .from = d.from,
                                           .to = d.to}
                              : unbounded(&p->inputs.at[i]);
            continue;
        }
        ranges[i] = d.any ? (rt_range){.low = d.low, .high = d.high}
                          : (rt_range){.high = DEFAULT_HIGH};
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
