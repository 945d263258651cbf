/* Proofs replayed by the independent checker: why each e-node is in its class. */
#ifndef EQF_TEST_RULES_PROVED_H
#define EQF_TEST_RULES_PROVED_H

#include "egraph/egraph.h"
#include "rules/graph.h"

static inline eqf_status replay_by(rl_graph *g, const eqf_checking *judges, const char *proof,
                                   const char *from, const char *to, eqf_check_report *report)
{
    return eqf_proof_check(eqf_lang_ctx(eqf_egraph_lang(rl_graph_engine(g))), eqf_text_of(proof),
                           eqf_text_of(from), eqf_text_of(to), judges, report);
}

static inline eqf_status replay(rl_graph *g, const char *proof, const char *from, const char *to,
                                eqf_check_report *report)
{
    eqf_checking judges = rl_graph_checking(g);
    return replay_by(g, &judges, proof, from, to, report);
}

/* The e-node over the terms chosen for its children. */
static inline const char *node_text(const rl_graph *g, arena *a, eqf_extraction *x, eqf_node n)
{
    const eqf_egraph *e = rl_graph_engine(g);
    const eqf_lang *lang = eqf_egraph_lang(e);
    eqf_head head = eqf_node_head(e, n);
    unsigned arity = eqf_head_arity(lang, head);
    str s = str_new(a);
    str_add(&s, arity ? "(" : "");
    eg_print_head(lang, &s, head.i);
    for (unsigned i = 0; i < arity; i++) {
        const char *kid;
        assert_int_equal(eqf_extraction_text(x, eqf_node_child(e, n, i), false, 0, &kid), EQF_OK);
        str_printf(&s, " %s", kid);
    }
    eg_print_payload(lang, &s, head.i);
    str_add(&s, arity ? ")" : "");
    return str_text(&s);
}

/* Steps of the proof that from = to, adding the assumptions that it rests on; its text goes to
 * `seen` when that is not NULL. Fails when the checker does not accept it. */
static inline i64 prove_by(rl_graph *g, const eqf_checking *judges, const char *from,
                           const char *to, i64 *assumptions, str *seen)
{
    eqf_ctx *ctx = eqf_lang_ctx(eqf_egraph_lang(rl_graph_engine(g)));
    eqf_proof *proof;
    char *text;
    eqf_check_report report;
    assert_int_equal(eqf_explain(rl_graph_engine(g), eqf_text_of(from), eqf_text_of(to), &proof),
                     EQF_OK);
    assert_int_equal(eqf_proof_text(proof, EQF_SHARED, &text), EQF_OK);
    if (replay_by(g, judges, text, from, to, &report))
        fail_msg("%s: %s = %s", eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message, from, to);
    *assumptions += report.assumptions;
    if (seen)
        str_add(seen, text);
    eqf_text_free(ctx, text);
    eqf_proof_free(proof);
    return report.steps;
}

static inline i64 prove(rl_graph *g, const char *from, const char *to, i64 *assumptions, str *seen)
{
    eqf_checking judges = rl_graph_checking(g);
    return prove_by(g, &judges, from, to, assumptions, seen);
}

/* Proves every e-node equal to the term chosen for its class; returns how many. */
static inline i64 prove_all_by(rl_graph *g, arena *a, const eqf_checking *judges,
                               i64 *assumptions, str *seen)
{
    eqf_egraph *e = rl_graph_engine(g);
    VEC(eqf_class) all = {0};
    i64 proofs = 0;
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c))
        vec_push(a, &all, c);
    eqf_extraction *x;
    assert_int_equal(eqf_extract(e, all.at, (size_t)all.n, NULL, EQF_TREE, &x), EQF_OK);
    for (i64 i = 0; i < all.n; i++) {
        const char *chosen;
        assert_int_equal(eqf_extraction_text(x, all.at[i], false, 0, &chosen), EQF_OK);
        for (eqf_node n = eqf_next_node(e, all.at[i], (eqf_node){0}); n.i;
             n = eqf_next_node(e, all.at[i], n), proofs++)
            prove_by(g, judges, chosen, node_text(g, a, x, n), assumptions, seen);
    }
    eqf_extraction_free(x);
    return proofs;
}

static inline i64 prove_all(rl_graph *g, arena *a, i64 *assumptions, str *seen)
{
    eqf_checking judges = rl_graph_checking(g);
    return prove_all_by(g, a, &judges, assumptions, seen);
}

#endif
