/* Sums: F = sum of G_i(x) * sigma_i(s), factored, grouped into blocks, and each block turned into
 * accumulators (docs/repair.md).
 *
 * sigma splits into what follows the reference (exponentials, divisors that are powers of a maximum: `roll`),
 * what waits for the end (`wait`), and a polynomial in at most four coordinates, whose
 * accumulators are Taylor coefficients of the block at the reference. */
#include <math.h>

#include "rules/repair_impl.h"

#define ONE ((rat){1, 1})

static bool fail(solver *s, ir_term blocking, const char *reason)
{
    s->blocking = blocking;
    s->reason = reason;
    return false;
}

/* ---- collecting -------------------------------------------------------------------------------
 */

/* The smallest factor in which tile and results are tied. */
static u32 tied_factor(form *f, u32 m)
{
    mono x = f->monos.at[m];
    for (i64 i = 0; i < x.n; i++) {
        const factor *k = &f->factors.at[x.at[i].factor];
        if (k->dep != DEP_MIXED)
            continue;
        for (i64 j = 0; (k->kind == FACTOR_ROW || k->kind == FACTOR_SUM) && j < k->sum.n; j++) {
            u32 inner = tied_factor(f, k->sum.at[j].mono);
            if (inner)
                return inner;
        }
        return x.at[i].factor;
    }
    return 0;
}

static bool high_degree(const form *f, poly p)
{
    for (i64 i = 0; i < p.n; i++) {
        mono m = f->monos.at[p.at[i].mono];
        for (i64 j = 0; j < m.n; j++) {
            f64 q = fabs(rl_rat_value(m.at[j].q));
            if (f->factors.at[m.at[j].factor].dep & DEP_S && q > FORM_MAX_DEGREE)
                return true;
        }
    }
    return false;
}

static void collect(solver *s, poly p, sigmas *out)
{
    form *f = s->f;
    for (i64 i = 0; i < p.n; i++) {
        u32 part = rl_mono_part(f, p.at[i].mono, DEP_S, DEP_S);
        poly g = rl_poly_mono(f, rl_mono_part(f, p.at[i].mono, DEP_S, 0), p.at[i].c);
        i64 j = 0;
        while (j < out->n && out->at[j].s.at[0].mono != part)
            j++;
        if (j < out->n)
            out->at[j].g = rl_poly_add(f, out->at[j].g, g);
        else
            vec_push(s->a, out, (sigma){rl_poly_mono(f, part, ONE), g});
    }
    i64 n = 0;
    for (i64 j = 0; j < out->n; j++)
        if (out->at[j].g.n)
            out->at[n++] = out->at[j];
    out->n = n;
}

/* Terms of one G become one term. */
static void merge_equal(solver *s, sigmas *terms)
{
    i64 n = 0;
    for (i64 i = 0; i < terms->n; i++) {
        i64 j = 0;
        rat c = ONE;
        while (j < n && !rl_poly_ratio(s->f, terms->at[i].g, terms->at[j].g, &c))
            j++;
        if (j < n)
            terms->at[j].s =
                rl_poly_add(s->f, terms->at[j].s, rl_poly_scale(s->f, terms->at[i].s, c, 0));
        else
            terms->at[n++] = terms->at[i];
    }
    terms->n = n;
}

/* ---- bounding the exponentials -----------------------------------------------------------------
 */

static poly tile_exponent(form *f, u32 m)
{
    poly u = rl_poly_zero();
    mono x = f->monos.at[m];
    for (i64 i = 0; i < x.n; i++) {
        const factor *k = &f->factors.at[x.at[i].factor];
        if (k->kind == FACTOR_EXP && k->dep == DEP_X)
            u = rl_poly_add(f, u, rl_poly_mono(f, k->mono, x.at[i].q));
    }
    return u;
}

static poly exponent_of_term(form *f, u32 m)
{
    i64 position;
    const factor *row = rl_row_of(f, m, &position);
    poly u = tile_exponent(f, m);
    return row ? rl_poly_add(f, u, tile_exponent(f, row->sum.at[0].mono)) : u;
}

/* Over which atoms of the tile the terms are summed. */
static ir_atoms summed_atoms(form *f, const sigmas *terms)
{
    ir_atoms axis = {0};
    for (i64 i = 0; i < terms->n; i++)
        for (i64 j = 0; j < terms->at[i].g.n; j++) {
            i64 position;
            const factor *row = rl_row_of(f, terms->at[i].g.at[j].mono, &position);
            if (row)
                axis = ir_atoms_union(f->w, axis, row->axis);
        }
    return axis;
}

/* a = c * kappa * b with c > 0 and kappa a positive invariant. */
static bool is_positive_multiple(form *f, poly a, poly b, rat *c, u32 *kappa)
{
    if (a.n != b.n || a.n == 0)
        return false;
    for (i64 i = 0; i < a.n; i++) {
        u32 k = rl_mono_mul(f, a.at[i].mono, rl_inverse(f, b.at[0].mono));
        rat r = rl_rat_mul(f, a.at[i].c, rl_rat_of(b.at[0].c.d, b.at[0].c.n));
        bool is_positive = r.n > 0 && rl_mono_dep(f, k) == 0;
        mono x = f->monos.at[k];
        for (i64 j = 0; j < x.n && is_positive; j++)
            is_positive = f->factors.at[x.at[j].factor].sign == RL_POSITIVE;
        if (is_positive && rl_poly_eq(rl_poly_scale(f, b, r, k), a)) {
            *c = r;
            *kappa = k;
            return true;
        }
    }
    return false;
}

/* What reduction j is the maximum of, when that is plain. */
static bool maximum_of(solver *s, i64 j, poly *u)
{
    form *f = s->f;
    if (s->system->at[j].op != IR_MAX)
        return false;
    poly p = rl_poly_flat(f, rl_form_of(f, s->body[j]));
    if (p.n != 1 || !rl_rat_is(p.at[0].c, 1) || rl_poly_dep(f, p) != DEP_X)
        return false;
    mono m = f->monos.at[p.at[0].mono];
    const factor *k = m.n == 1 && rl_rat_is(m.at[0].q, 1) ? &f->factors.at[m.at[0].factor] : NULL;
    *u = k && k->kind == FACTOR_ROW && k->op == IR_MAX ? k->sum : p;
    return true;
}

/* Is w at least the result `leaf`: itself, or a maximum with it? */
static bool is_above(const form *f, ir_term w, ir_term leaf)
{
    const ir_node *n = ir_get(f->w, w);
    return w.i == leaf.i ||
           (n->op == IR_max && (is_above(f, n->args[0], leaf) || is_above(f, n->args[1], leaf)));
}

typedef struct bound {
    u32 roll;  /* exponential at the reference */
    i64 proof; /* the s leaf whose -inf proves that nothing contributed */
} bound;

static u32 exponential(form *f, u32 kappa, u32 factor_w, rat c)
{
    u32 m = rl_mono_mul(f, kappa, rl_mono_of(f, &(power){factor_w, ONE}, 1));
    return rl_mono_of(f, &(power){rl_factor_exp(f, m), c}, 1);
}

/* A shift that keeps u + shift at most 0: the program's own, an existing maximum, or a new one. */
static bool bound_exponent(solver *s, i64 k, u32 own, poly u, ir_atoms axis, bound *out)
{
    form *f = s->f;
    mono e = f->monos.at[own];
    i64 fallback = -1;
    rat c, fallback_c = ONE;
    u32 kappa, fallback_kappa = 0;
    for (i64 j = 0; j < k; j++) {
        poly v;
        if (!maximum_of(s, j, &v) || !is_positive_multiple(f, u, v, &c, &kappa))
            continue;
        i64 leaf = s->s_of[j];
        if (e.n == 1) {
            rat minus_c = {-c.n, c.d};
            u32 w = rl_mono_mul(f, f->factors.at[e.at[0].factor].mono, rl_inverse(f, kappa));
            mono x = f->monos.at[w];
            if (rl_rat_eq(e.at[0].q, minus_c) && x.n == 1 && rl_rat_is(x.at[0].q, 1) &&
                is_above(f, f->factors.at[x.at[0].factor].term, s->leaves.at[leaf].leaf)) {
                *out = (bound){own, leaf};
                return true;
            }
        }
        if (fallback < 0) {
            fallback = leaf;
            fallback_c = (rat){-c.n, c.d};
            fallback_kappa = kappa;
        }
    }
    if (fallback < 0) {
        ir_atoms dims = {0};
        ir_term g = rl_print_poly(f, u);
        dims = ir_get(f->w, g)->dims;
        ir_atoms there = ir_atoms_minus(f->w, axis, ir_atoms_minus(f->w, axis, dims));
        ir_term term = there.n ? rl_tm_reduce(f, IR_MAX, g, there) : g;
        i64 before = s->accs.n;
        slot_use use = rl_add_accumulator(s, k, IR_MAX, term, rl_form_of(f, term), -1);
        if (use.slot < 0)
            return false;
        if (s->accs.n > before)
            s->accs.at[use.slot].is_added = true;
        for (i64 i = 0; i < s->leaves.n; i++)
            if (s->leaves.at[i].slot == use.slot)
                fallback = i;
        if (fallback < 0) {
            ir_term leaf = rl_slot_leaf(s, use.slot);
            fallback = s->leaves.n;
            vec_push(s->a, &s->leaves,
                     (s_leaf){.leaf = leaf, .reduction = -1, .slot = use.slot, .stored = -1});
        }
        fallback_c = (rat){-1, 1};
        fallback_kappa = 0;
    }
    u32 w = rl_factor_leaf(f, s->leaves.at[fallback].leaf);
    *out = (bound){exponential(f, fallback_kappa, w, fallback_c), fallback};
    return true;
}

/* ---- polynomials in the results -----------------------------------------------------------------
 */

static bool is_polynomial(const form *f, poly tau)
{
    for (i64 i = 0; i < tau.n; i++) {
        mono m = f->monos.at[tau.at[i].mono];
        if (m.n == 0)
            return false;
        for (i64 j = 0; j < m.n; j++)
            if (!rl_rat_is_int(m.at[j].q) || m.at[j].q.n < 1)
                return false;
    }
    return tau.n > 0;
}

/* Is q = c * tau^n? */
static bool power_of_tau(form *f, poly q, poly tau, u8 *n, rat *c)
{
    poly p = rl_poly_mono(f, 0, ONE);
    for (u8 i = 0; i <= FORM_MAX_DEGREE; i++) {
        if (rl_poly_ratio(f, q, p, c)) {
            *n = i;
            return true;
        }
        p = rl_poly_mul(f, p, tau);
    }
    return false;
}

static bool one_coordinate(solver *s, const sigmas *terms, shape *out)
{
    form *f = s->f;
    for (i64 b = 0; b < terms->n; b++) {
        if (terms->at[b].s.n != 1)
            continue;
        u32 base = rl_inverse(f, terms->at[b].s.at[0].mono);
        rat unit = rl_rat_of(terms->at[b].s.at[0].c.d, terms->at[b].s.at[0].c.n);
        for (i64 t = 0; t < terms->n; t++) {
            poly tau = rl_poly_scale(f, terms->at[t].s, unit, base);
            if (t == b || !is_polynomial(f, tau))
                continue;
            tau = rl_poly_scale(f, tau, rl_rat_of(tau.at[0].c.d, tau.at[0].c.n), 0);
            bool fits = true;
            for (i64 i = 0; i < terms->n && fits; i++)
                fits = power_of_tau(f, rl_poly_scale(f, terms->at[i].s, unit, base), tau,
                                    &out->degree[i][0], &out->scale[i]);
            if (fits) {
                out->base = terms->at[b].s;
                out->dims = 1;
                out->tau[0] = tau;
                return true;
            }
        }
    }
    return false;
}

static bool several_coordinates(solver *s, const sigmas *terms, shape *out)
{
    form *f = s->f;
    u32 all = 0;
    for (i64 i = 0; i < terms->n; i++) {
        if (terms->at[i].s.n != 1)
            return false;
        mono m = f->monos.at[terms->at[i].s.at[0].mono];
        for (i64 j = 0; j < m.n; j++)
            if (rl_mono_exponent(f, all, m.at[j].factor).n == 0)
                all = rl_mono_mul(f, all, rl_mono_of(f, &(power){m.at[j].factor, ONE}, 1));
    }
    mono factors = f->monos.at[all];
    power *low = NEW_N(s->a, power, factors.n);
    i64 low_n = 0;
    out->dims = 0;
    for (i64 j = 0; j < factors.n; j++) {
        u32 k = factors.at[j].factor;
        rat least = rl_mono_exponent(f, terms->at[0].s.at[0].mono, k);
        for (i64 i = 1; i < terms->n; i++) {
            rat q = rl_mono_exponent(f, terms->at[i].s.at[0].mono, k);
            if (rl_rat_add(f, q, rl_rat_of(-least.n, least.d)).n < 0)
                least = q;
        }
        bool varies = false;
        for (i64 i = 0; i < terms->n; i++) {
            rat q = rl_rat_add(f, rl_mono_exponent(f, terms->at[i].s.at[0].mono, k),
                               rl_rat_of(-least.n, least.d));
            if (!rl_rat_is_int(q) || q.n > FORM_MAX_DEGREE || (q.n && out->dims == 4))
                return false;
            if (out->dims < 4)
                out->degree[i][out->dims] = (u8)q.n;
            varies = varies || q.n;
        }
        if (least.n)
            low[low_n++] = (power){k, least};
        if (varies)
            out->tau[out->dims++] = rl_poly_mono(f, rl_mono_of(f, &(power){k, ONE}, 1), ONE);
    }
    out->base = rl_poly_mono(f, rl_mono_of(f, low, low_n), ONE);
    for (i64 i = 0; i < terms->n; i++)
        out->scale[i] = terms->at[i].s.at[0].c;
    return true;
}

static i64 binomial(i64 n, i64 k)
{
    i64 r = 1;
    for (i64 i = 0; i < k; i++)
        r = r * (n - i) / (i + 1);
    return r;
}

static poly poly_power(form *f, poly p, i64 n)
{
    poly r = rl_poly_mono(f, 0, ONE);
    for (i64 i = 0; i < n; i++)
        r = rl_poly_mul(f, r, p);
    return r;
}

/* f_j = (1/j!) d^j/dtau^j of the block: sum of C(n, j) tau^(n-j) G. */
static poly taylor(form *f, const sigmas *terms, const shape *sh, const u8 *j, u32 roll)
{
    poly sum = rl_poly_zero();
    for (i64 i = 0; i < terms->n; i++) {
        poly t = rl_poly_scale(f, terms->at[i].g, sh->scale[i], roll);
        i64 c = 1;
        for (i64 d = 0; d < sh->dims; d++) {
            i64 n = sh->degree[i][d];
            c = n < j[d] ? 0 : c * binomial(n, j[d]);
            if (c)
                t = rl_poly_mul(f, t, poly_power(f, sh->tau[d], n - j[d]));
        }
        sum = rl_poly_add(f, sum, rl_poly_scale(f, t, (rat){c, 1}, 0));
    }
    return sum;
}

/* ---- one block ----------------------------------------------------------------------------------
 */

static bool is_needed(const sigmas *terms, const shape *sh, const u8 *j)
{
    for (i64 i = 0; i < terms->n; i++) {
        bool below = true;
        for (i64 d = 0; d < sh->dims; d++)
            below = below && j[d] <= sh->degree[i][d];
        if (below)
            return true;
    }
    return false;
}

/* The next multi-index below `top`; false, and 0 again, after the last. */
static bool next_index(u8 *j, const u8 *top)
{
    for (int i = 0; i < 4; i++) {
        if (j[i] < top[i]) {
            j[i]++;
            return true;
        }
        j[i] = 0;
    }
    return false;
}

static bool add_block(solver *s, const draft *d, const shape *sh)
{
    form *f = s->f;
    term_block b = {.reduction = d->k,
                    .roll = d->roll,
                    .proof = d->proof,
                    .wait = sh->base,
                    .coordinate_count = sh->dims};
    for (i64 c = 0; c < sh->dims; c++)
        b.coordinates[c].tau = sh->tau[c];
    b.index = arena_alloc_n(s->a, 64, (i64)sizeof *b.index);
    b.use = NEW_N(s->a, slot_use, 64);
    b.targets = NEW_N(s->a, poly, 64);
    u8 top[4] = {0};
    i64 total = 0;
    for (i64 i = 0; i < d->terms.n; i++) {
        i64 degree = 0;
        for (i64 c = 0; c < sh->dims; c++) {
            top[c] = MAX(top[c], sh->degree[i][c]);
            degree += sh->degree[i][c];
        }
        total = MAX(total, degree);
    }
    s->how[d->k].degree = MAX(s->how[d->k].degree, total);
    i64 block_index = s->blocks.n;
    for (i64 degree = 0; degree <= total; degree++) {
        u8 j[4] = {0};
        for (bool more = true; more; more = next_index(j, top)) {
            if (j[0] + j[1] + j[2] + j[3] != degree || !is_needed(&d->terms, sh, j))
                continue;
            if (b.count == 64)
                return fail(s, s->body[d->k], "needs more than 16 accumulators");
            poly target = rl_poly_flat(f, taylor(f, &d->terms, sh, j, d->roll));
            if (f->stop)
                return fail(s, s->body[d->k], f->stop);
            memcpy(b.index[b.count], j, sizeof j);
            b.targets[b.count] = target;
            slot_use use = {-1, {0, 1}};
            if (target.n) {
                ir_term t = rl_contribution(s, d, sh, j, target);
                if (!t.i)
                    return fail(s, s->body[d->k], "has a contribution that cannot be written down");
                /* Stable at the final result only: nothing bounds it at an earlier one. */
                if (!rl_exponential_part(f, d->roll) && rl_has_result_exp(f, t))
                    s->how[d->k].overflows = true;
                use = rl_add_accumulator(s, d->k, IR_SUM, t, target,
                                         sh->dims || d->roll ? block_index : -1);
                if (use.slot < 0)
                    return fail(s, s->body[d->k], "needs more than 16 accumulators");
            }
            b.use[b.count++] = use;
        }
    }
    vec_push(s->a, &s->blocks, b);
    return true;
}

static shape new_shape(solver *s, i64 n)
{
    return (shape){.degree = arena_alloc_n(s->a, n, 4), .scale = NEW_N(s->a, rat, n)};
}

static void split_terms(solver *s, const draft *d, i64 i, draft *one, shape *sh)
{
    *one = *d;
    one->terms = (sigmas){0};
    vec_push(s->a, &one->terms, d->terms.at[i]);
    one->is_only = d->is_only && d->terms.n == 1;
    *sh = new_shape(s, 1);
    sh->base = d->terms.at[i].s;
    sh->scale[0] = ONE;
}

/* One accumulator a term, results applied at the end. */
static bool add_split(solver *s, const draft *d)
{
    for (i64 i = 0; i < d->terms.n; i++) {
        draft one;
        shape sh;
        split_terms(s, d, i, &one, &sh);
        if (!add_block(s, &one, &sh))
            return false;
    }
    return true;
}

static bool add_polynomial(solver *s, draft *d)
{
    sigmas unmerged = {0};
    for (i64 i = 0; i < d->terms.n; i++)
        vec_push(s->a, &unmerged, d->terms.at[i]);
    merge_equal(s, &d->terms);
    rl_how *how = &s->how[d->k];
    if (d->terms.n == 1)
        return add_split(s, d);
    shape sh = new_shape(s, unmerged.n);
    if (one_coordinate(s, &d->terms, &sh))
        return add_block(s, d, &sh);
    d->terms = unmerged;
    sh = new_shape(s, unmerged.n);
    if (several_coordinates(s, &unmerged, &sh))
        return add_block(s, d, &sh);
    how->cancels = true;
    merge_equal(s, &d->terms);
    return add_split(s, d);
}

/* The exponent of the tile in each term of the block, when it is the same in all. */
static bool common_exponent(solver *s, const sigmas *terms, poly *u)
{
    bool is_first = true;
    for (i64 i = 0; i < terms->n; i++)
        for (i64 j = 0; j < terms->at[i].g.n; j++) {
            poly v = exponent_of_term(s->f, terms->at[i].g.at[j].mono);
            if (is_first)
                *u = v;
            else if (!rl_poly_eq(*u, v))
                return false;
            is_first = false;
        }
    return true;
}

static void divide_sigma(form *f, sigmas *terms, u32 by)
{
    for (i64 i = 0; i < terms->n; i++)
        terms->at[i].s = rl_poly_scale(f, terms->at[i].s, ONE, rl_inverse(f, by));
}

/* Exponentials of what neither varies with the tile nor is a result. */
static u32 fixed_exponential(form *f, u32 m)
{
    mono x = f->monos.at[m];
    power *at = NEW_N(f->a, power, x.n);
    i64 n = 0;
    for (i64 i = 0; i < x.n; i++) {
        const factor *k = &f->factors.at[x.at[i].factor];
        if (k->kind == FACTOR_EXP && k->dep == 0)
            at[n++] = x.at[i];
    }
    return rl_mono_of(f, at, n);
}

/* Where the exponential of a result waits, those that are in every contribution wait with it: the result
 * may be what keeps them small, or they it. */
static void let_wait(form *f, sigmas *terms)
{
    u32 common = 0;
    for (i64 i = 0; i < terms->n; i++) {
        if (!rl_exponential_part(f, terms->at[i].s.at[0].mono))
            return;
        for (i64 j = 0; j < terms->at[i].g.n; j++) {
            u32 mine = fixed_exponential(f, terms->at[i].g.at[j].mono);
            if (i + j > 0 && mine != common)
                return;
            common = mine;
        }
    }
    for (i64 i = 0; i < terms->n; i++) {
        terms->at[i].s = rl_poly_scale(f, terms->at[i].s, ONE, common);
        terms->at[i].g = rl_poly_scale(f, terms->at[i].g, ONE, rl_inverse(f, common));
    }
}

static bool solve_block(solver *s, draft *d)
{
    form *f = s->f;
    rl_how *how = &s->how[d->k];
    u32 own_exp = rl_exponential_part(f, d->own_roll);
    d->roll = d->own_roll;
    d->proof = -1;
    if (own_exp && !common_exponent(s, &d->terms, &d->u)) {
        how->overflows = true;
        d->roll = 0;
        return add_split(s, d);
    }
    if (own_exp && d->u.n == 0) {
        /* nothing of the tile is exponential: these factors can wait */
        d->roll = rl_without(f, d->own_roll, own_exp);
    } else if (own_exp) {
        bound b;
        if (!bound_exponent(s, d->k, own_exp, d->u, summed_atoms(f, &d->terms), &b))
            return fail(s, s->body[d->k], "needs more than 16 accumulators");
        how->adds_max = how->adds_max || s->leaves.at[b.proof].slot >= 0;
        d->proof = b.proof;
        d->roll = rl_mono_mul(f, rl_without(f, d->own_roll, own_exp), b.roll);
    }
    /* sigma comes whole; what rolls leaves it */
    divide_sigma(f, &d->terms, d->roll);
    let_wait(f, &d->terms);
    return add_polynomial(s, d);
}

/* ---- the sum ------------------------------------------------------------------------------------
 */

/* Where the reference is what an empty reduction has, nothing contributed and the block is 0. Said
 * where an exponential waits for the end: the accumulator may be exp(-inf + inf) there, when it is
 * taken from a loop that the program has, and the program's own reference need not be infinite. */
static ir_term guard_waiting(solver *s, const term_block *b, ir_term t)
{
    form *f = s->f;
    bool waits = false;
    for (i64 i = 0; i < b->wait.n; i++)
        waits = waits || rl_exponential_part(f, b->wait.at[i].mono);
    if (!waits || b->proof < 0)
        return t;
    const s_leaf *l = &s->leaves.at[b->proof];
    ir_reducer op = l->slot >= 0 ? s->accs.at[l->slot].op : s->system->at[l->reduction].op;
    ir_term empty = rl_tm_real(f, ir_reducer_identity_f64(op));
    ir_term some = ir_2(f->w, IR_ne, l->leaf, empty);
    return rl_tm_where(f, some, t, rl_tm_real(f, 0));
}

static ir_term print_readout(solver *s, i64 first_block)
{
    form *f = s->f;
    ir_term sum = {0};
    for (i64 i = first_block; i < s->blocks.n; i++) {
        const term_block *b = &s->blocks.at[i];
        if (b->use[0].slot < 0)
            continue;
        ir_term a = rl_slot_leaf(s, b->use[0].slot);
        rat c = b->use[0].c;
        poly wait = rl_poly_scale(f, b->wait, c, 0);
        ir_term t;
        if (wait.n == 1) {
            u32 m = rl_mono_mul(f, wait.at[0].mono,
                                rl_mono_of(f, &(power){rl_factor_leaf(f, a), ONE}, 1));
            t = rl_print_mono(f, wait.at[0].c, m);
        } else {
            t = rl_tm_2(f, IR_mul, a, rl_print_poly(f, wait));
        }
        t = guard_waiting(s, b, t);
        sum = sum.i ? rl_tm_2(f, IR_add, sum, t) : t;
    }
    return sum.i ? sum : rl_tm_real(f, 0);
}

static void classify(solver *s, i64 k, i64 first_block)
{
    form *f = s->f;
    rl_how *how = &s->how[k];
    how->form = RL_SPLIT;
    how->blocks = s->blocks.n - first_block;
    how->fp = how->cancels || how->overflows ? RL_APPROXIMATE : RL_REASSOCIATED;
    for (i64 i = first_block; i < s->blocks.n; i++) {
        const term_block *b = &s->blocks.at[i];
        if (b->roll)
            how->form = RL_ROLLING;
        for (i64 c = 0; c < b->coordinate_count; c++) {
            bool is_cut = false;
            mono m = f->monos.at[b->coordinates[c].tau.at[0].mono];
            for (i64 j = 0; j < s->leaves.n; j++)
                is_cut = is_cut || (s->leaves.at[j].cut.i &&
                                    f->factors.at[m.at[0].factor].term.i == s->leaves.at[j].leaf.i);
            if (how->form != RL_ROLLING)
                how->form = is_cut ? RL_CENTRED : RL_ROLLING;
        }
        if (b->roll == 0 && b->wait.n == 1) {
            mono m = f->monos.at[b->wait.at[0].mono];
            for (i64 j = 0; j < m.n; j++)
                if (f->factors.at[m.at[j].factor].kind == FACTOR_LEAF && b->coordinate_count == 0 &&
                    fabs(rl_rat_value(m.at[j].q)) >= 2)
                    how->fp = RL_APPROXIMATE; /* the range of a high power */
        }
    }
}

static bool plain_sum(solver *s, i64 k, poly p)
{
    slot_use use = rl_add_accumulator(s, k, IR_SUM, s->body[k], p, -1);
    if (use.slot < 0)
        return fail(s, s->body[k], "needs more than 16 accumulators");
    s->readout[k] =
        rl_tm_2(s->f, IR_mul, rl_tm_real(s->f, rl_rat_value(use.c)), rl_slot_leaf(s, use.slot));
    term_block b = {.reduction = k, .proof = -1, .wait = rl_poly_mono(s->f, 0, ONE), .count = 1};
    b.index = arena_alloc_n(s->a, 1, (i64)sizeof *b.index);
    b.use = NEW_N(s->a, slot_use, 1);
    b.targets = NEW_N(s->a, poly, 1);
    b.use[0] = use;
    b.targets[0] = p;
    vec_push(s->a, &s->blocks, b);
    s->how[k] = (rl_how){.form = RL_PLAIN, .blocks = 1, .fp = RL_REASSOCIATED};
    return true;
}

bool rl_solve_sum(solver *s, i64 k)
{
    form *f = s->f;
    bool is_split = s->want == RL_WANT_SPLIT;
    s->cut_body[k] = is_split ? s->body[k] : rl_cut_body(s, k);
    poly p = rl_poly_flat(f, rl_form_of(f, s->cut_body[k]));
    if (f->stop)
        return fail(s, s->body[k], f->stop);
    for (i64 i = 0; i < p.n; i++) {
        u32 tied = tied_factor(f, p.at[i].mono);
        if (tied)
            return fail(s, f->factors.at[tied].term,
                        "mixes the tile with results of earlier reductions");
    }
    if (high_degree(f, p))
        return fail(s, s->body[k], "has a degree over 6 in an earlier result");
    if (!(rl_poly_dep(f, p) & DEP_S))
        return plain_sum(s, k, p);
    sigmas all = {0};
    collect(s, p, &all);
    i64 first_block = s->blocks.n;
    if (is_split) {
        merge_equal(s, &all);
        draft d = {.k = k, .terms = all, .proof = -1, .is_only = true};
        s->how[k].cancels = all.n > 1;
        for (i64 i = 0; i < all.n; i++)
            for (i64 j = 0; j < all.at[i].s.n; j++)
                s->how[k].overflows |= rl_exponential_part(f, all.at[i].s.at[j].mono) != 0;
        if (!add_split(s, &d))
            return false;
    }
    for (i64 i = 0; i < all.n && !is_split; i++) {
        u32 roll = rl_rolling_part(s, all.at[i].s.at[0].mono);
        bool seen = false;
        for (i64 j = 0; j < i; j++)
            seen = seen || rl_rolling_part(s, all.at[j].s.at[0].mono) == roll;
        if (seen)
            continue;
        draft d = {.k = k, .own_roll = roll};
        for (i64 j = i; j < all.n; j++)
            if (rl_rolling_part(s, all.at[j].s.at[0].mono) == roll)
                vec_push(s->a, &d.terms, all.at[j]);
        d.is_only = d.terms.n == all.n;
        if (!solve_block(s, &d))
            return false;
    }
    s->readout[k] = print_readout(s, first_block);
    classify(s, k, first_block);
    return !f->stop || fail(s, s->body[k], f->stop);
}
