/* Every rule that the operators' rows imply: on random operands, cut into tiles, everything in the
 * e-graph is worth what its class is, and each rule has fired as often as is asked for. */
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

typedef struct trial {
    rng g;
    arena *a;
    ir_program *p;
    ir_atom atom[6]; /* extents 2 3 5, and a second of each */
} trial;

static ir_term operand(trial *t, i64 number, dtype type)
{
    ir_dim dims[3];
    i64 rank = 0;
    for (i64 i = 0; i < 3; i++)
        if (rng_below(&t->g, 3))
            dims[rank++] = (ir_dim){ir_extent(t->p, t->atom[i]), {&t->atom[i], 1}};
    i64 port = ir_add_input(
        t->p,
        (ir_port){.name = intern_cstr(t->p->names, arena_printf(t->a, "x%lld", (long long)number)),
                  .dtype = (u8)type,
                  .rank = rank,
                  .dims = arena_copy(t->a, dims, rank * (i64)sizeof *dims)});
    return t->p->inputs.at[port].term;
}

static dtype operand_type(ir_op op, i64 i)
{
    const ir_op_row *row = ir_row(op);
    switch ((ir_rule)row->rule) {
    case IR_INTEGER:
        return DT_i64;
    case IR_LOGIC:
    case IR_BOOLEAN:
        return DT_bool;
    case IR_SELECT:
        return i == 0 ? DT_bool : DT_f32;
    default:
        return row->class_ == IR_EWISE && !row->on_float && op != IR_cast ? DT_i64 : DT_f32;
    }
}

static ir_atoms some(trial *t, ir_atoms from)
{
    ir_atom *at = NEW_N(t->a, ir_atom, from.n);
    i64 n = 0;
    for (i64 i = 0; i < from.n; i++)
        if (rng_below(&t->g, 2))
            at[n++] = from.at[i];
    return (ir_atoms){at, n};
}

/* Dims to contract: some, sometimes all. */
static ir_atoms contracted(trial *t, ir_atoms from)
{
    return rng_below(&t->g, 4) ? some(t, from) : from;
}

/* The operator over random operands; none when they do not suit it. */
static ir_term apply(trial *t, ir_op op, ir_reducer r)
{
    ir_program *p = t->p;
    ir_term x[3];
    i64 n = op == IR_gather ? 1 : ir_row(op)->arity;
    bool logical = r == IR_OR || r == IR_AND;
    for (i64 i = 0; i < n; i++)
        x[i] = operand(t, i, logical ? DT_bool : operand_type(op, i));
    ir_atoms d = ir_get(p, x[0])->dims;
    switch (ir_row(op)->class_) {
    case IR_REDUCE:
        d = contracted(t, d);
        return d.n ? ir_reduce(p, r, x[0], d) : (ir_term){0};
    case IR_MATMUL:
        d = contracted(t, ir_atoms_union(p, d, ir_get(p, x[1])->dims));
        return d.n ? ir_matmul(p, x[0], x[1], d) : (ir_term){0};
    case IR_GATHER: {
        if (!d.n)
            return (ir_term){0};
        ir_atom k = d.at[rng_below(&t->g, (u64)d.n)];
        ir_term i = ir_2(p, IR_mod, operand(t, 1, DT_i64), ir_i(p, DT_i64, ir_extent(p, k)));
        return ir_make(p, op, (ir_attr){.axis = {&k, 1}}, (ir_term[]){x[0], i}, 2);
    }
    default:
        return ir_make(p, op, (ir_attr){.dtype = op == IR_cast ? DT_i64 : DT_NONE}, x, n);
    }
}

static ir_atom twin(const trial *t, ir_atom d)
{
    for (i64 i = 0; i < 3; i++)
        if (t->atom[i].i == d.i)
            return t->atom[3 + i];
    return (ir_atom){0};
}

static void add_outputs(trial *t, ir_term y)
{
    ir_program *p = t->p;
    ir_atoms d = ir_get(p, y)->dims;
    wide_output(p, "y", y);
    for (i64 i = 0; i < d.n; i++) {
        ir_atom k = d.at[i], to = twin(t, k);
        wide_output(p, arena_printf(t->a, "renamed%lld", (long long)i),
                    ir_rename(p, y, (ir_atoms){&k, 1}, (ir_atoms){&to, 1}));
        ir_atom other = i + 1 < d.n ? d.at[i + 1] : k; /* and back, with a second one or without */
        ir_atom names[2] = {to, other}, back[2] = {k, twin(t, other)};
        wide_output(p, arena_printf(t->a, "twice%lld", (long long)i),
                    ir_rename(p, p->outputs.at[p->outputs.n - 1].term,
                              (ir_atoms){names, 1 + (other.i != k.i)},
                              (ir_atoms){back, 1 + (other.i != k.i)}));
        i64 one = 1, start = ir_extent(p, k) - 2;
        ir_atoms two = {&t->atom[3], 1}; /* extent 2 */
        wide_output(p, arena_printf(t->a, "sliced%lld", (long long)i),
                    ir_slice(p, y, k, start, two, &one));
        ir_reducer r = ir_get(p, y)->dtype == DT_bool ? IR_OR : IR_MAX; /* asks for parts */
        wide_output(p, arena_printf(t->a, "reduced%lld", (long long)i),
                    ir_reduce(p, r, y, (ir_atoms){&k, 1}));
    }
}

/* As `rules list` has it: split.1.matmul is split.matmul, view.gather.2 is view.gather. */
static const char *listed_name(arena *a, const char *name)
{
    const char *gather = strstr(name, ".gather.");
    bool is_split = strncmp(name, "split.", 6) == 0;
    return arena_printf(a, "%s%.*s", is_split ? "split" : "",
                        gather ? (int)(gather - name) + 7 : (int)strlen(name),
                        is_split ? strchr(name + 6, '.') : name);
}

/* Adds up how often each rule changed something. */
static void count(listed_counts *c, const rl_graph *g, const eqf_rules *rules)
{
    for (size_t i = 0; i < eqf_rules_count(rules); i++)
        listed_count(c, listed_name(c->a, eqf_rule_name(rules, i)),
                     eqf_rule_statistics(g->engine, rules, i).applied);
}

/* A dim of extent 3 or 5, so that parts are of unequal size: of the result, or any. */
static ir_atom split_atom(trial *t, ir_term y)
{
    ir_atoms d = ir_get(t->p, y)->dims;
    ir_atom any = t->atom[1 + rng_below(&t->g, 2)];
    ir_atom own = d.n ? d.at[rng_below(&t->g, (u64)d.n)] : any;
    return rng_below(&t->g, 2) && ir_extent(t->p, own) > 2 ? own : any;
}

static void try_operator(listed_counts *c, ir_op op, ir_reducer r, u64 seed)
{
    trial t = {.g = rng_new(seed * 1000 + op * 10 + r), .a = arena_new(arena_ctx(c->a), 0)};
    static const i64 extents[] = {2, 3, 5, 2, 3, 5};
    t.p = ir_program_new(t.a, "trial", "trial");
    for (i64 i = 0; i < COUNT_OF(extents); i++)
        t.atom[i] = ir_atom_new(t.p, arena_printf(t.a, "%c", 'A' + (int)i), extents[i]);
    ir_term y = apply(&t, op, r);
    if (y.i) {
        add_outputs(&t, y);
        rl_graph_options o = {.limits = eqf_limits_default()};
        o.limits.seconds = -1;
        o.limits.iterations = 100;
        rl_graph *g = rl_graph_new(t.a, t.p, &o);
        ir_atom split = split_atom(&t, y);
        if (g->atom_index.n > (i64)split.i && g->atom_index.at[split.i])
            rl_graph_split(g, split, 2);
        assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
        assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
        check_worth(g, t.a, rl_operator_name(t.a, op, r), seed);
        for (i64 i = 0; i < g->loaded.n; i++)
            count(c, g, g->loaded.at[i]);
    }
    arena_free(t.a);
}

/* Have the rules of the operator fired so often? */
static bool is_enough(const listed_counts *c, arena *a, ir_op op, ir_reducer r, i64 times)
{
    const char *end = arena_printf(a, ".%s", rl_operator_name(a, op, r));
    bool all = true;
    for (i64 k = 0; k < c->names.n; k++) {
        const char *at = strstr(c->names.at[k], end);
        all = all && (!at || (at[strlen(end)] && at[strlen(end)] != '.') || c->times.at[k] >= times);
    }
    return all;
}

static void every_generated_rule(void **state)
{
    const i64 instances = *(const i64 *)*state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    listed_counts c = {.a = a};
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++) {
        rl_transfer how = rl_transfer_of(op);
        if (how == RL_NO_TRANSFER || how == RL_STOPS || how == RL_MOVES)
            continue;
        for (ir_reducer r = IR_NO_REDUCER; r < IR_REDUCER_COUNT; r++)
            for (i64 i = 1; (r != IR_NO_REDUCER) == (how == RL_REDUCES) && i <= 10 * instances &&
                            (i <= instances || !is_enough(&c, a, op, r, instances));
                 i++)
                try_operator(&c, op, r, (u64)i);
    }
    i64 rules = 0;
    for (i64 k = 0; k < c.names.n; k++) {
        if (strcmp(c.names.at[k], "view-of-combination") == 0)
            continue; /* says what is there already, wherever values are tiled from above */
        if (c.times.at[k] < instances)
            fail_msg("%s fired %lld times only", c.names.at[k], (long long)c.times.at[k]);
        rules++;
    }
    assert_true(rules > 200);
    assert_true(listed_check(&c, LISTED_GENERATED, instances) > 60);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    i64 instances = argc > 1 ? atoll(argv[1]) : 20;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_generated_rule, &instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
