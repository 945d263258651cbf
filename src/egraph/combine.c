/* Meet and join of two e-graphs over one language. The join has the e-nodes and equalities of both.
 * In the meet a class stands for a pair of classes, one of each, that have a term in common:
 * an e-node is in it when both have it over children that are pairs themselves. */
#include "egraph/egraph.h"

typedef struct partner {
    u32 other, out; /* class of b, class of the result */
} partner;

typedef struct combine {
    eqf_ctx *ctx;
    arena *a;
    eg *left, *right, *out;
    VEC(partner) *partners; /* by class of left */
} combine;

static eqf_status new_like(eg *g, eg **out)
{
    eqf_status s = eqf_egraph_new(g->lang, &g->options, out);
    for (u32 k = 0; !s && k < g->nanalyses; k++)
        s = eqf_analysis_add(*out, &g->analysis[k], NULL);
    return s;
}

static u32 first_node(const eg *g, u32 seg)
{
    (void)g;
    return seg == 0;
}

/* Index of the next live record of a segment at or after i; seg.n at the end. */
static u32 live_from(const eg *g, u32 seg, u32 i)
{
    while (i < g->seg[seg].n) {
        u32 n = seg << 29 | i;
        const u32 *rec = eg_rec(g, n);
        if (seg == EG_LONG && !rec[N_HEAD]) {
            i++;
            continue;
        }
        if (!(rec[N_STAMP] & S_DEAD))
            return i;
        i += seg == EG_LONG ? 1 + eg_node_arity(g, n, rec) : 1;
    }
    return i;
}

static void put(combine *k, u32 *class_out, u32 head, u32 arity, const u32 *kids, bool hidden)
{
    bool is_new;
    eg *g = k->out;
    u32 into = *class_out ? eg_find(g, *class_out) : 0;
    if (!eg_union_reserve(g))
        eqf_rethrow(k->ctx, eg_failed(g, "combining e-graphs"));
    u32 n = eg_add(g, head, arity, kids, NULL, into, &is_new);
    if (!n)
        eqf_rethrow(k->ctx, eg_failed(g, "combining e-graphs"));
    u32 c = eg_rec(g, n)[N_CLASS];
    if (into && is_new && g->options.explain)
        eg_link(g, *(u32 *)eg_at(&g->rep, *class_out), n, EG_WHY_GIVEN);
    if (into && eg_find(g, c) != into) {
        if (g->options.explain)
            eg_link(g, *(u32 *)eg_at(&g->rep, *class_out), n, EG_WHY_GIVEN);
        eg_union(g, into, c);
    }
    if (hidden && is_new)
        eg_hide(g, n);
    if (!*class_out)
        *class_out = c;
}

/* Copies `g` into the result; passes until nothing more finds its children. */
static void copy_graph(combine *k, const eg *g)
{
    u32 *map = NEW_N(k->a, u32, g->class_ids), kids[EG_MAX_ARITY];
    u8 *done[6];
    for (u32 seg = 0; seg < 6; seg++)
        done[seg] = NEW_N(k->a, u8, g->seg[seg].n);
    for (bool progress = true; progress;) {
        progress = false;
        for (u32 seg = 0; seg < 6; seg++) {
            for (u32 i = live_from(g, seg, first_node(g, seg)); i < g->seg[seg].n;) {
                u32 n = seg << 29 | i;
                const u32 *rec = eg_rec(g, n);
                u32 arity = eg_node_arity(g, n, rec), j = 0;
                for (; j < arity && !done[seg][i]; j++) {
                    kids[j] = map[rec[N_KIDS + eg_step(n) * j]];
                    if (!kids[j])
                        break;
                }
                if (!done[seg][i] && j == arity) {
                    put(k, &map[rec[N_CLASS]], rec[N_HEAD], arity, kids,
                        rec[N_STAMP] & S_HIDDEN);
                    done[seg][i] = 1;
                    progress = true;
                }
                i = live_from(g, seg, i + (seg == EG_LONG ? 1 + arity : 1));
            }
        }
    }
}

/* Both have the e-node, over children that are paired as `out` says; true when something was added. */
static bool meet_pair(combine *k, const u32 *rec, u32 arity, u32 m, const u32 *out)
{
    const u32 *other = eg_rec(k->right, m);
    bool hidden = (rec[N_STAMP] & S_HIDDEN) && (other[N_STAMP] & S_HIDDEN);
    u32 c = rec[N_CLASS], d = other[N_CLASS];
    for (i64 p = 0; p < k->partners[c].n; p++) {
        partner *at = &k->partners[c].at[p];
        if (at->other != d)
            continue;
        u32 before = k->out->alive, classes = k->out->nclasses;
        put(k, &at->out, rec[N_HEAD], arity, out, hidden);
        return k->out->alive != before || k->out->nclasses != classes;
    }
    partner fresh = {d, 0};
    put(k, &fresh.out, rec[N_HEAD], arity, out, hidden);
    vec_push(k->a, &k->partners[c], fresh);
    return true;
}

/* More ways to pair the children than the other graph has e-nodes of this arity: look at those. */
static bool meet_nodes(combine *k, u32 n, const u32 *rec, u32 arity, u32 *out)
{
    u32 seg = n >> 29;
    bool any = false;
    for (u32 i = live_from(k->right, seg, 0); i < k->right->seg[seg].n;) {
        u32 m = seg << 29 | i, j = 0;
        const u32 *other = eg_rec(k->right, m);
        i = live_from(k->right, seg, i + (seg == EG_LONG ? 1 + eg_node_arity(k->right, m, other) : 1));
        for (; other[N_HEAD] == rec[N_HEAD] && j < arity; j++) {
            u32 kid = rec[N_KIDS + eg_step(n) * j], with = other[N_KIDS + eg_step(m) * j];
            i64 p = 0, count = k->partners[kid].n;
            while (p < count && k->partners[kid].at[p].other != with)
                p++;
            if (p == count)
                break;
            out[j] = k->partners[kid].at[p].out;
        }
        if (j == arity)
            any |= meet_pair(k, rec, arity, m, out);
    }
    return any;
}

/* All ways to pair the children of n from slot j on; true when something was added. */
static bool meet_kids(combine *k, u32 n, const u32 *rec, u32 arity, u32 j, u32 *right, u32 *out)
{
    if (j < arity) {
        bool any = false;
        u32 kid = rec[N_KIDS + eg_step(n) * j];
        for (i64 p = 0; p < k->partners[kid].n; p++) {
            right[j] = k->partners[kid].at[p].other;
            out[j] = k->partners[kid].at[p].out;
            any |= meet_kids(k, n, rec, arity, j + 1, right, out);
        }
        return any;
    }
    u32 m = eg_lookup(k->right, rec[N_HEAD], arity, right);
    return m && meet_pair(k, rec, arity, m, out);
}

static void meet_graphs(combine *k)
{
    const eg *g = k->left;
    u32 right[EG_MAX_ARITY], out[EG_MAX_ARITY];
    k->partners = arena_alloc_n(k->a, g->class_ids, (i64)sizeof *k->partners);
    for (bool progress = true; progress;) {
        progress = false;
        for (u32 seg = 0; seg < 6; seg++) {
            for (u32 i = live_from(g, seg, first_node(g, seg)); i < g->seg[seg].n;) {
                u32 n = seg << 29 | i;
                const u32 *rec = eg_rec(g, n);
                u32 arity = eg_node_arity(g, n, rec);
                f64 ways = 1;
                for (u32 j = 0; j < arity; j++)
                    ways *= (f64)k->partners[rec[N_KIDS + eg_step(n) * j]].n;
                if (arity > 2 && ways > k->right->seg[seg].n) /* two may be exchanged */
                    progress |= meet_nodes(k, n, rec, arity, out);
                else
                    progress |= meet_kids(k, n, rec, arity, 0, right, out);
                i = live_from(g, seg, i + (seg == EG_LONG ? 1 + arity : 1));
            }
        }
    }
}

static eqf_status combine_graphs(eqf_egraph *a, eqf_egraph *b, bool meet, eqf_egraph **out)
{
    *out = NULL;
    if (a->lang != b->lang)
        return eqf_report(a->ctx, EQF_E_ARGUMENT, NULL, meet ? "eqf_meet" : "eqf_join",
                          "the e-graphs have different languages");
    eqf_status s = eqf_rebuild(a);
    if (!s)
        s = eqf_rebuild(b);
    eg *fresh = NULL;
    if (!s)
        s = new_like(a, &fresh);
    arena *scratch = s ? NULL : arena_new(a->ctx, 0);
    if (!s && !scratch)
        s = EQF_E_NO_MEMORY;
    if (!s) {
        trap t;
        TRY(a->ctx, t)
        {
            combine *k = NEW(scratch, combine);
            *k = (combine){.ctx = a->ctx, .a = scratch, .left = a, .right = b, .out = fresh};
            if (meet) {
                meet_graphs(k);
            } else {
                copy_graph(k, a);
                copy_graph(k, b);
            }
            s = eqf_rebuild(fresh);
            if (s)
                eqf_rethrow(a->ctx, s);
        }
        s = t.status;
    }
    arena_free(scratch);
    if (s)
        eqf_egraph_free(fresh);
    else
        *out = fresh;
    return s;
}

eqf_status eqf_meet(eqf_egraph *a, eqf_egraph *b, eqf_egraph **out)
{
    return combine_graphs(a, b, true, out);
}

eqf_status eqf_join(eqf_egraph *a, eqf_egraph *b, eqf_egraph **out)
{
    return combine_graphs(a, b, false, out);
}
