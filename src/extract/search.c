/* Structures, what is stored in each, and a list of the cheapest.
 *
 * Every structure is priced with everything stored that may be, and where that is little with nothing
 * stored; a large program in one kernel computes too much over and over. For the best of them sets of
 * stored tiles are tried: all where they are few; else downhill, one tile more or less at a time, from
 * both ends. Forms of one structure are much alike, and the model is rough: the list goes from the cheapest
 * to the cheapest of those that are left, each dearer by some percent for every form of its structure
 * before it. */
#include <stdlib.h>

#include "extract/impl.h"

enum { STORABLE = 32, FEW = 5, LOOKED_INTO = 32, DESCENDED = 6, POOL = 8 };
#define ALIKE 1.04 /* dearer for each that is like it */

typedef struct ranking {
    arena *a;
    ex_space *s;
    const ex_options *options;
    i64 most, tried, distinct;
    VEC(ex_candidate) best; /* cheapest first */
    /* the present structure */
    i64 structure;
    const eqf_node *chosen;
    i64 places[STORABLE], n; /* tiles that may be stored */
    VEC(u32) seen;           /* sets of them that were considered */
} ranking;

typedef struct priced {
    i64 structure;
    const ex_structure *at;
    f64 bound_us;
} priced;

static void turn_to(ranking *q, const ex_structures *all, i64 structure, eqf_node *chosen)
{
    ex_choose(q->s, &all->at[structure], chosen);
    q->structure = structure;
    q->chosen = chosen;
    q->n = ex_storable(q->s, chosen, q->places, STORABLE - 1);
    q->seen.n = 0;
}

static ex_candidate priced_candidate(ranking *q, arena *own, u32 set)
{
    i64 stored[STORABLE], n = 0;
    for (i64 i = 0; i < q->n; i++)
        if (set >> i & 1)
            stored[n++] = q->places[i];
    ex_candidate c = {.program = ex_write(q->s, own, q->chosen, stored, n),
                      .structure = q->structure};
    ex_model(own, c.program, &q->options->rates, q->s->g->options.parameters_are_inputs, &c);
    q->tried++;
    return c;
}

static f64 price(ranking *q, u32 set)
{
    arena *own = arena_child(q->a);
    f64 bound_us = priced_candidate(q, own, set).bound_us;
    arena_free(own);
    return bound_us;
}

/* Its price; into the list where it belongs there. */
static f64 consider(ranking *q, u32 set)
{
    arena *own = arena_child(q->a);
    ex_candidate c = priced_candidate(q, own, set);
    bool is_known = false;
    for (i64 i = 0; i < q->seen.n; i++)
        is_known |= q->seen.at[i] == set;
    i64 at = q->best.n;
    while (at > 0 && c.bound_us < q->best.at[at - 1].bound_us)
        at--;
    if (!is_known) {
        vec_push(q->a, &q->seen, set);
        q->distinct++;
    }
    if (is_known || at >= q->most) {
        arena_free(own);
        return c.bound_us;
    }
    vec_push(q->a, &q->best, c);
    for (i64 i = q->best.n - 1; i > at; i--)
        q->best.at[i] = q->best.at[i - 1];
    q->best.at[at] = c;
    q->best.n = MIN(q->best.n, q->most);
    return c.bound_us;
}

static const char *text_of(arena *a, const ir_program *p)
{
    str s = str_new(a);
    ir_print(&s, p);
    return str_text(&s);
}

/* The list, `most` of it. Structures may have the same operators in the end: those are one, unless
 * everything is kept. */
static void spread(ranking *q, i64 most, ex_report *report)
{
    arena *scratch = arena_child(q->a);
    i64 n = q->best.n;
    f64 *price = NEW_N(scratch, f64, n);
    const char **texts = NEW_N(scratch, const char *, MIN(n, most));
    report->at = NEW_N(q->a, ex_candidate, MIN(n, most));
    for (i64 i = 0; i < n; i++)
        price[i] = q->best.at[i].bound_us;
    while (report->n < MIN(n, most)) {
        i64 next = -1;
        for (i64 i = 0; i < n; i++)
            if (price[i] >= 0 && (next < 0 || price[i] < price[next]))
                next = i;
        if (next < 0)
            break;
        const ex_candidate *c = &q->best.at[next];
        const char *text = text_of(scratch, c->program);
        bool is_known = false;
        for (i64 i = 0; i < report->n && q->options->mode != EX_NONE; i++)
            is_known |= strcmp(texts[i], text) == 0;
        price[next] = -1;
        if (is_known)
            continue;
        texts[report->n] = text;
        report->at[report->n++] = *c;
        for (i64 i = 0; i < n; i++)
            if (q->best.at[i].structure == c->structure)
                price[i] *= ALIKE;
    }
    arena_free(scratch);
}

/* The best change of one tile, as long as it pays. */
static void descend(ranking *q, u32 set)
{
    f64 best = consider(q, set);
    for (bool more = true; more && !ex_is_over(q->s);) {
        u32 next = set;
        more = false;
        for (i64 i = 0; i < q->n; i++) {
            f64 bound = price(q, set ^ 1u << i);
            if (bound < best) {
                best = bound;
                next = set ^ 1u << i;
                more = true;
            }
        }
        if (more)
            consider(q, next);
        set = next;
    }
}

/* Forms of the present structure, the i-th best. */
static void store(ranking *q, i64 i)
{
    u32 all = (1u << q->n) - 1;
    if (q->n <= FEW && !ex_is_over(q->s)) {
        for (u32 set = 0; set <= all; set++)
            consider(q, set);
    } else if (i < DESCENDED) {
        descend(q, all);
        descend(q, 0);
    } else {
        consider(q, all);
        consider(q, 0);
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

ex_report ex_search(arena *a, rl_graph *g, const ex_options *options)
{
    ex_report report = {0};
    arena *scratch = arena_child(a);
    ex_space *s = ex_space_new(scratch, g, options);
    ex_structures all = {0};
    ex_counts counts = {0};
    i64 most_sets = options->mode == EX_EARLY ? 1024 : 65536;
    ex_enumerate(s, options->mode, options->most_sets > 0 ? options->most_sets : most_sets, &all,
                 &counts);
    i64 most = options->most > 0 ? options->most : 64;
    ranking q = {.a = a, .s = s, .options = options, .most = POOL * most};
    eqf_node *chosen = NEW_N(scratch, eqf_node, s->r->n);
    keep_computable(s, &all, chosen);
    if (options->mode != EX_NONE)
        ex_compact(s, &all);
    VEC(priced) order = {0};
    for (i64 i = 0; i < all.n && (i < LOOKED_INTO || !ex_is_over(s)); i++) {
        turn_to(&q, &all, i, chosen);
        f64 bound_us = price(&q, (1u << q.n) - 1);
        if (q.n > 0 && q.n <= FEW)
            bound_us = MIN(bound_us, price(&q, 0));
        vec_push(scratch, &order, ((priced){i, &all.at[i], bound_us}));
    }
    if (order.n)
        qsort(order.at, (size_t)order.n, sizeof *order.at, compare);
    for (i64 i = 0; i < MIN(order.n, LOOKED_INTO); i++) {
        turn_to(&q, &all, order.at[i].structure, chosen);
        store(&q, i);
    }
    spread(&q, most, &report);
    for (i64 i = 0; i < report.n; i++)
        ir_verify(report.at[i].program, "extraction");
    report.expanded = counts.expanded;
    report.pruned = counts.pruned;
    report.sets = all.n;
    report.distinct = q.distinct;
    report.tried = q.tried;
    report.is_cut_short = s->is_cut_short || s->is_over;
    report.complete = !report.is_cut_short && all.n <= LOOKED_INTO;
    arena_free(scratch);
    return report;
}
