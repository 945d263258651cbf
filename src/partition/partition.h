/* partition: which parts of a program are searched by themselves.
 *
 *     order.c  the order of the terms, equal for layers that compute alike
 *     cut.c    where the program is cut: parts one after another, few bytes between them
 *     part.c   one part as a program of its own; equal parts are one
 *     mix.c    the cheapest partition from the parts of several
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
    const struct pt_partition *within; /* whose parts are cut further; NULL: the whole is cut */
} pt_options;

/* A program that is searched once, wherever it stands. */
typedef struct pt_part {
    ir_program *program;
    const i64 *order; /* of its atoms: numbers that do not depend on names */
    i64 uses;
    char digest[33]; /* of the program up to names: equal in other partitions too */
} pt_part;

/* A place where a part stands: terms and atoms of the whole program. */
typedef struct pt_use {
    i64 part;
    i64 from, to; /* positions in the order of the terms */
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

/* Where the parts end of the cheapest partition whose every part, as it stands, is one of `cuts`, of
 * one program with one `parameters_are_inputs`. costs[k][i] is what part i of cuts[k] costs in each
 * place; of what costs the same, that of the first. `ends` has room for the uses of all cuts. Returns
 * how many. */
i64 pt_mix(arena *a, const pt_partition *cuts, i64 n, const f64 *const *costs, i64 *ends);

/* Cuts `p` into parts from 0, ends[0] ... to ends[n - 1], as uses of pt_cut name them with the same
 * `parameters_are_inputs`. False where it has no such places. */
bool pt_cut_at(arena *a, const ir_program *p, bool parameters_are_inputs, const i64 *ends, i64 n,
               pt_partition *out);

/* A form of a part as one of an equal part, whose atoms may come in another order. */
const ir_program *pt_form_for(arena *a, const ir_program *form, const pt_part *of, const pt_part *to);

/* `p` with a program for each part in the place of its terms: forms[k] has the ports of part k's
 * program, and its atoms under the same ids; more atoms are parts of splits. Verified. */
ir_program *pt_join(arena *a, const ir_program *p, const pt_partition *x,
                    const ir_program *const *forms);

#endif
