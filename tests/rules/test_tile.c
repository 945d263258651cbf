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

static void same_outputs(arena *a, const ir_program *p, const ir_program *q)
{
    tensor *x = NEW_N(a, tensor, p->outputs.n), *y = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, small_inputs(a, p, 5), a, x, (ir_eval_options){0});
    ir_eval(q, small_inputs(a, q, 5), a, y, (ir_eval_options){0});
    for (i64 i = 0; i < p->outputs.n; i++)
        assert_true(same_values(arena_ctx(a), &x[i], &y[i]));
}

static void named_programs(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(small_names); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        ir_program *p = small_program(a, small_names[k]);
        rl_graph *g = tiled(a, p, &o);
        rl_extracted form = rl_graph_form(g, a, EQF_DAG);
        assert_true(form.flops > 0);
        same_outputs(a, p, form.program);
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
        rl_refine refine;
    } cases[] = {
        {"attention", "O", "O.three-loops", RL_REFINE_MAXIMAL},
        {"rmsnorm-gemm", "Y", "Y.two-kernels", RL_REFINE_MAXIMAL},
        {"rmsnorm-gemm", "Y", "Y.three-kernels", RL_REFINE_MAXIMAL},
        {"row-softmax", "Y", "Y.three-loops", RL_REFINE_MAXIMAL},
        {"lora", "Y", "Y.two-kernels", RL_REFINE_MAXIMAL},
        {"lora", "Y", "Y.folded", RL_REFINE_MAXIMAL},
        {"rmsnorm-gemm", "Y", "Y.columns", RL_REFINE_SUBSETS},
        {"row-softmax", "Y", "Y.rows", RL_REFINE_SUBSETS},
        {"rmsnorm-gemm", "Y", "Y.two-kernels", RL_REFINE_SUBSETS},
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
        o.refine = cases[k].refine;
        rl_graph *g = tiled(a, p, &o);
        if (rl_graph_find(g, q, to).i != rl_graph_class(g, from).i)
            fail_msg("%s: %s is not found", cases[k].file, cases[k].to);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Phases are a default: all rules at once end in the same e-graph. */
static void phases_do_not_matter(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(small_names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_program(a, small_names[k]);
        rl_graph_options o = options_of(a);
        rl_graph *g = tiled(a, p, &o), *h = rl_graph_new(a, p, &o);
        assert_int_equal(rl_tile_with(h, rl_all_rules(h), NULL).stop, EQF_STOP_SATURATED);
        char x[33], y[33];
        assert_int_equal(eqf_digest(g->engine, x), EQF_OK);
        assert_int_equal(eqf_digest(h->engine, y), EQF_OK);
        assert_string_equal(x, y);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* tiles/NAME.eqf: outputs without a dot are the program; `Y.some-form` is a form that must be found
 * in the class of `Y`. */
static void index_maps_and_stored_values(void **state)
{
    (void)state;
    static const char *const names[] = {"packed",  "joined", "looked-up",
                                        "rotated", "summed", "windows", "renamed"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 found = 0;
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        i64 n, kept = 0;
        const char *path = arena_printf(a, "%s/rules/tiles/%s.eqf", EQF_TEST_DIR, names[k]);
        const char *text = file_read(a, path, 1 << 20, &n);
        ir_program *p = ir_read(a, path, text, n), *q = ir_read(a, path, text, n);
        for (i64 i = 0; i < p->outputs.n; i++)
            if (!strchr(intern_text(p->names, p->outputs.at[i].name), '.'))
                p->outputs.at[kept++] = p->outputs.at[i];
        p->outputs.n = kept;
        rl_graph_options o = options_of(a);
        o.explain = true;
        rl_graph *g = tiled(a, p, &o);
        for (i64 i = 0; i < q->outputs.n; i++) {
            const char *name = intern_text(q->names, q->outputs.at[i].name),
                       *dot = strchr(name, '.');
            for (i64 j = 0; dot && j < kept; j++) {
                const char *whole = intern_text(p->names, p->outputs.at[j].name);
                if (strncmp(name, whole, (size_t)(dot - name)) != 0 || whole[dot - name])
                    continue;
                found++;
                if (rl_graph_find(g, q, q->outputs.at[i].term).i !=
                    rl_graph_class(g, p->outputs.at[j].term).i)
                    fail_msg("%s: %s is not found", names[k], name);
            }
        }
        i64 assumptions = 0;
        assert_true(prove_all(g, a, &assumptions, NULL) > 20);
        assert_int_equal(assumptions, 0);
        for (u64 seed = 0; seed < 3; seed++)
            check_worth(g, a, names[k], seed);
        arena_free(a);
    }
    assert_int_equal(found, 8);
    eqf_ctx_free(ctx);
}

/* Every set of axes as a form of its own. */
static void subsets(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm_gemm", "rmsnorm_swiglu", "lora", "attention",
                                        "layernorm_gemm"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        o.refine = RL_REFINE_SUBSETS;
        rl_graph *g = tiled(a, small_program(a, names[k]), &o);
        for (u64 seed = 1; seed < 3; seed++)
            check_worth(g, a, names[k], seed);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

static bool stop_now(void *user)
{
    i64 *left = user;
    return --*left < 0;
}

/* Limits and a caller who has had enough end a run; the e-graph is whole. */
static void limits_stop(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 stopped = 0, finished = 0;
    for (i64 k = 0; k < 60; k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        i64 polls = k / 2;
        if (k % 2)
            o.limits.bytes = 20000 + 1500 * k;
        else
            o.cancelled = stop_now, o.user = &polls;
        trap t;
        volatile eqf_stop stop = EQF_STOP_BYTES;
        TRY (ctx, t) {
            rl_graph *g = rl_graph_new(a, small_program(a, "layernorm_gemm"), &o);
            stop = rl_graph_tile(g, NULL).stop;
            assert_int_equal(eqf_check(g->engine), EQF_OK);
        }
        assert_true(t.status == EQF_OK || t.status == EQF_E_LIMIT);
        assert_true(stop == EQF_STOP_SATURATED ||
                    stop == (k % 2 ? EQF_STOP_BYTES : EQF_STOP_CANCELLED));
        finished += stop == EQF_STOP_SATURATED;
        stopped += stop != EQF_STOP_SATURATED;
        arena_free(a);
    }
    assert_true(stopped > 5 && finished > 5);
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
        o.refine = seed % 5 ? RL_REFINE_MAXIMAL : RL_REFINE_SUBSETS;
        rl_graph *g = rl_graph_new(a, wide_program(a, (u64)seed), &o);
        rl_graph_saturate(g, NULL);
        o.limits.nodes = 10000;
        o.limits.iterations = 100;
        eqf_egraph_set_limits(g->engine, o.limits);
        eqf_stop stop = rl_graph_tile(g, NULL).stop;
        assert_true(stop == EQF_STOP_SATURATED ||
                    (o.refine == RL_REFINE_SUBSETS && stop == EQF_STOP_NODES));
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
    for (i64 k = 0; k < COUNT_OF(names) + 2; k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        o.explain = true;
        o.refine = k < COUNT_OF(names) ? RL_REFINE_MAXIMAL : RL_REFINE_SUBSETS;
        rl_graph *g = tiled(a, small_program(a, names[k % COUNT_OF(names)]), &o);
        i64 assumptions = 0, proofs = prove_all(g, a, &assumptions, NULL);
        assert_true(proofs > 20);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* The judges alone, on terms of two programs: a step, and the same with one thing wrong. */
static const char judged[] =
    "(program judged (dims (M 4) (K 6) (N 5) (K2 6) (J 3)) (input X f32 (M K)) (input W f32 (K N)) "
    "(input b f32 (N)) (input j i64 (J)) (let Y (matmul X W :axis K)) "
    "(output Z (add Y b)) (output S (reduce + X :axis K)) (output L (reduce max X :axis K)) "
    "(output G (gather X j :axis K)) (output T (rename (add (exp X) (square X)) :axis K :to K2)) "
    "(output U (reduce + X :axis {M K})) (output V (slice (exp X) :axis K :to J :start 1 :step "
    "2)))";

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *left, *right;
        bool holds;
    } cases[] = {
        {"build.view.add", "(view (add Y b) :par {M N})",
         "(add (view Y :par {M N}) (view b :par {N}))", true},
        {"build.view.add", "(view (add Y b) :par {M N})",
         "(add (view b :par {N}) (view Y :par {M N}))", true},
        {"build.view.add", "(view (add Y b) :par {M N})", "(add (view Y :par {M N}) b)", false},
        {"build.view.add", "(view (add Y b) :par {M N})",
         "(mul (view Y :par {M N}) (view b :par {N}))", false},
        {"build.view.add", "(view (add Y b) :par {M N})",
         "(add (view Y :par {N}) (view b :par {N}))", false},
        {"build.view.add", "(view (add Y b) :par {M N})",
         "(add (view Y :par {M N}) (view Y :par {M N}))", false},
        {"build.view.reduce.+", "(view (reduce.+ X :axis {K}) :par {M})",
         "(reduce.+ (reduce.+ (view X :par {M K}) :axis {K}) :par {K})", true},
        {"build.view.reduce.+", "(view (reduce.+ X :axis {K}) :par {M})",
         "(reduce.+ (view X :par {M}) :axis {K})", false},
        {"build.view.reduce.+", "(view (reduce.+ X :axis {K}) :par {M})",
         "(reduce.max (reduce.+ (view X :par {M K}) :axis {K}) :par {K})", false},
        {"build.view.reduce.max", "(view (reduce.max X :axis {K}) :par {M})",
         "(reduce.+ (reduce.max (view X :par {M K}) :axis {K}) :par {K})", false},
        {"build.view.reduce.max", "(view (reduce.max X :axis {K}) :par {M})",
         "(reduce.max (reduce.max (view X :par {M K}) :axis {K}) :par {K})", true},
        {"build.view.reduce.max", "(view (reduce.+ X :axis {K}) :par {M})",
         "(reduce.max (reduce.max (view X :par {M K}) :axis {K}) :par {K})", false},
        {"build.view.reduce.+", "(view (reduce.+ X :axis {K}) :par {M})",
         "(reduce.+ (view X :par {M K}) :axis {K})", false}, /* partial used as complete */
        {"build.view.matmul", "(view (matmul X W :axis {K}) :par {M N})",
         "(reduce.+ (tile-matmul (view X :par {M K}) (view W :par {K N}) :axis {K}) :par {K})",
         true},
        {"build.view.matmul", "(view (matmul X W :axis {K}) :par {M N})",
         "(tile-matmul (view X :par {M K}) (view W :par {K N}) :axis {K})", false},
        {"build.view.matmul", "(view (matmul X W :axis {K}) :par {M N})",
         "(reduce.+ (tile-matmul (view X :par {M K}) (view X :par {M K}) :axis {K}) :par {K})",
         false},
        {"build.view.gather.2", "(view (gather X j :axis {K}) :par {M J})",
         "(gather (view X :par {M}) (view j :par {J}) :axis {K})", true},
        {"build.view.gather.2", "(view (gather X j :axis {K}) :par {M J})",
         "(gather (view X :par {M K}) (view j :par {J}) :axis {K})", false},
        {"build.refine.reduce.+", "(reduce.+ X :axis {M K})",
         "(reduce.+ (reduce.+ (view X :par {M K}) :axis {M K}) :par {M K})", true},
        {"build.refine.reduce.+", "(reduce.+ X :axis {M K})",
         "(reduce.+ (reduce.+ (view X :par {M K}) :axis {K}) :par {K})", false},
        {"build.rename.add", "(rename (add (exp X) (square X)) :map (1 K 1 K2 0 none none \"\"))",
         "(add (rename (exp X) :map (1 K 1 K2 0 none none \"\")) "
         "(rename (square X) :map (1 K 1 K2 0 none none \"\")))",
         true},
        {"build.rename.add", "(rename (add (exp X) (square X)) :map (1 K 1 K2 0 none none \"\"))",
         "(add (rename (exp X) :map (1 K 1 K2 0 none none \"\")) (square X))", false},
        {"build.slice.exp", "(slice (exp X) :map (1 K 1 J 2 1 2 none none \"\"))",
         "(exp (slice X :map (1 K 1 J 2 1 2 none none \"\")))", true},
        {"build.slice.exp", "(slice (exp X) :map (1 K 1 J 2 1 2 none none \"\"))", "(exp X)",
         false},
        {"build.view.exp", "(slice (exp X) :map (1 K 1 J 2 1 2 none none \"\"))",
         "(exp (slice X :map (1 K 1 J 2 1 2 none none \"\")))", true}, /* the term says which */
        {"build.view.none", "(view (add Y b) :par {M N})",
         "(add (view Y :par {M N}) (view b :par {N}))", false},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_graph_options o = options_of(a);
    rl_graph *g = tiled(a, ir_read(a, "judged", judged, (i64)strlen(judged)), &o);
    eqf_checking c = rl_graph_checking(g);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        static const char product[] = "(matmul X W :axis {K})";
        str text[2] = {str_new(a), str_new(a)};
        for (int side = 0; side < 2; side++) /* Y is short for the product */
            for (const char *x = side ? cases[k].right : cases[k].left; *x; x++)
                if (*x == 'Y')
                    str_add(&text[side], product);
                else
                    str_add_char(&text[side], *x);
        eqf_verdict v = c.step(c.user, cases[k].reason, str_text(&text[0]), str_text(&text[1]));
        if (v != (cases[k].holds ? EQF_HOLDS : EQF_REFUSED))
            fail_msg("%s: %s = %s", cases[k].reason, cases[k].left, cases[k].right);
    }
    const char *good[] = {"X", "{M K}"}, *bad[] = {"b", "{M K}"},
               *two[] = {"(view X :par {M K})", "{M K}"};
    assert_int_equal(c.guard(c.user, "when.combine", good, 2), EQF_HOLDS);
    assert_int_equal(c.guard(c.user, "when.combine", bad, 2), EQF_REFUSED);
    assert_int_equal(c.guard(c.user, "when.combine", two, 2), EQF_REFUSED);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    i64 count = argc > 1 ? atoll(argv[1]) : 100;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_programs, &count),
        cmocka_unit_test(forms_are_found),
        cmocka_unit_test(named_programs),
        cmocka_unit_test(index_maps_and_stored_values),
        cmocka_unit_test(subsets),
        cmocka_unit_test(limits_stop),
        cmocka_unit_test(phases_do_not_matter),
        cmocka_unit_test(everything_is_proved),
        cmocka_unit_test(wrong_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
