/* What a result is measured by: its program's own sensitivity, where that is more than the type's tolerance. */
#include <math.h>

#include "ir/check.h"
#include "driver/driver.h"

enum { N = 64 };

typedef struct job {
    f64 apart;   /* the operands differ by so much, relatively */
    f64 error;   /* of the result, relatively */
    bool passed;
} job;

static void compare(fixture *f, const void *arg)
{
    job *j = (job *)(uintptr_t)arg;
    static const char text[] = "(program p (dims (N 64)) (input x f32 (N)) (input y f32 (N)) (output z (sub x y)))";
    ir_program *p = ir_read(f->a, "p", text, (i64)strlen(text));
    static const i64 shape[] = {N};
    f32 x[N], y[N], z[N];
    for (i64 i = 0; i < N; i++) {
        x[i] = 1 + (f32)i / N;
        y[i] = (f32)((f64)x[i] * (1 - j->apart));
        z[i] = (f32)(((f64)x[i] - (f64)y[i]) * (1 + j->error));
    }
    tensor inputs[] = {{"x", DT_f32, 1, shape, x}, {"y", DT_f32, 1, shape, y}};
    tensor got = {"z", DT_f32, 1, shape, z};
    reference r = reference_make(f->a, p, inputs, NULL, NULL);
    f64 tolerance;
    comparison c = reference_compare(&r, 0, &got, &tolerance);
    j->passed = c.passed;
}

static bool passes(fixture *f, f64 apart, f64 error)
{
    job j = {apart, error, false};
    assert_int_equal(attempt(f, compare, &j), EQF_OK);
    return j.passed;
}

static void test_sensitivity(void **state)
{
    fixture *f = *state;
    /* operands far apart: nothing explains more than the type's tolerance */
    assert_true(passes(f, 0.5, 5e-6));
    assert_false(passes(f, 0.5, 2e-5));
    /* they differ in their last ten digits: results do after a rounding of an operand */
    assert_true(passes(f, 0x1p-13, 2e-4));
    assert_false(passes(f, 0x1p-13, 2e-2));
    assert_false(passes(f, 0x1p-13, (f64)NAN));
}

/* What is left of equal numbers less their mean is zero, and in f32 what the order of the sum makes it. */
typedef struct remains {
    const char *text;
    f32 equal; /* what all of x are */
    i64 at_once; /* sums that run side by side */
    f64 further; /* added to the result, in parts of x */
    f64 got;     /* the largest of the result */
    bool passed;
} remains;

static void compare_remains(fixture *f, const void *arg)
{
    remains *j = (remains *)(uintptr_t)arg;
    ir_program *p = ir_read(f->a, "p", j->text, (i64)strlen(j->text));
    static const i64 shape[] = {N};
    f32 x[N], z[N], sums[N] = {0}, sum = 0;
    for (i64 i = 0; i < N; i++) {
        x[i] = j->equal;
        sums[i % j->at_once] += j->equal;
    }
    for (i64 i = 0; i < j->at_once; i++)
        sum += sums[i];
    for (i64 i = 0; i < N; i++) {
        z[i] = j->equal - sum / N + (f32)(j->further * (f64)j->equal);
        j->got = fmax(j->got, fabs((f64)z[i]));
    }
    tensor input = {"x", DT_f32, 1, shape, x}, got = {"z", DT_f32, 1, shape, z};
    reference r = reference_make(f->a, p, &input, NULL, NULL);
    f64 tolerance;
    comparison c = reference_compare(&r, 0, &got, &tolerance);
    assert_true(isfinite(c.rel_l2) && isfinite(tolerance)); /* both are written as JSON */
    j->passed = c.passed;
}

static void test_remains(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {
        "(program p (dims (N 64)) (input x f32 (N)) (let c (add (mul x 0.0) -1e9))"
        " (output z (sub c (mul (reduce + c :axis N) 0.015625))))",
        "(program p (dims (N 64)) (input x f32 (N)) (let c (add (mul x 0.0) -1e9))"
        " (output z (sub c (matmul c (add (mul x 0.0) 0.015625) :axis N))))",
    };
    bool differs = false;
    for (i64 k = 0; k < COUNT_OF(texts); k++)
        for (i64 at_once = 1; at_once <= 16; at_once *= 2) {
            remains j = {texts[k], -1e9F, at_once, 0, 0, false};
            assert_int_equal(attempt(f, compare_remains, &j), EQF_OK);
            assert_true(j.passed);
            differs |= j.got > 0;
            j.further = 1e-5;
            assert_int_equal(attempt(f, compare_remains, &j), EQF_OK);
            assert_false(j.passed);
        }
    assert_true(differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_sensitivity), TEST(test_remains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
