/* tune: source text to machine code, in child processes with limits.
 *
 * Whatever may loop, crash or eat memory (a compiler, code that was just generated) runs in a child
 * in its own process group, with limits on CPU time, wall time and memory, its output captured; it
 * dies with its parent and with the arena that it was started on. */
#ifndef EQF_TUNE_TUNE_H
#define EQF_TUNE_TUNE_H

#include "base/base.h"

typedef struct tn_limits {
    f64 cpu_s;
    f64 wall_s; /* while it is waited for: time in which nobody looks hardly counts, since then all of
                 * this, child and parent, may have been suspended. 0: none */
    f64 until;  /* rt_now() when it is over in any case; 0: never */
    i64 memory_bytes; /* beyond what the child starts with; 0: none */
    const char *temporary; /* directory for a program's own files, which it leaves when it is stopped;
                            * NULL: where the system has them */
} tn_limits;

/* ---- children (child.c) ---------------------------------------------------------------------- */

typedef struct tn_child tn_child;
typedef enum tn_how { TN_EXITED, TN_SIGNALLED, TN_TOO_LONG } tn_how;
typedef struct tn_end {
    u8 how;
    int code;           /* exit status, or the signal */
    f64 limit_s;        /* TN_TOO_LONG: which limit it reached */
    const char *output; /* the first 64 KiB of what it wrote, with a NUL */
    i64 output_bytes;
} tn_end;

/* Starts a program, found as the shell finds it. argv ends with NULL. Throws EQF_E_MACHINE when no
 * process can be made; a program that is not there exits with 127. */
tn_child *tn_start_program(arena *a, const char *const *argv, tn_limits limits);
/* Starts body(user) on a copy of this process; its result is the exit status. The copy has this
 * thread only: pools must be made anew, and no lock of another thread may be needed. */
tn_child *tn_start_body(arena *a, int (*body)(void *user), void *user, tn_limits limits);
/* Has it ended? Waits up to timeout_ms. */
bool tn_ended(tn_child *c, int timeout_ms);
/* Waits until it ended; throws EQF_E_INTERRUPTED, the child killed, once *cancel (may be NULL). */
tn_end tn_wait(tn_child *c, const volatile bool *cancel);
bool tn_succeeded(tn_end end);
/* Was it stopped by a wall limit of `seconds` (0: none), no other one? */
bool tn_ran_out(tn_end end, f64 seconds);
/* "exit status 3", "signal 11 (Segmentation fault)", "stopped after 60 s". */
const char *tn_describe(arena *a, tn_end end);

/* ---- with a context of its own (apart.c) ------------------------------------------------------ */

/* Zeroed memory that children started from now on share with this process, until the arena goes. */
void *tn_shared(arena *a, i64 bytes);
typedef void tn_body(eqf_ctx *ctx, arena *a, void *user);
typedef struct tn_outcome {
    tn_end end;
    eqf_status status;   /* that the body threw, where the child ended by itself */
    const char *message; /* "place: what is wrong"; "" */
} tn_outcome;
/* Runs body(ctx, arena, user) in a child and waits for it, as tn_wait does. */
tn_outcome tn_run_apart(arena *a, tn_body *body, void *user, tn_limits limits,
                        const volatile bool *cancel);

/* ---- compiling (build.c) --------------------------------------------------------------------- */

typedef struct tn_compiler {
    const char *const *argv; /* the command, split at spaces, then NULL */
    i64 argc;
    const char *version;        /* first line of --version */
    VEC(const char *) features; /* of the CPU that -march=native lets it use (runtime.h) */
    i64 vector_bytes;           /* widest vectors of that target */
    bool tiles; /* it has matrix instructions for bf16, and the system lets this process use them */
    f64 patience_s; /* for a small file; one that takes longer is taken for one without an end */
} tn_compiler;

/* Asks `command` ("cc", "ccache gcc") what it is and what its native target has. Throws
 * EQF_E_MACHINE when it cannot be run. */
tn_compiler tn_probe(arena *a, const char *command, const volatile bool *cancel);

typedef struct tn_sources {
    const char *directory;    /* objects are put here and removed again */
    const char *objects;      /* or here, where they stay: a file of a name that has one is not
                               * compiled again. NULL: none */
    const char *const *files; /* names in the directory, ending in .c */
    i64 n;
    const char *library;        /* name in the directory */
    const char *const *symbols; /* what it must export */
    i64 symbol_count;
    f64 seconds; /* of a processor, for each file and the link, at most; 0: as long as a working
                  * compiler needs */
    f64 until;   /* rt_now() when all of it is to be over; 0: never */
    void (*progress)(void *user, i64 compiled); /* before each file that is waited for; may be NULL */
    void *user;
} tn_sources;
/* Compiles every file, `jobs` at a time, links them, and loads the library once, in a child: what
 * returns can be loaded and has the symbols. Throws EQF_E_MACHINE with the compiler's first words,
 * EQF_E_LIMIT when `seconds` were not enough, or it is `until`, EQF_E_INTERRUPTED. */
void tn_compile(eqf_ctx *ctx, const tn_compiler *cc, tn_sources sources, int jobs,
                const volatile bool *cancel);

#endif
