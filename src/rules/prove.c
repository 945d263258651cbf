/* Judges for the independent checker. They see text only: a term is typed from its own operators
 * and leaves, whatever classes the e-graph had. */
#include "rules/graph_impl.h"

/* A term of the text. */
typedef struct node {
    rl_type type;
    ir_op op; /* IR_NO_OP: a leaf */
    ir_reducer reducer;
    u32 payload;
    const char *name; /* of a leaf; of an operator the engine's */
    const u32 *kids;
    i64 n;
} node;

typedef struct judge {
    rl_graph *g;
    arena *a;
    const char *file;
    VEC(node) nodes; /* [0]: no term */
} judge;

static judge judge_new(rl_graph *g)
{
    judge j = {.g = g, .a = arena_child(g->a)};
    vec_push(j.a, &j.nodes, (node){0});
    return j;
}

static u32 add_leaf(judge *j, eqf_head head)
{
    const rl_leaf *leaf = rl_leaf_of(j->g, head);
    if (!leaf)
        return 0;
    vec_push(j->a, &j->nodes, (node){.type = leaf->type, .name = eqf_head_name(j->g->lang, head)});
    return (u32)j->nodes.n - 1;
}

/* 0 when it has no type. */
static u32 add_operator(judge *j, ir_op op, ir_reducer reducer, u32 payload, const u32 *kids, i64 n)
{
    const rl_payload *p = &j->g->payloads.at[payload];
    rl_label l = {.op = op,
                  .reducer = reducer,
                  .dtype = (dtype)p->attr.dtype,
                  .axis = p->axis,
                  .to = p->to,
                  .each = p->each};
    if (op == IR_concat && p->attr.axis.n != n)
        return 0;
    rl_type *x = NEW_N(j->a, rl_type, n);
    for (i64 i = 0; i < n; i++)
        x[i] = j->nodes.at[kids[i]].type;
    u64 bad = 0;
    node made = {rl_type_of(&l, x, n, &bad),
                 op,
                 reducer,
                 payload,
                 rl_operator_name(j->a, op, reducer),
                 arena_copy(j->a, kids, n * (i64)sizeof *kids),
                 n};
    if (bad || made.type.dtype == DT_NONE)
        return 0;
    vec_push(j->a, &j->nodes, made);
    return (u32)j->nodes.n - 1;
}

static u32 parse(judge *j, const sx *x)
{
    if (x->kind == SX_SYMBOL || x->kind == SX_STRING) {
        eqf_head head;
        rl_must(j->g, eqf_head_symbol(j->g->lang, (eqf_text){x->text, (size_t)x->n}, &head));
        return add_leaf(j, head);
    }
    if (x->kind != SX_LIST || x->n < 2 || x->at[0]->kind == SX_LIST)
        return 0;
    u32 *kids = NEW_N(j->a, u32, x->n), payload = 0;
    i64 n = 0;
    while (1 + n < x->n && !(x->at[1 + n]->kind == SX_SYMBOL && x->at[1 + n]->text[0] == ':')) {
        kids[n] = parse(j, x->at[1 + n]);
        if (!kids[n++])
            return 0;
    }
    if (1 + n < x->n) {
        payload = rl_payload_of_text(j->g, (const sx *const *)&x->at[1 + n], x->n - 1 - n);
        if (!payload)
            return 0;
    }
    for (i64 k = 0; k < j->g->operators.n; k++) {
        const rl_operator *o = &j->g->operators.at[k];
        if (o->op != IR_NO_OP &&
            strcmp(rl_operator_name(j->a, o->op, o->reducer), x->at[0]->text) == 0)
            return add_operator(j, o->op, o->reducer, payload, kids, n);
    }
    return 0;
}

static u32 parse_text(judge *j, const char *text)
{
    const sx *all = sx_read(j->a, "proof", text, (i64)strlen(text));
    return all->n == 1 ? parse(j, all->at[0]) : 0;
}

/* One spelling for terms that differ in the order of unordered operands. */
static const char *spell(judge *j, u32 id)
{
    const node *x = &j->nodes.at[id];
    if (x->op == IR_NO_OP)
        return x->name;
    const char **kids = NEW_N(j->a, const char *, x->n);
    for (i64 i = 0; i < x->n; i++)
        kids[i] = spell(j, x->kids[i]);
    bool unordered = x->n == 2 && (ir_row(x->op)->flags & IR_COMM);
    bool swap = unordered && strcmp(kids[0], kids[1]) > 0;
    str s = str_new(j->a);
    str_printf(&s, "(%s", x->name);
    for (i64 i = 0; i < x->n; i++)
        str_printf(&s, " %s", kids[swap ? 1 - i : i]);
    str_printf(&s, " :%u)", x->payload);
    return str_text(&s);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static const rl_rule *find_rule(const rl_graph *g, const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || !g->options.rules)
        return NULL;
    return rl_ruleset_find(g->options.rules, name + n);
}

static bool match(judge *j, rl_env *env, bool *bound, const rl_term *t, u32 id)
{
    const node x = j->nodes.at[id];
    if (t->kind == RL_TERM_VAR) {
        rl_binding *b = &env->at[t->var];
        if (bound[t->var])
            return strcmp(spell(j, b->id), spell(j, id)) == 0;
        bound[t->var] = true;
        *b = (rl_binding){.type = x.type, .id = id};
        return true;
    }
    if (x.op != t->op || x.reducer != t->reducer || x.n != t->n)
        return false;
    for (i64 i = 0; i < t->n; i++)
        if (!match(j, env, bound, t->kids[i], x.kids[i]))
            return false;
    i64 v = t->axis ? t->axis->var : t->var;
    if (v < 0)
        return true;
    if (bound[v])
        return env->at[v].id == x.payload;
    bound[v] = true;
    rl_bind_payload(j->g, x.payload, &env->at[v]);
    return true;
}

static u32 make(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n)
{
    judge *j = user;
    if (l->op == IR_const)
        return add_leaf(j, rl_number_head(j->g, l->dtype, l->number));
    return add_operator(j, l->op, l->op == IR_reduce ? l->reducer : IR_NO_REDUCER,
                        map ? map : rl_axis_payload(j->g, l->op, l->axis), kids, n);
}

/* Is `right` what the rule's right side computes from `left`? */
static eqf_verdict judge_step(void *user, const char *reason, const char *left, const char *right)
{
    rl_graph *g = user;
    const rl_rule *r = find_rule(g, reason, "build.");
    if (!r)
        return EQF_REFUSED;
    judge j = judge_new(g);
    rl_env env = {.rule = r, .extent = g->extent};
    bool bound[RL_MAX_VARS] = {false}, holds = false;
    u32 from = parse_text(&j, left), to = parse_text(&j, right);
    if (from && to && match(&j, &env, bound, r->left, from)) {
        rl_builder builder = {.make = make, .user = &j};
        u32 built = rl_build(&env, r->right, (dtype)j.nodes.at[from].type.dtype, &builder);
        holds = built && strcmp(spell(&j, built), spell(&j, to)) == 0;
    }
    arena_free(j.a);
    return holds ? EQF_HOLDS : EQF_REFUSED;
}

static bool bind_texts(judge *j, const rl_rule *r, const char *const *args, rl_env *env)
{
    for (i64 v = 0; v < r->n_vars; v++) {
        rl_binding *b = &env->at[v];
        if (r->vars[v].kind == RL_VAR_TERM) {
            b->id = parse_text(j, args[v]);
            if (!b->id)
                return false;
            b->type = j->nodes.at[b->id].type;
            continue;
        }
        const sx *value = sx_read(j->a, "proof", args[v], (i64)strlen(args[v]));
        const char *key = r->vars[v].kind == RL_VAR_AXES ? ":axis" : ":map";
        sx keyword = {.kind = SX_SYMBOL, .text = key, .n = (i64)strlen(key)};
        if (value->n != 1)
            return false;
        u32 payload = rl_payload_of_text(j->g, (const sx *[]){&keyword, value->at[0]}, 2);
        if (!payload)
            return false;
        rl_bind_payload(j->g, payload, b);
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
    const rl_rule *r = find_rule(g, name, "when.");
    if (!r || (i64)n != r->n_vars)
        return EQF_REFUSED;
    judge j = judge_new(g);
    rl_env env = {.rule = r, .extent = g->extent};
    eqf_verdict verdict = EQF_REFUSED;
    if (bind_texts(&j, r, args, &env) && rl_dtypes_fit(r, &env))
        verdict = !r->when || rl_guard_holds(&env, r->when) ? EQF_HOLDS
                  : holds_with_facts(r, &env)               ? EQF_ASSUMED
                                                            : EQF_REFUSED;
    arena_free(j.a);
    return verdict;
}

eqf_checking rl_graph_checking(rl_graph *g)
{
    str names = str_new(g->a);
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if ((ir_row(op)->flags & IR_COMM) && ir_row(op)->arity == 2)
            str_printf(&names, "%s%s", names.n ? " " : "", ir_row(op)->name);
    return (eqf_checking){.rules = eqf_text_of(g->rules_text),
                          .commutative = eqf_text_of(str_text(&names)),
                          .step = judge_step,
                          .guard = judge_guard,
                          .user = g};
}
