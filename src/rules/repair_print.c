/* Building terms: simplifying constructors, normal forms back to terms, substitution. Products of
 * exponentials print as one exponential of a sum, indicators as `where`. */
#include <math.h>

#include "rules/repair_impl.h"

ir_term rl_tm_real(form *f, f64 x)
{
    return ir_f(f->w, f->real, x);
}

bool rl_tm_is_const(const form *f, ir_term t, f64 *value)
{
    const ir_node *n = ir_get(f->w, t);
    if (n->op != IR_const || !dtype_is_float((dtype)n->dtype))
        return false;
    *value = n->attr.f;
    return true;
}

ir_term rl_tm_1(form *f, ir_op op, ir_term a)
{
    const ir_node *n = ir_get(f->w, a);
    f64 x;
    if (op == IR_neg && n->op == IR_neg)
        return n->args[0];
    if (rl_tm_is_const(f, a, &x)) {
        if (op == IR_neg)
            return rl_tm_real(f, -x);
        if (op == IR_exp && x == 0)
            return rl_tm_real(f, 1);
        if (x == 1 &&
            (op == IR_recip || op == IR_sqrt || op == IR_rsqrt || op == IR_square || op == IR_abs))
            return a;
    }
    return ir_1(f->w, op, a);
}

ir_term rl_tm_2(form *f, ir_op op, ir_term a, ir_term b)
{
    f64 x, y;
    bool ca = rl_tm_is_const(f, a, &x), cb = rl_tm_is_const(f, b, &y);
    if (op == IR_add && ca && x == 0)
        return b;
    if ((op == IR_add || op == IR_sub) && cb && y == 0)
        return a;
    if (op == IR_sub && ca && x == 0)
        return rl_tm_1(f, IR_neg, b);
    if (op == IR_add && ir_get(f->w, b)->op == IR_neg)
        return rl_tm_2(f, IR_sub, a, ir_get(f->w, b)->args[0]);
    if (op == IR_sub && ir_get(f->w, b)->op == IR_neg)
        return rl_tm_2(f, IR_add, a, ir_get(f->w, b)->args[0]);
    if (op == IR_mul && ca && x == 1)
        return b;
    if ((op == IR_mul || op == IR_div || op == IR_pow) && cb && y == 1)
        return a;
    if (op == IR_mul && ca && x == -1)
        return rl_tm_1(f, IR_neg, b);
    if ((op == IR_mul || op == IR_div) && cb && y == -1)
        return rl_tm_1(f, IR_neg, a);
    if (op == IR_mul && ((ca && x == 0) || (cb && y == 0)))
        return rl_tm_real(f, 0);
    if (ca && cb && op == IR_mul)
        return rl_tm_real(f, x * y);
    const ir_node *n = ir_get(f->w, b);
    f64 z;
    if (op == IR_mul && ca && n->op == IR_mul && rl_tm_is_const(f, n->args[0], &z))
        return rl_tm_2(f, IR_mul, rl_tm_real(f, x * z), n->args[1]);
    return ir_2(f->w, op, a, b);
}

ir_term rl_tm_where(form *f, ir_term c, ir_term a, ir_term b)
{
    return a.i == b.i ? a : ir_where(f->w, c, a, b);
}

ir_term rl_tm_reduce(form *f, ir_reducer op, ir_term x, ir_atoms axis)
{
    ir_atoms dims = ir_get(f->w, x)->dims;
    ir_atoms missing = ir_atoms_minus(f->w, axis, dims),
             there = ir_atoms_minus(f->w, axis, missing);
    ir_atoms others = ir_atoms_minus(f->w, missing, f->axis);
    i64 cut = missing.n - others.n;
    if (there.n)
        x = ir_make(f->w, IR_reduce, (ir_attr){.reducer = (u8)op, .axis = there}, &x, 1);
    if (op != IR_SUM)
        return x;
    f64 n = 1;
    for (i64 i = 0; i < others.n; i++)
        n *= (f64)ir_extent(f->w, others.at[i]);
    x = rl_tm_2(f, IR_mul, x, rl_tm_real(f, n));
    if (cut == 0)
        return x;
    return cut == f->axis.n ? rl_tm_2(f, IR_mul, x, f->lanes) : (ir_term){0};
}

ir_term rl_tm_again(form *f, ir_term t, const ir_term *args)
{
    ir_node n = *ir_get(f->w, t);
    switch (n.op) {
    case IR_add:
    case IR_sub:
    case IR_mul:
    case IR_div:
    case IR_pow:
        if (dtype_is_float((dtype)n.dtype))
            return rl_tm_2(f, (ir_op)n.op, args[0], args[1]);
        break;
    case IR_neg:
    case IR_exp:
    case IR_recip:
    case IR_sqrt:
    case IR_rsqrt:
    case IR_square:
    case IR_abs:
        if (dtype_is_float((dtype)n.dtype))
            return rl_tm_1(f, (ir_op)n.op, args[0]);
        break;
    case IR_where:
        return rl_tm_where(f, args[0], args[1], args[2]);
    case IR_reduce:
        return rl_tm_reduce(f, (ir_reducer)n.attr.reducer, args[0], n.attr.axis);
    case IR_matmul: {
        ir_atoms dims =
            ir_atoms_union(f->w, ir_get(f->w, args[0])->dims, ir_get(f->w, args[1])->dims);
        f64 x;
        if (ir_atoms_minus(f->w, n.attr.axis, dims).n || rl_tm_is_const(f, args[0], &x) ||
            rl_tm_is_const(f, args[1], &x))
            return rl_tm_reduce(f, IR_SUM, rl_tm_2(f, IR_mul, args[0], args[1]), n.attr.axis);
        break;
    }
    case IR_expand: {
        /* An operand that became constant stays one: it is repeated anyway. */
        if (ir_get(f->w, args[0])->dims.n == 0)
            return args[0];
        break;
    }
    default:
        break;
    }
    return ir_make(f->w, (ir_op)n.op, n.attr, args, n.arg_count);
}

static ir_term print_power(form *f, ir_term x, rat q)
{
    if (rl_rat_is(q, 1))
        return x;
    if (rl_rat_is(q, 2))
        return rl_tm_1(f, IR_square, x);
    if (q.n == 1 && q.d == 2)
        return rl_tm_1(f, IR_sqrt, x);
    return ir_2(f->w, IR_pow, x, rl_tm_real(f, rl_rat_value(q)));
}

ir_term rl_print_mono(form *f, rat c, u32 m)
{
    mono x = f->monos.at[m];
    ir_term up = {0}, down = {0}, exponent = {0}, test = {0}, root = {0};
    for (i64 i = 0; i < x.n; i++) {
        factor k = f->factors.at[x.at[i].factor];
        rat q = x.at[i].q;
        if (k.kind == FACTOR_EXP) {
            bool is_minus = q.n < 0 && exponent.i;
            ir_term e = rl_print_mono(f, is_minus ? (rat){-q.n, q.d} : q, k.mono);
            exponent = !exponent.i ? e : rl_tm_2(f, is_minus ? IR_sub : IR_add, exponent, e);
        } else if (k.kind == FACTOR_INDICATOR) {
            test = test.i ? ir_2(f->w, IR_and, test, k.test) : k.test;
        } else if (q.n < 0 && q.d == 2 && q.n == -1 && !root.i) {
            root = rl_tm_1(f, IR_rsqrt, k.term);
        } else if (q.n < 0) {
            ir_term p = print_power(f, k.term, (rat){-q.n, q.d});
            down = down.i ? rl_tm_2(f, IR_mul, down, p) : p;
        } else {
            ir_term p = print_power(f, k.term, q);
            up = up.i ? rl_tm_2(f, IR_mul, up, p) : p;
        }
    }
    ir_term t = {0};
    if (exponent.i)
        t = rl_tm_1(f, IR_exp, exponent);
    if (up.i)
        t = t.i ? rl_tm_2(f, IR_mul, t, up) : up;
    if (root.i)
        t = t.i ? rl_tm_2(f, IR_mul, t, root) : root;
    /* A denominator that is no power of two stands as one, to be read back as it is. */
    bool is_dyadic = (c.d & (c.d - 1)) == 0;
    ir_term scale = rl_tm_real(f, is_dyadic ? rl_rat_value(c) : (f64)c.n);
    t = t.i ? rl_tm_2(f, IR_mul, scale, t) : scale;
    if (!is_dyadic) {
        ir_term d = rl_tm_real(f, (f64)c.d);
        down = down.i ? rl_tm_2(f, IR_mul, d, down) : d;
    }
    if (down.i)
        t = rl_tm_2(f, IR_div, t, down);
    return test.i ? rl_tm_where(f, test, t, rl_tm_real(f, 0)) : t;
}

/* Positive terms of the tile first, then left to right: (x - m) - log l. */
ir_term rl_print_poly(form *f, poly p)
{
    ir_term sum = {0};
    for (int pass = 0; pass < 4; pass++) {
        for (i64 i = 0; i < p.n; i++) {
            bool is_minus = p.at[i].c.n < 0, is_x = rl_mono_dep(f, p.at[i].mono) & DEP_X;
            if (pass != (is_minus ? 2 : 0) + (is_x ? 0 : 1))
                continue;
            rat c = p.at[i].c;
            if (!sum.i) {
                sum = rl_print_mono(f, c, p.at[i].mono);
            } else {
                ir_term t = rl_print_mono(f, is_minus ? (rat){-c.n, c.d} : c, p.at[i].mono);
                sum = rl_tm_2(f, is_minus ? IR_sub : IR_add, sum, t);
            }
        }
    }
    return sum.i ? sum : rl_tm_real(f, 0);
}

/* ---- substitution --------------------------------------------------------------------------- */

/* Is a zero of operand i a pole? Only products carry that on: in 1 / (l + k) a zero l is harmless.
 */
static bool is_under(form *f, const ir_node *n, i64 i, bool under)
{
    f64 q;
    switch (n->op) {
    case IR_recip:
    case IR_rsqrt:
    case IR_log:
    case IR_log2:
        return true;
    case IR_pow: /* a power from 0 up has no pole */
        return i == 0 && (under || !rl_tm_is_const(f, n->args[1], &q) || q < 0);
    case IR_div:
        return under || i == 1;
    case IR_mul:
    case IR_square:
    case IR_sqrt:
    case IR_neg:
    case IR_abs:
    case IR_cast:
        return under;
    default:
        return false;
    }
}

ir_term rl_substitute(substitution *s, ir_term t, bool under)
{
    form *f = s->f;
    i64 need = (i64)t.i + 1;
    for (int k = 0; k < 2; k++)
        if (s->done[k].n < need) {
            vec_reserve(f->a, &s->done[k], need);
            memset(s->done[k].at + s->done[k].n, 0,
                   (size_t)(need - s->done[k].n) * sizeof(ir_term));
            s->done[k].n = need;
        }
    if (s->done[under].at[t.i].i)
        return s->done[under].at[t.i];
    ir_node n = *ir_get(f->w, t);
    ir_term result = t;
    if (n.op == IR_in) {
        result = s->leaf(s->user, t, under);
    } else if (n.arg_count) {
        ir_term *args = NEW_N(f->a, ir_term, n.arg_count);
        bool changed = false;
        for (i64 i = 0; i < n.arg_count; i++) {
            args[i] = rl_substitute(s, n.args[i], is_under(f, &n, i, under));
            changed = changed || args[i].i != n.args[i].i;
        }
        if (changed)
            result = rl_tm_again(f, t, args);
    }
    s->done[under].at[t.i] = result;
    return result;
}
