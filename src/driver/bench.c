/* Timing a loaded package, and what the machine would allow. Runs are timed one by one; median and
 * quartiles say how steady they were. The peaks are measured on the same threads just before; the
 * read bandwidth on an array as large as what the program moves (192 MB at most), so that a program
 * that lives in the cache is held to the cache. */
#include <sched.h>
#include <stdlib.h>

#include "driver/driver.h"

#define MAX_SAMPLES 100000
#define YARDSTICK_S 0.4
#define BLOCK_S 0.005
#define ENOUGH 12  /* samples of two that are close */
#define CLOSE 1.15 /* the least of one by that of the other */
#define LONGEST 15 /* times the seconds that were asked for */

static int by_value(const void *a, const void *b)
{
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

typedef VEC(f64) times;

static timing summary(times samples)
{
    qsort(samples.at, (size_t)samples.n, sizeof(f64), by_value);
    return (timing){.median_us = samples.at[samples.n / 2],
                    .low_us = samples.at[samples.n / 4],
                    .high_us = samples.at[samples.n * 3 / 4],
                    .min_us = samples.at[0],
                    .runs = samples.n};
}

static f64 run_once(rt_exec *e, const void *const *inputs, void *const *outputs)
{
    f64 start = rt_now();
    rt_exec_run(e, inputs, outputs);
    return 1e6 * (rt_now() - start);
}

timing bench_run(arena *a, rt_exec *e, const void *const *inputs, void *const *outputs, f64 seconds,
                 const volatile bool *cancel)
{
    times samples = {0};
    rt_exec_run(e, inputs, outputs); /* pages, caches, sleeping workers */
    f64 end = rt_now() + seconds;
    do {
        vec_push(a, &samples, run_once(e, inputs, outputs));
        if (cancel && *cancel)
            eqf_throw(arena_ctx(a), EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
    } while ((rt_now() < end || samples.n < 3) && samples.n < MAX_SAMPLES);
    return summary(samples);
}

static f64 least_of(const times *samples)
{
    f64 least = samples->at[0];
    for (i64 i = 1; i < samples->n; i++)
        least = MIN(least, samples->at[i]);
    return least;
}

void bench_pair(arena *a, rt_exec *const e[2], const void *const *inputs, void *const *outputs,
                f64 seconds, timing out[2])
{
    times samples[2] = {{0}};
    f64 start = rt_now(), end = start + seconds;
    bool more = true;
    while (more) {
        for (int k = 0; k < 2; k++) {
            f64 block = rt_now() + BLOCK_S;
            /* the other's workers are still awake during the first */
            f64 first = run_once(e[k], inputs, outputs);
            if (rt_now() >= block)
                vec_push(a, &samples[k], first);
            while (rt_now() < block)
                vec_push(a, &samples[k], run_once(e[k], inputs, outputs));
        }
        more = rt_now() < end || samples[1].n < 3;
        /* a few samples of long runs tell apart what is far apart */
        if (!more && samples[1].n < ENOUGH && rt_now() < start + LONGEST * seconds)
            more = least_of(&samples[1]) < CLOSE * least_of(&samples[0]);
        more = more && samples[1].n < MAX_SAMPLES;
    }
    for (int k = 0; k < 2; k++)
        out[k] = summary(samples[k]);
}

plan_work bench_work(const rt_plan *plan)
{
    plan_work w = {0};
    i64 touched = 0;
    for (i64 i = 0; i < plan->launches.n; i++) {
        w.flops += plan->launches.at[i].flops;
        touched += plan->launches.at[i].bytes;
    }
    for (i64 i = 0; i < plan->buffers.n; i++) {
        const rt_buffer *b = &plan->buffers.at[i];
        if (b->role == RT_INPUT || b->role == RT_OUTPUT || b->role == RT_WEIGHT ||
            b->role == RT_STATE)
            w.bytes += b->bytes;
    }
    if (plan->launches.n > 0) /* loops may leave out most of an input */
        w.bytes = MIN(w.bytes, touched);
    return w;
}

f64 bench_bound_us(plan_work work, rt_peaks peaks)
{
    f64 compute = peaks.gflops > 0 ? 1e-3 * (f64)work.flops / peaks.gflops : 0;
    f64 memory = peaks.gbps > 0 ? 1e-3 * (f64)work.bytes / peaks.gbps : 0;
    return MAX(compute, memory);
}

/* Keeps this thread, and those it starts, on the first `threads` of its processors; restores. */
typedef struct pinning {
    cpu_set_t before;
    bool pinned;
} pinning;

static pinning pin(int threads)
{
    pinning p = {.pinned = false};
    if (sched_getaffinity(0, sizeof p.before, &p.before) != 0 || threads >= CPU_COUNT(&p.before))
        return p;
    cpu_set_t some;
    CPU_ZERO(&some);
    int n = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && n < threads; cpu++)
        if (CPU_ISSET(cpu, &p.before)) {
            CPU_SET(cpu, &some);
            n++;
        }
    p.pinned = sched_setaffinity(0, sizeof some, &some) == 0;
    return p;
}

static void unpin(const pinning *p)
{
    if (p->pinned)
        sched_setaffinity(0, sizeof p->before, &p->before);
}

static void free_exec(void *e)
{
    rt_exec_free(e);
}

static void bench(arena *a, const eqf_model *model, const eqf_bench_options *options, int threads,
                  eqf_bench_result *out)
{
    eqf_ctx *ctx = arena_ctx(a);
    const rt_model *m = model->rt;
    const rt_plan *plan = &rt_model_package(m)->plan;
    const eqf_tensor *set = model_inputs(a, m);
    const void **inputs = NEW_N(a, const void *, plan->inputs.n);
    void **outputs = NEW_N(a, void *, plan->outputs.n);
    for (i64 i = 0; i < plan->inputs.n; i++) {
        void *copy = rt_big_alloc(a, (i64)set[i].bytes);
        if (set[i].bytes > 0)
            memcpy(copy, set[i].data, set[i].bytes);
        inputs[i] = copy;
    }
    for (i64 i = 0; i < plan->outputs.n; i++)
        if (plan->outputs.at[i].buffer >= 0)
            outputs[i] = rt_big_alloc(a, plan->buffers.at[plan->outputs.at[i].buffer].bytes);
    rt_exec *e = rt_exec_new(ctx, m, threads);
    arena_defer(a, free_exec, e);
    plan_work work = bench_work(plan);
    rt_peaks peaks = rt_yardstick(ctx, rt_exec_pool(e), YARDSTICK_S, work.bytes);
    timing t = bench_run(a, e, inputs, outputs, options->budget_s > 0 ? options->budget_s : 2,
                         options->cancel);
    f64 bound = bench_bound_us(work, peaks);
    *out = (eqf_bench_result){
        .median_us = t.median_us,
        .low_us = t.low_us,
        .high_us = t.high_us,
        .min_us = t.min_us,
        .runs = t.runs,
        .kernels = rt_model_package(m)->kernel_count,
        .flops = work.flops,
        .bytes = work.bytes,
        .threads = threads,
        .peak_gflops = peaks.gflops,
        .peak_gbps = peaks.gbps,
        .bound_us = bound,
        .roofline = t.median_us > 0 ? bound / t.median_us : 0,
    };
}

eqf_status eqf_bench(eqf_ctx *ctx, const eqf_model *model, const eqf_bench_options *options,
                     eqf_bench_result *out)
{
    eqf_bench_options chosen = {0};
    if (options)
        memcpy(&chosen, options, sizeof chosen);
    memset(out, 0, sizeof *out);
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    int threads = chosen.threads > 0 ? chosen.threads : rt_processors();
    pinning p = pin(threads);
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, rt_model_directory(model->rt), NULL);
        bench(a, model, &chosen, threads, out);
    }
    arena_free(a);
    unpin(&p);
    return t.status;
}
