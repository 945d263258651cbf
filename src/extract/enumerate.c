/* Structures: for each class of tiles that is reduced whether it is, and how.
 *
 * A state is what was decided (a way for some reduced classes) and what is still needed; it is expanded
 * by the ways of the first class that is needed times the sets that its body ends at. A finished state
 * is a structure if it can be computed (ex_choose). A structure is *dominated* by one that has some of
 * its reductions, each computed the same way: compaction leaves those that are dominated by none.
 *
 * EX_AFTER goes through every choice and compacts at the end. EX_EARLY leaves out before expansion
 *   - sets of stops that contain others (sets.c),
 *   - a state with the decisions and needs of an earlier one,
 *   - sets that need something new, where one that needs nothing new is sure to do: nothing in it can
 *     need the class itself, by whatever way.
 * Each only leaves out states whose structures are found without or are dominated, so both have the
 * same structures in the end (tests/extract). Suppose S is dominated by none, and take the stops of
 * some acyclic choice for it. Those of a class hold a minimal set, all of S; and a derivation of that
 * set through a class of S by operators would make this class needless, or come before it anyway. So
 * decisions can follow S throughout.                                           (paper §5, Algorithm 1)
 *
 * The best state is the next one: whose reductions are the least work. So where a limit on the number
 * of structures is met the others have more. Ways over one atom's axis are not mixed: what can be
 * rolled over it is, or nothing. That is a choice of the space, not compaction. */
#include "extract/impl.h"

enum { MOST_STATES = 1 << 15, MOST_LOOKED_AT = 1 << 15, FEW = 1024 };

typedef struct state {
    ex_structure chosen;
    ex_set decided, pending;
    f64 bound;  /* work of the reductions that it has or needs: no structure from here has less */
    i64 serial; /* equal bounds: the latest first */
} state;

/* Strings of one length, each once. */
typedef struct known {
    i64 bytes, n, capacity; /* a power of 2, or 0 */
    u8 **at;
} known;

typedef struct search {
    ex_space *s;
    ex_mode mode;
    i64 most, most_looked_at; /* structures; states */
    ex_structures *out;
    ex_counts *counts;
    i64 serial;
    u64 rolled;  /* bit i: over atom i's axis what can be rolled is */
    ex_set *may; /* by reduced class: those that some way of it may need, sooner or later */
    known seen, finished;
    VEC(state *) heap;
    VEC(state *) unused;
} search;

/* ---- what was seen --------------------------------------------------------------------------- */

/* Puts it in; false when it was there. */
static bool is_new(arena *a, known *x, const u8 *key)
{
    if (2 * x->n >= x->capacity) {
        known more = {.bytes = x->bytes, .n = x->n, .capacity = MAX(2 * x->capacity, 256)};
        more.at = NEW_N(a, u8 *, more.capacity);
        for (i64 i = 0; i < x->capacity; i++) {
            u64 at = x->at[i] ? hash_bytes(x->at[i], x->bytes, 0) : 0;
            for (; x->at[i] && more.at[at & (u64)(more.capacity - 1)]; at++)
                ;
            if (x->at[i])
                more.at[at & (u64)(more.capacity - 1)] = x->at[i];
        }
        *x = more;
    }
    u64 at = hash_bytes(key, x->bytes, 0);
    for (;; at++) {
        u8 **slot = &x->at[at & (u64)(x->capacity - 1)];
        if (!*slot) {
            *slot = arena_copy(a, key, x->bytes);
            x->n++;
            return true;
        }
        if (memcmp(*slot, key, (size_t)x->bytes) == 0)
            return false;
    }
}

static bool is_new_state(search *q, const state *x)
{
    i64 n = q->s->reduced.n;
    u8 key[EX_REDUCED + sizeof x->pending];
    memcpy(key, x->chosen.way, (size_t)n);
    memcpy(key + n, &x->pending, sizeof x->pending);
    return is_new(q->s->a, &q->seen, key);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* The least work that computes the class: of the operators right below its reductions. */
static f64 least_work(const ex_space *s, const ex_reduced *x)
{
    const rl_reach *r = s->r;
    f64 least = -1;
    for (i64 w = 0; w < x->ways.n; w++)
        for (i64 i = 0; i < x->ways.at[w].nodes.n; i++) {
            const rl_enode *n = &r->nodes.at[x->ways.at[w].nodes.at[i]];
            if (n->label.op == IR_get) /* the component */
                n = &r->nodes.at[r->first[n->kids[1]]];
            i64 body = n->kids[0];
            for (i64 k = r->first[body]; k < r->first[body + 1]; k++) {
                const rl_enode *b = &r->nodes.at[k];
                f64 flops = ex_is_glue(s, b) ? rl_graph_flops(s->g, b->node) : 0;
                least = least < 0 ? flops : MIN(least, flops);
            }
        }
    return MAX(least, 0);
}

/* Where nothing is left out the order does not matter, and depth first needs the least memory. */
static f64 bound_of(const search *q, const state *x)
{
    const ex_space *s = q->s;
    f64 sum = 0;
    for (i64 i = 0; i < s->reduced.n && q->mode == EX_EARLY; i++)
        if (ex_has(&x->decided, i) || ex_has(&x->pending, i))
            sum += s->reduced.at[i].least_work;
    return sum;
}

/* ---- the states, best first ------------------------------------------------------------------ */

static bool is_better(const state *x, const state *y)
{
    return x->bound != y->bound ? x->bound < y->bound : x->serial > y->serial;
}

static void push(search *q, const state *x)
{
    if (q->mode == EX_EARLY && !is_new_state(q, x)) {
        q->counts->pruned++;
        return;
    }
    if (q->heap.n == MOST_STATES) {
        q->s->is_cut_short = true;
        return;
    }
    state *own = q->unused.n ? q->unused.at[--q->unused.n] : NEW(q->s->a, state);
    *own = *x;
    own->bound = bound_of(q, x);
    own->serial = q->serial++;
    vec_push(q->s->a, &q->heap, own);
    for (i64 i = q->heap.n - 1; i > 0; i = (i - 1) / 2) {
        state **up = &q->heap.at[(i - 1) / 2];
        if (!is_better(own, *up))
            break;
        q->heap.at[i] = *up;
        *up = own;
    }
}

/* Valid until the next push. */
static const state *pop(search *q)
{
    state *best = q->heap.at[0], *last = q->heap.at[--q->heap.n];
    i64 i = 0, n = q->heap.n;
    for (;;) {
        i64 next = 2 * i + 1;
        if (next >= n)
            break;
        if (next + 1 < n && is_better(q->heap.at[next + 1], q->heap.at[next]))
            next++;
        if (!is_better(q->heap.at[next], last))
            break;
        q->heap.at[i] = q->heap.at[next];
        i = next;
    }
    if (n > 0)
        q->heap.at[i] = last;
    vec_push(q->s->a, &q->unused, best);
    return best;
}

/* ---- expansion ------------------------------------------------------------------------------- */

static i64 first_pending(const search *q, const state *x)
{
    for (i64 i = 0; i < q->s->reduced.n; i++)
        if (ex_has(&x->pending, i) && !ex_has(&x->decided, i))
            return i;
    return -1;
}

bool ex_is_asked_for(const ex_reduced *x, const ex_way *w, u64 atoms)
{
    bool rolled = (w->par & atoms) != 0;
    if (w->is_rolled == rolled)
        return true;
    for (i64 i = 0; i < x->ways.n; i++)
        if (x->ways.at[i].par == w->par && x->ways.at[i].is_rolled == rolled)
            return false;
    return true;
}

static void finish(search *q, const ex_structure *x)
{
    if (q->mode != EX_NONE && !is_new(q->s->a, &q->finished, (const u8 *)x->way))
        return;
    vec_push(q->s->a, q->out, *x);
}

/* Does the set need nothing new, and can nothing in it need class k? */
static bool is_sure(const search *q, const ex_set *body, const ex_set *have, i64 k)
{
    if (!ex_within(body, have) || ex_has(body, k))
        return false;
    for (i64 i = 0; i < q->s->reduced.n; i++)
        if (ex_has(body, i) && ex_has(&q->may[i], k))
            return false;
    return true;
}

static void expand(search *q, const state *x)
{
    ex_space *s = q->s;
    i64 k = first_pending(q, x);
    q->counts->expanded++;
    if (k < 0) {
        finish(q, &x->chosen);
        return;
    }
    const ex_reduced *c = &s->reduced.at[k];
    ex_set have = ex_union(&x->decided, &x->pending);
    for (i64 w = c->ways.n - 1; w >= 0; w--) {
        const ex_way *way = &c->ways.at[w];
        if (!ex_is_asked_for(c, way, q->rolled))
            continue;
        bool is_free = false;
        for (i64 i = 0; i < way->bodies.n && q->mode == EX_EARLY; i++)
            is_free |= is_sure(q, &way->bodies.at[i], &have, k);
        for (i64 i = way->bodies.n - 1; i >= 0; i--) {
            const ex_set *body = &way->bodies.at[i];
            if (ex_has(body, k))
                continue;
            if (is_free && !ex_within(body, &have)) {
                q->counts->pruned++;
                continue;
            }
            state next = *x;
            next.chosen.way[k] = (i8)w;
            ex_put(&next.decided, k);
            next.pending = ex_union(&x->pending, body);
            push(q, &next);
        }
    }
}

static void run(search *q)
{
    ex_space *s = q->s;
    ex_sets starts = {0};
    ex_root_sets(s, &starts);
    q->heap.n = 0;
    q->seen = (known){.bytes = s->reduced.n + (i64)sizeof(ex_set)};
    for (i64 i = starts.n - 1; i >= 0; i--) {
        state x = {.pending = starts.at[i]};
        memset(x.chosen.way, -1, sizeof x.chosen.way);
        push(q, &x);
    }
    while (q->heap.n > 0) {
        if (q->out->n >= q->most || q->counts->expanded + q->counts->pruned >= q->most_looked_at ||
            ex_is_over(s)) {
            s->is_cut_short = true;
            return;
        }
        state x = *pop(q);
        expand(q, &x);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void find_may(search *q)
{
    const ex_space *s = q->s;
    i64 n = s->reduced.n;
    q->may = NEW_N(s->a, ex_set, n);
    for (i64 k = 0; k < n; k++)
        for (i64 w = 0; w < s->reduced.at[k].ways.n; w++) {
            const ex_sets *bodies = &s->reduced.at[k].ways.at[w].bodies;
            for (i64 i = 0; i < bodies->n; i++)
                q->may[k] = ex_union(&q->may[k], &bodies->at[i]);
        }
    for (i64 through = 0; through < n; through++) /* transitive closure */
        for (i64 k = 0; k < n; k++)
            if (ex_has(&q->may[k], through))
                q->may[k] = ex_union(&q->may[k], &q->may[through]);
}

u64 ex_rolled_atoms(const ex_space *s)
{
    u64 atoms = 0;
    for (i64 i = 0; i < s->reduced.n; i++)
        for (i64 w = 0; w < s->reduced.at[i].ways.n; w++)
            if (s->reduced.at[i].ways.at[w].is_rolled)
                atoms |= s->reduced.at[i].ways.at[w].par;
    return atoms;
}

/* Everything rolled first, nothing second to last or last; all sets of atoms while they are few. */
i64 ex_list_modes(ex_space *s, u64 atoms, u64 *modes)
{
    i64 n = 0;
    if (__builtin_popcountll(atoms) <= 4) {
        for (u64 mode = atoms;; mode = (mode - 1) & atoms) {
            modes[n++] = mode;
            if (mode == 0)
                return n;
        }
    }
    s->is_cut_short = true;
    modes[n++] = atoms;
    for (u64 left = atoms; left && n < EX_MODES - 1; left &= left - 1)
        modes[n++] = atoms & ~(left & -left);
    modes[n++] = 0;
    return n;
}

void ex_enumerate(ex_space *s, ex_mode mode, i64 most, ex_structures *out, ex_counts *counts)
{
    search q = {.s = s, .mode = mode, .out = out, .counts = counts};
    q.finished.bytes = s->reduced.n;
    for (i64 i = 0; i < s->reduced.n; i++) {
        ex_reduced *x = &s->reduced.at[i];
        x->least_work = least_work(s, x);
        for (i64 w = 0; w < x->ways.n; w++)
            for (i64 k = 0; k < x->ways.at[w].nodes.n; k++)
                ex_body_sets(s, &s->r->nodes.at[x->ways.at[w].nodes.at[k]], &x->ways.at[w].bodies);
    }
    find_may(&q);
    u64 modes[EX_MODES];
    i64 n = ex_list_modes(s, ex_rolled_atoms(s), modes), share = MAX(most / n, 1);
    for (i64 i = 0; i < n && out->n < most && !s->is_over; i++) { /* each gets a share */
        q.rolled = modes[i];
        q.most = MIN(most, out->n + share);
        q.most_looked_at = mode == EX_EARLY ? counts->expanded + counts->pruned + MOST_LOOKED_AT / n
                                            : INT64_MAX;
        run(&q);
    }
    if (s->is_over)
        s->is_cut_short = true;
}

/* ---- compaction at the end ------------------------------------------------------------------- */

static ex_set members_of(const ex_structure *x)
{
    ex_set set = {0};
    for (i64 i = 0; i < EX_REDUCED; i++)
        if (x->way[i] >= 0)
            ex_put(&set, i);
    return set;
}

static bool is_part_of(const ex_structure *x, const ex_structure *y)
{
    for (i64 i = 0; i < EX_REDUCED; i++)
        if (x->way[i] >= 0 && x->way[i] != y->way[i])
            return false;
    return true;
}

void ex_compact(ex_space *s, ex_structures *x)
{
    arena *scratch = arena_child(s->a);
    ex_set *members = NEW_N(scratch, ex_set, x->n);
    bool *is_out = NEW_N(scratch, bool, x->n);
    for (i64 i = 0; i < x->n; i++)
        members[i] = members_of(&x->at[i]);
    for (i64 i = 0; i < x->n && (i % 64 || i < FEW || !ex_is_over(s)); i++)
        for (i64 k = 0; k < x->n && !is_out[i]; k++)
            is_out[i] = k != i && ex_within(&members[k], &members[i]) &&
                        !ex_same(&members[k], &members[i]) && is_part_of(&x->at[k], &x->at[i]);
    i64 n = 0;
    for (i64 i = 0; i < x->n; i++)
        if (!is_out[i])
            x->at[n++] = x->at[i];
    x->n = n;
    arena_free(scratch);
}
