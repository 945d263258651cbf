/* Forms of one program compete: the program as it is, and what the search finds. The fastest that is
 * right stays. The program is the whole that was asked for, or a part of it. */
#ifndef EQF_DRIVER_CONTEST_H
#define EQF_DRIVER_CONTEST_H

#include "driver/making.h"
#include "partition/partition.h"

/* A form that was built, or could not be. */
typedef struct tried {
    const ex_candidate *form; /* NULL: parts that were put together */
    f64 us;                   /* by what its rival took beside it; 0: not timed */
    i64 kernels;
    bool taken, failed;
    const char *why; /* it was not taken though it was fast enough, or failed; "" */
} tried;

typedef struct contest {
    making *first;     /* the program as it is, built: data, reference, accuracy and time of that */
    const char *path;  /* beside which packages are made */
    bool is_published; /* the best becomes the package at the path */
    const ir_program *best;
    const char *best_directory; /* of its package */
    arena *best_arena;          /* that keeps it; NULL: it is published, or the program as it is */
    f64 best_us;
    const pt_part *part; /* that it is about; NULL: the whole */
    i64 uses; /* places in the whole */
    ex_report found;
    i64 next; /* of those found, to try */
    VEC(tried) tries;
    const rl_rule_count *rules; /* that ran in its search */
    i64 rule_count;
} contest;

/* `first` has been built. */
contest *contest_new(making *first, const char *path, bool is_published);
/* Finds forms for `seconds`, `most` of them. A program that is too large for a search has none. */
void contest_search(contest *c, f64 seconds, i64 most);
/* Builds, verifies and times a form: it is the best if it is faster beyond noise and as accurate as asked
 * for. What is wrong with it is its own, and counted in the report; one that is not done when the
 * budget ends is neither. `from`: what the search says of it, NULL without. Throws what is wrong with the machine, and EQF_E_INTERRUPTED. */
bool contest_try(contest *c, const ir_program *form, const ex_candidate *from);
/* The same for a form that was built before, with more patience. *out: times of this race, zeros where
 * there was none; they live no longer than the next one. */
bool contest_try_again(contest *c, const ir_program *form, const ex_candidate *from, verified *out);

/* ---- parts.c ---------------------------------------------------------------------------------- */

typedef struct partings {
    const ir_program *whole;
    bool parameters_are_inputs;
    pt_partition *cuts; /* ways to cut the whole, each within the parts of the one before */
    i64 n;
    contest **contests; /* of the parts of all of them, each once; what takes longest in a run first */
    i64 contest_count;
} partings;

/* The whole put together from parts, each as it is or in its best form. */
typedef struct composed {
    pt_partition cut;
    const ir_program **best;  /* by part: what its contest has; NULL: as it is */
    const ir_program **forms; /* by part: that, as a form of the part */
} composed;

/* Is a program no larger than what is searched at a time? *cut is what it is cut into where it is
 * not; else its one part, or none where it computes nothing from its inputs. */
bool parts_is_small(arena *a, const ir_program *p, bool parameters_are_inputs, pt_partition *cut);
/* Cuts the whole in several ways and builds every distinct part as it is, on the values that it has in
 * a run of the whole. Ways that leave it whole are left out. */
partings parts_find(contest *whole);
/* The best so far: from the parts of all ways those that save most time, or for i >= 0 from those of the
 * i-th way. */
composed parts_compose(arena *a, const partings *x, i64 i);
/* Is everything as it is? */
bool parts_as_read(const composed *c);
bool parts_same(const composed *x, const composed *y);

#endif
