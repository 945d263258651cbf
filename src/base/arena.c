/* Arenas: chunks that double up to 1 MiB, larger requests in a chunk of their own.
 * Memory is zeroed when handed out. Under EQF_STRESS freed chunks are poisoned and every vector
 * moves at every growth. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define FIRST_CHUNK 4096
#define LAST_CHUNK (1 << 20)
#define ALIGN 16

typedef struct chunk {
    struct chunk *next;
    i64 size; /* of the whole block */
    i64 used; /* from the start of the block */
    i64 pad;
} chunk;

typedef struct deferred {
    struct deferred *next;
    void (*release)(void *);
    void *p;
} deferred;

struct arena {
    eqf_ctx *ctx;
    chunk *head;
    deferred *deferred;
    arena *parent, *first_child, *next_sibling;
    i64 bytes, limit, next_size;
};

_Static_assert(sizeof(chunk) % ALIGN == 0, "chunk header keeps the alignment");

static arena *arena_make(eqf_ctx *ctx, i64 limit, bool may_throw)
{
    trap t;
    arena *volatile a = NULL;
    if (may_throw) {
        a = heap_alloc(ctx, sizeof *a);
    } else {
        TRY(ctx, t)
            a = heap_alloc(ctx, sizeof *a);
    }
    if (!a)
        return NULL;
    *(arena *)a = (arena){.ctx = ctx, .limit = limit, .next_size = FIRST_CHUNK};
    return a;
}

arena *arena_new(eqf_ctx *ctx, i64 limit)
{
    return arena_make(ctx, limit, false);
}

arena *arena_child(arena *parent)
{
    arena *a = arena_make(parent->ctx, parent->limit, true);
    a->parent = parent;
    a->next_sibling = parent->first_child;
    parent->first_child = a;
    return a;
}

void arena_free(arena *a)
{
    if (!a)
        return;
    while (a->first_child)
        arena_free(a->first_child);
    for (deferred *d = a->deferred; d; d = d->next)
        d->release(d->p);
    if (a->parent) {
        arena **link = &a->parent->first_child;
        while (*link != a)
            link = &(*link)->next_sibling;
        *link = a->next_sibling;
    }
    for (chunk *c = a->head; c;) {
        chunk *next = c->next;
        i64 size = c->size;
#ifdef EQF_STRESS
        memset(c, 0xDD, (size_t)size);
#endif
        heap_free(a->ctx, c, size);
        c = next;
    }
    heap_free(a->ctx, a, sizeof *a);
}

eqf_ctx *arena_ctx(const arena *a)
{
    return a->ctx;
}

i64 arena_bytes(const arena *a)
{
    return a->bytes;
}

void *arena_alloc(arena *a, i64 size)
{
    if (size < 0 || size > INT64_MAX / 2)
        eqf_throw(a->ctx, EQF_E_NO_MEMORY, NULL, NULL, "a size of %lld bytes is out of range",
                  (long long)size);
    i64 need = (MAX(size, 1) + ALIGN - 1) & ~(i64)(ALIGN - 1);
    chunk *c = a->head;
    if (!c || c->size - c->used < need) {
        i64 block = (i64)sizeof(chunk) + need;
        bool own = block > a->next_size;
        if (!own) {
            block = a->next_size;
            a->next_size = MIN(2 * a->next_size, LAST_CHUNK);
        }
        if (a->limit > 0 && a->bytes + block > a->limit)
            eqf_throw(a->ctx, EQF_E_LIMIT, NULL, NULL, "the limit of %lld bytes is reached",
                      (long long)a->limit);
        chunk *fresh = heap_alloc(a->ctx, block);
        fresh->size = block;
        fresh->used = sizeof(chunk);
        a->bytes += block;
        if (own && c) { /* keep filling the current chunk */
            fresh->next = c->next;
            c->next = fresh;
        } else {
            fresh->next = c;
            a->head = fresh;
        }
        c = fresh;
    }
    void *p = (char *)c + c->used;
    c->used += need;
    memset(p, 0, (size_t)need);
    return p;
}

void *arena_alloc_n(arena *a, i64 count, i64 size)
{
    i64 bytes;
    if (count < 0 || !mul_i64(count, size, &bytes))
        eqf_throw(a->ctx, EQF_E_NO_MEMORY, NULL, NULL, "%lld items of %lld bytes are out of range",
                  (long long)count, (long long)size);
    return arena_alloc(a, bytes);
}

void arena_defer(arena *a, void (*release)(void *), void *p)
{
    deferred *volatile d = NULL;
    trap t;
    TRY (a->ctx, t) {
        d = NEW(a, deferred);
    }
    if (t.status != EQF_OK) {
        release(p);
        eqf_rethrow(a->ctx, t.status);
    }
    *d = (deferred){a->deferred, release, p};
    a->deferred = d;
}

void *arena_copy(arena *a, const void *p, i64 size)
{
    void *q = arena_alloc(a, size);
    if (size > 0)
        memcpy(q, p, (size_t)size);
    return q;
}

char *arena_strndup(arena *a, const char *s, i64 n)
{
    char *q = arena_alloc(a, n + 1);
    if (n > 0)
        memcpy(q, s, (size_t)n);
    return q;
}

char *arena_strdup(arena *a, const char *s)
{
    return arena_strndup(a, s, (i64)strlen(s));
}

char *arena_printf(arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *s = arena_alloc(a, (i64)MAX(n, 0) + 1);
    vsnprintf(s, (size_t)MAX(n, 0) + 1, format, args);
    va_end(args);
    return s;
}

void vec_grow_(arena *a, void *v, i64 item_size, i64 need)
{
    VEC(char) *raw = v;
    i64 cap = MAX(need, MAX(8, 2 * raw->cap));
#ifdef EQF_STRESS
    cap = need;
#endif
    char *at = arena_alloc_n(a, cap, item_size);
    if (raw->n > 0)
        memcpy(at, raw->at, (size_t)(raw->n * item_size));
    raw->at = at;
    raw->cap = cap;
}
