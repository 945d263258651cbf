/* Parts of a split: a reduction over one part whose body uses results over all parts, by what the part
 * knows alone.
 *
 *     (reduce R F(x, s) :par I)  with  s = (reduce R' (reduce R' s0 :axis O) :par O),  s0 = (reduce R' .. :par I)
 *
 * Read with s0 in the place of s, the reduction and those of s0 are a system like any other, and the solver
 * says which accumulators it takes and how they move from one reference to another. So the reduction is what
 * the accumulators of the part, kept at the part's own results, are when they are moved to the results of
 * all (`shift`): rolling over the part needs nothing of others, and what is corrected afterwards is one
 * value a part. Where results are divided by the number of positions, a sum over a part stands for the sum
 * over all as many times as there are parts: so the part's mean is one.              (space.md §6 D4) */
#include <math.h>

#include "rules/chain_impl.h"

typedef struct parter {
    rl_terms *t;
    rl_graph *g;
    arena *a;
    u64 inner, outer;
    bool scales; /* a sum over a part stands for that over all as many times as there are parts */
    u32 *alone; /* by record: the same of the part alone; 0: not known */
    i64 count;
    struct {
        u32 part, all; /* a reduction over the part, and what replaces it: the result over all parts */
    } merged[RL_MAX_REDUCTIONS];
    i64 n;
} parter;

static const rl_record *record(const parter *x, u32 id)
{
    return &x->t->at.at[id];
}

static u64 par_of(const parter *x, u32 id)
{
    return x->g->payloads.at[record(x, id)->payload].par;
}

static u64 axis_of(const parter *x, u32 id)
{
    return x->g->payloads.at[record(x, id)->payload].axis;
}

/* The reduction over one part that the result combines over all; 0: it is no such result. */
static u32 part_result(const parter *x, u32 id)
{
    const rl_record *over = record(x, id);
    if (over->op != IR_reduce || !par_of(x, id) || par_of(x, id) & x->inner)
        return 0;
    u32 tile = over->kids[0], part = record(x, tile)->op == IR_reduce ? record(x, tile)->kids[0] : 0;
    bool combines = part && record(x, tile)->reducer == over->reducer &&
                    axis_of(x, tile) == par_of(x, id) && record(x, part)->op == IR_reduce &&
                    record(x, part)->reducer == over->reducer && par_of(x, part) == x->inner;
    return combines ? part : 0;
}

static u32 number(const parter *x, f64 value)
{
    return rl_terms_leaf(x->t, rl_number_head(x->g, x->g->real, value));
}

static u32 pointwise(const parter *x, ir_op op, u32 a, u32 b)
{
    return rl_terms_make(x->t, op, IR_NO_REDUCER, 0, (u32[]){a, b}, 2);
}

/* How many parts there are. */
static f64 parts(const parter *x)
{
    f64 n = 1;
    for (u64 rest = x->outer; rest; rest &= rest - 1)
        n *= (f64)x->g->extent[__builtin_ctzll(rest)];
    return n;
}

/* Of a part without a live position a maximum is -inf: 0 takes its place, or differences had no value. */
static u32 guarded(const parter *x, u32 id)
{
    u32 test = rl_terms_make(x->t, IR_finite, IR_NO_REDUCER, 0, &id, 1);
    return test ? rl_terms_make(x->t, IR_where, IR_NO_REDUCER, 0, (u32[]){test, id, number(x, 0)}, 3) : 0;
}

static u32 alone(parter *x, u32 id);

/* A reduction over the part with its body alone. */
static u32 alone_reduction(parter *x, u32 id)
{
    u32 body = alone(x, record(x, id)->kids[0]);
    const rl_record *own = record(x, id);
    return body ? rl_terms_make(x->t, IR_reduce, own->reducer, own->payload, &body, 1) : 0;
}

/* The part's own result in the place of that over all. */
static u32 alone_merged(parter *x, u32 id, u32 part)
{
    u32 own = alone_reduction(x, part);
    ir_reducer r = record(x, id)->reducer;
    if (!own || (x->outer && x->outer != par_of(x, id)))
        return 0;
    x->outer = par_of(x, id);
    bool is_sum = r == IR_SUM && x->scales;
    u32 all = is_sum ? pointwise(x, IR_div, id, number(x, parts(x))) : id;
    i64 k = 0;
    while (k < x->n && !rl_terms_same(x->t, x->merged[k].part, own))
        k++;
    if (k == RL_MAX_REDUCTIONS || (k < x->n && !rl_terms_same(x->t, x->merged[k].all, all)))
        return 0; /* two results that a part cannot tell apart */
    x->merged[k].part = own;
    x->merged[k].all = all;
    x->n = MAX(x->n, k + 1);
    return is_sum           ? pointwise(x, IR_mul, own, number(x, parts(x)))
           : r == IR_SUM ? own
                         : guarded(x, own);
}

static u32 alone(parter *x, u32 id)
{
    if ((i64)id < x->count && x->alone[id])
        return x->alone[id];
    const rl_record *own = record(x, id);
    bool is_inside = own->op != IR_NO_OP &&
                     (ir_row(own->op)->class_ == IR_EWISE || own->op == IR_tile_matmul ||
                      (own->op == IR_reduce && !par_of(x, id)));
    u32 part = part_result(x, id), out = id;
    if (own->op == IR_reduce && par_of(x, id) == x->inner && !part)
        return 0; /* of the part already: it is not to move */
    if (part) {
        out = alone_merged(x, id, part);
    } else if (is_inside) {
        i64 n = own->n;
        u32 *kids = NEW_N(x->a, u32, n);
        bool changed = false;
        for (i64 i = 0; i < n; i++) {
            kids[i] = alone(x, record(x, id)->kids[i]);
            if (!kids[i])
                return 0;
            changed = changed || kids[i] != record(x, id)->kids[i];
        }
        own = record(x, id);
        if (changed)
            out = rl_terms_make(x->t, own->op, own->reducer, own->payload, kids, n);
    }
    if ((i64)id < x->count)
        x->alone[id] = out;
    return out;
}

/* ---- what the accumulators become -------------------------------------------------------------- */

typedef struct shifted {
    parter *x;
    const chain *c;
    u32 *done; /* by term of the lambda */
    u32 part[RL_MAX_REDUCTIONS], all[RL_MAX_REDUCTIONS];
} shifted;

static u32 shifted_term(shifted *w, ir_term t);

static u32 shifted_input(shifted *w, ir_term t)
{
    const rl_repair *r = &w->c->repair;
    const ir_program *p = r->shift.p;
    i64 i = 0, n = w->c->n - 1;
    while (p->inputs.at[i].term.i != t.i)
        i++;
    if (i < r->slot_count) {
        if (!r->shifts[i])
            return 0;
        u32 body = shifted_term(w, p->outputs.at[i].term);
        u32 payload = rl_par_payload(w->x->g, IR_reduce, w->x->inner);
        return body ? rl_terms_make(w->x->t, IR_reduce, r->slots[i].op, payload, &body, 1) : 0;
    }
    i -= r->slot_count;
    if (i < 2 * n)
        return i < n ? w->part[i] : w->all[i - n];
    return rl_chain_leaf(w->c, r->shift.leaves[i - 2 * n]);
}

static u32 shifted_term(shifted *w, ir_term t)
{
    rl_graph *g = w->x->g;
    const ir_node *n = ir_get(w->c->repair.shift.p, t);
    if (w->done[t.i])
        return w->done[t.i];
    if (n->op == IR_in)
        return w->done[t.i] = shifted_input(w, t);
    if (n->op == IR_const)
        return w->done[t.i] = rl_terms_leaf(
                   w->x->t, rl_number_head(g, (dtype)n->dtype,
                                           dtype_is_float(n->dtype) ? n->attr.f : (f64)n->attr.i));
    if (ir_row(n->op)->class_ != IR_EWISE && n->op != IR_reduce && n->op != IR_matmul)
        return 0;
    u32 *kids = NEW_N(w->x->a, u32, n->arg_count);
    for (i64 i = 0; i < n->arg_count; i++) {
        kids[i] = shifted_term(w, ir_get(w->c->repair.shift.p, t)->args[i]);
        if (!kids[i])
            return 0;
    }
    ir_attr attr = n->attr;
    attr.axis = rl_chain_atoms(w->c, attr.axis);
    if (n->op == IR_cast && record(w->x, kids[0])->type.dtype == attr.dtype)
        return w->done[t.i] = kids[0];
    ir_op op = n->op == IR_matmul ? IR_tile_matmul : n->op;
    ir_reducer r = op == IR_reduce ? attr.reducer : IR_NO_REDUCER;
    return w->done[t.i] =
               rl_terms_make(w->x->t, op, r, rl_payload_id(g, op, attr), kids, n->arg_count);
}

static bool counts(const rl_repair *r)
{
    for (i64 i = 0; i < r->slot_count; i++)
        if (r->slots[i].is_count)
            return true;
    return false;
}

static bool same_type(const parter *x, u32 a, u32 b)
{
    const rl_type *s = &record(x, a)->type, *t = &record(x, b)->type;
    return s->dims == t->dims && s->axes == t->axes && s->dtype == t->dtype;
}

/* ---- by value ----------------------------------------------------------------------------------- */

/* Some values: above 0, so that logarithms and roots have some; 0 1 2 of integers. */
static tensor some_values(arena *a, const ir_program *p, i64 port, rng *g)
{
    const ir_port *x = &p->inputs.at[port];
    i64 *shape = NEW_N(a, i64, x->rank), n = 1;
    for (i64 i = 0; i < x->rank; i++)
        n *= shape[i] = x->dims[i].extent;
    dtype type = dtype_is_float((dtype)x->dtype) ? DT_f64 : (dtype)x->dtype;
    tensor t = {NULL, type, x->rank, shape, arena_alloc_n(a, n, 8)};
    for (i64 i = 0; i < n; i++)
        if (type == DT_f64)
            tensor_set_f64(&t, i, 0.5 + rng_f64(g));
        else
            tensor_set_i64(&t, i, (i64)rng_below(g, type == DT_bool ? 2 : 3));
    return t;
}

static bool is_near(const tensor *x, const tensor *y, i64 n)
{
    f64 most = 1;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, fabs(tensor_get_f64(x, i)));
    for (i64 i = 0; i < n; i++) {
        f64 a = tensor_get_f64(x, i), b = tensor_get_f64(y, i);
        if (isfinite(a) != isfinite(b) || (isfinite(a) && fabs(a - b) > 1e-8 * most))
            return false;
    }
    return true;
}

/* The program with all positions live. */
static ir_program *without_splits(arena *a, const ir_program *p)
{
    ir_program *q = arena_copy(a, p, sizeof *p);
    q->atoms.at = arena_copy(a, p->atoms.at, p->atoms.n * (i64)sizeof *p->atoms.at);
    for (i64 i = 0; i < q->atoms.n; i++)
        q->atoms.at[i].split = 0;
    q->splits.n = 0;
    return q;
}

/* Is the body of the last reduction, with any results in place of the part's, what `shift` makes of the
 * contributions at the part's? On a few random tiles that are a whole part. */
static bool holds_by_value(const chain *c)
{
    enum { TIMES = 3 };
    const rl_lambda *l = &c->repair.shift;
    arena *a = arena_child(c->a);
    i64 slots = c->repair.slot_count, n = c->n - 1, base = l->p->inputs.n - l->leaf_count;
    bool holds = true;
    for (u64 seed = 1; seed <= TIMES && holds; seed++) {
        rng g = rng_new(seed);
        ir_program *direct = without_splits(a, c->p), *shift = without_splits(a, l->p);
        memset(&direct->outputs, 0, sizeof direct->outputs);
        tensor *given = NEW_N(a, tensor, c->p->inputs.n), *in = NEW_N(a, tensor, l->p->inputs.n);
        tensor want, *out = NEW_N(a, tensor, l->p->outputs.n);
        for (i64 i = 0; i < c->p->inputs.n; i++)
            given[i] = some_values(a, c->p, i, &g);
        ir_term body = c->at[n].body;
        ir_atoms d = ir_get(c->p, body)->dims;
        ir_dim *dims = NEW_N(a, ir_dim, d.n);
        i64 count = 1;
        for (i64 i = 0; i < d.n; i++) {
            dims[i] = (ir_dim){ir_extent(c->p, d.at[i]), {&d.at[i], 1}};
            count *= dims[i].extent;
        }
        vec_push(a, &direct->outputs,
                 ((ir_port){.name = intern_cstr(c->p->names, "body"), .dtype = DT_f64, .rank = d.n, .dims = dims, .term = body}));
        for (i64 i = 0; i < l->p->inputs.n; i++)
            in[i] = some_values(a, l->p, i, &g);
        for (i64 k = 0; k < n; k++) /* results of all */
            for (i64 i = 0; i < c->p->inputs.n; i++)
                if (c->p->inputs.at[i].term.i == c->at[k].value.i)
                    in[slots + n + k] = given[i];
        for (i64 k = 0; k < l->leaf_count; k++)
            for (i64 i = 0; i < c->p->inputs.n; i++)
                if (c->p->inputs.at[i].term.i == l->leaves[k].i)
                    in[base + k] = given[i];
        ir_eval(direct, given, a, &want, (ir_eval_options){0});
        for (i64 pass = 0; pass < l->p->outputs.n; pass++) { /* a slot may stand on others */
            ir_eval(shift, in, a, out, (ir_eval_options){0});
            for (i64 i = 0; i < l->p->outputs.n - 1; i++)
                if (c->repair.shifts[i])
                    in[i] = out[i];
        }
        holds = is_near(&want, &out[l->p->outputs.n - 1], count);
    }
    arena_free(a);
    return holds;
}

/* ---- both ---------------------------------------------------------------------------------------- */

static parter start(rl_terms *t, u32 term, bool scales)
{
    parter x = {.t = t, .g = t->g, .a = t->a, .scales = scales, .count = t->at.n};
    x.alone = NEW_N(t->a, u32, t->at.n);
    x.inner = par_of(&x, term);
    return x;
}

/* The system of the part alone, solved; false when there is none. */
static bool solve_alone(parter *x, chain *c, u32 term)
{
    u32 own = alone_reduction(x, term);
    return own && own != term && x->n && rl_chain_solve(c, own) && c->repair.has_shift;
}

/* Is a quotient of results among the references, (where (finite q) q 0)? A part without a live position has
 * none, and what rolls there has another value than what is written. */
static bool has_quotient(const rl_terms *t, u32 id, bool *seen)
{
    const rl_record *x = &t->at.at[id];
    if (seen[id])
        return false;
    seen[id] = true;
    if (x->op == IR_where && t->at.at[x->kids[0]].op == IR_finite && t->at.at[x->kids[1]].op == IR_div)
        return true;
    for (i64 i = 0; i < x->n; i++)
        if (has_quotient(t, x->kids[i], seen))
            return true;
    return false;
}

static u32 derive(rl_terms *t, chain *c, u32 term)
{
    parter once = start(t, term, false), *x = &once;
    if (!solve_alone(x, c, term))
        return 0;
    if (counts(&c->repair)) {
        once = start(t, term, true);
        if (x->g->ragged & x->inner || !solve_alone(x, c, term))
            return 0;
    }
    shifted w = {.x = x, .c = c, .done = NEW_N(x->a, u32, c->repair.shift.p->nodes.n)};
    for (i64 k = 0; k < c->n - 1; k++) {
        w.part[k] = w.all[k] = c->reduction[k];
        for (i64 i = 0; i < x->n; i++)
            if (rl_terms_same(x->t, x->merged[i].part, c->reduction[k]))
                w.all[k] = x->merged[i].all;
    }
    u32 out = shifted_term(&w, c->repair.shift.p->outputs.at[c->repair.shift.p->outputs.n - 1].term);
    bool holds = out && same_type(x, out, term) && !has_quotient(t, out, NEW_N(x->a, bool, t->at.n));
    return holds ? out : 0;
}

u32 rl_part_of(rl_terms *t, u32 term, rl_fp *fp)
{
    chain c = {.t = t};
    u32 out = derive(t, &c, term);
    for (i64 k = 0; k < c.n && out; k++)
        *fp = MAX(*fp, c.repair.how[k].fp);
    return out;
}

bool rl_part_check(rl_terms *t, u32 term, u32 value)
{
    chain c = {.t = t};
    bool is_reduction = t->at.at[term].op == IR_reduce && t->g->payloads.at[t->at.at[term].payload].par;
    u32 out = is_reduction ? derive(t, &c, term) : 0;
    return out && rl_terms_same(t, out, value) && !rl_check_repair(t->a, &c.system, &c.repair, 1) &&
           holds_by_value(&c);
}
