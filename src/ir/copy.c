/* Terms of one program in another, atoms and terms renumbered. */
#include "ir/ir.h"

ir_copy ir_copy_new(arena *scratch, ir_program *to, const ir_program *from)
{
    return (ir_copy){.a = scratch,
                     .to = to,
                     .from = from,
                     .atoms = NEW_N(scratch, ir_atom, from->atoms.n),
                     .terms = NEW_N(scratch, ir_term, from->nodes.n)};
}

static const char *name_of(const ir_copy *c, ir_atom d)
{
    return c->keeps_names ? ir_atom_name(c->from, d) : NULL;
}

ir_atom ir_copy_atom(ir_copy *c, ir_atom d)
{
    if (!d.i || c->atoms[d.i].i)
        return c->atoms[d.i];
    const ir_split *s = ir_split_of(c->from, d);
    if (!s)
        return c->atoms[d.i] = ir_atom_new(c->to, name_of(c, d), ir_extent(c->from, d));
    /* all three together, the whole first */
    ir_atom whole = ir_copy_atom(c, s->whole);
    c->atoms[s->outer.i] = ir_atom_new(c->to, name_of(c, s->outer), ir_extent(c->from, s->outer));
    c->atoms[s->inner.i] = ir_atom_new(c->to, name_of(c, s->inner), ir_extent(c->from, s->inner));
    ir_split_new(c->to, whole, c->atoms[s->outer.i], c->atoms[s->inner.i]);
    return c->atoms[d.i];
}

ir_atoms ir_copy_atoms(ir_copy *c, ir_atoms list)
{
    ir_atom *at = NEW_N(c->a, ir_atom, list.n);
    for (i64 i = 0; i < list.n; i++)
        at[i] = ir_copy_atom(c, list.at[i]);
    return (ir_atoms){at, list.n};
}

static u32 copy_name(ir_copy *c, u32 name)
{
    return name ? intern_cstr(c->to->names, intern_text(c->from->names, name)) : 0;
}

ir_port ir_copy_port(ir_copy *c, const ir_port *port)
{
    ir_port copy = *port;
    ir_dim *dims = NEW_N(c->a, ir_dim, port->rank);
    for (i64 i = 0; i < port->rank; i++)
        dims[i] = (ir_dim){port->dims[i].extent, ir_copy_atoms(c, port->dims[i].atoms)};
    copy.dims = dims;
    copy.name = copy_name(c, port->name);
    copy.key = copy_name(c, port->key);
    return copy;
}

ir_port ir_copy_value_port(ir_copy *c, const char *name, u32 term)
{
    const ir_node *node = &c->from->nodes.at[term];
    ir_dim *dims = NEW_N(c->a, ir_dim, node->dims.n);
    for (i64 i = 0; i < node->dims.n; i++)
        dims[i] = (ir_dim){ir_extent(c->from, node->dims.at[i]),
                           ir_copy_atoms(c, (ir_atoms){&node->dims.at[i], 1})};
    return (ir_port){.name = intern_cstr(c->to->names, name),
                     .dtype = node->dtype,
                     .rank = node->dims.n,
                     .dims = dims};
}

i64 ir_copy_input(ir_copy *c, i64 i)
{
    const ir_port *port = &c->from->inputs.at[i];
    i64 index = ir_add_input(c->to, ir_copy_port(c, port));
    if (port->term.i)
        c->terms[port->term.i] = c->to->inputs.at[index].term;
    return index;
}

void ir_copy_assumptions(ir_copy *c)
{
    if (c->from->source.user != c->from) /* the default one refers to its own program */
        c->to->source = c->from->source;
    for (i64 i = 0; i < c->from->preconditions.n; i++)
        vec_push(c->to->a, &c->to->preconditions, copy_name(c, c->from->preconditions.at[i]));
}

/* A visit list over renumbered atoms, sorted again. */
static ir_term copy_loop(ir_copy *c, const ir_node *node, ir_atoms par, const ir_term *args)
{
    ir_live_set visit = {.n = node->attr.ints.n / (2 * (1 + node->attr.to.n)), .is_exact = true};
    ir_range *at = NEW_N(c->a, ir_range, visit.n);
    ir_atoms to = ir_copy_atoms(c, node->attr.to);
    for (i64 k = 0; k < visit.n; k++) {
        const i64 *low = node->attr.ints.at + 2 * k * (1 + to.n), *high = low + 1 + to.n;
        at[k] = (ir_range){{low[0], low + 1, to}, {high[0], high + 1, to}};
    }
    visit.at = at;
    return ir_loop(c->to, par, args, node->arg_count, visit.n > 0 ? &visit : NULL);
}

ir_term ir_copy_node(ir_copy *c, u32 k, const ir_term *args)
{
    const ir_node *node = &c->from->nodes.at[k];
    ir_attr attr = node->attr;
    attr.axis = ir_copy_atoms(c, attr.axis);
    attr.to = ir_copy_atoms(c, attr.to);
    attr.par = ir_copy_atoms(c, attr.par);
    attr.name = copy_name(c, attr.name);
    u32 origin = c->to->origin;
    c->to->origin = copy_name(c, node->origin);
    ir_term t = node->op == IR_loop ? copy_loop(c, node, attr.par, args)
                                    : ir_make(c->to, node->op, attr, args, node->arg_count);
    c->to->origin = origin;
    return c->terms[k] = t;
}

void ir_copy_terms(ir_copy *c, const u32 *roots, i64 count)
{
    i64 n = c->from->nodes.n;
    bool *live = NEW_N(c->a, bool, n);
    for (i64 i = 0; i < count; i++)
        live[roots[i]] = true;
    for (i64 k = n - 1; k > 0; k--) {
        const ir_node *node = &c->from->nodes.at[k];
        live[k] = live[k] && !c->terms[k].i;
        for (i64 i = 0; live[k] && i < node->arg_count; i++)
            live[node->args[i].i] = true;
    }
    for (u32 k = 1; k < (u32)n; k++) {
        const ir_node *node = &c->from->nodes.at[k];
        if (!live[k])
            continue;
        ir_term *args = NEW_N(c->a, ir_term, node->arg_count);
        for (i64 i = 0; i < node->arg_count; i++)
            args[i] = c->terms[node->args[i].i];
        ir_copy_node(c, k, args);
    }
}

void ir_copy_outputs(ir_copy *c)
{
    u32 *roots = NEW_N(c->a, u32, c->from->outputs.n);
    for (i64 i = 0; i < c->from->outputs.n; i++)
        roots[i] = c->from->outputs.at[i].term.i;
    ir_copy_terms(c, roots, c->from->outputs.n);
}
