/* Sizes, times and memory of the search, and whether it finds what is written down:
 *
 *     bench_search [--root FOLDER]         the tables that are compared with something: below
 *     bench_search [--rules] [--subsets] [--split DIM] PROGRAM.eqf ...     sizes of other programs
 *
 * 1. Each derivation, and each form of slices, concats, gathers and scans (outputs Y.form are forms of
 *    Y): is it in the class of Y, of how many steps is its proof, and what did the search take: time, the
 *    e-graph's memory, and the most that the process held, proofs included.
 * 2. Sizes after each phase beside those of the design's model (`!`: over 1.3 times), with times; then
 *    what extraction went through, with compaction early and at the end (`+`: it met a limit, here 20 s).
 *    With --rules what each rule did; with --split DIM after a split of that dim into four; with --subsets
 *    values are cut along every set of their axes.
 * 3. The programs of which the paper states sizes, at 16 rows or 16 sequences, cut along every set of
 *    their axes as the paper's are, beside its figures; and the largest cut beside the design's goals. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
    {"attention-split", {{12, 12}, {50, 31}, {163, 80}, {0, 0}, {290, 155}}},
    {"attention-causal", {{17, 17}, {19, 18}, {63, 39}, {81, 53}, {88, 55}}},
    {"self-attention", {{20, 20}, {34, 26}, {114, 66}, {149, 95}, {197, 109}}},
    {"differential-attention", {{32, 32}, {49, 40}, {171, 91}, {217, 127}, {329, 150}}},
    {"mla", {{31, 31}, {101, 57}, {306, 149}, {362, 199}, {439, 222}}},
    {"decoder-layer", {{45, 45}, {109, 73}, {328, 170}, {378, 216}, {410, 226}}},
};

/* What the paper states for these at B = 16: "fewer than", "over" (the cells of its table are not
 * known), and the design's goals for the largest cut alone. */
static const struct {
    const char *file, *split;
    int nodes;
} paper[] = {
    {"rmsnorm_gemm", NULL, 1200},   {"rmsnorm_mlp", NULL, 1200},        {"gated_mlp", NULL, 1200},
    {"rmsnorm_swiglu", NULL, 1200}, {"layernorm_gemm", NULL, 1200},     {"lora", NULL, 1200},
    {"ngpt", NULL, 1200},           {"gqa_decode", "T", 22000},         {"attention", "T", 22000},
    {"attention_prefill", "T", 65000},
};

static const model *model_of(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(models); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---- phases ------------------------------------------------------------------------------------ */

typedef struct row {
    sizes at[STAGES];
    double ms[STAGES];
    eqf_stop stop;
    i64 bytes;
    ex_report found[2]; /* early, after */
    double found_ms[2];
} row;

typedef struct setting {
    bool with_rules, subsets, explain, cancels_not;
    const char *split;
    i64 parts;
    double ratios; /* sum of logarithms of after / early */
    int ratio_count;
} setting;

static rl_graph_options options_of(arena *a, const setting *s)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = s->cancels_not ? RL_REASSOCIATED : RL_APPROXIMATE,
                          .refine = s->subsets ? RL_REFINE_SUBSETS : RL_REFINE_MAXIMAL,
                          .explain = s->explain,
                          .limits = eqf_limits_default()};
    o.limits.iterations = -1; /* views pass one operator an iteration */
    return o;
}

static void note(row *r, int stage, rl_graph *g, eqf_stop stop, double *since)
{
    eqf_size size = eqf_egraph_size(rl_graph_engine(g));
    double now = now_ms();
    r->at[stage] = (sizes){(int)size.nodes, (int)size.classes};
    r->ms[stage] = now - *since;
    *since = now;
    r->bytes = MAX(r->bytes, size.peak_bytes);
    if (stop != EQF_STOP_SATURATED)
        r->stop = stop;
}

static rl_graph *run_phases(arena *a, const ir_program *p, rl_fuse_mode mode, const setting *s, row *r)
{
    rl_graph_options o = options_of(a, s);
    double t = now_ms();
    rl_graph *g = rl_graph_new(a, p, &o);
    note(r, P0, g, EQF_STOP_SATURATED, &t);
    eqf_stop stop = rl_graph_saturate(g, NULL).stop;
    for (u32 d = 1; s->split && d < (u32)p->atoms.n; d++)
        if (strcmp(ir_atom_name(p, (ir_atom){d}), s->split) == 0) {
            rl_graph_split(g, (ir_atom){d}, s->parts);
            stop = rl_graph_saturate(g, NULL).stop;
        }
    note(r, ALGEBRA, g, stop, &t);
    stop = rl_graph_tile(g, NULL).stop;
    note(r, TILES, g, stop, &t);
    stop = rl_graph_fuse(g, mode).stop;
    note(r, mode == RL_FUSE_LATE ? LATE : NODE, g, stop, &t);
    return g;
}

static double total_ms(const row *r)
{
    return r->ms[P0] + r->ms[ALGEBRA] + r->ms[TILES] + r->ms[NODE];
}

static ir_program *read_program(arena *a, const char *path)
{
    i64 n;
    const char *text = file_read(a, path, 1 << 24, &n);
    return ir_read(a, path, text, n);
}

/* ---- sizes of programs, and extraction --------------------------------------------------------- */

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

static void print_size_head(void)
{
    printf("%-23s", "e-nodes/classes");
    for (int stage = 0; stage < STAGES; stage++)
        printf(" %8s %7s ", stage_names[stage], "model");
    printf(" %7s %7s %7s %7s\n", "alg ms", "tile ms", "node ms", "MiB");
}

static void size_of(eqf_ctx *ctx, const char *path, setting *o)
{
    arena *a = arena_new(ctx, 0);
    ir_program *p = read_program(a, path);
    const char *name = intern_text(p->names, p->name);
    row r = {.stop = EQF_STOP_SATURATED};
    extract(a, run_phases(a, p, RL_FUSE_LATE, o, &r), &r);
    rl_graph *g = run_phases(a, p, RL_FUSE_NODE, o, &r);
    const model *m = o->split || o->subsets ? NULL : model_of(name);
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

static void sizes_of(eqf_ctx *ctx, char **paths, int n, setting *o)
{
    print_size_head();
    for (int i = 0; i < n; i++)
        size_of(ctx, paths[i], o);
    if (o->ratio_count > 0)
        printf("after / early, geometric mean of the %d that both ended: %.3g\n", o->ratio_count,
               exp(o->ratios / o->ratio_count));
}

/* ---- beside the paper -------------------------------------------------------------------------- */

static void beside_paper(eqf_ctx *ctx, const char *root)
{
    printf("%-23s %9s %9s %9s %8s %9s %9s %8s %8s\n", "e-nodes at 16", "paper", "subsets",
           "/ paper", "ms", "maximal", "goal", "ms", "goal");
    for (i64 i = 0; i < COUNT_OF(paper); i++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_program(a, arena_printf(a, "%s/programs/%s.eqf", root, paper[i].file));
        row r[2] = {{.stop = EQF_STOP_SATURATED}, {.stop = EQF_STOP_SATURATED}};
        for (int k = 0; k < 2; k++) {
            setting s = {.subsets = k == 0, .split = paper[i].split, .parts = 4};
            run_phases(a, p, RL_FUSE_NODE, &s, &r[k]);
        }
        char name[64], said[32];
        snprintf(name, sizeof name, "%s%s", intern_text(p->names, p->name),
                 paper[i].split ? ", split" : "");
        snprintf(said, sizeof said, "%s %d", paper[i].split ? ">" : "<", paper[i].nodes);
        int nodes = r[0].at[NODE].nodes;
        printf("%-23s %9s %9d %9.3f %8.1f %9d %9s %8.1f %8s  %s\n", name, said, nodes,
               (double)nodes / paper[i].nodes, total_ms(&r[0]), r[1].at[NODE].nodes,
               paper[i].split ? "<= 2000" : "<= 600", total_ms(&r[1]),
               paper[i].split ? "<= 200" : "<= 50",
               eqf_stop_name(r[0].stop == EQF_STOP_SATURATED ? r[1].stop : r[0].stop));
        arena_free(a);
    }
}

/* ---- derivations ------------------------------------------------------------------------------- */

static const char *output_name(const ir_program *p, i64 i)
{
    return intern_text(p->names, p->outputs.at[i].name);
}

/* The program alone, or with the form of one output in its place; without the parts of the dims that
 * forms split, which are declared last. */
static ir_program *program_of(arena *a, const ir_program *all, i64 form)
{
    ir_program p = *all;
    memset(&p.outputs, 0, sizeof p.outputs);
    for (i64 i = 0; i < all->outputs.n; i++) {
        ir_port port = all->outputs.at[i];
        const char *name = output_name(all, i);
        size_t n = strlen(name);
        if (strchr(name, '.'))
            continue;
        if (form >= 0 && strncmp(output_name(all, form), name, n) == 0 &&
            output_name(all, form)[n] == '.')
            port.term = all->outputs.at[form].term;
        vec_push(a, &p.outputs, port);
    }
    if (form < 0 && p.splits.n) {
        p.atoms.n = p.splits.at[0].outer.i;
        p.splits.n = 0;
    }
    str s = str_new(a);
    ir_print(&s, &p);
    return ir_read(a, all->file, str_text(&s), s.n);
}

/* Steps of the proof that the form is the program, replayed by the independent checker, which adds
 * the assumptions; -1: the form was not found. */
static i64 steps_of(arena *a, rl_graph *g, const ir_program *all, i64 form, const setting *s,
                    i64 *assumptions)
{
    const char *why;
    ir_program *q = program_of(a, all, form);
    const char *text = rl_graph_derive(g, a, q, &why);
    if (!text)
        return -1;
    i64 n = (i64)strlen(text);
    rl_graph_options o = options_of(a, s);
    o.explain = false;
    eqf_check_report r = rl_replay(a, program_of(a, all, -1), q, &o, "derivation", text, n,
                                   sx_read(a, "derivation", text, n)->at[0]);
    *assumptions += (i64)r.assumptions;
    return (i64)r.steps;
}

/* One line a form; 1 when a form is not found. */
static int derivation(eqf_ctx *ctx, const char *path)
{
    arena *a = arena_new(ctx, 0);
    ir_program *all = read_program(a, path), *p = program_of(a, all, -1);
    const char *name = intern_text(p->names, p->name);
    setting s = {.cancels_not = strstr(path, "_reassoc.")};
    if (all->splits.n) {
        s.split = ir_atom_name(all, all->splits.at[0].whole);
        s.parts = ir_extent(all, all->splits.at[0].outer);
    }
    row best = {.stop = EQF_STOP_SATURATED};
    for (int turn = 0; turn < 5; turn++) {
        arena *own = arena_child(a);
        row r = {.stop = EQF_STOP_SATURATED};
        run_phases(own, p, RL_FUSE_NODE, &s, &r);
        if (turn == 0 || total_ms(&r) < total_ms(&best))
            best = r;
        arena_free(own);
    }
    s.explain = true;
    row told = {.stop = EQF_STOP_SATURATED};
    rl_graph *g = run_phases(a, p, RL_FUSE_NODE, &s, &told);
    const model *m = model_of(name);
    char expected[32] = "-";
    if (m)
        snprintf(expected, sizeof expected, "%d/%d", m->at[NODE].nodes, m->at[NODE].classes);
    printf("%-23s %5d/%-5d %9s %8.1f %8.2f  %s\n", name, best.at[NODE].nodes, best.at[NODE].classes,
           expected, total_ms(&best), (double)best.bytes / 1048576, eqf_stop_name(best.stop));
    int missing = 0;
    for (i64 i = 0; i < all->outputs.n; i++) {
        const char *form = strchr(output_name(all, i), '.');
        i64 assumptions = 0;
        if (!form)
            continue;
        double t = now_ms();
        i64 steps = steps_of(a, g, all, i, &s, &assumptions);
        missing += steps < 0;
        if (steps < 0)
            printf("    %-40s NOT FOUND\n", form + 1);
        else
            printf("    %-40s found, %lld steps replayed, %lld assumptions, %.0f ms\n", form + 1,
                   (long long)steps, (long long)assumptions, now_ms() - t);
    }
    arena_free(a);
    return missing > 0;
}

static void report(eqf_ctx *ctx, eqf_status status)
{
    if (status && eqf_diag_count(ctx)) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        fprintf(stderr, "bench_search: %s: %s: %s\n", d.file, d.place, d.message);
    }
}

/* Each in a process of its own, of which the system says the most memory that it held. */
static int derivation_apart(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        trap t;
        volatile int missing = 0;
        TRY (ctx, t)
            missing = derivation(ctx, path);
        report(ctx, t.status);
        fflush(stdout);
        _exit(t.status ? 2 : missing);
    }
    int status;
    struct rusage usage = {0};
    if (child < 0 || wait4(child, &status, 0, &usage) < 0)
        return 2;
    printf("    the process held %.1f MiB at most\n", (double)usage.ru_maxrss / 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static int is_eqf(const struct dirent *e)
{
    return strstr(e->d_name, ".eqf") != NULL;
}

static int derivations(const char *root, const char *kind)
{
    char folder[4096], path[8192];
    struct dirent **all;
    snprintf(folder, sizeof folder, "%s/%s", root, kind);
    int n = scandir(folder, &all, is_eqf, alphasort), failed = n < 0;
    printf("%-23s %11s %9s %8s %8s\n", kind, "e-nodes/classes", "model", "ms", "MiB");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, all[i]->d_name);
        failed |= derivation_apart(path) != 0;
        free(all[i]);
    }
    if (n >= 0)
        free(all);
    return failed;
}

/* ---- all --------------------------------------------------------------------------------------- */

static void tables(eqf_ctx *ctx, const char *root)
{
    arena *a = arena_new(ctx, 0);
    VEC(char *) paths = {0};
    for (i64 i = 0; i < COUNT_OF(models); i++) {
        char *path = arena_strdup(a, arena_printf(a, "%s/programs/%s.eqf", root, models[i].name));
        for (char *c = path + strlen(root); *c; c++)
            *c = *c == '-' ? '_' : *c;
        if (access(path, R_OK) == 0)
            vec_push(a, &paths, path);
    }
    setting s = {.parts = 4};
    printf("\n");
    sizes_of(ctx, paths.at, (int)paths.n, &s);
    printf("\n");
    beside_paper(ctx, root);
    arena_free(a);
}

int main(int argc, char **argv)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    if (!ctx)
        return 3;
    setting o = {.parts = 4};
    const char *root = EQF_BENCH_ROOT;
    int first = 1, missing = 0;
    for (; first < argc && argv[first][0] == '-'; first++) {
        o.with_rules |= strcmp(argv[first], "--rules") == 0;
        o.subsets |= strcmp(argv[first], "--subsets") == 0;
        if (strcmp(argv[first], "--split") == 0 && first + 1 < argc)
            o.split = argv[++first];
        else if (strcmp(argv[first], "--root") == 0 && first + 1 < argc)
            root = argv[++first];
    }
    trap t;
    if (first == argc) /* first, as long as this process holds little itself */
        missing = derivations(root, "derivations") | derivations(root, "tiles");
    TRY (ctx, t) {
        if (first < argc)
            sizes_of(ctx, argv + first, argc - first, &o);
        else
            tables(ctx, root);
    }
    report(ctx, t.status);
    eqf_ctx_free(ctx);
    return t.status || missing ? 1 : 0;
}
