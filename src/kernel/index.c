/* Index operators: views of their operand where its strides allow, else copies. */
#include "kernel/lower.h"

/* Row-major dims of `axis` seen as contiguous blocks, then cut into `to` from the inside. */
bool kn_reshape_strides(const kn_lower *l, const kn_loc *x, ir_atoms axis, ir_atoms to, i64 *stride)
{
    i64 t = to.n - 1;
    for (i64 i = axis.n - 1; i >= 0;) {
        i64 extent = kn_extent(l, axis.at[i]), step = kn_stride(x, axis.at[i]);
        i64 first = i - 1;
        while (first >= 0 && kn_stride(x, axis.at[first]) == step * extent) {
            extent *= kn_extent(l, axis.at[first]);
            first--;
        }
        i64 done = 1;
        while (done < extent && t >= 0) {
            stride[t] = step * done;
            done *= kn_extent(l, to.at[t]);
            t--;
        }
        if (done != extent)
            return false;
        i = first;
    }
    return t < 0;
}

static i64 find(ir_atoms set, ir_atom d)
{
    for (i64 i = 0; i < set.n; i++)
        if (set.at[i].i == d.i)
            return i;
    return -1;
}

static void lower_concat(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    const kn_loc *widest = &l->at[node->args[0].i];
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    /* the layout of the first operand, its part of the joined atom replaced by the whole */
    kn_loc like = *widest;
    i64 *stride = NEW_N(l->a, i64, node->dims.n + 1);
    for (i64 i = 0; i < node->dims.n; i++) {
        ir_atom d = node->dims.at[i];
        bool joined = d.i == node->attr.to.at[0].i;
        stride[i] = kn_stride(widest, joined ? node->attr.axis.at[0] : d);
    }
    like.dims = node->dims;
    like.stride = stride;
    kn_order_like(l, node->dims, &like, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    ir_atom to = node->attr.to.at[0];
    i64 along = kn_stride(&out, to), start = 0;
    for (i64 i = 0; i < node->arg_count; i++) {
        /* The piece of the result that operand i fills. Its part of the joined atom gets a name of
         * its own: the operand's may also be a dim of the result, repeated here. */
        ir_atom part = node->attr.axis.at[i];
        kn_loc piece = out, operand = l->at[node->args[i].i];
        ir_atom *names = arena_copy(l->a, operand.dims.at, operand.dims.n * (i64)sizeof(ir_atom));
        ir_atom own = part.i ? kn_fresh(l, kn_extent(l, part)) : part;
        for (i64 d = 0; d < operand.dims.n; d++)
            if (names[d].i == part.i)
                names[d] = own;
        operand.dims.at = names;
        i64 n = 0;
        ir_atom *dims = NEW_N(l->a, ir_atom, out.dims.n + 1);
        i64 *steps = NEW_N(l->a, i64, out.dims.n + 1);
        for (i64 d = 0; d < out.dims.n; d++) {
            bool joined = out.dims.at[d].i == to.i;
            if (joined && part.i == 0)
                continue;
            dims[n] = joined ? own : out.dims.at[d];
            steps[n++] = out.stride[d];
        }
        piece.dims = (ir_atoms){dims, n};
        piece.stride = steps;
        piece.offset = out.offset + start * along;
        kn_copy(l, term, &piece, KN_INTO, &operand);
        start += kn_extent(l, part);
    }
    l->at[term] = out;
}

void kn_lower_index(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    if (node->op == IR_concat) {
        lower_concat(l, term);
        return;
    }
    kn_loc x = l->at[node->args[0].i], y = x;
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    y.is_ragged = node->op == IR_splitdim && ir_is_ragged(l->p, to.at[0]);
    i64 *stride = NEW_N(l->a, i64, node->dims.n + 1);
    y.dims = node->dims;
    y.stride = stride;
    i64 *cut = NEW_N(l->a, i64, to.n + 1);
    if (node->op == IR_reshape && x.where != KN_NUMBER &&
        !kn_reshape_strides(l, &x, axis, to, cut)) {
        /* moved into an order in which the cut is a view */
        ir_atoms from = l->p->nodes.at[node->args[0].i].dims;
        ir_atom *order = NEW_N(l->a, ir_atom, from.n + 1), *rest = NEW_N(l->a, ir_atom, from.n + 1);
        i64 n = 0;
        kn_order_like(l, from, &x, rest);
        for (i64 i = 0; i < from.n; i++)
            if (find(axis, rest[i]) < 0)
                order[n++] = rest[i];
        for (i64 i = 0; i < axis.n; i++)
            order[n++] = axis.at[i];
        kn_loc moved = kn_loc_new(l, x.dtype, order, n);
        kn_copy(l, term, &moved, KN_OUT, &x);
        x = moved;
        y.where = x.where;
        y.buffer = x.buffer;
        y.offset = x.offset;
        if (!kn_reshape_strides(l, &x, axis, to, cut))
            eqf_bug(l->ctx, "a dense value that cannot be cut");
    }
    for (i64 i = 0; i < node->dims.n; i++) {
        ir_atom d = node->dims.at[i];
        i64 k = find(to, d);
        switch (node->op) {
        case IR_rename:
            stride[i] = kn_stride(&x, k >= 0 ? axis.at[k] : d);
            break;
        case IR_reshape:
            stride[i] = k >= 0 ? cut[k] : kn_stride(&x, d);
            break;
        case IR_slice:
            stride[i] = d.i == axis.at[0].i && k < 0 ? 0 : kn_stride(&x, d);
            if (k >= 0 && d.i == axis.at[0].i)
                stride[i] = 0;
            for (k = 0; k < to.n; k++)
                if (to.at[k].i == d.i)
                    stride[i] += kn_stride(&x, axis.at[0]) * node->attr.ints.at[1 + k];
            break;
        case IR_splitdim:
            stride[i] = kn_stride(&x, k >= 0 ? axis.at[0] : d);
            if (k == 0)
                stride[i] *= kn_extent(l, to.at[1]);
            break;
        default: /* expand */
            stride[i] = kn_stride(&x, d);
        }
    }
    if (node->op == IR_slice)
        y.offset += kn_stride(&x, axis.at[0]) * node->attr.ints.at[0];
    l->at[term] = y;
}
