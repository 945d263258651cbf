/* From a structure to a program. Between the reductions the cheapest operators: least operations,
 * each operand counted where it is used, as the least fixpoint, so that what is chosen is acyclic.
 * Then the terms, with the tiles that are stored combined and cut again, which is what makes a
 * kernel of their own. */
#include <math.h>

#include "extract/impl.h"

#define SHARED 0.1 /* of its cost, for what a structure has anyway */

/* ---- operations ------------------------------------------------------------------------------ */

static f64 elements(const ex_space *s, u64 atoms)
{
    f64 n = 1;
    for (; atoms; atoms &= atoms - 1)
        n *= (f64)s->g->extent[__builtin_ctzll(atoms)];
    return n;
}

/* The position of a bound at the middle of the other axes. */
static f64 middle_of(const rl_graph *g, const i64 *bound, ir_atoms atoms)
{
    f64 at = (f64)bound[0];
    for (i64 i = 0; i < atoms.n; i++)
        at += (f64)bound[1 + i] * (f64)(ir_extent(g->own, atoms.at[i]) - 1) / 2;
    return at;
}

/* Positions that a loop visits, on average: of loops that differ in that alone the shortest is taken. */
static f64 visited(const ex_space *s, const rl_enode *n)
{
    const rl_graph *g = s->g;
    u32 payload = eqf_head_payload(g->lang, eqf_node_head(g->engine, n->node));
    const ir_attr *x = &g->payloads.at[payload].attr;
    f64 extent = elements(s, n->label.par), sum = 0;
    i64 bound = 1 + x->to.n;
    for (i64 i = 0; i < x->ints.n / (2 * bound); i++) {
        f64 low = middle_of(g, x->ints.at + 2 * i * bound, x->to);
        f64 high = middle_of(g, x->ints.at + (2 * i + 1) * bound, x->to);
        sum += MAX(MIN(high, extent) - MAX(low, 0), 0);
    }
    return x->ints.n > 0 ? MIN(sum, extent) : extent;
}

f64 ex_own_cost(const ex_space *s, const rl_enode *n)
{
    u64 all = 0;
    for (i64 i = 0; i < n->arity; i++) {
        rl_type t = rl_graph_type(s->g, s->r->classes[n->kids[i]]);
        if (t.kind == IR_A_VALUE)
            all |= t.dims | t.axes;
    }
    f64 tiny = 1e-3; /* among equals the smaller form */
    if (n->label.op == IR_NO_OP || n->label.op == IR_run || n->label.op == IR_get)
        return tiny;
    switch ((ir_class)ir_row(n->label.op)->class_) {
    case IR_EWISE:
        return tiny + elements(s, all);
    case IR_REDUCE:
        return tiny + elements(s, n->label.par ? n->label.par : all); /* over axes as a loop does */
    case IR_MATMUL:
        return tiny + 2 * elements(s, all);
    case IR_TILED:
        if (n->label.op == IR_loop)
            return tiny + visited(s, n);
        return tiny + (n->label.op == IR_tile_matmul ? 2 * elements(s, all) : 0);
    default:
        return tiny;
    }
}

/* ---- constants --------------------------------------------------------------------------------
 */

/* Of one element that is read. */
static f64 reading(const rl_type *t)
{
    return t->facts & RL_IS_NUMBER ? 0 : EX_READ * (f64)dtype_bytes((dtype)t->dtype);
}

static bool is_iota(const ex_space *s, i64 place)
{
    const rl_reach *r = s->r;
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++) {
        const rl_leaf *leaf = rl_leaf_of(s->g, eqf_node_head(s->g->engine, r->nodes.at[i].node));
        if (leaf && leaf->op == IR_iota)
            return true;
    }
    return false;
}

/* One element of a constant's tile where the e-node makes it; operands with fewer elements are read, or
 * made, for several. */
static f64 making(const ex_space *s, const rl_enode *n, u64 dims, const f64 *cost)
{
    f64 sum = ex_weight(n->label.op);
    for (i64 i = 0; i < n->arity; i++) {
        rl_type x = rl_graph_type(s->g, s->r->classes[n->kids[i]]);
        sum += MIN(cost[n->kids[i]], reading(&x) * elements(s, x.dims) / elements(s, dims));
    }
    return sum;
}

/* By place: does it lie in a half type? What is read and moved does as it was, stored values as the
 * program has them. */
static bool *find_halves(const ex_space *s, arena *a)
{
    const rl_reach *r = s->r;
    bool *half = NEW_N(a, bool, r->n);
    const u8 *stored = rl_stored_dtypes(s->g, a);
    for (i64 k = 0; k < r->n; k++)
        half[k] = stored[r->classes[k].i] != DT_NONE;
    for (bool more = true; more;) {
        more = false;
        for (i64 at = 0; at < r->nodes.n; at++) {
            const rl_enode *n = &r->nodes.at[s->order[at]];
            const rl_leaf *leaf = rl_leaf_of(s->g, eqf_node_head(s->g->engine, n->node));
            u8 class_ = ir_row(n->label.op)->class_;
            bool moves = !leaf && (class_ == IR_INDEX || n->label.op == IR_splitdim || n->label.op == IR_view);
            u8 port = leaf && leaf->op == IR_in ? s->g->p->inputs.at[leaf->input].dtype : DT_NONE;
            bool is_half = port == DT_f16 || port == DT_bf16;
            for (i64 i = 0; moves && i < n->arity; i++)
                is_half = (i == 0 || is_half) && half[n->kids[i]];
            more |= is_half && !half[n->place];
            half[n->place] |= is_half;
        }
    }
    return half;
}

/* What is folded of weights in half types lies in f32: where the weights themselves would do, it costs
 * the bytes that it is longer. */
static void find_folded(ex_space *s)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(s->a);
    const bool *half = find_halves(s, scratch);
    bool any = false;
    s->folded = NEW_N(s->a, f64, r->n);
    for (i64 k = 0; k < r->n; k++)
        any |= half[k] && (rl_graph_type(s->g, r->classes[k]).facts & RL_CONSTANT);
    for (i64 k = 0; k < r->n && any; k++) {
        rl_type t = rl_graph_type(s->g, r->classes[k]);
        if ((t.facts & RL_CONSTANT) && !(t.facts & (RL_IS_NUMBER | RL_INDEX)) && t.dtype == DT_f32 && !half[k])
            s->folded[k] = EX_READ * (f64)(dtype_bytes(DT_f32) - dtype_bytes(DT_bf16)) * elements(s, t.dims);
    }
    arena_free(scratch);
}

/* The least fixpoint. What is made is not smaller than what it is made of, so a circle has one size, in
 * which each costs more than its operands: there is none. */
void ex_find_constants(ex_space *s)
{
    const rl_reach *r = s->r;
    find_folded(s);
    arena *scratch = arena_child(s->a);
    f64 *cost = NEW_N(scratch, f64, r->n);
    bool *is_factor = NEW_N(scratch, bool, r->n); /* of a product: it is packed, which takes memory */
    s->tile = NEW_N(s->a, eqf_node, r->n);
    for (i64 i = 0; i < r->nodes.n; i++) {
        const rl_enode *n = &r->nodes.at[i];
        for (i64 k = 0; k < n->arity && n->label.op == IR_tile_matmul; k++)
            is_factor[n->kids[k]] = true;
        if (n->label.op == IR_view && (rl_graph_type(s->g, r->classes[n->place]).facts & RL_CONSTANT))
            s->tile[n->place] = n->node;
    }
    for (i64 k = 0; k < r->n; k++) {
        rl_type t = rl_graph_type(s->g, r->classes[k]);
        cost[k] = t.kind == IR_A_VALUE ? reading(&t) : 0;
    }
    for (bool more = true; more;) {
        more = false;
        for (i64 at = 0; at < r->nodes.n; at++) {
            const rl_enode *n = &r->nodes.at[s->order[at]];
            rl_type t = rl_graph_type(s->g, r->classes[n->place]);
            bool is_position = n->label.op == IR_view && is_iota(s, n->kids[0]);
            if (!(t.facts & RL_CONSTANT) || !t.dims || t.axes != t.dims || is_factor[n->place] ||
                !(is_position || ir_row(n->label.op)->class_ == IR_EWISE))
                continue;
            f64 sum = is_position ? 1 : making(s, n, t.dims, cost);
            if (sum >= cost[n->place])
                continue;
            cost[n->place] = sum;
            s->tile[n->place] = n->node;
            more = true;
        }
    }
    arena_free(scratch);
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool is_allowed(const ex_space *s, const ex_structure *x, const rl_enode *n)
{
    i64 number = s->number[n->place];
    u8 kind = rl_graph_type(s->g, s->r->classes[n->place]).kind;
    if (kind == IR_A_BUNDLE)
        return n->label.op == IR_loop;
    if (kind == IR_A_COMPONENT)
        return n->label.op == IR_comp;
    if (!number || x->way[number - 1] < 0)
        return ex_is_glue(s, n);
    const ex_way *w = &s->reduced.at[number - 1].ways.at[x->way[number - 1]];
    for (i64 i = 0; i < w->nodes.n; i++)
        if (&s->r->nodes.at[w->nodes.at[i]] == n)
            return true;
    return false;
}

/* Is it there, or no value? */
static bool is_free(const ex_space *s, i64 place)
{
    u8 kind = rl_graph_type(s->g, s->r->classes[place]).kind;
    return s->r->is_given[place] || kind == IR_A_LAMBDA || kind == IR_A_REDUCER;
}

/* What the place needs, itself included, is chosen; false when there is none. */
static bool mark(const ex_space *s, i64 place, const eqf_node *best, eqf_node *chosen)
{
    const rl_reach *r = s->r;
    if (chosen[place].i || is_free(s, place))
        return true;
    if (!best[place].i)
        return false;
    chosen[place] = best[place];
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++) {
        const rl_enode *n = &r->nodes.at[i];
        if (n->node.i != best[place].i)
            continue;
        for (i64 k = 0; k < n->arity; k++)
            if (!mark(s, n->kids[k], best, chosen))
                return false;
    }
    return true;
}

/* The least fixpoint of the cost of each place over the e-nodes that are allowed, and the e-node that has
 * it. `factor`: by place, of its cost where it is used; NULL: 1. */
static void find_cheapest(const ex_space *s, const bool *allowed, const f64 *factor, eqf_node *best)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(s->a);
    f64 *cost = NEW_N(scratch, f64, r->n);
    for (i64 k = 0; k < r->n; k++)
        cost[k] = is_free(s, k) ? s->folded[k] : (f64)INFINITY;
    for (bool more = true; more;) {
        more = false;
        for (i64 at = 0; at < r->nodes.n; at++) {
            i64 i = s->order[at];
            const rl_enode *n = &r->nodes.at[i];
            f64 sum = s->own_cost[i];
            for (i64 k = 0; allowed[i] && k < n->arity; k++)
                if (n->label.op != IR_run && !(n->label.op == IR_get && k == 1))
                    sum += factor ? factor[n->kids[k]] * cost[n->kids[k]] : cost[n->kids[k]];
            if (!allowed[i] || !(sum < cost[n->place] * (1 - 1e-12)))
                continue;
            cost[n->place] = sum;
            best[n->place] = n->node;
            more = true;
        }
    }
    arena_free(scratch);
}

bool ex_choose(const ex_space *s, const ex_structure *x, eqf_node *chosen)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(s->a);
    eqf_node *best = NEW_N(scratch, eqf_node, r->n);
    bool *allowed = NEW_N(scratch, bool, r->nodes.n);
    for (i64 i = 0; i < r->nodes.n; i++)
        allowed[i] = !is_free(s, r->nodes.at[i].place) && is_allowed(s, x, &r->nodes.at[i]);
    find_cheapest(s, allowed, NULL, best);
    memset(chosen, 0, (size_t)r->n * sizeof *chosen);
    i64 wanted = 0, used = 0;
    for (i64 i = 0; i < s->reduced.n; i++)
        wanted += x->way[i] >= 0;
    bool found = true;
    for (i64 i = 0; i < s->roots.n && found; i++)
        found = mark(s, s->roots.at[i], best, chosen);
    for (i64 i = 0; i < s->reduced.n; i++)
        used += x->way[i] >= 0 && chosen[s->reduced.at[i].place].i;
    arena_free(scratch);
    return found && used == wanted;
}

/* The way that an e-node of the class computes it by, -1: by operators. */
static i64 way_of(const ex_space *s, const ex_reduced *x, eqf_node node)
{
    for (i64 w = 0; w < x->ways.n; w++)
        for (i64 i = 0; i < x->ways.at[w].nodes.n; i++)
            if (s->r->nodes.at[x->ways.at[w].nodes.at[i]].node.i == node.i)
                return w;
    return -1;
}

bool ex_choose_like(const ex_space *s, const ex_wish *wish, ex_structure *out)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(s->a);
    eqf_node *best = NEW_N(scratch, eqf_node, r->n), *chosen = NEW_N(scratch, eqf_node, r->n);
    bool *allowed = NEW_N(scratch, bool, r->nodes.n), found = true;
    f64 *factor = NEW_N(scratch, f64, r->n);
    for (i64 k = 0; k < r->n; k++)
        factor[k] = s->number[k] && wish->near && wish->near->way[s->number[k] - 1] >= 0 ? SHARED : 1;
    if (wish->with >= 0)
        factor[s->reduced.at[wish->with].place] = 0;
    ex_structure none;
    memset(none.way, -1, sizeof none.way);
    for (i64 i = 0; i < r->nodes.n; i++)
        allowed[i] = !is_free(s, r->nodes.at[i].place) && is_allowed(s, &none, &r->nodes.at[i]);
    for (i64 k = 0; k < s->reduced.n; k++) {
        const ex_reduced *x = &s->reduced.at[k];
        for (i64 w = 0; w < x->ways.n && !ex_has(&wish->without, k); w++) {
            bool is_asked = k == wish->reduced ? w == wish->way
                                               : ex_is_asked_for(x, &x->ways.at[w], wish->rolled);
            for (i64 i = 0; i < x->ways.at[w].nodes.n && is_asked; i++)
                allowed[x->ways.at[w].nodes.at[i]] = true;
        }
    }
    find_cheapest(s, allowed, factor, best);
    for (i64 i = 0; i < s->roots.n && found; i++)
        found = mark(s, s->roots.at[i], best, chosen);
    for (i64 k = 0; k < EX_REDUCED; k++) {
        i64 place = k < s->reduced.n ? s->reduced.at[k].place : -1;
        out->way[k] = place >= 0 && chosen[place].i ? (i8)way_of(s, &s->reduced.at[k], chosen[place]) : -1;
    }
    arena_free(scratch);
    return found;
}

/* ---- what may be stored ---------------------------------------------------------------------- */

/* NULL when nothing is chosen there. */
static const rl_enode *chosen_node(const ex_space *s, const eqf_node *chosen, i64 place)
{
    const rl_reach *r = s->r;
    for (i64 i = r->first[place]; i < r->first[place + 1]; i++)
        if (chosen[place].i && r->nodes.at[i].node.i == chosen[place].i)
            return &r->nodes.at[i];
    return NULL;
}

/* Work below each chosen place, shared parts counted each time; 0: no reduction is below. */
static f64 work_below(const ex_space *s, const eqf_node *chosen, i64 place, f64 *done,
                      bool *reduces)
{
    if (done[place] >= 0 || !chosen[place].i)
        return MAX(done[place], 0);
    done[place] = 0;
    const rl_enode *n = chosen_node(s, chosen, place);
    f64 sum = ex_own_cost(s, n);
    reduces[place] = s->number[place] != 0;
    for (i64 k = 0; k < n->arity; k++) {
        if (n->label.op == IR_run)
            break;
        sum += work_below(s, chosen, n->kids[k], done, reduces);
        reduces[place] |= reduces[n->kids[k]];
    }
    return done[place] = sum;
}

i64 ex_storable(const ex_space *s, const eqf_node *chosen, i64 *out, i64 most)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(s->a);
    f64 *work = NEW_N(scratch, f64, r->n), *saves = NEW_N(scratch, f64, most + 1);
    bool *reduces = NEW_N(scratch, bool, r->n), *inside = NEW_N(scratch, bool, r->n);
    for (i64 k = 0; k < r->n; k++)
        work[k] = -1;
    for (i64 i = 0; i < s->roots.n; i++)
        work_below(s, chosen, s->roots.at[i], work, reduces);
    /* what depends on a running result exists inside its loop only */
    for (bool more = true; more;) {
        more = false;
        for (i64 k = 0; k < r->n; k++) {
            const rl_enode *n = chosen[k].i ? chosen_node(s, chosen, k) : NULL;
            if (!n || inside[k] || s->number[k])
                continue;
            bool is_in = n->label.op == IR_run;
            for (i64 q = 0; q < n->arity; q++)
                is_in |= inside[n->kids[q]];
            inside[k] = is_in;
            more |= is_in;
        }
    }
    i64 *users = NEW_N(scratch, i64, r->n);
    for (i64 k = 0; k < r->n; k++) {
        const rl_enode *user = chosen_node(s, chosen, k);
        for (i64 q = 0; user && q < user->arity; q++)
            users[user->kids[q]]++;
    }
    i64 count = 0;
    for (i64 k = 0; k < r->n; k++) {
        const rl_enode *user = chosen[k].i ? chosen_node(s, chosen, k) : NULL;
        if (!user)
            continue;
        rl_type u = rl_graph_type(s->g, r->classes[k]);
        u64 around = 0;
        for (i64 q = 0; q < user->arity; q++) {
            rl_type t = rl_graph_type(s->g, r->classes[user->kids[q]]);
            around |= t.kind == IR_A_VALUE ? t.dims | t.axes : 0;
        }
        for (i64 q = 0; q < user->arity; q++) {
            i64 place = user->kids[q];
            rl_type t = rl_graph_type(s->g, r->classes[place]);
            bool whole = t.kind == IR_A_VALUE && t.axes == t.dims && t.dims != 0;
            bool is_there = user->label.op == IR_view || /* its operands are stored anyway */
                            (chosen[place].i && chosen_node(s, chosen, place)->label.op == IR_view);
            if (!chosen[place].i || !whole || !reduces[place] || inside[place] || is_there)
                continue;
            /* what is used twice may be in two loops */
            bool wider = users[place] > 1 || (around & ~(t.dims | t.axes)) != 0 || user->label.op == IR_tile_matmul ||
                         user->label.op == IR_reduce || u.kind == IR_A_COMPONENT;
            bool known = false;
            for (i64 i = 0; i < s->roots.n; i++)
                known |= s->roots.at[i] == place;
            for (i64 i = 0; i < count; i++)
                known |= out[i] == place;
            if (!wider || known)
                continue;
            f64 saved = work[place];
            i64 at = count;
            while (at > 0 && saves[at - 1] < saved)
                at--;
            if (at >= most)
                continue;
            count = MIN(count + 1, most);
            for (i64 i = count - 1; i > at; i--) {
                out[i] = out[i - 1];
                saves[i] = saves[i - 1];
            }
            out[at] = place;
            saves[at] = saved;
        }
    }
    arena_free(scratch);
    return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct choice {
    const ex_space *s;
    const eqf_node *chosen;
    const i64 *stored;
    i64 n_stored;
    bool *is_read; /* by place: tiles of a value that something reads at an index map */
} choice;

static eqf_node node_of(void *user, eqf_class c)
{
    const choice *x = user;
    const ex_space *s = x->s;
    i64 place = rl_place_of(s->r, c);
    rl_type t = rl_graph_type(s->g, c);
    if (x->chosen[place].i)
        return x->chosen[place];
    bool is_whole = t.kind == IR_A_VALUE && t.axes == 0 && t.dims != 0;
    if (is_whole && !(t.facts & (RL_LOAD | RL_CONSTANT | RL_INDEX))) {
        eqf_node n = {0};
        i64 tiles = ex_tiles_of(s, place);
        const rl_enode *how = tiles < 0 ? NULL : chosen_node(s, x->chosen, tiles);
        if (how && how->label.op == IR_view && ex_index_node(s, place))
            return ex_index_node(s, place)->node;
        if (ex_stored_node(s, place))
            n = ex_stored_node(s, place)->node;
        const rl_enode *comb = ex_comb_of(s, place);
        return n.i || !comb ? n : comb->node;
    }
    if (s->tile[place].i)
        return s->tile[place];
    if (s->r->forms.node[place].i)
        return s->r->forms.node[place];
    return eqf_next_node(s->g->engine, c, (eqf_node){0});
}

static bool is_stored(void *user, eqf_class c)
{
    const choice *x = user;
    i64 place = rl_place_of(x->s->r, c);
    for (i64 i = 0; i < x->n_stored; i++)
        if (x->stored[i] == place)
            return true;
    return x->is_read[place];
}

ir_program *ex_write(const ex_space *s, arena *a, const eqf_node *chosen, const i64 *stored,
                     i64 n_stored)
{
    arena *scratch = arena_child(a);
    choice x = {s, chosen, stored, n_stored, NEW_N(scratch, bool, s->r->n)};
    for (i64 k = 0; k < s->r->n; k++) {
        const rl_enode *n = chosen_node(s, chosen, k);
        for (i64 q = 0; n && n->label.op == IR_view && q < n->arity; q++)
            x.is_read[n->kids[q]] = true;
    }
    rl_choices by = {node_of, is_stored, &x};
    ir_program *p = rl_write_program(s->g, a, &by);
    arena_free(scratch);
    return p;
}
