/* Tiled forms as kernels, by structure alone: each `comb` is one kernel that computes its operand
 * tile by tile and stores it, as is a value without dims that is combined from tiles. A value
 * without axes is in memory already; its views are loads.
 *
 * Axes of the result are opened one after another: cut into parts, or, where the value below
 * reduces over the same axis too, as an inner loop that stores. Before an axis is opened, what can
 * be computed without it is computed: a value depends exactly on the axes that it has.
 *                                                                          (paper §4, §5) */
#include "kernel/tiled.h"

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Is the axis combined below the root too? */
static bool is_combined(const tiler *t, arena *a, u32 root, ir_atom d)
{
    term_list all = kt_below(t, a, &root, 1);
    for (i64 i = 0; i < all.n; i++)
        if (kt_is_loop(t, all.at[i]) && ir_has(kt_node_of(t, all.at[i])->attr.par, d))
            return true;
    return false;
}

/* Axes below the root, those of its own among them. */
static bool *axes_below(const tiler *t, u32 root)
{
    bool *found = NEW_N(t->a, bool, t->p->atoms.n);
    term_list all = kt_below(t, t->a, &root, 1);
    for (i64 i = 0; i < all.n; i++) {
        const ir_node *node = kt_node_of(t, all.at[i]);
        for (i64 d = 0; d < node->axes.n; d++)
            found[node->axes.at[d].i] = true;
    }
    return found;
}

static void store(tiler *t, u32 root, const kn_loc *out, const kn_operand *to)
{
    const ir_node *node = kt_node_of(t, root);
    kt_settle(t, &root, 1); /* all of it at once: loops over the same axes are one */
    tile x = kt_value(t, &t->outside, root), shape = kt_shape_of(t, root, node->dims, node->axes);
    kt_order_like(&shape, &x);
    kn_value v = kt_arrange(t, x, &shape, node->axes);
    kn_place p = kt_place(t, out, to, &shape, node->axes);
    kn_store(&t->j.m, &p, kn_cast(&t->j.m, (dtype)out->dtype, v));
}

static i64 common_dims(ir_atoms x, ir_atoms y)
{
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++)
        n += ir_has(y, x.at[i]);
    return n;
}

/* Dims of a result whose layout is ours: as in what is read that has most of them; but last, side by
 * side, the columns of the product that it is made of, so that what follows the product runs along
 * its vectors. Columns are of the operand that is constant, since that one is packed. */
static void order_result(kn_lower *l, u32 root, ir_atoms dims, ir_atom *order)
{
    bool *seen = NEW_N(l->a, bool, root + 1);
    seen[root] = true;
    ir_atom columns = {0};
    const kn_loc *like = NULL;
    for (u32 k = root; k > 0 && !columns.i; k--) {
        const ir_node *node = &l->p->nodes.at[k];
        const kn_loc *at = &l->at[k];
        if (!seen[k])
            continue;
        if (at->where != KN_ABSENT) {
            if (at->where == KN_MEMORY &&
                (!like || common_dims(dims, at->dims) > common_dims(dims, like->dims)))
                like = at;
            continue;
        }
        for (i64 i = 0; i < node->arg_count; i++)
            seen[node->args[i].i] = true;
        for (i64 o = 0; o < 2 && node->op == IR_tile_matmul; o++) {
            const ir_node *x = ir_get(l->p, node->args[o]), *y = ir_get(l->p, node->args[1 - o]);
            if (x->op != IR_view || !l->constant[x->args[0].i])
                continue;
            for (i64 i = 0; i < x->dims.n; i++) {
                ir_atom d = x->dims.at[i];
                bool is_free = ir_has(dims, d) && !ir_has(y->dims, d);
                if (is_free && ir_extent(l->p, d) > ir_extent(l->p, columns))
                    columns = d;
            }
        }
    }
    for (i64 i = 0; i < dims.n; i++)
        order[i] = dims.at[i];
    if (like)
        kn_order_like(l, dims, like, order);
    i64 n = 0;
    for (i64 i = 0; i < dims.n; i++)
        if (order[i].i != columns.i)
            order[n++] = order[i];
    if (columns.i)
        order[n] = columns;
}

/* What the kernel computes, for people: products, reductions and pointwise operators, each once, those
 * first that come first. */
static const char *name_of(tiler *t, u32 root)
{
    term_list all = kt_below(t, t->a, &root, 1);
    str s = str_new(t->a);
    VEC(const char *) names = {0};
    for (i64 i = 0; i < all.n; i++) {
        const ir_node *node = kt_node_of(t, all.at[i]);
        const char *name = ir_row((ir_op)node->op)->name;
        bool reduces = (node->op == IR_reduce && node->attr.par.n == 0) || node->op == IR_comp;
        if (node->is_open || kt_is_in_memory(t, all.at[i]))
            continue;
        if (node->op == IR_tile_matmul)
            name = "matmul";
        else if (reduces && node->attr.reducer != IR_NO_REDUCER)
            name = node->attr.reducer == IR_SUM ? "sum" : ir_reducer_text(node->attr.reducer);
        else if (ir_row((ir_op)node->op)->class_ != IR_EWISE || node->op == IR_cast)
            continue;
        bool is_named = node->op == IR_comp && kt_node_of(t, node->args[0].i)->op == IR_tile_matmul;
        for (i64 k = 0; k < names.n && !is_named; k++)
            is_named = strcmp(names.at[k], name) == 0;
        if (is_named)
            continue;
        vec_push(t->a, &names, name);
        str_printf(&s, "%s%s", s.n > 0 ? " " : "", name);
    }
    return s.n > 0 ? str_text(&s) : "tiles";
}

/* ---- axes of the result ---------------------------------------------------------------------- */

/* Axes whose short last tile is a place of its own: more, and there is more code than that is worth. */
enum { PEELED = 2 };

typedef struct nest {
    tiler *t;
    u32 root;
    const kn_loc *out;
    const kn_operand *to;
    kn_walk *walks; /* outermost first */
    const ir_atom *of;
    const bool *combined; /* below the root too */
    i64 n, peeled;
} nest;

static void open_axis(nest *x, i64 i);

/* Tiles of axis i that begin at `at`. */
static void open_inside(nest *x, i64 i, kn_affine at, bool is_whole)
{
    tiler *t = x->t;
    ir_atom d = x->of[i];
    t->depth++;
    t->at[d.i] = at;
    t->open[d.i] = true;
    t->whole[d.i] = is_whole;
    open_axis(x, i + 1);
    t->open[d.i] = t->whole[d.i] = false;
    t->depth--;
    kt_forget(t);
}

/* The whole tiles of axis i, and then the short one; where parts run side by side, the last one's. */
static void open_peeled(nest *x, i64 i)
{
    tiler *t = x->t;
    kn_maker *m = &t->j.m;
    const kn_walk *w = &x->walks[i];
    i64 whole = w->extent / w->tile * w->tile;
    kn_affine from = kn_affine_add(t->a, kn_const_affine(0), w->part, w->chunk * w->tile);
    kn_var v;
    kn_loop(m, from, w->grid > 1 ? w->chunk : w->chunk - 1, w->tile, w->grid > 1 ? whole : 0, NULL, 0, &v,
            NULL);
    open_inside(x, i, kn_affine_add(t->a, kn_const_affine(0), v, 1), true);
    kn_end(m, NULL, NULL);
    kn_affine at = kn_const_affine(whole);
    if (w->grid > 1) { /* begins there in the last part, and past the end in others */
        at.base += (w->grid - 1) * w->tile;
        kn_loop(m, kn_affine_add(t->a, at, w->part, -w->tile), 1, w->tile, w->extent, NULL, 0, &v, NULL);
        at = kn_affine_add(t->a, kn_const_affine(0), v, 1);
    }
    open_inside(x, i, at, false);
    if (w->grid > 1)
        kn_end(m, NULL, NULL);
}

/* The axes of the result from number i on, and what is stored inside. Before a loop, what can be
 * computed outside is. */
static void open_axis(nest *x, i64 i)
{
    tiler *t = x->t;
    if (i == x->n) {
        store(t, x->root, x->out, x->to);
        return;
    }
    kn_walk *w = &x->walks[i];
    bool is_short = w->extent > w->tile && w->extent % w->tile != 0 && !x->combined[i] &&
                    !kn_ragged_split(t->l, x->of[i]);
    if (w->chunk > 1 || is_short)
        kt_hoist(t, &x->root, 1, true);
    if (is_short && x->peeled < PEELED) {
        x->peeled++;
        open_peeled(x, i);
        x->peeled--;
        return;
    }
    kn_walk_open(&t->j.m, w);
    open_inside(x, i, w->index, false);
    kn_walk_close(&t->j.m, w);
}

/* What the kernel does and reads, without what its loops leave out. `par`: the axes of its result. */
static void count_work(tiler *t, u32 root, ir_atoms par)
{
    term_list all = kt_below(t, t->a, &root, 1);
    for (i64 i = 0; i < all.n; i++) {
        u32 k = all.at[i];
        f64 share = 1, bytes = (f64)dtype_bytes((dtype)t->l->at[k].dtype);
        if (!kt_is_in_memory(t, k)) {
            ir_atoms axes = kt_node_of(t, k)->axes;
            for (i64 d = 0; d < axes.n; d++)
                share *= ir_has(par, axes.at[d]) || t->run[axes.at[d].i] == 0 ? 1 : t->run[axes.at[d].i];
            t->j.flops += (i64)(share * (f64)ir_node_flops(t->p, (ir_term){k}));
            continue;
        }
        ir_atoms dims = kt_node_of(t, k)->dims;
        for (i64 d = 0; d < dims.n && t->is_bound[k]; d++) {
            share *= ir_has(par, dims.at[d]) || t->read[dims.at[d].i] == 0 ? 1 : t->read[dims.at[d].i];
            bytes *= (f64)ir_extent(t->p, dims.at[d]);
        }
        t->j.bytes -= t->is_bound[k] ? (i64)((1 - share) * bytes) : 0;
    }
}

void kn_lower_tiles(kn_lower *l, u32 term, u32 root)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_atoms par = term == root ? (ir_atoms){0} : node->attr.par;
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    order_result(l, root, node->dims, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    i64 atoms = l->p->atoms.n, terms = l->p->nodes.n;
    tiler t = {.l = l, .j = kn_job_new(l, term), .p = l->p, .a = l->a};
    t.at = NEW_N(l->a, kn_affine, atoms);
    t.open = NEW_N(l->a, bool, atoms);
    t.whole = NEW_N(l->a, bool, atoms);
    t.outside.known = NEW_N(l->a, tile, terms);
    t.result = NEW_N(l->a, tile, terms);
    t.running = NEW_N(l->a, tile, terms);
    t.bound = NEW_N(l->a, kn_operand, terms);
    t.is_bound = NEW_N(l->a, bool, terms);
    t.run = NEW_N(l->a, f64, atoms);
    t.read = NEW_N(l->a, f64, atoms);
    t.needed = NEW_N(l->a, ir_atoms, terms);
    t.wanted = NEW_N(l->a, bool, terms);
    kt_find_needed(&t, root);
    kt_find_wanted(&t, root);
    t.axes = axes_below(&t, root);
    t.lanes = kn_choose_lanes(l, root, &out);
    kt_check_splits(&t, root);
    for (i64 d = 1; d < atoms; d++)
        t.open[d] = t.axes[d] && kt_tiles_of(&t, (ir_atom){(u32)d}) == 1;
    kn_operand to = kn_job_bind(&t.j, &out, KN_OUT);

    /* axes of the result by falling stride; those combined below too are inner loops */
    kn_order_like(l, par, &out, order);
    i64 n = par.n, outer = 0;
    kn_walk *walks = NEW_N(l->a, kn_walk, n + 1);
    ir_atom *of = NEW_N(l->a, ir_atom, n + 1);
    bool *combined = NEW_N(l->a, bool, n + 1), *combined_of = NEW_N(l->a, bool, n + 1);
    for (i64 i = 0; i < n; i++)
        combined[i] = is_combined(&t, l->a, root, order[i]);
    i64 inner = n;
    for (i64 pass = 0; pass < 2; pass++)
        for (i64 i = 0; i < n; i++)
            if (combined[i] == (pass == 1)) {
                walks[outer] = (kn_walk){.extent = ir_extent(l->p, order[i]),
                                         .tile = t.lanes[order[i].i]};
                combined_of[outer] = combined[i];
                of[outer++] = order[i];
                inner -= pass;
            }
    i64 work = ir_node_flops(l->p, (ir_term){root}) + ir_count_elements(l->p, node->dims);
    kn_walk_grid(&t.j.m, walks, inner, kn_part_count(l, MAX(work, 65536 * l->o.threads)));
    kn_walk_grid(&t.j.m, walks + inner, n - inner, 1);
    nest x = {&t, root, &out, &to, walks, of, combined_of, n, 0};
    open_axis(&x, 0);
    count_work(&t, root, par);
    t.j.m.k->origin = name_of(&t, root);
    kn_job_launch(&t.j);
    l->at[term] = out;
}

