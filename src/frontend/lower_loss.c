/* Losses of ATen. They compute in f32 on half types and round the reduced value once. */
#include <math.h>

#include "frontend/lower.h"

static u64 bit(i64 d)
{
    return (u64)1 << d;
}

/* reduction 0 none, 1 mean, 2 sum */
static fe_tensor *reduced(fe_lower *l, fe_tensor *x, i64 reduction)
{
    if (reduction == 0)
        return x;
    return reduction == 1 ? fe_mean(l, x, fe_all_dims(x), false)
                          : fe_reduce(l, IR_SUM, x, fe_all_dims(x), false);
}

/* A vector over classes, to be broadcast along dim d of x. */
static fe_tensor *by_class(fe_lower *l, fe_tensor *w, const fe_tensor *x, i64 d)
{
    w = fe_cast(l, x->dtype, w);
    for (i64 k = d + 1; k < x->rank; k++)
        w = fe_unsqueeze(l, w, w->rank);
    return w;
}

typedef struct nll_loss {
    fe_tensor *weight; /* of each class; may be absent */
    i64 reduction, ignore;
    f64 smoothing;    /* this share of the target spread over all classes */
    fe_tensor *total; /* out: the sum of the weights of what counts */
} nll_loss;

static fe_tensor *over_targets(fe_lower *l, fe_tensor *loss, const nll_loss *p)
{
    if (p->reduction == 0)
        return loss;
    loss = fe_reduce(l, IR_SUM, loss, fe_all_dims(loss), false);
    return p->reduction == 1 ? fe_op2(l, IR_div, loss, p->total) : loss;
}

/* log-probabilities x [N, C, …] or [C], class indices [N, …] or []. */
static fe_tensor *nll(fe_lower *l, fe_tensor *x, fe_tensor *target, nll_loss *p)
{
    i64 d = x->rank > 1 ? 1 : 0;
    f64 s = p->smoothing;
    target = fe_cast(l, DT_i64, target);
    fe_tensor *live = fe_op2(l, IR_ne, target, fe_int(l, DT_i64, p->ignore));
    fe_tensor *safe = fe_where(l, live, target, fe_int(l, DT_i64, 0));
    fe_tensor *zero = fe_num(l, x->dtype, 0);
    fe_tensor *w = p->weight ? by_class(l, p->weight, x, d) : NULL;
    fe_tensor *y = w ? fe_op2(l, IR_mul, x, w) : x;
    fe_tensor *picked = fe_take_along(l, y, d, fe_unsqueeze(l, safe, d));
    fe_tensor *loss = fe_op1(l, IR_neg, fe_drop(l, picked, bit(d)));
    loss = fe_where(l, live, loss, zero);
    if (w) {
        i64 first = 0;
        fe_tensor *own = fe_gather(l, fe_cast(l, x->dtype, p->weight), &first, &safe, 1);
        p->total = fe_reduce(l, IR_SUM, fe_where(l, live, own, zero), fe_all_dims(target), false);
    } else {
        fe_tensor *count = fe_cast(l, DT_i64, live);
        count = fe_reduce(l, IR_SUM, count, fe_all_dims(target), false);
        p->total = fe_cast(l, x->dtype, count);
    }
    loss = over_targets(l, loss, p);
    if (s == 0.0)
        return loss;
    fe_tensor *all = fe_op1(l, IR_neg, fe_reduce(l, IR_SUM, y, bit(d), false));
    all = over_targets(l, fe_where(l, live, all, zero), p);
    return fe_op2(l, IR_add, fe_op2n(l, IR_mul, loss, 1.0 - s),
                  fe_op2n(l, IR_mul, all, s / (f64)x->dims[d].extent));
}

void fe_lower_cross_entropy(fe_call *c) /* self target weight reduction ignore_index smoothing */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *target = fe_t(c, 1), *w = fe_t_opt(c, 2);
    i64 d = given->rank > 1 ? 1 : 0, reduction = fe_i(c, 3);
    f64 s = fe_f(c, 5);
    if (!given->rank || fe_is_empty(given))
        fe_decline(l, "no classes or no elements");
    fe_tensor *x = fe_softmax(l, fe_widened(l, given), d, true);
    if (!dtype_is_float((dtype)target->dtype)) {
        nll_loss p = {.weight = w, .reduction = reduction, .ignore = fe_i(c, 4), .smoothing = s};
        fe_ret(c, fe_cast(l, given->dtype, nll(l, x, target, &p)));
        return;
    }
    /* A target of probabilities; the mean is over positions. */
    fe_tensor *t = fe_cast(l, x->dtype, target);
    if (s != 0.0)
        t = fe_op2n(l, IR_add, fe_op2n(l, IR_mul, t, 1.0 - s), s / (f64)x->dims[d].extent);
    fe_tensor *y = fe_op2(l, IR_mul, x, t);
    if (w)
        y = fe_op2(l, IR_mul, y, by_class(l, w, x, d));
    i64 positions = fe_count(l, x) / x->dims[d].extent;
    y = fe_op1(l, IR_neg, fe_reduce(l, IR_SUM, y, reduction ? fe_all_dims(x) : bit(d), false));
    if (reduction == 1)
        y = fe_op2n(l, IR_mul, y, 1.0 / (f64)positions);
    fe_ret(c, fe_cast(l, given->dtype, y));
}

void fe_lower_nll(
    fe_call *c) /* self target weight reduction ignore_index; code 1: also the weight */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0);
    if (!given->rank || fe_is_empty(given))
        fe_decline(l, "no classes or no elements");
    nll_loss p = {.weight = fe_t_opt(c, 2), .reduction = fe_i(c, 3), .ignore = fe_i(c, 4)};
    fe_ret(c, fe_cast(l, given->dtype, nll(l, fe_widened(l, given), fe_t(c, 1), &p)));
    if (c->row->code)
        fe_ret(c, fe_cast(l, given->dtype, p.reduction ? p.total : fe_num(l, p.total->dtype, 0)));
}

void fe_lower_bce(fe_call *c) /* self target weight reduction; logarithms are at least -100 */
{
    fe_lower *l = c->l;
    fe_tensor *given = fe_t(c, 0), *x = fe_widened(l, given), *t = fe_cast(l, x->dtype, fe_t(c, 1));
    fe_tensor *w = fe_t_opt(c, 2);
    fe_tensor *yes = fe_op2n(l, IR_max, fe_op1(l, IR_log, x), -100);
    fe_tensor *no = fe_op2n(l, IR_max, fe_op1(l, IR_log1p, fe_op1(l, IR_neg, x)), -100);
    fe_tensor *y = fe_op2(l, IR_sub, fe_op2(l, IR_mul, fe_op2n(l, IR_sub, t, 1), no),
                          fe_op2(l, IR_mul, t, yes));
    if (w)
        y = fe_op2(l, IR_mul, y, fe_cast(l, x->dtype, w));
    fe_ret(c, fe_cast(l, given->dtype, reduced(l, y, fe_i(c, 3))));
}

/* self target weight pos_weight reduction: (1 - t) x - (1 + (pos_weight - 1) t) log sigmoid x */
void fe_lower_bce_logits(fe_call *c)
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_widened(l, fe_t(c, 0)), *t = fe_cast(l, x->dtype, fe_t(c, 1));
    fe_tensor *w = fe_t_opt(c, 2), *positive = fe_t_opt(c, 3);
    fe_tensor *tail = fe_op1(l, IR_exp, fe_op1(l, IR_neg, fe_op1(l, IR_abs, x)));
    fe_tensor *log = fe_op2(l, IR_sub, fe_op2n(l, IR_min, x, 0), fe_op1(l, IR_log1p, tail));
    if (positive) {
        fe_tensor *more = fe_op2n(l, IR_sub, fe_cast(l, x->dtype, positive), 1);
        log = fe_op2(l, IR_mul, fe_op2n(l, IR_add, fe_op2(l, IR_mul, more, t), 1), log);
    }
    fe_tensor *y = fe_op2(l, IR_mul, fe_op2(l, IR_sub, fe_num(l, x->dtype, 1), t), x);
    y = fe_op2(l, IR_sub, y, log);
    if (w)
        y = fe_op2(l, IR_mul, y, fe_cast(l, x->dtype, w));
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 0), reduced(l, y, fe_i(c, 4))));
}

void fe_lower_loss(fe_call *c) /* self target reduction [parameter] */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = c->row->code == FE_HINGE ? xs[0]->dtype : fe_promote(xs, 2); /* hinge only tests it */
    fe_tensor *a = fe_cast(l, fe_wide(t), xs[0]), *b = fe_cast(l, fe_wide(t), xs[1]), *y;
    i64 kind = c->row->code, reduction = fe_i(c, kind == FE_HINGE ? 3 : 2);
    if (!dtype_is_float((dtype)t))
        fe_decline(l, "a loss of %s", dtype_name((dtype)t));
    fe_tensor *d = fe_op2(l, IR_sub, a, b);
    if (kind == FE_MSE) {
        y = fe_op1(l, IR_square, d);
    } else if (kind == FE_L1) {
        y = fe_op1(l, IR_abs, d);
    } else if (kind == FE_SMOOTH_L1 || kind == FE_HUBER) {
        f64 edge = fe_f(c, 3);
        fe_tensor *m = fe_op1(l, IR_abs, d);
        if (kind == FE_SMOOTH_L1 && edge == 0.0) {
            y = m;
        } else {
            f64 inner = kind == FE_HUBER ? 0.5 : 0.5 / edge, outer = kind == FE_HUBER ? edge : 1.0;
            fe_tensor *near = fe_op2n(l, IR_mul, fe_op1(l, IR_square, d), inner);
            fe_tensor *far = fe_op2n(l, IR_mul, fe_op2n(l, IR_sub, m, 0.5 * edge), outer);
            y = fe_where(l, fe_op2n(l, IR_lt, m, edge), near, far);
        }
    } else if (kind == FE_HINGE) {
        fe_tensor *zero = fe_num(l, a->dtype, 0);
        fe_tensor *slack =
            fe_op2n(l, IR_max, fe_op2(l, IR_sub, fe_num(l, a->dtype, fe_f(c, 2)), a), 0);
        fe_tensor *low = fe_where(l, fe_op2n(l, IR_ne, b, 1), slack, zero);
        y = fe_op2(l, IR_add, low, fe_where(l, fe_op2n(l, IR_ne, b, -1), a, zero));
    } else { /* kl_div: target * (log target - self), 0 where the target is 0 */
        fe_tensor *log = fe_b(c, 3) ? b : fe_op1(l, IR_log, b);
        fe_tensor *p = fe_b(c, 3) ? fe_op1(l, IR_exp, b) : b;
        fe_tensor *zero = fe_num(l, a->dtype, 0);
        y = fe_b(c, 3) ? fe_op2(l, IR_mul, p, fe_op2(l, IR_sub, b, a)) : fe_op2(l, IR_mul, p, log);
        if (!fe_b(c, 3)) {
            y = fe_where(l, fe_op2(l, IR_eq, b, zero), zero, y);
            y = fe_where(l, fe_op2(l, IR_ne, b, b), fe_num(l, a->dtype, (f64)NAN), y);
            y = fe_op2(l, IR_sub, y, fe_op2(l, IR_mul, p, a));
        }
    }
    fe_ret(c, fe_cast(l, t, reduced(l, y, reduction)));
}

void fe_lower_triplet(fe_call *c) /* anchor positive negative margin p eps swap reduction */
{
    fe_lower *l = c->l;
    fe_tensor *xs[3] = {fe_t(c, 0), fe_t(c, 1), fe_t(c, 2)};
    u8 t = fe_promote(xs, 3);
    for (int i = 0; i < 3; i++)
        xs[i] = fe_cast(l, fe_wide(t), xs[i]);
    fe_tensor *far[3];
    static const int pairs[3][2] = {{0, 1}, {0, 2}, {1, 2}};
    for (int i = 0; i < 3; i++) {
        fe_tensor *d = fe_op2(l, IR_sub, xs[pairs[i][0]], xs[pairs[i][1]]);
        if (!d->rank)
            fe_fail(l, "a distance of numbers");
        d = fe_op2n(l, IR_add, d, fe_f(c, 5));
        far[i] = fe_vector_norm(l, d, fe_f(c, 4), bit(d->rank - 1), false);
    }
    fe_tensor *other = fe_b(c, 6) ? fe_op2(l, IR_min, far[1], far[2]) : far[1];
    fe_tensor *y = fe_op2(l, IR_sub, fe_op2n(l, IR_add, far[0], fe_f(c, 3)), other);
    fe_ret(c, fe_cast(l, t, reduced(l, fe_op2n(l, IR_max, y, 0), fe_i(c, 7))));
}

/* Two float operands and a target of any kind, all in one wide type. */
static u8 three(fe_call *c, fe_tensor *xs[3])
{
    for (int i = 0; i < 3; i++)
        xs[i] = fe_t(c, i);
    u8 t = fe_promote(xs, 3);
    if (!dtype_is_float((dtype)t))
        fe_decline(c->l, "a loss of %s", dtype_name((dtype)t));
    for (int i = 0; i < 3; i++)
        xs[i] = fe_cast(c->l, fe_wide(t), xs[i]);
    return t;
}

/* 1 - cos for a target of 1, the part of cos above the margin for -1. */
void fe_lower_cosine_embedding(fe_call *c) /* input1 input2 target margin reduction */
{
    fe_lower *l = c->l;
    fe_tensor *xs[3];
    u8 t = three(c, xs);
    i64 d = xs[2]->rank ? 1 : 0;
    if (xs[2]->rank > 1 || xs[0]->rank != d + 1 || xs[1]->rank != d + 1)
        fe_fail(l, "operands of rank %lld for a target of rank %lld", (long long)xs[0]->rank,
                (long long)xs[2]->rank);
    fe_tensor *size[2];
    for (int i = 0; i < 2; i++)
        size[i] = fe_op2n(
            l, IR_add, fe_reduce(l, IR_SUM, fe_op1(l, IR_square, xs[i]), bit(d), false), 1e-12);
    fe_tensor *dot = fe_reduce(l, IR_SUM, fe_op2(l, IR_mul, xs[0], xs[1]), bit(d), false);
    fe_tensor *cosine =
        fe_op2(l, IR_div, dot, fe_op1(l, IR_sqrt, fe_op2(l, IR_mul, size[0], size[1])));
    fe_tensor *zero = fe_num(l, dot->dtype, 0);
    fe_tensor *near = fe_op2(l, IR_sub, fe_num(l, dot->dtype, 1), cosine);
    fe_tensor *far = fe_op2n(l, IR_max, fe_op2n(l, IR_sub, cosine, fe_f(c, 3)), 0);
    fe_tensor *y = fe_op2(l, IR_add, fe_where(l, fe_op2n(l, IR_eq, xs[2], 1), near, zero),
                          fe_where(l, fe_op2n(l, IR_eq, xs[2], -1), far, zero));
    fe_ret(c, fe_cast(l, t, reduced(l, y, fe_i(c, 4))));
}

void fe_lower_margin_ranking(fe_call *c) /* input1 input2 target margin reduction */
{
    fe_lower *l = c->l;
    fe_tensor *xs[3];
    u8 t = three(c, xs);
    fe_tensor *gap = fe_op2(l, IR_mul, fe_op1(l, IR_neg, xs[2]), fe_op2(l, IR_sub, xs[0], xs[1]));
    gap = fe_op2n(l, IR_max, fe_op2n(l, IR_add, gap, fe_f(c, 3)), 0);
    fe_ret(c, fe_cast(l, t, reduced(l, gap, fe_i(c, 4))));
}

void fe_lower_soft_margin(fe_call *c) /* self target reduction */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    if (!dtype_is_float((dtype)t))
        fe_decline(l, "a loss of %s", dtype_name((dtype)t));
    fe_tensor *x = fe_cast(l, fe_wide(t), xs[0]), *y = fe_cast(l, fe_wide(t), xs[1]);
    fe_tensor *in = fe_op2(l, IR_mul, fe_op1(l, IR_neg, y), x);
    y = fe_op1(l, IR_log1p, fe_op1(l, IR_exp, in));
    fe_ret(c, fe_cast(l, t, reduced(l, y, fe_i(c, 2))));
}

void fe_lower_poisson_nll(fe_call *c) /* input target log_input full eps reduction */
{
    fe_lower *l = c->l;
    fe_tensor *xs[2] = {fe_t(c, 0), fe_t(c, 1)};
    u8 t = fe_promote(xs, 2);
    if (!dtype_is_float((dtype)t))
        fe_decline(l, "a loss of %s", dtype_name((dtype)t));
    fe_tensor *x = fe_cast(l, fe_wide(t), xs[0]), *n = fe_cast(l, fe_wide(t), xs[1]), *y;
    if (fe_b(c, 2))
        y = fe_op2(l, IR_sub, fe_op1(l, IR_exp, x), fe_op2(l, IR_mul, n, x));
    else
        y = fe_op2(l, IR_sub, x,
                   fe_op2(l, IR_mul, n, fe_op1(l, IR_log, fe_op2n(l, IR_add, x, fe_f(c, 4)))));
    if (fe_b(c, 3)) { /* Stirling: n log n - n + log(2 pi n) / 2, for n above 1 */
        fe_tensor *s = fe_op2(l, IR_sub, fe_op2(l, IR_mul, n, fe_op1(l, IR_log, n)), n);
        fe_tensor *tail = fe_op1(l, IR_log, fe_op2n(l, IR_mul, n, 6.283185307179586477));
        s = fe_op2(l, IR_add, s, fe_op2n(l, IR_mul, tail, 0.5));
        fe_tensor *is_small = fe_op2(l, IR_le, n, fe_num(l, n->dtype, 1));
        y = fe_op2(l, IR_add, y, fe_where(l, is_small, fe_num(l, n->dtype, 0), s));
    }
    fe_ret(c, fe_cast(l, t, reduced(l, y, fe_i(c, 5))));
}
