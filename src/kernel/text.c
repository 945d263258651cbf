/* The text form of kernels. An operation is a list:
 *
 *     (name result dtype [shape] (operands) :key value ...)
 *
 * result is vN or `-`; only fields that differ from zero are printed. An affine form is
 * (base (variable coefficient) ...). print ∘ read = id. */
#include <math.h>

#include "kernel/kernel.h"

static const struct {
    const char *name, *result;
} OPS[KN_OP_COUNT] = {
#define KOP(name, args, result, doc) [KN_##name] = {#name, #result},
#include "kernel/kops.def"
#undef KOP
};
static const char *const ACCESS[] = {"in", "out", "into", "update", "local"};
static const char *const DOTS[] = {"plain", "fma", "rowdot", "tiles"};

/* ---- printing ---------------------------------------------------------------------------------- */

static void print_affine(str *s, kn_affine x)
{
    str_printf(s, "(%lld", (long long)x.base);
    for (i64 i = 0; i < x.n; i++)
        str_printf(s, " (%u %lld)", x.at[i].var.i, (long long)x.at[i].coef);
    str_add_char(s, ')');
}

static void print_ints(str *s, const i64 *at, i64 n)
{
    str_add_char(s, '[');
    for (i64 i = 0; i < n; i++)
        str_printf(s, i > 0 ? " %lld" : "%lld", (long long)at[i]);
    str_add_char(s, ']');
}

static void print_values(str *s, const kn_value *at, i64 n)
{
    str_add_char(s, '(');
    for (i64 i = 0; i < n; i++)
        str_printf(s, i > 0 ? " v%u" : "v%u", at[i].i);
    str_add_char(s, ')');
}

static bool is_zero(kn_affine x)
{
    return x.base == 0 && x.n == 0;
}

static void print_live(str *s, const kn_live *live, i64 rank)
{
    bool any = false;
    for (i64 d = 0; d < rank; d++)
        any |= live[d].end != 0;
    if (!any)
        return;
    str_add(s, " :live [");
    for (i64 d = 0; d < rank; d++) {
        str_printf(s, d > 0 ? " (%lld " : "(%lld ", (long long)live[d].end);
        print_affine(s, live[d].start);
        str_add_char(s, ')');
    }
    str_add_char(s, ']');
}

static void print_place(str *s, const kn_place *p)
{
    str_printf(s, "(%d ", p->buffer);
    print_affine(s, p->at);
    str_add_char(s, ' ');
    print_ints(s, p->shape, p->rank);
    str_add_char(s, ' ');
    print_ints(s, p->stride, p->rank);
    str_add_char(s, ')');
}

static const char *sub_text(const kn_ins *x)
{
    switch (x->op) {
    case KN_ew: return ir_row((ir_op)x->sub)->name;
    case KN_dot: return DOTS[x->sub];
    case KN_put: return x->sub ? ir_reducer_text((ir_reducer)x->sub) : NULL;
    case KN_state:
    case KN_combine:
    case KN_reduce: return ir_reducer_text((ir_reducer)x->sub);
    default: return NULL;
    }
}

static void print_body(str *s, const kn_body *body, i64 depth);

static void print_ins(str *s, const kn_ins *x, i64 depth)
{
    for (i64 i = 0; i < depth; i++)
        str_add(s, "  ");
    str_printf(s, "(%s", OPS[x->op].name);
    if (x->out.i)
        str_printf(s, " v%u", x->out.i);
    else
        str_add(s, " -");
    str_printf(s, " %s ", x->dtype ? dtype_name(x->dtype) : "-");
    print_ints(s, x->shape, x->rank);
    str_add_char(s, ' ');
    print_values(s, x->args, x->arg_count);
    if (sub_text(x))
        str_printf(s, " :sub %s", sub_text(x));
    if (x->f != 0 || signbit(x->f)) {
        str_add(s, " :f ");
        str_add_f64(s, x->f);
    }
    if (x->i != 0)
        str_printf(s, " :i %lld", (long long)x->i);
    if (x->buffer >= 0)
        str_printf(s, " :buffer %d", x->buffer);
    if (!is_zero(x->at)) {
        str_add(s, " :at ");
        print_affine(s, x->at);
    }
    if (x->rank > 0 && x->op != KN_dot && (x->buffer >= 0 || x->op == KN_iota)) {
        str_add(s, " :stride ");
        print_ints(s, x->stride, x->rank);
        print_live(s, x->live, x->rank);
    }
    if (x->op == KN_dot)
        print_live(s, x->live, KN_RANK);
    i64 indices = x->op == KN_gather ? x->arg_count : x->op == KN_put ? x->arg_count - 1 : 0;
    if (indices > 0) {
        str_add(s, " :index ");
        print_ints(s, x->index_stride, indices);
        str_add(s, " :extent ");
        print_ints(s, x->index_extent, indices);
    }
    if (x->places) {
        str_add(s, " :places (");
        for (i64 i = 0; i < 3; i++)
            print_place(s, &x->places[i]);
        str_add_char(s, ')');
    }
    if (x->axis != 0)
        str_printf(s, " :axis %lld", (long long)x->axis);
    if (x->block[0] != 0 || x->block[1] != 0) {
        str_add(s, " :block ");
        print_ints(s, x->block, 2);
    }
    if (x->op == KN_trans) {
        i64 perm[KN_RANK];
        for (i64 d = 0; d < x->rank; d++)
            perm[d] = x->perm[d];
        str_add(s, " :perm ");
        print_ints(s, perm, x->rank);
    }
    if (x->var.i)
        str_printf(s, " :var %u", x->var.i);
    if (x->op == KN_loop) {
        str_add(s, " :from ");
        print_affine(s, x->from);
        str_printf(s, " :range [%lld %lld %lld]", (long long)x->count, (long long)x->step,
                   (long long)x->end);
        if (x->span_count > 0) {
            str_add(s, " :spans (");
            for (i64 i = 0; i < x->span_count; i++) {
                str_add(s, i > 0 ? " (" : "(");
                print_affine(s, x->spans[i].low);
                str_add_char(s, ' ');
                print_affine(s, x->spans[i].high);
                str_add_char(s, ')');
            }
            str_add_char(s, ')');
        }
        str_add(s, " :carried ");
        print_values(s, x->carried, x->arg_count);
        str_add(s, " :yield ");
        print_values(s, x->yield, x->arg_count);
        str_add(s, "\n");
        print_body(s, &x->body, depth + 1);
        for (i64 i = 0; i < depth; i++)
            str_add(s, "  ");
    }
    str_add(s, ")\n");
}

static void print_body(str *s, const kn_body *body, i64 depth)
{
    for (i64 i = 0; i < body->n; i++)
        if (body->at[i]->op != KN_carry)
            print_ins(s, body->at[i], depth);
}

void kn_print(str *s, const kn_kernel *k)
{
    str_printf(s, "(kernel %s\n  (buffers", k->name);
    for (i64 i = 0; i < k->buffers.n; i++) {
        const kn_buffer *b = &k->buffers.at[i];
        str_printf(s, " (%s %s %lld)", ACCESS[b->access], dtype_name(b->dtype), (long long)b->count);
    }
    str_add(s, ")\n  (grid");
    for (i64 i = 0; i < k->grid.n; i++)
        str_printf(s, " %lld", (long long)k->grid.at[i]);
    str_add(s, ")\n");
    print_body(s, &k->body, 1);
    str_add(s, ")\n");
}

/* ---- reading ------------------------------------------------------------------------------------- */

typedef struct reader {
    arena *a;
    eqf_ctx *ctx;
    const char *file;
    kn_kernel *k;
} reader;

static const sx *item(const reader *r, const sx *x, i64 i)
{
    if (x->kind != SX_LIST || i >= x->n)
        sx_throw(r->ctx, r->file, x, "something is missing here");
    return x->at[i];
}

static i64 read_int(const reader *r, const sx *x)
{
    if (x->kind != SX_INT)
        sx_throw(r->ctx, r->file, x, "expected an integer, found '%s'", x->text ? x->text : "(");
    return x->i;
}

static i64 read_ints(const reader *r, const sx *x, i64 *out, i64 most)
{
    if (x->kind != SX_LIST || x->n > most)
        sx_throw(r->ctx, r->file, x, "expected a list of at most %lld integers", (long long)most);
    for (i64 i = 0; i < x->n; i++)
        out[i] = read_int(r, x->at[i]);
    return x->n;
}

/* A number after a one-letter prefix. */
static u32 read_name(const reader *r, const sx *x, char letter, i64 most)
{
    if (x->kind == SX_SYMBOL && x->text[0] == letter && x->n > 1) {
        i64 n = 0;
        const char *c = x->text + 1;
        while (*c >= '0' && *c <= '9' && n <= most)
            n = n * 10 + (*c++ - '0');
        if (*c == '\0' && n > 0 && n <= most)
            return (u32)n;
    }
    sx_throw(r->ctx, r->file, x, "expected a name %c1, %c2 ... that is known here", letter, letter);
}

static kn_affine read_affine(const reader *r, const sx *x)
{
    kn_affine f = {.base = read_int(r, item(r, x, 0)), .n = x->n - 1};
    kn_affine_term *at = NEW_N(r->a, kn_affine_term, x->n);
    for (i64 i = 1; i < x->n; i++) {
        i64 pair[2] = {0, 0};
        if (read_ints(r, x->at[i], pair, 2) != 2 || pair[0] < 1 || pair[0] > UINT32_MAX)
            sx_throw(r->ctx, r->file, x->at[i], "expected (variable coefficient)");
        at[i - 1] = (kn_affine_term){{(u32)pair[0]}, pair[1]};
    }
    f.at = at;
    return f;
}

static i64 read_values(const reader *r, const sx *x, const kn_value **out)
{
    if (x->kind != SX_LIST)
        sx_throw(r->ctx, r->file, x, "expected a list of values");
    kn_value *at = NEW_N(r->a, kn_value, x->n + 1);
    for (i64 i = 0; i < x->n; i++)
        at[i].i = read_name(r, x->at[i], 'v', INT32_MAX);
    *out = at;
    return x->n;
}

static void read_place(const reader *r, const sx *x, kn_place *p)
{
    p->buffer = (i32)read_int(r, item(r, x, 0));
    p->at = read_affine(r, item(r, x, 1));
    p->rank = read_ints(r, item(r, x, 2), p->shape, KN_RANK);
    if (read_ints(r, item(r, x, 3), p->stride, KN_RANK) != p->rank)
        sx_throw(r->ctx, r->file, x, "as many strides as dims expected");
}

static u8 read_sub(const reader *r, const sx *x, u8 op)
{
    const char *text = x->kind == SX_LIST ? "" : x->text;
    if (op == KN_ew && ir_op_find(text) != IR_NO_OP)
        return (u8)ir_op_find(text);
    if (op == KN_dot)
        for (u8 i = 0; i < COUNT_OF(DOTS); i++)
            if (strcmp(DOTS[i], text) == 0)
                return i;
    if (op != KN_ew && op != KN_dot && ir_reducer_find(text) != IR_NO_REDUCER)
        return (u8)ir_reducer_find(text);
    sx_throw(r->ctx, r->file, x, "unknown name '%s'", text);
}

static f64 read_float(const reader *r, const sx *x)
{
    if (x->kind == SX_INT || x->kind == SX_FLOAT)
        return x->f;
    if (sx_is(x, "inf"))
        return (f64)INFINITY;
    if (sx_is(x, "-inf"))
        return -(f64)INFINITY;
    if (sx_is(x, "nan"))
        return (f64)NAN;
    sx_throw(r->ctx, r->file, x, "expected a number");
}

static void define(const reader *r, kn_ins *x, u32 number)
{
    if (number > 1 << 24)
        eqf_throw(r->ctx, EQF_E_LIMIT, r->file, NULL, "too many values");
    while (r->k->defs.n <= number)
        vec_push(r->a, &r->k->defs, NULL);
    r->k->defs.at[number] = x;
    x->out.i = number;
}

static void read_body(reader *r, const sx *x, i64 from, kn_body *body);

/* One `:key value`. */
static void read_field(reader *r, kn_ins *x, const sx *key, const sx *v)
{
    if (sx_is(key, ":sub")) {
        x->sub = read_sub(r, v, x->op);
    } else if (sx_is(key, ":f")) {
        x->f = read_float(r, v);
    } else if (sx_is(key, ":i")) {
        x->i = read_int(r, v);
    } else if (sx_is(key, ":buffer")) {
        x->buffer = (i32)read_int(r, v);
    } else if (sx_is(key, ":at")) {
        x->at = read_affine(r, v);
    } else if (sx_is(key, ":stride")) {
        read_ints(r, v, x->stride, KN_RANK);
    } else if (sx_is(key, ":live")) {
        for (i64 d = 0; d < (x->op == KN_dot ? KN_RANK : x->rank); d++) {
            const sx *one = item(r, v, d);
            x->live[d].end = read_int(r, item(r, one, 0));
            x->live[d].start = read_affine(r, item(r, one, 1));
        }
    } else if (sx_is(key, ":index")) {
        read_ints(r, v, x->index_stride, KN_INDICES);
    } else if (sx_is(key, ":extent")) {
        read_ints(r, v, x->index_extent, KN_INDICES);
    } else if (sx_is(key, ":places")) {
        kn_place *p = NEW_N(r->a, kn_place, 3);
        for (i64 i = 0; i < 3; i++)
            read_place(r, item(r, v, i), &p[i]);
        x->places = p;
    } else if (sx_is(key, ":axis")) {
        x->axis = read_int(r, v);
    } else if (sx_is(key, ":block")) {
        read_ints(r, v, x->block, 2);
    } else if (sx_is(key, ":perm")) {
        i64 perm[KN_RANK] = {0};
        read_ints(r, v, perm, KN_RANK);
        for (i64 d = 0; d < KN_RANK; d++)
            x->perm[d] = (u8)perm[d];
    } else if (sx_is(key, ":var")) {
        x->var.i = (u32)read_int(r, v);
        r->k->var_count = MAX(r->k->var_count, x->var.i);
    } else if (sx_is(key, ":from")) {
        x->from = read_affine(r, v);
    } else if (sx_is(key, ":range")) {
        i64 range[3] = {0, 0, 0};
        read_ints(r, v, range, 3);
        x->count = range[0];
        x->step = range[1];
        x->end = range[2];
    } else if (sx_is(key, ":spans")) {
        kn_span *spans = NEW_N(r->a, kn_span, v->n + 1);
        for (i64 i = 0; i < v->n; i++) {
            const sx *one = item(r, v, i);
            spans[i] = (kn_span){read_affine(r, item(r, one, 0)), read_affine(r, item(r, one, 1))};
        }
        x->spans = spans;
        x->span_count = v->n;
    } else if (sx_is(key, ":carried") || sx_is(key, ":yield")) {
        const kn_value **to = sx_is(key, ":yield") ? &x->yield : &x->carried;
        if (read_values(r, v, to) != x->arg_count)
            sx_throw(r->ctx, r->file, v, "as many values as operands expected");
    } else {
        sx_throw(r->ctx, r->file, key, "unknown field");
    }
}

static void read_carried(reader *r, kn_ins *x)
{
    for (i64 i = 0; i < x->arg_count; i++) {
        kn_ins *c = NEW(r->a, kn_ins);
        c->op = KN_carry;
        c->buffer = -1;
        c->axis = i;
        c->var = x->var;
        u32 init = x->args[i].i;
        if (init < (u32)r->k->defs.n && r->k->defs.at[init]) {
            const kn_ins *d = r->k->defs.at[init];
            c->dtype = d->dtype;
            c->rank = d->rank;
            memcpy(c->shape, d->shape, sizeof c->shape);
        }
        define(r, c, x->carried[i].i);
        vec_push(r->a, &x->body, c);
    }
}

static void read_ins(reader *r, const sx *x, kn_body *body)
{
    kn_ins *y = NEW(r->a, kn_ins);
    y->buffer = -1;
    const sx *name = item(r, x, 0);
    for (u8 op = 1; op < KN_OP_COUNT; op++)
        if (sx_is(name, OPS[op].name))
            y->op = op;
    if (y->op == KN_NO_OP || y->op == KN_carry)
        sx_throw(r->ctx, r->file, x, "unknown operation");
    const sx *type = item(r, x, 2);
    if (!sx_is(type, "-")) {
        y->dtype = (u8)dtype_find(type->kind == SX_SYMBOL ? type->text : "");
        if (y->dtype == DT_NONE)
            sx_throw(r->ctx, r->file, type, "unknown dtype");
    }
    y->rank = (u8)read_ints(r, item(r, x, 3), y->shape, KN_RANK);
    y->arg_count = read_values(r, item(r, x, 4), &y->args);
    i64 i = 5;
    for (; i < x->n && x->at[i]->kind == SX_SYMBOL; i += 2)
        read_field(r, y, x->at[i], item(r, x, i + 1));
    vec_push(r->a, body, y);
    bool has_result = OPS[y->op].result[0] == 'V';
    if (has_result != !sx_is(x->at[1], "-"))
        sx_throw(r->ctx, r->file, x->at[1], has_result ? "a result expected" : "no result expected");
    if (has_result)
        define(r, y, read_name(r, x->at[1], 'v', INT32_MAX));
    if (y->op == KN_loop) {
        if (!y->carried || !y->yield)
            sx_throw(r->ctx, r->file, x, "a loop needs :carried and :yield");
        read_carried(r, y);
        read_body(r, x, i, &y->body);
    } else if (i < x->n) {
        sx_throw(r->ctx, r->file, x->at[i], "expected a field");
    }
}

static void read_body(reader *r, const sx *x, i64 from, kn_body *body)
{
    for (i64 i = from; i < x->n; i++)
        read_ins(r, x->at[i], body);
}

kn_kernel *kn_read(arena *a, const char *file, const char *text, i64 n)
{
    sx *all = sx_read(a, file, text, n);
    reader r = {a, arena_ctx(a), file, NEW(a, kn_kernel)};
    kn_kernel *k = r.k;
    if (all->n != 1 || !sx_is_form(all->at[0], "kernel"))
        sx_throw(r.ctx, file, all, "expected one (kernel ...)");
    const sx *x = all->at[0];
    const sx *name = item(&r, x, 1), *buffers = item(&r, x, 2), *grid = item(&r, x, 3);
    if (name->kind != SX_SYMBOL)
        sx_throw(r.ctx, file, name, "expected the kernel's name");
    k->name = arena_strdup(a, name->text);
    k->origin = "";
    vec_push(a, &k->defs, NULL);
    if (!sx_is_form(buffers, "buffers") || !sx_is_form(grid, "grid"))
        sx_throw(r.ctx, file, x, "expected (buffers ...) and (grid ...)");
    for (i64 i = 1; i < buffers->n; i++) {
        const sx *b = buffers->at[i];
        const sx *access = item(&r, b, 0), *type = item(&r, b, 1);
        kn_buffer y = {.access = 255, .count = read_int(&r, item(&r, b, 2))};
        for (u8 j = 0; j < COUNT_OF(ACCESS); j++)
            if (sx_is(access, ACCESS[j]))
                y.access = j;
        y.dtype = (u8)dtype_find(type->kind == SX_SYMBOL ? type->text : "");
        if (y.access == 255 || y.dtype == DT_NONE)
            sx_throw(r.ctx, file, b, "expected (access dtype count)");
        vec_push(a, &k->buffers, y);
    }
    for (i64 i = 1; i < grid->n; i++)
        vec_push(a, &k->grid, read_int(&r, grid->at[i]));
    k->var_count = (u32)k->grid.n;
    read_body(&r, x, 4, &k->body);
    return k;
}
