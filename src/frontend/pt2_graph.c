/* pt2_graph: graph_module.graph of the program JSON as values and nodes.
 *
 * A graph is its own scope. A value exists from the moment a graph input or a node defines it, and
 * its type is looked up in the tables of the JSON at that moment: entries that nothing defines are
 * never parsed. Because a name must be defined before its use and only once, the order of nodes is
 * a topological order and no cycle can be written down.
 *
 * Arguments become fe_arg by the tag of their union. Symbolic lists and plain ones come out as the
 * same kind of list, as do `as_tensors` and `as_optional_tensors`: the exporter chooses among them
 * by content, not by meaning. */
#include <stdio.h>

#include "frontend/reader.h"

enum { MAX_RANK = 64, MAX_GRAPHS_DEEP = 16, MAX_NAMED = 256, LAYOUT_STRIDED = 7 };
#define MAX_COUNT ((i64)16 << 20)

/* One graph being read. */
typedef struct scope {
    fe_reader *r;
    fe_graph *g;
    intern *names; /* id of a name = index of its value */
    VEC(fe_value) values;
    fe_js tensors, ints, reals, bools; /* value tables; v NULL when absent */
    i64 node;                          /* being read; -1: graph inputs and outputs */
    int depth;
} scope;

/* ---- dtypes -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    i64 bytes;
} DTYPES[] = {
    [FE_U8] = {"u8", 1},
    [FE_I8] = {"i8", 1},
    [FE_I16] = {"i16", 2},
    [FE_I32] = {"i32", 4},
    [FE_I64] = {"i64", 8},
    [FE_F16] = {"f16", 2},
    [FE_F32] = {"f32", 4},
    [FE_F64] = {"f64", 8},
    [FE_C32] = {"c32", 4},
    [FE_C64] = {"c64", 8},
    [FE_C128] = {"c128", 16},
    [FE_BOOL] = {"bool", 1},
    [FE_BF16] = {"bf16", 2},
    [FE_U16] = {"u16", 2},
    [FE_F8_E4M3FN] = {"f8_e4m3fn", 1},
    [FE_F8_E5M2] = {"f8_e5m2", 1},
    [FE_F8_E4M3FNUZ] = {"f8_e4m3fnuz", 1},
    [FE_F8_E5M2FNUZ] = {"f8_e5m2fnuz", 1},
    [FE_F8_E8M0FNU] = {"f8_e8m0fnu", 1},
    [FE_U32] = {"u32", 4},
    [FE_U64] = {"u64", 8},
};

const char *fe_dtype_name(u32 code)
{
    return code < COUNT_OF(DTYPES) ? DTYPES[code].name : NULL;
}

i64 fe_dtype_bytes(u32 code)
{
    return code < COUNT_OF(DTYPES) ? DTYPES[code].bytes : 0;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static void count(const fe_js *x, i64 *n, i64 more, const char *what)
{
    if (more > MAX_COUNT - *n)
        fe_js_throw(x, EQF_E_LIMIT, "more than %lld %s", (long long)MAX_COUNT, what);
    *n += more;
}

/* {as_expr: {expr_str, hint?}}; the hint counts when it is an integer. */
static const fe_expr *read_expr(fe_reader *r, const fe_js *as_expr)
{
    fe_js text = fe_js_get(as_expr, "expr_str"), hint = fe_js_opt(as_expr, "hint");
    i64 n, value;
    const char *s = fe_js_text(&text, &n);
    bool has_hint = false;
    if (fe_js_is_object(&hint)) {
        fe_js number = fe_js_only(&hint);
        has_hint = fe_js_is_int(&number);
        if (has_hint)
            value = fe_js_i64(&number);
    }
    const fe_expr *e = fe_expr_srepr(r->exprs, s, n, has_hint ? &value : NULL);
    if (!e)
        fe_js_throw(&text, EQF_E_PARSE, "\"%s\" is no symbolic expression",
                    fe_show(text.doc->a, s, n));
    return e;
}

static _Noreturn void unknown_tag(const scope *s, const fe_js *member, const char *what)
{
    fe_js_throw(member, EQF_E_UNSUPPORTED, "unknown kind of %s \"%s\" in schema %lld.%lld", what,
                fe_show(member->doc->a, member->key, (i64)strlen(member->key)),
                (long long)s->r->p->schema_major, (long long)s->r->p->schema_minor);
}

/* A SymInt that is an extent. */
static const fe_expr *read_size(scope *s, const fe_js *x)
{
    fe_js one = fe_js_only(x);
    if (strcmp(one.key, "as_expr") == 0)
        return read_expr(s->r, &one);
    if (strcmp(one.key, "as_int") != 0)
        unknown_tag(s, &one, "size");
    i64 size = fe_js_i64(&one);
    if (size < 0)
        fe_js_throw(&one, EQF_E_PARSE, "the size %lld is negative", (long long)size);
    return fe_expr_const(s->r->exprs, size);
}

/* ---- types of values ----------------------------------------------------------------------- */

/* Bytes of the constant extents must fit 63 bits: a tensor with a 0 among them has none. */
static void check_bytes(const fe_js *sizes, const fe_value *v)
{
    i64 bytes = MAX(fe_dtype_bytes(v->dtype), 1);
    bool is_empty = false, fits = true;
    for (int i = 0; i < v->rank; i++) {
        if (v->sizes[i]->op != FE_EXPR_INT)
            continue;
        is_empty |= v->sizes[i]->i == 0;
        fits = fits && (v->sizes[i]->i == 0 || mul_i64(bytes, v->sizes[i]->i, &bytes));
    }
    if (!fits && !is_empty)
        fe_js_throw(sizes, EQF_E_PARSE, "the tensor has more than 2^63 bytes");
}

/* A symbolic int, real or bool: {as_expr} or a constant. */
static const fe_expr *read_number_meta(scope *s, const fe_js *meta, const char *constant)
{
    fe_js one = fe_js_only(meta);
    if (strcmp(one.key, "as_expr") == 0)
        return read_expr(s->r, &one);
    if (strcmp(one.key, constant) != 0)
        unknown_tag(s, &one, "symbolic number");
    if (strcmp(constant, "as_int") == 0)
        return fe_expr_const(s->r->exprs, fe_js_i64(&one));
    if (strcmp(constant, "as_bool") == 0)
        return fe_expr_const(s->r->exprs, fe_js_bool(&one));
    fe_expr *e = fe_expr_new(s->r->exprs, FE_EXPR_REAL, 0);
    e->f = fe_js_f64(&one);
    return e;
}

static void read_tensor_meta(scope *s, const fe_js *meta, fe_value *v)
{
    fe_js type = fe_js_get(meta, "dtype"), sizes = fe_js_get(meta, "sizes");
    fe_js layout = fe_js_opt(meta, "layout");
    i64 code = fe_js_i64(&type), rank = fe_js_items(&sizes);
    if (rank > MAX_RANK)
        fe_js_throw(&sizes, EQF_E_LIMIT, "rank %lld is more than %d", (long long)rank, MAX_RANK);
    v->dtype = code >= 0 && code <= UINT32_MAX ? (u32)code : 0;
    v->rank = (u8)rank;
    v->sizes = NEW_N(s->r->a, const fe_expr *, rank);
    for (i64 i = 0; i < rank; i++) {
        fe_js size = fe_js_at(&sizes, i);
        v->sizes[i] = read_size(s, &size);
    }
    check_bytes(&sizes, v);
    fe_js strides = fe_js_opt(meta, "strides"), offset = fe_js_opt(meta, "storage_offset");
    if (strides.v && offset.v && fe_js_items(&strides) == rank) {
        v->strides = NEW_N(s->r->a, const fe_expr *, rank);
        for (i64 i = 0; i < rank; i++) {
            fe_js stride = fe_js_at(&strides, i);
            v->strides[i] = read_number_meta(s, &stride, "as_int");
        }
        v->offset = read_number_meta(s, &offset, "as_int");
    }
    if (!fe_dtype_name(v->dtype))
        v->problem =
            arena_printf(s->r->a, "dtype code %lld is unknown to schema 8.20", (long long)code);
    else if (layout.v && fe_js_i64(&layout) != LAYOUT_STRIDED)
        v->problem = arena_printf(s->r->a, "layout %lld: only strided tensors (7) are read",
                                  (long long)fe_js_i64(&layout));
}

static fe_value_id define(scope *s, const fe_js *x, fe_value_kind kind)
{
    const char *name = fe_js_name(x);
    u32 id = intern_cstr(s->names, name);
    if (id != s->values.n)
        fe_js_throw(x, EQF_E_PARSE, "\"%s\" is defined twice", name);
    count(x, &s->r->values, 1, "values");
    fe_value v = {.name = intern_text(s->names, id), .kind = (u8)kind, .node = s->node};
    fe_js *table = kind == FE_VALUE_TENSOR ? &s->tensors
                   : kind == FE_VALUE_INT  ? &s->ints
                   : kind == FE_VALUE_REAL ? &s->reals
                                           : &s->bools;
    if (kind != FE_VALUE_OBJECT) {
        fe_js meta = {0};
        if (table->v)
            meta = fe_js_opt(table, v.name);
        if (kind == FE_VALUE_TENSOR) {
            if (!meta.v)
                fe_js_throw(x, EQF_E_PARSE, "tensor_values has no type for \"%s\"", v.name);
            read_tensor_meta(s, &meta, &v);
        } else if (meta.v) {
            v.number = read_number_meta(s, &meta,
                                        kind == FE_VALUE_INT    ? "as_int"
                                        : kind == FE_VALUE_REAL ? "as_float"
                                                                : "as_bool");
        }
    }
    vec_push(s->r->a, &s->values, v);
    return (fe_value_id){id};
}

static fe_value_id refer(scope *s, const fe_js *x, fe_value_kind kind)
{
    static const char *const KINDS[] = {
        "", "a tensor", "a symbolic int", "a symbolic real", "a symbolic bool", "an object"};
    const char *name = fe_js_name(x);
    u32 id = intern_find(s->names, name, (i64)strlen(name));
    if (id == 0)
        fe_js_throw(x, EQF_E_PARSE, "\"%s\" is used before anything defines it", name);
    fe_value *v = &s->values.at[id];
    if (v->kind != kind)
        fe_js_throw(x, EQF_E_PARSE, "\"%s\" is %s, but used as %s", name, KINDS[v->kind],
                    KINDS[kind]);
    v->uses++;
    return (fe_value_id){id};
}

/* ---- arguments ----------------------------------------------------------------------------- */

typedef enum mode { REFER, DEFINE } mode;

static fe_arg value_arg(scope *s, const fe_js *name, fe_value_kind kind, mode m)
{
    static const u8 KINDS[] = {
        [FE_VALUE_TENSOR] = FE_ARG_TENSOR, [FE_VALUE_INT] = FE_ARG_SYM_INT,
        [FE_VALUE_REAL] = FE_ARG_SYM_REAL, [FE_VALUE_BOOL] = FE_ARG_SYM_BOOL,
        [FE_VALUE_OBJECT] = FE_ARG_OBJECT,
    };
    fe_arg a = {.kind = KINDS[kind], .name = ""};
    a.value = m == DEFINE ? define(s, name, kind) : refer(s, name, kind);
    return a;
}

static fe_arg tensor_arg(scope *s, const fe_js *x, mode m)
{
    fe_js name = fe_js_get(x, "name");
    return value_arg(s, &name, FE_VALUE_TENSOR, m);
}

/* as_sym_int and its like: {as_name} or a constant. */
static fe_arg sym_arg(scope *s, const fe_js *x, fe_value_kind kind, mode m)
{
    fe_js one = fe_js_only(x);
    if (strcmp(one.key, "as_name") == 0)
        return value_arg(s, &one, kind, m);
    fe_arg a = {.name = ""};
    if (strcmp(one.key, "as_int") == 0) {
        a.kind = FE_ARG_INT;
        a.i = fe_js_i64(&one);
    } else if (strcmp(one.key, "as_float") == 0) {
        a.kind = FE_ARG_REAL;
        a.f = fe_js_f64(&one);
    } else if (strcmp(one.key, "as_bool") == 0) {
        a.kind = FE_ARG_BOOL;
        a.i = fe_js_bool(&one);
    } else {
        unknown_tag(s, &one, "symbolic argument");
    }
    return a;
}

static fe_arg device_arg(scope *s, const fe_js *x)
{
    fe_js type = fe_js_get(x, "type"), index = fe_js_opt(x, "index");
    fe_arg a = {.kind = FE_ARG_DEVICE, .name = ""};
    const char *name = fe_js_name(&type);
    char text[64];
    int n = index.v ? snprintf(text, sizeof text, "%.40s:%lld", name, (long long)fe_js_i64(&index))
                    : snprintf(text, sizeof text, "%.40s", name);
    a.text = fe_word(s->r, text, n);
    return a;
}

static const char *strip(const char *target)
{
    return strncmp(target, "torch.ops.", 10) == 0 ? target + 10 : target;
}

static fe_arg graph_arg(scope *s, const fe_js *x)
{
    fe_js name = fe_js_get(x, "name"), graph = fe_js_get(x, "graph");
    if (s->depth >= MAX_GRAPHS_DEEP)
        fe_js_throw(x, EQF_E_LIMIT, "sub-graphs nest more than %d deep", MAX_GRAPHS_DEEP);
    const char *node = x->doc->node;
    fe_arg a = {.kind = FE_ARG_GRAPH, .name = ""};
    a.graph = fe_read_graph(s->r, &graph, fe_js_name(&name), s->depth + 1);
    x->doc->node = node;
    return a;
}

/* Tags of unions, and how their content reads. L*: a list of items of the kind. */
typedef enum form {
    NONE,
    TENSOR,
    INT,
    REAL,
    BOOL,
    STRING,
    SYM_INT,
    SYM_REAL,
    SYM_BOOL,
    DTYPE,
    MEMORY_FORMAT,
    LAYOUT,
    DEVICE,
    GRAPH,
    OPERATOR,
    COMPLEX,
    OBJECT,
    OPTIONAL_TENSOR,
    L_TENSOR,
    L_OPTIONAL_TENSOR,
    L_INT,
    L_REAL,
    L_BOOL,
    L_STRING,
    L_SYM_INT,
    LL_INT,
    LL_REAL,
    LL_TENSOR,
    REFUSED
} form;

static const struct {
    const char *tag;
    u8 form;
} TAGS[] = {
    {"as_tensor", TENSOR},
    {"as_int", INT},
    {"as_ints", L_INT},
    {"as_none", NONE},
    {"as_float", REAL},
    {"as_floats", L_REAL},
    {"as_bool", BOOL},
    {"as_bools", L_BOOL},
    {"as_string", STRING},
    {"as_strings", L_STRING},
    {"as_tensors", L_TENSOR},
    {"as_optional_tensors", L_OPTIONAL_TENSOR},
    {"as_optional_tensor", OPTIONAL_TENSOR},
    {"as_nested_tensors", LL_TENSOR},
    {"as_sym_int", SYM_INT},
    {"as_sym_ints", L_SYM_INT},
    {"as_sym_float", SYM_REAL},
    {"as_sym_bool", SYM_BOOL},
    {"as_scalar_type", DTYPE},
    {"as_memory_format", MEMORY_FORMAT},
    {"as_layout", LAYOUT},
    {"as_device", DEVICE},
    {"as_graph", GRAPH},
    {"as_operator", OPERATOR},
    {"as_complex", COMPLEX},
    {"as_custom_obj", OBJECT},
    {"as_int_lists", LL_INT},
    {"as_float_lists", LL_REAL},
    {"as_string_to_argument", REFUSED},
};

static fe_arg read_form(scope *s, const fe_js *x, form f, mode m);

static fe_arg list_arg(scope *s, const fe_js *x, form item, mode m)
{
    i64 n = fe_js_items(x);
    count(x, &s->r->args, n, "arguments");
    fe_arg *items = NEW_N(s->r->a, fe_arg, n);
    for (i64 i = 0; i < n; i++) {
        fe_js one = fe_js_at(x, i);
        items[i] = read_form(s, &one, item, m);
    }
    fe_arg a = {.kind = FE_ARG_LIST, .name = ""};
    a.items = items;
    a.n = n;
    return a;
}

static fe_arg read_arg(scope *s, const fe_js *x, mode m);

static fe_arg read_form(scope *s, const fe_js *x, form f, mode m)
{
    fe_arg a = {.kind = FE_ARG_NONE, .name = ""};
    i64 n;
    switch (f) {
    case NONE:
        return a;
    case TENSOR:
        return tensor_arg(s, x, m);
    case OPTIONAL_TENSOR: /* a union of its own: {as_tensor} or {as_none} */
        return read_arg(s, x, m);
    case SYM_INT:
        return sym_arg(s, x, FE_VALUE_INT, m);
    case SYM_REAL:
        return sym_arg(s, x, FE_VALUE_REAL, m);
    case SYM_BOOL:
        return sym_arg(s, x, FE_VALUE_BOOL, m);
    case DEVICE:
        return device_arg(s, x);
    case GRAPH:
        return graph_arg(s, x);
    case INT:
    case DTYPE:
    case MEMORY_FORMAT:
    case LAYOUT:
        a.kind = f == INT      ? FE_ARG_INT
                 : f == DTYPE  ? FE_ARG_DTYPE
                 : f == LAYOUT ? FE_ARG_LAYOUT
                               : FE_ARG_MEMORY_FORMAT;
        a.i = fe_js_i64(x);
        return a;
    case REAL:
        a.kind = FE_ARG_REAL;
        a.f = fe_js_f64(x);
        return a;
    case BOOL:
        a.kind = FE_ARG_BOOL;
        a.i = fe_js_bool(x);
        return a;
    case STRING:
        a.kind = FE_ARG_STRING;
        a.text = fe_js_text(x, &n);
        a.text = fe_word(s->r, a.text, n);
        return a;
    case OPERATOR:
        a.kind = FE_ARG_OPERATOR;
        a.text = strip(fe_js_name(x));
        a.text = fe_word(s->r, a.text, (i64)strlen(a.text));
        return a;
    case COMPLEX: {
        fe_js real = fe_js_get(x, "real"), imaginary = fe_js_get(x, "imag");
        a.kind = FE_ARG_COMPLEX;
        a.f = fe_js_f64(&real);
        a.imaginary = fe_js_f64(&imaginary);
        return a;
    }
    case OBJECT: {
        fe_js name = fe_js_get(x, "name");
        return value_arg(s, &name, FE_VALUE_OBJECT, m);
    }
    case L_TENSOR:
        return list_arg(s, x, TENSOR, m);
    case L_OPTIONAL_TENSOR:
        return list_arg(s, x, OPTIONAL_TENSOR, m);
    case L_INT:
        return list_arg(s, x, INT, m);
    case L_REAL:
        return list_arg(s, x, REAL, m);
    case L_BOOL:
        return list_arg(s, x, BOOL, m);
    case L_STRING:
        return list_arg(s, x, STRING, m);
    case L_SYM_INT:
        return list_arg(s, x, SYM_INT, m);
    case LL_INT:
        return list_arg(s, x, L_INT, m);
    case LL_REAL:
        return list_arg(s, x, L_REAL, m);
    case LL_TENSOR:
        return list_arg(s, x, L_TENSOR, m);
    case REFUSED:
        break;
    }
    fe_js_throw(x, EQF_E_UNSUPPORTED, "arguments of kind \"%s\" are not read", x->key);
}

/* An Argument: one tag and its content. */
static fe_arg read_arg(scope *s, const fe_js *x, mode m)
{
    fe_js one = fe_js_only(x);
    count(x, &s->r->args, 1, "arguments");
    for (i64 i = 0; i < COUNT_OF(TAGS); i++)
        if (strcmp(one.key, TAGS[i].tag) == 0)
            return read_form(s, &one, TAGS[i].form, m);
    unknown_tag(s, &one, "argument");
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* `File ".../model.py", line 42` of a stack trace as model.py:42; "" when there is none. */
static const char *source_line(fe_reader *r, const char *s, i64 n)
{
    static const char mark[] = "File \"";
    const char *end = s + n, *from = memmem(s, (size_t)n, mark, sizeof mark - 1);
    if (!from)
        return "";
    from += sizeof mark - 1;
    const char *quote = memchr(from, '"', (size_t)(end - from));
    if (!quote)
        return "";
    const char *base = quote;
    while (base > from && base[-1] != '/' && base[-1] != '\\')
        base--;
    static const char line[] = "\", line ";
    const char *digits = quote + sizeof line - 1, *stop = digits;
    if (end - quote < (i64)sizeof line || memcmp(quote, line, sizeof line - 1) != 0)
        return "";
    while (stop < end && stop - digits < 9 && *stop >= '0' && *stop <= '9')
        stop++;
    if (!fe_is_plain_name(base, quote - base) || stop == digits)
        return "";
    char text[FE_MAX_NAME + 16];
    int length = snprintf(text, sizeof text, "%.*s:%.*s", (int)(quote - base), base,
                          (int)(stop - digits), digits);
    return fe_word(r, text, length);
}

/* The path of the innermost module in `key,path,type;key,path,type…`. */
static const char *module_path(fe_reader *r, const char *s, i64 n)
{
    const char *end = s + n, *last = memrchr(s, ';', (size_t)n);
    last = last ? last + 1 : s;
    const char *from = memchr(last, ',', (size_t)(end - last));
    const char *to = from ? memchr(from + 1, ',', (size_t)(end - from - 1)) : NULL;
    if (!to || !fe_is_plain_name(from + 1, to - from - 1))
        return "";
    if (from[1] == '_' && memmem(from, (size_t)(to - from), "_empty_nn_module_stack", 22))
        return ""; /* the exporter's stand-in for nodes that it made up */
    return fe_word(r, from + 1, to - from - 1);
}

/* Metadata is for people: whatever is odd in it is left out. */
static void read_metadata(fe_reader *r, const fe_js *metadata, fe_node *n)
{
    n->source = n->module = "";
    if (!fe_js_is_object(metadata))
        return;
    i64 bytes;
    fe_js trace = fe_js_opt(metadata, "stack_trace");
    if (fe_js_is_text(&trace)) {
        const char *s = fe_js_text(&trace, &bytes);
        n->source = source_line(r, s, bytes);
    }
    fe_js stack = fe_js_opt(metadata, "nn_module_stack");
    if (fe_js_is_text(&stack)) {
        const char *s = fe_js_text(&stack, &bytes);
        n->module = module_path(r, s, bytes);
    }
}

/* The name of the first result, borrowed from the JSON; NULL when it has none. */
static const char *result_name(const fe_js *outputs)
{
    if (fe_js_items(outputs) == 0)
        return NULL;
    fe_js first = fe_js_at(outputs, 0);
    if (!fe_js_is_object(&first) || fe_js_members(&first) != 1)
        return NULL;
    fe_js one = fe_js_only(&first), name = {0};
    if (fe_js_is_array(&one) && fe_js_items(&one) > 0) {
        fe_js item = fe_js_at(&one, 0);
        if (fe_js_is_object(&item))
            name = fe_js_opt(&item, "name");
    } else if (fe_js_is_object(&one)) {
        name = fe_js_opt(&one, strcmp(one.key, "as_tensor") == 0 ? "name" : "as_name");
    }
    return fe_js_is_text(&name) ? fe_js_text(&name, NULL) : NULL;
}

static void name_node(scope *s, const fe_js *x, const fe_js *outputs, fe_node *n)
{
    fe_js name = fe_js_opt(x, "name");
    const char *text = name.v ? fe_js_name(&name) : result_name(outputs);
    if (text && fe_is_plain_name(text, (i64)strlen(text)))
        n->name = fe_word(s->r, text, (i64)strlen(text));
    else
        n->name = arena_printf(s->r->a, "%s#%lld", n->target, (long long)s->node);
}

static void read_node(scope *s, const fe_js *x, fe_node *n)
{
    fe_js target = fe_js_get(x, "target"), inputs = fe_js_get(x, "inputs");
    fe_js outputs = fe_js_get(x, "outputs"), metadata = fe_js_opt(x, "metadata");
    const char *name = strip(fe_js_name(&target));
    n->target = fe_word(s->r, name, (i64)strlen(name));
    if (n->target[0] == 0)
        fe_js_throw(&target, EQF_E_PARSE, "the target is empty");
    name_node(s, x, &outputs, n);
    x->doc->node = n->name;
    read_metadata(s->r, &metadata, n);
    n->n_inputs = fe_js_items(&inputs);
    count(x, &s->r->args, n->n_inputs, "arguments");
    fe_arg *in = NEW_N(s->r->a, fe_arg, n->n_inputs);
    for (i64 i = 0; i < n->n_inputs; i++) {
        fe_js item = fe_js_at(&inputs, i);
        fe_js arg = fe_js_get(&item, "arg"), arg_name = fe_js_opt(&item, "name");
        in[i] = read_arg(s, &arg, REFER);
        i64 bytes = 0;
        const char *text = arg_name.v ? fe_js_text(&arg_name, &bytes) : "";
        if (bytes > 0)
            fe_js_name(&arg_name);
        if (i >= MAX_NAMED && bytes > 0)
            fe_js_throw(&item, EQF_E_LIMIT, "more than %d arguments with names", MAX_NAMED);
        in[i].name = fe_word(s->r, text, bytes);
        for (i64 k = 0; bytes > 0 && k < i; k++)
            if (in[k].name == in[i].name)
                fe_js_throw(&item, EQF_E_PARSE, "the argument \"%s\" is given twice", text);
    }
    n->inputs = in;
    n->n_outputs = fe_js_items(&outputs);
    count(x, &s->r->args, n->n_outputs, "arguments");
    fe_arg *out = NEW_N(s->r->a, fe_arg, n->n_outputs);
    for (i64 i = 0; i < n->n_outputs; i++) {
        fe_js item = fe_js_at(&outputs, i);
        out[i] = read_arg(s, &item, DEFINE);
        if (out[i].kind == FE_ARG_GRAPH || out[i].kind == FE_ARG_OPERATOR)
            fe_js_throw(&item, EQF_E_PARSE, "a node cannot return this kind of value");
    }
    n->outputs = out;
    x->doc->node = NULL;
}

/* ---- graphs -------------------------------------------------------------------------------- */

static const fe_arg *read_ends(scope *s, const fe_js *list, mode m, i64 *n)
{
    *n = fe_js_items(list);
    count(list, &s->r->args, *n, "arguments");
    fe_arg *args = NEW_N(s->r->a, fe_arg, *n);
    for (i64 i = 0; i < *n; i++) {
        fe_js item = fe_js_at(list, i);
        args[i] = read_arg(s, &item, m);
        if (args[i].kind == FE_ARG_GRAPH || args[i].kind == FE_ARG_OPERATOR)
            fe_js_throw(&item, EQF_E_PARSE, "a graph cannot take or return this kind of value");
    }
    return args;
}

fe_graph *fe_read_graph(fe_reader *r, const fe_js *graph, const char *name, int depth)
{
    fe_graph *g = NEW(r->a, fe_graph);
    scope s = {.r = r, .g = g, .names = intern_new(r->a), .node = -1, .depth = depth};
    g->name = fe_word(r, name, (i64)strlen(name));
    vec_push(r->a, &s.values, (fe_value){.name = "", .node = -1});
    s.tensors = fe_js_opt(graph, "tensor_values");
    s.ints = fe_js_opt(graph, "sym_int_values");
    s.reals = fe_js_opt(graph, "sym_float_values");
    s.bools = fe_js_opt(graph, "sym_bool_values");
    fe_js inputs = fe_js_get(graph, "inputs"), nodes = fe_js_get(graph, "nodes");
    fe_js outputs = fe_js_get(graph, "outputs");
    g->inputs = read_ends(&s, &inputs, DEFINE, &g->n_inputs);
    g->n_nodes = fe_js_items(&nodes);
    count(&nodes, &r->nodes, g->n_nodes, "nodes");
    fe_node *all = NEW_N(r->a, fe_node, g->n_nodes);
    for (s.node = 0; s.node < g->n_nodes; s.node++) {
        fe_js node = fe_js_at(&nodes, s.node);
        read_node(&s, &node, &all[s.node]);
    }
    s.node = -1;
    g->nodes = all;
    g->outputs = read_ends(&s, &outputs, REFER, &g->n_outputs);
    g->values = s.values.at;
    g->n_values = s.values.n;
    return g;
}

const fe_arg *fe_find_arg(const fe_node *n, const char *name)
{
    for (i64 i = 0; i < n->n_inputs; i++)
        if (strcmp(n->inputs[i].name, name) == 0)
            return &n->inputs[i];
    return NULL;
}
