/* Operators that walk whole lines: scatter, argsort, scan. */
#include "kernel/lower.h"

static ir_atoms minus(kn_lower *l, ir_atoms set, ir_atoms gone)
{
    ir_atom *at = NEW_N(l->a, ir_atom, set.n + 1);
    i64 n = 0;
    for (i64 i = 0; i < set.n; i++) {
        bool keep = true;
        for (i64 k = 0; k < gone.n; k++)
            keep &= gone.at[k].i != set.at[i].i;
        if (keep)
            at[n++] = set.at[i];
    }
    return (ir_atoms){at, n};
}

/* Atoms of the sets, ascending. */
static ir_atoms join(kn_lower *l, const ir_atoms *sets, i64 n)
{
    i64 most = 0, count = 0;
    for (i64 i = 0; i < n; i++)
        most += sets[i].n;
    ir_atom *at = NEW_N(l->a, ir_atom, most + 1);
    for (u32 d = 1; d < (u32)l->p->atoms.n; d++)
        for (i64 i = 0; i < n; i++)
            if (ir_has(sets[i], (ir_atom){d})) {
                at[count++] = (ir_atom){d};
                break;
            }
    return (ir_atoms){at, count};
}

static kn_affine address(kn_lower *l, const kn_operand *x, const kn_loc *loc, ir_atoms atoms,
                         const kn_walk *w)
{
    kn_affine at = kn_const_affine(x->base);
    for (i64 d = 0; d < atoms.n; d++)
        at = kn_affine_sum(l->a, at, w[d].index, kn_stride(loc, atoms.at[d]));
    return at;
}

static kn_value fetch(kn_job *j, const kn_operand *x, ir_atoms atoms, const kn_walk *w)
{
    kn_affine at = address(j->l, x, x->loc, atoms, w);
    const kn_loc *loc = x->loc;
    if (loc->where == KN_SERIES)
        return kn_iota(&j->m, DT_i64, at, 0, NULL, NULL);
    if (loc->where == KN_NUMBER)
        return dtype_is_float(loc->dtype) ? kn_const_f(&j->m, loc->dtype, loc->f, 0, NULL)
                                          : kn_const_i(&j->m, loc->dtype, loc->i, 0, NULL);
    kn_place p = {.buffer = x->buffer, .at = at};
    return kn_load(&j->m, &p, 0, 0);
}

/* The base is copied; then the values are stored one after another in row-major order. Dims that
 * move the destination and are not indexed go outside and make the parts: their elements never
 * meet. */
void kn_lower_scatter(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_atoms axis = node->attr.axis;
    const kn_loc *base = &l->at[node->args[0].i];
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, node->dims, base, order);
    kn_loc result = kn_result(l, term, order, node->dims.n), out = result;
    bool half = out.dtype == DT_f16 || out.dtype == DT_bf16;
    if (half && node->attr.reducer != IR_NO_REDUCER) /* accumulated in f32, rounded once */
        out = kn_loc_new(l, DT_f32, order, node->dims.n);
    kn_copy(l, term, &out, KN_OUT, base);

    ir_atoms *sets = NEW_N(l->a, ir_atoms, node->arg_count);
    for (i64 i = 1; i < node->arg_count; i++)
        sets[i - 1] = l->p->nodes.at[node->args[i].i].dims;
    ir_atoms free = minus(l, node->dims, axis);
    sets[node->arg_count - 1] = free;
    ir_atoms all = join(l, sets, node->arg_count), inner = minus(l, all, free);
    ir_atom *loops = NEW_N(l->a, ir_atom, all.n + 1);
    for (i64 i = 0; i < free.n; i++)
        loops[i] = free.at[i];
    for (i64 i = 0; i < inner.n; i++)
        loops[free.n + i] = inner.at[i];
    all.at = loops;

    kn_job j = kn_job_new(l, term);
    kn_operand bound[KN_OPERANDS];
    for (i64 i = 1; i < node->arg_count; i++)
        bound[i] = kn_job_bind(&j, &l->at[node->args[i].i], KN_IN);
    bound[0] = kn_job_bind(&j, &out, KN_UPDATE);
    kn_walk *w = NEW_N(l->a, kn_walk, all.n + 1);
    i64 size = 1;
    for (i64 d = 0; d < all.n; d++) {
        w[d] = (kn_walk){.extent = kn_extent(l, all.at[d]), .tile = 1};
        size *= w[d].extent;
    }
    kn_walk_grid(&j.m, w, free.n, kn_part_count(l, size));
    for (i64 d = free.n; d < all.n; d++)
        w[d].chunk = w[d].extent;
    for (i64 d = 0; d < all.n; d++)
        kn_walk_open(&j.m, &w[d]);
    i64 n = node->arg_count - 2, stride[KN_INDICES], extent[KN_INDICES];
    if (n > KN_INDICES)
        eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "more than %d indices at once", KN_INDICES);
    kn_value index[KN_INDICES];
    for (i64 i = 0; i < n; i++) {
        index[i] = kn_cast(&j.m, DT_i64, fetch(&j, &bound[1 + i], all, w));
        stride[i] = kn_stride(&out, axis.at[i]);
        extent[i] = kn_extent(l, axis.at[i]);
    }
    kn_value v = kn_cast(&j.m, out.dtype, fetch(&j, &bound[1 + n], all, w));
    kn_affine at = kn_const_affine(bound[0].base);
    for (i64 d = 0; d < free.n; d++)
        at = kn_affine_sum(l->a, at, w[d].index, kn_stride(&out, free.at[d]));
    kn_place p = {.buffer = bound[0].buffer, .at = at};
    kn_put(&j.m, &p, (ir_reducer)node->attr.reducer, v, index, stride, extent, n);
    for (i64 d = all.n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &w[d]);
    j.flops = size;
    kn_job_launch(&j);
    if (out.dtype != result.dtype)
        kn_copy(l, term, &result, KN_OUT, &out);
    l->at[term] = result;
}

static void lower_argsort(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    kn_loc x = kn_in_memory(l, term, &l->at[node->args[0].i]);
    ir_atoms rest = minus(l, l->p->nodes.at[node->args[0].i].dims, axis);
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, rest, &x, order);
    if (to.n > 0)
        order[rest.n] = to.at[0];
    kn_loc out = kn_result(l, term, order, node->dims.n);
    i64 n = kn_extent(l, axis.at[0]), kept = to.n > 0 ? kn_extent(l, to.at[0]) : 1;

    kn_job j = kn_job_new(l, term);
    kn_operand in = kn_job_bind(&j, &x, KN_IN), dest = kn_job_bind(&j, &out, KN_OUT);
    kn_walk *w = NEW_N(l->a, kn_walk, rest.n + 1);
    i64 size = n, parts = 1, levels = 1;
    for (i64 d = 0; d < rest.n; d++) {
        w[d] = (kn_walk){.extent = kn_extent(l, rest.at[d]), .tile = 1};
        size *= w[d].extent;
    }
    while ((i64)1 << levels < n)
        levels++;
    kn_walk_grid(&j.m, w, rest.n, kn_part_count(l, 8 * size * levels));
    kn_affine line = kn_const_affine(0); /* a work area a part */
    for (i64 d = rest.n - 1; d >= 0; d--) {
        line = kn_affine_add(l->a, line, w[d].part, parts * 2 * n);
        parts *= w[d].grid;
    }
    kn_loc area = {.where = KN_MEMORY, .dtype = DT_i64, .span = parts * 2 * n};
    area.buffer = kn_buffer_new(l, DT_i64, area.span);
    kn_operand work = kn_job_bind(&j, &area, KN_UPDATE);
    for (i64 d = 0; d < rest.n; d++)
        kn_walk_open(&j.m, &w[d]);
    kn_place from = {.buffer = in.buffer, .at = address(l, &in, &x, rest, w), .rank = 1,
                     .shape = {n}, .stride = {kn_stride(&x, axis.at[0])}};
    kn_place into = {.buffer = dest.buffer, .at = address(l, &dest, &out, rest, w), .rank = 1,
                     .shape = {kept}, .stride = {to.n > 0 ? kn_stride(&out, to.at[0]) : 1}};
    kn_place lines = {.buffer = work.buffer, .at = line, .rank = 1, .shape = {2 * n},
                      .stride = {1}};
    kn_sort(&j.m, &from, &into, &lines, node->attr.ints.at[0] != 0);
    for (i64 d = rest.n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &w[d]);
    j.flops = size * levels;
    kn_job_launch(&j);
    l->at[term] = out;
}

static void lower_scan(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    ir_reducer r = (ir_reducer)node->attr.reducer;
    ir_atom axis = node->attr.axis.at[0];
    kn_loc x = kn_in_memory(l, term, &l->at[node->args[0].i]);
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, node->dims, &x, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    const kn_loc *operands[2] = {&out, &x};
    kn_space rest = kn_space_new(l, minus(l, node->dims, node->attr.axis), operands, 2, 0);
    kn_space_join(&rest);
    dtype t = x.dtype == DT_f16 || x.dtype == DT_bf16 ? DT_f32 : x.dtype;
    if (r == IR_SUM && node->dtype == DT_f32) /* one addition after another: f32 would lose digits */
        t = DT_f64;

    kn_job j = kn_job_new(l, term);
    kn_operand in = kn_job_bind(&j, &x, KN_IN), dest = kn_job_bind(&j, &out, KN_OUT);
    kn_walk *w = NEW_N(l->a, kn_walk, rest.n + 1);
    i64 size = kn_extent(l, axis), lanes = -1;
    for (i64 d = 0; d < rest.n; d++) {
        if (rest.at[d].stride[1] == 1)
            lanes = d;
        w[d] = (kn_walk){.extent = rest.at[d].extent, .tile = 1};
        size *= w[d].extent;
    }
    if (lanes >= 0)
        w[lanes].tile = MIN(w[lanes].extent, 256);
    kn_walk_grid(&j.m, w, rest.n, kn_part_count(l, size));
    for (i64 d = 0; d < rest.n; d++)
        kn_walk_open(&j.m, &w[d]);
    kn_place from = {.buffer = in.buffer, .at = kn_const_affine(in.base)};
    kn_place to = {.buffer = dest.buffer, .at = kn_const_affine(dest.base)};
    for (i64 d = 0; d < rest.n; d++) {
        from.at = kn_affine_sum(l->a, from.at, w[d].index, rest.at[d].stride[1]);
        to.at = kn_affine_sum(l->a, to.at, w[d].index, rest.at[d].stride[0]);
    }
    if (lanes >= 0) {
        from.rank = to.rank = 1;
        from.shape[0] = to.shape[0] = w[lanes].tile;
        from.stride[0] = 1;
        to.stride[0] = rest.at[lanes].stride[0];
        from.live[0] = to.live[0] = kn_walk_live(&w[lanes]);
    }
    kn_value state = kn_state(&j.m, r, t, from.rank, from.shape), c, result;
    kn_var v;
    kn_loop(&j.m, kn_const_affine(0), kn_extent(l, axis), 1, 0, &state, 1, &v, &c);
    from.at = kn_affine_add(l->a, from.at, v, kn_stride(&x, axis));
    to.at = kn_affine_add(l->a, to.at, v, kn_stride(&out, axis));
    kn_value next = kn_combine(&j.m, r, c, kn_cast(&j.m, t, kn_load(&j.m, &from, 0, 0)));
    kn_store(&j.m, &to, kn_cast(&j.m, out.dtype, next));
    kn_end(&j.m, &next, &result);
    for (i64 d = rest.n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &w[d]);
    j.flops = size;
    kn_job_launch(&j);
    l->at[term] = out;
}

void kn_lower_plain(kn_lower *l, u32 term)
{
    if (l->p->nodes.at[term].op == IR_argsort)
        lower_argsort(l, term);
    else
        lower_scan(l, term);
}
