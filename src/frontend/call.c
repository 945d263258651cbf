/* call: what a lowering function sees of a node.
 *
 * Arguments are matched to the schema of the row by name; absent ones take the schema's default,
 * unknown ones are errors. Symbolic numbers have the values that were fixed before. A function that
 * cannot give a call its meaning declines it (a boundary); a call that is malformed fails the file.
 */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/lower.h"

/* ---- failing ------------------------------------------------------------------------------- */

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

void fe_note_boundary(fe_lower *l, const fe_node *n, const char *reason, bool runs)
{
    for (i64 i = 0; i < l->boundaries.n; i++)
        if (l->boundaries.at[i].node == n->name)
            return;
    vec_push(l->a, &l->boundaries, (fe_boundary){n->name, n->target, reason, n->source, runs});
}

void fe_note_plain(fe_lower *l, const char *what)
{
    if (l->call)
        fe_note_boundary(l, l->call->node, what, true);
}

/* ---- numbers and types --------------------------------------------------------------------- */

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
const fe_symbol *fe_data_symbol(fe_lower *l, const fe_expr *e)
{
    if (e->op == FE_EXPR_SYMBOL && l->source->symbols[e->symbol].depends_on_data)
        return &l->source->symbols[e->symbol];
    const fe_symbol *s = NULL;
    for (u32 k = 0; k < e->n && !s; k++)
        s = fe_data_symbol(l, e->at[k]);
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

/* ---- arguments ----------------------------------------------------------------------------- */

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
    u32 code = (u32)c->args[i]->i;
    u8 t = code == FE_U8 ? fe_stand_in(code) : fe_dtype_of(code); /* check_results: modulo 256 */
    if (t == DT_NONE)
        fe_decline(c->l, "dtype %s has no meaning here", fe_dtype_name(code));
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

const fe_arg *fe_flat_output(const fe_node *n, i64 k)
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

u8 fe_out_dtype(fe_call *c, i64 k)
{
    const fe_arg *o = fe_flat_output(c->node, k);
    if (!o || o->kind != FE_ARG_TENSOR)
        return DT_NONE;
    u32 code = c->scope->graph->values[o->value.i].dtype;
    u8 t = code == FE_U8 ? fe_stand_in(code) : fe_dtype_of(code);
    if (t == DT_NONE)
        fe_decline(c->l, "dtype %s has no meaning here",
                   fe_dtype_name(code) ? fe_dtype_name(code) : "unknown");
    return t;
}

bool fe_out_used(fe_call *c, i64 k)
{
    const fe_arg *o = fe_flat_output(c->node, k);
    return o && o->kind == FE_ARG_TENSOR && c->scope->graph->values[o->value.i].uses > 0;
}

/* ---- the schema ---------------------------------------------------------------------------- */

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

void fe_bind_arguments(fe_call *c)
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
