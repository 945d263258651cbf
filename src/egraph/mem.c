/* Memory of the engine: counted, limited, never throwing. A refused request changes nothing, so a
 * caller that reserves all it needs before it changes anything can always stop cleanly. */
#include "egraph/egraph.h"

void *eg_resize(eg *g, void *p, i64 old_size, i64 size)
{
    /* While a block grows, both copies may exist. */
    i64 held = g->bytes + (size <= old_size ? 0 : size);
    i64 limit = g->options.limits.bytes;
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
    return q;
}

void eg_free(eg *g, void *p, i64 size)
{
    if (!p)
        return;
    heap_free(g->ctx, p, size);
    g->bytes -= size;
}

bool eg_col_grow(eg *g, eg_col *c)
{
    i64 elem = c->elem;
    if (c->cap < EG_CHUNK) { /* the first chunk doubles */
        u32 cap = c->cap ? 4 * c->cap : 16;
        if (!c->chunk) {
            c->chunk = eg_resize(g, NULL, 0, (i64)sizeof(char *));
            if (!c->chunk)
                return false;
            c->chunk[0] = NULL;
            c->chunks_cap = 1;
        }
        char *p = eg_resize(g, c->chunk[0], (i64)c->cap * elem, (i64)cap * elem);
        if (!p)
            return false;
        c->chunk[0] = p;
        c->cap = cap;
        return true;
    }
    u32 k = c->cap >> EG_SHIFT;
    if (k == c->chunks_cap) {
        u32 cap = 2 * c->chunks_cap;
        char **q = eg_resize(g, c->chunk, (i64)sizeof(char *) * c->chunks_cap,
                             (i64)sizeof(char *) * cap);
        if (!q)
            return false;
        c->chunk = q;
        c->chunks_cap = cap;
    }
    c->chunk[k] = eg_resize(g, NULL, 0, (i64)EG_CHUNK * elem);
    if (!c->chunk[k])
        return false;
    c->cap += EG_CHUNK;
    return true;
}

void eg_col_trim(eg *g, eg_col *c)
{
    while (c->cap > EG_CHUNK && c->cap - EG_CHUNK >= c->n) {
        c->cap -= EG_CHUNK;
        eg_free(g, c->chunk[c->cap >> EG_SHIFT], (i64)EG_CHUNK * c->elem);
    }
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

void eg_col_free(eg *g, eg_col *c)
{
    if (!c->chunk)
        return;
    if (c->cap < EG_CHUNK) {
        eg_free(g, c->chunk[0], (i64)c->cap * c->elem);
    } else {
        for (u32 k = 0; k < c->cap >> EG_SHIFT; k++)
            eg_free(g, c->chunk[k], (i64)EG_CHUNK * c->elem);
    }
    eg_free(g, c->chunk, (i64)sizeof(char *) * c->chunks_cap);
    *c = (eg_col){.elem = c->elem};
}

bool eg_vec_grow(eg *g, eg_vec *v, u32 need)
{
    u32 cap = MAX(MAX(need, 16), v->cap + (v->cap < 4096 ? v->cap / 2 : v->cap / 8));
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
