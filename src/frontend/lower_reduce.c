/* Reductions of ATen and the composites made of them: statistics, softmax, norms.
 *
 * Composites compute in f32 on half types and round once. A mean multiplies the sum by 1/N; a
 * variance is two-pass; a division by a number is a product with its reciprocal, so that one idiom
 * has one spelling (normalize.c relies on no other). */
#include <math.h>

#include "frontend/lower.h"

static u64 bit(i64 d)
{
    return (u64)1 << d;
}

u64 fe_all_dims(const fe_tensor *x)
{
    return x->rank >= 64 ? ~(u64)0 : bit(x->rank) - 1;
}

static i64 count_dims(const fe_tensor *x, u64 dims)
{
    i64 n = 1;
    for (i64 d = 0; d < x->rank; d++)
        if (dims >> d & 1)
            n *= x->dims[d].extent;
    return n;
}

fe_tensor *fe_widened(fe_lower *l, const fe_tensor *x)
{
    return fe_cast(l, fe_wide(x->dtype), x);
}

/* sum, prod: small integers count in i64; half types accumulate in f32 anyway. */
static fe_tensor *total(fe_call *c, ir_reducer r, fe_tensor *x, u64 dims, bool keep, i64 dtype_arg)
{
    u8 t = dtype_is_float((dtype)x->dtype) ? x->dtype : DT_i64;
    t = dtype_arg < 0 ? t : fe_dt(c, dtype_arg, t);
    return fe_reduce(c->l, r, fe_cast(c->l, t, x), dims, keep);
}

void fe_lower_sum_all(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, total(c, (ir_reducer)c->row->code, x, fe_all_dims(x), false, 1));
}

void fe_lower_sum(fe_call *c) /* self dim keepdim dtype */
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, total(c, (ir_reducer)c->row->code, x, fe_axes(c, x, 1), fe_b(c, 2), 3));
}

void fe_lower_nansum(fe_call *c) /* self dim keepdim dtype; code 1: the mean */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u64 dims = fe_axes(c, x, 1);
    bool keep = fe_b(c, 2);
    if (!dtype_is_float((dtype)x->dtype)) {
        if (c->row->code)
            fe_fail(l, "a mean of %s", dtype_name((dtype)x->dtype));
        fe_ret(c, total(c, IR_SUM, x, dims, keep, 3));
        return;
    }
    u8 t = fe_dt(c, 3, x->dtype);
    fe_tensor *y = fe_widened(l, fe_cast(l, t, x)), *zero = fe_num(l, y->dtype, 0);
    fe_tensor *is_number = fe_op2(l, IR_eq, y, y);
    fe_tensor *sum = fe_reduce(l, IR_SUM, fe_where(l, is_number, y, zero), dims, keep);
    if (c->row->code) {
        fe_tensor *n = fe_reduce(l, IR_SUM, fe_cast(l, DT_i64, is_number), dims, keep);
        sum = fe_op2(l, IR_div, sum, fe_cast(l, y->dtype, n));
    }
    fe_ret(c, fe_cast(l, t, sum));
}

static void mean(fe_call *c, u64 dims, bool keep, i64 dtype_arg)
{
    fe_tensor *x = fe_t(c, 0);
    u8 t = fe_dt(c, dtype_arg, x->dtype);
    if (!dtype_is_float((dtype)t))
        fe_fail(c->l, "a mean of %s", dtype_name((dtype)t));
    x = fe_cast(c->l, t, x);
    fe_ret(c, fe_cast(c->l, t, fe_mean(c->l, fe_widened(c->l, x), dims, keep)));
}

void fe_lower_mean_all(fe_call *c)
{
    mean(c, fe_all_dims(fe_t(c, 0)), false, 1);
}

void fe_lower_mean(fe_call *c)
{
    mean(c, fe_axes(c, fe_t(c, 0), 1), fe_b(c, 2), 3);
}

static fe_tensor *extreme(fe_call *c, ir_reducer r, fe_tensor *x, u64 dims, bool keep)
{
    if (fe_is_empty(x) && count_dims(x, dims) == 0)
        fe_fail(c->l, "the largest or smallest of no elements");
    return fe_reduce(c->l, r, x, dims, keep);
}

void fe_lower_amax(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, extreme(c, (ir_reducer)c->row->code, x, fe_axes(c, x, 1), fe_b(c, 2)));
}

void fe_lower_max_all(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, extreme(c, (ir_reducer)c->row->code, x, fe_all_dims(x), false));
}

void fe_lower_any_all(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_reduce(c->l, (ir_reducer)c->row->code, fe_cast(c->l, DT_bool, x), fe_all_dims(x),
                        false));
}

void fe_lower_any(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_reduce(c->l, (ir_reducer)c->row->code, fe_cast(c->l, DT_bool, x), fe_axes(c, x, 1),
                        fe_b(c, 2)));
}

/* ---- positions of extremes ----------------------------------------------------------------- */

/* The first position along d where x is the extreme, NaN being the most extreme of all. */
static fe_tensor *arg_extreme(fe_lower *l, const fe_tensor *x, ir_reducer r, i64 d, bool keep)
{
    fe_tensor *best = fe_reduce(l, r, x, bit(d), true);
    fe_tensor *hit = fe_op2(l, IR_eq, x, best);
    if (dtype_is_float((dtype)x->dtype))
        hit = fe_op2(l, IR_or, hit, fe_op2(l, IR_ne, x, x));
    fe_tensor *none = fe_int(l, DT_i64, x->dims[d].extent);
    return fe_reduce(l, IR_MIN, fe_where(l, hit, fe_positions(l, x, d), none), bit(d), keep);
}

void fe_lower_argmax(fe_call *c) /* self dim keepdim */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    bool keep = fe_b(c, 2);
    if (fe_is_empty(x))
        fe_fail(l, "the largest or smallest of no elements");
    if (x->rank == 0) {
        fe_ret(c, fe_int(l, DT_i64, 0));
    } else if (fe_has(c, 1)) {
        fe_ret(c, arg_extreme(l, x, (ir_reducer)c->row->code, fe_axis_i(c, x, 1), keep));
    } else {
        fe_tensor *r =
            arg_extreme(l, fe_flatten(l, x, 0, x->rank - 1), (ir_reducer)c->row->code, 0, false);
        for (i64 d = 0; keep && d < x->rank; d++)
            r = fe_unsqueeze(l, r, 0);
        fe_ret(c, r);
    }
}

void fe_lower_max_dim(fe_call *c) /* values, first positions */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    ir_reducer r = (ir_reducer)c->row->code;
    if (x->rank == 0) {
        fe_lower_same(c);
        fe_ret(c, fe_int(l, DT_i64, 0));
        return;
    }
    i64 d = fe_axis_i(c, x, 1);
    fe_ret(c, extreme(c, r, x, bit(d), fe_b(c, 2)));
    fe_ret(c, arg_extreme(l, x, r, d, fe_b(c, 2)));
}

void fe_lower_aminmax(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    u64 dims = fe_has(c, 1) ? fe_axes(c, x, 1) : fe_all_dims(x);
    fe_ret(c, extreme(c, IR_MIN, x, dims, fe_b(c, 2)));
    fe_ret(c, extreme(c, IR_MAX, x, dims, fe_b(c, 2)));
}

void fe_lower_count_nonzero(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    x = fe_cast(c->l, DT_i64, fe_cast(c->l, DT_bool, x));
    fe_ret(c, fe_reduce(c->l, IR_SUM, x, fe_axes(c, x, 1), false));
}

/* ---- variance ------------------------------------------------------------------------------ */

static fe_tensor *variance(fe_lower *l, fe_tensor *x, u64 dims, bool keep, f64 correction,
                           fe_tensor **mean_out)
{
    fe_tensor *m = fe_mean(l, x, dims, true);
    fe_tensor *squares = fe_op1(l, IR_square, fe_op2(l, IR_sub, x, m));
    f64 n = (f64)count_dims(x, dims) - correction;
    if (mean_out)
        *mean_out = keep ? m : fe_drop(l, m, dims);
    fe_tensor *sum = fe_reduce(l, IR_SUM, squares, dims, keep);
    return fe_op2n(l, IR_mul, sum, 1.0 / fmax(n, 0));
}

static void spread(fe_call *c, u64 dims, bool keep, f64 correction)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *m;
    if (!dtype_is_float((dtype)x->dtype))
        fe_fail(l, "a variance of %s", dtype_name((dtype)x->dtype));
    fe_tensor *v = variance(l, fe_widened(l, x), dims, keep, correction, &m);
    if (c->row->code & FE_WANT_STD)
        v = fe_op1(l, IR_sqrt, v);
    fe_ret(c, fe_cast(l, x->dtype, v));
    if (c->row->code & FE_WANT_MEAN)
        fe_ret(c, fe_cast(l, x->dtype, m));
}

void fe_lower_var_all(fe_call *c)
{
    spread(c, fe_all_dims(fe_t(c, 0)), false, fe_b(c, 1));
}

void fe_lower_var(fe_call *c)
{
    spread(c, fe_axes(c, fe_t(c, 0), 1), fe_b(c, 3), fe_b(c, 2));
}

void fe_lower_var_correction(fe_call *c)
{
    spread(c, fe_axes(c, fe_t(c, 0), 1), fe_b(c, 3), fe_has(c, 2) ? fe_f(c, 2) : 1.0);
}

/* ---- vector norms  ------------------------------------------------------------------------- */

fe_tensor *fe_vector_norm(fe_lower *l, const fe_tensor *x, f64 p, u64 dims, bool keep)
{
    if (p == 2)
        return fe_op1(l, IR_sqrt, fe_reduce(l, IR_SUM, fe_op1(l, IR_square, x), dims, keep));
    if (p == 0) {
        fe_tensor *is = fe_op2(l, IR_ne, x, fe_num(l, x->dtype, 0));
        return fe_reduce(l, IR_SUM, fe_cast(l, x->dtype, is), dims, keep);
    }
    fe_tensor *a = fe_op1(l, IR_abs, x);
    if (p == 1)
        return fe_reduce(l, IR_SUM, a, dims, keep);
    if (isinf(p))
        return fe_reduce(l, p > 0 ? IR_MAX : IR_MIN, a, dims, keep);
    fe_tensor *sum = fe_reduce(l, IR_SUM, fe_op2n(l, IR_pow, a, p), dims, keep);
    return fe_op2n(l, IR_pow, sum, 1.0 / p);
}

static void norm(fe_call *c, f64 p, i64 dims_arg, i64 keep_arg, i64 dtype_arg)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u8 t = dtype_arg < 0 ? x->dtype : fe_dt(c, dtype_arg, x->dtype);
    if (!dtype_is_float((dtype)t))
        fe_decline(l, "a norm of %s", dtype_name((dtype)t));
    x = fe_cast(l, t, x);
    u64 dims = fe_axes(c, x, dims_arg);
    fe_ret(c, fe_cast(l, t, fe_vector_norm(l, fe_widened(l, x), p, dims, fe_b(c, keep_arg))));
}

void fe_lower_vector_norm(fe_call *c)
{
    norm(c, fe_f(c, 1), 2, 3, 4);
}

/* Frobenius (ord 2 here), or the largest (smallest: negative) sum of a row (inf) or column (1). */
static fe_tensor *matrix_norm(fe_lower *l, const fe_tensor *x, f64 ord, bool is_frobenius, i64 rows,
                              i64 columns, bool keep)
{
    u64 both = bit(rows) | bit(columns);
    if (rows == columns)
        fe_fail(l, "a matrix of one dim");
    if (is_frobenius)
        return fe_vector_norm(l, x, 2, both, keep);
    if (fabs(ord) != 1 && !isinf(ord))
        fe_decline(l, "a norm of singular values");
    bool is_row = isinf(ord);
    fe_tensor *sum = fe_reduce(l, IR_SUM, fe_op1(l, IR_abs, x), bit(is_row ? columns : rows), true);
    fe_tensor *y =
        fe_reduce(l, ord > 0 ? IR_MAX : IR_MIN, sum, bit(is_row ? rows : columns), true);
    return keep ? y : fe_drop(l, y, both);
}

void fe_lower_matrix_norm(fe_call *c) /* self ord dim keepdim dtype; code 1: ord is text */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 n, *dims = fe_is(c, 2, &n), last[2] = {-2, -1};
    u8 t = fe_dt(c, 4, x->dtype);
    const char *name = c->row->code ? fe_s(c, 1) : NULL;
    if (!n)
        dims = last, n = x->rank == 2 ? 2 : 0;
    if (n != 2 || x->rank < 2 || !dtype_is_float((dtype)t) || (name && strcmp(name, "fro") != 0))
        fe_decline(l, "a norm of singular values, or of %lld dims of %s", (long long)n,
                   dtype_name((dtype)t));
    x = fe_cast(l, t, x);
    fe_tensor *y = matrix_norm(l, fe_widened(l, x), name ? 2 : fe_f(c, 1), name,
                               fe_axis(c, x, dims[0]), fe_axis(c, x, dims[1]), fe_b(c, 3));
    fe_ret(c, fe_cast(l, t, y));
}

void fe_lower_linalg_norm(fe_call *c) /* self ord dim keepdim dtype */
{
    i64 n;
    fe_is(c, 2, &n);
    if (fe_has(c, 1) && (n > 1 || (!n && fe_t(c, 0)->rank > 1)))
        fe_lower_matrix_norm(c);
    else
        norm(c, fe_has(c, 1) ? fe_f(c, 1) : 2.0, 2, 3, 4);
}

void fe_lower_norm(fe_call *c) /* self p dim keepdim; code 1: dtype */
{
    norm(c, fe_has(c, 1) ? fe_f(c, 1) : 2.0, 2, 3, c->row->code ? 4 : -1);
}

void fe_lower_norm_fro(fe_call *c) /* self dim keepdim */
{
    norm(c, 2.0, 1, 2, -1);
}

void fe_lower_norm_all(fe_call *c) /* self p; code 1: dtype */
{
    fe_tensor *x = fe_t(c, 0);
    u8 t = c->row->code ? fe_dt(c, 2, x->dtype) : x->dtype;
    f64 p = fe_has(c, 1) ? fe_f(c, 1) : 2.0;
    if (!dtype_is_float((dtype)t))
        fe_decline(c->l, "a norm of %s", dtype_name((dtype)t));
    x = fe_widened(c->l, fe_cast(c->l, t, x));
    fe_ret(c, fe_cast(c->l, t, fe_vector_norm(c->l, x, p, fe_all_dims(x), false)));
}

void fe_lower_dist(fe_call *c)
{
    fe_tensor *d = fe_arith(c->l, IR_sub, fe_t(c, 0), fe_t(c, 1));
    fe_tensor *x = fe_widened(c->l, d);
    fe_ret(c, fe_cast(c->l, d->dtype, fe_vector_norm(c->l, x, fe_f(c, 2), fe_all_dims(x), false)));
}

void fe_lower_pairwise_distance(fe_call *c) /* x1 x2 p eps keepdim */
{
    fe_lower *l = c->l;
    fe_tensor *d = fe_arith(l, IR_sub, fe_t(c, 0), fe_t(c, 1));
    u8 t = d->dtype;
    d = fe_op2n(l, IR_add, fe_widened(l, d), fe_f(c, 3));
    u64 last = bit(MAX(d->rank - 1, 0));
    fe_ret(c, fe_cast(l, t, fe_vector_norm(l, d, fe_f(c, 2), last, fe_b(c, 4))));
}

void fe_lower_cosine_similarity(fe_call *c) /* x1 x2 dim eps */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    fe_tensor *a = fe_cast(l, fe_wide(t), xs[0]), *b = fe_cast(l, fe_wide(t), xs[1]);
    fe_tensor *pair[2] = {a, b};
    fe_broadcast_all(l, pair, 2);
    i64 d = fe_dim_i(c, pair[0], 2);
    for (int i = 0; i < 2; i++) {
        fe_tensor *n = fe_op2n(l, IR_max, fe_vector_norm(l, pair[i], 2, bit(d), true), fe_f(c, 3));
        pair[i] = fe_op2(l, IR_div, pair[i], n);
    }
    fe_tensor *dot = fe_reduce(l, IR_SUM, fe_op2(l, IR_mul, pair[0], pair[1]), bit(d), false);
    fe_ret(c, fe_cast(l, t, dot));
}

/* |x1_i - x2_j|_p for rows i of x1 and j of x2. */
void fe_lower_cdist(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    if (a->rank < 2 || b->rank < 2)
        fe_fail(l, "rows of a tensor of rank %lld", (long long)MIN(a->rank, b->rank));
    fe_tensor *d =
        fe_op2(l, IR_sub, fe_unsqueeze(l, a, a->rank - 1), fe_unsqueeze(l, b, b->rank - 2));
    fe_ret(c, fe_vector_norm(l, d, fe_f(c, 2), bit(d->rank - 1), false));
}

/* ---- softmax ------------------------------------------------------------------------------- */

fe_tensor *fe_softmax(fe_lower *l, const fe_tensor *x, i64 d, bool is_log)
{
    if (x->rank == 0)
        return fe_fill_like(l, x, fe_num(l, x->dtype, is_log ? 0 : 1));
    if (fe_is_empty(x))
        return fe_tensor_new(l, 0, x->dtype, x->rank, x->dims);
    fe_tensor *shifted = fe_op2(l, IR_sub, x, fe_reduce(l, IR_MAX, x, bit(d), true));
    fe_tensor *e = fe_op1(l, IR_exp, shifted), *sum = fe_reduce(l, IR_SUM, e, bit(d), true);
    return is_log ? fe_op2(l, IR_sub, shifted, fe_op1(l, IR_log, sum)) : fe_op2(l, IR_div, e, sum);
}

fe_tensor *fe_safe_softmax(fe_lower *l, const fe_tensor *x, i64 d)
{
    if (x->rank == 0 || fe_is_empty(x))
        return fe_softmax(l, x, d, false);
    fe_tensor *most = fe_reduce(l, IR_MAX, x, bit(d), true);
    fe_tensor *dead = fe_op2n(l, IR_eq, most, (f64)-INFINITY);
    return fe_where(l, dead, fe_num(l, x->dtype, 0), fe_softmax(l, x, d, false));
}

void fe_lower_softmax(fe_call *c) /* self dim dtype */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u8 t = fe_dt(c, 2, x->dtype);
    x = fe_cast(l, t, x);
    fe_ret(c, fe_cast(l, t, fe_softmax(l, fe_widened(l, x), fe_axis_i(c, x, 1), c->row->code)));
}

void fe_lower_softmax_core(fe_call *c) /* self dim half_to_float */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u8 t = fe_b(c, 2) ? DT_f32 : x->dtype;
    fe_ret(c, fe_cast(l, t,
                      fe_softmax(l, fe_cast(l, fe_wide(t), x), fe_axis_i(c, x, 1), c->row->code)));
}

void fe_lower_safe_softmax(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    u8 t = fe_dt(c, 2, x->dtype);
    fe_ret(c, fe_cast(l, t, fe_safe_softmax(l, fe_cast(l, fe_wide(t), x), fe_axis_i(c, x, 1))));
}

void fe_lower_logsumexp(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given);
    if (!dtype_is_float((dtype)x->dtype))
        x = fe_cast(l, DT_f32, x);
    u8 t = dtype_is_float((dtype)given->dtype) ? given->dtype : DT_f32;
    u64 dims = fe_axes(c, x, 1);
    if (fe_is_empty(x))
        fe_decline(l, "no elements");
    /* A largest element of ±inf is not subtracted: exp(-inf - -inf) would be NaN. */
    fe_tensor *m = fe_reduce(l, IR_MAX, x, dims, true);
    fe_tensor *huge = fe_op2n(l, IR_eq, fe_op1(l, IR_abs, m), (f64)INFINITY);
    fe_tensor *shift = fe_where(l, huge, fe_num(l, x->dtype, 0), m);
    fe_tensor *sum =
        fe_reduce(l, IR_SUM, fe_op1(l, IR_exp, fe_op2(l, IR_sub, x, shift)), dims, true);
    fe_tensor *r = fe_op2(l, IR_add, fe_op1(l, IR_log, sum), shift);
    fe_ret(c, fe_cast(l, t, fe_b(c, 2) ? r : fe_drop(l, r, dims)));
}

/* ---- norms  -------------------------------------------------------------------------------- */

static u64 trailing(fe_call *c, const fe_tensor *x, i64 arg)
{
    i64 n;
    i64 *shape = fe_is(c, arg, &n);
    u64 dims = 0;
    if (n > x->rank)
        fe_fail(c->l, "normalizes %lld dims of a tensor of rank %lld", (long long)n,
                (long long)x->rank);
    for (i64 k = 0; k < n; k++) {
        i64 d = x->rank - n + k;
        if (x->dims[d].extent != shape[k])
            fe_fail(c->l, "normalizes a dim of %lld, the operand has %lld", (long long)shape[k],
                    (long long)x->dims[d].extent);
        dims |= bit(d);
    }
    return dims;
}

/* y * w + b in the wide type; w and b may be absent. */
static fe_tensor *affine(fe_lower *l, fe_tensor *y, fe_tensor *w, fe_tensor *b)
{
    if (w)
        y = fe_op2(l, IR_mul, y, fe_cast(l, y->dtype, w));
    if (b)
        y = fe_op2(l, IR_add, y, fe_cast(l, y->dtype, b));
    return y;
}

void fe_lower_rms_norm(fe_call *c) /* input normalized_shape weight eps; code 1: also the factor */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given);
    u64 dims = trailing(c, x, 1);
    f64 eps = fe_has(c, 3) ? fe_f(c, 3) : given->dtype == DT_f64 ? 0x1p-52 : 0x1p-23;
    fe_tensor *square = fe_mean(l, fe_op1(l, IR_square, x), dims, true);
    fe_tensor *r = fe_op1(l, IR_rsqrt, fe_op2n(l, IR_add, square, eps));
    fe_ret(c, fe_cast(l, given->dtype, affine(l, fe_op2(l, IR_mul, x, r), fe_t_opt(c, 2), NULL)));
    if (c->row->code)
        fe_ret(c, r);
}

/* (x - mean) * rsqrt(var + eps) over dims; both statistics keep their dims. */
static fe_tensor *standardized(fe_lower *l, fe_tensor *x, u64 dims, f64 eps, fe_tensor **m,
                               fe_tensor **r)
{
    fe_tensor *v = variance(l, x, dims, true, 0, m);
    *r = fe_op1(l, IR_rsqrt, fe_op2n(l, IR_add, v, eps));
    return fe_op2(l, IR_mul, fe_op2(l, IR_sub, x, *m), *r);
}

void fe_lower_layer_norm(fe_call *c) /* code 1: also mean and factor */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *m, *r;
    u64 dims = trailing(c, x, 1);
    fe_tensor *y = standardized(l, x, dims, fe_f(c, 4), &m, &r);
    fe_ret(c, fe_cast(l, given->dtype, affine(l, y, fe_t_opt(c, 2), fe_t_opt(c, 3))));
    if (c->row->code) {
        fe_ret(c, fe_cast(l, fe_out_dtype(c, 1), m));
        fe_ret(c, fe_cast(l, fe_out_dtype(c, 2), r));
    }
}

/* A vector of channels, to be broadcast along dim 1 of a tensor of this rank. */
static fe_tensor *channels(fe_lower *l, fe_tensor *w, i64 rank, u8 type)
{
    if (!w)
        return NULL;
    if (w->rank != 1 || rank < 2)
        fe_fail(l, "a vector of channels of rank %lld for rank %lld", (long long)w->rank,
                (long long)rank);
    w = fe_cast(l, type, w);
    for (i64 d = 2; d < rank; d++)
        w = fe_unsqueeze(l, w, w->rank);
    return w;
}

/* Statistics over each of `groups` parts of dim 1 and everything after it. */
static fe_tensor *grouped(fe_lower *l, fe_tensor *x, i64 groups, f64 eps, fe_tensor **m,
                          fe_tensor **r)
{
    i64 sizes[FE_MAX_RANK + 1], back[FE_MAX_RANK];
    if (x->rank < 2 || groups < 1 || x->dims[1].extent % groups)
        fe_fail(l, "%lld groups do not divide the channels", (long long)groups);
    for (i64 d = 0; d < x->rank; d++)
        back[d] = sizes[d + (d > 1)] = x->dims[d].extent;
    sizes[1] = groups;
    sizes[2] = x->dims[1].extent / groups;
    fe_tensor *g = fe_view(l, x, x->rank + 1, sizes);
    fe_tensor *y = standardized(l, g, fe_all_dims(g) & ~(u64)3, eps, m, r);
    return fe_view(l, y, x->rank, back);
}

void fe_lower_group_norm(fe_call *c) /* input num_groups weight bias eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *m, *r;
    fe_tensor *y = grouped(l, x, fe_i(c, 1), fe_f(c, 4), &m, &r);
    y = affine(l, y, channels(l, fe_t_opt(c, 2), x->rank, x->dtype),
               channels(l, fe_t_opt(c, 3), x->rank, x->dtype));
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_native_group_norm(fe_call *c) /* input weight bias N C HxW group eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *m, *r;
    fe_tensor *y = grouped(l, x, fe_i(c, 6), fe_f(c, 7), &m, &r);
    y = affine(l, y, channels(l, fe_t_opt(c, 1), x->rank, x->dtype),
               channels(l, fe_t_opt(c, 2), x->rank, x->dtype));
    fe_ret(c, fe_cast(l, given->dtype, y));
    u64 rest = fe_all_dims(m) & ~(u64)3;
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 1), fe_drop(l, m, rest)));
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 2), fe_drop(l, r, rest)));
}

/* With the statistics given. */
static fe_tensor *by_running(fe_call *c, fe_tensor *x, f64 eps)
{
    fe_lower *l = c->l;
    fe_tensor *m = channels(l, fe_t(c, 3), x->rank, x->dtype);
    fe_tensor *v = channels(l, fe_t(c, 4), x->rank, x->dtype);
    fe_tensor *r = fe_op1(l, IR_rsqrt, fe_op2n(l, IR_add, v, eps));
    fe_tensor *y = fe_op2(l, IR_mul, fe_op2(l, IR_sub, x, m), r);
    return affine(l, y, channels(l, fe_t_opt(c, 1), x->rank, x->dtype),
                  channels(l, fe_t_opt(c, 2), x->rank, x->dtype));
}

void fe_lower_batch_norm(fe_call *c) /* input w b mean var training momentum eps */
{
    fe_tensor *given = fe_t(c, 0);
    if (fe_b(c, 5) || !fe_has(c, 3) || !fe_has(c, 4))
        fe_decline(c->l, "batch_norm in training updates running statistics");
    fe_ret(c, fe_cast(c->l, given->dtype, by_running(c, fe_widened(c->l, given), fe_f(c, 7))));
}

void fe_lower_batch_norm_core(fe_call *c) /* input w b mean var momentum eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0);
    fe_ret(c, fe_cast(l, given->dtype, by_running(c, fe_widened(l, given), fe_f(c, 6))));
    fe_dim none = {.extent = 0};
    for (i64 k = 1; k < 3; k++)
        fe_ret(c, fe_tensor_new(l, 0, fe_out_dtype(c, k), 1, &none));
}

/* Statistics of this very batch, per channel over `over`. */
static fe_tensor *by_batch(fe_call *c, fe_tensor *x, u64 over, f64 eps, fe_tensor **m,
                           fe_tensor **r)
{
    fe_lower *l = c->l;
    fe_tensor *y = standardized(l, x, over, eps, m, r);
    return affine(l, y, channels(l, fe_t_opt(c, 1), x->rank, x->dtype),
                  channels(l, fe_t_opt(c, 2), x->rank, x->dtype));
}

void fe_lower_instance_norm(fe_call *c) /* input w b mean var use_input_stats momentum eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *m, *r;
    if (!fe_b(c, 5)) {
        fe_ret(c, fe_cast(l, given->dtype, by_running(c, x, fe_f(c, 7))));
        return;
    }
    if (fe_has(c, 3))
        fe_decline(l, "instance_norm that updates running statistics");
    fe_tensor *y = by_batch(c, x, fe_all_dims(x) & ~(u64)3, fe_f(c, 7), &m, &r);
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_batch_norm_no_stats(fe_call *c) /* input w b training momentum eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *m, *r;
    if (!fe_b(c, 3))
        fe_decline(l, "batch_norm without statistics");
    u64 over = fe_all_dims(x) & ~(u64)2;
    fe_ret(c, fe_cast(l, given->dtype, by_batch(c, x, over, fe_f(c, 5), &m, &r)));
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 1), fe_drop(l, m, over)));
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 2), fe_drop(l, r, over)));
}

/* v times g over the norm of v along every dim but one; code 1: also that norm. */
void fe_lower_weight_norm(fe_call *c) /* v g dim; dim -1: one norm of all */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *v = fe_widened(l, given), *g = fe_t(c, 1);
    i64 d = fe_i(c, 2);
    if (d < -1 || d >= v->rank)
        fe_fail(l, "dim %lld of a tensor of rank %lld", (long long)d, (long long)v->rank);
    u64 over = d < 0 ? fe_all_dims(v) : fe_all_dims(v) & ~bit(d);
    fe_tensor *norm = fe_vector_norm(l, v, 2, over, d >= 0);
    fe_tensor *scale = fe_op2(l, IR_div, fe_cast(l, v->dtype, g), norm);
    fe_ret(c, fe_cast(l, given->dtype, fe_op2(l, IR_mul, v, scale)));
    if (c->row->code)
        fe_ret(c, fe_cast(l, fe_out_dtype(c, 1), norm));
}

/* ---- matrices  ------------------------------------------------------------------------------ */

void fe_lower_trace(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    if (x->rank != 2)
        fe_fail(l, "a trace of rank %lld", (long long)x->rank);
    fe_tensor *d = fe_cast(l, fe_out_dtype(c, 0), fe_diagonal(l, x, 0, 0, 1));
    fe_ret(c, fe_reduce(l, IR_SUM, d, 1, false));
}
