/* Element-by-element operators of ATen. Composites (activations and their like) compute in f32 on
 * half types and round once, as eager does; single operators keep their dtype. A number operand
 * stays exact: half x * 0.1 is computed in f32. */
#include <float.h>
#include <math.h>

#include "frontend/lower.h"

#define PI 3.14159265358979323846

static fe_tensor *floating(fe_lower *l, fe_tensor *x)
{
    return dtype_is_float((dtype)x->dtype) ? x : fe_cast(l, DT_f32, x);
}

fe_tensor *fe_arith(fe_lower *l, ir_op op, fe_tensor *a, fe_tensor *b)
{
    fe_tensor *xs[2] = {a, b};
    u8 t = fe_promote(xs, 2);
    bool is_test = ir_row(op)->rule == IR_COMPARE;
    if (ir_row(op)->rule == IR_FLOAT && !dtype_is_float((dtype)t))
        t = DT_f32;
    u8 in = fe_is_half(t) && !is_test && (a->is_number || b->is_number) ? DT_f32 : t;
    if (t == DT_bool && op == IR_add)
        op = IR_or;
    fe_tensor *r = fe_op2(l, op, fe_cast(l, in, a), fe_cast(l, in, b));
    return is_test ? r : fe_cast(l, t, r);
}

static fe_tensor *scaled(fe_lower *l, fe_tensor *x, fe_scalar s)
{
    return s.f == 1.0 ? x : fe_arith(l, IR_mul, x, fe_scalar_tensor(l, s));
}

/* Half operands widen; the result is rounded once, to what they promote to. */
static u8 widen(fe_lower *l, fe_tensor **xs, i64 n)
{
    u8 t = fe_promote(xs, n);
    for (i64 i = 0; i < n; i++)
        xs[i] = fe_cast(l, fe_wide(t), xs[i]);
    return t;
}

/* ---- one operand --------------------------------------------------------------------------- */

void fe_lower_float1(fe_call *c) /* exp, sqrt …: integers become f32 */
{
    fe_ret(c, fe_op1(c->l, (ir_op)c->row->code, floating(c->l, fe_t(c, 0))));
}

void fe_lower_any1(fe_call *c) /* abs, neg, floor …: any number */
{
    fe_tensor *x = fe_t(c, 0);
    if (x->dtype == DT_bool)
        fe_decline(c->l, "an operand of bool");
    fe_ret(c, fe_op1(c->l, (ir_op)c->row->code, x));
}

void fe_lower_square(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    if (x->dtype == DT_bool)
        x = fe_cast(c->l, DT_i64, x);
    fe_ret(c, fe_op1(c->l, IR_square, x));
}

void fe_lower_isnan(fe_call *c)
{
    fe_tensor *x = floating(c->l, fe_t(c, 0));
    fe_ret(c, fe_op2(c->l, IR_ne, x, x));
}

void fe_lower_isinf(fe_call *c)
{
    fe_tensor *x = fe_op1(c->l, IR_abs, floating(c->l, fe_t(c, 0)));
    fe_ret(c, fe_op2n(c->l, IR_eq, x, (f64)INFINITY));
}

void fe_lower_isfinite(fe_call *c)
{
    fe_ret(c, fe_op1(c->l, IR_finite, floating(c->l, fe_t(c, 0))));
}

void fe_lower_nan_to_num(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    if (!dtype_is_float((dtype)x->dtype)) {
        fe_ret(c, x);
        return;
    }
    f64 most = x->dtype == DT_f16    ? 65504.0
               : x->dtype == DT_bf16 ? 0x1.fep127
               : x->dtype == DT_f32  ? (f64)FLT_MAX
                                     : DBL_MAX;
    f64 nan = fe_has(c, 1) ? fe_f(c, 1) : 0, high = fe_has(c, 2) ? fe_f(c, 2) : most;
    f64 low = fe_has(c, 3) ? fe_f(c, 3) : -most;
    fe_tensor *y = fe_where(l, fe_op2(l, IR_ne, x, x), fe_num(l, x->dtype, nan), x);
    y = fe_where(l, fe_op2n(l, IR_eq, x, (f64)-INFINITY), fe_num(l, x->dtype, low), y);
    fe_ret(c, fe_where(l, fe_op2n(l, IR_eq, x, (f64)INFINITY), fe_num(l, x->dtype, high), y));
}

void fe_lower_frac(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    if (!dtype_is_float((dtype)x->dtype))
        fe_fail(c->l, "the fraction of %s", dtype_name((dtype)x->dtype));
    fe_ret(c, fe_op2(c->l, IR_sub, x, fe_op1(c->l, IR_trunc, x)));
}

void fe_lower_signbit(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    if (dtype_is_float((dtype)x->dtype))
        x = fe_op2(l, IR_copysign, fe_num(l, x->dtype, 1), x);
    else if (x->dtype == DT_bool)
        x = fe_cast(l, DT_i64, x);
    fe_ret(c, fe_op2(l, IR_lt, x, fe_cast(l, x->dtype, fe_int(l, DT_i64, 0))));
}

void fe_lower_is_signed_inf(fe_call *c) /* code: the sign */
{
    fe_tensor *x = floating(c->l, fe_t(c, 0));
    fe_ret(c, fe_op2n(c->l, IR_eq, x, c->row->code < 0 ? (f64)-INFINITY : (f64)INFINITY));
}

void fe_lower_angle_unit(fe_call *c) /* code 1: degrees to radians; 0: back */
{
    fe_lower *l = c->l;
    fe_tensor *x = floating(l, fe_t(c, 0));
    fe_tensor *y = fe_op2n(l, IR_mul, fe_cast(l, fe_wide(x->dtype), x),
                           c->row->code ? PI / 180 : 180 / PI);
    fe_ret(c, fe_cast(l, x->dtype, y));
}

void fe_lower_logit(fe_call *c) /* self eps */
{
    fe_lower *l = c->l;
    fe_tensor *given = floating(l, fe_t(c, 0)), *x = fe_cast(l, fe_wide(given->dtype), given);
    if (fe_has(c, 1))
        x = fe_op2n(l, IR_min, fe_op2n(l, IR_max, x, fe_f(c, 1)), 1 - fe_f(c, 1));
    fe_tensor *rest = fe_op2(l, IR_sub, fe_num(l, x->dtype, 1), x);
    fe_ret(c, fe_cast(l, given->dtype, fe_op1(l, IR_log, fe_op2(l, IR_div, x, rest))));
}

void fe_lower_sinc(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = floating(l, fe_t(c, 0)), *x = fe_cast(l, fe_wide(given->dtype), given);
    fe_tensor *angle = fe_op2n(l, IR_mul, x, PI);
    fe_tensor *y = fe_op2(l, IR_div, fe_op1(l, IR_sin, angle), angle);
    y = fe_where(l, fe_op2n(l, IR_eq, x, 0), fe_num(l, x->dtype, 1), y);
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_round_decimals(fe_call *c) /* self decimals */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given);
    i64 n = fe_i(c, 1);
    if (!dtype_is_float((dtype)given->dtype) || n < -300 || n > 300)
        fe_decline(l, "%lld decimals of %s", (long long)n, dtype_name((dtype)given->dtype));
    f64 scale = pow(10, (f64)(n < 0 ? -n : n));
    ir_op in = n < 0 ? IR_div : IR_mul, out = n < 0 ? IR_mul : IR_div;
    fe_tensor *y = fe_op1(l, IR_round, fe_op2n(l, in, x, scale));
    fe_ret(c, fe_cast(l, given->dtype, fe_op2n(l, out, y, scale)));
}

/* ---- two operands  ------------------------------------------------------------------------- */

void fe_lower_add(fe_call *c) /* add, sub with alpha */
{
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    if (fe_has(c, 2) && fe_sc(c, 2).f != 1.0) {
        bool was_number = b->is_number;
        b = scaled(c->l, b, fe_sc(c, 2));
        b->is_number = was_number;
    }
    fe_ret(c, fe_arith(c->l, (ir_op)c->row->code, a, b));
}

void fe_lower_rsub(fe_call *c)
{
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    if (fe_has(c, 2) && fe_sc(c, 2).f != 1.0)
        a = scaled(c->l, a, fe_sc(c, 2));
    fe_ret(c, fe_arith(c->l, IR_sub, b, a));
}

void fe_lower_binary(fe_call *c) /* mul, max, min, mod, fmod, div, and comparisons */
{
    fe_ret(c, fe_arith(c->l, (ir_op)c->row->code, fe_t(c, 0), fe_t(c, 1)));
}

void fe_lower_swapped(fe_call *c) /* gt, ge as lt, le */
{
    fe_ret(c, fe_arith(c->l, (ir_op)c->row->code, fe_t(c, 1), fe_t(c, 0)));
}

static fe_tensor *divided(fe_call *c, fe_tensor *a, fe_tensor *b, const char *mode)
{
    if (!mode)
        return fe_arith(c->l, IR_div, a, b);
    fe_tensor *xs[2] = {a, b};
    if (fe_promote(xs, 2) == DT_bool)
        fe_decline(c->l, "a rounded division of bools");
    return fe_arith(c->l, !strcmp(mode, "floor") ? IR_floordiv : IR_truncdiv, a, b);
}

void fe_lower_div_mode(fe_call *c)
{
    fe_ret(c, divided(c, fe_t(c, 0), fe_t(c, 1), fe_s(c, 2)));
}

void fe_lower_floor_divide(fe_call *c)
{
    fe_ret(c, divided(c, fe_t(c, 0), fe_t(c, 1), "floor"));
}

static fe_tensor *as_bool(fe_lower *l, fe_tensor *x)
{
    return fe_cast(l, DT_bool, x);
}

void fe_lower_logical(fe_call *c)
{
    fe_ret(c,
           fe_op2(c->l, (ir_op)c->row->code, as_bool(c->l, fe_t(c, 0)), as_bool(c->l, fe_t(c, 1))));
}

void fe_lower_logical_not(fe_call *c)
{
    fe_ret(c, fe_op1(c->l, IR_not, as_bool(c->l, fe_t(c, 0))));
}

void fe_lower_bitwise_not(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_op1(c->l, x->dtype == DT_bool ? IR_not : IR_bitnot, x));
}

/* fmax, fmin: of a number and NaN the number. */
void fe_lower_number_extreme(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    fe_tensor *a = fe_cast(l, t, xs[0]), *b = fe_cast(l, t, xs[1]);
    fe_tensor *y = fe_op2(l, (ir_op)c->row->code, a, b);
    if (dtype_is_float((dtype)t)) {
        y = fe_where(l, fe_op2(l, IR_ne, b, b), a, y);
        y = fe_where(l, fe_op2(l, IR_ne, a, a), b, y);
    }
    fe_ret(c, y);
}

void fe_lower_shift(fe_call *c)
{
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    if (dtype_kind_of((dtype)t) != DK_INT)
        fe_decline(c->l, "a shift of %s", dtype_name((dtype)t));
    fe_ret(c, fe_arith(c->l, (ir_op)c->row->code, xs[0], xs[1]));
}

/* log(base^a + base^b) with the larger one taken out; code: IR_exp or IR_exp2. */
void fe_lower_logaddexp(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = widen(l, xs, 2);
    fe_tensor *most = fe_op2(l, IR_max, xs[0], xs[1]);
    fe_tensor *gap = fe_op1(l, IR_abs, fe_op2(l, IR_sub, xs[0], xs[1]));
    fe_tensor *tail =
        fe_op1(l, IR_log1p, fe_op1(l, (ir_op)c->row->code, fe_op1(l, IR_neg, gap)));
    if (c->row->code == IR_exp2)
        tail = fe_op2n(l, IR_mul, tail, 1.4426950408889634074); /* 1 / log 2 */
    /* Equal infinities: their difference is NaN. */
    fe_tensor *same = fe_op2(l, IR_and, fe_op2(l, IR_eq, xs[0], xs[1]),
                             fe_op2n(l, IR_eq, fe_op1(l, IR_abs, xs[0]), (f64)INFINITY));
    fe_ret(c, fe_cast(l, t, fe_where(l, same, xs[0], fe_op2(l, IR_add, most, tail))));
}

void fe_lower_xlogy(fe_call *c) /* a log b; 0 where a is 0 and b is a number */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2), in = dtype_is_float((dtype)t) ? t : DT_f32;
    fe_tensor *a = fe_cast(l, fe_wide(in), xs[0]), *b = fe_cast(l, fe_wide(in), xs[1]);
    fe_tensor *zero = fe_num(l, a->dtype, 0);
    fe_tensor *y = fe_op2(l, IR_mul, a, fe_op1(l, IR_log, b));
    y = fe_where(l, fe_op2(l, IR_eq, a, zero), zero, y);
    fe_ret(c, fe_cast(l, in, fe_where(l, fe_op2(l, IR_ne, b, b), b, y)));
}

void fe_lower_heaviside(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *zero = fe_cast(l, x->dtype, fe_int(l, DT_i64, 0));
    fe_tensor *step = fe_cast(l, x->dtype, fe_op2(l, IR_lt, zero, x));
    fe_ret(c, fe_where(l, fe_op2(l, IR_eq, x, zero), fe_cast(l, x->dtype, fe_t(c, 1)), step));
}

void fe_lower_isclose(fe_call *c) /* self other rtol atol equal_nan */
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    if (a->dtype != b->dtype || !dtype_is_float((dtype)a->dtype))
        fe_decline(l, "a comparison of %s and %s", dtype_name((dtype)a->dtype),
                   dtype_name((dtype)b->dtype));
    fe_tensor *is = fe_op2(l, IR_eq, a, b);
    if (fe_b(c, 4))
        is = fe_op2(l, IR_or, is,
                    fe_op2(l, IR_and, fe_op2(l, IR_ne, a, a), fe_op2(l, IR_ne, b, b)));
    a = fe_cast(l, fe_wide(a->dtype), a), b = fe_cast(l, fe_wide(b->dtype), b);
    fe_tensor *far = fe_op1(l, IR_abs, fe_op2(l, IR_sub, a, b));
    fe_tensor *most = fe_op2n(l, IR_mul, fe_op1(l, IR_abs, b), fe_f(c, 2));
    most = fe_op2n(l, IR_add, most, fe_f(c, 3));
    fe_tensor *near = fe_op2(l, IR_and, fe_op1(l, IR_finite, far), fe_op2(l, IR_le, far, most));
    fe_ret(c, fe_op2(l, IR_or, is, near));
}

/* Is each element one of the others? */
void fe_lower_isin(fe_call *c) /* elements test_elements assume_unique invert */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *set = fe_t(c, 1), *xs[2] = {x, set};
    u8 t = fe_promote(xs, 2);
    set = fe_flatten(l, set, 0, MAX(set->rank - 1, 0));
    fe_tensor *hit = fe_op2(l, IR_eq, fe_cast(l, t, fe_unsqueeze(l, x, x->rank)),
                            fe_cast(l, t, set));
    hit = fe_reduce(l, IR_OR, hit, (u64)1 << x->rank, false);
    fe_ret(c, fe_b(c, 3) ? fe_op1(l, IR_not, hit) : hit);
}

/* ---- powers -------------------------------------------------------------------------------- */

static fe_tensor *power(fe_lower *l, fe_tensor *x, f64 e)
{
    bool is_float = dtype_is_float((dtype)x->dtype);
    if (e == 1.0)
        return x;
    if (e == 2.0)
        return fe_op1(l, IR_square, x);
    if (e == 3.0)
        return fe_op2(l, IR_mul, x, fe_op1(l, IR_square, x));
    if (is_float && e == 0.5)
        return fe_op1(l, IR_sqrt, x);
    if (is_float && e == -0.5)
        return fe_op1(l, IR_rsqrt, x);
    if (is_float && e == -1.0)
        return fe_op1(l, IR_recip, x);
    return fe_op2n(l, IR_pow, x, e);
}

void fe_lower_pow_scalar(fe_call *c)
{
    fe_lower *l = c->l;
    fe_scalar e = fe_sc(c, 1);
    fe_tensor *x = fe_t(c, 0), *xs[2] = {x, fe_scalar_tensor(l, e)};
    u8 t = fe_promote(xs, 2);
    if (t == DT_bool)
        t = DT_i64;
    if (!dtype_is_float((dtype)t) && e.f < 0)
        fe_fail(l, "an integer to a negative power");
    if (e.f == 0.0) {
        fe_ret(c, fe_fill_like(l, x, dtype_is_float((dtype)t) ? fe_num(l, t, 1) : fe_int(l, t, 1)));
        return;
    }
    u8 wide = e.f == 2.0 ? t : fe_wide(t);
    fe_ret(c, fe_cast(l, t, power(l, fe_cast(l, wide, x), e.f)));
}

void fe_lower_pow(fe_call *c) /* exponent a tensor */
{
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1), *xs[2] = {a, b};
    if (fe_promote(xs, 2) == DT_bool)
        fe_decline(c->l, "a power of bools");
    fe_ret(c, fe_arith(c->l, IR_pow, a, b));
}

/* ---- choices ------------------------------------------------------------------------------- */

void fe_lower_where(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 1), fe_t(c, 2)};
    u8 t = fe_promote(xs, 2);
    fe_ret(c, fe_where(l, as_bool(l, fe_t(c, 0)), fe_cast(l, t, xs[0]), fe_cast(l, t, xs[1])));
}

void fe_lower_masked_fill(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *mask = as_bool(l, fe_t(c, 1));
    fe_ret(c, fe_where(l, mask, fe_cast(l, x->dtype, fe_t(c, 2)), x));
}

static fe_tensor *clamped(fe_lower *l, fe_tensor *x, fe_tensor *low, fe_tensor *high)
{
    if (low)
        x = fe_arith(l, IR_max, x, low);
    if (high)
        x = fe_arith(l, IR_min, x, high);
    return x;
}

void fe_lower_clamp(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0), *low = fe_t_opt(c, 1), *high = fe_t_opt(c, 2);
    fe_tensor *all[3] = {x};
    i64 n = 1;
    if (low)
        all[n++] = low;
    if (high)
        all[n++] = high;
    fe_ret(c, clamped(c->l, fe_cast(c->l, fe_promote(all, n), x), low, high));
}

void fe_lower_clamp_min(fe_call *c)
{
    fe_ret(c, clamped(c->l, fe_t(c, 0), fe_t(c, 1), NULL));
}

void fe_lower_clamp_max(fe_call *c)
{
    fe_ret(c, clamped(c->l, fe_t(c, 0), NULL, fe_t(c, 1)));
}

void fe_lower_fill(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_fill_like(c->l, x, fe_cast(c->l, x->dtype, fe_t(c, 1))));
}

void fe_lower_zero(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_fill_like(
                  c->l, x,
                  fe_cast(c->l, x->dtype, fe_scalar_tensor(c->l, (fe_scalar){DK_INT, 0, 0}))));
}

void fe_lower_copy(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(l, x->dtype, fe_t(c, 1));
    i64 sizes[FE_MAX_RANK];
    for (i64 d = 0; d < x->rank; d++)
        sizes[d] = x->dims[d].extent;
    while (src->rank > x->rank && src->dims[0].extent == 1)
        src = fe_drop(l, src, 1);
    fe_ret(c, fe_expand(l, src, x->rank, sizes));
}

/* ---- three operands  ----------------------------------------------------------------------- */

void fe_lower_addc(fe_call *c) /* addcmul, addcdiv */
{
    fe_lower *l = c->l;
    fe_tensor *xs[3] = {fe_t(c, 0), fe_t(c, 1), fe_t(c, 2)};
    u8 t = widen(l, xs, 3);
    fe_tensor *product = fe_op2(l, (ir_op)c->row->code, xs[1], xs[2]);
    if (fe_sc(c, 3).f != 1.0)
        product = fe_arith(l, IR_mul, product, fe_t(c, 3));
    fe_ret(c, fe_cast(l, t, fe_op2(l, IR_add, xs[0], product)));
}

fe_tensor *fe_lerp(fe_lower *l, fe_tensor *from, fe_tensor *to, fe_tensor *w)
{
    /* From the nearer end, as eager does: exact at both. */
    fe_tensor *is_far = fe_op2(l, IR_le, fe_num(l, w->dtype, 0.5), fe_op1(l, IR_abs, w));
    fe_tensor *part = fe_where(l, is_far, fe_op2n(l, IR_sub, w, 1), w);
    fe_tensor *base = fe_where(l, is_far, to, from);
    fe_tensor *step = fe_op2(l, IR_mul, part, fe_op2(l, IR_sub, to, from));
    return fe_op2(l, IR_add, base, step);
}

void fe_lower_lerp(fe_call *c)
{
    fe_tensor *xs[3] = {fe_t(c, 0), fe_t(c, 1), fe_t(c, 2)};
    u8 t = widen(c->l, xs, 3);
    fe_ret(c, fe_cast(c->l, t, fe_lerp(c->l, xs[0], xs[1], xs[2])));
}

/* ---- activations  -------------------------------------------------------------------------- */

/* log(1 + exp x); x itself where scale * x is above the threshold, which also keeps exp finite. */
static fe_tensor *softplus(fe_lower *l, fe_tensor *x, f64 scale, f64 threshold)
{
    fe_tensor *in = scale == 1.0 ? x : fe_op2n(l, IR_mul, x, scale);
    fe_tensor *out = fe_op1(l, IR_log1p, fe_op1(l, IR_exp, in));
    if (scale != 1.0)
        out = fe_op2n(l, IR_mul, out, 1.0 / scale);
    return fe_where(l, fe_op2(l, IR_lt, fe_num(l, x->dtype, threshold), in), x, out);
}

static fe_tensor *elu(fe_lower *l, const fe_tensor *x, f64 alpha, f64 scale, f64 input_scale)
{
    fe_tensor *in = input_scale == 1.0 ? (fe_tensor *)x : fe_op2n(l, IR_mul, x, input_scale);
    fe_tensor *low = fe_op1(l, IR_expm1, in);
    fe_tensor *high = scale == 1.0 ? (fe_tensor *)x : fe_op2n(l, IR_mul, x, scale);
    if (alpha * scale != 1.0)
        low = fe_op2n(l, IR_mul, low, alpha * scale);
    return fe_where(l, fe_op2(l, IR_lt, fe_num(l, x->dtype, 0), x), high, low);
}

/* min(max(x + 3, 0), 6) / 6 */
static fe_tensor *hardsigmoid(fe_lower *l, const fe_tensor *x)
{
    fe_tensor *y = fe_op2n(l, IR_max, fe_op2n(l, IR_add, x, 3), 0);
    return fe_op2n(l, IR_mul, fe_op2n(l, IR_min, y, 6), 1.0 / 6.0);
}

void fe_lower_activation(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0);
    if (!dtype_is_float((dtype)given->dtype) && c->row->code != FE_RELU && c->row->code != FE_RELU6)
        fe_decline(l, "an operand of %s", dtype_name((dtype)given->dtype));
    bool is_single = c->row->code == FE_RELU || c->row->code == FE_RELU6;
    fe_tensor *x = is_single ? given : fe_cast(l, fe_wide(given->dtype), given), *y = NULL;
    fe_scalar zero = {DK_INT, 0, 0};
    switch (c->row->code) {
    case FE_RELU:
    case FE_RELU6:
        y = fe_op2(l, IR_max, x, fe_cast(l, x->dtype, fe_scalar_tensor(l, zero)));
        if (c->row->code == FE_RELU6)
            y = fe_op2(l, IR_min, y,
                       fe_cast(l, x->dtype, fe_scalar_tensor(l, (fe_scalar){DK_INT, 6, 6})));
        break;
    case FE_SILU:
        y = fe_op2(l, IR_mul, x, fe_op1(l, IR_sigmoid, x));
        break;
    case FE_SOFTPLUS:
        y = softplus(l, x, fe_f(c, 1), fe_f(c, 2));
        break;
    case FE_ELU:
        y = elu(l, x, fe_f(c, 1), fe_f(c, 2), fe_f(c, 3));
        break;
    case FE_CELU:
        y = elu(l, x, fe_f(c, 1), 1.0, 1.0 / fe_f(c, 1));
        break;
    case FE_SELU:
        y = elu(l, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0);
        break;
    case FE_LEAKY:
        y = fe_where(l, fe_op2(l, IR_lt, fe_num(l, x->dtype, 0), x), x,
                     fe_op2n(l, IR_mul, x, fe_f(c, 1)));
        break;
    case FE_HARDTANH:
        y = fe_op2n(l, IR_min, fe_op2n(l, IR_max, x, fe_f(c, 1)), fe_f(c, 2));
        break;
    case FE_HARDSWISH:
        y = fe_op2(l, IR_mul, x, hardsigmoid(l, x));
        break;
    case FE_HARDSIGMOID:
        y = hardsigmoid(l, x);
        break;
    case FE_MISH:
        y = fe_op2(l, IR_mul, x, fe_op1(l, IR_tanh, softplus(l, x, 1, 20)));
        break;
    case FE_LOGSIGMOID: {
        fe_tensor *tail = fe_op1(l, IR_exp, fe_op1(l, IR_neg, fe_op1(l, IR_abs, x)));
        y = fe_op2(l, IR_sub, fe_op2n(l, IR_min, x, 0), fe_op1(l, IR_log1p, tail));
        break;
    }
    default:
        y = fe_op2(l, IR_sub, x, fe_op1(l, IR_tanh, x));
        break;
    }
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_shrink(fe_call *c) /* self lambd; code 1: what remains moves toward 0 */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given);
    fe_tensor *zero = fe_num(l, x->dtype, 0), *edge = fe_num(l, x->dtype, fe_f(c, 1));
    fe_tensor *size = fe_op1(l, IR_abs, x), *y;
    if (c->row->code) { /* x * 0 keeps NaN */
        y = fe_op2(l, IR_sub, x, fe_op2(l, IR_mul, fe_op1(l, IR_sign, x), edge));
        y = fe_where(l, fe_op2(l, IR_lt, edge, size), y, fe_op2(l, IR_mul, x, zero));
    } else {
        y = fe_where(l, fe_op2(l, IR_le, size, edge), zero, x);
    }
    fe_ret(c, fe_cast(l, given->dtype, y));
}

/* self lower upper training: the middle slope; code 1: self noise lower upper training, also the
 * noise */
void fe_lower_rrelu(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given);
    i64 first = 1 + c->row->code;
    if (fe_b(c, first + 2))
        fe_decline(l, "rrelu in training draws random numbers");
    fe_tensor *low = fe_op2n(l, IR_mul, x, (fe_f(c, first) + fe_f(c, first + 1)) / 2);
    fe_tensor *y = fe_where(l, fe_op2(l, IR_lt, fe_num(l, x->dtype, 0), x), x, low);
    fe_ret(c, fe_cast(l, given->dtype, y));
    if (c->row->code)
        fe_ret(c, fe_t(c, 1));
}

void fe_lower_threshold(fe_call *c) /* value where self <= threshold */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given);
    fe_tensor *y =
        fe_where(l, fe_arith(l, IR_le, x, fe_t(c, 1)), fe_cast(l, x->dtype, fe_t(c, 2)), x);
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_prelu(fe_call *c) /* a slope, or one for each channel */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *w = fe_cast(l, x->dtype, fe_t(c, 1));
    if (w->rank > 1 || (w->rank == 1 && w->dims[0].extent > 1 && x->rank < 2))
        fe_fail(l, "slopes of rank %lld for rank %lld", (long long)w->rank, (long long)x->rank);
    if (w->rank == 1 && x->rank < 2)
        w = fe_drop(l, w, 1);
    for (i64 d = 2; d < x->rank && w->rank; d++)
        w = fe_unsqueeze(l, w, w->rank);
    fe_tensor *is_high = fe_op2(l, IR_lt, fe_num(l, x->dtype, 0), x);
    fe_ret(c, fe_where(l, is_high, x, fe_op2(l, IR_mul, w, x)));
}

void fe_lower_gelu(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_cast(l, fe_wide(given->dtype), given), *gate;
    const char *kind = fe_s(c, 1);
    if (kind && !strcmp(kind, "tanh")) {
        /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
        fe_tensor *cube = fe_op2(l, IR_mul, x, fe_op1(l, IR_square, x));
        fe_tensor *in = fe_op2(l, IR_add, x, fe_op2n(l, IR_mul, cube, 0.044715));
        gate = fe_op1(l, IR_tanh, fe_op2n(l, IR_mul, in, sqrt(2.0 / PI)));
    } else {
        gate = fe_op1(l, IR_erf, fe_op2n(l, IR_mul, x, sqrt(0.5)));
    }
    gate = fe_op2n(l, IR_add, gate, 1);
    fe_ret(c, fe_cast(l, given->dtype, fe_op2(l, IR_mul, fe_op2n(l, IR_mul, x, 0.5), gate)));
}

void fe_lower_glu(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_axis_i(c, x, 1), n = x->rank ? x->dims[d].extent / 2 : 0;
    if (!x->rank || x->dims[d].extent % 2)
        fe_fail(l, "wants a dim of even extent");
    fe_tensor *a = fe_slice(l, x, d, 0, n, 1), *b = fe_slice(l, x, d, n, n, 1);
    u8 wide = fe_wide(x->dtype);
    b = fe_op1(l, IR_sigmoid, fe_cast(l, wide, b));
    fe_ret(c, fe_cast(l, x->dtype, fe_op2(l, IR_mul, fe_cast(l, wide, a), b)));
}

/* ---- casts  -------------------------------------------------------------------------------- */

void fe_lower_to(fe_call *c) /* argument 1 is the dtype */
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_cast(c->l, fe_dt(c, 1, x->dtype), x));
}

void fe_lower_to_device(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_cast(c->l, fe_dt(c, 2, x->dtype), x));
}

void fe_lower_to_like(fe_call *c)
{
    fe_ret(c, fe_cast(c->l, fe_t(c, 1)->dtype, fe_t(c, 0)));
}

void fe_lower_same(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_tensor_new(c->l, x->term, x->dtype, x->rank, x->dims));
}

void fe_lower_dropout(fe_call *c) /* dropout, native_dropout */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    bool trains = c->row->code ? fe_has(c, 2) && fe_b(c, 2) : fe_b(c, 2);
    if (trains && fe_f(c, 1) > 0)
        fe_decline(l, "dropout in training draws random numbers");
    fe_lower_same(c);
    if (c->row->code)
        fe_ret(c, fe_fill_like(l, x, fe_int(l, DT_bool, 1)));
}

void fe_lower_assert_type(fe_call *c) /* a, size, stride, dtype; strides are no part of values */
{
    fe_tensor *x = fe_t(c, 0);
    i64 n;
    i64 *sizes = fe_is(c, 1, &n);
    if (fe_dt(c, 3, x->dtype) != x->dtype)
        fe_fail(c->l, "asserts a dtype that the operand does not have");
    for (i64 d = 0; fe_has(c, 1) && d < n; d++)
        if (n != x->rank || sizes[d] != x->dims[d].extent)
            fe_fail(c->l, "asserts a shape that the operand does not have");
}

void fe_lower_assert_scalar(fe_call *c)
{
    fe_scalar s = fe_sc(c, 0);
    if (s.f == 0.0)
        fe_fail(c->l, "an assertion of the program fails for these sizes: %s", fe_s(c, 1));
}

void fe_lower_assert_async(fe_call *c) /* a condition on data: the program promises it */
{
    (void)fe_t(c, 0);
}

void fe_lower_assert_range(fe_call *c) /* size, min, max */
{
    fe_scalar s = fe_sc(c, 0);
    if ((fe_has(c, 1) && s.f < fe_f(c, 1)) || (fe_has(c, 2) && s.f > fe_f(c, 2)))
        fe_fail(c->l, "%lld is outside of the range that the program asserts", (long long)s.i);
}
