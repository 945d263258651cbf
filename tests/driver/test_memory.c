/* Memory that runs out: whichever allocation fails, the call says EQF_E_NO_MEMORY, everything that
 * it took is given back, and the package that was there is still there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "equiforge.h"

static char folder[64], package[96], source[96];

/* Counts bytes in use; the allocation numbered `fails` and all after it fail. */
typedef struct counter {
    long calls, fails;
    long long in_use;
} counter;

static void *resize(void *user, void *p, size_t old_size, size_t size)
{
    counter *c = user;
    if (size == 0) {
        free(p);
        c->in_use -= (long long)old_size;
        return NULL;
    }
    if (c->calls++ >= c->fails)
        return NULL;
    void *q = realloc(p, size);
    if (q)
        c->in_use += (long long)size - (p ? (long long)old_size : 0);
    return q;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/eqf-memory-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(package, sizeof package, "%s/pkg", folder);
    snprintf(source, sizeof source, "%s/program.eqf", folder);
    FILE *f = fopen(source, "w");
    if (!f)
        return -1;
    fputs("(program m (dims (M 4) (K 5)) (input x f32 (M K)) (parameter w f32 (K))\n"
          "  (buffer s f32 (M)) (let y (add (matmul x w) s))\n"
          "  (output s y (M) :writes s) (output z (exp y) (M)))\n",
          f);
    return fclose(f);
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

typedef eqf_status (*action)(eqf_ctx *ctx);

static eqf_status read_and_optimize(eqf_ctx *ctx)
{
    eqf_program *p;
    const eqf_optimize_report *report;
    eqf_status s = eqf_program_read(ctx, source, NULL, &p);
    eqf_optimize_options at_once = {.budget_s = 0.01};
    if (s == EQF_OK)
        s = eqf_optimize(p, &at_once, package, &report);
    eqf_program_free(p);
    return s;
}

static eqf_status read_only(eqf_ctx *ctx)
{
    eqf_program *p;
    eqf_status s = eqf_program_read(ctx, source, NULL, &p);
    eqf_program_free(p);
    return s;
}

static eqf_status search(eqf_ctx *ctx)
{
    eqf_program *p;
    const eqf_search_report *report;
    eqf_search_options options = {.form = true, .fuse = EQF_FUSE_NODE};
    eqf_status s = eqf_program_read(ctx, source, NULL, &p);
    if (s == EQF_OK)
        s = eqf_search(p, &options, &report);
    eqf_program_free(p);
    return s;
}

static eqf_status load_and_run(eqf_ctx *ctx)
{
    eqf_model *m;
    eqf_exec *e = NULL;
    eqf_tensors *inputs = NULL;
    eqf_status s = eqf_model_load(ctx, package, &m);
    if (s == EQF_OK)
        s = eqf_exec_new(ctx, m, 2, &e);
    if (s == EQF_OK)
        s = eqf_model_inputs(ctx, m, &inputs);
    float state[4], z[4];
    const eqf_check_result *check = NULL;
    const void *in[] = {inputs ? eqf_tensors_get(inputs, 0).data : NULL};
    if (s == EQF_OK)
        s = eqf_exec_run(e, in, (void *[]){state, z});
    if (s == EQF_OK)
        s = eqf_exec_check(e, NULL, in, (const void *[]){state, z}, &check);
    if (s == EQF_OK)
        assert_true(check->passed);
    eqf_tensors_free(inputs);
    eqf_exec_free(e);
    eqf_model_free(m);
    return s;
}

/* Every allocation in turn, or `steps` of them spread over all. */
static void fail_each(action body, long steps)
{
    counter c = {.fails = INT32_MAX};
    eqf_allocator allocator = {resize, &c};
    eqf_ctx *ctx = eqf_ctx_new(&allocator);
    assert_int_equal(body(ctx), EQF_OK);
    eqf_ctx_free(ctx);
    assert_true(c.in_use == 0);
    long total = c.calls, stride = total / steps + 1;
    for (long n = 0; n < total; n += stride) {
        c = (counter){.fails = n};
        ctx = eqf_ctx_new(&allocator);
        if (!ctx) {
            assert_int_equal(n, 0);
            continue;
        }
        eqf_status s = body(ctx);
        if (s != EQF_E_NO_MEMORY)
            fail_msg("allocation %ld of %ld fails: %s", n, total, eqf_status_name(s));
        assert_true(eqf_diag_count(ctx) > 0);
        eqf_ctx_free(ctx);
        if (c.in_use != 0)
            fail_msg("allocation %ld of %ld fails: %lld bytes stay", n, total, c.in_use);
    }
}

static void test_read(void **state)
{
    (void)state;
    fail_each(read_only, 10000);
}

static void test_search(void **state)
{
    (void)state;
    fail_each(search, 500);
}

static void test_load_and_run(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    assert_int_equal(read_and_optimize(ctx), EQF_OK);
    eqf_ctx_free(ctx);
    fail_each(load_and_run, 10000);
}

static void test_optimize(void **state)
{
    (void)state;
    fail_each(read_and_optimize, 40);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    assert_int_equal(load_and_run(ctx), EQF_OK);
    eqf_ctx_free(ctx);
    char command[200];
    snprintf(command, sizeof command, "test \"$(ls -A %s | tr '\\n' ' ')\" = 'pkg program.eqf '",
             folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_load_and_run),
        cmocka_unit_test(test_optimize),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
