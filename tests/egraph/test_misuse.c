/* Callers that break the rules: ids that do not exist, callbacks that are missing or change the
 * e-graph they are called from, numbers at their limits. Each call is refused by name or does its
 * work; the e-graph passes its self-check after each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "eqf_egraph.h"

#define TEXT(s) eqf_text_of(s)
#define OK(call) assert_int_equal((call), EQF_OK)
#define REFUSED(call) assert_int_equal((call), EQF_E_ARGUMENT)

typedef struct fixture {
    eqf_ctx *ctx;
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
    eqf_class root;
} fixture;

static fixture open_graph(void)
{
    fixture f;
    f.ctx = eqf_ctx_new(NULL);
    OK(eqf_lang_new(f.ctx, &f.lang));
    OK(eqf_rules_load(f.lang, "misuse.rules",
                      TEXT("(rule comm (+ ?a ?b) => (+ ?b ?a))"
                           "(rule assoc (+ ?a (+ ?b ?c)) => (+ (+ ?a ?b) ?c))"
                           "(rule wrap (f ?x) => (g ?x))"),
                      &f.rules));
    eqf_options o = {.limits = eqf_limits_default(), .explain = true};
    OK(eqf_egraph_new(f.lang, &o, &f.g));
    OK(eqf_add_text(f.g, TEXT("(+ a (+ b (f c)))"), &f.root));
    return f;
}

static void close_graph(fixture *f)
{
    OK(eqf_check(f->g));
    eqf_egraph_free(f->g);
    eqf_rules_free(f->rules);
    eqf_lang_free(f->lang);
    eqf_ctx_free(f->ctx);
}

static void test_ids(void **state)
{
    (void)state;
    fixture f = open_graph();
    static const uint32_t wrong[] = {0, 999, 0x1FFFFFFF, 0xC0000001, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        eqf_class c = {wrong[i]};
        eqf_extraction *x;
        char *text;
        int64_t n;
        assert_int_equal(eqf_find(f.g, c).i, 0);
        assert_int_equal(eqf_next_node(f.g, c, (eqf_node){0}).i, 0);
        assert_null(eqf_data(f.g, 0, c));
        REFUSED(eqf_union(f.g, c, f.root, TEXT("why"), NULL));
        REFUSED(eqf_data_join(f.g, 0, c, &n));
        REFUSED(eqf_hide(f.g, (eqf_node){wrong[i]}));
        REFUSED(eqf_extract(f.g, &c, 1, NULL, EQF_TREE, &x));
        REFUSED(eqf_write_json(f.g, &c, 1, NULL, &text));
        if (c.i)
            REFUSED(eqf_match_count(f.g, TEXT("?x"), c, -1, &n));
    }
    assert_int_equal(eqf_next_class(f.g, (eqf_class){UINT32_MAX}).i, 0);
    assert_null(eqf_data(f.g, 0, f.root));
    REFUSED(eqf_data_join(f.g, 0, f.root, ""));
    assert_string_equal(eqf_rule_name(f.rules, 99), "");
    assert_int_equal(eqf_rule_statistics(f.g, f.rules, 99).searches, 0);
    assert_string_equal(eqf_stop_name((eqf_stop)99), "");
    close_graph(&f);
}

static void test_heads(void **state)
{
    (void)state;
    fixture f = open_graph();
    eqf_head head;
    eqf_op op;
    eqf_class c;
    char *text;
    for (uint32_t i = 0; i < 3; i++) /* what leaves are made of belongs to the engine */
        REFUSED(eqf_head_of(f.lang, (eqf_op){i}, 7, &head));
    REFUSED(eqf_head_of(f.lang, (eqf_op){99}, 0, &head));
    REFUSED(eqf_head_symbol(f.lang, (eqf_text){"a\0b", 3}, &head));
    assert_int_equal(head.i, 0);
    REFUSED(eqf_add(f.g, head, NULL, 0, &c));
    OK(eqf_lang_op(f.lang, "over", 2, 0, &op));
    OK(eqf_head_of(f.lang, op, 0, &head));
    eqf_class pair[2] = {f.root, f.root}, found;
    OK(eqf_add(f.g, head, pair, 2, &pair[0])); /* the result may replace an operand */
    OK(eqf_add(f.g, head, pair, 2, &pair[1]));
    OK(eqf_lookup_text(f.g, TEXT("(over (over (+ a (+ b (f c))) (+ a (+ b (f c))))"
                                 " (+ a (+ b (f c))))"),
                       &found));
    assert_int_equal(pair[1].i, found.i);
    static const char *const names[] = {"?x", ":k", "$n", "", " ", "12"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) { /* odd names are read as written */
        eqf_class again;
        OK(eqf_lang_op(f.lang, names[i], 1, 0, &op));
        OK(eqf_head_of(f.lang, op, 0, &head));
        OK(eqf_add(f.g, head, &f.root, 1, &c));
        eqf_extraction *x;
        const char *term;
        OK(eqf_extract(f.g, &c, 1, NULL, EQF_TREE, &x));
        OK(eqf_extraction_text(x, c, false, 0, &term));
        OK(eqf_lookup_text(f.g, TEXT(term), &again));
        assert_int_equal(again.i, c.i);
        eqf_extraction_free(x);
    }
    OK(eqf_dump(f.g, &text));
    eqf_text_free(f.ctx, text);
    close_graph(&f);
}

/* A leaf that a child's class does not hold would leave a proof that nothing connects. */
static void test_folded(void **state)
{
    (void)state;
    fixture f = open_graph();
    eqf_head leaf, kids[2];
    eqf_node n = eqf_next_node(f.g, f.root, (eqf_node){0});
    OK(eqf_head_int(f.lang, 3, &leaf));
    OK(eqf_head_symbol(f.lang, TEXT("a"), &kids[0]));
    OK(eqf_head_symbol(f.lang, TEXT("b"), &kids[1]));
    REFUSED(eqf_union_folded(f.g, n, kids, leaf, TEXT("fold"), NULL));
    kids[1].i = 0;
    REFUSED(eqf_union_folded(f.g, n, kids, leaf, TEXT("fold"), NULL));
    REFUSED(eqf_union_folded(f.g, (eqf_node){0x20000FFF}, kids, leaf, TEXT("fold"), NULL));
    REFUSED(eqf_union_folded(f.g, n, kids, (eqf_head){0}, TEXT("fold"), NULL));
    eqf_proof *proof;
    REFUSED(eqf_explain(f.g, TEXT("(+ a (+ b (f c)))"), TEXT("3"), &proof));
    close_graph(&f);
}

static bool no_goal(void *user, eqf_egraph *g)
{
    (void)user;
    (void)g;
    return false;
}

static bool never(void *user, const eqf_egraph *g, const eqf_class *args)
{
    (void)user;
    (void)g;
    (void)args;
    return false;
}

static void test_missing(void **state)
{
    (void)state;
    fixture f = open_graph();
    eqf_egraph *g;
    OK(eqf_egraph_new(f.lang, NULL, &g));
    eqf_analysis a = {.name = "none", .size = 8};
    REFUSED(eqf_analysis_add(g, &a, NULL));
    eqf_egraph_free(g);
    eqf_guard guard = {.name = "free", .arity = 1};
    REFUSED(eqf_guard_add(f.lang, &guard));
    static const char *const taken[] = {"and", "eq", "distinct"};
    guard.holds = never;
    for (size_t i = 0; i < 3; i++) {
        guard.name = taken[i];
        REFUSED(eqf_guard_add(f.lang, &guard));
    }
    eqf_dynamic d = {.name = "none"};
    REFUSED(eqf_dynamic_add(f.lang, &d));
    eqf_rules *empty;
    OK(eqf_rules_load(f.lang, NULL, (eqf_text){NULL, 0}, &empty));
    eqf_class c;
    assert_int_equal(eqf_add_text(f.g, (eqf_text){NULL, 0}, &c), EQF_E_PARSE);
    eqf_run_report report;
    OK(eqf_run(f.g, empty, NULL, &report));
    assert_int_equal(report.stop, EQF_STOP_SATURATED);
    eqf_rules_free(empty);
    close_graph(&f);
}

/* What belongs to one language or e-graph is refused by another; what is outdated is refused. */
static void test_strangers(void **state)
{
    (void)state;
    fixture f = open_graph(), other = open_graph();
    eqf_run_report report;
    REFUSED(eqf_run(f.g, other.rules, NULL, &report));
    OK(eqf_run(f.g, f.rules, NULL, &report));
    eqf_proof *proof;
    OK(eqf_explain(f.g, TEXT("(+ a (+ b (f c)))"), TEXT("(+ (f c) (+ a b))"), &proof));
    REFUSED(eqf_proof_reduce(other.g, proof));
    OK(eqf_proof_reduce(f.g, proof));
    eqf_proof_free(proof);

    eqf_extraction *x;
    const char *text;
    OK(eqf_extract(f.g, &f.root, 1, NULL, EQF_TREE, &x));
    eqf_mark mark;
    eqf_class c;
    OK(eqf_mark_open(f.g, &mark));
    OK(eqf_add_text(f.g, TEXT("(h a)"), &c));
    assert_int_equal(eqf_chosen(x, c).i, 0);
    assert_true(isinf(eqf_tree_cost(x, c)));
    REFUSED(eqf_extraction_text(x, f.root, false, 0, &text));
    OK(eqf_undo(f.g, mark)); /* it is as it was */
    OK(eqf_extraction_text(x, f.root, false, 0, &text));
    OK(eqf_union(f.g, f.root, (eqf_class){1}, TEXT("why"), NULL));
    OK(eqf_rebuild(f.g));
    REFUSED(eqf_extraction_text(x, f.root, false, 0, &text));
    eqf_extraction_free(x);
    close_graph(&f);
    close_graph(&other);
}

/* ---- callbacks that change the e-graph ------------------------------------------------------- */

enum { TIMES = 4 };

static void add_later(void *user, eqf_egraph *g, int64_t iteration)
{
    int *calls = user;
    char term[40];
    eqf_class c;
    (void)iteration;
    if ((*calls)++ >= TIMES)
        return;
    snprintf(term, sizeof term, "(f n%d)", *calls);
    OK(eqf_add_text(g, TEXT(term), &c));
}

static bool add_before(void *user, eqf_egraph *g)
{
    add_later(user, g, 0);
    return false;
}

static void unite_later(void *user, eqf_egraph *g, int64_t iteration)
{
    fixture *f = user;
    eqf_class a, b;
    (void)iteration;
    OK(eqf_lookup_text(f->g, TEXT("(k a)"), &a));
    OK(eqf_lookup_text(f->g, TEXT("(k b)"), &b));
    if (eqf_find(g, a).i == eqf_find(g, b).i)
        return;
    OK(eqf_lookup_text(f->g, TEXT("a"), &a));
    OK(eqf_lookup_text(f->g, TEXT("b"), &b));
    OK(eqf_union(g, a, b, TEXT("later"), NULL));
}

/* The run goes on until what they added is searched, too. */
static void test_callbacks(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        fixture f = open_graph();
        int calls = 0;
        int64_t wrapped;
        eqf_schedule s = {.goal = before ? add_before : no_goal,
                          .after = before ? NULL : add_later, .user = &calls};
        eqf_run_report report;
        OK(eqf_run(f.g, f.rules, &s, &report));
        assert_int_equal(report.stop, EQF_STOP_SATURATED);
        assert_true(report.changed);
        OK(eqf_match_count(f.g, TEXT("(g ?x)"), (eqf_class){0}, -1, &wrapped));
        assert_int_equal(wrapped, 1 + TIMES);
        close_graph(&f);
    }
    fixture f = open_graph();
    eqf_rules *rules;
    OK(eqf_rules_load(f.lang, "same.rules", TEXT("(rule same (pair ?x ?x) => (one ?x))"), &rules));
    eqf_class c, found;
    OK(eqf_add_text(f.g, TEXT("(pair (k a) (k b))"), &c));
    eqf_schedule s = {.after = unite_later, .user = &f};
    eqf_run_report report;
    OK(eqf_run(f.g, rules, &s, &report));
    assert_int_equal(report.stop, EQF_STOP_SATURATED);
    OK(eqf_lookup_text(f.g, TEXT("(one (k a))"), &found));
    assert_int_equal(eqf_find(f.g, found).i, eqf_find(f.g, c).i);
    OK(eqf_check(f.g));
    eqf_rules_free(f.rules);
    f.rules = rules;
    close_graph(&f);
}

/* ---- numbers at their limits ----------------------------------------------------------------- */

static void test_numbers(void **state)
{
    (void)state;
    static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, INT64_MAX / 3, INT64_MAX};
    for (size_t i = 0; i < 36; i++) {
        fixture f = open_graph();
        eqf_class c;
        OK(eqf_add_text(f.g, TEXT("(+ p (+ q (+ r (+ s (+ t u)))))"), &c));
        eqf_schedule s = {.backoff_limit = numbers[i % 6], .backoff_ban = numbers[i / 6]};
        eqf_limits l = eqf_limits_default();
        l.nodes = 2000;
        l.iterations = 100;
        eqf_egraph_set_limits(f.g, l);
        eqf_run_report report;
        OK(eqf_run(f.g, f.rules, &s, &report));
        assert_true(report.stop == EQF_STOP_SATURATED || report.stop == EQF_STOP_ITERATIONS);
        close_graph(&f);
    }
}

/* A limit of bytes is a reason to stop, wherever the run notices it, and lifting it goes on. */
static void test_bytes(void **state)
{
    (void)state;
    for (int64_t bytes = 0; bytes < 40000; bytes += 97) {
        fixture f = open_graph();
        eqf_limits l = eqf_limits_none();
        eqf_run_report report;
        l.nodes = 40; /* both limits are near each other */
        l.bytes = bytes;
        eqf_egraph_set_limits(f.g, l);
        OK(eqf_run(f.g, f.rules, NULL, &report));
        assert_true(report.stop == EQF_STOP_BYTES || report.stop == EQF_STOP_SATURATED ||
                    report.stop == EQF_STOP_NODES);
        l = eqf_limits_none();
        eqf_egraph_set_limits(f.g, l);
        OK(eqf_run(f.g, f.rules, NULL, &report));
        assert_int_equal(report.stop, EQF_STOP_SATURATED);
        close_graph(&f);
    }
}

static double cost_of(void *user, const eqf_egraph *g, eqf_node n)
{
    (void)g;
    (void)n;
    return *(double *)user;
}

/* Costs that a file cannot hold are refused, others come back. */
static void test_costs(void **state)
{
    (void)state;
    fixture f = open_graph();
    double value[] = {-1, (double)NAN, (double)INFINITY, 0, 1.7e308};
    for (size_t i = 0; i < 5; i++) {
        eqf_cost cost = {.of = cost_of, .user = &value[i]};
        char *text;
        eqf_status s = eqf_write_json(f.g, &f.root, 1, &cost, &text);
        assert_int_equal(s, i < 3 ? EQF_E_ARGUMENT : EQF_OK);
        if (s)
            continue;
        eqf_gym *gym;
        OK(eqf_read_json(f.ctx, "own.json", TEXT(text), &gym));
        eqf_gym_free(gym);
        eqf_text_free(f.ctx, text);
    }
    close_graph(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),       cmocka_unit_test(test_heads),
        cmocka_unit_test(test_folded),    cmocka_unit_test(test_missing),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
