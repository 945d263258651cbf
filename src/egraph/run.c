/* A run: search all rules on the frozen graph, apply all matches in rule order, rebuild; again until
 * a reason to stop. Limits are tested inside search and apply; reaching one leaves a rebuilt graph.
 * The backoff scheduler decides as egg's does (Willsey et al. 2021; egraph.md 6). */
#include <time.h>

#include "egraph/rules.h"

static const char *const stop_names[] = {"saturated", "goal", "iterations", "nodes",
                                         "bytes", "time", "cancelled", "error"};

const char *eqf_stop_name(eqf_stop stop)
{
    return stop_names[stop];
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct run {
    eg *g;
    eg_rule *const *rules;
    u32 nrules;
    const eqf_schedule *sched;
    u32 *state; /* index in g->rule, by rule */
    eg_matches *matches;
    u8 *cut;
    i64 backoff_limit, backoff_ban;
    double started, deadline; /* deadline < 0: none */
    eqf_stop stop;
    bool stopping;
    bool changed; /* in this iteration */
    eqf_status status;
    eqf_run_report report;
} run;

/* ---- limits -------------------------------------------------------------------------------- */

static void stop_for(run *r, eqf_stop why)
{
    if (!r->stopping)
        r->stop = why;
    r->stopping = true;
}

/* Time and the caller's flag; true when the run has to end. */
static bool poll(void *user)
{
    run *r = user;
    const eqf_options *o = &r->g->options;
    if (r->deadline >= 0 && now_s() > r->deadline)
        stop_for(r, EQF_STOP_TIME);
    if (o->cancelled && o->cancelled(o->user))
        stop_for(r, EQF_STOP_CANCELLED);
    return r->stopping;
}

/* What stopped a reservation. */
static void stop_for_memory(run *r)
{
    if (r->g->fail == EQF_E_LIMIT) {
        stop_for(r, EQF_STOP_BYTES);
    } else {
        stop_for(r, EQF_STOP_ERROR);
        r->status = r->g->fail ? r->g->fail : EQF_E_NO_MEMORY;
    }
}

/* ---- rule state ---------------------------------------------------------------------------- */

static bool find_states(run *r)
{
    eg *g = r->g;
    for (u32 i = 0; i < r->nrules; i++) {
        u32 k = i ? r->state[i - 1] + 1 : 0; /* rules tend to come back in the same order */
        if (k >= g->nrules || g->rule[k].serial != r->rules[i]->serial) {
            for (k = 0; k < g->nrules; k++) {
                if (g->rule[k].serial == r->rules[i]->serial)
                    break;
            }
        }
        if (k == g->nrules) {
            if (g->nrules == g->rules_cap) {
                u32 cap = MAX(16, 2 * g->rules_cap);
                eg_rule_state *p =
                    eg_resize(g, g->rule, (i64)sizeof *p * g->rules_cap, (i64)sizeof *p * cap);
                if (!p)
                    return false;
                g->rule = p;
                g->rules_cap = cap;
            }
            g->rule[g->nrules++] =
                (eg_rule_state){.rule = r->rules[i], .serial = r->rules[i]->serial};
        }
        r->state[i] = k;
        g->rule[k].banned_until = g->rule[k].times_banned = 0;
    }
    return true;
}

eqf_rule_stats eqf_rule_statistics(const eqf_egraph *g, const eqf_rules *rules, size_t i)
{
    for (u32 k = 0; k < g->nrules; k++) {
        if (g->rule[k].serial == rules->rules.at[i]->serial)
            return g->rule[k].stats;
    }
    return (eqf_rule_stats){0};
}

/* ---- search -------------------------------------------------------------------------------- */

static void search_rule(run *r, u32 i, i64 iteration)
{
    eg *g = r->g;
    const eg_rule *rule = r->rules[i];
    eg_rule_state *st = &g->rule[r->state[i]];
    bool backoff = r->sched->scheduler == EQF_BACKOFF;
    r->cut[i] = 0;
    if (backoff && iteration < (i64)st->banned_until) {
        r->cut[i] = 1;
        return;
    }
    i64 limit = -1;
    if (backoff)
        limit = r->backoff_limit << MIN(st->times_banned, 40);
    eg_search s = {.g = g, .rule = rule, .watermark = st->watermark,
                   .full = r->sched->match == EQF_MATCH_FULL,
                   .delta_only = r->sched->match == EQF_MATCH_DELTA,
                   .wide = g->options.explain || rule->hide_left,
                   .limit = limit, .out = &r->matches[i], .poll = poll, .poll_user = r};
    eg_search_run(&s);
    st->stats.searches++;
    st->stats.matches += s.found;
    r->report.matches += s.found;
    if (s.failed) {
        if (!r->stopping)
            stop_for_memory(r);
        r->cut[i] = 1;
    } else if (s.cut) {
        eg_matches_free(g, &r->matches[i]);
        i64 ban = r->backoff_ban << MIN(st->times_banned, 20);
        st->banned_until = (u32)MIN(iteration + ban, (i64)UINT32_MAX);
        st->times_banned++;
        st->stats.bans++;
        r->cut[i] = 1;
    }
}

/* ---- apply --------------------------------------------------------------------------------- */

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
    for (u32 v = 0; v < x->rule->nvars && !w[1]; v++) {
        if (x->rule->var_name[v] && !x->rule->var_payload[v] &&
            eg_find(g, x->m->values[x->rule->where[v]]) == c)
            w[1] = eg_site_node(g, x->rule, x->m->nodes, x->m->swaps, v);
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
        stop_for(r, s == EQF_E_LIMIT ? EQF_STOP_BYTES : EQF_STOP_ERROR);
        return g->alive != before;
    }
    u32 root = eg_find(g, m->values[0]), result = out.i ? eg_find(g, out.i) : root;
    if (root == result)
        return g->alive != before;
    if (!eg_union_reserve(g) ||
        (g->options.explain && !link_dynamic(g, rule, state, m, result))) {
        stop_for_memory(r);
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
        stop_for_memory(r);
        return false;
    }
    if (rule->dynamic >= 0) {
        changed = apply_dynamic(r, rule, state, m);
        st->stats.unions += changed;
        st->stats.applied += changed;
        return changed;
    }
    u32 fresh[EG_MAX_VARS]; /* classes of variables that are new on the right */
    u32 fresh_node[EG_MAX_VARS];
    if (UNLIKELY(rule->multi))
        memset(fresh, 0, sizeof fresh);
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
            stop_for_memory(r);
            return changed;
        }
        built b = build(g, rule, side->term, m, target, &is_new);
        if (UNLIKELY(!b.class_id)) {
            stop_for_memory(r);
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
 * on. The order is fixed, so the outcome is. */
enum { BATCH = 24 };

typedef struct batch {
    run *r;
    const eg_rule *rule;
    u32 state, n;
    const u32 *row[BATCH];
    u32 made_class[EG_MAX_BUILT][BATCH], made_node[EG_MAX_BUILT][BATCH];
    u32 built_swaps[BATCH];
    eg_pending pending[BATCH];
} batch;

static void batch_row(batch *b, u32 j, match *m)
{
    const eg_rule *rule = b->rule;
    m->values = b->row[j];
    m->nodes = b->row[j] + rule->nsave + 1;
    m->swaps = b->row[j][rule->nsave];
    m->built_swaps = b->built_swaps[j];
    for (u32 k = 0; k < rule->nbuilt; k++)
        m->built[k] = b->made_node[k][j];
}

static u32 source(const batch *b, u32 from, u32 j)
{
    return from & EG_BUILT ? b->made_class[from & ~EG_BUILT][j] : b->row[j][from];
}

static const u32 *kid_nodes(const batch *b, const eg_make *mk, u32 j, u32 out[4])
{
    const eg_rule *rule = b->rule;
    const u32 *row = b->row[j];
    for (u32 i = 0; i < mk->arity; i++)
        out[i] = mk->from[i] & EG_BUILT
                     ? b->made_node[mk->from[i] & ~EG_BUILT][j]
                     : eg_site_node(b->r->g, rule, row + rule->nsave + 1, row[rule->nsave],
                                    mk->var[i]);
    return out;
}

static void note_swap(batch *b, u32 k, u32 j, const eg_make *mk, u32 n)
{
    const eg *g = b->r->g;
    const u32 *rec = eg_rec(g, n);
    if (mk->arity == 2 && rec[N_KIDS] != rec[N_KIDS + 2] &&
        eg_find(g, rec[N_KIDS]) != b->pending[j].kids[0])
        b->built_swaps[j] |= 1u << k;
}

/* The root's e-node n of match j is new in its class, or found: unite. */
static bool batch_root(batch *b, u32 j, u32 target, u32 n, bool is_new)
{
    run *r = b->r;
    eg *g = r->g;
    u32 c = eg_rec(g, n)[N_CLASS];
    if (!is_new && c == target)
        return false;
    if (g->options.explain) {
        match m;
        batch_row(b, j, &m);
        u32 left = eg_site_node(g, b->rule, m.nodes, m.swaps, b->rule->right.at[0].var);
        eg_link(g, left, n, rule_row(g, b->state, b->rule, 0, &m));
    }
    if (!is_new) {
        eg_union(g, target, c);
        g->rule[b->state].stats.unions++;
    }
    g->rule[b->state].stats.applied++;
    return true;
}

static void apply_batch(batch *b)
{
    run *r = b->r;
    eg *g = r->g;
    const eg_rule *rule = b->rule;
    bool explain = g->options.explain;
    u32 alive = g->alive;
    i64 made = 0;
    memset(b->built_swaps, 0, sizeof b->built_swaps);
    for (u32 k = 0; k < rule->nbuilt; k++) {
        const eg_make *mk = &rule->make[k];
        bool root = k + 1 == rule->nbuilt;
        for (u32 j = 0; j < b->n; j++) {
            eg_pending *p = &b->pending[j];
            p->head = mk->head;
            p->op = mk->op;
            p->arity = mk->arity;
            p->commutative = mk->commutative;
            for (u32 i = 0; i < mk->arity; i++)
                p->kids[i] = source(b, mk->from[i], j);
            eg_prepare(g, p);
        }
        for (u32 j = 0; j < b->n; j++)
            eg_peek(g, &b->pending[j], root ? b->row[j][0] : 0);
        for (u32 j = 0; j < b->n; j++) {
            bool is_new;
            u32 nodes[4], target = root ? eg_find_halving(g, b->row[j][0]) : 0;
            if (UNLIKELY(root && (!eg_union_reserve(g) ||
                                  (explain && !eg_vec_room(g, &g->rows,
                                                           8 + (u32)rule->atoms.n +
                                                               rule->nbuilt))))) {
                stop_for_memory(r);
                return;
            }
            u32 n = eg_commit(g, &b->pending[j], explain ? kid_nodes(b, mk, j, nodes) : NULL,
                              target, &is_new);
            if (UNLIKELY(!n)) {
                stop_for_memory(r);
                r->changed |= g->alive != alive;
                return;
            }
            b->made_node[k][j] = n;
            if (explain && !is_new)
                note_swap(b, k, j, mk, n);
            made += is_new;
            if (!root)
                b->made_class[k][j] = eg_rec(g, n)[N_CLASS];
            else if (batch_root(b, j, target, n, is_new))
                r->changed = true;
        }
    }
    g->rule[b->state].stats.nodes += made;
    r->changed |= g->alive != alive;
}

static void apply_one(run *r, u32 i, const u32 *row)
{
    const eg_rule *rule = r->rules[i];
    match m = {.values = row, .nodes = row + rule->nsave + 1};
    m.swaps = r->matches[i].width > rule->nsave ? row[rule->nsave] : 0;
    u32 alive = r->g->alive;
    if (apply_match(r, rule, r->state[i], &m) || r->g->alive != alive)
        r->changed = true;
}

static void apply_rule(run *r, u32 i)
{
    eg *g = r->g;
    const eg_rule *rule = r->rules[i];
    eg_matches *ms = &r->matches[i];
    i64 max_nodes = g->options.limits.nodes, ticks = 0;
    batch b;
    b.r = r;
    b.rule = rule;
    b.state = r->state[i];
    b.n = 0;
    g->rule_name = rule->name;
    /* each block is given back when it is done: what is added next takes its place */
    for (eg_block *block; (block = ms->first) != NULL && !r->stopping; eg_matches_drop(g, ms)) {
        for (u32 k = 0; k < block->used && !r->stopping; k += ms->width) {
            const u32 *row = block->at + k;
            if (max_nodes >= 0 && g->visible > max_nodes)
                stop_for(r, EQF_STOP_NODES);
            if (UNLIKELY((++ticks & 1023) == 0))
                poll(r);
            if (UNLIKELY(r->stopping))
                break;
            if (rule->guards.n && !guards_hold(g, rule, row))
                continue;
            /* near the node limit one by one, so that it is passed by one right side at most */
            bool near = max_nodes >= 0 &&
                        g->visible + (i64)BATCH * EG_MAX_BUILT > max_nodes;
            if (!rule->make || near) {
                if (b.n) {
                    apply_batch(&b);
                    b.n = 0;
                }
                if (!r->stopping)
                    apply_one(r, i, row);
                continue;
            }
            b.row[b.n++] = row;
            if (b.n == BATCH) {
                apply_batch(&b);
                b.n = 0;
            }
        }
        if (b.n && !r->stopping)
            apply_batch(&b);
        b.n = 0;
    }
    if (r->stopping)
        r->cut[i] = 1;
    g->rule_name = NULL;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static bool banned(const run *r, i64 iteration, i64 *earliest)
{
    *earliest = INT64_MAX;
    for (u32 i = 0; i < r->nrules; i++) {
        i64 until = r->g->rule[r->state[i]].banned_until;
        if (until > iteration)
            *earliest = MIN(*earliest, until);
    }
    return *earliest != INT64_MAX;
}

static void iterate(run *r, i64 iteration)
{
    eg *g = r->g;
    double t0 = now_s();
    r->changed = false;
    for (u32 i = 0; i < r->nrules && !r->stopping; i++)
        search_rule(r, i, iteration);
    double t1 = now_s();
    r->report.search_s += t1 - t0;
    if (r->stopping) { /* nothing applied: every rule keeps its watermark */
        for (u32 i = 0; i < r->nrules; i++)
            eg_matches_free(g, &r->matches[i]);
        return;
    }
    g->now++;
    g->room = 0;
    for (u32 i = 0; i < r->nrules; i++) {
        if (r->matches[i].count)
            apply_rule(r, i);
        else if (r->stopping)
            r->cut[i] = 1;
        if (r->cut[i])
            continue;
        if (g->marks)
            eg_journal_rule(g, r->state[i]);
        g->rule[r->state[i]].watermark = g->now;
    }
    for (u32 i = 0; i < r->nrules; i++)
        eg_matches_free(g, &r->matches[i]);
    double t2 = now_s();
    r->report.apply_s += t2 - t1;
}

static void rebuild(run *r, i64 margin)
{
    eg *g = r->g;
    double t0 = now_s();
    g->options.limits.bytes += margin;
    eqf_status s = eg_rebuild(g);
    g->options.limits.bytes -= margin;
#ifndef NDEBUG
    if (!s)
        s = eqf_check(g);
#endif
    if (s == EQF_E_LIMIT)
        stop_for(r, EQF_STOP_BYTES);
    if (s) {
        stop_for(r, EQF_STOP_ERROR);
        r->status = s;
    }
    r->report.rebuild_s += now_s() - t0;
}

static void loop(run *r, i64 margin)
{
    eg *g = r->g;
    const eqf_limits *limits = &g->options.limits;
    for (i64 it = 0;; it++) {
        r->report.iterations = it;
        if (r->sched->goal && r->sched->goal(r->sched->user, g)) {
            r->stop = EQF_STOP_GOAL;
            return;
        }
        if (limits->iterations >= 0 && it >= limits->iterations) {
            r->stop = EQF_STOP_ITERATIONS;
            return;
        }
        if (limits->nodes >= 0 && g->visible > limits->nodes) {
            r->stop = EQF_STOP_NODES;
            return;
        }
        if (poll(r))
            return;
        iterate(r, it);
        rebuild(r, margin);
        r->report.changed |= r->changed;
        r->report.iterations = it + 1;
        if (r->stopping)
            return;
        if (r->sched->after)
            r->sched->after(r->sched->user, g, it + 1);
        if (r->changed)
            continue;
        i64 earliest;
        if (r->sched->scheduler == EQF_SIMPLE || !banned(r, it, &earliest)) {
            r->stop = EQF_STOP_SATURATED;
            return;
        }
        for (u32 i = 0; i < r->nrules; i++) { /* go straight to the first release */
            eg_rule_state *st = &g->rule[r->state[i]];
            if (st->banned_until > it)
                st->banned_until -= (u32)(earliest - it);
        }
    }
}

eqf_status eg_run(eg *g, eg_rule *const *rules, u32 n, const eqf_schedule *schedule,
                  eqf_run_report *out)
{
    static const eqf_schedule defaults = {0};
    run r = {.g = g, .rules = rules, .nrules = n, .sched = schedule ? schedule : &defaults};
    r.backoff_limit = r.sched->backoff_limit > 0 ? r.sched->backoff_limit : 1000;
    r.backoff_ban = r.sched->backoff_ban > 0 ? r.sched->backoff_ban : 5;
    double t0 = now_s();
    r.started = t0;
    r.deadline = g->options.limits.seconds >= 0 ? t0 + g->options.limits.seconds : -1;
    *out = (eqf_run_report){.stop = EQF_STOP_ERROR};
    i64 size = (i64)(sizeof *r.matches + sizeof *r.state + 1) * MAX(n, 1);
    char *block = eg_resize(g, NULL, 0, size);
    if (!block)
        return eg_failed(g, "starting a run");
    g->scratch_bytes += size;
    memset(block, 0, (size_t)size);
    r.matches = (eg_matches *)block;
    r.state = (u32 *)(block + (i64)sizeof *r.matches * MAX(n, 1));
    r.cut = (u8 *)(r.state + MAX(n, 1));
    /* what a rebuild may need is kept back from search and apply */
    i64 limit = g->options.limits.bytes, margin = limit > 0 ? MIN(limit / 16, 4 << 20) : 0;
    if (find_states(&r)) {
        g->fail = EQF_OK;
        rebuild(&r, 0);
        g->options.limits.bytes -= margin;
        if (!r.stopping)
            loop(&r, margin);
        g->options.limits.bytes += margin;
    } else {
        stop_for_memory(&r);
    }
    double before_trim = now_s();
    eg_trim(g);
    r.report.rebuild_s += now_s() - before_trim;
    r.report.stop = r.stop;
    r.report.total_s = now_s() - t0;
    *out = r.report;
    eg_free(g, block, size);
    g->scratch_bytes -= size;
    if (r.status == EQF_E_CONTRADICTION)
        return eqf_report(g->ctx, r.status, NULL, g->rule_name, "an analysis refuses a union");
    if (r.status == EQF_E_NO_MEMORY)
        return eg_failed(g, "running rules");
    return r.stop == EQF_STOP_BYTES ? EQF_OK : r.status;
}

eqf_status eqf_run(eqf_egraph *g, const eqf_rules *rules, const eqf_schedule *schedule,
                   eqf_run_report *out)
{
    return eg_run(g, rules->rules.at, (u32)rules->rules.n, schedule, out);
}

eqf_status eg_match_count(eg *g, const eg_rule *pattern, u32 in, i64 limit, i64 *out)
{
    *out = 0;
    eqf_status status = eqf_rebuild(g);
    if (status)
        return status;
    eg_search s = {.g = g, .rule = pattern, .full = true, .limit = limit,
                   .in_class = in ? eg_find(g, in) : 0};
    eg_search_run(&s);
    *out = s.found;
    return EQF_OK;
}

eqf_status eqf_match_count(eqf_egraph *g, eqf_text pattern, eqf_class in, int64_t limit,
                           int64_t *out)
{
    *out = 0;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        const sx *all = sx_read(a, NULL, pattern.at, (i64)pattern.n);
        if (all->n != 1)
            sx_throw(g->ctx, NULL, all, "expected one pattern, found %lld", (long long)all->n);
        eqf_status s =
            eg_match_count(g, eg_pattern_read(g->lang, a, NULL, all->at[0]), in.i, limit, out);
        if (s)
            eqf_rethrow(g->ctx, s);
    }
    arena_free(a);
    return t.status;
}
