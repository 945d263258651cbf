/* Matching: a query of atoms against the e-graph, by backtracking along a plan made for this search
 * from the sizes of this moment.
 *
 * Semi-naive search. A tuple (e-node with its class) is new when its stamp is at or after the rule's
 * watermark. For k atoms run k variants: variant i takes atom i from the new tuples, atoms before i
 * from the old ones, atoms after i from all; so each match is found once per state of its tuples.
 * New for an atom is what changed where the atom looks: an e-node that merely came into another class
 * makes no match of a pattern whose root nothing else names, and is not new there (watch_columns).
 * When most of the graph is new one pass over everything that keeps matches with a new tuple is
 * cheaper; both find the same set. (egraph.md 5; Zhang et al. 2022.) */
#include "egraph/match.h"

enum { TICKS = 4096 }; /* of work between two polls */

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
    eg_block *b = eg_row_block(m->g, s->out);
    if (UNLIKELY(!b)) {
        s->failed = true;
        return true;
    }
    u32 *row = b->at + b->used;
    b->used += s->out->width;
    s->out->count++;
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
    bool is_new = eg_is_new(stamp, m->w, a->watch);
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

/* Children of an e-node that have to hold others, where an index says which classes do. */
typedef struct gates {
    u32 n, word[2]; /* of the record */
    const eg_range *range[2];
    bool only_new; /* there must be a new one among them, unless the e-node is new itself */
} gates;

static gates gates_of(const machine *m, const eg_atom *a)
{
    gates out = {0};
    if (a->commutative || a->arity > 4)
        return out;
    for (u32 k = 0; k < (u32)m->r->atoms.n && out.n < 2; k++) {
        for (u32 j = 0; j < a->arity && m->index[k] && out.n < 2; j++) {
            if (a->kids[j] != m->r->atoms.at[k].cvar)
                continue;
            out.word[out.n] = N_KIDS + 2 * j;
            out.range[out.n++] = m->index[k]->range;
        }
    }
    out.only_new = m->need_new && out.n == 1 && m->r->atoms.n == 2;
    return out;
}

static inline bool passes(const gates *gate, const u32 *rec, bool is_new)
{
    const bool only_new = gate->only_new & !is_new;
    for (u32 i = 0; i < gate->n; i++) {
        const eg_range *r = &gate->range[i][rec[gate->word[i]]];
        if ((only_new ? r->fresh : r->first) == r->end)
            return false;
    }
    return true;
}

static inline void fetch_ranges(const gates *gate, const u32 *rec)
{
    for (u32 i = 0; i < gate->n; i++)
        __builtin_prefetch(&gate->range[i][rec[gate->word[i]]]);
}

/* Entries of a log from k on, in one epoch. */
static bool scan_some(machine *m, const step *st, const eg_atom *a, u32 k, u32 end, u32 stamp,
                      u32 i, bool any_new)
{
    eg *g = m->g;
    const u32 *at = g->log[a->op].at;
    const gates gate = gates_of(m, a);
    for (; k < end; k++) {
        u32 n = at[k];
        const u32 *rec = eg_rec(g, n);
        if (k + 16 < end) {
            __builtin_prefetch(eg_rec(g, at[k + 16]));
            fetch_ranges(&gate, eg_rec(g, at[k + 8]));
        }
        if (rec[N_STAMP] >> S_TIME == stamp &&
            passes(&gate, rec, eg_is_new(rec[N_STAMP], m->w, a->watch)) &&
            visit(m, st, a, n, rec, i, any_new))
            return true;
    }
    return false;
}

/* How many entries before an index made meanwhile is noticed. */
enum { SOME = 512 };

static bool exec_scan(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    const eg_log *l = &m->g->log[a->op];
    u32 e = st->filter == TUPLE_NEW ? eg_log_first(l, m->w) : 0;
    for (; e < l->nepochs; e++) {
        u32 stamp = l->epoch[e].stamp;
        if (st->filter == TUPLE_OLD && stamp > m->w)
            return false;
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k += SOME) {
            u32 some = MIN(end - k, SOME);
            if (scan_some(m, st, a, k, k + some, stamp, i, any_new) || poll(m, some))
                return true;
        }
    }
    return false;
}

static bool exec_down(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    for (u32 n = eg_body_of(g, m->regs[a->cvar])->members, after; n; n = after) {
        const u32 *rec = eg_rec(g, n);
        after = rec[N_NEXT];
        __builtin_prefetch(eg_rec(g, after));
        if (visit(m, st, a, n, rec, i, any_new))
            return true;
    }
    return false;
}

/* Of the children that are known the one with the fewest users. */
static inline u32 up_slot(const machine *m, const step *st, const eg_atom *a)
{
    u32 best = st->up_slot;
    if (LIKELY(!(st->known & (st->known - 1))))
        return best;
    u32 fewest = eg_body_of(m->g, m->regs[a->kids[best]])->nuses;
    for (u32 j = best + 1; j < a->arity; j++) {
        if (!(st->known >> j & 1))
            continue;
        u32 uses = eg_body_of(m->g, m->regs[a->kids[j]])->nuses;
        if (uses < fewest) {
            fewest = uses;
            best = j;
        }
    }
    return best;
}

static inline u32 up_length(const machine *m, const step *st, const eg_atom *a)
{
    return eg_body_of(m->g, m->regs[a->kids[up_slot(m, st, a)]])->nuses;
}

static bool exec_up(machine *m, const step *st, const eg_atom *a, u32 up, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 seg = MIN(a->arity, EG_LONG);
    for (u32 cell = eg_body_of(g, m->regs[a->kids[up]])->uses, after; cell; cell = after) {
        u32 slot, n = eg_cell_node(g, cell, &slot);
        const u32 *rec = eg_rec(g, n);
        after = rec[N_KIDS + eg_step(n) * slot + 1];
        if (n >> 29 != seg)
            continue;
        if (a->commutative ? slot == 1 && rec[N_KIDS] == rec[N_KIDS + 2] : slot != up)
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

static bool index_range(machine *m, const step *st, const eg_atom *a, const eg_class_index *x,
                        u32 from, u32 to, u32 i, bool any_new)
{
    if (!i && !a->commutative)
        return (!m->need_new || any_new) && eg_emit(m, st, a, x, from, to);
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
                              u32 key, u32 i, bool any_new)
{
    const eg_range *r = &x->range[key];
    if (r->first == r->end)
        return false;
    if (st->filter != TUPLE_NEW && r->first < r->fresh && (i || !m->need_new || any_new) &&
        index_range(m, st, a, x, r->first, r->fresh, i, any_new))
        return true;
    return st->filter != TUPLE_OLD && r->fresh < r->end &&
           index_range(m, st, a, x, r->fresh, r->end, i, true);
}

/* An index knows operators, not heads. */
static inline bool many_heads(const machine *m, const eg_atom *a)
{
    return m->g->lang->ops.at[a->op].nheads > 1;
}

/* The index of an atom's operator by class, once walking lists has cost about as much as making it;
 * `work`: what a walk costs now. */
static inline const eg_class_index *class_index(machine *m, const step *st, const eg_atom *a,
                                                u32 work)
{
    eg_search *s = m->s;
    const eg_class_index *x = m->index[st->atom];
    if (LIKELY(x != NULL) || !s->indexes || !a->indexable || many_heads(m, a))
        return x;
    return m->index[st->atom] =
               eg_index_ask(m->g, s->indexes, a->op, EG_ROOT, a->watch, m->w, s->wide, work);
}

/* The same by the child in a slot. */
static inline const eg_class_index *up_index(machine *m, const step *st, const eg_atom *a, u32 slot,
                                             u32 work)
{
    eg_search *s = m->s;
    if (!s->indexes || !a->indexable || a->commutative)
        return NULL;
    const eg_class_index **x = &m->up[st->atom][slot];
    if (LIKELY(*x != NULL) || many_heads(m, a))
        return *x;
    return *x = eg_index_ask(m->g, s->indexes, a->op, slot, a->watch, m->w, s->wide, work);
}

/* A column is bound where its variable comes first. */
static const turned *turn(machine *m, const step *st, const eg_atom *a, u32 slot)
{
    turned *t = &m->turned[st->atom];
    if (LIKELY(t->of == st && t->slot == slot))
        return t;
    *t = (turned){.of = st, .slot = slot, .st = *st, .atom = *a};
    t->atom.kids = t->kids;
    t->st.bind = 0;
    for (u32 j = 0; j < a->arity; j++) {
        u32 v = t->kids[j] = j == slot ? a->cvar : a->kids[j];
        bool seen = j != slot && (st->known >> j & 1);
        for (u32 first = 0; first < j; first++)
            seen |= t->kids[first] == v;
        t->st.bind |= (u64)!seen << j;
    }
    m->emits[st->atom] = NULL;
    return t;
}

/* Members of a known class. */
static inline bool exec_members(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    const eg_class_index *x = m->index[st->atom];
    if (UNLIKELY(!x)) {
        const eg_body *b = eg_body_of(m->g, m->regs[a->cvar]);
        if (!(b->mask & eg_op_bit(a->op)))
            return false;
        x = class_index(m, st, a, b->nmembers);
        if (!x)
            return exec_down(m, st, a, i, any_new);
    }
    return exec_index(m, st, a, x, m->regs[a->cvar], i, any_new);
}

/* Users of a known child. */
static inline bool exec_users(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    u32 slot = up_slot(m, st, a), kid = m->regs[a->kids[slot]];
    const eg_class_index *x = up_index(m, st, a, slot, eg_body_of(m->g, kid)->nuses);
    if (!x)
        return exec_up(m, st, a, slot, i, any_new);
    const turned *t = turn(m, st, a, slot);
    return exec_index(m, &t->st, &t->atom, x, kid, i, any_new);
}

/* Tuples that one reads as fast as the first of a chain. */
enum { SHORT_RANGE = 32 };

/* Class and a child are known: the shorter list, or an index when lists have cost enough. */
static bool exec_both(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 k = st->atom, c = m->regs[a->cvar];
    const eg_class_index *x = m->index[k];
    if (UNLIKELY(!x)) {
        const eg_body *b = eg_body_of(g, c);
        if (!(b->mask & eg_op_bit(a->op)))
            return false;
        x = class_index(m, st, a, b->nmembers);
    }
    if (x && x->range[c].end - x->range[c].first <= SHORT_RANGE)
        return exec_index(m, st, a, x, c, i, any_new);
    if (m->pair[k].heads && m->pair[k].slot == st->up_slot)
        return exec_pair(m, st, a, i, any_new);
    u32 slot = up_slot(m, st, a), up = eg_body_of(g, m->regs[a->kids[slot]])->nuses;
    u32 down = eg_body_of(g, c)->nmembers;
    m->work[k] += MIN(down, up);
    if (UNLIKELY(m->work[k] > 4 * (u64)g->log[a->op].alive + 256) && !a->commutative &&
        !m->pair[k].heads) {
        m->work[k] = 0;
        eg_pair_make(g, &m->pair[k], a->op, st->up_slot);
        if (m->pair[k].heads)
            return exec_pair(m, st, a, i, any_new);
    }
    return up < down ? exec_up(m, st, a, slot, i, any_new) : exec_down(m, st, a, i, any_new);
}

/* Length of the list that a step would walk. */
static u32 list_length(const machine *m, const step *st)
{
    const eg *g = m->g;
    const eg_atom *a = &m->r->atoms.at[st->atom];
    const eg_class_index *x = m->index[st->atom];
    switch (st->kind) {
    case STEP_DOWN: {
        if (x && !st->or_up)
            return x->range[m->regs[a->cvar]].end - x->range[m->regs[a->cvar]].first;
        const eg_body *b = eg_body_of(g, m->regs[a->cvar]);
        u32 n = b->mask & eg_op_bit(a->op) ? b->nmembers : 0;
        if (!st->or_up || !n)
            return n;
        if (x && x->range[m->regs[a->cvar]].end == x->range[m->regs[a->cvar]].first)
            return 0;
        if (m->pair[st->atom].heads)
            return 1;
        return MIN(n, up_length(m, st, a));
    }
    case STEP_UP:
        return up_length(m, st, a);
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
    u32 i = LIKELY(st->child) ? st->child - 1 : eg_plan_after(m, p, st);
    const eg_atom *a = &m->r->atoms.at[st->atom];
    if (poll(m, 1))
        return true;
    switch (st->kind) {
    case STEP_SCAN:
        return exec_scan(m, st, a, i, any_new);
    case STEP_DOWN:
        return st->or_up ? exec_both(m, st, a, i, any_new) : exec_members(m, st, a, i, any_new);
    case STEP_UP:
        return exec_users(m, st, a, i, any_new);
    case STEP_LOOK:
        return exec_look(m, st, a, i, any_new);
    case STEP_CLASSES:
        return exec_classes(m, st, a, i, any_new);
    default:
        return visit_class(m, st, a, m->regs[a->cvar], i, any_new);
    }
}

/* ---- the search ---------------------------------------------------------------------------- */

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
        bool is_new = eg_is_new(eg_rec(m->g, m->nodes[k])[N_STAMP], m->w, r->atoms.at[k].watch);
        u8 f = filter_of(k, variant);
        if (f != TUPLE_ANY && is_new != (f == TUPLE_NEW))
            return;
        any_new |= is_new;
    }
    m->nplans = 0;
    for (u32 k = 0; k < (u32)r->atoms.n; k++) {
        m->emits[k] = NULL;
        m->turned[k].of = NULL;
    }
    m->swaps = m->fixed_swaps;
    u32 p = eg_plan_make(m, done, bound, true);
    if (p)
        exec(m, p, any_new);
    else if (!m->need_new || any_new)
        yield(m);
}

/* Finds the atoms that have no variable below them. False: one is absent, nothing matches. */
static bool find_fixed(machine *m, u64 *bound)
{
    const eg_rule *r = m->r;
    m->fixed_swaps = 0;
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
        if (a->commutative && rec[N_KIDS] != kids[0])
            m->fixed_swaps |= 1u << k;
        m->fixed[k] = true;
        m->nodes[k] = n;
    }
    return true;
}

/* Tuples of all atoms that are few. */
enum { FEW = 24 };

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
    u64 delta = 0, all = 0;
    for (u32 k = 0; k < natoms; k++) {
        u32 op = r->atoms.at[k].op;
        if (op >= g->nlogs || (op ? g->log[op].visible : g->nclasses) == 0)
            return;
        if (g->log[op].broken && !eg_log_repair(g, op)) {
            s->failed = true;
            return;
        }
        delta += eg_delta_size(&g->log[op], s->watermark);
        all += op ? g->log[op].n : g->nclasses;
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
    if (s->indexes && !eg_index_room(g, s->indexes, 2 * natoms))
        s->indexes = NULL; /* lists do */
    for (u32 k = 0; k < natoms; k++) {
        m.work[k] = 0;
        m.index[k] = NULL;
        memset(m.up[k], 0, sizeof m.up[k]);
        m.pair[k] = (eg_pair_index){0};
    }
    if (!s->watermark || s->full) {
        m.w = 0;
        run_variant(&m, bound, -1);
        finish(&m);
        return;
    }
    if (all <= FEW && !s->delta_only) { /* sooner looked at than compared */
        m.need_new = true;
        run_variant(&m, bound, -1);
        finish(&m);
        return;
    }
    /* what the variants would start from, against one pass over all */
    u64 start_delta = 0, start_all = UINT64_MAX;
    for (u32 k = 0; k < natoms; k++) {
        step st;
        if (m.fixed[k]) {
            bool is_new = eg_is_new(eg_rec(g, m.nodes[k])[N_STAMP], m.w, r->atoms.at[k].watch);
            start_delta += is_new ? g->alive : 0;
            continue;
        }
        start_delta += eg_plan_atom(&m, k, bound, true, TUPLE_NEW, &st);
        start_all = MIN(start_all, eg_plan_atom(&m, k, bound, true, TUPLE_ANY, &st));
    }
    if (s->delta_only || start_delta <= start_all) {
        for (u32 k = 0; k < natoms && !s->cut && !s->failed; k++) {
            if (eg_delta_size(&g->log[r->atoms.at[k].op], m.w))
                run_variant(&m, bound, k);
        }
    } else {
        m.need_new = true;
        run_variant(&m, bound, -1);
    }
    finish(&m);
}
