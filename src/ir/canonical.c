/* The canonical form of a program: equal text for programs that differ only in the order of
 * construction, the names of atoms, origins, and the order of commutative operands.
 *
 * Atoms and live terms get colours that depend on nothing else (colour refinement, as in graph
 * canonisation): an atom starts with its extent and the places at the ports where it stands; a
 * term's colour is made of its operator, the colours of its attributes and operands (`up`, one
 * sweep in topological order) and of its users (`down`, one sweep back); an atom's next colour adds
 * the terms that mention it. This repeats until it tells nothing more apart. Atoms that are
 * still alike are alike in every respect that refinement sees, in practice symmetric; one of them
 * is singled out and refinement goes on. At the end all atoms differ, so `up` names a term, and
 * operands are sorted by it.                    (McKay and Piperno, "Practical graph isomorphism")
 */
#include <stdlib.h>

#include "ir/type.h"

typedef struct painter {
    const ir_program *p;
    arena *a;
    bool *live;
    u64 *atom, *next_atom; /* colours by atom */
    bool *used;            /* atoms at ports or in live terms */
    u64 *up, *down;        /* by term; `down` includes `up`, and `up` the `down` of last time */
    u64 *sorted;           /* room for every colour */
    u64 *from_users;       /* sum over users: the order in which they come must not matter */
} painter;

/* Tags keep different roles apart. */
enum {
    TAG_INPUT = 1,
    TAG_OUTPUT,
    TAG_AXIS,
    TAG_TO,
    TAG_PAIR,
    TAG_OPERAND,
    TAG_SINGLE,
    TAG_USER,
    TAG_PAR,
    TAG_RANGE,
    TAG_WHOLE,
    TAG_OUTER,
    TAG_INNER
};

static u64 mix(u64 a, u64 b)
{
    return hash_u64(a, b);
}

static u64 mix3(u64 tag, u64 a, u64 b)
{
    return hash_u64(hash_u64(a, tag), b);
}

static u64 text_colour(const ir_program *p, u32 name)
{
    const char *s = intern_text(p->names, name);
    return hash_bytes(s, (i64)strlen(s), 0);
}

static bool is_commutative(const ir_node *node)
{
    return (ir_row(node->op)->flags & IR_COMM) && node->arg_count == 2;
}

/* Where a list is a set, or pairs without an order, the position says nothing. */
static u64 axis_position(const ir_node *node, i64 i)
{
    return ir_axis_is_set(node->op) || node->op == IR_rename ? 0 : (u64)i + 1;
}

/* Factors of the i-th outer atom in a visit list. The ranges are a set. */
static u64 visit_factors(const ir_node *node, i64 i)
{
    ir_ints ints = node->attr.ints;
    i64 bound = 1 + node->attr.to.n;
    u64 sum = 0;
    for (i64 at = 0; at + 2 * bound <= ints.n; at += 2 * bound)
        sum += mix3(TAG_RANGE, (u64)ints.at[at + 1 + i], (u64)ints.at[at + bound + 1 + i]);
    return sum;
}

static u64 to_position(const ir_node *node, i64 i)
{
    if (node->op == IR_loop)
        return visit_factors(node, i);
    if (node->op == IR_slice) /* a set of (atom, step) */
        return (u64)node->attr.ints.at[i + 1];
    return ir_to_is_set(node->op) || node->op == IR_rename ? 0 : (u64)i + 1;
}

static u64 visit_colour(const painter *w, const ir_node *node)
{
    ir_ints ints = node->attr.ints;
    ir_atoms to = node->attr.to;
    i64 bound = 1 + to.n;
    u64 sum = 0;
    for (i64 at = 0; at + 2 * bound <= ints.n; at += 2 * bound) {
        u64 range = 0;
        for (i64 i = 0; i < to.n; i++)
            range += mix3(w->atom[to.at[i].i], (u64)ints.at[at + 1 + i],
                          (u64)ints.at[at + bound + 1 + i]);
        sum += mix3(range, (u64)ints.at[at], (u64)ints.at[at + bound]);
    }
    return sum;
}

/* What is known of the attributes, by colours of atoms. */
static u64 attributes(const painter *w, const ir_node *node)
{
    const ir_attr *x = &node->attr;
    u64 bits, h = mix3(node->op, (u64)x->dtype << 8 | x->reducer, (u64)x->i);
    memcpy(&bits, &x->f, sizeof bits);
    h = mix(h, bits);
    h = mix(h, text_colour(w->p, x->name));
    u64 sum = 0;
    for (i64 i = 0; i < x->axis.n; i++)
        sum += mix3(TAG_AXIS, w->atom[x->axis.at[i].i], axis_position(node, i));
    for (i64 i = 0; i < x->to.n; i++)
        sum += mix3(TAG_TO, w->atom[x->to.at[i].i], to_position(node, i));
    if (node->op == IR_rename)
        for (i64 i = 0; i < x->to.n; i++)
            sum += mix3(TAG_PAIR, w->atom[x->axis.at[i].i], w->atom[x->to.at[i].i]);
    for (i64 i = 0; i < x->par.n; i++)
        sum += mix(TAG_PAR, w->atom[x->par.at[i].i]);
    h = mix(h, sum);
    if (node->op == IR_slice)
        return mix(h, (u64)x->ints.at[0]);
    if (node->op == IR_loop)
        return mix(h, visit_colour(w, node));
    for (i64 i = 0; i < x->ints.n; i++)
        h = mix(h, (u64)x->ints.at[i]);
    return h;
}

/* Operand positions that may be exchanged are one. */
static u64 operand_position(const ir_node *node, i64 i)
{
    return is_commutative(node) || node->op == IR_loop ? 0 : (u64)i + 1;
}

static void sweep_up(painter *w)
{
    for (i64 k = 1; k < w->p->nodes.n; k++) {
        const ir_node *node = &w->p->nodes.at[k];
        if (!w->live[k])
            continue;
        u64 sum = 0;
        for (i64 i = 0; i < node->arg_count; i++)
            sum += mix3(TAG_OPERAND, w->up[node->args[i].i], operand_position(node, i));
        w->up[k] = mix3(attributes(w, node), sum, w->down[k]);
    }
}

static void sweep_down(painter *w)
{
    const ir_program *p = w->p;
    memset(w->from_users, 0, (size_t)p->nodes.n * sizeof *w->from_users);
    for (i64 i = 0; i < p->outputs.n; i++)
        w->from_users[p->outputs.at[i].term.i] += mix(TAG_OUTPUT, (u64)i);
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!w->live[k])
            continue;
        w->down[k] = mix3(TAG_USER, w->up[k], w->from_users[k]);
        for (i64 i = 0; i < node->arg_count; i++)
            w->from_users[node->args[i].i] +=
                mix3(TAG_OPERAND, w->down[k], operand_position(node, i));
    }
}

static void sweep_atoms(painter *w)
{
    const ir_program *p = w->p;
    u64 *sum = w->next_atom;
    memset(sum, 0, (size_t)p->atoms.n * sizeof *sum);
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        if (!w->live[k])
            continue;
        const ir_attr *x = &node->attr;
        for (i64 i = 0; i < x->axis.n; i++) {
            u64 pair = node->op == IR_rename ? w->atom[x->to.at[i].i] : 0;
            sum[x->axis.at[i].i] += mix3(TAG_AXIS + pair, w->down[k], axis_position(node, i));
        }
        for (i64 i = 0; i < x->to.n; i++) {
            u64 pair = node->op == IR_rename ? w->atom[x->axis.at[i].i] : 0;
            sum[x->to.at[i].i] += mix3(TAG_TO + pair, w->down[k], to_position(node, i));
        }
        for (i64 i = 0; i < x->par.n; i++)
            sum[x->par.at[i].i] += mix(TAG_PAR, w->down[k]);
    }
    for (i64 i = 0; i < p->splits.n; i++) {
        ir_split s = p->splits.at[i];
        if (!w->used[s.outer.i])
            continue;
        u64 whole = w->atom[s.whole.i], outer = w->atom[s.outer.i], inner = w->atom[s.inner.i];
        sum[s.whole.i] += mix3(TAG_WHOLE, outer, inner);
        sum[s.outer.i] += mix3(TAG_OUTER, whole, inner);
        sum[s.inner.i] += mix3(TAG_INNER, whole, outer);
    }
    for (i64 d = 1; d < p->atoms.n; d++)
        w->atom[d] = mix(w->atom[d], sum[d]);
}

static int compare_u64(const void *p, const void *q)
{
    u64 a = *(const u64 *)p, b = *(const u64 *)q;
    return a < b ? -1 : a > b;
}

static i64 count_different(u64 *at, i64 n)
{
    i64 different = 0;
    qsort(at, (size_t)n, sizeof *at, compare_u64);
    for (i64 i = 0; i < n; i++)
        different += i == 0 || at[i] != at[i - 1];
    return different;
}

/* Number of different colours of atoms and terms. */
static i64 count_colours(painter *w)
{
    i64 n = 0, different;
    for (i64 d = 1; d < w->p->atoms.n; d++)
        if (w->used[d])
            w->sorted[n++] = w->atom[d];
    different = count_different(w->sorted, n);
    n = 0;
    for (i64 k = 1; k < w->p->nodes.n; k++)
        if (w->live[k])
            w->sorted[n++] = w->down[k];
    return different + count_different(w->sorted, n);
}

/* Is there a colour that several atoms have? The smallest goes to *tied. */
static bool find_tie(painter *w, u64 *tied)
{
    i64 n = 0;
    for (i64 d = 1; d < w->p->atoms.n; d++)
        if (w->used[d])
            w->sorted[n++] = w->atom[d];
    qsort(w->sorted, (size_t)n, sizeof *w->sorted, compare_u64);
    for (i64 i = 1; i < n; i++)
        if (w->sorted[i] == w->sorted[i - 1]) {
            *tied = w->sorted[i];
            return true;
        }
    return false;
}

static void refine(painter *w)
{
    i64 before, now = 0;
    do {
        sweep_up(w);
        sweep_down(w);
        sweep_atoms(w);
        before = now;
        now = count_colours(w);
    } while (before < now);
}

static void paint_ports(painter *w)
{
    const ir_program *p = w->p;
    for (i64 d = 1; d < p->atoms.n; d++)
        w->atom[d] = mix(0, (u64)p->atoms.at[d].extent);
    for (i64 side = 0; side < 2; side++) {
        i64 ports = side ? p->outputs.n : p->inputs.n;
        for (i64 i = 0; i < ports; i++) {
            const ir_port *port = side ? &p->outputs.at[i] : &p->inputs.at[i];
            u64 at = mix(side ? TAG_OUTPUT : TAG_INPUT, (u64)i);
            for (i64 k = 0; k < port->rank; k++)
                for (i64 j = 0; j < port->dims[k].atoms.n; j++) {
                    u32 d = port->dims[k].atoms.at[j].i;
                    w->used[d] = true;
                    w->atom[d] = mix3(at, w->atom[d], mix((u64)k, (u64)j));
                }
        }
    }
}

static void mark_live(painter *w)
{
    const ir_program *p = w->p;
    for (i64 i = 0; i < p->outputs.n; i++)
        w->live[p->outputs.at[i].term.i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!w->live[k])
            continue;
        for (i64 i = 0; i < node->arg_count; i++)
            w->live[node->args[i].i] = true;
        for (i64 i = 0; i < node->attr.axis.n; i++)
            w->used[node->attr.axis.at[i].i] = true;
        for (i64 i = 0; i < node->attr.to.n; i++)
            w->used[node->attr.to.at[i].i] = true;
        for (i64 i = 0; i < node->attr.par.n; i++)
            w->used[node->attr.par.at[i].i] = true;
    }
    w->used[0] = false;
    for (bool more = p->splits.n > 0; more;) { /* a part needs its split, which may be of a part */
        more = false;
        for (i64 i = 0; i < p->splits.n; i++) {
            ir_split s = p->splits.at[i];
            if (w->used[s.outer.i] == w->used[s.inner.i] &&
                (!w->used[s.outer.i] || w->used[s.whole.i]))
                continue;
            w->used[s.whole.i] = w->used[s.outer.i] = w->used[s.inner.i] = more = true;
        }
    }
}

static void paint(painter *w)
{
    paint_ports(w);
    mark_live(w);
    u64 tied;
    for (refine(w); find_tie(w, &tied); refine(w)) {
        u32 d = 1;
        while (!w->used[d] || w->atom[d] != tied)
            d++;
        w->atom[d] = mix(TAG_SINGLE, tied);
    }
    sweep_up(w);
}

/* ---- the copy ------------------------------------------------------------------------------- */

typedef struct frame {
    u32 node;
    i64 next; /* operand */
} frame;

typedef struct copier {
    painter *w;
    ir_copy copy;
    frame *stack;
} copier;

/* Positions 0 .. n-1 in the order in which the atoms of an unordered list get their numbers: by
 * colour. */
static i64 *visit_order(copier *c, ir_atoms list, bool is_set)
{
    i64 *order = NEW_N(c->w->a, i64, list.n);
    for (i64 i = 0; i < list.n; i++) {
        i64 j = i;
        for (; is_set && j > 0 && c->w->atom[list.at[order[j - 1]].i] > c->w->atom[list.at[i].i];
             j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return order;
}

static void number_atoms(copier *c, const ir_node *node)
{
    bool is_pairs = node->op == IR_rename;
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    const i64 *order = visit_order(c, axis, ir_axis_is_set(node->op) || is_pairs);
    for (i64 i = 0; i < axis.n; i++) {
        ir_copy_atom(&c->copy, axis.at[order[i]]);
        if (is_pairs)
            ir_copy_atom(&c->copy, to.at[order[i]]);
    }
    order = visit_order(
        c, to, ir_to_is_set(node->op) || node->op == IR_slice || node->op == IR_loop || is_pairs);
    for (i64 i = 0; i < to.n; i++)
        ir_copy_atom(&c->copy, to.at[order[i]]);
    order = visit_order(c, node->attr.par, true);
    for (i64 i = 0; i < node->attr.par.n; i++)
        ir_copy_atom(&c->copy, node->attr.par.at[order[i]]);
}

/* Exchanges the operands of a commutative operator when they are out of order. */
static void order_operands(const painter *w, const ir_node *node, ir_term *args)
{
    memcpy(args, node->args, (size_t)node->arg_count * sizeof *args);
    if (is_commutative(node) && w->up[args[0].i] > w->up[args[1].i]) {
        args[0] = node->args[1];
        args[1] = node->args[0];
    }
}

static void copy_node(copier *c, u32 k)
{
    const ir_node *node = &c->w->p->nodes.at[k];
    ir_term *args = NEW_N(c->w->a, ir_term, node->arg_count);
    if (node->arg_count > 0)
        order_operands(c->w, node, args);
    for (i64 i = 0; i < node->arg_count; i++)
        args[i] = c->copy.terms[args[i].i];
    number_atoms(c, node);
    ir_copy_node(&c->copy, k, args);
}

/* The i-th operand to visit: operands without an order go by colour. */
static i64 visited_operand(const painter *w, const ir_node *node, i64 i)
{
    if (is_commutative(node))
        return w->up[node->args[0].i] > w->up[node->args[1].i] ? 1 - i : i;
    if (node->op != IR_loop)
        return i;
    for (i64 j = 0; j < node->arg_count; j++) {
        i64 before = 0;
        for (i64 k = 0; k < node->arg_count; k++) {
            u64 a = w->up[node->args[k].i], b = w->up[node->args[j].i];
            before += a < b || (a == b && k < j);
        }
        if (before == i)
            return j;
    }
    return i;
}

/* Depth first, operands in order. The stack is a path through the program, so it holds no more
 * than its terms. */
static void copy_term(copier *c, ir_term root)
{
    i64 depth = 0;
    c->stack[depth++] = (frame){root.i, 0};
    while (depth > 0) {
        frame *f = &c->stack[depth - 1];
        const ir_node *node = &c->w->p->nodes.at[f->node];
        if (c->copy.terms[f->node].i) {
            depth--;
        } else if (f->next == node->arg_count) {
            copy_node(c, f->node);
            depth--;
        } else {
            i64 i = visited_operand(c->w, node, f->next++);
            c->stack[depth++] = (frame){node->args[i].i, 0};
        }
    }
}

ir_program *ir_canonical(arena *a, const ir_program *p)
{
    arena *scratch = arena_child(a);
    i64 nodes = p->nodes.n, atoms = p->atoms.n;
    painter w = {.p = p, .a = scratch};
    w.live = NEW_N(scratch, bool, nodes);
    w.used = NEW_N(scratch, bool, atoms);
    w.atom = NEW_N(scratch, u64, atoms);
    w.next_atom = NEW_N(scratch, u64, atoms);
    w.up = NEW_N(scratch, u64, nodes);
    w.down = NEW_N(scratch, u64, nodes);
    w.sorted = NEW_N(scratch, u64, MAX(nodes, atoms));
    w.from_users = NEW_N(scratch, u64, nodes);
    paint(&w);

    ir_program *to = ir_program_new(a, p->file, intern_text(p->names, p->name));
    vec_reserve(a, &to->nodes, nodes);
    copier c = {&w, ir_copy_new(scratch, to, p), NEW_N(scratch, frame, nodes)};
    for (i64 i = 0; i < p->inputs.n; i++)
        ir_copy_input(&c.copy, i);
    VEC(ir_port) outputs = {0}; /* their atoms come before those inside */
    for (i64 i = 0; i < p->outputs.n; i++)
        vec_push(scratch, &outputs, ir_copy_port(&c.copy, &p->outputs.at[i]));
    for (i64 i = 0; i < p->outputs.n; i++) {
        if (outputs.at[i].term.i) {
            copy_term(&c, outputs.at[i].term);
            outputs.at[i].term = c.copy.terms[outputs.at[i].term.i];
        }
        ir_add_output(to, outputs.at[i]);
    }
    ir_copy_assumptions(&c.copy);
    arena_free(scratch);
    return to;
}
