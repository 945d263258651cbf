/* Rebuilding: after unions the users of each loser are repaired until every key is canonical again.
 *
 * No pass visits all classes, none rebuilds an index; the one exception is the sweep of dead
 * records, paid for by the deaths since the last one. (Downey, Sethi, Tarjan 1980; Willsey et al.
 * 2021; egraph.md 3.) */
#include "egraph/store.h"

/* ---- rebuild ------------------------------------------------------------------------------- */

static void hide_like(eg *g, u32 n, u32 m)
{
    if (eg_rec(g, n)[N_STAMP] & S_HIDDEN)
        eg_hide(g, m);
}

/* m, made by the normaliser, stands for n: which child of m each child of n became. */
static u32 normalise_row(eg *g, u32 n, const u32 *rec, u32 m)
{
    u32 words[3 + EG_MAX_ARITY] = {EG_ROW_NORMALISE, n, m}, step = eg_step(n);
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

/* The stored children of n are exactly its key, which has this hash; gives it its canonical one. */
static void repair_node(eg *g, u32 n, u32 *rec, u32 hash)
{
    const eg_lang *l = g->lang;
    u32 arity = eg_node_arity(g, n, rec), step = eg_step(n);
    if (UNLIKELY(g->marks))
        eg_journal_slot(g, J_REMOVE, hash, n);
    eg_slot_remove(g, hash, n);
    u32 kids[EG_MAX_ARITY], changed = 0;
    for (u32 i = 0; i < arity; i++) {
        kids[i] = eg_find_halving(g, rec[N_KIDS + step * i]);
        if (kids[i] != rec[N_KIDS + step * i])
            changed |= kid_changed(i);
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
            eg_kill(g, n, rec);
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
    restamp(g, n, rec, changed);
    hash = key_hash(head, arity, kids, commutative);
    u32 where = hash & g->slot_mask;
    u32 m = probe(g, g->slot, g->slot_mask, hash, head, arity, kids, commutative, &where);
    if (!m) {
        if (UNLIKELY(g->marks))
            eg_journal_slot(g, J_INSERT, hash, n);
        g->slot[where] = (u64)hash << 32 | n;
        g->slot_used++;
        if (UNLIKELY(g->nanalyses))
            eg_remake(g, n, c, false);
        return;
    }
    eg_kill(g, n, rec);
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

/* Lets the slots of a user's old and new key come while others are looked at. Returns the hash of the
 * new key; of a long one, which is left out, that of the old; *old: that of the old. */
static inline u32 fetch_slots(eg *g, u32 n, const u32 *rec, u32 *old)
{
    u32 arity = eg_node_arity(g, n, rec), hash = hash_rec(g, n, rec, arity), kids[2];
    *old = hash;
    __builtin_prefetch(&g->slot[hash & g->slot_mask], 1);
    if (arity > 2)
        return hash;
    for (u32 i = 0; i < arity; i++)
        kids[i] = eg_find_halving(g, rec[N_KIDS + 2 * i]);
    const eg_lang *l = g->lang;
    bool commutative = l->ops.at[l->heads.at[rec[N_HEAD]].op].flags & EQF_COMMUTATIVE;
    hash = key_hash(rec[N_HEAD], arity, kids, commutative);
    __builtin_prefetch(&g->slot[hash & g->slot_mask], 1);
    return hash;
}

/* The same for the e-node that has a key with this hash, if one has. */
static inline void fetch_equal(const eg *g, u32 hash)
{
    u32 n = (u32)g->slot[seek(g->slot, g->slot_mask, hash & g->slot_mask, hash)];
    if (n)
        __builtin_prefetch(eg_rec(g, n), 1);
}

/* Use lists of losers are read several at a time, and what the repair of their first users will touch
 * is fetched for all of them before any is repaired: a list by itself, of two users mostly, makes each
 * step wait for the one before. */
enum { USERS = 16 };

typedef struct use_list {
    u32 loser, first; /* cell */
    u32 n, rest;      /* cells read, the cell after them */
    u32 cell[USERS];
    u32 old[USERS];    /* hashes of the keys of those that live */
    u32 hash[USERS], nhash; /* and of the keys they are to have */
} use_list;

/* The next cell of a list; its e-node is being fetched. */
static inline u32 step_list(const eg *g, u32 cell)
{
    u32 after = eg_cell_next(g, cell), slot;
    if (after)
        __builtin_prefetch(eg_rec(g, eg_cell_node(g, after, &slot)));
    return after;
}

static void read_lists(const eg *g, use_list *list, u32 count)
{
    u32 slot;
    for (u32 i = 0; i < count; i++) {
        __builtin_prefetch(eg_rec(g, eg_cell_node(g, list[i].first, &slot)));
        list[i].rest = list[i].first;
        list[i].n = 0;
    }
    for (bool more = true; more;) {
        more = false;
        for (u32 i = 0; i < count; i++) {
            use_list *l = &list[i];
            if (!l->rest || l->n == USERS)
                continue;
            l->cell[l->n++] = l->rest;
            l->rest = step_list(g, l->rest);
            more = true;
        }
    }
}

static void fetch_users(eg *g, use_list *l)
{
    u32 slot;
    l->nhash = 0;
    for (u32 i = 0; i < l->n; i++) {
        u32 n = eg_cell_node(g, l->cell[i], &slot);
        const u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD))
            l->hash[l->nhash++] = fetch_slots(g, n, rec, &l->old[i]);
    }
}

static void fetch_equals(const eg *g, const use_list *l)
{
    for (u32 i = 0; i < l->nhash; i++)
        fetch_equal(g, l->hash[i]);
}

/* Repairs the users of one loser; those that were read were fetched when there were so many unions.
 * False when a reservation was refused; what is left is owed. */
static bool repair_class(eg *g, use_list *list, u32 unions)
{
    u32 first = 0, last = 0, nkept = 0, loser = list->loser, left = 0;
    u32 winner = eg_find_halving(g, loser);
    bool ok = true;
    while (list->n && ok) {
        for (u32 i = 0, slot; i < list->n; i++) {
            u32 cell = list->cell[i], n = eg_cell_node(g, cell, &slot);
            u32 *rec = eg_rec(g, n), kid = rec[N_KIDS + eg_step(n) * slot];
            if (!(rec[N_STAMP] & S_DEAD) && kid != eg_find_halving(g, kid)) {
                ok = eg_union_reserve(g);
                if (!ok) {
                    left = cell; /* it still leads to the rest */
                    break;
                }
                /* an e-node that is listed twice may have a new key and be due again */
                bool same = g->unions == unions;
                repair_node(g, n, rec,
                            same ? list->old[i] : hash_rec(g, n, rec, eg_node_arity(g, n, rec)));
            }
            if (!(rec[N_STAMP] & S_DEAD)) {
                if (last)
                    set_next(g, last, cell);
                else
                    first = cell;
                last = cell;
                nkept++;
            }
        }
        list->n = 0;
        for (; ok && list->rest && list->n < USERS; list->rest = step_list(g, list->rest))
            list->cell[list->n++] = list->rest;
        unions = g->unions;
        fetch_users(g, list);
        fetch_equals(g, list);
    }
    if (last)
        set_next(g, last, left); /* 0, or the rest */
    else
        first = left;
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

/* The last few of the dirty classes. False when a reservation was refused. */
static bool repair_some(eg *g)
{
    use_list list[EG_LISTS];
    u32 count = 0;
    for (; count < EG_LISTS && g->dirty.n; count++) {
        list[count].first = g->dirty.at[--g->dirty.n];
        list[count].loser = g->dirty.at[--g->dirty.n];
    }
    read_lists(g, list, count);
    for (u32 i = 0; i < count; i++)
        fetch_users(g, &list[i]);
    for (u32 i = 0; i < count; i++)
        fetch_equals(g, &list[i]);
    const u32 unions = g->unions;
    for (u32 i = 0; i < count; i++) {
        if (repair_class(g, &list[i], unions))
            continue;
        while (++i < count) { /* still owed; they were here before */
            g->dirty.at[g->dirty.n++] = list[i].loser;
            g->dirty.at[g->dirty.n++] = list[i].first;
        }
        return false;
    }
    return true;
}

static eqf_status settle_class(eg *g, u32 c)
{
    u32 body = g->parent[c] & ~EG_BODY;
    if (UNLIKELY(g->marks))
        eg_journal_body(g, body);
    eg_body *b = eg_body_at(g, body);
    bool data = b->stamp & Q_DATA, queued = b->stamp & Q_QUEUED;
    b->stamp &= ~(u32)(Q_DATA | Q_QUEUED);
    if (!queued)
        return EQF_OK;
    if (data) {
        eg_touch_class(g, c);
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
                repair_node(g, n, rec, hash_rec(g, n, rec, eg_node_arity(g, n, rec)));
            else
                eg_remake(g, n, rec[N_CLASS], false);
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
    eg_kill(g, n, rec);
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
        u64 s = g->slot[i]; /* the e-node of an empty one is 0, which never moves */
        g->slot[i] = (s & ~(u64)UINT32_MAX) | moved(g, (u32)s);
    }
    for (u32 op = 1; op < g->nlogs; op++) {
        for (u32 k = 0; k < g->log[op].n; k++)
            g->log[op].at[k] = moved(g, g->log[op].at[k]);
    }
    for (u32 seg = 0; seg < EG_LONG; seg++)
        eg_col_drop(g, &g->seg[seg]);
}

static bool body_lives(const eg *g, u32 b)
{
    const eg_body *body = eg_body_at(g, b);
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
        eg_body *from = eg_body_at(g, --hi);
        memcpy(eg_body_at(g, lo), from, sizeof *from);
        for (u32 k = 0; k < g->nanalyses; k++)
            memcpy(eg_at(&g->data[k], lo), eg_at(&g->data[k], hi), g->data[k].elem);
        g->parent[from->self] = EG_BODY | lo++;
    }
    g->body.n = lo;
    g->free_bodies.n = 0;
    eg_col_drop(g, &g->body);
    for (u32 k = 0; k < g->nanalyses; k++) {
        g->data[k].n = lo;
        eg_col_drop(g, &g->data[k]);
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
    for (u32 op = 0; op < g->nlogs; op++)
        eg_log_compact(g, op);
    if (!g->options.explain)
        move_records(g);
    move_bodies(g);
    for (u32 i = 0; i < g->body.n; i++) {
        eg_body *b = eg_body_at(g, i);
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
    if (!g->dirty.n)
        eg_vec_free(g, &g->dirty);
    if (!g->queue.n)
        eg_vec_free(g, &g->queue);
    if (g->free_bodies.n > g->body.n / 16)
        move_bodies(g);
    eg_vec_trim(g, &g->free_bodies);
    for (u32 seg = 0; seg < 6; seg++) {
        eg_col_trim(g, &g->seg[seg]);
        g->orig[seg].n = g->edge[seg].n = g->seg[seg].n;
        eg_col_trim(g, &g->orig[seg]);
        eg_col_trim(g, &g->edge[seg]);
    }
    g->rep.n = g->class_ids;
    eg_col_trim(g, &g->rep);
    eg_col_trim(g, &g->body);
    for (u32 k = 0; k < g->nanalyses; k++)
        eg_col_trim(g, &g->data[k]);
    for (u32 op = 0; op < g->nlogs; op++) {
        eg_log *l = &g->log[op];
        u32 live = op ? l->alive : g->nclasses;
        if (l->n > live + live / 3)
            eg_log_compact(g, op);
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
           eg_slots_resize(g, (g->slot_mask + 1) / 2)) {
    }
}

eqf_status eg_rebuild(eg *g)
{
    eqf_status s = EQF_OK;
    for (;;) {
        if (g->dirty.n) {
            if (!repair_some(g))
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
    if (g->conflict) { /* the diagnostic names e-nodes: they stay where they are */
        s = g->conflict;
        g->conflict = EQF_OK;
    } else if (g->dead > EG_SWEEP_MIN && g->dead > g->alive / 2 && !g->marks) {
        eg_sweep(g);
    }
    return s;
}
