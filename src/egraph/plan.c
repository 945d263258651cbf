/* The plan of a search: which atom to match next and how, decided from the sizes of this moment as the
 * search first gets there. */
#include "egraph/match.h"

u32 eg_delta_size(const eg_log *l, u32 w)
{
    u32 e = eg_log_first(l, w);
    return e < l->nepochs ? l->n - l->epoch[e].start : 0;
}

u64 eg_plan_atom(machine *m, u32 k, u64 bound, bool first, u8 filter, step *st)
{
    const eg *g = m->g;
    const eg_atom *a = &m->r->atoms.at[k];
    *st = (step){.filter = filter, .atom = k};
    st->class_bound = bound >> a->cvar & 1;
    if (a->op == EG_OP_CLASSES) {
        st->kind = st->class_bound ? STEP_CHECK : STEP_CLASSES;
        return st->class_bound ? 0 : filter == TUPLE_NEW ? eg_delta_size(&g->log[0], m->w) + 1
                                                          : g->nclasses + 1u;
    }
    st->payload_bound = a->payload_var && (bound >> (a->payload_var - 1) & 1);
    bool all = !a->payload_var || st->payload_bound;
    u64 seen = bound | (u64)1 << a->cvar; /* the class is bound before the children */
    i64 up = -1;
    u32 up_uses = 0;
    for (u32 j = 0; j < a->arity; j++) {
        u32 v = a->kids[j];
        if (!(seen >> v & 1))
            st->bind |= (u64)1 << j;
        all &= (bool)(bound >> v & 1);
        if (bound >> v & 1) {
            st->known |= (u64)1 << j;
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
    u64 scan = filter == TUPLE_NEW ? eg_delta_size(l, m->w) : l->visible;
    if (all) {
        st->kind = STEP_LOOK;
        return 0;
    }
    if (first) { /* classes known now are the fixed ones: their lists can be counted */
        u64 best = scan * (a->inner ? 3 : 1); /* going up walks lists, going down may not */
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

/* The first step's candidates were counted exactly, so
 * only the best is kept; later ones are compared at run time. */
u32 eg_plan_make(machine *m, u32 done, u64 bound, bool first)
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
        u64 c = eg_plan_atom(m, k, bound, first, filter_of(k, v), &st);
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

u32 eg_plan_after(machine *m, u32 p, step *st)
{
    if (!st->child) {
        u64 bound = m->plans[p].bound;
        bind_atom(&m->r->atoms.at[st->atom], &bound);
        u32 child = eg_plan_make(m, m->plans[p].done | 1u << st->atom, bound, false);
        st->child = child + 1;
    }
    return st->child - 1;
}
