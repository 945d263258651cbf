/* eqf_search as a C caller sees it: cancelled at each stage, repeated, and after an error. */
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

static char folder[64], source[96], rules[96];
static eqf_ctx *ctx;
static eqf_program *program;

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/eqf-search-api-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(source, sizeof source, "%s/program.eqf", folder);
    snprintf(rules, sizeof rules, "%s/bad.rules", folder);
    put(rules, "(rule bad (neg ?x) => ?x :fp exact)\n");
    /* the rows' sums of exponentials, shifted by their maximum: something for every phase */
    put(source, "(program rows (dims (M 16) (K 64) (N 8))\n"
                "  (input X f32 (M K)) (parameter W f32 (K N))\n"
                "  (let e (exp (sub X (reduce max X :axis K))))\n"
                "  (output Y (matmul (div e (reduce + e :axis K)) W) (M N)))\n");
    ctx = eqf_ctx_new(NULL);
    return ctx && eqf_program_read(ctx, source, NULL, &program) == EQF_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    eqf_program_free(program);
    eqf_ctx_free(ctx);
    return system(command);
}

typedef struct watcher {
    const char *stop_at;
    volatile bool cancel;
} watcher;

static void watch(void *user, const char *stage)
{
    watcher *w = user;
    w->cancel = w->cancel || strcmp(stage, w->stop_at) == 0;
}

/* The phases until then are complete, that one is cancelled, and none follows. */
static void test_cancel(void **state)
{
    (void)state;
    static const char *const phases[] = {"program", "algebra", "tiling", "fusion"};
    const eqf_search_report *report;
    for (size_t i = 1; i <= 4; i++) {
        watcher w = {.stop_at = i < 4 ? phases[i] : "never"};
        eqf_search_options options = {.progress = watch,
                                      .user = &w,
                                      .cancel = &w.cancel,
                                      .fuse = i % 2 ? EQF_FUSE_NODE : EQF_FUSE_LATE};
        assert_int_equal(eqf_search(program, &options, &report), EQF_OK);
        const eqf_subgraph *g = &report->subgraphs[0];
        assert_int_equal(report->cancelled, i < 4);
        assert_int_equal(g->phase_count, i < 4 ? i + 1 : 4);
        for (size_t k = 0; k < g->phase_count; k++) {
            assert_string_equal(g->phases[k].name, phases[k]);
            assert_string_equal(g->phases[k].stop, k == i ? "cancelled" : "saturated");
        }
        assert_string_equal(g->stop, i < 4 ? "cancelled" : "saturated");
    }
    /* While rules are tested there is nothing to show yet. */
    watcher w = {.stop_at = "testing rules"};
    const char *const files[] = {rules};
    eqf_search_options options = {.progress = watch,
                                  .user = &w,
                                  .cancel = &w.cancel,
                                  .rules = files,
                                  .rule_count = 1};
    assert_int_equal(eqf_search(program, &options, &report), EQF_E_INTERRUPTED);
    assert_null(report);
    eqf_ctx_clear(ctx);
}

/* What was found before an interrupt, or before time was over, is kept. */
static void test_parts(void **state)
{
    (void)state;
    char text[20000], *at = text, *end = text + sizeof text, path[96];
    snprintf(path, sizeof path, "%s/parts.eqf", folder);
    /* a chain of products of different sizes, too long for one e-graph */
    at += snprintf(at, (size_t)(end - at), "(program parts (dims (M 8)");
    for (int i = 0; i <= 40; i++)
        at += snprintf(at, (size_t)(end - at), " (D%d %d)", i, i % 2 ? 60 + i : 2 + i);
    at += snprintf(at, (size_t)(end - at), ")\n(input X f32 (M D0))\n");
    for (int i = 0; i < 40; i++)
        at += snprintf(at, (size_t)(end - at), "(parameter W%d f32 (D%d D%d))\n", i, i, i + 1);
    for (int i = 0; i < 40; i++)
        at += snprintf(at, (size_t)(end - at), "(let t%d (exp (matmul %s%.0d W%d)))\n", i + 1,
                       i ? "t" : "X", i, i);
    snprintf(at, (size_t)(end - at), "(output Y t40 (M D40)))\n");
    put(path, text);
    eqf_program *p;
    assert_int_equal(eqf_program_read(ctx, path, NULL, &p), EQF_OK);
    const eqf_search_report *report;
    assert_int_equal(eqf_search(p, NULL, &report), EQF_OK);
    size_t n = report->subgraph_count;
    assert_true(n >= 3 && !report->cancelled);
    for (size_t i = 0; i < n; i++) {
        assert_true(report->subgraphs[i].candidate_count > 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(report->subgraphs[i].hash, report->subgraphs[k].hash);
    }
    char stage[60];
    snprintf(stage, sizeof stage, "part 2 of %zu: tiling", n);
    watcher w = {.stop_at = stage};
    eqf_search_options options = {.progress = watch, .user = &w, .cancel = &w.cancel};
    assert_int_equal(eqf_search(p, &options, &report), EQF_OK);
    assert_true(report->cancelled);
    assert_int_equal(report->subgraph_count, n);
    assert_true(report->subgraphs[0].candidate_count > 0);
    assert_string_equal(report->subgraphs[1].stop, "cancelled");
    assert_int_equal(report->subgraphs[1].phase_count, 3);
    assert_string_equal(report->subgraphs[2].stop, "cancelled");
    assert_int_equal(report->subgraphs[2].phase_count, 0);
    assert_int_equal(report->subgraphs[2].candidate_count, 0);
    options = (eqf_search_options){.budget_s = 1e-9};
    assert_int_equal(eqf_search(p, &options, &report), EQF_OK);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(report->subgraphs[i].stop, "time");
    eqf_program_free(p);
}

/* A call replaces the report of the one before; equal calls have equal results, times aside. */
static void test_again(void **state)
{
    (void)state;
    const eqf_search_report *report;
    eqf_search_options options = {.form = true, .fuse = EQF_FUSE_NODE};
    char form[2000] = "", candidate[4000] = "";
    int64_t enodes = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(eqf_search(program, &options, &report), EQF_OK);
        const eqf_subgraph *g = &report->subgraphs[0];
        if (i > 0)
            assert_string_equal(form, g->form);
        if (i > 0)
            assert_int_equal(enodes, g->enodes);
        if (i > 0)
            assert_string_equal(candidate, g->candidates[0].form);
        snprintf(candidate, sizeof candidate, "%s", g->candidates[0].form);
        snprintf(form, sizeof form, "%s", g->form);
        enodes = g->enodes;
        assert_true(g->repaired > 0);
        assert_true(g->form_flops > 0 && g->form_flops <= g->flops);
        const char *const files[] = {rules};
        eqf_search_options bad = {.rules = files, .rule_count = 1};
        assert_int_equal(eqf_search(program, &bad, &report), EQF_E_DATA);
        assert_null(report);
        assert_string_equal(eqf_diag_get(ctx, 0).file, rules);
        eqf_ctx_clear(ctx);
    }
    assert_int_equal(eqf_search(program, NULL, &report), EQF_OK);
    assert_null(report->subgraphs[0].form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_again),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
