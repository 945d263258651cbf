/* Why classes are one: each e-node keeps its original children and at most one edge towards the
 * root of its tree. The e-nodes of a class are the vertices of one tree; a union adds one edge. The
 * path between two e-nodes is unique and later edges never change it, so what justifies an edge,
 * all of it older, can never lead back to the edge. (Nieuwenhuis, Oliveras 2005; egraph.md 10.)
 *
 * A row is what an edge cites, in words:
 *     RULE       kind, index of the rule, conclusion, swaps on the left and on the right, e-nodes of
 *                its atoms, of its right sides; for a dynamic right side the count and words of
 *                the instance it built
 *     AXIOM      kind, reason, words of the left instance, of the right one, the instances; both
 *                counts 0: the two e-nodes themselves
 *     NORMALISE  kind, e-node, e-node that a normaliser put in its place, for each child of the
 *                first the slot of the second that it became (EG_WHY_NONE: none)
 * An instance lists (head, e-node) in prefix order: the term as written and what it was found as. */
#include "egraph/egraph.h"

u32 eg_row(eg *g, const u32 *words, u32 n)
{
    if (!eg_vec_room(g, &g->rows, n))
        return EG_WHY_NONE;
    u32 at = g->rows.n;
    memcpy(g->rows.at + at, words, 4 * (size_t)n);
    g->rows.n += n;
    return at;
}

u32 eg_reason(eg *g, const char *text, i64 n)
{
    trap t;
    volatile u32 id = 0;
    TRY(g->ctx, t)
        id = intern_add(g->lang->names, n ? text : "axiom", n ? n : 5);
    if (t.status)
        g->fail = t.status;
    return id;
}

/* Makes x the root of its tree. */
static void reroot(eg *g, u32 x)
{
    eg_edge carried = {0, EG_WHY_NONE};
    while (x) {
        eg_edge *e = eg_edge_of(g, x), old = *e;
        if (g->marks)
            eg_journal_edge(g, x);
        *e = carried;
        carried = (eg_edge){x, old.why < EG_WHY_GIVEN ? old.why ^ 1 : old.why};
        x = old.to;
    }
}

void eg_link(eg *g, u32 a, u32 b, u32 row)
{
    u32 ca = eg_rec(g, a)[N_CLASS], cb = eg_rec(g, b)[N_CLASS];
    u32 why = row < EG_WHY_GIVEN ? row << 1 : row;
    bool at_b = ca == cb || eg_body_of(g, eg_find(g, cb))->nmembers <=
                                eg_body_of(g, eg_find(g, ca))->nmembers;
    u32 from = at_b ? b : a, to = at_b ? a : b;
    reroot(g, from);
    if (g->marks)
        eg_journal_edge(g, from);
    *eg_edge_of(g, from) = (eg_edge){to, row < EG_WHY_GIVEN ? why | (at_b ? 1u : 0u) : why};
}

bool eg_instance(eg *g, const char *file, const sx *x, eg_vec *out)
{
    u32 arity, node, head = eg_head_of_sx(g->lang, file, x, &arity);
    eg_lookup_sx(g, file, x, &node);
    if (!eg_vec_room(g, out, 2))
        return false;
    u32 at = out->n;
    out->at[out->n++] = head;
    out->at[out->n++] = node;
    if (arity == 2) {
        u32 kid = eg_lookup_sx(g, file, x->at[1], NULL);
        if (eg_rec(g, node)[N_KIDS] != kid && eg_rec(g, node)[N_KIDS + 2] == kid)
            out->at[at] |= EG_SWAP;
    }
    for (u32 i = 0; i < arity; i++) {
        if (!eg_instance(g, file, x->at[i + 1], out))
            return false;
    }
    return true;
}

eqf_status eg_axiom(eg *g, const u32 *left, u32 nleft, const u32 *right, u32 nright, u32 reason,
                    bool *changed)
{
    if (changed)
        *changed = false;
    u32 a = left[1], b = right[1];
    u32 ca = eg_rec(g, a)[N_CLASS], cb = eg_rec(g, b)[N_CLASS];
    if (!eg_union_reserve(g) || !eg_vec_room(g, &g->rows, 4 + nleft + nright) ||
        !eg_vec_room(g, &g->extra, 3))
        return eg_failed(g, "uniting classes");
    u32 row = eg_row(g, (u32[]){EG_ROW_AXIOM, reason, nleft, nright}, 4);
    eg_row(g, left, nleft);
    eg_row(g, right, nright);
    if (ca == cb) { /* may still give a shorter proof */
        g->extra.at[g->extra.n++] = a;
        g->extra.at[g->extra.n++] = b;
        g->extra.at[g->extra.n++] = row;
        return EQF_OK;
    }
    eg_link(g, a, b, row);
    bool united = eg_union(g, ca, cb);
    if (changed)
        *changed = united;
    return EQF_OK;
}
