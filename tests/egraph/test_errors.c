/* Malformed suites, rules and JSON: each is refused at the place given, and nothing is run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eqf_egraph.h"

typedef struct bad {
    const char *place, *text;
} bad;

static int runs;
static void count(void *user, const eqf_case_result *r)
{
    (void)user;
    (void)r;
    runs++;
}

static void check_suite(const bad *b)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_suite_options o = {.repeat = 1};
    runs = 0;
    eqf_status s = eqf_suite_run(ctx, "bad.eqf", eqf_text_of(b->text), &o, count, NULL);
    if (s != EQF_E_PARSE || eqf_diag_count(ctx) == 0)
        fail_msg("accepted (status %s): %s", eqf_status_name(s), b->text);
    eqf_diag d = eqf_diag_get(ctx, 0);
    if (strcmp(d.place, b->place) != 0 || strcmp(d.file, "bad.eqf") != 0)
        fail_msg("%s: found %s:%s (%s), wanted %s", b->text, d.file, d.place, d.message, b->place);
    assert_int_equal(runs, 0);
    eqf_ctx_free(ctx);
}

static const bad suites[] = {
    {"1:1", ""},
    {"1:1", "; only a comment\n"},
    {"1:1", "(case"},
    {"1:6", "((a)))"},
    {"1:1", "(frob x)"},
    {"1:1", "(case)"},
    {"1:9", "(case x (frob))\n(case x)"},
    {"1:9", "(case x (frob 1))"},
    {"1:15", "(case x (term ?v))"},
    {"1:15", "(case x (term ()))"},
    {"1:18", "(case x (term (f :key 1)))"},
    {"1:16", "(case x (rules nowhere))"},
    {"1:34", "(case x (rules (rule r (f ?x) => ?y)))"},
    {"1:16", "(case x (rules (rule r (f ?x) ?x)))"},
    {"1:44", "(case x (rules (rule r (f ?x) => ?x :when (nothing ?x))))"},
    {"1:43", "(case x (rules (rule r (f ?x) => ?x :when (is-const ?x ?x))))"},
    {"1:53", "(case x (rules (rule r (f ?x) => ?x :when (is-const ?z))))"},
    {"1:37", "(case x (rules (rule r (f ?x) => ?x :often yes)))"},
    {"1:37", "(case x (rules (rule r (f ?x) => ?x :when)))"},
    {"1:41", "(case x (rules (rule r (f ?x) => ?x :fp sloppy)))"},
    {"1:44", "(case x (rules (multi m (?p (f ?x)) => (?n (g ?n)))))"},
    {"1:47", "(case x (rules (multi m (?p (f ?x)) => (?p (g ?n)) (?n (h ?x)))))"},
    {"1:24", "(case x (limits :nodes many))"},
    {"1:17", "(case x (limits :apples 3))"},
    {"1:20", "(case x (scheduler fast))"},
    {"1:19", "(case x (analysis numerology))"},
    {"1:16", "(case x (match half))"},
    {"1:15", "(case x (stop tired))"},
    {"1:9", "(case x (size :nodes 1))"},
    {"1:9", "(case x (equal a))"},
    {"1:9", "(case x (matches (f ?x)))"},
    {"1:9", "(case x (matches (f ?x) 1 :limit 2))"},
    {"1:9", "(case x (bounds a 0 1))"},
    {"1:38", "(case x (analysis interval) (bound a nan 1))"},
    {"1:40", "(case x (analysis interval) (bound a 2 1))"},
    {"1:22", "(case x (steps (undo m)))"},
    {"1:49", "(case x (steps (mark m) (graph g (term a) (undo m))))"},
    {"1:50", "(case x (steps (graph g (term a) (mark m)) (undo m)))"},
    {"1:20", "(case x (steps (in g (equal a b))))"},
    {"1:24", "(case x (steps (meet g h k)))"},
    {"1:21", "(case x (steps (run nowhere)))"},
    {"2:7", "(case x)\n(case x)"},
    {"2:10", "(ruleset r (rule a (f ?x) => ?x))\n(ruleset r (rule a (f ?x) => ?x))"},
    {"1:34", "(ruleset r (rule a (f ?x) => ?x) (rule b ?x ?x))"},
    {"1:21", "(ruleset r :extends nowhere)"},
    {"1:17", "(ruleset r (ops (f))  (rule a (f ?x) => ?x))"},
    {"1:32", "(ruleset r (ops (f 1)) (rule a (f ?x ?y) => ?x))"},
    {"2:25", "(ruleset r (ops (f 1)) (rule a (f ?x) => ?x))\n(case c (rules r) (term (g a)))"},
    {"1:1", "(family f (columns n) (term a))"},
    {"1:1", "(family f :from 3 :to 2 (columns n) (term a))"},
    {"1:37", "(family f :from 1 :to 2 (columns n) (row))"},
    {"1:43", "(family f :from 1 :to 2 (columns n) (term $m))"},
    {"1:15", "(case x (term ($right + 1)))"},
    {"1:15", "(case x (term ($nest f -1 a)))"},
    {"1:15", "(case x (term \"open))"},
    {"1:15", "(case x (term 99999999999999999999))"},
    {"1:15", "(case x (term inf))"},
    {"1:15", "(case x (term [a]))"},
};

static void test_suites(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
        check_suite(&suites[i]);
}

/* A megabyte of open parentheses is an error, not a crash. */
static void test_deep(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *text = malloc(n + 1);
    memset(text, '(', n);
    text[n] = 0;
    bad b = {"1:4097", text};
    check_suite(&b);
    free(text);
}

static void keep_reason(void *user, const eqf_case_result *r)
{
    snprintf(user, 200, "%s %s", r->name, r->reason);
}

/* Repetitions of repetitions end, and the case fails. */
static void test_endless(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "(case x (steps (repeat 9223372036854775807 (term a))))",
        "(case x (steps (repeat 100000 (repeat 100000 (repeat 100000 (term a))))))",
        "(case x (rules (rule r (f ?x) => ?x)) (steps (saturate (repeat 9999999999 (rebuild)))))"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char reason[200] = "";
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        eqf_suite_options o = {.repeat = 1};
        assert_int_equal(
            eqf_suite_run(ctx, "s", eqf_text_of(texts[i]), &o, keep_reason, reason),
            EQF_E_MISMATCH);
        assert_string_equal(reason, "x line 1: the case takes more than 1000000 steps");
        eqf_ctx_free(ctx);
    }
}

/* What only the run can tell fails the case and says where. */
static void test_failing(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"(case x (steps (mark m) (repeat 2 (undo m))))", "x line 1: no mark m is open"},
        {"(case x (steps (repeat 0 (mark m)) (keep m)))", "x line 1: no mark m is open"},
        {"(case x (steps (mark m) (mark n) (keep m) (mark n) (undo n) (repeat 1 (rebuild))))", "x "},
        {"(case x (steps (repeat 2 (graph g (term a)))))",
         "x line 1: e-graph g has been made already"},
        {"(case x (steps (repeat 0 (graph g (term a))) (in g (size :nodes 1 :classes 1))))",
         "x line 1: no e-graph g has been made"},
        {"(case x (steps (repeat 0 (graph g (term a))) (join j g g)))",
         "x line 1: no e-graph g has been made"},
        {"(case x (roots a) (goal a))", "x line 1: EQF_E_DATA: root a is absent"},
        {"(case x (analysis math-fold) (union 1 2))",
         "x line 1: EQF_E_CONTRADICTION: the analysis math-fold refuses 1 = 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char reason[200] = "";
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        eqf_suite_options o = {.repeat = 1};
        eqf_suite_run(ctx, "s", eqf_text_of(cases[i][0]), &o, keep_reason, reason);
        assert_string_equal(reason, cases[i][1]);
        eqf_ctx_free(ctx);
    }
}

/* The reader of rules reports every error, not the first. */
static void test_rules(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_lang *lang;
    eqf_rules *rules;
    assert_int_equal(eqf_lang_new(ctx, &lang), EQF_OK);
    const char *text = "(rule a (f ?x) => ?y)\n(rule b (f ?x) => ?x)\n  (rule c (f ?x))\n"
                       "(dynamic d (f ?x) => none)\n(multi m (?x) => (?y ?z))\n"
                       "(rule e (f ?x) <=> (g ?y))\n(rule g ?x => (f ?x) :hide lhs)";
    assert_int_equal(eqf_rules_load(lang, "r.rules", eqf_text_of(text), &rules), EQF_E_PARSE);
    static const char *const places[] = {"1:19", "3:3", "4:22", "5:22", "6:23", "7:9"};
    assert_int_equal(eqf_diag_count(ctx), 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(eqf_diag_get(ctx, i).place, places[i]);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

static void test_json(void **state)
{
    (void)state;
    static const bad files[] = {
        {"1:1", ""},
        {"1:3", "{}"},
        {"1:12", "{\"nodes\": {\"a\": {\"op\": \"x\"}}}"},
        {"2:14", "{\"nodes\": {\"a\": {\"op\": \"x\", \"eclass\": \"1\",\n\"children\": [\"b\"]}}}"},
        {"1:64", "{\"nodes\": {\"a\": {\"op\": \"x\", \"eclass\": \"1\"}}, \"root_eclasses\": [\"2\"]}"},
        {"1:52", "{\"nodes\": {\"a\": {\"op\": \"x\", \"eclass\": \"1\", \"cost\": -1}}}"},
        {"1:52", "{\"nodes\": {\"a\": {\"op\": \"x\", \"eclass\": \"1\", \"cost\": 1e999}}}"},
        {"1:21", "{\"nodes\": {}, \"x\": [}"},
        {"1:9", "{\"x\": \"\\q\"}"},
        {"1:14", "{\"x\": \"\\ud800\"}"},
        {"1:14", "{\"x\": \"\\udc00\"}"},
        {"1:20", "{\"x\": \"\\ud800\\u0041\"}"},
        {"1:12", "{\"x\": \"\\u00g0\"}"},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        eqf_gym *gym;
        eqf_ctx_clear(ctx);
        assert_int_equal(eqf_read_json(ctx, "g.json", eqf_text_of(files[i].text), &gym),
                         EQF_E_PARSE);
        if (strcmp(eqf_diag_get(ctx, 0).place, files[i].place) != 0)
            fail_msg("%s: found %s (%s), wanted %s", files[i].text, eqf_diag_get(ctx, 0).place,
                     eqf_diag_get(ctx, 0).message, files[i].place);
    }
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suites), cmocka_unit_test(test_deep),
                                       cmocka_unit_test(test_endless),
                                       cmocka_unit_test(test_failing), cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
