/* bytes: values of u8, which the IR lacks, in the wider i32.
 *
 * A tensor of u8 holds its very values. Every lowering computes in i32, where nothing of 8 bits is
 * lost, and what may have left 0 … 255 is taken modulo 256 afterwards: sums, products, shifts and
 * conversions come out as eager's do. Ports have no such dtype: an input of u8 has no meaning, a
 * stored tensor is widened when it is read. */
#include "frontend/lower.h"

enum { MAX_DEPTH = 24 };

/* Is every value of this term in 0 … 255? */
static bool is_byte(fe_lower *l, u32 term, i64 depth)
{
    const fe_draft *d = &l->drafts.at[term];
    if (d->dtype == DT_bool || d->is_bytes)
        return true;
    if (depth == 0)
        return false;
    switch (d->op) {
    case IR_const:
        return !dtype_is_float((dtype)d->dtype) && d->i >= 0 && d->i <= 255;
    case IR_iota:
        return fe_var_extent(l->space, d->axis.at[0]) <= 256;
    case IR_cast:
    case IR_slice:
    case IR_rename:
    case IR_reshape:
    case IR_expand:
    case IR_gather:
        return is_byte(l, d->args[0], depth - 1);
    case IR_and:
        return is_byte(l, d->args[0], depth - 1) || is_byte(l, d->args[1], depth - 1);
    case IR_where:
        return is_byte(l, d->args[1], depth - 1) && is_byte(l, d->args[2], depth - 1);
    case IR_or:
    case IR_xor:
    case IR_max:
    case IR_min:
    case IR_mod:
    case IR_fmod:
    case IR_floordiv:
    case IR_concat:
        for (i64 i = 0; i < d->arg_count; i++)
            if (!is_byte(l, d->args[i], depth - 1))
                return false;
        return true;
    default:
        return false;
    }
}

fe_tensor *fe_as_bytes(fe_lower *l, fe_tensor *t)
{
    if (t->dtype != DT_i32 || !t->term)
        return t;
    if (!is_byte(l, t->term, MAX_DEPTH))
        t = fe_op2(l, IR_and, t, fe_int(l, DT_i32, 255));
    l->drafts.at[t->term].is_bytes = true; /* nobody looks deeper again */
    return t;
}
