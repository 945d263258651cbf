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

ex_report driver_candidates(arena *a, const ir_program *p, const eqf_optimize_options *options,
                            f64 seconds, i64 most, rt_peaks peaks, search_times *times)
{
    f64 started = rt_now();
    polling poll = {started + seconds, options->cancel};
    rl_graph_options graph = {.rules = rl_ruleset_shipped(a),
                              .fp = driver_rounding(options->accuracy),
                              .parameters_are_inputs = options->parameters_are_inputs,
                              .limits = eqf_limits_default(),
                              .cancelled = is_over,
                              .user = &poll};
    graph.limits.iterations = -1;
    graph.limits.nodes = MOST_NODES;
    graph.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &graph);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    times->saturate_s = rt_now() - started;
    ex_options extraction = {.most = most,
                             .rates = {1e9 * peaks.gflops, 1e9 * peaks.gbps, 0},
                             .is_over = is_over,
                             .user = &poll};
    ex_report found = ex_search(a, g, &extraction);
    times->extract_s = rt_now() - started - times->saturate_s;
    return found;
}
