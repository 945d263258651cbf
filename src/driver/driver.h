/* driver: the stages called in order, and the bodies of the public API.
 *
 *     program.c   a file ─► eqf_program: what was read, its data
 *     search.c    the e-graph of an eqf_program: rules, tiles, loops
 *     rulebook.c  rules of files, tested before they are used
 *     ranges.c    what numbers an input may hold
 *     pipeline.c  eqf_program ─► package: the table of contents of the compiler
 *     improve.c   packages of other forms, while time is left
 *     parts.c     the parts of a program that are searched by themselves, with their data
 *     contest.c   forms of one program compete
 *     candidates.c  a program ─► programs that compute the same, cheapest first
 *     proof.c     proof.eqf: why a package's form computes its program; written and replayed
 *     explain.c   what a package is made of, for people
 *     make.c      a program ─► a verified and timed package
 *     describe.c  what a package says about itself
 *     verify.c    a built package against the reference interpreter, in a child
 *     compare.c   one output against its reference
 *     bench.c     timing, and the share of the roofline
 *     api.c       the public functions that are none of the above
 *
 * Functions throw; those of equiforge.h are the traps. */
#ifndef EQF_DRIVER_DRIVER_H
#define EQF_DRIVER_DRIVER_H

#include <sys/stat.h>

#include "equiforge.h"
#include "extract/extract.h"
#include "frontend/frontend.h"
#include "ir/ir.h"
#include "rules/rule.h"
#include "runtime/runtime.h"

struct eqf_program {
    eqf_ctx *ctx;
    arena *a;
    ir_program *ir;
    fe_report report;
    eqf_program_summary summary;
    const char *path, *text;
    const char *inputs_path, *weights_path; /* NULL: none */
    struct stat seen[3];                    /* these files, when they were opened */
    const tensor *inputs, *weights; /* what they hold, each checked against its port; NULL: none */
    i64 input_count, weight_count;
    u64 seed;
    f64 read_s;
    char digest[33];      /* of the text */
    tensor *data;         /* a port each, once loaded: see program_data */
    rt_range *ranges;     /* a port each */
    char data_digest[33]; /* of parameters, buffers and constants */
    bool inputs_given;
    arena *result;                 /* holds `optimized` */
    eqf_optimize_report optimized; /* by the last eqf_optimize */
    char stop_reason[512];         /* its: room that is there when memory is not */
    arena *found;                  /* holds `searched` */
    eqf_search_report searched;    /* by the last eqf_search */
};

struct eqf_tensors {
    eqf_ctx *ctx;
    arena *a;
    eqf_tensor *at;
    i64 n;
};

struct eqf_model {
    eqf_ctx *ctx;
    rt_model *rt;
};

struct eqf_exec {
    eqf_ctx *ctx;
    arena *a;
    rt_exec *rt;
    arena *check; /* of the last eqf_exec_check */
    eqf_check_result result;
};

/* What eqf_tensor shows of t; strings and shape are shared. */
eqf_tensor driver_show(eqf_ctx *ctx, const tensor *t);
/* A port of a plan as a tensor without data. */
tensor driver_port(const rt_port *p);
/* The inputs that a package was verified with, in order, data in `a`. */
const eqf_tensor *model_inputs(arena *a, const rt_model *m);

/* ---- program.c --------------------------------------------------------------------------------
 */

bool program_is_text(const eqf_program *p);
/* The boundary's extents, in the program's arena. */
const i64 *program_shape(const eqf_program *p, const ir_port *port);
/* Throws EQF_E_ARGUMENT when a symbolic size has no value but the exporter's example. */
void program_check_sizes(const eqf_program *p);
/* A tensor for each input port: user inputs from --inputs or seeded, the others from the archive,
 * the weights file, or seeded in a text without one. Loads them once. */
const tensor *program_data(eqf_program *p, pool *threads);
/* Data is mapped where it can be, so a file that is written to in place takes it away. Throws EQF_E_IO
 * when that happened: what was made of the data belongs to no program. */
void program_expect_unchanged(const eqf_program *p);

/* ---- rulebook.c --------------------------------------------------------------------------------
 */

/* The rules of the product and of `files`, each of which must pass the loader and the lab, as
 * `rules check` has it with this seed. Throws EQF_E_DATA, with a diagnostic for each rule that does
 * not, unless `force`: then ill-typed rules are left out and unsound ones used. */
rl_ruleset *rulebook_join(arena *a, const char *const *files, i64 n, bool force, u64 seed,
                          const volatile bool *cancel);
/* "is unsound: counterexample" in a line, NULL where the lab finds nothing. */
const char *rulebook_fault(arena *a, const rl_rule *r, u64 seed);

/* ---- ranges.c ---------------------------------------------------------------------------------
 */

/* For each input port the numbers that make every index valid that comes from it unchanged, shifted,
 * scaled or rounded; integers that index nothing are 0..7, other floats unbounded. In `a`. */
rt_range *driver_ranges(arena *a, const ir_program *p);

/* ---- candidates.c -----------------------------------------------------------------------------
 */

/* The least exact rules that are admitted. */
rl_fp driver_rounding(eqf_accuracy accuracy);

typedef struct search_times {
    f64 saturate_s, extract_s;
    const rl_rule_count *rules; /* what each did, in the arena of the candidates */
    i64 rule_count;
} search_times;
/* What rewrites are admitted. */
typedef struct driver_space {
    const rl_ruleset *rules;
    rl_fp fp;
    bool parameters_are_inputs;
    const volatile bool *cancel;
} driver_space;
/* Programs with the ports of p's that compute the same, at most `most`, cheapest first by a model of
 * a machine with these rates; in `a`. The e-graph grows for `seconds` at most. Throws EQF_E_LIMIT
 * when the program is too large for one search. */
ex_report driver_candidates(arena *a, const ir_program *p, driver_space space, i64 threads,
                            f64 seconds, i64 most, rt_peaks peaks, search_times *times);
/* Why the form computes what p does: a derivation (rules/graph.h), by the same search again, with
 * explanations, for `seconds` at most. NULL and *why_not when there is none. */
const char *driver_derive(arena *a, const ir_program *p, const ir_program *form, driver_space space,
                          f64 seconds, const char **why_not);

/* ---- splits.c ---------------------------------------------------------------------------------
 */

/* A dim to be done part by part. */
typedef struct driver_split {
    ir_atom atom;
    i64 inner; /* positions of a part; 0: none */
} driver_split;
driver_split driver_find_split(arena *a, const ir_program *p, i64 threads);
/* The split that the form has and the program does not. */
driver_split driver_split_of(const ir_program *p, const ir_program *form);
/* The candidates of both, cheapest first. */
ex_report driver_merge(arena *a, ex_report x, ex_report y);

/* ---- compare.c --------------------------------------------------------------------------------
 */

typedef struct comparison {
    bool passed;
    f64 rel_l2;      /* over places where both are finite; 0 for integers and bools */
    const char *why; /* "" when passed; in the arena */
} comparison;
/* 1e-5 for f32, 1e-9 for f64, 1e-2 for half types, 0 for integers. */
f64 compare_tolerance(dtype t);
/* `got` in its dtype, `want` of the same count in any dtype of the same kind; non-finite values
 * must stand at the same places once `want` is rounded to got's dtype. */
comparison compare_tensors(arena *a, const tensor *got, const tensor *want, f64 tolerance);

/* ---- verify.c ---------------------------------------------------------------------------------
 */

/* How much larger than those at hand inputs are on which a form must hold, too. What a program takes care
 * to keep small overflows there in a form that does not, and what two kernels round in two ways is no
 * longer the same number. */
enum { LARGE = 32 };

/* The reference interpreter's outputs, and, computed only when needed, those of the same program
 * when each operator rounds as eager PyTorch does: what rounding alone can change. */
typedef struct reference {
    arena *a;
    const ir_program *p;
    const tensor *inputs; /* a program port each */
    f64 seconds;          /* that the outputs took */
    tensor *outputs;      /* exact; an integer that rounding decides (a floor, a comparison) may be
                             replaced by the rounded program's, see reference_compare */
    tensor *rounded;      /* NULL until needed */
    f64 *sway;            /* by output: how far it goes when inputs move by their last digit, and sums by
                             what their order can change; the same */
    const tensor *large;  /* the inputs, LARGE times; NULL until needed */
    tensor *as_read;      /* what the first package that was verified computes from them; NULL before */
    tensor *exact_large;  /* NULL until needed */
    f64 *as_read_error;   /* by output, of that; the same */
    pool *threads;
    const volatile bool *cancel;
} reference;
reference reference_make(arena *a, const ir_program *p, const tensor *inputs, pool *threads,
                         const volatile bool *cancel);
/* Compares output i; the tolerance is the dtype's, or twice the rounding error, or twice what the
 * last digits of the inputs and the order of sums do, where that is larger; it is stored in
 * *tolerance. Integers and bools are equal to the exact program's, or all of them to the rounded one's,
 * which is the reference from then on. */
comparison reference_compare(reference *r, i64 i, const tensor *got, f64 *tolerance);

typedef struct verified {
    const tensor *strays; /* its outputs on large inputs, where they are not those of the first package that
                             was verified; NULL: they are, or it was slower than its rival */
    f64 *rel_l2, *tolerances; /* an output each */
    f64 median_us, least_us;
    f64 rival_median_us, rival_least_us; /* in turns with it; 0: without a rival */
    rt_peaks peaks;
} verified;
typedef struct trial_timing {
    f64 seconds;       /* to time for, about */
    f64 limit_s;       /* the child is stopped then; 0: when it is surely lost */
    const char *rival; /* directory of a package with the same boundary, or NULL. A package that takes
                        * much longer than it in its first runs is not timed */
    rt_peaks known;    /* of the machine; without, they are measured beside it */
} trial_timing;
/* Why the strays cannot stay: on large inputs they are farther from the exact program than the first
 * package is, beyond what luck in rounding does, or finding that out takes until after the deadline (rt_now;
 * 0: none). NULL: nothing against them. Integers and bools are not compared. */
const char *reference_refuse_large(reference *r, const verified *v, f64 deadline);
/* Runs the package in `directory` twice in a child (so that state is carried once) and compares
 * every output with the reference; then times it, and runs it on large inputs. Throws EQF_E_MISMATCH,
 * EQF_E_LIMIT. */
verified verify_package(arena *a, const ir_program *p, const rt_package *package,
                        const char *directory, const tensor *inputs, reference *first, int threads,
                        trial_timing how, const volatile bool *cancel);

/* ---- bench.c ----------------------------------------------------------------------------------
 */

typedef struct timing {
    f64 median_us, low_us, high_us, min_us;
    i64 runs;
} timing;
/* Runs until about `seconds` are over, at least 3 times. */
timing bench_run(arena *a, rt_exec *e, const void *const *inputs, void *const *outputs, f64 seconds,
                 const volatile bool *cancel);
/* Two packages of one boundary in turns, a few milliseconds each; where the second is no slower by much
 * and runs are long, for up to 15 times the seconds. */
void bench_pair(arena *a, rt_exec *const e[2], const void *const *inputs, void *const *outputs,
                f64 seconds, timing out[2]);
typedef struct plan_work {
    i64 flops, bytes; /* bytes: inputs, outputs, weights and states, each once */
} plan_work;
plan_work bench_work(const rt_plan *plan);
f64 bench_bound_us(plan_work work, rt_peaks peaks);

/* Names of plan.json's tensors inside check.safetensors. */
#define CHECK_INPUTS "inputs/"
#define CHECK_OUTPUTS "outputs/"

#endif
