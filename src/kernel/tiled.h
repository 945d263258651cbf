/* What the files share that lower tiled forms (kt_ between them): lanes.c chooses tiles, tiles.c makes
 * the value of one tile, tile_loops.c the loops around it, tiled.c the kernel. */
#ifndef EQF_KERNEL_TILED_H
#define EQF_KERNEL_TILED_H

#include "kernel/lower.h"

/* A value of one tile. Dims are in the order of the value's; an atom that is none stands for a dim
 * of one lane, which products have. */
typedef struct tile {
    kn_value v; /* 0: none */
    i64 n;
    ir_atom dims[KN_RANK];
} tile;

/* The term's value where the place is inside a lambda or not. */
typedef struct frame {
    tile *known;     /* by term */
    ir_atoms axes;   /* of a lambda: those in force where it is applied */
    bool is_lambda;
} frame;

typedef struct known {
    u32 term;
    i64 depth;
} known;

/* A constant operand in `prepare`d panels: [columns / width][summed][width]. */
typedef struct panels {
    u32 source;
    ir_atom n, outer, inner;
    kn_loc loc;
    kn_operand bound;
} panels;

typedef struct tiler {
    kn_lower *l;
    kn_job j;
    const ir_program *p;
    arena *a;
    const bool *axes;  /* by atom: cut into tiles in this kernel */
    const i64 *lanes;  /* by atom */
    kn_affine *at;     /* by atom: position of the first lane */
    bool *open;        /* by atom: the axis has a coordinate here */
    bool *whole;       /* by atom: the tile here is none that is short */
    i64 depth;         /* loops around this place */
    frame outside;     /* values of terms, forgotten when the loop around them ends */
    VEC(known) trail;
    bool *wanted; /* by term: of the kernel; of components, those that it needs */
    ir_atoms *needed;  /* by term: axes that must be open */
    tile *result;      /* by component: after its loop */
    tile *running;     /* by component: inside its loop */
    kn_operand *bound; /* by term in memory */
    bool *is_bound;
    f64 *run, *read;   /* by atom: shares of its axis that loops run over on average, and that any reads; 0: no loop */
    VEC(panels) packed;
} tiler;

typedef VEC(u32) term_list;

/* Rows only in the left operand, columns only in the right, and what is summed. None: one lane. */
typedef struct product {
    u32 left, right; /* operands */
    ir_atom m, n, k;
    kn_dot kind;
} product;

/* Lanes a tile has along each atom's axis (by atom, at least 1) in the kernel that computes `root`,
 * whose tiles go to `out`. */
const i64 *kn_choose_lanes(kn_lower *l, u32 root, const kn_loc *out);

/* ---- tiles.c --------------------------------------------------------------------------------- */

const ir_node *kt_node_of(const tiler *t, u32 k);
_Noreturn void kt_refuse(const tiler *t, u32 k, const char *why);
dtype kt_wide(dtype t); /* what a dtype is computed in */
i64 kt_tiles_of(const tiler *t, ir_atom d);
/* Lanes along d of a value with these axes; of none: 1. */
i64 kt_extent_of(const tiler *t, ir_atoms axes, ir_atom d);
void kt_extents(const tiler *t, const tile *x, ir_atoms axes, i64 *shape);
/* May the tile here be short, or in a part that is? */
bool kt_is_ragged(const tiler *t, ir_atoms axes, ir_atom d);
/* The split whose inner part d is, where the last part is short and both are among the axes; NULL: none. */
const ir_split *kt_ragged_split(const tiler *t, ir_atoms axes, ir_atom d);
/* Refuses a kernel in which lanes that do not exist would count. */
void kt_check_splits(const tiler *t, u32 root);
/* Dims of more than one lane, in the order of the atoms; no value. */
tile kt_shape_of(const tiler *t, u32 k, ir_atoms dims, ir_atoms axes);
/* The dims of x in the order of those of `like`, where they are the same. */
void kt_order_like(tile *x, const tile *like);
/* x with exactly the dims of `like`, in that order. */
kn_value kt_arrange(tiler *t, tile x, const tile *like, ir_atoms axes);
/* Where the tile x of what lies at `loc`, bound to an argument, is; its dims as in x. */
kn_place kt_place(tiler *t, const kn_loc *loc, const kn_operand *bound, const tile *x,
                  ir_atoms axes);
bool kt_is_in_memory(const tiler *t, u32 k);
/* The value that a view, or a value without axes, reads; 0 when the term is computed. */
u32 kt_source_of(const tiler *t, const frame *f, u32 k);
product kt_product_of(tiler *t, const frame *f, u32 k, ir_atoms axes);
tile kt_product_shape(const product *x);
/* acc + the product `k`, or the product. */
tile kt_multiply(tiler *t, frame *f, u32 k, const tile *acc);
tile kt_value(tiler *t, frame *f, u32 k);
/* Results of a lambda for these arguments; one that is not there is not used. */
void kt_apply(tiler *t, u32 lambda, const tile *args, ir_atoms axes, tile *results);

/* ---- tile_loops.c ---------------------------------------------------------------------------- */

void kt_find_needed(tiler *t, u32 root);
void kt_find_wanted(tiler *t, u32 root);
/* Does the term combine tiles? */
bool kt_is_loop(const tiler *t, u32 k);
/* Terms below the roots (with them), each once, ascending; not what is in memory. */
term_list kt_below(const tiler *t, arena *a, const u32 *roots, i64 n);
void kt_remember(tiler *t, u32 k, tile x); /* until the loop around this place ends */
void kt_forget(tiler *t);                   /* what was remembered inside the loop that ends */
bool kt_is_ready(const tiler *t, u32 k);   /* can it be computed here? */
/* Runs every loop below the roots that can be run here. */
void kt_settle(tiler *t, const u32 *roots, i64 n);
/* Computes below the roots (the roots too, with `themselves`), as high as possible, what can be
 * computed here. What is in memory stays there. */
void kt_hoist(tiler *t, const u32 *roots, i64 n, bool themselves);

#endif
