/* The f32 functions of the printed preamble, compiled here as they are: accuracy over wide sweeps
 * against libm in f64, special values, conversions against base. */
#include <fenv.h>
#include <math.h>

#include "ir/check.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#define add_i64 c_add_i64 /* base has checked functions of these names */
#define mul_i64 c_mul_i64
#define HELPER(name, ...) __VA_ARGS__
#include "codegen/c_helpers.def"
#undef HELPER

typedef struct function {
    const char *name;
    f32 (*have)(f32);
    f64 (*want)(f64);
    f64 low, high; /* of the dense sweep */
    f64 most;      /* relative error there, and wherever the result is normal */
} function;

static f64 sigmoid(f64 x)
{
    return 1 / (1 + exp(-x));
}

static const function FUNCTIONS[] = {
    {"exp", exp_f32, exp, -87, 88.7, 2e-7},     {"exp2", exp2_f32, exp2, -126, 127.9, 2e-7},
    {"expm1", expm1_f32, expm1, -20, 40, 3e-7}, {"log", log_f32, log, 1e-30, 100, 2e-7},
    {"log2", log2_f32, log2, 1e-30, 100, 3e-7}, {"log1p", log1p_f32, log1p, -0.99, 50, 3e-7},
    {"tanh", tanh_f32, tanh, -12, 12, 4e-7},    {"sigmoid", sigmoid_f32, sigmoid, -80, 80, 3e-7},
    {"erf", erf_f32, erf, -5, 5, 2e-7},         {"sin", sin_f32, sin, -1e4, 1e4, 1e-7},
    {"cos", cos_f32, cos, -1e4, 1e4, 1e-7},     {"tan", tan_f32, tan, -1e4, 1e4, 1e-7},
    {"asin", asin_f32, asin, -1, 1, 7e-8},      {"acos", acos_f32, acos, -1, 1, 7e-8},
    {"atan", atan_f32, atan, -5, 5, 7e-8},      {"sinh", sinh_f32, sinh, -89, 89, 7e-8},
    {"cosh", cosh_f32, cosh, -89, 89, 7e-8},    {"asinh", asinh_f32, asinh, -9, 9, 7e-8},
    {"acosh", acosh_f32, acosh, 1, 9, 7e-8},    {"atanh", atanh_f32, atanh, -1, 1, 7e-8},
    {"log10", log10_f32, log10, 1e-30, 100, 7e-8},
};

/* Error of one value as a share of the true one (of the least normal number below it). */
static f64 error_at(const function *f, f32 x)
{
    f64 want = f->want((f64)x), have = (f64)f->have(x);
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have) ? 0 : (f64)INFINITY;
    f64 rounded = (f64)(f32)want;
    if (isinf(rounded) || isinf(have))
        return rounded == have || fabs(want) > 0.999999 * 3.4028235e38 ? 0 : (f64)INFINITY;
    return fabs(have - want) / fmax(fabs(want), 0x1p-126);
}

static void test_accuracy(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(FUNCTIONS); i++) {
        const function *f = &FUNCTIONS[i];
        f64 worst = 0;
        f32 where = 0;
        for (i64 n = 0; n <= 400000; n++) {
            f32 x = (f32)(f->low + (f->high - f->low) * (f64)n / 400000);
            f64 e = error_at(f, x);
            if (!(e <= worst)) {
                worst = e;
                where = x;
            }
        }
        /* every exponent and sign: small, huge, subnormal, infinite, NaN */
        for (u64 bits = 0; bits < (u64)1 << 32; bits += 9973) {
            f32 x = f32_bits((u32)bits);
            f64 e = error_at(f, x);
            if (!(e <= worst)) {
                worst = e;
                where = x;
            }
        }
        if (!(worst <= f->most))
            fail_msg("%s: relative error %.3g at %.9g", f->name, worst, (f64)where);
    }
}

/* Functions of two numbers: ordinary ones, every exponent and sign, and all pairs of those that the
 * standard has rules for. */
static void test_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        f32 (*have)(f32, f32);
        f64 (*want)(f64, f64);
    } pairs[] = {{"pow", pow_f32, pow}, {"atan2", atan2_f32, atan2}};
    const f32 ends[] = {0,    1,     2,     3,   0.5f,  1.5f,        0x1p24f, 0x1.fffffep23f,
                        1e30f, 1e-30f, 0x1p-149f, 127, 33.3f, 0x1.000002p0f, INFINITY, NAN};
    rng g = rng_new(9);
    for (i64 i = 0; i < COUNT_OF(pairs); i++)
        for (i64 n = 0; n < 3000000; n++) {
            f32 x, y;
            if (n < 1024) {
                x = ends[n % 16] * (n & 512 ? -1.0f : 1.0f);
                y = ends[n / 16 % 16] * (n & 256 ? -1.0f : 1.0f);
            } else if (n % 3 == 0) {
                x = f32_bits((u32)rng_u64(&g));
                y = f32_bits((u32)rng_u64(&g));
            } else { /* near each other, and results that are not all zero or infinite */
                x = (f32)(exp(20 * rng_f64(&g) - 10) * (n % 2 ? 1 : -1));
                y = n % 5 == 0 ? (f32)rng_below(&g, 20) - 9 : (f32)(20 * rng_f64(&g) - 10);
            }
            f64 want = pairs[i].want((f64)x, (f64)y), have = (f64)pairs[i].have(x, y);
            f64 rounded = (f64)(f32)want;
            bool same = isnan(want) ? isnan(have) : have == rounded && signbit(have) == signbit(want);
            bool near = fabs(have - want) <= 7e-8 * fmax(fabs(want), 0x1p-126) ||
                        (isinf(rounded) && isinf(have) && signbit(have) == signbit(want));
            if (!same && !near)
                fail_msg("%s(%.9g, %.9g) is %.9g, not %.9g", pairs[i].name, (f64)x, (f64)y, have, want);
        }
}

/* The quadrant of huge arguments: all exponents, mantissas near multiples of a quarter turn. */
static void test_turns(void **state)
{
    (void)state;
    rng g = rng_new(3);
    for (i64 i = 0; i < COUNT_OF(FUNCTIONS); i++) {
        const function *f = &FUNCTIONS[i];
        if (f->have != sin_f32 && f->have != cos_f32 && f->have != tan_f32)
            continue;
        for (u32 e = 100; e < 255; e++)
            for (i64 n = 0; n < 4000; n++) {
                f32 x = f32_bits(e << 23 | ((u32)rng_u64(&g) & 0x807fffffu));
                f32 turn = (f32)(rint((f64)x / 1.5707963267948966) * 1.5707963267948966);
                for (i64 k = 0; k < 2; k++) {
                    f64 error = error_at(f, k ? turn : x);
                    if (!(error <= f->most))
                        fail_msg("%s: relative error %.3g at %.9g", f->name, error, (f64)(k ? turn : x));
                }
            }
    }
}

static void test_special(void **state)
{
    (void)state;
    const f32 inf = INFINITY;
    assert_true(exp_f32(-inf) == 0 && exp_f32(inf) == inf && isnan(exp_f32(NAN)));
    assert_true(exp_f32(0) == 1 && exp2_f32(3) == 8 && exp2_f32(-149) == 0x1p-149f);
    assert_true(log_f32(0) == -inf && isnan(log_f32(-1)) && log_f32(inf) == inf);
    assert_true(log_f32(1) == 0 && log2_f32(8) == 3 && log2_f32(0x1p-149f) == -149);
    assert_true(log1p_f32(-1) == -inf && log1p_f32(inf) == inf && isnan(log1p_f32(-2)));
    assert_true(signbit(expm1_f32(-0.0f)) && expm1_f32(-inf) == -1 && expm1_f32(inf) == inf);
    assert_true(tanh_f32(inf) == 1 && tanh_f32(-inf) == -1 && isnan(tanh_f32(NAN)));
    assert_true(erf_f32(inf) == 1 && erf_f32(-inf) == -1 && isnan(erf_f32(NAN)));
    assert_true(sigmoid_f32(-inf) == 0 && sigmoid_f32(inf) == 1 && sigmoid_f32(0) == 0.5f);
    assert_true(isnan(sin_f32(inf)) && isnan(cos_f32(-inf)) && cos_f32(0) == 1);
    assert_true(isnan(tan_f32(inf)) && signbit(tan_f32(-0.0f)) && signbit(asin_f32(-0.0f)));
    assert_true(isnan(asin_f32(2)) && isnan(acos_f32(-2)) && acos_f32(1) == 0);
    assert_true(signbit(atan_f32(-0.0f)) && atan_f32(inf) == 1.57079637f && isnan(atan_f32(NAN)));
    assert_true(sinh_f32(-inf) == -inf && cosh_f32(-inf) == inf && signbit(sinh_f32(-0.0f)));
    assert_true(asinh_f32(-inf) == -inf && acosh_f32(inf) == inf && isnan(acosh_f32(0.5f)));
    assert_true(atanh_f32(-1) == -inf && isnan(atanh_f32(2)) && signbit(atanh_f32(-0.0f)));
    assert_true(log10_f32(1000) == 3 && log10_f32(0) == -inf && isnan(log10_f32(-1)));
    assert_true(isnan(max_f32(NAN, 1)) && isnan(max_f32(1, NAN)) && min_f32(2, 1) == 1);
}

/* A result of zero is not made by an underflow, which takes some processors a hundred cycles: half of
 * the scores of causal attention are masked. */
static void test_zeros(void **state)
{
    (void)state;
    const f32 far[] = {-INFINITY, -1e30f, -1000, 1000, 1e30f, INFINITY};
    for (i64 i = 0; i < COUNT_OF(FUNCTIONS); i++)
        for (i64 k = 0; k < COUNT_OF(far); k++) {
            volatile f32 x = far[k];
            feclearexcept(FE_UNDERFLOW);
            volatile f32 y = FUNCTIONS[i].have(x);
            (void)y;
            if (fetestexcept(FE_UNDERFLOW))
                fail_msg("%s underflows at %g", FUNCTIONS[i].name, (f64)x);
        }
}

/* All halves, and floats of every exponent around the points where rounding turns. */
static void test_halves(void **state)
{
    (void)state;
    for (u32 h = 0; h < 0x10000; h++) {
        f32 a = f32_f16((u16)h), b = f32_of_f16((u16)h);
        assert_true(isnan(a) ? isnan(b) : bits_f32(a) == bits_f32(b));
        assert_int_equal(bits_f32(f32_bf16((u16)h)), h << 16);
    }
    for (u64 bits = 0; bits < (u64)1 << 32; bits += 4093) {
        f32 x = f32_bits((u32)bits);
        if (isnan(x)) {
            assert_true((f16_f32(x) & 0x7fff) > 0x7c00 && (bf16_f32(x) & 0x7fff) > 0x7f80);
            continue;
        }
        assert_int_equal(f16_f32(x), f16_of_f32(x));
        assert_int_equal(bf16_f32(x), bf16_of_f32(x));
    }
    for (u32 h = 0; h < 0x7c00; h++) { /* halfway between neighbours, and just beside it */
        f32 middle = (f32_f16((u16)h) + f32_f16((u16)(h + 1))) / 2;
        if (h == 0x7bff)
            middle = 65520;
        for (i32 step = -1; step <= 1; step++) {
            f32 x = f32_bits(bits_f32(middle) + (u32)step);
            assert_int_equal(f16_f32(x), f16_of_f32(x));
        }
    }
}

static void test_integers(void **state)
{
    (void)state;
    assert_true(add_i64(INT64_MAX, 1) == INT64_MIN && mul_i32(1 << 30, 4) == 0);
    assert_true(sub_i8(-128, 1) == 127 && truncdiv_i64(INT64_MIN, -1) == INT64_MIN);
    assert_true(floordiv_i64(-7, 2) == -4 && mod_i64(-7, 2) == 1 && fmod_i64(-7, 2) == -1);
    assert_true(i64_f32(NAN) == INT64_MIN && i64_f64(1e30) == INT64_MIN && i32_f32(-3.9f) == -3);
    assert_true(i32_f32(3e9f) == INT32_MIN && pow_i64(3, 5) == 243 && pow_i64(2, -1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
