/* Between order.c, part.c and cut.c. */
#ifndef EQF_PARTITION_IMPL_H
#define EQF_PARTITION_IMPL_H

#include "partition/partition.h"

typedef VEC(u32) ids;

/* The terms of a program that are shared out, in their order. */
typedef struct pt_order {
    const ir_program *p;
    arena *a;
    bool *is_constant; /* by term: goes wherever it is used */
    i64 *depth;        /* by term: on the longest way to an input */
    u64 *colour;       /* by term: what it looks like */
    ids at;            /* terms by position */
    i64 *position;     /* by term; -1: none */
    i64 *last_use;     /* by position: of the last user; at.n when an output needs it */
    /* what a part in the making knows, by term and atom; valid where the stamp is the present one */
    u32 stamp, *term_stamp, *atom_stamp, *term_number, *atom_number;
} pt_order;

/* A part as lists: what it is made of, in the order in which it is made. */
typedef struct pt_recipe {
    ids inputs;  /* terms that cross, and inputs of the program */
    ids nodes;   /* terms to make, constants first used first */
    ids outputs; /* terms */
    ids atoms;   /* by first appearance */
    i64 *order;  /* of the part's program: places in `atoms`, ascending in the whole */
    i64 bytes;   /* of what crosses its borders in a run */
    char digest[33]; /* equal for parts that differ in names, and the order of atoms, only */
} pt_recipe;

pt_order pt_order_new(arena *a, const ir_program *p, bool parameters_are_inputs);
/* Operand i; where operands have no order, in one that depends on what they look like. */
ir_term pt_operand(const pt_order *o, u32 term, i64 i);
/* Positions from <= k < to; in `a`. */
pt_recipe pt_recipe_of(pt_order *o, arena *a, i64 from, i64 to);
/* The program. Its atom 1 + i is atom order[i] of the recipe. */
ir_program *pt_part_program(const pt_order *o, arena *a, const pt_recipe *r);
/* Of the value as it is stored. */
i64 pt_value_bytes(const ir_program *p, u32 term);

#endif
