/* tensor: operators on positional tensors that align their operands by broadcasting.
 *
 * `fe_align` is the centre: it makes dims that an operator equates one tuple of variables and dims
 * that it tells apart disjoint ones, by unifying, splitting, and where that is impossible by a
 * `reshape` or `rename` on one operand, so that everything else stays as it is. */
#include <math.h>

#include "frontend/lower.h"

fe_tensor *fe_tensor_new(fe_lower *l, u32 term, u8 type, i64 rank, const fe_dim *dims)
{
    fe_tensor *t = NEW(l->a, fe_tensor);
    if (rank > FE_MAX_RANK)
        fe_decline(l, "rank %lld is above %d", (long long)rank, FE_MAX_RANK);
    *t = (fe_tensor){.term = term,
                     .dtype = type,
                     .rank = rank,
                     .dims = arena_copy(l->a, dims, rank * (i64)sizeof(fe_dim))};
    VEC(u32) all = {0};
    for (i64 i = 0; i < rank; i++) {
        if (dims[i].extent == 0)
            t->term = 0;
        for (i64 k = 0; k < dims[i].vars.n; k++)
            vec_push(l->a, &all, dims[i].vars.at[k]);
    }
    fe_keep_apart(l->space, (fe_vars){all.at, all.n});
    return t;
}

fe_dim fe_dim_new(fe_lower *l, i64 extent)
{
    if (extent < 0)
        fe_fail(l, "a size of %lld", (long long)extent);
    if (extent < 2)
        return (fe_dim){.extent = extent};
    u32 *v = NEW(l->a, u32);
    *v = fe_var_new(l->space, extent);
    return (fe_dim){extent, {v, 1}};
}

bool fe_is_empty(const fe_tensor *x)
{
    for (i64 i = 0; i < x->rank; i++)
        if (x->dims[i].extent == 0)
            return true;
    return false;
}

i64 fe_count(fe_lower *l, const fe_tensor *x)
{
    i64 n = 1;
    for (i64 i = 0; i < x->rank; i++)
        if (!mul_i64(n, x->dims[i].extent, &n))
            fe_fail(l, "the number of elements does not fit 64 bits");
    return n;
}

/* ---- leaves -------------------------------------------------------------------------------- */

fe_tensor *fe_num(fe_lower *l, u8 type, f64 value)
{
    return fe_tensor_new(l, fe_draft_new(l, (fe_draft){.op = IR_const, .dtype = type, .f = value}),
                         type, 0, NULL);
}

fe_tensor *fe_int(fe_lower *l, u8 type, i64 value)
{
    return fe_tensor_new(l, fe_draft_new(l, (fe_draft){.op = IR_const, .dtype = type, .i = value}),
                         type, 0, NULL);
}

/* The number converted as a cast to the dtype would. */
static fe_tensor *constant(fe_lower *l, u8 type, fe_scalar v)
{
    if (dtype_is_float((dtype)type))
        return fe_num(l, type, v.f);
    if (type == DT_bool)
        return fe_int(l, type, v.kind == DK_FLOAT ? v.f != 0.0 : v.i != 0);
    i64 i = v.kind == DK_FLOAT ? (fabs(v.f) < 0x1p63 ? (i64)v.f : INT64_MIN) : v.i;
    if (type == DT_i32)
        i = (i32)(u32)(u64)i;
    else if (type == DT_i8)
        i = (i8)(u8)(u64)i;
    return fe_int(l, type, i);
}

fe_tensor *fe_full(fe_lower *l, u8 type, fe_scalar value, i64 rank, const i64 *sizes)
{
    fe_dim *dims = NEW_N(l->a, fe_dim, rank);
    for (i64 i = 0; i < rank; i++)
        dims[i] = fe_dim_new(l, sizes[i]);
    return fe_tensor_new(l, constant(l, type, value)->term, type, rank, dims);
}

fe_tensor *fe_fill_like(fe_lower *l, const fe_tensor *x, const fe_tensor *value)
{
    return fe_tensor_new(l, value->term, value->dtype, x->rank, x->dims);
}

fe_tensor *fe_iota(fe_lower *l, i64 n)
{
    fe_dim d = fe_dim_new(l, n);
    if (n < 2) {
        fe_tensor *zero = fe_int(l, DT_i64, 0);
        return fe_tensor_new(l, zero->term, DT_i64, 1, &d);
    }
    u32 t = fe_draft_new(l, (fe_draft){.op = IR_iota, .dtype = DT_i64, .axis = d.vars});
    return fe_tensor_new(l, t, DT_i64, 1, &d);
}

/* ---- alignment ----------------------------------------------------------------------------- */

typedef VEC(u32) id_list;

static bool in_list(const id_list *list, u32 v)
{
    for (i64 i = 0; i < list->n; i++)
        if (list->at[i] == v)
            return true;
    return false;
}

/* x with term and dims changed by a substitution of variables. */
static fe_tensor *renamed(fe_lower *l, const fe_tensor *x, const id_list *from, const id_list *to)
{
    id_list have = {0}, want = {0};
    for (i64 i = 0; x->term && i < from->n; i++)
        if (fe_draft_has(l, x->term, from->at[i])) {
            vec_push(l->a, &have, from->at[i]);
            vec_push(l->a, &want, to->at[i]);
        }
    u32 term = x->term;
    if (have.n)
        term = fe_draft_new(l, (fe_draft){.op = IR_rename,
                                          .dtype = x->dtype,
                                          .axis = {have.at, have.n},
                                          .to = {want.at, want.n},
                                          .args = &x->term,
                                          .arg_count = 1});
    for (i64 i = 0; i < from->n; i++)
        fe_link(l->space, from->at[i], to->at[i]);
    fe_dim *dims = NEW_N(l->a, fe_dim, x->rank);
    for (i64 d = 0; d < x->rank; d++) {
        fe_vars flat = fe_flat(l->space, x->dims[d].vars);
        u32 *at = arena_copy(l->a, flat.at, flat.n * (i64)sizeof(u32));
        for (i64 k = 0; k < flat.n; k++)
            for (i64 i = 0; i < from->n; i++)
                if (flat.at[k] == from->at[i])
                    at[k] = to->at[i];
        dims[d] = (fe_dim){x->dims[d].extent, {at, flat.n}};
    }
    fe_tensor *y = fe_tensor_new(l, term, x->dtype, x->rank, dims);
    y->is_number = x->is_number;
    return y;
}

static bool varies_with(fe_lower *l, const fe_tensor *x, const u32 *v, i64 n)
{
    for (i64 i = 0; x->term && i < n; i++)
        if (fe_draft_has(l, x->term, v[i]))
            return true;
    return false;
}

/* The term of x read so that the n variables `group` are the m variables `as`, row-major. */
static u32 reshaped(fe_lower *l, const fe_tensor *x, const u32 *group, i64 n, const u32 *as, i64 m)
{
    if (!varies_with(l, x, group, n))
        return x->term;
    u32 term = x->term;
    id_list missing = {0};
    for (i64 i = 0; i < n; i++)
        if (!fe_draft_has(l, term, group[i]))
            vec_push(l->a, &missing, group[i]);
    if (missing.n)
        term = fe_draft_new(l, (fe_draft){.op = IR_expand,
                                          .dtype = x->dtype,
                                          .to = {missing.at, missing.n},
                                          .args = &term,
                                          .arg_count = 1});
    id_list both = {0};
    for (i64 i = 0; i < n; i++)
        vec_push(l->a, &both, group[i]);
    for (i64 i = 0; i < m; i++)
        vec_push(l->a, &both, as[i]);
    fe_keep_apart(l->space, (fe_vars){both.at, both.n});
    return fe_draft_new(l, (fe_draft){.op = IR_reshape,
                                      .dtype = x->dtype,
                                      .axis = {group, n},
                                      .to = {as, m},
                                      .args = &term,
                                      .arg_count = 1});
}

/* Where the first groups of a and b with equal products end. */
static void next_group(fe_lower *l, fe_vars a, i64 i, fe_vars b, i64 k, i64 *i_end, i64 *k_end)
{
    i64 pa = fe_var_extent(l->space, a.at[i++]), pb = fe_var_extent(l->space, b.at[k++]);
    while (pa != pb) {
        if (pa < pb && i < a.n)
            pa *= fe_var_extent(l->space, a.at[i++]);
        else if (pb < pa && k < b.n)
            pb *= fe_var_extent(l->space, b.at[k++]);
        else
            eqf_bug(l->ctx, "dims of different extents were aligned");
    }
    *i_end = i, *k_end = k;
}

/* Cuts both groups into a common refinement; false, with nothing done, when there is none. */
static bool refine(fe_lower *l, const u32 *a, i64 na, const u32 *b, i64 nb)
{
    if (na == 1 && nb == 1)
        return true;
    for (int pass = 0; pass < 2; pass++) {
        i64 i = 0, k = 0, ea = 0, eb = 0; /* what is left of a[i], b[k]; 0: not begun */
        VEC(i64) cut_a = {0}, cut_b = {0};
        while (i < na || k < nb) {
            if (!ea)
                ea = fe_var_extent(l->space, a[i]);
            if (!eb)
                eb = fe_var_extent(l->space, b[k]);
            i64 e = MIN(ea, eb);
            if (ea % e || eb % e)
                return false;
            vec_push(l->a, &cut_a, e);
            vec_push(l->a, &cut_b, e);
            ea /= e, eb /= e;
            if (ea == 1) {
                if (cut_a.n > 1 && (pass ? !fe_split(l->space, a[i], cut_a.at, cut_a.n)
                                         : fe_is_pinned(l->space, a[i])))
                    return false;
                cut_a.n = 0, ea = 0, i++;
            }
            if (eb == 1) {
                if (cut_b.n > 1 && (pass ? !fe_split(l->space, b[k], cut_b.at, cut_b.n)
                                         : fe_is_pinned(l->space, b[k])))
                    return false;
                cut_b.n = 0, eb = 0, k++;
            }
        }
    }
    return true;
}

/* Replaces variables [i, end) of dim d's flat tuple. */
static fe_tensor *with_group(fe_lower *l, const fe_tensor *x, u32 term, i64 d, fe_vars flat, i64 i,
                             i64 end, const u32 *as, i64 m)
{
    id_list tuple = {0};
    for (i64 k = 0; k < i; k++)
        vec_push(l->a, &tuple, flat.at[k]);
    for (i64 k = 0; k < m; k++)
        vec_push(l->a, &tuple, as[k]);
    for (i64 k = end; k < flat.n; k++)
        vec_push(l->a, &tuple, flat.at[k]);
    fe_dim *dims = arena_copy(l->a, x->dims, x->rank * (i64)sizeof(fe_dim));
    dims[d].vars = (fe_vars){tuple.at, tuple.n};
    fe_tensor *y = fe_tensor_new(l, term, x->dtype, x->rank, dims);
    y->is_number = x->is_number;
    return y;
}

static i64 dim_of_label(const fe_tensor *x, const i8 *labels, i8 label)
{
    for (i64 d = 0; d < x->rank; d++)
        if (labels[d] == label && x->dims[d].extent > 1)
            return d;
    return -1;
}

/* Fresh variables with the extents of `like`. */
static u32 *fresh(fe_lower *l, const u32 *like, i64 n)
{
    u32 *v = NEW_N(l->a, u32, n);
    for (i64 i = 0; i < n; i++)
        v[i] = fe_var_new(l->space, fe_var_extent(l->space, like[i]));
    return v;
}

/* Makes the tuples of `label` in xs[0 … i) and in xs[i] parallel lists of leaves. */
static void fit(fe_lower *l, fe_tensor **xs, const i8 *const *labels, i64 i, i8 label, fe_dim *out)
{
    i64 d = dim_of_label(xs[i], labels[i], label), a = 0, b = 0, a_end, b_end;
    for (;;) {
        fe_vars fa = fe_flat(l->space, out->vars), fb = fe_flat(l->space, xs[i]->dims[d].vars);
        if (a >= fa.n || b >= fb.n)
            break;
        next_group(l, fa, a, fb, b, &a_end, &b_end);
        i64 na = a_end - a, nb = b_end - b;
        if (na == 1 && nb == 1) {
            a++, b++;
            continue;
        }
        if (refine(l, fa.at + a, na, fb.at + b, nb)) {
            fa = fe_flat(l->space, (fe_vars){fa.at + a, na});
            a += fa.n, b += fa.n;
            continue;
        }
        /* No common refinement: one side is read anew. An earlier operand that merely repeats along
         * the group is free to follow. */
        bool is_free = true;
        for (i64 k = 0; k < i; k++)
            is_free = is_free && !varies_with(l, xs[k], fa.at + a, na);
        if (is_free && varies_with(l, xs[i], fb.at + b, nb)) {
            u32 *as = fresh(l, fb.at + b, nb);
            for (i64 k = 0; k < i; k++) {
                i64 e = dim_of_label(xs[k], labels[k], label);
                if (e >= 0)
                    xs[k] = with_group(l, xs[k], xs[k]->term, e,
                                       fe_flat(l->space, xs[k]->dims[e].vars), a, a_end, as, nb);
            }
            id_list tuple = {0};
            for (i64 k = 0; k < fa.n; k++) {
                if (k == a)
                    for (i64 m = 0; m < nb; m++)
                        vec_push(l->a, &tuple, as[m]);
                if (k < a || k >= a_end)
                    vec_push(l->a, &tuple, fa.at[k]);
            }
            out->vars = (fe_vars){tuple.at, tuple.n};
            a += nb, b += nb;
        } else {
            u32 *as = fresh(l, fa.at + a, na);
            u32 term = reshaped(l, xs[i], fb.at + b, nb, as, na);
            xs[i] = with_group(l, xs[i], term, d, fb, b, b_end, as, na);
            a += na, b += na;
        }
    }
}

typedef struct mapping {
    id_list from, to;
    i64 newest; /* among what meets a partner */
    i64 cost;   /* terms that need a rename */
} mapping;

static void map_add(fe_lower *l, mapping *m, u32 from, u32 to)
{
    vec_push(l->a, &m->from, from);
    vec_push(l->a, &m->to, to);
}

void fe_align(fe_lower *l, fe_tensor **xs, const i8 *const *labels, i64 n, fe_dim out[64],
              bool is_symmetric)
{
    for (i64 k = 0; k < 64; k++)
        out[k] = (fe_dim){.extent = 1};
    for (i64 i = 0; i < n; i++) {
        VEC(u32) before = {0};
        for (i64 k = 0; i && k < 64; k++)
            for (i64 m = 0; m < out[k].vars.n; m++)
                vec_push(l->a, &before, out[k].vars.at[m]);
        fe_keep_apart(l->space, (fe_vars){before.at, before.n});
        /* Tuples that meet become parallel, then equal where that is possible. */
        for (i64 d = 0; d < xs[i]->rank; d++) {
            i8 label = labels[i][d];
            if (label < 0 || xs[i]->dims[d].extent < 2 || out[label].extent < 2)
                continue;
            if (out[label].extent != xs[i]->dims[d].extent)
                fe_fail(l, "dims of %lld and %lld do not broadcast", (long long)out[label].extent,
                        (long long)xs[i]->dims[d].extent);
            fit(l, xs, labels, i, label, &out[label]);
            fe_vars fa = fe_flat(l->space, out[label].vars);
            fe_vars fb = fe_flat(l->space, xs[i]->dims[d].vars);
            for (i64 k = 0; k < fa.n; k++)
                fe_unify(l->space, fa.at[k], fb.at[k]);
        }
        /* What is left: pairs that must be equal and are not, and equal ones that must not be. */
        id_list mine = {0}, theirs = {0};
        for (i64 k = 0; k < 64; k++) {
            fe_vars f = fe_flat(l->space, out[k].vars);
            for (i64 m = 0; m < f.n; m++)
                vec_push(l->a, &theirs, f.at[m]);
        }
        for (i64 d = 0; d < xs[i]->rank; d++) {
            fe_vars f = fe_flat(l->space, xs[i]->dims[d].vars);
            for (i64 m = 0; m < f.n; m++)
                vec_push(l->a, &mine, f.at[m]);
        }
        mapping late = {.newest = -1}, early = {.newest = -1};
        bool is_shared[64] = {0};
        for (i64 d = 0; d < xs[i]->rank; d++) {
            i8 label = labels[i][d];
            if (label < 0 || xs[i]->dims[d].extent < 2 || out[label].extent < 2)
                continue;
            is_shared[label] = true;
            fe_vars fa = fe_flat(l->space, out[label].vars);
            fe_vars fb = fe_flat(l->space, xs[i]->dims[d].vars);
            for (i64 k = 0; k < fa.n; k++)
                if (fa.at[k] != fb.at[k]) {
                    map_add(l, &late, fb.at[k], fa.at[k]);
                    map_add(l, &early, fa.at[k], fb.at[k]);
                    late.newest = MAX(late.newest, fb.at[k]);
                    early.newest = MAX(early.newest, fa.at[k]);
                }
        }
        for (i64 d = 0; d < xs[i]->rank; d++) {
            i8 label = labels[i][d];
            if (xs[i]->dims[d].extent < 2 || (label >= 0 && is_shared[label]))
                continue;
            fe_vars fb = fe_flat(l->space, xs[i]->dims[d].vars);
            for (i64 k = 0; k < fb.n; k++)
                if (in_list(&theirs, fb.at[k])) {
                    u32 *as = fresh(l, &fb.at[k], 1);
                    map_add(l, &late, fb.at[k], as[0]);
                }
        }
        for (i64 k = 0; k < 64; k++) {
            fe_vars fa = fe_flat(l->space, out[k].vars);
            for (i64 m = 0; !is_shared[k] && m < fa.n; m++)
                if (in_list(&mine, fa.at[m]))
                    map_add(l, &early, fa.at[m], fresh(l, &fa.at[m], 1)[0]);
        }
        if (late.from.n || early.from.n) {
            late.cost = varies_with(l, xs[i], late.from.at, late.from.n);
            for (i64 k = 0; k < i; k++)
                early.cost += varies_with(l, xs[k], early.from.at, early.from.n);
            bool is_early = false;
            if (is_symmetric && late.cost != early.cost)
                is_early = early.cost < late.cost;
            else if (is_symmetric && late.from.n != early.from.n)
                is_early = early.from.n < late.from.n;
            else if (is_symmetric)
                is_early = early.newest > late.newest;
            if (is_early) {
                for (i64 k = 0; k < i; k++)
                    xs[k] = renamed(l, xs[k], &early.from, &early.to);
                for (i64 k = 0; k < 64; k++) {
                    fe_vars f = fe_flat(l->space, out[k].vars);
                    u32 *at = arena_copy(l->a, f.at, f.n * (i64)sizeof(u32));
                    for (i64 m = 0; m < f.n; m++)
                        for (i64 j = 0; j < early.from.n; j++)
                            if (f.at[m] == early.from.at[j])
                                at[m] = early.to.at[j];
                    out[k].vars = (fe_vars){at, f.n};
                }
            } else {
                xs[i] = renamed(l, xs[i], &late.from, &late.to);
            }
        }
        for (i64 d = 0; d < xs[i]->rank; d++) {
            i8 label = labels[i][d];
            if (label >= 0 && out[label].extent == 1)
                out[label] = xs[i]->dims[d];
        }
    }
    VEC(u32) all = {0};
    for (i64 k = 0; k < 64; k++)
        for (i64 m = 0; m < out[k].vars.n; m++)
            vec_push(l->a, &all, out[k].vars.at[m]);
    fe_keep_apart(l->space, (fe_vars){all.at, all.n});
}

i64 fe_broadcast(fe_lower *l, fe_tensor *const *xs, i64 n, i64 sizes[FE_MAX_RANK])
{
    i64 rank = 0;
    for (i64 i = 0; i < n; i++)
        rank = MAX(rank, xs[i]->rank);
    for (i64 d = 0; d < rank; d++) {
        sizes[d] = 1;
        for (i64 i = 0; i < n; i++) {
            i64 k = d - (rank - xs[i]->rank);
            i64 e = k < 0 ? 1 : xs[i]->dims[k].extent;
            if (e != 1 && sizes[d] != 1 && e != sizes[d])
                fe_fail(l, "dims of %lld and %lld do not broadcast", (long long)sizes[d],
                        (long long)e);
            if (e != 1)
                sizes[d] = e;
        }
    }
    return rank;
}

/* Aligns operands from the right; returns the rank and fills dims. */
static i64 broadcast(fe_lower *l, fe_tensor **xs, i64 n, fe_dim dims[64])
{
    i64 sizes[FE_MAX_RANK];
    i64 rank = fe_broadcast(l, xs, n, sizes);
    bool is_empty = false;
    for (i64 d = 0; d < rank; d++)
        is_empty = is_empty || sizes[d] == 0;
    if (is_empty) {
        for (i64 d = 0; d < rank; d++)
            dims[d] = fe_dim_new(l, sizes[d]);
        return rank;
    }
    i8 *rows = NEW_N(l->a, i8, n * FE_MAX_RANK);
    const i8 **labels = NEW_N(l->a, const i8 *, n);
    for (i64 i = 0; i < n; i++) {
        for (i64 d = 0; d < xs[i]->rank; d++)
            rows[i * FE_MAX_RANK + d] = (i8)(d + rank - xs[i]->rank);
        labels[i] = &rows[i * FE_MAX_RANK];
    }
    fe_align(l, xs, labels, n, dims, true);
    return rank;
}

void fe_broadcast_all(fe_lower *l, fe_tensor **xs, i64 n)
{
    fe_dim dims[64];
    i64 rank = broadcast(l, xs, n, dims);
    for (i64 i = 0; i < n; i++)
        xs[i] = fe_tensor_new(l, xs[i]->term, xs[i]->dtype, rank, dims);
}

/* ---- pointwise ----------------------------------------------------------------------------- */

static u8 result_dtype(ir_op op, u8 operand)
{
    ir_rule rule = (ir_rule)ir_row(op)->rule;
    return rule == IR_COMPARE || rule == IR_TEST ? DT_bool : operand;
}

static fe_tensor *pointwise(fe_lower *l, ir_op op, fe_tensor **xs, i64 n, u8 type)
{
    fe_dim dims[64];
    i64 rank = broadcast(l, xs, n, dims);
    u32 args[3];
    bool has_terms = true;
    for (i64 i = 0; i < n; i++) {
        args[i] = xs[i]->term;
        has_terms = has_terms && args[i];
    }
    u32 term = has_terms
                   ? fe_draft_new(
                         l, (fe_draft){.op = (u16)op, .dtype = type, .args = args, .arg_count = n})
                   : 0;
    return fe_tensor_new(l, term, type, rank, dims);
}

fe_tensor *fe_cast(fe_lower *l, u8 type, const fe_tensor *x)
{
    if (x->dtype == type)
        return fe_tensor_new(l, x->term, type, x->rank, x->dims);
    u32 term = x->term;
    if (term)
        term = fe_draft_new(
            l, (fe_draft){.op = IR_cast, .dtype = type, .args = &x->term, .arg_count = 1});
    return fe_tensor_new(l, term, type, x->rank, x->dims);
}

fe_tensor *fe_op1(fe_lower *l, ir_op op, const fe_tensor *x)
{
    u32 term = x->term;
    u8 type = result_dtype(op, x->dtype);
    if (term)
        term = fe_draft_new(
            l, (fe_draft){.op = (u16)op, .dtype = type, .args = &x->term, .arg_count = 1});
    return fe_tensor_new(l, term, type, x->rank, x->dims);
}

fe_tensor *fe_op2(fe_lower *l, ir_op op, const fe_tensor *x, const fe_tensor *y)
{
    if (x->dtype != y->dtype)
        fe_decline(l, "operands of %s and %s", dtype_name((dtype)x->dtype),
                   dtype_name((dtype)y->dtype));
    fe_tensor *xs[2] = {(fe_tensor *)x, (fe_tensor *)y};
    return pointwise(l, op, xs, 2, result_dtype(op, x->dtype));
}

fe_tensor *fe_op2n(fe_lower *l, ir_op op, const fe_tensor *x, f64 number)
{
    fe_scalar v = {DK_FLOAT, 0, number};
    return fe_op2(l, op, x, constant(l, x->dtype, v));
}

fe_tensor *fe_where(fe_lower *l, const fe_tensor *c, const fe_tensor *x, const fe_tensor *y)
{
    if (x->dtype != y->dtype || c->dtype != DT_bool)
        fe_decline(l, "operands of %s, %s and %s", dtype_name((dtype)c->dtype),
                   dtype_name((dtype)x->dtype), dtype_name((dtype)y->dtype));
    fe_tensor *xs[3] = {(fe_tensor *)c, (fe_tensor *)x, (fe_tensor *)y};
    return pointwise(l, IR_where, xs, 3, x->dtype);
}

/* ---- reductions, products ------------------------------------------------------------------ */

static fe_vars tuple_of(fe_lower *l, const fe_tensor *x, u64 dims)
{
    VEC(u32) all = {0};
    for (i64 d = 0; d < x->rank; d++)
        for (i64 k = 0; dims >> d & 1 && k < x->dims[d].vars.n; k++)
            vec_push(l->a, &all, x->dims[d].vars.at[k]);
    return (fe_vars){all.at, all.n};
}

fe_tensor *fe_reduce(fe_lower *l, ir_reducer r, const fe_tensor *x, u64 dims, bool keep)
{
    VEC(fe_dim) left = {0};
    for (i64 d = 0; d < x->rank; d++)
        if (!(dims >> d & 1))
            vec_push(l->a, &left, x->dims[d]);
        else if (keep)
            vec_push(l->a, &left, (fe_dim){.extent = 1});
    u32 term = x->term;
    fe_vars axis = tuple_of(l, x, dims);
    if (!term && dtype_is_float((dtype)x->dtype)) /* no elements: the identity */
        term = fe_num(l, x->dtype, ir_reducer_identity_f64(r))->term;
    else if (!term)
        term = fe_int(l, x->dtype, ir_reducer_identity_i64(r, (dtype)x->dtype))->term;
    else if (axis.n)
        term = fe_draft_new(l, (fe_draft){.op = IR_reduce,
                                          .dtype = x->dtype,
                                          .reducer = (u8)r,
                                          .axis = axis,
                                          .args = &term,
                                          .arg_count = 1});
    return fe_tensor_new(l, term, x->dtype, left.n, left.at);
}

fe_tensor *fe_mean(fe_lower *l, const fe_tensor *x, u64 dims, bool keep)
{
    i64 n = 1;
    for (i64 d = 0; d < x->rank; d++)
        if (dims >> d & 1)
            n *= x->dims[d].extent;
    fe_tensor *sum = fe_reduce(l, IR_SUM, x, dims, keep);
    return fe_op2n(l, IR_mul, sum, n ? 1.0 / (f64)n : (f64)NAN);
}

fe_tensor *fe_contract(fe_lower *l, const fe_tensor *a, const i8 *la, const fe_tensor *b,
                       const i8 *lb, const i8 *out, i64 n_out)
{
    i64 extent[64];
    bool is_out[64] = {0}, in_a[64] = {0}, in_b[64] = {0};
    for (i64 k = 0; k < 64; k++)
        extent[k] = 1;
    for (i64 k = 0; k < n_out; k++) {
        if (is_out[out[k]])
            fe_fail(l, "a product whose result has a dim twice");
        is_out[out[k]] = true;
    }
    for (i64 d = 0; d < a->rank; d++)
        in_a[la[d]] = true, extent[la[d]] = a->dims[d].extent;
    for (i64 d = 0; d < b->rank; d++) {
        in_b[lb[d]] = true;
        i64 *e = &extent[lb[d]], f = b->dims[d].extent;
        if (*e != 1 && f != 1 && *e != f)
            fe_fail(l, "dims of %lld and %lld in a product", (long long)*e, (long long)f);
        *e = f != 1 ? f : *e;
    }
    for (i64 k = 0; k < n_out; k++)
        if (!in_a[out[k]] && !in_b[out[k]])
            fe_fail(l, "a product whose result has a dim that no operand has");
    /* What only one operand has and nobody wants is summed before. */
    const fe_tensor *side[2] = {a, b};
    i8 *label[2] = {NEW_N(l->a, i8, 64), NEW_N(l->a, i8, 64)};
    for (int s = 0; s < 2; s++) {
        u64 gone = 0;
        i64 n = 0;
        const i8 *old = s ? lb : la;
        for (i64 d = 0; d < side[s]->rank; d++) {
            bool is_alone = !is_out[old[d]] && !(s ? in_a : in_b)[old[d]];
            if (is_alone)
                gone |= (u64)1 << d;
            else
                label[s][n++] = old[d];
        }
        if (gone)
            side[s] = fe_reduce(l, IR_SUM, side[s], gone, false);
    }
    bool is_out_empty = false, is_sum_empty = false;
    for (i64 k = 0; k < 64; k++)
        if (extent[k] == 0 && (in_a[k] || in_b[k]))
            *(is_out[k] ? &is_out_empty : &is_sum_empty) = true;
    fe_dim dims[64], result[64];
    u32 term = 0;
    if (is_out_empty || is_sum_empty) {
        for (i64 k = 0; k < n_out; k++)
            result[k] = fe_dim_new(l, extent[out[k]]);
        if (!is_out_empty)
            term = fe_num(l, a->dtype, 0)->term;
        return fe_tensor_new(l, term, a->dtype, n_out, result);
    }
    fe_tensor *xs[2] = {(fe_tensor *)side[0], (fe_tensor *)side[1]};
    const i8 *labels[2] = {label[0], label[1]};
    fe_align(l, xs, labels, 2, dims, false);
    VEC(u32) axis = {0};
    for (i64 k = 0; k < 64; k++)
        for (i64 m = 0; !is_out[k] && m < dims[k].vars.n; m++)
            vec_push(l->a, &axis, dims[k].vars.at[m]);
    u32 args[2] = {xs[0]->term, xs[1]->term};
    fe_draft d = {.op = IR_matmul,
                  .dtype = a->dtype,
                  .args = args,
                  .arg_count = 2,
                  .axis = {axis.at, axis.n}};
    if (!axis.n)
        d.op = IR_mul;
    term = fe_draft_new(l, d);
    for (i64 k = 0; k < n_out; k++)
        result[k] = dims[out[k]];
    return fe_tensor_new(l, term, a->dtype, n_out, result);
}

fe_tensor *fe_matmul(fe_lower *l, const fe_tensor *a, const fe_tensor *b)
{
    if (a->rank < 1 || b->rank < 1)
        fe_fail(l, "a product wants operands of rank 1 at least");
    if (a->dtype != b->dtype)
        fe_fail(l, "a product of %s and %s", dtype_name((dtype)a->dtype),
                dtype_name((dtype)b->dtype));
    /* Labels: batch dims from the right at 0 …, rows 61, sum 62, columns 63. */
    i8 la[64], lb[64], out[64];
    i64 na = a->rank, nb = b->rank, batch = MAX(MAX(na, nb) - 2, 0), n = 0;
    if (batch > 60)
        fe_decline(l, "a product of rank %lld", (long long)MAX(na, nb));
    for (i64 d = 0; d < na - 2; d++)
        la[d] = (i8)(batch - (na - 2) + d);
    for (i64 d = 0; d < nb - 2; d++)
        lb[d] = (i8)(batch - (nb - 2) + d);
    for (i64 k = 0; k < batch; k++)
        out[n++] = (i8)k;
    la[na - 1] = 62;
    if (na > 1)
        la[na - 2] = 61, out[n++] = 61;
    if (nb > 1)
        lb[nb - 2] = 62, lb[nb - 1] = 63, out[n++] = 63;
    else
        lb[0] = 62;
    i64 ka = a->dims[na - 1].extent, kb = b->dims[nb > 1 ? nb - 2 : 0].extent;
    if (ka != kb)
        fe_fail(l, "a product over dims of %lld and %lld", (long long)ka, (long long)kb);
    return fe_contract(l, a, la, b, lb, out, n);
}
