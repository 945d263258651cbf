/* Pointwise operators: one loop for each row of ops.def and each element type. */
#include "ir/eval.h"
#include "ir/scalar.h"

typedef void kernel(i64 n, void *out, const void *const *x, const i64 *step);

/* Element types on floats: of the result and of the first operand. */
#define R_SAME f64
#define R_FLOAT f64
#define R_INTEGER f64
#define R_LOGIC f64
#define R_COMPARE i64
#define R_BOOLEAN f64
#define R_TEST i64
#define R_SELECT f64
#define R_OWN f64
#define A_SAME f64
#define A_FLOAT f64
#define A_INTEGER f64
#define A_LOGIC f64
#define A_COMPARE f64
#define A_BOOLEAN f64
#define A_TEST f64
#define A_SELECT i64
#define A_OWN f64
#define NONE 0 /* the type rule keeps such operands away */

#define LOOP(R, A, B, expression, s0, s1, s2)                                                      \
    for (i64 j = 0; j < n; j++) {                                                                  \
        A a = ((const A *)x[0])[j * (s0)];                                                         \
        B b = ((const B *)x[1])[j * (s1)], c = ((const B *)x[2])[j * (s2)];                        \
        (void)a, (void)b, (void)c;                                                                 \
        o[j] = (R)(expression);                                                                    \
    }
#define KERNEL(name, R, A, B, expression)                                                          \
    static void name(i64 n, void *out, const void *const *x, const i64 *step)                      \
    {                                                                                              \
        R *restrict o = out;                                                                       \
        if (step[0] == 1 && step[1] == 1 && step[2] == 1)                                          \
            LOOP(R, A, B, expression, 1, 1, 1)                                                     \
        else                                                                                       \
            LOOP(R, A, B, expression, step[0], step[1], step[2])                                   \
    }

#define KERNEL_EWISE(name, rule, fexpr, iexpr)                                                     \
    KERNEL(f_##name, R_##rule, A_##rule, f64, fexpr)                                               \
    KERNEL(i_##name, i64, i64, i64, iexpr)
#define KERNEL_LEAF(name, rule, fexpr, iexpr)
#define KERNEL_REDUCE KERNEL_LEAF
#define KERNEL_MATMUL KERNEL_LEAF
#define KERNEL_INDEX KERNEL_LEAF
#define KERNEL_GATHER KERNEL_LEAF
#define KERNEL_PLAIN KERNEL_LEAF
#define KERNEL_OPAQUE KERNEL_LEAF
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc)                                    \
    KERNEL_##class_(name, rule, fexpr, iexpr)
#include "ir/ops.def"
#undef OP

#define ENTRY_EWISE(p, name) [IR_##name] = p##name,
#define ENTRY_LEAF(p, name)
#define ENTRY_REDUCE ENTRY_LEAF
#define ENTRY_MATMUL ENTRY_LEAF
#define ENTRY_INDEX ENTRY_LEAF
#define ENTRY_GATHER ENTRY_LEAF
#define ENTRY_PLAIN ENTRY_LEAF
#define ENTRY_OPAQUE ENTRY_LEAF
static kernel *const f_kernels[IR_OP_COUNT] = {
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) ENTRY_##class_(f_, name)
#include "ir/ops.def"
#undef OP
};
static kernel *const i_kernels[IR_OP_COUNT] = {
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) ENTRY_##class_(i_, name)
#include "ir/ops.def"
#undef OP
};

typedef struct pointwise {
    const eval *e;
    const nest *t;
    value *out;
    const value *x[3];
    kernel *run;
} pointwise;

static void pointwise_row(void *user, i64 n, const i64 *offset)
{
    const pointwise *w = user;
    const void *x[3];
    i64 step[3];
    for (i64 i = 0; i < 3; i++) {
        x[i] = w->x[i]->i + offset[i + 1];
        step[i] = nest_step(w->t, i + 1);
    }
    w->run(n, w->out->i + offset[0], x, step);
    eval_settle(w->e, w->out, offset[0], n);
}

static void cast_row(void *user, i64 n, const i64 *offset)
{
    const pointwise *w = user;
    value *out = w->out;
    const value *x = w->x[0];
    dtype t = out->dtype;
    i64 o = offset[0]; /* the dims are the same, and so are the offsets */
    if (x->is_float && out->is_float)
        memcpy(out->f + o, x->f + o, (size_t)n * sizeof(f64));
    else if (x->is_float)
        for (i64 j = 0; j < n; j++)
            out->i[o + j] = eqf_int_of_f64(t, x->f[o + j]);
    else if (!out->is_float)
        memcpy(out->i + o, x->i + o, (size_t)n * sizeof(i64));
    else if (t == DT_f32 && w->e->options.round)
        for (i64 j = 0; j < n; j++) /* rounded once, not by way of f64 */
            out->f[o + j] = (f64)(f32)x->i[o + j];
    else
        for (i64 j = 0; j < n; j++)
            out->f[o + j] = (f64)x->i[o + j];
    eval_settle(w->e, out, o, n);
}

static void check_divisor(const eval *e, u32 k, const value *v)
{
    for (i64 j = 0; j < v->count; j++)
        if (v->i[j] == 0)
            eval_throw(e, k, EQF_E_DATA, "integer division by zero");
}

void eval_pointwise(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    pointwise w = {.e = e, .out = eval_new(e, k)};
    for (i64 i = 0; i < 3; i++)
        w.x[i] = &e->values[node->args[i < node->arg_count ? i : 0].i];
    bool on_float = w.x[node->arg_count - 1]->is_float;
    w.run = on_float ? f_kernels[node->op] : i_kernels[node->op];
    if (!on_float && (node->op == IR_floordiv || node->op == IR_truncdiv || node->op == IR_mod ||
                      node->op == IR_fmod))
        check_divisor(e, k, w.x[1]);
    const value *operands[] = {w.out, w.x[0], w.x[1], w.x[2]};
    nest t = nest_over(e, node->dims, operands, 4);
    w.t = &t;
    nest_run(e, &t, 1, node->op == IR_cast ? cast_row : pointwise_row, &w);
}
