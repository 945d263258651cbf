/* EquiForge: read a tensor program, search its forms, optimize it into a package, load and run packages.
 *
 * Contexts. Every call takes an eqf_ctx (eqf_common.h), directly or through a handle made with it.
 * A context and the handles made with it belong to one thread at a time; distinct contexts may be
 * used on distinct threads without any locking. A handle is destroyed before its context.
 *
 * Failure. A call that does not return EQF_OK leaves at least one diagnostic in the context, sets
 * its result pointers to NULL and has no other effect. Diagnostics pile up until eqf_ctx_clear.
 *
 * Memory comes from the context's allocator, but for blocks of 2 MB and more (weights, scratch,
 * tensors), which are mapped from the system so that they can be huge pages.
 *
 * Ownership. Strings and arrays inside a result belong to the handle that the function names and
 * live as long as it. Nothing is ever freed by the caller except through the `_free` functions,
 * which accept NULL. What the caller passes in is borrowed for the call unless stated otherwise.
 *
 * Trust. A package is machine code: loading one is running it. Hashes find damage, not malice. */
#ifndef EQUIFORGE_H
#define EQUIFORGE_H

#include "eqf_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". */
const char *eqf_version(void);

/* ---- tensors -------------------------------------------------------------------------------- */

typedef enum eqf_dtype {
    EQF_NO_DTYPE,
    EQF_BOOL, /* one byte, 0 or 1 */
    EQF_I8,
    EQF_I32,
    EQF_I64,
    EQF_F16,
    EQF_BF16,
    EQF_F32,
    EQF_F64
} eqf_dtype;
/* "f32"; "none" for no dtype. */
const char *eqf_dtype_name(eqf_dtype dtype);
size_t eqf_dtype_size(eqf_dtype dtype);

/* A dense row-major tensor or, where `data` is NULL, the description of one. */
typedef struct eqf_tensor {
    const char *name;
    eqf_dtype dtype;
    size_t rank;
    const int64_t *shape;
    /* Per dim the symbolic size that stands there ("s0", or an expression of such) while it has no
     * value, or NULL where it is a number; the shape holds -1 then. NULL where all are numbers. */
    const char *const *symbols;
    size_t bytes;
    const void *data;
} eqf_tensor;

/* Tensors by name, in a fixed order. */
typedef struct eqf_tensors eqf_tensors;
/* Reads a .safetensors file; the data is mapped and lives as long as the handle. */
eqf_status eqf_tensors_read(eqf_ctx *ctx, const char *path, eqf_tensors **out);
void eqf_tensors_free(eqf_tensors *set);
size_t eqf_tensors_count(const eqf_tensors *set);
/* The i-th tensor, i < count; belongs to `set`. */
eqf_tensor eqf_tensors_get(const eqf_tensors *set, size_t i);
/* Index of the tensor called `name`, or -1. */
ptrdiff_t eqf_tensors_find(const eqf_tensors *set, const char *name);
/* Writes `count` tensors as a .safetensors file, in their order, replacing `path` atomically. */
eqf_status eqf_tensors_write(eqf_ctx *ctx, const char *path, const eqf_tensor *tensors,
                             size_t count);

/* ---- programs ------------------------------------------------------------------------------- */

/* A program as read from a .pt2 archive or an .eqf text. It keeps its file open. */
typedef struct eqf_program eqf_program;

/* Zeroed is the default everywhere. */
typedef struct eqf_read_options {
    const char *model;       /* which program of an archive with several */
    const char *const *dims; /* "B=8": values of symbolic sizes */
    size_t dim_count;
    const char *inputs;  /* a .safetensors file whose shapes fix symbolic sizes, and whose values
                            eqf_optimize verifies with */
    const char *weights; /* a .safetensors file with the data of a text program's parameters */
    uint64_t seed;       /* of random parameters (text programs without `weights`) and inputs */
} eqf_read_options;

/* Reads `path`. Errors: EQF_E_IO, EQF_E_NOT_OURS, EQF_E_PARSE, EQF_E_TYPE, EQF_E_DATA (a
 * tensor absent from `inputs` or `weights`; one of another type or shape there is EQF_E_TYPE),
 * EQF_E_ARGUMENT (an option names nothing in this program). Operators without a meaning
 * here are no error: eqf_program_info lists them. */
eqf_status eqf_program_read(eqf_ctx *ctx, const char *path, const eqf_read_options *options,
                            eqf_program **out);
void eqf_program_free(eqf_program *program);

/* An operator that the optimizable part of a program stops at. */
typedef struct eqf_boundary {
    const char *node, *op, *reason;
    bool runs; /* a plain C kernel exists: the program can still be optimized around it */
} eqf_boundary;

typedef struct eqf_op_count {
    const char *op;
    int64_t count;
} eqf_op_count;

typedef struct eqf_program_summary {
    const char *name, *file;
    const char *schema, *torch; /* "8.5", "2.6.0"; "" for text programs */
    const eqf_op_count *ops;
    size_t op_count;
    const eqf_tensor *inputs, *outputs, *parameters; /* descriptions: data is NULL */
    size_t input_count, output_count, parameter_count;
    size_t seeded_parameters; /* of those, without data: random values of the seed stand in */
    const eqf_boundary *boundaries;
    size_t boundary_count;
    double coverage; /* share of the FLOPs inside the optimizable part */
    int64_t flops, bytes;
    const char *const *notes; /* remarks of the reader, a line each: a schema newer than it knows */
    size_t note_count;
} eqf_program_summary;
/* Belongs to the program. */
const eqf_program_summary *eqf_program_info(const eqf_program *program);

/* The program as .eqf text, NUL-terminated; belongs to the program. Reads back to the same program,
 * data of parameters excepted. */
const char *eqf_program_text(const eqf_program *program);

/* ---- search --------------------------------------------------------------------------------- */

/* What a rewrite may do to rounding. Sums may be taken in another order; with EQF_FAST also in forms
 * that cancel on some inputs (a variance as the difference of two sums). A measured result must lose
 * nothing to the program as it was read (EQF_STRICT), at most a factor of 2 beyond a floor (default),
 * or stay within the tolerance (EQF_FAST). */
typedef enum eqf_accuracy { EQF_DEFAULT, EQF_STRICT, EQF_FAST } eqf_accuracy;

typedef enum eqf_fuse {
    EQF_FUSE_LATE, /* reductions that need others are put into their loops; nothing else is */
    EQF_FUSE_NODE, /* and so are the independent reductions that one operator uses */
    EQF_FUSE_ALL   /* and any over the same axes, up to six: for comparison */
} eqf_fuse;

/* What is extracted, and in which order. */
typedef enum eqf_order {
    EQF_ORDER_BEST, /* structures of reductions, most promising first */
    EQF_ORDER_PAPER /* every selection of e-nodes, depth first, operands unsorted: for comparison */
} eqf_order;

/* Which cuts of a value into tiles are tried. */
typedef enum eqf_refine {
    EQF_REFINE_MAXIMAL, /* along all of its axes: one tile an axis is legal, so it stands for all */
    EQF_REFINE_SUBSETS  /* along every set of them: for comparison */
} eqf_refine;

/* When candidates that are equal to others, or need more reductions for the same, are left out. */
typedef enum eqf_compaction {
    EQF_COMPACT_EARLY, /* before they are expanded */
    EQF_COMPACT_AFTER, /* when all are there: the same are left in the end */
    EQF_COMPACT_NONE   /* never */
} eqf_compaction;

typedef struct eqf_search_options {
    eqf_accuracy accuracy;      /* EQF_FAST: rules of class approx too */
    bool parameters_are_inputs; /* else what depends on them alone is computed once */
    const char *const *rules;   /* files with further rules */
    size_t rule_count;
    bool force;  /* use rules that the rule lab shows to be unsound; ill-typed ones are left out */
    int threads; /* that share kernels; 0: 8. Long dims are split for them */
    eqf_fuse fuse;
    eqf_refine refine;
    eqf_compaction compaction;
    eqf_order order;
    double budget_s;     /* wall time of everything; 0: 60. A quarter is for extraction alone */
    int64_t most_enodes; /* of a subgraph; 0: 100,000 */
    int64_t most_candidates; /* of a subgraph; 0: 16 */
    bool form;               /* write the form of least FLOPs of whole tensors */
    bool kernels;            /* write the kernels of candidates */
    void (*progress)(void *user, const char *stage); /* as in eqf_optimize_options */
    void *user;
    const volatile bool *cancel; /* polled; once true the search stops soon, with what it has */
} eqf_search_options;

/* Why a phase ended: "saturated", or a limit: "iterations", "nodes", "bytes", "time"; or
 * "cancelled". Phases after one that did not saturate are not run. A subgraph with more than 64 dims
 * has no phases, and stops by "dims". */
typedef struct eqf_search_phase {
    const char *name;  /* "program", "algebra", "tiling", "fusion" */
    const char *split; /* "T in 8 parts": phases of a further e-graph, in which that dim is split; "" */
    int64_t enodes, eclasses; /* when it ended */
    int64_t iterations, matches;
    double seconds;
    const char *stop;
} eqf_search_phase;

typedef struct eqf_search_rule {
    const char *name;
    int64_t matches, applied, enodes; /* enodes: that it added */
    double seconds;
} eqf_search_rule;

typedef struct eqf_search_reduction {
    const char *name; /* "+", "max"; of a loop "(max,+)", "rolling(max,+,+)" */
    const char *over; /* the axes, with a space between */
} eqf_search_reduction;

/* One program of a subgraph. What it costs is by a rough model of a machine with 100 GFLOP/s, 20 GB/s
 * and 2 us to start a kernel. */
typedef struct eqf_search_candidate {
    int64_t kernels;
    double flops, bytes, bound_us;
    const eqf_search_reduction *reductions;
    size_t reduction_count;
    const char *form;         /* .eqf text in tiled form, which reads back */
    const char *kernel_text;  /* kernel IR, for vectors of 32 bytes; NULL unless asked for, or where an
                                 operator has no kernel */
} eqf_search_candidate;

/* States are choices of reductions, some still open; structures are complete ones; candidates are
 * structures with what they store in memory. Nothing where the subgraph could not be tiled. */
typedef struct eqf_search_extraction {
    const char *mode; /* "early", "after", "none" */
    int64_t expanded, pruned; /* states; pruned: left out before */
    int64_t structures, candidates; /* that were found */
    bool complete; /* no limit was met: all structures are there but those left out by compaction */
    double seconds;
} eqf_search_extraction;

typedef struct eqf_subgraph {
    const char *hash; /* digest of what it computes, whatever its names are */
    int64_t uses;     /* how often it stands in the program */
    int64_t enodes, eclasses, iterations, matches;
    int64_t repaired; /* reductions that were put into the loop of those they need */
    int64_t bundles;  /* sets of independent reductions that were put into one loop */
    int64_t bytes, peak_bytes;
    double saturate_s; /* all phases */
    const char *stop;  /* of the last phase */
    const eqf_search_phase *phases;
    size_t phase_count;
    const eqf_search_rule *rules; /* that matched, in the order in which they first ran */
    size_t rule_count;
    eqf_search_extraction extraction;
    const eqf_search_candidate *candidates; /* most promising first */
    size_t candidate_count;
    double flops;      /* as written; 0 unless a form was asked for */
    double form_flops; /* of the form */
    const char *form;  /* .eqf text of whole tensors, which reads back; NULL unless asked for */
} eqf_subgraph;

typedef struct eqf_search_report {
    const eqf_subgraph *subgraphs;
    size_t subgraph_count;
    bool cancelled;
} eqf_search_report;

/* Builds the e-graphs of the program's subgraphs, by rules to saturation, tiles, loops, and extracts
 * candidates. A program that is too large for one is cut, and parts that compute alike are searched once.
 * Nothing is compiled and no data is read. *out belongs to the program and lives until the next call with it.
 * Limits and interrupts are no errors, they are reasons to stop. Errors: EQF_E_ARGUMENT (a symbolic
 * size without a value), EQF_E_DATA (a rule is rejected or unsound), EQF_E_CONTRADICTION (rules that were forced contradict one another),
 * EQF_E_IO, EQF_E_PARSE (a file of rules). */
eqf_status eqf_search(eqf_program *program, const eqf_search_options *options,
                      const eqf_search_report **out);

/* ---- optimize ------------------------------------------------------------------------------- */

typedef struct eqf_optimize_options {
    const char *compiler; /* C compiler to run; NULL: "cc" */
    double budget_s;      /* wall time for everything; 0: 60. The program as it was read is built
                             whatever it takes; what is tried after it ends with the budget */
    eqf_accuracy accuracy;
    bool parameters_are_inputs; /* else they may be folded and packed once */
    const char *const *rules;   /* files with further rules */
    size_t rule_count;
    bool force; /* use rules that the rule lab shows to be unsound; ill-typed ones are left out */
    int threads;                /* that the package is meant for; 0: all of this process */
    int jobs;                   /* compilers at a time; 0: all processors of this process */
    uint64_t seed;              /* of the inputs that verify the package */
    /* Called on the calling thread when a stage begins; may be NULL. */
    void (*progress)(void *user, const char *stage);
    void *user;
    /* Polled; once true the call ends soon, writes the best verified package so far, and returns
     * EQF_E_INTERRUPTED. May be NULL. */
    const volatile bool *cancel;
} eqf_optimize_options;

typedef struct eqf_optimize_report {
    const char *package, *backend;
    bool verified;
    const double *rel_l2; /* an output each, in order */
    size_t output_count;
    int64_t kernels, subgraphs, distinct_subgraphs, candidates, families, measured;
    int64_t failed;      /* candidates that could not be built or disagreed with the program */
    const char *failure; /* the first one's reason; "" */
    double unfused_us, best_us; /* 0 where nothing was timed */
    double roofline;            /* of the best; may exceed 1, see eqf_bench_result */
    double read_s, saturate_s, extract_s, tune_s, verify_s, total_s;
    const char *stop; /* "budget", "exhausted", "interrupted", or "machine": */
    const char *left_behind; /* where the package that was replaced is, if it cannot be removed; "" */
    const char *stop_reason; /* no space or no memory for more candidates, and which; "" */
    int64_t seeded_parameters; /* that had no data and hold random values of the seed */
} eqf_optimize_report;

/* Optimizes `program` and writes the package directory `path`, replacing a package that is there in
 * one step; a failed call leaves `path` as it was. The first package has one kernel an operator;
 * while time is left candidates of the search are built, verified and timed, and what is faster
 * takes its place: whenever the call ends, `path` is the best so far. Once there is a package, no space
 * and no memory end the search and are no error. *out may be NULL; else it belongs to the program
 * and lives until the next call with it.
 * Errors: EQF_E_ARGUMENT (`path` exists and is no package; a symbolic size without a value),
 * EQF_E_UNSUPPORTED (an operator that nothing here can run), EQF_E_MACHINE (no compiler),
 * EQF_E_IO (no space, no permission), EQF_E_MISMATCH (no candidate passed verification). */
eqf_status eqf_optimize(eqf_program *program, const eqf_optimize_options *options, const char *path,
                        const eqf_optimize_report **out);

/* ---- packages ------------------------------------------------------------------------------- */

/* A loaded package: immutable, so any number of eqf_exec on any threads may use it at once. */
typedef struct eqf_model eqf_model;

/* Loads the package directory `path` after checking its version, sizes, hashes and the features of
 * this CPU. Reads nothing outside the directory. Errors: EQF_E_IO, EQF_E_NOT_OURS, EQF_E_PARSE,
 * EQF_E_DATA (damaged), EQF_E_MACHINE (made for another machine; says how to rebuild). */
eqf_status eqf_model_load(eqf_ctx *ctx, const char *path, eqf_model **out);
/* No eqf_exec of the model may be left. */
void eqf_model_free(eqf_model *model);

/* Descriptions (data is NULL) belong to the model; `find` gives -1 for an unknown name. */
size_t eqf_model_input_count(const eqf_model *model);
eqf_tensor eqf_model_input(const eqf_model *model, size_t i);
ptrdiff_t eqf_model_find_input(const eqf_model *model, const char *name);
size_t eqf_model_output_count(const eqf_model *model);
eqf_tensor eqf_model_output(const eqf_model *model, size_t i);
ptrdiff_t eqf_model_find_output(const eqf_model *model, const char *name);
/* Parameters that may be replaced (packages made with parameters as inputs; else none). */
size_t eqf_model_parameter_count(const eqf_model *model);
eqf_tensor eqf_model_parameter(const eqf_model *model, size_t i);
ptrdiff_t eqf_model_find_parameter(const eqf_model *model, const char *name);
/* Buffers of the program that a run writes. */
size_t eqf_model_state_count(const eqf_model *model);
eqf_tensor eqf_model_state(const eqf_model *model, size_t i);
ptrdiff_t eqf_model_find_state(const eqf_model *model, const char *name);
size_t eqf_model_kernel_count(const eqf_model *model);
/* Digest of the program that the package computes, without the data of its parameters. */
const char *eqf_model_source_hash(const eqf_model *model);
/* The seed of the inputs, and of parameters where they were random, that it was made with. */
uint64_t eqf_model_seed(const eqf_model *model);

/* One execution context of a model: its own state, scratch memory and threads. Used by one thread
 * at a time; several of one model run independently. */
typedef struct eqf_exec eqf_exec;

/* `threads` counts the caller; 0: all processors of this process. State starts from the values
 * stored in the package. */
eqf_status eqf_exec_new(eqf_ctx *ctx, const eqf_model *model, int threads, eqf_exec **out);
void eqf_exec_free(eqf_exec *exec);

/* Runs once. inputs[i] and outputs[i] point to dense row-major memory of the size that the model
 * states, aligned as the dtype needs; a tensor without elements may be NULL. outputs[i] may be NULL
 * when the value is not wanted. Outputs may not overlap one another or an input, except that the
 * new value of an input (an output that the program assigns to it) may be written over it.
 * When the run succeeds, state holds what the program assigned to it. Errors: EQF_E_ARGUMENT;
 * EQF_E_DATA when an index in an input is out of range: state is as before, outputs are undefined.
 * Nothing passed in is kept. */
eqf_status eqf_exec_run(eqf_exec *exec, const void *const *inputs, void *const *outputs);

/* Uses `data` (`bytes` long, as the model states) for parameter `i` from now on; it is borrowed
 * until replaced again or the exec is freed. NULL: the stored value again. */
eqf_status eqf_exec_set_parameter(eqf_exec *exec, size_t i, const void *data, size_t bytes);

/* Copies the present value of state `i` out, or a new one in; `bytes` as the model states. */
eqf_status eqf_exec_get_state(eqf_exec *exec, size_t i, void *data, size_t bytes);
eqf_status eqf_exec_set_state(eqf_exec *exec, size_t i, const void *data, size_t bytes);
/* Back to the stored values. */
void eqf_exec_reset(eqf_exec *exec);

/* The inputs that the package was verified with: those stored in it, else the seeded ones. */
eqf_status eqf_model_inputs(eqf_ctx *ctx, const eqf_model *model, eqf_tensors **out);

/* Comparison of a run with the reference. */
typedef struct eqf_check_result {
    bool passed;
    const double *rel_l2;    /* an output each; 0 for integers that agree */
    const double *tolerance; /* what each was allowed */
    size_t output_count;
    const char *first; /* the first output that differs and how; "" when passed */
} eqf_check_result;
/* Compares `outputs` (as for eqf_exec_run, none NULL) of a run that started from the stored state.
 * program NULL: with the reference in the package, which belongs to eqf_model_inputs. Else with a
 * reference computed by interpreting `program` (of this exec's context) on `inputs`; EQF_E_TYPE
 * when it is another program than the package's, EQF_E_DATA when it has other parameters. *out
 * belongs to `exec` until its next check. A difference is EQF_OK with passed == false. */
eqf_status eqf_exec_check(eqf_exec *exec, eqf_program *program, const void *const *inputs,
                          const void *const *outputs, const eqf_check_result **out);

typedef struct eqf_bench_options {
    int threads;     /* 0: all processors of this process */
    double budget_s; /* about how long; 0: 2 */
    const volatile bool *cancel;
} eqf_bench_options;

typedef struct eqf_bench_result {
    double median_us, low_us, high_us; /* median and quartiles of a run */
    double min_us;
    int64_t runs, kernels, flops, bytes;
    int threads;
    double peak_gflops, peak_gbps; /* measured at the same time on the same threads */
    double bound_us;               /* what those peaks allow */
    double roofline; /* bound_us / median_us. Beyond 1 where not all of the bytes are read (a gather's
                      * table, keys that a mask hides), or the machine was slower while it was measured */
} eqf_bench_result;
/* Times the package on its own inputs. */
eqf_status eqf_bench(eqf_ctx *ctx, const eqf_model *model, const eqf_bench_options *options,
                     eqf_bench_result *out);

/* ---- explanations ---------------------------------------------------------------------------- */

/* One step of a derivation: by `rule`, `from` equals `to`; long terms are cut off with "...". */
typedef struct eqf_derived_step {
    const char *rule, *meaning, *output;
    const char *from, *to;
} eqf_derived_step;

/* A part of the program that was searched by itself, or the whole. */
typedef struct eqf_derived_part {
    int64_t uses;         /* places in the program */
    bool changed;         /* else it is computed as it was read */
    const char *by_value; /* why there is no derivation, only a comparison of values; "": there is one */
    const char *program, *form; /* .eqf text; form "" unless changed */
    const eqf_derived_step *steps;
    size_t step_count;
    int64_t checked;     /* elementary steps that the checker replayed, when asked for */
    int64_t assumptions; /* guards among them that it could not judge from the terms */
    const char *const *own_rules; /* "NAME of FILE": rules that it uses and the product does not have */
    size_t own_rule_count;
    const char *refused; /* the step that does not hold, and why; "" */
} eqf_derived_part;

typedef struct eqf_kernel {
    const char *name, *origin; /* origin: the value that it computes */
    int64_t flops, bytes;      /* of a run */
    double bound_us;           /* what the peaks in the report allow; 0: not known */
} eqf_kernel;

/* What was tried for the program or a part of it. */
typedef struct eqf_try {
    double bound_us, us; /* what a model expects at least, and what was measured; 0: not known */
    int64_t kernels;
    bool taken, failed; /* it was the best until then; it could not be built, or was wrong */
    bool rolls;         /* some reduction uses the results of others so far */
    const char *reductions; /* "max over T, + over T"; "": parts that were put together */
    const char *why;        /* it failed, or was not taken though it was fast enough; "" */
} eqf_try;
/* The least that candidates of one kind would cost, also of those that were not kept. */
typedef struct eqf_least {
    int64_t kernels;
    bool rolls;
    double bound_us;
} eqf_least;
typedef struct eqf_growth {
    const char *rule;
    int64_t matches, enodes; /* e-nodes that it added */
} eqf_growth;
typedef struct eqf_searched {
    const char *of; /* "the program", "part 1" (the one that took longest) */
    double as_read_us;
    const eqf_try *tries;
    size_t try_count;
    const eqf_growth *rules;
    size_t rule_count;
    const eqf_try *untried; /* found, and not built before the budget ended; most promising first */
    size_t untried_count;
    const eqf_least *least; /* fewest kernels first; none: there was no search */
    size_t least_count;
    int64_t looked_at; /* candidates that were priced */
    bool complete;     /* no limit was met: there are no others */
} eqf_searched;

typedef struct eqf_explanation {
    const char *source, *program; /* the file it was made from; program.eqf */
    const char *form;             /* what the kernels compute, as text; "": the program as it was read */
    const eqf_derived_part *parts;
    size_t part_count;
    const eqf_kernel *kernels;
    size_t kernel_count;
    const eqf_searched *searches;
    size_t search_count;
    double unfused_us, best_us, roofline; /* when it was made; 0: not known */
    bool checked; /* every part that has a derivation was replayed, and none was refused */
    bool proved;  /* checked, and no changed part is by value */
} eqf_explanation;

typedef struct eqf_explain_options {
    bool proof; /* replay the derivations with the independent checker */
    const volatile bool *cancel;
} eqf_explain_options;

/* Explains the package at `path` from its files alone; no machine code is loaded. *out is freed with
 * eqf_explanation_free. Errors: EQF_E_IO, EQF_E_NOT_OURS, EQF_E_PARSE, EQF_E_DATA (damaged),
 * EQF_E_MISMATCH (proof.eqf is about something else than program.eqf). A step that does not hold is
 * EQF_OK with `checked` false. */
eqf_status eqf_package_explain(eqf_ctx *ctx, const char *path, const eqf_explain_options *options,
                               eqf_explanation **out);
void eqf_explanation_free(eqf_explanation *explanation);

#ifdef __cplusplus
}
#endif
#endif
