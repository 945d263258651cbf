/* The checker's own arithmetic: rationals in 64 bits, polynomials over factors, and the canonical
 * form in which values are compared: sums expanded, reductions inside the tile pulled apart by
 * linearity over monomials. Leaving 64 bits or 4,096 terms is refused, not rounded. */
#include "rules/check_repair_impl.h"

/* ---- rationals and polynomials --------------------------------------------------------------- */

static i64 common_divisor(i64 a, i64 b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        i64 r = a % b;
        a = b;
        b = r;
    }
    return a;
}

ck_rat ck_reduced(checker *c, i64 n, i64 d)
{
    if (d == 0 || n == INT64_MIN || d == INT64_MIN) {
        ck_refuse(c, "a rational without value");
        return (ck_rat){0, 1};
    }
    i64 g = common_divisor(n, d);
    if (g > 1) {
        n /= g;
        d /= g;
    }
    return d < 0 ? (ck_rat){-n, -d} : (ck_rat){n, d};
}

ck_rat ck_times(checker *c, ck_rat a, ck_rat b)
{
    i64 n, d;
    if (!mul_i64(a.n, b.n, &n) || !mul_i64(a.d, b.d, &d)) {
        ck_refuse(c, "a coefficient leaves 64 bits");
        return a;
    }
    return ck_reduced(c, n, d);
}

ck_rat ck_plus(checker *c, ck_rat a, ck_rat b)
{
    i64 x, y, n, d;
    if (!mul_i64(a.n, b.d, &x) || !mul_i64(b.n, a.d, &y) || !add_i64(x, y, &n) ||
        !mul_i64(a.d, b.d, &d)) {
        ck_refuse(c, "a coefficient leaves 64 bits");
        return a;
    }
    return ck_reduced(c, n, d);
}

bool ck_same_rat(ck_rat a, ck_rat b)
{
    return a.n == b.n && a.d == b.d;
}

static int compare_terms(const ck_term *a, const ck_term *b)
{
    for (i64 i = 0; i < a->n && i < b->n; i++) {
        const ck_exponent *x = &a->at[i], *y = &b->at[i];
        if (x->factor != y->factor)
            return x->factor < y->factor ? -1 : 1;
        if (!ck_same_rat(x->q, y->q)) {
            f64 d = (f64)x->q.n / (f64)x->q.d - (f64)y->q.n / (f64)y->q.d;
            return d < 0 ? -1 : 1;
        }
    }
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

ck_poly ck_add_polys(checker *c, ck_poly a, ck_poly b)
{
    ck_term *at = NEW_N(c->a, ck_term, a.n + b.n);
    i64 n = 0, i = 0, j = 0;
    while (i < a.n || j < b.n) {
        int order = i == a.n ? 1 : j == b.n ? -1 : compare_terms(&a.at[i], &b.at[j]);
        if (order < 0) {
            at[n++] = a.at[i++];
        } else if (order > 0) {
            at[n++] = b.at[j++];
        } else {
            ck_term t = a.at[i];
            t.c = ck_plus(c, a.at[i++].c, b.at[j++].c);
            if (t.c.n != 0)
                at[n++] = t;
        }
    }
    if (n > 4096)
        ck_refuse(c, "a polynomial of more than 4,096 terms");
    return (ck_poly){at, n};
}

static ck_poly one_term(checker *c, ck_term t)
{
    if (t.c.n == 0)
        return (ck_poly){0};
    return (ck_poly){arena_copy(c->a, &t, (i64)sizeof t), 1};
}

ck_poly ck_number(checker *c, ck_rat q)
{
    return one_term(c, (ck_term){.c = q});
}

ck_poly ck_factor_power(checker *c, u32 k, ck_rat q)
{
    ck_exponent p = {k, q};
    return one_term(c, (ck_term){CK_ONE, arena_copy(c->a, &p, (i64)sizeof p), 1});
}

static ck_term multiply_terms(checker *c, const ck_term *a, const ck_term *b)
{
    ck_exponent *at = NEW_N(c->a, ck_exponent, a->n + b->n);
    i64 n = 0, i = 0, j = 0;
    while (i < a->n || j < b->n) {
        if (j == b->n || (i < a->n && a->at[i].factor < b->at[j].factor)) {
            at[n++] = a->at[i++];
        } else if (i == a->n || b->at[j].factor < a->at[i].factor) {
            at[n++] = b->at[j++];
        } else {
            u32 k = a->at[i].factor;
            bool is_indicator = c->factors.at[k].kind == CK_INDICATOR;
            ck_rat q = is_indicator ? a->at[i].q : ck_plus(c, a->at[i].q, b->at[j].q);
            if (q.n)
                at[n++] = (ck_exponent){k, q};
            i++;
            j++;
        }
    }
    return (ck_term){ck_times(c, a->c, b->c), at, n};
}

ck_poly ck_multiply(checker *c, ck_poly a, ck_poly b)
{
    ck_poly sum = {0};
    for (i64 i = 0; i < a.n && !c->wrong; i++)
        for (i64 j = 0; j < b.n && !c->wrong; j++)
            sum = ck_add_polys(c, sum, one_term(c, multiply_terms(c, &a.at[i], &b.at[j])));
    return sum;
}

ck_poly ck_scaled(checker *c, ck_poly a, ck_rat q)
{
    return ck_multiply(c, a, ck_number(c, q));
}

bool ck_equal(ck_poly a, ck_poly b)
{
    if (a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (!ck_same_rat(a.at[i].c, b.at[i].c) || compare_terms(&a.at[i], &b.at[i]) != 0)
            return false;
    return true;
}

ck_poly ck_power(checker *c, ck_poly p, i64 n)
{
    ck_poly r = ck_number(c, CK_ONE);
    for (i64 i = 0; i < n; i++)
        r = ck_multiply(c, r, p);
    return r;
}

/* ---- sums inside the tile by linearity ----------------------------------------------------------
 */

bool ck_overlaps(ir_atoms a, ir_atoms b)
{
    for (i64 i = 0; i < a.n; i++)
        if (ir_has(b, a.at[i]))
            return true;
    return false;
}

static ir_atoms meet(checker *c, ir_atoms a, ir_atoms b)
{
    return ir_atoms_minus(c->w, a, ir_atoms_minus(c->w, a, b));
}

bool ck_same_atoms(ir_atoms a, ir_atoms b)
{
    if (a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (a.at[i].i != b.at[i].i)
            return false;
    return true;
}

/* The checker's own factor for the sum of one monomial over `axis`. */
static u32 own_row(checker *c, ir_atoms axis, ck_term inner, ir_atoms dims)
{
    inner.c = CK_ONE;
    ck_poly p = one_term(c, inner);
    u8 dep = 0;
    for (i64 i = 0; i < inner.n; i++)
        dep |= c->factors.at[inner.at[i].factor].dep;
    for (i64 k = c->given; k < c->factors.n; k++) {
        const ck_factor *f = &c->factors.at[k];
        if (f->kind == CK_ROW && ck_same_atoms(f->axis, axis) && ck_equal(f->p, p))
            return (u32)k;
    }
    vec_push(c->a, &c->factors,
             (ck_factor){.kind = CK_ROW,
                         .op = IR_SUM,
                         .axis = axis,
                         .p = p,
                         .dep = dep,
                         .dims = ir_atoms_minus(c->w, dims, axis)});
    return (u32)c->factors.n - 1;
}

/* Sum over `axis` of an expanded polynomial. */
ck_poly ck_contract(checker *c, ir_atoms axis, ck_poly p)
{
    ck_poly sum = {0};
    for (i64 i = 0; i < p.n && !c->wrong; i++) {
        ck_exponent *in = NEW_N(c->a, ck_exponent, p.at[i].n),
                    *out = NEW_N(c->a, ck_exponent, p.at[i].n);
        ck_term inner = {CK_ONE, in, 0}, outer = {p.at[i].c, out, 0};
        ir_atoms dims = {0};
        for (i64 j = 0; j < p.at[i].n; j++) {
            ir_atoms d = c->factors.at[p.at[i].at[j].factor].dims;
            if (ck_overlaps(d, axis)) {
                in[inner.n++] = p.at[i].at[j];
                dims = ir_atoms_union(c->w, dims, d);
            } else {
                out[outer.n++] = p.at[i].at[j];
            }
        }
        ck_poly t = one_term(c, outer);
        ir_atoms there = meet(c, axis, dims), missing = ir_atoms_minus(c->w, axis, there);
        ir_atoms cut = meet(c, missing, c->axis), others = ir_atoms_minus(c->w, missing, cut);
        for (i64 j = 0; j < others.n; j++) {
            t = ck_scaled(c, t, (ck_rat){ir_extent(c->w, others.at[j]), 1});
            c->keeps[others.at[j].i] = true;
        }
        if (cut.n && cut.n != c->axis.n)
            ck_refuse(c, "a sum over a part of the axis");
        if (cut.n)
            t = ck_multiply(c, t, ck_factor_power(c, c->lanes_factor, CK_ONE));
        if (there.n) {
            const ck_factor *f = &c->factors.at[in[0].factor];
            bool is_row = inner.n == 1 && ck_same_rat(in[0].q, CK_ONE) && f->kind == CK_ROW &&
                          f->op == IR_SUM && in[0].factor >= (u32)c->given;
            u32 k = is_row ? own_row(c, ir_atoms_union(c->w, there, f->axis), f->p.at[0],
                                     ir_atoms_union(c->w, f->dims, f->axis))
                           : own_row(c, there, inner, dims);
            t = ck_multiply(c, t, ck_factor_power(c, k, CK_ONE));
        }
        sum = ck_add_polys(c, sum, t);
    }
    return sum;
}

static ck_poly expand_factor(checker *c, ck_exponent x)
{
    const ck_factor *f = &c->factors.at[x.factor];
    bool is_whole = x.q.d == 1;
    if (f->kind == CK_SUM && is_whole && x.q.n > 0 && x.q.n <= 16)
        return ck_power(c, ck_expand(c, f->p), x.q.n);
    if (f->kind == CK_ABS && is_whole && x.q.n % 2 == 0)
        return ck_factor_power(c, f->inner, x.q);
    if (f->kind == CK_INDICATOR)
        return ck_factor_power(c, x.factor, CK_ONE);
    if (f->kind == CK_ROW && f->op == IR_SUM && is_whole && x.q.n == 1 && x.factor < (u32)c->given)
        return ck_contract(c, f->axis, ck_expand(c, f->p));
    return ck_factor_power(c, x.factor, x.q);
}

ck_poly ck_expand(checker *c, ck_poly p)
{
    ck_poly sum = {0};
    for (i64 i = 0; i < p.n && !c->wrong; i++) {
        ck_poly t = ck_number(c, p.at[i].c);
        for (i64 j = 0; j < p.at[i].n && !c->wrong; j++)
            t = ck_multiply(c, t, expand_factor(c, p.at[i].at[j]));
        sum = ck_add_polys(c, sum, t);
    }
    return sum;
}

bool ck_same_value(checker *c, ck_poly a, ck_poly b)
{
    return ck_equal(ck_expand(c, a), ck_expand(c, b)) && !c->wrong;
}
