/* Seeded tensors: the values that a package is verified with when the user gives none. They depend
 * on the seed, the name and the position alone, so that `run` makes them again from plan.json. */
#include <math.h>

#include "runtime/runtime.h"

void rt_seeded(eqf_ctx *ctx, tensor *t, u64 seed, rt_range range)
{
    i64 n = tensor_count(ctx, t->rank, t->shape);
    const char *name = t->name ? t->name : "";
    rng r = rng_new(hash_bytes(name, (i64)strlen(name), seed));
    u64 span = (u64)range.high - (u64)range.low + 1; /* 0: all of i64 */
    for (i64 i = 0; i < n; i++) {
        switch (dtype_kind_of(t->type)) {
        case DK_FLOAT: {
            if (range.is_bounded) {
                tensor_set_f64(t, i, range.from + (range.to - range.from) * rng_f64(&r));
                break;
            }
            /* Box-Muller on (0, 1]; one of the pair is enough here. */
            f64 u = 1 - rng_f64(&r), v = rng_f64(&r);
            tensor_set_f64(t, i, sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
            break;
        }
        case DK_BOOL:
            tensor_set_i64(t, i, (i64)rng_below(&r, 2));
            break;
        default: {
            u64 offset = span ? rng_below(&r, span) : rng_u64(&r);
            tensor_set_i64(t, i, (i64)((u64)range.low + offset));
        }
        }
    }
}
