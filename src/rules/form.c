/* Forms: what extraction chose, written as a program again. */
#include <math.h>

#include "rules/graph_impl.h"

struct rl_writer {
    const rl_graph *g;
    arena *a;
    const eqf_extraction *x;
    const rl_choices *choices; /* instead of x */
    ir_program *p;
    ir_term *terms; /* by class */
    const u8 *stored; /* by class; NULL: as it is computed */
    u32 n_classes;
};

static ir_port copy_port(ir_program *to, const ir_program *from, const ir_port *port)
{
    ir_port copy = *port; /* atoms have the same ids */
    copy.name = intern_cstr(to->names, intern_text(from->names, port->name));
    copy.key = port->key ? intern_cstr(to->names, intern_text(from->names, port->key)) : 0;
    return copy;
}

rl_writer *rl_writer_new(const rl_graph *g, arena *a, const eqf_extraction *x)
{
    rl_writer *w = NEW(a, rl_writer);
    const ir_program *from = g->p;
    w->g = g;
    w->a = a;
    w->x = x;
    w->n_classes = g->engine->class_ids;
    w->terms = NEW_N(a, ir_term, w->n_classes);
    w->p = ir_program_new(a, from->file, intern_text(from->names, from->name));
    rl_copy_atoms(w->p, g->own);
    for (i64 i = 0; i < from->inputs.n; i++)
        ir_add_input(w->p, copy_port(w->p, from, &from->inputs.at[i]));
    for (i64 i = 0; i < from->preconditions.n; i++)
        vec_push(a, &w->p->preconditions,
                 intern_cstr(w->p->names, intern_text(from->names, from->preconditions.at[i])));
    if (from->source.user != from) /* the default one refers to its own program */
        w->p->source = from->source;
    return w;
}

ir_program *rl_writer_program(const rl_writer *w)
{
    return w->p;
}

static ir_term write_leaf(rl_writer *w, const rl_leaf *leaf)
{
    if (leaf->op == IR_in)
        return ir_cast(w->p, (dtype)leaf->type.dtype, w->p->inputs.at[leaf->input].term);
    if (leaf->type.closed)
        return rl_copy_closed(w->p, w->g->own, leaf->type.closed->term, DT_NONE);
    return ir_make(w->p, leaf->op, leaf->attr, NULL, 0);
}

/* A whole value as it is stored, DT_NONE: as it is, and read again. */
static ir_term store(rl_writer *w, u8 half, ir_term t)
{
    return half ? ir_cast(w->p, (dtype)w->g->real, ir_cast(w->p, (dtype)half, t)) : t;
}

static bool is_made_whole(const ir_node *node)
{
    u8 class_ = ir_row((ir_op)node->op)->class_;
    return node->op == IR_comb || node->op == IR_gather ||
           (node->axes.n == 0 && node->dims.n > 0 && !node->is_open && node->runs.n == 0 &&
            (class_ == IR_EWISE || class_ == IR_REDUCE || class_ == IR_MATMUL || class_ == IR_PLAIN));
}

ir_term rl_write_node(rl_writer *w, eqf_node n)
{
    const rl_graph *g = w->g;
    eqf_head head = eqf_node_head(g->engine, n);
    const rl_leaf *leaf = rl_leaf_of(g, head);
    if (leaf)
        return write_leaf(w, leaf);
    const rl_operator *o = &g->operators.at[eqf_head_op(g->lang, head).i];
    i64 arity = eqf_head_arity(g->lang, head);
    ir_term *args = NEW_N(w->a, ir_term, arity);
    for (i64 i = 0; i < arity; i++)
        args[i] = rl_write_class(w, eqf_node_child(g->engine, n, (unsigned)i));
    ir_attr attr = g->payloads.at[eqf_head_payload(g->lang, head)].attr;
    if (o->op == IR_comb && ir_get(w->p, args[0])->op == IR_view) {
        const ir_node *cut = ir_get(w->p, args[0]);
        bool same = cut->attr.par.n == attr.par.n;
        for (i64 i = 0; same && i < attr.par.n; i++)
            same = cut->attr.par.at[i].i == attr.par.at[i].i;
        if (same) /* stored tiles: the value is there */
            return cut->args[0];
    }
    if (o->reducer != IR_NO_REDUCER)
        attr.reducer = (u8)o->reducer;
    if (attr.name)
        attr.name = intern_cstr(w->p->names, intern_text(g->own->names, attr.name));
    ir_term t = ir_make(w->p, o->op, attr, args, arity);
    u8 half = w->stored ? w->stored[eqf_find(g->engine, eqf_node_class(g->engine, n)).i] : DT_NONE;
    return is_made_whole(ir_get(w->p, t)) ? store(w, half, t) : t;
}

static eqf_node chosen(void *writer, eqf_class c)
{
    const rl_writer *w = writer;
    return w->choices ? w->choices->node(w->choices->user, c) : eqf_chosen(w->x, c);
}

static bool is_stored(void *writer, eqf_class c)
{
    const rl_writer *w = writer;
    return w->choices && w->choices->is_stored(w->choices->user, c);
}

ir_term rl_write_class(rl_writer *w, eqf_class c)
{
    c = eqf_find(w->g->engine, c);
    if (w->terms[c.i].i)
        return w->terms[c.i];
    eqf_node n = chosen(w, c);
    if (!n.i)
        eqf_bug(w->g->ctx, "class %u was not chosen", c.i);
    ir_term t = rl_write_node(w, n);
    if (is_stored(w, c)) {
        ir_atoms axes = ir_get(w->p, t)->axes;
        t = ir_view(w->p, store(w, w->stored ? w->stored[c.i] : DT_NONE, ir_comb(w->p, t, axes)), axes);
    }
    return w->terms[c.i] = t;
}

/* FLOPs decide; among equals the form with fewer e-nodes. What is folded once weighs as little. */
static double cost_of(void *user, const eqf_egraph *e, eqf_node n)
{
    (void)e;
    return rl_graph_flops(user, n) + 1e-3;
}

/* The value in the dtype of a port: what was widened to be read is there already. */
static ir_term in_dtype(rl_writer *w, u8 t, ir_term x)
{
    const ir_node *n = ir_get(w->p, x);
    bool is_there = n->op == IR_cast && n->dtype == w->g->real && ir_get(w->p, n->args[0])->dtype == t &&
                    dtype_is_float((dtype)t);
    return is_there ? n->args[0] : ir_cast(w->p, (dtype)t, x);
}

static void write_outputs(rl_writer *w, const ir_program *from)
{
    w->stored = rl_form_dtypes(w->g, w->a, &(rl_choice){chosen, is_stored, w});
    for (i64 i = 0; i < from->outputs.n; i++) {
        ir_port port = copy_port(w->p, from, &from->outputs.at[i]);
        if (port.term.i)
            port.term = in_dtype(w, port.dtype, rl_write_class(w, rl_graph_class(w->g, port.term)));
        ir_add_output(w->p, port);
    }
}

ir_program *rl_write_program(rl_graph *g, arena *a, const rl_choices *choices)
{
    rl_writer *w = rl_writer_new(g, a, NULL);
    w->choices = choices;
    write_outputs(w, g->p);
    return w->p;
}

rl_extracted rl_graph_form(rl_graph *g, arena *a, eqf_algo algo)
{
    const ir_program *from = g->p;
    VEC(eqf_class) roots = {0};
    for (i64 i = 0; i < from->outputs.n; i++)
        if (from->outputs.at[i].term.i)
            vec_push(a, &roots, rl_graph_class(g, from->outputs.at[i].term));
    eqf_cost cost = {.of = cost_of, .user = g};
    eqf_extraction *x = NULL;
    rl_must(g, eqf_extract(g->engine, roots.at, (size_t)roots.n, &cost, algo, &x));
    rl_extracted form = {0};
    trap t;
    TRY (g->ctx, t) {
        rl_writer *w = rl_writer_new(g, a, x);
        form.program = w->p;
        write_outputs(w, from);
        for (u32 c = 0; c < w->n_classes; c++)
            if (w->terms[c].i)
                form.flops += rl_graph_flops(g, eqf_chosen(x, (eqf_class){c}));
        ir_verify(w->p, "extraction");
    }
    eqf_extraction_free(x);
    rl_must(g, t.status);
    return form;
}
