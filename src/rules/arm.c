/* Rules of files as the engine runs them. Matching, guards on classes and plain right sides are the
 * engine's; a right side that computes (a set, an extent, a number) is built here from the rule's
 * own term. Each rule has one engine guard, which sees all of its variables: dtypes, numbers on the
 * left, and the rule's :when. */
#include <math.h>

#include "rules/graph_impl.h"

void rl_bind_payload(const rl_graph *g, u8 kind, u32 payload, rl_binding *b)
{
    const rl_payload *p = &g->payloads.at[payload];
    b->id = payload;
    b->type.dims = kind == RL_VAR_PAR ? p->par : p->axis;
    b->to = p->to;
    for (i64 k = 0; k < MIN(p->attr.axis.n, RL_MAX_PARTS); k++)
        b->part[k] = p->each[k];
}

static void bind(const rl_graph *g, const rl_rule *r, const eqf_class *args, rl_env *env)
{
    *env = (rl_env){.rule = r, .extent = g->extent, .ragged = g->ragged};
    for (i64 v = 0; v < r->n_vars; v++) {
        rl_binding *b = &env->at[v];
        b->id = args[v].i;
        if (r->vars[v].kind == RL_VAR_TERM) {
            b->type = rl_graph_type(g, args[v]);
            continue;
        }
        rl_bind_payload(g, r->vars[v].kind, args[v].i, b);
    }
}

bool rl_dtypes_fit(const rl_rule *r, const rl_env *env)
{
    for (i64 v = 0; v < r->n_vars; v++) {
        if (r->vars[v].kind != RL_VAR_TERM)
            continue;
        const rl_type *t = &env->at[v].type;
        dtype_kind kind = dtype_kind_of((dtype)t->dtype);
        u8 bit = kind == DK_FLOAT ? RL_FLOATS : kind == DK_INT ? RL_INTEGERS : RL_BOOLS;
        if (r->slots[r->vars[v].slot] == DT_NONE && !(r->kinds & bit))
            return false;
        if (r->vars[v].is_number &&
            (!(t->facts & RL_IS_NUMBER) || t->number != r->vars[v].number || t->dims))
            return false;
    }
    return true;
}

/* Rules without :par are about whole tensors: tiling is a homomorphism, so on tiles they would find
 * nothing that is not there already, and an extent would be that of a tile. */
bool rl_states_fit(const rl_graph *g, const rl_rule *r, const rl_env *env)
{
    for (i64 v = 0; v < r->n_vars; v++) {
        const rl_binding *b = &env->at[v];
        u8 kind = r->vars[v].kind;
        if (kind == RL_VAR_TERM ? b->type.kind != IR_A_VALUE || (b->type.axes && !r->is_tiled)
                                : (g->payloads.at[b->id].par != 0) != (kind == RL_VAR_PAR))
            return false;
    }
    return true;
}

static bool holds(void *user, const eqf_egraph *e, const eqf_class *args)
{
    (void)e;
    const rl_armed *armed = user;
    rl_env env;
    bind(armed->g, armed->rule, args, &env);
    return rl_states_fit(armed->g, armed->rule, &env) && rl_dtypes_fit(armed->rule, &env) &&
           (!armed->rule->when || rl_guard_holds(&env, armed->rule->when));
}

/* ---- right sides that compute ---------------------------------------------------------------- */

u32 rl_set_payload(rl_graph *g, const rl_label *l)
{
    return l->par ? rl_par_payload(g, l->op, l->par) : rl_axis_payload(g, l->op, l->axis);
}

u32 rl_add_node(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n)
{
    rl_graph *g = user;
    eqf_class x[RL_MAX_VARS], out;
    for (i64 i = 0; i < n; i++)
        x[i].i = kids[i];
    eqf_head head;
    if (l->op == IR_const)
        head = rl_number_head(g, l->dtype, l->number);
    else
        head = rl_operator_head(g, l->op, l->reducer, n, map ? map : rl_set_payload(g, l));
    rl_must(g, eqf_add(g->engine, head, x, (size_t)n, &out));
    return out.i;
}

static eqf_status apply(void *user, eqf_egraph *e, eqf_class root, const eqf_class *args,
                        unsigned n, eqf_class *out)
{
    (void)n;
    rl_armed *armed = user;
    rl_graph *g = armed->g;
    trap t;
    TRY (g->ctx, t) {
        rl_env env;
        rl_builder builder = {.make = rl_add_node, .user = g};
        bind(g, armed->rule, args, &env);
        rl_type want = rl_graph_type(g, root);
        u32 c = rl_build(&env, armed->rule->right, (dtype)want.dtype, &builder);
        if (c)
            out->i = c;
    }
    (void)e;
    return t.status;
}

/* ---- text for the engine --------------------------------------------------------------------- */

static void write_term(rl_graph *g, const rl_rule *r, const rl_term *t, str *out)
{
    if (t->kind == RL_TERM_VAR) {
        str_add(out, r->vars[t->var].name);
        return;
    }
    str_printf(out, "(%s", rl_operator_name(g->a, t->op, t->reducer));
    for (i64 i = 0; i < t->n; i++) {
        str_add_char(out, ' ');
        write_term(g, r, t->kids[i], out);
    }
    if (t->axis)
        str_printf(out, " :axis %s", r->vars[t->axis->var].name);
    if (t->par)
        str_printf(out, " :par %s", r->vars[t->par->var].name);
    if (t->var >= 0)
        str_printf(out, " :map %s", r->vars[t->var].name);
    str_add_char(out, ')');
}

/* Operators must be known to the engine with their flags before a rule names them. */
static void declare(rl_graph *g, const rl_term *t)
{
    if (t->kind != RL_TERM_OP)
        return;
    rl_operator_head(g, t->op, t->reducer, t->n, 0);
    for (i64 i = 0; i < t->n; i++)
        declare(g, t->kids[i]);
}

static void write_rule(rl_graph *g, const rl_rule *r, str *out)
{
    declare(g, r->left);
    declare(g, r->right);
    str_printf(out, "(%s %s ", r->computes ? "dynamic" : "rule", r->name);
    write_term(g, r, r->left, out);
    str_add(out, " => ");
    if (r->computes)
        str_printf(out, "build.%s", r->name);
    else
        write_term(g, r, r->right, out);
    str_printf(out, " :when (when.%s", r->name);
    for (i64 v = 0; v < r->n_vars; v++)
        str_printf(out, " %s", r->vars[v].name);
    str_add(out, "))\n");
}

void rl_arm(rl_graph *g)
{
    const rl_ruleset *set = g->options.rules;
    i64 n = set ? set->rules.n : 0;
    g->armed = NEW_N(g->a, rl_armed, n);
    str text = str_new(g->a), tiled = str_new(g->a);
    str_add(&text, "");
    str_add(&tiled, "");
    for (i64 i = 0; i < n; i++) {
        const rl_rule *r = set->rules.at[i];
        if (r->fp > g->options.fp)
            continue;
        g->armed[i] = (rl_armed){g, r};
        eqf_guard guard = {.name = arena_printf(g->a, "when.%s", r->name),
                           .arity = (unsigned)r->n_vars,
                           .holds = holds,
                           .user = &g->armed[i],
                           .reads_data = r->when && rl_guard_reads_facts(r->when)};
        rl_must(g, eqf_guard_add(g->lang, &guard));
        eqf_dynamic dynamic = {arena_printf(g->a, "build.%s", r->name), apply, &g->armed[i]};
        if (r->computes)
            rl_must(g, eqf_dynamic_add(g->lang, &dynamic));
        write_rule(g, r, r->is_tiled ? &tiled : &text);
    }
    g->rules_text = str_text(&text);
    g->tiled_rules_text = str_text(&tiled);
    rl_generate(g);
}
