/* Kernel IR as C: kernels and the translation unit.
 *
 * A region is printed operation by operation, groups of pointwise operations (c_plan.c) as loop
 * nests (c_nest.c), dots as register tiles (c_dot.c). The preamble holds what the kernels use and
 * nothing else.
 *
 * Identifiers: bN buffers, gN grid and loop variables, vN scalars, tN arrays, lN lanes, nN live
 * lanes; in dots c x y s. */
#include <stdio.h>

#include "codegen/c_parts.h"

/* ---- reductions, loops, sorting ---------------------------------------------------------------- */

/* May lanes be combined in another order? */
static bool c_is_regrouped(const kn_ins *x)
{
    return x->sub == IR_SUM || x->sub == IR_PROD || x->sub == IR_MAX || x->sub == IR_MIN;
}

enum { FEWEST_LANES = 4 };

/* Partial results of a row of n neighbours: as many as a vector has lanes, or so few that there are two each. */
static long long row_lanes(const c_printer *p, const kn_ins *x, long long n)
{
    long long lanes = p->vector_bytes / dtype_bytes(x->dtype);
    while (n < 2 * lanes && lanes > FEWEST_LANES)
        lanes /= 2;
    return lanes;
}

/* Rows of n neighbours each become one: partial results side by side, then those.
 * to: the scalar, NULL: the array of x. */
static void print_rows(c_printer *p, const kn_ins *x, const char *from, const char *to,
                       long long before, long long n)
{
    long long lanes = row_lanes(p, x, n), whole = n / lanes * lanes;
    if (!to)
        to = arena_printf(p->a, "t%u[j]", x->out.i ? p->values[x->out.i].storage : 0);
    c_line(p, "for (i64 j = 0; j < %lld; j++) {", before);
    c_line(p, "%s s[%lld];", c_type(x->dtype), lanes);
    c_line(p, "for (i64 l = 0; l < %lld; l++)", lanes);
    c_line(p, "    s[l] = %s[j * %lld + l];", from, n);
    c_line(p, "for (i64 k = %lld; k < %lld; k += %lld)", lanes, whole, lanes);
    c_line(p, "    for (i64 l = 0; l < %lld; l++)", lanes);
    char *next = arena_printf(p->a, "%s[j * %lld + k + l]", from, n);
    c_line(p, "        s[l] = %s;",
           c_narrow(p, x->dtype, c_combine(p, x->sub, x->dtype, "s[l]", next)));
    for (long long half = lanes / 2; half > 0; half /= 2) {
        c_line(p, "for (i64 l = 0; l < %lld; l++)", half);
        char *other = arena_printf(p->a, "s[l + %lld]", half);
        c_line(p, "    s[l] = %s;",
               c_narrow(p, x->dtype, c_combine(p, x->sub, x->dtype, "s[l]", other)));
    }
    for (long long k = whole; k < n; k++) {
        char *rest = arena_printf(p->a, "%s[j * %lld + %lld]", from, n, k);
        c_line(p, "s[0] = %s;",
               c_narrow(p, x->dtype, c_combine(p, x->sub, x->dtype, "s[0]", rest)));
    }
    c_line(p, "%s = s[0];", to);
    c_line(p, "}");
}

enum { BUNDLE = 8, MOST_BUNDLED = 512 };

/* Columns: BUNDLE partial results side by side, then those in pairs, since the error of a sum grows
 * with the longest chain of additions. */
static void print_columns(c_printer *p, const kn_ins *x, const char *from, long long before,
                          long long n, long long after)
{
    long long whole = n / BUNDLE * BUNDLE, size = BUNDLE * after;
    u32 to = p->values[x->out.i].storage;
    c_line(p, "for (i64 j = 0; j < %lld; j++) {", before);
    c_line(p, "%s s[%lld];", c_type(x->dtype), size);
    c_line(p, "for (i64 l = 0; l < %lld; l++)", size);
    c_line(p, "    s[l] = %s[j * %lld + l];", from, n * after);
    c_line(p, "for (i64 k = %lld; k < %lld; k += %lld)", size, whole * after, size);
    c_line(p, "    for (i64 l = 0; l < %lld; l++)", size);
    char *next = arena_printf(p->a, "%s[j * %lld + k + l]", from, n * after);
    c_line(p, "        s[l] = %s;", c_combine(p, x->sub, x->dtype, "s[l]", next));
    for (long long k = whole; k < n; k++) {
        c_line(p, "for (i64 l = 0; l < %lld; l++)", after);
        next = arena_printf(p->a, "%s[j * %lld + %lld + l]", from, n * after, k * after);
        char *mine = arena_printf(p->a, "s[%lld + l]", (k - whole) * after);
        c_line(p, "    %s = %s;", mine, c_combine(p, x->sub, x->dtype, mine, next));
    }
    for (long long half = BUNDLE / 2; half > 0; half /= 2) {
        c_line(p, "for (i64 l = 0; l < %lld; l++)", half * after);
        next = arena_printf(p->a, "s[l + %lld]", half * after);
        c_line(p, "    s[l] = %s;", c_combine(p, x->sub, x->dtype, "s[l]", next));
    }
    c_line(p, "for (i64 l = 0; l < %lld; l++)", after);
    c_line(p, "    t%u[j * %lld + l] = s[l];", to, after);
    c_line(p, "}");
}

static void print_reduce(c_printer *p, const kn_ins *x)
{
    const kn_ins *of = kn_def(p->k, x->args[0]);
    const c_value *in = &p->values[x->args[0].i], *out = &p->values[x->out.i];
    if (out->home == C_NOWHERE)
        return;
    long long before = 1, after = 1, n = of->shape[x->axis];
    for (i64 d = 0; d < of->rank; d++) {
        if (d < x->axis)
            before *= of->shape[d];
        if (d > x->axis)
            after *= of->shape[d];
    }
    if (in->home == C_INLINE) {
        const char *value = c_inline(p, of);
        c_line(p, "%s r%u[%lld];", c_type(x->dtype), x->out.i, before * after * n);
        c_line(p, "for (i64 l = 0; l < %lld; l++)", before * after * n);
        c_line(p, "    r%u[l] = %s;", x->out.i, c_narrow(p, x->dtype, value));
    }
    char *from = in->home == C_INLINE ? arena_printf(p->a, "r%u", x->out.i)
                                      : arena_printf(p->a, "t%u", in->storage);
    bool scalar = out->home == C_SCALAR;
    if (scalar)
        c_line(p, "%s v%u = %s[0];", c_local_type(x->dtype), out->storage, from);
    if (after == 1 && n >= 2 * row_lanes(p, x, n) && c_is_regrouped(x)) {
        print_rows(p, x, from, scalar ? arena_printf(p->a, "v%u", out->storage) : NULL, before, n);
        return;
    }
    if (!scalar && after > 1 && after <= MOST_BUNDLED && n >= 2 * BUNDLE &&
        x->sub == IR_SUM && dtype_is_float(x->dtype)) {
        print_columns(p, x, from, before, n, after);
        return;
    }
    char *to = scalar ? arena_printf(p->a, "v%u", out->storage)
                      : arena_printf(p->a, "t%u[j * %lld + l]", out->storage, after);
    if (scalar) {
        c_line(p, "for (i64 k = 1; k < %lld; k++)", n);
        char *step = c_combine(p, x->sub, x->dtype, to, arena_printf(p->a, "%s[k]", from));
        c_line(p, "    %s = %s;", to, c_narrow(p, x->dtype, step));
        return;
    }
    c_line(p, "for (i64 j = 0; j < %lld; j++) {", before);
    c_line(p, "for (i64 l = 0; l < %lld; l++)", after);
    c_line(p, "    %s = %s[j * %lld + l];", to, from, n * after);
    c_line(p, "for (i64 k = 1; k < %lld; k++) {", n);
    c_line(p, "for (i64 l = 0; l < %lld; l++) {", after);
    char *next = arena_printf(p->a, "%s[j * %lld + k * %lld + l]", from, n * after, after);
    c_line(p, "%s = %s;", to, c_narrow(p, x->dtype, c_combine(p, x->sub, x->dtype, to, next)));
    c_line(p, "}");
    c_line(p, "}");
    c_line(p, "}");
}

static long long elements(const kn_ins *x)
{
    long long n = 1;
    for (i64 d = 0; d < x->rank; d++)
        n *= x->shape[d];
    return n;
}

/* to = from, both of the shape of `x`; nothing when they are one. */
static void print_copy(c_printer *p, const kn_ins *x, kn_value to, kn_value from)
{
    const c_value *t = &p->values[to.i], *f = &p->values[from.i];
    if (t->home == C_SCALAR) {
        char *text = c_operand(p, from, NULL);
        char *name = arena_printf(p->a, "v%u", t->storage);
        if (strcmp(text, name) != 0)
            c_line(p, "%s = %s;", name, c_narrow(p, x->dtype, text));
        return;
    }
    if (f->home == C_ARRAY && f->storage == t->storage)
        return;
    c_line(p, "for (i64 l = 0; l < %lld; l++)", elements(x));
    char *text = f->home == C_ARRAY ? arena_printf(p->a, "t%u[l]", f->storage)
                                    : c_operand(p, from, NULL);
    c_line(p, "    t%u[l] = %s;", t->storage, c_narrow(p, x->dtype, text));
}

static void print_body(c_printer *p, const kn_body *body);

/* Leaves the iteration out unless it meets a span: carried values stay what they are. */
static void print_spans(c_printer *p, const kn_ins *x)
{
    str meets = str_new(p->a);
    for (i64 i = 0; i < x->span_count; i++)
        str_printf(&meets, "%s(%s < g%u + %lld && %s > g%u)", i > 0 ? " || " : "",
                   c_affine(p, x->spans[i].low), x->var.i, (long long)x->step,
                   c_affine(p, x->spans[i].high), x->var.i);
    if (x->span_count > 0)
        c_line(p, "if (!(%s)) continue;", meets.at);
}

static void print_loop(c_printer *p, const kn_ins *x)
{
    for (i64 j = 0; j < x->arg_count; j++) {
        const kn_ins *c = kn_def(p->k, x->carried[j]);
        if (c->rank == 0)
            c_line(p, "%s v%u = %s;", c_local_type(c->dtype), c->out.i,
                   c_operand(p, x->args[j], NULL));
        else
            print_copy(p, c, x->carried[j], x->args[j]);
    }
    char *from = c_affine(p, x->from);
    unsigned v = x->var.i;
    str limit = str_new(p->a);
    if (x->from.n == 0) {
        i64 end = x->from.base + x->count * x->step;
        str_printf(&limit, "g%u < %lld", v, (long long)(x->end > 0 ? MIN(end, x->end) : end));
    } else {
        i64 end = x->count * x->step;
        str_printf(&limit, "g%u < %s + %lld", v, from, (long long)end);
        if (x->end > 0)
            str_printf(&limit, " && g%u < %lld", v, (long long)x->end);
    }
    if (x->step == 1)
        c_line(p, "for (i64 g%u = %s; %s; g%u++) {", v, from, limit.at, v);
    else
        c_line(p, "for (i64 g%u = %s; %s; g%u += %lld) {", v, from, limit.at, v,
               (long long)x->step);
    print_spans(p, x);
    print_body(p, &x->body);
    /* a carried value that ends as another one: through copies */
    bool crossed = false;
    for (i64 i = 0; i < x->arg_count; i++)
        for (i64 j = 0; j < x->arg_count; j++)
            crossed |= i != j && x->yield[i].i == x->carried[j].i;
    for (i64 j = 0; crossed && j < x->arg_count; j++) {
        const kn_ins *c = kn_def(p->k, x->carried[j]);
        c_line(p, "%s z%lld[%lld];", c_type(c->dtype), (long long)j, elements(c));
        if (c->rank == 0) {
            c_line(p, "z%lld[0] = %s;", (long long)j,
                   c_narrow(p, c->dtype, c_operand(p, x->yield[j], NULL)));
            continue;
        }
        const c_value *y = &p->values[x->yield[j].i];
        char *text = y->home == C_ARRAY ? arena_printf(p->a, "t%u[l]", y->storage)
                                        : c_operand(p, x->yield[j], NULL);
        c_line(p, "for (i64 l = 0; l < %lld; l++)", elements(c));
        c_line(p, "    z%lld[l] = %s;", (long long)j, c_narrow(p, c->dtype, text));
    }
    for (i64 j = 0; j < x->arg_count; j++) {
        const kn_ins *c = kn_def(p->k, x->carried[j]);
        if (!crossed) {
            print_copy(p, c, x->carried[j], x->yield[j]);
        } else if (c->rank == 0) {
            c_line(p, "v%u = z%lld[0];", c->out.i, (long long)j);
        } else {
            c_line(p, "for (i64 l = 0; l < %lld; l++)", elements(c));
            c_line(p, "    t%u[l] = z%lld[l];", p->values[c->out.i].storage, (long long)j);
        }
    }
    c_line(p, "}");
}

/* Bottom-up merge sort of positions; runs of one element, doubled. Keys are compared where they
 * lie; NaN is largest. */
static void print_sort(c_printer *p, const kn_ins *x)
{
    const kn_place *key = &x->places[0], *to = &x->places[1], *work = &x->places[2];
    dtype t = p->k->buffers.at[key->buffer].dtype;
    long long n = key->shape[0];
    c_line(p, "{");
    c_line(p, "const %s *key = %s;", c_type(t), c_address(p, key->buffer, key->at));
    c_line(p, "i64 *from = %s;", c_address(p, work->buffer, work->at));
    c_line(p, "i64 *to = from + %lld;", n);
    c_line(p, "for (i64 l = 0; l < %lld; l++)", n);
    c_line(p, "    from[l] = l;");
    c_line(p, "for (i64 run = 1; run < %lld; run *= 2) {", n);
    c_line(p, "for (i64 start = 0; start < %lld; start += 2 * run) {", n);
    c_line(p, "i64 middle = start + run < %lld ? start + run : %lld;", n, n);
    c_line(p, "i64 stop = middle + run < %lld ? middle + run : %lld;", n, n);
    c_line(p, "i64 l = start;");
    c_line(p, "i64 r = middle;");
    c_line(p, "for (i64 o = start; o < stop; o++) {");
    c_line(p, "int right = l >= middle;");
    c_line(p, "if (!right && r < stop) {");
    char *a = arena_printf(p->a, "key[from[l] * %lld]", (long long)key->stride[0]);
    char *b = arena_printf(p->a, "key[from[r] * %lld]", (long long)key->stride[0]);
    dtype wide = t == DT_f16 || t == DT_bf16 ? DT_f32 : t;
    c_line(p, "%s x = %s;", c_local_type(wide), c_cast(p, t, wide, a));
    c_line(p, "%s y = %s;", c_local_type(wide), c_cast(p, t, wide, b));
    if (dtype_is_float(t))
        c_line(p, x->axis ? "right = y > x || (y != y && x == x);"
                          : "right = y < x || (x != x && y == y);");
    else
        c_line(p, x->axis ? "right = y > x;" : "right = y < x;");
    c_line(p, "}");
    c_line(p, "to[o] = right ? from[r++] : from[l++];");
    c_line(p, "}");
    c_line(p, "}");
    c_line(p, "i64 *swap = from;");
    c_line(p, "from = to;");
    c_line(p, "to = swap;");
    c_line(p, "}");
    c_line(p, "i64 *out = %s;", c_address(p, to->buffer, to->at));
    c_line(p, "for (i64 l = 0; l < %lld; l++)", (long long)to->shape[0]);
    c_line(p, "    out[l * %lld] = from[l];", (long long)to->stride[0]);
    c_line(p, "}");
}

static void print_body(c_printer *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n;) {
        const kn_ins *x = body->at[i];
        i64 group = p->group_of[x->number];
        i64 stop = i + 1;
        if (group != 0) {
            while (stop < body->n && p->group_of[body->at[stop]->number] == group)
                stop++;
            c_group(p, (const kn_ins *const *)&body->at[i], stop - i);
        } else {
            switch (x->op) {
            case KN_loop: print_loop(p, x); break;
            case KN_reduce: print_reduce(p, x); break;
            case KN_dot:
                c_dot(p, x);
                stop += p->values[x->out.i].stored != NULL;
                break;
            case KN_sort: print_sort(p, x); break;
            case KN_carry:
            case KN_ref:
            case KN_get: break;
            default: c_scalar(p, x); break;
            }
        }
        i = stop;
    }
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static i64 number_operations(const kn_body *body, i64 n)
{
    for (i64 i = 0; i < body->n; i++) {
        body->at[i]->number = n++;
        n = number_operations(&body->at[i]->body, n);
    }
    return n;
}

static bool can_fail(const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->op == KN_gather || x->op == KN_put || kn_divides(x) || can_fail(&x->body))
            return true;
    }
    return false;
}

static bool uses_buffer(const kn_body *body, i32 b)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->buffer == b || uses_buffer(&x->body, b))
            return true;
        for (i64 j = 0; x->places && j < 3; j++)
            if (x->places[j].buffer == b)
                return true;
    }
    return false;
}

/* Does the text [from, end) contain the identifier gN? */
static bool mentions(const char *text, unsigned n)
{
    char name[16];
    snprintf(name, sizeof name, "g%u", n);
    size_t length = strlen(name);
    for (const char *c = text; (c = strstr(c, name)) != NULL; c += length) {
        bool starts = c == text || !(c[-1] == '_' || (c[-1] >= '0' && c[-1] <= '9') ||
                                     (c[-1] >= 'a' && c[-1] <= 'z'));
        bool ends = !(c[length] >= '0' && c[length] <= '9') && c[length] != '_';
        if (starts && ends)
            return true;
    }
    return false;
}

static void print_kernel(c_printer *p, const kn_kernel *k)
{
    p->k = k;
    p->values = NEW_N(p->a, c_value, k->defs.n);
    p->group_count = 0;
    p->group_of = NEW_N(p->a, i64, number_operations(&k->body, 0) + 1);
    c_plan(p);

    str whole = p->s;
    p->s = str_new(p->a);
    p->indent = 2;
    print_body(p, &k->body);
    str body = p->s;
    str_add(&body, "");
    p->s = whole;

    p->indent = 0;
    str_add(&p->s, "\n");
    if (k->origin && k->origin[0])
        c_line(p, "/* %s */", k->origin);
    c_line(p, "int %s(void *const *buf, i64 p0, i64 p1)", k->name);
    c_line(p, "{");
    i64 argument = 0;
    for (i32 i = 0; i < (i32)k->buffers.n; i++) {
        const kn_buffer *b = &k->buffers.at[i];
        if (b->access == KN_LOCAL)
            continue;
        if (uses_buffer(&k->body, i))
            c_line(p, "%s%s *restrict b%d = buf[%lld];", b->access == KN_IN ? "const " : "",
                   c_type(b->dtype), i, (long long)argument);
        argument++;
    }
    if (argument == 0)
        c_line(p, "(void)buf;");
    for (dtype t = DT_f32; t <= DT_f64; t++) {
        i64 bits = 8 * dtype_bytes(t);
        if (!strstr(body.at, arena_printf(p->a, "none_%s", c_type(t))))
            continue;
        c_line(p, "u%lld minus_%s = (u%lld)1 << %lld;", (long long)bits, c_type(t), (long long)bits,
               (long long)bits - 1);
        c_line(p, "__asm__(\"\" : \"+r\"(minus_%s));", c_type(t));
        c_line(p, "const %s none_%s = %s_bits(minus_%s);", c_type(t), c_type(t), c_type(t), c_type(t));
    }
    bool tiled = strstr(body.at, "dot_tiles(") != NULL;
    if (tiled)
        c_line(p, "tile_state tiles = {.rows = 0};");
    c_line(p, "for (i64 p = p0; p < p1; p++) {");
    i64 below = 1;
    for (i64 g = k->grid.n - 1; g >= 0; g--) {
        i64 extent = k->grid.at[g];
        if (mentions(body.at, (unsigned)g + 1)) {
            char *part = below == 1 ? "p" : arena_printf(p->a, "p / %lld", (long long)below);
            if (g == 0)
                c_line(p, "i64 g%lld = %s;", (long long)g + 1, part);
            else
                c_line(p, "i64 g%lld = %s %% %lld;", (long long)g + 1, part, (long long)extent);
        }
        below *= extent;
    }
    bool fails = can_fail(&k->body);
    if (fails)
        c_line(p, "int bad = 0;");
    for (i32 i = 0; i < (i32)k->buffers.n; i++)
        if (k->buffers.at[i].access == KN_LOCAL && uses_buffer(&k->body, i))
            c_line(p, "%s b%d[%lld] __attribute__((aligned(64)));",
                   c_type(k->buffers.at[i].dtype), i, (long long)k->buffers.at[i].count);
    for (u32 v = 1; v < (u32)k->defs.n; v++)
        if (p->values[v].home == C_ARRAY && p->values[v].storage == v)
            c_line(p, "%s t%u[%lld] __attribute__((aligned(64)));", c_type(k->defs.at[v]->dtype),
                   v, elements(k->defs.at[v]));
    str_add(&p->s, body.at);
    p->indent = 2;
    if (fails) {
        c_line(p, "if (bad) {");
        if (tiled)
            c_line(p, "leave_tiles(&tiles);");
        c_line(p, "return (int)(p + 1);");
        c_line(p, "}");
    }
    c_line(p, "}");
    if (tiled)
        c_line(p, "leave_tiles(&tiles);");
    c_line(p, "return 0;");
    c_line(p, "}");
}

/* ---- the translation unit ---------------------------------------------------------------------- */

typedef struct helper {
    const char *name, *text;
} helper;

static const helper HELPERS[] = {
#define HELPER(name, ...) {#name, #__VA_ARGS__},
#include "codegen/c_helpers.def"
#undef HELPER
};

static bool is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void find_helpers(const char *text, bool *used)
{
    for (const char *c = text; *c;) {
        if (!is_word(*c)) {
            c++;
            continue;
        }
        const char *stop = c;
        while (is_word(*stop))
            stop++;
        for (i64 i = 0; i < COUNT_OF(HELPERS); i++) {
            const char *name = HELPERS[i].name;
            if (!used[i] && strlen(name) == (size_t)(stop - c) &&
                memcmp(name, c, (size_t)(stop - c)) == 0) {
                used[i] = true;
                find_helpers(HELPERS[i].text, used);
            }
        }
        c = stop;
    }
}

/* The stringified definition, a line a statement. */
static void print_helper(c_printer *p, const char *text)
{
    str line = str_new(p->a);
    i64 parens = 0;
    bool table = strstr(text, "[24]") != NULL;
    for (const char *c = text; *c; c++) {
        if (line.n == 0 && *c == ' ')
            continue;
        str_add_char(&line, *c);
        parens += (*c == '(') - (*c == ')');
        bool initializer = *c == '{' && c - 2 >= text && c[-2] == '=';
        if (initializer)
            parens++;
        if (*c == '}' && parens > 0) {
            parens--;
            continue;
        }
        bool aggregate = strncmp(line.at, "union", 5) == 0;
        if (parens == 0 && !table && !aggregate && (*c == '{' || *c == ';' || *c == '}')) {
            c_line(p, "%s", line.at);
            line = str_new(p->a);
        }
        if (aggregate && parens == 0 && *c == ';' && strstr(line.at, "}") && c[1] == ' ' &&
            strstr(line.at, "= {")) {
            c_line(p, "%s", line.at);
            line = str_new(p->a);
        }
    }
    if (line.n > 0)
        c_line(p, "%s", line.at);
}

/* Half vectors to f32 where the target has an instruction that the compiler does not find. */
static const struct {
    dtype type;
    i64 lanes;
    const char *when, *value;
} WIDENINGS[] = {
    {DT_f16, 8, "defined(__F16C__)",
     "__builtin_ia32_vcvtph2ps256((short __attribute__((vector_size(16))))(h))"},
    /* the mask is signed in one compiler and not in the other; 4: rounds as it is set */
    {DT_f16, 16, "defined(__AVX512F__) && defined(__clang__)",
     "__builtin_ia32_vcvtph2ps512_mask((short __attribute__((vector_size(32))))(h), (f32x16){0}, "
     "(u16)-1, 4)"},
    {DT_f16, 16, "defined(__AVX512F__)",
     "__builtin_ia32_vcvtph2ps512_mask((short __attribute__((vector_size(32))))(h), (f32x16){0}, "
     "-1, 4)"},
    {DT_bf16, 16, "defined(__AVX512F__) && !defined(__clang__)", /* gcc 12 widens in halves */
     "((u32x16)__builtin_ia32_pmovzxwd512_mask((short __attribute__((vector_size(32))))(h), "
     "(int __attribute__((vector_size(64)))){0}, -1) << 16)"},
};

static void print_widening(c_printer *p, dtype t, i64 log2)
{
    if (!p->vectors[t * C_LANES + log2])
        return;
    long long lanes = 1 << log2;
    if (t == DT_bf16 || !p->vectors[DT_bf16 * C_LANES + log2])
        c_line(p, "typedef u32 u32x%lld __attribute__((vector_size(%lld)));", lanes, lanes * 4);
    i64 rows = 0;
    for (i64 i = 0; i < COUNT_OF(WIDENINGS); i++) {
        if (WIDENINGS[i].type != t || WIDENINGS[i].lanes != lanes)
            continue;
        c_line(p, rows++ ? "#elif %s" : "#if %s", WIDENINGS[i].when);
        c_line(p, "#define widen_%sx%lld(h) ((f32x%lld)%s)", dtype_name(t), lanes, lanes,
               WIDENINGS[i].value);
    }
    if (rows > 0)
        c_line(p, "#else");
    if (t == DT_bf16) {
        c_line(p, "#define widen_bf16x%lld(h) ((f32x%lld)(__builtin_convertvector(h, u32x%lld) << 16))",
               lanes, lanes, lanes);
    } else {
        c_line(p, "#define widen_f16x%lld(h) ({ u32x%lld w_ = __builtin_convertvector(h, u32x%lld); \\",
               lanes, lanes, lanes);
        c_line(p, "    u32x%lld m_ = (u32x%lld)((f32x%lld)((w_ & 0x7fffu) << 13) * 0x1p112f); \\",
               lanes, lanes, lanes);
        c_line(p, "    m_ |= (u32x%lld)((w_ & 0x7c00u) == 0x7c00u) & 0x7f800000u; \\", lanes);
        c_line(p, "    (f32x%lld)(m_ | ((w_ & 0x8000u) << 16)); })", lanes);
    }
    if (rows > 0)
        c_line(p, "#endif");
}

/* The parts from `from` on, `count` lanes each, of the first `parts` equal parts of x and of y. */
static const char *parts_of(c_printer *p, i64 lanes, i64 parts, i64 from, i64 count)
{
    str s = str_new(p->a);
    for (i64 i = 0; i < 2 * parts; i++)
        for (i64 k = 0; k < count; k++)
            str_printf(&s, ", %lld", (long long)(i * (lanes / parts) + from + k));
    return str_text(&s);
}

/* Every lane of s_ becomes the sum of the `width` lanes of its part. */
static void print_sums_within(c_printer *p, i64 lanes, i64 width)
{
    for (i64 step = width / 2; step >= 1; step /= 2) {
        str order = str_new(p->a);
        for (i64 i = 0; i < lanes; i++)
            str_printf(&order, ", %lld", (long long)(i / width * width + (i % width + step) % width));
        c_line(p, "    s_ += __builtin_shufflevector(s_, s_%s); \\", str_text(&order));
    }
}

/* The sums across the lanes of four vectors, as a vector of four: halves of two are added side by side,
 * then quarters of all. */
static void print_four_sums(c_printer *p, const char *name, i64 lanes)
{
    i64 half = lanes / 2, q = lanes / 4;
    c_line(p, "#define sum4_%s(a, b, c, d) ({ \\", name);
    for (i64 i = 0; i < 2; i++)
        c_line(p, "    %s %s_ = __builtin_shufflevector(%s%s) + __builtin_shufflevector(%s%s); \\", name,
               i ? "y" : "x", i ? "c, d" : "a, b", parts_of(p, lanes, 1, 0, half), i ? "c, d" : "a, b",
               parts_of(p, lanes, 1, half, half));
    c_line(p, "    %s s_ = __builtin_shufflevector(x_, y_%s) + __builtin_shufflevector(x_, y_%s); \\", name,
           parts_of(p, lanes, 2, 0, q), parts_of(p, lanes, 2, q, q));
    print_sums_within(p, lanes, q);
    c_line(p, "    __builtin_shufflevector(s_, s_, 0, %lld, %lld, %lld); })", (long long)q, (long long)(2 * q),
           (long long)(3 * q));
}

static void print_vectors(c_printer *p, const char *body)
{
    for (dtype t = DT_i8; t < DT_COUNT; t++)
        for (i64 log2 = 1; log2 < C_LANES; log2++) {
            if (!p->vectors[t * C_LANES + log2])
                continue;
            long long lanes = 1 << log2, bytes = lanes * dtype_bytes(t);
            bool half = t == DT_f16 || t == DT_bf16;
            char *name = half ? arena_printf(p->a, "%sx%lld", dtype_name(t), lanes)
                              : arena_printf(p->a, "%sx%lld", c_type(t), lanes);
            c_line(p, "typedef %s %s __attribute__((vector_size(%lld)));", c_type(t), name, bytes);
            c_line(p, "typedef %s %s_at __attribute__((vector_size(%lld), aligned(%lld), may_alias));",
                   c_type(t), name, bytes, (long long)dtype_bytes(t));
        }
    /* macros: a vector wider than the target's is no argument of a function */
    for (i64 log2 = 1; log2 < C_LANES; log2++) {
        long long lanes = 1 << log2;
        for (dtype t = DT_f32; t <= DT_f64; t++) {
            char *name = arena_printf(p->a, "%sx%lld", c_type(t), lanes);
            if (strstr(body, arena_printf(p->a, "sum4_%s(", name)))
                print_four_sums(p, name, lanes);
            if (!strstr(body, arena_printf(p->a, "sum_%s(", name)))
                continue;
            c_line(p, "#define sum_%s(x) ({ %s s_ = (x); \\", name, name);
            print_sums_within(p, lanes, lanes);
            c_line(p, "    s_[0]; })");
        }
        print_widening(p, DT_bf16, log2);
        print_widening(p, DT_f16, log2);
    }
}

void cg_c(str *out, eqf_ctx *ctx, kn_kernel *const *kernels, i64 n, i64 vector_bytes)
{
    arena *a = arena_child(out->a);
    c_printer p = {.a = a, .ctx = ctx, .vector_bytes = vector_bytes, .s = str_new(a)};
    p.vectors = NEW_N(a, bool, DT_COUNT * C_LANES);
    for (i64 i = 0; i < n; i++)
        print_kernel(&p, kernels[i]);
    str body = p.s;
    str_add(&body, "");

    bool used[COUNT_OF(HELPERS)] = {false};
    find_helpers(body.at, used);
    find_helpers(c_tiles_preamble(body.at), used);
    p.s = str_new(a);
    p.indent = 0;
    str_add(&p.s, "typedef unsigned char u8;\n"
                  "typedef unsigned short u16;\n"
                  "typedef unsigned int u32;\n"
                  "typedef unsigned long long u64;\n"
                  "typedef signed char i8;\n"
                  "typedef int i32;\n"
                  "typedef long long i64;\n"
                  "typedef float f32;\n"
                  "typedef double f64;\n");
    if (strstr(body.at, "LIBM_f"))
        str_add(&p.s, "#define LIBM_f32(name) __builtin_##name##f\n"
                      "#define LIBM_f64(name) __builtin_##name\n");
    if (strstr(body.at, "MAX_f"))
        str_add(&p.s, "#define MAX_f32 __FLT_MAX__\n"
                      "#define MAX_f64 __DBL_MAX__\n");
    static const char *const LIBM[] = {"exp",  "exp2", "expm1", "log",   "log2",  "log10", "log1p",
                                       "tanh", "sinh", "cosh",  "asinh", "acosh", "atanh", "erf",
                                       "sin",  "cos",  "tan",   "asin",  "acos",  "atan",  "atan2", "pow"};
    for (i64 i = 0; i < COUNT_OF(LIBM); i++)
        if (strstr(body.at, arena_printf(a, "%s_f64(", LIBM[i])))
            c_line(&p, "#define %s_f64 __builtin_%s", LIBM[i], LIBM[i]);
    if (strstr(body.at, "PIN(")) { /* only where a register holds so much */
        str_add(&p.s, "#if defined(__AVX512F__)\n"
                      "#define PIN(x) __asm__(\"\" : \"+v\"(x))\n");
        if (vector_bytes <= 32)
            c_line(&p, "#elif defined(%s)\n#define PIN(x) __asm__(\"\" : \"+x\"(x))",
                   vector_bytes == 32 ? "__AVX__" : "__SSE2__");
        if (vector_bytes <= 16)
            str_add(&p.s, "#elif defined(__aarch64__)\n"
                          "#define PIN(x) __asm__(\"\" : \"+w\"(x))\n");
        str_add(&p.s, "#else\n"
                      "#define PIN(x) (void)0\n"
                      "#endif\n");
    }
    print_vectors(&p, body.at);
    for (i64 i = 0; i < COUNT_OF(HELPERS); i++)
        if (used[i])
            print_helper(&p, HELPERS[i].text);
    str_add(&p.s, c_tiles_preamble(body.at));
    str_add(out, str_text(&p.s));
    str_add(out, body.at);
    arena_free(a);
}
