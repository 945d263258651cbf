/* Reading rules: each kind of error with its place and reason, and what printing shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/rule.h"

typedef struct wrong {
    const char *text;
    u32 line, column;
    const char *reason; /* a part of it */
} wrong;

static const wrong errors[] = {
    {"(rule r (frob ?x) => ?x :fp exact)", 1, 10, "unknown operator frob"},
    {"(rule r (cast ?x) => ?x :fp exact)", 1, 10, "cast has no place in a rule"},
    {"(rule r (neg ?x)\n  => (neg ?y) :fp exact)", 2, 11, "unbound variable ?y"},
    {"(rule r (neg ?x) => ?x :when (free ?x ?K) :fp exact)", 1, 39, "unbound variable ?K"},
    {"(rule r (neg ?x ?y) => ?x :fp exact)", 1, 9, "neg takes 1 operands, found 2"},
    {"(rule r (neg ?x) => (neg (neg ?x)) :when (tiny ?x) :fp exact)", 1, 43,
     "no guard is called tiny"},
    {"(rule r (neg ?x) => ?x :when (free ?x) :fp exact)", 1, 30, "takes 2 to 2 arguments"},
    {"(rule r (neg ?x) => ?x)", 1, 1, ":fp exact, reassoc or approx"},
    {"(rule r (neg ?x) => ?x :fp fine)", 1, 28, ":fp takes"},
    {"(rule r (neg ?x) => ?x :fp exact :why 1)", 1, 34, "unknown or repeated keyword :why"},
    {"(rule r (neg ?x) -> ?x :fp exact)", 1, 18, "expected => or <=>"},
    {"(rule r ?x => (neg (neg ?x)) :fp exact)", 1, 9, "would match everything"},
    {"(rule r (lt ?x ?y) => (sub ?x ?y) :fp exact)", 1, 23, "sub does not take bool operands"},
    {"(rule r (where ?c ?x ?y) => (sub ?c ?c) :fp exact)", 1, 29, "sub does not take bool"},
    {"(rule r (add ?x ?y) => ?x :fp exact)", 1, 24,
     "sides of different type: an atom in ?y and nowhere else is in the type of the left side "
     "only"},
    {"(rule r (reduce + ?x :axis ?K) => ?x :fp exact)", 1, 35,
     "in the type of the right side only"},
    {"(rule r (matmul ?x ?y :axis ?K) => (add (reduce + ?x :axis ?K) (reduce + ?y :axis ?K)) :fp "
     "exact)",
     1, 64, "ill-typed: reduce cannot be over an atom in"},
    {"(rule r (exp ?x) => (exp2 ?x) :for integers :fp exact)", 1, 9, "exp does not take i64"},
    {"(rule r (add (lt ?x ?y) (exp ?x)) => (exp ?x) :fp exact)", 1, 25, "exp does not take bool"},
    {"(rule r (reduce + ?x) => ?x :fp exact)", 1, 9, "reduce wants :axis"},
    {"(rule r (reduce plus ?x :axis ?K) => ?x :fp exact)", 1, 17, "expected a reducer"},
    {"(rule r (reduce + ?K :axis ?K) => ?K :fp exact)", 1, 28, "stands for a term and for a set"},
    {"(rule r (slice ?x :map ?P) => (rename ?x :map ?P) :fp exact)", 1, 47,
     "index map of another operator"},
    {"(rule r (reduce + ?x :axis (meet ?K ?x)) => ?x :fp exact)", 1, 28, ":axis takes a variable"},
    {"(rule r (view ?x) => ?x :fp exact)", 1, 9, "view wants :par"},
    {"(rule r (view ?x :axis ?K) => ?x :fp exact)", 1, 18, "view takes :par SET"},
    {"(rule r (matmul ?x ?y :par ?P) => ?x :fp exact)", 1, 23, "matmul takes :axis SET"},
    {"(rule r (reduce + ?x :axis ?K :par ?P) => ?x :fp exact)", 1, 31, ":axis SET or :par SET, once"},
    {"(rule r (reduce + ?x :par (axes ?x)) => ?x :fp exact)", 1, 27, ":par takes a variable"},
    {"(rule r (view ?x :par ?P) => (view ?x :par (axes ?P)) :fp exact)", 1, 50,
     "stands for a set of axes and for a term"},
    {"(rule r (exp (view ?x :par ?P)) => (exp ?x) :fp exact)", 1, 36,
     "sides of different state: the axis of an atom in ?x, ?P and nowhere else is one of the left side "
     "only"},
    {"(rule r (comb ?x :par ?P) => (reduce + ?x :par ?P) :fp exact)", 1, 30, "ill-typed: reduce"},
    {"(frob)", 1, 1, "expected (rule"},
};

static rl_ruleset *read_text(arena *a, const char *text)
{
    rl_ruleset *set = rl_ruleset_new(a);
    rl_ruleset_read(set, "test.rules", text, (i64)strlen(text));
    return set;
}

static void errors_have_places(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 i = 0; i < COUNT_OF(errors); i++) {
        arena *a = arena_new(ctx, 0);
        const wrong *w = &errors[i];
        rl_ruleset *set = read_text(a, w->text);
        if (set->rejected.n != 1 || set->rules.n != 0)
            fail_msg("%s: accepted", w->text);
        const rl_rejected *r = &set->rejected.at[0];
        if (r->line != w->line || r->column != w->column || !strstr(r->reason, w->reason))
            fail_msg("%s: %u:%u: %s", w->text, r->line, r->column, r->reason);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

static void others_are_read_on(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = read_text(a, "(rule a (neg (neg ?x)) => ?x :fp exact)\n"
                                   "(rule b (neg ?x) => ?y :fp exact)\n"
                                   "(rule a (abs (abs ?x)) => (abs ?x) :fp exact)\n"
                                   "(rule c (neg (neg ?z)) => ?z :fp exact)\n"
                                   "(rule d (mul (neg ?p) ?q) => (neg (mul ?p ?q)) :fp exact)\n"
                                   "(rule e (mul ?p (neg ?q)) => (neg (mul ?p ?q)) :fp exact)\n"
                                   "(rule f (abs (neg ?x)) <=> (abs ?x) :fp exact)\n");
    assert_int_equal(set->rules.n, 4); /* a, d, f and its reverse */
    assert_int_equal(set->rejected.n, 4);
    assert_int_equal(set->rejected.at[0].line, 2);
    assert_string_equal(set->rejected.at[0].excerpt,
                        "(rule b (neg ?x) => ?y :fp exact)\n                    ^");
    assert_non_null(strstr(set->rejected.at[1].reason, "defined twice"));
    assert_non_null(strstr(set->rejected.at[2].reason, "it is rule a, with other names"));
    assert_non_null(strstr(set->rejected.at[3].reason, "it is rule d"));
    assert_string_equal(set->rules.at[3]->name, "f-back");
    arena_free(a);
    eqf_ctx_free(ctx);
}

static const char *nested(arena *a, const char *left, const char *right, int n)
{
    str s = str_new(a);
    for (int i = 0; i < n; i++)
        str_add(&s, left);
    str_add(&s, "?x");
    for (int i = 0; i < n; i++)
        str_add(&s, right);
    return str_text(&s);
}

/* Sides as deep as a rule may be are compared with those of other rules at once, whatever order
 * operands have; deeper ones are refused where they stand, not where the engine meets them. */
static void deep_sides_end(void **state)
{
    (void)state;
    enum { DEEPEST = 32 };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    for (int n = DEEPEST; n <= 100 * DEEPEST; n *= 10) {
        const char *left = nested(a, "(add ?y ", ")", n), *same = nested(a, "(add ", " ?y)", n);
        rl_ruleset *set = read_text(a, arena_printf(a, "(rule a %s => (add ?y ?x) :fp exact)\n"
                                                       "(rule b %s => (add ?x ?y) :fp exact)\n"
                                                       "(rule c (add ?x ?y) => %s :fp exact)\n",
                                                    left, same, left));
        bool fits = n <= DEEPEST;
        assert_int_equal(set->rules.n, fits ? 2 : 0);
        for (i64 i = 0; i < set->rejected.n; i++) {
            const rl_rejected *r = &set->rejected.at[i];
            const char *reason = fits ? "it is rule a" : "operators, more than 32";
            if (!strstr(r->reason, reason) || r->line != (fits ? 2 : (u32)i + 1))
                fail_msg("%u:%u: %s", r->line, r->column, r->reason);
        }
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void malformed_text_throws(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t)
        read_text(a, "(rule a (neg ?x) => ");
    assert_int_equal(t.status, EQF_E_PARSE);
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Whatever the bytes, reading ends with rules and rejections or a parse error. */
static void damaged_text_is_refused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    static const char base[] = "(rule r (matmul (mul ?x 2) (slice ?b :map ?P) :axis ?K) => (mul "
                               "(matmul ?x ?b :axis (minus ?K ?x)) (extent ?K)) :when (and (free "
                               "?x ?K) (not (const ?b))) :fp exact :for any)";
    rng g = rng_new(5);
    for (i64 k = 0; k < 4000; k++) {
        arena *scratch = arena_child(a);
        char *text = arena_strdup(scratch, base);
        for (i64 j = 0; j < 3; j++)
            text[rng_below(&g, sizeof base - 1)] = "()?:Kx 2{r"[rng_below(&g, 10)];
        trap t;
        TRY (ctx, t) {
            rl_ruleset *set = rl_ruleset_new(scratch);
            rl_ruleset_read(set, "test.rules", text, (i64)sizeof base - 1);
            assert_true(set->rules.n + set->rejected.n >= 0);
        }
        assert_true(t.status == EQF_OK || t.status == EQF_E_PARSE);
        eqf_ctx_clear(ctx);
        arena_free(scratch);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void a_rule_prints(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = rl_ruleset_shipped(a);
    str s = str_new(a);
    rl_rule_print(&s, rl_ruleset_find(set, "scale-leaves-matmul"));
    assert_string_equal(str_text(&s),
                        "(matmul (mul ?x ?f) ?b :axis ?K) => (mul (matmul ?x ?b :axis ?K) ?f) "
                        ":when (free ?f ?K) :fp reassoc");
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void the_page_is_up_to_date(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    str s = str_new(a);
    rl_ruleset_document(&s, rl_ruleset_shipped(a));
    i64 n;
    const char *page = file_read(a, EQF_TEST_DIR "/../docs/rules.md", 1 << 20, &n);
    if (strcmp(page, str_text(&s)) != 0)
        fail_msg("docs/rules.md: run `equiforge rules list --document > docs/rules.md`");
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Each family has at least as many rules as the paper counts in its Table 1, each with what it is for. */
static void families_are_complete(void **state)
{
    (void)state;
    static const struct {
        const char *families[2];
        i64 least;
    } wanted[] = {
        {{"algebra"}, 21},     {{"refinement"}, 10},           {{"propagation"}, 73},
        {{"fusion"}, 9},       {{"structure", "structural"}, 6}, {{"storage"}, 1},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = rl_ruleset_shipped(a);
    rl_implied_list implied = {0};
    rl_list_implied(a, &implied);
    for (i64 k = 0; k < COUNT_OF(wanted); k++) {
        i64 n = 0;
        for (i64 f = 0; f < 2 && wanted[k].families[f]; f++) {
            for (i64 i = 0; i < set->rules.n; i++)
                n += strcmp(set->rules.at[i]->family, wanted[k].families[f]) == 0;
            for (i64 i = 0; i < implied.n; i++)
                n += strcmp(implied.at[i].family, wanted[k].families[f]) == 0;
        }
        if (n < wanted[k].least)
            fail_msg("%s: %lld rules", wanted[k].families[0], (long long)n);
    }
    for (i64 i = 0; i < set->rules.n; i++)
        if (!set->rules.at[i]->doc)
            fail_msg("%s says not what it is for", set->rules.at[i]->name);
    for (i64 i = 0; i < implied.n; i++)
        for (i64 k = 0; k < i; k++)
            assert_string_not_equal(implied.at[i].name, implied.at[k].name);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_places),    cmocka_unit_test(others_are_read_on),
        cmocka_unit_test(deep_sides_end),        cmocka_unit_test(malformed_text_throws),
        cmocka_unit_test(damaged_text_is_refused), cmocka_unit_test(a_rule_prints),
        cmocka_unit_test(the_page_is_up_to_date), cmocka_unit_test(families_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
