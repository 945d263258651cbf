/* pt2: a `torch.export` archive as a raw graph, before any operator gets a meaning.
 *
 * In: a file or its bytes. Out: an `fe_program` in the caller's arena: nodes with their ATen target
 * and arguments by name, values with dtype code and symbolic sizes, what each graph input and
 * output stands for, symbols, ranges, guards. All dialects of schema 8 (training, functional, core
 * form) come out alike; nothing here knows an operator. Weights stay in the archive: reading the
 * program touches no weight byte, `fe_weight_read` fetches one tensor when it is wanted.
 *
 * What a returned program guarantees, whatever the file was:
 *   - inputs and input specs, outputs and output specs pair up; every name is defined once per
 *     scope and before its use (so there are no cycles); sub-graphs nest at most 16 deep;
 *   - tensor values have rank <= 64, sizes >= 0 where constant, element counts below 2^63;
 *   - a weight's view lies inside its storage, or the weight is marked as absent;
 *   - all names and paths are one-line text of at most 4 KiB.
 * Everything else throws: EQF_E_NOT_OURS (a file of another kind), EQF_E_PARSE (malformed),
 * EQF_E_UNSUPPORTED (valid, but of a schema or a kind of value that we do not read), EQF_E_DATA
 * (weights absent or damaged), EQF_E_LIMIT, EQF_E_IO. The diagnostic's place is an archive member
 * (with line and column where there is one), a node, or the qualified name of a weight.
 *
 * Ownership: everything belongs to the arena given to fe_read_pt2, the open archive too; it is
 * closed when that arena is freed. */
#ifndef EQF_FRONTEND_PT2_H
#define EQF_FRONTEND_PT2_H

#include "base/base.h"

/* ---- symbolic numbers (srepr.c, guards.c) ------------------------------------------------- */

/* Shapes, ranges and guards are trees over this closed set. Meanings are Python's: FLOORDIV and
 * MOD round toward minus infinity, TRUEDIV gives a real, comparisons give 0 or 1. */
typedef enum fe_expr_op {
    FE_EXPR_INT,    /* i */
    FE_EXPR_REAL,   /* f */
    FE_EXPR_SYMBOL, /* program->symbols[symbol] */
    FE_EXPR_SIZE,   /* guards only: extent `i` of program->inputs[input] */
    FE_EXPR_VALUE,  /* guards only: the number passed as program->inputs[input] */
    FE_EXPR_ADD,    /* n >= 1 arguments */
    FE_EXPR_MUL,    /* n >= 1 */
    FE_EXPR_POW,    /* 2 */
    FE_EXPR_FLOORDIV,
    FE_EXPR_CEILDIV,
    FE_EXPR_MOD,
    FE_EXPR_TRUEDIV,
    FE_EXPR_MAX, /* n >= 1 */
    FE_EXPR_MIN, /* n >= 1 */
    FE_EXPR_NEG, /* 1 */
    FE_EXPR_ABS,
    FE_EXPR_FLOOR, /* real -> int */
    FE_EXPR_CEIL,
    FE_EXPR_TRUNC,
    FE_EXPR_TO_REAL,
    FE_EXPR_EQ, /* 2 */
    FE_EXPR_NE,
    FE_EXPR_LT,
    FE_EXPR_LE,
    FE_EXPR_GT,
    FE_EXPR_GE,
    FE_EXPR_AND, /* n >= 1 */
    FE_EXPR_OR,
    FE_EXPR_NOT,   /* 1 */
    FE_EXPR_WHERE, /* condition, then, else */
    FE_EXPR_OPAQUE /* a head we do not know: `text`; its uses become boundaries */
} fe_expr_op;

typedef struct fe_expr {
    u8 op;
    bool has_hint; /* `hint` is the value in the example that was exported */
    u32 symbol;    /* FE_EXPR_SYMBOL */
    u32 input;     /* FE_EXPR_SIZE, FE_EXPR_VALUE */
    u32 n;         /* arguments */
    i64 i;
    f64 f;
    i64 hint;
    const struct fe_expr **at;
    const char *text; /* as spelled in the file; "" below the top of an expression */
} fe_expr;

/* Result of an evaluation. */
typedef struct fe_number {
    bool is_real;
    i64 i; /* ints and truth values */
    f64 f; /* reals */
} fe_number;

/* What an evaluation may look up. A function may be NULL: such leaves have no value. */
typedef struct fe_env {
    void *user;
    bool (*symbol)(void *user, u32 symbol, i64 *out);
    bool (*size)(void *user, u32 input, i64 dim, i64 *out);
    bool (*value)(void *user, u32 input, fe_number *out);
} fe_env;

/* False, with *out untouched: a leaf without a value, an opaque head, a division by zero or a
 * result beyond 64 bits. */
bool fe_expr_eval(const fe_expr *e, const fe_env *env, fe_number *out);
/* As above, and the result is an integer (or a truth value, or a real without fraction). */
bool fe_expr_int(const fe_expr *e, const fe_env *env, i64 *out);

typedef struct fe_symbol {
    const char *name;     /* "s77"; "u0" depends on data */
    bool depends_on_data; /* a `u` symbol: boundary when live */
    bool has_hint;
    i64 hint;
} fe_symbol;

/* min <= expr <= max, from range_constraints. Open ends have has_* false. */
typedef struct fe_range {
    const char *text;
    const fe_expr *expr; /* NULL when the key has a form we do not know */
    bool has_min, has_max;
    i64 min, max;
} fe_range;

/* A precondition on the inputs, as the exporter wrote it. */
typedef struct fe_guard {
    const char *text;
    const fe_expr *expr; /* NULL when it has a form we do not know: report `text` */
} fe_guard;

typedef enum fe_guard_result { FE_GUARD_HOLDS, FE_GUARD_FAILS, FE_GUARD_UNKNOWN } fe_guard_result;
/* UNKNOWN: `expr` is NULL or has no value under `env`. */
fe_guard_result fe_guard_check(const fe_guard *g, const fe_env *env);

/* ---- graphs -------------------------------------------------------------------------------- */

/* dtype codes of the schema (not those of c10). Others may occur in `fe_value.dtype`. */
typedef enum fe_dtype {
    FE_U8 = 1,
    FE_I8 = 2,
    FE_I16 = 3,
    FE_I32 = 4,
    FE_I64 = 5,
    FE_F16 = 6,
    FE_F32 = 7,
    FE_F64 = 8,
    FE_C32 = 9,
    FE_C64 = 10,
    FE_C128 = 11,
    FE_BOOL = 12,
    FE_BF16 = 13,
    FE_U16 = 28,
    FE_F8_E4M3FN = 29,
    FE_F8_E5M2 = 30,
    FE_F8_E4M3FNUZ = 31,
    FE_F8_E5M2FNUZ = 32,
    FE_F8_E8M0FNU = 33,
    FE_U32 = 34,
    FE_U64 = 35
} fe_dtype;
/* "f32", "bf16", "f8_e4m3fn" …; NULL for a code that schema 8.20 does not define. */
const char *fe_dtype_name(u32 code);
/* Bytes of an element; 0 for an unknown code. */
i64 fe_dtype_bytes(u32 code);

/* A value of one graph: graph->values[id.i]. values[0] is reserved, so zero means "none". */
typedef struct fe_value_id {
    u32 i;
} fe_value_id;

typedef enum fe_value_kind {
    FE_VALUE_TENSOR = 1,
    FE_VALUE_INT, /* symbolic int: `number` */
    FE_VALUE_REAL,
    FE_VALUE_BOOL,
    FE_VALUE_OBJECT /* script object: no meaning here */
} fe_value_kind;

typedef struct fe_value {
    const char *name;
    u8 kind;
    u8 rank;
    u32 dtype;             /* fe_dtype of a tensor, or a code that we do not know */
    const fe_expr **sizes; /* rank entries; constants are FE_EXPR_INT */
    /* In elements, rank entries; NULL when the file gives none. They are those of eager's tensors,
     * so they say what shares memory with what, and nothing about values. */
    const fe_expr **strides;
    const fe_expr *offset; /* of the first element in its storage, where there are strides */
    const fe_expr *number; /* of a symbolic number; NULL when the file gives none */
    i64 node;              /* graph->nodes[node] computes it; -1: an input of the graph */
    i64 uses;              /* arguments of nodes and graph outputs that name it */
    /* Why no program may use it (unknown dtype, sparse layout), NULL for a good value. Throw it as
     * EQF_E_UNSUPPORTED at the node when the value is live. */
    const char *problem;
} fe_value;

typedef enum fe_arg_kind {
    FE_ARG_NONE,
    FE_ARG_TENSOR,        /* value */
    FE_ARG_SYM_INT,       /* value */
    FE_ARG_SYM_REAL,      /* value */
    FE_ARG_SYM_BOOL,      /* value */
    FE_ARG_INT,           /* i */
    FE_ARG_REAL,          /* f, non-finite too */
    FE_ARG_BOOL,          /* i: 0 or 1 */
    FE_ARG_STRING,        /* text */
    FE_ARG_COMPLEX,       /* f, imaginary */
    FE_ARG_DTYPE,         /* i: fe_dtype */
    FE_ARG_MEMORY_FORMAT, /* i: 1 contiguous, 2 channels_last, 3 channels_last_3d, 4 preserve */
    FE_ARG_LAYOUT,        /* i: 7 strided */
    FE_ARG_DEVICE,        /* text: "cpu", "cuda:0" */
    FE_ARG_GRAPH,         /* graph */
    FE_ARG_OPERATOR,      /* text: a target, as in fe_node */
    FE_ARG_OBJECT,        /* value: a script object */
    FE_ARG_LIST           /* n items. The items of an int list are INT or SYM_INT, those of a tensor
                           * list TENSOR or NONE; int and float lists of lists are LISTs of LISTs */
} fe_arg_kind;

typedef struct fe_arg {
    u8 kind;
    const char *name; /* "" in higher-order nodes, lists and outputs */
    union {
        fe_value_id value;
        i64 i;
        f64 f;
        const char *text;
        struct fe_graph *graph;
        const struct fe_arg *items;
    };
    union {
        i64 n; /* items of a list */
        f64 imaginary;
    };
} fe_arg;

typedef struct fe_node {
    const char *target; /* "aten.add.Tensor", "_operator.mul", "higher_order.cond" …:
                         * without "torch.ops." */
    const char *name;   /* for diagnostics; never empty */
    const char *source; /* "model.py:42", the first line of the stack trace; "" when unknown */
    const char *module; /* "layers.0.attn", innermost module; "" when unknown or the root */
    i64 n_inputs, n_outputs;
    const fe_arg *inputs;
    const fe_arg
        *outputs; /* one per result: TENSOR, SYM_*, NONE (undefined), or a LIST of TENSOR */
} fe_node;

typedef struct fe_graph {
    const char *name; /* "" for the program's own */
    i64 n_values, n_nodes, n_inputs, n_outputs;
    fe_value *values;
    const fe_node *nodes;
    const fe_arg *inputs; /* TENSOR, SYM_*, OBJECT, or a constant */
    const fe_arg *outputs;
} fe_graph;

/* ---- weights ------------------------------------------------------------------------------- */

typedef struct fe_weight {
    const char *fqn;
    u32 dtype;
    i64 rank;
    const i64 *sizes, *strides; /* in elements; strides may be 0 or transposed */
    i64 offset;                 /* in elements */
    i64 count;                  /* elements of the view */
    i64 bytes;                  /* count * size of an element: what fe_weight_read delivers */
    u32 storage;                /* equal for weights that share one record (ties, slices) */
    i64 storage_bytes;
    bool is_absent; /* exported without data: reading it is an error */
} fe_weight;

/* ---- the program --------------------------------------------------------------------------- */

typedef enum fe_input_kind {
    FE_IN_USER,      /* a tensor or a number that the caller passes */
    FE_IN_CONSTANT,  /* a constant argument: a precondition, nothing to pass (graph input: a
                        constant) */
    FE_IN_PARAMETER, /* weight */
    FE_IN_BUFFER,    /* weight; persistent or not */
    FE_IN_TENSOR     /* weight: a tensor constant */
} fe_input_kind;

typedef struct fe_input {
    u8 kind;
    bool is_persistent;      /* of a buffer */
    fe_arg arg;              /* graph->inputs[this] */
    const char *name;        /* user and constant inputs: the name for files and messages */
    const char *fqn;         /* parameters, buffers, tensor constants: their qualified name */
    const char *path;        /* user inputs: where it stands in the call: "x", "d['a']", "l[0]" */
    const fe_weight *weight; /* parameters, buffers, tensor constants; never NULL there */
} fe_input;

typedef enum fe_output_kind {
    FE_OUT_USER,
    FE_OUT_MUTATION /* the new value of program->inputs[target]: parameter, buffer or user input */
} fe_output_kind;

typedef struct fe_output {
    u8 kind;
    i64 target;       /* FE_OUT_MUTATION: index of the mutated input; else -1 */
    fe_arg arg;       /* graph->outputs[this]; NONE and STRING are no outputs of a package */
    const char *want; /* the name it asks for: its target's, a dict key, a field, "out3" */
    const char *name; /* the name it has after fe_name_outputs */
} fe_output;

/* Which of the exporter's dialects; see verifiers. */
typedef enum fe_form {
    FE_FORM_TRAINING,  /* composites, in-place operators, views alias; mutations not in the outputs
                        */
    FE_FORM_FUNCTIONAL /* after run_decompositions(); mutations are outputs */
} fe_form;

typedef struct fe_program {
    eqf_ctx *ctx;
    const char *file;  /* as given */
    const char *model; /* the chosen model's name */
    const char *torch_version;
    i64 schema_major, schema_minor;
    fe_form form;
    fe_graph *graph;
    i64 n_inputs, n_outputs; /* = those of the graph */
    fe_input *inputs;
    fe_output *outputs;
    i64 n_weights;
    const fe_weight *weights; /* of all configs, by order of the graph's inputs */
    i64 n_symbols, n_ranges, n_guards, n_notes;
    const fe_symbol *symbols;
    const fe_range *ranges;
    const fe_guard *guards;
    const char **notes; /* one-line remarks: a newer schema, an absent weight */
    struct fe_archive *archive;
} fe_program;

typedef struct fe_options {
    const char *model;  /* which of several; NULL: the only one */
    i64 max_json_bytes; /* 0: 256 MiB */
} fe_options;

/* Does the file start like a zip archive? 4 bytes are enough. */
bool fe_looks_like_zip(const void *head, i64 n);

/* Reads the program of the archive at `path` into `a`. options may be NULL. Throws. */
fe_program *fe_read_pt2(arena *a, const char *path, const fe_options *options);
/* As above for an archive in memory, which must outlive `a`. `file` appears in messages. */
fe_program *fe_read_pt2_bytes(arena *a, const char *file, const void *bytes, i64 n,
                              const fe_options *options);

/* The elements of `w` in row-major order, little-endian, into out[0, w->bytes). A record shared by
 * several weights is read once; the CRC of every record that is read is verified. Throws EQF_E_DATA
 * naming the weight when it is absent or damaged. */
void fe_weight_read(fe_program *p, const fe_weight *w, void *out);
/* The same bytes where they lie in the archive, valid as long as the program, their CRC verified;
 * NULL when they have to be read: compressed, strided, not aligned. */
const void *fe_weight_map(fe_program *p, const fe_weight *w);

/* The argument called `name`, or NULL. */
const fe_arg *fe_find_arg(const fe_node *n, const char *name);
/* Sets name from want for n outputs in order: a name already taken gets ".1", ".2" … */
void fe_name_outputs(arena *a, fe_output *outputs, i64 n);

/* Throws with the node's name as the place and its target in the text. */
_Noreturn void fe_throw_node(const fe_program *p, const fe_node *n, eqf_status status,
                             const char *format, ...) PRINTF_LIKE(4, 5);

#endif
