/* The matching machine, shared by its steps (match.c), its plans (plan.c) and the rows it writes
 * (rows.c). Not for other files. */
#ifndef EG_MATCH_H
#define EG_MATCH_H

#include "egraph/rules.h"

enum { STEP_SCAN, STEP_DOWN, STEP_UP, STEP_LOOK, STEP_CLASSES, STEP_CHECK };
enum { TUPLE_ANY, TUPLE_OLD, TUPLE_NEW };

typedef struct step {
    u8 kind, filter;
    bool class_bound, payload_bound;
    bool or_up; /* DOWN: take the uses of child up_slot when they are fewer */
    u32 atom, up_slot;
    u32 child;  /* plan node after this step, 0 not made yet */
    u64 bind;   /* children to be bound here */
    u64 known;  /* children that are bound before; up_slot is the first of them at least */
} step;

/* What can come next once certain atoms are matched: a few candidates, the one with the shortest
 * list at run time is taken. */
enum { MAX_CHOICES = 3, MAX_PLANS = 96 };
typedef struct plan {
    u32 n, done; /* atoms */
    u64 bound;   /* variables */
    step at[MAX_CHOICES];
} plan;

/* Where the last step finds what a match carries: made once per step, when it is first run. */
typedef struct emission {
    u32 npatch, ncheck;
    u32 at[EG_MAX_VARS], column[EG_MAX_VARS]; /* positions filled from a column of the index */
    u32 check[4]; /* column | earlier column that it must equal << 8, NO_COLUMN: its register */
} emission;
enum { NO_COLUMN = 255 };

/* A step up seen as one into an index by child: the atom with its class where the known child is. */
typedef struct turned {
    const step *of; /* NULL: none yet */
    u32 slot, kids[4];
    step st;
    eg_atom atom;
} turned;

typedef struct machine {
    eg *g;
    eg_search *s;
    const eg_rule *r;
    const eg_headrow *heads;
    u32 w; /* watermark */
    bool need_new;
    u32 nplans, swaps;
    u64 ticks, due; /* work so far, when to poll next */
    i64 variant;
    u32 regs[EG_MAX_VARS];
    u32 nodes[EG_MAX_ATOMS];
    /* atoms without variables below them, found before the search */
    bool fixed[EG_MAX_ATOMS];
    u32 fixed_swaps;
    u64 work[EG_MAX_ATOMS]; /* spent on lists where a pair index would answer */
    eg_pair_index pair[EG_MAX_ATOMS];
    const eg_class_index *index[EG_MAX_ATOMS]; /* that answers for the atom; NULL: ask */
    const eg_class_index *up[EG_MAX_ATOMS][4]; /* by child */
    turned turned[EG_MAX_ATOMS];
    const step *emits[EG_MAX_ATOMS]; /* the step that the atom's emission is for */
    emission emission[EG_MAX_ATOMS];
    plan plans[MAX_PLANS];
} machine;

/* ---- rows.c -------------------------------------------------------------------------------- */

/* A block with room for a row, which is not taken yet; NULL with g->fail. */
eg_block *eg_row_block(eg *g, eg_matches *m);
/* Writes a match for each tuple of a range of the index: the last step, where nearly all matches are
 * made. True to stop. */
bool eg_emit(machine *m, const step *st, const eg_atom *a, const eg_class_index *x, u32 from, u32 to);

/* ---- plan.c -------------------------------------------------------------------------------- */

/* A node of the plan for the atoms that are not `done`, given the bound variables; 0 when none is
 * left. `first`: classes bound now are those of fixed atoms. */
u32 eg_plan_make(machine *m, u32 done, u64 bound, bool first);
/* The plan node after a step; 0: every atom is matched. */
u32 eg_plan_after(machine *m, u32 p, step *st);
/* Cost class of running atom k next; fills the step. */
u64 eg_plan_atom(machine *m, u32 k, u64 bound, bool first, u8 filter, step *st);
/* Entries of a log since a watermark. */
u32 eg_delta_size(const eg_log *l, u32 w);

/* Which tuples atom k takes in a variant; < 0: all matches. */
static inline u8 filter_of(u32 k, i64 variant)
{
    return variant < 0 || k > variant ? TUPLE_ANY : k == variant ? TUPLE_NEW : TUPLE_OLD;
}

#endif
