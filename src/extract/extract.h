/* extract: from a saturated, tiled and fused e-graph to a ranked list of programs in tiled form.
 *
 *     sets.c       the reductions at which operators between can end
 *     enumerate.c  which reductions a program computes, as a whole
 *     form.c       the cheapest operators between them, and which tiles are stored: a program
 *     model.c      what a program would cost
 *     selections.c every selection of e-nodes, for comparison
 *     near.c       structures near the best, where there are too many
 *     search.c     all of it, best first, and unlike one another
 *
 * A *reduced class* is a class of tiles that holds a reduction over axes, or the result of a loop.
 * A structure is a set of reduced classes with the way that each is computed (by itself, or rolled
 * along with what it needs) such that everything else between the outputs and the inputs is made of
 * operators on tiles. Structures are enumerated; what stands between is not: there the cheapest is
 * taken. Stored tiles are a bit each, tried on top.            (paper §5; design: sets of reductions) */
#ifndef EQF_EXTRACT_H
#define EQF_EXTRACT_H

#include "rules/graph.h"

/* What a machine does in a second; 0: a guess. */
typedef struct ex_rates {
    f64 flops, bytes, launch_s;
    f64 threads; /* that make them together */
} ex_rates;

/* When equal and dominated structures (enumerate.c) are left out. */
typedef enum ex_mode {
    EX_EARLY, /* before they are expanded */
    EX_AFTER, /* when all are known; the same are left */
    EX_NONE   /* never */
} ex_mode;

typedef enum ex_order {
    EX_BEST, /* structures, most promising first */
    EX_PAPER /* selections of e-nodes, depth first, operands unsorted (selections.c) */
} ex_order;

typedef struct ex_options {
    ex_order order;
    i64 most;           /* candidates to keep; 0: 64 */
    i64 most_sets;      /* structures to look at; 0: 1024, and 65536 where they are compacted later */
    ex_mode mode;
    ex_rates rates;
    bool (*is_over)(void *user); /* polled: what was found so far is returned; may be NULL */
    void *user;
} ex_options;

typedef struct ex_reduction {
    const char *name; /* "+", of one loop "(+,max)", "rolling(max,+,+)" */
    const char *over; /* axes: "T", "H E" */
} ex_reduction;

/* A kernel by what it computes, whatever its operands are made of. */
typedef struct ex_kernel {
    u64 digest; /* of its operators, their dims and the types of what it reads */
    f64 us;
} ex_kernel;

typedef struct ex_candidate {
    ir_program *program;
    const ex_kernel *kernel; /* `kernels` of them, by digest */
    i64 kernels;
    f64 flops, bytes, bound_us;
    const ex_reduction *reductions; /* in the order of the program, each term once */
    i64 reduction_count;
    bool rolls; /* some reduction uses the results of others so far */
} ex_candidate;

/* The least that candidates of a kind would cost. */
typedef struct ex_least {
    i64 kernels;
    bool rolls;
    f64 bound_us;
} ex_least;

typedef struct ex_report {
    ex_candidate *at; /* cheapest first */
    i64 n;
    const ex_least *least; /* of all that were looked at; fewest kernels first */
    i64 least_count;
    i64 expanded, pruned; /* states */
    i64 sets;             /* structures, or selections */
    i64 distinct;         /* candidates that were looked at, of which the list is the best */
    i64 tried;            /* programs that were priced */
    bool is_cut_short;    /* a limit was met: structures may be missing */
    bool complete;        /* none is, and every one was looked at, with all that it may store in
                             memory and, where that is little, with nothing */
    bool is_exhaustive;   /* and with every set of what it may store: there are no other candidates */
} ex_report;

/* Candidates for all outputs of the graph's program. Everything lives in `a`. The e-graph is not
 * changed. */
ex_report ex_search(arena *a, rl_graph *g, const ex_options *options);

/* Of one element that the operator makes, in multiply-adds of a product at full rate (model.c). */
f64 ex_weight(ir_op op);
#define EX_READ 7.5 /* a byte from memory, in that unit */

#endif
