/* Where a program is cut.
 *
 * Between any two places a stretch costs the bytes that cross its borders, and a share of what a
 * search costs: one that stands in many places shares it. The cheapest chain of stretches is found
 * place by place. Not every place is looked at: cuts are good where little is alive, so the lowest
 * places are, and enough others that every stretch can be short. */
#include <stdlib.h>

#include "partition/impl.h"

enum {
    MOST_ATOMS = 48, /* a graph holds 64; splits need some */
    MOST_TERMS = 400,
    MOST_PLACES = 4000,
    PART_BYTES = 20000 /* what starting a kernel costs, in bytes that memory moves in that time */
};

/* Bytes that are alive between position k - 1 and k. */
static i64 *alive(const pt_order *o, arena *a)
{
    i64 n = o->at.n, *change = NEW_N(a, i64, n + 2);
    for (i64 k = 0; k < n; k++) {
        i64 bytes = pt_value_bytes(o->p, o->at.at[k]);
        change[k + 1] += bytes;
        change[MIN(o->last_use[k], n) + 1] -= bytes;
    }
    for (i64 k = 1; k <= n + 1; k++)
        change[k] += change[k - 1];
    return change;
}

static bool is_heavy(const ir_node *node)
{
    ir_class class_ = (ir_class)ir_row((ir_op)node->op)->class_;
    return class_ == IR_REDUCE || class_ == IR_MATMUL || class_ == IR_PLAIN || class_ == IR_OPAQUE;
}

typedef struct places {
    i64 *at, n;
} places;

/* The lowest places, the ends of the coarser parts, and places between that leave no stretch too long
 * or with more than `most` reductions. */
static places find_places(const pt_order *o, arena *a, i64 most, const pt_partition *within)
{
    i64 n = o->at.n, *live = alive(o, a), since = 0, heavy = 0, step = MAX(MOST_TERMS / 8, n / MOST_PLACES);
    i64 coarse = 0;
    places x = {NEW_N(a, i64, n + 2), 0};
    x.at[x.n++] = 0;
    for (i64 k = 1; k < n; k++) {
        bool is_end = within && within->uses[coarse].to == k;
        coarse += is_end;
        heavy += is_heavy(&o->p->nodes.at[o->at.at[k - 1]]);
        i64 next = k + 1;
        while (next < n && live[next] == live[k])
            next++;
        bool is_low = live[k] < live[k - 1] && (next == n || live[next] > live[k]);
        if (is_low || is_end || k - since >= step || heavy >= most) {
            x.at[x.n++] = k;
            since = k;
            heavy = 0;
        }
    }
    if (n > 0)
        x.at[x.n++] = n;
    return x;
}

typedef struct stretch {
    i64 from, to; /* places */
    i64 bytes;
    u32 kind; /* equal for equal digests */
} stretch;

typedef struct cutter {
    pt_order o;
    arena *a;
    places places;
    VEC(stretch) all; /* by the place where they end */
    VEC(i64) uses;    /* by kind */
} cutter;

/* ---- stretches that can be parts ---------------------------------------------------------------- */

typedef struct named {
    char digest[33];
    i64 number;
} named;

static int compare_digests(const void *x, const void *y)
{
    const named *a = x, *b = y;
    int c = memcmp(a->digest, b->digest, sizeof a->digest);
    return c ? c : a->number < b->number ? -1 : a->number > b->number;
}

static void list_stretches(cutter *c, i64 most, const pt_partition *within)
{
    VEC(named) names = {0};
    i64 coarse = 0;
    i64 heavy_from = 0, *heavy = NEW_N(c->a, i64, c->o.at.n + 1);
    for (i64 k = 0; k < c->o.at.n; k++)
        heavy[k + 1] = heavy[k] + is_heavy(&c->o.p->nodes.at[c->o.at.at[k]]);
    for (i64 to = 1; to < c->places.n; to++) {
        i64 end = c->places.at[to];
        while (heavy_from < to - 1 && (heavy[end] - heavy[c->places.at[heavy_from]] > most ||
                                       end - c->places.at[heavy_from] > MOST_TERMS ||
                                       (within && within->uses[coarse].from > c->places.at[heavy_from])))
            heavy_from++;
        coarse += within && within->uses[coarse].to == end;
        for (i64 from = to - 1; from >= heavy_from; from--) {
            arena *scratch = arena_child(c->a);
            pt_recipe r = pt_recipe_of(&c->o, scratch, c->places.at[from], end);
            bool fits = r.atoms.n <= MOST_ATOMS || from == to - 1;
            if (fits) {
                named name = {.number = c->all.n};
                memcpy(name.digest, r.digest, sizeof name.digest);
                vec_push(c->a, &names, name);
                vec_push(c->a, &c->all, ((stretch){from, to, r.bytes, 0}));
            }
            arena_free(scratch);
            if (!fits)
                break; /* longer ones have more */
        }
    }
    if (names.n)
        qsort(names.at, (size_t)names.n, sizeof *names.at, compare_digests);
    for (i64 i = 0; i < names.n; i++) {
        if (i == 0 || memcmp(names.at[i].digest, names.at[i - 1].digest, 33) != 0)
            vec_push(c->a, &c->uses, 0);
        c->uses.at[c->uses.n - 1]++;
        c->all.at[names.at[i].number].kind = (u32)(c->uses.n - 1);
    }
}

/* ---- the cheapest chain ------------------------------------------------------------------------- */

/* The stretches of the cheapest chain, last first; how many. */
static i64 cheapest(cutter *c, i64 *chain)
{
    i64 total = 0, n = c->places.n;
    for (i64 k = 0; k < c->o.at.n; k++)
        total += pt_value_bytes(c->o.p, c->o.at.at[k]) / 16;
    f64 search = (f64)total + PART_BYTES, *best = NEW_N(c->a, f64, n);
    i64 *by = NEW_N(c->a, i64, n);
    for (i64 to = 1, i = 0; to < n; to++) {
        best[to] = -1;
        for (; i < c->all.n && c->all.at[i].to == to; i++) {
            const stretch *s = &c->all.at[i];
            f64 cost = best[s->from] + (f64)s->bytes + PART_BYTES +
                       search / (f64)c->uses.at[s->kind];
            if (best[to] >= 0 && cost >= best[to])
                continue;
            best[to] = cost;
            by[to] = i;
        }
    }
    i64 count = 0;
    for (i64 to = n - 1; to > 0; to = c->all.at[by[to]].from)
        chain[count++] = by[to];
    return count;
}

/* ---- the result ------------------------------------------------------------------------------- */

static const ir_term *as_terms(arena *a, ids list)
{
    ir_term *at = NEW_N(a, ir_term, list.n);
    for (i64 i = 0; i < list.n; i++)
        at[i] = (ir_term){list.at[i]};
    return at;
}

static void add_use(pt_partition *x, intern *digests, pt_order *o, arena *a, i64 from, i64 to)
{
    arena *scratch = arena_child(a);
    pt_recipe r = pt_recipe_of(o, scratch, from, to);
    i64 part = (i64)intern_cstr(digests, r.digest) - 1; /* "" is the first */
    if (part == x->part_count) {
        pt_part *new = &x->parts[x->part_count++];
        new->program = pt_part_program(o, a, &r);
        new->order = arena_copy(a, r.order, r.atoms.n * (i64)sizeof *r.order);
        memcpy(new->digest, r.digest, sizeof r.digest);
    }
    x->parts[part].uses++;
    ir_atom *atoms = NEW_N(a, ir_atom, r.atoms.n + 1);
    for (i64 i = 0; i < r.atoms.n; i++)
        atoms[i + 1] = (ir_atom){r.atoms.at[x->parts[part].order[i]]};
    x->uses[x->use_count++] =
        (pt_use){part, from, to, as_terms(a, r.inputs), as_terms(a, r.outputs), atoms};
    x->bytes += r.bytes;
    arena_free(scratch);
}

/* Parts from 0, ends[0] ... to ends[n - 1]. */
static pt_partition cut_at(pt_order *o, arena *a, const i64 *ends, i64 n)
{
    pt_partition x = {.parts = NEW_N(a, pt_part, n), .uses = NEW_N(a, pt_use, n)};
    arena *scratch = arena_child(a);
    intern *digests = intern_new(scratch);
    for (i64 i = 0; i < n; i++)
        add_use(&x, digests, o, a, i ? ends[i - 1] : 0, ends[i]);
    arena_free(scratch);
    return x;
}

static bool is_tensor_program(const ir_program *p)
{
    for (i64 k = 1; k < p->nodes.n; k++)
        if (ir_row((ir_op)p->nodes.at[k].op)->class_ == IR_TILED)
            return false;
    return p->splits.n == 0;
}

pt_partition pt_cut(arena *a, const ir_program *p, const pt_options *options)
{
    if (!is_tensor_program(p))
        return (pt_partition){0};
    arena *scratch = arena_child(a);
    cutter c = {.o = pt_order_new(scratch, p, options->parameters_are_inputs), .a = scratch};
    c.places = find_places(&c.o, scratch, options->most_reductions, options->within);
    list_stretches(&c, options->most_reductions, options->within);
    i64 *chain = NEW_N(scratch, i64, c.places.n), *ends = NEW_N(scratch, i64, c.places.n);
    i64 n = c.all.n ? cheapest(&c, chain) : 0;
    for (i64 i = 0; i < n; i++)
        ends[i] = c.places.at[c.all.at[chain[n - 1 - i]].to];
    pt_partition x = cut_at(&c.o, a, ends, n);
    arena_free(scratch);
    return x;
}

bool pt_cut_at(arena *a, const ir_program *p, bool parameters_are_inputs, const i64 *ends, i64 n,
               pt_partition *out)
{
    *out = (pt_partition){0};
    if (!is_tensor_program(p))
        return n == 0;
    arena *scratch = arena_child(a);
    pt_order o = pt_order_new(scratch, p, parameters_are_inputs);
    bool fits = n > 0 ? ends[n - 1] == o.at.n && ends[0] > 0 : o.at.n == 0;
    for (i64 i = 1; i < n; i++)
        fits = fits && ends[i - 1] < ends[i];
    if (fits)
        *out = cut_at(&o, a, ends, n);
    arena_free(scratch);
    return fits;
}
