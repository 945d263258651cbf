/* json: jansson behind cursors that know where they stand.
 *
 * A text is parsed whole (nesting at most 2,048, exact 64-bit integers, no duplicate keys, no NUL,
 * nothing after the value). Every accessor checks the kind of what it finds and throws with the
 * path from the root, such as graph_module.graph.nodes[3].inputs[0].arg; inside a node the place
 * is the node's name instead of the member's. */
#include <jansson.h>
#include <math.h>

#include "frontend/reader.h"

static void release_json(void *p)
{
    json_decref(p);
}

static fe_doc *read_text(arena *a, const char *file, const char *member, const char *text, i64 n,
                         json_error_t *error)
{
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error);
    if (!root)
        return NULL;
    arena_defer(a, release_json, root);
    fe_doc *d = NEW(a, fe_doc);
    *d = (fe_doc){.a = a, .ctx = arena_ctx(a), .file = file, .member = member, .root = root};
    return d;
}

fe_doc *fe_json_read(arena *a, const char *file, const char *member, const char *text, i64 n)
{
    json_error_t error;
    fe_doc *d = read_text(a, file, member, text, n, &error);
    if (d)
        return d;
    if (json_error_code(&error) == json_error_out_of_memory)
        eqf_throw(arena_ctx(a), EQF_E_NO_MEMORY, file, member, "out of memory");
    eqf_throw(arena_ctx(a), EQF_E_PARSE, file,
              arena_printf(a, "%s:%d:%d", member, error.line, error.column), "%s",
              fe_show(a, error.text, (i64)strlen(error.text)));
}

fe_doc *fe_json_try(arena *a, const char *file, const char *member, const char *text, i64 n)
{
    json_error_t error;
    return read_text(a, file, member, text, n, &error);
}

fe_js fe_js_root(fe_doc *d)
{
    return (fe_js){.doc = d, .v = d->root};
}

/* ---- errors -------------------------------------------------------------------------------- */

static void add_path(str *out, const fe_js *x)
{
    if (!x->up)
        return;
    add_path(out, x->up);
    if (x->key) {
        if (out->n > 0)
            str_add_char(out, '.');
        str_add(out, fe_show(out->a, x->key, (i64)strlen(x->key)));
    } else {
        str_printf(out, "[%lld]", (long long)x->index);
    }
}

void fe_js_throw(const fe_js *x, eqf_status status, const char *format, ...)
{
    fe_doc *d = x->doc;
    char text[512];
    va_list args;
    va_start(args, format);
    fe_format(text, sizeof text, format, args);
    va_end(args);
    str path = str_new(d->a);
    add_path(&path, x);
    if (d->node)
        eqf_throw(d->ctx, status, d->file, d->node, "%s (%s: %s)", text, d->member,
                  str_text(&path));
    if (path.n == 0)
        eqf_throw(d->ctx, status, d->file, d->member, "%s", text);
    eqf_throw(d->ctx, status, d->file, d->member, "%s: %s", str_text(&path), text);
}

static const char *kind_name(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a truth value";
    case JSON_NULL:
        break;
    }
    return "null";
}

static _Noreturn void expected(const fe_js *x, const char *what)
{
    fe_js_throw(x, EQF_E_PARSE, "expected %s, found %s", what, kind_name(x->v));
}

/* ---- moving -------------------------------------------------------------------------------- */

fe_js fe_js_opt(const fe_js *o, const char *key)
{
    if (!json_is_object((json_t *)o->v))
        expected(o, "an object");
    json_t *v = json_object_get(o->v, key);
    return (fe_js){.doc = o->doc, .up = o, .key = key, .v = json_is_null(v) ? NULL : v};
}

fe_js fe_js_get(const fe_js *o, const char *key)
{
    fe_js x = fe_js_opt(o, key);
    if (!x.v)
        fe_js_throw(o, EQF_E_PARSE, "the field \"%s\" is missing", key);
    return x;
}

fe_js fe_js_only(const fe_js *o)
{
    i64 n = fe_js_members(o);
    if (n != 1)
        fe_js_throw(o, EQF_E_PARSE, "expected an object of one member, found %lld", (long long)n);
    void *it = NULL;
    fe_js x;
    fe_js_next(o, &it, &x);
    return x;
}

bool fe_js_next(const fe_js *o, void **it, fe_js *member)
{
    if (!json_is_object((json_t *)o->v))
        expected(o, "an object");
    *it = *it ? json_object_iter_next(o->v, *it) : json_object_iter(o->v);
    if (!*it)
        return false;
    json_t *v = json_object_iter_value(*it);
    *member = (fe_js){
        .doc = o->doc, .up = o, .key = json_object_iter_key(*it), .v = json_is_null(v) ? NULL : v};
    return true;
}

i64 fe_js_members(const fe_js *o)
{
    if (!json_is_object((json_t *)o->v))
        expected(o, "an object");
    return (i64)json_object_size(o->v);
}

i64 fe_js_items(const fe_js *array)
{
    if (!json_is_array((json_t *)array->v))
        expected(array, "an array");
    return (i64)json_array_size(array->v);
}

fe_js fe_js_at(const fe_js *array, i64 i)
{
    json_t *v = json_array_get(array->v, (size_t)i);
    return (fe_js){.doc = array->doc, .up = array, .index = i, .v = json_is_null(v) ? NULL : v};
}

/* ---- values -------------------------------------------------------------------------------- */

bool fe_js_is_object(const fe_js *x)
{
    return json_is_object((json_t *)x->v);
}

bool fe_js_is_array(const fe_js *x)
{
    return json_is_array((json_t *)x->v);
}

bool fe_js_is_text(const fe_js *x)
{
    return json_is_string((json_t *)x->v);
}

bool fe_js_is_int(const fe_js *x)
{
    return json_is_integer((json_t *)x->v);
}

i64 fe_js_i64(const fe_js *x)
{
    if (!fe_js_is_int(x))
        expected(x, "an integer");
    return json_integer_value(x->v);
}

f64 fe_js_f64(const fe_js *x)
{
    if (json_is_number((json_t *)x->v))
        return json_number_value(x->v);
    if (!fe_js_is_text(x))
        expected(x, "a number");
    const char *s = json_string_value(x->v);
    if (strcmp(s, "Infinity") == 0)
        return HUGE_VAL;
    if (strcmp(s, "-Infinity") == 0)
        return -HUGE_VAL;
    if (strcmp(s, "NaN") == 0)
        return (f64)NAN;
    fe_js_throw(x, EQF_E_PARSE, "expected a number, found \"%s\"",
                fe_show(x->doc->a, s, (i64)strlen(s)));
}

bool fe_js_bool(const fe_js *x)
{
    if (!json_is_boolean((json_t *)x->v))
        expected(x, "a truth value");
    return json_is_true((json_t *)x->v);
}

const char *fe_js_text(const fe_js *x, i64 *n)
{
    if (!fe_js_is_text(x))
        expected(x, "a string");
    if (n)
        *n = (i64)json_string_length(x->v);
    return json_string_value(x->v);
}

const char *fe_js_name(const fe_js *x)
{
    i64 n;
    const char *s = fe_js_text(x, &n);
    if (!fe_is_plain_name(s, n))
        fe_js_throw(x, EQF_E_PARSE, "\"%s\" is no name: expected 1 to 4096 bytes of plain text",
                    fe_show(x->doc->a, s, n));
    return s;
}
