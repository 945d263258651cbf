/* Long dims done part by part: few results that are combined from much leave threads idle, unless each
 * combines a part. Which dim, and into how many parts, is decided here by extents; what follows is
 * found by the rules in an e-graph of its own, whose candidates compete with the others. */
#include "driver/driver.h"

enum { LONG = 1024, SHORTEST = 256, MOST_PARTS = 4, TILE = 64, LEAST = 1 << 18 };
#define WORTH 0.2 /* of all the work, what waits for one thread */

/* Positions of a part of a long dim: of equal ones, as many as threads or up to MOST_PARTS times that;
 * else of as many as threads, in whole tiles, the last part short. 0: there are none. */
static i64 part_of(i64 extent, i64 threads)
{
    i64 least = MAX(threads, 2);
    for (i64 n = least; n <= MOST_PARTS * threads && extent / n >= SHORTEST; n++)
        if (extent % n == 0)
            return extent / n;
    i64 part = (extent / least + TILE) / TILE * TILE;
    return part >= SHORTEST && part < extent ? part : 0;
}

/* The tiles of a term's value, which threads can share. */
static f64 tiles_of(const ir_program *p, const ir_node *node)
{
    f64 n = 1;
    for (i64 i = 0; i < node->dims.n; i++) {
        i64 extent = ir_extent(p, node->dims.at[i]);
        bool of_all = true; /* a dim of both operands of a product is cut finely */
        for (i64 k = 0; k < node->arg_count; k++)
            of_all = of_all && ir_has(ir_get(p, node->args[k])->dims, node->dims.at[i]);
        n *= of_all && node->op == IR_matmul ? (f64)extent : (f64)((extent + TILE - 1) / TILE);
    }
    return n;
}

/* The long dim over which most is combined into results too small for all threads, where that is a
 * good part of the program. */
driver_split driver_find_split(arena *a, const ir_program *p, i64 threads)
{
    f64 *work = NEW_N(a, f64, p->atoms.n), all = 0;
    for (u32 k = 1; k < (u32)p->nodes.n && p->splits.n == 0; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool combines = node->op == IR_matmul || node->op == IR_reduce;
        f64 own = 0;
        for (i64 i = 0; combines && i < node->arg_count; i++)
            own += (f64)ir_count_elements(p, ir_get(p, node->args[i])->dims);
        all += own;
        for (i64 i = 0; combines && i < node->attr.axis.n; i++)
            if (tiles_of(p, node) < (f64)threads)
                work[node->attr.axis.at[i].i] += own;
    }
    driver_split best = {0};
    for (u32 d = 1; d < (u32)p->atoms.n; d++) {
        ir_atom atom = {d};
        i64 part = ir_extent(p, atom) >= LONG ? part_of(ir_extent(p, atom), threads) : 0;
        if (part > 0 && work[d] > MAX(WORTH * all, LEAST) && work[d] > work[best.atom.i])
            best = (driver_split){atom, part};
    }
    return best;
}

driver_split driver_split_of(const ir_program *p, const ir_program *form)
{
    driver_split x = {0};
    for (i64 i = p->splits.n; i < form->splits.n; i++)
        for (u32 d = 1; d < (u32)p->atoms.n; d++) {
            ir_split s = form->splits.at[i];
            if (strcmp(ir_atom_name(p, (ir_atom){d}), ir_atom_name(form, s.whole)) == 0)
                x = (driver_split){{d}, ir_extent(form, s.inner)};
        }
    return x;
}

ex_report driver_merge(arena *a, ex_report x, ex_report y)
{
    ex_candidate *all = NEW_N(a, ex_candidate, x.n + y.n + 1);
    i64 n = 0;
    for (i64 i = 0, k = 0; i < x.n || k < y.n;)
        all[n++] = k >= y.n || (i < x.n && x.at[i].bound_us <= y.at[k].bound_us) ? x.at[i++]
                                                                                 : y.at[k++];
    x.at = all;
    x.n = n;
    x.expanded += y.expanded;
    x.pruned += y.pruned;
    x.sets += y.sets;
    x.distinct += y.distinct;
    x.tried += y.tried;
    x.is_cut_short |= y.is_cut_short;
    x.complete &= y.complete;
    x.is_exhaustive &= y.is_exhaustive;
    return x;
}
