/* Products of ATen: linear algebra, einsum, attention. A product on half types accumulates in f32
 * and rounds once; what is added to it (bias, addmm) is added before the rounding. Attention
 * computes in f32 throughout and rounds its result. */
#include <ctype.h>
#include <math.h>

#include "frontend/lower.h"

static u8 same_dtype(fe_call *c, const fe_tensor *a, const fe_tensor *b)
{
    if (a->dtype != b->dtype)
        fe_fail(c->l, "a product of %s and %s", dtype_name((dtype)a->dtype),
                dtype_name((dtype)b->dtype));
    return a->dtype;
}

static fe_tensor *times(fe_lower *l, fe_tensor *x, fe_scalar s)
{
    if (s.f == 1.0)
        return x;
    return fe_arith(l, IR_mul, x, fe_scalar_tensor(l, s));
}

void fe_lower_matmul(fe_call *c)
{
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    same_dtype(c, a, b);
    if (c->row->code && (a->rank != c->row->code / 10 || b->rank != c->row->code % 10))
        fe_fail(c->l, "operands of rank %lld and %lld", (long long)a->rank, (long long)b->rank);
    fe_ret(c, fe_matmul(c->l, a, b));
}

void fe_lower_linear(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0), *w = fe_t(c, 1), *b = fe_t_opt(c, 2);
    u8 t = same_dtype(c, x, w), wide = b ? fe_wide(t) : t;
    w = w->rank > 1 ? fe_transpose(l, w, 0, 1) : w;
    fe_tensor *y = fe_matmul(l, fe_cast(l, wide, x), fe_cast(l, wide, w));
    if (b)
        y = fe_op2(l, IR_add, y, fe_cast(l, wide, b));
    fe_ret(c, fe_cast(l, t, y));
}

/* beta * self + alpha * (a x b); beta 0 ignores self, NaN in it too. */
void fe_lower_addmm(fe_call *c) /* self a b beta alpha; code 1: a and b are vectors */
{
    fe_lower *l = c->l;
    fe_tensor *self = fe_t(c, 0), *a = fe_t(c, 1), *b = fe_t(c, 2);
    u8 t = same_dtype(c, a, b), wide = fe_wide(t);
    a = fe_cast(l, wide, a), b = fe_cast(l, wide, b);
    if (c->row->code)
        a = fe_unsqueeze(l, a, 1), b = fe_unsqueeze(l, b, 0);
    fe_tensor *y = times(l, fe_matmul(l, a, b), fe_sc(c, 4));
    if (fe_sc(c, 3).f != 0.0)
        y = fe_op2(l, IR_add, times(l, fe_cast(l, wide, self), fe_sc(c, 3)), y);
    fe_ret(c, fe_cast(l, t, y));
}

void fe_lower_outer(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    fe_ret(c, fe_arith(l, IR_mul, fe_unsqueeze(l, a, 1), fe_unsqueeze(l, b, 0)));
}

void fe_lower_vecdot(fe_call *c) /* x y dim */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = same_dtype(c, xs[0], xs[1]);
    fe_broadcast_all(l, xs, 2);
    i64 d = fe_dim_i(c, xs[0], 2);
    fe_tensor *y = fe_op2(l, IR_mul, fe_widened(l, xs[0]), fe_widened(l, xs[1]));
    fe_ret(c, fe_cast(l, t, fe_reduce(l, IR_SUM, y, (u64)1 << d, false)));
}

/* The components of x along d, k places earlier. */
static fe_tensor *turned(fe_lower *l, const fe_tensor *x, i64 d, i64 k)
{
    fe_tensor *parts[2] = {fe_slice(l, x, d, k, 3 - k, 1), fe_slice(l, x, d, 0, k, 1)};
    return fe_cat(l, parts, 2, d);
}

void fe_lower_cross(fe_call *c) /* self other dim; code 1: without dim the first of extent 3 */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    for (int i = 0; i < 2; i++)
        xs[i] = fe_cast(l, t, xs[i]);
    fe_broadcast_all(l, xs, 2);
    i64 d = 0;
    if (fe_has(c, 2))
        d = fe_dim_i(c, xs[0], 2);
    else
        while (d < xs[0]->rank && xs[0]->dims[d].extent != 3)
            d++;
    if (d >= xs[0]->rank || xs[0]->dims[d].extent != 3)
        fe_fail(l, "a cross product along a dim that is not 3");
    fe_tensor *left = fe_op2(l, IR_mul, turned(l, xs[0], d, 1), turned(l, xs[1], d, 2));
    fe_tensor *right = fe_op2(l, IR_mul, turned(l, xs[0], d, 2), turned(l, xs[1], d, 1));
    fe_ret(c, fe_op2(l, IR_sub, left, right));
}

void fe_lower_inner(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    if (a->rank == 0 || b->rank == 0) {
        fe_ret(c, fe_arith(l, IR_mul, a, b));
        return;
    }
    same_dtype(c, a, b);
    if (a->rank > 31 || b->rank > 31)
        fe_decline(l, "a product of rank %lld", (long long)MAX(a->rank, b->rank));
    i8 la[64], lb[64], out[64];
    i64 n = 0;
    for (i64 d = 0; d < a->rank - 1; d++)
        out[n++] = la[d] = (i8)d;
    for (i64 d = 0; d < b->rank - 1; d++)
        out[n++] = lb[d] = (i8)(31 + d);
    la[a->rank - 1] = lb[b->rank - 1] = 63;
    fe_ret(c, fe_contract(l, a, la, b, lb, out, n));
}

void fe_lower_tensordot(fe_call *c)
{
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    i64 na, nb, n = 0;
    i64 *da = fe_is(c, 2, &na), *db = fe_is(c, 3, &nb);
    same_dtype(c, a, b);
    if (na != nb || a->rank + b->rank - na > 64)
        fe_fail(c->l, "sums over %lld and %lld dims", (long long)na, (long long)nb);
    i8 la[64], lb[64], out[64], label = 0;
    memset(la, -1, sizeof la);
    memset(lb, -1, sizeof lb);
    for (i64 k = 0; k < na; k++, label++) {
        la[fe_axis(c, a, da[k])] = label;
        lb[fe_axis(c, b, db[k])] = label;
    }
    for (i64 d = 0; d < a->rank; d++)
        if (la[d] < 0)
            out[n++] = la[d] = label++;
    for (i64 d = 0; d < b->rank; d++)
        if (lb[d] < 0)
            out[n++] = lb[d] = label++;
    fe_ret(c, fe_contract(c->l, a, la, b, lb, out, n));
}

void fe_lower_kron(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1);
    while (a->rank < b->rank)
        a = fe_unsqueeze(l, a, 0);
    while (b->rank < a->rank)
        b = fe_unsqueeze(l, b, 0);
    i64 rank = a->rank, sizes[FE_MAX_RANK];
    fe_tensor *x = a, *y = b;
    for (i64 d = rank; d-- > 0;) {
        sizes[d] = a->dims[d].extent * b->dims[d].extent;
        x = fe_unsqueeze(l, x, d + 1);
        y = fe_unsqueeze(l, y, d);
    }
    fe_ret(c, fe_view(l, fe_arith(l, IR_mul, x, y), rank, sizes));
}

void fe_lower_multi_dot(fe_call *c)
{
    i64 n;
    fe_tensor **xs = fe_ts(c, 0, &n), *y = n ? xs[0] : NULL;
    if (!y)
        fe_fail(c->l, "an empty list of tensors");
    for (i64 k = 1; k < n; k++)
        y = fe_matmul(c->l, y, xs[k]);
    fe_ret(c, y);
}

/* sum_ij x1_i W_kij x2_j + b_k */
void fe_lower_bilinear(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *a = fe_t(c, 0), *b = fe_t(c, 1), *w = fe_t(c, 2), *bias = fe_t_opt(c, 3);
    i8 la[64], lb[64], lw[3] = {60, 61, 62}, lm[64], out[64];
    i64 n = a->rank - 1;
    if (n < 0 || n > 50 || b->rank != a->rank || w->rank != 3)
        fe_fail(l, "operands of rank %lld, %lld and %lld", (long long)a->rank, (long long)b->rank,
                (long long)w->rank);
    for (i64 d = 0; d < n; d++)
        la[d] = lb[d] = lm[d] = out[d] = (i8)d;
    la[n] = 61, lb[n] = 62, lm[n] = 60, lm[n + 1] = 62, out[n] = 60;
    fe_tensor *m = fe_contract(l, a, la, w, lw, lm, n + 2);
    fe_tensor *y = fe_contract(l, m, lm, b, lb, out, n + 1);
    if (bias)
        y = fe_arith(l, IR_add, y, bias);
    fe_ret(c, y);
}

/* i1, i2, i3 with unit dims put in at expand*, multiplied, summed over sumdim. */
void fe_lower_trilinear(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *xs[3], *y;
    for (i64 i = 0; i < 3; i++) {
        i64 n;
        i64 *at = fe_is(c, 3 + i, &n);
        xs[i] = fe_t(c, i);
        for (i64 k = 0; k < n; k++)
            xs[i] = fe_unsqueeze(l, xs[i], at[k]);
    }
    i64 rank = xs[0]->rank, n_out = 0;
    if (xs[1]->rank != rank || xs[2]->rank != rank)
        fe_fail(l, "operands of different rank");
    u64 sum = 0;
    i64 n, *dims = fe_is(c, 6, &n);
    for (i64 k = 0; k < n; k++)
        sum |= (u64)1 << fe_axis(c, xs[0], dims[k]);
    i8 labels[64], keep[64];
    i64 n_keep = 0;
    i8 out[64];
    for (i64 d = 0; d < rank; d++) {
        labels[d] = (i8)d;
        bool needed = !(sum >> d & 1) || xs[2]->dims[d].extent != 1;
        if (needed)
            keep[n_keep++] = (i8)d;
        if (!(sum >> d & 1))
            out[n_out++] = (i8)d;
    }
    y = fe_contract(l, xs[0], labels, xs[1], labels, keep, n_keep);
    fe_ret(c, fe_contract(l, y, keep, xs[2], labels, out, n_out));
}

/* ---- einsum  ------------------------------------------------------------------------------- */

enum { ELLIPSIS_LAST = 63 }; /* ellipsis dims count down from here, letters up from 0 */

static i8 letter(fe_lower *l, char ch)
{
    if (!isalpha((unsigned char)ch))
        fe_fail(l, "the equation has `%c`", ch);
    return (i8)(islower((unsigned char)ch) ? ch - 'a' : 26 + ch - 'A');
}

/* Labels of one term of the equation, up to `end`; returns their number. */
static i64 parse_term(fe_lower *l, const char *s, const char *end, i64 ellipsis, i8 *labels)
{
    i64 n = 0;
    for (; s < end; s++) {
        if (*s == ' ')
            continue;
        if (*s == '.') {
            if (end - s < 3 || s[1] != '.' || s[2] != '.')
                fe_fail(l, "the equation has a stray dot");
            for (i64 k = 0; k < ellipsis && n < 64; k++)
                labels[n++] = (i8)(ELLIPSIS_LAST - (ellipsis - 1 - k));
            s += 2;
        } else if (n < 64) {
            labels[n++] = letter(l, *s);
        }
    }
    return n;
}

static i64 count_letters(const char *s, const char *end)
{
    i64 n = 0;
    for (; s < end; s++)
        n += isalpha((unsigned char)*s) != 0;
    return n;
}

/* Repeated labels become diagonals. */
static fe_tensor *distinct(fe_lower *l, fe_tensor *x, i8 *labels)
{
    for (i64 i = 0; i < x->rank; i++)
        for (i64 k = i + 1; k < x->rank; k++)
            if (labels[i] == labels[k]) {
                i8 label = labels[i];
                x = fe_diagonal(l, x, 0, i, k); /* the diagonal comes last */
                memmove(labels + k, labels + k + 1, (size_t)(x->rank - k));
                memmove(labels + i, labels + i + 1, (size_t)(x->rank - 1 - i));
                labels[x->rank - 1] = label;
                return distinct(l, x, labels);
            }
    return x;
}

static bool has_label(const i8 *labels, i64 n, i8 label)
{
    return memchr(labels, label, (size_t)n);
}

static fe_tensor *arranged(fe_lower *l, fe_tensor *x, const i8 *labels, const i8 *out, i64 n_out)
{
    u64 gone = 0;
    i8 left[64];
    i64 n = 0, order[64];
    for (i64 d = 0; d < x->rank; d++)
        if (has_label(out, n_out, labels[d]))
            left[n++] = labels[d];
        else
            gone |= (u64)1 << d;
    if (gone)
        x = fe_reduce(l, IR_SUM, x, gone, false);
    for (i64 k = 0; k < n_out; k++) {
        const i8 *at = memchr(left, out[k], (size_t)n);
        if (!at || n != n_out)
            fe_fail(l, "the equation's result has a letter that no operand has, or one twice");
        order[k] = at - left;
    }
    return fe_permute(l, x, order);
}

void fe_lower_einsum(fe_call *c)
{
    fe_lower *l = c->l;
    const char *s = fe_s(c, 0), *arrow = strstr(s, "->");
    const char *stop = arrow ? arrow : s + strlen(s);
    i64 n, ellipsis = 0;
    fe_tensor **xs = fe_ts(c, 1, &n);
    for (i64 i = 0; i < n; i++)
        if (!xs[i])
            fe_fail(l, "a list of tensors with a hole");
    if (n < 1 || !s)
        fe_fail(l, "no operands");
    i8(*labels)[64] = (i8(*)[64])NEW_N(l->a, i8, n * 64);
    for (int pass = 0; pass < 2; pass++) {
        const char *p = s;
        for (i64 i = 0; i < n; i++) {
            const char *end = memchr(p, ',', (size_t)(stop - p));
            end = end ? end : stop;
            if (pass == 0 && memchr(p, '.', (size_t)(end - p)))
                ellipsis = MAX(ellipsis, xs[i]->rank - count_letters(p, end));
            if (ellipsis > 11)
                fe_decline(l, "an ellipsis of %lld dims", (long long)ellipsis);
            if (pass == 1) {
                i64 own =
                    memchr(p, '.', (size_t)(end - p)) ? xs[i]->rank - count_letters(p, end) : 0;
                if (parse_term(l, p, end, own, labels[i]) != xs[i]->rank)
                    fe_fail(l, "operand %lld has rank %lld", (long long)i, (long long)xs[i]->rank);
            }
            p = end < stop ? end + 1 : end;
        }
    }
    i8 out[64];
    i64 n_out = 0;
    if (arrow) {
        n_out = parse_term(l, arrow + 2, s + strlen(s), ellipsis, out);
    } else {
        for (i64 k = 0; k < ellipsis; k++)
            out[n_out++] = (i8)(ELLIPSIS_LAST - (ellipsis - 1 - k));
        for (int upper = 1; upper >= 0; upper--) /* A … Z sort before a … z */
            for (i8 v = 0; v < 26; v++) {
                i64 seen = 0;
                i8 label = (i8)(v + 26 * upper);
                for (i64 i = 0; i < n; i++)
                    for (i64 d = 0; d < xs[i]->rank; d++)
                        seen += labels[i][d] == label;
                if (seen == 1)
                    out[n_out++] = label;
            }
    }
    for (i64 i = 0; i < n; i++)
        xs[i] = distinct(l, xs[i], labels[i]);
    fe_tensor *y = xs[0];
    i8 have[64];
    memcpy(have, labels[0], 64);
    if (n == 1)
        y = arranged(l, y, have, out, n_out);
    for (i64 i = 1; i < n; i++) {
        i8 next[64];
        i64 m = 0;
        if (i == n - 1) {
            memcpy(next, out, (size_t)n_out);
            m = n_out;
        } else {
            for (int side = 0; side < 2; side++) {
                const i8 *from = side ? labels[i] : have;
                for (i64 d = 0; d < (side ? xs[i] : y)->rank; d++) {
                    bool is_wanted = has_label(out, n_out, from[d]);
                    for (i64 k = i + 1; k < n; k++)
                        is_wanted = is_wanted || has_label(labels[k], xs[k]->rank, from[d]);
                    if (is_wanted && !has_label(next, m, from[d]))
                        next[m++] = from[d];
                }
            }
        }
        same_dtype(c, y, xs[i]);
        y = fe_contract(l, y, have, xs[i], labels[i], next, m);
        memcpy(have, next, (size_t)m);
    }
    fe_ret(c, y);
}

/* ---- attention  ---------------------------------------------------------------------------- */

typedef struct dot_products {
    fe_tensor *q, *k, *v, *mask;
    bool is_causal, is_grouped, has_scale;
    f64 scale;
} dot_products;

static fe_tensor *weigh(fe_call *c, dot_products x)
{
    fe_lower *l = c->l;
    u8 t = x.q->dtype, wide = fe_wide(t);
    fe_tensor *q = fe_cast(l, wide, x.q), *k = fe_cast(l, wide, x.k), *v = fe_cast(l, wide, x.v);
    if (q->rank < 2 || k->rank < 2 || v->rank < 2)
        fe_fail(l, "scaled_dot_product_attention wants operands of rank 2 at least");
    if (q->rank > 60 || k->rank > 60 || v->rank > 60)
        fe_decline(l, "scaled_dot_product_attention of rank %lld", (long long)q->rank);
    /* Without features all scores are 0, whatever their scale. */
    i64 features = MAX(q->dims[q->rank - 1].extent, 1);
    f64 scale = x.has_scale ? x.scale : 1.0 / sqrt((f64)features);
    i64 heads = q->rank > 2 ? q->dims[q->rank - 3].extent : 1;
    i64 kv_heads = k->rank > 2 ? k->dims[k->rank - 3].extent : 1;
    bool is_grouped = x.is_grouped && heads != kv_heads;
    if (is_grouped) {
        /* Head h reads key head h / group: q becomes (…, kv, group, L, E), k and v repeat. */
        i64 sizes[FE_MAX_RANK], h = q->rank - 3;
        if (h < 0 || v->rank < 3 || !kv_heads || heads % kv_heads ||
            v->dims[v->rank - 3].extent != kv_heads)
            fe_fail(l, "%lld heads do not divide into %lld", (long long)heads, (long long)kv_heads);
        for (i64 d = 0; d < q->rank; d++)
            sizes[d + (d > h)] = q->dims[d].extent;
        sizes[h] = kv_heads, sizes[h + 1] = heads / kv_heads;
        q = fe_view(l, q, q->rank + 1, sizes);
        k = fe_unsqueeze(l, k, k->rank - 2);
        v = fe_unsqueeze(l, v, v->rank - 2);
    }
    fe_tensor *s = fe_matmul(l, q, fe_transpose(l, k, k->rank - 2, k->rank - 1));
    /* The root on both operands is what the decomposition does; here on neither, after it. */
    f64 root = sqrt(fabs(scale));
    s = fe_op2n(l, IR_mul, s, scale < 0 ? -(root * root) : root * root);
    if (x.is_causal) {
        fe_tensor *seen =
            fe_op2(l, IR_le, fe_positions(l, s, s->rank - 1), fe_positions(l, s, s->rank - 2));
        s = fe_where(l, seen, s, fe_num(l, wide, (f64)-INFINITY));
    }
    if (x.mask) {
        fe_tensor *mask = x.mask;
        if (is_grouped && mask->rank > 2) { /* its heads split like q's, or repeat */
            i64 h = mask->rank - 3, sizes[FE_MAX_RANK];
            bool is_split = mask->dims[h].extent != 1;
            for (i64 d = 0; d < mask->rank; d++)
                sizes[d + (d > h)] = mask->dims[d].extent;
            sizes[h] = is_split ? kv_heads : 1;
            sizes[h + 1] = is_split ? heads / kv_heads : 1;
            mask = fe_view(l, mask, mask->rank + 1, sizes);
        }
        if (mask->dtype == DT_bool)
            s = fe_where(l, mask, s, fe_num(l, wide, (f64)-INFINITY));
        else
            s = fe_op2(l, IR_add, s, fe_cast(l, wide, mask));
    }
    fe_tensor *o = fe_matmul(l, fe_safe_softmax(l, s, s->rank - 1), v);
    if (is_grouped) {
        i64 h = o->rank - 4;
        o = fe_flatten(l, o, h, h + 1);
    }
    return fe_cast(l, t, o);
}

static void no_dropout(fe_call *c, i64 arg)
{
    if (fe_f(c, arg) > 0)
        fe_decline(c->l, "dropout in scaled_dot_product_attention draws random numbers");
}

void fe_lower_sdpa(fe_call *c) /* q k v attn_mask dropout_p is_causal scale enable_gqa */
{
    no_dropout(c, 4);
    dot_products x = {.q = fe_t(c, 0),
                      .k = fe_t(c, 1),
                      .v = fe_t(c, 2),
                      .mask = fe_t_opt(c, 3),
                      .is_causal = fe_b(c, 5),
                      .has_scale = fe_has(c, 6),
                      .is_grouped = fe_b(c, 7)};
    x.scale = x.has_scale ? fe_f(c, 6) : 0;
    fe_ret(c, weigh(c, x));
}

/* The fused forms: output 0 is attention, no other result has a meaning here. `code` says where the
 * mask (-1: none), dropout, causality and scale stand, in decimal digits from the left. */
void fe_lower_sdpa_fused(fe_call *c)
{
    i64 mask = c->row->code / 1000 - 1, dropout = c->row->code / 100 % 10;
    i64 causal = c->row->code / 10 % 10, scale = c->row->code % 10;
    no_dropout(c, dropout);
    dot_products x = {.q = fe_t(c, 0),
                      .k = fe_t(c, 1),
                      .v = fe_t(c, 2),
                      .mask = mask >= 0 ? fe_t_opt(c, mask) : NULL,
                      .is_causal = fe_b(c, causal),
                      .has_scale = fe_has(c, scale),
                      .is_grouped = true};
    x.scale = x.has_scale ? fe_f(c, scale) : 0;
    fe_ret(c, weigh(c, x));
}
