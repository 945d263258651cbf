/* Recurrent layers and cells, unrolled: each step is the cell on one position, as the exporter's
 * own decomposition writes it, so that all forms of an archive give one program.
 *
 * The input's products with the weights are one matmul for all steps, the state's one a step. A
 * layer of two directions reads the steps forwards and backwards and joins the features. */
#include "frontend/lower.h"

enum { MOST_STEPS = 1024 }; /* over layers and directions: a step is a dozen operators */

typedef struct recurrence {
    fe_lower *l;
    i64 kind; /* FE_LSTM … */
    fe_tensor *in_weight, *state_weight, *in_bias, *state_bias; /* biases may be NULL */
    fe_tensor *projection;                                      /* of LSTM; NULL: none */
} recurrence;

/* x w^T + b, rounded once. */
static fe_tensor *linear(fe_lower *l, fe_tensor *x, fe_tensor *w, fe_tensor *b)
{
    u8 t = x->dtype, wide = b ? fe_wide(t) : t;
    fe_tensor *y =
        fe_matmul(l, fe_cast(l, wide, x), fe_cast(l, wide, fe_transpose(l, w, 0, 1)));
    return fe_cast(l, t, b ? fe_op2(l, IR_add, y, fe_cast(l, wide, b)) : y);
}

/* Gate k of those that stand side by side in x. */
static fe_tensor *gate(const recurrence *r, fe_tensor *x, i64 k, i64 count)
{
    i64 n = x->dims[1].extent / count;
    return fe_slice(r->l, x, 1, k * n, n, 1);
}

/* One step: `in` is the input's part of all gates, [batch, gates]; h and c are replaced. */
static void step(const recurrence *r, fe_tensor *in, fe_tensor **h, fe_tensor **c)
{
    fe_lower *l = r->l;
    fe_tensor *state = linear(l, *h, r->state_weight, r->state_bias);
    if (r->kind == FE_LSTM) {
        fe_tensor *all = fe_op2(l, IR_add, state, in);
        fe_tensor *enter = fe_op1(l, IR_sigmoid, gate(r, all, 0, 4));
        fe_tensor *keep = fe_op1(l, IR_sigmoid, gate(r, all, 1, 4));
        fe_tensor *cell = fe_op1(l, IR_tanh, gate(r, all, 2, 4));
        fe_tensor *leave = fe_op1(l, IR_sigmoid, gate(r, all, 3, 4));
        *c = fe_op2(l, IR_add, fe_op2(l, IR_mul, keep, *c), fe_op2(l, IR_mul, enter, cell));
        *h = fe_op2(l, IR_mul, leave, fe_op1(l, IR_tanh, *c));
        if (r->projection)
            *h = linear(l, *h, r->projection, NULL);
    } else if (r->kind == FE_GRU) {
        fe_tensor *reset = fe_op2(l, IR_add, gate(r, state, 0, 3), gate(r, in, 0, 3));
        fe_tensor *renew = fe_op2(l, IR_add, gate(r, state, 1, 3), gate(r, in, 1, 3));
        fe_tensor *old = fe_op2(l, IR_mul, gate(r, state, 2, 3), fe_op1(l, IR_sigmoid, reset));
        fe_tensor *new = fe_op1(l, IR_tanh, fe_op2(l, IR_add, gate(r, in, 2, 3), old));
        fe_tensor *left = fe_op2(l, IR_sub, *h, new);
        *h = fe_op2(l, IR_add, fe_op2(l, IR_mul, left, fe_op1(l, IR_sigmoid, renew)), new);
    } else {
        fe_tensor *sum = fe_op2(l, IR_add, state, in);
        *h = r->kind == FE_RNN_TANH ? fe_op1(l, IR_tanh, sum) : fe_op2n(l, IR_max, sum, 0);
    }
}

static i64 gates_of(i64 kind)
{
    return kind == FE_LSTM ? 4 : kind == FE_GRU ? 3 : 1;
}

static bool is_matrix(const fe_tensor *t, i64 rows, i64 columns, u8 type)
{
    return t && t->rank == 2 && t->dims[0].extent == rows && t->dims[1].extent == columns &&
           t->dtype == type;
}

static bool is_vector(const fe_tensor *t, i64 n, u8 type)
{
    return !t || (t->rank == 1 && t->dims[0].extent == n && t->dtype == type);
}

/* Declines what does not fit the input [.., batch, features] and the states [batch, width]. */
static void check(const recurrence *r, const fe_tensor *x, const fe_tensor *h, const fe_tensor *c)
{
    u8 type = x->dtype;
    i64 batch = x->dims[x->rank - 2].extent, features = x->dims[x->rank - 1].extent;
    i64 hidden = h->dims[1].extent, cell = c ? c->dims[1].extent : hidden;
    i64 gates = cell;
    bool fits = mul_i64(gates_of(r->kind), cell, &gates) && dtype_is_float((dtype)type) &&
                is_matrix(h, batch, hidden, type) && (!c || is_matrix(c, batch, cell, type)) &&
                is_matrix(r->in_weight, gates, features, type) &&
                is_matrix(r->state_weight, gates, hidden, type) &&
                is_vector(r->in_bias, gates, type) && is_vector(r->state_bias, gates, type) &&
                (r->projection ? is_matrix(r->projection, hidden, cell, type) : hidden == cell);
    if (!fits || batch < 1 || features < 1 || cell < 1 || hidden < 1)
        fe_decline(r->l, "weights and states of these types and shapes");
}

/* One layer in one direction over x [steps, batch, features]; h and c become the last states. */
static fe_tensor *one_layer(const recurrence *r, fe_tensor *x, bool backwards, fe_tensor **h,
                            fe_tensor **c)
{
    fe_lower *l = r->l;
    check(r, x, *h, *c);
    i64 n = x->dims[0].extent;
    fe_tensor *in = linear(l, x, r->in_weight, r->in_bias);
    fe_tensor **out = NEW_N(l->a, fe_tensor *, n);
    for (i64 i = 0; i < n; i++) {
        i64 at = backwards ? n - 1 - i : i;
        step(r, fe_select(l, in, 0, at), h, c);
        out[at] = fe_unsqueeze(l, *h, 0);
    }
    return fe_cat(l, out, n, 0);
}

/* The weights of one layer and direction, from the list; *at moves past them. */
static recurrence take_weights(fe_call *c, fe_tensor **all, i64 n, bool has_biases, bool projects,
                               i64 *at)
{
    i64 count = 2 + (has_biases ? 2 : 0) + (projects ? 1 : 0);
    if (n - *at < count)
        fe_fail(c->l, "%lld parameters", (long long)n);
    fe_tensor **p = all + *at;
    *at += count;
    for (i64 i = 0; i < count; i++)
        if (!p[i])
            fe_fail(c->l, "a parameter is None");
    return (recurrence){.l = c->l,
                        .kind = c->row->code,
                        .in_weight = p[0],
                        .state_weight = p[1],
                        .in_bias = has_biases ? p[2] : NULL,
                        .state_bias = has_biases ? p[3] : NULL,
                        .projection = projects ? p[count - 1] : NULL};
}

/* input hx params has_biases num_layers dropout train bidirectional batch_first; hx: a tensor, of
 * LSTM a list of two */
void fe_lower_recurrent(fe_call *c)
{
    fe_lower *l = c->l;
    bool is_lstm = c->row->code == FE_LSTM, has_biases = fe_b(c, 3), batch_first = fe_b(c, 8);
    i64 layers = fe_i(c, 4), directions = fe_b(c, 7) ? 2 : 1, n_params, n_states = 1, at = 0;
    fe_tensor *x = fe_t(c, 0), **params = fe_ts(c, 2, &n_params), *first = NULL;
    fe_tensor **states = is_lstm ? fe_ts(c, 1, &n_states) : &first;
    if (!is_lstm)
        first = fe_t(c, 1);
    if (x->rank != 3 || n_states != (is_lstm ? 2 : 1) || layers < 1 || layers > n_params)
        fe_fail(l, "%lld states and %lld layers on an input of rank %lld", (long long)n_states,
                (long long)layers, (long long)x->rank);
    for (i64 i = 0; i < n_states; i++)
        if (!states[i] || states[i]->rank != 3 || states[i]->dims[0].extent != layers * directions)
            fe_fail(l, "a state that does not have %lld layers and %lld directions",
                    (long long)layers, (long long)directions);
    if (fe_b(c, 6) && fe_f(c, 5) != 0.0 && layers > 1)
        fe_decline(l, "dropout between layers in training is random");
    x = batch_first ? fe_transpose(l, x, 0, 1) : x;
    i64 steps = x->dims[0].extent, all;
    if (steps < 1 || !mul_i64(steps, layers * directions, &all) || all > MOST_STEPS)
        fe_decline(l, "%lld steps in %lld layers and directions; up to %d together are unrolled",
                   (long long)steps, (long long)(layers * directions), MOST_STEPS);
    bool projects = is_lstm && states[0]->dims[2].extent != states[1]->dims[2].extent;
    fe_tensor **ends[2] = {NEW_N(l->a, fe_tensor *, layers * directions),
                           NEW_N(l->a, fe_tensor *, layers * directions)};
    for (i64 i = 0; i < layers; i++) {
        fe_tensor *out[2];
        for (i64 d = 0; d < directions; d++) {
            i64 k = i * directions + d;
            recurrence r = take_weights(c, params, n_params, has_biases, projects, &at);
            fe_tensor *s[2] = {NULL, NULL};
            for (i64 j = 0; j < n_states; j++)
                s[j] = fe_select(l, states[j], 0, k);
            out[d] = one_layer(&r, x, d == 1, &s[0], &s[1]);
            for (i64 j = 0; j < n_states; j++)
                ends[j][k] = fe_unsqueeze(l, s[j], 0);
        }
        x = directions == 2 ? fe_cat(l, out, 2, 2) : out[0];
    }
    fe_ret(c, batch_first ? fe_transpose(l, x, 0, 1) : x);
    for (i64 j = 0; j < n_states; j++)
        fe_ret(c, fe_cat(l, ends[j], layers * directions, 0));
}

/* input hx w_ih w_hh b_ih b_hh; hx: a tensor, of LSTM a list of two. One step. */
void fe_lower_recurrent_cell(fe_call *c)
{
    fe_lower *l = c->l;
    bool is_lstm = c->row->code == FE_LSTM;
    i64 n_states = 1;
    fe_tensor *x = fe_t(c, 0), *s[2] = {NULL, NULL};
    fe_tensor **states = is_lstm ? fe_ts(c, 1, &n_states) : NULL;
    if (n_states != (is_lstm ? 2 : 1) || x->rank != 2)
        fe_fail(l, "%lld states on an input of rank %lld", (long long)n_states, (long long)x->rank);
    for (i64 i = 0; i < n_states; i++)
        s[i] = is_lstm ? states[i] : fe_t(c, 1);
    for (i64 i = 0; i < n_states; i++)
        if (!s[i] || s[i]->rank != 2)
            fe_fail(l, "a state that is no matrix");
    recurrence r = {.l = l,
                    .kind = c->row->code,
                    .in_weight = fe_t(c, 2),
                    .state_weight = fe_t(c, 3),
                    .in_bias = fe_t_opt(c, 4),
                    .state_bias = fe_t_opt(c, 5)};
    check(&r, x, s[0], s[1]);
    step(&r, linear(l, x, r.in_weight, r.in_bias), &s[0], &s[1]);
    for (i64 i = 0; i < n_states; i++)
        fe_ret(c, s[i]);
}
