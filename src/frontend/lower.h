/* lower: what the files of the lowering share. Nothing outside src/frontend includes this.
 *
 * A value of the source graph is an `fe_tensor`: a draft term and, for each positional dim, an
 * ordered tuple of dim variables. Views change tuples only. Operators align tuples: two variables
 * that meet become one (union-find) unless some value holds both apart, then one operand is
 * renamed; a variable that meets a tuple is split, everywhere at once. When all nodes are read,
 * variables that are left become the atoms of the program and draft terms become its terms.
 *
 *   dims.c      variables: unify, split, pin, what must stay apart
 *   draft.c     draft terms, and their resolution into an ir_program
 *   tensor.c    broadcasting operators on fe_tensors: pointwise, products, reductions
 *   view.c      reshape, permute, expand, slice, concat
 *   lower.c     nodes to calls, results checked against the file; regions
 *   call.c      arguments by schema, numbers, promotion, declining
 *   lower_*.c   one function for each kind of ATen operator (rows of aten.def)
 *   autocast.c  regions that cast operands implicitly
 *   functionalize.c   in-place operators and the views they write through
 *   masks.c     constant masks as predicates, by their content
 *   normalize.c local identities that give one idiom one spelling
 *   read.c      symbols, inputs, outputs, preconditions: fe_read */
#ifndef EQF_FRONTEND_LOWER_H
#define EQF_FRONTEND_LOWER_H

#include "frontend/frontend.h"
#include "frontend/pt2.h"
#include "ir/ir.h"

typedef struct fe_lower fe_lower;
typedef struct fe_call fe_call;

/* A list of dim variables; what is in it may have been split or unified since: see fe_flat. */
typedef struct fe_vars {
    const u32 *at;
    i64 n;
} fe_vars;

/* One positional dim: no variables when the extent is 1 or 0. */
typedef struct fe_dim {
    i64 extent;
    fe_vars vars;
} fe_dim;

/* Immutable. `term` 0: the tensor has no elements. */
typedef struct fe_tensor {
    u32 term;
    u8 dtype;
    bool is_number;  /* a scalar of the source program: weak in type promotion */
    bool is_foreign; /* of a dtype that the IR lacks; `dtype` merely stands in */
    bool is_exact;   /* foreign, but `dtype` holds its very values: u8 in i32 */
    i64 rank;
    const fe_dim *dims;
} fe_tensor;

enum { FE_MAX_RANK = 64 };

/* A number argument. */
typedef struct fe_scalar {
    u8 kind; /* DK_BOOL, DK_INT or DK_FLOAT */
    i64 i;
    f64 f; /* the value as a real, whatever the kind */
} fe_scalar;

/* ---- dims.c -------------------------------------------------------------------------------- */

typedef struct fe_space fe_space;
fe_space *fe_space_new(arena *a);
/* A variable of extent >= 2. */
u32 fe_var_new(fe_space *s, i64 extent);
i64 fe_var_extent(const fe_space *s, u32 v);
/* The leaves that `vars` stand for now, in order. */
fe_vars fe_flat(fe_space *s, fe_vars vars);
/* Makes two leaves one; false when some value holds them apart or one factor is pinned apart. */
bool fe_unify(fe_space *s, u32 a, u32 b);
/* `v` becomes an ordered product; false when it is pinned. The extents multiply to its own. */
bool fe_split(fe_space *s, u32 v, const i64 *extents, i64 n);
bool fe_is_pinned(fe_space *s, u32 v);
/* Not to be split from now on: one term more that needs it whole. */
void fe_pin(fe_space *s, u32 v);
/* One term less: it has gone unread. */
void fe_unpin(fe_space *s, u32 v);
/* Whatever splits one splits the other. */
void fe_link(fe_space *s, u32 a, u32 b);
/* The leaves of `vars` stay pairwise different. */
void fe_keep_apart(fe_space *s, fe_vars vars);

/* ---- draft.c ------------------------------------------------------------------------------- */

typedef struct fe_draft {
    u16 op;
    u8 dtype, reducer;
    u32 name; /* interned in the program */
    i64 i;
    f64 f;
    fe_vars axis, to;
    ir_ints ints;
    const u32 *args;
    i64 arg_count;
    fe_vars dims; /* what the term varies with */
    u32 origin;
    bool is_bytes; /* its values are known to be those of u8 */
} fe_draft;

/* Appends a draft; computes its dims; marks them as apart. */
u32 fe_draft_new(fe_lower *l, fe_draft d);
fe_vars fe_draft_dims(fe_lower *l, u32 term);
bool fe_draft_has(fe_lower *l, u32 term, u32 var);
/* Drafts to terms: resolves what `roots` need. terms[draft] is filled for those. */
void fe_resolve(fe_lower *l, const u32 *roots, i64 n, ir_term *terms);
/* The atoms of a tuple, once everything is resolved. */
ir_atoms fe_atoms(fe_lower *l, fe_vars vars);

/* ---- bytes.c ------------------------------------------------------------------------------- */

/* A value of u8 that may have left 0 … 255, modulo 256. */
fe_tensor *fe_as_bytes(fe_lower *l, fe_tensor *t);

/* ---- tensor.c: all shapes and dtypes are the caller's business unless said otherwise ------- */

fe_tensor *fe_tensor_new(fe_lower *l, u32 term, u8 dtype, i64 rank, const fe_dim *dims);
fe_dim fe_dim_new(fe_lower *l, i64 extent); /* a fresh variable for an extent above 1 */
bool fe_is_empty(const fe_tensor *x);
i64 fe_count(fe_lower *l, const fe_tensor *x);
fe_tensor *fe_num(fe_lower *l, u8 dtype, f64 value);
fe_tensor *fe_int(fe_lower *l, u8 dtype, i64 value);
fe_tensor *fe_full(fe_lower *l, u8 dtype, fe_scalar value, i64 rank, const i64 *sizes);
/* The constant `value` with the dims of x. */
fe_tensor *fe_fill_like(fe_lower *l, const fe_tensor *x, const fe_tensor *value);
fe_tensor *fe_iota(fe_lower *l, i64 n);
fe_tensor *fe_cast(fe_lower *l, u8 dtype, const fe_tensor *x);
/* Operands broadcast from the right; they must have the dtypes that the operator's row wants. */
fe_tensor *fe_op1(fe_lower *l, ir_op op, const fe_tensor *x);
fe_tensor *fe_op2(fe_lower *l, ir_op op, const fe_tensor *x, const fe_tensor *y);
fe_tensor *fe_op2n(fe_lower *l, ir_op op, const fe_tensor *x, f64 number); /* number in x's dtype */
fe_tensor *fe_where(fe_lower *l, const fe_tensor *c, const fe_tensor *x, const fe_tensor *y);
/* Over the dims whose bit is set. */
fe_tensor *fe_reduce(fe_lower *l, ir_reducer r, const fe_tensor *x, u64 dims, bool keep);
/* The mean over dims; x is a float. Empty: NaN. */
fe_tensor *fe_mean(fe_lower *l, const fe_tensor *x, u64 dims, bool keep);
/* Einstein product. Labels are 0 … 63, one per dim; out lists the labels of the result. Labels in
 * one operand only and not in `out` are summed. */
fe_tensor *fe_contract(fe_lower *l, const fe_tensor *a, const i8 *la, const fe_tensor *b,
                       const i8 *lb, const i8 *out, i64 n_out);
/* torch.matmul on operands of one dtype. */
fe_tensor *fe_matmul(fe_lower *l, const fe_tensor *a, const fe_tensor *b);
/* Makes operands agree on their variables: operand i has labels[i][d] for its dim d; equal labels
 * become equal tuples, different labels disjoint ones. -1: a dim of this operand alone, kept
 * disjoint from all labels. xs[] is replaced; out[label] gets the dim. is_symmetric: whichever
 * operand is cheaper is renamed; otherwise the later one. */
void fe_align(fe_lower *l, fe_tensor **xs, const i8 *const *labels, i64 n, fe_dim out[64],
              bool is_symmetric);
/* Broadcast shape of operands; declines when they do not fit. Returns the rank. */
i64 fe_broadcast(fe_lower *l, fe_tensor *const *xs, i64 n, i64 sizes[FE_MAX_RANK]);
/* All operands with the same, broadcast dims (terms aligned); replaced in place. */
void fe_broadcast_all(fe_lower *l, fe_tensor **xs, i64 n);

/* ---- view.c -------------------------------------------------------------------------------- */

fe_tensor *fe_view(fe_lower *l, const fe_tensor *x, i64 rank, const i64 *sizes);
fe_tensor *fe_permute(fe_lower *l, const fe_tensor *x, const i64 *order);
fe_tensor *fe_transpose(fe_lower *l, const fe_tensor *x, i64 a, i64 b);
fe_tensor *fe_expand(fe_lower *l, const fe_tensor *x, i64 rank, const i64 *sizes);
fe_tensor *fe_unsqueeze(fe_lower *l, const fe_tensor *x, i64 d);
fe_tensor *fe_drop(fe_lower *l, const fe_tensor *x, u64 unit_dims);
fe_tensor *fe_flatten(fe_lower *l, const fe_tensor *x, i64 first, i64 last);
/* Elements start, start + step … (n of them) of dim d. */
fe_tensor *fe_slice(fe_lower *l, const fe_tensor *x, i64 d, i64 start, i64 n, i64 step);
fe_tensor *fe_select(fe_lower *l, const fe_tensor *x, i64 d, i64 index);
fe_tensor *fe_cat(fe_lower *l, fe_tensor *const *xs, i64 n, i64 d);
fe_tensor *fe_diagonal(fe_lower *l, const fe_tensor *x, i64 offset, i64 d1, i64 d2);
/* Writes `part`, shaped as fe_diagonal gives it, over a diagonal. */
fe_tensor *fe_diagonal_write(fe_lower *l, const fe_tensor *x, const fe_tensor *part, i64 offset,
                             i64 d1, i64 d2);
fe_tensor *fe_flip(fe_lower *l, const fe_tensor *x, i64 d);
fe_tensor *fe_pad(fe_lower *l, const fe_tensor *x, i64 d, i64 before, i64 after,
                  const fe_tensor *value);
/* Dim d read at start + sum of steps[k] * (position of dim k), k < n: n dims in its place. All
 * positions lie within the dim. */
fe_tensor *fe_slice_by(fe_lower *l, const fe_tensor *x, i64 d, i64 start, i64 n, const i64 *sizes,
                       const i64 *steps);
fe_tensor *fe_unfold(fe_lower *l, const fe_tensor *x, i64 d, i64 size, i64 step);
/* x with its dim d repeated: each element n times (inner) or the whole n times. */
fe_tensor *fe_repeat_dim(fe_lower *l, const fe_tensor *x, i64 d, i64 n, bool is_inner);
/* The term of x varies with every variable of dim d, which is one pinned variable now. */
fe_tensor *fe_solid(fe_lower *l, const fe_tensor *x, i64 d);
/* The term of x varies with all its dims. */
fe_tensor *fe_spread(fe_lower *l, const fe_tensor *x);
/* Positions 0 … n-1 along dim d of x, of x's rank (extent 1 elsewhere), on x's own variables. */
fe_tensor *fe_positions(fe_lower *l, const fe_tensor *x, i64 d);
/* Writes `src` over n elements of dim d. */
fe_tensor *fe_slice_write(fe_lower *l, const fe_tensor *x, const fe_tensor *src, i64 d, i64 start,
                          i64 n, i64 step);

/* ---- known.c ------------------------------------------------------------------------------- */

/* x read along dim d at an index vector that the program fixes, as slices; NULL when the index is
 * not known or no few runs. */
fe_tensor *fe_read_known(fe_lower *l, const fe_tensor *x, i64 d, const fe_tensor *index);

/* ---- lower_index.c ------------------------------------------------------------------------- */

/* x with dims d[k] read at idx[k] (i64, all of one broadcast shape); the index dims come first,
 * then the others. */
fe_tensor *fe_gather(fe_lower *l, const fe_tensor *x, const i64 *d, fe_tensor *const *idx, i64 n);
/* torch.gather: idx has x's rank. */
fe_tensor *fe_take_along(fe_lower *l, const fe_tensor *x, i64 d, const fe_tensor *idx);
/* The vector x with src written at the positions idx (one shape). */
fe_tensor *fe_put(fe_lower *l, fe_tensor *x, fe_tensor *idx, fe_tensor *src);
/* Inclusive running reduction along dim d. */
fe_tensor *fe_scan(fe_lower *l, ir_reducer r, const fe_tensor *x, i64 d);
/* Positions of the first k elements along d, in order. */
fe_tensor *fe_argsort(fe_lower *l, const fe_tensor *x, i64 d, i64 k, bool descending);

/* ---- lower_pointwise.c, _reduce.c, _loss.c, _recurrent.c: what rows of aten.def say by `code` --- */

enum {
    FE_RELU,
    FE_RELU6,
    FE_SILU,
    FE_SOFTPLUS,
    FE_ELU,
    FE_LEAKY,
    FE_HARDTANH,
    FE_HARDSWISH,
    FE_HARDSIGMOID,
    FE_MISH,
    FE_LOGSIGMOID,
    FE_SELU,
    FE_CELU,
    FE_TANHSHRINK
};
enum { FE_LSTM, FE_GRU, FE_RNN_TANH, FE_RNN_RELU };
enum { FE_WANT_STD = 1, FE_WANT_MEAN = 2 };
enum { FE_MSE, FE_L1, FE_SMOOTH_L1, FE_HUBER, FE_HINGE, FE_TRIPLET, FE_KL };
/* from + w (to - from), all of one float dtype. */
fe_tensor *fe_lerp(fe_lower *l, fe_tensor *from, fe_tensor *to, fe_tensor *w);
u64 fe_all_dims(const fe_tensor *x);
fe_tensor *fe_widened(fe_lower *l, const fe_tensor *x); /* half types as f32 */
/* (sum |x|^p)^(1/p) over dims, p any of 0 … inf. */
fe_tensor *fe_vector_norm(fe_lower *l, const fe_tensor *x, f64 p, u64 dims, bool keep);
/* Over dim d; computed in x's dtype. */
fe_tensor *fe_softmax(fe_lower *l, const fe_tensor *x, i64 d, bool is_log);
/* As softmax, but rows of nothing but -inf give 0. */
fe_tensor *fe_safe_softmax(fe_lower *l, const fe_tensor *x, i64 d);

void fe_lower_same(fe_call *c); /* identity */

/* ---- call.c -------------------------------------------------------------------------------- */

typedef struct fe_slot fe_slot;
typedef struct fe_scope fe_scope;
typedef struct fe_row {
    const char *target;
    u8 tier;
    void (*lower)(fe_call *c);
    i64 code; /* an ir_op, a reducer, …: what `lower` makes of it */
    const char *schema;
} fe_row;

/* One operator call: arguments in the order of the row's schema. */
struct fe_call {
    fe_lower *l;
    const fe_node *node;
    const fe_row *row;
    fe_scope *scope;
    i64 n_args;
    const fe_arg **args;
    u8 operand_dtype;         /* what an autocast region casts operands to; none: nothing */
    VEC(fe_tensor *) results; /* a list result is flat */
};

/* The call is a boundary: no meaning here, for this reason. */
_Noreturn void fe_decline(fe_lower *l, const char *format, ...) PRINTF_LIKE(2, 3);
/* The call is malformed. */
_Noreturn void fe_fail(fe_lower *l, const char *format, ...) PRINTF_LIKE(2, 3);
/* The call has a meaning, and a plain kernel runs it: note it for `inspect`. */
void fe_note_plain(fe_lower *l, const char *what);

void fe_note_boundary(fe_lower *l, const fe_node *n, const char *reason, bool runs);
/* Fills c->args by the schema of c->row. */
void fe_bind_arguments(fe_call *c);
/* Result k with list results laid flat; NULL past the last. */
const fe_arg *fe_flat_output(const fe_node *n, i64 k);
/* The symbol in e whose value only a run knows, or NULL. */
const fe_symbol *fe_data_symbol(fe_lower *l, const fe_expr *e);
bool fe_has(const fe_call *c, i64 i); /* given and not None */
fe_tensor *fe_t(fe_call *c, i64 i);
fe_tensor *fe_t_opt(fe_call *c, i64 i);
fe_tensor **fe_ts(fe_call *c, i64 i, i64 *n); /* NULL entries for None */
i64 fe_i(fe_call *c, i64 i);
f64 fe_f(fe_call *c, i64 i);
bool fe_b(fe_call *c, i64 i);
const char *fe_s(fe_call *c, i64 i);
fe_scalar fe_sc(fe_call *c, i64 i);
u8 fe_dt(fe_call *c, i64 i, u8 otherwise);
i64 *fe_is(fe_call *c, i64 i, i64 *n);
/* Negative dims count from the end; a tensor of rank 0 has one dim for this purpose. */
i64 fe_axis(fe_call *c, const fe_tensor *x, i64 d);
i64 fe_axis_i(fe_call *c, const fe_tensor *x, i64 arg);
i64 fe_dim_i(fe_call *c, const fe_tensor *x, i64 arg); /* as above, and x has dims */
/* The dims an int list argument names; absent or empty: all. */
u64 fe_axes(fe_call *c, const fe_tensor *x, i64 arg);
void fe_ret(fe_call *c, fe_tensor *t);
/* dtype that the file gives result k. */
u8 fe_out_dtype(fe_call *c, i64 k);
/* Is result k read by anybody? */
bool fe_out_used(fe_call *c, i64 k);
/* The type that operands promote to. */
u8 fe_promote(fe_tensor *const *xs, i64 n);
fe_tensor *fe_scalar_tensor(fe_lower *l, fe_scalar s); /* weak, of its category's default dtype */
/* f32 for half types: what composites compute in. */
u8 fe_wide(u8 dtype);
u8 fe_dtype_of(u32 code); /* DT_NONE: the IR lacks it */
bool fe_is_half(u8 dtype);
/* A dtype for values of a code that the IR lacks. */
u8 fe_stand_in(u32 code);
/* Shape and dtype of a tensor value of a graph, with the sizes that are fixed. Returns the rank. */
i64 fe_value_sizes(fe_lower *l, const fe_value *v, i64 sizes[FE_MAX_RANK]);
i64 fe_eval(fe_lower *l, const fe_expr *e, const char *what);
fe_tensor *fe_arith(fe_lower *l, ir_op op, fe_tensor *a, fe_tensor *b); /* with promotion */

void fe_lower_graph(fe_lower *l, fe_scope *s);
fe_scope *fe_scope_new(fe_lower *l, const fe_graph *g);
fe_slot *fe_slot_of(fe_scope *s, fe_value_id v);

/* ---- functionalize.c ----------------------------------------------------------------------- */

/* What one value of a graph holds. A slot may be a view of another: `node` lowered on `parent`
 * gives it. A write goes up to the root; a read of any view of that root refreshes it. */
struct fe_slot {
    fe_tensor *t;
    bool is_set, is_number;
    fe_scalar number;
    fe_slot *parent;
    const fe_node *node;
    fe_scope *scope;
    i64 result;          /* which of the node's results */
    i64 version, writes; /* writes: counted at the root */
};
fe_tensor *fe_slot_read(fe_lower *l, fe_slot *s);
void fe_slot_write(fe_lower *l, fe_slot *s, fe_tensor *t);
/* Do the results of this call share memory with its first argument? As eager has it: a reshape
 * copies where strides demand it. */
bool fe_is_view(fe_lower *l, const fe_scope *s, const fe_node *n);
/* "aten.add_.Tensor" → the functional target "aten.add.Tensor"; NULL when it is no such name. */
const char *fe_functional_name(arena *a, const char *target);
/* Calls the functional form and writes its result to the first argument. */
void fe_lower_in_place(fe_lower *l, fe_scope *s, const fe_node *n, const char *target);

/* Lowers node n (target may differ from the node's) in scope s; results as tensors. */
fe_tensor **fe_lower_node(fe_lower *l, fe_scope *s, const fe_node *n, const char *target,
                          i64 *count);

/* ---- autocast.c ---------------------------------------------------------------------------- */

typedef struct fe_autocast {
    bool is_on, is_cuda;
    u8 dtype;
} fe_autocast;
/* What the region casts the float operands of this operator to; DT_NONE: nothing. */
u8 fe_autocast_dtype(const fe_autocast *region, const char *target);

/* ---- the state ----------------------------------------------------------------------------- */

struct fe_lower {
    arena *a;
    eqf_ctx *ctx;
    fe_program *source;
    ir_program *p;
    fe_space *space;
    VEC(fe_draft) drafts; /* [0] unused */
    VEC(ir_atom) atoms;   /* by variable: resolved */
    fe_call *call;
    jmp_buf *decline;
    const char *declined; /* the reason */
    i64 *symbol_values;
    bool *symbol_known;
    fe_env env;
    VEC(fe_boundary) boundaries;
    bool use_constants;
    fe_autocast autocast; /* the region that is being lowered */
    bool is_last_reader;  /* the call's first operand has no other */
    u8 in_place_dtype;    /* what the next call's first result is cast to; none: left alone */
    bool has_writes;      /* some node works in place: views must be tracked */
};

struct fe_scope {
    const fe_graph *graph;
    fe_slot *slots; /* by value id */
};

/* ---- masks.c ------------------------------------------------------------------------------- */

/* The tensor as a predicate of positions, on the dims of `in`; NULL when its content is no band. */
fe_tensor *fe_mask_of(fe_lower *l, const fe_tensor *in, const fe_weight *w);

/* ---- normalize.c --------------------------------------------------------------------------- */

/* Brings the program to normal form, in place: every rule of normalize.c is exhausted. */
void fe_normalize(ir_program *p);

#endif
