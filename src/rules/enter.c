/* Programs in: their terms as e-nodes, added to the graph or only looked for. One spelling for what
 * means the same (x * x and x^2, 1 / sqrt(x)), no casts between floats, no tuples. */
#include "rules/graph_impl.h"

typedef struct entry {
    rl_graph *g;
    const ir_program *p;
    eqf_class *classes; /* by term of p; 0: none, or not there */
    bool adds;
} entry;

static bool is_number(const rl_graph *g, eqf_class c, f64 value)
{
    rl_type t = rl_graph_type(g, c);
    return (t.facts & RL_IS_NUMBER) && t.number == value;
}

/* The single operand of an e-node `op` in the class, or 0. */
static eqf_class operand_of(const rl_graph *g, eqf_class c, ir_op op)
{
    for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, c, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (!rl_leaf_of(g, head) && g->operators.at[eqf_head_op(g->lang, head).i].op == op)
            return eqf_node_child(g->engine, n, 0);
    }
    return (eqf_class){0};
}

static void respell(const rl_graph *g, ir_op *op, eqf_class *x, i64 *n)
{
    eqf_class inner;
    if (*op == IR_mul && eqf_find(g->engine, x[0]).i == eqf_find(g->engine, x[1]).i) {
        *op = IR_square;
        *n = 1;
    } else if (*op == IR_pow && is_number(g, x[1], 2) &&
               dtype_is_float((dtype)rl_graph_type(g, x[0]).dtype)) {
        *op = IR_square;
        *n = 1;
    } else if (*op == IR_div && is_number(g, x[0], 1)) {
        *op = IR_recip;
        *n = 1;
        x[0] = x[1];
    }
    if (*op == IR_recip && (inner = operand_of(g, x[0], IR_sqrt)).i) {
        *op = IR_rsqrt;
        x[0] = inner;
    }
}

static eqf_class put(const entry *e, eqf_head head, const eqf_class *x, i64 n)
{
    eqf_class c = {0};
    if (e->adds)
        rl_must(e->g, eqf_add(e->g->engine, head, x, (size_t)n, &c));
    else
        c = eqf_lookup(e->g->engine, head, x, (size_t)n);
    return c;
}

static eqf_class put_leaf(const entry *e, const ir_node *node)
{
    rl_graph *g = e->g;
    if (node->op == IR_const)
        return put(e, rl_const_head(g, node), NULL, 0);
    if (node->op == IR_iota) {
        ir_atoms axis = node->attr.axis;
        return rl_graph_atoms(e->g, e->p, &axis) ? put(e, rl_iota_head(g, axis.at[0]), NULL, 0) : (eqf_class){0};
    }
    const char *name = intern_text(e->p->names, node->attr.name);
    u32 id = intern_find(g->p->names, name, (i64)strlen(name));
    i64 input = id ? ir_input_find(g->p, id) : -1;
    ir_atoms dims = node->dims;
    if (input < 0 || !rl_graph_atoms(e->g, e->p, &dims) ||
        rl_mask(g, dims) != rl_mask(g, ir_get(g->p, g->p->inputs.at[input].term)->dims))
        return (eqf_class){0};
    return put(e, rl_input_head(g, input), NULL, 0);
}

static eqf_class put_closed(const entry *e, ir_term t)
{
    rl_graph *g = e->g;
    ir_term own = rl_copy_closed(g->own, e->p, t, g->real);
    return own.i ? put(e, rl_closed_head(g, own), NULL, 0) : (eqf_class){0};
}

static eqf_class put_term(const entry *e, ir_term t)
{
    rl_graph *g = e->g;
    const ir_node *node = ir_get(e->p, t);
    i64 n = node->arg_count;
    if (ir_row(node->op)->class_ == IR_LEAF)
        return put_leaf(e, node);
    if (node->op == IR_lambda || node->op == IR_reducer)
        return put_closed(e, t);
    if (node->op == IR_tuple)
        return (eqf_class){0};
    if (node->op == IR_get && ir_get(e->p, node->args[0])->op == IR_tuple)
        return e->classes[node->args[1].i];
    eqf_class *x = NEW_N(g->a, eqf_class, n);
    for (i64 i = 0; i < n; i++) {
        x[i] = e->classes[node->args[i].i];
        if (!x[i].i)
            return x[i];
    }
    ir_op op = (ir_op)node->op;
    ir_attr attr = node->attr;
    if (!rl_graph_atoms(e->g, e->p, &attr.axis) || !rl_graph_atoms(e->g, e->p, &attr.to) || !rl_graph_atoms(e->g, e->p, &attr.par))
        return (eqf_class){0};
    attr.name = intern_cstr(g->own->names, intern_text(e->p->names, attr.name));
    attr.dtype = (u8)rl_graph_dtype(g, (dtype)attr.dtype);
    if (op == IR_cast && rl_graph_type(g, x[0]).dtype == attr.dtype)
        return x[0];
    respell(g, &op, x, &n);
    if (op == IR_loop)
        n = rl_component_set(g, x, n);
    return put(
        e, rl_operator_head(g, op, (ir_reducer)node->attr.reducer, n, rl_payload_id(g, op, attr)),
        x, n);
}

/* Terms that `roots` need, closed ones as a whole. */
static bool *needed(const entry *e, const ir_term *roots, i64 n)
{
    const ir_program *p = e->p;
    bool *live = NEW_N(e->g->a, bool, p->nodes.n);
    for (i64 i = 0; i < n; i++)
        live[roots[i].i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (live[k] && node->op != IR_lambda && node->op != IR_reducer)
            for (i64 i = 0; i < node->arg_count; i++)
                live[node->args[i].i] = true;
    }
    live[0] = false;
    return live;
}

static void put_all(const entry *e, const ir_term *roots, i64 n)
{
    const bool *live = needed(e, roots, n);
    for (i64 k = 1; k < e->p->nodes.n; k++)
        if (live[k])
            e->classes[k] = put_term(e, (ir_term){(u32)k});
}

void rl_enter(rl_graph *g)
{
    entry e = {g, g->p, g->classes, true};
    VEC(ir_term) roots = {0};
    for (i64 i = 0; i < g->p->outputs.n; i++)
        vec_push(g->a, &roots, g->p->outputs.at[i].term);
    put_all(&e, roots.at, roots.n);
}

eqf_class rl_graph_find(rl_graph *g, const ir_program *q, ir_term t)
{
    entry e = {g, q, NEW_N(g->a, eqf_class, q->nodes.n), false};
    put_all(&e, &t, 1);
    eqf_class c = e.classes[t.i];
    return c.i ? eqf_find(g->engine, c) : c;
}
