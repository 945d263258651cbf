/* partition: which parts of a program are searched by themselves.
 *
 *     order.c  the order of the terms, equal for layers that compute alike
 *     cut.c    where the program is cut: parts one after another, few bytes between them
 *     part.c   one part as a program of its own; equal parts are one
 *     join.c   programs for the parts put together again
 *
 * The terms that depend on more than constants are taken in their order, and a part is a stretch of
 * them, so parts are convex and come one after another. What depends on constants alone is copied
 * into every part that uses it: masks made of iotas are seen where they hold, and folding finds equal
 * copies again. A part's ports are the values that cross its borders.       (paper §5.2) */
#ifndef EQF_PARTITION_H
#define EQF_PARTITION_H

#include "ir/ir.h"

typedef struct pt_options {
    i64 most_reductions;        /* of a part: reductions, products and operators as heavy */
    bool parameters_are_inputs; /* else what depends on parameters alone is constant */
} pt_options;

/* A program that is searched once, wherever it stands. */
typedef struct pt_part {
    ir_program *program;
    i64 uses;
    char digest[33]; /* of the program up to names: equal in other partitions too */
} pt_part;

/* A place where a part stands: terms and atoms of the whole program. */
typedef struct pt_use {
    i64 part;
    const ir_term *inputs, *outputs; /* by port of the part */
    const ir_atom *atoms;            /* by atom of the part */
} pt_use;

typedef struct pt_partition {
    pt_part *parts;
    pt_use *uses; /* in order: none uses an output of a later one */
    i64 part_count, use_count;
    i64 bytes; /* of values that cross, each once for who writes and once for each part that reads */
} pt_partition;

/* The port of a term that is an input with stored data, or marked constant: it is a port like that of
 * every part that uses it. NULL for other terms: what crosses, an input of each run too, is a port
 * whose dims are the term's in their order. */
const ir_port *pt_constant_port(const ir_program *p, u32 term);

/* Cuts `p`, a tensor program. No parts when it is tiled or splits atoms already. Allocated in `a`;
 * equal for equal programs. */
pt_partition pt_cut(arena *a, const ir_program *p, const pt_options *options);

/* `p` with a program for each part in the place of its terms: forms[k] has the ports of part k's
 * program, and its atoms under the same ids; more atoms are parts of splits. Verified. */
ir_program *pt_join(arena *a, const ir_program *p, const pt_partition *x,
                    const ir_program *const *forms);

#endif
