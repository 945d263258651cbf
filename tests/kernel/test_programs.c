/* Random programs and chosen shapes: the kernels' interpreter agrees with the reference interpreter,
 * kernels survive print and read, plans are well-formed. */
#include "ir/check.h"
#include "ir/generate.h"
#include "kernel/harness.h"
#include "rules/constants.h"

/* A program may compute in a narrower type than its output has, so one bound for all but halves. */
static f64 tolerance(dtype t)
{
    return t == DT_f16 || t == DT_bf16 ? 3e-2 : 1e-4;
}

static void check_plan(const bench *b)
{
    const rt_plan *plan = &b->plan;
    i64 n = plan->buffers.n, total = plan->prepare.n + plan->launches.n;
    i64 *first = NEW_N(b->a, i64, n), *last = NEW_N(b->a, i64, n);
    for (i64 i = 0; i < total; i++) {
        const rt_launch *x = i < plan->prepare.n ? &plan->prepare.at[i]
                                                 : &plan->launches.at[i - plan->prepare.n];
        assert_true(x->parts >= 1);
        for (i64 j = 0; j < x->arg_count; j++) {
            const rt_buffer *o = &plan->buffers.at[x->args[j].buffer];
            assert_true(x->args[j].offset >= 0 && x->args[j].offset < o->bytes);
            assert_int_equal(x->args[j].offset % 64, 0);
            if (first[x->args[j].buffer] == 0)
                first[x->args[j].buffer] = i + 1;
            last[x->args[j].buffer] = i + 1;
            if (i >= plan->prepare.n)
                assert_true(o->role != RT_SOURCE);
        }
    }
    for (i64 i = 0; i < n; i++) {
        const rt_buffer *x = &plan->buffers.at[i];
        assert_int_equal(x->offset % 64, 0);
        assert_int_equal(x->bytes, x->count * dtype_bytes(x->type));
        for (i64 k = 0; k < i; k++) {
            const rt_buffer *y = &plan->buffers.at[k];
            bool weights = (x->role == RT_WEIGHT || x->role == RT_STATE) &&
                           (y->role == RT_WEIGHT || y->role == RT_STATE);
            bool scratch = x->role == RT_SCRATCH && y->role == RT_SCRATCH && first[i] && first[k] &&
                           first[i] <= last[k] && first[k] <= last[i];
            if (weights || scratch)
                assert_true(x->offset + x->bytes <= y->offset ||
                            y->offset + y->bytes <= x->offset);
        }
        if (x->role == RT_SCRATCH && first[i])
            assert_true(x->offset + x->bytes <= plan->arena_bytes);
    }
}

static void check_kernels(fixture *f, const bench *b)
{
    for (i64 i = 0; i < b->kernels.n; i++) {
        str s = str_new(f->a), t = str_new(f->a);
        kn_print(&s, b->kernels.at[i]);
        kn_kernel *again = kn_read(f->a, "kernel", s.at, s.n);
        kn_print(&t, again);
        assert_string_equal(s.at, t.at);
        kn_verify(f->ctx, again);
        for (i64 j = 0; j < i; j++)
            assert_string_not_equal(b->kernels.at[i]->name, b->kernels.at[j]->name);
    }
}

typedef struct job {
    const ir_program *p;
    kn_options options;
    u64 seed;
} job;

static void run_job(fixture *f, const void *arg)
{
    const job *j = arg;
    bench b = {.ctx = f->ctx, .a = f->a, .p = j->p};
    rng r = rng_new(j->seed);
    b.inputs = bench_inputs(f->a, j->p, &r);
    tensor *want = NEW_N(f->a, tensor, j->p->outputs.n);
    ir_eval(j->p, b.inputs, f->a, want, (ir_eval_options){.round = true});
    kn_build(f->a, j->p, j->options, &b.plan, &b.kernels);
    check_plan(&b);
    check_kernels(f, &b);
    assert_int_equal(bench_run(&b), 0);
    for (i64 i = 0; i < j->p->outputs.n; i++) {
        f64 e = bench_error(&b, i, &want[i]);
        if (!(e <= tolerance(j->p->outputs.at[i].dtype)))
            fail_msg("seed %llu: output %lld differs by %g", (unsigned long long)j->seed,
                     (long long)i, e);
    }
}

static void must_run(fixture *f, const job *j)
{
    if (attempt(f, run_job, j) != EQF_OK)
        fail_msg("seed %llu: %s", (unsigned long long)j->seed, last_diag(f).message);
}

static void test_random(void **state)
{
    (void)state;
    for (u64 seed = 0; seed < 600; seed++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        fixture *f = inner;
        job j = {.p = gen_program(f->a, seed, 8 + (i64)(seed % 9), false), .seed = seed,
                 .options = {16 << (seed % 3), 1 + (i64)(seed % 4), (seed / 3) % 2 != 0, NULL, seed % 2 != 0}};
        must_run(f, &j);
        fixture_teardown(&inner);
    }
}

static ir_program *read_program(fixture *f, const char *text)
{
    return ir_read(f->a, "test", text, (i64)strlen(text));
}

/* Shapes that random programs do not reach: blocks of K and rows, panels cut short, long and split
 * reductions, square tiles, rank 8, every extent from 2 to 7. */
static void test_shapes(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {
        "(program p (dims (B 6) (M 40) (N 70) (K 100)) (input X f32 (B M K)) (input W f32 (B N K))\n"
        " (output Y (matmul X W :axis {K}) (B M N)))",
        "(program p (dims (M 391) (N 192) (K 530)) (input X f32 (M K)) (parameter W f32 (N K))\n"
        " (output Y (matmul X W :axis {K}) (M N)))",
        "(program p (dims (M 13) (N 70) (K 600)) (input X f32 (M K)) (parameter W f32 (N K))\n"
        " (output Y (matmul X W :axis {K}) (M N)) (output Z (matmul X W :axis {K}) (N M)))",
        "(program p (dims (M 397) (N 33) (K 20)) (input X f32 (M K)) (parameter W f32 (K N))\n"
        " (output Y (matmul X W :axis {K}) (M N)))",
        "(program p (dims (M 91) (N 150) (K 201)) (input X f32 (M K)) (input W f32 (K N))\n"
        " (input V bf16 (K N)) (input U bf16 (M K)) (output Y (matmul X W :axis {K}) (M N))\n"
        " (output Z (matmul U V :axis {K}) (M N)) (output T X (K M)))",
        "(program p (dims (M 70) (N 300) (K 70)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
        " (output Y (matmul X W :axis {K}) (M N)))",
        "(program p (dims (M 5) (N 40) (K 70)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
        " (output Y (matmul X W :axis {K}) (M N)))",
        "(program p (dims (M 45) (N 96) (K 64)) (input X bf16 (K M)) (parameter W bf16 (K N)) (input V bf16 (N K))\n"
        " (output Y (matmul X W :axis {K}) (N M)) (output Z (matmul X V :axis {K}) (M N)))",
        "(program p (dims (M 50) (N 70) (K 800)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
        " (output Y (matmul X W :axis {K}) (M N)))",
        "(program p (dims (B 3) (H 2) (S 40) (T 50) (D 64)) (input Q bf16 (B S H D)) (input K bf16 (B T H D))\n"
        " (output Y (matmul Q K :axis {D}) (B H S T)))",
        "(program p (dims (N 1100) (K 77)) (input X f16 (K)) (input W f16 (K N))\n"
        " (output Y (matmul X W :axis {K}) (N)))",
        "(program p (dims (B 3) (H 2) (S 9) (T 11) (D 8)) (input Q f64 (B S H D))\n"
        " (input K f64 (B T H D)) (input V f64 (B T H D))\n"
        " (output Y (matmul (matmul Q K :axis {D}) V :axis {T}) (B S H D)))",
        "(program p (dims (M 5) (N 4) (A 3) (B 7)) (input X f32 (A M B)) (parameter W f32 (B N A))\n"
        " (output Y (matmul X W :axis {A B}) (M N)))",
        "(program p (dims (N 300000)) (input X f32 (N)) (output S (reduce + X :axis {N}) ())\n"
        " (output T (reduce max X :axis {N}) ()))",
        "(program p (dims (A 600) (B 270)) (input X f16 (A B)) (output S (reduce + X :axis {A}) (B))\n"
        " (output T (reduce + X :axis {B}) (A)) (output U (neg X) (B A)))",
        "(program p (dims (A 2) (B 3) (C 4) (D 5) (E 2) (F 3) (G 2) (H 7)) (input X f32 (A B C D E F G H))\n"
        " (output Y (add X (reduce + X :axis {B E H})) (H A G B F C E D)))",
        "(program p (dims (A 1500) (R 20)) (input X f32 (R A)) (output Y (argsort X :axis A :to A :ints (1))\n"
        " (A R)) (output Z (scan X :axis A :reducer +) (R A)))",
    };
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        for (i64 o = 0; o < 6; o++) {
            job j = {.p = read_program(f, texts[i]), .seed = (u64)(100 * i + o),
                     .options = {16 << (o % 3), 1 + o % 3, o >= 3, NULL, o % 2 != 0}};
            must_run(f, &j);
        }
}

/* Indices read from data that are out of range, and integer division by zero, end the kernel with
 * the number of the part; nothing is read or written there. */
static void test_bad_index(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {
        "(program p (dims (A 4) (B 3)) (input X f32 (A)) (input I i64 (B))\n"
        " (output Y (gather X (add I 100) :axis A) (B)))",
        "(program p (dims (A 4) (B 3)) (input X f32 (A)) (input I i64 (B)) (input V f32 (B))\n"
        " (output Y (scatter X (sub I 100) V :axis (A)) (A)))",
        "(program p (dims (B 3)) (input I i64 (B)) (output Y (floordiv I (sub I I)) (B)))",
    };
    for (i64 i = 0; i < COUNT_OF(texts); i++) {
        bench b = {.ctx = f->ctx, .a = f->a, .p = read_program(f, texts[i])};
        rng r = rng_new(1);
        b.inputs = bench_inputs(f->a, b.p, &r);
        kn_build(f->a, b.p, (kn_options){32, 1, true, NULL, false}, &b.plan, &b.kernels);
        assert_int_equal(bench_run(&b), 1);
    }
}

/* With constant parameters, what depends on them alone is prepared; without, all of it runs. */
static void test_prepare(void **state)
{
    fixture *f = *state;
    ir_program *p = read_program(
        f, "(program p (dims (M 2) (N 16) (K 40)) (input X f32 (M K)) (parameter W f32 (N K))\n"
           " (parameter B f32 (N)) (output Y (add (matmul X (exp W) :axis {K}) (neg B)) (M N)))");
    rt_plan with = {0}, without = {0};
    kn_kernels kernels = {0};
    kn_build(f->a, p, (kn_options){32, 1, true, NULL, false}, &with, &kernels);
    kn_build(f->a, p, (kn_options){32, 1, false, NULL, false}, &without, &kernels);
    assert_int_equal(with.launches.n, 2);
    assert_true(with.prepare.n >= 2);
    assert_int_equal(with.parameters.n, 0);
    assert_int_equal(without.launches.n, 4);
    assert_int_equal(without.parameters.n, 2);
    for (i64 i = 0; i < without.prepare.n; i++)
        assert_string_equal(without.prepare.at[i].symbol, "");
}

/* Elements of what is folded; what is read as it is given does not count. */
static i64 folded_in(const rt_plan *plan)
{
    i64 sum = 0;
    for (i64 i = 0; i < plan->buffers.n; i++)
        if (plan->buffers.at[i].role == RT_WEIGHT && plan->buffers.at[i].port < 0)
            sum += plan->buffers.at[i].count;
    return sum;
}

/* As it was read, a program folds what its candidates fold; what others than pointwise operators use, too. */
static void test_constants(void **state)
{
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(constant_cases); i++) {
        job j = {.p = read_program(f, constant_cases[i].text), .seed = (u64)i, .options = {32, 2, true, NULL, false}};
        must_run(f, &j);
        rt_plan plan = {0};
        kn_kernels kernels = {0};
        kn_build(f->a, j.p, j.options, &plan, &kernels);
        if (!constant_cases[i].is_product && folded_in(&plan) != constant_cases[i].folded)
            fail_msg("%lld elements folded: %s", (long long)folded_in(&plan), constant_cases[i].text);
    }
    const ir_program *masked = read_program(
        f, "(program p (dims (H 4) (M 12) (T 10)) (input S f32 (H M T)) (parameter b f32 (T))\n"
           " (output Y (add (mul b (cast f32 (iota M))) (where (le (iota T) (iota M)) S -inf)) (H M T)))");
    for (int constants = 0; constants < 2; constants++) { /* a mask is one whatever parameters are */
        rt_plan plan = {0};
        kn_kernels kernels = {0};
        kn_build(f->a, masked, (kn_options){32, 1, constants, NULL, false}, &plan, &kernels);
        assert_int_equal(plan.launches.n, constants ? 2 : 3);
        assert_int_equal(folded_in(&plan), 0);
    }
    static const struct {
        const char *text;
        i64 folded;
    } others[] = {
        {"(let d (mul b (cast f32 (iota M)))) (output Y (mul S d) (H M T)) (output Z d (M T)))", 12 * 10},
        {"(let d (mul b (cast f32 (iota M)))) (output Y (reduce + (mul S d) :axis T) (H M))"
         "(output Z (mul x (reduce + d :axis M)) (T)))", 12 * 10 + 10},
        {"(let d (mul b (cast f32 (iota M)))) (output Y (mul S (mul d 2)) (H M T)))", 0},
        {"(let d (mul b (cast f32 (iota M)))) (output Y (mul S (mul d d)) (H M T)))", 12 * 10}, /* twice the work */
        /* more than a kernel takes: what is stored is made in a kernel of its own */
        {"(let d (add (mul b (cast f32 (iota M))) 1)) (let e (mul (mul d 2) (add d 3)))"
         "(let g (mul e (mul s (add e 7)))) (output Y (mul S g) (H M T)))", -1},
    };
    for (i64 i = 0; i < COUNT_OF(others); i++) {
        const char *text = arena_printf(f->a, "(program others (dims (H 4) (M 12) (T 10)) (input S f32 (H M T)) "
                                              "(input x f32 (T)) (parameter b f32 (T)) (parameter s f32 (H)) %s",
                                        others[i].text);
        job j = {.p = read_program(f, text), .seed = (u64)i, .options = {32, 2, true, NULL, false}};
        must_run(f, &j);
        rt_plan plan = {0};
        kn_kernels kernels = {0};
        kn_build(f->a, j.p, j.options, &plan, &kernels);
        if (others[i].folded >= 0 && folded_in(&plan) != others[i].folded)
            fail_msg("%lld elements folded: %s", (long long)folded_in(&plan), text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), TEST(test_shapes), TEST(test_bad_index), TEST(test_prepare),
        TEST(test_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
