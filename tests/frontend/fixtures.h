/* The exported fixtures (tests/fixtures) as tests of the lowering: every form of every module is
 * read, made canonical, and evaluated in f64 against what PyTorch computed in f64. */
#ifndef EQF_TEST_FRONTEND_FIXTURES_H
#define EQF_TEST_FRONTEND_FIXTURES_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "frontend/frontend.h"

#define FIXTURES EQF_TEST_DIR "/fixtures/"

typedef struct fixture_count {
    i64 programs, evaluated, outputs;
} fixture_count;

static inline void fixture_complain(eqf_ctx *ctx, const char *name, char form)
{
    for (size_t i = 0; i < eqf_diag_count(ctx); i++) {
        eqf_diag d = eqf_diag_get(ctx, i);
        print_error("%s.%c: %s: %s: %s\n", name, form, eqf_status_name(d.status), d.place,
                    d.message);
    }
    eqf_ctx_clear(ctx);
}

/* Number of outputs that differ: relative L2 for floats, equality for the rest, infinities and NaN
 * in the same places. */
static inline i64 fixture_compare(const ir_program *p, const tensor *out, const tensor *want, i64 n,
                                  const char *name, char form)
{
    i64 bad = 0;
    for (i64 i = 0; i < p->outputs.n; i++) {
        const char *key = intern_text(p->names, p->outputs.at[i].name);
        const tensor *w = NULL, *o = &out[i];
        for (i64 k = 0; k < n; k++)
            if (!strcmp(want[k].name, key))
                w = &want[k];
        bool is_equal = w && w->rank == o->rank;
        for (i64 d = 0; is_equal && d < w->rank; d++)
            is_equal = w->shape[d] == o->shape[d];
        f64 error = 0, norm = 0;
        i64 count = is_equal ? tensor_count(p->ctx, o->rank, o->shape) : 0;
        for (i64 k = 0; k < count; k++) {
            if (!dtype_is_float(w->type)) {
                is_equal = is_equal && tensor_get_i64(o, k) == tensor_get_i64(w, k);
                continue;
            }
            f64 x = tensor_get_f64(o, k), y = tensor_get_f64(w, k);
            if (!isfinite(x) || !isfinite(y))
                is_equal = is_equal && (x == y || (isnan(x) && isnan(y)));
            else
                error += (x - y) * (x - y), norm += y * y;
        }
        u8 type = p->outputs.at[i].dtype;
        f64 tolerance = type == DT_f16 || type == DT_bf16 ? 1e-2 : 1e-9;
        if (strstr(key, "rms_norm.default(z, [3, 5], None, None)"))
            tolerance = 1e-6; /* its default eps is that of the dtype it runs in */
        if (is_equal && sqrt(error) <= tolerance * sqrt(norm))
            continue;
        print_error("%s.%c: output %s: %s, relative error %g\n", name, form, key,
                    is_equal ? "values" : "shape, integers or non-finite values",
                    sqrt(error) / sqrt(norm));
        bad++;
    }
    return bad + (p->outputs.n != n);
}

static inline i64 fixture_evaluate(arena *a, const ir_program *p, const char *stem,
                                   const char *name, char form)
{
    i64 n_in, n_want;
    tensor *in = safetensors_read(a, arena_printf(a, "%s.in.safetensors", stem), &n_in);
    tensor *want = safetensors_read(a, arena_printf(a, "%s.f64.safetensors", stem), &n_want);
    tensor *inputs = NEW_N(a, tensor, p->inputs.n), *outputs = NEW_N(a, tensor, p->outputs.n);
    for (i64 i = 0; i < p->inputs.n; i++) {
        const ir_port *port = &p->inputs.at[i];
        const char *key = intern_text(p->names, port->name);
        for (i64 k = 0; k < n_in && port->role == IR_INPUT; k++)
            if (!strcmp(in[k].name, key))
                inputs[i] = in[k];
        if (port->role == IR_INPUT)
            continue;
        i64 *shape = NEW_N(a, i64, port->rank);
        for (i64 d = 0; d < port->rank; d++)
            shape[d] = port->dims[d].extent;
        tensor t = {key, port->dtype, port->rank, shape, NULL};
        t.data = arena_alloc(a, tensor_bytes(p->ctx, &t));
        inputs[i] = t;
        p->source.read(p->source.user, p->ctx, i, t.data);
    }
    ir_eval(p, inputs, a, outputs, (ir_eval_options){0});
    return fixture_compare(p, outputs, want, n_want, name, form);
}

static inline bool has_opaque(const ir_program *p)
{
    for (i64 i = 1; i < p->nodes.n; i++)
        if (p->nodes.at[i].op == IR_opaque)
            return true;
    return false;
}

/* Reads one form, with the manifest's sizes; *text gets its canonical text (in keep), NULL when it
 * has none. Returns the number of failures. */
static inline i64 fixture_form(eqf_ctx *ctx, arena *keep, const char *folder, const char *name,
                               char form, json_t *entry, fe_read_options options, char **text,
                               fixture_count *count)
{
    arena *a = arena_new(ctx, 0);
    const char *stem = arena_printf(a, FIXTURES "%s/%s", folder, name);
    const char *path = arena_printf(a, "%s.%c.pt2", stem, form);
    FILE *file = fopen(path, "rb");
    *text = NULL;
    if (!file) {
        arena_free(a);
        return 0;
    }
    fclose(file);
    trap t;
    volatile i64 failures = 0;
    TRY (ctx, t) {
        VEC(fe_dim_value) dims = {0};
        const char *symbol;
        json_t *value;
        json_object_foreach(json_object_get(entry, "symbols"), symbol, value)
            vec_push(a, &dims, (fe_dim_value){symbol, json_integer_value(value)});
        fe_read_options all = options;
        all.use_hints = true;
        all.dims = dims.at;
        all.n_dims = dims.n;
        fe_report report;
        ir_program *p = fe_read(a, path, &all, &report);
        ir_verify(p, "test");
        str s = str_new(keep);
        ir_print(&s, p);
        *text = s.at;
        count->programs++;
        for (i64 i = 0; i < report.n_boundaries; i++)
            failures += !report.boundaries[i].reason || !*report.boundaries[i].op;
        if (!has_opaque(p)) {
            count->evaluated++;
            count->outputs += p->outputs.n;
            failures += fixture_evaluate(a, p, stem, name, form);
        }
    }
    if (t.status) {
        fixture_complain(ctx, name, form);
        failures++;
    }
    arena_free(a);
    return failures;
}

/* All forms of one fixture, in the order T, F, C. */
static inline i64 fixture_run(eqf_ctx *ctx, arena *keep, const char *folder, const char *name,
                              json_t *entry, char *texts[3], fixture_count *count)
{
    i64 bad = 0;
    for (int f = 0; f < 3; f++)
        bad += fixture_form(
            ctx, keep, folder, name, "TFC" [f], entry, (fe_read_options) { 0 }, &texts[f], count);
    return bad;
}

#endif
