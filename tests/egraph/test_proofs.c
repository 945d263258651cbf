/* The checker: derivations of a saturated e-graph are accepted, and each of 1,000 with one symbol
 * changed is refused. Proofs and their printed forms are the same in every run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "egraph/rules.h"

static const char rules_text[] =
    "(rule comm-add (+ ?a ?b) => (+ ?b ?a))\n"
    "(rule assoc-add (+ ?a (+ ?b ?c)) <=> (+ (+ ?a ?b) ?c))\n"
    "(rule zero-mul (* ?a zero) => zero)\n"
    "(rule distribute (* ?a (+ ?b ?c)) => (+ (* ?a ?b) (* ?a ?c)))\n"
    "(rule square (* ?a ?a) => (sq ?a) :when (eq (even ?a) yes))\n"
    "(multi twins (?p (twin ?a ?c)) (?q (twin ?b ?c)) => (?p ?q) :when (distinct ?a ?b))\n";
static const char axioms_text[] = "(axiom given (even x) yes)\n(axiom renamed y w)\n";

typedef struct fixture {
    eqf_ctx *ctx;
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
} fixture;

static const char *const pairs[][2] = {
    {"(+ (+ x y) (+ z w))", "(+ w (+ z (+ y x)))"},
    {"(* x (+ y zero))", "(+ (* x w) zero)"},
    {"(f (* x x))", "(f (sq x))"},
    {"(twin x z)", "(twin y z)"},
    {"(g (+ x y) (* y (+ x z)))", "(g (+ w x) (+ (* y x) (* w z)))"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static fixture make(void)
{
    fixture f = {.ctx = eqf_ctx_new(NULL)};
    assert_int_equal(eqf_lang_new(f.ctx, &f.lang), EQF_OK);
    assert_int_equal(eqf_rules_load(f.lang, "rules", eqf_text_of(rules_text), &f.rules), EQF_OK);
    eqf_options o = {.limits = {8, 20000, -1, -1}, .explain = true};
    assert_int_equal(eqf_egraph_new(f.lang, &o, &f.g), EQF_OK);
    for (int i = 0; i < PAIRS; i++) {
        for (int k = 0; k < 2; k++) {
            eqf_class c;
            assert_int_equal(eqf_add_text(f.g, eqf_text_of(pairs[i][k]), &c), EQF_OK);
        }
    }
    eqf_text given = eqf_text_of("given"), renamed = eqf_text_of("renamed");
    assert_int_equal(
        eqf_union_text(f.g, eqf_text_of("(even x)"), eqf_text_of("yes"), given, NULL), EQF_OK);
    assert_int_equal(eqf_union_text(f.g, eqf_text_of("y"), eqf_text_of("w"), renamed, NULL),
                     EQF_OK);
    eqf_run_report r;
    eqf_schedule s = {.scheduler = EQF_SIMPLE};
    assert_int_equal(eqf_run(f.g, f.rules, &s, &r), EQF_OK);
    return f;
}

static void drop(fixture *f)
{
    eqf_egraph_free(f->g);
    eqf_rules_free(f->rules);
    eqf_lang_free(f->lang);
    eqf_ctx_free(f->ctx);
}

static char *proof_text(fixture *f, int pair, eqf_form form)
{
    eqf_proof *p;
    char *text;
    assert_int_equal(
        eqf_explain(f->g, eqf_text_of(pairs[pair][0]), eqf_text_of(pairs[pair][1]), &p), EQF_OK);
    assert_int_equal(eqf_proof_text(p, form, &text), EQF_OK);
    eqf_proof_free(p);
    return text;
}

static eqf_status check(fixture *f, int pair, const char *text)
{
    eqf_checking given = {.rules = eqf_text_of(rules_text), .axioms = eqf_text_of(axioms_text)};
    eqf_check_report report;
    return eqf_proof_check(f->ctx, eqf_text_of(text), eqf_text_of(pairs[pair][0]),
                           eqf_text_of(pairs[pair][1]), &given, &report);
}

static void test_accepts(void **state)
{
    (void)state;
    fixture f = make();
    for (int i = 0; i < PAIRS; i++) {
        for (int form = EQF_SHARED; form <= EQF_FLAT; form++) {
            char *text = proof_text(&f, i, (eqf_form)form);
            if (check(&f, i, text))
                fail_msg("%s\n%s", eqf_diag_get(f.ctx, 0).message, text);
            /* the same text proves no other pair */
            assert_int_equal(check(&f, (i + 1) % PAIRS, text), EQF_E_MISMATCH);
            eqf_text_free(f.ctx, text);
        }
    }
    drop(&f);
}

/* One atom of a flat proof becomes another; the header, positions' brackets and spaces stay. */
static void test_tampered(void **state)
{
    (void)state;
    fixture f = make();
    rng r = rng_new(7);
    static const char *const others[] = {"x", "q", "+", "zero", "0", "3", "comm-add", "square"};
    char *texts[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        texts[i] = proof_text(&f, i, EQF_FLAT);
    for (int k = 0; k < 1000; k++) {
        int pair = (int)rng_below(&r, PAIRS);
        const char *text = texts[pair];
        size_t n = strlen(text), start, end;
        const char *other;
        for (;;) {
            start = (size_t)rng_below(&r, n);
            while (start > 0 && !strchr(" ()\n\"", text[start - 1]))
                start--;
            end = start;
            while (end < n && !strchr(" ()\n\"", text[end]))
                end++;
            other = others[rng_below(&r, 8)];
            if (end > start && (strlen(other) != end - start ||
                                strncmp(text + start, other, end - start) != 0))
                break;
        }
        char *bad = malloc(n + 32);
        sprintf(bad, "%.*s%s%s", (int)start, text, other, text + end);
        eqf_ctx_clear(f.ctx);
        if (check(&f, pair, bad) == EQF_OK)
            fail_msg("accepted with %.*s changed to %s at %zu:\n%s", (int)(end - start),
                     text + start, other, start, text);
        free(bad);
    }
    for (int i = 0; i < PAIRS; i++)
        eqf_text_free(f.ctx, texts[i]);
    drop(&f);
}

/* Everything that can be printed: the dump, the digest, all proofs in both forms. */
static void print_all(void)
{
    fixture f = make();
    char *text, digest[33];
    assert_int_equal(eqf_dump(f.g, &text), EQF_OK);
    assert_int_equal(eqf_digest(f.g, digest), EQF_OK);
    printf("%s%s\n", text, digest);
    eqf_text_free(f.ctx, text);
    for (int i = 0; i < PAIRS; i++) {
        for (int form = EQF_SHARED; form <= EQF_FLAT; form++) {
            text = proof_text(&f, i, (eqf_form)form);
            printf("%s\n", text);
            eqf_text_free(f.ctx, text);
        }
    }
    drop(&f);
}

/* What print_all writes, whatever compiler made it. Another order of search may change it, an address
 * may not. */
static const char printed[] = "5f70b68026308617545fc8bb3fed2a68";

static const char *self;

/* Twenty processes, each with other addresses. */
static void test_same(void **state)
{
    (void)state;
    char command[4096];
    enum { ROOM = 1 << 22 };
    char *text = malloc(ROOM), digest[33];
    assert_non_null(text);
    snprintf(command, sizeof command, "'%s' --print", self);
    for (int k = 0; k < 20; k++) {
        FILE *p = popen(command, "r");
        assert_non_null(p);
        size_t n = fread(text, 1, ROOM, p);
        assert_int_equal(pclose(p), 0);
        assert_true(n > 1000 && n < ROOM);
        digest_hex(text, (i64)n, digest);
        assert_string_equal(digest, printed);
    }
    free(text);
}

/* (pair (h x) (h y) ...) of the variables, each in its place. */
static eqf_status build_pair(void *user, eqf_egraph *g, eqf_class root, const eqf_class *args,
                             unsigned n, eqf_class *out)
{
    eqf_lang *lang = user;
    eqf_op h, pair;
    eqf_head head;
    eqf_class kids[8];
    (void)root;
    eqf_lang_op(lang, "h", 1, 0, &h);
    eqf_lang_op(lang, "pair", n, 0, &pair);
    for (unsigned i = 0; i < n; i++) {
        eqf_head_of(lang, h, 0, &head);
        eqf_status s = eqf_add(g, head, &args[i], 1, &kids[i]);
        if (s)
            return s;
    }
    eqf_head_of(lang, pair, 0, &head);
    return eqf_add(g, head, kids, n, out);
}

static eqf_verdict judge_pair(void *user, const char *reason, const char *left, const char *right)
{
    (void)user;
    (void)reason;
    bool same = strcmp(left, "(f x y)") == 0 && strcmp(right, "(pair (h x) (h y))") == 0;
    bool three = strcmp(left, "(f x z y)") == 0 && strcmp(right, "(pair (h x) (h z) (h y))") == 0;
    return same || three ? EQF_HOLDS : EQF_REFUSED;
}

/* A right side that is computed names each variable where it was used, also when the classes of
 * several are one. */
static void test_one_class(void **state)
{
    (void)state;
    static const char *const rules[] = {"(dynamic d (f ?a ?b) => pair)\n",
                                        "(dynamic d (f ?a ?b ?c) => pair)\n"};
    static const char *const from[] = {"(f x y)", "(f x z y)"};
    static const char *const to[] = {"(pair (h x) (h y))", "(pair (h x) (h z) (h y))"};
    for (int k = 0; k < 2; k++) {
        fixture f = {.ctx = eqf_ctx_new(NULL)};
        assert_int_equal(eqf_lang_new(f.ctx, &f.lang), EQF_OK);
        eqf_dynamic dynamic = {"pair", build_pair, f.lang};
        assert_int_equal(eqf_dynamic_add(f.lang, &dynamic), EQF_OK);
        assert_int_equal(eqf_rules_load(f.lang, "rules", eqf_text_of(rules[k]), &f.rules), EQF_OK);
        eqf_options o = {.limits = eqf_limits_none(), .explain = true};
        assert_int_equal(eqf_egraph_new(f.lang, &o, &f.g), EQF_OK);
        eqf_class c;
        assert_int_equal(eqf_add_text(f.g, eqf_text_of(from[k]), &c), EQF_OK);
        assert_int_equal(
            eqf_union_text(f.g, eqf_text_of("x"), eqf_text_of("y"), eqf_text_of("given"), NULL),
            EQF_OK);
        eqf_run_report r;
        assert_int_equal(eqf_run(f.g, f.rules, NULL, &r), EQF_OK);
        eqf_proof *p;
        char *text;
        assert_int_equal(eqf_explain(f.g, eqf_text_of(from[k]), eqf_text_of(to[k]), &p), EQF_OK);
        assert_int_equal(eqf_proof_text(p, EQF_SHARED, &text), EQF_OK);
        eqf_checking checking = {.rules = eqf_text_of(rules[k]),
                                 .axioms = eqf_text_of("(axiom given x y)"),
                                 .step = judge_pair};
        eqf_check_report report;
        assert_int_equal(eqf_proof_check(f.ctx, eqf_text_of(text), eqf_text_of(from[k]),
                                         eqf_text_of(to[k]), &checking, &report),
                         EQF_OK);
        eqf_text_free(f.ctx, text);
        eqf_proof_free(p);
        drop(&f);
    }
}

/* Parts of a pattern without variables, of an operator that takes its operands in either order, are
 * found in the order of the term that was there first. */
static void test_either_order(void **state)
{
    (void)state;
    static const char *const patterns[] = {"(f (+ 1 b))", "(+ (+ 1 b) ?x)", "(g ?x (+ (+ 1 b) b))"};
    static const char *const terms[] = {"(f (+ b 1))", "(+ c (+ b 1))", "(g c (+ b (+ b 1)))"};
    for (int k = 0; k < 3; k++) {
        fixture f = {.ctx = eqf_ctx_new(NULL)};
        eqf_op op;
        char rules[64];
        snprintf(rules, sizeof rules, "(rule r %s => done)", patterns[k]);
        assert_int_equal(eqf_lang_new(f.ctx, &f.lang), EQF_OK);
        assert_int_equal(eqf_lang_op(f.lang, "+", 2, EQF_COMMUTATIVE, &op), EQF_OK);
        assert_int_equal(eqf_rules_load(f.lang, "rules", eqf_text_of(rules), &f.rules), EQF_OK);
        eqf_options o = {.limits = eqf_limits_none(), .explain = true};
        assert_int_equal(eqf_egraph_new(f.lang, &o, &f.g), EQF_OK);
        eqf_class c;
        eqf_run_report r;
        assert_int_equal(eqf_add_text(f.g, eqf_text_of(terms[k]), &c), EQF_OK);
        assert_int_equal(eqf_run(f.g, f.rules, NULL, &r), EQF_OK);
        eqf_proof *p;
        char *text;
        eqf_text left = eqf_text_of(terms[k]), right = eqf_text_of("done");
        assert_int_equal(eqf_explain(f.g, left, right, &p), EQF_OK);
        assert_int_equal(eqf_proof_reduce(f.g, p), EQF_OK);
        assert_int_equal(eqf_proof_text(p, EQF_SHARED, &text), EQF_OK);
        eqf_checking checking = {.rules = eqf_text_of(rules), .commutative = eqf_text_of("+")};
        eqf_check_report report;
        assert_int_equal(
            eqf_proof_check(f.ctx, eqf_text_of(text), left, right, &checking, &report), EQF_OK);
        eqf_text_free(f.ctx, text);
        eqf_proof_free(p);
        drop(&f);
    }
}

/* A proof has nothing to spare: what no step needs is refused, and so are rules that are none. */
static void test_spare(void **state)
{
    (void)state;
#define RULE "(rule r (f ?x) => ?x)"
#define TERMS "(proof shared 1 (t 1 a) (t 2 f 1) "
#define CLAIM " (claim 2 1 1))"
    static const struct {
        eqf_status status;
        const char *rules, *proof;
    } cases[] = {
        {EQF_OK, RULE, TERMS "(s 1 2 1 (rule \"r\" 0 (?x 1)))" CLAIM},
        {EQF_OK, RULE, "(proof flat 1 (f a) (by (rule \"r\" 0 => (?x a)) ()) a)"},
        {EQF_OK, RULE, TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(s 1 2 1 (rule \"r\" 0 (?x 1) (?x 1)))" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(s 1 2 1 (rule \"r\" 0 (?x 1) (?y 1)))" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(s 1 2 1 (rule \"r\" 0 (?x 1)) 1)" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(s 1 2 1 (axiom \"ax\") 0)" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(s 1 2 1 (axiom \"ax\" =>))" CLAIM},
        {EQF_E_MISMATCH, RULE, TERMS "(t 3 (f) 1) (s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_MISMATCH, RULE, "(proof flat 1 (f a) (by (rule \"r\" 0 => (?x a) (?x a)) ()) a)"},
        {EQF_E_MISMATCH, RULE, "(proof flat 1 (f a) (by (rule \"r\" 0 => (?x a) (?z b)) ()) a)"},
        {EQF_E_MISMATCH, RULE, "(proof flat 1 (f a) (by (axiom \"ax\" =>) () same) a)"},
        {EQF_E_MISMATCH, RULE, "(proof flat 1 (f a) (by (rule \"r\" 0 => (?x a)) ()) ((a)))"},
        {EQF_E_PARSE, "(rule r (f ?x) =>)", TERMS "(s 1 2 1 (rule \"r\" 0 (?x 1)))" CLAIM},
        {EQF_E_PARSE, "(rule r (f ?x) ?x ?x)", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rile r (f ?x) => ?x)", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rule (r) (f ?x) => ?x)", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(dynamic r (f ?x) => (g))", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(multi r (?a (f ?x)))", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(multi r => (?a (f ?x)))", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(multi r (?a (f ?x)) => (?a))", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(multi r () => (?a ?a))", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rule r (f ?x) => ?x :when)", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rule r (f ?x) => ?x :when ?x)", TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rule r (f ?x) => ?x :when (distinct ?x))",
         TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
        {EQF_E_PARSE, "(rule r (f ?x) => ?x :when (and (eq ?x)))",
         TERMS "(s 1 2 1 (axiom \"ax\"))" CLAIM},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        eqf_checking given = {.rules = eqf_text_of(cases[i].rules),
                              .axioms = eqf_text_of("(axiom ax (f a) a)")};
        eqf_check_report report;
        eqf_status s = eqf_proof_check(ctx, eqf_text_of(cases[i].proof), eqf_text_of("(f a)"),
                                       eqf_text_of("a"), &given, &report);
        if (s != cases[i].status)
            fail_msg("%s for %s %s", eqf_status_name(s), cases[i].rules, cases[i].proof);
    }
    eqf_ctx_free(ctx);
}

/* (f (f ... leaf)) as a shared-term. */
static char *deep_term(const char *leaf, int depth)
{
    size_t cap = 40 * (size_t)depth + 100, at = 0;
    char *text = malloc(cap);
    assert_non_null(text);
    at += (size_t)snprintf(text, cap, "(shared-term (t 1 %s)", leaf);
    for (int i = 2; i <= depth; i++)
        at += (size_t)snprintf(text + at, cap - at, " (t %d f %d)", i, i - 1);
    snprintf(text + at, cap - at, " %d)", depth);
    return text;
}

/* However deep two terms are: a proof, or a limit, and never the end of the stack. */
static void test_depth(void **state)
{
    (void)state;
    static const int depths[] = {3000, 300000};
    for (int k = 0; k < 2; k++) {
        fixture f = {.ctx = eqf_ctx_new(NULL)};
        eqf_op op;
        eqf_head head;
        assert_int_equal(eqf_lang_new(f.ctx, &f.lang), EQF_OK);
        assert_int_equal(eqf_rules_load(f.lang, "rules", eqf_text_of(""), &f.rules), EQF_OK);
        assert_int_equal(eqf_lang_op(f.lang, "f", 1, 0, &op), EQF_OK);
        assert_int_equal(eqf_head_of(f.lang, op, 0, &head), EQF_OK);
        eqf_options o = {.limits = eqf_limits_none(), .explain = true};
        assert_int_equal(eqf_egraph_new(f.lang, &o, &f.g), EQF_OK);
        for (int side = 0; side < 2; side++) {
            eqf_class c, over;
            assert_int_equal(eqf_add_text(f.g, eqf_text_of(side ? "b" : "a"), &c), EQF_OK);
            for (int i = 1; i < depths[k]; i++, c = over)
                assert_int_equal(eqf_add(f.g, head, &c, 1, &over), EQF_OK);
        }
        assert_int_equal(
            eqf_union_text(f.g, eqf_text_of("a"), eqf_text_of("b"), eqf_text_of("given"), NULL),
            EQF_OK);
        char *a = deep_term("a", depths[k]), *b = deep_term("b", depths[k]), *text;
        eqf_proof *p;
        eqf_check_report report;
        eqf_checking checking = {.axioms = eqf_text_of("(axiom given a b)")};
        assert_int_equal(eqf_explain(f.g, eqf_text_of(a), eqf_text_of(b), &p), EQF_OK);
        eqf_status s = eqf_proof_reduce(f.g, p);
        assert_true(s == EQF_OK || (k == 1 && s == EQF_E_LIMIT));
        assert_int_equal(eqf_proof_text(p, EQF_SHARED, &text), EQF_OK);
        assert_int_equal(eqf_proof_check(f.ctx, eqf_text_of(text), eqf_text_of(a), eqf_text_of(b),
                                         &checking, &report),
                         EQF_OK);
        eqf_text_free(f.ctx, text);
        const char *const *reasons;
        size_t n;
        assert_int_equal(eqf_proof_reasons(p, 1, &reasons, &n), EQF_OK);
        assert_int_equal(n, 1);
        assert_string_equal(reasons[0], "given");
        assert_int_equal(eqf_proof_text(p, EQF_FLAT, &text), EQF_OK);
        eqf_text_free(f.ctx, text);
        eqf_proof_free(p);
        free(a);
        free(b);
        drop(&f);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        print_all();
        return 0;
    }
    self = argv[0];
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_accepts),
                                       cmocka_unit_test(test_tampered),
                                       cmocka_unit_test(test_same),
                                       cmocka_unit_test(test_spare),
                                       cmocka_unit_test(test_one_class),
                                       cmocka_unit_test(test_either_order),
                                       cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
