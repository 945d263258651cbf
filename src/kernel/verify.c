/* The verifier: every invariant of kernel.h, without trusting who built the kernel.
 *
 * Addresses are checked over all iterations by interval arithmetic, twice: with loop variables as
 * they are (their `end` bounds them) and with each replaced by from + step * n (differences of a
 * variable and its start cancel); the tighter bound counts. A live dim is replaced by its position
 * start + lane, which lies below its end. That every element of an OUT buffer is stored exactly
 * once, and none of an INTO buffer twice, is checked by walking the stores where they are at most
 * MOST_STORES, else only by the interpreter at run time. */
#include "kernel/kernel.h"

enum { MOST_STORES = 1 << 18 };

typedef struct range {
    i64 low, high;
    i64 step; /* of variables: values are low + a multiple of it */
} range;

typedef struct checker {
    eqf_ctx *ctx;
    arena *a;
    const kn_kernel *k;
    const kn_ins *x;    /* under inspection */
    range *vars;        /* by number; low > high: not in scope */
    kn_affine *start;   /* of loop variables: the affine form of `from` */
    i64 *step, *count;  /* of loop variables; count 0: a grid variable */
    bool *defined;      /* by value: may be used here */
    i64 *ended;         /* by variable: 1 + body depth where its loop ended */
    const kn_ins **loop_of; /* by variable */
    i64 depth, stores;
    u8 *seen;           /* walking the stores of one buffer */
    i32 buffer;
    i64 *at;            /* by variable: its value */
} checker;

static _Noreturn void fail(const checker *c, const char *what)
{
    str s = str_new(c->a);
    const char *op = "the kernel";
    static const char *const NAMES[KN_OP_COUNT] = {
#define KOP(name, args, result, doc) [KN_##name] = #name,
#include "kernel/kops.def"
#undef KOP
    };
    if (c->x)
        op = NAMES[c->x->op];
    str_printf(&s, "kernel %s: %s", c->k->name, op);
    if (c->x && c->x->out.i)
        str_printf(&s, " v%u", c->x->out.i);
    eqf_throw(c->ctx, EQF_E_INTERNAL, NULL, NULL, "%s: %s", s.at, what);
}

static void require(const checker *c, bool holds, const char *what)
{
    if (!holds)
        fail(c, what);
}

/* ---- ranges --------------------------------------------------------------------------------------- */

static range direct(const checker *c, kn_affine x)
{
    range r = {x.base, x.base, 1};
    for (i64 i = 0; i < x.n; i++) {
        range v = c->vars[x.at[i].var.i];
        i64 a, b;
        bool fits = mul_i64(x.at[i].coef, v.low, &a) && mul_i64(x.at[i].coef, v.high, &b) &&
                    add_i64(r.low, MIN(a, b), &r.low) && add_i64(r.high, MAX(a, b), &r.high);
        require(c, fits, "an address overflows");
    }
    return r;
}

static void check_affine(const checker *c, kn_affine x)
{
    for (i64 i = 0; i < x.n; i++) {
        u32 v = x.at[i].var.i;
        require(c, v >= 1 && v <= c->k->var_count && c->vars[v].low <= c->vars[v].high,
                "a variable is used outside its loop");
        require(c, x.at[i].coef != 0, "a zero coefficient");
        require(c, i == 0 || x.at[i - 1].var.i < v, "terms are not sorted by variable");
    }
}

static range range_of(const checker *c, kn_affine x)
{
    range r = direct(c, x);
    /* loop variables replaced, innermost first; what is left over adds n * step */
    range extra = {0, 0, 1};
    kn_affine y = x;
    for (i64 i = y.n - 1; i >= 0; i = MIN(i - 1, y.n - 1)) {
        u32 v = y.at[i].var.i;
        i64 coef = y.at[i].coef, reach;
        if (c->count[v] == 0)
            continue;
        require(c, mul_i64(coef, (c->count[v] - 1) * c->step[v], &reach), "an address overflows");
        extra.low += MIN(reach, 0);
        extra.high += MAX(reach, 0);
        y = kn_affine_add(c->a, y, (kn_var){v}, -coef);
        y = kn_affine_sum(c->a, y, c->start[v], coef);
        i = y.n;
    }
    range s = direct(c, y);
    r.low = MAX(r.low, s.low + extra.low);
    r.high = MIN(r.high, s.high + extra.high);
    return r;
}

static void check_buffer(const checker *c, i32 b)
{
    require(c, b >= 0 && b < (i32)c->k->buffers.n, "no such buffer");
}

/* All addresses at + sum stride * lane (+ index terms) lie in the buffer. */
static void check_place(const checker *c, const kn_place *p, i64 low, i64 high)
{
    check_buffer(c, p->buffer);
    check_affine(c, p->at);
    kn_affine rest = p->at;
    for (i64 d = 0; d < p->rank; d++) {
        require(c, p->shape[d] >= 1, "an empty dim");
        i64 first = 0, last = p->shape[d] - 1, reach;
        if (p->live[d].end != 0) {
            check_affine(c, p->live[d].start);
            range s = range_of(c, p->live[d].start);
            require(c, s.low >= 0, "a live bound starts below 0");
            rest = kn_affine_sum(c->a, rest, p->live[d].start, -p->stride[d]);
            first = s.low;
            last = MIN(s.high + last, p->live[d].end - 1);
            if (last < first)
                return; /* no lane is ever live */
        }
        require(c, mul_i64(p->stride[d], last, &reach), "an address overflows");
        i64 from = p->stride[d] * first;
        low += MIN(from, reach);
        high += MAX(from, reach);
    }
    range r = range_of(c, rest);
    require(c, r.low + low >= 0 && r.high + high < c->k->buffers.at[p->buffer].count,
            "an address outside the buffer");
}

static kn_place place_of(const kn_ins *x)
{
    kn_place p = {.buffer = x->buffer, .at = x->at, .rank = x->rank};
    for (i64 d = 0; d < x->rank; d++) {
        p.shape[d] = x->shape[d];
        p.stride[d] = x->stride[d];
        p.live[d] = x->live[d];
    }
    return p;
}

static i64 gcd(i64 a, i64 b)
{
    while (b != 0) {
        i64 r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

/* ---- operations ------------------------------------------------------------------------------------ */

static bool same_shape(const kn_ins *a, const kn_ins *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

static bool is_half(u8 t)
{
    return t == DT_f16 || t == DT_bf16;
}

static const kn_ins *arg(const checker *c, i64 i)
{
    return kn_def(c->k, c->x->args[i]);
}

static void check_ew(const checker *c)
{
    const kn_ins *x = c->x;
    require(c, x->sub > IR_NO_OP && x->sub < IR_OP_COUNT, "unknown operator");
    const ir_op_row *row = ir_row((ir_op)x->sub);
    require(c, row->class_ == IR_EWISE && x->sub != IR_cast, "not a pointwise operator");
    require(c, row->arity == x->arg_count, "wrong number of operands");
    for (i64 i = 0; i < x->arg_count; i++)
        require(c, same_shape(x, arg(c, i)), "operands of different shapes");
    if (row->rule == IR_SELECT) {
        require(c, arg(c, 0)->dtype == DT_bool && arg(c, 1)->dtype == x->dtype &&
                       arg(c, 2)->dtype == x->dtype, "wrong dtypes");
        return;
    }
    u8 t = arg(c, 0)->dtype;
    for (i64 i = 1; i < x->arg_count; i++)
        require(c, arg(c, i)->dtype == t, "operands of different dtypes");
    require(c, !is_half(t), "arithmetic on a half type");
    require(c, dtype_is_float(t) ? row->on_float : row->on_int, "no such operator on this dtype");
    bool truth = row->rule == IR_COMPARE || row->rule == IR_TEST || row->rule == IR_BOOLEAN;
    require(c, x->dtype == (truth ? DT_bool : t), "wrong dtype of the result");
}

static void check_reducer(const checker *c, bool none_allowed)
{
    u8 r = c->x->sub;
    require(c, r < IR_REDUCER_COUNT && (r > IR_NO_REDUCER || none_allowed), "unknown reducer");
    if ((r == IR_OR || r == IR_AND) && c->x->op != KN_put)
        require(c, !dtype_is_float(c->x->dtype), "a logical reducer on floats");
}

static void check_tiles(const checker *c)
{
    const kn_ins *x = c->x, *l = arg(c, 1), *r = arg(c, 2);
    require(c, l->op == KN_ref && r->op == KN_ref && l->dtype == DT_bf16 && r->dtype == DT_bf16,
            "tiles are of bf16 in memory");
    require(c, l->rank == 3 && r->rank == 3 && x->shape[0] <= KN_TILE && x->shape[1] == KN_TILE &&
                   l->shape[1] == x->shape[0] && l->shape[2] == KN_TILE && r->shape[1] == KN_TILE &&
                   r->shape[2] == 2 && l->shape[0] * KN_TILE == r->shape[0] * 2,
            "shapes are not those of tiles");
    require(c, l->stride[2] == 1 && r->stride[0] == 2 * KN_TILE && r->stride[1] == 2 && r->stride[2] == 1,
            "tiles need dense rows");
}

static void check_dot(const checker *c)
{
    const kn_ins *x = c->x, *acc = arg(c, 0), *l = arg(c, 1), *r = arg(c, 2);
    require(c, x->rank == 2 && same_shape(x, acc) && acc->dtype == x->dtype, "wrong accumulator");
    require(c, x->sub <= KN_DOT_TILES, "unknown kind");
    if (x->sub == KN_DOT_TILES)
        check_tiles(c);
    else
        require(c, l->rank == 2 && r->rank == 2 && l->shape[0] == x->shape[0] &&
                   r->shape[1] == x->shape[1] && l->shape[1] == r->shape[0],
            "shapes do not multiply");
    require(c, x->dtype == (is_half(l->dtype) ? DT_f32 : l->dtype) &&
                   x->dtype == (is_half(r->dtype) ? DT_f32 : r->dtype), "wrong accumulator dtype");
    require(c, x->block[0] >= 0 && x->block[1] >= 0 && x->block[0] <= x->shape[0],
            "a register tile with more rows than there are");
    bool floats = dtype_is_float(x->dtype);
    require(c, floats || x->sub == KN_DOT_PLAIN, "this kind is for floats");
    if (x->axis != 0) {
        require(c, x->axis > 0 && r->op == KN_ref && x->buffer == r->buffer,
                "prefetches another buffer than it reads");
        check_affine(c, x->at);
    }
    bool ref = r->op == KN_ref;
    if (x->sub == KN_DOT_FMA)
        require(c, !ref || r->stride[1] == 1, "vectors need contiguous columns");
    if (x->sub == KN_DOT_ROWDOT)
        require(c, r->op == KN_ref && r->stride[0] == 1 && (l->op != KN_ref || l->stride[1] == 1),
                "vectors along k need contiguous rows");
    if (acc->op == KN_ref)
        require(c, acc->stride[1] == 1, "an accumulator in memory needs contiguous rows");
    if (acc->op == KN_const)
        require(c, acc->f == 0 && acc->i == 0, "an accumulator starts at 0");
    if (acc->op == KN_state)
        require(c, acc->sub == IR_SUM, "an accumulator starts at 0");
}

static void check_body(checker *c, const kn_body *body);

static bool stores(const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->op == KN_store || x->op == KN_put || x->op == KN_sort || stores(&x->body))
            return true;
    }
    return false;
}

static void check_loop(checker *c)
{
    const kn_ins *x = c->x;
    u32 v = x->var.i;
    require(c, v > (u32)c->k->grid.n && v <= c->k->var_count, "no such variable");
    require(c, c->loop_of[v] == NULL, "a variable of two loops");
    require(c, x->count >= 1 && x->step >= 1 && x->end >= 0, "wrong range");
    check_affine(c, x->from);
    range from = range_of(c, x->from);
    require(c, from.low >= 0, "a loop starts below 0");
    range r = {from.low, from.high + (x->count - 1) * x->step, x->step};
    for (i64 i = 0; i < x->from.n; i++)
        r.step = gcd(r.step, x->from.at[i].coef * c->vars[x->from.at[i].var.i].step);
    if (x->end > 0)
        r.high = MIN(r.high, x->end - 1);
    require(c, r.low <= r.high, "a loop that never runs");
    r.high -= (r.high - r.low) % r.step;
    for (i64 i = 0; i < x->span_count; i++) {
        check_affine(c, x->spans[i].low);
        check_affine(c, x->spans[i].high);
        range_of(c, x->spans[i].low);
        range_of(c, x->spans[i].high);
    }
    require(c, x->span_count == 0 || !stores(&x->body), "a loop that leaves iterations out stores");
    c->loop_of[v] = x;
    c->vars[v] = r;
    c->start[v] = x->from;
    c->step[v] = x->step;
    c->count[v] = x->count;
    for (i64 i = 0; i < x->arg_count; i++) {
        bool ok = i < x->body.n && x->body.at[i]->op == KN_carry && x->body.at[i]->axis == i &&
                  x->body.at[i]->out.i == x->carried[i].i;
        require(c, ok, "carried values come first in the body");
        const kn_ins *k = x->body.at[i];
        require(c, same_shape(k, arg(c, i)) && k->dtype == arg(c, i)->dtype,
                "a carried value of another type than its start");
    }
    c->depth++;
    check_body(c, &x->body);
    c->x = x;
    for (i64 i = 0; i < x->arg_count; i++) {
        require(c, x->yield[i].i > 0 && x->yield[i].i < (u32)c->k->defs.n &&
                       c->defined[x->yield[i].i],
                "yields a value that is not there");
        const kn_ins *y = kn_def(c->k, x->yield[i]);
        require(c, y->op != KN_ref && same_shape(y, arg(c, i)) && y->dtype == arg(c, i)->dtype,
                "a carried value changes its type");
    }
    for (i64 i = 0; i < x->body.n; i++) {
        if (x->body.at[i]->out.i)
            c->defined[x->body.at[i]->out.i] = false;
        if (x->body.at[i]->op == KN_loop)
            c->ended[x->body.at[i]->var.i] = 0;
    }
    c->depth--;
    c->vars[v] = (range){1, 0, 1};
    c->ended[v] = 1 + c->depth;
}

static void check_memory(const checker *c)
{
    const kn_ins *x = c->x;
    check_buffer(c, x->buffer);
    const kn_buffer *b = &c->k->buffers.at[x->buffer];
    bool stores = x->op == KN_store || x->op == KN_put;
    require(c, b->dtype == x->dtype, "another dtype than the buffer");
    require(c, stores ? b->access != KN_IN : b->access != KN_OUT && b->access != KN_INTO,
            stores ? "a store to an input" : "a load from an output");
    i64 low = 0, high = 0, first = x->op == KN_put;
    if (x->op == KN_gather || x->op == KN_put) {
        require(c, x->arg_count - first <= KN_INDICES, "too many indices");
        for (i64 i = first; i < x->arg_count; i++) {
            i64 q = i - first, reach = 0;
            require(c, arg(c, i)->dtype == DT_i64 && same_shape(arg(c, i), x), "wrong index");
            require(c, x->index_extent[q] >= 1 &&
                           mul_i64(x->index_stride[q], x->index_extent[q] - 1, &reach),
                    "wrong extent of an index");
            low += MIN(reach, 0);
            high += MAX(reach, 0);
        }
        require(c, x->op != KN_put || x->sub == IR_NO_REDUCER || !is_half(x->dtype),
                "accumulates in a half type");
        if (x->op == KN_put)
            require(c, b->access == KN_UPDATE, "put needs a buffer that may be updated");
    }
    if (stores)
        require(c, arg(c, 0)->dtype == x->dtype && same_shape(arg(c, 0), x) &&
                       arg(c, 0)->op != KN_ref, "stores a value of another type");
    kn_place p = place_of(x);
    check_place(c, &p, low, high);
    for (i64 d = 0; x->op == KN_ref && d < x->rank; d++)
        require(c, x->live[d].end == 0, "a reference has no dead lanes");
}

static void check_ins(checker *c)
{
    const kn_ins *x = c->x;
    require(c, x->rank <= KN_RANK, "too many dims");
    for (i64 d = 0; d < x->rank; d++)
        require(c, x->shape[d] >= 1, "an empty dim");
    for (i64 i = 0; i < x->arg_count; i++) {
        u32 v = x->args[i].i;
        require(c, v > 0 && v < (u32)c->k->defs.n && c->k->defs.at[v] && c->defined[v],
                "uses a value that is not there");
        require(c, x->op == KN_dot || c->k->defs.at[v]->op != KN_ref, "only dot reads a reference");
    }
    if (x->out.i)
        require(c, x->out.i < (u32)c->k->defs.n && c->k->defs.at[x->out.i] == x && x->dtype != DT_NONE,
                "a result that is defined elsewhere");
    switch (x->op) {
    case KN_loop:
        check_loop(c);
        break;
    case KN_carry:
        break;
    case KN_get:
        require(c, x->var.i <= c->k->var_count && c->loop_of[x->var.i] &&
                       c->ended[x->var.i] == 1 + c->depth, "not the result of a finished loop");
        require(c, x->axis >= 0 && x->axis < c->loop_of[x->var.i]->arg_count, "no such result");
        const kn_ins *init = kn_def(c->k, c->loop_of[x->var.i]->args[x->axis]);
        require(c, same_shape(x, init) && x->dtype == init->dtype, "another type than carried");
        break;
    case KN_load:
    case KN_ref:
    case KN_gather:
    case KN_store:
    case KN_put:
        check_memory(c);
        break;
    case KN_sort:
        require(c, x->places != NULL, "needs three places");
        for (i64 i = 0; i < 3; i++) {
            require(c, x->places[i].rank == 1, "sorts a line");
            check_place(c, &x->places[i], 0, 0);
            u8 t = c->k->buffers.at[x->places[i].buffer].dtype;
            require(c, i == 0 || t == DT_i64, "positions are i64");
        }
        require(c, x->places[2].shape[0] == 2 * x->places[0].shape[0] &&
                       x->places[2].stride[0] == 1 &&
                       x->places[1].shape[0] <= x->places[0].shape[0], "wrong sizes");
        break;
    case KN_const:
    case KN_state:
        if (x->op == KN_state)
            check_reducer(c, false);
        break;
    case KN_iota:
        require(c, x->dtype == DT_i64 || x->dtype == DT_i32, "iota is i64 or i32");
        check_affine(c, x->at);
        break;
    case KN_cast:
        require(c, x->arg_count == 1 && same_shape(x, arg(c, 0)), "wrong operand");
        require(c, !is_half(arg(c, 0)->dtype) || x->dtype == DT_f32, "a half type widens to f32");
        break;
    case KN_ew:
        check_ew(c);
        break;
    case KN_bcast:
        require(c, x->axis >= 0 && x->axis < x->rank && arg(c, 0)->rank + 1 == x->rank &&
                       arg(c, 0)->dtype == x->dtype, "wrong operand");
        for (i64 d = 0; d + 1 < x->rank; d++)
            require(c, arg(c, 0)->shape[d] == x->shape[d < x->axis ? d : d + 1], "wrong shape");
        break;
    case KN_trans:
        require(c, arg(c, 0)->rank == x->rank && arg(c, 0)->dtype == x->dtype, "wrong operand");
        u8 found = 0;
        for (i64 d = 0; d < x->rank; d++) {
            require(c, x->perm[d] < x->rank && arg(c, 0)->shape[x->perm[d]] == x->shape[d],
                    "wrong permutation");
            found |= (u8)(1 << x->perm[d]);
        }
        require(c, found == (1 << x->rank) - 1, "wrong permutation");
        break;
    case KN_combine:
        check_reducer(c, false);
        require(c, same_shape(x, arg(c, 0)) && same_shape(x, arg(c, 1)) &&
                       arg(c, 0)->dtype == x->dtype && arg(c, 1)->dtype == x->dtype &&
                       !is_half(x->dtype), "wrong operands");
        break;
    case KN_reduce:
        check_reducer(c, false);
        require(c, arg(c, 0)->rank == x->rank + 1 && x->axis >= 0 && x->axis <= x->rank &&
                       arg(c, 0)->dtype == x->dtype && !is_half(x->dtype), "wrong operand");
        for (i64 d = 0; d < x->rank; d++)
            require(c, arg(c, 0)->shape[d < x->axis ? d : d + 1] == x->shape[d], "wrong shape");
        break;
    case KN_dot:
        check_dot(c);
        for (i64 d = 0; d < KN_RANK; d++)
            check_affine(c, x->live[d].start);
        break;
    default:
        fail(c, "unknown operation");
    }
}

static i64 arity(u8 op)
{
    static const i64 ARGS[KN_OP_COUNT] = {
#define KOP(name, args, result, doc) [KN_##name] = args,
#include "kernel/kops.def"
#undef KOP
    };
    return ARGS[op];
}

static void check_body(checker *c, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        c->x = x;
        require(c, x->op > KN_NO_OP && x->op < KN_OP_COUNT, "unknown operation");
        i64 n = arity(x->op);
        require(c, n < 0 || n == x->arg_count, "wrong number of operands");
        check_ins(c);
        if (x->out.i) {
            c->x = x;
            require(c, !c->defined[x->out.i], "defined twice");
            c->defined[x->out.i] = true;
        }
    }
}

/* ---- each element once ------------------------------------------------------------------------------ */

static i64 value_of(const checker *c, kn_affine x)
{
    i64 v = x.base;
    for (i64 i = 0; i < x.n; i++)
        v += x.at[i].coef * c->at[x.at[i].var.i];
    return v;
}

static void walk_store(checker *c, const kn_ins *x)
{
    i64 extent[KN_RANK] = {1, 1, 1};
    for (i64 d = 0; d < x->rank; d++) {
        extent[d] = x->shape[d];
        if (x->live[d].end != 0)
            extent[d] = MIN(extent[d], x->live[d].end - value_of(c, x->live[d].start));
    }
    i64 at = value_of(c, x->at);
    for (i64 i = 0; i < extent[0]; i++)
        for (i64 j = 0; j < extent[1]; j++)
            for (i64 k = 0; k < extent[2]; k++) {
                i64 e = at + i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
                require(c, c->seen[e] == 0, "an element is stored twice");
                c->seen[e] = 1;
            }
}

static void walk(checker *c, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        c->x = x;
        if (x->op == KN_store && x->buffer == c->buffer)
            walk_store(c, x);
        if (x->op == KN_sort && x->places[1].buffer == c->buffer) {
            const kn_place *p = &x->places[1];
            kn_ins line = {.rank = 1, .at = p->at, .shape = {p->shape[0]},
                           .stride = {p->stride[0]}};
            walk_store(c, &line);
        }
        if (x->op != KN_loop)
            continue;
        i64 v = value_of(c, x->from);
        for (i64 n = 0; n < x->count && (x->end == 0 || v < x->end); n++, v += x->step) {
            c->at[x->var.i] = v;
            walk(c, &x->body);
        }
    }
}

/* Elements that the body's stores touch at most, and how often the body runs. */
static i64 count_stores(const kn_body *body, i64 times)
{
    i64 sum = 0;
    for (i64 i = 0; i < body->n && sum <= MOST_STORES; i++) {
        const kn_ins *x = body->at[i];
        i64 n = times;
        if (x->op == KN_loop) {
            n = times > MOST_STORES || x->count > MOST_STORES ? MOST_STORES + 1
                                                              : times * x->count;
            sum += n / 16 + count_stores(&x->body, n);
        } else if (x->op == KN_store) {
            for (i64 d = 0; d < x->rank && n <= MOST_STORES; d++)
                n = x->shape[d] > MOST_STORES ? MOST_STORES + 1 : n * x->shape[d];
            sum += n;
        }
    }
    return sum;
}

static void check_once(checker *c)
{
    i64 parts = kn_parts(c->k);
    if (parts > MOST_STORES || count_stores(&c->k->body, parts) > MOST_STORES)
        return;
    for (i32 b = 0; b < (i32)c->k->buffers.n; b++) {
        const kn_buffer *x = &c->k->buffers.at[b];
        if ((x->access != KN_OUT && x->access != KN_INTO) || x->count > 16 * MOST_STORES)
            continue;
        c->seen = NEW_N(c->a, u8, x->count);
        c->buffer = b;
        for (i64 p = 0; p < parts; p++) {
            i64 rest = p;
            for (i64 g = c->k->grid.n - 1; g >= 0; g--) {
                c->at[g + 1] = rest % c->k->grid.at[g];
                rest /= c->k->grid.at[g];
            }
            walk(c, &c->k->body);
        }
        c->x = NULL;
        for (i64 i = 0; x->access == KN_OUT && i < x->count; i++)
            require(c, c->seen[i] == 1, "an element of an output is never stored");
    }
}

void kn_verify(eqf_ctx *ctx, const kn_kernel *k)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "no memory");
    trap t;
    TRY(ctx, t)
    {
        i64 vars = (i64)k->var_count + 1;
        checker c = {.ctx = ctx, .a = a, .k = k, .vars = NEW_N(a, range, vars),
                     .start = NEW_N(a, kn_affine, vars), .step = NEW_N(a, i64, vars),
                     .count = NEW_N(a, i64, vars), .ended = NEW_N(a, i64, vars),
                     .loop_of = NEW_N(a, const kn_ins *, vars), .at = NEW_N(a, i64, vars),
                     .defined = NEW_N(a, bool, k->defs.n)};
        require(&c, vars > k->grid.n, "fewer variables than grid dims");
        for (i64 i = 0; i < vars; i++)
            c.vars[i] = (range){1, 0, 1};
        for (i64 i = 0; i < k->grid.n; i++) {
            require(&c, k->grid.at[i] >= 1, "an empty grid");
            c.vars[i + 1] = (range){0, k->grid.at[i] - 1, 1};
        }
        for (i64 i = 0; i < k->buffers.n; i++)
            require(&c, k->buffers.at[i].count >= 1 && k->buffers.at[i].access <= KN_LOCAL,
                    "a wrong buffer");
        check_body(&c, &k->body);
        c.x = NULL;
        check_once(&c);
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
