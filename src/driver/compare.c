/* One tensor against its reference. Floats: relative L2 distance over the places where both are
 * finite, and the same non-finite values at the same places. Integers and bools: equal. */
#include <math.h>
#include <stdio.h>

#include "driver/driver.h"

/* A reference that is zero: distances from it are finite, so that one can be twice another. */
#define LEAST_NORM 1e-100

f64 compare_tolerance(dtype t)
{
    switch (t) {
    case DT_f64:
        return 1e-9;
    case DT_f32:
        return 1e-5;
    case DT_f16:
    case DT_bf16:
        return 1e-2;
    default:
        return 0;
    }
}

/* What a value of the reference is once it is stored in the output's type. */
static f64 stored(dtype t, f64 x)
{
    switch (t) {
    case DT_f16:
        return (f64)f32_of_f16(f16_of_f64(x));
    case DT_bf16:
        return (f64)f32_of_bf16(bf16_of_f64(x));
    case DT_f32:
        return (f64)(f32)x;
    default:
        return x;
    }
}

static comparison compare_floats(arena *a, const tensor *got, const tensor *want, i64 n,
                                 f64 tolerance)
{
    comparison c = {.passed = true, .why = ""};
    f64 difference = 0, norm = 0;
    for (i64 i = 0; i < n; i++) {
        f64 x = tensor_get_f64(got, i), y = tensor_get_f64(want, i);
        if (isfinite(x) && isfinite(y)) {
            difference += (x - y) * (x - y);
            norm += y * y;
            continue;
        }
        f64 z = stored(got->type, y);
        if (!((isnan(x) && isnan(z)) || x == z)) {
            c.passed = false;
            c.rel_l2 = (f64)INFINITY;
            c.why =
                arena_printf(a, "element %lld is %g where the reference is %g", (long long)i, x, y);
            return c;
        }
    }
    c.rel_l2 = sqrt(difference) / fmax(sqrt(norm), LEAST_NORM);
    if (!(c.rel_l2 <= tolerance)) {
        c.passed = false;
        c.why = arena_printf(a, "relative L2 distance %.3g, allowed %.3g", c.rel_l2, tolerance);
    }
    return c;
}

comparison compare_tensors(arena *a, const tensor *got, const tensor *want, f64 tolerance)
{
    i64 n = tensor_count(arena_ctx(a), got->rank, got->shape);
    if (n != tensor_count(arena_ctx(a), want->rank, want->shape))
        return (comparison){.why = "another number of elements than the reference"};
    if (dtype_is_float(got->type) != dtype_is_float(want->type))
        return (comparison){.why = "another kind of type than the reference"};
    if (dtype_is_float(got->type))
        return compare_floats(a, got, want, n, tolerance);
    for (i64 i = 0; i < n; i++) {
        i64 x = tensor_get_i64(got, i), y = tensor_get_i64(want, i);
        if (x != y)
            return (comparison){.why = arena_printf(a, "element %lld is %lld, the reference %lld",
                                                    (long long)i, (long long)x, (long long)y)};
    }
    return (comparison){.passed = true, .why = ""};
}
