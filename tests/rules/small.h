/* The named programs with small dims: extents 2, 3, 4 ..., distinct; 5 for two that a rename
 * equates; K+R is what K and R make together. */
#ifndef EQF_TEST_RULES_SMALL_H
#define EQF_TEST_RULES_SMALL_H

#include "ir/ir.h"

static const char *const small_names[] = {"rmsnorm_gemm",
                                          "rmsnorm_mlp",
                                          "rmsnorm_swiglu",
                                          "rmsnorm_swiglu_gain",
                                          "layernorm_gemm",
                                          "lora",
                                          "ngpt",
                                          "row_softmax",
                                          "row_statistics",
                                          "attention",
                                          "attention_causal",
                                          "attention_mask",
                                          "self_attention",
                                          "differential_attention",
                                          "mla",
                                          "decoder_layer"};

static void small_collect(const sx *x, const sx **from, const sx **to)
{
    if (sx_is_form(x, "rename")) {
        *from = x->at[3];
        *to = x->at[5];
    }
    for (i64 i = 0; x->kind == SX_LIST && i < x->n; i++)
        small_collect(x->at[i], from, to);
}

/* Extent of a dim among those that were written: the sum of its parts', or -1. */
static inline i64 small_sum(const sx *const *dims, const i64 *extents, i64 n, const char *name)
{
    const char *plus = strchr(name, '+');
    i64 sum = 0;
    for (i64 i = 0; plus && i < n; i++) {
        const char *dim = dims[i]->text;
        sum += strncmp(dim, name, (size_t)(plus - name)) == 0 && !dim[plus - name] ? extents[i] : 0;
        sum += strcmp(dim, plus + 1) == 0 ? extents[i] : 0;
    }
    return plus ? sum : -1;
}

static inline ir_program *small_text(arena *a, const char *path, const char *text, i64 n)
{
    sx *form = sx_read(a, path, text, n)->at[0];
    const sx *from = NULL, *to = NULL;
    small_collect(form, &from, &to);
    str dims = str_new(a), out = str_new(a);
    str_add(&dims, "(dims");
    i64 next = 2, count = form->at[2]->n, *extents = NEW_N(a, i64, count);
    const sx **dims_at = NEW_N(a, const sx *, count);
    for (i64 i = 1; i < count; i++) {
        dims_at[i - 1] = form->at[2]->at[i]->at[0];
        const char *dim = dims_at[i - 1]->text;
        bool is_shared = from && (strcmp(dim, from->text) == 0 || strcmp(dim, to->text) == 0);
        i64 sum = small_sum(dims_at, extents, i - 1, dim);
        i64 extent = is_shared ? 5 : sum > 0 ? sum : next++;
        extents[i - 1] = extent;
        str_printf(&dims, " (%s %lld)", dim, (long long)extent);
    }
    str_add(&dims, ")");
    str_printf(&out, "(program %s %s", form->at[1]->text, str_text(&dims));
    for (i64 i = 3; i < form->n; i++) {
        str_add(&out, " ");
        sx_print(&out, form->at[i]);
    }
    str_add(&out, ")");
    return ir_read(a, path, str_text(&out), out.n);
}

static inline ir_program *small_file(arena *a, const char *path)
{
    i64 n;
    const char *text = file_read(a, path, 1 << 20, &n);
    return small_text(a, path, text, n);
}

static inline ir_program *small_program(arena *a, const char *name)
{
    return small_file(a, arena_printf(a, "%s/rules/programs/%s.eqf", EQF_TEST_DIR, name));
}

/* Seeded inputs: floats uniform and away from 0, integers 1 2 3, bools. */
static inline tensor *small_inputs(arena *a, const ir_program *p, u64 seed)
{
    rng g = rng_new(seed);
    tensor *in = NEW_N(a, tensor, p->inputs.n);
    for (i64 k = 0; k < p->inputs.n; k++) {
        const ir_port *port = &p->inputs.at[k];
        i64 *shape = NEW_N(a, i64, port->rank), count = 1;
        for (i64 i = 0; i < port->rank; i++)
            count *= shape[i] = port->dims[i].extent;
        dtype t = dtype_is_float((dtype)port->dtype) ? DT_f64 : (dtype)port->dtype;
        in[k] = (tensor){NULL, t, port->rank, shape, arena_alloc(a, 8 * count)};
        for (i64 i = 0; i < count && t != DT_f64; i++)
            tensor_set_i64(&in[k], i, (i64)rng_below(&g, t == DT_bool ? 2 : 3) + (t != DT_bool));
        for (i64 i = 0; i < count && t == DT_f64; i++)
            tensor_set_f64(&in[k], i, (rng_u64(&g) & 1 ? 1 : -1) * (0.25 + rng_f64(&g)));
    }
    return in;
}

#endif
