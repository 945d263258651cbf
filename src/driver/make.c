/* From a program to a verified package: kernels, files, objects, constants, and the run beside the
 * reference interpreter. Everything is written into the writer's temporary directory, verified there by
 * loading it in a child, and only then can it be made to appear. What is thrown on the way removes it. */
#include <dlfcn.h>

#include "driver/making.h"

/* Files are what is compiled at one time, and once. A compiler's start costs as much as a few kernels, so
 * those of the program as it was read share files; those of candidates, which share kernels, do not. */
#define FEWEST_IN_FILE 4
#define MANY_FILES 64
#define MOST_IN_FILE 64
#define FILE_S 2.0
#define FILE_SHARE 0.1
#define ALIGNMENT 256

void make_begin(making *m, const char *stage)
{
    if (m->options.cancel && *m->options.cancel)
        eqf_throw(m->ctx, EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
    if (m->options.progress)
        m->options.progress(m->options.user, stage);
}

driver_space make_space(const making *m)
{
    return (driver_space){.rules = m->rules,
                          .fp = driver_rounding(m->options.accuracy),
                          .parameters_are_inputs = m->options.parameters_are_inputs,
                          .cancel = m->options.cancel};
}

static void build_kernels(making *m)
{
    make_begin(m, "lowering");
    kn_options options = {.vector_bytes = m->compiler.vector_bytes,
                          .threads = m->threads,
                          .constants = !m->options.parameters_are_inputs,
                          .tiles = m->compiler.tiles};
    kn_build(m->a, m->ir, options, &m->package.plan, &m->kernels);
}

static const ir_port *find_port(const ir_program *p, const char *name, i64 *index)
{
    for (i64 i = 0; i < p->inputs.n; i++)
        if (strcmp(intern_text(p->names, p->inputs.at[i].name), name) == 0) {
            *index = i;
            return &p->inputs.at[i];
        }
    return NULL;
}

/* With parameters as inputs, the plan treats them like user inputs. They become weights that the
 * package holds as given and that the caller may replace. */
static void lift_parameters(making *m)
{
    rt_plan *plan = &m->package.plan;
    i64 kept = 0, *moved_to = NEW_N(m->a, i64, plan->inputs.n + 1);
    i64 before = plan->inputs.n;
    for (i64 i = 0; i < before; i++) {
        rt_port port = plan->inputs.at[i];
        i64 index = 0;
        const ir_port *source = find_port(m->ir, port.name, &index);
        if (!source)
            eqf_bug(m->ctx, "input %s of the plan is none of the program", port.name);
        if (source->role == IR_INPUT) {
            if (port.buffer >= 0)
                plan->buffers.at[port.buffer].port = kept;
            plan->inputs.at[kept] = port;
            moved_to[i] = kept++;
            continue;
        }
        moved_to[i] = -1;
        if (port.buffer >= 0) {
            rt_buffer *b = &plan->buffers.at[port.buffer];
            b->role = RT_WEIGHT;
            b->port = index;
            b->offset = (plan->weights_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            plan->weights_bytes = b->offset + b->bytes;
        }
        vec_push(m->a, &plan->parameters, port);
    }
    plan->inputs.n = kept;
    for (i64 i = 0; i < plan->outputs.n; i++) {
        rt_port *o = &plan->outputs.at[i];
        if (o->writes > before)
            o->writes += kept - before;
        else if (o->writes > 0)
            o->writes = moved_to[o->writes - 1] + 1;
    }
}

/* Seconds that are left of the budget, for a candidate; 0 for the program as it was read, which is
 * built whatever it takes. */
static f64 seconds_left(const making *m)
{
    return m->deadline > 0 ? MAX(m->deadline - rt_now(), 1e-3) : 0;
}

/* Of a processor, for one file of a candidate: one that takes a large part of what is left is not worth
 * it. */
static f64 seconds_for_file(const making *m)
{
    return m->deadline > 0 ? MIN(seconds_left(m), MAX(FILE_S, FILE_SHARE * seconds_left(m))) : 0;
}

/* Files and how far they are, for whoever waits for more than a few. */
static void show_compiled(void *user, i64 compiled)
{
    making *m = user;
    make_begin(m, m->file_count > 2 * m->jobs ? arena_printf(m->a, "compiling %lld of %lld",
                                                        (long long)compiled + 1,
                                                        (long long)m->file_count)
                                         : "compiling");
}

static void compile_kernels(making *m)
{
    make_begin(m, "compiling");
    m->package.library = "";
    for (i64 i = 0; i < m->package.plan.launches.n; i++)
        m->package.kernel_count += m->package.plan.launches.at[i].symbol[0] != 0;
    if (m->kernels.n == 0)
        return;
    VEC(const char *) files = {0};
    const char **symbols = NEW_N(m->a, const char *, m->kernels.n);
    for (i64 i = 0; i < m->kernels.n; i++)
        symbols[i] = m->kernels.at[i]->name;
    i64 in_file = MIN(m->kernels.n / MANY_FILES + 1, MOST_IN_FILE);
    if (m->deadline == 0)
        in_file = MAX(in_file, FEWEST_IN_FILE);
    for (i64 i = 0; i < m->kernels.n; i += in_file) {
        arena *scratch = arena_child(m->a);
        str text = str_new(scratch);
        cg_c(&text, m->ctx, m->kernels.at + i, MIN(in_file, m->kernels.n - i),
             m->compiler.vector_bytes);
        char digest[33];
        digest_hex(str_text(&text), text.n, digest);
        const char *name = arena_printf(m->a, RT_KERNELS_DIR "/%s.c", digest);
        pk_add(m->writer, name, str_text(&text), text.n);
        vec_push(m->a, &files, name);
        arena_free(scratch);
    }
    for (i64 i = 0; i < files.n; i++)
        for (i64 k = 0; k < m->refused->n; k++)
            if (strcmp(files.at[i], m->refused->at[k]) == 0)
                eqf_throw(m->ctx, EQF_E_LIMIT, files.at[i], NULL,
                          "a kernel that takes too long to compile");
    tn_sources sources = {.directory = pk_directory(m->writer),
                          .objects = m->objects,
                          .files = files.at,
                          .n = files.n,
                          .library = RT_KERNELS_DIR "/new.so",
                          .symbols = symbols,
                          .symbol_count = m->kernels.n,
                          .seconds = seconds_for_file(m),
                          .until = m->deadline,
                          .progress = show_compiled,
                          .user = m};
    m->file_count = files.n;
    tn_compile(m->ctx, &m->compiler, sources, m->jobs, m->options.cancel);
    m->package.library = pk_adopt_as_digest(m->writer, sources.library, RT_KERNELS_DIR "/", ".so");
}

/* ---- constants -------------------------------------------------------------------------------- */

typedef struct preparing {
    const rt_plan *plan;
    const char *library;
    const void **sources;
    int threads;
    u8 *image; /* shared with the child */
} preparing;

/* In the child: generated code runs on constants just as it does on inputs. */
static void prepare(eqf_ctx *ctx, arena *a, void *user)
{
    preparing *j = user;
    void *library = j->library[0] ? dlopen(j->library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (j->library[0] && !library)
        eqf_throw(ctx, EQF_E_MACHINE, NULL, NULL, "%s", dlerror());
    rt_kernel *kernels = NEW_N(a, rt_kernel, j->plan->prepare.n);
    for (i64 i = 0; i < j->plan->prepare.n; i++) {
        const char *symbol = j->plan->prepare.at[i].symbol;
        void *found = symbol[0] && library ? dlsym(library, symbol) : NULL;
        if (symbol[0] && !found)
            eqf_throw(ctx, EQF_E_INTERNAL, NULL, symbol, "no such kernel");
        memcpy(&kernels[i], &found, sizeof found);
    }
    rt_prepare(ctx, j->plan, kernels, j->sources, j->image,
               j->threads > 1 ? pool_new(ctx, j->threads) : NULL);
}

/* weights.bin: what `prepare` computes, and parameters as given. */
static void write_weights(making *m)
{
    rt_plan *plan = &m->package.plan;
    if (plan->weights_bytes == 0)
        return;
    make_begin(m, "preparing constants");
    preparing *j = NEW(m->a, preparing);
    arena *scratch = arena_child(m->a);
    *j = (preparing){.plan = plan, .threads = m->threads};
    j->image = tn_shared(scratch, plan->weights_bytes);
    j->library = m->package.library[0]
                     ? arena_printf(m->a, "%s/%s", pk_directory(m->writer), m->package.library)
                     : "";
    j->sources = NEW_N(m->a, const void *, m->ir->inputs.n);
    for (i64 i = 0; i < m->ir->inputs.n; i++)
        j->sources[i] = m->data[i].data;
    for (i64 i = 0; i < plan->parameters.n; i++) {
        const rt_port *p = &plan->parameters.at[i];
        const rt_buffer *b = p->buffer >= 0 ? &plan->buffers.at[p->buffer] : NULL;
        if (b)
            memcpy(j->image + b->offset, j->sources[b->port],
                   (size_t)(b->count * dtype_bytes(b->type)));
    }
    if (plan->prepare.n > 0) {
        tn_limits limits = {.cpu_s = 3600, .wall_s = seconds_left(m)};
        tn_outcome o = tn_run_apart(scratch, prepare, j, limits, m->options.cancel);
        if (!tn_succeeded(o.end)) {
            program_expect_unchanged(m->program);
            eqf_throw(m->ctx, tn_ran_out(o.end, limits.wall_s) ? EQF_E_LIMIT : EQF_E_MISMATCH,
                      m->program->path, NULL, "computing constants failed: %s",
                      tn_describe(m->a, o.end));
        }
        if (o.status != EQF_OK)
            eqf_throw(m->ctx, o.status, m->program->path, NULL, "computing constants failed: %s",
                      o.message);
    }
    pk_add(m->writer, RT_WEIGHTS_FILE, j->image, plan->weights_bytes);
    arena_free(scratch);
}

/* Buffers of sources exist only while constants are prepared. */
static void drop_sources(making *m)
{
    rt_plan *plan = &m->package.plan;
    i32 kept = 0, *moved_to = NEW_N(m->a, i32, plan->buffers.n + 1);
    for (i64 i = 0; i < plan->buffers.n; i++) {
        moved_to[i] = plan->buffers.at[i].role == RT_SOURCE ? -1 : kept;
        if (moved_to[i] >= 0)
            plan->buffers.at[kept++] = plan->buffers.at[i];
    }
    plan->buffers.n = kept;
    struct {
        rt_port *at;
        i64 n;
    } lists[] = {{plan->inputs.at, plan->inputs.n},
                 {plan->outputs.at, plan->outputs.n},
                 {plan->states.at, plan->states.n},
                 {plan->parameters.at, plan->parameters.n}};
    for (i64 l = 0; l < COUNT_OF(lists); l++)
        for (i64 i = 0; i < lists[l].n; i++)
            if (lists[l].at[i].buffer >= 0)
                lists[l].at[i].buffer = moved_to[lists[l].at[i].buffer];
    for (i64 i = 0; i < plan->launches.n; i++) {
        rt_launch *l = &plan->launches.at[i];
        rt_arg *args = arena_copy(m->a, l->args, l->arg_count * (i64)sizeof *args);
        for (i64 k = 0; k < l->arg_count; k++) {
            args[k].buffer = moved_to[args[k].buffer];
            if (args[k].buffer < 0)
                eqf_bug(m->ctx, "%s reads a parameter that only prepare has", l->symbol);
        }
        l->args = args;
    }
    plan->prepare.n = 0;
}

/* ---- verification and the end ----------------------------------------------------------------- */

static void verify(making *m)
{
    make_begin(m, "verifying");
    pk_seal(m->writer, &m->package);
    program_expect_unchanged(m->program);
    trial_timing how = {m->race_s, seconds_left(m), m->rival, m->verified.peaks};
    m->verified = verify_package(m->a, m->ir, &m->package, pk_directory(m->writer), m->data,
                                 &m->reference, m->threads, how, m->options.cancel);
    for (i64 i = 0; i < m->ir->outputs.n; i++)
        m->package.tolerances.at[i] = m->verified.tolerances[i];
}

static void summarize(making *m)
{
    eqf_optimize_report *r = &m->report;
    plan_work work = bench_work(&m->package.plan);
    bool works = m->package.kernel_count > 0;
    r->backend = "c";
    r->verified = true;
    r->rel_l2 = m->verified.rel_l2;
    r->output_count = (size_t)m->ir->outputs.n;
    r->kernels = m->package.kernel_count;
    r->subgraphs = works ? m->subgraphs : 0;
    r->distinct_subgraphs = works ? m->distinct_subgraphs : 0;
    /* times of one moment compare, those of two may not */
    const verified *v = &m->verified;
    /* beside its rival, since the machine may be busier than it was; no less than a run was seen to take */
    r->best_us = m->rival ? MAX(r->best_us * v->median_us / v->rival_median_us, v->least_us)
                          : v->median_us;
    r->roofline = r->best_us > 0 ? bench_bound_us(work, m->verified.peaks) / r->best_us : 0;
}

/* The report outlives everything else that was made: it is copied into `a`. */
static eqf_optimize_report copy_report(const making *m, arena *a, const char *path)
{
    eqf_optimize_report r = m->report;
    r.package = arena_strdup(a, path);
    r.failure = arena_strdup(a, r.failure);
    r.rel_l2 = arena_copy(a, r.rel_l2, (i64)(r.output_count * sizeof(f64)));
    return r;
}

void make_package(making *m, const char *path)
{
    m->writer = pk_begin(m->a, path);
    build_kernels(m);
    lift_parameters(m);
    compile_kernels(m);
    write_weights(m);
    drop_sources(m);
    describe_package(m);
    f64 verifying = rt_now();
    if (!m->reference.a) {
        make_begin(m, "computing the reference");
        m->reference = reference_make(m->a, m->ir, m->data, m->pool, m->options.cancel);
    }
    describe_texts(m);
    verify(m);
    m->report.verify_s += rt_now() - verifying;
}

void make_publish(making *m, const char *path)
{
    describe_reference(m);
    summarize(m);
    describe_report(m);
    pk_seal(m->writer, &m->package);
    eqf_program *p = m->program;
    arena *kept = arena_child(p->a);
    eqf_optimize_report report = copy_report(m, kept, path);
    program_expect_unchanged(p);
    const char *left = pk_commit(m->writer);
    if (left)
        m->report.left_behind = report.left_behind = arena_strdup(p->a, left);
    if (p->result) /* of the package that was there until now */
        arena_free(p->result);
    p->result = kept;
    p->optimized = report;
}
