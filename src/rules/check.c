/* The types of a rule. Dtypes by unification; atoms by evaluating both sides over an artificial
 * universe: one atom for every way of being in or out of each variable's set, 64 of them at a time.
 * An operator is well-typed, and an atom is in its result, by a condition on that atom alone, so
 * what holds for each of these atoms holds for all assignments of sets. Guards of the same kind
 * take the atoms away that they exclude; others (less, const ...) only narrow further when a rule
 * runs, and are not relied on. */
#include <stdio.h>

#include "rules/rule.h"

typedef struct check {
    arena *a;
    rl_rule *r;
    rl_problem *problem;
    i64 parent[RL_MAX_SLOTS_DTYPE];
    i64 n_slots;
    const rl_term *culprit; /* first operator that does not fit its operands */
} check;

static void PRINTF_LIKE(3, 4) complain(check *c, const rl_term *t, const char *format, ...)
{
    if (c->problem->text)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *c->problem = (rl_problem){arena_strdup(c->a, text), t->line, t->column};
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static i64 find_slot(const check *c, i64 s)
{
    while (c->parent[s] != s)
        s = c->parent[s];
    return s;
}

static i64 new_slot(check *c, const rl_term *t, dtype fixed)
{
    if (c->n_slots == RL_MAX_SLOTS_DTYPE) {
        complain(c, t, "the rule is too large");
        return 0;
    }
    i64 s = c->n_slots++;
    c->parent[s] = s;
    c->r->slots[s] = (u8)fixed;
    return s;
}

/* bool is the only dtype that an operator fixes, so two of them never disagree. */
static void unify(check *c, i64 a, i64 b)
{
    a = find_slot(c, a);
    b = find_slot(c, b);
    c->parent[b] = a;
    if (!c->r->slots[a])
        c->r->slots[a] = c->r->slots[b];
}

static void must_be_bool(check *c, const rl_term *t, i64 kid)
{
    unify(c, new_slot(c, t, DT_bool), kid);
}

static i64 infer(check *c, rl_term *t)
{
    if (t->kind == RL_TERM_VAR) {
        rl_var *v = &c->r->vars[t->var];
        if (v->slot < 0)
            v->slot = new_slot(c, t, DT_NONE);
        return t->slot = v->slot;
    }
    if (t->kind != RL_TERM_OP)
        return t->slot = new_slot(c, t, DT_NONE);
    const ir_op_row *row = ir_row(t->op);
    i64 slot[RL_MAX_VARS];
    for (i64 i = 0; i < t->n; i++)
        slot[i] = infer(c, t->kids[i]);
    i64 first = 0;
    if (row->class_ == IR_EWISE && row->rule == IR_SELECT) {
        must_be_bool(c, t, slot[0]);
        first = 1;
    }
    for (i64 i = first + 1; i < t->n; i++)
        unify(c, slot[first], slot[i]);
    bool makes_bool = row->class_ == IR_EWISE && (row->rule == IR_COMPARE || row->rule == IR_TEST);
    if (row->class_ == IR_EWISE && row->rule == IR_BOOLEAN)
        must_be_bool(c, t, slot[0]);
    if (t->op == IR_reduce && (t->reducer == IR_OR || t->reducer == IR_AND))
        must_be_bool(c, t, slot[0]);
    return t->slot = makes_bool ? new_slot(c, t, DT_bool) : slot[first];
}

static void settle(check *c, rl_term *t)
{
    t->slot = find_slot(c, t->slot);
    for (i64 i = 0; i < t->n; i++)
        settle(c, t->kids[i]);
}

static void infer_dtypes(check *c, rl_term *left, rl_term *right)
{
    for (i64 v = 0; v < c->r->n_vars; v++)
        c->r->vars[v].slot = -1;
    i64 l = infer(c, left), r = infer(c, right);
    unify(c, l, r);
    settle(c, left);
    settle(c, right);
    for (i64 v = 0; v < c->r->n_vars; v++)
        if (c->r->vars[v].slot >= 0)
            c->r->vars[v].slot = find_slot(c, c->r->vars[v].slot);
    for (i64 s = 0; s < c->n_slots; s++)
        c->r->slots[s] = c->r->slots[find_slot(c, s)];
}

/* ---- atoms ----------------------------------------------------------------------------------- */

i64 rl_places(const rl_rule *r, rl_env *env, rl_place *out)
{
    i64 n = 0;
    for (i64 v = 0; v < r->n_vars; v++) {
        rl_binding *b = &env->at[v];
        if (r->vars[v].is_number)
            continue;
        if (r->vars[v].kind != RL_VAR_MAP) {
            out[n++] = (rl_place){&b->type.dims, v, 0};
            if (r->vars[v].kind == RL_VAR_TERM && r->is_tiled)
                out[n++] = (rl_place){&b->type.axes, v, 1};
            continue;
        }
        for (i64 k = 0; k < r->vars[v].map_parts; k++)
            out[n++] = (rl_place){&b->part[k], v, k};
        out[n++] = (rl_place){&b->to, v, -1};
    }
    return n;
}

static void fill_places(rl_place *at, i64 n, u64 chunk)
{
    static const u64 low[6] = {0xAAAAAAAAAAAAAAAAu, 0xCCCCCCCCCCCCCCCCu, 0xF0F0F0F0F0F0F0F0u,
                               0xFF00FF00FF00FF00u, 0xFFFF0000FFFF0000u, 0xFFFFFFFF00000000u};
    for (i64 i = 0; i < n; i++)
        *at[i].at = i < 6 ? low[i] : chunk >> (i - 6) & 1 ? ~(u64)0 : 0;
}

static const char *describe_atom(check *c, const rl_place *at, i64 n, int bit)
{
    str s = str_new(c->a);
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        const rl_var *v = &c->r->vars[at[i].var];
        if (*at[i].at >> bit & 1)
            str_printf(&s, "%s%s%s", count++ ? ", " : "",
                       v->kind == RL_VAR_TERM ? (at[i].part ? "the axes of " : "")
                       : v->kind != RL_VAR_MAP ? ""
                       : at[i].part < 0        ? "to "
                                               : "from ",
                       v->name);
    }
    return count ? arena_printf(c->a, "an atom in %s and nowhere else", str_text(&s))
                 : "an atom in no variable";
}

static const rl_term *find_culprit(const rl_env *env, const rl_term *t, int bit)
{
    for (i64 i = 0; i < t->n; i++) {
        const rl_term *found = find_culprit(env, t->kids[i], bit);
        if (found)
            return found;
    }
    u64 bad = 0;
    rl_type type = rl_term_type(env, t, &bad);
    return (bad >> bit & 1) || type.dtype == DT_NONE ? t : NULL;
}

static void check_chunk(check *c, const rl_env *env, const rl_place *at, i64 n)
{
    const rl_rule *r = c->r;
    u64 bad_left = 0, bad_right = 0;
    rl_type left = rl_term_type(env, r->left, &bad_left);
    rl_type right = rl_term_type(env, r->right, &bad_right);
    if (left.dtype == DT_NONE || right.dtype == DT_NONE) {
        const rl_term *side = left.dtype == DT_NONE ? r->left : r->right;
        const rl_term *culprit = find_culprit(env, side, 0);
        culprit = culprit ? culprit : side;
        u64 bad = 0;
        dtype t = (dtype)rl_term_type(env, culprit->kids[0], &bad).dtype;
        complain(c, culprit, "%s does not take %s operands here", ir_row(culprit->op)->name,
                 dtype_name(t));
        return;
    }
    u64 valid = ~(bad_left | (r->when ? rl_guard_bad(env, r->when) : 0));
    if (bad_right & valid) {
        int bit = __builtin_ctzll(bad_right & valid);
        const rl_term *t = find_culprit(env, r->right, bit);
        t = t ? t : r->right;
        complain(c, t, "the right side is ill-typed: %s cannot be over %s", ir_row(t->op)->name,
                 describe_atom(c, at, n, bit));
    }
    u64 differ = (left.dims ^ right.dims) & valid;
    if (differ) {
        int bit = __builtin_ctzll(differ);
        complain(c, r->right, "sides of different type: %s is in the type of the %s side only",
                 describe_atom(c, at, n, bit), left.dims >> bit & 1 ? "left" : "right");
    }
    differ = (left.axes ^ right.axes) & valid;
    if (differ) {
        int bit = __builtin_ctzll(differ);
        complain(c, r->right, "sides of different state: the axis of %s is one of the %s side only",
                 describe_atom(c, at, n, bit), left.axes >> bit & 1 ? "left" : "right");
    }
}

static void set_dtypes(const rl_rule *r, rl_env *env, dtype free)
{
    for (i64 v = 0; v < r->n_vars; v++)
        if (r->vars[v].kind == RL_VAR_TERM && r->vars[v].slot >= 0)
            env->at[v].type.dtype = (u8)rl_slot_dtype(r, r->vars[v].slot, free);
}

u32 *rl_valid_ways(arena *a, const rl_rule *r, dtype free, i64 *n)
{
    rl_env env = {.rule = r};
    rl_place at[RL_MAX_PLACES];
    i64 places = rl_places(r, &env, at);
    set_dtypes(r, &env, free);
    u32 ways = 1u << places, *out = NEW_N(a, u32, ways);
    *n = 0;
    for (u32 first = 0; first < ways; first += 64) {
        fill_places(at, places, first / 64);
        u64 bad = 0;
        rl_term_type(&env, r->left, &bad);
        bad |= r->when ? rl_guard_bad(&env, r->when) : 0;
        for (u32 k = first; k < ways && k < first + 64; k++)
            if (!(bad >> (k - first) & 1))
                out[(*n)++] = k;
    }
    return out;
}

static void check_atoms(check *c, dtype free)
{
    rl_rule *r = c->r;
    rl_env env = {.rule = r};
    rl_place at[RL_MAX_PLACES];
    i64 n = rl_places(r, &env, at);
    if (n > RL_MAX_BITS) {
        complain(c, r->left, "more than %d sets in one rule", RL_MAX_BITS);
        return;
    }
    set_dtypes(r, &env, free);
    u64 chunks = n > 6 ? (u64)1 << (n - 6) : 1;
    for (u64 k = 0; k < chunks && !c->problem->text; k++) {
        fill_places(at, n, k);
        check_chunk(c, &env, at, n);
    }
}

void rl_check_types(arena *a, rl_rule *r, rl_problem *problem)
{
    check c = {.a = a, .r = r, .problem = problem};
    infer_dtypes(&c, r->left, r->right);
    static const dtype sample[] = {DT_f32, DT_i64, DT_bool};
    for (i64 k = 0; k < COUNT_OF(sample) && !problem->text; k++)
        if (r->kinds >> k & 1)
            check_atoms(&c, sample[k]);
}
