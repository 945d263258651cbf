/* Matrix products: batch x M x N x K, each a product of any atoms.
 *
 * Dims are sorted into batch (both operands move), M (only the left), N (only the right) and K, and
 * joined where strides allow. The right operand is the one whose own dim is innermost in the
 * result; vectors run along it. The forms of the right operand:
 *
 *   tiles    [N/32][K/2][32][2] of bf16, where the machine has instructions for them: packed as panels are,
 *            before they are read
 *   panels   [N/nr][K][nr], packed in `prepare` when it is constant; else, when enough rows share
 *            the cost, block by block where they are read, or by a launch before if many parts do
 *   direct   N is contiguous: vectors from its rows
 *   rowdot   K is contiguous in both: vectors along K, sums across lanes at the end
 *   plain    integers and what is left: element by element
 *
 * The left operand is packed to [M/mr][K][mr], for tiles [M/mr][K/32][mr][32], when there are many rows,
 * which would otherwise come from as many pages. A part is a block of rows by a block of columns. When K
 * is cut in blocks of kc (a panel's block stays in L1), partial sums live in a private strip of
 * several panels. Loops: block of K, panel, rows.
 * Register tiles mr x nr: the cheapest of all that fit the registers, by FMA and load counts. */
#include "kernel/lower.h"

typedef enum form { TILES, PANELS, DIRECT, ROWDOT, PLAIN } form; /* the first two fill up their last panel */

enum { OUT, LEFT, RIGHT };

typedef struct matmul {
    kn_lower *l;
    u32 term;
    dtype type, accumulator;
    kn_loc at[3];
    bool constant[3];
    /* dims outside the tile: batch, and what does not join with the dims in it */
    kn_space outer;
    kn_dim m, n, k; /* in the tile; extent 1 where there is none */
    form form;
    i64 mr, nr;         /* register tile */
    i64 mc, nc, kc;     /* block of a part; block of K */
    i64 width[3];       /* LEFT, RIGHT: packed in panels so wide; 0: not */
    bool copies;        /* panels of the right operand are made by the part that reads them */
    i64 start[3];       /* elements before the part of the product that is being made */
    i64 prefetch;
} matmul;

/* ---- classification --------------------------------------------------------------------------- */

static bool moves(const matmul *x, i64 operand, ir_atom d)
{
    return kn_stride(&x->at[operand], d) != 0;
}

/* Moves the widest dim of `s` (the contiguous one of operand `by` if it fills a vector) to *tile
 * and the others to x->outer. */
static void take_tile(matmul *x, const kn_space *s, i64 by, i64 lanes, kn_dim *tile)
{
    i64 best = 0;
    for (i64 i = 1; i < s->n; i++)
        if (s->at[i].extent > s->at[best].extent)
            best = i;
    for (i64 i = 0; i < s->n; i++)
        if (s->at[i].stride[by] == 1 && s->at[i].extent >= lanes)
            best = i;
    *tile = (kn_dim){.extent = 1};
    for (i64 i = 0; i < s->n; i++) {
        if (i == best)
            *tile = s->at[i];
        else
            x->outer.at[x->outer.n++] = s->at[i];
    }
}

static bool is_half(dtype t)
{
    return t == DT_f16 || t == DT_bf16;
}

/* Copies an operand into [what only it moves or both][K in the order `k`]. */
static void make_dense(matmul *x, i64 operand, ir_atoms k)
{
    kn_lower *l = x->l;
    const kn_loc *from = &x->at[operand];
    ir_atom *order = NEW_N(l->a, ir_atom, from->dims.n + k.n + 1);
    i64 n = 0;
    ir_atom *sorted = NEW_N(l->a, ir_atom, from->dims.n + 1);
    kn_order_like(l, from->dims, from, sorted);
    for (i64 i = 0; i < from->dims.n; i++)
        if (moves(x, operand, sorted[i]) && !ir_has(l->p->nodes.at[x->term].attr.axis, sorted[i]))
            order[n++] = sorted[i];
    for (i64 i = 0; i < k.n; i++)
        order[n++] = k.at[i];
    bool constant = l->constant[x->term];
    l->constant[x->term] = x->constant[operand];
    kn_loc to = kn_loc_new(l, from->dtype, order, n);
    kn_copy(l, x->term, &to, KN_OUT, from);
    l->constant[x->term] = constant;
    x->at[operand] = to;
}

static void sort_dims(matmul *x)
{
    kn_lower *l = x->l;
    ir_atoms all = x->at[OUT].dims, axis = l->p->nodes.at[x->term].attr.axis;
    ir_atom *lists[3];
    i64 n[3] = {0, 0, 0};
    for (i64 i = 0; i < 3; i++)
        lists[i] = NEW_N(l->a, ir_atom, all.n + 1);
    for (i64 i = 0; i < all.n; i++) {
        bool left = moves(x, LEFT, all.at[i]), right = moves(x, RIGHT, all.at[i]);
        i64 kind = right && !left ? 2 : left && !right ? 1 : 0;
        lists[kind][n[kind]++] = all.at[i];
    }
    const kn_loc *operands[3] = {&x->at[OUT], &x->at[LEFT], &x->at[RIGHT]};
    kn_space s[3];
    for (i64 i = 0; i < 3; i++) {
        s[i] = kn_space_new(l, (ir_atoms){lists[i], n[i]}, operands, 3, 0);
        kn_space_join(&s[i]);
    }
    kn_space k = kn_space_new(l, axis, operands, 3, x->constant[RIGHT] ? LEFT : RIGHT);
    kn_space_join(&k);
    if (k.n > 1) { /* one order of K for both: that of the operand which is dearer to move */
        i64 first = x->constant[RIGHT] ? LEFT : RIGHT;
        ir_atom *order = NEW_N(l->a, ir_atom, axis.n + 1);
        kn_order_like(l, axis, &x->at[first], order);
        kn_space alone = kn_space_new(l, axis, (const kn_loc *[]){&x->at[first]}, 1, 0);
        kn_space_join(&alone);
        if (alone.n > 1)
            make_dense(x, first, (ir_atoms){order, axis.n});
        make_dense(x, first == LEFT ? RIGHT : LEFT, (ir_atoms){order, axis.n});
        k = kn_space_new(l, axis, operands, 3, LEFT);
        for (i64 i = 0; i < 3; i++) {
            s[i] = kn_space_new(l, (ir_atoms){lists[i], n[i]}, operands, 3, 0);
            kn_space_join(&s[i]);
        }
        kn_space_join(&k);
    }
    if (k.n != 1)
        eqf_bug(l->ctx, "matmul: %lld summed dims left", (long long)k.n);
    i64 lanes = l->o.vector_bytes / dtype_bytes(x->accumulator);
    x->outer = (kn_space){.at = NEW_N(l->a, kn_dim, all.n + 1), .operands = 3};
    for (i64 i = 0; i < s[0].n; i++)
        x->outer.at[x->outer.n++] = s[0].at[i];
    take_tile(x, &s[1], LEFT, INT64_MAX, &x->m);
    take_tile(x, &s[2], RIGHT, lanes, &x->n);
    x->k = k.at[0];
}

/* The order of a result that is free to choose: batch, M, N, each as in its operand. */
static void result_order(matmul *x, ir_atoms dims, ir_atom *order)
{
    i64 n = 0;
    ir_atom *some = NEW_N(x->l->a, ir_atom, dims.n + 1);
    kn_order_like(x->l, dims, &x->at[LEFT], some);
    for (i64 pass = 0; pass < 2; pass++)
        for (i64 i = 0; i < dims.n; i++) {
            bool left = moves(x, LEFT, some[i]), right = moves(x, RIGHT, some[i]);
            if (pass == 0 ? left == right : left && !right)
                order[n++] = some[i];
        }
    kn_order_like(x->l, dims, &x->at[RIGHT], some);
    for (i64 i = 0; i < dims.n; i++)
        if (moves(x, RIGHT, some[i]) && !moves(x, LEFT, some[i]))
            order[n++] = some[i];
}

/* Elements of the dims that only this operand moves; is one of them contiguous in `in`? */
static i64 own_size(const matmul *x, i64 operand, const kn_loc *in, ir_atoms dims,
                    bool *contiguous)
{
    i64 size = 1;
    *contiguous = false;
    for (i64 i = 0; i < dims.n; i++) {
        ir_atom d = dims.at[i];
        if (!moves(x, operand, d) || moves(x, operand == LEFT ? RIGHT : LEFT, d))
            continue;
        size *= kn_extent(x->l, d);
        *contiguous |= kn_stride(in, d) == 1;
    }
    return size;
}

/* Is the left operand the one that vectors should run along? */
static bool is_exchanged(const matmul *x, const kn_loc *want, ir_atoms dims)
{
    bool left_inner, right_inner;
    i64 left = own_size(x, LEFT, want ? want : &x->at[LEFT], dims, &left_inner);
    i64 right = own_size(x, RIGHT, want ? want : &x->at[RIGHT], dims, &right_inner);
    if (left == 1 || right == 1)
        return right == 1 && left > 1;
    if (want && left_inner != right_inner)
        return left_inner;
    if (x->constant[LEFT] != x->constant[RIGHT])
        return x->constant[LEFT];
    return left_inner && !right_inner;
}

/* ---- choices ----------------------------------------------------------------------------------- */

/* Cycles a k step takes for m rows of nv vectors: FMAs and loads at two a cycle, FMA latency 4. Of
 * tiles that keep the FMA units busy the one with the fewest loads is best: what they read comes
 * from L2 in part. */
static f64 tile_cycles(i64 m, i64 nv)
{
    f64 fma = (f64)(m * nv) / 2, loads = (f64)(m + nv) / 2;
    return MAX(MAX(fma, loads), 4.0) + loads / 4;
}

static i64 ceil_div(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

static void choose_tile(matmul *x, i64 lanes)
{
    i64 registers = x->l->o.vector_bytes == 64 ? 32 : 16, rows = x->m.extent;
    f64 best = 0;
    for (i64 m = 1; m <= MIN(rows, 16); m++)
        for (i64 nv = 1; nv <= 8; nv++) {
            i64 shared = m > 1 ? nv : 0; /* loaded once for several rows */
            if (m * nv + shared + 1 > registers)
                continue;
            i64 rest = rows % m;
            f64 cost = (f64)(rows / m) * tile_cycles(m, nv);
            cost += rest ? tile_cycles(rest, nv) : 0;
            cost *= (f64)ceil_div(x->n.extent, nv * lanes);
            if (best == 0 || cost < best - 1e-9) {
                best = cost;
                x->mr = m;
                x->nr = nv * lanes;
            }
        }
}

static i64 round_down(i64 x, i64 to)
{
    return x - x % to;
}

static i64 round_up(i64 x, i64 to)
{
    return ceil_div(x, to) * to;
}

/* Rows of a part: about 256, in blocks that are nearly equal. */
static i64 block_rows(i64 rows, i64 mr)
{
    i64 blocks = MAX((rows + 127) / 256, 1);
    return MIN(round_up(ceil_div(rows, blocks), mr), rows);
}

/* A block of K near `most`, a divisor when there is one not much smaller. */
static i64 choose_block(i64 depth, i64 most)
{
    if (depth <= most + most / 2)
        return depth;
    for (i64 b = most; b >= most / 2; b--)
        if (depth % b == 0)
            return b;
    return most;
}

enum { FEWEST_TILED = 4 }; /* rows; memory is as fast as vectors with fewer */

static bool is_tiled(const matmul *x)
{
    i64 rows = x->m.extent;
    bool pays = x->constant[RIGHT] && !x->constant[LEFT] ? rows >= FEWEST_TILED : rows >= KN_TILE;
    return x->l->o.tiles && pays && x->at[LEFT].dtype == DT_bf16 && x->at[RIGHT].dtype == DT_bf16 &&
           x->n.extent >= KN_TILE && x->k.extent >= 2 * KN_TILE && x->k.extent % 2 == 0;
}

static form choose_form(const matmul *x, i64 lanes)
{
    if (!dtype_is_float(x->type))
        return PLAIN;
    i64 rows = x->m.extent, columns = x->n.extent, depth = x->k.extent;
    if (is_tiled(x))
        return TILES;
    bool along_k = x->k.stride[LEFT] == 1 && x->k.stride[RIGHT] == 1;
    bool along_n = x->n.stride[RIGHT] == 1 && columns >= lanes;
    bool big = columns >= 2 * lanes && depth >= 16;
    if (x->constant[RIGHT] && !x->constant[LEFT] && big && !(rows == 1 && along_k))
        return PANELS;
    if (along_n)
        return rows >= 64 || (rows >= 32 && columns * depth > 1 << 22) ? PANELS : DIRECT;
    if (big && (rows >= 32 || (rows >= 8 && !along_k)))
        return PANELS;
    return along_k && depth >= lanes ? ROWDOT : PLAIN;
}

/* Columns of a part whose partial sums lie in a strip: several panels, so that a block of the left
 * operand is read from L2 once for all of them; fewer where the threads would have no work. */
static i64 strip_columns(const matmul *x)
{
    i64 rows = MIN(x->m.extent, x->mc), bytes = dtype_bytes(x->accumulator);
    i64 panels = ceil_div(x->n.extent, x->nr);
    i64 parts = kn_part_count(x->l, x->m.extent * x->n.extent * x->k.extent / 8);
    parts = ceil_div(parts, kn_space_size(&x->outer) * ceil_div(x->m.extent, x->mc));
    i64 most = MAX((1 << 18) / (rows * x->nr * bytes), 1);
    return x->nr * MIN(most, MAX(panels / parts, 1));
}

/* How often each panel would be made if the parts that read it made it. */
static i64 copies_of_right(const matmul *x)
{
    i64 copies = ceil_div(x->m.extent, x->mc);
    for (i64 d = 0; d < x->outer.n; d++)
        copies *= x->outer.at[d].stride[RIGHT] == 0 ? x->outer.at[d].extent : 1;
    return copies;
}

/* A panel's block of K stays in L1 where several blocks of rows read it. */
static void choose_tiles(matmul *x)
{
    enum { DEEP = 256 };
    i64 rows = x->m.extent, depth = round_up(x->k.extent, KN_TILE);
    x->mr = MIN(rows, KN_TILE);
    x->nr = x->nc = x->width[RIGHT] = KN_TILE;
    x->mc = block_rows(rows, x->mr);
    bool in_place = x->k.stride[LEFT] == 1 && depth == x->k.extent;
    x->width[LEFT] = in_place && (rows <= KN_TILE || x->n.extent < 256) ? 0 : x->mr;
    x->kc = rows <= x->mr ? depth : KN_TILE * choose_block(depth / KN_TILE, DEEP / KN_TILE);
    if (x->kc < depth)
        x->nc = strip_columns(x);
}

static void choose(matmul *x)
{
    i64 lanes = x->l->o.vector_bytes / dtype_bytes(x->accumulator);
    i64 rows = x->m.extent, columns = x->n.extent, depth = x->k.extent;
    i64 bytes = columns * depth * dtype_bytes(x->type);
    x->form = choose_form(x, lanes);
    x->kc = depth;
    switch (x->form) {
    case TILES:
        choose_tiles(x);
        break;
    case PANELS:
    case DIRECT:
        choose_tile(x, lanes);
        x->nr = MIN(x->nr, x->form == DIRECT ? round_down(columns, lanes) : round_up(columns, lanes));
        x->nc = x->nr;
        x->mc = block_rows(rows, x->mr);
        if (x->form == PANELS) {
            /* a panel's block stays in L1; under few rows beside the one that comes next */
            i64 blocks = ceil_div(rows, x->mr), line = x->nr * dtype_bytes(x->accumulator);
            i64 deep = MAX((blocks <= 8 ? 1 << 14 : 1 << 15) / line, 16);
            /* rows of a panel are copied fast; columns cost as much as a pass over DRAM */
            i64 most = x->n.stride[RIGHT] == 1 ? 8 : 1;
            x->copies = !x->constant[RIGHT] && copies_of_right(x) <= most;
            x->kc = blocks == 1 && !x->copies ? depth : choose_block(depth, deep);
            x->width[RIGHT] = x->copies ? 0 : x->nr;
            if (x->kc < depth)
                x->nc = strip_columns(x);
            x->prefetch = bytes > 1 << 20 ? 1024 : 0;
        } else if (bytes > 1 << 18 && columns > 4 * x->nr) {
            /* rows of the operand, not columns of it, are streams */
            i64 most = (1 << 18) / (rows * dtype_bytes(x->accumulator));
            x->kc = choose_block(depth, 8);
            x->nc = MAX(round_down(MIN(MIN(columns, 2048), most), x->nr), x->nr);
        }
        if (rows > 4 && depth >= 64 && columns >= 256)
            x->width[LEFT] = x->mr;
        break;
    case ROWDOT:
        x->mr = MIN(rows, 4);
        x->nr = x->mr == 1 ? 8 : x->mr == 2 ? 4 : x->mr == 3 ? 3 : 2;
        if (x->l->o.vector_bytes == 64 && x->mr > 2)
            x->nr = 4;
        x->nc = x->nr = MIN(x->nr, columns);
        break;
    default:
        x->mr = MIN(rows, 4);
        x->nc = x->nr = MIN(columns, 64);
    }
    x->mc = block_rows(rows, x->mr);
}

/* ---- packing ----------------------------------------------------------------------------------- */

/* How a panel is copied: so many lanes of K, in units, and what is stored where in a panel. */
typedef struct packing {
    i64 depth;          /* of a panel, K filled up */
    i64 unit;           /* positions of K that one step is; a panel has depth / unit of them */
    i64 deep;           /* steps at a time */
    i64 step;           /* elements of a panel from one step to the next */
    kn_place from, to;  /* lanes: shapes, strides, and what of the operand there is */
    i64 own, k, parity; /* dims of the lanes; k: steps, or, without parity, what is in one */
} packing;

/* [K][width], [K/2][width][2] or [K/32][width][32]; what is contiguous in the source runs fastest. */
static packing packing_of(const matmul *x, i64 operand, kn_dim own)
{
    i64 width = x->width[operand], depth = x->k.extent, k_stride = x->k.stride[operand];
    bool along_k = k_stride == 1, tiles = x->form == TILES;
    packing p = {.depth = depth, .unit = 1, .deep = MIN(depth, 64), .step = width, .parity = -1};
    p.from.rank = p.to.rank = 2;
    p.own = along_k ? 0 : 1;
    p.k = 1 - p.own;
    if (tiles)
        p.depth = round_up(depth, KN_TILE);
    if (tiles && operand == RIGHT) {
        p.unit = p.parity = 2;
        p.deep = KN_TILE / 2;
        p.from.rank = p.to.rank = 3;
    } else if (tiles) {
        p.unit = KN_TILE;
        p.deep = 1;
        p.own = 0;
        p.k = 1;
    }
    p.step = width * p.unit;
    p.from.shape[p.own] = width;
    p.from.stride[p.own] = own.stride[operand];
    p.from.shape[p.k] = p.unit == KN_TILE ? KN_TILE : p.deep;
    p.from.stride[p.k] = p.unit == KN_TILE ? k_stride : p.unit * k_stride;
    p.to.stride[p.own] = p.unit;
    p.to.stride[p.k] = p.unit == KN_TILE ? 1 : p.step;
    if (p.parity >= 0) {
        p.from.shape[p.parity] = 2;
        p.from.stride[p.parity] = k_stride;
        p.to.stride[p.parity] = 1;
    }
    memcpy(p.to.shape, p.from.shape, sizeof p.to.shape);
    return p;
}

/* An operand to [outer][own / width][a panel], the last one, and K where it is cut in tiles, filled up with
 * zeros. Its strides in x->outer, x->m or x->n, and x->k become those of the packed form; `own` is its dim of
 * the tile. */
static void pack(matmul *x, i64 operand)
{
    kn_lower *l = x->l;
    kn_dim *own = operand == LEFT ? &x->m : &x->n;
    i64 width = x->width[operand], depth = x->k.extent, panels = (own->extent + width - 1) / width;
    packing lanes = packing_of(x, operand, *own);
    kn_loc from = x->at[operand];
    /* rows are read by broadcasts, which half types make dear */
    dtype type = operand == LEFT && x->form != TILES ? x->accumulator : (dtype)from.dtype;
    kn_loc to = {.where = KN_MEMORY, .dtype = (u8)type, .span = panels * lanes.depth * width};
    i64 *outer = NEW_N(l->a, i64, x->outer.n + 1);
    for (i64 d = x->outer.n - 1; d >= 0; d--) {
        outer[d] = x->outer.at[d].stride[operand] != 0 ? to.span : 0;
        if (outer[d] != 0 && !mul_i64(to.span, x->outer.at[d].extent, &to.span))
            eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "a packed operand of too many elements");
    }
    to.buffer = kn_buffer_new(l, to.dtype, to.span);

    kn_job j = kn_job_new(l, x->term);
    j.constant = x->constant[operand];
    kn_operand in = kn_job_bind(&j, &from, KN_IN), out = kn_job_bind(&j, &to, KN_OUT);
    kn_walk *w = NEW_N(l->a, kn_walk, x->outer.n + 2);
    i64 n = 0;
    for (i64 d = 0; d < x->outer.n; d++)
        if (outer[d] != 0)
            w[n++] = (kn_walk){.extent = x->outer.at[d].extent, .tile = 1};
    kn_walk *panel = &w[n++], *row = &w[n++];
    *panel = (kn_walk){.extent = panels, .tile = 1};
    *row = (kn_walk){.extent = lanes.depth / lanes.unit, .tile = lanes.deep};
    kn_walk_grid(&j.m, w, n, kn_part_count(l, to.span));
    for (i64 d = 0; d < n; d++)
        kn_walk_open(&j.m, &w[d]);
    kn_place p = lanes.from, q = lanes.to;
    p.buffer = in.buffer;
    p.at = kn_const_affine(in.base);
    q.buffer = out.buffer;
    q.at = kn_const_affine(out.base);
    for (i64 d = 0, i = 0; d < x->outer.n; d++) {
        if (outer[d] == 0)
            continue;
        p.at = kn_affine_sum(l->a, p.at, w[i].index, x->outer.at[d].stride[operand]);
        q.at = kn_affine_sum(l->a, q.at, w[i].index, outer[d]);
        i++;
    }
    p.at = kn_affine_sum(l->a, p.at, panel->index, width * own->stride[operand]);
    q.at = kn_affine_sum(l->a, q.at, panel->index, lanes.depth * width);
    p.at = kn_affine_sum(l->a, p.at, row->index, lanes.unit * x->k.stride[operand]);
    q.at = kn_affine_sum(l->a, q.at, row->index, lanes.step);
    if (lanes.unit == 1)
        p.live[lanes.k] = q.live[lanes.k] = kn_walk_live(row);
    else if (lanes.depth != depth) /* all is stored, what there is is read */
        p.live[lanes.k] = lanes.unit == 2
                              ? (kn_live){row->index, depth / 2}
                              : (kn_live){kn_affine_sum(l->a, kn_const_affine(0), row->index, lanes.unit), depth};
    if (own->extent % width != 0)
        p.live[lanes.own] = (kn_live){kn_affine_sum(l->a, kn_const_affine(0), panel->index, width),
                                     own->extent};
    kn_store(&j.m, &q, kn_cast(&j.m, type, kn_load(&j.m, &p, 0, 0)));
    for (i64 d = n - 1; d >= 0; d--)
        kn_walk_close(&j.m, &w[d]);
    kn_job_launch(&j);

    for (i64 d = 0; d < x->outer.n; d++)
        x->outer.at[d].stride[operand] = outer[d];
    own->stride[operand] = lanes.depth; /* of a whole number of panels */
    x->k.stride[operand] = width;       /* of a whole number of units */
    x->at[operand] = to;
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

typedef struct product {
    kn_job j;
    const matmul *x;
    kn_place place[3]; /* at the block's corner, k = 0 */
    i32 strip;
    bool direct; /* in the last block of K: the tiles are stored where they belong */
    i32 block; /* a copy of a panel's block of the right operand; -1: none */
    kn_walk rows, columns;
} product;

/* Place of a tile of operand o: h rows (or w columns) by d of K, at these coordinates. */
static kn_place tile_of(const product *b, i64 o, kn_affine own, kn_affine k, i64 width, i64 depth)
{
    const matmul *x = b->x;
    arena *a = x->l->a;
    const kn_dim *dim = o == LEFT ? &x->m : &x->n;
    kn_place p = b->place[o];
    p.rank = 2;
    if (x->form == TILES) {
        i64 unit = o == LEFT ? KN_TILE : 2;
        p.rank = 3;
        p.at = kn_affine_sum(a, p.at, own, dim->stride[o]);
        p.at = kn_affine_sum(a, p.at, k, x->k.stride[o]);
        memcpy(p.shape, (i64[]){depth / unit, width, unit}, sizeof p.shape);
        memcpy(p.stride, (i64[]){unit * x->k.stride[o], x->width[o] > 0 ? unit : dim->stride[o], 1},
               sizeof p.stride);
        return p;
    }
    if (o == RIGHT && b->block >= 0) {
        p = (kn_place){.buffer = b->block, .rank = 2, .shape = {depth, width}, .stride = {width, 1}};
        return p;
    }
    p.at = kn_affine_sum(a, p.at, own, dim->stride[o]);
    p.at = kn_affine_sum(a, p.at, k, x->k.stride[o]);
    i64 inside = x->width[o] > 0 ? 1 : dim->stride[o];
    p.shape[0] = o == LEFT ? width : depth;
    p.shape[1] = o == LEFT ? depth : width;
    p.stride[0] = o == LEFT ? inside : x->k.stride[o];
    p.stride[1] = o == LEFT ? x->k.stride[o] : inside;
    return p;
}

static kn_dot kind_of(form f)
{
    static const kn_dot kinds[] = {[TILES] = KN_DOT_TILES, [PANELS] = KN_DOT_FMA, [DIRECT] = KN_DOT_FMA,
                                   [ROWDOT] = KN_DOT_ROWDOT, [PLAIN] = KN_DOT_PLAIN};
    return kinds[f];
}

static void store_out(product *b, kn_affine row, kn_affine column, i64 height, kn_value v)
{
    const matmul *x = b->x;
    arena *a = x->l->a;
    kn_place p = b->place[OUT];
    p.at = kn_affine_sum(a, p.at, row, x->m.stride[OUT]);
    p.at = kn_affine_sum(a, p.at, column, x->n.stride[OUT]);
    const kn_ins *d = kn_def(b->j.m.k, v);
    i64 width = d->shape[d->rank - 1], n = 0;
    if (d->rank == 2) {
        p.shape[n] = height;
        p.stride[n++] = x->m.stride[OUT];
    }
    p.shape[n] = width;
    p.stride[n] = x->n.stride[OUT];
    if (x->n.extent % width != 0)
        p.live[n] = (kn_live){column, x->n.extent};
    p.rank = n + 1;
    kn_store(&b->j.m, &p, kn_cast(&b->j.m, x->at[OUT].dtype, v));
}

/* One register tile: rows [row, row + height), `inside` from the block's first, a panel at
 * `column`, K [k, k + depth). */
static void emit_tile(product *b, kn_affine row, kn_affine inside, kn_affine column, i64 height,
                      kn_affine k, i64 depth)
{
    const matmul *x = b->x;
    kn_maker *m = &b->j.m;
    arena *a = x->l->a;
    i64 shape[2] = {height, x->nr};
    kn_place left = tile_of(b, LEFT, row, k, height, depth);
    kn_place right = tile_of(b, RIGHT, column, k, x->nr, depth);
    kn_place strip = {.buffer = b->strip, .rank = 2, .shape = {height, x->nr},
                      .stride = {x->nc, 1}};
    kn_value acc;
    if (b->strip >= 0) {
        strip.at = kn_affine_sum(a, kn_const_affine(0), inside, x->nc);
        strip.at = kn_affine_sum(a, strip.at, kn_affine_sum(a, column, b->columns.index, -1), 1);
        acc = kn_ref(m, &strip);
    } else {
        acc = kn_state(m, IR_SUM, x->accumulator, 2, shape);
    }
    kn_value l = kn_ref(m, &left), r = kn_ref(m, &right);
    kn_affine next = right.at;
    i64 ahead = 0;
    if (x->prefetch > 0 && b->block < 0) {
        /* the block that comes next, a share of it under each block of rows */
        i64 rows = MIN(x->m.extent, x->mc), blocks = (rows + x->mr - 1) / x->mr;
        ahead = (x->nr + blocks - 1) / blocks;
        i64 block = (x->nc > x->nr ? x->k.extent : depth) * x->nr;
        next.base += blocks > 1 ? block : x->prefetch;
        next = kn_affine_sum(a, next, inside, depth * ahead / x->mr);
    }
    kn_value c = kn_dot_add(m, kind_of(x->form), acc, l, r, next, ahead);
    if (b->strip >= 0 && !b->direct)
        kn_store(m, &strip, c);
    else
        store_out(b, row, column, height, c);
}

/* All row blocks of the part under one panel. */
static void emit_rows(product *b, kn_affine column, kn_affine k, i64 depth)
{
    const matmul *x = b->x;
    kn_maker *m = &b->j.m;
    if (b->block >= 0) {
        i32 block = b->block;
        b->block = -1;
        kn_place from = tile_of(b, RIGHT, column, k, x->nr, depth);
        b->block = block;
        kn_place to = tile_of(b, RIGHT, column, k, x->nr, depth);
        if (x->copies && x->n.extent % x->nr != 0)
            from.live[1] = (kn_live){column, x->n.extent};
        kn_store(m, &to, kn_cast(m, x->accumulator, kn_load(m, &from, 0, 0)));
    }
    i64 rows = x->m.extent, blocks = ceil_div(rows, x->mc), last = (blocks - 1) * x->mc;
    i64 rest = (rows - last) % x->mr, whole = blocks > 1 ? x->mc / x->mr : rows / x->mr;
    arena *a = x->l->a;
    if (whole == 1) {
        emit_tile(b, b->rows.index, kn_const_affine(0), column, x->mr, k, depth);
    } else if (whole > 1) {
        kn_var v;
        kn_loop(m, b->rows.index, whole, x->mr, blocks > 1 ? rows - rest : 0, NULL, 0, &v, NULL);
        kn_affine row = kn_affine_add(a, kn_const_affine(0), v, 1);
        emit_tile(b, row, kn_affine_sum(a, row, b->rows.index, -1), column, x->mr, k, depth);
        kn_end(m, NULL, NULL);
    }
    if (rest == 0)
        return;
    kn_affine row = kn_const_affine(rows - rest), inside = kn_const_affine(rows - rest - last);
    if (blocks > 1) { /* a loop that runs once, and in the last block alone */
        kn_var v;
        kn_affine from = kn_affine_sum(a, kn_const_affine(last), b->rows.index, -1);
        kn_loop(m, from, 1, 1, 1, NULL, 0, &v, NULL);
    }
    emit_tile(b, row, inside, column, rest, k, depth);
    if (blocks > 1)
        kn_end(m, NULL, NULL);
}

static void emit_columns(product *b, kn_affine k, i64 depth)
{
    const matmul *x = b->x;
    i64 panels = x->nc / x->nr;
    if (panels == 1) {
        emit_rows(b, b->columns.index, k, depth);
        return;
    }
    kn_var v;
    kn_loop(&b->j.m, b->columns.index, panels, x->nr, x->n.extent, NULL, 0, &v, NULL);
    emit_rows(b, kn_affine_add(x->l->a, kn_const_affine(0), v, 1), k, depth);
    kn_end(&b->j.m, NULL, NULL);
}

/* Rows of the strip, one after another: cleared, or rounded and stored. */
static void emit_strip(product *b, bool clear)
{
    const matmul *x = b->x;
    kn_maker *m = &b->j.m;
    arena *a = x->l->a;
    kn_var v;
    bool cut = x->m.extent > x->mc;
    i64 end = cut && !clear ? x->m.extent : 0;
    kn_affine from = clear ? kn_const_affine(0) : b->rows.index;
    kn_loop(m, from, MIN(x->mc, x->m.extent), 1, end, NULL, 0, &v, NULL);
    kn_affine row = kn_affine_add(a, kn_const_affine(0), v, 1);
    kn_place p = {.buffer = b->strip, .rank = 1, .shape = {x->nc}, .stride = {1}};
    kn_affine inside = clear ? row : kn_affine_sum(a, row, b->rows.index, -1);
    p.at = kn_affine_sum(a, kn_const_affine(0), inside, x->nc);
    if (clear)
        kn_store(m, &p, kn_state(m, IR_SUM, x->accumulator, 1, p.shape));
    else
        store_out(b, row, b->columns.index, 1, kn_load(m, &p, 0, 0));
    kn_end(m, NULL, NULL);
}

/* One launch. Columns are a multiple of the panel, or padded in it. */
static void launch(matmul *x)
{
    kn_lower *l = x->l;
    product b = {.j = kn_job_new(l, x->term), .x = x, .strip = -1, .block = -1};
    bool padded = x->form <= PANELS;
    i64 columns = padded ? round_up(x->n.extent, x->nr) : x->n.extent;
    for (i64 o = 0; o < 3; o++) {
        kn_operand t = kn_job_bind(&b.j, &x->at[o], o == OUT ? KN_INTO : KN_IN);
        b.place[o] = (kn_place){.buffer = t.buffer, .at = kn_const_affine(t.base + x->start[o])};
    }
    i64 n = x->outer.n, size = x->m.extent * columns * x->k.extent;
    kn_walk *w = NEW_N(l->a, kn_walk, n + 2);
    for (i64 d = 0; d < n; d++) {
        w[d] = (kn_walk){.extent = x->outer.at[d].extent, .tile = 1};
        size *= w[d].extent;
    }
    w[n] = (kn_walk){.extent = x->m.extent, .tile = x->mc};
    w[n + 1] = (kn_walk){.extent = columns, .tile = x->nc};
    kn_walk_grid(&b.j.m, w, n + 2, kn_part_count(l, size / 8));
    for (i64 d = 0; d < n + 2; d++)
        kn_walk_open(&b.j.m, &w[d]);
    for (i64 o = 0; o < 3; o++)
        for (i64 d = 0; d < n; d++)
            b.place[o].at = kn_affine_sum(l->a, b.place[o].at, w[d].index, x->outer.at[d].stride[o]);
    b.rows = w[n];
    b.columns = w[n + 1];
    /* many rows share a block that is widened once; few widen it in registers */
    bool widens = is_half(x->at[RIGHT].dtype) && x->m.extent > 4 * x->mr && x->kc <= 1024 &&
                  (x->form == PANELS || x->form == DIRECT);
    if (x->copies || widens)
        b.block = kn_add_buffer(&b.j.m, KN_LOCAL, x->accumulator, x->kc * x->nr);
    if (x->kc == x->k.extent) {
        emit_columns(&b, kn_const_affine(0), x->k.extent);
    } else {
        b.strip = kn_add_buffer(&b.j.m, KN_LOCAL, x->accumulator, MIN(x->mc, x->m.extent) * x->nc);
        emit_strip(&b, true);
        /* conditions, casts and strides are dearer in a tile than in rows of the strip */
        bool direct = x->n.extent % x->nr == 0 && x->n.stride[OUT] == 1 &&
                      x->at[OUT].dtype == x->accumulator;
        i64 last = (x->k.extent - 1) / x->kc, whole = direct ? last : x->k.extent / x->kc;
        kn_var v;
        kn_loop(&b.j.m, kn_const_affine(0), whole, x->kc, 0, NULL, 0, &v, NULL);
        emit_columns(&b, kn_affine_add(l->a, kn_const_affine(0), v, 1), x->kc);
        kn_end(&b.j.m, NULL, NULL);
        b.direct = direct;
        if (whole * x->kc < x->k.extent)
            emit_columns(&b, kn_const_affine(whole * x->kc), x->k.extent - whole * x->kc);
        if (!direct)
            emit_strip(&b, false);
    }
    for (i64 d = n + 1; d >= 0; d--)
        kn_walk_close(&b.j.m, &w[d]);
    b.j.flops = 2 * size;
    kn_job_launch(&b.j);
}

/* The part of the product from column `first` on. */
static matmul tail_of(const matmul *x, i64 first)
{
    matmul y = *x;
    y.outer.at = arena_copy(x->l->a, x->outer.at, x->outer.n * (i64)sizeof(kn_dim));
    y.start[OUT] += first * x->n.stride[OUT];
    y.start[RIGHT] += first * x->n.stride[RIGHT];
    y.n.extent -= first;
    return y;
}

static void run(matmul *x)
{
    i64 columns = x->n.extent;
    i64 column_rest = x->form <= PANELS ? 0 : columns % x->nr;
    if (column_rest > 0) {
        matmul main = *x, rest = tail_of(x, columns - column_rest);
        main.n.extent = columns - column_rest;
        run(&main);
        rest.nc = rest.nr = column_rest;
        i64 lanes = x->l->o.vector_bytes / dtype_bytes(x->accumulator);
        if (x->form == DIRECT && column_rest % lanes != 0) {
            rest.nc = rest.nr = round_down(column_rest, lanes);
            if (rest.nr == 0) {
                rest.nc = rest.nr = column_rest;
                rest.form = PLAIN;
            }
        }
        rest.kc = x->k.extent;
        run(&rest);
        return;
    }
    launch(x);
}

void kn_lower_matmul(kn_lower *l, u32 term)
{
    const ir_node *node = &l->p->nodes.at[term];
    matmul x = {.l = l, .term = term, .type = node->dtype};
    x.accumulator = is_half(x.type) ? DT_f32 : x.type;
    for (i64 o = LEFT; o <= RIGHT; o++) {
        u32 t = node->args[o - LEFT].i;
        bool constant = l->constant[term];
        x.constant[o] = l->constant[term] = l->constant[t];
        x.at[o] = kn_in_memory(l, term, &l->at[t]);
        l->constant[term] = constant;
    }
    const kn_loc *want = l->want[term].where == KN_MEMORY ? &l->want[term] : NULL;
    if (is_exchanged(&x, want, node->dims)) {
        kn_loc t = x.at[LEFT];
        x.at[LEFT] = x.at[RIGHT];
        x.at[RIGHT] = t;
        bool c = x.constant[LEFT];
        x.constant[LEFT] = x.constant[RIGHT];
        x.constant[RIGHT] = c;
    }
    ir_atom *order = NEW_N(l->a, ir_atom, node->dims.n + 1);
    result_order(&x, node->dims, order);
    x.at[OUT] = kn_result(l, term, order, node->dims.n);
    l->at[term] = x.at[OUT];
    sort_dims(&x);
    if (x.constant[RIGHT] && x.m.extent == 1 && x.outer.n == 0 && x.k.stride[LEFT] == 1 &&
        x.k.stride[RIGHT] != 1) { /* one row: rows of the weights, contiguous along k, stream best */
        make_dense(&x, RIGHT, node->attr.axis);
        sort_dims(&x);
    }
    choose(&x);
    for (i64 o = LEFT; o <= RIGHT; o++)
        if (x.width[o] > 0)
            pack(&x, o);
    if (x.form == TILES)
        x.k.extent = round_up(x.k.extent, KN_TILE);
    run(&x);
}
