/* Accumulators to lambdas: update, merge and final as programs over formal parameters.
 *
 * Every accumulator is kept at a reference, a function of the state: its s leaves stand for the
 * producers' values so far. A new reference moves the accumulator by its block's transport
 *
 *     f_j(ref') = E(ref') / E(ref) * sum over k >= j of C(k, j) (tau(ref') - tau(ref))^(k-j)
 * f_k(ref)
 *
 * and only then is the tile added. A reference that is not finite (nothing seen yet) is replaced by
 * a neutral one: 0 in exponentials and coordinates, 1 under a power, a logarithm or a division.
 * Any reference is legal as long as the last is the producers' final value. */
#include <math.h>

#include "rules/repair_impl.h"

enum { MAX_LEAVES = 64 };

/* One state as seen by the lambdas: the old one, or the one being computed. */
typedef struct side {
    struct builder *b;
    bool is_new;
    ir_term slot[RL_MAX_SLOTS];
    ir_term raw[MAX_LEAVES]; /* value of each s leaf, unguarded */
    bool busy[RL_MAX_SLOTS];
    substitution guarded, plain;
} side;

typedef struct builder {
    solver *s;
    form *f;
    rl_slot slots[RL_MAX_SLOTS];
    i64 slot_count;
    side old[2], new;
    i64 sides;
    bool is_whole; /* references are results of a whole part: a multiple of a sum is finite */
    bool has_tile;
    ir_term results[2 * RL_MAX_REDUCTIONS]; /* of a part and of all: parameters of `shift` alone */
    i64 result_count;
} builder;

static ir_term raw_value(side *x, i64 leaf);
static ir_term slot_value(side *x, i64 slot);

/* Is the cut value a result of a sum times what is invariant? */
static bool is_multiple(solver *s, i64 leaf)
{
    form *f = s->f;
    if (!s->leaves.at[leaf].cut.i)
        return false;
    poly p = rl_poly_flat(f, rl_form_of(f, s->leaves.at[leaf].cut));
    bool is_one = p.n == 1;
    mono m = f->monos.at[is_one ? p.at[0].mono : 0];
    for (i64 i = 0; i < m.n; i++)
        is_one = is_one && (!(f->factors.at[m.at[i].factor].dep & DEP_S) || m.at[i].q.n > 0);
    return is_one;
}

static ir_term leaf_value(void *user, ir_term leaf, bool under, bool guards)
{
    side *x = user;
    builder *b = x->b;
    form *f = b->f;
    i64 i = rl_leaf_index(b->s, leaf);
    if (i < 0) {
        for (i64 k = 0; k < b->s->accs.n; k++)
            if (rl_slot_leaf(b->s, k).i == leaf.i)
                return slot_value(x, k);
        return leaf;
    }
    ir_term raw = raw_value(x, i);
    if (!guards || (b->is_whole && is_multiple(b->s, i)))
        return raw;
    ir_term test = ir_1(f->w, IR_finite, raw);
    if (under)
        test = ir_2(f->w, IR_and, test, ir_2(f->w, IR_ne, raw, rl_tm_real(f, 0)));
    return rl_tm_where(f, test, raw, rl_tm_real(f, under ? 1 : 0));
}

static ir_term guarded_leaf(void *user, ir_term leaf, bool under)
{
    return leaf_value(user, leaf, under, true);
}

static ir_term plain_leaf(void *user, ir_term leaf, bool under)
{
    return leaf_value(user, leaf, under, false);
}

static ir_term at_reference(side *x, ir_term t)
{
    return rl_substitute(&x->guarded, t, false);
}

/* With the values so far as they are: for readouts. */
static ir_term as_it_is(side *x, ir_term t)
{
    return rl_substitute(&x->plain, t, false);
}

static ir_term raw_value(side *x, i64 leaf)
{
    builder *b = x->b;
    if (x->raw[leaf].i)
        return x->raw[leaf];
    const s_leaf *l = &b->s->leaves.at[leaf];
    ir_term t;
    if (!x->is_new && l->stored >= 0)
        t = x->slot[l->stored];
    else if (l->slot >= 0)
        t = slot_value(x, l->slot);
    else if (l->reduction >= 0)
        t = as_it_is(x, b->s->readout[l->reduction]);
    else
        t = as_it_is(x, l->reference_cut);
    x->raw[leaf] = t;
    return t;
}

/* ---- transport --------------------------------------------------------------------------------
 */

static ir_term product_of(form *f, ir_term a, ir_term b)
{
    return a.i ? rl_tm_2(f, IR_mul, a, b) : b;
}

/* |c| * kappa * (m at the new reference - m at the old), turned round when `turned`. */
static ir_term moved(builder *b, side *old, rat c, u32 m, bool turned)
{
    form *f = b->f;
    ir_term s = rl_print_mono(f, (rat){1, 1}, rl_mono_part(f, m, DEP_S, DEP_S));
    ir_term from = at_reference(old, s), to = at_reference(&b->new, s);
    ir_term d = turned ? rl_tm_2(f, IR_sub, from, to) : rl_tm_2(f, IR_sub, to, from);
    ir_term kappa = rl_print_mono(f, (rat){1, 1}, rl_mono_part(f, m, DEP_S, 0));
    d = rl_tm_2(f, IR_mul, d, kappa);
    return rl_tm_2(f, IR_mul, rl_tm_real(f, fabs(rl_rat_value(c))), d);
}

/* tau(ref') - tau(ref), term by term: as one number it would round at tau's own size. */
static ir_term delta(builder *b, side *old, poly tau)
{
    form *f = b->f;
    ir_term sum = {0};
    for (i64 i = 0; i < tau.n; i++) {
        bool is_minus = tau.at[i].c.n < 0;
        ir_term d = moved(b, old, tau.at[i].c, tau.at[i].mono, !sum.i && is_minus);
        sum = !sum.i ? d : rl_tm_2(f, is_minus ? IR_sub : IR_add, sum, d);
    }
    return sum;
}

typedef struct ratio {
    ir_term value;   /* none: 1 */
    bool is_bounded; /* needs no guard per element */
} ratio;

static ratio roll_ratio(builder *b, side *old, const term_block *blk)
{
    form *f = b->f;
    mono m = f->monos.at[blk->roll];
    ir_term exponent = {0}, powers = {0};
    for (i64 i = 0; i < m.n; i++) {
        factor k = f->factors.at[m.at[i].factor];
        rat q = m.at[i].q;
        bool is_minus = q.n < 0;
        if (k.kind == FACTOR_EXP) {
            ir_term e = moved(b, old, q, k.mono, !exponent.i && is_minus);
            exponent = !exponent.i ? e : rl_tm_2(f, is_minus ? IR_sub : IR_add, exponent, e);
            continue;
        }
        ir_term from = rl_substitute(&old->guarded, k.term, true);
        ir_term to = rl_substitute(&b->new.guarded, k.term, true);
        ir_term r = is_minus ? rl_tm_2(f, IR_div, from, to) : rl_tm_2(f, IR_div, to, from);
        f64 size = fabs(rl_rat_value(q));
        r = size == 2 ? rl_tm_1(f, IR_square, r) : rl_tm_2(f, IR_pow, r, rl_tm_real(f, size));
        powers = product_of(f, powers, r);
    }
    ratio out = {0};
    if (exponent.i) {
        out.value = rl_tm_1(f, IR_exp, exponent);
        if (blk->proof >= 0) {
            /* -inf so far: nothing contributed, whatever the accumulators hold is 0 */
            ir_term seen = ir_1(f->w, IR_finite, raw_value(old, blk->proof));
            out.value = rl_tm_where(f, seen, out.value, rl_tm_real(f, 0));
            out.is_bounded = !powers.i;
        }
    }
    if (powers.i)
        out.value = product_of(f, out.value, powers);
    return out;
}

static ir_term power_term(form *f, ir_term x, i64 n)
{
    if (n == 1)
        return x;
    return n == 2 ? rl_tm_1(f, IR_square, x) : ir_2(f->w, IR_pow, x, rl_tm_real(f, (f64)n));
}

static i64 choose(i64 n, i64 k)
{
    i64 r = 1;
    for (i64 i = 0; i < k; i++)
        r = r * (n - i) / (i + 1);
    return r;
}

/* Accumulator `slot` of the old state at the new reference. */
static ir_term transported(builder *b, side *old, i64 slot)
{
    form *f = b->f;
    i64 index = b->s->accs.at[slot].block;
    ir_term a = old->slot[slot];
    if (index < 0)
        return a;
    const term_block *blk = &b->s->blocks.at[index];
    i64 own = 0;
    while (blk->use[own].slot != slot)
        own++;
    rat unit = rl_rat_of(blk->use[own].c.d, blk->use[own].c.n);
    ir_term shift[4] = {{0}};
    ir_term sum = a;
    for (i64 k = 0; k < blk->count; k++) {
        i64 c = 1;
        ir_term d = {0};
        bool is_above = k != own;
        for (i64 i = 0; i < blk->coordinate_count && is_above; i++) {
            i64 up = blk->index[k][i] - blk->index[own][i];
            is_above = up >= 0;
            if (up <= 0)
                continue;
            c *= choose(blk->index[k][i], blk->index[own][i]);
            if (!shift[i].i)
                shift[i] = delta(b, old, blk->coordinates[i].tau);
            d = product_of(f, d, power_term(f, shift[i], up));
        }
        if (!is_above || blk->use[k].slot < 0)
            continue;
        rat scale = rl_rat_mul(f, rl_rat_mul(f, blk->use[k].c, unit), (rat){c, 1});
        ir_term t = rl_tm_2(f, IR_mul, d, old->slot[blk->use[k].slot]);
        bool is_minus = scale.n < 0;
        t = rl_tm_2(f, IR_mul, rl_tm_real(f, fabs(rl_rat_value(scale))), t);
        sum = rl_tm_2(f, is_minus ? IR_sub : IR_add, sum, t);
    }
    ratio r = roll_ratio(b, old, blk);
    if (!r.value.i)
        return sum;
    ir_term moved_sum = rl_tm_2(f, IR_mul, sum, r.value);
    if (r.is_bounded)
        return moved_sum;
    return rl_tm_where(f, ir_2(f->w, IR_eq, sum, rl_tm_real(f, 0)), sum, moved_sum);
}

/* ---- slots ------------------------------------------------------------------------------------
 */

static ir_term combine(form *f, ir_reducer op, ir_term a, ir_term b)
{
    return rl_tm_2(f, op == IR_SUM ? IR_add : op == IR_MAX ? IR_max : IR_min, a, b);
}

static ir_term slot_value(side *x, i64 slot)
{
    builder *b = x->b;
    if (x->slot[slot].i || !x->is_new)
        return x->slot[slot];
    if (x->busy[slot])
        eqf_bug(b->f->w->ctx, "repair: slot %lld needs itself", (long long)slot);
    x->busy[slot] = true;
    const accumulator *acc = &b->s->accs.at[slot];
    ir_term sum = {0};
    for (i64 i = 0; i < b->sides; i++) {
        ir_term t = transported(b, &b->old[i], slot);
        sum = sum.i ? combine(b->f, acc->op, sum, t) : t;
    }
    if (b->has_tile)
        sum = combine(b->f, acc->op, sum, at_reference(x, acc->term));
    x->slot[slot] = sum;
    return sum;
}

static void mark_references(builder *b, ir_term t)
{
    const ir_node *n = ir_get(b->f->w, t);
    if (n->op == IR_in) {
        i64 i = rl_leaf_index(b->s, t);
        if (i >= 0)
            b->s->leaves.at[i].is_reference = true;
    }
    for (i64 i = 0; i < n->arg_count; i++)
        mark_references(b, ir_get(b->f->w, t)->args[i]);
}

static void mark_mono(builder *b, u32 m)
{
    mono x = b->f->monos.at[m];
    for (i64 i = 0; i < x.n; i++)
        mark_references(b, b->f->factors.at[x.at[i].factor].term);
}

static bool is_slot(const solver *s, ir_term t)
{
    for (i64 i = 0; i < s->accs.n; i++)
        if (s->slot_leaf[i].i == t.i)
            return true;
    return false;
}

/* Which s leaves are references; cut values get theirs, which may take a count. */
static void settle_references(builder *b)
{
    solver *s = b->s;
    for (i64 i = 0; i < s->accs.n; i++)
        mark_references(b, s->accs.at[i].term);
    for (i64 i = 0; i < s->blocks.n; i++) {
        mark_mono(b, s->blocks.at[i].roll);
        for (i64 c = 0; c < s->blocks.at[i].coordinate_count; c++)
            for (i64 k = 0; k < s->blocks.at[i].coordinates[c].tau.n; k++)
                mark_mono(b, s->blocks.at[i].coordinates[c].tau.at[k].mono);
    }
    for (i64 i = 0; i < s->leaves.n; i++) {
        s_leaf *l = &s->leaves.at[i];
        if (l->cut.i && l->is_reference)
            l->reference_cut = rl_with_count(s, s->system->n - 1, l->cut);
    }
}

static void lay_out_slots(builder *b)
{
    solver *s = b->s;
    settle_references(b);
    for (i64 i = 0; i < s->accs.n; i++) {
        const accumulator *acc = &s->accs.at[i];
        b->slots[i] = (rl_slot){
            .name = rl_fresh_name(s, "a", i),
            .op = acc->op,
            .reduction = acc->reduction,
            .identity = ir_reducer_identity_f64(acc->op),
            .dims = ir_get(b->f->w, acc->term)->dims,
            .is_count = acc->is_count,
            .is_added = acc->is_added,
        };
    }
    b->slot_count = s->accs.n;
    /* A reference that takes arithmetic is stored: computed anew it might round otherwise. */
    for (i64 i = 0; i < s->leaves.n; i++) {
        s_leaf *l = &s->leaves.at[i];
        if (!l->is_reference || l->slot >= 0)
            continue;
        if (l->reduction >= 0 && is_slot(s, s->readout[l->reduction]))
            continue;
        if (b->slot_count == RL_MAX_SLOTS)
            eqf_throw(b->f->w->ctx, EQF_E_LIMIT, NULL, NULL, "repair: more than 32 slots");
        l->stored = b->slot_count;
        b->slots[b->slot_count++] = (rl_slot){
            .name = rl_fresh_name(s, "r", i),
            .reduction = l->reduction >= 0 ? l->reduction : s->system->n - 1,
            .dims = ir_get(b->f->w, l->leaf)->dims,
        };
    }
}

/* ---- lambdas ----------------------------------------------------------------------------------
 */

static ir_term new_port(builder *b, const char *name, ir_atoms dims)
{
    ir_program *w = b->f->w;
    ir_dim *at = NEW_N(b->s->a, ir_dim, dims.n);
    for (i64 i = 0; i < dims.n; i++)
        at[i] = (ir_dim){ir_extent(w, dims.at[i]), {&dims.at[i], 1}};
    i64 n = ir_add_input(w, (ir_port){.name = intern_cstr(w->names, name),
                                      .dtype = (u8)b->f->real,
                                      .rank = dims.n,
                                      .dims = at});
    return w->inputs.at[n].term;
}

typedef struct lambda_copy {
    builder *b;
    ir_program *p;
    VEC(ir_term) done;
    VEC(ir_term) leaves; /* terms of the system */
} lambda_copy;

static ir_term add_parameter(lambda_copy *c, const char *name, dtype t, ir_atoms dims)
{
    ir_dim *at = NEW_N(c->b->s->a, ir_dim, dims.n);
    for (i64 i = 0; i < dims.n; i++)
        at[i] = (ir_dim){ir_extent(c->p, dims.at[i]), {&dims.at[i], 1}};
    i64 n = ir_add_input(c->p, (ir_port){.name = intern_cstr(c->p->names, name),
                                         .dtype = (u8)t,
                                         .rank = dims.n,
                                         .dims = at});
    return c->p->inputs.at[n].term;
}

/* The term of the system that an input of the workspace stands for. */
static ir_term source_of(builder *b, ir_term t)
{
    solver *s = b->s;
    return (i64)t.i < s->ports.n ? s->ports.at[t.i] : (ir_term){0};
}

static ir_term source_of_iota(builder *b, ir_term t)
{
    const ir_program *p = b->s->system->p;
    ir_atom d = ir_get(b->f->w, t)->attr.axis.at[0];
    for (i64 i = 1; i < p->nodes.n; i++)
        if (p->nodes.at[i].op == IR_iota && p->nodes.at[i].attr.axis.at[0].i == d.i)
            return (ir_term){(u32)i};
    return (ir_term){0};
}

/* Leaves in order of the system's terms, so that equal lambdas have equal parameters. */
static void find_leaves(builder *b, ir_term t, u8 *seen, u8 *wanted)
{
    if (seen[t.i])
        return;
    seen[t.i] = 1;
    const ir_node *n = ir_get(b->f->w, t);
    ir_term source = n->op == IR_in ? source_of(b, t) : (ir_term){0};
    if (n->op == IR_iota && ir_has(b->f->axis, n->attr.axis.at[0]))
        source = source_of_iota(b, t);
    if (source.i)
        wanted[source.i] = 1;
    for (i64 i = 0; i < n->arg_count; i++)
        find_leaves(b, n->args[i], seen, wanted);
}

static ir_term copy_term(lambda_copy *c, ir_term t)
{
    if (c->done.at[t.i].i)
        return c->done.at[t.i];
    ir_program *w = c->b->f->w;
    const ir_node *n = ir_get(w, t);
    ir_term *args = NEW_N(c->b->s->a, ir_term, n->arg_count);
    for (i64 i = 0; i < n->arg_count; i++)
        args[i] = copy_term(c, n->args[i]);
    ir_attr attr = n->attr;
    if (n->op == IR_in)
        eqf_bug(w->ctx, "repair: %s is no parameter of a lambda", intern_text(w->names, attr.name));
    if (attr.name)
        attr.name = intern_cstr(c->p->names, intern_text(w->names, attr.name));
    ir_term r = ir_make(c->p, (ir_op)n->op, attr, args, n->arg_count);
    c->done.at[t.i] = r;
    return r;
}

static rl_lambda make_lambda(builder *b, const char *name, const side *states, i64 state_count,
                             bool has_lanes, const ir_term *outputs, const ir_atoms *dims,
                             i64 output_count, const char *prefix)
{
    solver *s = b->s;
    ir_program *w = b->f->w;
    const ir_program *sys = s->system->p;
    lambda_copy c = {.b = b, .p = ir_program_new(s->a, sys->file, name)};
    for (i64 i = 1; i < w->atoms.n; i++)
        ir_atom_new(c.p, ir_atom_name(w, (ir_atom){(u32)i}), w->atoms.at[i].extent);
    c.done.at = NEW_N(s->a, ir_term, w->nodes.n);
    c.done.n = w->nodes.n;
    for (i64 k = 0; k < state_count; k++)
        for (i64 i = 0; i < b->slot_count; i++) {
            const char *port = k == 0 ? b->slots[i].name : rl_fresh_name(s, "b", i);
            c.done.at[states[k].slot[i].i] = add_parameter(&c, port, b->f->real, b->slots[i].dims);
        }
    for (i64 i = 0; i < b->result_count; i++)
        c.done.at[b->results[i].i] = add_parameter(&c, rl_fresh_name(s, "p", i), b->f->real,
                                                   ir_get(w, b->results[i])->dims);
    if (has_lanes)
        c.done.at[b->f->lanes.i] =
            add_parameter(&c, rl_fresh_name(s, "lanes", 0), b->f->real, (ir_atoms){0});
    u8 *seen = NEW_N(s->a, u8, w->nodes.n), *wanted = NEW_N(s->a, u8, sys->nodes.n);
    for (i64 i = 0; i < output_count; i++)
        find_leaves(b, outputs[i], seen, wanted);
    for (i64 i = 1; i < sys->nodes.n; i++) {
        if (!wanted[i])
            continue;
        ir_term source = {(u32)i};
        const ir_node *n = ir_get(sys, source);
        const char *port = n->op == IR_in ? intern_text(sys->names, n->attr.name)
                                          : rl_fresh_name(s, "iota", (i64)n->attr.axis.at[0].i);
        ir_term leaf = add_parameter(&c, port, (dtype)n->dtype, n->dims);
        vec_push(s->a, &c.leaves, source);
        for (i64 t = 1; t < w->nodes.n; t++) {
            const ir_node *wn = &w->nodes.at[t];
            bool is_it = wn->op == IR_in ? source_of(b, (ir_term){(u32)t}).i == source.i
                                         : wn->op == IR_iota && n->op == IR_iota &&
                                               wn->attr.axis.at[0].i == n->attr.axis.at[0].i;
            if (is_it)
                c.done.at[t] = leaf;
        }
    }
    for (i64 i = 0; i < output_count; i++) {
        ir_dim *at = NEW_N(s->a, ir_dim, dims[i].n);
        for (i64 j = 0; j < dims[i].n; j++)
            at[j] = (ir_dim){ir_extent(c.p, dims[i].at[j]), {&dims[i].at[j], 1}};
        const char *out = arena_printf(s->a, "%s.%lld", prefix, (long long)i);
        ir_add_output(c.p, (ir_port){.name = intern_cstr(c.p->names, out),
                                     .term = copy_term(&c, outputs[i]),
                                     .rank = dims[i].n,
                                     .dims = at});
    }
    return (rl_lambda){c.p, state_count, has_lanes, c.leaves.at, c.leaves.n};
}

static void start_side(builder *b, side *x, bool is_new)
{
    *x = (side){.b = b, .is_new = is_new};
    x->guarded = (substitution){.f = b->f, .leaf = guarded_leaf, .user = x};
    x->plain = (substitution){.f = b->f, .leaf = plain_leaf, .user = x};
}

static void start_old(builder *b, side *x, bool is_second)
{
    start_side(b, x, false);
    for (i64 i = 0; i < b->slot_count; i++)
        x->slot[i] = i < b->s->accs.n && !is_second
                         ? rl_slot_leaf(b->s, i)
                         : new_port(b, is_second ? rl_fresh_name(b->s, "b", i) : b->slots[i].name,
                                    b->slots[i].dims);
}

static rl_lambda step_lambda(builder *b, const char *name, i64 sides, bool has_tile)
{
    b->sides = sides;
    b->has_tile = has_tile;
    start_side(b, &b->new, true);
    ir_term outputs[RL_MAX_SLOTS];
    ir_atoms dims[RL_MAX_SLOTS];
    for (i64 i = 0; i < b->s->accs.n; i++)
        outputs[i] = slot_value(&b->new, i);
    for (i64 i = 0; i < b->s->leaves.n; i++)
        if (b->s->leaves.at[i].stored >= 0)
            outputs[b->s->leaves.at[i].stored] = raw_value(&b->new, i);
    for (i64 i = 0; i < b->slot_count; i++) {
        dims[i] = b->slots[i].dims;
        if (ir_atoms_minus(b->f->w, ir_get(b->f->w, outputs[i])->dims, dims[i]).n)
            eqf_bug(b->f->w->ctx, "repair: slot %s grows a dim", b->slots[i].name);
    }
    return make_lambda(b, name, b->old, sides, has_tile, outputs, dims, b->slot_count, "state");
}

/* Does it take the number of live positions, which only a loop knows? */
static bool takes_lanes(builder *b, ir_term t)
{
    return rl_mentions(b->f, t, b->f->lanes);
}

/* The accumulators of a part, kept at the part's results, moved to the results of all. A part counts as
 * many positions as the axis has: whoever uses this sees to it that they are live. */
static void build_shift(builder *b, rl_repair *out)
{
    solver *s = b->s;
    form *f = b->f;
    i64 n = s->system->n - 1, positions = 1;
    side *part = NEW(s->a, side);
    for (i64 i = 0; i < f->axis.n; i++)
        positions *= ir_extent(f->w, f->axis.at[i]);
    start_side(b, part, false);
    start_side(b, &b->new, false);
    b->is_whole = true;
    for (i64 i = 0; i < s->accs.n; i++)
        part->slot[i] = s->accs.at[i].is_count ? rl_tm_real(f, (f64)positions) : b->old[0].slot[i];
    b->result_count = 2 * n;
    for (i64 k = 0; k < 2 * n; k++)
        b->results[k] = new_port(b, rl_fresh_name(s, "p", k),
                                 ir_get(f->w, s->leaves.at[s->s_of[k % n]].leaf)->dims);
    for (i64 i = 0; i < s->leaves.n; i++) {
        s_leaf *l = &s->leaves.at[i];
        bool is_earlier = l->reduction >= 0 && l->reduction < n;
        if (l->slot >= 0) /* a maximum that is added bounds a part by itself */
            part->raw[i] = b->new.raw[i] = part->slot[l->slot];
        else if (is_earlier)
            part->raw[i] = b->results[l->reduction];
        else if (l->reduction < 0)
            part->raw[i] = as_it_is(part, l->reference_cut.i ? l->reference_cut : l->cut);
        if (l->slot < 0 && is_earlier)
            b->new.raw[i] = b->results[n + l->reduction];
        else if (l->slot < 0 && l->reduction < 0)
            b->new.raw[i] = as_it_is(&b->new, l->cut);
    }
    ir_term outputs[RL_MAX_SLOTS + 1];
    ir_atoms dims[RL_MAX_SLOTS + 1];
    for (i64 i = 0; i < s->accs.n; i++)
        b->new.slot[i] = transported(b, part, i);
    outputs[s->accs.n] = as_it_is(&b->new, s->readout[n]);
    dims[s->accs.n] = ir_get(f->w, s->body[n])->dims;
    out->has_shift = !takes_lanes(b, outputs[s->accs.n]);
    for (i64 i = 0; i < s->accs.n && out->has_shift; i++) {
        outputs[i] = at_reference(part, s->accs.at[i].term);
        out->shifts[i] = !s->accs.at[i].is_count && !takes_lanes(b, outputs[i]);
        if (!out->shifts[i])
            outputs[i] = rl_tm_real(f, 0);
        dims[i] = out->shifts[i] ? b->slots[i].dims : (ir_atoms){0};
    }
    if (out->has_shift)
        out->shift = make_lambda(b, "shift", &b->old[0], 1, false, outputs, dims, s->accs.n + 1, "shift");
    b->result_count = 0;
}

void rl_build_lambdas(solver *s, rl_repair *out)
{
    builder *b = NEW(s->a, builder);
    b->s = s;
    b->f = s->f;
    if (s->leaves.n > MAX_LEAVES)
        eqf_throw(s->f->w->ctx, EQF_E_LIMIT, NULL, NULL, "repair: too many references");
    lay_out_slots(b);
    start_old(b, &b->old[0], false);
    start_old(b, &b->old[1], true);
    out->update = step_lambda(b, "update", 1, true);
    out->merge = step_lambda(b, "merge", 2, false);
    ir_term finals[RL_MAX_REDUCTIONS];
    ir_atoms dims[RL_MAX_REDUCTIONS];
    /* Final values use earlier final values, not references. */
    side *last = NEW(s->a, side);
    start_side(b, last, false);
    memcpy(last->slot, b->old[0].slot, sizeof last->slot);
    for (i64 i = 0; i < s->leaves.n; i++) {
        const s_leaf *l = &s->leaves.at[i];
        ir_term t = l->slot >= 0        ? last->slot[l->slot]
                    : l->reduction >= 0 ? s->readout[l->reduction]
                                        : l->cut;
        last->raw[i] = as_it_is(last, t);
    }
    for (i64 k = 0; k < s->system->n; k++) {
        finals[k] = as_it_is(last, s->readout[k]);
        dims[k] = ir_get(s->f->w, s->body[k])->dims;
    }
    out->final =
        make_lambda(b, "final", &b->old[0], 1, false, finals, dims, s->system->n, "result");
    if (s->system->n > 1)
        build_shift(b, out);
    out->slots = arena_copy(s->a, b->slots, b->slot_count * (i64)sizeof(rl_slot));
    out->slot_count = b->slot_count;
}
