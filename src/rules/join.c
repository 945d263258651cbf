/* A sum of products as one product: X A + Y B is [X Y] [A B], contracted over a dim made of both that
 * were contracted. Where the weights are constant they are put side by side once, and what is left is
 * one loop that adds to one accumulator.                             (space.md §6, after A29)
 *
 *     (add (matmul x a :axis K) (matmul y b :axis L)) =
 *         (matmul (concat x y :axis (K L) :to K+L) (concat a b :axis (K L) :to K+L) :axis K+L)
 *
 * It is no rule of a file, since it makes a dim: one for each pair, called K+L. */
#include "rules/graph_impl.h"

static const char name[] = "join-products";
enum { SPARE_ATOMS = 8 }; /* left to splits */

typedef struct joining {
    rl_built x, a, y, b;
    u32 k, l; /* payloads: the sets that are contracted */
} joining;

/* The only member of the set of a product, or none. */
static ir_atom only_atom(const rl_graph *g, u32 payload)
{
    const ir_attr *attr = &g->payloads.at[payload].attr;
    return attr->axis.n == 1 && !attr->to.n && !attr->par.n ? attr->axis.at[0] : (ir_atom){0};
}

u32 rl_joint_payload(rl_graph *g, ir_atom k, ir_atom l)
{
    ir_atom both[] = {k, l};
    i64 extent;
    if (!add_i64(ir_extent(g->own, k), ir_extent(g->own, l), &extent))
        return 0;
    const char *text =
        arena_printf(g->a, "%s+%s", ir_atom_name(g->own, k), ir_atom_name(g->own, l));
    for (i64 i = 1; i < g->payloads.n; i++) {
        const ir_attr *x = &g->payloads.at[i].attr;
        if (x->axis.n == 2 && x->axis.at[0].i == k.i && x->axis.at[1].i == l.i && x->to.n == 1 &&
            strcmp(ir_atom_name(g->own, x->to.at[0]), text) == 0)
            return (u32)i;
    }
    if (g->n_atoms + SPARE_ATOMS >= 64)
        return 0;
    ir_atom d = rl_part_atom(g, k, text, extent);
    rl_number_atom(g, d);
    return rl_payload_id(g, IR_concat, (ir_attr){.axis = {both, 2}, .to = {&d, 1}});
}

/* 0 when the operands do not suit it. Neither product may have the dim that the other contracts as
 * one of its own: the concat would have it twice. */
static u32 join(rl_graph *g, const rl_builder *builder, const joining *j)
{
    ir_atom k = only_atom(g, j->k), l = only_atom(g, j->l);
    u64 one = rl_mask(g, (ir_atoms){&k, 1}), other = rl_mask(g, (ir_atoms){&l, 1});
    if (!k.i || !l.i || !(j->x.type.dims & j->a.type.dims & one) ||
        !(j->y.type.dims & j->b.type.dims & other) ||
        (k.i != l.i && (((j->x.type.dims | j->a.type.dims) & other) ||
                        ((j->y.type.dims | j->b.type.dims) & one))))
        return 0;
    u32 map = rl_joint_payload(g, k, l);
    if (!map)
        return 0;
    rl_label l_concat = rl_label_of(g, IR_concat, IR_NO_REDUCER, map), l_matmul;
    rl_built left[] = {j->x, j->y}, right[] = {j->a, j->b};
    rl_built kids[2]; /* in this order, whatever compiles it */
    kids[0] = rl_make(builder, &l_concat, map, left, 2);
    kids[1] = rl_make(builder, &l_concat, map, right, 2);
    u32 axis = rl_axis_payload(g, IR_matmul, g->payloads.at[map].to);
    l_matmul = rl_label_of(g, IR_matmul, IR_NO_REDUCER, axis);
    return kids[0].id && kids[1].id ? rl_make(builder, &l_matmul, axis, kids, 2).id : 0;
}

/* ---- in the engine ----------------------------------------------------------------------------- */

static rl_built operand_of(const rl_graph *g, eqf_class c)
{
    return (rl_built){c.i, rl_graph_type(g, c)};
}

/* Arguments in the order in which the pattern has them. */
static joining joining_of(const rl_graph *g, const eqf_class *args)
{
    return (joining){operand_of(g, args[0]), operand_of(g, args[1]), operand_of(g, args[3]),
                     operand_of(g, args[4]), args[2].i,              args[5].i};
}

/* Economy: constant weights on both sides, computed factors; each pair in one order. */
static bool is_worth_it(void *user, const eqf_egraph *e, const eqf_class *args)
{
    const rl_graph *g = user;
    joining j = joining_of(g, args);
    ir_atom k = only_atom(g, j.k), l = only_atom(g, j.l);
    (void)e;
    return k.i && l.i && (k.i == l.i ? j.x.id < j.y.id : k.i < l.i) && j.x.id != j.y.id &&
           j.a.id != j.b.id && (j.a.type.facts & j.b.type.facts & RL_CONSTANT) &&
           !((j.x.type.facts | j.y.type.facts) & RL_CONSTANT) &&
           !(j.x.type.axes | j.y.type.axes) && dtype_is_float((dtype)j.x.type.dtype);
}

static eqf_status apply(void *user, eqf_egraph *e, eqf_class root, const eqf_class *args,
                        unsigned n, eqf_class *out)
{
    rl_graph *g = user;
    trap t;
    (void)e, (void)root, (void)n;
    TRY (g->ctx, t) {
        joining j = joining_of(g, args);
        rl_builder b = {.make = rl_add_node, .user = g};
        u32 c = join(g, &b, &j);
        if (c)
            out->i = c;
    }
    return t.status;
}

void rl_generate_joining(rl_graph *g, str *out)
{
    if (g->options.fp < RL_REASSOCIATED)
        return;
    eqf_guard guard = {
        .name = "when.join-products", .arity = 6, .holds = is_worth_it, .user = g, .reads_data = true};
    eqf_dynamic dynamic = {"build.join-products", apply, g};
    rl_must(g, eqf_guard_add(g->lang, &guard));
    rl_must(g, eqf_dynamic_add(g->lang, &dynamic));
    rl_operator_head(g, IR_add, IR_NO_REDUCER, 2, 0);
    rl_operator_head(g, IR_matmul, IR_NO_REDUCER, 2, 0);
    rl_operator_head(g, IR_concat, IR_NO_REDUCER, 2, 0);
    str_printf(out,
               "(dynamic %s (add (matmul ?x ?a :axis ?K) (matmul ?y ?b :axis ?L)) => build.%s "
               ":when (when.%s ?x ?a ?K ?y ?b ?L))\n",
               name, name, name);
}

/* ---- judging ----------------------------------------------------------------------------------- */

static u32 write_term(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n)
{
    return rl_terms_make(user, l->op, l->reducer, map, kids, n);
}

static rl_built built_of(const rl_terms *t, u32 id)
{
    return (rl_built){id, t->at.at[id].type};
}

/* Operands of sums and products come in any order. */
static bool is_joined(rl_terms *t, u32 from, u32 to)
{
    rl_record sum = t->at.at[from];
    rl_builder b = {.make = write_term, .user = t};
    if (sum.op != IR_add || sum.n != 2)
        return false;
    for (i64 way = 0; way < 8; way++) {
        rl_record p = t->at.at[sum.kids[way & 1]], q = t->at.at[sum.kids[1 - (way & 1)]];
        i64 i = way >> 1 & 1, k = way >> 2 & 1;
        if (p.op != IR_matmul || q.op != IR_matmul)
            return false;
        joining j = {built_of(t, p.kids[i]), built_of(t, p.kids[1 - i]),
                     built_of(t, q.kids[k]), built_of(t, q.kids[1 - k]),
                     p.payload,              q.payload};
        u32 made = join(t->g, &b, &j);
        if (made && rl_terms_same(t, made, to))
            return true;
    }
    return false;
}

bool rl_joining_step(rl_graph *g, const char *reason, const char *left, const char *right,
                     eqf_verdict *out)
{
    if (strncmp(reason, "build.", 6) != 0 || strcmp(reason + 6, name) != 0)
        return false;
    rl_terms *t = rl_terms_new(g, arena_child(g->a));
    u32 from = rl_terms_read(t, left), to = rl_terms_read(t, right);
    *out = from && to && is_joined(t, from, to) ? EQF_HOLDS : EQF_REFUSED;
    arena_free(t->a);
    return true;
}

bool rl_joining_guard(const char *guard)
{
    return strncmp(guard, "when.", 5) == 0 && strcmp(guard + 5, name) == 0;
}
