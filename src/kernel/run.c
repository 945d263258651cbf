/* The interpreter of kernel IR: runs the very program that is printed.
 *
 * Floats are kept as f64 and rounded to f32 after every f32 operation (for +, -, *, / and sqrt that
 * is the f32 result); half values only come from loads and casts. It is the check between lowering
 * and compiled code, so it also notices what compiled code would not: private elements read before
 * they are stored, elements of an output stored twice. */
#include "ir/scalar.h"
#include "kernel/kernel.h"

typedef struct lanes {
    f64 *f; /* floats */
    i64 *i; /* integers and bools */
    i64 n;
} lanes;

typedef struct machine {
    eqf_ctx *ctx;
    arena *a;
    const kn_kernel *k;
    void **buffers; /* by kernel buffer; private ones are the machine's */
    u8 **written;   /* by kernel buffer, where stores are watched; else NULL */
    lanes *values;
    i64 *vars;
    bool bad;
} machine;

#define NONE 0 /* the verifier keeps such operands away */
#define ON_LEAF(name, rule, e)
#define ON_REDUCE ON_LEAF
#define ON_MATMUL ON_LEAF
#define ON_INDEX ON_LEAF
#define ON_GATHER ON_LEAF
#define ON_PLAIN ON_LEAF
#define ON_OPAQUE ON_LEAF
#define CASE(name, R, T, e)                                                                        \
    case IR_##name: {                                                                              \
        T a = (T)x;                                                                                \
        (void)a;                                                                                   \
        return (R)(e);                                                                             \
    }

static f64 float_op(ir_op op, f64 x, f64 b, f64 c)
{
#define ON_EWISE(name, rule, e) CASE(name, f64, T_##rule, e)
#define T_SAME f64
#define T_FLOAT f64
#define T_INTEGER f64
#define T_LOGIC f64
#define T_COMPARE f64
#define T_BOOLEAN i64
#define T_TEST f64
#define T_SELECT i64
#define T_OWN f64
    switch (op) {
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) ON_##class_(name, rule, fexpr)
#include "ir/ops.def"
#undef OP
#undef ON_EWISE
    default:
        return 0;
    }
}

static i64 int_op(ir_op op, i64 x, i64 b, i64 c)
{
#define ON_EWISE(name, rule, e) CASE(name, i64, i64, e)
    switch (op) {
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) ON_##class_(name, rule, iexpr)
#include "ir/ops.def"
#undef OP
    default:
        return 0;
    }
}

static f64 float_step(ir_reducer r, f64 a, f64 b)
{
    switch (r) {
#define REDUCER(name, text, f, i, idf, idi, doc)                                                   \
    case IR_##name:                                                                                \
        return f;
#include "ir/reducers.def"
#undef REDUCER
    default:
        return b;
    }
}

static i64 int_step(ir_reducer r, i64 a, i64 b)
{
    switch (r) {
#define REDUCER(name, text, f, i, idf, idi, doc)                                                   \
    case IR_##name:                                                                                \
        return i;
#include "ir/reducers.def"
#undef REDUCER
    default:
        return b;
    }
}
#undef NONE

static f64 settle_f(u8 t, f64 x)
{
    return eqf_round_float((dtype)t, x);
}

static i64 settle_i(u8 t, i64 x)
{
    return eqf_wrap((dtype)t, x);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static void get(const machine *m, i32 b, i64 e, f64 *f, i64 *i)
{
    const kn_buffer *x = &m->k->buffers.at[b];
    const void *p = m->buffers[b];
    if (x->access == KN_LOCAL && !m->written[b][e])
        eqf_bug(m->ctx, "kernel %s: private element %lld is read before it is stored", m->k->name,
                (long long)e);
    switch (x->dtype) {
    case DT_bool: *i = ((const u8 *)p)[e] != 0; break;
    case DT_i8: *i = ((const i8 *)p)[e]; break;
    case DT_i32: *i = ((const i32 *)p)[e]; break;
    case DT_i64: *i = ((const i64 *)p)[e]; break;
    case DT_f16: *f = (f64)f32_of_f16(((const u16 *)p)[e]); break;
    case DT_bf16: *f = (f64)f32_of_bf16(((const u16 *)p)[e]); break;
    case DT_f32: *f = (f64)((const f32 *)p)[e]; break;
    default: *f = ((const f64 *)p)[e]; break;
    }
}

static void set(const machine *m, i32 b, i64 e, f64 f, i64 i)
{
    const kn_buffer *x = &m->k->buffers.at[b];
    void *p = m->buffers[b];
    if (m->written[b]) {
        if (m->written[b][e] && x->access != KN_LOCAL)
            eqf_bug(m->ctx, "kernel %s: element %lld is stored twice", m->k->name, (long long)e);
        m->written[b][e] = 1;
    }
    switch (x->dtype) {
    case DT_bool: ((u8 *)p)[e] = (u8)(i != 0); break;
    case DT_i8: ((i8 *)p)[e] = (i8)i; break;
    case DT_i32: ((i32 *)p)[e] = (i32)i; break;
    case DT_i64: ((i64 *)p)[e] = i; break;
    case DT_f16: ((u16 *)p)[e] = f16_of_f64(f); break;
    case DT_bf16: ((u16 *)p)[e] = bf16_of_f64(f); break;
    case DT_f32: ((f32 *)p)[e] = (f32)f; break;
    default: ((f64 *)p)[e] = f; break;
    }
}

static i64 value_of(const machine *m, kn_affine x)
{
    i64 v = x.base;
    for (i64 i = 0; i < x.n; i++)
        v += x.at[i].coef * m->vars[x.at[i].var.i];
    return v;
}

/* Visits the lanes of a memory operation in row-major order. */
typedef struct visit {
    i64 lane, at;
    i64 index[KN_RANK];
    i64 live[KN_RANK];
    bool is_live;
} visit;

static visit visit_start(const machine *m, const kn_ins *x)
{
    visit v = {.lane = -1};
    for (i64 d = 0; d < x->rank; d++)
        v.live[d] = x->live[d].end ? x->live[d].end - value_of(m, x->live[d].start) : x->shape[d];
    return v;
}

static bool visit_next(const machine *m, const kn_ins *x, visit *v)
{
    if (v->lane >= 0) {
        i64 d = x->rank - 1;
        for (; d >= 0; d--) {
            if (++v->index[d] < x->shape[d])
                break;
            v->index[d] = 0;
        }
        if (d < 0)
            return false;
    }
    v->lane++;
    v->at = value_of(m, x->at);
    v->is_live = true;
    for (i64 d = 0; d < x->rank; d++) {
        v->at += x->stride[d] * v->index[d];
        v->is_live &= v->index[d] < v->live[d];
    }
    return true;
}

/* Adds the index operands' part of an address; false when one is out of range. */
static bool add_indices(const machine *m, const kn_ins *x, i64 first, visit *v)
{
    for (i64 j = first; j < x->arg_count; j++) {
        i64 q = m->values[x->args[j].i].i[v->lane];
        if (q < 0 || q >= x->index_extent[j - first])
            return false;
        v->at += q * x->index_stride[j - first];
    }
    return true;
}

static void run_load(machine *m, const kn_ins *x, lanes *out)
{
    visit v = visit_start(m, x);
    while (visit_next(m, x, &v)) {
        f64 f = x->f;
        i64 i = x->i;
        if (v.is_live) {
            if (x->op == KN_gather && !add_indices(m, x, 0, &v))
                m->bad = true;
            else
                get(m, x->buffer, v.at, &f, &i);
        }
        if (out->f)
            out->f[v.lane] = f;
        else
            out->i[v.lane] = i;
    }
}

static void run_store(machine *m, const kn_ins *x)
{
    const lanes *in = &m->values[x->args[0].i];
    visit v = visit_start(m, x);
    while (visit_next(m, x, &v)) {
        if (!v.is_live)
            continue;
        f64 f = in->f ? in->f[v.lane] : 0, old_f = 0;
        i64 i = in->i ? in->i[v.lane] : 0, old_i = 0;
        if (x->op == KN_put) {
            if (!add_indices(m, x, 1, &v)) {
                m->bad = true;
                continue;
            }
            if (x->sub != IR_NO_REDUCER) {
                get(m, x->buffer, v.at, &old_f, &old_i);
                f = settle_f(x->dtype, float_step(x->sub, old_f, f));
                i = settle_i(x->dtype, int_step(x->sub, old_i, i));
            }
        }
        set(m, x->buffer, v.at, f, i);
    }
}

/* ---- values ------------------------------------------------------------------------------------- */

static void run_ew(machine *m, const kn_ins *x, lanes *out)
{
    const lanes *a = &m->values[x->args[0].i];
    const lanes *b = &m->values[x->args[x->arg_count > 1 ? 1 : 0].i];
    const lanes *c = &m->values[x->args[x->arg_count > 2 ? 2 : 0].i];
    bool divides = kn_divides(x);
    for (i64 l = 0; l < out->n; l++) {
        if (x->sub == IR_where) {
            if (out->f)
                out->f[l] = a->i[l] ? b->f[l] : c->f[l];
            else
                out->i[l] = a->i[l] ? b->i[l] : c->i[l];
        } else if (a->f) {
            f64 r = float_op((ir_op)x->sub, a->f[l], b->f[l], 0);
            if (out->f)
                out->f[l] = settle_f(x->dtype, r);
            else
                out->i[l] = r != 0;
        } else {
            if (divides && b->i[l] == 0)
                m->bad = true;
            out->i[l] = settle_i(x->dtype, int_op((ir_op)x->sub, a->i[l], b->i[l], 0));
        }
    }
}

static void run_cast(const machine *m, const kn_ins *x, lanes *out)
{
    const lanes *in = &m->values[x->args[0].i];
    for (i64 l = 0; l < out->n; l++) {
        if (out->f)
            out->f[l] = in->f           ? settle_f(x->dtype, in->f[l])
                        : x->dtype == DT_f64 ? (f64)in->i[l]
                                             : settle_f(x->dtype, (f64)(f32)in->i[l]);
        else
            out->i[l] = in->f ? eqf_int_of_f64((dtype)x->dtype, in->f[l])
                              : settle_i(x->dtype, in->i[l]);
    }
}

static void run_combine(const machine *m, const kn_ins *x, lanes *out)
{
    const lanes *a = &m->values[x->args[0].i], *b = &m->values[x->args[1].i];
    for (i64 l = 0; l < out->n; l++) {
        if (out->f)
            out->f[l] = settle_f(x->dtype, float_step(x->sub, a->f[l], b->f[l]));
        else
            out->i[l] = settle_i(x->dtype, int_step(x->sub, a->i[l], b->i[l]));
    }
}

static void run_reduce(const machine *m, const kn_ins *x, lanes *out)
{
    const kn_ins *d = kn_def(m->k, x->args[0]);
    const lanes *in = &m->values[x->args[0].i];
    i64 after = 1, n = d->shape[x->axis];
    for (i64 i = x->axis + 1; i < d->rank; i++)
        after *= d->shape[i];
    for (i64 l = 0; l < out->n; l++) {
        i64 at = l / after * n * after + l % after;
        for (i64 k = 0; k < n; k++) {
            if (out->f)
                out->f[l] = k == 0 ? in->f[at]
                                   : settle_f(x->dtype, float_step(x->sub, out->f[l],
                                                                   in->f[at + k * after]));
            else
                out->i[l] = k == 0 ? in->i[at]
                                   : settle_i(x->dtype, int_step(x->sub, out->i[l],
                                                                 in->i[at + k * after]));
        }
    }
}

static void run_dot(const machine *m, const kn_ins *x, lanes *out)
{
    const lanes *c = &m->values[x->args[0].i], *a = &m->values[x->args[1].i];
    const lanes *b = &m->values[x->args[2].i];
    const kn_ins *left = kn_def(m->k, x->args[1]);
    const bool tiles = x->sub == KN_DOT_TILES;
    i64 columns = x->shape[1], depth = tiles ? left->shape[0] * KN_TILE : left->shape[1];
    for (i64 l = 0; l < out->n; l++) {
        i64 row = l / columns, column = l % columns;
        f64 f = c->f ? c->f[l] : 0;
        i64 i = c->i ? c->i[l] : 0;
        for (i64 k = 0; k < depth; k++) {
            i64 p = row * depth + k, q = k * columns + column;
            if (tiles) {
                p = (k / KN_TILE * x->shape[0] + row) * KN_TILE + k % KN_TILE;
                q = (k / 2 * columns + column) * 2 + k % 2;
            }
            if (out->f)
                f = settle_f(x->dtype, f + a->f[p] * b->f[q]);
            else
                i = settle_i(x->dtype, eqf_wrap_add(i, eqf_wrap_mul(a->i[p], b->i[q])));
        }
        if (out->f)
            out->f[l] = f;
        else
            out->i[l] = i;
    }
}

/* bcast and trans: each lane from a lane of the operand. */
static void run_shape(const machine *m, const kn_ins *x, lanes *out)
{
    const kn_ins *d = kn_def(m->k, x->args[0]);
    const lanes *in = &m->values[x->args[0].i];
    for (i64 l = 0; l < out->n; l++) {
        i64 index[KN_RANK] = {0}, rest = l, at = 0;
        for (i64 i = x->rank - 1; i >= 0; i--) {
            index[i] = rest % x->shape[i];
            rest /= x->shape[i];
        }
        for (i64 i = 0; i < d->rank; i++) {
            i64 j = i;
            if (x->op == KN_bcast)
                j = i < x->axis ? i : i + 1;
            for (i64 q = 0; x->op == KN_trans && q < x->rank; q++)
                if (x->perm[q] == i)
                    j = q;
            at = at * d->shape[i] + index[j];
        }
        if (out->f)
            out->f[l] = in->f[at];
        else
            out->i[l] = in->i[at];
    }
}

static void run_constant(const machine *m, const kn_ins *x, lanes *out)
{
    for (i64 l = 0; l < out->n; l++) {
        if (x->op == KN_iota) {
            i64 rest = l, v = value_of(m, x->at);
            for (i64 d = x->rank - 1; d >= 0; d--) {
                v += rest % x->shape[d] * x->stride[d];
                rest /= x->shape[d];
            }
            out->i[l] = v;
        } else if (out->f) {
            out->f[l] = x->op == KN_state ? ir_reducer_identity_f64((ir_reducer)x->sub)
                                          : settle_f(x->dtype, x->f);
        } else {
            out->i[l] = x->op == KN_state
                            ? ir_reducer_identity_i64((ir_reducer)x->sub, (dtype)x->dtype)
                            : x->i;
        }
    }
}

static void run_sort(const machine *m, const kn_ins *x)
{
    const kn_place *key = &x->places[0], *to = &x->places[1];
    i64 n = key->shape[0];
    i64 *order = NEW_N(m->a, i64, n);
    f64 *f = NEW_N(m->a, f64, n);
    i64 *v = NEW_N(m->a, i64, n);
    bool floats = dtype_is_float((dtype)m->k->buffers.at[key->buffer].dtype);
    for (i64 i = 0; i < n; i++)
        get(m, key->buffer, value_of(m, key->at) + i * key->stride[0], &f[i], &v[i]);
    for (i64 i = 0; i < n; i++) { /* insertion: stable, and obviously so */
        i64 place = i;
        for (; place > 0; place--) {
            i64 o = order[place - 1];
            bool before;
            if (!floats)
                before = x->axis ? v[i] > v[o] : v[i] < v[o];
            else if (x->axis)
                before = f[i] > f[o] || (isnan(f[i]) && !isnan(f[o]));
            else
                before = f[i] < f[o] || (isnan(f[o]) && !isnan(f[i]));
            if (!before)
                break;
            order[place] = o;
        }
        order[place] = i;
    }
    for (i64 i = 0; i < to->shape[0]; i++)
        set(m, to->buffer, value_of(m, to->at) + i * to->stride[0], 0, order[i]);
}

/* ---- the program -------------------------------------------------------------------------------- */

static void copy_lanes(lanes *to, const lanes *from)
{
    if (to->f)
        memcpy(to->f, from->f, (size_t)to->n * sizeof(f64));
    else
        memcpy(to->i, from->i, (size_t)to->n * sizeof(i64));
}

static lanes new_lanes(arena *a, const kn_ins *x)
{
    lanes v = {.n = 1};
    for (i64 d = 0; d < x->rank; d++)
        v.n *= x->shape[d];
    if (dtype_is_float((dtype)x->dtype))
        v.f = NEW_N(a, f64, v.n);
    else
        v.i = NEW_N(a, i64, v.n);
    return v;
}

static void run_body(machine *m, const kn_body *body);

static bool meets_span(const machine *m, const kn_ins *x, i64 v)
{
    for (i64 i = 0; i < x->span_count; i++)
        if (value_of(m, x->spans[i].low) < v + x->step && value_of(m, x->spans[i].high) > v)
            return true;
    return x->span_count == 0;
}

static void run_loop(machine *m, const kn_ins *x)
{
    lanes *held = NEW_N(m->a, lanes, x->arg_count + 1);
    for (i64 i = 0; i < x->arg_count; i++) {
        held[i] = new_lanes(m->a, kn_def(m->k, x->carried[i]));
        copy_lanes(&m->values[x->carried[i].i], &m->values[x->args[i].i]);
    }
    i64 v = value_of(m, x->from);
    for (i64 n = 0; n < x->count && (x->end == 0 || v < x->end); n++, v += x->step) {
        if (!meets_span(m, x, v))
            continue;
        m->vars[x->var.i] = v;
        run_body(m, &x->body);
        for (i64 i = 0; i < x->arg_count; i++)
            copy_lanes(&held[i], &m->values[x->yield[i].i]);
        for (i64 i = 0; i < x->arg_count; i++)
            copy_lanes(&m->values[x->carried[i].i], &held[i]);
    }
}

static void run_body(machine *m, const kn_body *body)
{
    const kn_ins *loops[64];
    i64 n = 0;
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        lanes *out = &m->values[x->out.i];
        switch (x->op) {
        case KN_loop:
            run_loop(m, x);
            loops[n++ % COUNT_OF(loops)] = x;
            break;
        case KN_carry: break;
        case KN_get:
            for (i64 j = MIN(n, COUNT_OF(loops)) - 1; j >= 0; j--)
                if (loops[j]->var.i == x->var.i)
                    copy_lanes(out, &m->values[loops[j]->carried[x->axis].i]);
            break;
        case KN_load:
        case KN_ref:
        case KN_gather: run_load(m, x, out); break;
        case KN_store:
        case KN_put: run_store(m, x); break;
        case KN_sort: run_sort(m, x); break;
        case KN_const:
        case KN_state:
        case KN_iota: run_constant(m, x, out); break;
        case KN_cast: run_cast(m, x, out); break;
        case KN_ew: run_ew(m, x, out); break;
        case KN_combine: run_combine(m, x, out); break;
        case KN_reduce: run_reduce(m, x, out); break;
        case KN_dot: run_dot(m, x, out); break;
        case KN_bcast:
        case KN_trans: run_shape(m, x, out); break;
        default: eqf_bug(m->ctx, "kernel %s: unknown operation", m->k->name);
        }
    }
}

int kn_run(eqf_ctx *ctx, const kn_kernel *k, void *const *buffers, i64 p0, i64 p1)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "no memory");
    trap t;
    volatile int code = 0;
    TRY(ctx, t)
    {
        machine m = {.ctx = ctx, .a = a, .k = k};
        m.buffers = NEW_N(a, void *, k->buffers.n + 1);
        m.written = NEW_N(a, u8 *, k->buffers.n + 1);
        m.values = NEW_N(a, lanes, k->defs.n);
        m.vars = NEW_N(a, i64, (i64)k->var_count + 1);
        for (i64 i = 1; i < k->defs.n; i++)
            if (k->defs.at[i])
                m.values[i] = new_lanes(a, k->defs.at[i]);
        i64 argument = 0;
        for (i64 i = 0; i < k->buffers.n; i++) {
            const kn_buffer *b = &k->buffers.at[i];
            bool local = b->access == KN_LOCAL;
            m.buffers[i] = local ? arena_alloc_n(a, b->count, dtype_bytes((dtype)b->dtype))
                                 : buffers[argument++];
            if (local || b->access == KN_OUT || b->access == KN_INTO)
                m.written[i] = NEW_N(a, u8, b->count);
        }
        for (i64 p = p0; p < p1 && code == 0; p++) {
            i64 rest = p;
            for (i64 g = k->grid.n - 1; g >= 0; g--) {
                m.vars[g + 1] = rest % k->grid.at[g];
                rest /= k->grid.at[g];
            }
            for (i64 i = 0; i < k->buffers.n; i++)
                if (k->buffers.at[i].access == KN_LOCAL)
                    memset(m.written[i], 0, (size_t)k->buffers.at[i].count);
            m.bad = false;
            run_body(&m, &k->body);
            if (m.bad)
                code = (int)(p + 1);
        }
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
    return code;
}
