/* Extraction: one e-node for each class that the roots need, always a DAG. The algorithms share the
 * table of own costs and the result; tree.c is also the start of dag.c, dag.c that of exact.c. */
#ifndef EG_EXTRACT_H
#define EG_EXTRACT_H

#include "egraph/egraph.h"

struct eqf_extraction {
    eqf_ctx *ctx;
    arena *a;
    eg *g;
    eg_state state;  /* of g, at the time */
    u32 nclass;      /* class ids at the time */
    u32 *choice;     /* by class: e-node, 0 none */
    f64 *tree_cost;  /* by class, of the chosen tree; infinity where there is none */
    u32 *roots;      /* canonical */
    u32 nroots;
    f64 *own[6];     /* by segment and index; NULL: 1 */
    f64 dag_cost;
    eqf_exact_report exact;
};

static inline f64 eg_own_cost(const eqf_extraction *x, u32 n)
{
    const f64 *own = x->own[n >> 29];
    return own ? own[n & EG_INDEX] : 1;
}
static inline u32 eg_kid(const u32 *rec, u32 n, u32 i)
{
    return rec[N_KIDS + eg_step(n) * i];
}

/* All throw. */
void eg_tree(eqf_extraction *x);
void eg_dag(eqf_extraction *x);
void eg_exact(eqf_extraction *x, f64 seconds);
/* Classes that the roots need, children before parents; count in *n. Throws EQF_E_INTERNAL on a
 * cycle, EQF_E_DATA when a class has no choice. */
u32 *eg_needed(const eqf_extraction *x, u32 *n);
/* Recomputes tree and DAG costs from the choices. */
void eg_recost(eqf_extraction *x);

#endif
