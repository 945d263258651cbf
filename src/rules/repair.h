/* The repair solver: reductions over one parallel axis, of which later ones use earlier ones'
 * results, become one rolling reduction.
 *
 * In: reductions s_k = Reduce_op(F_k(x, s_0 .. s_{k-1}); p) in dependency order. F_k is an IR term
 * of one tile; it holds the combination over the tile's own atoms, so the contribution of a tile is
 * `(reduce + (exp (sub x m)) :axis {T})`, and a tensor-level reduction read as a term of one tile
 * is its own F_k. Leaves with an atom of the axis vary with the tile (x); `value`s of earlier
 * reductions are s; all else is invariant (k). Arithmetic is over the reals, in f32 or f64.
 *
 * Out: a reducer, or "none" with the subterm that blocks it, and a certificate in text that
 * rl_check_repair replays without the solver.
 *
 * A reducer is a tuple of state slots and three lambdas. A lambda is an ir_program: its input ports
 * are the formal parameters in the order of rl_lambda, its outputs the results. So it is printed,
 * verified, evaluated and (by ir_canonical) compared like any program; atoms have the ids and names
 * that they have in the system's program, an atom of the axis stands for the positions of one tile.
 *
 *     update  state, lanes, leaves -> state      one tile more; lanes: how many positions are live
 *     merge   state, state, leaves -> state      two partial states, in any order
 *     final   state, leaves -> s_0 .. s_{n-1}    the reductions' results
 *
 * A kernel's loop carries the slots, its body is `update`; a bundle's component k is output k of
 * `final`. Positions of a ragged tile that do not exist contribute each slot's identity.
 *                                                                     (paper §4.2; docs/repair.md)
 */
#ifndef EQF_RULES_REPAIR_H
#define EQF_RULES_REPAIR_H

#include "ir/ir.h"

enum { RL_MAX_REDUCTIONS = 8, RL_MAX_SLOTS = 32 };

typedef enum rl_sign { RL_ANY, RL_NONNEGATIVE, RL_POSITIVE } rl_sign;

typedef struct rl_reduction {
    ir_reducer op; /* IR_SUM, IR_MAX, IR_MIN */
    ir_term body;  /* F_k */
    ir_term value; /* stands for s_k in later bodies; may be `body` itself */
} rl_reduction;

typedef struct rl_system {
    const ir_program *p;
    ir_atoms axis; /* the tile's atoms that the parallel axis cuts */
    const rl_reduction *at;
    i64 n;
    const u8 *signs; /* rl_sign of each input port's values; NULL: nothing is known */
} rl_system;

typedef enum rl_form {
    RL_PLAIN,   /* does not use an earlier result */
    RL_SPLIT,   /* plain reductions; the earlier results are applied once at the end */
    RL_ROLLING, /* kept at the reference of the producers so far */
    RL_CENTRED  /* the same with a ratio of sums as reference */
} rl_form;

/* How far the reducer's rounding is from the program's. */
typedef enum rl_fp { RL_EXACT, RL_REASSOCIATED, RL_APPROXIMATE } rl_fp;

typedef struct rl_slot {
    const char *name;
    ir_reducer op; /* what combines contributions; IR_NO_REDUCER: a stored reference */
    i64 reduction; /* the reduction that brought it in */
    f64 identity;  /* initial value */
    ir_atoms dims;
    bool is_count, is_added; /* counts positions; a maximum that the program does not compute */
} rl_slot;

typedef struct rl_lambda {
    ir_program *p;
    i64 states;            /* how many copies of the state come first: 1 or 2 */
    bool has_lanes;        /* then one real number */
    const ir_term *leaves; /* then these `in` and `iota` terms of the system's program */
    i64 leaf_count;
} rl_lambda;

typedef struct rl_how {
    rl_form form;
    i64 degree; /* of the polynomial in the references; 0: rank one */
    i64 blocks; /* groups of terms with different exponentials */
    bool adds_max, overflows, cancels;
    rl_fp fp;
} rl_how;

typedef struct rl_repair {
    bool found;
    /* Not found: a sentence that names the blocking subterm; and the term in the system's names. */
    const char *reason;
    const char *blocking;
    i64 blocked_reduction;
    /* Found: */
    rl_slot *slots;
    i64 slot_count;
    rl_how how[RL_MAX_REDUCTIONS];
    rl_lambda update, merge, final;
    /* The last reduction over one part of the positions with the results of all in place of the part's
     * own. Parameters: the slots; the part's results of the others; the results of all; leaves. Outputs:
     * of each slot the contribution of a tile at the part's results; then the reduction, by the slots that
     * these make. `has_shift`: there is one; `shifts`: the slot has such a contribution. */
    rl_lambda shift;
    bool has_shift, shifts[RL_MAX_SLOTS];
    const char *certificate;
} rl_repair;

typedef enum rl_want { RL_WANT_ROLLING, RL_WANT_SPLIT } rl_want;

/* Everything returned lives in `a`. Throws EQF_E_ARGUMENT for a system that is none (no axis, more
 * than RL_MAX_REDUCTIONS, a body that is no float or mentions a later value). */
rl_repair rl_solve_repair(arena *a, const rl_system *system, rl_want want);

/* A tensor-level program read as a system: every reduction or matmul over an atom of `axis`, in
 * order of dependency. False when one reduces with another reducer than sum, max and min, over a
 * part of the axis only, or there are more than RL_MAX_REDUCTIONS. */
bool rl_system_of_program(arena *a, const ir_program *p, ir_atoms axis, rl_system *out);

/* Replays `repair->certificate` against the system and the lambdas: literally, step by step and by
 * value (check_repair.c). Returns NULL when everything holds, else what does not. */
const char *rl_check_repair(arena *a, const rl_system *system, const rl_repair *repair, u64 seed);

#endif
