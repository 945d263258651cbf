/* The public interface as a caller uses it: the worked example, own analyses, guards, costs and
 * cancel flag, every failing allocation, undo, extraction against brute force, JSON round trips. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "egraph/egraph.h"

#define TEXT(s) eqf_text_of(s)
#define OK(call) assert_int_equal((call), EQF_OK)

/* ---- the worked example of docs/egraph.md --------------------------------------------------- */

static void test_example(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
    eqf_class root;
    eqf_run_report report;
    eqf_extraction *best;
    const char *text;

    OK(eqf_lang_new(ctx, &lang));
    OK(eqf_rules_load(lang, "example.rules",
                      TEXT("(rule comm  (+ ?a ?b) => (+ ?b ?a))"
                           "(rule zero  (+ ?a 0) => ?a)"
                           "(rule twice (+ ?a ?a) => (* 2 ?a))"),
                      &rules));
    OK(eqf_egraph_new(lang, NULL, &g));
    OK(eqf_add_text(g, TEXT("(+ (+ 0 x) x)"), &root));
    OK(eqf_run(g, rules, NULL, &report));
    assert_int_equal(report.stop, EQF_STOP_SATURATED);
    OK(eqf_extract(g, &root, 1, NULL, EQF_TREE, &best));
    OK(eqf_extraction_text(best, root, false, 0, &text));
    assert_true(strcmp(text, "(* 2 x)") == 0 || strcmp(text, "(+ x x)") == 0);
    eqf_extraction_free(best);
    eqf_egraph_free(g);
    eqf_rules_free(rules);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

/* ---- analyses, guards, limits --------------------------------------------------------------- */

/* Heads of one operator with other payloads are other e-nodes, however many are looked through: many
 * members of a class on the way down, many users on the way up. */
static void test_payloads(void **state)
{
    (void)state;
    enum { CLASSES = 300, MEMBERS = 20 };
    static const char *const rules_text[] = {"(rule down (g (f ?x)) => (hit ?x))",
                                             "(rule up (f (k ?x)) => (hit ?x))"};
    for (int k = 0; k < 4; k++) {
        bool up = k & 1;
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        eqf_lang *lang;
        eqf_rules *rules;
        eqf_egraph *g;
        eqf_op f, over;
        OK(eqf_lang_new(ctx, &lang));
        OK(eqf_rules_load(lang, "rules", TEXT(rules_text[up]), &rules));
        OK(eqf_lang_op(lang, "f", 1, 0, &f));
        OK(eqf_lang_op(lang, up ? "k" : "g", 1, 0, &over));
        eqf_options o = {.limits = {.iterations = 1, .nodes = -1, .bytes = -1, .seconds = -1}};
        OK(eqf_egraph_new(lang, &o, &g));
        eqf_head head, plain;
        OK(eqf_head_of(lang, over, 0, &plain));
        for (int i = 0; i < CLASSES; i++) {
            char name[32];
            eqf_class leaf, c = {0}, made;
            snprintf(name, sizeof name, "x%d", i);
            OK(eqf_add_text(g, TEXT(name), &leaf));
            if (up)
                OK(eqf_add(g, plain, &leaf, 1, &c));
            for (uint32_t j = 0; j < MEMBERS; j++) { /* one of each class has payload 0 */
                OK(eqf_head_of(lang, f, j, &head));
                OK(eqf_add(g, head, up ? &c : &leaf, 1, &made));
                if (!up && j)
                    OK(eqf_union(g, c, made, TEXT("one"), NULL));
                else if (!up)
                    c = made;
            }
            if (!up)
                OK(eqf_add(g, plain, &c, 1, &made));
        }
        eqf_schedule s = {.scheduler = EQF_SIMPLE,
                          .match = k < 2 ? EQF_MATCH_FULL : EQF_MATCH_DELTA};
        eqf_run_report r;
        OK(eqf_run(g, rules, &s, &r));
        assert_int_equal(r.matches, CLASSES);
        eqf_egraph_free(g);
        eqf_rules_free(rules);
        eqf_lang_free(lang);
        eqf_ctx_free(ctx);
    }
}

typedef struct parity {
    u64 value; /* 0 unknown, 1 even, 2 odd */
} parity;

static void parity_make(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    parity *p = out;
    double v;
    int64_t i;
    bool is_int;
    const eqf_lang *l = user;
    if (eqf_head_is_number(l, eqf_node_head(g, n), &v, &i, &is_int) && is_int)
        p->value = i % 2 == 0 ? 1 : 2;
}

static unsigned parity_merge(void *user, eqf_egraph *g, void *into, const void *from)
{
    (void)user;
    (void)g;
    parity *a = into;
    const parity *b = from;
    if (a->value && b->value)
        return a->value == b->value ? 0 : EQF_CONFLICT;
    if (b->value) {
        a->value = b->value;
        return EQF_INTO_CHANGED;
    }
    return a->value ? EQF_FROM_DIFFERED : 0;
}

static bool is_even(void *user, const eqf_egraph *g, const eqf_class *args)
{
    (void)user;
    return ((const parity *)eqf_data(g, 0, args[0]))->value == 1;
}

static bool yes(void *user)
{
    (void)user;
    return true;
}

static void test_analysis(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
    eqf_class c, d, half;
    eqf_run_report report;
    OK(eqf_lang_new(ctx, &lang));
    eqf_guard guard = {"even", 1, is_even, NULL, true};
    OK(eqf_guard_add(lang, &guard));
    OK(eqf_rules_load(lang, "r", TEXT("(rule halve (half ?a) => (exact ?a) :when (even ?a))"),
                      &rules));
    OK(eqf_egraph_new(lang, NULL, &g));
    eqf_analysis a = {"parity", sizeof(parity), parity_make, parity_merge, NULL, lang};
    OK(eqf_analysis_add(g, &a, NULL));
    OK(eqf_add_text(g, TEXT("(half x)"), &half));
    OK(eqf_run(g, rules, NULL, &report));
    OK(eqf_lookup_text(g, TEXT("(exact x)"), &c));
    assert_int_equal(c.i, 0);
    /* new data of x makes the old match new */
    OK(eqf_union_text(g, TEXT("x"), TEXT("4"), TEXT("given"), NULL));
    OK(eqf_run(g, rules, NULL, &report));
    OK(eqf_lookup_text(g, TEXT("(exact x)"), &c));
    assert_int_equal(eqf_find(g, c).i, eqf_find(g, half).i);
    OK(eqf_check(g));
    /* an odd number cannot be x */
    OK(eqf_lookup_text(g, TEXT("x"), &c));
    OK(eqf_add_text(g, TEXT("7"), &d));
    OK(eqf_union(g, c, d, TEXT("wrong"), NULL));
    assert_int_equal(eqf_rebuild(g), EQF_E_CONTRADICTION);
    eqf_diag diag = eqf_diag_get(ctx, eqf_diag_count(ctx) - 1);
    assert_string_equal(diag.place, "");
    assert_non_null(strstr(diag.message, "parity refuses"));
    eqf_egraph_free(g);
    /* nor can a rule say so; the diagnostic names it and both terms */
    eqf_rules *wrong;
    OK(eqf_rules_load(lang, "w.rules", TEXT("(rule three (half ?x) => 3)(rule other (half ?x) => ?x)"),
                      &wrong));
    OK(eqf_egraph_new(lang, NULL, &g));
    OK(eqf_analysis_add(g, &a, NULL));
    OK(eqf_add_text(g, TEXT("(half 4)"), &half));
    assert_int_equal(eqf_run(g, wrong, NULL, &report), EQF_E_CONTRADICTION);
    diag = eqf_diag_get(ctx, eqf_diag_count(ctx) - 1);
    assert_string_equal(diag.place, "other");
    assert_non_null(strstr(diag.message, "parity refuses"));
    assert_non_null(strstr(diag.message, "4"));
    assert_non_null(strstr(diag.message, "3"));
    eqf_egraph_free(g);
    eqf_rules_free(wrong);
    /* a flag that is up stops a run at once */
    eqf_options o = {.limits = eqf_limits_none(), .cancelled = yes};
    OK(eqf_egraph_new(lang, &o, &g));
    OK(eqf_analysis_add(g, &a, NULL));
    OK(eqf_add_text(g, TEXT("(half 4)"), &half));
    OK(eqf_run(g, rules, NULL, &report));
    assert_int_equal(report.stop, EQF_STOP_CANCELLED);
    eqf_egraph_free(g);
    eqf_rules_free(rules);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

/* ---- allocation failure --------------------------------------------------------------------- */

typedef struct failing {
    long left;
    long live;
} failing;

static void *failing_resize(void *user, void *p, size_t old_size, size_t size)
{
    failing *f = user;
    (void)old_size;
    if (size == 0) {
        f->live -= p != NULL;
        free(p);
        return NULL;
    }
    if (f->left >= 0 && f->left-- == 0) {
        f->left = 0; /* and every one after it */
        return NULL;
    }
    void *q = realloc(p, size);
    f->live += p == NULL && q != NULL;
    return q;
}

/* Everything from the language to a proof; returns how it ended. */
static eqf_status story(eqf_ctx *ctx)
{
    eqf_lang *lang = NULL;
    eqf_rules *rules = NULL;
    eqf_egraph *g = NULL;
    eqf_extraction *x = NULL;
    eqf_proof *proof = NULL;
    char *text = NULL;
    eqf_class root;
    eqf_mark mark;
    eqf_run_report report;
    eqf_options o = {.limits = {6, 2000, -1, -1}, .explain = true};
    eqf_schedule sched = {.scheduler = EQF_SIMPLE};
    eqf_status s = eqf_lang_new(ctx, &lang);
    if (!s)
        s = eqf_rules_load(lang, "r", TEXT("(rule c (+ ?a ?b) => (+ ?b ?a))"
                                           "(rule a (+ ?a (+ ?b ?c)) => (+ (+ ?a ?b) ?c))"),
                           &rules);
    if (!s)
        s = eqf_egraph_new(lang, &o, &g);
    if (!s)
        s = eqf_add_text(g, TEXT("(+ 1 (+ 2 (+ 3 (+ 4 5))))"), &root);
    if (!s)
        s = eqf_mark_open(g, &mark);
    if (!s)
        s = eqf_run(g, rules, &sched, &report);
    if (!s)
        s = eqf_extract(g, &root, 1, NULL, EQF_EXACT, &x);
    if (!s)
        s = eqf_explain(g, TEXT("(+ 1 (+ 2 (+ 3 (+ 4 5))))"), TEXT("(+ (+ 2 1) (+ 3 (+ 4 5)))"),
                        &proof);
    if (!s)
        s = eqf_proof_text(proof, EQF_SHARED, &text);
    if (!s)
        s = eqf_undo(g, mark);
    eqf_text_free(ctx, text);
    eqf_proof_free(proof);
    eqf_extraction_free(x);
    eqf_egraph_free(g);
    eqf_rules_free(rules);
    eqf_lang_free(lang);
    return s;
}

static void test_no_memory(void **state)
{
    (void)state;
    failing f = {-1, 0};
    eqf_allocator al = {failing_resize, &f};
    eqf_ctx *ctx = eqf_ctx_new(&al);
    OK(story(ctx));
    eqf_ctx_free(ctx);
    assert_int_equal(f.live, 0);
    long n = 0;
    for (;; n++) {
        f = (failing){n, 0};
        ctx = eqf_ctx_new(&al);
        if (ctx) {
            eqf_status s = story(ctx);
            if (s != EQF_OK && s != EQF_E_NO_MEMORY)
                fail_msg("allocation %ld: %s", n, eqf_status_name(s));
            eqf_ctx_free(ctx);
            assert_int_equal(f.live, 0);
            if (s == EQF_OK && f.left > 0)
                break;
        }
    }
    assert_true(n > 50);
}

/* A refused add or union leaves the e-graph as it was. */
static void test_intact(void **state)
{
    (void)state;
    failing f = {-1, 0};
    eqf_allocator al = {failing_resize, &f};
    eqf_ctx *ctx = eqf_ctx_new(&al);
    eqf_lang *lang;
    eqf_egraph *g;
    OK(eqf_lang_new(ctx, &lang));
    OK(eqf_egraph_new(lang, NULL, &g));
    eqf_class last = {0};
    eqf_op op;
    eqf_head head;
    OK(eqf_lang_op(lang, "s", 1, 0, &op));
    OK(eqf_head_of(lang, op, 0, &head));
    OK(eqf_add_text(g, TEXT("zero"), &last));
    int refused = 0;
    for (int k = 0; k < 3000; k++) {
        f.left = 0; /* nothing more can be had */
        eqf_class c;
        eqf_size before = eqf_egraph_size(g);
        eqf_status s = eqf_add(g, head, &last, 1, &c);
        f.left = -1;
        if (s) {
            refused++;
            assert_int_equal(s, EQF_E_NO_MEMORY);
            OK(eqf_check(g));
            assert_int_equal(eqf_egraph_size(g).nodes, before.nodes);
            OK(eqf_add(g, head, &last, 1, &c));
        }
        last = c;
    }
    assert_true(refused > 5);
    OK(eqf_check(g));
    eqf_egraph_free(g);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

/* ---- extraction ----------------------------------------------------------------------------- */

enum { MOST_CLASSES = 7, MOST_NODES = 4 };
typedef struct small {
    int classes, nodes[MOST_CLASSES], nkids[MOST_CLASSES][MOST_NODES];
    int kids[MOST_CLASSES][MOST_NODES][3];
    double cost[MOST_CLASSES][MOST_NODES];
} small;

static small random_small(rng *r)
{
    small s = {.classes = 2 + (int)rng_below(r, MOST_CLASSES - 1)};
    for (int c = 0; c < s.classes; c++) {
        s.nodes[c] = 1 + (int)rng_below(r, MOST_NODES);
        for (int n = 0; n < s.nodes[c]; n++) {
            s.cost[c][n] = (double)rng_below(r, 6);
            s.nkids[c][n] = (int)rng_below(r, 4);
            for (int k = 0; k < s.nkids[c][n]; k++)
                s.kids[c][n][k] = (int)rng_below(r, (u64)s.classes);
        }
    }
    return s;
}

static char *small_json(const small *s)
{
    char *text = malloc(1 << 16), *p = text;
    p += sprintf(p, "{\"nodes\": {");
    bool first = true;
    for (int c = 0; c < s->classes; c++) {
        for (int n = 0; n < s->nodes[c]; n++) {
            p += sprintf(p, "%s\"%d.%d\": {\"op\": \"o%d_%d\", \"eclass\": \"c%d\", \"cost\": %g, "
                            "\"children\": [",
                         first ? "" : ", ", c, n, c, n, c, s->cost[c][n]);
            first = false;
            for (int k = 0; k < s->nkids[c][n]; k++)
                p += sprintf(p, "%s\"%d.0\"", k ? ", " : "", s->kids[c][n][k]);
            p += sprintf(p, "]}");
        }
    }
    sprintf(p, "}, \"root_eclasses\": [\"c0\", \"c1\"], \"comment\": [1, {\"x\": null}]}");
    return text;
}

/* Visits what choice needs from class c; false on a cycle. state: 0 new, 1 open, 2 done. */
static bool visit(const small *s, const int *choice, int c, int *seen)
{
    if (seen[c])
        return seen[c] == 2;
    seen[c] = 1;
    for (int k = 0; k < s->nkids[c][choice[c]]; k++) {
        if (!visit(s, choice, s->kids[c][choice[c]][k], seen))
            return false;
    }
    seen[c] = 2;
    return true;
}

static double brute_force(const small *s)
{
    int choice[MOST_CLASSES] = {0};
    double best = (double)INFINITY;
    for (;;) {
        int seen[MOST_CLASSES] = {0};
        if (visit(s, choice, 0, seen) && visit(s, choice, 1, seen)) {
            double cost = 0;
            for (int c = 0; c < s->classes; c++)
                cost += seen[c] ? s->cost[c][choice[c]] : 0;
            best = fmin(best, cost);
        }
        int c = 0;
        while (c < s->classes && ++choice[c] == s->nodes[c])
            choice[c++] = 0;
        if (c == s->classes)
            return best;
    }
}

static double brute_tree(const small *s, double *cost)
{
    for (int c = 0; c < s->classes; c++)
        cost[c] = (double)INFINITY;
    for (bool changed = true; changed;) {
        changed = false;
        for (int c = 0; c < s->classes; c++) {
            for (int n = 0; n < s->nodes[c]; n++) {
                double v = s->cost[c][n];
                for (int k = 0; k < s->nkids[c][n]; k++)
                    v += cost[s->kids[c][n][k]];
                if (v < cost[c]) {
                    cost[c] = v;
                    changed = true;
                }
            }
        }
    }
    return cost[0];
}

static void test_extraction(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    int solved = 0;
    for (unsigned k = 0; k < 600; k++) {
        rng r = rng_new(k);
        small s = random_small(&r);
        double want = brute_force(&s), tree[MOST_CLASSES];
        brute_tree(&s, tree);
        char *json = small_json(&s), *again;
        eqf_gym *gym, *copy;
        size_t n;
        OK(eqf_read_json(ctx, "small", TEXT(json), &gym));
        OK(eqf_check(eqf_gym_egraph(gym)));
        const eqf_class *roots = eqf_gym_roots(gym, &n);
        assert_int_equal(n, 2);
        eqf_cost cost = eqf_gym_cost(gym);
        double found[3] = {0};
        for (int algo = 0; algo < 3; algo++) {
            eqf_extraction *x;
            eqf_status st =
                eqf_extract(eqf_gym_egraph(gym), roots, n, &cost, (eqf_algo)algo, &x);
            assert_int_equal(st, isinf(want) ? EQF_E_DATA : EQF_OK);
            if (st)
                continue;
            found[algo] = eqf_dag_cost(x);
            if (algo == EQF_TREE) {
                assert_true(eqf_tree_cost(x, roots[0]) == tree[0]);
                assert_true(eqf_tree_cost(x, roots[1]) == tree[1]);
            } else if (algo == EQF_EXACT) {
                assert_true(eqf_extraction_report(x).optimal);
            }
            eqf_extraction_free(x);
        }
        if (!isinf(want)) {
            solved++;
            if (found[EQF_EXACT] != want)
                fail_msg("graph %u: exact %g, brute force %g\n%s", k, found[EQF_EXACT], want,
                         json);
            assert_true(found[EQF_DAG] >= want && found[EQF_TREE] >= want);
            assert_true(found[EQF_DAG] <= found[EQF_TREE]);
        }
        char before[33], after[33];
        OK(eqf_digest(eqf_gym_egraph(gym), before));
        OK(eqf_write_json(eqf_gym_egraph(gym), roots, n, &cost, &again));
        OK(eqf_read_json(ctx, "again", TEXT(again), &copy));
        OK(eqf_digest(eqf_gym_egraph(copy), after));
        assert_string_equal(before, after);
        assert_int_equal(eqf_egraph_size(eqf_gym_egraph(copy)).nodes,
                         eqf_egraph_size(eqf_gym_egraph(gym)).nodes);
        eqf_gym_free(copy);
        eqf_gym_free(gym);
        eqf_text_free(ctx, again);
        free(json);
        eqf_ctx_clear(ctx);
    }
    assert_true(solved > 100);
    eqf_ctx_free(ctx);
}

/* ---- extraction at its limits ---------------------------------------------------------------- */

/* Class i of n holds a leaf (0: none) and an e-node over class i - 1, `arity` times. */
static char *chain_json(int n, int arity, double leaf, double step, bool shuffled)
{
    size_t cap = (size_t)n * 200 + (size_t)n * (size_t)arity * 12 + 200, at = 0;
    char *out = malloc(cap);
    int *order = malloc(sizeof *order * (size_t)n);
    assert_non_null(out);
    assert_non_null(order);
    rng r = rng_new(7);
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0 && shuffled; i--) {
        int k = (int)rng_below(&r, (u64)i + 1), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    at += (size_t)snprintf(out, cap, "{\"nodes\":{");
    for (int k = 0; k < n; k++) {
        int i = order[k];
        if (i == 0 || leaf > 0)
            at += (size_t)snprintf(out + at, cap - at, "%s\"l%d\":{\"op\":\"l%d\",\"children\":[],"
                                   "\"eclass\":\"c%d\",\"cost\":%g}", k ? "," : "", i, i, i,
                                   i ? leaf * i : step);
        if (i == 0)
            continue;
        at += (size_t)snprintf(out + at, cap - at, "%s\"n%d\":{\"op\":\"f%d\",\"children\":[",
                               k || leaf > 0 ? "," : "", i, i);
        for (int j = 0; j < arity; j++)
            at += (size_t)snprintf(out + at, cap - at, "%s\"%s%d\"", j ? "," : "",
                                   i == 1 || leaf > 0 ? "l" : "n", i - 1);
        at += (size_t)snprintf(out + at, cap - at, "],\"eclass\":\"c%d\",\"cost\":%g}", i, step);
    }
    snprintf(out + at, cap - at, "},\"root_eclasses\":[\"c%d\"]}", n - 1);
    free(order);
    return out;
}

/* Costs beyond doubles, sets that are replaced again and again, depth, width: each method answers. */
static void test_extremes(void **state)
{
    (void)state;
    static const struct {
        int n, arity;
        double leaf, step, tree, dag;
        bool shuffled;
    } cases[] = {
        {2000, 2, 0, 1, DBL_MAX, 2000, false},        /* a tree of 2^2000 */
        {20, 3, 0, 1e308, DBL_MAX, DBL_MAX, false},   /* both are too large */
        {1000, 1, 100, 10, 10000, 10000, true},       /* leaves that cost more the higher up */
        {20000, 1, 0, 1, 20000, 20000, false},        /* deep */
        {2, 999, 0, 1, 1000, 2, false},               /* wide */
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = chain_json(cases[i].n, cases[i].arity, cases[i].leaf, cases[i].step,
                                cases[i].shuffled), digest[33];
        eqf_gym *gym;
        size_t n;
        OK(eqf_read_json(ctx, "chain", TEXT(json), &gym));
        const eqf_class *roots = eqf_gym_roots(gym, &n);
        eqf_cost cost = eqf_gym_cost(gym);
        for (int algo = 0; algo < 3; algo++) {
            eqf_extraction *x;
            OK(eqf_extract(eqf_gym_egraph(gym), roots, n, &cost, (eqf_algo)algo, &x));
            assert_true(eqf_tree_cost(x, roots[0]) == cases[i].tree);
            assert_true(eqf_dag_cost(x) == cases[i].dag);
            eqf_extraction_free(x);
        }
        OK(eqf_digest(eqf_gym_egraph(gym), digest));
        eqf_gym_free(gym);
        free(json);
    }
    eqf_ctx_free(ctx);
}

/* E-nodes that differ in their class or cost alone stay apart, however many; those that differ in
 * nothing are one. A number may be longer than a double is exact. */
static void test_gym_apart(void **state)
{
    (void)state;
    enum { N = 20000 };
    size_t cap = (size_t)N * 160, at = 0;
    char *json = malloc(cap), digest[33], again[33];
    at += (size_t)snprintf(json, cap, "{\"nodes\": {");
    for (int i = 0; i < N; i++) {
        at += (size_t)snprintf(json + at, cap - at,
                               "\"a%d\": {\"op\": \"x\", \"eclass\": \"%d\", \"cost\": 2},\n", i, i);
        at += (size_t)snprintf(json + at, cap - at,
                               "\"b%d\": {\"op\": \"x\", \"eclass\": \"c\", \"cost\": %d.5},\n", i, i);
    }
    snprintf(json + at, cap - at,
             "\"d\": {\"op\": \"\\ud83d\\ude00\", \"eclass\": \"d\", \"children\": [\"a0\", \"b0\"],"
             "\"cost\": 0.%0*d},"
             "\"e\": {\"op\": \"x\", \"eclass\": \"c\", \"cost\": 7.5}}, \"root_eclasses\": [\"d\"]}",
             90, 1);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (int k = 0; k < 2; k++) {
        eqf_gym *gym;
        eqf_extraction *x;
        size_t n;
        char *written;
        OK(eqf_read_json(ctx, "apart", TEXT(json), &gym));
        const eqf_class *roots = eqf_gym_roots(gym, &n);
        eqf_egraph *g = eqf_gym_egraph(gym);
        assert_int_equal(n, 1);
        assert_int_equal(eqf_egraph_size(g).nodes, 2 * N + 1);
        assert_int_equal(eqf_egraph_size(g).classes, N + 2);
        if (k == 0)
            assert_string_equal(eqf_gym_root_name(gym, 0), "d");
        assert_string_equal(eqf_gym_root_name(gym, 1), "");
        eqf_cost cost = eqf_gym_cost(gym);
        OK(eqf_extract(g, roots, n, &cost, EQF_DAG, &x));
        assert_true(eqf_dag_cost(x) == 2.5);
        eqf_extraction_free(x);
        OK(eqf_digest(g, k ? again : digest));
        OK(eqf_write_json(g, roots, n, &cost, &written));
        free(json);
        json = strdup(written);
        eqf_text_free(ctx, written);
        eqf_gym_free(gym);
    }
    assert_string_equal(digest, again);
    free(json);
    eqf_ctx_free(ctx);
}

/* A deep term is written without recursion, and not at all beyond the limit of characters. */
static void test_deep_text(void **state)
{
    (void)state;
    enum { DEPTH = 200000 };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_lang *lang;
    eqf_egraph *g;
    eqf_op f;
    eqf_head head;
    eqf_class c, over;
    eqf_options o = {.limits = eqf_limits_none()};
    eqf_extraction *x;
    const char *text;
    OK(eqf_lang_new(ctx, &lang));
    OK(eqf_lang_op(lang, "f", 1, 0, &f));
    OK(eqf_head_of(lang, f, 0, &head));
    OK(eqf_egraph_new(lang, &o, &g));
    OK(eqf_add_text(g, TEXT("a"), &c));
    for (int i = 0; i < DEPTH; i++, c = over)
        OK(eqf_add(g, head, &c, 1, &over));
    OK(eqf_extract(g, &c, 1, NULL, EQF_TREE, &x));
    for (int shared = 0; shared < 2; shared++) {
        OK(eqf_extraction_text(x, c, shared, 0, &text));
        assert_int_equal(strlen(text), 4 * DEPTH + 1);
        assert_int_equal(eqf_extraction_text(x, c, shared, 1000, &text), EQF_E_LIMIT);
    }
    eqf_extraction_free(x);
    eqf_egraph_free(g);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

static void test_output(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_lang *lang;
    eqf_egraph *g;
    eqf_class root;
    char *text;
    OK(eqf_lang_new(ctx, &lang));
    OK(eqf_egraph_new(lang, NULL, &g));
    OK(eqf_add_text(g, TEXT("(f \"a b\" (f 1.5 1.5))"), &root));
    OK(eqf_dump(g, &text));
    assert_string_equal(text, "(egraph 1\n  (class c1 (\"a b\"))\n  (class c2 (1.5))\n"
                              "  (class c3 (f c2 c2))\n  (class c4 (f c1 c3))\n)\n");
    eqf_text_free(ctx, text);
    OK(eqf_dot(g, &text));
    assert_non_null(strstr(text, "subgraph cluster_4"));
    eqf_text_free(ctx, text);
    OK(eqf_write_json(g, &root, 1, NULL, &text));
    assert_non_null(strstr(text, "\"op\": \"a b\""));
    eqf_text_free(ctx, text);
    eqf_extraction *x;
    const char *term;
    OK(eqf_extract(g, &root, 1, NULL, EQF_DAG, &x));
    assert_true(eqf_dag_cost(x) == 4 && eqf_tree_cost(x, root) == 5);
    OK(eqf_extraction_text(x, root, true, 0, &term));
    assert_string_equal(term, "(f \"a b\" (f 1.5 1.5))");
    assert_int_equal(eqf_extraction_text(x, root, false, 3, &term), EQF_E_LIMIT);
    eqf_extraction_free(x);
    eqf_egraph_free(g);
    eqf_lang_free(lang);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),   cmocka_unit_test(test_analysis),
        cmocka_unit_test(test_payloads),  cmocka_unit_test(test_gym_apart),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_intact),
        cmocka_unit_test(test_extraction), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_deep_text),  cmocka_unit_test(test_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
