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

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_sensitivity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
