/* The public API from a text program to results, seen as a C caller sees it: only include/ here. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "equiforge.h"

/* No time for candidates: most tests are about packages as such. */
static const eqf_optimize_options at_once = {.budget_s = 0.01};

static char folder[64], package[96], source[96];
static eqf_ctx *ctx;

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    strcpy(folder, "/tmp/eqf-api-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(package, sizeof package, "%s/pkg", folder);
    snprintf(source, sizeof source, "%s/program.eqf", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    eqf_ctx_free(ctx);
    return system(command);
}

static void put(const char *text)
{
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Fails with the first diagnostic. */
static void expect_ok(eqf_status s)
{
    if (s == EQF_OK)
        return;
    eqf_diag d = eqf_diag_get(ctx, 0);
    fail_msg("%s: %s: %s: %s", eqf_status_name(s), d.file, d.place, d.message);
}

typedef struct built {
    eqf_model *m;
    eqf_exec *e;
} built;

static built build_with(const char *text, const eqf_read_options *reading,
                        const eqf_optimize_options *options)
{
    put(text);
    eqf_program *p;
    expect_ok(eqf_program_read(ctx, source, reading, &p));
    expect_ok(eqf_optimize(p, options ? options : &at_once, package, NULL));
    eqf_program_free(p);
    built b;
    expect_ok(eqf_model_load(ctx, package, &b.m));
    expect_ok(eqf_exec_new(ctx, b.m, 2, &b.e));
    return b;
}

static built build(const char *text)
{
    return build_with(text, NULL, NULL);
}

static void done(built b)
{
    eqf_exec_free(b.e);
    eqf_model_free(b.m);
}

static void test_queries(void **state)
{
    (void)state;
    static const eqf_optimize_options as_inputs = {.parameters_are_inputs = true, .budget_s = 0.01};
    built b = build_with("(program q (dims (M 3) (K 4) (N 5))\n"
                         "  (input x f32 (M K)) (input k i64 ())\n"
                         "  (parameter w f32 (K N)) (buffer s f16 (M))\n"
                         "  (output y (matmul x w) (M N))\n"
                         "  (output s (add s s) (M) :writes s)\n"
                         "  (output z k ()))\n",
                         NULL, &as_inputs);
    assert_int_equal(eqf_model_input_count(b.m), 2);
    assert_int_equal(eqf_model_output_count(b.m), 3);
    assert_int_equal(eqf_model_parameter_count(b.m), 1);
    assert_int_equal(eqf_model_state_count(b.m), 1);
    eqf_tensor x = eqf_model_input(b.m, 0);
    assert_string_equal(x.name, "x");
    assert_int_equal(x.dtype, EQF_F32);
    assert_int_equal(x.rank, 2);
    assert_int_equal(x.shape[1], 4);
    assert_int_equal(x.bytes, 48);
    assert_int_equal(eqf_model_find_input(b.m, "k"), 1);
    assert_int_equal(eqf_model_find_input(b.m, "w"), -1);
    assert_int_equal(eqf_model_find_output(b.m, "z"), 2);
    assert_int_equal(eqf_model_find_parameter(b.m, "w"), 0);
    assert_int_equal(eqf_model_find_state(b.m, "s"), 0);
    assert_int_equal(eqf_model_state(b.m, 0).dtype, EQF_F16);
    assert_int_equal(strlen(eqf_model_source_hash(b.m)), 32);
    assert_true(eqf_model_kernel_count(b.m) >= 2);
    done(b);
}

static void test_values(void **state)
{
    (void)state;
    built b = build("(program v (dims (M 3) (K 4) (N 5))\n"
                    "  (input x f32 (M K)) (input w f32 (K N))\n"
                    "  (output y (add (matmul x w) (reduce max x :axis K)) (M N)))\n");
    float x[12], w[20], y[15];
    for (int i = 0; i < 12; i++)
        x[i] = (float)(i * 7 % 5) - 2;
    for (int i = 0; i < 20; i++)
        w[i] = (float)(i * 3 % 11) - 4;
    expect_ok(eqf_exec_run(b.e, (const void *[]){x, w}, (void *[]){y}));
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < 5; n++) {
            float sum = 0, most = x[m * 4];
            for (int k = 0; k < 4; k++) {
                sum += x[m * 4 + k] * w[k * 5 + n];
                most = x[m * 4 + k] > most ? x[m * 4 + k] : most;
            }
            assert_true(y[m * 5 + n] == sum + most);
        }
    done(b);
}

/* Outputs that compute nothing: an input, a parameter, a number, one value twice, a repeated one.
 */
static void test_copies(void **state)
{
    (void)state;
    for (int inputs = 0; inputs < 2; inputs++) {
        eqf_optimize_options options = {.parameters_are_inputs = inputs == 1, .budget_s = 0.01};
        built b = build_with("(program c (dims (M 3) (K 4))\n"
                             "  (input x f32 (M K)) (parameter w i32 (K)) (input n bool ())\n"
                             "  (output a x (M K)) (output b w (K)) (output c x (K M))\n"
                             "  (output d (const f64 2.5) ()) (output e w (M K))\n"
                             "  (output f n ()) (output g (const i8 3) (M)) (output h x (M K)))\n",
                             NULL, &options);
        float x[12], a[12], c[12], h[12];
        int32_t w[4], e[12];
        uint8_t n = 1, f = 9;
        int8_t g[3];
        double d = 0;
        for (int i = 0; i < 12; i++)
            x[i] = (float)i - 3.5f;
        void *outputs[] = {a, w, c, &d, e, &f, g, h};
        expect_ok(eqf_exec_run(b.e, (const void *[]){x, &n}, outputs));
        assert_memory_equal(a, x, sizeof x);
        assert_memory_equal(h, x, sizeof x);
        for (int m = 0; m < 3; m++)
            for (int k = 0; k < 4; k++) {
                assert_true(c[k * 3 + m] == x[m * 4 + k]);
                assert_int_equal(e[m * 4 + k], w[k]);
                assert_in_range(w[k], 0, 7);
            }
        assert_true(d == 2.5);
        assert_int_equal(f, 1);
        assert_true(g[0] == 3 && g[1] == 3 && g[2] == 3);
        /* Memory of their own: changing one leaves the other. */
        a[0] = 1e9f;
        assert_memory_equal(h, x, sizeof x);
        done(b);
    }
}

static void test_empty(void **state)
{
    (void)state;
    built b = build("(program e (dims (M 3))\n"
                    "  (input x f32 (M)) (input n f32 (0 M))\n"
                    "  (output a - f32 (0 M)) (output b (neg x) (M)) (output c - i64 (0)))\n");
    assert_int_equal(eqf_model_output(b.m, 0).bytes, 0);
    assert_int_equal(eqf_model_output(b.m, 0).shape[1], 3);
    float x[3] = {1, 2, 3}, y[3];
    expect_ok(eqf_exec_run(b.e, (const void *[]){x, NULL}, (void *[]){NULL, y, NULL}));
    assert_true(y[2] == -3);
    done(b);
    b = build("(program nothing (input n f32 (0)) (output a - f32 (0)))\n");
    expect_ok(eqf_exec_run(b.e, (const void *[]){NULL}, (void *[]){NULL}));
    const eqf_check_result *check;
    expect_ok(eqf_exec_check(b.e, NULL, (const void *[]){NULL}, (const void *[]){NULL}, &check));
    assert_true(check->passed);
    done(b);
}

static void test_state(void **state)
{
    (void)state;
    built b = build("(program s (dims (M 4))\n"
                    "  (input x f32 (M)) (buffer total f32 (M))\n"
                    "  (let next (add total x))\n"
                    "  (output total next (M) :writes total)\n"
                    "  (output y (mul total 2) (M)))\n");
    float x[4] = {1, 2, 3, 4}, start[4], total[4], y[4];
    expect_ok(eqf_exec_get_state(b.e, 0, start, sizeof start));
    for (int n = 1; n <= 3; n++) {
        expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){total, y}));
        for (int i = 0; i < 4; i++) {
            assert_true(fabsf(total[i] - (start[i] + (float)n * x[i])) < 1e-5f);
            assert_true(fabsf(y[i] - 2 * (start[i] + (float)(n - 1) * x[i])) < 1e-5f);
        }
    }
    /* A second context starts from the stored values; so does this one after a reset. */
    eqf_exec *other;
    expect_ok(eqf_exec_new(ctx, b.m, 1, &other));
    float of_other[4];
    expect_ok(eqf_exec_get_state(other, 0, of_other, sizeof of_other));
    assert_memory_equal(of_other, start, sizeof start);
    eqf_exec_free(other);
    expect_ok(eqf_exec_get_state(b.e, 0, y, sizeof y));
    assert_memory_equal(y, total, sizeof y);
    eqf_exec_reset(b.e);
    expect_ok(eqf_exec_get_state(b.e, 0, y, sizeof y));
    assert_memory_equal(y, start, sizeof y);
    float zeros[4] = {0};
    expect_ok(eqf_exec_set_state(b.e, 0, zeros, sizeof zeros));
    expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){NULL, NULL}));
    expect_ok(eqf_exec_get_state(b.e, 0, y, sizeof y));
    assert_memory_equal(y, x, sizeof y);
    assert_int_equal(eqf_exec_get_state(b.e, 0, y, 15), EQF_E_ARGUMENT);
    assert_int_equal(eqf_exec_get_state(b.e, 1, y, 16), EQF_E_ARGUMENT);
    assert_int_equal(eqf_exec_set_state(b.e, 0, y, 17), EQF_E_ARGUMENT);
    done(b);
}

static void test_parameters(void **state)
{
    (void)state;
    static const char text[] = "(program p (dims (K 3))\n"
                               "  (input x f32 (K)) (parameter w f32 (K))\n"
                               "  (output y (mul x w) (K)))\n";
    static const eqf_optimize_options as_inputs = {.parameters_are_inputs = true, .budget_s = 0.01};
    built b = build_with(text, NULL, &as_inputs);
    float x[3] = {1, 2, 3}, w[3] = {10, 20, 30}, y[3], z[3];
    expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){z}));
    assert_int_equal(eqf_exec_set_parameter(b.e, 0, w, 11), EQF_E_ARGUMENT);
    assert_int_equal(eqf_exec_set_parameter(b.e, 1, w, 12), EQF_E_ARGUMENT);
    assert_int_equal(eqf_exec_set_parameter(b.e, 0, (char *)w + 1, 12), EQF_E_ARGUMENT);
    eqf_ctx_clear(ctx);
    expect_ok(eqf_exec_set_parameter(b.e, 0, w, sizeof w));
    expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){y}));
    for (int i = 0; i < 3; i++)
        assert_true(y[i] == x[i] * w[i]);
    expect_ok(eqf_exec_set_parameter(b.e, 0, NULL, 0));
    expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){y}));
    assert_memory_equal(y, z, sizeof y);
    done(b);
    /* As constants the same values, and nothing to replace. */
    b = build(text);
    assert_int_equal(eqf_model_parameter_count(b.m), 0);
    expect_ok(eqf_exec_run(b.e, (const void *[]){x}, (void *[]){y}));
    assert_memory_equal(y, z, sizeof y);
    assert_int_equal(eqf_exec_set_parameter(b.e, 0, w, 12), EQF_E_ARGUMENT);
    done(b);
}

static void test_indices(void **state)
{
    (void)state;
    built b = build("(program g (dims (V 6) (E 3) (T 4))\n"
                    "  (parameter table f32 (V E)) (input ids i64 (T))\n"
                    "  (let i (where (lt ids 0) (add ids 6) ids))\n"
                    "  (output y (gather table i :axis V) (T E)))\n");
    int64_t ids[4] = {0, 5, -1, -6};
    float y[12];
    expect_ok(eqf_exec_run(b.e, (const void *[]){ids}, (void *[]){y}));
    assert_memory_equal(y + 3, y + 6, 3 * sizeof *y);
    assert_memory_equal(y, y + 9, 3 * sizeof *y);
    static const int64_t bad[] = {6, -7, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ids[2] = bad[i];
        eqf_ctx_clear(ctx);
        assert_int_equal(eqf_exec_run(b.e, (const void *[]){ids}, (void *[]){y}), EQF_E_DATA);
        assert_true(eqf_diag_get(ctx, 0).place[0] != 0);
    }
    done(b);
}

/* Seeded inputs are valid for what they index, however the index gets there. */
static void test_seeded_indices(void **state)
{
    (void)state;
    static const char *const indices[] = {
        "ids",         "(where (lt ids 0) (add ids 3) ids)",
        "(sub ids 2)", "(slice ids :axis T :start 63 :to T :step -1)",
        "(add ids 5)", "(cast i64 (cast i32 ids))",
    };
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "(program g (dims (V 3) (T 64)) (parameter table f32 (V)) (input ids i64 (T))\n"
                 "  (output y (gather table %s :axis V) (T)))\n",
                 indices[i]);
        built b = build(text);
        eqf_tensors *inputs;
        expect_ok(eqf_model_inputs(ctx, b.m, &inputs));
        const int64_t *ids = eqf_tensors_get(inputs, 0).data;
        int64_t low = ids[0], high = ids[0];
        for (int k = 0; k < 64; k++) {
            low = ids[k] < low ? ids[k] : low;
            high = ids[k] > high ? ids[k] : high;
        }
        assert_int_equal(high - low, 2); /* all three places of the table are used */
        eqf_tensors_free(inputs);
        done(b);
    }
}

/* Matrices that were drawn keep the size of what goes through many of them. */
static void test_seeded_matrices(void **state)
{
    (void)state;
    built b = build("(program chain (dims (A 48) (B 64) (C 48) (D 64) (E 48) (F 64))\n"
                    "  (parameter p f32 (A B)) (parameter q f32 (B C)) (parameter r f32 (C D))\n"
                    "  (parameter s f32 (D E)) (parameter t f32 (E F)) (input x f32 (A))\n"
                    "  (output y (matmul (matmul (matmul (matmul (matmul x p) q) r) s) t) (F)))\n");
    eqf_tensors *inputs;
    expect_ok(eqf_model_inputs(ctx, b.m, &inputs));
    float y[64];
    const void *in[] = {eqf_tensors_get(inputs, 0).data};
    void *out[] = {y};
    expect_ok(eqf_exec_run(b.e, in, out));
    double squares = 0;
    for (int i = 0; i < 64; i++)
        squares += (double)y[i] * (double)y[i] / 64;
    assert_true(squares > 0.01 && squares < 10);
    eqf_tensors_free(inputs);
    done(b);
}

/* A program that the last digits of its inputs decide is measured by what they do to it: the weights of
 * one of these rows nearly cancel. */
static void test_ill_conditioned(void **state)
{
    (void)state;
    done(build("(program model (dims (d1 12) (d2 20)) (input a_0 f32 (d1 d2)) (input a_1 f32 (d1 d2))\n"
               "  (let t1 (reduce + a_1 :axis d2)) (let t2 (div (matmul a_1 a_0 :axis d2) t1))\n"
               "  (output out0 t2 (d1))\n"
               "  (output out1 (div (matmul a_1 (square (sub a_0 t2)) :axis d2) t1) (d1)))\n"));
}

static void test_check(void **state)
{
    (void)state;
    static const char text[] = "(program k (dims (K 50)) (input x f32 (K)) (input n i64 (K))\n"
                               "  (output y (exp x) (K)) (output m (add n 1) (K)))\n";
    built b = build(text);
    eqf_tensors *inputs;
    expect_ok(eqf_model_inputs(ctx, b.m, &inputs));
    float x[50], y[50];
    int64_t n[50], m[50];
    memcpy(x, eqf_tensors_get(inputs, 0).data, sizeof x);
    memcpy(n, eqf_tensors_get(inputs, 1).data, sizeof n);
    eqf_tensors_free(inputs);
    const void *in[] = {x, n}, *results[] = {y, m};
    void *out[] = {y, m};
    const eqf_check_result *check;
    expect_ok(eqf_exec_run(b.e, in, out));
    expect_ok(eqf_exec_check(b.e, NULL, in, results, &check));
    assert_true(check->passed);
    assert_true(check->rel_l2[0] < 1e-6);
    assert_true(check->tolerance[0] >= 1e-5 && check->tolerance[1] == 0);
    y[7] *= 1.01f;
    expect_ok(eqf_exec_check(b.e, NULL, in, results, &check));
    assert_false(check->passed);
    assert_non_null(strstr(check->first, "y"));
    y[7] = NAN;
    expect_ok(eqf_exec_check(b.e, NULL, in, results, &check));
    assert_false(check->passed);
    expect_ok(eqf_exec_run(b.e, in, out));
    m[49]++;
    expect_ok(eqf_exec_check(b.e, NULL, in, results, &check));
    assert_false(check->passed);
    assert_non_null(strstr(check->first, "m"));
    /* Other inputs: the stored reference is not theirs, the interpreter's is. */
    for (int i = 0; i < 50; i++)
        x[i] = (float)i / 10;
    expect_ok(eqf_exec_run(b.e, in, out));
    expect_ok(eqf_exec_check(b.e, NULL, in, results, &check));
    assert_false(check->passed);
    eqf_program *p;
    expect_ok(eqf_program_read(ctx, source, NULL, &p));
    expect_ok(eqf_exec_check(b.e, p, in, results, &check));
    assert_true(check->passed);
    eqf_program_free(p);
    put("(program k (dims (K 50)) (input x f32 (K)) (input n i64 (K))\n"
        "  (output y (exp2 x) (K)) (output m (add n 1) (K)))\n");
    expect_ok(eqf_program_read(ctx, source, NULL, &p));
    assert_int_equal(eqf_exec_check(b.e, p, in, results, &check), EQF_E_TYPE);
    assert_null(check);
    eqf_program_free(p);
    done(b);
}

/* Integers and bools that rounding decides: the exact program is not their only reference. */
static void test_rounding_decides(void **state)
{
    (void)state;
    built b = build("(program r (dims (K 200)) (input x f32 (K))\n"
                    "  (let third (div x 3)) (let sum (add (add third third) third))\n"
                    "  (output same (eq sum x) (K))\n"
                    "  (output steps (cast i64 (floor (mul third 3e7))) (K)))\n");
    eqf_tensors *inputs;
    expect_ok(eqf_model_inputs(ctx, b.m, &inputs));
    const void *in[] = {eqf_tensors_get(inputs, 0).data};
    uint8_t same[200];
    int64_t steps[200];
    expect_ok(eqf_exec_run(b.e, in, (void *[]){same, steps}));
    const eqf_check_result *check;
    expect_ok(eqf_exec_check(b.e, NULL, in, (const void *[]){same, steps}, &check));
    assert_true(check->passed);
    eqf_tensors_free(inputs);
    done(b);
}

static void test_given_inputs(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/in.safetensors", folder);
    float x[3] = {2, 3, 5};
    int64_t shape[] = {3};
    eqf_tensor t = {
        .name = "x", .dtype = EQF_F32, .rank = 1, .shape = shape, .bytes = 12, .data = x};
    expect_ok(eqf_tensors_write(ctx, path, &t, 1));
    eqf_read_options reading = {.inputs = path};
    built b = build_with("(program i (dims (K 3)) (input x f32 (K)) (output y (square x) (K)))\n",
                         &reading, NULL);
    eqf_tensors *inputs;
    expect_ok(eqf_model_inputs(ctx, b.m, &inputs));
    assert_memory_equal(eqf_tensors_get(inputs, 0).data, x, sizeof x);
    eqf_tensors_free(inputs);
    done(b);
    /* Of another shape, and missing. */
    static const char *const texts[] = {
        "(program i (dims (K 4)) (input x f32 (K)) (output y (square x) (K)))\n",
        "(program i (dims (K 3)) (input x f16 (K)) (output y (square x) (K)))\n",
        "(program i (dims (K 3)) (input z f32 (K)) (output y (square z) (K)))\n"};
    static const eqf_status wanted[] = {EQF_E_TYPE, EQF_E_TYPE, EQF_E_DATA};
    for (int i = 0; i < 3; i++) {
        put(texts[i]);
        eqf_program *p;
        eqf_ctx_clear(ctx);
        assert_int_equal(eqf_program_read(ctx, source, &reading, &p), wanted[i]);
        assert_null(p);
    }
}

static void test_determinism(void **state)
{
    (void)state;
    put("(program d (dims (M 20) (K 30)) (input x f32 (M K)) (parameter w f32 (K))\n"
        "  (output y (tanh (matmul x w)) (M)))\n");
    char first[200], command[400];
    snprintf(first, sizeof first, "%s.first", package);
    for (int i = 0; i < 2; i++) {
        eqf_program *p;
        expect_ok(eqf_program_read(ctx, source, NULL, &p));
        expect_ok(eqf_optimize(p, &at_once, i ? package : first, NULL));
        eqf_program_free(p);
    }
    /* All but what was measured. */
    snprintf(command, sizeof command, "diff -r -x report.json -x plan.json %s %s", first, package);
    assert_int_equal(system(command), 0);
}

typedef struct worker {
    const eqf_model *m;
    int step, failures;
} worker;

static void *work(void *user)
{
    worker *w = user;
    eqf_ctx *mine = eqf_ctx_new(NULL);
    eqf_exec *e = NULL;
    w->failures += !mine || eqf_exec_new(mine, w->m, 2, &e) != EQF_OK;
    float x[64], total[64] = {0}, now[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i + w->step);
    w->failures += eqf_exec_set_state(e, 0, total, sizeof total) != EQF_OK;
    for (int n = 1; n <= 300 && w->failures == 0; n++) {
        w->failures += eqf_exec_run(e, (const void *[]){x}, (void *[]){total}) != EQF_OK;
        for (int i = 0; i < 64; i++)
            w->failures += total[i] != (float)n * x[i];
    }
    w->failures += eqf_exec_get_state(e, 0, now, sizeof now) != EQF_OK;
    w->failures += memcmp(now, total, sizeof now) != 0;
    eqf_exec_free(e);
    eqf_ctx_free(mine);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    built b = build("(program t (dims (M 64)) (input x f32 (M)) (buffer total f32 (M))\n"
                    "  (output total (add total x) (M) :writes total))\n");
    pthread_t threads[2];
    worker workers[2] = {{b.m, 1, 0}, {b.m, 1000, 0}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    done(b);
}

static void test_errors(void **state)
{
    (void)state;
    eqf_program *p;
    eqf_model *m;
    assert_int_equal(eqf_program_read(ctx, "/nowhere/x.eqf", NULL, &p), EQF_E_IO);
    assert_null(p);
    put("(program x (input");
    assert_int_equal(eqf_program_read(ctx, source, NULL, &p), EQF_E_PARSE);
    assert_null(p);
    assert_int_equal(eqf_model_load(ctx, "/nowhere", &m), EQF_E_IO);
    assert_null(m);
    assert_int_equal(eqf_model_load(ctx, folder, &m), EQF_E_NOT_OURS);
    assert_null(m);
    put("(program x (dims (K 3)) (input x f32 (K))\n"
        "  (output y (opaque x :name \"my.op\" :dtype f32 :to K :ints (0)) (K)))\n");
    eqf_ctx_clear(ctx);
    expect_ok(eqf_program_read(ctx, source, NULL, &p));
    eqf_ctx_clear(ctx);
    assert_int_equal(eqf_optimize(p, &at_once, package, NULL), EQF_E_UNSUPPORTED);
    assert_true(access(package, F_OK) != 0);
    eqf_program_free(p);
    put("(program x (dims (K 3)) (input x f32 (K)) (output y (neg x) (K)))\n");
    eqf_ctx_clear(ctx);
    expect_ok(eqf_program_read(ctx, source, NULL, &p));
    assert_int_equal(eqf_optimize(p, &at_once, folder, NULL), EQF_E_ARGUMENT);
    eqf_optimize_options bad_compiler = {.compiler = "no-such-compiler-here"};
    assert_int_equal(eqf_optimize(p, &bad_compiler, package, NULL), EQF_E_MACHINE);
    volatile bool cancel = true;
    eqf_optimize_options cancelled = {.cancel = &cancel};
    assert_int_equal(eqf_optimize(p, &cancelled, package, NULL), EQF_E_INTERRUPTED);
    assert_true(access(package, F_OK) != 0);
    eqf_program_free(p);
}

/* ---- the machine fails while candidates are tried ------------------------------------------------ */

typedef struct failing {
    const char *from; /* the stage that it fails from */
    bool memory;      /* what is full: memory, or else the disk */
    bool has_failed;
} failing;

static void *resize(void *user, void *p, size_t old_size, size_t size)
{
    const failing *f = user;
    (void)old_size;
    if (size == 0) {
        free(p);
        return NULL;
    }
    return f->memory && f->has_failed ? NULL : realloc(p, size);
}

static void on_progress(void *user, const char *stage)
{
    failing *f = user;
    if (f->has_failed || strncmp(stage, f->from, strlen(f->from)) != 0)
        return;
    f->has_failed = true;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 0;
    if (!f->memory)
        setrlimit(RLIMIT_FSIZE, &limit);
}

/* The package that is there is the result; the report says why nothing more was tried. */
static void test_failing_machine(void **state)
{
    (void)state;
    put("(program p (dims (M 16) (K 64) (N 32)) (input X f32 (M K)) (parameter W f32 (K N))\n"
        "  (let s (recip (add (reduce + (square X) :axis K) 1)))\n"
        "  (output Y (matmul (mul X s) W) (M N)))\n");
    signal(SIGXFSZ, SIG_IGN);
    static const char *const stages[] = {"searching", "trying 1 of"};
    for (int i = 0; i < 4; i++) {
        failing f = {.from = stages[i / 2], .memory = i % 2};
        eqf_allocator allocator = {resize, &f};
        eqf_ctx *own = eqf_ctx_new(&allocator);
        eqf_program *p;
        const eqf_optimize_report *report = NULL;
        assert_int_equal(eqf_program_read(own, source, NULL, &p), EQF_OK);
        eqf_optimize_options options = {
            .budget_s = 20, .jobs = 1, .threads = 1, .progress = on_progress, .user = &f};
        eqf_status status = eqf_optimize(p, &options, package, &report);
        struct rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
        if (status != EQF_OK)
            fail_msg("%s: %s: %s", stages[i / 2], eqf_status_name(status),
                     eqf_diag_get(own, 0).message);
        assert_true(f.has_failed);
        if (strcmp(report->stop, "machine") != 0 ||
            !strstr(report->stop_reason, f.memory ? "memory" : "File too large"))
            fail_msg("%s: %s: %s", stages[i / 2], report->stop, report->stop_reason);
        assert_string_equal(report->package, package);
        assert_true(report->rel_l2[0] <= 1e-5);
        eqf_program_free(p);
        eqf_ctx_free(own);
        eqf_model *m;
        expect_ok(eqf_model_load(ctx, package, &m));
        eqf_model_free(m);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_queries),      TEST(test_values),
        TEST(test_copies),       TEST(test_empty),
        TEST(test_state),        TEST(test_parameters),
        TEST(test_indices),      TEST(test_seeded_indices), TEST(test_seeded_matrices), TEST(test_ill_conditioned),
        TEST(test_check),        TEST(test_rounding_decides),
        TEST(test_given_inputs), TEST(test_determinism),
        TEST(test_threads),      TEST(test_errors),
        TEST(test_failing_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
