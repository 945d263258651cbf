/* What exact extraction and its relaxation share: the reduced problem. */
#ifndef EG_EXACT_H
#define EG_EXACT_H

#include "egraph/extract.h"

typedef struct choice {
    u32 node, nkids;
    u32 *kids; /* dense classes, sorted, each once */
    f64 cost;
    u64 *must; /* union over the children */
} choice;

typedef struct cls {
    u32 class_id, n;
    choice *at;
    f64 least;
    u64 *must;
} cls;

/* A lower bound on the cost of every solution; takes out choices that no solution cheaper than `best`
 * has. `root` marks the classes that must be chosen. The deadline is on CLOCK_MONOTONIC, in seconds. */
f64 eg_relax(arena *a, cls *at, u32 n, const u8 *root, f64 best, f64 slack, f64 deadline);

#endif
