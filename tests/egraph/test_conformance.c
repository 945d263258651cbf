/* The conformance suite as it is, and further cases, in each match mode and with proofs. The two
 * largest members of each family run in the automatic mode only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "egraph/suite.h"

#define SUITE EQF_TEST_DIR "/conformance/egg-suite.eqf"
#define FURTHER EQF_TEST_DIR "/conformance/further.eqf"

typedef struct tally {
    int cases, failed;
    int64_t proofs;
} tally;

static void note(void *user, const eqf_case_result *r)
{
    tally *t = user;
    t->cases++;
    t->proofs += r->proofs;
    if (!r->passed) {
        t->failed++;
        print_error("%s: %s\n", r->name, r->reason);
    }
}

static bool is_heavy(const char *name)
{
    static const char *const heavy[] = {"ac-9", "ac-10", "ac-11", "micro-10", "micro-11",
                                        "limit-bytes", "lambda-repeat", "lambda-fib",
                                        "math-bench-7"};
    for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++) {
        if (strcmp(heavy[i], name) == 0)
            return true;
    }
    return false;
}

/* Runs every case, or every light one. */
static tally run(const char *file, eqf_match_mode match, bool proofs, bool all)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    trap trap_;
    tally t = {0};
    TRY(ctx, trap_)
    {
        i64 n;
        char *text = file_read(a, file, 1 << 22, &n);
        eg_suite *s = eg_suite_read(ctx, a, file, (eqf_text){text, (size_t)n});
        const char **names = NEW_N(a, const char *, s->cases.n);
        eqf_suite_options o = {.match = match, .proofs = proofs, .repeat = 1, .cases = names};
        for (i64 i = 0; i < s->cases.n; i++) {
            if (all || !is_heavy(s->cases.at[i].name))
                names[o.case_count++] = s->cases.at[i].name;
        }
        eqf_suite_run(ctx, file, (eqf_text){text, (size_t)n}, &o, note, &t);
    }
    assert_int_equal(trap_.status, EQF_OK);
    arena_free(a);
    eqf_ctx_free(ctx);
    return t;
}

static void test_auto(void **state)
{
    (void)state;
    tally t = run(SUITE, EQF_MATCH_AUTO, false, true);
    assert_true(t.cases > 80);
    assert_int_equal(t.failed, 0);
}

static void test_full(void **state)
{
    (void)state;
    assert_int_equal(run(SUITE, EQF_MATCH_FULL, false, false).failed, 0);
}

static void test_delta(void **state)
{
    (void)state;
    assert_int_equal(run(SUITE, EQF_MATCH_DELTA, false, false).failed, 0);
}

static void test_proofs(void **state)
{
    (void)state;
    tally t = run(SUITE, EQF_MATCH_AUTO, true, false);
    assert_int_equal(t.failed, 0);
    assert_true(t.proofs > 100);
}

static void test_further(void **state)
{
    (void)state;
    static const eqf_match_mode modes[] = {EQF_MATCH_AUTO, EQF_MATCH_FULL, EQF_MATCH_DELTA};
    for (int k = 0; k < 6; k++) {
        tally t = run(FURTHER, modes[k % 3], k >= 3, true);
        assert_true(t.cases >= 20);
        assert_int_equal(t.failed, 0);
    }
}

/* Names that look like something else come through goals, proofs and the checker as they are. */
static void test_odd_names(void **state)
{
    (void)state;
    static const char text[] =
        "(ruleset r (rule \"a ) b\" (f ?x ?y) => (g ?x ?y)) (dynamic app (cat (in ?x) ?y) => append))\n"
        "(case mark (rules r) (term (f a? b)) (goal (g a? ?y)))\n"
        "(case inside (rules r) (term (f \"p ?y q\" b)) (goal (g \"p ?y q\" ?y)))\n"
        "(case variable (rules r) (term (f \"?y\" \")\")) (goal (g \"?y\" ?y)))\n"
        "(case keyword (rules r) (term (f \":k\" \"\\\"\")) (goal (g ?x ?y)))\n"
        "(case numbers (rules r) (term (f \"1\" 1)) (goal (g \"1\" ?y)) (notequal \"1\" 1))\n"
        "(case operators (rules r) (term (\"?f\" (f \"\" \" \"))) (goal (\"?f\" (g ?x ?y))))\n"
        "(case appended (rules r) (term (cat (in \"x y\") z)) (equal (cat (in \"x y\") z) \"x yz\"))\n"
        "(case reasons (union a b :reason \"q ( r\") (explain a b :reasons (\"q ( r\")))\n";
    for (int proofs = 0; proofs < 2; proofs++) {
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        eqf_suite_options o = {.proofs = proofs, .repeat = 1};
        tally t = {0};
        assert_int_equal(eqf_suite_run(ctx, "odd.eqf", eqf_text_of(text), &o, note, &t), EQF_OK);
        assert_int_equal(t.cases, 8);
        assert_int_equal(t.proofs >= 8, proofs);
        eqf_ctx_free(ctx);
    }
}

/* 2^40 ways to pair operands, one of which is there. */
static void test_wide_meet(void **state)
{
    (void)state;
    enum { WIDE = 40 };
    char text[8000] = "(case wide (steps (graph g (term (f";
    const char *const parts[] = {")) ", ") (graph h (term (f", ")", ")) (meet m g h) (in m (equal (f",
                                 ") (f", ")) (notequal a0 b1))))"};
    for (int part = 0; part < 6; part++) {
        for (int i = 0; i < WIDE; i++) {
            size_t n = strlen(text);
            if (part == 1)
                snprintf(text + n, sizeof text - n, "(union a%d b%d)", i, i);
            else if (part == 3)
                snprintf(text + n, sizeof text - n, " a%d b%d", i, i);
            else
                snprintf(text + n, sizeof text - n, " a%d", i);
        }
        strcat(text, parts[part]);
    }
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (int proofs = 0; proofs < 2; proofs++) {
        eqf_suite_options o = {.proofs = proofs, .repeat = 1};
        tally t = {0};
        assert_int_equal(eqf_suite_run(ctx, "wide", eqf_text_of(text), &o, note, &t), EQF_OK);
        assert_int_equal(t.cases, 1);
    }
    eqf_ctx_free(ctx);
}

static eqf_case_result last;
static void keep(void *user, const eqf_case_result *r)
{
    (void)user;
    last = *r;
}

/* A byte limit on the command line stops a run inside its limit. */
static void test_bytes(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    char *text = file_read(a, SUITE, 1 << 22, &n);
    const char *name = "micro-12";
    eqf_suite_options o = {.cases = &name, .case_count = 1, .bytes = 16000000, .repeat = 1};
    eqf_suite_run(ctx, SUITE, (eqf_text){text, (size_t)n}, &o, keep, NULL);
    assert_string_equal(last.stop, "bytes");
    assert_true(last.peak_bytes <= 16000000);
    assert_true(last.nodes > 100000);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto),  cmocka_unit_test(test_full), cmocka_unit_test(test_delta),
        cmocka_unit_test(test_proofs), cmocka_unit_test(test_further),
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_wide_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
