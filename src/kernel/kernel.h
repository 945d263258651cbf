/* kernel: programs as loop nests over tiles, and the plan that runs them.
 *
 *     ir program ─► kn_build: locations, layouts, one kernel a group ─► kernel IR + launch plan
 *     kernel IR  ─► kn_verify, kn_run (interpreter), kn_print / kn_read, codegen (text)
 *
 * A kernel has buffers (its arguments and its private arrays), a grid (its parts) and a body. A
 * value is a tile of rank 0 to 3; rank 0 is a scalar. Every size, stride and bound is a literal or
 * an affine form over grid and loop variables, so each access can be checked before it runs.
 *
 * - In-kernel float arithmetic is f32, or f64 where a value is f64; half types are loaded, stored,
 *   moved and cast, never computed with. A `cast` is the only rounding point.
 * - A memory operation addresses element  at + sum over tile dims of stride[d] * lane[d]. A `live`
 *   bound on a dim (start, end) makes exactly the lanes with start + lane < end live: dead lanes
 *   are loaded as `other` and never stored.
 * - `ref` is a load that stays where it is: only `dot` reads it, so no copy is made.
 * - A loop's results are its carried values after the last iteration, taken by `get`.
 * - Values are numbered from 1 in the order of the text; a use comes after its definition and
 *   inside the definition's region.
 *
 * The text form is one S-expression a kernel, print ∘ read = id; a kernel's name is a digest of its
 * body. The ABI of a compiled kernel is rt_kernel of runtime/plan.h.  (operations: kops.def) */
#ifndef EQF_KERNEL_H
#define EQF_KERNEL_H

#include "ir/ir.h"
#include "runtime/plan.h"

typedef enum kn_op {
    KN_NO_OP,
#define KOP(name, args, result, doc) KN_##name,
#include "kernel/kops.def"
#undef KOP
    KN_OP_COUNT
} kn_op;

/* What a kernel may do with a buffer. */
typedef enum kn_access {
    KN_IN,     /* read */
    KN_OUT,    /* every element is stored exactly once, none is read */
    KN_INTO,   /* no element is stored twice, none is read */
    KN_UPDATE, /* read and stored; a part touches only what no other part stores */
    KN_LOCAL   /* an array of the kernel: private to a part, undefined at its start */
} kn_access;

typedef struct kn_buffer {
    u8 access, dtype;
    i64 count; /* elements */
} kn_buffer;

typedef struct kn_value {
    u32 i; /* 0: none */
} kn_value;
typedef struct kn_var {
    u32 i; /* grid or loop variable; 0: none */
} kn_var;

/* base + sum of coef * var, terms sorted by variable, no zero coefficient. */
typedef struct kn_affine_term {
    kn_var var;
    i64 coef;
} kn_affine_term;
typedef struct kn_affine {
    i64 base;
    const kn_affine_term *at;
    i64 n;
} kn_affine;

/* Positions from low up to, without, high. */
typedef struct kn_span {
    kn_affine low, high;
} kn_span;

/* Lanes of a tile dim, or iterations of a loop, that exist: start + lane < end. end 0: all. */
typedef struct kn_live {
    kn_affine start;
    i64 end;
} kn_live;

enum { KN_RANK = 3, KN_INDICES = 8 };

/* How `dot` is computed. FMA: vectors along n, which is contiguous in the second operand, one
 * broadcast a row. ROWDOT: vectors along k, contiguous in both. PLAIN: element by element. TILES: by
 * matrix instructions, bf16 to f32: up to 32 rows by 32 columns, whose operands are references of rank 3,
 * [k / 32][m][32] and [k / 2][n][2] (dense). */
typedef enum kn_dot { KN_DOT_PLAIN, KN_DOT_FMA, KN_DOT_ROWDOT, KN_DOT_TILES } kn_dot;
enum { KN_TILE = 32 };

/* Where a tile lies in memory. */
typedef struct kn_place {
    i32 buffer;
    kn_affine at;
    i64 rank, shape[KN_RANK], stride[KN_RANK];
    kn_live live[KN_RANK];
} kn_place;

typedef struct kn_ins kn_ins;
typedef VEC(kn_ins *) kn_body;

struct kn_ins {
    u8 op;
    u8 dtype; /* of the result */
    u8 rank;  /* of the result; of the stored value for `store`, `put` */
    u8 sub;   /* ew: ir_op; state, combine, reduce, put: ir_reducer; dot: kn_dot */
    i64 number; /* scratch of printers: position in the text */
    i64 shape[KN_RANK];
    kn_value out;         /* none where there is no result */
    const kn_value *args; /* see kops.def */
    i64 arg_count;
    /* constants, and `other` of a load */
    f64 f;
    i64 i;
    /* memory */
    i32 buffer;
    kn_affine at;
    i64 stride[KN_RANK];
    kn_live live[KN_RANK]; /* dot: rows, columns, what is summed; the others need not be computed */
    const kn_place *places; /* sort: keys, positions, work */
    i64 index_stride[KN_INDICES], index_extent[KN_INDICES]; /* gather, put: of each index operand */
    /* reduce, bcast: the dim; get, carry: which; sort: 1 descending; dot: elements of `buffer` to
     * prefetch in each step of k, from `at` on (0: none) */
    i64 axis;
    i64 block[2]; /* dot: rows and columns of its register tile; 0: all */
    u8 perm[KN_RANK];
    /* loops */
    kn_var var;
    kn_affine from;
    i64 count, step, end; /* var = from, from + step ..; at most count times, while var < end */
    const kn_span *spans; /* an iteration is left out unless [var, var + step) meets one; none: all run */
    i64 span_count;
    const kn_value *carried, *yield; /* arg_count of each: inside the body, and what it ends with */
    kn_body body;
};

typedef struct kn_kernel {
    const char *name; /* k and 16 hexadecimal digits, set by kn_finish */
    const char *origin;
    VEC(kn_buffer) buffers; /* arguments first (in the order of the launch), then private arrays */
    VEC(i64) grid;          /* extents; part number = row-major index; variable i + 1 is grid i */
    kn_body body;
    VEC(kn_ins *) defs; /* by value number; [0] unused */
    u32 var_count;      /* highest number in use */
} kn_kernel;

typedef VEC(kn_kernel *) kn_kernels;

/* ---- construction (make.c) ----------------------------------------------------------------- */

/* Appends to the innermost open region. Shapes of results follow from operands; wrong operands
 * are found by kn_verify, not here. */
typedef struct kn_maker {
    arena *a;
    kn_kernel *k;
    kn_ins *open[32]; /* loops around the place of insertion */
    i64 depth;
} kn_maker;

kn_maker kn_maker_new(arena *a, const char *origin);
i32 kn_add_buffer(kn_maker *m, kn_access access, dtype type, i64 count);
kn_var kn_add_grid(kn_maker *m, i64 extent);

kn_affine kn_const_affine(i64 base);
kn_affine kn_affine_add(arena *a, kn_affine x, kn_var v, i64 coef); /* x + coef * v; v may be none */
kn_affine kn_affine_sum(arena *a, kn_affine x, kn_affine y, i64 coef); /* x + coef * y */

kn_value kn_load(kn_maker *m, const kn_place *from, f64 other_f, i64 other_i);
kn_value kn_ref(kn_maker *m, const kn_place *from);
kn_value kn_gather(kn_maker *m, const kn_place *from, const kn_value *index, const i64 *stride,
                   const i64 *extent, i64 n);
void kn_store(kn_maker *m, const kn_place *to, kn_value x);
void kn_put(kn_maker *m, const kn_place *to, ir_reducer r, kn_value x, const kn_value *index,
            const i64 *stride, const i64 *extent, i64 n);
/* keys and to: lines of rank 1; work: twice as many i64 as keys, contiguous. */
void kn_sort(kn_maker *m, const kn_place *keys, const kn_place *to, const kn_place *work,
             bool descending);
kn_value kn_const_f(kn_maker *m, dtype t, f64 x, i64 rank, const i64 *shape);
kn_value kn_const_i(kn_maker *m, dtype t, i64 x, i64 rank, const i64 *shape);
/* i64: start + sum of stride[d] * lane[d]. */
kn_value kn_iota(kn_maker *m, dtype t, kn_affine start, i64 rank, const i64 *shape, const i64 *stride);
kn_value kn_cast(kn_maker *m, dtype t, kn_value x); /* x itself when it has the type */
kn_value kn_ew(kn_maker *m, ir_op op, const kn_value *args, i64 n);
kn_value kn_state(kn_maker *m, ir_reducer r, dtype t, i64 rank, const i64 *shape);
kn_value kn_combine(kn_maker *m, ir_reducer r, kn_value state, kn_value x);
kn_value kn_reduce(kn_maker *m, ir_reducer r, kn_value x, i64 axis);
/* In each step of k, the next `ahead` elements from where `b` would be at address `next` are
 * prefetched; 0: none. b is a `ref` then. */
kn_value kn_dot_add(kn_maker *m, kn_dot kind, kn_value acc, kn_value a, kn_value b, kn_affine next,
                    i64 ahead);
/* The dot is computed in register tiles of so many rows and columns. */
void kn_dot_block(kn_maker *m, kn_value dot, i64 rows, i64 columns);
/* Of its rows (0), columns (1) or summed positions (2) only these exist: the operands are zero at other
 * positions, and nothing depends on other rows and columns. */
void kn_dot_live(kn_maker *m, kn_value dot, i64 which, kn_live live);
kn_value kn_bcast(kn_maker *m, kn_value x, i64 axis, i64 extent); /* a new dim before `axis` */
kn_value kn_trans(kn_maker *m, kn_value x, const u8 *perm);
/* Opens a loop; *var and carried[0..n) are its variable and carried values inside. */
void kn_loop(kn_maker *m, kn_affine from, i64 count, i64 step, i64 end, const kn_value *init,
             i64 n, kn_var *var, kn_value *carried);
/* Of the innermost open loop, which stores nothing, only iterations that meet a span run. */
void kn_loop_meets(kn_maker *m, const kn_span *spans, i64 n);
/* Closes it; results[0..n) are the carried values after it. */
void kn_end(kn_maker *m, const kn_value *yield, kn_value *results);
/* An integer division: a divisor of 0 ends the kernel with an error. */
bool kn_divides(const kn_ins *x);
const kn_ins *kn_def(const kn_kernel *k, kn_value v);
i64 kn_parts(const kn_kernel *k);
/* Prunes the kernel and sets its name. */
kn_kernel *kn_finish(kn_maker *m);
/* Takes out what no store and no error depends on, and numbers values anew (prune.c). */
void kn_prune(arena *a, kn_kernel *k);

/* ---- text (text.c), verifier (verify.c), interpreter (run.c) -------------------------------- */

void kn_print(str *out, const kn_kernel *k);
/* Throws EQF_E_PARSE with line:column. The text is one `kernel` form. */
kn_kernel *kn_read(arena *a, const char *file, const char *text, i64 n);
/* Checks every invariant above. Throws EQF_E_INTERNAL naming the kernel and the operation. */
void kn_verify(eqf_ctx *ctx, const kn_kernel *k);
/* Runs parts [p0, p1) as a compiled kernel would; same result code. Throws EQF_E_INTERNAL when a
 * private element is read before it is stored, or an element of an OUT or INTO buffer is stored
 * twice within this call. Buffers are in storage format. */
int kn_run(eqf_ctx *ctx, const kn_kernel *k, void *const *buffers, i64 p0, i64 p1);

/* ---- programs to kernels (build.c and what it calls) ----------------------------------------- */

typedef struct kn_options {
    i64 vector_bytes; /* 64, 32 or 16 */
    i64 threads;      /* parts are sized for so many; at least 1 */
    bool constants;   /* parameters and constants never change: compute what depends on them alone
                         in `prepare` */
    const i64 *lanes; /* by atom: lanes of a tile along its axis, 0 or NULL: chosen here */
    bool tiles;       /* the machine has matrix instructions for bf16 */
} kn_options;

/* Lowers a program. *plan is filled (names and arrays in `a`); *kernels gets each distinct kernel
 * once, verified, in order of first use. Inputs with stored data become, with `constants`,
 * RT_SOURCE buffers that `prepare` reads (and RT_WEIGHT buffers filled by a copy launch where the
 * run reads them as they are); without it, RT_WEIGHT buffers listed in plan->parameters (constant
 * tensors of the program stay weights). A mutated buffer is RT_STATE.
 * Throws EQF_E_UNSUPPORTED for opaque operators, EQF_E_LIMIT for sizes that overflow. */
void kn_build(arena *a, const ir_program *p, kn_options options, rt_plan *plan,
              kn_kernels *kernels);

#endif
