/* Constants that kernels make where they use them, in kernels of operators on whole tensors.
 *
 * Arithmetic that makes a constant more than twice as large as what it is made of (a distance for each
 * pair of positions, a row for each head) is folded only where reading costs less than making it again,
 * as in kernels of tiles (extract/form.c). It is made in place where all that use it are pointwise. */
#include "extract/extract.h"
#include "kernel/lower.h"

enum { MOST_LEAVES = KN_OPERANDS - 1 };

typedef struct growth {
    f64 *cost;    /* by term: of an element, read or made */
    i64 *leaves;  /* by term: operands of a kernel that makes it, at most */
    bool *fixed;  /* by term: constant, or made of positions alone where parameters are no constants */
    bool *grows;
} growth;

static f64 elements(const kn_lower *l, u32 t)
{
    return (f64)ir_count_elements(l->p, l->p->nodes.at[t].dims);
}

static void look_at(kn_lower *l, growth *g, u32 t)
{
    const ir_node *node = &l->p->nodes.at[t];
    f64 own = elements(l, t), below = 0, making = ex_weight((ir_op)node->op);
    f64 reading = EX_READ * (f64)dtype_bytes((dtype)node->dtype);
    i64 leaves = 0;
    g->leaves[t] = 1;
    g->cost[t] = node->op == IR_const ? 0 : node->op == IR_iota ? 1 : reading;
    g->fixed[t] = node->op != IR_in || l->constant[t];
    for (i64 i = 0; i < node->arg_count; i++)
        g->fixed[t] = g->fixed[t] && g->fixed[node->args[i].i];
    if (!g->fixed[t] || own == 0 || ir_row((ir_op)node->op)->class_ != IR_EWISE)
        return;
    for (i64 i = 0; i < node->arg_count; i++) {
        u32 x = node->args[i].i;
        f64 share = elements(l, x) / own;
        bool is_leaf = l->p->nodes.at[x].op == IR_const || l->p->nodes.at[x].op == IR_iota;
        below += is_leaf || g->grows[x] ? 0 : elements(l, x);
        making += is_leaf || g->grows[x] ? g->cost[x] : g->cost[x] * share;
        leaves += g->leaves[x];
    }
    g->grows[t] = 2 * below < own && making < reading && leaves <= MOST_LEAVES;
    g->cost[t] = g->grows[t] ? making : reading;
    g->leaves[t] = g->grows[t] ? leaves : 1;
}

void kn_find_in_place(kn_lower *l)
{
    const ir_program *p = l->p;
    i64 n = p->nodes.n;
    arena *scratch = arena_child(l->a);
    growth g = {NEW_N(scratch, f64, n), NEW_N(scratch, i64, n), NEW_N(scratch, bool, n),
                NEW_N(scratch, bool, n)};
    l->in_place = NEW_N(l->a, bool, n);
    for (u32 t = 1; t < (u32)n; t++) {
        look_at(l, &g, t);
        l->in_place[t] = g.grows[t];
    }
    for (i64 i = 0; i < p->outputs.n; i++)
        l->in_place[p->outputs.at[i].term.i] = false;
    for (u32 t = (u32)n - 1; t > 0; t--) {
        const ir_node *node = &p->nodes.at[t];
        i64 leaves = 0;
        for (i64 i = 0; i < node->arg_count; i++)
            leaves += g.leaves[node->args[i].i];
        bool takes = ir_row((ir_op)node->op)->class_ == IR_EWISE && kn_is_tensor(node) && !l->deferred[t] &&
                     leaves <= MOST_LEAVES;
        for (i64 i = 0; i < node->arg_count && l->live[t] && !takes; i++)
            l->in_place[node->args[i].i] = false;
    }
    arena_free(scratch);
}

static void add_leaves(const kn_lower *l, u32 t, kn_leaves *x)
{
    const ir_node *node = &l->p->nodes.at[t];
    for (i64 i = 0; i < node->arg_count; i++) {
        u32 operand = node->args[i].i;
        i64 k = 0;
        while (k < x->n && x->term[k] != operand)
            k++;
        if (l->in_place[operand])
            add_leaves(l, operand, x);
        else if (k == x->n)
            x->term[x->n++] = operand;
    }
}

kn_leaves kn_leaves_of(const kn_lower *l, u32 t)
{
    kn_leaves x = {.n = 0};
    add_leaves(l, t, &x);
    return x;
}
