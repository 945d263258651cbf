/* Fusion: reductions over the same axes put into one loop.
 *
 * A round reads a rebuilt e-graph, derives, and only then adds. First, for each reduction of which
 * every form needs others over its axes, the repaired form (chain.c), until there is none; then,
 * for RL_FUSE_NODE and RL_FUSE_ALL, the bundles that operators ask for (bundle.c). What is added is found by the
 * next round, so this ends where nothing new comes. Last, loops are restricted to the tiles in which
 * masks may hold (visit.c).
 *
 * Every union is an axiom, "loop.N", "bundle" or "visit", over the exact terms that it was
 * derived from: a proof shows them and a judge derives them again (fuse_prove.c).                 (space.md §6 F) */
#include "rules/fuse_impl.h"

/* ---- records of e-nodes ---------------------------------------------------------------------- */

u32 rl_fuse_opaque(rl_fuser *f, eqf_node n)
{
    const eqf_egraph *e = f->g->engine;
    eqf_head head = eqf_node_head(e, n);
    if (rl_leaf_of(f->g, head))
        return rl_terms_leaf(f->t, head);
    rl_type type = rl_graph_type(f->g, eqf_node_class(e, n));
    type.facts &= (u8)~RL_IS_NUMBER;
    return rl_terms_opaque(f->t, type, n.i);
}

/* The operand as it was when the e-node was made: explanations start from there. */
eqf_node rl_fuse_kid(const rl_fuser *f, eqf_node n, i64 i)
{
    eqf_egraph *e = f->g->engine;
    if (f->g->options.explain)
        return (eqf_node){eg_orig(e, n.i)[i]};
    return eqf_next_node(e, eqf_node_child(e, n, (unsigned)i), (eqf_node){0});
}

static eqf_class class_of(const rl_fuser *f, eqf_node n)
{
    return eqf_find(f->g->engine, eqf_node_class(f->g->engine, n));
}

/* ---- adding ---------------------------------------------------------------------------------- */

typedef struct adder {
    rl_fuser *f;
    eg_vec left, right; /* instances */
    bool is_new, is_long;
} adder;

/* Components are a set: sorted by class, each once. */
static i64 sort_set(u32 *kids, u32 *nodes, i64 n)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        u32 kid = kids[i], node = nodes[i];
        i64 j = count;
        while (j > 0 && kids[j - 1] > kid)
            j--;
        if (j > 0 && kids[j - 1] == kid)
            continue;
        memmove(kids + j + 1, kids + j, (size_t)(count - j) * sizeof *kids);
        memmove(nodes + j + 1, nodes + j, (size_t)(count - j) * sizeof *nodes);
        kids[j] = kid;
        nodes[j] = node;
        count++;
    }
    return count;
}

static eqf_node add_record(adder *d, u32 id)
{
    rl_fuser *f = d->f;
    if ((i64)id < f->added.n && f->added.at[id].i)
        return f->added.at[id];
    rl_record x = f->t->at.at[id];
    eqf_node node = {x.payload};
    if (x.op != IR_NO_OP || x.head.i) {
        u32 *kids = NEW_N(f->a, u32, x.n), *nodes = NEW_N(f->a, u32, x.n);
        i64 n = x.n;
        for (i64 i = 0; i < n; i++) {
            nodes[i] = add_record(d, x.kids[i]).i;
            kids[i] = class_of(f, (eqf_node){nodes[i]}).i;
        }
        if (x.op == IR_loop)
            n = sort_set(kids, nodes, n);
        eqf_head head = x.op == IR_NO_OP
                            ? x.head
                            : rl_operator_head(f->g, x.op, x.reducer, n, x.payload);
        bool is_new;
        node.i = eg_add(f->g->engine, head.i, (u32)n, kids, nodes, 0, &is_new);
        if (!node.i)
            rl_must(f->g, eg_failed(f->g->engine, "adding a loop"));
        d->is_new = d->is_new || is_new;
    }
    vec_reserve(f->a, &f->added, f->t->at.n);
    for (; f->added.n < f->t->at.n; f->added.n++)
        f->added.at[f->added.n] = (eqf_node){0};
    return f->added.at[id] = node;
}

static bool put(adder *d, eg_vec *out, u32 head, u32 node)
{
    if (!eg_vec_room(d->f->g->engine, out, 2))
        return false;
    out->at[out->n++] = head;
    out->at[out->n++] = node;
    return true;
}

enum { LONGEST = 1 << 16 };

/* The record as a list of (head, e-node) in prefix order, each list of operands in the order in
 * which its e-node was made. */
static bool write_instance(adder *d, u32 id, eg_vec *out)
{
    rl_fuser *f = d->f;
    const rl_record *x = &f->t->at.at[id];
    u32 node = f->added.at[id].i;
    if (out->n > LONGEST)
        return false; /* a step that no proof could show */
    if (x->op == IR_NO_OP && !x->head.i)
        return put(d, out, EG_WHOLE, node);
    u32 head = eqf_node_head(f->g->engine, (eqf_node){node}).i;
    if (x->n == 0)
        return put(d, out, head, node);
    i64 n = eqf_head_arity(f->g->lang, (eqf_head){head});
    u32 *kids = NEW_N(f->a, u32, n);
    bool swap = false;
    for (i64 i = 0; i < n; i++) {
        u32 wanted = class_of(f, (eqf_node){eg_orig(f->g->engine, node)[i]}).i;
        kids[i] = x->kids[i];
        for (i64 k = 0; k < x->n && x->op == IR_loop; k++)
            if (class_of(f, f->added.at[x->kids[k]]).i == wanted)
                kids[i] = x->kids[k];
        if (x->op != IR_loop && class_of(f, f->added.at[kids[i]]).i != wanted)
            swap = n == 2;
    }
    if (!put(d, out, head | (swap ? EG_SWAP : 0), node))
        return false;
    for (i64 i = 0; i < n; i++)
        if (!write_instance(d, kids[i], out))
            return false;
    return true;
}

static eqf_status unite_by_axiom(adder *d, u32 left, u32 right, const char *reason, bool *changed)
{
    eqf_egraph *e = d->f->g->engine;
    u32 why = eg_reason(e, reason, (i64)strlen(reason));
    if (!why)
        return eg_failed(e, "fusing");
    d->is_long = !write_instance(d, left, &d->left) || !write_instance(d, right, &d->right);
    return d->is_long ? EQF_OK
                      : eg_axiom(e, d->left.at, d->left.n, d->right.at, d->right.n, why, changed);
}

bool rl_fuse_unite(rl_fuser *f, u32 left, u32 right, const char *reason)
{
    eqf_egraph *e = f->g->engine;
    adder d = {.f = f};
    bool changed = false;
    eqf_node a = add_record(&d, left), b = add_record(&d, right);
    eqf_class x = class_of(f, a), y = class_of(f, b);
    eqf_status s = EQF_OK;
    if (x.i != y.i)
        s = f->g->options.explain ? unite_by_axiom(&d, left, right, reason, &changed)
                                  : eqf_union(e, x, y, eqf_text_of(reason), &changed);
    eg_vec_free(e, &d.left);
    eg_vec_free(e, &d.right);
    rl_must(f->g, s);
    return changed || d.is_new;
}

/* ---- hints for proofs ------------------------------------------------------------------------ */

/* Copies records into the graph's own table, what is not looked into as the term that explanations
 * show for it. */
typedef struct hint {
    rl_fuser *f;
    u32 *keys, *values; /* by e-node, open addressing */
    i64 n, size;
} hint;

static i64 slot_of(const hint *h, u32 key)
{
    i64 i = (i64)(key * 2654435761u & (u32)(h->size - 1));
    while (h->keys[i] && h->keys[i] != key)
        i = (i + 1) & (h->size - 1);
    return i;
}

static void remember(hint *h, u32 key, u32 value)
{
    if (2 * h->n >= h->size) {
        hint old = *h;
        h->size = MAX(256, 2 * h->size);
        h->keys = NEW_N(h->f->a, u32, h->size);
        h->values = NEW_N(h->f->a, u32, h->size);
        for (i64 i = 0; i < old.size; i++)
            if (old.keys[i]) {
                i64 k = slot_of(h, old.keys[i]);
                h->keys[k] = old.keys[i];
                h->values[k] = old.values[i];
            }
    }
    i64 k = slot_of(h, key);
    h->n += !h->keys[k];
    h->keys[k] = key;
    h->values[k] = value;
}

static u32 own_term(hint *h, eqf_node n)
{
    rl_graph *g = h->f->g;
    if (h->size && h->keys[slot_of(h, n.i)])
        return h->values[slot_of(h, n.i)];
    eqf_head head = eqf_node_head(g->engine, n);
    u32 id = 0;
    if (rl_leaf_of(g, head)) {
        id = rl_terms_leaf(g->hints, head);
    } else {
        i64 arity = eqf_head_arity(g->lang, head);
        u32 *kids = NEW_N(h->f->a, u32, arity);
        bool all = true;
        for (i64 i = 0; i < arity && all; i++) {
            kids[i] = own_term(h, rl_fuse_kid(h->f, n, i));
            all = kids[i] != 0;
        }
        rl_label l = rl_node_label(g, head);
        if (all)
            id = rl_terms_make(g->hints, l.op, l.reducer, eqf_head_payload(g->lang, head), kids,
                               arity);
    }
    remember(h, n.i, id);
    return id;
}

static u32 shown(hint *h, u32 id, u32 *done)
{
    const rl_fuser *f = h->f;
    rl_record x = f->t->at.at[id];
    if (done[id])
        return done[id];
    if (x.op == IR_NO_OP)
        return done[id] = x.head.i ? rl_terms_leaf(f->g->hints, x.head)
                                   : own_term(h, (eqf_node){x.payload});
    u32 *kids = NEW_N(f->a, u32, x.n);
    for (i64 i = 0; i < x.n; i++) {
        kids[i] = shown(h, x.kids[i], done);
        if (!kids[i])
            return 0;
    }
    return done[id] = rl_terms_make(f->g->hints, x.op, x.reducer, x.payload, kids, x.n);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* The search for a body: reductions over `par` that every form of it needs are leaves, others over
 * these axes are not used. */
typedef struct body_search {
    rl_fuser *f;
    u64 par;
    const u64 *allowed; /* items */
} body_search;

/* Does an operand need a result that the body uses? Then it could not be computed in the loop. */
static bool needs_result(const body_search *s, const rl_enode *n)
{
    const rl_reach *r = s->f->r;
    for (i64 i = 0; i < r->items.n; i++) {
        bool is_result = r->items.at[i].par == s->par && (s->allowed[i >> 6] >> (i & 63) & 1);
        for (i64 j = 0; j < n->arity && is_result; j++)
            if (rl_reach_must(r, n->kids[j])[i >> 6] >> (i & 63) & 1)
                return true;
    }
    return false;
}

static rl_admit in_body(void *user, const rl_enode *n)
{
    const body_search *s = user;
    const rl_reach *r = s->f->r;
    const rl_label *l = &n->label;
    if (!n->is_usable)
        return RL_OUT;
    i64 item = rl_item_find(r, n->place, s->par);
    if (item >= 0) /* a result, and then by its reductions alone */
        return s->allowed[item >> 6] >> (item & 63) & 1 && l->op == IR_reduce && l->par == s->par
                   ? RL_LEAF
                   : RL_OUT;
    if (l->op == IR_NO_OP || l->op == IR_view)
        return RL_LEAF;
    if (ir_row(l->op)->class_ == IR_EWISE || l->op == IR_tile_matmul ||
        (l->op == IR_reduce && !l->par))
        return RL_INNER;
    if (l->par & s->par)
        return RL_OUT;
    if (l->op == IR_get && rl_graph_type(r->g, r->classes[n->kids[0]]).dims & s->par)
        return RL_OUT;
    return needs_result(s, n) ? RL_OUT : RL_LEAF;
}

static u32 record_of_item(rl_fuser *f, i64 item);

/* The chosen form of the class as a record; 0 when there is none. */
static u32 record_of(body_search *s, const rl_smallest *forms, i64 k, u32 *done)
{
    rl_fuser *f = s->f;
    eqf_node n = forms->node[k];
    i64 item = rl_item_find(f->r, k, s->par);
    if (done[k] || !n.i)
        return done[k];
    if (item >= 0)
        return done[k] = record_of_item(f, item);
    eqf_head head = eqf_node_head(f->g->engine, n);
    const rl_enode *x = &f->r->nodes.at[f->r->first[k]];
    while (x->node.i != n.i)
        x++;
    if (in_body(s, x) == RL_LEAF)
        return done[k] = rl_fuse_opaque(f, n);
    u32 *kids = NEW_N(f->a, u32, x->arity);
    for (i64 i = 0; i < x->arity; i++) {
        kids[i] = record_of(s, forms, rl_place_of(f->r, class_of(f, rl_fuse_kid(f, n, i))), done);
        if (!kids[i])
            return 0;
    }
    return done[k] = rl_terms_make(f->t, x->label.op, x->label.reducer,
                                   eqf_head_payload(f->g->lang, head), kids, x->arity);
}

/* A reduction with its body. */
typedef struct reduction {
    u32 record;
    i64 size;
    u64 name;
} reduction;

static reduction record_of_reduction(rl_fuser *f, const rl_enode *n)
{
    reduction out = {0};
    i64 body = n->kids[0];
    body_search s = {f, n->label.par, rl_reach_near(f->r, body)};
    rl_smallest forms;
    arena *scratch = arena_child(f->a);
    rl_reach_smallest(f->r, scratch, in_body, &s, body, &forms);
    u32 kid = record_of(&s, &forms, body, NEW_N(scratch, u32, f->r->n));
    if (kid) {
        u32 payload = eqf_head_payload(f->g->lang, eqf_node_head(f->g->engine, n->node));
        out.record = rl_terms_make(f->t, IR_reduce, n->label.reducer, payload, &kid, 1);
        out.size = forms.size[body];
        out.name = forms.name[body];
    }
    arena_free(scratch);
    return out;
}

/* Does the reduction's body use another over these axes that every form of its class needs? Where
 * the class has a form without, there is nothing to repair. */
static bool wants_repair(const rl_reach *r, i64 item, const rl_enode *n)
{
    const u64 *all = rl_reach_must(r, n->place), *body = rl_reach_near(r, n->kids[0]);
    for (i64 i = 0; i < r->items.n; i++)
        if (i != item && r->items.at[i].par == n->label.par &&
            (all[i >> 6] & body[i >> 6]) >> (i & 63) & 1)
            return true;
    return false;
}

/* Reductions of the item, that of the smallest body first; at most `most`. `repairable`: only those
 * that want a repair. */
static i64 reductions_of(rl_fuser *f, i64 item, bool repairable, reduction *out, i64 most)
{
    rl_item it = f->r->items.at[item];
    i64 n = 0;
    for (i64 i = f->r->first[it.place]; i < f->r->first[it.place + 1]; i++) {
        const rl_enode *x = &f->r->nodes.at[i];
        if (!x->is_usable || x->label.op != IR_reduce || x->label.par != it.par ||
            (repairable && !wants_repair(f->r, item, x)))
            continue;
        reduction r = record_of_reduction(f, x);
        i64 j = n;
        while (r.record && j > 0 &&
               (r.size < out[j - 1].size ||
                (r.size == out[j - 1].size && r.name < out[j - 1].name)))
            j--;
        if (!r.record || j == most)
            continue;
        n = MIN(n + 1, most);
        memmove(out + j + 1, out + j, (size_t)(n - 1 - j) * sizeof *out);
        out[j] = r;
    }
    return n;
}

static u32 record_of_item(rl_fuser *f, i64 item)
{
    if (f->state[item] == 0) {
        f->state[item] = 1;
        reduction best;
        f->record[item] = reductions_of(f, item, false, &best, 1) ? best.record : 0;
        f->state[item] = 2;
    }
    return f->record[item];
}

/* ---- repairs --------------------------------------------------------------------------------- */

typedef struct found {
    rl_chain chain;
    const char *reason;
} found;

static const char *new_reason(rl_fuser *f, const char *kind, u32 term)
{
    rl_graph *g = f->g;
    if (!g->options.explain)
        return kind;
    hint h = {.f = f};
    if (!g->hints)
        g->hints = rl_terms_new(g, g->a);
    vec_push(g->a, &g->chains, shown(&h, term, NEW_N(f->a, u32, f->t->at.n)));
    return arena_printf(g->a, "%s.%lld", kind, (long long)g->chains.n - 1);
}

static u64 mixed(u64 h, u64 x)
{
    h = (h ^ x) * 0xBF58476D1CE4E5B9u;
    return h ^ h >> 31;
}

/* A number made of the term alone, what is not looked into by a name of its class. */
static u64 hash_of(const rl_fuser *f, u32 id, u64 *done)
{
    if (done[id])
        return done[id];
    const rl_record *x = &f->t->at.at[id];
    bool is_opaque = x->op == IR_NO_OP && !x->head.i;
    u64 h = mixed(mixed(x->op, x->reducer), is_opaque ? 0 : x->payload);
    h = mixed(h, x->head.i);
    if (is_opaque)
        h = mixed(h, f->r->forms.name[rl_place_of(f->r, class_of(f, (eqf_node){x->payload}))]);
    for (i64 i = 0; i < x->n; i++)
        h = mixed(h, hash_of(f, x->kids[i], done));
    return done[id] = h ? h : 1;
}

static bool is_tried(rl_fuser *f, u32 id)
{
    u64 key = hash_of(f, id, NEW_N(f->a, u64, f->t->at.n));
    for (i64 i = 0; i < f->g->tried.n; i++)
        if (f->g->tried.at[i] == key)
            return true;
    vec_push(f->g->a, &f->g->tried, key);
    return false;
}

/* The search for repairs polls what the engine polls while it runs. */
static bool is_over(const rl_graph *g, eqf_stop *why)
{
    const rl_graph_options *o = &g->options;
    bool is_full = o->limits.nodes >= 0 && eqf_egraph_size(g->engine).nodes >= o->limits.nodes;
    bool is_cancelled = o->cancelled && o->cancelled(o->user);
    if (is_full || is_cancelled)
        *why = is_full ? EQF_STOP_NODES : EQF_STOP_CANCELLED;
    return is_full || is_cancelled;
}

/* A component that stands alone is the reduction of its body: other forms of that take part in what
 * follows, and nothing is computed twice. */
static bool unite_plain(rl_fuser *f, u32 id, u8 *seen)
{
    rl_record x = f->t->at.at[id];
    bool changed = false;
    if (seen[id] || x.op == IR_NO_OP)
        return false;
    seen[id] = 1;
    for (i64 i = 0; i < x.n; i++)
        changed = unite_plain(f, x.kids[i], seen) || changed;
    if (x.op != IR_get)
        return changed;
    rl_record loop = f->t->at.at[x.kids[0]], comp = f->t->at.at[x.kids[1]];
    if (loop.op != IR_loop || comp.op != IR_comp || comp.n != 1)
        return changed;
    u64 par = f->g->payloads.at[loop.payload].par;
    u32 reduce = rl_terms_make(f->t, IR_reduce, comp.reducer,
                               rl_par_payload(f->g, IR_reduce, par), comp.kids, 1);
    return (reduce && rl_fuse_unite(f, reduce, id, "bundle")) || changed;
}

static bool repair_round(rl_fuser *f, rl_fuse_report *report)
{
    VEC(found) all = {0};
    bool changed = false;
    for (i64 i = 0; i < f->r->items.n && !is_over(f->g, &report->stop); i++) {
        reduction forms[3];
        i64 n = reductions_of(f, i, true, forms, COUNT_OF(forms));
        for (i64 k = 0; k < n; k++) {
            if (is_tried(f, forms[k].record))
                continue;
            rl_chain chain = rl_chain_of(f->t, forms[k].record);
            report->systems++;
            if (!chain.found || chain.fp > f->g->options.fp)
                continue;
            report->repairs++;
            vec_push(f->a, &all, (found){chain, new_reason(f, "loop", forms[k].record)});
            if (f->t->at.at[chain.value[chain.n - 1]].op != IR_get)
                vec_push(f->g->a, &f->g->readouts, f->r->classes[f->r->items.at[i].place]);
            break;
        }
    }
    for (i64 i = 0; i < all.n; i++) {
        const rl_chain *c = &all.at[i].chain;
        for (i64 k = 0; k < c->n; k++)
            changed = rl_fuse_unite(f, c->reduction[k], c->value[k], all.at[i].reason) || changed;
        u8 *seen = NEW_N(f->a, u8, f->t->at.n);
        for (i64 k = 0; k < c->n; k++)
            changed = unite_plain(f, c->value[k], seen) || changed;
    }
    return changed;
}

/* ---- parts of a split -------------------------------------------------------------------------- */

/* What is found of a split's parts in a round. `free`: some form uses no result over the parts; `clean`: in
 * some form no reduction over a part does. By place. */
typedef struct part_search {
    rl_fuser *f;
    u64 inner, outer, whole;
    bool *free, *clean;
    const u64 *allowed; /* items that the body being searched may use */
    u8 *state;          /* by item: 0 unknown, 1 being searched, 2 known */
    u32 *record;
} part_search;

static bool reduces_over(const rl_enode *n, u64 axes)
{
    return (n->label.op == IR_reduce || n->label.op == IR_loop) && (n->label.par & axes);
}

/* One e-node's say: does it use nothing over the parts, below reductions over a part or anywhere? */
static bool uses_none(const part_search *s, const rl_enode *n, bool anywhere)
{
    const bool *kids = anywhere || reduces_over(n, s->inner) ? s->free : s->clean;
    if (!n->is_usable && rl_graph_type(s->f->g, s->f->r->classes[n->place]).kind == IR_A_VALUE)
        return false;
    if (anywhere && reduces_over(n, s->outer | s->whole))
        return false;
    for (i64 i = 0; i < n->arity && n->label.op != IR_run; i++)
        if (!kids[n->kids[i]])
            return false;
    return true;
}

static void find_free(part_search *s)
{
    const rl_reach *r = s->f->r;
    s->free = NEW_N(s->f->a, bool, r->n);
    s->clean = NEW_N(s->f->a, bool, r->n);
    for (i64 k = 0; k < r->n; k++)
        s->free[k] = s->clean[k] = r->is_given[k];
    for (int anywhere = 1; anywhere >= 0; anywhere--)
        for (bool more = true; more;) {
            bool *known = anywhere ? s->free : s->clean;
            more = false;
            for (i64 i = 0; i < r->nodes.n; i++) {
                const rl_enode *n = &r->nodes.at[i];
                if (known[n->place] || !uses_none(s, n, anywhere))
                    continue;
                known[n->place] = more = true;
            }
        }
}

static bool is_allowed(const part_search *s, i64 item)
{
    return s->allowed[item >> 6] >> (item & 63) & 1;
}

/* The item over parts of which the e-node, a reduction over all of them, is the combination; -1. */
static i64 part_item(const part_search *s, const rl_enode *n)
{
    const rl_reach *r = s->f->r;
    i64 tile = n->arity ? n->kids[0] : 0;
    if (n->label.op != IR_reduce || n->label.par != s->outer)
        return -1;
    for (i64 i = r->first[tile]; i < r->first[tile + 1]; i++) {
        const rl_enode *x = &r->nodes.at[i];
        if (x->label.op == IR_reduce && !x->label.par && x->label.axis == s->outer &&
            x->label.reducer == n->label.reducer && rl_item_find(r, x->kids[0], s->inner) >= 0)
            return rl_item_find(r, x->kids[0], s->inner);
    }
    return -1;
}

static rl_admit in_part(void *user, const rl_enode *n)
{
    const part_search *s = user;
    const rl_reach *r = s->f->r;
    const rl_label *l = &n->label;
    i64 over = rl_item_find(r, n->place, s->outer), part = rl_item_find(r, n->place, s->inner);
    if (!n->is_usable)
        return RL_OUT;
    if (over >= 0)
        return is_allowed(s, over) && part_item(s, n) >= 0 ? RL_LEAF : RL_OUT;
    if (part >= 0)
        return RL_OUT;
    if (l->op == IR_NO_OP || l->op == IR_view)
        return RL_LEAF;
    if (ir_row(l->op)->class_ == IR_EWISE || l->op == IR_tile_matmul || (l->op == IR_reduce && !l->par))
        return RL_INNER;
    bool is_inside = l->op == IR_get && rl_graph_type(r->g, r->classes[n->kids[0]]).dims & (s->inner | s->outer);
    return is_inside || l->par & (s->inner | s->outer) || !s->free[n->place] ? RL_OUT : RL_LEAF;
}

static u32 part_record(part_search *s, i64 item);

/* The chosen form as a record, results over all parts as what they combine. */
static u32 part_form(part_search *s, const rl_smallest *forms, i64 k, u32 *done)
{
    rl_fuser *f = s->f;
    eqf_node n = forms->node[k];
    if (done[k] || !n.i)
        return done[k];
    eqf_head head = eqf_node_head(f->g->engine, n);
    u32 payload = rl_leaf_of(f->g, head) ? 0 : eqf_head_payload(f->g->lang, head);
    const rl_enode *x = &f->r->nodes.at[f->r->first[k]];
    while (x->node.i != n.i)
        x++;
    if (rl_item_find(f->r, k, s->outer) >= 0) {
        u32 part = part_record(s, part_item(s, x));
        u32 over = rl_axis_payload(f->g, IR_reduce, s->outer);
        u32 tile = part ? rl_terms_make(f->t, IR_reduce, x->label.reducer, over, &part, 1) : 0;
        return done[k] = tile ? rl_terms_make(f->t, IR_reduce, x->label.reducer, payload, &tile, 1) : 0;
    }
    if (in_part(s, x) == RL_LEAF)
        return done[k] = rl_fuse_opaque(f, n);
    u32 *kids = NEW_N(f->a, u32, x->arity);
    for (i64 i = 0; i < x->arity; i++) {
        kids[i] = part_form(s, forms, rl_place_of(f->r, class_of(f, rl_fuse_kid(f, n, i))), done);
        if (!kids[i])
            return 0;
    }
    return done[k] = rl_terms_make(f->t, x->label.op, x->label.reducer, payload, kids, x->arity);
}

/* The reduction over a part by its smallest body; 0: none. */
static u32 part_record(part_search *s, i64 item)
{
    const rl_reach *r = s->f->r;
    if (item < 0 || s->state[item])
        return item < 0 ? 0 : s->record[item];
    s->state[item] = 1;
    i64 place = r->items.at[item].place, size = 0;
    u64 name = 0;
    const u64 *outside = s->allowed;
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!n->is_usable || n->label.op != IR_reduce || n->label.par != s->inner)
            continue;
        i64 body = n->kids[0];
        rl_smallest forms;
        arena *scratch = arena_child(s->f->a);
        s->allowed = rl_reach_near(r, body);
        rl_reach_smallest(r, scratch, in_part, s, body, &forms);
        bool is_best = forms.node[body].i &&
                       (!s->record[item] || forms.size[body] < size ||
                        (forms.size[body] == size && forms.name[body] < name));
        u32 kid = is_best ? part_form(s, &forms, body, NEW_N(scratch, u32, r->n)) : 0;
        if (kid) {
            s->record[item] =
                rl_terms_make(s->f->t, IR_reduce, n->label.reducer,
                              rl_par_payload(s->f->g, IR_reduce, s->inner), &kid, 1);
            size = forms.size[body];
            name = forms.name[body];
        }
        arena_free(scratch);
    }
    s->allowed = outside;
    s->state[item] = 2;
    return s->record[item];
}

/* Reductions over one part that no form has without results over all: by the part's own. */
static bool part_round(rl_fuser *f, const ir_split *split, rl_fuse_report *report)
{
    typedef struct moved {
        u32 left, right;
        const char *reason;
    } moved;
    VEC(moved) all = {0};
    rl_graph *g = f->g;
    part_search s = {.f = f,
                     .inner = rl_mask(g, (ir_atoms){&split->inner, 1}),
                     .outer = rl_mask(g, (ir_atoms){&split->outer, 1}),
                     .whole = rl_mask(g, (ir_atoms){&split->whole, 1}),
                     .state = NEW_N(f->a, u8, f->r->items.n),
                     .record = NEW_N(f->a, u32, f->r->items.n)};
    bool changed = false;
    if (!s.inner || !s.outer)
        return false;
    find_free(&s);
    for (i64 i = 0; i < f->r->items.n; i++) {
        rl_item it = f->r->items.at[i];
        u32 left = it.par == s.inner && !s.clean[it.place] ? part_record(&s, i) : 0;
        if (!left || is_tried(f, left))
            continue;
        rl_fp fp = RL_EXACT;
        u32 right = rl_part_of(f->t, left, &fp);
        if (!right || fp > g->options.fp)
            continue;
        report->parts++;
        vec_push(f->a, &all, ((moved){left, right, new_reason(f, "part", left)}));
    }
    for (i64 i = 0; i < all.n; i++)
        changed = rl_fuse_unite(f, all.at[i].left, all.at[i].right, all.at[i].reason) || changed;
    return changed;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static rl_fuser *start(rl_graph *g)
{
    arena *a = arena_child(g->a);
    rl_fuser *f = NEW(a, rl_fuser);
    *f = (rl_fuser){.g = g, .a = a, .r = rl_reach_new(a, g), .t = rl_terms_new(g, a)};
    f->state = NEW_N(a, u8, f->r->items.n);
    f->record = NEW_N(a, u32, f->r->items.n);
    return f;
}

rl_fuse_report rl_graph_fuse(rl_graph *g, rl_fuse_mode mode)
{
    rl_fuse_report report = {.stop = EQF_STOP_SATURATED};
    for (bool more = true; more && !is_over(g, &report.stop);) {
        rl_fuser *f = start(g);
        report.rounds++;
        more = false;
        for (i64 i = 0; i < g->own->splits.n && !more; i++)
            more = part_round(f, &g->own->splits.at[i], &report);
        more = more || repair_round(f, &report);
        if (!more && mode != RL_FUSE_LATE && !is_over(g, &report.stop))
            more = rl_bundle_round(f, mode == RL_FUSE_ALL, &report);
        if (!more && !is_over(g, &report.stop))
            more = rl_visit_round(f);
        arena_free(f->a);
        rl_must(g, eqf_rebuild(g->engine));
        if (!more || is_over(g, &report.stop))
            break;
        eqf_run_report run = rl_graph_saturate(g, NULL);
        report.iterations += run.iterations;
        report.matches += run.matches;
        report.stop = run.stop;
        if (run.stop != EQF_STOP_SATURATED)
            break;
    }
    return report;
}
