/* The rule lab: every rule of the product on 200 instances, and each fires in an e-graph of them;
 * planted mistakes all found, guards that nothing meets reported, equal seeds giving equal reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/graph.h"
#include "rules/lab.h"
#include "rules/listed.h"
#include "rules/proved.h"
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

/* The lab on a rule for every kind of values that it may be about; how many kinds. */
static i64 try_text(arena *a, const char *name, const char *sides, const char *when, const char *fp)
{
    static const char *const kinds[] = {"floats", "integers", "bools"};
    i64 tried = 0;
    for (i64 k = 0; k < COUNT_OF(kinds); k++) {
        str s = str_new(a);
        str_printf(&s, "(rule %s %s :fp %s :for %s", name, sides, fp, kinds[k]);
        if (*when)
            str_printf(&s, " :when %s", when);
        str_add(&s, ")");
        rl_ruleset *set = read_text(a, str_text(&s));
        if (set->rejected.n) {
            if (!strstr(set->rejected.at[0].reason, "does not take"))
                fail_msg("%s: %s", str_text(&s), set->rejected.at[0].reason);
            continue;
        }
        rl_trial t = rl_try_rule(a, set->rules.at[0], 200, 17);
        if (t.verdict == RL_UNSOUND)
            fail_msg("%s: %s", str_text(&s), t.counterexample);
        tried += t.verdict == RL_SOUND && t.instances >= 200; /* divisions by bools have no value */
    }
    return tried;
}

/* What `rules list` says of the rules that rows imply, and of how e-nodes are made, is a rule, too: on
 * values of every state, with several tiles an axis. No rule is without a test. */
static void implied_rules_are_sound(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_implied_list all = {0};
    rl_list_implied(a, &all);
    i64 rules = 0;
    for (i64 i = 0; i < all.n; i++) {
        const rl_implied *r = &all.at[i];
        if (listed_in(r) == LISTED_NOWHERE)
            fail_msg("%s is tried nowhere", r->name);
        if (!listed_is_rule(r))
            continue;
        arena *own = arena_child(a);
        bool is_back = r->left[0] != '('; /* a variable is no left side */
        const char *sides = arena_printf(own, "%s => %s", is_back ? r->right : r->left,
                                         is_back ? r->left : r->right);
        i64 kinds = try_text(own, r->name, sides, r->when, rl_fp_name(r->fp));
        if (!kinds)
            fail_msg("%s is about no kind of values", r->name);
        rules++;
        arena_free(own);
    }
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++) { /* commute */
        const ir_op_row *row = ir_row(op);
        if (!(row->flags & IR_COMM) || row->arity != 2)
            continue;
        const char *axis = row->class_ == IR_EWISE ? "" : " :axis ?K";
        const char *sides = arena_printf(a, "(%s ?x ?y%s) => (%s ?y ?x%s)", row->name, axis, row->name, axis);
        assert_true(try_text(a, "commute", sides, "", "exact") > 0);
    }
    assert_true(rules > 200);
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
        bool typed = strstr(r->reason, "type") || strstr(r->reason, "state"); /* not its spelling */
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
    assert_true(set->rules.n >= 67);
    assert_int_equal(set->rules.n + by_type, 93);
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* What looks wrong and is not is not refused, whatever values are drawn. */
static void sound_rules_are_accepted(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *text = file_read(a, EQF_TEST_DIR "/rules/sound.rules", 1 << 20, &n);
    rl_ruleset *set = rl_ruleset_new(a);
    rl_ruleset_read(set, "sound.rules", text, n);
    if (set->rejected.n)
        fail_msg("%s: %s", set->rejected.at[0].name, set->rejected.at[0].reason);
    assert_int_equal(set->rules.n, 41);
    for (i64 i = 0; i < set->rules.n; i++) {
        rl_trial t = rl_try_rule(a, set->rules.at[i], 1000, 23);
        if (t.verdict != RL_SOUND)
            fail_msg("%s: %s", set->rules.at[i]->name,
                     t.counterexample ? t.counterexample : "untestable");
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Rules about cut values run where there are such, are replayed, and are worth the same; one about
 * whole tensors is no reason on tiles. */
static void rules_about_tiles(void **state)
{
    (void)state;
    static const char rules[] =
        "(rule scale-leaves (reduce + (reduce + (mul ?x ?f) :axis ?K) :par ?P) =>"
        " (mul (reduce + (reduce + ?x :axis ?K) :par ?P) ?f)"
        " :when (and (free ?f ?K) (free ?P (axes ?f))) :fp reassoc)"
        "(rule least (reduce max (reduce max (neg ?x) :axis ?K) :par ?P) =>"
        " (neg (reduce min (reduce min ?x :axis ?K) :par (meet ?K ?P))) :when (within ?P ?K) :fp exact)"
        "(rule whole-only (reduce + (mul ?x ?f) :axis ?K) => (mul (reduce + ?x :axis ?K) ?f)"
        " :when (free ?f ?K) :fp reassoc)";
    static const char text[] = "(program tiles (dims (M 4) (K 5)) (input X f32 (M K)) (input f f32 (M))"
                               "(output Y (reduce + (mul X f) :axis K))"
                               "(output Z (reduce max (neg X) :axis K)))";
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_ruleset *set = read_text(a, rules);
    assert_int_equal(set->rejected.n, 0);
    for (i64 i = 0; i < set->rules.n; i++)
        assert_int_equal(rl_try_rule(a, set->rules.at[i], 200, 17).verdict, RL_SOUND);
    rl_graph_options o = {
        .rules = set, .fp = RL_REASSOCIATED, .explain = true, .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, ir_read(a, "tiles", text, (i64)strlen(text)), &o);
    rl_graph_tile(g, NULL);
    rl_rule_count *counts;
    i64 fired = 0, n = rl_graph_rule_counts(g, a, &counts);
    for (i64 i = 0; i < n; i++)
        for (i64 k = 0; k < set->rules.n; k++)
            fired += strcmp(counts[i].name, set->rules.at[k]->name) == 0 && counts[i].stats.applied > 0;
    assert_int_equal(fired, 2); /* no whole tensors were searched */
    for (u64 seed = 0; seed < 4; seed++)
        check_worth(g, a, "tiles", seed);
    i64 assumptions = 0;
    str seen = str_new(a);
    assert_true(prove_all(g, a, &assumptions, &seen) > 10);
    assert_int_equal(assumptions, 0);
    assert_non_null(strstr(str_text(&seen), "scale-leaves"));
    assert_non_null(strstr(str_text(&seen), "least"));
    eqf_checking c = rl_graph_checking(g);
    const char *whole[] = {"X", "f", "{K}"}, *tile[] = {"(view X :par {M K})", "(view f :par {M})", "{K}"};
    assert_int_equal(c.guard(c.user, "when.whole-only", whole, 3), EQF_HOLDS);
    assert_int_equal(c.guard(c.user, "when.whole-only", tile, 3), EQF_REFUSED);
    const char *nothing[] = {"Y", "f", "{K}"}; /* no term of the program */
    assert_int_equal(c.guard(c.user, "when.whole-only", nothing, 3), EQF_REFUSED);
    assert_int_equal(c.guard(c.user, "when.no-rule", whole, 3), EQF_REFUSED);
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
        cmocka_unit_test(implied_rules_are_sound),
        cmocka_unit_test(shipped_rules_fire),
        cmocka_unit_test(planted_mistakes_are_found),
        cmocka_unit_test(sound_rules_are_accepted),
        cmocka_unit_test(rules_about_tiles),
        cmocka_unit_test(counterexamples_are_small),
        cmocka_unit_test(unmet_guards_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
