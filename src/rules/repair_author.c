/* What an accumulator adds for a tile, written down: the author's term without the factors that
 * wait, its derivatives by a coordinate, or, where that does not have the accumulator's normal
 * form, a term made from the normal form. Nothing is returned that does not. */
#include <math.h>

#include "rules/repair_impl.h"

#define ONE ((rat){1, 1})

/* ---- parts of monomials -------------------------------------------------------------------------
 */

static bool is_extremum_result(const solver *s, const factor *k)
{
    i64 leaf = k->kind == FACTOR_LEAF ? rl_leaf_index(s, k->term) : -1;
    return leaf >= 0 && s->leaves.at[leaf].reduction >= 0 &&
           s->system->at[s->leaves.at[leaf].reduction].op != IR_SUM;
}

/* Exponentials of results, and powers of a maximum that protect from overflow. */
u32 rl_rolling_part(solver *s, u32 m)
{
    form *f = s->f;
    mono x = f->monos.at[m];
    power *at = NEW_N(s->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++) {
        const factor *k = &f->factors.at[x.at[i].factor];
        bool is_high = rl_rat_value(x.at[i].q) <= -2; /* a divisor, against overflow */
        if (k->dep == DEP_S && (k->kind == FACTOR_EXP || (is_high && is_extremum_result(s, k))))
            at[n++] = x.at[i];
    }
    return rl_mono_of(f, at, n);
}

u32 rl_exponential_part(form *f, u32 m)
{
    mono x = f->monos.at[m];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++)
        if (f->factors.at[x.at[i].factor].kind == FACTOR_EXP)
            at[n++] = x.at[i];
    return rl_mono_of(f, at, n);
}

u32 rl_inverse(form *f, u32 m)
{
    return rl_mono_pow(f, m, (rat){-1, 1});
}

u32 rl_without(form *f, u32 b, u32 part)
{
    return rl_mono_mul(f, b, rl_inverse(f, part));
}

/* The reduction inside the tile that holds a term's positions, or NULL. */
const factor *rl_row_of(const form *f, u32 m, i64 *position)
{
    mono x = f->monos.at[m];
    for (i64 i = 0; i < x.n; i++) {
        const factor *k = &f->factors.at[x.at[i].factor];
        if (k->kind == FACTOR_ROW && k->op == IR_SUM && rl_rat_is(x.at[i].q, 1) && k->sum.n == 1) {
            *position = i;
            return k;
        }
    }
    return NULL;
}

/* ---- contributions in the author's form ---------------------------------------------------------
 */

typedef struct author {
    solver *s;
    u32 own_roll; /* of the block, as the program has it */
} author;

/* The exponents of `b` that every term of t has. */
static u32 shared_with(form *f, ir_term t, u32 b)
{
    if (!dtype_is_float((dtype)ir_get(f->w, t)->dtype))
        return 0;
    u32 common = rl_poly_common(f, rl_poly_flat(f, rl_form_of(f, t)));
    mono x = f->monos.at[b];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++) {
        rat q = rl_mono_exponent(f, common, x.at[i].factor);
        if (q.n == 0 || (q.n > 0) != (x.at[i].q.n > 0))
            continue;
        bool is_more = fabs(rl_rat_value(q)) > fabs(rl_rat_value(x.at[i].q));
        at[n++] = (power){x.at[i].factor, is_more ? x.at[i].q : q};
    }
    return rl_mono_of(f, at, n);
}

/* A term equal to t / b with the shape of t, or none. */
static ir_term strip(form *f, ir_term t, u32 b)
{
    if (b == 0)
        return t;
    ir_node n = *ir_get(f->w, t);
    if (rl_form_dep(f, t) == DEP_S) {
        poly p = rl_poly_flat(f, rl_form_of(f, t));
        if (p.n != 1)
            return (ir_term){0};
        return rl_print_mono(f, p.at[0].c, rl_without(f, p.at[0].mono, b));
    }
    ir_term args[3];
    u32 part[2];
    switch (n.op) {
    case IR_mul:
    case IR_matmul:
    case IR_div: {
        part[0] = shared_with(f, n.args[0], b);
        u32 rest = rl_without(f, b, part[0]);
        part[1] = n.op == IR_div ? rl_inverse(f, shared_with(f, n.args[1], rl_inverse(f, rest)))
                                 : shared_with(f, n.args[1], rest);
        if (rl_without(f, rest, part[1]) != 0)
            return (ir_term){0};
        args[0] = strip(f, n.args[0], part[0]);
        args[1] = strip(f, n.args[1], n.op == IR_div ? rl_inverse(f, part[1]) : part[1]);
        return args[0].i && args[1].i ? rl_tm_again(f, t, args) : (ir_term){0};
    }
    case IR_square:
    case IR_sqrt:
    case IR_rsqrt:
    case IR_recip: {
        rat q = n.op == IR_square  ? (rat){1, 2}
                : n.op == IR_sqrt  ? (rat){2, 1}
                : n.op == IR_rsqrt ? (rat){-2, 1}
                                   : (rat){-1, 1};
        args[0] = strip(f, n.args[0], rl_mono_pow(f, b, q));
        return args[0].i ? rl_tm_again(f, t, args) : (ir_term){0};
    }
    case IR_pow: {
        f64 q;
        if (!rl_tm_is_const(f, n.args[1], &q) || q != floor(q) || q == 0 || fabs(q) > 16)
            return (ir_term){0};
        args[0] = strip(f, n.args[0], rl_mono_pow(f, b, rl_rat_of(1, (i64)q)));
        args[1] = n.args[1];
        return args[0].i ? rl_tm_again(f, t, args) : (ir_term){0};
    }
    case IR_add:
    case IR_sub:
        args[0] = strip(f, n.args[0], b);
        args[1] = strip(f, n.args[1], b);
        return args[0].i && args[1].i ? rl_tm_again(f, t, args) : (ir_term){0};
    case IR_where:
        args[0] = n.args[0];
        args[1] = strip(f, n.args[1], b);
        args[2] = strip(f, n.args[2], b);
        return args[1].i && args[2].i ? rl_tm_again(f, t, args) : (ir_term){0};
    case IR_neg:
    case IR_cast:
    case IR_expand:
    case IR_reduce:
        if (n.op == IR_reduce && n.attr.reducer != IR_SUM)
            return (ir_term){0};
        args[0] = strip(f, n.args[0], b);
        return args[0].i ? rl_tm_again(f, t, args) : (ir_term){0};
    case IR_const:
        return n.attr.f == 0 ? t : (ir_term){0};
    default:
        return (ir_term){0};
    }
}

static bool has_exponentials(author *x, ir_term t)
{
    if (!dtype_is_float((dtype)ir_get(x->s->f->w, t)->dtype))
        return false;
    poly p = rl_poly_flat(x->s->f, rl_form_of(x->s->f, t));
    for (i64 i = 0; i < p.n; i++)
        if (rl_rolling_part(x->s, p.at[i].mono))
            return true;
    return false;
}

/* The terms of t that belong to the block; none when t's shape does not separate them. */
static ir_term project(author *x, ir_term t)
{
    form *f = x->s->f;
    poly p = rl_poly_flat(f, rl_form_of(f, t));
    i64 mine = 0;
    for (i64 i = 0; i < p.n; i++)
        mine += rl_rolling_part(x->s, p.at[i].mono) == x->own_roll;
    if (mine == p.n)
        return t;
    if (mine == 0)
        return rl_tm_real(f, 0);
    ir_node n = *ir_get(f->w, t);
    ir_term args[2] = {{0}, {0}};
    for (i64 i = 0; i < n.arg_count && i < 2; i++)
        args[i] = n.args[i];
    switch (n.op) {
    case IR_add:
    case IR_sub:
        args[0] = project(x, n.args[0]);
        args[1] = project(x, n.args[1]);
        break;
    case IR_mul:
    case IR_matmul:
    case IR_div: {
        bool first = has_exponentials(x, n.args[0]), second = has_exponentials(x, n.args[1]);
        if (first == second || (second && n.op == IR_div))
            return (ir_term){0};
        i64 i = first ? 0 : 1;
        args[i] = project(x, n.args[i]);
        break;
    }
    case IR_neg:
    case IR_cast:
    case IR_expand:
    case IR_reduce:
        if (n.op == IR_reduce && n.attr.reducer != IR_SUM)
            return (ir_term){0};
        args[0] = project(x, n.args[0]);
        break;
    default:
        return (ir_term){0};
    }
    if (!args[0].i || (n.arg_count > 1 && !args[1].i))
        return (ir_term){0};
    return rl_tm_again(f, t, args);
}

/* d t / d v, exponentials taken as constants; none outside the operators that it knows. */
static ir_term derive(form *f, ir_term t, ir_term v)
{
    if (t.i == v.i)
        return rl_tm_real(f, 1);
    if (!rl_mentions(f, t, v) || ir_get(f->w, t)->op == IR_exp)
        return rl_tm_real(f, 0);
    ir_node n = *ir_get(f->w, t);
    ir_term a = n.args[0], b = n.arg_count > 1 ? n.args[1] : (ir_term){0};
    if (n.op == IR_log || n.op == IR_max || n.op == IR_min || n.op == IR_abs)
        return (ir_term){0};
    ir_term da = n.op == IR_where ? rl_tm_real(f, 0) : derive(f, a, v);
    ir_term db = n.arg_count > 1 ? derive(f, b, v) : (ir_term){0};
    if (!da.i || (n.arg_count > 1 && !db.i))
        return (ir_term){0};
    f64 q;
    switch (n.op) {
    case IR_add:
    case IR_sub:
        return rl_tm_2(f, (ir_op)n.op, da, db);
    case IR_neg:
    case IR_cast:
    case IR_expand:
        return rl_tm_again(f, t, &da);
    case IR_reduce:
        return n.attr.reducer == IR_SUM ? rl_tm_again(f, t, &da) : (ir_term){0};
    case IR_mul:
        return rl_tm_2(f, IR_add, rl_tm_2(f, IR_mul, da, b), rl_tm_2(f, IR_mul, a, db));
    case IR_matmul: {
        ir_term left = rl_tm_again(f, t, (ir_term[]){da, b});
        ir_term right = rl_tm_again(f, t, (ir_term[]){a, db});
        return left.i && right.i ? rl_tm_2(f, IR_add, left, right) : (ir_term){0};
    }
    case IR_div:
        return rl_mentions(f, b, v) ? (ir_term){0} : rl_tm_2(f, IR_div, da, b);
    case IR_square:
        return rl_tm_2(f, IR_mul, rl_tm_2(f, IR_mul, rl_tm_real(f, 2), a), da);
    case IR_pow: {
        if (!rl_tm_is_const(f, b, &q))
            return (ir_term){0};
        ir_term p = q == 2   ? a
                    : q == 3 ? rl_tm_1(f, IR_square, a)
                             : ir_2(f->w, IR_pow, a, rl_tm_real(f, q - 1));
        return rl_tm_2(f, IR_mul, rl_tm_2(f, IR_mul, rl_tm_real(f, q), p), da);
    }
    case IR_where: {
        ir_term d2 = derive(f, n.args[2], v);
        return d2.i ? rl_tm_where(f, n.args[0], db, d2) : d2;
    }
    default:
        return (ir_term){0};
    }
}

static ir_term swap_leaf(void *user, ir_term leaf, bool under)
{
    (void)under;
    const ir_term *pair = user;
    return leaf.i == pair[0].i ? pair[1] : leaf;
}

/* The author's shift replaced by another leaf, when both are bare. */
static ir_term reshift(form *f, ir_term t, u32 own, u32 roll)
{
    mono a = f->monos.at[own], b = f->monos.at[roll];
    if (a.n != 1 || b.n != 1 || f->factors.at[a.at[0].factor].kind != FACTOR_EXP ||
        f->factors.at[b.at[0].factor].kind != FACTOR_EXP)
        return (ir_term){0};
    mono x = f->monos.at[f->factors.at[a.at[0].factor].mono];
    mono y = f->monos.at[f->factors.at[b.at[0].factor].mono];
    if (x.n != 1 || y.n != 1)
        return (ir_term){0};
    ir_term pair[2] = {f->factors.at[x.at[0].factor].term, f->factors.at[y.at[0].factor].term};
    substitution sub = {.f = f, .leaf = swap_leaf, .user = pair};
    return rl_substitute(&sub, t, false);
}

/* ---- contributions from the normal form ---------------------------------------------------------
 */

/* All terms under one row sum, one exponential in front. */
static ir_term print_contribution(form *f, poly target, u32 roll, poly u)
{
    ir_atoms axis = {0};
    poly inner = rl_poly_zero(), shift = u;
    mono r = f->monos.at[roll];
    u32 roll_exp = rl_exponential_part(f, roll);
    for (i64 i = 0; i < r.n; i++)
        if (f->factors.at[r.at[i].factor].kind == FACTOR_EXP)
            shift = rl_poly_add(f, shift,
                                rl_poly_mono(f, f->factors.at[r.at[i].factor].mono, r.at[i].q));
    for (i64 i = 0; i < target.n; i++) {
        i64 position;
        const factor *row = rl_row_of(f, target.at[i].mono, &position);
        if (row)
            axis = ir_atoms_union(f->w, axis, row->axis);
    }
    if (axis.n == 0)
        return rl_print_poly(f, target);
    u32 take_u = 0;
    for (i64 i = 0; i < u.n; i++)
        take_u = rl_mono_mul(f, take_u,
                             rl_mono_of(f, &(power){rl_factor_exp(f, u.at[i].mono), u.at[i].c}, 1));
    for (i64 i = 0; i < target.n; i++) {
        i64 position;
        u32 m = target.at[i].mono;
        const factor *row = rl_row_of(f, m, &position);
        if (row) {
            power p = f->monos.at[m].at[position];
            m = rl_without(f, m, rl_mono_of(f, &p, 1));
            m = rl_mono_mul(f, m, row->sum.at[0].mono);
            inner = rl_poly_add(
                f, inner,
                rl_poly_scale(f, rl_poly_mono(f, m, target.at[i].c), row->sum.at[0].c, 0));
        } else {
            /* a count of positions: 1 at each */
            u32 one = rl_mono_of(f, &(power){f->lanes_factor, ONE}, 1);
            if (!rl_rat_is(rl_mono_exponent(f, m, f->lanes_factor), 1))
                return (ir_term){0};
            inner = rl_poly_add(f, inner, rl_poly_mono(f, rl_without(f, m, one), target.at[i].c));
        }
    }
    inner = rl_poly_scale(f, inner, ONE, rl_inverse(f, rl_mono_mul(f, roll_exp, take_u)));
    ir_term x = rl_print_poly(f, inner);
    if (shift.n)
        x = rl_tm_2(f, IR_mul, rl_tm_1(f, IR_exp, rl_print_poly(f, shift)), x);
    return rl_tm_reduce(f, IR_SUM, x, axis);
}

/* ---- one accumulator ----------------------------------------------------------------------------
 */

/* Does t exponentiate a result? */
bool rl_has_result_exp(form *f, ir_term t)
{
    const ir_node *n = ir_get(f->w, t);
    if (!(rl_form_dep(f, t) & DEP_S))
        return false;
    if (n->op == IR_exp || n->op == IR_exp2)
        return true;
    for (i64 i = 0; i < n->arg_count; i++)
        if (rl_has_result_exp(f, ir_get(f->w, t)->args[i]))
            return true;
    return false;
}

/* The body without what waits, its own shift in front or the block's. */
static ir_term author_block(solver *s, const draft *d, const shape *sh)
{
    form *f = s->f;
    author x = {s, d->own_roll};
    ir_term t = d->is_only ? s->cut_body[d->k] : project(&x, s->cut_body[d->k]);
    if (!t.i || sh->base.n != 1)
        return (ir_term){0};
    u32 base = sh->base.at[0].mono;
    if (!rl_exponential_part(f, d->roll))
        return strip(f, t, base);
    /* base holds own_roll / roll already */
    t = strip(f, t, rl_mono_mul(f, base, rl_mono_mul(f, d->roll, rl_inverse(f, d->own_roll))));
    return t.i && d->own_roll != d->roll ? reshift(f, t, d->own_roll, d->roll) : t;
}

static ir_term try_author(solver *s, const draft *d, const shape *sh, const u8 *j, poly target)
{
    form *f = s->f;
    ir_term t = author_block(s, d, sh);
    if (!t.i)
        return t;
    i64 factorial = 1;
    for (i64 c = 0; c < sh->dims; c++) {
        if (j[c] == 0)
            continue;
        pterm first = sh->tau[c].at[0];
        mono m = f->monos.at[first.mono];
        if (m.n != 1 || !rl_rat_is(m.at[0].q, 1))
            return (ir_term){0};
        ir_term v = f->factors.at[m.at[0].factor].term;
        for (i64 n = 1; n <= j[c]; n++) {
            t = derive(f, t, v);
            if (!t.i)
                return t;
            t = rl_tm_2(f, IR_mul, rl_tm_real(f, 1 / rl_rat_value(first.c)), t);
            factorial *= n;
        }
    }
    t = rl_tm_2(f, IR_mul, rl_tm_real(f, 1 / (f64)factorial), t);
    return rl_poly_eq(rl_poly_flat(f, rl_form_of(f, t)), target) ? t : (ir_term){0};
}

ir_term rl_contribution(solver *s, const draft *d, const shape *sh, const u8 *j, poly target)
{
    u32 count = rl_mono_of(s->f, &(power){s->f->lanes_factor, ONE}, 1);
    if (target.n == 1 && target.at[0].mono == count) {
        ir_term lanes = rl_print_poly(s->f, target);
        return rl_poly_eq(rl_form_of(s->f, lanes), target) ? lanes : (ir_term){0};
    }
    ir_term t = try_author(s, d, sh, j, target);
    if (t.i)
        return t;
    t = print_contribution(s->f, target, d->roll, d->u);
    if (t.i && rl_poly_eq(rl_poly_flat(s->f, rl_form_of(s->f, t)), target))
        return t;
    t = rl_print_poly(s->f, target);
    return rl_poly_eq(rl_poly_flat(s->f, rl_form_of(s->f, t)), target) ? t : (ir_term){0};
}
