/* runtime: load a package, run it, measure the machine. Needs no compiler and knows no program: a
 * package is a launch plan (plan.h), machine code and bytes.
 *
 *     package directory ─► rt_model (immutable, shared) ─► rt_exec (state, scratch, threads) ─► run
 *
 * plan.json is written and read here (plan_json.c), so that its field names stand in one file.
 * A model never changes after rt_load; an rt_exec belongs to one thread at a time. Functions throw
 * through the context that their handle was made with, unless they return a status. */
#ifndef EQF_RUNTIME_RUNTIME_H
#define EQF_RUNTIME_RUNTIME_H

#include "runtime/plan.h"

/* ---- the package's description (plan_json.c) ------------------------------------------------- */

#define RT_PLAN_VERSION 2
#define RT_PLAN_FILE "plan.json"
#define RT_WEIGHTS_FILE "weights.bin"
#define RT_CHECK_FILE "check.safetensors"
#define RT_KERNELS_DIR "kernels"

typedef struct rt_file {
    const char *name; /* NAME or kernels/NAME, see rt_name_ok */
    i64 bytes;
    char digest[33];
} rt_file;

/* Values of a seeded input: floats have unit variance or, where they become indices, lie in
 * [from, to]; integers lie in [low, high], bools in {0, 1}. */
typedef struct rt_range {
    i64 low, high;
    bool is_bounded;
    f64 from, to;
} rt_range;

typedef struct rt_package {
    const char *name;    /* of the program */
    const char *version; /* of the tool that wrote it */
    const char *backend, *arch, *compiler;
    VEC(const char *) features; /* of the CPU, as cpu.c spells them */
    const char *source;         /* the file it was made from, without folders */
    char source_digest[33], parameters_digest[33];
    const char *rebuild;  /* command line */
    const char *library;  /* one of `files`; "" when there is no kernel */
    VEC(rt_file) files;   /* everything but plan.json */
    i64 seed;             /* of seeded inputs */
    bool has_inputs;      /* check.safetensors holds the inputs; else they are seeded */
    VEC(rt_range) ranges; /* an input each */
    VEC(f64) tolerances;  /* an output each */
    i64 kernel_count;     /* launches that are no copies */
    rt_plan plan;         /* without `prepare` and RT_SOURCE buffers */
} rt_package;

/* Is `name` a name that plan.json may hold: letters, digits, `.`, `_`, `-`, not starting with a
 * dot, possibly below kernels/? */
bool rt_name_ok(const char *name);
void rt_plan_print(str *out, const rt_package *package);
/* Checks every index, size and offset. Throws EQF_E_NOT_OURS, EQF_E_UNSUPPORTED (another version),
 * EQF_E_DATA (digest), EQF_E_PARSE. Strings live in `a`. */
rt_package *rt_plan_read(arena *a, const char *file, const char *text, i64 n);

/* ---- this machine (cpu.c, memory.c, yardstick.c) --------------------------------------------- */

/* "x86_64", "aarch64", or what the compiler calls it. */
const char *rt_arch(void);
/* The features this CPU and system can run, among those that change what a compiler emits. Returns
 * their number; names are static. at: room for rt_feature_count(). */
i64 rt_feature_count(void);
i64 rt_features(const char **at);
/* The feature that a compiler announces by predefining `macro`, or NULL. */
const char *rt_feature_of_macro(const char *macro);
/* Asks the system for the registers of matrix instructions, for this process and its children; does it
 * give them? */
bool rt_ask_for_tiles(void);
bool rt_has_feature(const char *name);
/* Processors that this process may use. */
int rt_processors(void);

/* Zeroed memory, aligned to 2 MB and advised for huge pages where it is that large, released with
 * the arena. Throws EQF_E_NO_MEMORY. */
void *rt_big_alloc(arena *a, i64 bytes);

typedef struct rt_peaks {
    f64 gflops; /* f32 multiply-add, counted as 2 */
    f64 gbps;   /* reading */
} rt_peaks;
/* Measures for about `seconds` on the threads of `p` (NULL: the caller alone), reading an array of
 * read_bytes, at most 192 MB: that is DRAM. */
rt_peaks rt_yardstick(eqf_ctx *ctx, pool *p, f64 seconds, i64 read_bytes);
/* Monotonic seconds. */
f64 rt_now(void);

/* ---- models (model.c) ------------------------------------------------------------------------ */

typedef struct rt_model rt_model;
/* What is loaded is one package, also while others take its name. Throws EQF_E_IO, EQF_E_NOT_OURS,
 * EQF_E_PARSE, EQF_E_DATA, EQF_E_UNSUPPORTED, EQF_E_MACHINE. */
rt_model *rt_load(eqf_ctx *ctx, const char *directory);
void rt_unload(rt_model *m);
const rt_package *rt_model_package(const rt_model *m);
const char *rt_model_directory(const rt_model *m);
const u8 *rt_model_weights(const rt_model *m);
/* The tensors of check.safetensors, in `a`, whatever has the package's name by now. Throws through
 * the context of `a` EQF_E_DATA (there is none; damaged since), EQF_E_IO, EQF_E_PARSE. */
const tensor *rt_model_check(const rt_model *m, arena *a, i64 *count);
/* The kernel of a launch; NULL for copies. */
rt_kernel rt_model_kernel(const rt_model *m, i64 launch);

/* ---- running (exec.c) ------------------------------------------------------------------------ */

typedef struct rt_exec rt_exec;
/* `threads` counts the caller; 0: rt_processors(). */
rt_exec *rt_exec_new(eqf_ctx *ctx, const rt_model *m, int threads);
void rt_exec_free(rt_exec *e);
pool *rt_exec_pool(rt_exec *e);
const rt_model *rt_exec_model(const rt_exec *e);
/* Runs once: see eqf_exec_run. */
void rt_exec_run(rt_exec *e, const void *const *inputs, void *const *outputs);
void rt_exec_set_parameter(rt_exec *e, i64 i, const void *data);
void *rt_exec_state(const rt_exec *e, i64 i);
void rt_exec_reset(rt_exec *e);

/* Runs the plan's `prepare` launches. kernels[i]: of launch i, NULL for copies; sources[port]: the
 * parameter at that program port; image: plan->weights_bytes, zeroed. Throws EQF_E_DATA with the
 * launch's origin. */
void rt_prepare(eqf_ctx *ctx, const rt_plan *plan, const rt_kernel *kernels,
                const void *const *sources, u8 *image, pool *threads);

/* Fills `t` (name, type, shape and data set) as rt_range says; equal seeds and names, equal values,
 * whatever the other inputs and however many threads (NULL: the caller's) there are. */
void rt_seeded(eqf_ctx *ctx, tensor *t, u64 seed, rt_range range, pool *threads);

#endif
