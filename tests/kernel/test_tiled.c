/* Kernels of tiled forms: the written derivations of tests/ir/tiled, one output at a time, with the
 * tiles that the lowering chooses and with random ones, agree with the reference interpreter. */
#include "ir/check.h"
#include "kernel/harness.h"

static const char *const files[] = {
    "rmsnorm-gemm", "swiglu", "layernorm-gemm", "attention", "attention-split", "lora",
    "mla",          "masks",  "row-softmax",    "moments",   "nested",
};

/* Forms that no kernel exists for: contributions stored side by side; parts of unequal size outside of
 * kernels of tiles. */
static const char *const without[] = {"Y.split-k", "O.split", "O.split-sum"};

static bool has_kernel(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(without); i++)
        if (strcmp(without[i], name) == 0)
            return false;
    return true;
}

typedef struct job {
    const ir_program *p; /* with one output */
    kn_options options;
    u64 seed;
    i64 kernels;
} job;

static void run_job(fixture *f, const void *arg)
{
    const job *j = arg;
    bench b = {.ctx = f->ctx, .a = f->a, .p = j->p};
    rng r = rng_new(j->seed);
    b.inputs = bench_inputs(f->a, j->p, &r);
    tensor want;
    ir_eval(j->p, b.inputs, f->a, &want, (ir_eval_options){0});
    kn_build(f->a, j->p, j->options, &b.plan, &b.kernels);
    assert_int_equal(bench_run(&b), 0);
    f64 e = bench_error(&b, 0, &want);
    if (!(e <= 1e-4)) {
        str s = str_new(f->a);
        for (i64 i = 0; i < b.kernels.n; i++)
            kn_print(&s, b.kernels.at[i]);
        fail_msg("%s: %s differs by %g, seed %llu\n%s", j->p->file,
                 intern_text(j->p->names, j->p->outputs.at[0].name), e,
                 (unsigned long long)j->seed, str_text(&s));
    }
}

static i64 *random_lanes(fixture *f, const ir_program *p, u64 seed)
{
    rng r = rng_new(seed);
    i64 *lanes = NEW_N(f->a, i64, p->atoms.n);
    for (u32 d = 1; d < (u32)p->atoms.n; d++) {
        i64 n = ir_extent(p, (ir_atom){d}), choices[] = {1, 1, 2, 3, n - 1, n};
        lanes[d] = MAX(choices[rng_below(&r, 6)], 1);
    }
    return lanes;
}

static void test_derivations(void **state)
{
    (void)state;
    i64 random_ones = 0;
    for (i64 i = 0; i < COUNT_OF(files); i++)
        for (u64 seed = 0; seed < 40; seed++) {
            void *inner = NULL;
            assert_int_equal(fixture_setup(&inner), 0);
            fixture *f = inner;
            i64 n;
            const char *path = arena_printf(f->a, "%s/ir/tiled/%s.eqf", EQF_TEST_DIR, files[i]);
            char *text = file_read(f->a, path, 1 << 20, &n);
            const ir_program *p = ir_read(f->a, files[i], text, n);
            for (i64 k = 0; k < p->outputs.n; k++) {
                ir_program one = *p;
                one.outputs.at = &p->outputs.at[k];
                one.outputs.n = 1;
                const char *name = intern_text(p->names, one.outputs.at[0].name);
                job j = {.p = &one, .seed = seed,
                         .options = {16 << (seed % 3), 1 + (i64)(seed % 4), seed % 2 != 0, NULL, false}};
                if (seed > 5)
                    j.options.lanes = random_lanes(f, p, seed);
                eqf_status status = attempt(f, run_job, &j);
                bool may_refuse = status == EQF_E_UNSUPPORTED && j.options.lanes;
                if (status != EQF_OK && !may_refuse && has_kernel(name))
                    fail_msg("%s: %s, seed %llu: %s: %s", files[i], name,
                             (unsigned long long)seed, last_diag(f).place, last_diag(f).message);
                random_ones += status == EQF_OK && j.options.lanes;
            }
            fixture_teardown(&inner);
        }
    assert_true(random_ones > 500);
}

static i64 loops_with_spans(const kn_body *of)
{
    i64 n = 0;
    for (i64 i = 0; i < of->n; i++)
        n += (of->at[i]->span_count > 0) + loops_with_spans(&of->at[i]->body);
    return n;
}

/* A loop with a visit list leaves tiles out, in its kernel too. */
static void test_visits(void **state)
{
    fixture *f = *state;
    const char *text = "(program visits (dims (M 4) (T 64))"
                       " (input x f32 (M T))"
                       " (let s (comp + (reduce + (where (view (le (iota T) (iota M)) :par {M T})"
                       " (view x :par {M T}) 0) :axis T)))"
                       " (output y (comb (get (loop s :par T :visit ((0 (+ 1 M)))) s) :par {M}) (M)))";
    const ir_program *p = ir_read(f->a, "visits", text, (i64)strlen(text));
    bench b = {.ctx = f->ctx, .a = f->a, .p = p};
    rng r = rng_new(1);
    b.inputs = bench_inputs(f->a, p, &r);
    i64 *lanes = NEW_N(f->a, i64, p->atoms.n);
    for (i64 d = 0; d < p->atoms.n; d++)
        lanes[d] = 4;
    kn_build(f->a, p, (kn_options){16, 1, false, lanes, false}, &b.plan, &b.kernels);
    i64 n = 0;
    for (i64 i = 0; i < b.kernels.n; i++)
        n += loops_with_spans(&b.kernels.at[i]->body);
    assert_int_equal(n, 1);
    tensor want;
    ir_eval(p, b.inputs, f->a, &want, (ir_eval_options){0});
    assert_int_equal(bench_run(&b), 0);
    assert_true(bench_error(&b, 0, &want) <= 1e-6);
}

/* What a loop leaves out is neither done nor read, and not said to be. */
static void test_work(void **state)
{
    fixture *f = *state;
    static const char form[] =
        "(program work (dims (M 4) (T 8192)) (input x f32 (M T))"
        " (let s (comp + (reduce + (where (le %d (view (iota T) :par T)) (view x :par {M T}) 0) :axis T)))"
        " (output y (comb (get (loop s :par T :visit ((%d 8192))) s) :par {M}) (M)))";
    i64 flops[2], bytes[2];
    for (int i = 0; i < 2; i++) {
        char text[500];
        snprintf(text, sizeof text, form, i ? 6144 : 0, i ? 6144 : 0);
        const ir_program *p = ir_read(f->a, "work", text, (i64)strlen(text));
        rt_plan plan = {0};
        kn_kernels kernels = {0};
        kn_build(f->a, p, (kn_options){32, 1, false, NULL, false}, &plan, &kernels);
        assert_int_equal(plan.launches.n, 1);
        flops[i] = plan.launches.at[0].flops;
        bytes[i] = plan.launches.at[0].bytes;
    }
    assert_true(bytes[0] >= 4 * 8192 * 4 && bytes[0] < 4 * 8192 * 4 + 256);
    assert_true(bytes[1] >= 4 * 2048 * 4 && bytes[1] < 4 * 2048 * 4 + 256);
    assert_true((f64)flops[0] > 3.9 * (f64)flops[1] && (f64)flops[0] < 4.1 * (f64)flops[1]);
}

/* Parts of unequal size, the last ones short or empty: whatever stands beside the data is not read into
 * a product, a sum or a maximum. */
static void test_uneven_parts(void **state)
{
    (void)state;
    static const char form[] =
        "(program uneven (dims (M 3) (N 4) (T %d) (U %d) (P %d) (I %d)) (split T (P I))"
        " (input x f32 (M T)) (input y f32 (U N))"
        " (let yt (slice y :axis U :start %d :to T :step %d))"
        " (let X (view (splitdim x :axis T :to (P I)) :par {M P I}))"
        " (let Y (view (splitdim yt :axis T :to (P I)) :par {P I N}))"
        " (let k (view (splitdim (iota T) :axis T :to (P I)) :par {P I}))"
        " (let s (comp + (tile-matmul (where (lt k 4) X (square X)) Y :axis I)))"
        " (let m (comp max (reduce max (sub X 9) :axis I)))"
        " (let R (loop s m :par I))"
        " (let S (comb (get R s) :par {M P N})) (let B (comb (get R m) :par {M P}))"
        " (output z (mul (reduce + S :axis P) (reduce max B :axis P)) (M N)))";
    i64 tiled = 0;
    for (int T = 4; T < 40; T += 3)
        for (int parts = 2; parts < 6; parts++)
            for (u64 seed = 0; seed < 3; seed++) {
                int I = (T + parts - 1) / parts, start = seed ? T - 1 : 2, step = seed ? -1 : 1;
                if (I < 2)
                    continue;
                void *inner = NULL;
                assert_int_equal(fixture_setup(&inner), 0);
                fixture *f = inner;
                char text[1000];
                snprintf(text, sizeof text, form, T, T + 2, parts, I, start, step);
                const ir_program *p = ir_read(f->a, "uneven", text, (i64)strlen(text));
                i64 *lanes = NEW_N(f->a, i64, p->atoms.n);
                lanes[6] = seed == 2 ? 2 : I; /* of I, the last dim */
                for (i64 d = 1; d < p->atoms.n; d++)
                    if (strcmp(ir_atom_name(p, (ir_atom){(u32)d}), "P") == 0)
                        lanes[d] = 1;
                job j = {.p = p, .seed = seed, .options = {16, 2, false, seed ? lanes : NULL, false}};
                eqf_status status = attempt(f, run_job, &j);
                if (status != EQF_OK && !(status == EQF_E_UNSUPPORTED && seed == 2 && I % 2 != 0))
                    fail_msg("%d in %d parts, seed %llu: %s", T, parts, (unsigned long long)seed,
                             last_diag(f).message);
                tiled += status == EQF_OK;
                fixture_teardown(&inner);
            }
    assert_true(tiled > 100);
}

static i64 products_in(const kn_body *of)
{
    i64 n = 0;
    for (i64 i = 0; i < of->n; i++)
        n += (of->at[i]->op == KN_dot) + products_in(&of->at[i]->body);
    return n;
}

/* Few queries of one head: all columns of what they are summed to are one tile, so that scores are made once. */
static void test_few_rows(void **state)
{
    fixture *f = *state;
    static const char form[] =
        "(program row (dims (H 2) %s (D 64) (T 256) (E %d))"
        " (input q f32 (H%s D)) (input k f32 (H T D)) (input v f32 (H T E))"
        " (let s (reduce + (tile-matmul (view q :par {H%s D}) (view k :par {H T D}) :axis D) :par D))"
        " (let m (comp max (reduce max s :axis T))) (let now (run m :par T)) (let p (exp (sub s now)))"
        " (let c0 (formal 0 f32 {H%s})) (let c1 (formal 0 f32 {H%s E}))"
        " (let x (formal 1 f32 {H%s})) (let z (formal 2 f32 {H%s}))"
        " (let ratio (where (finite x) (exp (sub x z)) (const f32 0)))"
        " (let l (comp + (reduce + p :axis T) (lambda (c0 x z) (mul c0 ratio)) m))"
        " (let a (comp + (tile-matmul p (view v :par {H T E}) :axis T) (lambda (c1 x z) (mul c1 ratio)) m))"
        " (let R (loop m l a :par T))"
        " (output o (comb (div (get R a) (get R l)) :par {H%s E}) (H%s E)))";
    for (int i = 0; i < 10; i++) {
        int E = 64 << i % 5, G = i < 5 ? 1 : i < 9 ? 4 : 3;
        const char *g = G > 1 ? " G" : "", *dim = G > 1 ? arena_printf(f->a, "(G %d)", G) : "";
        char text[1500];
        snprintf(text, sizeof text, form, dim, E, g, g, g, g, g, g, g, g);
        const ir_program *p = ir_read(f->a, "row", text, (i64)strlen(text));
        bench b = {.ctx = f->ctx, .a = f->a, .p = p};
        rng r = rng_new(1);
        b.inputs = bench_inputs(f->a, p, &r);
        kn_build(f->a, p, (kn_options){64, 2, false, NULL, false}, &b.plan, &b.kernels);
        i64 products = 0;
        for (i64 k = 0; k < b.kernels.n; k++)
            products += products_in(&b.kernels.at[k]->body);
        if (products != 2)
            fail_msg("%d queries, %d columns: %lld products", G, E, (long long)products);
        tensor want;
        ir_eval(p, b.inputs, f->a, &want, (ir_eval_options){0});
        assert_int_equal(bench_run(&b), 0);
        assert_true(bench_error(&b, 0, &want) <= 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivations),
        cmocka_unit_test(test_uneven_parts),
        cmocka_unit_test_setup_teardown(test_few_rows, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_visits, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_work, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("kernel_tiled", tests, NULL, NULL);
}
