/* The rule lab: every rule of the product on 200 instances, and each fires in an e-graph of them;
 * planted mistakes all found, guards that nothing meets reported, equal seeds giving equal reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/graph.h"
#include "rules/lab.h"
#include "rules/small.h"
#include "rules/worth.h"

static rl_ruleset *read_text(arena *a, const char *text)
{
    rl_ruleset *set = rl_ruleset_new(a);
    rl_ruleset_read(set, "test.rules", text, (i64)strlen(text));
    return set;
}

static void shipped_rules_are_sound(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = rl_ruleset_shipped(a);
    assert_true(set->rules.n >= 30);
    for (i64 i = 0; i < set->rules.n; i++) {
        arena *scratch = arena_child(a);
        rl_trial t = rl_try_rule(scratch, set->rules.at[i], 200, 17);
        if (t.verdict != RL_SOUND || t.instances < 200)
            fail_msg("%s: %s after %lld instances", set->rules.at[i]->name,
                     t.counterexample ? t.counterexample : "untestable", (long long)t.instances);
        arena_free(scratch);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static i64 applied(const rl_graph *g, const char *name)
{
    const eqf_rules *rules = rl_graph_rules(g);
    for (size_t i = 0; i < eqf_rules_count(rules); i++)
        if (strcmp(eqf_rule_name(rules, i), name) == 0)
            return eqf_rule_statistics(rl_graph_engine(g), rules, i).applied;
    return 0;
}

/* Left sides of random instances as programs, among all the other rules: the rule finds its pattern,
 * its guard lets it pass, and what is in the e-graph then is worth what its class is. */
static void shipped_rules_fire(void **state)
{
    (void)state;
    enum { INSTANCES = 24 };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = rl_ruleset_shipped(a);
    for (i64 i = 0; i < set->rules.n; i++) {
        const char *name = set->rules.at[i]->name;
        i64 fired = 0, built = 0;
        for (u64 seed = 1; built < INSTANCES && seed < 50 * INSTANCES; seed++) {
            arena *own = arena_child(a);
            ir_program *p = rl_instance(own, set->rules.at[i], seed);
            if (p) {
                rl_graph_options o = {.rules = set, .fp = RL_APPROXIMATE, .limits = eqf_limits_default()};
                o.limits.seconds = -1;
                o.limits.nodes = 400;
                rl_graph *g = rl_graph_new(own, p, &o);
                rl_graph_saturate(g, NULL);
                fired += applied(g, name) > 0;
                check_worth(g, own, name, seed % 3);
                built++;
            }
            arena_free(own);
        }
        if (fired < INSTANCES / 4)
            fail_msg("%s fired on %lld of %lld instances", name, (long long)fired, (long long)built);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void planted_mistakes_are_found(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *text = file_read(a, EQF_TEST_DIR "/rules/unsound.rules", 1 << 20, &n);
    rl_ruleset *set = rl_ruleset_new(a);
    rl_ruleset_read(set, "unsound.rules", text, n);
    i64 by_type = 0;
    for (i64 i = 0; i < set->rejected.n; i++) {
        const rl_rejected *r = &set->rejected.at[i];
        bool typed = strstr(r->reason, "type") != NULL; /* not for its spelling */
        if (!typed)
            fail_msg("%s: %s", r->name, r->reason);
        by_type++;
    }
    for (i64 i = 0; i < set->rules.n; i++) {
        rl_trial t = rl_try_rule(a, set->rules.at[i], 200, 17);
        if (t.verdict != RL_UNSOUND)
            fail_msg("%s was not caught", set->rules.at[i]->name);
        assert_non_null(t.counterexample);
    }
    assert_true(set->rules.n >= 25);
    assert_int_equal(set->rules.n + by_type, 44);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void counterexamples_are_small(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = read_text(a, "(rule r (neg ?x) => ?x :fp exact)");
    rl_trial t = rl_try_rule(a, set->rules.at[0], 200, 3);
    assert_int_equal(t.verdict, RL_UNSOUND);
    assert_true(strncmp(t.counterexample, "no dims; ?x {} = (", 18) == 0);
    rl_trial again = rl_try_rule(a, set->rules.at[0], 200, 3);
    assert_string_equal(t.counterexample, again.counterexample);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void unmet_guards_are_reported(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = read_text(
        a, "(rule none (neg ?x) => ?x :when (and (some ?x) (scalar ?x)) :fp exact)"
           "(rule lost (log (neg (square ?x))) => ?x :fp exact)"
           "(rule vacuous (log (neg (square ?x))) => (log (neg (square (neg ?x)))) :fp exact)");
    assert_int_equal(set->rejected.n, 0);
    assert_int_equal(rl_try_rule(a, set->rules.at[0], 10, 3).verdict, RL_UNTESTABLE);
    assert_int_equal(rl_try_rule(a, set->rules.at[1], 10, 3).verdict, RL_UNSOUND);
    assert_int_equal(rl_try_rule(a, set->rules.at[2], 10, 3).verdict, RL_UNTESTABLE);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_rules_are_sound),
        cmocka_unit_test(shipped_rules_fire),
        cmocka_unit_test(planted_mistakes_are_found),
        cmocka_unit_test(counterexamples_are_small),
        cmocka_unit_test(unmet_guards_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
