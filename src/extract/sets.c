/* Where operators end: for each class of tiles the sets of reduced classes at which the operators above
 * them can stop, one fixpoint. Minimal sets only, or all of them where nothing is to be left out.
 * Minimal ones are at most MOST_STOPS a class, the smallest: that is a limit, and said. */
#include "extract/impl.h"

enum { MOST_STOPS = 64, MOST_OF_ALL = 512 };

bool ex_has(const ex_set *s, i64 i)
{
    return s->at[i >> 6] >> (i & 63) & 1;
}

void ex_put(ex_set *s, i64 i)
{
    s->at[i >> 6] |= (u64)1 << (i & 63);
}

bool ex_within(const ex_set *x, const ex_set *y)
{
    for (i64 w = 0; w < EX_WORDS; w++)
        if (x->at[w] & ~y->at[w])
            return false;
    return true;
}

bool ex_same(const ex_set *x, const ex_set *y)
{
    return memcmp(x, y, sizeof *x) == 0;
}

ex_set ex_union(const ex_set *x, const ex_set *y)
{
    ex_set out;
    for (i64 w = 0; w < EX_WORDS; w++)
        out.at[w] = x->at[w] | y->at[w];
    return out;
}

static i64 count(const ex_set *x)
{
    i64 n = 0;
    for (i64 w = 0; w < EX_WORDS; w++)
        n += __builtin_popcountll(x->at[w]);
    return n;
}

/* Smaller sets first, then by their members. */
static int compare(const ex_set *x, const ex_set *y)
{
    i64 a = count(x), b = count(y);
    if (a != b)
        return a < b ? -1 : 1;
    for (i64 w = 0; w < EX_WORDS; w++)
        if (x->at[w] != y->at[w])
            return x->at[w] < y->at[w] ? -1 : 1;
    return 0;
}

bool ex_is_over(ex_space *s)
{
    if (!s->is_over && s->options->is_over)
        s->is_over = s->options->is_over(s->options->user);
    return s->is_over;
}

/* Keeps the list sorted, and minimal where the space is; was it new? */
static bool insert(ex_space *s, ex_sets *list, const ex_set *x)
{
    i64 n = 0, most = s->has_all ? MOST_OF_ALL : MOST_STOPS;
    for (i64 i = 0; i < list->n; i++)
        if (s->has_all ? ex_same(&list->at[i], x) : ex_within(&list->at[i], x))
            return false;
    for (i64 i = 0; i < list->n; i++)
        if (s->has_all || !ex_within(x, &list->at[i]))
            list->at[n++] = list->at[i];
    list->n = n;
    i64 at = n;
    while (at > 0 && compare(x, &list->at[at - 1]) < 0)
        at--;
    s->is_cut_short |= n >= most;
    if (at >= most)
        return false;
    vec_push(s->a, list, *x);
    for (i64 i = list->n - 1; i > at; i--)
        list->at[i] = list->at[i - 1];
    list->at[at] = *x;
    list->n = MIN(list->n, most);
    return true;
}

/* Every union of one set from each. */
static void multiply(ex_space *s, ex_sets *x, const ex_sets *y)
{
    ex_sets out = {0};
    for (i64 i = 0; i < x->n && !ex_is_over(s); i++)
        for (i64 k = 0; k < y->n; k++) {
            ex_set both = ex_union(&x->at[i], &y->at[k]);
            insert(s, &out, &both);
        }
    *x = out;
}

/* ---- the space ------------------------------------------------------------------------------- */

bool ex_is_glue(const ex_space *s, const rl_enode *n)
{
    (void)s;
    if (!n->is_usable || n->label.op == IR_comb)
        return false;
    switch (n->label.op) {
    case IR_NO_OP:
    case IR_run:
        return true;
    case IR_loop:
    case IR_comp:
    case IR_get:
    case IR_collection:
    case IR_tuple:
        return false;
    case IR_reduce:
        return n->label.par == 0;
    default:
        return true;
    }
}

static bool is_reduction(const rl_enode *n)
{
    return n->is_usable && ((n->label.op == IR_reduce && n->label.par) || n->label.op == IR_get);
}

static bool is_given(const ex_space *s, i64 place)
{
    return s->r->is_given[place];
}

static void bodies_of_loop(ex_space *s, i64 loop, ex_sets *out)
{
    const rl_reach *r = s->r;
    for (i64 i = r->first[loop]; i < r->first[loop + 1]; i++) {
        const rl_enode *l = &r->nodes.at[i];
        if (l->label.op != IR_loop)
            continue;
        ex_sets all = {0};
        ex_set none = {0};
        vec_push(s->a, &all, none);
        for (i64 k = 0; k < l->arity; k++) {
            ex_sets some = {0};
            for (i64 j = r->first[l->kids[k]]; j < r->first[l->kids[k] + 1]; j++) {
                const rl_enode *c = &r->nodes.at[j];
                if (c->label.op != IR_comp)
                    continue;
                ex_sets one = {0};
                vec_push(s->a, &one, none);
                for (i64 q = 0; q < c->arity; q++)
                    if (rl_graph_type(s->g, r->classes[c->kids[q]]).kind == IR_A_VALUE)
                        multiply(s, &one, &s->stops[c->kids[q]]);
                for (i64 q = 0; q < one.n; q++)
                    insert(s, &some, &one.at[q]);
            }
            multiply(s, &all, &some);
        }
        for (i64 k = 0; k < all.n; k++)
            insert(s, out, &all.at[k]);
    }
}

void ex_body_sets(ex_space *s, const rl_enode *n, ex_sets *out)
{
    if (n->label.op == IR_get) {
        bodies_of_loop(s, n->kids[0], out);
        return;
    }
    const ex_sets *body = &s->stops[n->kids[0]];
    for (i64 i = 0; i < body->n; i++)
        insert(s, out, &body->at[i]);
}

static bool grow(ex_space *s, i64 place)
{
    const rl_reach *r = s->r;
    bool any = false;
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!ex_is_glue(s, n))
            continue;
        ex_sets all = {0};
        ex_set none = {0};
        vec_push(s->a, &all, none);
        for (i64 k = 0; k < n->arity && n->label.op != IR_run; k++)
            if (rl_graph_type(s->g, r->classes[n->kids[k]]).kind == IR_A_VALUE)
                multiply(s, &all, &s->stops[n->kids[k]]);
        for (i64 k = 0; k < all.n; k++)
            any |= insert(s, &s->stops[place], &all.at[k]);
    }
    return any;
}

static void find_stops(ex_space *s)
{
    s->stops = NEW_N(s->a, ex_sets, s->r->n);
    for (i64 k = 0; k < s->r->n; k++) {
        ex_set one = {0};
        if (s->number[k])
            ex_put(&one, s->number[k] - 1);
        if (s->number[k] || is_given(s, k))
            insert(s, &s->stops[k], &one);
    }
    for (bool more = true; more;) {
        more = false;
        for (i64 k = 0; k < s->r->n && !ex_is_over(s); k++)
            if (!is_given(s, k))
                more |= grow(s, k);
    }
}

static ex_way *way_of(ex_space *s, ex_reduced *x, u64 par, bool is_rolled)
{
    for (i64 i = 0; i < x->ways.n; i++)
        if (x->ways.at[i].par == par && x->ways.at[i].is_rolled == is_rolled)
            return &x->ways.at[i];
    vec_push(s->a, &x->ways, ((ex_way){.par = par, .is_rolled = is_rolled}));
    return &x->ways.at[x->ways.n - 1];
}

/* The axes of the loop that a component is taken from. */
static u64 par_of(const ex_space *s, const rl_enode *n)
{
    if (n->label.op != IR_get)
        return n->label.par;
    return rl_graph_type(s->g, s->r->classes[n->kids[0]]).dims;
}

/* Does no component of the loop use the results of others so far? */
static bool is_plain_loop(const ex_space *s, i64 loop)
{
    const rl_reach *r = s->r;
    for (i64 i = r->first[loop]; i < r->first[loop + 1]; i++)
        for (i64 k = 0; k < r->nodes.at[i].arity; k++) {
            i64 comp = r->nodes.at[i].kids[k];
            for (i64 j = r->first[comp]; j < r->first[comp + 1]; j++)
                if (r->nodes.at[j].arity != 1)
                    return false;
        }
    return true;
}

/* Is it a result of a loop in which each reduces by itself, and its class holds that reduction? Kernels
 * merge loops as they can, so it is the same, but where the loop leaves tiles out. */
static bool is_said_plainly(const ex_space *s, const rl_enode *n)
{
    const rl_reach *r = s->r;
    if (n->label.op != IR_get || !is_plain_loop(s, n->kids[0]))
        return false;
    for (i64 i = r->first[n->place]; i < r->first[n->place + 1]; i++) {
        const rl_enode *x = &r->nodes.at[i];
        if (is_reduction(x) && x->label.op == IR_reduce && x->label.par == par_of(s, n))
            return true;
    }
    return false;
}

static bool leaves_out(const ex_space *s, i64 loop)
{
    const rl_reach *r = s->r;
    const rl_graph *g = s->g;
    for (i64 i = r->first[loop]; i < r->first[loop + 1]; i++) {
        u32 payload = eqf_head_payload(g->lang, eqf_node_head(g->engine, r->nodes.at[i].node));
        if (r->nodes.at[i].label.op == IR_loop && g->payloads.at[payload].attr.ints.n > 0)
            return true;
    }
    return false;
}

static void find_reduced(ex_space *s)
{
    const rl_reach *r = s->r;
    s->number = NEW_N(s->a, i64, r->n);
    for (i64 i = 0; i < r->nodes.n; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (!is_reduction(n) || is_given(s, n->place))
            continue;
        bool is_plain = is_said_plainly(s, n);
        if (is_plain && !leaves_out(s, n->kids[0]))
            continue;
        if (!s->number[n->place]) {
            if (s->reduced.n == EX_REDUCED) {
                s->is_cut_short = true;
                continue;
            }
            vec_push(s->a, &s->reduced, (ex_reduced){.place = n->place});
            s->number[n->place] = s->reduced.n;
        }
        ex_reduced *x = &s->reduced.at[s->number[n->place] - 1];
        ex_way *w = way_of(s, x, par_of(s, n), n->label.op == IR_get && !is_plain);
        vec_push(s->a, &w->nodes, i);
    }
}

const rl_enode *ex_comb_of(const ex_space *s, i64 place)
{
    const rl_reach *r = s->r;
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (n->label.op != IR_comb)
            continue;
        rl_type tiles = rl_graph_type(s->g, r->classes[n->kids[0]]);
        if (rl_is_cut(&tiles))
            return n;
    }
    return NULL;
}

i64 ex_tiles_of(const ex_space *s, i64 place)
{
    const rl_reach *r = s->r;
    rl_type t = rl_graph_type(s->g, r->classes[place]);
    if (t.kind == IR_A_VALUE && t.axes == 0 && t.dims == 0)
        return place;
    const rl_enode *comb = ex_comb_of(s, place);
    return comb ? (i64)comb->kids[0] : -1;
}

/* Is an operator with it a kernel of its own? What is looked up is: tiles of it have no kernel. */
static bool is_stop(rl_transfer how)
{
    return how == RL_STOPS || how == RL_GATHERS;
}

const rl_enode *ex_stored_node(const ex_space *s, i64 place)
{
    const rl_enode *best = NULL;
    rl_type t = rl_graph_type(s->g, s->r->classes[place]);
    if (t.kind != IR_A_VALUE || t.axes || (t.facts & (RL_LOAD | RL_CONSTANT)))
        return NULL;
    for (i64 i = s->r->first[place]; i < s->r->first[place + 1]; i++) {
        const rl_enode *n = &s->r->nodes.at[i];
        rl_transfer how = n->label.op == IR_NO_OP ? RL_NO_TRANSFER : rl_transfer_of(n->label.op);
        bool stores = how == RL_GATHERS || ((t.facts & RL_STORED) && how != RL_NO_TRANSFER);
        if (stores && (!best || (is_stop(how) && !is_stop(rl_transfer_of(best->label.op)))))
            best = n;
    }
    return best;
}

/* The tiles of an operand that has to be computed and stored; -1: it is there. */
static i64 operand_tiles(const ex_space *s, const rl_enode *n, i64 q)
{
    rl_type x = rl_graph_type(s->g, s->r->classes[n->kids[q]]);
    return x.facts & (RL_LOAD | RL_CONSTANT) ? -1 : ex_tiles_of(s, n->kids[q]);
}

static void find_roots(ex_space *s)
{
    const ir_program *p = s->g->p;
    for (i64 i = 0; i < p->outputs.n; i++) {
        if (!p->outputs.at[i].term.i)
            continue;
        i64 place = rl_place_of(s->r, rl_graph_class(s->g, p->outputs.at[i].term));
        rl_type t = rl_graph_type(s->g, s->r->classes[place]);
        if (t.facts & (RL_LOAD | RL_CONSTANT))
            continue;
        i64 tiles = ex_tiles_of(s, place);
        if (tiles >= 0)
            vec_push(s->a, &s->roots, tiles);
    }
    /* what operators take that make a stored number is wanted: there is no tile that needs it */
    for (i64 k = 0; k < s->r->n; k++) {
        rl_type t = rl_graph_type(s->g, s->r->classes[k]);
        const rl_enode *n = t.dims ? NULL : ex_stored_node(s, k);
        for (i64 q = 0; n && q < n->arity; q++)
            if (operand_tiles(s, n, q) >= 0)
                vec_push(s->a, &s->roots, operand_tiles(s, n, q));
    }
}

/* The e-node of a whole value that reads another at an index map, NULL: there is none. */
const rl_enode *ex_index_node(const ex_space *s, i64 place)
{
    for (i64 i = s->r->first[place]; i < s->r->first[place + 1]; i++) {
        const rl_enode *n = &s->r->nodes.at[i];
        if (n->label.op != IR_NO_OP && ir_row(n->label.op)->class_ == IR_INDEX && n->arity == 1 &&
            ex_tiles_of(s, n->kids[0]) >= 0)
            return n;
    }
    return NULL;
}

/* A tile of what is read from another value at an index map may be computed as that is; or it is read,
 * and then it ends at the tiles of the other value, which is stored. A tile of what an operator of
 * whole values makes ends at the tiles of all that the operator takes. */
static void read_stored(ex_space *s)
{
    rl_reach *r = s->r;
    for (i64 i = 0; i < r->nodes.n; i++) {
        rl_enode *n = &r->nodes.at[i];
        rl_type t = rl_graph_type(s->g, r->classes[n->place]);
        if (n->label.op == IR_gather && t.axes)
            n->is_usable = false;
        const rl_enode *maker = n->label.op == IR_view ? ex_stored_node(s, n->kids[0]) : NULL;
        if (n->label.op == IR_gather && !t.axes && !t.dims) /* a number has no view */
            maker = n;
        if (maker) {
            u32 *tiles = NEW_N(s->a, u32, maker->arity);
            i64 arity = 0;
            for (i64 q = 0; q < maker->arity; q++)
                if (operand_tiles(s, maker, q) >= 0)
                    tiles[arity++] = (u32)operand_tiles(s, maker, q);
            n->arity = arity;
            n->kids = tiles;
            n->is_usable = true;
            continue;
        }
        if (n->label.op != IR_view || n->is_usable)
            continue;
        const rl_enode *read = ex_index_node(s, n->kids[0]);
        if (!read)
            continue;
        u32 *tiles = NEW(s->a, u32);
        *tiles = (u32)ex_tiles_of(s, read->kids[0]);
        n->kids = tiles;
        n->is_usable = true;
    }
}

/* Depth first, so that one sweep over the e-nodes finds most of what depends on others. */
static void find_order(ex_space *s)
{
    const rl_reach *r = s->r;
    typedef struct frame {
        i64 place, node, kid;
    } frame;
    arena *scratch = arena_child(s->a);
    frame *stack = NEW_N(scratch, frame, r->n + 1);
    bool *seen = NEW_N(scratch, bool, r->n);
    i64 n = 0;
    s->order = NEW_N(s->a, i64, r->nodes.n);
    s->own_cost = NEW_N(s->a, f64, r->nodes.n);
    for (i64 i = 0; i < r->nodes.n; i++)
        s->own_cost[i] = ex_own_cost(s, &r->nodes.at[i]);
    for (i64 root = 0; root < r->n; root++) {
        i64 depth = 0;
        if (!seen[root])
            stack[depth++] = (frame){root, r->first[root], 0};
        seen[root] = true;
        while (depth > 0) {
            frame *f = &stack[depth - 1];
            const rl_enode *x = f->node < r->first[f->place + 1] ? &r->nodes.at[f->node] : NULL;
            if (!x) {
                for (i64 i = r->first[f->place]; i < r->first[f->place + 1]; i++)
                    s->order[n++] = i;
                depth--;
            } else if (f->kid == x->arity) {
                f->node++;
                f->kid = 0;
            } else {
                i64 kid = x->kids[f->kid++];
                if (!seen[kid])
                    stack[depth++] = (frame){kid, r->first[kid], 0};
                seen[kid] = true;
            }
        }
    }
    arena_free(scratch);
}

ex_space *ex_space_new(arena *a, rl_graph *g, const ex_options *options)
{
    ex_space *s = NEW(a, ex_space);
    s->options = options;
    s->has_all = options->mode != EX_EARLY;
    s->a = a;
    s->g = g;
    s->r = rl_reach_new(a, g);
    read_stored(s);
    find_reduced(s);
    find_stops(s);
    find_roots(s);
    find_order(s);
    ex_find_constants(s);
    return s;
}

void ex_root_sets(ex_space *s, ex_sets *out)
{
    ex_set none = {0};
    vec_push(s->a, out, none);
    for (i64 i = 0; i < s->roots.n; i++)
        multiply(s, out, &s->stops[s->roots.at[i]]);
}
