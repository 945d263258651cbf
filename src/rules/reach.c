/* What every form of a class needs, and its smallest form.
 *
 * must(c) = the intersection over the usable e-nodes of c of the union of their operands' must, and
 * c itself where c is a reduction over axes: the greatest fixpoint. Reaching *some* reduction says
 * nothing, since through cycles everything reaches everything. near(c) is the same without what lies
 * behind a reduction over other axes: what a loop over these axes could hold.     (space.md §6 F) */
#include "rules/fuse_impl.h"

enum { FAR = 1 << 24 }; /* no finished form */

/* ---- e-nodes --------------------------------------------------------------------------------- */

bool rl_is_cut(const rl_type *t)
{
    return t->kind != IR_A_VALUE || !(t->dims & ~t->axes);
}

/* Read, or folded once: no form of it is looked into. */
static bool is_given(const rl_type *t)
{
    return t->kind == IR_A_VALUE && (t->facts & (RL_LOAD | RL_STORED | RL_CONSTANT | RL_INDEX));
}

/* Can the e-node be computed from tiles of inputs and of constants, and from other such? */
static bool is_usable(const rl_graph *g, eqf_node n)
{
    const eqf_egraph *e = g->engine;
    rl_type own = rl_graph_type(g, eqf_node_class(e, n));
    if (eqf_node_hidden(e, n) || !rl_is_cut(&own))
        return false;
    eqf_head head = eqf_node_head(e, n);
    if (is_given(&own) || rl_leaf_of(g, head))
        return true;
    rl_label l = rl_node_label(g, head);
    if (l.op == IR_comb)
        return false;
    u8 class = ir_row(l.op)->class_;
    bool takes_whole = class == IR_INDEX || class == IR_GATHER || class == IR_PLAIN;
    i64 arity = eqf_head_arity(g->lang, head);
    for (i64 i = 0; i < arity; i++) {
        rl_type x = rl_graph_type(g, eqf_node_child(e, n, (unsigned)i));
        if (l.op == IR_view)
            return is_given(&x);
        if (takes_whole)
            x.dims &= ~l.axis;
        if (!rl_is_cut(&x))
            return false;
    }
    return true;
}

/* ---- smallest forms -------------------------------------------------------------------------- */

static u64 mix(u64 h, u64 x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

static u64 *head_names(arena *a, const rl_graph *g)
{
    u64 *names = NEW_N(a, u64, g->lang->heads.n);
    for (i64 i = 1; i < g->lang->heads.n; i++) {
        str s = str_new(a);
        eg_print_head(g->lang, &s, (u32)i);
        eg_print_payload(g->lang, &s, (u32)i);
        names[i] = 1;
        for (i64 k = 0; k < s.n; k++)
            names[i] = mix(names[i], (u8)str_text(&s)[k]);
    }
    return names;
}

static i64 size_of(const rl_enode *n, const i64 *size)
{
    i64 sum = 1;
    for (i64 i = 0; i < n->arity && sum < FAR; i++)
        sum += size[n->kids[i]];
    return MIN(sum, FAR);
}

static u64 name_of(const rl_enode *n, const u64 *name)
{
    u64 h = n->name, sum = 0;
    for (i64 i = 0; i < n->arity; i++) {
        if (n->is_unordered)
            sum += mix(7, name[n->kids[i]]);
        else
            h = mix(h, name[n->kids[i]]);
    }
    return n->is_unordered ? mix(h, sum) : h;
}

/* Stable. */
static void sort_by_size(i64 *at, i64 n, const i64 *size, i64 *spare)
{
    for (i64 width = 1; width < n; width *= 2) {
        for (i64 from = 0; from < n; from += 2 * width) {
            i64 i = from, middle = MIN(from + width, n), j = middle, end = MIN(middle + width, n);
            for (i64 k = from; k < end; k++)
                spare[k] = j >= end || (i < middle && size[at[i]] <= size[at[j]]) ? at[i++]
                                                                                   : at[j++];
        }
        memcpy(at, spare, (size_t)n * sizeof *at);
    }
}

/* What forms of `root` can be made of, ascending, with what `admits` says of the e-nodes there;
 * root < 0: everything. Returns how many. */
static i64 find_cone(const rl_reach *r, arena *a, rl_admits *admits, void *user, i64 root, u8 *how,
                     i64 *cone)
{
    bool *is_in = NEW_N(a, bool, r->n);
    i64 *stack = NEW_N(a, i64, r->n), depth = 0, n = 0;
    for (i64 k = root < 0 ? 0 : root; k < (root < 0 ? r->n : root + 1); k++) {
        is_in[k] = true;
        stack[depth++] = k;
    }
    while (depth > 0) {
        i64 k = stack[--depth];
        for (i64 i = r->first[k]; i < r->first[k + 1]; i++) {
            const rl_enode *x = &r->nodes.at[i];
            how[i] = (u8)admits(user, x);
            for (i64 j = 0; j < x->arity && how[i] == RL_INNER; j++)
                if (!is_in[x->kids[j]]) {
                    is_in[x->kids[j]] = true;
                    stack[depth++] = x->kids[j];
                }
        }
    }
    for (i64 k = 0; k < r->n; k++)
        if (is_in[k])
            cone[n++] = k;
    return n;
}

void rl_reach_smallest(const rl_reach *r, arena *a, rl_admits *admits, void *user, i64 root,
                       rl_smallest *out)
{
    out->size = NEW_N(a, i64, r->n);
    out->name = NEW_N(a, u64, r->n);
    out->node = NEW_N(a, eqf_node, r->n);
    u8 *how = NEW_N(a, u8, r->nodes.n);
    i64 *cone = NEW_N(a, i64, r->n), n_cone = find_cone(r, a, admits, user, root, how, cone);
    for (i64 k = 0; k < r->n; k++)
        out->size[k] = FAR;
    for (bool more = true; more;) {
        more = false;
        for (i64 j = 0; j < n_cone; j++)
            for (i64 i = r->first[cone[j]]; i < r->first[cone[j] + 1]; i++) {
                const rl_enode *n = &r->nodes.at[i];
                i64 size = how[i] == RL_OUT ? FAR : how[i] == RL_LEAF ? 1 : size_of(n, out->size);
                if (size >= out->size[n->place])
                    continue;
                out->size[n->place] = size;
                more = true;
            }
    }
    /* Names in order of size: those of operands are known. */
    i64 *order = NEW_N(a, i64, n_cone), *spare = NEW_N(a, i64, n_cone), n_order = 0;
    for (i64 j = 0; j < n_cone; j++)
        if (out->size[cone[j]] < FAR)
            order[n_order++] = cone[j];
    sort_by_size(order, n_order, out->size, spare);
    for (i64 j = 0; j < n_order; j++) {
        i64 k = order[j];
        for (i64 i = r->first[k]; i < r->first[k + 1]; i++) {
            const rl_enode *n = &r->nodes.at[i];
            if (how[i] == RL_OUT ||
                (how[i] == RL_LEAF ? 1 : size_of(n, out->size)) != out->size[k])
                continue;
            u64 name = how[i] == RL_INNER   ? name_of(n, out->name)
                       : r->forms.name ? mix(3, r->forms.name[k])
                                       : n->name;
            if (out->node[k].i && name >= out->name[k])
                continue;
            out->name[k] = name;
            out->node[k] = n->node;
        }
    }
}

/* Values that are not cut have no tiles; what they are is still a name for what is read. */
static rl_admit in_any_form(void *user, const rl_enode *n)
{
    const rl_reach *r = user;
    rl_type t = rl_graph_type(r->g, r->classes[n->place]);
    if (rl_is_cut(&t))
        return n->is_usable ? RL_INNER : RL_OUT;
    return n->label.op != IR_comb ? RL_INNER : RL_OUT;
}

/* ---- must ------------------------------------------------------------------------------------ */

i64 rl_place_of(const rl_reach *r, eqf_class c)
{
    return (i64)r->place[eqf_find(r->g->engine, c).i] - 1;
}

i64 rl_item_find(const rl_reach *r, i64 place, u64 par)
{
    for (i64 i = r->first_item[place]; i < r->first_item[place + 1]; i++)
        if (r->items.at[i].par == par)
            return i;
    return -1;
}

const u64 *rl_reach_must(const rl_reach *r, i64 place)
{
    return r->must + place * r->words;
}

static void find_items(rl_reach *r)
{
    for (i64 k = 0; k < r->n; k++) {
        r->first_item[k] = r->first_item[k + 1] = r->items.n;
        for (i64 i = r->first[k]; i < r->first[k + 1]; i++) {
            const rl_enode *n = &r->nodes.at[i];
            if (!n->is_usable || n->label.op != IR_reduce || !n->label.par)
                continue;
            r->first_item[k + 1] = r->items.n;
            if (rl_item_find(r, k, n->label.par) < 0)
                vec_push(r->a, &r->items, (rl_item){k, n->label.par});
            r->first_item[k + 1] = r->items.n;
        }
    }
}

const u64 *rl_reach_near(const rl_reach *r, i64 place)
{
    return r->near + place * r->words;
}

static void keep_over(const rl_reach *r, u64 par, u64 *set)
{
    for (i64 i = 0; i < r->items.n; i++)
        if (r->items.at[i].par != par)
            set[i >> 6] &= ~((u64)1 << (i & 63));
}

/* One place of `sets` from its operands'; false when it stays. */
static bool lower(const rl_reach *r, u64 *sets, bool is_near, i64 k, u64 *all, u64 *one)
{
    size_t bytes = (size_t)r->words * sizeof *all;
    memset(all, r->is_given[k] ? 0 : 0xFF, bytes);
    for (i64 i = r->first[k]; i < r->first[k + 1] && !r->is_given[k]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!n->is_usable)
            continue;
        memset(one, 0, bytes);
        for (i64 j = 0; j < n->arity; j++)
            for (i64 w = 0; w < r->words; w++)
                one[w] |= sets[n->kids[j] * r->words + w];
        if (is_near && n->label.par && (n->label.op == IR_reduce || n->label.op == IR_loop))
            keep_over(r, n->label.par, one);
        for (i64 w = 0; w < r->words; w++)
            all[w] &= one[w];
    }
    for (i64 i = r->first_item[k]; i < r->first_item[k + 1]; i++)
        all[i >> 6] |= (u64)1 << (i & 63);
    u64 *own = sets + k * r->words;
    if (memcmp(own, all, bytes) == 0)
        return false;
    memcpy(own, all, bytes);
    return true;
}

/* By place, the places with an e-node over it: those of place k are at[first[k]] up to the next. */
typedef struct users {
    i64 *first, *at;
} users;

static users find_users(const rl_reach *r, arena *a)
{
    users u = {.first = NEW_N(a, i64, r->n + 2)};
    i64 *end = u.first + 1; /* of place k: where its next user goes, at last where the next begins */
    for (i64 i = 0; i < r->nodes.n; i++)
        for (i64 j = 0; j < r->nodes.at[i].arity; j++)
            end[r->nodes.at[i].kids[j] + 1]++;
    for (i64 k = 0; k < r->n; k++)
        end[k + 1] += end[k];
    u.at = NEW_N(a, i64, end[r->n] + 1);
    for (i64 i = 0; i < r->nodes.n; i++)
        for (i64 j = 0; j < r->nodes.at[i].arity; j++)
            u.at[end[r->nodes.at[i].kids[j]]++] = r->nodes.at[i].place;
    return u;
}

/* The greatest fixpoint, whatever the order: places are looked at again when an operand fell. */
static u64 *fixpoint(const rl_reach *r, bool is_near)
{
    u64 *sets = NEW_N(r->a, u64, r->n * r->words);
    arena *scratch = arena_child(r->a);
    u64 *all = NEW_N(scratch, u64, r->words), *one = NEW_N(scratch, u64, r->words);
    bool *is_stale = NEW_N(scratch, bool, r->n);
    users u = find_users(r, scratch);
    memset(sets, 0xFF, (size_t)(r->n * r->words) * sizeof *sets);
    memset(is_stale, true, (size_t)r->n * sizeof *is_stale);
    for (bool more = true; more;) {
        more = false;
        for (i64 k = 0; k < r->n; k++) {
            if (!is_stale[k])
                continue;
            is_stale[k] = false;
            if (!lower(r, sets, is_near, k, all, one))
                continue;
            more = true;
            for (i64 i = u.first[k]; i < u.first[k + 1]; i++)
                is_stale[u.at[i]] = true;
        }
    }
    arena_free(scratch);
    return sets;
}

static void add_nodes(rl_reach *r, const u64 *head_name)
{
    const rl_graph *g = r->g;
    const eqf_egraph *e = g->engine;
    for (i64 k = 0; k < r->n; k++) {
        eqf_class c = r->classes[k];
        r->first[k] = r->nodes.n;
        rl_type t = rl_graph_type(g, c);
        r->is_given[k] = is_given(&t);
        for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
            if (eqf_node_hidden(e, n))
                continue;
            eqf_head head = eqf_node_head(e, n);
            rl_enode x = {.node = n, .place = (u32)k, .arity = eqf_head_arity(g->lang, head)};
            u32 *kids = NEW_N(r->a, u32, x.arity);
            for (i64 i = 0; i < x.arity; i++)
                kids[i] = r->place[eqf_node_child(e, n, (unsigned)i).i] - 1;
            x.kids = kids;
            x.name = head_name[head.i];
            x.is_usable = is_usable(g, n);
            if (!rl_leaf_of(g, head))
                x.label = rl_node_label(g, head);
            x.is_unordered =
                x.label.op == IR_loop || (x.arity == 2 && (ir_row(x.label.op)->flags & IR_COMM));
            vec_push(r->a, &r->nodes, x);
        }
    }
    r->first[r->n] = r->nodes.n;
}

rl_reach *rl_reach_new(arena *a, const rl_graph *g)
{
    const eqf_egraph *e = g->engine;
    rl_reach *r = NEW(a, rl_reach);
    r->g = g;
    r->a = a;
    i64 classes = eqf_egraph_size(e).classes;
    r->place = NEW_N(a, u32, g->engine->class_ids);
    r->classes = NEW_N(a, eqf_class, classes);
    r->first = NEW_N(a, i64, classes + 1);
    r->first_item = NEW_N(a, i64, classes + 1);
    r->is_given = NEW_N(a, bool, classes);
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c)) {
        r->classes[r->n++] = c;
        r->place[c.i] = (u32)r->n;
    }
    add_nodes(r, head_names(a, g));
    find_items(r);
    r->words = r->items.n / 64 + 1;
    r->must = fixpoint(r, false);
    r->near = fixpoint(r, true);
    rl_smallest forms;
    rl_reach_smallest(r, a, in_any_form, r, -1, &forms);
    r->forms = forms;
    return r;
}
