/* normalize: the rules of operators that work along atoms: sums, products, renames, slices,
 * gathers. */
#include <math.h>

#include "frontend/normalize.h"
#include "ir/scalar.h"

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
    if (x[0].i == x[1].i && nz_is_wide(z, x[0])) {
        ir_term y = nz_1(z, IR_square, x[0]);
        *out = nz_make(z, IR_reduce, (ir_attr){.reducer = IR_SUM, .axis = attr.axis}, &y, 1);
        return true;
    }
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
    if (n->op == IR_expand) { /* the repeated atoms are called anew, then what is repeated */
        ir_atom *repeated =
            arena_copy(z->p->a, n->attr.to.at, n->attr.to.n * (i64)sizeof *repeated);
        for (i64 i = 0; i < n->attr.to.n; i++)
            for (i64 k = 0; k < attr.axis.n; k++)
                if (attr.axis.at[k].i == n->attr.to.at[i].i)
                    repeated[i] = attr.to.at[k];
        ir_atoms all = ir_atoms_set(z->p, repeated, n->attr.to.n);
        y = nz_rename(z, n->args[0], attr.axis, attr.to);
        *out = ir_make(z->p, IR_expand, (ir_attr){.to = all}, &y, 1);
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

/* A slice low … high of a product of atoms that stays where the slower ones do not move reads the
 * faster ones alone. */
static bool slice_of_product(nz *z, ir_attr attr, ir_term x, i64 low, i64 high, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    ir_atoms rest = n->attr.axis;
    ir_term y = n->args[0];
    ir_atom k = n->attr.to.at[0];
    i64 extent = ir_extent(z->p, k), start = attr.ints.at[0], cut = 0;
    for (; rest.n > 1; cut++) {
        i64 inner = extent / ir_extent(z->p, rest.at[0]), at = low / inner;
        if (at != high / inner)
            break;
        y = nz_slice(z, y, rest.at[0], at, (ir_atoms){0}, NULL);
        low -= at * inner, high -= at * inner, start -= at * inner;
        extent = inner;
        rest = (ir_atoms){rest.at + 1, rest.n - 1};
    }
    if (cut == 0)
        return false;
    if (rest.n == 1) {
        k = rest.at[0];
    } else {
        k = ir_atom_new(z->p, NULL, extent);
        y = nz_make(z, IR_reshape, (ir_attr){.axis = rest, .to = {&k, 1}}, &y, 1);
    }
    *out = nz_slice(z, y, k, start, attr.to, attr.ints.at + 1);
    return true;
}

/* A slice that reads one part of a concatenation, or a slice of a slice, reads from within. */
bool nz_rule_slice(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    ir_atom k = attr.axis.at[0];
    if (n->op == IR_where) { /* reads what a masked write put there, or left */
        ir_term c = n->args[0], a = n->args[1], b = n->args[2], mapped;
        i64 v;
        if (nz_index_map(z, IR_slice, attr, c, &mapped) && nz_integer(z, mapped, &v)) {
            *out = nz_slice(z, v ? a : b, k, attr.ints.at[0], attr.to, attr.ints.at + 1);
            return true;
        }
    }
    n = nz_at(z, x);
    i64 low = attr.ints.at[0], high = low;
    for (i64 i = 0; i < attr.to.n; i++) {
        i64 span = attr.ints.at[1 + i] * (ir_extent(z->p, attr.to.at[i]) - 1);
        *(span < 0 ? &low : &high) += span;
        if (ir_has(n->dims, attr.to.at[i]))
            return false; /* a diagonal */
    }
    if (n->op == IR_expand) {
        ir_atoms rest = ir_atoms_minus(z->p, n->attr.to, (ir_atoms){&k, 1});
        ir_term y = nz_slice(z, n->args[0], k, attr.ints.at[0], attr.to, attr.ints.at + 1);
        *out = rest.n > 0 ? ir_make(z->p, IR_expand, (ir_attr){.to = rest}, &y, 1) : y;
        return true;
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
    if (n->op == IR_reshape &&
        !ir_has(n->attr.to, k)) { /* cuts that have nothing to do with k come last */
        ir_attr cut = n->attr;
        for (i64 i = 0; i < attr.to.n; i++)
            if (ir_has(cut.axis, attr.to.at[i]))
                return false;
        ir_term y = nz_slice(z, n->args[0], k, attr.ints.at[0], attr.to, attr.ints.at + 1);
        *out = nz_make(z, IR_reshape, cut, &y, 1);
        return true;
    }
    if (n->op == IR_reshape && n->attr.to.n == 1)
        return slice_of_product(z, attr, x, low, high, out);
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
    return false;
}

static bool is_same_list(ir_atoms a, ir_atoms b)
{
    bool is_same = a.n == b.n;
    for (i64 i = 0; i < a.n && is_same; i++)
        is_same = a.at[i].i == b.at[i].i;
    return is_same;
}

/* What is cut and put together again needs no cut in between. */
bool nz_rule_reshape(nz *z, ir_attr attr, ir_term x, ir_term *out)
{
    const ir_node *n = nz_at(z, x);
    if (n->op != IR_reshape || !is_same_list(n->attr.to, attr.axis))
        return false;
    ir_atoms from = n->attr.axis;
    ir_term y = n->args[0];
    bool is_equal = from.n == attr.to.n;
    for (i64 i = 0; i < from.n && is_equal; i++)
        is_equal = ir_extent(z->p, from.at[i]) == ir_extent(z->p, attr.to.at[i]);
    *out = is_equal ? nz_rename(z, y, from, attr.to)
                    : nz_make(z, IR_reshape, (ir_attr){.axis = from, .to = attr.to}, &y, 1);
    return true;
}

/* Parts that are all cut in the same way, elsewhere than where they are joined: cut once. */
bool nz_rule_concat(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    const ir_node *first = nz_at(z, x[0]);
    ir_attr cut = first->attr;
    if (first->op != IR_reshape || ir_has(cut.axis, attr.to.at[0]))
        return false;
    ir_term *args = NEW_N(z->p->a, ir_term, n);
    for (i64 i = 0; i < n; i++) {
        const ir_node *part = nz_at(z, x[i]);
        if (part->op != IR_reshape || !is_same_list(part->attr.axis, cut.axis) ||
            !is_same_list(part->attr.to, cut.to) || ir_has(cut.to, attr.axis.at[i]))
            return false;
        args[i] = part->args[0];
    }
    ir_term y = nz_make(z, IR_concat, attr, args, n);
    *out = nz_make(z, IR_reshape, cut, &y, 1);
    return true;
}

/* The dims of a known index in the order in which it counts, the slowest first. */
static void index_order(nz *z, ir_term index, i64 extent, i64 *order)
{
    ir_atoms j = nz_at(z, index)->dims;
    i64 at[NZ_MAX_ATOMS] = {0}, step[NZ_MAX_ATOMS], origin = nz_value_at(z, index, at);
    for (i64 i = 0; i < j.n; i++) {
        at[i] = 1;
        step[i] = eqf_imod(nz_value_at(z, index, at) - origin, extent);
        at[i] = 0;
        i64 k = i;
        for (; k > 0 && step[order[k - 1]] < step[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

/* A gather whose index is known: a few runs of equal steps are slices. An index of several dims
 * counts along one, which is then cut into them. */
bool nz_rule_gather_runs(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    enum { MAX_RUNS = 4 };
    i64 start[MAX_RUNS], step[MAX_RUNS], length[MAX_RUNS], runs = 0;
    ir_atom k = attr.axis.at[0], dims[NZ_MAX_ATOMS];
    ir_atoms j = nz_at(z, x[1])->dims;
    if (n != 2 || j.n < 1 || !nz_has_values(z, x[1]))
        return false;
    i64 count = 1, last = 0, order[NZ_MAX_ATOMS], at[NZ_MAX_ATOMS] = {0};
    for (i64 i = 0; i < j.n; i++)
        if (ir_has(nz_at(z, x[0])->dims, j.at[i]) ||
            !mul_i64(count, ir_extent(z->p, j.at[i]), &count))
            return false;
    if (count > 1 << 22)
        return false;
    index_order(z, x[1], ir_extent(z->p, k), order);
    i64 *values = NEW_N(z->p->a, i64, count);
    for (i64 i = 0; i < count; i++) {
        values[i] = nz_value_at(z, x[1], at);
        if (values[i] < 0 || values[i] >= ir_extent(z->p, k))
            return false;
        i64 d = j.n - 1;
        while (d >= 0 && ++at[order[d]] == ir_extent(z->p, j.at[order[d]]))
            at[order[d--]] = 0;
    }
    /* One run of any step, or a few that count up. */
    i64 stride = values[1] - values[0];
    for (i64 i = 2; i < count && stride; i++)
        if (values[i] - values[i - 1] != stride)
            stride = 0;
    for (i64 i = 0; i < count; i++) {
        if (runs && values[i] - last == step[runs - 1]) {
            length[runs - 1]++;
        } else if (runs == MAX_RUNS) {
            return false;
        } else {
            start[runs] = values[i], step[runs] = stride ? stride : 1, length[runs++] = 1;
        }
        last = values[i];
    }
    ir_atom along = j.n == 1 ? j.at[0] : ir_atom_new(z->p, NULL, count);
    for (i64 i = 0; i < j.n; i++)
        dims[i] = j.at[order[i]];
    if (runs == 1) {
        *out = nz_slice(z, x[0], k, start[0], (ir_atoms){&along, 1}, step);
    } else {
        ir_term parts[MAX_RUNS];
        ir_atom own[MAX_RUNS];
        for (i64 i = 0; i < runs; i++) {
            own[i] = length[i] > 1 ? ir_atom_new(z->p, NULL, length[i]) : (ir_atom){0};
            parts[i] = nz_slice(z, x[0], k, start[i], (ir_atoms){&own[i], length[i] > 1}, &step[i]);
            if (own[i].i && !ir_has(nz_at(z, parts[i])->dims, own[i]))
                return false;
        }
        *out = ir_make(z->p, IR_concat, (ir_attr){.axis = {own, runs}, .to = {&along, 1}}, parts,
                       runs);
    }
    if (j.n > 1)
        *out = nz_make(z, IR_reshape, (ir_attr){.axis = {&along, 1}, .to = {dims, j.n}}, out, 1);
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

/* A number stands outside of what moves every element. */
bool nz_rule_moved_scale(nz *z, ir_op op, ir_attr attr, const ir_term *x, ir_term *out)
{
    ir_term y;
    f64 c;
    if (!nz_split_scale(z, x[0], &y, &c))
        return false;
    *out = nz_scaled(z, nz_make(z, op, attr, &y, 1), c);
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

/* An operand need not be repeated along atoms that another one brings. */
bool nz_rule_repeated(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    if (op != IR_concat && (ir_row(op)->class_ != IR_EWISE || n < 2))
        return false;
    ir_term *args = arena_copy(z->p->a, x, n * (i64)sizeof *x);
    bool is_changed = false;
    for (i64 i = 0; i < n; i++) {
        const ir_node *e = nz_at(z, x[i]);
        if (e->op != IR_expand)
            continue;
        ir_term y = e->args[0];
        ir_atoms kept = e->attr.to;
        for (i64 k = 0; k < n; k++) {
            ir_atoms other = nz_at(z, args[k])->dims;
            if (op == IR_concat) /* its own atom is another one in the result */
                other = ir_atoms_minus(z->p, other, (ir_atoms){&attr.axis.at[k], 1});
            if (k != i)
                kept = ir_atoms_minus(z->p, kept, other);
        }
        if (op == IR_concat && ir_has(e->attr.to, attr.axis.at[i]))
            kept = ir_atoms_union(z->p, kept, (ir_atoms){&attr.axis.at[i], 1});
        if (kept.n == e->attr.to.n)
            continue;
        args[i] = kept.n > 0 ? ir_make(z->p, IR_expand, (ir_attr){.to = kept}, &y, 1) : y;
        is_changed = true;
    }
    if (is_changed)
        *out = nz_make(z, op, attr, args, n);
    return is_changed;
}

/* An operand may have become simpler than the operator allows: constant along an atom that it
 * names. A slice or reshape of what does not move is that; elsewhere the operand is repeated. */
bool nz_rule_still(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out)
{
    if (op != IR_slice && op != IR_reshape && op != IR_concat && op != IR_gather &&
        op != IR_scatter && op != IR_scan && op != IR_argsort)
        return false;
    ir_term *args = arena_copy(z->p->a, x, n * (i64)sizeof *x);
    bool is_still = false;
    for (i64 i = 0; i < (op == IR_concat ? n : 1); i++) {
        ir_atoms named =
            op == IR_concat ? (ir_atoms){&attr.axis.at[i], attr.axis.at[i].i != 0} : attr.axis;
        ir_atoms missing =
            ir_atoms_minus(z->p, ir_atoms_set(z->p, named.at, named.n), nz_at(z, x[i])->dims);
        if (missing.n == 0)
            continue;
        is_still = true;
        if (missing.n == named.n && (op == IR_slice || op == IR_reshape)) {
            *out = x[0];
            return true;
        }
        args[i] = ir_make(z->p, IR_expand, (ir_attr){.to = missing}, &x[i], 1);
    }
    if (is_still)
        *out = nz_make(z, op, attr, args, n);
    return is_still;
}
