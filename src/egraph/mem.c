/* Memory of the engine: counted, limited, never throwing. A refused request changes nothing, so a
 * caller that reserves all it needs before it changes anything can always stop cleanly. */
#include "egraph/egraph.h"

/* During a run pages that are given back wait for whoever wants one next, a chunk of records or a block
 * of matches: a fresh one is cleared by the system first. They count as scratch. */

typedef struct eg_page {
    struct eg_page *next;
} eg_page;

static eg_page *page_take(eg *g)
{
    eg_page *page = g->spare;
    g->spare = page->next;
    g->spare_pages--;
    g->scratch_bytes -= EG_PAGE;
    return page;
}

static void page_keep(eg *g, eg_page *page)
{
    page->next = g->spare;
    g->spare = page;
    g->spare_pages++;
    g->scratch_bytes += EG_PAGE;
}

void eg_spare_free(eg *g)
{
    while (g->spare) {
        heap_free(g->ctx, page_take(g), EG_PAGE);
        g->bytes -= EG_PAGE;
    }
}

void *eg_resize(eg *g, void *p, i64 old_size, i64 size)
{
    if (!old_size && size == EG_PAGE && g->spare)
        return page_take(g);
    /* While a block grows, both copies may exist. */
    i64 held = g->bytes + (size <= old_size ? 0 : size);
    i64 limit = g->options.limits.bytes;
    if (UNLIKELY(limit >= 0 && held > limit && size > old_size && g->spare)) {
        eg_spare_free(g);
        held = g->bytes + size;
    }
    if (limit >= 0 && held > limit && size > old_size) {
        g->fail = EQF_E_LIMIT;
        return NULL;
    }
    void *q = heap_try_resize(g->ctx, p, old_size, size);
    if (!q) {
        g->fail = EQF_E_NO_MEMORY;
        return NULL;
    }
    g->peak_bytes = MAX(g->peak_bytes, held);
    g->bytes += size - old_size;
    heap_touch(q, old_size, size);
    return q;
}

void eg_free(eg *g, void *p, i64 size)
{
    if (!p)
        return;
    if (size == EG_PAGE && g->spare_pages < g->spare_most) {
        page_keep(g, p);
        return;
    }
    heap_free(g->ctx, p, size);
    g->bytes -= size;
}

/* Allocated elements of chunk k. */
static u32 chunk_cap(const eg_col *c, u32 k)
{
    return MIN(c->cap - (k << EG_SHIFT), EG_CHUNK);
}

static bool chunk_resize(eg *g, eg_col *c, u32 k, u32 cap)
{
    u32 old = c->cap > k << EG_SHIFT ? chunk_cap(c, k) : 0;
    char *p = eg_resize(g, old ? c->chunk[k] : NULL, (i64)old * c->elem, (i64)cap * c->elem);
    if (!p)
        return false;
    c->chunk[k] = p;
    c->cap = (k << EG_SHIFT) + cap;
    return true;
}

bool eg_col_grow(eg *g, eg_col *c)
{
    u32 k = c->cap >> EG_SHIFT, last = c->cap & (EG_CHUNK - 1);
    if (!c->cap || (!last && k == c->chunks_cap)) {
        u32 cap = MAX(2 * c->chunks_cap, 1);
        char **q = eg_resize(g, c->chunk, (i64)sizeof(char *) * c->chunks_cap,
                             (i64)sizeof(char *) * cap);
        if (!q)
            return false;
        c->chunk = q;
        c->chunks_cap = cap;
    }
    if (k) /* whole chunks, but near the limit take what there is */
        return chunk_resize(g, c, k, EG_CHUNK) ||
               (last < EG_CHUNK / 2 && chunk_resize(g, c, k, last + EG_CHUNK / 16));
    u32 cap = c->cap < 4096 ? 4 * c->cap : 2 * c->cap;
    return chunk_resize(g, c, 0, MIN(MAX(cap, 16), EG_CHUNK));
}

void eg_col_drop(eg *g, eg_col *c)
{
    while (c->cap > EG_CHUNK) {
        u32 k = (c->cap - 1) >> EG_SHIFT;
        if (c->n > k << EG_SHIFT)
            break;
        eg_free(g, c->chunk[k], (i64)chunk_cap(c, k) * c->elem);
        c->cap = k << EG_SHIFT;
    }
}

void eg_col_trim(eg *g, eg_col *c)
{
    eg_col_drop(g, c);
    if (c->cap <= 64 || c->cap <= c->n + c->n / 8)
        return;
    u32 k = (c->cap - 1) >> EG_SHIFT, used = c->n > k << EG_SHIFT ? c->n - (k << EG_SHIFT) : 0;
    chunk_resize(g, c, k, MAX(used, 16));
}

void eg_col_free(eg *g, eg_col *c)
{
    for (u32 k = 0; k << EG_SHIFT < c->cap; k++)
        eg_free(g, c->chunk[k], (i64)chunk_cap(c, k) * c->elem);
    eg_free(g, c->chunk, (i64)sizeof(char *) * c->chunks_cap);
    *c = (eg_col){.elem = c->elem};
}

void eg_vec_trim(eg *g, eg_vec *v)
{
    u32 cap = MAX(v->n + v->n / 32, 16);
    u32 *p = cap < v->cap ? eg_resize(g, v->at, 4 * (i64)v->cap, 4 * (i64)cap) : NULL;
    if (p) {
        v->at = p;
        v->cap = cap;
    }
}

/* Words from which a list grows by an eighth: its pages are moved then, not copied. */
enum { MOVED_WORDS = 1 << 19 };

bool eg_vec_grow(eg *g, eg_vec *v, u32 need)
{
    u32 cap = MAX(MAX(need, 16), v->cap + v->cap / (v->cap < MOVED_WORDS ? 2 : 8));
    u32 *p = eg_resize(g, v->at, 4 * (i64)v->cap, 4 * (i64)cap);
    if (!p && need < cap) { /* near the limit take only what is needed */
        cap = need;
        p = eg_resize(g, v->at, 4 * (i64)v->cap, 4 * (i64)cap);
    }
    if (!p)
        return false;
    v->at = p;
    v->cap = cap;
    return true;
}

void eg_vec_free(eg *g, eg_vec *v)
{
    eg_free(g, v->at, 4 * (i64)v->cap);
    *v = (eg_vec){0};
}

eqf_status eg_failed(eg *g, const char *what)
{
    eqf_status s = g->fail ? g->fail : EQF_E_INTERNAL;
    if (s == EQF_E_LIMIT)
        return eqf_report(g->ctx, s, NULL, NULL, "%s: the limit of %lld bytes is reached", what,
                          (long long)g->options.limits.bytes);
    return eqf_report(g->ctx, s, NULL, NULL, "%s: out of memory", what);
}
