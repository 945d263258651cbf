/* normalize: the rules of operators that work along atoms: sums, products, renames, slices,
 * gathers. */
#include <math.h>

#include "frontend/normalize.h"

/* ---- rules: sums and products over atoms  -------------------------------------------------- */

static bool has_all(ir_atoms set, ir_atoms wanted)
{
    for (i64 i = 0; i < wanted.n; i++)
        if (!ir_has(set, wanted.at[i]))
            return false;
    return true;
}

bool nz_rule_reduce(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    ir_term y, a, b;
    f64 c;
    const ir_node *n = nz_at(z, x);
    if (!has_all(n->dims, attr.axis)) {
        *out = ir_reduce(z->p, (ir_reducer)attr.reducer, x, attr.axis);
        return true;
    }
    if (attr.reducer == IR_SUM && nz_split_scale(z, x, &y, &c)) {
        *out = nz_scaled(z, nz_make(z, IR_reduce, attr, &y, 1), c);
        return true;
    }
    if (attr.reducer == IR_SUM && n->op == IR_mul && nz_is_float(z, x)) {
        a = n->args[0], b = n->args[1];
        if (has_all(nz_at(z, a)->dims, attr.axis) && has_all(nz_at(z, b)->dims, attr.axis)) {
            ir_term ab[2] = {a, b};
            *out = nz_make(z, IR_matmul, (ir_attr){.axis = attr.axis}, ab, 2);
            return true;
        }
    }
    if (n->op == IR_reduce && n->attr.reducer == attr.reducer) {
        *out = ir_reduce(z->p, (ir_reducer)attr.reducer, n->args[0],
                         ir_atoms_union(z->p, attr.axis, n->attr.axis));
        return true;
    }
    /* any(x != -inf) = (max x != -inf), all(x == -inf) = (max x == -inf) */
    ir_op test = attr.reducer == IR_OR ? IR_ne : attr.reducer == IR_AND ? IR_eq : IR_NO_OP;
    if (test != IR_NO_OP && n->op == test)
        for (int i = 0; i < 2; i++)
            if (nz_is_value(z, n->args[i], (f64)-INFINITY)) {
                ir_term k = n->args[i];
                y = n->args[1 - i];
                ir_term m =
                    nz_make(z, IR_reduce, (ir_attr){.reducer = IR_MAX, .axis = attr.axis}, &y, 1);
                *out = nz_2(z, test, m, k);
                return true;
            }
    return false;
}

bool nz_rule_matmul(nz *z, ir_attr attr, const ir_term *x, ir_term *out)
{
    for (int i = 0; i < 2; i++) {
        ir_term y, both[2] = {x[0], x[1]};
        f64 c;
        if (!nz_split_scale(z, x[i], &y, &c))
            continue;
        both[i] = y;
        *out = nz_scaled(z, nz_make(z, IR_matmul, attr, both, 2), c);
        return true;
    }
    for (int i = 0; i < 2 && nz_is_wide(z, x[0]);
         i++) { /* a factor without the summed atoms leaves */
        bool is_free = true;
        for (i64 k = 0; k < attr.axis.n; k++)
            is_free = is_free && !ir_has(nz_at(z, x[i])->dims, attr.axis.at[k]);
        if (!is_free)
            continue;
        ir_attr sum = {.reducer = IR_SUM, .axis = attr.axis};
        *out = nz_2(z, IR_mul, nz_make(z, IR_reduce, sum, &x[1 - i], 1), x[i]);
        return true;
    }
    return false;
}

bool nz_rule_rename(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    ir_term y;
    f64 c;
    const ir_node *n = nz_at(z, x);
    if (nz_split_scale(z, x, &y, &c)) {
        *out = nz_scaled(z, nz_rename(z, y, attr.axis, attr.to), c);
        return true;
    }
    if (n->op == IR_rename) {
        /* first n's mapping, then this one */
        ir_atom *from = NEW_N(z->p->a, ir_atom, n->dims.n),
                *to = NEW_N(z->p->a, ir_atom, n->dims.n);
        const ir_node *inner = nz_at(z, n->args[0]);
        ir_attr first = n->attr;
        ir_term base = n->args[0];
        i64 count = inner->dims.n;
        for (i64 i = 0; i < count; i++) {
            from[i] = to[i] = inner->dims.at[i];
            for (i64 k = 0; k < first.axis.n; k++)
                if (first.axis.at[k].i == from[i].i)
                    to[i] = first.to.at[k];
            for (i64 k = 0; k < attr.axis.n; k++)
                if (attr.axis.at[k].i == to[i].i) {
                    to[i] = attr.to.at[k];
                    break;
                }
        }
        *out = nz_rename(z, base, (ir_atoms){from, count}, (ir_atoms){to, count});
        return true;
    }
    return false;
}

ir_term nz_slice(nz *z, ir_term x, ir_atom k, i64 start, ir_atoms to, const i64 *steps)
{
    if (!ir_has(nz_at(z, x)->dims, k))
        return x;
    i64 *ints = NEW_N(z->p->a, i64, 1 + to.n);
    ints[0] = start;
    for (i64 i = 0; i < to.n; i++)
        ints[1 + i] = steps[i];
    ir_attr attr = {
        .axis = {arena_copy(z->p->a, &k, sizeof k), 1}, .to = to, .ints = {ints, 1 + to.n}};
    if (to.n == 1 && start == 0 && steps[0] == 1 && ir_extent(z->p, k) == ir_extent(z->p, to.at[0]))
        return nz_rename(z, x, attr.axis, to);
    return nz_make(z, IR_slice, attr, &x, 1);
}

/* A slice that reads one part of a concatenation, or a slice of a slice, reads from within. */
bool nz_rule_slice(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    ir_atom k = attr.axis.at[0];
    i64 low = attr.ints.at[0], high = low;
    for (i64 i = 0; i < attr.to.n; i++) {
        i64 span = attr.ints.at[1 + i] * (ir_extent(z->p, attr.to.at[i]) - 1);
        *(span < 0 ? &low : &high) += span;
        if (ir_has(n->dims, attr.to.at[i]))
            return false; /* a diagonal */
    }
    if (n->op == IR_concat && n->attr.to.at[0].i == k.i) {
        i64 first = 0;
        for (i64 i = 0; i < n->arg_count; i++) {
            ir_atom own = n->attr.axis.at[i];
            i64 last = first + ir_extent(z->p, own) - 1;
            if (low >= first && high <= last) {
                *out = n->args[i];
                if (own.i)
                    *out = nz_slice(z, n->args[i], own, attr.ints.at[0] - first, attr.to,
                                    attr.ints.at + 1);
                return true;
            }
            first = last + 1;
        }
    }
    if (n->op == IR_slice && n->attr.to.n == 1 && n->attr.to.at[0].i == k.i) {
        i64 step = n->attr.ints.at[1], start = n->attr.ints.at[0] + step * attr.ints.at[0];
        i64 *steps = NEW_N(z->p->a, i64, attr.to.n);
        for (i64 i = 0; i < attr.to.n; i++)
            steps[i] = step * attr.ints.at[1 + i];
        ir_atom base = n->attr.axis.at[0];
        if (ir_has(nz_at(z, n->args[0])->dims, k) && k.i != base.i)
            return false; /* the inner one is a diagonal: k moves in both */
        for (i64 i = 0; i < attr.to.n; i++)
            if (ir_has(nz_at(z, n->args[0])->dims, attr.to.at[i]) && attr.to.at[i].i != base.i)
                return false;
        *out = nz_slice(z, n->args[0], base, start, attr.to, steps);
        return true;
    }
    if (n->op == IR_where) { /* reads what a masked write put there, or left */
        ir_term c = n->args[0], a = n->args[1], b = n->args[2], mapped;
        i64 v;
        if (nz_index_map(z, IR_slice, attr, c, &mapped) && nz_integer(z, mapped, &v)) {
            *out = nz_slice(z, v ? a : b, k, attr.ints.at[0], attr.to, attr.ints.at + 1);
            return true;
        }
    }
    return false;
}

/* A gather whose index is known: a few runs of equal steps are slices. */
bool nz_rule_gather_runs(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    enum { MAX_RUNS = 4 };
    i64 start[MAX_RUNS], step[MAX_RUNS], length[MAX_RUNS], runs = 0;
    ir_atom k = attr.axis.at[0];
    ir_atoms j = nz_at(z, x[1])->dims;
    if (n != 2 || j.n != 1 || !nz_has_values(z, x[1]) || ir_has(nz_at(z, x[0])->dims, j.at[0]))
        return false;
    i64 count = ir_extent(z->p, j.at[0]), last = 0;
    if (count > 1 << 22)
        return false;
    /* One run of any step, or a few that count up. */
    i64 stride = nz_value_at(z, x[1], 1) - nz_value_at(z, x[1], 0);
    for (i64 i = 2; i < count && stride; i++)
        if (nz_value_at(z, x[1], i) - nz_value_at(z, x[1], i - 1) != stride)
            stride = 0;
    for (i64 i = 0; i < count; i++) {
        i64 v = nz_value_at(z, x[1], i);
        if (v < 0 || v >= ir_extent(z->p, k))
            return false;
        if (runs && v - last == step[runs - 1]) {
            length[runs - 1]++;
        } else if (runs == MAX_RUNS) {
            return false;
        } else {
            start[runs] = v, step[runs] = stride ? stride : 1, length[runs++] = 1;
        }
        last = v;
    }
    if (runs == 1) {
        *out = nz_slice(z, x[0], k, start[0], j, step);
        return true;
    }
    ir_term parts[MAX_RUNS];
    ir_atom own[MAX_RUNS];
    for (i64 i = 0; i < runs; i++) {
        own[i] = length[i] > 1 ? ir_atom_new(z->p, NULL, length[i]) : (ir_atom){0};
        parts[i] = nz_slice(z, x[0], k, start[i], (ir_atoms){&own[i], length[i] > 1}, &step[i]);
        if (own[i].i && !ir_has(nz_at(z, parts[i])->dims, own[i]))
            return false;
    }
    *out = ir_make(z->p, IR_concat, (ir_attr){.axis = {own, runs}, .to = j}, parts, runs);
    return true;
}

/* A value picked along an axis it is computed along: a masked sum, as cross-entropy writes it. */
bool nz_rule_gather(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    const ir_node *base = nz_at(z, x[0]);
    if (n != 2 || base->op == IR_in || !nz_is_float(z, x[0]) || nz_at(z, x[1])->dtype != DT_i64)
        return false;
    ir_atoms rest = ir_atoms_minus(z->p, nz_at(z, x[0])->dims, attr.axis);
    if (!has_all(rest, nz_at(z, x[1])->dims))
        return false;
    ir_term hit = nz_2(z, IR_eq, x[1], ir_iota(z->p, attr.axis.at[0]));
    ir_term y = nz_where(z, hit, x[0], nz_const(z, nz_at(z, x[0])->dtype, 0));
    *out = nz_make(z, IR_reduce, (ir_attr){.reducer = IR_SUM, .axis = attr.axis}, &y, 1);
    return true;
}

/* Casts that lose nothing come after what only moves elements: the narrow value is read. */
bool nz_rule_moved_cast(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    const ir_node *c = nz_at(z, x[0]);
    if (c->op != IR_cast || !nz_is_exact(nz_at(z, c->args[0])->dtype, c->dtype))
        return false;
    u8 type = c->dtype;
    ir_term *args = arena_copy(z->p->a, x, n * (i64)sizeof *x);
    args[0] = c->args[0];
    *out = nz_cast(z, type, nz_make(z, op, attr, args, n));
    return true;
}
