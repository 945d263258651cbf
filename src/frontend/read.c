/* read: a file becomes a canonical program.
 *
 * 1. Every symbolic size gets a value; ranges and guards are checked with them.
 * 2. Inputs become `in` drafts, nodes are lowered in order (lower.c), outputs are collected. In the
 *    training form what was written to buffers and inputs becomes outputs, in the order in which
 * the functional form lists them: so both give one program.
 * 3. Drafts are resolved, brought to normal form (normalize.c) and made canonical.
 *
 * Guards that cannot be evaluated, and arguments that the exporter baked in, are preconditions. */
#include "frontend/lower.h"

typedef VEC(fe_size) size_list;

/* ---- sizes and guards ---------------------------------------------------------------------- */

static bool symbol_value(void *user, u32 symbol, i64 *out)
{
    fe_lower *l = user;
    if ((i64)symbol >= l->source->n_symbols || !l->symbol_known[symbol])
        return false;
    *out = l->symbol_values[symbol];
    return true;
}

static bool size_value(void *user, u32 input, i64 dim, i64 *out)
{
    fe_lower *l = user;
    if ((i64)input >= l->source->n_inputs)
        return false;
    const fe_arg *a = &l->source->inputs[input].arg;
    if (a->kind != FE_ARG_TENSOR)
        return false;
    const fe_value *v = &l->source->graph->values[a->value.i];
    return dim >= 0 && dim < v->rank && fe_expr_int(v->sizes[dim], &l->env, out);
}

static void note_precondition(fe_lower *l, const char *text)
{
    u32 id = intern_cstr(l->p->names, text);
    for (i64 i = 0; i < l->p->preconditions.n; i++)
        if (l->p->preconditions.at[i] == id)
            return;
    vec_push(l->p->a, &l->p->preconditions, id);
}

static void mark_symbols(const fe_expr *e, bool *used)
{
    if (e && e->op == FE_EXPR_SYMBOL)
        used[e->symbol] = true;
    for (u32 i = 0; e && i < e->n; i++)
        mark_symbols(e->at[i], used);
}

/* Symbols that a size or a number has. One that only says how an example input lay in memory (its
 * strides), or that nothing has, fixes nothing. */
static bool *used_symbols(fe_lower *l)
{
    bool *used = NEW_N(l->a, bool, l->source->n_symbols + 1);
    bool *laid = NEW_N(l->a, bool, l->source->n_symbols + 1);
    const fe_graph *g = l->source->graph;
    for (i64 k = 0; k < g->n_values; k++) {
        const fe_value *v = &g->values[k];
        for (i64 d = 0; d < v->rank; d++) {
            mark_symbols(v->sizes[d], used);
            if (v->strides)
                mark_symbols(v->strides[d], laid);
        }
        mark_symbols(v->offset, laid);
        mark_symbols(v->number, used);
    }
    for (i64 i = 0; i < l->source->n_symbols; i++)
        used[i] = used[i] || (!laid[i] && l->source->symbols[i].has_hint);
    return used;
}

#define MOST_NAMED 16

static void fix_symbols(fe_lower *l, const fe_read_options *o, size_list *sizes)
{
    const fe_program *s = l->source;
    l->symbol_values = NEW_N(l->a, i64, s->n_symbols);
    l->symbol_known = NEW_N(l->a, bool, s->n_symbols);
    const bool *used = used_symbols(l);
    for (i64 k = 0; k < o->n_dims; k++) {
        bool is_known = false;
        for (i64 i = 0; i < s->n_symbols; i++)
            is_known = is_known || !strcmp(s->symbols[i].name, o->dims[k].name);
        if (is_known)
            continue;
        str names = str_new(l->a);
        for (i64 i = 0; i < s->n_symbols && i < MOST_NAMED; i++)
            str_printf(&names, "%s%s", i ? ", " : "", s->symbols[i].name);
        if (s->n_symbols > MOST_NAMED)
            str_add(&names, ", ...");
        eqf_throw(l->ctx, EQF_E_ARGUMENT, s->file, o->dims[k].name,
                  "no symbolic dim of this name; there %s %s", s->n_symbols == 1 ? "is" : "are",
                  s->n_symbols ? str_text(&names) : "none");
    }
    for (i64 i = 0; i < s->n_symbols; i++) {
        const fe_symbol *symbol = &s->symbols[i];
        bool is_given = false;
        for (i64 k = 0; k < o->n_dims; k++)
            if (!strcmp(symbol->name, o->dims[k].name)) {
                l->symbol_values[i] = o->dims[k].value;
                is_given = true;
            }
        if (!is_given && symbol->has_hint)
            l->symbol_values[i] = symbol->hint;
        if (!is_given && !symbol->has_hint && symbol->depends_on_data)
            l->symbol_values[i] = 2; /* stands in: what uses it is a boundary */
        l->symbol_known[i] =
            is_given || symbol->depends_on_data || (o->use_hints && symbol->has_hint);
        if (!used[i])
            continue;
        vec_push(l->a, sizes,
                 (fe_size){symbol->name, l->symbol_values[i], !is_given, symbol->depends_on_data});
    }
}

static void check_guards(fe_lower *l)
{
    const fe_program *s = l->source;
    for (i64 i = 0; i < s->n_ranges; i++) {
        i64 v;
        const fe_range *r = &s->ranges[i];
        if (!r->expr || !fe_expr_int(r->expr, &l->env, &v))
            continue;
        bool depends_on_data =
            r->expr->op == FE_EXPR_SYMBOL && s->symbols[r->expr->symbol].depends_on_data;
        if (!depends_on_data && ((r->has_min && v < r->min) || (r->has_max && v > r->max)))
            eqf_throw(l->ctx, EQF_E_ARGUMENT, s->file, r->text,
                      "the value %lld is outside of what the program was exported for (%lld to %s)",
                      (long long)v, (long long)(r->has_min ? r->min : 0),
                      r->has_max ? arena_printf(l->a, "%lld", (long long)r->max) : "any");
    }
    for (i64 i = 0; i < s->n_guards; i++) {
        fe_guard_result result = fe_guard_check(&s->guards[i], &l->env);
        if (result == FE_GUARD_FAILS)
            eqf_throw(l->ctx, EQF_E_ARGUMENT, s->file, s->guards[i].text,
                      "a guard of the program that the given sizes break");
        if (result == FE_GUARD_UNKNOWN)
            note_precondition(l, s->guards[i].text);
    }
}

/* ---- inputs -------------------------------------------------------------------------------- */

typedef struct input {
    fe_tensor *t; /* NULL: nothing to pass */
    u32 draft;
    u32 name, key;
    u8 role;
    const fe_weight *weight;
    const char **symbols;
} input;

/* "2*s44", "s27 + 1": a size as people write it. */
static void print_size(fe_lower *l, str *s, const fe_expr *e, bool is_inner)
{
    static const struct {
        u8 op;
        const char *text;
    } infix[] = {{FE_EXPR_ADD, " + "},     {FE_EXPR_MUL, "*"},   {FE_EXPR_POW, "**"},
                 {FE_EXPR_FLOORDIV, "//"}, {FE_EXPR_MOD, " % "}, {FE_EXPR_TRUEDIV, "/"},
                 {FE_EXPR_MAX, "max"},     {FE_EXPR_MIN, "min"}};
    if (e->op == FE_EXPR_INT) {
        str_printf(s, "%lld", (long long)e->i);
        return;
    }
    if (e->op == FE_EXPR_SYMBOL) {
        str_add(s, l->source->symbols[e->symbol].name);
        return;
    }
    for (i64 i = 0; i < COUNT_OF(infix); i++) {
        if (infix[i].op != e->op)
            continue;
        bool is_call = e->op == FE_EXPR_MAX || e->op == FE_EXPR_MIN;
        if (is_call)
            str_add(s, infix[i].text);
        if (is_call || is_inner)
            str_add_char(s, '(');
        for (u32 k = 0; k < e->n; k++) {
            if (k)
                str_add(s, is_call ? ", " : infix[i].text);
            print_size(l, s, e->at[k], !is_call);
        }
        if (is_call || is_inner)
            str_add_char(s, ')');
        return;
    }
    str_add(s, e->text && *e->text ? e->text : "?");
}

/* What the sizes of a tensor are called, NULL where they are numbers; NULL when all are. */
static const char **size_names(fe_lower *l, const fe_value *v)
{
    const char **names = NULL;
    for (i64 d = 0; d < v->rank; d++) {
        if (v->sizes[d]->op == FE_EXPR_INT)
            continue;
        if (!names)
            names = NEW_N(l->a, const char *, v->rank);
        str size = str_new(l->a);
        print_size(l, &size, v->sizes[d], false);
        names[d] = size.at;
    }
    return names;
}

static u32 unique_name(fe_lower *l, const input *before, i64 n, const char *want)
{
    for (i64 k = 0;; k++) {
        u32 id =
            intern_cstr(l->p->names, k ? arena_printf(l->a, "%s.%lld", want, (long long)k) : want);
        bool is_taken = false;
        for (i64 i = 0; i < n; i++)
            is_taken = is_taken || (before[i].t && before[i].name == id);
        if (!is_taken)
            return id;
    }
}

static void print_constant(str *s, const fe_arg *a)
{
    if (a->kind == FE_ARG_INT)
        str_printf(s, "%lld", (long long)a->i);
    else if (a->kind == FE_ARG_BOOL)
        str_add(s, a->i ? "True" : "False");
    else if (a->kind == FE_ARG_REAL)
        str_add_f64(s, a->f);
    else if (a->kind == FE_ARG_STRING)
        str_printf(s, "'%s'", a->text);
    else
        str_add(s, "None");
}

static fe_tensor *input_tensor(fe_lower *l, input *in, u8 type, i64 rank, const fe_dim *dims)
{
    VEC(u32) to = {0};
    bool is_empty = false;
    for (i64 d = 0; d < rank; d++) {
        is_empty = is_empty || dims[d].extent == 0;
        if (dims[d].extent > 1)
            vec_push(l->a, &to, dims[d].vars.at[0]);
    }
    if (!is_empty)
        in->draft = fe_draft_new(
            l, (fe_draft){.op = IR_in, .dtype = type, .name = in->name, .to = {to.at, to.n}});
    return fe_tensor_new(l, in->draft, type, rank, dims);
}

static void add_input(fe_lower *l, fe_scope *top, i64 i, input *all)
{
    const fe_input *source = &l->source->inputs[i];
    input *in = &all[i];
    const char *want = source->fqn && source->weight ? source->fqn : source->name;
    if (source->kind == FE_IN_CONSTANT) {
        str s = str_new(l->a);
        str_printf(&s, "%s == ", source->path && *source->path ? source->path : source->name);
        print_constant(&s, &source->arg);
        note_precondition(l, str_text(&s));
        return;
    }
    in->role = source->kind == FE_IN_PARAMETER ? IR_PARAMETER
               : source->kind == FE_IN_BUFFER  ? IR_BUFFER
               : source->kind == FE_IN_TENSOR  ? IR_CONSTANT
                                               : IR_INPUT;
    in->name = unique_name(l, all, i, want);
    for (i64 k = 0; source->weight && k < l->source->n_inputs; k++)
        if (!l->source->inputs[k].weight && l->source->inputs[k].kind == FE_IN_USER &&
            !strcmp(l->source->inputs[k].name, want)) /* callers' names come first */
            in->name = unique_name(l, all, i, arena_printf(l->a, "%s.1", want));
    in->weight = source->weight;
    if (source->weight)
        in->key = intern_cstr(l->p->names, source->weight->fqn);
    const fe_arg *a = &source->arg;
    if (a->kind < FE_ARG_TENSOR || a->kind > FE_ARG_SYM_BOOL)
        return;
    const fe_value *v = &l->source->graph->values[a->value.i];
    fe_slot *slot = fe_slot_of(top, a->value);
    if (a->kind == FE_ARG_TENSOR) {
        i64 sizes[FE_MAX_RANK], rank = v->rank;
        if (v->problem && !v->uses)
            return;
        if (v->problem)
            eqf_throw(l->ctx, EQF_E_UNSUPPORTED, l->source->file, v->name, "%s", v->problem);
        fe_value_sizes(l, v, sizes);
        fe_dim *dims = NEW_N(l->a, fe_dim, rank);
        for (i64 d = 0; d < rank; d++)
            dims[d] = fe_dim_new(l, sizes[d]);
        in->symbols = size_names(l, v);
        in->t = input_tensor(l, in, fe_stand_in(v->dtype), rank, dims);
        in->t->is_foreign = fe_dtype_of(v->dtype) == DT_NONE;
        in->t->is_exact = v->dtype == FE_U8 && in->weight; /* read_weight widens it */
        if (in->draft)
            l->drafts.at[in->draft].is_bytes = in->t->is_exact;
        fe_tensor *mask =
            l->use_constants && in->weight && in->role != IR_PARAMETER && !l->has_writes
                ? fe_mask_of(l, in->t, in->weight)
                : NULL;
        if (mask) {
            *slot = (fe_slot){.t = mask, .is_set = true};
            return;
        }
        *slot = (fe_slot){.t = in->t, .is_set = true};
        return;
    }
    u8 type = a->kind == FE_ARG_SYM_INT ? DT_i64 : a->kind == FE_ARG_SYM_REAL ? DT_f64 : DT_bool;
    in->t = input_tensor(l, in, type, 0, NULL);
    fe_number x;
    if (v->number && fe_expr_eval(v->number, &l->env, &x)) {
        slot->is_number = true;
        slot->number =
            x.is_real ? (fe_scalar){DK_FLOAT, 0, x.f} : (fe_scalar){DK_INT, x.i, (f64)x.i};
        str s = str_new(l->a);
        str_printf(&s, "%s == ", source->name);
        if (x.is_real)
            str_add_f64(&s, x.f);
        else
            str_printf(&s, "%lld", (long long)x.i);
        note_precondition(l, str_text(&s));
    } else {
        fe_tensor *weak = fe_cast(l, type == DT_f64 ? DT_f32 : type, in->t);
        weak->is_number = true;
        *slot = (fe_slot){.t = weak, .is_set = true};
    }
}

/* ---- outputs ------------------------------------------------------------------------------- */

typedef struct output {
    u32 name;
    fe_tensor *t;
    i64 target; /* the input it replaces, or -1 */
    const char **symbols;
} output;

static fe_tensor *output_value(fe_lower *l, fe_scope *top, const fe_arg *a, const char *name)
{
    switch (a->kind) {
    case FE_ARG_TENSOR: {
        fe_slot *s = fe_slot_of(top, a->value);
        if (!s->is_set)
            eqf_throw(l->ctx, EQF_E_PARSE, l->source->file, name, "an output without a value");
        return fe_slot_read(l, s);
    }
    case FE_ARG_SYM_INT:
    case FE_ARG_SYM_REAL:
    case FE_ARG_SYM_BOOL: {
        fe_slot *s = fe_slot_of(top, a->value);
        if (s->is_set)
            return s->t;
        fe_scalar x = s->number;
        return x.kind == DK_FLOAT || a->kind == FE_ARG_SYM_REAL ? fe_num(l, DT_f64, x.f)
               : a->kind == FE_ARG_SYM_BOOL                     ? fe_int(l, DT_bool, x.i != 0)
                                                                : fe_int(l, DT_i64, x.i);
    }
    case FE_ARG_INT:
        return fe_int(l, DT_i64, a->i);
    case FE_ARG_BOOL:
        return fe_int(l, DT_bool, a->i);
    case FE_ARG_REAL:
        return fe_num(l, DT_f64, a->f);
    default:
        return NULL;
    }
}

/* An output of a dtype that no port has. */
static fe_tensor *without_meaning(fe_lower *l, const fe_tensor *t, const char *name)
{
    vec_push(l->a, &l->boundaries,
             (fe_boundary){name, "output", "dtype u8 has no meaning as an output", "", false});
    i64 zero = 0;
    u32 term = t->term;
    if (term)
        term = fe_draft_new(l, (fe_draft){.op = IR_opaque,
                                          .dtype = t->dtype,
                                          .name = intern_cstr(l->p->names, "output"),
                                          .to = fe_draft_dims(l, term),
                                          .args = &t->term,
                                          .arg_count = 1,
                                          .ints = {&zero, 1}});
    return fe_tensor_new(l, term, t->dtype, t->rank, t->dims);
}

static fe_slot *root_slot(fe_slot *s)
{
    while (s->parent)
        s = s->parent;
    return s;
}

/* The outputs in functional order: what was written first, by input. */
static output *collect_outputs(fe_lower *l, fe_scope *top, i64 *count)
{
    const fe_program *s = l->source;
    VEC(fe_output) list = {0};
    for (i64 i = 0; l->has_writes && i < s->n_inputs; i++) {
        const fe_input *in = &s->inputs[i];
        if (in->arg.kind != FE_ARG_TENSOR || in->kind == FE_IN_CONSTANT)
            continue;
        if (!root_slot(fe_slot_of(top, in->arg.value))->writes)
            continue;
        fe_output o = {.kind = FE_OUT_MUTATION,
                       .target = i,
                       .arg = in->arg,
                       .want = in->fqn && in->weight ? in->fqn : in->name};
        vec_push(l->a, &list, o);
    }
    bool is_renamed = list.n > 0;
    for (i64 i = 0; i < s->n_outputs; i++)
        vec_push(l->a, &list, s->outputs[i]);
    if (is_renamed)
        fe_name_outputs(l->a, list.at, list.n);
    output *out = NEW_N(l->a, output, list.n);
    *count = 0;
    for (i64 i = 0; i < list.n; i++) {
        const fe_output *o = &list.at[i];
        fe_tensor *t = output_value(l, top, &o->arg, o->name ? o->name : "");
        if (!t)
            continue;
        if (t->is_exact)
            t = without_meaning(l, t, o->name ? o->name : "");
        out[(*count)++] =
            (output){intern_cstr(l->p->names, o->name), t,
                     o->kind == FE_OUT_MUTATION ? o->target : -1,
                     o->arg.kind == FE_ARG_TENSOR
                         ? size_names(l, &s->graph->values[o->arg.value.i])
                         : NULL};
    }
    return out;
}

/* ---- weights ------------------------------------------------------------------------------- */

typedef struct weights {
    fe_program *source;
    const fe_weight **by_port;
    const u8 *dtypes;
    i64 n;
} weights;

static const fe_weight *weight_of(const weights *w, eqf_ctx *ctx, i64 i)
{
    if (i < 0 || i >= w->n || !w->by_port[i])
        eqf_throw(ctx, EQF_E_DATA, w->source->file, "", "this input has no stored data");
    u32 code = w->by_port[i]->dtype;
    if ((code == FE_U8 ? fe_stand_in(code) : fe_dtype_of(code)) != w->dtypes[i])
        eqf_throw(ctx, EQF_E_UNSUPPORTED, w->source->file, w->by_port[i]->fqn,
                  "data of a dtype that has no meaning here");
    return w->by_port[i];
}

static void read_weight(void *user, eqf_ctx *ctx, i64 i, void *out)
{
    weights *w = user;
    const fe_weight *one = weight_of(w, ctx, i);
    fe_weight_read(w->source, one, out);
    /* Widened in place, from the end. */
    for (i64 k = one->dtype == FE_U8 ? one->count - 1 : -1; k >= 0; k--)
        ((i32 *)out)[k] = ((const u8 *)out)[k];
}

static const void *map_weight(void *user, eqf_ctx *ctx, i64 i)
{
    weights *w = user;
    const fe_weight *one = weight_of(w, ctx, i);
    return one->dtype == FE_U8 ? NULL : fe_weight_map(w->source, one);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static const ir_dim *port_dims(fe_lower *l, const fe_tensor *t)
{
    ir_dim *dims = NEW_N(l->a, ir_dim, t->rank);
    for (i64 d = 0; d < t->rank; d++)
        dims[d] = (ir_dim){t->dims[d].extent, fe_atoms(l, t->dims[d].vars)};
    return dims;
}

static bool writes_in_place(const fe_lower *l, const fe_graph *g)
{
    for (i64 i = 0; i < g->n_nodes; i++) {
        if (fe_functional_name(l->a, g->nodes[i].target) &&
            strncmp(g->nodes[i].target, "aten.detach_", 12) != 0)
            return true;
        for (i64 k = 0; k < g->nodes[i].n_inputs; k++)
            if (g->nodes[i].inputs[k].kind == FE_ARG_GRAPH &&
                writes_in_place(l, g->nodes[i].inputs[k].graph))
                return true;
    }
    return false;
}

static ir_program *finish(fe_lower *l, input *inputs, fe_scope *top, bool keep_spelling)
{
    i64 n_out, n_in = l->source->n_inputs, n_ports = 0;
    output *outputs = collect_outputs(l, top, &n_out);
    ir_term *terms = NEW_N(l->a, ir_term, l->drafts.n);
    i64 *port_of = NEW_N(l->a, i64, n_in);
    weights *w = NEW(l->a, weights);
    w->source = l->source;
    w->by_port = NEW_N(l->a, const fe_weight *, n_in);
    u8 *dtypes = NEW_N(l->a, u8, n_in);
    for (i64 i = 0; i < n_in; i++) {
        input *in = &inputs[i];
        if (!in->t)
            continue;
        ir_port port = {.name = in->name,
                        .role = in->role,
                        .dtype = in->t->dtype,
                        .rank = in->t->rank,
                        .dims = port_dims(l, in->t),
                        .key = in->key,
                        .symbols = in->symbols};
        l->p->origin = in->name;
        i64 at = ir_add_input(l->p, port);
        if (in->draft)
            terms[in->draft] = l->p->inputs.at[at].term;
        w->by_port[at] = in->weight;
        dtypes[at] = in->t->dtype;
        port_of[i] = at + 1;
        n_ports = at + 1;
    }
    w->dtypes = dtypes;
    w->n = n_ports;
    l->p->source = (ir_source){read_weight, map_weight, w};
    u32 *roots = NEW_N(l->a, u32, n_out);
    for (i64 i = 0; i < n_out; i++)
        roots[i] = outputs[i].t->term;
    fe_resolve(l, roots, n_out, terms);
    for (i64 i = 0; i < n_out; i++) {
        const fe_tensor *t = outputs[i].t;
        ir_port port = {.name = outputs[i].name,
                        .dtype = t->dtype,
                        .rank = t->rank,
                        .dims = port_dims(l, t),
                        .symbols = outputs[i].symbols,
                        .term = t->term ? terms[t->term] : (ir_term){0}};
        if (outputs[i].target >= 0)
            port.writes = port_of[outputs[i].target];
        ir_add_output(l->p, port);
    }
    ir_verify(l->p, "read");
    ir_program *p = l->p;
    if (!keep_spelling) {
        fe_normalize(p);
        ir_verify(p, "normalize");
    }
    p = ir_canonical(l->a, p);
    p->source = (ir_source){read_weight, map_weight, w};
    return p;
}

static bool is_plain(u16 op)
{
    return op == IR_gather || op == IR_scatter || op == IR_argsort || op == IR_scan;
}

/* A call that a plain kernel would run is none when the normal form found another way. */
static void keep_live_boundaries(fe_lower *l, const ir_program *p)
{
    i64 n = 0;
    for (i64 i = 0; i < l->boundaries.n; i++) {
        const fe_boundary *b = &l->boundaries.at[i];
        bool is_live = !b->runs;
        for (i64 k = 1; k < p->nodes.n && !is_live; k++)
            is_live = is_plain(p->nodes.at[k].op) &&
                      !strcmp(intern_text(p->names, p->nodes.at[k].origin), b->node);
        if (is_live)
            l->boundaries.at[n++] = *b;
    }
    l->boundaries.n = n;
}

static ir_program *read_archive(arena *a, const char *path, const fe_read_options *o,
                                fe_report *report)
{
    fe_options raw = {.model = o->model};
    fe_lower *l = NEW(a, fe_lower);
    l->a = a;
    l->ctx = arena_ctx(a);
    l->source = fe_read_pt2(a, path, &raw);
    l->p = ir_program_new(a, path, l->source->model);
    l->space = fe_space_new(a);
    l->use_constants = o->use_constants;
    vec_push(a, &l->drafts, (fe_draft){0});
    l->env = (fe_env){l, symbol_value, size_value, NULL};
    size_list sizes = {0};
    fix_symbols(l, o, &sizes);
    check_guards(l);
    fe_scope *top = fe_scope_new(l, l->source->graph);
    l->has_writes = writes_in_place(l, l->source->graph);
    input *inputs = NEW_N(a, input, l->source->n_inputs);
    for (i64 i = 0; i < l->source->n_inputs; i++)
        add_input(l, top, i, inputs);
    fe_lower_graph(l, top);
    ir_program *p = finish(l, inputs, top, o->keep_spelling);
    keep_live_boundaries(l, p);
    if (report)
        *report =
            (fe_report){.torch_version = l->source->torch_version,
                        .schema_major = l->source->schema_major,
                        .schema_minor = l->source->schema_minor,
                        .form = l->source->form == FE_FORM_TRAINING ? "training" : "functional",
                        .sizes = sizes.at,
                        .n_sizes = sizes.n,
                        .boundaries = l->boundaries.at,
                        .n_boundaries = l->boundaries.n,
                        .notes = l->source->notes,
                        .n_notes = l->source->n_notes};
    return p;
}

ir_program *fe_read(arena *a, const char *path, const fe_read_options *options, fe_report *report)
{
    fe_read_options none = {0};
    const fe_read_options *o = options ? options : &none;
    i64 n;
    const char *bytes = file_map(a, path, &n);
    i64 length = (i64)strlen(path);
    bool is_text = length > 4 && !strcmp(path + length - 4, ".eqf") && !fe_looks_like_zip(bytes, n);
    if (!is_text)
        return read_archive(a, path, o, report);
    if (o->n_dims)
        eqf_throw(arena_ctx(a), EQF_E_ARGUMENT, path, o->dims[0].name,
                  "a text program has no symbolic dims");
    ir_program *p = ir_read(a, path, bytes, n);
    if (report)
        *report = (fe_report){.torch_version = "", .form = "text"};
    return p;
}
