/* Random well-typed programs over a few small dims, with every operator; equal seeds, equal
 * programs. Operands of integer divisions and indices are kept in range, so that programs can be
 * evaluated. */
#ifndef TESTS_IR_GENERATE_H
#define TESTS_IR_GENERATE_H

#include "ir/ir.h"

#define GEN_MAX_DIMS 4
#define GEN_MAX_ELEMENTS 2000

typedef struct gen {
    ir_program *p;
    arena *a;
    rng r;
    bool has_opaque;
    VEC(ir_term) pool;
} gen;

static inline i64 gen_below(gen *g, i64 n)
{
    return (i64)rng_below(&g->r, (u64)n);
}

static inline ir_term gen_any(gen *g)
{
    return g->pool.at[gen_below(g, g->pool.n)];
}

static inline dtype gen_dtype(gen *g)
{
    return (dtype)(1 + gen_below(g, DT_COUNT - 1));
}

/* A term of dtype t: one of the pool, or a cast of one. */
static inline ir_term gen_typed(gen *g, dtype t)
{
    for (int i = 0; i < 8; i++) {
        ir_term x = gen_any(g);
        if (ir_get(g->p, x)->dtype == t)
            return x;
    }
    return ir_cast(g->p, t, gen_any(g));
}

static inline ir_term gen_constant(gen *g, dtype t)
{
    if (dtype_is_float(t))
        return ir_f(g->p, t, (f64)gen_below(g, 33) / 4 - 4);
    if (t == DT_bool)
        return ir_i(g->p, t, gen_below(g, 2));
    return ir_i(g->p, t, gen_below(g, 17) - 8);
}

static inline ir_term gen_with_dims(gen *g)
{
    for (int i = 0; i < 8; i++) {
        ir_term x = gen_any(g);
        if (ir_get(g->p, x)->dims.n > 0)
            return x;
    }
    return ir_iota(g->p, (ir_atom){1});
}

static inline ir_atom gen_member(gen *g, ir_atoms set)
{
    return set.at[gen_below(g, set.n)];
}

/* A random subset, not empty, in the order of the set. */
static inline ir_atoms gen_subset(gen *g, ir_atoms set)
{
    ir_atom *at = NEW_N(g->a, ir_atom, set.n);
    i64 n = 0;
    for (i64 i = 0; i < set.n; i++)
        if (gen_below(g, 2))
            at[n++] = set.at[i];
    if (n == 0)
        at[n++] = gen_member(g, set);
    return (ir_atoms){at, n};
}

/* An atom of that extent outside of `taken`: an old one or a fresh one. */
static inline ir_atom gen_atom(gen *g, i64 extent, ir_atoms taken)
{
    for (int i = 0; i < 6; i++) {
        ir_atom d = {(u32)(1 + gen_below(g, g->p->atoms.n - 1))};
        if (ir_extent(g->p, d) == extent && !ir_has(taken, d))
            return d;
    }
    return ir_atom_new(g->p, gen_below(g, 2) ? "n w" : NULL, extent);
}

static inline ir_reducer gen_reducer(gen *g, dtype t)
{
    return (ir_reducer)(1 + gen_below(g, t == DT_bool ? IR_REDUCER_COUNT - 1 : 4));
}

static inline ir_term gen_pointwise(gen *g)
{
    ir_op op;
    do
        op = (ir_op)(1 + gen_below(g, IR_OP_COUNT - 1));
    while (ir_row(op)->class_ != IR_EWISE);
    dtype t = gen_dtype(g);
    switch ((ir_rule)ir_row(op)->rule) {
    case IR_FLOAT:
    case IR_TEST:
        t = (dtype)(DT_f16 + gen_below(g, 4));
        break;
    case IR_INTEGER:
        t = (dtype)(DT_i8 + gen_below(g, 3));
        break;
    case IR_LOGIC:
        t = (dtype)(DT_bool + gen_below(g, 4));
        break;
    case IR_BOOLEAN:
        t = DT_bool;
        break;
    case IR_OWN:
        return ir_cast(g->p, t, gen_any(g));
    case IR_SELECT:
        return ir_where(g->p, gen_typed(g, DT_bool), gen_typed(g, t), gen_typed(g, t));
    case IR_SAME:
        if (t == DT_bool && (op == IR_sub || op == IR_neg))
            t = DT_i32;
        break;
    case IR_COMPARE:
        break;
    }
    ir_term x = gen_typed(g, t);
    if (ir_row(op)->arity == 1)
        return ir_1(g->p, op, x);
    ir_term y = gen_below(g, 3) ? gen_typed(g, t) : gen_constant(g, t);
    if (!dtype_is_float(t) &&
        (op == IR_floordiv || op == IR_truncdiv || op == IR_mod || op == IR_fmod))
        y = ir_where(g->p, ir_2(g->p, IR_eq, y, ir_i(g->p, t, 0)), ir_i(g->p, t, 1), y);
    return ir_2(g->p, op, x, y);
}

/* Integers in [0, extent). */
static inline ir_term gen_index(gen *g, i64 extent)
{
    return ir_2(g->p, IR_mod, gen_typed(g, DT_i64), ir_i(g->p, DT_i64, extent));
}

static inline ir_term gen_slice(gen *g)
{
    ir_term x = gen_with_dims(g);
    ir_atoms dims = ir_get(g->p, x)->dims;
    ir_atom k = gen_member(g, dims);
    i64 room = ir_extent(g->p, k), n = gen_below(g, 3), steps[2], low = 0, high = 0;
    ir_atom to[2];
    ir_atoms chosen = {to, 0};
    for (i64 i = 0; i < n; i++) {
        ir_atom d = gen_atom(g, 2 + gen_below(g, 2), chosen);
        i64 step = gen_below(g, 2) ? 1 : -1, span = step * (ir_extent(g->p, d) - 1);
        if (high - low + (span < 0 ? -span : span) >= room)
            continue;
        steps[chosen.n] = step;
        to[chosen.n++] = d;
        low += MIN(span, 0);
        high += MAX(span, 0);
    }
    i64 start = gen_below(g, room - (high - low)) - low;
    return ir_slice(g->p, x, k, start, chosen, steps);
}

static inline ir_term gen_rename(gen *g)
{
    ir_term x = gen_with_dims(g);
    ir_atoms dims = ir_get(g->p, x)->dims, from = gen_subset(g, dims);
    ir_atoms taken = dims;
    ir_atom *to = NEW_N(g->a, ir_atom, from.n);
    for (i64 i = 0; i < from.n; i++) {
        to[i] = gen_atom(g, ir_extent(g->p, from.at[i]), taken);
        taken = ir_atoms_union(g->p, taken, (ir_atoms){&to[i], 1});
    }
    if (from.n == 2 && gen_below(g, 2) &&
        ir_extent(g->p, from.at[0]) == ir_extent(g->p, from.at[1])) { /* a swap */
        to[0] = from.at[1];
        to[1] = from.at[0];
    }
    return ir_rename(g->p, x, from, (ir_atoms){to, from.n});
}

static inline ir_term gen_concat(gen *g)
{
    i64 n = 1 + gen_below(g, 3), sum = 0;
    ir_term x[3];
    ir_atom axis[3];
    ir_atoms taken = {0};
    dtype t = gen_dtype(g);
    for (i64 i = 0; i < n; i++) {
        x[i] = gen_typed(g, t);
        ir_atoms dims = ir_get(g->p, x[i])->dims;
        axis[i] = dims.n && (n == 1 || gen_below(g, 4)) ? gen_member(g, dims) : (ir_atom){0};
        sum += ir_extent(g->p, axis[i]);
        taken = ir_atoms_union(g->p, taken, dims);
    }
    if (sum < 2)
        return x[0];
    ir_atom to = gen_atom(g, sum, taken);
    return ir_make(g->p, IR_concat, (ir_attr){.axis = {axis, n}, .to = {&to, 1}}, x, n);
}

/* Some dims in a random order become one atom, or two that factor the product differently. */
static inline ir_term gen_reshape(gen *g)
{
    ir_term x = gen_with_dims(g);
    ir_atoms dims = ir_get(g->p, x)->dims, some = gen_subset(g, dims);
    ir_atom *axis = NEW_N(g->a, ir_atom, some.n), to[2];
    i64 product = 1;
    for (i64 i = 0; i < some.n; i++) {
        i64 j = gen_below(g, i + 1);
        axis[i] = axis[j];
        axis[j] = some.at[i];
        product *= ir_extent(g->p, some.at[i]);
    }
    ir_atoms taken = ir_atoms_minus(g->p, dims, some);
    i64 first = product % 2 == 0 && product > 2 ? 2 : product;
    to[0] = gen_atom(g, first, taken);
    if (first < product)
        to[1] = gen_atom(g, product / first, ir_atoms_union(g->p, taken, (ir_atoms){&to[0], 1}));
    return ir_make(g->p, IR_reshape,
                   (ir_attr){.axis = {axis, some.n}, .to = {to, first < product ? 2 : 1}}, &x, 1);
}

static inline ir_term gen_gather(gen *g, bool is_scatter)
{
    ir_term x = gen_with_dims(g), args[GEN_MAX_DIMS + 2] = {x};
    ir_atoms axis = gen_subset(g, ir_get(g->p, x)->dims);
    for (i64 i = 0; i < axis.n; i++)
        args[i + 1] = gen_index(g, ir_extent(g->p, axis.at[i]));
    if (!is_scatter)
        return ir_make(g->p, IR_gather, (ir_attr){.axis = axis}, args, axis.n + 1);
    dtype t = ir_get(g->p, x)->dtype;
    args[axis.n + 1] = gen_typed(g, t);
    ir_reducer r = gen_below(g, 2) ? gen_reducer(g, t) : IR_NO_REDUCER;
    return ir_make(g->p, IR_scatter, (ir_attr){.axis = axis, .reducer = (u8)r}, args, axis.n + 2);
}

static inline ir_term gen_whole_axis(gen *g)
{
    ir_term x = gen_with_dims(g);
    ir_atoms dims = ir_get(g->p, x)->dims;
    ir_atom k = gen_member(g, dims), to;
    if (gen_below(g, 2))
        return ir_make(
            g->p, IR_scan,
            (ir_attr){.axis = {&k, 1}, .reducer = (u8)gen_reducer(g, ir_get(g->p, x)->dtype)}, &x,
            1);
    to = gen_atom(g, MAX(ir_extent(g->p, k) - gen_below(g, 2), 2), dims);
    return ir_make(g->p, IR_argsort,
                   (ir_attr){.axis = {&k, 1},
                             .to = {&to, gen_below(g, 2)},
                             .ints = {(i64[]){gen_below(g, 2)}, 1}},
                   &x, 1);
}

static inline ir_term gen_opaque(gen *g)
{
    ir_term args[2] = {gen_any(g), gen_any(g)};
    ir_atoms to = {0};
    if (gen_below(g, 4))
        to = gen_subset(g, ir_get(g->p, gen_with_dims(g))->dims);
    return ir_make(g->p, IR_opaque,
                   (ir_attr){.name = intern_cstr(g->p->names, "some.operator \"x\""),
                             .dtype = (u8)gen_dtype(g),
                             .to = to,
                             .ints = {(i64[]){gen_below(g, 3)}, 1}},
                   args, 1 + gen_below(g, 2));
}

static inline ir_term gen_step(gen *g)
{
    ir_term x, y;
    switch (gen_below(g, g->has_opaque ? 17 : 16)) {
    case 0:
        return gen_constant(g, gen_dtype(g));
    case 1:
        return ir_iota(g->p, (ir_atom){(u32)(1 + gen_below(g, g->p->atoms.n - 1))});
    case 2:
        x = gen_with_dims(g);
        return ir_reduce(g->p, gen_reducer(g, ir_get(g->p, x)->dtype), x,
                         gen_subset(g, ir_get(g->p, gen_with_dims(g))->dims));
    case 3:
        x = gen_with_dims(g);
        y = gen_typed(g, ir_get(g->p, x)->dtype);
        return ir_matmul(g->p, x, y, gen_subset(g, ir_get(g->p, x)->dims));
    case 4:
        return gen_rename(g);
    case 5:
        return gen_slice(g);
    case 6:
        return gen_concat(g);
    case 7:
        return gen_reshape(g);
    case 8: {
        x = gen_any(g);
        ir_atom d = gen_atom(g, 2, ir_get(g->p, x)->dims);
        return ir_make(g->p, IR_expand, (ir_attr){.to = {&d, 1}}, &x, 1);
    }
    case 9:
        return gen_gather(g, false);
    case 10:
        return gen_gather(g, true);
    case 11:
        return gen_whole_axis(g);
    case 16:
        return gen_opaque(g);
    default:
        return gen_pointwise(g);
    }
}

/* A port over `dims` in a random order, neighbours sometimes in one composite dim. */
static inline ir_port gen_port(gen *g, const char *name, ir_atoms dims)
{
    ir_atom *at = NEW_N(g->a, ir_atom, dims.n);
    for (i64 i = 0; i < dims.n; i++) {
        i64 j = gen_below(g, i + 1);
        at[i] = at[j];
        at[j] = dims.at[i];
    }
    ir_dim *port_dims = NEW_N(g->a, ir_dim, 2 * dims.n + 1);
    i64 rank = 0;
    for (i64 i = 0; i < dims.n;) {
        i64 n = i + 1 < dims.n && gen_below(g, 3) == 0 ? 2 : 1, extent = 1;
        for (i64 j = 0; j < n; j++)
            extent *= ir_extent(g->p, at[i + j]);
        port_dims[rank++] = (ir_dim){extent, {at + i, n}};
        if (gen_below(g, 5) == 0)
            port_dims[rank++] = (ir_dim){.extent = 1};
        i += n;
    }
    return (ir_port){.name = intern_cstr(g->p->names, name), .rank = rank, .dims = port_dims};
}

static inline ir_program *gen_program(arena *a, u64 seed, i64 steps, bool has_opaque)
{
    gen g = {.a = a, .r = rng_new(seed), .has_opaque = has_opaque};
    g.p = ir_program_new(a, "random", "random");
    static const i64 extents[] = {2, 3, 4, 2, 3};
    static const char *const names[] = {"A", "B", "C", "D", "inf"};
    for (int i = 0; i < 5; i++)
        ir_atom_new(g.p, names[i], extents[i]);
    ir_atom all[5] = {{1}, {2}, {3}, {4}, {5}};
    for (int i = 0; i < 4; i++) {
        ir_atoms dims = {NULL, 0};
        while (dims.n == 0 || dims.n > 3)
            dims = gen_subset(&g, (ir_atoms){all, 5});
        ir_port port = gen_port(&g, i == 3 ? "t1" : arena_printf(a, "in%d", i), dims);
        port.dtype = (u8)(i == 0 ? DT_f64 : gen_dtype(&g));
        port.role = (u8)(i % 4);
        i64 k = ir_add_input(g.p, port);
        vec_push(a, &g.pool, g.p->inputs.at[k].term);
    }
    for (i64 i = 0; i < steps; i++) {
        ir_term t = gen_step(&g);
        ir_atoms dims = ir_get(g.p, t)->dims;
        if (dims.n <= GEN_MAX_DIMS && ir_count_elements(g.p, dims) <= GEN_MAX_ELEMENTS)
            vec_push(a, &g.pool, t);
    }
    for (int i = 0; i < 4; i++) {
        ir_term t = g.pool.at[g.pool.n - 1 - gen_below(&g, MIN(g.pool.n, 8))];
        ir_atoms dims = ir_get(g.p, t)->dims;
        if (gen_below(&g, 3) == 0)
            dims = ir_atoms_union(g.p, dims, (ir_atoms){all + 1, 1});
        ir_port port = gen_port(&g, arena_printf(a, "out %d", i), dims);
        port.term = t;
        ir_add_output(g.p, port);
    }
    return g.p;
}

#endif
