/* What a program in tiled form would cost, roughly: for each kernel the larger of its operations
 * and its traffic, and a launch. A value that lacks an axis of its kernel's result is computed again
 * for each part of the grid along that axis. */
#include <stdio.h>

#include "extract/impl.h"

enum { PARTS = 8 };

typedef struct kernel {
    f64 flops, bytes;
} kernel;

static f64 weight(const ir_node *node)
{
    switch (node->op) {
    case IR_exp:
    case IR_exp2:
    case IR_log:
    case IR_tanh:
    case IR_erf:
    case IR_sigmoid:
    case IR_pow:
        return 12;
    case IR_div:
    case IR_sqrt:
    case IR_rsqrt:
    case IR_recip:
        return 4;
    default:
        return 1;
    }
}

static bool is_in_memory(const ir_node *node)
{
    return node->axes.n == 0 && node->dims.n > 0 && node->runs.n == 0 && !node->is_open &&
           ir_kind_of((ir_op)node->op) == IR_A_VALUE;
}

static f64 elements(const ir_program *p, ir_atoms dims, ir_atoms axes)
{
    f64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        n *= (f64)ir_extent(p, dims.at[i]);
    for (i64 i = 0; i < axes.n; i++)
        if (!ir_has(dims, axes.at[i]))
            n *= (f64)ir_extent(p, axes.at[i]);
    return n;
}

/* Times that a value is computed over in a kernel whose result has the axes `par`. */
static f64 repeats(const ir_program *p, const ir_node *node, ir_atoms par)
{
    f64 n = 1;
    for (i64 i = 0; i < par.n; i++)
        if (!ir_has(node->axes, par.at[i]))
            n *= MIN((f64)PARTS, (f64)(ir_extent(p, par.at[i]) + 31) / 32);
    return n < 1 ? 1 : n;
}

static f64 traffic(const ir_program *p, u32 k)
{
    const ir_node *node = &p->nodes.at[k];
    if (node->op == IR_iota || node->op == IR_const)
        return 0;
    return elements(p, node->dims, (ir_atoms){0}) * (f64)dtype_bytes(node->dtype);
}

static kernel cost_of(arena *a, const ir_program *p, u32 root, ir_atoms par)
{
    kernel k = {0};
    bool *seen = NEW_N(a, bool, root + 1);
    seen[root] = true;
    for (u32 t = root; t > 0; t--) {
        const ir_node *node = &p->nodes.at[t];
        if (!seen[t])
            continue;
        if (t != root && is_in_memory(node)) {
            k.bytes += traffic(p, t);
            continue;
        }
        i64 used = node->op == IR_reducer ? 3 : node->arg_count; /* no merge */
        for (i64 i = 0; i < used; i++)
            seen[node->args[i].i] = true;
        if (node->op != IR_comb)
            k.flops += weight(node) * (f64)ir_node_flops(p, (ir_term){t}) * repeats(p, node, par);
    }
    return k;
}

/* A loop's reducers, in one order; it has its components as a set. */
static const char *name_loop(arena *a, const ir_program *p, const ir_node *loop)
{
    arena *scratch = arena_child(a);
    const char **names = NEW_N(scratch, const char *, loop->arg_count);
    bool rolled = false;
    for (i64 i = 0; i < loop->arg_count; i++) {
        const ir_node *c = ir_get(p, loop->args[i]);
        const char *name = c->attr.reducer ? ir_reducer_text(c->attr.reducer) : "state";
        rolled |= c->arg_count > 1;
        i64 k = i;
        for (; k > 0 && strcmp(names[k - 1], name) < 0; k--)
            names[k] = names[k - 1];
        names[k] = name;
    }
    str s = str_new(a);
    str_add(&s, rolled ? "rolling(" : "(");
    for (i64 i = 0; i < loop->arg_count; i++)
        str_printf(&s, "%s%s", i > 0 ? "," : "", names[i]);
    str_add(&s, ")");
    arena_free(scratch);
    return str_text(&s);
}

static void name_reductions(arena *a, const ir_program *p, ex_candidate *out)
{
    VEC(ex_reduction) all = {0};
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool is_loop = node->op == IR_loop, is_par = node->op == IR_reduce && node->attr.par.n > 0;
        if (!is_loop && !is_par)
            continue;
        str over = str_new(a);
        str_add(&over, "");
        for (i64 i = 0; i < node->attr.par.n; i++)
            str_printf(&over, "%s%s", i > 0 ? " " : "", ir_atom_name(p, node->attr.par.at[i]));
        vec_push(a, &all,
                 ((ex_reduction){is_loop ? name_loop(a, p, node)
                                         : ir_reducer_text(node->attr.reducer),
                                 str_text(&over)}));
    }
    out->reductions = all.at;
    out->reduction_count = all.n;
}

void ex_model(arena *a, const ir_program *p, const ex_rates *given, ex_candidate *out)
{
    ex_rates rates = {given->flops > 0 ? given->flops : 1e11, given->bytes > 0 ? given->bytes : 2e10,
                      given->launch_s > 0 ? given->launch_s : 2e-6};
    arena *scratch = arena_child(a);
    bool *is_root = NEW_N(scratch, bool, p->nodes.n), *live = NEW_N(scratch, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++) {
        is_root[p->outputs.at[i].term.i] = true;
        live[p->outputs.at[i].term.i] = true;
    }
    live[0] = is_root[0] = false;
    bool *constant = ir_constant_terms(scratch, p);
    f64 seconds = 0;
    for (u32 k = (u32)p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!live[k])
            continue;
        for (i64 i = 0; i < node->arg_count; i++)
            live[node->args[i].i] = true;
        bool whole = is_in_memory(node) && node->op != IR_in && node->op != IR_const &&
                     node->op != IR_iota && ir_row((ir_op)node->op)->class_ != IR_INDEX;
        bool combined = node->op == IR_comb;
        if ((!whole && !combined && !is_root[k]) || constant[k] || node->op == IR_in)
            continue;
        u32 root = combined ? node->args[0].i : k;
        kernel c = cost_of(scratch, p, root, node->attr.par);
        c.bytes += traffic(p, k);
        out->kernels++;
        out->flops += c.flops;
        out->bytes += c.bytes;
        seconds += MAX(c.flops / rates.flops, c.bytes / rates.bytes) + rates.launch_s;
    }
    out->bound_us = 1e6 * seconds;
    name_reductions(a, p, out);
    arena_free(scratch);
}
