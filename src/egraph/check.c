/* The self-check: every invariant of the e-graph, O(size). It runs after each rebuild in debug,
 * sanitizer and fuzz builds, and whenever a caller asks. And the digest. */
#include "egraph/egraph.h"

#define BROKEN(...) return eqf_report(g->ctx, EQF_E_INTERNAL, __FILE__, NULL, __VA_ARGS__)

static eqf_status check_list(eg *g, u32 c)
{
    const eg_body *b = eg_body_of(g, c);
    u32 count = 0, n = b->members, slot;
    if (!n)
        BROKEN("class %u has no members", c);
    for (; n; n = eg_rec(g, n)[N_NEXT]) {
        if (eg_rec(g, n)[N_CLASS] != c)
            BROKEN("e-node %x is listed in class %u but says %u", n, c, eg_rec(g, n)[N_CLASS]);
        if (++count > b->nmembers)
            BROKEN("the members of class %u do not end", c);
    }
    if (count != b->nmembers)
        BROKEN("class %u counts %u members, has %u", c, b->nmembers, count);
    count = 0;
    for (u32 cell = b->uses; cell; cell = eg_cell_next(g, cell)) {
        n = eg_cell_node(g, cell, &slot);
        const u32 *rec = eg_rec(g, n);
        if (!(rec[N_STAMP] & S_DEAD) && rec[N_KIDS + eg_step(n) * slot] != c)
            BROKEN("e-node %x is a use of class %u, its child is %u", n, c,
                   rec[N_KIDS + eg_step(n) * slot]);
        if (++count > b->nuses)
            BROKEN("the uses of class %u do not end", c);
    }
    if (count != b->nuses)
        BROKEN("class %u counts %u uses, has %u", c, b->nuses, count);
    return EQF_OK;
}

typedef struct tally {
    u32 alive, visible;
    i64 uses;
} tally;

static eqf_status check_node(eg *g, u32 n, const u32 *rec, tally *t)
{
    u32 arity = eg_node_arity(g, n, rec), kids[EG_MAX_ARITY], c = rec[N_CLASS];
    u32 op = g->lang->heads.at[rec[N_HEAD]].op;
    if (!(g->parent[c] & EG_BODY))
        BROKEN("e-node %x: class %u is not canonical", n, c);
    if (!(eg_body_of(g, c)->mask & eg_op_bit(op)))
        BROKEN("class %u lacks the bit of operator %u", c, op);
    for (u32 i = 0; i < arity; i++) {
        kids[i] = rec[N_KIDS + eg_step(n) * i];
        if (!(g->parent[kids[i]] & EG_BODY))
            BROKEN("e-node %x: child %u is not canonical", n, i);
    }
    if (eg_lookup(g, rec[N_HEAD], arity, kids) != n)
        BROKEN("e-node %x is not in the hash-cons under its key", n);
    for (u32 k = 0; k < g->nanalyses; k++) {
        const eqf_analysis *a = &g->analysis[k];
        u64 made[16] = {0}, into[16];
        u32 body = g->parent[c] & ~EG_BODY;
        memcpy(into, eg_at(&g->data[k], body), a->size);
        a->make(a->user, g, (eqf_node){n}, made);
        unsigned bits = a->merge(a->user, g, into, made);
        if (bits & EQF_INTO_CHANGED)
            BROKEN("analysis %s is not at its fixpoint in class %u", a->name, c);
    }
    t->alive++;
    t->visible += !(rec[N_STAMP] & S_HIDDEN);
    t->uses += arity;
    return EQF_OK;
}

static eqf_status check_log(eg *g, u32 op)
{
    const eg_log *l = &g->log[op];
    u32 count = 0;
    if (l->broken)
        return EQF_OK;
    for (u32 e = 0; e < l->nepochs; e++) {
        if (e && l->epoch[e].stamp <= l->epoch[e - 1].stamp)
            BROKEN("the epochs of operator %u are out of order", op);
        u32 end = e + 1 < l->nepochs ? l->epoch[e + 1].start : l->n;
        for (u32 k = l->epoch[e].start; k < end; k++) {
            count += eg_log_counts(g, op, l->at[k], l->epoch[e].stamp);
        }
    }
    u32 want = op ? l->alive : g->nclasses;
    if (count != want)
        BROKEN("the log of operator %u has %u valid entries, should have %u", op, count, want);
    return EQF_OK;
}

eqf_status eqf_check(eqf_egraph *g)
{
    if (g->dirty.n || g->queue.n)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_check", "rebuild first");
    u32 classes = 0;
    eqf_status s;
    for (u32 c = 1; c < g->class_ids; c++) {
        if (!(g->parent[c] & EG_BODY))
            continue;
        classes++;
        if (eg_body_of(g, c)->self != c)
            BROKEN("class %u has the body of class %u", c, eg_body_of(g, c)->self);
        if ((s = check_list(g, c)) != EQF_OK)
            return s;
    }
    if (classes != g->nclasses)
        BROKEN("%u classes counted, %u found", g->nclasses, classes);
    tally t = {0};
    for (u32 seg = 0; seg < 6; seg++) {
        for (u32 i = seg == 0; i < g->seg[seg].n;) {
            u32 n = seg << 29 | i;
            const u32 *rec = eg_rec(g, n);
            if (seg == EG_LONG && !rec[N_HEAD]) {
                i++;
                continue;
            }
            if (!(rec[N_STAMP] & S_DEAD) && (s = check_node(g, n, rec, &t)) != EQF_OK)
                return s;
            i += seg == EG_LONG ? 1 + eg_node_arity(g, n, rec) : 1;
        }
    }
    if (t.alive != g->alive || t.visible != g->visible || t.alive != g->slot_used)
        BROKEN("e-nodes: %u alive, %u visible, %u in the hash-cons; found %u, %u", g->alive,
               g->visible, g->slot_used, t.alive, t.visible);
    for (u32 op = 0; op < g->nlogs; op++) {
        if ((s = check_log(g, op)) != EQF_OK)
            return s;
    }
    return EQF_OK;
}
