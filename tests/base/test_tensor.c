/* Data types, elements of tensors, and counts that overflow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

static void test_dtypes(void **state)
{
    (void)state;
    for (dtype t = DT_NONE + 1; t < DT_COUNT; t++)
        assert_int_equal(dtype_find(dtype_name(t)), t);
    assert_int_equal(dtype_find("f33"), DT_NONE);
    assert_int_equal(dtype_find(""), DT_NONE);
    assert_int_equal(dtype_find("none"), DT_NONE);
    assert_int_equal(dtype_bytes(DT_bool), 1);
    assert_int_equal(dtype_bytes(DT_i64), 8);
    assert_int_equal(dtype_bytes(DT_bf16), 2);
    assert_int_equal(dtype_kind_of(DT_bool), DK_BOOL);
    assert_int_equal(dtype_kind_of(DT_i8), DK_INT);
    assert_int_equal(dtype_kind_of(DT_f16), DK_FLOAT);
    assert_true(dtype_is_float(DT_bf16) && !dtype_is_float(DT_i32) && !dtype_is_float(DT_bool));
    assert_int_equal(dtype_kind_of(DT_COUNT), DK_NONE);
}

static f64 through(dtype type, f64 x)
{
    u64 room = 0;
    tensor t = {.type = type, .data = &room};
    tensor_set_f64(&t, 0, x);
    return tensor_get_f64(&t, 0);
}

static i64 through_i64(dtype type, i64 x)
{
    u64 room = 0;
    tensor t = {.type = type, .data = &room};
    tensor_set_i64(&t, 0, x);
    return tensor_get_i64(&t, 0);
}

static void test_floats(void **state)
{
    (void)state;
    assert_true(through(DT_f64, 0.1) == 0.1);
    assert_true(through(DT_f32, 0.1) == 0x1.99999ap-4);
    assert_true(through(DT_f16, 0.1) == 0.0999755859375);
    assert_true(through(DT_bf16, 0.1) == 0.10009765625);
    assert_true(through(DT_f16, 65519.99) == 65504);
    assert_true(isinf(through(DT_f16, 65520)));
    assert_true(through(DT_f16, 0x1p-24) == 0x1p-24);
    assert_true(through(DT_f16, 0x1p-25) == 0); /* a tie, to even */
    assert_true(through(DT_f16, 0x1.8p-24) == 0x1p-23);
    assert_true(signbit(through(DT_f16, -0.0)));
    assert_true(isnan(through(DT_bf16, (f64)NAN)) && isnan(through(DT_f16, (f64)NAN)));
    /* Once from f64: by way of f32 this would be a tie and go down to 1. */
    assert_true(through(DT_f16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
    assert_true(through(DT_bf16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
}

static void test_integers(void **state)
{
    (void)state;
    assert_int_equal(through_i64(DT_i64, INT64_MIN), INT64_MIN);
    assert_int_equal(through_i64(DT_i64, (1LL << 53) + 1), (1LL << 53) + 1);
    assert_int_equal(through_i64(DT_i32, INT32_MIN), INT32_MIN);
    assert_int_equal(through_i64(DT_i8, -128), -128);
    assert_int_equal(through_i64(DT_bool, 7), 1);
    assert_true(through(DT_i32, -3.9) == -3);
    u8 loose = 2; /* a bool from elsewhere */
    assert_int_equal(tensor_get_i64(&(tensor){.type = DT_bool, .data = &loose}, 0), 1);
}

static void test_counts(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    const i64 plain[] = {2, 3, 4}, empty[] = {INT64_MAX, INT64_MAX, 0}, huge[] = {1LL << 62, 2};
    const i64 wide[] = {1LL << 61}, negative[] = {-1};
    assert_int_equal(tensor_count(ctx, 3, plain), 24);
    assert_int_equal(tensor_count(ctx, 0, NULL), 1);
    assert_int_equal(tensor_count(ctx, 3, empty), 0);
    assert_int_equal(tensor_bytes(ctx, &(tensor){.type = DT_f32, .rank = 3, .shape = plain}), 96);
    trap t;
    TRY (ctx, t)
        tensor_count(ctx, 2, huge);
    assert_int_equal(t.status, EQF_E_LIMIT);
    TRY (ctx, t)
        tensor_count(ctx, 1, negative);
    assert_int_equal(t.status, EQF_E_LIMIT);
    TRY (ctx, t)
        tensor_bytes(ctx, &(tensor){.type = DT_f64, .rank = 1, .shape = wide});
    assert_int_equal(t.status, EQF_E_LIMIT);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
