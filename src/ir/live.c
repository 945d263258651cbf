/* Where a mask may hold: bool terms as unions of ranges along one atom, whose bounds are affine in
 * the positions of the others. Comparisons of affine functions of `iota` become half-lines, `and`
 * and `or` intersect and join them, `not` is pushed to the comparisons. Whatever is not understood
 * restricts nothing, so the set always holds the mask; `is_exact` says that nothing was given up.
 */
#include "ir/type.h"

enum { MAX_RANGES = 16, MAX_DEPTH = 64, MAX_STEPS = 4096 };

typedef struct half_open {
    bool has_low, has_high;
    ir_affine low, high;
} half_open;

typedef struct live {
    half_open at[MAX_RANGES];
    i64 n;
    bool is_exact;
} live;

typedef struct reader {
    const ir_program *p;
    arena *a;
    ir_atom along;
    i64 steps;
} reader;

/* ---- affine functions ------------------------------------------------------------------------ */

static i64 factor_of(const ir_affine *x, ir_atom d)
{
    for (i64 i = 0; i < x->atoms.n; i++)
        if (x->atoms.at[i].i == d.i)
            return x->factors[i];
    return 0;
}

/* s * x + t * y; false when something does not fit 64 bits. */
static bool combine(reader *r, const ir_affine *x, i64 s, const ir_affine *y, i64 t, ir_affine *out)
{
    ir_atoms atoms = ir_type_union(r->a, x->atoms, y->atoms);
    i64 *factors = NEW_N(r->a, i64, atoms.n), a, b;
    ir_affine sum = {0};
    if (!mul_i64(s, x->constant, &a) || !mul_i64(t, y->constant, &b) ||
        !add_i64(a, b, &sum.constant))
        return false;
    for (i64 i = 0; i < atoms.n; i++)
        if (!mul_i64(s, factor_of(x, atoms.at[i]), &a) ||
            !mul_i64(t, factor_of(y, atoms.at[i]), &b) || !add_i64(a, b, &factors[i]))
            return false;
    sum.atoms = atoms;
    sum.factors = factors;
    *out = sum;
    return true;
}

static ir_affine constant(i64 c)
{
    return (ir_affine){.constant = c};
}

static ir_affine position(reader *r, ir_atom d)
{
    i64 *one = NEW(r->a, i64);
    *one = 1;
    return (ir_affine){0, one, ir_type_sort(r->a, &d, 1)};
}

/* Smallest and largest value over all positions. */
static bool bounds(const reader *r, const ir_affine *x, i64 *low, i64 *high)
{
    *low = *high = x->constant;
    for (i64 i = 0; i < x->atoms.n; i++) {
        i64 span;
        if (!mul_i64(x->factors[i], ir_extent(r->p, x->atoms.at[i]) - 1, &span) ||
            !add_i64(span < 0 ? *low : *high, span, span < 0 ? low : high))
            return false;
    }
    return true;
}

static bool fits(const reader *r, const ir_affine *x, dtype t)
{
    i64 low, high;
    if (!bounds(r, x, &low, &high))
        return false;
    if (t == DT_i8)
        return low >= INT8_MIN && high <= INT8_MAX;
    return t == DT_i64 || (t == DT_i32 && low >= INT32_MIN && high <= INT32_MAX);
}

/* x with the position along `d` replaced by y. */
static bool substitute(reader *r, const ir_affine *x, ir_atom d, const ir_affine *y, ir_affine *out)
{
    i64 f = factor_of(x, d);
    ir_affine own = position(r, d), rest;
    return combine(r, x, 1, &own, -f, &rest) && combine(r, &rest, 1, y, f, out);
}

static bool affine_of(reader *r, ir_term t, i64 depth, ir_affine *out);

/* An index map of an affine function: the operand's atoms as functions of the result's. */
static bool mapped(reader *r, const ir_node *node, ir_affine x, ir_affine *out)
{
    const ir_attr *attr = &node->attr;
    if (node->op == IR_rename) { /* all at once: by way of a list */
        ir_affine sum = constant(x.constant);
        for (i64 i = 0; i < x.atoms.n; i++) {
            ir_atom d = x.atoms.at[i];
            for (i64 j = 0; j < attr->axis.n; j++)
                if (attr->axis.at[j].i == x.atoms.at[i].i)
                    d = attr->to.at[j];
            ir_affine one = position(r, d);
            if (!combine(r, &sum, 1, &one, x.factors[i], &sum))
                return false;
        }
        *out = sum;
        return true;
    }
    ir_affine y = constant(0);
    if (node->op == IR_slice) {
        y.constant = attr->ints.at[0];
        for (i64 i = 0; i < attr->to.n; i++) {
            ir_affine one = position(r, attr->to.at[i]);
            if (!combine(r, &y, 1, &one, attr->ints.at[1 + i], &y))
                return false;
        }
    } else { /* splitdim */
        ir_affine outer = position(r, attr->to.at[0]), inner = position(r, attr->to.at[1]);
        if (!combine(r, &outer, ir_extent(r->p, attr->to.at[1]), &inner, 1, &y))
            return false;
    }
    return substitute(r, &x, attr->axis.at[0], &y, out);
}

static bool affine_of(reader *r, ir_term t, i64 depth, ir_affine *out)
{
    const ir_node *node = ir_get(r->p, t);
    ir_affine x, y;
    if (depth > MAX_DEPTH || ++r->steps > MAX_STEPS || dtype_kind_of(node->dtype) != DK_INT)
        return false;
    switch (node->op) {
    case IR_const:
        *out = constant(node->attr.i);
        return true;
    case IR_iota:
        *out = position(r, node->attr.axis.at[0]);
        return true;
    case IR_view:
    case IR_expand:
        return affine_of(r, node->args[0], depth + 1, out);
    case IR_cast:
        return affine_of(r, node->args[0], depth + 1, out) && fits(r, out, node->dtype);
    case IR_neg:
        x = constant(0);
        return affine_of(r, node->args[0], depth + 1, &y) && combine(r, &x, 1, &y, -1, out) &&
               fits(r, out, node->dtype);
    case IR_add:
    case IR_sub:
        return affine_of(r, node->args[0], depth + 1, &x) &&
               affine_of(r, node->args[1], depth + 1, &y) &&
               combine(r, &x, 1, &y, node->op == IR_add ? 1 : -1, out) && fits(r, out, node->dtype);
    case IR_mul: {
        if (!affine_of(r, node->args[0], depth + 1, &x) ||
            !affine_of(r, node->args[1], depth + 1, &y) || (x.atoms.n > 0 && y.atoms.n > 0))
            return false;
        ir_affine zero = constant(0);
        const ir_affine *factor = x.atoms.n > 0 ? &y : &x, *other = x.atoms.n > 0 ? &x : &y;
        return combine(r, &zero, 1, other, factor->constant, out) && fits(r, out, node->dtype);
    }
    case IR_rename:
    case IR_slice:
    case IR_splitdim:
        return affine_of(r, node->args[0], depth + 1, &x) && mapped(r, node, x, out);
    default:
        return false;
    }
}

/* ---- sets ------------------------------------------------------------------------------------ */

static live everything(bool is_exact)
{
    return (live){.n = 1, .is_exact = is_exact};
}

static live nothing(void)
{
    return (live){.is_exact = true};
}

/* Is there no position at all where the range holds something? */
static bool is_void(reader *r, const half_open *x)
{
    ir_affine low = x->has_low ? x->low : constant(0);
    ir_affine high = x->has_high ? x->high : constant(ir_extent(r->p, r->along));
    ir_affine length;
    i64 least, most;
    return combine(r, &high, 1, &low, -1, &length) && bounds(r, &length, &least, &most) &&
           most <= 0;
}

/* *x becomes the tighter of two bounds where one is tighter everywhere; false when neither is. */
static bool tighten(reader *r, ir_affine *x, const ir_affine *y, bool is_low)
{
    ir_affine d;
    i64 low, high;
    if (!combine(r, x, 1, y, -1, &d) || !bounds(r, &d, &low, &high))
        return false;
    bool mine = is_low ? low >= 0 : high <= 0, theirs = is_low ? high <= 0 : low >= 0;
    if (!mine && theirs)
        *x = *y;
    return mine || theirs;
}

static live both(reader *r, const live *x, const live *y)
{
    live out = {.is_exact = x->is_exact && y->is_exact};
    for (i64 i = 0; i < x->n; i++)
        for (i64 j = 0; j < y->n; j++) {
            half_open one = x->at[i];
            const half_open *other = &y->at[j];
            bool kept = true;
            if (!one.has_low) {
                one.has_low = other->has_low;
                one.low = other->low;
            } else if (other->has_low) {
                kept = tighten(r, &one.low, &other->low, true);
            }
            if (!one.has_high) {
                one.has_high = other->has_high;
                one.high = other->high;
            } else if (other->has_high) {
                kept = tighten(r, &one.high, &other->high, false) && kept;
            }
            out.is_exact = out.is_exact && kept;
            if (is_void(r, &one))
                continue;
            if (out.n == MAX_RANGES)
                return everything(false);
            out.at[out.n++] = one;
        }
    return out;
}

static live either(const live *x, const live *y)
{
    if (x->n + y->n > MAX_RANGES)
        return everything(false);
    live out = *x;
    out.is_exact = x->is_exact && y->is_exact;
    for (i64 j = 0; j < y->n; j++)
        out.at[out.n++] = y->at[j];
    return out;
}

static i64 floor_div(i64 a, i64 b) /* b > 0 */
{
    return a / b - (a % b < 0);
}

/* Where e <= 0. */
static live not_positive(reader *r, const ir_affine *e)
{
    i64 f = factor_of(e, r->along), low, high;
    ir_affine own = position(r, r->along), rest;
    if (f == INT64_MIN || !combine(r, e, 1, &own, -f, &rest) || !bounds(r, &rest, &low, &high))
        return everything(false);
    if (f == 0)
        return high <= 0 ? everything(true) : low > 0 ? nothing() : everything(false);
    i64 step = f < 0 ? -f : f;
    i64 *factors = NEW_N(r->a, i64, rest.atoms.n);
    for (i64 i = 0; i < rest.atoms.n; i++) {
        if (rest.factors[i] % step != 0)
            return everything(false);
        factors[i] = rest.factors[i] / step;
    }
    if (rest.constant == INT64_MIN)
        return everything(false);
    /* With the least integer q >= rest / |f|: f > 0 says k <= -q, f < 0 says k >= q. */
    ir_affine q = {-floor_div(-rest.constant, step), factors, rest.atoms}, one = constant(1);
    live out = {.n = 1, .is_exact = true};
    if (f < 0) {
        out.at[0].has_low = true;
        out.at[0].low = q;
    } else {
        out.at[0].has_high = combine(r, &one, 1, &q, -1, &out.at[0].high);
        out.is_exact = out.at[0].has_high;
    }
    if (is_void(r, &out.at[0]))
        out.n = 0;
    return out;
}

/* Where s * x - t * y + offset <= 0. */
static live compare(reader *r, const ir_affine *x, i64 s, const ir_affine *y, i64 t, i64 offset)
{
    ir_affine e, c = constant(offset);
    if (!combine(r, x, s, y, -t, &e) || !combine(r, &e, 1, &c, 1, &e))
        return everything(false);
    return not_positive(r, &e);
}

/* Where a + offset <= b; |u| on one side is two comparisons. */
static live at_most(reader *r, ir_term a, ir_term b, i64 offset)
{
    const ir_node *x = ir_get(r->p, a), *y = ir_get(r->p, b);
    ir_affine ax, bx;
    bool abs_a = x->op == IR_abs, abs_b = y->op == IR_abs;
    if ((abs_a && abs_b) || !affine_of(r, abs_a ? x->args[0] : a, 0, &ax) ||
        !affine_of(r, abs_b ? y->args[0] : b, 0, &bx))
        return everything(false);
    i64 low, high;
    if ((abs_a && (!bounds(r, &ax, &low, &high) || low == INT64_MIN)) ||
        (abs_b && (!bounds(r, &bx, &low, &high) || low == INT64_MIN)))
        return everything(false);
    live one = compare(r, &ax, 1, &bx, 1, offset);
    if (!abs_a && !abs_b)
        return one;
    live two = abs_a ? compare(r, &ax, -1, &bx, 1, offset) : compare(r, &ax, 1, &bx, -1, offset);
    return abs_a ? both(r, &one, &two) : either(&one, &two);
}

/* Where the mask is `value`. */
static live where_it_is(reader *r, ir_term t, bool value, i64 depth)
{
    const ir_node *node = ir_get(r->p, t);
    if (depth > MAX_DEPTH || ++r->steps > MAX_STEPS)
        return everything(false);
    switch (node->op) {
    case IR_const:
        return (node->attr.i != 0) == value ? everything(true) : nothing();
    case IR_view:
    case IR_expand:
        return where_it_is(r, node->args[0], value, depth + 1);
    case IR_not:
        return where_it_is(r, node->args[0], !value, depth + 1);
    case IR_and:
    case IR_mul:
    case IR_or:
        if (node->dtype == DT_bool) {
            live x = where_it_is(r, node->args[0], value, depth + 1);
            live y = where_it_is(r, node->args[1], value, depth + 1);
            return (node->op != IR_or) == value ? both(r, &x, &y) : either(&x, &y);
        }
        return everything(false);
    case IR_le: /* not a <= b: b < a */
        return value ? at_most(r, node->args[0], node->args[1], 0)
                     : at_most(r, node->args[1], node->args[0], 1);
    case IR_lt:
        return value ? at_most(r, node->args[0], node->args[1], 1)
                     : at_most(r, node->args[1], node->args[0], 0);
    case IR_eq:
    case IR_ne: {
        bool equal = (node->op == IR_eq) == value;
        live x = at_most(r, node->args[0], node->args[1], equal ? 0 : 1);
        live y = at_most(r, node->args[1], node->args[0], equal ? 0 : 1);
        return equal ? both(r, &x, &y) : either(&x, &y);
    }
    default:
        return everything(false);
    }
}

/* Without atoms that do not matter. */
static ir_affine tidy(arena *a, const ir_affine *x)
{
    ir_atom *at = NEW_N(a, ir_atom, x->atoms.n);
    i64 *factors = NEW_N(a, i64, x->atoms.n), n = 0;
    for (i64 i = 0; i < x->atoms.n; i++)
        if (x->factors[i] != 0) {
            at[n] = x->atoms.at[i];
            factors[n++] = x->factors[i];
        }
    return (ir_affine){x->constant, factors, {at, n}};
}

ir_live_set ir_live(arena *a, const ir_program *p, ir_term mask, ir_atom along)
{
    if (ir_get(p, mask)->dtype != DT_bool)
        eqf_throw(p->ctx, EQF_E_ARGUMENT, p->file, NULL, "a mask is a bool");
    reader r = {.p = p, .a = arena_child(a), .along = along};
    live x = where_it_is(&r, mask, true, 0);
    ir_range *at = NEW_N(a, ir_range, x.n);
    ir_affine end = constant(ir_extent(p, along));
    for (i64 i = 0; i < x.n; i++) {
        ir_affine zero = constant(0);
        at[i].low = tidy(a, x.at[i].has_low ? &x.at[i].low : &zero);
        at[i].high = tidy(a, x.at[i].has_high ? &x.at[i].high : &end);
    }
    arena_free(r.a);
    return (ir_live_set){at, x.n, x.is_exact};
}
