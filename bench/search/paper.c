/* Enumeration beside the paper's figures (§7.4). For each program twice:
 *
 *   its own setting    e-nodes and milliseconds of saturation; states, candidates and milliseconds of
 *                      extraction, most promising first
 *   the paper's        values cut along every set of axes, all bundles, operands unsorted, Algorithm 1:
 *                      e-nodes; states with compaction after and early, their ratio, and what is left;
 *                      `+`: it met a limit, here SECONDS for each
 *
 *     bench_paper [--seconds N] PROGRAM.eqf ...
 *
 * The last lines are the geometric mean of the ratio where both ended, and the paper's figures beside ours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "extract/extract.h"

/* What the paper reports, on its own e-graphs and machine. */
static const struct figure {
    const char *program, *what;
} figures[] = {
    {"ngpt", "enumeration after 106 s, early 0.47 s; e-graph below 1,200 e-nodes, tens of seconds"},
    {"rmsnorm-swiglu", "early 330 candidates in 16.97 s, after 72 in 2 h; below 1,200 e-nodes"},
    {"rmsnorm-gemm", "below 1,200 e-nodes, tens of seconds"},
    {"gated-mlp", "below 1,200 e-nodes, tens of seconds"},
    {"lora", "below 1,200 e-nodes, tens of seconds"},
    {"gqa-decode", "attention, decode: above 22,000 e-nodes"},
    {"attention-prefill", "attention, prefill: above 65,000 e-nodes"},
};

typedef struct setting {
    double seconds, ratios; /* ratios: sum of logarithms of after / early */
    double least, most;
    int both;
} setting;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_late(void *user)
{
    const double *end = user;
    return now() > *end;
}

typedef struct measured {
    ex_report found;
    double seconds;
} measured;

static measured extract(arena *a, rl_graph *g, ex_order order, ex_mode mode, double seconds)
{
    double start = now(), end = start + seconds;
    ex_options o = {.order = order, .mode = mode, .most = 16, .is_over = is_late, .user = &end};
    measured m = {.found = ex_search(a, g, &o)};
    m.seconds = now() - start;
    return m;
}

static rl_graph *graph_of(arena *a, const ir_program *p, bool paper, double seconds, double *took)
{
    double start = now(), end = start + seconds;
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .refine = paper ? RL_REFINE_SUBSETS : RL_REFINE_MAXIMAL,
                          .limits = eqf_limits_default(),
                          .cancelled = is_late,
                          .user = &end};
    o.limits.iterations = -1;
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, paper ? RL_FUSE_ALL : RL_FUSE_LATE);
    *took = now() - start;
    return g;
}

static void print_states(const measured *m)
{
    printf(" %9lld%c", (long long)m->found.expanded, m->found.is_cut_short ? '+' : ' ');
}

static void one(eqf_ctx *ctx, const char *path, setting *s)
{
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *text = file_read(a, path, 1 << 24, &n);
    ir_program *p = ir_read(a, path, text, n);
    const char *name = intern_text(p->names, p->name);
    double own_s, paper_s;
    rl_graph *own = graph_of(a, p, false, s->seconds, &own_s);
    measured best = extract(a, own, EX_BEST, EX_EARLY, s->seconds);
    printf("%-20s %6lld %7.1f %7lld%c %6lld %8.1f |", name,
           (long long)eqf_egraph_size(rl_graph_engine(own)).nodes, 1e3 * own_s,
           (long long)best.found.expanded, best.found.complete ? ' ' : '+',
           (long long)best.found.distinct, 1e3 * best.seconds);
    fflush(stdout);
    rl_graph *g = graph_of(a, p, true, s->seconds, &paper_s);
    measured early = extract(a, g, EX_PAPER, EX_EARLY, s->seconds);
    measured after = extract(a, g, EX_PAPER, EX_AFTER, s->seconds);
    double ratio = (double)after.found.expanded / (double)MAX(early.found.expanded, 1);
    bool both = early.found.complete && after.found.complete;
    printf(" %6lld", (long long)eqf_egraph_size(rl_graph_engine(g)).nodes);
    print_states(&after);
    print_states(&early);
    printf(" %8.4g%c %8lld %9.1f %9.1f\n", ratio, both ? ' ' : '+', (long long)early.found.sets,
           1e3 * after.seconds, 1e3 * early.seconds);
    if (both && after.found.sets != early.found.sets)
        printf("  THEY DIFFER: after %lld, early %lld\n", (long long)after.found.sets,
               (long long)early.found.sets);
    if (both) {
        s->ratios += log(ratio);
        s->least = s->both ? fmin(s->least, ratio) : ratio;
        s->most = fmax(s->most, ratio);
        s->both++;
    }
    for (i64 i = 0; i < COUNT_OF(figures); i++)
        if (strcmp(figures[i].program, name) == 0)
            printf("    the paper: %s\n", figures[i].what);
    arena_free(a);
}

static void all(eqf_ctx *ctx, char **paths, int n, setting *s)
{
    for (int i = 0; i < n; i++)
        one(ctx, paths[i], s);
    if (s->both)
        printf("after / early in the paper's setting where both ended (%d programs): %.3g to %.3g, "
               "geometric mean %.3g; the paper: 128 to 2,465\n",
               s->both, s->least, s->most, exp(s->ratios / s->both));
}

int main(int argc, char **argv)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    if (!ctx)
        return 3;
    setting s = {.seconds = 30};
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--seconds") == 0) {
        s.seconds = atof(argv[2]);
        first = 3;
    }
    printf("%-20s %6s %7s %8s %6s %8s | %6s %10s %10s %9s %8s %9s %9s\n", "", "e-node", "sat ms",
           "states", "cands", "ms", "e-node", "after", "early", "ratio", "left", "after ms", "early ms");
    trap t;
    TRY (ctx, t)
        all(ctx, argv + first, argc - first, &s);
    if (t.status && eqf_diag_count(ctx)) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        fprintf(stderr, "bench_paper: %s: %s: %s\n", d.file, d.place, d.message);
    }
    eqf_ctx_free(ctx);
    return t.status ? 1 : 0;
}
