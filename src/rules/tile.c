/* Tiling on demand. A view of each output goes in; the generated rules pass it on, and each value
 * that got tiles is their combination. What is met on the way and cannot be tiled (an operator of
 * whole values, a value wanted whole along some atom) has operands that must be stored: they are
 * wanted as a whole and get views of their own, until nothing more is wanted. Twice the classes, no
 * search.                                                                    (space.md §4, §5) */
#include "rules/graph_impl.h"

enum { MOST_SUBSETS = 8 }; /* dims of a value that is cut in every way */

/* Puts the views of a value that is computed: along all its axes, or along every set of them. Was
 * one new? */
static bool want(rl_graph *g, eqf_class c)
{
    rl_type t = rl_graph_type(g, c);
    if (t.kind != IR_A_VALUE || t.axes || (t.facts & (RL_LOAD | RL_CONSTANT)))
        return false;
    i64 before = eqf_egraph_size(g->engine).nodes;
    bool one =
        g->options.refine == RL_REFINE_MAXIMAL || __builtin_popcountll(t.dims) > MOST_SUBSETS;
    for (u64 axes = t.dims; axes; axes = one ? 0 : (axes - 1) & t.dims) {
        eqf_class tiles;
        eqf_head head =
            rl_operator_head(g, IR_view, IR_NO_REDUCER, 1, rl_par_payload(g, IR_view, axes));
        rl_must(g, eqf_add(g->engine, head, &c, 1, &tiles));
    }
    return eqf_egraph_size(g->engine).nodes > before;
}

static bool want_operands(rl_graph *g, eqf_node n)
{
    i64 arity = eqf_head_arity(g->lang, eqf_node_head(g->engine, n));
    bool any = false;
    for (i64 i = 0; i < arity; i++)
        any |= want(g, eqf_node_child(g->engine, n, (unsigned)i));
    return any;
}

/* Has the class a form other than views? */
static bool is_tiled(const rl_graph *g, eqf_class tiles)
{
    for (eqf_node n = eqf_next_node(g->engine, tiles, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, tiles, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (rl_leaf_of(g, head) || rl_node_label(g, head).op != IR_view)
            return true;
    }
    return false;
}

/* The value's tiles are read: it is stored, and its operands are wanted. */
static bool store(rl_graph *g, eqf_class whole)
{
    rl_type t = rl_graph_type(g, whole);
    bool any = false;
    if (!(t.facts & RL_STORED)) {
        t.facts |= RL_STORED;
        rl_must(g, eqf_data_join(g->engine, g->type_column, whole, &t));
        any = true;
    }
    for (eqf_node n = eqf_next_node(g->engine, whole, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, whole, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (!rl_leaf_of(g, head) && rl_transfer_of(rl_node_label(g, head).op) != RL_NO_TRANSFER)
            any |= want_operands(g, n);
    }
    return any;
}

/* A table that has no dim but what is looked up by has no view of the gather's tiles. */
static bool takes_whole(const rl_graph *g, eqf_head head)
{
    rl_transfer how = rl_leaf_of(g, head) ? RL_NO_TRANSFER : rl_transfer_of(rl_node_label(g, head).op);
    return how == RL_STOPS || how == RL_GATHERS;
}

/* What a view needs besides what the rules did: was anything new? */
static bool complete(rl_graph *g, eqf_node view)
{
    eqf_class whole = eqf_node_child(g->engine, view, 0);
    rl_type t = rl_graph_type(g, whole);
    u64 axes = g->payloads.at[eqf_head_payload(g->lang, eqf_node_head(g->engine, view))].par;
    bool any = false;
    if (t.axes || (t.facts & (RL_LOAD | RL_CONSTANT)))
        return false;
    if (axes != t.dims && g->options.refine == RL_REFINE_MAXIMAL)
        return want(g, whole);
    for (eqf_node n = eqf_next_node(g->engine, whole, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, whole, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (takes_whole(g, head))
            any |= want_operands(g, n);
    }
    if (!is_tiled(g, eqf_node_class(g->engine, view)))
        any |= store(g, whole);
    return any;
}

/* Values without atoms have no views: what stops above them is looked for directly. */
static bool complete_scalar(rl_graph *g, eqf_class c)
{
    rl_type t = rl_graph_type(g, c);
    bool any = false;
    if (t.kind != IR_A_VALUE || t.axes || t.dims || (t.facts & (RL_LOAD | RL_CONSTANT)))
        return false;
    for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, c, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (takes_whole(g, head))
            any |= want_operands(g, n);
    }
    return any;
}

static bool has_product(const rl_graph *g, eqf_class c)
{
    for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, c, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (!rl_leaf_of(g, head) && rl_node_label(g, head).op == IR_matmul)
            return true;
    }
    return false;
}

/* A product of which several parts, or orders, have tiles may be made once and read at their index maps:
 * its own tiles are wanted too. */
static bool want_shared(rl_graph *g, arena *scratch, const eqf_node *views, i64 n)
{
    typedef struct reading {
        eqf_class of;
        eqf_node by;
    } reading;
    VEC(reading) all = {0};
    for (i64 i = 0; i < n; i++) {
        eqf_class whole = eqf_node_child(g->engine, views[i], 0);
        for (eqf_node k = eqf_next_node(g->engine, whole, (eqf_node){0}); k.i;
             k = eqf_next_node(g->engine, whole, k)) {
            eqf_head head = eqf_node_head(g->engine, k);
            if (rl_leaf_of(g, head) || ir_row(rl_node_label(g, head).op)->class_ != IR_INDEX)
                continue;
            reading x = {eqf_node_child(g->engine, k, 0), k};
            if (has_product(g, x.of))
                vec_push(scratch, &all, x);
        }
    }
    bool any = false;
    for (i64 i = 0; i < all.n; i++)
        for (i64 k = 0; k < i; k++)
            if (all.at[k].of.i == all.at[i].of.i && all.at[k].by.i != all.at[i].by.i) {
                any |= want(g, all.at[i].of);
                break;
            }
    return any;
}

static bool complete_all(rl_graph *g)
{
    VEC(eqf_node) views = {0};
    VEC(eqf_class) scalars = {0};
    arena *scratch = arena_child(g->a);
    eqf_egraph *e = g->engine;
    bool any = false;
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c)) {
        if (!rl_graph_type(g, c).dims)
            vec_push(scratch, &scalars, c);
        for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
            eqf_head head = eqf_node_head(e, n);
            if (!rl_leaf_of(g, head) && rl_node_label(g, head).op == IR_view)
                vec_push(scratch, &views, n);
        }
    }
    for (i64 i = 0; i < views.n; i++)
        any |= complete(g, views.at[i]);
    for (i64 i = 0; i < scalars.n; i++)
        any |= complete_scalar(g, scalars.at[i]);
    any |= want_shared(g, scratch, views.at, views.n);
    arena_free(scratch);
    rl_must(g, eqf_rebuild(e));
    return any;
}

static void add_report(eqf_run_report *sum, eqf_run_report run)
{
    sum->stop = run.stop;
    sum->iterations += run.iterations;
    sum->matches += run.matches;
    sum->changed |= run.changed;
    sum->search_s += run.search_s;
    sum->apply_s += run.apply_s;
    sum->rebuild_s += run.rebuild_s;
    sum->total_s += run.total_s;
}

eqf_run_report rl_graph_tile(rl_graph *g, const eqf_schedule *schedule)
{
    rl_generate(g);
    return rl_tile_with(g, g->tiling, schedule);
}

static bool want_outputs(rl_graph *g)
{
    bool any = false;
    for (i64 i = 0; i < g->p->outputs.n; i++)
        if (g->p->outputs.at[i].term.i)
            any |= want(g, rl_graph_class(g, g->p->outputs.at[i].term));
    rl_must(g, eqf_rebuild(g->engine));
    return any;
}

/* A step that adds e-nodes; where there is no room for them that is why the run stops. */
static bool adds(rl_graph *g, bool (*step)(rl_graph *g), eqf_run_report *report)
{
    volatile bool any = false;
    trap t;
    TRY (g->ctx, t)
        any = step(g);
    if (t.status == EQF_E_LIMIT)
        report->stop = EQF_STOP_BYTES;
    else if (t.status)
        eqf_rethrow(g->ctx, t.status);
    report->changed |= any;
    return any && !t.status;
}

eqf_run_report rl_tile_with(rl_graph *g, const eqf_rules *rules, const eqf_schedule *schedule)
{
    eqf_run_report report = {.stop = EQF_STOP_SATURATED};
    adds(g, want_outputs, &report);
    while (report.stop == EQF_STOP_SATURATED) {
        add_report(&report, rl_run(g, rules, schedule));
        if (report.stop != EQF_STOP_SATURATED || !adds(g, complete_all, &report))
            break;
    }
    return report;
}
