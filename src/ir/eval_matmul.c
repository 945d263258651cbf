/* Matrix products of the interpreter: any contraction is [B][M][K] x [B][K][N] through tables of
 * offsets (an operand without an atom of the axis has a stride of 0 there). Blocks of both operands
 * are packed into panels of 4 rows and 8 columns, which a small kernel multiplies with eight
 * vectors of accumulators (Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication"). The sum over K runs in order whatever the vector width, and AVX2 is used
 * without fused multiply-add, so every x86-64 gives the same bits. */
#include <stdatomic.h>

#include "ir/eval.h"
#include "ir/scalar.h"

#define MR 4
#define NR 8
#define MC 128
#define NC 256
#define KC 256

typedef f64 vec4 __attribute__((vector_size(32), aligned(8)));

/* One operand order: c[b, m, n] = sum over k of x[b, m, k] * y[b, k, n]. */
typedef struct product {
    const eval *e;
    const value *x, *y;
    value *c;
    i64 batch, m, n, k;
    i64 *xb, *xm, *xk, *yb, *yk, *yn, *cb, *cm, *cn;
    i64 blocks_m, blocks_n;
    i64 mc, nc, kc; /* block sizes, rounded up to whole panels */
    f64 *space;     /* for each thread: both packed blocks and the block of the result */
    i64 space_each;
    _Atomic i64 next; /* block */
    void (*panel)(i64 k, const f64 *a, const f64 *b, f64 *c);
} product;

static inline __attribute__((always_inline)) void multiply(i64 k, const f64 *a, const f64 *b,
                                                           f64 *c)
{
    vec4 acc[MR][2];
    for (int r = 0; r < MR; r++)
        for (int h = 0; h < 2; h++)
            acc[r][h] = *(const vec4 *)(c + r * NR + h * 4);
    for (i64 p = 0; p < k; p++, a += MR, b += NR) {
        vec4 b0 = *(const vec4 *)b, b1 = *(const vec4 *)(b + 4);
        for (int r = 0; r < MR; r++) {
            vec4 s = {a[r], a[r], a[r], a[r]}, p0 = s * b0, p1 = s * b1;
            acc[r][0] += p0;
            acc[r][1] += p1;
        }
    }
    for (int r = 0; r < MR; r++)
        for (int h = 0; h < 2; h++)
            *(vec4 *)(c + r * NR + h * 4) = acc[r][h];
}

static void multiply_portable(i64 k, const f64 *a, const f64 *b, f64 *c)
{
    multiply(k, a, b, c);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(i64 k, const f64 *a, const f64 *b, f64 *c)
{
    multiply(k, a, b, c);
}
#endif

/* Panels of `width` lanes: out[panel][k][lane]; lanes past the end are 0. Walks along whichever of
 * lanes and k is closer together in memory. */
static void pack(f64 *out, const f64 *from, const i64 *lane, i64 lanes, i64 width, const i64 *k,
                 i64 count)
{
    bool lanes_inside = lanes > 1 && count > 1 && lane[1] - lane[0] < k[1] - k[0];
    i64 panels = (lanes + width - 1) / width, outer = lanes_inside ? count : 1;
    for (i64 q = 0; q < outer; q++) {
        i64 p0 = lanes_inside ? q : 0, p1 = lanes_inside ? q + 1 : count;
        for (i64 panel = 0; panel < panels; panel++) {
            i64 filled = MIN(width, lanes - panel * width);
            const i64 *at = lane + panel * width;
            for (i64 p = p0; p < p1; p++) {
                f64 *to = out + (panel * count + p) * width;
                const f64 *source = from + k[p];
                for (i64 r = 0; r < filled; r++)
                    to[r] = source[at[r]];
                for (i64 r = filled; r < width; r++)
                    to[r] = 0;
            }
        }
    }
}

static void block(product *w, i64 piece, f64 *space)
{
    i64 b = piece / (w->blocks_m * w->blocks_n);
    i64 m0 = piece / w->blocks_n % w->blocks_m * MC, n0 = piece % w->blocks_n * NC;
    i64 m = MIN(MC, w->m - m0), n = MIN(NC, w->n - n0);
    f64 *px = space, *py = px + w->mc * w->kc, *pc = py + w->kc * w->nc;
    i64 panels_m = (m + MR - 1) / MR, panels_n = (n + NR - 1) / NR;
    memset(pc, 0, (size_t)(panels_m * panels_n * MR * NR) * sizeof *pc);
    for (i64 k0 = 0; k0 < w->k; k0 += KC) {
        i64 k = MIN(KC, w->k - k0);
        pack(px, w->x->f + w->xb[b], w->xm + m0, m, MR, w->xk + k0, k);
        pack(py, w->y->f + w->yb[b], w->yn + n0, n, NR, w->yk + k0, k);
        for (i64 j = 0; j < panels_n; j++)
            for (i64 i = 0; i < panels_m; i++)
                w->panel(k, px + i * MR * k, py + j * NR * k, pc + (j * panels_m + i) * MR * NR);
    }
    f64 *c = w->c->f + w->cb[b];
    bool is_rounded = w->e->options.round;
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n; j++) {
            f64 z = pc[(j / NR * panels_m + i / MR) * MR * NR + i % MR * NR + j % NR];
            c[w->cm[m0 + i] + w->cn[n0 + j]] = is_rounded ? eqf_round_float(w->c->dtype, z) : z;
        }
}

/* Exact modulo 2^64, so in any order. */
static void block_i64(product *w, i64 piece)
{
    i64 b = piece / (w->blocks_m * w->blocks_n);
    i64 m0 = piece / w->blocks_n % w->blocks_m * MC, n0 = piece % w->blocks_n * NC;
    const i64 *x = w->x->i + w->xb[b], *y = w->y->i + w->yb[b];
    for (i64 i = m0; i < MIN(m0 + MC, w->m); i++)
        for (i64 j = n0; j < MIN(n0 + NC, w->n); j++) {
            i64 sum = 0;
            for (i64 k = 0; k < w->k; k++)
                sum =
                    eqf_wrap_add(sum, eqf_wrap_mul(x[w->xm[i] + w->xk[k]], y[w->yn[j] + w->yk[k]]));
            w->c->i[w->cb[b] + w->cm[i] + w->cn[j]] = eqf_wrap(w->c->dtype, sum);
        }
}

static void worker(void *user, i64 part)
{
    product *w = user;
    const volatile bool *cancel = w->e->options.cancel;
    i64 pieces = w->batch * w->blocks_m * w->blocks_n, piece;
    while ((piece = atomic_fetch_add(&w->next, 1)) < pieces && !(cancel && *cancel))
        if (w->c->is_float)
            block(w, piece, w->space + part * w->space_each);
        else
            block_i64(w, piece);
}

/* Atoms of `from` outside of `axis` that `in` has, or lacks. */
static ir_atoms select_atoms(const eval *e, ir_atoms from, ir_atoms in, bool wanted, ir_atoms axis)
{
    ir_atom *at = NEW_N(e->scratch, ir_atom, from.n);
    i64 n = 0;
    for (i64 i = 0; i < from.n; i++)
        if (ir_has(in, from.at[i]) == wanted && !ir_has(axis, from.at[i]))
            at[n++] = from.at[i];
    return (ir_atoms){at, n};
}

static i64 round_up(i64 n, i64 to)
{
    return (n + to - 1) / to * to;
}

/* How much of the work of whole panels is wanted. */
static f64 usefulness(i64 m, i64 n)
{
    return (f64)m / (f64)round_up(m, MR) * ((f64)n / (f64)round_up(n, NR));
}

/* With dead lanes: element by element, they are left out and not multiplied. */
typedef struct lanes {
    const nest *t;
    value *out;
    const value *a, *b;
    const u8 *dead;
} lanes;

static void lanes_row(void *user, i64 n, const i64 *offset)
{
    const lanes *w = user;
    i64 so = nest_step(w->t, 0), sa = nest_step(w->t, 1), sb = nest_step(w->t, 2);
    for (i64 j = 0; j < n; j++) {
        i64 o = offset[0] + j * so, a = offset[1] + j * sa, b = offset[2] + j * sb;
        if (w->dead[offset[3] + j * nest_step(w->t, 3)])
            continue;
        if (w->out->is_float)
            w->out->f[o] += w->a->f[a] * w->b->f[b];
        else
            w->out->i[o] = eqf_wrap_add(w->out->i[o], eqf_wrap_mul(w->a->i[a], w->b->i[b]));
    }
}

static bool multiply_lanes(eval *e, u32 k, const value *a, const value *b)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atom *at = NEW_N(e->scratch, ir_atom, a->dims.n + b->dims.n);
    ir_atoms all = {at, 0};
    for (u32 d = 1; d < (u32)e->p->atoms.n; d++)
        if (ir_has(a->dims, (ir_atom){d}) || ir_has(b->dims, (ir_atom){d}))
            at[all.n++] = (ir_atom){d};
    lanes w = {.a = a, .b = b, .dead = eval_dead_lanes(e, all)};
    if (!w.dead)
        return false;
    value over = {.dims = all};
    w.out = eval_new(e, k);
    memset(w.out->p, 0, (size_t)w.out->count * sizeof(i64));
    nest t = nest_over(e, node->dims, (const value *[]){w.out, a, b, &over}, 4);
    for (i64 i = 0; i < node->attr.axis.n; i++) { /* the sum inside */
        ir_atom d = node->attr.axis.at[i];
        nest_add(&t, eval_extent(e, d),
                 (i64[]){0, eval_stride(e, a, d), eval_stride(e, b, d), eval_stride(e, &over, d)});
    }
    w.t = &t;
    if (w.out->count > 0 && eval_count(e, all) > 0)
        nest_walk(&t, lanes_row, &w);
    eval_settle(e, w.out, 0, w.out->count);
    return true;
}

void eval_matmul(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atoms axis = node->attr.axis;
    const value *a = &e->values[node->args[0].i], *b = &e->values[node->args[1].i];
    if (e->p->splits.n > 0 && multiply_lanes(e, k, a, b))
        return;
    product w = {.e = e, .c = eval_new(e, k), .panel = multiply_portable};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        w.panel = multiply_avx2;
#endif
    ir_atoms batch = select_atoms(e, a->dims, b->dims, true, axis);
    ir_atoms m = select_atoms(e, a->dims, b->dims, false, axis);
    ir_atoms n = select_atoms(e, b->dims, a->dims, false, axis);
    i64 count_m = eval_count(e, m), count_n = eval_count(e, n);
    bool is_swapped = usefulness(count_n, count_m) > usefulness(count_m, count_n);
    w.x = is_swapped ? b : a;
    w.y = is_swapped ? a : b;
    ir_atoms rows = is_swapped ? n : m, columns = is_swapped ? m : n;
    w.batch = eval_count(e, batch);
    w.m = is_swapped ? count_n : count_m;
    w.n = is_swapped ? count_m : count_n;
    w.k = eval_count(e, axis);
    w.xb = eval_offsets(e, w.x, batch);
    w.xm = eval_offsets(e, w.x, rows);
    w.xk = eval_offsets(e, w.x, axis);
    w.yb = eval_offsets(e, w.y, batch);
    w.yk = eval_offsets(e, w.y, axis);
    w.yn = eval_offsets(e, w.y, columns);
    w.cb = eval_offsets(e, w.c, batch);
    w.cm = eval_offsets(e, w.c, rows);
    w.cn = eval_offsets(e, w.c, columns);
    w.blocks_m = (w.m + MC - 1) / MC;
    w.blocks_n = (w.n + NC - 1) / NC;
    w.mc = round_up(MIN(w.m, MC), MR);
    w.nc = round_up(MIN(w.n, NC), NR);
    w.kc = MIN(w.k, KC);
    w.space_each = w.mc * w.kc + w.kc * w.nc + w.mc * w.nc;
    i64 parts = MIN(pool_threads(e->options.threads), w.batch * w.blocks_m * w.blocks_n);
    if (w.c->is_float)
        w.space = NEW_N(e->scratch, f64, parts * w.space_each);
    pool_run(e->options.threads, parts, worker, &w);
    eval_poll(e);
}
