/* The order in which the terms of a program are shared out, and of operands that have none.
 *
 * Depth first from the outputs, the operand with the longest way behind it first, so that what belongs
 * together stands together. Between operands as deep, what they look like a few steps down decides,
 * never what they are called: layers that compute alike are in one order. */
#include "partition/impl.h"

enum { STEPS = 8 };

static bool is_unordered(const ir_node *node)
{
    return node->arg_count == 2 && (ir_row((ir_op)node->op)->flags & IR_COMM);
}

/* What a term looks like down to a few steps: operators, numbers and extents. */
static u64 *find_colours(arena *a, const ir_program *p)
{
    i64 n = p->nodes.n;
    u64 *now = NEW_N(a, u64, n), *next = NEW_N(a, u64, n);
    for (int step = 0; step <= STEPS; step++) {
        for (i64 k = 1; k < n; k++) {
            const ir_node *node = &p->nodes.at[k];
            u64 bits, dims = 0, operands = 0;
            memcpy(&bits, &node->attr.f, sizeof bits);
            u64 h = hash_u64(bits, (u64)node->op << 16 | (u64)node->dtype << 8 | node->attr.reducer);
            h = hash_u64(h, (u64)node->attr.i);
            for (i64 i = 0; i < node->dims.n; i++) /* a set */
                dims += hash_u64((u64)ir_extent(p, node->dims.at[i]), 1);
            for (i64 i = 0; i < node->arg_count; i++) {
                u64 c = now[node->args[i].i];
                operands = is_unordered(node) ? operands + hash_u64(c, 2) : hash_u64(operands, c);
            }
            next[k] = hash_u64(hash_u64(h, dims), operands);
        }
        u64 *swap = now;
        now = next;
        next = swap;
    }
    return now;
}

/* Does x come before y? */
static bool is_first(const pt_order *o, u32 x, u32 y)
{
    if (o->depth[x] != o->depth[y])
        return o->depth[x] > o->depth[y];
    return o->colour[x] != o->colour[y] ? o->colour[x] < o->colour[y] : x < y;
}

ir_term pt_operand(const pt_order *o, u32 term, i64 i)
{
    const ir_node *node = &o->p->nodes.at[term];
    if (is_unordered(node) && is_first(o, node->args[1].i, node->args[0].i))
        i = 1 - i;
    return node->args[i];
}

/* Terms on the longest way down. */
static i64 *find_depths(const pt_order *o)
{
    i64 n = o->p->nodes.n, *depth = NEW_N(o->a, i64, n);
    for (i64 k = 1; k < n; k++) {
        const ir_node *node = &o->p->nodes.at[k];
        for (i64 i = 0; !o->is_constant[k] && i < node->arg_count; i++)
            depth[k] = MAX(depth[k], 1 + depth[node->args[i].i]);
    }
    return depth;
}

/* The operands of a term that are not placed yet, the first to be last. */
static void push_operands(pt_order *o, ids *stack, u32 term)
{
    const ir_node *node = &o->p->nodes.at[term];
    i64 from = stack->n;
    for (i64 i = 0; i < node->arg_count; i++) {
        u32 x = node->args[i].i;
        if (o->position[x] >= 0 || o->is_constant[x] || o->p->nodes.at[x].op == IR_in)
            continue;
        vec_push(o->a, stack, x);
        for (i64 k = stack->n - 1; k > from && is_first(o, stack->at[k - 1], x); k--) {
            stack->at[k] = stack->at[k - 1];
            stack->at[k - 1] = x;
        }
    }
}

static void place_terms(pt_order *o, u32 root)
{
    ids stack = {0};
    if (root && !o->is_constant[root] && o->p->nodes.at[root].op != IR_in)
        vec_push(o->a, &stack, root);
    while (stack.n > 0) {
        u32 term = stack.at[stack.n - 1];
        i64 before = stack.n;
        if (o->position[term] < 0)
            push_operands(o, &stack, term);
        if (stack.n > before)
            continue;
        stack.n--;
        if (o->position[term] >= 0)
            continue;
        o->position[term] = o->at.n;
        vec_push(o->a, &o->at, term);
    }
}

pt_order pt_order_new(arena *a, const ir_program *p, bool parameters_are_inputs)
{
    pt_order o = {.p = p, .a = a, .is_constant =
                     ir_constant_terms(a, p, !parameters_are_inputs)};
    i64 n = p->nodes.n;
    o.depth = find_depths(&o);
    o.colour = find_colours(a, p);
    o.position = NEW_N(a, i64, n);
    for (i64 k = 0; k < n; k++)
        o.position[k] = -1;
    for (i64 i = 0; i < p->outputs.n; i++)
        place_terms(&o, p->outputs.at[i].term.i);
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
