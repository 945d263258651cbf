/* Pointwise kernels: any number of operands, any strides, one result.
 *
 * The space is ordered by the result's strides and joined; its innermost dim is the tile. Where an
 * operand runs contiguously along another dim (a transposition), that dim is in the tile too, so
 * that both sides use whole cache lines. */
#include "kernel/lower.h"

enum { LONG_TILE = 1024, WHOLE_TILE = 4096, SQUARE_TILE = 16 };

typedef struct tiling {
    i64 inner, other; /* dims of the space in the tile; -1: none */
} tiling;

static tiling choose_tiling(const kn_space *s)
{
    tiling t = {s->n - 1, -1};
    if (s->n < 2 || s->at[t.inner].extent < SQUARE_TILE)
        return t;
    for (i64 d = 0; d < t.inner && t.other < 0; d++)
        for (i64 o = 1; o < s->operands; o++) {
            i64 along = s->at[d].stride[o], across = s->at[t.inner].stride[o];
            if (along == 1 && across != 0 && s->at[d].extent >= SQUARE_TILE)
                t.other = d;
        }
    return t;
}

/* Where operand o's tile lies. */
static kn_place place_of(kn_job *j, const kn_operand *x, i64 o, const kn_space *s,
                         const kn_walk *walks, tiling t)
{
    kn_place p = {.buffer = x->buffer, .at = kn_const_affine(x->base)};
    for (i64 d = 0; d < s->n; d++)
        p.at = kn_affine_sum(j->l->a, p.at, walks[d].index, s->at[d].stride[o]);
    i64 dims[2] = {t.other, t.inner};
    for (i64 i = 0; i < 2; i++) {
        if (dims[i] < 0)
            continue;
        p.shape[p.rank] = walks[dims[i]].tile;
        p.stride[p.rank] = s->at[dims[i]].stride[o];
        p.live[p.rank] = kn_walk_live(&walks[dims[i]]);
        p.rank++;
    }
    return p;
}

static kn_value fetch(kn_job *j, const kn_operand *x, i64 o, const kn_space *s,
                      const kn_walk *walks, tiling t)
{
    kn_place p = place_of(j, x, o, s, walks, t);
    const kn_loc *loc = x->loc;
    if (loc->where == KN_MEMORY)
        return kn_load(&j->m, &p, 0, 0);
    if (loc->where == KN_SERIES)
        return kn_iota(&j->m, DT_i64, p.at, p.rank, p.shape, p.stride);
    return dtype_is_float(loc->dtype) ? kn_const_f(&j->m, loc->dtype, loc->f, p.rank, p.shape)
                                      : kn_const_i(&j->m, loc->dtype, loc->i, p.rank, p.shape);
}

/* The operand that indices (operands 1 ..) select from: operand 0 has no stride along its axis. */
typedef struct selection {
    const kn_loc *whole;
    i64 stride[KN_INDICES], extent[KN_INDICES];
} selection;

static kn_value fetch_selected(kn_job *j, const kn_operand *x, const kn_space *s,
                               const kn_walk *walks, tiling t, const selection *of,
                               const kn_value *index, i64 n)
{
    kn_place p = place_of(j, x, 1, s, walks, t);
    kn_value wide[KN_INDICES];
    for (i64 i = 0; i < n; i++)
        wide[i] = kn_cast(&j->m, DT_i64, index[i]);
    return kn_gather(&j->m, &p, wide, of->stride, of->extent, n);
}

static void pointwise(kn_lower *l, u32 term, const kn_loc *out, kn_access access,
                      const kn_loc *const *operands, i64 n, kn_compute *compute, void *user,
                      const selection *selected)
{
    const kn_loc *all[KN_OPERANDS] = {out};
    for (i64 i = 0; i < n && i + 1 < KN_OPERANDS; i++)
        all[i + 1] = operands[i];
    kn_space s = kn_space_new(l, out->dims, all, n + 1, 0);
    kn_space_join(&s);
    i64 size = kn_space_size(&s);
    tiling t = choose_tiling(&s);

    kn_job j = kn_job_new(l, term);
    kn_operand bound[KN_OPERANDS];
    for (i64 i = 0; i < n; i++)
        bound[i + 1] = kn_job_bind(&j, selected && i == 0 ? selected->whole : operands[i], KN_IN);
    bound[0] = kn_job_bind(&j, out, access);
    kn_walk *walks = NEW_N(l->a, kn_walk, s.n + 1);
    for (i64 d = 0; d < s.n; d++) {
        i64 extent = s.at[d].extent, tile = 1;
        if (t.other >= 0 && (d == t.other || d == t.inner))
            tile = MIN(extent, SQUARE_TILE);
        else if (d == t.inner)
            tile = extent <= WHOLE_TILE && s.n > 1 ? extent : MIN(extent, LONG_TILE);
        walks[d] = (kn_walk){.extent = extent, .tile = tile};
    }
    kn_walk_grid(&j.m, walks, s.n, kn_part_count(l, size));
    for (i64 d = 0; d < s.n; d++)
        kn_walk_open(&j.m, &walks[d]);
    kn_value args[KN_OPERANDS];
    for (i64 i = selected ? 1 : 0; i < n; i++)
        args[i] = fetch(&j, &bound[i + 1], i + 1, &s, walks, t);
    if (selected)
        args[0] = fetch_selected(&j, &bound[1], &s, walks, t, selected, &args[1], n - 1);
    kn_value result = compute(&j, user, args);
    kn_place to = place_of(&j, &bound[0], 0, &s, walks, t);
    kn_store(&j.m, &to, kn_cast(&j.m, out->dtype, result));
    for (i64 d = s.n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &walks[d]);
    j.flops = size;
    kn_job_launch(&j);
}

void kn_pointwise(kn_lower *l, u32 term, const kn_loc *out, kn_access access,
                  const kn_loc *const *operands, i64 n, kn_compute *compute, void *user)
{
    pointwise(l, term, out, access, operands, n, compute, user, NULL);
}

static bool is_half(dtype t)
{
    return t == DT_f16 || t == DT_bf16;
}

static kn_value widen(kn_job *j, kn_value x)
{
    return is_half(kn_def(j->m.k, x)->dtype) ? kn_cast(&j->m, DT_f32, x) : x;
}

static kn_value compute_copy(kn_job *j, void *user, const kn_value *args)
{
    (void)j;
    (void)user;
    return args[0];
}

void kn_copy(kn_lower *l, u32 term, const kn_loc *out, kn_access access, const kn_loc *in)
{
    kn_pointwise(l, term, out, access, &in, 1, compute_copy, NULL);
}

kn_loc kn_in_memory(kn_lower *l, u32 term, const kn_loc *x)
{
    if (x->where == KN_MEMORY)
        return *x;
    kn_loc y = kn_loc_new(l, x->dtype, x->dims.at, x->dims.n);
    kn_copy(l, term, &y, KN_OUT, x);
    return y;
}

/* x without strides along the atoms `axis`. */
static kn_loc without(kn_lower *l, const kn_loc *x, ir_atoms axis)
{
    kn_loc y = *x;
    i64 *stride = NEW_N(l->a, i64, x->dims.n + 1);
    for (i64 i = 0; i < x->dims.n; i++)
        stride[i] = x->stride[i];
    for (i64 i = 0; i < x->dims.n; i++)
        for (i64 k = 0; k < axis.n; k++)
            if (axis.at[k].i == x->dims.at[i].i)
                stride[i] = 0;
    y.stride = stride;
    return y;
}

void kn_lower_gather(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_atoms axis = node->attr.axis;
    kn_loc x = kn_in_memory(l, term, &l->at[node->args[0].i]);
    kn_loc outside = without(l, &x, axis);
    const kn_loc *operands[KN_OPERANDS] = {&outside};
    selection s = {.whole = &x};
    if (axis.n > KN_INDICES)
        eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "more than %d indices at once", KN_INDICES);
    for (i64 i = 0; i < axis.n; i++) {
        operands[i + 1] = &l->at[node->args[1 + i].i];
        s.stride[i] = kn_stride(&x, axis.at[i]);
        s.extent[i] = kn_extent(l, axis.at[i]);
    }
    /* dims of the indices outside, what is left of x inside */
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, node->dims, &outside, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    pointwise(l, term, &out, KN_OUT, operands, axis.n + 1, compute_copy, NULL, &s);
    l->at[term] = out;
}

static kn_value operate(kn_job *j, const ir_node *node, const kn_value *args)
{
    if (node->op == IR_cast)
        return kn_cast(&j->m, node->dtype, args[0]);
    kn_value wide[3];
    for (i64 i = 0; i < node->arg_count; i++)
        wide[i] = widen(j, args[i]);
    return kn_cast(&j->m, node->dtype, kn_ew(&j->m, (ir_op)node->op, wide, node->arg_count));
}

/* A term from the values of the leaves. */
static kn_value make(kn_job *j, u32 term, const kn_leaves *leaves, const kn_value *values)
{
    const ir_node *node = &j->l->p->nodes.at[term];
    kn_value args[3];
    for (i64 i = 0; i < node->arg_count; i++) {
        u32 operand = node->args[i].i;
        i64 k = 0;
        while (k < leaves->n && leaves->term[k] != operand)
            k++;
        args[i] = k < leaves->n ? values[k] : make(j, operand, leaves, values);
    }
    return operate(j, node, args);
}

/* user: the leaves */
static kn_value compute_operator(kn_job *j, void *user, const kn_value *args)
{
    return make(j, j->term, user, args);
}

void kn_lower_ewise(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    const kn_loc *there = &l->at[node->args[0].i];
    if (node->op == IR_cast && there->where == KN_MEMORY && there->dtype == l->lies[term] &&
        l->want[term].where != KN_MEMORY) { /* it only says how that is read */
        l->at[term] = *there;
        return;
    }
    kn_leaves leaves = kn_leaves_of(l, term);
    const kn_loc *args[KN_OPERANDS];
    const kn_loc *widest = NULL;
    for (i64 i = 0; i < leaves.n; i++) {
        args[i] = &l->at[leaves.term[i]];
        bool wider = !widest || args[i]->dims.n > widest->dims.n;
        if (wider && (args[i]->where == KN_MEMORY || !widest))
            widest = args[i];
    }
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, node->dims, widest, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    kn_pointwise(l, term, &out, KN_OUT, args, leaves.n, compute_operator, &leaves);
    l->at[term] = out;
}
