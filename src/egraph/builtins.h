/* What suites may name: four analyses, four guards, two right sides. Registered through the public
 * interface, like a caller's own; the engine knows none of them. */
#ifndef EG_BUILTINS_H
#define EG_BUILTINS_H

#include "egraph/egraph.h"

typedef struct eg_builtins {
    eqf_lang *lang;
    arena *a;
    i32 math, prop, lambda, interval; /* index of the analysis in each e-graph, -1 not in use */
    VEC(u32 *) sets;                  /* interned sets of classes: count, then members; 0 is empty */
} eg_builtins;

/* Registers guards and right sides with the language. Throws. */
eg_builtins *eg_builtins_new(eqf_lang *lang, arena *a);
bool eg_builtins_is_analysis(const char *name);
/* Adds analyses to a new e-graph, in the order given; the same for every e-graph of a language. */
eqf_status eg_builtins_attach(eg_builtins *b, eqf_egraph *g, const char *const *names, i64 n);
eqf_status eg_builtins_bound(eg_builtins *b, eqf_egraph *g, eqf_class c, f64 lo, f64 hi);
void eg_builtins_bounds(const eg_builtins *b, const eqf_egraph *g, eqf_class c, f64 *lo, f64 *hi);
/* Judges a step of an analysis or a right side from its two terms alone, for the proof checker. */
eqf_verdict eg_builtins_step(void *user, const char *reason, const char *left, const char *right);

#endif
