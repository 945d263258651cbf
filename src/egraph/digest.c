/* The digest of an e-graph up to the naming of its classes: every class is named by the hash of its
 * smallest term (least hash among equals), an e-node by its head and the names of its children, the
 * graph by the sum over its e-nodes. Two builds, two runs, a round trip through JSON: one digest. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "egraph/extract.h"

static u64 mix(u64 h, u64 x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
}

static u64 head_hash(const eg_lang *l, u32 head, arena *a)
{
    const eg_headrow *h = &l->heads.at[head];
    if (h->op == EG_OP_NUMBER) {
        const eg_number *v = &l->numbers.at[h->payload];
        u64 bits;
        memcpy(&bits, &v->f, sizeof bits);
        return mix(v->is_int ? 3 : 5, v->is_int ? (u64)v->i : bits);
    }
    u32 name = h->op == EG_OP_SYMBOL ? h->payload : l->ops.at[h->op].name;
    const char *text = intern_text(l->names, name);
    u64 hash = hash_bytes(text, (i64)strlen(text), 7);
    hash = mix(hash, (u64)l->ops.at[h->op].arity << 1 | (h->op == EG_OP_SYMBOL));
    if (h->op == EG_OP_SYMBOL || !h->payload)
        return hash;
    if (!l->ops.at[h->op].payload)
        return mix(hash, h->payload);
    str payload = str_new(a); /* its number depends on the order of appearance */
    eg_print_payload(l, &payload, head);
    return mix(hash, hash_bytes(str_text(&payload), payload.n, 13));
}

typedef struct naming {
    const eg *g;
    const eqf_extraction *x;
    u64 *head, *name; /* by head, by class */
} naming;

static u64 node_hash(const naming *k, u32 n, const u32 *rec)
{
    const eg *g = k->g;
    u32 arity = eg_node_arity(g, n, rec);
    u64 h = mix(11, k->head[rec[N_HEAD]]);
    if (arity == 2 &&
        (g->lang->ops.at[g->lang->heads.at[rec[N_HEAD]].op].flags & EQF_COMMUTATIVE)) {
        u64 a = k->name[eg_kid(rec, n, 0)], b = k->name[eg_kid(rec, n, 1)];
        return mix(mix(h, MIN(a, b)), MAX(a, b));
    }
    for (u32 i = 0; i < arity; i++)
        h = mix(h, k->name[eg_kid(rec, n, i)]);
    return h;
}

static int by_size(const void *a, const void *b, void *user)
{
    const f64 *size = user;
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    if (size[x] != size[y])
        return size[x] < size[y] ? -1 : 1;
    return (x > y) - (x < y);
}

/* Sizes are whole numbers and mostly small: those are counted, the last bucket is for the others. */
static u32 bucket_of(f64 size, u32 buckets)
{
    return size < buckets - 1 ? (u32)size : buckets - 1;
}

/* Classes with a finite term in order of its size; they take the place of the choices. */
static u32 *order_by_size(const naming *k, arena *a, u32 *count)
{
    const eg *g = k->g;
    f64 *size = k->x->tree_cost;
    u32 buckets = g->nclasses / 64 + 256;
    u32 *order = k->x->choice, *start = NEW_N(a, u32, buckets + 1);
    for (u32 c = 1; c < g->class_ids; c++) {
        if ((g->parent[c] & EG_BODY) && isfinite(size[c]))
            start[bucket_of(size[c], buckets) + 1]++;
    }
    for (u32 i = 1; i <= buckets; i++)
        start[i] += start[i - 1];
    u32 large = start[buckets - 1];
    *count = start[buckets];
    for (u32 c = 1; c < g->class_ids; c++) {
        if ((g->parent[c] & EG_BODY) && isfinite(size[c]))
            order[start[bucket_of(size[c], buckets)]++] = c;
    }
    qsort_r(order + large, *count - large, sizeof *order, by_size, size);
    return order;
}

/* Names classes in order of size; the e-nodes of least size have smaller children only. */
static void name_classes(naming *k, arena *a)
{
    const eg *g = k->g;
    u32 n, *order = order_by_size(k, a, &n);
    for (u32 i = 0; i < n; i++) {
        u32 c = order[i];
        u64 best = UINT64_MAX;
        for (u32 m = eg_body_of(g, c)->members; m; m = eg_rec(g, m)[N_NEXT]) {
            const u32 *rec = eg_rec(g, m);
            if (rec[N_STAMP] & S_FLAGS)
                continue;
            f64 size = 1;
            u32 arity = eg_node_arity(g, m, rec);
            for (u32 j = 0; j < arity; j++)
                size += k->x->tree_cost[eg_kid(rec, m, j)];
            if (size == k->x->tree_cost[c])
                best = MIN(best, node_hash(k, m, rec));
        }
        k->name[c] = best;
    }
}

eqf_status eqf_digest(eqf_egraph *g, char out[33])
{
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    eqf_extraction *x;
    s = eqf_extract(g, NULL, 0, NULL, EQF_TREE, &x);
    if (s)
        return s;
    trap t;
    TRY(g->ctx, t)
    {
        naming k = {.g = g, .x = x};
        k.head = NEW_N(x->a, u64, g->lang->heads.n);
        k.name = NEW_N(x->a, u64, g->class_ids);
        for (u32 h = 1; h < (u32)g->lang->heads.n; h++)
            k.head[h] = head_hash(g->lang, h, x->a);
        name_classes(&k, x->a);
        u64 lo = 0, hi = 0;
        for (u32 seg = 0; seg < 6; seg++) {
            for (u32 i = seg == 0; i < g->seg[seg].n;) {
                u32 n = seg << 29 | i;
                const u32 *rec = eg_rec(g, n);
                if (seg == EG_LONG && !rec[N_HEAD]) {
                    i++;
                    continue;
                }
                if (!(rec[N_STAMP] & S_DEAD)) {
                    u64 h = mix(node_hash(&k, n, rec), k.name[rec[N_CLASS]]);
                    h = mix(h, rec[N_STAMP] & S_HIDDEN);
                    lo += h;
                    hi += mix(h, 0xA0761D6478BD642Fu);
                }
                i += seg == EG_LONG ? 1 + eg_node_arity(g, n, rec) : 1;
            }
        }
        snprintf(out, 33, "%016llx%016llx", (unsigned long long)hi, (unsigned long long)lo);
    }
    eqf_extraction_free(x);
    return t.status;
}
