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
       IR_HAS_INTS = 64
};
u32 ir_attrs_of(ir_op op);
bool ir_axis_is_set(ir_op op);
bool ir_to_is_set(ir_op op);
/* Must operand `i` of `n` have the dtype of the other operands of which this holds? */
bool ir_is_sibling(ir_op op, i64 i, i64 n);

typedef struct ir_type {
    dtype dtype;
    ir_atoms dims;
    const char *wrong; /* why there is no type; NULL when there is one */
} ir_type;
/* Dims and texts are allocated in `a`; operands and atoms may be arbitrary ids. */
ir_type ir_type_of(const ir_program *p, arena *a, ir_op op, const ir_attr *attr,
                   const ir_term *args, i64 arg_count);
/* Is node `k` the one that the constructor finds for its operator, attributes and operands? */
bool ir_is_consed(const ir_program *p, u32 k);
/* Why a port cannot be one, or NULL. */
const char *ir_port_wrong(const ir_program *p, arena *a, const ir_port *port, bool is_output);

#endif
