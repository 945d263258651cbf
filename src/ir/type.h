/* What the constructor, the verifier, the reader and the printer share: which attributes an
 * operator has, and the type rule of one node. */
#ifndef EQF_IR_TYPE_H
#define EQF_IR_TYPE_H

#include "ir/ir.h"

enum { /* fields of ir_attr */
       IR_HAS_NAME = 1,
       IR_HAS_DTYPE = 2,
       IR_HAS_VALUE = 4, /* f or i */
       IR_HAS_REDUCER = 8,
       IR_HAS_AXIS = 16,
       IR_HAS_TO = 32,
       IR_HAS_INTS = 64,
       IR_HAS_PAR = 128
};
u32 ir_attrs_of(ir_op op);
bool ir_axis_is_set(ir_op op);
bool ir_to_is_set(ir_op op);
/* Must operand `i` of `n` have the dtype of the other operands of which this holds? */
bool ir_is_sibling(ir_op op, i64 i, i64 n);

typedef struct ir_type {
    dtype dtype;
    ir_atoms dims;
    ir_atoms axes;
    ir_terms runs; /* of a `run`: without itself, which has no number yet */
    bool is_open;
    const char *wrong; /* why there is no type; NULL when there is one */
} ir_type;
/* Dims and texts are allocated in `a`; operands and atoms may be arbitrary ids. */
ir_type ir_type_of(const ir_program *p, arena *a, ir_op op, const ir_attr *attr,
                   const ir_term *args, i64 arg_count);
/* Is node `k` the one that the constructor finds for its operator, attributes and operands? */
bool ir_is_consed(const ir_program *p, u32 k);
/* Why a port cannot be one, or NULL. */
const char *ir_port_wrong(const ir_program *p, arena *a, const ir_port *port, bool is_output);

/* ---- between type.c and type_tiled.c -----------------------------------------------------------
 */

typedef struct rule {
    const ir_program *p;
    arena *a;
    const ir_op_row *row;
    ir_op op;
    const ir_attr *attr;
    const ir_term *args;
    i64 n;
} rule;

#define WRONG(...) ((ir_type){.wrong = arena_printf(r->a, __VA_ARGS__)})
#define CHECK(expression)                                                                          \
    do {                                                                                           \
        const char *text_ = (expression);                                                          \
        if (text_)                                                                                 \
            return (ir_type){.wrong = text_};                                                      \
    } while (0)

/* Checks that return NULL or what is wrong. */
const char *ir_type_sorted(const rule *r, ir_atoms set, const char *what);
const char *ir_type_inside(const rule *r, ir_atoms list, ir_atoms set, const char *where);
const char *ir_type_one_dtype(const rule *r, i64 from, i64 to);
/* Operands [from, to) are cut alike, so that their tiles align. */
const char *ir_type_aligned(const rule *r, i64 from, i64 to);
ir_atoms ir_type_sort(arena *a, const ir_atom *at, i64 n);
ir_atoms ir_type_union(arena *a, ir_atoms x, ir_atoms y);
ir_atoms ir_type_minus(arena *a, ir_atoms x, ir_atoms y);
bool ir_type_same_atoms(ir_atoms x, ir_atoms y);
ir_terms ir_terms_union(arena *a, ir_terms x, ir_terms y);
ir_term ir_term_in(ir_terms set, ir_term t); /* t, or none */
/* Axes, runs and openness that follow from the operands of an ordinary operator; what cannot be so.
 */
ir_type ir_type_spread(const rule *r, ir_type type);
ir_type ir_type_tiled(const rule *r);
/* The leaves, as operands of a component (from 1), that result number `result` of a reducer depends
 * on by way of the state: slots that it reads, slots that those are updated or merged from, and so
 * on. Adds to *dims the atoms of the terms in between. */
bool *ir_leaves_of_result(const ir_program *p, arena *a, const ir_node *reducer, i64 result,
                          i64 leaves, ir_atoms *dims);

#endif
