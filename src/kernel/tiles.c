/* Tiles: what a kernel of tiles computes at one place. Values are tiles of at most three dims with
 * more than one lane, arranged where they meet; values in memory are loaded, or left where they are
 * for products; products are dots with a register tile; lambdas are applied in place.
 *
 * Where the last tile of an axis is short, dead lanes hold anything; loads give 0 there, and
 * whatever combines lanes sees its identity. Half types are widened when they are loaded. */
#include "kernel/tiled.h"

enum {
    FAR_BYTES = 1 << 20, /* panels larger than this are fetched ahead */
    FEW_READINGS = 4,    /* of a tile; a copy costs about as much as so many */
    MANY_ROWS = 8
};

const ir_node *kt_node_of(const tiler *t, u32 k)
{
    return &t->p->nodes.at[k];
}

_Noreturn void kt_refuse(const tiler *t, u32 k, const char *why)
{
    const ir_node *node = kt_node_of(t, k);
    eqf_throw(t->l->ctx, EQF_E_UNSUPPORTED, t->p->file, intern_text(t->p->names, node->origin),
              "operator %s: %s", ir_row((ir_op)node->op)->name, why);
}

dtype kt_wide(dtype t)
{
    return t == DT_f16 || t == DT_bf16 ? DT_f32 : t;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

i64 kt_tiles_of(const tiler *t, ir_atom d)
{
    i64 n = ir_extent(t->p, d), lanes = t->lanes[d.i];
    return (n + lanes - 1) / lanes;
}

/* Lanes along atom d of a value with these axes. */
static i64 lanes_in(const tiler *t, ir_atoms axes, ir_atom d)
{
    return ir_has(axes, d) ? t->lanes[d.i] : ir_extent(t->p, d);
}

static ir_atoms axes_in(const frame *f, const ir_node *node)
{
    return f->is_lambda ? f->axes : node->axes;
}

const ir_split *kt_ragged_split(const tiler *t, ir_atoms axes, ir_atom d)
{
    const ir_split *s = ir_has(axes, d) ? kn_ragged_split(t->l, d) : NULL;
    return s && s->inner.i == d.i && ir_has(axes, s->outer) ? s : NULL;
}

bool kt_is_ragged(const tiler *t, ir_atoms axes, ir_atom d)
{
    return ir_has(axes, d) && !t->whole[d.i] &&
           (ir_extent(t->p, d) % t->lanes[d.i] != 0 || kt_ragged_split(t, axes, d));
}

/* Lanes along d that exist: those from the tile's first on, before an end. Of a part, positions of the
 * whole: its tiles are never short themselves. */
static kn_live live_along(const tiler *t, ir_atoms axes, ir_atom d)
{
    const ir_split *s = kt_ragged_split(t, axes, d);
    if (!s)
        return (kn_live){.start = t->at[d.i], .end = ir_extent(t->p, d)};
    i64 inner = ir_extent(t->p, d);
    return (kn_live){.start = kn_affine_sum(t->a, t->at[d.i], t->at[s->outer.i], inner),
                     .end = ir_extent(t->p, s->whole)};
}

/* Refuses a kernel in which lanes that do not exist would count. In a value with both parts of such a
 * split the outer one has one lane, the inner one whole tiles; nothing combines the outer part alone;
 * and no result has both. */
void kt_check_splits(const tiler *t, u32 root)
{
    term_list all = kt_below(t, t->a, &root, 1);
    for (i64 i = 0; i < all.n; i++) {
        const ir_node *node = kt_node_of(t, all.at[i]);
        for (i64 d = 0; d < node->dims.n; d++) {
            const ir_split *s = kn_ragged_split(t->l, node->dims.at[d]);
            if (!s || s->inner.i != node->dims.at[d].i)
                continue;
            bool is_whole = ir_has(node->dims, s->outer);
            i64 lanes = t->lanes[s->inner.i];
            if (is_whole && !kt_is_in_memory(t, all.at[i]) &&
                (all.at[i] == root || !ir_has(node->axes, s->outer) || !ir_has(node->axes, s->inner) ||
                 t->lanes[s->outer.i] != 1 || lanes == 1 || ir_extent(t->p, s->inner) % lanes != 0))
                kt_refuse(t, all.at[i], "parts of unequal size that are not cut into whole tiles");
            for (i64 k = 0; k < node->arg_count && !is_whole; k++)
                if (ir_has(kt_node_of(t, node->args[k].i)->dims, s->outer) &&
                    ir_has(kt_node_of(t, node->args[k].i)->dims, s->inner))
                    kt_refuse(t, all.at[i], "combines parts of unequal size");
        }
    }
}

/* Dims of more than one lane, in the order of the atoms. */
tile kt_shape_of(const tiler *t, u32 k, ir_atoms dims, ir_atoms axes)
{
    tile x = {.n = 0};
    for (i64 i = 0; i < dims.n; i++) {
        if (lanes_in(t, axes, dims.at[i]) == 1)
            continue;
        if (x.n == KN_RANK)
            kt_refuse(t, k, "a tile with more than three dims");
        x.dims[x.n++] = dims.at[i];
    }
    return x;
}

i64 kt_extent_of(const tiler *t, ir_atoms axes, ir_atom d)
{
    return d.i ? lanes_in(t, axes, d) : 1;
}

void kt_extents(const tiler *t, const tile *x, ir_atoms axes, i64 *shape)
{
    for (i64 d = 0; d < x->n; d++)
        shape[d] = kt_extent_of(t, axes, x->dims[d]);
}

static i64 find_dim(const tile *x, ir_atom d)
{
    for (i64 i = 0; i < x->n; i++)
        if (x->dims[i].i == d.i)
            return i;
    return -1;
}

static void drop_dim(tile *x, i64 at)
{
    for (i64 d = at; d + 1 < x->n; d++)
        x->dims[d] = x->dims[d + 1];
    x->n--;
}

/* ---- shapes of values ------------------------------------------------------------------------ */

static ir_reducer any_reducer(dtype t)
{
    return t == DT_bool ? IR_OR : IR_SUM;
}

/* x with exactly the dims of `like`, in that order: dims of one lane dropped or added, the others
 * permuted, missing ones repeated. */
kn_value kt_arrange(tiler *t, tile x, const tile *like, ir_atoms axes)
{
    kn_maker *m = &t->j.m;
    dtype type = (dtype)kn_def(m->k, x.v)->dtype;
    bool same = x.n == like->n;
    for (i64 d = 0; d < x.n && same; d++)
        same = x.dims[d].i == like->dims[d].i;
    if (same)
        return x.v;
    for (i64 d = x.n - 1; d >= 0; d--)
        if (x.dims[d].i == 0) {
            x.v = kn_reduce(m, any_reducer(type), x.v, d);
            drop_dim(&x, d);
        }
    u8 perm[KN_RANK];
    i64 n = 0;
    bool moves = false;
    for (i64 d = 0; d < like->n; d++) {
        i64 at = like->dims[d].i ? find_dim(&x, like->dims[d]) : -1;
        if (at < 0)
            continue;
        moves |= at != n;
        perm[n++] = (u8)at;
    }
    if (n != x.n)
        eqf_bug(t->l->ctx, "a tile has dims that its user lacks");
    if (moves)
        x.v = kn_trans(m, x.v, perm);
    for (i64 d = 0; d < like->n; d++)
        if (like->dims[d].i == 0 || find_dim(&x, like->dims[d]) < 0)
            x.v = kn_bcast(m, x.v, d, kt_extent_of(t, axes, like->dims[d]));
    return x.v;
}

/* 1 in live lanes: those whose position along d exists. */
static kn_value live_lanes(tiler *t, const tile *x, ir_atoms axes, ir_atom d)
{
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK], stride[KN_RANK] = {0};
    kt_extents(t, x, axes, shape);
    stride[find_dim(x, d)] = 1;
    kn_live live = live_along(t, axes, d);
    /* as wide as the lanes that are chosen by it, where that is enough */
    dtype type = live.end < INT32_MAX / 2 ? DT_i32 : DT_i64;
    kn_value position = kn_iota(m, type, live.start, x->n, shape, stride);
    kn_value end = kn_const_i(m, type, live.end, x->n, shape);
    return kn_ew(m, IR_lt, (kn_value[]){position, end}, 2);
}

/* x with the identity of r in dead lanes along d. */
static void mask(tiler *t, tile *x, ir_atoms axes, ir_atom d, ir_reducer r)
{
    if (!kt_is_ragged(t, axes, d) || find_dim(x, d) < 0)
        return;
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK];
    kt_extents(t, x, axes, shape);
    dtype type = (dtype)kn_def(m->k, x->v)->dtype;
    kn_value none = kn_state(m, r, type, x->n, shape);
    x->v = kn_ew(m, IR_where, (kn_value[]){live_lanes(t, x, axes, d), x->v, none}, 3);
}

/* ---- memory ---------------------------------------------------------------------------------- */

bool kt_is_in_memory(const tiler *t, u32 k)
{
    return kt_node_of(t, k)->axes.n == 0 && t->l->at[k].where != KN_ABSENT;
}

/* The value that a view, or a value without axes, reads; 0 when the term is computed. */
u32 kt_source_of(const tiler *t, const frame *f, u32 k)
{
    if (f->is_lambda)
        return 0;
    if (kt_node_of(t, k)->op == IR_view && kt_is_in_memory(t, kt_node_of(t, k)->args[0].i))
        return kt_node_of(t, k)->args[0].i;
    return kt_is_in_memory(t, k) ? k : 0;
}

kn_place kt_place(tiler *t, const kn_loc *loc, const kn_operand *bound, const tile *x, ir_atoms axes)
{
    kn_place p = {.buffer = bound->buffer, .at = kn_const_affine(bound->base), .rank = x->n};
    for (i64 i = 0; i < loc->dims.n; i++)
        if (ir_has(axes, loc->dims.at[i]))
            p.at = kn_affine_sum(t->a, p.at, t->at[loc->dims.at[i].i], loc->stride[i]);
    for (i64 d = 0; d < x->n; d++) {
        ir_atom atom = x->dims[d];
        p.shape[d] = kt_extent_of(t, axes, atom);
        p.stride[d] = atom.i ? kn_stride(loc, atom) : 0;
        if (atom.i && kt_is_ragged(t, axes, atom))
            p.live[d] = live_along(t, axes, atom);
    }
    return p;
}

/* Where the tile of a value in memory lies, its dims as in `x`. */
static kn_place place_of(tiler *t, u32 source, const tile *x, ir_atoms axes)
{
    const kn_loc *loc = &t->l->at[source];
    if (loc->where == KN_MEMORY && !t->is_bound[source]) {
        t->bound[source] = kn_job_bind(&t->j, loc, KN_IN);
        t->is_bound[source] = true;
    }
    kn_operand nowhere = {loc, -1, loc->offset};
    return kt_place(t, loc, loc->where == KN_MEMORY ? &t->bound[source] : &nowhere, x, axes);
}

static kn_value load(tiler *t, u32 source, const tile *x, ir_atoms axes)
{
    const kn_loc *loc = &t->l->at[source];
    kn_maker *m = &t->j.m;
    kn_place p = place_of(t, source, x, axes);
    if (loc->where == KN_SERIES)
        return kn_iota(m, DT_i64, p.at, p.rank, p.shape, p.stride);
    if (loc->where == KN_NUMBER) {
        dtype w = kt_wide((dtype)loc->dtype);
        return dtype_is_float(w) ? kn_const_f(m, w, loc->f, p.rank, p.shape)
                                 : kn_const_i(m, w, loc->i, p.rank, p.shape);
    }
    return kn_cast(m, kt_wide((dtype)loc->dtype), kn_load(m, &p, 0, 0));
}

/* ---- products -------------------------------------------------------------------------------- */

static void set_dim(const tiler *t, u32 term, ir_atom *dim, ir_atom d)
{
    if (dim->i)
        kt_refuse(t, term, "a product of tiles with too many dims");
    *dim = d;
}

static i64 stride_in(const tiler *t, const frame *f, u32 operand, ir_atom d)
{
    u32 source = kt_source_of(t, f, operand);
    if (!source || t->l->at[source].where != KN_MEMORY)
        return -1;
    return d.i ? kn_stride(&t->l->at[source], d) : 0;
}

/* Can a product read it where it lies, or in panels along `n`? */
static bool may_refer(const tiler *t, const frame *f, u32 operand, ir_atoms axes, ir_atom n)
{
    u32 source = kt_source_of(t, f, operand);
    if (!source || t->l->at[source].where != KN_MEMORY)
        return false;
    ir_atoms dims = kt_node_of(t, operand)->dims;
    for (i64 i = 0; i < dims.n; i++)
        if (dims.at[i].i == n.i ? kt_ragged_split(t, axes, n) != NULL
                                : kt_is_ragged(t, axes, dims.at[i]))
            return false;
    return true;
}

/* How often the kernel reads each tile of the value: once for every tile along the axes that it lacks. */
static i64 readings(const tiler *t, ir_atoms dims)
{
    i64 n = 1;
    for (u32 d = 1; d < (u32)t->p->atoms.n; d++)
        if (t->axes[d] && !ir_has(dims, (ir_atom){d}))
            n *= kt_tiles_of(t, (ir_atom){d});
    return n;
}

/* Is it worth a copy in panels, made once before the kernel runs? Of a constant always: `prepare` makes
 * it. Of others where columns would be gathered, again and again. */
static bool may_pack(const tiler *t, const frame *f, u32 operand, ir_atom n, ir_atoms axes)
{
    u32 source = kt_source_of(t, f, operand);
    if (!n.i || !ir_has(axes, n) || !may_refer(t, f, operand, axes, n) || kt_extent_of(t, axes, n) == 1)
        return false;
    if (t->l->constant[source])
        return !t->j.constant;
    return stride_in(t, f, operand, n) != 1 && readings(t, kt_node_of(t, operand)->dims) >= FEW_READINGS;
}

/* Is a copy of the left operand in panels of as many rows as a tile has worth it? Its elements are read
 * one by one, of every row at the same k; rows far apart lie in as many pages, and in one set of a
 * cache. */
static bool may_pack_rows(const tiler *t, const frame *f, const product *x, ir_atoms axes)
{
    u32 source = kt_source_of(t, f, x->left);
    if (!x->m.i || !may_refer(t, f, x->left, axes, x->m) || kt_extent_of(t, axes, x->m) < MANY_ROWS)
        return false;
    return stride_in(t, f, x->left, x->m) > kt_extent_of(t, axes, x->k) &&
           (t->l->constant[source] ? !t->j.constant
                                   : readings(t, kt_node_of(t, x->left)->dims) >= FEW_READINGS);
}

/* Copies `count` panels of `width` positions along n, from panel `first` of x on. Panels of x may be wider:
 * what nothing is copied to is read for lanes that do not exist. */
static void fill_panels(tiler *t, const panels *x, i64 first, i64 count, i64 width)
{
    kn_lower *l = t->l;
    const kn_loc *from = &l->at[x->source];
    ir_atom outer = kn_fresh(l, count), inner = kn_fresh(l, width);
    i64 lanes = t->lanes[x->n.i], along = kn_stride(from, x->n);
    kn_loc in = *from, out = x->loc;
    ir_atom *dims = NEW_N(l->a, ir_atom, from->dims.n + 1);
    i64 *stride = NEW_N(l->a, i64, from->dims.n + 1);
    for (i64 i = 0; i < from->dims.n; i++) {
        bool is_cut = from->dims.at[i].i == x->n.i;
        dims[i] = is_cut ? outer : from->dims.at[i];
        stride[i] = is_cut ? along * lanes : from->stride[i];
    }
    dims[from->dims.n] = inner;
    stride[from->dims.n] = along;
    in.dims = (ir_atoms){dims, from->dims.n + 1};
    in.stride = stride;
    in.offset += first * lanes * along;
    dims = NEW_N(l->a, ir_atom, out.dims.n);
    for (i64 i = 0; i < out.dims.n; i++) {
        ir_atom d = out.dims.at[i];
        dims[i] = d.i == x->outer.i ? outer : d.i == x->inner.i ? inner : d;
        if (d.i == x->outer.i)
            out.offset += first * out.stride[i];
    }
    out.dims.at = dims;
    kn_copy(l, x->source, &out, KN_INTO, &in);
}

/* The source's panels as wide as the tile, made when they are first asked for, in this dtype. */
static const panels *panels_of(tiler *t, u32 source, ir_atom n, ir_atoms summed, dtype type)
{
    kn_lower *l = t->l;
    for (i64 i = 0; i < t->packed.n; i++)
        if (t->packed.at[i].source == source && t->packed.at[i].n.i == n.i && t->packed.at[i].loc.dtype == type)
            return &t->packed.at[i];
    const kn_loc *from = &l->at[source];
    i64 width = t->lanes[n.i], whole = ir_extent(t->p, n) / width, rest = ir_extent(t->p, n) % width;
    panels x = {.source = source, .n = n};
    x.outer = kn_fresh(l, whole + (rest > 0));
    x.inner = kn_fresh(l, width);
    ir_atom *order = NEW_N(l->a, ir_atom, from->dims.n + 1);
    i64 count = 0;
    for (i64 pass = 0; pass < 2; pass++)
        for (i64 i = 0; i < from->dims.n; i++) {
            ir_atom d = from->dims.at[i].i == n.i ? x.outer : from->dims.at[i];
            if (ir_has(summed, d) == (pass == 1))
                order[count++] = d;
        }
    order[count++] = x.inner;
    x.loc = kn_loc_new(l, type, order, count);
    if (whole > 0)
        fill_panels(t, &x, 0, whole, width);
    if (rest > 0)
        fill_panels(t, &x, whole, 1, rest);
    x.bound = kn_job_bind(&t->j, &x.loc, KN_IN);
    vec_push(t->a, &t->packed, x);
    return &t->packed.at[t->packed.n - 1];
}

static i64 bytes_of(const tiler *t, const kn_loc *x)
{
    i64 n = dtype_bytes((dtype)x->dtype);
    for (i64 i = 0; i < x->dims.n; i++)
        n *= kn_extent(t->l, x->dims.at[i]);
    return n;
}

/* Where the tile lies in them: rows of what is summed, columns side by side. */
static kn_place panel_place(tiler *t, const panels *x, const tile *like, ir_atoms axes)
{
    kn_place p = {.buffer = x->bound.buffer, .at = kn_const_affine(x->bound.base), .rank = like->n};
    for (i64 i = 0; i < x->loc.dims.n; i++) {
        ir_atom d = x->loc.dims.at[i];
        if (d.i == x->outer.i)
            p.at = kn_affine_sum(t->a, p.at, t->at[x->n.i],
                                 x->loc.stride[i] / t->lanes[x->n.i]);
        else if (ir_has(axes, d))
            p.at = kn_affine_sum(t->a, p.at, t->at[d.i], x->loc.stride[i]);
    }
    for (i64 d = 0; d < like->n; d++) {
        ir_atom atom = like->dims[d];
        p.shape[d] = kt_extent_of(t, axes, atom);
        p.stride[d] = atom.i == 0        ? 0
                      : atom.i == x->n.i ? 1
                                         : kn_stride(&x->loc, atom);
    }
    return p;
}

/* How well vectors run along the right operand's columns; 0: not at all. */
static int rate(const tiler *t, const frame *f, const product *x, ir_atoms axes)
{
    i64 n = kt_extent_of(t, axes, x->n), m = kt_extent_of(t, axes, x->m);
    bool refers = may_refer(t, f, x->right, axes, (ir_atom){0});
    bool left_runs = !may_refer(t, f, x->left, axes, (ir_atom){0}) || stride_in(t, f, x->left, x->k) == 1;
    bool along_k = refers && stride_in(t, f, x->right, x->k) == 1 && left_runs;
    if (along_k && m == 1 && n > 1) /* each element is read once, rows are streams */
        return 7;
    i64 half = t->l->o.vector_bytes / 8; /* columns that fill half a vector */
    if (n >= half && may_pack(t, f, x->right, x->n, axes))
        return 6;
    if (n >= half && refers && stride_in(t, f, x->right, x->n) == 1)
        return 5;
    if (along_k && m < 8)
        return 4;
    return n > 1 ? (refers ? 2 : 3) : 1;
}

product kt_product_of(tiler *t, const frame *f, u32 k, ir_atoms axes)
{
    const ir_node *node = kt_node_of(t, k);
    const ir_node *a = kt_node_of(t, node->args[0].i), *b = kt_node_of(t, node->args[1].i);
    product x = {.left = node->args[0].i, .right = node->args[1].i};
    for (i64 i = 0; i < a->dims.n; i++) {
        ir_atom d = a->dims.at[i];
        if (lanes_in(t, axes, d) == 1)
            continue;
        if (ir_has(node->attr.axis, d))
            set_dim(t, k, &x.k, d);
        else if (ir_has(b->dims, d))
            kt_refuse(t, k, "a product of tiles with rows in both");
        else
            set_dim(t, k, &x.m, d);
    }
    for (i64 i = 0; i < b->dims.n; i++) {
        ir_atom d = b->dims.at[i];
        if (lanes_in(t, axes, d) == 1 || (ir_has(node->attr.axis, d) && ir_has(a->dims, d)))
            continue;
        set_dim(t, k, ir_has(node->attr.axis, d) ? &x.k : &x.n, d);
    }
    product y = {x.right, x.left, x.n, x.m, x.k, KN_DOT_PLAIN};
    if (rate(t, f, &y, axes) > rate(t, f, &x, axes))
        x = y;
    int r = rate(t, f, &x, axes);
    bool floats = dtype_is_float(kt_wide((dtype)node->dtype));
    x.kind = !floats || r == 1 ? KN_DOT_PLAIN : r == 4 || r == 7 ? KN_DOT_ROWDOT : KN_DOT_FMA;
    return x;
}

tile kt_product_shape(const product *x)
{
    return (tile){.n = 2, .dims = {x->m, x->n}};
}

/* Rows and columns of the register tile: as many accumulators as fit beside a column of operands,
 * FMAs over loads. */
static void choose_block(const tiler *t, const product *x, ir_atoms axes, dtype type, i64 *block)
{
    i64 m = kt_extent_of(t, axes, x->m), n = kt_extent_of(t, axes, x->n);
    i64 lanes = t->l->o.vector_bytes / dtype_bytes(type);
    i64 registers = t->l->o.vector_bytes >= 64 ? 32 : 16;
    i64 width = x->kind == KN_DOT_ROWDOT ? 1 : MIN(lanes, n);
    f64 best = 0;
    block[0] = block[1] = 1;
    i64 most = x->kind == KN_DOT_ROWDOT && m == 1 ? 8 : 4;
    for (i64 nv = 1; nv <= most && nv * width <= MAX(n, width); nv++)
        for (i64 mr = 1; mr <= m; mr++) {
            if (mr * nv + nv + 1 > registers)
                break;
            f64 rows = (f64)((m + mr - 1) / mr * mr) / (f64)m;
            i64 wide_n = (n + nv * width - 1) / (nv * width) * nv * width;
            f64 waste = rows * (f64)wide_n / (f64)n;
            f64 rate = (f64)(mr * nv) / MAX(4.0, (f64)(mr * nv) / 2 + (f64)(mr + nv) / 4) / waste;
            if (rate > best + 1e-9) {
                best = rate;
                block[0] = mr;
                block[1] = nv * width;
            }
        }
}

/* An operand as [rows][columns], the summed dim in its place. */
static kn_value operand(tiler *t, frame *f, u32 k, tile like, bool by_place, ir_atoms axes,
                        ir_atom summed)
{
    kn_maker *m = &t->j.m;
    if (by_place && may_refer(t, f, k, axes, (ir_atom){0})) {
        kn_place p = place_of(t, kt_source_of(t, f, k), &like, axes);
        return kn_ref(m, &p);
    }
    u32 source = kt_source_of(t, f, k);
    if (source && t->l->at[source].where == KN_MEMORY) {
        kn_place p = place_of(t, source, &like, axes);
        return kn_cast(m, kt_wide((dtype)t->l->at[source].dtype), kn_load(m, &p, 0, 0));
    }
    tile x = kt_value(t, f, k);
    if (summed.i)
        mask(t, &x, axes, summed, IR_SUM);
    return kt_arrange(t, x, &like, axes);
}

/* Does the operand lie in a half type? */
static bool lies_half(const tiler *t, const frame *f, u32 operand)
{
    u32 source = kt_source_of(t, f, operand);
    return source && kt_wide((dtype)t->l->at[source].dtype) != t->l->at[source].dtype;
}

/* acc + the product, or the product. Rows are read one element at a time, again for each few columns: in
 * f32. Columns that several register tiles of rows share are widened once for all; one widens them in registers. */
tile kt_multiply(tiler *t, frame *f, u32 k, const tile *acc)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = kt_node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    product x = kt_product_of(t, f, k, axes);
    tile out = kt_product_shape(&x), left = {.n = 2, .dims = {x.m, x.k}},
         right = {.n = 2, .dims = {x.k, x.n}};
    dtype type = kt_wide((dtype)node->dtype);
    i64 shape[KN_RANK];
    kt_extents(t, &out, axes, shape);
    i64 block[2];
    choose_block(t, &x, axes, type, block);
    bool is_fma = x.kind == KN_DOT_FMA;
    bool widens = is_fma && lies_half(t, f, x.right) && kt_extent_of(t, axes, x.m) > block[0];
    bool row_runs = is_fma ? !lies_half(t, f, x.left)
                           : x.kind != KN_DOT_ROWDOT || stride_in(t, f, x.left, x.k) == 1;
    kn_value l;
    if (is_fma && may_pack_rows(t, f, &x, axes)) {
        const panels *of = panels_of(t, kt_source_of(t, f, x.left), x.m, node->attr.axis, type);
        kn_place p = panel_place(t, of, &left, axes);
        l = kn_ref(m, &p);
    } else {
        l = operand(t, f, x.left, left, row_runs, axes, x.k);
    }
    kn_value r;
    kn_affine next = kn_const_affine(0);
    i64 ahead = 0;
    if (is_fma && may_pack(t, f, x.right, x.n, axes)) {
        u32 source = kt_source_of(t, f, x.right);
        const panels *of = panels_of(t, source, x.n, node->attr.axis, (dtype)t->l->at[source].dtype);
        kn_place p = panel_place(t, of, &right, axes);
        r = widens ? kn_cast(m, type, kn_load(m, &p, 0, 0)) : kn_ref(m, &p);
        if (!widens && bytes_of(t, &of->loc) > FAR_BYTES && p.stride[1] == 1 && p.stride[0] == p.shape[1]) {
            /* what comes next lies behind it */
            next = p.at;
            next.base += p.shape[0] * p.shape[1];
            ahead = p.shape[1];
        }
    } else {
        bool columns_run = !is_fma || (!widens && stride_in(t, f, x.right, x.n) == 1);
        r = operand(t, f, x.right, right, columns_run, axes, x.k);
    }
    kn_value start = acc ? kt_arrange(t, *acc, &out, axes) : kn_state(m, IR_SUM, type, 2, shape);
    out.v = kn_dot_add(m, x.kind, start, l, r, next, ahead);
    kn_dot_block(m, out.v, block[0], block[1]);
    const ir_atom dims[KN_RANK] = {x.m, x.n, x.k};
    for (i64 d = 0; d < KN_RANK; d++)
        if (dims[d].i && kt_is_ragged(t, axes, dims[d]))
            kn_dot_live(m, out.v, d, live_along(t, axes, dims[d]));
    return out;
}

/* ---- values ---------------------------------------------------------------------------------- */

void kt_order_like(tile *x, const tile *like)
{
    bool same = x->n == like->n;
    for (i64 d = 0; same && d < x->n; d++)
        same = like->dims[d].i && find_dim(x, like->dims[d]) >= 0;
    if (same)
        memcpy(x->dims, like->dims, sizeof x->dims);
}

/* The value x of a term; when it is read from memory, with its dims in the order of `like`. */
static tile read_like(tiler *t, frame *f, u32 k, tile x, const tile *like, ir_atoms axes)
{
    u32 source = kt_source_of(t, f, k);
    if (!source || t->l->at[source].where != KN_MEMORY)
        return x;
    tile out = {.n = 0};
    bool moves = false;
    for (i64 d = 0; d < like->n; d++)
        if (like->dims[d].i && find_dim(&x, like->dims[d]) >= 0) {
            moves |= x.dims[out.n].i != like->dims[d].i;
            out.dims[out.n++] = like->dims[d];
        }
    if (!moves || out.n != x.n)
        return x;
    out.v = load(t, source, &out, axes);
    return out;
}

static tile pointwise(tiler *t, frame *f, u32 k)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = kt_node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    tile out = kt_shape_of(t, k, node->dims, axes), arg[3];
    for (i64 i = 0; i < node->arg_count; i++)
        arg[i] = kt_value(t, f, node->args[i].i);
    /* in the order of what was computed, since what is read can be read in any; else as it lies */
    for (i64 is_made = 0; is_made < 2; is_made++)
        for (i64 i = node->arg_count - 1; i >= 0; i--)
            if (arg[i].n == out.n && (kt_source_of(t, f, node->args[i].i) == 0) == is_made)
                kt_order_like(&out, &arg[i]);
    kn_value x[3];
    for (i64 i = 0; i < node->arg_count; i++)
        x[i] = kt_arrange(t, read_like(t, f, node->args[i].i, arg[i], &out, axes), &out, axes);
    if (node->op == IR_cast) {
        dtype to = (dtype)node->dtype;
        out.v = kn_cast(m, kt_wide(to), kn_cast(m, to, x[0]));
    } else {
        out.v = kn_ew(m, (ir_op)node->op, x, node->arg_count);
    }
    return out;
}

static tile reduced(tiler *t, frame *f, u32 k)
{
    const ir_node *node = kt_node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    tile x = kt_value(t, f, node->args[0].i);
    for (i64 i = 0; i < node->attr.axis.n; i++) {
        ir_atom d = node->attr.axis.at[i];
        i64 at = find_dim(&x, d);
        if (at < 0)
            continue;
        mask(t, &x, axes, d, (ir_reducer)node->attr.reducer);
        x.v = kn_reduce(&t->j.m, (ir_reducer)node->attr.reducer, x.v, at);
        drop_dim(&x, at);
    }
    return x;
}

/* Dims by falling stride, so that lanes side by side are so in memory. */
static void sort_by_stride(const kn_loc *at, tile *x)
{
    for (i64 d = 1; d < x->n && at->where == KN_MEMORY; d++)
        for (i64 k = d; k > 0 && kn_stride(at, x->dims[k - 1]) < kn_stride(at, x->dims[k]); k--) {
            ir_atom moved = x->dims[k];
            x->dims[k] = x->dims[k - 1];
            x->dims[k - 1] = moved;
        }
}

static tile iota_inside(tiler *t, const frame *f, u32 k)
{
    ir_atom d = kt_node_of(t, k)->attr.axis.at[0];
    tile out = kt_shape_of(t, k, kt_node_of(t, k)->dims, f->axes);
    i64 shape[KN_RANK], one[KN_RANK] = {1};
    kt_extents(t, &out, f->axes, shape);
    kn_affine at = ir_has(f->axes, d) ? t->at[d.i] : kn_const_affine(0);
    out.v = kn_iota(&t->j.m, DT_i64, at, out.n, shape, one);
    return out;
}

static tile computed(tiler *t, frame *f, u32 k)
{
    const ir_node *node = kt_node_of(t, k);
    u32 source = kt_source_of(t, f, k);
    if (source) {
        tile out = kt_shape_of(t, k, node->dims, node->axes);
        sort_by_stride(&t->l->at[source], &out);
        out.v = load(t, source, &out, node->axes);
        return out;
    }
    switch (node->op) {
    case IR_tile_matmul:
    case IR_matmul:
        return kt_multiply(t, f, k, NULL);
    case IR_const:
        return (tile){.v = dtype_is_float((dtype)node->dtype)
                               ? kn_const_f(&t->j.m, kt_wide((dtype)node->dtype), node->attr.f, 0, NULL)
                               : kn_const_i(&t->j.m, (dtype)node->dtype, node->attr.i, 0, NULL)};
    case IR_iota:
        return iota_inside(t, f, k);
    case IR_expand: /* repeated where it is used */
        return kt_value(t, f, node->args[0].i);
    case IR_get:
        if (kt_node_of(t, node->args[0].i)->op == IR_tuple)
            return kt_value(t, f, node->args[1].i);
        kt_settle(t, &k, 1);
        return t->result[node->args[1].i];
    case IR_run:
        return t->running[node->args[0].i];
    case IR_reduce:
        if (node->attr.par.n == 0)
            return reduced(t, f, k);
        kt_settle(t, &k, 1);
        return t->outside.known[k];
    default:
        if (ir_row((ir_op)node->op)->class_ == IR_EWISE)
            return pointwise(t, f, k);
        kt_refuse(t, k, "not a part of a kernel");
    }
}

tile kt_value(tiler *t, frame *f, u32 k)
{
    if (f->known[k].v.i)
        return f->known[k];
    tile x = computed(t, f, k);
    if (x.v.i == 0)
        kt_refuse(t, k, "needs what is not there");
    if (f->is_lambda)
        f->known[k] = x;
    else if (!f->known[k].v.i)
        kt_remember(t, k, x);
    return x;
}

/* Results of a lambda for these arguments; one that is not there is not used. */
void kt_apply(tiler *t, u32 lambda, const tile *args, ir_atoms axes, tile *results)
{
    ir_term l = {lambda};
    frame inside = {NEW_N(t->a, tile, lambda + 1), axes, true};
    for (i64 i = 0; i < ir_formal_count(t->p, l); i++)
        inside.known[kt_node_of(t, lambda)->args[i].i] = args[i];
    for (i64 i = 0; i < ir_result_count(t->p, l); i++)
        results[i] = kt_value(t, &inside, ir_result(t->p, l, i).i);
}

