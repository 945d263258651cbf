/* A launch plan: everything that running a package needs to know, and nothing of how it was found.
 *
 * Buffers are bytes with an owner; launches name a kernel and where each of its pointers points.
 * Kernels have the signature rt_kernel: they run the parts [p0, p1) of their grid; parts are
 * independent and may run on any thread in any order. A kernel returns 0, or 1 + the number of the
 * bad part when an index read from data is out of range (nothing wild is read or written then).
 *
 * Running a plan: copy or bind the inputs, run the launches in order, copy or bind the outputs.
 * `prepare` launches run once, when a package is written: they fill the RT_WEIGHT buffers that no
 * file provides (packed or folded parameters). All offsets are multiples of 64 bytes. */
#ifndef EQF_RUNTIME_PLAN_H
#define EQF_RUNTIME_PLAN_H

#include "base/base.h"

typedef int (*rt_kernel)(void *const *buffers, i64 p0, i64 p1);

typedef enum rt_role {
    RT_INPUT,   /* a user input; `port` says which; bound to the caller's memory */
    RT_OUTPUT,  /* a user output, likewise */
    RT_WEIGHT,  /* read-only constants: `offset` into weights.bin */
    RT_STATE,   /* buffers of the model that the program writes: initial value at `offset` in
                   weights.bin, a private copy in each context, kept from run to run */
    RT_SCRATCH, /* `offset` into the context's arena; live ranges may share bytes */
    RT_SOURCE   /* a parameter as exported: exists only while `prepare` runs; `port` says which */
} rt_role;

typedef struct rt_buffer {
    const char *name;
    dtype type;
    i64 count; /* elements */
    i64 bytes;
    u8 role;
    i64 port;   /* RT_INPUT, RT_OUTPUT: index into inputs, outputs; RT_SOURCE: program port */
    i64 offset; /* see role */
} rt_buffer;

typedef struct rt_arg {
    i32 buffer;
    i64 offset; /* bytes into the buffer */
} rt_arg;

typedef struct rt_launch {
    const char *symbol; /* of the kernel, unique by content; "" copies args[0] to args[1] */
    const char *origin; /* the source node it computes, for messages */
    i64 parts;
    const rt_arg *args;
    i64 arg_count;
    i64 copy_bytes; /* of a copy */
    i64 flops, bytes; /* work, for the roofline */
} rt_launch;

typedef struct rt_port {
    const char *name;
    dtype type;
    i64 rank;
    const i64 *shape;
    i32 buffer; /* -1: extent 0, no memory */
    /* outputs: 1 + i: this output is the new value of input i; 1 + inputs.n + s: it becomes
     * states[s] when the run ends; 0: neither. Zero in every other list. */
    i64 writes;
} rt_port;

typedef struct rt_plan {
    VEC(rt_buffer) buffers;
    VEC(rt_launch) prepare, launches;
    VEC(rt_port) inputs, outputs;
    /* Buffers of the model that the program writes, in the order of the program's ports. No launch
     * writes an RT_STATE buffer: outputs carry the new value, which the run copies at its end. */
    VEC(rt_port) states;
    /* Parameters that the caller may replace: RT_WEIGHT buffers that hold one parameter as given
     * and that only `launches` read. Empty where parameters are constant. */
    VEC(rt_port) parameters;
    i64 arena_bytes;   /* of scratch */
    i64 weights_bytes; /* of weights.bin */
    VEC(const char *) preconditions;
} rt_plan;

#endif
