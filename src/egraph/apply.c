/* Applying the matches of a rule: instances of its right side are added, the root's goes into the
 * matched class or is united with it. Limits are tested before each right side. Most rules have one
 * tree of plain operators on the right and run in batches; the rest one match at a time. */
#include "egraph/apply.h"
#include "egraph/store.h"

u32 eg_site_node(const eg *g, const eg_rule *r, const u32 *nodes, u32 swaps, u32 var)
{
    eg_site s = r->site[var];
    if (s.slot == EG_ROOT)
        return nodes[s.atom];
    u32 slot = swaps >> s.atom & 1 ? 1 - s.slot : s.slot;
    return eg_orig(g, nodes[s.atom])[slot];
}

typedef struct match {
    const u32 *values, *nodes;
    u32 swaps;
    u32 built_swaps;
    u32 built[EG_MAX_BUILT];
    u32 *fresh, *fresh_node; /* by variable that is new on the right; multipatterns only */
} match;

typedef struct built {
    u32 class_id, node;
} built;

/* Instantiates a right side; `into` is the class of its root, 0 a new one. class_id 0: no room. */
static built build(eg *g, const eg_rule *r, const eg_term *t, match *m, u32 into, bool *is_new)
{
    bool explain = g->options.explain;
    if (t->is_var) {
        *is_new = false;
        if (UNLIKELY(r->site[t->var].atom == EG_ROOT))
            return (built){m->fresh[t->var], m->fresh_node[t->var]};
        return (built){m->values[r->where[t->var]],
                       explain ? eg_site_node(g, r, m->nodes, m->swaps, t->var) : 0};
    }
    u32 kids[EG_MAX_VARS], nodes[EG_MAX_VARS];
    for (u32 i = 0; i < t->arity; i++) {
        bool kid_new;
        built kid = build(g, r, t->kids[i], m, 0, &kid_new);
        if (UNLIKELY(!kid.class_id))
            return kid;
        kids[i] = kid.class_id;
        nodes[i] = kid.node;
    }
    u32 head = t->head;
    if (UNLIKELY(!head)) {
        trap trap_;
        volatile u32 made = 0;
        TRY(g->ctx, trap_)
            made = eg_lang_head(g->lang, t->op, m->values[r->where[t->payload_var - 1]]);
        head = made;
        if (!head) {
            g->fail = EQF_E_NO_MEMORY;
            return (built){0, 0};
        }
    }
    u32 n = eg_add(g, head, t->arity, kids, explain ? nodes : NULL, into, is_new);
    if (UNLIKELY(!n))
        return (built){0, 0};
    if (explain) {
        m->built[t->index] = n;
        if (t->arity == 2 && !*is_new) {
            const u32 *rec = eg_rec(g, n);
            u32 kid = eg_find(g, kids[0]);
            if (eg_find(g, rec[N_KIDS]) != kid && eg_find(g, rec[N_KIDS + 2]) == kid)
                m->built_swaps |= 1u << t->index;
        }
    }
    return (built){eg_rec(g, n)[N_CLASS], n};
}

static u32 rule_row(eg *g, u32 state, const eg_rule *r, u32 conclusion, const match *m)
{
    u32 at = eg_row(g, (u32[]){EG_ROW_RULE, state, conclusion, m->swaps, m->built_swaps}, 5);
    eg_row(g, m->nodes, (u32)r->atoms.n);
    eg_row(g, m->built, r->nbuilt);
    return at;
}

static bool guards_hold(const eg *g, const eg_rule *r, const u32 *values)
{
    for (i64 i = 0; i < r->guards.n; i++) {
        const eg_use *use = &r->guards.at[i];
        eqf_class args[8];
        for (u32 k = 0; k < use->nargs; k++) {
            u32 v = values[r->where[use->args[k]]];
            args[k].i = r->var_payload[use->args[k]] ? v : eg_find(g, v);
        }
        if (use->guard == EG_GUARD_DISTINCT) {
            if (args[0].i == args[1].i)
                return false;
        } else {
            const eqf_guard *guard = &g->lang->guards.at[use->guard];
            if (!guard->holds(guard->user, g, args))
                return false;
        }
    }
    return true;
}

typedef struct instance {
    eg *g;
    const eg_rule *rule;
    const match *m;
    eg_vec words;
    bool full; /* no room */
    u64 used;  /* variables that were written: of several in one class each comes in its turn */
} instance;

/* The term that a dynamic right side built for class c, in prefix order: e-nodes it added (among the
 * first `end` words of the record: a child is older than its user), then the variables of the match,
 * then whatever stands for the class. */
static void write_instance(instance *x, u32 c, u32 end)
{
    eg *g = x->g;
    const u32 *found = NULL;
    for (u32 i = 0; i < end; i += 4 + g->record.at[i + 3]) {
        if (eg_find(g, g->record.at[i]) == c)
            found = g->record.at + i;
    }
    if (!eg_vec_room(g, &x->words, 2)) {
        x->full = true;
        return;
    }
    u32 *w = x->words.at + x->words.n;
    x->words.n += 2;
    if (found) {
        u32 n = found[3];
        w[0] = found[2];
        w[1] = found[1];
        const u32 *rec = eg_rec(g, found[1]);
        if (n == 2 && eg_find(g, rec[N_KIDS]) != eg_find(g, found[4]))
            w[0] |= EG_SWAP;
        for (u32 i = 0; i < n && !x->full; i++)
            write_instance(x, eg_find(g, found[4 + i]), (u32)(found - g->record.at));
        return;
    }
    w[0] = EG_WHOLE;
    w[1] = 0;
    for (u32 again = 0; again < 2 && !w[1]; again++)
        for (u32 v = 0; v < x->rule->nvars && !w[1]; v++) {
            if (!x->rule->var_name[v] || x->rule->var_payload[v] || (!again && (x->used >> v & 1)) ||
                eg_find(g, x->m->values[x->rule->where[v]]) != c)
                continue;
            w[1] = eg_site_node(g, x->rule, x->m->nodes, x->m->swaps, v);
            x->used |= (u64)1 << v;
        }
    if (!w[1])
        w[1] = *(u32 *)eg_at(&g->rep, c);
}

static bool link_dynamic(eg *g, const eg_rule *rule, u32 state, const match *m, u32 result)
{
    instance x = {.g = g, .rule = rule, .m = m};
    write_instance(&x, result, g->record.n);
    u32 natoms = (u32)rule->atoms.n;
    bool ok = !x.full && eg_vec_room(g, &g->rows, 6 + natoms + x.words.n);
    if (ok) {
        u32 row = eg_row(g, (u32[]){EG_ROW_RULE, state, 0, m->swaps, 0}, 5);
        eg_row(g, m->nodes, natoms);
        eg_row(g, &x.words.n, 1);
        eg_row(g, x.words.at, x.words.n);
        eg_link(g, m->nodes[rule->left.at[0].term->index], x.words.at[1], row);
    }
    eg_vec_free(g, &x.words);
    return ok;
}

/* Returns whether anything changed; a refused reservation sets r->stopping. */
static bool apply_dynamic(run *r, const eg_rule *rule, u32 state, match *m)
{
    eg *g = r->g;
    const eqf_dynamic *d = &g->lang->dynamics.at[rule->dynamic];
    eqf_class args[EG_MAX_VARS], out = {0};
    u32 n = 0, before = g->alive;
    for (u32 v = 0; v < rule->nvars; v++) {
        if (!rule->var_name[v])
            continue;
        u32 value = m->values[rule->where[v]];
        args[n++].i = rule->var_payload[v] ? value : eg_find(g, value);
    }
    g->recording = g->options.explain;
    g->record.n = 0;
    eqf_status s =
        d->apply(d->user, g, (eqf_class){eg_find(g, m->values[0])}, args, n, &out);
    g->recording = false;
    if (s) {
        r->status = s == EQF_E_LIMIT ? EQF_OK : s;
        eg_stop_for(r, s == EQF_E_LIMIT ? EQF_STOP_BYTES : EQF_STOP_ERROR);
        return g->alive != before;
    }
    if (out.i && !eg_class_exists(g, out.i)) {
        r->status = eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, rule->name,
                               "its right side returned class %u, which does not exist", out.i);
        eg_stop_for(r, EQF_STOP_ERROR);
        return g->alive != before;
    }
    u32 root = eg_find(g, m->values[0]), result = out.i ? eg_find(g, out.i) : root;
    if (root == result)
        return g->alive != before;
    if (!eg_union_reserve(g) ||
        (g->options.explain && !link_dynamic(g, rule, state, m, result))) {
        eg_stop_for_memory(r);
        return g->alive != before;
    }
    eg_union(g, root, result);
    return true;
}

static bool apply_match(run *r, const eg_rule *rule, u32 state, match *m)
{
    eg *g = r->g;
    eg_rule_state *st = &g->rule[state];
    bool explain = g->options.explain, changed = false;
    if (UNLIKELY(!eg_union_reserve(g)) ||
        (explain && !eg_vec_room(g, &g->rows,
                                 ((u32)rule->right.n + 1) * (8 + (u32)rule->atoms.n + rule->nbuilt)))) {
        eg_stop_for_memory(r);
        return false;
    }
    if (rule->dynamic >= 0) {
        i64 before = g->visible;
        changed = apply_dynamic(r, rule, state, m);
        st->stats.nodes += g->visible - before;
        st->stats.unions += changed;
        st->stats.applied += changed;
        return changed;
    }
    u32 fresh[EG_MAX_VARS]; /* classes of variables that are new on the right */
    u32 fresh_node[EG_MAX_VARS];
    if (UNLIKELY(rule->multi)) {
        memset(fresh, 0, sizeof fresh);
        m->fresh = fresh;
        m->fresh_node = fresh_node;
    }
    for (i64 i = 0; i < rule->right.n; i++) {
        const eg_side *side = &rule->right.at[i];
        u32 where = rule->where[side->var], target, target_node = 0;
        if (LIKELY(where != EG_ROOT)) {
            target = eg_find_halving(g, m->values[where]);
            if (explain)
                target_node = eg_site_node(g, rule, m->nodes, m->swaps, side->var);
        } else {
            target = fresh[side->var] ? eg_find(g, fresh[side->var]) : 0;
            target_node = target ? fresh_node[side->var] : 0;
        }
        bool is_new = false;
        if (i && UNLIKELY(!eg_union_reserve(g))) {
            eg_stop_for_memory(r);
            return changed;
        }
        built b = build(g, rule, side->term, m, target, &is_new);
        if (UNLIKELY(!b.class_id)) {
            eg_stop_for_memory(r);
            return changed;
        }
        st->stats.nodes += is_new;
        if (!target) {
            fresh[side->var] = b.class_id;
            fresh_node[side->var] = b.node;
            changed |= is_new;
            continue;
        }
        if (is_new) { /* it is in the class already */
            changed = true;
            if (explain)
                eg_link(g, target_node, b.node, rule_row(g, state, rule, (u32)i, m));
            continue;
        }
        target = eg_find_halving(g, target);
        u32 c = eg_find_halving(g, b.class_id);
        if (c == target)
            continue;
        if (explain)
            eg_link(g, target_node, b.node, rule_row(g, state, rule, (u32)i, m));
        eg_union(g, target, c);
        st->stats.unions++;
        changed = true;
    }
    if (rule->hide_left) {
        u32 n = m->nodes[rule->left.at[0].term->index];
        if (!(eg_rec(g, n)[N_STAMP] & S_FLAGS)) {
            eg_hide(g, n);
            changed = true;
        }
    }
    st->stats.applied += changed;
    return changed;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Matches of a plain rule are applied a batch at a time, one e-node of the right side after the
 * other across the batch: what the hash-cons will touch for one is fetched while others are worked
 * on. Room for all is taken first. The order is fixed, so the outcome is. */
enum { BATCH = 64 };

typedef struct batch {
    run *r;
    const eg_rule *rule;
    u32 state, n, width;
    i64 made, applied; /* e-nodes; matches that changed something */
    const u32 *rows; /* n of `width` words */
    u32 kid[4][BATCH], place[4][BATCH]; /* children and where their bodies are */
    u32 hash[BATCH], at[BATCH]; /* at: the slot where a probe may begin */
    const u32 *rec[BATCH]; /* of the e-node that has the hash, if one of this arity has; NULL */
    u32 made_class[EG_MAX_BUILT][BATCH], made_node[EG_MAX_BUILT][BATCH]; /* nodes: explained only */
    u32 built_swaps[BATCH];
} batch;

static __attribute__((noinline)) u32 follow(eg *g, u32 c)
{
    return eg_find_halving(g, c);
}

static inline u32 canonical(eg *g, const u32 *parent, u32 c)
{
    return LIKELY(parent[c] & EG_BODY) ? c : follow(g, c);
}

static inline const u32 *row_of(const batch *b, u32 j)
{
    return b->rows + (size_t)j * b->width;
}

/* A child of all matches: the first of its class ids and the words from one to the next. */
typedef struct source {
    const u32 *at;
    u32 stride;
} source;

static inline source source_of(const batch *b, u32 from)
{
    if (from & EG_BUILT)
        return (source){b->made_class[from & ~EG_BUILT], 1};
    return (source){b->rows + from, b->width};
}

static const u32 *kid_nodes(const batch *b, const eg_make *mk, u32 j, u32 out[4])
{
    const eg_rule *rule = b->rule;
    const u32 *row = row_of(b, j);
    for (u32 i = 0; i < mk->arity; i++)
        out[i] = mk->from[i] & EG_BUILT
                     ? b->made_node[mk->from[i] & ~EG_BUILT][j]
                     : eg_site_node(b->r->g, rule, row + rule->nsave + 1, row[rule->nsave],
                                    mk->var[i]);
    return out;
}

/* The root's e-node n of match j is in another class, or new in its own: why. */
static void link_root(batch *b, u32 j, u32 n)
{
    const eg_rule *rule = b->rule;
    eg *g = b->r->g;
    const u32 *row = row_of(b, j);
    match m = {.values = row, .nodes = row + rule->nsave + 1, .swaps = row[rule->nsave],
               .built_swaps = b->built_swaps[j]};
    for (u32 k = 0; k < rule->nbuilt; k++)
        m.built[k] = b->made_node[k][j];
    u32 left = eg_site_node(g, rule, m.nodes, m.swaps, rule->right.at[0].var);
    eg_link(g, left, n, rule_row(g, b->state, rule, 0, &m));
}

/* What e-node `mk` of all matches of the batch can need. */
static bool reserve(batch *b, const eg_make *mk, bool root)
{
    eg *g = b->r->g;
    if (!eg_reserve(g, mk->op, mk->arity, b->n))
        return false;
    if (!root)
        return true;
    return eg_union_reserve_n(g, b->n) &&
           (!g->options.explain ||
            eg_vec_room(g, &g->rows,
                        b->n * (8 + (u32)b->rule->atoms.n + b->rule->nbuilt)));
}

/* The children of match j and what their parent words say, found anew; their hash. */
static __attribute__((noinline)) u32 follow_kids(batch *b, u32 j, u32 head, u32 arity,
                                                 bool commutative)
{
    eg *g = b->r->g;
    u32 kids[4];
    for (u32 i = 0; i < arity; i++) {
        kids[i] = b->kid[i][j] = eg_find_halving(g, b->kid[i][j]);
        b->place[i][j] = g->parent[kids[i]];
    }
    return b->hash[j] = key_hash(head, arity, kids, commutative);
}

/* The keys of all matches; their slots are fetched. */
static inline __attribute__((always_inline)) void find_keys(batch *b, const eg_make *mk,
                                                            const u32 arity,
                                                            const bool commutative)
{
    const eg *g = b->r->g;
    const u32 head = mk->head, n = b->n, mask = g->slot_mask;
    const u32 *const parent = g->parent;
    const u64 *const slot = g->slot;
    source from[4];
    for (u32 i = 0; i < arity; i++)
        from[i] = source_of(b, mk->from[i]);
    for (u32 j = 0; j < n; j++) {
        u32 kids[4], all = EG_BODY;
        for (u32 i = 0; i < arity; i++) {
            u32 c = kids[i] = b->kid[i][j] = *from[i].at;
            all &= b->place[i][j] = parent[c];
            from[i].at += from[i].stride;
        }
        u32 hash = b->hash[j] = key_hash(head, arity, kids, commutative);
        if (UNLIKELY(!all)) /* one is not canonical */
            hash = follow_kids(b, j, head, arity, commutative);
        __builtin_prefetch(&slot[hash & mask]);
    }
}

/* Where these keys are or would be; what the next step touches is fetched. */
static inline __attribute__((always_inline)) void find_slots(batch *b, const u32 arity)
{
    const eg *g = b->r->g;
    const u32 n = b->n, mask = g->slot_mask;
    const u64 *const slot = g->slot;
    char *const *const chunk = g->seg[arity].chunk;
    for (u32 j = 0; j < n; j++) {
        const u32 hash = b->hash[j], at = seek(slot, mask, hash & mask, hash), found = (u32)slot[at];
        b->at[j] = at;
        if (found) {
            b->rec[j] = found >> 29 == arity ? rec_of_arity(chunk, found, arity) : NULL;
            __builtin_prefetch(b->rec[j]);
            continue;
        }
        b->rec[j] = NULL;
        for (u32 i = 0; i < arity; i++) /* a new e-node joins lists */
            __builtin_prefetch(eg_body_at(g, b->place[i][j] & ~EG_BODY), 1);
    }
}

/* New e-nodes of a batch, of one operator: where the next ones go. Told to the e-graph at the end, and
 * before a union. */
typedef struct fresh {
    eg_col *records;
    eg_log *log, *classes;
    u32 n; /* so far */
} fresh;

static inline void tell(batch *b, fresh *f, bool with_classes)
{
    eg *g = b->r->g;
    const u32 n = f->n;
    f->records->n += n;
    f->log->n += n;
    f->log->alive += n;
    f->log->visible += n;
    g->alive += n;
    g->visible += n;
    g->slot_used += n;
    if (with_classes) {
        u32 used_again = MIN(n, g->free_bodies.n);
        g->free_bodies.n -= used_again;
        g->body.n += n - used_again;
        g->class_ids += n;
        g->nclasses += n;
        f->classes->n += n;
    }
    b->made += n;
    if (!with_classes)
        b->applied += n;
    f->n = 0;
}

/* The class of the next new e-node. *place: of its body. */
static inline __attribute__((always_inline)) u32 fresh_class(eg *g, const fresh *f, u32 *place)
{
    const u32 n = f->n, c = g->class_ids + n, spare = g->free_bodies.n;
    const u32 body = spare > n ? g->free_bodies.at[spare - 1 - n] : g->body.n + n - spare;
    *eg_body_at(g, body) = (eg_body){.self = c, .stamp = g->now << 2};
    *place = g->parent[c] = EG_BODY | body;
    f->classes->at[f->classes->n + n] = c;
    return c;
}

/* Stores the e-node of match j, which is absent, in class c as eg_insert does, where nothing else has to
 * know of it. place: of the body of the class. */
static inline __attribute__((always_inline)) u32 insert(const batch *b, u32 j, fresh *f, u32 op,
                                                        u32 head, const u32 arity, u32 c, u32 place)
{
    eg *g = b->r->g;
    const u32 i = f->records->n + f->n, n = arity << 29 | i;
    eg_body *body = eg_body_at(g, place & ~EG_BODY);
    u32 *rec = rec_of_arity(f->records->chunk, i, arity);
    join_class(g, body, op, n, rec, head, c);
    for (u32 k = 0; k < arity; k++) {
        eg_body *kid = eg_body_at(g, b->place[k][j] & ~EG_BODY);
        rec[N_KIDS + 2 * k] = b->kid[k][j];
        rec[N_KIDS + 2 * k + 1] = kid->uses;
        kid->uses = arity << 29 | (i * arity + k);
        kid->nuses++;
    }
    f->log->at[f->log->n + f->n] = n;
    f->n++;
    return n;
}

/* E-node k of the right side for all matches. */
static inline __attribute__((always_inline)) bool make_all(batch *b, u32 k, const u32 arity,
                                                           const bool commutative,
                                                           const bool root, const bool explain,
                                                           const bool plain)
{
    run *r = b->r;
    eg *g = r->g;
    const eg_make *mk = &b->rule->make[k];
    const u32 head = mk->head, op = mk->op, n = b->n, unions = g->unions;
    if (UNLIKELY(!reserve(b, mk, root)))
        return false;
    find_keys(b, mk, arity, commutative);
    find_slots(b, arity);
    fresh f = {&g->seg[arity], &g->log[op], &g->log[EG_OP_CLASSES], 0};
    u32 mask = g->slot_mask;
    u64 *slot = g->slot;
    char *const *const chunk = g->seg[arity].chunk;
    const u32 *const parent = g->parent;
    const u32 *root_at = b->rows;
    const u32 width = b->width;
    for (u32 j = 0; j < n; j++) {
        const u32 target = root ? canonical(g, parent, *root_at) : 0;
        if (root)
            root_at += width;
        u32 kids[4], hash = b->hash[j], where = b->at[j], node = 0;
        const u32 *rec = b->rec[j];
        if (root && UNLIKELY(g->unions != unions)) { /* a union came between */
            hash = follow_kids(b, j, head, arity, commutative);
            where = hash & mask;
        }
        for (u32 i = 0; i < arity; i++)
            kids[i] = b->kid[i][j];
        if (explain) {
            node = probe(g, slot, mask, hash, head, arity, kids, commutative, &where);
            rec = node ? rec_of_arity(chunk, node, arity) : NULL;
        } else if (!rec || !has_key(rec, head, arity, kids, commutative)) {
            rec = slot[where]
                      ? find_rec(chunk, slot, mask, hash, head, arity, kids, commutative, &where)
                      : NULL;
        }
        if (rec) {
            const u32 c = rec[N_CLASS];
            if (explain) {
                b->made_node[k][j] = node;
                if (commutative && rec[N_KIDS] != rec[N_KIDS + 2] && rec[N_KIDS] != kids[0])
                    b->built_swaps[j] |= 1u << k;
            }
            if (!root) {
                b->made_class[k][j] = c;
            } else if (UNLIKELY(c != target)) {
                if (explain)
                    link_root(b, j, node);
                tell(b, &f, false);
                eg_union(g, target, c);
                g->rule[b->state].stats.unions++;
                b->applied++;
                r->changed = true;
                /* what the union logged took of the room */
                if (UNLIKELY(!log_ready(g, op, n) || !log_ready(g, EG_OP_CLASSES, n)) &&
                    !eg_reserve(g, op, arity, n))
                    return false;
                slot = g->slot;
                mask = g->slot_mask;
            }
            continue;
        }
        if (plain) {
            u32 home = root ? parent[target] : 0, c = root ? target : fresh_class(g, &f, &home);
            node = insert(b, j, &f, op, head, arity, c, home);
            slot[where] = (u64)hash << 32 | node;
            if (!root)
                b->made_class[k][j] = c;
            continue;
        }
        u32 nodes[4];
        node = eg_insert(g, op, head, arity, kids,
                         explain ? kid_nodes(b, mk, j, nodes) : NULL, hash, where, target);
        b->made++;
        if (!root)
            b->made_class[k][j] = rec_of_arity(chunk, node, arity)[N_CLASS];
        else
            b->applied++;
        if (explain) {
            b->made_node[k][j] = node;
            if (root)
                link_root(b, j, node);
        }
    }
    tell(b, &f, !root);
    return true;
}

/* `plain`: nothing is explained, there is no analysis. */
static inline __attribute__((always_inline)) bool make_any(batch *b, u32 k, bool root,
                                                           const bool explain, const bool plain)
{
    const eg_make *mk = &b->rule->make[k];
    if (mk->arity == 2 && !mk->commutative)
        return root ? make_all(b, k, 2, false, true, explain, plain)
                    : make_all(b, k, 2, false, false, explain, plain);
    if (mk->arity == 1)
        return root ? make_all(b, k, 1, false, true, explain, plain)
                    : make_all(b, k, 1, false, false, explain, plain);
    return make_all(b, k, mk->arity, mk->arity == 2 && mk->commutative, root, explain, plain);
}

static void apply_batch(batch *b)
{
    const eg_rule *rule = b->rule;
    run *r = b->r;
    eg *g = r->g;
    bool explain = g->options.explain, ok = true;
    b->made = b->applied = 0;
    if (explain)
        memset(b->built_swaps, 0, sizeof b->built_swaps);
    for (u32 k = 0; k < rule->nbuilt && ok; k++) {
        bool root = k + 1 == rule->nbuilt;
        ok = explain         ? make_any(b, k, root, true, false)
             : g->nanalyses ? make_any(b, k, root, false, false)
                            : make_any(b, k, root, false, true);
    }
    g->rule[b->state].stats.nodes += b->made;
    g->rule[b->state].stats.applied += b->applied;
    r->changed |= b->made > 0;
    if (!ok)
        eg_stop_for_memory(r);
}

/* ---- all matches of a rule ----------------------------------------------------------------- */

static void apply_one(run *r, u32 i, const u32 *row)
{
    const eg_rule *rule = r->rules[i];
    match m = {.values = row, .nodes = row + rule->nsave + 1};
    m.swaps = r->matches[i].width > rule->nsave ? row[rule->nsave] : 0;
    u32 alive = r->g->alive;
    if (apply_match(r, rule, r->state[i], &m) || r->g->alive != alive)
        r->changed = true;
}

/* Matches that a batch may take: near the node limit they go one by one, so that it is passed by one
 * right side at most. */
static u32 batch_size(const batch *b)
{
    const eg *g = b->r->g;
    i64 max = g->options.limits.nodes;
    return max < 0 || g->visible + BATCH * (i64)b->rule->nbuilt <= max ? BATCH : 0;
}

static bool go_on(run *r, i64 *ticks)
{
    const eg *g = r->g;
    i64 max_nodes = g->options.limits.nodes;
    if (max_nodes >= 0 && g->visible > max_nodes)
        eg_stop_for(r, EQF_STOP_NODES);
    if (UNLIKELY((++*ticks & 31) == 0))
        eg_poll(r);
    return !r->stopping;
}

/* The rows of a block; those whose guards fail are squeezed out, batch by batch. */
static void apply_block(batch *b, u32 i, eg_block *block, bool batches, i64 *ticks)
{
    run *r = b->r;
    const eg_rule *rule = b->rule;
    u32 width = b->width;
    for (u32 k = 0, rows = block->used / width; k < rows;) {
        if (!go_on(r, ticks))
            return;
        u32 *row = block->at + (size_t)k * width, most = batches ? MIN(batch_size(b), rows - k) : 0;
        if (!most) {
            if (!rule->guards.n || guards_hold(r->g, rule, row))
                apply_one(r, i, row);
            k++;
            continue;
        }
        k += most;
        b->rows = row;
        b->n = most;
        if (rule->guards.n) {
            b->n = 0;
            for (u32 j = 0; j < most; j++) {
                if (guards_hold(r->g, rule, row + j * width)) {
                    memmove(row + b->n * width, row + j * width, 4 * (size_t)width);
                    b->n++;
                }
            }
        }
        if (b->n)
            apply_batch(b);
    }
}

void eg_apply(run *r, u32 i)
{
    eg *g = r->g;
    eg_matches *ms = &r->matches[i];
    i64 ticks = 0;
    batch b;
    b.r = r;
    b.rule = r->rules[i];
    b.state = r->state[i];
    b.width = ms->width;
    /* a guard may read data that the match before has changed */
    bool batches = b.rule->make && !g->marks && !(g->nanalyses && b.rule->guards.n);
    g->rule_name = b.rule->name;
    /* each block is given back when it is done: what is added next takes its place */
    for (eg_block *block; (block = ms->first) != NULL && !r->stopping; eg_matches_drop(g, ms))
        apply_block(&b, i, block, batches, &ticks);
    if (r->stopping)
        r->cut[i] = 1;
    g->rule_name = NULL;
}
