/* Data types and dense row-major tensors: one row of dtypes.def each, and access to one element
 * through f64 or i64. */
#include "base/base.h"

typedef struct dtype_row {
    const char *name;
    i64 bytes;
    dtype_kind kind;
} dtype_row;

static const dtype_row rows[DT_COUNT] = {
    [DT_NONE] = {"none", 0, DK_NONE},
#define DTYPE(name, ctype, bytes, kind, st) [DT_##name] = {#name, bytes, DK_##kind},
#include "base/dtypes.def"
#undef DTYPE
};

#define DTYPE(name, ctype, bytes, kind, st)                                                        \
    _Static_assert(sizeof(ctype) == (bytes), "storage of " #name);
#include "base/dtypes.def"
#undef DTYPE

static const dtype_row *row(dtype t)
{
    return &rows[(unsigned)t < DT_COUNT ? t : DT_NONE];
}

const char *dtype_name(dtype t)
{
    return row(t)->name;
}

dtype dtype_find(const char *name)
{
    for (dtype t = DT_NONE + 1; t < DT_COUNT; t++)
        if (strcmp(rows[t].name, name) == 0)
            return t;
    return DT_NONE;
}

i64 dtype_bytes(dtype t)
{
    return row(t)->bytes;
}

dtype_kind dtype_kind_of(dtype t)
{
    return row(t)->kind;
}

bool dtype_is_float(dtype t)
{
    return row(t)->kind == DK_FLOAT;
}

i64 tensor_count(eqf_ctx *ctx, i64 rank, const i64 *shape)
{
    i64 n = 1;
    bool is_empty = false;
    for (i64 i = 0; i < rank; i++) {
        if (shape[i] < 0)
            eqf_throw(ctx, EQF_E_LIMIT, NULL, NULL, "a negative extent, %lld", (long long)shape[i]);
        is_empty = is_empty || shape[i] == 0;
    }
    for (i64 i = 0; i < rank && !is_empty; i++)
        if (!mul_i64(n, shape[i], &n))
            eqf_throw(ctx, EQF_E_LIMIT, NULL, NULL, "a tensor with more than 2^63 elements");
    return is_empty ? 0 : n;
}

i64 tensor_bytes(eqf_ctx *ctx, const tensor *t)
{
    i64 bytes;
    if (!mul_i64(tensor_count(ctx, t->rank, t->shape), dtype_bytes(t->type), &bytes))
        eqf_throw(ctx, EQF_E_LIMIT, NULL, NULL, "a tensor with more than 2^63 bytes");
    return bytes;
}

i64 tensor_get_i64(const tensor *t, i64 i)
{
    switch (t->type) {
    case DT_bool:
        return ((const u8 *)t->data)[i] != 0;
    case DT_i8:
        return ((const i8 *)t->data)[i];
    case DT_i32:
        return ((const i32 *)t->data)[i];
    case DT_i64:
        return ((const i64 *)t->data)[i];
    default:
        return 0; /* floats are read by tensor_get_f64 */
    }
}

f64 tensor_get_f64(const tensor *t, i64 i)
{
    switch (t->type) {
    case DT_f16:
        return (f64)f32_of_f16(((const u16 *)t->data)[i]);
    case DT_bf16:
        return (f64)f32_of_bf16(((const u16 *)t->data)[i]);
    case DT_f32:
        return (f64)((const f32 *)t->data)[i];
    case DT_f64:
        return ((const f64 *)t->data)[i];
    default:
        return (f64)tensor_get_i64(t, i);
    }
}

void tensor_set_i64(tensor *t, i64 i, i64 x)
{
    switch (t->type) {
    case DT_bool:
        ((u8 *)t->data)[i] = x != 0;
        break;
    case DT_i8:
        ((i8 *)t->data)[i] = (i8)x;
        break;
    case DT_i32:
        ((i32 *)t->data)[i] = (i32)x;
        break;
    case DT_i64:
        ((i64 *)t->data)[i] = x;
        break;
    default:
        tensor_set_f64(t, i, (f64)x);
    }
}

void tensor_set_f64(tensor *t, i64 i, f64 x)
{
    switch (t->type) {
    case DT_f16:
        ((u16 *)t->data)[i] = f16_of_f64(x);
        break;
    case DT_bf16:
        ((u16 *)t->data)[i] = bf16_of_f64(x);
        break;
    case DT_f32:
        ((f32 *)t->data)[i] = (f32)x;
        break;
    case DT_f64:
        ((f64 *)t->data)[i] = x;
        break;
    default:
        tensor_set_i64(t, i, (i64)x);
    }
}
