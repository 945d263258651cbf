/* Types where axes are involved, sets as bit masks: the rules of ir/type_tiled.c for the e-graph.
 * Axis i cuts atom i. What a type alone cannot show (that a component is in its loop, that a
 * running result has a transport) is checked when a form is written as a program.
 * (space.md §3) */
#include "rules/rule.h"

static u64 all_axes(const rl_type *x, i64 n)
{
    u64 axes = 0;
    for (i64 i = 0; i < n; i++)
        axes |= x[i].axes;
    return axes;
}

/* Axes over which the tiles of the operands do not align. */
static u64 not_aligned(const rl_type *x, i64 n)
{
    u64 whole = 0, partial = 0, dims = 0;
    for (i64 i = 0; i < n; i++) {
        dims |= x[i].dims;
        whole |= x[i].dims & ~x[i].axes;
        partial |= x[i].axes & ~x[i].dims;
    }
    return (all_axes(x, n) & whole) | (partial & dims);
}

static bool are(const rl_type *x, i64 n, ir_kind kind)
{
    for (i64 i = 0; i < n; i++)
        if (x[i].kind != kind)
            return false;
    return true;
}

static bool same_type(const rl_type *x, const rl_type *y)
{
    return x->dtype == y->dtype && x->dims == y->dims;
}

void rl_type_spread(const rl_label *l, const rl_type *x, i64 n, rl_type *out, u64 *bad)
{
    u8 class = ir_row(l->op)->class_;
    if (!are(x, n, IR_A_VALUE)) {
        out->dtype = DT_NONE;
        return;
    }
    out->axes = all_axes(x, n);
    if (l->op == IR_matmul || l->op == IR_rename || l->op == IR_scatter || l->op == IR_opaque)
        *bad |= out->axes;
    else
        *bad |= not_aligned(x, n);
    if (class == IR_INDEX || class == IR_GATHER || class == IR_PLAIN) {
        *bad |= out->axes & (l->axis | l->to);
        if (l->op != IR_expand)
            *bad |= l->ragged & (l->axis | l->to);
    }
}

static bool reducer_fits(const rl_label *l, dtype t)
{
    return t == DT_bool || (l->reducer != IR_OR && l->reducer != IR_AND);
}

static void as_operand(const rl_type *x, rl_type *out)
{
    out->dtype = x->dtype;
    out->dims = x->dims;
    out->axes = x->axes;
}

/* body, transport, producers */
static bool rolled_fits(const rl_type *x, i64 n)
{
    i64 producers = n - 2;
    const rl_closed *h = x[1].closed;
    if (producers < 1 || x[1].kind != IR_A_LAMBDA || !are(x + 2, producers, IR_A_COMPONENT) ||
        h->formal_count != 1 + 2 * producers || h->result_count != 1 ||
        !same_type(&h->formals[0], &x[0]) || !same_type(&h->results[0], &x[0]))
        return false;
    for (i64 i = 0; i < 2 * producers; i++)
        if (!same_type(&h->formals[1 + i], &x[2 + i % producers]))
            return false;
    return true;
}

static void type_component(const rl_label *l, const rl_type *x, i64 n, rl_type *out, u64 *bad)
{
    out->kind = IR_A_COMPONENT;
    if (l->reducer != IR_NO_REDUCER) {
        if (x[0].kind != IR_A_VALUE || !reducer_fits(l, x[0].dtype) ||
            (n > 1 && !rolled_fits(x, n)))
            return;
        as_operand(&x[0], out);
        for (i64 i = 2; i < n; i++)
            out->axes |= x[i].axes;
        return;
    }
    const rl_closed *r = x[0].closed;
    if (x[0].kind != IR_A_REDUCER || n - 1 != r->formal_count || l->result < 0 ||
        l->result >= r->result_count || !are(x + 1, n - 1, IR_A_VALUE))
        return;
    for (i64 i = 1; i < n; i++)
        if (!same_type(&x[i], &r->formals[i - 1]))
            return;
    *bad |= not_aligned(x + 1, n - 1);
    as_operand(&r->results[l->result], out);
    out->axes = all_axes(x + 1, n - 1) & r->met[l->result];
    for (i64 i = 1; i < n; i++)
        if (r->leaves[l->result] >> (i - 1) & 1)
            out->axes |= x[i].axes;
}

static void type_bundle(const rl_label *l, const rl_type *x, i64 n, rl_type *out, u64 *bad)
{
    out->kind = IR_A_BUNDLE;
    if (!are(x, n, IR_A_COMPONENT) || !l->par)
        return;
    for (i64 i = 0; i < n; i++)
        *bad |= l->par & (~x[i].axes | x[i].dims);
    out->dtype = DT_bool;
    out->dims = l->par;
    out->axes = all_axes(x, n) & ~l->par;
}

/* What takes one value and changes its axes. */
static void type_one(const rl_label *l, const rl_type *x, rl_type *out, u64 *bad)
{
    as_operand(x, out);
    switch (l->op) {
    case IR_reduce:
        *bad |= l->par & (~x->axes | x->dims);
        out->axes &= ~l->par;
        if (l->axis || !reducer_fits(l, x->dtype))
            out->dtype = DT_NONE;
        break;
    case IR_view:
        *bad |= l->par & (x->axes | ~x->dims);
        out->axes |= l->par;
        break;
    case IR_comb:
        *bad |= l->par & ~(x->axes & x->dims);
        out->axes &= ~l->par;
        break;
    case IR_collection:
        *bad |= (l->par & (~x->axes | x->dims)) | (l->to & (x->dims | x->axes));
        out->axes &= ~l->par;
        out->dims |= l->to;
        break;
    case IR_run:
        *bad |= l->par & (~x->axes | x->dims);
        out->axes &= ~l->par;
        break;
    default: /* splitdim */
        *bad |= x->axes | (l->axis & ~x->dims) | (l->to & x->dims & ~l->axis);
        out->dims = (x->dims & ~l->axis) | l->to;
        break;
    }
    if (!l->par && l->op != IR_splitdim)
        out->dtype = DT_NONE;
}

void rl_type_tiled(const rl_label *l, const rl_type *x, i64 n, rl_type *out, u64 *bad)
{
    out->dtype = DT_NONE;
    switch (l->op) {
    case IR_tile_matmul:
        if (n != 2 || !are(x, 2, IR_A_VALUE) || x[0].dtype != x[1].dtype)
            break;
        *bad |= not_aligned(x, 2) | (l->axis & ~(x[0].dims | x[1].dims));
        out->dtype = x[0].dtype;
        out->dims = (x[0].dims | x[1].dims) & ~l->axis;
        out->axes = all_axes(x, 2);
        break;
    case IR_comp:
        type_component(l, x, n, out, bad);
        break;
    case IR_loop:
        type_bundle(l, x, n, out, bad);
        break;
    case IR_get:
        if (n != 2 || x[0].kind != IR_A_BUNDLE || x[1].kind != IR_A_COMPONENT)
            break;
        *bad |= x[0].dims & (~x[1].axes | x[1].dims);
        as_operand(&x[1], out);
        out->axes &= ~x[0].dims;
        break;
    case IR_run:
        if (n == 1 && x[0].kind == IR_A_COMPONENT)
            type_one(l, x, out, bad);
        break;
    case IR_reduce:
    case IR_view:
    case IR_comb:
    case IR_collection:
    case IR_splitdim:
        if (n == 1 && x[0].kind == IR_A_VALUE)
            type_one(l, x, out, bad);
        break;
    default:
        break;
    }
}
