/* Work and traffic of a program: what a node computes, what must cross memory at least once. Counts
 * saturate. */
#include "ir/ir.h"

static i64 add_sat(i64 a, i64 b)
{
    i64 r;
    return add_i64(a, b, &r) ? r : INT64_MAX;
}

static i64 mul_sat(i64 a, i64 b)
{
    i64 r;
    return mul_i64(a, b, &r) ? r : INT64_MAX;
}

i64 ir_count_elements(const ir_program *p, ir_atoms dims)
{
    i64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        n = mul_sat(n, ir_extent(p, dims.at[i]));
    return n;
}

/* Elements of the union of the operands' dims. */
static i64 joint_elements(const ir_program *p, const ir_node *node)
{
    i64 n = 1;
    for (i64 i = 0; i < node->arg_count; i++) {
        ir_atoms dims = ir_get(p, node->args[i])->dims;
        for (i64 k = 0; k < dims.n; k++) {
            bool is_new = true;
            for (i64 j = 0; j < i; j++)
                is_new = is_new && !ir_has(ir_get(p, node->args[j])->dims, dims.at[k]);
            if (is_new)
                n = mul_sat(n, ir_extent(p, dims.at[k]));
        }
    }
    return n;
}

i64 ir_node_flops(const ir_program *p, ir_term t)
{
    const ir_node *node = ir_get(p, t);
    switch ((ir_class)ir_row(node->op)->class_) {
    case IR_EWISE:
    case IR_OPAQUE: /* unknown; at least something an element */
        return ir_count_elements(p, node->dims);
    case IR_REDUCE:
        return joint_elements(p, node);
    case IR_MATMUL:
        return mul_sat(2, joint_elements(p, node));
    case IR_PLAIN:
        return node->op == IR_scan ? joint_elements(p, node) : 0; /* argsort compares */
    case IR_GATHER:
        if (node->op == IR_scatter && node->attr.reducer) {
            ir_node updates = *node; /* indices and value */
            updates.args++;
            updates.arg_count--;
            return joint_elements(p, &updates);
        }
        return 0;
    case IR_TILED: /* the bodies of lambdas count by themselves */
        if (node->op == IR_tile_matmul)
            return mul_sat(2, joint_elements(p, node));
        return node->op == IR_comp && node->attr.reducer ? ir_count_elements(p, node->dims) : 0;
    case IR_LEAF:
    case IR_INDEX:
        return 0;
    }
    return 0;
}

static i64 port_bytes(const ir_port *port)
{
    i64 n = dtype_bytes(port->dtype);
    for (i64 i = 0; i < port->rank; i++)
        n = port->dims[i].extent == 0 ? 0 : mul_sat(n, port->dims[i].extent);
    return n;
}

ir_count ir_count_program(const ir_program *p)
{
    ir_count c = {0};
    arena *scratch = arena_child(p->a);
    bool *live = NEW_N(scratch, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++) {
        live[p->outputs.at[i].term.i] = true;
        c.bytes = add_sat(c.bytes, port_bytes(&p->outputs.at[i]));
    }
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!live[k])
            continue;
        for (i64 i = 0; i < node->arg_count; i++)
            live[node->args[i].i] = true;
        i64 flops = ir_node_flops(p, (ir_term){(u32)k});
        if (node->op == IR_opaque)
            c.opaque_flops = add_sat(c.opaque_flops, flops);
        else
            c.flops = add_sat(c.flops, flops);
        c.op_count[node->op]++;
        if (node->op == IR_in)
            c.bytes =
                add_sat(c.bytes, port_bytes(&p->inputs.at[ir_input_find(p, node->attr.name)]));
    }
    arena_free(scratch);
    return c;
}
