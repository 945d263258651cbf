/* What adding, rebuilding and applying share: keys and slots of the hash-cons, logs, lists. Inline,
 * for these few lines are where a run spends its time. Not for other files. */
#ifndef EG_STORE_H
#define EG_STORE_H

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

static inline __attribute__((always_inline)) u32 key_hash(u32 head, u32 arity, const u32 *kids, bool commutative)
{
    if (LIKELY(arity == 2)) {
        u32 a = kids[0], b = kids[1];
        u32 swap = (a ^ b) & -(u32)(commutative & (a > b)); /* nobody can foretell a > b */
        return hash2(head, a ^ swap, b ^ swap);
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
        return key_hash(rec[N_HEAD], 2, (u32[]){rec[N_KIDS], rec[N_KIDS + 2]}, commutative);
    u32 step = eg_step(n);
    u64 h = (rec[N_HEAD] + 1u) * 0xD6E8FEB86659FD93u;
    for (u32 i = 0; i < arity; i++)
        h = mix(h, rec[N_KIDS + step * i]);
    h *= 0xBF58476D1CE4E5B9u;
    return (u32)(h >> 32);
}

/* The record of an e-node whose arity, at most 4, is known. */
static inline u32 *rec_of_arity(char *const *chunk, u32 n, u32 arity)
{
    u32 i = n & EG_INDEX;
    return (u32 *)chunk[i >> EG_SHIFT] + (size_t)(i & (EG_CHUNK - 1)) * (N_KIDS + 2 * arity);
}

/* Has a record of the arity, at most 4, this key? */
static inline __attribute__((always_inline)) bool has_key(const u32 *rec, u32 head, u32 arity,
                                                          const u32 *kids, bool commutative)
{
    if (UNLIKELY(rec[N_HEAD] != head))
        return false;
    if (LIKELY(arity == 2)) {
        u32 a = rec[N_KIDS], b = rec[N_KIDS + 2];
        return (a == kids[0] && b == kids[1]) || (commutative && a == kids[1] && b == kids[0]);
    }
    for (u32 i = 0; i < arity; i++) {
        if (rec[N_KIDS + 2 * i] != kids[i])
            return false;
    }
    return true;
}

/* Is n the e-node with this key? chunk: of the segment of the arity. */
static inline __attribute__((always_inline)) bool same_key(const eg *g, char *const *chunk, u32 n,
                                                           u32 head, u32 arity, const u32 *kids,
                                                           bool commutative)
{
    if (UNLIKELY(n >> 29 != MIN(arity, EG_LONG)))
        return false;
    if (LIKELY(arity < EG_LONG))
        return has_key(rec_of_arity(chunk, n, arity), head, arity, kids, commutative);
    const u32 *rec = eg_rec(g, n);
    bool same = rec[N_HEAD] == head;
    for (u32 i = 0; i < arity && same; i++)
        same = rec[N_KIDS + 4 * i] == kids[i];
    return same;
}

/* The first slot from i on that has the hash, or is empty. It is one of the first two mostly, which
 * of them nobody can foretell: no branch there. */
static inline u32 seek(const u64 *slot, u32 mask, u32 i, u32 hash)
{
    u64 first = slot[i];
    u32 on = ((u32)(first >> 32) != hash) & (first != 0);
    i = (i + on) & mask;
    for (u64 s; (s = slot[i]) != 0 && (u32)(s >> 32) != hash;)
        i = (i + 1) & mask;
    return i;
}

/* The e-node with this key, or 0 and the empty slot where it would go. The probe begins at *where:
 * its home, or what a seek found. */
static inline __attribute__((always_inline)) u32 probe(const eg *g, const u64 *slot, u32 mask,
                                                       u32 hash, u32 head, u32 arity,
                                                       const u32 *kids, bool commutative,
                                                       u32 *where)
{
    char *const *chunk = g->seg[MIN(arity, EG_LONG)].chunk;
    for (u32 i = *where;; i = (i + 1) & mask) {
        i = seek(slot, mask, i, hash);
        u32 n = (u32)slot[i];
        if (!n) {
            *where = i;
            return 0;
        }
        if (LIKELY(same_key(g, chunk, n, head, arity, kids, commutative)))
            return n;
    }
}

/* The same for an arity of at most 4, when the record is all that matters. */
static inline __attribute__((always_inline)) const u32 *find_rec(char *const *chunk, const u64 *slot,
                                                                 u32 mask, u32 hash, u32 head,
                                                                 u32 arity, const u32 *kids,
                                                                 bool commutative, u32 *where)
{
    for (u32 i = *where;; i = (i + 1) & mask) {
        i = seek(slot, mask, i, hash);
        u32 n = (u32)slot[i];
        if (!n) {
            *where = i;
            return NULL;
        }
        const u32 *rec = rec_of_arity(chunk, n, arity);
        if (LIKELY(n >> 29 == arity && has_key(rec, head, arity, kids, commutative)))
            return rec;
    }
}

/* ---- logs ---------------------------------------------------------------------------------- */

/* Opens the newest epoch of a log and makes room for `more` entries. */
bool eg_log_open(eg *g, u32 op, u32 more);

static inline bool log_ready(const eg *g, u32 op, u32 more)
{
    const eg_log *l = &g->log[op];
    return l->cap - l->n >= more && l->nepochs && l->epoch[l->nepochs - 1].stamp == g->now;
}

static inline void log_push(eg *g, u32 op, u32 id)
{
    eg_log *l = &g->log[op];
    if (UNLIKELY(!log_ready(g, op, 1)) && !eg_log_open(g, op, 1)) {
        l->broken = true;
        return;
    }
    l->at[l->n++] = id;
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

/* What child i is when it changes. */
static inline u32 kid_changed(u32 i)
{
    return i < 2 ? (u32)S_KID << i : S_MADE;
}

/* The e-node changed: it belongs to the newest epoch of its operator. */
static inline void restamp(eg *g, u32 n, u32 *rec, u32 what)
{
    u32 stamp = rec[N_STAMP];
    if (stamp >> S_TIME == g->now) {
        if (what & ~stamp)
            set_word(g, n, rec, N_STAMP, stamp | what);
        return;
    }
    set_word(g, n, rec, N_STAMP, g->now << S_TIME | what | (stamp & S_FLAGS));
    log_push(g, g->lang->heads.at[rec[N_HEAD]].op, n);
}

/* Class bits of body.stamp. */
enum { Q_QUEUED = 1, Q_DATA = 2 };

/* graph.c. `fresh`: the class was made for this e-node. */
void eg_remake(eg *g, u32 n, u32 c, bool fresh);
void eg_enqueue(eg *g, u32 c, u32 bits);
void eg_kill(eg *g, u32 n, u32 *rec);
/* Guards that read the class see a new symbol leaf or new data: its tuples are new again. */
void eg_touch_class(eg *g, u32 c);
void eg_log_compact(eg *g, u32 op);
bool eg_slots_resize(eg *g, u32 size);
/* Takes what n new e-nodes of an operator can need, before anything changes; opens its log. Of more
 * than one only when no mark is open. */
bool eg_reserve(eg *g, u32 op, u32 arity, u32 n);
/* Use lists that rebuild.c takes off the dirty ones at a time, and may owe again. */
enum { EG_LISTS = 16 };

/* Reserves what n unions can need. */
bool eg_union_reserve_n(eg *g, u32 n);

static inline u32 new_record(eg *g, u32 arity)
{
    u32 seg = MIN(arity, EG_LONG);
    eg_col *col = &g->seg[seg];
    u32 i = col->n;
    col->n += seg == EG_LONG ? arity + 1 : 1;
    return seg << 29 | i;
}

static inline u32 new_class(eg *g)
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
    *eg_body_at(g, b) = (eg_body){.self = c, .stamp = g->now << 2};
    g->nclasses++;
    eg_log *l = &g->log[EG_OP_CLASSES];
    l->at[l->n++] = c;
    return c;
}

/* What the record of a new e-node n in class c says but its children; b: the body of c. */
static inline __attribute__((always_inline)) void join_class(const eg *g, eg_body *b, u32 op, u32 n,
                                                             u32 *rec, u32 head, u32 c)
{
    rec[N_HEAD] = head;
    rec[N_CLASS] = c;
    rec[N_STAMP] = g->now << S_TIME | S_MADE;
    rec[N_NEXT] = b->members;
    b->members = n;
    b->nmembers++;
    b->mask |= eg_op_bit(op);
}

/* Stores an e-node that is absent: eg_reserve was called, kids are canonical, `where` is its empty
 * slot. */
static inline __attribute__((always_inline)) u32 eg_insert(eg *g, u32 op, u32 head, u32 arity,
                                                           const u32 *kids, const u32 *kid_nodes,
                                                           u32 hash, u32 where, u32 into)
{
    u32 n = new_record(g, arity), step = arity < EG_LONG ? 2 : 4;
    u32 c = into ? into : new_class(g);
    eg_body *b = eg_body_of(g, c);
    if (UNLIKELY(g->marks)) {
        eg_journal_slot(g, J_INSERT, hash, n);
        if (into)
            eg_journal_body(g, g->parent[c] & ~EG_BODY);
    }
    u32 *rec =
        arity < EG_LONG ? rec_of_arity(g->seg[arity].chunk, n, arity) : eg_rec(g, n);
    join_class(g, b, op, n, rec, head, c);
    for (u32 i = 0; i < arity; i++) {
        u32 *word = rec + N_KIDS + step * i;
        word[0] = kids[i];
        if (step == 4) {
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
    eg_log *log = &g->log[op];
    log->at[log->n++] = n;
    log->alive++;
    log->visible++;
    g->alive++;
    g->visible++;
    if (UNLIKELY(g->options.explain)) {
        *eg_edge_of(g, n) = (eg_edge){0, EG_WHY_NONE};
        if (!into)
            *(u32 *)eg_at(&g->rep, c) = n;
        u32 *orig = arity ? eg_orig(g, n) : NULL;
        for (u32 i = 0; i < arity; i++)
            orig[i] = kid_nodes ? kid_nodes[i] : *(u32 *)eg_at(&g->rep, kids[i]);
    }
    if (UNLIKELY(g->nanalyses)) {
        eg_remake(g, n, c, !into);
        if (g->has_modify)
            eg_enqueue(g, c, 0);
    }
    return n;
}

#endif
