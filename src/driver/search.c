/* eqf_search: the e-graph of a program, phase by phase, and the programs that it holds.
 *
 *     program     the terms as they were read
 *     algebra     the rules of rules/ and of the user's files, on whole tensors
 *     tiling      every value that has to be computed, cut along its axes
 *     fusion      reductions put into one loop
 *     extraction  candidates, as text
 *
 * Where a long dim leaves threads idle, the same once more with that dim done part by part (splits.c):
 * an e-graph of its own, whose phases follow and whose candidates are listed with the others.
 *
 * Each phase starts from a saturated e-graph; one that stops early is the last. All of them share
 * one deadline, which is polled as an interrupt is. (space.md section 9 has the reasons for phases.)
 *
 * A program that is too large for one e-graph is cut into parts, each searched once wherever it stands;
 * what of the time one part leaves is for those after it. Boundaries inside a part are operators of
 * whole values, which nothing passes through. */
#include "driver/contest.h"
#include "kernel/kernel.h"
#include "rules/graph.h"

enum { DEFAULT_BUDGET_S = 60, DEFAULT_ENODES = 100000, DEFAULT_CANDIDATES = 16 };
enum { VECTOR_BYTES = 32, THREADS = 8 }; /* of kernels that are shown; threads: by default */
enum { PHASES = 4 };
#define SATURATION_SHARE 0.75            /* of the time of a subgraph */

typedef struct searching {
    eqf_program *program;
    eqf_search_options options;
    const rl_ruleset *rules;
    arena *a, *kept; /* a: of the present subgraph; kept: of the report */
    f64 deadline;    /* of the present subgraph */
    const char *title; /* of its stages */
    const ir_program *ir; /* the present subgraph */
    driver_split split;   /* of its e-graph */
    rl_graph *graph;
    ex_report found;
    eqf_subgraph *out;
    eqf_search_phase *phases;
} searching;

static bool is_cancelled(const searching *s)
{
    return s->options.cancel && *s->options.cancel;
}

static bool is_over(void *user)
{
    const searching *s = user;
    return is_cancelled(s) || rt_now() > s->deadline;
}

static i64 threads_of(const searching *s)
{
    return s->options.threads > 0 ? s->options.threads : THREADS;
}

static void announce(const searching *s, const char *stage)
{
    if (s->options.progress)
        s->options.progress(s->options.user, arena_printf(s->a, "%s%s", s->title, stage));
}

/* The engine was cancelled also when the deadline was over. */
static const char *stop_of(const searching *s, eqf_stop stop)
{
    return eqf_stop_name(stop == EQF_STOP_CANCELLED && !is_cancelled(s) ? EQF_STOP_TIME : stop);
}

/* "" for the program itself. */
static const char *split_text(const searching *s)
{
    return s->split.inner > 0
               ? arena_printf(s->kept, "%s in %lld parts", ir_atom_name(s->ir, s->split.atom),
                              (long long)(1 + (ir_extent(s->ir, s->split.atom) - 1) / s->split.inner))
               : "";
}

/* Notes what a phase did, and the first reason why one ended early; may another follow? */
static bool note(searching *s, const char *name, f64 started, i64 iterations, i64 matches,
                 eqf_stop stop)
{
    eqf_subgraph *out = s->out;
    eqf_size size = eqf_egraph_size(rl_graph_engine(s->graph));
    eqf_search_phase *p = &s->phases[out->phase_count++];
    *p = (eqf_search_phase){.name = name,
                            .split = split_text(s),
                            .enodes = size.nodes,
                            .eclasses = size.classes,
                            .iterations = iterations,
                            .matches = matches,
                            .seconds = rt_now() - started,
                            .stop = stop_of(s, stop)};
    bool more = stop == EQF_STOP_SATURATED;
    out->saturate_s += p->seconds;
    if (s->split.inner > 0)
        return more;
    out->enodes = p->enodes;
    out->eclasses = p->eclasses;
    out->iterations += iterations;
    out->matches += matches;
    out->bytes = size.bytes;
    out->peak_bytes = size.peak_bytes;
    if (!out->stop || strcmp(out->stop, eqf_stop_name(EQF_STOP_SATURATED)) == 0)
        out->stop = p->stop;
    return more;
}

/* ---- phases
 * --------------------------------------------------------------------------------------- */

/* False when the program has too many dims. */
static bool enter(searching *s)
{
    f64 started = rt_now();
    const eqf_search_options *o = &s->options;
    rl_graph_options options = {
        .rules = s->rules,
        .fp = driver_rounding(o->accuracy),
        .parameters_are_inputs = o->parameters_are_inputs,
        .refine = o->refine == EQF_REFINE_SUBSETS ? RL_REFINE_SUBSETS : RL_REFINE_MAXIMAL,
        .limits = eqf_limits_default(),
        .cancelled = is_over,
        .user = s,
    };
    /* a view moves one operator an iteration: deep programs need many */
    options.limits.iterations = -1;
    options.limits.seconds = -1;
    options.limits.nodes = o->most_enodes > 0 ? o->most_enodes : DEFAULT_ENODES;
    trap t;
    TRY (s->program->ctx, t) {
        s->graph = rl_graph_new(s->a, s->ir, &options);
        if (s->split.inner > 0)
            rl_graph_split_by(s->graph, s->split.atom, s->split.inner);
    }
    if (t.status == EQF_E_LIMIT) {
        eqf_ctx_clear(s->program->ctx);
        if (s->split.inner == 0)
            s->out->stop = "dims";
        return false;
    }
    if (t.status != EQF_OK)
        eqf_rethrow(s->program->ctx, t.status);
    note(s, "program", started, 0, 0, EQF_STOP_SATURATED);
    return true;
}

static bool algebra(searching *s)
{
    f64 started = rt_now();
    announce(s, "algebra");
    eqf_run_report run = rl_graph_algebra(s->graph);
    return note(s, "algebra", started, run.iterations, run.matches, run.stop) ||
           run.stop == EQF_STOP_NODES; /* what was found by then is tiled */
}

static bool tiling(searching *s)
{
    f64 started = rt_now();
    announce(s, "tiling");
    eqf_run_report run = rl_graph_tile(s->graph, NULL);
    return note(s, "tiling", started, run.iterations, run.matches, run.stop);
}

/* Loops that were not found are missing from candidates, which is no harm. */
static bool fusion(searching *s)
{
    static const rl_fuse_mode modes[] = {
        [EQF_FUSE_LATE] = RL_FUSE_LATE, [EQF_FUSE_NODE] = RL_FUSE_NODE, [EQF_FUSE_ALL] = RL_FUSE_ALL};
    f64 started = rt_now();
    announce(s, "fusion");
    rl_fuse_report run = rl_graph_fuse(s->graph, modes[s->options.fuse]);
    if (s->split.inner == 0) {
        s->out->repaired = run.repairs;
        s->out->bundles = run.bundles;
    }
    note(s, "fusion", started, run.iterations, run.matches, run.stop);
    return true;
}

/* The form of least FLOPs among those of whole tensors: what tiles cost depends on how many. */
static void write_form(searching *s)
{
    announce(s, "form");
    rl_extracted form = rl_graph_form(s->graph, s->a, EQF_EXACT);
    str text = str_new(s->kept);
    ir_print(&text, form.program);
    s->out->form = str_text(&text);
    s->out->form_flops = form.flops;
}

/* ---- extraction ------------------------------------------------------------------------------- */

/* NULL when an operator has no kernel. */
static const char *kernels_of(searching *s, const ir_program *p)
{
    arena *scratch = arena_child(s->a);
    kn_options options = {VECTOR_BYTES, (int)threads_of(s), !s->options.parameters_are_inputs, NULL, false};
    rt_plan plan = {0};
    kn_kernels kernels = {0};
    str text = str_new(s->kept);
    str_add(&text, "");
    trap t;
    TRY (s->program->ctx, t)
        kn_build(scratch, p, options, &plan, &kernels);
    if (t.status != EQF_OK && t.status != EQF_E_UNSUPPORTED && t.status != EQF_E_LIMIT)
        eqf_rethrow(s->program->ctx, t.status);
    if (t.status != EQF_OK)
        eqf_ctx_clear(s->program->ctx);
    for (i64 i = 0; i < kernels.n && t.status == EQF_OK; i++)
        kn_print(&text, kernels.at[i]);
    arena_free(scratch);
    return t.status == EQF_OK ? str_text(&text) : NULL;
}

static void keep_candidate(searching *s, const ex_candidate *c, eqf_search_candidate *out)
{
    eqf_search_reduction *reductions = NEW_N(s->kept, eqf_search_reduction, c->reduction_count);
    for (i64 i = 0; i < c->reduction_count; i++)
        reductions[i] = (eqf_search_reduction){arena_strdup(s->kept, c->reductions[i].name),
                                               arena_strdup(s->kept, c->reductions[i].over)};
    str form = str_new(s->kept);
    ir_print(&form, c->program);
    *out = (eqf_search_candidate){.kernels = c->kernels,
                                  .flops = c->flops,
                                  .bytes = c->bytes,
                                  .bound_us = c->bound_us,
                                  .reductions = reductions,
                                  .reduction_count = (size_t)c->reduction_count,
                                  .form = str_text(&form)};
    if (s->options.kernels)
        out->kernel_text = kernels_of(s, c->program);
}

static void extract(searching *s)
{
    static const ex_mode modes[] = {
        [EQF_COMPACT_EARLY] = EX_EARLY, [EQF_COMPACT_AFTER] = EX_AFTER, [EQF_COMPACT_NONE] = EX_NONE};
    f64 started = rt_now();
    i64 most = s->options.most_candidates;
    ex_options options = {.rates.threads = (f64)threads_of(s),
                          .most = most > 0 ? most : DEFAULT_CANDIDATES,
                          .mode = modes[s->options.compaction],
                          .order = s->options.order == EQF_ORDER_PAPER ? EX_PAPER : EX_BEST,
                          .is_over = is_over,
                          .user = s};
    announce(s, "extraction");
    ex_report found = ex_search(s->a, s->graph, &options);
    s->found = s->split.inner > 0 ? driver_merge(s->a, s->found, found) : found;
    s->found.n = MIN(s->found.n, options.most);
    s->out->extraction.seconds += rt_now() - started;
}

static void keep_found(searching *s)
{
    const ex_report *found = &s->found;
    eqf_search_candidate *out = NEW_N(s->kept, eqf_search_candidate, found->n);
    for (i64 i = 0; i < found->n; i++)
        keep_candidate(s, &found->at[i], &out[i]);
    s->out->candidates = out;
    s->out->candidate_count = (size_t)found->n;
    eqf_search_extraction *x = &s->out->extraction;
    x->expanded = found->expanded;
    x->pruned = found->pruned;
    x->structures = found->sets;
    x->candidates = found->distinct;
    x->complete = found->complete;
}

/* ---- the report
 * ----------------------------------------------------------------------------------- */

static void keep_rules(searching *s)
{
    rl_rule_count *counts;
    i64 n = rl_graph_rule_counts(s->graph, s->a, &counts);
    eqf_search_rule *rules = NEW_N(s->kept, eqf_search_rule, n);
    for (i64 i = 0; i < n; i++) {
        const eqf_rule_stats *x = &counts[i].stats;
        if (x->matches > 0)
            rules[s->out->rule_count++] = (eqf_search_rule){
                arena_strdup(s->kept, counts[i].name), x->matches, x->applied, x->nodes,
                x->seconds};
    }
    s->out->rules = rules;
}

/* ---- subgraphs
 * ------------------------------------------------------------------------------------ */

/* One e-graph, of the program or of the program with a split. Did every phase saturate? */
static bool search_graph(searching *s, f64 end)
{
    s->deadline = rt_now() + SATURATION_SHARE * (end - rt_now());
    if (is_over(s))
        return false;
    if (!enter(s))
        return false;
    bool is_whole = s->split.inner == 0;
    if (is_whole && s->options.form)
        s->out->flops = rl_graph_form(s->graph, s->a, EQF_DAG).flops;
    bool more = algebra(s);
    if (is_whole && s->options.form)
        write_form(s);
    more = more && tiling(s) && fusion(s);
    if (is_whole)
        keep_rules(s);
    s->deadline = end;
    if (more && !is_over(s))
        extract(s);
    return more;
}

static void search_one(searching *s, f64 end)
{
    static const char *const modes[] = {"early", "after", "none"};
    s->out->extraction.mode = modes[s->options.compaction];
    s->out->phases = s->phases = NEW_N(s->kept, eqf_search_phase, 2 * PHASES);
    s->split = (driver_split){0};
    s->found = (ex_report){0};
    s->deadline = end;
    if (is_over(s)) {
        s->out->stop = stop_of(s, EQF_STOP_CANCELLED);
        return;
    }
    bool all = search_graph(s, end);
    bool compares = s->options.order != EQF_ORDER_BEST || s->options.refine != EQF_REFINE_MAXIMAL;
    if (all && !compares)
        s->split = driver_find_split(s->a, s->ir, threads_of(s));
    if (s->split.inner > 0 && !search_graph(s, end))
        s->found.complete = false;
    keep_found(s);
}

static void search_all(searching *s)
{
    eqf_program *p = s->program;
    program_check_sizes(p);
    announce(s, "testing rules");
    s->rules = rulebook_join(s->a, s->options.rules, (i64)s->options.rule_count, s->options.force,
                             p->seed, s->options.cancel);
    f64 end = rt_now() + (s->options.budget_s > 0 ? s->options.budget_s : DEFAULT_BUDGET_S);
    pt_partition cut;
    bool small = parts_is_small(s->a, p->ir, s->options.parameters_are_inputs, &cut);
    i64 n = MAX(cut.part_count, 1);
    eqf_subgraph *out = NEW_N(s->kept, eqf_subgraph, n);
    arena *whole = s->a;
    for (i64 i = 0; i < n; i++) {
        bool has_part = cut.part_count > 0;
        const char *digest = has_part ? cut.parts[i].digest : p->digest;
        s->out = &out[i];
        *s->out = (eqf_subgraph){.hash = arena_strdup(s->kept, digest),
                                 .uses = has_part ? cut.parts[i].uses : 1};
        s->a = arena_child(whole);
        f64 part_end = rt_now() + (end - rt_now()) / (f64)(n - i);
        if (n > 1)
            s->title = arena_printf(s->a, "part %lld of %lld: ", (long long)i + 1, (long long)n);
        s->ir = small ? p->ir : cut.parts[i].program;
        search_one(s, part_end);
        arena_free(s->a);
    }
    s->a = whole;
    p->searched = (eqf_search_report){out, (size_t)n, is_cancelled(s)};
}

eqf_status eqf_search(eqf_program *program, const eqf_search_options *options,
                      const eqf_search_report **out)
{
    *out = NULL;
    eqf_ctx *ctx = program->ctx;
    if (program->found)
        arena_free(program->found);
    program->found = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, program->path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        searching *s = NEW(a, searching);
        s->program = program;
        if (options)
            s->options = *options;
        s->a = a;
        s->title = "";
        s->kept = program->found = arena_child(program->a);
        eqf_about(ctx, program->path, NULL);
        search_all(s);
        *out = &program->searched;
    }
    arena_free(a);
    return t.status;
}
