/* The machine: features, memory, seeded values, the yardstick. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/runtime.h"

static void test_features(void **state)
{
    (void)state;
    const char *names[128];
    assert_true(rt_feature_count() <= COUNT_OF(names));
    i64 n = rt_features(names);
    for (i64 i = 0; i < n; i++)
        assert_true(rt_has_feature(names[i]));
    assert_false(rt_has_feature("no-such-feature"));
    assert_null(rt_feature_of_macro("__STDC__"));
#if defined(__x86_64__)
    /* The compiler's own view of this CPU. */
    __builtin_cpu_init();
    assert_int_equal(rt_has_feature("avx2"), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(rt_has_feature("avx512f"), __builtin_cpu_supports("avx512f") != 0);
    assert_int_equal(rt_has_feature("fma"), __builtin_cpu_supports("fma") != 0);
    assert_int_equal(rt_has_feature("sse4_2"), __builtin_cpu_supports("sse4.2") != 0);
    assert_int_equal(rt_has_feature("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
    assert_string_equal(rt_feature_of_macro("__AVX2__"), "avx2");
#endif
    assert_true(rt_processors() >= 1);
}

static void test_memory(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        static const i64 sizes[] = {0, 1, 4096, 1 << 20, (2 << 20) + 1, 5 << 20};
        for (i64 i = 0; i < COUNT_OF(sizes); i++) {
            u8 *p = rt_big_alloc(a, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % (sizes[i] < 2 << 20 ? 256 : 2 << 20), 0);
            for (i64 k = 0; k < sizes[i]; k += 511)
                assert_int_equal(p[k], 0);
            if (sizes[i] > 0)
                p[sizes[i] - 1] = 1;
        }
    }
    assert_int_equal(t.status, EQF_OK);
    TRY (ctx, t) {
        rt_big_alloc(a, INT64_MAX - 5);
    }
    assert_int_equal(t.status, EQF_E_NO_MEMORY);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void test_seeded(void **state)
{
    (void)state;
    enum { N = 20000 };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    static const i64 shape[] = {N};
    static f32 x[N], y[N];
    static i64 k[N];
    static u8 b[N];
    tensor tx = {"x", DT_f32, 1, shape, x}, ty = {"x", DT_f32, 1, shape, y};
    tensor tk = {"k", DT_i64, 1, shape, k}, tb = {"b", DT_bool, 1, shape, b};
    rt_seeded(ctx, &tx, 3, (rt_range){.high = 7}, NULL);
    rt_seeded(ctx, &ty, 3, (rt_range){.high = 7}, NULL);
    assert_memory_equal(x, y, sizeof x);
    pool *threads = pool_new(ctx, 3);
    memset(y, 0, sizeof y);
    rt_seeded(ctx, &ty, 3, (rt_range){.high = 7}, threads);
    assert_memory_equal(x, y, sizeof x);
    pool_free(threads);
    ty.name = "y";
    rt_seeded(ctx, &ty, 3, (rt_range){.high = 7}, NULL);
    assert_memory_not_equal(x, y, sizeof x);
    /* Moments of the normal distribution; neighbours know nothing of one another, nor do the halves
     * of the draw that elements i and i + 64 share. */
    f64 sum = 0, squares = 0, fourths = 0, positive = 0, next = 0, pair = 0, pair_squares = 0;
    for (int i = 0; i < N; i++) {
        f64 z = (f64)x[i], other = (f64)x[(i + 64) % N];
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
        fourths += z * z * z * z;
        positive += z > 0;
        next += z * (f64)x[(i + 1) % N];
        pair += z * other;
        pair_squares += z * z * other * other;
    }
    assert_true(fabs(sum / N) < 0.05);
    assert_true(fabs(squares / N - 1) < 0.05);
    assert_true(fabs(fourths / N - 3) < 0.3);
    assert_true(fabs(positive / N - 0.5) < 0.02);
    assert_true(fabs(next / N) < 0.05);
    assert_true(fabs(pair / N) < 0.05);
    assert_true(fabs(pair_squares / N - 1) < 0.1);
    rt_seeded(ctx, &tx, 3, (rt_range){.is_bounded = true, .from = -0.25, .to = 4}, NULL);
    f64 least = (f64)INFINITY, most = -(f64)INFINITY;
    for (int i = 0; i < N; i++) {
        least = fmin(least, (f64)x[i]);
        most = fmax(most, (f64)x[i]);
    }
    assert_true(least >= -0.25 && least < -0.2 && most <= 4 && most > 3.9);
    rt_seeded(ctx, &tk, 3, (rt_range){.low = -2, .high = 3}, NULL);
    bool seen[6] = {false};
    for (int i = 0; i < N; i++) {
        assert_in_range(k[i] + 2, 0, 5);
        seen[k[i] + 2] = true;
    }
    for (int i = 0; i < 6; i++)
        assert_true(seen[i]);
    rt_seeded(ctx, &tk, 3, (rt_range){.low = INT64_MIN, .high = INT64_MAX}, NULL);
    i64 negative = 0;
    for (int i = 0; i < N; i++)
        negative += k[i] < 0;
    assert_in_range(negative, N / 3, 2 * N / 3);
    rt_seeded(ctx, &tb, 3, (rt_range){.high = 7}, NULL);
    i64 ones = 0;
    for (int i = 0; i < N; i++) {
        assert_in_range(b[i], 0, 1);
        ones += b[i];
    }
    assert_in_range(ones, N / 3, 2 * N / 3);
    eqf_ctx_free(ctx);
}

static void test_yardstick(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    rt_peaks one = rt_yardstick(ctx, NULL, 0.05, 1 << 20);
    /* Any machine that builds this; and nothing that physics forbids: a loop that the compiler
     * removed would show as more. */
    assert_true(one.gflops > 0.05 && one.gflops < 2000);
    assert_true(one.gbps > 0.05 && one.gbps < 5000);
    pool *p = pool_new(ctx, 2);
    rt_peaks two = rt_yardstick(ctx, p, 0.05, 1 << 20);
    assert_true(two.gflops > 0.05 && two.gflops < 4000);
    pool_free(p);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_seeded),
        cmocka_unit_test(test_yardstick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
