/* Terms to normal forms, a row an operator (the table is in docs/repair.md). Nothing is expanded
 * that need not be: a sum that depends only on the tile, or only on earlier results, enters a
 * product as one factor, so that the author's grouping (and what it protects from overflow)
 * survives. */
#include <math.h>

#include "rules/repair_impl.h"

#define ONE ((rat){1, 1})

form *rl_form_new(arena *a, ir_program *w, dtype real, ir_atoms axis)
{
    form *f = NEW(a, form);
    *f = (form){.a = a, .w = w, .real = real, .axis = axis};
    vec_push(a, &f->factors, (factor){0});
    rl_mono_of(f, NULL, 0);
    return f;
}

/* ---- dependence and sign -------------------------------------------------------------------- */

static void memo_reserve(form *f, ir_term t)
{
    i64 n = (i64)t.i + 1;
    if (n <= f->deps.n)
        return;
    vec_reserve(f->a, &f->deps, n);
    vec_reserve(f->a, &f->signs, n);
    vec_reserve(f->a, &f->by_term, n);
    for (; f->deps.n < n; f->deps.n++) {
        f->deps.at[f->deps.n] = 0;
        f->signs.at[f->deps.n] = 0;
        f->by_term.at[f->deps.n] = (judgement){0};
    }
    f->signs.n = f->by_term.n = n;
}

void rl_form_leaf(form *f, ir_term t, u8 dep, rl_sign sign)
{
    memo_reserve(f, t);
    f->deps.at[t.i] = (u8)(dep + 1);
    f->signs.at[t.i] = (u8)(sign + 1);
}

u8 rl_form_dep(form *f, ir_term t)
{
    memo_reserve(f, t);
    if (f->deps.at[t.i])
        return (u8)(f->deps.at[t.i] - 1);
    const ir_node *n = ir_get(f->w, t);
    u8 dep = 0;
    if (n->op == IR_iota && ir_has(f->axis, n->attr.axis.at[0]))
        dep = DEP_X;
    for (i64 i = 0; i < n->arg_count; i++)
        dep |= rl_form_dep(f, n->args[i]);
    f->deps.at[t.i] = (u8)(dep + 1);
    return dep;
}

static rl_sign compute_sign(form *f, const ir_node *n)
{
    rl_sign a = n->arg_count > 0 && dtype_is_float((dtype)ir_get(f->w, n->args[0])->dtype)
                    ? rl_form_sign(f, n->args[0])
                    : RL_ANY;
    rl_sign b = n->arg_count > 1 && dtype_is_float((dtype)ir_get(f->w, n->args[1])->dtype)
                    ? rl_form_sign(f, n->args[1])
                    : RL_ANY;
    rl_sign low = MIN(a, b);
    switch (n->op) {
    case IR_const:
        return n->attr.f > 0 ? RL_POSITIVE : n->attr.f >= 0 ? RL_NONNEGATIVE : RL_ANY;
    case IR_exp:
    case IR_exp2:
    case IR_sigmoid:
    case IR_rsqrt:
        return RL_POSITIVE;
    case IR_square:
    case IR_abs:
        return a == RL_POSITIVE ? RL_POSITIVE : RL_NONNEGATIVE;
    case IR_sqrt:
    case IR_recip:
        return n->op == IR_sqrt ? MAX(a, RL_NONNEGATIVE) : a;
    case IR_cast:
    case IR_tanh:
    case IR_erf:
    case IR_expm1:
    case IR_log1p:
    case IR_rename:
    case IR_slice:
    case IR_expand:
    case IR_reshape:
    case IR_reduce:
        return n->op == IR_reduce && n->attr.reducer == IR_PROD ? MIN(a, RL_NONNEGATIVE) : a;
    case IR_add:
        return low == RL_ANY ? RL_ANY : MAX(a, b);
    case IR_mul:
    case IR_div:
    case IR_min:
    case IR_matmul:
        if (n->op == IR_mul && n->args[0].i == n->args[1].i)
            return MAX(a, RL_NONNEGATIVE);
        return low;
    case IR_max:
        return MAX(a, b);
    case IR_pow: {
        f64 q;
        if (a != RL_ANY)
            return a;
        return rl_tm_is_const(f, n->args[1], &q) && fmod(q, 2) == 0 ? RL_NONNEGATIVE : RL_ANY;
    }
    case IR_where:
        return MIN(rl_form_sign(f, n->args[1]), rl_form_sign(f, n->args[2]));
    default:
        return RL_ANY;
    }
}

rl_sign rl_form_sign(form *f, ir_term t)
{
    memo_reserve(f, t);
    if (f->signs.at[t.i])
        return (rl_sign)(f->signs.at[t.i] - 1);
    rl_sign sign = compute_sign(f, ir_get(f->w, t));
    f->signs.at[t.i] = (u8)(sign + 1);
    return sign;
}

static rl_sign mono_sign(form *f, u32 m)
{
    rl_sign sign = RL_POSITIVE;
    mono x = f->monos.at[m];
    for (i64 i = 0; i < x.n; i++) {
        bool is_even = rl_rat_is_int(x.at[i].q) && x.at[i].q.n % 2 == 0;
        rl_sign s = (rl_sign)f->factors.at[x.at[i].factor].sign;
        sign = MIN(sign, is_even ? MAX(s, RL_NONNEGATIVE) : s);
    }
    return sign;
}

/* ---- factors -------------------------------------------------------------------------------- */

static bool same_axis(ir_atoms a, ir_atoms b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at) == 0);
}

static u32 find_factor(form *f, const factor *x)
{
    for (i64 i = 1; i < f->factors.n; i++) {
        const factor *y = &f->factors.at[i];
        if (x->kind != y->kind || x->op != y->op || x->mono != y->mono || x->inner != y->inner ||
            x->test.i != y->test.i || !rl_poly_eq(x->sum, y->sum) || !same_axis(x->axis, y->axis))
            continue;
        if (x->kind != FACTOR_LEAF || x->term.i == y->term.i)
            return (u32)i;
    }
    return 0;
}

static u32 add_factor(form *f, factor x)
{
    vec_push(f->a, &f->factors, x);
    return (u32)f->factors.n - 1;
}

u32 rl_factor_leaf(form *f, ir_term t)
{
    t = ir_cast(f->w, f->real, t); /* inputs of half precision */
    factor x = {.kind = FACTOR_LEAF, .term = t};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.dep = rl_form_dep(f, t);
    x.sign = (u8)rl_form_sign(f, t);
    return add_factor(f, x);
}

u32 rl_factor_exp(form *f, u32 m)
{
    factor x = {.kind = FACTOR_EXP, .mono = m, .dep = rl_mono_dep(f, m), .sign = RL_POSITIVE};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.term = rl_tm_1(f, IR_exp, rl_print_mono(f, ONE, m));
    return add_factor(f, x);
}

static u32 factor_of_factor(form *f, factor_kind kind, u32 inner)
{
    factor x = {.kind = (u8)kind, .inner = inner, .dep = f->factors.at[inner].dep};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.sign = kind == FACTOR_ABS ? RL_NONNEGATIVE : RL_ANY;
    x.term = rl_tm_1(f, kind == FACTOR_ABS ? IR_abs : IR_log, f->factors.at[inner].term);
    return add_factor(f, x);
}

static u32 factor_sum(form *f, poly p, ir_term hint)
{
    factor x = {.kind = FACTOR_SUM, .sum = p, .dep = rl_poly_dep(f, p)};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.term = hint.i ? hint : rl_print_poly(f, p);
    x.sign = (u8)rl_form_sign(f, x.term);
    if (x.sign == RL_ANY) {
        rl_sign low = RL_POSITIVE, high = RL_ANY;
        for (i64 i = 0; i < p.n; i++) {
            rl_sign s = p.at[i].c.n < 0 ? RL_ANY : mono_sign(f, p.at[i].mono);
            low = MIN(low, s);
            high = MAX(high, s);
        }
        x.sign = (u8)(low == RL_ANY ? RL_ANY : high);
    }
    return add_factor(f, x);
}

static u32 factor_indicator(form *f, ir_term test)
{
    factor x = {.kind = FACTOR_INDICATOR, .test = test, .dep = rl_form_dep(f, test)};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.sign = RL_NONNEGATIVE;
    x.term = ir_where(f->w, test, rl_tm_real(f, 1), rl_tm_real(f, 0));
    return add_factor(f, x);
}

static u32 factor_row(form *f, ir_reducer op, poly p, ir_atoms axis, ir_term hint)
{
    factor x = {.kind = FACTOR_ROW, .op = (u8)op, .sum = p, .axis = axis, .dep = rl_poly_dep(f, p)};
    u32 k = find_factor(f, &x);
    if (k)
        return k;
    x.term = hint.i ? hint : rl_tm_reduce(f, op, rl_print_poly(f, p), axis);
    x.sign =
        p.n == 1 && p.at[0].c.n > 0 ? (u8)mono_sign(f, p.at[0].mono) : (u8)rl_form_sign(f, x.term);
    return add_factor(f, x);
}

static u32 power_of(form *f, u32 k, rat q)
{
    return rl_mono_of(f, &(power){k, q}, 1);
}

static poly poly_factor(form *f, u32 k)
{
    return rl_poly_mono(f, power_of(f, k, ONE), ONE);
}

static poly opaque(form *f, ir_term t)
{
    return poly_factor(f, rl_factor_leaf(f, t));
}

static poly poly_int(form *f, i64 n)
{
    return rl_poly_mono(f, 0, (rat){n, 1});
}

/* Sums of one dependence become factors; with their content in front, so that 2x - 2y and y - x
 * share one. */
static poly grouped_sum(form *f, poly p)
{
    if (p.n < 2)
        return p;
    rat c = p.at[0].c;
    for (i64 i = 1; i < p.n && !rl_rat_is(c, 1); i++)
        if (p.at[i].c.d != c.d || (p.at[i].c.n != c.n && p.at[i].c.n != -c.n))
            c = (rat){c.n < 0 ? -1 : 1, 1};
    p = rl_poly_scale(f, p, rl_rat_of(c.d, c.n), 0);
    return rl_poly_mono(f, power_of(f, factor_sum(f, p, (ir_term){0}), ONE), c);
}

static poly grouped(form *f, poly p)
{
    if (p.n < 2)
        return p;
    poly part[4] = {{0}, {0}, {0}, {0}};
    for (i64 i = 0; i < p.n; i++) {
        u8 dep = rl_mono_dep(f, p.at[i].mono);
        part[dep] = rl_poly_add(f, part[dep], rl_poly_mono(f, p.at[i].mono, p.at[i].c));
    }
    u8 host = part[DEP_X].n ? DEP_X : part[DEP_S].n ? DEP_S : 0;
    if (host) {
        part[host] = rl_poly_add(f, part[host], part[0]);
        part[0] = rl_poly_zero();
    }
    poly sum = part[DEP_MIXED];
    for (u8 dep = 0; dep < DEP_MIXED; dep++)
        sum = rl_poly_add(f, sum, grouped_sum(f, part[dep]));
    return sum;
}

static bool is_literal(poly p)
{
    return p.n == 0 || (p.n == 1 && p.at[0].mono == 0);
}

static poly product(form *f, poly a, poly b)
{
    if (is_literal(a) || is_literal(b))
        return rl_poly_mul(f, a, b);
    return rl_poly_mul(f, grouped(f, a), grouped(f, b));
}

/* ---- powers, exponentials, logarithms ------------------------------------------------------- */

static i64 root_of(i64 n, i64 k)
{
    i64 r = (i64)llround(pow((f64)n, 1 / (f64)k)), x = 1;
    for (i64 i = 0; i < k; i++)
        if (!mul_i64(x, r, &x))
            return -1;
    return x == n ? r : -1;
}

/* c^q when it is a rational. */
static bool rat_pow(form *f, rat c, rat q, rat *out)
{
    if (q.d > 1) {
        if (c.n < 0 || q.d > 8)
            return false;
        i64 n = root_of(c.n, q.d), d = root_of(c.d, q.d);
        if (n < 0 || d < 0)
            return false;
        c = (rat){n, d};
    }
    if (q.n > 64 || q.n < -64)
        return false;
    *out = ONE;
    for (i64 i = 0; i < (q.n < 0 ? -q.n : q.n); i++)
        *out = rl_rat_mul(f, *out, c);
    if (q.n < 0)
        *out = rl_rat_of(out->d, out->n);
    return true;
}

static u32 factor_abs(form *f, u32 k)
{
    return f->factors.at[k].sign != RL_ANY ? k : factor_of_factor(f, FACTOR_ABS, k);
}

static bool is_even(rat q)
{
    return q.d == 1 && q.n % 2 == 0;
}

/* Factor k to the power e, the whole of it again to the power q. */
static u32 power_power(form *f, u32 k, rat e, rat q, bool is_alone)
{
    rat eq = rl_rat_mul(f, e, q);
    if (f->factors.at[k].kind == FACTOR_INDICATOR)
        return power_of(f, k, ONE);
    if (f->factors.at[k].kind == FACTOR_ABS && is_even(eq))
        return power_of(f, f->factors.at[k].inner, eq);
    bool needs_abs = !rl_rat_is_int(q) && f->factors.at[k].sign == RL_ANY && !is_even(eq) &&
                     (is_even(e) || !is_alone);
    return power_of(f, needs_abs ? factor_abs(f, k) : k, eq);
}

static u32 mono_power(form *f, u32 m, rat q)
{
    mono x = f->monos.at[m];
    u32 result = 0;
    for (i64 i = 0; i < x.n; i++)
        result = rl_mono_mul(f, result, power_power(f, x.at[i].factor, x.at[i].q, q, x.n == 1));
    return result;
}

static u32 mono_inverse(form *f, u32 m)
{
    return rl_mono_pow(f, m, (rat){-1, 1});
}

static poly power_form(form *f, poly p, rat q, ir_term operand, ir_term t);

/* A sum of tile and results to a power: what all terms share of the results leaves. */
static poly power_of_mixed(form *f, poly p, rat q, ir_term t)
{
    u32 common = rl_poly_common(f, p);
    bool may_leave = rl_rat_is_int(q) || mono_sign(f, common) != RL_ANY;
    if (common && may_leave) {
        poly rest = rl_poly_scale(f, p, ONE, mono_inverse(f, common));
        if (rl_poly_dep(f, rest) != DEP_MIXED)
            return rl_poly_mul(f, rl_poly_mono(f, mono_power(f, common, q), ONE),
                               power_form(f, rest, q, (ir_term){0}, t));
    }
    if (!rl_rat_is_int(q) || q.n < 1 || q.n > FORM_MAX_DEGREE)
        return opaque(f, t);
    poly result = p;
    for (i64 i = 1; i < q.n && !f->stop; i++)
        result = product(f, result, p);
    return result;
}

static poly power_form(form *f, poly p, rat q, ir_term operand, ir_term t)
{
    if (q.n == 0)
        return poly_int(f, 1);
    if (p.n == 0)
        return q.n > 0 ? rl_poly_zero() : opaque(f, t);
    if (rl_rat_is(q, 1))
        return p;
    if (p.n == 1) {
        rat c;
        u32 m = mono_power(f, p.at[0].mono, q);
        if (rat_pow(f, p.at[0].c, q, &c))
            return rl_poly_mono(f, m, c);
        if (p.at[0].c.n < 0)
            return opaque(f, t);
        ir_term root = rl_tm_real(f, pow(rl_rat_value(p.at[0].c), rl_rat_value(q)));
        return rl_poly_scale(f, opaque(f, root), ONE, m);
    }
    p = rl_poly_flat(f, p);
    if (rl_poly_dep(f, p) == DEP_MIXED)
        return power_of_mixed(f, p, q, t);
    if (!rl_rat_is_int(q))
        return rl_poly_mono(f, power_of(f, factor_sum(f, p, operand), q), ONE);
    poly g = grouped_sum(f, p);
    rat c;
    if (!rat_pow(f, g.at[0].c, q, &c))
        return opaque(f, t);
    return rl_poly_mono(f, rl_mono_pow(f, g.at[0].mono, q), c);
}

static bool is_minus_infinity(form *f, u32 m)
{
    mono x = f->monos.at[m];
    f64 value;
    return x.n == 1 && rl_rat_is(x.at[0].q, 1) &&
           f->factors.at[x.at[0].factor].kind == FACTOR_LEAF &&
           rl_tm_is_const(f, f->factors.at[x.at[0].factor].term, &value) && isinf(value) &&
           value < 0;
}

static poly exp_form(form *f, poly p)
{
    p = rl_poly_flat(f, p);
    u32 m = 0;
    for (i64 i = 0; i < p.n; i++) {
        mono x = f->monos.at[p.at[i].mono];
        if (is_minus_infinity(f, p.at[i].mono) && p.at[i].c.n > 0)
            return rl_poly_zero();
        const factor *k =
            x.n == 1 && rl_rat_is(x.at[0].q, 1) ? &f->factors.at[x.at[0].factor] : NULL;
        u32 base = k && k->kind == FACTOR_LOG ? k->inner : rl_factor_exp(f, p.at[i].mono);
        m = rl_mono_mul(f, m, power_of(f, base, p.at[i].c));
    }
    return rl_poly_mono(f, m, ONE);
}

static poly log_form(form *f, poly p, ir_term operand, ir_term t)
{
    p = rl_poly_flat(f, p);
    if (p.n == 0)
        return opaque(f, t);
    if (p.n == 1) {
        if (p.at[0].c.n < 0)
            return opaque(f, t);
        mono x = f->monos.at[p.at[0].mono];
        poly sum = rl_poly_zero();
        if (!rl_rat_is(p.at[0].c, 1))
            sum = opaque(f, rl_tm_real(f, log(rl_rat_value(p.at[0].c))));
        for (i64 i = 0; i < x.n; i++) {
            u32 k = x.at[i].factor;
            if (f->factors.at[k].kind == FACTOR_EXP) {
                sum = rl_poly_add(f, sum, rl_poly_mono(f, f->factors.at[k].mono, x.at[i].q));
                continue;
            }
            if (is_even(x.at[i].q) || x.n > 1)
                k = factor_abs(f, k);
            u32 l = factor_of_factor(f, FACTOR_LOG, k);
            sum = rl_poly_add(f, sum, rl_poly_mono(f, power_of(f, l, ONE), x.at[i].q));
        }
        return sum;
    }
    if (rl_poly_dep(f, p) != DEP_MIXED)
        return poly_factor(f, factor_of_factor(f, FACTOR_LOG, factor_sum(f, p, operand)));
    u32 common = rl_poly_common(f, p);
    if (common && mono_sign(f, common) == RL_POSITIVE) {
        poly rest = rl_poly_scale(f, p, ONE, mono_inverse(f, common));
        if (rl_poly_dep(f, rest) != DEP_MIXED)
            return rl_poly_add(f, log_form(f, rl_poly_mono(f, common, ONE), (ir_term){0}, t),
                               log_form(f, rest, (ir_term){0}, t));
    }
    return opaque(f, t);
}

static u32 mono_abs(form *f, u32 m)
{
    mono x = f->monos.at[m];
    u32 result = 0;
    for (i64 i = 0; i < x.n; i++) {
        u32 k = is_even(x.at[i].q) ? x.at[i].factor : factor_abs(f, x.at[i].factor);
        result = rl_mono_mul(f, result, power_of(f, k, x.at[i].q));
    }
    return result;
}

static poly abs_form(form *f, poly p, ir_term operand, ir_term t)
{
    p = rl_poly_flat(f, p);
    if (p.n == 0 || rl_form_sign(f, operand) != RL_ANY)
        return p;
    if (p.n > 1 && rl_poly_dep(f, p) != DEP_MIXED)
        p = grouped_sum(f, p);
    if (p.n == 1) {
        rat c = p.at[0].c;
        return rl_poly_mono(f, mono_abs(f, p.at[0].mono), c.n < 0 ? (rat){-c.n, c.d} : c);
    }
    u32 common = rl_poly_common(f, p);
    if (common) {
        poly rest = rl_poly_scale(f, p, ONE, mono_inverse(f, common));
        if (rl_poly_dep(f, rest) != DEP_MIXED)
            return rl_poly_scale(f, abs_form(f, rest, rl_print_poly(f, rest), t), ONE,
                                 mono_abs(f, common));
    }
    return opaque(f, t);
}

/* ---- choices -------------------------------------------------------------------------------- */

/* Terms that a and b have in common; with `only_s`, those of earlier results alone. */
static poly shared_terms(form *f, poly a, poly b, bool only_s)
{
    poly sum = rl_poly_zero();
    for (i64 i = 0; i < a.n; i++)
        for (i64 j = 0; j < b.n; j++)
            if (a.at[i].mono == b.at[j].mono && rl_rat_eq(a.at[i].c, b.at[j].c) &&
                (!only_s || rl_mono_dep(f, a.at[i].mono) == DEP_S))
                sum = rl_poly_add(f, sum, rl_poly_mono(f, a.at[i].mono, a.at[i].c));
    return sum;
}

static poly terms_of_results(form *f, poly p)
{
    poly sum = rl_poly_zero();
    for (i64 i = 0; i < p.n; i++)
        if (rl_mono_dep(f, p.at[i].mono) == DEP_S)
            sum = rl_poly_add(f, sum, rl_poly_mono(f, p.at[i].mono, p.at[i].c));
    return sum;
}

/* What both share as a factor; every term of a - b counts, and so does cancellation. */
static u32 common_of_both(form *f, poly a, poly b)
{
    if (a.n == 0 || b.n == 0)
        return rl_poly_common(f, a.n ? a : b);
    pterm *at = NEW_N(f->a, pterm, a.n + b.n);
    memcpy(at, a.at, (size_t)a.n * sizeof *at);
    memcpy(at + a.n, b.at, (size_t)b.n * sizeof *at);
    return rl_poly_common(f, (poly){at, a.n + b.n});
}

static poly extremum_form(form *f, ir_op op, ir_term t)
{
    const ir_node *n = ir_get(f->w, t);
    if (rl_form_dep(f, t) != DEP_MIXED)
        return opaque(f, t);
    poly a = rl_poly_flat(f, rl_form_of(f, n->args[0])),
         b = rl_poly_flat(f, rl_form_of(f, n->args[1]));
    poly both = shared_terms(f, a, b, true);
    a = rl_poly_sub(f, a, both);
    b = rl_poly_sub(f, b, both);
    u32 common = common_of_both(f, a, b);
    if (mono_sign(f, common) == RL_ANY)
        common = 0;
    a = rl_poly_scale(f, a, ONE, mono_inverse(f, common));
    b = rl_poly_scale(f, b, ONE, mono_inverse(f, common));
    if ((rl_poly_dep(f, a) | rl_poly_dep(f, b)) == DEP_MIXED)
        return opaque(f, t);
    poly rest = opaque(f, rl_tm_2(f, op, rl_print_poly(f, a), rl_print_poly(f, b)));
    return rl_poly_add(f, rl_poly_scale(f, rest, ONE, common), both);
}

/* The bool term with what cancels on both sides of a comparison taken away. */
static ir_term test_form(form *f, ir_term t)
{
    const ir_node *n = ir_get(f->w, t);
    if (rl_form_dep(f, t) != DEP_MIXED)
        return t;
    bool compares = n->op == IR_lt || n->op == IR_le || n->op == IR_eq || n->op == IR_ne;
    if (compares && dtype_is_float((dtype)ir_get(f->w, n->args[0])->dtype)) {
        poly a = rl_poly_flat(f, rl_form_of(f, n->args[0])),
             b = rl_poly_flat(f, rl_form_of(f, n->args[1]));
        poly both = shared_terms(f, a, b, false);
        a = rl_poly_sub(f, a, both);
        b = rl_poly_sub(f, b, both);
        u32 common = common_of_both(f, a, b);
        if (mono_sign(f, common) == RL_POSITIVE) {
            a = rl_poly_scale(f, a, ONE, mono_inverse(f, common));
            b = rl_poly_scale(f, b, ONE, mono_inverse(f, common));
        }
        if ((rl_poly_dep(f, a) | rl_poly_dep(f, b)) == DEP_MIXED)
            return t;
        return ir_2(f->w, (ir_op)n->op, rl_print_poly(f, a), rl_print_poly(f, b));
    }
    if (n->op != IR_and && n->op != IR_or && n->op != IR_xor && n->op != IR_not)
        return t;
    ir_term args[2];
    for (i64 i = 0; i < n->arg_count; i++)
        args[i] = test_form(f, n->args[i]);
    return ir_make(f->w, (ir_op)ir_get(f->w, t)->op, (ir_attr){0}, args,
                   ir_get(f->w, t)->arg_count);
}

static bool has_infinity(form *f, poly p)
{
    for (i64 i = 0; i < p.n; i++) {
        mono x = f->monos.at[p.at[i].mono];
        for (i64 j = 0; j < x.n; j++) {
            f64 value;
            if (rl_tm_is_const(f, f->factors.at[x.at[j].factor].term, &value) && !isfinite(value))
                return true;
        }
    }
    return false;
}

static poly where_form(form *f, ir_term t)
{
    ir_node n = *ir_get(f->w, t);
    ir_term test = test_form(f, n.args[0]);
    u8 test_dep = rl_form_dep(f, test);
    if (test_dep == DEP_MIXED)
        return opaque(f, t);
    poly a = rl_poly_flat(f, rl_form_of(f, n.args[1])),
         b = rl_poly_flat(f, rl_form_of(f, n.args[2]));
    for (int side = 0; side < 2; side++) {
        poly other = side ? b : a, masked = side ? a : b;
        if (masked.n != 1 || !rl_rat_is(masked.at[0].c, 1) ||
            !is_minus_infinity(f, masked.at[0].mono))
            continue;
        poly leaves = terms_of_results(f, other);
        other = rl_poly_sub(f, other, leaves);
        if ((rl_poly_dep(f, other) | test_dep) == DEP_MIXED || leaves.n == 0)
            return opaque(f, t);
        ir_term x = rl_print_poly(f, other), inf = rl_tm_real(f, -(f64)INFINITY);
        ir_term rest = side ? rl_tm_where(f, test, inf, x) : rl_tm_where(f, test, x, inf);
        return rl_poly_add(f, opaque(f, rest), leaves);
    }
    poly both = shared_terms(f, a, b, false);
    a = rl_poly_sub(f, a, both);
    b = rl_poly_sub(f, b, both);
    /* A choice between two values of the tile (or of results) is a value of it; a masked one is
     * not. */
    bool is_pure = rl_form_dep(f, t) != DEP_MIXED && both.n == 0 && a.n && b.n;
    if (is_pure || has_infinity(f, a) || has_infinity(f, b))
        return opaque(f, t);
    poly yes = product(f, poly_factor(f, factor_indicator(f, test)), a);
    ir_term negated =
        ir_get(f->w, test)->op == IR_not ? ir_get(f->w, test)->args[0] : ir_1(f->w, IR_not, test);
    poly no = b.n ? product(f, poly_factor(f, factor_indicator(f, negated)), b) : b;
    return rl_poly_add(f, both, rl_poly_add(f, yes, no));
}

/* ---- reductions inside the tile -------------------------------------------------------------- */

/* Splits `axis` by whether `dims` has the atom. */
static void split_axis(form *f, ir_atoms axis, ir_atoms dims, ir_atoms *there, ir_atoms *missing)
{
    *missing = ir_atoms_minus(f->w, axis, dims);
    *there = ir_atoms_minus(f->w, axis, *missing);
}

static bool is_free(form *f, u32 k, ir_atoms axis)
{
    ir_atoms dims = ir_get(f->w, f->factors.at[k].term)->dims;
    return ir_atoms_minus(f->w, axis, dims).n == axis.n;
}

/* How often a value without the atoms of `missing` occurs in a sum over them. */
static bool count_of(form *f, ir_atoms missing, poly *out)
{
    ir_atoms others = ir_atoms_minus(f->w, missing, f->axis);
    poly count = poly_int(f, 1);
    i64 n = 1;
    for (i64 i = 0; i < others.n; i++)
        if (!mul_i64(n, ir_extent(f->w, others.at[i]), &n))
            return false;
    if (others.n < missing.n) {
        if (missing.n - others.n != f->axis.n)
            return false;
        count = poly_factor(f, f->lanes_factor);
    }
    *out = rl_poly_scale(f, count, (rat){n, 1}, 0);
    return true;
}

static poly row_sum_form(form *f, poly p, ir_atoms axis, ir_term t)
{
    poly sum = rl_poly_zero();
    p = rl_poly_flat(f, p);
    for (i64 i = 0; i < p.n; i++) {
        mono m = f->monos.at[p.at[i].mono];
        power *in = NEW_N(f->a, power, m.n), *out = NEW_N(f->a, power, m.n);
        i64 in_n = 0, out_n = 0;
        for (i64 j = 0; j < m.n; j++) {
            if (is_free(f, m.at[j].factor, axis))
                out[out_n++] = m.at[j];
            else
                in[in_n++] = m.at[j];
        }
        u32 outer = rl_mono_of(f, out, out_n), inner = rl_mono_of(f, in, in_n);
        ir_atoms there, missing;
        poly count;
        split_axis(f, axis, rl_mono_dims(f, inner), &there, &missing);
        if (!count_of(f, missing, &count))
            return opaque(f, t);
        poly row = poly_int(f, 1);
        const factor *k = in_n == 1 && rl_rat_is(in[0].q, 1) ? &f->factors.at[in[0].factor] : NULL;
        if (k && k->kind == FACTOR_SUM) {
            poly parts = row_sum_form(f, k->sum, axis, t);
            sum = rl_poly_add(f, sum, rl_poly_scale(f, parts, p.at[i].c, outer));
            continue;
        }
        if (there.n) {
            poly body = rl_poly_mono(f, inner, ONE);
            if (k && k->kind == FACTOR_ROW && k->op == IR_SUM) {
                there = ir_atoms_union(f->w, there, k->axis);
                body = k->sum;
            }
            row = poly_factor(f, factor_row(f, IR_SUM, body, there, (ir_term){0}));
        }
        sum = rl_poly_add(f, sum, rl_poly_scale(f, rl_poly_mul(f, row, count), p.at[i].c, outer));
    }
    return sum;
}

static u32 free_part(form *f, u32 m, ir_atoms axis)
{
    mono x = f->monos.at[m];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++)
        if (is_free(f, x.at[i].factor, axis))
            at[n++] = x.at[i];
    return rl_mono_of(f, at, n);
}

static poly row_extremum_form(form *f, ir_reducer op, ir_term operand, ir_atoms axis, ir_term t)
{
    poly p = rl_poly_flat(f, rl_form_of(f, operand)), leaves = rl_poly_zero();
    for (i64 i = 0; i < p.n; i++) {
        u32 m = p.at[i].mono;
        if (rl_mono_dep(f, m) == DEP_S && free_part(f, m, axis) == m)
            leaves = rl_poly_add(f, leaves, rl_poly_mono(f, m, p.at[i].c));
    }
    p = rl_poly_sub(f, p, leaves);
    u32 common = free_part(f, rl_poly_common(f, p), axis);
    if (mono_sign(f, common) == RL_ANY)
        common = 0;
    if (common)
        p = rl_poly_scale(f, p, ONE, mono_inverse(f, common));
    ir_atoms there, missing, dims = {0};
    for (i64 i = 0; i < p.n; i++)
        dims = ir_atoms_union(f->w, dims, rl_mono_dims(f, p.at[i].mono));
    split_axis(f, axis, dims, &there, &missing);
    poly rest = p;
    if (there.n) {
        bool as_is = leaves.n == 0 && common == 0 && missing.n == 0;
        rest = poly_factor(f, factor_row(f, op, p, there, as_is ? t : (ir_term){0}));
    }
    return rl_poly_add(f, rl_poly_scale(f, rest, ONE, common), leaves);
}

/* ---- the rows ------------------------------------------------------------------------------- */

static poly literal_form(form *f, ir_term t)
{
    f64 x = ir_get(f->w, t)->attr.f;
    i64 d = 1;
    while (d < 4096 && x * (f64)d != floor(x * (f64)d))
        d *= 2;
    f64 n = x * (f64)d;
    if (!(fabs(n) <= 1e9) || n != floor(n))
        return opaque(f, t);
    return rl_poly_mono(f, 0, rl_rat_of((i64)n, d));
}

/* A constant exponent, when it is a small rational. */
static bool exponent_of(form *f, ir_term t, rat *q)
{
    f64 x;
    if (!rl_tm_is_const(f, t, &x))
        return false;
    for (i64 d = 1; d <= 4; d++)
        if (x * (f64)d == floor(x * (f64)d) && fabs(x) <= 32) {
            *q = rl_rat_of((i64)(x * (f64)d), d);
            return true;
        }
    return false;
}

static poly compute_form(form *f, ir_term t, const char **row)
{
    ir_node n = *ir_get(f->w, t);
    ir_term a = n.arg_count > 0 ? n.args[0] : (ir_term){0};
    ir_term b = n.arg_count > 1 ? n.args[1] : (ir_term){0};
    rat q;
    switch (n.op) {
    case IR_const:
        *row = "literal";
        return literal_form(f, t);
    case IR_add:
        *row = "add";
        return rl_poly_add(f, rl_form_of(f, a), rl_form_of(f, b));
    case IR_sub:
        *row = "sub";
        return rl_poly_sub(f, rl_form_of(f, a), rl_form_of(f, b));
    case IR_neg:
        *row = "neg";
        return rl_poly_scale(f, rl_form_of(f, a), (rat){-1, 1}, 0);
    case IR_cast:
        if (!dtype_is_float((dtype)ir_get(f->w, a)->dtype))
            break;
        *row = "cast";
        return rl_form_of(f, a);
    case IR_expand:
        *row = "cast";
        return rl_form_of(f, a);
    case IR_mul:
        *row = "mul";
        if (a.i == b.i)
            return power_form(f, rl_form_of(f, a), (rat){2, 1}, a, t);
        return product(f, rl_form_of(f, a), rl_form_of(f, b));
    case IR_div:
        *row = "div";
        return product(f, rl_form_of(f, a),
                       power_form(f, rl_form_of(f, b), (rat){-1, 1}, b, rl_tm_1(f, IR_recip, b)));
    case IR_square:
        *row = "power";
        return power_form(f, rl_form_of(f, a), (rat){2, 1}, a, t);
    case IR_sqrt:
    case IR_rsqrt:
        *row = "power";
        return power_form(f, rl_form_of(f, a), n.op == IR_sqrt ? (rat){1, 2} : (rat){-1, 2}, a, t);
    case IR_recip:
        *row = "power";
        return power_form(f, rl_form_of(f, a), (rat){-1, 1}, a, t);
    case IR_pow:
        if (!exponent_of(f, b, &q))
            break;
        *row = "power";
        return power_form(f, rl_form_of(f, a), q, a, t);
    case IR_exp:
        *row = "exp";
        return exp_form(f, rl_form_of(f, a));
    case IR_exp2:
        *row = "exp";
        return exp_form(f, product(f, rl_form_of(f, a), opaque(f, rl_tm_real(f, log(2.0)))));
    case IR_log:
        *row = "log";
        return log_form(f, rl_form_of(f, a), a, t);
    case IR_abs:
        *row = "abs";
        return abs_form(f, rl_form_of(f, a), a, t);
    case IR_max:
    case IR_min:
        *row = "extremum";
        return extremum_form(f, (ir_op)n.op, t);
    case IR_where:
        *row = "where";
        return where_form(f, t);
    case IR_matmul:
        *row = "matmul";
        return row_sum_form(f, product(f, rl_form_of(f, a), rl_form_of(f, b)), n.attr.axis, t);
    case IR_reduce:
        if (n.attr.reducer == IR_SUM) {
            *row = "row-sum";
            return row_sum_form(f, rl_form_of(f, a), n.attr.axis, t);
        }
        if (n.attr.reducer == IR_MAX || n.attr.reducer == IR_MIN) {
            *row = "row-extremum";
            return row_extremum_form(f, (ir_reducer)n.attr.reducer, a, n.attr.axis, t);
        }
        break;
    default:
        break;
    }
    *row = "factor";
    return opaque(f, t);
}

poly rl_form_of(form *f, ir_term t)
{
    memo_reserve(f, t);
    if (f->by_term.at[t.i].known)
        return f->by_term.at[t.i].p;
    const char *row = "factor";
    poly p = compute_form(f, t, &row);
    memo_reserve(f, t);
    f->by_term.at[t.i] = (judgement){true, row, p};
    return p;
}
