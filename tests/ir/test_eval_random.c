/* The interpreter against another one, written for clarity: every element of every term by its
 * coordinates, straight from the meaning of the operators in ops.def. Random programs over all
 * operators, with and without threads. */
#include "ir/check.h"
#include "ir/generate.h"
#include "ir/scalar.h"

typedef union number {
    f64 f;
    i64 i;
} number;

typedef struct plain {
    const ir_program *p;
    arena *a;
    const tensor *inputs;
    number **value; /* by term, row-major over its dims */
    i64 *at;        /* the coordinate of each atom */
} plain;

static bool is_float(const plain *e, ir_term t)
{
    return dtype_is_float(ir_get(e->p, t)->dtype);
}

/* Element of an operand at the present coordinates. */
static number element(const plain *e, ir_term t)
{
    ir_atoms dims = ir_get(e->p, t)->dims;
    i64 index = 0;
    for (i64 i = 0; i < dims.n; i++)
        index = index * ir_extent(e->p, dims.at[i]) + e->at[dims.at[i].i];
    return e->value[t.i][index];
}

/* Steps the coordinates of `list`, the last one fastest; false after the last. */
static bool step(plain *e, ir_atoms list)
{
    for (i64 i = list.n - 1; i >= 0; i--) {
        if (++e->at[list.at[i].i] < ir_extent(e->p, list.at[i]))
            return true;
        e->at[list.at[i].i] = 0;
    }
    return false;
}

/* Row-major position of the present coordinates in `list`, and its inverse. */
static i64 flat(const plain *e, ir_atoms list)
{
    i64 index = 0;
    for (i64 i = 0; i < list.n; i++)
        index = index * ir_extent(e->p, list.at[i]) + e->at[list.at[i].i];
    return index;
}

static void unflatten(plain *e, ir_atoms list, i64 index)
{
    for (i64 i = list.n - 1; i >= 0; i--) {
        e->at[list.at[i].i] = index % ir_extent(e->p, list.at[i]);
        index /= ir_extent(e->p, list.at[i]);
    }
}

#define NONE 0
#define ON_FLOAT_SELECT(fx) 0 /* where is apart: its condition is no float */
#define ON_FLOAT_SAME(fx) (fx)
#define ON_FLOAT_FLOAT ON_FLOAT_SAME
#define ON_FLOAT_INTEGER ON_FLOAT_SAME
#define ON_FLOAT_LOGIC ON_FLOAT_SAME
#define ON_FLOAT_COMPARE ON_FLOAT_SAME
#define ON_FLOAT_BOOLEAN ON_FLOAT_SAME
#define ON_FLOAT_TEST ON_FLOAT_SAME
#define ON_FLOAT_OWN ON_FLOAT_SAME
static number pointwise(const plain *e, const ir_node *node)
{
    number x[3] = {0}, r = {0};
    for (i64 j = 0; j < node->arg_count; j++)
        x[j] = element(e, node->args[j]);
    bool from_float = is_float(e, node->args[node->arg_count - 1]);
    if (node->op == IR_where) {
        r = x[0].i ? x[1] : x[2];
    } else if (node->op == IR_cast) {
        if (dtype_is_float(node->dtype))
            r.f = from_float ? x[0].f : (f64)x[0].i;
        else
            r.i = from_float ? eqf_int_of_f64(node->dtype, x[0].f) : x[0].i;
    } else if (from_float) {
        f64 a = x[0].f, b = x[1].f, c = x[2].f;
        switch (node->op) {
#define OP(name, arity, class_, rule, fx, ix, flags, doc)                                          \
    case IR_##name:                                                                                \
        r.f = (f64)ON_FLOAT_##rule(fx);                                                            \
        break;
#include "ir/ops.def"
#undef OP
        }
        (void)c;
        if (node->dtype == DT_bool)
            r.i = r.f != 0;
    } else {
        i64 a = x[0].i, b = x[1].i, c = x[2].i;
        switch (node->op) {
#define OP(name, arity, class_, rule, fx, ix, flags, doc)                                          \
    case IR_##name:                                                                                \
        r.i = (i64)(ix);                                                                           \
        break;
#include "ir/ops.def"
#undef OP
        }
    }
    return r;
}

static number update(ir_reducer reducer, bool on_float, number x, number y)
{
    number r = {0};
    if (on_float) {
        f64 a = x.f, b = y.f;
        switch (reducer) {
#define REDUCER(name, text, fx, ix, idf, idi, doc)                                                 \
    case IR_##name:                                                                                \
        r.f = (f64)(fx);                                                                           \
        break;
#include "ir/reducers.def"
#undef REDUCER
        default:
            break;
        }
    } else {
        i64 a = x.i, b = y.i;
        switch (reducer) {
#define REDUCER(name, text, fx, ix, idf, idi, doc)                                                 \
    case IR_##name:                                                                                \
        r.i = (ix);                                                                                \
        break;
#include "ir/reducers.def"
#undef REDUCER
        default:
            break;
        }
    }
    return r;
}

static number reduce(plain *e, const ir_node *node)
{
    bool on_float = is_float(e, node->args[0]);
    number r;
    if (on_float)
        r.f = ir_reducer_identity_f64(node->attr.reducer);
    else
        r.i = ir_reducer_identity_i64(node->attr.reducer, node->dtype);
    do
        r = update(node->attr.reducer, on_float, r, element(e, node->args[0]));
    while (step(e, node->attr.axis));
    return r;
}

static number matmul(plain *e, const ir_node *node)
{
    number r = {0};
    do {
        number x = element(e, node->args[0]), y = element(e, node->args[1]);
        if (is_float(e, node->args[0]))
            r.f += x.f * y.f;
        else
            r.i = eqf_wrap_add(r.i, eqf_wrap_mul(x.i, y.i));
    } while (step(e, node->attr.axis));
    return r;
}

/* Reads operand 0 with the coordinates of `axis` set to `where`, then restores all. */
static number element_at(plain *e, ir_term t, ir_atoms axis, const i64 *where)
{
    i64 *saved = arena_copy(e->a, e->at, e->p->atoms.n * (i64)sizeof *saved);
    for (i64 i = 0; i < axis.n; i++)
        e->at[axis.at[i].i] = where[i];
    number r = element(e, t);
    memcpy(e->at, saved, (size_t)e->p->atoms.n * sizeof *saved);
    return r;
}

static number index_map(plain *e, const ir_node *node)
{
    const ir_attr *x = &node->attr;
    i64 where[64] = {0};
    switch ((int)node->op) {
    case IR_rename:
        for (i64 i = 0; i < x->to.n; i++)
            where[i] = e->at[x->to.at[i].i];
        return element_at(e, node->args[0], x->axis, where);
    case IR_slice:
        where[0] = x->ints.at[0];
        for (i64 i = 0; i < x->to.n; i++)
            where[0] += x->ints.at[i + 1] * e->at[x->to.at[i].i];
        return element_at(e, node->args[0], x->axis, where);
    case IR_concat: {
        i64 position = e->at[x->to.at[0].i], i = 0;
        while (position >= ir_extent(e->p, x->axis.at[i]))
            position -= ir_extent(e->p, x->axis.at[i++]);
        ir_atoms own = {&x->axis.at[i], x->axis.at[i].i ? 1 : 0};
        return element_at(e, node->args[i], own, &position);
    }
    case IR_reshape: {
        i64 *saved = arena_copy(e->a, e->at, e->p->atoms.n * (i64)sizeof *saved);
        unflatten(e, x->axis, flat(e, x->to));
        number r = element(e, node->args[0]);
        memcpy(e->at, saved, (size_t)e->p->atoms.n * sizeof *saved);
        return r;
    }
    default: /* expand */
        return element(e, node->args[0]);
    }
}

static number gather(plain *e, const ir_node *node)
{
    i64 where[64];
    for (i64 i = 0; i < node->attr.axis.n; i++)
        where[i] = element(e, node->args[i + 1]).i;
    return element_at(e, node->args[0], node->attr.axis, where);
}

/* Less, with NaN largest. */
static bool less(bool on_float, number x, number y)
{
    return on_float ? x.f < y.f || (isnan(y.f) && !isnan(x.f)) : x.i < y.i;
}

static number argsort(plain *e, const ir_node *node)
{
    ir_atoms axis = node->attr.axis;
    i64 rank = node->attr.to.n ? e->at[node->attr.to.at[0].i] : 0;
    bool on_float = is_float(e, node->args[0]), descending = node->attr.ints.at[0] != 0;
    i64 n = ir_extent(e->p, axis.at[0]);
    for (i64 i = 0; i < n; i++) { /* the element with `rank` elements before it */
        number x = element_at(e, node->args[0], axis, &i);
        i64 before = 0;
        for (i64 j = 0; j < n; j++) {
            number y = element_at(e, node->args[0], axis, &j);
            bool y_first = descending ? less(on_float, x, y) : less(on_float, y, x);
            bool x_first = descending ? less(on_float, y, x) : less(on_float, x, y);
            before += y_first || (!x_first && j < i);
        }
        if (before == rank)
            return (number){.i = i};
    }
    fail_msg("no element of rank %lld", (long long)rank);
    return (number){0};
}

static number scan(plain *e, const ir_node *node)
{
    i64 last = e->at[node->attr.axis.at[0].i], first = 0;
    number r = element_at(e, node->args[0], node->attr.axis, &first);
    for (i64 i = 1; i <= last; i++)
        r = update(node->attr.reducer, is_float(e, node->args[0]), r,
                   element_at(e, node->args[0], node->attr.axis, &i));
    return r;
}

static void settle(const ir_node *node, number *x)
{
    if (!dtype_is_float(node->dtype))
        x->i = eqf_wrap(node->dtype, x->i);
}

static void scatter(plain *e, const ir_node *node, number *out)
{
    ir_term base = node->args[0], value = node->args[node->arg_count - 1];
    ir_atoms loops = ir_atoms_minus((ir_program *)e->p, ir_get(e->p, base)->dims, node->attr.axis);
    for (i64 i = 1; i < node->arg_count; i++)
        loops = ir_atoms_union((ir_program *)e->p, loops, ir_get(e->p, node->args[i])->dims);
    memcpy(out, e->value[base.i], (size_t)ir_count_elements(e->p, node->dims) * sizeof *out);
    do {
        i64 index = 0;
        for (i64 i = 0; i < node->dims.n; i++) {
            i64 at = e->at[node->dims.at[i].i];
            for (i64 j = 0; j < node->attr.axis.n; j++)
                if (node->attr.axis.at[j].i == node->dims.at[i].i)
                    at = element(e, node->args[j + 1]).i;
            index = index * ir_extent(e->p, node->dims.at[i]) + at;
        }
        number v = element(e, value);
        out[index] =
            node->attr.reducer ? update(node->attr.reducer, is_float(e, base), out[index], v) : v;
    } while (step(e, loops));
    for (i64 i = 0; i < ir_count_elements(e->p, node->dims); i++)
        settle(node, &out[i]);
}

static number leaf(plain *e, const ir_node *node)
{
    if (node->op == IR_iota)
        return (number){.i = e->at[node->attr.axis.at[0].i]};
    if (node->op == IR_const)
        return dtype_is_float(node->dtype) ? (number){.f = node->attr.f}
                                           : (number){.i = node->attr.i};
    i64 k = ir_input_find(e->p, node->attr.name), index = 0;
    const ir_port *port = &e->p->inputs.at[k];
    for (i64 i = 0; i < port->rank; i++)
        index = index * port->dims[i].extent + flat(e, port->dims[i].atoms);
    return dtype_is_float(node->dtype) ? (number){.f = tensor_get_f64(&e->inputs[k], index)}
                                       : (number){.i = tensor_get_i64(&e->inputs[k], index)};
}

static number compute(plain *e, const ir_node *node)
{
    switch ((ir_class)ir_row(node->op)->class_) {
    case IR_LEAF:
        return leaf(e, node);
    case IR_EWISE:
        return pointwise(e, node);
    case IR_REDUCE:
        return reduce(e, node);
    case IR_MATMUL:
        return matmul(e, node);
    case IR_INDEX:
        return index_map(e, node);
    case IR_GATHER:
        return gather(e, node);
    case IR_PLAIN:
        return node->op == IR_scan ? scan(e, node) : argsort(e, node);
    default:
        fail_msg("an operator without a meaning");
        return (number){0};
    }
}

static void evaluate_plainly(plain *e)
{
    const ir_program *p = e->p;
    for (u32 k = 1; k < (u32)p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        if (ir_count_elements(p, node->dims) > 100000)
            continue; /* dead: the generator keeps what is large out of its pool */
        number *out = e->value[k] = NEW_N(e->a, number, ir_count_elements(p, node->dims));
        bool operands_there = true;
        for (i64 i = 0; i < node->arg_count; i++)
            operands_there = operands_there && e->value[node->args[i].i];
        if (!operands_there)
            continue;
        memset(e->at, 0, (size_t)p->atoms.n * sizeof *e->at);
        if (node->op == IR_scatter) {
            scatter(e, node, out);
            continue;
        }
        do {
            number x = compute(e, node);
            settle(node, &x);
            out[flat(e, node->dims)] = x;
        } while (step(e, node->dims));
    }
}

static bool is_close(f64 x, f64 y)
{
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= 1e-9 * MAX(fabs(x), fabs(y)) + 1e-12;
}

static void check_outputs(plain *e, const tensor *outputs, bool *seen)
{
    const ir_program *p = e->p;
    for (i64 k = 0; k < p->outputs.n; k++) {
        const ir_port *port = &p->outputs.at[k];
        ir_atom *all = NEW_N(e->a, ir_atom, 64);
        ir_atoms list = {all, 0};
        for (i64 i = 0; i < port->rank; i++)
            for (i64 j = 0; j < port->dims[i].atoms.n; j++)
                all[list.n++] = port->dims[i].atoms.at[j];
        assert_int_equal(outputs[k].rank, port->rank);
        memset(e->at, 0, (size_t)p->atoms.n * sizeof *e->at);
        i64 index = 0;
        do {
            number want = element(e, port->term);
            bool same = dtype_is_float(port->dtype)
                            ? is_close(want.f, tensor_get_f64(&outputs[k], index))
                            : want.i == tensor_get_i64(&outputs[k], index);
            if (!same) {
                str s = str_new(e->a);
                ir_print(&s, p);
                fail_msg("output %lld, element %lld (%.17g or %lld, wanted %.17g or %lld) of\n%s",
                         (long long)k, (long long)index, tensor_get_f64(&outputs[k], index),
                         (long long)tensor_get_i64(&outputs[k], index), want.f, (long long)want.i,
                         str_text(&s));
            }
            index++;
        } while (step(e, list));
    }
    ir_count c = ir_count_program(p);
    for (int op = 0; op < IR_OP_COUNT; op++)
        seen[op] = seen[op] || c.op_count[op];
}

/* The canonical form means the same; a scatter that writes one place twice may differ, as its order
 * is that of declaration. */
static void check_canonical(fixture *f, const ir_program *p, const tensor *inputs,
                            const tensor *outputs)
{
    for (u32 k = 1; k < (u32)p->nodes.n; k++)
        if (ir_get(p, (ir_term){k})->op == IR_scatter && !ir_get(p, (ir_term){k})->attr.reducer)
            return;
    tensor *again = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(ir_canonical(f->a, p), inputs, f->a, again, (ir_eval_options){0});
    for (i64 k = 0; k < p->outputs.n; k++) {
        i64 n = tensor_count(f->ctx, again[k].rank, again[k].shape);
        assert_int_equal(n, tensor_count(f->ctx, outputs[k].rank, outputs[k].shape));
        for (i64 i = 0; i < n; i++)
            assert_true(is_close(tensor_get_f64(&outputs[k], i), tensor_get_f64(&again[k], i)));
    }
}

typedef struct random_case {
    u64 seed;
    pool *threads;
    bool *seen;
} random_case;

/* Quarters between -4 and 4, small integers, and now and then something special. */
static tensor *random_inputs(fixture *f, const ir_program *p, u64 seed)
{
    rng r = rng_new(seed);
    static const f64 special[] = {(f64)NAN, (f64)INFINITY, -(f64)INFINITY, -0.0};
    tensor *inputs = NEW_N(f->a, tensor, p->inputs.n);
    for (i64 k = 0; k < p->inputs.n; k++) {
        const ir_port *port = &p->inputs.at[k];
        i64 *shape = NEW_N(f->a, i64, port->rank);
        for (i64 i = 0; i < port->rank; i++)
            shape[i] = port->dims[i].extent;
        tensor *t = &inputs[k];
        *t = (tensor){.type = port->dtype, .rank = port->rank, .shape = shape};
        t->data = arena_alloc(f->a, tensor_bytes(f->ctx, t));
        for (i64 i = 0; i < tensor_count(f->ctx, t->rank, shape); i++) {
            if (dtype_is_float(t->type))
                tensor_set_f64(t, i,
                               rng_below(&r, 40) == 0 ? special[rng_below(&r, 4)]
                                                      : (f64)rng_below(&r, 33) / 4 - 4);
            else
                tensor_set_i64(t, i, (i64)rng_below(&r, 21) - 10);
        }
    }
    return inputs;
}

static void check_random(fixture *f, const void *arg)
{
    const random_case *c = arg;
    ir_program *p = gen_program(f->a, c->seed, 30, false);
    tensor *inputs = random_inputs(f, p, c->seed), *outputs = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, outputs, (ir_eval_options){.threads = c->threads});
    plain e = {.p = p, .a = f->a, .inputs = inputs};
    e.value = NEW_N(f->a, number *, p->nodes.n);
    e.at = NEW_N(f->a, i64, p->atoms.n);
    evaluate_plainly(&e);
    check_outputs(&e, outputs, c->seen);
    check_canonical(f, p, inputs, outputs);
}

static u64 programs = 400; /* argument 1; the long run takes more */

static void test_random(void **state)
{
    fixture *f = *state;
    bool seen[IR_OP_COUNT] = {0};
    pool *threads = pool_new(f->ctx, 3);
    assert_non_null(threads);
    for (u64 seed = 1000; seed < 1000 + programs; seed++)
        run_fine_apart(f, check_random, &(random_case){seed, seed % 2 ? threads : NULL, seen});
    pool_free(threads);
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if (!seen[op] && op != IR_opaque && ir_row(op)->class_ != IR_TILED)
            fail_msg("no live %s in any random program", ir_row(op)->name);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        programs = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {TEST(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
