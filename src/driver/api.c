/* The public functions about tensors, models and runs: traps around what runtime and the rest of
 * driver do. eqf_program_*, eqf_optimize and eqf_bench stand with their stages. */
#include <stdio.h>

#include "driver/driver.h"

_Static_assert((int)EQF_BOOL == (int)DT_bool && (int)EQF_I8 == (int)DT_i8 &&
                   (int)EQF_I32 == (int)DT_i32 && (int)EQF_I64 == (int)DT_i64 &&
                   (int)EQF_F16 == (int)DT_f16 && (int)EQF_BF16 == (int)DT_bf16 &&
                   (int)EQF_F32 == (int)DT_f32 && (int)EQF_F64 == (int)DT_f64 &&
                   (int)DT_COUNT == (int)EQF_F64 + 1,
               "eqf_dtype is dtypes.def");

const char *eqf_version(void)
{
    return EQF_VERSION;
}

static bool exists(eqf_dtype t)
{
    return (int)t > (int)DT_NONE && (int)t < (int)DT_COUNT;
}

const char *eqf_dtype_name(eqf_dtype t)
{
    return exists(t) ? dtype_name((dtype)t) : "none";
}

size_t eqf_dtype_size(eqf_dtype t)
{
    return exists(t) ? (size_t)dtype_bytes((dtype)t) : 0;
}

/* ---- tensors
 * -------------------------------------------------------------------------------------- */

eqf_tensor driver_show(eqf_ctx *ctx, const tensor *t)
{
    return (eqf_tensor){.name = t->name ? t->name : "",
                        .dtype = (eqf_dtype)t->type,
                        .rank = (size_t)t->rank,
                        .shape = t->shape,
                        .bytes = (size_t)tensor_bytes(ctx, t),
                        .data = t->data};
}

tensor driver_port(const rt_port *p)
{
    return (tensor){.name = p->name, .type = p->type, .rank = p->rank, .shape = p->shape};
}

/* The set's arena and handle; the caller fills at and n. */
static eqf_tensors *set_new(eqf_ctx *ctx, arena *a, i64 n)
{
    eqf_tensors *set = NEW(a, eqf_tensors);
    *set = (eqf_tensors){.ctx = ctx, .a = a, .at = NEW_N(a, eqf_tensor, n), .n = n};
    return set;
}

eqf_status eqf_tensors_read(eqf_ctx *ctx, const char *path, eqf_tensors **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        i64 n;
        eqf_about(ctx, path, NULL);
        const tensor *read = safetensors_read(a, path, &n);
        eqf_tensors *set = set_new(ctx, a, n);
        for (i64 i = 0; i < n; i++)
            set->at[i] = driver_show(ctx, &read[i]);
        *out = set;
    }
    if (t.status != EQF_OK) {
        *out = NULL;
        arena_free(a);
    }
    return t.status;
}

void eqf_tensors_free(eqf_tensors *set)
{
    if (set)
        arena_free(set->a);
}

size_t eqf_tensors_count(const eqf_tensors *set)
{
    return (size_t)set->n;
}

eqf_tensor eqf_tensors_get(const eqf_tensors *set, size_t i)
{
    return set->at[i];
}

ptrdiff_t eqf_tensors_find(const eqf_tensors *set, const char *name)
{
    for (i64 i = 0; i < set->n; i++)
        if (strcmp(set->at[i].name, name) == 0)
            return (ptrdiff_t)i;
    return -1;
}

eqf_status eqf_tensors_write(eqf_ctx *ctx, const char *path, const eqf_tensor *tensors,
                             size_t count)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        tensor *set = NEW_N(a, tensor, (i64)count);
        for (size_t i = 0; i < count; i++)
            set[i] = (tensor){.name = tensors[i].name,
                              .type = (dtype)tensors[i].dtype,
                              .rank = (i64)tensors[i].rank,
                              .shape = tensors[i].shape,
                              .data = (void *)(uintptr_t)tensors[i].data};
        safetensors_write(ctx, path, set, (i64)count);
    }
    arena_free(a);
    return t.status;
}

/* ---- models
 * --------------------------------------------------------------------------------------- */

eqf_status eqf_model_load(eqf_ctx *ctx, const char *path, eqf_model **out)
{
    *out = NULL;
    trap t;
    TRY (ctx, t) {
        eqf_model *m = heap_alloc(ctx, sizeof *m);
        *out = m;
        m->ctx = ctx;
        m->rt = NULL;
        m->rt = rt_load(ctx, path);
    }
    if (t.status != EQF_OK) {
        eqf_model_free(*out);
        *out = NULL;
    }
    return t.status;
}

void eqf_model_free(eqf_model *model)
{
    if (!model)
        return;
    rt_unload(model->rt);
    heap_free(model->ctx, model, sizeof *model);
}

static const rt_plan *plan_of(const eqf_model *m)
{
    return &rt_model_package(m->rt)->plan;
}

static eqf_tensor show_port(const rt_port *p)
{
    i64 n = 1;
    for (i64 d = 0; d < p->rank; d++)
        n *= p->shape[d]; /* checked when the plan was read */
    return (eqf_tensor){.name = p->name,
                        .dtype = (eqf_dtype)p->type,
                        .rank = (size_t)p->rank,
                        .shape = p->shape,
                        .bytes = (size_t)(n * dtype_bytes(p->type))};
}

static ptrdiff_t find_port(const rt_port *ports, i64 n, const char *name)
{
    for (i64 i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0)
            return (ptrdiff_t)i;
    return -1;
}

#define PORT_QUERIES(what, list)                                                                   \
    size_t eqf_model_##what##_count(const eqf_model *model)                                        \
    {                                                                                              \
        return (size_t)plan_of(model)->list.n;                                                     \
    }                                                                                              \
    eqf_tensor eqf_model_##what(const eqf_model *model, size_t i)                                  \
    {                                                                                              \
        return show_port(&plan_of(model)->list.at[i]);                                             \
    }                                                                                              \
    ptrdiff_t eqf_model_find_##what(const eqf_model *model, const char *name)                      \
    {                                                                                              \
        return find_port(plan_of(model)->list.at, plan_of(model)->list.n, name);                   \
    }

PORT_QUERIES(input, inputs)
PORT_QUERIES(output, outputs)
PORT_QUERIES(parameter, parameters)
PORT_QUERIES(state, states)

size_t eqf_model_kernel_count(const eqf_model *model)
{
    return (size_t)rt_model_package(model->rt)->kernel_count;
}

const char *eqf_model_source_hash(const eqf_model *model)
{
    return rt_model_package(model->rt)->source_digest;
}

uint64_t eqf_model_seed(const eqf_model *model)
{
    return (uint64_t)rt_model_package(model->rt)->seed;
}

/* The tensor of check.safetensors that is called prefix + name. */
static const tensor *stored(arena *a, const rt_model *m, const tensor *set, i64 n,
                            const char *prefix, const char *name)
{
    const char *wanted = arena_printf(a, "%s%s", prefix, name);
    for (i64 i = 0; i < n; i++)
        if (strcmp(set[i].name, wanted) == 0)
            return &set[i];
    eqf_throw(arena_ctx(a), EQF_E_DATA, rt_model_directory(m), wanted, "is not in %s",
              RT_CHECK_FILE);
}

const eqf_tensor *model_inputs(arena *a, const rt_model *m)
{
    eqf_ctx *ctx = arena_ctx(a);
    const rt_package *package = rt_model_package(m);
    const rt_plan *plan = &package->plan;
    eqf_tensor *inputs = NEW_N(a, eqf_tensor, plan->inputs.n);
    i64 n = 0;
    const tensor *set = package->has_inputs ? rt_model_check(m, a, &n) : NULL;
    for (i64 i = 0; i < plan->inputs.n; i++) {
        const rt_port *p = &plan->inputs.at[i];
        inputs[i] = show_port(p);
        tensor t = driver_port(p);
        if (package->has_inputs) {
            const tensor *s = stored(a, m, set, n, CHECK_INPUTS, p->name);
            if (s->type != t.type || tensor_bytes(ctx, s) != (i64)inputs[i].bytes)
                eqf_throw(ctx, EQF_E_DATA, rt_model_directory(m), p->name,
                          "is of another size in %s", RT_CHECK_FILE);
            inputs[i].data = s->data;
            continue;
        }
        t.data = rt_big_alloc(a, (i64)inputs[i].bytes);
        rt_seeded(ctx, &t, (u64)package->seed, package->ranges.at[i], NULL);
        inputs[i].data = t.data;
    }
    return inputs;
}

eqf_status eqf_model_inputs(eqf_ctx *ctx, const eqf_model *model, eqf_tensors **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, rt_model_directory(model->rt), NULL);
        i64 n = plan_of(model)->inputs.n;
        eqf_tensors *set = set_new(ctx, a, n);
        const eqf_tensor *inputs = model_inputs(a, model->rt);
        for (i64 i = 0; i < n; i++)
            set->at[i] = inputs[i];
        *out = set;
    }
    if (t.status != EQF_OK) {
        *out = NULL;
        arena_free(a);
    }
    return t.status;
}

/* ---- runs
 * ----------------------------------------------------------------------------------------- */

eqf_status eqf_exec_new(eqf_ctx *ctx, const eqf_model *model, int threads, eqf_exec **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, rt_model_directory(model->rt), NULL);
        eqf_exec *e = NEW(a, eqf_exec);
        e->ctx = ctx;
        e->a = a;
        e->rt = rt_exec_new(ctx, model->rt, threads);
        *out = e;
    }
    if (t.status != EQF_OK) {
        *out = NULL;
        arena_free(a);
    }
    return t.status;
}

void eqf_exec_free(eqf_exec *exec)
{
    if (!exec)
        return;
    rt_exec_free(exec->rt);
    arena_free(exec->a);
}

eqf_status eqf_exec_run(eqf_exec *exec, const void *const *inputs, void *const *outputs)
{
    trap t;
    TRY (exec->ctx, t) {
        eqf_about(exec->ctx, rt_model_directory(rt_exec_model(exec->rt)), NULL);
        rt_exec_run(exec->rt, inputs, outputs);
    }
    return t.status;
}

static const rt_port *port_of(eqf_exec *exec, const char *kind, size_t i, size_t bytes, bool any)
{
    const rt_plan *plan = &rt_model_package(rt_exec_model(exec->rt))->plan;
    bool states = strcmp(kind, "state") == 0;
    i64 n = states ? plan->states.n : plan->parameters.n;
    if (i >= (size_t)n) {
        eqf_report(exec->ctx, EQF_E_ARGUMENT, NULL, NULL, "there is no %s %zu (the model has %lld)",
                   kind, i, (long long)n);
        return NULL;
    }
    const rt_port *p = states ? &plan->states.at[i] : &plan->parameters.at[i];
    if (!any && bytes != show_port(p).bytes) {
        eqf_report(exec->ctx, EQF_E_ARGUMENT, NULL, p->name, "%zu bytes given, it has %zu", bytes,
                   show_port(p).bytes);
        return NULL;
    }
    return p;
}

eqf_status eqf_exec_set_parameter(eqf_exec *exec, size_t i, const void *data, size_t bytes)
{
    const rt_port *p = port_of(exec, "parameter", i, bytes, data == NULL);
    if (!p)
        return EQF_E_ARGUMENT;
    if ((uintptr_t)data % (uintptr_t)dtype_bytes(p->type) != 0)
        return eqf_report(exec->ctx, EQF_E_ARGUMENT, NULL, p->name, "is not aligned to its %s",
                          dtype_name(p->type));
    rt_exec_set_parameter(exec->rt, (i64)i, data);
    return EQF_OK;
}

eqf_status eqf_exec_get_state(eqf_exec *exec, size_t i, void *data, size_t bytes)
{
    if (!port_of(exec, "state", i, bytes, false))
        return EQF_E_ARGUMENT;
    if (bytes > 0)
        memcpy(data, rt_exec_state(exec->rt, (i64)i), bytes);
    return EQF_OK;
}

eqf_status eqf_exec_set_state(eqf_exec *exec, size_t i, const void *data, size_t bytes)
{
    if (!port_of(exec, "state", i, bytes, false))
        return EQF_E_ARGUMENT;
    if (bytes > 0)
        memcpy(rt_exec_state(exec->rt, (i64)i), data, bytes);
    return EQF_OK;
}

void eqf_exec_reset(eqf_exec *exec)
{
    rt_exec_reset(exec->rt);
}

/* ---- checking
 * ------------------------------------------------------------------------------------- */

typedef struct check {
    arena *a;
    const rt_model *m;
    const rt_plan *plan;
    f64 *rel_l2, *tolerance;
    const char *first;
} check;

static void note(check *k, i64 i, comparison c, f64 tolerance)
{
    k->rel_l2[i] = c.rel_l2;
    k->tolerance[i] = tolerance;
    if (!c.passed && !k->first[0])
        k->first = arena_printf(k->a, "%s: %s", k->plan->outputs.at[i].name, c.why);
}

static tensor output_of(const check *k, i64 i, const void *const *outputs)
{
    tensor t = driver_port(&k->plan->outputs.at[i]);
    t.data = (void *)(uintptr_t)outputs[i];
    return t;
}

static void check_stored(check *k, const void *const *outputs)
{
    i64 n;
    const tensor *set = rt_model_check(k->m, k->a, &n);
    for (i64 i = 0; i < k->plan->outputs.n; i++) {
        const rt_port *p = &k->plan->outputs.at[i];
        if (p->buffer < 0)
            continue;
        tensor got = output_of(k, i, outputs);
        f64 tolerance = rt_model_package(k->m)->tolerances.at[i];
        note(k, i,
             compare_tensors(k->a, &got, stored(k->a, k->m, set, n, CHECK_OUTPUTS, p->name),
                             tolerance),
             tolerance);
    }
}

static void check_computed(check *k, eqf_program *program, const void *const *inputs,
                           const void *const *outputs, pool *threads)
{
    eqf_ctx *ctx = arena_ctx(k->a);
    const rt_package *package = rt_model_package(k->m);
    if (strcmp(program->digest, package->source_digest) != 0)
        eqf_throw(ctx, EQF_E_TYPE, program->path, NULL,
                  "is another program than the one that %s was made from (%s)",
                  rt_model_directory(k->m), package->source);
    const tensor *data = program_data(program, threads);
    if (strcmp(program->data_digest, package->parameters_digest) != 0)
        eqf_throw(ctx, EQF_E_DATA, program->path, NULL,
                  "has other parameters than the ones that %s was made with",
                  rt_model_directory(k->m));
    const ir_program *p = program->ir;
    tensor *all = arena_copy(k->a, data, p->inputs.n * (i64)sizeof *all);
    for (i64 i = 0, next = 0; i < p->inputs.n && next < k->plan->inputs.n; i++)
        if (p->inputs.at[i].role == IR_INPUT)
            all[i].data = (void *)(uintptr_t)inputs[next++];
    reference r = reference_make(k->a, p, all, threads, NULL);
    program_expect_unchanged(program);
    for (i64 i = 0; i < k->plan->outputs.n; i++) {
        if (k->plan->outputs.at[i].buffer < 0)
            continue;
        tensor got = output_of(k, i, outputs);
        f64 tolerance;
        comparison c = reference_compare(&r, i, &got, &tolerance);
        note(k, i, c, tolerance);
    }
}

eqf_status eqf_exec_check(eqf_exec *exec, eqf_program *program, const void *const *inputs,
                          const void *const *outputs, const eqf_check_result **out)
{
    *out = NULL;
    if (exec->check)
        arena_free(exec->check);
    exec->check = NULL;
    trap t;
    TRY (exec->ctx, t) {
        eqf_about(exec->ctx, rt_model_directory(rt_exec_model(exec->rt)), NULL);
        exec->check = arena_child(exec->a);
        check k = {.a = exec->check, .m = rt_exec_model(exec->rt), .first = ""};
        k.plan = &rt_model_package(k.m)->plan;
        k.rel_l2 = NEW_N(k.a, f64, k.plan->outputs.n);
        k.tolerance = NEW_N(k.a, f64, k.plan->outputs.n);
        if (program)
            check_computed(&k, program, inputs, outputs, rt_exec_pool(exec->rt));
        else
            check_stored(&k, outputs);
        exec->result = (eqf_check_result){.passed = !k.first[0],
                                          .rel_l2 = k.rel_l2,
                                          .tolerance = k.tolerance,
                                          .output_count = (size_t)k.plan->outputs.n,
                                          .first = k.first};
        *out = &exec->result;
    }
    return t.status;
}
