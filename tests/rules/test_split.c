/* Splits: reductions go part by part, the forms that split states are found, parts of unequal size
 * and wholly masked ones included, and every step is proved. */
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

static rl_graph_options options_of(arena *a, bool explain)
{
    eqf_limits limits = eqf_limits_default();
    limits.seconds = -1; /* so that no clock decides */
    limits.iterations = 100;
    return (rl_graph_options){
        .rules = rl_ruleset_shipped(a), .fp = RL_APPROXIMATE, .explain = explain, .limits = limits};
}

static ir_atom atom_called(const ir_program *p, const char *name)
{
    u32 id = intern_find(p->names, name, (i64)strlen(name));
    return id ? ir_atom_find(p, id) : (ir_atom){0};
}

static rl_graph *split(arena *a, const ir_program *p, const char *atom, i64 parts, bool explain)
{
    rl_graph_options o = options_of(a, explain);
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    rl_graph_split(g, atom_called(p, atom), parts);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    return g;
}

static const char masked[] =
    "(program attention-split (dims (M 6) (T 7) (D 3) (E 4)) (input Q f32 (M D)) "
    "(input K f32 (T D)) (input V f32 (T E)) "
    "(let S (where (le (iota T) (iota M)) (matmul Q K :axis D) -inf)) "
    "(let P (exp (sub S (reduce max S :axis T)))) "
    "(output O (matmul (div P (reduce + P :axis T)) V :axis T)))";

/* The hand-written split over keys, with a causal mask and a short last part: states of the parts,
 * merged. */
static void states_of_parts_are_found(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *path = EQF_TEST_DIR "/ir/tiled/attention-split.eqf";
    const char *text = file_read(a, path, 1 << 20, &n);
    ir_program *q = ir_read(a, path, text, n);
    ir_program *p = ir_read(a, "masked", masked, (i64)strlen(masked));
    rl_graph *g = split(a, p, "T", 3, false);
    i64 found = 0;
    for (i64 i = 0; i < q->outputs.n; i++) {
        if (strcmp(intern_text(q->names, q->outputs.at[i].name), "O.split") != 0)
            continue;
        found++;
        assert_int_equal(rl_graph_find(g, q, q->outputs.at[i].term).i,
                         rl_graph_class(g, p->outputs.at[0].term).i);
    }
    assert_int_equal(found, 1);
    for (u64 seed = 0; seed < 4; seed++)
        check_worth(g, a, "masked", seed);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void named_programs(void **state)
{
    (void)state;
    static const struct {
        const char *program, *atom;
    } cases[] = {
        {"attention", "T"}, {"attention_causal", "T"}, {"rmsnorm_gemm", "K"},  {"row_softmax", "T"},
        {"lora", "K"},      {"rmsnorm_swiglu", "K"},   {"self_attention", "T"}};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_program(a, cases[k].program);
        rl_graph *g = split(a, p, cases[k].atom, 2, false);
        for (u64 seed = 0; seed < 3; seed++)
            check_worth(g, a, cases[k].program, seed);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Programs split along an atom that something reduces, into parts of unequal size where its extent
 * is odd. */
static void random_programs(void **state)
{
    const i64 count = *(const i64 *)*state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 nodes = 0, splits = 0;
    for (i64 seed = 1; seed <= count; seed++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = wide_program(a, (u64)seed);
        rl_graph_options o = options_of(a, false);
        o.limits.nodes = 400;
        o.limits.iterations = 4;
        rl_graph *g = rl_graph_new(a, p, &o);
        rl_graph_saturate(g, NULL);
        ir_atom d = {1 + (u32)seed % 6};
        if (g->atom_index.n > (i64)d.i && g->atom_index.at[d.i] && ir_extent(p, d) > 2) {
            ir_split first = rl_graph_split(g, d, 2);
            ir_atom other = {1 + (u32)(seed / 6 + seed) % 6}; /* a part once more, or another */
            ir_atom next = seed % 3 ? first.inner : other;
            if (seed % 2 && next.i != d.i && g->atom_index.n > (i64)next.i &&
                g->atom_index.at[next.i] && ir_extent(g->own, next) > 2)
                rl_graph_split(g, next, 2);
            o.limits.nodes = 800;
            eqf_egraph_set_limits(g->engine, o.limits);
            rl_graph_saturate(g, NULL);
            splits++;
        }
        o.limits.nodes = 20000;
        o.limits.iterations = 100;
        eqf_egraph_set_limits(g->engine, o.limits);
        assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
        assert_int_equal(eqf_check(g->engine), EQF_OK);
        for (u64 cut = 1; cut <= 2; cut++)
            nodes += check_worth(g, a, arena_printf(a, "random %lld", (long long)seed), cut).nodes;
        arena_free(a);
    }
    assert_true(nodes > 50 * count && splits > count / 3);
    eqf_ctx_free(ctx);
}

static void everything_is_proved(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_graph *g = split(a, ir_read(a, "masked", masked, (i64)strlen(masked)), "T", 3, true);
    i64 assumptions = 0;
    str seen = str_new(a);
    assert_true(prove_all(g, a, &assumptions, &seen) > 100);
    assert_int_equal(assumptions, 0);
    assert_non_null(strstr(str_text(&seen), "split.1.matmul"));
    assert_non_null(strstr(str_text(&seen), "splitdim.exp"));
    assert_non_null(strstr(str_text(&seen), "shift-by-part-maximum"));
    arena_free(a);
    eqf_ctx_free(ctx);
}

#define ROWS                                                                                       \
    "(program rows (dims (M 6) (T 7) (E 4)) (input X f32 (M T)) (input V f32 (T E)) (input v f32 (T)) "  \
    "(input k f32 (M)) (let tau (exp k)) (let S (where (le (iota T) (iota M)) X -inf)) "               \
    "(let m (reduce max S :axis T)) (let P (exp (sub S m))) (let l (reduce + P :axis T)) "

/* Reductions of parts that rules do not free, where some parts have no live position, and one is short. */
static void parts_without_live_positions(void **state)
{
    static const char *const texts[] = {
        ROWS "(let e (exp (div (sub S m) tau))) (output O (matmul (div e (reduce + e :axis T)) V :axis T)))",
        ROWS "(output O (reduce max (tanh (sub S (reduce max X :axis T))) :axis T)))",
        ROWS "(output O (reduce + (where (le (iota T) (iota M)) (mul v (sub X (log l))) 0) :axis T)))",
        ROWS "(let D (reduce + (mul (div P l) v) :axis T)) "
             "(output O (reduce + (mul (mul (div P l) (sub v D)) v) :axis T)))",
        ROWS "(let D (reduce + (mul (div P l) v) :axis T)) "
             "(output O (reduce + (mul (div P l) (square (sub v D))) :axis T)))",
        ROWS "(let mu (div (reduce + (mul P v) :axis T) l)) "
             "(output O (div (reduce + (mul P (square (sub v mu))) :axis T) l)))",
    };
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 parts = 0;
    for (i64 k = 0; k < COUNT_OF(texts); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph *g = split(a, ir_read(a, "rows", texts[k], (i64)strlen(texts[k])), "T", 3, true);
        rl_fuse_report report = rl_graph_fuse(g, RL_FUSE_NODE);
        assert_int_equal(report.stop, EQF_STOP_SATURATED);
        for (u64 seed = 0; seed < 4; seed++)
            check_worth(g, a, texts[k], seed);
        i64 assumptions = 0;
        prove_all(g, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        parts += report.parts > 0;
        arena_free(a);
    }
    assert_true(parts >= 5); /* a quotient of a part's sums has no value there, and is no reference */
    eqf_ctx_free(ctx);
}

static void wrong_splits_are_refused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = ir_read(a, "masked", masked, (i64)strlen(masked));
    static const i64 parts[] = {-1, 0, 1, 7, 100, INT64_MAX};
    rl_graph_options o = options_of(a, false);
    rl_graph *g = rl_graph_new(a, p, &o);
    for (i64 k = 0; k < COUNT_OF(parts); k++) {
        trap t;
        TRY (ctx, t)
            rl_graph_split(g, atom_called(p, "T"), parts[k]);
        assert_int_equal(t.status, EQF_E_ARGUMENT);
    }
    assert_int_equal(g->own->splits.n, 0);
    ir_split s = rl_graph_split(g, atom_called(p, "T"), 3);
    assert_int_equal(ir_extent(g->own, s.outer), 3);
    assert_int_equal(ir_extent(g->own, s.inner), 3);
    trap t;
    TRY (ctx, t)
        rl_graph_split(g, (ir_atom){99}, 2);
    assert_int_equal(t.status, EQF_E_ARGUMENT);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    i64 count = argc > 1 ? atoll(argv[1]) : 100;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_programs, &count),
        cmocka_unit_test(everything_is_proved),
        cmocka_unit_test(parts_without_live_positions),
        cmocka_unit_test(wrong_splits_are_refused),
        cmocka_unit_test(states_of_parts_are_found),
        cmocka_unit_test(named_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
