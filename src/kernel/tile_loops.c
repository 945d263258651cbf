/* Loops of a kernel of tiles: what can be computed at a place, and in which order. A reduction over
 * axes and a bundle of components are loops whose accumulators are carried; an axis with one tile
 * needs none. Loops over the same axes that become computable at one place, neither of which needs
 * the other, are one loop; of a bundle only the components whose axes are open are accumulated,
 * the others when theirs are. */
#include "kernel/tiled.h"

/* ---- what can be computed here --------------------------------------------------------------- */

/* Axes that must be open to compute a term: its own, and where a component is taken from a bundle,
 * those of what it is accumulated from. */
void kt_find_needed(tiler *t, u32 root)
{
    ir_atom *at = NEW_N(t->a, ir_atom, t->p->atoms.n);
    for (u32 k = 1; k <= root; k++) {
        const ir_node *node = kt_node_of(t, k);
        bool is_get = node->op == IR_get && kt_node_of(t, node->args[0].i)->op == IR_loop;
        ir_atoms bound = is_get ? kt_node_of(t, node->args[0].i)->attr.par : node->attr.par;
        i64 n = 0;
        for (; n < node->axes.n; n++)
            at[n] = node->axes.at[n];
        for (i64 i = is_get; node->op != IR_comb && i < node->arg_count; i++) {
            ir_atoms below = t->needed[node->args[i].i];
            for (i64 d = 0; d < below.n; d++)
                if (!ir_has((ir_atoms){at, n}, below.at[d]) && !ir_has(bound, below.at[d]))
                    at[n++] = below.at[d];
        }
        t->needed[k] = n == node->axes.n ? node->axes
                                         : (ir_atoms){arena_copy(t->a, at, n * (i64)sizeof *at), n};
    }
}

/* Components that the kernel takes results from, and those that these need. A bundle may have others,
 * which other kernels use. */
void kt_find_wanted(tiler *t, u32 root)
{
    bool *seen = NEW_N(t->a, bool, root + 1);
    seen[root] = true;
    for (u32 k = root; k > 0; k--) {
        const ir_node *node = kt_node_of(t, k);
        if (!seen[k] || (k != root && kt_is_in_memory(t, k)))
            continue;
        t->wanted[k] = true;
        for (i64 i = 0; node->op != IR_loop && i < node->arg_count; i++)
            seen[node->args[i].i] = true;
    }
}

static bool are_open(const tiler *t, ir_atoms axes, ir_atoms but)
{
    for (i64 i = 0; i < axes.n; i++)
        if (!t->open[axes.at[i].i] && !ir_has(but, axes.at[i]))
            return false;
    return true;
}

static bool are_running(const tiler *t, const ir_node *node)
{
    for (i64 i = 0; i < node->runs.n; i++)
        if (t->running[kt_node_of(t, node->runs.at[i].i)->args[0].i].v.i == 0)
            return false;
    return true;
}

/* Can the component be accumulated here, and has not been? Its bundle's others need not. */
static bool is_due(const tiler *t, const ir_node *loop, u32 comp)
{
    return t->wanted[comp] && t->result[comp].v.i == 0 &&
           are_open(t, t->needed[comp], loop->attr.par);
}

/* A value all of whose axes are open and whose running results are there; a bundle of which some
 * component is due. */
bool kt_is_ready(const tiler *t, u32 k)
{
    const ir_node *node = kt_node_of(t, k);
    if (node->is_open || !are_running(t, node))
        return false;
    bool any = false;
    for (i64 i = 0; node->op == IR_loop && i < node->arg_count; i++)
        any |= is_due(t, node, node->args[i].i);
    return node->op == IR_loop ? any
                               : ir_kind_of((ir_op)node->op) == IR_A_VALUE &&
                                     are_open(t, t->needed[k], (ir_atoms){0});
}

/* Does the term combine tiles? */
bool kt_is_loop(const tiler *t, u32 k)
{
    const ir_node *node = kt_node_of(t, k);
    return node->op == IR_loop || (node->op == IR_reduce && node->attr.par.n > 0);
}

static bool is_done(const tiler *t, u32 k)
{
    return kt_node_of(t, k)->op != IR_loop && t->outside.known[k].v.i != 0;
}

void kt_remember(tiler *t, u32 k, tile x)
{
    t->outside.known[k] = x;
    vec_push(t->a, &t->trail, ((known){k, t->depth}));
}

void kt_forget(tiler *t)
{
    while (t->trail.n > 0 && t->trail.at[t->trail.n - 1].depth > t->depth) {
        u32 k = t->trail.at[--t->trail.n].term;
        if (kt_node_of(t, k)->op == IR_comp)
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
term_list kt_below(const tiler *t, arena *a, const u32 *roots, i64 n)
{
    bool *seen = NEW_N(a, bool, t->p->nodes.n);
    u32 highest = 0;
    for (i64 i = 0; i < n; i++) {
        seen[roots[i]] = true;
        highest = MAX(highest, roots[i]);
    }
    for (u32 k = highest; k > 0; k--) {
        if (!seen[k] || kt_is_in_memory(t, k))
            continue;
        const ir_node *node = kt_node_of(t, k);
        for (i64 i = 0; i < node->arg_count; i++)
            seen[node->args[i].i] = true;
    }
    term_list out = {0};
    for (u32 k = 1; k <= highest; k++)
        if (seen[k])
            vec_push(a, &out, k);
    return out;
}

/* Which terms below the roots would be used where we are: not in a loop that binds an axis anew that
 * they depend on. What is in memory is left out. */
static bool *used_here(const tiler *t, arena *a, const u32 *roots, i64 n)
{
    i64 atoms = t->p->atoms.n;
    bool *used = NEW_N(a, bool, t->p->nodes.n), **bound = NEW_N(a, bool *, t->p->nodes.n);
    u32 highest = 0;
    for (i64 i = 0; i < n; i++) {
        bound[roots[i]] = NEW_N(a, bool, atoms);
        highest = MAX(highest, roots[i]);
    }
    for (u32 k = highest; k > 0; k--) {
        const ir_node *node = kt_node_of(t, k);
        if (!bound[k] || kt_is_in_memory(t, k))
            continue;
        used[k] = true;
        for (i64 i = 0; i < t->needed[k].n; i++)
            used[k] = used[k] && !bound[k][t->needed[k].at[i].i];
        bool is_get = node->op == IR_get && kt_node_of(t, node->args[0].i)->op == IR_loop;
        i64 count = is_get ? 1 : node->op == IR_run ? 0 : node->arg_count;
        for (i64 i = 0; i < count; i++) {
            bool **of = &bound[node->args[i].i], is_new = !*of;
            if (is_new)
                *of = NEW_N(a, bool, atoms);
            for (i64 d = 0; d < atoms; d++) {
                bool here = bound[k][d] || (kt_is_loop(t, k) && ir_has(node->attr.par, (ir_atom){(u32)d}));
                (*of)[d] = is_new ? here : (*of)[d] && here;
            }
        }
    }
    return used;
}

static bool needs(const tiler *t, arena *a, u32 k, u32 other)
{
    term_list all = kt_below(t, a, &k, 1);
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
void kt_settle(tiler *t, const u32 *roots, i64 n)
{
    for (;;) {
        arena *scratch = arena_child(t->a);
        term_list all = kt_below(t, scratch, roots, n), wanted = {0}, free = {0};
        const bool *used = used_here(t, scratch, roots, n);
        for (i64 i = 0; i < all.n; i++)
            if (used[all.at[i]] && kt_is_loop(t, all.at[i]) && !is_done(t, all.at[i]) &&
                kt_is_ready(t, all.at[i]))
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
            if (same_axes(kt_node_of(t, free.at[i])->attr.par, kt_node_of(t, free.at[0])->attr.par))
                group[count++] = free.at[i];
        arena_free(scratch);
        if (count == 0)
            return;
        run_loops(t, group, count);
    }
}

/* Computes below the roots (the roots too, with `themselves`), as high as possible, what can be
 * computed here. What is in memory stays there. */
void kt_hoist(tiler *t, const u32 *roots, i64 n, bool themselves)
{
    kt_settle(t, roots, n);
    arena *scratch = arena_child(t->a);
    bool *seen = NEW_N(scratch, bool, t->p->nodes.n);
    bool *kept = NEW_N(scratch, bool, t->p->nodes.n);
    const bool *used = used_here(t, scratch, roots, n);
    u32 highest = 0;
    for (i64 i = 0; i < n; i++) {
        seen[roots[i]] = true;
        kept[roots[i]] = !themselves;
        highest = MAX(highest, roots[i]);
    }
    for (u32 k = highest; k > 0; k--) {
        const ir_node *node = kt_node_of(t, k);
        if (!seen[k] || kt_source_of(t, &t->outside, k))
            continue;
        if (node->op != IR_loop && !kept[k] && used[k] && kt_is_ready(t, k)) {
            kt_value(t, &t->outside, k);
            continue;
        }
        for (i64 i = 0; i < node->arg_count; i++)
            seen[node->args[i].i] = true;
    }
    arena_free(scratch);
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* An accumulator: one reduction, one component, or the state of a reducer term. */
typedef struct machine {
    u32 term;       /* the reduction or (first) component */
    u32 body;       /* what it combines; 0: a reducer term does */
    u8 reducer;
    ir_atoms axes;  /* inside the loop */
    i64 first, n;   /* among what is carried; of a sum 2: it and what its roundings have lost */
} machine;

/* Rolling sums over more tiles keep what roundings lose: otherwise their error would grow with every tile, and
 * more than where results are known before. */
#define MOST_LOSSY 256

typedef struct loops {
    ir_atoms par;
    VEC(machine) machines;
    VEC(tile) carried; /* shapes; values at the place */
    VEC(u32) bodies;
    VEC(u32) comps;
    const kn_span *spans; /* only tiles that meet one need be visited; none: all */
    i64 span_count;
} loops;

static u32 reducer_of(const tiler *t, u32 comp)
{
    return kt_node_of(t, comp)->attr.reducer == IR_NO_REDUCER ? kt_node_of(t, comp)->args[0].i : 0;
}

static ir_atoms axes_of_leaves(tiler *t, const ir_node *comp)
{
    ir_atom *at = NEW_N(t->a, ir_atom, t->p->atoms.n);
    i64 n = 0;
    for (i64 i = 1; i < comp->arg_count; i++) {
        ir_atoms some = kt_node_of(t, comp->args[i].i)->axes;
        for (i64 d = 0; d < some.n; d++)
            if (!ir_has((ir_atoms){at, n}, some.at[d]))
                at[n++] = some.at[d];
    }
    return (ir_atoms){at, n};
}

static bool same_state(const tiler *t, u32 x, u32 y)
{
    const ir_node *a = kt_node_of(t, x), *b = kt_node_of(t, y);
    return reducer_of(t, x) && reducer_of(t, y) && a->arg_count == b->arg_count &&
           memcmp(a->args, b->args, (size_t)a->arg_count * sizeof *a->args) == 0;
}

/* The shape of what `term` (combined by r) accumulates. */
static tile accumulator_shape(tiler *t, u32 body, ir_reducer r)
{
    const ir_node *node = kt_node_of(t, body);
    if (node->op == IR_tile_matmul && r == IR_SUM) {
        product x = kt_product_of(t, &t->outside, body, node->axes);
        return kt_product_shape(&x);
    }
    return kt_shape_of(t, body, node->dims, node->axes);
}

static bool keeps_losses(const tiler *t, const loops *l, const ir_node *node)
{
    f64 tiles = 1;
    for (i64 i = 0; i < l->par.n; i++)
        tiles *= (f64)kt_tiles_of(t, l->par.at[i]);
    return node->op == IR_comp && node->arg_count > 2 && node->attr.reducer == IR_SUM &&
           kt_wide((dtype)node->dtype) == DT_f32 && tiles > MOST_LOSSY;
}

static void add_machine(tiler *t, loops *l, u32 term)
{
    const ir_node *node = kt_node_of(t, term);
    for (i64 i = 0; i < l->machines.n; i++)
        if (l->machines.at[i].term == term || same_state(t, l->machines.at[i].term, term))
            return;
    machine x = {.term = term, .first = l->carried.n, .n = 1, .reducer = node->attr.reducer};
    kn_maker *m = &t->j.m;
    i64 shape[KN_RANK];
    if (node->op == IR_comp && reducer_of(t, term)) {
        const ir_node *r = kt_node_of(t, reducer_of(t, term));
        x.axes = axes_of_leaves(t, node);
        x.n = ir_result_count(t->p, r->args[0]);
        tile *numbers = NEW_N(t->a, tile, x.n);
        kt_apply(t, r->args[0].i, NULL, x.axes, numbers);
        for (i64 i = 0; i < x.n; i++) {
            u32 formal = kt_node_of(t, r->args[1].i)->args[i].i;
            tile state = kt_shape_of(t, term, kt_node_of(t, formal)->dims, x.axes);
            state.v = kt_arrange(t, numbers[i], &state, x.axes);
            vec_push(t->a, &l->carried, state);
        }
        for (i64 i = 1; i < node->arg_count; i++)
            vec_push(t->a, &l->bodies, node->args[i].i);
    } else {
        x.body = node->args[0].i;
        x.axes = kt_node_of(t, x.body)->axes;
        tile state = accumulator_shape(t, x.body, (ir_reducer)x.reducer);
        kt_extents(t, &state, x.axes, shape);
        state.v = kn_state(m, (ir_reducer)x.reducer, kt_wide((dtype)node->dtype), state.n, shape);
        vec_push(t->a, &l->carried, state);
        if (keeps_losses(t, l, node)) {
            vec_push(t->a, &l->carried, state);
            x.n = 2;
        }
        vec_push(t->a, &l->bodies, x.body);
    }
    vec_push(t->a, &l->machines, x);
}

/* The component, and those whose running results it uses, done before or not. */
static void add_component(tiler *t, loops *l, u32 comp)
{
    const ir_node *node = kt_node_of(t, comp);
    for (i64 i = 0; i < l->comps.n; i++)
        if (l->comps.at[i] == comp)
            return;
    for (i64 i = 2; !reducer_of(t, comp) && i < node->arg_count; i++)
        add_component(t, l, node->args[i].i);
    vec_push(t->a, &l->comps, comp);
    add_machine(t, l, comp);
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
    const ir_node *node = kt_node_of(t, comp), *r = kt_node_of(t, node->args[0].i);
    u32 final = r->args[2].i;
    tile *args = NEW_N(t->a, tile, x->n + node->arg_count);
    tile *results = NEW_N(t->a, tile, ir_result_count(t->p, r->args[2]));
    for (i64 i = 0; i < x->n; i++)
        args[i] = state[x->first + i];
    for (i64 i = 1; i < node->arg_count; i++)
        if (kt_is_ready(t, node->args[i].i) && !kt_source_of(t, &t->outside, node->args[i].i))
            args[x->n + i - 1] = kt_value(t, &t->outside, node->args[i].i);
    ir_term f = {final};
    frame inside = {NEW_N(t->a, tile, final + 1), x->axes, true};
    for (i64 i = 0; i < ir_formal_count(t->p, f); i++)
        inside.known[kt_node_of(t, final)->args[i].i] = args[i];
    results[0] = kt_value(t, &inside, ir_result(t->p, f, node->attr.ints.at[0]).i);
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
        if (kn_ragged_split(t->l, d))
            kt_refuse(t, l->machines.at[0].term, "counts the lanes of parts of unequal size");
        kn_value count = kn_const_i(m, DT_i64, MIN(lanes, extent), 0, NULL);
        if (extent % lanes != 0) {
            kn_affine left = kn_affine_sum(t->a, kn_const_affine(extent), t->at[d.i], -1);
            kn_value rest = kn_iota(m, DT_i64, left, 0, NULL, NULL);
            count = kn_ew(m, IR_min, (kn_value[]){count, rest}, 2);
        }
        n.v = kn_ew(m, IR_mul, (kn_value[]){n.v, kn_cast(m, type, count)}, 2);
    }
    return n;
}

/* What was accumulated, when the results that it uses go from the old ones to those now. */
static tile transport(tiler *t, loops *l, const ir_node *comp, const machine *x, tile state, const tile *old,
                      const tile *now)
{
    i64 n = comp->arg_count - 2;
    tile *args = NEW_N(t->a, tile, 1 + 2 * n), moved;
    args[0] = state;
    for (i64 i = 0; i < n; i++) {
        args[1 + i] = result_of(t, l, comp->args[2 + i].i, old);
        args[1 + n + i] = result_of(t, l, comp->args[2 + i].i, now);
    }
    kt_apply(t, comp->args[1].i, args, x->axes, &moved);
    state.v = kt_arrange(t, moved, &state, x->axes);
    return state;
}

/* A sum and what it lost, which is brought in with the next tile (Kahan). Transports distribute over sums,
 * so that they move both. */
static void take_exactly(tiler *t, loops *l, const machine *x, const tile *old, tile *now)
{
    kn_maker *m = &t->j.m;
    const ir_node *comp = kt_node_of(t, x->term);
    tile sum = transport(t, l, comp, x, old[x->first], old, now), *to = &now[x->first];
    tile lost = transport(t, l, comp, x, old[x->first + 1], old, now);
    bool is_product = kt_node_of(t, x->body)->op == IR_tile_matmul && !is_done(t, x->body);
    tile next = is_product ? kt_multiply(t, &t->outside, x->body, NULL) : kt_value(t, &t->outside, x->body);
    kn_value y = kn_ew(m, IR_add, (kn_value[]){kt_arrange(t, next, to, x->axes), lost.v}, 2);
    to->v = kn_ew(m, IR_add, (kn_value[]){sum.v, y}, 2);
    kn_value gained = kn_ew(m, IR_sub, (kn_value[]){to->v, sum.v}, 2);
    kn_value rest = kn_ew(m, IR_sub, (kn_value[]){y, gained}, 2);
    kn_value is_number = kn_ew(m, IR_eq, (kn_value[]){rest, rest}, 2); /* of infinities it is none */
    i64 shape[KN_RANK];
    kt_extents(t, to, x->axes, shape);
    kn_value none = kn_state(m, IR_SUM, DT_f32, to->n, shape);
    to[1].v = kn_ew(m, IR_where, (kn_value[]){is_number, rest, none}, 3);
}

/* One accumulator takes the tile in: state becomes its new one. */
static void take(tiler *t, loops *l, const machine *x, const tile *old, tile *now)
{
    kn_maker *m = &t->j.m;
    const ir_node *node = kt_node_of(t, x->term);
    if (!x->body) {
        const ir_node *r = kt_node_of(t, node->args[0].i);
        const ir_node *update = kt_node_of(t, r->args[1].i);
        i64 lanes = r->attr.ints.at[0];
        tile *args = NEW_N(t->a, tile, x->n + lanes + node->arg_count);
        for (i64 i = 0; i < x->n; i++)
            args[i] = old[x->first + i];
        if (lanes)
            args[x->n] =
                live_count(t, l, (dtype)kt_node_of(t, update->args[x->n].i)->dtype);
        for (i64 i = 1; i < node->arg_count; i++)
            args[x->n + lanes + i - 1] = kt_value(t, &t->outside, node->args[i].i);
        tile *results = NEW_N(t->a, tile, x->n);
        kt_apply(t, r->args[1].i, args, x->axes, results);
        for (i64 i = 0; i < x->n; i++) {
            tile *to = &now[x->first + i];
            to->v = kt_arrange(t, results[i], to, x->axes);
        }
        return;
    }
    tile state = old[x->first];
    if (x->n == 2) {
        take_exactly(t, l, x, old, now);
        return;
    }
    if (node->op == IR_comp && node->arg_count > 1)
        state = transport(t, l, node, x, state, old, now);
    ir_reducer r = (ir_reducer)x->reducer;
    tile *to = &now[x->first];
    if (kt_node_of(t, x->body)->op == IR_tile_matmul && r == IR_SUM && !is_done(t, x->body)) {
        tile sum = kt_multiply(t, &t->outside, x->body, &state); /* of a short tile as it suits that */
        to->v = kt_arrange(t, sum, to, x->axes);
        return;
    }
    tile next = kt_value(t, &t->outside, x->body);
    to->v = kn_combine(m, r, state.v, kt_arrange(t, next, to, x->axes));
}

/* All accumulators at one tile, in order of dependence: a producer's term comes before its users'. */
static void step(tiler *t, loops *l, const tile *old, tile *now)
{
    for (i64 i = 0; i < l->comps.n; i++)
        t->running[l->comps.at[i]] = (tile){0};
    kt_settle(t, l->bodies.at, l->bodies.n);
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

/* A bound of a visit list over the tile that the outer atoms have here. False: one of them has none. */
static bool bound_here(const tiler *t, const ir_affine *bound, bool highest, kn_affine *out)
{
    *out = kn_const_affine(bound->constant);
    for (i64 i = 0; i < bound->atoms.n; i++) {
        ir_atom d = bound->atoms.at[i];
        i64 f = bound->factors[i];
        if (t->axes[d.i] && !t->open[d.i])
            return false;
        i64 last = (t->axes[d.i] ? t->lanes[d.i] : ir_extent(t->p, d)) - 1;
        if (t->axes[d.i])
            *out = kn_affine_sum(t->a, *out, t->at[d.i], f);
        out->base += (f > 0) == highest ? f * last : 0;
    }
    return true;
}

/* What the group's loops visit, when all visit the same. */
static void find_visited(tiler *t, const u32 *group, i64 n, loops *l)
{
    const ir_node *first = kt_node_of(t, group[0]);
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = kt_node_of(t, group[i]);
        if (node->op != IR_loop || !same_axes(node->attr.to, first->attr.to) ||
            node->attr.ints.n != first->attr.ints.n ||
            (first->attr.ints.n > 0 && memcmp(node->attr.ints.at, first->attr.ints.at,
                                              (size_t)first->attr.ints.n * sizeof(i64)) != 0))
            return;
    }
    ir_live_set visits = ir_visits(t->a, t->p, (ir_term){group[0]});
    kn_span *spans = NEW_N(t->a, kn_span, visits.n + 1);
    for (i64 i = 0; i < visits.n; i++)
        if (!bound_here(t, &visits.at[i].low, false, &spans[i].low) ||
            !bound_here(t, &visits.at[i].high, true, &spans[i].high))
            return;
    l->spans = spans;
    l->span_count = visits.n;
}

/* A bound in the middle of the outer atoms. */
static f64 middle_of(const tiler *t, const ir_affine *x)
{
    f64 at = (f64)x->constant;
    for (i64 i = 0; i < x->atoms.n; i++)
        at += (f64)x->factors[i] * (f64)(ir_extent(t->p, x->atoms.at[i]) - 1) / 2;
    return at;
}

/* Notes how much of its axes the loop runs over. Where that depends on outer axes all of it is read. */
static void note_visited(tiler *t, const loops *l, u32 loop)
{
    f64 run = 1, read = 1;
    if (l->span_count > 0) {
        ir_live_set visits = ir_visits(t->a, t->p, (ir_term){loop});
        f64 extent = (f64)ir_extent(t->p, l->par.at[0]), sum = 0;
        bool is_constant = true;
        for (i64 i = 0; i < visits.n; i++) {
            f64 low = MAX(middle_of(t, &visits.at[i].low), 0);
            f64 high = MIN(middle_of(t, &visits.at[i].high), extent);
            sum += MAX(high - low, 0);
            is_constant = is_constant && visits.at[i].low.atoms.n + visits.at[i].high.atoms.n == 0;
        }
        run = MIN(sum / extent, 1);
        read = is_constant ? run : 1;
    }
    for (i64 i = 0; i < l->par.n; i++) {
        u32 d = l->par.at[i].i;
        t->run[d] = MAX(t->run[d], run);
        t->read[d] = MAX(t->read[d], read);
    }
}

static void walk(tiler *t, loops *l, i64 axis, tile *state);

/* One tile of an axis, or what a loop over it does for each. */
static void walk_inside(tiler *t, loops *l, i64 axis, tile *state, kn_affine at, bool is_whole)
{
    ir_atom d = l->par.at[axis];
    t->depth++;
    t->open[d.i] = true;
    t->whole[d.i] = is_whole;
    t->at[d.i] = at;
    walk(t, l, axis + 1, state);
    t->depth--;
    kt_forget(t);
    t->open[d.i] = false;
}

/* A loop over `count` tiles of an axis, whose variable counts from `origin`, to `end` (0: to the last);
 * state is carried through. */
static void loop_over(tiler *t, loops *l, i64 axis, tile *state, kn_affine origin, i64 count, i64 end,
                      bool is_whole)
{
    kn_maker *m = &t->j.m;
    i64 n = l->carried.n, lanes = t->lanes[l->par.at[axis].i];
    kn_value *init = NEW_N(t->a, kn_value, n), *carried = NEW_N(t->a, kn_value, n);
    for (i64 i = 0; i < n; i++)
        init[i] = state[i].v;
    kn_var v;
    kn_loop(m, origin, count, lanes, end, init, n, &v, carried);
    if (is_whole) {
        kn_span *spans = NEW_N(t->a, kn_span, l->span_count + 1);
        for (i64 i = 0; i < l->span_count; i++)
            spans[i] = (kn_span){kn_affine_sum(t->a, l->spans[i].low, origin, 1),
                                 kn_affine_sum(t->a, l->spans[i].high, origin, 1)};
        kn_loop_meets(m, spans, l->span_count);
    } else { /* the one tile with `end` inside */
        kn_span there = {kn_const_affine(end), kn_const_affine(end)};
        kn_loop_meets(m, &there, 1);
    }
    for (i64 i = 0; i < n; i++)
        state[i].v = carried[i];
    kn_affine at = kn_affine_add(t->a, kn_const_affine(0), v, 1);
    walk_inside(t, l, axis, state, kn_affine_sum(t->a, at, origin, -1), is_whole);
    for (i64 i = 0; i < n; i++)
        init[i] = state[i].v;
    kn_end(m, init, carried);
    for (i64 i = 0; i < n; i++)
        state[i].v = carried[i];
}

/* The loops over the axes from number `axis` on. A short last tile comes after the loop, so that nothing
 * in the loop asks which lanes exist; in parts of unequal size each part has such a place for it, and
 * the last one uses it. */
static void walk(tiler *t, loops *l, i64 axis, tile *state)
{
    i64 n = l->carried.n;
    if (axis == l->par.n) {
        tile *now = arena_copy(t->a, state, n * (i64)sizeof *state);
        step(t, l, state, now);
        for (i64 i = 0; i < n; i++)
            state[i].v = now[i].v;
        return;
    }
    ir_atom d = l->par.at[axis];
    if (kt_tiles_of(t, d) == 1) {
        walk(t, l, axis + 1, state);
        return;
    }
    const ir_split *s = kn_ragged_split(t->l, d);
    i64 lanes = t->lanes[d.i], full = ir_extent(t->p, d) / lanes;
    bool is_inner = s && s->inner.i == d.i && t->axes[s->outer.i];
    if (is_inner && !t->open[s->outer.i] && ir_has(l->par, s->outer))
        kt_refuse(t, l->machines.at[0].term, "parts of unequal size, positions before parts");
    if (is_inner && t->open[s->outer.i]) {
        kn_affine part = kn_affine_sum(t->a, kn_const_affine(0), t->at[s->outer.i],
                                       ir_extent(t->p, d));
        i64 end = ir_extent(t->p, s->whole);
        loop_over(t, l, axis, state, part, full, end - lanes + 1, true);
        if (end % lanes != 0)
            loop_over(t, l, axis, state, part, full, end, false);
        return;
    }
    loop_over(t, l, axis, state, kn_const_affine(0), full, 0, true);
    if (full < kt_tiles_of(t, d))
        walk_inside(t, l, axis, state, kn_const_affine(full * lanes), false);
}

/* What was known at a coordinate of an axis that a loop inside binds anew. */
typedef struct hidden {
    u32 term;
    tile known, result, running;
} hidden;
typedef struct outer_axes {
    VEC(hidden) values;
    const bool *were_open, *were_whole; /* by axis of the loop */
    kn_affine *at;
} outer_axes;

static outer_axes hide_axes(tiler *t, ir_atoms par)
{
    outer_axes o = {0};
    bool *open = NEW_N(t->a, bool, par.n), *whole = NEW_N(t->a, bool, par.n), any = false;
    o.at = NEW_N(t->a, kn_affine, par.n);
    o.were_open = open;
    o.were_whole = whole;
    for (i64 i = 0; i < par.n; i++) {
        ir_atom d = par.at[i];
        open[i] = t->open[d.i] && kt_tiles_of(t, d) > 1;
        o.at[i] = t->at[d.i];
        whole[i] = t->whole[d.i];
        t->whole[d.i] = kt_tiles_of(t, d) > 1; /* what is carried has the shape that whole tiles want */
        any |= open[i];
        if (open[i])
            t->open[d.i] = false;
    }
    for (u32 k = 1; any && k < (u32)t->p->nodes.n; k++) {
        bool depends = false;
        for (i64 i = 0; i < par.n; i++)
            depends |= open[i] && ir_has(t->needed[k], par.at[i]);
        if (!depends || !(t->outside.known[k].v.i | t->result[k].v.i | t->running[k].v.i))
            continue;
        vec_push(t->a, &o.values,
                 ((hidden){k, t->outside.known[k], t->result[k], t->running[k]}));
        t->outside.known[k] = t->result[k] = t->running[k] = (tile){0};
    }
    return o;
}

static void show_axes(tiler *t, ir_atoms par, const outer_axes *o)
{
    for (i64 i = 0; i < par.n; i++) {
        t->whole[par.at[i].i] = o->were_whole[i];
        if (!o->were_open[i])
            continue;
        t->open[par.at[i].i] = true;
        t->at[par.at[i].i] = o->at[i];
    }
    for (i64 i = 0; i < o->values.n; i++) {
        const hidden *h = &o->values.at[i];
        t->outside.known[h->term] = h->known;
        t->result[h->term] = h->result;
        t->running[h->term] = h->running;
    }
}

static void run_loops(tiler *t, const u32 *group, i64 n)
{
    loops l = {.par = kt_node_of(t, group[0])->attr.par};
    outer_axes outside = hide_axes(t, l.par);
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = kt_node_of(t, group[i]);
        if (node->op == IR_reduce) {
            add_machine(t, &l, group[i]);
            continue;
        }
        for (i64 k = 0; k < node->arg_count; k++)
            if (is_due(t, node, node->args[k].i))
                add_component(t, &l, node->args[k].i);
    }
    sort_machines(&l);
    find_visited(t, group, n, &l);
    note_visited(t, &l, group[0]);
    kt_hoist(t, l.bodies.at, l.bodies.n, false);
    walk(t, &l, 0, l.carried.at);
    show_axes(t, l.par, &outside);
    for (i64 i = 0; i < l.comps.n; i++)
        t->running[l.comps.at[i]] = (tile){0};
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = kt_node_of(t, group[i]);
        if (node->op == IR_reduce)
            kt_remember(t, group[i], l.carried.at[machine_of(t, &l, group[i])->first]);
    }
    for (i64 i = 0; i < l.comps.n; i++)
        if (t->result[l.comps.at[i]].v.i == 0)
            remember_result(t, l.comps.at[i], result_of(t, &l, l.comps.at[i], l.carried.at));
}

