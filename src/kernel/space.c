/* Iteration spaces: the dims of a kernel with every operand's stride, joined where they can be, and
 * cut into parts, loops and tiles. */
#include "kernel/lower.h"

i64 kn_extent(const kn_lower *l, ir_atom d)
{
    i64 known = l->p->atoms.n;
    return d.i < (u32)known ? ir_extent(l->p, d) : l->fresh.at[d.i - (u32)known];
}

const ir_split *kn_ragged_split(const kn_lower *l, ir_atom d)
{
    bool is_own = d.i >= (u32)l->p->atoms.n;
    return !is_own && ir_is_ragged(l->p, d) ? ir_split_of(l->p, d) : NULL;
}

ir_atom kn_fresh(kn_lower *l, i64 extent)
{
    vec_push(l->a, &l->fresh, extent);
    return (ir_atom){(u32)(l->p->atoms.n + l->fresh.n - 1)};
}

i64 kn_stride(const kn_loc *x, ir_atom d)
{
    for (i64 i = 0; i < x->dims.n; i++)
        if (x->dims.at[i].i == d.i)
            return x->stride[i];
    return 0;
}

static i64 magnitude(i64 x)
{
    return x < 0 ? -x : x;
}

/* Does dim a belong outside dim b? Repeated dims (stride 0) go outside. */
static bool is_outer(const kn_space *s, const kn_dim *a, const kn_dim *b, i64 by)
{
    for (i64 i = 0; i < s->operands; i++) {
        i64 o = (by + i) % s->operands;
        i64 x = magnitude(a->stride[o]), y = magnitude(b->stride[o]);
        if (x == y)
            continue;
        if (x == 0 || y == 0)
            return x == 0;
        return x > y;
    }
    return a->extent > b->extent;
}

kn_space kn_space_new(kn_lower *l, ir_atoms atoms, const kn_loc *const *operands, i64 n, i64 by)
{
    if (n > KN_OPERANDS)
        eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "an operator with more than %d operands",
                  KN_OPERANDS);
    kn_space s = {.at = NEW_N(l->a, kn_dim, atoms.n + 1), .operands = n};
    for (i64 i = 0; i < atoms.n; i++) {
        kn_dim d = {.extent = kn_extent(l, atoms.at[i])};
        if (d.extent == 1)
            continue;
        for (i64 o = 0; o < n; o++)
            d.stride[o] = kn_stride(operands[o], atoms.at[i]);
        i64 place = s.n++;
        while (place > 0 && is_outer(&s, &d, &s.at[place - 1], by)) {
            s.at[place] = s.at[place - 1];
            place--;
        }
        s.at[place] = d;
    }
    return s;
}

void kn_space_join(kn_space *s)
{
    i64 n = 0;
    for (i64 i = 0; i < s->n; i++) {
        bool joins = n > 0;
        for (i64 o = 0; joins && o < s->operands; o++)
            joins = s->at[n - 1].stride[o] == s->at[i].stride[o] * s->at[i].extent;
        if (joins) {
            kn_dim d = s->at[i];
            d.extent *= s->at[n - 1].extent;
            s->at[n - 1] = d;
        } else {
            s->at[n++] = s->at[i];
        }
    }
    s->n = n;
}

i64 kn_space_size(const kn_space *s)
{
    i64 n = 1;
    for (i64 i = 0; i < s->n; i++)
        n *= s->at[i].extent;
    return n;
}

static i64 ceil_div(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

void kn_walk_grid(kn_maker *m, kn_walk *w, i64 n, i64 parts)
{
    for (i64 i = 0; i < n; i++) {
        i64 steps = ceil_div(w[i].extent, w[i].tile);
        w[i].chunk = steps;
        w[i].grid = 1;
        if (parts > 1 && steps > 1) {
            w[i].chunk = steps <= parts ? 1 : ceil_div(steps, parts);
            w[i].grid = ceil_div(steps, w[i].chunk);
            parts = steps <= parts ? ceil_div(parts, steps) : 1;
            w[i].part = kn_add_grid(m, w[i].grid);
        }
    }
}

void kn_walk_open(kn_maker *m, kn_walk *w)
{
    kn_affine from = kn_affine_add(m->a, kn_const_affine(0), w->part, w->chunk * w->tile);
    w->index = from;
    w->looped = w->chunk > 1;
    if (w->looped) {
        kn_var v;
        kn_loop(m, from, w->chunk, w->tile, w->grid > 1 ? w->extent : 0, NULL, 0, &v, NULL);
        w->index = kn_affine_add(m->a, kn_const_affine(0), v, 1);
    }
}

void kn_walk_close(kn_maker *m, kn_walk *w)
{
    if (w->looped)
        kn_end(m, NULL, NULL);
}

kn_live kn_walk_live(const kn_walk *w)
{
    if (w->extent % w->tile == 0)
        return (kn_live){.end = 0};
    return (kn_live){.start = w->index, .end = w->extent};
}

i64 kn_part_count(const kn_lower *l, i64 work)
{
    i64 most = l->o.threads > 1 ? 4 * l->o.threads : 1;
    i64 parts = work / 65536; /* less than 20 us is not worth a second thread */
    return parts < 1 ? 1 : MIN(parts, most);
}
