/* Algorithm 1 on e-nodes, for comparison and for small programs (--order paper): for each class that is
 * needed an e-node, whatever operators it is made of.
 *
 * A state has an e-node for some classes and holes for others that these need. The first hole in depth-first
 * order is filled by each of its e-nodes; one that has a single choice is filled without making a state.
 * Operands are unsorted, as in an e-graph with a rule for commutativity: an e-node of a commutative
 * operator over two classes is two choices.
 *
 * The key of a state is its canonical expression from the outputs, commutative operands sorted, holes named
 * by class, and the same of each class with an e-node that some hole can reach: all that completions can
 * notice, which holes lie below which class among it. EX_EARLY leaves out a state whose key was seen,
 * EX_AFTER builds every selection and keeps one a key, EX_NONE every one. Nothing is stored but what is
 * known to be; whether what may be is stored is tried in the end.       (paper §5, Algorithm 1) */
#include "extract/impl.h"

enum { MOST_PLACES = 1 << 13, MOST_EXPANDED = 1 << 22, MOST_KEYS = 1 << 20, MOST_DEPTH = 4000, POLLED = 64 };

typedef struct key {
    u64 at[2];
} key;

/* An e-node to fill a hole with; swapped: its operands change places. */
typedef struct choice {
    i64 node;
    bool swapped;
} choice;
typedef VEC(choice) choice_list;

typedef struct selecting {
    ex_space *s;
    ex_ranking *q;
    arena *a;
    ex_mode mode;
    ex_counts *counts;
    choice_list *choices; /* by place */
    u64 *reach;           /* by place, `words` of bits: what its e-nodes can need */
    i64 words;
    choice *chosen; /* by place; node -1: a hole, or not needed */
    key *keys;      /* what was seen: an open table */
    i64 key_count, key_capacity;
    /* of one look at a state */
    key *hash; /* by place */
    u32 *mark, now;
    i64 selections, distinct;
    bool is_cut_short;
} selecting;

/* ---- what can be chosen ----------------------------------------------------------------------- */

static bool is_leaf(const selecting *x, i64 place)
{
    u8 kind = rl_graph_type(x->s->g, x->s->r->classes[place]).kind;
    return x->s->r->is_given[place] || kind == IR_A_LAMBDA || kind == IR_A_REDUCER;
}

/* Is operand k something that the e-node needs? The result of a loop is named by its component, which is
 * in the loop; the running result of one is there. */
static bool is_needed(const rl_enode *n, i64 k)
{
    return n->label.op != IR_run && !(n->label.op == IR_get && k == 1);
}

static bool is_choice(const selecting *x, const rl_enode *n)
{
    u8 kind = rl_graph_type(x->s->g, x->s->r->classes[n->place]).kind;
    if (kind == IR_A_BUNDLE)
        return n->label.op == IR_loop;
    if (kind == IR_A_COMPONENT)
        return n->label.op == IR_comp;
    return n->is_usable && n->label.op != IR_comb;
}

/* Classes with no finished form are no operands. */
static bool *find_finished(const selecting *x)
{
    const rl_reach *r = x->s->r;
    bool *finished = NEW_N(x->a, bool, r->n);
    for (i64 k = 0; k < r->n; k++)
        finished[k] = is_leaf(x, k);
    for (bool more = true; more;) {
        more = false;
        for (i64 i = 0; i < r->nodes.n; i++) {
            const rl_enode *n = &r->nodes.at[i];
            bool all = !finished[n->place] && is_choice(x, n);
            for (i64 k = 0; k < n->arity && all; k++)
                all = !is_needed(n, k) || finished[n->kids[k]];
            finished[n->place] |= all;
            more |= all;
        }
    }
    return finished;
}

static void find_choices(selecting *x)
{
    const rl_reach *r = x->s->r;
    const bool *finished = find_finished(x);
    x->choices = NEW_N(x->a, choice_list, r->n);
    x->words = (r->n + 63) / 64;
    x->reach = NEW_N(x->a, u64, r->n * x->words);
    for (i64 i = 0; i < r->nodes.n; i++) {
        const rl_enode *n = &r->nodes.at[i];
        bool all = !is_leaf(x, n->place) && is_choice(x, n);
        for (i64 k = 0; k < n->arity && all; k++)
            all = !is_needed(n, k) || finished[n->kids[k]];
        if (!all)
            continue;
        vec_push(x->a, &x->choices[n->place], ((choice){i, false}));
        if (n->is_unordered && n->arity == 2 && n->kids[0] != n->kids[1])
            vec_push(x->a, &x->choices[n->place], ((choice){i, true}));
        for (i64 k = 0; k < n->arity; k++)
            if (is_needed(n, k))
                x->reach[n->place * x->words + n->kids[k] / 64] |= (u64)1 << n->kids[k] % 64;
    }
    for (i64 through = 0; through < r->n && !ex_is_over(x->s); through++) /* transitive closure */
        for (i64 k = 0; k < r->n; k++)
            for (i64 w = 0; w < x->words && (x->reach[k * x->words + through / 64] >> through % 64 & 1); w++)
                x->reach[k * x->words + w] |= x->reach[through * x->words + w];
}

/* ---- keys ------------------------------------------------------------------------------------- */

static key mix(key x, u64 y)
{
    return (key){{hash_u64(x.at[0], y), hash_u64(x.at[1] ^ y, 0x9E3779B97F4A7C15u)}};
}

static bool is_less(const key *x, const key *y)
{
    return x->at[0] != y->at[0] ? x->at[0] < y->at[0] : x->at[1] < y->at[1];
}

/* The canonical expression of a class; selections are acyclic. */
static key hash_of(selecting *x, i64 place)
{
    if (x->mark[place] == x->now)
        return x->hash[place];
    key h = {{(u64)place, 1}};
    const choice *c = &x->chosen[place];
    if (c->node >= 0) {
        const rl_enode *n = &x->s->r->nodes.at[c->node];
        u64 head = eqf_node_head(x->s->g->engine, n->node).i;
        h = (key){{hash_u64(head, 1), hash_u64(head, 2)}};
        key kids[2];
        for (i64 k = 0; k < n->arity; k++) {
            key kid = is_needed(n, k) ? hash_of(x, n->kids[k]) : (key){{n->kids[k], 3}};
            if (n->is_unordered && n->arity == 2)
                kids[k] = kid;
            else
                h = mix(mix(h, kid.at[0]), kid.at[1]);
        }
        for (i64 k = 0; k < 2 && n->is_unordered && n->arity == 2; k++) {
            const key *kid = &kids[is_less(&kids[1], &kids[0]) ? 1 - k : k];
            h = mix(mix(h, kid->at[0]), kid->at[1]);
        }
    }
    x->mark[place] = x->now;
    return x->hash[place] = h;
}

static key key_of(selecting *x, const i64 *holes, i64 n)
{
    const rl_reach *r = x->s->r;
    x->now++;
    key h = {{0, 0}};
    for (i64 i = 0; i < x->s->roots.n; i++) {
        key root = hash_of(x, x->s->roots.at[i]);
        h = mix(mix(h, root.at[0]), root.at[1]);
    }
    for (i64 k = 0; k < r->n; k++) {
        bool can_be_needed = false;
        for (i64 i = 0; i < n && x->chosen[k].node >= 0 && !can_be_needed; i++)
            can_be_needed = x->reach[holes[i] * x->words + k / 64] >> k % 64 & 1;
        if (!can_be_needed)
            continue;
        key own = hash_of(x, k);
        h = mix(mix(mix(h, (u64)k), own.at[0]), own.at[1]);
    }
    return h;
}

/* Puts it in; false when it was there. */
static bool is_new(selecting *x, key k)
{
    if (2 * x->key_count >= x->key_capacity) {
        i64 capacity = MAX(2 * x->key_capacity, 1 << 10);
        key *more = NEW_N(x->a, key, capacity);
        for (i64 i = 0; i < x->key_capacity; i++) {
            u64 at = x->keys[i].at[0];
            for (; (x->keys[i].at[0] | x->keys[i].at[1]) && more[at & (u64)(capacity - 1)].at[1]; at++)
                ;
            if (x->keys[i].at[0] | x->keys[i].at[1])
                more[at & (u64)(capacity - 1)] = x->keys[i];
        }
        x->keys = more;
        x->key_capacity = capacity;
    }
    k.at[1] |= 1; /* 0: no key */
    for (u64 at = k.at[0];; at++) {
        key *slot = &x->keys[at & (u64)(x->key_capacity - 1)];
        if (!slot->at[1]) {
            *slot = k;
            x->key_count++;
            return true;
        }
        if (slot->at[0] == k.at[0] && slot->at[1] == k.at[1])
            return false;
    }
}

/* ---- states ----------------------------------------------------------------------------------- */

/* Adds the holes below a class, each once, in depth-first order of operands. */
static void add_holes(selecting *x, i64 place, i64 *holes, i64 *n)
{
    if (x->mark[place] == x->now || is_leaf(x, place))
        return;
    x->mark[place] = x->now;
    const choice *c = &x->chosen[place];
    if (c->node < 0) {
        holes[(*n)++] = place;
        return;
    }
    const rl_enode *e = &x->s->r->nodes.at[c->node];
    for (i64 k = 0; k < e->arity; k++) {
        i64 operand = c->swapped ? 1 - k : k;
        if (is_needed(e, operand))
            add_holes(x, e->kids[operand], holes, n);
    }
}

/* Can the class be reached from `from` over what is chosen? */
static bool leads_to(selecting *x, i64 from, i64 place)
{
    if (from == place)
        return true;
    if (x->mark[from] == x->now || x->chosen[from].node < 0)
        return false;
    x->mark[from] = x->now;
    const rl_enode *e = &x->s->r->nodes.at[x->chosen[from].node];
    for (i64 k = 0; k < e->arity; k++)
        if (is_needed(e, k) && leads_to(x, e->kids[k], place))
            return true;
    return false;
}

static bool makes_circle(selecting *x, i64 place, choice c)
{
    const rl_enode *e = &x->s->r->nodes.at[c.node];
    x->now++;
    for (i64 k = 0; k < e->arity; k++)
        if (is_needed(e, k) && leads_to(x, e->kids[k], place))
            return true;
    return false;
}

/* A finished one: everything is stored that may be, or nothing, whichever is cheaper. */
static void emit(selecting *x)
{
    x->selections++;
    if (x->mode != EX_EARLY && !is_new(x, key_of(x, NULL, 0)) && x->mode == EX_AFTER)
        return;
    x->distinct++;
    memset(x->q->chosen, 0, (size_t)x->s->r->n * sizeof *x->q->chosen);
    for (i64 k = 0; k < x->s->r->n; k++)
        if (x->chosen[k].node >= 0)
            x->q->chosen[k] = x->s->r->nodes.at[x->chosen[k].node].node;
    ex_turn_to_chosen(x->q);
    u32 all = (1u << x->q->n) - 1;
    ex_consider(x->q, all && ex_price(x->q, all) < ex_price(x->q, 0) ? all : 0);
}

static bool is_over(selecting *x)
{
    bool limited = x->counts->expanded >= MOST_EXPANDED || x->key_count >= MOST_KEYS;
    x->is_cut_short |= limited || (x->counts->expanded % POLLED == 0 && ex_is_over(x->s)) || x->s->is_over;
    return x->is_cut_short;
}

static void expand(selecting *x, i64 depth)
{
    if (is_over(x))
        return;
    if (depth > MOST_DEPTH) {
        x->is_cut_short = true;
        return;
    }
    arena *scratch = arena_child(x->a);
    i64 *holes = NEW_N(scratch, i64, x->s->r->n), n, filled = 0;
    i64 *forced = NEW_N(scratch, i64, x->s->r->n);
    bool fits = true;
    for (bool more = true; more && fits;) { /* holes with one choice */
        n = 0;
        more = false;
        x->now++;
        for (i64 i = 0; i < x->s->roots.n; i++)
            add_holes(x, x->s->roots.at[i], holes, &n);
        for (i64 i = 0; i < n && fits && !more; i++) {
            if (x->choices[holes[i]].n != 1)
                continue;
            choice c = x->choices[holes[i]].at[0];
            fits = !makes_circle(x, holes[i], c);
            x->chosen[holes[i]] = c;
            forced[filled++] = holes[i];
            more = true;
        }
    }
    if (fits && n > 0 && x->mode == EX_EARLY && !is_new(x, key_of(x, holes, n))) {
        x->counts->pruned++;
    } else if (fits && n > 0) {
        i64 place = holes[0];
        x->counts->expanded++;
        for (i64 i = 0; i < x->choices[place].n && !x->is_cut_short; i++) {
            choice c = x->choices[place].at[i];
            if (makes_circle(x, place, c))
                continue;
            x->chosen[place] = c;
            expand(x, depth + 1);
            x->chosen[place].node = -1;
        }
    } else if (fits && (x->mode != EX_EARLY || is_new(x, key_of(x, NULL, 0)))) {
        emit(x);
    } else if (fits) {
        x->counts->pruned++;
    }
    for (i64 i = 0; i < filled; i++)
        x->chosen[forced[i]].node = -1;
    arena_free(scratch);
}

bool ex_select(ex_ranking *q, ex_mode mode, ex_counts *counts, i64 *selections)
{
    ex_space *s = q->s;
    *selections = 0;
    if (s->r->n > MOST_PLACES)
        return false;
    arena *a = arena_child(s->a);
    selecting x = {.s = s, .q = q, .a = a, .mode = mode, .counts = counts};
    find_choices(&x);
    x.chosen = NEW_N(a, choice, s->r->n);
    x.hash = NEW_N(a, key, s->r->n);
    x.mark = NEW_N(a, u32, s->r->n);
    for (i64 k = 0; k < s->r->n; k++)
        x.chosen[k].node = -1;
    if (!s->is_over) /* what holes can reach is known */
        expand(&x, 0);
    x.is_cut_short |= s->is_over;
    *selections = x.distinct;
    bool complete = !x.is_cut_short;
    arena_free(a);
    return complete;
}
