/* Operators of ATen on windows of spatial dims (the last ones): convolution and pooling. A dim is
 * padded and read at stride * place + dilation * position: two dims, of which a product or a
 * reduction removes the second. */
#include "frontend/lower.h"

enum { MAX_SPATIAL = 3 };

typedef struct windows {
    i64 n; /* spatial dims */
    i64 size[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    i64 before[MAX_SPATIAL], after[MAX_SPATIAL]; /* padding */
} windows;

/* An int list argument with an entry for each spatial dim; one entry stands for all, none for
 * `otherwise`. */
static void spatial_list(fe_call *c, i64 arg, i64 n, const i64 *otherwise, i64 least, i64 *out)
{
    i64 m, *v = fe_is(c, arg, &m);
    if (m == 0 && otherwise)
        v = (i64 *)otherwise, m = n;
    if (m != n && m != 1)
        fe_fail(c->l, "%lld numbers for %lld dims", (long long)m, (long long)n);
    for (i64 k = 0; k < n; k++) {
        out[k] = v[m == 1 ? 0 : k];
        if (out[k] < least || out[k] > INT32_MAX)
            fe_fail(c->l, "a window with a number of %lld", (long long)out[k]);
    }
}

/* The n last dims of x, each as (place, position in the window): all places first, then all
 * positions. Padding is `value`. */
static fe_tensor *cut_windows(fe_lower *l, fe_tensor *x, const windows *w, const fe_tensor *value)
{
    i64 first = x->rank - w->n, order[FE_MAX_RANK];
    if (x->rank + w->n > FE_MAX_RANK)
        fe_decline(l, "a rank above %d", FE_MAX_RANK);
    for (i64 k = w->n - 1; k >= 0; k--) {
        i64 d = first + k, reach = w->dilation[k] * (w->size[k] - 1) + 1; /* both fit 31 bits */
        if (w->before[k] || w->after[k])
            x = fe_pad(l, x, d, w->before[k], w->after[k], value);
        i64 n = x->dims[d].extent;
        if (n < reach)
            fe_fail(l, "windows of %lld on a dim of %lld", (long long)reach, (long long)n);
        x = fe_slice_by(l, x, d, 0, 2, (i64[]){(n - reach) / w->stride[k] + 1, w->size[k]},
                        (i64[]){w->stride[k], w->dilation[k]});
    }
    for (i64 k = 0; k < x->rank; k++)
        order[k] = k < first          ? k
                   : k < first + w->n ? first + 2 * (k - first)
                                      : first + 2 * (k - first - w->n) + 1;
    return fe_permute(l, x, order);
}

/* x [N, C, …] by weight [O, C / groups, window]; [C, …] without a batch. */
static void convolve(fe_call *c, const windows *w, i64 groups)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = given, *weight = fe_t(c, 1), *bias = fe_t_opt(c, 2);
    bool is_single = x->rank == w->n + 1;
    if (is_single)
        x = fe_unsqueeze(l, x, 0);
    i64 inner = weight->rank == w->n + 2 ? weight->dims[1].extent : 0, out = weight->dims[0].extent;
    if (x->rank != w->n + 2 || groups < 1 || groups > INT32_MAX || inner < 1 ||
        inner > INT32_MAX || out % groups ||
        x->dims[1].extent != inner * groups || x->dtype != weight->dtype)
        fe_fail(l, "a convolution of operands that do not fit");
    u8 wide = bias ? fe_wide(x->dtype) : x->dtype;
    x = fe_cast(l, wide, x), weight = fe_cast(l, wide, weight);
    fe_tensor *zero = fe_cast(l, wide, fe_int(l, DT_i64, 0));
    x = cut_windows(l, x, w, zero);
    /* Labels: 0 batch, 1 group, 2 channel of the group, 3 … places, 6 … positions, 9 result. */
    i64 sizes[FE_MAX_RANK], m = 0, n_out = 0;
    i8 lx[64], lw[64], lo[64];
    for (i64 d = 0; d < x->rank; d++) {
        sizes[m++] = d == 1 ? groups : x->dims[d].extent;
        if (d == 1)
            sizes[m++] = inner;
    }
    x = fe_view(l, x, m, sizes);
    lx[0] = 0, lx[1] = 1, lx[2] = 2;
    lw[0] = 1, lw[1] = 9, lw[2] = 2;
    lo[n_out++] = 0, lo[n_out++] = 1, lo[n_out++] = 9;
    i64 weight_sizes[FE_MAX_RANK] = {groups, out / groups, inner};
    for (i64 k = 0; k < w->n; k++) {
        lx[3 + k] = lo[n_out++] = (i8)(3 + k);
        lx[3 + w->n + k] = lw[3 + k] = (i8)(6 + k);
        weight_sizes[3 + k] = w->size[k];
    }
    fe_tensor *y = fe_contract(l, x, lx, fe_view(l, weight, 3 + w->n, weight_sizes), lw, lo, n_out);
    for (i64 d = 0; d < y->rank; d++)
        sizes[d] = y->dims[d].extent;
    sizes[1] = out;
    for (i64 k = 0; k < w->n; k++)
        sizes[2 + k] = y->dims[3 + k].extent;
    y = fe_view(l, y, 2 + w->n, sizes);
    if (bias) {
        bias = fe_cast(l, wide, bias);
        for (i64 k = 0; k < w->n; k++)
            bias = fe_unsqueeze(l, bias, bias->rank);
        y = fe_op2(l, IR_add, y, bias);
    }
    fe_ret(c, fe_cast(l, given->dtype, is_single ? fe_drop(l, y, 1) : y));
}

static void window_sizes(fe_call *c, windows *w)
{
    fe_tensor *weight = fe_t(c, 1);
    if (w->n < 1 || w->n > MAX_SPATIAL || weight->rank != w->n + 2)
        fe_decline(c->l, "a convolution of %lld dims", (long long)w->n);
    for (i64 k = 0; k < w->n; k++) {
        w->size[k] = weight->dims[2 + k].extent;
        if (w->size[k] < 1 || w->size[k] > INT32_MAX)
            fe_decline(c->l, "a convolution with a window of %lld", (long long)w->size[k]);
    }
}

void fe_lower_conv(fe_call *c) /* input weight bias stride padding dilation groups; code: dims */
{
    windows w = {.n = c->row->code};
    window_sizes(c, &w);
    spatial_list(c, 3, w.n, NULL, 1, w.stride);
    spatial_list(c, 5, w.n, NULL, 1, w.dilation);
    const char *mode = c->args[4] && c->args[4]->kind == FE_ARG_STRING ? fe_s(c, 4) : NULL;
    if (!mode)
        spatial_list(c, 4, w.n, NULL, 0, w.before);
    for (i64 k = 0; k < w.n; k++) {
        i64 all = mode && !strcmp(mode, "same") ? w.dilation[k] * (w.size[k] - 1) : 0;
        if (mode)
            w.before[k] = all / 2;
        w.after[k] = mode ? all - all / 2 : w.before[k];
    }
    convolve(c, &w, fe_i(c, 6));
}

/* input weight bias stride padding dilation transposed output_padding groups */
void fe_lower_convolution(fe_call *c)
{
    windows w = {.n = fe_t(c, 1)->rank - 2};
    if (fe_b(c, 6))
        fe_decline(c->l, "a transposed convolution has no meaning here");
    window_sizes(c, &w);
    spatial_list(c, 3, w.n, NULL, 1, w.stride);
    spatial_list(c, 4, w.n, NULL, 0, w.before);
    spatial_list(c, 5, w.n, NULL, 1, w.dilation);
    for (i64 k = 0; k < w.n; k++)
        w.after[k] = w.before[k];
    convolve(c, &w, fe_i(c, 8));
}

/* Windows of a pool: kernel_size stride padding at arguments 1 … 3. */
static windows pool_windows(fe_call *c, const fe_tensor *x, i64 n, bool is_ceil)
{
    windows w = {.n = n};
    spatial_list(c, 1, n, NULL, 1, w.size);
    spatial_list(c, 2, n, w.size, 1, w.stride);
    spatial_list(c, 3, n, NULL, 0, w.before);
    if (x->rank < n + 1)
        fe_fail(c->l, "a pool of rank %lld", (long long)x->rank);
    for (i64 k = 0; k < n; k++) {
        w.dilation[k] = 1;
        w.after[k] = w.before[k];
        i64 extent = x->dims[x->rank - n + k].extent;
        if (extent > INT64_MAX / 2)
            fe_fail(c->l, "a dim of %lld", (long long)extent);
        i64 rest = extent + 2 * w.before[k] - w.size[k];
        if (is_ceil && rest % w.stride[k])
            fe_decline(c->l, "pooling that rounds up has no meaning here");
    }
    return w;
}

void fe_lower_max_pool(fe_call *c) /* self kernel stride padding dilation ceil; code: dims */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    windows w = pool_windows(c, x, c->row->code, fe_b(c, 5));
    spatial_list(c, 4, w.n, NULL, 1, w.dilation);
    if (!dtype_is_float((dtype)x->dtype) || fe_is_empty(x))
        fe_decline(l, "pooling of %s", dtype_name((dtype)x->dtype));
    fe_tensor *y = cut_windows(l, x, &w, fe_num(l, x->dtype, (f64)-__builtin_inf()));
    u64 positions = fe_all_dims(y) & ~(((u64)1 << x->rank) - 1);
    fe_ret(c, fe_reduce(l, IR_MAX, y, positions, false));
}

/* self kernel stride padding ceil count_include_pad divisor; code: dims */
void fe_lower_avg_pool(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *y;
    windows w = pool_windows(c, x, c->row->code, fe_b(c, 4));
    if (!dtype_is_float((dtype)x->dtype))
        fe_decline(l, "pooling of %s", dtype_name((dtype)x->dtype));
    y = cut_windows(l, x, &w, fe_num(l, x->dtype, 0));
    u64 positions = fe_all_dims(y) & ~(((u64)1 << x->rank) - 1);
    y = fe_reduce(l, IR_SUM, y, positions, false);
    f64 count = 1;
    bool is_padded = false;
    for (i64 k = 0; k < w.n; k++)
        count *= (f64)w.size[k], is_padded = is_padded || w.before[k];
    if (c->n_args > 6 && fe_has(c, 6)) {
        y = fe_op2n(l, IR_mul, y, 1.0 / fe_f(c, 6));
    } else if (!is_padded || fe_b(c, 5)) {
        y = fe_op2n(l, IR_mul, y, 1.0 / count);
    } else { /* by what of each window lies inside */
        for (i64 k = 0; k < w.n; k++) {
            i64 d = y->rank - w.n + k, n = x->dims[d].extent;
            if (!w.before[k]) {
                y = fe_op2n(l, IR_mul, y, 1.0 / (f64)w.size[k]);
                continue;
            }
            fe_tensor *start = fe_positions(l, y, d);
            start = fe_op2(l, IR_mul, start, fe_int(l, DT_i64, w.stride[k]));
            start = fe_op2(l, IR_sub, start, fe_int(l, DT_i64, w.before[k]));
            fe_tensor *end = fe_op2(l, IR_add, start, fe_int(l, DT_i64, w.size[k]));
            end = fe_op2(l, IR_min, end, fe_int(l, DT_i64, n));
            start = fe_op2(l, IR_max, start, fe_int(l, DT_i64, 0));
            y = fe_op2(l, IR_div, y, fe_cast(l, y->dtype, fe_op2(l, IR_sub, end, start)));
        }
    }
    fe_ret(c, fe_cast(l, given->dtype, y));
}

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
