/* view: operators that move elements and compute nothing.
 *
 * Permutes, broadcasts and consistent reshapes change tuples of variables and make no term. A
 * reshape cuts variables where its target needs a boundary; what has no common refinement with the
 * target (or is pinned) becomes a `reshape` term for just those dims. Slices and concatenations
 * are terms over single, pinned variables. */
#include "frontend/lower.h"

typedef VEC(u32) id_list;

static fe_dim *copy_dims(fe_lower *l, const fe_tensor *x, i64 extra)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank + extra);
    for (i64 i = 0; i < x->rank; i++)
        dims[i] = x->dims[i];
    return dims;
}

/* The term of x with the variables it lacks among `v` made explicit. */
static u32 expanded(fe_lower *l, u32 term, u8 type, fe_vars v)
{
    v = fe_flat(l->space, v);
    id_list missing = {0};
    for (i64 i = 0; i < v.n; i++)
        if (!fe_draft_has(l, term, v.at[i]))
            vec_push(l->a, &missing, v.at[i]);
    if (!missing.n)
        return term;
    return fe_draft_new(l, (fe_draft){.op = IR_expand,
                                      .dtype = type,
                                      .args = &term,
                                      .arg_count = 1,
                                      .to = {missing.at, missing.n}});
}

static bool varies(fe_lower *l, u32 term, fe_vars v)
{
    v = fe_flat(l->space, v);
    for (i64 i = 0; i < v.n; i++)
        if (fe_draft_has(l, term, v.at[i]))
            return true;
    return false;
}

/* `from`, row-major, becomes `to`. */
static u32 reshape_term(fe_lower *l, u32 term, u8 type, fe_vars from, fe_vars to)
{
    if (!varies(l, term, from))
        return term;
    term = expanded(l, term, type, from);
    id_list both = {0};
    for (i64 i = 0; i < from.n; i++)
        vec_push(l->a, &both, from.at[i]);
    for (i64 i = 0; i < to.n; i++)
        vec_push(l->a, &both, to.at[i]);
    fe_keep_apart(l->space, (fe_vars){both.at, both.n});
    return fe_draft_new(l, (fe_draft){.op = IR_reshape,
                                      .dtype = type,
                                      .axis = from,
                                      .to = to,
                                      .args = &term,
                                      .arg_count = 1});
}

/* Cuts the leaves v so that prefixes with the products of `sizes` exist; with `pass` 0 only says
 * whether it can. */
static bool cut(fe_lower *l, fe_vars v, const i64 *sizes, i64 n, int pass)
{
    i64 i = 0, left = 0;
    VEC(i64) pieces = {0};
    for (i64 k = 0; k < n; k++) {
        i64 need = sizes[k];
        while (need > 1) {
            if (!left)
                left = fe_var_extent(l->space, v.at[i]);
            i64 e = MIN(left, need);
            if (left % e || need % e)
                return false;
            vec_push(l->a, &pieces, e);
            left /= e, need /= e;
            if (left == 1) {
                if (pieces.n > 1 && (pass ? !fe_split(l->space, v.at[i], pieces.at, pieces.n)
                                          : fe_is_pinned(l->space, v.at[i])))
                    return false;
                pieces.n = 0, left = 0, i++;
            }
        }
    }
    return true;
}

/* What a part of a concatenation was before fe_solid made its dim one variable: its term, and the
 * variables that `axis` stands for. */
static u32 unsolid(fe_lower *l, u32 term, u32 *axis, fe_vars *vars)
{
    const fe_draft *d = &l->drafts.at[term];
    *vars = fe_flat(l->space, (fe_vars){axis, 1});
    if (d->op != IR_reshape || d->to.n != 1 || fe_flat(l->space, d->to).at[0] != vars->at[0])
        return term;
    *vars = fe_flat(l->space, d->axis);
    term = d->args[0];
    d = &l->drafts.at[term];
    if (d->op != IR_expand)
        return term;
    fe_vars to = fe_flat(l->space, d->to);
    i64 found = 0;
    for (i64 i = 0; i < to.n; i++)
        for (i64 k = 0; k < vars->n; k++)
            found += to.at[i] == vars->at[k];
    return found == to.n ? d->args[0] : term;
}

/* A concatenation of equal parts whose variable is to be cut into (part, position) is a stack: made
 * anew, so that the parts keep their own variables. False when it is none. */
static bool as_stack(fe_lower *l, u32 *term, u8 type, fe_vars group, const i64 *sizes, i64 n,
                     fe_dim *dims)
{
    fe_draft d = l->drafts.at[*term];
    if (d.op != IR_concat || group.n != 1 || fe_flat(l->space, d.to).at[0] != group.at[0])
        return false;
    i64 first = 0, second = -1;
    while (first < n && sizes[first] == 1)
        first++;
    for (i64 k = first + 1; k < n; k++)
        if (sizes[k] != 1 && second >= 0)
            return false;
        else if (sizes[k] != 1)
            second = k;
    if (second < 0 || sizes[first] != d.arg_count)
        return false;
    u32 *args = NEW_N(l->a, u32, d.arg_count), *axis = NEW_N(l->a, u32, d.arg_count);
    fe_vars tuple = {0};
    for (i64 k = 0; k < d.arg_count; k++) {
        fe_vars own;
        axis[k] = d.axis.at[k];
        if (!axis[k] || fe_var_extent(l->space, axis[k]) != sizes[second])
            return false;
        args[k] = unsolid(l, d.args[k], &axis[k], &own);
        if (k == 0)
            tuple = own;
        tuple = fe_flat(l->space, tuple), own = fe_flat(l->space, own);
        if (own.n != tuple.n)
            return false;
        for (i64 i = 0; i < own.n; i++)
            if (!fe_unify(l->space, tuple.at[i], own.at[i]))
                return false;
    }
    if (l->is_last_reader) /* the concatenation is dead then; so are its pins and those of fe_cat */
        for (i64 k = 0; k < 2 * d.arg_count; k++)
            fe_unpin(l->space, axis[k % d.arg_count]);
    for (i64 k = 0; k < n; k++)
        dims[k] = (fe_dim){.extent = sizes[k]};
    dims[first] = fe_dim_new(l, sizes[first]);
    dims[second].vars = tuple;
    *term = fe_draft_new(l, (fe_draft){.op = IR_concat,
                                       .dtype = type,
                                       .args = args,
                                       .arg_count = d.arg_count,
                                       .axis = {NEW_N(l->a, u32, d.arg_count), d.arg_count},
                                       .to = dims[first].vars});
    return true;
}

fe_tensor *fe_view(fe_lower *l, const fe_tensor *x, i64 rank, const i64 *sizes)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, rank);
    for (i64 d = 0; d < rank; d++)
        dims[d].extent = sizes[d];
    u32 term = x->term;
    if (fe_is_empty(x)) {
        for (i64 d = 0; d < rank; d++)
            dims[d] = fe_dim_new(l, sizes[d]);
        return fe_tensor_new(l, 0, x->dtype, rank, dims);
    }
    id_list all = {0};
    for (i64 d = 0; d < x->rank; d++) {
        fe_vars f = fe_flat(l->space, x->dims[d].vars);
        for (i64 k = 0; k < f.n; k++)
            vec_push(l->a, &all, f.at[k]);
    }
    i64 i = 0, k = 0;
    while (i < all.n) {
        while (sizes[k] == 1)
            k++;
        i64 i_end = i + 1, k_end = k + 1;
        i64 p = fe_var_extent(l->space, all.at[i]), q = sizes[k];
        while (p != q) {
            if (p < q)
                p *= fe_var_extent(l->space, all.at[i_end++]);
            else
                q *= sizes[k_end++];
        }
        fe_vars group = {all.at + i, i_end - i};
        if (cut(l, group, sizes + k, k_end - k, 0) && cut(l, group, sizes + k, k_end - k, 1)) {
            group = fe_flat(l->space, group);
            i64 at = 0;
            for (i64 d = k; d < k_end; d++) {
                i64 first = at;
                for (i64 e = 1; e < sizes[d]; at++)
                    e *= fe_var_extent(l->space, group.at[at]);
                dims[d].vars = (fe_vars){group.at + first, at - first};
            }
        } else if (!as_stack(l, &term, x->dtype, group, sizes + k, k_end - k, dims + k)) {
            id_list to = {0};
            for (i64 d = k; d < k_end; d++) {
                dims[d] = fe_dim_new(l, sizes[d]);
                if (sizes[d] > 1)
                    vec_push(l->a, &to, dims[d].vars.at[0]);
            }
            term = reshape_term(l, term, x->dtype, group, (fe_vars){to.at, to.n});
        }
        i = i_end, k = k_end;
    }
    return fe_tensor_new(l, term, x->dtype, rank, dims);
}

fe_tensor *fe_permute(fe_lower *l, const fe_tensor *x, const i64 *order)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank);
    for (i64 d = 0; d < x->rank; d++)
        dims[d] = x->dims[order[d]];
    return fe_tensor_new(l, x->term, x->dtype, x->rank, dims);
}

fe_tensor *fe_transpose(fe_lower *l, const fe_tensor *x, i64 a, i64 b)
{
    fe_dim *dims = copy_dims(l, x, 0);
    if (x->rank) {
        dims[a] = x->dims[b];
        dims[b] = x->dims[a];
    }
    return fe_tensor_new(l, x->term, x->dtype, x->rank, dims);
}

fe_tensor *fe_expand(fe_lower *l, const fe_tensor *x, i64 rank, const i64 *sizes)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, rank);
    if (rank < x->rank)
        fe_fail(l, "expands rank %lld to %lld", (long long)x->rank, (long long)rank);
    for (i64 d = 0; d < rank; d++) {
        i64 k = d - (rank - x->rank);
        i64 have = k < 0 ? 1 : x->dims[k].extent, want = sizes[d] < 0 ? have : sizes[d];
        if (have != want && have != 1)
            fe_fail(l, "expands a dim of %lld to %lld", (long long)have, (long long)want);
        dims[d] = have == want && k >= 0 ? x->dims[k] : fe_dim_new(l, want);
    }
    return fe_tensor_new(l, x->term, x->dtype, rank, dims);
}

fe_tensor *fe_unsqueeze(fe_lower *l, const fe_tensor *x, i64 d)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank + 1);
    if (d < 0 || d > x->rank)
        fe_fail(l, "a dim put in at %lld of rank %lld", (long long)d, (long long)x->rank);
    for (i64 i = 0, k = 0; i <= x->rank; i++)
        dims[i] = i == d ? (fe_dim){.extent = 1} : x->dims[k++];
    return fe_tensor_new(l, x->term, x->dtype, x->rank + 1, dims);
}

fe_tensor *fe_drop(fe_lower *l, const fe_tensor *x, u64 unit_dims)
{
    VEC(fe_dim) dims = {0};
    for (i64 d = 0; d < x->rank; d++)
        if (!(unit_dims >> d & 1) || x->dims[d].extent != 1)
            vec_push(l->a, &dims, x->dims[d]);
    return fe_tensor_new(l, x->term, x->dtype, dims.n, dims.at);
}

fe_tensor *fe_flatten(fe_lower *l, const fe_tensor *x, i64 first, i64 last)
{
    i64 sizes[FE_MAX_RANK], n = 0;
    if (x->rank == 0) {
        sizes[n++] = 1;
        return fe_view(l, x, n, sizes);
    }
    for (i64 d = 0; d < x->rank; d++)
        if (d > first && d <= last) {
            if (!mul_i64(sizes[n - 1], x->dims[d].extent, &sizes[n - 1]))
                fe_fail(l, "a size that does not fit 64 bits");
        } else {
            sizes[n++] = x->dims[d].extent;
        }
    return fe_view(l, x, n, sizes);
}

fe_tensor *fe_spread(fe_lower *l, const fe_tensor *x)
{
    id_list all = {0};
    for (i64 d = 0; d < x->rank; d++)
        for (i64 k = 0; k < x->dims[d].vars.n; k++)
            vec_push(l->a, &all, x->dims[d].vars.at[k]);
    u32 term = x->term ? expanded(l, x->term, x->dtype, (fe_vars){all.at, all.n}) : 0;
    return fe_tensor_new(l, term, x->dtype, x->rank, x->dims);
}

fe_tensor *fe_solid(fe_lower *l, const fe_tensor *x, i64 d)
{
    if (x->dims[d].extent < 2 || !x->term)
        return fe_tensor_new(l, x->term, x->dtype, x->rank, x->dims);
    fe_dim *dims = copy_dims(l, x, 0);
    fe_vars v = fe_flat(l->space, dims[d].vars);
    u32 term = expanded(l, x->term, x->dtype, v);
    if (v.n > 1) {
        dims[d] = fe_dim_new(l, x->dims[d].extent);
        term = reshape_term(l, term, x->dtype, v, dims[d].vars);
    }
    fe_pin(l->space, fe_flat(l->space, dims[d].vars).at[0]);
    return fe_tensor_new(l, term, x->dtype, x->rank, dims);
}

/* ---- slices -------------------------------------------------------------------------------- */

fe_tensor *fe_slice(fe_lower *l, const fe_tensor *x, i64 d, i64 start, i64 n, i64 step)
{
    if (d >= x->rank)
        fe_fail(l, "dim %lld of a tensor of rank %lld", (long long)d, (long long)x->rank);
    i64 extent = x->dims[d].extent;
    fe_dim *dims = copy_dims(l, x, 0);
    if (n == extent && (step == 1 || n < 2))
        return fe_tensor_new(l, x->term, x->dtype, x->rank, dims);
    fe_vars v = fe_flat(l->space, x->dims[d].vars);
    if (!x->term || n == 0 || !varies(l, x->term, v)) {
        dims[d] = fe_dim_new(l, n);
        return fe_tensor_new(l, x->term, x->dtype, x->rank, dims);
    }
    i64 inner = extent / fe_var_extent(l->space, v.at[0]);
    bool is_within = start / inner == (start + (n - 1) * step) / inner;
    if (v.n > 1 && step == 1 && (is_within || (start % inner == 0 && n % inner == 0))) {
        /* On the boundary of the first factor, or inside one of its positions: as a view of two
         * dims, of which at most one is cut at a time. */
        fe_dim *two = NEW_N(l->a, fe_dim, x->rank + 1);
        for (i64 i = 0; i < x->rank; i++)
            two[i + (i > d)] = x->dims[i];
        two[d] = (fe_dim){extent / inner, {v.at, 1}};
        two[d + 1] = (fe_dim){inner, {v.at + 1, v.n - 1}};
        fe_tensor *y = fe_tensor_new(l, x->term, x->dtype, x->rank + 1, two);
        y = fe_slice(l, y, d, start / inner, is_within ? 1 : n / inner, 1);
        if (is_within)
            y = fe_slice(l, y, d + 1, start % inner, n, 1);
        id_list joined = {0};
        for (i64 k = 0; k < 2; k++)
            for (i64 m = 0; m < y->dims[d + k].vars.n; m++)
                vec_push(l->a, &joined, y->dims[d + k].vars.at[m]);
        for (i64 i = 0; i < x->rank; i++)
            dims[i] = i == d ? (fe_dim){n, {joined.at, joined.n}} : y->dims[i + (i > d)];
        return fe_tensor_new(l, y->term, x->dtype, x->rank, dims);
    }
    fe_tensor *y = fe_solid(l, x, d);
    dims[d] = fe_dim_new(l, n);
    i64 ints[2] = {start, step};
    u32 term = fe_draft_new(l, (fe_draft){.op = IR_slice,
                                          .dtype = x->dtype,
                                          .args = &y->term,
                                          .arg_count = 1,
                                          .axis = fe_flat(l->space, y->dims[d].vars),
                                          .to = dims[d].vars,
                                          .ints = {ints, n > 1 ? 2 : 1}});
    return fe_tensor_new(l, term, x->dtype, x->rank, dims);
}

fe_tensor *fe_select(fe_lower *l, const fe_tensor *x, i64 d, i64 index)
{
    return fe_drop(l, fe_slice(l, x, d, index, 1, 1), (u64)1 << d);
}

fe_tensor *fe_cat(fe_lower *l, fe_tensor *const *xs, i64 n, i64 d)
{
    fe_tensor **parts = NEW_N(l->a, fe_tensor *, n);
    const fe_tensor *kept = NULL;
    i64 m = 0, extent = 0;
    if (n < 1)
        fe_fail(l, "no parts");
    for (i64 i = 0; i < n; i++) {
        if (xs[i]->rank == 1 && xs[i]->dims[0].extent == 0 && n > 1)
            continue;
        if (!kept)
            kept = xs[i];
        if (xs[i]->rank != kept->rank || d >= kept->rank)
            fe_fail(l, "parts of rank %lld and %lld along dim %lld", (long long)kept->rank,
                    (long long)xs[i]->rank, (long long)d);
        if (!add_i64(extent, xs[i]->dims[d].extent, &extent))
            fe_fail(l, "a size that does not fit 64 bits");
        if (xs[i]->dims[d].extent)
            parts[m++] = xs[i];
    }
    if (m < 2)
        return (fe_tensor *)(m ? parts[0] : xs[0]);
    i64 rank = parts[0]->rank;
    fe_dim out[64], *dims = NEW_N(l->a, fe_dim, rank);
    i8 row[64];
    const i8 **labels = NEW_N(l->a, const i8 *, m);
    for (i64 i = 0; i < rank; i++)
        row[i] = i == d ? -1 : (i8)i;
    bool is_empty = false;
    for (i64 i = 0; i < m; i++) {
        labels[i] = row;
        is_empty = is_empty || !parts[i]->term;
        if (!is_empty)
            parts[i] = fe_solid(l, parts[i], d);
    }
    if (is_empty) {
        for (i64 i = 0; i < rank; i++)
            dims[i] = fe_dim_new(l, i == d ? extent : parts[0]->dims[i].extent);
        return fe_tensor_new(l, 0, parts[0]->dtype, rank, dims);
    }
    fe_align(l, parts, labels, m, out, false);
    u32 *axis = NEW_N(l->a, u32, m), *args = NEW_N(l->a, u32, m);
    for (i64 i = 0; i < m; i++) {
        fe_vars v = fe_flat(l->space, parts[i]->dims[d].vars);
        axis[i] = v.n ? v.at[0] : 0;
        args[i] = parts[i]->term;
    }
    for (i64 i = 0; i < rank; i++)
        dims[i] = i == d ? fe_dim_new(l, extent) : out[i];
    u32 term = fe_draft_new(l, (fe_draft){.op = IR_concat,
                                          .dtype = parts[0]->dtype,
                                          .args = args,
                                          .arg_count = m,
                                          .axis = {axis, m},
                                          .to = dims[d].vars});
    return fe_tensor_new(l, term, parts[0]->dtype, rank, dims);
}

fe_tensor *fe_pad(fe_lower *l, const fe_tensor *x, i64 d, i64 before, i64 after,
                  const fe_tensor *value)
{
    i64 n = x->dims[d].extent, first = MAX(-before, 0), last = n - MAX(-after, 0);
    if (before > INT64_MAX / 4 || after > INT64_MAX / 4 || before < -n || after < -n)
        fe_fail(l, "pads of %lld and %lld", (long long)before, (long long)after);
    if (last < first)
        fe_fail(l, "a pad that removes more than there is");
    fe_tensor *parts[3] = {0};
    i64 count = 0, add[2] = {MAX(before, 0), MAX(after, 0)};
    for (int side = 0; side < 2; side++) {
        if (side == 1 && last > first)
            parts[count++] = fe_slice(l, x, d, first, last - first, 1);
        if (!add[side])
            continue;
        fe_dim *dims = copy_dims(l, x, 0);
        for (i64 i = 0; i < x->rank; i++)
            dims[i] = fe_dim_new(l, i == d ? add[side] : x->dims[i].extent);
        parts[count++] = fe_tensor_new(l, value->term, x->dtype, x->rank, dims);
    }
    if (!count)
        return fe_slice(l, x, d, 0, 0, 1);
    /* Parts of padding alone keep the other dims' variables of x. */
    for (i64 i = 0; i < count; i++) {
        fe_dim *dims = copy_dims(l, x, 0);
        dims[d] = parts[i]->dims[d];
        if (parts[i]->term == value->term)
            parts[i] = fe_tensor_new(l, parts[i]->term, x->dtype, x->rank, dims);
    }
    return count == 1 ? parts[0] : fe_cat(l, parts, count, d);
}

fe_tensor *fe_positions(fe_lower *l, const fe_tensor *x, i64 d)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank);
    for (i64 i = 0; i < x->rank; i++)
        dims[i].extent = 1;
    dims[d] = x->dims[d];
    if (dims[d].extent < 2)
        return fe_tensor_new(l, fe_int(l, DT_i64, 0)->term, DT_i64, x->rank, dims);
    u32 term = 0;
    fe_vars v = fe_flat(l->space, dims[d].vars);
    for (i64 k = 0; k < v.n; k++) {
        fe_vars one = {v.at + k, 1};
        u32 here = fe_draft_new(l, (fe_draft){.op = IR_iota, .dtype = DT_i64, .axis = one});
        if (term) {
            u32 scale[2] = {term, fe_int(l, DT_i64, fe_var_extent(l->space, v.at[k]))->term};
            u32 sum[2] = {
                fe_draft_new(
                    l, (fe_draft){.op = IR_mul, .dtype = DT_i64, .args = scale, .arg_count = 2}),
                here};
            here = fe_draft_new(
                l, (fe_draft){.op = IR_add, .dtype = DT_i64, .args = sum, .arg_count = 2});
        }
        term = here;
    }
    return fe_tensor_new(l, term, DT_i64, x->rank, dims);
}

fe_tensor *fe_flip(fe_lower *l, const fe_tensor *x, i64 d)
{
    i64 n = x->dims[d].extent;
    fe_dim *dims = copy_dims(l, x, 0);
    if (n < 2 || !x->term || !varies(l, x->term, x->dims[d].vars))
        return fe_tensor_new(l, x->term, x->dtype, x->rank, dims);
    fe_tensor *y = fe_solid(l, x, d);
    dims[d] = fe_dim_new(l, n);
    i64 ints[2] = {n - 1, -1};
    u32 term = fe_draft_new(l, (fe_draft){.op = IR_slice,
                                          .dtype = x->dtype,
                                          .args = &y->term,
                                          .arg_count = 1,
                                          .axis = fe_flat(l->space, y->dims[d].vars),
                                          .to = dims[d].vars,
                                          .ints = {ints, 2}});
    return fe_tensor_new(l, term, x->dtype, x->rank, dims);
}

fe_tensor *fe_diagonal(fe_lower *l, const fe_tensor *x, i64 offset, i64 d1, i64 d2)
{
    if (d1 >= x->rank || d2 >= x->rank)
        fe_fail(l, "a diagonal of a tensor of rank %lld", (long long)x->rank);
    i64 rows = x->dims[d1].extent, columns = x->dims[d2].extent;
    i64 first = MAX(-offset, 0), second = MAX(offset, 0);
    i64 n = MAX(MIN(rows - first, columns - second), 0);
    if (d1 == d2 || offset < -(INT64_MAX / 2) || offset > INT64_MAX / 2)
        fe_fail(l, "a diagonal of one dim");
    VEC(fe_dim) dims = {0};
    for (i64 i = 0; i < x->rank; i++)
        if (i != d1 && i != d2)
            vec_push(l->a, &dims, x->dims[i]);
    if (!x->term || !n) {
        vec_push(l->a, &dims, fe_dim_new(l, n));
        return fe_tensor_new(l, x->term, x->dtype, dims.n, dims.at);
    }
    /* Read the rows at first + j, then the columns at second + j for the same j. */
    fe_tensor *y = fe_slice(l, x, d1, first, n, 1);
    y = fe_slice(l, y, d2, second, n, 1);
    dims.n = 0;
    for (i64 i = 0; i < x->rank; i++)
        if (i != d1 && i != d2)
            vec_push(l->a, &dims, y->dims[i]);
    if (n == 1) {
        vec_push(l->a, &dims, (fe_dim){.extent = 1});
        return fe_tensor_new(l, y->term, x->dtype, dims.n, dims.at);
    }
    y = fe_solid(l, y, d2);
    u32 term = y->term;
    fe_dim row = y->dims[d1];
    if (fe_flat(l->space, row.vars).n > 1) {
        y = fe_solid(l, y, d1);
        term = y->term, row = y->dims[d1];
    }
    i64 ints[2] = {0, 1};
    if (!varies(l, term, row.vars)) { /* the diagonal of a matrix of equal rows: its columns */
        row = y->dims[d2];
    } else {
        fe_pin(l->space, fe_flat(l->space, row.vars).at[0]);
        term = fe_draft_new(l, (fe_draft){.op = IR_slice,
                                          .dtype = x->dtype,
                                          .args = &term,
                                          .arg_count = 1,
                                          .axis = fe_flat(l->space, y->dims[d2].vars),
                                          .to = fe_flat(l->space, row.vars),
                                          .ints = {ints, 2}});
    }
    dims.n = 0;
    for (i64 i = 0; i < x->rank; i++)
        if (i != d1 && i != d2)
            vec_push(l->a, &dims, y->dims[i]);
    vec_push(l->a, &dims, row);
    return fe_tensor_new(l, term, x->dtype, dims.n, dims.at);
}

fe_tensor *fe_diagonal_write(fe_lower *l, const fe_tensor *x, const fe_tensor *part, i64 offset,
                             i64 d1, i64 d2)
{
    fe_tensor *at = fe_op2(l, IR_sub, fe_positions(l, x, d2), fe_positions(l, x, d1));
    fe_tensor *hit = fe_op2(l, IR_eq, at, fe_int(l, DT_i64, offset));
    fe_tensor *zero = fe_cast(l, x->dtype, fe_int(l, DT_i64, 0));
    /* The diagonal is the last dim of the part: row i reads its element i - first. */
    i64 n = part->dims[part->rank - 1].extent, first = MAX(-offset, 0), order[FE_MAX_RANK], m = 0;
    fe_tensor *rows = fe_pad(l, part, part->rank - 1, first, x->dims[d1].extent - first - n, zero);
    for (i64 d = 0; d < x->rank; d++)
        if (d != d2)
            order[m] = d == d1 ? part->rank - 1 : d - (d > d1) - (d > d2), m++;
    return fe_where(l, hit, fe_unsqueeze(l, fe_permute(l, rows, order), d2), x);
}

fe_tensor *fe_slice_by(fe_lower *l, const fe_tensor *x, i64 d, i64 start, i64 n, const i64 *sizes,
                       const i64 *steps)
{
    fe_dim *dims = copy_dims(l, x, n);
    fe_tensor *y = (fe_tensor *)x;
    u32 term = x->term;
    bool is_empty = !term;
    for (i64 k = 0; k < n; k++)
        is_empty = is_empty || !sizes[k];
    if (!is_empty && varies(l, term, x->dims[d].vars))
        y = fe_solid(l, x, d), term = y->term;
    for (i64 i = 0; i < x->rank + n - 1; i++)
        dims[i] = i < d           ? y->dims[i]
                  : i < d + n     ? fe_dim_new(l, sizes[i - d])
                                  : y->dims[i - n + 1];
    id_list to = {0};
    VEC(i64) ints = {0};
    vec_push(l->a, &ints, start);
    for (i64 k = 0; k < n; k++)
        if (sizes[k] > 1 && steps[k]) { /* a step of 0 repeats */
            vec_push(l->a, &to, dims[d + k].vars.at[0]);
            vec_push(l->a, &ints, steps[k]);
        }
    fe_vars axis = fe_flat(l->space, y->dims[d].vars);
    if (!is_empty && axis.n && varies(l, term, axis))
        term = fe_draft_new(l, (fe_draft){.op = IR_slice,
                                          .dtype = x->dtype,
                                          .args = &y->term,
                                          .arg_count = 1,
                                          .axis = axis,
                                          .to = {to.at, to.n},
                                          .ints = {ints.at, ints.n}});
    return fe_tensor_new(l, is_empty ? 0 : term, x->dtype, x->rank + n - 1, dims);
}

fe_tensor *fe_unfold(fe_lower *l, const fe_tensor *x, i64 d, i64 size, i64 step)
{
    i64 order[FE_MAX_RANK + 1], sizes[2] = {(x->dims[d].extent - size) / step + 1, size};
    fe_tensor *y = fe_slice_by(l, x, d, 0, 2, sizes, (i64[]){step, 1});
    for (i64 k = 0; k < x->rank; k++) /* what a window holds goes last */
        order[k] = k <= d ? k : k + 1;
    order[x->rank] = d + 1;
    return fe_permute(l, y, order);
}

fe_tensor *fe_repeat_dim(fe_lower *l, const fe_tensor *x, i64 d, i64 n, bool is_inner)
{
    i64 sizes[FE_MAX_RANK + 1], at = is_inner ? d + 1 : d;
    fe_tensor *y = fe_unsqueeze(l, x, at);
    for (i64 i = 0; i < y->rank; i++)
        sizes[i] = i == at ? n : y->dims[i].extent;
    y = fe_expand(l, y, y->rank, sizes);
    return fe_flatten(l, y, d, d + 1);
}

fe_tensor *fe_slice_write(fe_lower *l, const fe_tensor *x, const fe_tensor *src, i64 d, i64 start,
                          i64 n, i64 step)
{
    i64 extent = x->dims[d].extent;
    if (n == 0)
        return fe_tensor_new(l, x->term, x->dtype, x->rank, x->dims);
    i64 sizes[FE_MAX_RANK];
    for (i64 i = 0; i < x->rank; i++)
        sizes[i] = i == d ? n : x->dims[i].extent;
    fe_tensor *value = fe_expand(l, src, x->rank, sizes);
    if (n == 1) {
        fe_tensor *hit = fe_op2(l, IR_eq, fe_positions(l, x, d), fe_int(l, DT_i64, start));
        return fe_where(l, hit, value, x);
    }
    if (step == 1) {
        fe_tensor *parts[3];
        i64 count = 0;
        if (start)
            parts[count++] = fe_slice(l, x, d, 0, start, 1);
        parts[count++] = value;
        if (start + n < extent)
            parts[count++] = fe_slice(l, x, d, start + n, extent - start - n, 1);
        return count == 1 ? value : fe_cat(l, parts, count, d);
    }
    if (extent % step == 0 && start < step && n == extent / step) {
        /* One position of each run of `step`: a choice, where the runs are a dim of their own. */
        i64 cut[FE_MAX_RANK + 1], whole[FE_MAX_RANK];
        for (i64 i = 0; i < x->rank; i++)
            whole[i] = cut[i + (i > d)] = x->dims[i].extent;
        cut[d] = n, cut[d + 1] = step;
        fe_tensor *runs = fe_view(l, x, x->rank + 1, cut);
        fe_tensor *hit = fe_op2(l, IR_eq, fe_positions(l, runs, d + 1), fe_int(l, DT_i64, start));
        runs = fe_where(l, hit, fe_unsqueeze(l, value, d + 1), runs);
        return fe_view(l, runs, x->rank, whole);
    }
    /* Every step-th element: read the source at (position - start) / step where that is whole. */
    fe_tensor *at = fe_op2(l, IR_sub, fe_positions(l, x, d), fe_int(l, DT_i64, start));
    fe_tensor *whole =
        fe_op2(l, IR_eq, fe_op2(l, IR_mod, at, fe_int(l, DT_i64, step)), fe_int(l, DT_i64, 0));
    fe_tensor *quotient = fe_op2(l, IR_floordiv, at, fe_int(l, DT_i64, step));
    fe_tensor *hit = fe_op2(l, IR_and, whole,
                            fe_op2(l, IR_and, fe_op2(l, IR_le, fe_int(l, DT_i64, 0), quotient),
                                   fe_op2(l, IR_lt, quotient, fe_int(l, DT_i64, n))));
    fe_tensor *safe = fe_where(l, hit, quotient, fe_int(l, DT_i64, 0));
    i64 all[FE_MAX_RANK];
    for (i64 i = 0; i < x->rank; i++)
        all[i] = x->dims[i].extent;
    fe_tensor *spread = fe_take_along(l, value, d, fe_expand(l, safe, x->rank, all));
    return fe_where(l, hit, spread, x);
}
