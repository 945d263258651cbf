/* Parts of several partitions as one: wherever they end at the same place, what follows may come from
 * any. Parts are stretches of one order, so any chain of them is a partition, and the cheapest is found
 * place by place. */
#include "partition/partition.h"

i64 pt_mix(arena *a, const pt_partition *cuts, i64 n, const f64 *const *costs, i64 *ends)
{
    arena *scratch = arena_child(a);
    const pt_partition *first = &cuts[0];
    i64 last = first->use_count ? first->uses[first->use_count - 1].to : 0;
    f64 *best = NEW_N(scratch, f64, last + 1);
    i64 *from = NEW_N(scratch, i64, last + 1), *next = NEW_N(scratch, i64, n);
    for (i64 to = 0; to <= last; to++)
        from[to] = -1; /* none ends here */
    for (i64 to = 1; to <= last; to++)
        for (i64 k = 0; k < n; k++) {
            if (next[k] == cuts[k].use_count || cuts[k].uses[next[k]].to != to)
                continue;
            const pt_use *use = &cuts[k].uses[next[k]++];
            f64 cost = best[use->from] + costs[k][use->part];
            if (from[to] >= 0 && best[to] <= cost)
                continue;
            best[to] = cost;
            from[to] = use->from;
        }
    i64 count = 0;
    for (i64 to = last; to > 0; to = from[to])
        count++;
    for (i64 to = last, i = count; to > 0; to = from[to])
        ends[--i] = to;
    arena_free(scratch);
    return count;
}
