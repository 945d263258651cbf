/* draft: terms over variables, before it is known which variables are one.
 *
 * A draft is an ir_node whose atoms are variables of dims.c. What a draft says stays true under
 * every later unification (variables that must differ are kept apart when the draft is made) and
 * under every split: sets and tuples flatten; iota over (k1, k2) is iota k1 * |k2| + iota k2; the
 * step of a slice's `to` multiplies; a rename's two sides are split alike. Variables that an
 * operator cannot see in parts are pinned: gather, concat, argsort and scan axes, sliced dims. */
#include "frontend/lower.h"

fe_vars fe_draft_dims(fe_lower *l, u32 term)
{
    fe_draft *d = &l->drafts.at[term];
    d->dims = fe_flat(l->space, d->dims);
    return d->dims;
}

static bool has(fe_vars set, u32 v)
{
    for (i64 i = 0; i < set.n; i++)
        if (set.at[i] == v)
            return true;
    return false;
}

bool fe_draft_has(fe_lower *l, u32 term, u32 var)
{
    fe_vars v = fe_flat(l->space, (fe_vars){&var, 1});
    return v.n && has(fe_draft_dims(l, term), v.at[0]);
}

typedef VEC(u32) id_list;

static void add_all(fe_lower *l, id_list *out, fe_vars vars, fe_vars except)
{
    vars = fe_flat(l->space, vars);
    for (i64 i = 0; i < vars.n; i++)
        if (!has((fe_vars){out->at, out->n}, vars.at[i]) && !has(except, vars.at[i]))
            vec_push(l->a, out, vars.at[i]);
}

static fe_vars draft_dims(fe_lower *l, const fe_draft *d)
{
    id_list out = {0};
    fe_vars none = {0}, axis = fe_flat(l->space, d->axis), to = fe_flat(l->space, d->to);
    switch (d->op) {
    case IR_const:
        break;
    case IR_iota:
        add_all(l, &out, axis, none);
        break;
    case IR_in:
    case IR_opaque:
        add_all(l, &out, to, none);
        break;
    case IR_expand:
        add_all(l, &out, fe_draft_dims(l, d->args[0]), none);
        add_all(l, &out, to, none);
        break;
    case IR_rename: {
        fe_vars x = fe_draft_dims(l, d->args[0]);
        for (i64 i = 0; i < x.n; i++) {
            u32 v = x.at[i];
            for (i64 k = 0; k < axis.n; k++)
                if (axis.at[k] == x.at[i])
                    v = to.at[k];
            vec_push(l->a, &out, v);
        }
        break;
    }
    case IR_concat:
        for (i64 i = 0; i < d->arg_count; i++) {
            fe_vars own = {&d->axis.at[i], d->axis.at[i] ? 1 : 0};
            add_all(l, &out, fe_draft_dims(l, d->args[i]), fe_flat(l->space, own));
        }
        add_all(l, &out, to, none);
        break;
    case IR_scatter:
        add_all(l, &out, fe_draft_dims(l, d->args[0]), none);
        break;
    case IR_scan:
        add_all(l, &out, fe_draft_dims(l, d->args[0]), none);
        break;
    case IR_argsort:
        add_all(l, &out, fe_draft_dims(l, d->args[0]), to.n ? axis : none);
        add_all(l, &out, to, none);
        break;
    case IR_gather:
        add_all(l, &out, fe_draft_dims(l, d->args[0]), axis);
        for (i64 i = 1; i < d->arg_count; i++)
            add_all(l, &out, fe_draft_dims(l, d->args[i]), none);
        break;
    default: /* pointwise, and what removes its axis: reduce matmul slice reshape */
        for (i64 i = 0; i < d->arg_count; i++)
            add_all(l, &out, fe_draft_dims(l, d->args[i]), axis);
        add_all(l, &out, to, none);
        break;
    }
    return (fe_vars){out.at, out.n};
}

u32 fe_draft_new(fe_lower *l, fe_draft d)
{
    d.args = arena_copy(l->a, d.args, d.arg_count * (i64)sizeof(u32));
    d.axis.at = arena_copy(l->a, d.axis.at, d.axis.n * (i64)sizeof(u32));
    d.to.at = arena_copy(l->a, d.to.at, d.to.n * (i64)sizeof(u32));
    d.ints.at = arena_copy(l->a, d.ints.at, d.ints.n * (i64)sizeof(i64));
    d.origin = l->p->origin;
    d.dims = draft_dims(l, &d);
    fe_keep_apart(l->space, d.dims);
    if (d.op == IR_rename)
        for (i64 i = 0; i < d.axis.n; i++)
            fe_link(l->space, d.axis.at[i], d.to.at[i]);
    if (d.op == IR_gather || d.op == IR_scatter || d.op == IR_scan || d.op == IR_argsort ||
        d.op == IR_slice || d.op == IR_concat)
        for (i64 i = 0; i < d.axis.n; i++)
            if (d.axis.at[i])
                fe_pin(l->space, d.axis.at[i]);
    if (d.op == IR_concat || d.op == IR_argsort)
        for (i64 i = 0; i < d.to.n; i++)
            fe_pin(l->space, d.to.at[i]);
    u32 id = (u32)l->drafts.n;
    vec_push(l->a, &l->drafts, d);
    return id;
}

/* ---- resolution ---------------------------------------------------------------------------- */

static ir_atom atom_of(fe_lower *l, u32 leaf)
{
    while (l->atoms.n <= (i64)leaf)
        vec_push(l->a, &l->atoms, (ir_atom){0});
    if (!l->atoms.at[leaf].i)
        l->atoms.at[leaf] = ir_atom_new(l->p, NULL, fe_var_extent(l->space, leaf));
    return l->atoms.at[leaf];
}

ir_atoms fe_atoms(fe_lower *l, fe_vars vars)
{
    vars = fe_flat(l->space, vars);
    ir_atom *at = NEW_N(l->a, ir_atom, vars.n);
    for (i64 i = 0; i < vars.n; i++)
        at[i] = atom_of(l, vars.at[i]);
    return (ir_atoms){at, vars.n};
}

/* iota over a tuple of atoms, row-major. */
static ir_term positions(fe_lower *l, ir_atoms k)
{
    ir_term sum = ir_iota(l->p, k.at[0]);
    for (i64 i = 1; i < k.n; i++) {
        ir_term scale = ir_i(l->p, DT_i64, ir_extent(l->p, k.at[i]));
        sum = ir_2(l->p, IR_add, ir_2(l->p, IR_mul, sum, scale), ir_iota(l->p, k.at[i]));
    }
    return sum;
}

/* The leaves of each `to` with their steps. */
static ir_term slice(fe_lower *l, const fe_draft *d, ir_term x)
{
    VEC(i64) steps = {0};
    for (i64 i = 0; i < d->to.n; i++) {
        fe_vars leaves = fe_flat(l->space, (fe_vars){&d->to.at[i], 1});
        i64 inner = fe_var_extent(l->space, d->to.at[i]);
        for (i64 k = 0; k < leaves.n; k++) {
            inner /= fe_var_extent(l->space, leaves.at[k]);
            vec_push(l->a, &steps, d->ints.at[1 + i] * inner);
        }
    }
    ir_atoms axis = fe_atoms(l, d->axis);
    return ir_slice(l->p, x, axis.at[0], d->ints.at[0], fe_atoms(l, d->to), steps.at);
}

static ir_term resolve(fe_lower *l, const fe_draft *d, const ir_term *args)
{
    ir_program *p = l->p;
    switch (d->op) {
    case IR_const:
        return dtype_is_float((dtype)d->dtype) ? ir_f(p, (dtype)d->dtype, d->f)
                                               : ir_i(p, (dtype)d->dtype, d->i);
    case IR_iota:
        return positions(l, fe_atoms(l, d->axis));
    case IR_cast:
        return ir_cast(p, (dtype)d->dtype, args[0]);
    case IR_reduce: {
        ir_atoms k = fe_atoms(l, d->axis);
        return ir_reduce(p, (ir_reducer)d->reducer, args[0], ir_atoms_set(p, k.at, k.n));
    }
    case IR_matmul: {
        ir_atoms k = fe_atoms(l, d->axis);
        return ir_matmul(p, args[0], args[1], ir_atoms_set(p, k.at, k.n));
    }
    case IR_rename:
        return ir_rename(p, args[0], fe_atoms(l, d->axis), fe_atoms(l, d->to));
    case IR_slice:
        return slice(l, d, args[0]);
    default:
        break;
    }
    ir_attr attr = {.dtype = d->dtype, .reducer = d->reducer, .name = d->name, .ints = d->ints};
    if (d->op != IR_opaque)
        attr.dtype = 0;
    if (d->op == IR_concat) {
        ir_atom *axis = NEW_N(l->a, ir_atom, d->axis.n);
        for (i64 i = 0; i < d->axis.n; i++)
            if (d->axis.at[i])
                axis[i] = fe_atoms(l, (fe_vars){&d->axis.at[i], 1}).at[0];
        attr.axis = (ir_atoms){axis, d->axis.n};
    } else {
        attr.axis = fe_atoms(l, d->axis);
    }
    attr.to = fe_atoms(l, d->to);
    if (d->op == IR_expand || d->op == IR_opaque)
        attr.to = ir_atoms_set(p, attr.to.at, attr.to.n);
    return ir_make(p, (ir_op)d->op, attr, args, d->arg_count);
}

void fe_resolve(fe_lower *l, const u32 *roots, i64 n, ir_term *terms)
{
    bool *is_needed = NEW_N(l->a, bool, l->drafts.n);
    for (i64 i = 0; i < n; i++)
        is_needed[roots[i]] = true;
    for (i64 i = l->drafts.n - 1; i > 0; i--)
        if (is_needed[i])
            for (i64 k = 0; k < l->drafts.at[i].arg_count; k++)
                is_needed[l->drafts.at[i].args[k]] = true;
    for (i64 i = 1; i < l->drafts.n; i++) {
        const fe_draft *d = &l->drafts.at[i];
        if (!is_needed[i] || terms[i].i)
            continue;
        ir_term *args = NEW_N(l->a, ir_term, d->arg_count);
        for (i64 k = 0; k < d->arg_count; k++)
            args[k] = terms[d->args[k]];
        l->p->origin = d->origin;
        terms[i] = resolve(l, d, args);
    }
}
