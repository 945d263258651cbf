/* Structures, what is stored in each, and a list of the cheapest.
 *
 * Every structure is priced twice: with nothing stored, and with everything stored that may be. For
 * the best of them sets of stored tiles are tried: all where they are few; else downhill, one tile
 * more or less at a time, from both ends. Forms of one structure are much alike, and the model is rough:
 * the list goes from the cheapest to the cheapest of those that are left, each dearer by some percent
 * for every form of its structure before it. */
#include <stdlib.h>

#include "extract/impl.h"

enum { STORABLE = 32, FEW = 5, LOOKED_INTO = 32, DESCENDED = 6, POOL = 8 };
#define ALIKE 1.04 /* dearer for each that is like it */

typedef struct ranking {
    arena *a;
    const ex_options *options;
    i64 most, tried;
    i64 structure;          /* the present one */
    VEC(ex_candidate) best; /* cheapest first */
    VEC(i64) of;            /* its structure */
} ranking;

typedef struct priced {
    i64 structure;
    f64 bound_us;
} priced;

static ex_candidate priced_candidate(ranking *q, arena *own, const ex_space *s,
                                     const eqf_node *chosen, const i64 *stored, i64 n)
{
    ex_candidate c = {.program = ex_write(s, own, chosen, stored, n)};
    ex_model(own, c.program, &q->options->rates, &c);
    q->tried++;
    return c;
}

static f64 price(ranking *q, const ex_space *s, const eqf_node *chosen, const i64 *stored, i64 n)
{
    arena *own = arena_child(q->a);
    f64 bound_us = priced_candidate(q, own, s, chosen, stored, n).bound_us;
    arena_free(own);
    return bound_us;
}

/* Its price; into the list where it belongs there. */
static f64 consider(ranking *q, const ex_space *s, const eqf_node *chosen, const i64 *stored,
                    i64 n)
{
    arena *own = arena_child(q->a);
    ex_candidate c = priced_candidate(q, own, s, chosen, stored, n);
    i64 at = q->best.n;
    while (at > 0 && c.bound_us < q->best.at[at - 1].bound_us)
        at--;
    if (at >= q->most) {
        arena_free(own);
        return c.bound_us;
    }
    vec_push(q->a, &q->best, c);
    vec_push(q->a, &q->of, q->structure);
    for (i64 i = q->best.n - 1; i > at; i--) {
        q->best.at[i] = q->best.at[i - 1];
        q->of.at[i] = q->of.at[i - 1];
    }
    q->best.at[at] = c;
    q->of.at[at] = q->structure;
    q->best.n = q->of.n = MIN(q->best.n, q->most);
    return c.bound_us;
}

/* The list, `most` of it. */
static void spread(ranking *q, i64 most, ex_report *report)
{
    i64 n = q->best.n;
    f64 *price = NEW_N(q->a, f64, n);
    report->at = NEW_N(q->a, ex_candidate, MIN(n, most));
    for (i64 i = 0; i < n; i++)
        price[i] = q->best.at[i].bound_us;
    while (report->n < MIN(n, most)) {
        i64 next = -1;
        for (i64 i = 0; i < n; i++)
            if (price[i] >= 0 && (next < 0 || price[i] < price[next]))
                next = i;
        report->at[report->n++] = q->best.at[next];
        price[next] = -1;
        for (i64 i = 0; i < n; i++)
            if (q->of.at[i] == q->of.at[next])
                price[i] *= ALIKE;
    }
}

static i64 members(u32 set, const i64 *places, i64 n, i64 *out)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++)
        if (set >> i & 1)
            out[count++] = places[i];
    return count;
}

/* All subsets. */
static void store_any(ranking *q, const ex_space *s, const eqf_node *chosen, const i64 *places,
                      i64 n)
{
    i64 stored[STORABLE];
    for (u32 set = 0; set < 1u << n; set++)
        consider(q, s, chosen, stored, members(set, places, n, stored));
}

/* The best change of one tile, as long as it pays. */
static void descend(ranking *q, ex_space *s, const eqf_node *chosen, const i64 *places,
                    i64 n, u32 set)
{
    i64 stored[STORABLE];
    f64 best = consider(q, s, chosen, stored, members(set, places, n, stored));
    for (bool more = true; more && !ex_is_over(s);) {
        u32 next = set;
        more = false;
        for (i64 i = 0; i < n; i++) {
            u32 other = set ^ 1u << i;
            f64 bound = price(q, s, chosen, stored, members(other, places, n, stored));
            if (bound < best) {
                best = bound;
                next = other;
                more = true;
            }
        }
        if (more)
            consider(q, s, chosen, stored, members(next, places, n, stored));
        set = next;
    }
}

static int compare(const void *x, const void *y)
{
    const priced *a = x, *b = y;
    if (a->bound_us != b->bound_us)
        return a->bound_us < b->bound_us ? -1 : 1;
    return a->structure < b->structure ? -1 : a->structure > b->structure;
}

ex_report ex_search(arena *a, rl_graph *g, const ex_options *options)
{
    ex_report report = {0};
    arena *scratch = arena_child(a);
    ex_space *s = ex_space_new(scratch, g, options);
    ex_structures all = {0};
    ex_enumerate(s, options->most_sets > 0 ? options->most_sets : 1024, &all, &report.expanded);
    i64 most = options->most > 0 ? options->most : 64;
    ranking q = {.a = a, .options = options, .most = POOL * most};
    eqf_node *chosen = NEW_N(scratch, eqf_node, s->r->n);
    VEC(priced) order = {0};
    for (i64 i = 0; i < all.n && !ex_is_over(s); i++) {
        if (!ex_choose(s, &all.at[i], chosen))
            continue;
        i64 places[STORABLE], n = ex_storable(s, chosen, places, STORABLE - 1);
        f64 none = price(&q, s, chosen, NULL, 0), some = n ? price(&q, s, chosen, places, n) : none;
        vec_push(scratch, &order, ((priced){i, MIN(none, some)}));
    }
    if (order.n)
        qsort(order.at, (size_t)order.n, sizeof *order.at, compare);
    report.sets = order.n;
    for (i64 i = 0; i < MIN(order.n, LOOKED_INTO); i++) {
        q.structure = order.at[i].structure;
        ex_choose(s, &all.at[q.structure], chosen);
        i64 places[STORABLE], n = ex_storable(s, chosen, places, STORABLE - 1);
        if (n <= FEW) {
            store_any(&q, s, chosen, places, n);
        } else if (i < DESCENDED) {
            descend(&q, s, chosen, places, n, (1u << n) - 1);
            descend(&q, s, chosen, places, n, 0);
        } else {
            consider(&q, s, chosen, places, n);
            consider(&q, s, chosen, NULL, 0);
        }
    }
    spread(&q, most, &report);
    for (i64 i = 0; i < report.n; i++)
        ir_verify(report.at[i].program, "extraction");
    report.tried = q.tried;
    report.complete = !s->is_cut_short && !s->is_over && order.n <= LOOKED_INTO;
    arena_free(scratch);
    return report;
}
