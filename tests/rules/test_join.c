/* Sums of products as one product: on random operands everything in the e-graph is worth what its class
 * is and the rule has fired; where it does not pay or would not be true it does not; each application is
 * proved, and steps with one thing wrong are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/graph_impl.h"
#include "rules/listed.h"
#include "rules/proved.h"
#include "rules/small.h"
#include "rules/worth.h"

static rl_graph *searched(arena *a, const ir_program *p, bool tiled, bool explain)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_REASSOCIATED,
                          .explain = explain,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    o.limits.iterations = 100;
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    if (tiled)
        assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    return g;
}

static i64 fired(const rl_graph *g, arena *a)
{
    rl_rule_count *all;
    i64 n = rl_graph_rule_counts(g, a, &all);
    for (i64 i = 0; i < n; i++)
        if (strcmp(all[i].name, "join-products") == 0)
            return all[i].stats.applied;
    return 0;
}

static ir_program *read_text(arena *a, const char *text)
{
    return ir_read(a, "joined", text, (i64)strlen(text));
}

/* "X (M K)" with some of the atoms; `always` is one of them. */
static void put_operand(str *s, rng *r, const char *role, const char *name, const char *always)
{
    static const char *const others[] = {"M", "N", "B"};
    str_printf(s, "(%s %s f32 (%s", role, name, always);
    for (i64 i = 0; i < COUNT_OF(others); i++)
        if (rng_below(r, 2))
            str_printf(s, " %s", others[i]);
    str_add(s, ")) ");
}

/* x a over K and y b over another dim or the same one, of equal and of other extent. */
static ir_program *random_sum(arena *a, u64 seed)
{
    static const char *const pairs[][2] = {{"K", "L"}, {"L", "K"}, {"K", "K"}, {"K", "J"}};
    rng r = rng_new(seed);
    const char *const *pair = pairs[rng_below(&r, COUNT_OF(pairs))];
    str s = str_new(a);
    str_add(&s, "(program sum (dims (M 2) (N 3) (B 4) (K 3) (L 5) (J 3)) ");
    put_operand(&s, &r, "input", "x", pair[0]);
    put_operand(&s, &r, "parameter", "a", pair[0]);
    put_operand(&s, &r, "input", "y", pair[1]);
    put_operand(&s, &r, "parameter", "b", pair[1]);
    str_printf(&s, "(output Y (add (matmul %s :axis %s) (matmul %s :axis %s))))",
               rng_below(&r, 2) ? "x a" : "a x", pair[0],
               rng_below(&r, 2) ? "(tanh y) b" : "y b", pair[1]);
    return read_text(a, str_text(&s));
}

static void random_operands(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 instances = 0, proofs = 0;
    for (u64 seed = 1; seed <= 400; seed++) {
        arena *a = arena_new(ctx, 0);
        rl_graph *g = searched(a, random_sum(a, seed), seed & 1, seed % 8 == 0);
        instances += fired(g, a) > 0;
        check_worth(g, a, arena_printf(a, "sum %d", (int)seed), seed % 3);
        i64 assumptions = 0;
        if (seed % 8 == 0)
            proofs += prove_all(g, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    assert_true(proofs > 100);
    listed_counts counts = {.a = arena_new(ctx, 0)};
    listed_count(&counts, "join-products", instances);
    assert_int_equal(listed_check(&counts, LISTED_JOINED, 200), 1);
    arena_free(counts.a);
    eqf_ctx_free(ctx);
}

#define DIMS "(program p (dims (M 4) (K 3) (L 5) (H 2) (N 6)) "
#define INPUTS "(input x f32 (M K)) (input y f32 (M L)) (input z f32 (M L K)) "
#define WEIGHTS                                                                                    \
    "(parameter a f32 (K N)) (parameter b f32 (L N)) (parameter c f32 (L K N)) (parameter d f32 (K L)) "
#define SUM(x, a, k, y, b, l)                                                                      \
    DIMS INPUTS WEIGHTS "(output Y (add (matmul " x " " a " :axis " k ") (matmul " y " " b         \
                        " :axis " l "))))"

static void it_fires_where_it_pays(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        i64 times;
    } cases[] = {
        {SUM("x", "a", "K", "y", "b", "L"), 1},
        {SUM("y", "b", "L", "x", "a", "K"), 1},
        {SUM("x", "a", "K", "(matmul x d :axis K)", "b", "L"), 1},
        {SUM("(exp x)", "a", "K", "x", "(exp a)", "K"), 1},
        {SUM("x", "a", "K", "x", "(exp a)", "K"), 0},     /* weights add */
        {DIMS INPUTS WEIGHTS "(parameter e f32 (N)) (output Y (add (add (matmul x a :axis K) e) "
                             "(matmul y b :axis L))))",
         1}, /* a bias between them */
        {DIMS INPUTS WEIGHTS "(parameter e f32 (N)) (output Y (add (add (matmul x a :axis K) e) "
                             "(add (exp e) (matmul y b :axis L)))))",
         1},
        {SUM("x", "(mul a 2)", "K", "(exp x)", "a", "K"), 1},
        {SUM("z", "c", "{K L}", "y", "b", "L"), 0},         /* two are */
        {SUM("z", "a", "K", "y", "b", "L"), 0},           /* L is a dim of the other product, too */
        {DIMS INPUTS "(input a f32 (K N)) (parameter b f32 (L N)) "
                     "(output Y (add (matmul x a :axis K) (matmul y b :axis L))))",
         0}, /* a weight that is not constant would be copied in each run */
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph *g = searched(a, read_text(a, cases[k].text), true, false);
        if (fired(g, a) != cases[k].times)
            fail_msg("%s: %lld times", cases[k].text, (long long)fired(g, a));
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

#define LEFT "(add (matmul x a :axis {K}) (matmul y b :axis {L}))"
#define XY " :map (2 K L 1 K+L 0 none none \"\"))"
#define OVER " :axis {K+L})"

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *left, *right;
        eqf_verdict want;
    } cases[] = {
        {LEFT, "(matmul (concat x y" XY " (concat a b" XY OVER, EQF_HOLDS},
        {LEFT, "(matmul (concat a b" XY " (concat x y" XY OVER, EQF_HOLDS},
        {"(add (matmul b y :axis {L}) (matmul x a :axis {K}))",
         "(matmul (concat x y" XY " (concat a b" XY OVER, EQF_HOLDS},
        {LEFT, "(matmul (concat y x" XY " (concat a b" XY OVER, EQF_REFUSED},
        {LEFT, "(matmul (concat x y" XY " (concat b a" XY OVER, EQF_REFUSED},
        {LEFT, "(matmul (concat x x" XY " (concat a b" XY OVER, EQF_REFUSED},
        {LEFT, "(matmul (concat x y" XY " (concat a a" XY OVER, EQF_REFUSED},
        {LEFT, "(add (concat x y" XY " (concat a b" XY ")", EQF_REFUSED},
        {LEFT, "(matmul x a :axis {K})", EQF_REFUSED},
        {"(sub (matmul x a :axis {K}) (matmul y b :axis {L}))",
         "(matmul (concat x y" XY " (concat a b" XY OVER, EQF_REFUSED},
        {"(add (matmul x a :axis {K}) (mul y b))",
         "(matmul (concat x y" XY " (concat a b" XY OVER, EQF_REFUSED},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_graph *g = searched(a, read_text(a, SUM("x", "a", "K", "y", "b", "L")), true, false);
    eqf_checking c = rl_graph_checking(g);
    rl_operator_head(g, IR_sub, IR_NO_REDUCER, 2, 0);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        eqf_verdict v = c.step(c.user, "build.join-products", cases[k].left, cases[k].right);
        if (v != cases[k].want)
            fail_msg("%s = %s", cases[k].left, cases[k].right);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operands),
        cmocka_unit_test(it_fires_where_it_pays),
        cmocka_unit_test(wrong_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
