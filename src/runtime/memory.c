/* Large blocks: own mappings, aligned to and advised for huge pages. Streams over 4 KB pages lose
 * 10-25 % to address translation. */
#include <sys/mman.h>

#include "runtime/runtime.h"

#define HUGE_PAGE ((size_t)2 << 20)

typedef struct block {
    void *at;
    size_t size;
} block;

static void release(void *p)
{
    block *b = p;
    munmap(b->at, b->size);
}

void *rt_big_alloc(arena *a, i64 bytes)
{
    eqf_ctx *ctx = arena_ctx(a);
    if (bytes < (i64)HUGE_PAGE)
        return (void *)(((uintptr_t)arena_alloc(a, bytes + 255) + 255) & ~(uintptr_t)255);
    block *b = NEW(a, block);
    if (bytes > INT64_MAX - (i64)(2 * HUGE_PAGE))
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory (%lld bytes wanted)",
                  (long long)bytes);
    b->size = ((size_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    b->at = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->at == MAP_FAILED)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory (%lld bytes wanted)",
                  (long long)bytes);
    arena_defer(a, release, b);
    uintptr_t at = ((uintptr_t)b->at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    /* Advice only: without huge pages the memory is as good, just slower. */
    (void)madvise((void *)at, b->size - HUGE_PAGE, MADV_HUGEPAGE);
    return (void *)at;
}
