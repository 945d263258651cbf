/* Work that needs a context, in a child: the parent's may be in any state, so the child has its own, and
 * says what it threw through memory that both share. */
#include <stdio.h>
#include <sys/mman.h>

#include "tune/tune.h"

typedef struct mapping {
    void *at;
    size_t size;
} mapping;

static void unmap(void *p)
{
    mapping *m = p;
    munmap(m->at, m->size);
}

void *tn_shared(arena *a, i64 bytes)
{
    mapping *m = NEW(a, mapping);
    void *at = mmap(NULL, (size_t)MAX(bytes, 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        eqf_throw(arena_ctx(a), EQF_E_NO_MEMORY, NULL, NULL, "out of memory (%lld bytes wanted)",
                  (long long)bytes);
    *m = (mapping){at, (size_t)MAX(bytes, 1)};
    arena_defer(a, unmap, m);
    return at;
}

typedef struct said {
    eqf_status status;
    char message[512];
} said;

typedef struct errand {
    tn_body *body;
    void *user;
    said *said;
} errand;

static int child(void *user)
{
    errand *e = user;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = ctx ? arena_new(ctx, 0) : NULL;
    if (!a)
        return 1;
    trap t;
    TRY (ctx, t)
        e->body(ctx, a, e->user);
    e->said->status = t.status;
    if (t.status != EQF_OK && eqf_diag_count(ctx) > 0) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        snprintf(e->said->message, sizeof e->said->message, "%s%s%s", d.place, d.place[0] ? ": " : "",
                 d.message);
    }
    return 0;
}

tn_outcome tn_run_apart(arena *a, tn_body *body, void *user, tn_limits limits,
                        const volatile bool *cancel)
{
    errand e = {body, user, tn_shared(a, (i64)sizeof(said))};
    tn_outcome out = {.end = tn_wait(tn_start_body(a, child, &e, limits), cancel)};
    out.status = e.said->status;
    out.message = arena_strdup(a, e.said->message);
    return out;
}
