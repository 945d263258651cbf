/* Loops: accumulators that go over the tiles of an axis together, and lambdas.
 *
 * All coordinates outside the loop advance in step: at each tile first what depends on running
 * results, in order of terms, then each accumulator of which nothing later depends has its new
 * state. An accumulator is one component with a built-in reducer, or all components of one reducer
 * term over the same leaves. States live in an arena each, old and new, so that a transport can see
 * both.
 *
 * With options.association the tiles are cut into groups, each is run from the identity, and the
 * states are merged as a random tree with sides exchanged at random. */
#include <stdlib.h>

#include "ir/eval.h"
#include "ir/type.h"

typedef struct machine {
    u32 comp;        /* the first component */
    ir_atoms axes;   /* outside the loop */
    ir_atoms inside; /* with those of the loop */
    i64 coordinates, slots;
    const ir_node *reducer; /* NULL: built-in */
} machine;

typedef struct loop_run {
    eval *e;
    const ir_node *node;
    machine *machines;
    i64 machine_count;
    i64 *machine_of; /* by component of the loop */
    u32 *order;      /* terms that depend on running results, and components */
    i64 order_count;
    ir_live_set visit;
    bool can_merge;
} loop_run;

typedef struct loop_state {
    const loop_run *l;
    arena *a;
    value **slots; /* by machine: coordinates x slots */
} loop_state;

/* ---- lambdas --------------------------------------------------------------------------------- */

static value copy_value(arena *a, const value *v)
{
    value copy = *v;
    copy.p = arena_alloc_n(a, MAX(v->count, 1), (i64)sizeof(i64));
    if (v->count > 0)
        memcpy(copy.p, v->p, (size_t)v->count * sizeof(i64));
    return copy;
}

static int compare_ids(const void *x, const void *y)
{
    u32 a = *(const u32 *)x, b = *(const u32 *)y;
    return a < b ? -1 : a > b;
}

/* Terms below the results, in order; formals among them. */
static eval_body *body_of(eval *e, ir_term lambda)
{
    eval_body *b = &e->bodies[lambda.i];
    if (b->at)
        return b;
    const ir_program *p = e->p;
    const ir_node *node = ir_get(p, lambda);
    bool *seen = NEW_N(e->scratch, bool, p->nodes.n);
    VEC(u32) all = {0};
    for (i64 i = 0; i < node->arg_count; i++)
        if (!seen[node->args[i].i]) {
            seen[node->args[i].i] = true;
            vec_push(e->own, &all, node->args[i].i);
        }
    for (i64 i = 0; i < all.n; i++) {
        const ir_node *x = &p->nodes.at[all.at[i]];
        for (i64 j = 0; j < x->arg_count; j++)
            if (!seen[x->args[j].i]) {
                seen[x->args[j].i] = true;
                vec_push(e->own, &all, x->args[j].i);
            }
    }
    qsort(all.at, (size_t)all.n, sizeof *all.at, compare_ids);
    *b = (eval_body){all.at, all.n};
    return b;
}

static void exchange_sets(eval *e)
{
    value *values = e->values;
    cells *all = e->cells;
    e->values = e->inner_values;
    e->cells = e->inner_cells;
    e->inner_values = values;
    e->inner_cells = all;
}

/* Results in `a`; extents of atoms are those in force. An argument without data is not used. */
static void apply(eval *e, ir_term lambda, const value *args, arena *a, value *results)
{
    const ir_program *p = e->p;
    const eval_body *b = body_of(e, lambda);
    arena *outer = e->scratch;
    e->scratch = arena_child(e->own);
    exchange_sets(e);
    for (i64 i = 0; i < ir_formal_count(p, lambda); i++)
        e->values[ir_get(p, lambda)->args[i].i] = args[i];
    for (i64 i = 0; i < b->n; i++)
        if (p->nodes.at[b->at[i]].op != IR_formal)
            eval_plain(e, b->at[i]);
    for (i64 i = 0; i < ir_result_count(p, lambda); i++)
        results[i] = copy_value(a, &e->values[ir_result(p, lambda, i).i]);
    for (i64 i = 0; i < b->n; i++)
        eval_drop(e, b->at[i]);
    exchange_sets(e);
    arena_free(e->scratch);
    e->scratch = outer;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static bool same_operands(const ir_node *x, const ir_node *y)
{
    return x->arg_count == y->arg_count &&
           memcmp(x->args, y->args, (size_t)x->arg_count * sizeof *x->args) == 0;
}

static ir_atoms without(arena *a, ir_atoms x, ir_atoms y)
{
    ir_atom *at = NEW_N(a, ir_atom, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++)
        if (!ir_has(y, x.at[i]))
            at[n++] = x.at[i];
    return (ir_atoms){at, n};
}

static void find_machines(loop_run *l, arena *a)
{
    eval *e = l->e;
    const ir_node *loop = l->node;
    l->machines = NEW_N(a, machine, loop->arg_count);
    l->machine_of = NEW_N(a, i64, loop->arg_count);
    l->can_merge = true;
    for (i64 i = 0; i < loop->arg_count; i++) {
        const ir_node *comp = ir_get(e->p, loop->args[i]);
        bool is_reducer = comp->attr.reducer == IR_NO_REDUCER;
        i64 m = 0;
        while (m < l->machine_count && !(is_reducer && l->machines[m].reducer &&
                                         same_operands(comp, &e->p->nodes.at[l->machines[m].comp])))
            m++;
        l->machine_of[i] = m;
        if (m < l->machine_count)
            continue;
        machine *x = &l->machines[l->machine_count++];
        *x = (machine){.comp = loop->args[i].i, .slots = 1, .inside = comp->axes};
        for (i64 j = 1; is_reducer && j < comp->arg_count; j++) /* the state may have more */
            x->inside = ir_type_union(a, x->inside, ir_get(e->p, comp->args[j])->axes);
        x->axes = without(a, x->inside, loop->attr.par);
        x->coordinates = eval_coordinates(e, x->axes);
        if (is_reducer) {
            x->reducer = ir_get(e->p, comp->args[0]);
            x->slots = ir_result_count(e->p, x->reducer->args[0]);
            l->can_merge = l->can_merge && x->reducer->arg_count == 4;
        }
    }
}

static bool is_component(const loop_run *l, u32 k)
{
    for (i64 i = 0; i < l->node->arg_count; i++)
        if (l->node->args[i].i == k)
            return true;
    return false;
}

/* Does it depend on results of this loop, and otherwise on those of loops around it only? Then it
 * is for this loop to compute. */
static bool is_rolled(const loop_run *l, const ir_node *node)
{
    bool is_here = false;
    for (i64 i = 0; i < node->runs.n; i++) {
        u32 comp = ir_get(l->e->p, node->runs.at[i])->args[0].i;
        if (is_component(l, comp))
            is_here = true;
        else if (!l->e->running[comp])
            return false;
    }
    ir_kind kind = ir_kind_of(node->op);
    return is_here && (kind == IR_A_VALUE || kind == IR_A_BUNDLE);
}

static void find_order(loop_run *l, arena *a)
{
    const ir_program *p = l->e->p;
    bool *seen = NEW_N(a, bool, p->nodes.n);
    VEC(u32) stack = {0}, order = {0};
    for (i64 i = 0; i < l->node->arg_count; i++) {
        seen[l->node->args[i].i] = true;
        vec_push(a, &stack, l->node->args[i].i);
    }
    for (i64 i = 0; i < stack.n; i++) {
        const ir_node *node = &p->nodes.at[stack.at[i]];
        if (is_component(l, stack.at[i]) || is_rolled(l, node))
            vec_push(a, &order, stack.at[i]);
        for (i64 j = 0; j < node->arg_count; j++)
            if (node->runs.n > 0 && !seen[node->args[j].i]) {
                seen[node->args[j].i] = true;
                vec_push(a, &stack, node->args[j].i);
            }
    }
    qsort(order.at, (size_t)order.n, sizeof *order.at, compare_ids);
    l->order = order.at;
    l->order_count = order.n;
}

/* ---- states ---------------------------------------------------------------------------------- */

static loop_state *new_state(const loop_run *l)
{
    arena *a = arena_child(l->e->own);
    loop_state *s = NEW(a, loop_state);
    *s = (loop_state){l, a, NEW_N(a, value *, l->machine_count)};
    for (i64 m = 0; m < l->machine_count; m++)
        s->slots[m] = NEW_N(a, value, l->machines[m].coordinates * l->machines[m].slots);
    return s;
}

static value *slots_at(const loop_state *s, i64 m)
{
    const machine *x = &s->l->machines[m];
    return s->slots[m] + eval_index_of(s->l->e, x->axes) * x->slots;
}

/* A value over `dims` with one number in all elements, the extents being those in force. */
static value filled(eval *e, arena *a, ir_atoms dims, const value *number)
{
    value v = {.dims = dims, .dtype = number->dtype, .is_float = number->is_float};
    v.count = eval_count(e, dims);
    v.p = arena_alloc_n(a, MAX(v.count, 1), (i64)sizeof(i64));
    for (i64 j = 0; j < v.count; j++)
        v.i[j] = number->i[0];
    return v;
}

static void start(eval *e, loop_state *s, i64 m)
{
    const machine *x = &s->l->machines[m];
    const ir_node *comp = &e->p->nodes.at[x->comp];
    value *slots = slots_at(s, m);
    eval_enter(e, x->axes);
    if (x->reducer) {
        value *numbers = NEW_N(e->scratch, value, x->slots);
        apply(e, x->reducer->args[0], NULL, s->a, numbers);
        const ir_node *update = ir_get(e->p, x->reducer->args[1]);
        for (i64 i = 0; i < x->slots; i++)
            slots[i] = filled(e, s->a, ir_get(e->p, update->args[i])->dims, &numbers[i]);
    } else {
        i64 zero = 0;
        value number = {.dtype = comp->dtype, .is_float = dtype_is_float(comp->dtype), .p = &zero};
        slots[0] = filled(e, s->a, comp->dims, &number);
        eval_fill_identity(&slots[0], comp->attr.reducer);
    }
    eval_leave(e, x->axes);
}

static loop_state *identity(const loop_run *l)
{
    loop_state *s = new_state(l);
    for (i64 m = 0; m < l->machine_count; m++) {
        eval_first(l->e, l->machines[m].axes);
        do
            start(l->e, s, m);
        while (eval_next(l->e, l->machines[m].axes));
    }
    return s;
}

/* Arguments from `first` on: a component's leaves. Those that vary with the loop only where a tile
 * is in hand. */
static void bind_leaves(eval *e, const loop_run *l, const ir_node *comp, bool in_tile, value *args)
{
    for (i64 i = 1; i < comp->arg_count; i++) {
        ir_atoms axes = ir_get(e->p, comp->args[i])->axes;
        bool varies = false;
        for (i64 j = 0; j < axes.n; j++)
            varies = varies || ir_has(l->node->attr.par, axes.at[j]);
        if (in_tile || !varies)
            args[i - 1] = *eval_cell(e, comp->args[i]);
    }
}

/* The result of component `i` of the loop at the current coordinates, in the scratch arena. */
static value result_of(eval *e, const loop_state *s, i64 i)
{
    const loop_run *l = s->l;
    i64 m = l->machine_of[i];
    const machine *x = &l->machines[m];
    const ir_node *comp = ir_get(e->p, l->node->args[i]);
    const value *slots = slots_at(s, m);
    if (!x->reducer)
        return slots[0];
    ir_term final = x->reducer->args[2];
    value *args = NEW_N(e->scratch, value, ir_formal_count(e->p, final));
    value *results = NEW_N(e->scratch, value, ir_result_count(e->p, final));
    for (i64 j = 0; j < x->slots; j++)
        args[j] = slots[j];
    bind_leaves(e, l, comp, false, args + x->slots);
    eval_enter(e, x->axes);
    apply(e, final, args, e->scratch, results);
    eval_leave(e, x->axes);
    return results[comp->attr.ints.at[0]];
}

static i64 component_index(const loop_run *l, u32 comp)
{
    i64 i = 0;
    while (l->node->args[i].i != comp)
        i++;
    return i;
}

/* What was accumulated, moved from the producers' results in `from` to those in `to`. */
static value transported(eval *e, const loop_state *from, const loop_state *to, i64 m)
{
    const loop_run *l = from->l;
    const machine *x = &l->machines[m];
    const ir_node *comp = &e->p->nodes.at[x->comp];
    value c = slots_at(from, m)[0];
    if (comp->arg_count == 1)
        return copy_value(to->a, &c);
    i64 n = comp->arg_count - 2;
    value *args = NEW_N(e->scratch, value, 1 + 2 * n), result;
    args[0] = c;
    for (i64 i = 0; i < n; i++) {
        i64 producer = component_index(l, comp->args[2 + i].i);
        args[1 + i] = result_of(e, from, producer);
        args[1 + n + i] = result_of(e, to, producer);
    }
    eval_enter(e, x->axes);
    apply(e, comp->args[1], args, to->a, &result);
    eval_leave(e, x->axes);
    return result;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Lowest or highest value of a bound over the current tiles of the outer atoms. */
static bool bound_of(const eval *e, const machine *x, const ir_affine *bound, bool highest,
                     i64 *out)
{
    *out = bound->constant;
    for (i64 i = 0; i < bound->atoms.n; i++) {
        ir_atom d = bound->atoms.at[i];
        i64 from = 0, to = ir_extent(e->p, d);
        if (ir_has(x->axes, d)) {
            from = eval_tile_start(e, d, e->coord[d.i]);
            to = eval_tile_start(e, d, e->coord[d.i] + 1);
        }
        if (from == to)
            return false; /* an empty tile meets nothing */
        i64 f = bound->factors[i];
        *out += f * ((f > 0) == highest ? to - 1 : from);
    }
    return true;
}

static bool is_visited(const loop_run *l, const machine *x)
{
    const eval *e = l->e;
    if (l->visit.n == 0)
        return true;
    ir_atom axis = l->node->attr.par.at[0];
    i64 start_ = eval_tile_start(e, axis, e->coord[axis.i]);
    i64 end = eval_tile_start(e, axis, e->coord[axis.i] + 1);
    for (i64 i = 0; i < l->visit.n; i++) {
        i64 low, high;
        if (bound_of(e, x, &l->visit.at[i].low, false, &low) &&
            bound_of(e, x, &l->visit.at[i].high, true, &high) && low < end && high > start_)
            return true;
    }
    return false;
}

/* One accumulator at one coordinate takes the tile in. */
static void take(eval *e, const loop_state *old, loop_state *now, i64 m)
{
    const loop_run *l = old->l;
    const machine *x = &l->machines[m];
    const ir_node *comp = &e->p->nodes.at[x->comp];
    value *from = slots_at(old, m), *to = slots_at(now, m);
    if (!is_visited(l, x)) {
        for (i64 i = 0; i < x->slots; i++)
            to[i] = copy_value(now->a, &from[i]);
        return;
    }
    if (!x->reducer) {
        to[0] = transported(e, old, now, m);
        eval_fold(e, comp->attr.reducer, &to[0], eval_cell(e, comp->args[0]));
        return;
    }
    ir_term update = x->reducer->args[1];
    bool has_lanes = x->reducer->attr.ints.at[0] != 0;
    value *args = NEW_N(e->scratch, value, ir_formal_count(e->p, update));
    f64 lanes = 1;
    for (i64 i = 0; i < x->slots; i++)
        args[i] = from[i];
    eval_enter(e, x->inside);
    for (i64 i = 0; i < l->node->attr.par.n; i++)
        lanes *= (f64)eval_extent(e, l->node->attr.par.at[i]);
    if (has_lanes)
        args[x->slots] = (value){.dtype = ir_get(e->p, ir_get(e->p, update)->args[x->slots])->dtype,
                                 .is_float = true,
                                 .count = 1,
                                 .f = &lanes};
    bind_leaves(e, l, comp, true, args + x->slots + has_lanes);
    apply(e, update, args, now->a, to);
    eval_leave(e, x->inside);
}

static loop_state *step(const loop_run *l, loop_state *old)
{
    eval *e = l->e;
    loop_state *now = new_state(l);
    for (i64 i = 0; i < l->node->arg_count; i++)
        e->running[l->node->args[i].i] = now;
    for (i64 i = 0; i < l->order_count; i++) {
        u32 k = l->order[i];
        if (!is_component(l, k)) {
            eval_node(e, k);
            continue;
        }
        i64 m = l->machine_of[component_index(l, k)];
        if (l->machines[m].comp != k)
            continue;
        arena *outer = e->scratch;
        e->scratch = arena_child(e->own);
        eval_first(e, l->machines[m].axes);
        do
            take(e, old, now, m);
        while (eval_next(e, l->machines[m].axes));
        arena_free(e->scratch);
        e->scratch = outer;
    }
    arena_free(old->a);
    return now;
}

static loop_state *merge(const loop_run *l, loop_state *a, loop_state *b)
{
    eval *e = l->e;
    loop_state *now = new_state(l);
    for (i64 m = 0; m < l->machine_count; m++) {
        const machine *x = &l->machines[m];
        const ir_node *comp = &e->p->nodes.at[x->comp];
        eval_first(e, x->axes);
        do {
            value *to = slots_at(now, m);
            if (!x->reducer) {
                to[0] = transported(e, a, now, m);
                value other = transported(e, b, now, m);
                eval_fold(e, comp->attr.reducer, &to[0], &other);
                continue;
            }
            ir_term lambda = x->reducer->args[3];
            value *args = NEW_N(e->scratch, value, ir_formal_count(e->p, lambda));
            for (i64 i = 0; i < x->slots; i++) {
                args[i] = slots_at(a, m)[i];
                args[x->slots + i] = slots_at(b, m)[i];
            }
            bind_leaves(e, l, comp, false, args + 2 * x->slots);
            eval_enter(e, x->axes);
            apply(e, lambda, args, now->a, to);
            eval_leave(e, x->axes);
        } while (eval_next(e, x->axes));
    }
    arena_free(a->a);
    arena_free(b->a);
    return now;
}

/* Coordinates of tile number t; false when the tile is empty. */
static bool go_to(const loop_run *l, i64 t)
{
    eval *e = l->e;
    ir_atoms par = l->node->attr.par;
    bool has_positions = true;
    for (i64 i = par.n - 1; i >= 0; i--) {
        i64 count = eval_tile_count(e, par.at[i]), c = t % count;
        t /= count;
        e->coord[par.at[i].i] = c;
        has_positions = has_positions &&
                        eval_tile_start(e, par.at[i], c) < eval_tile_start(e, par.at[i], c + 1);
    }
    return has_positions;
}

static loop_state *run_tiles(const loop_run *l, i64 low, i64 high)
{
    eval *e = l->e;
    bool in_order = e->options.association == 0 || !l->can_merge || high - low < 2;
    if (in_order || rng_below(&e->random, 3) == 0) {
        loop_state *s = identity(l);
        for (i64 t = low; t < high; t++) {
            eval_poll(e);
            if (go_to(l, t))
                s = step(l, s);
        }
        return s;
    }
    i64 middle = low + 1 + (i64)rng_below(&e->random, (u64)(high - low - 1));
    bool swap = rng_below(&e->random, 2);
    loop_state *a = run_tiles(l, low, middle), *b = run_tiles(l, middle, high);
    return merge(l, swap ? b : a, swap ? a : b);
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* Where the results of component `i` begin among the cells of the loop. */
static i64 first_cell(const eval *e, const ir_node *loop, i64 i, arena *a)
{
    i64 n = 0;
    for (i64 j = 0; j < i; j++)
        n += eval_coordinates(e, without(a, ir_get(e->p, loop->args[j])->axes, loop->attr.par));
    return n;
}

void eval_loop(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atoms par = node->attr.par;
    arena *outer = e->scratch;
    e->scratch = arena_child(e->own);
    loop_run l = {.e = e, .node = node};
    find_machines(&l, e->scratch);
    find_order(&l, e->scratch);
    l.visit = ir_visits(e->scratch, e->p, (ir_term){k});
    for (i64 i = 0; i < par.n; i++)
        e->pinned[par.at[i].i] = true;
    loop_state *s = run_tiles(&l, 0, eval_coordinates(e, par));
    if (!e->cells[k].at) {
        i64 n = first_cell(e, node, node->arg_count, e->scratch);
        e->cells[k] = (cells){NEW_N(e->own, value, n), n};
    }
    for (i64 i = 0; i < node->arg_count; i++) {
        e->running[node->args[i].i] = NULL;
        ir_atoms axes = without(e->scratch, ir_get(e->p, node->args[i])->axes, par);
        value *to = e->cells[k].at + first_cell(e, node, i, e->scratch);
        eval_first(e, axes);
        do {
            value result = result_of(e, s, i), *home = &to[eval_index_of(e, axes)];
            heap_free(e->ctx, home->p, MAX(home->count, 1) * (i64)sizeof(i64));
            *home = result;
            home->p = NULL;
            home->p = heap_alloc(e->ctx, MAX(result.count, 1) * (i64)sizeof(i64));
            memcpy(home->p, result.p, (size_t)result.count * sizeof(i64));
        } while (eval_next(e, axes));
    }
    for (i64 i = 0; i < par.n; i++) {
        e->pinned[par.at[i].i] = false;
        e->coord[par.at[i].i] = 0;
    }
    arena_free(s->a);
    arena_free(e->scratch);
    e->scratch = outer;
}

static void hand_over(eval *e, u32 k, const value *v)
{
    ir_atoms axes = e->p->nodes.at[k].axes;
    eval_enter(e, axes);
    value *out = eval_new(e, k);
    eval_leave(e, axes);
    memcpy(out->p, v->p, (size_t)out->count * sizeof(i64));
}

void eval_get(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k], *from = ir_get(e->p, node->args[0]);
    if (from->op != IR_loop) {
        hand_over(e, k, eval_cell(e, node->args[1]));
        return;
    }
    i64 i = 0;
    while (from->args[i].i != node->args[1].i)
        i++;
    const value *all = e->cells[node->args[0].i].at + first_cell(e, from, i, e->scratch);
    hand_over(e, k, &all[eval_index_of(e, node->axes)]);
}

void eval_run(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const loop_state *s = e->running[node->args[0].i];
    value v = result_of(e, s, component_index(s->l, node->args[0].i));
    hand_over(e, k, &v);
}
