/* Explanations: from the edges of the forest (forest.c) to a proof.
 *
 * The path between two e-nodes is a chain of edges; an edge by congruence needs a path for each
 * pair of original children, an edge by a rule needs paths from what was matched to the literal
 * instance of the pattern. All of those are older than the edge, so the recursion ends. Edges and
 * paths are proved once and shared: the proof is linear in the edges used. */
#include <stdlib.h>

#include "egraph/explain.h"

/* How much recursion there may be, in units of about 128 bytes of stack, and what each kind takes. */
enum { MAX_DEPTH = 40000, DEEP_TERM = 1, DEEP_AXIOM = 3, DEEP_PATTERN = 4, DEEP_EDGE = 5, DEEP_ROW = 12 };

/* ---- proof tables -------------------------------------------------------------------------- */

static u32 term_hash(u32 head, u32 n, const u32 *kids)
{
    return (u32)(hash_bytes(kids, 4 * (i64)n, head) >> 16);
}

static bool same_term(const pf_term *t, u32 head, u32 n, const u32 *kids)
{
    return t->head == head && t->n == n && (n == 0 || memcmp(t->kids, kids, 4 * (size_t)n) == 0);
}

u32 pf_term_add(eqf_proof *p, u32 head, u32 n, const u32 *kids)
{
    u32 i = term_hash(head, n, kids) & p->term_mask;
    for (; p->term_slots[i]; i = (i + 1) & p->term_mask) {
        if (same_term(&p->terms.at[p->term_slots[i]], head, n, kids))
            return p->term_slots[i];
    }
    u32 id = (u32)p->terms.n;
    pf_term t = {head, n, n ? arena_copy(p->a, kids, 4 * (i64)n) : NULL};
    vec_push(p->a, &p->terms, t);
    p->term_slots[i] = id;
    if (2 * p->terms.n > (i64)p->term_mask) {
        u32 size = 2 * (p->term_mask + 1);
        p->term_slots = NEW_N(p->a, u32, size);
        p->term_mask = size - 1;
        for (u32 k = 1; k < (u32)p->terms.n; k++) {
            const pf_term *u = &p->terms.at[k];
            u32 j = term_hash(u->head, u->n, u->kids) & p->term_mask;
            while (p->term_slots[j])
                j = (j + 1) & p->term_mask;
            p->term_slots[j] = k;
        }
    }
    return id;
}

u32 pf_from(const eqf_proof *p, i32 ref, u32 self)
{
    return ref == 0 ? self : ref > 0 ? p->steps.at[ref].from : p->steps.at[-ref].to;
}

u32 pf_to(const eqf_proof *p, i32 ref, u32 self)
{
    return pf_from(p, -ref, self);
}

i64 pf_length(const eqf_proof *p, i32 ref)
{
    return ref == 0 ? 0 : p->steps.at[abs(ref)].length;
}

static i64 add_length(i64 a, i64 b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static i32 add_step(eqf_proof *p, pf_step s)
{
    if (s.kind == PF_CONGRUENCE || s.kind == PF_CHAIN) {
        s.length = 0;
        for (u32 i = 0; i < s.nrefs; i++)
            s.length = add_length(s.length, pf_length(p, s.refs[i]));
    } else {
        s.length = 1;
    }
    vec_push(p->a, &p->steps, s);
    if (p->steps.n > INT32_MAX / 2)
        eqf_throw(p->ctx, EQF_E_LIMIT, NULL, NULL, "the proof has too many steps");
    return (i32)p->steps.n - 1;
}

i32 pf_chain(eqf_proof *p, u32 from, u32 to, const i32 *refs, u32 n)
{
    VEC(i32) all = {0};
    for (u32 i = 0; i < n; i++) {
        const pf_step *s = &p->steps.at[abs(refs[i])];
        if (refs[i] && s->kind != PF_CHAIN)
            vec_push(p->a, &all, refs[i]);
        for (u32 k = 0; refs[i] && s->kind == PF_CHAIN && k < s->nrefs; k++) {
            i32 ref = refs[i] > 0 ? s->refs[k] : -s->refs[s->nrefs - 1 - k];
            vec_push(p->a, &all, ref);
        }
    }
    while (p->left_at.n < p->terms.n)
        vec_push(p->a, &p->left_at, 0);
    u32 at = from;
    for (i64 k = 0; k < all.n; k++) {
        p->left_at.at[at] = (u32)k;
        at = pf_to(p, all.at[k], at);
    }
    p->left_at.at[at] = (u32)all.n;
    u32 kept = 0;
    at = from;
    for (i64 k = p->left_at.at[from]; k < all.n; k = p->left_at.at[at]) {
        at = pf_to(p, all.at[k], at);
        all.at[kept++] = all.at[k];
    }
    if (kept <= 1)
        return kept ? all.at[0] : 0;
    return add_step(p, (pf_step){.kind = PF_CHAIN, .from = from, .to = to, .refs = all.at,
                                 .nrefs = kept});
}

/* ---- the explainer ------------------------------------------------------------------------- */

typedef struct explainer {
    eqf_proof *p;
    eg *g;
    u32 *term[6];      /* by e-node: its original term, 0 not made */
    i32 *edge[6];      /* by e-node: proof of its edge, 0 not made */
    u32 *mark[6];      /* by e-node: walk number */
    u32 walk;
    VEC(u64) path_keys; /* (from, to) of proved paths */
    VEC(i32) path_refs;
    u32 *path_slots;
    u32 path_mask;
    u32 depth;
} explainer;

static i32 path(explainer *x, u32 from, u32 to);

static void deeper(explainer *x, u32 by)
{
    if ((x->depth += by) > MAX_DEPTH)
        eqf_throw(x->p->ctx, EQF_E_LIMIT, NULL, NULL, "the proof is nested too deeply");
}

/* The term of an e-node as it was first written. */
static u32 term_of(explainer *x, u32 n)
{
    u32 *memo = &x->term[n >> 29][n & EG_INDEX];
    if (*memo)
        return *memo;
    deeper(x, DEEP_TERM);
    const u32 *rec = eg_rec(x->g, n);
    u32 arity = eg_node_arity(x->g, n, rec), small[4], *kids = small;
    if (arity > 4)
        kids = NEW_N(x->p->a, u32, arity);
    for (u32 i = 0; i < arity; i++)
        kids[i] = term_of(x, eg_orig(x->g, n)[i]);
    *memo = pf_term_add(x->p, rec[N_HEAD], arity, kids);
    x->depth -= DEEP_TERM;
    return *memo;
}

static u32 swapped_term(explainer *x, u32 term)
{
    pf_term t = x->p->terms.at[term];
    return pf_term_add(x->p, t.head, 2, (u32[]){t.kids[1], t.kids[0]});
}

static i32 swap_step(explainer *x, u32 from, u32 to)
{
    return from == to ? 0 : add_step(x->p, (pf_step){.kind = PF_SWAP, .from = from, .to = to});
}

/* refs[i] proves kids[i] of `from` equal to another term; the congruence step that follows. */
static i32 congruence(explainer *x, u32 from, const i32 *refs, u32 n, u32 *to)
{
    pf_term t = x->p->terms.at[from];
    u32 small[4], *kids = n > 4 ? NEW_N(x->p->a, u32, n) : small;
    bool any = false;
    for (u32 i = 0; i < n; i++) {
        kids[i] = pf_to(x->p, refs[i], t.kids[i]);
        any |= refs[i] != 0;
    }
    *to = any ? pf_term_add(x->p, t.head, n, kids) : from;
    if (!any)
        return 0;
    i32 *copy = arena_copy(x->p->a, refs, 4 * (i64)n);
    return add_step(x->p, (pf_step){.kind = PF_CONGRUENCE, .from = from, .to = *to, .refs = copy,
                                    .nrefs = n});
}

/* term_of(n) equal to an instance: its operands first exchanged when `swap`, then child i proved
 * by refs[i]. *to: the instance. */
static i32 node_to_instance(explainer *x, u32 n, bool swap, const i32 *refs, u32 arity, u32 *to)
{
    u32 from = term_of(x, n), mid = swap ? swapped_term(x, from) : from;
    i32 parts[2] = {swap ? swap_step(x, from, mid) : 0, 0};
    parts[1] = congruence(x, mid, refs, arity, to);
    return pf_chain(x->p, from, *to, parts, 2);
}

/* Walks an axiom's instance (head, e-node in prefix order). */
static i32 axiom_instance(explainer *x, const u32 **words, u32 *to)
{
    u32 head = (*words)[0] & ~EG_SWAP, n = (*words)[1];
    bool swap = (*words)[0] & EG_SWAP;
    *words += 2;
    if (head == EG_WHOLE) {
        *to = term_of(x, n);
        return 0;
    }
    u32 arity = eg_head_arity(x->g->lang, head);
    i32 small[4], *refs = arity > 4 ? NEW_N(x->p->a, i32, arity) : small;
    deeper(x, DEEP_AXIOM);
    for (u32 i = 0; i < arity; i++) {
        u32 kid = eg_orig(x->g, n)[swap ? 1 - i : i], found = (*words)[1], instance;
        i32 parts[2];
        parts[0] = path(x, kid, found);
        parts[1] = axiom_instance(x, words, &instance);
        refs[i] = pf_chain(x->p, term_of(x, kid), instance, parts, 2);
    }
    x->depth -= DEEP_AXIOM;
    return node_to_instance(x, n, swap, refs, arity, to);
}

/* ---- rules --------------------------------------------------------------------------------- */

typedef struct firing {
    const eg_rule *r;
    const u32 *nodes, *built;
    u32 swaps, built_swaps, conclusion;
    u32 value[EG_MAX_VARS]; /* terms */
} firing;

/* What makes the class of a variable that is new on the right. */
static const eg_term *first_pattern(const eg_rule *r, u32 v)
{
    i64 i = 0;
    while (r->right.at[i].var != v)
        i++;
    return r->right.at[i].term;
}

/* The original term of the e-node found for pattern t equals the instance *to. */
static i32 instance(explainer *x, const firing *f, const eg_term *t, bool right, u32 *to)
{
    if (t->is_var) {
        *to = f->value[t->var];
        return 0;
    }
    u32 n = right ? f->built[t->index] : f->nodes[t->index];
    bool swap = (right ? f->built_swaps : f->swaps) >> t->index & 1;
    i32 refs[EG_MAX_VARS];
    deeper(x, DEEP_PATTERN);
    for (u32 i = 0; i < t->arity; i++) {
        const eg_term *kid = t->kids[i];
        u32 orig = eg_orig(x->g, n)[swap ? 1 - i : i], found, inst;
        if (kid->is_var && right && f->r->site[kid->var].atom == EG_ROOT)
            kid = first_pattern(f->r, kid->var);
        if (kid->is_var)
            found = eg_site_node(x->g, f->r, f->nodes, f->swaps, kid->var);
        else
            found = right ? f->built[kid->index] : f->nodes[kid->index];
        i32 parts[2] = {path(x, orig, found), 0};
        parts[1] = instance(x, f, kid, right, &inst);
        refs[i] = pf_chain(x->p, term_of(x, orig), inst, parts, 2);
    }
    x->depth -= DEEP_PATTERN;
    return node_to_instance(x, n, swap, refs, t->arity, to);
}

/* From the e-node standing for variable v to the instance of a left pattern of its class. */
static i32 premise(explainer *x, const firing *f, u32 v_node, const eg_term *t)
{
    u32 to;
    if (t->is_var)
        return 0;
    i32 parts[2] = {path(x, v_node, f->nodes[t->index]), 0};
    parts[1] = instance(x, f, t, false, &to);
    return pf_chain(x->p, term_of(x, v_node), to, parts, 2);
}

typedef VEC(i32) ref_list;

static void premises(explainer *x, const firing *f, ref_list *out)
{
    const eg_rule *r = f->r;
    for (i64 i = 0; i < r->left.n && r->multi; i++) {
        const eg_side *s = &r->left.at[i];
        u32 node = eg_site_node(x->g, r, f->nodes, f->swaps, s->var);
        i32 ref = s->term ? premise(x, f, node, s->term) : 0;
        vec_push(x->p->a, out, ref);
    }
    for (i64 i = 0; i < r->equal.n; i += 2) {
        const eg_side *s = &r->equal.at[i], *q = &r->equal.at[i + 1];
        u32 node = eg_site_node(x->g, r, f->nodes, f->swaps, s->var);
        i32 parts[2] = {-premise(x, f, node, s->term), premise(x, f, node, q->term)};
        u32 from = pf_from(x->p, parts[0], term_of(x, node));
        u32 to = pf_to(x->p, parts[1], term_of(x, node));
        i32 ref = pf_chain(x->p, from, to, parts, 2);
        vec_push(x->p->a, out, ref);
    }
}

static i32 rule_step(explainer *x, const firing *f, u32 from, u32 to, const char *reason)
{
    ref_list refs = {0};
    premises(x, f, &refs);
    return add_step(x->p, (pf_step){.kind = PF_RULE, .from = from, .to = to, .reason = reason,
                                    .rule = f->r, .conclusion = f->conclusion,
                                    .values = arena_copy(x->p->a, f->value,
                                                         4 * (i64)f->r->nvars),
                                    .refs = refs.at, .nrefs = (u32)refs.n});
}

/* Proof of term_of(a) = term_of(b) for a rule's row. */
static i32 rule_row(explainer *x, const u32 *row, u32 a, u32 b)
{
    firing f = {.r = x->g->rule[row[1]].rule, .conclusion = row[2], .swaps = row[3],
                .built_swaps = row[4], .nodes = row + 5};
    const eg_rule *r = f.r;
    f.built = f.nodes + r->atoms.n;
    for (u32 v = 0; v < r->nvars; v++) {
        if (r->site[v].atom != EG_ROOT && !r->var_payload[v])
            f.value[v] = term_of(x, eg_site_node(x->g, r, f.nodes, f.swaps, v));
        else if (r->var_payload[v] && r->site[v].atom != EG_ROOT)
            f.value[v] = x->g->lang->heads.at[eg_rec(x->g, f.nodes[r->site[v].atom])[N_HEAD]]
                             .payload;
    }
    u32 from = term_of(x, a), to = term_of(x, b), left, right;
    i32 parts[3] = {0};
    if (r->dynamic >= 0) {
        const u32 *words = f.built + 1;
        parts[0] = instance(x, &f, r->left.at[0].term, false, &left);
        parts[2] = -axiom_instance(x, &words, &right);
        parts[1] = rule_step(x, &f, left, right, r->name);
        return pf_chain(x->p, from, to, parts, 3);
    }
    const eg_side *side = &r->right.at[f.conclusion];
    bool fresh = r->site[side->var].atom == EG_ROOT;
    for (u32 i = 0; i <= f.conclusion && r->multi; i++) { /* what was made by then */
        u32 v = r->right.at[i].var;
        if (r->site[v].atom == EG_ROOT && !f.value[v])
            instance(x, &f, r->right.at[i].term, true, &f.value[v]);
    }
    if (fresh) {
        parts[0] = instance(x, &f, first_pattern(r, side->var), true, &left);
    } else if (r->multi) {
        left = f.value[side->var];
    } else {
        parts[0] = instance(x, &f, r->left.at[0].term, false, &left);
    }
    parts[2] = -instance(x, &f, side->term, true, &right);
    parts[1] = rule_step(x, &f, left, right, r->name);
    return pf_chain(x->p, from, to, parts, 3);
}

/* ---- edges and paths ----------------------------------------------------------------------- */

static i32 axiom_row(explainer *x, const u32 *row, u32 a, u32 b)
{
    const char *reason = intern_text(x->g->lang->names, row[1]);
    u32 from = term_of(x, a), to = term_of(x, b);
    if (row[2] == 0)
        return add_step(x->p, (pf_step){.kind = PF_AXIOM, .from = from, .to = to,
                                        .reason = reason});
    const u32 *words = row + 4;
    u32 left, right;
    i32 parts[3];
    parts[0] = axiom_instance(x, &words, &left);
    parts[2] = -axiom_instance(x, &words, &right);
    parts[1] = add_step(x->p, (pf_step){.kind = PF_AXIOM, .from = left, .to = right,
                                        .reason = reason});
    return pf_chain(x->p, from, to, parts, 3);
}

static i32 plain_axiom(explainer *x, u32 a, u32 b, const char *reason)
{
    return add_step(x->p, (pf_step){.kind = PF_AXIOM, .from = term_of(x, a), .to = term_of(x, b),
                                    .reason = reason});
}

/* n became m: first its children become those of m, then the normaliser's step. */
static i32 normalise_row(explainer *x, const u32 *row)
{
    static const char normalise[] = "normalise";
    u32 n = row[1], m = row[2], arity = eg_node_arity(x->g, n, eg_rec(x->g, n)), mid;
    i32 small[4], *refs = arity > 4 ? NEW_N(x->p->a, i32, arity) : small;
    for (u32 i = 0; i < arity; i++)
        refs[i] = row[3 + i] == EG_WHY_NONE
                      ? 0
                      : path(x, eg_orig(x->g, n)[i], eg_orig(x->g, m)[row[3 + i]]);
    i32 parts[2] = {congruence(x, term_of(x, n), refs, arity, &mid), 0};
    if (mid != term_of(x, m))
        parts[1] = add_step(x->p, (pf_step){.kind = PF_AXIOM, .from = mid, .to = term_of(x, m),
                                            .reason = normalise});
    return pf_chain(x->p, term_of(x, n), term_of(x, m), parts, 2);
}

/* Proof of term_of(a) = term_of(b) for a row that reads from a to b. */
static i32 row_proof(explainer *x, u32 offset, u32 a, u32 b)
{
    const u32 *row = x->g->rows.at + offset;
    switch (row[0]) {
    case EG_ROW_RULE: return rule_row(x, row, a, b);
    case EG_ROW_AXIOM: return axiom_row(x, row, a, b);
    default: return normalise_row(x, row);
    }
}

/* Proof of term_of(n) = term_of(edge's other end). */
static i32 edge_proof(explainer *x, u32 n)
{
    i32 *memo = &x->edge[n >> 29][n & EG_INDEX];
    if (*memo)
        return *memo;
    eg_edge e = *eg_edge_of(x->g, n);
    const u32 by = e.why >= EG_WHY_GIVEN ? DEEP_EDGE : DEEP_ROW;
    deeper(x, by);
    i32 ref;
    if (e.why == EG_WHY_CONGRUENCE || e.why == EG_WHY_SWAPPED) {
        bool swap = e.why == EG_WHY_SWAPPED;
        u32 arity = eg_node_arity(x->g, n, eg_rec(x->g, n)), to;
        i32 small[4], *refs = arity > 4 ? NEW_N(x->p->a, i32, arity) : small;
        for (u32 i = 0; i < arity; i++)
            refs[i] = path(x, eg_orig(x->g, n)[swap ? 1 - i : i], eg_orig(x->g, e.to)[i]);
        ref = node_to_instance(x, n, swap, refs, arity, &to);
    } else if (e.why >= EG_WHY_GIVEN) {
        static const char given[] = "given";
        ref = plain_axiom(x, n, e.to, given);
    } else if (e.why & 1) {
        ref = -row_proof(x, e.why >> 1, e.to, n);
    } else {
        ref = row_proof(x, e.why >> 1, n, e.to);
    }
    x->depth -= by;
    /* both ends may have the same term: an empty proof, remembered as a chain of nothing */
    if (!ref)
        ref = add_step(x->p, (pf_step){.kind = PF_CHAIN, .from = term_of(x, n),
                                       .to = term_of(x, e.to)});
    x->edge[n >> 29][n & EG_INDEX] = ref;
    return ref;
}

static i32 *path_memo(explainer *x, u32 from, u32 to)
{
    u64 key = (u64)from << 32 | to;
    if (2 * (x->path_keys.n + 1) > (i64)x->path_mask) {
        u32 size = 2 * (x->path_mask + 1);
        x->path_slots = NEW_N(x->p->a, u32, size);
        x->path_mask = size - 1;
        for (u32 k = 0; k < (u32)x->path_keys.n; k++) {
            u32 j = (u32)hash_u64(x->path_keys.at[k], 1) & x->path_mask;
            while (x->path_slots[j])
                j = (j + 1) & x->path_mask;
            x->path_slots[j] = k + 1;
        }
    }
    u32 i = (u32)hash_u64(key, 1) & x->path_mask;
    for (; x->path_slots[i]; i = (i + 1) & x->path_mask) {
        if (x->path_keys.at[x->path_slots[i] - 1] == key)
            return &x->path_refs.at[x->path_slots[i] - 1];
    }
    vec_push(x->p->a, &x->path_keys, key);
    vec_push(x->p->a, &x->path_refs, INT32_MIN);
    x->path_slots[i] = (u32)x->path_keys.n;
    return &x->path_refs.at[x->path_refs.n - 1];
}

static i32 path(explainer *x, u32 from, u32 to)
{
    if (from == to)
        return 0;
    i32 known = *path_memo(x, from, to);
    if (known != INT32_MIN)
        return known;
    u32 walk = ++x->walk, meet = 0;
    for (u32 n = from; n; n = eg_edge_of(x->g, n)->to)
        x->mark[n >> 29][n & EG_INDEX] = walk;
    VEC(u32) down = {0};
    for (u32 n = to; n && !meet; n = eg_edge_of(x->g, n)->to) {
        if (x->mark[n >> 29][n & EG_INDEX] == walk)
            meet = n;
        else
            vec_push(x->p->a, &down, n);
    }
    if (!meet)
        eqf_bug(x->p->ctx, "two e-nodes of one class are not connected");
    VEC(i32) refs = {0};
    for (u32 n = from; n != meet; n = eg_edge_of(x->g, n)->to) {
        i32 e = edge_proof(x, n);
        vec_push(x->p->a, &refs, e);
    }
    for (i64 i = down.n; i-- > 0;) {
        i32 e = -edge_proof(x, down.at[i]);
        vec_push(x->p->a, &refs, e);
    }
    i32 ref = pf_chain(x->p, term_of(x, from), term_of(x, to), refs.at, (u32)refs.n);
    *path_memo(x, from, to) = ref;
    return ref;
}

/* ---- API ----------------------------------------------------------------------------------- */

static explainer *new_explainer(eg *g, eqf_proof *p)
{
    explainer *x = NEW(p->a, explainer);
    x->p = p;
    x->g = g;
    for (u32 s = 0; s < 6; s++) {
        x->term[s] = NEW_N(p->a, u32, g->seg[s].n);
        x->edge[s] = NEW_N(p->a, i32, g->seg[s].n);
        x->mark[s] = NEW_N(p->a, u32, g->seg[s].n);
    }
    x->path_slots = NEW_N(p->a, u32, 64);
    x->path_mask = 63;
    return x;
}

/* A literal term and the e-node that it is now; `ref` proves it equal to that e-node's term. */
typedef struct literal {
    u32 term, node;
    i32 ref;
} literal;

static literal literal_over(explainer *x, u32 head, u32 arity, const literal *operands)
{
    i32 small[4], *refs = arity > 4 ? NEW_N(x->p->a, i32, arity) : small;
    u32 small_kids[4] = {0}, *kids = arity > 4 ? NEW_N(x->p->a, u32, arity) : small_kids;
    literal out;
    for (u32 i = 0; i < arity; i++)
        kids[i] = operands[i].term;
    out.term = pf_term_add(x->p, head, arity, kids);
    for (u32 i = 0; i < arity; i++)
        kids[i] = eg_rec(x->g, operands[i].node)[N_CLASS];
    out.node = eg_lookup(x->g, head, arity, kids);
    if (!out.node)
        eqf_throw(x->p->ctx, EQF_E_ARGUMENT, NULL, "eqf_explain", "a term is not present");
    const u32 *orig = arity ? eg_orig(x->g, out.node) : NULL;
    bool swap = arity == 2 && eg_rec(x->g, out.node)[N_KIDS] != kids[0];
    for (u32 i = 0; i < arity; i++) {
        u32 there = orig[swap ? 1 - i : i];
        i32 parts[2] = {operands[i].ref, path(x, operands[i].node, there)};
        refs[i] = pf_chain(x->p, operands[i].term, term_of(x, there), parts, 2);
    }
    u32 mid;
    i32 parts[2] = {congruence(x, out.term, refs, arity, &mid), 0};
    parts[1] = swap ? swap_step(x, mid, term_of(x, out.node)) : 0;
    out.ref = pf_chain(x->p, out.term, term_of(x, out.node), parts, 2);
    return out;
}

static literal literal_tree(explainer *x, const sx *s)
{
    u32 arity, head = eg_head_of_sx(x->g->lang, NULL, s, &arity);
    literal *operands = NEW_N(x->p->a, literal, arity);
    for (u32 i = 0; i < arity; i++)
        operands[i] = literal_tree(x, s->at[i + 1]);
    return literal_over(x, head, arity, operands);
}

/* (shared-term (t ID HEAD CHILD ...) ... ID): parts that occur often are written once. */
static literal literal_shared(explainer *x, const sx *s)
{
    VEC(literal) known = {0};
    for (i64 k = 1; k + 1 < s->n; k++) {
        const sx *t = s->at[k];
        if (!sx_is_form(t, "t") || t->n < 3 || t->at[1]->kind != SX_INT || t->at[1]->i != k)
            sx_throw(x->p->ctx, NULL, t, "expected (t %lld HEAD CHILD ...)", (long long)k);
        sx term = {.kind = SX_LIST, .bracket = '(', .line = t->line, .column = t->column,
                   .n = t->n - 2, .at = t->at + 2};
        u32 arity, head = eg_head_of_sx(x->g->lang, NULL, t->n == 3 ? t->at[2] : &term, &arity);
        literal *operands = NEW_N(x->p->a, literal, arity);
        for (u32 i = 0; i < arity; i++) {
            const sx *kid = t->at[3 + i];
            if (kid->kind != SX_INT || kid->i < 1 || kid->i >= k)
                sx_throw(x->p->ctx, NULL, kid, "expected an id of an earlier term");
            operands[i] = known.at[kid->i - 1];
        }
        vec_push(x->p->a, &known, literal_over(x, head, arity, operands));
    }
    const sx *last = s->at[s->n - 1];
    if (last->kind != SX_INT || last->i < 1 || last->i > known.n)
        sx_throw(x->p->ctx, NULL, last, "expected the id of the term");
    return known.at[last->i - 1];
}

static literal literal_of(explainer *x, const sx *s)
{
    return sx_is_form(s, "shared-term") ? literal_shared(x, s) : literal_tree(x, s);
}

static void explain_terms(eg *g, eqf_proof *p, eqf_text a, eqf_text b)
{
    const sx *left = sx_read(p->a, NULL, a.at, (i64)a.n);
    const sx *right = sx_read(p->a, NULL, b.at, (i64)b.n);
    if (left->n != 1 || right->n != 1)
        eqf_throw(p->ctx, EQF_E_PARSE, NULL, "eqf_explain", "expected one term on each side");
    explainer *x = new_explainer(g, p);
    literal from = literal_of(x, left->at[0]), to = literal_of(x, right->at[0]);
    p->from = from.term;
    p->to = to.term;
    p->node_from = from.node;
    p->node_to = to.node;
    p->before = from.ref;
    p->after = -to.ref;
    if (eg_rec(g, p->node_from)[N_CLASS] != eg_rec(g, p->node_to)[N_CLASS])
        eqf_throw(p->ctx, EQF_E_ARGUMENT, NULL, "eqf_explain", "the terms are not equal");
    i32 parts[3] = {p->before, path(x, p->node_from, p->node_to), p->after};
    p->claim = pf_chain(p, p->from, p->to, parts, 3);
}

eqf_status eqf_explain(eqf_egraph *g, eqf_text a, eqf_text b, eqf_proof **out)
{
    *out = NULL;
    if (!g->options.explain)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_explain",
                          "the e-graph was made without explanations");
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    arena *mem = arena_new(g->ctx, 0);
    if (!mem)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        eqf_proof *p = NEW(mem, eqf_proof);
        p->ctx = g->ctx;
        p->a = mem;
        p->lang = g->lang;
        p->g = g;
        p->term_slots = NEW_N(mem, u32, 64);
        p->term_mask = 63;
        vec_push(mem, &p->terms, (pf_term){0});
        vec_push(mem, &p->steps, (pf_step){0});
        explain_terms(g, p, a, b);
        *out = p;
    }
    if (t.status)
        arena_free(mem);
    return t.status;
}

void eqf_proof_free(eqf_proof *proof)
{
    if (proof)
        arena_free(proof->a);
}

int64_t eqf_proof_length(const eqf_proof *proof)
{
    return add_length(pf_length(proof, proof->claim), 1);
}

/* ---- reduction ----------------------------------------------------------------------------- */

typedef struct arc {
    u32 from, to;
    i32 ref;
    u32 next; /* arc of the same origin */
} arc;

typedef struct ways {
    eqf_proof *p;
    VEC(arc) arcs;
    VEC(u32) first; /* by term */
} ways;

static void add_arc(ways *w, i32 ref)
{
    const pf_step *s = &w->p->steps.at[abs(ref)];
    for (u32 k = 0; s->kind == PF_CHAIN && k < s->nrefs; k++)
        add_arc(w, s->refs[k]);
    if (!ref || s->kind == PF_CHAIN)
        return;
    while (w->first.n < w->p->terms.n)
        vec_push(w->p->a, &w->first, 0);
    arc there = {s->from, s->to, abs(ref), w->first.at[s->from]};
    vec_push(w->p->a, &w->arcs, there);
    w->first.at[there.from] = (u32)w->arcs.n - 1;
    arc back = {there.to, there.from, -there.ref, w->first.at[there.to]};
    vec_push(w->p->a, &w->arcs, back);
    w->first.at[back.from] = (u32)w->arcs.n - 1;
}

/* Proofs of the forest edges of a class and of the axioms that came when their sides were equal
 * already. False when the class is too large to be worth it. */
static bool collect_ways(explainer *x, u32 c, ways *w)
{
    enum { MOST = 4096 };
    eg *g = x->g;
    VEC(u32) nodes = {0};
    for (u32 seg = 0; seg < 6; seg++) {
        for (u32 i = seg == 0; i < g->seg[seg].n;) {
            u32 n = seg << 29 | i;
            const u32 *rec = eg_rec(g, n);
            if (rec[N_HEAD] && eg_find(g, rec[N_CLASS]) == c)
                vec_push(x->p->a, &nodes, n);
            if (nodes.n > MOST)
                return false;
            i += seg == EG_LONG && rec[N_HEAD] ? 1 + eg_node_arity(g, n, rec) : 1;
        }
    }
    for (i64 i = 0; i < nodes.n; i++) {
        if (eg_edge_of(g, nodes.at[i])->to)
            add_arc(w, edge_proof(x, nodes.at[i]));
    }
    for (u32 i = 0; i < g->extra.n; i += 3) {
        u32 a = g->extra.at[i], b = g->extra.at[i + 1];
        if (eg_find(g, eg_rec(g, a)[N_CLASS]) == c)
            add_arc(w, row_proof(x, g->extra.at[i + 2], a, b));
    }
    return true;
}

/* Shortest way between two terms along the arcs; 0 when there is none. Extra axioms are used in the
 * claim only, never below an edge, so nothing can come to depend on itself. */
static i32 shortest(ways *w, u32 from, u32 to)
{
    eqf_proof *p = w->p;
    while (w->first.n < p->terms.n)
        vec_push(p->a, &w->first, 0);
    i64 n = w->first.n;
    i64 *cost = NEW_N(p->a, i64, n);
    u32 *via = NEW_N(p->a, u32, n);
    u8 *settled = NEW_N(p->a, u8, n);
    VEC(u32) open = {0};
    for (i64 i = 0; i < n; i++)
        cost[i] = INT64_MAX;
    cost[from] = 0;
    vec_push(p->a, &open, from);
    while (open.n) {
        i64 best = 0;
        for (i64 i = 1; i < open.n; i++) {
            if (cost[open.at[i]] < cost[open.at[best]])
                best = i;
        }
        u32 t = open.at[best];
        open.at[best] = open.at[--open.n];
        if (settled[t])
            continue;
        settled[t] = 1;
        if (t == to)
            break;
        for (u32 e = w->first.at[t]; e; e = w->arcs.at[e].next) {
            u32 m = w->arcs.at[e].to;
            i64 length = add_length(cost[t], pf_length(p, w->arcs.at[e].ref));
            if (length < cost[m]) {
                cost[m] = length;
                via[m] = e;
                vec_push(p->a, &open, m);
            }
        }
    }
    if (!settled[to])
        return 0;
    VEC(i32) refs = {0};
    for (u32 t = to; t != from; t = w->arcs.at[via[t]].from)
        vec_push(p->a, &refs, w->arcs.at[via[t]].ref);
    for (i64 i = 0; i < refs.n / 2; i++) {
        i32 r = refs.at[i];
        refs.at[i] = refs.at[refs.n - 1 - i];
        refs.at[refs.n - 1 - i] = r;
    }
    return pf_chain(p, from, to, refs.at, (u32)refs.n);
}

eqf_status eqf_proof_reduce(eqf_egraph *g, eqf_proof *proof)
{
    if (proof->g != g || !eg_node_exists(g, proof->node_from))
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_proof_reduce",
                          "the proof is of another e-graph, or its term was taken back");
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    trap t;
    TRY(g->ctx, t)
    {
        explainer *x = new_explainer(g, proof);
        ways w = {.p = proof};
        vec_push(proof->a, &w.arcs, (arc){0});
        u32 c = eg_rec(g, proof->node_from)[N_CLASS];
        if (proof->from != proof->to && collect_ways(x, c, &w)) {
            add_arc(&w, proof->claim);
            add_arc(&w, proof->before);
            add_arc(&w, proof->after);
            i32 way = shortest(&w, proof->from, proof->to);
            if (way && pf_length(proof, way) < pf_length(proof, proof->claim))
                proof->claim = way;
        }
    }
    return t.status;
}
