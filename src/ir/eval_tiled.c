/* Tiles: which positions a tile has, terms computed at every coordinate of their axes, and the
 * operators that cut and join. The n positions of an atom whose axis has t tiles go to tiles of
 * ceil(n / t), so the last may be short, and with more tiles than positions some are empty. */
#include <math.h>

#include "ir/eval.h"

/* ---- coordinates ----------------------------------------------------------------------------- */

i64 eval_tile_count(const eval *e, ir_atom axis)
{
    return e->options.tiles ? e->options.tiles[axis.i] : 1;
}

i64 eval_tile_start(const eval *e, ir_atom axis, i64 tile)
{
    i64 n = ir_extent(e->p, axis), count = eval_tile_count(e, axis);
    i64 size = (n - 1) / count + 1;
    return tile >= (n - 1) / size + 1 ? n : tile * size;
}

void eval_first(eval *e, ir_atoms axes)
{
    for (i64 i = 0; i < axes.n; i++)
        if (!e->pinned[axes.at[i].i])
            e->coord[axes.at[i].i] = 0;
}

bool eval_next(eval *e, ir_atoms axes)
{
    for (i64 i = axes.n - 1; i >= 0; i--) {
        ir_atom d = axes.at[i];
        if (e->pinned[d.i])
            continue;
        if (++e->coord[d.i] < eval_tile_count(e, d))
            return true;
        e->coord[d.i] = 0;
    }
    return false;
}

i64 eval_index_of(const eval *e, ir_atoms axes)
{
    i64 index = 0;
    for (i64 i = 0; i < axes.n; i++)
        index = index * eval_tile_count(e, axes.at[i]) + e->coord[axes.at[i].i];
    return index;
}

i64 eval_coordinates(const eval *e, ir_atoms axes)
{
    i64 n = 1;
    for (i64 i = 0; i < axes.n; i++)
        if (!mul_i64(n, eval_tile_count(e, axes.at[i]), &n) || n > INT64_MAX / 1024)
            eqf_throw(e->ctx, EQF_E_LIMIT, e->p->file, NULL, "more tiles than memory can have");
    return n;
}

void eval_enter(eval *e, ir_atoms axes)
{
    for (i64 i = 0; i < axes.n; i++) {
        ir_atom d = axes.at[i];
        i64 start = eval_tile_start(e, d, e->coord[d.i]);
        e->offset[d.i] = start;
        e->extent[d.i] = eval_tile_start(e, d, e->coord[d.i] + 1) - start;
    }
}

void eval_leave(eval *e, ir_atoms axes)
{
    for (i64 i = 0; i < axes.n; i++) {
        e->offset[axes.at[i].i] = 0;
        e->extent[axes.at[i].i] = ir_extent(e->p, axes.at[i]);
    }
}

value *eval_cell(const eval *e, ir_term t)
{
    if (!e->cells[t.i].at)
        return &e->values[t.i];
    return &e->cells[t.i].at[eval_index_of(e, ir_get(e->p, t)->axes)];
}

/* ---- dead lanes ------------------------------------------------------------------------------ */

/* Position along d of the element at `at` over `dims`, by way of d's parts where it is split; -1:
 * the element has none. */
static i64 position(const eval *e, ir_atom d, ir_atoms dims, const i64 *at)
{
    for (i64 i = 0; i < dims.n; i++)
        if (dims.at[i].i == d.i)
            return e->offset[d.i] + at[i];
    for (i64 i = 0; i < e->p->splits.n; i++) {
        const ir_split *s = &e->p->splits.at[i];
        if (s->whole.i != d.i)
            continue;
        i64 outer = position(e, s->outer, dims, at), inner = position(e, s->inner, dims, at);
        if (outer >= 0 && inner >= 0)
            return outer * ir_extent(e->p, s->inner) + inner;
    }
    return -1;
}

static bool is_dead(const eval *e, ir_atoms dims, const i64 *at)
{
    for (i64 i = 0; i < e->p->splits.n; i++) {
        const ir_split *s = &e->p->splits.at[i];
        i64 outer = position(e, s->outer, dims, at), inner = position(e, s->inner, dims, at);
        if (outer >= 0 && inner >= 0 &&
            outer * ir_extent(e->p, s->inner) + inner >= ir_extent(e->p, s->whole))
            return true;
    }
    return false;
}

u8 *eval_dead_lanes(eval *e, ir_atoms dims)
{
    bool may_be = false;
    for (i64 i = 0; i < dims.n; i++)
        may_be = may_be || e->p->atoms.at[dims.at[i].i].split;
    if (!may_be)
        return NULL;
    i64 count = eval_count(e, dims), *at = NEW_N(e->scratch, i64, dims.n);
    u8 *dead = NEW_N(e->scratch, u8, count);
    bool any = false;
    for (i64 j = 0; j < count; j++) {
        dead[j] = is_dead(e, dims, at);
        any = any || dead[j];
        for (i64 i = dims.n - 1; i >= 0 && ++at[i] == eval_extent(e, dims.at[i]); i--)
            at[i] = 0;
    }
    return any ? dead : NULL;
}

/* ---- operators ------------------------------------------------------------------------------- */

/* Stride of each atom of v with the extents in force. */
static i64 *strides_of(eval *e, const value *v)
{
    i64 *strides = NEW_N(e->scratch, i64, v->dims.n);
    for (i64 i = 0; i < v->dims.n; i++)
        strides[i] = eval_stride(e, v, v->dims.at[i]);
    return strides;
}

/* Copies between a tile and the array around it, which has the same atoms: those of `cut` start at
 * the tile's offset there. Extents and offsets are the tile's. */
static void copy_tile(eval *e, ir_atoms dims, ir_atoms cut, void *to, const i64 *to_strides,
                      const void *from, const i64 *from_strides, bool into_tile)
{
    const i64 *around = into_tile ? from_strides : to_strides;
    nest t = {.operands = 2};
    i64 base = 0;
    for (i64 i = 0; i < dims.n; i++) {
        ir_atom d = dims.at[i];
        if (ir_has(cut, d))
            base += e->offset[d.i] * around[i];
        nest_add(&t, eval_extent(e, d), (i64[]){to_strides[i], from_strides[i]});
    }
    nest_copy(e, &t, (i64 *)to + (into_tile ? 0 : base),
              (const i64 *)from + (into_tile ? base : 0));
}

static void view(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_term x = node->args[0];
    const value *from = eval_cell(e, x);
    eval_enter(e, ir_get(e->p, x)->axes);
    const i64 *strides = strides_of(e, from);
    eval_enter(e, node->axes);
    value *out = eval_new(e, k);
    copy_tile(e, node->dims, node->attr.par, out->p, strides_of(e, out), from->p, strides, true);
    eval_leave(e, node->axes);
}

static void comb(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_term x = node->args[0];
    ir_atoms axes = ir_get(e->p, x)->axes;
    eval_enter(e, node->axes);
    value *out = eval_new(e, k);
    const i64 *strides = strides_of(e, out);
    eval_leave(e, node->axes);
    eval_first(e, node->attr.par);
    do {
        const value *tile = eval_cell(e, x);
        eval_enter(e, axes);
        copy_tile(e, node->dims, node->attr.par, out->p, strides, tile->p, strides_of(e, tile),
                  false);
        eval_leave(e, axes);
    } while (eval_next(e, node->attr.par));
}

static void collection(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atom p = node->attr.par.at[0], to = node->attr.to.at[0];
    if (eval_tile_count(e, p) != ir_extent(e->p, to))
        eval_throw(e, k, EQF_E_ARGUMENT, "the axis of %s has %lld tiles, %s has extent %lld",
                   ir_atom_name(e->p, p), (long long)eval_tile_count(e, p), ir_atom_name(e->p, to),
                   (long long)ir_extent(e->p, to));
    eval_enter(e, node->axes);
    value *out = eval_new(e, k);
    i64 stride = eval_stride(e, out, to);
    eval_first(e, node->attr.par);
    do {
        const value *x = eval_cell(e, node->args[0]);
        nest t = nest_over(e, x->dims, (const value *[]){out, x}, 2);
        nest_copy(e, &t, out->i + e->coord[p.i] * stride, x->p);
    } while (eval_next(e, node->attr.par));
    eval_leave(e, node->axes);
}

/* The combination of tiles [low, high), in the order and grouping that the options ask for. */
static void fold_tiles(eval *e, ir_reducer r, value *out, const value *const *x, i64 low, i64 high)
{
    if (e->options.association == 0 || high - low < 2 || rng_below(&e->random, 3) == 0) {
        eval_fill_identity(out, r);
        for (i64 i = low; i < high; i++)
            eval_fold(e, r, out, x[i]);
        return;
    }
    i64 middle = low + 1 + (i64)rng_below(&e->random, (u64)(high - low - 1));
    bool swap = rng_below(&e->random, 2);
    value other = *out;
    other.p = NEW_N(e->scratch, i64, out->count);
    fold_tiles(e, r, swap ? &other : out, x, low, middle);
    fold_tiles(e, r, swap ? out : &other, x, middle, high);
    eval_fold(e, r, out, &other);
}

static void reduce_par(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    i64 n = eval_coordinates(e, node->attr.par), i = 0;
    const value **x = NEW_N(e->scratch, const value *, n);
    eval_first(e, node->attr.par);
    do
        x[i++] = eval_cell(e, node->args[0]);
    while (eval_next(e, node->attr.par));
    eval_enter(e, node->axes);
    value *out = eval_new(e, k);
    eval_leave(e, node->axes);
    fold_tiles(e, node->attr.reducer, out, x, 0, n);
}

static void ordinary(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    for (i64 i = 0; i < node->arg_count; i++)
        if (e->cells[node->args[i].i].at)
            e->values[node->args[i].i] = *eval_cell(e, node->args[i]);
    eval_enter(e, node->axes);
    eval_plain(e, k);
    eval_leave(e, node->axes);
}

static void at_coordinates(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    arena *outer = e->scratch;
    e->scratch = arena_child(e->own);
    switch (node->op) {
    case IR_view:
        view(e, k);
        break;
    case IR_comb:
        comb(e, k);
        break;
    case IR_collection:
        collection(e, k);
        break;
    case IR_get:
        eval_get(e, k);
        break;
    case IR_run:
        eval_run(e, k);
        break;
    default:
        if (node->op == IR_reduce && node->attr.par.n > 0)
            reduce_par(e, k);
        else
            ordinary(e, k);
    }
    arena_free(e->scratch);
    e->scratch = outer;
}

void eval_node(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    if (node->op == IR_loop) {
        eval_loop(e, k);
        return;
    }
    if (node->axes.n == 0) {
        at_coordinates(e, k);
        return;
    }
    if (!e->cells[k].at) {
        i64 n = eval_coordinates(e, node->axes);
        e->cells[k] = (cells){NEW_N(e->own, value, n), n};
    }
    eval_first(e, node->axes);
    do {
        eval_poll(e);
        at_coordinates(e, k);
    } while (eval_next(e, node->axes));
}
