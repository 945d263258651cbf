/* Index expressions: pointwise terms over iotas and numbers, and the masks made of them.
 *
 * They are evaluated, not matched: an affine form is collected from whatever additions and
 * subtractions there are; whether a mask leaves a row empty is found by looking for a witness at
 * every row. */
#include <math.h>

#include "frontend/normalize.h"
#include "ir/scalar.h"

/* ---- affine forms -------------------------------------------------------------------------- */

typedef struct affine {
    VEC(ir_term) terms;
    VEC(i64) factors;
    i64 constant;
    bool is_wrong; /* a number does not fit */
} affine;

static void collect(nz *z, ir_term t, i64 factor, affine *sum)
{
    const ir_node *n = nz_at(z, t);
    i64 c, k;
    if (nz_integer(z, t, &c)) {
        if (!mul_i64(c, factor, &k) || !add_i64(sum->constant, k, &sum->constant))
            sum->is_wrong = true;
        return;
    }
    if (n->op == IR_add || n->op == IR_sub) {
        ir_term a = n->args[0], b = n->args[1];
        i64 sign = n->op == IR_sub ? -factor : factor;
        collect(z, a, factor, sum);
        collect(z, b, sign, sum);
        return;
    }
    if (n->op == IR_neg) {
        collect(z, n->args[0], -factor, sum);
        return;
    }
    for (i64 i = 0; n->op == IR_mul && i < 2; i++)
        if (nz_integer(z, n->args[i], &c)) {
            if (!mul_i64(c, factor, &k))
                sum->is_wrong = true;
            collect(z, n->args[1 - i], k, sum);
            return;
        }
    for (i64 i = 0; i < sum->terms.n; i++)
        if (sum->terms.at[i].i == t.i) {
            if (!add_i64(sum->factors.at[i], factor, &sum->factors.at[i]))
                sum->is_wrong = true;
            return;
        }
    vec_push(z->p->a, &sum->terms, t);
    vec_push(z->p->a, &sum->factors, factor);
}

static ir_term added(nz *z, ir_term sum, ir_term t, i64 factor)
{
    ir_program *p = z->p;
    if (factor != 1)
        t = ir_2(p, IR_mul, t, ir_i(p, DT_i64, factor));
    return sum.i ? ir_2(p, IR_add, sum, t) : t;
}

bool nz_affine(nz *z, ir_op op, const ir_term *x, ir_term *out)
{
    affine d = {0};
    ir_program *p = z->p;
    collect(z, x[0], 1, &d);
    collect(z, x[1], -1, &d);
    if (d.is_wrong || d.constant < -INT64_MAX)
        return false;
    /* Left and right get what is positive; an integer a < b is a + 1 <= b. */
    bool is_order = op == IR_lt || op == IR_le;
    i64 c = d.constant, first = -1;
    if (op == IR_lt && c < INT64_MAX)
        c++;
    ir_term side[2] = {{0}, {0}};
    for (i64 i = 0; i < d.terms.n; i++)
        if (d.factors.at[i] && first < 0)
            first = i;
    if (first < 0) {
        *out = ir_i(p, DT_bool, op == IR_eq ? c == 0 : op == IR_ne ? c != 0 : c <= 0);
        return true;
    }
    /* Equations have a side to choose: the oldest term stands left. */
    bool is_swapped = !is_order && d.factors.at[first] < 0;
    for (i64 i = 0; i < d.terms.n; i++) {
        i64 f = d.factors.at[i];
        int s = (f < 0) != is_swapped;
        if (f > INT64_MIN && f)
            side[s] = added(z, side[s], d.terms.at[i], f < 0 ? -f : f);
    }
    ir_op result = op == IR_lt ? IR_le : op;
    ir_term zero = ir_i(p, DT_i64, 0);
    if (is_order) { /* L + c <= R; a constant of 1 makes it L < R */
        if (!side[0].i) {
            side[0] = ir_i(p, DT_i64, c);
            c = 0;
        } else if (!side[1].i) {
            side[1] = ir_i(p, DT_i64, -c);
            c = 0;
        }
        if (c > 0) {
            result = IR_lt;
            c--;
        }
        if (c > 0)
            side[0] = added(z, side[0], ir_i(p, DT_i64, c), 1);
        if (c < 0)
            side[1] = added(z, side[1], ir_i(p, DT_i64, -c), 1);
    } else {
        if (is_swapped)
            c = -c;
        if (c > 0 && side[1].i)
            side[0] = added(z, side[0], ir_i(p, DT_i64, c), 1);
        else if (side[1].i && c < 0)
            side[1] = added(z, side[1], ir_i(p, DT_i64, -c), 1);
        else if (!side[1].i)
            side[1] = c ? ir_i(p, DT_i64, -c) : zero;
    }
    ir_term made = ir_2(p, result, side[0], side[1]);
    *out = made;
    return true;
}

/* ---- maps of index expressions  ------------------------------------------------------------ */

static bool is_index(const nz *z, ir_term t, i64 depth)
{
    const ir_node *n = nz_at(z, t);
    if (n->op == IR_iota || n->op == IR_const)
        return true;
    if (ir_row((ir_op)n->op)->class_ != IR_EWISE || depth == 0)
        return false;
    for (i64 i = 0; i < n->arg_count; i++)
        if (!is_index(z, n->args[i], depth - 1))
            return false;
    return true;
}

enum { MAX_DEPTH = 24 };

/* start + sum of steps * iota(to) for iota(axis), or iota renamed. */
static ir_term mapped(nz *z, ir_op op, const ir_attr *attr, ir_term t)
{
    ir_node n = *nz_at(z, t);
    if (n.op == IR_const)
        return t;
    if (n.op == IR_iota) {
        ir_atom k = n.attr.axis.at[0];
        for (i64 i = 0; i < attr->axis.n; i++) {
            if (attr->axis.at[i].i != k.i)
                continue;
            if (op == IR_rename)
                return ir_iota(z->p, attr->to.at[i]);
            ir_term sum = ir_i(z->p, DT_i64, attr->ints.at[0]);
            for (i64 m = 0; m < attr->to.n; m++) {
                ir_term step = nz_2(z, IR_mul, ir_iota(z->p, attr->to.at[m]),
                                    ir_i(z->p, DT_i64, attr->ints.at[1 + m]));
                sum = nz_2(z, IR_add, sum, step);
            }
            return sum;
        }
        return t;
    }
    ir_term args[3];
    for (i64 i = 0; i < n.arg_count; i++)
        args[i] = mapped(z, op, attr, n.args[i]);
    if (n.op == IR_cast)
        return nz_cast(z, n.dtype, args[0]);
    return n.arg_count == 1   ? nz_1(z, (ir_op)n.op, args[0])
           : n.arg_count == 2 ? nz_2(z, (ir_op)n.op, args[0], args[1])
                              : nz_where(z, args[0], args[1], args[2]);
}

bool nz_index_map(nz *z, ir_op op, ir_attr attr, ir_term x, ir_term *out)
{
    if (!is_index(z, x, MAX_DEPTH))
        return false;
    *out = mapped(z, op, &attr, x);
    return true;
}

/* ---- rows that a mask leaves  -------------------------------------------------------------- */

typedef struct point {
    nz *z;
    ir_atoms atoms; /* of the condition */
    i64 at[64];
} point;

typedef struct number {
    bool is_float;
    i64 i;
    f64 f;
} number;

static number evaluate(const point *c, ir_term t)
{
    const ir_node *n = nz_at(c->z, t);
    if (n->op == IR_const)
        return (number){dtype_is_float((dtype)n->dtype), n->attr.i, n->attr.f};
    if (n->op == IR_iota) {
        for (i64 i = 0; i < c->atoms.n; i++)
            if (c->atoms.at[i].i == n->attr.axis.at[0].i)
                return (number){false, c->at[i], 0};
    }
    number a = evaluate(c, n->args[0]);
    if (n->op == IR_where)
        return evaluate(c, n->args[a.i ? 1 : 2]);
    number b = n->arg_count > 1 ? evaluate(c, n->args[1]) : a;
    bool is_float = a.is_float;
    f64 r = 0;
    i64 k = 0;
    switch (n->op) {
    case IR_cast:
        if (dtype_is_float((dtype)n->dtype))
            return (number){true, 0, is_float ? a.f : (f64)a.i};
        k = is_float ? eqf_int_of_f64((dtype)n->dtype, a.f) : n->dtype == DT_bool ? a.i != 0 : a.i;
        return (number){false, k, 0};
#define PAIR(op_, f_, i_)                                                                          \
    case IR_##op_:                                                                                 \
        r = f_, k = i_;                                                                            \
        break;
        PAIR(add, a.f + b.f, eqf_wrap_add(a.i, b.i))
        PAIR(sub, a.f - b.f, eqf_wrap_sub(a.i, b.i))
        PAIR(mul, a.f * b.f, eqf_wrap_mul(a.i, b.i))
        PAIR(max, eqf_max(a.f, b.f), MAX(a.i, b.i))
        PAIR(min, eqf_min(a.f, b.f), MIN(a.i, b.i))
        PAIR(abs, fabs(a.f), eqf_iabs(a.i))
        PAIR(neg, -a.f, eqf_wrap_sub(0, a.i))
        PAIR(floordiv, eqf_floordiv(a.f, b.f), b.i ? eqf_ifloordiv(a.i, b.i) : 0)
        PAIR(truncdiv, trunc(a.f / b.f), b.i ? eqf_itruncdiv(a.i, b.i) : 0)
        PAIR(fmod, fmod(a.f, b.f), b.i ? eqf_ifmod(a.i, b.i) : 0)
        PAIR(mod, eqf_mod(a.f, b.f), b.i ? eqf_imod(a.i, b.i) : 0)
#undef PAIR
    case IR_lt:
        return (number){false, is_float ? a.f < b.f : a.i < b.i, 0};
    case IR_le:
        return (number){false, is_float ? a.f <= b.f : a.i <= b.i, 0};
    case IR_eq:
        return (number){false, is_float ? a.f == b.f : a.i == b.i, 0};
    case IR_ne:
        return (number){false, is_float ? a.f != b.f : a.i != b.i, 0};
    case IR_and:
        return (number){false, a.i & b.i, 0};
    case IR_or:
        return (number){false, a.i | b.i, 0};
    case IR_xor:
        return (number){false, a.i ^ b.i, 0};
    case IR_not:
        return (number){false, !a.i, 0};
    default:
        break;
    }
    return (number){is_float, k, r};
}

/* Operators that `evaluate` knows. */
static bool can_evaluate(const nz *z, ir_term t, i64 depth)
{
    const ir_node *n = nz_at(z, t);
    switch (n->op) {
    case IR_const:
    case IR_iota:
        return true;
    case IR_cast:
    case IR_add:
    case IR_sub:
    case IR_mul:
    case IR_max:
    case IR_min:
    case IR_abs:
    case IR_neg:
    case IR_floordiv:
    case IR_truncdiv:
    case IR_mod:
    case IR_fmod:
    case IR_lt:
    case IR_le:
    case IR_eq:
    case IR_ne:
    case IR_and:
    case IR_or:
    case IR_xor:
    case IR_not:
    case IR_where:
        break;
    default:
        return false;
    }
    for (i64 i = 0; i < n->arg_count; i++)
        if (depth == 0 || !can_evaluate(z, n->args[i], depth - 1))
            return false;
    return true;
}

bool nz_bounds(nz *z, ir_term x, i64 depth, i64 *low, i64 *high)
{
    const ir_node *n = nz_at(z, x);
    i64 a, b, c, d;
    if (n->dtype != DT_i64 || depth == 0)
        return false;
    switch (n->op) {
    case IR_const:
        *low = *high = n->attr.i;
        return true;
    case IR_iota:
    case IR_argsort:
        *low = 0, *high = ir_extent(z->p, n->attr.axis.at[0]) - 1;
        return true;
    case IR_rename:
    case IR_slice:
    case IR_reshape:
    case IR_expand:
    case IR_gather:
        return nz_bounds(z, n->args[0], depth - 1, low, high);
    case IR_add:
    case IR_max:
    case IR_min:
        if (!nz_bounds(z, n->args[0], depth - 1, &a, &b) ||
            !nz_bounds(z, n->args[1], depth - 1, &c, &d))
            return false;
        if (n->op == IR_add)
            return add_i64(a, c, low) && add_i64(b, d, high);
        *low = n->op == IR_max ? MAX(a, c) : MIN(a, c);
        *high = n->op == IR_max ? MAX(b, d) : MIN(b, d);
        return true;
    default:
        return false;
    }
}

bool nz_has_values(nz *z, ir_term x)
{
    return nz_at(z, x)->dims.n <= NZ_MAX_ATOMS &&
           dtype_kind_of((dtype)nz_at(z, x)->dtype) == DK_INT && can_evaluate(z, x, MAX_DEPTH);
}

i64 nz_value_at(nz *z, ir_term x, const i64 *position)
{
    point pt = {.z = z, .atoms = nz_at(z, x)->dims};
    memcpy(pt.at, position, (size_t)pt.atoms.n * sizeof *position);
    return evaluate(&pt, x).i;
}

enum { MAX_ROWS = 1 << 20, MAX_SCAN = 1 << 24 };

/* Is there, for each coordinate of the other atoms, one along `axis` where c holds? Tried first at
 * the ends and where an axis coordinate equals a row's own; then everywhere, in small masks. */
static bool every_row(nz *z, ir_term c, ir_atoms axis)
{
    point pt = {.z = z, .atoms = nz_at(z, c)->dims};
    if (pt.atoms.n > NZ_MAX_ATOMS || !can_evaluate(z, c, MAX_DEPTH))
        return false;
    i64 rows = 1, along = 1, row_of[64], n_row = 0, axis_of[64], n_axis = 0;
    for (i64 i = 0; i < pt.atoms.n; i++) {
        bool is_axis = ir_has(axis, pt.atoms.at[i]);
        i64 e = ir_extent(z->p, pt.atoms.at[i]);
        if (!mul_i64(is_axis ? along : rows, e, is_axis ? &along : &rows))
            return false;
        if (is_axis)
            axis_of[n_axis++] = i;
        else
            row_of[n_row++] = i;
    }
    if (rows > MAX_ROWS)
        return false;
    for (i64 r = 0; r < rows; r++) {
        i64 left = r;
        for (i64 k = 0; k < n_row; k++) {
            i64 e = ir_extent(z->p, pt.atoms.at[row_of[k]]);
            pt.at[row_of[k]] = left % e;
            left /= e;
        }
        bool is_found = n_axis == 0 && evaluate(&pt, c).i;
        for (i64 try = 0; try < 2 + n_row && !is_found && n_axis; try++) {
            for (i64 k = 0; k < n_axis; k++) {
                i64 e = ir_extent(z->p, pt.atoms.at[axis_of[k]]);
                i64 v = try == 0 ? 0 : try == 1 ? e - 1 : pt.at[row_of[try - 2]];
                pt.at[axis_of[k]] = MIN(v, e - 1);
            }
            is_found = evaluate(&pt, c).i;
        }
        if (!is_found && n_axis && rows * along <= MAX_SCAN)
            for (i64 a = 0; a < along && !is_found; a++) {
                i64 rest = a;
                for (i64 k = 0; k < n_axis; k++) {
                    i64 e = ir_extent(z->p, pt.atoms.at[axis_of[k]]);
                    pt.at[axis_of[k]] = rest % e;
                    rest /= e;
                }
                is_found = evaluate(&pt, c).i;
            }
        if (!is_found)
            return false;
    }
    return true;
}

/* Never -inf, given that the operands of products are finite. */
static bool is_above(nz *z, ir_term t, i64 depth)
{
    const ir_node *n = nz_at(z, t);
    f64 c;
    if (depth == 0)
        return false;
    switch (n->op) {
    case IR_const:
        return nz_number(z, t, &c) && c > (f64)-INFINITY;
    case IR_matmul:
    case IR_tanh:
    case IR_sigmoid:
    case IR_sin:
    case IR_cos:
        return true;
    case IR_iota:
        return true;
    case IR_cast:
    case IR_rename:
    case IR_slice:
    case IR_reshape:
    case IR_expand:
    case IR_neg:
        return is_above(z, n->args[0], depth - 1);
    case IR_add:
    case IR_sub:
    case IR_mul:
    case IR_max:
    case IR_min: {
        ir_term a = n->args[0], b = n->args[1];
        return is_above(z, a, depth - 1) && is_above(z, b, depth - 1);
    }
    case IR_where: {
        ir_term a = n->args[1], b = n->args[2];
        return is_above(z, a, depth - 1) && is_above(z, b, depth - 1);
    }
    default:
        return false;
    }
}

static bool is_live(nz *z, ir_term x, ir_atoms axis, i64 depth)
{
    const ir_node *n = nz_at(z, x);
    if (is_above(z, x, MAX_DEPTH))
        return true;
    if (depth == 0)
        return false;
    ir_term a = n->arg_count > 0 ? n->args[0] : x, b = n->arg_count > 1 ? n->args[1] : x;
    f64 c;
    switch (n->op) {
    case IR_where:
        return is_above(z, b, MAX_DEPTH) && every_row(z, a, axis);
    case IR_add:
        return (is_above(z, a, MAX_DEPTH) && is_live(z, b, axis, depth - 1)) ||
               (is_above(z, b, MAX_DEPTH) && is_live(z, a, axis, depth - 1));
    case IR_mul:
        return (nz_number(z, b, &c) && c > 0 && is_live(z, a, axis, depth - 1)) ||
               (nz_number(z, a, &c) && c > 0 && is_live(z, b, axis, depth - 1));
    case IR_cast:
        return is_live(z, a, axis, depth - 1);
    default:
        return false;
    }
}

bool nz_is_live(nz *z, ir_term x, ir_atoms axis)
{
    return is_live(z, x, axis, MAX_DEPTH);
}
