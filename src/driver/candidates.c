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

/* ---- splits ---------------------------------------------------------------------------------- */

/* A dim to be done part by part. */
typedef struct splitting {
    ir_atom atom;
    i64 parts; /* 0: none */
} splitting;

enum { LONG = 1024, SHORTEST = 256, MOST_PARTS = 4, TILE = 64, LEAST = 1 << 18 };
#define WORTH 0.2 /* of all the work, what waits for one thread */

/* Equal parts of a long dim, as many as threads or up to MOST_PARTS times that; 0: there are none. */
static i64 parts_of(i64 extent, i64 threads)
{
    for (i64 n = MAX(threads, 2); n <= MOST_PARTS * threads && extent / n >= SHORTEST; n++)
        if (extent % n == 0)
            return n;
    return 0;
}

/* The tiles of a term's value, which threads can share. */
static f64 tiles_of(const ir_program *p, const ir_node *node)
{
    f64 n = 1;
    for (i64 i = 0; i < node->dims.n; i++) {
        i64 extent = ir_extent(p, node->dims.at[i]);
        bool of_all = true; /* a dim of both operands of a product is cut finely */
        for (i64 k = 0; k < node->arg_count; k++)
            of_all = of_all && ir_has(ir_get(p, node->args[k])->dims, node->dims.at[i]);
        n *= of_all && node->op == IR_matmul ? (f64)extent : (f64)((extent + TILE - 1) / TILE);
    }
    return n;
}

/* The long dim over which most is combined into results too small for all threads, where that is a
 * good part of the program: done part by part, threads share it. */
static splitting find_split(arena *a, const ir_program *p, i64 threads)
{
    f64 *work = NEW_N(a, f64, p->atoms.n), all = 0;
    for (u32 k = 1; k < (u32)p->nodes.n && p->splits.n == 0; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool combines = node->op == IR_matmul || node->op == IR_reduce;
        f64 own = 0;
        for (i64 i = 0; combines && i < node->arg_count; i++)
            own += (f64)ir_count_elements(p, ir_get(p, node->args[i])->dims);
        all += own;
        for (i64 i = 0; combines && i < node->attr.axis.n; i++)
            if (tiles_of(p, node) < (f64)threads)
                work[node->attr.axis.at[i].i] += own;
    }
    splitting best = {0};
    for (u32 d = 1; d < (u32)p->atoms.n; d++) {
        ir_atom atom = {d};
        i64 parts = ir_extent(p, atom) >= LONG ? parts_of(ir_extent(p, atom), threads) : 0;
        if (parts > 0 && work[d] > MAX(WORTH * all, LEAST) && work[d] > work[best.atom.i])
            best = (splitting){atom, parts};
    }
    return best;
}

/* The split that the form has and the program does not. */
static splitting split_of(const ir_program *p, const ir_program *form)
{
    splitting x = {0};
    for (i64 i = p->splits.n; i < form->splits.n; i++)
        for (u32 d = 1; d < (u32)p->atoms.n; d++) {
            ir_split s = form->splits.at[i];
            if (strcmp(ir_atom_name(p, (ir_atom){d}), ir_atom_name(form, s.whole)) == 0)
                x = (splitting){{d}, ir_extent(form, s.outer)};
        }
    return x;
}

/* The candidates of both, cheapest first. */
static ex_report merged(arena *a, ex_report x, ex_report y)
{
    ex_candidate *all = NEW_N(a, ex_candidate, x.n + y.n + 1);
    i64 n = 0;
    for (i64 i = 0, k = 0; i < x.n || k < y.n;)
        all[n++] = k >= y.n || (i < x.n && x.at[i].bound_us <= y.at[k].bound_us) ? x.at[i++]
                                                                                 : y.at[k++];
    x.at = all;
    x.n = n;
    x.expanded += y.expanded;
    x.pruned += y.pruned;
    x.sets += y.sets;
    x.distinct += y.distinct;
    x.tried += y.tried;
    x.is_cut_short |= y.is_cut_short;
    x.complete &= y.complete;
    return x;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The e-graph of a program, searched as far as `poll` lets it. */
static rl_graph *search_graph(arena *a, const ir_program *p, const eqf_optimize_options *options,
                              polling *poll, bool explain, splitting split)
{
    rl_graph_options graph = {.rules = rl_ruleset_shipped(a),
                              .fp = driver_rounding(options->accuracy),
                              .parameters_are_inputs = options->parameters_are_inputs,
                              .explain = explain,
                              .limits = eqf_limits_default(),
                              .cancelled = is_over,
                              .user = poll};
    graph.limits.iterations = -1;
    graph.limits.nodes = MOST_NODES;
    graph.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &graph);
    if (split.parts > 1)
        rl_graph_split(g, split.atom, split.parts);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    return g;
}

ex_report driver_candidates(arena *a, const ir_program *p, const eqf_optimize_options *options,
                            f64 seconds, i64 most, rt_peaks peaks, search_times *times)
{
    polling poll = {rt_now() + seconds, options->cancel};
    i64 threads = options->threads > 0 ? options->threads : rt_processors();
    ex_options extraction = {.most = most,
                             .rates = {1e9 * peaks.gflops, 1e9 * peaks.gbps, 0, (f64)threads},
                             .is_over = is_over,
                             .user = &poll};
    splitting split = find_split(a, p, threads);
    ex_report found = {0};
    for (i64 pass = 0; pass < (split.parts > 0 ? 2 : 1); pass++) {
        f64 started = rt_now();
        rl_graph *g = search_graph(a, p, options, &poll, false, pass ? split : (splitting){0});
        times->saturate_s += rt_now() - started;
        rl_rule_count *rules;
        if (pass == 0) {
            times->rule_count = rl_graph_rule_counts(g, a, &rules);
            times->rules = rules;
        }
        started = rt_now();
        ex_report more = ex_search(a, g, &extraction);
        times->extract_s += rt_now() - started;
        found = pass ? merged(a, found, more) : more;
    }
    return found;
}

const char *driver_derive(arena *a, const ir_program *p, const ir_program *form,
                          const eqf_optimize_options *options, f64 seconds, const char **why_not)
{
    eqf_ctx *ctx = arena_ctx(a);
    polling poll = {rt_now() + seconds, options->cancel};
    arena *scratch = arena_child(a);
    const char *volatile text = NULL;
    *why_not = NULL;
    trap t;
    TRY (ctx, t) {
        rl_graph *g = search_graph(scratch, p, options, &poll, true, split_of(p, form));
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
