/* Masks as ranges: a loop need not visit tiles that add nothing.
 *
 * A tile is dead under a mask when the mask holds nowhere in it. There `(where mask x c)` is c, a mask as
 * a number is 0, and constants propagate: exp(-inf - finite) is 0, a product with 0 is 0, the maximum of -inf is -inf.
 * When every component's body is its reducer's identity on a dead tile, and transports leave states
 * alone while the producers stay, the loop may leave dead tiles out. Which tiles those are is read
 * off the mask (ir_live): ranges of the axis, affine in the positions of other atoms. The loop with
 * this visit list joins the class of the loop without; a reduction by itself is a loop of one
 * component. Products 0 * v and shares 0 / v count as 0 and -inf + x as -inf: where the program has NaN
 * from a masked infinity, or a row without a live position, the restricted loop has none.
 *
 * Masks are often written with a large negative number instead of -inf. Its exponential is not 0
 * but vanishes beside that of any live position, so the same is done where every row surely has
 * one, as an approximation.
 *
 * What is found is written as terms that show the mask; a judge sees the same in a proof's text.
 *                                                                         (space.md §6 F9) */
#include <math.h>

#include "ir/scalar.h"
#include "rules/fuse_impl.h"

/* ---- a value on dead tiles ---------------------------------------------------------------------
 */

typedef rl_fact fact;

static fact known(f64 value)
{
    return isnan(value) ? (fact){0}
                        : (fact){.is_known = true, .is_finite = isfinite(value), .value = value};
}

static bool is_zero(const fact *x)
{
    return x->is_known && x->value == 0;
}

/* An infinity that stays one when something finite is added. */
static bool absorbs(const fact *x, const fact *other)
{
    return x->is_known && isinf(x->value) && other->is_finite;
}

static bool is_lowest(const fact *x)
{
    return x->is_known && isinf(x->value) && x->value < 0;
}

enum { VANISHES = -60000 }; /* the lowest numbers of all float types lie below */

/* Operators on floats alone, by their rows. */
static f64 value_of(ir_op op, f64 a, f64 b)
{
#define OF_FLOAT(name, e)                                                                          \
    case IR_##name:                                                                                \
        return e;
#define OF_SAME(name, e)
#define OF_INTEGER(name, e)
#define OF_LOGIC(name, e)
#define OF_COMPARE(name, e)
#define OF_BOOLEAN(name, e)
#define OF_TEST(name, e)
#define OF_SELECT(name, e)
#define OF_OWN(name, e)
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) OF_##rule(name, fexpr)
    switch (op) {
#include "ir/ops.def"
    default:
        return b;
    }
#undef OP
}

fact rl_fact_of(const rl_label *l, const fact *x, i64 n, bool guards, bool lossy)
{
    bool all = true;
    for (i64 i = 0; i < n; i++)
        all = all && x[i].is_known;
    switch (l->op) {
    case IR_where:
        if (x[0].is_mask && lossy && x[2].is_known && x[2].value < VANISHES)
            return known((f64)-INFINITY);
        if (x[0].is_mask)
            return x[2].is_known ? x[2] : (fact){.is_finite = x[2].is_finite};
        if (x[1].is_known && x[2].is_known && x[1].value == x[2].value)
            return x[1];
        return (fact){.is_finite = (guards || x[1].is_finite) && x[2].is_finite};
    case IR_cast: /* false is 0 */
        return x[0].is_mask || is_zero(&x[0]) ? known(0) : (fact){0};
    case IR_add:
        if (all)
            return known(x[0].value + x[1].value);
        for (i64 i = 0; i < 2; i++)
            if (is_lowest(&x[i]) || absorbs(&x[i], &x[1 - i]))
                return x[i];
        return (fact){0};
    case IR_sub:
        return all                     ? known(x[0].value - x[1].value)
               : absorbs(&x[0], &x[1]) ? x[0]
               : absorbs(&x[1], &x[0]) ? known(-x[1].value)
                                       : (fact){0};
    case IR_mul:
    case IR_tile_matmul:
        if (is_zero(&x[0]) || is_zero(&x[1]))
            return known(0);
        return all && l->op == IR_mul ? known(x[0].value * x[1].value) : (fact){0};
    case IR_max:
        return all ? known(fmax(x[0].value, x[1].value)) : (fact){0};
    case IR_min:
        return all ? known(fmin(x[0].value, x[1].value)) : (fact){0};
    case IR_neg:
        return all ? known(-x[0].value) : (fact){0};
    case IR_square:
        return all ? known(x[0].value * x[0].value) : (fact){0};
    case IR_pow:
        return all ? known(pow(x[0].value, x[1].value)) : (fact){0};
    case IR_reduce: /* of any number of equal values */
        return all && (l->reducer == IR_MAX || l->reducer == IR_MIN ||
                       (l->reducer == IR_SUM && x[0].value == 0) ||
                       (l->reducer == IR_PROD && x[0].value == 1))
                   ? x[0]
                   : (fact){0};
    case IR_div:
        if (is_zero(&x[0]) && !is_zero(&x[1]))
            return known(0);
        return all ? known(x[0].value / x[1].value) : (fact){0};
    default:
        return all && ir_row(l->op)->rule == IR_FLOAT
                   ? known(value_of(l->op, x[0].value, n > 1 ? x[1].value : 0))
                   : (fact){0};
    }
}

/* ---- terms -------------------------------------------------------------------------------------
 */

typedef struct reading {
    rl_terms *t;
    u32 mask;
    bool lossy;
    fact *facts; /* by record */
    bool *done;
} reading;

static fact fact_of(reading *r, u32 id)
{
    const rl_record *x = &r->t->at.at[id];
    if (r->done[id])
        return r->facts[id];
    r->done[id] = true;
    if (rl_terms_same(r->t, id, r->mask))
        return r->facts[id] = (fact){.is_mask = true};
    if (x->op == IR_NO_OP)
        return r->facts[id] =
                   x->head.i && (x->type.facts & RL_IS_NUMBER) ? known(x->type.number) : (fact){0};
    fact *kids = NEW_N(r->t->a, fact, x->n);
    for (i64 i = 0; i < x->n; i++)
        kids[i] = fact_of(r, x->kids[i]);
    x = &r->t->at.at[id];
    const rl_record *test = &r->t->at.at[x->kids[0]];
    bool guards = x->op == IR_where && test->op == IR_finite &&
                  rl_terms_same(r->t, test->kids[0], x->kids[1]);
    rl_label l = rl_label_of(r->t->g, x->op, x->reducer, x->payload);
    return r->facts[id] = rl_fact_of(&l, kids, x->n, guards, r->lossy);
}

/* The mask as a term over whole dims: what a position's value is does not depend on tiles. Of a
 * conjunction the part that depends on data is left out, and *is_exact becomes false: the mask holds at
 * most where the term does. None: nothing is known. */
static ir_term mask_term(const rl_terms *t, ir_program *p, u32 id, bool *is_exact)
{
    const rl_record *x = &t->at.at[id];
    if (x->op == IR_NO_OP) {
        const rl_leaf *leaf = x->head.i ? rl_leaf_of(t->g, x->head) : NULL;
        return leaf && (leaf->op == IR_const || leaf->op == IR_iota)
                   ? ir_make(p, leaf->op, leaf->attr, NULL, 0)
                   : (ir_term){0};
    }
    if (x->op == IR_view)
        return mask_term(t, p, x->kids[0], is_exact);
    if (ir_row(x->op)->class_ != IR_EWISE)
        return (ir_term){0};
    ir_term kids[RL_MAX_VARS];
    bool is_joint = (x->op == IR_and || x->op == IR_or) && x->type.dtype == DT_bool, exact = true;
    for (i64 i = 0; i < x->n; i++) {
        kids[i] = mask_term(t, p, x->kids[i], &exact);
        if (!is_joint && (!kids[i].i || !exact)) /* what holds at most here may hold more under a not */
            return (ir_term){0};
    }
    *is_exact = *is_exact && exact;
    if (is_joint && (!kids[0].i || !kids[1].i)) {
        *is_exact = false;
        ir_term known = kids[0].i ? kids[0] : kids[1];
        return x->op == IR_and && known.i ? known : (ir_term){0};
    }
    return ir_make(p, x->op, t->g->payloads.at[x->payload].attr, kids, x->n);
}

static bool is_everything(const ir_live_set *live, i64 extent)
{
    for (i64 i = 0; i < live->n; i++) {
        const ir_affine *low = &live->at[i].low, *high = &live->at[i].high;
        if (low->atoms.n == 0 && low->constant <= 0 && high->atoms.n == 0 &&
            high->constant >= extent)
            return true;
    }
    return false;
}

/* Smallest and largest value of high - low over all positions; false when it does not fit. */
static bool span(const ir_program *p, const ir_affine *low, const ir_affine *high, i64 *least,
                 i64 *most)
{
    if (!add_i64(high->constant, -low->constant, least))
        return false;
    *most = *least;
    for (i64 d = 1; d < p->atoms.n; d++) {
        i64 factor = 0, reach;
        for (i64 i = 0; i < high->atoms.n; i++)
            factor += high->atoms.at[i].i == (u32)d ? high->factors[i] : 0;
        for (i64 i = 0; i < low->atoms.n; i++)
            factor -= low->atoms.at[i].i == (u32)d ? low->factors[i] : 0;
        if (!mul_i64(factor, p->atoms.at[d].extent - 1, &reach) ||
            !add_i64(reach < 0 ? *least : *most, reach, reach < 0 ? least : most))
            return false;
    }
    return true;
}

/* Does the mask hold somewhere along the atom, whatever the positions of the others? */
static bool has_live(const ir_program *p, const ir_live_set *live, i64 extent)
{
    static const ir_affine zero = {0};
    for (i64 i = 0; live->is_exact && i < live->n; i++) {
        const ir_affine *low = &live->at[i].low, *high = &live->at[i].high;
        i64 least[3], most[3];
        if (span(p, low, high, &least[0], &most[0]) && span(p, &zero, low, &least[1], &most[1]) &&
            span(p, &zero, high, &least[2], &most[2]) && least[0] >= 1 && most[1] < extent &&
            least[2] >= 1)
            return true;
    }
    return false;
}

/* The payload of a loop over one axis that visits the tiles where the mask may hold; 0 when that is
 * all of them, or with `needs_live` when somewhere it may hold nowhere. */
static u32 visits_of(rl_terms *t, u32 mask, u64 par, bool needs_live)
{
    rl_graph *g = t->g;
    if (__builtin_popcountll(par) != 1)
        return 0;
    ir_atom d = g->atom[__builtin_ctzll(par)];
    ir_program *p = ir_program_new(t->a, "", "");
    rl_copy_atoms(p, g->own);
    bool is_exact = true;
    ir_term term = mask_term(t, p, mask, &is_exact);
    if (!term.i || (needs_live && !is_exact) || ir_get(p, term)->dtype != DT_bool || !ir_has(ir_get(p, term)->dims, d))
        return 0;
    ir_live_set live = ir_live(t->a, p, term, d);
    if (is_everything(&live, ir_extent(p, d)) ||
        (needs_live && !has_live(p, &live, ir_extent(p, d))))
        return 0;
    ir_atoms axis = {&d, 1};
    ir_term one = ir_view(p, ir_iota(p, d), axis);
    ir_term comp = ir_comp(p, IR_SUM, ir_reduce(p, IR_SUM, one, axis));
    return rl_payload_id(g, IR_loop, ir_get(p, ir_loop(p, axis, &comp, 1, &live))->attr);
}

/* ---- transports --------------------------------------------------------------------------------
 */

static bool is_nothing(const ir_program *p, ir_term t);

/* 1 wherever the references are finite. */
static bool is_unit(const ir_program *p, ir_term t)
{
    const ir_node *x = ir_get(p, t);
    switch (x->op) {
    case IR_const:
        return x->attr.f == 1;
    case IR_exp:
    case IR_exp2:
        return is_nothing(p, x->args[0]);
    case IR_div:
        return x->args[0].i == x->args[1].i || (is_unit(p, x->args[0]) && is_unit(p, x->args[1]));
    case IR_mul:
        return is_unit(p, x->args[0]) && is_unit(p, x->args[1]);
    case IR_where: /* the other branch is for what is not finite */
        return ir_get(p, x->args[0])->op == IR_finite && is_unit(p, x->args[1]);
    default:
        return false;
    }
}

static bool is_nothing(const ir_program *p, ir_term t)
{
    const ir_node *x = ir_get(p, t);
    switch (x->op) {
    case IR_const:
        return x->attr.f == 0;
    case IR_sub:
        return x->args[0].i == x->args[1].i;
    case IR_mul:
        return is_nothing(p, x->args[0]) || is_nothing(p, x->args[1]);
    case IR_add:
        return is_nothing(p, x->args[0]) && is_nothing(p, x->args[1]);
    case IR_square:
    case IR_neg:
        return is_nothing(p, x->args[0]);
    default:
        return false;
    }
}

static bool is_same(const ir_program *p, ir_term t, ir_term c)
{
    const ir_node *x = ir_get(p, t);
    if (t.i == c.i)
        return true;
    switch (x->op) {
    case IR_mul:
        return (is_same(p, x->args[0], c) && is_unit(p, x->args[1])) ||
               (is_same(p, x->args[1], c) && is_unit(p, x->args[0]));
    case IR_div:
        return is_same(p, x->args[0], c) && is_unit(p, x->args[1]);
    case IR_add:
        return (is_same(p, x->args[0], c) && is_nothing(p, x->args[1])) ||
               (is_same(p, x->args[1], c) && is_nothing(p, x->args[0]));
    case IR_sub:
        return is_same(p, x->args[0], c) && is_nothing(p, x->args[1]);
    default:
        return false;
    }
}

/* Does the transport leave a state alone while its producers stay? */
static bool stays(rl_graph *g, const rl_closed *h)
{
    arena *a = arena_child(g->a);
    ir_program *p = ir_program_new(a, "", "");
    rl_copy_atoms(p, g->own);
    ir_term lambda = rl_copy_closed(p, g->own, h->term, DT_NONE), out;
    ir_term *args = NEW_N(a, ir_term, h->formal_count);
    i64 producers = (h->formal_count - 1) / 2;
    for (i64 i = 0; i < h->formal_count; i++)
        args[i] = ir_get(p, lambda)->args[i > producers ? i - producers : i];
    ir_apply(p, lambda, args, h->formal_count, &out);
    bool same = is_same(p, out, args[0]);
    arena_free(a);
    return same;
}

/* ---- loops as terms ----------------------------------------------------------------------------
 */

static bool adds_nothing(reading *r, u64 par, u32 comp)
{
    const rl_record *x = &r->t->at.at[comp];
    if (x->op != IR_comp)
        return false;
    if (x->reducer == IR_NO_REDUCER) {
        fact *leaves = NEW_N(r->t->a, fact, x->n);
        const u32 *kids = x->kids;
        i64 n = x->n - 1;
        for (i64 i = 0; i < n; i++) {
            leaves[i] = fact_of(r, kids[1 + i]);
            leaves[i].is_fixed = !(r->t->at.at[kids[1 + i]].type.axes & par);
        }
        return rl_reducer_rests(r->t->g, r->t->at.at[kids[0]].type.closed, leaves, n);
    }
    fact body = fact_of(r, x->kids[0]);
    x = &r->t->at.at[comp];
    return body.is_known && body.value == ir_reducer_identity_f64(x->reducer) &&
           (x->n == 1 || stays(r->t->g, r->t->at.at[x->kids[1]].type.closed));
}

/* Do all components of the loop add nothing where the mask holds nowhere? */
static bool is_idle(rl_terms *t, u32 loop, u32 mask, bool lossy)
{
    reading r = {t, mask, lossy, NEW_N(t->a, fact, t->at.n), NEW_N(t->a, bool, t->at.n)};
    u64 par = t->g->payloads.at[t->at.at[loop].payload].par;
    bool idle = true;
    for (i64 i = 0; idle && i < t->at.at[loop].n; i++)
        idle = adds_nothing(&r, par, t->at.at[loop].kids[i]);
    return idle;
}

bool rl_visits_follow(rl_terms *t, u32 left, u32 right, bool lossy)
{
    const rl_record *x = &t->at.at[left], *y = &t->at.at[right];
    if (x->op != IR_loop || y->op != IR_loop || x->n != y->n)
        return false;
    u64 par = t->g->payloads.at[x->payload].par;
    u32 payload = y->payload;
    for (i64 i = 0; i < x->n; i++)
        if (!rl_terms_same(t, x->kids[i], y->kids[i]))
            return false;
    if (t->g->payloads.at[x->payload].attr.ints.n > 0)
        return false;
    i64 n = t->at.n; /* conditions anywhere in the text, leaves of reducers among them; one is the mask */
    for (i64 k = 1; k < n; k++) {
        rl_record user = t->at.at[k];
        bool is_state = user.op == IR_comp && user.reducer == IR_NO_REDUCER;
        bool tests = user.op == IR_where || user.op == IR_cast;
        for (i64 i = is_state; i < user.n && (is_state || (tests && i == 0)); i++)
            if (t->at.at[user.kids[i]].type.dtype == DT_bool &&
                visits_of(t, user.kids[i], par, lossy) == payload &&
                is_idle(t, left, user.kids[i], lossy))
                return true;
    }
    return false;
}

/* ---- finding them ------------------------------------------------------------------------------
 */

typedef struct search {
    rl_fuser *f;
    i64 n;          /* classes */
    eqf_class mask; /* looked at now */
    u32 mask_text;  /* a record of it */
    bool lossy;
    fact *facts;   /* by class */
    eqf_node *why; /* the e-node that shows the fact */
    u32 *record, *opaque, *shown;
    eqf_node *spelled; /* of classes made of iotas and numbers: the e-node to write */
} search;

static rl_graph *graph(const search *s)
{
    return s->f->g;
}

static u32 class_id(const search *s, eqf_class c)
{
    return eqf_find(graph(s)->engine, c).i;
}

static u32 kid(const search *s, eqf_node n, i64 i)
{
    return class_id(s, eqf_node_child(graph(s)->engine, n, (unsigned)i));
}

static bool is_leaf(const search *s, eqf_node n)
{
    return rl_leaf_of(graph(s), eqf_node_head(graph(s)->engine, n)) != NULL;
}

static rl_label label_of(const search *s, eqf_node n)
{
    return rl_node_label(graph(s), eqf_node_head(graph(s)->engine, n));
}

/* The e-node of the class with this operator over this operand; none. */
static eqf_node node_over(const search *s, u32 c, ir_op op, u32 operand)
{
    const eqf_egraph *e = graph(s)->engine;
    for (eqf_node n = eqf_next_node(e, (eqf_class){c}, (eqf_node){0}); n.i;
         n = eqf_next_node(e, (eqf_class){c}, n))
        if (!is_leaf(s, n) && label_of(s, n).op == op && kid(s, n, 0) == operand)
            return n;
    return (eqf_node){0};
}

static fact fact_of_node(const search *s, eqf_node n)
{
    rl_label l = label_of(s, n);
    i64 arity = eqf_head_arity(graph(s)->lang, eqf_node_head(graph(s)->engine, n));
    fact kids[3];
    if (arity > COUNT_OF(kids) || ir_kind_of(l.op) != IR_A_VALUE)
        return (fact){0};
    for (i64 i = 0; i < arity; i++)
        kids[i] = s->facts[kid(s, n, i)];
    bool guards = l.op == IR_where && node_over(s, kid(s, n, 0), IR_finite, kid(s, n, 1)).i;
    return rl_fact_of(&l, kids, arity, guards, s->lossy);
}

static void find_facts(search *s)
{
    const eqf_egraph *e = graph(s)->engine;
    memset(s->facts, 0, (size_t)s->n * sizeof *s->facts);
    memset(s->record, 0, (size_t)s->n * sizeof *s->record);
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c)) {
        rl_type t = rl_graph_type(graph(s), c);
        if (t.kind == IR_A_VALUE && (t.facts & RL_IS_NUMBER) && !t.dims)
            s->facts[c.i] = known(t.number);
    }
    s->facts[s->mask.i] = (fact){.is_mask = true};
    for (bool more = true; more;) {
        more = false;
        for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c)) {
            fact *own = &s->facts[c.i];
            for (eqf_node n = eqf_next_node(e, c, (eqf_node){0});
                 n.i && !own->is_known && !own->is_mask; n = eqf_next_node(e, c, n)) {
                fact found = is_leaf(s, n) ? (fact){0} : fact_of_node(s, n);
                if (!found.is_known && (!found.is_finite || own->is_finite))
                    continue;
                *own = found;
                s->why[c.i] = n;
                more = true;
            }
        }
    }
}

/* A form without loops for every class made of iotas and numbers. */
static void find_spellings(search *s)
{
    const eqf_egraph *e = graph(s)->engine;
    for (bool more = true; more;) {
        more = false;
        for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c)) {
            rl_type t = rl_graph_type(graph(s), c);
            for (eqf_node n = eqf_next_node(e, c, (eqf_node){0});
                 n.i && (t.facts & RL_INDEX) && !s->spelled[c.i].i; n = eqf_next_node(e, c, n)) {
                ir_op op = is_leaf(s, n) ? IR_NO_OP : label_of(s, n).op;
                i64 arity = eqf_head_arity(graph(s)->lang, eqf_node_head(e, n));
                bool all = op == IR_NO_OP || op == IR_view || ir_row(op)->class_ == IR_EWISE;
                for (i64 i = 0; all && i < arity; i++)
                    all = s->spelled[kid(s, n, i)].i != 0;
                if (all) {
                    s->spelled[c.i] = n;
                    more = true;
                }
            }
        }
    }
}

static u32 write_opaque(search *s, u32 c)
{
    if (!s->opaque[c])
        s->opaque[c] =
            rl_fuse_opaque(s->f, eqf_next_node(graph(s)->engine, (eqf_class){c}, (eqf_node){0}));
    return s->opaque[c];
}

static u32 write_node(search *s, eqf_node n, const u32 *kids)
{
    eqf_head head = eqf_node_head(graph(s)->engine, n);
    rl_label l = rl_node_label(graph(s), head);
    for (i64 i = 0; i < eqf_head_arity(graph(s)->lang, head); i++)
        if (!kids[i])
            return 0;
    return rl_terms_make(s->f->t, l.op, l.reducer, eqf_head_payload(graph(s)->lang, head), kids,
                         eqf_head_arity(graph(s)->lang, head));
}

static u32 write_spelling(search *s, u32 c)
{
    eqf_node n = s->spelled[c];
    eqf_head head = eqf_node_head(graph(s)->engine, n);
    u32 kids[RL_MAX_VARS];
    if (!n.i || s->shown[c])
        return s->shown[c];
    if (is_leaf(s, n))
        return s->shown[c] = rl_terms_leaf(s->f->t, head);
    for (i64 i = 0; i < eqf_head_arity(graph(s)->lang, head); i++)
        kids[i] = write_spelling(s, kid(s, n, i));
    return s->shown[c] = write_node(s, n, kids);
}

/* An e-node that joins conditions, one of which at least is of iotas and numbers; none. */
static eqf_node joint_of(const search *s, u32 c, i64 depth)
{
    const eqf_egraph *e = graph(s)->engine;
    for (eqf_node n = eqf_next_node(e, (eqf_class){c}, (eqf_node){0}); n.i && depth > 0;
         n = eqf_next_node(e, (eqf_class){c}, n)) {
        ir_op op = is_leaf(s, n) ? IR_NO_OP : label_of(s, n).op;
        for (i64 i = 0; (op == IR_and || op == IR_or) && i < 2; i++)
            if (s->spelled[kid(s, n, i)].i || joint_of(s, kid(s, n, i), depth - 1).i)
                return n;
    }
    return (eqf_node){0};
}

enum { MOST_JOINED = 6 };

/* A mask: of iotas and numbers alone, or joined with conditions on data, which are not looked into. */
static u32 write_mask(search *s, u32 c, i64 depth)
{
    if (s->spelled[c].i)
        return write_spelling(s, c);
    eqf_node n = joint_of(s, c, depth);
    if (!n.i)
        return write_opaque(s, c);
    u32 kids[2]; /* in this order, whatever compiles it */
    for (i64 i = 0; i < 2; i++)
        kids[i] = write_mask(s, kid(s, n, i), depth - 1);
    return write_node(s, n, kids);
}

/* The class by a form that shows its fact; what has none is not looked into. */
static u32 write_fact(search *s, u32 c)
{
    const fact *own = &s->facts[c];
    eqf_node n = s->why[c];
    if (own->is_mask)
        return s->mask_text;
    if (!own->is_known && !own->is_finite)
        return write_opaque(s, c);
    if (s->record[c])
        return s->record[c];
    if (own->is_known && s->spelled[c].i && is_leaf(s, s->spelled[c]))
        return s->record[c] = write_spelling(s, c);
    u32 kids[3];
    rl_label l = label_of(s, n);
    i64 arity = eqf_head_arity(graph(s)->lang, eqf_node_head(graph(s)->engine, n));
    for (i64 i = 0; i < arity; i++)
        kids[i] = write_fact(s, kid(s, n, i));
    eqf_node test =
        l.op == IR_where ? node_over(s, kid(s, n, 0), IR_finite, kid(s, n, 1)) : (eqf_node){0};
    if (test.i && !s->facts[kid(s, n, 0)].is_mask)
        kids[0] = write_node(s, test, &kids[1]);
    return s->record[c] = write_node(s, n, kids);
}

/* A component whose body is shown to be its reducer's identity; 0: none is. */
static u32 write_component(search *s, u32 c)
{
    const eqf_egraph *e = graph(s)->engine;
    if (s->record[c])
        return s->record[c];
    for (eqf_node n = eqf_next_node(e, (eqf_class){c}, (eqf_node){0}); n.i;
         n = eqf_next_node(e, (eqf_class){c}, n)) {
        rl_label l = label_of(s, n);
        i64 arity = eqf_head_arity(graph(s)->lang, eqf_node_head(e, n));
        if (l.op != IR_comp || arity > RL_MAX_VARS)
            continue;
        if (l.reducer == IR_NO_REDUCER) { /* what its state does is seen when the loop is whole */
            u32 kids[RL_MAX_VARS];
            for (i64 i = 0; i < arity; i++)
                kids[i] = i ? write_fact(s, kid(s, n, i)) : write_opaque(s, kid(s, n, i));
            u32 made = write_node(s, n, kids);
            if (made)
                return s->record[c] = made;
            continue;
        }
        fact body = s->facts[kid(s, n, 0)];
        if (!body.is_known || body.value != ir_reducer_identity_f64(l.reducer))
            continue;
        u32 kids[RL_MAX_VARS];
        for (i64 i = 0; i < arity; i++)
            kids[i] = i == 0   ? write_fact(s, kid(s, n, i))
                      : i == 1 ? write_opaque(s, kid(s, n, i))
                               : write_component(s, kid(s, n, i));
        u32 made = write_node(s, n, kids);
        if (made)
            return s->record[c] = made;
    }
    return 0;
}

typedef struct visited {
    u32 left, right;
    u32 plain, got; /* a reduction by itself, and as the result of the loop on the left; 0: a loop that was there */
    bool lossy;
} visited;
typedef VEC(visited) visited_list;

static void try_loop(search *s, eqf_node loop, u32 mask, visited_list *out)
{
    rl_terms *t = s->f->t;
    eqf_head head = eqf_node_head(graph(s)->engine, loop);
    i64 n = eqf_head_arity(graph(s)->lang, head);
    u32 *comps = NEW_N(s->f->a, u32, n), own = eqf_head_payload(graph(s)->lang, head);
    u32 payload = visits_of(t, mask, graph(s)->payloads.at[own].par, s->lossy);
    if (!payload)
        return;
    for (i64 i = 0; i < n; i++) {
        comps[i] = write_component(s, kid(s, loop, i));
        if (!comps[i])
            return;
    }
    visited v = {.left = rl_terms_make(t, IR_loop, IR_NO_REDUCER, own, comps, n),
                 .right = rl_terms_make(t, IR_loop, IR_NO_REDUCER, payload, comps, n),
                 .lossy = s->lossy};
    if (v.left && v.right && rl_visits_follow(t, v.left, v.right, s->lossy))
        vec_push(s->f->a, out, v);
}

/* A reduction by itself, as a loop of one component. */
static void try_reduction(search *s, eqf_node n, u32 mask, visited_list *out)
{
    rl_graph *g = graph(s);
    rl_terms *t = s->f->t;
    rl_label l = label_of(s, n);
    fact known = s->facts[kid(s, n, 0)];
    if (!known.is_known || known.value != ir_reducer_identity_f64(l.reducer))
        return;
    u32 payload = visits_of(t, mask, l.par, s->lossy), body = payload ? write_fact(s, kid(s, n, 0)) : 0;
    if (!body)
        return;
    u32 comp = rl_terms_make(t, IR_comp, l.reducer, rl_payload_id(g, IR_comp, (ir_attr){0}), &body, 1);
    visited v = {.left = rl_terms_make(t, IR_loop, IR_NO_REDUCER, rl_par_payload(g, IR_loop, l.par), &comp, 1),
                 .right = rl_terms_make(t, IR_loop, IR_NO_REDUCER, payload, &comp, 1),
                 .plain = rl_terms_make(t, IR_reduce, l.reducer, rl_par_payload(g, IR_reduce, l.par), &body, 1),
                 .lossy = s->lossy};
    if (!v.left || !v.right || !v.plain || !rl_visits_follow(t, v.left, v.right, s->lossy))
        return;
    v.got = rl_terms_make(t, IR_get, IR_NO_REDUCER, 0, (u32[]){v.left, comp}, 2);
    if (v.got)
        vec_push(s->f->a, out, v);
}

bool rl_visit_round(rl_fuser *f)
{
    const eqf_egraph *e = f->g->engine;
    search s = {.f = f, .n = f->g->engine->class_ids};
    VEC(eqf_node) loops = {0}, reductions = {0};
    VEC(eqf_class) masks = {0};
    visited_list all = {0};
    s.facts = NEW_N(f->a, fact, s.n);
    s.why = NEW_N(f->a, eqf_node, s.n);
    s.spelled = NEW_N(f->a, eqf_node, s.n);
    s.record = NEW_N(f->a, u32, s.n);
    s.opaque = NEW_N(f->a, u32, s.n);
    s.shown = NEW_N(f->a, u32, s.n);
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c))
        for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
            rl_label l = is_leaf(&s, n) ? (rl_label){0} : label_of(&s, n);
            eqf_head head = eqf_node_head(e, n);
            if (l.op == IR_loop &&
                f->g->payloads.at[eqf_head_payload(f->g->lang, head)].attr.ints.n == 0)
                vec_push(f->a, &loops, n);
            if (l.op == IR_reduce && l.par)
                vec_push(f->a, &reductions, n);
            if (l.op != IR_where && l.op != IR_cast)
                continue;
            eqf_class mask = {kid(&s, n, 0)};
            rl_type type = rl_graph_type(f->g, mask);
            bool is_new = type.axes != 0 && type.dtype == DT_bool;
            for (i64 i = 0; i < masks.n; i++)
                is_new = is_new && masks.at[i].i != mask.i;
            if (is_new)
                vec_push(f->a, &masks, mask);
        }
    find_spellings(&s);
    i64 ways = f->g->options.fp >= RL_APPROXIMATE ? 2 : 1;
    for (i64 k = 0; k < ways * masks.n && loops.n + reductions.n > 0; k++) {
        s.mask = masks.at[k / ways];
        s.lossy = k % ways;
        if (!s.spelled[s.mask.i].i && !joint_of(&s, s.mask.i, MOST_JOINED).i)
            continue;
        s.mask_text = write_mask(&s, s.mask.i, MOST_JOINED);
        if (!s.mask_text)
            continue;
        find_facts(&s);
        for (i64 i = 0; i < loops.n; i++)
            try_loop(&s, loops.at[i], s.mask_text, &all);
        for (i64 i = 0; i < reductions.n; i++)
            try_reduction(&s, reductions.at[i], s.mask_text, &all);
    }
    bool any = false;
    for (i64 i = 0; i < all.n; i++) {
        const visited *v = &all.at[i];
        any = (v->plain && rl_fuse_unite(f, v->plain, v->got, "bundle")) || any;
        any = rl_fuse_unite(f, v->left, v->right, v->lossy ? "visit.approx" : "visit") || any;
    }
    return any;
}
