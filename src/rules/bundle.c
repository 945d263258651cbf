/* Bundles that operators ask for: the reductions that one finished choice of a class uses, in one
 * loop as far as they are independent, and once more in their repaired forms.
 *
 * A need-set of a class is what a choice of its pointwise operators leaves to reductions; the eight
 * smallest are kept, ties by a number of their texts, so that no order of visits decides. For comparison
 * also every set of up to six reductions over the same axes, 1024 of them a round.
 *                                                                                (space.md §6 F) */
#include "rules/fuse_impl.h"

enum { MOST_SETS = 8, MOST_ITEMS = 12, MOST_IN_SET = 6, MOST_GROUPS = 1024 };

typedef struct need {
    i64 n;
    u16 at[MOST_ITEMS]; /* items, ascending */
    u64 name;
} need;

typedef struct needs {
    i64 n; /* -1: no finished choice yet */
    need at[MOST_SETS];
} needs;

typedef struct bundler {
    rl_fuser *f;
    needs *sets; /* by place */
    bool *is_component; /* by item */
} bundler;

/* ---- need-sets ------------------------------------------------------------------------------- */

static u64 item_name(const rl_reach *r, i64 item)
{
    const rl_item *it = &r->items.at[item];
    u64 h = r->forms.name[it->place] ^ (it->par * 0x9E3779B97F4A7C15u);
    return (h ^ h >> 29) * 0xBF58476D1CE4E5B9u;
}

static int order(const need *x, const need *y)
{
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return memcmp(x->at, y->at, (size_t)x->n * sizeof *x->at);
}

static void keep(needs *s, const need *x)
{
    i64 j = s->n;
    for (; j > 0; j--) {
        int c = order(x, &s->at[j - 1]);
        if (c == 0)
            return;
        if (c > 0)
            break;
    }
    if (j == MOST_SETS)
        return;
    s->n = MIN(s->n + 1, MOST_SETS);
    memmove(&s->at[j + 1], &s->at[j], (size_t)(s->n - 1 - j) * sizeof *s->at);
    s->at[j] = *x;
}

static bool unite(const need *x, const need *y, need *out)
{
    i64 i = 0, j = 0;
    *out = (need){.n = 0};
    while (i < x->n || j < y->n) {
        u16 next = j == y->n || (i < x->n && x->at[i] <= y->at[j]) ? x->at[i] : y->at[j];
        if (i < x->n && x->at[i] == next)
            i++;
        if (j < y->n && y->at[j] == next)
            j++;
        if (out->n == MOST_ITEMS)
            return false;
        out->at[out->n++] = next;
    }
    return true;
}

static void name_need(const rl_reach *r, need *x)
{
    x->name = 0;
    for (i64 i = 0; i < x->n; i++)
        x->name += item_name(r, x->at[i]);
}

/* The smallest unions of one of each. */
static needs both_of(const rl_reach *r, const needs *x, const needs *y)
{
    needs out = {.n = x->n < 0 || y->n < 0 ? -1 : 0};
    for (i64 i = 0; i < x->n && y->n > 0; i++)
        for (i64 j = 0; j < y->n; j++) {
            need joint;
            if (!unite(&x->at[i], &y->at[j], &joint))
                continue;
            name_need(r, &joint);
            keep(&out, &joint);
        }
    return out;
}

/* What the e-node's operands need together. */
static needs needs_of_node(const bundler *b, const rl_enode *n)
{
    needs out = {.n = 1};
    for (i64 i = 0; i < n->arity && out.n > 0; i++)
        out = both_of(b->f->r, &out, &b->sets[n->kids[i]]);
    return out.n > 0 ? out : (needs){.n = -1};
}

static bool is_same(const needs *x, const needs *y)
{
    if (x->n != y->n)
        return false;
    for (i64 i = 0; i < x->n; i++)
        if (order(&x->at[i], &y->at[i]) != 0)
            return false;
    return true;
}

/* Is the item worth a component? Not when a repair gave its class a form over the results of a
 * loop, or when its reductions need others over its axes that the class has a form without. */
static bool is_component(const rl_graph *g, const rl_reach *r, i64 item)
{
    rl_item it = r->items.at[item];
    const u64 *must = rl_reach_must(r, it.place);
    for (i64 i = 0; i < g->readouts.n; i++)
        if (rl_place_of(r, g->readouts.at[i]) == it.place)
            return false;
    for (i64 i = r->first[it.place]; i < r->first[it.place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!n->is_usable || n->label.op != IR_reduce || n->label.par != it.par)
            continue;
        bool needs_more = false;
        for (i64 k = 0; k < r->items.n && !needs_more; k++)
            needs_more = r->items.at[k].par == it.par &&
                         (rl_reach_must(r, n->kids[0])[k >> 6] & ~must[k >> 6]) >> (k & 63) & 1;
        if (!needs_more)
            return true;
    }
    return false;
}

/* Reductions that are no components count where the class has nothing else. */
static needs needs_of_class(const bundler *b, i64 k)
{
    const rl_reach *r = b->f->r;
    needs all = {.n = 0}, poor = {.n = 0};
    if (r->is_given[k])
        return (needs){.n = 1};
    for (i64 i = r->first_item[k]; i < r->first_item[k + 1]; i++) {
        need one = {.n = 1, .at = {(u16)i}};
        name_need(r, &one);
        keep(b->is_component[i] ? &all : &poor, &one);
    }
    for (i64 i = r->first[k]; i < r->first[k + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        needs some = {.n = 1};
        if (!n->is_usable || n->label.op == IR_get || n->label.par)
            continue;
        some = needs_of_node(b, n);
        for (i64 j = 0; j < some.n; j++)
            keep(&all, &some.at[j]);
    }
    for (i64 i = r->first[k]; i < r->first[k + 1] && !all.n; i++) /* loads, states of loops */
        if (r->nodes.at[i].is_usable &&
            (r->nodes.at[i].label.op == IR_view || r->nodes.at[i].label.op == IR_run))
            all.n = 1;
    return all.n ? all : poor.n ? poor : (needs){.n = -1};
}

static void find_needs(bundler *b)
{
    const rl_reach *r = b->f->r;
    b->sets = NEW_N(b->f->a, needs, r->n);
    b->is_component = NEW_N(b->f->a, bool, r->items.n);
    for (i64 i = 0; i < r->items.n; i++)
        b->is_component[i] = is_component(b->f->g, r, i);
    for (i64 k = 0; k < r->n; k++)
        b->sets[k].n = -1;
    bool more = true;
    for (i64 round = 0; more && round < 64; round++) {
        more = false;
        for (i64 k = 0; k < r->n; k++) {
            needs now = needs_of_class(b, k);
            if (is_same(&now, &b->sets[k]))
                continue;
            b->sets[k] = now;
            more = true;
        }
    }
}

/* ---- components ------------------------------------------------------------------------------ */

typedef struct member {
    u32 left; /* what it is so far: the reduction, or get from its own loop */
    u32 comp; /* 0: none */
    u32 with[RL_MAX_SLOTS]; /* components that its loop must hold too */
    i64 n;
} member;

static u32 with_par(rl_fuser *f, ir_op op, u64 par, const u32 *kids, i64 n)
{
    return rl_terms_make(f->t, op, IR_NO_REDUCER, rl_par_payload(f->g, op, par), kids, n);
}

static u32 get_from(rl_fuser *f, u32 loop, u32 comp)
{
    u32 kids[2] = {loop, comp};
    return loop ? rl_terms_make(f->t, IR_get, IR_NO_REDUCER, 0, kids, 2) : 0;
}

static bool needs_any(const rl_reach *r, i64 place, const need *group, i64 but)
{
    const u64 *must = rl_reach_must(r, place);
    for (i64 i = 0; i < group->n; i++)
        if (group->at[i] != but && (must[group->at[i] >> 6] >> (group->at[i] & 63) & 1))
            return true;
    return false;
}

/* The reduction of the item with the smallest body that needs nothing else of the group. */
static member plain_member(rl_fuser *f, i64 item, const need *group)
{
    const rl_reach *r = f->r;
    rl_item it = r->items.at[item];
    const rl_enode *best = NULL;
    for (i64 i = r->first[it.place]; i < r->first[it.place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!n->is_usable || n->label.op != IR_reduce || n->label.par != it.par ||
            needs_any(r, n->kids[0], group, -1))
            continue;
        i64 k = n->kids[0], j = best ? best->kids[0] : 0;
        if (!best || r->forms.size[k] < r->forms.size[j] ||
            (r->forms.size[k] == r->forms.size[j] && r->forms.name[k] < r->forms.name[j]))
            best = n;
    }
    member m = {.n = 0};
    if (!best)
        return m;
    u32 body = rl_fuse_opaque(f, rl_fuse_kid(f, best->node, 0));
    m.left = rl_terms_make(f->t, IR_reduce, best->label.reducer,
                           rl_par_payload(f->g, IR_reduce, it.par), &body, 1);
    m.comp = rl_terms_make(f->t, IR_comp, best->label.reducer,
                           rl_payload_id(f->g, IR_comp, (ir_attr){0}), &body, 1);
    return m;
}

/* The item as a component that uses others of its loop, from the smallest loop that has it so. */
static member rolled_member(rl_fuser *f, i64 item)
{
    const rl_reach *r = f->r;
    rl_item it = r->items.at[item];
    const rl_enode *best = NULL, *loop = NULL;
    member m = {.n = 0};
    for (i64 i = r->first[it.place]; i < r->first[it.place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (n->label.op != IR_get || !n->is_usable)
            continue;
        for (i64 j = r->first[n->kids[0]]; j < r->first[n->kids[0] + 1]; j++) {
            const rl_enode *l = &r->nodes.at[j];
            bool is_rolled = false;
            for (i64 c = r->first[n->kids[1]]; c < r->first[n->kids[1] + 1]; c++)
                is_rolled = is_rolled || r->nodes.at[c].arity > 1;
            if (l->label.op != IR_loop || l->label.par != it.par || !is_rolled ||
                l->arity > RL_MAX_SLOTS)
                continue;
            if (best && (l->arity > loop->arity ||
                         (l->arity == loop->arity &&
                          r->forms.name[l->place] >= r->forms.name[loop->place])))
                continue;
            best = n;
            loop = l;
        }
    }
    if (!best)
        return m;
    /* Operands of the loop as it was made; the component among them. */
    for (i64 i = 0; i < loop->arity; i++) {
        eqf_node kid = rl_fuse_kid(f, loop->node, i);
        u32 id = rl_fuse_opaque(f, kid);
        m.with[m.n++] = id;
        if (rl_place_of(r, eqf_node_class(f->g->engine, kid)) == best->kids[1])
            m.comp = id;
    }
    m.left = m.comp ? get_from(f, with_par(f, IR_loop, it.par, m.with, m.n), m.comp) : 0;
    return m;
}

/* ---- bundles --------------------------------------------------------------------------------- */

static bool add_to_set(u32 *set, i64 *n, u32 id)
{
    for (i64 i = 0; i < *n; i++)
        if (set[i] == id)
            return true;
    if (*n == RL_MAX_SLOTS)
        return false;
    set[(*n)++] = id;
    return true;
}

typedef struct pair {
    u32 left, right;
} pair;
typedef VEC(pair) pairs;

static void join(rl_fuser *f, u64 par, const member *m, i64 n, pairs *out)
{
    u32 set[RL_MAX_SLOTS];
    i64 count = 0, members = 0;
    for (i64 i = 0; i < n; i++) {
        members += m[i].comp != 0;
        for (i64 k = 0; k < m[i].n; k++)
            if (!add_to_set(set, &count, m[i].with[k]))
                return;
        if (m[i].comp && !add_to_set(set, &count, m[i].comp))
            return;
    }
    if (members < 2)
        return;
    u32 loop = with_par(f, IR_loop, par, set, count);
    for (i64 i = 0; i < n; i++) {
        u32 right = m[i].comp ? get_from(f, loop, m[i].comp) : 0;
        if (right && m[i].left && right != m[i].left)
            vec_push(f->a, out, (pair){m[i].left, right});
    }
}

static void bundle(rl_fuser *f, const need *group, pairs *out)
{
    u64 par = f->r->items.at[group->at[0]].par;
    member plain[MOST_ITEMS] = {{0}}, rolled[MOST_ITEMS] = {{0}};
    bool any = false;
    for (i64 i = 0; i < group->n; i++) {
        plain[i] = plain_member(f, group->at[i], group);
        rolled[i] = rolled_member(f, group->at[i]);
        any = any || rolled[i].comp;
        if (!rolled[i].comp)
            rolled[i] = plain[i];
    }
    join(f, par, plain, group->n, out);
    if (any)
        join(f, par, rolled, group->n, out);
}

typedef struct groups {
    VEC(need) seen;
    pairs pairs;
} groups;

static void add_group(rl_fuser *f, groups *all, const need *group)
{
    if (group->n < 2)
        return;
    for (i64 i = 0; i < all->seen.n; i++)
        if (all->seen.at[i].n == group->n && memcmp(all->seen.at[i].at, group->at,
                                                    (size_t)group->n * sizeof *group->at) == 0)
            return;
    vec_push(f->a, &all->seen, *group);
    bundle(f, group, &all->pairs);
}

static void add_groups(rl_fuser *f, groups *all, const need *set)
{
    const rl_reach *r = f->r;
    for (i64 j = 0; j < set->n; j++) {
        need group = {.n = 0};
        for (i64 l = 0; l < set->n; l++)
            if (r->items.at[set->at[l]].par == r->items.at[set->at[j]].par)
                group.at[group.n++] = set->at[l];
        add_group(f, all, &group);
    }
}

/* What the bodies of the item's reductions need over other axes than its own: over its own they are
 * earlier results, which repairs deal with. */
static needs needs_inside(const bundler *b, i64 item)
{
    const rl_reach *r = b->f->r;
    rl_item it = r->items.at[item];
    needs all = {.n = 0};
    for (i64 i = r->first[it.place]; i < r->first[it.place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!n->is_usable || n->label.op != IR_reduce || n->label.par != it.par)
            continue;
        const needs *body = &b->sets[n->kids[0]];
        for (i64 j = 0; j < body->n; j++) {
            need others = {.n = 0};
            for (i64 k = 0; k < body->at[j].n; k++)
                if (r->items.at[body->at[j].at[k]].par != it.par)
                    others.at[others.n++] = body->at[j].at[k];
            name_need(r, &others);
            keep(&all, &others);
        }
    }
    return all.n ? all : (needs){.n = 1};
}

/* Sets of the items over one set of axes that go on from `group`, by the items after `from`. */
static void add_sets(const bundler *b, groups *all, need group, i64 from)
{
    const rl_reach *r = b->f->r;
    for (i64 i = from; i < r->items.n && group.n < MOST_IN_SET && all->seen.n < MOST_GROUPS; i++) {
        if (!b->is_component[i] || (group.n && r->items.at[group.at[0]].par != r->items.at[i].par))
            continue;
        need more = group;
        more.at[more.n++] = (u16)i;
        add_group(b->f, all, &more);
        add_sets(b, all, more, i + 1);
    }
}

bool rl_bundle_round(rl_fuser *f, bool any, rl_fuse_report *report)
{
    bundler b = {.f = f};
    const rl_reach *r = f->r;
    groups all = {0};
    find_needs(&b);
    needs *inside = NEW_N(f->a, needs, r->items.n);
    for (i64 i = 0; i < r->items.n; i++)
        inside[i] = needs_inside(&b, i);
    for (i64 k = 0; k < r->n; k++)
        for (i64 i = 0; i < b.sets[k].n; i++) {
            const need *set = &b.sets[k].at[i];
            add_groups(f, &all, set);
            /* and one level further in: a reduction inside another's loop may share one with
             * others, there or outside */
            needs deep = {.n = 1, .at = {*set}};
            for (i64 j = 0; j < set->n && deep.n > 0; j++)
                deep = both_of(r, &deep, &inside[set->at[j]]);
            for (i64 j = 0; j < deep.n; j++)
                add_groups(f, &all, &deep.at[j]);
        }
    if (any)
        add_sets(&b, &all, (need){.n = 0}, 0);
    bool changed = false;
    for (i64 i = 0; i < all.pairs.n; i++)
        changed = rl_fuse_unite(f, all.pairs.at[i].left, all.pairs.at[i].right, "bundle") || changed;
    report->bundles += changed ? all.seen.n : 0;
    return changed;
}
