/* Reductions over any set of dims.
 *
 * Lanes run along whatever is contiguous: the innermost reduced dim (several accumulators a row,
 * folded at the end) or a dim of the result (one accumulator an element). Half types accumulate in
 * f32 and round once. When the result has too few elements to keep the threads busy, the outermost
 * reduced dim is split: partial results first, then their reduction. */
#include "kernel/lower.h"

enum { COLUMN_TILE = 256, ROW_VECTORS = 4 };

/* Additions that one accumulator makes in f32; for more it is f64, since the error of a sum grows with
 * its longest chain of additions, and columns, or very long rows, have no other way to be short. */
enum { CHAIN = 256 };

typedef struct reduction {
    ir_reducer reducer;
    dtype type, accumulator;
    kn_space kept, reduced; /* operands: 0 result, 1 input */
    kn_loc out, in;
    kn_access access;
} reduction;

static kn_affine address(kn_job *j, const kn_operand *x, i64 o, const kn_space *s,
                         const kn_walk *walks)
{
    kn_affine at = kn_const_affine(x->base);
    for (i64 d = 0; d < s->n; d++)
        at = kn_affine_sum(j->l->a, at, walks[d].index, s->at[d].stride[o]);
    return at;
}

/* Loads a tile, converts it and combines it with the state. */
static kn_value step(kn_job *j, const reduction *r, kn_value state, const kn_place *p)
{
    f64 other = 0;
    i64 other_i = 0;
    if (dtype_is_float(r->type))
        other = ir_reducer_identity_f64(r->reducer);
    else
        other_i = ir_reducer_identity_i64(r->reducer, r->type);
    kn_value x = kn_cast(&j->m, r->accumulator, kn_load(&j->m, p, other, other_i));
    return kn_combine(&j->m, r->reducer, state, x);
}

/* Loops over the reduced dims [d, n) with the state; the last one, if `chunked`, in tiles. */
static kn_value run(kn_job *j, const reduction *r, kn_value state, kn_place p, i64 d, i64 chunk)
{
    arena *a = j->l->a;
    if (d == r->reduced.n)
        return step(j, r, state, &p);
    const kn_dim *dim = &r->reduced.at[d];
    bool tiled = chunk > 0 && d == r->reduced.n - 1;
    i64 size = tiled ? chunk : 1, whole = dim->extent / size, rest = dim->extent % size;
    kn_affine start = p.at;
    kn_var v;
    kn_value c, y;
    kn_loop(&j->m, kn_const_affine(0), whole, size, 0, &state, 1, &v, &c);
    p.at = kn_affine_add(a, start, v, dim->stride[1]);
    y = run(j, r, c, p, d + 1, chunk);
    kn_end(&j->m, &y, &state);
    if (rest > 0) {
        p.at = start;
        p.at.base += whole * size * dim->stride[1];
        p.live[0] = (kn_live){kn_const_affine(whole * size), dim->extent};
        state = step(j, r, state, &p);
    }
    return state;
}

static void launch(kn_lower *l, u32 term, const reduction *r)
{
    i64 kept = kn_space_size(&r->kept), size = kept * kn_space_size(&r->reduced);
    /* lanes: -1 along the last reduced dim, else along this kept dim */
    i64 lanes = -1;
    const kn_dim *last = &r->reduced.at[r->reduced.n - 1];
    i64 contiguous = -1;
    for (i64 d = 0; d < r->kept.n; d++)
        if (r->kept.at[d].stride[1] == 1)
            contiguous = d;
    if (contiguous >= 0 && (last->stride[1] != 1 || last->extent < 8))
        lanes = contiguous;
    else if (last->stride[1] != 1 && r->kept.n > 0 && last->extent < 64)
        lanes = r->kept.n - 1;

    kn_job j = kn_job_new(l, term);
    kn_operand in = kn_job_bind(&j, &r->in, KN_IN), out = kn_job_bind(&j, &r->out, r->access);
    kn_walk *walks = NEW_N(l->a, kn_walk, r->kept.n + 1);
    for (i64 d = 0; d < r->kept.n; d++)
        walks[d] = (kn_walk){.extent = r->kept.at[d].extent,
                             .tile = d == lanes ? MIN(r->kept.at[d].extent, COLUMN_TILE) : 1};
    kn_walk_grid(&j.m, walks, r->kept.n, kn_part_count(l, size));
    for (i64 d = 0; d < r->kept.n; d++)
        kn_walk_open(&j.m, &walks[d]);
    kn_place from = {.buffer = in.buffer, .at = address(&j, &in, 1, &r->kept, walks), .rank = 1};
    kn_place to = {.buffer = out.buffer, .at = address(&j, &out, 0, &r->kept, walks)};
    kn_value result;
    if (lanes >= 0) {
        from.shape[0] = walks[lanes].tile;
        from.stride[0] = r->kept.at[lanes].stride[1];
        from.live[0] = kn_walk_live(&walks[lanes]);
        to.rank = 1;
        to.shape[0] = from.shape[0];
        to.stride[0] = r->kept.at[lanes].stride[0];
        to.live[0] = from.live[0];
        kn_value state = kn_state(&j.m, r->reducer, r->accumulator, 1, from.shape);
        result = run(&j, r, state, from, 0, 0);
    } else {
        i64 wide = ROW_VECTORS * l->o.vector_bytes / dtype_bytes(r->accumulator);
        from.shape[0] = MIN(wide, last->extent);
        from.stride[0] = last->stride[1];
        kn_value state = kn_state(&j.m, r->reducer, r->accumulator, 1, from.shape);
        state = run(&j, r, state, from, 0, from.shape[0]);
        result = kn_reduce(&j.m, r->reducer, state, 0);
    }
    kn_store(&j.m, &to, kn_cast(&j.m, r->out.dtype, result));
    for (i64 d = r->kept.n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &walks[d]);
    j.flops = size;
    kn_job_launch(&j);
}

/* The largest divisor of n that is at most `most`. */
static i64 divisor(i64 n, i64 most)
{
    for (i64 d = MIN(n, most); d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

void kn_lower_reduce(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    kn_loc in = kn_in_memory(l, term, &l->at[node->args[0].i]);
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    kn_order_like(l, node->dims, &in, order);
    kn_loc out = kn_result(l, term, order, node->dims.n);
    const kn_loc *operands[2] = {&out, &in};
    reduction r = {.reducer = node->attr.reducer, .type = in.dtype, .out = out, .in = in,
                   .accumulator = in.dtype, .access = KN_OUT};
    if (in.dtype == DT_f16 || in.dtype == DT_bf16)
        r.accumulator = DT_f32;
    r.kept = kn_space_new(l, node->dims, operands, 2, 0);
    r.reduced = kn_space_new(l, node->attr.axis, operands, 2, 1);
    kn_space_join(&r.kept);
    kn_space_join(&r.reduced);
    l->at[term] = out;
    const kn_dim *last = &r.reduced.at[r.reduced.n - 1];
    i64 side = last->stride[1] == 1 ? ROW_VECTORS * l->o.vector_bytes / dtype_bytes(DT_f32) : 1;
    if (r.reducer == IR_SUM && node->dtype == DT_f32 && kn_space_size(&r.reduced) / side > CHAIN)
        r.accumulator = DT_f64;

    i64 kept = kn_space_size(&r.kept), size = kept * kn_space_size(&r.reduced);
    i64 want = kn_part_count(l, size);
    i64 pieces = kept < l->o.threads ? divisor(r.reduced.at[0].extent, want) : 1;
    if (want == 1 || pieces == 1) {
        launch(l, term, &r);
        return;
    }
    /* Partial results: the split dim is kept, outermost, and its buffer is [pieces][kept]. */
    reduction first = r, second = r;
    kn_dim *dim = &first.reduced.at[0];
    kn_dim piece = {.extent = pieces, .stride = {kept, dim->extent / pieces * dim->stride[1]}};
    dim->extent /= pieces;
    first.kept.at = NEW_N(l->a, kn_dim, r.kept.n + 1);
    first.kept.at[0] = piece;
    first.kept.n = r.kept.n + 1;
    second.kept.at = NEW_N(l->a, kn_dim, r.kept.n + 1);
    i64 dense = 1;
    for (i64 d = r.kept.n - 1; d >= 0; d--) {
        first.kept.at[d + 1] = second.kept.at[d] = r.kept.at[d];
        first.kept.at[d + 1].stride[0] = second.kept.at[d].stride[1] = dense;
        dense *= r.kept.at[d].extent;
    }
    kn_loc partial = {.where = KN_MEMORY, .dtype = (u8)r.accumulator, .span = pieces * kept};
    partial.buffer = kn_buffer_new(l, r.accumulator, pieces * kept);
    first.out = partial;
    second.in = partial;
    second.type = r.accumulator;
    second.reduced = (kn_space){.at = NEW(l->a, kn_dim), .n = 1, .operands = 2};
    second.reduced.at[0] = (kn_dim){.extent = pieces, .stride = {0, kept}};
    launch(l, term, &first);
    launch(l, term, &second);
}
