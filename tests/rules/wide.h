/* Random programs over most of the operators: floats, integers and bools, index maps, gathers,
 * scans, sorting, masks of iotas, constants, scalars, several outputs. Comparisons and sorting take
 * inputs and indices only, so that rounding decides nothing. */
#ifndef EQF_TEST_RULES_WIDE_H
#define EQF_TEST_RULES_WIDE_H

#include "ir/ir.h"

enum { WIDE_ATOMS = 6, WIDE_INPUTS = 5 };

typedef struct wide {
    rng g;
    ir_program *p;
    ir_atom atom[WIDE_ATOMS]; /* extents 2 3 4 3 4 5 */
    ir_term at[60];           /* floats; the inputs first */
    i64 n;
    ir_term mask[20];
    i64 masks;
} wide;

static inline u64 wide_below(wide *m, u64 n)
{
    return rng_below(&m->g, n);
}

static inline ir_term wide_pick(wide *m)
{
    return m->at[wide_below(m, (u64)m->n)];
}

static inline ir_atoms wide_dims(wide *m, ir_term t)
{
    return ir_get(m->p, t)->dims;
}

static inline ir_atoms wide_some(wide *m, ir_atoms from)
{
    ir_atom *at = NEW_N(m->p->a, ir_atom, from.n);
    i64 n = 0;
    for (i64 i = 0; i < from.n; i++)
        if (wide_below(m, 2))
            at[n++] = from.at[i];
    return (ir_atoms){at, n};
}

static inline ir_atom wide_one(wide *m, ir_term t)
{
    ir_atoms d = wide_dims(m, t);
    return d.n ? d.at[wide_below(m, (u64)d.n)] : (ir_atom){0};
}

/* Another atom of this extent that x lacks. */
static inline ir_atom wide_twin(wide *m, ir_term x, i64 extent)
{
    for (i64 i = 0; i < WIDE_ATOMS; i++)
        if (ir_extent(m->p, m->atom[i]) == extent && !ir_has(wide_dims(m, x), m->atom[i]))
            return m->atom[i];
    return (ir_atom){0};
}

static inline ir_term wide_index(wide *m, ir_atom along, i64 extent)
{
    ir_program *p = m->p;
    ir_term i = ir_2(p, IR_add, ir_2(p, IR_mul, ir_iota(p, along), ir_i(p, DT_i64, 3)),
                     ir_i(p, DT_i64, (i64)wide_below(m, 4)));
    return ir_2(p, IR_mod, i, ir_i(p, DT_i64, extent));
}

static inline ir_term wide_mask(wide *m)
{
    ir_program *p = m->p;
    if (m->masks && wide_below(m, 2))
        return m->mask[wide_below(m, (u64)m->masks)];
    ir_term a = ir_iota(p, m->atom[wide_below(m, WIDE_ATOMS)]);
    ir_term b = ir_iota(p, m->atom[wide_below(m, WIDE_ATOMS)]);
    ir_term t = ir_2(p, wide_below(m, 2) ? IR_le : IR_lt, a, b);
    if (wide_below(m, 3) == 0)
        t = ir_2(p, IR_lt, m->at[wide_below(m, WIDE_INPUTS)], ir_f(p, DT_f32, 0.5));
    if (wide_below(m, 4) == 0)
        t = ir_1(p, IR_not, t);
    if (wide_below(m, 5) == 0)
        t = ir_reduce(p, IR_OR, t, wide_some(m, wide_dims(m, t)));
    if (m->masks < 20)
        m->mask[m->masks++] = t;
    return t;
}

static inline ir_term wide_moved(wide *m, ir_term x)
{
    ir_program *p = m->p;
    ir_atom k = wide_one(m, x), to;
    if (!k.i)
        return x;
    i64 extent = ir_extent(p, k), two = 2;
    switch (wide_below(m, 5)) {
    case 0:
        to = wide_twin(m, x, extent);
        return to.i ? ir_rename(p, x, (ir_atoms){&k, 1}, (ir_atoms){&to, 1}) : x;
    case 1: /* every other position, or the last two, or one */
        to = wide_twin(m, x, 2);
        if (to.i && extent >= 3 && extent <= 4)
            return ir_slice(p, x, k, 1, (ir_atoms){&to, 1}, extent == 4 ? &two : (i64[]){1});
        return ir_slice(p, x, k, extent - 1, (ir_atoms){0}, NULL);
    case 2: {
        ir_term y = wide_pick(m);
        ir_atom kx = m->atom[0], ky = m->atom[1], kz = m->atom[5]; /* 2 + 3 = 5 */
        if (!ir_has(wide_dims(m, x), kx) || !ir_has(wide_dims(m, y), ky) ||
            ir_has(wide_dims(m, x), kz) || ir_has(wide_dims(m, y), kz))
            return x;
        return ir_make(p, IR_concat, (ir_attr){.axis = {(ir_atom[]){kx, ky}, 2}, .to = {&kz, 1}},
                       (ir_term[]){x, y}, 2);
    }
    case 3: {
        ir_term i = wide_index(m, m->atom[wide_below(m, WIDE_ATOMS)], extent);
        return ir_make(p, IR_gather, (ir_attr){.axis = {&k, 1}}, (ir_term[]){x, i}, 2);
    }
    default:
        return ir_make(p, IR_scan, (ir_attr){.axis = {&k, 1}, .reducer = IR_SUM}, &x, 1);
    }
}

static inline ir_term wide_sorted(wide *m)
{
    ir_program *p = m->p;
    ir_term x = m->at[wide_below(m, WIDE_INPUTS)];
    ir_atom k = wide_one(m, x);
    i64 up = 0;
    if (!k.i)
        return x;
    ir_term i =
        ir_make(p, IR_argsort, (ir_attr){.axis = {&k, 1}, .to = {&k, 1}, .ints = {&up, 1}}, &x, 1);
    return ir_cast(p, DT_f32, i);
}

static inline ir_term wide_grow(wide *m)
{
    ir_program *p = m->p;
    ir_term x = wide_pick(m), y = wide_pick(m);
    switch (wide_below(m, 18)) {
    case 0:
        return ir_2(p, IR_add, x, y);
    case 1:
        return ir_2(p, IR_sub, x, y);
    case 2:
        return ir_2(p, IR_mul, x, y);
    case 3: /* a divisor that is no sum of both signs */
        return ir_2(p, IR_div, x, ir_2(p, IR_add, ir_1(p, IR_square, y), ir_f(p, DT_f32, 1)));
    case 4:
        return ir_1(p, wide_below(m, 2) ? IR_neg : IR_square, x);
    case 5:
        return ir_1(p, wide_below(m, 2) ? IR_sigmoid : IR_tanh, x);
    case 6:
        return ir_2(p, wide_below(m, 2) ? IR_max : IR_min, x, y);
    case 7:
    case 8:
        return ir_reduce(p, IR_SUM, x, wide_some(m, wide_dims(m, x)));
    case 9:
        return ir_reduce(p, wide_below(m, 2) ? IR_MAX : IR_MIN, x, wide_some(m, wide_dims(m, x)));
    case 10:
        return ir_where(p, wide_mask(m), x, y);
    case 11:
        return ir_where(p, wide_mask(m), x, ir_f(p, DT_f32, 0));
    case 12:
        return wide_below(m, 4) ? wide_moved(m, x) : wide_sorted(m);
    case 13:
    case 14:
        return wide_moved(m, x);
    default:
        return ir_matmul(p, x, y,
                         wide_some(m, ir_atoms_union(p, wide_dims(m, x), wide_dims(m, y))));
    }
}

static inline void wide_output(ir_program *p, const char *name, ir_term t)
{
    ir_atoms d = ir_get(p, t)->dims;
    ir_dim *dims = NEW_N(p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(p, d.at[i]), {&d.at[i], 1}};
    ir_add_output(p, (ir_port){.name = intern_cstr(p->names, name),
                               .dtype = ir_get(p, t)->dtype,
                               .rank = d.n,
                               .dims = dims,
                               .term = t});
}

static inline ir_program *wide_program(arena *a, u64 seed)
{
    static const i64 extents[WIDE_ATOMS] = {2, 3, 4, 3, 4, 5};
    wide m = {.g = rng_new(seed), .p = ir_program_new(a, "wide", "wide")};
    for (i64 i = 0; i < WIDE_ATOMS; i++)
        m.atom[i] = ir_atom_new(m.p, arena_printf(a, "%c", 'A' + (int)i), extents[i]);
    for (i64 i = 0; i < WIDE_INPUTS; i++) {
        ir_atoms d = wide_some(&m, (ir_atoms){m.atom, 4});
        ir_dim *dims = NEW_N(a, ir_dim, d.n);
        for (i64 k = 0; k < d.n; k++)
            dims[k] = (ir_dim){ir_extent(m.p, d.at[k]), {&d.at[k], 1}};
        i64 port = ir_add_input(
            m.p, (ir_port){.name = intern_cstr(m.p->names, arena_printf(a, "x%d", (int)i)),
                           .role = i < 2 ? IR_PARAMETER : IR_INPUT,
                           .dtype = DT_f32,
                           .rank = d.n,
                           .dims = dims});
        m.at[m.n++] = m.p->inputs.at[port].term;
    }
    for (i64 i = 0; i < 8; i++) {
        ir_term t = wide_grow(&m);
        m.at[m.n++] = t;
    }
    for (i64 i = 1; i <= 3; i++)
        wide_output(m.p, arena_printf(a, "y%lld", (long long)i), m.at[m.n - i]);
    if (m.masks)
        wide_output(m.p, "mask", m.mask[m.masks - 1]);
    return m.p;
}

#endif
