/* What a program in tiled form would cost, roughly: for each kernel its operations and its traffic,
 * which overlap in part, and a launch. A value that lacks an axis of its kernel's result is computed
 * again for each tile along that axis.
 *
 * Operations are counted in multiply-adds of a product at full rate. Anything else on tiles loads and
 * stores what it works on, so it costs several; so does an operand of a product that is computed in a
 * tile, which is laid out anew for it. */
#include <stdlib.h>

#include "extract/impl.h"

enum { TILE = 32, WIDE = 128, ROW = 1024, LARGEST = 4096, MOVED = 8, STEPS = 32 };
#define OVERLAP 0.3 /* of the smaller of operations and traffic is not hidden */

typedef struct kernel {
    f64 flops, bytes, parts;
} kernel;

f64 ex_weight(ir_op op)
{
    switch (op) {
    case IR_matmul:
    case IR_tile_matmul:
        return 1;
    case IR_exp:
    case IR_exp2:
    case IR_expm1:
    case IR_log:
    case IR_log2:
    case IR_log1p:
    case IR_tanh:
    case IR_erf:
    case IR_sigmoid:
        return 40;
    case IR_pow:
    case IR_atan2:
    case IR_log10:
    case IR_sinh:
    case IR_cosh:
    case IR_asinh:
    case IR_acosh:
    case IR_atanh:
    case IR_sin:
    case IR_cos:
    case IR_tan:
    case IR_asin:
    case IR_acos:
    case IR_atan:
        return 160; /* in f64 */
    case IR_erfc:
    case IR_fmod:
    case IR_mod:
        return 1600; /* by calls */
    case IR_div:
    case IR_sqrt:
    case IR_rsqrt:
    case IR_recip:
        return 12;
    default:
        return 5;
    }
}

static bool is_in_memory(const ir_node *node)
{
    return node->axes.n == 0 && node->dims.n > 0 && node->runs.n == 0 && !node->is_open &&
           ir_kind_of((ir_op)node->op) == IR_A_VALUE;
}

static f64 elements(const ir_program *p, ir_atoms dims, ir_atoms axes)
{
    f64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        n *= (f64)ir_extent(p, dims.at[i]);
    for (i64 i = 0; i < axes.n; i++)
        if (!ir_has(dims, axes.at[i]))
            n *= (f64)ir_extent(p, axes.at[i]);
    return n;
}

static bool is_loop(const ir_node *node)
{
    return node->op == IR_loop || (node->op == IR_reduce && node->attr.par.n > 0);
}

static u64 bit_of(ir_atom a)
{
    return a.i < 64 ? (u64)1 << a.i : 0;
}

/* A bound in the middle of the outer atoms. */
static f64 middle_of(const ir_program *p, const ir_affine *x)
{
    f64 at = (f64)x->constant;
    for (i64 i = 0; i < x->atoms.n; i++)
        at += (f64)x->factors[i] * (f64)(ir_extent(p, x->atoms.at[i]) - 1) / 2;
    return at;
}

/* The share of its axis that a loop visits, on average. */
static f64 visited_by(arena *a, const ir_program *p, u32 loop)
{
    ir_live_set visits = ir_visits(a, p, (ir_term){loop});
    if (visits.n == 0)
        return 1;
    f64 extent = (f64)ir_extent(p, p->nodes.at[loop].attr.par.at[0]), sum = 0;
    for (i64 i = 0; i < visits.n; i++) {
        f64 low = MAX(middle_of(p, &visits.at[i].low), 0);
        f64 high = MIN(middle_of(p, &visits.at[i].high), extent);
        sum += MAX(high - low, 0);
    }
    return MIN(sum / extent, 1);
}

/* Bytes of a value in memory. */
static f64 traffic(const ir_program *p, u32 k, const u8 *lies)
{
    const ir_node *node = &p->nodes.at[k];
    if (node->op == IR_iota || node->op == IR_const)
        return 0;
    return elements(p, node->dims, (ir_atoms){0}) * (f64)dtype_bytes((dtype)lies[k]);
}

/* A cast whose operand lies as it does itself: no kernel. */
static bool is_reading(const ir_program *p, const ir_node *node, u32 k, const u8 *lies)
{
    return node->op == IR_cast && lies[node->args[0].i] == lies[k] && is_in_memory(ir_get(p, node->args[0]));
}

static i64 used_operands(const ir_node *node)
{
    if (node->op == IR_loop)
        return 0; /* its components are found where results are taken from it */
    return node->op == IR_reducer ? 3 : node->arg_count; /* no merge */
}

/* Is operand i the component of a loop whose result the operator takes? */
static bool takes_result(const ir_node *node, i64 i)
{
    return node->op == IR_get && i == 1;
}

/* The terms of a kernel, and what is known of each while it is priced; by term, clear between kernels. */
typedef struct work {
    VEC(u32) terms; /* from the root down; what is in memory is where it ends */
    u64 *used;      /* a bit for each pass, by how many loops lie below */
    u8 *below;
    i64 *times;
    u64 *bound;  /* axes of the loops around it */
    u64 *inside; /* axes of the result that what these loops accumulate has */
    bool *is_listed;
    bool *looped; /* by atom, as are: */
    i64 *lanes;   /* of a tile */
    f64 *share;   /* of its tiles that loops visit, the largest */
    const u8 *lies; /* by term, of the program */
} work;

static bool ends_at(const ir_program *p, u32 t, u32 root)
{
    return t != root && is_in_memory(&p->nodes.at[t]);
}

static int compare_down(const void *x, const void *y)
{
    u32 a = *(const u32 *)x, b = *(const u32 *)y;
    return a > b ? -1 : a < b;
}

static void list_terms(arena *a, const ir_program *p, u32 root, work *w)
{
    w->terms.n = 0;
    vec_push(a, &w->terms, root);
    w->is_listed[root] = true;
    for (i64 k = 0; k < w->terms.n; k++) {
        const ir_node *node = &p->nodes.at[w->terms.at[k]];
        for (i64 i = 0; i < node->arg_count && !ends_at(p, w->terms.at[k], root); i++) {
            if (!w->is_listed[node->args[i].i])
                vec_push(a, &w->terms, node->args[i].i);
            w->is_listed[node->args[i].i] = true;
        }
    }
    qsort(w->terms.at, (size_t)w->terms.n, sizeof *w->terms.at, compare_down);
    for (i64 k = 0; k < w->terms.n; k++) {
        u32 t = w->terms.at[k];
        w->used[t] = w->below[t] = 0;
        w->bound[t] = w->inside[t] = 0;
        w->times[t] = 0;
        w->is_listed[t] = false;
    }
    memset(w->looped, 0, (size_t)p->atoms.n);
}

/* How often each term is computed, but for tiles. Loops follow one another where one needs another's
 * result; those that do not are one. What varies with their axes is computed in each that uses it, and
 * again outside where the result varies with them too. A loop inside is run each time. */
static void count_passes(const ir_program *p, u32 root, work *w)
{
    for (i64 k = w->terms.n - 1; k >= 0; k--) {
        u32 t = w->terms.at[k];
        const ir_node *node = &p->nodes.at[t];
        if (ends_at(p, t, root))
            continue;
        for (i64 i = 0; i < used_operands(node); i++)
            w->below[t] = MAX(w->below[t], w->below[node->args[i].i]);
        for (i64 i = 0; node->op == IR_loop && i < node->arg_count; i++)
            w->below[t] = MAX(w->below[t], w->below[node->args[i].i]);
        w->below[t] = (u8)MIN(w->below[t] + is_loop(node), 63);
    }
    w->used[root] = 1;
    for (i64 k = 0; k < w->terms.n; k++) {
        u32 t = w->terms.at[k];
        const ir_node *node = &p->nodes.at[t];
        if (!w->used[t] || ends_at(p, t, root))
            continue;
        for (i64 i = 0; is_loop(node) && i < node->attr.par.n; i++)
            w->looped[node->attr.par.at[i].i] = true;
        u64 pass = is_loop(node) ? (u64)1 << w->below[t] : w->used[t];
        for (i64 i = 0; i < used_operands(node); i++) {
            u32 x = node->args[i].i;
            const ir_node *around = takes_result(node, i) ? &p->nodes.at[node->args[0].i] : node;
            w->used[x] |= takes_result(node, i) ? (u64)1 << w->below[node->args[0].i] : pass;
            w->bound[x] |= w->bound[t];
            w->inside[x] |= w->inside[t];
            for (i64 j = 0; is_loop(around) && j < around->attr.par.n; j++)
                w->bound[x] |= bit_of(around->attr.par.at[j]);
            for (i64 j = 0; is_loop(around) && j < node->axes.n; j++)
                w->inside[x] |= bit_of(node->axes.at[j]) & ~w->bound[t];
        }
    }
    w->times[root] = 1;
    for (i64 k = 0; k < w->terms.n; k++) {
        u32 t = w->terms.at[k];
        const ir_node *node = &p->nodes.at[t];
        if (!w->used[t])
            continue;
        bool varies = false;
        for (i64 i = 0; i < node->axes.n; i++)
            varies |= w->looped[node->axes.at[i].i];
        i64 own = MAX(w->times[t], 1) * (varies ? __builtin_popcountll(w->used[t]) : 1);
        i64 inside = is_loop(node) ? own : MAX(w->times[t], 1);
        for (i64 i = 0; i < used_operands(node) && !ends_at(p, t, root); i++) {
            i64 passed = takes_result(node, i) ? own : inside;
            w->times[node->args[i].i] = MAX(w->times[node->args[i].i], MIN(passed, 1 << 20));
        }
        w->times[t] = MIN(own, 1 << 20);
    }
}

/* Of the dims that operand x of a product has and the other lacks, a tile has lanes along the longest alone;
 * and none along those that both have and that are not summed. */
static void limit_rows(const ir_program *p, const ir_node *product, i64 o, work *w)
{
    const ir_node *x = ir_get(p, product->args[o]), *y = ir_get(p, product->args[1 - o]);
    u32 longest = 0;
    for (i64 i = 0; i < x->axes.n; i++) {
        u32 d = x->axes.at[i].i;
        bool is_row = !ir_has(product->attr.axis, x->axes.at[i]) && !ir_has(y->dims, x->axes.at[i]);
        if (is_row && (!longest || ir_extent(p, x->axes.at[i]) > ir_extent(p, (ir_atom){longest})))
            longest = d;
    }
    for (i64 i = 0; i < x->axes.n; i++)
        if (!ir_has(product->attr.axis, x->axes.at[i]) && x->axes.at[i].i != longest)
            w->lanes[x->axes.at[i].i] = 1;
}

/* Columns that a tile of the product has beside its computed operand number o. */
static i64 columns_beside(const ir_program *p, const ir_node *product, i64 o)
{
    const ir_node *x = ir_get(p, product->args[o]), *y = ir_get(p, product->args[1 - o]);
    i64 rows = 1;
    for (i64 i = 0; i < x->dims.n; i++)
        if (!ir_has(product->attr.axis, x->dims.at[i]) && !ir_has(y->dims, x->dims.at[i]))
            rows = MAX(rows, MIN(ir_extent(p, x->dims.at[i]), TILE));
    return MAX(MIN(LARGEST / rows, ROW), WIDE);
}

/* Lanes of a tile by atom, as kernels choose them (kernel/lanes.c), roughly. They have wide tiles along what
 * one operand of a product has and the other, which is computed, lacks: it is computed again for each. */
static void find_lanes(const ir_program *p, work *w)
{
    for (i64 d = 0; d < p->atoms.n; d++)
        w->lanes[d] = TILE;
    for (i64 k = 0; k < w->terms.n; k++) {
        const ir_node *node = &p->nodes.at[w->terms.at[k]];
        for (i64 o = 0; o < 2 && w->used[w->terms.at[k]] && node->op == IR_tile_matmul; o++) {
            const ir_node *x = ir_get(p, node->args[o]), *y = ir_get(p, node->args[1 - o]);
            for (i64 i = 0; i < y->dims.n && x->op != IR_view; i++)
                if (!ir_has(x->dims, y->dims.at[i]) && !ir_has(node->attr.axis, y->dims.at[i]))
                    w->lanes[y->dims.at[i].i] = columns_beside(p, node, o);
        }
    }
    for (i64 k = 0; k < w->terms.n; k++) {
        const ir_node *node = &p->nodes.at[w->terms.at[k]];
        for (i64 o = 0; o < 2 && w->used[w->terms.at[k]] && node->op == IR_tile_matmul; o++)
            limit_rows(p, node, o, w);
    }
}

/* By atom, the largest share of it that a loop of the kernel visits. */
static void find_visited(arena *a, const ir_program *p, work *w)
{
    memset(w->share, 0, (size_t)p->atoms.n * sizeof *w->share);
    for (i64 k = 0; k < w->terms.n; k++) {
        u32 t = w->terms.at[k];
        const ir_node *node = &p->nodes.at[t];
        u32 loop = node->op == IR_get ? node->args[0].i : t; /* loops are found where results are taken */
        if (!w->used[t] || !is_loop(&p->nodes.at[loop]))
            continue;
        ir_atoms par = p->nodes.at[loop].attr.par;
        f64 part = p->nodes.at[loop].op == IR_loop ? visited_by(a, p, loop) : 1;
        for (i64 i = 0; i < par.n; i++)
            w->share[par.at[i].i] = MAX(w->share[par.at[i].i], part);
    }
    for (u32 d = 1; d < (u32)p->atoms.n; d++) { /* whole tiles are */
        f64 tile = (f64)w->lanes[d] / (f64)MAX(ir_extent(p, (ir_atom){d}), 1);
        w->share[d] = w->share[d] > 0 ? MIN(w->share[d] + tile, 1) : 1;
    }
}

/* Is the value computed before the result's tiles along d are gone through? They are, one after another,
 * where a loop of the kernel runs over d too; then what lacks d comes first, unless what it is accumulated
 * for has it, or it varies with another such axis, which may be the outer one. */
static bool comes_first(const ir_node *node, ir_atoms par, ir_atom d, u32 t, const work *w)
{
    if (!w->looped[d.i] || !bit_of(d) || (w->inside[t] & bit_of(d)))
        return false;
    for (i64 i = 0; i < par.n; i++) {
        ir_atom other = par.at[i];
        if (other.i != d.i && w->looped[other.i] && ir_has(node->axes, other) &&
            !(w->bound[t] & bit_of(other)))
            return false;
    }
    return true;
}

/* Times that a value is computed over in a kernel whose result has the axes `par`: for each tile along those
 * that it lacks, or has as axes of loops around it, which are then not the result's. */
static f64 repeats(const ir_program *p, u32 t, ir_atoms par, const work *w)
{
    const ir_node *node = &p->nodes.at[t];
    f64 n = 1;
    if (node->is_open) /* in a step of some loop, for the rows that it names */
        return STEPS;
    for (i64 i = 0; i < par.n; i++) {
        ir_atom d = par.at[i];
        bool lacks = !ir_has(node->axes, d) || (w->bound[t] & bit_of(d));
        if (lacks && !comes_first(node, par, d, t, w))
            n *= (f64)((ir_extent(p, d) + w->lanes[d.i] - 1) / w->lanes[d.i]);
    }
    return n;
}

/* Bytes that the kernel reads of what lies in memory: of axes that loops leave tiles out of, the rest. */
static f64 read_by(const ir_program *p, u32 t, ir_atoms par, const work *w)
{
    f64 bytes = traffic(p, t, w->lies);
    ir_atoms dims = p->nodes.at[t].dims;
    for (i64 i = 0; i < dims.n; i++)
        if ((w->bound[t] & bit_of(dims.at[i])) && !ir_has(par, dims.at[i]))
            bytes *= w->share[dims.at[i].i];
    return bytes;
}

static kernel cost_of(arena *a, const ir_program *p, u32 root, ir_atoms par, work *w)
{
    kernel k = {.parts = 1};
    list_terms(a, p, root, w);
    count_passes(p, root, w);
    find_lanes(p, w);
    find_visited(a, p, w);
    for (i64 at = 0; at < w->terms.n; at++) {
        u32 t = w->terms.at[at];
        const ir_node *node = &p->nodes.at[t];
        if (!w->used[t])
            continue;
        if (ends_at(p, t, root)) {
            k.bytes += read_by(p, t, par, w);
            continue;
        }
        if (node->op == IR_comb)
            continue;
        f64 times = repeats(p, t, par, w) * (f64)w->times[t];
        for (i64 i = 0; i < node->axes.n; i++)
            times *= ir_has(par, node->axes.at[i]) ? 1 : w->share[node->axes.at[i].i];
        k.flops += ex_weight((ir_op)node->op) * (f64)ir_node_flops(p, (ir_term){t}) * times;
        for (i64 i = 0; i < node->arg_count && node->op == IR_tile_matmul; i++) {
            const ir_node *x = ir_get(p, node->args[i]);
            if (x->op != IR_view)
                k.flops += MOVED * elements(p, x->dims, x->axes) * times;
        }
    }
    for (i64 i = 0; i < par.n; i++) {
        i64 d = par.at[i].i, tile = w->lanes[d] >= WIDE ? w->lanes[d] : 1;
        k.parts *= w->looped[d] ? 1 : (f64)((ir_extent(p, par.at[i]) + tile - 1) / tile);
    }
    return k;
}

/* ---- which kernel it is ----------------------------------------------------------------------- */

static int compare_digests(const void *x, const void *y)
{
    u64 a = *(const u64 *)x, b = *(const u64 *)y;
    return a < b ? -1 : a > b;
}

static u64 hash_atoms(ir_atoms x, u64 seed)
{
    return hash_bytes(x.at, x.n * (i64)sizeof *x.at, seed);
}

/* For each term what computes it from what is in memory; of that its type alone. */
static u64 *digests(arena *a, const ir_program *p, const u8 *lies)
{
    u64 *at = NEW_N(a, u64, p->nodes.n);
    for (i64 t = 1; t < p->nodes.n; t++) {
        const ir_node *node = &p->nodes.at[t];
        const ir_op_row *row = ir_row((ir_op)node->op);
        u64 *kids = NEW_N(a, u64, node->arg_count);
        for (i64 i = 0; i < node->arg_count; i++) {
            const ir_node *x = ir_get(p, node->args[i]);
            bool is_read = is_in_memory(x) && ir_row((ir_op)x->op)->class_ != IR_INDEX;
            kids[i] = is_read ? hash_atoms(x->dims, lies[node->args[i].i]) : at[node->args[i].i];
        }
        if (node->arg_count > 1 && ((row->flags & IR_COMM) || node->op == IR_loop))
            qsort(kids, (size_t)node->arg_count, sizeof *kids, compare_digests);
        u64 own = node->op == IR_in ? node->dtype : ir_hash_attr((ir_op)node->op, &node->attr);
        at[t] = hash_bytes(kids, node->arg_count * (i64)sizeof *kids,
                           hash_atoms(node->axes, hash_atoms(node->dims, own)));
    }
    return at;
}

static int compare_kernels(const void *x, const void *y)
{
    const ex_kernel *a = x, *b = y;
    return a->digest != b->digest ? (a->digest < b->digest ? -1 : 1) : a->us < b->us ? -1 : a->us > b->us;
}

/* A loop's reducers, in one order; it has its components as a set. */
static const char *name_loop(arena *a, const ir_program *p, const ir_node *loop)
{
    arena *scratch = arena_child(a);
    const char **names = NEW_N(scratch, const char *, loop->arg_count);
    bool rolled = false;
    for (i64 i = 0; i < loop->arg_count; i++) {
        const ir_node *c = ir_get(p, loop->args[i]);
        const char *name = c->attr.reducer ? ir_reducer_text(c->attr.reducer) : "state";
        rolled |= c->arg_count > 1;
        i64 k = i;
        for (; k > 0 && strcmp(names[k - 1], name) < 0; k--)
            names[k] = names[k - 1];
        names[k] = name;
    }
    str s = str_new(a);
    str_add(&s, rolled ? "rolling(" : "(");
    for (i64 i = 0; i < loop->arg_count; i++)
        str_printf(&s, "%s%s", i > 0 ? "," : "", names[i]);
    str_add(&s, ")");
    arena_free(scratch);
    return str_text(&s);
}

static void name_reductions(arena *a, const ir_program *p, ex_candidate *out)
{
    VEC(ex_reduction) all = {0};
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool is_loop = node->op == IR_loop, is_par = node->op == IR_reduce && node->attr.par.n > 0;
        if (!is_loop && !is_par)
            continue;
        str over = str_new(a);
        str_add(&over, "");
        for (i64 i = 0; i < node->attr.par.n; i++)
            str_printf(&over, "%s%s", i > 0 ? " " : "", ir_atom_name(p, node->attr.par.at[i]));
        vec_push(a, &all,
                 ((ex_reduction){is_loop ? name_loop(a, p, node)
                                         : ir_reducer_text(node->attr.reducer),
                                 str_text(&over)}));
    }
    out->reductions = all.at;
    out->reduction_count = all.n;
    for (u32 k = 1; k < (u32)p->nodes.n; k++)
        out->rolls |= p->nodes.at[k].op == IR_comp && p->nodes.at[k].arg_count > 1;
}

void ex_model(arena *a, const ir_program *p, const ex_rates *given, bool parameters_are_inputs,
              ex_candidate *out)
{
    ex_rates rates = {given->flops > 0 ? given->flops : 1e11, given->bytes > 0 ? given->bytes : 2e10,
                      given->launch_s > 0 ? given->launch_s : 2e-6, MAX(given->threads, 1)};
    arena *scratch = arena_child(a);
    bool *is_root = NEW_N(scratch, bool, p->nodes.n), *live = NEW_N(scratch, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++) {
        is_root[p->outputs.at[i].term.i] = true;
        live[p->outputs.at[i].term.i] = true;
    }
    live[0] = is_root[0] = false;
    bool *constant = ir_constant_terms(scratch, p, !parameters_are_inputs);
    const u8 *lies = ir_memory_dtypes(scratch, p);
    const u64 *digest = digests(scratch, p, lies);
    VEC(ex_kernel) kernels = {0};
    i64 n = p->nodes.n;
    work w = {.used = NEW_N(scratch, u64, n), .below = NEW_N(scratch, u8, n),
              .times = NEW_N(scratch, i64, n), .bound = NEW_N(scratch, u64, n),
              .inside = NEW_N(scratch, u64, n), .is_listed = NEW_N(scratch, bool, n),
              .looped = NEW_N(scratch, bool, p->atoms.n), .lanes = NEW_N(scratch, i64, p->atoms.n),
              .share = NEW_N(scratch, f64, p->atoms.n), .lies = lies};
    f64 seconds = 0;
    for (u32 k = (u32)p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!live[k])
            continue;
        for (i64 i = 0; i < node->arg_count; i++)
            live[node->args[i].i] = true;
        bool whole = is_in_memory(node) && node->op != IR_in && node->op != IR_const &&
                     node->op != IR_iota && ir_row((ir_op)node->op)->class_ != IR_INDEX &&
                     !is_reading(p, node, k, lies);
        bool combined = node->op == IR_comb;
        bool is_result = is_root[k] && !is_reading(p, node, k, lies);
        if ((!whole && !combined && !is_result) || constant[k] || node->op == IR_in)
            continue;
        u32 root = combined ? node->args[0].i : k;
        kernel c = cost_of(scratch, p, root, node->attr.par, &w);
        c.bytes += traffic(p, k, lies);
        out->flops += c.flops;
        out->bytes += c.bytes;
        /* threads without a part do nothing; memory is kept busy by fewer than all */
        f64 idle = MAX(rates.threads / c.parts, 1);
        f64 computes = c.flops / rates.flops * idle;
        f64 moves = c.bytes / rates.bytes * (1 + (idle - 1) / 2);
        f64 own = MAX(computes, moves) + OVERLAP * MIN(computes, moves) + rates.launch_s;
        vec_push(a, &kernels, ((ex_kernel){digest[k], 1e6 * own}));
        seconds += own;
    }
    if (kernels.n)
        qsort(kernels.at, (size_t)kernels.n, sizeof *kernels.at, compare_kernels);
    out->kernel = kernels.at;
    out->kernels = kernels.n;
    out->bound_us = 1e6 * seconds;
    name_reductions(a, p, out);
    arena_free(scratch);
}
