/* The rules that nobody writes: for every operator that a graph knows, how views and index maps
 * pass it (transfer.c), as rules of the engine. Which of them may fire is a question of economy,
 * asked here; that each is true, judges find again from a proof's text. */
#include "rules/graph_impl.h"

/* ---- firing ---------------------------------------------------------------------------------- */

enum { MOST_OPERANDS = 6 }; /* two variables of a guard are left for payloads */

typedef struct firing {
    rl_built kids[MOST_OPERANDS];
    rl_shape inner;
    u32 outer_payload;
    rl_type whole; /* of the inner e-node's class */
} firing;

static firing firing_of(const rl_generated *r, const eqf_class *args)
{
    rl_graph *g = r->g;
    firing f = {.inner = {.op = r->op, .reducer = r->reducer, .n = r->arity}};
    for (i64 i = 0; i < r->arity; i++)
        f.kids[i] = (rl_built){args[i].i, rl_graph_type(g, args[i])};
    f.inner.payload = r->has_payload ? args[r->arity].i : 0;
    f.outer_payload = r->outer == IR_NO_OP ? 0 : args[r->arity + r->has_payload].i;
    eqf_head head;
    rl_must(g, eqf_head_of(g->lang, r->engine_op, f.inner.payload, &head));
    eqf_class whole = eqf_lookup(g->engine, head, args, (size_t)r->arity);
    if (whole.i)
        f.whole = rl_graph_type(g, whole);
    return f;
}

/* Nothing passes what is read from memory or folded once; what is made of indices, or far larger than
 * what it is made of, may be made where it is used. */
static bool is_computed(const rl_type *t)
{
    return t->kind == IR_A_VALUE && t->dtype != DT_NONE && !t->axes && !(t->facts & RL_LOAD) &&
           (!(t->facts & RL_CONSTANT) || (t->facts & (RL_INDEX | RL_SPREAD)));
}

static bool passes(void *user, const eqf_egraph *e, const eqf_class *args)
{
    const rl_generated *r = user;
    firing f = firing_of(r, args);
    (void)e;
    if (r->op == IR_rename) /* also of what is read: its tiles are one class */
        return f.whole.kind == IR_A_VALUE && !f.whole.axes;
    if (!is_computed(&f.whole) || r->g->payloads.at[f.inner.payload].par)
        return false;
    if ((f.whole.facts & (RL_CONSTANT | RL_INDEX)) == RL_CONSTANT && rl_transfer_of(r->op) != RL_POINTWISE)
        return false; /* it is made by arithmetic alone */
    if (r->split)
        return !(f.whole.facts & RL_CONSTANT) &&
               (r->g->payloads.at[f.inner.payload].axis &
                rl_mask(r->g, (ir_atoms){&r->g->own->splits.at[r->split - 1].whole, 1}));
    if (r->outer == IR_NO_OP)
        return f.whole.dims == 0;
    /* a value that is wanted along some axes only is stored, not computed again */
    if (r->outer == IR_view && r->g->options.refine == RL_REFINE_MAXIMAL)
        return r->g->payloads.at[f.outer_payload].par == f.whole.dims;
    return true;
}

static eqf_status apply(void *user, eqf_egraph *e, eqf_class root, const eqf_class *args,
                        unsigned n, eqf_class *out)
{
    const rl_generated *r = user;
    trap t;
    (void)e, (void)root, (void)n;
    TRY (r->g->ctx, t) {
        firing f = firing_of(r, args);
        f.inner.kids = f.kids;
        rl_builder b = {.make = rl_add_node, .user = r->g};
        u32 c = r->split
                    ? rl_split_reduction(r->g, &b, r->split - 1, &f.inner)
                    : rl_pass_on(r->g, &b, r->outer, f.outer_payload, r->keeps_whole, &f.inner);
        if (c)
            out->i = c;
    }
    return t.status;
}

/* A value that is computed by tiles is the combination of its tiles. */
static bool combines(void *user, const eqf_egraph *e, const eqf_class *args)
{
    const rl_graph *g = user;
    rl_type t = rl_graph_type(g, args[0]);
    (void)e;
    return is_computed(&t) && !(t.facts & RL_CONSTANT) &&
           (g->options.refine == RL_REFINE_SUBSETS || g->payloads.at[args[1].i].par == t.dims);
}

/* ---- as text ----------------------------------------------------------------------------------
 */

/* The keyword under which an operator's payload is printed; NULL: it has none. */
static const char *keyword_of(ir_op op)
{
    switch (ir_row(op)->class_) {
    case IR_REDUCE:
    case IR_MATMUL:
    case IR_GATHER:
        return ":axis";
    case IR_EWISE:
        return op == IR_cast ? ":map" : NULL;
    default:
        return op == IR_view ? ":par" : ":map";
    }
}

static void write_inner(rl_graph *g, const rl_generated *r, str *out)
{
    str_printf(out, "(%s", rl_operator_name(g->a, r->op, r->reducer));
    for (i64 i = 0; i < r->arity; i++)
        str_printf(out, " ?x%lld", (long long)i);
    if (r->has_payload)
        str_printf(out, " %s ?P", keyword_of(r->op));
    str_add_char(out, ')');
}

static void write_rule(rl_graph *g, const rl_generated *r, str *out)
{
    str_printf(out, "(dynamic %s ", r->name);
    if (r->outer != IR_NO_OP)
        str_printf(out, "(%s ", ir_row(r->outer)->name);
    write_inner(g, r, out);
    if (r->outer != IR_NO_OP)
        str_printf(out, " %s ?V)", keyword_of(r->outer));
    str_printf(out, " => build.%s :when (when.%s", r->name, r->name);
    for (i64 i = 0; i < r->arity; i++)
        str_printf(out, " ?x%lld", (long long)i);
    str_printf(out, "%s%s))\n", r->has_payload ? " ?P" : "", r->outer != IR_NO_OP ? " ?V" : "");
}

static const char combining[] =
    "(multi combine (?t (view ?e :par ?V)) => (?e (comb ?t :par ?V)) :when (when.combine ?e ?V))\n"
    "(rule view-of-combination (view (comb ?t :par ?V) :par ?V) => ?t)\n";

/* rename.add, view.gather.2, refine.reduce.max, whole.matmul, split.1.matmul */
static const char *name_of(rl_graph *g, const rl_generated *r)
{
    const char *what = r->outer == IR_NO_OP ? "refine"
                       : r->keeps_whole     ? "whole"
                                            : ir_row(r->outer)->name;
    if (r->split)
        what = arena_printf(g->a, "split.%lld", (long long)r->split);
    what = arena_printf(g->a, "%s.%s", what, rl_operator_name(g->a, r->op, r->reducer));
    return ir_row(r->op)->arity < 0 ? arena_printf(g->a, "%s.%lld", what, (long long)r->arity)
                                    : what;
}

static bool is_known(const rl_graph *g, const char *name)
{
    for (i64 i = 0; i < g->generated.n; i++)
        if (strcmp(g->generated.at[i]->name, name) == 0)
            return true;
    return false;
}

static void generate(rl_graph *g, ir_op outer, i64 split, bool keeps_whole, eqf_op engine_op)
{
    const rl_operator *o = &g->operators.at[engine_op.i];
    rl_generated *r = NEW(g->a, rl_generated);
    *r = (rl_generated){.g = g,
                        .outer = outer,
                        .op = o->op,
                        .split = split,
                        .keeps_whole = keeps_whole,
                        .reducer = o->reducer,
                        .engine_op = engine_op,
                        .arity = g->lang->ops.at[engine_op.i].arity,
                        .has_payload = keyword_of(o->op) != NULL};
    r->name = name_of(g, r);
    if (is_known(g, r->name))
        return;
    eqf_guard guard = {.name = arena_printf(g->a, "when.%s", r->name),
                       .arity = (unsigned)(r->arity + r->has_payload + (outer != IR_NO_OP)),
                       .holds = passes,
                       .user = r};
    eqf_dynamic dynamic = {arena_printf(g->a, "build.%s", r->name), apply, r};
    rl_must(g, eqf_guard_add(g->lang, &guard));
    rl_must(g, eqf_dynamic_add(g->lang, &dynamic));
    vec_push(g->a, &g->generated, r);
    bool tiles = outer == IR_view || (outer == IR_NO_OP && !split);
    write_rule(g, r, tiles ? &g->tiling_text : &g->moving_text);
}

static void generate_for(rl_graph *g, eqf_op op)
{
    static const ir_op outer[] = {IR_view, IR_rename, IR_slice, IR_splitdim};
    rl_transfer how = rl_transfer_of(g->operators.at[op.i].op);
    if (g->operators.at[op.i].op == IR_rename)
        generate(g, IR_rename, 0, false, op);
    if (how == RL_NO_TRANSFER || how == RL_STOPS || how == RL_MOVES ||
        g->lang->ops.at[op.i].arity > MOST_OPERANDS)
        return;
    for (i64 i = 0; i < COUNT_OF(outer); i++)
        generate(g, outer[i], 0, false, op);
    if (how != RL_REDUCES && how != RL_MULTIPLIES)
        return;
    if (how == RL_MULTIPLIES) /* what the rules bring in; it is met later in the same walk */
        rl_operator_head(g, IR_reduce, IR_SUM, 1, 0);
    generate(g, IR_NO_OP, 0, false, op);
    if (g->options.refine == RL_REFINE_SUBSETS)
        generate(g, IR_view, 0, true, op);
    for (i64 i = 0; i < g->split_count; i++)
        generate(g, IR_NO_OP, 1 + i, false, op);
}

static eqf_rules *load(rl_graph *g, const char *what, bool moving, bool tiling)
{
    eqf_rules *rules;
    const char *text = arena_printf(g->a, "%s%s%s%s", moving ? g->rules_text : "",
                                    moving ? str_text(&g->moving_text) : "",
                                    tiling ? g->tiled_rules_text : "",
                                    tiling ? str_text(&g->tiling_text) : "");
    rl_must(g, eqf_rules_load(g->lang, what, eqf_text_of(text), &rules));
    vec_push(g->a, &g->loaded, rules);
    return rules;
}

void rl_generate(rl_graph *g)
{
    i64 before = g->generated.n;
    bool is_first = g->loaded.n == 0;
    if (is_first) {
        static const ir_op ours[] = {IR_view, IR_comb, IR_rename, IR_slice, IR_splitdim};
        for (i64 i = 0; i < COUNT_OF(ours); i++)
            rl_operator_head(g, ours[i], IR_NO_REDUCER, 1, 0);
        eqf_guard guard = {.name = "when.combine", .arity = 2, .holds = combines, .user = g};
        rl_must(g, eqf_guard_add(g->lang, &guard));
        g->moving_text = str_new(g->a);
        g->tiling_text = str_new(g->a);
        str_add(&g->tiling_text, combining);
        rl_generate_joining(g, &g->moving_text);
    }
    for (u32 k = 0; k < (u32)g->operators.n; k++)
        if (g->operators.at[k].op != IR_NO_OP)
            generate_for(g, (eqf_op){k});
    if (!is_first && g->generated.n == before)
        return;
    g->rules = load(g, "rules", true, false);
    g->tiling = load(g, "tiling", false, true);
}

eqf_rules *rl_all_rules(rl_graph *g)
{
    rl_generate(g);
    return load(g, "all", true, true);
}

/* ---- judging --------------------------------------------------------------------------------- */

static u32 write_term(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n)
{
    return rl_terms_make(user, l->op, l->reducer, map, kids, n);
}

static rl_shape shape_of(const rl_terms *j, arena *a, u32 id)
{
    const rl_record *x = &j->at.at[id];
    rl_built *kids = NEW_N(a, rl_built, x->n);
    for (i64 i = 0; i < x->n; i++)
        kids[i] = (rl_built){x->kids[i], j->at.at[x->kids[i]].type};
    return (rl_shape){x->op, x->reducer, x->payload, kids, x->n};
}

static bool is_passed_on(rl_terms *j, u32 from, u32 to, const rl_generated *r)
{
    const rl_record *x = &j->at.at[from];
    bool has_outer = r->outer != IR_NO_OP;
    if (has_outer && (x->n != 1 || x->op == IR_NO_OP))
        return false;
    ir_op outer = has_outer ? x->op : IR_NO_OP;
    u32 payload = has_outer ? x->payload : 0;
    rl_shape inner = shape_of(j, j->a, has_outer ? x->kids[0] : from);
    rl_builder b = {.make = write_term, .user = j};
    u32 built = r->split ? rl_split_reduction(j->g, &b, r->split - 1, &inner)
                         : rl_pass_on(j->g, &b, outer, payload, r->keeps_whole, &inner);
    return built && rl_terms_same(j, built, to);
}

bool rl_generated_step(rl_graph *g, const char *reason, const char *left, const char *right,
                       eqf_verdict *out)
{
    const rl_generated *r = NULL;
    if (rl_joining_step(g, reason, left, right, out))
        return true;
    if (strncmp(reason, "build.", 6) != 0)
        return false;
    for (i64 i = 0; i < g->generated.n && !r; i++)
        if (strcmp(g->generated.at[i]->name, reason + 6) == 0)
            r = g->generated.at[i];
    if (!r)
        return false;
    rl_terms *j = rl_terms_new(g, arena_child(g->a));
    u32 from = rl_terms_read(j, left), to = rl_terms_read(j, right);
    *out = from && to && is_passed_on(j, from, to, r) ? EQF_HOLDS : EQF_REFUSED;
    arena_free(j->a);
    return true;
}

bool rl_generated_guard(rl_graph *g, const char *name, const char *const *args, size_t n,
                        eqf_verdict *out)
{
    if (strncmp(name, "when.", 5) != 0)
        return false;
    if (strcmp(name, "when.combine") != 0) {
        if (!is_known(g, name + 5) && !rl_joining_guard(name))
            return false;
        *out = EQF_HOLDS; /* economy; what the step says is judged by itself */
        return true;
    }
    rl_terms *j = rl_terms_new(g, arena_child(g->a));
    static const char par[] = ":par";
    sx keyword = {.kind = SX_SYMBOL, .text = par, .n = sizeof par - 1};
    const sx *axes = n == 2 ? sx_read(j->a, "proof", args[1], (i64)strlen(args[1])) : NULL;
    u32 whole = axes && axes->n == 1 ? rl_terms_read(j, args[0]) : 0;
    u32 payload = whole ? rl_payload_of_text(g, (const sx *[]){&keyword, axes->at[0]}, 2) : 0;
    /* true of whatever has such tiles */
    u32 tiles = payload ? rl_terms_make(j, IR_view, IR_NO_REDUCER, payload, &whole, 1) : 0;
    *out = tiles && !j->at.at[whole].type.axes ? EQF_HOLDS : EQF_REFUSED;
    arena_free(j->a);
    return true;
}
