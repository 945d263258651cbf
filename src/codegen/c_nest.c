/* Loop nests over the lanes of a group, and scalar operations: the same statements without loops. */
#include "codegen/c_parts.h"

typedef struct nest {
    const kn_ins *const *at;
    i64 n, rank;
    const i64 *shape;
    i64 current;           /* the operation being printed; its address is aN */
    bool bounded[KN_RANK]; /* the loop ends where the live lanes do: no conditions inside */
    bool whole;            /* all lanes live, in all operations */
    str late;              /* stores of values that leave the group, at the end of the body */
} nest;

static bool same_live(const kn_live *a, const kn_live *b)
{
    return a->end == b->end && c_same_affine(a->start, b->start);
}

/* Do all memory operations on tiles of x's shape agree that only these lanes of dim d live, and does
 * nothing combine lanes? Then the other lanes need never be computed, in arrays either. */
static bool is_live_everywhere(const c_printer *p, const kn_body *body, const kn_ins *x, i64 d,
                               const kn_live *live)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *y = body->at[i];
        if (!is_live_everywhere(p, &y->body, x, d, live))
            return false;
        if (c_is_memory(y) && c_same_shape(x, y)) {
            bool stores = y->op == KN_store || y->op == KN_put;
            if (y->live[d].end == 0 ? stores : !same_live(&y->live[d], live))
                return false;
        }
        bool mixes = y->op == KN_reduce || y->op == KN_dot || y->op == KN_trans ||
                     y->op == KN_bcast;
        for (i64 j = 0; mixes && j < y->arg_count; j++)
            if (c_same_shape(kn_def(p->k, y->args[j]), x))
                return false;
    }
    return true;
}

/* The live bound in dim d that all stores of the group have, when no other bound occurs and no
 * other lane is needed outside. */
static const kn_live *common_live(const c_printer *p, const nest *g, i64 d)
{
    const kn_live *found = NULL;
    bool leaves = false;
    for (i64 i = 0; i < g->n; i++) {
        const kn_ins *x = g->at[i];
        leaves |= x->out.i && p->values[x->out.i].home == C_ARRAY;
        if (!c_is_memory(x))
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
    if (found && leaves && !is_live_everywhere(p, &p->k->body, g->at[0], d, found))
        return NULL;
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

/* The operand in the lane of the current nest; map as for lane_index. */
char *c_operand(c_printer *p, kn_value v, const u8 *map)
{
    const kn_ins *d = kn_def(p->k, v);
    const c_value *c = &p->values[v.i];
    switch (c->home) {
    case C_INLINE:
        return c_inline(p, d);
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

char *c_inline(c_printer *p, const kn_ins *x)
{
    if (x->op == KN_const)
        return c_number(p, x->dtype, x->f, x->i);
    if (x->op == KN_state)
        return c_identity(p, x->sub, x->dtype);
    return c_operand(p, x->args[0], NULL);
}

/* Has the operation conditions on the lanes of dim d that the nest's loops do not see to? */
static bool is_conditional(const nest *g, const kn_ins *x, i64 d)
{
    return c_is_memory(x) && x->live[d].end > 0 && !g->whole && !g->bounded[d];
}

/* "l0 < m5_0 && ..." for operation 5 of the nest; NULL: always live. */
static char *live_text(c_printer *p, const nest *g, const kn_ins *x)
{
    str s = str_new(p->a);
    for (i64 d = 0; d < x->rank; d++) {
        if (!is_conditional(g, x, d))
            continue;
        str_printf(&s, "%s(i32)l%lld < m%lld_%lld", s.n > 0 ? " && " : "", (long long)d,
                   (long long)g->current, (long long)d);
    }
    return s.n > 0 ? s.at : NULL;
}

/* What those conditions compare with. */
static void print_live(c_printer *p, const nest *g)
{
    for (i64 i = 0; i < g->n; i++)
        for (i64 d = 0; d < g->rank; d++)
            if (is_conditional(g, g->at[i], d) &&
                (!g->at[i]->out.i || p->values[g->at[i]->out.i].home != C_NOWHERE))
                c_line(p, "i32 m%lld_%lld = live_lanes(%lld - (%s), %lld);", (long long)i,
                       (long long)d, (long long)g->at[i]->live[d].end,
                       c_affine(p, g->at[i]->live[d].start), (long long)g->shape[d]);
}

const char *c_local_type(dtype t)
{
    return t == DT_bool ? "int" : c_type(t);
}

/* Casts to the storage type where C's arithmetic is wider. */
char *c_narrow(c_printer *p, dtype t, const char *text)
{
    if (t == DT_bool || t == DT_i8)
        return arena_printf(p->a, "(%s)(%s)", c_type(t), text);
    return arena_strdup(p->a, text);
}

/* Checks index operands and returns the text of their contribution to the address. */
static char *index_text(c_printer *p, const kn_ins *x, i64 first)
{
    str s = str_new(p->a);
    for (i64 j = first; j < x->arg_count; j++) {
        i64 q = j - first;
        const char *value = c_operand(p, x->args[j], NULL);
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
        const char *format = x->dtype == DT_i32 ? "(i32)(%s) + (i32)(%s)" : "%s + %s";
        return arena_printf(p->a, format, c_affine(p, x->at), lanes);
    }
    case KN_cast:
        return c_cast(p, kn_def(p->k, x->args[0])->dtype, x->dtype,
                      c_operand(p, x->args[0], NULL));
    case KN_ew: {
        char *args[3];
        for (i64 j = 0; j < x->arg_count; j++)
            args[j] = c_operand(p, x->args[j], NULL);
        dtype of = kn_def(p->k, x->args[x->arg_count - 1])->dtype;
        return c_ew(p, x->sub, of, args);
    }
    case KN_combine:
        return c_combine(p, x->sub, x->dtype, c_operand(p, x->args[0], NULL),
                         c_operand(p, x->args[1], NULL));
    case KN_trans:
    case KN_bcast: {
        u8 map[KN_RANK] = {0};
        if (x->op == KN_trans)
            for (u8 d = 0; d < x->rank; d++)
                map[x->perm[d]] = d;
        else
            for (u8 d = 0; d + 1 < x->rank; d++)
                map[d] = (u8)(d < x->axis ? d : d + 1);
        return c_operand(p, x->args[0], map);
    }
    case KN_const:
    case KN_state:
        return c_inline(p, x);
    default:
        eqf_bug(p->ctx, "operation %u has no expression", x->op);
    }
}

static void print_gather(c_printer *p, const nest *g, const kn_ins *x, const char *name)
{
    c_line(p, "%s %s = %s;", c_local_type(x->dtype), name, c_number(p, x->dtype, x->f, x->i));
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
    char *value = c_operand(p, x->args[0], NULL);
    if (x->sub != IR_NO_REDUCER)
        value = c_combine(p, x->sub, x->dtype, "*q", value);
    c_line(p, "*q = %s;", c_narrow(p, x->dtype, value));
    c_line(p, "}");
    c_line(p, "}");
}

/* One operation inside the nest (g), or a scalar one (g NULL). */
static void print_lane(c_printer *p, nest *g, const kn_ins *x)
{
    if (x->op == KN_put) {
        print_put(p, g, x);
        return;
    }
    if (x->op == KN_store) {
        char *value = c_operand(p, x->args[0], NULL);
        char *live = live_text(p, g, x);
        if (live)
            c_line(p, "if (%s)", live);
        const char *indent = live ? "    " : "";
        if (x->rank == 0)
            c_line(p, "%sb%d[%s] = %s;", indent, x->buffer, c_affine(p, x->at),
                   c_narrow(p, x->dtype, value));
        else
            c_line(p, "%sa%lld[%s] = %s;", indent, (long long)g->current,
                   lane_index(p, x->rank, x->stride, NULL), c_narrow(p, x->dtype, value));
        return;
    }
    const c_value *v = &p->values[x->out.i];
    if (v->home == C_NOWHERE || v->home == C_INLINE || v->home == C_PLACE)
        return;
    char *name = arena_printf(p->a, "v%u", x->out.i);
    if (kn_divides(x))
        c_line(p, "bad |= %s == 0;", c_operand(p, x->args[1], NULL));
    if (x->op == KN_gather) {
        print_gather(p, g, x, name);
        if (v->uses == 0)
            c_line(p, "(void)%s;", name);
    } else {
        c_line(p, "%s %s = %s;", c_local_type(x->dtype), name,
               x->dtype == DT_i8 ? c_narrow(p, x->dtype, expression(p, g, x))
                                 : expression(p, g, x));
    }
    if (v->home == C_ARRAY) {
        i64 stride[KN_RANK];
        dense_strides(x, stride);
        str_printf(&g->late, "t%u[%s] = %s;\n", v->storage,
                   lane_index(p, x->rank, stride, NULL), c_narrow(p, x->dtype, name));
    }
}

/* A load and its store, with a cast at most. */
static bool is_copy(const c_printer *p, const nest *g)
{
    const kn_ins *from = g->at[0], *to = g->at[g->n - 1];
    if (from->op != KN_load || to->op != KN_store || from->rank != 2 || g->n < 2 || g->n > 3 ||
        p->values[from->out.i].home != C_LANE)
        return false;
    return g->n == 2 ||
           (g->at[1]->op == KN_cast && p->values[g->at[1]->out.i].home == C_LANE);
}

/* Do 4-byte elements run along one dim where they are loaded and along the other where they are
 * stored? Then *along is the dim of the load. */
static bool is_transposing(const nest *g, i64 *along)
{
    const kn_ins *from = g->at[0], *to = g->at[1];
    if (g->n != 2 || dtype_bytes(from->dtype) != 4)
        return false;
    *along = from->stride[0] == 1 ? 0 : 1;
    return from->stride[*along] == 1 && from->stride[1 - *along] != 1 &&
           to->stride[1 - *along] == 1;
}

/* Squares of 4 by 4 go through registers, what they do not cover one by one. */
static void print_transposing(c_printer *p, const nest *g, i64 along)
{
    const kn_ins *from = g->at[0], *to = g->at[1];
    const char *type = c_type(from->dtype);
    long long k = g->shape[along], n = g->shape[1 - along];
    long long k4 = k / 4 * 4, n4 = n / 4 * 4;
    long long rows = from->stride[1 - along], lines = to->stride[along];
    p->vectors[from->dtype * C_LANES + 2] = true;
    c_line(p, "for (i64 n = 0; n < %lld; n += 4) {", n4);
    c_line(p, "for (i64 k = 0; k < %lld; k += 4) {", k4);
    for (i64 i = 0; i < 4; i++)
        c_line(p, "%sx4 r%lld = *(const %sx4_at *)(a0 + (n + %lld) * %lld + k);", type,
               (long long)i, type, (long long)i, rows);
    static const char *const orders[] = {"0, 4, 1, 5", "2, 6, 3, 7", "0, 1, 4, 5", "2, 3, 6, 7"};
    for (i64 i = 0; i < 4; i++) /* pairs of rows */
        c_line(p, "%sx4 s%lld = __builtin_shufflevector(r%lld, r%lld, %s);", type, (long long)i,
               (long long)(i % 2 * 2), (long long)(i % 2 * 2 + 1), orders[i / 2]);
    for (i64 i = 0; i < 4; i++)
        c_line(p, "*(%sx4_at *)(a1 + n + (k + %lld) * %lld) = "
                  "__builtin_shufflevector(s%lld, s%lld, %s);", type, (long long)i, lines,
               (long long)(i / 2 * 2), (long long)(i / 2 * 2 + 1), orders[2 + i % 2]);
    c_line(p, "}");
    c_line(p, "}");
    const long long rest[2][4] = {{0, n4, k4, k}, {n4, n, 0, k}};
    for (i64 i = 0; i < 2; i++) {
        if (rest[i][0] == rest[i][1] || rest[i][2] == rest[i][3])
            continue;
        c_line(p, "for (i64 n = %lld; n < %lld; n++) {", rest[i][0], rest[i][1]);
        c_line(p, "for (i64 k = %lld; k < %lld; k++)", rest[i][2], rest[i][3]);
        c_line(p, "    a1[n + k * %lld] = a0[n * %lld + k];", lines, rows);
        c_line(p, "}");
    }
}

/* When do all lanes of the group live? Empty: always; NULL: never. */
static char *whole_text(c_printer *p, const nest *g)
{
    str s = str_new(p->a);
    str_add(&s, "");
    for (i64 i = 0; i < g->n; i++)
        for (i64 d = 0; c_is_memory(g->at[i]) && d < g->rank; d++) {
            const kn_live *live = &g->at[i]->live[d];
            bool fixed = live->start.n == 0;
            if (live->end > 0 && fixed && live->end - live->start.base < g->shape[d])
                return NULL;
            if (live->end > 0 && !fixed)
                str_printf(&s, "%s%lld <= %lld - (%s)", s.n > 0 ? " && " : "",
                           (long long)g->shape[d], (long long)live->end,
                           c_affine(p, live->start));
        }
    return s.at;
}

/* The loops over the lanes and what is in them. */
static void print_loops(c_printer *p, nest *g)
{
    g->late = str_new(p->a);
    print_live(p, g);
    for (i64 d = 0; d < g->rank; d++) {
        char *end = g->bounded[d] && !g->whole ? arena_printf(p->a, "n%lld", (long long)d)
                                               : arena_printf(p->a, "%lld", (long long)g->shape[d]);
        c_line(p, "for (i64 l%lld = 0; l%lld < %s; l%lld++) {", (long long)d, (long long)d, end,
               (long long)d);
    }
    p->group = p->group_of[g->at[0]->number];
    for (i64 i = 0; i < g->n; i++) {
        g->current = i;
        print_lane(p, g, g->at[i]);
    }
    p->group = 0;
    for (const char *text = g->late.at; text && *text;) {
        const char *stop = strchr(text, '\n');
        c_line(p, "%.*s", (int)(stop - text), text);
        text = stop + 1;
    }
    for (i64 d = 0; d < g->rank; d++)
        c_line(p, "}");
}

/* Copies are cheap but for conditions and strides: where all lanes live there are no conditions. */
static void print_copy(c_printer *p, nest *g)
{
    const char *whole = whole_text(p, g);
    if (!whole) {
        print_loops(p, g);
        return;
    }
    if (*whole)
        c_line(p, "if (%s) {", whole);
    i64 along;
    g->whole = true;
    if (is_transposing(g, &along))
        print_transposing(p, g, along);
    else
        print_loops(p, g);
    g->whole = false;
    if (*whole) {
        c_line(p, "} else {");
        print_loops(p, g);
        c_line(p, "}");
    }
}

void c_group(c_printer *p, const kn_ins *const *at, i64 n)
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
    c_line(p, "{");
    for (i64 i = 0; i < n; i++) {
        const kn_ins *x = at[i];
        if (x->op == KN_load && p->values[x->out.i].home != C_NOWHERE)
            c_line(p, "const %s *a%lld = %s;", c_type(x->dtype), (long long)i,
                   c_address(p, x->buffer, x->at));
        else if (x->op == KN_store)
            c_line(p, "%s *a%lld = %s;", c_type(x->dtype), (long long)i,
                   c_address(p, x->buffer, x->at));
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
    if (is_copy(p, &g))
        print_copy(p, &g);
    else
        print_loops(p, &g);
    c_line(p, "}");
}

void c_scalar(c_printer *p, const kn_ins *x)
{
    print_lane(p, NULL, x);
}
