/* Operators that move elements: index maps, gather, scatter, argsort. */
#include "ir/eval.h"
#include "ir/scalar.h"

/* ---- index maps ----------------------------------------------------------------------------- */

/* Position of d in `list`, -1 when it is not there. */
static i64 position(ir_atoms list, ir_atom d)
{
    for (i64 i = 0; i < list.n; i++)
        if (list.at[i].i == d.i)
            return i;
    return -1;
}

/* rename, slice, expand: the stride in x of each atom of the result. */
static void map_strides(eval *e, u32 k, value *out, const value *x)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    nest t = {.operands = 2};
    i64 base = 0;
    if (node->op == IR_slice)
        base = node->attr.ints.at[0] * eval_stride(e, x, axis.at[0]);
    for (i64 i = 0; i < out->dims.n; i++) {
        ir_atom d = out->dims.at[i];
        i64 j = position(to, d), step = position(axis, d) < 0 ? eval_stride(e, x, d) : 0;
        if (j >= 0 && node->op == IR_rename)
            step = eval_stride(e, x, axis.at[j]);
        else if (j >= 0 && node->op == IR_slice)
            step += node->attr.ints.at[j + 1] * eval_stride(e, x, axis.at[0]);
        nest_add(&t, eval_extent(e, d), (i64[]){eval_stride(e, out, d), step});
    }
    nest_copy(e, &t, out->p, x->i + base);
}

static void concat(eval *e, u32 k, value *out)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atom whole = node->attr.to.at[0];
    i64 start = 0, stride = eval_stride(e, out, whole);
    for (i64 i = 0; i < node->arg_count; i++) {
        const value *x = &e->values[node->args[i].i];
        ir_atom part = node->attr.axis.at[i];
        nest t = {.operands = 2};
        for (i64 j = 0; j < out->dims.n; j++) {
            ir_atom d = out->dims.at[j];
            if (d.i == whole.i) /* a part of it is the operand's own atom */
                nest_add(&t, eval_extent(e, part), (i64[]){stride, eval_stride(e, x, part)});
            else
                nest_add(&t, eval_extent(e, d),
                         (i64[]){eval_stride(e, out, d), d.i == part.i ? 0 : eval_stride(e, x, d)});
        }
        nest_copy(e, &t, out->i + start * stride, x->p);
        start += eval_extent(e, part);
    }
}

static void reshape(eval *e, u32 k, value *out, const value *x)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atom *at = NEW_N(e->scratch, ir_atom, x->dims.n);
    ir_atoms rest = {at, 0};
    for (i64 i = 0; i < x->dims.n; i++)
        if (!ir_has(node->attr.axis, x->dims.at[i]))
            at[rest.n++] = x->dims.at[i];
    const i64 *from = eval_offsets(e, x, node->attr.axis),
              *to = eval_offsets(e, out, node->attr.to);
    const i64 *rest_from = eval_offsets(e, x, rest), *rest_to = eval_offsets(e, out, rest);
    i64 n = eval_count(e, node->attr.axis), outer = eval_count(e, rest);
    for (i64 i = 0; i < outer; i++)
        for (i64 j = 0; j < n; j++)
            out->i[rest_to[i] + to[j]] = x->i[rest_from[i] + from[j]];
}

void eval_index(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *x = &e->values[node->args[0].i];
    value *out = eval_new(e, k);
    if (node->op == IR_concat)
        concat(e, k, out);
    else if (node->op == IR_reshape)
        reshape(e, k, out, x);
    else
        map_strides(e, k, out, x);
}

/* Dead lanes of floats are NaN, so that nobody can use them unnoticed; those of integers repeat the
 * last position, which keeps divisors and indices legal. */
void eval_splitdim(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *x = &e->values[node->args[0].i];
    value *out = eval_new(e, k);
    ir_atom *at = NEW_N(e->scratch, ir_atom, x->dims.n);
    ir_atoms rest = {at, 0};
    for (i64 i = 0; i < x->dims.n; i++)
        if (!ir_has(node->attr.axis, x->dims.at[i]))
            at[rest.n++] = x->dims.at[i];
    const i64 *from = eval_offsets(e, x, node->attr.axis),
              *to = eval_offsets(e, out, node->attr.to);
    const i64 *rest_from = eval_offsets(e, x, rest), *rest_to = eval_offsets(e, out, rest);
    i64 live = eval_count(e, node->attr.axis), lanes = eval_count(e, node->attr.to);
    i64 outer = eval_count(e, rest);
    for (i64 i = 0; i < outer; i++)
        for (i64 j = 0; j < lanes; j++)
            if (j >= live && out->is_float)
                out->f[rest_to[i] + to[j]] = (f64)NAN;
            else
                out->i[rest_to[i] + to[j]] = x->i[rest_from[i] + from[MIN(j, live - 1)]];
}

/* ---- gather and scatter --------------------------------------------------------------------- */

static void check_index(const eval *e, u32 k, const value *index, ir_atom d)
{
    i64 extent = eval_extent(e, d);
    for (i64 i = 0; i < index->count; i++)
        if (index->i[i] < 0 || index->i[i] >= extent)
            eval_throw(e, k, EQF_E_DATA, "index %lld along %s is outside of [0, %lld)",
                       (long long)index->i[i], ir_atom_name(e->p, d), (long long)extent);
}

typedef struct addressing {
    const nest *t;
    i64 *address;     /* operand 0 */
    const i64 *index; /* operand 1 */
    i64 scale;
} addressing;

static void address_row(void *user, i64 n, const i64 *offset)
{
    const addressing *w = user;
    i64 *address = w->address + offset[0];
    const i64 *index = w->index ? w->index + offset[1] : NULL;
    i64 step = nest_step(w->t, 1);
    for (i64 j = 0; j < n; j++)
        address[j] += w->scale * (index ? index[j * step] : offset[1] + j * step);
}

/* Where each coordinate of `loops` points into `x`: its own atoms among them, and along
 * attr.axis[i] the value of operand 1 + i. */
static i64 *addresses(eval *e, u32 k, const value *x, ir_atoms loops)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_atoms axis = node->attr.axis;
    value over = {.dims = loops, .count = eval_count(e, loops)};
    addressing w = {.address = NEW_N(e->scratch, i64, over.count), .scale = 1};
    nest t = {.operands = 2};
    for (i64 i = 0; i < loops.n; i++) {
        ir_atom d = loops.at[i];
        nest_add(&t, eval_extent(e, d),
                 (i64[]){eval_stride(e, &over, d), ir_has(axis, d) ? 0 : eval_stride(e, x, d)});
    }
    w.t = &t;
    nest_run(e, &t, 1, address_row, &w);
    for (i64 i = 0; i < axis.n; i++) {
        const value *index = &e->values[node->args[1 + i].i];
        check_index(e, k, index, axis.at[i]);
        t = nest_over(e, loops, (const value *[]){&over, index}, 2);
        w.index = index->i;
        w.scale = eval_stride(e, x, axis.at[i]);
        nest_run(e, &t, 1, address_row, &w);
    }
    return w.address;
}

void eval_gather(eval *e, u32 k)
{
    const value *x = &e->values[e->p->nodes.at[k].args[0].i];
    value *out = eval_new(e, k);
    const i64 *address = addresses(e, k, x, out->dims);
    for (i64 i = 0; i < out->count; i++)
        out->i[i] = x->i[address[i]];
}

void eval_scatter(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *base = &e->values[node->args[0].i];
    const value *v = &e->values[node->args[node->arg_count - 1].i];
    value *out = eval_new(e, k);
    memcpy(out->p, base->p, (size_t)base->count * sizeof(i64));

    /* The loops: atoms of the indices, of the value, and those of the base that are not indexed. */
    VEC(ir_atom) at = {0};
    for (u32 d = 1; d < (u32)e->p->atoms.n; d++) {
        ir_atom atom = {d};
        bool is_loop = ir_has(base->dims, atom) && !ir_has(node->attr.axis, atom);
        for (i64 i = 1; i < node->arg_count; i++)
            is_loop = is_loop || ir_has(e->values[node->args[i].i].dims, atom);
        if (is_loop)
            vec_push(e->scratch, &at, atom);
    }
    ir_atoms loops = {at.at, at.n};
    value over = {.dims = loops, .count = eval_count(e, loops)};
    const i64 *address = addresses(e, k, base, loops);
    i64 *values = NEW_N(e->scratch, i64, over.count); /* bits of either element type */
    nest t = nest_over(e, loops, (const value *[]){&over, v}, 2);
    nest_copy(e, &t, values, v->p);

    ir_reducer r = node->attr.reducer;
    for (i64 i = 0; i < over.count; i++) {
        if (r == IR_NO_REDUCER) {
            out->i[address[i]] = values[i];
        } else if (out->is_float) {
            f64 x;
            memcpy(&x, &values[i], sizeof x);
            eval_fold_f64(r)(1, out->f + address[i], 1, 1, &x, 0, 0);
        } else {
            eval_fold_i64(r)(1, out->i + address[i], 1, 1, &values[i], 0, 0);
        }
    }
    eval_settle(e, out, 0, out->count);
}

/* ---- argsort -------------------------------------------------------------------------------- */

typedef struct keys {
    const value *x;
    const i64 *offset; /* along the axis */
    i64 base;
    bool descending;
} keys;

/* Does position a come strictly before b? NaN is the largest. */
static bool before(const keys *s, i64 a, i64 b)
{
    if (s->descending) {
        i64 swap = a;
        a = b;
        b = swap;
    }
    if (!s->x->is_float)
        return s->x->i[s->base + s->offset[a]] < s->x->i[s->base + s->offset[b]];
    f64 p = s->x->f[s->base + s->offset[a]], q = s->x->f[s->base + s->offset[b]];
    return p < q || (isnan(q) && !isnan(p));
}

/* Stable merge sort, bottom up; `other` is as long as `order`. */
static i64 *merge_sort(const keys *s, i64 *order, i64 *other, i64 n)
{
    for (i64 width = 1; width < n; width *= 2) {
        for (i64 low = 0; low < n; low += 2 * width) {
            i64 middle = MIN(low + width, n), high = MIN(low + 2 * width, n);
            i64 i = low, j = middle;
            for (i64 o = low; o < high; o++) {
                bool right = i == middle || (j < high && before(s, order[j], order[i]));
                other[o] = right ? order[j++] : order[i++];
            }
        }
        i64 *swap = order;
        order = other;
        other = swap;
    }
    return order;
}

void eval_argsort(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    const value *x = &e->values[node->args[0].i];
    value *out = eval_new(e, k);
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    ir_atom *at = NEW_N(e->scratch, ir_atom, x->dims.n);
    ir_atoms rest = {at, 0};
    for (i64 i = 0; i < x->dims.n; i++)
        if (x->dims.at[i].i != axis.at[0].i)
            at[rest.n++] = x->dims.at[i];
    const i64 *from = eval_offsets(e, x, rest), *dest = eval_offsets(e, out, rest);
    i64 n = eval_extent(e, axis.at[0]), outer = eval_count(e, rest);
    i64 kept = to.n ? eval_extent(e, to.at[0]) : 1;
    i64 stride = to.n ? eval_stride(e, out, to.at[0]) : 0;
    i64 *order = NEW_N(e->scratch, i64, n), *other = NEW_N(e->scratch, i64, n);
    keys s = {x, eval_offsets(e, x, axis), 0, node->attr.ints.at[0] != 0};
    for (i64 i = 0; i < outer; i++) {
        s.base = from[i];
        for (i64 j = 0; j < n; j++)
            order[j] = j;
        const i64 *sorted = merge_sort(&s, order, other, n);
        for (i64 j = 0; j < kept; j++)
            out->i[dest[i] + j * stride] = sorted[j];
        eval_poll(e);
    }
}
