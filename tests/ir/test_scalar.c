/* The scalar helpers of ops.def: rounding against the conversions of base, wrapping arithmetic
 * against 128-bit integers, divisions at the edges. */
#include "ir/check.h"
#include "ir/scalar.h"

static bool same_bits(f64 a, f64 b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Every half, the ties between neighbours, and the f64 just beside the ties. */
static void check_rounding(dtype t, u16 (*narrow)(f64), f32 (*widen)(u16))
{
    for (u32 h = 0; h < 0x10000; h++) {
        f64 x = (f64)widen((u16)h);
        if (!same_bits(eqf_round_float(t, x), x))
            fail_msg("%a is not kept in %s", x, dtype_name(t));
        f64 next = (f64)widen((u16)(h + 1)), tie = (x + next) / 2;
        f64 near[] = {tie, nextafter(tie, 0), nextafter(tie, 2 * tie), x * 1.0001};
        for (i64 i = 0; i < COUNT_OF(near); i++)
            if (!same_bits(eqf_round_float(t, near[i]), (f64)widen(narrow(near[i]))))
                fail_msg("%a becomes %a in %s", near[i], eqf_round_float(t, near[i]),
                         dtype_name(t));
    }
    static const f64 extremes[] = {65519.999, 65520,   3.39e38,  3.3962e38, 1e300,
                                   5e-324,    0x1p-25, 0x1p-134, 1e-41,     (f64)INFINITY};
    for (i64 i = 0; i < COUNT_OF(extremes); i++)
        assert_true(same_bits(eqf_round_float(t, extremes[i]), (f64)widen(narrow(extremes[i]))));
}

static void test_rounding(void **state)
{
    (void)state;
    check_rounding(DT_f16, f16_of_f64, f32_of_f16);
    check_rounding(DT_bf16, bf16_of_f64, f32_of_bf16);
    assert_true(eqf_round_float(DT_f32, 0.1) == 0x1.99999ap-4);
    assert_true(eqf_round_float(DT_f64, 0.1) == 0.1);
}

static i64 wrapped(__int128 x)
{
    return (i64)(u64)(unsigned __int128)x;
}

static void test_wrapping(void **state)
{
    (void)state;
    static const i64 edges[] = {0,        1, -1, 2, -2, 63, INT64_MAX, INT64_MIN, INT64_MIN + 1,
                                1LL << 32};
    rng r = rng_new(1);
    for (int k = 0; k < 2000; k++) {
        i64 a = k < 100 ? edges[k / 10] : (i64)rng_u64(&r) >> rng_below(&r, 64);
        i64 b = k < 100 ? edges[k % 10] : (i64)rng_u64(&r) >> rng_below(&r, 64);
        __int128 x = a, y = b;
        assert_true(eqf_wrap_add(a, b) == wrapped(x + y));
        assert_true(eqf_wrap_sub(a, b) == wrapped(x - y));
        assert_true(eqf_wrap_mul(a, b) == wrapped(x * y));
        assert_true(eqf_iabs(a) == wrapped(x < 0 ? -x : x));
        if (b == 0)
            continue;
        __int128 q = x / y, m = x % y;
        assert_true(eqf_itruncdiv(a, b) == wrapped(q));
        assert_true(eqf_ifmod(a, b) == wrapped(m));
        bool down = m != 0 && (m < 0) != (y < 0);
        assert_true(eqf_ifloordiv(a, b) == wrapped(q - down));
        assert_true(eqf_imod(a, b) == wrapped(down ? m + y : m));
    }
}

static void test_powers(void **state)
{
    (void)state;
    for (i64 a = -5; a <= 5; a++) {
        i64 product = 1;
        for (i64 b = 0; b < 40; b++) {
            assert_true(eqf_ipow(a, b) == product);
            product = eqf_wrap_mul(product, a);
        }
    }
    assert_true(eqf_ipow(1, -3) == 1 && eqf_ipow(-1, -3) == -1 && eqf_ipow(-1, -2) == 1);
    assert_true(eqf_ipow(2, -1) == 0 && eqf_ipow(0, -1) == 0);
    assert_true(eqf_ipow(-1, INT64_MIN) == 1 && eqf_ipow(3, INT64_MAX) != 0);
}

static void test_floats(void **state)
{
    (void)state;
    assert_true(eqf_sigmoid(-800) == 0 && eqf_sigmoid(800) == 1);
    assert_true(eqf_sigmoid(-700) > 0); /* the tail is there */
    assert_true(isnan(eqf_max((f64)NAN, 1)) && isnan(eqf_max(1, (f64)NAN)));
    assert_true(isnan(eqf_min((f64)NAN, 1)) && isnan(eqf_min(1, (f64)NAN)));
    assert_true(eqf_int_of_f64(DT_i32, -2147483648.9) == INT32_MIN);
    assert_true(eqf_int_of_f64(DT_i32, 2147483647.9) == INT32_MAX);
    assert_true(eqf_int_of_f64(DT_i64, -0x1p63) == INT64_MIN);
    assert_true(eqf_int_of_f64(DT_i64, 0x1.fffffffffffffp62) == 0x7ffffffffffffc00);
}

/* The rows of the tables are found by name and have what their users need. */
static void test_tables(void **state)
{
    (void)state;
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++) {
        const ir_op_row *row = ir_row(op);
        assert_int_equal(ir_op_find(row->name), op);
        assert_true(row->doc[0] != 0);
        if (row->class_ == IR_EWISE)
            assert_true(row->on_float || row->on_int);
        assert_int_equal(row->on_float, strcmp(row->f64_text, "NONE") != 0);
        assert_true(!(row->flags & IR_COMM) || row->arity == 2);
    }
    assert_int_equal(ir_op_find("none"), IR_NO_OP);
    for (ir_reducer r = IR_NO_REDUCER + 1; r < IR_REDUCER_COUNT; r++)
        assert_int_equal(ir_reducer_find(ir_reducer_text(r)), r);
    assert_int_equal(ir_reducer_find("none"), IR_NO_REDUCER);
    assert_int_equal(ir_reducer_identity_i64(IR_MAX, DT_i8), INT8_MIN);
    assert_int_equal(ir_reducer_identity_i64(IR_MIN, DT_i32), INT32_MAX);
    assert_int_equal(ir_reducer_identity_i64(IR_MAX, DT_bool), 0);
    assert_true(ir_reducer_identity_f64(IR_MIN) == (f64)INFINITY);
}

typedef struct count_case {
    const char *text;
    i64 flops, bytes;
} count_case;

static void check_count(fixture *f, const void *arg)
{
    const count_case *c = arg;
    ir_count count = ir_count_program(read_text(f, c->text));
    assert_int_equal(count.flops, c->flops);
    assert_int_equal(count.bytes, c->bytes);
}

static void test_counts(void **state)
{
    static const count_case cases[] = {
        {"(program p (dims (M 4) (K 5) (N 6)) (input X f16 (M K)) (input W f32 (K N))\n"
         "  (input dead f32 (M)) (output Y (matmul (cast f32 X) W)))",
         20 + 2 * 120, 40 + 120 + 96},
        {"(program p (dims (M 4)) (input X f32 (M 1)) (let s (reduce + X :axis M))\n"
         "  (output Y (exp s)) (output Z s) (output E - i64 (0 M)))",
         4 + 1, 16 + 4 + 4},
        {"(program p (dims (M 4) (K 2)) (input X f32 (M)) (input I i64 (K))\n"
         "  (output Y (scatter X I 1 :axis M :reducer +)) (output Z (gather X I :axis M)))",
         2, 16 + 16 + 16 + 8},
        {"(program p (dims (A 4000000000) (B 4000000000)) (input X f32 (A)) (input Y f32 (B))\n"
         "  (output Z (add X Y)))",
         INT64_MAX, INT64_MAX},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        run_fine(*state, check_count, &cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_rounding), TEST(test_wrapping), TEST(test_powers),
                                       TEST(test_floats),   TEST(test_tables),   TEST(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
