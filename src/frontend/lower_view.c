/* Operators of ATen that move elements: views, slices, concatenation, repetition, padding. */
#include "frontend/lower.h"

static u64 bit(i64 d)
{
    return (u64)1 << d;
}

/* Sizes with one -1 inferred. */
static void infer(fe_call *c, const fe_tensor *x, i64 *sizes, i64 n)
{
    i64 known = 1, open = -1, total = fe_count(c->l, x);
    for (i64 k = 0; k < n; k++)
        if (sizes[k] == -1 && open < 0)
            open = k;
        else if (sizes[k] < 0 || !mul_i64(known, sizes[k], &known))
            fe_fail(c->l, "a view with a size of %lld", (long long)sizes[k]);
    if (open >= 0)
        sizes[open] = known ? total / known : 0;
    if ((open >= 0 ? known * sizes[open] : known) != total)
        fe_fail(c->l, "a view of %lld elements as %lld", (long long)total, (long long)known);
}

void fe_lower_view(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, *sizes = fe_is(c, 1, &n);
    infer(c, x, sizes, n);
    fe_ret(c, fe_view(c->l, x, n, sizes));
}

void fe_lower_view_as(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0), *other = fe_t(c, 1);
    i64 sizes[FE_MAX_RANK];
    for (i64 d = 0; d < other->rank; d++)
        sizes[d] = other->dims[d].extent;
    infer(c, x, sizes, other->rank);
    fe_ret(c, fe_view(c->l, x, other->rank, sizes));
}

void fe_lower_flatten(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_flatten(c->l, x, fe_axis_i(c, x, 1), fe_axis_i(c, x, 2)));
}

void fe_lower_ravel(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_flatten(c->l, x, 0, MAX(x->rank - 1, 0)));
}

void fe_lower_unflatten(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_axis_i(c, x, 1), n, *part = fe_is(c, 2, &n), sizes[2 * FE_MAX_RANK], m = 0;
    if (x->rank + n > FE_MAX_RANK)
        fe_decline(c->l, "a rank above %d", FE_MAX_RANK);
    for (i64 i = 0; i < x->rank; i++)
        if (i != d)
            sizes[m++] = x->dims[i].extent;
        else
            for (i64 k = 0; k < n; k++)
                sizes[m++] = part[k];
    infer(c, x, sizes, m);
    fe_ret(c, fe_view(c->l, x, m, sizes));
}

void fe_lower_permute(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, *order = fe_is(c, 1, &n);
    u64 seen = 0;
    for (i64 k = 0; k < n; k++) {
        order[k] = fe_axis(c, x, order[k]);
        seen |= bit(order[k]);
    }
    if (n != x->rank || (n < 64 && seen != bit(n) - 1))
        fe_fail(c->l, "no permutation of %lld dims", (long long)x->rank);
    fe_ret(c, fe_permute(c->l, x, order));
}

void fe_lower_transpose(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_transpose(c->l, x, fe_axis_i(c, x, 1), fe_axis_i(c, x, 2)));
}

void fe_lower_t(fe_call *c) /* t, mT: the last two; code 1: all reversed */
{
    fe_tensor *x = fe_t(c, 0);
    i64 order[FE_MAX_RANK];
    for (i64 d = 0; d < x->rank; d++)
        order[d] = x->rank - 1 - d;
    if (c->row->code)
        fe_ret(c, fe_permute(c->l, x, order));
    else
        fe_ret(c, x->rank < 2 ? fe_view(c->l, x, x->rank, (i64[]){x->rank ? x->dims[0].extent : 1})
                              : fe_transpose(c->l, x, x->rank - 2, x->rank - 1));
}

void fe_lower_movedim(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, m, *from = fe_is(c, 1, &n), *to = fe_is(c, 2, &m), order[FE_MAX_RANK];
    u64 taken = 0, placed = 0;
    if (n != m || n > x->rank)
        fe_fail(c->l, "moves %lld dims to %lld places", (long long)n, (long long)m);
    for (i64 k = 0; k < n; k++) {
        order[fe_axis(c, x, to[k])] = fe_axis(c, x, from[k]);
        taken |= bit(fe_axis(c, x, from[k])), placed |= bit(fe_axis(c, x, to[k]));
    }
    if (__builtin_popcountll(taken) != n || __builtin_popcountll(placed) != n)
        fe_fail(c->l, "moves a dim twice");
    for (i64 d = 0, next = 0; d < x->rank; d++) {
        if (placed >> d & 1)
            continue;
        while (taken >> next & 1)
            next++;
        order[d] = next++;
    }
    fe_ret(c, fe_permute(c->l, x, order));
}

void fe_lower_expand(fe_call *c)
{
    i64 n, *sizes = fe_is(c, 1, &n);
    fe_ret(c, fe_expand(c->l, fe_t(c, 0), n, sizes));
}

void fe_lower_expand_as(fe_call *c)
{
    fe_tensor *other = fe_t(c, 1);
    i64 sizes[FE_MAX_RANK];
    for (i64 d = 0; d < other->rank; d++)
        sizes[d] = other->dims[d].extent;
    fe_ret(c, fe_expand(c->l, fe_t(c, 0), other->rank, sizes));
}

/* The first argument: 1 to 64 tensors, none of them None. */
static fe_tensor **all_given(fe_call *c, i64 *n)
{
    fe_tensor **xs = fe_ts(c, 0, n);
    for (i64 k = 0; k < *n; k++)
        if (!xs[k])
            fe_fail(c->l, "a list of tensors with a hole");
    if (*n < 1)
        fe_fail(c->l, "an empty list of tensors");
    return xs;
}

void fe_lower_broadcast_tensors(fe_call *c)
{
    i64 n, sizes[FE_MAX_RANK];
    fe_tensor **xs = all_given(c, &n);
    i64 rank = fe_broadcast(c->l, xs, n, sizes);
    for (i64 k = 0; k < n; k++)
        fe_ret(c, fe_expand(c->l, xs[k], rank, sizes));
}

void fe_lower_meshgrid(fe_call *c)
{
    i64 n, sizes[FE_MAX_RANK];
    fe_tensor **xs = all_given(c, &n);
    if (n > FE_MAX_RANK)
        fe_decline(c->l, "a grid of %lld dims", (long long)n);
    bool is_xy = fe_has(c, 1) && !strcmp(fe_s(c, 1), "xy") && n > 1;
    for (i64 k = 0; k < n; k++) {
        i64 at = is_xy && k < 2 ? 1 - k : k;
        sizes[at] = fe_count(c->l, xs[k]);
    }
    for (i64 k = 0; k < n; k++) {
        i64 at = is_xy && k < 2 ? 1 - k : k;
        fe_tensor *x = xs[k]->rank ? xs[k] : fe_unsqueeze(c->l, xs[k], 0);
        for (i64 d = at + 1; d < n; d++)
            x = fe_unsqueeze(c->l, x, x->rank);
        fe_ret(c, fe_expand(c->l, x, n, sizes));
    }
}

/* x with dims put in as atleast_Nd has it. */
static fe_tensor *at_least(fe_lower *l, fe_tensor *x, i64 rank)
{
    while (x->rank < rank)
        x = fe_unsqueeze(l, x, x->rank == 2 ? 2 : 0);
    return x;
}

void fe_lower_unsqueeze(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_i(c, 1);
    d = d < 0 ? d + x->rank + 1 : d;
    if (d < 0 || d > x->rank)
        fe_fail(c->l, "a dim put in at %lld of rank %lld", (long long)d, (long long)x->rank);
    fe_ret(c, fe_unsqueeze(c->l, x, d));
}

void fe_lower_squeeze(fe_call *c)
{
    fe_ret(c, fe_drop(c->l, fe_t(c, 0), ~(u64)0));
}

void fe_lower_squeeze_dims(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n;
    fe_is(c, 1, &n);
    fe_ret(c, fe_drop(c->l, x, n ? fe_axes(c, x, 1) : 0));
}

/* ---- slices -------------------------------------------------------------------------------- */

static i64 clip(i64 i, i64 n)
{
    return MAX(0, MIN(i < 0 ? i + n : i, n));
}

static i64 slice_range(fe_call *c, const fe_tensor *x, i64 d, i64 first_arg, i64 *start, i64 *step)
{
    i64 n = x->dims[d].extent;
    *start = fe_has(c, first_arg) ? clip(fe_i(c, first_arg), n) : 0;
    i64 end = fe_has(c, first_arg + 1) ? clip(fe_i(c, first_arg + 1), n) : n;
    *step = fe_i(c, first_arg + 2);
    if (*step < 1)
        fe_fail(c->l, "a step of %lld", (long long)*step);
    return end <= *start ? 0 : (end - *start - 1) / *step + 1;
}

void fe_lower_slice(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_dim_i(c, x, 1), start, step, n = slice_range(c, x, d, 2, &start, &step);
    fe_ret(c, fe_slice(c->l, x, d, start, n, step));
}

void fe_lower_slice_scatter(fe_call *c) /* self src dim start end step */
{
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(c->l, x->dtype, fe_t(c, 1));
    i64 d = fe_dim_i(c, x, 2), start, step, n = slice_range(c, x, d, 3, &start, &step);
    fe_ret(c, fe_slice_write(c->l, x, src, d, start, n, step));
}

static i64 position(fe_call *c, const fe_tensor *x, i64 d, i64 arg)
{
    i64 i = fe_i(c, arg), n = x->dims[d].extent;
    if (i < -n || i >= n)
        fe_fail(c->l, "index %lld of a dim of %lld", (long long)i, (long long)n);
    return i < 0 ? i + n : i;
}

void fe_lower_select(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_dim_i(c, x, 1);
    fe_ret(c, fe_select(c->l, x, d, position(c, x, d, 2)));
}

void fe_lower_select_scatter(fe_call *c) /* self src dim index */
{
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(c->l, x->dtype, fe_t(c, 1));
    i64 d = fe_dim_i(c, x, 2);
    fe_ret(c, fe_slice_write(c->l, x, fe_unsqueeze(c->l, src, d), d, position(c, x, d, 3), 1, 1));
}

void fe_lower_narrow(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_dim_i(c, x, 1), start = fe_i(c, 2), n = fe_i(c, 3), extent = x->dims[d].extent;
    start = start < 0 ? start + extent : start;
    if (start < 0 || n < 0 || start > extent || n > extent - start)
        fe_fail(c->l, "%lld elements from %lld of a dim of %lld", (long long)n, (long long)start,
                (long long)extent);
    fe_ret(c, fe_slice(c->l, x, d, start, n, 1));
}

/* No more results than the file declares: a count made of a size may be huge. */
static void few_results(fe_call *c, i64 n)
{
    const fe_node *node = c->node;
    i64 declared = node->n_outputs == 1 && node->outputs[0].kind == FE_ARG_LIST ? node->outputs[0].n
                                                                                : node->n_outputs;
    if (n > declared)
        fe_fail(c->l, "%lld results, the file declares %lld", (long long)n, (long long)declared);
}

static void pieces(fe_call *c, const fe_tensor *x, i64 d, i64 size)
{
    i64 extent = x->dims[d].extent;
    if (size < 1 && extent)
        fe_fail(c->l, "pieces of %lld", (long long)size);
    few_results(c, extent ? (extent - 1) / size + 1 : 1);
    i64 start = 0;
    do {
        i64 n = MIN(size, extent - start);
        fe_ret(c, fe_slice(c->l, x, d, start, n, 1));
        start += n;
    } while (start < extent);
}

void fe_lower_split(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    pieces(c, x, fe_dim_i(c, x, 2), fe_i(c, 1));
}

void fe_lower_chunk(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_dim_i(c, x, 2), n = fe_i(c, 1), extent = x->dims[d].extent;
    if (n < 1)
        fe_fail(c->l, "%lld chunks", (long long)n);
    pieces(c, x, d, extent ? (extent - 1) / n + 1 : 0);
}

void fe_lower_tensor_split(fe_call *c) /* so many pieces; the first ones are longer by one */
{
    fe_tensor *x = fe_t(c, 0);
    i64 n = fe_i(c, 1), d = fe_dim_i(c, x, 2), extent = x->dims[d].extent, start = 0;
    if (n < 1)
        fe_fail(c->l, "%lld pieces", (long long)n);
    few_results(c, n);
    for (i64 k = 0; k < n; k++) {
        i64 size = extent / n + (k < extent % n);
        fe_ret(c, fe_slice(c->l, x, d, start, size, 1));
        start += size;
    }
}

/* Pieces that end before each of the given positions. */
static void split_at(fe_call *c, fe_tensor *x, i64 d, const i64 *at, i64 n)
{
    i64 extent = x->dims[d].extent, start = 0;
    few_results(c, n + 1);
    for (i64 k = 0; k <= n; k++) {
        i64 end = k < n ? clip(at[k], extent) : extent;
        fe_ret(c, fe_slice(c->l, x, d, MIN(start, extent), MAX(end - start, 0), 1));
        start = end;
    }
}

void fe_lower_tensor_split_at(fe_call *c) /* self indices dim */
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, *at = fe_is(c, 1, &n);
    split_at(c, x, fe_dim_i(c, x, 2), at, n);
}

/* hsplit, vsplit, dsplit: along dim `code`, of a vector along dim 0; argument 1: how many or where.
 */
void fe_lower_split_along(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = x->rank == 1 ? 0 : c->row->code, n, *at = fe_is(c, 1, &n);
    if (d >= x->rank)
        fe_fail(c->l, "dim %lld of a tensor of rank %lld", (long long)d, (long long)x->rank);
    i64 extent = x->dims[d].extent;
    if (c->args[1]->kind == FE_ARG_LIST) {
        split_at(c, x, d, at, n);
        return;
    }
    if (*at < 1 || extent % *at)
        fe_fail(c->l, "%lld pieces of %lld", (long long)*at, (long long)extent);
    pieces(c, x, d, extent / *at);
}

void fe_lower_split_sizes(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, *sizes = fe_is(c, 1, &n), d = fe_dim_i(c, x, 2), start = 0;
    for (i64 k = 0; k < n; start += sizes[k++]) {
        if (sizes[k] < 0 || sizes[k] > x->dims[d].extent - start)
            fe_fail(c->l, "pieces that exceed the dim");
        fe_ret(c, fe_slice(c->l, x, d, start, sizes[k], 1));
    }
}

void fe_lower_unbind(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 d = fe_dim_i(c, x, 1);
    few_results(c, x->dims[d].extent);
    for (i64 k = 0; k < x->dims[d].extent; k++)
        fe_ret(c, fe_select(c->l, x, d, k));
}

/* ---- joining  ------------------------------------------------------------------------------ */

static fe_tensor **promoted(fe_call *c, i64 *n)
{
    fe_tensor **xs = all_given(c, n);
    u8 t = fe_promote(xs, *n);
    for (i64 k = 0; k < *n; k++)
        xs[k] = fe_cast(c->l, t, xs[k]);
    return xs;
}

void fe_lower_cat(fe_call *c)
{
    i64 n;
    fe_tensor **xs = promoted(c, &n);
    const fe_tensor *widest = xs[0];
    for (i64 k = 1; k < n; k++)
        if (xs[k]->rank > widest->rank)
            widest = xs[k];
    fe_ret(c, fe_cat(c->l, xs, n, fe_axis_i(c, widest, 1)));
}

void fe_lower_stack(fe_call *c)
{
    i64 n;
    fe_tensor **xs = promoted(c, &n);
    i64 d = fe_i(c, 1);
    d = d < 0 ? d + xs[0]->rank + 1 : d;
    if (d < 0 || d > xs[0]->rank)
        fe_fail(c->l, "a dim put in at %lld of rank %lld", (long long)d, (long long)xs[0]->rank);
    for (i64 k = 0; k < n; k++)
        xs[k] = fe_unsqueeze(c->l, xs[k], d);
    fe_ret(c, fe_cat(c->l, xs, n, d));
}

void fe_lower_hstack(fe_call *c) /* code: the dim; hstack of vectors is along dim 0 */
{
    i64 n, least = c->row->code == 0 ? 2 : 1;
    fe_tensor **xs = promoted(c, &n);
    for (i64 k = 0; k < n; k++)
        while (xs[k]->rank < least)
            xs[k] = fe_unsqueeze(c->l, xs[k], 0);
    fe_ret(c, fe_cat(c->l, xs, n, xs[0]->rank == 1 ? 0 : c->row->code));
}

/* ---- repetition  --------------------------------------------------------------------------- */

static fe_tensor *repeated(fe_call *c, fe_tensor *x, const i64 *times, i64 n)
{
    while (x->rank < n)
        x = fe_unsqueeze(c->l, x, 0);
    for (i64 d = 0; d < n; d++)
        if (times[d] != 1) {
            if (times[d] < 0)
                fe_fail(c->l, "repeats %lld times", (long long)times[d]);
            x = fe_repeat_dim(c->l, x, d, times[d], false);
        }
    return x;
}

void fe_lower_repeat(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, *times = fe_is(c, 1, &n), all[FE_MAX_RANK];
    for (i64 d = 0; d < x->rank; d++) /* tile: counts missing on the left are 1 */
        all[d] = d < x->rank - n ? 1 : times[d - (x->rank - n)];
    if (n >= x->rank)
        fe_ret(c, repeated(c, x, times, n));
    else
        fe_ret(c, repeated(c, x, all, x->rank));
}

void fe_lower_repeat_interleave(fe_call *c) /* self repeats dim */
{
    fe_tensor *x = fe_t(c, 0);
    if (!fe_has(c, 2))
        x = fe_flatten(c->l, x, 0, MAX(x->rank - 1, 0));
    if (x->rank == 0)
        x = fe_unsqueeze(c->l, x, 0);
    i64 d = fe_has(c, 2) ? fe_axis_i(c, x, 2) : 0;
    fe_ret(c, fe_repeat_dim(c->l, x, d, fe_i(c, 1), true));
}

void fe_lower_dstack(fe_call *c) /* parts of at least three dims, along the third */
{
    i64 n;
    fe_tensor **xs = promoted(c, &n);
    for (i64 k = 0; k < n; k++)
        xs[k] = at_least(c->l, xs[k], 3);
    fe_ret(c, fe_cat(c->l, xs, n, 2));
}

void fe_lower_column_stack(fe_call *c) /* vectors are columns */
{
    i64 n;
    fe_tensor **xs = promoted(c, &n);
    for (i64 k = 0; k < n; k++)
        while (xs[k]->rank < 2)
            xs[k] = fe_unsqueeze(c->l, xs[k], xs[k]->rank);
    fe_ret(c, fe_cat(c->l, xs, n, 1));
}

void fe_lower_at_least(fe_call *c) /* code: the rank; a tensor or a list of them */
{
    i64 n = 1;
    fe_tensor *one, **xs = &one;
    if (c->args[0] && c->args[0]->kind == FE_ARG_LIST)
        xs = all_given(c, &n);
    else
        one = fe_t(c, 0);
    for (i64 k = 0; k < n; k++)
        fe_ret(c, at_least(c->l, xs[k], c->row->code));
}

void fe_lower_diff(fe_call *c) /* self n dim prepend append */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *parts[3];
    i64 d = fe_dim_i(c, x, 2), count = 0;
    if (fe_has(c, 3))
        parts[count++] = fe_t(c, 3);
    parts[count++] = x;
    if (fe_has(c, 4))
        parts[count++] = fe_t(c, 4);
    for (i64 k = 0; k < count; k++)
        if (parts[k]->rank != x->rank || parts[k]->dtype != x->dtype)
            fe_decline(l, "parts of another rank or dtype");
    x = fe_cat(l, parts, count, d);
    for (i64 k = 0; k < fe_i(c, 1); k++) {
        i64 m = x->dims[d].extent - 1;
        if (m < 1) {
            x = fe_slice(l, x, d, 0, 0, 1);
            break;
        }
        fe_tensor *right = fe_slice(l, x, d, 1, m, 1), *left = fe_slice(l, x, d, 0, m, 1);
        x = fe_op2(l, x->dtype == DT_bool ? IR_xor : IR_sub, right, left);
    }
    fe_ret(c, x);
}

/* ---- order and padding  -------------------------------------------------------------------- */

void fe_lower_flip(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    i64 n;
    fe_is(c, 1, &n);
    u64 dims = n ? fe_axes(c, x, 1) : 0;
    for (i64 d = 0; d < x->rank; d++)
        if (dims >> d & 1)
            x = fe_flip(c->l, x, d);
    fe_ret(c, x);
}

void fe_lower_flip_fixed(fe_call *c) /* fliplr, flipud: code is the dim */
{
    fe_tensor *x = fe_t(c, 0);
    if (x->rank <= c->row->code)
        fe_fail(c->l, "a tensor of rank %lld", (long long)x->rank);
    fe_ret(c, fe_flip(c->l, x, c->row->code));
}

void fe_lower_rot90(fe_call *c) /* self k dims */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 n, *dims = fe_is(c, 2, &n), turns = ((fe_i(c, 1) % 4) + 4) % 4;
    if (n != 2)
        fe_fail(l, "a turn in %lld dims", (long long)n);
    i64 a = fe_axis(c, x, dims[0]), b = fe_axis(c, x, dims[1]);
    if (a == b || x->rank < 2)
        fe_fail(l, "a turn in one dim");
    if (turns == 2)
        x = fe_flip(l, fe_flip(l, x, a), b);
    else if (turns == 1)
        x = fe_transpose(l, fe_flip(l, x, b), a, b);
    else if (turns == 3)
        x = fe_transpose(l, fe_flip(l, x, a), a, b);
    fe_ret(c, x);
}

static fe_tensor *rolled(fe_lower *l, fe_tensor *x, i64 d, i64 shift)
{
    i64 n = x->dims[d].extent;
    if (n == 0)
        return x;
    shift = (shift % n + n) % n;
    if (shift == 0)
        return x;
    fe_tensor *parts[2] = {fe_slice(l, x, d, n - shift, shift, 1),
                           fe_slice(l, x, d, 0, n - shift, 1)};
    return fe_cat(l, parts, 2, d);
}

void fe_lower_roll(fe_call *c) /* self shifts dims */
{
    fe_tensor *x = fe_t(c, 0);
    i64 n, m, *shifts = fe_is(c, 1, &n), *dims = fe_is(c, 2, &m);
    if (m == 0 && n == 1) { /* as one vector */
        i64 sizes[FE_MAX_RANK];
        for (i64 d = 0; d < x->rank; d++)
            sizes[d] = x->dims[d].extent;
        fe_tensor *y = rolled(c->l, fe_flatten(c->l, x, 0, MAX(x->rank - 1, 0)), 0, shifts[0]);
        fe_ret(c, fe_view(c->l, y, x->rank, sizes));
        return;
    }
    if (n != m)
        fe_fail(c->l, "%lld shifts of %lld dims", (long long)n, (long long)m);
    for (i64 k = 0; k < n; k++)
        x = rolled(c->l, x, fe_axis(c, x, dims[k]), shifts[k]);
    fe_ret(c, x);
}

/* reflect, replicate, circular: positions outside are other positions inside. */
static fe_tensor *padded_inside(fe_call *c, fe_tensor *x, i64 d, i64 before, i64 after,
                                const char *mode)
{
    fe_lower *l = c->l;
    i64 n = x->dims[d].extent;
    if (before < 0 || after < 0 || n == 0)
        fe_decline(l, "a negative %s pad", mode);
    fe_tensor *parts[3];
    i64 count = 0;
    for (int side = 0; side < 2; side++) {
        i64 add = side ? after : before;
        if (side == 1)
            parts[count++] = x;
        if (!add)
            continue;
        if (!strcmp(mode, "replicate")) {
            fe_tensor *edge = fe_slice(l, x, d, side ? n - 1 : 0, 1, 1);
            i64 sizes[FE_MAX_RANK];
            for (i64 i = 0; i < x->rank; i++)
                sizes[i] = i == d ? add : x->dims[i].extent;
            parts[count++] = fe_expand(l, edge, x->rank, sizes);
        } else if (!strcmp(mode, "reflect") && add < n) {
            parts[count++] = fe_flip(l, fe_slice(l, x, d, side ? n - 1 - add : 1, add, 1), d);
        } else if (!strcmp(mode, "circular") && add <= n) {
            parts[count++] = fe_slice(l, x, d, side ? 0 : n - add, add, 1);
        } else {
            fe_decline(l, "a %s pad of %lld on a dim of %lld", mode, (long long)add, (long long)n);
        }
    }
    return fe_cat(l, parts, count, d);
}

void fe_lower_pad(fe_call *c) /* self pad mode value; code 1: self pad value */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 n, *pad = fe_is(c, 1, &n);
    const char *mode = c->row->code ? "constant" : fe_s(c, 2);
    i64 value_arg = c->row->code ? 2 : 3;
    fe_scalar zero = {DK_INT, 0, 0};
    fe_tensor *value = fe_has(c, value_arg) ? fe_t(c, value_arg) : fe_scalar_tensor(l, zero);
    value = fe_cast(l, x->dtype, value);
    if (n % 2 || n / 2 > x->rank)
        fe_fail(l, "%lld pads for rank %lld", (long long)n, (long long)x->rank);
    for (i64 k = 0; k < n / 2; k++) {
        i64 d = x->rank - 1 - k, before = pad[2 * k], after = pad[2 * k + 1];
        if (!before && !after)
            continue;
        x = !strcmp(mode, "constant") ? fe_pad(l, x, d, before, after, value)
                                      : padded_inside(c, x, d, before, after, mode);
    }
    fe_ret(c, x);
}

/* ---- diagonals, windows, shuffles  --------------------------------------------------------- */

void fe_lower_diagonal(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    fe_ret(c, fe_diagonal(c->l, x, fe_i(c, 1), fe_axis_i(c, x, 2), fe_axis_i(c, x, 3)));
}

void fe_lower_diagonal_scatter(fe_call *c) /* self src offset dim1 dim2 */
{
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(c->l, x->dtype, fe_t(c, 1));
    fe_ret(c, fe_diagonal_write(c->l, x, src, fe_i(c, 2), fe_axis_i(c, x, 3), fe_axis_i(c, x, 4)));
}

/* fill_diagonal: the diagonal of a matrix, of equal extents beyond two dims; with `wrap` it goes on
 * below a tall matrix. */
void fe_lower_fill_diagonal(fe_call *c) /* self fill_value wrap */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *value = fe_cast(l, x->dtype, fe_t(c, 1));
    if (x->rank < 2)
        fe_fail(l, "a diagonal of a tensor of rank %lld", (long long)x->rank);
    for (i64 d = 1; x->rank > 2 && d < x->rank; d++)
        if (x->dims[d].extent != x->dims[0].extent)
            fe_fail(l, "a diagonal of unequal extents");
    fe_tensor *i = fe_positions(l, x, 0), *hit = NULL;
    if (fe_b(c, 2) && x->rank == 2)
        i = fe_op2(l, IR_mod, i, fe_int(l, DT_i64, x->dims[1].extent + 1));
    for (i64 d = 1; d < x->rank; d++) {
        fe_tensor *is = fe_op2(l, IR_eq, i, fe_positions(l, x, d));
        hit = hit ? fe_op2(l, IR_and, hit, is) : is;
    }
    fe_ret(c, fe_where(l, hit, value, x));
}

/* The last dim of self on a diagonal of two new dims. */
void fe_lower_diag_embed(fe_call *c) /* self offset dim1 dim2 */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 offset = fe_i(c, 1), rank = x->rank + 1, d1 = fe_i(c, 2), d2 = fe_i(c, 3);
    d1 = d1 < 0 ? d1 + rank : d1, d2 = d2 < 0 ? d2 + rank : d2;
    if (x->rank < 1 || rank > FE_MAX_RANK || d1 < 0 || d2 < 0 || d1 >= rank || d2 >= rank ||
        d1 == d2 || offset < -(1 << 20) || offset > 1 << 20)
        fe_fail(l, "a diagonal in dims %lld and %lld", (long long)d1, (long long)d2);
    i64 sizes[FE_MAX_RANK], n = x->dims[x->rank - 1].extent + (offset < 0 ? -offset : offset);
    for (i64 d = 0, k = 0; d < rank; d++)
        sizes[d] = d == d1 || d == d2 ? n : x->dims[k++].extent;
    fe_tensor *zero = fe_full(l, x->dtype, (fe_scalar){DK_INT, 0, 0}, rank, sizes);
    fe_ret(c, fe_diagonal_write(l, zero, x, offset, d1, d2));
}

void fe_lower_diag(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 offset = fe_i(c, 1);
    if (x->rank == 2) {
        fe_ret(c, fe_diagonal(l, x, offset, 0, 1));
        return;
    }
    if (x->rank != 1)
        fe_fail(l, "a diagonal of a tensor of rank %lld", (long long)x->rank);
    /* A vector on a diagonal: square with zeros elsewhere, then shifted by padding. */
    fe_tensor *row = fe_unsqueeze(l, x, 1);
    i64 n = x->dims[0].extent;
    fe_tensor *other = fe_unsqueeze(l, fe_iota(l, n), 0);
    fe_tensor *zero = fe_cast(l, x->dtype, fe_scalar_tensor(l, (fe_scalar){DK_INT, 0, 0}));
    fe_tensor *hit = fe_op2(l, IR_eq, fe_positions(l, row, 0), other);
    fe_tensor *y = fe_where(l, hit, row, zero);
    if (offset) {
        y = fe_pad(l, y, 1, MAX(offset, 0), MAX(-offset, 0), zero);
        y = fe_pad(l, y, 0, MAX(-offset, 0), MAX(offset, 0), zero);
    }
    fe_ret(c, y);
}

void fe_lower_unfold(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    if (!x->rank)
        fe_decline(c->l, "a window on a number");
    i64 d = fe_dim_i(c, x, 1), size = fe_i(c, 2), step = fe_i(c, 3);
    if (size < 0 || size > x->dims[d].extent || step < 1)
        fe_fail(c->l, "windows of %lld by %lld on a dim of %lld", (long long)size, (long long)step,
                (long long)x->dims[d].extent);
    fe_ret(c, fe_unfold(c->l, x, d, size, step));
}

/* The elements of an operand in the order of its memory, and the offset of the first. Declines
 * memory that the operand does not fill. */
static fe_tensor *as_memory(fe_call *c, fe_tensor *x, i64 order[FE_MAX_RANK], i64 *offset)
{
    fe_lower *l = c->l;
    const fe_value *v = &c->scope->graph->values[c->args[0]->value.i];
    i64 strides[FE_MAX_RANK], step = 1;
    if (c->args[0]->kind != FE_ARG_TENSOR || v->rank != x->rank || !v->strides)
        fe_decline(l, "strides are no part of a value here");
    *offset = fe_eval(l, v->offset, v->name);
    for (i64 d = 0; d < x->rank; d++) {
        strides[d] = fe_eval(l, v->strides[d], v->name);
        i64 at = d; /* by stride, the largest first */
        for (; at > 0 && strides[order[at - 1]] < strides[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (i64 k = x->rank - 1; k >= 0; k--) {
        i64 n = x->dims[order[k]].extent;
        if ((n > 1 && strides[order[k]] != step) || !mul_i64(step, MAX(n, 1), &step))
            fe_decline(l, "strides of an operand that does not fill its memory");
    }
    fe_tensor *y = fe_permute(l, x, order);
    return fe_flatten(l, y, 0, MAX(y->rank - 1, 0));
}

/* Sizes and strides of arguments `first` …; the offset, counted from the operand's first element.
 * All positions lie within n. */
static i64 strided_range(fe_call *c, i64 first, i64 n, i64 base, const i64 **sizes,
                         const i64 **strides, i64 *count)
{
    i64 m;
    *sizes = fe_is(c, first, count);
    *strides = fe_is(c, first + 1, &m);
    i64 start = fe_has(c, first + 2) ? fe_i(c, first + 2) : base, last;
    if (start < 0 || base < 0)
        fe_fail(c->l, "an offset of %lld", (long long)MIN(start, base));
    last = start -= base;
    bool is_empty = false;
    if (*count != m || m > FE_MAX_RANK)
        fe_fail(c->l, "%lld strides for %lld sizes", (long long)m, (long long)*count);
    for (i64 k = 0; k < m; k++) {
        i64 reach;
        if ((*sizes)[k] < 0 || (*strides)[k] < 0)
            fe_fail(c->l, "a size of %lld, a stride of %lld", (long long)(*sizes)[k],
                    (long long)(*strides)[k]);
        is_empty = is_empty || (*sizes)[k] == 0;
        if ((*sizes)[k] > 1 &&
            (!mul_i64((*sizes)[k] - 1, (*strides)[k], &reach) || !add_i64(last, reach, &last)))
            fe_fail(c->l, "positions that do not fit 64 bits");
    }
    if (!is_empty && (start < 0 || last >= n))
        fe_decline(c->l, "strides that leave the operand");
    return start;
}

void fe_lower_as_strided(fe_call *c) /* self size stride storage_offset */
{
    fe_lower *l = c->l;
    i64 order[FE_MAX_RANK], base, n;
    const i64 *sizes, *strides;
    fe_tensor *flat = as_memory(c, fe_t(c, 0), order, &base);
    i64 start = strided_range(c, 1, flat->dims[0].extent, base, &sizes, &strides, &n);
    fe_ret(c, fe_slice_by(l, flat, 0, start, n, sizes, strides));
}

void fe_lower_as_strided_scatter(fe_call *c) /* self src size stride storage_offset */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(l, x->dtype, fe_t(c, 1)), *at;
    i64 order[FE_MAX_RANK], back[FE_MAX_RANK], shape[FE_MAX_RANK], base, n;
    const i64 *sizes, *strides;
    fe_tensor *flat = as_memory(c, x, order, &base);
    at = fe_int(l, DT_i64, strided_range(c, 2, flat->dims[0].extent, base, &sizes, &strides, &n));
    src = fe_expand(l, src, n, sizes);
    if (x->rank == 2 && n == 1 && order[0] == 0 && strides[0] == x->dims[1].extent + 1 &&
        !(fe_has(c, 4) && fe_i(c, 4) != base) &&
        sizes[0] == MIN(x->dims[0].extent, x->dims[1].extent)) { /* as fill_diagonal_ writes it */
        fe_ret(c, fe_diagonal_write(l, x, src, 0, 0, 1));
        return;
    }
    for (i64 k = 0; k < n; k++) {
        fe_tensor *step = fe_op2(l, IR_mul, fe_iota(l, sizes[k]), fe_int(l, DT_i64, strides[k]));
        for (i64 d = k + 1; d < n; d++)
            step = fe_unsqueeze(l, step, step->rank);
        at = fe_op2(l, IR_add, at, step);
    }
    fe_tensor *y = fe_put(l, flat, fe_expand(l, at, n, sizes), src);
    for (i64 k = 0; k < x->rank; k++)
        back[order[k]] = k, shape[k] = x->dims[order[k]].extent;
    fe_ret(c, fe_permute(l, fe_view(l, y, x->rank, shape), back));
}

void fe_lower_pixel_shuffle(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 r = fe_i(c, 1), n = x->rank, sizes[FE_MAX_RANK], order[FE_MAX_RANK];
    if (n < 3 || n > FE_MAX_RANK - 2 || r < 1 || r > 1 << 20 || x->dims[n - 3].extent % (r * r))
        fe_fail(l, "channels that are no multiple of %lld", (long long)(r * r));
    for (i64 d = 0; d < n - 3; d++)
        sizes[d] = x->dims[d].extent, order[d] = d;
    i64 b = n - 3, ch = x->dims[b].extent / (r * r), h = x->dims[b + 1].extent,
        w = x->dims[b + 2].extent;
    sizes[b] = ch, sizes[b + 1] = r, sizes[b + 2] = r, sizes[b + 3] = h, sizes[b + 4] = w;
    order[b] = b, order[b + 1] = b + 3, order[b + 2] = b + 1, order[b + 3] = b + 4,
    order[b + 4] = b + 2;
    fe_tensor *y = fe_permute(l, fe_view(l, x, n + 2, sizes), order);
    sizes[b] = ch, sizes[b + 1] = h * r, sizes[b + 2] = w * r;
    fe_ret(c, fe_view(l, y, n, sizes));
}

void fe_lower_pixel_unshuffle(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 r = fe_i(c, 1), n = x->rank, sizes[FE_MAX_RANK], order[FE_MAX_RANK];
    if (n < 3 || n > FE_MAX_RANK - 2 || r < 1 || r > 1 << 20 || x->dims[n - 2].extent % r ||
        x->dims[n - 1].extent % r)
        fe_fail(l, "an image that is no multiple of %lld", (long long)r);
    for (i64 d = 0; d < n - 3; d++)
        sizes[d] = x->dims[d].extent, order[d] = d;
    i64 b = n - 3, ch = x->dims[b].extent, h = x->dims[b + 1].extent / r,
        w = x->dims[b + 2].extent / r;
    sizes[b] = ch, sizes[b + 1] = h, sizes[b + 2] = r, sizes[b + 3] = w, sizes[b + 4] = r;
    order[b] = b, order[b + 1] = b + 2, order[b + 2] = b + 4, order[b + 3] = b + 1,
    order[b + 4] = b + 3;
    fe_tensor *y = fe_permute(l, fe_view(l, x, n + 2, sizes), order);
    sizes[b] = ch * r * r, sizes[b + 1] = h, sizes[b + 2] = w;
    fe_ret(c, fe_view(l, y, n, sizes));
}

void fe_lower_channel_shuffle(fe_call *c) /* self groups */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 g = fe_i(c, 1), back[FE_MAX_RANK], sizes[FE_MAX_RANK + 1];
    if (x->rank < 3 || g < 1 || x->dims[1].extent % g)
        fe_fail(l, "channels that are no multiple of %lld", (long long)g);
    for (i64 d = 0; d < x->rank; d++)
        back[d] = sizes[d + (d > 1)] = x->dims[d].extent;
    sizes[1] = g, sizes[2] = back[1] / g;
    fe_tensor *y = fe_transpose(l, fe_view(l, x, x->rank + 1, sizes), 1, 2);
    fe_ret(c, fe_view(l, y, x->rank, back));
}

/* Keeps what lies on one side of a diagonal; selection, so that what is dropped leaves no NaN. */
void fe_lower_tril(fe_call *c) /* code 0: lower, 1: upper */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    if (x->rank < 2)
        fe_fail(l, "a triangle of a tensor of rank %lld", (long long)x->rank);
    fe_tensor *i = fe_positions(l, x, x->rank - 2), *j = fe_positions(l, x, x->rank - 1);
    fe_tensor *d = fe_op2(l, IR_sub, j, i), *edge = fe_int(l, DT_i64, fe_i(c, 1));
    fe_tensor *keep = c->row->code ? fe_op2(l, IR_le, edge, d) : fe_op2(l, IR_le, d, edge);
    fe_tensor *zero = fe_cast(l, x->dtype, fe_scalar_tensor(l, (fe_scalar){DK_INT, 0, 0}));
    fe_ret(c, fe_where(l, keep, x, zero));
}
