/* Matching: a query of atoms against the e-graph, by backtracking along a plan made for this search
 * from the sizes of this moment.
 *
 * Semi-naive search. A tuple (e-node with its class) is new when its stamp is at or after the rule's
 * watermark. For k atoms run k variants: variant i takes atom i from the new tuples, atoms before i
 * from the old ones, atoms after i from all; so each match is found once per state of its tuples.
 * When most of the graph is new one pass over everything that keeps matches with a new tuple is
 * cheaper; both find the same set. (egraph.md 5; Zhang et al. 2022.) */
#include "egraph/rules.h"

enum { STEP_SCAN, STEP_DOWN, STEP_UP, STEP_LOOK, STEP_CLASSES, STEP_CHECK };
enum { TUPLE_ANY, TUPLE_OLD, TUPLE_NEW };

typedef struct step {
    u8 kind, filter;
    bool class_bound, payload_bound;
    bool or_up; /* DOWN: take the uses of child up_slot when they are fewer */
    u32 atom, up_slot;
    u32 child;  /* plan node after this step, 0 not made yet */
    u64 bind;   /* children to be bound here */
} step;

/* What can come next once certain atoms are matched: a few candidates, the one with the shortest
 * list at run time is taken. */
enum { MAX_CHOICES = 3, MAX_PLANS = 96, TICKS = 4096 };
typedef struct plan {
    u32 n, done; /* atoms */
    u64 bound;   /* variables */
    step at[MAX_CHOICES];
} plan;

/* Where the last step finds what a match carries: made once per step, when it is first run. */
typedef struct emission {
    u32 npatch, ncheck;
    u32 at[EG_MAX_VARS], column[EG_MAX_VARS]; /* positions filled from a column of the index */
    u32 check[4]; /* column | earlier column that it must equal << 8, NO_COLUMN: its register */
} emission;
enum { NO_COLUMN = 255 };

typedef struct machine {
    eg *g;
    eg_search *s;
    const eg_rule *r;
    const eg_headrow *heads;
    u32 w; /* watermark */
    bool need_new;
    u32 inner; /* atoms whose class is a child of another atom */
    u32 nplans, swaps;
    u64 ticks, due; /* work so far, when to poll next */
    i64 variant;
    u32 regs[EG_MAX_VARS];
    u32 nodes[EG_MAX_ATOMS];
    /* atoms without variables below them, found before the search */
    bool fixed[EG_MAX_ATOMS];
    u64 work[EG_MAX_ATOMS]; /* spent on lists where a pair index would answer */
    eg_pair_index pair[EG_MAX_ATOMS];
    bool indexable[EG_MAX_ATOMS]; /* its operator has one head: an index of classes answers */
    const eg_class_index *index[EG_MAX_ATOMS]; /* that answers for the atom; NULL: ask */
    const step *emits[EG_MAX_ATOMS]; /* the step that the atom's emission is for */
    emission emission[EG_MAX_ATOMS];
    plan plans[MAX_PLANS];
} machine;

/* ---- results ------------------------------------------------------------------------------- */

/* Rows are copied ROW_WORDS words at a time: the last one may write past its end. */
enum { ROW_WORDS = 4 };

static i64 block_size(u32 cap)
{
    return (i64)sizeof(eg_block) + 4 * ((i64)cap + ROW_WORDS);
}

/* Blocks double up to LARGE_WORDS; the next is a large page. While the e-graph is small, SPARE_WORDS in
 * blocks of some size are kept for the next search: fresh memory is not cheap. */
enum { SOME_WORDS = 1 << 12, LARGE_WORDS = 1 << 17, SPARE_WORDS = 4 << 19, SPARE_BELOW = 32 << 20 };
enum { BLOCK_WORDS = (1 << 19) - sizeof(eg_block) / 4 - ROW_WORDS };

void eg_matches_drop(eg *g, eg_matches *m)
{
    eg_block *b = m->first;
    m->first = b->next;
    if (g->bytes >= SPARE_BELOW) {
        eg_spare_free(g);
    } else if (b->cap >= SOME_WORDS && g->spare_words + b->cap <= SPARE_WORDS) {
        b->next = g->spare;
        g->spare = b;
        g->spare_words += b->cap;
        return;
    }
    g->scratch_bytes -= block_size(b->cap);
    eg_free(g, b, block_size(b->cap));
}

void eg_spare_free(eg *g)
{
    while (g->spare) {
        eg_block *b = g->spare;
        g->spare = b->next;
        g->spare_words -= b->cap;
        g->scratch_bytes -= block_size(b->cap);
        eg_free(g, b, block_size(b->cap));
    }
}

void eg_matches_free(eg *g, eg_matches *m)
{
    while (m->first)
        eg_matches_drop(g, m);
    *m = (eg_matches){0};
}

static u32 *row_slot(eg *g, eg_matches *m)
{
    eg_block *b = m->last;
    if (UNLIKELY(!b || b->used + m->width > b->cap)) {
        u32 cap = !b ? MAX(64, m->width) : b->cap < LARGE_WORDS ? 2 * b->cap : BLOCK_WORDS;
        eg_block *fresh = g->spare;
        if (fresh && cap >= SOME_WORDS) {
            cap = fresh->cap;
            g->spare = fresh->next;
            g->spare_words -= cap;
        } else {
            fresh = eg_resize(g, NULL, 0, block_size(cap));
            if (!fresh)
                return NULL;
            g->scratch_bytes += block_size(cap);
        }
        *fresh = (eg_block){.cap = cap};
        if (b)
            b->next = fresh;
        else
            m->first = fresh;
        m->last = b = fresh;
    }
    u32 *row = b->at + b->used;
    b->used += m->width;
    m->count++;
    return row;
}

static bool yield(machine *m)
{
    eg_search *s = m->s;
    if (UNLIKELY(s->limit >= 0 && s->found >= s->limit)) {
        s->cut = true;
        return true;
    }
    s->found++;
    if (!s->out)
        return false;
    u32 *row = row_slot(m->g, s->out);
    if (UNLIKELY(!row)) {
        s->failed = true;
        return true;
    }
    const eg_rule *r = m->r;
    for (u32 i = 0; i < r->nsave; i++)
        row[i] = m->regs[r->save[i]];
    if (s->wide) {
        row += r->nsave;
        *row++ = m->swaps;
        memcpy(row, m->nodes, 4 * (size_t)r->atoms.n);
    }
    return false;
}

/* ---- the machine --------------------------------------------------------------------------- */

static bool exec(machine *m, u32 p, bool any_new);
static u32 make_plan(machine *m, u32 done, u64 bound, bool first);
static void bind_atom(const eg_atom *a, u64 *bound);

/* The plan node after a step; 0: every atom is matched. */
static u32 plan_after(machine *m, u32 p, step *st)
{
    if (!st->child) {
        u64 bound = m->plans[p].bound;
        bind_atom(&m->r->atoms.at[st->atom], &bound);
        u32 child = make_plan(m, m->plans[p].done | 1u << st->atom, bound, false);
        st->child = child + 1;
    }
    return st->child - 1;
}

/* Children in the order of `swap`; true to stop. */
static inline bool bind_kids(machine *m, const step *st, const eg_atom *a, u32 n, const u32 *rec,
                             bool swap, u32 i, bool any_new)
{
    u32 words = eg_step(n);
    u64 bind = st->bind;
    for (u32 j = 0; j < a->arity; j++) {
        u32 kid = rec[N_KIDS + words * (swap ? 1 - j : j)], v = a->kids[j];
        if (bind >> j & 1)
            m->regs[v] = kid;
        else if (m->regs[v] != kid)
            return false;
    }
    if (i)
        return exec(m, i, any_new);
    return m->need_new && !any_new ? false : yield(m);
}

static inline bool visit(machine *m, const step *st, const eg_atom *a, u32 n, const u32 *rec,
                         u32 i, bool any_new)
{
    u32 stamp = rec[N_STAMP];
    if (stamp & S_FLAGS)
        return false;
    bool is_new = stamp >> 2 >= m->w;
    if (st->filter != TUPLE_ANY && is_new != (st->filter == TUPLE_NEW))
        return false;
    if (LIKELY(a->head)) {
        if (rec[N_HEAD] != a->head)
            return false;
    } else {
        const eg_headrow *h = &m->heads[rec[N_HEAD]];
        if (h->op != a->op)
            return false;
        if (!st->payload_bound)
            m->regs[a->payload_var - 1] = h->payload;
        else if (m->regs[a->payload_var - 1] != h->payload)
            return false;
    }
    if (!st->class_bound)
        m->regs[a->cvar] = rec[N_CLASS];
    else if (m->regs[a->cvar] != rec[N_CLASS])
        return false;
    m->nodes[st->atom] = n;
    any_new |= is_new;
    if (LIKELY(!a->commutative))
        return bind_kids(m, st, a, n, rec, false, i, any_new);
    m->swaps &= ~(1u << st->atom);
    if (bind_kids(m, st, a, n, rec, false, i, any_new))
        return true;
    if (rec[N_KIDS] == rec[N_KIDS + 2])
        return false;
    m->swaps |= 1u << st->atom;
    return bind_kids(m, st, a, n, rec, true, i, any_new);
}

/* Counts work; time and the caller's flag are asked for now and then. */
static inline bool poll(machine *m, u32 work)
{
    eg_search *s = m->s;
    m->ticks += work;
    if (LIKELY(m->ticks < m->due))
        return false;
    m->due = m->ticks + TICKS;
    if (s->poll && s->poll(s->poll_user)) {
        s->failed = true;
        return true;
    }
    return false;
}

static bool exec_scan(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    const eg_log *l = &g->log[a->op];
    u32 e = st->filter == TUPLE_NEW ? eg_log_first(l, m->w) : 0;
    for (; e < l->nepochs; e++) {
        u32 stamp = l->epoch[e].stamp;
        if (st->filter == TUPLE_OLD && stamp >= m->w)
            return false;
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k++) {
            u32 n = l->at[k];
            const u32 *rec = eg_rec(g, n);
            if (k + 8 < end)
                __builtin_prefetch(eg_rec(g, l->at[k + 8]));
            if (rec[N_STAMP] >> 2 == stamp && visit(m, st, a, n, rec, i, any_new))
                return true;
        }
        if (poll(m, end - l->epoch[e].start))
            return true;
    }
    return false;
}

static bool exec_down(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    const eg_body *b = eg_body_of(g, m->regs[a->cvar]);
    if (!(b->mask & eg_op_bit(a->op)))
        return false;
    for (u32 n = b->members, after; n; n = after) {
        const u32 *rec = eg_rec(g, n);
        after = rec[N_NEXT];
        __builtin_prefetch(eg_rec(g, after));
        if (visit(m, st, a, n, rec, i, any_new))
            return true;
    }
    return false;
}

static bool exec_up(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 seg = MIN(a->arity, EG_LONG);
    for (u32 cell = eg_body_of(g, m->regs[a->kids[st->up_slot]])->uses, after; cell;
         cell = after) {
        u32 slot, n = eg_cell_node(g, cell, &slot);
        const u32 *rec = eg_rec(g, n);
        after = rec[N_KIDS + eg_step(n) * slot + 1];
        if (n >> 29 != seg)
            continue;
        if (a->commutative ? slot == 1 && rec[N_KIDS] == rec[N_KIDS + 2] : slot != st->up_slot)
            continue;
        if (visit(m, st, a, n, rec, i, any_new))
            return true;
    }
    return false;
}

static bool exec_look(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 kids[EG_MAX_VARS];
    for (u32 j = 0; j < a->arity; j++)
        kids[j] = m->regs[a->kids[j]];
    u32 head = a->head;
    if (!head) {
        const eg_lang *l = g->lang;
        u32 payload = m->regs[a->payload_var - 1];
        /* a head that was never made heads no e-node */
        for (u32 k = 1; k < (u32)l->heads.n && !head; k++) {
            if (l->heads.at[k].op == a->op && l->heads.at[k].payload == payload)
                head = k;
        }
        if (!head)
            return false;
    }
    u32 n = eg_lookup(g, head, a->arity, kids);
    return n ? visit(m, st, a, n, eg_rec(g, n), i, any_new) : false;
}

/* A live e-node that stands for the class in explanations. */
static u32 first_member(const eg *g, const eg_body *b)
{
    u32 n = b->members;
    while (eg_rec(g, n)[N_STAMP] & S_DEAD)
        n = eg_rec(g, n)[N_NEXT];
    return n;
}

static inline bool visit_class(machine *m, const step *st, const eg_atom *a, u32 c, u32 i,
                               bool any_new)
{
    const eg_body *b = eg_body_of(m->g, c);
    bool is_new = b->stamp >> 2 >= m->w;
    if (st->filter != TUPLE_ANY && is_new != (st->filter == TUPLE_NEW))
        return false;
    m->regs[a->cvar] = c;
    if (m->s->wide)
        m->nodes[st->atom] = first_member(m->g, b);
    any_new |= is_new;
    if (i)
        return exec(m, i, any_new);
    return m->need_new && !any_new ? false : yield(m);
}

static bool exec_classes(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    const eg_log *l = &g->log[EG_OP_CLASSES];
    u32 e = st->filter == TUPLE_NEW ? eg_log_first(l, m->w) : 0;
    for (; e < l->nepochs; e++) {
        u32 stamp = l->epoch[e].stamp, end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k++) {
            u32 c = l->at[k];
            if (!(g->parent[c] & EG_BODY) || eg_body_of(g, c)->stamp >> 2 != stamp)
                continue;
            if (visit_class(m, st, a, c, i, any_new))
                return true;
        }
    }
    return false;
}

static void finish(machine *m)
{
    m->s->work = m->ticks + (u64)m->s->found;
    for (u32 k = 0; k < (u32)m->r->atoms.n; k++)
        eg_pair_free(m->g, &m->pair[k]);
}

static bool exec_pair(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    const eg_pair_index *x = &m->pair[st->atom];
    u32 k = eg_pair_first(x, m->regs[a->cvar], m->regs[a->kids[st->up_slot]]);
    for (; k; k = x->chain[2 * k + 1]) {
        u32 n = x->chain[2 * k];
        if (visit(m, st, a, n, eg_rec(g, n), i, any_new))
            return true;
    }
    return false;
}

/* ---- class index --------------------------------------------------------------------------- */

static void plan_emission(const eg_rule *r, const step *st, const eg_atom *a, emission *x)
{
    x->npatch = x->ncheck = 0;
    for (u32 i = 0; i < r->nsave; i++) {
        for (u32 j = 0; j < a->arity; j++) {
            if (a->kids[j] == r->save[i] && (st->bind >> j & 1)) {
                x->at[x->npatch] = i;
                x->column[x->npatch++] = j;
            }
        }
    }
    for (u32 j = 0; j < a->arity; j++) {
        if (st->bind >> j & 1)
            continue;
        u32 same = NO_COLUMN;
        for (u32 first = 0; first < j; first++) {
            if (a->kids[first] == a->kids[j] && (st->bind >> first & 1))
                same = first;
        }
        x->check[x->ncheck++] = j | same << 8;
    }
}

/* Does the tuple agree where the atom's children are bound or repeated? */
static inline bool agrees(const machine *m, const emission *x, const eg_atom *a, const u32 *kid)
{
    for (u32 k = 0; k < x->ncheck; k++) {
        u32 j = x->check[k] & 255, same = x->check[k] >> 8;
        if (kid[j] != (same == NO_COLUMN ? m->regs[a->kids[j]] : kid[same]))
            return false;
    }
    return true;
}

/* A row of the block for each tuple of a range that agrees: `row`, with what the tuple brings. Returns
 * where the next one goes; without a block (at NULL) only counts. */
static u32 *write_rows(const machine *m, const emission *e, const eg_atom *a, u32 k,
                       const eg_class_index *x, u32 from, u32 end, const u32 *row, u32 width,
                       u32 *at, i64 *found)
{
    const u32 arity = a->arity, *kid = x->kids + (size_t)from * arity;
    if (LIKELY(at && !e->ncheck && e->npatch == 2 && width <= ROW_WORDS)) {
        const u32 p = e->at[0], q = e->at[1], i = e->column[0], j = e->column[1];
        *found = end - from;
        for (; from < end; from++, kid += arity, at += width) {
            memcpy(at, row, 4 * ROW_WORDS);
            at[p] = kid[i];
            at[q] = kid[j];
        }
        return at;
    }
    *found = 0;
    for (; from < end; from++, kid += arity) {
        if (!agrees(m, e, a, kid))
            continue;
        ++*found;
        if (!at)
            continue;
        for (u32 i = 0; i < width; i += ROW_WORDS)
            memcpy(at + i, row + i, 4 * ROW_WORDS);
        for (u32 i = 0; i < e->npatch; i++)
            at[e->at[i]] = kid[e->column[i]];
        if (x->node)
            at[m->r->nsave + 1 + k] = x->node[from];
        at += width;
    }
    return at;
}

/* Writes a match for each tuple of a range: the last step, where nearly all matches are made. */
static bool emit(machine *m, const step *st, const eg_atom *a, const eg_class_index *x, u32 from,
                 u32 to)
{
    eg_search *s = m->s;
    const eg_rule *r = m->r;
    eg_matches *out = s->out;
    u32 row[EG_MAX_VARS + 1 + EG_MAX_ATOMS + ROW_WORDS];
    if (UNLIKELY(m->emits[st->atom] != st)) {
        plan_emission(r, st, a, &m->emission[st->atom]);
        m->emits[st->atom] = st;
    }
    const emission *e = &m->emission[st->atom];
    for (u32 i = 0; i < r->nsave; i++)
        row[i] = m->regs[r->save[i]];
    if (s->wide) {
        row[r->nsave] = m->swaps;
        memcpy(row + r->nsave + 1, m->nodes, 4 * (size_t)r->atoms.n);
    }
    while (from < to) {
        if (UNLIKELY(s->limit >= 0 && s->found >= s->limit)) {
            for (; from < to && !agrees(m, e, a, x->kids + (size_t)from * a->arity); from++) {
            }
            s->cut = from < to;
            return s->cut;
        }
        /* as many as the limit and the block allow */
        i64 room = s->limit >= 0 ? s->limit - s->found : INT64_MAX, found;
        u32 width = out ? out->width : 0, *at = NULL;
        if (out) {
            eg_block *b = out->last;
            if (!b || b->used + width > b->cap) {
                if (UNLIKELY(!row_slot(m->g, out))) {
                    s->failed = true;
                    return true;
                }
                b = out->last;
                b->used -= width;
                out->count--;
            }
            room = MIN(room, (i64)((b->cap - b->used) / width));
            at = b->at + b->used;
        }
        u32 end = (u32)MIN((i64)to, from + room);
        at = write_rows(m, e, a, st->atom, x, from, end, row, width, at, &found);
        from = end;
        s->found += found;
        if (out) {
            out->last->used = (u32)(at - out->last->at);
            out->count += found;
        }
    }
    return false;
}

static bool index_range(machine *m, const step *st, const eg_atom *a, const eg_class_index *x,
                        u32 from, u32 to, u32 i, bool any_new)
{
    if (!i && !a->commutative)
        return (!m->need_new || any_new) && emit(m, st, a, x, from, to);
    u32 arity = a->arity, swaps = a->commutative ? 2 : 1;
    for (u32 e = from; e < to; e++) {
        const u32 *kid = x->kids + (size_t)e * arity;
        m->nodes[st->atom] = x->node ? x->node[e] : 0;
        for (u32 swap = 0; swap < swaps; swap++) {
            if (swap && kid[0] == kid[1])
                break;
            m->swaps = (m->swaps & ~(1u << st->atom)) | swap << st->atom;
            bool same = true;
            for (u32 j = 0; j < arity && same; j++) {
                u32 k = kid[swap ? 1 - j : j], v = a->kids[j];
                if (st->bind >> j & 1)
                    m->regs[v] = k;
                else
                    same = m->regs[v] == k;
            }
            if (!same)
                continue;
            if (i ? exec(m, i, any_new) : (!m->need_new || any_new) && yield(m))
                return true;
        }
    }
    return false;
}

static inline bool exec_index(machine *m, const step *st, const eg_atom *a, const eg_class_index *x,
                       u32 i, bool any_new)
{
    const eg_range *r = &x->range[m->regs[a->cvar]];
    if (r->first == r->end)
        return false;
    if (st->filter != TUPLE_NEW && r->first < r->fresh && (i || !m->need_new || any_new) &&
        index_range(m, st, a, x, r->first, r->fresh, i, any_new))
        return true;
    return st->filter != TUPLE_OLD && r->fresh < r->end &&
           index_range(m, st, a, x, r->fresh, r->end, i, true);
}

/* Members of a known class: the index, once walking lists has cost about as much as making it. */
static inline bool exec_members(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg_search *s = m->s;
    const eg_class_index *x = m->index[st->atom];
    if (LIKELY(x != NULL))
        return exec_index(m, st, a, x, i, any_new);
    if (s->indexes && m->indexable[st->atom]) {
        x = eg_index_ask(m->g, s->indexes, a->op, m->w, s->wide,
                         eg_body_of(m->g, m->regs[a->cvar])->nmembers);
        m->index[st->atom] = x;
        if (x)
            return exec_index(m, st, a, x, i, any_new);
    }
    return exec_down(m, st, a, i, any_new);
}

/* Class and a child are known: the shorter list, or an index when lists have cost enough. */
static bool exec_both(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 k = st->atom;
    if (m->pair[k].heads && m->pair[k].slot == st->up_slot)
        return exec_pair(m, st, a, i, any_new);
    u32 down = eg_body_of(g, m->regs[a->cvar])->nmembers;
    u32 up = eg_body_of(g, m->regs[a->kids[st->up_slot]])->nuses;
    m->work[k] += MIN(down, up);
    if (UNLIKELY(m->work[k] > 4 * (u64)g->log[a->op].alive + 256) && !a->commutative &&
        !m->pair[k].heads) {
        m->work[k] = 0;
        eg_pair_make(g, &m->pair[k], a->op, st->up_slot);
        if (m->pair[k].heads)
            return exec_pair(m, st, a, i, any_new);
    }
    return up < down ? exec_up(m, st, a, i, any_new) : exec_down(m, st, a, i, any_new);
}

/* Length of the list that a step would walk. */
static u32 list_length(const machine *m, const step *st)
{
    const eg *g = m->g;
    const eg_atom *a = &m->r->atoms.at[st->atom];
    switch (st->kind) {
    case STEP_DOWN: {
        u32 n = eg_body_of(g, m->regs[a->cvar])->nmembers;
        if (!st->or_up)
            return n;
        if (m->pair[st->atom].heads)
            return 1;
        return MIN(n, eg_body_of(g, m->regs[a->kids[st->up_slot]])->nuses);
    }
    case STEP_UP:
        return eg_body_of(g, m->regs[a->kids[st->up_slot]])->nuses;
    case STEP_SCAN:
        return g->log[a->op].n;
    case STEP_CLASSES:
        return g->nclasses;
    default:
        return 0;
    }
}

static bool exec(machine *m, u32 p, bool any_new)
{
    plan *at = &m->plans[p];
    step *st = &at->at[0];
    if (at->n > 1) {
        u32 best = list_length(m, st);
        for (u32 k = 1; k < at->n && best; k++) {
            u32 length = list_length(m, &at->at[k]);
            if (length < best) {
                best = length;
                st = &at->at[k];
            }
        }
    }
    u32 i = LIKELY(st->child) ? st->child - 1 : plan_after(m, p, st);
    const eg_atom *a = &m->r->atoms.at[st->atom];
    if (poll(m, 1))
        return true;
    switch (st->kind) {
    case STEP_SCAN:
        return exec_scan(m, st, a, i, any_new);
    case STEP_DOWN:
        return st->or_up ? exec_both(m, st, a, i, any_new) : exec_members(m, st, a, i, any_new);
    case STEP_UP:
        return exec_up(m, st, a, i, any_new);
    case STEP_LOOK:
        return exec_look(m, st, a, i, any_new);
    case STEP_CLASSES:
        return exec_classes(m, st, a, i, any_new);
    default:
        return visit_class(m, st, a, m->regs[a->cvar], i, any_new);
    }
}

/* ---- planning ------------------------------------------------------------------------------ */

static u32 delta_size(const eg_log *l, u32 w)
{
    u32 e = eg_log_first(l, w);
    return e < l->nepochs ? l->n - l->epoch[e].start : 0;
}

/* Cost class of running atom k next, given the bound variables; fills the step. */
static u64 plan_atom(machine *m, u32 k, u64 bound, bool first, u8 filter, step *st)
{
    const eg *g = m->g;
    const eg_atom *a = &m->r->atoms.at[k];
    *st = (step){.filter = filter, .atom = k};
    st->class_bound = bound >> a->cvar & 1;
    if (a->op == EG_OP_CLASSES) {
        st->kind = st->class_bound ? STEP_CHECK : STEP_CLASSES;
        return st->class_bound ? 0 : filter == TUPLE_NEW ? delta_size(&g->log[0], m->w) + 1
                                                          : g->nclasses + 1u;
    }
    st->payload_bound = a->payload_var && (bound >> (a->payload_var - 1) & 1);
    bool all = !a->payload_var || st->payload_bound;
    u64 seen = bound;
    i64 up = -1;
    u32 up_uses = 0;
    for (u32 j = 0; j < a->arity; j++) {
        u32 v = a->kids[j];
        if (!(seen >> v & 1)) {
            st->bind |= (u64)1 << j;
            all = false;
        }
        if (bound >> v & 1) {
            u32 uses = first ? eg_body_of(g, m->regs[v])->nuses : 1;
            if (up < 0 || uses < up_uses) {
                up = j;
                up_uses = uses;
            }
        }
        seen |= (u64)1 << v;
    }
    st->up_slot = up < 0 ? 0 : (u32)up;
    const eg_log *l = &g->log[a->op];
    u64 scan = filter == TUPLE_NEW ? delta_size(l, m->w) : l->visible;
    if (all) {
        st->kind = STEP_LOOK;
        return 0;
    }
    if (first) { /* classes known now are the fixed ones: their lists can be counted */
        u64 best = scan * (m->inner >> k & 1 ? 3 : 1); /* going up walks lists, going down may not */
        st->kind = STEP_SCAN;
        if (up >= 0 && up_uses < best) {
            st->kind = STEP_UP;
            best = up_uses;
        }
        if (st->class_bound && eg_body_of(g, m->regs[a->cvar])->nmembers < best) {
            st->kind = STEP_DOWN;
            best = eg_body_of(g, m->regs[a->cvar])->nmembers;
        }
        return best + 1;
    }
    if (st->class_bound) {
        st->kind = STEP_DOWN;
        st->or_up = up >= 0;
        return up >= 0 ? 1 : 2 + l->visible / MAX(g->nclasses, 1);
    }
    if (up >= 0) {
        st->kind = STEP_UP;
        return 3 + 2 * (u64)l->visible / MAX(g->nclasses, 1);
    }
    st->kind = STEP_SCAN;
    return 1000 + scan;
}

static void bind_atom(const eg_atom *a, u64 *bound)
{
    *bound |= (u64)1 << a->cvar;
    for (u32 j = 0; j < a->arity; j++)
        *bound |= (u64)1 << a->kids[j];
    if (a->payload_var)
        *bound |= (u64)1 << (a->payload_var - 1);
}

static u8 filter_of(u32 k, i64 variant)
{
    return variant < 0 || k > variant ? TUPLE_ANY : k == variant ? TUPLE_NEW : TUPLE_OLD;
}

/* A node of the plan; 0 when no atom is left. The first step's candidates were counted exactly, so
 * only the best is kept; later ones are compared at run time. */
static u32 make_plan(machine *m, u32 done, u64 bound, bool first)
{
    const eg_rule *r = m->r;
    u64 cost[MAX_CHOICES];
    step best[MAX_CHOICES];
    u32 n = 0, most = first || m->nplans + EG_MAX_ATOMS > MAX_PLANS ? 1 : MAX_CHOICES;
    i64 v = m->variant;
    for (u32 k = 0; k < (u32)r->atoms.n; k++) {
        if (done >> k & 1 || (first && v >= 0 && !m->fixed[v] && k != v))
            continue;
        step st;
        u64 c = plan_atom(m, k, bound, first, filter_of(k, v), &st);
        u32 i = n < most ? n++ : n;
        if (i == n && c >= cost[n - 1])
            continue;
        if (i == n)
            i--;
        for (; i > 0 && cost[i - 1] > c; i--) {
            cost[i] = cost[i - 1];
            best[i] = best[i - 1];
        }
        cost[i] = c;
        best[i] = st;
    }
    if (!n)
        return 0;
    while (n > 1 && (cost[0] == 0 || cost[n - 1] >= 1000)) /* look-ups first, scans last */
        n--;
    u32 p = ++m->nplans;
    plan *at = &m->plans[p];
    at->n = n;
    at->done = done;
    at->bound = bound;
    memcpy(at->at, best, n * sizeof *best);
    return p;
}

/* `variant` is the atom to be new, -1 for all matches. */
static void run_variant(machine *m, u64 bound, i64 variant)
{
    const eg_rule *r = m->r;
    bool any_new = false;
    u32 done = 0;
    m->variant = variant;
    for (u32 k = 0; k < (u32)r->atoms.n; k++) {
        if (!m->fixed[k])
            continue;
        done |= 1u << k;
        bool is_new = eg_rec(m->g, m->nodes[k])[N_STAMP] >> 2 >= m->w;
        u8 f = filter_of(k, variant);
        if (f != TUPLE_ANY && is_new != (f == TUPLE_NEW))
            return;
        any_new |= is_new;
    }
    m->nplans = 0;
    for (u32 k = 0; k < (u32)r->atoms.n; k++)
        m->emits[k] = NULL;
    m->swaps = 0;
    u32 p = make_plan(m, done, bound, true);
    if (p)
        exec(m, p, any_new);
    else if (!m->need_new || any_new)
        yield(m);
}

/* Finds the atoms that have no variable below them. False: one is absent, nothing matches. */
static bool find_fixed(machine *m, u64 *bound)
{
    const eg_rule *r = m->r;
    /* children stand after their parent */
    for (u32 k = (u32)r->atoms.n; k-- > 0;) {
        const eg_atom *a = &r->atoms.at[k];
        m->fixed[k] = false;
        if (!a->head)
            continue;
        u32 kids[EG_MAX_VARS], j = 0;
        for (; j < a->arity && (*bound >> a->kids[j] & 1); j++)
            kids[j] = m->regs[a->kids[j]];
        if (j < a->arity)
            continue;
        u32 n = eg_lookup(m->g, a->head, a->arity, kids);
        if (!n)
            return false;
        const u32 *rec = eg_rec(m->g, n);
        if (rec[N_STAMP] & S_FLAGS)
            return false;
        if ((*bound >> a->cvar & 1) && m->regs[a->cvar] != rec[N_CLASS])
            return false;
        m->regs[a->cvar] = rec[N_CLASS];
        *bound |= (u64)1 << a->cvar;
        m->fixed[k] = true;
        m->nodes[k] = n;
    }
    return true;
}

void eg_search_run(eg_search *s)
{
    eg *g = s->g;
    const eg_rule *r = s->rule;
    u32 natoms = (u32)r->atoms.n;
    s->found = 0;
    s->work = 0;
    s->cut = s->failed = false;
    if (s->out)
        s->out->width = r->nsave + (s->wide ? 1 + natoms : 0);
    u64 delta = 0;
    for (u32 k = 0; k < natoms; k++) {
        u32 op = r->atoms.at[k].op;
        if (op >= g->nlogs || (op ? g->log[op].visible : g->nclasses) == 0)
            return;
        if (g->log[op].broken && !eg_log_repair(g, op)) {
            s->failed = true;
            return;
        }
        delta += delta_size(&g->log[op], s->watermark);
    }
    if (s->watermark && !s->full && delta == 0)
        return;
    machine m;
    m.g = g;
    m.s = s;
    m.r = r;
    m.heads = g->lang->heads.at;
    m.w = s->watermark;
    m.need_new = false;
    m.ticks = 0;
    m.due = TICKS;
    u64 bound = 0;
    if (s->in_class) {
        m.regs[r->save[0]] = s->in_class;
        bound |= (u64)1 << r->save[0];
    }
    if (!find_fixed(&m, &bound))
        return;
    if (s->indexes && !eg_index_room(g, s->indexes, natoms))
        s->indexes = NULL; /* lists do */
    m.inner = 0;
    for (u32 k = 0; k < natoms; k++) {
        for (u32 i = 0; i < natoms; i++) {
            for (u32 j = 0; j < r->atoms.at[i].arity; j++)
                m.inner |= (u32)(r->atoms.at[i].kids[j] == r->atoms.at[k].cvar) << k;
        }
        m.work[k] = 0;
        m.index[k] = NULL;
        m.pair[k] = (eg_pair_index){0};
        const eg_atom *a = &r->atoms.at[k];
        m.indexable[k] = a->head && a->arity >= 1 && a->arity <= 4 &&
                         !g->lang->ops.at[a->op].payload;
    }
    if (!s->watermark || s->full) {
        m.w = 0;
        run_variant(&m, bound, -1);
        finish(&m);
        return;
    }
    /* what the variants would start from, against one pass over all */
    u64 start_delta = 0, start_all = UINT64_MAX;
    for (u32 k = 0; k < natoms; k++) {
        step st;
        if (m.fixed[k]) {
            start_delta += eg_rec(g, m.nodes[k])[N_STAMP] >> 2 >= m.w ? g->alive : 0;
            continue;
        }
        start_delta += plan_atom(&m, k, bound, true, TUPLE_NEW, &st);
        start_all = MIN(start_all, plan_atom(&m, k, bound, true, TUPLE_ANY, &st));
    }
    if (s->delta_only || start_delta <= start_all) {
        for (u32 k = 0; k < natoms && !s->cut && !s->failed; k++) {
            if (delta_size(&g->log[r->atoms.at[k].op], m.w))
                run_variant(&m, bound, k);
        }
    } else {
        m.need_new = true;
        run_variant(&m, bound, -1);
    }
    finish(&m);
}
