/* Tiling: what it has to find is there, every e-node is worth what its class is with several tiles
 * an axis, every step is proved, and what cannot be tiled is stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/graph_impl.h"
#include "rules/proved.h"
#include "rules/small.h"
#include "rules/wide.h"
#include "rules/worth.h"

static rl_graph_options options_of(arena *a)
{
    eqf_limits limits = eqf_limits_default();
    limits.seconds = -1; /* so that no clock decides */
    return (rl_graph_options){
        .rules = rl_ruleset_shipped(a), .fp = RL_APPROXIMATE, .limits = limits};
}

static rl_graph *tiled(arena *a, const ir_program *p, const rl_graph_options *o)
{
    rl_graph *g = rl_graph_new(a, p, o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    return g;
}

static void named_programs(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(small_names); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        rl_graph *g = tiled(a, small_program(a, small_names[k]), &o);
        for (u64 seed = 0; seed < 3; seed++)
            check_worth(g, a, small_names[k], seed);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Forms written by hand that need algebra and tiling alone. */
static void forms_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from, *to;
    } cases[] = {
        {"attention", "O", "O.three-loops"},   {"rmsnorm-gemm", "Y", "Y.two-kernels"},
        {"rmsnorm-gemm", "Y", "Y.three-kernels"}, {"row-softmax", "Y", "Y.three-loops"},
        {"lora", "Y", "Y.two-kernels"},        {"lora", "Y", "Y.folded"},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new(ctx, 0);
        i64 n;
        const char *path = arena_printf(a, "%s/ir/tiled/%s.eqf", EQF_TEST_DIR, cases[k].file);
        const char *text = file_read(a, path, 1 << 20, &n);
        ir_program *p = ir_read(a, path, text, n), *q = ir_read(a, path, text, n);
        ir_term from = {0}, to = {0};
        for (i64 i = 0; i < q->outputs.n; i++) {
            const char *name = intern_text(q->names, q->outputs.at[i].name);
            if (strcmp(name, cases[k].from) == 0)
                from = p->outputs.at[i].term;
            if (strcmp(name, cases[k].to) == 0)
                to = q->outputs.at[i].term;
        }
        p->outputs.at[0].term = from;
        p->outputs.n = 1;
        rl_graph_options o = options_of(a);
        rl_graph *g = tiled(a, p, &o);
        if (rl_graph_find(g, q, to).i != rl_graph_class(g, from).i)
            fail_msg("%s: %s is not found", cases[k].file, cases[k].to);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Random programs: the value of every e-node, and of the outputs' cheapest forms. */
static void random_programs(void **state)
{
    const i64 count = *(const i64 *)*state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 nodes = 0;
    for (i64 seed = 1; seed <= count; seed++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        o.limits.nodes = 400;
        o.limits.iterations = 4;
        rl_graph *g = rl_graph_new(a, wide_program(a, (u64)seed), &o);
        rl_graph_saturate(g, NULL);
        o.limits.nodes = 10000;
        o.limits.iterations = 100;
        eqf_egraph_set_limits(g->engine, o.limits);
        assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
        assert_int_equal(eqf_check(g->engine), EQF_OK);
        for (u64 cut = 1; cut <= 2; cut++)
            nodes += check_worth(g, a, arena_printf(a, "random %lld", (long long)seed), cut).nodes;
        arena_free(a);
    }
    assert_true(nodes > 50 * count);
    eqf_ctx_free(ctx);
}

/* Every step of tiling is judged from text alone, and nothing is assumed. */
static void everything_is_proved(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm_gemm", "lora", "row_softmax", "self_attention",
                                        "attention_causal"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        o.explain = true;
        rl_graph *g = tiled(a, small_program(a, names[k]), &o);
        i64 assumptions = 0, proofs = prove_all(g, a, &assumptions, NULL);
        assert_true(proofs > 20);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    i64 count = argc > 1 ? atoll(argv[1]) : 100;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_programs, &count),
        cmocka_unit_test(forms_are_found),
        cmocka_unit_test(named_programs),
        cmocka_unit_test(everything_is_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
