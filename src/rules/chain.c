/* Reductions over one set of axes, of which later ones use earlier ones' results, as one loop.
 *
 * The body of a reduction is read down to its leaves as a system for the repair solver: pointwise
 * operators, products and reductions inside the tile are looked into, reductions over the same axes
 * are results, everything else is a leaf. What is free of results and meets one directly, or does
 * not vary with the tile, is a leaf as a whole, so that the solver sees what matters.
 *
 * Several axes are one to the solver: a stand-in atom of as many positions takes the place of theirs,
 * in every leaf that has any of them, and they come back when components are written.
 *
 * A repair whose accumulators each move by a factor of earlier accumulators becomes components of
 * its own: (comp R body transport producers), whose body is the contribution with the results so
 * far; what waits for the end becomes operators over the results. Any other becomes one reducer
 * term with a component for each result.                                  (docs/repair.md; F4-F7) */
#include "rules/chain_impl.h"

static const rl_record *record(const chain *c, u32 id)
{
    return &c->t->at.at[id];
}

static u64 par_of(const chain *c, const rl_record *x)
{
    return c->g->payloads.at[x->payload].par;
}

static bool is_reduction(const chain *c, const rl_record *x, u64 par)
{
    return x->op == IR_reduce && par && par_of(c, x) == par;
}

/* Looked into by the solver. */
static bool is_glue(const chain *c, const rl_record *x)
{
    return x->op != IR_NO_OP && (ir_row(x->op)->class_ == IR_EWISE || x->op == IR_tile_matmul ||
                                 (x->op == IR_reduce && !par_of(c, x)));
}

static bool is_number(const chain *c, u32 id, f64 value)
{
    const rl_type *t = &record(c, id)->type;
    return (t->facts & RL_IS_NUMBER) && t->number == value && !t->dims;
}

/* A result where it is finite, else 0, is the result: a reducer's references are guarded so. */
static u32 unguarded(const chain *c, u32 id)
{
    const rl_record *x = record(c, id);
    if (x->op != IR_where || !is_number(c, x->kids[2], 0) ||
        !is_reduction(c, record(c, x->kids[1]), c->par))
        return id;
    const rl_record *test = record(c, x->kids[0]);
    return test->op == IR_finite && rl_terms_same(c->t, test->kids[0], x->kids[1]) ? x->kids[1]
                                                                                    : id;
}

static bool stop(chain *c, const char *reason)
{
    if (!c->reason)
        c->reason = reason;
    return false;
}

/* ---- the system ------------------------------------------------------------------------------ */

static bool is_mixed(chain *c, u32 id)
{
    id = unguarded(c, id);
    const rl_record *x = record(c, id);
    if (c->mixed[id])
        return c->mixed[id] == 2;
    bool mixed = is_reduction(c, x, c->par);
    for (i64 i = 0; i < x->n && is_glue(c, x); i++)
        mixed = is_mixed(c, x->kids[i]) || mixed;
    c->mixed[id] = mixed ? 2 : 1;
    return mixed;
}

/* Finds the results that a body uses, theirs first, and marks what meets them. */
static bool visit(chain *c, u32 id, bool *seen)
{
    id = unguarded(c, id);
    const rl_record *x = record(c, id);
    if (is_reduction(c, x, c->par)) {
        if (c->result[id] > 0)
            return true;
        u32 body = x->kids[0];
        c->result[id] = -1;
        if (!visit(c, body, seen))
            return false;
        if (c->n == RL_MAX_REDUCTIONS)
            return stop(c, "more than 8 reductions");
        if (x->reducer != IR_SUM && x->reducer != IR_MAX && x->reducer != IR_MIN)
            return stop(c, "a reducer without repair");
        if (!dtype_is_float(x->type.dtype))
            return stop(c, "a reduction of no floats");
        c->at[c->n].op = x->reducer;
        c->reduction[c->n++] = id;
        c->result[id] = (i8)c->n;
        return true;
    }
    if (seen[id] || !is_glue(c, x))
        return true;
    seen[id] = true;
    for (i64 i = 0; i < x->n; i++) {
        if (!visit(c, x->kids[i], seen))
            return false;
        x = record(c, id);
        if (is_mixed(c, id) && !is_mixed(c, x->kids[i]))
            c->leaf[x->kids[i]] = true;
    }
    return true;
}

static bool has_any(ir_atoms set, ir_atoms of)
{
    for (i64 i = 0; i < of.n; i++)
        if (ir_has(set, of.at[i]))
            return true;
    return false;
}

/* A set of atoms with the stand-in for those of the axes. */
static ir_atoms flat_set(chain *c, ir_atoms set)
{
    ir_atoms axes = rl_unmask(c->g, c->a, c->par);
    if (!c->flat.i || !has_any(set, axes))
        return set;
    ir_atom *at = NEW_N(c->a, ir_atom, set.n + 1);
    i64 n = 0;
    for (i64 i = 0; i < set.n; i++)
        if (!ir_has(axes, set.at[i]))
            at[n++] = set.at[i];
    at[n++] = c->flat; /* the last atom of the program */
    return (ir_atoms){at, n};
}

ir_atoms rl_chain_atoms(const chain *c, ir_atoms set)
{
    if (!c->flat.i || !ir_has(set, c->flat))
        return set;
    u64 mask = c->par;
    for (i64 i = 0; i < set.n; i++)
        if (set.at[i].i != c->flat.i)
            mask |= rl_mask(c->g, (ir_atoms){&set.at[i], 1});
    ir_atoms out = rl_unmask(c->g, c->a, mask);
    return ir_atoms_set(c->g->own, out.at, out.n);
}

static ir_term add_input(chain *c, const char *name, const rl_type *type, rl_sign sign)
{
    ir_atoms d = flat_set(c, rl_unmask(c->g, c->a, type->dims));
    ir_dim *dims = NEW_N(c->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(c->p, d.at[i]), {&d.at[i], 1}};
    i64 port = ir_add_input(c->p, (ir_port){.name = intern_cstr(c->p->names, name),
                                            .dtype = type->dtype,
                                            .rank = d.n,
                                            .dims = dims});
    vec_push(c->a, &c->signs, (u8)sign);
    return c->p->inputs.at[port].term;
}

static rl_sign sign_of(const rl_record *x)
{
    if (x->type.facts & RL_IS_POSITIVE)
        return RL_POSITIVE;
    return x->op == IR_square || x->op == IR_abs || x->op == IR_sqrt ? RL_NONNEGATIVE : RL_ANY;
}

static ir_term leaf_term(chain *c, u32 id)
{
    for (i64 i = 0; i < c->leaves.n; i++)
        if (rl_terms_same(c->t, c->leaves.at[i], id))
            return c->inputs.at[i];
    const char *name = arena_printf(c->a, "x%lld", (long long)c->leaves.n);
    ir_term t = add_input(c, name, &record(c, id)->type, sign_of(record(c, id)));
    vec_push(c->a, &c->leaves, id);
    vec_push(c->a, &c->inputs, t);
    return t;
}

static ir_term term_of(chain *c, u32 id)
{
    id = unguarded(c, id);
    const rl_record *x = record(c, id);
    if (c->term[id].i)
        return c->term[id];
    bool is_free = !is_mixed(c, id), varies = x->type.axes & c->par;
    ir_term result;
    if (c->result[id] > 0) {
        result = c->at[c->result[id] - 1].value;
    } else if (x->type.facts & RL_IS_NUMBER && !x->type.dims && x->op == IR_NO_OP) {
        result = dtype_is_float(x->type.dtype)
                     ? ir_f(c->p, (dtype)x->type.dtype, x->type.number)
                     : ir_i(c->p, (dtype)x->type.dtype, (i64)x->type.number);
    } else if (!is_glue(c, x) ||
               (is_free && (!varies || (c->leaf[id] && !c->is_whole)))) {
        result = leaf_term(c, id);
    } else {
        ir_term *args = NEW_N(c->a, ir_term, x->n);
        i64 n = x->n;
        for (i64 i = 0; i < n; i++)
            args[i] = term_of(c, record(c, id)->kids[i]);
        x = record(c, id);
        ir_attr attr = c->g->payloads.at[x->payload].attr;
        if (x->op == IR_reduce)
            attr.reducer = (u8)x->reducer;
        u64 axis = rl_mask(c->g, attr.axis) & c->par;
        if (axis && axis != c->par)
            stop(c, "a reduction over a part of the axes");
        attr.axis = flat_set(c, attr.axis);
        result = ir_make(c->p, x->op == IR_tile_matmul ? IR_matmul : x->op, attr, args, n);
    }
    return c->term[id] = result;
}

static bool add_flat(chain *c)
{
    i64 extent = 1;
    if (!(c->par & (c->par - 1)))
        return true;
    for (u64 rest = c->par; rest; rest &= rest - 1)
        if (!mul_i64(extent, c->g->extent[__builtin_ctzll(rest)], &extent))
            return stop(c, "axes of too many positions");
    c->flat = ir_atom_new(c->p, "flat", extent);
    return true;
}

static bool read_system(chain *c, u32 id)
{
    c->count = c->t->at.n;
    c->result = NEW_N(c->a, i8, c->count);
    c->mixed = NEW_N(c->a, u8, c->count);
    c->leaf = NEW_N(c->a, bool, c->count);
    c->term = NEW_N(c->a, ir_term, c->count);
    const rl_record *x = record(c, id);
    if (x->op != IR_reduce || !par_of(c, x))
        return stop(c, "no reduction over axes");
    c->par = par_of(c, x);
    if (!visit(c, id, NEW_N(c->a, bool, c->count)))
        return false;
    if (c->n < 2)
        return stop(c, "it needs no other reduction over its axes");
    c->p = ir_program_new(c->a, "repair", "repair");
    rl_copy_atoms(c->p, c->g->own);
    if (!add_flat(c))
        return false;
    for (i64 k = 0; k < c->n; k++) {
        const char *name = arena_printf(c->a, "s%lld", (long long)k);
        c->at[k].value = add_input(c, name, &record(c, c->reduction[k])->type, RL_ANY);
    }
    for (i64 k = 0; k < c->n; k++)
        c->at[k].body = term_of(c, record(c, c->reduction[k])->kids[0]);
    c->system = (rl_system){.p = c->p,
                            .axis = c->flat.i ? (ir_atoms){&c->flat, 1}
                                              : rl_unmask(c->g, c->a, c->par),
                            .at = c->at,
                            .n = c->n,
                            .signs = c->signs.at};
    return !c->reason;
}

static bool solve(chain *c)
{
    trap t;
    TRY (arena_ctx(c->a), t)
        c->repair = rl_solve_repair(c->a, &c->system, RL_WANT_ROLLING);
    if (t.status == EQF_E_NO_MEMORY || t.status == EQF_E_INTERRUPTED)
        eqf_rethrow(arena_ctx(c->a), t.status);
    if (t.status)
        return stop(c, "the solver's limits");
    return c->repair.found || stop(c, c->repair.reason);
}

bool rl_chain_solve(chain *c, u32 term)
{
    *c = (chain){.t = c->t, .g = c->t->g, .a = c->t->a, .is_whole = c->is_whole};
    return read_system(c, term) && solve(c);
}

u32 rl_chain_leaf(const chain *c, ir_term leaf)
{
    for (i64 k = 0; k < c->inputs.n; k++)
        if (c->inputs.at[k].i == leaf.i)
            return c->leaves.at[k];
    return 0;
}

/* ---- components ------------------------------------------------------------------------------ */

typedef struct parts {
    chain *c;
    i64 slots;
    u32 comp[RL_MAX_SLOTS], get[RL_MAX_SLOTS];
    bool busy[RL_MAX_SLOTS];
    u32 producers[RL_MAX_SLOTS]; /* bits: slots */
    u32 loop;
} parts;

static const ir_program *update_of(const parts *x)
{
    return x->c->repair.update.p;
}

static ir_term slot_out(const parts *x, i64 slot)
{
    return update_of(x)->outputs.at[slot].term;
}

static i64 slot_in(const ir_program *p, i64 slots, ir_term t)
{
    for (i64 i = 0; i < slots; i++)
        if (p->inputs.at[i].term.i == t.i)
            return i;
    return -1;
}

/* The record of the leaf that an input of a lambda is. */
static u32 leaf_of_input(const parts *x, const rl_lambda *l, ir_term t)
{
    i64 before = l->states * x->slots + l->has_lanes;
    for (i64 i = 0; i < l->leaf_count; i++)
        if (l->p->inputs.at[before + i].term.i == t.i)
            return rl_chain_leaf(x->c, l->leaves[i]);
    return 0;
}

static u32 make(parts *x, ir_op op, ir_reducer reducer, ir_attr attr, const u32 *kids, i64 n)
{
    u32 payload = rl_payload_id(x->c->g, op, attr);
    return rl_terms_make(x->c->t, op, reducer, payload, kids, n);
}

static u32 with_par(parts *x, ir_op op, const u32 *kids, i64 n)
{
    return rl_terms_make(x->c->t, op, IR_NO_REDUCER, rl_par_payload(x->c->g, op, x->c->par), kids,
                         n);
}

static u32 component(parts *x, i64 slot);

/* What one term is made of. */
typedef struct tile_copy {
    const rl_lambda *lambda;
    i64 own;               /* the slot that it is the contribution of; -1 */
    u32 *done;             /* by term */
    bool runs[RL_MAX_SLOTS]; /* slots whose values so far it uses */
} tile_copy;

/* A term of update or final as a term of tiles; 0 when it has none: it uses what only a reducer
 * term knows (other states, the number of lanes). */
static u32 tile_term(parts *x, tile_copy *copy, ir_term t)
{
    const rl_lambda *l = copy->lambda;
    u32 *done = copy->done;
    if (done[t.i])
        return done[t.i];
    bool is_update = l == &x->c->repair.update;
    const ir_node *n = ir_get(l->p, t);
    for (i64 i = 0; i < x->slots && is_update; i++)
        if (i != copy->own && slot_out(x, i).i == t.i) {
            u32 comp = component(x, i);
            copy->runs[i] = true;
            return done[t.i] = comp ? with_par(x, IR_run, &comp, 1) : 0;
        }
    i64 state = slot_in(l->p, x->slots, t);
    if (state >= 0)
        return is_update ? 0 : x->get[state];
    if (n->op == IR_in)
        return done[t.i] = leaf_of_input(x, l, t);
    if (n->op == IR_const)
        return done[t.i] = rl_terms_leaf(
                   x->c->t, rl_number_head(x->c->g, (dtype)n->dtype,
                                           dtype_is_float(n->dtype) ? n->attr.f : (f64)n->attr.i));
    if (ir_row(n->op)->class_ != IR_EWISE && n->op != IR_reduce && n->op != IR_matmul &&
        n->op != IR_tile_matmul)
        return 0;
    u32 *kids = NEW_N(x->c->a, u32, n->arg_count);
    for (i64 i = 0; i < n->arg_count; i++) {
        kids[i] = tile_term(x, copy, ir_get(l->p, t)->args[i]);
        if (!kids[i])
            return 0;
    }
    ir_attr attr = n->attr;
    attr.axis = rl_chain_atoms(x->c, attr.axis);
    if (n->op == IR_cast && record(x->c, kids[0])->type.dtype == attr.dtype)
        return done[t.i] = kids[0];
    ir_op op = n->op == IR_matmul ? IR_tile_matmul : n->op;
    return done[t.i] = make(x, op, op == IR_reduce ? attr.reducer : IR_NO_REDUCER, attr, kids,
                            n->arg_count);
}

/* Which slots' old and new values a transport uses; false when it uses more than those. */
static bool transport_uses(const parts *x, ir_term t, i64 own, bool *old, bool *new)
{
    const ir_program *p = update_of(x);
    for (i64 i = 0; i < x->slots; i++)
        if (i != own && slot_out(x, i).i == t.i)
            return new[i] = true;
    i64 state = slot_in(p, x->slots, t);
    if (state >= 0)
        return old[state] = true;
    const ir_node *n = ir_get(p, t);
    if (n->op == IR_in || n->op == IR_iota)
        return false;
    for (i64 i = 0; i < n->arg_count; i++)
        if (!transport_uses(x, n->args[i], own, old, new))
            return false;
    return true;
}

static ir_term transport_term(const parts *x, ir_program *q, ir_term t, ir_term *done)
{
    if (done[t.i].i)
        return done[t.i];
    const ir_node *n = ir_get(update_of(x), t);
    ir_term *args = NEW_N(x->c->a, ir_term, n->arg_count);
    for (i64 i = 0; i < n->arg_count; i++)
        args[i] = transport_term(x, q, n->args[i], done);
    return done[t.i] = ir_make(q, n->op, n->attr, args, n->arg_count);
}

/* The lambda c, s.., s'.. -> what c becomes, as a leaf. */
static u32 transport_leaf(parts *x, ir_term t, i64 own, const i64 *producers, i64 n)
{
    rl_graph *g = x->c->g;
    const ir_program *p = update_of(x);
    ir_program *q = ir_program_new(x->c->a, "transport", "transport");
    rl_copy_atoms(q, g->own);
    ir_term *done = NEW_N(x->c->a, ir_term, p->nodes.n);
    ir_term *formals = NEW_N(x->c->a, ir_term, 1 + 2 * n);
    for (i64 i = 0; i <= 2 * n; i++) {
        i64 slot = i == 0 ? own : producers[(i - 1) % n];
        ir_term stands_for = i > n ? slot_out(x, slot) : p->inputs.at[slot].term;
        formals[i] = ir_formal(q, i, g->real, x->c->repair.slots[slot].dims);
        done[stands_for.i] = formals[i];
    }
    ir_term body = transport_term(x, q, t, done);
    ir_term lambda = ir_lambda(q, formals, 1 + 2 * n, &body, 1);
    ir_term closed = rl_copy_closed(g->own, q, lambda, g->real);
    return closed.i ? rl_terms_leaf(x->c->t, rl_closed_head(g, closed)) : 0;
}

static u32 component(parts *x, i64 slot)
{
    const rl_slot *s = &x->c->repair.slots[slot];
    if (x->comp[slot] || x->busy[slot] || s->op == IR_NO_REDUCER || s->is_count)
        return x->comp[slot];
    x->busy[slot] = true;
    const ir_program *p = update_of(x);
    ir_node out = *ir_get(p, slot_out(x, slot));
    ir_op joins = s->op == IR_SUM ? IR_add : s->op == IR_MAX ? IR_max : IR_min;
    bool old[RL_MAX_SLOTS] = {false}, new[RL_MAX_SLOTS] = {false};
    if (out.op != joins || !transport_uses(x, out.args[0], slot, old, new) || !old[slot])
        return 0;
    u32 kids[2 + RL_MAX_SLOTS];
    tile_copy copy = {&x->c->repair.update, slot, NEW_N(x->c->a, u32, p->nodes.n), {false}};
    kids[0] = tile_term(x, &copy, out.args[1]);
    if (!kids[0])
        return 0;
    for (i64 i = 0; i < x->slots; i++)
        if (copy.runs[i] && !old[i] && !new[i])
            return 0; /* it would have to be moved, and is not */
    i64 producers[RL_MAX_SLOTS], n = 0;
    u32 mask = 0; /* with those that the values so far stand on */
    for (i64 i = 0; i < x->slots; i++)
        mask |= (i != slot && (old[i] || new[i]) ? (u32)1 << i : 0) |
                (copy.runs[i] ? x->producers[i] : 0);
    for (i64 i = 0; i < x->slots; i++)
        if (mask >> i & 1)
            producers[n++] = i;
    x->producers[slot] = mask;
    if (n > 0) {
        kids[1] = transport_leaf(x, out.args[0], slot, producers, n);
        for (i64 i = 0; i < n; i++)
            kids[2 + i] = component(x, producers[i]);
        for (i64 i = 0; i <= n; i++)
            if (!kids[1 + i])
                return 0;
    } else if (out.args[0].i != p->inputs.at[slot].term.i) {
        return 0;
    }
    return x->comp[slot] =
               make(x, IR_comp, s->op, (ir_attr){0}, kids, n > 0 ? 2 + n : 1);
}

static u32 loop_of(parts *x, const u32 *comps, i64 n)
{
    u32 set[RL_MAX_SLOTS];
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        bool is_new = comps[i] != 0;
        for (i64 k = 0; k < count; k++)
            is_new = is_new && !rl_terms_same(x->c->t, set[k], comps[i]);
        if (is_new)
            set[count++] = comps[i];
    }
    return with_par(x, IR_loop, set, count);
}

static bool same_type(const chain *c, u32 x, u32 y)
{
    const rl_type *s = &record(c, x)->type, *t = &record(c, y)->type;
    return x && y && s->dims == t->dims && s->axes == t->axes && s->dtype == t->dtype;
}

static bool add_values(parts *x, rl_chain *out, u32 *values)
{
    for (i64 k = 0; k < x->c->n; k++) {
        if (!same_type(x->c, values[k], x->c->reduction[k]))
            return false;
        out->value[k] = values[k];
        out->reduction[k] = x->c->reduction[k];
    }
    out->n = x->c->n;
    return true;
}

/* Every accumulator a component of its own. */
static bool as_components(chain *c, rl_chain *out)
{
    parts x = {.c = c, .slots = c->repair.slot_count};
    const rl_lambda *final = &c->repair.final;
    for (i64 i = 0; i < x.slots; i++)
        if (!component(&x, i))
            return false;
    x.loop = loop_of(&x, x.comp, x.slots);
    for (i64 i = 0; i < x.slots && x.loop; i++) {
        u32 kids[2] = {x.loop, x.comp[i]};
        x.get[i] = rl_terms_make(c->t, IR_get, IR_NO_REDUCER, 0, kids, 2);
    }
    u32 values[RL_MAX_REDUCTIONS];
    tile_copy copy = {final, -1, NEW_N(c->a, u32, final->p->nodes.n), {false}};
    for (i64 k = 0; k < c->n; k++)
        values[k] = tile_term(&x, &copy, final->p->outputs.at[k].term);
    return add_values(&x, out, values);
}

/* ---- a reducer term -------------------------------------------------------------------------- */

typedef struct leaf_list {
    ir_term at[64];
    i64 n;
} leaf_list;

static void join_leaves(leaf_list *all, const rl_lambda *l)
{
    for (i64 i = 0; i < l->leaf_count; i++) {
        i64 k = 0;
        while (k < all->n && all->at[k].i < l->leaves[i].i)
            k++;
        if ((k < all->n && all->at[k].i == l->leaves[i].i) || all->n == COUNT_OF(all->at))
            continue;
        memmove(&all->at[k + 1], &all->at[k], (size_t)(all->n - k) * sizeof *all->at);
        all->at[k] = l->leaves[i];
        all->n++;
    }
}

/* The dims of the record that an input of the system stands for. */
static ir_atoms real_dims(const chain *c, ir_term input)
{
    for (i64 k = 0; k < c->inputs.n; k++)
        if (c->inputs.at[k].i == input.i)
            return rl_unmask(c->g, c->a, record(c, c->leaves.at[k])->type.dims);
    return (ir_atoms){0};
}

/* The lambda with the axes' own atoms. */
static const ir_program *unflattened(chain *c, const rl_lambda *l)
{
    const ir_program *p = l->p;
    if (!c->flat.i)
        return p;
    ir_program *q = ir_program_new(c->a, "reducer", "reducer");
    rl_copy_atoms(q, c->g->own);
    ir_term *done = NEW_N(c->a, ir_term, p->nodes.n);
    i64 leaves = p->inputs.n - l->leaf_count;
    for (i64 i = 0; i < p->inputs.n; i++) {
        ir_port port = p->inputs.at[i];
        if (i >= leaves) {
            ir_atoms d = real_dims(c, l->leaves[i - leaves]);
            ir_dim *dims = NEW_N(c->a, ir_dim, d.n);
            for (i64 j = 0; j < d.n; j++)
                dims[j] = (ir_dim){ir_extent(q, d.at[j]), {&d.at[j], 1}};
            port.rank = d.n;
            port.dims = dims;
        }
        port.name = intern_cstr(q->names, intern_text(p->names, port.name));
        i64 added = ir_add_input(q, port);
        done[p->inputs.at[i].term.i] = q->inputs.at[added].term;
    }
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *n = &p->nodes.at[k];
        if (done[k].i)
            continue;
        ir_attr attr = n->attr;
        attr.axis = rl_chain_atoms(c, attr.axis);
        attr.to = rl_chain_atoms(c, attr.to);
        ir_term *args = NEW_N(c->a, ir_term, n->arg_count);
        for (i64 i = 0; i < n->arg_count; i++)
            args[i] = done[n->args[i].i];
        done[k] = ir_make(q, n->op, attr, args, n->arg_count);
    }
    for (i64 i = 0; i < p->outputs.n; i++) {
        ir_port port = p->outputs.at[i];
        port.name = intern_cstr(q->names, intern_text(p->names, port.name));
        port.term = done[port.term.i];
        ir_add_output(q, port);
    }
    return q;
}

static ir_term lambda_over(chain *c, ir_program *q, const rl_lambda *l, bool has_lanes,
                           const leaf_list *leaves)
{
    i64 slots = c->repair.slot_count, states = l->states * slots;
    i64 n = states + has_lanes + leaves->n, given = states + l->has_lanes;
    ir_term *formals = NEW_N(c->a, ir_term, n);
    i64 *position = NEW_N(c->a, i64, given + l->leaf_count);
    for (i64 i = 0; i < n; i++) {
        i64 leaf = i - states - has_lanes;
        dtype type = leaf >= 0 ? (dtype)ir_get(c->p, leaves->at[leaf])->dtype : c->g->real;
        ir_atoms dims = leaf >= 0    ? real_dims(c, leaves->at[leaf])
                        : i < states ? c->repair.slots[i % slots].dims
                                     : (ir_atoms){0};
        formals[i] = ir_formal(q, i, type, dims);
    }
    for (i64 i = 0; i < given; i++)
        position[i] = i;
    for (i64 i = 0; i < l->leaf_count; i++)
        for (i64 k = 0; k < leaves->n; k++)
            if (leaves->at[k].i == l->leaves[i].i)
                position[given + i] = states + has_lanes + k;
    return ir_lambda_of(q, unflattened(c, l), formals, n, position);
}

static bool as_reducer(chain *c, rl_chain *out)
{
    parts x = {.c = c, .slots = c->repair.slot_count};
    const rl_repair *r = &c->repair;
    leaf_list leaves = {.n = 0};
    join_leaves(&leaves, &r->update);
    join_leaves(&leaves, &r->merge);
    join_leaves(&leaves, &r->final);
    ir_program *q = ir_program_new(c->a, "reducer", "reducer");
    rl_copy_atoms(q, c->g->own);
    ir_term *identity = NEW_N(c->a, ir_term, r->slot_count);
    for (i64 i = 0; i < r->slot_count; i++)
        identity[i] = ir_f(q, c->g->real, r->slots[i].identity);
    bool lanes = r->update.has_lanes;
    if (lanes && c->par & c->g->ragged) /* how many are live is no one number */
        return false;
    ir_term reducer = ir_reducer_of(
        q, lanes, ir_lambda(q, NULL, 0, identity, r->slot_count),
        lambda_over(c, q, &r->update, lanes, &leaves), lambda_over(c, q, &r->final, false, &leaves),
        lambda_over(c, q, &r->merge, false, &leaves));
    ir_term closed = rl_copy_closed(c->g->own, q, reducer, c->g->real);
    u32 *kids = NEW_N(c->a, u32, 1 + leaves.n);
    kids[0] = closed.i ? rl_terms_leaf(c->t, rl_closed_head(c->g, closed)) : 0;
    for (i64 i = 0; i < leaves.n; i++)
        kids[1 + i] = rl_chain_leaf(c, leaves.at[i]);
    for (i64 i = 0; i <= leaves.n; i++)
        if (!kids[i])
            return false;
    u32 comps[RL_MAX_REDUCTIONS], values[RL_MAX_REDUCTIONS];
    for (i64 k = 0; k < c->n; k++) {
        comps[k] = make(&x, IR_comp, IR_NO_REDUCER, (ir_attr){.ints = {&k, 1}}, kids,
                        1 + leaves.n);
        if (!comps[k])
            return false;
    }
    u32 loop = loop_of(&x, comps, c->n);
    for (i64 k = 0; k < c->n; k++)
        values[k] = loop ? rl_terms_make(c->t, IR_get, IR_NO_REDUCER, 0, (u32[]){loop, comps[k]}, 2)
                         : 0;
    return add_values(&x, out, values);
}

/* ---- both ------------------------------------------------------------------------------------ */

static rl_chain derive(chain *c, u32 term)
{
    rl_chain out = {0};
    if (!rl_chain_solve(c, term)) {
        out.reason = c->reason;
        return out;
    }
    for (i64 k = 0; k < c->n; k++)
        out.fp = MAX(out.fp, c->repair.how[k].fp);
    out.found = as_components(c, &out);
    trap t;
    if (!out.found)
        TRY (arena_ctx(c->a), t) /* a sum over several axes of what has one has no tiled form */
            out.found = as_reducer(c, &out);
    if (!out.found && (t.status == EQF_E_NO_MEMORY || t.status == EQF_E_INTERRUPTED))
        eqf_rethrow(arena_ctx(c->a), t.status);
    if (!out.found)
        out.reason = "the repaired form has another type";
    return out;
}

static rl_chain derive_either(chain *c, u32 term)
{
    rl_chain out = derive(c, term);
    if (out.found || c->n < 2)
        return out;
    chain whole = {.t = c->t, .is_whole = true};
    rl_chain again = derive(&whole, term);
    if (!again.found)
        return out;
    *c = whole;
    return again;
}

rl_chain rl_chain_of(rl_terms *t, u32 term)
{
    chain c = {.t = t};
    return derive_either(&c, term);
}

const char *rl_chain_check(rl_terms *t, u32 term, rl_chain *out)
{
    chain c = {.t = t};
    *out = derive_either(&c, term);
    return out->found ? rl_check_repair(t->a, &c.system, &c.repair, 1) : out->reason;
}
