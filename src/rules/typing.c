/* Types of operators, terms and guards, sets of atoms as bit masks. No operation looks at an atom
 * otherwise than one at a time, so the same code types a rule over real atoms and over the
 * artificial ones of check.c. */
#include "rules/rule.h"

#define COUNT_OF_SET(s) __builtin_popcountll(s)

/* ---- operators ------------------------------------------------------------------------------- */

static bool same_dtype(const rl_type *x, i64 from, i64 to)
{
    for (i64 i = from + 1; i < to; i++)
        if (x[i].dtype != x[from].dtype)
            return false;
    return true;
}

static u64 joint_dims(const rl_type *x, i64 n)
{
    u64 dims = 0;
    for (i64 i = 0; i < n; i++)
        dims |= x[i].dims;
    return dims;
}

static dtype pointwise_dtype(const ir_op_row *row, const rl_label *l, const rl_type *x, i64 n)
{
    i64 first = row->rule == IR_SELECT ? 1 : 0;
    if (n != row->arity || !same_dtype(x, first, n))
        return DT_NONE;
    dtype t = x[first].dtype;
    dtype_kind kind = dtype_kind_of(t);
    switch ((ir_rule)row->rule) {
    case IR_SAME:
        return kind == DK_BOOL && (l->op == IR_sub || l->op == IR_neg) ? DT_NONE : t;
    case IR_FLOAT:
        return kind == DK_FLOAT ? t : DT_NONE;
    case IR_INTEGER:
        return kind == DK_INT ? t : DT_NONE;
    case IR_LOGIC:
        return kind == DK_FLOAT ? DT_NONE : t;
    case IR_COMPARE:
        return DT_bool;
    case IR_BOOLEAN:
        return kind == DK_BOOL ? DT_bool : DT_NONE;
    case IR_TEST:
        return kind == DK_FLOAT ? DT_bool : DT_NONE;
    case IR_SELECT:
        return x[0].dtype == DT_bool ? t : DT_NONE;
    case IR_OWN:
        return l->dtype;
    }
    return DT_NONE;
}

static bool all_have(const rl_type *x, i64 n, u8 fact)
{
    for (i64 i = 0; i < n; i++)
        if (!(x[i].facts & fact))
            return false;
    return n > 0;
}

/* Over the reals: exp is positive however far it underflows. */
static bool is_positive(const rl_label *l, const rl_type *x, i64 n)
{
    switch (l->op) {
    case IR_const:
        return l->number > 0;
    case IR_exp:
    case IR_exp2:
    case IR_sigmoid:
        return true;
    case IR_add:
    case IR_mul:
    case IR_div:
    case IR_min:
    case IR_sqrt:
    case IR_rsqrt:
    case IR_recip:
    case IR_square:
    case IR_abs:
    case IR_matmul:
    case IR_rename:
    case IR_slice:
    case IR_concat:
    case IR_reshape:
    case IR_expand:
    case IR_view:
    case IR_comb:
    case IR_splitdim:
    case IR_tile_matmul:
        return all_have(x, n, RL_IS_POSITIVE);
    case IR_max:
        return (x[0].facts | x[1].facts) & RL_IS_POSITIVE;
    case IR_where:
        return all_have(x + 1, 2, RL_IS_POSITIVE);
    case IR_reduce:
        return l->reducer <= IR_MIN && all_have(x, n, RL_IS_POSITIVE);
    default:
        return false;
    }
}

/* Whether tiles of the value can be read instead of computed. */
static u8 lies_in_memory(const rl_label *l, const rl_type *x)
{
    switch (ir_row(l->op)->class_) {
    case IR_LEAF:
        return l->op == IR_in ? RL_LOAD : 0;
    case IR_INDEX:
        return l->op == IR_rename || l->op == IR_slice ? x[0].facts & (RL_LOAD | RL_STORED)
                                                       : RL_STORED;
    case IR_GATHER:
        return l->op == IR_scatter ? RL_STORED : 0;
    case IR_PLAIN:
    case IR_OPAQUE:
        return RL_STORED;
    default:
        return l->op == IR_splitdim ? x[0].facts & (RL_LOAD | RL_STORED) : 0;
    }
}

static u64 concat_dims(const rl_label *l, const rl_type *x, i64 n, u64 *bad)
{
    u64 rest = 0;
    for (i64 i = 0; i < n; i++) {
        *bad |= l->each[i] & ~x[i].dims;
        rest |= x[i].dims & ~l->each[i];
    }
    *bad |= rest & l->to;
    return rest | l->to;
}

static bool is_tiled(const rl_label *l)
{
    return ir_row(l->op)->class_ == IR_TILED || l->par != 0;
}

static void type_class(const rl_label *l, const rl_type *x, i64 n, rl_type *out, u64 *bad)
{
    const ir_op_row *row = ir_row(l->op);
    u64 dims = joint_dims(x, n), own = n ? x[0].dims : 0;
    out->dtype = n ? x[0].dtype : (u8)l->dtype;
    switch ((ir_class)row->class_) {
    case IR_LEAF:
        out->dims = l->axis | l->to;
        out->dtype = l->op == IR_iota ? DT_i64 : (u8)l->dtype;
        if (l->op != IR_const)
            break;
        out->facts |= RL_IS_NUMBER;
        out->number = l->number;
        break;
    case IR_EWISE:
        out->dtype = (u8)pointwise_dtype(row, l, x, n);
        out->dims = dims;
        break;
    case IR_REDUCE:
    case IR_MATMUL:
        *bad |= l->axis & ~dims;
        out->dims = dims & ~l->axis;
        if (!same_dtype(x, 0, n) ||
            ((l->reducer == IR_OR || l->reducer == IR_AND) && out->dtype != DT_bool))
            out->dtype = DT_NONE;
        break;
    case IR_INDEX:
        if (!same_dtype(x, 0, n))
            out->dtype = DT_NONE;
        if (l->op == IR_concat) {
            out->dims = concat_dims(l, x, n, bad);
            break;
        }
        *bad |= l->axis & ~own;
        if (l->op != IR_slice) /* a slice may make a diagonal */
            *bad |= l->to & own & ~l->axis;
        out->dims = (own & ~l->axis) | l->to;
        break;
    case IR_GATHER:
        *bad |= l->axis & ~own;
        out->dims = l->op == IR_scatter ? own : (own & ~l->axis) | joint_dims(x + 1, n - 1);
        break;
    case IR_PLAIN:
        *bad |= l->axis & ~own;
        out->dims = l->op == IR_scan ? own : (own & ~l->axis) | l->to;
        if (l->op == IR_argsort)
            out->dtype = DT_i64;
        break;
    default:
        out->dims = l->to;
        out->dtype = (u8)l->dtype;
        break;
    }
}

rl_type rl_type_of(const rl_label *l, const rl_type *x, i64 n, u64 *bad)
{
    rl_type out = {0};
    for (i64 i = 0; i < n; i++)
        if (x[i].dtype == DT_NONE)
            return out;
    if (is_tiled(l)) {
        rl_type_tiled(l, x, n, &out, bad);
    } else {
        type_class(l, x, n, &out, bad);
        rl_type_spread(l, x, n, &out, bad);
    }
    if (out.kind != IR_A_VALUE)
        return out;
    if (l->op == IR_const || l->op == IR_iota ||
        (l->op != IR_opaque && all_have(x, n, RL_CONSTANT)))
        out.facts |= RL_CONSTANT;
    if (l->op == IR_const || l->op == IR_iota || (l->op != IR_opaque && all_have(x, n, RL_INDEX)))
        out.facts |= RL_INDEX;
    if (dtype_is_float(out.dtype) && is_positive(l, x, n))
        out.facts |= RL_IS_POSITIVE;
    out.facts |= lies_in_memory(l, x);
    return out;
}

/* ---- sets and terms of a rule ---------------------------------------------------------------- */

u64 rl_set_value(const rl_env *env, const rl_set *s)
{
    switch ((rl_set_kind)s->kind) {
    case RL_SET_VAR:
        return env->at[s->var].type.dims;
    case RL_SET_CUT:
        return env->at[s->var].type.axes;
    case RL_SET_FROM: {
        u64 from = 0;
        for (i64 i = 0; i < env->rule->vars[s->var].map_parts; i++)
            from |= env->at[s->var].part[i];
        return from;
    }
    case RL_SET_TO:
        return env->at[s->var].to;
    case RL_SET_MEET:
        return rl_set_value(env, s->a) & rl_set_value(env, s->b);
    case RL_SET_MINUS:
        return rl_set_value(env, s->a) & ~rl_set_value(env, s->b);
    case RL_SET_JOIN:
        return rl_set_value(env, s->a) | rl_set_value(env, s->b);
    }
    return 0;
}

static f64 product_of_extents(const rl_env *env, u64 set)
{
    f64 n = 1;
    for (; set; set &= set - 1)
        n *= env->extent ? (f64)env->extent[__builtin_ctzll(set)] : 1;
    return n;
}

dtype rl_slot_dtype(const rl_rule *r, i64 slot, dtype free)
{
    dtype t = (dtype)r->slots[slot];
    return t == DT_NONE ? free : t;
}

static rl_label label_of(const rl_env *env, const rl_term *t)
{
    rl_label l = {.op = t->op, .reducer = t->reducer};
    if (t->axis)
        l.axis = rl_set_value(env, t->axis);
    if (t->par)
        l.par = rl_set_value(env, t->par);
    if (t->var >= 0) {
        const rl_binding *map = &env->at[t->var];
        l.each = map->part;
        l.to = map->to;
        if (t->op != IR_concat)
            l.axis = map->part[0];
    }
    return l;
}

/* A view, combination or reduction over no axes is its operand. */
static bool cuts_nothing(const rl_term *t, const rl_label *l)
{
    return t->par && l->par == 0;
}

/* A reduction over nothing is its operand, a product over nothing is elementwise. */
static bool over_nothing(const rl_term *t, const rl_label *l)
{
    return t->kind == RL_TERM_OP && t->axis && l->axis == 0;
}

static rl_type number_type(const rl_env *env, const rl_term *t, dtype free)
{
    f64 x =
        t->kind == RL_TERM_NUMBER ? t->number : product_of_extents(env, rl_set_value(env, t->axis));
    u8 facts = RL_CONSTANT | RL_IS_NUMBER;
    if (x > 0)
        facts |= RL_IS_POSITIVE;
    return (rl_type){
        .dtype = (u8)rl_slot_dtype(env->rule, t->slot, free), .facts = facts, .number = x};
}

static dtype free_dtype(const rl_env *env)
{
    for (i64 v = 0; v < env->rule->n_vars; v++)
        if (env->rule->vars[v].kind == RL_VAR_TERM &&
            env->rule->slots[env->rule->vars[v].slot] == DT_NONE)
            return (dtype)env->at[v].type.dtype;
    return DT_f32;
}

static rl_type type_term(const rl_env *env, const rl_term *t, u64 *bad, f64 *flops)
{
    if (t->kind == RL_TERM_VAR)
        return env->at[t->var].type;
    if (t->kind != RL_TERM_OP)
        return number_type(env, t, free_dtype(env));
    rl_type x[RL_MAX_VARS];
    for (i64 i = 0; i < t->n; i++)
        x[i] = type_term(env, t->kids[i], bad, flops);
    rl_label l = label_of(env, t);
    if (cuts_nothing(t, &l))
        return x[0];
    if (over_nothing(t, &l) && env->extent) {
        if (l.op == IR_reduce)
            return x[0];
        l.op = IR_mul;
    }
    if (flops) {
        u64 dims = joint_dims(x, t->n);
        u8 class = ir_row(l.op)->class_;
        if (class == IR_EWISE || class == IR_REDUCE || class == IR_MATMUL)
            *flops += product_of_extents(env, dims) * (class == IR_MATMUL ? 2 : 1);
        if (l.op == IR_tile_matmul)
            *flops += product_of_extents(env, dims) * 2;
    }
    return rl_type_of(&l, x, t->n, bad);
}

rl_type rl_term_type(const rl_env *env, const rl_term *t, u64 *bad)
{
    return type_term(env, t, bad, NULL);
}

f64 rl_term_flops(const rl_env *env, const rl_term *t)
{
    u64 bad = 0;
    f64 flops = 0;
    type_term(env, t, &bad, &flops);
    return flops;
}

/* ---- guards ---------------------------------------------------------------------------------- */

#define ANY (~(u64)0)

static u64 guard_sets(const rl_env *env, const rl_guard *g, u64 s[RL_MAX_PARTS])
{
    u64 rest = 0;
    for (i64 i = 0; i < g->n; i++) {
        s[i] = rl_set_value(env, g->sets[i]);
        if (i)
            rest |= s[i];
    }
    return rest;
}

static u64 guard_axes(const rl_env *env, const rl_guard *g, u64 s[RL_MAX_PARTS])
{
    u64 rest = 0;
    for (i64 i = 0; i < g->n; i++) {
        s[i] = env->at[g->vars[i]].type.axes;
        if (i)
            rest |= s[i];
    }
    return rest;
}

/* Is the guard about each atom alone? */
static bool is_about_atoms(const rl_guard *g)
{
    u8 kind = rl_test_at(g->test)->kind;
    return kind == RL_SETS || kind == RL_AXES;
}

static void run_test(const rl_env *env, const rl_guard *g, u64 *out_bad, u64 *out_some)
{
    u64 s[RL_MAX_PARTS] = {0}, rest = 0;
    if (is_about_atoms(g))
        rest = rl_test_at(g->test)->kind == RL_SETS ? guard_sets(env, g, s) : guard_axes(env, g, s);
    switch (g->test) {
#define GUARD(name, least, most, kind, bad, some, doc)                                             \
    case RL_TEST_##name:                                                                           \
        *out_bad = bad;                                                                            \
        *out_some = some;                                                                          \
        break;
#include "rules/guards.def"
#undef GUARD
    case RL_TEST_COUNT:
        break;
    }
    (void)rest;
}

static bool test_holds(const rl_env *env, const rl_guard *g)
{
    u64 bad = 0, some = ANY;
    run_test(env, g, &bad, &some);
    switch (rl_test_at(g->test)->kind) {
    case RL_SETS:
    case RL_AXES:
        return bad == 0 && some != 0;
    case RL_TERMS:
        for (i64 i = 0; i < g->n; i++)
            if (!(env->at[g->vars[i]].type.facts & some))
                return false;
        return true;
    default:
        return rl_term_flops(env, env->rule->right) <=
               g->factor * rl_term_flops(env, env->rule->left);
    }
}

bool rl_guard_holds(const rl_env *env, const rl_guard *g)
{
    switch ((rl_guard_kind)g->kind) {
    case RL_GUARD_TEST:
        return test_holds(env, g);
    case RL_GUARD_NOT:
        return !rl_guard_holds(env, g->kids[0]);
    case RL_GUARD_AND:
    case RL_GUARD_OR:
        for (i64 i = 0; i < g->n; i++)
            if (rl_guard_holds(env, g->kids[i]) == (g->kind == RL_GUARD_OR))
                return g->kind == RL_GUARD_OR;
        return g->kind == RL_GUARD_AND;
    }
    return false;
}

u64 rl_guard_bad(const rl_env *env, const rl_guard *g)
{
    u64 bad = 0, some;
    if (g->kind == RL_GUARD_TEST && is_about_atoms(g))
        run_test(env, g, &bad, &some);
    for (i64 i = 0; g->kind == RL_GUARD_AND && i < g->n; i++)
        bad |= rl_guard_bad(env, g->kids[i]);
    return bad;
}

bool rl_guard_reads_facts(const rl_guard *g)
{
    if (g->kind == RL_GUARD_TEST)
        return rl_test_at(g->test)->kind == RL_TERMS;
    for (i64 i = 0; i < g->n; i++)
        if (rl_guard_reads_facts(g->kids[i]))
            return true;
    return false;
}

static const rl_test_row test_rows[RL_TEST_COUNT] = {
#define SETS RL_SETS
#define TERMS RL_TERMS
#define AXES RL_AXES
#define FACTOR RL_FACTOR
#define GUARD(name, least, most, kind, bad, some, doc)                                             \
    [RL_TEST_##name] = {#name, least, most, kind, doc},
#include "rules/guards.def"
#undef GUARD
};

const rl_test_row *rl_test_at(rl_test t)
{
    return &test_rows[t];
}

/* ---- building -------------------------------------------------------------------------------- */

typedef rl_built built;

built rl_make(const rl_builder *b, const rl_label *l, u32 map, const built *kids, i64 n)
{
    u32 ids[RL_MAX_VARS];
    rl_type x[RL_MAX_VARS];
    u64 bad = 0;
    for (i64 i = 0; i < n; i++) {
        ids[i] = kids[i].id;
        x[i] = kids[i].type;
    }
    built out = {.type = rl_type_of(l, x, n, &bad)};
    if (!bad && out.type.dtype != DT_NONE)
        out.id = b->make(b->user, l, map, ids, n);
    return out;
}

static bool is_neutral(const built *x, f64 neutral)
{
    return (x->type.facts & RL_IS_NUMBER) && x->type.number == neutral && x->type.dims == 0;
}

static built build(const rl_env *env, const rl_term *t, dtype free, const rl_builder *b)
{
    if (t->kind == RL_TERM_VAR)
        return (built){env->at[t->var].id, env->at[t->var].type};
    if (t->kind == RL_TERM_EXTENT && (rl_set_value(env, t->axis) & env->ragged))
        return (built){0};
    if (t->kind != RL_TERM_OP) {
        rl_type type = number_type(env, t, free);
        rl_label l = {.op = IR_const, .dtype = (dtype)type.dtype, .number = type.number};
        return rl_make(b, &l, 0, NULL, 0);
    }
    built kids[RL_MAX_VARS];
    for (i64 i = 0; i < t->n; i++) {
        kids[i] = build(env, t->kids[i], free, b);
        if (!kids[i].id)
            return (built){0};
    }
    rl_label l = label_of(env, t);
    if (cuts_nothing(t, &l))
        return kids[0];
    if (over_nothing(t, &l)) {
        if (l.op == IR_reduce)
            return kids[0];
        l.op = IR_mul;
    }
    u32 flags = ir_row(l.op)->flags;
    if (t->n == 2 && (flags & (IR_UNIT0 | IR_UNIT1)) && !b->literally) {
        f64 neutral = flags & IR_UNIT1 ? 1 : 0;
        if (is_neutral(&kids[0], neutral))
            return kids[1];
        if (is_neutral(&kids[1], neutral))
            return kids[0];
    }
    return rl_make(b, &l, t->var >= 0 ? env->at[t->var].id : 0, kids, t->n);
}

u32 rl_build(const rl_env *env, const rl_term *t, dtype free, const rl_builder *b)
{
    return build(env, t, free, b).id;
}
