/* A built package against the reference interpreter.
 *
 * The package is loaded and run in a child, as a user would load it: what crashes, loops or eats
 * memory there is a candidate that failed, not the end of this process. Outputs are poisoned first
 * (all bits set: NaN in every float type), so what a kernel does not write is seen. Two runs, on
 * fresh outputs and with the scratch memory of the first, must both agree; a program that carries
 * state is compared, in the second, with the interpreter on the state of the first. A package that is
 * faster than its rival then runs once more, on larger inputs, beside what the first package made of
 * them: equal over the reals is not enough there. */
#include <math.h>

#include "driver/driver.h"
#include "tune/tune.h"

#define ROUNDS 2
#define LARGE_ROUND ROUNDS /* after the others */
#define ALIGNMENT 256
#define YARDSTICK_S 0.1
#define HOPELESS 3.0 /* first runs meet cold caches, not such as these */
#define LARGE_FACTOR 4.0 /* of the first package's error on large inputs: rounding differs in luck */

/* What the child leaves behind, in shared memory, followed by the outputs of each round, and of the run on
 * large inputs. */
typedef struct findings {
    f64 median_us, least_us, rival_median_us, rival_least_us;
    rt_peaks peaks;
    bool has_large;
} findings;

typedef struct trial {
    const rt_package *package;
    const char *directory;
    const void **inputs, **large; /* a plan input each */
    i64 *offsets;        /* of each output in a round */
    i64 round_bytes;
    int threads;
    trial_timing timing;
    findings *shared;
    u8 *outputs;
} trial;

/* What it has for output i in a round; without data where the program has no such output. */
static tensor output_of(const trial *t, i64 round, i64 i)
{
    const rt_port *o = &t->package->plan.outputs.at[i];
    tensor x = driver_port(o);
    x.data = o->buffer < 0 ? NULL : t->outputs + round * t->round_bytes + t->offsets[i];
    return x;
}

/* ---- the reference ------------------------------------------------------------------------------
 */

reference reference_make(arena *a, const ir_program *p, const tensor *inputs, pool *threads,
                         const volatile bool *cancel)
{
    reference r = {.a = a, .p = p, .inputs = inputs, .threads = threads, .cancel = cancel};
    r.outputs = NEW_N(a, tensor, p->outputs.n);
    f64 started = rt_now();
    ir_eval(p, inputs, a, r.outputs, (ir_eval_options){.threads = threads, .cancel = cancel});
    r.seconds = rt_now() - started;
    return r;
}

/* The input, each number moved by at most its last digit; of types narrower than what is computed
 * with, and of those that do not round, the input itself. */
static tensor nudged(arena *a, const tensor *x, rng *random)
{
    tensor out = *x;
    if (x->type != DT_f32 && x->type != DT_f64)
        return out;
    f64 digit = x->type == DT_f32 ? 0x1p-23 : 0x1p-52;
    i64 n = tensor_count(arena_ctx(a), x->rank, x->shape);
    out.data = arena_alloc(a, n * dtype_bytes(x->type));
    for (i64 i = 0; i < n; i++)
        tensor_set_f64(&out, i, tensor_get_f64(x, i) * (1 + (2 * rng_f64(random) - 1) * digit));
    return out;
}

enum { SWAYS = 3 };

/* How far the outputs go, relatively, when the inputs move by their last digit and sums by what their
 * order can change. A kernel rounds the sums on its way where the rounded program does only in the end: a
 * quotient by a sum near zero shows it, and so does what is left of a number less a mean that equals it. */
static f64 *find_sway(const reference *r)
{
    eqf_ctx *ctx = arena_ctx(r->a);
    i64 n = r->p->outputs.n;
    f64 *sway = NEW_N(r->a, f64, n);
    rng random = rng_new(1);
    for (i64 k = 0; k < SWAYS; k++) {
        arena *a = arena_child(r->a);
        tensor *inputs = NEW_N(a, tensor, r->p->inputs.n), *outputs = NEW_N(a, tensor, n);
        for (i64 i = 0; i < r->p->inputs.n; i++)
            inputs[i] = nudged(a, &r->inputs[i], &random);
        ir_eval_options astray = {
            .threads = r->threads, .stray = (u64)k + 1, .cancel = r->cancel};
        trap t;
        TRY (ctx, t) {
            ir_eval(r->p, inputs, a, outputs, astray);
        }
        if (t.status != EQF_OK && t.status != EQF_E_DATA)
            eqf_rethrow(ctx, t.status);
        if (t.status != EQF_OK) /* an index went out of range */
            eqf_ctx_clear(ctx);
        for (i64 i = 0; t.status == EQF_OK && i < n; i++) {
            if (!dtype_is_float(outputs[i].type))
                continue;
            f64 e = compare_tensors(a, &outputs[i], &r->outputs[i], (f64)INFINITY).rel_l2;
            sway[i] = isfinite(e) ? MAX(sway[i], e) : sway[i];
        }
        arena_free(a);
    }
    return sway;
}

comparison reference_compare(reference *r, i64 i, const tensor *got, f64 *tolerance)
{
    *tolerance = compare_tolerance((dtype)r->p->outputs.at[i].dtype);
    comparison c = compare_tensors(r->a, got, &r->outputs[i], *tolerance);
    bool is_float = dtype_is_float(got->type);
    if (c.passed || (is_float && !isfinite(c.rel_l2)))
        return c;
    if (!r->rounded) {
        tensor *rounded = NEW_N(r->a, tensor, r->p->outputs.n);
        ir_eval(r->p, r->inputs, r->a, rounded,
                (ir_eval_options){.threads = r->threads, .round = true, .cancel = r->cancel});
        r->rounded = rounded;
    }
    if (!is_float) {
        comparison again = compare_tensors(r->a, got, &r->rounded[i], 0);
        if (again.passed)
            r->outputs[i] = r->rounded[i];
        return again.passed ? again : c;
    }
    comparison rounding = compare_tensors(r->a, &r->rounded[i], &r->outputs[i], (f64)INFINITY);
    if (isfinite(rounding.rel_l2))
        *tolerance = MAX(*tolerance, 2 * rounding.rel_l2);
    if (c.rel_l2 > *tolerance && !r->sway)
        r->sway = find_sway(r);
    if (r->sway)
        *tolerance = MAX(*tolerance, 2 * r->sway[i]);
    return compare_tensors(r->a, got, &r->outputs[i], *tolerance);
}

/* The inputs, LARGE times, but for those that become indices and numbers that would be infinite. */
static const tensor *enlarged(arena *a, const ir_program *p, const tensor *inputs)
{
    const rt_range *ranges = driver_ranges(a, p);
    tensor *out = arena_copy(a, inputs, p->inputs.n * (i64)sizeof *inputs);
    for (i64 i = 0; i < p->inputs.n; i++) {
        tensor *t = &out[i];
        if (p->inputs.at[i].role != IR_INPUT || !dtype_is_float(t->type) || ranges[i].is_bounded)
            continue;
        i64 n = tensor_count(arena_ctx(a), t->rank, t->shape);
        t->data = arena_alloc(a, n * dtype_bytes(t->type));
        for (i64 k = 0; k < n; k++) {
            f64 x = tensor_get_f64(&inputs[i], k);
            tensor_set_f64(t, k, LARGE * x);
            if (isinf(tensor_get_f64(t, k)))
                tensor_set_f64(t, k, x);
        }
    }
    return out;
}

/* Relative, infinite where other places are not finite. */
static f64 distance(arena *a, const tensor *got, const tensor *want)
{
    return dtype_is_float(got->type) ? compare_tensors(a, got, want, (f64)INFINITY).rel_l2 : 0;
}

static void find_as_read_error(reference *r)
{
    eqf_ctx *ctx = arena_ctx(r->a);
    i64 n = r->p->outputs.n;
    f64 *error = NEW_N(r->a, f64, n);
    tensor *exact = NEW_N(r->a, tensor, n);
    trap t;
    TRY (ctx, t)
        ir_eval(r->p, r->large, r->a, exact,
                (ir_eval_options){.threads = r->threads, .cancel = r->cancel});
    if (t.status != EQF_OK && t.status != EQF_E_DATA)
        eqf_rethrow(ctx, t.status);
    if (t.status != EQF_OK) /* an index went out of range: nothing is known, and nothing asked */
        eqf_ctx_clear(ctx);
    for (i64 i = 0; i < n; i++)
        error[i] = t.status == EQF_OK && r->as_read[i].data ? distance(r->a, &r->as_read[i], &exact[i])
                                                            : (f64)INFINITY;
    r->exact_large = exact;
    r->as_read_error = error;
}

const char *reference_refuse_large(reference *r, const verified *v, f64 deadline)
{
    if (!v->strays)
        return NULL;
    if (!r->as_read_error && deadline > 0 && rt_now() + r->seconds > deadline)
        return "no time was left to look at it on larger inputs";
    if (!r->as_read_error)
        find_as_read_error(r);
    for (i64 i = 0; i < r->p->outputs.n; i++) {
        const tensor *got = &v->strays[i];
        if (!got->data || isinf(r->as_read_error[i]))
            continue;
        f64 most = MAX(LARGE_FACTOR * r->as_read_error[i], compare_tolerance(got->type));
        if (!(distance(r->a, got, &r->exact_large[i]) <= most))
            return "its error is larger than is allowed where inputs are larger";
    }
    return NULL;
}

/* ---- the child ----------------------------------------------------------------------------------
 */

static rt_exec *load(const trial *t, eqf_ctx *ctx, const char *directory, rt_model **m)
{
    *m = rt_load(ctx, directory);
    return rt_exec_new(ctx, *m, t->threads);
}

/* Least of two runs, in microseconds. */
static f64 run_twice(rt_exec *e, const void *const *inputs, void *const *outputs)
{
    f64 least = 0;
    for (int round = 0; round < ROUNDS; round++) {
        f64 started = rt_now();
        rt_exec_run(e, inputs, outputs);
        f64 us = 1e6 * (rt_now() - started);
        least = round == 0 ? us : MIN(us, least);
    }
    return least;
}

static void time_runs(trial *t, eqf_ctx *ctx, arena *a, rt_exec *e, void **outputs)
{
    const rt_plan *plan = &t->package->plan;
    findings *f = t->shared;
    for (i64 i = 0; i < plan->outputs.n; i++) /* keep the results */
        outputs[i] = NULL;
    if (!t->timing.rival) {
        timing timed = bench_run(a, e, t->inputs, outputs, t->timing.seconds, NULL);
        f->median_us = timed.median_us;
        f->least_us = timed.min_us;
        return;
    }
    rt_model *m;
    rt_exec *pair[2] = {load(t, ctx, t->timing.rival, &m), e};
    f->rival_least_us = f->rival_median_us = run_twice(pair[0], t->inputs, outputs);
    if (f->least_us < HOPELESS * f->rival_least_us) {
        timing timed[2];
        bench_pair(a, pair, t->inputs, outputs, 2 * t->timing.seconds, timed);
        f->rival_median_us = timed[0].median_us;
        f->rival_least_us = timed[0].min_us;
        f->median_us = timed[1].median_us;
        f->least_us = timed[1].min_us;
    }
    rt_exec_free(pair[0]);
    rt_unload(m);
}

/* Where the outputs of a round go, and all bits of it set. */
static void poison(const trial *t, i64 round, void **outputs)
{
    memset(t->outputs + round * t->round_bytes, 0xFF, (size_t)t->round_bytes);
    for (i64 i = 0; i < t->package->plan.outputs.n; i++)
        outputs[i] = output_of(t, round, i).data;
}

/* On fresh state. Inputs that are refused leave the outputs poisoned. */
static void run_large(trial *t, eqf_ctx *ctx, const rt_model *m, void **outputs)
{
    poison(t, LARGE_ROUND, outputs);
    trap r;
    rt_exec *volatile e = NULL;
    TRY (ctx, r) {
        e = rt_exec_new(ctx, m, t->threads);
        rt_exec_run(e, t->large, outputs);
    }
    rt_exec_free(e);
    if (r.status != EQF_OK && r.status != EQF_E_DATA)
        eqf_rethrow(ctx, r.status);
    if (r.status != EQF_OK)
        eqf_ctx_clear(ctx);
    t->shared->has_large = true;
}

/* The child's whole life. */
static void run_rounds(eqf_ctx *ctx, arena *a, void *user)
{
    trial *t = user;
    const rt_plan *plan = &t->package->plan;
    rt_model *m;
    rt_exec *e = load(t, ctx, t->directory, &m);
    void **outputs = NEW_N(a, void *, plan->outputs.n);
    for (int round = 0; round < ROUNDS; round++) {
        poison(t, round, outputs);
        f64 started = rt_now();
        rt_exec_run(e, t->inputs, outputs);
        f64 us = 1e6 * (rt_now() - started);
        t->shared->least_us = round == 0 ? us : MIN(us, t->shared->least_us);
    }
    t->shared->median_us = t->shared->least_us;
    if (t->timing.seconds > 0)
        time_runs(t, ctx, a, e, outputs);
    if (t->timing.known.gflops <= 0)
        t->shared->peaks =
            rt_yardstick(ctx, rt_exec_pool(e), YARDSTICK_S, bench_work(plan).bytes);
    rt_exec_free(e);
    if (!t->timing.rival || t->shared->least_us < t->shared->rival_least_us)
        run_large(t, ctx, m, outputs);
    rt_unload(m);
}

/* ---- the parent ---------------------------------------------------------------------------------
 */

static trial prepare_trial(arena *a, const ir_program *p, const rt_package *package,
                           const char *directory, const tensor *inputs, const tensor *large)
{
    const rt_plan *plan = &package->plan;
    trial t = {.package = package, .directory = directory};
    t.inputs = NEW_N(a, const void *, plan->inputs.n);
    t.large = NEW_N(a, const void *, plan->inputs.n);
    for (i64 i = 0, k = 0; i < p->inputs.n && k < plan->inputs.n; i++)
        if (p->inputs.at[i].role == IR_INPUT) {
            t.large[k] = large[i].data;
            t.inputs[k++] = inputs[i].data;
        }
    t.offsets = NEW_N(a, i64, plan->outputs.n);
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *o = &plan->outputs.at[i];
        t.offsets[i] = t.round_bytes;
        if (o->buffer >= 0)
            t.round_bytes +=
                (plan->buffers.at[o->buffer].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    i64 head = ((i64)sizeof(findings) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    u8 *memory = tn_shared(a, head + (LARGE_ROUND + 1) * t.round_bytes);
    t.shared = (findings *)(void *)memory;
    t.outputs = memory + head;
    return t;
}

static void run_trial(arena *a, trial *t, f64 limit_s, const volatile bool *cancel)
{
    eqf_ctx *ctx = arena_ctx(a);
    const rt_plan *plan = &t->package->plan;
    plan_work work = bench_work(plan);
    /* A kernel slower than this is as good as one that loops. */
    f64 cpu_s = 120 + 1e-7 * (f64)work.flops + 1e-7 * (f64)work.bytes;
    tn_limits limits = {.cpu_s = cpu_s, .wall_s = 4 * cpu_s};
    if (limit_s > 0)
        limits.wall_s = MIN(limits.wall_s, limit_s);
    limits.memory_bytes = ((i64)4 << 30) + 4 * (plan->weights_bytes + plan->arena_bytes) +
                          ((i64)16 << 20) * t->threads + 4 * t->round_bytes;
    tn_outcome o = tn_run_apart(a, run_rounds, t, limits, cancel);
    if (!tn_succeeded(o.end))
        eqf_throw(ctx, tn_ran_out(o.end, limit_s) ? EQF_E_LIMIT : EQF_E_MISMATCH, NULL, NULL,
                  "the built package failed: %s", tn_describe(a, o.end));
    if (o.status == EQF_E_DATA)
        eqf_throw(ctx, EQF_E_DATA, NULL, NULL, "on the inputs to verify with: %s", o.message);
    if (o.status != EQF_OK)
        eqf_throw(ctx, o.status == EQF_E_NO_MEMORY ? EQF_E_NO_MEMORY : EQF_E_MISMATCH, NULL, NULL,
                  "the built package does not run: %s", o.message);
}

static void compare_round(arena *a, const trial *t, reference *r, int round, verified *v)
{
    const rt_plan *plan = &t->package->plan;
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *o = &plan->outputs.at[i];
        if (o->buffer < 0)
            continue;
        tensor got = output_of(t, round, i);
        f64 tolerance;
        comparison c = reference_compare(r, i, &got, &tolerance);
        if (!c.passed)
            eqf_throw(arena_ctx(a), EQF_E_MISMATCH, r->p->file, o->name,
                      "the built package disagrees with the program (run %d): %s", round + 1,
                      c.why);
        v->rel_l2[i] = MAX(v->rel_l2[i], c.rel_l2);
        v->tolerances[i] = MAX(v->tolerances[i], tolerance);
    }
}

/* What came of the large inputs, in `a`. */
static tensor *large_outputs(arena *a, const trial *t)
{
    i64 n = t->package->plan.outputs.n;
    tensor *out = NEW_N(a, tensor, n);
    for (i64 i = 0; i < n; i++) {
        tensor *x = &out[i];
        *x = output_of(t, LARGE_ROUND, i);
        if (x->data)
            x->data = arena_copy(a, x->data, tensor_count(arena_ctx(a), x->rank, x->shape) * dtype_bytes(x->type));
    }
    return out;
}

/* The outputs on large inputs, in `a`, unless they are as close to those of the first package as is asked
 * for of all packages. */
static const tensor *find_strays(arena *a, const trial *t, const reference *first)
{
    for (i64 i = 0; i < t->package->plan.outputs.n; i++) {
        tensor got = output_of(t, LARGE_ROUND, i);
        if (got.data && first->as_read[i].data &&
            !(distance(a, &got, &first->as_read[i]) <= compare_tolerance(got.type)))
            return large_outputs(a, t);
    }
    return NULL;
}

/* Inputs of the second run: mutated buffers hold what the first run left in them, in its exact
 * form. False when the program carries no state. */
static bool carried(arena *a, const reference *first, tensor *inputs)
{
    const ir_program *p = first->p;
    memcpy(inputs, first->inputs, (size_t)p->inputs.n * sizeof *inputs);
    bool any = false;
    for (i64 i = 0; i < p->outputs.n; i++) {
        const ir_port *o = &p->outputs.at[i];
        if (o->writes == 0 || p->inputs.at[o->writes - 1].role == IR_INPUT)
            continue;
        tensor *t = &inputs[o->writes - 1];
        i64 n = tensor_count(arena_ctx(a), t->rank, t->shape);
        t->data = rt_big_alloc(a, n * dtype_bytes(t->type));
        for (i64 k = 0; k < n; k++)
            if (dtype_is_float(t->type))
                tensor_set_f64(t, k, tensor_get_f64(&first->outputs[i], k));
            else
                tensor_set_i64(t, k, tensor_get_i64(&first->outputs[i], k));
        any = true;
    }
    return any;
}

verified verify_package(arena *a, const ir_program *p, const rt_package *package,
                        const char *directory, const tensor *inputs, reference *first, int threads,
                        trial_timing how, const volatile bool *cancel)
{
    arena *scratch = arena_child(a);
    if (!first->large)
        first->large = enlarged(first->a, p, inputs);
    trial t = prepare_trial(scratch, p, package, directory, inputs, first->large);
    t.threads = threads;
    t.timing = how;
    run_trial(scratch, &t, how.limit_s, cancel);
    verified v = {.rel_l2 = NEW_N(a, f64, p->outputs.n), .tolerances = NEW_N(a, f64, p->outputs.n)};
    compare_round(scratch, &t, first, 0, &v);
    tensor *second = NEW_N(scratch, tensor, p->inputs.n);
    if (carried(scratch, first, second)) {
        reference r = reference_make(scratch, first->p, second, first->threads, cancel);
        verified of_second = {.rel_l2 = NEW_N(scratch, f64, p->outputs.n),
                              .tolerances = NEW_N(scratch, f64, p->outputs.n)};
        compare_round(scratch, &t, &r, 1, &of_second);
    } else {
        compare_round(scratch, &t, first, 1, &v);
    }
    if (t.shared->has_large && !first->as_read)
        first->as_read = large_outputs(first->a, &t);
    else if (t.shared->has_large)
        v.strays = find_strays(a, &t, first);
    v.median_us = t.shared->median_us;
    v.least_us = t.shared->least_us;
    v.rival_median_us = t.shared->rival_median_us;
    v.rival_least_us = t.shared->rival_least_us;
    v.peaks = how.known.gflops > 0 ? how.known : t.shared->peaks;
    arena_free(scratch);
    return v;
}
