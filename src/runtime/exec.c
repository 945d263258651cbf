/* Running a plan.
 *
 * An rt_exec owns scratch, state and threads. Arguments of launches are pointers computed at the
 * start of each run, since inputs and outputs move. A launch of less work than it takes to wake
 * the pool stays on the caller's thread; a larger one is cut into a few pieces of consecutive
 * parts for each thread. When an index read from data is out of range, kernels report the part;
 * the lowest part reported names the error, whichever thread found it first. */
#include <stdatomic.h>
#include <stdio.h>

#include "runtime/runtime.h"

/* A launch shorter than about 20 us is not shared: at 16 GFLOP/s and 10 GB/s, what one core does
 * at least in generated code. */
#define SHARED_FROM_FLOPS 320000
#define SHARED_FROM_BYTES 200000
#define PIECES_PER_THREAD 4
#define COPY_PIECE ((i64)1 << 18)

struct rt_exec {
    arena *a;
    eqf_ctx *ctx;
    const rt_model *model;
    pool *threads;
    u8 *scratch;
    u8 **states; /* a state each */
    u8 **staged; /* an output each: private memory for outputs not wanted, or over their input */
    const void **parameters; /* a parameter each; NULL: the stored value */
    u8 **base;               /* a buffer each */
    void **args;             /* of all launches, one after another */
};

/* ---- one launch ------------------------------------------------------------------------------ */

typedef struct job {
    rt_kernel kernel;
    void *const *args;
    i64 parts, pieces;
    _Atomic i64 bad; /* lowest bad part + 1; 0: none */
} job;

static i64 piece_start(const job *j, i64 piece)
{
    i64 each = j->parts / j->pieces, rest = j->parts % j->pieces;
    return piece * each + MIN(piece, rest);
}

static void run_piece(void *user, i64 piece)
{
    job *j = user;
    i64 p0 = piece_start(j, piece);
    int result = j->kernel(j->args, p0, piece_start(j, piece + 1));
    if (result == 0)
        return;
    i64 now = atomic_load(&j->bad);
    while ((now == 0 || result < now) && !atomic_compare_exchange_weak(&j->bad, &now, result))
        continue;
}

typedef struct copying {
    u8 *to;
    const u8 *from;
    i64 bytes;
} copying;

static void copy_piece(void *user, i64 piece)
{
    copying *c = user;
    i64 at = piece * COPY_PIECE;
    memcpy(c->to + at, c->from + at, (size_t)MIN(COPY_PIECE, c->bytes - at));
}

static void copy(pool *threads, void *to, const void *from, i64 bytes)
{
    copying c = {to, from, bytes};
    pool_run(threads, (bytes + COPY_PIECE - 1) / COPY_PIECE, copy_piece, &c);
}

/* The part that saw a bad index, from 1; 0: none did. */
static i64 launch(const rt_launch *l, rt_kernel kernel, void *const *args, pool *threads)
{
    if (!kernel) {
        copy(threads, args[1], args[0], l->copy_bytes);
        return 0;
    }
    bool shared = l->flops >= SHARED_FROM_FLOPS || l->bytes >= SHARED_FROM_BYTES;
    i64 pieces = shared ? MIN(l->parts, (i64)pool_threads(threads) * PIECES_PER_THREAD) : 1;
    job j = {.kernel = kernel, .args = args, .parts = l->parts, .pieces = MAX(pieces, 1)};
    if (l->parts == 0)
        return 0;
    pool_run(threads, j.pieces, run_piece, &j);
    return atomic_load(&j.bad);
}

/* `from`: what the launch reads that may be to blame, each with "; " before it. */
static _Noreturn void throw_bad(eqf_ctx *ctx, const rt_launch *l, i64 bad, const char *from)
{
    char part[64] = "";
    if (l->parts > 1)
        snprintf(part, sizeof part, " (part %lld of %lld)", (long long)bad, (long long)l->parts);
    eqf_throw(ctx, EQF_E_DATA, NULL, l->origin,
              "an index is out of range, or an integer is divided by zero%s%s", part, from);
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void free_pool(void *p)
{
    pool_free(p);
}

static const rt_plan *plan_of(const rt_exec *e)
{
    return &rt_model_package(e->model)->plan;
}

void rt_exec_reset(rt_exec *e)
{
    const rt_plan *plan = plan_of(e);
    for (i64 i = 0; i < plan->states.n; i++) {
        i32 buffer = plan->states.at[i].buffer;
        if (buffer < 0)
            continue;
        const rt_buffer *b = &plan->buffers.at[buffer];
        memcpy(e->states[i], rt_model_weights(e->model) + b->offset, (size_t)b->bytes);
    }
}

rt_exec *rt_exec_new(eqf_ctx *ctx, const rt_model *m, int threads)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    rt_exec *volatile made = NULL;
    trap t;
    TRY (ctx, t) {
        const rt_plan *plan = &rt_model_package(m)->plan;
        rt_exec *e = NEW(a, rt_exec);
        e->a = a;
        e->ctx = ctx;
        e->model = m;
        e->scratch = rt_big_alloc(a, plan->arena_bytes);
        e->states = NEW_N(a, u8 *, plan->states.n);
        e->staged = NEW_N(a, u8 *, plan->outputs.n);
        e->parameters = NEW_N(a, const void *, plan->parameters.n);
        e->base = NEW_N(a, u8 *, plan->buffers.n);
        i64 args = 0;
        for (i64 i = 0; i < plan->launches.n; i++)
            args += plan->launches.at[i].arg_count;
        e->args = NEW_N(a, void *, args);
        for (i64 i = 0; i < plan->states.n; i++)
            if (plan->states.at[i].buffer >= 0)
                e->states[i] = rt_big_alloc(a, plan->buffers.at[plan->states.at[i].buffer].bytes);
        rt_exec_reset(e);
        int wanted = threads > 0 ? threads : rt_processors();
        if (wanted > 1) {
            e->threads = pool_new(ctx, wanted);
            if (!e->threads) /* it said why: no memory, or no more threads */
                eqf_rethrow(ctx, eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).status);
            arena_defer(a, free_pool, e->threads);
        }
        made = e;
    }
    if (t.status != EQF_OK) {
        arena_free(a);
        eqf_rethrow(ctx, t.status);
    }
    return made;
}

void rt_exec_free(rt_exec *e)
{
    if (e)
        arena_free(e->a);
}

pool *rt_exec_pool(rt_exec *e)
{
    return e->threads;
}

const rt_model *rt_exec_model(const rt_exec *e)
{
    return e->model;
}

void rt_exec_set_parameter(rt_exec *e, i64 i, const void *data)
{
    e->parameters[i] = data;
}

void *rt_exec_state(const rt_exec *e, i64 i)
{
    return e->states[i];
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool overlap(const void *a, i64 a_bytes, const void *b, i64 b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

static void check_pointer(const rt_exec *e, const rt_port *p, const char *kind, const void *data)
{
    if (!data)
        eqf_throw(e->ctx, EQF_E_ARGUMENT, NULL, p->name, "%s is NULL", kind);
    if ((uintptr_t)data % (uintptr_t)dtype_bytes(p->type) != 0)
        eqf_throw(e->ctx, EQF_E_ARGUMENT, NULL, p->name, "%s is not aligned to its %s", kind,
                  dtype_name(p->type));
}

static u8 *stage(rt_exec *e, i64 output, i64 bytes)
{
    if (!e->staged[output])
        e->staged[output] = rt_big_alloc(e->a, bytes);
    return e->staged[output];
}

/* Where each output is computed: in the caller's memory unless it is not wanted, or lies over the
 * input that it replaces. Everything else that overlaps is refused. */
static void bind_outputs(rt_exec *e, const void *const *inputs, void *const *outputs)
{
    const rt_plan *plan = plan_of(e);
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *o = &plan->outputs.at[i];
        if (o->buffer < 0)
            continue;
        i64 bytes = plan->buffers.at[o->buffer].bytes;
        if (!outputs || !outputs[i]) {
            e->base[o->buffer] = stage(e, i, bytes);
            continue;
        }
        check_pointer(e, o, "output", outputs[i]);
        e->base[o->buffer] = outputs[i];
        for (i64 k = 0; k < i; k++) {
            i32 other = plan->outputs.at[k].buffer;
            if (other >= 0 && outputs[k] &&
                overlap(outputs[i], bytes, outputs[k], plan->buffers.at[other].bytes))
                eqf_throw(e->ctx, EQF_E_ARGUMENT, NULL, o->name, "overlaps output %s",
                          plan->outputs.at[k].name);
        }
        for (i64 k = 0; k < plan->inputs.n; k++) {
            i32 other = plan->inputs.at[k].buffer;
            if (other < 0 || !overlap(outputs[i], bytes, inputs[k], plan->buffers.at[other].bytes))
                continue;
            if (o->writes != k + 1 || outputs[i] != inputs[k])
                eqf_throw(e->ctx, EQF_E_ARGUMENT, NULL, o->name, "overlaps input %s",
                          plan->inputs.at[k].name);
            e->base[o->buffer] = stage(e, i, bytes);
        }
    }
}

static void bind(rt_exec *e, const void *const *inputs, void *const *outputs)
{
    const rt_plan *plan = plan_of(e);
    const u8 *weights = rt_model_weights(e->model);
    for (i64 i = 0; i < plan->buffers.n; i++) {
        const rt_buffer *b = &plan->buffers.at[i];
        /* Kernels take void *: they only read what the plan says they read. */
        if (b->role == RT_WEIGHT)
            e->base[i] = (u8 *)(uintptr_t)weights + b->offset;
        else if (b->role == RT_SCRATCH)
            e->base[i] = e->scratch + b->offset;
    }
    for (i64 i = 0; i < plan->inputs.n; i++) {
        const rt_port *p = &plan->inputs.at[i];
        if (p->buffer < 0)
            continue;
        check_pointer(e, p, "input", inputs ? inputs[i] : NULL);
        e->base[p->buffer] = (u8 *)(uintptr_t)inputs[i];
    }
    for (i64 i = 0; i < plan->parameters.n; i++)
        if (plan->parameters.at[i].buffer >= 0 && e->parameters[i])
            e->base[plan->parameters.at[i].buffer] = (u8 *)(uintptr_t)e->parameters[i];
    for (i64 i = 0; i < plan->states.n; i++)
        if (plan->states.at[i].buffer >= 0)
            e->base[plan->states.at[i].buffer] = e->states[i];
    bind_outputs(e, inputs, outputs);
}

/* New values go where they are kept, only now that nothing can fail. */
static void finish(rt_exec *e, void *const *outputs)
{
    const rt_plan *plan = plan_of(e);
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *o = &plan->outputs.at[i];
        if (o->buffer < 0)
            continue;
        u8 *value = e->base[o->buffer];
        i64 bytes = plan->buffers.at[o->buffer].count * dtype_bytes(o->type);
        if (o->writes > plan->inputs.n)
            copy(e->threads, e->states[o->writes - 1 - plan->inputs.n], value, bytes);
        if (outputs && outputs[i] && outputs[i] != value)
            copy(e->threads, outputs[i], value, bytes);
    }
}

/* The integer inputs among a launch's arguments, with their least and largest value. */
static void blame(const rt_exec *e, const rt_launch *l, char *to, i64 size)
{
    const rt_plan *plan = plan_of(e);
    i64 n = 0;
    to[0] = 0;
    for (i64 k = 0; k < l->arg_count; k++) {
        const rt_buffer *b = &plan->buffers.at[l->args[k].buffer];
        if (b->role != RT_INPUT || b->count == 0 || dtype_is_float(b->type) || b->type == DT_bool)
            continue;
        tensor t = {.type = b->type, .rank = 1, .shape = &b->count,
                    .data = e->base[l->args[k].buffer]};
        i64 low = tensor_get_i64(&t, 0), high = low;
        for (i64 i = 1; i < b->count; i++) {
            i64 x = tensor_get_i64(&t, i);
            low = MIN(low, x);
            high = MAX(high, x);
        }
        n += snprintf(to + n, (size_t)(size - n), "; input %.100s holds %lld to %lld",
                      plan->inputs.at[b->port].name, (long long)low, (long long)high);
        if (n >= size)
            return;
    }
}

void rt_exec_run(rt_exec *e, const void *const *inputs, void *const *outputs)
{
    const rt_plan *plan = plan_of(e);
    bind(e, inputs, outputs);
    void **args = e->args;
    for (i64 i = 0; i < plan->launches.n; i++) {
        const rt_launch *l = &plan->launches.at[i];
        for (i64 k = 0; k < l->arg_count; k++)
            args[k] = e->base[l->args[k].buffer] + l->args[k].offset;
        i64 bad = launch(l, rt_model_kernel(e->model, i), args, e->threads);
        if (bad) {
            char from[400];
            blame(e, l, from, sizeof from);
            throw_bad(e->ctx, l, bad, from);
        }
        args += l->arg_count;
    }
    finish(e, outputs);
}

void rt_prepare(eqf_ctx *ctx, const rt_plan *plan, const rt_kernel *kernels,
                const void *const *sources, u8 *image, pool *threads)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        u8 *scratch = rt_big_alloc(a, plan->arena_bytes);
        for (i64 i = 0; i < plan->prepare.n; i++) {
            const rt_launch *l = &plan->prepare.at[i];
            void **args = NEW_N(a, void *, l->arg_count);
            for (i64 k = 0; k < l->arg_count; k++) {
                const rt_buffer *b = &plan->buffers.at[l->args[k].buffer];
                u8 *base = b->role == RT_SOURCE    ? (u8 *)(uintptr_t)sources[b->port]
                           : b->role == RT_SCRATCH ? scratch + b->offset
                                                   : image + b->offset;
                args[k] = base + l->args[k].offset;
            }
            i64 bad = launch(l, kernels[i], args, threads);
            if (bad)
                throw_bad(ctx, l, bad, "");
        }
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
