/* What stands above an operator passed on to its operands: the transfer column of the operators'
 * classes. Tiling is a homomorphism: a view of an operator is the operator over views of its
 * operands, cut along the axes that they have; only where atoms are contracted an axis more comes
 * in, over which the tiles' contributions are combined. Index maps move towards the inputs the
 * same way, on whole values.                                              (space.md §4, §5, §6 R
 * D3)
 *
 *     (view (op x ...) V)               = (op (view x V) ...)
 *     (view (reduce R x :axis K) V)     = (reduce R (reduce R (view x V+K) :axis K) :par K)
 *     (view (matmul a b :axis K) V)     = (reduce + (tile-matmul (view a V+K) (view b V+K)) :par K)
 *     (view (gather x i ... :axis K) V) = (gather (view x V-K) (view i V) ... :axis K)
 *     (map (op x ...))                  = (op (map x) ...)
 *     (rename (rename x))               = (rename x)
 *     (reduce R x :axis K+k)            = (reduce R (reduce R (splitdim k x) :axis K+k.i) :axis
 * k.o)
 *
 * The same function builds these in an e-graph and, for the judges, from a proof's text. */
#include "rules/graph_impl.h"

rl_transfer rl_transfer_of(ir_op op)
{
    switch ((ir_class)ir_row(op)->class_) {
    case IR_EWISE:
        return RL_POINTWISE;
    case IR_REDUCE:
        return RL_REDUCES;
    case IR_MATMUL:
        return RL_MULTIPLIES;
    case IR_INDEX:
        return op == IR_rename || op == IR_slice ? RL_MOVES : RL_STOPS;
    case IR_GATHER:
        return op == IR_gather ? RL_GATHERS : RL_STOPS;
    case IR_PLAIN:
    case IR_OPAQUE:
        return RL_STOPS;
    case IR_TILED:
        return op == IR_splitdim ? RL_MOVES : RL_NO_TRANSFER;
    default:
        return RL_NO_TRANSFER;
    }
}

bool rl_is_load(const rl_type *t)
{
    return t->kind == IR_A_VALUE && (t->facts & (RL_LOAD | RL_STORED | RL_CONSTANT)) != 0;
}

typedef struct passing {
    rl_graph *g;
    const rl_builder *b;
} passing;

static rl_built make(const passing *p, ir_op op, ir_reducer reducer, u32 payload,
                     const rl_built *kids, i64 n)
{
    rl_label l = rl_label_of(p->g, op, reducer, payload);
    for (i64 i = 0; i < n; i++)
        if (!kids[i].id)
            return (rl_built){0};
    return rl_make(p->b, &l, payload, kids, n);
}

static rl_built view(const passing *p, rl_built x, u64 axes)
{
    axes &= x.type.dims;
    return axes ? make(p, IR_view, IR_NO_REDUCER, rl_par_payload(p->g, IR_view, axes), &x, 1) : x;
}

static rl_built reduce_par(const passing *p, ir_reducer r, rl_built x, u64 axes)
{
    return axes ? make(p, IR_reduce, r, rl_par_payload(p->g, IR_reduce, axes), &x, 1) : x;
}

static u32 pass_view(const passing *p, u64 axes, bool keeps_whole, const rl_shape *x)
{
    const rl_payload *own = &p->g->payloads.at[x->payload];
    rl_built kids[RL_MAX_VARS], out;
    rl_transfer how = rl_transfer_of(x->op);
    u64 bound = (how == RL_REDUCES || how == RL_MULTIPLIES) && !keeps_whole ? own->axis : 0;
    for (i64 i = 0; i < x->n; i++) {
        u64 whole = how == RL_GATHERS && i == 0 ? own->axis : 0;
        kids[i] = view(p, x->kids[i], (axes | bound) & ~whole);
    }
    switch (how) {
    case RL_POINTWISE:
    case RL_GATHERS:
        return make(p, x->op, x->reducer, x->payload, kids, x->n).id;
    case RL_REDUCES:
        out = make(p, IR_reduce, x->reducer, x->payload, kids, 1);
        return reduce_par(p, x->reducer, out, bound).id;
    case RL_MULTIPLIES:
        out = make(p, IR_tile_matmul, IR_NO_REDUCER,
                   rl_axis_payload(p->g, IR_tile_matmul, own->axis), kids, 2);
        return reduce_par(p, IR_SUM, out, bound).id;
    default:
        return 0;
    }
}

/* The index map on an operand: what it says of atoms that the operand lacks is dropped. */
static rl_built map_operand(const passing *p, ir_op outer, u32 payload, rl_built x)
{
    const rl_payload *map = &p->g->payloads.at[payload];
    if (!(map->axis & x.type.dims))
        return x;
    if (map->axis & ~x.type.dims) { /* rename alone has several */
        ir_attr part = map->attr;
        ir_atom *from = NEW_N(p->g->a, ir_atom, part.axis.n);
        ir_atom *to = NEW_N(p->g->a, ir_atom, part.axis.n);
        i64 n = 0;
        for (i64 i = 0; i < part.axis.n; i++)
            if (map->each[i] & x.type.dims) {
                from[n] = part.axis.at[i];
                to[n++] = part.to.at[i];
            }
        part.axis = (ir_atoms){from, n};
        part.to = (ir_atoms){to, n};
        payload = rl_payload_id(p->g, outer, part);
    }
    return make(p, outer, IR_NO_REDUCER, payload, &x, 1);
}

static ir_atom renamed(const ir_attr *map, ir_atom d)
{
    for (i64 i = 0; i < map->axis.n; i++)
        if (map->axis.at[i].i == d.i)
            return map->to.at[i];
    return d;
}

/* Adds a pair, by `from` ascending as programs have them. */
static void add_pair(ir_atom *from, ir_atom *to, i64 *n, ir_atom x, ir_atom y)
{
    i64 j = *n;
    if (x.i == y.i)
        return;
    for (; j > 0 && from[j - 1].i > x.i; j--) {
        from[j] = from[j - 1];
        to[j] = to[j - 1];
    }
    from[j] = x;
    to[j] = y;
    (*n)++;
}

/* A renaming of a renaming is one. */
static u32 pass_renaming(const passing *p, u32 payload, const rl_shape *x)
{
    const ir_attr *outer = &p->g->payloads.at[payload].attr;
    const ir_attr *inner = &p->g->payloads.at[x->payload].attr;
    ir_atom *from = NEW_N(p->g->a, ir_atom, inner->axis.n + outer->axis.n);
    ir_atom *to = NEW_N(p->g->a, ir_atom, inner->axis.n + outer->axis.n);
    i64 n = 0;
    for (i64 i = 0; i < inner->axis.n; i++)
        add_pair(from, to, &n, inner->axis.at[i], renamed(outer, inner->to.at[i]));
    for (i64 i = 0; i < outer->axis.n; i++)
        if (!ir_has(inner->to, outer->axis.at[i]))
            add_pair(from, to, &n, outer->axis.at[i], outer->to.at[i]);
    ir_attr map = {.axis = {from, n}, .to = {to, n}};
    return n ? make(p, IR_rename, IR_NO_REDUCER, rl_payload_id(p->g, IR_rename, map), x->kids, 1).id
             : x->kids[0].id;
}

static u32 pass_map(const passing *p, ir_op outer, u32 payload, const rl_shape *x)
{
    const rl_payload *own = &p->g->payloads.at[x->payload], *map = &p->g->payloads.at[payload];
    rl_transfer how = rl_transfer_of(x->op);
    rl_built kids[RL_MAX_VARS];
    if (outer == IR_rename && x->op == IR_rename)
        return pass_renaming(p, payload, x);
    if (how == RL_NO_TRANSFER || how == RL_STOPS || how == RL_MOVES)
        return 0;
    if (how != RL_POINTWISE && (own->axis & (map->axis | map->to))) /* it would be captured */
        return 0;
    for (i64 i = 0; i < x->n; i++)
        kids[i] = map_operand(p, outer, payload, x->kids[i]);
    return make(p, x->op, x->reducer, x->payload, kids, x->n).id;
}

static bool is_whole(const rl_shape *x)
{
    for (i64 i = 0; i < x->n; i++)
        if (x->kids[i].type.axes || x->kids[i].type.kind != IR_A_VALUE)
            return false;
    return true;
}

u32 rl_split_reduction(rl_graph *g, const rl_builder *b, i64 split, const rl_shape *inner)
{
    passing p = {g, b};
    const ir_split *s = &g->own->splits.at[split];
    u64 whole = rl_mask(g, (ir_atoms){&s->whole, 1}), outer = rl_mask(g, (ir_atoms){&s->outer, 1});
    u64 parts = outer | rl_mask(g, (ir_atoms){&s->inner, 1});
    rl_transfer how = rl_transfer_of(inner->op);
    u64 axis = g->payloads.at[inner->payload].axis;
    if ((how != RL_REDUCES && how != RL_MULTIPLIES) || !is_whole(inner) || !(axis & whole) ||
        g->payloads.at[inner->payload].par)
        return 0;
    u32 cut = rl_payload_id(
        g, IR_splitdim,
        (ir_attr){.axis = {&s->whole, 1}, .to = {(ir_atom[]){s->outer, s->inner}, 2}});
    rl_built kids[2];
    for (i64 i = 0; i < inner->n; i++) {
        if (inner->kids[i].type.dims & parts)
            return 0;
        kids[i] = map_operand(&p, IR_splitdim, cut, inner->kids[i]);
    }
    u32 over = rl_axis_payload(g, inner->op, (axis & ~whole) | (parts & ~outer));
    ir_reducer r = how == RL_MULTIPLIES ? IR_SUM : inner->reducer;
    rl_built first = make(&p, inner->op, inner->reducer, over, kids, inner->n);
    return make(&p, IR_reduce, r, rl_axis_payload(g, IR_reduce, outer), &first, 1).id;
}

u32 rl_pass_on(rl_graph *g, const rl_builder *b, ir_op outer, u32 outer_payload, bool keeps_whole,
               const rl_shape *inner)
{
    passing p = {g, b};
    if (inner->n > RL_MAX_VARS || !is_whole(inner) || g->payloads.at[inner->payload].par)
        return 0;
    if (outer == IR_NO_OP || outer == IR_view)
        return pass_view(&p, outer == IR_view ? g->payloads.at[outer_payload].par : 0, keeps_whole,
                         inner);
    return rl_transfer_of(outer) == RL_MOVES ? pass_map(&p, outer, outer_payload, inner) : 0;
}
