/* The rule lab: a rule's two sides on random small typed shapes, evaluated by the reference
 * interpreter in f64. */
#ifndef EQF_RULES_LAB_H
#define EQF_RULES_LAB_H

#include "rules/rule.h"

typedef enum rl_verdict {
    RL_SOUND,     /* all instances agree */
    RL_UNSOUND,   /* one differs */
    RL_UNTESTABLE /* no instance meets the guards, or none has a finite value */
} rl_verdict;

typedef struct rl_trial {
    rl_verdict verdict;
    i64 instances;              /* that were compared */
    const char *counterexample; /* RL_UNSOUND: dims, values and both results, shrunk */
} rl_trial;

/* Compares the sides on `instances` random instances: up to five dims with distinct extents of 2 or
 * more (an index map's dims are sized to fit each other), each in or out of each variable's set in
 * every way that types and guards allow; values of both signs, sometimes zeros, or -inf, as masks
 * have, or on a coarse grid, or at the numbers that the rule has; integers also where they wrap. Where
 * one side is not finite the other must not be, nor be another infinity. Equal seeds, equal trials. */
rl_trial rl_try_rule(arena *a, const rl_rule *r, i64 instances, u64 seed);
/* The left side of a random instance as a program of f64, i64 or bool: variables are its inputs, those
 * that the instance takes for constant its parameters; what it takes for positive is an exp. NULL: this
 * seed gives no instance. */
ir_program *rl_instance(arena *a, const rl_rule *r, u64 seed);

#endif
