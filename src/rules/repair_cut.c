/* Cut values: a mean, a ratio of sums under add or sub becomes a result of its own, so that it can
 * be its own reference and is rounded once. */
#include <math.h>

#include "rules/repair_impl.h"

bool rl_mentions(const form *f, ir_term t, ir_term leaf)
{
    const ir_node *n = ir_get(f->w, t);
    if (t.i == leaf.i)
        return true;
    for (i64 i = 0; i < n->arg_count; i++)
        if (rl_mentions(f, n->args[i], leaf))
            return true;
    return false;
}

typedef struct cutter {
    solver *s;
    VEC(ir_term) done;
    VEC(i64) used; /* leaves of the solver that are cuts in this body */
    u32 banned;    /* bit set of cut leaves that are not to be used */
} cutter;

ir_term rl_with_count(solver *s, i64 k, ir_term t)
{
    form *f = s->f;
    ir_node n = *ir_get(f->w, t);
    f64 x, extent = 1;
    for (i64 i = 0; i < f->axis.n; i++)
        extent *= (f64)ir_extent(f->w, f->axis.at[i]);
    if (rl_tm_is_const(f, t, &x)) {
        /* N times the extents of other summed atoms, or its reciprocal as f32 or f64 spell it */
        f64 ratio = x / extent, inverse = 1 / (x * extent);
        bool is_extent = ratio >= 1 && ratio == floor(ratio);
        bool is_reciprocal =
            x > 0 && x < 1 && inverse > 0.999 && fabs(inverse - round(inverse)) < 1e-6 * inverse;
        if (!is_extent && !is_reciprocal)
            return t;
        slot_use n_use = rl_add_accumulator(s, k, IR_SUM, f->lanes, rl_form_of(f, f->lanes), -1);
        if (n_use.slot < 0)
            return t;
        ir_term count = rl_slot_leaf(s, n_use.slot);
        if (is_extent)
            return rl_tm_2(f, IR_mul, rl_tm_real(f, ratio), count);
        return rl_tm_2(f, IR_div, rl_tm_real(f, x * extent), count);
    }
    if (!n.arg_count)
        return t;
    ir_term *args = NEW_N(s->a, ir_term, n.arg_count);
    for (i64 i = 0; i < n.arg_count; i++)
        args[i] = rl_with_count(s, k, n.args[i]);
    return rl_tm_again(f, t, args);
}

static bool is_ratio_of_sums(solver *s, ir_term t)
{
    form *f = s->f;
    if (rl_form_dep(f, t) != DEP_S || rl_leaf_index(s, t) >= 0)
        return false;
    poly p = rl_poly_flat(f, rl_form_of(f, t));
    if (p.n != 1 || f->stop)
        return false;
    mono m = f->monos.at[p.at[0].mono];
    for (i64 i = 0; i < m.n; i++) {
        const factor *k = &f->factors.at[m.at[i].factor];
        if (!(k->dep & DEP_S))
            continue;
        i64 leaf = k->kind == FACTOR_LEAF ? rl_leaf_index(s, k->term) : -1;
        if (leaf < 0 || s->leaves.at[leaf].reduction < 0 || !rl_rat_is_int(m.at[i].q) ||
            s->system->at[s->leaves.at[leaf].reduction].op != IR_SUM)
            return false;
    }
    return true;
}

static i64 cut_leaf(solver *s, ir_term t)
{
    form *f = s->f;
    for (i64 i = 0; i < s->leaves.n; i++)
        if (s->leaves.at[i].cut.i == t.i)
            return i;
    const ir_node *n = ir_get(f->w, t);
    ir_dim *dims = NEW_N(s->a, ir_dim, n->dims.n);
    for (i64 i = 0; i < n->dims.n; i++)
        dims[i] = (ir_dim){ir_extent(f->w, n->dims.at[i]), {&n->dims.at[i], 1}};
    const char *name = rl_fresh_name(s, "c", s->leaves.n);
    i64 port = ir_add_input(f->w, (ir_port){.name = intern_cstr(f->w->names, name),
                                            .dtype = (u8)f->real,
                                            .rank = n->dims.n,
                                            .dims = dims});
    ir_term leaf = f->w->inputs.at[port].term;
    rl_form_leaf(f, leaf, DEP_S, rl_form_sign(f, t));
    vec_push(s->a, &s->leaves,
             (s_leaf){.leaf = leaf, .reduction = -1, .cut = t, .slot = -1, .stored = -1});
    return s->leaves.n - 1;
}

static ir_term cut_values(cutter *c, ir_term t)
{
    solver *s = c->s;
    form *f = s->f;
    i64 need = (i64)t.i + 1;
    if (c->done.n < need) {
        vec_reserve(s->a, &c->done, need);
        for (; c->done.n < need; c->done.n++)
            c->done.at[c->done.n] = (ir_term){0};
    }
    if (c->done.at[t.i].i)
        return c->done.at[t.i];
    ir_node n = *ir_get(f->w, t);
    ir_term result = t;
    if (n.arg_count && rl_form_dep(f, t) & DEP_S) {
        ir_term *args = NEW_N(s->a, ir_term, n.arg_count);
        bool changed = false;
        for (i64 i = 0; i < n.arg_count; i++) {
            args[i] = n.args[i];
            bool may_cut = (n.op == IR_add || n.op == IR_sub) &&
                           rl_form_dep(f, n.args[1 - i]) & DEP_X && is_ratio_of_sums(s, n.args[i]);
            if (may_cut) {
                i64 leaf = cut_leaf(s, n.args[i]);
                if (!(c->banned >> leaf & 1)) {
                    args[i] = s->leaves.at[leaf].leaf;
                    bool is_new = true;
                    for (i64 j = 0; j < c->used.n; j++)
                        is_new = is_new && c->used.at[j] != leaf;
                    if (is_new)
                        vec_push(s->a, &c->used, leaf);
                }
            } else {
                args[i] = cut_values(c, n.args[i]);
            }
            changed = changed || args[i].i != n.args[i].i;
        }
        if (changed)
            result = ir_make(f->w, (ir_op)n.op, n.attr, args, n.arg_count);
    }
    c->done.at[t.i] = result;
    return result;
}

/* Does t use `leaf` other than in a factor of a product? */
static bool is_term_of_sum(form *f, ir_term t, ir_term leaf)
{
    const ir_node *n = ir_get(f->w, t);
    bool multiplies = n->op == IR_mul || n->op == IR_div || n->op == IR_matmul;
    for (i64 i = 0; i < n->arg_count; i++) {
        ir_term arg = ir_get(f->w, t)->args[i];
        u8 dep = rl_form_dep(f, arg);
        if (dep == DEP_S && !multiplies && rl_mentions(f, arg, leaf))
            return true;
        if (dep == DEP_MIXED && is_term_of_sum(f, arg, leaf))
            return true;
    }
    return false;
}

/* The body with cut values as leaves of their own, where no other term of a sum in it uses theirs.
 */
ir_term rl_cut_body(solver *s, i64 k)
{
    cutter c = {.s = s};
    for (;;) {
        c.done.n = c.used.n = 0;
        ir_term t = cut_values(&c, s->body[k]);
        u32 before = c.banned;
        for (i64 i = 0; i < c.used.n; i++) {
            ir_term cut = s->leaves.at[c.used.at[i]].cut;
            for (i64 j = 0; j < s->leaves.n; j++)
                if (s->leaves.at[j].reduction >= 0 &&
                    rl_mentions(s->f, cut, s->leaves.at[j].leaf) &&
                    is_term_of_sum(s->f, t, s->leaves.at[j].leaf))
                    c.banned |= 1u << c.used.at[i];
        }
        if (c.banned == before)
            return t;
    }
}
