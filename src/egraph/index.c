/* Indexes made while the e-graph is frozen for a search, once walking lists has cost about as much as
 * making them. They are scratch: refused memory only makes a search slower. */
#include "egraph/rules.h"
#include "egraph/store.h"

enum { PATIENCE = 128 };

/* ---- by class, by child -------------------------------------------------------------------- */

static i64 range_size(const eg_class_index *x)
{
    return (i64)sizeof(eg_range) * x->class_ids;
}

static void release(eg *g, eg_class_index *x)
{
    i64 kids = 4 * (i64)x->arity * x->n, nodes = 4 * (i64)x->n;
    i64 held = (x->range ? range_size(x) : 0) + (x->kids ? kids : 0) + (x->node ? nodes : 0);
    eg_free(g, x->range, range_size(x));
    eg_free(g, x->kids, kids);
    eg_free(g, x->node, nodes);
    g->scratch_bytes -= held;
    x->range = NULL;
    x->kids = x->node = NULL;
}

static bool reserve(eg *g, eg_class_index *x, bool nodes)
{
    x->range = eg_resize(g, NULL, 0, range_size(x));
    x->kids = eg_resize(g, NULL, 0, 4 * (i64)x->arity * x->n);
    x->node = nodes ? eg_resize(g, NULL, 0, 4 * (i64)x->n) : NULL;
    g->scratch_bytes += (x->range ? range_size(x) : 0) +
                        (x->kids ? 4 * (i64)x->arity * x->n : 0) + (x->node ? 4 * (i64)x->n : 0);
    if (x->range && x->kids && (x->node || !nodes))
        return true;
    release(g, x);
    return false;
}

static inline bool is_live(u32 stamp, u32 time)
{
    return (stamp & ~(u32)S_WHAT) == time << S_TIME;
}

/* The bits of a stamp of this time that say that the tuple is new. */
static u32 new_bits(const eg_class_index *x, u32 time)
{
    return time > x->watermark ? UINT32_MAX : time == x->watermark ? x->watch : 0;
}

/* The log lists e-nodes in order of their stamps, and mostly as they lie in memory. The first pass
 * counts, the second writes. */
static inline __attribute__((always_inline)) void pass(eg *g, eg_class_index *x, const u32 arity,
                                                       const bool writes)
{
    const eg_log *l = &g->log[x->op];
    char *const *chunk = g->seg[arity].chunk;
    const u32 key = x->by == EG_ROOT ? N_CLASS : N_KIDS + 2 * x->by;
    u32 column[4] = {N_KIDS, N_KIDS + 2, N_KIDS + 4, N_KIDS + 6};
    if (x->by != EG_ROOT)
        column[x->by] = N_CLASS;
    for (u32 e = 0; e < l->nepochs; e++) {
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n, time = l->epoch[e].stamp;
        u32 fresh = new_bits(x, time);
        for (u32 k = l->epoch[e].start; k < end; k++) {
            const u32 *rec = rec_of_arity(chunk, l->at[k], arity);
            if (!is_live(rec[N_STAMP], time))
                continue;
            eg_range *r = &x->range[rec[key]];
            u32 *at = rec[N_STAMP] & fresh ? &r->end : &r->fresh, i = (*at)++;
            if (!writes)
                continue;
            for (u32 j = 0; j < arity; j++)
                x->kids[(size_t)i * arity + j] = rec[column[j]];
            if (x->node)
                x->node[i] = l->at[k];
        }
    }
}

static void pass_any(eg *g, eg_class_index *x, bool writes)
{
    switch (x->arity) {
    case 1: writes ? pass(g, x, 1, true) : pass(g, x, 1, false); break;
    case 2: writes ? pass(g, x, 2, true) : pass(g, x, 2, false); break;
    default: writes ? pass(g, x, x->arity, true) : pass(g, x, x->arity, false);
    }
}

static void make(eg *g, eg_class_index *x)
{
    memset(x->range, 0, (size_t)range_size(x));
    pass_any(g, x, false);
    u32 at = 0;
    for (u32 c = 0; c < x->class_ids; c++) {
        eg_range *r = &x->range[c];
        u32 old = r->fresh, fresh = r->end;
        r->first = r->fresh = at;
        r->end = at += old;
        at += fresh;
    }
    pass_any(g, x, true);
}

bool eg_index_room(eg *g, eg_indexes *all, u32 more)
{
    if (all->cap - all->n >= more)
        return true;
    u32 cap = MAX(8, 2 * all->cap + more);
    eg_class_index *p = eg_resize(g, all->at, (i64)sizeof *p * all->cap, (i64)sizeof *p * cap);
    if (!p) {
        g->fail = EQF_OK;
        return false;
    }
    g->scratch_bytes += (i64)sizeof *p * (cap - all->cap);
    all->at = p;
    all->cap = cap;
    return true;
}

static eg_class_index *entry(eg_indexes *all, u32 op, u32 by, u32 watch)
{
    for (u32 i = 0; i < all->n; i++) {
        eg_class_index *x = &all->at[i];
        if (x->op == op && x->by == by && x->watch == watch)
            return x;
    }
    if (all->n == all->cap)
        return NULL;
    all->at[all->n] = (eg_class_index){.op = op, .by = by, .watch = watch};
    return &all->at[all->n++];
}

const eg_class_index *eg_index_ask(eg *g, eg_indexes *all, u32 op, u32 by, u32 watch, u32 watermark,
                                   bool nodes, u32 work)
{
    eg_class_index *x = entry(all, op, by, watch);
    if (!x || (x->range && x->watermark == watermark))
        return x;
    x->work += work;
    if (x->work < PATIENCE * (1 + (u64)(g->log[op].alive + g->class_ids) / 512))
        return NULL;
    x->work = 0;
    if (x->range)
        release(g, x);
    x->watermark = watermark;
    x->class_ids = g->class_ids;
    x->arity = g->lang->ops.at[op].arity;
    x->n = MAX(g->log[op].visible, 1);
    if (!reserve(g, x, nodes)) {
        g->fail = EQF_OK;
        return NULL;
    }
    make(g, x);
    return x;
}

void eg_index_drop(eg *g, eg_indexes *all)
{
    for (u32 i = 0; i < all->n; i++)
        release(g, &all->at[i]);
    all->n = 0;
}

void eg_index_free(eg *g, eg_indexes *all)
{
    eg_index_drop(g, all);
    eg_free(g, all->at, (i64)sizeof *all->at * all->cap);
    g->scratch_bytes -= (i64)sizeof *all->at * all->cap;
    *all = (eg_indexes){0};
}

/* ---- by class and child -------------------------------------------------------------------- */

void eg_pair_make(eg *g, eg_pair_index *x, u32 op, u32 slot)
{
    const eg_log *l = &g->log[op];
    u32 slots = 64, n = 0;
    while (slots < 2 * l->alive && slots < 1u << 24)
        slots *= 2;
    i64 size = 4 * ((i64)slots + 2 * (i64)l->alive + 2);
    u32 *heads = eg_resize(g, NULL, 0, size);
    if (!heads) {
        g->fail = EQF_OK;
        return;
    }
    g->scratch_bytes += size;
    memset(heads, 0, 4 * (size_t)slots);
    *x = (eg_pair_index){heads, heads + slots, slots - 1, slot, size};
    for (u32 e = 0; e < l->nepochs; e++) {
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k++) {
            const u32 *rec = eg_rec(g, l->at[k]);
            if (!is_live(rec[N_STAMP], l->epoch[e].stamp))
                continue;
            u32 kid = rec[N_KIDS + eg_step(l->at[k]) * slot];
            u32 h = eg_pair_hash(rec[N_CLASS], kid) & x->mask;
            n++;
            x->chain[2 * n] = l->at[k];
            x->chain[2 * n + 1] = heads[h];
            heads[h] = n;
        }
    }
}

void eg_pair_free(eg *g, eg_pair_index *x)
{
    if (!x->heads)
        return;
    eg_free(g, x->heads, x->size);
    g->scratch_bytes -= x->size;
    *x = (eg_pair_index){0};
}
