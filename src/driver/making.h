/* One program on its way to a package: what the stages share. make.c builds, describe.c says what was
 * built, pipeline.c and parts.c decide what is worth building. */
#ifndef EQF_DRIVER_MAKING_H
#define EQF_DRIVER_MAKING_H

#include "codegen/codegen.h"
#include "driver/driver.h"
#include "package/package.h"
#include "tune/tune.h"

#define RACE_S 0.1 /* that a package is timed for, and a rival as long */

typedef VEC(const char *) named_files;

typedef struct making {
    eqf_program *program; /* what was asked for, or a part of it */
    const ir_program *ir; /* the form that is built */
    eqf_optimize_options options;
    const rl_ruleset *rules;
    arena *a, *shared; /* shared: of all makings of one request */
    eqf_ctx *ctx;
    pk_writer *writer;
    const char *objects; /* directory of what was compiled so far */
    named_files *refused; /* that took too long to compile: no candidate with one is tried again */
    int threads, jobs;
    f64 deadline;   /* rt_now of a candidate's end; 0: none */
    const char *rival; /* directory of the package to be beaten; NULL: none */
    f64 race_s;
    i64 subgraphs, distinct_subgraphs; /* that the form was put together from */
    i64 file_count; /* of C sources */
    pool *pool;
    tn_compiler compiler;
    const tensor *data; /* a program port each */
    kn_kernels kernels;
    rt_package package;
    reference reference;
    verified verified;
    eqf_optimize_report report;
} making;

/* A step begins: shows it. Throws EQF_E_INTERRUPTED. */
void make_begin(making *m, const char *step);
/* What the search may do to it. */
driver_space make_space(const making *m);
/* A verified and timed package of m->ir in the writer's directory, which lies beside `path`. */
void make_package(making *m, const char *path);
/* Makes it the package at its path. */
void make_publish(making *m, const char *path);

/* ---- describe.c ------------------------------------------------------------------------------- */

/* Where the package comes from and what it was made with. */
void describe_package(making *m);
/* The program, its derivation and the C header. */
void describe_texts(making *m);
/* Inputs that were given, and the outputs that they have, for `run --check`. */
void describe_reference(making *m);
/* report.json */
void describe_report(making *m);

#endif
