/* Long dims that few results are combined from are split, so that threads share them: the forms are
 * among the candidates, have the program's value as kernels of several parts, and are derived. */
#include "ir/check.h"
#define bench_run run_plan /* the driver has one of its own */
#include "kernel/harness.h"
#undef bench_run
#include "driver/driver.h"

/* One query over many keys; the same for as many rows as keep all threads busy. */
static const char FEW[] =
    "(program few (dims (D 64) (E 64) (T 8192)) (input Q f32 (D)) (input K f32 (T D)) (input V f32 (T E))\n"
    " (let S (matmul Q K :axis D))\n"
    " (let P (exp (sub S (reduce max S :axis T))))\n"
    " (output O (matmul (div P (reduce + P :axis T)) V :axis T)))";
static const char ODD[] =
    "(program odd (dims (D 64) (E 64) (T 8191)) (input Q f32 (D)) (input K f32 (T D)) (input V f32 (T E))\n"
    " (let S (where (lt (iota T) 8000) (matmul Q K :axis D) -inf))\n"
    " (let P (exp (sub S (reduce max S :axis T))))\n"
    " (output O (matmul (div P (reduce + P :axis T)) V :axis T)))";
static const char MANY[] =
    "(program many (dims (H 16) (D 64) (E 64) (T 2048)) (input Q f32 (H D)) (input K f32 (H T D))"
    " (input V f32 (H T E))\n"
    " (let S (matmul Q K :axis D))\n"
    " (let P (exp (sub S (reduce max S :axis T))))\n"
    " (output O (matmul (div P (reduce + P :axis T)) V :axis T)))";
static const char SHORT[] =
    "(program short (dims (T 100)) (input X f32 (T)) (output Y (reduce + (exp X) :axis T)))";
static const char SMALL[] =
    "(program small (dims (T 4096)) (input X f32 (T)) (output Y (reduce + (square X) :axis T)))";
static const char SUM[] =
    "(program sum (dims (T 1048576)) (input X f32 (T)) (output Y (reduce + (square X) :axis T)))";
static const char PRIME[] =
    "(program prime (dims (T 1000003)) (input X f32 (T)) (output Y (reduce + (exp X) :axis T)))";

typedef struct job {
    const char *text;
    i64 threads, split, shared; /* found: candidates that split a dim; that have work for all threads */
} job;

static void run_job(fixture *f, const void *arg)
{
    job *j = (job *)(uintptr_t)arg;
    ir_program *p = ir_read(f->a, "split", j->text, (i64)strlen(j->text));
    driver_space space = {.rules = rl_ruleset_shipped(f->a), .fp = RL_REASSOCIATED};
    search_times times = {0};
    rt_peaks peaks = {.gflops = 100, .gbps = 10};
    ex_report r = driver_candidates(f->a, p, space, j->threads, 60, 24, peaks, &times);
    assert_true(r.n > 0);
    rng random = rng_new(2);
    tensor *inputs = bench_inputs(f->a, p, &random), want;
    ir_eval(p, inputs, f->a, &want, (ir_eval_options){0});
    for (i64 i = 0; i < r.n; i++) {
        if (r.at[i].program->splits.n == 0 || j->split == 12)
            continue;
        bench b = {.ctx = f->ctx, .a = f->a, .inputs = inputs, .p = r.at[i].program};
        kn_build(f->a, b.p, (kn_options){32, j->threads, true, NULL, false}, &b.plan, &b.kernels);
        assert_int_equal(run_plan(&b), 0);
        f64 e = bench_error(&b, 0, &want);
        if (!(e <= 1e-4)) {
            str s = str_new(f->a);
            ir_print(&s, b.p);
            fail_msg("%lld threads, candidate %lld: differs by %g\n%s", (long long)j->threads,
                     (long long)i, e, str_text(&s));
        }
        i64 most = 0;
        for (i64 k = 0; k < b.plan.launches.n; k++)
            most = MAX(most, b.plan.launches.at[k].parts);
        j->shared += most >= j->threads;
        const char *why_not = NULL;
        j->split++;
        if (!driver_derive(f->a, p, b.p, space, 60, &why_not))
            fail_msg("not derived: %s", why_not ? why_not : "");
    }
}

static i64 splits_in(fixture *f, const char *text, i64 threads)
{
    job j = {text, threads, 0, 0};
    run_fine(f, run_job, &j);
    assert_true(j.split == 0 || j.shared > 0);
    return j.split;
}

static void test_splits(void **state)
{
    fixture *f = *state;
    assert_true(splits_in(f, FEW, 2) > 0);
    assert_true(splits_in(f, FEW, 3) > 0); /* in 4 parts: 3 do not divide it */
    assert_int_equal(splits_in(f, FEW, 1), 0);
    assert_int_equal(splits_in(f, MANY, 2), 0);
    assert_true(splits_in(f, SUM, 2) > 0);
    assert_int_equal(splits_in(f, SHORT, 2), 0);
    assert_int_equal(splits_in(f, SMALL, 2), 0); /* threads are not worth their start */
    /* the last part is shorter than the others */
    assert_true(splits_in(f, PRIME, 2) > 0);
    assert_true(splits_in(f, ODD, 2) > 0);
    assert_true(splits_in(f, ODD, 3) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_splits)};
    return cmocka_run_group_tests_name("driver_split", tests, NULL, NULL);
}
