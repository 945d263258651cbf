/* The rows that a search writes: blocks of them, and the last step of most searches, which copies a
 * row for each tuple of a class and patches what the tuple brings. */
#include "egraph/match.h"

/* ---- blocks -------------------------------------------------------------------------------- */

/* Rows are copied ROW_WORDS words at a time: the last one may write past its end. */
enum { ROW_WORDS = 4 };

static i64 block_size(u32 cap)
{
    return (i64)sizeof(eg_block) + 4 * ((i64)cap + ROW_WORDS);
}

/* Blocks double up to LARGE_WORDS; the next is a page. */
enum { LARGE_WORDS = 1 << 15 };
enum { BLOCK_WORDS = (EG_PAGE - sizeof(eg_block)) / 4 - ROW_WORDS };

void eg_matches_drop(eg *g, eg_matches *m)
{
    eg_block *b = m->first;
    m->first = b->next;
    g->scratch_bytes -= block_size(b->cap);
    eg_free(g, b, block_size(b->cap));
}

void eg_matches_free(eg *g, eg_matches *m)
{
    while (m->first)
        eg_matches_drop(g, m);
    *m = (eg_matches){0};
}

eg_block *eg_row_block(eg *g, eg_matches *m)
{
    eg_block *b = m->last;
    if (LIKELY(b && b->used + m->width <= b->cap))
        return b;
    u32 cap = !b ? MAX(64, m->width) : 2 * b->cap;
    if (cap > LARGE_WORDS)
        cap = BLOCK_WORDS;
    eg_block *fresh = eg_resize(g, NULL, 0, block_size(cap));
    if (!fresh)
        return NULL;
    g->scratch_bytes += block_size(cap);
    *fresh = (eg_block){.cap = cap};
    if (b)
        b->next = fresh;
    else
        m->first = fresh;
    m->last = fresh;
    return fresh;
}

/* ---- from tuples to rows ------------------------------------------------------------------- */

static void plan_emission(const eg_rule *r, const step *st, const eg_atom *a, emission *x)
{
    x->npatch = x->ncheck = 0;
    for (u32 i = 0; i < r->nsave; i++) {
        for (u32 j = 0; j < a->arity; j++) {
            if (a->kids[j] == r->save[i] && (st->bind >> j & 1)) {
                x->at[x->npatch] = i;
                x->column[x->npatch++] = j;
            }
        }
    }
    for (u32 j = 0; j < a->arity; j++) {
        if (st->bind >> j & 1)
            continue;
        u32 same = NO_COLUMN;
        for (u32 first = 0; first < j; first++) {
            if (a->kids[first] == a->kids[j] && (st->bind >> first & 1))
                same = first;
        }
        x->check[x->ncheck++] = j | same << 8;
    }
}

/* Does the tuple agree where the atom's children are bound or repeated? */
static inline bool agrees(const machine *m, const emission *x, const eg_atom *a, const u32 *kid)
{
    for (u32 k = 0; k < x->ncheck; k++) {
        u32 j = x->check[k] & 255, same = x->check[k] >> 8;
        if (kid[j] != (same == NO_COLUMN ? m->regs[a->kids[j]] : kid[same]))
            return false;
    }
    return true;
}

/* A row of the block for each tuple of a range that agrees: `row`, with what the tuple brings. Returns
 * where the next one goes; without a block (at NULL) only counts. */
static u32 *write_rows(const machine *m, const emission *e, const eg_atom *a, u32 k,
                       const eg_class_index *x, u32 from, u32 end, const u32 *row, u32 width,
                       u32 *at, i64 *found)
{
    const u32 arity = a->arity, *kid = x->kids + (size_t)from * arity;
    if (LIKELY(at && !e->ncheck && e->npatch == 2 && width <= ROW_WORDS)) {
        const u32 p = e->at[0], q = e->at[1], i = e->column[0], j = e->column[1];
        *found = end - from;
        for (; from < end; from++, kid += arity, at += width) {
            memcpy(at, row, 4 * ROW_WORDS);
            at[p] = kid[i];
            at[q] = kid[j];
        }
        return at;
    }
    *found = 0;
    for (; from < end; from++, kid += arity) {
        if (!agrees(m, e, a, kid))
            continue;
        ++*found;
        if (!at)
            continue;
        for (u32 i = 0; i < width; i += ROW_WORDS)
            memcpy(at + i, row + i, 4 * ROW_WORDS);
        for (u32 i = 0; i < e->npatch; i++)
            at[e->at[i]] = kid[e->column[i]];
        if (x->node)
            at[m->r->nsave + 1 + k] = x->node[from];
        at += width;
    }
    return at;
}

bool eg_emit(machine *m, const step *st, const eg_atom *a, const eg_class_index *x, u32 from, u32 to)
{
    eg_search *s = m->s;
    const eg_rule *r = m->r;
    eg_matches *out = s->out;
    u32 row[EG_MAX_VARS + 1 + EG_MAX_ATOMS + ROW_WORDS];
    if (UNLIKELY(m->emits[st->atom] != st)) {
        plan_emission(r, st, a, &m->emission[st->atom]);
        m->emits[st->atom] = st;
    }
    const emission *e = &m->emission[st->atom];
    while (e->ncheck && from < to && !agrees(m, e, a, x->kids + (size_t)from * a->arity))
        from++;
    if (from == to)
        return false;
    for (u32 i = 0; i < r->nsave; i++)
        row[i] = m->regs[r->save[i]];
    if (s->wide) {
        row[r->nsave] = m->swaps;
        memcpy(row + r->nsave + 1, m->nodes, 4 * (size_t)r->atoms.n);
    }
    while (from < to) {
        if (UNLIKELY(s->limit >= 0 && s->found >= s->limit)) {
            for (; from < to && !agrees(m, e, a, x->kids + (size_t)from * a->arity); from++) {
            }
            s->cut = from < to;
            return s->cut;
        }
        /* as many as the limit and the block allow */
        i64 room = s->limit >= 0 ? s->limit - s->found : INT64_MAX, found;
        u32 width = out ? out->width : 0, *at = NULL;
        if (out) {
            eg_block *b = eg_row_block(m->g, out);
            if (UNLIKELY(!b)) {
                s->failed = true;
                return true;
            }
            room = MIN(room, (i64)((b->cap - b->used) / width));
            at = b->at + b->used;
        }
        u32 end = (u32)MIN((i64)to, from + room);
        at = write_rows(m, e, a, st->atom, x, from, end, row, width, at, &found);
        from = end;
        s->found += found;
        if (out) {
            out->last->used = (u32)(at - out->last->at);
            out->count += found;
        }
    }
    return false;
}
