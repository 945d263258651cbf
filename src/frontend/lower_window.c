/* Operators of ATen on windows of spatial dims (the last ones): pooling. A window is one more dim,
 * which a reduction removes. */
#include "frontend/lower.h"

/* Adaptive averages where the output divides the input: equal windows side by side. */
void fe_lower_adaptive_pool(fe_call *c) /* self output_size; code: how many dims */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given);
    i64 n, *out = fe_is(c, 1, &n), first = x->rank - c->row->code, sizes[2 * FE_MAX_RANK], m = 0;
    u64 inner = 0;
    bool is_whole = true;
    if (n != c->row->code || first < 1 || x->rank + n > FE_MAX_RANK)
        fe_fail(l, "%lld sizes for rank %lld", (long long)n, (long long)x->rank);
    for (i64 d = 0; d < x->rank; d++) {
        i64 e = x->dims[d].extent, k = d < first ? e : out[d - first];
        if (d >= first && (k < 1 || e < 1 || e % k))
            fe_decline(l, "pooling of %lld to %lld has no meaning here", (long long)e,
                       (long long)k);
        is_whole = is_whole && (d < first || k == 1);
        sizes[m++] = k;
        if (d >= first) {
            inner |= (u64)1 << m;
            sizes[m++] = e / k;
        }
    }
    u64 spatial = fe_all_dims(x) & ~(((u64)1 << first) - 1);
    fe_tensor *y = is_whole ? fe_mean(l, x, spatial, true)
                            : fe_mean(l, fe_view(l, x, m, sizes), inner, false);
    fe_ret(c, fe_cast(l, given->dtype, y));
}
