/* The context: allocator, diagnostics, and the stack of traps that eqf_throw jumps to.
 * Diagnostics live in blocks of their own so that reporting works while arenas are being freed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"

#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE ((size_t)512 << 10) /* from here on a block is a mapping */
#define PAGE ((size_t)1 << 16) /* a multiple of the pages of most machines */
#define MAX_DIAGS 64 /* later ones are counted, not kept */

typedef struct diag_entry {
    eqf_diag d;
    char *text; /* one block: file, place, message */
    size_t size;
} diag_entry;

struct eqf_ctx {
    eqf_allocator allocator;
    diag_entry diags[MAX_DIAGS];
    size_t diag_count;
    trap *innermost;
    const char *file, *place; /* of eqf_about */
};

/* A sanitizer sees more in blocks that malloc made. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
static bool is_large(size_t size)
{
#if defined SANITIZED || defined __SANITIZE_ADDRESS__ || !defined MADV_HUGEPAGE
    (void)size;
    return false;
#else
    return size >= LARGE;
#endif
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) & ~(PAGE - 1);
}

/* A mapping of its own; if it has room for one, it starts with a large page. */
static void *map_large(size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t all = whole_pages(size) + (size < LARGE_PAGE ? 0 : LARGE_PAGE);
    char *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (size < LARGE_PAGE)
        return at;
    size_t before = -(uintptr_t)at & (LARGE_PAGE - 1), end = before + whole_pages(size);
    if (before)
        munmap(at, before);
    munmap(at + end, all - end);
#ifdef MADV_HUGEPAGE
    (void)madvise(at + before, size, MADV_HUGEPAGE); /* without, it is as good, just slower */
#endif
    return at + before;
}

/* A mapping grows by moving its pages: no copy, and at no time twice the memory. One of small pages
 * is copied once, into large ones. NULL: it could not be moved. */
static void *grow_large(void *p, size_t old_size, size_t size)
{
#ifdef MREMAP_FIXED
    size_t held = whole_pages(old_size);
    if (size < LARGE_PAGE) {
        void *q = mremap(p, held, whole_pages(size), MREMAP_MAYMOVE);
        return q == MAP_FAILED ? NULL : q;
    }
    if (old_size < LARGE_PAGE)
        return NULL;
    void *to = map_large(size);
    if (!to)
        return NULL;
    if (mremap(p, held, held, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to)
        return to;
    munmap(to, whole_pages(size));
#else
    (void)p, (void)old_size, (void)size;
#endif
    return NULL;
}

/* Large blocks are mappings: fewer page faults, fewer misses of the TLB, and no hole in the heap once
 * they are freed. */
static void *resize_default(void *user, void *p, size_t old_size, size_t size)
{
    (void)user;
    bool was_large = is_large(old_size), large = is_large(size);
    if (was_large && large && size <= old_size) {
        size_t kept = whole_pages(size), held = whole_pages(old_size);
        if (kept < held)
            munmap((char *)p + kept, held - kept);
        return p;
    }
    if (!was_large && !large && size)
        return realloc(p, size);
    void *grown = was_large && large ? grow_large(p, old_size, size) : NULL;
    if (grown)
        return grown;
    void *to = large ? map_large(size) : size ? malloc(size) : NULL;
    if (!to && size)
        return NULL;
    if (p && size)
        memcpy(to, p, MIN(old_size, size));
    if (was_large)
        munmap(p, whole_pages(old_size));
    else
        free(p);
    return to;
}

void heap_touch(void *p, i64 from, i64 to)
{
#ifdef MADV_POPULATE_WRITE
    if (to - from < (i64)PAGE || to >= (i64)LARGE_PAGE)
        return;
    const uintptr_t page = 4096, at = (uintptr_t)p; /* where pages are larger, nothing happens */
    uintptr_t first = (at + (uintptr_t)from + page - 1) & ~(page - 1);
    uintptr_t end = (at + (uintptr_t)to) & ~(page - 1);
    (void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
#else
    (void)p, (void)from, (void)to;
#endif
}

eqf_ctx *eqf_ctx_new(const eqf_allocator *allocator)
{
    eqf_allocator al = allocator ? *allocator : (eqf_allocator){resize_default, NULL};
    eqf_ctx *ctx = al.resize(al.user, NULL, 0, sizeof *ctx);
    if (!ctx)
        return NULL;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = al;
    return ctx;
}

void eqf_forget_from(eqf_ctx *ctx, size_t n)
{
    for (size_t i = n; i < ctx->diag_count; i++) {
        diag_entry *e = &ctx->diags[i];
        if (e->text)
            ctx->allocator.resize(ctx->allocator.user, e->text, e->size, 0);
    }
    if (n < ctx->diag_count)
        ctx->diag_count = n;
}

void eqf_ctx_clear(eqf_ctx *ctx)
{
    eqf_forget_from(ctx, 0);
}

void eqf_ctx_free(eqf_ctx *ctx)
{
    if (!ctx)
        return;
    eqf_ctx_clear(ctx);
    eqf_allocator al = ctx->allocator;
    al.resize(al.user, ctx, sizeof *ctx, 0);
}

size_t eqf_diag_count(const eqf_ctx *ctx)
{
    return ctx->diag_count;
}

eqf_diag eqf_diag_get(const eqf_ctx *ctx, size_t i)
{
    return ctx->diags[i].d;
}

static const char *const status_names[EQF_STATUS_COUNT] = {
    [EQF_OK] = "EQF_OK",
    [EQF_E_PARSE] = "EQF_E_PARSE",
    [EQF_E_TYPE] = "EQF_E_TYPE",
    [EQF_E_UNSUPPORTED] = "EQF_E_UNSUPPORTED",
    [EQF_E_ARGUMENT] = "EQF_E_ARGUMENT",
    [EQF_E_DATA] = "EQF_E_DATA",
    [EQF_E_NOT_OURS] = "EQF_E_NOT_OURS",
    [EQF_E_LIMIT] = "EQF_E_LIMIT",
    [EQF_E_IO] = "EQF_E_IO",
    [EQF_E_MACHINE] = "EQF_E_MACHINE",
    [EQF_E_MISMATCH] = "EQF_E_MISMATCH",
    [EQF_E_CONTRADICTION] = "EQF_E_CONTRADICTION",
    [EQF_E_INTERRUPTED] = "EQF_E_INTERRUPTED",
    [EQF_E_NO_MEMORY] = "EQF_E_NO_MEMORY",
    [EQF_E_INTERNAL] = "EQF_E_INTERNAL",
};

const char *eqf_status_name(eqf_status status)
{
    return (unsigned)status < EQF_STATUS_COUNT ? status_names[status] : "unknown status";
}

static void report_va(eqf_ctx *ctx, eqf_status status, const char *file, const char *place,
                      const char *format, va_list args)
{
    static const char no_text[] = "";
    if (ctx->diag_count == MAX_DIAGS)
        return;
    diag_entry *e = &ctx->diags[ctx->diag_count++];
    *e = (diag_entry){.d = {status, no_text, no_text, eqf_status_name(status)}};
    if (!file && (status == EQF_E_NO_MEMORY || status == EQF_E_LIMIT)) {
        file = ctx->file;
        place = place ? place : ctx->place;
    }
    if (!file)
        file = no_text;
    if (!place)
        place = no_text;
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return;
    size_t nf = strlen(file) + 1, np = strlen(place) + 1, nm = (size_t)length + 1;
    e->size = nf + np + nm;
    e->text = ctx->allocator.resize(ctx->allocator.user, NULL, 0, e->size);
    if (!e->text)
        return; /* the status name stands in for the message */
    memcpy(e->text, file, nf);
    memcpy(e->text + nf, place, np);
    vsnprintf(e->text + nf + np, nm, format, args);
    e->d = (eqf_diag){status, e->text, e->text + nf, e->text + nf + np};
}

eqf_status eqf_report(eqf_ctx *ctx, eqf_status status, const char *file, const char *place,
                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_va(ctx, status, file, place, format, args);
    va_end(args);
    return status;
}

void trap_push(eqf_ctx *ctx, trap *t)
{
    t->outer = ctx->innermost;
    t->ctx = ctx;
    t->file = ctx->file;
    t->place = ctx->place;
    t->status = EQF_OK;
    ctx->innermost = t;
}

void trap_pop(trap *t)
{
    t->ctx->innermost = t->outer;
    eqf_about(t->ctx, t->file, t->place);
}

void eqf_about(eqf_ctx *ctx, const char *file, const char *place)
{
    ctx->file = file;
    ctx->place = place;
}

_Noreturn void eqf_rethrow(eqf_ctx *ctx, eqf_status status)
{
    trap *t = ctx->innermost;
    if (!t)
        abort(); /* a throw outside any API function: no caller could learn of it */
    t->status = status;
    longjmp(t->jump, 1);
}

_Noreturn void eqf_throw(eqf_ctx *ctx, eqf_status status, const char *file, const char *place,
                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_va(ctx, status, file, place, format, args);
    va_end(args);
    eqf_rethrow(ctx, status);
}

void *heap_resize(eqf_ctx *ctx, void *p, i64 old_size, i64 size)
{
    if (size == 0) {
        heap_free(ctx, p, old_size);
        return NULL;
    }
    void *q = NULL;
    if (size > 0)
        q = ctx->allocator.resize(ctx->allocator.user, p, (size_t)old_size, (size_t)size);
    if (!q)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory (%lld bytes wanted)",
                  (long long)size);
    return q;
}

void *heap_try_resize(eqf_ctx *ctx, void *p, i64 old_size, i64 size)
{
    if (size <= 0)
        return NULL;
    return ctx->allocator.resize(ctx->allocator.user, p, (size_t)old_size, (size_t)size);
}

void *heap_alloc(eqf_ctx *ctx, i64 size)
{
    return heap_resize(ctx, NULL, 0, MAX(size, 1));
}

void heap_free(eqf_ctx *ctx, void *p, i64 size)
{
    if (p)
        ctx->allocator.resize(ctx->allocator.user, p, (size_t)size, 0);
}
