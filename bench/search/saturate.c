/* Sizes and times of tensor-level saturation beside those of the design's model (space.md §8,
 * column `alg`), and with --rules what each rule did: bench_saturate [--rules] PROGRAM.eqf ... */
#include <stdio.h>

#include "rules/graph.h"

typedef struct model {
    const char *name;
    int nodes0, classes0, nodes, classes;
} model;
/* What the model measured; printed beside, never compared. */
static const model models[] = {
    {"rmsnorm-gemm", 11, 11, 13, 12},   {"rmsnorm-mlp", 14, 14, 25, 19},
    {"rmsnorm-swiglu", 16, 16, 29, 22}, {"rmsnorm-swiglu-gain", 18, 18, 38, 27},
    {"layernorm-gemm", 20, 20, 94, 55}, {"lora", 10, 10, 24, 16},
    {"ngpt", 14, 14, 14, 14},           {"row-softmax", 6, 6, 6, 6},
    {"attention", 12, 12, 14, 13},      {"attention-causal", 17, 17, 19, 18},
    {"self-attention", 20, 20, 34, 26}, {"differential-attention", 32, 32, 49, 40},
    {"mla", 31, 31, 101, 57},           {"decoder-layer", 45, 45, 109, 73},
};

/* What each rule did. */
static void rule_counts(const rl_graph *g)
{
    const eqf_rules *rules = rl_graph_rules(g);
    for (size_t i = 0; i < eqf_rules_count(rules); i++) {
        eqf_rule_stats s = eqf_rule_statistics(rl_graph_engine(g), rules, i);
        if (s.matches)
            printf("    %-24s %6lld matches %5lld applied %5lld e-nodes %5lld unions\n",
                   eqf_rule_name(rules, i), (long long)s.matches, (long long)s.applied,
                   (long long)s.nodes, (long long)s.unions);
    }
}

static void one(eqf_ctx *ctx, const char *path, bool with_rules)
{
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *text = file_read(a, path, 1 << 24, &n);
    ir_program *p = ir_read(a, path, text, n);
    const char *name = intern_text(p->names, p->name);
    rl_graph_options o = {
        .rules = rl_ruleset_shipped(a), .fp = RL_APPROXIMATE, .limits = eqf_limits_default()};
    rl_graph *g = rl_graph_new(a, p, &o);
    eqf_size before = eqf_egraph_size(rl_graph_engine(g));
    rl_extracted as_written = rl_graph_form(g, a, EQF_DAG);
    eqf_run_report run = rl_graph_saturate(g, NULL);
    eqf_size after = eqf_egraph_size(rl_graph_engine(g));
    rl_extracted found = rl_graph_form(g, a, EQF_EXACT);
    const model *m = NULL;
    for (i64 i = 0; i < COUNT_OF(models); i++)
        if (strcmp(models[i].name, name) == 0)
            m = &models[i];
    char expected[2][32] = {"", ""};
    if (m) {
        snprintf(expected[0], sizeof expected[0], "%d/%d", m->nodes0, m->classes0);
        snprintf(expected[1], sizeof expected[1], "%d/%d", m->nodes, m->classes);
    }
    char got[2][48];
    snprintf(got[0], sizeof got[0], "%lld/%lld", (long long)before.nodes,
             (long long)before.classes);
    snprintf(got[1], sizeof got[1], "%lld/%lld", (long long)after.nodes, (long long)after.classes);
    printf("%-24s %7s %7s %9s %9s %4lld %7lld %-10s %8.3f %12.4g %12.4g\n", name, got[0],
           expected[0], got[1], expected[1], (long long)run.iterations, (long long)run.matches,
           eqf_stop_name(run.stop), 1e3 * run.total_s, as_written.flops, found.flops);
    if (with_rules)
        rule_counts(g);
    arena_free(a);
}

int main(int argc, char **argv)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    if (!ctx)
        return 3;
    printf("%-24s %7s %7s %9s %9s %4s %7s %-10s %8s %12s %12s\n", "program", "P0", "model", "alg",
           "model", "iter", "matches", "stop", "ms", "FLOPs", "least FLOPs");
    bool with_rules = argc > 1 && strcmp(argv[1], "--rules") == 0;
    trap t;
    TRY (ctx, t)
        for (int i = 1 + with_rules; i < argc; i++)
            one(ctx, argv[i], with_rules);
    if (t.status && eqf_diag_count(ctx)) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        fprintf(stderr, "bench_saturate: %s: %s: %s\n", d.file, d.place, d.message);
    }
    eqf_ctx_free(ctx);
    return t.status ? 1 : 0;
}
