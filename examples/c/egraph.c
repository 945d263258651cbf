/* The e-graph engine in a program of its own: rules from a text, a run with limits, the best term, why
 * it is equal (checked), what each rule did, the e-graph as a file.
 *
 *     cmake --preset release && cmake --build --preset release --target equiforge_shared
 *     cc examples/c/egraph.c -I include -L build -lequiforge -Wl,-rpath,build -o egraph
 *     ./egraph "(+ (* x 0) (+ (* 1 y) y))"
 *
 * After `cmake --install build --prefix P` the flags are -I P/include -L P/lib -Wl,-rpath,P/lib. */
#include <stdio.h>
#include <string.h>

#include "eqf_egraph.h"

/* The language of rules stands at the head of tests/conformance/egg-suite.eqf, and what is only for
 * embedding in docs/egraph.md. + and * are declared commutative below, so no rule says so. */
static const char rules_text[] =
    "(rule zero-add  (+ ?a 0) => ?a                            :fp exact)\n"
    "(rule zero-mul  (* ?a 0) => 0                             :fp approx)\n"
    "(rule one-mul   (* ?a 1) => ?a                            :fp exact)\n"
    "(rule twice     (+ ?a ?a) => (* 2 ?a))\n"
    "(rule factor    (+ (* ?a ?b) (* ?a ?c)) <=> (* ?a (+ ?b ?c)) :fp reassoc)\n"
    "(rule square    (pow ?a ?n) => (* ?a ?a) :when (two ?n))\n";

/* A guard: does the class of the argument hold the number 2? */
static bool is_two(void *user, const eqf_egraph *g, const eqf_class *args)
{
    eqf_head two = *(const eqf_head *)user;
    return eqf_lookup(g, two, NULL, 0).i == eqf_find(g, args[0]).i;
}

/* The cost of an e-node: a product is four times a sum. */
static double cost_of(void *user, const eqf_egraph *g, eqf_node n)
{
    (void)user;
    const char *op = eqf_head_name(eqf_egraph_lang(g), eqf_node_head(g, n));
    return strcmp(op, "*") == 0 ? 4 : 1;
}

typedef struct work {
    eqf_ctx *ctx;
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
    eqf_extraction *best;
    eqf_proof *proof;
    char *proof_text, *json;
    eqf_head two;
} work;

static eqf_status set_up(work *w)
{
    eqf_op op;
    eqf_status s = eqf_lang_new(w->ctx, &w->lang);
    if (!s)
        s = eqf_lang_op(w->lang, "+", 2, EQF_COMMUTATIVE, &op);
    if (!s)
        s = eqf_lang_op(w->lang, "*", 2, EQF_COMMUTATIVE, &op);
    if (!s)
        s = eqf_head_int(w->lang, 2, &w->two);
    eqf_guard guard = {"two", 1, is_two, &w->two, false};
    if (!s)
        s = eqf_guard_add(w->lang, &guard);
    if (!s)
        s = eqf_rules_load(w->lang, "example.rules", eqf_text_of(rules_text), &w->rules);
    eqf_options options = {.limits = eqf_limits_default(), .explain = true};
    options.limits.bytes = 64 << 20;
    return s ? s : eqf_egraph_new(w->lang, &options, &w->g);
}

static eqf_status simplify(work *w, const char *term)
{
    eqf_class root;
    eqf_run_report report;
    eqf_cost cost = {.of = cost_of};
    const char *best;
    eqf_status s = eqf_add_text(w->g, eqf_text_of(term), &root);
    if (!s)
        s = eqf_run(w->g, w->rules, NULL, &report);
    if (!s)
        s = eqf_extract(w->g, &root, 1, &cost, EQF_DAG, &w->best);
    if (!s)
        s = eqf_extraction_text(w->best, root, false, 0, &best);
    if (s)
        return s;
    printf("%s after %d iterations: %s, cost %g\n", eqf_stop_name(report.stop),
           (int)report.iterations, best, eqf_tree_cost(w->best, root));

    /* the checker knows the rules' text, the claim and the proof; of guards it takes our word */
    eqf_check_report checked;
    eqf_checking checking = {.rules = eqf_text_of(rules_text), .commutative = eqf_text_of("+ *")};
    s = eqf_explain(w->g, eqf_text_of(term), eqf_text_of(best), &w->proof);
    if (!s)
        s = eqf_proof_reduce(w->g, w->proof);
    if (!s)
        s = eqf_proof_text(w->proof, EQF_FLAT, &w->proof_text);
    if (!s)
        s = eqf_proof_check(w->ctx, eqf_text_of(w->proof_text), eqf_text_of(term), eqf_text_of(best),
                            &checking, &checked);
    if (s)
        return s;
    printf("%schecked: %d steps, %d assumed\n", w->proof_text, (int)checked.steps,
           (int)checked.assumptions);

    for (size_t i = 0; i < eqf_rules_count(w->rules); i++) {
        eqf_rule_stats r = eqf_rule_statistics(w->g, w->rules, i);
        printf("%-10s %-8s %3d matches, %2d e-nodes, %2d unions\n", eqf_rule_name(w->rules, i),
               eqf_rule_class(w->rules, i), (int)r.matches, (int)r.nodes, (int)r.unions);
    }
    s = eqf_write_json(w->g, &root, 1, &cost, &w->json);
    FILE *f = s ? NULL : fopen("egraph.json", "w");
    if (f && (fputs(w->json, f) == EOF) + (fclose(f) != 0) == 0)
        printf("equiforge egraph extract egraph.json\n");
    return s;
}

int main(int argc, char **argv)
{
    work w = {.ctx = eqf_ctx_new(NULL)};
    if (argc != 2 || !w.ctx) {
        fprintf(stderr, "usage: egraph TERM\n");
        return 2;
    }
    eqf_status s = set_up(&w);
    if (!s)
        s = simplify(&w, argv[1]);
    for (size_t i = 0; i < eqf_diag_count(w.ctx); i++) {
        eqf_diag d = eqf_diag_get(w.ctx, i);
        fprintf(stderr, "egraph: %s%s%s: %s\n", d.file, d.file[0] ? ":" : "", d.place, d.message);
    }
    eqf_text_free(w.ctx, w.json);
    eqf_text_free(w.ctx, w.proof_text);
    eqf_proof_free(w.proof);
    eqf_extraction_free(w.best);
    eqf_egraph_free(w.g);
    eqf_rules_free(w.rules);
    eqf_lang_free(w.lang);
    eqf_ctx_free(w.ctx);
    return s ? 1 : 0;
}
