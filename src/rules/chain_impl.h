/* A reduction and those over the same axes that its body uses, read as a system for the repair solver:
 * what chain.c and part.c share. */
#ifndef EQF_RULES_CHAIN_IMPL_H
#define EQF_RULES_CHAIN_IMPL_H

#include "rules/fuse_impl.h"

typedef struct chain {
    rl_terms *t;
    rl_graph *g;
    arena *a;
    u64 par;
    bool is_whole; /* only what must be a leaf is one */
    const char *reason;
    /* by record */
    i64 count;
    i8 *result; /* place in the system + 1; -1: being read */
    u8 *mixed;  /* known; 1: free of results, 2: not */
    bool *leaf; /* meets a result */
    ir_term *term;
    /* the system */
    ir_program *p;
    ir_atom flat; /* the stand-in for several axes; none for one */
    u32 reduction[RL_MAX_REDUCTIONS];
    rl_reduction at[RL_MAX_REDUCTIONS];
    i64 n;
    VEC(u32) leaves;     /* records */
    VEC(ir_term) inputs; /* their terms */
    VEC(u8) signs;       /* by input port */
    rl_system system;
    rl_repair repair;
} chain;

/* Reads the reduction `term` and solves; *c otherwise zero but for t and is_whole. False: c->reason. */
bool rl_chain_solve(chain *c, u32 term);
/* Atoms of a lambda's term with the axes' own in place of their stand-in. */
ir_atoms rl_chain_atoms(const chain *c, ir_atoms set);
/* The record of what stands below the system's term of a leaf; 0: it is none. */
u32 rl_chain_leaf(const chain *c, ir_term leaf);

#endif
