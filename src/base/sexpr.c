/* The one reader of S-expressions. Every item keeps its line and column. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define MAX_DEPTH 4096

typedef struct reader {
    arena *a;
    eqf_ctx *ctx;
    const char *file, *p, *end;
    u32 line, column;
    int depth;
} reader;

_Noreturn void sx_throw(eqf_ctx *ctx, const char *file, const sx *x, const char *format, ...)
{
    char message[512], place[40];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(place, sizeof place, "%u:%u", x->line, x->column);
    eqf_throw(ctx, EQF_E_PARSE, file, place, "%s", message);
}

static _Noreturn void fail(reader *r, u32 line, u32 column, const char *message)
{
    sx at = {.line = line, .column = column};
    sx_throw(r->ctx, r->file, &at, "%s", message);
}

static void advance(reader *r)
{
    if (*r->p == '\n') {
        r->line++;
        r->column = 1;
    } else if (((u8)*r->p & 0xC0) != 0x80) { /* count characters, not UTF-8 bytes */
        r->column++;
    }
    r->p++;
}

static void skip_blank(reader *r)
{
    while (r->p < r->end) {
        char c = *r->p;
        if (c == ';') {
            while (r->p < r->end && *r->p != '\n')
                advance(r);
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            advance(r);
        } else {
            return;
        }
    }
}

static bool ends_atom(char c)
{
    return c == '(' || c == ')' || c == '{' || c == '}' || c == '[' || c == ']' || c == ';' ||
           c == '"' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Numbers: [+-]digits is an integer; with . or e a float; also inf, -inf, nan. */
static void classify(reader *r, sx *x)
{
    const char *s = x->text;
    x->kind = SX_SYMBOL;
    if (strcmp(s, "inf") == 0 || strcmp(s, "-inf") == 0 || strcmp(s, "nan") == 0) {
        x->kind = SX_FLOAT;
        x->f = strtod(s, NULL);
        return;
    }
    const char *d = s + (*s == '-' || *s == '+');
    if (!((*d >= '0' && *d <= '9') || (*d == '.' && d[1] >= '0' && d[1] <= '9')))
        return;
    bool is_int = true;
    for (const char *q = d; *q; q++) {
        if (*q >= '0' && *q <= '9')
            continue;
        is_int = false;
        if (!strchr(".eE+-", *q))
            return; /* a symbol such as 3x */
    }
    char *stop;
    errno = 0;
    if (is_int) {
        x->i = strtoll(s, &stop, 10);
        if (errno == ERANGE)
            fail(r, x->line, x->column, "integer does not fit 64 bits");
        x->kind = SX_INT;
        x->f = (f64)x->i;
    } else {
        x->f = strtod(s, &stop);
        if (*stop)
            return;
        if (isinf(x->f))
            fail(r, x->line, x->column, "number is out of range");
        x->kind = SX_FLOAT;
    }
}

static sx *read_string(reader *r, sx *x)
{
    str s = str_new(r->a);
    advance(r);
    for (;;) {
        if (r->p == r->end)
            fail(r, x->line, x->column, "string is not closed");
        char c = *r->p;
        if (c == 0)
            fail(r, r->line, r->column, "NUL byte in a string");
        advance(r);
        if (c == '"')
            break;
        if (c == '\\') {
            if (r->p == r->end)
                fail(r, x->line, x->column, "string is not closed");
            char e = *r->p;
            advance(r);
            c = e == 'n' ? '\n' : e == 't' ? '\t' : e;
            if (e != 'n' && e != 't' && e != '"' && e != '\\')
                fail(r, r->line, r->column, "unknown escape in a string");
        }
        str_add_char(&s, c);
    }
    x->kind = SX_STRING;
    x->text = str_text(&s);
    x->n = s.n;
    return x;
}

static sx *read_item(reader *r)
{
    sx *x = NEW(r->a, sx);
    x->line = r->line;
    x->column = r->column;
    char c = *r->p;
    if (c == '"')
        return read_string(r, x);
    if (c == ')' || c == '}' || c == ']')
        fail(r, r->line, r->column, "closing bracket without an opening one");
    if (c == '(' || c == '{' || c == '[') {
        char close = c == '(' ? ')' : c == '{' ? '}' : ']';
        if (++r->depth > MAX_DEPTH)
            fail(r, r->line, r->column, "nesting is deeper than 4096");
        VEC(sx *) items = {0};
        x->kind = SX_LIST;
        x->bracket = c;
        advance(r);
        for (;;) {
            skip_blank(r);
            if (r->p == r->end)
                fail(r, x->line, x->column, "bracket is not closed");
            if (*r->p == close)
                break;
            vec_push(r->a, &items, read_item(r));
        }
        advance(r);
        r->depth--;
        x->at = items.at;
        x->n = items.n;
        return x;
    }
    const char *start = r->p;
    while (r->p < r->end && !ends_atom(*r->p)) {
        if ((u8)*r->p < 32 || *r->p == 127)
            fail(r, r->line, r->column, "control character");
        advance(r);
    }
    x->n = r->p - start;
    x->text = arena_strndup(r->a, start, x->n);
    classify(r, x);
    return x;
}

sx *sx_read(arena *a, const char *file, const char *text, i64 n)
{
    if (!n)
        text = ""; /* may be NULL */
    reader r = {a, arena_ctx(a), file, text, text + n, 1, 1, 0};
    sx *all = NEW(a, sx);
    *all = (sx){.kind = SX_LIST, .bracket = '(', .line = 1, .column = 1};
    VEC(sx *) items = {0};
    for (skip_blank(&r); r.p < r.end; skip_blank(&r))
        vec_push(a, &items, read_item(&r));
    all->at = items.at;
    all->n = items.n;
    return all;
}

bool sx_is(const sx *x, const char *symbol)
{
    return x->kind == SX_SYMBOL && strcmp(x->text, symbol) == 0;
}

bool sx_is_form(const sx *x, const char *head)
{
    return x->kind == SX_LIST && x->n > 0 && sx_is(x->at[0], head);
}

void sx_print(str *out, const sx *x)
{
    switch (x->kind) {
    case SX_LIST:
        str_add_char(out, x->bracket);
        for (i64 i = 0; i < x->n; i++) {
            if (i)
                str_add_char(out, ' ');
            sx_print(out, x->at[i]);
        }
        str_add_char(out, x->bracket == '(' ? ')' : x->bracket == '{' ? '}' : ']');
        break;
    case SX_STRING:
        str_add_char(out, '"');
        for (i64 i = 0; i < x->n; i++) {
            char c = x->text[i];
            if (c == '"' || c == '\\')
                str_add_char(out, '\\');
            if (c == '\n')
                str_add(out, "\\n");
            else if (c == '\t')
                str_add(out, "\\t");
            else
                str_add_char(out, c);
        }
        str_add_char(out, '"');
        break;
    default:
        str_add(out, x->text);
    }
}
