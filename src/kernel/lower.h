/* What the files of the lowering share: where values lie, kernels being made, iteration spaces. */
#ifndef EQF_KERNEL_LOWER_H
#define EQF_KERNEL_LOWER_H

#include "kernel/kernel.h"

/* Where the value of a term is. A value without memory is a number or an i64 series that is affine
 * in its coordinates; views of those cost nothing either. `dtype` is what lies there (ir_memory_dtypes):
 * an f32 value may lie in a half type, which is widened where it is read. */
typedef enum kn_where { KN_ABSENT, KN_MEMORY, KN_NUMBER, KN_SERIES } kn_where;

typedef struct kn_loc {
    u8 where, dtype;
    i32 buffer;        /* of the plan */
    i64 offset;        /* elements; of a series: its value at 0 */
    ir_atoms dims;     /* the set D of the term */
    const i64 *stride; /* elements, one a dim; 0 where repeated */
    i64 span;          /* elements from offset on, where dims do not say; 0: they do */
    bool is_ragged;    /* parts of unequal size: not all that the dims say is there */
    f64 f;
    i64 i;
} kn_loc;

typedef struct kn_lower {
    arena *a;
    eqf_ctx *ctx;
    const ir_program *p;
    kn_options o;
    rt_plan *plan;
    kn_kernels *kernels;
    intern *made; /* their names */
    kn_loc *at;       /* by term */
    bool *live;       /* by term: some output needs it */
    const u8 *lies;   /* by term: the dtype of its location */
    bool *constant;   /* by term: computed in `prepare` */
    bool *in_place;   /* by term: a constant that the kernels that use it make */
    bool *deferred;   /* by term: a tensor that is made in a kernel of tiles, when it is asked for */
    VEC(i64) fresh;   /* extents of atoms that the program does not have */
    kn_loc *want;     /* by term: where an output wants its kernel to write; absent: anywhere */
} kn_lower;

/* A value that other terms' kernels can read. What has axes, and what only a loop or a lambda knows,
 * is part of a kernel that computes tiles. */
bool kn_is_tensor(const ir_node *node);

/* ---- iteration spaces (space.c) ------------------------------------------------------------- */

enum { KN_OPERANDS = 12 };

/* One dim of a space, with the stride of every operand along it. */
typedef struct kn_dim {
    i64 extent, stride[KN_OPERANDS];
} kn_dim;
typedef struct kn_space {
    kn_dim *at;
    i64 n, operands;
} kn_space;

i64 kn_extent(const kn_lower *l, ir_atom d);
/* The split that d is a part of, when its last part is short; NULL: none. */
const ir_split *kn_ragged_split(const kn_lower *l, ir_atom d);
/* An atom of the lowering's own. */
ir_atom kn_fresh(kn_lower *l, i64 extent);
i64 kn_stride(const kn_loc *x, ir_atom d); /* 0 where x lacks d */
/* The dims of `atoms`, outermost first by the stride of operand `by` (ties: the next operand). */
kn_space kn_space_new(kn_lower *l, ir_atoms atoms, const kn_loc *const *operands, i64 n, i64 by);
/* Joins neighbours that are one dim for every operand. */
void kn_space_join(kn_space *s);
i64 kn_space_size(const kn_space *s);

/* How a dim is walked: grid, then loop, then tile. After kn_walk_loops `index` is the coordinate
 * of the tile's first lane. */
typedef struct kn_walk {
    i64 extent, tile; /* tile: lanes a step, 1 for a dim outside the tile */
    i64 grid, chunk;  /* parts along it; steps a part */
    kn_var part;
    bool looped;
    kn_affine index;
} kn_walk;
/* Cuts the walks into about `parts` parts, outermost first, and makes the grid. */
void kn_walk_grid(kn_maker *m, kn_walk *w, i64 n, i64 parts);
/* Opens the loop of one walk, if it needs one. */
void kn_walk_open(kn_maker *m, kn_walk *w);
void kn_walk_close(kn_maker *m, kn_walk *w); /* loops without carried values */
kn_live kn_walk_live(const kn_walk *w);

/* Parts for `work` elements of a pointwise operator, a fraction of a nanosecond each. */
i64 kn_part_count(const kn_lower *l, i64 work);

/* ---- constants made in place (in_place.c) ----------------------------------------------------- */

/* Fills l->in_place. */
void kn_find_in_place(kn_lower *l);
/* What the kernel of a pointwise operator reads: its operands, or what those are made of. */
typedef struct kn_leaves {
    i64 n;
    u32 term[KN_OPERANDS];
} kn_leaves;
kn_leaves kn_leaves_of(const kn_lower *l, u32 term);

/* ---- kernels being made (build.c) ------------------------------------------------------------ */

typedef struct kn_job {
    kn_lower *l;
    kn_maker m;
    u32 term;
    bool constant;
    VEC(rt_arg) args;
    i64 flops, bytes;
} kn_job;

typedef struct kn_operand {
    const kn_loc *loc;
    i32 buffer; /* of the kernel */
    i64 base;   /* elements from the argument's address */
} kn_operand;

kn_job kn_job_new(kn_lower *l, u32 term);
/* Makes a kernel argument that covers loc. */
kn_operand kn_job_bind(kn_job *j, const kn_loc *loc, kn_access access);
/* Finishes the kernel, verifies it, appends the launch. */
void kn_job_launch(kn_job *j);
/* A new dense buffer for a value with these dims, outermost first. Scratch until the plan ends. */
kn_loc kn_loc_new(kn_lower *l, dtype t, const ir_atom *order, i64 n);
i32 kn_buffer_new(kn_lower *l, dtype t, i64 count);
/* The location that term's kernel writes: its output port's, or a new buffer with the order. */
kn_loc kn_result(kn_lower *l, u32 term, const ir_atom *order, i64 n);
/* Lets dims `to` cut those of `axis` (both row-major) anew: false when x would have to move. */
bool kn_reshape_strides(const kn_lower *l, const kn_loc *x, ir_atoms axis, ir_atoms to, i64 *stride);
/* Dims of `dims`, by decreasing stride in x. */
void kn_order_like(kn_lower *l, ir_atoms dims, const kn_loc *x, ir_atom *order);

/* ---- classes of operators ------------------------------------------------------------------- */

typedef kn_value kn_compute(kn_job *j, void *user, const kn_value *args);
/* out = compute(operands), element by element over out's dims. */
void kn_pointwise(kn_lower *l, u32 term, const kn_loc *out, kn_access access,
                  const kn_loc *const *operands, i64 n, kn_compute *compute, void *user);
/* A copy, converted where the dtypes differ. */
void kn_copy(kn_lower *l, u32 term, const kn_loc *out, kn_access access, const kn_loc *in);
/* x if it is memory, else a copy of it that is. */
kn_loc kn_in_memory(kn_lower *l, u32 term, const kn_loc *x);
void kn_lower_ewise(kn_lower *l, u32 term);
void kn_lower_reduce(kn_lower *l, u32 term);
void kn_lower_matmul(kn_lower *l, u32 term);
void kn_lower_index(kn_lower *l, u32 term);
void kn_lower_gather(kn_lower *l, u32 term);
void kn_lower_scatter(kn_lower *l, u32 term);
void kn_lower_plain(kn_lower *l, u32 term);
/* The kernel of `term`: the tiles of `root` joined (a `comb`), or `root` itself. (tiled.c) */
void kn_lower_tiles(kn_lower *l, u32 term, u32 root);

/* Offsets of scratch (by lifetime, best fit), weights and states. (memory.c) */
void kn_plan_memory(kn_lower *l);

#endif
