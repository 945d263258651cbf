/* Construction of kernel IR: affine forms, operations, loops.
 *
 * Operations are appended to the innermost open loop, so the order of creation is the order of the
 * text. Shapes and dtypes of results are derived here;
 * whether operands are legal is kn_verify's question. */
#include "kernel/kernel.h"

/* ---- affine forms --------------------------------------------------------------------------- */

kn_affine kn_const_affine(i64 base)
{
    return (kn_affine){.base = base};
}

kn_affine kn_affine_sum(arena *a, kn_affine x, kn_affine y, i64 coef)
{
    kn_affine_term *at = NEW_N(a, kn_affine_term, x.n + y.n);
    i64 n = 0, i = 0, j = 0;
    while (i < x.n || j < y.n) {
        bool take_x = j >= y.n || (i < x.n && x.at[i].var.i <= y.at[j].var.i);
        bool take_y = i >= x.n || (j < y.n && y.at[j].var.i <= x.at[i].var.i);
        kn_affine_term t = {take_x ? x.at[i].var : y.at[j].var, 0};
        if (take_x)
            t.coef += x.at[i++].coef;
        if (take_y)
            t.coef += coef * y.at[j++].coef;
        if (t.coef != 0)
            at[n++] = t;
    }
    return (kn_affine){x.base + coef * y.base, at, n};
}

kn_affine kn_affine_add(arena *a, kn_affine x, kn_var v, i64 coef)
{
    if (v.i == 0)
        return x;
    kn_affine_term t = {v, 1};
    return kn_affine_sum(a, x, (kn_affine){0, &t, 1}, coef);
}

/* ---- kernels -------------------------------------------------------------------------------- */

kn_maker kn_maker_new(arena *a, const char *origin)
{
    kn_kernel *k = NEW(a, kn_kernel);
    k->name = "k";
    k->origin = origin;
    vec_push(a, &k->defs, NULL);
    return (kn_maker){.a = a, .k = k};
}

i32 kn_add_buffer(kn_maker *m, kn_access access, dtype type, i64 count)
{
    vec_push(m->a, &m->k->buffers, (kn_buffer){(u8)access, (u8)type, count});
    return (i32)(m->k->buffers.n - 1);
}

kn_var kn_add_grid(kn_maker *m, i64 extent)
{
    if (m->k->var_count != (u32)m->k->grid.n)
        eqf_bug(arena_ctx(m->a), "a grid variable after a loop");
    vec_push(m->a, &m->k->grid, extent);
    return (kn_var){++m->k->var_count};
}

i64 kn_parts(const kn_kernel *k)
{
    i64 n = 1;
    for (i64 i = 0; i < k->grid.n; i++)
        n *= k->grid.at[i];
    return n;
}

const kn_ins *kn_def(const kn_kernel *k, kn_value v)
{
    return k->defs.at[v.i];
}

kn_kernel *kn_finish(kn_maker *m)
{
    if (m->depth != 0)
        eqf_bug(arena_ctx(m->a), "a loop is still open");
    kn_prune(m->a, m->k);
    str s = str_new(m->a);
    kn_print(&s, m->k);
    char digest[33];
    digest_hex(s.at, s.n, digest);
    m->k->name = arena_printf(m->a, "k%.16s", digest);
    return m->k;
}

/* ---- operations ----------------------------------------------------------------------------- */

static kn_ins *append(kn_maker *m, kn_op op, const kn_value *args, i64 n)
{
    kn_ins *x = NEW(m->a, kn_ins);
    x->op = (u8)op;
    x->buffer = -1;
    x->args = n > 0 ? arena_copy(m->a, args, n * (i64)sizeof *args) : NULL;
    x->arg_count = n;
    kn_body *body = m->depth > 0 ? &m->open[m->depth - 1]->body : &m->k->body;
    vec_push(m->a, body, x);
    return x;
}

static kn_value result(kn_maker *m, kn_ins *x)
{
    x->out = (kn_value){(u32)m->k->defs.n};
    vec_push(m->a, &m->k->defs, x);
    return x->out;
}

static void set_shape(kn_ins *x, i64 rank, const i64 *shape)
{
    x->rank = (u8)rank;
    for (i64 d = 0; d < rank; d++)
        x->shape[d] = shape[d];
}

static void set_place(kn_ins *x, const kn_place *p)
{
    x->buffer = p->buffer;
    x->at = p->at;
    set_shape(x, p->rank, p->shape);
    for (i64 d = 0; d < p->rank; d++) {
        x->stride[d] = p->stride[d];
        x->live[d] = p->live[d];
    }
}

kn_value kn_load(kn_maker *m, const kn_place *from, f64 other_f, i64 other_i)
{
    kn_ins *x = append(m, KN_load, NULL, 0);
    set_place(x, from);
    x->dtype = m->k->buffers.at[from->buffer].dtype;
    x->f = other_f;
    x->i = other_i;
    return result(m, x);
}

kn_value kn_ref(kn_maker *m, const kn_place *from)
{
    kn_ins *x = append(m, KN_ref, NULL, 0);
    set_place(x, from);
    x->dtype = m->k->buffers.at[from->buffer].dtype;
    return result(m, x);
}

static void set_index(kn_ins *x, const i64 *stride, const i64 *extent, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        x->index_stride[i] = stride[i];
        x->index_extent[i] = extent[i];
    }
}

kn_value kn_gather(kn_maker *m, const kn_place *from, const kn_value *index, const i64 *stride,
                   const i64 *extent, i64 n)
{
    kn_ins *x = append(m, KN_gather, index, n);
    set_place(x, from);
    set_index(x, stride, extent, n);
    x->dtype = m->k->buffers.at[from->buffer].dtype;
    return result(m, x);
}

void kn_store(kn_maker *m, const kn_place *to, kn_value v)
{
    kn_ins *x = append(m, KN_store, &v, 1);
    set_place(x, to);
    x->dtype = m->k->buffers.at[to->buffer].dtype;
}

void kn_put(kn_maker *m, const kn_place *to, ir_reducer r, kn_value v, const kn_value *index,
            const i64 *stride, const i64 *extent, i64 n)
{
    kn_value args[1 + KN_INDICES] = {v};
    for (i64 i = 0; i < n; i++)
        args[1 + i] = index[i];
    kn_ins *x = append(m, KN_put, args, n + 1);
    set_place(x, to);
    set_index(x, stride, extent, n);
    x->dtype = m->k->buffers.at[to->buffer].dtype;
    x->sub = (u8)r;
}

void kn_sort(kn_maker *m, const kn_place *keys, const kn_place *to, const kn_place *work,
             bool descending)
{
    kn_ins *x = append(m, KN_sort, NULL, 0);
    kn_place places[3] = {*keys, *to, *work};
    x->places = arena_copy(m->a, places, (i64)sizeof places);
    x->axis = descending;
}

kn_value kn_const_f(kn_maker *m, dtype t, f64 v, i64 rank, const i64 *shape)
{
    kn_ins *x = append(m, KN_const, NULL, 0);
    set_shape(x, rank, shape);
    x->dtype = (u8)t;
    x->f = v;
    return result(m, x);
}

kn_value kn_const_i(kn_maker *m, dtype t, i64 v, i64 rank, const i64 *shape)
{
    kn_ins *x = append(m, KN_const, NULL, 0);
    set_shape(x, rank, shape);
    x->dtype = (u8)t;
    x->i = v;
    return result(m, x);
}

kn_value kn_iota(kn_maker *m, dtype t, kn_affine start, i64 rank, const i64 *shape, const i64 *stride)
{
    kn_ins *x = append(m, KN_iota, NULL, 0);
    set_shape(x, rank, shape);
    for (i64 d = 0; d < rank; d++)
        x->stride[d] = stride[d];
    x->at = start;
    x->dtype = (u8)t;
    return result(m, x);
}

/* An operation whose result has the shape of operand 0. */
static kn_ins *like(kn_maker *m, kn_op op, const kn_value *args, i64 n)
{
    const kn_ins *x = kn_def(m->k, args[0]);
    kn_ins *y = append(m, op, args, n);
    set_shape(y, x->rank, x->shape);
    y->dtype = x->dtype;
    return y;
}

kn_value kn_cast(kn_maker *m, dtype t, kn_value v)
{
    dtype from = (dtype)kn_def(m->k, v)->dtype;
    if (from == t)
        return v;
    if ((from == DT_f16 || from == DT_bf16) && t != DT_f32)
        v = kn_cast(m, DT_f32, v);
    kn_ins *x = like(m, KN_cast, &v, 1);
    x->dtype = (u8)t;
    return result(m, x);
}

kn_value kn_ew(kn_maker *m, ir_op op, const kn_value *args, i64 n)
{
    kn_ins *x = like(m, KN_ew, args, n);
    x->sub = (u8)op;
    u8 rule = ir_row(op)->rule;
    if (rule == IR_COMPARE || rule == IR_TEST || rule == IR_BOOLEAN)
        x->dtype = DT_bool;
    else if (rule == IR_SELECT)
        x->dtype = kn_def(m->k, args[1])->dtype;
    return result(m, x);
}

kn_value kn_state(kn_maker *m, ir_reducer r, dtype t, i64 rank, const i64 *shape)
{
    kn_ins *x = append(m, KN_state, NULL, 0);
    set_shape(x, rank, shape);
    x->dtype = (u8)t;
    x->sub = (u8)r;
    return result(m, x);
}

kn_value kn_combine(kn_maker *m, ir_reducer r, kn_value state, kn_value next)
{
    kn_ins *x = like(m, KN_combine, (kn_value[]){state, next}, 2);
    x->sub = (u8)r;
    return result(m, x);
}

kn_value kn_reduce(kn_maker *m, ir_reducer r, kn_value v, i64 axis)
{
    kn_ins *x = like(m, KN_reduce, &v, 1);
    for (i64 d = axis; d + 1 < x->rank; d++)
        x->shape[d] = x->shape[d + 1];
    x->shape[--x->rank] = 0;
    x->sub = (u8)r;
    x->axis = axis;
    return result(m, x);
}

kn_value kn_dot_add(kn_maker *m, kn_dot kind, kn_value acc, kn_value a, kn_value b, kn_affine next,
                    i64 ahead)
{
    kn_ins *x = like(m, KN_dot, (kn_value[]){acc, a, b}, 3);
    x->sub = (u8)kind;
    if (ahead > 0) {
        x->buffer = kn_def(m->k, b)->buffer;
        x->at = next;
        x->axis = ahead;
    }
    return result(m, x);
}

void kn_dot_live(kn_maker *m, kn_value dot, i64 which, kn_live live)
{
    m->k->defs.at[dot.i]->live[which] = live;
}

void kn_dot_block(kn_maker *m, kn_value dot, i64 rows, i64 columns)
{
    kn_ins *x = m->k->defs.at[dot.i];
    x->block[0] = rows;
    x->block[1] = columns;
}

kn_value kn_bcast(kn_maker *m, kn_value v, i64 axis, i64 extent)
{
    kn_ins *x = like(m, KN_bcast, &v, 1);
    for (i64 d = x->rank; d > axis; d--)
        x->shape[d] = x->shape[d - 1];
    x->shape[axis] = extent;
    x->rank++;
    x->axis = axis;
    return result(m, x);
}

kn_value kn_trans(kn_maker *m, kn_value v, const u8 *perm)
{
    const kn_ins *from = kn_def(m->k, v);
    kn_ins *x = like(m, KN_trans, &v, 1);
    for (i64 d = 0; d < x->rank; d++) {
        x->perm[d] = perm[d];
        x->shape[d] = from->shape[perm[d]];
    }
    return result(m, x);
}

bool kn_divides(const kn_ins *x)
{
    return x->op == KN_ew && !dtype_is_float(x->dtype) &&
           (x->sub == IR_floordiv || x->sub == IR_truncdiv || x->sub == IR_mod ||
            x->sub == IR_fmod);
}

/* ---- loops ---------------------------------------------------------------------------------- */

void kn_loop(kn_maker *m, kn_affine from, i64 count, i64 step, i64 end, const kn_value *init,
             i64 n, kn_var *var, kn_value *carried)
{
    kn_ins *x = append(m, KN_loop, init, n);
    x->from = from;
    x->count = count;
    x->step = step;
    x->end = end;
    *var = x->var = (kn_var){++m->k->var_count};
    if (m->depth == COUNT_OF(m->open))
        eqf_bug(arena_ctx(m->a), "loops nested too deep");
    m->open[m->depth++] = x;
    kn_value *values = NEW_N(m->a, kn_value, n);
    for (i64 i = 0; i < n; i++) {
        kn_ins *c = append(m, KN_carry, NULL, 0);
        const kn_ins *d = kn_def(m->k, init[i]);
        set_shape(c, d->rank, d->shape);
        c->dtype = d->dtype;
        c->axis = i;
        c->var = x->var;
        carried[i] = values[i] = result(m, c);
    }
    x->carried = values;
}

void kn_loop_meets(kn_maker *m, const kn_span *spans, i64 n)
{
    kn_ins *loop = m->open[m->depth - 1];
    loop->spans = arena_copy(m->a, spans, n * (i64)sizeof *spans);
    loop->span_count = n;
}

void kn_end(kn_maker *m, const kn_value *yield, kn_value *results)
{
    kn_ins *loop = m->open[--m->depth];
    i64 n = loop->arg_count;
    loop->yield = n > 0 ? arena_copy(m->a, yield, n * (i64)sizeof *yield) : NULL;
    for (i64 i = 0; i < n; i++) {
        kn_ins *g = append(m, KN_get, NULL, 0);
        const kn_ins *d = kn_def(m->k, loop->args[i]);
        set_shape(g, d->rank, d->shape);
        g->dtype = d->dtype;
        g->axis = i;
        g->var = loop->var;
        results[i] = result(m, g);
    }
}
