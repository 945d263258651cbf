/* The scalar helpers that ops.def and reducers.def name, for one element in f64 or i64. Integers
 * wrap; nothing here has undefined behaviour. What a divisor of 0 gives is unspecified: callers
 * check. Remainders and rounding are those of PyTorch. */
#ifndef EQF_IR_SCALAR_H
#define EQF_IR_SCALAR_H

#include <math.h>

#include "base/base.h"

static inline i64 eqf_wrap_add(i64 a, i64 b)
{
    return (i64)((u64)a + (u64)b);
}

static inline i64 eqf_wrap_sub(i64 a, i64 b)
{
    return (i64)((u64)a - (u64)b);
}

static inline i64 eqf_wrap_mul(i64 a, i64 b)
{
    return (i64)((u64)a * (u64)b);
}

static inline f64 eqf_max(f64 a, f64 b)
{
    return a > b || isnan(a) ? a : b;
}

static inline f64 eqf_min(f64 a, f64 b)
{
    return a < b || isnan(a) ? a : b;
}

static inline f64 eqf_sign(f64 a)
{
    return (f64)((a > 0) - (a < 0));
}

static inline i64 eqf_isign(i64 a)
{
    return (a > 0) - (a < 0);
}

static inline i64 eqf_iabs(i64 a)
{
    return a < 0 ? eqf_wrap_sub(0, a) : a;
}

static inline bool eqf_finite(f64 a)
{
    return isfinite(a);
}

/* Ties to even; the rounding mode is never changed. */
static inline f64 eqf_round(f64 a)
{
    return nearbyint(a);
}

/* Without overflow, and without losing the tail at very negative a. */
static inline f64 eqf_sigmoid(f64 a)
{
    f64 e = exp(-fabs(a));
    return isnan(a) ? a : (a < 0 ? e : 1) / (1 + e);
}

/* The remainder has the sign of b. */
static inline f64 eqf_mod(f64 a, f64 b)
{
    f64 m = fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

/* floor(a / b) computed from the exact remainder, so that 1 / 0.1 gives 9. */
static inline f64 eqf_floordiv(f64 a, f64 b)
{
    if (b == 0)
        return a / b;
    f64 m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0))
        q -= 1;
    if (q == 0)
        return copysign(0.0, a / b);
    f64 f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

static inline i64 eqf_itruncdiv(i64 a, i64 b)
{
    return b == 0 ? 0 : b == -1 ? eqf_wrap_sub(0, a) : a / b;
}

static inline i64 eqf_ifmod(i64 a, i64 b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static inline i64 eqf_ifloordiv(i64 a, i64 b)
{
    i64 m = eqf_ifmod(a, b);
    return eqf_itruncdiv(a, b) - (m != 0 && (m < 0) != (b < 0));
}

static inline i64 eqf_imod(i64 a, i64 b)
{
    i64 m = eqf_ifmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static inline i64 eqf_shl(i64 a, i64 b)
{
    return b < 0 || b > 63 ? 0 : (i64)((u64)a << b);
}

static inline i64 eqf_shr(i64 a, i64 b)
{
    return a >> (b < 0 || b > 63 ? 63 : b);
}

/* Wrapping; a negative exponent gives the truncated reciprocal (0 for a = 0). */
static inline i64 eqf_ipow(i64 a, i64 b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    i64 r = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1)
            r = eqf_wrap_mul(r, a);
        a = eqf_wrap_mul(a, a);
    }
    return r;
}

/* ---- conversions ---------------------------------------------------------------------------- */

/* An integer wrapped to the width of a dtype; bool: is it other than 0? */
static inline i64 eqf_wrap(dtype t, i64 x)
{
    switch (t) {
    case DT_bool:
        return x != 0;
    case DT_i8:
        return (i8)x;
    case DT_i32:
        return (i32)x;
    default:
        return x;
    }
}

/* Truncation; NaN and what does not fit give the smallest value, as the conversion instructions of
 * x86 do. i8 is converted through i32. */
static inline i64 eqf_int_of_f64(dtype t, f64 x)
{
    switch (t) {
    case DT_bool:
        return x != 0;
    case DT_i64:
        return x >= -0x1p63 && x < 0x1p63 ? (i64)x : INT64_MIN;
    default: {
        i32 narrow = x > -0x1p31 - 1 && x < 0x1p31 ? (i32)x : INT32_MIN;
        return t == DT_i8 ? (i8)narrow : narrow;
    }
    }
}

/* To a format with `mant` stored mantissa bits, smallest normal exponent `emin` and largest finite
 * value `largest`, ties to even. */
static inline f64 eqf_round_to(f64 x, int mant, int emin, f64 largest)
{
    f64 magnitude = fabs(x);
    if (!(magnitude < (f64)INFINITY))
        return x;
    f64 r;
    if (magnitude < ldexp(1.0, emin)) { /* a fixed step: adding 1.5 * 2^52 steps rounds to it */
        f64 shift = ldexp(1.5, 52 + emin - mant);
        r = (magnitude + shift) - shift;
    } else {
        u64 b, low = (u64)1 << (52 - mant);
        memcpy(&b, &magnitude, 8);
        b += low / 2 - 1 + ((b / low) & 1);
        b &= ~(low - 1);
        memcpy(&r, &b, 8);
    }
    return copysign(r > largest ? (f64)INFINITY : r, x);
}

/* The value that storage in a float dtype keeps. */
static inline f64 eqf_round_float(dtype t, f64 x)
{
    switch (t) {
    case DT_f16:
        return eqf_round_to(x, 10, -14, 65504.0);
    case DT_bf16:
        return eqf_round_to(x, 7, -126, 0x1.FEp127);
    case DT_f32:
        return (f64)(f32)x;
    default:
        return x;
    }
}

#endif
