/* normalize: local identities that give one idiom one spelling.
 *
 * The exporter writes one module in three dialects; after this pass they are one program. Every
 * rule looks at an operator and its operands, holds by itself over the reals (with -inf as a mask
 * value, and finite operands of products), and makes the term smaller or moves it toward one
 * spelling:
 *
 *   numbers      folded; a product's number stands outermost: (x*c)*y = (x*y)*c, also out of sums,
 *                products over atoms, renames and reshapes; x/c = x * (1/c); x - c = x + -c
 *   powers       x*x = square, 1/sqrt = rsqrt, x * (1/y) = x/y
 *   casts        between floats only the last counts; a half operator between f32 casts is f32
 *   conditions   `not` sinks to comparisons; integer comparisons are affine: no subtraction, one
 *                constant; x + where(c, 0, -inf) = where(c, x, -inf); the constant branch comes
 * last softmax      any(x != -inf) = (max x != -inf); that is true where no row can be all masked
 *   products     a sum of a product is a matmul
 *   positions    renames and slices of index expressions are index expressions
 *
 * Terms are rebuilt bottom-up into the same hash-consed program until nothing changes.
 * normalize_axes.c holds the rules along atoms, normalize_index.c the arithmetic of index
 * expressions and masks. */
#include <math.h>

#include "frontend/normalize.h"
#include "ir/scalar.h"

/* ---- reading terms ------------------------------------------------------------------------- */

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

bool nz_is_float(const nz *z, ir_term t)
{
    return dtype_is_float((dtype)nz_at(z, t)->dtype);
}

bool nz_is_wide(const nz *z, ir_term t)
{
    return nz_at(z, t)->dtype == DT_f32 || nz_at(z, t)->dtype == DT_f64;
}

bool nz_number(const nz *z, ir_term t, f64 *out)
{
    if (!nz_is(z, t, IR_const))
        return false;
    *out = nz_is_float(z, t) ? nz_at(z, t)->attr.f : (f64)nz_at(z, t)->attr.i;
    return true;
}

bool nz_integer(const nz *z, ir_term t, i64 *out)
{
    if (!nz_is(z, t, IR_const) || nz_is_float(z, t))
        return false;
    *out = nz_at(z, t)->attr.i;
    return true;
}

bool nz_is_value(const nz *z, ir_term t, f64 value)
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

/* ---- folding  ------------------------------------------------------------------------------ */

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
    bool from_float = nz_is_float(z, x[n - 1]);
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

/* ---- constructors  ------------------------------------------------------------------------- */

ir_term nz_1(nz *z, ir_op op, ir_term a)
{
    return nz_make(z, op, (ir_attr){0}, &a, 1);
}

ir_term nz_2(nz *z, ir_op op, ir_term a, ir_term b)
{
    ir_term x[2] = {a, b};
    return nz_make(z, op, (ir_attr){0}, x, 2);
}

ir_term nz_where(nz *z, ir_term c, ir_term a, ir_term b)
{
    ir_term x[3] = {c, a, b};
    return nz_make(z, IR_where, (ir_attr){0}, x, 3);
}

ir_term nz_cast(nz *z, u8 type, ir_term a)
{
    return nz_make(z, IR_cast, (ir_attr){.dtype = type}, &a, 1);
}

ir_term nz_scaled(nz *z, ir_term x, f64 c)
{
    return nz_2(z, IR_mul, x, nz_const(z, nz_at(z, x)->dtype, c));
}

/* x = y * c with c a finite number of a wide float (neg is -1)? */
bool nz_split_scale(const nz *z, ir_term x, ir_term *y, f64 *c)
{
    if (!nz_is_wide(z, x))
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

/* ---- rules: arithmetic  -------------------------------------------------------------------- */

static bool rule_mul(nz *z, const ir_term *x, ir_term *out)
{
    u8 type = nz_at(z, x[0])->dtype;
    for (int i = 0; i < 2; i++) {
        ir_term a = x[i], b = x[1 - i];
        f64 c, d;
        ir_term y;
        if (nz_is_value(z, a, 1)) {
            *out = b;
            return true;
        }
        if (!nz_is_float(z, a) && nz_is_value(z, a, 0)) {
            *out = a;
            return true;
        }
        if (type == DT_bool) {
            *out = nz_2(z, IR_and, a, b);
            return true;
        }
        if (nz_is_float(z, a) && nz_is_value(z, a, -1)) {
            *out = nz_1(z, IR_neg, b);
            return true;
        }
        if (nz_is_wide(z, a) && nz_number(z, a, &c)) {
            if (nz_split_scale(z, b, &y, &d)) {
                *out = nz_scaled(z, y, c * d);
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
        if (nz_split_scale(z, a, &y, &c)) {
            *out = nz_scaled(z, nz_2(z, IR_mul, y, b), c);
            return true;
        }
        if (nz_is_wide(z, a) && nz_is(z, a, IR_recip) && !nz_is(z, b, IR_recip)) {
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
    if (nz_is_value(z, x[1], 1)) {
        *out = x[0];
        return true;
    }
    if (nz_number(z, x[1], &c) && isfinite(c) && c != 0.0 && isfinite(1.0 / c) &&
        nz_is_wide(z, x[0])) {
        *out = nz_scaled(z, x[0], 1.0 / c);
        return true;
    }
    if (nz_is_value(z, x[0], 1)) {
        *out = nz_1(z, IR_recip, x[1]);
        return true;
    }
    if (!nz_is(z, x[0], IR_const) && nz_split_scale(z, x[0], &y, &c)) {
        *out = nz_scaled(z, nz_2(z, IR_div, y, x[1]), c);
        return true;
    }
    if (nz_split_scale(z, x[1], &y, &c) && c != 0.0) {
        *out = nz_scaled(z, nz_2(z, IR_div, x[0], y), 1.0 / c);
        return true;
    }
    (void)type;
    return false;
}

/* x + where(c, 0, -inf) = where(c, x, -inf) */
static bool rule_mask(nz *z, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2 && nz_is_float(z, x[0]); i++) {
        if (!nz_is(z, x[i], IR_where))
            continue;
        ir_term c = nz_arg(z, x[i], 0), a = nz_arg(z, x[i], 1), b = nz_arg(z, x[i], 2);
        if (nz_is_value(z, a, 0) && nz_is_value(z, b, (f64)-INFINITY)) {
            *out = nz_where(z, c, x[1 - i], b);
            return true;
        }
    }
    return false;
}

static bool rule_add(nz *z, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2; i++) {
        if (nz_is_value(z, x[i], 0)) {
            *out = x[1 - i];
            return true;
        }
        if (nz_is_float(z, x[0]) && nz_is(z, x[i], IR_neg)) {
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
    if (nz_is_value(z, x[1], 0)) {
        *out = x[0];
        return true;
    }
    if (nz_is_float(z, x[0]) && nz_is_value(z, x[0], 0)) {
        *out = nz_1(z, IR_neg, x[1]);
        return true;
    }
    if (nz_is_float(z, x[0]) && nz_is(z, x[1], IR_neg)) {
        *out = nz_2(z, IR_add, x[0], nz_arg(z, x[1], 0));
        return true;
    }
    bool is_number = nz_is_float(z, x[1])
                         ? nz_number(z, x[1], &c)
                         : nz_integer(z, x[1], &i) && i > INT64_MIN && (c = 0, true);
    if (is_number) {
        ir_term k = nz_is_float(z, x[1]) ? nz_const(z, nz_at(z, x[1])->dtype, -c)
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
    bool floats = nz_is_float(z, x[0]);
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
    if (op == IR_neg && nz_is_float(z, x) && nz_is(z, x, IR_sub)) {
        *out = nz_2(z, IR_sub, nz_arg(z, x, 1), nz_arg(z, x, 0));
        return true;
    }
    if (op == IR_neg && nz_split_scale(z, x, &y, &c)) {
        *out = nz_scaled(z, y, -c);
        return true;
    }
    if (op == IR_square && (nz_is(z, x, IR_neg) || nz_is(z, x, IR_abs))) {
        *out = nz_1(z, IR_square, nz_arg(z, x, 0));
        return true;
    }
    if ((op == IR_abs) && (nz_is(z, x, IR_abs) || nz_is(z, x, IR_square) || nz_is(z, x, IR_exp))) {
        *out = x;
        return nz_is_float(z, x) || nz_is(z, x, IR_abs);
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

/* ---- rules: casts  ------------------------------------------------------------------------- */

/* Does every value of dtype a have its exact image in b? */
bool nz_is_exact(u8 a, u8 b)
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
        bool is_shared = x.i < z->n_counted && z->uses[x.i] > 1 && !nz_is_exact(first, from);
        if ((floats && !is_shared) || nz_is_exact(first, from)) {
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

/* ---- rules: conditions  -------------------------------------------------------------------- */

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
        *out = nz_is_float(z, a) ? x : nz_2(z, IR_le, b, a);
        return !nz_is_float(z, a);
    case IR_le:
        *out = nz_is_float(z, a) ? x : nz_2(z, IR_lt, b, a);
        return !nz_is_float(z, a);
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
        *out = nz_make(z, IR_reduce,
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
    if (nz_is_exact(nz_at(z, t)->dtype, type))
        return true;
    i64 most = type == DT_i32 ? INT32_MAX : type == DT_i8 ? INT8_MAX : type == DT_f32 ? 1 << 24 : 0;
    return nz_is(z, t, IR_iota) && ir_extent(z->p, nz_at(z, t)->attr.axis.at[0]) - 1 <= most;
}

enum { BOUNDS_DEPTH = 6 };

/* A remainder that changes nothing. */
static bool rule_mod(nz *z, const ir_term *x, ir_term *out)
{
    i64 n, low, high;
    *out = x[0];
    return nz_integer(z, x[1], &n) && nz_bounds(z, x[0], BOUNDS_DEPTH, &low, &high) && low >= 0 &&
           high < n;
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
            if (nz_is_value(z, x[i], 0) && nz_is(z, x[1 - i], IR_cast) &&
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
    i64 low[2], high[2];
    if ((op == IR_lt || op == IR_le) && nz_bounds(z, x[0], BOUNDS_DEPTH, &low[0], &high[0]) &&
        nz_bounds(z, x[1], BOUNDS_DEPTH, &low[1], &high[1])) {
        bool is_always = op == IR_lt ? high[0] < low[1] : high[0] <= low[1];
        bool is_never = op == IR_lt ? low[0] >= high[1] : low[0] > high[1];
        if (is_always || is_never) {
            *out = ir_i(z->p, DT_bool, is_always);
            return true;
        }
    }
    if (dtype_kind_of((dtype)type) == DK_INT && type == DT_i64 && nz_affine(z, op, x, out))
        return true;
    /* max over a row that cannot be all -inf */
    if (op == IR_ne || op == IR_eq)
        for (int i = 0; i < 2; i++)
            if (nz_is_value(z, x[i], (f64)-INFINITY) && nz_is(z, x[1 - i], IR_reduce) &&
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
    if (nz_is_value(z, a, 1) && nz_is_value(z, b, 0)) {
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
    case IR_mod:
    case IR_fmod:
        return rule_mod(z, x, out);
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
        return nz_rule_reduce(z, attr, x[0], out);
    case IR_matmul:
        return nz_rule_matmul(z, attr, x, out);
    case IR_rename:
        return nz_index_map(z, op, attr, x[0], out) || nz_rule_rename(z, attr, x[0], out) ||
               nz_rule_moved_cast(z, op, attr, x, n, out);
    case IR_slice:
        return nz_index_map(z, op, attr, x[0], out) || nz_rule_slice(z, attr, x[0], out) ||
               nz_rule_moved_cast(z, op, attr, x, n, out);
    case IR_concat:
        return nz_rule_concat(z, attr, x, n, out);
    case IR_reshape:
        if (nz_rule_reshape(z, attr, x[0], out))
            return true;
        return nz_rule_moved_scale(z, op, attr, x, out) ||
               nz_rule_moved_cast(z, op, attr, x, n, out);
    case IR_expand:
        return nz_rule_moved_scale(z, op, attr, x, out) ||
               nz_rule_moved_cast(z, op, attr, x, n, out);
    case IR_gather:
        return nz_rule_gather_runs(z, attr, x, n, out) || nz_rule_gather(z, attr, x, n, out) ||
               nz_rule_moved_cast(z, op, attr, x, n, out);
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

ir_term nz_make(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n)
{
    ir_term out, sorted[2];
    if (nz_rule_still(z, op, attr, x, n, &out) || nz_rule_repeated(z, op, attr, x, n, &out))
        return out;
    if (ir_row(op)->class_ == IR_EWISE && fold(z, op, type_of(z, op, &attr, x), x, n, &out))
        return out;
    if (rules(z, op, attr, x, n, &out))
        return out;
    /* So that a + b and b + a are one term. */
    if (n == 2 && ir_row(op)->flags & IR_COMM && x[0].i > x[1].i) {
        sorted[0] = x[1], sorted[1] = x[0];
        x = sorted;
    }
    if (op == IR_rename)
        return ir_rename(z->p, x[0], attr.axis, attr.to);
    if (op == IR_matmul)
        return ir_matmul(z->p, x[0], x[1], attr.axis);
    if (op == IR_slice)
        return ir_slice(z->p, x[0], attr.axis.at[0], attr.ints.at[0], attr.to, attr.ints.at + 1);
    return ir_make(z->p, op, attr, x, n);
}

/* ---- rules about use: half types  ---------------------------------------------------------- */

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
    return nz_make(z, n->op, n->attr, wide, n->arg_count);
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

/* ---- the driver  --------------------------------------------------------------------------- */

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

/* An output's dims may have any names: one that its term need not be renamed for. */
static void name_output(nz *z, ir_port *port)
{
    while (port->term.i && nz_is(z, port->term, IR_rename)) {
        ir_attr attr = nz_at(z, port->term)->attr;
        ir_dim *dims = NEW_N(z->p->a, ir_dim, port->rank);
        for (i64 d = 0; d < port->rank; d++) {
            ir_atoms own = port->dims[d].atoms;
            ir_atom *at = arena_copy(z->p->a, own.at, own.n * (i64)sizeof *at);
            for (i64 i = 0; i < own.n; i++) {
                if (ir_has(attr.axis, own.at[i]))
                    return; /* it is another dim of this output */
                for (i64 k = 0; k < attr.to.n; k++)
                    if (own.at[i].i == attr.to.at[k].i)
                        at[i] = attr.axis.at[k];
            }
            dims[d] = (ir_dim){port->dims[d].extent, {at, own.n}};
        }
        port->dims = dims;
        port->term = nz_arg(z, port->term, 0);
    }
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
                now[i] = nz_make(z, (ir_op)node.op, node.attr, args, node.arg_count);
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
    for (i64 i = 0; i < p->outputs.n; i++)
        name_output(z, &p->outputs.at[i]);
}
