/* Runs a reducer as a kernel would: random tiles in random order, in one sequence or in several
 * that random merges join, and the direct reductions beside it. */
#ifndef EQF_TESTS_RULES_FOLD_H
#define EQF_TESTS_RULES_FOLD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "rules/repair.h"

/* Values of every input port of the system's program, row-major over the port's atoms. */
typedef struct fold_data {
    f64 **at;
} fold_data;

static inline i64 fold_count(const ir_program *p, ir_atoms dims)
{
    i64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        n *= ir_extent(p, dims.at[i]);
    return n;
}

static inline i64 fold_input(const ir_program *p, ir_term t)
{
    for (i64 i = 0; i < p->inputs.n; i++)
        if (p->inputs.at[i].term.i == t.i)
            return i;
    return -1;
}

/* The extents of the axis in a lambda are the tile's; nothing else in a program depends on them. */
static inline void fold_set_extent(ir_program *p, ir_atom d, i64 n)
{
    p->atoms.at[d.i].extent = n;
    for (i64 i = 0; i < p->inputs.n; i++) {
        ir_dim *dims = (ir_dim *)(uintptr_t)p->inputs.at[i].dims;
        for (i64 j = 0; j < p->inputs.at[i].rank; j++)
            if (dims[j].atoms.n == 1 && dims[j].atoms.at[0].i == d.i)
                dims[j].extent = n;
    }
}

static inline tensor fold_tensor(arena *a, const ir_program *p, i64 port)
{
    const ir_port *x = &p->inputs.at[port];
    i64 *shape = NEW_N(a, i64, x->rank), n = 1;
    for (i64 i = 0; i < x->rank; i++) {
        shape[i] = x->dims[i].extent;
        n *= shape[i];
    }
    dtype t = dtype_is_float((dtype)x->dtype) ? DT_f64 : (dtype)x->dtype;
    return (tensor){NULL, t, x->rank, shape, arena_alloc_n(a, n, 8)};
}

/* Positions [from, from+n) (through `order`) of a leaf of the system. */
static inline void fold_leaf(const rl_system *s, const fold_data *data, ir_term leaf,
                             const i64 *order, i64 from, tensor *out)
{
    const ir_node *node = ir_get(s->p, leaf);
    ir_atom axis = s->axis.at[0];
    i64 count = tensor_count(s->p->ctx, out->rank, out->shape);
    if (node->op == IR_iota) {
        for (i64 i = 0; i < count; i++)
            ((i64 *)out->data)[i] = order[from + i];
        return;
    }
    const ir_port *port = &s->p->inputs.at[fold_input(s->p, leaf)];
    const f64 *in = data->at[fold_input(s->p, leaf)];
    for (i64 i = 0; i < count; i++) {
        i64 rest = i, index[8], at = 0;
        for (i64 k = out->rank - 1; k >= 0; k--) {
            index[k] = rest % out->shape[k];
            rest /= out->shape[k];
        }
        /* lambda ports order dims by atom id, system ports as declared */
        for (i64 k = 0; k < port->rank; k++) {
            ir_atom d = port->dims[k].atoms.at[0];
            i64 place = 0;
            while (node->dims.at[place].i != d.i)
                place++;
            i64 pos = d.i == axis.i ? order[from + index[place]] : index[place];
            at = at * ir_extent(s->p, d) + pos;
        }
        ((f64 *)out->data)[i] = in[at];
    }
}

typedef struct fold_state {
    tensor at[RL_MAX_SLOTS];
} fold_state;

static inline fold_state fold_identity(arena *a, const rl_system *s, const rl_repair *r)
{
    fold_state st = {{{0}}};
    for (i64 i = 0; i < r->slot_count; i++) {
        ir_atoms dims = r->slots[i].dims;
        i64 *shape = NEW_N(a, i64, dims.n), n = fold_count(s->p, dims);
        for (i64 k = 0; k < dims.n; k++)
            shape[k] = ir_extent(s->p, dims.at[k]);
        f64 *data = NEW_N(a, f64, n);
        for (i64 k = 0; k < n; k++)
            data[k] = r->slots[i].identity;
        st.at[i] = (tensor){NULL, DT_f64, dims.n, shape, data};
    }
    return st;
}

static inline void fold_call(arena *a, const rl_system *s, const fold_data *data,
                             const rl_lambda *l, const fold_state *states, i64 slots,
                             const i64 *order, i64 from, i64 n, tensor *out, bool rounds)
{
    fold_set_extent(l->p, s->axis.at[0], n);
    tensor *in = NEW_N(a, tensor, l->p->inputs.n);
    i64 port = 0;
    for (i64 k = 0; k < l->states; k++)
        for (i64 i = 0; i < slots; i++)
            in[port++] = states[k].at[i];
    if (l->has_lanes) {
        in[port] = fold_tensor(a, l->p, port);
        *(f64 *)in[port++].data = (f64)n;
    }
    for (i64 i = 0; i < l->leaf_count; i++, port++) {
        in[port] = fold_tensor(a, l->p, port);
        fold_leaf(s, data, l->leaves[i], order, from, &in[port]);
    }
    ir_eval(l->p, in, a, out, (ir_eval_options){.round = rounds});
}

/* Final values into out[k], k < s->n. */
static inline void fold_run(arena *a, const rl_system *s, const fold_data *data, const rl_repair *r,
                            rng *g, bool merges, bool rounds, tensor *out)
{
    i64 total = ir_extent(s->p, s->axis.at[0]);
    i64 *order = NEW_N(a, i64, total);
    for (i64 i = 0; i < total; i++)
        order[i] = i;
    for (i64 i = total - 1; i > 0; i--) {
        i64 j = (i64)rng_below(g, (u64)i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    fold_state parts[64];
    i64 count = 1;
    parts[0] = fold_identity(a, s, r);
    for (i64 from = 0; from < total;) {
        i64 n = 1 + (i64)rng_below(g, 8);
        n = MIN(n, total - from);
        if (merges && count < 64 && rng_below(g, 2))
            parts[count++] = fold_identity(a, s, r);
        fold_state next = {{{0}}};
        fold_call(a, s, data, &r->update, &parts[count - 1], r->slot_count, order, from, n, next.at,
                  rounds);
        parts[count - 1] = next;
        from += n;
    }
    while (count > 1) {
        i64 i = (i64)rng_below(g, (u64)count), j = (i64)rng_below(g, (u64)count - 1);
        j += j >= i;
        fold_state pair[2] = {parts[i], parts[j]}, next = {{{0}}};
        fold_call(a, s, data, &r->merge, pair, r->slot_count, order, 0, total, next.at, rounds);
        parts[MIN(i, j)] = next;
        parts[MAX(i, j)] = parts[--count];
    }
    fold_call(a, s, data, &r->final, parts, r->slot_count, order, 0, total, out, rounds);
}

#endif
