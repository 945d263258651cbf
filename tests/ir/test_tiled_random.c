/* Random tensor programs against their canonical tilings: T(op(x)) = op(T(x)), reductions inside
 * the tile and then over the axis, alone or in loops with others, split in two parts of unequal
 * size or not. All arithmetic is exact, so any order of summation gives the same. */
#include <math.h>

#include "ir/check.h"

typedef struct component {
    ir_term comp;
    ir_atoms axes;
} component;

typedef struct gen {
    ir_program *p;
    arena *a;
    rng r;
    VEC(ir_term) pool;
    VEC(ir_term) tiled; /* by term; none: not tiled yet */
    VEC(component) components;
} gen;

static i64 below(gen *g, i64 n)
{
    return (i64)rng_below(&g->r, (u64)n);
}

static ir_term any(gen *g)
{
    return g->pool.at[below(g, g->pool.n)];
}

static ir_atoms dims_of(gen *g, ir_term t)
{
    return ir_get(g->p, t)->dims;
}

static ir_atoms some(gen *g, ir_atoms set)
{
    ir_atom *at = NEW_N(g->a, ir_atom, set.n);
    i64 n = 0;
    for (i64 i = 0; i < set.n; i++)
        if (below(g, 2))
            at[n++] = set.at[i];
    return (ir_atoms){at, n};
}

/* ---- random programs ------------------------------------------------------------------------- */

static ir_term renamed(gen *g, ir_term x)
{
    ir_atoms dims = dims_of(g, x);
    for (u32 d = 1; d < (u32)g->p->atoms.n && dims.n > 0; d++) {
        ir_atom from = dims.at[below(g, dims.n)], to = {d};
        if (!ir_has(dims, to) && ir_extent(g->p, to) == ir_extent(g->p, from) &&
            !g->p->atoms.at[d].split && !g->p->atoms.at[from.i].split)
            return ir_rename(g->p, x, (ir_atoms){&from, 1}, (ir_atoms){&to, 1});
    }
    return x;
}

static ir_term random_step(gen *g)
{
    static const ir_op pairs[] = {IR_add, IR_sub, IR_max, IR_min};
    static const ir_reducer reducers[] = {IR_SUM, IR_MAX, IR_MIN};
    ir_term x = any(g), y = any(g);
    switch (below(g, 8)) {
    case 0:
        return ir_1(g->p, below(g, 2) ? IR_neg : IR_abs, x);
    case 1:
        return ir_where(g->p, ir_2(g->p, IR_lt, x, y), x, any(g));
    case 2:
        return ir_reduce(g->p, reducers[below(g, 3)], x, some(g, dims_of(g, x)));
    case 3:
        return ir_matmul(g->p, x, y, some(g, ir_atoms_union(g->p, dims_of(g, x), dims_of(g, y))));
    case 4:
        return renamed(g, x);
    case 5:
        return ir_cast(g->p, DT_f64, ir_iota(g->p, (ir_atom){(u32)(1 + below(g, 5))}));
    default:
        return ir_2(g->p, pairs[below(g, 4)], x, y);
    }
}

/* ---- tilings --------------------------------------------------------------------------------- */

static ir_term combine(gen *g, ir_reducer r, ir_term x, ir_atoms axes)
{
    ir_program *p = g->p;
    if (axes.n == 0 || below(g, 2))
        return ir_reduce_par(p, r, x, axes);
    component c = {ir_comp(p, r, x), axes};
    ir_term both[2] = {c.comp};
    i64 n = 1;
    for (i64 i = 0; i < g->components.n && n == 1; i++) {
        const component *other = &g->components.at[i];
        if (other->axes.n == axes.n && below(g, 2) &&
            memcmp(other->axes.at, axes.at, (size_t)axes.n * sizeof *axes.at) == 0)
            both[n++] = other->comp;
    }
    vec_push(g->a, &g->components, c);
    return ir_get_from(p, ir_loop(p, axes, both, n, NULL), c.comp);
}

/* A split of one of the atoms, which is not a part itself; NULL: none. */
static const ir_split *split_for(gen *g, ir_atoms axis)
{
    for (i64 i = 0; i < g->p->splits.n; i++)
        if (ir_has(axis, g->p->splits.at[i].whole) && below(g, 2))
            return &g->p->splits.at[i];
    return NULL;
}

static ir_term tile(gen *g, ir_term t)
{
    if ((i64)t.i < g->tiled.n && g->tiled.at[t.i].i)
        return g->tiled.at[t.i];
    ir_program *p = g->p;
    ir_node node = *ir_get(p, t);
    ir_term out;
    bool is_sum = node.op == IR_reduce || node.op == IR_matmul;
    const ir_split *s = is_sum ? split_for(g, node.attr.axis) : NULL;
    ir_reducer r = node.op == IR_reduce ? (ir_reducer)node.attr.reducer : IR_SUM;
    if (s) { /* over the inner part, then over the outer */
        ir_split parts = *s;
        ir_term x[2];
        for (i64 i = 0; i < node.arg_count; i++)
            x[i] = ir_splitdim(p, node.args[i], parts.outer, parts.inner);
        ir_atoms rest = ir_atoms_minus(p, node.attr.axis, (ir_atoms){&parts.whole, 1});
        rest = ir_atoms_union(p, rest, (ir_atoms){&parts.inner, 1});
        out = node.op == IR_reduce ? ir_reduce(p, r, x[0], rest) : ir_matmul(p, x[0], x[1], rest);
        out = tile(g, ir_reduce(p, r, out, (ir_atoms){&parts.outer, 1}));
    } else if (node.op == IR_reduce) {
        ir_term x = tile(g, node.args[0]);
        out = combine(g, r, ir_reduce(p, r, x, node.attr.axis), node.attr.axis);
    } else if (node.op == IR_matmul) {
        ir_term a = tile(g, node.args[0]), b = tile(g, node.args[1]);
        out = combine(g, IR_SUM, ir_tile_matmul(p, a, b, node.attr.axis), node.attr.axis);
    } else if (ir_row(node.op)->class_ == IR_EWISE) {
        ir_term args[3];
        for (i64 i = 0; i < node.arg_count; i++)
            args[i] = tile(g, node.args[i]);
        out = ir_make(p, node.op, node.attr, args, node.arg_count);
    } else {
        out = ir_view(p, t, node.dims);
    }
    if (below(g, 6) == 0) /* stored and loaded again */
        out = ir_view(p, ir_comb(p, out, ir_get(p, out)->axes), ir_get(p, out)->axes);
    vec_reserve(g->a, &g->tiled, (i64)t.i + 1);
    g->tiled.n = MAX(g->tiled.n, (i64)t.i + 1);
    g->tiled.at[t.i] = out;
    return out;
}

static void add_output(gen *g, const char *name, ir_term t)
{
    ir_atoms dims = dims_of(g, t);
    ir_dim *at = NEW_N(g->a, ir_dim, dims.n);
    for (i64 i = 0; i < dims.n; i++)
        at[i] = (ir_dim){ir_extent(g->p, dims.at[i]), {&dims.at[i], 1}};
    ir_add_output(
        g->p,
        (ir_port){.name = intern_cstr(g->p->names, name), .rank = dims.n, .dims = at, .term = t});
}

static ir_program *random_program(arena *a, u64 seed)
{
    gen g = {.a = a, .r = rng_new(seed)};
    g.p = ir_program_new(a, "random", "random");
    static const i64 extents[] = {2, 3, 5, 7, 5};
    ir_atom all[5];
    for (int i = 0; i < 5; i++)
        all[i] = ir_atom_new(g.p, NULL, extents[i]);
    for (int i = 2; i < 4; i++) { /* some parts short, sometimes one without a live position */
        i64 inner = 2 + below(&g, 3);
        ir_atom o = ir_atom_new(g.p, NULL, MAX((extents[i] - 1) / inner + 1 + below(&g, 2), 2));
        ir_split_new(g.p, all[i], o, ir_atom_new(g.p, NULL, inner));
    }
    for (int i = 0; i < 3; i++) {
        ir_atoms dims = some(&g, (ir_atoms){all, 5});
        ir_dim *at = NEW_N(a, ir_dim, dims.n);
        for (i64 k = 0; k < dims.n; k++)
            at[k] = (ir_dim){ir_extent(g.p, dims.at[k]), {&dims.at[k], 1}};
        i64 k =
            ir_add_input(g.p, (ir_port){.name = intern_cstr(g.p->names, arena_printf(a, "in%d", i)),
                                        .dtype = DT_f64,
                                        .rank = dims.n,
                                        .dims = at});
        vec_push(a, &g.pool, g.p->inputs.at[k].term);
    }
    for (i64 i = 0; i < 14; i++) {
        ir_term t = random_step(&g);
        if (ir_count_elements(g.p, dims_of(&g, t)) <= 600)
            vec_push(a, &g.pool, t);
    }
    for (int i = 0; i < 3; i++) {
        ir_term t = g.pool.at[g.pool.n - 1 - i], x = tile(&g, t);
        add_output(&g, arena_printf(a, "y%d", i), t);
        add_output(&g, arena_printf(a, "y%d.tiled", i), ir_comb(g.p, x, ir_get(g.p, x)->axes));
    }
    return g.p;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_values(fixture *f, const ir_program *p, rng *r)
{
    tensor *inputs = NEW_N(f->a, tensor, p->inputs.n), *outputs = NEW_N(f->a, tensor, p->outputs.n);
    for (i64 k = 0; k < p->inputs.n; k++) {
        const ir_port *port = &p->inputs.at[k];
        i64 *shape = NEW_N(f->a, i64, port->rank);
        for (i64 i = 0; i < port->rank; i++)
            shape[i] = port->dims[i].extent;
        inputs[k] = (tensor){.type = DT_f64, .rank = port->rank, .shape = shape};
        inputs[k].data = arena_alloc(f->a, tensor_bytes(f->ctx, &inputs[k]));
        for (i64 i = 0; i < tensor_count(f->ctx, port->rank, shape); i++)
            tensor_set_f64(&inputs[k], i, (f64)rng_below(r, 9) / 2 - 2);
    }
    i64 *tiles = NEW_N(f->a, i64, p->atoms.n);
    for (u32 d = 0; d < (u32)p->atoms.n; d++)
        tiles[d] = 1 + (i64)rng_below(r, (u64)ir_extent(p, (ir_atom){d}) + 1);
    ir_eval(p, inputs, f->a, outputs,
            (ir_eval_options){.tiles = tiles, .association = rng_below(r, 2) ? rng_u64(r) : 0});
    for (i64 k = 0; k < p->outputs.n; k += 2)
        for (i64 i = 0; i < tensor_count(f->ctx, outputs[k].rank, outputs[k].shape); i++) {
            f64 x = tensor_get_f64(&outputs[k], i), y = tensor_get_f64(&outputs[k + 1], i);
            if (x == y)
                continue;
            fail_msg("output %lld, element %lld: %.17g, tiled %.17g of\n%s", (long long)k,
                     (long long)i, x, y, text_of(f, p));
        }
}

static void check_random(fixture *f, const void *arg)
{
    u64 seed = *(const u64 *)arg;
    ir_program *p = random_program(f->a, seed);
    ir_verify(p, "tiling");
    const char *once = text_of(f, p);
    ir_program *q = ir_read(f->a, "again", once, (i64)strlen(once));
    ir_verify(q, "reading");
    assert_string_equal(text_of(f, q), once);
    ir_program *c = ir_canonical(f->a, p);
    ir_verify(c, "canonical form");
    assert_string_equal(text_of(f, ir_canonical(f->a, q)), text_of(f, c));
    rng r = rng_new(seed + 1);
    check_values(f, p, &r);
    check_values(f, c, &r);
}

static void test_random(void **state)
{
    for (u64 seed = 0; seed < 400; seed++)
        run_fine_apart(*state, check_random, &seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
