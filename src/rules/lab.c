/* See lab.h. An instance is a set of atoms (each with a way of membership), tile counts, facts about
 * variables and values; a counterexample is shrunk by leaving out atoms, then by making extents and
 * values small and round, as long as the sides still differ.
 *
 * A variable with axes is an input over their atoms, too, cut into tiles; what it lacks of these atoms
 * itself is summed inside each tile, so that it is a contribution. Results are put together again, and
 * contributions that are still to be combined laid side by side. */
#include <math.h>

#include "rules/lab.h"

enum { MAX_ATOMS = 12, MAX_TRIES = 400, MAX_NUMBERS = 8 };

typedef struct map_detail { /* of a slice */
    i64 start, step;
} map_detail;

/* Most numbers lie anywhere. Some are equal now and then, and midway between whole ones, for
 * comparisons and roundings; some lie at the numbers that the rule has, which may be thresholds;
 * integers may also be so large that they wrap. */
typedef enum source { ANYWHERE, ON_A_GRID, AT_NUMBERS, LARGE } source;

typedef struct instance {
    i64 n;
    u32 way[MAX_ATOMS];
    i64 extent[MAX_ATOMS], tiles[MAX_ATOMS];
    bool fixed[MAX_ATOMS]; /* it belongs to an index map */
    u8 facts[RL_MAX_VARS];
    map_detail map[RL_MAX_VARS];
    dtype free;
    bool all_positive, with_zeros, is_masked; /* masked: a third of the numbers is -inf */
    source source;
    u64 seed;     /* of the values */
    i64 rounding; /* 0: as drawn, 1: whole numbers, 2: ones and twos */
} instance;

typedef struct lab {
    arena *a;
    const rl_rule *r;
    rng g;
    u32 *ways[3]; /* by kind of dtype */
    i64 n_ways[3];
    rl_place place[RL_MAX_PLACES];
    i64 n_places;
    f64 number[MAX_NUMBERS]; /* of the rule */
    i64 n_numbers;
} lab;

static const dtype samples[3] = {DT_f64, DT_i64, DT_bool};

static int sample_of(dtype t)
{
    return t == DT_f64 ? 0 : t == DT_i64 ? 1 : 2;
}

/* ---- instances ------------------------------------------------------------------------------- */

static u32 map_places(const lab *l)
{
    u32 mask = 0;
    for (i64 i = 0; i < l->n_places; i++)
        if (l->r->vars[l->place[i].var].kind == RL_VAR_MAP)
            mask |= 1u << i;
    return mask;
}

/* A random way with the places of `want` in, of `forbid` out; false when there is none. */
static bool draw_way(lab *l, dtype t, u32 want, u32 forbid, u32 *out)
{
    const u32 *ways = l->ways[sample_of(t)];
    i64 n = l->n_ways[sample_of(t)], count = 0;
    for (i64 i = 0; i < n; i++) /* uniform among those that fit */
        if ((ways[i] & want) == want && !(ways[i] & forbid) && rng_below(&l->g, (u64)++count) == 0)
            *out = ways[i];
    return count > 0;
}

static bool add_atom(lab *l, instance *x, u32 want, u32 forbid, i64 extent, bool fixed)
{
    if (x->n == MAX_ATOMS || !draw_way(l, x->free, want, forbid, &x->way[x->n]))
        return false;
    x->extent[x->n] = extent;
    x->fixed[x->n++] = fixed;
    return true;
}

/* The atoms of an index map: from ones, and what they become, with extents that fit. */
static bool add_map_atoms(lab *l, instance *x, i64 v, u32 all_maps, i64 *next)
{
    const rl_var *var = &l->r->vars[v];
    i64 sum = 0;
    for (i64 i = 0; i < l->n_places; i++) {
        const rl_place *p = &l->place[i];
        if (p->var != v || (var->map_of == IR_expand && p->part >= 0))
            continue;
        u32 own = 1u << i;
        i64 extent = p->part >= 0 ? (*next)++ : sum;
        if (p->part >= 0)
            sum += extent;
        if (p->part < 0 && var->map_of == IR_slice) {
            map_detail *d = &x->map[v];
            d->step = 1 + (i64)rng_below(&l->g, 2);
            extent = 2;
            x->extent[x->n - 1] = sum = 5 + d->step; /* room for start, step and two positions */
            d->start = (i64)rng_below(&l->g, (u64)(sum - d->step));
        } else if (p->part < 0 && var->map_of == IR_expand) {
            extent = (*next)++;
        }
        if (!add_atom(l, x, own, all_maps & ~own, extent, true))
            return false;
    }
    return true;
}

static void set_environment(const lab *l, const instance *x, rl_env *env)
{
    *env = (rl_env){.rule = l->r, .extent = x->extent};
    rl_place at[RL_MAX_PLACES];
    i64 n = rl_places(l->r, env, at);
    for (i64 i = 0; i < n; i++)
        for (i64 k = 0; k < x->n; k++)
            *at[i].at |= (u64)(x->way[k] >> i & 1) << k;
    for (i64 v = 0; v < l->r->n_vars; v++) {
        const rl_var *var = &l->r->vars[v];
        rl_type *t = &env->at[v].type;
        if (var->kind != RL_VAR_TERM)
            continue;
        t->dtype = (u8)rl_slot_dtype(l->r, var->slot, x->free);
        t->facts = x->facts[v];
        if (var->is_number) {
            t->facts |= RL_IS_NUMBER | RL_CONSTANT;
            t->number = var->number;
        }
    }
}

/* No set is empty. */
static bool has_sets(const rl_env *env, const rl_term *t)
{
    const rl_set *set = t->axis ? t->axis : t->par;
    if (t->kind == RL_TERM_OP && set && rl_set_value(env, set) == 0)
        return false;
    for (i64 i = 0; i < t->n; i++)
        if (!has_sets(env, t->kids[i]))
            return false;
    return true;
}

/* Is the left side a term of the language here, and does the guard hold? */
static bool is_instance(const rl_env *env)
{
    u64 bad = 0;
    rl_type t = rl_term_type(env, env->rule->left, &bad);
    return !bad && t.dtype != DT_NONE && has_sets(env, env->rule->left) &&
           (!env->rule->when || rl_guard_holds(env, env->rule->when));
}

static bool has_empty_tiles(const instance *x)
{
    for (i64 k = 0; k < x->n; k++) {
        i64 size = (x->extent[k] + x->tiles[k] - 1) / x->tiles[k];
        if ((x->tiles[k] - 1) * size >= x->extent[k])
            return true;
    }
    return false;
}

static bool draw(lab *l, instance *x)
{
    *x = (instance){.free = DT_NONE};
    while (x->free == DT_NONE) {
        i64 k = (i64)rng_below(&l->g, 3);
        if (l->r->kinds >> k & 1)
            x->free = samples[k];
    }
    u32 all_maps = map_places(l);
    i64 next = 2;
    for (i64 v = 0; v < l->r->n_vars; v++)
        if (l->r->vars[v].kind == RL_VAR_MAP && !add_map_atoms(l, x, v, all_maps, &next))
            return false;
    i64 wanted = 1 + (i64)rng_below(&l->g, 5 - (u64)MIN(x->n, 3));
    i64 order[5] = {2, 3, 4, 5, 6};
    for (i64 k = 0; k < wanted; k++) {
        i64 j = k + (i64)rng_below(&l->g, (u64)(wanted - k)), e = order[j];
        order[j] = order[k];
        order[k] = e;
        if (!add_atom(l, x, 0, all_maps, e, false))
            return false;
    }
    for (i64 v = 0; v < l->r->n_vars; v++)
        x->facts[v] = (u8)rng_below(&l->g, 4) & (RL_CONSTANT | RL_IS_POSITIVE);
    for (i64 k = 0; k < x->n; k++)
        x->tiles[k] = l->r->is_tiled ? 1 + (i64)rng_below(&l->g, 3) : 1;
    for (i64 v = 0; has_empty_tiles(x) && v < l->r->n_vars; v++)
        x->facts[v] &= (u8)~RL_IS_POSITIVE; /* a sum over nothing is not */
    x->all_positive = rng_below(&l->g, 3) == 0;
    x->with_zeros = rng_below(&l->g, 8) == 0;
    bool may_be_masked = !x->all_positive && !has_empty_tiles(x); /* 0 times -inf is not 0 */
    x->is_masked = may_be_masked && rng_below(&l->g, 4) == 0;
    u64 kind = rng_below(&l->g, 4);
    x->source = kind == 0 ? ON_A_GRID : kind == 1 && l->n_numbers ? AT_NUMBERS : ANYWHERE;
    if (kind == 2 && x->free == DT_i64)
        x->source = LARGE;
    x->seed = rng_u64(&l->g);
    rl_env env;
    set_environment(l, x, &env);
    return is_instance(&env);
}

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct build {
    ir_program *p;
    const lab *l;
    const instance *x;
    const rl_env *env;
    bool shows_facts; /* by what the variables are in the program */
    ir_atom atom[MAX_ATOMS], side[MAX_ATOMS]; /* side: counts the tiles of contributions */
} build;

static ir_atoms atoms_of(const build *b, u64 mask)
{
    ir_atom *at = NEW_N(b->p->a, ir_atom, MAX_ATOMS);
    i64 n = 0;
    for (i64 k = 0; k < b->x->n; k++)
        if (mask >> k & 1)
            at[n++] = b->atom[k];
    return (ir_atoms){at, n};
}

static ir_attr map_attr(const build *b, i64 v)
{
    const rl_binding *m = &b->env->at[v];
    const rl_var *var = &b->l->r->vars[v];
    ir_attr attr = {.to = atoms_of(b, m->to)};
    ir_atom *at = NEW_N(b->p->a, ir_atom, RL_MAX_PARTS);
    i64 n = 0;
    for (i64 k = 0; k < var->map_parts; k++)
        if (m->part[k])
            at[n++] = b->atom[__builtin_ctzll(m->part[k])];
    attr.axis = (ir_atoms){at, n};
    if (var->map_of == IR_slice) {
        i64 *ints = NEW_N(b->p->a, i64, 2);
        ints[0] = b->x->map[v].start;
        ints[1] = b->x->map[v].step;
        attr.ints = (ir_ints){ints, 2};
    }
    return attr;
}

static u32 make(void *user, const rl_label *label, u32 map, const u32 *kids, i64 n)
{
    build *b = user;
    ir_term args[RL_MAX_VARS];
    for (i64 i = 0; i < n; i++)
        args[i].i = kids[i];
    if (label->op == IR_const)
        return dtype_is_float(label->dtype) ? ir_f(b->p, label->dtype, label->number).i
                                            : ir_i(b->p, label->dtype, (i64)label->number).i;
    ir_attr attr = {.reducer = (u8)label->reducer,
                    .axis = atoms_of(b, label->axis),
                    .par = atoms_of(b, label->par)};
    if (map)
        attr = map_attr(b, (i64)map - 1);
    return ir_make(b->p, label->op, attr, args, n).i;
}

static void add_output(build *b, const char *name, ir_term t)
{
    ir_atoms d = ir_get(b->p, t)->dims;
    ir_dim *dims = NEW_N(b->p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(b->p, d.at[i]), {&d.at[i], 1}};
    ir_add_output(
        b->p,
        (ir_port){.name = intern_cstr(b->p->names, name), .rank = d.n, .dims = dims, .term = t});
}

static const char *atom_name(i64 k)
{
    static const char *const names[MAX_ATOMS] = {"A", "B", "C", "D", "E", "F",
                                                 "G", "H", "I", "J", "L", "M"};
    return names[k];
}

/* The value as one that an output can have. */
static ir_term whole_of(build *b, ir_term t)
{
    ir_program *p = b->p;
    ir_reducer r = ir_get(p, t)->dtype == DT_bool ? IR_OR : IR_SUM;
    ir_atoms partial = ir_axes_in(p, t, IR_PARTIAL);
    for (i64 i = 0; i < partial.n; i++) {
        i64 k = 0;
        while (b->atom[k].i != partial.at[i].i)
            k++;
        if (b->x->tiles[k] > 1 && !b->side[k].i)
            b->side[k] = ir_atom_new(p, arena_printf(p->a, "tile of %s", atom_name(k)), b->x->tiles[k]);
        ir_attr attr = {.par = {&partial.at[i], 1}, .to = {&b->side[k], 1}};
        t = b->side[k].i ? ir_make(p, IR_collection, attr, &t, 1) : ir_reduce_par(p, r, t, attr.par);
    }
    return ir_comb(p, t, ir_get(p, t)->axes);
}

static ir_term add_variable(build *b, i64 v)
{
    const rl_var *var = &b->l->r->vars[v];
    const rl_type *t = &b->env->at[v].type;
    if (var->is_number)
        return t->dtype == DT_f64 ? ir_f(b->p, DT_f64, var->number)
                                  : ir_i(b->p, (dtype)t->dtype, (i64)var->number);
    ir_atoms d = atoms_of(b, t->dims | t->axes), inside = atoms_of(b, t->axes & ~t->dims);
    ir_dim *dims = NEW_N(b->p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(b->p, d.at[i]), {&d.at[i], 1}};
    bool is_parameter = b->shows_facts && (t->facts & RL_CONSTANT);
    bool is_positive = b->shows_facts && (t->facts & RL_IS_POSITIVE) && dtype_is_float(t->dtype);
    i64 i = ir_add_input(b->p, (ir_port){.name = intern_cstr(b->p->names, var->name),
                                         .role = is_parameter ? IR_PARAMETER : IR_INPUT,
                                         .dtype = t->dtype,
                                         .rank = d.n,
                                         .dims = dims});
    ir_term x = b->p->inputs.at[i].term;
    x = is_positive ? ir_1(b->p, IR_exp, x) : x;
    if (t->axes)
        x = ir_view(b->p, x, atoms_of(b, t->axes));
    if (inside.n)
        x = ir_reduce(b->p, t->dtype == DT_bool ? IR_OR : IR_SUM, x, inside);
    return x;
}

static build start_program(arena *a, const lab *l, const instance *x, rl_env *env, bool shows_facts)
{
    build b = {.p = ir_program_new(a, l->r->file, l->r->name),
               .l = l,
               .x = x,
               .env = env,
               .shows_facts = shows_facts};
    for (i64 k = 0; k < x->n; k++)
        b.atom[k] = ir_atom_new(b.p, atom_name(k), x->extent[k]);
    for (i64 v = 0; v < l->r->n_vars; v++)
        env->at[v].id = l->r->vars[v].kind == RL_VAR_TERM ? add_variable(&b, v).i : (u32)v + 1;
    return b;
}

/* The program of both sides; false when the right side has no type here. */
static bool build_program(arena *a, const lab *l, const instance *x, rl_env *env, build *b)
{
    *b = start_program(a, l, x, env, false);
    rl_builder builder = {make, b, true};
    u32 left = rl_build(env, l->r->left, x->free, &builder);
    u32 right = rl_build(env, l->r->right, x->free, &builder);
    if (!left || !right)
        return false;
    add_output(b, "left", whole_of(b, (ir_term){left}));
    add_output(b, "right", whole_of(b, (ir_term){right}));
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A number of the rule, what is next to it, or what lies around it. */
static f64 draw_at_number(const lab *l, rng *g, dtype t)
{
    f64 c = l->number[rng_below(g, (u64)l->n_numbers)], near = 0.5 + rng_f64(g);
    switch (rng_below(g, 4)) {
    case 0:
        return c;
    case 1:
        return c + (rng_u64(g) & 1 ? 1 : -1);
    case 2: /* where exp meets it */
        return t == DT_f64 && c > 0 ? log(c) + near - 1 : -c;
    default:
        return t == DT_f64 ? 2 * near * c : trunc(2 * near * c);
    }
}

static i64 draw_large(rng *g)
{
    static const i64 at[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 2, INT64_MAX / 3};
    i64 x = at[rng_below(g, COUNT_OF(at))], by = (i64)rng_below(g, 3);
    return x > 0 ? x - by : x + by;
}

static f64 draw_value(const lab *l, const instance *x, rng *g, dtype t, bool positive)
{
    f64 size = 0.5 + 1.5 * rng_f64(g);
    bool minus = rng_u64(g) & 1, zero = rng_below(g, 6) == 0;
    bool masked = x->is_masked && t == DT_f64 && !positive && rng_below(g, 3) == 0;
    if (t == DT_bool)
        return (f64)minus;
    if (x->source == AT_NUMBERS && x->rounding == 0 && rng_u64(g) & 1) {
        f64 value = draw_at_number(l, g, t);
        return positive ? fmax(fabs(value), 0.5) : value;
    }
    bool on_grid = x->source == ON_A_GRID && x->rounding == 0;
    if (x->rounding == 1 || t == DT_i64)
        size = (f64)(1 + (i64)((on_grid ? 12 : 3) * (size - 0.5) / 1.5));
    else if (x->rounding == 2)
        size = size < 1.25 ? 1 : 2;
    else if (on_grid)
        size = ceil(2 * size) / 2;
    if (masked)
        return -(f64)INFINITY;
    if (x->with_zeros && zero && !positive)
        return 0;
    return minus && !positive && !x->all_positive ? -size : size;
}

static tensor *draw_tensors(arena *a, const build *b)
{
    const ir_program *p = b->p;
    rng g = rng_new(b->x->seed);
    tensor *in = NEW_N(a, tensor, p->inputs.n);
    i64 port = 0;
    for (i64 v = 0; v < b->l->r->n_vars; v++) {
        if (b->l->r->vars[v].kind != RL_VAR_TERM || b->l->r->vars[v].is_number)
            continue;
        const ir_port *q = &p->inputs.at[port];
        i64 *shape = NEW_N(a, i64, q->rank), count = 1;
        for (i64 i = 0; i < q->rank; i++)
            count *= shape[i] = q->dims[i].extent;
        tensor *t = &in[port++];
        *t = (tensor){NULL, (dtype)q->dtype, q->rank, shape,
                      arena_alloc(a, count * dtype_bytes((dtype)q->dtype))};
        bool positive = b->env->at[v].type.facts & RL_IS_POSITIVE;
        for (i64 i = 0; i < count; i++) {
            f64 value = draw_value(b->l, b->x, &g, (dtype)q->dtype, positive);
            bool is_large = b->x->source == LARGE && q->dtype == DT_i64 && rng_u64(&g) & 1;
            if (q->dtype == DT_f64)
                tensor_set_f64(t, i, value);
            else
                tensor_set_i64(t, i, is_large && !positive ? draw_large(&g) : (i64)value);
        }
    }
    return in;
}

static f64 element(const tensor *t, i64 i)
{
    return t->type == DT_f64 ? tensor_get_f64(t, i) : (f64)tensor_get_i64(t, i);
}

typedef enum outcome { SAME, DIFFERENT, VACUOUS } outcome;
typedef struct comparison {
    build b;
    rl_env env;
    tensor *in, out[2];
    i64 at; /* element that differs */
    outcome outcome;
    bool no_type;
} comparison;

/* -inf is a mask's: it must not become inf, nor NaN where it is the rule that has it. What meets in an
 * operator that takes it for a number may be NaN in another order, and over the reals a division by zero
 * says nothing, whatever it gives here; nor does it where large numbers are not finite any more. */
static bool is_same(f64 l, f64 r, f64 scale, const instance *x)
{
    bool is_large = x->source == AT_NUMBERS;
    if (isfinite(l) && isfinite(r))
        return fabs(l - r) <= (is_large ? 1e-6 : 1e-9) * scale;
    if (is_large || isfinite(l) != isfinite(r))
        return is_large;
    return x->with_zeros || x->source == ON_A_GRID || isnan(l) || l == r || (x->is_masked && isnan(r));
}

static void compare_values(eqf_ctx *ctx, const instance *x, comparison *c)
{
    i64 n = tensor_count(ctx, c->out[0].rank, c->out[0].shape), finite = 0;
    f64 scale = 1;
    for (i64 i = 0; i < n; i++)
        for (i64 k = 0; k < 2; k++)
            if (isfinite(element(&c->out[k], i)))
                scale = fmax(scale, fabs(element(&c->out[k], i)));
    for (i64 i = 0; i < n && c->outcome != DIFFERENT; i++) {
        f64 l = element(&c->out[0], i), r = element(&c->out[1], i);
        bool is_float = c->out[0].type == DT_f64;
        finite += isfinite(l) && isfinite(r);
        if (is_float ? !is_same(l, r, scale, x)
                     : tensor_get_i64(&c->out[0], i) != tensor_get_i64(&c->out[1], i)) {
            c->outcome = DIFFERENT;
            c->at = i;
        }
    }
    if (c->outcome != DIFFERENT)
        c->outcome = finite ? SAME : VACUOUS;
}

static const i64 *tiles_of(arena *a, const build *b)
{
    i64 *tiles = NEW_N(a, i64, b->p->atoms.n);
    for (i64 i = 0; i < b->p->atoms.n; i++)
        tiles[i] = 1;
    for (i64 k = 0; k < b->x->n; k++)
        tiles[b->atom[k].i] = b->x->tiles[k];
    return tiles;
}

/* Evaluates both sides; everything lives in `a`. An integer division by zero says nothing. */
static void compare(arena *a, const lab *l, const instance *x, comparison *c)
{
    eqf_ctx *ctx = arena_ctx(a);
    *c = (comparison){.outcome = SAME};
    set_environment(l, x, &c->env);
    if (!build_program(a, l, x, &c->env, &c->b)) {
        c->outcome = DIFFERENT;
        c->no_type = true;
        return;
    }
    const ir_port *left = &c->b.p->outputs.at[0], *right = &c->b.p->outputs.at[1];
    bool same_type = left->rank == right->rank && left->dtype == right->dtype;
    for (i64 i = 0; same_type && i < left->rank; i++)
        same_type = left->dims[i].atoms.at[0].i == right->dims[i].atoms.at[0].i;
    if (!same_type) {
        c->outcome = DIFFERENT;
        c->no_type = true;
        return;
    }
    c->in = draw_tensors(a, &c->b);
    trap t;
    size_t said = eqf_diag_count(ctx);
    TRY (ctx, t)
        ir_eval(c->b.p, c->in, a, c->out, (ir_eval_options){.tiles = tiles_of(a, &c->b)});
    if (t.status && t.status != EQF_E_DATA)
        eqf_rethrow(ctx, t.status);
    if (t.status && said == 0)
        eqf_ctx_clear(ctx);
    if (t.status)
        c->outcome = VACUOUS;
    else
        compare_values(ctx, x, c);
}

static outcome try_instance(const lab *l, const instance *x)
{
    arena *scratch = arena_child(l->a);
    comparison c;
    compare(scratch, l, x, &c);
    arena_free(scratch);
    return c.outcome;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

static bool still_fails(const lab *l, const instance *x)
{
    rl_env env;
    set_environment(l, x, &env);
    bool is_fair = !x->is_masked || !has_empty_tiles(x);
    for (i64 v = 0; v < l->r->n_vars && is_fair; v++)
        is_fair = !(x->facts[v] & RL_IS_POSITIVE) || !has_empty_tiles(x);
    if (!is_fair)
        return false;
    return is_instance(&env) && try_instance(l, x) == DIFFERENT;
}

/* Keeps the change when the sides still differ, for these or for other values. */
static bool keep(const lab *l, instance *best, instance x)
{
    for (i64 k = 0; k < 6; k++) {
        if (still_fails(l, &x)) {
            *best = x;
            return true;
        }
        x.seed = hash_u64(x.seed, (u64)k + 1);
    }
    return false;
}

static void shrink(const lab *l, instance *best)
{
    for (bool again = true; again;) {
        again = false;
        for (i64 k = best->n - 1; k >= 0 && !again; k--) {
            if (best->fixed[k])
                continue;
            instance x = *best;
            for (i64 j = k; j + 1 < x.n; j++) {
                x.way[j] = x.way[j + 1];
                x.extent[j] = x.extent[j + 1];
                x.tiles[j] = x.tiles[j + 1];
                x.fixed[j] = x.fixed[j + 1];
            }
            x.n--;
            again = keep(l, best, x);
        }
        for (i64 k = 0; k < best->n && !again; k++) { /* an atom in fewer sets */
            for (i64 i = 0; i < l->n_places && !again; i++) {
                instance x = *best;
                if (best->fixed[k] || !(x.way[k] >> i & 1))
                    continue;
                x.way[k] &= ~(1u << i);
                again = keep(l, best, x);
            }
        }
    }
    instance x = *best;
    i64 next = 2;
    for (i64 k = 0; k < x.n; k++)
        if (!x.fixed[k])
            x.extent[k] = next++;
    keep(l, best, x);
    for (i64 k = 0; k < best->n; k++) {
        x = *best;
        x.tiles[k] = x.tiles[k] > 2 ? 2 : 1;
        keep(l, best, x);
    }
    for (i64 rounding = 1; rounding <= 2; rounding++) {
        x = *best;
        x.rounding = rounding;
        keep(l, best, x);
    }
    x = *best;
    x.with_zeros = false;
    keep(l, best, x);
    x = *best;
    x.is_masked = false;
    keep(l, best, x);
    x = *best;
    x.source = ANYWHERE;
    keep(l, best, x);
}

/* ---- the report ------------------------------------------------------------------------------ */

static void print_set(const instance *x, str *s, u64 mask)
{
    str_add(s, "{");
    for (i64 k = 0, n = 0; k < x->n; k++)
        if (mask >> k & 1)
            str_printf(s, "%s%s", n++ ? " " : "", atom_name(k));
    str_add(s, "}");
}

static void print_value(str *s, const tensor *t, i64 i)
{
    if (t->type != DT_f64)
        str_printf(s, "%lld", (long long)tensor_get_i64(t, i));
    else if (isnan(tensor_get_f64(t, i))) /* of either sign */
        str_add(s, "nan");
    else
        str_printf(s, "%.6g", tensor_get_f64(t, i));
}

static void print_values(str *s, const tensor *t, i64 count)
{
    str_add(s, " = (");
    for (i64 i = 0; i < MIN(count, 24); i++) {
        str_add(s, i ? " " : "");
        print_value(s, t, i);
    }
    str_add(s, count > 24 ? " ...)" : ")");
}

static void print_variables(const lab *l, const instance *x, const comparison *c, str *s)
{
    i64 port = 0;
    for (i64 v = 0; v < l->r->n_vars; v++) {
        const rl_var *var = &l->r->vars[v];
        const rl_binding *b = &c->env.at[v];
        if (var->is_number)
            continue;
        str_printf(s, "; %s ", var->name);
        if (var->kind == RL_VAR_TERM) {
            print_set(x, s, b->type.dims);
            if (b->type.axes) {
                str_add(s, " :par ");
                print_set(x, s, b->type.axes);
            }
            if (c->in) {
                const tensor *t = &c->in[port];
                print_values(s, t, tensor_count(arena_ctx(l->a), t->rank, t->shape));
            }
            port++;
        } else if (var->kind != RL_VAR_MAP) {
            print_set(x, s, b->type.dims);
        } else {
            for (i64 k = 0; k < var->map_parts; k++)
                print_set(x, s, b->part[k]);
            str_add(s, " to ");
            print_set(x, s, b->to);
            if (var->map_of == IR_slice)
                str_printf(s, " from %lld by %lld", (long long)x->map[v].start,
                           (long long)x->map[v].step);
        }
    }
}

static void print_results(const comparison *c, str *s)
{
    const ir_port *port = &c->b.p->outputs.at[0];
    str_add(s, "; ");
    i64 stride = 1, at[MAX_ATOMS];
    for (i64 i = port->rank - 1; i >= 0; i--) {
        at[i] = c->at / stride % port->dims[i].extent;
        stride *= port->dims[i].extent;
    }
    for (i64 i = 0; i < port->rank; i++)
        str_printf(s, "%s%s=%lld", i ? " " : "at ", ir_atom_name(c->b.p, port->dims[i].atoms.at[0]),
                   (long long)at[i]);
    str_add(s, port->rank ? ": left " : "left ");
    print_value(s, &c->out[0], c->at);
    str_add(s, ", right ");
    print_value(s, &c->out[1], c->at);
}

static const char *describe(const lab *l, const instance *x)
{
    str s = str_new(l->a);
    arena *scratch = arena_child(l->a);
    comparison c;
    compare(scratch, l, x, &c);
    str_add(&s, x->n ? "" : "no dims");
    for (i64 k = 0; k < x->n; k++)
        str_printf(&s, "%s%s=%lld", k ? " " : "", atom_name(k), (long long)x->extent[k]);
    for (i64 k = 0; k < x->n; k++)
        if (x->tiles[k] > 1)
            str_printf(&s, ", %s in %lld tiles", atom_name(k), (long long)x->tiles[k]);
    print_variables(l, x, &c, &s);
    if (c.no_type)
        str_add(&s, "; the right side has not the type of the left");
    else
        print_results(&c, &s);
    arena_free(scratch);
    return str_text(&s);
}

/* Numbers that values may be near; large ones leave no digits for what they are added to. */
static void collect_numbers(lab *l, const rl_term *t)
{
    f64 c = t->kind == RL_TERM_NUMBER                                 ? t->number
            : t->kind == RL_TERM_VAR && l->r->vars[t->var].is_number ? l->r->vars[t->var].number
                                                                      : 0;
    if (c != 0 && fabs(c) <= 1000 && l->n_numbers < MAX_NUMBERS)
        l->number[l->n_numbers++] = c;
    for (i64 i = 0; i < t->n; i++)
        collect_numbers(l, t->kids[i]);
}

static lab *new_lab(arena *a, const rl_rule *r, u64 seed)
{
    lab *l = NEW(a, lab);
    *l = (lab){.a = a, .r = r, .g = rng_new(seed)};
    rl_env *env = NEW(a, rl_env);
    l->n_places = rl_places(r, env, l->place);
    collect_numbers(l, r->left);
    collect_numbers(l, r->right);
    for (i64 k = 0; k < 3; k++)
        if (r->kinds >> k & 1)
            l->ways[k] = rl_valid_ways(a, r, samples[k], &l->n_ways[k]);
    return l;
}

ir_program *rl_instance(arena *a, const rl_rule *r, u64 seed)
{
    lab *l = new_lab(a, r, seed);
    instance x;
    rl_env env;
    for (i64 tries = 0; !draw(l, &x); tries++)
        if (tries > MAX_TRIES)
            return NULL;
    set_environment(l, &x, &env);
    build b = start_program(a, l, &x, &env, true);
    rl_builder builder = {make, &b, true};
    u32 left = rl_build(&env, r->left, x.free, &builder);
    if (!left)
        return NULL;
    add_output(&b, "left", whole_of(&b, (ir_term){left}));
    return b.p;
}

rl_trial rl_try_rule(arena *a, const rl_rule *r, i64 instances, u64 seed)
{
    lab *l = new_lab(a, r, seed);
    rl_trial out = {RL_UNTESTABLE, 0, NULL};
    for (i64 tries = 0; out.instances < instances; tries++) {
        if (tries > MAX_TRIES * (out.instances + 1))
            return out;
        instance x;
        if (!draw(l, &x))
            continue;
        outcome o = try_instance(l, &x);
        out.instances += o != VACUOUS;
        if (o != DIFFERENT)
            continue;
        shrink(l, &x);
        out.verdict = RL_UNSOUND;
        out.counterexample = describe(l, &x);
        return out;
    }
    out.verdict = RL_SOUND;
    return out;
}
