/* The digest of an e-graph up to the naming of its classes: every class has the size of its smallest
 * term and is named by the least hash of its e-nodes over classes of less size, an e-node by its head
 * and the names of its children, the graph by the sum over its e-nodes. Two builds, two runs, a round
 * trip through JSON: one digest. */
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

/* A class has no use for its size once it is named: the name takes its place, which the sign tells. */
typedef union size_or_name {
    f64 size;
    u64 name;
} size_or_name;
enum { SIGN = 63 };

typedef struct naming {
    const eg *g;
    u64 *head;       /* by head */
    size_or_name *of; /* by class */
} naming;

static bool has_name(const naming *k, u32 c)
{
    return k->of[c].name >> SIGN;
}

/* 0 of a class without a finite term. */
static u64 name_of(const naming *k, u32 c)
{
    return has_name(k, c) ? k->of[c].name : 0;
}

static u64 node_hash(const naming *k, u32 n, const u32 *rec)
{
    const eg *g = k->g;
    u32 arity = eg_node_arity(g, n, rec);
    u64 h = mix(11, k->head[rec[N_HEAD]]);
    if (arity == 2 &&
        (g->lang->ops.at[g->lang->heads.at[rec[N_HEAD]].op].flags & EQF_COMMUTATIVE)) {
        u64 a = name_of(k, eg_kid(rec, n, 0)), b = name_of(k, eg_kid(rec, n, 1));
        return mix(mix(h, MIN(a, b)), MAX(a, b));
    }
    for (u32 i = 0; i < arity; i++)
        h = mix(h, name_of(k, eg_kid(rec, n, i)));
    return h;
}

static int by_size(const void *a, const void *b, void *user)
{
    const size_or_name *of = user;
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    if (of[x].size != of[y].size)
        return of[x].size < of[y].size ? -1 : 1;
    return (x > y) - (x < y);
}

/* Sizes are whole numbers and mostly small: those are counted, the last bucket is for the others. */
static u32 bucket_of(f64 size, u32 buckets)
{
    return size < buckets - 1 ? (u32)size : buckets - 1;
}

/* Classes with a finite term in order of its size, into `order`. */
static u32 order_by_size(const naming *k, arena *a, u32 *order)
{
    const eg *g = k->g;
    u32 buckets = g->nclasses / 64 + 256;
    u32 *start = NEW_N(a, u32, buckets + 1);
    for (u32 c = 1; c < g->class_ids; c++) {
        if ((g->parent[c] & EG_BODY) && isfinite(k->of[c].size))
            start[bucket_of(k->of[c].size, buckets) + 1]++;
    }
    for (u32 i = 1; i <= buckets; i++)
        start[i] += start[i - 1];
    u32 large = start[buckets - 1], count = start[buckets];
    for (u32 c = 1; c < g->class_ids; c++) {
        if ((g->parent[c] & EG_BODY) && isfinite(k->of[c].size))
            order[start[bucket_of(k->of[c].size, buckets)]++] = c;
    }
    qsort_r(order + large, count - large, sizeof *order, by_size, k->of);
    return count;
}

/* The least hash of the e-nodes of c whose children all have names. */
static u64 least_hash(const naming *k, u32 c)
{
    const eg *g = k->g;
    u64 best = UINT64_MAX;
    for (u32 m = eg_body_of(g, c)->members; m; m = eg_rec(g, m)[N_NEXT]) {
        const u32 *rec = eg_rec(g, m);
        if (rec[N_STAMP] & S_FLAGS)
            continue;
        u32 arity = eg_node_arity(g, m, rec), named = 0;
        while (named < arity && has_name(k, eg_kid(rec, m, named)))
            named++;
        if (named == arity)
            best = MIN(best, node_hash(k, m, rec));
    }
    return best;
}

/* Names classes size by size: what has the same size gets its names together. */
static void name_classes(naming *k, arena *a, u32 *order)
{
    u32 n = order_by_size(k, a, order), most = 0;
    for (u32 from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && k->of[order[to]].size == k->of[order[from]].size;)
            to++;
        most = MAX(most, to - from);
    }
    u64 *name = NEW_N(a, u64, most);
    for (u32 from = 0, to; from < n; from = to) {
        f64 size = k->of[order[from]].size;
        for (to = from; to < n && k->of[order[to]].size == size; to++)
            name[to - from] = least_hash(k, order[to]);
        for (u32 i = from; i < to; i++)
            k->of[order[i]].name = name[i - from] | (u64)1 << SIGN;
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
        naming k = {.g = g, .of = (size_or_name *)x->tree_cost};
        k.head = NEW_N(x->a, u64, g->lang->heads.n);
        for (u32 h = 1; h < (u32)g->lang->heads.n; h++)
            k.head[h] = head_hash(g->lang, h, x->a);
        name_classes(&k, x->a, x->choice); /* nobody asks for the choices */
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
                    u64 h = mix(node_hash(&k, n, rec), name_of(&k, rec[N_CLASS]));
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
