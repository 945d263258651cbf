/* Reductions and running reductions: one fold for each row of reducers.def and element type. */
#include "ir/eval.h"
#include "ir/scalar.h"

#define NONE a /* the type rule keeps such operands away */

/* The longer stretch of memory goes to the inner loop. */
#define FOLD(name, T, update)                                                                      \
    static void name(i64 n, T *state, i64 ss, i64 count, const T *x, i64 sj, i64 sk)               \
    {                                                                                              \
        if (n == 1 || sj > sk) {                                                                   \
            for (i64 j = 0; j < n; j++) {                                                          \
                T a = state[j * ss];                                                               \
                for (i64 m = 0; m < count; m++) {                                                  \
                    T b = x[j * sj + m * sk];                                                      \
                    (void)b;                                                                       \
                    a = (update);                                                                  \
                }                                                                                  \
                state[j * ss] = a;                                                                 \
            }                                                                                      \
        } else {                                                                                   \
            for (i64 m = 0; m < count; m++)                                                        \
                for (i64 j = 0; j < n; j++) {                                                      \
                    T a = state[j * ss], b = x[j * sj + m * sk];                                   \
                    (void)b;                                                                       \
                    state[j * ss] = (update);                                                      \
                }                                                                                  \
        }                                                                                          \
    }
#define REDUCER(name, text, f, i, idf, idi, doc) FOLD(f_##name, f64, f) FOLD(i_##name, i64, i)
#include "ir/reducers.def"
#undef REDUCER

static fold_f64 *const f_folds[IR_REDUCER_COUNT] = {
#define REDUCER(name, text, f, i, idf, idi, doc) [IR_##name] = f_##name,
#include "ir/reducers.def"
#undef REDUCER
};
static fold_i64 *const i_folds[IR_REDUCER_COUNT] = {
#define REDUCER(name, text, f, i, idf, idi, doc) [IR_##name] = i_##name,
#include "ir/reducers.def"
#undef REDUCER
};

fold_f64 *eval_fold_f64(ir_reducer r)
{
    return f_folds[r];
}

fold_i64 *eval_fold_i64(ir_reducer r)
{
    return i_folds[r];
}

typedef struct reduction {
    const eval *e;
    const nest *t, *inner; /* over the result; over the axis */
    value *out;
    const value *x;
    ir_reducer reducer;
} reduction;

/* One row of the result, from all rows of the axis. */
typedef struct folding {
    const reduction *w;
    i64 n, out, x;
} folding;

static void fold_row(void *user, i64 count, const i64 *offset)
{
    const folding *f = user;
    const reduction *w = f->w;
    i64 so = nest_step(w->t, 0), sj = nest_step(w->t, 1), sk = nest_step(w->inner, 0);
    i64 at = f->x + offset[0];
    if (w->out->is_float)
        f_folds[w->reducer](f->n, w->out->f + f->out, so, count, w->x->f + at, sj, sk);
    else
        i_folds[w->reducer](f->n, w->out->i + f->out, so, count, w->x->i + at, sj, sk);
}

static void reduce_row(void *user, i64 n, const i64 *offset)
{
    const reduction *w = user;
    value *out = w->out; /* contiguous along the row */
    for (i64 j = 0; j < n; j++)
        if (out->is_float)
            out->f[offset[0] + j] = ir_reducer_identity_f64(w->reducer);
        else
            out->i[offset[0] + j] = ir_reducer_identity_i64(w->reducer, out->dtype);
    folding f = {w, n, offset[0], offset[1]};
    nest_walk(w->inner, fold_row, &f);
    eval_settle(w->e, out, offset[0], n);
}

void eval_fold(const eval *e, ir_reducer r, value *state, const value *x)
{
    if (state->is_float)
        f_folds[r](state->count, state->f, 1, 1, x->f, 1, 0);
    else
        i_folds[r](state->count, state->i, 1, 1, x->i, 1, 0);
    eval_settle(e, state, 0, state->count);
}

void eval_fill_identity(value *v, ir_reducer r)
{
    for (i64 j = 0; j < v->count; j++)
        if (v->is_float)
            v->f[j] = ir_reducer_identity_f64(r);
        else
            v->i[j] = ir_reducer_identity_i64(r, v->dtype);
}

/* A copy in which dead lanes hold the identity; x itself when it has none. */
static const value *without_dead_lanes(eval *e, const value *x, ir_reducer r)
{
    const u8 *dead = eval_dead_lanes(e, x->dims);
    if (!dead)
        return x;
    value *copy = NEW(e->scratch, value);
    *copy = *x;
    copy->p = NEW_N(e->scratch, i64, x->count);
    eval_fill_identity(copy, r);
    for (i64 j = 0; j < x->count; j++)
        if (!dead[j])
            copy->i[j] = x->i[j];
    return copy;
}

void eval_reduce(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *x = without_dead_lanes(e, &e->values[node->args[0].i], node->attr.reducer);
    value *out = eval_new(e, k);
    if (out->count == 0)
        return;
    nest t = nest_over(e, out->dims, (const value *[]){out, x}, 2);
    nest inner = nest_over(e, node->attr.axis, &x, 1);
    reduction w = {e, &t, &inner, out, x, node->attr.reducer};
    nest_run(e, &t, x->count / out->count, reduce_row, &w);
}

void eval_scan(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *x = &e->values[node->args[0].i];
    value *out = eval_new(e, k);
    i64 length = eval_extent(e, node->attr.axis.at[0]);
    i64 inner = eval_stride(e, x, node->attr.axis.at[0]);
    memcpy(out->p, x->p, (size_t)x->count * sizeof(i64));
    for (i64 outer = 0; outer < x->count; outer += length * inner) {
        for (i64 m = 1; m < length; m++) { /* row m becomes update(row m - 1, row m) */
            i64 at = outer + m * inner;
            memcpy(out->i + at, out->i + at - inner, (size_t)inner * sizeof(i64));
            if (out->is_float)
                f_folds[node->attr.reducer](inner, out->f + at, 1, 1, x->f + at, 1, 0);
            else
                i_folds[node->attr.reducer](inner, out->i + at, 1, 1, x->i + at, 1, 0);
        }
        eval_poll(e);
    }
    eval_settle(e, out, 0, out->count);
}
