/* Comparing results of two forms of one program. */
#ifndef EQF_TEST_RULES_VALUES_H
#define EQF_TEST_RULES_VALUES_H

#include <math.h>

#include "ir/ir.h"

static inline bool near(f64 x, f64 y, f64 scale)
{
    if (!isfinite(x) || !isfinite(y))
        return !isfinite(x) && !isfinite(y);
    return fabs(x - y) <= 1e-8 * scale;
}

static inline f64 element(const tensor *t, i64 i)
{
    return t->type == DT_f64 ? tensor_get_f64(t, i) : (f64)tensor_get_i64(t, i);
}

/* Equal up to rounding in f64, relative to the largest element; what is not finite in one is not in
 * the other. */
static inline bool same_values(eqf_ctx *ctx, const tensor *x, const tensor *y)
{
    i64 n = tensor_count(ctx, x->rank, x->shape);
    f64 scale = 1;
    if (n != tensor_count(ctx, y->rank, y->shape) || x->type != y->type)
        return false;
    for (i64 i = 0; i < n; i++)
        scale = fmax(scale, isfinite(element(x, i)) ? fabs(element(x, i)) : 0);
    for (i64 i = 0; i < n; i++)
        if (!near(element(x, i), element(y, i), scale))
            return false;
    return true;
}

#endif
