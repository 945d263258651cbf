/* Proofs in memory: a table of terms and a table of steps, each step citing older ones. */
#ifndef EG_EXPLAIN_H
#define EG_EXPLAIN_H

#include "egraph/rules.h"

typedef struct pf_term {
    u32 head, n; /* children */
    const u32 *kids;
} pf_term;

typedef enum pf_kind { PF_RULE, PF_AXIOM, PF_CONGRUENCE, PF_SWAP, PF_CHAIN } pf_kind;

/* Step references: +id proves from = to of the step, -id the reverse, 0 that a term is itself. */
typedef struct pf_step {
    pf_kind kind;
    u32 from, to;  /* terms */
    const char *reason; /* RULE, AXIOM */
    const eg_rule *rule;
    u32 conclusion;
    const u32 *values; /* RULE: term of each variable of the rule, 0 none */
    i32 *refs;         /* RULE: premises; CONGRUENCE: one a child; CHAIN: in order */
    u32 nrefs;
    i64 length; /* elementary steps in the flat form; saturates */
} pf_step;

struct eqf_proof {
    eqf_ctx *ctx;
    arena *a;
    eqf_lang *lang;
    const eg *g;         /* that it is of */
    VEC(pf_term) terms;  /* from 1 */
    u32 *term_slots;
    u32 term_mask;
    VEC(pf_step) steps; /* from 1 */
    VEC(u32) left_at;   /* by term: where a chain leaves it last; scratch of pf_chain */
    u32 from, to;
    i32 claim;
    u32 node_from, node_to; /* e-nodes of the two terms */
    i32 before, after;      /* the claim is before, path between the e-nodes, after */
};

/* All throw. */
u32 pf_term_add(eqf_proof *p, u32 head, u32 n, const u32 *kids);
/* Reference to a step that chains refs. Chains in it are spliced in, and what lies between two visits
 * of one term is dropped. */
i32 pf_chain(eqf_proof *p, u32 from, u32 to, const i32 *refs, u32 n);
u32 pf_from(const eqf_proof *p, i32 ref, u32 self);
u32 pf_to(const eqf_proof *p, i32 ref, u32 self);
i64 pf_length(const eqf_proof *p, i32 ref);

#endif
