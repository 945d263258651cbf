/* known: integer vectors whose values the program fixes, made of positions and numbers.
 *
 * A roll or a flip arrives in core form as a read at computed positions. Read at draft time as the
 * slices that it is, its result can take the variables of its operand, as in the other forms. */
#include "frontend/lower.h"
#include "ir/scalar.h"

enum { MAX_DEPTH = 24, MAX_LENGTH = 1 << 16, MAX_RUNS = 4, MAX_LEAVES = 8 };

typedef struct place {
    fe_lower *l;
    fe_vars leaves; /* of the one dim */
    i64 at[MAX_LEAVES];
    i64 budget; /* of terms to look at */
    bool is_known;
} place;

static i64 value_at(place *p, u32 term, i64 depth)
{
    const fe_draft *d = &p->l->drafts.at[term];
    if (depth == 0 || p->budget-- <= 0 || dtype_is_float((dtype)d->dtype)) {
        p->is_known = false;
        return 0;
    }
    if (d->op == IR_const)
        return d->i;
    if (d->op == IR_iota) {
        fe_vars v = fe_flat(p->l->space, d->axis);
        i64 sum = 0, found = 0;
        for (i64 i = 0; i < v.n; i++)
            for (i64 k = 0; k < p->leaves.n; k++)
                if (v.at[i] == p->leaves.at[k]) {
                    sum = sum * fe_var_extent(p->l->space, v.at[i]) + p->at[k];
                    found++;
                }
        p->is_known = p->is_known && found == v.n;
        return sum;
    }
    i64 x[3] = {0};
    for (i64 i = 0; i < d->arg_count && i < 3 && p->is_known; i++)
        x[i] = value_at(p, d->args[i], depth - 1);
    i64 a = x[0], b = x[1], c = x[2];
    (void)c;
    switch (d->op) {
    case IR_add:
        return eqf_wrap(d->dtype, eqf_wrap_add(a, b));
    case IR_sub:
        return eqf_wrap(d->dtype, eqf_wrap_sub(a, b));
    case IR_mul:
        return eqf_wrap(d->dtype, eqf_wrap_mul(a, b));
    case IR_neg:
        return eqf_wrap(d->dtype, eqf_wrap_sub(0, a));
    case IR_cast:
        return eqf_wrap(d->dtype, a);
    case IR_max:
        return MAX(a, b);
    case IR_min:
        return MIN(a, b);
    case IR_mod:
        return eqf_imod(a, b);
    case IR_fmod:
        return eqf_ifmod(a, b);
    case IR_floordiv:
        return eqf_ifloordiv(a, b);
    case IR_truncdiv:
        return eqf_itruncdiv(a, b);
    case IR_lt:
        return a < b;
    case IR_le:
        return a <= b;
    case IR_eq:
        return a == b;
    case IR_ne:
        return a != b;
    case IR_and:
        return a & b;
    case IR_or:
        return a | b;
    case IR_not:
        return !a;
    case IR_where:
        return a ? b : c;
    default:
        p->is_known = false;
        return 0;
    }
}

/* The values of a vector of integers; NULL when data, or too much, decides them. */
static i64 *values_of(fe_lower *l, const fe_tensor *x)
{
    i64 n = x->rank == 1 ? x->dims[0].extent : 0;
    place p = {.l = l, .budget = 1 << 20, .is_known = true};
    if (n < 2 || n > MAX_LENGTH || !x->term)
        return NULL;
    p.leaves = fe_flat(l->space, x->dims[0].vars);
    if (p.leaves.n > MAX_LEAVES)
        return NULL;
    i64 *values = NEW_N(l->a, i64, n);
    for (i64 i = 0; i < n; i++) {
        values[i] = value_at(&p, x->term, MAX_DEPTH);
        if (!p.is_known)
            return NULL;
        i64 k = p.leaves.n - 1;
        while (k >= 0 && ++p.at[k] == fe_var_extent(l->space, p.leaves.at[k]))
            p.at[k--] = 0;
    }
    return values;
}

fe_tensor *fe_read_known(fe_lower *l, const fe_tensor *x, i64 d, const fe_tensor *index)
{
    i64 extent = x->dims[d].extent, n = index->rank ? index->dims[0].extent : 0, runs = 0;
    i64 start[MAX_RUNS], length[MAX_RUNS], *v = values_of(l, index);
    if (!v)
        return NULL;
    i64 step = v[1] - v[0];
    bool is_even = step != 0;
    for (i64 i = 0; i < n; i++) {
        if (v[i] < 0 || v[i] >= extent)
            return NULL;
        is_even = is_even && (i == 0 || v[i] - v[i - 1] == step);
    }
    if (is_even && step > 0)
        return fe_slice(l, x, d, v[0], n, step);
    if (is_even)
        return fe_flip(l, fe_slice(l, x, d, v[n - 1], n, -step), d);
    for (i64 i = 0; i < n; i++) {
        if (runs && v[i] == v[i - 1] + 1) {
            length[runs - 1]++;
        } else if (runs == MAX_RUNS) {
            return NULL;
        } else {
            start[runs] = v[i];
            length[runs++] = 1;
        }
    }
    fe_tensor *parts[MAX_RUNS];
    for (i64 k = 0; k < runs; k++)
        parts[k] = fe_slice(l, x, d, start[k], length[k], 1);
    return fe_cat(l, parts, runs, d);
}
