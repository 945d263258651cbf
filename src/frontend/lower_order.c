/* Operators of ATen that look at a whole axis: sorting, ranks and what is chosen by rank, running
 * reductions. Plain kernels run argsort and scan (lower_index.c); values are gathers by position.
 */
#include <math.h>

#include "frontend/lower.h"

static void sorted(fe_call *c, fe_tensor *x, i64 d, i64 k, bool descending)
{
    fe_lower *l = c->l;
    if (x->rank == 0) {
        fe_ret(c, x);
        fe_ret(c, fe_int(l, DT_i64, 0));
        return;
    }
    fe_tensor *at = fe_argsort(l, x, d, k, descending);
    fe_ret(c, fe_take_along(l, x, d, at));
    fe_ret(c, at);
}

void fe_lower_sort(fe_call *c) /* self dim descending; code 1: self stable dim descending */
{
    fe_tensor *x = fe_t(c, 0);
    i64 first = c->row->code ? 2 : 1, d = fe_axis_i(c, x, first);
    sorted(c, x, d, x->rank ? x->dims[d].extent : 1, fe_b(c, first + 1));
}

void fe_lower_argsort(fe_call *c) /* self dim descending; code 1: self stable dim descending */
{
    fe_tensor *x = fe_t(c, 0);
    i64 first = c->row->code ? 2 : 1;
    if (!x->rank) {
        fe_ret(c, fe_int(c->l, DT_i64, 0));
        return;
    }
    i64 d = fe_axis_i(c, x, first);
    fe_ret(c, fe_argsort(c->l, x, d, x->dims[d].extent, fe_b(c, first + 1)));
}

void fe_lower_msort(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    if (!x->rank)
        fe_ret(c, x);
    else
        fe_ret(c, fe_take_along(c->l, x, 0, fe_argsort(c->l, x, 0, x->dims[0].extent, false)));
}

void fe_lower_topk(fe_call *c) /* self k dim largest */
{
    fe_tensor *x = fe_t(c, 0);
    i64 k = fe_i(c, 1), d = fe_axis_i(c, x, 2), n = x->rank ? x->dims[d].extent : 1;
    if (k < 0 || k > n)
        fe_fail(c->l, "the first %lld of %lld", (long long)k, (long long)n);
    sorted(c, x, d, k, fe_b(c, 3));
}

/* The position along d of the lower of two middles, and its value. NaN sorts last: it is the median
 * if there is any, or (among: numbers) no element at all. Both keep d. */
static fe_tensor *median(fe_lower *l, fe_tensor *x, i64 d, bool among_numbers, fe_tensor **where)
{
    i64 n = x->dims[d].extent;
    if (n < 1)
        fe_fail(l, "a median of no elements");
    fe_tensor *all = fe_argsort(l, x, d, n, false), *at, *value;
    if (!dtype_is_float((dtype)x->dtype) || !among_numbers) {
        at = fe_slice(l, all, d, (n - 1) / 2, 1, 1);
    } else {
        fe_tensor *is = fe_cast(l, DT_i64, fe_op2(l, IR_eq, x, x));
        fe_tensor *count = fe_reduce(l, IR_SUM, is, (u64)1 << d, true), *one = fe_int(l, DT_i64, 1);
        fe_tensor *middle = fe_op2(l, IR_sub, fe_op2(l, IR_max, count, one), one);
        middle = fe_op2(l, IR_floordiv, middle, fe_int(l, DT_i64, 2));
        at = fe_take_along(l, all, d, middle);
    }
    value = fe_take_along(l, x, d, at);
    if (dtype_is_float((dtype)x->dtype) && !among_numbers) { /* the last one tells */
        fe_tensor *last = fe_take_along(l, x, d, fe_slice(l, all, d, n - 1, 1, 1));
        fe_tensor *bad = fe_op2(l, IR_ne, x, x), *none = fe_int(l, DT_i64, n);
        fe_tensor *first =
            fe_reduce(l, IR_MIN, fe_where(l, bad, fe_positions(l, x, d), none), (u64)1 << d, true);
        fe_tensor *has_nan = fe_op2(l, IR_ne, last, last);
        at = fe_where(l, has_nan, first, at);
        value = fe_where(l, has_nan, last, value);
    }
    *where = at;
    return value;
}

void fe_lower_median(fe_call *c) /* self dim keepdim; code 1: among numbers */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *at;
    if (!x->rank) {
        fe_ret(c, x);
        fe_ret(c, fe_int(l, DT_i64, 0));
        return;
    }
    i64 d = fe_axis_i(c, x, 1);
    fe_tensor *value = median(l, x, d, c->row->code, &at);
    bool keep = fe_b(c, 2);
    fe_ret(c, keep ? value : fe_drop(l, value, (u64)1 << d));
    fe_ret(c, keep ? at : fe_drop(l, at, (u64)1 << d));
}

void fe_lower_median_all(fe_call *c) /* code 1: among numbers */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *at;
    x = fe_flatten(l, x, 0, MAX(x->rank - 1, 0));
    fe_ret(c, fe_drop(l, median(l, x, 0, c->row->code, &at), 1));
}

void fe_lower_kthvalue(fe_call *c) /* self k dim keepdim */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 k = fe_i(c, 1), d = fe_axis_i(c, x, 2), n = x->rank ? x->dims[d].extent : 1;
    if (k < 1 || k > n)
        fe_fail(l, "element %lld of %lld", (long long)k, (long long)n);
    if (!x->rank) {
        fe_ret(c, x);
        fe_ret(c, fe_int(l, DT_i64, 0));
        return;
    }
    fe_tensor *at = fe_slice(l, fe_argsort(l, x, d, n, false), d, k - 1, 1, 1);
    fe_tensor *value = fe_take_along(l, x, d, at);
    bool keep = fe_b(c, 3);
    fe_ret(c, keep ? value : fe_drop(l, value, (u64)1 << d));
    fe_ret(c, keep ? at : fe_drop(l, at, (u64)1 << d));
}

/* Between the elements that a share q of the others stands below; NaN if there is any. */
void fe_lower_quantile(fe_call *c) /* self q dim keepdim interpolation; q a number or a vector */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *q = fe_t(c, 1);
    const char *kind = fe_s(c, 4);
    i64 rank = x->rank, d = 0;
    if (fe_has(c, 2) && rank)
        d = fe_axis_i(c, x, 2);
    else
        x = fe_flatten(l, x, 0, MAX(rank - 1, 0));
    i64 n = x->dims[d].extent;
    bool is_one = q->rank == 0;
    if (!dtype_is_float((dtype)x->dtype) || fe_is_half(x->dtype) || n < 1 || q->rank > 1)
        fe_fail(l, "quantiles of %s", dtype_name((dtype)x->dtype));
    q = fe_cast(l, x->dtype, is_one ? fe_unsqueeze(l, q, 0) : q);
    q = fe_op2n(l, IR_min, fe_op2n(l, IR_max, q, 0), 1); /* eager refuses others */
    fe_tensor *sorted = fe_take_along(l, x, d, fe_argsort(l, x, d, n, false));
    fe_tensor *rank_of = fe_op2n(l, IR_mul, q, (f64)(n - 1)), *low = fe_op1(l, IR_floor, rank_of);
    fe_tensor *high = fe_op1(l, IR_ceil, rank_of), *w = fe_op2(l, IR_sub, rank_of, low);
    if (!strcmp(kind, "lower"))
        high = low;
    else if (!strcmp(kind, "higher"))
        low = high;
    else if (!strcmp(kind, "nearest"))
        low = high = fe_op1(l, IR_round, rank_of);
    else if (!strcmp(kind, "midpoint"))
        w = fe_num(l, x->dtype, 0.5);
    else if (strcmp(kind, "linear") != 0)
        fe_fail(l, "interpolation %s", kind);
    fe_tensor *ends[2] = {fe_cast(l, DT_i64, low), fe_cast(l, DT_i64, high)};
    for (int i = 0; i < 2; i++)
        ends[i] = fe_gather(l, sorted, &d, &ends[i], 1); /* q first, then the other dims */
    for (i64 k = 1; k < x->rank && w->rank; k++)
        w = fe_unsqueeze(l, w, w->rank);
    fe_tensor *y = low == high ? ends[0] : fe_lerp(l, ends[0], ends[1], w);
    fe_tensor *last = fe_drop(l, fe_slice(l, sorted, d, n - 1, 1, 1), (u64)1 << d);
    y = fe_where(l, fe_op2(l, IR_ne, last, last), last, y);
    if (fe_b(c, 3)) {
        if (fe_has(c, 2) && rank)
            y = fe_unsqueeze(l, y, 1 + d);
        else
            for (i64 k = 0; k < rank; k++)
                y = fe_unsqueeze(l, y, y->rank);
    }
    fe_ret(c, is_one ? fe_drop(l, y, 1) : y);
}

/* How many elements lie in each of `bins` equal parts of [min, max]; of the whole range if min is
 * max. */
void fe_lower_histc(fe_call *c) /* self bins min max */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 bins = fe_i(c, 1);
    u8 t = x->dtype, in = fe_wide(t);
    if (!dtype_is_float((dtype)t) || bins < 1 || fe_is_empty(x))
        fe_decline(l, "a histogram of %s", dtype_name((dtype)t));
    x = fe_cast(l, in, fe_flatten(l, x, 0, MAX(x->rank - 1, 0)));
    fe_tensor *low = fe_num(l, in, fe_f(c, 2)), *high = fe_num(l, in, fe_f(c, 3));
    if (fe_f(c, 2) == fe_f(c, 3)) {
        low = fe_reduce(l, IR_MIN, x, 1, false), high = fe_reduce(l, IR_MAX, x, 1, false);
        fe_tensor *is_point = fe_op2(l, IR_eq, low, high);
        low = fe_where(l, is_point, fe_op2n(l, IR_sub, low, 1), low);
        high = fe_where(l, is_point, fe_op2n(l, IR_add, high, 1), high);
    }
    fe_tensor *at = fe_op2n(l, IR_mul, fe_op2(l, IR_sub, x, low), (f64)bins);
    at = fe_op1(l, IR_floor, fe_op2(l, IR_div, at, fe_op2(l, IR_sub, high, low)));
    at = fe_op2n(l, IR_min, at, (f64)bins - 1);
    fe_tensor *is_in = fe_op2(l, IR_and, fe_op2(l, IR_le, low, x), fe_op2(l, IR_le, x, high));
    fe_tensor *bin = fe_cast(l, in, fe_unsqueeze(l, fe_iota(l, bins), 1));
    fe_tensor *hit = fe_op2(l, IR_and, fe_op2(l, IR_eq, at, bin), is_in);
    fe_ret(c, fe_cast(l, t, fe_reduce(l, IR_SUM, fe_cast(l, in, hit), 2, false)));
}

/* For each of v the number of elements of s below it (or not above it). */
static void counted_below(fe_call *c, fe_tensor *s, fe_tensor *v, bool is_right, bool is_narrow)
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {s, v};
    u8 t = fe_promote(xs, 2);
    s = fe_cast(l, t, s), v = fe_cast(l, t, v);
    if (s->rank == 0 || (s->rank > 1 && s->rank != v->rank))
        fe_fail(l, "values of rank %lld in a sequence of rank %lld", (long long)v->rank,
                (long long)s->rank);
    if (s->rank == 1)
        for (i64 k = 0; k < v->rank; k++)
            s = fe_unsqueeze(l, s, 0);
    else
        s = fe_unsqueeze(l, s, s->rank - 1);
    v = fe_unsqueeze(l, v, v->rank);
    fe_tensor *below = is_right ? fe_op2(l, IR_le, s, v) : fe_op2(l, IR_lt, s, v);
    if (dtype_is_float((dtype)t)) { /* NaN is above everything */
        fe_tensor *is_nan = fe_op2(l, IR_ne, v, v);
        below = is_right ? fe_op2(l, IR_or, below, is_nan)
                         : fe_op2(l, IR_or, below,
                                  fe_op2(l, IR_and, is_nan, fe_op2(l, IR_eq, s, s)));
    }
    below = fe_reduce(l, IR_SUM, fe_cast(l, DT_i64, below), (u64)1 << (below->rank - 1), false);
    fe_ret(c, fe_cast(l, is_narrow ? DT_i32 : DT_i64, below));
}

void fe_lower_searchsorted(fe_call *c) /* sorted self out_int32 right side sorter */
{
    bool is_right = fe_b(c, 3) || (fe_has(c, 4) && !strcmp(fe_s(c, 4), "right"));
    if (fe_has(c, 5))
        fe_decline(c->l, "a sorter");
    counted_below(c, fe_t(c, 0), fe_t(c, 1), is_right, fe_b(c, 2));
}

void fe_lower_bucketize(fe_call *c) /* self boundaries out_int32 right */
{
    counted_below(c, fe_t(c, 1), fe_t(c, 0), fe_b(c, 3), fe_b(c, 2));
}

/* ---- running reductions  ------------------------------------------------------------------- */

void fe_lower_cumulate(fe_call *c) /* self dim dtype */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u8 t = fe_dt(c, 2, dtype_is_float((dtype)x->dtype) ? x->dtype : DT_i64);
    x = fe_cast(l, t, x);
    i64 d = fe_axis_i(c, x, 1);
    x = fe_cast(l, fe_wide(t), x);
    fe_ret(c, fe_cast(l, t, fe_scan(l, (ir_reducer)c->row->code, x, d)));
}

/* log of the running sum of exp, each position with its own running maximum as shift: one common
 * shift would lose what lies far below it. So every position sums over all of its predecessors. */
void fe_lower_logcumsumexp(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given);
    if (!x->rank || fe_is_empty(x)) {
        fe_lower_same(c);
        return;
    }
    i64 d = fe_axis_i(c, x, 1), n = x->dims[d].extent;
    if (n > 1 << 14)
        fe_decline(l, "a running log-sum of %lld elements", (long long)n);
    fe_tensor *m = fe_scan(l, IR_MAX, x, d);
    fe_tensor *huge = fe_op2n(l, IR_eq, fe_op1(l, IR_abs, m), (f64)__builtin_inf());
    m = fe_where(l, huge, fe_num(l, x->dtype, 0), m);
    /* Dim d: where a sum ends; dim d + 1: what it adds. */
    fe_tensor *end = fe_unsqueeze(l, m, d + 1), *term = fe_unsqueeze(l, x, d);
    fe_tensor *at[2] = {fe_iota(l, n), fe_iota(l, n)};
    at[0] = fe_unsqueeze(l, at[0], 1);
    for (i64 k = d + 1; k < x->rank; k++)
        at[0] = fe_unsqueeze(l, at[0], at[0]->rank), at[1] = fe_unsqueeze(l, at[1], at[1]->rank);
    fe_tensor *low = fe_num(l, x->dtype, (f64)-__builtin_inf());
    fe_tensor *part = fe_where(l, fe_op2(l, IR_le, at[1], at[0]),
                               fe_op2(l, IR_sub, term, end), low);
    fe_tensor *sum = fe_reduce(l, IR_SUM, fe_op1(l, IR_exp, part), (u64)1 << (d + 1), false);
    fe_ret(c, fe_cast(l, given->dtype, fe_op2(l, IR_add, fe_op1(l, IR_log, sum), m)));
}

void fe_lower_cummax(fe_call *c) /* code: MAX or MIN; positions: the last that was the extreme */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_axis_i(c, x, 1);
    fe_tensor *y = fe_scan(l, (ir_reducer)c->row->code, x, d);
    fe_ret(c, y);
    if (!fe_out_used(c, 1))
        return;
    if (!x->rank) {
        fe_ret(c, fe_int(l, DT_i64, 0));
        return;
    }
    fe_tensor *is = fe_op2(l, IR_eq, x, y);
    if (dtype_is_float((dtype)x->dtype))
        is = fe_op2(l, IR_or, is, fe_op2(l, IR_ne, x, x));
    fe_tensor *at = fe_where(l, is, fe_positions(l, x, d), fe_int(l, DT_i64, 0));
    fe_ret(c, fe_scan(l, IR_MAX, at, d));
}
