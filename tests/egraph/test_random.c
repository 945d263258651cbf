/* Random programs and rule sets: full, delta and automatic search give one e-graph; a run after an
 * undo repeats byte for byte; the self-check passes after each run; every equality between start
 * terms has a proof that the checker accepts.
 *
 *     test_egraph_random [PROGRAMS [SEED]]        default 400 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "egraph/rules.h"

static long programs = 400;
static unsigned long long seed = 20240611;

/* ---- random text --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int arity;
} ops[] = {{"f", 1}, {"g", 2}, {"h", 2}, {"k", 3}};
static const char *const leaves[] = {"a", "b", "c", "0", "1"};
static const char *const vars[] = {"?x", "?y", "?z"};

static void pick_leaf(rng *r, str *s)
{
    str_add(s, leaves[rng_below(r, 5)]);
}

static void random_term(rng *r, str *s, int depth)
{
    if (depth == 0 || rng_below(r, 3) == 0) {
        pick_leaf(r, s);
        return;
    }
    u64 op = rng_below(r, 10) == 0 ? 3 : rng_below(r, 3);
    str_printf(s, "(%s", ops[op].name);
    for (int i = 0; i < ops[op].arity; i++) {
        str_add_char(s, ' ');
        random_term(r, s, depth - 1);
    }
    str_add_char(s, ')');
}

/* `allowed`: bit per variable; variables used are added to *used. */
static void random_pattern(rng *r, str *s, int depth, bool root, unsigned allowed, unsigned *used)
{
    if (!root && (depth == 0 || rng_below(r, 2) == 0)) {
        u64 v = rng_below(r, 3);
        if (rng_below(r, 6) == 0 || !(allowed >> v & 1)) {
            pick_leaf(r, s);
        } else {
            *used |= 1u << v;
            str_add(s, vars[v]);
        }
        return;
    }
    u64 op = rng_below(r, 8) == 0 ? 3 : rng_below(r, 3);
    str_printf(s, "(%s", ops[op].name);
    for (int i = 0; i < ops[op].arity; i++) {
        str_add_char(s, ' ');
        random_pattern(r, s, depth - 1, false, allowed, used);
    }
    str_add_char(s, ')');
}

/* With `guarded`, some rules ask for a class that holds the leaf 0. */
static void random_rules(rng *r, bool guarded, str *s)
{
    u64 n = 1 + rng_below(r, 4);
    for (u64 i = 0; i < n; i++) {
        unsigned used = 0, again = 0;
        if (rng_below(r, 8) == 0) { /* a multipattern */
            bool own = rng_below(r, 2); /* the class may be a child of its own e-node */
            const char *p = own ? "?x" : "?p";
            used = own;
            str_printf(s, "(multi r%llu (%s ", (unsigned long long)i, p);
            random_pattern(r, s, 1, true, 7, &used);
            str_add(s, ") (?q ");
            random_pattern(r, s, 1, true, 7, &used);
            str_printf(s, rng_below(r, 2) ? ") => (%s ?q))\n" : ") => (%s ", p);
            if (str_text(s)[s->n - 1] == ' ') {
                random_pattern(r, s, 1, true, used, &again);
                str_add(s, "))\n");
            }
            continue;
        }
        str_printf(s, "(rule r%llu ", (unsigned long long)i);
        random_pattern(r, s, 2, true, 7, &used);
        str_add(s, " => ");
        random_pattern(r, s, 2, rng_below(r, 3) != 0, used, &again);
        if (guarded && used && rng_below(r, 2))
            str_printf(s, " :when (zero %s)", vars[used & 1 ? 0 : used & 2 ? 1 : 2]);
        else if (rng_below(r, 6) == 0 && (used & 3) == 3)
            str_add(s, rng_below(r, 2)   ? " :when (distinct ?x ?y)"
                       : rng_below(r, 2) ? " :when (eq (f ?x) (g ?x ?y))"
                                         : " :when (eq ?x (f ?x))");
        str_add(s, ")\n");
    }
}

/* ---- one program --------------------------------------------------------------------------- */

typedef struct program {
    eqf_ctx *ctx;
    arena *a;
    const char *rules;
    const char *terms[6];
    int unions[4];
    int nterms, nunions;
    bool commutative, guarded;
} program;

static program make(eqf_ctx *ctx, arena *a, rng *r)
{
    program p = {.ctx = ctx, .a = a};
    str s = str_new(a);
    p.guarded = rng_below(r, 4) == 0;
    random_rules(r, p.guarded, &s);
    p.rules = str_text(&s);
    p.nterms = 2 + (int)rng_below(r, 4);
    for (int i = 0; i < p.nterms; i++) {
        str t = str_new(a);
        random_term(r, &t, 3);
        p.terms[i] = str_text(&t);
    }
    p.nunions = (int)rng_below(r, 3);
    for (int i = 0; i < 2 * p.nunions; i++)
        p.unions[i] = (int)rng_below(r, (u64)p.nterms);
    p.commutative = rng_below(r, 4) == 0;
    return p;
}

typedef struct graph {
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
} graph;

/* An analysis whose datum is which of the leaves 0 and 1 a class holds; the guard reads it. */
static void make_leaves(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    (void)user;
    eqf_head h = eqf_node_head(g, n);
    double value = -1;
    bool is_int;
    int64_t i;
    if (eqf_head_is_number(eqf_egraph_lang(g), h, &value, &i, &is_int) && value >= 0)
        *(u32 *)out = 1u << i;
    else
        *(u32 *)out = 0;
}

static unsigned merge_leaves(void *user, eqf_egraph *g, void *into, const void *from)
{
    (void)user, (void)g;
    u32 *a = into, b = *(const u32 *)from, both = *a | b;
    unsigned bits = (both != *a ? (unsigned)EQF_INTO_CHANGED : 0) |
                    (both != b ? (unsigned)EQF_FROM_DIFFERED : 0);
    *a = both;
    return bits;
}

static bool holds_zero(void *user, const eqf_egraph *g, const eqf_class *args)
{
    (void)user;
    return *(const u32 *)eqf_data(g, 0, args[0]) & 1;
}

static graph build(const program *p, bool explain)
{
    graph x;
    eqf_op op;
    assert_int_equal(eqf_lang_new(p->ctx, &x.lang), EQF_OK);
    if (p->commutative)
        assert_int_equal(eqf_lang_op(x.lang, "g", 2, EQF_COMMUTATIVE, &op), EQF_OK);
    eqf_guard zero = {.name = "zero", .arity = 1, .holds = holds_zero, .reads_data = true};
    if (p->guarded)
        assert_int_equal(eqf_guard_add(x.lang, &zero), EQF_OK);
    assert_int_equal(eqf_rules_load(x.lang, "random", eqf_text_of(p->rules), &x.rules), EQF_OK);
    eqf_options o = {.limits = {6, 3000, -1, -1}, .explain = explain};
    assert_int_equal(eqf_egraph_new(x.lang, &o, &x.g), EQF_OK);
    eqf_analysis leaves_held = {.name = "leaves", .size = sizeof(u32), .make = make_leaves,
                                .merge = merge_leaves};
    unsigned index;
    if (p->guarded)
        assert_int_equal(eqf_analysis_add(x.g, &leaves_held, &index), EQF_OK);
    for (int i = 0; i < p->nterms; i++) {
        eqf_class c;
        assert_int_equal(eqf_add_text(x.g, eqf_text_of(p->terms[i]), &c), EQF_OK);
    }
    for (int i = 0; i < p->nunions; i++)
        assert_int_equal(eqf_union_text(x.g, eqf_text_of(p->terms[p->unions[2 * i]]),
                                        eqf_text_of(p->terms[p->unions[2 * i + 1]]),
                                        eqf_text_of("given"), NULL),
                         EQF_OK);
    assert_int_equal(eqf_rebuild(x.g), EQF_OK);
    return x;
}

static void drop(graph *x)
{
    eqf_egraph_free(x->g);
    eqf_rules_free(x->rules);
    eqf_lang_free(x->lang);
}

static void check(const graph *x, const program *p)
{
    eqf_status s = eqf_check(x->g);
    if (s)
        fail_msg("%s\n%s", eqf_diag_get(p->ctx, eqf_diag_count(p->ctx) - 1).message, p->rules);
}

static eqf_run_report run(const graph *x, eqf_match_mode match)
{
    eqf_schedule s = {.match = match, .scheduler = EQF_SIMPLE};
    eqf_run_report r;
    assert_int_equal(eqf_run(x->g, x->rules, &s, &r), EQF_OK);
    return r;
}

static void explain_all(const graph *x, const program *p)
{
    str axioms = str_new(p->a);
    for (int i = 0; i < p->nunions; i++)
        str_printf(&axioms, "(axiom given %s %s)\n", p->terms[p->unions[2 * i]],
                   p->terms[p->unions[2 * i + 1]]);
    eqf_checking given = {.rules = eqf_text_of(p->rules),
                          .axioms = {str_text(&axioms), (size_t)axioms.n},
                          .commutative = eqf_text_of(p->commutative ? "g" : "")};
    for (int i = 0; i < p->nterms; i++) {
        for (int j = 0; j < p->nterms; j++) {
            eqf_text a = eqf_text_of(p->terms[i]), b = eqf_text_of(p->terms[j]);
            eqf_class c, d;
            assert_int_equal(eqf_lookup_text(x->g, a, &c), EQF_OK);
            assert_int_equal(eqf_lookup_text(x->g, b, &d), EQF_OK);
            if (i == j || eqf_find(x->g, c).i != eqf_find(x->g, d).i)
                continue;
            eqf_proof *proof;
            eqf_check_report report;
            eqf_status made = eqf_explain(x->g, a, b, &proof);
            if (made)
                fail_msg("%s = %s: %s\n%s%s", p->terms[i], p->terms[j],
                         eqf_diag_get(p->ctx, eqf_diag_count(p->ctx) - 1).message, p->rules,
                         str_text(&axioms));
            for (int form = 0; form < 3; form++) { /* shared, flat, reduced */
                char *text;
                if (form == 1 && eqf_proof_length(proof) > 300)
                    continue;
                if (form == 2 && eqf_proof_reduce(x->g, proof))
                    fail_msg("%s = %s: %s\n%s%s", p->terms[i], p->terms[j],
                             eqf_diag_get(p->ctx, eqf_diag_count(p->ctx) - 1).message, p->rules,
                             str_text(&axioms));
                assert_int_equal(
                    eqf_proof_text(proof, form == 1 ? EQF_FLAT : EQF_SHARED, &text), EQF_OK);
                eqf_status s = eqf_proof_check(p->ctx, eqf_text_of(text), a, b, &given, &report);
                if (s)
                    fail_msg("%s = %s: %s\n%s%s\n%s", p->terms[i], p->terms[j],
                             eqf_diag_get(p->ctx, eqf_diag_count(p->ctx) - 1).message, p->rules,
                             str_text(&axioms), text);
                eqf_text_free(p->ctx, text);
            }
            eqf_proof_free(proof);
        }
    }
}

static void one_program(rng *r, long number)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    program p = make(ctx, a, r);
    char digest[3][33], start[33], back[33];
    eqf_run_report reports[3];
    for (int mode = 0; mode < 3; mode++) {
        graph x = build(&p, false);
        reports[mode] = run(&x, (eqf_match_mode)mode);
        check(&x, &p);
        assert_int_equal(eqf_digest(x.g, digest[mode]), EQF_OK);
        drop(&x);
    }
    /* a run that reached the node limit stops somewhere in its last iteration */
    bool whole = reports[0].stop != EQF_STOP_NODES && reports[1].stop != EQF_STOP_NODES &&
                 reports[2].stop != EQF_STOP_NODES;
    /* when a guard turns true depends on the order; what is there at the end does not */
    for (int mode = 0; mode < 3 && p.guarded; mode++)
        whole = whole && reports[mode].stop == EQF_STOP_SATURATED;
    for (int mode = 1; mode < 3 && whole; mode++) {
        if (strcmp(digest[0], digest[mode]) != 0 || reports[0].stop != reports[mode].stop)
            fail_msg("program %ld: mode %d differs from automatic\n%s", number, mode, p.rules);
    }
    bool explained = number % 3 == 0;
    graph x = build(&p, explained);
    char *first, *second;
    eqf_mark mark;
    assert_int_equal(eqf_digest(x.g, start), EQF_OK);
    assert_int_equal(eqf_mark_open(x.g, &mark), EQF_OK);
    run(&x, EQF_MATCH_AUTO);
    check(&x, &p);
    assert_int_equal(eqf_dump(x.g, &first), EQF_OK);
    assert_int_equal(eqf_undo(x.g, mark), EQF_OK);
    check(&x, &p);
    assert_int_equal(eqf_digest(x.g, back), EQF_OK);
    assert_string_equal(start, back);
    assert_int_equal(eqf_mark_open(x.g, &mark), EQF_OK);
    run(&x, EQF_MATCH_AUTO);
    assert_int_equal(eqf_dump(x.g, &second), EQF_OK);
    assert_string_equal(first, second);
    assert_int_equal(eqf_keep(x.g, mark), EQF_OK);
    check(&x, &p);
    eqf_text_free(ctx, first);
    eqf_text_free(ctx, second);
    if (explained)
        explain_all(&x, &p);
    drop(&x);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void test_random(void **state)
{
    (void)state;
    for (long i = 0; i < programs; i++) {
        rng r = rng_new(seed + (unsigned long long)i);
        one_program(&r, i);
    }
}

/* Time is counted in iterations; where it ends, a run ends, and later ones change nothing. */
static void test_end_of_time(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    program p = {.ctx = ctx, .a = a, .rules = "(rule grow (f ?x) => (f (g ?x ?x)))",
                 .terms = {"(f a)"}, .nterms = 1};
    graph x = build(&p, false);
    x.g->now = EG_LAST_TIME - 2;
    eqf_run_report r = run(&x, EQF_MATCH_AUTO);
    check(&x, &p);
    assert_int_equal(r.stop, EQF_STOP_ITERATIONS);
    assert_int_equal(r.iterations, 2);
    i64 nodes = eqf_egraph_size(x.g).nodes;
    assert_int_equal(run(&x, EQF_MATCH_AUTO).iterations, 0);
    assert_int_equal(eqf_egraph_size(x.g).nodes, nodes);
    drop(&x);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_end_of_time)};
    if (argc > 1)
        programs = strtol(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
