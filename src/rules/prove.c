/* Judges for the independent checker. They see text only: a term is typed from its own operators
 * and leaves, whatever classes the e-graph had. */
#include "rules/graph_impl.h"

/* ---- rules ----------------------------------------------------------------------------------- */

static const rl_rule *find_rule(const rl_graph *g, const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || !g->options.rules)
        return NULL;
    return rl_ruleset_find(g->options.rules, name + n);
}

static bool match(rl_terms *j, rl_env *env, bool *bound, const rl_term *t, u32 id)
{
    const rl_record x = j->at.at[id];
    if (t->kind == RL_TERM_VAR) {
        rl_binding *b = &env->at[t->var];
        if (bound[t->var])
            return rl_terms_same(j, b->id, id);
        bound[t->var] = true;
        *b = (rl_binding){.type = x.type, .id = id};
        return true;
    }
    if (x.op != t->op || x.reducer != t->reducer || x.n != t->n)
        return false;
    for (i64 i = 0; i < t->n; i++)
        if (!match(j, env, bound, t->kids[i], x.kids[i]))
            return false;
    i64 v = t->axis ? t->axis->var : t->par ? t->par->var : t->var;
    if (v < 0)
        return true;
    if (bound[v])
        return env->at[v].id == x.payload;
    bound[v] = true;
    rl_bind_payload(j->g, env->rule->vars[v].kind, x.payload, &env->at[v]);
    return true;
}

static u32 make(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n)
{
    rl_terms *j = user;
    if (l->op == IR_const)
        return rl_terms_leaf(j, rl_number_head(j->g, l->dtype, l->number));
    return rl_terms_make(j, l->op, l->op == IR_reduce ? l->reducer : IR_NO_REDUCER,
                         map ? map : rl_set_payload(j->g, l), kids, n);
}

static bool has_kid(const rl_terms *j, u32 id, u32 kid)
{
    const rl_record *x = &j->at.at[id];
    for (i64 i = 0; i < x->n; i++)
        if (rl_terms_same(j, x->kids[i], kid))
            return true;
    return false;
}

/* Two bundles over the same axes with the same set of components. */
static bool same_bundle(const rl_terms *j, u32 from, u32 to)
{
    const rl_record *x = &j->at.at[from], *y = &j->at.at[to];
    bool same = x->op == IR_loop && y->op == IR_loop && x->payload == y->payload;
    for (i64 i = 0; same && i < x->n; i++)
        same = has_kid(j, to, x->kids[i]);
    for (i64 i = 0; same && i < y->n; i++)
        same = has_kid(j, from, y->kids[i]);
    return same;
}

static eqf_verdict judge_normalise(rl_graph *g, const char *left, const char *right)
{
    rl_terms *j = rl_terms_new(g, arena_child(g->a));
    u32 from = rl_terms_read(j, left), to = rl_terms_read(j, right);
    bool holds = from && to && same_bundle(j, from, to);
    arena_free(j->a);
    return holds ? EQF_HOLDS : EQF_REFUSED;
}

/* Is `right` what the rule's right side computes from `left`? */
static eqf_verdict judge_step(void *user, const char *reason, const char *left, const char *right)
{
    rl_graph *g = user;
    eqf_verdict verdict;
    if (g->options.cancelled && g->options.cancelled(g->options.user))
        eqf_throw(g->ctx, EQF_E_LIMIT, NULL, NULL, "the time for checking a proof was over");
    if (strcmp(reason, "normalise") == 0)
        return judge_normalise(g, left, right);
    if (rl_generated_step(g, reason, left, right, &verdict))
        return verdict;
    if (strcmp(reason, "bundle") == 0 || strncmp(reason, "visit", 5) == 0 ||
        strncmp(reason, "loop.", 5) == 0 || strncmp(reason, "part.", 5) == 0)
        return rl_judge_fusion(g, reason, left, right);
    const rl_rule *r = find_rule(g, reason, "build.");
    if (!r)
        return EQF_REFUSED;
    rl_terms *j = rl_terms_new(g, arena_child(g->a));
    rl_env env = {.rule = r, .extent = g->extent, .ragged = g->ragged};
    bool bound[RL_MAX_VARS] = {false}, holds = false;
    u32 from = rl_terms_read(j, left), to = rl_terms_read(j, right);
    if (from && to && match(j, &env, bound, r->left, from)) {
        rl_builder builder = {.make = make, .user = j};
        u32 built = rl_build(&env, r->right, (dtype)j->at.at[from].type.dtype, &builder);
        holds = built && rl_states_fit(g, r, &env) && rl_terms_same(j, built, to);
    }
    arena_free(j->a);
    return holds ? EQF_HOLDS : EQF_REFUSED;
}

static bool bind_texts(rl_terms *j, const rl_rule *r, const char *const *args, rl_env *env)
{
    for (i64 v = 0; v < r->n_vars; v++) {
        rl_binding *b = &env->at[v];
        if (r->vars[v].kind == RL_VAR_TERM) {
            b->id = rl_terms_read(j, args[v]);
            if (!b->id)
                return false;
            b->type = j->at.at[b->id].type;
            continue;
        }
        const sx *value = sx_read(j->a, "proof", args[v], (i64)strlen(args[v]));
        u8 kind = r->vars[v].kind;
        const char *key = kind == RL_VAR_AXES ? ":axis" : kind == RL_VAR_PAR ? ":par" : ":map";
        sx keyword = {.kind = SX_SYMBOL, .text = key, .n = (i64)strlen(key)};
        if (value->n != 1)
            return false;
        u32 payload = rl_payload_of_text(j->g, (const sx *[]){&keyword, value->at[0]}, 2);
        if (!payload)
            return false;
        rl_bind_payload(j->g, kind, payload, b);
    }
    return true;
}

/* Does the guard hold if some of the variables' classes had facts that these terms do not show? */
static bool holds_with_facts(const rl_rule *r, const rl_env *env)
{
    if (!rl_guard_reads_facts(r->when))
        return false;
    for (u32 who = 1; who < 1u << r->n_vars; who++) {
        rl_env richer = *env;
        for (i64 v = 0; v < MIN(r->n_vars, RL_MAX_VARS); v++)
            if (who >> v & 1)
                richer.at[v].type.facts |= RL_CONSTANT | RL_IS_POSITIVE;
        if (rl_guard_holds(&richer, r->when))
            return true;
    }
    return false;
}

static eqf_verdict judge_guard(void *user, const char *name, const char *const *args, size_t n)
{
    rl_graph *g = user;
    eqf_verdict verdict = EQF_REFUSED;
    if (rl_generated_guard(g, name, args, n, &verdict))
        return verdict;
    const rl_rule *r = find_rule(g, name, "when.");
    if (!r || (i64)n != r->n_vars)
        return EQF_REFUSED;
    rl_terms *j = rl_terms_new(g, arena_child(g->a));
    rl_env env = {.rule = r, .extent = g->extent, .ragged = g->ragged};
    if (bind_texts(j, r, args, &env) && rl_dtypes_fit(r, &env) && rl_states_fit(g, r, &env))
        verdict = !r->when || rl_guard_holds(&env, r->when) ? EQF_HOLDS
                  : holds_with_facts(r, &env)               ? EQF_ASSUMED
                                                            : EQF_REFUSED;
    arena_free(j->a);
    return verdict;
}

eqf_checking rl_graph_checking(rl_graph *g)
{
    str names = str_new(g->a);
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if ((ir_row(op)->flags & IR_COMM) && ir_row(op)->arity == 2)
            str_printf(&names, "%s%s", names.n ? " " : "", ir_row(op)->name);
    const char *text = arena_printf(g->a, "%s%s%s%s", g->rules_text, str_text(&g->moving_text),
                                    g->tiled_rules_text, str_text(&g->tiling_text));
    return (eqf_checking){.rules = eqf_text_of(text),
                          .commutative = eqf_text_of(str_text(&names)),
                          .step = judge_step,
                          .guard = judge_guard,
                          .user = g};
}
