/* ir: tensor programs as hash-consed terms over named dimensions.
 *
 * Dimensions are *atoms*: a symbol and an extent of at least 2. A value has a SET of atoms, none
 * twice; it is a function from their coordinates to numbers. Order and strides belong to the
 * boundary records (ir_port) of inputs and outputs, never to a value. So transpose, permute,
 * broadcast, head split and merge produce no term: they only change which tuple of atoms stands
 * for which positional dim. An extent of 1 has no atom; what has extent 0 is folded when a program
 * is imported and never becomes a term (an output with extent 0 is a port without a term).
 *
 * A pointwise operator aligns its operands by atom: D(op(x, y)) = D(x) u D(y); an operand that
 * lacks an atom is constant along it. `matmul` sums the product over the atoms :axis,
 * D = (D(a) u D(b)) \ axis. Operators are rows of ops.def, reducers rows of reducers.def.
 *
 * Tiled forms cut values along parallel axes. An axis cuts one atom and is named by it, so a set of
 * axes is an ir_atoms too. A value with the axes A is a function from their coordinates to arrays
 * over D, and the paper's states follow: an axis of A is a *partition* when its atom is in D,
 * *partial* (a contribution that a reduction over the axis must combine) when it is not, and what
 * is not in A is *replicate*. Tile counts are not part of a program; the last tiles may be short or
 * empty. Operators: rows of tiled.def. A program whose ports and terms have no axes is a tensor
 * program and never meets any of this.
 *
 * A program owns everything it refers to through its arena. Terms are ids; equal (operator,
 * attributes, operands) is the same id; operands come before their users, so ascending id is a
 * topological order. Nothing here is thread-safe while a program is being built.
 *
 * Constructors check types and throw EQF_E_TYPE with the operator's name; ir_verify re-checks a
 * whole program without trusting them.                              (paper §3; types in docs/) */
#ifndef EQF_IR_H
#define EQF_IR_H

#include "base/base.h"

typedef struct ir_atom {
    u32 i; /* 0: none (an extent of 1) */
} ir_atom;
typedef struct ir_term {
    u32 i; /* 0: none */
} ir_term;
typedef struct ir_atoms {
    const ir_atom *at;
    i64 n;
} ir_atoms;
typedef struct ir_ints {
    const i64 *at;
    i64 n;
} ir_ints;

typedef enum ir_op {
    IR_NO_OP,
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc) IR_##name,
#include "ir/ops.def"
#undef OP
#define TILED(name, text, arity, flags, doc) IR_##name,
#include "ir/tiled.def"
#undef TILED
    IR_OP_COUNT
} ir_op;

typedef enum ir_class {
    IR_LEAF,
    IR_EWISE,
    IR_REDUCE,
    IR_MATMUL,
    IR_INDEX,
    IR_GATHER,
    IR_PLAIN,
    IR_OPAQUE,
    IR_TILED
} ir_class;

/* What a term stands for. Only values have a type and can be operands of ordinary operators. */
typedef enum ir_kind {
    IR_A_VALUE,
    IR_A_COMPONENT, /* comp: one accumulator of a loop; dtype, dims and axes are its body's */
    IR_A_BUNDLE,    /* loop: its components side by side; the axes are those outside the loop */
    IR_A_TUPLE,
    IR_A_LAMBDA,
    IR_A_REDUCER
} ir_kind;
ir_kind ir_kind_of(ir_op op);

typedef enum ir_rule {
    IR_SAME,
    IR_FLOAT,
    IR_INTEGER,
    IR_LOGIC,
    IR_COMPARE,
    IR_BOOLEAN,
    IR_TEST,
    IR_SELECT,
    IR_OWN
} ir_rule;

enum { /* flags of ops.def */
       IR_COMM = 1,
       IR_ASSOC = 2,
       IR_UNIT0 = 4,
       IR_UNIT1 = 8,
       IR_MONOTONE = 16,
       IR_LINEAR = 32,
       IR_IDEMPOTENT = 64
};

typedef enum ir_reducer {
    IR_NO_REDUCER,
#define REDUCER(name, text, f, i, idf, idi, doc) IR_##name,
#include "ir/reducers.def"
#undef REDUCER
    IR_REDUCER_COUNT
} ir_reducer;

typedef struct ir_op_row {
    const char *name;
    i8 arity; /* -1: any */
    u8 class_, rule;
    bool on_float, on_int; /* has a value there */
    u32 flags;
    const char *f64_text, *i64_text; /* the scalar columns as text, for backends and docs */
    const char *doc;
} ir_op_row;
const ir_op_row *ir_row(ir_op op);
/* IR_NO_OP when there is none. */
ir_op ir_op_find(const char *name);
const char *ir_reducer_text(ir_reducer r);
ir_reducer ir_reducer_find(const char *text);
f64 ir_reducer_identity_f64(ir_reducer r);
/* Clamped to the range of an integer dtype. */
i64 ir_reducer_identity_i64(ir_reducer r, dtype t);

/* What an operator carries besides operands; unused fields are zero. Per operator:
 *   in       name                        const    dtype, and f (floats) or i (integers, bool)
 *   iota     axis = (K)                  cast     dtype
 *   reduce   reducer, and axis or par (a set, sorted by atom id)
 *   matmul, tile_matmul   axis (a set)
 *   rename   axis, to (same length)      expand   to (a set)
 *   slice    axis = (K), to, ints = (start, step of each `to`)
 *   concat   axis = one atom (or none) an operand, to = (K)
 *   reshape  axis, to (row-major)
 *   gather   axis = one atom an index    scatter  axis, reducer or IR_NO_REDUCER
 *   argsort  axis = (K), to = (R) (|R| <= |K|; none: the first), ints = (descending)
 *   scan     axis = (K), reducer
 *   opaque   name, dtype, to = its atoms, ints = (result number)
 *   view, comb, run   par               collection  par = (p), to = (K)
 *   splitdim axis = (K), to = (outer, inner)
 *   comp     reducer, operands: body; or body, transport, producers
 *            no reducer, ints = (result number), operands: reducer term, leaves
 *   loop     par; with a visit list also to = the outer atoms (a set) and ints, a range after the
 *            other: low bound, its factor of each outer atom, high bound, its factors
 *   formal   dtype, to = its atoms, i = its number
 *   lambda   ints = (how many operands are the formals; the others are results)
 *   reducer  ints = (1: update takes the number of live positions) */
typedef struct ir_attr {
    u8 dtype, reducer;
    u32 name;
    i64 i;
    f64 f;
    ir_atoms axis, to;
    ir_ints ints;
    ir_atoms par; /* axes, a set */
} ir_attr;

typedef struct ir_terms {
    const ir_term *at;
    i64 n;
} ir_terms;

typedef struct ir_node {
    u16 op;
    u8 dtype; /* of the result */
    ir_attr attr;
    const ir_term *args;
    i64 arg_count;
    ir_atoms dims; /* the set D, sorted by atom id */
    u32 origin;    /* interned: the source node it came from, for messages; not part of equality */
    ir_atoms axes; /* the set A */
    ir_terms
        runs;     /* `run` terms below it whose loop is not: it has a value only inside that loop */
    bool is_open; /* a formal parameter is below it: it has a value only inside a lambda */
} ir_node;

/* ---- programs ------------------------------------------------------------------------------ */

typedef enum ir_role { IR_INPUT, IR_PARAMETER, IR_BUFFER, IR_CONSTANT } ir_role;

/* One positional dim at the boundary: an ordered product of atoms (row-major), or an extent of 1
 * or 0 without atoms. */
typedef struct ir_dim {
    i64 extent;
    ir_atoms atoms;
} ir_dim;

typedef struct ir_port {
    u32 name; /* interned */
    u8 role;  /* inputs */
    u8 dtype;
    i64 rank;
    const ir_dim *dims;
    /* Inputs: the `in` term, none when it has extent 0. Outputs: the value; none when extent 0.
     * An output may lack atoms of its dims: it is repeated along them. */
    ir_term term;
    /* Outputs: index+1 of the input that this output replaces for the next run (a mutated buffer
     * or input); 0 for an ordinary result. */
    i64 writes;
    const char *const *symbols; /* per dim the symbolic size's name or NULL; may be NULL */
    u32 key;                    /* inputs that have stored data: interned name to read it by */
    bool is_constant; /* inputs: the same in every run, so what depends on nothing else may be
                       * computed once; inputs of the role IR_CONSTANT are anyway */
} ir_port;

/* Reads the data of input port `i` as a dense row-major tensor in its dtype; throws EQF_E_DATA when
 * there is none. `map` gives it where it lies in a file, as long as the program lives, or NULL when
 * it can only be read. */
typedef struct ir_source {
    void (*read)(void *user, eqf_ctx *ctx, i64 i, void *out);
    const void *(*map)(void *user, eqf_ctx *ctx, i64 i);
    void *user;
} ir_source;

typedef struct ir_atom_info {
    u32 name;
    i64 extent;
    u32 split; /* index + 1 of the split that it is a part of; 0: none */
} ir_atom_info;

/* Position k of `whole` is (k / |inner|, k mod |inner|). |outer| * |inner| >= |whole|: lanes past
 * the end are dead. Wherever a value has both parts (or parts of parts), what it holds in dead
 * lanes means nothing, and every reduction sees its identity there. */
typedef struct ir_split {
    ir_atom whole, outer, inner;
} ir_split;

/* What a name stands for, indexed by its interned id; 0: nothing. */
typedef struct ir_name_info {
    u32 atom, input, output; /* input, output: index + 1 */
    u32 suffix;              /* last one tried to make the name of an atom unique */
} ir_name_info;

typedef struct ir_program {
    arena *a;
    eqf_ctx *ctx;
    intern *names;
    const char *file; /* for messages */
    u32 name;
    VEC(ir_atom_info) atoms; /* [0] unused */
    VEC(ir_node) nodes;      /* [0] unused */
    VEC(ir_port) inputs, outputs;
    VEC(u32) preconditions; /* interned text: what the package assumes about its inputs */
    ir_source source;
    u32 *slots; /* hash-cons */
    i64 slot_count;
    u32 origin; /* stamped on new nodes */
    VEC(ir_name_info) by_name;
    VEC(ir_split) splits;
} ir_program;

ir_program *ir_program_new(arena *a, const char *file, const char *name);
/* Extent >= 2. The name is made unique with a numeric suffix when it is taken; NULL: `dN`. */
ir_atom ir_atom_new(ir_program *p, const char *name, i64 extent);
const char *ir_atom_name(const ir_program *p, ir_atom d);
/* None when no atom has this interned name. */
ir_atom ir_atom_find(const ir_program *p, u32 name);
/* Index of the input port of this interned name, -1 when there is none. */
i64 ir_input_find(const ir_program *p, u32 name);
i64 ir_extent(const ir_program *p, ir_atom d); /* 1 for none */
const ir_node *ir_get(const ir_program *p, ir_term t);
bool ir_has(ir_atoms set, ir_atom d);
/* Sorted set operations, allocated in the program. */
ir_atoms ir_atoms_union(ir_program *p, ir_atoms a, ir_atoms b);
ir_atoms ir_atoms_minus(ir_program *p, ir_atoms a, ir_atoms b);
ir_atoms ir_atoms_set(ir_program *p, const ir_atom *at, i64 n); /* sorts; throws on duplicates */

/* The general constructor: computes dtype and dims, checks everything, hash-conses. */
ir_term ir_make(ir_program *p, ir_op op, ir_attr attr, const ir_term *args, i64 arg_count);
/* Short forms. */
ir_term ir_f(ir_program *p, dtype t, f64 value); /* constant of a float dtype */
ir_term ir_i(ir_program *p, dtype t, i64 value); /* constant of an integer dtype or bool */
ir_term ir_iota(ir_program *p, ir_atom k);
ir_term ir_cast(ir_program *p, dtype t, ir_term x); /* x itself when it has the dtype */
ir_term ir_1(ir_program *p, ir_op op, ir_term a);
ir_term ir_2(ir_program *p, ir_op op, ir_term a, ir_term b);
ir_term ir_where(ir_program *p, ir_term cond, ir_term then, ir_term other);
/* An empty axis gives x itself. Axis atoms that x lacks: x repeated |K| times is reduced. */
ir_term ir_reduce(ir_program *p, ir_reducer r, ir_term x, ir_atoms axis);
/* Axis atoms that both lack multiply by their extent. An empty axis gives the product. */
ir_term ir_matmul(ir_program *p, ir_term a, ir_term b, ir_atoms axis);
/* Mapping entries whose atom x lacks are dropped. */
ir_term ir_rename(ir_program *p, ir_term x, ir_atoms from, ir_atoms to);
ir_term ir_slice(ir_program *p, ir_term x, ir_atom k, i64 start, ir_atoms to, const i64 *steps);

/* Makes `in` for a port (dims decide its atoms) and appends it; returns its index. */
i64 ir_add_input(ir_program *p, ir_port port);
void ir_add_output(ir_program *p, ir_port port);

/* ---- tiled forms (tile.c, lambda.c, live.c) ---------------------------------------------------
 */

typedef enum ir_state { IR_REPLICATE, IR_PARTITION, IR_PARTIAL } ir_state;
ir_state ir_state_of(const ir_program *p, ir_term t, ir_atom axis);
/* Axes of which the term is a partition, or partial; a fresh set. */
ir_atoms ir_axes_in(ir_program *p, ir_term t, ir_state state);
/* Axes that any term of the program names. */
ir_atoms ir_all_axes(ir_program *p);

/* Axes whose atom x lacks are dropped, a view of a view is one view, of nothing x itself. */
ir_term ir_view(ir_program *p, ir_term x, ir_atoms axes);
/* An empty set gives x itself. */
ir_term ir_comb(ir_program *p, ir_term x, ir_atoms axes);
ir_term ir_tile_matmul(ir_program *p, ir_term a, ir_term b, ir_atoms axis);
ir_term ir_reduce_par(ir_program *p, ir_reducer r, ir_term x, ir_atoms axes);
/* Declares that `outer` and `inner`, declared after `whole` and parts of nothing else, split it. */
void ir_split_new(ir_program *p, ir_atom whole, ir_atom outer, ir_atom inner);
/* NULL when the atom is part of no split. */
const ir_split *ir_split_of(const ir_program *p, ir_atom part);
bool ir_is_ragged(const ir_program *p, ir_atom part);
/* x itself when it lacks the atom. */
ir_term ir_splitdim(ir_program *p, ir_term x, ir_atom outer, ir_atom inner);

/* An affine function of the positions along some atoms: constant + sum of factor * position. */
typedef struct ir_affine {
    i64 constant;
    const i64 *factors;
    ir_atoms atoms;
} ir_affine;
/* Positions low <= k < high of an atom. */
typedef struct ir_range {
    ir_affine low, high;
} ir_range;
/* Where a mask may hold along an atom: inside the union of the ranges (and of the atom). With
 * `is_exact` it holds nowhere else; without, it may be false inside. */
typedef struct ir_live_set {
    const ir_range *at;
    i64 n;
    bool is_exact;
} ir_live_set;
/* `mask`: a bool term. It is read as comparisons, `and`, `or` and `not` of integer affine functions
 * of `iota`; what is neither restricts nothing. Allocated in `a`. */
ir_live_set ir_live(arena *a, const ir_program *p, ir_term mask, ir_atom along);

/* One accumulator of a loop: combines `body` over the loop's axes. */
ir_term ir_comp(ir_program *p, ir_reducer r, ir_term body);
/* `body` contains runs of the producers; whenever their results go from s to s', what was
 * accumulated becomes transport(c, s_1 .. s_n, s'_1 .. s'_n). */
ir_term ir_comp_rolled(ir_program *p, ir_reducer r, ir_term body, ir_term transport,
                       const ir_term *producers, i64 n);
/* Result `result` of a reducer term over leaves; components of one reducer over the same leaves
 * share their state. */
ir_term ir_comp_reducer(ir_program *p, ir_term reducer, const ir_term *leaves, i64 n, i64 result);
/* A bundle. Components are a set: sorted, each once. `visit`, for one axis, may be NULL: only tiles
 * that meet the live set are visited, the bounds taken over the tiles of the outer atoms. */
ir_term ir_loop(ir_program *p, ir_atoms axes, const ir_term *comps, i64 n,
                const ir_live_set *visit);
/* The component's result after the loop; or a member of a tuple. */
ir_term ir_get_from(ir_program *p, ir_term bundle, ir_term comp);
/* Inside a component of the loop over `axes` that holds `comp` too: comp's result so far, this tile
 * included. A snapshot, the same for the whole tile: it has no axis of the loop. */
ir_term ir_run(ir_program *p, ir_term comp, ir_atoms axes);
/* The visit list of a loop, in `a`; n = 0 and exact: there is none. */
ir_live_set ir_visits(arena *a, const ir_program *p, ir_term loop);

/* Lambdas. A formal parameter is a leaf with a number, dtype and dims; a lambda's results are
 * closed terms over its formals: no inputs, no axes. Atoms that are cut where it is applied stand
 * for one tile's positions. `iota` still
 * counts those of the whole atom. Equal lambdas are one term. */
ir_term ir_formal(ir_program *p, i64 number, dtype t, ir_atoms dims);
ir_term ir_lambda(ir_program *p, const ir_term *formals, i64 n, const ir_term *results, i64 count);
/* Results of a lambda, formals replaced by `args` of the same types. */
void ir_apply(ir_program *p, ir_term lambda, const ir_term *args, i64 n, ir_term *results);
/* A program as a lambda: its input port i is formals[position[i]], its outputs are the results. Its
 * atoms are those of p that have the same name; extents must agree. */
ir_term ir_lambda_of(ir_program *p, const ir_program *body, const ir_term *formals, i64 n,
                     const i64 *position);
/* A reducer: identity() -> state, update(state, lanes?, leaves) -> state, final(state, leaves) ->
 * results, merge(state, state, leaves) -> state or none. `lanes`, a float without dims, is how many
 * positions of the loop's axes are live in the tile. Leaves that vary with the loop are for update
 * alone. A tile without live positions is left out. */
ir_term ir_reducer_of(ir_program *p, bool has_lanes, ir_term identity, ir_term update,
                      ir_term final, ir_term merge);
i64 ir_formal_count(const ir_program *p, ir_term lambda);
i64 ir_result_count(const ir_program *p, ir_term lambda);
ir_term ir_result(const ir_program *p, ir_term lambda, i64 i);

/* For each term, whether it depends on nothing but constants, `constant` inputs, inputs marked
 * is_constant and, with `parameters`, parameters. Allocated in `a`, indexed by term. */
bool *ir_constant_terms(arena *a, const ir_program *p, bool parameters);

/* ---- how values lie in memory (memory_dtype.c) ----------------------------------------------- */

/* By term, the dtype in which it lies if it is in memory: its own, or a half type that it was widened
 * from, or that its only reader rounds it to. A cast whose operand lies as it does itself moves
 * nothing. Allocated in `a`. */
const u8 *ir_memory_dtypes(arena *a, const ir_program *p);

/* ---- copies (copy.c) ------------------------------------------------------------------------ */

/* Terms of one program in another. An atom without a place in `atoms` gets a new one there, parts of
 * a split with their whole; a term that has a place in `terms` stays what that says. */
typedef struct ir_copy {
    arena *a; /* of the two lists */
    ir_program *to;
    const ir_program *from;
    ir_atom *atoms; /* by atom of `from` */
    ir_term *terms; /* by term of `from` */
    bool keeps_names; /* of atoms; else new ones are dN */
} ir_copy;
ir_copy ir_copy_new(arena *scratch, ir_program *to, const ir_program *from);
ir_atom ir_copy_atom(ir_copy *c, ir_atom d);
ir_atoms ir_copy_atoms(ir_copy *c, ir_atoms list);
/* Everything but its term. */
ir_port ir_copy_port(ir_copy *c, const ir_port *port);
/* A port for the value of a term of `from`, dims in their order; without a term. Dims are in `a`. */
ir_port ir_copy_value_port(ir_copy *c, const char *name, u32 term);
/* Input i as a port of `to`; its index there. */
i64 ir_copy_input(ir_copy *c, i64 i);
/* Where data comes from, and preconditions. */
void ir_copy_assumptions(ir_copy *c);
/* Node k over other operands, which are terms of `to`. */
ir_term ir_copy_node(ir_copy *c, u32 k, const ir_term *args);
/* Terms with what they need, in the order of `from`. */
void ir_copy_terms(ir_copy *c, const u32 *roots, i64 count);
/* What the outputs need. */
void ir_copy_outputs(ir_copy *c);

/* ---- canonical form ------------------------------------------------------------------------- */

/* A copy that keeps only what outputs need, atoms and terms renumbered in an order that does not
 * depend on how the program was built: atoms named by first appearance at the ports, operands of
 * commutative operators sorted, nodes in depth-first order of the outputs. Input ports all stay.
 * Two programs that differ only in construction order, names of atoms or origins come out equal
 * text. The result is in arena `a`. */
ir_program *ir_canonical(arena *a, const ir_program *p);

/* ---- text (read.c, print.c) ---------------------------------------------------------------- */

/* Reads the only `program` form of an .eqf file. Throws EQF_E_PARSE / EQF_E_TYPE with line:column.
 * Parameters without data get a source that throws EQF_E_DATA. */
ir_program *ir_read(arena *a, const char *file, const char *text, i64 n);
void ir_print(str *out, const ir_program *p);
/* On one line, shared parts repeated; cut off with "..." when it gets deep or long. */
void ir_print_term(str *out, const ir_program *p, ir_term t);
/* dtype, dims and the state of each of the axes: `f32 {M N}, M partition, K partial, N replicate`.
 */
void ir_print_type(str *out, const ir_program *p, ir_term t, ir_atoms axes);

/* ---- verify, counts (verify.c, count.c) ------------------------------------------------------ */

/* Re-derives every type and checks every invariant of this header. Throws EQF_E_INTERNAL naming
 * `pass` and the node (its origin too); EQF_E_TYPE for a live term that has a type and yet no use:
 * an operator that is not linear on a partial value. */
void ir_verify(const ir_program *p, const char *pass);

/* Tiled forms count as if every axis had one tile. */
typedef struct ir_count {
    i64 flops; /* multiply-add is 2; a pointwise operator 1 an element */
    i64 bytes; /* every live input and every output once */
    i64 opaque_flops, op_count[IR_OP_COUNT];
} ir_count;
ir_count ir_count_program(const ir_program *p);
i64 ir_count_elements(const ir_program *p, ir_atoms dims);
i64 ir_node_flops(const ir_program *p, ir_term t);
/* Of what an operator carries besides operands; equal where it is. */
u64 ir_hash_attr(ir_op op, const ir_attr *x);

/* ---- the reference interpreter (eval.c) ------------------------------------------------------ */

typedef struct ir_eval_options {
    pool *threads; /* may be NULL */
    /* false: floats are f64 throughout, casts to narrower floats do not round (the oracle).
     * true: every operator rounds its result to its dtype, as eager PyTorch stores it. */
    bool round;
    const volatile bool *cancel; /* may be NULL; polled: EQF_E_INTERRUPTED */
    const i64 *tiles;            /* by atom: tiles of its axis, at least 1; NULL: one of each */
    /* 0: reductions over axes go tile by tile in order. Otherwise a seed: tiles are cut into
     * groups, whose states are merged in an order that the seed decides. */
    u64 association;
    /* 0: none. Otherwise a seed: every sum of floats goes astray by a random amount, up to the square
     * root of its length in last digits, as sums that are rounded on their way do in another order. */
    u64 stray;
} ir_eval_options;
/* inputs: one tensor a port, dense row-major in the port's dtype (or f64 for a float port); one
 * without data is read from the program's source, and so are all when `inputs` is NULL.
 * outputs: shape and data are allocated in `out`; floats come back as f64 tensors, integers as i64,
 * bools as bool. An index out of range throws EQF_E_DATA naming the node. Opaque operators throw
 * EQF_E_UNSUPPORTED. */
void ir_eval(const ir_program *p, const tensor *inputs, arena *out, tensor *outputs,
             ir_eval_options options);

#endif
