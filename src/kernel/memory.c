/* Where buffers lie: scratch by lifetime, constants one after another.
 *
 * Scratch that `prepare` writes and the run reads is a weight. The rest is placed largest first,
 * each at the tightest gap among the buffers that are alive at the same time (best fit), aligned to
 * 64 bytes. Lifetimes go from the first launch that names a buffer to the last. */
#include "kernel/lower.h"

typedef struct life {
    i64 first, last; /* launches, `prepare` before the run; first > last: unused */
} life;

static void touch(kn_lower *l, life *of, const rt_launch *at, i64 n, i64 from)
{
    (void)l;
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < at[i].arg_count; j++) {
            life *f = &of[at[i].args[j].buffer];
            f->first = MIN(f->first, from + i);
            f->last = MAX(f->last, from + i);
        }
}

static i64 round_up(i64 bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Lowest end of the tightest gap that holds `bytes` beside the buffers placed[0..n), which are
 * sorted by offset. */
static i64 best_fit(const rt_plan *plan, const life *lives, const i32 *placed, i64 n, i32 b)
{
    i64 bytes = round_up(plan->buffers.at[b].bytes), end = 0, best = -1, gap = INT64_MAX;
    for (i64 i = 0; i < n; i++) {
        const life *f = &lives[placed[i]], *g = &lives[b];
        if (f->last < g->first || g->last < f->first)
            continue;
        const rt_buffer *o = &plan->buffers.at[placed[i]];
        i64 room = o->offset - end;
        if (room >= bytes && room < gap) {
            best = end;
            gap = room;
        }
        end = MAX(end, o->offset + round_up(o->bytes));
    }
    return best >= 0 ? best : end;
}

void kn_plan_memory(kn_lower *l)
{
    rt_plan *plan = l->plan;
    i64 n = plan->buffers.n, count = 0;
    life *lives = NEW_N(l->a, life, n);
    for (i64 i = 0; i < n; i++)
        lives[i] = (life){INT64_MAX, -1};
    touch(l, lives, plan->prepare.at, plan->prepare.n, 0);
    touch(l, lives, plan->launches.at, plan->launches.n, plan->prepare.n);

    i32 *order = NEW_N(l->a, i32, n), *placed = NEW_N(l->a, i32, n);
    for (i32 b = 0; b < (i32)n; b++) {
        rt_buffer *x = &plan->buffers.at[b];
        bool crosses = lives[b].first < plan->prepare.n && lives[b].last >= plan->prepare.n;
        if (x->role == RT_SCRATCH && crosses)
            x->role = RT_WEIGHT;
        if (x->role == RT_WEIGHT || x->role == RT_STATE) {
            x->offset = plan->weights_bytes;
            plan->weights_bytes += round_up(x->bytes);
        }
        if (x->role != RT_SCRATCH || lives[b].last < 0)
            continue;
        i64 place = count++;
        for (; place > 0 && plan->buffers.at[order[place - 1]].bytes < x->bytes; place--)
            order[place] = order[place - 1];
        order[place] = b;
    }
    for (i64 i = 0; i < count; i++) {
        rt_buffer *x = &plan->buffers.at[order[i]];
        x->offset = best_fit(plan, lives, placed, i, order[i]);
        plan->arena_bytes = MAX(plan->arena_bytes, x->offset + round_up(x->bytes));
        i64 place = i;
        for (; place > 0 && plan->buffers.at[placed[place - 1]].offset > x->offset; place--)
            placed[place] = placed[place - 1];
        placed[place] = order[i];
    }
}
