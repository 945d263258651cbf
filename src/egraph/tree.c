/* Tree extraction and what all extractions share.
 *
 * Costs only fall, from infinity, each time strictly, so the choices can never form a cycle. Infinity
 * is for what has no term; a sum that is too large for a double is the largest there is. A pass
 * in order of creation settles most classes at once, because children are usually older than their
 * users; a worklist over the users of what still improved does the rest. */
#include <float.h>
#include <math.h>

#include "egraph/extract.h"

/* ---- tree cost ----------------------------------------------------------------------------- */

static f64 node_cost(const eqf_extraction *x, u32 n, const u32 *rec)
{
    u32 arity = eg_node_arity(x->g, n, rec);
    f64 sum = eg_own_cost(x, n);
    for (u32 i = 0; i < arity; i++) {
        f64 cost = x->tree_cost[eg_kid(rec, n, i)];
        if (isinf(sum) || isinf(cost))
            return (f64)INFINITY;
        sum = MIN(sum + cost, DBL_MAX);
    }
    return sum;
}

/* One pass over a segment; marks classes that improved. */
static i64 pass(eqf_extraction *x, u32 seg, u8 *improved)
{
    const eg *g = x->g;
    i64 count = 0;
    for (u32 i = seg == 0; i < g->seg[seg].n;) {
        u32 n = seg << 29 | i;
        const u32 *rec = eg_rec(g, n);
        if (seg == EG_LONG && !rec[N_HEAD]) {
            i++;
            continue;
        }
        i += seg == EG_LONG ? 1 + eg_node_arity(g, n, rec) : 1;
        if (rec[N_STAMP] & S_FLAGS)
            continue;
        f64 cost = (f64)INFINITY;
        if (seg == 2)
            cost = eg_own_cost(x, n) + x->tree_cost[rec[N_KIDS]] + x->tree_cost[rec[N_KIDS + 2]];
        if (isinf(cost))
            cost = node_cost(x, n, rec);
        u32 c = rec[N_CLASS];
        if (cost < x->tree_cost[c]) {
            x->tree_cost[c] = cost;
            x->choice[c] = n;
            improved[c] = 1;
            count++;
        }
    }
    return count;
}

typedef VEC(u32) class_list;

/* Class c has a new cost: so may the classes of its users, which join `next`. */
static void improve_users(eqf_extraction *x, arena *a, u32 c, u8 *improved, class_list *next)
{
    const eg *g = x->g;
    u32 slot;
    improved[c] = 0;
    for (u32 cell = eg_body_of(g, c)->uses; cell; cell = eg_cell_next(g, cell)) {
        u32 user = eg_cell_node(g, cell, &slot);
        const u32 *rec = eg_rec(g, user);
        if (rec[N_STAMP] & S_FLAGS)
            continue;
        f64 cost = node_cost(x, user, rec);
        u32 d = rec[N_CLASS];
        if (!(cost < x->tree_cost[d]))
            continue;
        x->tree_cost[d] = cost;
        x->choice[d] = user;
        if (!improved[d]) {
            improved[d] = 1;
            vec_push(a, next, d);
        }
    }
}

void eg_tree(eqf_extraction *x)
{
    const eg *g = x->g;
    arena *a = arena_child(x->a);
    u8 *improved = NEW_N(a, u8, x->nclass);
    for (u32 c = 0; c < x->nclass; c++)
        x->tree_cost[c] = (f64)INFINITY;
    i64 count;
    do {
        memset(improved, 0, x->nclass);
        count = 0;
        for (u32 seg = 0; seg < 6; seg++)
            count += pass(x, seg, improved);
    } while (count > g->nclasses / 8);
    class_list work = {0}, next = {0}; /* few classes, mostly */
    for (u32 c = 1; c < x->nclass; c++) {
        if (improved[c])
            vec_push(a, &work, c);
    }
    while (work.n) {
        for (i64 i = 0; i < work.n; i++)
            improve_users(x, a, work.at[i], improved, &next);
        class_list done = work;
        work = next;
        next = done;
        next.n = 0;
    }
    arena_free(a);
}

/* ---- from choices to a result -------------------------------------------------------------- */

u32 *eg_needed(const eqf_extraction *x, u32 *count)
{
    const eg *g = x->g;
    u8 *state = NEW_N(x->a, u8, x->nclass); /* 1 open, 2 done */
    VEC(u32) order = {0};
    VEC(u32) stack = {0};
    for (u32 r = 0; r < x->nroots; r++) {
        vec_push(x->a, &stack, x->roots[r]);
        while (stack.n) {
            u32 c = stack.at[stack.n - 1], n = x->choice[c];
            if (state[c] == 2) {
                stack.n--;
                continue;
            }
            if (!n)
                eqf_throw(x->ctx, EQF_E_DATA, NULL, NULL,
                          "class %u, which is needed, has no finite term", c);
            const u32 *rec = eg_rec(g, n);
            u32 arity = eg_node_arity(g, n, rec);
            if (state[c] == 1) { /* children are done */
                state[c] = 2;
                vec_push(x->a, &order, c);
                stack.n--;
                continue;
            }
            state[c] = 1;
            for (u32 i = arity; i-- > 0;) {
                u32 kid = eg_kid(rec, n, i);
                if (state[kid] == 1)
                    eqf_bug(x->ctx, "the extracted choices form a cycle");
                if (state[kid] == 0)
                    vec_push(x->a, &stack, kid);
            }
        }
    }
    *count = (u32)order.n;
    return order.at;
}

void eg_recost(eqf_extraction *x)
{
    u32 n, *order = eg_needed(x, &n);
    x->dag_cost = 0;
    for (u32 i = 0; i < n; i++) {
        u32 c = order[i], node = x->choice[c];
        x->tree_cost[c] = node_cost(x, node, eg_rec(x->g, node));
        x->dag_cost = MIN(x->dag_cost + eg_own_cost(x, node), DBL_MAX);
    }
}

static void own_costs(eqf_extraction *x, const eqf_cost *cost)
{
    const eg *g = x->g;
    for (u32 seg = 0; seg < 6; seg++) {
        x->own[seg] = NEW_N(x->a, f64, g->seg[seg].n);
        for (u32 i = seg == 0; i < g->seg[seg].n;) {
            u32 n = seg << 29 | i;
            const u32 *rec = eg_rec(g, n);
            if (seg == EG_LONG && !rec[N_HEAD]) {
                i++;
                continue;
            }
            if (!(rec[N_STAMP] & S_FLAGS)) {
                f64 v = cost->of(cost->user, g, (eqf_node){n});
                if (!(v >= 0))
                    eqf_throw(x->ctx, EQF_E_ARGUMENT, NULL,
                              eqf_head_name(g->lang, (eqf_head){rec[N_HEAD]}),
                              "the cost of an e-node is %g; it must be 0 or more", v);
                x->own[seg][i] = v;
            }
            i += seg == EG_LONG ? 1 + eg_node_arity(g, n, rec) : 1;
        }
    }
}

eqf_status eqf_extract(eqf_egraph *g, const eqf_class *roots, size_t n, const eqf_cost *cost,
                       eqf_algo algo, eqf_extraction **out)
{
    *out = NULL;
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    for (size_t i = 0; i < n; i++) {
        s = eg_check_class(g, roots[i], "eqf_extract");
        if (s)
            return s;
    }
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        eqf_extraction *x = NEW(a, eqf_extraction);
        *x = (eqf_extraction){.ctx = g->ctx, .a = a, .g = g, .nclass = g->class_ids,
                               .state = eg_state_of(g)};
        x->choice = NEW_N(a, u32, x->nclass);
        x->tree_cost = NEW_N(a, f64, x->nclass);
        x->roots = NEW_N(a, u32, n);
        for (size_t i = 0; i < n; i++) {
            u32 c = eg_find(g, roots[i].i);
            bool seen = false;
            for (u32 k = 0; k < x->nroots && !seen; k++)
                seen = x->roots[k] == c;
            if (!seen)
                x->roots[x->nroots++] = c;
        }
        if (cost && cost->of)
            own_costs(x, cost);
        eg_tree(x);
        if (algo != EQF_TREE)
            eg_dag(x);
        if (algo == EQF_EXACT)
            eg_exact(x, cost && cost->seconds > 0 ? cost->seconds : 10);
        eg_recost(x);
        if (algo != EQF_EXACT)
            x->exact = (eqf_exact_report){0, false, 0};
        *out = x;
    }
    if (t.status)
        arena_free(a);
    return t.status;
}

void eqf_extraction_free(eqf_extraction *x)
{
    if (x)
        arena_free(x->a);
}

/* The class at the time; 0, which has no choice, when there was none. */
static u32 class_then(const eqf_extraction *x, eqf_class c)
{
    u32 root = eqf_find(x->g, c).i;
    return root < x->nclass ? root : 0;
}

eqf_node eqf_chosen(const eqf_extraction *x, eqf_class c)
{
    return (eqf_node){x->choice[class_then(x, c)]};
}

double eqf_tree_cost(const eqf_extraction *x, eqf_class c)
{
    return x->tree_cost[class_then(x, c)];
}

double eqf_dag_cost(const eqf_extraction *x)
{
    return x->dag_cost;
}

eqf_exact_report eqf_extraction_report(const eqf_extraction *x)
{
    return x->exact;
}

/* ---- text ---------------------------------------------------------------------------------- */

typedef struct printer {
    eqf_extraction *x;
    str out;
    const u32 *uses; /* by class; NULL: print every occurrence */
    const u32 *name; /* number of the let that holds the class, 0 none */
    i64 limit;
} printer;

/* An e-node whose operands are being written. */
typedef struct unfinished {
    u32 node, next;
} unfinished;

/* Writes a class up to its first operand: true when it has one. */
static bool begin_class(printer *p, u32 c, bool by_name)
{
    if (by_name && p->name && p->name[c]) {
        str_printf(&p->out, "t%u", p->name[c]);
        return false;
    }
    const eg *g = p->x->g;
    u32 n = p->x->choice[c];
    const u32 *rec = eg_rec(g, n);
    if (eg_node_arity(g, n, rec)) {
        str_add_char(&p->out, '(');
        eg_print_head(g->lang, &p->out, rec[N_HEAD]);
        return true;
    }
    eg_print_head(g->lang, &p->out, rec[N_HEAD]);
    eg_print_payload(g->lang, &p->out, rec[N_HEAD]);
    return false;
}

/* As deep as the term is: no recursion. */
static void print_class(printer *p, u32 c, bool by_name)
{
    const eg *g = p->x->g;
    VEC(unfinished) open = {0};
    if (begin_class(p, c, by_name))
        vec_push(p->x->a, &open, (unfinished){p->x->choice[c], 0});
    while (open.n) {
        unfinished *top = &open.at[open.n - 1];
        const u32 *rec = eg_rec(g, top->node);
        if (top->next == eg_node_arity(g, top->node, rec)) {
            eg_print_payload(g->lang, &p->out, rec[N_HEAD]);
            str_add_char(&p->out, ')');
            open.n--;
            continue;
        }
        if (p->out.n > p->limit)
            eqf_throw(p->x->ctx, EQF_E_LIMIT, NULL, NULL, "the term has more than %lld characters",
                      (long long)p->limit);
        str_add_char(&p->out, ' ');
        u32 kid = eg_kid(rec, top->node, top->next++);
        if (begin_class(p, kid, true))
            vec_push(p->x->a, &open, (unfinished){p->x->choice[kid], 0});
    }
}

eqf_status eqf_extraction_text(eqf_extraction *x, eqf_class root, bool shared, size_t limit,
                               const char **out)
{
    static const char none[] = "";
    *out = none;
    eqf_status s = eg_check_class(x->g, root, "eqf_extraction_text");
    if (s)
        return s;
    if (!eg_state_is(x->g, &x->state))
        return eqf_report(x->ctx, EQF_E_ARGUMENT, NULL, "eqf_extraction_text",
                          "the e-graph has changed since the extraction");
    trap t;
    TRY(x->ctx, t)
    {
        printer p = {.x = x, .out = str_new(x->a), .limit = limit ? (i64)limit : 1000000};
        u32 r = eg_find(x->g, root.i);
        eqf_extraction one = *x;
        one.roots = &r;
        one.nroots = 1;
        u32 n, *order = eg_needed(&one, &n);
        u32 *uses = NEW_N(x->a, u32, x->nclass), *name = NEW_N(x->a, u32, x->nclass), lets = 0;
        for (u32 k = 0; k < n && shared; k++) {
            u32 node = x->choice[order[k]];
            const u32 *rec = eg_rec(x->g, node);
            u32 arity = eg_node_arity(x->g, node, rec);
            for (u32 i = 0; i < arity; i++)
                uses[eg_kid(rec, node, i)]++;
        }
        p.name = name;
        for (u32 k = 0; k < n && shared; k++) {
            u32 c = order[k], node = x->choice[c];
            if (uses[c] < 2 || c == r || !eg_node_arity(x->g, node, eg_rec(x->g, node)))
                continue;
            str_printf(&p.out, "(let t%u ", lets + 1);
            print_class(&p, c, false);
            str_add(&p.out, " ");
            name[c] = ++lets;
        }
        print_class(&p, r, false);
        for (u32 k = 0; k < lets; k++)
            str_add_char(&p.out, ')');
        *out = str_text(&p.out);
    }
    return t.status;
}
