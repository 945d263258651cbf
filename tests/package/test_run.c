/* Loading and running: values, state, parameters, aliasing, indices, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "package/handmade.h"

static char folder[64], package[96];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/eqf-run-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(package, sizeof package, "%s/pkg", folder);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_status s = hm_make(ctx, package, "cc");
    eqf_ctx_free(ctx);
    return s == EQF_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return hm_shell("rm -rf %s", folder);
}

typedef struct world {
    eqf_ctx *ctx;
    rt_model *m;
    rt_exec *e;
    f32 x[HM_N], s[HM_N], y[HM_N], z;
    i64 k;
    const void *inputs[2];
    void *outputs[4];
} world;

static void open_world(world *w, int threads)
{
    memset(w, 0, sizeof *w);
    w->ctx = eqf_ctx_new(NULL);
    w->m = rt_load(w->ctx, package);
    w->e = rt_exec_new(w->ctx, w->m, threads);
    w->k = 5;
    for (i64 i = 0; i < HM_N; i++)
        w->x[i] = 0.25f * (f32)i;
    w->inputs[0] = w->x;
    w->inputs[1] = &w->k;
    w->outputs[0] = w->s;
    w->outputs[1] = w->y;
    w->outputs[2] = &w->z;
}

static void close_world(world *w)
{
    rt_exec_free(w->e);
    rt_unload(w->m);
    eqf_ctx_free(w->ctx);
}

static eqf_status run(world *w)
{
    trap t;
    TRY (w->ctx, t) {
        rt_exec_run(w->e, w->inputs, w->outputs);
    }
    return t.status;
}

/* The values after `runs` runs on the same x. */
static void expect(const world *w, int runs)
{
    for (i64 i = 0; i < HM_N; i++) {
        f32 before = hm_state(i) + (f32)(runs - 1) * w->x[i];
        assert_true(w->y[i] == w->x[i] * hm_weight(i) + before);
        assert_true(w->s[i] == before + w->x[i]);
    }
    assert_true(w->z == hm_parameter(w->k));
}

static void test_values_and_state(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        world w;
        open_world(&w, threads);
        for (int n = 1; n <= 4; n++) {
            assert_int_equal(run(&w), EQF_OK);
            expect(&w, n);
        }
        rt_exec_reset(w.e);
        assert_int_equal(run(&w), EQF_OK);
        expect(&w, 1);
        close_world(&w);
    }
}

static void test_states_are_separate(void **state)
{
    (void)state;
    world w;
    open_world(&w, 1);
    rt_exec *other = rt_exec_new(w.ctx, w.m, 1);
    assert_int_equal(run(&w), EQF_OK);
    assert_int_equal(run(&w), EQF_OK);
    rt_exec *first = w.e;
    w.e = other;
    assert_int_equal(run(&w), EQF_OK);
    expect(&w, 1);
    w.e = first;
    assert_int_equal(run(&w), EQF_OK);
    expect(&w, 3);
    rt_exec_free(other);
    close_world(&w);
}

static void test_unwanted_outputs(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2);
    w.outputs[0] = NULL; /* the state is carried all the same */
    w.outputs[2] = NULL;
    assert_int_equal(run(&w), EQF_OK);
    assert_int_equal(run(&w), EQF_OK);
    for (i64 i = 0; i < HM_N; i++)
        assert_true(w.y[i] == w.x[i] * hm_weight(i) + (hm_state(i) + w.x[i]));
    const f32 *s = rt_exec_state(w.e, 0);
    assert_true(s[7] == hm_state(7) + 2 * w.x[7]);
    close_world(&w);
}

static void test_parameters(void **state)
{
    (void)state;
    world w;
    open_world(&w, 1);
    f32 mine[HM_T] = {0, 1, 2, 3, 4, 55, 6, 7};
    rt_exec_set_parameter(w.e, 0, mine);
    assert_int_equal(run(&w), EQF_OK);
    assert_true(w.z == 55);
    mine[5] = 56; /* borrowed, not copied */
    assert_int_equal(run(&w), EQF_OK);
    assert_true(w.z == 56);
    rt_exec_set_parameter(w.e, 0, NULL);
    assert_int_equal(run(&w), EQF_OK);
    assert_true(w.z == hm_parameter(5));
    close_world(&w);
}

static void test_bad_index(void **state)
{
    (void)state;
    world w;
    open_world(&w, 2);
    static const i64 bad[] = {8, -1, INT64_MAX, INT64_MIN};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        w.k = bad[i];
        assert_int_equal(run(&w), EQF_E_DATA);
        assert_string_equal(eqf_diag_get(w.ctx, 0).place, "the gather");
        eqf_ctx_clear(w.ctx);
    }
    w.k = 7;
    assert_int_equal(run(&w), EQF_OK);
    expect(&w, 1); /* failed runs left no state */
    close_world(&w);
}

static void test_aliasing(void **state)
{
    (void)state;
    world w;
    open_world(&w, 1);
    w.outputs[0] = w.y; /* two outputs in one place */
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.outputs[0] = &w.y[HM_N - 1];
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.outputs[0] = w.x; /* over an input that it does not replace */
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.outputs[0] = w.s;
    w.outputs[1] = w.x + 1; /* over a part of the input that it replaces */
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.outputs[1] = (char *)w.y + 1;
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.outputs[1] = w.y;
    w.inputs[0] = NULL;
    assert_int_equal(run(&w), EQF_E_ARGUMENT);
    w.inputs[0] = w.x;
    /* y is declared to replace x: it may lie exactly over it */
    f32 before[HM_N];
    memcpy(before, w.x, sizeof before);
    w.outputs[1] = w.x;
    assert_int_equal(run(&w), EQF_OK);
    for (i64 i = 0; i < HM_N; i++) {
        assert_true(w.x[i] == before[i] * hm_weight(i) + hm_state(i));
        assert_true(w.s[i] == hm_state(i) + before[i]);
    }
    close_world(&w);
}

typedef struct worker {
    const rt_model *m;
    int offset, failed;
} worker;

static void *work(void *user)
{
    worker *j = user;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    rt_exec *e = rt_exec_new(ctx, j->m, 2);
    static _Thread_local f32 x[HM_N], s[HM_N], y[HM_N];
    f32 z;
    i64 k = j->offset % HM_T;
    for (int n = 0; n < 200; n++) {
        for (i64 i = 0; i < HM_N; i++)
            x[i] = (f32)(j->offset + n);
        const void *inputs[] = {x, &k};
        void *outputs[] = {s, y, &z, NULL};
        trap t;
        TRY (ctx, t) {
            rt_exec_run(e, inputs, outputs);
        }
        f32 sum = (f32)n * (f32)j->offset + (f32)(n * (n - 1) / 2);
        for (i64 i = 0; i < HM_N; i++)
            j->failed += y[i] != x[i] * hm_weight(i) + (hm_state(i) + sum);
        j->failed += t.status != EQF_OK || z != hm_parameter(k);
    }
    rt_exec_free(e);
    eqf_ctx_free(ctx);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { WORKERS = 3 };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    rt_model *m = rt_load(ctx, package);
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){m, 3 * i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    rt_unload(m);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_state), cmocka_unit_test(test_states_are_separate),
        cmocka_unit_test(test_unwanted_outputs), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_bad_index),        cmocka_unit_test(test_aliasing),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
