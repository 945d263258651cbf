/* lower: from nodes to calls.
 *
 * A node whose target has a row in aten.def becomes a call: arguments are matched to the row's
 * schema by name, absent ones take the schema's default, unknown ones are errors. The row's
 * function returns tensors; their shapes and dtypes must be those that the file declares. A call
 * that its function declines, and a target without a row, becomes `opaque` terms and a boundary. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/lower.h"

#define ATEN(target, tier, fn, code, schema) void fn(fe_call *c);
#include "frontend/aten.def"
#undef ATEN

static const fe_row rows[] = {
#define ATEN(target, tier, fn, code, schema) {target, tier, fn, code, schema},
#include "frontend/aten.def"
#undef ATEN
};

static const fe_row *find_row(const char *target)
{
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (strcmp(rows[i].target, target) == 0)
            return &rows[i];
    return NULL;
}

/* ---- failing ----------------------------------------------------------------------------------
 */

void fe_decline(fe_lower *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->declined = arena_strdup(l->a, text);
    if (!l->decline)
        eqf_throw(l->ctx, EQF_E_UNSUPPORTED, l->source->file, "", "%s", text);
    longjmp(*l->decline, 1);
}

void fe_fail(fe_lower *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!l->call)
        eqf_throw(l->ctx, EQF_E_TYPE, l->source->file, "", "%s", text);
    fe_throw_node(l->source, l->call->node, EQF_E_TYPE, "%s", text);
}

static void note(fe_lower *l, const fe_node *n, const char *reason, bool runs)
{
    for (i64 i = 0; i < l->boundaries.n; i++)
        if (l->boundaries.at[i].node == n->name)
            return;
    vec_push(l->a, &l->boundaries, (fe_boundary){n->name, n->target, reason, n->source, runs});
}

void fe_note_plain(fe_lower *l, const char *what)
{
    if (l->call)
        note(l, l->call->node, what, true);
}

/* ---- numbers and types ------------------------------------------------------------------------
 */

static const fe_symbol *open_symbol(fe_lower *l, const fe_expr *e)
{
    if (e->op == FE_EXPR_SYMBOL && !l->symbol_known[e->symbol])
        return &l->source->symbols[e->symbol];
    const fe_symbol *s = NULL;
    for (u32 k = 0; k < e->n && !s; k++)
        s = open_symbol(l, e->at[k]);
    return s;
}

/* The symbol in e whose value only a run knows. */
static const fe_symbol *data_symbol(fe_lower *l, const fe_expr *e)
{
    if (e->op == FE_EXPR_SYMBOL && l->source->symbols[e->symbol].depends_on_data)
        return &l->source->symbols[e->symbol];
    const fe_symbol *s = NULL;
    for (u32 k = 0; k < e->n && !s; k++)
        s = data_symbol(l, e->at[k]);
    return s;
}

i64 fe_eval(fe_lower *l, const fe_expr *e, const char *what)
{
    i64 v;
    if (!e || !fe_expr_int(e, &l->env, &v)) {
        const fe_symbol *open = e ? open_symbol(l, e) : NULL;
        if (open)
            eqf_throw(l->ctx, EQF_E_ARGUMENT, l->source->file, open->name,
                      "a symbolic dim without a value; give one, as in %s=%lld", open->name,
                      (long long)(open->has_hint ? open->hint : 2));
        fe_fail(l, "%s: the size `%s` has no value", what, e ? e->text : "?");
    }
    return v;
}

i64 fe_value_sizes(fe_lower *l, const fe_value *v, i64 sizes[FE_MAX_RANK])
{
    for (i64 d = 0; d < v->rank; d++) {
        sizes[d] = fe_eval(l, v->sizes[d], v->name);
        if (sizes[d] < 0)
            fe_fail(l, "%s: the size `%s` is %lld", v->name, v->sizes[d]->text,
                    (long long)sizes[d]);
    }
    return v->rank;
}

u8 fe_dtype_of(u32 code)
{
    switch (code) {
    case FE_I8:
        return DT_i8;
    case FE_I32:
        return DT_i32;
    case FE_I64:
        return DT_i64;
    case FE_F16:
        return DT_f16;
    case FE_F32:
        return DT_f32;
    case FE_F64:
        return DT_f64;
    case FE_BOOL:
        return DT_bool;
    case FE_BF16:
        return DT_bf16;
    default:
        return DT_NONE;
    }
}

u8 fe_stand_in(u32 code)
{
    u8 t = fe_dtype_of(code);
    if (t != DT_NONE)
        return t;
    switch (code) {
    case FE_U8:
    case FE_I16:
    case FE_U16:
        return DT_i32;
    case FE_U32:
    case FE_U64:
        return DT_i64;
    default:
        return DT_f32;
    }
}

bool fe_is_half(u8 type)
{
    return type == DT_f16 || type == DT_bf16;
}

u8 fe_wide(u8 type)
{
    return fe_is_half(type) ? DT_f32 : type;
}

static u8 promote2(u8 a, u8 b)
{
    if (a == b || b == DT_NONE)
        return a;
    if (a == DT_NONE)
        return b;
    dtype_kind ka = dtype_kind_of((dtype)a), kb = dtype_kind_of((dtype)b);
    if (ka != kb)
        return ka > kb ? a : b;
    if (fe_is_half(a) && fe_is_half(b))
        return DT_f32;
    return MAX(a, b);
}

static u8 combine(u8 higher, u8 lower)
{
    if (higher == DT_NONE || lower == DT_NONE)
        return higher == DT_NONE ? lower : higher;
    if (dtype_kind_of((dtype)lower) > dtype_kind_of((dtype)higher))
        return lower;
    return higher;
}

u8 fe_promote(fe_tensor *const *xs, i64 n)
{
    u8 rank[3] = {DT_NONE, DT_NONE, DT_NONE}; /* tensors with dims, without, numbers */
    for (i64 i = 0; i < n; i++) {
        u8 *r = &rank[xs[i]->is_number ? 2 : xs[i]->rank ? 0 : 1];
        *r = promote2(*r, xs[i]->dtype);
    }
    return combine(rank[0], combine(rank[1], rank[2]));
}

fe_tensor *fe_scalar_tensor(fe_lower *l, fe_scalar s)
{
    fe_tensor *t = s.kind == DK_FLOAT  ? fe_num(l, DT_f32, s.f)
                   : s.kind == DK_BOOL ? fe_int(l, DT_bool, s.i)
                                       : fe_int(l, DT_i64, s.i);
    t->is_number = true;
    return t;
}

/* ---- arguments ----------------------------------------------------------------------------------
 */

fe_slot *fe_slot_of(fe_scope *s, fe_value_id v)
{
    return &s->slots[v.i];
}

fe_scope *fe_scope_new(fe_lower *l, const fe_graph *g)
{
    fe_scope *s = NEW(l->a, fe_scope);
    s->graph = g;
    s->slots = NEW_N(l->a, fe_slot, g->n_values);
    return s;
}

bool fe_has(const fe_call *c, i64 i)
{
    return c->args[i] && c->args[i]->kind != FE_ARG_NONE;
}

static fe_scalar scalar_of(fe_call *c, const fe_arg *a, const char *what)
{
    switch (a->kind) {
    case FE_ARG_INT:
        return (fe_scalar){DK_INT, a->i, (f64)a->i};
    case FE_ARG_BOOL:
        return (fe_scalar){DK_BOOL, a->i, (f64)a->i};
    case FE_ARG_REAL:
        return (fe_scalar){DK_FLOAT, 0, a->f};
    case FE_ARG_SYM_INT:
    case FE_ARG_SYM_REAL:
    case FE_ARG_SYM_BOOL: {
        fe_slot *s = fe_slot_of(c->scope, a->value);
        if (!s->is_number)
            fe_decline(c->l, "%s: the number %s depends on data", what,
                       c->scope->graph->values[a->value.i].name);
        return s->number;
    }
    default:
        fe_fail(c->l, "argument %s is no number", what);
    }
}

static const char *arg_name(const fe_call *c, i64 i)
{
    const char *s = c->row ? c->row->schema : "";
    for (; i > 0 && s; i--) {
        s = strchr(s, ' ');
        s = s ? s + 1 : NULL;
    }
    if (!s)
        return "?";
    s += *s == '@';
    return arena_strndup(c->l->a, s, (i64)strcspn(s, ":"));
}

static fe_tensor *tensor_of(fe_call *c, const fe_arg *a, const char *what)
{
    if (a->kind != FE_ARG_TENSOR) {
        bool is_symbol = a->kind >= FE_ARG_SYM_INT && a->kind <= FE_ARG_SYM_BOOL;
        if (is_symbol && fe_slot_of(c->scope, a->value)->is_set)
            return fe_slot_of(c->scope, a->value)->t; /* a number that the caller passes */
        return fe_scalar_tensor(c->l, scalar_of(c, a, what));
    }
    fe_slot *s = fe_slot_of(c->scope, a->value);
    const fe_value *v = &c->scope->graph->values[a->value.i];
    if (v->problem)
        fe_throw_node(c->l->source, c->node, EQF_E_UNSUPPORTED, "%s: %s", v->name, v->problem);
    if (!s->is_set)
        fe_fail(c->l, "%s is used before it has a value", v->name);
    fe_tensor *t = fe_slot_read(c->l, s);
    if (c->operand_dtype && dtype_is_float((dtype)t->dtype) && t->dtype != DT_f64)
        t = fe_cast(c->l, c->operand_dtype, t);
    return t;
}

fe_tensor *fe_t(fe_call *c, i64 i)
{
    if (!fe_has(c, i))
        fe_fail(c->l, "argument %s is absent", arg_name(c, i));
    return tensor_of(c, c->args[i], arg_name(c, i));
}

fe_tensor *fe_t_opt(fe_call *c, i64 i)
{
    return fe_has(c, i) ? fe_t(c, i) : NULL;
}

fe_tensor **fe_ts(fe_call *c, i64 i, i64 *n)
{
    if (!fe_has(c, i) || c->args[i]->kind != FE_ARG_LIST)
        fe_fail(c->l, "argument %s is no list", arg_name(c, i));
    *n = c->args[i]->n;
    fe_tensor **ts = NEW_N(c->l->a, fe_tensor *, *n);
    for (i64 k = 0; k < *n; k++)
        if (c->args[i]->items[k].kind != FE_ARG_NONE)
            ts[k] = tensor_of(c, &c->args[i]->items[k], arg_name(c, i));
    return ts;
}

fe_scalar fe_sc(fe_call *c, i64 i)
{
    if (!fe_has(c, i))
        fe_fail(c->l, "argument %s is absent", arg_name(c, i));
    return scalar_of(c, c->args[i], arg_name(c, i));
}

i64 fe_i(fe_call *c, i64 i)
{
    fe_scalar s = fe_sc(c, i);
    if (s.kind == DK_FLOAT)
        fe_fail(c->l, "argument %s is no integer", arg_name(c, i));
    return s.i;
}

f64 fe_f(fe_call *c, i64 i)
{
    return fe_sc(c, i).f;
}

bool fe_b(fe_call *c, i64 i)
{
    return fe_has(c, i) && fe_sc(c, i).f != 0.0;
}

const char *fe_s(fe_call *c, i64 i)
{
    if (!fe_has(c, i))
        return NULL;
    if (c->args[i]->kind != FE_ARG_STRING)
        fe_fail(c->l, "argument %s is no text", arg_name(c, i));
    return c->args[i]->text;
}

u8 fe_dt(fe_call *c, i64 i, u8 otherwise)
{
    if (!fe_has(c, i))
        return otherwise;
    if (c->args[i]->kind != FE_ARG_DTYPE)
        fe_fail(c->l, "argument %s is no dtype", arg_name(c, i));
    u8 t = fe_dtype_of((u32)c->args[i]->i);
    if (t == DT_NONE)
        fe_decline(c->l, "dtype %s has no meaning here", fe_dtype_name((u32)c->args[i]->i));
    return t;
}

i64 *fe_is(fe_call *c, i64 i, i64 *n)
{
    if (!fe_has(c, i)) {
        *n = 0;
        return NULL;
    }
    const fe_arg *a = c->args[i];
    if (a->kind != FE_ARG_LIST) { /* a number where a list is wanted */
        i64 *one = NEW(c->l->a, i64);
        *one = scalar_of(c, a, arg_name(c, i)).i;
        *n = 1;
        return one;
    }
    i64 *v = NEW_N(c->l->a, i64, a->n);
    for (i64 k = 0; k < a->n; k++)
        v[k] = scalar_of(c, &a->items[k], arg_name(c, i)).i;
    *n = a->n;
    return v;
}

i64 fe_axis(fe_call *c, const fe_tensor *x, i64 d)
{
    i64 rank = MAX(x->rank, 1);
    if (d < -rank || d >= rank)
        fe_fail(c->l, "dim %lld of a tensor of rank %lld", (long long)d, (long long)x->rank);
    return d < 0 ? d + rank : d;
}

i64 fe_axis_i(fe_call *c, const fe_tensor *x, i64 arg)
{
    return fe_axis(c, x, fe_i(c, arg));
}

i64 fe_dim_i(fe_call *c, const fe_tensor *x, i64 arg)
{
    if (!x->rank)
        fe_fail(c->l, "dim %lld of a number", (long long)fe_i(c, arg));
    return fe_axis_i(c, x, arg);
}

u64 fe_axes(fe_call *c, const fe_tensor *x, i64 arg)
{
    i64 n;
    i64 *d = fe_is(c, arg, &n);
    u64 all = x->rank >= 64 ? ~(u64)0 : ((u64)1 << x->rank) - 1, set = 0;
    if (!n)
        return all;
    for (i64 k = 0; k < n; k++)
        set |= (u64)1 << fe_axis(c, x, d[k]);
    return set & all;
}

void fe_ret(fe_call *c, fe_tensor *t)
{
    vec_push(c->l->a, &c->results, t);
}

static const fe_arg *flat_output(const fe_node *n, i64 k)
{
    for (i64 i = 0; i < n->n_outputs; i++) {
        const fe_arg *o = &n->outputs[i];
        i64 m = o->kind == FE_ARG_LIST ? o->n : 1;
        if (k < m)
            return o->kind == FE_ARG_LIST ? &o->items[k] : o;
        k -= m;
    }
    return NULL;
}

/* Ranges of u8, as decompositions of eye and flip write them, stay exact in a wider dtype while
 * they are only moved and compared. */
static bool keeps_range(const fe_call *c, u32 code)
{
    if (code != FE_U8 || !c->row)
        return false;
    const char *t = c->node->target;
    return !strcmp(t, "aten.arange.start_step") || fe_is_view(t) || !strcmp(t, "aten.eq.Tensor") ||
           !strcmp(t, "aten.clone.default");
}

u8 fe_out_dtype(fe_call *c, i64 k)
{
    const fe_arg *o = flat_output(c->node, k);
    if (!o || o->kind != FE_ARG_TENSOR)
        return DT_NONE;
    u32 code = c->scope->graph->values[o->value.i].dtype;
    u8 t = keeps_range(c, code) ? fe_stand_in(code) : fe_dtype_of(code);
    if (t == DT_NONE)
        fe_decline(c->l, "dtype %s has no meaning here",
                   fe_dtype_name(code) ? fe_dtype_name(code) : "unknown");
    return t;
}

bool fe_out_used(fe_call *c, i64 k)
{
    const fe_arg *o = flat_output(c->node, k);
    return o && o->kind == FE_ARG_TENSOR && c->scope->graph->values[o->value.i].uses > 0;
}

/* ---- the schema -------------------------------------------------------------------------------
 */

/* The default after `=` as an argument; NULL is None. */
static const fe_arg *parse_default(fe_lower *l, const char *s, i64 n)
{
    fe_arg *a = NEW(l->a, fe_arg);
    char *text = arena_strndup(l->a, s, n);
    char *end;
    a->name = "";
    if (!strcmp(text, "none"))
        return NULL;
    if (!strcmp(text, "true") || !strcmp(text, "false")) {
        a->kind = FE_ARG_BOOL;
        a->i = text[0] == 't';
        return a;
    }
    if (text[0] == '[') {
        VEC(fe_arg) items = {0};
        for (char *p = text + 1; *p && *p != ']';) {
            vec_push(l->a, &items,
                     (fe_arg){.kind = FE_ARG_INT, .name = "", .i = strtoll(p, &end, 10)});
            p = end + (*end == ',');
        }
        a->kind = FE_ARG_LIST;
        a->items = items.at;
        a->n = items.n;
        return a;
    }
    a->i = strtoll(text, &end, 10);
    a->kind = FE_ARG_INT;
    if (*end) {
        a->kind = FE_ARG_REAL;
        a->f = strtod(text, &end);
    }
    if (*end) {
        a->kind = FE_ARG_STRING;
        a->text = text;
    }
    return a;
}

static void bind_arguments(fe_call *c)
{
    fe_lower *l = c->l;
    VEC(const fe_arg *) args = {0};
    i64 matched = 0;
    for (const char *s = c->row->schema; *s;) {
        i64 n = (i64)strcspn(s, " ");
        const char *name = s + (*s == '@');
        i64 name_n = (i64)strcspn(name, ":");
        const char *type = name + name_n + 1;
        const char *equals = memchr(type, '=', (size_t)(s + n - type));
        const fe_arg *found = NULL;
        for (i64 k = 0; k < c->node->n_inputs && !found; k++)
            if (!strncmp(c->node->inputs[k].name, name, (size_t)name_n) &&
                !c->node->inputs[k].name[name_n])
                found = &c->node->inputs[k];
        if (found)
            matched++;
        else if (equals)
            found = parse_default(l, equals + 1, s + n - equals - 1);
        else if (!memchr(type, '?', (size_t)(s + n - type)))
            fe_fail(l, "argument %.*s is absent", (int)name_n, name);
        vec_push(l->a, &args, found);
        s += n + (s[n] == ' ');
    }
    c->args = args.at;
    c->n_args = args.n;
    if (matched == c->node->n_inputs)
        return;
    for (i64 k = 0; k < c->node->n_inputs; k++) {
        bool is_known = false;
        for (i64 i = 0; i < args.n; i++)
            is_known = is_known || args.at[i] == &c->node->inputs[k];
        if (!is_known)
            fe_fail(l, "unknown argument %s", c->node->inputs[k].name);
    }
}

/* ---- opaque calls
 * -------------------------------------------------------------------------------- */

static void collect_tensors(fe_call *c, const fe_arg *a, fe_tensor ***out, i64 *n)
{
    if (a->kind == FE_ARG_LIST) {
        for (i64 k = 0; k < a->n; k++)
            collect_tensors(c, &a->items[k], out, n);
    } else if (a->kind == FE_ARG_TENSOR && fe_slot_of(c->scope, a->value)->is_set) {
        (*out)[(*n)++] = fe_slot_read(c->l, fe_slot_of(c->scope, a->value));
    }
}

static i64 count_arguments(const fe_arg *a)
{
    i64 n = 1;
    for (i64 k = 0; a->kind == FE_ARG_LIST && k < a->n; k++)
        n += count_arguments(&a->items[k]);
    return n;
}

static void print_argument(str *s, const fe_arg *a)
{
    switch (a->kind) {
    case FE_ARG_INT:
    case FE_ARG_BOOL:
    case FE_ARG_DTYPE:
        str_printf(s, "%lld", (long long)a->i);
        break;
    case FE_ARG_REAL:
        str_add_f64(s, a->f);
        break;
    case FE_ARG_STRING:
        str_add(s, a->text);
        break;
    case FE_ARG_TENSOR:
        str_add_char(s, '_');
        break;
    case FE_ARG_LIST:
        str_add_char(s, '[');
        for (i64 k = 0; k < a->n; k++) {
            if (k)
                str_add_char(s, ',');
            print_argument(s, &a->items[k]);
        }
        str_add_char(s, ']');
        break;
    default:
        str_add_char(s, '-');
        break;
    }
}

/* The name says what the operator does besides its operands: target and attributes. */
static u32 opaque_name(fe_call *c)
{
    str s = str_new(c->l->a);
    str_add(&s, c->node->target);
    bool is_open = false;
    for (i64 k = 0; k < c->node->n_inputs; k++) {
        const fe_arg *a = &c->node->inputs[k];
        if (a->kind == FE_ARG_TENSOR || a->kind == FE_ARG_DEVICE || a->kind == FE_ARG_LAYOUT ||
            a->kind == FE_ARG_MEMORY_FORMAT || a->kind == FE_ARG_NONE)
            continue;
        str_printf(&s, "%s%s=", is_open ? ", " : "(", a->name);
        print_argument(&s, a);
        is_open = true;
    }
    if (is_open)
        str_add_char(&s, ')');
    return intern_cstr(c->l->p->names, str_text(&s));
}

static void lower_opaque(fe_call *c, const char *reason)
{
    fe_lower *l = c->l;
    note(l, c->node, reason, false);
    i64 most = 1, n = 0;
    for (i64 k = 0; k < c->node->n_inputs; k++)
        most += count_arguments(&c->node->inputs[k]);
    fe_tensor **xs = NEW_N(l->a, fe_tensor *, most);
    for (i64 k = 0; k < c->node->n_inputs; k++)
        collect_tensors(c, &c->node->inputs[k], &xs, &n);
    VEC(u32) args = {0};
    for (i64 k = 0; k < n; k++)
        if (xs[k]->term)
            vec_push(l->a, &args, xs[k]->term);
    if (!args.n)
        vec_push(l->a, &args, fe_int(l, DT_i64, 0)->term);
    u32 name = opaque_name(c);
    c->results.n = 0;
    const fe_arg *o;
    for (i64 k = 0; (o = flat_output(c->node, k)) != NULL; k++) {
        if (o->kind != FE_ARG_TENSOR) {
            fe_ret(c, NULL);
            continue;
        }
        const fe_value *v = &c->scope->graph->values[o->value.i];
        i64 sizes[FE_MAX_RANK], rank = fe_value_sizes(l, v, sizes);
        fe_dim *dims = NEW_N(l->a, fe_dim, rank);
        VEC(u32) to = {0};
        for (i64 d = 0; d < rank; d++) {
            dims[d] = fe_dim_new(l, sizes[d]);
            if (sizes[d] > 1)
                vec_push(l->a, &to, dims[d].vars.at[0]);
        }
        u8 type = fe_stand_in(v->dtype);
        u32 term = fe_draft_new(l, (fe_draft){.op = IR_opaque,
                                              .dtype = type,
                                              .name = name,
                                              .to = {to.at, to.n},
                                              .args = args.at,
                                              .arg_count = args.n,
                                              .ints = {&k, 1}});
        fe_tensor *t = fe_tensor_new(l, term, type, rank, dims);
        t->is_foreign = fe_dtype_of(v->dtype) == DT_NONE;
        fe_ret(c, t);
    }
}

/* What to say about a target without a row; the first prefix that fits. */
static const struct {
    const char *prefix, *reason;
} reasons[] = {
    {"higher_order.wrap_with_autocast", "an autocast region of this kind has no casts to follow; "
                                        "save after ep.run_decompositions({})"},
    {"higher_order.", "control flow has no meaning here"},
    {"torch._functorch.", "vmap is not resolved; save after ep.run_decompositions({})"},
    {"aten.conv", "a convolution has no meaning here"},
    {"aten.max_pool", "pooling has no meaning here"},
    {"aten.avg_pool", "pooling has no meaning here"},
    {"aten.adaptive_", "pooling has no meaning here"},
    {"aten.upsample", "resampling has no meaning here"},
    {"aten.fft", "Fourier transforms and complex numbers have no meaning here"},
    {"aten._fft", "Fourier transforms and complex numbers have no meaning here"},
    {"aten.rand", "random numbers have no meaning here"},
    {"aten.bernoulli", "random numbers have no meaning here"},
    {"aten.nonzero", "the size of the result depends on data"},
    {"aten.masked_select", "the size of the result depends on data"},
    {"aten.bincount", "the size of the result depends on data"},
    {"aten.item", "a number that depends on data"},
    {"aten._local_scalar_dense", "a number that depends on data"},
    {"aten.as_strided", "strides are no part of a value here"},
    {"aten._native_batch_norm_legit_functional",
     "batch_norm in training updates running statistics"},
    {"aten.", "this operator is not known here"},
    {"", "a custom operator has no meaning here"},
};

static const char *unknown_reason(const char *target)
{
    for (i64 i = 0;; i++)
        if (!strncmp(target, reasons[i].prefix, strlen(reasons[i].prefix)))
            return reasons[i].reason;
}

/* ---- nodes -------------------------------------------------------------------------------------
 */

static const fe_symbol *argument_symbol(fe_call *c, const fe_arg *a)
{
    const fe_symbol *s = NULL;
    for (i64 k = 0; a->kind == FE_ARG_LIST && k < a->n && !s; k++)
        s = argument_symbol(c, &a->items[k]);
    if (a->kind < FE_ARG_TENSOR || a->kind > FE_ARG_SYM_BOOL)
        return s;
    const fe_value *v = &c->scope->graph->values[a->value.i];
    if (v->number)
        s = data_symbol(c->l, v->number);
    for (i64 d = 0; v->kind == FE_VALUE_TENSOR && d < v->rank && !s; d++)
        s = data_symbol(c->l, v->sizes[d]);
    return s;
}

/* Why no lowering may be tried: a dtype that the IR lacks, a size that only a run knows. */
static const char *foreign_reason(fe_call *c)
{
    fe_lower *l = c->l;
    const fe_symbol *s = NULL;
    for (i64 k = 0; k < c->node->n_inputs && !s; k++)
        s = argument_symbol(c, &c->node->inputs[k]);
    for (i64 k = 0; k < c->node->n_outputs && !s; k++)
        s = argument_symbol(c, &c->node->outputs[k]);
    if (s)
        return arena_printf(l->a, "the size or number %s depends on data", s->name);
    for (i64 k = 0;; k++) {
        const fe_arg *o = flat_output(c->node, k);
        if (!o)
            break;
        if (o->kind != FE_ARG_TENSOR)
            continue;
        u32 code = c->scope->graph->values[o->value.i].dtype;
        if (fe_dtype_of(code) == DT_NONE && !keeps_range(c, code))
            return arena_printf(l->a, "dtype %s has no meaning here",
                                fe_dtype_name(code) ? fe_dtype_name(code) : "unknown");
    }
    i64 most = 1, n = 0;
    for (i64 k = 0; k < c->node->n_inputs; k++)
        most += count_arguments(&c->node->inputs[k]);
    fe_tensor **xs = NEW_N(l->a, fe_tensor *, most);
    for (i64 k = 0; k < c->node->n_inputs; k++)
        collect_tensors(c, &c->node->inputs[k], &xs, &n);
    for (i64 k = 0; k < n; k++)
        if (xs[k]->is_foreign && !(xs[k]->is_exact && keeps_range(c, FE_U8)))
            return "an operand of a dtype that has no meaning here";
    return NULL;
}

static void check_results(fe_call *c)
{
    fe_lower *l = c->l;
    const fe_arg *o;
    for (i64 k = 0; (o = flat_output(c->node, k)) != NULL; k++) {
        if (o->kind != FE_ARG_TENSOR)
            continue;
        const fe_value *v = &c->scope->graph->values[o->value.i];
        fe_tensor *t = k < c->results.n ? c->results.at[k] : NULL;
        if (!t) {
            if (v->uses)
                fe_decline(l, "result %lld is used and has no meaning here", (long long)k);
            continue;
        }
        i64 sizes[FE_MAX_RANK], rank = fe_value_sizes(l, v, sizes);
        bool is_equal = rank == t->rank && t->dtype == fe_stand_in(v->dtype);
        t->is_foreign = fe_dtype_of(v->dtype) == DT_NONE;
        t->is_exact = t->is_foreign;
        str found = str_new(l->a), wanted = str_new(l->a);
        for (i64 d = 0; d < rank; d++) {
            is_equal = is_equal && t->dims[d].extent == sizes[d];
            str_printf(&wanted, "%s%lld", d ? "," : "", (long long)sizes[d]);
        }
        for (i64 d = 0; d < t->rank; d++)
            str_printf(&found, "%s%lld", d ? "," : "", (long long)t->dims[d].extent);
        if (!is_equal && l->autocast.is_on)
            fe_decline(l, "the result of an autocast region does not follow from its casts");
        if (!is_equal)
            fe_fail(l, "the file declares %s[%s], the operator gives %s[%s]",
                    fe_dtype_name(v->dtype), str_text(&wanted), dtype_name((dtype)t->dtype),
                    str_text(&found));
    }
}

fe_tensor **fe_lower_node(fe_lower *l, fe_scope *s, const fe_node *n, const char *target,
                          i64 *count)
{
    fe_call *c = NEW(l->a, fe_call), *outer = l->call;
    jmp_buf *outer_decline = l->decline, here;
    *c = (fe_call){.l = l, .node = n, .row = find_row(target), .scope = s};
    const fe_arg *first = n->n_inputs ? &n->inputs[0] : NULL;
    l->is_last_reader = first && first->kind == FE_ARG_TENSOR &&
                        s->graph->values[first->value.i].uses == 1 && !l->has_writes;
    c->operand_dtype = fe_autocast_dtype(&l->autocast, target);
    l->call = c;
    str origin = str_new(l->a);
    str_add(&origin, n->name);
    l->p->origin = intern_cstr(l->p->names, str_text(&origin));
    l->declined = NULL;
    if (setjmp(here) == 0) {
        l->decline = &here;
        const char *foreign = foreign_reason(c);
        if (foreign)
            fe_decline(l, "%s", foreign);
        if (!c->row)
            fe_decline(l, "%s", unknown_reason(n->target));
        bind_arguments(c);
        u8 cast = l->in_place_dtype;
        l->in_place_dtype = DT_NONE;
        c->row->lower(c);
        if (cast && c->results.n && c->results.at[0])
            c->results.at[0] = fe_cast(l, cast, c->results.at[0]);
        check_results(c);
    }
    l->decline = outer_decline;
    if (l->declined)
        lower_opaque(c, l->declined);
    l->declined = NULL;
    l->call = outer;
    *count = c->results.n;
    return c->results.at;
}

static void set_slot(fe_slot *s, fe_tensor *t)
{
    *s = (fe_slot){.t = t, .is_set = t != NULL};
}

/* A number that a node computes: the file says it as an expression of symbols. */
static void lower_number(fe_lower *l, fe_scope *s, const fe_arg *o)
{
    const fe_value *v = &s->graph->values[o->value.i];
    fe_number x;
    fe_slot *slot = fe_slot_of(s, o->value);
    if (!v->number || !fe_expr_eval(v->number, &l->env, &x))
        return;
    slot->is_number = true;
    slot->number = x.is_real ? (fe_scalar){DK_FLOAT, 0, x.f} : (fe_scalar){DK_INT, x.i, (f64)x.i};
    if (v->kind == FE_VALUE_BOOL)
        slot->number.kind = DK_BOOL;
}

/* Inlines the graph argument of a region; its arguments follow it. */
static bool lower_region(fe_lower *l, fe_scope *s, const fe_node *n)
{
    i64 first = -1;
    bool is_grad = !strcmp(n->target, "higher_order.wrap_with_set_grad_enabled");
    bool is_cast = !strcmp(n->target, "higher_order.wrap_with_autocast");
    for (i64 k = 0; k < n->n_inputs && first < 0; k++)
        if (n->inputs[k].kind == FE_ARG_GRAPH)
            first = k;
    if (first < 0 || !(is_grad || (is_cast && first >= 3)))
        return false;
    fe_autocast outside = l->autocast, inside = outside;
    if (is_cast) { /* device, dtype, enabled */
        const fe_arg *device = &n->inputs[0], *type = &n->inputs[1], *enabled = &n->inputs[2];
        if (device->kind != FE_ARG_STRING || enabled->kind != FE_ARG_BOOL)
            return false;
        inside = (fe_autocast){.is_on = enabled->i, .is_cuda = !strncmp(device->text, "cuda", 4)};
        if (inside.is_on && type->kind == FE_ARG_DTYPE)
            inside.dtype = fe_dtype_of((u32)type->i);
        if (inside.is_on && !fe_is_half(inside.dtype))
            return false;
    }
    const fe_graph *g = n->inputs[first].graph;
    if (g->n_inputs != n->n_inputs - first - 1)
        fe_throw_node(l->source, n, EQF_E_PARSE, "%lld arguments for a graph of %lld inputs",
                      (long long)(n->n_inputs - first - 1), (long long)g->n_inputs);
    fe_scope *inner = fe_scope_new(l, g);
    for (i64 k = 0; k < g->n_inputs; k++) {
        const fe_arg *a = &n->inputs[first + 1 + k], *in = &g->inputs[k];
        if (in->kind < FE_ARG_TENSOR || in->kind > FE_ARG_SYM_BOOL)
            continue;
        fe_slot *to = fe_slot_of(inner, in->value);
        if (a->kind >= FE_ARG_TENSOR && a->kind <= FE_ARG_SYM_BOOL) {
            fe_slot *from = fe_slot_of(s, a->value);
            *to = *from;
            if (from->is_set) { /* an alias: writes inside reach the outer value */
                to->t = fe_slot_read(l, from);
                to->parent = from;
                to->node = NULL;
            }
        } else if (a->kind == FE_ARG_INT || a->kind == FE_ARG_BOOL) {
            to->is_number = true;
            to->number = (fe_scalar){a->kind == FE_ARG_INT ? DK_INT : DK_BOOL, a->i, (f64)a->i};
        } else if (a->kind == FE_ARG_REAL) {
            to->is_number = true;
            to->number = (fe_scalar){DK_FLOAT, 0, a->f};
        }
    }
    l->autocast = inside;
    fe_lower_graph(l, inner);
    l->autocast = outside;
    i64 n_out = 0;
    for (i64 k = 0; k < n->n_outputs; k++) {
        const fe_arg *o = &n->outputs[k];
        i64 m = o->kind == FE_ARG_LIST ? o->n : 1;
        for (i64 i = 0; i < m; i++, n_out++) {
            const fe_arg *to = o->kind == FE_ARG_LIST ? &o->items[i] : o;
            if (n_out >= g->n_outputs || to->kind < FE_ARG_TENSOR || to->kind > FE_ARG_SYM_BOOL)
                continue;
            const fe_arg *from = &g->outputs[n_out];
            if (from->kind < FE_ARG_TENSOR || from->kind > FE_ARG_SYM_BOOL)
                continue;
            fe_slot *source = fe_slot_of(inner, from->value), *slot = fe_slot_of(s, to->value);
            *slot = *source;
            if (source->is_set) {
                slot->t = fe_slot_read(l, source);
                slot->parent = source;
                slot->node = NULL;
            }
        }
    }
    return true;
}

void fe_lower_graph(fe_lower *l, fe_scope *s)
{
    for (i64 i = 0; i < s->graph->n_nodes; i++) {
        const fe_node *n = &s->graph->nodes[i];
        if (lower_region(l, s, n))
            continue;
        bool has_tensors = false, has_numbers = false;
        for (i64 k = 0;; k++) {
            const fe_arg *o = flat_output(n, k);
            if (!o)
                break;
            has_tensors = has_tensors || o->kind == FE_ARG_TENSOR;
            if (o->kind >= FE_ARG_SYM_INT && o->kind <= FE_ARG_SYM_BOOL) {
                lower_number(l, s, o);
                has_numbers = true;
            }
        }
        bool is_shape = !strncmp(n->target, "_operator.", 10) || !strncmp(n->target, "torch.", 6) ||
                        !strcmp(n->target, "aten.sym_size.int") || !strncmp(n->target, "math.", 5);
        if (!has_tensors && has_numbers && is_shape)
            continue;
        const char *functional = fe_functional_name(l->a, n->target);
        if (functional && find_row(functional) && !find_row(n->target)) {
            fe_lower_in_place(l, s, n, functional);
            continue;
        }
        i64 count;
        fe_tensor **results = fe_lower_node(l, s, n, n->target, &count);
        const fe_arg *o;
        for (i64 k = 0; (o = flat_output(n, k)) != NULL; k++) {
            if (o->kind != FE_ARG_TENSOR)
                continue;
            fe_slot *slot = fe_slot_of(s, o->value);
            set_slot(slot, k < count ? results[k] : NULL);
            if (l->has_writes && n->n_inputs && n->inputs[0].kind == FE_ARG_TENSOR &&
                fe_is_view(n->target)) {
                slot->parent = fe_slot_of(s, n->inputs[0].value);
                slot->node = n;
                slot->scope = s;
                slot->result = k;
                fe_slot *root = slot;
                while (root->parent)
                    root = root->parent;
                slot->version = root->writes;
            }
        }
    }
}
