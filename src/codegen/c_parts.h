/* What the files of the C printer share: state, spelling, dots. */
#ifndef EQF_CODEGEN_C_PARTS_H
#define EQF_CODEGEN_C_PARTS_H

#include "codegen/codegen.h"

/* Where a value lives in the printed text. */
typedef enum c_home {
    C_NOWHERE,
    C_SCALAR, /* variable vN */
    C_LANE,   /* variable vN inside the loop nest of its group */
    C_ARRAY,  /* tN, row-major; N is the number of the value that names the storage */
    C_INLINE, /* constants, identities, broadcast scalars: written where they are used */
    C_PLACE   /* `ref`: memory */
} c_home;

typedef struct c_value {
    u8 home;
    u32 storage; /* C_ARRAY: value that names it; C_SCALAR: the variable */
    i64 group;   /* of the definition; 0: in none */
    i64 uses;
    bool escapes; /* used outside its group */
    const kn_ins *stored; /* dot: the store that takes its result straight from registers */
} c_value;

typedef struct c_printer {
    str s;
    arena *a;
    eqf_ctx *ctx;
    const kn_kernel *k;
    c_value *values;
    i64 group_count;
    i64 group;     /* being printed */
    i64 *group_of; /* by operation number; 0: in none */
    i64 vector_bytes;
    i64 indent;
    bool *vectors; /* [dtype][log2 lanes]: vector types in use, over all kernels */
} c_printer;

enum { C_LANES = 8 };

void c_line(c_printer *p, const char *format, ...) PRINTF_LIKE(2, 3);
const char *c_type(dtype t);
/* "2 * g1 + 16 * g3 + 5" */
char *c_affine(c_printer *p, kn_affine x);
/* Where the affine address of a buffer is: "b0 + (16 * g3)". */
char *c_address(c_printer *p, i32 buffer, kn_affine at);
/* The number as a literal of the dtype. */
char *c_number(c_printer *p, dtype t, f64 f, i64 i);
/* `text` of dtype `from` as dtype `to`. */
char *c_cast(c_printer *p, dtype from, dtype to, const char *text);
char *c_ew(c_printer *p, ir_op op, dtype of_args, char *const *args);
/* One step of reducer r on dtype t. */
char *c_combine(c_printer *p, ir_reducer r, dtype t, const char *a, const char *b);
char *c_identity(c_printer *p, ir_reducer r, dtype t);

bool c_is_lanewise(const kn_ins *x);
bool c_is_memory(const kn_ins *x);
bool c_same_shape(const kn_ins *a, const kn_ins *b);
bool c_same_affine(kn_affine a, kn_affine b);
/* Fills values and group_of for p->k. (c_plan.c) */
void c_plan(c_printer *p);

/* The operand as an expression in the lane being printed; map: lane dim of each of its dims, NULL
 * when they are the same. (c_nest.c) */
char *c_operand(c_printer *p, kn_value v, const u8 *map);
char *c_inline(c_printer *p, const kn_ins *x);
const char *c_local_type(dtype t);
/* `text` cast to the storage type of t where C's arithmetic is wider. */
char *c_narrow(c_printer *p, dtype t, const char *text);
/* A group of operations, or one operation on scalars. */
void c_group(c_printer *p, const kn_ins *const *at, i64 n);
void c_scalar(c_printer *p, const kn_ins *x);

/* Rows of an accumulator: elements of a row are contiguous. */
typedef struct c_rows {
    char *base; /* NULL: all zero */
    i64 stride;
} c_rows;

void c_dot(c_printer *p, const kn_ins *x);
/* out = acc + the product, by matrix instructions. The kernel has a `tile_state tiles`. (c_tiles.c) */
void c_tiles(c_printer *p, const kn_ins *x, c_rows acc, c_rows out);
/* What `body` needs of it before the first kernel. */
const char *c_tiles_preamble(const char *body);

#endif
