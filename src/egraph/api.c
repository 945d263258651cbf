/* The public calls on one e-graph that are not a stage of their own: life and death, terms in,
 * walks, sizes. */
#include <stdlib.h>

#include "egraph/extract.h"

eqf_limits eqf_limits_default(void)
{
    return (eqf_limits){30, 10000, (i64)1 << 30, 5};
}

eqf_limits eqf_limits_none(void)
{
    return (eqf_limits){-1, -1, -1, -1};
}

eqf_status eqf_egraph_new(eqf_lang *lang, const eqf_options *options, eqf_egraph **out)
{
    *out = NULL;
    eg *g = heap_try_resize(lang->ctx, NULL, 0, sizeof *g);
    if (!g)
        return eqf_report(lang->ctx, EQF_E_NO_MEMORY, NULL, NULL, "no memory for an e-graph");
    memset(g, 0, sizeof *g);
    g->ctx = lang->ctx;
    g->lang = lang;
    g->options.limits = eqf_limits_default();
    if (options)
        g->options = *options;
    for (u32 s = 0; s < 6; s++) {
        g->seg[s].elem = s == EG_LONG ? 16 : 16 + 8 * s;
        g->orig[s].elem = s == EG_LONG ? 4 : 4 * s;
        g->edge[s].elem = sizeof(eg_edge);
    }
    g->seg[0].n = 1; /* id 0 is "none" */
    g->rep.elem = 4;
    g->body.elem = sizeof(eg_body);
    g->now = 1;
    g->class_ids = 1;
    *out = g;
    return EQF_OK;
}

void eqf_egraph_free(eqf_egraph *g)
{
    if (!g)
        return;
    for (u32 s = 0; s < 6; s++) {
        eg_col_free(g, &g->seg[s]);
        eg_col_free(g, &g->orig[s]);
        eg_col_free(g, &g->edge[s]);
    }
    eg_free(g, g->parent, 4 * (i64)g->parent_cap);
    eg_col_free(g, &g->body);
    eg_col_free(g, &g->rep);
    for (u32 k = 0; k < g->nanalyses; k++)
        eg_col_free(g, &g->data[k]);
    eg_vec_free(g, &g->free_bodies);
    eg_free(g, g->slot, g->slot ? 8 * ((i64)g->slot_mask + 1) : 0);
    for (u32 k = 0; k < g->nlogs; k++) {
        eg_free(g, g->log[k].at, 4 * (i64)g->log[k].cap);
        eg_free(g, g->log[k].epoch, (i64)sizeof(eg_epoch) * g->log[k].epoch_cap);
    }
    eg_free(g, g->log, (i64)sizeof(eg_log) * g->nlogs);
    eg_vec_free(g, &g->dirty);
    eg_vec_free(g, &g->queue);
    eg_vec_free(g, &g->rows);
    eg_vec_free(g, &g->extra);
    eg_vec_free(g, &g->record);
    eg_vec_free(g, &g->journal);
    eg_vec_free(g, &g->mark_state);
    eg_free(g, g->rule, (i64)sizeof(eg_rule_state) * g->rules_cap);
    heap_free(g->ctx, g, sizeof *g);
}

eqf_lang *eqf_egraph_lang(const eqf_egraph *g)
{
    return g->lang;
}

void eqf_egraph_set_limits(eqf_egraph *g, eqf_limits limits)
{
    g->options.limits = limits;
}

/* ---- terms --------------------------------------------------------------------------------- */

typedef struct term_frame {
    u32 class_id, node;
} term_frame;

static term_frame add_term(eg *g, const char *file, const sx *x)
{
    u32 arity, head = eg_head_of_sx(g->lang, file, x, &arity);
    u32 small[8], small_nodes[8], *kids = small, *nodes = small_nodes;
    arena *a = NULL;
    if (arity > 8) {
        a = arena_child(g->lang->a);
        kids = NEW_N(a, u32, arity);
        nodes = NEW_N(a, u32, arity);
    }
    term_frame f = {0, 0};
    u32 i = 0;
    for (; i < arity; i++) {
        term_frame kid = add_term(g, file, x->at[i + 1]);
        if (!kid.class_id)
            break;
        kids[i] = kid.class_id;
        nodes[i] = kid.node;
    }
    bool is_new;
    if (i == arity && (f.node = eg_add(g, head, arity, kids, nodes, 0, &is_new)) != 0)
        f.class_id = eg_rec(g, f.node)[N_CLASS];
    arena_free(a);
    return f;
}

u32 eg_add_sx(eg *g, const char *file, const sx *x, u32 *node)
{
    term_frame f = add_term(g, file, x);
    if (node)
        *node = f.node;
    return f.class_id;
}

u32 eg_lookup_sx(eg *g, const char *file, const sx *x, u32 *node)
{
    u32 arity, head = eg_head_of_sx(g->lang, file, x, &arity);
    u32 small[8], *kids = small, n = 0, i = 0;
    arena *a = NULL;
    if (arity > 8) {
        a = arena_child(g->lang->a);
        kids = NEW_N(a, u32, arity);
    }
    for (; i < arity; i++) {
        kids[i] = eg_lookup_sx(g, file, x->at[i + 1], NULL);
        if (!kids[i])
            break;
    }
    if (i == arity)
        n = eg_lookup(g, head, arity, kids);
    arena_free(a);
    if (node)
        *node = n;
    return n ? eg_rec(g, n)[N_CLASS] : 0;
}

/* The one form of `text`. */
static const sx *read_one(eqf_ctx *ctx, arena *a, eqf_text text)
{
    const sx *all = sx_read(a, NULL, text.at, (i64)text.n);
    if (all->n != 1)
        sx_throw(ctx, NULL, all, "expected one term, found %lld", (long long)all->n);
    return all->at[0];
}

static eqf_status with_term(eg *g, eqf_text term, bool add, u32 *out)
{
    *out = 0;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        const sx *x = read_one(g->ctx, a, term);
        *out = add ? eg_add_sx(g, NULL, x, NULL) : eg_lookup_sx(g, NULL, x, NULL);
    }
    arena_free(a);
    if (!t.status && add && !*out)
        return eg_failed(g, "adding a term");
    return t.status;
}

eqf_status eqf_add_text(eqf_egraph *g, eqf_text term, eqf_class *out)
{
    return with_term(g, term, true, &out->i);
}

eqf_status eqf_lookup_text(eqf_egraph *g, eqf_text term, eqf_class *out)
{
    return with_term(g, term, false, &out->i);
}

eqf_status eg_check_class(const eg *g, eqf_class c, const char *call)
{
    if (eg_class_exists(g, c.i))
        return EQF_OK;
    return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, call, "class %u does not exist", c.i);
}

static eqf_status check_key(const eg *g, eqf_head head, const eqf_class *kids, size_t n,
                             const char *call)
{
    if (head.i == 0 || head.i >= (u32)g->lang->heads.n ||
        eg_head_arity(g->lang, head.i) != n || n > EG_MAX_ARITY)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, call,
                          "no head %u with %zu operands", head.i, n);
    for (size_t i = 0; i < n; i++) {
        eqf_status s = eg_check_class(g, kids[i], call);
        if (s)
            return s;
    }
    return EQF_OK;
}

eqf_status eqf_add(eqf_egraph *g, eqf_head head, const eqf_class *kids, size_t n, eqf_class *out)
{
    eqf_status s = check_key(g, head, kids, n, "eqf_add");
    bool is_new;
    u32 node = s ? 0 : eg_add(g, head.i, (u32)n, n ? &kids[0].i : NULL, NULL, 0, &is_new);
    if (!s && (!node || (g->recording && !eg_vec_room(g, &g->record, 4 + (u32)n))))
        s = eg_failed(g, "adding an e-node");
    if (s) {
        out->i = 0;
        return s;
    }
    u32 c = eg_rec(g, node)[N_CLASS];
    if (g->recording) {
        u32 *w = g->record.at + g->record.n;
        w[0] = c;
        w[1] = node;
        w[2] = head.i;
        w[3] = (u32)n;
        for (size_t i = 0; i < n; i++)
            w[4 + i] = kids[i].i;
        g->record.n += 4 + (u32)n;
    }
    out->i = c; /* last: it may be one of kids */
    return EQF_OK;
}

static eqf_status check_node(const eg *g, eqf_node n, const char *call)
{
    if (eg_node_exists(g, n.i))
        return EQF_OK;
    return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, call, "e-node %u does not exist", n.i);
}

/* Room for a reason and its row. */
static bool reserve_axiom(eg *g)
{
    return eg_union_reserve(g) && (!g->options.explain || eg_vec_room(g, &g->rows, 16));
}

static u32 axiom_row(eg *g, u32 a, u32 b, eqf_text reason)
{
    u32 r = eg_reason(g, reason.at, (i64)reason.n);
    return r ? eg_row(g, (u32[]){EG_ROW_AXIOM, r, 0, 0, a, b}, 6) : EG_WHY_NONE;
}

eqf_status eqf_add_into(eqf_egraph *g, eqf_class into, eqf_head head, const eqf_class *kids,
                        size_t n, eqf_text reason, bool *changed)
{
    if (changed)
        *changed = false;
    eqf_status s = check_key(g, head, kids, n, "eqf_add_into");
    if (!s)
        s = eg_check_class(g, into, "eqf_add_into");
    if (s)
        return s;
    bool is_new;
    u32 row = EG_WHY_NONE, first = 0, c = eg_find(g, into.i);
    if (!reserve_axiom(g))
        return eg_failed(g, "adding an e-node");
    u32 node = eg_add(g, head.i, (u32)n, n ? &kids[0].i : NULL, NULL, c, &is_new);
    if (!node)
        return eg_failed(g, "adding an e-node");
    u32 found = eg_rec(g, node)[N_CLASS];
    if (g->options.explain && (is_new || found != c)) {
        first = *(u32 *)eg_at(&g->rep, into.i);
        row = axiom_row(g, first, node, reason);
        eg_link(g, first, node, row);
    }
    bool united = !is_new && eg_union(g, c, found);
    if (changed)
        *changed = is_new || united;
    return EQF_OK;
}

eqf_status eqf_union(eqf_egraph *g, eqf_class a, eqf_class b, eqf_text reason, bool *changed)
{
    if (changed)
        *changed = false;
    eqf_status s = eg_check_class(g, a, "eqf_union");
    if (!s)
        s = eg_check_class(g, b, "eqf_union");
    if (s)
        return s;
    if (eg_find(g, a.i) == eg_find(g, b.i))
        return EQF_OK;
    if (!reserve_axiom(g))
        return eg_failed(g, "uniting classes");
    if (g->options.explain) {
        u32 na = *(u32 *)eg_at(&g->rep, a.i), nb = *(u32 *)eg_at(&g->rep, b.i);
        eg_link(g, na, nb, axiom_row(g, na, nb, reason));
    }
    bool united = eg_union(g, a.i, b.i);
    if (changed)
        *changed = united;
    return EQF_OK;
}

eqf_status eqf_union_text(eqf_egraph *g, eqf_text left, eqf_text right, eqf_text reason,
                          bool *changed)
{
    if (changed)
        *changed = false;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        eqf_status s = eg_union_sx(g, NULL, read_one(g->ctx, a, left),
                                   read_one(g->ctx, a, right), reason, changed);
        if (s)
            eqf_rethrow(g->ctx, s);
    }
    arena_free(a);
    return t.status;
}

eqf_status eg_union_sx(eg *g, const char *file, const sx *left, const sx *right, eqf_text reason,
                       bool *changed)
{
    u32 a = eg_add_sx(g, file, left, NULL), b = a ? eg_add_sx(g, file, right, NULL) : 0;
    if (!a || !b)
        return eg_failed(g, "adding a term");
    if (!g->options.explain)
        return eqf_union(g, (eqf_class){a}, (eqf_class){b}, reason, changed);
    eg_vec l = {0}, r = {0};
    eqf_status s = EQF_OK;
    u32 why = eg_reason(g, reason.at, (i64)reason.n);
    if (!why || !eg_instance(g, file, left, &l) || !eg_instance(g, file, right, &r))
        s = eg_failed(g, "uniting terms");
    else
        s = eg_axiom(g, l.at, l.n, r.at, r.n, why, changed);
    eg_vec_free(g, &l);
    eg_vec_free(g, &r);
    return s;
}

/* Child i of e-node n holds the leaf; returns the leaf's e-node, 0 when it does not. */
static u32 leaf_of_child(const eg *g, eqf_node n, unsigned i, eqf_head leaf)
{
    bool known = leaf.i && leaf.i < (u32)g->lang->heads.n && !eg_head_arity(g->lang, leaf.i);
    u32 m = known ? eg_lookup(g, leaf.i, 0, NULL) : 0;
    return m && eg_find(g, eg_rec(g, m)[N_CLASS]) == eqf_node_child(g, n, i).i ? m : 0;
}

eqf_status eqf_union_folded(eqf_egraph *g, eqf_node n, const eqf_head *kid_leaves, eqf_head leaf,
                            eqf_text reason, bool *changed)
{
    if (changed)
        *changed = false;
    eqf_status s = check_node(g, n, "eqf_union_folded");
    if (!s)
        s = check_key(g, leaf, NULL, 0, "eqf_union_folded");
    if (s)
        return s;
    bool is_new;
    u32 leaf_node = eg_add(g, leaf.i, 0, NULL, NULL, 0, &is_new);
    if (!leaf_node)
        return eg_failed(g, "adding a leaf");
    u32 a = eg_rec(g, n.i)[N_CLASS], b = eg_rec(g, leaf_node)[N_CLASS];
    if (a == b)
        return EQF_OK;
    if (!g->options.explain)
        return eqf_union(g, (eqf_class){a}, (eqf_class){b}, reason, changed);
    eg_vec l = {0};
    u32 arity = eg_node_arity(g, n.i, eg_rec(g, n.i));
    u32 why = eg_reason(g, reason.at, (i64)reason.n);
    if (!why || !eg_vec_room(g, &l, 2 + 2 * arity)) {
        s = eg_failed(g, "uniting classes");
    } else {
        l.at[l.n++] = eg_rec(g, n.i)[N_HEAD];
        l.at[l.n++] = n.i;
        for (u32 i = 0; i < arity && !s; i++) {
            l.at[l.n++] = kid_leaves[i].i;
            l.at[l.n] = leaf_of_child(g, n, i, kid_leaves[i]);
            if (!l.at[l.n++])
                s = eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_union_folded",
                               "child %u of the e-node does not hold the leaf given for it", i);
        }
        if (!s)
            s = eg_axiom(g, l.at, l.n, (u32[]){leaf.i, leaf_node}, 2, why, changed);
    }
    eg_vec_free(g, &l);
    return s;
}

/* ---- rebuilding ---------------------------------------------------------------------------- */

/* A term of e-node n, cut off once it is long. */
static void print_term(const eqf_extraction *x, u32 n, str *out)
{
    enum { LONG_TERM = 160 };
    const eg *g = x->g;
    if (!n || out->n > LONG_TERM) {
        str_add(out, "...");
        return;
    }
    const u32 *rec = eg_rec(g, n);
    u32 arity = eg_node_arity(g, n, rec);
    str_add(out, arity ? "(" : "");
    eg_print_head(g->lang, out, rec[N_HEAD]);
    for (u32 i = 0; i < arity && out->n <= LONG_TERM; i++) {
        str_add_char(out, ' ');
        print_term(x, x->choice[eg_find(g, eg_kid(rec, n, i))], out);
    }
    eg_print_payload(g->lang, out, rec[N_HEAD]);
    str_add(out, arity ? ")" : "");
}

eqf_status eg_contradiction(eg *g)
{
    const char *analysis = g->analysis[g->refused.analysis].name;
    eqf_extraction *x;
    eqf_status s = eqf_extract(g, NULL, 0, NULL, EQF_TREE, &x);
    if (s)
        return s;
    trap t;
    TRY(g->ctx, t)
    {
        str a = str_new(x->a), b = str_new(x->a);
        print_term(x, g->refused.node[0], &a);
        if (g->refused.node[1])
            print_term(x, g->refused.node[1], &b);
        else
            str_add(&b, "what is given of it");
        eqf_report(g->ctx, EQF_E_CONTRADICTION, NULL, g->refused.rule,
                   "the analysis %s refuses %s = %s", analysis, str_text(&a), str_text(&b));
    }
    eqf_extraction_free(x);
    return t.status ? t.status : EQF_E_CONTRADICTION;
}

eqf_status eqf_rebuild(eqf_egraph *g)
{
    eqf_status s = eg_rebuild(g);
    if (s == EQF_E_CONTRADICTION)
        return eg_contradiction(g);
    return s == EQF_E_LIMIT || s == EQF_E_NO_MEMORY ? eg_failed(g, "rebuilding") : s;
}

eqf_class eqf_find(const eqf_egraph *g, eqf_class c)
{
    return (eqf_class){eg_class_exists(g, c.i) ? eg_find(g, c.i) : 0};
}

eqf_class eqf_lookup(const eqf_egraph *g, eqf_head head, const eqf_class *kids, size_t n)
{
    u32 canonical[EG_MAX_ARITY];
    if (n > EG_MAX_ARITY || check_key(g, head, kids, n, "eqf_lookup"))
        return (eqf_class){0};
    for (size_t i = 0; i < n; i++)
        canonical[i] = eg_find(g, kids[i].i);
    u32 node = eg_lookup(g, head.i, (u32)n, canonical);
    return (eqf_class){node ? eg_rec(g, node)[N_CLASS] : 0};
}

eqf_status eqf_hide(eqf_egraph *g, eqf_node n)
{
    eqf_status s = check_node(g, n, "eqf_hide");
    if (s)
        return s;
    if (g->marks && !eg_vec_room(g, &g->journal, 16))
        return eg_failed(g, "hiding an e-node");
    eg_hide(g, n.i);
    return EQF_OK;
}

eqf_size eqf_egraph_size(const eqf_egraph *g)
{
    return (eqf_size){g->visible, g->nclasses, g->bytes - g->scratch_bytes, g->peak_bytes};
}

/* ---- walks --------------------------------------------------------------------------------- */

eqf_class eqf_next_class(const eqf_egraph *g, eqf_class c)
{
    for (u32 i = c.i + 1; c.i < g->class_ids && i < g->class_ids; i++) {
        if (g->parent[i] & EG_BODY)
            return (eqf_class){i};
    }
    return (eqf_class){0};
}

eqf_node eqf_next_node(const eqf_egraph *g, eqf_class c, eqf_node n)
{
    if (!eg_class_exists(g, c.i))
        return (eqf_node){0};
    u32 i = n.i ? eg_rec(g, n.i)[N_NEXT] : eg_body_of(g, eg_find(g, c.i))->members;
    while (i && (eg_rec(g, i)[N_STAMP] & S_DEAD))
        i = eg_rec(g, i)[N_NEXT];
    return (eqf_node){i};
}

eqf_head eqf_node_head(const eqf_egraph *g, eqf_node n)
{
    return (eqf_head){eg_rec(g, n.i)[N_HEAD]};
}

eqf_class eqf_node_class(const eqf_egraph *g, eqf_node n)
{
    return (eqf_class){eg_rec(g, n.i)[N_CLASS]};
}

eqf_class eqf_node_child(const eqf_egraph *g, eqf_node n, unsigned i)
{
    return (eqf_class){eg_find(g, eg_rec(g, n.i)[N_KIDS + eg_step(n.i) * i])};
}

bool eqf_node_hidden(const eqf_egraph *g, eqf_node n)
{
    return eg_rec(g, n.i)[N_STAMP] & S_HIDDEN;
}

/* ---- analyses ------------------------------------------------------------------------------ */

eqf_status eqf_analysis_add(eqf_egraph *g, const eqf_analysis *analysis, unsigned *index)
{
    if (g->class_ids > 1 || g->nanalyses == EQF_MAX_ANALYSES || analysis->size > 128 ||
        analysis->size == 0)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, analysis->name,
                          "an analysis is added before the first term, at most %d, of 1 to 128 "
                          "bytes each",
                          EQF_MAX_ANALYSES);
    if (!analysis->make || !analysis->merge)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, analysis->name,
                          "an analysis needs make and merge");
    u32 k = g->nanalyses++;
    g->analysis[k] = *analysis;
    g->data[k].elem = (u32)(analysis->size + 7) & ~7u;
    g->has_modify |= analysis->modify != NULL;
    if (index)
        *index = k;
    return EQF_OK;
}

const void *eqf_data(const eqf_egraph *g, unsigned index, eqf_class c)
{
    if (index >= g->nanalyses || !eg_class_exists(g, c.i))
        return NULL;
    return eg_at(&g->data[index], g->parent[eg_find(g, c.i)] & ~EG_BODY);
}

eqf_status eqf_data_join(eqf_egraph *g, unsigned index, eqf_class c, const void *data)
{
    eqf_status s = eg_check_class(g, c, "eqf_data_join");
    if (s)
        return s;
    if (index >= g->nanalyses)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_data_join",
                          "analysis %u does not exist", index);
    if (!eg_union_reserve(g))
        return eg_failed(g, "joining analysis data");
    eg_join_data(g, index, eg_find(g, c.i), data);
    return EQF_OK;
}
