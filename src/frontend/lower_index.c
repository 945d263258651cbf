/* Operators of ATen whose positions depend on data: gather and scatter, and what they are made of
 * for sort and scan (lower_order.c). They have a meaning in the IR, but no algebra: plain kernels
 * run them, so each is a boundary of optimisation. Negative indices wrap where eager's do. */
#include "frontend/lower.h"

static const char plain[] = "positions depend on data: a plain kernel";

static fe_tensor *wrapped(fe_lower *l, fe_tensor *i, i64 n)
{
    i = fe_cast(l, DT_i64, i);
    fe_tensor *below = fe_op2(l, IR_lt, i, fe_int(l, DT_i64, 0));
    return fe_where(l, below, fe_op2(l, IR_add, i, fe_int(l, DT_i64, n)), i);
}

/* The variables that stand for dim d, one and pinned; a term of extent 1 is read without. */
static u32 axis_of(fe_lower *l, const fe_tensor *x, i64 d)
{
    fe_vars v = fe_flat(l->space, x->dims[d].vars);
    return v.n ? v.at[0] : 0;
}

fe_tensor *fe_gather(fe_lower *l, const fe_tensor *x, const i64 *d, fe_tensor *const *idx, i64 n)
{
    if (n == 1 && idx[0]->rank == 1 && x->term) {
        fe_tensor *y = fe_read_known(l, x, d[0], idx[0]);
        i64 order[FE_MAX_RANK];
        for (i64 k = 0; k < x->rank && y; k++) /* the index dim goes first */
            order[k] = k == 0 ? d[0] : k - (k <= d[0]);
        if (y)
            return fe_permute(l, y, order);
    }
    fe_note_plain(l, plain);
    fe_tensor **xs = NEW_N(l->a, fe_tensor *, n + 1);
    for (i64 k = 0; k < n; k++)
        xs[k] = idx[k];
    fe_broadcast_all(l, xs, n);
    i64 rank = xs[0]->rank, m = rank;
    if (rank + x->rank > 60)
        fe_decline(l, "an index of rank %lld", (long long)rank);
    xs[n] = (fe_tensor *)x;
    u64 read = 0;
    for (i64 k = 0; k < n; k++) {
        xs[n] = fe_solid(l, xs[n], d[k]);
        read |= (u64)1 << d[k];
    }
    i8 li[64], lx[64];
    for (i64 k = 0; k < rank; k++)
        li[k] = (i8)k;
    for (i64 k = 0; k < x->rank; k++)
        lx[k] = read >> k & 1 ? -1 : (i8)m++;
    fe_dim out[64];
    bool is_empty = !x->term || fe_is_empty(xs[0]);
    fe_dim *dims = NEW_N(l->a, fe_dim, m);
    if (is_empty) {
        for (i64 k = 0; k < rank; k++)
            dims[k] = fe_dim_new(l, xs[0]->dims[k].extent);
        for (i64 k = 0; k < x->rank; k++)
            if (lx[k] >= 0)
                dims[lx[k]] = fe_dim_new(l, x->dims[k].extent);
        return fe_tensor_new(l, 0, x->dtype, m, dims);
    }
    const i8 **labels = NEW_N(l->a, const i8 *, n + 1);
    for (i64 k = 0; k < n; k++)
        labels[k] = li;
    labels[n] = lx;
    fe_align(l, xs, labels, n + 1, out, false);
    VEC(u32) axis = {0}, args = {0};
    vec_push(l->a, &args, xs[n]->term);
    for (i64 k = 0; k < n; k++)
        if (xs[n]->dims[d[k]].extent > 1) {
            vec_push(l->a, &axis, axis_of(l, xs[n], d[k]));
            vec_push(l->a, &args, xs[k]->term);
        }
    for (i64 k = 0; k < m; k++)
        dims[k] = out[k];
    u32 term = xs[n]->term;
    if (axis.n) {
        VEC(u32) apart = {0};
        for (i64 k = 0; k < axis.n; k++)
            vec_push(l->a, &apart, axis.at[k]);
        for (i64 k = 0; k < 64; k++)
            for (i64 v = 0; v < out[k].vars.n; v++)
                vec_push(l->a, &apart, out[k].vars.at[v]);
        fe_keep_apart(l->space, (fe_vars){apart.at, apart.n});
        term = fe_draft_new(l, (fe_draft){.op = IR_gather,
                                          .dtype = x->dtype,
                                          .args = args.at,
                                          .arg_count = args.n,
                                          .axis = {axis.at, axis.n}});
    }
    return fe_tensor_new(l, term, x->dtype, m, dims);
}

fe_tensor *fe_take_along(fe_lower *l, const fe_tensor *x, i64 d, const fe_tensor *idx)
{
    fe_note_plain(l, plain);
    if (x->rank == 0)
        return fe_fill_like(l, idx, x);
    if (idx->rank != x->rank || x->rank > 60)
        fe_fail(l, "an index of rank %lld into rank %lld", (long long)idx->rank,
                (long long)x->rank);
    /* The index is the operand to be renamed: where it is made of iotas that costs nothing. */
    fe_tensor *xs[2] = {(fe_tensor *)x, (fe_tensor *)idx};
    for (i64 k = 0; k < x->rank; k++)
        if (k != d && idx->dims[k].extent < x->dims[k].extent)
            xs[0] = fe_slice(l, xs[0], k, 0, idx->dims[k].extent, 1);
    fe_dim out[64], *dims = NEW_N(l->a, fe_dim, x->rank);
    if (!x->term || fe_is_empty(idx))
        return fe_tensor_new(l, 0, x->dtype, idx->rank, idx->dims);
    xs[0] = fe_solid(l, xs[0], d);
    i8 li[64], lx[64];
    for (i64 k = 0; k < x->rank; k++)
        li[k] = (i8)k, lx[k] = k == d ? 63 : (i8)k; /* 63: read, no dim of the result */
    const i8 *labels[2] = {lx, li};
    fe_align(l, xs, labels, 2, out, false);
    for (i64 k = 0; k < x->rank; k++)
        dims[k] = out[k];
    u32 axis = axis_of(l, xs[0], d), args[2] = {xs[0]->term, xs[1]->term}, term = args[0];
    if (axis)
        term = fe_draft_new(l, (fe_draft){.op = IR_gather,
                                          .dtype = x->dtype,
                                          .args = args,
                                          .arg_count = 2,
                                          .axis = {&axis, 1}});
    return fe_tensor_new(l, term, x->dtype, x->rank, dims);
}

fe_tensor *fe_scan(fe_lower *l, ir_reducer r, const fe_tensor *x, i64 d)
{
    fe_note_plain(l, "looks at a whole axis: a plain kernel");
    if (!x->rank || x->dims[d].extent < 2 || !x->term)
        return fe_tensor_new(l, x->term, x->dtype, x->rank, x->dims);
    fe_tensor *y = fe_solid(l, x, d);
    u32 term = fe_draft_new(l, (fe_draft){.op = IR_scan,
                                          .dtype = x->dtype,
                                          .reducer = (u8)r,
                                          .args = &y->term,
                                          .arg_count = 1,
                                          .axis = fe_flat(l->space, y->dims[d].vars)});
    return fe_tensor_new(l, term, x->dtype, y->rank, y->dims);
}

fe_tensor *fe_argsort(fe_lower *l, const fe_tensor *x, i64 d, i64 k, bool descending)
{
    fe_note_plain(l, "looks at a whole axis: a plain kernel");
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank);
    fe_tensor *y = fe_solid(l, x, d);
    for (i64 i = 0; i < x->rank; i++)
        dims[i] = y->dims[i];
    i64 ints = descending;
    if (x->dims[d].extent < 2 || !x->term || k == 0) {
        dims[d] = fe_dim_new(l, k);
        return fe_tensor_new(l, fe_int(l, DT_i64, 0)->term, DT_i64, x->rank, dims);
    }
    fe_draft draft = {.op = IR_argsort,
                      .dtype = DT_i64,
                      .args = &y->term,
                      .arg_count = 1,
                      .axis = fe_flat(l->space, y->dims[d].vars),
                      .ints = {&ints, 1}};
    if (k == 1) { /* the extreme's first position: no sort */
        fe_tensor *best = fe_reduce(l, descending ? IR_MAX : IR_MIN, y, (u64)1 << d, true);
        fe_tensor *hit = fe_op2(l, IR_eq, y, best);
        if (dtype_is_float((dtype)x->dtype) && descending)
            hit = fe_op2(l, IR_or, hit, fe_op2(l, IR_ne, y, y));
        fe_tensor *at =
            fe_where(l, hit, fe_positions(l, y, d), fe_int(l, DT_i64, x->dims[d].extent));
        if (!dtype_is_float((dtype)x->dtype) || descending)
            return fe_reduce(l, IR_MIN, at, (u64)1 << d, true);
    }
    dims[d] = fe_dim_new(l, k);
    if (k == 1) {
        dims[d] = fe_dim_new(l, 2);
        draft.to = dims[d].vars;
        u32 t = fe_draft_new(l, draft);
        return fe_slice(l, fe_tensor_new(l, t, DT_i64, x->rank, dims), d, 0, 1, 1);
    }
    draft.to = dims[d].vars;
    u32 term = fe_draft_new(l, draft);
    return fe_tensor_new(l, term, DT_i64, x->rank, dims);
}

/* base with value written at idx along dims d; idx and value aligned by the caller's labels. */
static fe_tensor *scattered(fe_lower *l, fe_tensor *base, const i64 *d, fe_tensor **idx, i64 n,
                            fe_tensor *value, ir_reducer r, const i8 *label_index,
                            const i8 *label_value, const i8 *label_base)
{
    fe_note_plain(l, plain);
    if (base->rank + idx[0]->rank > 60)
        fe_decline(l, "an index of rank %lld", (long long)idx[0]->rank);
    if (!base->term || !value->term || fe_is_empty(idx[0]))
        return fe_tensor_new(l, base->term, base->dtype, base->rank, base->dims);
    fe_tensor *whole = fe_spread(l, base);
    for (i64 k = 0; k < n; k++)
        whole = fe_solid(l, whole, d[k]);
    fe_tensor **xs = NEW_N(l->a, fe_tensor *, n + 2);
    const i8 **labels = NEW_N(l->a, const i8 *, n + 2);
    xs[0] = whole, labels[0] = label_base;
    for (i64 k = 0; k < n; k++)
        xs[1 + k] = idx[k], labels[1 + k] = label_index;
    xs[n + 1] = value, labels[n + 1] = label_value;
    fe_dim out[64];
    fe_align(l, xs, labels, n + 2, out, false);
    VEC(u32) axis = {0}, args = {0}, apart = {0};
    vec_push(l->a, &args, xs[0]->term);
    for (i64 k = 0; k < n; k++)
        if (base->dims[d[k]].extent > 1) {
            vec_push(l->a, &axis, axis_of(l, xs[0], d[k]));
            vec_push(l->a, &args, xs[1 + k]->term);
            vec_push(l->a, &apart, axis_of(l, xs[0], d[k]));
        }
    for (i64 k = 0; k < 64; k++)
        for (i64 v = 0; v < out[k].vars.n; v++)
            vec_push(l->a, &apart, out[k].vars.at[v]);
    fe_keep_apart(l->space, (fe_vars){apart.at, apart.n});
    if (!axis.n)
        fe_decline(l, "writes at positions of a dim of extent 1");
    vec_push(l->a, &args, xs[n + 1]->term);
    u32 term = fe_draft_new(l, (fe_draft){.op = IR_scatter,
                                          .dtype = base->dtype,
                                          .reducer = (u8)r,
                                          .args = args.at,
                                          .arg_count = args.n,
                                          .axis = {axis.at, axis.n}});
    return fe_tensor_new(l, term, base->dtype, base->rank, xs[0]->dims);
}

fe_tensor *fe_put(fe_lower *l, fe_tensor *x, fe_tensor *idx, fe_tensor *src)
{
    i64 d = 0;
    i8 same[64], own[1] = {-1};
    for (i64 k = 0; k < 64; k++)
        same[k] = (i8)k;
    idx = fe_spread(l, idx);
    return scattered(l, x, &d, &idx, 1, src, IR_NO_REDUCER, same, same, own);
}

/* ---- reads --------------------------------------------------------------------------------- */

void fe_lower_embedding(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *w = fe_t(c, 0), *i = fe_cast(l, DT_i64, fe_t(c, 1));
    i64 d = 0;
    if (w->rank < 1)
        fe_fail(l, "a table of rank 0");
    fe_ret(c, fe_gather(l, w, &d, &i, 1));
}

/* Result of gather (index dims first) with those dims moved to `at`. */
static fe_tensor *index_dims_at(fe_lower *l, fe_tensor *y, i64 rank, i64 at)
{
    i64 order[FE_MAX_RANK], n = 0;
    for (i64 k = 0; k < at; k++)
        order[n++] = rank + k;
    for (i64 k = 0; k < rank; k++)
        order[n++] = k;
    for (i64 k = rank + at; k < y->rank; k++)
        order[n++] = k;
    return fe_permute(l, y, order);
}

void fe_lower_index_select(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *i = fe_cast(l, DT_i64, fe_t(c, 2));
    if (x->rank == 0) {
        fe_lower_same(c);
        return;
    }
    i64 d = fe_axis_i(c, x, 1);
    if (i->rank == 0)
        i = fe_unsqueeze(l, i, 0);
    fe_ret(c, index_dims_at(l, fe_gather(l, x, &d, &i, 1), 1, d));
}

void fe_lower_gather(fe_call *c) /* self dim index */
{
    fe_tensor *x = fe_t(c, 0), *i = fe_cast(c->l, DT_i64, fe_t(c, 2));
    fe_ret(c, fe_take_along(c->l, x, x->rank ? fe_axis_i(c, x, 1) : 0, i));
}

void fe_lower_take_along_dim(fe_call *c) /* self indices dim */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *i = fe_t(c, 1);
    if (!fe_has(c, 2)) {
        x = fe_flatten(l, x, 0, MAX(x->rank - 1, 0));
        i = fe_flatten(l, i, 0, MAX(i->rank - 1, 0));
    }
    if (!x->rank || x->rank != i->rank)
        fe_fail(l, "an index of rank %lld into rank %lld", (long long)i->rank, (long long)x->rank);
    i64 d = fe_has(c, 2) ? fe_axis_i(c, x, 2) : 0, n = x->dims[d].extent;
    i64 shape[FE_MAX_RANK], index_shape[FE_MAX_RANK];
    for (i64 k = 0; k < x->rank; k++) {
        shape[k] = k == d ? n : MAX(x->dims[k].extent, i->dims[k].extent);
        index_shape[k] = k == d ? i->dims[k].extent : shape[k];
    }
    fe_ret(c, fe_take_along(l, fe_expand(l, x, x->rank, shape), d,
                            wrapped(l, fe_expand(l, i, x->rank, index_shape), n)));
}

void fe_lower_take(fe_call *c) /* self index: self as a vector */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *i = fe_t(c, 1);
    x = fe_flatten(l, x, 0, MAX(x->rank - 1, 0));
    i64 d = 0;
    i = wrapped(l, i, x->dims[0].extent);
    fe_ret(c, fe_gather(l, x, &d, &i, 1));
}

typedef struct indexing {
    i64 n, first; /* index tensors; where their dims go */
    i64 dims[FE_MAX_RANK];
    fe_tensor *idx[FE_MAX_RANK];
} indexing;

static indexing read_indices(fe_call *c, fe_tensor *x, i64 arg)
{
    fe_lower *l = c->l;
    indexing r = {0};
    i64 n;
    fe_tensor **list = fe_ts(c, arg, &n);
    bool is_split = false;
    if (n > x->rank)
        fe_fail(l, "%lld indices of a tensor of rank %lld", (long long)n, (long long)x->rank);
    for (i64 k = 0; k < n; k++) {
        if (!list[k])
            continue;
        if (dtype_kind_of((dtype)list[k]->dtype) != DK_INT || list[k]->is_foreign)
            fe_decline(l, "a mask as index: the size of the result depends on data");
        is_split = is_split || (r.n && r.dims[r.n - 1] != k - 1);
        r.dims[r.n] = k;
        r.idx[r.n++] = wrapped(l, list[k], x->dims[k].extent);
    }
    r.first = r.n && !is_split ? r.dims[0] : 0;
    if (r.n)
        fe_broadcast_all(l, r.idx, r.n);
    return r;
}

void fe_lower_index(fe_call *c)
{
    fe_tensor *x = fe_t(c, 0);
    indexing r = read_indices(c, x, 1);
    if (!r.n) {
        fe_lower_same(c);
        return;
    }
    fe_tensor *y = fe_gather(c->l, x, r.dims, r.idx, r.n);
    fe_ret(c, index_dims_at(c->l, y, r.idx[0]->rank, r.first));
}

/* ---- writes -------------------------------------------------------------------------------- */

void fe_lower_index_put(fe_call *c) /* self indices values accumulate */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *value = fe_cast(l, x->dtype, fe_t(c, 2));
    i64 n;
    fe_tensor **list = fe_ts(c, 1, &n);
    if (n == 1 && list[0] && list[0]->dtype == DT_bool && fe_count(l, value) == 1 && !fe_b(c, 3)) {
        /* A mask over the leading dims, one value: a choice. */
        fe_tensor *mask = list[0];
        value = fe_view(l, value, 0, NULL);
        for (i64 d = mask->rank; d < x->rank; d++)
            mask = fe_unsqueeze(l, mask, d);
        fe_ret(c, fe_where(l, mask, value, x));
        return;
    }
    indexing r = read_indices(c, x, 1);
    if (!r.n)
        fe_decline(l, "no index");
    /* The value broadcasts to the result of the read with the same indices. */
    i64 ri = r.idx[0]->rank, m = ri;
    i8 li[64], lb[64], lv[64], all[64];
    u64 read = 0;
    for (i64 k = 0; k < r.n; k++)
        read |= (u64)1 << r.dims[k];
    for (i64 k = 0; k < ri; k++)
        li[k] = (i8)k;
    for (i64 k = 0; k < x->rank; k++)
        lb[k] = read >> k & 1 ? -1 : (i8)m++;
    i64 at = 0;
    for (i64 k = 0, placed = 0, rest = ri; at < m; k++) {
        if (!placed && k == r.first) {
            for (i64 j = 0; j < ri; j++)
                all[at++] = (i8)j;
            placed = 1;
        } else {
            all[at++] = (i8)rest++;
        }
    }
    while (value->rank > m && value->dims[0].extent == 1)
        value = fe_drop(l, value, 1);
    if (value->rank > m)
        fe_fail(l, "a value of rank %lld for a place of rank %lld", (long long)value->rank,
                (long long)m);
    for (i64 d = 0; d < value->rank; d++)
        lv[d] = all[m - value->rank + d];
    fe_ret(c, scattered(l, x, r.dims, r.idx, r.n, value, fe_b(c, 3) ? IR_SUM : IR_NO_REDUCER, li,
                        lv, lb));
}

/* index a vector along dim d; src like x with that dim the index's length. */
static fe_tensor *written(fe_call *c, fe_tensor *x, i64 d, fe_tensor *index, fe_tensor *src,
                          ir_reducer r)
{
    fe_lower *l = c->l;
    if (x->rank == 0)
        fe_decline(l, "an index into a number");
    index = wrapped(l, index, x->dims[d].extent);
    if (index->rank == 0)
        index = fe_unsqueeze(l, index, 0);
    if (index->rank != 1 || (src->rank != x->rank))
        fe_fail(l, "an index of rank %lld, values of rank %lld", (long long)index->rank,
                (long long)src->rank);
    i8 li[1] = {0}, lb[64], lv[64];
    for (i64 k = 0; k < x->rank; k++)
        lb[k] = k == d ? -1 : (i8)(k + 1), lv[k] = k == d ? 0 : (i8)(k + 1);
    return scattered(l, x, &d, &index, 1, src, r, li, lv, lb);
}

void fe_lower_index_copy(fe_call *c) /* self dim index source; code: a reducer; 4: alpha */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *src = fe_cast(l, x->dtype, fe_t(c, 3));
    i64 d = x->rank ? fe_axis_i(c, x, 1) : 0;
    if (c->row->code && fe_sc(c, 4).f != 1.0)
        src = fe_cast(l, x->dtype, fe_arith(l, IR_mul, src, fe_t(c, 4)));
    if (src->rank < x->rank)
        src = fe_unsqueeze(l, src, d);
    fe_ret(c, written(c, x, d, fe_t(c, 2), src, (ir_reducer)c->row->code));
}

void fe_lower_index_fill(fe_call *c) /* self dim index value */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *value = fe_cast(l, x->dtype, fe_t(c, 3));
    i64 d = x->rank ? fe_axis_i(c, x, 1) : 0;
    for (i64 k = 0; k < x->rank; k++)
        value = fe_unsqueeze(l, value, 0);
    fe_ret(c, written(c, x, d, fe_t(c, 2), value, IR_NO_REDUCER));
}

/* src (a number, or of x's rank) written or combined at index along dim d. */
static fe_tensor *scattered_along(fe_call *c, fe_tensor *x, i64 d, fe_tensor *index, fe_tensor *src,
                                  ir_reducer r)
{
    fe_lower *l = c->l;
    bool is_number = src->rank == 0;
    if (index->rank != x->rank || (!is_number && src->rank != x->rank))
        fe_fail(l, "an index of rank %lld, values of rank %lld", (long long)index->rank,
                (long long)src->rank);
    i8 li[64], lb[64];
    for (i64 k = 0; k < x->rank; k++)
        lb[k] = k == d ? -1 : (i8)k, li[k] = (i8)k;
    /* A shorter index writes a corner: that part is scattered into, then put back. */
    fe_tensor *corner = x;
    for (i64 k = 0; k < x->rank; k++) {
        i64 n = index->dims[k].extent;
        if (!is_number && src->dims[k].extent > n)
            src = fe_slice(l, src, k, 0, n, 1);
        if (k != d && x->dims[k].extent > n)
            corner = fe_slice(l, corner, k, 0, n, 1);
    }
    index = fe_spread(l, index); /* one write for each of its elements */
    fe_tensor *y =
        scattered(l, corner, &d, &index, 1, src, r, li, is_number ? NULL : li, lb);
    for (i64 k = x->rank - 1; k >= 0; k--) {
        if (y->dims[k].extent == x->dims[k].extent)
            continue;
        fe_tensor *part = x;
        for (i64 j = 0; j < k; j++)
            part = fe_slice(l, part, j, 0, y->dims[j].extent, 1);
        y = fe_slice_write(l, part, y, k, 0, y->dims[k].extent, 1);
    }
    return y;
}

void fe_lower_scatter(fe_call *c) /* self dim index src; code: a reducer */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *index = fe_cast(l, DT_i64, fe_t(c, 2));
    fe_tensor *src = fe_cast(l, x->dtype, fe_t(c, 3));
    if (x->rank == 0)
        fe_decline(l, "an index into a number");
    fe_ret(c, scattered_along(c, x, fe_axis_i(c, x, 1), index, src, (ir_reducer)c->row->code));
}

/* The number that combining with r leaves alone. */
static fe_tensor *identity_of(fe_lower *l, ir_reducer r, u8 type)
{
    return dtype_is_float((dtype)type) ? fe_num(l, type, ir_reducer_identity_f64(r))
                                       : fe_int(l, type, ir_reducer_identity_i64(r, (dtype)type));
}

/* self dim index src reduce include_self; code 0: index like src; 1: a vector, as in index_add; 2:
 * as 0, self is always included. */
void fe_lower_scatter_reduce(fe_call *c)
{
    fe_lower *l = c->l;
    static const struct {
        const char *name;
        ir_reducer r;
    } kinds[] = {{"sum", IR_SUM},  {"add", IR_SUM},  {"prod", IR_PROD}, {"multiply", IR_PROD},
                 {"amax", IR_MAX}, {"amin", IR_MIN}, {"mean", IR_SUM}};
    const char *name = fe_s(c, 4);
    ir_reducer r = IR_NO_REDUCER;
    for (i64 k = 0; k < COUNT_OF(kinds) && name; k++)
        if (!strcmp(kinds[k].name, name))
            r = kinds[k].r;
    fe_tensor *x = fe_t(c, 0), *index = fe_cast(l, DT_i64, fe_t(c, 2)), *given = x;
    fe_tensor *src = fe_cast(l, x->dtype, fe_t(c, 3));
    if (x->rank == 0)
        fe_decline(l, "an index into a number");
    if (r == IR_NO_REDUCER || x->dtype == DT_bool)
        fe_fail(l, "combines %s by %s", dtype_name((dtype)x->dtype), name ? name : "nothing");
    i64 d = fe_axis_i(c, x, 1);
    bool is_mean = !strcmp(name, "mean"), is_alone = c->row->code != 2 && !fe_b(c, 5);
    fe_tensor *count = NULL, *zero = fe_int(l, DT_i64, 0), *one = fe_int(l, DT_i64, 1);
    if (is_mean || is_alone) {
        fe_tensor *base = fe_spread(l, fe_fill_like(l, x, zero));
        fe_tensor *each = fe_spread(l, fe_fill_like(l, src, one));
        count = c->row->code == 1 ? written(c, base, d, index, each, IR_SUM)
                                  : scattered_along(c, base, d, index, each, IR_SUM);
    }
    if (is_alone) /* where something arrives, what was there does not count */
        x = fe_where(l, fe_op2(l, IR_lt, zero, count), identity_of(l, r, x->dtype), x);
    fe_tensor *y = c->row->code == 1 ? written(c, x, d, index, src, r)
                                     : scattered_along(c, x, d, index, src, r);
    if (is_mean) {
        fe_tensor *n = is_alone ? fe_op2(l, IR_max, count, one) : fe_op2(l, IR_add, count, one);
        n = fe_cast(l, fe_wide(y->dtype), n);
        ir_op by = dtype_is_float((dtype)y->dtype) ? IR_div : IR_floordiv;
        y = fe_cast(l, given->dtype, fe_op2(l, by, fe_cast(l, n->dtype, y), n));
    }
    fe_ret(c, y);
}

/* The next element of source where the mask holds, in row-major order. */
void fe_lower_masked_scatter(fe_call *c) /* self mask source */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_cast(l, DT_bool, fe_t(c, 1))}, *src = fe_t(c, 2);
    i64 sizes[FE_MAX_RANK], rank = fe_broadcast(l, xs, 2, sizes), d = 0;
    if (src->dtype != xs[0]->dtype)
        fe_fail(l, "values of %s for %s", dtype_name((dtype)src->dtype),
                dtype_name((dtype)xs[0]->dtype));
    fe_tensor *x = fe_expand(l, xs[0], rank, sizes), *mask = fe_expand(l, xs[1], rank, sizes);
    if (fe_is_empty(x) || fe_is_empty(src)) {
        fe_ret(c, x);
        return;
    }
    fe_tensor *flat = fe_flatten(l, mask, 0, MAX(rank - 1, 0));
    fe_tensor *at = fe_scan(l, IR_SUM, fe_cast(l, DT_i64, flat), 0);
    at = fe_where(l, flat, fe_op2(l, IR_sub, at, fe_int(l, DT_i64, 1)), fe_int(l, DT_i64, 0));
    fe_tensor *all = fe_flatten(l, src, 0, MAX(src->rank - 1, 0));
    fe_tensor *y = fe_gather(l, all, &d, &at, 1);
    fe_ret(c, fe_where(l, mask, fe_view(l, y, rank, sizes), x));
}
