/* DAG extraction, greedy: each class keeps the set of classes that its best choice needs, with the
 * cost of each, and an e-node is judged by the union of its children's sets. Users are looked at
 * when a set gets cheaper, those of the cheapest class first, so that most sets are made once. Stored
 * sets go stale when a child improves later, so only the choices are kept: cost and acyclicity are
 * taken from them at the end, and classes on a cycle fall back to their tree choice. In a graph that
 * is deep and large at once the sets together would be as large as its square: once they fill
 * MOST_ITEMS, what is chosen so far has to do.
 * (Goharshady et al. 2024, "faster greedy DAG" of extraction-gym.) */
#include <math.h>

#include "egraph/extract.h"

typedef struct item {
    u32 class_id, pad;
    f64 cost;
} item;

typedef struct needs {
    item *at;
    u32 n;
    f64 total;
} needs;

enum { MOST_ITEMS = 1 << 25 }; /* half a gigabyte */

/* A class and what it cost when it joined the queue; if that is no longer so, it joined again. */
typedef struct waiting {
    f64 total;
    u32 class_id;
} waiting;

typedef struct greedy {
    eqf_extraction *x;
    VEC(waiting) queue; /* a heap, cheapest first */
    arena *a;
    i64 held; /* items in all sets */
    needs *best; /* by class; n 0: none yet */
    item *merged; /* scratch of the size of all classes */
    u32 *mark, walk; /* by class: the walk that has seen it */
} greedy;

static void release(void *p)
{
    greedy *d = p;
    for (u32 c = 0; c < d->x->nclass; c++)
        heap_free(d->x->ctx, d->best[c].at, (i64)sizeof(item) * d->best[c].n);
}

/* Adds a set to the one being made; false when that costs `limit`. */
static bool add_set(greedy *d, const needs *k, f64 limit, u32 *count, f64 *sum)
{
    for (u32 i = 0; i < k->n; i++) {
        const item *it = &k->at[i];
        if (d->mark[it->class_id] == d->walk) /* in both: the choice is one */
            continue;
        d->mark[it->class_id] = d->walk;
        d->merged[(*count)++] = *it;
        *sum += it->cost;
        if (*sum >= limit)
            return false;
    }
    return true;
}

/* The set and class c, which is a cycle (0) if the set holds it already. */
static u32 add_class(greedy *d, const needs *k, u32 c, f64 own)
{
    u32 found = 0;
    for (u32 i = 0; i < k->n; i++)
        found |= k->at[i].class_id == c;
    if (found)
        return 0;
    memcpy(d->merged, k->at, sizeof(item) * k->n);
    d->merged[k->n] = (item){c, 0, own};
    return k->n + 1;
}

/* Set of an e-node into d->merged; returns its size, 0 when it is no better than `limit`. */
static u32 merge_kids(greedy *d, u32 n, const u32 *rec, f64 limit, f64 *total)
{
    u32 arity = eg_node_arity(d->x->g, n, rec), c = rec[N_CLASS], count = 0;
    f64 own = eg_own_cost(d->x, n), sum = own;
    bool one = arity > 0; /* all children are one class */
    for (u32 i = 0; i < arity; i++) {
        const needs *k = &d->best[eg_kid(rec, n, i)];
        if (k->n == 0 || own + k->total >= limit)
            return 0;
        one &= eg_kid(rec, n, i) == eg_kid(rec, n, 0);
    }
    if (one) {
        const needs *k = &d->best[eg_kid(rec, n, 0)];
        *total = own + k->total;
        return add_class(d, k, c, own);
    }
    if (++d->walk == 0) {
        memset(d->mark, 0, 4 * (size_t)d->x->nclass);
        d->walk = 1;
    }
    for (u32 i = 0; i < arity; i++) {
        u32 kid = eg_kid(rec, n, i);
        if (!(i && kid == eg_kid(rec, n, i - 1)) &&
            !add_set(d, &d->best[kid], limit, &count, &sum))
            return 0;
    }
    if (sum >= limit || (arity && d->mark[c] == d->walk)) /* its own class inside: a cycle */
        return 0;
    d->merged[count] = (item){c, 0, own};
    *total = sum;
    return count + 1;
}

static bool comes_before(waiting a, waiting b)
{
    return a.total != b.total ? a.total < b.total : a.class_id < b.class_id;
}

static void enqueue(greedy *d, u32 c)
{
    waiting w = {d->best[c].total, c};
    vec_push(d->a, &d->queue, w);
    i64 i = d->queue.n - 1;
    for (i64 up; i > 0 && comes_before(w, d->queue.at[up = (i - 1) / 2]); i = up)
        d->queue.at[i] = d->queue.at[up];
    d->queue.at[i] = w;
}

static waiting dequeue(greedy *d)
{
    waiting first = d->queue.at[0], last = d->queue.at[--d->queue.n];
    i64 n = d->queue.n, i = 0;
    for (i64 kid; (kid = 2 * i + 1) < n; i = kid) {
        if (kid + 1 < n && comes_before(d->queue.at[kid + 1], d->queue.at[kid]))
            kid++;
        if (!comes_before(d->queue.at[kid], last))
            break;
        d->queue.at[i] = d->queue.at[kid];
    }
    d->queue.at[i] = last;
    return first;
}

/* Takes e-node n for its class if that is cheaper; then its users are to be looked at. */
static void relax(greedy *d, u32 n, const u32 *rec)
{
    u32 c = rec[N_CLASS];
    needs *b = &d->best[c];
    f64 total = 0;
    u32 count = merge_kids(d, n, rec, b->n ? b->total : (f64)INFINITY, &total);
    if (!count || d->held >= MOST_ITEMS)
        return;
    d->held += (i64)count - b->n;
    item *at = heap_alloc(d->x->ctx, (i64)sizeof(item) * count);
    memcpy(at, d->merged, sizeof(item) * count);
    heap_free(d->x->ctx, b->at, (i64)sizeof(item) * b->n);
    *b = (needs){at, count, total};
    d->x->choice[c] = n;
    enqueue(d, c);
}

/* Walks the choices from the roots; where they close a cycle, takes the tree choices. True when it
 * had to. */
static bool break_cycle(eqf_extraction *x, const u32 *tree)
{
    const eg *g = x->g;
    u8 *state = NEW_N(x->a, u8, x->nclass);
    VEC(u32) stack = {0};
    for (u32 r = 0; r < x->nroots; r++) {
        vec_push(x->a, &stack, x->roots[r]);
        while (stack.n) {
            u32 c = stack.at[stack.n - 1], n = x->choice[c];
            if (state[c]) {
                state[c] = 2;
                stack.n--;
                continue;
            }
            state[c] = 1;
            const u32 *rec = n ? eg_rec(g, n) : NULL;
            u32 arity = n ? eg_node_arity(g, n, rec) : 0;
            for (u32 i = 0; i < arity; i++) {
                u32 kid = eg_kid(rec, n, i);
                if (state[kid] == 0) {
                    vec_push(x->a, &stack, kid);
                } else if (state[kid] == 1) {
                    bool changed = false;
                    for (i64 k = 0; k < stack.n; k++) { /* classes open now hold the cycle */
                        u32 open = stack.at[k];
                        if (state[open] == 1 && x->choice[open] != tree[open]) {
                            x->choice[open] = tree[open];
                            changed = true;
                        }
                    }
                    if (changed)
                        return true;
                }
            }
        }
    }
    return false;
}

void eg_dag(eqf_extraction *x)
{
    const eg *g = x->g;
    u32 *tree = arena_copy(x->a, x->choice, 4 * (i64)x->nclass);
    eg_recost(x);
    f64 tree_total = x->dag_cost;
    arena *mine = arena_child(x->a);
    greedy *d = NEW(mine, greedy);
    d->x = x;
    d->a = mine;
    d->best = NEW_N(mine, needs, x->nclass);
    d->merged = NEW_N(mine, item, g->nclasses + 1u);
    d->mark = NEW_N(mine, u32, x->nclass);
    arena_defer(mine, release, d);
    for (u32 i = 1; i < g->seg[0].n; i++) {
        const u32 *rec = eg_rec(g, i);
        if (!(rec[N_STAMP] & S_FLAGS))
            relax(d, i, rec);
    }
    while (d->queue.n && d->held < MOST_ITEMS) {
        waiting w = dequeue(d);
        if (w.total != d->best[w.class_id].total)
            continue;
        u32 slot;
        for (u32 cell = eg_body_of(g, w.class_id)->uses; cell; cell = eg_cell_next(g, cell)) {
            u32 user = eg_cell_node(g, cell, &slot);
            const u32 *rec = eg_rec(g, user);
            if (!(rec[N_STAMP] & S_FLAGS))
                relax(d, user, rec);
        }
    }
    for (u32 c = 0; c < x->nclass; c++) {
        if (!x->choice[c])
            x->choice[c] = tree[c];
    }
    arena_free(mine);
    while (break_cycle(x, tree)) {
    }
    eg_recost(x);
    if (x->dag_cost > tree_total) {
        memcpy(x->choice, tree, 4 * (size_t)x->nclass);
        eg_recost(x);
    }
}
