/* Tiled forms as e-nodes: every derivation written by hand goes in with the types that the IR gives
 * it, is found again without a new e-node, and comes out as a program of the same values; bundles
 * are sets, also after their components became one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "rules/graph_impl.h"
#include "rules/small.h"
#include "rules/values.h"

static const char *const names[] = {"attention-split", "attention",   "layernorm-gemm", "lora",
                                    "masks",           "mla",         "moments",        "nested",
                                    "rmsnorm-gemm",    "row-softmax", "swiglu"};

static ir_program *read_tiled(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, "%s/ir/tiled/%s.eqf", EQF_TEST_DIR, name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static rl_graph *graph_of(arena *a, const ir_program *p, bool explain)
{
    rl_graph_options o = {.limits = eqf_limits_default(), .explain = explain};
    o.limits.seconds = -1;
    return rl_graph_new(a, p, &o);
}

/* The types of the e-graph are those of the IR, floats being one. */
static void types_agree(rl_graph *g, const ir_program *p)
{
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        eqf_class c = rl_graph_class(g, (ir_term){(u32)k});
        if (!c.i || node->is_open)
            continue;
        rl_type t = rl_graph_type(g, c);
        assert_int_not_equal(t.dtype, DT_NONE);
        if (ir_kind_of((ir_op)node->op) == IR_A_BUNDLE)
            assert_true(t.dims == rl_mask(g, node->attr.par));
        if (ir_kind_of((ir_op)node->op) <= IR_A_COMPONENT)
            assert_true(t.dims == rl_mask(g, node->dims));
        if (ir_kind_of((ir_op)node->op) <= IR_A_BUNDLE)
            assert_true(t.axes == rl_mask(g, node->axes));
        assert_int_equal(t.kind, ir_kind_of((ir_op)node->op));
    }
}

static i64 *tiles_of(arena *a, const ir_program *p, i64 seed)
{
    rng r = rng_new((u64)seed);
    i64 *tiles = NEW_N(a, i64, p->atoms.n);
    for (i64 d = 0; d < p->atoms.n; d++)
        tiles[d] = 1 + (i64)rng_below(&r, (u64)MIN(3, MAX(p->atoms.at[d].extent, 1)));
    for (i64 d = 1; d < p->atoms.n; d++) /* what the program says of itself */
        if (strcmp(ir_atom_name(p, (ir_atom){(u32)d}), "K") == 0)
            tiles[d] = 3;
    return tiles;
}

static void derivations_go_in_and_out(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_tiled(a, names[k]), *q = read_tiled(a, names[k]);
        rl_graph *g = graph_of(a, p, false);
        assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
        types_agree(g, p);
        i64 size = eqf_egraph_size(rl_graph_engine(g)).nodes;
        for (i64 i = 0; i < q->outputs.n; i++) {
            eqf_class c = rl_graph_find(g, q, q->outputs.at[i].term);
            assert_int_not_equal(c.i, 0);
            assert_int_equal(c.i, rl_graph_class(g, p->outputs.at[i].term).i);
        }
        assert_int_equal(eqf_egraph_size(rl_graph_engine(g)).nodes, size);
        rl_extracted form = rl_graph_form(g, a, EQF_DAG);
        tensor *x = NEW_N(a, tensor, p->outputs.n), *y = NEW_N(a, tensor, p->outputs.n);
        for (i64 seed = 1; seed <= 3; seed++) {
            ir_eval_options o = {.tiles = tiles_of(a, p, seed)};
            ir_eval(p, small_inputs(a, p, 5), a, x, o);
            o.tiles = tiles_of(a, form.program, seed);
            ir_eval(form.program, small_inputs(a, form.program, 5), a, y, o);
            for (i64 i = 0; i < p->outputs.n; i++)
                if (!same_values(ctx, &x[i], &y[i]))
                    fail_msg("%s: output %s differs", names[k],
                             intern_text(p->names, p->outputs.at[i].name));
        }
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Each of these differs from a term of row-softmax in one thing, and is not there. */
static void others_are_not_found(void **state)
{
    (void)state;
    static const char frame[] =
        "(program other (dims (M 4) (T 7)) (input X f32 (M T)) (let Xt (view X :par {M T})) "
        "(let c (formal 0 f32 M)) (let s (formal 1 f32 M)) (let z (formal 2 f32 M)) "
        "(let h (lambda (c s z) (mul %s c))) (let m (comp %s (reduce max Xt :axis T))) "
        "(let l (comp + (reduce + (exp (sub Xt (run m :par T))) :axis T) h m)) "
        "(let R (loop %s :par T)) "
        "(output Y (comb (div (exp (sub Xt (get R m))) (get R l)) :par {M T})))";
    static const char ratio[] = "(where (finite s) (exp (sub s z)) (const f32 0))";
    static const struct {
        const char *ratio, *reducer, *comps;
        bool found;
    } cases[] = {
        {ratio, "max", "m l", true},
        {ratio, "max", "l m", true},
        {"(where (finite s) (exp (sub z s)) (const f32 0))", "max", "m l", false},
        {ratio, "min", "m l", false},
        {ratio, "max", "m l (comp + (reduce + Xt :axis T))", false},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_graph *g = graph_of(a, read_tiled(a, "row-softmax"), false);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        char text[2000];
        int n =
            snprintf(text, sizeof text, frame, cases[k].ratio, cases[k].reducer, cases[k].comps);
        ir_program *q = ir_read(a, "other", text, n);
        bool found = rl_graph_find(g, q, q->outputs.at[0].term).i != 0;
        assert_int_equal(found, cases[k].found);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static eqf_class loop_of(rl_graph *g, eqf_class *comps, i64 n, u64 axes)
{
    eqf_class c;
    n = rl_component_set(g, comps, n);
    eqf_head head =
        rl_operator_head(g, IR_loop, IR_NO_REDUCER, n, rl_par_payload(g, IR_loop, axes));
    rl_must(g, eqf_add(g->engine, head, comps, (size_t)n, &c));
    return c;
}

/* When two components become one, so do the bundles that held them, and the proof says why. */
static void bundles_are_sets(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = read_tiled(a, "swiglu");
    rl_graph *g = graph_of(a, p, true);
    eqf_class comp[3];
    i64 n = 0;
    u64 axes = 0;
    for (i64 k = 1; k < p->nodes.n; k++)
        if (p->nodes.at[k].op == IR_comp)
            comp[n++] = rl_graph_class(g, (ir_term){(u32)k});
        else if (p->nodes.at[k].op == IR_loop)
            axes = rl_mask(g, p->nodes.at[k].attr.par);
    assert_int_equal(n, 3);
    eqf_class three = loop_of(g, (eqf_class[]){comp[2], comp[0], comp[1]}, 3, axes);
    eqf_class two = loop_of(g, (eqf_class[]){comp[2], comp[1], comp[2]}, 3, axes);
    assert_int_not_equal(eqf_find(g->engine, three).i, eqf_find(g->engine, two).i);
    bool changed;
    assert_int_equal(eqf_union(g->engine, comp[0], comp[1], eqf_text_of("told"), &changed), EQF_OK);
    assert_int_equal(eqf_rebuild(g->engine), EQF_OK);
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    assert_int_equal(eqf_find(g->engine, three).i, eqf_find(g->engine, two).i);
    i64 loops = 0;
    for (eqf_node m = eqf_next_node(g->engine, three, (eqf_node){0}); m.i;
         m = eqf_next_node(g->engine, three, m))
        loops += eqf_head_arity(g->lang, eqf_node_head(g->engine, m)) == 2;
    assert_int_equal(loops, 1);

    eqf_checking judges = rl_graph_checking(g);
    const char *x = "(comp.+ X)", *y = "(comp.+ (square X))";
    const char *xy = arena_printf(a, "(loop %s %s :par {K})", x, y);
    assert_int_equal(judges.step(judges.user, "normalise", xy, xy), EQF_REFUSED); /* not partial */
    x = "(comp.+ (reduce.+ (view X :par {M K}) :axis {K}))";
    y = "(comp.+ (reduce.+ (square (view X :par {M K})) :axis {K}))";
    xy = arena_printf(a, "(loop %s %s :par {K})", x, y);
    const char *yxx = arena_printf(a, "(loop %s %s %s :par {K})", y, x, x);
    assert_int_equal(judges.step(judges.user, "normalise", yxx, xy), EQF_HOLDS);
    const char *xx = arena_printf(a, "(loop %s %s :par {K})", x, x);
    assert_int_equal(judges.step(judges.user, "normalise", yxx, xx), EQF_REFUSED);
    assert_int_equal(judges.step(judges.user, "normalise", xx, yxx), EQF_REFUSED);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static const char *text_of(rl_graph *g, arena *a, eqf_class c)
{
    eqf_extraction *x;
    const char *text;
    rl_must(g, eqf_rebuild(g->engine));
    assert_int_equal(eqf_extract(g->engine, &c, 1, NULL, EQF_TREE, &x), EQF_OK);
    assert_int_equal(eqf_extraction_text(x, c, false, 0, &text), EQF_OK);
    text = arena_strdup(a, text);
    eqf_extraction_free(x);
    return text;
}

static void tell(rl_graph *g, str *axioms, const char *x, const char *y)
{
    bool changed;
    if (eqf_union_text(g->engine, eqf_text_of(x), eqf_text_of(y), eqf_text_of("told"), &changed))
        fail_msg("%s = %s: %s", x, y, eqf_diag_get(g->ctx, eqf_diag_count(g->ctx) - 1).message);
    str_printf(axioms, "(axiom told %s %s)\n", x, y);
}

/* An equality that holds only because two bundles became one: its proof passes the normaliser. */
static void bundles_that_meet_are_proved(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = read_tiled(a, "swiglu");
    rl_graph *g = graph_of(a, p, true);
    eqf_class comp[3], last, three, two, get;
    i64 n = 0;
    for (i64 k = 1; k < p->nodes.n; k++)
        if (p->nodes.at[k].op == IR_comp)
            comp[n++] = rl_graph_class(g, (ir_term){(u32)k});
    for (i64 i = 0; i < 2; i++) /* the statistic last, the products first */
        if (rl_graph_type(g, comp[i]).dims != rl_graph_type(g, comp[(i + 1) % 3]).dims &&
            rl_graph_type(g, comp[i]).dims != rl_graph_type(g, comp[(i + 2) % 3]).dims) {
            eqf_class statistic = comp[i];
            comp[i] = comp[2];
            comp[2] = statistic;
        }
    u64 axes = rl_graph_type(g, comp[2]).axes & ~rl_graph_type(g, comp[2]).dims;
    eqf_head head = rl_operator_head(g, IR_get, IR_NO_REDUCER, 2, 0);
    three = loop_of(g, (eqf_class[]){comp[0], comp[1], comp[2]}, 3, axes);
    two = loop_of(g, (eqf_class[]){comp[1], comp[2]}, 2, axes);
    last = comp[2];
    rl_must(g, eqf_add(g->engine, head, (eqf_class[]){three, last}, 2, &get));
    const char *from = text_of(g, a, get);
    rl_must(g, eqf_add(g->engine, head, (eqf_class[]){two, last}, 2, &get));
    const char *to = text_of(g, a, get);
    const char *sum = "(reduce.+ (reduce.+ (square (view X :par {M K})) :axis {K}) :par {K})";
    const char *other = arena_printf(a, "(square %s)", sum);
    str axioms = str_new(a);
    tell(g, &axioms, sum, from);
    tell(g, &axioms, to, other);
    tell(g, &axioms, text_of(g, a, comp[0]), text_of(g, a, comp[1]));
    assert_int_equal(eqf_rebuild(g->engine), EQF_OK);
    eqf_proof *proof;
    char *text;
    assert_int_equal(eqf_explain(g->engine, eqf_text_of(sum), eqf_text_of(other), &proof), EQF_OK);
    assert_int_equal(eqf_proof_text(proof, EQF_SHARED, &text), EQF_OK);
    assert_non_null(strstr(text, "normalise"));
    eqf_checking judges = rl_graph_checking(g);
    judges.axioms = eqf_text_of(str_text(&axioms));
    eqf_check_report report;
    if (eqf_proof_check(ctx, eqf_text_of(text), eqf_text_of(sum), eqf_text_of(other), &judges,
                        &report))
        fail_msg("%s\n%s", eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message, text);
    assert_int_equal(report.assumptions, 0);
    eqf_text_free(ctx, text);
    eqf_proof_free(proof);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derivations_go_in_and_out),
        cmocka_unit_test(others_are_not_found),
        cmocka_unit_test(bundles_are_sets),
        cmocka_unit_test(bundles_that_meet_are_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
