/* What holds by how e-nodes are made, on random instances: loops have their components as a set, tuples
 * leave nothing, an index map of dims that an operand lacks leaves it alone, a square and a reciprocal
 * have one spelling. Both sides of each are one class without a step, and worth the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/graph_impl.h"
#include "rules/listed.h"
#include "rules/small.h"
#include "rules/wide.h"
#include "rules/worth.h"

typedef struct instance {
    rng g;
    arena *a;
    ir_program *p;
    ir_atom atom[4], spare; /* extents 2 3 4 5; a second dim of extent 3 */
    i64 inputs;
} instance;

static instance instance_of(eqf_ctx *ctx, u64 seed)
{
    instance t = {.g = rng_new(seed), .a = arena_new(ctx, 0)};
    t.p = ir_program_new(t.a, "instance", "instance");
    for (i64 i = 0; i < COUNT_OF(t.atom); i++)
        t.atom[i] = ir_atom_new(t.p, arena_printf(t.a, "%c", 'A' + (int)i), 2 + i);
    t.spare = ir_atom_new(t.p, "S", 3);
    return t;
}

/* An input with the dims of a mask. */
static ir_term input_with(instance *t, u64 dims)
{
    ir_dim at[COUNT_OF(t->atom)];
    i64 rank = 0;
    for (i64 i = 0; i < COUNT_OF(t->atom); i++)
        if (dims >> i & 1)
            at[rank++] = (ir_dim){ir_extent(t->p, t->atom[i]), {&t->atom[i], 1}};
    const char *name = arena_printf(t->a, "x%lld", (long long)t->inputs++);
    i64 port = ir_add_input(t->p, (ir_port){.name = intern_cstr(t->p->names, name),
                                            .role = rng_below(&t->g, 4) ? IR_INPUT : IR_PARAMETER,
                                            .dtype = DT_f32,
                                            .rank = rank,
                                            .dims = arena_copy(t->a, at, rank * (i64)sizeof *at)});
    return t->p->inputs.at[port].term;
}

/* The input itself, or something made of it with the same dims; above 0 where that is asked for. */
static ir_term made_of(instance *t, ir_term x, bool positive)
{
    static const ir_op any[] = {IR_neg, IR_exp, IR_tanh, IR_abs}, above[] = {IR_exp, IR_sigmoid};
    u64 k = rng_below(&t->g, positive ? 2 : 6);
    if (!positive && k >= COUNT_OF(any))
        return x;
    return ir_1(t->p, positive ? above[k] : any[k], x);
}

static u64 some_dims(instance *t)
{
    return rng_below(&t->g, 16);
}

static rl_graph *graph_of(instance *t)
{
    rl_graph_options o = {.limits = eqf_limits_default()};
    o.limits.seconds = -1;
    return rl_graph_new(t->a, t->p, &o);
}

/* The graph has the other term in the class of the output, everything in it is worth its class, and the
 * program that comes out what went in is. */
static void check_same(instance *t, rl_graph *g, ir_term other, const char *name, u64 seed)
{
    ir_program *p = t->p;
    ir_term y = p->outputs.at[0].term;
    eqf_class c = rl_graph_find(g, p, other);
    if (!c.i || c.i != rl_graph_class(g, y).i)
        fail_msg("%s, instance %d: two classes", name, (int)seed);
    check_worth(g, t->a, name, seed % 3);
    ir_program *q = rl_graph_form(g, t->a, EQF_DAG).program;
    wide_output(p, "left", worth_live(p, y)); /* dead lanes mean nothing */
    wide_output(p, "right", worth_live(p, other));
    wide_output(q, "form", worth_live(q, q->outputs.at[0].term));
    i64 n = p->outputs.n;
    tensor *want = NEW_N(t->a, tensor, n), *got = NEW_N(t->a, tensor, n);
    i64 *tiles = NEW_N(t->a, i64, MAX(p->atoms.n, q->atoms.n));
    for (i64 d = 0; d < MAX(p->atoms.n, q->atoms.n); d++)
        tiles[d] = 1 + (i64)(seed + (u64)d) % 3;
    ir_eval(p, small_inputs(t->a, p, seed), t->a, want, (ir_eval_options){.tiles = tiles});
    ir_eval(q, small_inputs(t->a, q, seed), t->a, got, (ir_eval_options){.tiles = tiles});
    assert_true(same_values(arena_ctx(t->a), &want[n - 2], &want[n - 1]));
    assert_true(same_values(arena_ctx(t->a), &want[n - 2], &got[q->outputs.n - 1]));
}

/* ---- one instance of each; false: the seed gives none ------------------------------------------ */

/* (get (tuple x y ...) x) = x */
static bool try_tuple(instance *t, const char *name, u64 seed)
{
    ir_term member[4];
    i64 n = 1 + (i64)rng_below(&t->g, COUNT_OF(member));
    for (i64 i = 0; i < n; i++)
        member[i] = made_of(t, input_with(t, some_dims(t)), false);
    ir_term tuple = ir_make(t->p, IR_tuple, (ir_attr){0}, member, n);
    ir_term x = member[rng_below(&t->g, (u64)n)], got = ir_get_from(t->p, tuple, x);
    bool is_inside = rng_below(&t->g, 2); /* below an operator */
    wide_output(t->p, "y", is_inside ? ir_1(t->p, IR_neg, got) : got);
    rl_graph *g = graph_of(t);
    check_same(t, g, is_inside ? ir_1(t->p, IR_neg, x) : x, name, seed);
    return true;
}

/* (mul x x) and (pow x 2) are (square x) */
static bool try_square(instance *t, const char *name, u64 seed)
{
    ir_term x = made_of(t, input_with(t, some_dims(t)), false);
    bool is_power = rng_below(&t->g, 2);
    wide_output(t->p, "y", is_power ? ir_2(t->p, IR_pow, x, ir_f(t->p, DT_f32, 2))
                                    : ir_2(t->p, IR_mul, x, x));
    check_same(t, graph_of(t), ir_1(t->p, IR_square, x), name, seed);
    return true;
}

/* (div 1 x) is (recip x), (recip (sqrt x)) is (rsqrt x) */
static bool try_recip(instance *t, const char *name, u64 seed)
{
    ir_program *p = t->p;
    ir_term x = made_of(t, input_with(t, some_dims(t)), true), one = ir_f(p, DT_f32, 1);
    bool has_root = rng_below(&t->g, 2), divides = !has_root || rng_below(&t->g, 2);
    ir_term below = has_root ? ir_1(p, IR_sqrt, x) : x;
    wide_output(p, "y", divides ? ir_2(p, IR_div, one, below) : ir_1(p, IR_recip, below));
    check_same(t, graph_of(t), ir_1(p, has_root ? IR_rsqrt : IR_recip, x), name, seed);
    return true;
}

/* (cast half x) is x where something is made of it; the program's ports and what it means stay. */
static bool try_rounding(instance *t, const char *name, u64 seed)
{
    ir_program *p = t->p;
    ir_term x = made_of(t, input_with(t, some_dims(t)), false);
    ir_term rounded = ir_cast(p, rng_below(&t->g, 2) ? DT_bf16 : DT_f16, x);
    bool is_widened = rng_below(&t->g, 2);
    ir_term back = ir_cast(p, DT_f32, is_widened ? rounded : ir_1(p, IR_neg, rounded));
    wide_output(p, "y", ir_1(p, IR_abs, back));
    check_same(t, graph_of(t), ir_1(p, IR_abs, is_widened ? x : ir_1(p, IR_neg, x)), name, seed);
    return true;
}

/* An index map of the dim d. */
static ir_term map_over(instance *t, u64 kind, ir_term x, ir_atom d)
{
    ir_program *p = t->p;
    ir_atoms from = {&d, 1}, to = {&t->spare, 1};
    i64 one = 1;
    switch (kind) {
    case 0:
        return ir_rename(p, x, from, to);
    case 1:
        return ir_slice(p, x, d, ir_extent(p, d) - ir_extent(p, t->spare), to, &one);
    default: {
        const ir_split *s = &p->splits.at[0];
        return ir_splitdim(p, x, s->outer, s->inner);
    }
    }
}

/* (map (op x z)) = (op (map x) z) where z lacks the dims of the map */
static bool try_map(instance *t, const char *name, u64 seed)
{
    static const ir_op ops[] = {IR_add, IR_sub, IR_mul, IR_max, IR_min};
    ir_program *p = t->p;
    u64 kind = rng_below(&t->g, 3), k = kind == 0 ? 1 : 1 + rng_below(&t->g, 3); /* extent >= 3 */
    ir_atom d = t->atom[k];
    if (kind == 2) { /* the last part may be short */
        ir_atom outer = ir_atom_new(p, "D.o", 2);
        ir_split_new(p, d, outer, ir_atom_new(p, "D.i", (ir_extent(p, d) + 1) / 2));
    }
    ir_term x = made_of(t, input_with(t, some_dims(t) | (u64)1 << k), false);
    ir_term z = made_of(t, input_with(t, some_dims(t) & ~((u64)1 << k)), false);
    bool is_product = rng_below(&t->g, 3) == 0;
    ir_atoms all = ir_atoms_union(p, ir_get(p, x)->dims, ir_get(p, z)->dims);
    ir_atoms over = ir_atoms_minus(p, all, (ir_atoms){&d, 1});
    if (is_product && !over.n)
        return false;
    ir_op op = ops[rng_below(&t->g, COUNT_OF(ops))];
    bool is_first = rng_below(&t->g, 2);
    ir_term l = is_first ? x : z, r = is_first ? z : x, moved = map_over(t, kind, x, d);
    ir_term ml = is_first ? moved : z, mr = is_first ? z : moved;
    ir_term whole = is_product ? ir_matmul(p, l, r, over) : ir_2(p, op, l, r);
    wide_output(p, "y", map_over(t, kind, whole, d));
    rl_graph *g = graph_of(t);
    if (rl_graph_type(g, rl_graph_class(g, p->outputs.at[0].term)).facts & RL_CONSTANT)
        return false; /* folded as it is */
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    check_same(t, g, is_product ? ir_matmul(p, ml, mr, over) : ir_2(p, op, ml, mr), name, seed);
    return true;
}

/* The component's result after the loop over the components, as a whole tensor. */
static ir_term result_of(ir_program *p, ir_atoms par, const ir_term *comps, i64 n, ir_term comp)
{
    ir_term y = ir_get_from(p, ir_loop(p, par, comps, n, NULL), comp);
    return ir_comb(p, y, ir_get(p, y)->axes);
}

/* (loop d c c ...) = (loop c d ...), when two components turn out to be one: a body is told to be worth
 * what another is, from which it differs as a term. */
static bool try_components(instance *t, const char *name, u64 seed)
{
    static const ir_reducer reducers[] = {IR_SUM, IR_MAX, IR_MIN};
    ir_program *p = t->p;
    i64 n = 1 + (i64)rng_below(&t->g, 3), twin = (i64)rng_below(&t->g, (u64)n);
    u64 k = rng_below(&t->g, COUNT_OF(t->atom)), dims = some_dims(t) | (u64)1 << k;
    ir_atoms par = {&t->atom[k], 1};
    ir_term comp[4], same[2] = {{0}};
    i64 at[4];
    for (i64 i = 0; i <= n; i++) { /* the last one is the twin, by another term */
        ir_reducer r = reducers[(u64)(i < n ? i : twin) % COUNT_OF(reducers)];
        ir_term x = i < n ? made_of(t, input_with(t, dims), false) : same[0];
        ir_term body = ir_view(p, i < n ? x : ir_1(p, IR_neg, ir_1(p, IR_neg, x)), ir_get(p, x)->dims);
        comp[i] = ir_comp(p, r, ir_reduce(p, r, body, par));
        if (i == twin)
            same[0] = x;
        if (i == n)
            same[1] = ir_1(p, IR_neg, ir_1(p, IR_neg, x));
    }
    for (i64 i = 0; i <= n; i++) { /* in any order */
        i64 j = (i64)rng_below(&t->g, (u64)i + 1);
        at[i] = at[j];
        at[j] = i;
    }
    ir_term all[4] = {{0}};
    for (i64 i = 0; i <= n; i++)
        all[i] = comp[at[i]];
    ir_term asked = comp[rng_below(&t->g, (u64)n)], first = result_of(p, par, all, n + 1, asked);
    ir_term other = result_of(p, par, comp, n, asked);
    wide_output(p, "y", first);
    wide_output(p, "z", other);
    wide_output(p, "twin", same[0]);
    wide_output(p, "again", same[1]);
    rl_graph *g = graph_of(t);
    bool changed, swap = rng_below(&t->g, 2);
    assert_int_not_equal(rl_graph_class(g, first).i, rl_graph_class(g, other).i);
    eqf_class x = rl_graph_class(g, same[swap]), y = rl_graph_class(g, same[!swap]);
    rl_must(g, eqf_union(g->engine, x, y, eqf_text_of("told"), &changed));
    rl_must(g, eqf_rebuild(g->engine));
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    p->outputs.n = 1;
    check_same(t, g, other, name, seed);
    return true;
}

static const struct {
    const char *name;
    bool (*try)(instance *t, const char *name, u64 seed);
} structure[] = {
    {"member-of-tuple", try_tuple}, {"spell-square", try_square}, {"spell-recip", try_recip},
    {"map-of-less", try_map},       {"normalise", try_components},   {"unrounded", try_rounding},
};

static void structure_holds(void **state)
{
    enum { INSTANCES = 200 };
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    listed_counts counts = {.a = arena_new(ctx, 0)};
    for (i64 k = 0; k < COUNT_OF(structure); k++) {
        i64 times = 0;
        for (u64 seed = 1; seed <= 3 * INSTANCES && times < INSTANCES; seed++) {
            instance t = instance_of(ctx, seed);
            times += structure[k].try(&t, structure[k].name, seed);
            arena_free(t.a);
        }
        listed_count(&counts, structure[k].name, times);
    }
    assert_int_equal(listed_check(&counts, LISTED_STRUCTURE, INSTANCES), COUNT_OF(structure));
    arena_free(counts.a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
