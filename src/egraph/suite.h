/* Suites: conformance cases as text (their language stands at the head of egg-suite.eqf). The
 * reader checks every case before any is run; the runner is a client of the public interface. */
#ifndef EG_SUITE_H
#define EG_SUITE_H

#include "egraph/builtins.h"
#include "egraph/rules.h"

typedef struct eg_ruleset {
    const char *name;
    const sx *form;
    i64 parent; /* index, -1 none */
    bool closed; /* it, or a parent, lists its operators */
} eg_ruleset;

/* A case with families' columns put in, nothing read yet. */
typedef struct eg_case_form {
    const char *name;
    const sx *form;
    VEC(const sx *) clauses;
} eg_case_form;

typedef struct eg_suite {
    eqf_ctx *ctx;
    arena *a;
    const char *file;
    VEC(eg_ruleset) sets;
    VEC(eg_case_form) cases;
    VEC(const sx *) families;
} eg_suite;

/* Throws EQF_E_PARSE at the first error. */
eg_suite *eg_suite_read(eqf_ctx *ctx, arena *a, const char *file, eqf_text source);
/* Adds member n of a family by its full name ("ac-12"); false when no family fits. */
bool eg_suite_member(eg_suite *s, const char *name, eg_case_form *out);
i64 eg_suite_find_set(const eg_suite *s, const char *name);

/* One e-graph of a case. */
typedef struct eg_case_graph {
    const char *name;
    eqf_egraph *g;
    VEC(const sx *) axioms; /* (union A B …) forms given to it */
    struct eg_case_graph *left, *right; /* of a meet or join */
    bool meet;
} eg_case_graph;

typedef struct eg_case_set {
    const char *name;
    eg_rule_list rules;
} eg_case_set;

/* A case ready to run. */
typedef struct eg_case {
    eg_suite *suite;
    arena *a;
    const eg_case_form *form;
    eqf_lang *lang;
    eg_builtins *builtins;
    eg_rule_list rules;
    VEC(eg_case_set) sets; /* read so far, by name */
    VEC(const char *) analyses;
    VEC(const sx *) terms;
    VEC(const sx *) roots; /* empty: the terms */
    VEC(eg_rule *) goals;
    const sx *steps;
    eqf_schedule schedule;
    eqf_limits limits;
    bool has_match, wants_trace, wants_proof, closed;
} eg_case;

/* Reads a case: language, rules, settings, and checks the shape of every clause. Throws. */
eg_case *eg_case_read(eg_suite *s, arena *a, const eg_case_form *form);
void eg_case_free(eg_case *c);
/* Rules of the rule set called `at`; throws when there is none. */
eg_rule_list *eg_case_set_named(eg_case *c, const sx *at);
/* Value of keyword `key` among the items from `from`; NULL when absent. */
const sx *eg_keyword(const sx *form, i64 from, const char *key);

#endif
