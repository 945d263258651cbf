/* Fusion: the loops of every derivation are found, with proofs that are replayed; everything in the
 * e-graph is worth what its class is; steps with one thing wrong are refused.
 *
 * derivations/NAME.eqf: outputs without a dot are the program; `Y.some-form` is a form that must be
 * found in the class of `Y`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "rules/fuse_impl.h"
#include "rules/worth.h"

static const char *const derivations[] = {
    "attention",    "attention_causal", "differential_attention", "layernorm_gemm", "lora",
    "mla",          "moments",          "rmsnorm_gemm",           "rmsnorm_mlp",    "rmsnorm_swiglu",
    "row_softmax",  "self_attention"};

static ir_program *read_derivation(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, "%s/rules/derivations/%s.eqf", EQF_TEST_DIR, name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static const char *output_name(const ir_program *p, i64 i)
{
    return intern_text(p->names, p->outputs.at[i].name);
}

/* The program with one output alone. */
static ir_program *with_output(arena *a, const ir_program *p, i64 i)
{
    ir_program *q = arena_copy(a, p, sizeof *p);
    memset(&q->outputs, 0, sizeof q->outputs);
    vec_push(a, &q->outputs, p->outputs.at[i]);
    return q;
}

static rl_graph *fused(arena *a, const ir_program *p, rl_fuse_mode mode, bool explain)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default(),
                          .explain = explain};
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_fuse(g, mode).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
    return g;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

/* The term as the engine writes it; every part of it is in the e-graph. */
static const char *term_text(rl_graph *g, arena *a, const ir_program *p, ir_term t)
{
    const ir_node *node = ir_get(p, t);
    eqf_class c = rl_graph_find(g, p, t);
    if (!c.i)
        return NULL;
    const eqf_egraph *e = g->engine;
    c = eqf_find(e, c);
    for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
        eqf_head head = eqf_node_head(e, n);
        const rl_leaf *leaf = rl_leaf_of(g, head);
        if (leaf && leaf->op == node->op)
            return eqf_head_name(g->lang, head);
        if (leaf || g->operators.at[eqf_head_op(g->lang, head).i].op != node->op ||
            eqf_head_arity(g->lang, head) != node->arg_count)
            continue;
        bool same = true;
        for (i64 i = 0; i < node->arg_count && same; i++) {
            eqf_class kid = eqf_find(e, rl_graph_find(g, p, node->args[i]));
            bool any = false;
            for (i64 j = 0; j < node->arg_count; j++)
                any = any || eqf_node_child(e, n, (unsigned)j).i == kid.i;
            same = any;
        }
        if (!same)
            continue;
        str s = str_new(a);
        str_add(&s, "(");
        eg_print_head(g->lang, &s, head.i);
        for (i64 i = 0; i < node->arg_count; i++) {
            i64 j = i; /* components in the e-node's order */
            while (node->op == IR_loop && eqf_node_child(e, n, (unsigned)i).i !=
                                              eqf_find(e, rl_graph_find(g, p, node->args[j])).i)
                j = (j + 1) % node->arg_count;
            str_printf(&s, " %s", term_text(g, a, p, node->args[j]));
        }
        eg_print_payload(g->lang, &s, head.i);
        str_add(&s, ")");
        return str_text(&s);
    }
    return NULL;
}

/* Steps of the proof that the texts are equal; fails when the checker does not accept it. */
static i64 prove(rl_graph *g, const char *name, const char *from, const char *to, bool *fuses)
{
    eqf_ctx *ctx = g->ctx;
    eqf_proof *proof;
    char *text;
    eqf_check_report report;
    eqf_checking checking = rl_graph_checking(g);
    if (eqf_explain(g->engine, eqf_text_of(from), eqf_text_of(to), &proof))
        fail_msg("%s: %s", name, eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message);
    assert_int_equal(eqf_proof_text(proof, EQF_SHARED, &text), EQF_OK);
    if (eqf_proof_check(ctx, eqf_text_of(text), eqf_text_of(from), eqf_text_of(to), &checking,
                        &report))
        fail_msg("%s: %s = %s: %s", name, from, to,
                 eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message);
    *fuses = *fuses || strstr(text, "loop.") || strstr(text, "bundle");
    assert_int_equal(report.assumptions, 0);
    eqf_text_free(ctx, text);
    eqf_proof_free(proof);
    return report.steps;
}

/* Tiled forms of one reduction each, as written: their fused forms are found in the same class. */
static void loops_are_fused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 starts = 0, proofs = 0;
    for (i64 k = 0; k < COUNT_OF(derivations); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_derivation(a, derivations[k]);
        for (i64 i = 0; i < p->outputs.n; i++) {
            if (!strstr(output_name(p, i), "-loops") || i + 1 == p->outputs.n)
                continue;
            rl_graph *g = fused(a, with_output(a, p, i), RL_FUSE_NODE, true);
            ir_term start = p->outputs.at[i].term;
            const char *from = term_text(g, a, p, start);
            starts++;
            for (i64 j = i + 1; j < p->outputs.n; j++) {
                if (strstr(output_name(p, j), ".divided-inside") ||
                    strstr(output_name(p, j), ".folded"))
                    continue; /* another product */
                eqf_class c = rl_graph_find(g, p, p->outputs.at[j].term);
                if (!c.i || eqf_find(g->engine, c).i != rl_graph_class(g, start).i)
                    fail_msg("%s: %s is not found from %s", derivations[k], output_name(p, j),
                             output_name(p, i));
                bool fuses = false;
                prove(g, derivations[k], from, term_text(g, a, p, p->outputs.at[j].term), &fuses);
                assert_true(fuses);
                proofs++;
            }
        }
        arena_free(a);
    }
    assert_true(starts >= 7 && proofs >= 8);
    eqf_ctx_free(ctx);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void everything_is_worth_its_class(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 nodes = 0;
    for (i64 k = 0; k < COUNT_OF(derivations); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_file(
            a, arena_printf(a, "%s/rules/derivations/%s.eqf", EQF_TEST_DIR, derivations[k]));
        for (i64 i = 0; i < p->outputs.n; i++) {
            if (!strstr(output_name(p, i), "-loops") && !strstr(output_name(p, i), "-inside"))
                continue;
            rl_graph *g = fused(a, with_output(a, p, i), RL_FUSE_NODE, false);
            for (u64 seed = 0; seed < 4; seed++)
                nodes += check_worth(g, a, derivations[k], seed).nodes;
        }
        arena_free(a);
    }
    assert_true(nodes > 500);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_are_fused),
        cmocka_unit_test(everything_is_worth_its_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
