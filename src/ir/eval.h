/* What the parts of the reference interpreter share: values, strided loops, reducers.
 *
 * A value is a contiguous array over its sorted atoms, row-major: f64 for floats, i64 for integers
 * and bools. A term with axes has one value for each of their coordinates, its cells; an atom whose
 * axis it has then has the extent of that tile, which may be short or 0. A `nest` is a loop nest
 * with a stride per operand and loop; its innermost loop is a row, which a kernel gets whole. Rows
 * are independent, so the pool may run them in any order. */
#ifndef EQF_IR_EVAL_H
#define EQF_IR_EVAL_H

#include "ir/ir.h"

typedef struct value {
    ir_atoms dims;
    dtype dtype;
    bool is_float;
    i64 count;
    union {
        f64 *f;
        i64 *i;
        void *p; /* NULL: not computed yet, or released */
    };
} value;

/* The values of a term with axes, row-major by coordinate. */
typedef struct cells {
    value *at; /* NULL: the term has no axes, or was not computed */
    i64 n;
} cells;

/* Terms of a lambda's body in order. */
typedef struct eval_body {
    const u32 *at;
    i64 n;
} eval_body;

struct loop_state;

typedef struct eval {
    const ir_program *p;
    eqf_ctx *ctx;
    ir_eval_options options;
    const tensor *inputs;
    arena *own;          /* freed at the end */
    arena *scratch;      /* freed after each node */
    value *values;       /* by term; of a term with axes, the cell in use */
    cells *cells;        /* by term */
    value *inner_values; /* the same for bodies of lambdas, which are computed anew each time */
    cells *inner_cells;
    /* By atom, for the node and coordinate in hand. */
    i64 *extent, *offset;
    i64 *coord;                        /* of its axis */
    bool *pinned;                      /* does a loop hold the coordinate? */
    const struct loop_state **running; /* by component: the loop that is being run, or NULL */
    eval_body *bodies;                 /* by lambda */
    rng random;                        /* of options.association */
} eval;

/* Extents are at least 2 once unit loops are gone, so a nest over memory has fewer than 64; an
 * extent of 0 makes it empty. */
#define MAX_LOOPS 64
#define MAX_OPERANDS 4
typedef struct nest {
    i64 rank, operands;
    i64 extent[MAX_LOOPS];
    i64 stride[MAX_OPERANDS][MAX_LOOPS];
} nest;

/* ---- eval.c --------------------------------------------------------------------------------- */

/* Throws naming the node and where it came from. */
_Noreturn void eval_throw(const eval *e, u32 node, eqf_status status, const char *format, ...)
    PRINTF_LIKE(4, 5);
/* Data of e->values[k] for its node at the current coordinates; uninitialised. */
value *eval_new(eval *e, u32 k);
/* Elements of a value over `dims`; throws EQF_E_LIMIT when memory cannot have that many. */
i64 eval_count(const eval *e, ir_atoms dims);
void eval_poll(const eval *e);
/* Wraps or rounds n elements from `offset` to what the dtype stores. */
void eval_settle(const eval *e, value *v, i64 offset, i64 n);

/* ---- loops.c -------------------------------------------------------------------------------- */

static inline i64 eval_extent(const eval *e, ir_atom d)
{
    return e->extent[d.i];
}

/* Elements between neighbours along d; 0 when v lacks it. */
i64 eval_stride(const eval *e, const value *v, ir_atom d);
/* Adds a loop inside the others; extents of 1 are left out, loops that continue each other for all
 * operands are joined. */
void nest_add(nest *t, i64 extent, const i64 *strides);
/* One loop for each atom, in order; operand i has the strides of v[i]. */
nest nest_over(const eval *e, ir_atoms dims, const value *const *v, i64 operands);
/* row(user, n, offsets) for all rows, possibly in pieces, on all threads. `cost`: about how many
 * operations one element takes. Strides inside a row: nest_step. */
typedef void nest_row(void *user, i64 n, const i64 *offset);
void nest_run(const eval *e, const nest *t, i64 cost, nest_row *row, void *user);
/* The same in order on the caller. */
void nest_walk(const nest *t, nest_row *row, void *user);
i64 nest_step(const nest *t, i64 operand);
/* Offset of each element of a list of atoms, row-major in the order of the list. */
i64 *eval_offsets(const eval *e, const value *v, ir_atoms list);
/* Copies through a nest whose operands are destination and source. */
void nest_copy(const eval *e, const nest *t, void *to, const void *from);

/* ---- the operators -------------------------------------------------------------------------- */

void eval_pointwise(eval *e, u32 k);
void eval_reduce(eval *e, u32 k);
void eval_scan(eval *e, u32 k);
void eval_matmul(eval *e, u32 k);
void eval_index(eval *e, u32 k);
void eval_gather(eval *e, u32 k);
void eval_scatter(eval *e, u32 k);
void eval_argsort(eval *e, u32 k);
void eval_splitdim(eval *e, u32 k);

/* ---- tiles (eval_tiled.c)
 * ------------------------------------------------------------------------ */

i64 eval_tile_count(const eval *e, ir_atom axis);
i64 eval_tile_start(const eval *e, ir_atom axis, i64 tile);
/* Coordinates of a set of axes: all that no loop holds set to 0; then the next, false after the
 * last (they are 0 again). */
void eval_first(eval *e, ir_atoms axes);
bool eval_next(eval *e, ir_atoms axes);
i64 eval_index_of(const eval *e, ir_atoms axes);
/* How many coordinates a set of axes has; throws EQF_E_LIMIT. */
i64 eval_coordinates(const eval *e, ir_atoms axes);
/* Extents and offsets of atoms for the current coordinates of `axes`; and back. */
void eval_enter(eval *e, ir_atoms axes);
void eval_leave(eval *e, ir_atoms axes);
/* The value of a term at the current coordinates. */
value *eval_cell(const eval *e, ir_term t);
/* Computes the cells of node k at all coordinates that no loop holds. */
void eval_node(eval *e, u32 k);
/* An ordinary node whose operands are in e->values. */
void eval_plain(eval *e, u32 k);
/* state = reducer(state, x), element by element. */
void eval_fold(const eval *e, ir_reducer r, value *state, const value *x);
/* What a reducer starts with, in every element. */
void eval_fill_identity(value *v, ir_reducer r);
/* Flags of the elements over `dims` that lie in dead lanes of splits; NULL: none of them. */
u8 *eval_dead_lanes(eval *e, ir_atoms dims);
/* Drops what the node holds. */
void eval_drop(eval *e, u32 k);

/* ---- loops (eval_loop.c) ----------------------------------------------------------------------
 */

void eval_loop(eval *e, u32 k);
void eval_get(eval *e, u32 k);
void eval_run(eval *e, u32 k);

/* state[j * state_step] = update(state[j * state_step], x[j * sj + m * sk]) for j < n, m < count;
 * both strides of x may be 0. */
typedef void fold_f64(i64 n, f64 *state, i64 state_step, i64 count, const f64 *x, i64 sj, i64 sk);
typedef void fold_i64(i64 n, i64 *state, i64 state_step, i64 count, const i64 *x, i64 sj, i64 sk);
fold_f64 *eval_fold_f64(ir_reducer r);
fold_i64 *eval_fold_i64(ir_reducer r);

#endif
