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
enum { MAX_CHOICES = 3, MAX_PLANS = 96 };
typedef struct plan {
    u32 n, done; /* atoms */
    u64 bound;   /* variables */
    step at[MAX_CHOICES];
} plan;

/* The e-nodes of one operator by (class, child in one slot); made when walking lists for the same
 * purpose has cost more than making it. */
typedef struct pair_index {
    u32 *heads, *chain; /* chain: e-node, next entry */
    u32 mask;
    i64 size;
} pair_index;

typedef struct machine {
    eg *g;
    eg_search *s;
    const eg_rule *r;
    const eg_headrow *heads;
    u32 w; /* watermark */
    bool need_new;
    u32 nplans, ticks, swaps;
    i64 variant;
    u32 regs[EG_MAX_VARS];
    u32 nodes[EG_MAX_ATOMS];
    /* atoms without variables below them, found before the search */
    bool fixed[EG_MAX_ATOMS];
    u64 work[EG_MAX_ATOMS]; /* spent on lists where a pair index would answer */
    pair_index index[EG_MAX_ATOMS];
    u32 index_slot[EG_MAX_ATOMS];
    plan plans[MAX_PLANS];
} machine;

/* ---- results ------------------------------------------------------------------------------- */

void eg_matches_drop(eg *g, eg_matches *m)
{
    eg_block *b = m->first;
    i64 size = (i64)sizeof *b + 4 * (i64)b->cap;
    m->first = b->next;
    eg_free(g, b, size);
    g->scratch_bytes -= size;
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
        u32 cap = b ? MIN(4 * b->cap, 1u << 14) : 64;
        cap = MAX(cap, m->width);
        i64 size = (i64)sizeof *b + 4 * (i64)cap;
        eg_block *fresh = eg_resize(g, NULL, 0, size);
        if (!fresh)
            return NULL;
        g->scratch_bytes += size;
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

static bool poll(machine *m)
{
    eg_search *s = m->s;
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
        if (poll(m))
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

/* ---- pair index ---------------------------------------------------------------------------- */

static inline u32 pair_hash(u32 c, u32 kid)
{
    return (u32)((((u64)c << 32 | kid) * 0x9E3779B97F4A7C15u) >> 40);
}

/* Without room the lists do. */
static void make_index(machine *m, const step *st, const eg_atom *a)
{
    eg *g = m->g;
    const eg_log *l = &g->log[a->op];
    u32 slots = 64, n = 0;
    while (slots < 2 * l->alive && slots < 1u << 24)
        slots *= 2;
    pair_index *x = &m->index[st->atom];
    x->size = 4 * ((i64)slots + 2 * (i64)l->alive + 2);
    x->heads = eg_resize(g, NULL, 0, x->size);
    m->work[st->atom] = 0;
    if (!x->heads)
        return;
    g->scratch_bytes += x->size;
    memset(x->heads, 0, 4 * (size_t)slots);
    x->chain = x->heads + slots;
    x->mask = slots - 1;
    m->index_slot[st->atom] = st->up_slot;
    for (u32 e = 0; e < l->nepochs; e++) {
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k++) {
            const u32 *rec = eg_rec(g, l->at[k]);
            u32 stamp = rec[N_STAMP];
            if (stamp >> 2 != l->epoch[e].stamp || (stamp & S_FLAGS))
                continue;
            u32 kid = rec[N_KIDS + eg_step(l->at[k]) * st->up_slot];
            u32 h = pair_hash(rec[N_CLASS], kid) & x->mask;
            n++;
            x->chain[2 * n] = l->at[k];
            x->chain[2 * n + 1] = x->heads[h];
            x->heads[h] = n;
        }
    }
}

static void free_indexes(machine *m)
{
    for (u32 k = 0; k < (u32)m->r->atoms.n; k++) {
        if (m->index[k].heads) {
            eg_free(m->g, m->index[k].heads, m->index[k].size);
            m->g->scratch_bytes -= m->index[k].size;
        }
    }
}

static bool exec_pair(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    const pair_index *x = &m->index[st->atom];
    u32 h = pair_hash(m->regs[a->cvar], m->regs[a->kids[st->up_slot]]) & x->mask;
    for (u32 k = x->heads[h]; k; k = x->chain[2 * k + 1]) {
        u32 n = x->chain[2 * k];
        if (visit(m, st, a, n, eg_rec(g, n), i, any_new))
            return true;
    }
    return false;
}

/* Class and a child are known: the shorter list, or an index when lists have cost enough. */
static bool exec_both(machine *m, const step *st, const eg_atom *a, u32 i, bool any_new)
{
    eg *g = m->g;
    u32 k = st->atom;
    if (m->index[k].heads && m->index_slot[k] == st->up_slot)
        return exec_pair(m, st, a, i, any_new);
    u32 down = eg_body_of(g, m->regs[a->cvar])->nmembers;
    u32 up = eg_body_of(g, m->regs[a->kids[st->up_slot]])->nuses;
    m->work[k] += MIN(down, up);
    if (UNLIKELY(m->work[k] > 4 * (u64)g->log[a->op].alive + 256) && !a->commutative &&
        !m->index[k].heads) {
        make_index(m, st, a);
        if (m->index[k].heads)
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
        if (m->index[st->atom].heads)
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
    if (UNLIKELY((++m->ticks & 4095) == 0) && poll(m))
        return true;
    switch (st->kind) {
    case STEP_SCAN:
        return exec_scan(m, st, a, i, any_new);
    case STEP_DOWN:
        return st->or_up ? exec_both(m, st, a, i, any_new) : exec_down(m, st, a, i, any_new);
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
        u64 best = scan;
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
    u64 bound = 0;
    if (s->in_class) {
        m.regs[r->save[0]] = s->in_class;
        bound |= (u64)1 << r->save[0];
    }
    if (!find_fixed(&m, &bound))
        return;
    for (u32 k = 0; k < natoms; k++) {
        m.work[k] = 0;
        m.index[k].heads = NULL;
    }
    if (!s->watermark || s->full) {
        m.w = 0;
        run_variant(&m, bound, -1);
        free_indexes(&m);
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
    free_indexes(&m);
}
