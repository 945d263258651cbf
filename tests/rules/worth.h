/* Every e-node of every class is worth what its class is, tiled forms included: all are written
 * into one program and evaluated, cut into tiles. What is cut is put together for that,
 * contributions that are still to be combined are laid side by side. A value that exists only
 * inside a loop, at one of its tiles, is seen through the loop. */
#ifndef EQF_TEST_RULES_WORTH_H
#define EQF_TEST_RULES_WORTH_H

#include "rules/graph.h"
#include "rules/small.h"
#include "rules/values.h"

typedef struct worth {
    i64 nodes, classes; /* compared */
    i64 inside;         /* e-nodes that have no value outside of a loop */
    const char *wrong;  /* NULL, or two terms of a class that differ */
} worth;

/* The position along an atom that the value has, itself or by its parts; none. */
static inline ir_term worth_position(ir_program *p, ir_atoms dims, ir_atom d)
{
    if (ir_has(dims, d))
        return ir_iota(p, d);
    for (i64 i = 0; i < p->splits.n; i++) {
        ir_split s = p->splits.at[i];
        if (s.whole.i != d.i)
            continue;
        ir_term outer = worth_position(p, dims, s.outer), inner = worth_position(p, dims, s.inner);
        if (outer.i && inner.i)
            return ir_2(p, IR_add, ir_2(p, IR_mul, outer, ir_i(p, DT_i64, ir_extent(p, s.inner))),
                        inner);
    }
    return (ir_term){0};
}

/* Zero in dead lanes: what they hold means nothing. */
static inline ir_term worth_live(ir_program *p, ir_term t)
{
    for (i64 i = 0; i < p->splits.n; i++) {
        ir_split s = p->splits.at[i];
        ir_atoms d = ir_get(p, t)->dims;
        ir_term at = ir_has(d, s.whole) ? (ir_term){0} : worth_position(p, d, s.whole);
        if (!at.i || !ir_is_ragged(p, s.outer))
            continue;
        dtype type = (dtype)ir_get(p, t)->dtype;
        ir_term zero = dtype_is_float(type) ? ir_f(p, type, 0) : ir_i(p, type, 0);
        t = ir_where(p, ir_2(p, IR_lt, at, ir_i(p, DT_i64, ir_extent(p, s.whole))), t, zero);
    }
    return t;
}

/* Tile counts, and for the axes of more than one tile an atom that counts its tiles. */
typedef struct worth_cut {
    i64 *tiles;
    ir_atom *side;
} worth_cut;

static inline ir_term worth_closed(ir_program *p, const worth_cut *cut, ir_term t)
{
    const ir_node *n = ir_get(p, t);
    if (ir_kind_of((ir_op)n->op) != IR_A_VALUE || n->runs.n > 0 || n->is_open)
        return (ir_term){0};
    ir_reducer r = n->dtype == DT_bool ? IR_OR : IR_SUM;
    ir_atoms partial = ir_axes_in(p, t, IR_PARTIAL);
    for (i64 i = 0; i < partial.n; i++) {
        ir_attr attr = {.par = {&partial.at[i], 1}, .to = {&cut->side[partial.at[i].i], 1}};
        if (cut->tiles[partial.at[i].i] > 1)
            t = ir_make(p, IR_collection, attr, &t, 1);
        else
            t = ir_reduce_par(p, r, t, attr.par);
    }
    return worth_live(p, ir_comb(p, t, ir_get(p, t)->axes));
}

static inline void worth_output(ir_program *p, const char *name, ir_term t)
{
    ir_atoms d = ir_get(p, t)->dims;
    ir_dim *dims = NEW_N(p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(p, d.at[i]), {&d.at[i], 1}};
    ir_add_output(
        p, (ir_port){.name = intern_cstr(p->names, name), .rank = d.n, .dims = dims, .term = t});
}

/* Seed 0: one tile an axis. */
static inline worth_cut worth_cut_of(arena *a, ir_program *p, u64 seed)
{
    rng r = rng_new(seed);
    i64 n = p->atoms.n;
    worth_cut cut = {NEW_N(a, i64, 2 * n), NEW_N(a, ir_atom, n)};
    for (i64 d = 0; d < 2 * n; d++)
        cut.tiles[d] = seed && d < n ? 2 + (i64)rng_below(&r, 2) : 1;
    for (i64 d = 1; seed && d < n; d++)
        cut.side[d] = ir_atom_new(p, NULL, cut.tiles[d]);
    return cut;
}

static inline worth worth_of(rl_graph *g, arena *a, u64 seed)
{
    eqf_egraph *e = rl_graph_engine(g);
    eqf_ctx *ctx = arena_ctx(a);
    VEC(eqf_class) all = {0};
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c))
        vec_push(a, &all, c);
    eqf_extraction *x;
    assert_int_equal(eqf_extract(e, all.at, (size_t)all.n, NULL, EQF_TREE, &x), EQF_OK);
    rl_writer *w = rl_writer_new(g, a, x);
    ir_program *p = rl_writer_program(w);
    worth_cut cut = worth_cut_of(a, p, seed);
    VEC(i64) first = {0}; /* output of each class; its e-nodes follow */
    worth sum = {0};
    for (i64 k = 0; k < all.n; k++) {
        ir_term t = worth_closed(p, &cut, rl_write_class(w, all.at[k]));
        vec_push(a, &first, p->outputs.n);
        if (t.i)
            worth_output(p, arena_printf(a, "c%u", all.at[k].i), t);
        i64 j = 0;
        for (eqf_node n = eqf_next_node(e, all.at[k], (eqf_node){0}); n.i;
             n = eqf_next_node(e, all.at[k], n)) {
            ir_term u = t.i ? worth_closed(p, &cut, rl_write_node(w, n)) : t;
            if (u.i)
                worth_output(p, arena_printf(a, "c%u.%lld", all.at[k].i, (long long)j++), u);
            else
                sum.inside++;
        }
    }
    vec_push(a, &first, p->outputs.n);
    ir_verify(p, "writing all e-nodes");
    tensor *out = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, small_inputs(a, p, 11), a, out,
            (ir_eval_options){.tiles = cut.tiles, .association = seed});
    for (i64 k = 0; k < all.n; k++) {
        sum.classes += first.at[k + 1] > first.at[k];
        for (i64 i = first.at[k] + 1; i < first.at[k + 1]; i++) {
            sum.nodes++;
            if (sum.wrong || same_values(ctx, &out[first.at[k]], &out[i]))
                continue;
            str s = str_new(a);
            ir_print_term(&s, p, p->outputs.at[first.at[k]].term);
            str_add(&s, "\n");
            ir_print_term(&s, p, p->outputs.at[i].term);
            sum.wrong = str_text(&s);
        }
    }
    eqf_extraction_free(x);
    return sum;
}

static inline worth check_worth(rl_graph *g, arena *a, const char *name, u64 seed)
{
    worth w = worth_of(g, a, seed);
    if (w.wrong)
        fail_msg("%s: a class holds different values:\n%s", name, w.wrong);
    return w;
}

#endif
