/* normalize: local identities that give one idiom one spelling.
 *
 * The exporter writes one module in three dialects; after this pass they are one program. Every
 * rule looks at an operator and its operands, holds by itself over the reals (with -inf as a mask
 * value, and finite operands of products), and makes the term smaller or moves it toward one
 * spelling:
 *
 *   numbers      folded; a product's number stands outermost: (x*c)*y = (x*y)*c, also out of sums,
 *                products over atoms and renames; x/c = x * (1/c); x - c = x + -c
 *   powers       x*x = square, 1/sqrt = rsqrt, x * (1/y) = x/y
 *   casts        between floats only the last counts; a half operator between f32 casts is f32
 *   conditions   `not` sinks to comparisons; integer comparisons are affine: no subtraction, one
 *                constant; x + where(c, 0, -inf) = where(c, x, -inf); the constant branch comes
 * last softmax      any(x != -inf) = (max x != -inf); that is true where no row can be all masked
 *   products     a sum of a product is a matmul
 *   positions    renames and slices of index expressions are index expressions
 *
 * Terms are rebuilt bottom-up into the same hash-consed program until nothing changes.
 * normalize_index.c holds the arithmetic of index expressions and masks. */
#include <math.h>

#include "frontend/normalize.h"
#include "ir/scalar.h"

/* ---- reading terms ------------------------------------------------------------------------------
 */

const ir_node *nz_at(const nz *z, ir_term t)
{
    return &z->p->nodes.at[t.i];
}

bool nz_is(const nz *z, ir_term t, ir_op op)
{
    return nz_at(z, t)->op == op;
}

ir_term nz_arg(const nz *z, ir_term t, i64 i)
{
    return nz_at(z, t)->args[i];
}

static bool is_float(const nz *z, ir_term t)
{
    return dtype_is_float((dtype)nz_at(z, t)->dtype);
}

static bool is_wide(const nz *z, ir_term t)
{
    return nz_at(z, t)->dtype == DT_f32 || nz_at(z, t)->dtype == DT_f64;
}

bool nz_number(const nz *z, ir_term t, f64 *out)
{
    if (!nz_is(z, t, IR_const))
        return false;
    *out = is_float(z, t) ? nz_at(z, t)->attr.f : (f64)nz_at(z, t)->attr.i;
    return true;
}

bool nz_integer(const nz *z, ir_term t, i64 *out)
{
    if (!nz_is(z, t, IR_const) || is_float(z, t))
        return false;
    *out = nz_at(z, t)->attr.i;
    return true;
}

static bool is_value(const nz *z, ir_term t, f64 value)
{
    f64 x;
    return nz_number(z, t, &x) && x == value;
}

ir_term nz_const(nz *z, u8 type, f64 x)
{
    if (dtype_is_float((dtype)type))
        return ir_f(z->p, (dtype)type, x);
    return ir_i(z->p, (dtype)type, (i64)x);
}

/* ---- folding
 * ------------------------------------------------------------------------------------- */

#define NONE 0
/* The rows as they stand; `where` has a condition, not a float, and is folded by its caller. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wfloat-conversion"
static f64 fold_f64(ir_op op, f64 a, f64 b, f64 c)
{
    (void)b, (void)c;
    switch (op) {
#define FOLD_EWISE(name, fexpr)                                                                    \
    case IR_##name:                                                                                \
        return (f64)(fexpr);
#define FOLD_LEAF(name, fexpr)
#define FOLD_REDUCE FOLD_LEAF
#define FOLD_MATMUL FOLD_LEAF
#define FOLD_INDEX FOLD_LEAF
#define FOLD_GATHER FOLD_LEAF
#define FOLD_PLAIN FOLD_LEAF
#define FOLD_OPAQUE FOLD_LEAF
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) FOLD_##class_(name, fexpr)
#include "ir/ops.def"
#undef OP
    default:
        return 0;
    }
}

#pragma GCC diagnostic pop

static i64 fold_i64(ir_op op, i64 a, i64 b, i64 c)
{
    (void)b, (void)c;
    switch (op) {
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) FOLD_##class_(name, iexpr)
#undef FOLD_EWISE
#define FOLD_EWISE(name, iexpr)                                                                    \
    case IR_##name:                                                                                \
        return (i64)(iexpr);
#include "ir/ops.def"
#undef OP
    default:
        return 0;
    }
}
#undef NONE

/* A pointwise operator on constants. Integer division by zero stays, as the error it is. */
static bool fold(nz *z, ir_op op, u8 type, const ir_term *x, i64 n, ir_term *out)
{
    f64 f[3] = {0};
    i64 i[3] = {0};
    for (i64 k = 0; k < n; k++) {
        if (!nz_is(z, x[k], IR_const))
            return false;
        f[k] = nz_at(z, x[k])->attr.f;
        i[k] = nz_at(z, x[k])->attr.i;
    }
    bool from_float = is_float(z, x[n - 1]);
    if (op == IR_cast) {
        if (dtype_is_float((dtype)type))
            *out = ir_f(z->p, (dtype)type, from_float ? f[0] : (f64)i[0]);
        else
            *out = ir_i(z->p, (dtype)type,
                        from_float        ? eqf_int_of_f64((dtype)type, f[0])
                        : type == DT_bool ? i[0] != 0
                                          : eqf_wrap((dtype)type, i[0]));
        return true;
    }
    if (op == IR_where) {
        *out = i[0] ? x[1] : x[2];
        return true;
    }
    if (!from_float && i[1] == 0 &&
        (op == IR_floordiv || op == IR_truncdiv || op == IR_mod || op == IR_fmod))
        return false;
    if (!from_float && op == IR_pow && i[1] < 0)
        return false;
    if (dtype_is_float((dtype)type)) {
        *out = ir_f(z->p, (dtype)type, fold_f64(op, f[0], f[1], f[2]));
        return true;
    }
    i64 r = from_float ? (i64)fold_f64(op, f[0], f[1], f[2]) : fold_i64(op, i[0], i[1], i[2]);
    *out = ir_i(z->p, (dtype)type, type == DT_bool ? r != 0 : eqf_wrap((dtype)type, r));
    return true;
}

/* ---- constructors
 * --------------------------------------------------------------------------------- */

static ir_term simplify(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n);

ir_term nz_1(nz *z, ir_op op, ir_term a)
{
    return simplify(z, op, (ir_attr){0}, &a, 1);
}

ir_term nz_2(nz *z, ir_op op, ir_term a, ir_term b)
{
    ir_term x[2] = {a, b};
    return simplify(z, op, (ir_attr){0}, x, 2);
}

ir_term nz_where(nz *z, ir_term c, ir_term a, ir_term b)
{
    ir_term x[3] = {c, a, b};
    return simplify(z, IR_where, (ir_attr){0}, x, 3);
}

ir_term nz_cast(nz *z, u8 type, ir_term a)
{
    return simplify(z, IR_cast, (ir_attr){.dtype = type}, &a, 1);
}

static ir_term scaled(nz *z, ir_term x, f64 c)
{
    return nz_2(z, IR_mul, x, nz_const(z, nz_at(z, x)->dtype, c));
}

/* x = y * c with c a finite number of a wide float (neg is -1)? */
static bool split_scale(const nz *z, ir_term x, ir_term *y, f64 *c)
{
    if (!is_wide(z, x))
        return false;
    if (nz_is(z, x, IR_neg)) {
        *y = nz_arg(z, x, 0), *c = -1;
        return true;
    }
    for (i64 i = 0; nz_is(z, x, IR_mul) && i < 2; i++)
        if (nz_number(z, nz_arg(z, x, i), c) && isfinite(*c)) {
            *y = nz_arg(z, x, 1 - i);
            return true;
        }
    return false;
}

/* ---- rules: arithmetic
 * --------------------------------------------------------------------------- */

static bool rule_mul(nz *z, const ir_term *x, ir_term *out)
{
    u8 type = nz_at(z, x[0])->dtype;
    for (int i = 0; i < 2; i++) {
        ir_term a = x[i], b = x[1 - i];
        f64 c, d;
        ir_term y;
        if (is_value(z, a, 1)) {
            *out = b;
            return true;
        }
        if (!is_float(z, a) && is_value(z, a, 0)) {
            *out = a;
            return true;
        }
        if (type == DT_bool) {
            *out = nz_2(z, IR_and, a, b);
            return true;
        }
        if (is_float(z, a) && is_value(z, a, -1)) {
            *out = nz_1(z, IR_neg, b);
            return true;
        }
        if (is_wide(z, a) && nz_number(z, a, &c)) {
            if (split_scale(z, b, &y, &d)) {
                *out = scaled(z, y, c * d);
                return true;
            }
            if (nz_is(z, b, IR_recip)) {
                *out = nz_2(z, IR_div, a, nz_arg(z, b, 0));
                return true;
            }
            f64 e; /* c * (d / y) */
            if (nz_is(z, b, IR_div) && nz_number(z, nz_arg(z, b, 0), &e)) {
                *out = nz_2(z, IR_div, nz_const(z, type, c * e), nz_arg(z, b, 1));
                return true;
            }
            continue;
        }
        if (nz_is(z, b, IR_const))
            continue;
        if (split_scale(z, a, &y, &c)) {
            *out = scaled(z, nz_2(z, IR_mul, y, b), c);
            return true;
        }
        if (is_wide(z, a) && nz_is(z, a, IR_recip) && !nz_is(z, b, IR_recip)) {
            *out = nz_2(z, IR_div, b, nz_arg(z, a, 0));
            return true;
        }
    }
    if (x[0].i == x[1].i) {
        *out = nz_1(z, IR_square, x[0]);
        return true;
    }
    return false;
}

static bool rule_div(nz *z, const ir_term *x, ir_term *out)
{
    f64 c;
    ir_term y;
    u8 type = nz_at(z, x[0])->dtype;
    if (is_value(z, x[1], 1)) {
        *out = x[0];
        return true;
    }
    if (nz_number(z, x[1], &c) && isfinite(c) && c != 0.0 && isfinite(1.0 / c) &&
        is_wide(z, x[0])) {
        *out = scaled(z, x[0], 1.0 / c);
        return true;
    }
    if (is_value(z, x[0], 1)) {
        *out = nz_1(z, IR_recip, x[1]);
        return true;
    }
    if (!nz_is(z, x[0], IR_const) && split_scale(z, x[0], &y, &c)) {
        *out = scaled(z, nz_2(z, IR_div, y, x[1]), c);
        return true;
    }
    if (split_scale(z, x[1], &y, &c) && c != 0.0) {
        *out = scaled(z, nz_2(z, IR_div, x[0], y), 1.0 / c);
        return true;
    }
    (void)type;
    return false;
}

/* x + where(c, 0, -inf) = where(c, x, -inf) */
static bool rule_mask(nz *z, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2 && is_float(z, x[0]); i++) {
        if (!nz_is(z, x[i], IR_where))
            continue;
        ir_term c = nz_arg(z, x[i], 0), a = nz_arg(z, x[i], 1), b = nz_arg(z, x[i], 2);
        if (is_value(z, a, 0) && is_value(z, b, (f64)-INFINITY)) {
            *out = nz_where(z, c, x[1 - i], b);
            return true;
        }
    }
    return false;
}

static bool rule_add(nz *z, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2; i++) {
        if (is_value(z, x[i], 0)) {
            *out = x[1 - i];
            return true;
        }
        if (is_float(z, x[0]) && nz_is(z, x[i], IR_neg)) {
            *out = nz_2(z, IR_sub, x[1 - i], nz_arg(z, x[i], 0));
            return true;
        }
    }
    return rule_mask(z, x, out);
}

static bool rule_sub(nz *z, const ir_term *x, ir_term *out)
{
    f64 c;
    i64 i;
    if (is_value(z, x[1], 0)) {
        *out = x[0];
        return true;
    }
    if (is_float(z, x[0]) && is_value(z, x[0], 0)) {
        *out = nz_1(z, IR_neg, x[1]);
        return true;
    }
    if (is_float(z, x[0]) && nz_is(z, x[1], IR_neg)) {
        *out = nz_2(z, IR_add, x[0], nz_arg(z, x[1], 0));
        return true;
    }
    bool is_number = is_float(z, x[1]) ? nz_number(z, x[1], &c)
                                       : nz_integer(z, x[1], &i) && i > INT64_MIN && (c = 0, true);
    if (is_number) {
        ir_term k = is_float(z, x[1]) ? nz_const(z, nz_at(z, x[1])->dtype, -c)
                                      : ir_i(z->p, (dtype)nz_at(z, x[1])->dtype,
                                             eqf_wrap((dtype)nz_at(z, x[1])->dtype, -i));
        *out = nz_2(z, IR_add, x[0], k);
        return true;
    }
    return false;
}

static bool rule_pow(nz *z, const ir_term *x, ir_term *out)
{
    f64 e;
    if (!nz_number(z, x[1], &e))
        return false;
    bool floats = is_float(z, x[0]);
    if (e == 1)
        *out = x[0];
    else if (e == 2)
        *out = nz_1(z, IR_square, x[0]);
    else if (e == 3)
        *out = nz_2(z, IR_mul, x[0], nz_1(z, IR_square, x[0]));
    else if (floats && e == 0.5)
        *out = nz_1(z, IR_sqrt, x[0]);
    else if (floats && e == -0.5)
        *out = nz_1(z, IR_rsqrt, x[0]);
    else if (floats && e == -1)
        *out = nz_1(z, IR_recip, x[0]);
    else
        return false;
    return true;
}

static bool rule_one(nz *z, ir_op op, ir_term x, ir_term *out)
{
    f64 c;
    ir_term y;
    if (op == IR_neg && nz_is(z, x, IR_neg)) {
        *out = nz_arg(z, x, 0);
        return true;
    }
    if (op == IR_neg && is_float(z, x) && nz_is(z, x, IR_sub)) {
        *out = nz_2(z, IR_sub, nz_arg(z, x, 1), nz_arg(z, x, 0));
        return true;
    }
    if (op == IR_neg && split_scale(z, x, &y, &c)) {
        *out = scaled(z, y, -c);
        return true;
    }
    if (op == IR_square && (nz_is(z, x, IR_neg) || nz_is(z, x, IR_abs))) {
        *out = nz_1(z, IR_square, nz_arg(z, x, 0));
        return true;
    }
    if ((op == IR_abs) && (nz_is(z, x, IR_abs) || nz_is(z, x, IR_square) || nz_is(z, x, IR_exp))) {
        *out = x;
        return is_float(z, x) || nz_is(z, x, IR_abs);
    }
    if (op == IR_recip &&
        (nz_is(z, x, IR_sqrt) || nz_is(z, x, IR_rsqrt) || nz_is(z, x, IR_recip))) {
        ir_term inner = nz_arg(z, x, 0);
        *out = nz_is(z, x, IR_sqrt)    ? nz_1(z, IR_rsqrt, inner)
               : nz_is(z, x, IR_rsqrt) ? nz_1(z, IR_sqrt, inner)
                                       : inner;
        return true;
    }
    if (op == IR_sigmoid || op == IR_exp)
        return false;
    return false;
}

/* ---- rules: casts
 * -------------------------------------------------------------------------------- */

/* Does every value of dtype a have its exact image in b? */
static bool is_exact(u8 a, u8 b)
{
    dtype_kind ka = dtype_kind_of((dtype)a), kb = dtype_kind_of((dtype)b);
    if (a == b || ka == DK_BOOL)
        return true;
    if (ka == DK_INT && kb == DK_INT)
        return a <= b;
    if (ka == DK_INT)
        return a == DT_i8 || (a == DT_i32 && b == DT_f64);
    return kb == DK_FLOAT && (b == DT_f64 || (b == DT_f32 && a != DT_f64));
}

static bool rule_cast(nz *z, u8 type, ir_term x, ir_term *out)
{
    u8 from = nz_at(z, x)->dtype;
    if (from == type) {
        *out = x;
        return true;
    }
    if (nz_is(z, x, IR_cast)) {
        ir_term y = nz_arg(z, x, 0);
        u8 first = nz_at(z, y)->dtype;
        bool floats = dtype_is_float((dtype)first) && dtype_is_float((dtype)from) &&
                      dtype_is_float((dtype)type);
        /* What is rounded for others too is read as they read it: one value, not two. */
        bool is_shared = x.i < z->n_counted && z->uses[x.i] > 1 && !is_exact(first, from);
        if ((floats && !is_shared) || is_exact(first, from)) {
            *out = nz_cast(z, type, y);
            return true;
        }
    }
    if (nz_is(z, x, IR_where) && nz_is(z, nz_arg(z, x, 1), IR_const) &&
        nz_is(z, nz_arg(z, x, 2), IR_const)) {
        *out = nz_where(z, nz_arg(z, x, 0), nz_cast(z, type, nz_arg(z, x, 1)),
                        nz_cast(z, type, nz_arg(z, x, 2)));
        return true;
    }
    if (type == DT_bool) {
        *out = nz_2(z, IR_ne, x, nz_const(z, from, 0));
        return true;
    }
    return false;
}

/* ---- rules: conditions
 * --------------------------------------------------------------------------- */

static bool rule_not(nz *z, ir_term x, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    ir_term a = n->arg_count > 0 ? n->args[0] : x, b = n->arg_count > 1 ? n->args[1] : x;
    switch (n->op) {
    case IR_not:
        *out = a;
        return true;
    case IR_eq:
        *out = nz_2(z, IR_ne, a, b);
        return true;
    case IR_ne:
        *out = nz_2(z, IR_eq, a, b);
        return true;
    case IR_lt:
        *out = is_float(z, a) ? x : nz_2(z, IR_le, b, a);
        return !is_float(z, a);
    case IR_le:
        *out = is_float(z, a) ? x : nz_2(z, IR_lt, b, a);
        return !is_float(z, a);
    case IR_and:
        *out = nz_2(z, IR_or, nz_1(z, IR_not, a), nz_1(z, IR_not, b));
        return true;
    case IR_or:
        *out = nz_2(z, IR_and, nz_1(z, IR_not, a), nz_1(z, IR_not, b));
        return true;
    case IR_reduce:
        if (n->attr.reducer != IR_OR && n->attr.reducer != IR_AND)
            return false;
        a = nz_1(z, IR_not, a);
        *out = simplify(z, IR_reduce,
                        (ir_attr){.reducer = n->attr.reducer == IR_OR ? IR_AND : IR_OR,
                                  .axis = nz_at(z, x)->attr.axis},
                        &a, 1);
        return true;
    default:
        return false;
    }
}

static bool rule_logic(nz *z, ir_op op, const ir_term *x, ir_term *out)
{
    if (nz_at(z, x[0])->dtype != DT_bool)
        return false;
    for (int i = 0; i < 2; i++) {
        i64 v;
        if (!nz_integer(z, x[i], &v))
            continue;
        bool is_neutral = op == IR_and ? v == 1 : v == 0;
        if (op == IR_xor)
            *out = v ? nz_1(z, IR_not, x[1 - i]) : x[1 - i];
        else
            *out = is_neutral ? x[1 - i] : x[i];
        return true;
    }
    if (x[0].i == x[1].i && op != IR_xor) {
        *out = x[0];
        return true;
    }
    return false;
}

/* Does `type` hold every value of t? */
static bool fits(const nz *z, ir_term t, u8 type)
{
    if (is_exact(nz_at(z, t)->dtype, type))
        return true;
    i64 most = type == DT_i32 ? INT32_MAX : type == DT_i8 ? INT8_MAX : type == DT_f32 ? 1 << 24 : 0;
    return nz_is(z, t, IR_iota) && ir_extent(z->p, nz_at(z, t)->attr.axis.at[0]) - 1 <= most;
}

static bool rule_compare(nz *z, ir_op op, const ir_term *x, ir_term *out)
{
    u8 type = nz_at(z, x[0])->dtype;
    if (type == DT_bool && (op == IR_eq || op == IR_ne))
        for (int i = 0; i < 2; i++) {
            i64 v;
            if (nz_integer(z, x[i], &v)) {
                *out = (v != 0) == (op == IR_eq) ? x[1 - i] : nz_1(z, IR_not, x[1 - i]);
                return true;
            }
        }
    if (op == IR_ne)
        for (int i = 0; i < 2; i++)
            if (is_value(z, x[i], 0) && nz_is(z, x[1 - i], IR_cast) &&
                nz_at(z, nz_arg(z, x[1 - i], 0))->dtype == DT_bool) {
                *out = nz_arg(z, x[1 - i], 0);
                return true;
            }
    if (nz_is(z, x[0], IR_cast) && nz_is(z, x[1], IR_cast)) {
        ir_term a = nz_arg(z, x[0], 0), b = nz_arg(z, x[1], 0);
        if (nz_at(z, a)->dtype == nz_at(z, b)->dtype && fits(z, a, type) && fits(z, b, type)) {
            *out = nz_2(z, op, a, b);
            return true;
        }
    }
    if (dtype_kind_of((dtype)type) == DK_INT && type == DT_i64 && nz_affine(z, op, x, out))
        return true;
    /* max over a row that cannot be all -inf */
    if (op == IR_ne || op == IR_eq)
        for (int i = 0; i < 2; i++)
            if (is_value(z, x[i], (f64)-INFINITY) && nz_is(z, x[1 - i], IR_reduce) &&
                nz_at(z, x[1 - i])->attr.reducer == IR_MAX &&
                nz_is_live(z, nz_arg(z, x[1 - i], 0), nz_at(z, x[1 - i])->attr.axis)) {
                *out = ir_i(z->p, DT_bool, op == IR_ne);
                return true;
            }
    return false;
}

static bool rule_where(nz *z, const ir_term *x, ir_term *out)
{
    i64 v;
    ir_term c = x[0], a = x[1], b = x[2];
    if (nz_integer(z, c, &v) || a.i == b.i) {
        *out = a.i == b.i || v ? a : b;
        return true;
    }
    if (nz_at(z, a)->dtype == DT_bool && nz_is(z, a, IR_const)) {
        i64 t = nz_at(z, a)->attr.i;
        *out = t ? nz_2(z, IR_or, c, b) : nz_2(z, IR_and, nz_1(z, IR_not, c), b);
        return true;
    }
    if (nz_at(z, b)->dtype == DT_bool && nz_is(z, b, IR_const)) {
        i64 t = nz_at(z, b)->attr.i;
        *out = t ? nz_2(z, IR_or, nz_1(z, IR_not, c), a) : nz_2(z, IR_and, c, a);
        return true;
    }
    if (is_value(z, a, 1) && is_value(z, b, 0)) {
        *out = nz_cast(z, nz_at(z, a)->dtype, c);
        return true;
    }
    f64 ka, kb;
    if (nz_number(z, a, &ka) && nz_number(z, b, &kb)) { /* the larger number first */
        if (!(ka < kb))
            return false;
        *out = nz_where(z, nz_1(z, IR_not, c), b, a);
        return true;
    }
    if (nz_is(z, a, IR_const)) {
        *out = nz_where(z, nz_1(z, IR_not, c), b, a);
        return true;
    }
    if (nz_is(z, c, IR_not) && !nz_is(z, b, IR_const)) {
        *out = nz_where(z, nz_arg(z, c, 0), b, a);
        return true;
    }
    if (nz_is(z, a, IR_where) && nz_arg(z, a, 0).i == c.i) {
        *out = nz_where(z, c, nz_arg(z, a, 1), b);
        return true;
    }
    if (nz_is(z, b, IR_where) && nz_arg(z, b, 0).i == c.i) {
        *out = nz_where(z, c, a, nz_arg(z, b, 2));
        return true;
    }
    if (nz_is(z, b, IR_const) && nz_is(z, a, IR_where) && nz_arg(z, a, 2).i == b.i) {
        *out = nz_where(z, nz_2(z, IR_and, c, nz_arg(z, a, 0)), nz_arg(z, a, 1), b);
        return true;
    }
    return false;
}

/* ---- rules: sums and products over atoms
 * ------------------------------------------------------------- */

static bool has_all(ir_atoms set, ir_atoms wanted)
{
    for (i64 i = 0; i < wanted.n; i++)
        if (!ir_has(set, wanted.at[i]))
            return false;
    return true;
}

static bool rule_reduce(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    ir_term y, a, b;
    f64 c;
    const ir_node *n = nz_at(z, x);
    if (!has_all(n->dims, attr.axis)) {
        *out = ir_reduce(z->p, (ir_reducer)attr.reducer, x, attr.axis);
        return true;
    }
    if (attr.reducer == IR_SUM && split_scale(z, x, &y, &c)) {
        *out = scaled(z, simplify(z, IR_reduce, attr, &y, 1), c);
        return true;
    }
    if (attr.reducer == IR_SUM && n->op == IR_mul && is_float(z, x)) {
        a = n->args[0], b = n->args[1];
        if (has_all(nz_at(z, a)->dims, attr.axis) && has_all(nz_at(z, b)->dims, attr.axis)) {
            ir_term ab[2] = {a, b};
            *out = simplify(z, IR_matmul, (ir_attr){.axis = attr.axis}, ab, 2);
            return true;
        }
    }
    if (n->op == IR_reduce && n->attr.reducer == attr.reducer) {
        *out = ir_reduce(z->p, (ir_reducer)attr.reducer, n->args[0],
                         ir_atoms_union(z->p, attr.axis, n->attr.axis));
        return true;
    }
    /* any(x != -inf) = (max x != -inf), all(x == -inf) = (max x == -inf) */
    ir_op test = attr.reducer == IR_OR ? IR_ne : attr.reducer == IR_AND ? IR_eq : IR_NO_OP;
    if (test != IR_NO_OP && n->op == test)
        for (int i = 0; i < 2; i++)
            if (is_value(z, n->args[i], (f64)-INFINITY)) {
                ir_term k = n->args[i];
                y = n->args[1 - i];
                ir_term m =
                    simplify(z, IR_reduce, (ir_attr){.reducer = IR_MAX, .axis = attr.axis}, &y, 1);
                *out = nz_2(z, test, m, k);
                return true;
            }
    return false;
}

static bool rule_matmul(nz *z, ir_attr attr, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2; i++) {
        ir_term y, both[2] = {x[0], x[1]};
        f64 c;
        if (!split_scale(z, x[i], &y, &c))
            continue;
        both[i] = y;
        *out = scaled(z, simplify(z, IR_matmul, attr, both, 2), c);
        return true;
    }
    for (int i = 0; i < 2 && is_wide(z, x[0]); i++) { /* a factor without the summed atoms leaves */
        bool is_free = true;
        for (i64 k = 0; k < attr.axis.n; k++)
            is_free = is_free && !ir_has(nz_at(z, x[i])->dims, attr.axis.at[k]);
        if (!is_free)
            continue;
        ir_attr sum = {.reducer = IR_SUM, .axis = attr.axis};
        *out = nz_2(z, IR_mul, simplify(z, IR_reduce, sum, &x[1 - i], 1), x[i]);
        return true;
    }
    return false;
}

static bool rule_rename(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    ir_term y;
    f64 c;
    const ir_node *n = nz_at(z, x);
    if (split_scale(z, x, &y, &c)) {
        *out = scaled(z, nz_rename(z, y, attr.axis, attr.to), c);
        return true;
    }
    if (n->op == IR_rename) {
        /* first n's mapping, then this one */
        ir_atom *from = NEW_N(z->p->a, ir_atom, n->dims.n),
                *to = NEW_N(z->p->a, ir_atom, n->dims.n);
        const ir_node *inner = nz_at(z, n->args[0]);
        ir_attr first = n->attr;
        ir_term base = n->args[0];
        i64 count = inner->dims.n;
        for (i64 i = 0; i < count; i++) {
            from[i] = to[i] = inner->dims.at[i];
            for (i64 k = 0; k < first.axis.n; k++)
                if (first.axis.at[k].i == from[i].i)
                    to[i] = first.to.at[k];
            for (i64 k = 0; k < attr.axis.n; k++)
                if (attr.axis.at[k].i == to[i].i) {
                    to[i] = attr.to.at[k];
                    break;
                }
        }
        *out = nz_rename(z, base, (ir_atoms){from, count}, (ir_atoms){to, count});
        return true;
    }
    return false;
}

ir_term nz_slice(nz *z, ir_term x, ir_atom k, i64 start, ir_atoms to, const i64 *steps)
{
    if (!ir_has(nz_at(z, x)->dims, k))
        return x;
    i64 *ints = NEW_N(z->p->a, i64, 1 + to.n);
    ints[0] = start;
    for (i64 i = 0; i < to.n; i++)
        ints[1 + i] = steps[i];
    ir_attr attr = {
        .axis = {arena_copy(z->p->a, &k, sizeof k), 1}, .to = to, .ints = {ints, 1 + to.n}};
    if (to.n == 1 && start == 0 && steps[0] == 1 && ir_extent(z->p, k) == ir_extent(z->p, to.at[0]))
        return nz_rename(z, x, attr.axis, to);
    return simplify(z, IR_slice, attr, &x, 1);
}

/* A slice that reads one part of a concatenation, or a slice of a slice, reads from within. */
static bool rule_slice(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    ir_atom k = attr.axis.at[0];
    i64 low = attr.ints.at[0], high = low;
    for (i64 i = 0; i < attr.to.n; i++) {
        i64 span = attr.ints.at[1 + i] * (ir_extent(z->p, attr.to.at[i]) - 1);
        *(span < 0 ? &low : &high) += span;
        if (ir_has(n->dims, attr.to.at[i]))
            return false; /* a diagonal */
    }
    if (n->op == IR_concat && n->attr.to.at[0].i == k.i) {
        i64 first = 0;
        for (i64 i = 0; i < n->arg_count; i++) {
            ir_atom own = n->attr.axis.at[i];
            i64 last = first + ir_extent(z->p, own) - 1;
            if (low >= first && high <= last) {
                *out = n->args[i];
                if (own.i)
                    *out = nz_slice(z, n->args[i], own, attr.ints.at[0] - first, attr.to,
                                    attr.ints.at + 1);
                return true;
            }
            first = last + 1;
        }
    }
    if (n->op == IR_slice && n->attr.to.n == 1 && n->attr.to.at[0].i == k.i) {
        i64 step = n->attr.ints.at[1], start = n->attr.ints.at[0] + step * attr.ints.at[0];
        i64 *steps = NEW_N(z->p->a, i64, attr.to.n);
        for (i64 i = 0; i < attr.to.n; i++)
            steps[i] = step * attr.ints.at[1 + i];
        ir_atom base = n->attr.axis.at[0];
        if (ir_has(nz_at(z, n->args[0])->dims, k) && k.i != base.i)
            return false; /* the inner one is a diagonal: k moves in both */
        for (i64 i = 0; i < attr.to.n; i++)
            if (ir_has(nz_at(z, n->args[0])->dims, attr.to.at[i]) && attr.to.at[i].i != base.i)
                return false;
        *out = nz_slice(z, n->args[0], base, start, attr.to, steps);
        return true;
    }
    if (n->op == IR_where) { /* reads what a masked write put there, or left */
        ir_term c = n->args[0], a = n->args[1], b = n->args[2], mapped;
        i64 v;
        if (nz_index_map(z, IR_slice, attr, c, &mapped) && nz_integer(z, mapped, &v)) {
            *out = nz_slice(z, v ? a : b, k, attr.ints.at[0], attr.to, attr.ints.at + 1);
            return true;
        }
    }
    return false;
}

/* A gather whose index is known: a few runs of equal steps are slices. */
static bool rule_gather_runs(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    enum { MAX_RUNS = 4 };
    i64 start[MAX_RUNS], step[MAX_RUNS], length[MAX_RUNS], runs = 0;
    ir_atom k = attr.axis.at[0];
    ir_atoms j = nz_at(z, x[1])->dims;
    if (n != 2 || j.n != 1 || !nz_has_values(z, x[1]) || ir_has(nz_at(z, x[0])->dims, j.at[0]))
        return false;
    i64 count = ir_extent(z->p, j.at[0]), last = 0;
    if (count > 1 << 22)
        return false;
    /* One run of any step, or a few that count up. */
    i64 stride = nz_value_at(z, x[1], 1) - nz_value_at(z, x[1], 0);
    for (i64 i = 2; i < count && stride; i++)
        if (nz_value_at(z, x[1], i) - nz_value_at(z, x[1], i - 1) != stride)
            stride = 0;
    for (i64 i = 0; i < count; i++) {
        i64 v = nz_value_at(z, x[1], i);
        if (v < 0 || v >= ir_extent(z->p, k))
            return false;
        if (runs && v - last == step[runs - 1]) {
            length[runs - 1]++;
        } else if (runs == MAX_RUNS) {
            return false;
        } else {
            start[runs] = v, step[runs] = stride ? stride : 1, length[runs++] = 1;
        }
        last = v;
    }
    if (runs == 1) {
        *out = nz_slice(z, x[0], k, start[0], j, step);
        return true;
    }
    ir_term parts[MAX_RUNS];
    ir_atom own[MAX_RUNS];
    for (i64 i = 0; i < runs; i++) {
        own[i] = length[i] > 1 ? ir_atom_new(z->p, NULL, length[i]) : (ir_atom){0};
        parts[i] = nz_slice(z, x[0], k, start[i], (ir_atoms){&own[i], length[i] > 1}, &step[i]);
        if (own[i].i && !ir_has(nz_at(z, parts[i])->dims, own[i]))
            return false;
    }
    *out = ir_make(z->p, IR_concat, (ir_attr){.axis = {own, runs}, .to = j}, parts, runs);
    return true;
}

/* A value picked along an axis it is computed along: a masked sum, as cross-entropy writes it. */
static bool rule_gather(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    const ir_node *base = nz_at(z, x[0]);
    if (n != 2 || base->op == IR_in || !is_float(z, x[0]) || nz_at(z, x[1])->dtype != DT_i64)
        return false;
    ir_atoms rest = ir_atoms_minus(z->p, nz_at(z, x[0])->dims, attr.axis);
    if (!has_all(rest, nz_at(z, x[1])->dims))
        return false;
    ir_term hit = nz_2(z, IR_eq, x[1], ir_iota(z->p, attr.axis.at[0]));
    ir_term y = nz_where(z, hit, x[0], nz_const(z, nz_at(z, x[0])->dtype, 0));
    *out = simplify(z, IR_reduce, (ir_attr){.reducer = IR_SUM, .axis = attr.axis}, &y, 1);
    return true;
}

/* Casts that lose nothing come after what only moves elements: the narrow value is read. */
static bool rule_moved_cast(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    const ir_node *c = nz_at(z, x[0]);
    if (c->op != IR_cast || !is_exact(nz_at(z, c->args[0])->dtype, c->dtype))
        return false;
    u8 type = c->dtype;
    ir_term *args = arena_copy(z->p->a, x, n * (i64)sizeof *x);
    args[0] = c->args[0];
    *out = nz_cast(z, type, simplify(z, op, attr, args, n));
    return true;
}

static bool rules(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    switch (op) {
    case IR_mul:
        return rule_mul(z, x, out);
    case IR_div:
        return rule_div(z, x, out);
    case IR_add:
        return rule_add(z, x, out);
    case IR_sub:
        return rule_sub(z, x, out);
    case IR_pow:
        return rule_pow(z, x, out);
    case IR_max:
    case IR_min:
        *out = x[0];
        return x[0].i == x[1].i;
    case IR_cast:
        return rule_cast(z, attr.dtype, x[0], out);
    case IR_not:
        return rule_not(z, x[0], out);
    case IR_and:
    case IR_or:
    case IR_xor:
        return rule_logic(z, op, x, out);
    case IR_eq:
    case IR_ne:
    case IR_lt:
    case IR_le:
        return rule_compare(z, op, x, out);
    case IR_where:
        return rule_where(z, x, out);
    case IR_reduce:
        return rule_reduce(z, attr, x[0], out);
    case IR_matmul:
        return rule_matmul(z, attr, x, out);
    case IR_rename:
        return nz_index_map(z, op, attr, x[0], out) || rule_rename(z, attr, x[0], out) ||
               rule_moved_cast(z, op, attr, x, n, out);
    case IR_slice:
        return nz_index_map(z, op, attr, x[0], out) || rule_slice(z, attr, x[0], out) ||
               rule_moved_cast(z, op, attr, x, n, out);
    case IR_reshape:
    case IR_expand:
        return rule_moved_cast(z, op, attr, x, n, out);
    case IR_gather:
        return rule_gather_runs(z, attr, x, n, out) || rule_gather(z, attr, x, n, out) ||
               rule_moved_cast(z, op, attr, x, n, out);
    default:
        return ir_row(op)->class_ == IR_EWISE && n == 1 && rule_one(z, op, x[0], out);
    }
}

ir_term nz_rename(nz *z, ir_term x, ir_atoms from, ir_atoms to)
{
    ir_term y = ir_rename(z->p, x, from, to), out;
    if (!nz_is(z, y, IR_rename) || y.i == x.i)
        return y;
    ir_attr attr = nz_at(z, y)->attr;
    ir_term base = nz_arg(z, y, 0);
    return rules(z, IR_rename, attr, &base, 1, &out) ? out : y;
}

static u8 type_of(const nz *z, ir_op op, const ir_attr *attr, const ir_term *x)
{
    ir_rule rule = (ir_rule)ir_row(op)->rule;
    if (op == IR_cast)
        return attr->dtype;
    if (rule == IR_COMPARE || rule == IR_TEST)
        return DT_bool;
    return nz_at(z, x[op == IR_where ? 1 : 0])->dtype;
}

static ir_term simplify(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n)
{
    ir_term out;
    if (ir_row(op)->class_ == IR_EWISE && fold(z, op, type_of(z, op, &attr, x), x, n, &out))
        return out;
    if (rules(z, op, attr, x, n, &out))
        return out;
    if (op == IR_rename)
        return ir_rename(z->p, x[0], attr.axis, attr.to);
    if (op == IR_matmul)
        return ir_matmul(z->p, x[0], x[1], attr.axis);
    if (op == IR_slice)
        return ir_slice(z->p, x[0], attr.axis.at[0], attr.ints.at[0], attr.to, attr.ints.at + 1);
    return ir_make(z->p, op, attr, x, n);
}

/* ---- rules about use: half types
 * ------------------------------------------------------------------- */

static bool is_half(u8 type)
{
    return type == DT_f16 || type == DT_bf16;
}

/* Arithmetic that may as well run in f32. */
static bool is_arithmetic(const ir_node *n)
{
    return n->op != IR_cast && ((ir_row(n->op)->class_ == IR_EWISE && is_half(n->dtype)) ||
                                ((n->op == IR_reduce || n->op == IR_matmul) && is_half(n->dtype)));
}

static ir_term widened(nz *z, const ir_node *n, const ir_term *args)
{
    ir_term wide[3];
    for (i64 i = 0; i < n->arg_count; i++)
        wide[i] = nz_at(z, args[i])->dtype == DT_bool ? args[i] : nz_cast(z, DT_f32, args[i]);
    return simplify(z, n->op, n->attr, wide, n->arg_count);
}

/* Keeps in f32 what only f32 readers want (a half operator between casts), and what came from f32
 * for this operator alone. Rounding less than eager does is allowed; what the program stores in a
 * half type still is one. */
static bool rule_half(nz *z, const ir_node *n, const ir_term *args, ir_term *out)
{
    if (n->op == IR_cast && n->dtype == DT_f32) {
        const ir_node *x = &z->p->nodes.at[n->args[0].i]; /* as it was before this round */
        const ir_node *now = nz_at(z, args[0]);
        if (z->uses[n->args[0].i] == 1 && is_arithmetic(now) && is_arithmetic(x)) {
            ir_term inner[3];
            ir_node copy = *now;
            for (i64 i = 0; i < copy.arg_count; i++)
                inner[i] = copy.args[i];
            *out = widened(z, &copy, inner);
            return true;
        }
        return false;
    }
    if (!is_arithmetic(n))
        return false;
    for (i64 i = 0; i < n->arg_count; i++) {
        const ir_node *x = nz_at(z, args[i]);
        if (x->op == IR_cast && is_half(x->dtype) && z->uses[n->args[i].i] == 1 &&
            nz_at(z, x->args[0])->dtype == DT_f32) {
            ir_node copy = *n;
            *out = nz_cast(z, n->dtype, widened(z, &copy, args));
            return true;
        }
    }
    return false;
}

/* ---- the driver
 * ------------------------------------------------------------------------------------- */

static void count_uses(nz *z)
{
    i64 n = z->p->nodes.n;
    z->uses = NEW_N(z->p->a, u32, n);
    z->n_counted = (u32)n;
    for (i64 i = 0; i < z->p->outputs.n; i++)
        if (z->p->outputs.at[i].term.i)
            z->uses[z->p->outputs.at[i].term.i]++;
    for (i64 i = n - 1; i > 0; i--)
        for (i64 k = 0; z->uses[i] && k < z->p->nodes.at[i].arg_count; k++)
            z->uses[z->p->nodes.at[i].args[k].i]++;
}

enum { MAX_ROUNDS = 64 };

void fe_normalize(ir_program *p)
{
    nz state = {.p = p}, *z = &state;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        i64 n = p->nodes.n;
        count_uses(z);
        ir_term *now = NEW_N(p->a, ir_term, n);
        for (i64 i = 1; i < n; i++) {
            if (!z->uses[i])
                continue;
            ir_node node = p->nodes.at[i];
            ir_term *args = NEW_N(p->a, ir_term, node.arg_count);
            for (i64 k = 0; k < node.arg_count; k++)
                args[k] = now[node.args[k].i];
            p->origin = node.origin;
            if (ir_row((ir_op)node.op)->class_ == IR_LEAF)
                now[i] = (ir_term){(u32)i};
            else if (!rule_half(z, &node, args, &now[i]))
                now[i] = simplify(z, (ir_op)node.op, node.attr, args, node.arg_count);
        }
        bool is_done = true;
        for (i64 i = 0; i < p->outputs.n; i++) {
            ir_term *t = &p->outputs.at[i].term;
            is_done = is_done && (!t->i || now[t->i].i == t->i);
            if (t->i)
                *t = now[t->i];
        }
        if (is_done)
            break;
    }
}
