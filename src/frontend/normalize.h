/* normalize: what normalize.c and normalize_index.c share. */
#ifndef EQF_FRONTEND_NORMALIZE_H
#define EQF_FRONTEND_NORMALIZE_H

#include "frontend/lower.h"

typedef struct nz {
    ir_program *p;
    u32 *uses; /* by term, of the live program when the round began */
    u32 n_counted;
} nz;

/* Pointers into the node table: valid until the next term is made. */
const ir_node *nz_at(const nz *z, ir_term t);
bool nz_is(const nz *z, ir_term t, ir_op op);
ir_term nz_arg(const nz *z, ir_term t, i64 i);
bool nz_number(const nz *z, ir_term t, f64 *out);  /* a constant, as a real */
bool nz_integer(const nz *z, ir_term t, i64 *out); /* a constant of an integer dtype or bool */
ir_term nz_const(nz *z, u8 type, f64 x);

/* Constructors that apply all rules. */
ir_term nz_1(nz *z, ir_op op, ir_term a);
ir_term nz_2(nz *z, ir_op op, ir_term a, ir_term b);
ir_term nz_where(nz *z, ir_term c, ir_term a, ir_term b);
ir_term nz_cast(nz *z, u8 type, ir_term a);
ir_term nz_rename(nz *z, ir_term x, ir_atoms from, ir_atoms to);

/* x itself when it lacks k. */
ir_term nz_slice(nz *z, ir_term x, ir_atom k, i64 start, ir_atoms to, const i64 *steps);

/* Any operator: folded, rewritten or made. */
ir_term nz_make(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n);
bool nz_is_float(const nz *z, ir_term t);
bool nz_is_wide(const nz *z, ir_term t); /* f32 or f64 */
bool nz_is_value(const nz *z, ir_term t, f64 value);
bool nz_is_exact(u8 a, u8 b); /* every value of dtype a has its image in b */
/* x = y * c with c a finite number and x a wide float (neg is -1)? */
bool nz_split_scale(const nz *z, ir_term x, ir_term *y, f64 *c);
ir_term nz_scaled(nz *z, ir_term x, f64 c);

/* ---- normalize_axes.c: each gives *out when it applies ------------------------------------- */

bool nz_rule_reduce(nz *z, ir_attr attr, ir_term x, ir_term *out);
bool nz_rule_matmul(nz *z, ir_attr attr, const ir_term *x, ir_term *out);
bool nz_rule_rename(nz *z, ir_attr attr, ir_term x, ir_term *out);
bool nz_rule_slice(nz *z, ir_attr attr, ir_term x, ir_term *out);
bool nz_rule_reshape(nz *z, ir_attr attr, ir_term x, ir_term *out);
bool nz_rule_concat(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out);
bool nz_rule_gather_runs(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out);
bool nz_rule_gather(nz *z, ir_attr attr, const ir_term *x, i64 n, ir_term *out);
bool nz_rule_moved_scale(nz *z, ir_op op, ir_attr attr, const ir_term *x, ir_term *out);
bool nz_rule_moved_cast(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out);
/* What operands may be repeated along, and must. */
bool nz_rule_repeated(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out);
bool nz_rule_still(nz *z, ir_op op, ir_attr attr, const ir_term *x, i64 n, ir_term *out);

/* ---- normalize_index.c --------------------------------------------------------------------- */

/* The comparison of i64 terms in affine form: positive parts left and right, one constant. */
bool nz_affine(nz *z, ir_op op, const ir_term *x, ir_term *out);
/* Rename or slice of an index expression (pointwise over iotas and numbers): another one. */
bool nz_index_map(nz *z, ir_op op, ir_attr attr, ir_term x, ir_term *out);
/* Bounds of an i64 term that follow from what it is made of, looked at `depth` operators deep. */
bool nz_bounds(nz *z, ir_term x, i64 depth, i64 *low, i64 *high);
/* An integer index expression over few atoms, and its value at a position: a coordinate an atom of
 * its dims. */
enum { NZ_MAX_ATOMS = 16 };
bool nz_has_values(nz *z, ir_term x);
i64 nz_value_at(nz *z, ir_term x, const i64 *position);
/* At every coordinate of the other atoms, is x above -inf somewhere along `axis`? Inputs of
 * products count as finite. */
bool nz_is_live(nz *z, ir_term x, ir_atoms axis);

#endif
