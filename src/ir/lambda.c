/* Lambdas over formal parameters, and reducers made of them. A lambda is a term whose operands are
 * its formals and then its results, so hash-consing makes equal lambdas one term; a formal is named
 * by its number, dtype and dims alone. */
#include "ir/type.h"

ir_term ir_formal(ir_program *p, i64 number, dtype t, ir_atoms dims)
{
    return ir_make(p, IR_formal, (ir_attr){.dtype = (u8)t, .i = number, .to = dims}, NULL, 0);
}

ir_term ir_lambda(ir_program *p, const ir_term *formals, i64 n, const ir_term *results, i64 count)
{
    ir_term *args = NEW_N(p->a, ir_term, n + count);
    for (i64 i = 0; i < n; i++)
        args[i] = formals[i];
    for (i64 i = 0; i < count; i++)
        args[n + i] = results[i];
    return ir_make(p, IR_lambda, (ir_attr){.ints = {&n, 1}}, args, n + count);
}

i64 ir_formal_count(const ir_program *p, ir_term lambda)
{
    return ir_get(p, lambda)->attr.ints.at[0];
}

i64 ir_result_count(const ir_program *p, ir_term lambda)
{
    return ir_get(p, lambda)->arg_count - ir_formal_count(p, lambda);
}

ir_term ir_result(const ir_program *p, ir_term lambda, i64 i)
{
    return ir_get(p, lambda)->args[ir_formal_count(p, lambda) + i];
}

static _Noreturn void lambda_throw(ir_program *p, const char *text)
{
    eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, p->origin), "lambda: %s", text);
}

void ir_apply(ir_program *p, ir_term lambda, const ir_term *args, i64 n, ir_term *results)
{
    if (ir_get(p, lambda)->op != IR_lambda || ir_formal_count(p, lambda) != n)
        lambda_throw(p, "applied to another number of arguments");
    i64 count = ir_result_count(p, lambda);
    ir_term top = lambda;
    arena *scratch = arena_child(p->a);
    ir_term *done = NEW_N(scratch, ir_term, top.i);
    bool *wanted = NEW_N(scratch, bool, top.i);
    for (i64 i = 0; i < n; i++) {
        const ir_node *formal = ir_get(p, ir_get(p, lambda)->args[i]), *x = ir_get(p, args[i]);
        if (formal->dtype != x->dtype || !ir_type_same_atoms(formal->dims, x->dims))
            lambda_throw(p, "applied to an argument of another type");
        done[ir_get(p, lambda)->args[i].i] = args[i];
    }
    for (i64 i = 0; i < count; i++)
        wanted[ir_result(p, lambda, i).i] = true;
    for (u32 k = top.i - 1; k > 0; k--) {
        const ir_node *node = ir_get(p, (ir_term){k});
        for (i64 i = 0; wanted[k] && i < node->arg_count; i++)
            wanted[node->args[i].i] = true;
    }
    for (u32 k = 1; k < top.i; k++) {
        if (!wanted[k] || done[k].i)
            continue;
        ir_node node = *ir_get(p, (ir_term){k});
        done[k] = (ir_term){k};
        if (!node.is_open)
            continue;
        ir_term *operands = NEW_N(scratch, ir_term, node.arg_count);
        for (i64 i = 0; i < node.arg_count; i++)
            operands[i] = done[node.args[i].i];
        done[k] = ir_make(p, node.op, node.attr, operands, node.arg_count);
    }
    for (i64 i = 0; i < count; i++)
        results[i] = done[ir_result(p, lambda, i).i];
    arena_free(scratch);
}

static ir_atoms same_names(ir_program *p, const ir_program *body, ir_atoms list)
{
    ir_atom *at = NEW_N(p->a, ir_atom, list.n);
    for (i64 i = 0; i < list.n; i++) {
        const char *name = ir_atom_name(body, list.at[i]);
        u32 id = intern_find(p->names, name, (i64)strlen(name));
        if (!list.at[i].i)
            continue;
        at[i] = id ? ir_atom_find(p, id) : (ir_atom){0};
        if (!at[i].i || ir_extent(p, at[i]) != ir_extent(body, list.at[i]))
            lambda_throw(p, arena_printf(p->a, "the program has no dim %s of extent %lld", name,
                                         (long long)ir_extent(body, list.at[i])));
    }
    return (ir_atoms){at, list.n};
}

ir_term ir_lambda_of(ir_program *p, const ir_program *body, const ir_term *formals, i64 n,
                     const i64 *position)
{
    ir_term *done = NEW_N(p->a, ir_term, body->nodes.n);
    bool *wanted = NEW_N(p->a, bool, body->nodes.n);
    for (i64 i = 0; i < body->outputs.n; i++)
        wanted[body->outputs.at[i].term.i] = true;
    for (i64 k = body->nodes.n - 1; k > 0; k--)
        for (i64 i = 0; wanted[k] && i < body->nodes.at[k].arg_count; i++)
            wanted[body->nodes.at[k].args[i].i] = true;
    for (i64 i = 0; i < body->inputs.n; i++)
        if (body->inputs.at[i].term.i)
            done[body->inputs.at[i].term.i] = formals[position[i]];
    for (i64 k = 1; k < body->nodes.n; k++) {
        const ir_node *node = &body->nodes.at[k];
        if (!wanted[k] || done[k].i)
            continue;
        ir_attr attr = node->attr;
        attr.axis = same_names(p, body, attr.axis);
        attr.to = same_names(p, body, attr.to);
        attr.par = same_names(p, body, attr.par);
        attr.name = intern_cstr(p->names, intern_text(body->names, attr.name));
        ir_term *args = NEW_N(p->a, ir_term, node->arg_count);
        for (i64 i = 0; i < node->arg_count; i++)
            args[i] = done[node->args[i].i];
        done[k] = ir_make(p, node->op, attr, args, node->arg_count);
    }
    ir_term *results = NEW_N(p->a, ir_term, body->outputs.n);
    for (i64 i = 0; i < body->outputs.n; i++) {
        const ir_port *port = &body->outputs.at[i];
        results[i] = done[port->term.i];
        VEC(ir_atom) missing = {0}; /* an output is repeated along dims that its term lacks */
        for (i64 k = 0; k < port->rank; k++) {
            ir_atoms atoms = same_names(p, body, port->dims[k].atoms);
            for (i64 j = 0; j < atoms.n; j++)
                if (!ir_has(ir_get(p, results[i])->dims, atoms.at[j]))
                    vec_push(p->a, &missing, atoms.at[j]);
        }
        if (missing.n > 0)
            results[i] =
                ir_make(p, IR_expand, (ir_attr){.to = {missing.at, missing.n}}, &results[i], 1);
    }
    return ir_lambda(p, formals, n, results, body->outputs.n);
}

ir_term ir_reducer_of(ir_program *p, bool has_lanes, ir_term identity, ir_term update,
                      ir_term final, ir_term merge)
{
    i64 lanes = has_lanes;
    return ir_make(p, IR_reducer, (ir_attr){.ints = {&lanes, 1}},
                   (ir_term[]){identity, update, final, merge}, merge.i ? 4 : 3);
}
