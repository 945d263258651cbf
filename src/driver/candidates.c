/* Candidates for a program: its e-graph saturated, tiled and fused, and the programs that extraction
 * finds in it, cheapest first. */
#include "driver/driver.h"
#include "rules/graph.h"

enum { MOST_NODES = 50000 };

/* Rules that cancel are as good as the program on the inputs that it is verified with, and may lose
 * everything on others (rows with a large mean): they are for those who ask for them. */
rl_fp driver_rounding(eqf_accuracy accuracy)
{
    return accuracy == EQF_FAST ? RL_APPROXIMATE : RL_REASSOCIATED;
}

typedef struct polling {
    f64 deadline;
    const volatile bool *cancel;
} polling;

static bool is_over(void *user)
{
    const polling *p = user;
    return rt_now() > p->deadline || (p->cancel && *p->cancel);
}

/* The e-graph of a program, searched as far as `poll` lets it. */
static rl_graph *search_graph(arena *a, const ir_program *p, driver_space space, polling *poll,
                              bool explain, driver_split split)
{
    rl_graph_options graph = {.rules = space.rules,
                              .fp = space.fp,
                              .parameters_are_inputs = space.parameters_are_inputs,
                              .explain = explain,
                              .limits = eqf_limits_default(),
                              .cancelled = is_over,
                              .user = poll};
    graph.limits.iterations = -1;
    graph.limits.nodes = MOST_NODES;
    graph.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &graph);
    if (split.inner > 0)
        rl_graph_split_by(g, split.atom, split.inner);
    rl_graph_algebra(g);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    return g;
}

ex_report driver_candidates(arena *a, const ir_program *p, driver_space space, i64 threads,
                            f64 seconds, i64 most, rt_peaks peaks, search_times *times)
{
    polling poll = {rt_now() + seconds, space.cancel};
    ex_options extraction = {.most = most,
                             .rates = {1e9 * peaks.gflops, 1e9 * peaks.gbps, 0, (f64)threads},
                             .is_over = is_over,
                             .user = &poll};
    driver_split split = driver_find_split(a, p, threads);
    ex_report found = {0};
    for (i64 pass = 0; pass < (split.inner > 0 ? 2 : 1); pass++) {
        f64 started = rt_now();
        rl_graph *g = search_graph(a, p, space, &poll, false, pass ? split : (driver_split){0});
        times->saturate_s += rt_now() - started;
        rl_rule_count *rules;
        if (pass == 0) {
            times->rule_count = rl_graph_rule_counts(g, a, &rules);
            times->rules = rules;
        }
        started = rt_now();
        ex_report more = ex_search(a, g, &extraction);
        times->extract_s += rt_now() - started;
        found = pass ? driver_merge(a, found, more) : more;
    }
    return found;
}

const char *driver_derive(arena *a, const ir_program *p, const ir_program *form, driver_space space,
                          f64 seconds, const char **why_not)
{
    eqf_ctx *ctx = arena_ctx(a);
    polling poll = {rt_now() + seconds, space.cancel};
    arena *scratch = arena_child(a);
    const char *volatile text = NULL;
    *why_not = NULL;
    trap t;
    TRY (ctx, t) {
        rl_graph *g = search_graph(scratch, p, space, &poll, true, driver_split_of(p, form));
        if (is_over(&poll))
            eqf_throw(ctx, EQF_E_LIMIT, NULL, NULL, "the time for it was over");
        text = rl_graph_derive(g, a, form, why_not);
    }
    arena_free(scratch);
    if (t.status != EQF_OK && t.status != EQF_E_LIMIT && t.status != EQF_E_UNSUPPORTED)
        eqf_rethrow(ctx, t.status);
    if (t.status != EQF_OK) {
        *why_not = arena_strdup(a, eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message);
        eqf_ctx_clear(ctx);
    }
    return text;
}
