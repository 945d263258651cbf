/* One part of a program: what it is made of, its digest, and the program that it is by itself.
 *
 * Everything is numbered by first appearance: terms in their order, operands depth first, what has no
 * order by what it looks like. So parts that compute alike come out alike, whatever their terms and
 * atoms are called in the whole. */
#include "ir/type.h"
#include "partition/impl.h"

/* ---- recipes --------------------------------------------------------------------------------- */

typedef struct cook {
    pt_order *o;
    arena *a;
    i64 from, to;
    pt_recipe *r;
    hasher *h;
} cook;

static void digest_u64(cook *c, u64 x)
{
    digest_add(c->h, &x, sizeof x);
}

static void digest_atom(cook *c, ir_atom d)
{
    pt_order *o = c->o;
    if (d.i && o->atom_stamp[d.i] != o->stamp) {
        o->atom_stamp[d.i] = o->stamp;
        vec_push(c->a, &c->r->atoms, d.i);
        o->atom_number[d.i] = (u32)c->r->atoms.n;
        digest_u64(c, (u64)ir_extent(o->p, d));
    }
    digest_u64(c, d.i ? o->atom_number[d.i] : 0);
}

static void digest_list(cook *c, ir_atoms list)
{
    digest_u64(c, (u64)list.n);
    for (i64 i = 0; i < list.n; i++)
        digest_atom(c, list.at[i]);
}

/* Those known by their numbers, then the others by extent. */
static bool is_atom_first(const pt_order *o, ir_atom x, ir_atom y)
{
    bool known_x = o->atom_stamp[x.i] == o->stamp, known_y = o->atom_stamp[y.i] == o->stamp;
    if (known_x != known_y)
        return known_x;
    if (known_x)
        return o->atom_number[x.i] < o->atom_number[y.i];
    i64 s = ir_extent(o->p, x), t = ir_extent(o->p, y);
    return s != t ? s < t : x.i < y.i;
}

static void digest_set(cook *c, ir_atoms set)
{
    ir_atom *at = NEW_N(c->a, ir_atom, set.n);
    for (i64 i = 0; i < set.n; i++) {
        i64 k = i;
        for (; k > 0 && is_atom_first(c->o, set.at[i], at[k - 1]); k--)
            at[k] = at[k - 1];
        at[k] = set.at[i];
    }
    digest_list(c, (ir_atoms){at, set.n});
}

const ir_port *pt_constant_port(const ir_program *p, u32 term)
{
    const ir_node *node = &p->nodes.at[term];
    if (node->op != IR_in)
        return NULL;
    const ir_port *port = &p->inputs.at[ir_input_find(p, node->attr.name)];
    return port->role == IR_INPUT && !port->is_constant ? NULL : port;
}

static bool is_own(const cook *c, u32 term)
{
    const pt_order *o = c->o;
    if (o->is_constant[term])
        return o->p->nodes.at[term].op != IR_in;
    return o->position[term] >= c->from && o->position[term] < c->to;
}

static void take_input(cook *c, u32 term)
{
    const ir_program *p = c->o->p;
    const ir_node *node = &p->nodes.at[term];
    vec_push(c->a, &c->r->inputs, term);
    digest_u64(c, node->dtype);
    const ir_port *port = pt_constant_port(p, term);
    if (!port) {
        digest_u64(c, IR_INPUT);
        digest_set(c, node->dims);
    } else {
        digest_u64(c, (u64)port->role << 1 | port->is_constant);
        digest_u64(c, (u64)port->rank);
        for (i64 i = 0; i < port->rank; i++) {
            digest_u64(c, (u64)port->dims[i].extent);
            digest_list(c, port->dims[i].atoms);
        }
    }
    if (!c->o->is_constant[term])
        c->r->bytes += pt_value_bytes(p, term);
}

static void take_node(cook *c, u32 term)
{
    const pt_order *o = c->o;
    const ir_node *node = &o->p->nodes.at[term];
    const ir_attr *x = &node->attr;
    u64 bits;
    memcpy(&bits, &x->f, sizeof bits);
    const char *name = x->name ? intern_text(o->p->names, x->name) : "";
    vec_push(c->a, &c->r->nodes, term);
    digest_u64(c, (u64)node->op << 16 | (u64)x->dtype << 8 | x->reducer);
    digest_u64(c, (u64)x->i);
    digest_u64(c, bits);
    digest_add(c->h, name, (i64)strlen(name) + 1);
    (ir_axis_is_set((ir_op)node->op) ? digest_set : digest_list)(c, x->axis);
    (ir_to_is_set((ir_op)node->op) ? digest_set : digest_list)(c, x->to);
    digest_u64(c, (u64)x->ints.n);
    digest_add(c->h, x->ints.at, x->ints.n * (i64)sizeof *x->ints.at);
    digest_u64(c, (u64)node->arg_count);
    for (i64 i = 0; i < node->arg_count; i++)
        digest_u64(c, o->term_number[pt_operand(o, term, i).i]);
}

/* Depth first, operands in order; a number each. */
static void take(cook *c, u32 root, u32 *numbers)
{
    typedef struct frame {
        u32 term;
        i64 next;
    } frame;
    VEC(frame) stack = {0};
    pt_order *o = c->o;
    vec_push(c->a, &stack, ((frame){root, 0}));
    while (stack.n > 0) {
        frame *f = &stack.at[stack.n - 1];
        const ir_node *node = &o->p->nodes.at[f->term];
        bool has_operands = is_own(c, f->term);
        if (o->term_stamp[f->term] == o->stamp) {
            stack.n--;
        } else if (has_operands && f->next < node->arg_count) {
            u32 operand = pt_operand(o, f->term, f->next++).i;
            vec_push(c->a, &stack, ((frame){operand, 0}));
        } else {
            o->term_stamp[f->term] = o->stamp;
            o->term_number[f->term] = ++*numbers;
            digest_u64(c, has_operands);
            if (has_operands)
                take_node(c, f->term);
            else
                take_input(c, f->term);
            stack.n--;
        }
    }
}

/* In the order of the whole: values are laid out by it, and so are kernels. */
static void order_atoms(arena *a, pt_recipe *r)
{
    const ids *atoms = &r->atoms;
    i64 *at = r->order = NEW_N(a, i64, atoms->n);
    for (i64 i = 0; i < atoms->n; i++) {
        i64 k = i;
        for (; k > 0 && atoms->at[at[k - 1]] > atoms->at[i]; k--)
            at[k] = at[k - 1];
        at[k] = i;
    }
}

pt_recipe pt_recipe_of(pt_order *o, arena *a, i64 from, i64 to)
{
    pt_recipe r = {.bytes = 0};
    cook c = {.o = o, .a = a, .from = from, .to = to, .r = &r, .h = digest_new(a)};
    u32 numbers = 0;
    o->stamp++;
    for (i64 k = from; k < to; k++)
        take(&c, o->at.at[k], &numbers);
    for (i64 k = from; k < to; k++)
        if (o->last_use[k] >= to) {
            vec_push(a, &r.outputs, o->at.at[k]);
            digest_u64(&c, o->term_number[o->at.at[k]]);
            r.bytes += pt_value_bytes(o->p, o->at.at[k]);
        }
    digest_end(c.h, r.digest);
    order_atoms(a, &r);
    return r;
}

/* ---- a program of its own -------------------------------------------------------------------- */

ir_program *pt_part_program(const pt_order *o, arena *a, const pt_recipe *r)
{
    arena *scratch = arena_child(a);
    const ir_program *p = o->p;
    ir_program *to = ir_program_new(a, p->file, "part");
    ir_copy c = ir_copy_new(scratch, to, p);
    for (i64 i = 0; i < r->atoms.n; i++)
        ir_copy_atom(&c, (ir_atom){r->atoms.at[r->order[i]]});
    for (i64 i = 0; i < r->inputs.n; i++) {
        u32 term = r->inputs.at[i];
        const ir_port *constant = pt_constant_port(p, term);
        ir_port port;
        const char *name = arena_printf(scratch, "x%lld", (long long)i);
        if (constant) {
            port = ir_copy_port(&c, constant);
            port.name = intern_cstr(to->names, name);
            port.symbols = NULL;
        } else {
            port = ir_copy_value_port(&c, name, term);
        }
        i64 index = ir_add_input(to, port);
        c.terms[term] = to->inputs.at[index].term;
    }
    for (i64 k = 0; k < r->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[r->nodes.at[k]];
        ir_term *args = NEW_N(scratch, ir_term, node->arg_count);
        for (i64 i = 0; i < node->arg_count; i++)
            args[i] = c.terms[pt_operand(o, r->nodes.at[k], i).i];
        ir_copy_node(&c, r->nodes.at[k], args);
    }
    for (i64 i = 0; i < r->outputs.n; i++) {
        const char *name = arena_printf(scratch, "y%lld", (long long)i);
        ir_port port = ir_copy_value_port(&c, name, r->outputs.at[i]);
        port.term = c.terms[r->outputs.at[i]];
        ir_add_output(to, port);
    }
    arena_free(scratch);
    return to;
}
