/* Strided loop nests of the interpreter. */
#include "ir/eval.h"

#define GRAIN 16384 /* operations of a piece: below that, starting it costs more than it saves */

i64 eval_stride(const eval *e, const value *v, ir_atom d)
{
    i64 stride = 1;
    for (i64 i = v->dims.n - 1; i >= 0; i--) {
        if (v->dims.at[i].i == d.i)
            return stride;
        stride *= eval_extent(e, v->dims.at[i]);
    }
    return 0;
}

void nest_add(nest *t, i64 extent, const i64 *strides)
{
    if (extent == 1 || (t->rank > 0 && t->extent[0] == 0))
        return;
    if (extent == 0 || t->rank == MAX_LOOPS) { /* so many loops fit memory only if one is empty */
        t->rank = 1;
        t->extent[0] = 0;
        return;
    }
    i64 last = t->rank - 1;
    bool continues = t->rank > 0;
    for (i64 o = 0; o < t->operands && continues; o++)
        continues = t->stride[o][last] == strides[o] * extent;
    if (!continues) {
        last = t->rank++;
        t->extent[last] = 1;
    }
    t->extent[last] *= extent;
    for (i64 o = 0; o < t->operands; o++)
        t->stride[o][last] = strides[o];
}

nest nest_over(const eval *e, ir_atoms dims, const value *const *v, i64 operands)
{
    nest t = {.operands = operands};
    for (i64 i = 0; i < dims.n; i++) {
        i64 strides[MAX_OPERANDS];
        for (i64 o = 0; o < operands; o++)
            strides[o] = eval_stride(e, v[o], dims.at[i]);
        nest_add(&t, eval_extent(e, dims.at[i]), strides);
    }
    return t;
}

i64 nest_step(const nest *t, i64 operand)
{
    return t->rank > 0 ? t->stride[operand][t->rank - 1] : 0;
}

static i64 row_length(const nest *t)
{
    return t->rank > 0 ? t->extent[t->rank - 1] : 1;
}

static i64 row_count(const nest *t)
{
    i64 n = 1;
    for (i64 i = 0; i + 1 < t->rank; i++)
        n *= t->extent[i];
    return n;
}

/* Rows [first, first + rows), of each the elements [from, from + n). */
static void walk(const nest *t, i64 first, i64 rows, i64 from, i64 n, nest_row *row, void *user)
{
    i64 at[MAX_LOOPS], offset[MAX_OPERANDS] = {0}, outer = t->rank - 1;
    for (i64 i = outer - 1, rest = first; i >= 0; i--) {
        at[i] = rest % t->extent[i];
        rest /= t->extent[i];
        for (i64 o = 0; o < t->operands; o++)
            offset[o] += at[i] * t->stride[o][i];
    }
    for (i64 o = 0; o < t->operands; o++)
        offset[o] += from * nest_step(t, o);
    for (i64 r = 0; r < rows; r++) {
        row(user, n, offset);
        for (i64 i = outer - 1; i >= 0; i--) {
            for (i64 o = 0; o < t->operands; o++)
                offset[o] += t->stride[o][i];
            if (++at[i] < t->extent[i])
                break;
            for (i64 o = 0; o < t->operands; o++)
                offset[o] -= at[i] * t->stride[o][i];
            at[i] = 0;
        }
    }
}

typedef struct region {
    const eval *e;
    const nest *t;
    nest_row *row;
    void *user;
    i64 rows, length;
    i64 rows_a_piece, pieces_a_row, chunk;
} region;

static void region_piece(void *user, i64 piece)
{
    const region *r = user;
    if (r->e->options.cancel && *r->e->options.cancel)
        return;
    i64 group = piece / r->pieces_a_row, from = piece % r->pieces_a_row * r->chunk;
    i64 first = group * r->rows_a_piece;
    walk(r->t, first, MIN(r->rows_a_piece, r->rows - first), from, MIN(r->chunk, r->length - from),
         r->row, r->user);
}

void nest_run(const eval *e, const nest *t, i64 cost, nest_row *row, void *user)
{
    region r = {.e = e, .t = t, .row = row, .user = user};
    i64 grain = MAX(GRAIN / MAX(cost, 1), 1);
    r.rows = row_count(t);
    r.length = row_length(t);
    if (r.rows == 0 || r.length == 0)
        return;
    r.pieces_a_row = (r.length + grain - 1) / grain;
    r.chunk = (r.length + r.pieces_a_row - 1) / r.pieces_a_row;
    r.pieces_a_row = (r.length + r.chunk - 1) / r.chunk;
    r.rows_a_piece = MAX(grain / r.length, 1);
    pool_run(e->options.threads, (r.rows + r.rows_a_piece - 1) / r.rows_a_piece * r.pieces_a_row,
             region_piece, &r);
    eval_poll(e);
}

void nest_walk(const nest *t, nest_row *row, void *user)
{
    walk(t, 0, row_count(t), 0, row_length(t), row, user);
}

i64 *eval_offsets(const eval *e, const value *v, ir_atoms list)
{
    i64 n = 1;
    for (i64 i = 0; i < list.n; i++)
        n *= eval_extent(e, list.at[i]);
    if (n == 0)
        return NEW_N(e->scratch, i64, 1);
    i64 *table = NEW_N(e->scratch, i64, n), filled = 1;
    for (i64 i = 0; i < list.n; i++) { /* from the outermost atom: each entry becomes a run */
        i64 extent = eval_extent(e, list.at[i]), stride = eval_stride(e, v, list.at[i]);
        for (i64 j = filled - 1; j >= 0; j--)
            for (i64 c = extent - 1; c >= 0; c--)
                table[j * extent + c] = table[j] + c * stride;
        filled *= extent;
    }
    return table;
}

typedef struct copying {
    const nest *t;
    u64 *to; /* both element types have 8 bytes */
    const u64 *from;
} copying;

static void copy_row(void *user, i64 n, const i64 *offset)
{
    const copying *c = user;
    u64 *to = c->to + offset[0];
    const u64 *from = c->from + offset[1];
    i64 st = nest_step(c->t, 0), sf = nest_step(c->t, 1);
    if (st == 1 && sf == 1) {
        memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (i64 j = 0; j < n; j++)
        to[j * st] = from[j * sf];
}

void nest_copy(const eval *e, const nest *t, void *to, const void *from)
{
    copying c = {t, to, from};
    nest_run(e, t, 1, copy_row, &c);
}
