/* functionalize: in-place operators and views, as values.
 *
 * A slot of a view remembers its parent and the node that makes it. An in-place operator computes
 * its functional form and writes the result to its first argument: the write walks up the chain of
 * views, each time putting the new part into the parent, and counts at the root. A slot that was
 * computed before the root's last write is stale, and is lowered again from its parent when it is
 * read. So every alias sees every write, in program order. */
#include "frontend/lower.h"

static fe_slot *root_of(fe_slot *s)
{
    while (s->parent)
        s = s->parent;
    return s;
}

fe_tensor *fe_slot_read(fe_lower *l, fe_slot *s)
{
    fe_slot *root = root_of(s);
    if (s == root || s->version == root->writes)
        return s->t;
    if (!s->node) {
        s->t = fe_slot_read(l, s->parent);
    } else {
        i64 count;
        fe_tensor **r = fe_lower_node(l, s->scope, s->node, s->node->target, &count);
        s->t = r[s->result];
    }
    s->version = root->writes;
    return s->t;
}

/* How the first result of an operator lies to its first argument in memory. */
typedef enum sharing {
    SHARES_NOTHING,
    SHARES,
    SHARES_AS_STRIDES_ALLOW,
    SHARES_IF_CONTIGUOUS,
    SHARES_IF_SAME_DTYPE
} sharing;

static const struct {
    const char *target;
    sharing how;
} views[] = {
    {"aten.view.default", SHARES},
    {"aten.view_as.default", SHARES},
    {"aten._unsafe_view.default", SHARES},
    {"aten.permute.default", SHARES},
    {"aten.transpose.int", SHARES},
    {"aten.t.default", SHARES},
    {"aten.mT.default", SHARES},
    {"aten.mH.default", SHARES},
    {"aten.adjoint.default", SHARES},
    {"aten.numpy_T.default", SHARES},
    {"aten.swapaxes.default", SHARES},
    {"aten.swapdims.default", SHARES},
    {"aten.movedim.int", SHARES},
    {"aten.movedim.intlist", SHARES},
    {"aten.moveaxis.int", SHARES},
    {"aten.moveaxis.intlist", SHARES},
    {"aten.expand.default", SHARES},
    {"aten.expand_as.default", SHARES},
    {"aten.broadcast_to.default", SHARES},
    {"aten.unsqueeze.default", SHARES},
    {"aten.squeeze.default", SHARES},
    {"aten.squeeze.dim", SHARES},
    {"aten.squeeze.dims", SHARES},
    {"aten.slice.Tensor", SHARES},
    {"aten.select.int", SHARES},
    {"aten.narrow.default", SHARES},
    {"aten.split.Tensor", SHARES},
    {"aten.split.sizes", SHARES},
    {"aten.split_with_sizes.default", SHARES},
    {"aten.tensor_split.sections", SHARES},
    {"aten.tensor_split.indices", SHARES},
    {"aten.hsplit.int", SHARES},
    {"aten.hsplit.array", SHARES},
    {"aten.vsplit.int", SHARES},
    {"aten.vsplit.array", SHARES},
    {"aten.dsplit.int", SHARES},
    {"aten.dsplit.array", SHARES},
    {"aten.chunk.default", SHARES},
    {"aten.unbind.int", SHARES},
    {"aten.diagonal.default", SHARES},
    {"aten.linalg_diagonal.default", SHARES},
    {"aten.unfold.default", SHARES},
    {"aten.as_strided.default", SHARES},
    {"aten.alias.default", SHARES},
    {"aten.detach.default", SHARES},
    {"aten.detach_.default", SHARES},
    {"aten.positive.default", SHARES},
    {"aten.atleast_1d.default", SHARES},
    {"aten.atleast_2d.default", SHARES},
    {"aten.atleast_3d.default", SHARES},
    {"aten.unflatten.int", SHARES},
    {"aten.reshape.default", SHARES_AS_STRIDES_ALLOW},
    {"aten.flatten.using_ints", SHARES_AS_STRIDES_ALLOW},
    {"aten.ravel.default", SHARES_AS_STRIDES_ALLOW},
    {"aten.contiguous.default", SHARES_IF_CONTIGUOUS},
    {"aten.to.dtype", SHARES_IF_SAME_DTYPE},
    {"aten.to.dtype_layout", SHARES_IF_SAME_DTYPE},
    {"aten.to.device", SHARES_IF_SAME_DTYPE},
    {"aten.to.other", SHARES_IF_SAME_DTYPE},
    {"aten.type_as.default", SHARES_IF_SAME_DTYPE},
};

/* Sizes and strides of a value, where all have values now. */
static bool layout_of(fe_lower *l, const fe_value *v, i64 *sizes, i64 *strides)
{
    for (i64 d = 0; d < v->rank; d++)
        if (!v->strides || !fe_expr_int(v->sizes[d], &l->env, &sizes[d]) ||
            !fe_expr_int(v->strides[d], &l->env, &strides[d]))
            return false;
    return v->strides;
}

/* Can a tensor of this layout be seen with the sizes of `view` without a copy? Dims that lie behind
 * one another are a run; some dims of the view must make up each run. */
static bool can_view(i64 rank, const i64 *sizes, const i64 *strides, i64 n, const i64 *view)
{
    i64 at = n - 1, run = 1, seen = 1;
    for (i64 d = 0; d < rank; d++)
        if (sizes[d] == 0)
            return true;
    for (i64 d = rank - 1, last = d; d >= 0; d--) {
        i64 next;
        if (!mul_i64(run, sizes[d], &run) || !mul_i64(run, strides[last], &next))
            return false;
        if (d > 0 && (sizes[d - 1] == 1 || strides[d - 1] == next))
            continue;
        while (at >= 0 && (seen < run || view[at] == 1))
            if (!mul_i64(seen, view[at--], &seen))
                return false;
        if (seen != run)
            return false;
        run = seen = 1, last = d - 1;
    }
    return true;
}

static bool is_contiguous(i64 rank, const i64 *sizes, const i64 *strides)
{
    i64 step = 1;
    for (i64 d = rank - 1; d >= 0; d--)
        if ((sizes[d] > 1 && strides[d] != step) || !mul_i64(step, MAX(sizes[d], 1), &step))
            return false;
    return true;
}

static sharing sharing_of(const char *target)
{
    for (i64 i = 0; i < COUNT_OF(views); i++)
        if (!strcmp(views[i].target, target))
            return views[i].how;
    return SHARES_NOTHING;
}

bool fe_is_view(fe_lower *l, const fe_scope *s, const fe_node *n)
{
    sharing how = sharing_of(n->target);
    const fe_arg *o = fe_flat_output(n, 0);
    if (how <= SHARES || !n->n_inputs || n->inputs[0].kind != FE_ARG_TENSOR || !o ||
        o->kind != FE_ARG_TENSOR)
        return how == SHARES;
    const fe_value *from = &s->graph->values[n->inputs[0].value.i];
    const fe_value *to = &s->graph->values[o->value.i];
    if (how == SHARES_IF_SAME_DTYPE) {
        const fe_arg *copy = fe_find_arg(n, "copy");
        return from->dtype == to->dtype && !(copy && copy->kind == FE_ARG_BOOL && copy->i);
    }
    i64 sizes[FE_MAX_RANK], strides[FE_MAX_RANK], view[FE_MAX_RANK];
    if (from->rank > FE_MAX_RANK || to->rank > FE_MAX_RANK || !layout_of(l, from, sizes, strides))
        return true; /* nobody knows; `put` refuses a write through it */
    fe_value_sizes(l, to, view);
    return how == SHARES_IF_CONTIGUOUS ? is_contiguous(from->rank, sizes, strides)
                                       : can_view(from->rank, sizes, strides, to->rank, view);
}

const char *fe_functional_name(arena *a, const char *target)
{
    if (strncmp(target, "aten.", 5) != 0)
        return NULL;
    const char *dot = strchr(target + 5, '.');
    if (dot && !strncmp(target + 5, "__i", 3) && dot[-1] == '_' && dot[-2] == '_')
        return arena_printf(a, "aten.__%s", target + 8); /* __ior__ is __or__ */
    if (!dot || dot[-1] != '_' || dot[-2] == '_' || dot - 1 == target + 5)
        return NULL;
    return arena_printf(a, "%.*s%s", (int)(dot - 1 - target), target, dot);
}

static bool is(const fe_node *n, const char *name)
{
    i64 len = (i64)strlen(name);
    return !strncmp(n->target + 5, name, (size_t)len) && n->target[5 + len] == '.';
}

static _Noreturn void not_understood(fe_lower *l, const fe_node *n)
{
    fe_throw_node(l->source, n, EQF_E_UNSUPPORTED,
                  "a write through this view is not understood; save the program again after "
                  "ep.run_decompositions({})");
}

/* A call that only reads the arguments of a view node. */
static i64 int_arg(fe_lower *l, fe_scope *s, const fe_node *n, const char *name, i64 otherwise)
{
    const fe_arg *a = fe_find_arg(n, name);
    if (!a || a->kind == FE_ARG_NONE)
        return otherwise;
    if (a->kind == FE_ARG_INT)
        return a->i;
    if (a->kind == FE_ARG_SYM_INT && fe_slot_of(s, a->value)->is_number)
        return fe_slot_of(s, a->value)->number.i;
    not_understood(l, n);
}

static i64 dim_arg(fe_lower *l, fe_scope *s, const fe_node *n, const char *name, i64 rank,
                   i64 otherwise)
{
    i64 d = int_arg(l, s, n, name, otherwise);
    return d < 0 ? d + rank : d;
}

/* Dim d of the result of movedim is dim order[d] of its operand. */
static void moved_order(fe_lower *l, const fe_node *n, i64 rank, i64 *order)
{
    const fe_arg *ends[2] = {fe_find_arg(n, "source"), fe_find_arg(n, "destination")};
    u64 placed = 0, taken = 0;
    i64 count = ends[0] && ends[0]->kind == FE_ARG_LIST ? ends[0]->n : 1;
    for (i64 k = 0; k < count; k++) {
        i64 at[2];
        for (int e = 0; e < 2; e++) {
            const fe_arg *a = ends[e];
            if (a && a->kind == FE_ARG_LIST)
                a = k < a->n ? &a->items[k] : NULL;
            if (!a || a->kind != FE_ARG_INT)
                not_understood(l, n);
            at[e] = a->i < 0 ? a->i + rank : a->i;
        }
        order[at[1]] = at[0];
        taken |= (u64)1 << at[0], placed |= (u64)1 << at[1];
    }
    for (i64 d = 0, next = 0; d < rank; d++) {
        if (placed >> d & 1)
            continue;
        while (taken >> next & 1)
            next++;
        order[d] = next++;
    }
}

/* The parent with `part`, the new value of its view `s`, put in. */
static fe_tensor *put(fe_lower *l, const fe_slot *s, fe_tensor *parent, fe_tensor *part)
{
    const fe_node *n = s->node;
    fe_scope *scope = s->scope;
    sharing how = n ? sharing_of(n->target) : SHARES;
    if (!n || is(n, "alias") || is(n, "detach") || is(n, "detach_") || is(n, "positive") ||
        how == SHARES_IF_SAME_DTYPE)
        return part;
    i64 sizes[FE_MAX_RANK], order[FE_MAX_RANK], rank = parent->rank;
    for (i64 d = 0; d < rank; d++)
        sizes[d] = parent->dims[d].extent;
    if (is(n, "view") || is(n, "view_as") || is(n, "_unsafe_view") || is(n, "unsqueeze") ||
        is(n, "squeeze") || is(n, "unflatten") || is(n, "atleast_1d") || is(n, "atleast_2d") ||
        is(n, "atleast_3d"))
        return fe_view(l, part, rank, sizes);
    if (how == SHARES_AS_STRIDES_ALLOW || how == SHARES_IF_CONTIGUOUS) {
        i64 known[FE_MAX_RANK], strides[FE_MAX_RANK];
        const fe_value *from = &scope->graph->values[n->inputs[0].value.i];
        if (!layout_of(l, from, known, strides))
            not_understood(l, n);
        return fe_view(l, part, rank, sizes);
    }
    if (is(n, "expand") || is(n, "expand_as") || is(n, "broadcast_to")) {
        if (part->rank == rank) {
            bool is_same = true;
            for (i64 d = 0; d < rank; d++)
                is_same = is_same && part->dims[d].extent == sizes[d];
            if (is_same)
                return part;
        }
        not_understood(l, n);
    }
    if (is(n, "transpose") || is(n, "swapaxes") || is(n, "swapdims") || is(n, "t") || is(n, "mT") ||
        is(n, "mH") || is(n, "adjoint") || is(n, "numpy_T")) {
        bool has_dims = is(n, "transpose") || is(n, "swapaxes") || is(n, "swapdims");
        if (rank < 2)
            return part;
        if (is(n, "numpy_T")) {
            for (i64 d = 0; d < rank; d++)
                order[d] = rank - 1 - d;
            return fe_permute(l, part, order);
        }
        const char *a = is(n, "swapaxes") ? "axis0" : "dim0",
                   *b = is(n, "swapaxes") ? "axis1" : "dim1";
        i64 d0 = has_dims ? dim_arg(l, scope, n, a, rank, 0) : rank - 2;
        i64 d1 = has_dims ? dim_arg(l, scope, n, b, rank, 0) : rank - 1;
        return fe_transpose(l, part, d0, d1);
    }
    if (is(n, "permute")) {
        const fe_arg *dims = fe_find_arg(n, "dims");
        for (i64 d = 0; dims && d < rank; d++) {
            i64 from = dims->items[d].i;
            order[from < 0 ? from + rank : from] = d;
        }
        return fe_permute(l, part, order);
    }
    if (is(n, "select")) {
        i64 d = dim_arg(l, scope, n, "dim", rank, 0), i = int_arg(l, scope, n, "index", 0);
        i = i < 0 ? i + sizes[d] : i;
        return fe_slice_write(l, parent, fe_unsqueeze(l, part, d), d, i, 1, 1);
    }
    if (is(n, "slice") || is(n, "narrow")) {
        i64 d = dim_arg(l, scope, n, "dim", rank, 0), start = int_arg(l, scope, n, "start", 0);
        start = start < 0 ? MAX(start + sizes[d], 0) : MIN(start, sizes[d]);
        i64 step = is(n, "slice") ? int_arg(l, scope, n, "step", 1) : 1;
        return fe_slice_write(l, parent, part, d, start, part->dims[d].extent, step);
    }
    if (is(n, "movedim") || is(n, "moveaxis")) {
        moved_order(l, n, rank, order);
        i64 back[FE_MAX_RANK];
        for (i64 d = 0; d < rank; d++)
            back[order[d]] = d;
        return fe_permute(l, part, back);
    }
    if (is(n, "split") || is(n, "split_with_sizes") || is(n, "chunk") || is(n, "tensor_split") ||
        is(n, "unbind")) {
        i64 d = dim_arg(l, scope, n, "dim", rank, 0), start = 0;
        bool is_unbind = is(n, "unbind");
        if (is_unbind)
            return fe_slice_write(l, parent, fe_unsqueeze(l, part, d), d, s->result, 1, 1);
        for (i64 k = 0; k < s->result; k++) {
            const fe_value *v = &scope->graph->values[n->outputs[0].items[k].value.i];
            i64 piece[FE_MAX_RANK];
            fe_value_sizes(l, v, piece);
            start += piece[d];
        }
        return fe_slice_write(l, parent, part, d, start, part->dims[d].extent, 1);
    }
    if (is(n, "diagonal"))
        return fe_diagonal_write(l, parent, part, int_arg(l, scope, n, "offset", 0),
                                 dim_arg(l, scope, n, "dim1", rank, 0),
                                 dim_arg(l, scope, n, "dim2", rank, 1));
    not_understood(l, n);
}

void fe_slot_write(fe_lower *l, fe_slot *s, fe_tensor *t)
{
    if (s->parent)
        fe_slot_write(l, s->parent, put(l, s, fe_slot_read(l, s->parent), t));
    fe_slot *root = root_of(s);
    if (s == root)
        s->writes++;
    s->t = t;
    s->version = root->writes;
}

void fe_lower_in_place(fe_lower *l, fe_scope *s, const fe_node *n, const char *target)
{
    i64 count;
    if (!n->n_inputs || n->inputs[0].kind != FE_ARG_TENSOR)
        fe_throw_node(l->source, n, EQF_E_PARSE, "an in-place operator without a tensor");
    fe_slot *self = fe_slot_of(s, n->inputs[0].value);
    l->in_place_dtype = fe_slot_read(l, self)->dtype;
    fe_tensor **r = fe_lower_node(l, s, n, target, &count);
    l->in_place_dtype = DT_NONE;
    if (count < 1 || !r[0])
        fe_throw_node(l->source, n, EQF_E_UNSUPPORTED, "an in-place operator without a result");
    fe_slot_write(l, self, r[0]);
    if (n->n_outputs && n->outputs[0].kind == FE_ARG_TENSOR) {
        fe_slot *out = fe_slot_of(s, n->outputs[0].value);
        *out =
            (fe_slot){.t = r[0], .is_set = true, .parent = self, .version = root_of(self)->writes};
    }
}
