/* The compiler's table of contents: `build` below calls the stages in order, first for the program as
 * it was read, one kernel an operator, then for each candidate of the search while time is left.
 *
 * Stages share one `making`; each fills its part of it. Everything is written into the writer's
 * temporary directory, verified there by loading it in a child, and only then made to appear, if it
 * is the fastest so far. What is thrown on the way removes it. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

#include "codegen/codegen.h"
#include "driver/driver.h"
#include "package/package.h"
#include "tune/tune.h"

/* A compiler's start costs as much as a few kernels; files are what is compiled at one time. */
#define FEWEST_IN_FILE 4
#define MOST_IN_FILE 64
#define MANY_FILES 64
#define ALIGNMENT 256
#define TIMING_S 0.1
#define DEFAULT_BUDGET_S 60
#define MOST_CANDIDATES 16
#define FASTER 0.97 /* less is noise */

typedef struct making {
    eqf_program *program;
    const ir_program *ir;
    eqf_optimize_options options;
    arena *a;
    eqf_ctx *ctx;
    pk_writer *writer;
    int threads, jobs;
    f64 deadline;   /* rt_now of a candidate's end; 0: none */
    i64 file_count; /* of C sources */
    pool *pool;
    tn_compiler compiler;
    const tensor *data; /* a program port each */
    kn_kernels kernels;
    rt_package package;
    reference reference;
    verified verified;
    f64 best_least_us; /* shortest run of the package that is there */
    eqf_optimize_report report;
} making;

static void begin(making *m, const char *stage)
{
    if (m->options.cancel && *m->options.cancel)
        eqf_throw(m->ctx, EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
    if (m->options.progress)
        m->options.progress(m->options.user, stage);
}

/* ---- what can be compiled at all
 * ----------------------------------------------------------------- */

/* One error for all operators that nothing here can run. */
static void check_boundaries(const making *m)
{
    const fe_report *r = &m->program->report;
    const fe_boundary *first = NULL;
    i64 count = 0;
    str names = str_new(m->a);
    for (i64 i = 0; i < r->n_boundaries; i++) {
        const fe_boundary *b = &r->boundaries[i];
        if (b->runs)
            continue;
        first = first ? first : b;
        bool is_new = true;
        for (i64 k = 0; k < i; k++)
            is_new = is_new && (r->boundaries[k].runs || strcmp(r->boundaries[k].op, b->op) != 0);
        if (is_new)
            str_printf(&names, "%s%s", names.n ? ", " : "", b->op);
        count++;
    }
    if (first)
        eqf_throw(m->ctx, EQF_E_UNSUPPORTED, m->program->path, first->node,
                  "nothing here can run %s (%lld of the program's operators): %s", str_text(&names),
                  (long long)count, first->reason);
}

/* ---- kernels
 * -------------------------------------------------------------------------------------- */

static void build_kernels(making *m)
{
    begin(m, "lowering");
    kn_options options = {.vector_bytes = m->compiler.vector_bytes,
                          .threads = m->threads,
                          .constants = !m->options.parameters_are_inputs};
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

/* Files and how far they are, for whoever waits for more than a few. */
static void show_compiled(void *user, i64 compiled)
{
    making *m = user;
    begin(m, m->file_count > 2 * m->jobs ? arena_printf(m->a, "compiling %lld of %lld",
                                                        (long long)compiled + 1,
                                                        (long long)m->file_count)
                                         : "compiling");
}

static void compile_kernels(making *m)
{
    begin(m, "compiling");
    m->package.library = "";
    for (i64 i = 0; i < m->package.plan.launches.n; i++)
        m->package.kernel_count += m->package.plan.launches.at[i].symbol[0] != 0;
    if (m->kernels.n == 0)
        return;
    VEC(const char *) files = {0};
    const char **symbols = NEW_N(m->a, const char *, m->kernels.n);
    for (i64 i = 0; i < m->kernels.n; i++)
        symbols[i] = m->kernels.at[i]->name;
    i64 in_file = MIN(MAX(m->kernels.n / MANY_FILES, FEWEST_IN_FILE), MOST_IN_FILE);
    for (i64 i = 0; i < m->kernels.n; i += in_file) {
        arena *scratch = arena_child(m->a);
        str text = str_new(scratch);
        cg_c(&text, m->ctx, m->kernels.at + i, MIN(in_file, m->kernels.n - i),
             m->compiler.vector_bytes);
        const char *name =
            arena_printf(m->a, RT_KERNELS_DIR "/part%02lld.c", (long long)(i / in_file));
        pk_add(m->writer, name, str_text(&text), text.n);
        vec_push(m->a, &files, name);
        arena_free(scratch);
    }
    tn_sources sources = {.directory = pk_directory(m->writer),
                          .files = files.at,
                          .n = files.n,
                          .library = RT_KERNELS_DIR "/new.so",
                          .symbols = symbols,
                          .symbol_count = m->kernels.n,
                          .seconds = seconds_left(m),
                          .progress = show_compiled,
                          .user = m};
    m->file_count = files.n;
    tn_compile(m->ctx, &m->compiler, sources, m->jobs, m->options.cancel);
    m->package.library = pk_adopt_as_digest(m->writer, sources.library, RT_KERNELS_DIR "/", ".so");
}

/* ---- constants
 * ------------------------------------------------------------------------------------- */

typedef struct prepared {
    eqf_status status;
    char message[512];
} prepared;

typedef struct preparing {
    const rt_plan *plan;
    const char *library;
    const void **sources;
    int threads;
    prepared *shared; /* with the child; the image follows at IMAGE_AT */
    u8 *image;
} preparing;

#define IMAGE_AT 4096
_Static_assert(sizeof(prepared) <= IMAGE_AT, "the image starts behind the message");

/* In the child: generated code runs on constants just as it does on inputs. */
static int prepare_body(void *user)
{
    preparing *j = user;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = ctx ? arena_new(ctx, 0) : NULL;
    if (!a)
        return 1;
    trap t;
    TRY (ctx, t) {
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
    j->shared->status = t.status;
    if (t.status != EQF_OK && eqf_diag_count(ctx) > 0) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        snprintf(j->shared->message, sizeof j->shared->message, "%s%s%s", d.place,
                 d.place[0] ? ": " : "", d.message);
    }
    return 0;
}

static void unmap_image(void *p)
{
    preparing *j = p;
    munmap(j->shared, (size_t)(j->plan->weights_bytes + IMAGE_AT));
}

/* weights.bin: what `prepare` computes, and parameters as given. */
static void write_weights(making *m)
{
    rt_plan *plan = &m->package.plan;
    if (plan->weights_bytes == 0)
        return;
    begin(m, "preparing constants");
    preparing *j = NEW(m->a, preparing);
    arena *scratch = arena_child(m->a);
    size_t size = (size_t)(plan->weights_bytes + IMAGE_AT);
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        eqf_throw(m->ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory (%lld bytes wanted)",
                  (long long)size);
    *j = (preparing){.plan = plan, .threads = m->threads};
    j->shared = shared;
    j->image = (u8 *)shared + IMAGE_AT;
    arena_defer(scratch, unmap_image, j);
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
        tn_end end = tn_wait(tn_start_body(scratch, prepare_body, j, limits),
                             m->options.cancel);
        if (!tn_succeeded(end)) {
            program_expect_unchanged(m->program);
            eqf_throw(m->ctx, tn_ran_out(end, limits.wall_s) ? EQF_E_LIMIT : EQF_E_MISMATCH,
                      m->program->path, NULL, "computing constants failed: %s",
                      tn_describe(m->a, end));
        }
        if (j->shared->status != EQF_OK)
            eqf_throw(m->ctx, j->shared->status, m->program->path, NULL,
                      "computing constants failed: %s", j->shared->message);
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

/* ---- what the package says about itself
 * ---------------------------------------------------------- */

static void describe(making *m)
{
    const eqf_program *p = m->program;
    rt_package *k = &m->package;
    const char *slash = strrchr(p->path, '/');
    k->name = p->summary.name;
    k->version = EQF_VERSION;
    k->backend = "c";
    k->arch = rt_arch();
    k->compiler = m->compiler.version;
    for (i64 i = 0; i < m->compiler.features.n; i++)
        vec_push(m->a, &k->features, m->compiler.features.at[i]);
    k->source = slash ? slash + 1 : p->path;
    memcpy(k->source_digest, p->digest, sizeof k->source_digest);
    memcpy(k->parameters_digest, p->data_digest, sizeof k->parameters_digest);
    str rebuild = str_new(m->a);
    str_printf(&rebuild, "equiforge optimize %s -o PACKAGE", k->source);
    for (i64 i = 0; i < p->report.n_sizes; i++)
        if (!p->report.sizes[i].depends_on_data)
            str_printf(&rebuild, " --dim %s=%lld", p->report.sizes[i].name,
                       (long long)p->report.sizes[i].value);
    if (m->options.parameters_are_inputs)
        str_add(&rebuild, " --parameters input");
    k->rebuild = str_text(&rebuild);
    k->seed = (i64)(p->seed & INT64_MAX);
    k->has_inputs = p->inputs_given;
    for (i64 i = 0; i < m->ir->inputs.n; i++)
        if (m->ir->inputs.at[i].role == IR_INPUT)
            vec_push(m->a, &k->ranges, p->ranges[i]);
    for (i64 i = 0; i < m->ir->outputs.n; i++)
        vec_push(m->a, &k->tolerances, compare_tolerance((dtype)m->ir->outputs.at[i].dtype));
}

/* The reference, rounded once: half types to f32, so that it stays exact beside them. */
static tensor stored_reference(arena *a, const ir_port *port, const tensor *exact)
{
    tensor t = *exact;
    t.type = port->dtype == DT_f16 || port->dtype == DT_bf16 ? DT_f32 : (dtype)port->dtype;
    i64 n = tensor_count(arena_ctx(a), t.rank, t.shape);
    t.data = rt_big_alloc(a, n * dtype_bytes(t.type));
    for (i64 i = 0; i < n; i++)
        if (dtype_is_float(t.type))
            tensor_set_f64(&t, i, tensor_get_f64(exact, i));
        else
            tensor_set_i64(&t, i, tensor_get_i64(exact, i));
    return t;
}

static void write_reference(making *m)
{
    arena *scratch = arena_child(m->a);
    VEC(tensor) set = {0};
    for (i64 i = 0; i < m->ir->inputs.n && m->program->inputs_given; i++)
        if (m->ir->inputs.at[i].role == IR_INPUT) {
            tensor t = m->data[i];
            t.name = arena_printf(scratch, CHECK_INPUTS "%s", t.name);
            vec_push(scratch, &set, t);
        }
    for (i64 i = 0; i < m->ir->outputs.n; i++) {
        const ir_port *port = &m->ir->outputs.at[i];
        tensor t = stored_reference(scratch, port, &m->reference.outputs[i]);
        t.name = arena_printf(scratch, CHECK_OUTPUTS "%s", intern_text(m->ir->names, port->name));
        vec_push(scratch, &set, t);
    }
    file_part *parts;
    i64 n = safetensors_parts(scratch, RT_CHECK_FILE, set.at, set.n, &parts);
    pk_add_parts(m->writer, RT_CHECK_FILE, parts, n);
    arena_free(scratch);
}

static void write_texts(making *m)
{
    const eqf_program *p = m->program;
    pk_add(m->writer, "program.eqf", p->text, (i64)strlen(p->text));
    str proof = str_new(m->a);
    if (m->ir == p->ir) {
        str_printf(&proof,
                   "; The kernels compute program.eqf as it was read: the derivation has no step.\n"
                   "(derivation (format 1)\n  (from \"%s\")\n  (to \"%s\")\n  (steps))\n",
                   p->digest, p->digest);
    } else {
        str form = str_new(m->a);
        ir_print(&form, m->ir);
        char digest[33];
        digest_hex(str_text(&form), form.n, digest);
        str_printf(&proof,
                   "; The kernels compute the form below, which the search found in the e-graph of\n"
                   "; program.eqf. It was verified by value; its steps are not recorded here.\n"
                   "(derivation (format 1)\n  (from \"%s\")\n  (to \"%s\")\n"
                   "  (verified by-value))\n",
                   p->digest, digest);
        str_add(&proof, str_text(&form));
    }
    pk_add(m->writer, "proof.eqf", str_text(&proof), proof.n);
    str header = str_new(m->a);
    pk_print_header(&header, &m->package);
    pk_add(m->writer, "equiforge_model.h", str_text(&header), header.n);
}

static void write_report(making *m)
{
    const eqf_optimize_report *r = &m->report;
    str text = str_new(m->a), *s = &text;
    str_printf(s,
               "{\"format\":\"equiforge-report\",\"version\":1,\n"
               "\"candidates\":%lld,\"families\":%lld,\"measured\":%lld,\"kernels\":%lld,"
               "\"failed\":%lld,\n"
               "\"time_us\":{\"unfused\":%.6g,\"best\":%.6g},\"roofline\":%.6g,\n"
               "\"peaks\":{\"gflops\":%.6g,\"gbps\":%.6g},\"threads\":%d,\n\"outputs\":[",
               (long long)r->candidates, (long long)r->families, (long long)r->measured,
               (long long)r->kernels, (long long)r->failed, r->unfused_us, r->best_us, r->roofline,
               m->verified.peaks.gflops, m->verified.peaks.gbps, m->threads);
    for (i64 i = 0; i < m->ir->outputs.n; i++) {
        str_add(s, i ? ",\n {\"name\":" : "\n {\"name\":");
        str_add_json(s, intern_text(m->ir->names, m->ir->outputs.at[i].name));
        str_printf(s, ",\"rel_l2\":%.6g,\"tolerance\":%.6g}", m->verified.rel_l2[i],
                   m->verified.tolerances[i]);
    }
    str_add(s, "]}\n");
    pk_add(m->writer, "report.json", str_text(s), s->n);
}

/* ---- verification and the end
 * --------------------------------------------------------------------- */

static void verify(making *m)
{
    begin(m, "verifying");
    pk_seal(m->writer, &m->package);
    program_expect_unchanged(m->program);
    m->verified = verify_package(m->a, m->ir, &m->package, pk_directory(m->writer), m->data,
                                 &m->reference, m->threads, TIMING_S, seconds_left(m),
                                 m->options.cancel);
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
    r->subgraphs = r->distinct_subgraphs = works;
    r->best_us = m->verified.median_us;
    r->roofline =
        r->best_us > 0 ? MIN(bench_bound_us(work, m->verified.peaks) / r->best_us, 1.0) : 0;
}

static void free_pool(void *p)
{
    pool_free(p);
}

/* The report outlives everything else that was made: it is copied out. */
static void keep_report(const making *m, const char *path)
{
    eqf_program *p = m->program;
    if (p->result)
        arena_free(p->result);
    p->result = arena_child(p->a);
    p->optimized = m->report;
    p->optimized.package = arena_strdup(p->result, path);
    p->optimized.failure = arena_strdup(p->result, m->report.failure);
    p->optimized.rel_l2 =
        arena_copy(p->result, m->report.rel_l2, (i64)(m->report.output_count * sizeof(f64)));
}

/* A verified and timed package of m->ir in the writer's directory. */
static void build(making *m, const char *path)
{
    m->writer = pk_begin(m->a, path);
    build_kernels(m);
    lift_parameters(m);
    compile_kernels(m);
    write_weights(m);
    drop_sources(m);
    describe(m);
    f64 verifying = rt_now();
    if (!m->reference.a) {
        begin(m, "computing the reference");
        m->reference = reference_make(m->a, m->ir, m->data, m->pool, m->options.cancel);
    }
    write_texts(m);
    verify(m);
    m->report.verify_s += rt_now() - verifying;
}

/* Makes it the package at its path. */
static void publish(making *m, const char *path)
{
    write_reference(m);
    summarize(m);
    write_report(m);
    pk_seal(m->writer, &m->package);
    keep_report(m, path);
    program_expect_unchanged(m->program);
    pk_commit(m->writer);
}

/* Is it worth replacing the best? Faster beyond noise, and as accurate as asked for, measured against
 * the program as it was read. */
static bool is_better(const making *first, const making *x)
{
    if (!(x->verified.least_us < FASTER * first->best_least_us))
        return false;
    f64 factor = first->options.accuracy == EQF_STRICT ? 1.1 : 2;
    for (i64 i = 0; i < x->ir->outputs.n && first->options.accuracy != EQF_FAST; i++) {
        f64 floor = (dtype)x->ir->outputs.at[i].dtype == DT_f32
                        ? 1e-6
                        : compare_tolerance((dtype)x->ir->outputs.at[i].dtype) / 2;
        if (first->options.accuracy == EQF_STRICT)
            floor /= 10;
        if (x->verified.rel_l2[i] > MAX(factor * first->verified.rel_l2[i], floor))
            return false;
    }
    return true;
}

/* One candidate: it becomes the package if it is better. What is wrong with it is its own; one that
 * is not done when the budget ends is neither. */
static void try_candidate(making *first, const ir_program *form, const char *path)
{
    eqf_ctx *ctx = first->ctx;
    making *m = NEW(first->a, making);
    *m = *first;
    m->a = arena_child(first->a);
    m->ir = form;
    m->writer = NULL;
    m->kernels = (kn_kernels){0};
    m->package = (rt_package){0};
    volatile bool taken = false;
    trap t;
    TRY (ctx, t) {
        build(m, path);
        if (is_better(first, m)) {
            publish(m, path);
            taken = true;
        }
    }
    first->reference = m->reference;
    first->report.verify_s = m->report.verify_s;
    if (taken) {
        first->report.best_us = m->report.best_us;
        first->report.roofline = m->report.roofline;
        first->report.kernels = m->report.kernels;
        first->best_least_us = m->verified.least_us;
    }
    arena_free(m->a);
    if (t.status == EQF_E_INTERRUPTED || t.status == EQF_E_NO_MEMORY || t.status == EQF_E_IO)
        eqf_rethrow(ctx, t.status);
    if (t.status == EQF_E_LIMIT && rt_now() >= first->deadline) {
        eqf_ctx_clear(ctx);
    } else if (t.status != EQF_OK) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        if (first->report.failed++ == 0)
            first->report.failure = arena_printf(first->a, "%s%s%s", d.place,
                                                 d.place[0] ? ": " : "", d.message);
        eqf_ctx_clear(ctx);
    }
}

static ex_report find_candidates(making *m, f64 seconds)
{
    ex_report found = {0};
    search_times times = {0};
    begin(m, "searching");
    trap t;
    TRY (m->ctx, t)
        found = driver_candidates(m->a, m->program, &m->options, seconds, MOST_CANDIDATES,
                                  m->verified.peaks, &times);
    m->report.saturate_s = times.saturate_s;
    m->report.extract_s = times.extract_s;
    if (t.status == EQF_OK)
        return found;
    if (t.status != EQF_E_LIMIT && t.status != EQF_E_UNSUPPORTED)
        eqf_rethrow(m->ctx, t.status);
    eqf_ctx_clear(m->ctx); /* too large for one search: it stays as it is */
    return (ex_report){0};
}

/* Builds and times what the search finds, cheapest first, while time is left. */
static void improve(making *m, const char *path, f64 started)
{
    eqf_optimize_report *r = &m->report;
    f64 budget = m->options.budget_s > 0 ? m->options.budget_s : DEFAULT_BUDGET_S;
    r->stop = "budget";
    if (m->package.kernel_count == 0 || rt_now() - started >= budget)
        return;
    m->deadline = started + budget;
    ex_report found = find_candidates(m, 0.2 * budget);
    r->candidates += found.n;
    r->families += found.sets;
    f64 tuning = rt_now();
    for (i64 i = 0; i < found.n; i++) {
        if (rt_now() - started >= budget)
            return;
        begin(m, arena_printf(m->a, "trying %lld of %lld, best %.3g us, as read %.3g us",
                              (long long)i + 1, (long long)found.n, r->best_us, r->unfused_us));
        r->measured++;
        try_candidate(m, found.at[i].program, path);
        r->tune_s = rt_now() - tuning;
    }
    r->stop = "exhausted";
}

static void optimize(making *m, const char *path)
{
    f64 started = rt_now();
    program_check_sizes(m->program);
    check_boundaries(m);
    m->compiler = tn_probe(m->a, m->options.compiler, m->options.cancel);
    begin(m, "loading data");
    m->data = program_data(m->program);
    m->pool = m->threads > 1 ? pool_new(m->ctx, m->threads) : NULL;
    if (m->pool)
        arena_defer(m->a, free_pool, m->pool);
    build(m, path);
    eqf_optimize_report *r = &m->report;
    r->candidates = r->families = r->measured = 1;
    r->failure = "";
    r->unfused_us = m->verified.median_us;
    m->best_least_us = m->verified.least_us;
    r->read_s = m->program->read_s;
    r->stop = "budget";
    publish(m, path);
    trap t;
    TRY (m->ctx, t)
        improve(m, path, started);
    const double *rel_l2 = m->program->optimized.rel_l2; /* of the package that is there */
    r->total_s = r->read_s + rt_now() - started;
    if (t.status == EQF_E_INTERRUPTED)
        r->stop = "interrupted";
    m->program->optimized = *r;
    m->program->optimized.rel_l2 = rel_l2;
    m->program->optimized.package = arena_strdup(m->program->result, path);
    m->program->optimized.failure = arena_strdup(m->program->result, r->failure);
    if (t.status == EQF_E_INTERRUPTED) {
        eqf_ctx_clear(m->ctx);
        eqf_throw(m->ctx, t.status, path, NULL,
                  "interrupted: the package is the best so far (%.4g us, as read %.4g us)",
                  r->best_us, r->unfused_us);
    }
    if (t.status != EQF_OK)
        eqf_rethrow(m->ctx, t.status);
}

eqf_status eqf_optimize(eqf_program *program, const eqf_optimize_options *options, const char *path,
                        const eqf_optimize_report **out)
{
    eqf_ctx *ctx = program->ctx;
    if (out)
        *out = NULL;
    if (program->result)
        arena_free(program->result);
    program->result = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, program->path, NULL);
        making *m = NEW(a, making);
        m->program = program;
        m->ir = program->ir;
        m->a = a;
        m->ctx = ctx;
        if (options)
            m->options = *options;
        m->threads = m->options.threads > 0 ? m->options.threads : rt_processors();
        m->jobs = m->options.jobs > 0 ? m->options.jobs : rt_processors();
        optimize(m, path);
    }
    arena_free(a);
    if (t.status == EQF_OK && out)
        *out = &program->optimized;
    return t.status;
}
