/* srepr: expressions as sympy's srepr prints them, and the table of symbols.
 *
 * The text is a term: a head with arguments in parentheses, names, integers, quoted strings,
 * tuples; arguments may be keywords (Symbol('s77', positive=True, integer=True)). Known heads
 * become fe_expr operators. An unknown head makes its whole term FE_EXPR_OPAQUE, which has no
 * value: what uses it becomes a boundary, while a text that is no term at all is malformed. Equal
 * texts give one tree, so the sizes of equal dims are equal pointers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/reader.h"

/* ---- symbols and nodes --------------------------------------------------------------------- */

fe_exprs *fe_exprs_new(arena *a)
{
    fe_exprs *x = NEW(a, fe_exprs);
    x->a = a;
    x->names = intern_new(a);
    x->texts = intern_new(a);
    x->paths = intern_new(a);
    return x;
}

fe_expr *fe_expr_new(fe_exprs *x, fe_expr_op op, i64 n)
{
    fe_expr *e = NEW(x->a, fe_expr);
    e->op = (u8)op;
    e->n = (u32)n;
    e->text = "";
    e->at = n > 0 ? NEW_N(x->a, const fe_expr *, n) : NULL;
    return e;
}

const fe_expr *fe_expr_const(fe_exprs *x, i64 value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    u32 id = intern_add(x->texts, text, n);
    if (id <= x->known.n && x->known.at[id - 1])
        return x->known.at[id - 1];
    fe_expr *e = fe_expr_new(x, FE_EXPR_INT, 0);
    e->i = e->hint = value;
    e->has_hint = true;
    e->text = intern_text(x->texts, id);
    if (id > x->known.n)
        vec_push(x->a, &x->known, NULL);
    x->known.at[id - 1] = e;
    return e;
}

/* `u0`, `zuf0`: stand for a value that only the data decides. */
static bool depends_on_data(const char *name)
{
    const char *digits = name[0] == 'u' ? name + 1 : strncmp(name, "zuf", 3) == 0 ? name + 3 : "";
    return *digits >= '0' && *digits <= '9';
}

u32 fe_expr_symbol(fe_exprs *x, const char *name, i64 n)
{
    u32 id = intern_add(x->names, name, n);
    if (id > x->symbols.n) {
        const char *own = intern_text(x->names, id);
        vec_push(x->a, &x->symbols,
                 (fe_symbol){.name = own, .depends_on_data = depends_on_data(own)});
    }
    return id - 1;
}

/* ---- the parser ---------------------------------------------------------------------------- */

typedef struct parser {
    fe_exprs *x;
    const char *at, *end;
    int depth;
} parser;

/* An argument that is no expression (a string, True, a tuple) has e == NULL. */
typedef struct argument {
    const fe_expr *e;
    const char *string; /* content of a quoted string */
    i64 string_bytes;
    bool is_integer; /* a bare integer literal */
    i64 integer;
    bool is_keyword;
} argument;

typedef struct head {
    const char *name;
    u8 op;
    i8 arity; /* -1: one or more */
} head;

static const head HEADS[] = {
    {"Add", FE_EXPR_ADD, -1},
    {"Mul", FE_EXPR_MUL, -1},
    {"Pow", FE_EXPR_POW, 2},
    {"PowByNatural", FE_EXPR_POW, 2},
    {"FloatPow", FE_EXPR_POW, 2},
    {"FloorDiv", FE_EXPR_FLOORDIV, 2},
    {"CleanDiv", FE_EXPR_FLOORDIV, 2},
    {"CeilDiv", FE_EXPR_CEILDIV, 2},
    {"Mod", FE_EXPR_MOD, 2},
    {"PythonMod", FE_EXPR_MOD, 2},
    {"IntTrueDiv", FE_EXPR_TRUEDIV, 2},
    {"FloatTrueDiv", FE_EXPR_TRUEDIV, 2},
    {"Max", FE_EXPR_MAX, -1},
    {"Min", FE_EXPR_MIN, -1},
    {"Abs", FE_EXPR_ABS, 1},
    {"floor", FE_EXPR_FLOOR, 1},
    {"ceiling", FE_EXPR_CEIL, 1},
    {"FloorToInt", FE_EXPR_FLOOR, 1},
    {"CeilToInt", FE_EXPR_CEIL, 1},
    {"TruncToInt", FE_EXPR_TRUNC, 1},
    {"TruncToFloat", FE_EXPR_TRUNC, 1},
    {"ToFloat", FE_EXPR_TO_REAL, 1},
    {"Equality", FE_EXPR_EQ, 2},
    {"Eq", FE_EXPR_EQ, 2},
    {"Unequality", FE_EXPR_NE, 2},
    {"Ne", FE_EXPR_NE, 2},
    {"StrictLessThan", FE_EXPR_LT, 2},
    {"LessThan", FE_EXPR_LE, 2},
    {"StrictGreaterThan", FE_EXPR_GT, 2},
    {"GreaterThan", FE_EXPR_GE, 2},
    {"And", FE_EXPR_AND, -1},
    {"Or", FE_EXPR_OR, -1},
    {"Not", FE_EXPR_NOT, 1},
    {"Where", FE_EXPR_WHERE, 3},
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

static void skip_space(parser *p)
{
    while (p->at < p->end && *p->at == ' ')
        p->at++;
}

static bool accept(parser *p, char c)
{
    skip_space(p);
    if (p->at >= p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool parse_argument(parser *p, argument *out);

static const fe_expr *opaque(parser *p, const char *from)
{
    fe_expr *e = fe_expr_new(p->x, FE_EXPR_OPAQUE, 0);
    e->text = arena_strndup(p->x->a, from, p->at - from);
    return e;
}

/* Arguments up to the closing bracket; the opening one has been read. */
typedef struct arguments {
    VEC(argument) all;
    i64 plain; /* those before the first keyword */
} arguments;

static bool parse_arguments(parser *p, char close, arguments *out)
{
    if (accept(p, close))
        return true;
    do {
        argument x = {0};
        if (!parse_argument(p, &x))
            return false;
        vec_push(p->x->a, &out->all, x);
        if (!x.is_keyword)
            out->plain++;
    } while (accept(p, ','));
    return accept(p, close);
}

/* A term whose head is no arithmetic operator: a leaf in constructor form. NULL: not one. */
static const fe_expr *leaf(parser *p, const char *name, i64 n, const arguments *args)
{
    const argument *a = args->all.at;
    if (n == 6 && memcmp(name, "Symbol", 6) == 0 && args->plain == 1 && a[0].string_bytes > 0) {
        fe_expr *e = fe_expr_new(p->x, FE_EXPR_SYMBOL, 0);
        e->symbol = fe_expr_symbol(p->x, a[0].string, a[0].string_bytes);
        return e;
    }
    if (n == 7 && memcmp(name, "Integer", 7) == 0 && args->plain == 1 && a[0].is_integer)
        return a[0].e;
    if (n == 8 && memcmp(name, "Rational", 8) == 0 && args->plain == 2 && a[0].is_integer &&
        a[1].is_integer && a[1].integer > 0) {
        /* p * q^-1: evaluated exactly. */
        fe_expr *inverse = fe_expr_new(p->x, FE_EXPR_POW, 2),
                *e = fe_expr_new(p->x, FE_EXPR_MUL, 2);
        inverse->at[0] = a[1].e;
        inverse->at[1] = fe_expr_const(p->x, -1);
        e->at[0] = a[0].e;
        e->at[1] = inverse;
        return e;
    }
    if (n == 5 && memcmp(name, "Float", 5) == 0 && args->plain == 1 && a[0].string_bytes > 0) {
        char *text = arena_strndup(p->x->a, a[0].string, a[0].string_bytes), *stop;
        fe_expr *e = fe_expr_new(p->x, FE_EXPR_REAL, 0);
        e->f = strtod(text, &stop);
        return *stop == 0 ? e : NULL;
    }
    return NULL;
}

static const fe_expr *parse_term(parser *p, const char *from, const char *name, i64 n)
{
    arguments args = {0};
    if (!parse_arguments(p, ')', &args))
        return NULL;
    const fe_expr *l = leaf(p, name, n, &args);
    if (l)
        return l;
    for (i64 h = 0; h < COUNT_OF(HEADS); h++) {
        const head *w = &HEADS[h];
        if ((i64)strlen(w->name) != n || memcmp(w->name, name, (size_t)n) != 0)
            continue;
        if (w->arity >= 0 ? args.plain != w->arity : args.plain < 1)
            break;
        fe_expr *e = fe_expr_new(p->x, w->op, args.plain);
        for (i64 i = 0; i < args.plain; i++) {
            e->at[i] = args.all.at[i].e;
            if (args.all.at[i].is_keyword || !e->at[i])
                return opaque(p, from);
        }
        return e;
    }
    return opaque(p, from);
}

static bool parse_integer(parser *p, argument *out)
{
    const char *from = p->at;
    if (*p->at == '-')
        p->at++;
    const char *digits = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    if (p->at == digits)
        return false;
    char text[24] = {0};
    if (p->at - from >= (i64)sizeof text) {
        out->e = opaque(p, from);
        return true;
    }
    memcpy(text, from, (size_t)(p->at - from));
    errno = 0;
    out->integer = strtoll(text, NULL, 10);
    out->is_integer = errno == 0;
    out->e = out->is_integer ? fe_expr_const(p->x, out->integer) : opaque(p, from);
    return true;
}

static bool parse_string(parser *p, argument *out)
{
    char quote = *p->at++;
    out->string = p->at;
    while (p->at < p->end && *p->at != quote && *p->at != '\\')
        p->at++;
    out->string_bytes = p->at - out->string;
    return accept(p, quote);
}

static bool parse_name(parser *p, argument *out)
{
    const char *from = p->at;
    while (p->at < p->end && is_name_char(*p->at))
        p->at++;
    i64 n = p->at - from;
    if (n == 0)
        return false;
    if (accept(p, '(')) {
        out->e = parse_term(p, from, from, n);
        return out->e != NULL;
    }
    if (accept(p, '=')) {
        if (out->is_keyword)
            return false;
        *out = (argument){.is_keyword = true};
        return parse_argument(p, out);
    }
    bool is_true = n == 4 && memcmp(from, "true", 4) == 0;
    bool is_false = n == 5 && memcmp(from, "false", 5) == 0;
    if (is_true || is_false)
        out->e = fe_expr_const(p->x, is_true);
    else if (!(n == 4 && memcmp(from, "True", 4) == 0) &&
             !(n == 5 && memcmp(from, "False", 5) == 0))
        out->e = opaque(p, from); /* oo, int_oo, nan */
    return true;
}

static bool parse_argument(parser *p, argument *out)
{
    skip_space(p);
    if (p->at >= p->end || p->depth >= FE_MAX_DEPTH)
        return false;
    p->depth++;
    bool is_keyword = out->is_keyword, good;
    arguments items = {0};
    char c = *p->at;
    if (c == '\'' || c == '"')
        good = parse_string(p, out);
    else if (c == '-' || (c >= '0' && c <= '9'))
        good = parse_integer(p, out);
    else if (accept(p, '('))
        good = parse_arguments(p, ')', &items);
    else if (accept(p, '['))
        good = parse_arguments(p, ']', &items);
    else
        good = parse_name(p, out);
    out->is_keyword |= is_keyword;
    p->depth--;
    return good;
}

const fe_expr *fe_expr_srepr(fe_exprs *x, const char *text, i64 n, const i64 *hint)
{
    u32 id = intern_add(x->texts, text, n);
    if (id == 0)
        return NULL;
    if (id <= x->known.n)
        return x->known.at[id - 1];
    /* Constants inside the text take the ids after this one. */
    i64 slot = x->known.n;
    vec_push(x->a, &x->known, NULL);
    parser p = {.x = x, .at = text, .end = text + n};
    argument top = {0};
    bool good = parse_argument(&p, &top) && !top.is_keyword && top.e;
    skip_space(&p);
    if (!good || p.at != p.end)
        return NULL;
    if (top.e->op == FE_EXPR_INT) {
        x->known.at[slot] = top.e;
        return top.e;
    }
    fe_expr *e = arena_copy(x->a, top.e, (i64)sizeof *top.e);
    e->text = intern_text(x->texts, id);
    if (hint) {
        e->has_hint = true;
        e->hint = *hint;
    }
    if (e->op == FE_EXPR_SYMBOL && hint && !x->symbols.at[e->symbol].has_hint) {
        x->symbols.at[e->symbol].has_hint = true;
        x->symbols.at[e->symbol].hint = *hint;
    }
    x->known.at[slot] = e;
    return e;
}
