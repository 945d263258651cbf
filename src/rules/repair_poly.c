/* Arithmetic of the normal form: rationals, monomials, polynomials. Whatever leaves 64 bits, 96
 * terms or degree 6 sets `stop`; results after that mean nothing and nobody looks at them. */
#include "rules/repair_impl.h"

static i64 gcd(i64 a, i64 b)
{
    while (b) {
        i64 t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

rat rl_rat_of(i64 n, i64 d)
{
    i64 g = gcd(n, d);
    if (g > 1) {
        n /= g;
        d /= g;
    }
    return d < 0 ? (rat){-n, -d} : (rat){n, d};
}

rat rl_rat_mul(form *f, rat a, rat b)
{
    i64 g = gcd(a.n, b.d), h = gcd(b.n, a.d), n, d;
    g = g ? g : 1;
    h = h ? h : 1;
    if (!mul_i64(a.n / g, b.n / h, &n) || !mul_i64(a.d / h, b.d / g, &d)) {
        f->stop = "a coefficient leaves 64 bits";
        return a;
    }
    return rl_rat_of(n, d);
}

rat rl_rat_add(form *f, rat a, rat b)
{
    i64 x, y, n, d;
    if (!mul_i64(a.n, b.d, &x) || !mul_i64(b.n, a.d, &y) || !add_i64(x, y, &n) ||
        !mul_i64(a.d, b.d, &d)) {
        f->stop = "a coefficient leaves 64 bits";
        return a;
    }
    return rl_rat_of(n, d);
}

bool rl_rat_is(rat a, i64 n)
{
    return a.d == 1 && a.n == n;
}

bool rl_rat_eq(rat a, rat b)
{
    return a.n == b.n && a.d == b.d;
}

bool rl_rat_is_int(rat a)
{
    return a.d == 1;
}

f64 rl_rat_value(rat a)
{
    return (f64)a.n / (f64)a.d;
}

/* ---- monomials ------------------------------------------------------------------------------ */

/* `at` sorted by factor, no zero exponent. */
u32 rl_mono_of(form *f, const power *at, i64 n)
{
    u64 h = hash_bytes(at, 0, 7);
    for (i64 i = 0; i < n; i++)
        h = hash_u64(h ^ at[i].factor, hash_u64((u64)at[i].q.n, (u64)at[i].q.d));
    for (i64 i = 0; i < f->monos.n; i++) {
        const mono *m = &f->monos.at[i];
        if (m->hash != h || m->n != n)
            continue;
        i64 k = 0;
        while (k < n && m->at[k].factor == at[k].factor && rl_rat_eq(m->at[k].q, at[k].q))
            k++;
        if (k == n)
            return (u32)i;
    }
    mono m = {arena_copy(f->a, at, n * (i64)sizeof *at), n, h, 0};
    for (i64 i = 0; i < n; i++)
        m.dep |= f->factors.at[at[i].factor].dep;
    vec_push(f->a, &f->monos, m);
    return (u32)f->monos.n - 1;
}

u8 rl_mono_dep(const form *f, u32 m)
{
    return f->monos.at[m].dep;
}

u32 rl_mono_mul(form *f, u32 a, u32 b)
{
    mono x = f->monos.at[a], y = f->monos.at[b];
    power *at = NEW_N(f->a, power, x.n + y.n);
    i64 n = 0, i = 0, j = 0;
    while (i < x.n || j < y.n) {
        if (j == y.n || (i < x.n && x.at[i].factor < y.at[j].factor)) {
            at[n++] = x.at[i++];
        } else if (i == x.n || y.at[j].factor < x.at[i].factor) {
            at[n++] = y.at[j++];
        } else {
            bool is_indicator = f->factors.at[x.at[i].factor].kind == FACTOR_INDICATOR;
            rat q = is_indicator ? x.at[i].q : rl_rat_add(f, x.at[i].q, y.at[j].q);
            if (q.n != 0)
                at[n++] = (power){x.at[i].factor, q};
            i++;
            j++;
        }
    }
    return rl_mono_of(f, at, n);
}

u32 rl_mono_pow(form *f, u32 m, rat q)
{
    mono x = f->monos.at[m];
    if (q.n == 0)
        return 0;
    power *at = NEW_N(f->a, power, x.n);
    for (i64 i = 0; i < x.n; i++) {
        bool is_indicator = f->factors.at[x.at[i].factor].kind == FACTOR_INDICATOR;
        at[i] = (power){x.at[i].factor, is_indicator ? x.at[i].q : rl_rat_mul(f, x.at[i].q, q)};
    }
    return rl_mono_of(f, at, x.n);
}

rat rl_mono_exponent(const form *f, u32 m, u32 k)
{
    mono x = f->monos.at[m];
    for (i64 i = 0; i < x.n; i++)
        if (x.at[i].factor == k)
            return x.at[i].q;
    return (rat){0, 1};
}

u32 rl_mono_part(form *f, u32 m, u8 mask, u8 want)
{
    mono x = f->monos.at[m];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++)
        if ((f->factors.at[x.at[i].factor].dep & mask) == want)
            at[n++] = x.at[i];
    return rl_mono_of(f, at, n);
}

ir_atoms rl_mono_dims(form *f, u32 m)
{
    mono x = f->monos.at[m];
    ir_atoms dims = {0};
    for (i64 i = 0; i < x.n; i++)
        dims = ir_atoms_union(f->w, dims, ir_get(f->w, f->factors.at[x.at[i].factor].term)->dims);
    return dims;
}

/* ---- polynomials ---------------------------------------------------------------------------- */

poly rl_poly_zero(void)
{
    return (poly){0};
}

poly rl_poly_mono(form *f, u32 m, rat c)
{
    if (c.n == 0)
        return rl_poly_zero();
    pterm t = {m, c};
    return (poly){arena_copy(f->a, &t, (i64)sizeof t), 1};
}

poly rl_poly_add(form *f, poly a, poly b)
{
    pterm *at = NEW_N(f->a, pterm, a.n + b.n);
    i64 n = 0, i = 0, j = 0;
    while (i < a.n || j < b.n) {
        if (j == b.n || (i < a.n && a.at[i].mono < b.at[j].mono)) {
            at[n++] = a.at[i++];
        } else if (i == a.n || b.at[j].mono < a.at[i].mono) {
            at[n++] = b.at[j++];
        } else {
            rat c = rl_rat_add(f, a.at[i].c, b.at[j].c);
            if (c.n != 0)
                at[n++] = (pterm){a.at[i].mono, c};
            i++;
            j++;
        }
    }
    if (n > FORM_MAX_TERMS) {
        f->stop = "more than 96 terms";
        n = FORM_MAX_TERMS;
    }
    return (poly){at, n};
}

poly rl_poly_scale(form *f, poly a, rat c, u32 m)
{
    if (c.n == 0)
        return rl_poly_zero();
    poly sum = rl_poly_zero();
    if (m == 0) {
        pterm *at = NEW_N(f->a, pterm, a.n);
        for (i64 i = 0; i < a.n; i++)
            at[i] = (pterm){a.at[i].mono, rl_rat_mul(f, a.at[i].c, c)};
        return (poly){at, a.n};
    }
    for (i64 i = 0; i < a.n; i++)
        sum = rl_poly_add(
            f, sum, rl_poly_mono(f, rl_mono_mul(f, a.at[i].mono, m), rl_rat_mul(f, a.at[i].c, c)));
    return sum;
}

poly rl_poly_sub(form *f, poly a, poly b)
{
    return rl_poly_add(f, a, rl_poly_scale(f, b, (rat){-1, 1}, 0));
}

poly rl_poly_mul(form *f, poly a, poly b)
{
    poly sum = rl_poly_zero();
    for (i64 i = 0; i < b.n && !f->stop; i++)
        sum = rl_poly_add(f, sum, rl_poly_scale(f, a, b.at[i].c, b.at[i].mono));
    return sum;
}

bool rl_poly_eq(poly a, poly b)
{
    if (a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (a.at[i].mono != b.at[i].mono || !rl_rat_eq(a.at[i].c, b.at[i].c))
            return false;
    return true;
}

bool rl_poly_ratio(form *f, poly a, poly b, rat *c)
{
    if (a.n != b.n || a.n == 0)
        return false;
    rat r = rl_rat_mul(f, a.at[0].c, rl_rat_of(b.at[0].c.d, b.at[0].c.n));
    for (i64 i = 0; i < a.n; i++)
        if (a.at[i].mono != b.at[i].mono || !rl_rat_eq(a.at[i].c, rl_rat_mul(f, b.at[i].c, r)))
            return false;
    *c = r;
    return !f->stop;
}

u8 rl_poly_dep(const form *f, poly p)
{
    u8 dep = 0;
    for (i64 i = 0; i < p.n; i++)
        dep |= f->monos.at[p.at[i].mono].dep;
    return dep;
}

poly rl_poly_flat(form *f, poly p)
{
    poly sum = rl_poly_zero();
    bool changed = false;
    for (i64 i = 0; i < p.n; i++) {
        mono m = f->monos.at[p.at[i].mono];
        if (m.n == 1 && rl_rat_is(m.at[0].q, 1) &&
            f->factors.at[m.at[0].factor].kind == FACTOR_SUM) {
            changed = true;
            sum = rl_poly_add(f, sum,
                              rl_poly_scale(f, f->factors.at[m.at[0].factor].sum, p.at[i].c, 0));
        } else {
            sum = rl_poly_add(f, sum, rl_poly_mono(f, p.at[i].mono, p.at[i].c));
        }
    }
    return changed && !f->stop ? rl_poly_flat(f, sum) : p;
}

u32 rl_poly_common(form *f, poly p)
{
    if (p.n == 0)
        return 0;
    mono x = f->monos.at[p.at[0].mono];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++) {
        u32 k = x.at[i].factor;
        if (f->factors.at[k].dep != DEP_S)
            continue;
        rat q = x.at[i].q;
        for (i64 j = 1; j < p.n && q.n; j++) {
            rat r = rl_mono_exponent(f, p.at[j].mono, k);
            if (r.n == 0 || (r.n > 0) != (q.n > 0)) {
                q = (rat){0, 1};
            } else {
                rat less = rl_rat_add(f, r, rl_rat_of(-q.n, q.d));
                if ((less.n < 0) == (q.n > 0) && less.n != 0)
                    q = r;
            }
        }
        if (q.n)
            at[n++] = (power){k, q};
    }
    return rl_mono_of(f, at, n);
}
