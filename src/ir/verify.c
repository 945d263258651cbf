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
    ir_terms runs = type.runs;
    ir_term self = {k};
    if (node->op == IR_run)
        runs = ir_terms_union(scratch, runs, (ir_terms){&self, 1});
    if (!ir_type_same_atoms(type.axes, node->axes))
        broken(c, k, "the axes are not what the operands make");
    bool same_runs = runs.n == node->runs.n && type.is_open == node->is_open;
    for (i64 i = 0; same_runs && i < runs.n; i++)
        same_runs = runs.at[i].i == node->runs.at[i].i;
    if (!same_runs)
        broken(c, k, "runs and formals below it are not what the operands make");
    if ((i64)node->origin >= intern_count(p->names))
        broken(c, k, "the origin is no name");
}

/* Is it linear, or as good as that, in each operand that is partial over an axis? What a reduction
 * over that axis makes of anything else is no value of the program that was tiled. */
static bool is_fit_for_partial(const ir_program *p, const ir_node *node, ir_atom axis)
{
    i64 partial = 0;
    bool first = false;
    for (i64 i = 0; i < node->arg_count; i++) {
        const ir_node *x = ir_get(p, node->args[i]);
        if (ir_has(x->axes, axis) && !ir_has(x->dims, axis)) {
            partial++;
            first = first || i == 0;
        }
    }
    switch (node->op) {
    case IR_add:
    case IR_sub:
    case IR_neg:
    case IR_max:
    case IR_min:
    case IR_and:
    case IR_or:
    case IR_cast:
        return true;
    case IR_mul:
    case IR_tile_matmul:
        return partial <= 1;
    case IR_div:
        return partial == 0 || (first && partial == 1);
    case IR_where:
        return !first;
    default:
        return partial == 0 || ir_row(node->op)->class_ != IR_EWISE;
    }
}

static void check_partials(const check *c, arena *scratch)
{
    const ir_program *p = c->p;
    bool *live = NEW_N(scratch, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        live[p->outputs.at[i].term.i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        for (i64 i = 0; live[k] && i < node->arg_count; i++)
            live[node->args[i].i] = true;
        for (i64 i = 0; live[k] && i < node->axes.n; i++)
            if (!is_fit_for_partial(p, node, node->axes.at[i]))
                eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, node->origin),
                          "after %s: node %lld: %s of a value that is partial over %s", c->pass,
                          (long long)k, ir_row(node->op)->name, ir_atom_name(p, node->axes.at[i]));
    }
}

/* Parts come after their whole, stand in one split and cover it. */
static void check_splits(const check *c)
{
    const ir_program *p = c->p;
    i64 parts = 0;
    for (i64 i = 1; i < p->atoms.n; i++)
        parts += p->atoms.at[i].split > 0;
    for (i64 i = 0; i < p->splits.n; i++) {
        ir_split s = p->splits.at[i];
        i64 lanes = 0;
        u32 last = (u32)p->atoms.n;
        if (s.whole.i == 0 || s.outer.i <= s.whole.i || s.inner.i <= s.whole.i ||
            s.outer.i >= last || s.inner.i >= last || s.outer.i == s.inner.i ||
            p->atoms.at[s.outer.i].split != (u32)i + 1 ||
            p->atoms.at[s.inner.i].split != (u32)i + 1 ||
            !mul_i64(ir_extent(p, s.outer), ir_extent(p, s.inner), &lanes) ||
            lanes < ir_extent(p, s.whole))
            broken(c, 0, "a split that is none");
    }
    if (parts != 2 * p->splits.n)
        broken(c, 0, "an atom is a part of no split");
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
    check_splits(&c);
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
    check_partials(&c, scratch);
    arena_free(scratch);
}
