/* lower: from nodes to calls.
 *
 * A node whose target has a row in aten.def becomes a call (call.c binds its arguments). The row's
 * function returns tensors; their shapes and dtypes must be those that the file declares. A call
 * that its function declines, and a target without a row, becomes `opaque` terms and a boundary. */
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

/* ---- opaque calls  ------------------------------------------------------------------------- */

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
    fe_note_boundary(l, c->node, reason, false);
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
    for (i64 k = 0; (o = fe_flat_output(c->node, k)) != NULL; k++) {
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
    {"aten.conv", "this convolution has no meaning here"},
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

/* ---- nodes --------------------------------------------------------------------------------- */

static const fe_symbol *argument_symbol(fe_call *c, const fe_arg *a)
{
    const fe_symbol *s = NULL;
    for (i64 k = 0; a->kind == FE_ARG_LIST && k < a->n && !s; k++)
        s = argument_symbol(c, &a->items[k]);
    if (a->kind < FE_ARG_TENSOR || a->kind > FE_ARG_SYM_BOOL)
        return s;
    const fe_value *v = &c->scope->graph->values[a->value.i];
    if (v->number)
        s = fe_data_symbol(c->l, v->number);
    for (i64 d = 0; v->kind == FE_VALUE_TENSOR && d < v->rank && !s; d++)
        s = fe_data_symbol(c->l, v->sizes[d]);
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
        const fe_arg *o = fe_flat_output(c->node, k);
        if (!o)
            break;
        if (o->kind != FE_ARG_TENSOR)
            continue;
        u32 code = c->scope->graph->values[o->value.i].dtype;
        if (fe_dtype_of(code) == DT_NONE && code != FE_U8)
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
        if (xs[k]->is_foreign && !xs[k]->is_exact)
            return "an operand of a dtype that has no meaning here";
    return NULL;
}

static void check_results(fe_call *c)
{
    fe_lower *l = c->l;
    const fe_arg *o;
    for (i64 k = 0; (o = fe_flat_output(c->node, k)) != NULL; k++) {
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
        if (v->dtype == FE_U8)
            t = c->results.at[k] = fe_as_bytes(l, t);
        t->is_foreign = fe_dtype_of(v->dtype) == DT_NONE;
        t->is_exact = v->dtype == FE_U8;
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
        fe_bind_arguments(c);
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
            const fe_arg *o = fe_flat_output(n, k);
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
        for (i64 k = 0; (o = fe_flat_output(n, k)) != NULL; k++) {
            if (o->kind != FE_ARG_TENSOR)
                continue;
            fe_slot *slot = fe_slot_of(s, o->value);
            set_slot(slot, k < count ? results[k] : NULL);
            if (l->has_writes && n->n_inputs && n->inputs[0].kind == FE_ARG_TENSOR &&
                fe_is_view(l, s, n)) {
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
