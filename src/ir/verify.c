/* Re-derives the type of every node and checks the invariants of ir.h without trusting the
 * constructors, after a pass that built or changed a program. */
#include "ir/type.h"

typedef struct check {
    const ir_program *p;
    const char *pass;
} check;

static _Noreturn void broken(const check *c, u32 node, const char *text)
{
    const ir_program *p = c->p;
    const char *origin = "";
    if (node && (i64)p->nodes.at[node].origin < intern_count(p->names))
        origin = intern_text(p->names, p->nodes.at[node].origin);
    const char *op = node ? ir_row(p->nodes.at[node].op)->name : "program";
    eqf_throw(p->ctx, EQF_E_INTERNAL, p->file, *origin ? origin : NULL,
              "after %s: node %u (%s%s%s): %s", c->pass, node, op, *origin ? ", from " : "", origin,
              text);
}

static void check_node(const check *c, arena *scratch, u32 k)
{
    const ir_program *p = c->p;
    const ir_node *node = &p->nodes.at[k];
    for (i64 i = 0; i < node->arg_count; i++)
        if (node->args[i].i >= k)
            broken(c, k, "an operand does not come before its user");
    ir_type type = ir_type_of(p, scratch, node->op, &node->attr, node->args, node->arg_count);
    if (type.wrong)
        broken(c, k, type.wrong);
    if (type.dtype != node->dtype)
        broken(c, k, "the dtype is not what the operands make");
    bool is_same = type.dims.n == node->dims.n;
    for (i64 i = 0; is_same && i < type.dims.n; i++)
        is_same = type.dims.at[i].i == node->dims.at[i].i;
    if (!is_same)
        broken(c, k, "the dims are not what the operands make");
    if ((i64)node->origin >= intern_count(p->names))
        broken(c, k, "the origin is no name");
}

static void check_ports(const check *c, arena *scratch)
{
    const ir_program *p = c->p;
    for (i64 i = 0; i < p->inputs.n; i++) {
        const ir_port *port = &p->inputs.at[i];
        const char *wrong = ir_port_wrong(p, scratch, port, false);
        if (wrong)
            broken(c, 0, wrong);
        if (ir_input_find(p, port->name) != i)
            broken(c, 0, "two inputs of one name");
        bool is_empty = false;
        for (i64 k = 0; k < port->rank; k++)
            is_empty = is_empty || port->dims[k].extent == 0;
        if (is_empty != (port->term.i == 0))
            broken(c, 0, "an input with elements and without a term, or the reverse");
        if (port->term.i &&
            ((i64)port->term.i >= p->nodes.n || p->nodes.at[port->term.i].op != IR_in ||
             p->nodes.at[port->term.i].attr.name != port->name))
            broken(c, 0, "the term of an input is another one");
    }
    for (i64 i = 0; i < p->outputs.n; i++) {
        const char *wrong = ir_port_wrong(p, scratch, &p->outputs.at[i], true);
        if (wrong)
            broken(c, 0, wrong);
    }
}

void ir_verify(const ir_program *p, const char *pass)
{
    check c = {p, pass};
    for (i64 i = 1; i < p->atoms.n; i++) {
        if (p->atoms.at[i].extent < 2)
            broken(&c, 0, "an atom with an extent below 2");
        if (ir_atom_find(p, p->atoms.at[i].name).i != (u32)i)
            broken(&c, 0, "two atoms of one name");
    }
    arena *scratch = arena_child(p->a);
    for (i64 k = 1; k < p->nodes.n; k++) {
        check_node(&c, scratch, (u32)k);
        if (arena_bytes(scratch) > 1 << 20) {
            arena_free(scratch);
            scratch = arena_child(p->a);
        }
    }
    check_ports(&c, scratch);
    for (i64 k = 1; k < p->nodes.n; k++)
        if (!ir_is_consed(p, (u32)k))
            broken(&c, (u32)k, "an equal node exists already");
    arena_free(scratch);
}
