/* Sizes after each phase beside those of the design's model (`!`: over 1.3 times), with times; then what
 * extraction went through, with compaction early and at the end (`+`: it met a limit, here 20 s). With
 * --rules what each rule of the first phase did; with --split DIM after a split of that dim into four;
 * with --subsets values are cut along every set of their axes:
 *
 *     bench_saturate [--rules] [--subsets] [--split DIM] PROGRAM.eqf ... */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "extract/extract.h"

enum { P0, ALGEBRA, TILES, LATE, NODE, STAGES };
static const char *const stage_names[STAGES] = {"P0", "algebra", "tiles", "late", "node"};

typedef struct sizes {
    int nodes, classes;
} sizes;
typedef struct model {
    const char *name;
    sizes at[STAGES];
} model;
/* What the design's model measured; printed beside, never compared. */
static const model models[] = {
    {"rmsnorm-gemm", {{11, 11}, {13, 12}, {43, 25}, {46, 28}, {49, 29}}},
    {"rmsnorm-mlp", {{14, 14}, {25, 19}, {81, 41}, {86, 46}, {99, 50}}},
    {"rmsnorm-swiglu", {{16, 16}, {29, 22}, {95, 47}, {100, 52}, {110, 55}}},
    {"rmsnorm-swiglu-gain", {{18, 18}, {38, 27}, {121, 61}, {130, 70}, {140, 73}}},
    {"layernorm-gemm", {{20, 20}, {94, 55}, {279, 122}, {304, 145}, {388, 167}}},
    {"lora", {{10, 10}, {24, 16}, {66, 40}, {75, 49}, {87, 53}}},
    {"ngpt", {{14, 14}, {14, 14}, {52, 30}, {54, 32}, {54, 32}}},
    {"row-softmax", {{6, 6}, {6, 6}, {24, 14}, {34, 22}, {34, 22}}},
    {"attention", {{12, 12}, {14, 13}, {50, 30}, {68, 44}, {75, 46}}},
    {"attention-causal", {{17, 17}, {19, 18}, {63, 39}, {81, 53}, {88, 55}}},
    {"self-attention", {{20, 20}, {34, 26}, {114, 66}, {149, 95}, {197, 109}}},
    {"differential-attention", {{32, 32}, {49, 40}, {171, 91}, {217, 127}, {329, 150}}},
    {"mla", {{31, 31}, {101, 57}, {306, 149}, {362, 199}, {439, 222}}},
    {"decoder-layer", {{45, 45}, {109, 73}, {328, 170}, {378, 216}, {410, 226}}},
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

typedef struct row {
    sizes at[STAGES];
    double ms[STAGES];
    eqf_stop stop;
    i64 bytes;
    ex_report found[2]; /* early, after */
    double found_ms[2];
} row;

typedef struct setting {
    bool with_rules, subsets;
    const char *split;
    double ratios; /* sum of logarithms of after / early */
    int ratio_count;
} setting;

static void note(row *r, int stage, rl_graph *g, eqf_run_report run, double ms)
{
    eqf_size size = eqf_egraph_size(rl_graph_engine(g));
    r->at[stage] = (sizes){(int)size.nodes, (int)size.classes};
    r->ms[stage] = ms;
    r->bytes = MAX(r->bytes, size.peak_bytes);
    if (run.stop != EQF_STOP_SATURATED)
        r->stop = run.stop;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static bool is_late(void *user)
{
    const double *end_ms = user;
    return now_ms() > *end_ms;
}

static void extract(arena *a, rl_graph *g, row *r)
{
    for (int mode = 0; mode < 2; mode++) {
        double started = now_ms(), end = started + 20e3;
        ex_options o = {.mode = mode ? EX_AFTER : EX_EARLY, .is_over = is_late, .user = &end};
        r->found[mode] = ex_search(a, g, &o);
        r->found_ms[mode] = now_ms() - started;
    }
}

static void print_found(const row *r, setting *o)
{
    const ex_report *early = &r->found[0], *after = &r->found[1];
    double ratio = (double)after->expanded / (double)MAX(early->expanded, 1);
    bool both = !early->is_cut_short && !after->is_cut_short;
    printf("    %lld structures, %lld candidates; early %lld%s states, %lld pruned, %.1f ms; after %lld%s "
           "states, %.1f ms; after / early %.3g\n",
           (long long)early->sets, (long long)early->distinct, (long long)early->expanded,
           early->is_cut_short ? "+" : "", (long long)early->pruned, r->found_ms[0],
           (long long)after->expanded, after->is_cut_short ? "+" : "", r->found_ms[1], ratio);
    if (both) {
        o->ratios += log(ratio);
        o->ratio_count++;
    }
}

static rl_graph *run_phases(arena *a, const ir_program *p, rl_fuse_mode mode, const setting *s, row *r)
{
    const char *split = s->split;
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .refine = s->subsets ? RL_REFINE_SUBSETS : RL_REFINE_MAXIMAL,
                          .limits = eqf_limits_default()};
    o.limits.iterations = -1; /* views pass one operator an iteration */
    double t0 = now_ms(), t1;
    rl_graph *g = rl_graph_new(a, p, &o);
    eqf_run_report run = {.stop = EQF_STOP_SATURATED};
    note(r, P0, g, run, 0);
    run = rl_graph_saturate(g, NULL);
    note(r, ALGEBRA, g, run, (t1 = now_ms()) - t0);
    for (u32 d = 1; split && d < (u32)p->atoms.n; d++)
        if (strcmp(ir_atom_name(p, (ir_atom){d}), split) == 0) {
            rl_graph_split(g, (ir_atom){d}, 4);
            run = rl_graph_saturate(g, NULL);
        }
    run = rl_graph_tile(g, NULL);
    note(r, TILES, g, run, (t0 = now_ms()) - t1);
    run.stop = rl_graph_fuse(g, mode).stop;
    note(r, mode == RL_FUSE_LATE ? LATE : NODE, g, run, (t1 = now_ms()) - t0);
    return g;
}

static void one(eqf_ctx *ctx, const char *path, setting *o)
{
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *text = file_read(a, path, 1 << 24, &n);
    ir_program *p = ir_read(a, path, text, n);
    const char *name = intern_text(p->names, p->name);
    row r = {.stop = EQF_STOP_SATURATED};
    extract(a, run_phases(a, p, RL_FUSE_LATE, o, &r), &r);
    rl_graph *g = run_phases(a, p, RL_FUSE_NODE, o, &r);
    const model *m = NULL;
    for (i64 i = 0; i < COUNT_OF(models) && !o->split && !o->subsets; i++)
        if (strcmp(models[i].name, name) == 0)
            m = &models[i];
    printf("%-23s", name);
    for (int stage = 0; stage < STAGES; stage++) {
        char got[32], expected[32] = "";
        snprintf(got, sizeof got, "%d/%d", r.at[stage].nodes, r.at[stage].classes);
        if (m)
            snprintf(expected, sizeof expected, "%d/%d", m->at[stage].nodes, m->at[stage].classes);
        bool above = m && r.at[stage].nodes > 1.3 * m->at[stage].nodes;
        printf(" %8s %7s%c", got, expected, above ? '!' : ' ');
    }
    printf(" %7.2f %7.2f %7.2f %7.1f  %s\n", r.ms[ALGEBRA], r.ms[TILES], r.ms[NODE],
           (double)r.bytes / 1048576, eqf_stop_name(r.stop));
    print_found(&r, o);
    if (o->with_rules)
        rule_counts(g);
    arena_free(a);
}

static void all(eqf_ctx *ctx, char **paths, int n, setting *o)
{
    for (int i = 0; i < n; i++)
        one(ctx, paths[i], o);
    if (o->ratio_count > 0)
        printf("after / early, geometric mean of the %d that both ended: %.3g\n", o->ratio_count,
               exp(o->ratios / o->ratio_count));
}

int main(int argc, char **argv)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    if (!ctx)
        return 3;
    printf("%-23s", "e-nodes/classes");
    for (int stage = 0; stage < STAGES; stage++)
        printf(" %8s %7s ", stage_names[stage], "model");
    printf(" %7s %7s %7s %7s\n", "alg ms", "tile ms", "node ms", "MiB");
    setting o = {0};
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        o.with_rules |= strcmp(argv[first], "--rules") == 0;
        o.subsets |= strcmp(argv[first], "--subsets") == 0;
        if (strcmp(argv[first], "--split") == 0 && first + 1 < argc)
            o.split = argv[++first];
    }
    trap t;
    TRY (ctx, t)
        all(ctx, argv + first, argc - first, &o);
    if (t.status && eqf_diag_count(ctx)) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        fprintf(stderr, "bench_saturate: %s: %s: %s\n", d.file, d.place, d.message);
    }
    eqf_ctx_free(ctx);
    return t.status ? 1 : 0;
}
