/* Structures, what is stored in each, and a list of the cheapest that are unlike one another.
 *
 * Where there are few structures each is priced, with everything stored that may be, and where that is
 * little with nothing stored; a large program in one kernel computes too much over and over. For the best
 * of them sets of stored tiles are tried: all where they are few; else downhill, one tile more or less at a
 * time, from both ends. Where there are many, those near the best are looked for (near.c).
 *
 * The model is rough, and forms of which most kernels are the same teach little when they are measured:
 * the list goes from the cheapest to the cheapest of those that are left, each dearer by its time in
 * kernels that an earlier one has, too. Those that have the same kernels are one. */
#include <math.h>
#include <stdlib.h>

#include "extract/impl.h"

enum { FEW = 5, LOOKED_INTO = 32, DESCENDED = 6, POOL = 8, STARTS = 64 };
#define ALIKE 0.15 /* dearer for one that is like it throughout */

typedef struct priced {
    i64 structure;
    const ex_structure *at;
    f64 bound_us;
} priced;

void ex_turn_to_chosen(ex_ranking *q)
{
    q->kept = NULL;
    q->identity = hash_bytes(q->chosen, q->s->r->n * (i64)sizeof *q->chosen, 0);
    if (q->options->mode == EX_NONE) /* whatever is found twice is there twice */
        q->identity = hash_bytes(&q->tried, sizeof q->tried, q->identity);
    q->n = ex_storable(q->s, q->chosen, q->places, EX_STORABLE);
}

/* Puts it in; false when it was there. */
static bool is_new(ex_ranking *q, u32 set)
{
    if (2 * q->seen_count >= q->seen_capacity) {
        i64 capacity = MAX(2 * q->seen_capacity, 256);
        u64 *more = NEW_N(q->a, u64, capacity);
        for (i64 i = 0; i < q->seen_capacity; i++) {
            u64 at = q->seen[i];
            for (; q->seen[i] && more[at & (u64)(capacity - 1)]; at++)
                ;
            if (q->seen[i])
                more[at & (u64)(capacity - 1)] = q->seen[i];
        }
        q->seen = more;
        q->seen_capacity = capacity;
    }
    u64 key = hash_bytes(&set, sizeof set, q->identity) | 1;
    for (u64 at = key;; at++) {
        u64 *slot = &q->seen[at & (u64)(q->seen_capacity - 1)];
        if (*slot == key)
            return false;
        if (*slot)
            continue;
        *slot = key;
        q->seen_count++;
        return true;
    }
}

bool ex_turn_to(ex_ranking *q, const ex_structure *x)
{
    bool found = ex_choose(q->s, x, q->chosen);
    q->n = 0;
    if (found)
        ex_turn_to_chosen(q);
    return found;
}

/* With its program, in `own`. */
static ex_candidate candidate_of(const ex_ranking *q, arena *own, u32 set)
{
    i64 stored[EX_STORABLE], n = 0;
    for (i64 i = 0; i < q->n; i++)
        if (set >> i & 1)
            stored[n++] = q->places[i];
    ex_candidate c = {.program = ex_write(q->s, own, q->chosen, stored, n)};
    ex_model(own, c.program, &q->options->rates, q->s->g->options.parameters_are_inputs, &c);
    return c;
}

f64 ex_price(ex_ranking *q, u32 set)
{
    arena *own = arena_child(q->a);
    f64 bound_us = candidate_of(q, own, set).bound_us;
    arena_free(own);
    q->tried++;
    return bound_us;
}

static bool has_same_kernels(const ex_candidate *x, const ex_candidate *y)
{
    bool same = x->kernels == y->kernels;
    for (i64 i = 0; i < x->kernels && same; i++)
        same = x->kernel[i].digest == y->kernel[i].digest && x->kernel[i].us == y->kernel[i].us;
    return same;
}

static void note_least(ex_ranking *q, const ex_candidate *c)
{
    i64 at = 0;
    for (; at < q->least.n; at++) {
        ex_least *x = &q->least.at[at];
        if (x->kernels > c->kernels || (x->kernels == c->kernels && x->rolls > c->rolls))
            break;
        if (x->kernels == c->kernels && x->rolls == c->rolls) {
            x->bound_us = MIN(x->bound_us, c->bound_us);
            return;
        }
    }
    ex_least x = {c->kernels, c->rolls, c->bound_us};
    vec_push(q->a, &q->least, x);
    for (i64 i = q->least.n - 1; i > at; i--)
        q->least.at[i] = q->least.at[i - 1];
    q->least.at[at] = x;
}

f64 ex_consider(ex_ranking *q, u32 set)
{
    arena *own = arena_child(q->a);
    ex_candidate c = candidate_of(q, own, set);
    note_least(q, &c);
    bool is_known = !is_new(q, set);
    i64 at = q->best.n;
    while (at > 0 && c.bound_us < q->best.at[at - 1].cost.bound_us)
        at--;
    q->tried++;
    q->distinct += !is_known;
    for (i64 i = at; i > 0 && q->options->mode != EX_NONE && q->best.at[i - 1].cost.bound_us == c.bound_us;
         i--)
        is_known |= has_same_kernels(&q->best.at[i - 1].cost, &c);
    if (!is_known && at < q->most) {
        if (!q->kept)
            q->kept = arena_copy(q->a, q->chosen, q->s->r->n * (i64)sizeof *q->chosen);
        ex_ranked kept = {q->kept, set, {.kernels = c.kernels, .bound_us = c.bound_us}};
        kept.cost.kernel = arena_copy(q->a, c.kernel, c.kernels * (i64)sizeof *c.kernel);
        vec_push(q->a, &q->best, kept);
        for (i64 i = q->best.n - 1; i > at; i--)
            q->best.at[i] = q->best.at[i - 1];
        q->best.at[at] = kept;
        q->best.n = MIN(q->best.n, q->most);
    }
    arena_free(own);
    return c.bound_us;
}

/* Of the time of x, how much is in kernels that y has. */
static f64 likeness(const ex_candidate *x, const ex_candidate *y)
{
    f64 same = 0;
    for (i64 i = 0, k = 0; i < x->kernels; i++) {
        while (k < y->kernels && y->kernel[k].digest < x->kernel[i].digest)
            k++;
        if (k < y->kernels && y->kernel[k].digest == x->kernel[i].digest) {
            same += x->kernel[i].us;
            k++;
        }
    }
    return same / MAX(x->bound_us, 1e-9);
}

/* The list, `most` of it, in `a`. */
static void spread(ex_ranking *q, arena *a, i64 most, ex_report *report)
{
    i64 n = q->best.n;
    f64 *price = NEW_N(q->a, f64, n);
    report->at = NEW_N(a, ex_candidate, MIN(n, most));
    for (i64 i = 0; i < n; i++)
        price[i] = q->best.at[i].cost.bound_us;
    while (report->n < MIN(n, most)) {
        i64 next = 0;
        for (i64 i = 1; i < n; i++)
            if (price[i] >= 0 && (price[next] < 0 || price[i] < price[next]))
                next = i;
        const ex_ranked *c = &q->best.at[next];
        price[next] = -1;
        for (i64 i = 0; i < n; i++) {
            f64 alike = price[i] >= 0 ? likeness(&q->best.at[i].cost, &c->cost) : 0;
            price[i] *= 1 + ALIKE * alike * alike;
        }
        memcpy(q->chosen, c->chosen, (size_t)q->s->r->n * sizeof *q->chosen);
        ex_turn_to_chosen(q);
        report->at[report->n] = candidate_of(q, a, c->stored);
        ir_verify(report->at[report->n++].program, "extraction");
    }
}

f64 ex_descend(ex_ranking *q, u32 *set, i64 end)
{
    f64 best = ex_consider(q, *set), gain[EX_STORABLE];
    u32 fresh = 0; /* gains of the present set; the others are of a set before */
    for (i64 i = 0; i < q->n; i++)
        gain[i] = (f64)INFINITY;
    while (q->tried < end && !ex_is_over(q->s)) {
        i64 most = -1;
        for (i64 i = 0; i < q->n; i++)
            if (most < 0 || gain[i] > gain[most])
                most = i;
        if (most >= 0 && !(gain[most] > 0)) /* none pays, as far as is known */
            for (i64 i = 0; i < q->n; i++)
                if (!(fresh >> i & 1))
                    most = i;
        if (most < 0 || (fresh >> most & 1 && !(gain[most] > 0)))
            break;
        if (!(fresh >> most & 1)) {
            gain[most] = best - ex_consider(q, *set ^ 1u << most);
            fresh |= 1u << most;
            continue;
        }
        *set ^= 1u << most;
        best -= gain[most];
        gain[most] = -gain[most];
        fresh = 1u << most;
    }
    return best;
}

/* Forms of the present structure, the i-th best. */
static void store(ex_ranking *q, i64 i)
{
    u32 all = (1u << q->n) - 1;
    if (q->n <= FEW && !ex_is_over(q->s)) {
        for (u32 set = 0; set <= all; set++)
            ex_consider(q, set);
        return;
    }
    q->is_exhaustive = false;
    if (i < DESCENDED) {
        u32 from_all = all, from_none = 0;
        ex_descend(q, &from_all, INT64_MAX);
        ex_descend(q, &from_none, INT64_MAX);
    } else {
        ex_consider(q, all);
        ex_consider(q, 0);
    }
}

static int compare(const void *x, const void *y)
{
    const priced *a = x, *b = y;
    if (a->bound_us != b->bound_us)
        return a->bound_us < b->bound_us ? -1 : 1;
    int way = memcmp(a->at, b->at, sizeof *a->at); /* whatever the order in which they were found */
    return way ? way : a->structure < b->structure ? -1 : a->structure > b->structure;
}

/* Those that can be computed. Some, also when time is over. */
static void keep_computable(ex_space *s, ex_structures *all, eqf_node *chosen)
{
    i64 n = 0;
    for (i64 i = 0; i < all->n && (i < LOOKED_INTO || !ex_is_over(s)); i++)
        if (ex_choose(s, &all->at[i], chosen))
            all->at[n++] = all->at[i];
    all->n = n;
}

/* Cheapest first, priced with everything stored or, where that is little, nothing; those of many are
 * candidates so. Some also when time is over. */
static void sort_structures(ex_ranking *q, ex_structures *all)
{
    bool is_many = all->n > LOOKED_INTO && q->options->mode != EX_NONE;
    f64 (*price)(ex_ranking *, u32) = is_many ? ex_consider : ex_price;
    arena *scratch = arena_child(q->s->a);
    VEC(priced) order = {0};
    for (i64 i = 0; i < all->n && (i < LOOKED_INTO || !ex_is_over(q->s)); i++) {
        ex_turn_to(q, &all->at[i]);
        f64 bound_us = price(q, (1u << q->n) - 1);
        if (q->n > 0 && q->n <= FEW)
            bound_us = MIN(bound_us, price(q, 0));
        vec_push(scratch, &order, ((priced){i, &all->at[i], bound_us}));
    }
    if (order.n)
        qsort(order.at, (size_t)order.n, sizeof *order.at, compare);
    ex_structure *sorted = NEW_N(scratch, ex_structure, order.n);
    for (i64 i = 0; i < order.n; i++)
        sorted[i] = *order.at[i].at;
    for (i64 i = 0; i < order.n; i++)
        all->at[i] = sorted[i];
    all->n = order.n;
    arena_free(scratch);
}

/* Some of them, evenly from all. */
static void thin_out(ex_structures *all, i64 most)
{
    for (i64 i = 0; i < most && all->n > most; i++)
        all->at[i] = all->at[i * all->n / most];
    all->n = MIN(all->n, most);
}

/* Structures; are there no others? */
static bool search_structures(ex_ranking *q, ex_counts *counts, ex_report *report)
{
    ex_space *s = q->s;
    const ex_options *options = q->options;
    ex_structures all = {0};
    i64 most_sets = options->mode == EX_EARLY ? 1024 : 65536;
    ex_enumerate(s, options->mode, options->most_sets > 0 ? options->most_sets : most_sets, &all,
                 counts);
    keep_computable(s, &all, q->chosen);
    if (options->mode != EX_NONE)
        ex_compact(s, &all);
    report->sets = all.n;
    bool is_few = !s->is_cut_short && all.n <= LOOKED_INTO;
    bool is_all = is_few || (!s->is_cut_short && options->mode != EX_NONE);
    q->is_exhaustive = is_few;
    if (s->is_cut_short)
        thin_out(&all, STARTS);
    sort_structures(q, &all);
    if (is_few || s->is_over) {
        for (i64 i = 0; i < MIN(all.n, LOOKED_INTO); i++) {
            ex_turn_to(q, &all.at[i]);
            store(q, i);
        }
    } else {
        report->sets += ex_look_near(q, &all);
    }
    return is_all;
}

ex_report ex_search(arena *a, rl_graph *g, const ex_options *options)
{
    ex_report report = {0};
    arena *scratch = arena_child(a);
    ex_space *s = ex_space_new(scratch, g, options);
    ex_counts counts = {0};
    i64 most = options->most > 0 ? options->most : 64;
    ex_ranking q = {.a = scratch, .s = s, .options = options, .most = POOL * most,
                    .chosen = NEW_N(scratch, eqf_node, s->r->n)};
    bool is_all;
    if (options->order == EX_PAPER)
        s->is_cut_short |= !(is_all = ex_select(&q, options->mode, &counts, &report.sets));
    else
        is_all = search_structures(&q, &counts, &report);
    spread(&q, a, most, &report);
    report.expanded = counts.expanded;
    report.pruned = counts.pruned;
    report.distinct = q.distinct;
    report.least = arena_copy(a, q.least.at, q.least.n * (i64)sizeof *q.least.at);
    report.least_count = q.least.n;
    report.tried = q.tried;
    report.is_cut_short = s->is_cut_short || s->is_over;
    report.complete = is_all && !s->is_over;
    report.is_exhaustive = report.complete && q.is_exhaustive;
    arena_free(scratch);
    return report;
}
