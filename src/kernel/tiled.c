/* Tiled forms as kernels, by structure alone: each `comb` is one kernel that computes its operand
 * tile by tile and stores it, as is a value without dims that is combined from tiles. A value without axes is in memory already; its views are loads. A
 * reduction over an axis, and a bundle, is a loop whose accumulators are carried; an axis with one
 * tile needs no loop.
 *
 * Axes of the result are opened one after another: cut into parts, or, where the value below
 * reduces over the same axis too, as an inner loop that stores. Before an axis is opened, what can
 * be computed without it is computed (a value depends exactly on the axes that it has). Loops over
 * the same axes that become computable at one place, neither of which needs the other, are one
 * loop.
 *
 * A tile has at most three dims with more than one lane. Where the last tile of an axis is short,
 * dead lanes hold anything; loads give 0 there, and whatever combines lanes sees its identity.
 * Half types are widened when they are loaded and rounded when they are stored.
 *                                                                          (paper §4, §5) */
#include "kernel/lower.h"
#include "kernel/tiled.h"

/* A value of one tile. Dims are in the order of the value's; an atom that is none stands for a dim
 * of one lane, which products have. */
typedef struct tile {
    kn_value v; /* 0: none */
    i64 n;
    ir_atom dims[KN_RANK];
} tile;

/* The term's value where the place is inside a lambda or not. */
typedef struct frame {
    tile *known;     /* by term */
    ir_atoms axes;   /* of a lambda: those in force where it is applied */
    bool is_lambda;
} frame;

typedef struct known {
    u32 term;
    i64 depth;
} known;

typedef struct tiler {
    kn_lower *l;
    kn_job j;
    const ir_program *p;
    arena *a;
    const i64 *lanes;  /* by atom */
    kn_affine *at;     /* by atom: position of the first lane */
    bool *open;        /* by atom: the axis has a coordinate here */
    i64 depth;         /* loops around this place */
    frame outside;     /* values of terms, forgotten when the loop around them ends */
    VEC(known) trail;
    ir_atoms *needed;  /* by term: axes that must be open, see find_needed */
    tile *result;      /* by component: after its loop */
    tile *running;     /* by component: inside its loop */
    kn_operand *bound; /* by term in memory */
    bool *is_bound;
} tiler;

typedef VEC(u32) term_list;

static const ir_node *node_of(const tiler *t, u32 k)
{
    return &t->p->nodes.at[k];
}

static _Noreturn void refuse(const tiler *t, u32 k, const char *why)
{
    const ir_node *node = node_of(t, k);
    eqf_throw(t->l->ctx, EQF_E_UNSUPPORTED, t->p->file, intern_text(t->p->names, node->origin),
              "operator %s: %s", ir_row((ir_op)node->op)->name, why);
}

static dtype wide(dtype t)
{
    return t == DT_f16 || t == DT_bf16 ? DT_f32 : t;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static i64 tiles_of(const tiler *t, ir_atom d)
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

/* Is the last tile short? */
static bool is_ragged(const tiler *t, ir_atoms axes, ir_atom d)
{
    return ir_has(axes, d) && ir_extent(t->p, d) % t->lanes[d.i] != 0;
}

/* Dims of more than one lane, in the order of the atoms. */
static tile shape_of(const tiler *t, u32 k, ir_atoms dims, ir_atoms axes)
{
    tile x = {.n = 0};
    for (i64 i = 0; i < dims.n; i++) {
        if (lanes_in(t, axes, dims.at[i]) == 1)
            continue;
        if (x.n == KN_RANK)
            refuse(t, k, "a tile with more than three dims");
        x.dims[x.n++] = dims.at[i];
    }
    return x;
}

static i64 extent_of(const tiler *t, ir_atoms axes, ir_atom d)
{
    return d.i ? lanes_in(t, axes, d) : 1;
}

static void extents(const tiler *t, const tile *x, ir_atoms axes, i64 *shape)
{
    for (i64 d = 0; d < x->n; d++)
        shape[d] = extent_of(t, axes, x->dims[d]);
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
static kn_value arrange(tiler *t, tile x, const tile *like, ir_atoms axes)
{
    kn_maker *m = &t->j.m;
    dtype type = (dtype)kn_def(m->k, x.v)->dtype;
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
            x.v = kn_bcast(m, x.v, d, extent_of(t, axes, like->dims[d]));
    return x.v;
}

/* 1 in live lanes: those whose position along d exists. */
static kn_value live_lanes(tiler *t, const tile *x, ir_atoms axes, ir_atom d)
{
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK], stride[KN_RANK] = {0};
    extents(t, x, axes, shape);
    stride[find_dim(x, d)] = 1;
    kn_value position = kn_iota(m, t->at[d.i], x->n, shape, stride);
    kn_value end = kn_const_i(m, DT_i64, ir_extent(t->p, d), x->n, shape);
    return kn_ew(m, IR_lt, (kn_value[]){position, end}, 2);
}

/* x with the identity of r in dead lanes along d. */
static void mask(tiler *t, tile *x, ir_atoms axes, ir_atom d, ir_reducer r)
{
    if (!is_ragged(t, axes, d) || find_dim(x, d) < 0)
        return;
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK];
    extents(t, x, axes, shape);
    dtype type = (dtype)kn_def(m->k, x->v)->dtype;
    kn_value none = kn_state(m, r, type, x->n, shape);
    x->v = kn_ew(m, IR_where, (kn_value[]){live_lanes(t, x, axes, d), x->v, none}, 3);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool is_in_memory(const tiler *t, u32 k)
{
    return node_of(t, k)->axes.n == 0 && t->l->at[k].where != KN_ABSENT;
}

/* The value that a view, or a value without axes, reads; 0 when the term is computed. */
static u32 source_of(const tiler *t, const frame *f, u32 k)
{
    if (f->is_lambda)
        return 0;
    if (node_of(t, k)->op == IR_view && is_in_memory(t, node_of(t, k)->args[0].i))
        return node_of(t, k)->args[0].i;
    return is_in_memory(t, k) ? k : 0;
}

/* Where the tile of a value in memory lies, its dims as in `x`. */
static kn_place place_of(tiler *t, u32 source, const tile *x, ir_atoms axes)
{
    const kn_loc *loc = &t->l->at[source];
    if (loc->where == KN_MEMORY && !t->is_bound[source]) {
        t->bound[source] = kn_job_bind(&t->j, loc, KN_IN);
        t->is_bound[source] = true;
    }
    kn_place p = {.buffer = -1, .at = kn_const_affine(loc->offset), .rank = x->n};
    if (loc->where == KN_MEMORY) {
        p.buffer = t->bound[source].buffer;
        p.at = kn_const_affine(t->bound[source].base);
    }
    for (i64 i = 0; i < loc->dims.n; i++)
        if (ir_has(axes, loc->dims.at[i]))
            p.at = kn_affine_sum(t->a, p.at, t->at[loc->dims.at[i].i], loc->stride[i]);
    for (i64 d = 0; d < x->n; d++) {
        ir_atom atom = x->dims[d];
        p.shape[d] = extent_of(t, axes, atom);
        p.stride[d] = atom.i ? kn_stride(loc, atom) : 0;
        if (atom.i && is_ragged(t, axes, atom))
            p.live[d] = (kn_live){.start = t->at[atom.i], .end = ir_extent(t->p, atom)};
    }
    return p;
}

static kn_value load(tiler *t, u32 source, const tile *x, ir_atoms axes)
{
    const kn_loc *loc = &t->l->at[source];
    kn_maker *m = &t->j.m;
    kn_place p = place_of(t, source, x, axes);
    if (loc->where == KN_SERIES)
        return kn_iota(m, p.at, p.rank, p.shape, p.stride);
    if (loc->where == KN_NUMBER) {
        dtype w = wide((dtype)loc->dtype);
        return dtype_is_float(w) ? kn_const_f(m, w, loc->f, p.rank, p.shape)
                                 : kn_const_i(m, w, loc->i, p.rank, p.shape);
    }
    return kn_cast(m, wide((dtype)loc->dtype), kn_load(m, &p, 0, 0));
}

/* ---- what can be computed here --------------------------------------------------------------- */

/* Axes that must be open to compute a term: its own, and those of the bundle that a component is
 * taken from, which may have more than the component. */
static void find_needed(tiler *t, u32 root)
{
    ir_atom *at = NEW_N(t->a, ir_atom, t->p->atoms.n);
    for (u32 k = 1; k <= root; k++) {
        const ir_node *node = node_of(t, k);
        i64 n = 0;
        for (; n < node->axes.n; n++)
            at[n] = node->axes.at[n];
        for (i64 i = 0; node->op != IR_comb && i < node->arg_count; i++) {
            ir_atoms below = t->needed[node->args[i].i];
            for (i64 d = 0; d < below.n; d++)
                if (!ir_has((ir_atoms){at, n}, below.at[d]) && !ir_has(node->attr.par, below.at[d]))
                    at[n++] = below.at[d];
        }
        t->needed[k] = n == node->axes.n ? node->axes
                                         : (ir_atoms){arena_copy(t->a, at, n * (i64)sizeof *at), n};
    }
}

/* A value (or a bundle) all of whose axes are open and whose running results are there. */
static bool is_ready(const tiler *t, u32 k)
{
    const ir_node *node = node_of(t, k);
    ir_kind kind = ir_kind_of((ir_op)node->op);
    if (node->is_open || (kind != IR_A_VALUE && kind != IR_A_BUNDLE))
        return false;
    for (i64 i = 0; i < t->needed[k].n; i++)
        if (!t->open[t->needed[k].at[i].i])
            return false;
    for (i64 i = 0; i < node->runs.n; i++) {
        u32 comp = node_of(t, node->runs.at[i].i)->args[0].i;
        if (t->running[comp].v.i == 0)
            return false;
    }
    return true;
}

/* Does the term combine tiles? */
static bool is_loop(const tiler *t, u32 k)
{
    const ir_node *node = node_of(t, k);
    return node->op == IR_loop || (node->op == IR_reduce && node->attr.par.n > 0);
}

static bool is_done(const tiler *t, u32 k)
{
    const ir_node *node = node_of(t, k);
    if (node->op == IR_loop)
        return t->result[node->args[0].i].v.i != 0;
    return t->outside.known[k].v.i != 0;
}

static void remember(tiler *t, u32 k, tile x)
{
    t->outside.known[k] = x;
    vec_push(t->a, &t->trail, ((known){k, t->depth}));
}

/* Forgets what was computed inside the loop that ends. */
static void forget(tiler *t)
{
    while (t->trail.n > 0 && t->trail.at[t->trail.n - 1].depth > t->depth) {
        u32 k = t->trail.at[--t->trail.n].term;
        if (node_of(t, k)->op == IR_comp)
            t->result[k] = (tile){0};
        else
            t->outside.known[k] = (tile){0};
    }
}

static void remember_result(tiler *t, u32 comp, tile x)
{
    t->result[comp] = x;
    vec_push(t->a, &t->trail, ((known){comp, t->depth}));
}

/* Terms below the roots (with them), each once, ascending. */
static term_list below(const tiler *t, arena *a, const u32 *roots, i64 n)
{
    bool *seen = NEW_N(a, bool, t->p->nodes.n);
    u32 highest = 0;
    for (i64 i = 0; i < n; i++) {
        seen[roots[i]] = true;
        highest = MAX(highest, roots[i]);
    }
    for (u32 k = highest; k > 0; k--) {
        if (!seen[k] || is_in_memory(t, k))
            continue;
        const ir_node *node = node_of(t, k);
        for (i64 i = 0; i < node->arg_count; i++)
            seen[node->args[i].i] = true;
    }
    term_list out = {0};
    for (u32 k = 1; k <= highest; k++)
        if (seen[k])
            vec_push(a, &out, k);
    return out;
}

static bool needs(const tiler *t, arena *a, u32 k, u32 other)
{
    term_list all = below(t, a, &k, 1);
    for (i64 i = 0; i < all.n; i++)
        if (all.at[i] == other && k != other)
            return true;
    return false;
}

static bool same_axes(ir_atoms x, ir_atoms y)
{
    return x.n == y.n && (x.n == 0 || memcmp(x.at, y.at, (size_t)x.n * sizeof *x.at) == 0);
}

static void run_loops(tiler *t, const u32 *group, i64 n);

/* Runs every loop below the roots that can be run here: first those that need no other, and with
 * each the others over the same axes. */
static void settle(tiler *t, const u32 *roots, i64 n)
{
    for (;;) {
        arena *scratch = arena_child(t->a);
        term_list all = below(t, scratch, roots, n), wanted = {0}, free = {0};
        for (i64 i = 0; i < all.n; i++)
            if (is_loop(t, all.at[i]) && !is_done(t, all.at[i]) && is_ready(t, all.at[i]))
                vec_push(scratch, &wanted, all.at[i]);
        for (i64 i = 0; i < wanted.n; i++) {
            bool waits = false;
            for (i64 k = 0; k < i && !waits; k++)
                waits = needs(t, scratch, wanted.at[i], wanted.at[k]);
            if (!waits)
                vec_push(scratch, &free, wanted.at[i]);
        }
        i64 count = 0;
        u32 *group = NEW_N(t->a, u32, free.n + 1);
        for (i64 i = 0; i < free.n; i++)
            if (same_axes(node_of(t, free.at[i])->attr.par, node_of(t, free.at[0])->attr.par))
                group[count++] = free.at[i];
        arena_free(scratch);
        if (count == 0)
            return;
        run_loops(t, group, count);
    }
}

static tile value(tiler *t, frame *f, u32 k);

/* Computes below the roots (the roots too, with `themselves`), as high as possible, what can be
 * computed here. What is in memory stays there. */
static void hoist(tiler *t, const u32 *roots, i64 n, bool themselves)
{
    settle(t, roots, n);
    arena *scratch = arena_child(t->a);
    bool *seen = NEW_N(scratch, bool, t->p->nodes.n);
    bool *kept = NEW_N(scratch, bool, t->p->nodes.n);
    u32 highest = 0;
    for (i64 i = 0; i < n; i++) {
        seen[roots[i]] = true;
        kept[roots[i]] = !themselves;
        highest = MAX(highest, roots[i]);
    }
    for (u32 k = highest; k > 0; k--) {
        const ir_node *node = node_of(t, k);
        if (!seen[k] || source_of(t, &t->outside, k))
            continue;
        if (node->op != IR_loop && !kept[k] && is_ready(t, k)) {
            value(t, &t->outside, k);
            continue;
        }
        for (i64 i = 0; i < node->arg_count; i++)
            seen[node->args[i].i] = true;
    }
    arena_free(scratch);
}

/* ---- products -------------------------------------------------------------------------------- */

/* The dims of a product: rows only in one operand, columns only in the other, and what is summed.
 * None: one lane. */
typedef struct product {
    u32 left, right; /* operands */
    ir_atom m, n, k;
    kn_dot kind;
} product;

static void set_dim(const tiler *t, u32 term, ir_atom *dim, ir_atom d)
{
    if (dim->i)
        refuse(t, term, "a product of tiles with too many dims");
    *dim = d;
}

static i64 stride_in(const tiler *t, const frame *f, u32 operand, ir_atom d)
{
    u32 source = source_of(t, f, operand);
    if (!source || t->l->at[source].where != KN_MEMORY)
        return -1;
    return d.i ? kn_stride(&t->l->at[source], d) : 0;
}

/* Can a product read it where it lies? */
static bool may_refer(const tiler *t, const frame *f, u32 operand, ir_atoms axes)
{
    u32 source = source_of(t, f, operand);
    if (!source || t->l->at[source].where != KN_MEMORY)
        return false;
    ir_atoms dims = node_of(t, operand)->dims;
    for (i64 i = 0; i < dims.n; i++)
        if (is_ragged(t, axes, dims.at[i]))
            return false;
    return true;
}

/* How well vectors run along the right operand's columns; 0: not at all. */
static int rate(const tiler *t, const frame *f, const product *x, ir_atoms axes)
{
    i64 n = extent_of(t, axes, x->n), m = extent_of(t, axes, x->m);
    bool refers = may_refer(t, f, x->right, axes);
    if (refers && stride_in(t, f, x->right, x->n) == 1 && n > 1)
        return 5;
    bool left_runs = !may_refer(t, f, x->left, axes) || stride_in(t, f, x->left, x->k) == 1;
    if (refers && stride_in(t, f, x->right, x->k) == 1 && left_runs && m < 8)
        return 4;
    return n > 1 ? (refers ? 2 : 3) : 1;
}

static product product_of(tiler *t, const frame *f, u32 k, ir_atoms axes)
{
    const ir_node *node = node_of(t, k);
    const ir_node *a = node_of(t, node->args[0].i), *b = node_of(t, node->args[1].i);
    product x = {.left = node->args[0].i, .right = node->args[1].i};
    for (i64 i = 0; i < a->dims.n; i++) {
        ir_atom d = a->dims.at[i];
        if (lanes_in(t, axes, d) == 1)
            continue;
        if (ir_has(node->attr.axis, d))
            set_dim(t, k, &x.k, d);
        else if (ir_has(b->dims, d))
            refuse(t, k, "a product of tiles with rows in both");
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
    bool floats = dtype_is_float(wide((dtype)node->dtype));
    x.kind = !floats || r == 1 ? KN_DOT_PLAIN : r == 4 ? KN_DOT_ROWDOT : KN_DOT_FMA;
    return x;
}

static tile product_shape(const product *x)
{
    return (tile){.n = 2, .dims = {x->m, x->n}};
}

/* Rows and columns of the register tile: as many accumulators as fit beside a column of operands,
 * FMAs over loads. */
static void choose_block(const tiler *t, const product *x, ir_atoms axes, dtype type, i64 *block)
{
    i64 m = extent_of(t, axes, x->m), n = extent_of(t, axes, x->n);
    i64 lanes = t->l->o.vector_bytes / dtype_bytes(type);
    i64 registers = t->l->o.vector_bytes >= 64 ? 32 : 16;
    i64 width = x->kind == KN_DOT_ROWDOT ? 1 : MIN(lanes, n);
    f64 best = 0;
    block[0] = block[1] = 1;
    for (i64 nv = 1; nv <= 4 && nv * width <= MAX(n, width); nv++)
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
    if (by_place && may_refer(t, f, k, axes)) {
        kn_place p = place_of(t, source_of(t, f, k), &like, axes);
        return kn_ref(m, &p);
    }
    u32 source = source_of(t, f, k);
    if (source && t->l->at[source].where == KN_MEMORY) {
        kn_place p = place_of(t, source, &like, axes);
        return kn_load(m, &p, 0, 0);
    }
    tile x = value(t, f, k);
    if (summed.i)
        mask(t, &x, axes, summed, IR_SUM);
    return arrange(t, x, &like, axes);
}

/* acc + the product, or the product. */
static tile multiply(tiler *t, frame *f, u32 k, const tile *acc)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    product x = product_of(t, f, k, axes);
    tile out = product_shape(&x), left = {.n = 2, .dims = {x.m, x.k}},
         right = {.n = 2, .dims = {x.k, x.n}};
    dtype type = wide((dtype)node->dtype);
    i64 shape[KN_RANK];
    extents(t, &out, axes, shape);
    bool row_runs = x.kind != KN_DOT_ROWDOT || stride_in(t, f, x.left, x.k) == 1;
    kn_value l = operand(t, f, x.left, left, row_runs, axes, x.k);
    bool columns_run = x.kind != KN_DOT_FMA || stride_in(t, f, x.right, x.n) == 1;
    kn_value r = operand(t, f, x.right, right, columns_run, axes, x.k);
    kn_value start = acc ? arrange(t, *acc, &out, axes) : kn_state(m, IR_SUM, type, 2, shape);
    out.v = kn_dot_add(m, x.kind, start, l, r, kn_const_affine(0), 0);
    i64 block[2];
    choose_block(t, &x, axes, type, block);
    kn_dot_block(m, out.v, block[0], block[1]);
    return out;
}

/* ---- values ---------------------------------------------------------------------------------- */

static tile pointwise(tiler *t, frame *f, u32 k)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    tile out = shape_of(t, k, node->dims, axes);
    kn_value x[3];
    for (i64 i = 0; i < node->arg_count; i++) {
        tile arg = value(t, f, node->args[i].i);
        x[i] = arrange(t, arg, &out, axes);
    }
    if (node->op == IR_cast) {
        dtype to = (dtype)node->dtype;
        out.v = kn_cast(m, wide(to), kn_cast(m, to, x[0]));
    } else {
        out.v = kn_ew(m, (ir_op)node->op, x, node->arg_count);
    }
    return out;
}

static tile reduced(tiler *t, frame *f, u32 k)
{
    const ir_node *node = node_of(t, k);
    ir_atoms axes = axes_in(f, node);
    tile x = value(t, f, node->args[0].i);
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

static tile iota_inside(tiler *t, const frame *f, u32 k)
{
    ir_atom d = node_of(t, k)->attr.axis.at[0];
    tile out = shape_of(t, k, node_of(t, k)->dims, f->axes);
    i64 shape[KN_RANK], one[KN_RANK] = {1};
    extents(t, &out, f->axes, shape);
    kn_affine at = ir_has(f->axes, d) ? t->at[d.i] : kn_const_affine(0);
    out.v = kn_iota(&t->j.m, at, out.n, shape, one);
    return out;
}

static tile computed(tiler *t, frame *f, u32 k)
{
    const ir_node *node = node_of(t, k);
    u32 source = source_of(t, f, k);
    if (source) {
        tile out = shape_of(t, k, node->dims, node->axes);
        out.v = load(t, source, &out, node->axes);
        return out;
    }
    switch (node->op) {
    case IR_tile_matmul:
    case IR_matmul:
        return multiply(t, f, k, NULL);
    case IR_const:
        return (tile){.v = dtype_is_float((dtype)node->dtype)
                               ? kn_const_f(&t->j.m, wide((dtype)node->dtype), node->attr.f, 0, NULL)
                               : kn_const_i(&t->j.m, (dtype)node->dtype, node->attr.i, 0, NULL)};
    case IR_iota:
        return iota_inside(t, f, k);
    case IR_expand: /* repeated where it is used */
        return value(t, f, node->args[0].i);
    case IR_get:
        if (node_of(t, node->args[0].i)->op == IR_tuple)
            return value(t, f, node->args[1].i);
        settle(t, &k, 1);
        return t->result[node->args[1].i];
    case IR_run:
        return t->running[node->args[0].i];
    case IR_reduce:
        if (node->attr.par.n == 0)
            return reduced(t, f, k);
        settle(t, &k, 1);
        return t->outside.known[k];
    default:
        if (ir_row((ir_op)node->op)->class_ == IR_EWISE)
            return pointwise(t, f, k);
        refuse(t, k, "not a part of a kernel");
    }
}

static tile value(tiler *t, frame *f, u32 k)
{
    if (f->known[k].v.i)
        return f->known[k];
    tile x = computed(t, f, k);
    if (x.v.i == 0)
        refuse(t, k, "needs what is not there");
    if (f->is_lambda)
        f->known[k] = x;
    else if (!f->known[k].v.i)
        remember(t, k, x);
    return x;
}

/* Results of a lambda for these arguments; one that is not there is not used. */
static void apply(tiler *t, u32 lambda, const tile *args, ir_atoms axes, tile *results)
{
    ir_term l = {lambda};
    frame inside = {NEW_N(t->a, tile, lambda + 1), axes, true};
    for (i64 i = 0; i < ir_formal_count(t->p, l); i++)
        inside.known[node_of(t, lambda)->args[i].i] = args[i];
    for (i64 i = 0; i < ir_result_count(t->p, l); i++)
        results[i] = value(t, &inside, ir_result(t->p, l, i).i);
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* An accumulator: one reduction, one component, or the state of a reducer term. */
typedef struct machine {
    u32 term;       /* the reduction or (first) component */
    u32 body;       /* what it combines; 0: a reducer term does */
    u8 reducer;
    ir_atoms axes;  /* inside the loop */
    i64 first, n;   /* among what is carried */
    i64 kept;       /* of a reducer term: slots */
} machine;

typedef struct loops {
    ir_atoms par;
    VEC(machine) machines;
    VEC(tile) carried; /* shapes; values at the place */
    VEC(u32) bodies;
    VEC(u32) comps;
} loops;

static u32 reducer_of(const tiler *t, u32 comp)
{
    return node_of(t, comp)->attr.reducer == IR_NO_REDUCER ? node_of(t, comp)->args[0].i : 0;
}

static ir_atoms axes_of_leaves(tiler *t, const ir_node *comp)
{
    ir_atom *at = NEW_N(t->a, ir_atom, t->p->atoms.n);
    i64 n = 0;
    for (i64 i = 1; i < comp->arg_count; i++) {
        ir_atoms some = node_of(t, comp->args[i].i)->axes;
        for (i64 d = 0; d < some.n; d++)
            if (!ir_has((ir_atoms){at, n}, some.at[d]))
                at[n++] = some.at[d];
    }
    return (ir_atoms){at, n};
}

static bool same_state(const tiler *t, u32 x, u32 y)
{
    const ir_node *a = node_of(t, x), *b = node_of(t, y);
    return reducer_of(t, x) && reducer_of(t, y) && a->arg_count == b->arg_count &&
           memcmp(a->args, b->args, (size_t)a->arg_count * sizeof *a->args) == 0;
}

/* The shape of what `term` (combined by r) accumulates. */
static tile accumulator_shape(tiler *t, u32 body, ir_reducer r)
{
    const ir_node *node = node_of(t, body);
    if (node->op == IR_tile_matmul && r == IR_SUM) {
        product x = product_of(t, &t->outside, body, node->axes);
        return product_shape(&x);
    }
    return shape_of(t, body, node->dims, node->axes);
}

static void add_machine(tiler *t, loops *l, u32 term)
{
    const ir_node *node = node_of(t, term);
    for (i64 i = 0; i < l->machines.n; i++)
        if (l->machines.at[i].term == term || same_state(t, l->machines.at[i].term, term))
            return;
    machine x = {.term = term, .first = l->carried.n, .n = 1, .reducer = node->attr.reducer};
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK];
    if (node->op == IR_comp && reducer_of(t, term)) {
        const ir_node *r = node_of(t, reducer_of(t, term));
        x.axes = axes_of_leaves(t, node);
        x.n = ir_result_count(t->p, r->args[0]);
        tile *numbers = NEW_N(t->a, tile, x.n);
        apply(t, r->args[0].i, NULL, x.axes, numbers);
        for (i64 i = 0; i < x.n; i++) {
            u32 formal = node_of(t, r->args[1].i)->args[i].i;
            tile state = shape_of(t, term, node_of(t, formal)->dims, x.axes);
            state.v = arrange(t, numbers[i], &state, x.axes);
            vec_push(t->a, &l->carried, state);
        }
        for (i64 i = 1; i < node->arg_count; i++)
            vec_push(t->a, &l->bodies, node->args[i].i);
    } else {
        x.body = node->args[0].i;
        x.axes = node_of(t, x.body)->axes;
        tile state = accumulator_shape(t, x.body, (ir_reducer)x.reducer);
        extents(t, &state, x.axes, shape);
        state.v = kn_state(m, (ir_reducer)x.reducer, wide((dtype)node->dtype), state.n, shape);
        vec_push(t->a, &l->carried, state);
        vec_push(t->a, &l->bodies, x.body);
    }
    vec_push(t->a, &l->machines, x);
}

static machine *machine_of(const tiler *t, loops *l, u32 comp)
{
    for (i64 i = 0; i < l->machines.n; i++)
        if (l->machines.at[i].term == comp || same_state(t, l->machines.at[i].term, comp))
            return &l->machines.at[i];
    return NULL;
}

/* The result of a component whose state this is. */
static tile result_of(tiler *t, loops *l, u32 comp, const tile *state)
{
    machine *x = machine_of(t, l, comp);
    if (x->body)
        return state[x->first];
    const ir_node *node = node_of(t, comp), *r = node_of(t, node->args[0].i);
    u32 final = r->args[2].i;
    tile *args = NEW_N(t->a, tile, x->n + node->arg_count);
    tile *results = NEW_N(t->a, tile, ir_result_count(t->p, r->args[2]));
    for (i64 i = 0; i < x->n; i++)
        args[i] = state[x->first + i];
    for (i64 i = 1; i < node->arg_count; i++)
        if (is_ready(t, node->args[i].i) && !source_of(t, &t->outside, node->args[i].i))
            args[x->n + i - 1] = value(t, &t->outside, node->args[i].i);
    ir_term f = {final};
    frame inside = {NEW_N(t->a, tile, final + 1), x->axes, true};
    for (i64 i = 0; i < ir_formal_count(t->p, f); i++)
        inside.known[node_of(t, final)->args[i].i] = args[i];
    results[0] = value(t, &inside, ir_result(t->p, f, node->attr.ints.at[0]).i);
    return results[0];
}

/* How many positions of the loop's axes the tile has, as a number. */
static tile live_count(tiler *t, const loops *l, dtype type)
{
    kn_maker *m = &t->j.m;
    tile n = {.v = kn_const_f(m, type, 1, 0, NULL)};
    for (i64 i = 0; i < l->par.n; i++) {
        ir_atom d = l->par.at[i];
        i64 lanes = t->lanes[d.i], extent = ir_extent(t->p, d);
        kn_value count = kn_const_i(m, DT_i64, MIN(lanes, extent), 0, NULL);
        if (extent % lanes != 0) {
            kn_affine left = kn_affine_sum(t->a, kn_const_affine(extent), t->at[d.i], -1);
            kn_value rest = kn_iota(m, left, 0, NULL, NULL);
            count = kn_ew(m, IR_min, (kn_value[]){count, rest}, 2);
        }
        n.v = kn_ew(m, IR_mul, (kn_value[]){n.v, kn_cast(m, type, count)}, 2);
    }
    return n;
}

/* One accumulator takes the tile in: state becomes its new one. */
static void take(tiler *t, loops *l, const machine *x, const tile *old, tile *now)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = node_of(t, x->term);
    if (!x->body) {
        const ir_node *r = node_of(t, node->args[0].i);
        const ir_node *update = node_of(t, r->args[1].i);
        i64 lanes = r->attr.ints.at[0];
        tile *args = NEW_N(t->a, tile, x->n + lanes + node->arg_count);
        for (i64 i = 0; i < x->n; i++)
            args[i] = old[x->first + i];
        if (lanes)
            args[x->n] =
                live_count(t, l, (dtype)node_of(t, update->args[x->n].i)->dtype);
        for (i64 i = 1; i < node->arg_count; i++)
            args[x->n + lanes + i - 1] = value(t, &t->outside, node->args[i].i);
        tile *results = NEW_N(t->a, tile, x->n);
        apply(t, r->args[1].i, args, x->axes, results);
        for (i64 i = 0; i < x->n; i++) {
            tile *to = &now[x->first + i];
            to->v = arrange(t, results[i], to, x->axes);
        }
        return;
    }
    tile state = old[x->first];
    if (node->op == IR_comp && node->arg_count > 1) {
        i64 n = node->arg_count - 2;
        tile *args = NEW_N(t->a, tile, 1 + 2 * n), moved;
        args[0] = state;
        for (i64 i = 0; i < n; i++) {
            args[1 + i] = result_of(t, l, node->args[2 + i].i, old);
            args[1 + n + i] = result_of(t, l, node->args[2 + i].i, now);
        }
        apply(t, node->args[1].i, args, x->axes, &moved);
        state.v = arrange(t, moved, &state, x->axes);
    }
    ir_reducer r = (ir_reducer)x->reducer;
    tile *to = &now[x->first];
    if (node_of(t, x->body)->op == IR_tile_matmul && r == IR_SUM && !is_done(t, x->body)) {
        to->v = multiply(t, &t->outside, x->body, &state).v;
        return;
    }
    tile next = value(t, &t->outside, x->body);
    to->v = kn_combine(m, r, state.v, arrange(t, next, to, x->axes));
}

/* All accumulators at one tile, in order of dependence: a producer's term comes before its users'. */
static void step(tiler *t, loops *l, const tile *old, tile *now)
{
    for (i64 i = 0; i < l->comps.n; i++)
        t->running[l->comps.at[i]] = (tile){0};
    settle(t, l->bodies.at, l->bodies.n);
    for (i64 i = 0; i < l->machines.n; i++) {
        take(t, l, &l->machines.at[i], old, now);
        for (i64 k = 0; k < l->comps.n; k++) {
            u32 comp = l->comps.at[k];
            if (machine_of(t, l, comp) == &l->machines.at[i])
                t->running[comp] = result_of(t, l, comp, now);
        }
    }
}

static void sort_machines(loops *l)
{
    for (i64 i = 1; i < l->machines.n; i++)
        for (i64 k = i; k > 0 && l->machines.at[k - 1].term > l->machines.at[k].term; k--) {
            machine x = l->machines.at[k];
            l->machines.at[k] = l->machines.at[k - 1];
            l->machines.at[k - 1] = x;
        }
}

/* The loop over the axes from number `axis` on; state is carried through. */
static void walk(tiler *t, loops *l, i64 axis, tile *state)
{
    kn_maker *m = &t->j.m;
    i64 n = l->carried.n;
    if (axis == l->par.n) {
        tile *now = arena_copy(t->a, state, n * (i64)sizeof *state);
        step(t, l, state, now);
        for (i64 i = 0; i < n; i++)
            state[i].v = now[i].v;
        return;
    }
    ir_atom d = l->par.at[axis];
    if (t->open[d.i]) { /* one tile */
        walk(t, l, axis + 1, state);
        return;
    }
    kn_value *init = NEW_N(t->a, kn_value, n), *carried = NEW_N(t->a, kn_value, n);
    for (i64 i = 0; i < n; i++)
        init[i] = state[i].v;
    kn_var v;
    kn_loop(m, kn_const_affine(0), tiles_of(t, d), t->lanes[d.i], 0, init, n, &v, carried);
    t->depth++;
    t->open[d.i] = true;
    t->at[d.i] = kn_affine_add(t->a, kn_const_affine(0), v, 1);
    for (i64 i = 0; i < n; i++)
        state[i].v = carried[i];
    walk(t, l, axis + 1, state);
    for (i64 i = 0; i < n; i++)
        init[i] = state[i].v;
    t->depth--;
    forget(t);
    t->open[d.i] = false;
    kn_end(m, init, carried);
    for (i64 i = 0; i < n; i++)
        state[i].v = carried[i];
}

static void run_loops(tiler *t, const u32 *group, i64 n)
{
    loops l = {.par = node_of(t, group[0])->attr.par};
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = node_of(t, group[i]);
        if (node->op == IR_reduce) {
            add_machine(t, &l, group[i]);
            continue;
        }
        for (i64 k = 0; k < node->arg_count; k++) {
            bool is_new = true;
            for (i64 c = 0; c < l.comps.n; c++)
                is_new = is_new && l.comps.at[c] != node->args[k].i;
            if (is_new)
                vec_push(t->a, &l.comps, node->args[k].i);
            add_machine(t, &l, node->args[k].i);
        }
    }
    sort_machines(&l);
    hoist(t, l.bodies.at, l.bodies.n, false);
    walk(t, &l, 0, l.carried.at);
    for (i64 i = 0; i < l.comps.n; i++)
        t->running[l.comps.at[i]] = (tile){0};
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = node_of(t, group[i]);
        if (node->op == IR_reduce) {
            remember(t, group[i], l.carried.at[machine_of(t, &l, group[i])->first]);
            continue;
        }
        for (i64 k = 0; k < node->arg_count; k++)
            remember_result(t, node->args[k].i,
                            result_of(t, &l, node->args[k].i, l.carried.at));
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Is the axis combined below the root too? */
static bool is_combined(const tiler *t, arena *a, u32 root, ir_atom d)
{
    term_list all = below(t, a, &root, 1);
    for (i64 i = 0; i < all.n; i++)
        if (is_loop(t, all.at[i]) && ir_has(node_of(t, all.at[i])->attr.par, d))
            return true;
    return false;
}

/* Axes below the root, those of its own among them. */
static bool *axes_below(const tiler *t, u32 root)
{
    bool *found = NEW_N(t->a, bool, t->p->atoms.n);
    term_list all = below(t, t->a, &root, 1);
    for (i64 i = 0; i < all.n; i++) {
        const ir_node *node = node_of(t, all.at[i]);
        for (i64 d = 0; d < node->axes.n; d++)
            found[node->axes.at[d].i] = true;
    }
    return found;
}

static void store(tiler *t, u32 root, const kn_loc *out, const kn_operand *to)
{
    const ir_node *node = node_of(t, root);
    tile x = value(t, &t->outside, root), shape = shape_of(t, root, node->dims, node->axes);
    kn_value v = arrange(t, x, &shape, node->axes);
    kn_place p = {.buffer = to->buffer, .at = kn_const_affine(to->base), .rank = shape.n};
    for (i64 i = 0; i < node->dims.n; i++) {
        ir_atom d = node->dims.at[i];
        if (ir_has(node->axes, d))
            p.at = kn_affine_sum(t->a, p.at, t->at[d.i], kn_stride(out, d));
    }
    for (i64 d = 0; d < shape.n; d++) {
        p.shape[d] = extent_of(t, node->axes, shape.dims[d]);
        p.stride[d] = kn_stride(out, shape.dims[d]);
        if (is_ragged(t, node->axes, shape.dims[d]))
            p.live[d] = (kn_live){.start = t->at[shape.dims[d].i],
                                  .end = ir_extent(t->p, shape.dims[d])};
    }
    kn_store(&t->j.m, &p, kn_cast(&t->j.m, (dtype)out->dtype, v));
}

void kn_lower_tiles(kn_lower *l, u32 term, u32 root)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_atoms par = term == root ? (ir_atoms){0} : node->attr.par;
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    for (i64 i = 0; i < node->dims.n; i++)
        order[i] = node->dims.at[i];
    kn_loc out = kn_result(l, term, order, node->dims.n);
    i64 atoms = l->p->atoms.n, terms = l->p->nodes.n;
    tiler t = {.l = l, .j = kn_job_new(l, term), .p = l->p, .a = l->a};
    t.at = NEW_N(l->a, kn_affine, atoms);
    t.open = NEW_N(l->a, bool, atoms);
    t.outside.known = NEW_N(l->a, tile, terms);
    t.result = NEW_N(l->a, tile, terms);
    t.running = NEW_N(l->a, tile, terms);
    t.bound = NEW_N(l->a, kn_operand, terms);
    t.is_bound = NEW_N(l->a, bool, terms);
    t.needed = NEW_N(l->a, ir_atoms, terms);
    find_needed(&t, root);
    const bool *axes = axes_below(&t, root);
    t.lanes = kn_choose_lanes(l, root, &out);
    for (i64 d = 1; d < atoms; d++)
        t.open[d] = axes[d] && tiles_of(&t, (ir_atom){(u32)d}) == 1;
    kn_operand to = kn_job_bind(&t.j, &out, KN_OUT);

    /* axes of the result by falling stride; those combined below too are inner loops */
    kn_order_like(l, par, &out, order);
    i64 n = par.n, outer = 0;
    kn_walk *walks = NEW_N(l->a, kn_walk, n + 1);
    ir_atom *of = NEW_N(l->a, ir_atom, n + 1);
    for (i64 pass = 0; pass < 2; pass++)
        for (i64 i = 0; i < n; i++)
            if (is_combined(&t, l->a, root, order[i]) == (pass == 1)) {
                walks[outer] = (kn_walk){.extent = ir_extent(l->p, order[i]),
                                         .tile = t.lanes[order[i].i]};
                of[outer++] = order[i];
            }
    i64 inner = n;
    while (inner > 0 && is_combined(&t, l->a, root, of[inner - 1]))
        inner--;
    i64 work = ir_node_flops(l->p, (ir_term){root}) + ir_count_elements(l->p, node->dims);
    kn_walk_grid(&t.j.m, walks, inner, kn_part_count(l, MAX(work, 65536 * l->o.threads)));
    kn_walk_grid(&t.j.m, walks + inner, n - inner, 1);
    for (i64 i = 0; i < n; i++) {
        bool loops_here = walks[i].chunk > 1;
        if (loops_here)
            hoist(&t, &root, 1, true);
        kn_walk_open(&t.j.m, &walks[i]);
        t.depth += loops_here;
        t.at[of[i].i] = walks[i].index;
        t.open[of[i].i] = true;
    }
    store(&t, root, &out, &to);
    for (i64 i = n - 1; i >= 0; i--)
        kn_walk_close(&t.j.m, &walks[i]);
    term_list all = below(&t, l->a, &root, 1);
    for (i64 i = 0; i < all.n; i++)
        if (!is_in_memory(&t, all.at[i]))
            t.j.flops += ir_node_flops(l->p, (ir_term){all.at[i]});
    kn_job_launch(&t.j);
    l->at[term] = out;
}
