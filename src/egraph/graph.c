/* Adding and uniting. Unions are deferred: `eg_union` links, moves the members of the lighter class
 * and notes its use list; rebuild.c repairs the users. */
#include <stdlib.h>

#include "egraph/store.h"

/* ---- hash-cons ----------------------------------------------------------------------------- */

void eg_slot_insert(eg *g, u32 hash, u32 n)
{
    u32 i = hash & g->slot_mask;
    while (g->slot[i])
        i = (i + 1) & g->slot_mask;
    g->slot[i] = (u64)hash << 32 | n;
    g->slot_used++;
}

/* Backward-shift deletion: no tombstones. */
void eg_slot_remove(eg *g, u32 hash, u32 n)
{
    u32 mask = g->slot_mask, i = hash & mask;
    while ((u32)g->slot[i] != n)
        i = (i + 1) & mask;
    for (u32 j = i;;) {
        j = (j + 1) & mask;
        u64 s = g->slot[j];
        if (!s)
            break;
        u32 home = (u32)(s >> 32) & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            g->slot[i] = s;
            i = j;
        }
    }
    g->slot[i] = 0;
    g->slot_used--;
}

/* Below FEW_SLOTS the table grows by four. */
enum { FEW_SLOTS = 1 << 12, MANY_SLOTS = 1 << 19, SOME_SLOTS = 64 };

bool eg_slots_resize(eg *g, u32 size)
{
    u32 old = g->slot ? g->slot_mask + 1 : 0;
    u64 *slot = eg_resize(g, NULL, 0, 8 * (i64)size);
    if (!slot)
        return false;
    memset(slot, 0, 8 * (size_t)size);
    u32 mask = size - 1;
    for (u32 k = 0; k < old;) { /* which slots are empty nobody can foretell: no branch there */
        u64 some[SOME_SLOTS + 1];
        u32 n = 0;
        for (u32 end = MIN(k + SOME_SLOTS, old); k < end; k++) {
            some[n] = g->slot[k];
            n += some[n] != 0;
        }
        for (u32 j = 0; j < n; j++) {
            u32 i = (u32)(some[j] >> 32) & mask;
            i = (i + (slot[i] != 0)) & mask;
            while (slot[i])
                i = (i + 1) & mask;
            slot[i] = some[j];
        }
    }
    eg_free(g, g->slot, 8 * (i64)old);
    g->slot = slot;
    g->slot_mask = mask;
    return true;
}

u32 eg_lookup(const eg *g, u32 head, u32 arity, const u32 *kids)
{
    if (!g->slot)
        return 0;
    bool commutative =
        g->lang->ops.at[g->lang->heads.at[head].op].flags & EQF_COMMUTATIVE;
    u32 hash = key_hash(head, arity, kids, commutative), where = hash & g->slot_mask;
    return probe(g, g->slot, g->slot_mask, hash, head, arity, kids, commutative, &where);
}

/* ---- logs ---------------------------------------------------------------------------------- */

void eg_log_compact(eg *g, u32 op)
{
    eg_log *l = &g->log[op];
    u32 n = 0, ne = 0;
    for (u32 e = 0; e < l->nepochs; e++) {
        u32 start = l->epoch[e].start, stamp = l->epoch[e].stamp;
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        u32 first = n;
        for (u32 k = start; k < end; k++) {
            l->at[n] = l->at[k];
            n += eg_log_counts(g, op, l->at[k], stamp);
        }
        if (n > first)
            l->epoch[ne++] = (eg_epoch){stamp, first};
    }
    l->n = n;
    l->nepochs = ne;
}

static bool log_grow(eg *g, u32 op, u32 more)
{
    eg_log *l = &g->log[op];
    u32 live = op == EG_OP_CLASSES ? g->nclasses : l->alive;
    if (!g->marks && l->n > live + live / 2 + 16) {
        eg_log_compact(g, op);
        if (l->cap - l->n >= more)
            return true;
    }
    eg_vec v = {l->at, l->n, l->cap};
    if (eg_vec_grow(g, &v, l->n + (l->n >> 3) + MAX(more, 8))) {
        l->at = v.at;
        l->cap = v.cap;
        return true;
    }
    if (g->marks)
        return false;
    eg_log_compact(g, op);
    return l->cap - l->n >= more;
}

bool eg_log_open(eg *g, u32 op, u32 more)
{
    eg_log *l = &g->log[op];
    if (l->cap - l->n < more && !log_grow(g, op, more))
        return false;
    if (l->nepochs && l->epoch[l->nepochs - 1].stamp == g->now)
        return true;
    if (l->nepochs == l->epoch_cap) {
        u32 cap = l->epoch_cap ? 2 * l->epoch_cap : 4;
        eg_epoch *p = eg_resize(g, l->epoch, (i64)sizeof *p * l->epoch_cap, (i64)sizeof *p * cap);
        if (!p)
            return false;
        l->epoch = p;
        l->epoch_cap = cap;
    }
    l->epoch[l->nepochs++] = (eg_epoch){g->now, l->n};
    return true;
}

typedef struct stamped {
    u32 stamp, id;
} stamped;

static int by_stamp(const void *a, const void *b)
{
    const stamped *x = a, *y = b;
    return x->stamp != y->stamp ? (x->stamp < y->stamp ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

bool eg_log_repair(eg *g, u32 op)
{
    eg_log *l = &g->log[op];
    i64 cap = op == EG_OP_CLASSES ? g->nclasses : l->alive, n = 0;
    stamped *all = eg_resize(g, NULL, 0, (i64)sizeof *all * MAX(cap, 1));
    if (!all)
        return false;
    if (op == EG_OP_CLASSES) {
        for (u32 c = 1; c < g->class_ids; c++) {
            if (g->parent[c] & EG_BODY)
                all[n++] = (stamped){eg_body_of(g, c)->stamp >> 2, c};
        }
    } else {
        u32 seg = MIN(g->lang->ops.at[op].arity, EG_LONG);
        for (u32 i = seg == 0; i < g->seg[seg].n;) {
            u32 id = seg << 29 | i;
            const u32 *rec = eg_rec(g, id);
            if (seg == EG_LONG && !rec[N_HEAD]) { /* padding to the end of a chunk */
                i++;
                continue;
            }
            if (!(rec[N_STAMP] & S_DEAD) && g->lang->heads.at[rec[N_HEAD]].op == op)
                all[n++] = (stamped){rec[N_STAMP] >> S_TIME, id};
            i += seg == EG_LONG ? 1 + eg_node_arity(g, id, rec) : 1;
        }
    }
    qsort(all, (size_t)n, sizeof *all, by_stamp);
    l->n = l->nepochs = 0;
    l->broken = false;
    u32 now = g->now;
    for (i64 i = 0; i < n && !l->broken; i++) {
        g->now = all[i].stamp;
        log_push(g, op, all[i].id);
    }
    g->now = now;
    eg_free(g, all, (i64)sizeof *all * MAX(cap, 1));
    return !l->broken;
}

bool eg_logs_room(eg *g)
{
    u32 want = (u32)g->lang->ops.n;
    if (LIKELY(g->nlogs >= want))
        return true;
    u32 cap = MAX(want, g->nlogs + g->nlogs / 2);
    eg_log *p = eg_resize(g, g->log, (i64)sizeof *p * g->nlogs, (i64)sizeof *p * cap);
    if (!p)
        return false;
    memset(p + g->nlogs, 0, sizeof *p * (cap - g->nlogs));
    g->log = p;
    g->nlogs = cap;
    return true;
}

/* ---- stamps -------------------------------------------------------------------------------- */

static inline void class_stamp(eg *g, u32 c, eg_body *b)
{
    if (b->stamp >> 2 == g->now)
        return;
    b->stamp = g->now << 2 | (b->stamp & S_FLAGS);
    log_push(g, EG_OP_CLASSES, c);
}

void eg_enqueue(eg *g, u32 c, u32 bits)
{
    eg_body *b = eg_body_of(g, c);
    if ((b->stamp & (bits | Q_QUEUED)) == (bits | Q_QUEUED))
        return;
    if (UNLIKELY(g->marks))
        eg_journal_body(g, g->parent[c] & ~EG_BODY);
    if (!(b->stamp & Q_QUEUED))
        g->queue.at[g->queue.n++] = c; /* reserved */
    b->stamp |= bits | Q_QUEUED;
}

void eg_kill(eg *g, u32 n, u32 *rec)
{
    eg_log *l = &g->log[g->lang->heads.at[rec[N_HEAD]].op];
    bool hidden = rec[N_STAMP] & S_HIDDEN;
    set_word(g, n, rec, N_STAMP, rec[N_STAMP] | S_DEAD);
    l->alive--;
    l->visible -= !hidden;
    g->alive--;
    g->visible -= !hidden;
    g->dead++;
}

void eg_hide(eg *g, u32 n)
{
    u32 *rec = eg_rec(g, n);
    if (rec[N_STAMP] & S_FLAGS)
        return;
    set_word(g, n, rec, N_STAMP, rec[N_STAMP] | S_HIDDEN);
    g->log[g->lang->heads.at[rec[N_HEAD]].op].visible--;
    g->visible--;
}

/* ---- analyses ------------------------------------------------------------------------------ */

/* n, m: e-nodes of the two sides, for the diagnostic of a conflict. */
static unsigned data_merge(eg *g, u32 k, u32 body, const void *from, u32 n, u32 m)
{
    const eqf_analysis *a = &g->analysis[k];
    void *into = eg_at(&g->data[k], body);
    if (UNLIKELY(g->marks))
        eg_journal_data(g, k, body);
    unsigned bits = a->merge(a->user, g, into, from);
    if ((bits & EQF_CONFLICT) && !g->conflict) {
        g->conflict = EQF_E_CONTRADICTION;
        g->refused.analysis = k;
        g->refused.node[0] = n;
        g->refused.node[1] = m;
        g->refused.rule = g->rule_name;
    }
    return bits;
}

/* Data of the e-node joins that of its class. */
void eg_remake(eg *g, u32 n, u32 c, bool fresh)
{
    for (u32 k = 0; k < g->nanalyses; k++) {
        const eqf_analysis *a = &g->analysis[k];
        u32 body = g->parent[c] & ~EG_BODY;
        if (fresh) {
            void *into = eg_at(&g->data[k], body);
            memset(into, 0, a->size);
            a->make(a->user, g, (eqf_node){n}, into);
            continue;
        }
        u64 made[16] = {0};
        a->make(a->user, g, (eqf_node){n}, made);
        if (data_merge(g, k, body, made, eg_body_at(g, body)->members, n) & EQF_INTO_CHANGED)
            eg_enqueue(g, c, Q_DATA);
    }
}

void eg_join_data(eg *g, u32 k, u32 c, const void *data)
{
    u32 body = g->parent[c] & ~EG_BODY;
    if (data_merge(g, k, body, data, eg_body_at(g, body)->members, 0) & EQF_INTO_CHANGED)
        eg_enqueue(g, c, Q_DATA);
}

/* ---- add ----------------------------------------------------------------------------------- */

/* A record does not cross a chunk: the rest of one that is too short is padded with empty units. */
static bool reserve_long(eg *g, u32 arity)
{
    eg_col *c = &g->seg[EG_LONG];
    if (EG_CHUNK - (c->n & (EG_CHUNK - 1)) < arity + 1) {
        while (c->n & (EG_CHUNK - 1)) {
            if (!eg_col_room(g, c))
                return false;
            memset(eg_at(c, c->n), 0, c->elem);
            c->n++;
        }
    }
    while (c->cap < c->n + arity + 1) {
        if (!eg_col_grow(g, c))
            return false;
    }
    return true;
}

static bool col_room(eg *g, eg_col *c, u32 n)
{
    while (UNLIKELY(c->n + n > c->cap)) {
        if (!eg_col_grow(g, c))
            return false;
    }
    return true;
}

static bool reserve_explained(eg *g, u32 seg, u32 words, u32 n)
{
    u32 want = g->seg[seg].n + words;
    while (g->edge[seg].cap < want) {
        if (!eg_col_grow(g, &g->edge[seg]))
            return false;
    }
    while (seg && g->orig[seg].cap < want) {
        if (!eg_col_grow(g, &g->orig[seg]))
            return false;
    }
    g->rep.n = g->class_ids;
    return col_room(g, &g->rep, n);
}

bool eg_reserve(eg *g, u32 op, u32 arity, u32 n)
{
    u32 seg = MIN(arity, EG_LONG);
    if (UNLIKELY(op >= g->nlogs) && !eg_logs_room(g))
        return false;
    u32 slots = g->slot ? g->slot_mask + 1 : 0, size = MAX(slots, 64);
    while (4 * ((u64)g->slot_used + n) > 3 * (u64)size)
        size *= size < FEW_SLOTS ? 4 : 2;
    if (UNLIKELY(size != slots)) {
        /* an iteration that has it grow twice will probably have it grow a third time; after that leap
         * it counts anew, for a table that is far too large costs more than one that grows */
        bool leap = g->grown == g->now && size >= MANY_SLOTS && eg_slots_resize(g, 2 * size);
        if (!leap && !eg_slots_resize(g, size))
            return false;
        g->grown = leap ? 0 : g->now;
    }
    if (seg == EG_LONG ? !reserve_long(g, arity) : !col_room(g, &g->seg[seg], n))
        return false;
    if (UNLIKELY(g->class_ids + n > g->parent_cap)) {
        eg_vec v = {g->parent, g->class_ids, g->parent_cap};
        if (!eg_vec_grow(g, &v, g->class_ids + g->class_ids / 8 + MAX(n, 16)))
            return false;
        g->parent = v.at;
        g->parent_cap = v.cap;
        g->parent[0] = 0;
    }
    if (g->free_bodies.n < n || g->marks) {
        if (!col_room(g, &g->body, n))
            return false;
        for (u32 k = 0; k < g->nanalyses; k++) {
            if (!col_room(g, &g->data[k], n))
                return false;
        }
    }
    if (g->nanalyses && !eg_vec_room(g, &g->queue, 2 * n))
        return false;
    if ((!log_ready(g, op, n) && !eg_log_open(g, op, n)) ||
        (!log_ready(g, EG_OP_CLASSES, n) && !eg_log_open(g, EG_OP_CLASSES, n)))
        return false;
    if (g->options.explain && !reserve_explained(g, seg, seg == EG_LONG ? arity + 1 : n, n))
        return false;
    /* an add can still be refused; a union under way cannot */
    return !g->marks || eg_vec_room(g, &g->journal, 64 + 24 * arity);
}

static u32 add_hashed(eg *g, u32 op, u32 head, u32 arity, const u32 *kids, bool commutative,
                      const u32 *kid_nodes, u32 into, bool *is_new)
{
    u32 hash = key_hash(head, arity, kids, commutative), where = hash & g->slot_mask;
    *is_new = false;
    if (LIKELY(g->slot != NULL)) {
        u32 n = probe(g, g->slot, g->slot_mask, hash, head, arity, kids, commutative, &where);
        if (n)
            return n;
    }
    u32 mask = g->slot_mask;
    if (UNLIKELY(!eg_reserve(g, op, arity, 1)))
        return 0;
    if (UNLIKELY(mask != g->slot_mask || g->slot_used == 0)) {
        where = hash & g->slot_mask;
        while (g->slot[where])
            where = (where + 1) & g->slot_mask;
    }
    *is_new = true;
    if (arity == 2)
        return eg_insert(g, op, head, 2, kids, kid_nodes, hash, where, into);
    return eg_insert(g, op, head, arity, kids, kid_nodes, hash, where, into);
}

static u32 add_canonical(eg *g, u32 head, u32 arity, u32 *kids, const u32 *kid_nodes, u32 into,
                         bool *is_new)
{
    const eg_lang *l = g->lang;
    u32 op = l->heads.at[head].op;
    const eg_op *o = &l->ops.at[op];
    if (UNLIKELY(o->normalise != NULL) && o->normalise(o->normalise_user, g, &head, kids)) {
        op = l->heads.at[head].op;
        o = &l->ops.at[op];
        arity = o->arity;
        kid_nodes = NULL;
    }
    bool commutative = o->flags & EQF_COMMUTATIVE;
    return add_hashed(g, op, head, arity, kids, commutative, kid_nodes, into, is_new);
}

u32 eg_add(eg *g, u32 head, u32 arity, const u32 *kids, const u32 *kid_nodes, u32 into,
           bool *is_new)
{
    if (LIKELY(arity <= 4)) {
        u32 canonical[4];
        for (u32 i = 0; i < arity; i++)
            canonical[i] = eg_find_halving(g, kids[i]);
        return add_canonical(g, head, arity, canonical, kid_nodes, into, is_new);
    }
    u32 canonical[EG_MAX_ARITY];
    for (u32 i = 0; i < arity; i++)
        canonical[i] = eg_find_halving(g, kids[i]);
    return add_canonical(g, head, arity, canonical, kid_nodes, into, is_new);
}

/* ---- union --------------------------------------------------------------------------------- */

bool eg_union_reserve_n(eg *g, u32 n)
{
    if (!eg_vec_room(g, &g->dirty, 2 * EG_LISTS + 4 + 2 * n))
        return false;
    if (g->nanalyses && !eg_vec_room(g, &g->queue, 2 * n))
        return false;
    if (!g->marks && !eg_vec_room(g, &g->free_bodies, n))
        return false;
    return !g->marks || eg_vec_room(g, &g->journal, 256 * n);
}

bool eg_union_reserve(eg *g)
{
    return eg_union_reserve_n(g, 1);
}

void eg_touch_class(eg *g, u32 c)
{
    eg_body *b = eg_body_of(g, c);
    u32 slot;
    for (u32 cell = b->uses; cell; cell = eg_cell_next(g, cell)) {
        u32 n = eg_cell_node(g, cell, &slot);
        u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec, S_MADE);
    }
    for (u32 n = b->members; n; n = eg_rec(g, n)[N_NEXT]) {
        u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec, S_MADE);
    }
}

bool eg_union(eg *g, u32 a, u32 b)
{
    u32 w = eg_find_halving(g, a), l = eg_find_halving(g, b);
    if (w == l)
        return false;
    eg_body *W = eg_body_of(g, w), *L = eg_body_of(g, l);
    u32 ww = W->nmembers + W->nuses, wl = L->nmembers + L->nuses;
    if (wl > ww || (wl == ww && l < w)) {
        u32 c = w;
        w = l;
        l = c;
        eg_body *B = W;
        W = L;
        L = B;
    }
    u32 wb = g->parent[w] & ~EG_BODY, lb = g->parent[l] & ~EG_BODY;
    if (UNLIKELY(g->marks)) {
        eg_journal_body(g, wb);
        eg_journal_body(g, lb);
        eg_journal_parent(g, l);
    }
    bool new_symbol = (L->mask & 1) && !(W->mask & 1);
    u32 winner = W->members, loser = L->members;
    for (u32 n = L->members; n;) { /* L's members come first in the list of W */
        u32 *rec = eg_rec(g, n);
        set_word(g, n, rec, N_CLASS, w);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec, S_MOVED);
        u32 after = rec[N_NEXT];
        if (!after)
            set_word(g, n, rec, N_NEXT, W->members);
        n = after;
    }
    W->members = L->members;
    W->nmembers += L->nmembers;
    W->mask |= L->mask;
    W->stamp |= L->stamp & S_FLAGS; /* a queued class passes on what is owed */
    if (L->uses) {
        g->dirty.at[g->dirty.n++] = l;
        g->dirty.at[g->dirty.n++] = L->uses;
    }
    unsigned changed = 0;
    for (u32 k = 0; k < g->nanalyses; k++)
        changed |= data_merge(g, k, wb, eg_at(&g->data[k], lb), winner, loser);
    g->parent[l] = w;
    g->nclasses--;
    g->unions++;
    class_stamp(g, w, W);
    if (!g->marks)
        g->free_bodies.at[g->free_bodies.n++] = lb;
    if (UNLIKELY(g->nanalyses)) {
        if (changed & EQF_INTO_CHANGED)
            eg_enqueue(g, w, Q_DATA);
        else if (g->has_modify)
            eg_enqueue(g, w, 0);
    }
    if (new_symbol)
        eg_touch_class(g, w);
    return true;
}

