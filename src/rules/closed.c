/* Closed terms: lambdas and reducers as leaves of the e-graph. They live, each once, in the graph's
 * own program, beside its atoms; what typing must know of one is worked out when its leaf is made.
 */
#include "ir/type.h"
#include "rules/graph_impl.h"

void rl_copy_atoms(ir_program *to, const ir_program *from)
{
    for (i64 d = to->atoms.n; d < from->atoms.n; d++)
        ir_atom_new(to, ir_atom_name(from, (ir_atom){(u32)d}), from->atoms.at[d].extent);
    for (i64 i = to->splits.n; i < from->splits.n; i++)
        ir_split_new(to, from->splits.at[i].whole, from->splits.at[i].outer,
                     from->splits.at[i].inner);
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct copier {
    ir_program *to;
    const ir_program *from;
    dtype real;
    ir_term *done; /* by term of `from` */
    bool missing;  /* an atom */
} copier;

bool rl_atoms_by_name(ir_program *to, const ir_program *from, ir_atoms list, ir_atoms *out)
{
    ir_atom *at = NEW_N(to->a, ir_atom, list.n);
    *out = (ir_atoms){at, list.n};
    for (i64 i = 0; i < list.n; i++) {
        if (!list.at[i].i)
            continue;
        const char *name = ir_atom_name(from, list.at[i]);
        u32 id = intern_find(to->names, name, (i64)strlen(name));
        at[i] = id ? ir_atom_find(to, id) : (ir_atom){0};
        if (!at[i].i || ir_extent(to, at[i]) != ir_extent(from, list.at[i]))
            return false;
    }
    return true;
}

bool rl_graph_atoms(const rl_graph *g, const ir_program *p, ir_atoms *list)
{
    if (p != g->p && !rl_atoms_by_name(g->own, p, *list, list))
        return false;
    for (i64 i = 0; i < list->n; i++)
        if (list->at[i].i &&
            ((i64)list->at[i].i >= g->atom_index.n || !g->atom_index.at[list->at[i].i]))
            return false;
    return true;
}

static int compare_u64(u64 x, u64 y)
{
    return x < y ? -1 : x > y;
}

static int compare_lists(ir_atoms x, ir_atoms y)
{
    int c = compare_u64((u64)x.n, (u64)y.n);
    for (i64 i = 0; !c && i < x.n; i++)
        c = compare_u64(x.at[i].i, y.at[i].i);
    return c;
}

/* An order of terms that does not depend on when they were made. */
static int compare(const ir_program *p, ir_term s, ir_term t)
{
    if (s.i == t.i)
        return 0;
    const ir_node *x = ir_get(p, s), *y = ir_get(p, t);
    int c = compare_u64(x->op, y->op);
    c = c ? c : compare_u64(x->dtype, y->dtype);
    c = c ? c : compare_u64(x->attr.reducer, y->attr.reducer);
    c = c ? c : compare_u64((u64)x->attr.i, (u64)y->attr.i);
    c = c ? c : (x->attr.f < y->attr.f ? -1 : x->attr.f > y->attr.f);
    c = c ? c : compare_lists(x->dims, y->dims);
    c = c ? c : compare_lists(x->attr.axis, y->attr.axis);
    c = c ? c : compare_lists(x->attr.to, y->attr.to);
    c = c ? c : compare_u64((u64)x->arg_count, (u64)y->arg_count);
    for (i64 i = 0; !c && i < x->arg_count; i++)
        c = compare(p, x->args[i], y->args[i]);
    return c;
}

static ir_term copy(copier *c, ir_term t)
{
    if (c->done[t.i].i)
        return c->done[t.i];
    const ir_node *node = ir_get(c->from, t);
    ir_attr attr = node->attr;
    ir_term *args = NEW_N(c->to->a, ir_term, node->arg_count);
    for (i64 i = 0; i < node->arg_count; i++)
        args[i] = copy(c, node->args[i]);
    if (c->missing || !rl_atoms_by_name(c->to, c->from, attr.axis, &attr.axis) ||
        !rl_atoms_by_name(c->to, c->from, attr.to, &attr.to)) {
        c->missing = true;
        return (ir_term){0};
    }
    attr.name = intern_cstr(c->to->names, intern_text(c->from->names, attr.name));
    if (c->real != DT_NONE && dtype_is_float((dtype)attr.dtype))
        attr.dtype = (u8)c->real;
    if (node->op == IR_cast && ir_get(c->to, args[0])->dtype == attr.dtype)
        return c->done[t.i] = args[0];
    bool swap = node->arg_count == 2 && (ir_row(node->op)->flags & IR_COMM) &&
                compare(c->to, args[0], args[1]) > 0;
    if (swap)
        args = arena_copy(c->to->a, (ir_term[]){args[1], args[0]}, 2 * (i64)sizeof *args);
    return c->done[t.i] = ir_make(c->to, node->op, attr, args, node->arg_count);
}

ir_term rl_copy_closed(ir_program *to, const ir_program *from, ir_term t, dtype real)
{
    copier c = {.to = to, .from = from, .real = real};
    c.done = NEW_N(to->a, ir_term, from->nodes.n);
    return copy(&c, t);
}

/* ---- what typing sees ------------------------------------------------------------------------ */

/* Types of terms, as formals or results are typed. */
static const rl_type *types_of(rl_graph *g, const ir_term *at, i64 n)
{
    rl_type *x = NEW_N(g->a, rl_type, n);
    for (i64 i = 0; i < n; i++) {
        const ir_node *node = ir_get(g->own, at[i]);
        x[i] = (rl_type){.dims = rl_mask(g, node->dims), .dtype = node->dtype};
    }
    return x;
}

static rl_closed *lambda_of(rl_graph *g, ir_term t)
{
    rl_closed *c = NEW(g->a, rl_closed);
    const ir_node *node = ir_get(g->own, t);
    i64 formals = node->attr.ints.at[0];
    *c = (rl_closed){.term = t,
                     .formal_count = formals,
                     .result_count = node->arg_count - formals,
                     .formals = types_of(g, node->args, formals),
                     .results = types_of(g, node->args + formals, node->arg_count - formals)};
    return c;
}

static rl_closed *reducer_of(rl_graph *g, ir_term t)
{
    rl_closed *c = NEW(g->a, rl_closed);
    const ir_node *node = ir_get(g->own, t);
    const rl_closed *update = lambda_of(g, node->args[1]), *final = lambda_of(g, node->args[2]);
    i64 before = update->result_count + node->attr.ints.at[0];
    i64 leaves = update->formal_count - before;
    if (leaves > 64)
        eqf_throw(g->ctx, EQF_E_LIMIT, g->p->file, NULL, "a reducer with more than 64 leaves");
    u64 *reach = NEW_N(g->a, u64, final->result_count);
    u64 *met = NEW_N(g->a, u64, final->result_count);
    for (i64 k = 0; k < final->result_count; k++) {
        ir_atoms dims = {0};
        const bool *uses = ir_leaves_of_result(g->own, g->a, node, k, leaves, &dims);
        met[k] = rl_mask(g, dims);
        for (i64 i = 0; i < leaves; i++)
            reach[k] |= (u64)uses[1 + i] << i;
    }
    *c = (rl_closed){.term = t,
                     .is_reducer = true,
                     .formal_count = leaves,
                     .result_count = final->result_count,
                     .formals = update->formals + before,
                     .results = final->results,
                     .leaves = reach,
                     .met = met};
    return c;
}

/* By what it is, so that two graphs of one program call it the same. */
static const char *closed_name(rl_graph *g, ir_term t, bool is_reducer)
{
    arena *scratch = arena_child(g->a);
    str text = str_new(scratch);
    ir_print_term(&text, g->own, t);
    char digest[33];
    digest_hex(str_text(&text), text.n, digest);
    arena_free(scratch);
    const char *name = arena_printf(g->a, "#%s:%s", is_reducer ? "reducer" : "lambda", digest);
    eqf_head head;
    rl_must(g, eqf_head_symbol(g->lang, eqf_text_of(name), &head));
    const rl_leaf *other = rl_leaf_of(g, head);
    if (other && other->type.closed->term.i != t.i) /* longer than what is printed */
        name = arena_printf(g->a, "%s:%u", name, t.i);
    return name;
}

eqf_head rl_closed_head(rl_graph *g, ir_term t)
{
    bool is_reducer = ir_get(g->own, t)->op == IR_reducer;
    const rl_closed *c = NULL;
    for (i64 i = 0; i < g->closed.n && !c; i++)
        if (g->closed.at[i]->term.i == t.i)
            c = g->closed.at[i];
    if (!c) {
        c = is_reducer ? reducer_of(g, t) : lambda_of(g, t);
        vec_push(g->a, &g->closed, c);
    }
    rl_leaf leaf = {
        is_reducer ? IR_reducer : IR_lambda,
        {0},
        {.dtype = DT_bool, .kind = is_reducer ? IR_A_REDUCER : IR_A_LAMBDA, .closed = c},
        0};
    return rl_leaf_head(g, closed_name(g, t, is_reducer), leaf);
}
