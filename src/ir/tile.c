/* Constructors of tiled forms, the states of axes, dim splits and constant terms. */
#include "ir/type.h"

/* ---- states ---------------------------------------------------------------------------------- */

ir_state ir_state_of(const ir_program *p, ir_term t, ir_atom axis)
{
    const ir_node *node = ir_get(p, t);
    if (!ir_has(node->axes, axis))
        return IR_REPLICATE;
    return ir_has(node->dims, axis) ? IR_PARTITION : IR_PARTIAL;
}

ir_atoms ir_axes_in(ir_program *p, ir_term t, ir_state state)
{
    const ir_node *node = ir_get(p, t);
    ir_atom *at = NEW_N(p->a, ir_atom, node->axes.n);
    i64 n = 0;
    for (i64 i = 0; i < node->axes.n; i++)
        if (ir_state_of(p, t, node->axes.at[i]) == state)
            at[n++] = node->axes.at[i];
    return (ir_atoms){at, n};
}

ir_atoms ir_all_axes(ir_program *p)
{
    bool *is_axis = NEW_N(p->a, bool, p->atoms.n);
    ir_atom *at = NEW_N(p->a, ir_atom, p->atoms.n);
    ir_atoms all = {at, 0};
    for (i64 k = 1; k < p->nodes.n; k++)
        for (i64 i = 0; i < p->nodes.at[k].attr.par.n; i++)
            is_axis[p->nodes.at[k].attr.par.at[i].i] = true;
    for (i64 d = 1; d < p->atoms.n; d++)
        if (is_axis[d])
            at[all.n++] = (ir_atom){(u32)d};
    return all;
}

bool *ir_constant_terms(arena *a, const ir_program *p, bool parameters)
{
    bool *is_constant = NEW_N(a, bool, p->nodes.n);
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        bool all = !node->is_open;
        for (i64 i = 0; all && i < node->arg_count; i++)
            all = is_constant[node->args[i].i];
        if (node->op == IR_in) {
            const ir_port *port = &p->inputs.at[ir_input_find(p, node->attr.name)];
            all = port->is_constant || port->role == IR_CONSTANT ||
                  (parameters && port->role == IR_PARAMETER);
        }
        is_constant[k] = all;
    }
    return is_constant;
}

/* ---- views ----------------------------------------------------------------------------------- */

ir_term ir_view(ir_program *p, ir_term x, ir_atoms axes)
{
    const ir_node *node = ir_get(p, x);
    ir_atom *at = NEW_N(p->a, ir_atom, axes.n);
    ir_atoms own = {at, 0};
    for (i64 i = 0; i < axes.n; i++)
        if (ir_has(node->dims, axes.at[i]))
            at[own.n++] = axes.at[i];
    if (own.n == 0)
        return x;
    own = ir_atoms_set(p, own.at, own.n);
    for (i64 i = 0; i < own.n; i++) /* also those that a view below has */
        if (ir_has(node->axes, own.at[i]))
            return ir_make(p, IR_view, (ir_attr){.par = own}, &x, 1);
    if (node->op == IR_view) {
        own = ir_atoms_union(p, own, node->attr.par);
        x = node->args[0];
    }
    return ir_make(p, IR_view, (ir_attr){.par = own}, &x, 1);
}

ir_term ir_comb(ir_program *p, ir_term x, ir_atoms axes)
{
    return axes.n == 0 ? x : ir_make(p, IR_comb, (ir_attr){.par = axes}, &x, 1);
}

ir_term ir_tile_matmul(ir_program *p, ir_term a, ir_term b, ir_atoms axis)
{
    return ir_make(p, IR_tile_matmul, (ir_attr){.axis = axis}, (ir_term[]){a, b}, 2);
}

ir_term ir_reduce_par(ir_program *p, ir_reducer r, ir_term x, ir_atoms axes)
{
    return axes.n == 0 ? x : ir_make(p, IR_reduce, (ir_attr){.reducer = (u8)r, .par = axes}, &x, 1);
}

/* ---- splits ---------------------------------------------------------------------------------- */

void ir_split_new(ir_program *p, ir_atom whole, ir_atom outer, ir_atom inner)
{
    const char *wrong = NULL;
    ir_atom parts[] = {outer, inner};
    i64 lanes;
    if (!whole.i || !outer.i || !inner.i || outer.i == inner.i)
        wrong = "wants three atoms";
    for (int i = 0; i < 2 && !wrong; i++) {
        if (p->atoms.at[parts[i].i].split)
            wrong = "an atom is a part of one dim only";
        else if (parts[i].i < whole.i)
            wrong = "the parts are declared after the whole";
    }
    if (!wrong && mul_i64(ir_extent(p, outer), ir_extent(p, inner), &lanes) &&
        lanes < ir_extent(p, whole))
        wrong = "the parts have fewer positions than the whole";
    else if (!wrong && !mul_i64(ir_extent(p, outer), ir_extent(p, inner), &lanes))
        wrong = "the extents do not fit 64 bits";
    if (wrong)
        eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, p->origin), "split %s: %s",
                  ir_atom_name(p, whole), wrong);
    vec_push(p->a, &p->splits, (ir_split){whole, outer, inner});
    p->atoms.at[outer.i].split = p->atoms.at[inner.i].split = (u32)p->splits.n;
}

const ir_split *ir_split_of(const ir_program *p, ir_atom part)
{
    u32 i = p->atoms.at[part.i].split;
    return i ? &p->splits.at[i - 1] : NULL;
}

bool ir_is_ragged(const ir_program *p, ir_atom part)
{
    const ir_split *s = ir_split_of(p, part);
    return s && ir_extent(p, s->outer) * ir_extent(p, s->inner) > ir_extent(p, s->whole);
}

ir_term ir_splitdim(ir_program *p, ir_term x, ir_atom outer, ir_atom inner)
{
    const ir_split *s = ir_split_of(p, outer);
    ir_atom whole = s ? s->whole : (ir_atom){0};
    if (whole.i && !ir_has(ir_get(p, x)->dims, whole))
        return x;
    return ir_make(p, IR_splitdim,
                   (ir_attr){.axis = {&whole, 1}, .to = {(ir_atom[]){outer, inner}, 2}}, &x, 1);
}

/* ---- loops ----------------------------------------------------------------------------------- */

ir_term ir_comp(ir_program *p, ir_reducer r, ir_term body)
{
    return ir_make(p, IR_comp, (ir_attr){.reducer = (u8)r}, &body, 1);
}

ir_term ir_comp_rolled(ir_program *p, ir_reducer r, ir_term body, ir_term transport,
                       const ir_term *producers, i64 n)
{
    ir_term *args = NEW_N(p->a, ir_term, n + 2);
    args[0] = body;
    args[1] = transport;
    for (i64 i = 0; i < n; i++)
        args[2 + i] = producers[i];
    return ir_make(p, IR_comp, (ir_attr){.reducer = (u8)r}, args, n + 2);
}

ir_term ir_comp_reducer(ir_program *p, ir_term reducer, const ir_term *leaves, i64 n, i64 result)
{
    ir_term *args = NEW_N(p->a, ir_term, n + 1);
    args[0] = reducer;
    for (i64 i = 0; i < n; i++)
        args[1 + i] = leaves[i];
    return ir_make(p, IR_comp, (ir_attr){.ints = {&result, 1}}, args, n + 1);
}

static i64 factor_of(const ir_affine *x, ir_atom d)
{
    for (i64 i = 0; i < x->atoms.n; i++)
        if (x->atoms.at[i].i == d.i)
            return x->factors[i];
    return 0;
}

static int compare_ranges(const i64 *x, const i64 *y, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Ranges as the ints of a loop over the atoms `to`: sorted, each once. */
static ir_ints encode(ir_program *p, const ir_live_set *visit, ir_atoms to)
{
    i64 length = 2 * (1 + to.n), n = 0;
    i64 *out = NEW_N(p->a, i64, MAX(visit->n, 1) * length), *one = NEW_N(p->a, i64, length);
    for (i64 k = 0; k < MAX(visit->n, 1); k++) {
        for (i64 side = 0; side < 2 && visit->n > 0; side++) { /* no range at all: 0 <= k < 0 */
            const ir_affine *x = side ? &visit->at[k].high : &visit->at[k].low;
            i64 *at = one + side * (1 + to.n);
            at[0] = x->constant;
            for (i64 i = 0; i < to.n; i++)
                at[1 + i] = factor_of(x, to.at[i]);
        }
        i64 j = n;
        while (j > 0 && compare_ranges(out + (j - 1) * length, one, length) > 0)
            j--;
        if (j > 0 && compare_ranges(out + (j - 1) * length, one, length) == 0)
            continue;
        memmove(out + (j + 1) * length, out + j * length, (size_t)((n - j) * length) * sizeof *out);
        memcpy(out + j * length, one, (size_t)length * sizeof *out);
        n++;
    }
    return (ir_ints){out, n * length};
}

static ir_atoms used_atoms(ir_program *p, const ir_live_set *visit)
{
    ir_atoms all = {0};
    for (i64 k = 0; k < visit->n; k++)
        for (i64 side = 0; side < 2; side++) {
            const ir_affine *x = side ? &visit->at[k].high : &visit->at[k].low;
            for (i64 i = 0; i < x->atoms.n; i++)
                if (x->factors[i] != 0)
                    all = ir_atoms_union(p, all, (ir_atoms){&x->atoms.at[i], 1});
        }
    return all;
}

ir_term ir_loop(ir_program *p, ir_atoms axes, const ir_term *comps, i64 n, const ir_live_set *visit)
{
    ir_attr attr = {.par = axes};
    if (visit) {
        attr.to = used_atoms(p, visit);
        attr.ints = encode(p, visit, attr.to);
    }
    return ir_make(p, IR_loop, attr, comps, n);
}

ir_live_set ir_visits(arena *a, const ir_program *p, ir_term loop)
{
    const ir_attr *x = &ir_get(p, loop)->attr;
    i64 bound = 1 + x->to.n;
    ir_live_set set = {.n = x->ints.n / (2 * bound), .is_exact = true};
    ir_range *at = NEW_N(a, ir_range, set.n);
    for (i64 k = 0; k < set.n; k++) {
        const i64 *low = x->ints.at + 2 * k * bound, *high = low + bound;
        at[k] = (ir_range){{low[0], low + 1, x->to}, {high[0], high + 1, x->to}};
    }
    set.at = at;
    return set;
}

ir_term ir_get_from(ir_program *p, ir_term bundle, ir_term comp)
{
    return ir_make(p, IR_get, (ir_attr){0}, (ir_term[]){bundle, comp}, 2);
}

ir_term ir_run(ir_program *p, ir_term comp, ir_atoms axes)
{
    return ir_make(p, IR_run, (ir_attr){.par = axes}, &comp, 1);
}
