/* Short forms of the constructor. They leave out what does nothing: an empty axis, a rename of
 * nothing, a cast to the same dtype. */
#include "ir/ir.h"

ir_term ir_f(ir_program *p, dtype t, f64 value)
{
    return ir_make(p, IR_const, (ir_attr){.dtype = (u8)t, .f = value}, NULL, 0);
}

ir_term ir_i(ir_program *p, dtype t, i64 value)
{
    return ir_make(p, IR_const, (ir_attr){.dtype = (u8)t, .i = value}, NULL, 0);
}

ir_term ir_iota(ir_program *p, ir_atom k)
{
    return ir_make(p, IR_iota, (ir_attr){.axis = {&k, 1}}, NULL, 0);
}

ir_term ir_cast(ir_program *p, dtype t, ir_term x)
{
    if (ir_get(p, x)->dtype == t)
        return x;
    return ir_make(p, IR_cast, (ir_attr){.dtype = (u8)t}, &x, 1);
}

ir_term ir_1(ir_program *p, ir_op op, ir_term a)
{
    return ir_make(p, op, (ir_attr){0}, &a, 1);
}

ir_term ir_2(ir_program *p, ir_op op, ir_term a, ir_term b)
{
    return ir_make(p, op, (ir_attr){0}, (ir_term[]){a, b}, 2);
}

ir_term ir_where(ir_program *p, ir_term cond, ir_term then, ir_term other)
{
    return ir_make(p, IR_where, (ir_attr){0}, (ir_term[]){cond, then, other}, 3);
}

/* n copies of x combined with an associative operator, by repeated doubling. */
static ir_term combine_copies(ir_program *p, ir_op op, ir_term x, i64 n)
{
    ir_term result = {0};
    for (; n > 0; n /= 2) {
        if (n % 2)
            result = result.i ? ir_2(p, op, result, x) : x;
        if (n > 1)
            x = ir_2(p, op, x, x);
    }
    return result;
}

/* x reduced over atoms that it lacks: one value repeated. Half types, where the count may not be
 * representable, go through f32 as their accumulators do. */
static ir_term reduce_constant(ir_program *p, ir_reducer r, ir_term x, ir_atoms missing)
{
    dtype t = ir_get(p, x)->dtype;
    bool is_repeated = r == IR_SUM || r == IR_PROD;
    if (missing.n == 0 || !is_repeated || t == DT_bool)
        return x;
    bool is_half = t == DT_f16 || t == DT_bf16;
    if (is_half)
        x = ir_cast(p, DT_f32, x);
    dtype wide = is_half ? DT_f32 : t;
    for (i64 i = 0; i < missing.n; i++) {
        i64 n = ir_extent(p, missing.at[i]);
        if (r == IR_PROD)
            x = combine_copies(p, IR_mul, x, n);
        else if (dtype_is_float(wide))
            x = ir_2(p, IR_mul, x, ir_f(p, wide, (f64)n));
        else if (wide == DT_i64 || n <= (wide == DT_i32 ? INT32_MAX : INT8_MAX))
            x = ir_2(p, IR_mul, x, ir_i(p, wide, n));
        else /* modulo 2^width the count wraps as the sum does */
            x = ir_2(p, IR_mul, x, ir_i(p, wide, wide == DT_i32 ? (i64)(i32)n : (i64)(i8)n));
    }
    return ir_cast(p, t, x);
}

/* Parts of a split among the missing atoms have dead lanes, which no factor can count: x is
 * repeated along them, and the reduction leaves those lanes out. */
static ir_term expand_ragged(ir_program *p, ir_term x, ir_atoms *there, ir_atoms *missing)
{
    ir_atom *at = NEW_N(p->a, ir_atom, missing->n);
    ir_atoms ragged = {at, 0};
    for (i64 i = 0; i < missing->n; i++)
        if (ir_is_ragged(p, missing->at[i]))
            at[ragged.n++] = missing->at[i];
    if (ragged.n == 0)
        return x;
    *missing = ir_atoms_minus(p, *missing, ragged);
    *there = ir_atoms_union(p, *there, ragged);
    return ir_make(p, IR_expand, (ir_attr){.to = ragged}, &x, 1);
}

static void split_axis(ir_program *p, ir_atoms axis, ir_atoms dims, ir_atoms *there,
                       ir_atoms *missing)
{
    axis = ir_atoms_set(p, axis.at, axis.n);
    *missing = ir_atoms_minus(p, axis, dims);
    *there = ir_atoms_minus(p, axis, *missing);
}

ir_term ir_reduce(ir_program *p, ir_reducer r, ir_term x, ir_atoms axis)
{
    ir_atoms there, missing;
    split_axis(p, axis, ir_get(p, x)->dims, &there, &missing);
    if (p->splits.n > 0)
        x = expand_ragged(p, x, &there, &missing);
    if (there.n > 0)
        x = ir_make(p, IR_reduce, (ir_attr){.reducer = (u8)r, .axis = there}, &x, 1);
    return reduce_constant(p, r, x, missing);
}

ir_term ir_matmul(ir_program *p, ir_term a, ir_term b, ir_atoms axis)
{
    ir_atoms there, missing;
    split_axis(p, axis, ir_atoms_union(p, ir_get(p, a)->dims, ir_get(p, b)->dims), &there,
               &missing);
    if (p->splits.n > 0)
        a = expand_ragged(p, a, &there, &missing);
    ir_term x;
    if (there.n > 0)
        x = ir_make(p, IR_matmul, (ir_attr){.axis = there}, (ir_term[]){a, b}, 2);
    else
        x = ir_2(p, IR_mul, a, b);
    return reduce_constant(p, IR_SUM, x, missing);
}

ir_term ir_rename(ir_program *p, ir_term x, ir_atoms from, ir_atoms to)
{
    if (from.n != to.n)
        eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, p->origin),
                  "rename: %lld atoms become %lld", (long long)from.n, (long long)to.n);
    ir_atom *old = NEW_N(p->a, ir_atom, from.n), *fresh = NEW_N(p->a, ir_atom, from.n);
    i64 n = 0;
    for (i64 i = 0; i < from.n; i++) {
        if (from.at[i].i == to.at[i].i || !ir_has(ir_get(p, x)->dims, from.at[i]))
            continue;
        old[n] = from.at[i];
        fresh[n++] = to.at[i];
    }
    if (n == 0)
        return x;
    return ir_make(p, IR_rename, (ir_attr){.axis = {old, n}, .to = {fresh, n}}, &x, 1);
}

ir_term ir_slice(ir_program *p, ir_term x, ir_atom k, i64 start, ir_atoms to, const i64 *steps)
{
    bool is_whole =
        start == 0 && to.n == 1 && steps[0] == 1 && ir_extent(p, k) == ir_extent(p, to.at[0]);
    if (is_whole && ir_has(ir_get(p, x)->dims, k)) {
        if (to.at[0].i == k.i)
            return x;
        if (!ir_has(ir_get(p, x)->dims, to.at[0]))
            return ir_rename(p, x, (ir_atoms){&k, 1}, to);
    }
    i64 *ints = NEW_N(p->a, i64, to.n + 1);
    ints[0] = start;
    for (i64 i = 0; i < to.n; i++)
        ints[i + 1] = steps[i];
    return ir_make(p, IR_slice, (ir_attr){.axis = {&k, 1}, .to = to, .ints = {ints, to.n + 1}}, &x,
                   1);
}
