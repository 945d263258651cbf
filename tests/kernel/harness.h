/* Running launch plans in tests: buffers with poisoned scratch and outputs, kernels by the
 * interpreter or by compiled functions, and the comparison with ir_eval. */
#ifndef EQF_TESTS_KERNEL_HARNESS_H
#define EQF_TESTS_KERNEL_HARNESS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/kernel.h"

typedef struct bench {
    eqf_ctx *ctx;
    arena *a;
    const ir_program *p;
    rt_plan plan;
    kn_kernels kernels;
    rt_kernel *compiled; /* by kernel; NULL: interpret */
    void **memory;       /* by plan buffer */
    tensor *inputs;      /* by program port */
} bench;

static inline i64 bench_find(const bench *b, const char *symbol)
{
    for (i64 i = 0; i < b->kernels.n; i++)
        if (strcmp(b->kernels.at[i]->name, symbol) == 0)
            return i;
    eqf_bug(b->ctx, "no kernel %s", symbol);
}

static inline void *bench_alloc(arena *a, i64 bytes)
{
    void *p = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    arena_defer(a, free, p);
    memset(p, 0xA5, (size_t)((bytes + 127) / 64 * 64));
    return p;
}

/* Memory for every buffer of the plan; inputs and sources are filled. */
static inline void bench_bind(bench *b)
{
    rt_plan *plan = &b->plan;
    char *weights = bench_alloc(b->a, plan->weights_bytes);
    char *scratch = bench_alloc(b->a, plan->arena_bytes);
    b->memory = NEW_N(b->a, void *, plan->buffers.n + 1);
    i64 user = 0;
    i64 *port_of = NEW_N(b->a, i64, plan->inputs.n + 1);
    for (i64 i = 0; i < b->p->inputs.n; i++)
        if (b->p->inputs.at[i].role == IR_INPUT)
            port_of[user++] = i;
    for (i64 i = 0; i < plan->buffers.n; i++) {
        rt_buffer *x = &plan->buffers.at[i];
        switch (x->role) {
        case RT_INPUT:
        case RT_SOURCE: {
            i64 port = x->role == RT_INPUT ? port_of[x->port] : x->port;
            b->memory[i] = bench_alloc(b->a, x->bytes);
            memcpy(b->memory[i], b->inputs[port].data, (size_t)x->bytes);
            break;
        }
        case RT_OUTPUT: b->memory[i] = bench_alloc(b->a, x->bytes); break;
        case RT_WEIGHT:
        case RT_STATE: b->memory[i] = weights + x->offset; break;
        default: b->memory[i] = scratch + x->offset; break;
        }
    }
}

static inline int bench_launch(bench *b, const rt_launch *x)
{
    if (x->symbol[0] == '\0') {
        memcpy((char *)b->memory[x->args[1].buffer] + x->args[1].offset,
               (char *)b->memory[x->args[0].buffer] + x->args[0].offset, (size_t)x->copy_bytes);
        return 0;
    }
    void *args[64];
    if (x->arg_count > COUNT_OF(args))
        eqf_bug(b->ctx, "too many arguments");
    for (i64 i = 0; i < x->arg_count; i++)
        args[i] = (char *)b->memory[x->args[i].buffer] + x->args[i].offset;
    i64 k = bench_find(b, x->symbol);
    i64 middle = x->parts / 2; /* in two calls: parts are independent */
    int bad = 0;
    for (i64 i = 0; i < 2 && bad == 0; i++) {
        i64 p0 = i == 0 ? middle : 0, p1 = i == 0 ? x->parts : middle;
        bad = b->compiled ? b->compiled[k](args, p0, p1)
                          : kn_run(b->ctx, b->kernels.at[k], args, p0, p1);
    }
    return bad;
}

/* Prepares and runs once; the result code of the first launch that fails, 0 if none does. */
static inline int bench_run(bench *b)
{
    bench_bind(b);
    for (i64 i = 0; i < b->plan.prepare.n; i++) {
        int bad = bench_launch(b, &b->plan.prepare.at[i]);
        if (bad)
            return bad;
    }
    for (i64 i = 0; i < b->plan.launches.n; i++) {
        int bad = bench_launch(b, &b->plan.launches.at[i]);
        if (bad)
            return bad;
    }
    return 0;
}

/* Random inputs: floats around 1 in size with some zeros, small integers, bools. */
static inline tensor *bench_inputs(arena *a, const ir_program *p, rng *r)
{
    tensor *t = NEW_N(a, tensor, p->inputs.n + 1);
    for (i64 i = 0; i < p->inputs.n; i++) {
        const ir_port *port = &p->inputs.at[i];
        i64 *shape = NEW_N(a, i64, port->rank + 1);
        for (i64 d = 0; d < port->rank; d++)
            shape[d] = port->dims[d].extent;
        t[i] = (tensor){.type = port->dtype, .rank = port->rank, .shape = shape};
        i64 n = tensor_count(arena_ctx(a), port->rank, shape);
        t[i].data = arena_alloc(a, n * dtype_bytes(port->dtype) + 16);
        for (i64 k = 0; k < n; k++) {
            if (dtype_is_float(port->dtype))
                tensor_set_f64(&t[i], k, rng_below(r, 12) == 0 ? 0 : rng_f64(r) * 4 - 2);
            else if (port->dtype == DT_bool)
                tensor_set_i64(&t[i], k, (i64)rng_below(r, 2));
            else
                tensor_set_i64(&t[i], k, (i64)rng_below(r, 9) - 4);
        }
    }
    return t;
}

/* The same away from 0, so that nothing cancels; integers are valid for whatever they index. */
static inline tensor *bench_inputs_away_from_0(arena *a, const ir_program *p, rng *r)
{
    tensor *t = bench_inputs(a, p, r);
    for (i64 i = 0; i < p->inputs.n; i++)
        for (i64 k = 0; k < tensor_count(arena_ctx(a), t[i].rank, t[i].shape); k++)
            if (dtype_is_float(t[i].type))
                tensor_set_f64(&t[i], k, 0.25 + fabs(tensor_get_f64(&t[i], k)));
            else
                tensor_set_i64(&t[i], k, tensor_get_i64(&t[i], k) & 1);
    return t;
}

/* Largest difference of output i from `want`, as a share of 1 + |want|; INFINITY where one is NaN or
 * an integer differs. */
static inline f64 bench_error(const bench *b, i64 i, const tensor *want)
{
    const rt_port *o = &b->plan.outputs.at[i];
    if (o->buffer < 0)
        return 0;
    tensor have = {.type = o->type, .rank = o->rank, .shape = o->shape,
                   .data = b->memory[o->buffer]};
    i64 n = tensor_count(b->ctx, o->rank, o->shape);
    f64 worst = 0;
    for (i64 k = 0; k < n; k++) {
        if (!dtype_is_float(o->type)) {
            if (tensor_get_i64(&have, k) != tensor_get_i64(want, k))
                return (f64)INFINITY;
            continue;
        }
        f64 x = tensor_get_f64(&have, k), y = tensor_get_f64(want, k);
        if (isnan(x) && isnan(y))
            continue;
        if (x == y)
            continue;
        f64 e = fabs(x - y) / (1 + fabs(y));
        if (!(e <= worst))
            worst = isnan(e) ? (f64)INFINITY : e;
    }
    return worst;
}

#endif
