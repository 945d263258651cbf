/* Text building and interning. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

str str_new(arena *a)
{
    return (str){.a = a};
}

static void str_need(str *s, i64 more)
{
    if (s->n + more + 1 <= s->cap)
        return;
    i64 cap = MAX(64, MAX(2 * s->cap, s->n + more + 1));
    char *at = arena_alloc(s->a, cap);
    if (s->n > 0)
        memcpy(at, s->at, (size_t)s->n);
    s->at = at;
    s->cap = cap;
}

void str_add_n(str *s, const char *text, i64 n)
{
    str_need(s, n);
    if (n > 0)
        memcpy(s->at + s->n, text, (size_t)n);
    s->n += n;
    s->at[s->n] = 0;
}

void str_add(str *s, const char *text)
{
    str_add_n(s, text, (i64)strlen(text));
}

void str_add_char(str *s, char c)
{
    str_add_n(s, &c, 1);
}

void str_printf(str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    str_need(s, MAX(n, 0));
    vsnprintf(s->at + s->n, (size_t)MAX(n, 0) + 1, format, args);
    va_end(args);
    s->n += MAX(n, 0);
}

void str_add_f64(str *s, f64 x)
{
    if (isnan(x)) {
        str_add(s, "nan");
    } else if (isinf(x)) {
        str_add(s, x > 0 ? "inf" : "-inf");
    } else {
        char text[40];
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, x);
            if (strtod(text, NULL) == x)
                break;
        }
        str_add(s, text);
        if (!strpbrk(text, ".e"))
            str_add(s, ".0"); /* reads back as a float, not as an integer */
    }
}

/* Bytes of the UTF-8 sequence at `s`, 0 when malformed (overlong, surrogate, above U+10FFFF). */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    int n = s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (s[0] < 0xC2)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
               (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F);
    return bad ? 0 : n;
}

void str_add_json(str *s, const char *text)
{
    str_add_char(s, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int n = utf8_length(c);
        if (*c == '"' || *c == '\\')
            str_add_char(s, '\\'), str_add_char(s, (char)*c);
        else if (*c < 0x20)
            str_printf(s, "\\u%04x", *c);
        else if (n == 0)
            str_add(s, "\xEF\xBF\xBD");
        else
            str_add_n(s, (const char *)c, n);
        c += MAX(n, 1);
    }
    str_add_char(s, '"');
}

const char *str_text(const str *s)
{
    return s->at ? s->at : "";
}

struct intern {
    arena *a;
    VEC(const char *) text;
    VEC(i64) length;
    u32 *slots; /* id, 0 empty; power of two */
    i64 slot_count;
};

intern *intern_new(arena *a)
{
    intern *t = NEW(a, intern);
    t->a = a;
    t->slot_count = 64;
    t->slots = NEW_N(a, u32, t->slot_count);
    vec_push(a, &t->text, "");
    vec_push(a, &t->length, 0);
    return t;
}

static i64 intern_slot(const intern *t, const char *s, i64 n)
{
    i64 mask = t->slot_count - 1;
    i64 i = (i64)(hash_bytes(s, n, 0) & (u64)mask);
    for (;; i = (i + 1) & mask) {
        u32 id = t->slots[i];
        if (id == 0 || (t->length.at[id] == n && memcmp(t->text.at[id], s, (size_t)n) == 0))
            return i;
    }
}

u32 intern_find(const intern *t, const char *s, i64 n)
{
    return n == 0 ? 0 : t->slots[intern_slot(t, s, n)];
}

u32 intern_add(intern *t, const char *s, i64 n)
{
    if (n == 0)
        return 0;
    i64 i = intern_slot(t, s, n);
    if (t->slots[i])
        return t->slots[i];
    u32 id = (u32)t->text.n;
    vec_push(t->a, &t->text, arena_strndup(t->a, s, n));
    vec_push(t->a, &t->length, n);
    t->slots[i] = id;
    if (2 * t->text.n > t->slot_count) {
        t->slot_count *= 2;
        t->slots = NEW_N(t->a, u32, t->slot_count);
        for (u32 k = 1; k < (u32)t->text.n; k++)
            t->slots[intern_slot(t, t->text.at[k], t->length.at[k])] = k;
    }
    return id;
}

u32 intern_cstr(intern *t, const char *s)
{
    return intern_add(t, s, (i64)strlen(s));
}

const char *intern_text(const intern *t, u32 id)
{
    return t->text.at[id];
}

i64 intern_count(const intern *t)
{
    return t->text.n;
}
