/* DAG extraction, greedy: each class keeps the set of classes that its best choice needs, with the
 * cost of each, and an e-node is judged by the union of its children's sets. Users are looked at
 * again when a set gets cheaper. Stored sets go stale when a child improves later, so only the
 * choices are kept: cost and acyclicity are taken from them at the end, and classes on a cycle fall
 * back to their tree choice. (Goharshady et al. 2024, "faster greedy DAG" of extraction-gym.) */
#include <math.h>

#include "egraph/extract.h"

typedef struct item {
    u32 class_id, pad;
    f64 cost;
} item;

typedef struct needs {
    item *at; /* sorted by class */
    u32 n;
    f64 total;
} needs;

typedef struct greedy {
    eqf_extraction *x;
    needs *best; /* by class; n 0: none yet */
    item *merged, *other; /* scratch of the size of all classes */
} greedy;

static void release(void *p)
{
    greedy *d = p;
    for (u32 c = 0; c < d->x->nclass; c++)
        heap_free(d->x->ctx, d->best[c].at, (i64)sizeof(item) * d->best[c].n);
}

/* Set of an e-node into d->merged; returns its size, 0 when it is no better than `limit`. */
static u32 merge_kids(greedy *d, u32 n, const u32 *rec, f64 limit, f64 *total)
{
    u32 arity = eg_node_arity(d->x->g, n, rec), c = rec[N_CLASS], count = 0, largest = 0;
    f64 own = eg_own_cost(d->x, n), sum = own;
    for (u32 i = 0; i < arity; i++) {
        const needs *k = &d->best[eg_kid(rec, n, i)];
        if (k->n == 0 || own + k->total >= limit)
            return 0;
        if (k->n > d->best[eg_kid(rec, n, largest)].n)
            largest = i;
    }
    if (arity) {
        const needs *k = &d->best[eg_kid(rec, n, largest)];
        memcpy(d->merged, k->at, sizeof(item) * k->n);
        count = k->n;
        sum += k->total;
    }
    for (u32 i = 0; i < arity; i++) {
        const needs *k = &d->best[eg_kid(rec, n, i)];
        if (i == largest || eg_kid(rec, n, i) == eg_kid(rec, n, largest))
            continue;
        u32 a = 0, b = 0, m = 0;
        while (a < count || b < k->n) {
            if (b == k->n || (a < count && d->merged[a].class_id < k->at[b].class_id)) {
                d->other[m++] = d->merged[a++];
            } else if (a == count || k->at[b].class_id < d->merged[a].class_id) {
                sum += k->at[b].cost;
                d->other[m++] = k->at[b++];
            } else { /* both: the choice is one */
                d->other[m++] = d->merged[a++];
                b++;
            }
            if (sum >= limit)
                return 0;
        }
        item *t = d->merged;
        d->merged = d->other;
        d->other = t;
        count = m;
    }
    if (sum >= limit)
        return 0;
    u32 lo = 0, hi = count; /* its own class in its place; inside already: a cycle */
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (d->merged[mid].class_id < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < count && d->merged[lo].class_id == c)
        return 0;
    memmove(d->merged + lo + 1, d->merged + lo, sizeof(item) * (count - lo));
    d->merged[lo] = (item){c, 0, own};
    *total = sum;
    return count + 1;
}

static bool relax(greedy *d, u32 n, const u32 *rec)
{
    u32 c = rec[N_CLASS];
    needs *b = &d->best[c];
    f64 total = 0;
    u32 count = merge_kids(d, n, rec, b->n ? b->total : (f64)INFINITY, &total);
    if (!count)
        return false;
    item *at = heap_alloc(d->x->ctx, (i64)sizeof(item) * count);
    memcpy(at, d->merged, sizeof(item) * count);
    heap_free(d->x->ctx, b->at, (i64)sizeof(item) * b->n);
    *b = (needs){at, count, total};
    d->x->choice[c] = n;
    return true;
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
    d->best = NEW_N(mine, needs, x->nclass);
    d->merged = NEW_N(mine, item, g->nclasses + 1u);
    d->other = NEW_N(mine, item, g->nclasses + 1u);
    arena_defer(mine, release, d);
    u32 *work = NEW_N(mine, u32, x->nclass + 1u), head = 0, n = 0, cap = x->nclass + 1;
    u8 *queued = NEW_N(mine, u8, x->nclass);
    for (u32 i = 1; i < g->seg[0].n; i++) {
        const u32 *rec = eg_rec(g, i);
        if (!(rec[N_STAMP] & S_FLAGS) && relax(d, i, rec) && !queued[rec[N_CLASS]]) {
            queued[rec[N_CLASS]] = 1;
            work[n++] = rec[N_CLASS];
        }
    }
    while (n) {
        u32 c = work[head];
        head = head + 1 == cap ? 0 : head + 1;
        n--;
        queued[c] = 0;
        u32 slot;
        for (u32 cell = eg_body_of(g, c)->uses; cell; cell = eg_cell_next(g, cell)) {
            u32 user = eg_cell_node(g, cell, &slot);
            const u32 *rec = eg_rec(g, user);
            u32 u = rec[N_CLASS];
            if (!(rec[N_STAMP] & S_FLAGS) && relax(d, user, rec) && !queued[u]) {
                queued[u] = 1;
                u32 at = head + n++;
                work[at >= cap ? at - cap : at] = u;
            }
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
