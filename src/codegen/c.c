/* Kernel IR as C.
 *
 * A region is printed operation by operation. Consecutive pointwise operations on tiles of one
 * shape are a *group*: one loop nest over the lanes, with the values inside it as scalars, which
 * compilers turn into vector code. A tile that leaves its group is a small array. Carried tiles are
 * updated in place where every use of the old value is in the group that makes the new one, or
 * before it. Constants and broadcast scalars are written where they are used.
 *
 * Identifiers: bN buffers, iN grid and loop variables, vN scalars, tN arrays, lN lanes, nN live
 * lanes; in dots c x y s. */
#include <stdio.h>

#include "codegen/c_parts.h"

/* ---- analysis -------------------------------------------------------------------------------- */

static bool is_lanewise(const kn_ins *x)
{
    if (x->rank == 0)
        return false;
    switch (x->op) {
    case KN_load: case KN_gather: case KN_store: case KN_put: case KN_const: case KN_iota:
    case KN_cast: case KN_ew: case KN_state: case KN_bcast: case KN_trans: case KN_combine:
        return true;
    default:
        return false;
    }
}

static bool same_shape(const kn_ins *a, const kn_ins *b)
{
    if (a->rank != b->rank)
        return false;
    for (i64 d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

static bool is_inline(const c_printer *p, const kn_ins *x)
{
    return x->op == KN_const || x->op == KN_state ||
           (x->op == KN_bcast && kn_def(p->k, x->args[0])->rank == 0);
}

static bool same_affine(kn_affine a, kn_affine b)
{
    if (a.base != b.base || a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (a.at[i].var.i != b.at[i].var.i || a.at[i].coef != b.at[i].coef)
            return false;
    return true;
}

static bool is_memory(const kn_ins *x)
{
    return x->op == KN_load || x->op == KN_gather || x->op == KN_store || x->op == KN_put;
}

/* Would running x lane by lane together with the operations [from, to) of the body change what one
 * of them reads? */
static bool conflicts(const kn_body *body, i64 from, i64 to, const kn_ins *x)
{
    if (!is_memory(x))
        return false;
    for (i64 i = from; i < to; i++) {
        const kn_ins *y = body->at[i];
        bool stores = x->op == KN_store || x->op == KN_put || y->op == KN_store ||
                      y->op == KN_put;
        if (!is_memory(y) || y->buffer != x->buffer || !stores)
            continue;
        bool same = x->op != KN_gather && x->op != KN_put && y->op != KN_gather &&
                    y->op != KN_put && same_affine(x->at, y->at);
        for (i64 d = 0; d < x->rank && same; d++)
            same = x->stride[d] == y->stride[d];
        if (!same)
            return true;
    }
    return false;
}

/* Numbers groups, counts uses, finds values that leave their group. */
static void find_groups(c_printer *p, const kn_body *body)
{
    const kn_ins *last = NULL;
    i64 first = 0; /* operation of the group */
    for (i64 i = 0; i < body->n; i++) {
        kn_ins *x = body->at[i];
        i64 group = 0;
        if (is_lanewise(x)) {
            if (!last || !same_shape(last, x) || conflicts(body, first, i, x)) {
                p->group_count++;
                first = i;
            }
            group = p->group_count;
        }
        last = group ? x : NULL;
        if (x->out.i)
            p->values[x->out.i].group = group;
        for (i64 j = 0; j < x->arg_count; j++) {
            c_value *v = &p->values[x->args[j].i];
            v->uses++;
            bool other_place = x->op == KN_trans || x->op == KN_bcast;
            if (other_place && v->group == group && kn_def(p->k, x->args[j])->rank > 0) {
                p->group_count++; /* its operand must be complete: start a new group */
                group = p->group_count;
                first = i;
                p->values[x->out.i].group = group;
            }
            if (v->group != group || group == 0)
                v->escapes = true;
        }
        p->group_of[x->number] = group;
        if (x->op == KN_loop) {
            find_groups(p, &x->body);
            for (i64 j = 0; j < x->arg_count; j++) {
                p->values[x->yield[j].i].uses++;
                p->values[x->yield[j].i].escapes = true;
            }
        }
    }
}

/* A dot whose only use is the whole, contiguous store that follows it. */
static void find_stored(c_printer *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        find_stored(p, &x->body);
        if (x->op != KN_dot || p->values[x->out.i].uses != 1 || i + 1 == body->n)
            continue;
        const kn_ins *s = body->at[i + 1];
        if (s->op == KN_store && s->args[0].i == x->out.i && s->dtype == x->dtype &&
            s->stride[1] == 1 && s->live[0].end == 0 && s->live[1].end == 0)
            p->values[x->out.i].stored = s;
    }
}

static void choose_homes(c_printer *p)
{
    for (i64 i = 1; i < p->k->defs.n; i++) {
        const kn_ins *x = p->k->defs.at[i];
        c_value *v = &p->values[i];
        v->storage = (u32)i;
        if (v->uses == 0 && x->op != KN_gather && x->op != KN_get && x->op != KN_carry)
            v->home = C_NOWHERE;
        else if (x->op == KN_ref || v->stored)
            v->home = C_PLACE;
        else if (is_inline(p, x))
            v->home = C_INLINE;
        else if (x->rank == 0)
            v->home = C_SCALAR;
        else if (v->group != 0 && !v->escapes)
            v->home = C_LANE;
        else
            v->home = C_ARRAY;
    }
}

static bool uses_value(const kn_ins *x, kn_value v)
{
    for (i64 j = 0; j < x->arg_count; j++)
        if (x->args[j].i == v.i)
            return true;
    if (x->op == KN_loop) {
        for (i64 j = 0; j < x->arg_count; j++)
            if (x->yield[j].i == v.i)
                return true;
        for (i64 i = 0; i < x->body.n; i++)
            if (uses_value(x->body.at[i], v))
                return true;
    }
    return false;
}

/* May the value that ends as carried value j be computed into the carried value's own storage? */
static bool in_place(const c_printer *p, const kn_ins *loop, i64 j)
{
    kn_value y = loop->yield[j], c = loop->carried[j];
    const kn_ins *def = kn_def(p->k, y);
    if (p->values[y.i].home != C_ARRAY || p->values[y.i].storage != y.i)
        return false;
    for (i64 i = 0; i < loop->arg_count; i++)
        if (loop->yield[i].i == c.i || (i != j && loop->yield[i].i == y.i))
            return false;
    i64 place = -1;
    for (i64 i = 0; i < loop->body.n; i++)
        if (loop->body.at[i] == def)
            place = i;
    if (place < 0 || (p->values[y.i].group == 0 && def->op != KN_dot && def->op != KN_get))
        return false;
    if (def->op == KN_get) /* of an inner loop that carries it on */
        return false;
    for (i64 i = place + 1; i < loop->body.n; i++) {
        const kn_ins *x = loop->body.at[i];
        bool same_group = is_lanewise(x) && p->values[y.i].group != 0 && x->out.i != 0 &&
                          p->values[x->out.i].group == p->values[y.i].group;
        if (uses_value(x, c) && !same_group)
            return false;
    }
    return true;
}

/* Joins the storage of carried values, what they become, and the loop's results. */
static void share_storage(c_printer *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->op == KN_get) {
            for (i64 k = i - 1; k >= 0; k--)
                if (body->at[k]->op == KN_loop && body->at[k]->var.i == x->var.i) {
                    u32 c = body->at[k]->carried[x->axis].i;
                    p->values[x->out.i].storage = p->values[c].storage;
                    break;
                }
        }
        if (x->op != KN_loop)
            continue;
        for (i64 j = 0; j < x->arg_count; j++) {
            c_value *from = &p->values[x->args[j].i], *c = &p->values[x->carried[j].i];
            const kn_ins *def = kn_def(p->k, x->args[j]);
            bool own = def->op != KN_carry && def->op != KN_get;
            if (c->home == C_ARRAY && from->home == C_ARRAY && from->uses == 1 && own)
                c->storage = from->storage;
        }
        for (i64 j = 0; j < x->arg_count; j++)
            if (in_place(p, x, j))
                p->values[x->yield[j].i].storage = p->values[x->carried[j].i].storage;
        share_storage(p, &x->body);
    }
}

/* ---- loop nests over lanes ------------------------------------------------------------------- */

typedef struct nest {
    const kn_ins *const *at;
    i64 n, rank;
    const i64 *shape;
    i64 current;           /* the operation being printed; its address is aN */
    bool bounded[KN_RANK]; /* the loop ends where the live lanes do: no conditions inside */
    str late;              /* stores of values that leave the group, at the end of the body */
} nest;

static bool same_live(const kn_live *a, const kn_live *b)
{
    return a->end == b->end && same_affine(a->start, b->start);
}

/* All stores have one live bound in dim d, no other bound occurs, nothing leaves the group. */
static const kn_live *common_live(const c_printer *p, const nest *g, i64 d)
{
    const kn_live *found = NULL;
    for (i64 i = 0; i < g->n; i++) {
        const kn_ins *x = g->at[i];
        if (x->out.i && p->values[x->out.i].home == C_ARRAY)
            return NULL;
        if (!is_memory(x))
            continue;
        bool stores = x->op == KN_store || x->op == KN_put;
        if (x->live[d].end == 0) {
            if (stores)
                return NULL;
            continue;
        }
        if (found && !same_live(found, &x->live[d]))
            return NULL;
        found = &x->live[d];
    }
    return found;
}

/* Row-major index of the lane in an array of shape `of`, whose dim d runs along lane dim map[d]. */
static char *lane_index(c_printer *p, i64 rank, const i64 *stride, const u8 *map)
{
    str s = str_new(p->a);
    for (i64 d = 0; d < rank; d++) {
        if (stride[d] == 0)
            continue;
        i64 lane = map ? map[d] : d;
        if (s.n > 0)
            str_add(&s, " + ");
        if (stride[d] == 1)
            str_printf(&s, "l%lld", (long long)lane);
        else
            str_printf(&s, "l%lld * %lld", (long long)lane, (long long)stride[d]);
    }
    if (s.n == 0)
        str_add(&s, "0");
    return s.at;
}

static void dense_strides(const kn_ins *x, i64 *stride)
{
    i64 n = 1;
    for (i64 d = x->rank - 1; d >= 0; d--) {
        stride[d] = n;
        n *= x->shape[d];
    }
}

static char *inline_text(c_printer *p, const kn_ins *x);

/* The operand in the lane of the current nest; map as for lane_index. */
static char *operand(c_printer *p, kn_value v, const u8 *map)
{
    const kn_ins *d = kn_def(p->k, v);
    const c_value *c = &p->values[v.i];
    switch (c->home) {
    case C_INLINE:
        return inline_text(p, d);
    case C_SCALAR:
        return arena_printf(p->a, "v%u", c->storage);
    case C_LANE:
        return arena_printf(p->a, "v%u", v.i);
    default: {
        if (c->group != 0 && c->group == p->group)
            return arena_printf(p->a, "v%u", v.i);
        i64 stride[KN_RANK];
        dense_strides(d, stride);
        return arena_printf(p->a, "t%u[%s]", c->storage, lane_index(p, d->rank, stride, map));
    }
    }
}

static char *inline_text(c_printer *p, const kn_ins *x)
{
    if (x->op == KN_const)
        return c_number(p, x->dtype, x->f, x->i);
    if (x->op == KN_state)
        return c_identity(p, x->sub, x->dtype);
    return operand(p, x->args[0], NULL);
}

/* "l0 < n5_0 && ..." over the dims that are not bounded by the nest; NULL: always live. */
static char *live_text(c_printer *p, const nest *g, const kn_ins *x)
{
    str s = str_new(p->a);
    for (i64 d = 0; d < x->rank; d++) {
        if (x->live[d].end == 0 || (g && g->bounded[d]))
            continue;
        if (s.n > 0)
            str_add(&s, " && ");
        str_printf(&s, "l%lld < %lld - (%s)", (long long)d, (long long)x->live[d].end,
                   c_affine(p, x->live[d].start));
    }
    return s.n > 0 ? s.at : NULL;
}

static const char *local_type(dtype t)
{
    return t == DT_bool ? "int" : c_type(t);
}

/* Casts to the storage type where C's arithmetic is wider. */
static char *narrow(c_printer *p, dtype t, const char *text)
{
    if (t == DT_bool || t == DT_i8 || t == DT_f16 || t == DT_bf16)
        return arena_printf(p->a, "(%s)(%s)", c_type(t), text);
    return arena_strdup(p->a, text);
}

/* Checks index operands and returns the text of their contribution to the address. */
static char *index_text(c_printer *p, const kn_ins *x, i64 first)
{
    str s = str_new(p->a);
    for (i64 j = first; j < x->arg_count; j++) {
        i64 q = j - first;
        const char *value = operand(p, x->args[j], NULL);
        c_line(p, "i64 q%lld = %s;", (long long)q, value);
        c_line(p, "int w%lld = q%lld < 0 || q%lld >= %lld;", (long long)q, (long long)q,
               (long long)q, (long long)x->index_extent[q]);
        str_printf(&s, " + q%lld * %lld", (long long)q, (long long)x->index_stride[q]);
    }
    return s.n > 0 ? s.at : "";
}

/* The value of a lane-wise (or scalar) operation as an expression, statements printed before. */
static char *expression(c_printer *p, const nest *g, const kn_ins *x)
{
    switch (x->op) {
    case KN_load: {
        char *text = x->rank == 0
                         ? arena_printf(p->a, "b%d[%s]", x->buffer, c_affine(p, x->at))
                         : arena_printf(p->a, "a%lld[%s]", (long long)g->current,
                                        lane_index(p, x->rank, x->stride, NULL));
        char *live = live_text(p, g, x);
        if (live)
            return arena_printf(p->a, "%s ? %s : %s", live, text,
                                c_number(p, x->dtype, x->f, x->i));
        return text;
    }
    case KN_iota: {
        char *lanes = lane_index(p, x->rank, x->stride, NULL);
        return arena_printf(p->a, "%s + %s", c_affine(p, x->at), lanes);
    }
    case KN_cast:
        return c_cast(p, kn_def(p->k, x->args[0])->dtype, x->dtype,
                      operand(p, x->args[0], NULL));
    case KN_ew: {
        char *args[3];
        for (i64 j = 0; j < x->arg_count; j++)
            args[j] = operand(p, x->args[j], NULL);
        dtype of = kn_def(p->k, x->args[x->arg_count - 1])->dtype;
        return c_ew(p, x->sub, of, args);
    }
    case KN_combine:
        return c_combine(p, x->sub, x->dtype, operand(p, x->args[0], NULL),
                         operand(p, x->args[1], NULL));
    case KN_trans:
    case KN_bcast: {
        u8 map[KN_RANK] = {0};
        if (x->op == KN_trans)
            for (u8 d = 0; d < x->rank; d++)
                map[x->perm[d]] = d;
        else
            for (u8 d = 0; d + 1 < x->rank; d++)
                map[d] = (u8)(d < x->axis ? d : d + 1);
        return operand(p, x->args[0], map);
    }
    case KN_const:
    case KN_state:
        return inline_text(p, x);
    default:
        eqf_bug(p->ctx, "operation %u has no expression", x->op);
    }
}

static void print_gather(c_printer *p, const nest *g, const kn_ins *x, const char *name)
{
    c_line(p, "%s %s = %s;", local_type(x->dtype), name, c_number(p, x->dtype, x->f, x->i));
    char *live = live_text(p, g, x);
    c_line(p, live ? "if (%s) {" : "{", live);
    char *index = index_text(p, x, 0);
    str wrong = str_new(p->a);
    for (i64 j = 0; j < x->arg_count; j++)
        str_printf(&wrong, j > 0 ? " || w%lld" : "w%lld", (long long)j);
    char *lanes = lane_index(p, x->rank, x->stride, NULL);
    c_line(p, "if (%s)", wrong.at);
    c_line(p, "    bad = 1;");
    c_line(p, "else");
    c_line(p, "    %s = b%d[%s + %s%s];", name, x->buffer, c_affine(p, x->at), lanes, index);
    c_line(p, "}");
}

static void print_put(c_printer *p, const nest *g, const kn_ins *x)
{
    char *live = live_text(p, g, x);
    c_line(p, live ? "if (%s) {" : "{", live);
    char *index = index_text(p, x, 1);
    str wrong = str_new(p->a);
    str_add(&wrong, "0");
    for (i64 j = 1; j < x->arg_count; j++)
        str_printf(&wrong, " || w%lld", (long long)(j - 1));
    char *lanes = lane_index(p, x->rank, x->stride, NULL);
    c_line(p, "if (%s) {", wrong.at);
    c_line(p, "bad = 1;");
    c_line(p, "} else {");
    p->indent++;
    c_line(p, "%s *q = b%d + (%s + %s%s);", c_type(x->dtype), x->buffer, c_affine(p, x->at), lanes,
           index);
    char *value = operand(p, x->args[0], NULL);
    bool half = x->dtype == DT_f16 || x->dtype == DT_bf16;
    if (x->sub != IR_NO_REDUCER && half) {
        char *l = c_cast(p, x->dtype, DT_f32, "*q"), *r = c_cast(p, x->dtype, DT_f32, value);
        value = c_cast(p, DT_f32, x->dtype, c_combine(p, x->sub, DT_f32, l, r));
    } else if (x->sub != IR_NO_REDUCER) {
        value = c_combine(p, x->sub, x->dtype, "*q", value);
    }
    c_line(p, "*q = %s;", narrow(p, x->dtype, value));
    c_line(p, "}");
    c_line(p, "}");
}

/* An integer division: a divisor of 0 ends the kernel with an error. */
static bool divides(const kn_ins *x)
{
    return x->op == KN_ew && !dtype_is_float(x->dtype) &&
           (x->sub == IR_floordiv || x->sub == IR_truncdiv || x->sub == IR_mod ||
            x->sub == IR_fmod);
}

/* One operation inside the nest (g), or a scalar one (g NULL). */
static void print_lane(c_printer *p, nest *g, const kn_ins *x)
{
    if (x->op == KN_put) {
        print_put(p, g, x);
        return;
    }
    if (x->op == KN_store) {
        char *value = operand(p, x->args[0], NULL);
        char *live = live_text(p, g, x);
        if (live)
            c_line(p, "if (%s)", live);
        const char *indent = live ? "    " : "";
        if (x->rank == 0)
            c_line(p, "%sb%d[%s] = %s;", indent, x->buffer, c_affine(p, x->at),
                   narrow(p, x->dtype, value));
        else
            c_line(p, "%sa%lld[%s] = %s;", indent, (long long)g->current,
                   lane_index(p, x->rank, x->stride, NULL), narrow(p, x->dtype, value));
        return;
    }
    const c_value *v = &p->values[x->out.i];
    if (v->home == C_NOWHERE || v->home == C_INLINE || v->home == C_PLACE)
        return;
    char *name = arena_printf(p->a, "v%u", x->out.i);
    if (divides(x))
        c_line(p, "bad |= %s == 0;", operand(p, x->args[1], NULL));
    if (x->op == KN_gather) {
        print_gather(p, g, x, name);
        if (v->uses == 0)
            c_line(p, "(void)%s;", name);
    } else {
        c_line(p, "%s %s = %s;", local_type(x->dtype), name,
               x->dtype == DT_i8 ? narrow(p, x->dtype, expression(p, g, x))
                                 : expression(p, g, x));
    }
    if (v->home == C_ARRAY) {
        i64 stride[KN_RANK];
        dense_strides(x, stride);
        str_printf(&g->late, "t%u[%s] = %s;\n", v->storage,
                   lane_index(p, x->rank, stride, NULL), narrow(p, x->dtype, name));
    }
}

static void print_group(c_printer *p, const kn_ins *const *at, i64 n)
{
    const kn_ins *first = at[0];
    nest g = {.at = at, .n = n, .rank = first->rank, .shape = first->shape};
    bool any = false;
    for (i64 i = 0; i < n; i++)
        any |= !at[i]->out.i || at[i]->op == KN_gather ||
               (p->values[at[i]->out.i].home != C_INLINE &&
                p->values[at[i]->out.i].home != C_NOWHERE);
    if (!any)
        return;
    g.late = str_new(p->a);
    c_line(p, "{");
    for (i64 i = 0; i < n; i++) {
        const kn_ins *x = at[i];
        if (x->op == KN_load && p->values[x->out.i].home != C_NOWHERE)
            c_line(p, "const %s *a%lld = b%d + (%s);", c_type(x->dtype), (long long)i, x->buffer,
                   c_affine(p, x->at));
        else if (x->op == KN_store)
            c_line(p, "%s *a%lld = b%d + (%s);", c_type(x->dtype), (long long)i, x->buffer,
                   c_affine(p, x->at));
    }
    for (i64 d = 0; d < g.rank; d++) {
        const kn_live *live = common_live(p, &g, d);
        if (live) {
            g.bounded[d] = true;
            c_line(p, "i64 n%lld = %lld - (%s);", (long long)d, (long long)live->end,
                   c_affine(p, live->start));
            c_line(p, "n%lld = n%lld < %lld ? n%lld : %lld;", (long long)d, (long long)d,
                   (long long)g.shape[d], (long long)d, (long long)g.shape[d]);
        }
    }
    for (i64 d = 0; d < g.rank; d++) {
        char *end = g.bounded[d] ? arena_printf(p->a, "n%lld", (long long)d)
                                 : arena_printf(p->a, "%lld", (long long)g.shape[d]);
        c_line(p, "for (i64 l%lld = 0; l%lld < %s; l%lld++) {", (long long)d, (long long)d, end,
               (long long)d);
    }
    p->group = p->group_of[first->number];
    for (i64 i = 0; i < n; i++) {
        g.current = i;
        print_lane(p, &g, at[i]);
    }
    p->group = 0;
    for (const char *text = g.late.at; text && *text;) {
        const char *stop = strchr(text, '\n');
        c_line(p, "%.*s", (int)(stop - text), text);
        text = stop + 1;
    }
    for (i64 d = 0; d < g.rank; d++)
        c_line(p, "}");
    c_line(p, "}");
}

/* ---- reductions, loops, sorting ---------------------------------------------------------------- */

static void print_reduce(c_printer *p, const kn_ins *x)
{
    const kn_ins *of = kn_def(p->k, x->args[0]);
    const c_value *in = &p->values[x->args[0].i], *out = &p->values[x->out.i];
    long long before = 1, after = 1, n = of->shape[x->axis];
    for (i64 d = 0; d < of->rank; d++) {
        if (d < x->axis)
            before *= of->shape[d];
        if (d > x->axis)
            after *= of->shape[d];
    }
    if (in->home == C_INLINE) {
        const char *value = inline_text(p, of);
        c_line(p, "%s r%u[%lld];", c_type(x->dtype), x->out.i, before * after * n);
        c_line(p, "for (i64 l = 0; l < %lld; l++)", before * after * n);
        c_line(p, "    r%u[l] = %s;", x->out.i, narrow(p, x->dtype, value));
    }
    char *from = in->home == C_INLINE ? arena_printf(p->a, "r%u", x->out.i)
                                      : arena_printf(p->a, "t%u", in->storage);
    bool scalar = out->home == C_SCALAR;
    if (scalar)
        c_line(p, "%s v%u = %s[0];", local_type(x->dtype), out->storage, from);
    char *to = scalar ? arena_printf(p->a, "v%u", out->storage)
                      : arena_printf(p->a, "t%u[j * %lld + l]", out->storage, after);
    if (scalar) {
        c_line(p, "for (i64 k = 1; k < %lld; k++)", n);
        char *step = c_combine(p, x->sub, x->dtype, to, arena_printf(p->a, "%s[k]", from));
        c_line(p, "    %s = %s;", to, narrow(p, x->dtype, step));
        return;
    }
    c_line(p, "for (i64 j = 0; j < %lld; j++) {", before);
    c_line(p, "for (i64 l = 0; l < %lld; l++)", after);
    c_line(p, "    %s = %s[j * %lld + l];", to, from, n * after);
    c_line(p, "for (i64 k = 1; k < %lld; k++) {", n);
    c_line(p, "for (i64 l = 0; l < %lld; l++) {", after);
    char *next = arena_printf(p->a, "%s[j * %lld + k * %lld + l]", from, n * after, after);
    c_line(p, "%s = %s;", to, narrow(p, x->dtype, c_combine(p, x->sub, x->dtype, to, next)));
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
        char *text = operand(p, from, NULL);
        char *name = arena_printf(p->a, "v%u", t->storage);
        if (strcmp(text, name) != 0)
            c_line(p, "%s = %s;", name, narrow(p, x->dtype, text));
        return;
    }
    if (f->home == C_ARRAY && f->storage == t->storage)
        return;
    c_line(p, "for (i64 l = 0; l < %lld; l++)", elements(x));
    char *text = f->home == C_ARRAY ? arena_printf(p->a, "t%u[l]", f->storage)
                                    : operand(p, from, NULL);
    c_line(p, "    t%u[l] = %s;", t->storage, narrow(p, x->dtype, text));
}

static void print_body(c_printer *p, const kn_body *body);

static void print_loop(c_printer *p, const kn_ins *x)
{
    for (i64 j = 0; j < x->arg_count; j++) {
        const kn_ins *c = kn_def(p->k, x->carried[j]);
        if (c->rank == 0)
            c_line(p, "%s v%u = %s;", local_type(c->dtype), c->out.i,
                   operand(p, x->args[j], NULL));
        else
            print_copy(p, c, x->carried[j], x->args[j]);
    }
    char *from = c_affine(p, x->from);
    unsigned v = x->var.i;
    str limit = str_new(p->a);
    if (x->from.n == 0) {
        i64 end = x->from.base + x->count * x->step;
        str_printf(&limit, "i%u < %lld", v, (long long)(x->end > 0 ? MIN(end, x->end) : end));
    } else {
        i64 end = x->count * x->step;
        str_printf(&limit, "i%u < %s + %lld", v, from, (long long)end);
        if (x->end > 0)
            str_printf(&limit, " && i%u < %lld", v, (long long)x->end);
    }
    if (x->step == 1)
        c_line(p, "for (i64 i%u = %s; %s; i%u++) {", v, from, limit.at, v);
    else
        c_line(p, "for (i64 i%u = %s; %s; i%u += %lld) {", v, from, limit.at, v,
               (long long)x->step);
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
                   narrow(p, c->dtype, operand(p, x->yield[j], NULL)));
            continue;
        }
        const c_value *y = &p->values[x->yield[j].i];
        char *text = y->home == C_ARRAY ? arena_printf(p->a, "t%u[l]", y->storage)
                                        : operand(p, x->yield[j], NULL);
        c_line(p, "for (i64 l = 0; l < %lld; l++)", elements(c));
        c_line(p, "    z%lld[l] = %s;", (long long)j, narrow(p, c->dtype, text));
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
    c_line(p, "const %s *key = b%d + (%s);", c_type(t), key->buffer, c_affine(p, key->at));
    c_line(p, "i64 *from = b%d + (%s);", work->buffer, c_affine(p, work->at));
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
    c_line(p, "%s x = %s;", local_type(wide), c_cast(p, t, wide, a));
    c_line(p, "%s y = %s;", local_type(wide), c_cast(p, t, wide, b));
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
    c_line(p, "i64 *out = b%d + (%s);", to->buffer, c_affine(p, to->at));
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
            print_group(p, (const kn_ins *const *)&body->at[i], stop - i);
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
            default: print_lane(p, NULL, x); break;
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
        if (x->op == KN_gather || x->op == KN_put || divides(x) || can_fail(&x->body))
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

/* Does the text [from, end) contain the identifier iN? */
static bool mentions(const char *text, unsigned n)
{
    char name[16];
    snprintf(name, sizeof name, "i%u", n);
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
    find_groups(p, &k->body);
    find_stored(p, &k->body);
    choose_homes(p);
    share_storage(p, &k->body);

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
    c_line(p, "for (i64 p = p0; p < p1; p++) {");
    i64 below = 1;
    for (i64 g = k->grid.n - 1; g >= 0; g--) {
        i64 extent = k->grid.at[g];
        if (mentions(body.at, (unsigned)g + 1)) {
            char *part = below == 1 ? "p" : arena_printf(p->a, "p / %lld", (long long)below);
            if (g == 0)
                c_line(p, "i64 i%lld = %s;", (long long)g + 1, part);
            else
                c_line(p, "i64 i%lld = %s %% %lld;", (long long)g + 1, part, (long long)extent);
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
        c_line(p, "if (bad)");
        c_line(p, "    return (int)(p + 1);");
    }
    c_line(p, "}");
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
            if (!strstr(body, arena_printf(p->a, "sum_%s(", name)))
                continue;
            c_line(p, "#define sum_%s(x) ({ %s s_ = (x); \\", name, name);
            for (long long half = lanes / 2; half >= 1; half /= 2) {
                str order = str_new(p->a);
                for (long long i = 0; i < lanes; i++)
                    str_printf(&order, ", %lld", (i + half) % lanes);
                c_line(p, "    s_ += __builtin_shufflevector(s_, s_%s); \\", order.at);
            }
            c_line(p, "    s_[0]; })");
        }
        if (p->vectors[DT_f16 * C_LANES + log2] || p->vectors[DT_bf16 * C_LANES + log2])
            c_line(p, "typedef u32 u32x%lld __attribute__((vector_size(%lld)));", lanes, lanes * 4);
        if (p->vectors[DT_bf16 * C_LANES + log2])
            c_line(p, "#define widen_bf16x%lld(h) "
                      "((f32x%lld)(__builtin_convertvector(h, u32x%lld) << 16))", lanes, lanes, lanes);
        if (!p->vectors[DT_f16 * C_LANES + log2])
            continue;
        if (lanes == 8) {
            c_line(p, "#ifdef __F16C__");
            c_line(p, "typedef short i16x8 __attribute__((vector_size(16)));");
            c_line(p, "#define widen_f16x8(h) ((f32x8)__builtin_ia32_vcvtph2ps256((i16x8)(h)))");
            c_line(p, "#else");
        }
        c_line(p, "#define widen_f16x%lld(h) ({ u32x%lld w_ = __builtin_convertvector(h, u32x%lld); \\",
               lanes, lanes, lanes);
        c_line(p, "    u32x%lld m_ = (u32x%lld)((f32x%lld)((w_ & 0x7fffu) << 13) * 0x1p112f); \\",
               lanes, lanes, lanes);
        c_line(p, "    m_ |= (u32x%lld)((w_ & 0x7c00u) == 0x7c00u) & 0x7f800000u; \\", lanes);
        c_line(p, "    (f32x%lld)(m_ | ((w_ & 0x8000u) << 16)); })", lanes);
        if (lanes == 8)
            c_line(p, "#endif");
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
    static const char *const LIBM[] = {"exp", "exp2", "expm1", "log", "log2", "log1p",
                                       "tanh", "erf", "sin", "cos"};
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
    str_add(out, str_text(&p.s));
    str_add(out, body.at);
    arena_free(a);
}
