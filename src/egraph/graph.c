/* Adding, uniting and rebuilding.
 *
 * Unions are deferred: `eg_union` links, moves the members of the lighter class and notes its use
 * list; `eg_rebuild` repairs the users of each loser until nothing is left. No pass visits all
 * classes, none rebuilds an index; the one exception is the sweep of dead records, paid for by the
 * deaths since the last one. (Downey, Sethi, Tarjan 1980; Willsey et al. 2021; egraph.md 3.) */
#include <stdlib.h>

#include "egraph/egraph.h"

/* ---- hash-cons ----------------------------------------------------------------------------- */

static inline u64 mix(u64 h, u32 x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static inline u32 hash2(u32 head, u32 a, u32 b)
{
    u64 h = ((u64)head << 32 | a) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 29 ^ b) * 0xBF58476D1CE4E5B9u;
    return (u32)(h >> 32);
}

u32 eg_hash(u32 head, u32 arity, const u32 *kids, bool commutative)
{
    if (LIKELY(arity == 2)) {
        u32 a = kids[0], b = kids[1];
        return commutative && a > b ? hash2(head, b, a) : hash2(head, a, b);
    }
    u64 h = (head + 1u) * 0xD6E8FEB86659FD93u;
    for (u32 i = 0; i < arity; i++)
        h = mix(h, kids[i]);
    h *= 0xBF58476D1CE4E5B9u;
    return (u32)(h >> 32);
}

static inline u32 hash_rec(const eg *g, u32 n, const u32 *rec, u32 arity)
{
    const eg_lang *l = g->lang;
    bool commutative = l->ops.at[l->heads.at[rec[N_HEAD]].op].flags & EQF_COMMUTATIVE;
    if (arity == 2)
        return eg_hash(rec[N_HEAD], 2, (u32[]){rec[N_KIDS], rec[N_KIDS + 2]}, commutative);
    u32 step = eg_step(n);
    u64 h = (rec[N_HEAD] + 1u) * 0xD6E8FEB86659FD93u;
    for (u32 i = 0; i < arity; i++)
        h = mix(h, rec[N_KIDS + step * i]);
    h *= 0xBF58476D1CE4E5B9u;
    return (u32)(h >> 32);
}

static inline bool same_key(const eg *g, u32 n, u32 head, u32 arity, const u32 *kids,
                            bool commutative)
{
    const u32 *rec = eg_rec(g, n);
    if (rec[N_HEAD] != head)
        return false;
    if (LIKELY(arity == 2)) {
        u32 a = rec[N_KIDS], b = rec[N_KIDS + 2];
        return (a == kids[0] && b == kids[1]) || (commutative && a == kids[1] && b == kids[0]);
    }
    u32 step = eg_step(n);
    for (u32 i = 0; i < arity; i++) {
        if (rec[N_KIDS + step * i] != kids[i])
            return false;
    }
    return true;
}

static inline u32 probe(const eg *g, u32 hash, u32 head, u32 arity, const u32 *kids,
                        bool commutative, u32 *where)
{
    u32 i = hash & g->slot_mask;
    for (u64 s; (s = g->slot[i]) != 0; i = (i + 1) & g->slot_mask) {
        if ((u32)(s >> 32) == hash && same_key(g, (u32)s, head, arity, kids, commutative))
            return (u32)s;
    }
    *where = i;
    return 0;
}

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

static bool slots_resize(eg *g, u32 size)
{
    u32 old = g->slot ? g->slot_mask + 1 : 0;
    u64 *slot = eg_resize(g, NULL, 0, 8 * (i64)size);
    if (!slot)
        return false;
    memset(slot, 0, 8 * (size_t)size);
    u32 mask = size - 1;
    for (u32 k = 0; k < old; k++) {
        u64 s = g->slot[k];
        if (!s)
            continue;
        u32 i = (u32)(s >> 32) & mask;
        while (slot[i])
            i = (i + 1) & mask;
        slot[i] = s;
    }
    eg_free(g, g->slot, 8 * (i64)old);
    g->slot = slot;
    g->slot_mask = mask;
    return true;
}

u32 eg_lookup(const eg *g, u32 head, u32 arity, const u32 *kids)
{
    u32 where;
    if (!g->slot)
        return 0;
    bool commutative =
        g->lang->ops.at[g->lang->heads.at[head].op].flags & EQF_COMMUTATIVE;
    return probe(g, eg_hash(head, arity, kids, commutative), head, arity, kids, commutative,
                 &where);
}

/* ---- logs ---------------------------------------------------------------------------------- */

static bool entry_counts(const eg *g, u32 op, u32 id, u32 stamp)
{
    if (op == EG_OP_CLASSES)
        return (g->parent[id] & EG_BODY) && eg_body_of(g, id)->stamp >> 2 == stamp;
    u32 s = eg_rec(g, id)[N_STAMP];
    return s >> 2 == stamp && !(s & S_DEAD);
}

static void log_compact(eg *g, u32 op)
{
    eg_log *l = &g->log[op];
    u32 n = 0, ne = 0;
    for (u32 e = 0; e < l->nepochs; e++) {
        u32 start = l->epoch[e].start, stamp = l->epoch[e].stamp;
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        u32 first = n;
        for (u32 k = start; k < end; k++) {
            if (entry_counts(g, op, l->at[k], stamp))
                l->at[n++] = l->at[k];
        }
        if (n > first)
            l->epoch[ne++] = (eg_epoch){stamp, first};
    }
    l->n = n;
    l->nepochs = ne;
}

static bool log_grow(eg *g, u32 op)
{
    eg_log *l = &g->log[op];
    u32 live = op == EG_OP_CLASSES ? g->nclasses : l->alive;
    if (!g->marks && l->n > live + live / 2 + 16) {
        log_compact(g, op);
        if (l->n < l->cap)
            return true;
    }
    eg_vec v = {l->at, l->n, l->cap};
    if (eg_vec_grow(g, &v, l->n + (l->n >> 3) + 8)) {
        l->at = v.at;
        l->cap = v.cap;
        return true;
    }
    if (g->marks)
        return false;
    log_compact(g, op);
    return l->n < l->cap;
}

static inline bool log_room(eg *g, u32 op)
{
    eg_log *l = &g->log[op];
    if (UNLIKELY(l->n == l->cap) && !log_grow(g, op))
        return false;
    if (UNLIKELY(l->nepochs == l->epoch_cap) &&
        (!l->nepochs || l->epoch[l->nepochs - 1].stamp != g->now)) {
        u32 cap = l->epoch_cap ? 2 * l->epoch_cap : 4;
        eg_epoch *p = eg_resize(g, l->epoch, (i64)sizeof *p * l->epoch_cap, (i64)sizeof *p * cap);
        if (!p)
            return false;
        l->epoch = p;
        l->epoch_cap = cap;
    }
    return true;
}

static inline void log_push(eg *g, u32 op, u32 id)
{
    eg_log *l = &g->log[op];
    if (!log_room(g, op)) {
        l->broken = true;
        return;
    }
    if (!l->nepochs || l->epoch[l->nepochs - 1].stamp != g->now)
        l->epoch[l->nepochs++] = (eg_epoch){g->now, l->n};
    l->at[l->n++] = id;
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
                all[n++] = (stamped){rec[N_STAMP] >> 2, id};
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

/* ---- records and lists --------------------------------------------------------------------- */

static inline void set_word(eg *g, u32 n, u32 *rec, u32 word, u32 value)
{
    if (UNLIKELY(g->marks))
        eg_journal_node(g, n, word, rec[word]);
    rec[word] = value;
}

static inline u32 *next_word(const eg *g, u32 cell, u32 *node, u32 *word)
{
    u32 slot;
    u32 n = eg_cell_node(g, cell, &slot);
    *node = n;
    *word = N_KIDS + eg_step(n) * slot + 1;
    return eg_rec(g, n) + *word;
}

static inline void set_next(eg *g, u32 cell, u32 value)
{
    u32 node, word;
    u32 *p = next_word(g, cell, &node, &word);
    if (UNLIKELY(g->marks))
        eg_journal_node(g, node, word, *p);
    *p = value;
}


/* The e-node changed: it belongs to the newest epoch of its operator. */
static inline void restamp(eg *g, u32 n, u32 *rec)
{
    if (rec[N_STAMP] >> 2 == g->now)
        return;
    set_word(g, n, rec, N_STAMP, g->now << 2 | (rec[N_STAMP] & S_FLAGS));
    log_push(g, g->lang->heads.at[rec[N_HEAD]].op, n);
}

static inline void class_stamp(eg *g, u32 c, eg_body *b)
{
    if (b->stamp >> 2 == g->now)
        return;
    b->stamp = g->now << 2 | (b->stamp & S_FLAGS);
    log_push(g, EG_OP_CLASSES, c);
}

/* Class bits of body.stamp. */
enum { Q_QUEUED = 1, Q_DATA = 2 };

static void enqueue(eg *g, u32 c, u32 bits)
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

static void kill(eg *g, u32 n, u32 *rec)
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

static unsigned data_merge(eg *g, u32 k, u32 body, const void *from)
{
    const eqf_analysis *a = &g->analysis[k];
    void *into = eg_at(&g->data[k], body);
    if (UNLIKELY(g->marks))
        eg_journal_data(g, k, body);
    unsigned bits = a->merge(a->user, g, into, from);
    if (bits & EQF_CONFLICT)
        g->conflict = EQF_E_CONTRADICTION;
    return bits;
}

/* Data of the e-node joins that of its class. */
static void remake(eg *g, u32 n, u32 c, bool fresh)
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
        if (data_merge(g, k, body, made) & EQF_INTO_CHANGED)
            enqueue(g, c, Q_DATA);
    }
}

void eg_join_data(eg *g, u32 k, u32 c, const void *data)
{
    if (data_merge(g, k, g->parent[c] & ~EG_BODY, data) & EQF_INTO_CHANGED)
        enqueue(g, c, Q_DATA);
}

/* ---- add ----------------------------------------------------------------------------------- */

/* How many e-nodes can be added before one of the things that all of them take runs out. */
static void count_room(eg *g)
{
    const eg_log *l = &g->log[EG_OP_CLASSES];
    if (g->marks || g->nanalyses || g->options.explain || !l->nepochs ||
        l->epoch[l->nepochs - 1].stamp != g->now) {
        g->room = 0;
        return;
    }
    u64 slots = 3 * ((u64)g->slot_mask + 1) / 4;
    u32 room = g->parent_cap - g->class_ids;
    room = MIN(room, g->body.cap - g->body.n);
    room = MIN(room, l->cap - l->n);
    room = (u32)MIN((u64)room, slots > g->slot_used ? slots - g->slot_used : 0);
    g->room = room > 1 ? room - 1 : 0; /* the one being added now */
}

/* Everything a new e-node needs, taken before anything changes. */
static bool reserve_node(eg *g, u32 op, u32 seg, u32 arity)
{
    if (UNLIKELY(op >= g->nlogs) && !eg_logs_room(g))
        return false;
    if (UNLIKELY(4 * (u64)(g->slot_used + 1) > 3 * (u64)(g->slot ? g->slot_mask + 1 : 0)) &&
        !slots_resize(g, g->slot ? 2 * (g->slot_mask + 1) : 64))
        return false;
    if (seg == EG_LONG) {
        eg_col *c = &g->seg[seg];
        u32 room = EG_CHUNK - (c->n & (EG_CHUNK - 1));
        if (room < arity + 1) { /* a record does not cross a chunk: pad with empty units */
            while (c->n & (EG_CHUNK - 1)) {
                memset(eg_at(c, c->n), 0, c->elem);
                c->n++;
            }
        }
        while (c->cap < c->n + arity + 1) {
            if (!eg_col_grow(g, c))
                return false;
        }
    } else if (!eg_col_room(g, &g->seg[seg])) {
        return false;
    }
    if (UNLIKELY(g->class_ids >= g->parent_cap)) {
        eg_vec v = {g->parent, g->class_ids, g->parent_cap};
        if (!eg_vec_grow(g, &v, g->class_ids + g->class_ids / 8 + 16))
            return false;
        g->parent = v.at;
        g->parent_cap = v.cap;
        g->parent[0] = 0;
    }
    if (!(g->free_bodies.n && !g->marks)) {
        if (!eg_col_room(g, &g->body))
            return false;
        for (u32 k = 0; k < g->nanalyses; k++) {
            if (!eg_col_room(g, &g->data[k]))
                return false;
        }
    }
    if (g->nanalyses && !eg_vec_room(g, &g->queue, 2))
        return false;
    if (!log_room(g, op) || !log_room(g, EG_OP_CLASSES))
        return false;
    if (g->options.explain) {
        u32 want = g->seg[seg].n + (seg == EG_LONG ? arity + 1 : 1);
        while (g->edge[seg].cap < want) {
            if (!eg_col_grow(g, &g->edge[seg]))
                return false;
        }
        while (arity && g->orig[seg].cap < want) {
            if (!eg_col_grow(g, &g->orig[seg]))
                return false;
        }
        g->rep.n = g->class_ids;
        if (!eg_col_room(g, &g->rep))
            return false;
    }
    if (g->marks && !eg_vec_room(g, &g->journal, 64 + 24 * arity))
        return false; /* an add can still be refused; a union under way cannot */
    count_room(g);
    return true;
}

static u32 new_record(eg *g, u32 seg, u32 arity)
{
    eg_col *col = &g->seg[seg];
    if (seg == EG_LONG) {
        u32 i = col->n;
        col->n += arity + 1;
        return EG_LONG << 29 | i;
    }
    return seg << 29 | col->n++;
}

static u32 new_class(eg *g)
{
    u32 c = g->class_ids++, b;
    if (g->free_bodies.n && !g->marks) {
        b = g->free_bodies.at[--g->free_bodies.n];
    } else {
        b = g->body.n++;
        for (u32 k = 0; k < g->nanalyses; k++)
            g->data[k].n++;
    }
    g->parent[c] = EG_BODY | b;
    eg_body *body = eg_at(&g->body, b);
    *body = (eg_body){.self = c, .stamp = g->now << 2};
    g->nclasses++;
    log_push(g, EG_OP_CLASSES, c);
    return c;
}

static inline u32 add_hashed(eg *g, u32 op, u32 head, u32 arity, const u32 *kids, u32 hash,
                             bool commutative, const u32 *kid_nodes, u32 into, bool *is_new)
{
    u32 where = 0, n;
    if (LIKELY(g->slot != NULL)) {
        n = probe(g, hash, head, arity, kids, commutative, &where);
        if (n) {
            *is_new = false;
            return n;
        }
    }
    u32 seg = MIN(arity, EG_LONG), mask = g->slot_mask;
    if (g->room && op < g->nlogs && g->seg[seg].n < g->seg[seg].cap && seg != EG_LONG &&
        g->log[op].n < g->log[op].cap && g->log[op].nepochs &&
        g->log[op].epoch[g->log[op].nepochs - 1].stamp == g->now)
        g->room--; /* what else it takes was counted before */
    else if (UNLIKELY(!reserve_node(g, op, seg, arity)))
        return 0;
    if (UNLIKELY(mask != g->slot_mask || g->slot_used == 0)) {
        where = hash & g->slot_mask;
        while (g->slot[where])
            where = (where + 1) & g->slot_mask;
    }
    *is_new = true;
    n = new_record(g, seg, arity);
    bool fresh = into == 0;
    u32 c = fresh ? new_class(g) : into;
    eg_body *b = eg_body_of(g, c);
    if (UNLIKELY(g->marks)) {
        eg_journal_slot(g, J_INSERT, hash, n);
        if (!fresh)
            eg_journal_body(g, g->parent[c] & ~EG_BODY);
    }
    u32 *rec = eg_rec(g, n), step = seg == EG_LONG ? 4 : 2;
    rec[N_HEAD] = head;
    rec[N_CLASS] = c;
    rec[N_STAMP] = g->now << 2;
    rec[N_NEXT] = b->members;
    b->members = n;
    b->nmembers++;
    b->mask |= eg_op_bit(op);
    for (u32 i = 0; i < arity; i++) {
        u32 *word = rec + N_KIDS + step * i;
        word[0] = kids[i];
        if (seg == EG_LONG) {
            word[2] = i;
            word[3] = 0;
        }
        eg_body *kid = eg_body_of(g, kids[i]);
        if (UNLIKELY(g->marks))
            eg_journal_body(g, g->parent[kids[i]] & ~EG_BODY);
        word[1] = kid->uses;
        kid->uses = eg_cell(n, i);
        kid->nuses++;
    }
    g->slot[where] = (u64)hash << 32 | n;
    g->slot_used++;
    log_push(g, op, n);
    eg_log *log = &g->log[op];
    log->alive++;
    log->visible++;
    g->alive++;
    g->visible++;
    if (UNLIKELY(g->options.explain)) {
        *eg_edge_of(g, n) = (eg_edge){0, EG_WHY_NONE};
        if (fresh)
            *(u32 *)eg_at(&g->rep, c) = n;
        u32 *orig = arity ? eg_orig(g, n) : NULL;
        for (u32 i = 0; i < arity; i++)
            orig[i] = kid_nodes ? kid_nodes[i] : *(u32 *)eg_at(&g->rep, kids[i]);
    }
    if (UNLIKELY(g->nanalyses)) {
        remake(g, n, c, fresh);
        if (g->has_modify)
            enqueue(g, c, 0);
    }
    return n;
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
    return add_hashed(g, op, head, arity, kids, eg_hash(head, arity, kids, commutative),
                      commutative, kid_nodes, into, is_new);
}

void eg_prepare(eg *g, eg_pending *p)
{
    for (u32 i = 0; i < p->arity; i++)
        p->kids[i] = eg_find_halving(g, p->kids[i]);
    p->hash = eg_hash(p->head, p->arity, p->kids, p->commutative);
    __builtin_prefetch(&g->slot[p->hash & g->slot_mask]);
}

void eg_peek(const eg *g, const eg_pending *p, u32 into)
{
    u64 s = g->slot[p->hash & g->slot_mask];
    if ((u32)(s >> 32) == p->hash) {
        __builtin_prefetch(eg_rec(g, (u32)s));
        return;
    }
    if (into && (g->parent[into] & EG_BODY))
        __builtin_prefetch(eg_body_of(g, into), 1);
    for (u32 i = 0; i < p->arity; i++) { /* probably a new e-node: it joins their use lists */
        u32 body = g->parent[p->kids[i]];
        if (body & EG_BODY)
            __builtin_prefetch(eg_at(&g->body, body & ~EG_BODY), 1);
    }
}

u32 eg_commit(eg *g, eg_pending *p, const u32 *kid_nodes, u32 into, bool *is_new)
{
    bool stale = false;
    for (u32 i = 0; i < p->arity; i++)
        stale |= !(g->parent[p->kids[i]] & EG_BODY);
    if (UNLIKELY(stale)) { /* a union came between */
        for (u32 i = 0; i < p->arity; i++)
            p->kids[i] = eg_find_halving(g, p->kids[i]);
        p->hash = eg_hash(p->head, p->arity, p->kids, p->commutative);
    }
    return add_hashed(g, p->op, p->head, p->arity, p->kids, p->hash, p->commutative, kid_nodes,
                      into, is_new);
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
    u32 canonical[EG_CHUNK];
    for (u32 i = 0; i < arity; i++)
        canonical[i] = eg_find_halving(g, kids[i]);
    return add_canonical(g, head, arity, canonical, kid_nodes, into, is_new);
}

/* ---- union --------------------------------------------------------------------------------- */

bool eg_union_reserve(eg *g)
{
    if (!eg_vec_room(g, &g->dirty, 6))
        return false;
    if (g->nanalyses && !eg_vec_room(g, &g->queue, 2))
        return false;
    if (!g->marks && !eg_vec_room(g, &g->free_bodies, 1))
        return false;
    if (g->marks && !eg_vec_room(g, &g->journal, 256))
        return false;
    return true;
}

/* Guards that read the class see a new symbol leaf or new data: its tuples are new again. */
static void touch_class(eg *g, u32 c)
{
    eg_body *b = eg_body_of(g, c);
    u32 slot;
    for (u32 cell = b->uses; cell; cell = eg_cell_next(g, cell)) {
        u32 n = eg_cell_node(g, cell, &slot);
        u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec);
    }
    for (u32 n = b->members; n; n = eg_rec(g, n)[N_NEXT]) {
        u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec);
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
    for (u32 n = L->members; n;) { /* L's members come first in the list of W */
        u32 *rec = eg_rec(g, n);
        set_word(g, n, rec, N_CLASS, w);
        if (!(rec[N_STAMP] & S_DEAD))
            restamp(g, n, rec);
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
        changed |= data_merge(g, k, wb, eg_at(&g->data[k], lb));
    g->parent[l] = w;
    g->nclasses--;
    class_stamp(g, w, W);
    g->room -= g->room > 0; /* it may have taken an entry of the log */
    if (!g->marks)
        g->free_bodies.at[g->free_bodies.n++] = lb;
    if (UNLIKELY(g->nanalyses)) {
        if (changed & EQF_INTO_CHANGED)
            enqueue(g, w, Q_DATA);
        else if (g->has_modify)
            enqueue(g, w, 0);
    }
    if (new_symbol)
        touch_class(g, w);
    return true;
}

/* ---- rebuild ------------------------------------------------------------------------------- */

static void hide_like(eg *g, u32 n, u32 m)
{
    if (eg_rec(g, n)[N_STAMP] & S_HIDDEN)
        eg_hide(g, m);
}

/* m, made by the normaliser, stands for n: which child of m each child of n became. */
static u32 normalise_row(eg *g, u32 n, const u32 *rec, u32 m)
{
    u32 words[3 + EG_CHUNK] = {EG_ROW_NORMALISE, n, m}, step = eg_step(n);
    const u32 *other = eg_rec(g, m);
    u32 arity = eg_node_arity(g, n, rec), count = eg_node_arity(g, m, other);
    for (u32 i = 0; i < arity; i++) {
        u32 k = 0;
        while (k < count && other[N_KIDS + eg_step(m) * k] != rec[N_KIDS + step * i])
            k++;
        words[3 + i] = k < count ? k : EG_WHY_NONE;
    }
    return eg_row(g, words, 3 + arity);
}

/* The stored children of n are exactly its key; gives it its canonical one. */
static void repair_node(eg *g, u32 n, u32 *rec)
{
    const eg_lang *l = g->lang;
    u32 arity = eg_node_arity(g, n, rec), step = eg_step(n);
    u32 hash = hash_rec(g, n, rec, arity);
    if (UNLIKELY(g->marks))
        eg_journal_slot(g, J_REMOVE, hash, n);
    eg_slot_remove(g, hash, n);
    u32 kids[EG_CHUNK];
    for (u32 i = 0; i < arity; i++) {
        kids[i] = eg_find_halving(g, rec[N_KIDS + step * i]);
        set_word(g, n, rec, N_KIDS + step * i, kids[i]);
    }
    u32 head = rec[N_HEAD], c = rec[N_CLASS];
    const eg_op *o = &l->ops.at[l->heads.at[head].op];
    bool commutative = o->flags & EQF_COMMUTATIVE;
    if (UNLIKELY(o->normalise != NULL) && o->normalise(o->normalise_user, g, &head, kids)) {
        /* another e-node takes its place */
        bool is_new;
        u32 m = eg_add(g, head, eg_head_arity(l, head), kids, NULL, c, &is_new);
        if (m) {
            kill(g, n, rec);
            hide_like(g, n, m);
            u32 mc = eg_rec(g, m)[N_CLASS];
            if (g->options.explain && (is_new || mc != c))
                eg_link(g, n, m, normalise_row(g, n, rec, m));
            if (!is_new)
                eg_union(g, c, mc);
            return;
        }
        head = rec[N_HEAD]; /* no room: keep it as it is, equal and sound */
        for (u32 i = 0; i < arity; i++)
            kids[i] = rec[N_KIDS + step * i];
    }
    restamp(g, n, rec);
    u32 where = 0;
    hash = eg_hash(head, arity, kids, commutative);
    u32 m = probe(g, hash, head, arity, kids, commutative, &where);
    if (!m) {
        if (UNLIKELY(g->marks))
            eg_journal_slot(g, J_INSERT, hash, n);
        g->slot[where] = (u64)hash << 32 | n;
        g->slot_used++;
        if (UNLIKELY(g->nanalyses))
            remake(g, n, c, false);
        return;
    }
    kill(g, n, rec);
    hide_like(g, n, m);
    u32 mc = eg_rec(g, m)[N_CLASS];
    if (mc != c) {
        if (g->options.explain)
            eg_link(g, n, m,
                    commutative && eg_rec(g, m)[N_KIDS] != kids[0] ? EG_WHY_SWAPPED
                                                                   : EG_WHY_CONGRUENCE);
        eg_union(g, c, mc);
    }
}

/* Repairs the users of one loser. False when a reservation was refused; what is left is owed. */
static bool repair_class(eg *g, u32 loser, u32 cell)
{
    u32 first = 0, last = 0, nkept = 0, winner = eg_find_halving(g, loser);
    bool ok = true;
    while (cell) {
        u32 slot, n = eg_cell_node(g, cell, &slot);
        u32 *rec = eg_rec(g, n), after = rec[N_KIDS + eg_step(n) * slot + 1];
        if (after) {
            u32 next_slot;
            __builtin_prefetch(eg_rec(g, eg_cell_node(g, after, &next_slot)));
        }
        if (!(rec[N_STAMP] & S_DEAD)) {
            u32 kid = rec[N_KIDS + eg_step(n) * slot];
            if (kid != eg_find_halving(g, kid)) {
                ok = eg_union_reserve(g);
                if (!ok)
                    break;
                repair_node(g, n, rec);
            }
        }
        if (!(rec[N_STAMP] & S_DEAD)) {
            if (last)
                set_next(g, last, cell);
            else
                first = cell;
            last = cell;
            nkept++;
        }
        cell = after;
    }
    if (last)
        set_next(g, last, cell); /* 0, or the rest */
    else
        first = cell;
    if (!first)
        return ok;
    u32 c = eg_find_halving(g, loser);
    if (!ok || c != winner) { /* the winner lost in turn: once more for those repaired early */
        g->dirty.at[g->dirty.n++] = loser; /* room for two entries came with each union */
        g->dirty.at[g->dirty.n++] = first;
        return ok;
    }
    eg_body *b = eg_body_of(g, c);
    if (UNLIKELY(g->marks))
        eg_journal_body(g, g->parent[c] & ~EG_BODY);
    set_next(g, last, b->uses);
    b->uses = first;
    b->nuses += nkept;
    return true;
}

static eqf_status settle_class(eg *g, u32 c)
{
    u32 body = g->parent[c] & ~EG_BODY;
    if (UNLIKELY(g->marks))
        eg_journal_body(g, body);
    eg_body *b = eg_at(&g->body, body);
    bool data = b->stamp & Q_DATA, queued = b->stamp & Q_QUEUED;
    b->stamp &= ~(u32)(Q_DATA | Q_QUEUED);
    if (!queued)
        return EQF_OK;
    if (data) {
        touch_class(g, c);
        u32 slot;
        for (u32 cell = b->uses, after; cell; cell = after) {
            u32 n = eg_cell_node(g, cell, &slot);
            u32 *rec = eg_rec(g, n);
            after = rec[N_KIDS + eg_step(n) * slot + 1];
            if (rec[N_STAMP] & S_DEAD)
                continue;
            if (!eg_union_reserve(g))
                return g->fail;
            const eg_op *o = &g->lang->ops.at[g->lang->heads.at[rec[N_HEAD]].op];
            if (o->normalise)
                repair_node(g, n, rec);
            else
                remake(g, n, rec[N_CLASS], false);
        }
    }
    for (u32 k = 0; k < g->nanalyses; k++) {
        const eqf_analysis *a = &g->analysis[k];
        if (!a->modify)
            continue;
        eqf_status s = a->modify(a->user, g, (eqf_class){eg_find(g, c)});
        if (s)
            return s;
    }
    return EQF_OK;
}

void eg_remove(eg *g, u32 n)
{
    u32 *rec = eg_rec(g, n);
    eg_slot_remove(g, hash_rec(g, n, rec, eg_node_arity(g, n, rec)), n);
    kill(g, n, rec);
}

/* After the records of a segment moved down, the old place of one holds its new index. */
static inline u32 moved(const eg *g, u32 n)
{
    const eg_col *c = &g->seg[n >> 29];
    if ((n & EG_INDEX) < c->n)
        return n;
    return (n & ~EG_INDEX) | eg_rec(g, n)[N_CLASS];
}

static void move_records(eg *g)
{
    for (u32 seg = 0; seg < EG_LONG; seg++) {
        eg_col *c = &g->seg[seg];
        u32 lo = seg == 0, hi = c->n;
        for (;;) {
            while (lo < hi && !(((u32 *)eg_at(c, lo))[N_STAMP] & S_DEAD))
                lo++;
            while (lo < hi && (((u32 *)eg_at(c, hi - 1))[N_STAMP] & S_DEAD))
                hi--;
            if (lo >= hi)
                break;
            u32 *from = eg_at(c, --hi);
            memcpy(eg_at(c, lo), from, c->elem);
            from[N_CLASS] = lo++;
        }
        c->n = lo;
    }
    for (u32 i = 0; i <= g->slot_mask; i++) {
        u64 s = g->slot[i];
        if (s)
            g->slot[i] = (s & ~(u64)UINT32_MAX) | moved(g, (u32)s);
    }
    for (u32 op = 1; op < g->nlogs; op++) {
        for (u32 k = 0; k < g->log[op].n; k++)
            g->log[op].at[k] = moved(g, g->log[op].at[k]);
    }
    for (u32 seg = 0; seg < EG_LONG; seg++)
        eg_col_trim(g, &g->seg[seg]);
}

static bool body_lives(const eg *g, u32 b)
{
    const eg_body *body = eg_at(&g->body, b);
    return g->parent[body->self] == (EG_BODY | b);
}

static void move_bodies(eg *g)
{
    u32 lo = 0, hi = g->body.n;
    for (;;) {
        while (lo < hi && body_lives(g, lo))
            lo++;
        while (lo < hi && !body_lives(g, hi - 1))
            hi--;
        if (lo >= hi)
            break;
        eg_body *from = eg_at(&g->body, --hi);
        memcpy(eg_at(&g->body, lo), from, sizeof *from);
        for (u32 k = 0; k < g->nanalyses; k++)
            memcpy(eg_at(&g->data[k], lo), eg_at(&g->data[k], hi), g->data[k].elem);
        g->parent[from->self] = EG_BODY | lo++;
    }
    g->body.n = lo;
    g->free_bodies.n = 0;
    eg_col_trim(g, &g->body);
    for (u32 k = 0; k < g->nanalyses; k++) {
        g->data[k].n = lo;
        eg_col_trim(g, &g->data[k]);
    }
}

static void relink(eg *g, u32 n, u32 *rec)
{
    if (rec[N_STAMP] & S_DEAD)
        return;
    eg_body *b = eg_body_of(g, rec[N_CLASS]);
    rec[N_NEXT] = b->members;
    b->members = n;
    b->nmembers++;
    b->mask |= eg_op_bit(g->lang->heads.at[rec[N_HEAD]].op);
    u32 arity = eg_node_arity(g, n, rec), step = eg_step(n);
    for (u32 i = 0; i < arity; i++) {
        u32 *word = rec + N_KIDS + step * i;
        eg_body *kid = eg_body_of(g, word[0]);
        word[1] = kid->uses;
        kid->uses = eg_cell(n, i);
        kid->nuses++;
    }
}

void eg_sweep(eg *g)
{
    g->room = 0;
    for (u32 op = 0; op < g->nlogs; op++)
        log_compact(g, op);
    if (!g->options.explain)
        move_records(g);
    move_bodies(g);
    for (u32 i = 0; i < g->body.n; i++) {
        eg_body *b = eg_at(&g->body, i);
        *b = (eg_body){.stamp = b->stamp, .self = b->self};
    }
    for (u32 seg = 0; seg < EG_LONG; seg++) {
        for (u32 i = seg == 0; i < g->seg[seg].n; i++)
            relink(g, seg << 29 | i, eg_at(&g->seg[seg], i));
    }
    for (u32 i = 0; i < g->seg[EG_LONG].n;) {
        u32 n = EG_LONG << 29 | i, *rec = eg_rec(g, n);
        i += rec[N_HEAD] ? 1 + eg_node_arity(g, n, rec) : 1;
        if (rec[N_HEAD])
            relink(g, n, rec);
    }
    g->dead = 0;
}

void eg_trim(eg *g)
{
    if (g->marks || g->bytes < 1 << 16)
        return;
    g->room = 0;
    if (g->dead > g->alive / 4)
        eg_sweep(g);
    if (!g->dirty.n)
        eg_vec_free(g, &g->dirty);
    if (!g->queue.n)
        eg_vec_free(g, &g->queue);
    eg_vec_trim(g, &g->free_bodies);
    for (u32 op = 0; op < g->nlogs; op++) {
        eg_log *l = &g->log[op];
        u32 live = op ? l->alive : g->nclasses;
        if (l->n > live + live / 8)
            log_compact(g, op);
        eg_vec v = {l->at, l->n, l->cap};
        eg_vec_trim(g, &v);
        l->at = v.at;
        l->cap = v.cap;
    }
    eg_vec v = {g->parent, g->class_ids, g->parent_cap};
    eg_vec_trim(g, &v);
    g->parent = v.at;
    g->parent_cap = v.cap;
    while (g->slot_mask > 1023 && 3 * (u64)(g->slot_mask + 1) >= 10 * (u64)g->slot_used &&
           slots_resize(g, (g->slot_mask + 1) / 2)) {
    }
}

eqf_status eg_rebuild(eg *g)
{
    eqf_status s = EQF_OK;
    for (;;) {
        if (g->dirty.n) {
            u32 uses = g->dirty.at[--g->dirty.n], loser = g->dirty.at[--g->dirty.n];
            if (!repair_class(g, loser, uses))
                return g->fail;
        } else if (g->queue_head < g->queue.n) {
            s = settle_class(g, eg_find(g, g->queue.at[g->queue_head++]));
            if (s)
                return s;
        } else {
            break;
        }
    }
    g->queue.n = g->queue_head = 0;
    if (g->dead > EG_SWEEP_MIN && g->dead > g->alive / 2 && !g->marks)
        eg_sweep(g);
    if (g->conflict) {
        s = g->conflict;
        g->conflict = EQF_OK;
    }
    return s;
}
