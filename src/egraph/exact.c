/* Exact DAG extraction by branch and bound.
 *
 * The graph is first reduced to what the roots can reach at finite cost, without e-nodes that use
 * their own class and without dominated ones (same class, children a superset, cost not less). must[c]
 * is the set of classes that every finite choice for c contains: the greatest solution of
 *     must(c) = {c} + intersection over e-nodes n of c of the union over children k of n of must(k).
 * A partial solution costs at least what its decided e-nodes cost plus the cheapest e-node of every
 * other class that it must contain, each once. Classes are decided most constrained first, e-nodes
 * cheapest bound first; the incumbent is the greedy DAG. Before that bound.c relaxes the problem and
 * takes out e-nodes that no better solution has. When time is over the incumbent stands and the bound
 * is the larger of the root's and the relaxation's. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "egraph/exact.h"

#define MAX_MUST_CLASSES 8192
#define MAX_DEPTH 50000

typedef struct search {
    eqf_extraction *x;
    arena *a;
    u32 n, words; /* classes; words of a set, 0 when there are too many */
    cls *at;
    u32 *dense;   /* by class id, + 1 */
    i32 *decided; /* by class: choice, -1 open */
    u8 *needed;
    u32 *need_list, nneed;
    u64 *closure;
    u32 *mark, walk;
    u32 *stack;
    f64 best, deadline, slack;
    i32 *best_choice;
    bool timeout;
    i64 explored;
} search;

static f64 now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (f64)t.tv_sec + 1e-9 * (f64)t.tv_nsec;
}

/* ---- reduction ----------------------------------------------------------------------------- */

static int by_u32(const void *a, const void *b)
{
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return (x > y) - (x < y);
}

static bool subset(const choice *a, const choice *b)
{
    u32 j = 0;
    for (u32 i = 0; i < a->nkids; i++) {
        while (j < b->nkids && b->kids[j] < a->kids[i])
            j++;
        if (j == b->nkids || b->kids[j] != a->kids[i])
            return false;
    }
    return true;
}

static bool feasible(const search *s, u32 n, const u32 *rec)
{
    const eqf_extraction *x = s->x;
    if (rec[N_STAMP] & S_FLAGS || !isfinite(eg_own_cost(x, n)))
        return false;
    u32 arity = eg_node_arity(x->g, n, rec);
    for (u32 i = 0; i < arity; i++) {
        u32 kid = eg_kid(rec, n, i);
        if (kid == rec[N_CLASS] || !isfinite(x->tree_cost[kid]))
            return false;
    }
    return true;
}

static void add_class(search *s, u32 c)
{
    if (s->dense[c])
        return;
    s->at[s->n].class_id = c;
    s->dense[c] = ++s->n;
}

static void add_choices(search *s, u32 k)
{
    const eg *g = s->x->g;
    cls *c = &s->at[k];
    VEC(choice) list = {0};
    for (u32 n = eg_body_of(g, c->class_id)->members; n; n = eg_rec(g, n)[N_NEXT]) {
        const u32 *rec = eg_rec(g, n);
        if (!feasible(s, n, rec))
            continue;
        u32 arity = eg_node_arity(g, n, rec);
        choice fresh = {.node = n, .cost = eg_own_cost(s->x, n), .kids = NEW_N(s->a, u32, arity)};
        for (u32 i = 0; i < arity; i++) {
            add_class(s, eg_kid(rec, n, i));
            fresh.kids[i] = s->dense[eg_kid(rec, n, i)] - 1;
        }
        qsort(fresh.kids, arity, 4, by_u32);
        for (u32 i = 0; i < arity; i++) {
            if (i == 0 || fresh.kids[i] != fresh.kids[fresh.nkids - 1])
                fresh.kids[fresh.nkids++] = fresh.kids[i];
        }
        bool dominated = false;
        for (i64 i = 0; i < list.n && !dominated; i++)
            dominated = list.at[i].cost <= fresh.cost && subset(&list.at[i], &fresh);
        if (dominated)
            continue;
        i64 kept = 0;
        for (i64 i = 0; i < list.n; i++) {
            if (!(fresh.cost <= list.at[i].cost && subset(&fresh, &list.at[i])))
                list.at[kept++] = list.at[i];
        }
        list.n = kept;
        vec_push(s->a, &list, fresh);
    }
    c->at = list.at;
    c->n = (u32)list.n;
    c->least = (f64)INFINITY;
    for (u32 i = 0; i < c->n; i++)
        c->least = fmin(c->least, c->at[i].cost);
}

static void make_must(search *s)
{
    u32 w = s->words;
    for (u32 c = 0; c < s->n; c++) {
        s->at[c].must = NEW_N(s->a, u64, w);
        memset(s->at[c].must, 0xFF, 8 * (size_t)w);
        for (u32 i = 0; i < s->at[c].n; i++)
            s->at[c].at[i].must = NEW_N(s->a, u64, w);
    }
    u64 *all = NEW_N(s->a, u64, w);
    for (bool changed = true; changed;) {
        changed = false;
        for (u32 c = s->n; c-- > 0;) { /* children were numbered after their users */
            cls *k = &s->at[c];
            memset(all, 0xFF, 8 * (size_t)w);
            for (u32 i = 0; i < k->n; i++) {
                choice *o = &k->at[i];
                memset(o->must, 0, 8 * (size_t)w);
                for (u32 j = 0; j < o->nkids; j++) {
                    for (u32 b = 0; b < w; b++)
                        o->must[b] |= s->at[o->kids[j]].must[b];
                }
                for (u32 b = 0; b < w; b++)
                    all[b] &= o->must[b];
            }
            all[c / 64] |= (u64)1 << c % 64;
            if (memcmp(all, k->must, 8 * (size_t)w) != 0) {
                memcpy(k->must, all, 8 * (size_t)w);
                changed = true;
            }
        }
    }
}

/* ---- search -------------------------------------------------------------------------------- */

/* Cost of what `must` adds to the closure; with `take` it is added and noted in *added. */
static f64 closure_cost(search *s, const u64 *must, bool take, u64 *added)
{
    f64 cost = 0;
    for (u32 b = 0; b < s->words; b++) {
        u64 fresh = must[b] & ~s->closure[b];
        if (added)
            added[b] = fresh;
        if (take)
            s->closure[b] |= fresh;
        for (; fresh; fresh &= fresh - 1) {
            u32 c = b * 64 + (u32)__builtin_ctzll(fresh);
            if (c < s->n)
                cost += s->at[c].least;
        }
    }
    return cost;
}

/* Without must sets: the children that are not needed yet. */
static f64 kids_cost(const search *s, const choice *o)
{
    f64 cost = 0;
    for (u32 i = 0; i < o->nkids; i++)
        cost += s->needed[o->kids[i]] ? 0 : s->at[o->kids[i]].least;
    return cost;
}

/* Would choice o of class c close a cycle among decided classes? */
static bool closes_cycle(search *s, u32 c, const choice *o)
{
    u32 n = 0, walk = ++s->walk;
    for (u32 i = 0; i < o->nkids; i++) {
        if (s->mark[o->kids[i]] != walk) {
            s->mark[o->kids[i]] = walk;
            s->stack[n++] = o->kids[i];
        }
    }
    while (n) {
        u32 k = s->stack[--n];
        if (k == c)
            return true;
        if (s->decided[k] < 0)
            continue;
        const choice *d = &s->at[k].at[s->decided[k]];
        for (u32 i = 0; i < d->nkids; i++) {
            if (s->mark[d->kids[i]] != walk) {
                s->mark[d->kids[i]] = walk;
                s->stack[n++] = d->kids[i];
            }
        }
    }
    return false;
}

typedef struct ranked {
    f64 bound;
    u32 i;
} ranked;

static int by_bound(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void branch(search *s, f64 bound, u32 depth)
{
    if (bound >= s->best - s->slack || s->timeout)
        return;
    if ((++s->explored & 255) == 0 && now_s() > s->deadline)
        s->timeout = true;
    u32 pick = UINT32_MAX;
    for (u32 i = 0; i < s->nneed; i++) {
        u32 c = s->need_list[i];
        if (s->decided[c] < 0 && (pick == UINT32_MAX || s->at[c].n < s->at[pick].n))
            pick = c;
        if (pick != UINT32_MAX && s->at[pick].n == 1)
            break;
    }
    if (pick == UINT32_MAX) {
        s->best = bound;
        memcpy(s->best_choice, s->decided, 4 * (size_t)s->n);
        return;
    }
    if (depth > MAX_DEPTH) {
        s->timeout = true;
        return;
    }
    cls *c = &s->at[pick];
    arena *mine = arena_child(s->a);
    ranked *order = NEW_N(mine, ranked, c->n);
    u64 *added = NEW_N(mine, u64, s->words);
    u32 n = 0, before = s->nneed;
    for (u32 i = 0; i < c->n; i++) {
        choice *o = &c->at[i];
        f64 b = bound - c->least + o->cost +
                (s->words ? closure_cost(s, o->must, false, NULL) : kids_cost(s, o));
        if (b < s->best - s->slack && !closes_cycle(s, pick, o))
            order[n++] = (ranked){b, i};
    }
    qsort(order, n, sizeof *order, by_bound);
    for (u32 k = 0; k < n; k++) {
        choice *o = &c->at[order[k].i];
        s->decided[pick] = (i32)order[k].i;
        if (s->words)
            closure_cost(s, o->must, true, added);
        for (u32 i = 0; i < o->nkids; i++) {
            if (!s->needed[o->kids[i]]) {
                s->needed[o->kids[i]] = 1;
                s->need_list[s->nneed++] = o->kids[i];
            }
        }
        branch(s, order[k].bound, depth + 1);
        while (s->nneed > before)
            s->needed[s->need_list[--s->nneed]] = 0;
        for (u32 b = 0; b < s->words; b++)
            s->closure[b] &= ~added[b];
    }
    s->decided[pick] = -1;
    arena_free(mine);
}

void eg_exact(eqf_extraction *x, f64 seconds)
{
    eg_recost(x);
    f64 incumbent = x->dag_cost;
    arena *a = arena_child(x->a);
    search *s = NEW(a, search);
    s->x = x;
    s->a = a;
    s->deadline = now_s() + seconds;
    s->at = NEW_N(a, cls, x->g->nclasses + 1u);
    s->dense = NEW_N(a, u32, x->nclass);
    /* eg_recost touched only needed classes; feasibility wants every class's tree cost */
    u32 *choices = arena_copy(a, x->choice, 4 * (i64)x->nclass);
    eg_tree(x);
    memcpy(x->choice, choices, 4 * (size_t)x->nclass);
    for (u32 r = 0; r < x->nroots; r++)
        add_class(s, x->roots[r]);
    for (u32 k = 0; k < s->n; k++)
        add_choices(s, k);
    s->slack = 1e-9 * fmax(1, incumbent);
    u8 *root = NEW_N(a, u8, s->n);
    for (u32 r = 0; r < x->nroots; r++)
        root[s->dense[x->roots[r]] - 1] = 1;
    f64 relaxed = eg_relax(a, s->at, s->n, root, incumbent, s->slack, now_s() + seconds / 4);
    if (relaxed >= incumbent - s->slack) {
        x->exact = (eqf_exact_report){incumbent, true, 0};
        arena_free(a);
        return;
    }
    s->words = s->n <= MAX_MUST_CLASSES ? (s->n + 63) / 64 : 0;
    if (s->words)
        make_must(s);
    s->decided = NEW_N(a, i32, s->n);
    s->best_choice = NEW_N(a, i32, s->n);
    memset(s->decided, 0xFF, 4 * (size_t)s->n);
    s->needed = NEW_N(a, u8, s->n);
    s->need_list = NEW_N(a, u32, s->n);
    s->closure = NEW_N(a, u64, s->words);
    s->mark = NEW_N(a, u32, s->n);
    s->stack = NEW_N(a, u32, s->n + 1);
    s->best = incumbent;
    f64 bound = 0;
    for (u32 r = 0; r < x->nroots; r++) {
        u32 c = s->dense[x->roots[r]] - 1;
        s->needed[c] = 1;
        s->need_list[s->nneed++] = c;
        bound += s->words ? closure_cost(s, s->at[c].must, true, NULL) : s->at[c].least;
    }
    branch(s, bound, 0);
    if (s->best < incumbent) {
        for (u32 k = 0; k < s->n; k++) {
            if (s->best_choice[k] >= 0)
                x->choice[s->at[k].class_id] = s->at[k].at[s->best_choice[k]].node;
        }
    }
    x->exact = (eqf_exact_report){s->timeout ? fmin(fmax(bound, relaxed), s->best) : s->best, !s->timeout,
                                  s->explored};
    arena_free(a);
}
