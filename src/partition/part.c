/* One part of a program: what it is made of, its digest, and the program that it is by itself.
 *
 * Everything is numbered by first appearance: operands depth first, terms in their order. So parts
 * that were built alike come out alike, whatever their terms and atoms are called in the whole. */
#include "partition/impl.h"

/* ---- the order ------------------------------------------------------------------------------- */

/* What depends on nothing that changes from run to run. */
static bool *find_constants(arena *a, const ir_program *p, const pt_options *options)
{
    bool *is_constant = ir_constant_terms(a, p);
    if (options->parameters_are_inputs)
        return is_constant;
    for (i64 i = 0; i < p->inputs.n; i++)
        if (p->inputs.at[i].role == IR_PARAMETER)
            is_constant[p->inputs.at[i].term.i] = true;
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool all = node->op != IR_in || is_constant[k];
        for (i64 i = 0; all && i < node->arg_count; i++)
            all = is_constant[node->args[i].i];
        is_constant[k] = all;
    }
    return is_constant;
}

pt_order pt_order_new(arena *a, const ir_program *p, const pt_options *options)
{
    pt_order o = {.p = p, .a = a, .is_constant = find_constants(a, p, options)};
    i64 n = p->nodes.n;
    bool *live = NEW_N(a, bool, n);
    for (i64 i = 0; i < p->outputs.n; i++)
        live[p->outputs.at[i].term.i] = true;
    for (i64 k = n - 1; k > 0; k--)
        for (i64 i = 0; live[k] && i < p->nodes.at[k].arg_count; i++)
            live[p->nodes.at[k].args[i].i] = true;
    o.position = NEW_N(a, i64, n);
    for (u32 k = 0; k < (u32)n; k++) {
        o.position[k] = -1;
        if (k == 0 || !live[k] || o.is_constant[k] || p->nodes.at[k].op == IR_in)
            continue;
        o.position[k] = o.at.n;
        vec_push(a, &o.at, k);
    }
    o.last_use = NEW_N(a, i64, o.at.n);
    for (i64 at = 0; at < o.at.n; at++) {
        const ir_node *node = &p->nodes.at[o.at.at[at]];
        for (i64 i = 0; i < node->arg_count; i++)
            if (o.position[node->args[i].i] >= 0)
                o.last_use[o.position[node->args[i].i]] = at;
    }
    for (i64 i = 0; i < p->outputs.n; i++)
        if (o.position[p->outputs.at[i].term.i] >= 0)
            o.last_use[o.position[p->outputs.at[i].term.i]] = o.at.n;
    o.term_stamp = NEW_N(a, u32, n);
    o.term_number = NEW_N(a, u32, n);
    o.atom_stamp = NEW_N(a, u32, p->atoms.n);
    o.atom_number = NEW_N(a, u32, p->atoms.n);
    return o;
}

i64 pt_value_bytes(const ir_program *p, u32 term)
{
    const ir_node *node = &p->nodes.at[term];
    i64 bytes;
    if (!mul_i64(ir_count_elements(p, node->dims), dtype_bytes((dtype)node->dtype), &bytes))
        return INT64_MAX / 4096;
    return MIN(bytes, INT64_MAX / 4096);
}

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
    if (node->op != IR_in) {
        digest_u64(c, IR_INPUT);
        digest_list(c, node->dims);
    } else {
        const ir_port *port = &p->inputs.at[ir_input_find(p, node->attr.name)];
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
    digest_list(c, x->axis);
    digest_list(c, x->to);
    digest_u64(c, (u64)x->ints.n);
    digest_add(c->h, x->ints.at, x->ints.n * (i64)sizeof *x->ints.at);
    digest_u64(c, (u64)node->arg_count);
    for (i64 i = 0; i < node->arg_count; i++)
        digest_u64(c, o->term_number[node->args[i].i]);
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
            u32 operand = node->args[f->next++].i;
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
    return r;
}

/* ---- a program of its own -------------------------------------------------------------------- */

static ir_port crossing(ir_copy *c, arena *a, const char *name, u32 term)
{
    const ir_node *node = &c->from->nodes.at[term];
    ir_dim *dims = NEW_N(a, ir_dim, node->dims.n);
    for (i64 i = 0; i < node->dims.n; i++)
        dims[i] = (ir_dim){ir_extent(c->from, node->dims.at[i]),
                           ir_copy_atoms(c, (ir_atoms){&node->dims.at[i], 1})};
    return (ir_port){.name = intern_cstr(c->to->names, name),
                     .dtype = node->dtype,
                     .rank = node->dims.n,
                     .dims = dims};
}

ir_program *pt_part_program(const pt_order *o, arena *a, const pt_recipe *r, i64 number)
{
    arena *scratch = arena_child(a);
    const ir_program *p = o->p;
    ir_program *to =
        ir_program_new(a, p->file, arena_printf(scratch, "part%lld", (long long)number));
    ir_copy c = ir_copy_new(scratch, to, p);
    for (i64 i = 0; i < r->atoms.n; i++)
        ir_copy_atom(&c, (ir_atom){r->atoms.at[i]});
    for (i64 i = 0; i < r->inputs.n; i++) {
        u32 term = r->inputs.at[i];
        const ir_node *node = &p->nodes.at[term];
        ir_port port;
        const char *name = arena_printf(scratch, "x%lld", (long long)i);
        if (node->op == IR_in) {
            port = ir_copy_port(&c, &p->inputs.at[ir_input_find(p, node->attr.name)]);
            port.name = intern_cstr(to->names, name);
            port.symbols = NULL;
        } else {
            port = crossing(&c, scratch, name, term);
        }
        i64 index = ir_add_input(to, port);
        c.terms[term] = to->inputs.at[index].term;
    }
    for (i64 k = 0; k < r->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[r->nodes.at[k]];
        ir_term *args = NEW_N(scratch, ir_term, node->arg_count);
        for (i64 i = 0; i < node->arg_count; i++)
            args[i] = c.terms[node->args[i].i];
        ir_copy_node(&c, r->nodes.at[k], args);
    }
    for (i64 i = 0; i < r->outputs.n; i++) {
        const char *name = arena_printf(scratch, "y%lld", (long long)i);
        ir_port port = crossing(&c, scratch, name, r->outputs.at[i]);
        port.term = c.terms[r->outputs.at[i]];
        ir_add_output(to, port);
    }
    arena_free(scratch);
    return to;
}
