/* The e-graph engine: equality saturation over any language of operators.
 *
 *     eqf_lang *lang; eqf_egraph *g; eqf_rules *rules; eqf_class root; eqf_run_report report;
 *     eqf_lang_new(ctx, &lang);
 *     eqf_rules_load(lang, "my.rules", eqf_text_of("(rule c (+ ?a ?b) => (+ ?b ?a))"), &rules);
 *     eqf_egraph_new(lang, NULL, &g);
 *     eqf_add_text(g, eqf_text_of("(+ x 1)"), &root);
 *     eqf_run(g, rules, NULL, &report);                 // report.stop says why it ended
 *
 * Ownership: a language belongs to a context, everything else to a language; free in reverse
 * order. Results (matches, proofs, extractions) are freed by the caller.
 * Errors: every fallible call returns a status and appends a diagnostic to the context; an id that
 * does not exist is EQF_E_ARGUMENT, and where no status is returned the answer is 0, NULL or "". (What
 * reads a head or an e-node believes its id.) A call
 * that returns EQF_E_NO_MEMORY or EQF_E_LIMIT leaves the e-graph as it was before, except
 * eqf_rebuild and eqf_run, which leave it sound and may be called again.
 * Determinism: same calls, same bytes out; no result depends on addresses or on time, the time
 * budget excepted.
 * Threads: one context, one thread. Two e-graphs of two contexts are independent. */
#ifndef EQF_EGRAPH_H
#define EQF_EGRAPH_H

#include "eqf_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct eqf_lang eqf_lang;
typedef struct eqf_egraph eqf_egraph;
typedef struct eqf_rules eqf_rules;
typedef struct eqf_proof eqf_proof;

/* Ids; i = 0 is "none". A class id stays valid for the life of its e-graph: it names whatever class
 * its term is in now. */
typedef struct eqf_class { uint32_t i; } eqf_class;
typedef struct eqf_node { uint32_t i; } eqf_node;
typedef struct eqf_head { uint32_t i; } eqf_head; /* operator and payload */
typedef struct eqf_op { uint32_t i; } eqf_op;

typedef struct eqf_text {
    const char *at;
    size_t n;
} eqf_text;
eqf_text eqf_text_of(const char *s); /* NUL-terminated */

/* ---- language ------------------------------------------------------------------------------ */

enum { EQF_COMMUTATIVE = 1 }; /* two operands, stored unordered: no rule needed, half the e-nodes */

/* A language accepts any operator of any arity until it is closed. */
eqf_status eqf_lang_new(eqf_ctx *ctx, eqf_lang **out);
void eqf_lang_free(eqf_lang *lang);
eqf_ctx *eqf_lang_ctx(const eqf_lang *lang);
/* Declares an operator, or finds it. Errors: flags that disagree with an earlier declaration. */
eqf_status eqf_lang_op(eqf_lang *lang, const char *name, unsigned arity, unsigned flags,
                       eqf_op *out);
/* Terms read from now on may use declared operators only (leaves are always allowed). */
void eqf_lang_close(eqf_lang *lang);
eqf_status eqf_head_of(eqf_lang *lang, eqf_op op, uint32_t payload, eqf_head *out);
eqf_status eqf_head_symbol(eqf_lang *lang, eqf_text name, eqf_head *out);
/* Numbers compare by value: 1 and 1.0 are one head, -0 is 0, every NaN is one NaN. */
eqf_status eqf_head_int(eqf_lang *lang, int64_t value, eqf_head *out);
eqf_status eqf_head_real(eqf_lang *lang, double value, eqf_head *out);
eqf_op eqf_head_op(const eqf_lang *lang, eqf_head head);
uint32_t eqf_head_payload(const eqf_lang *lang, eqf_head head);
unsigned eqf_head_arity(const eqf_lang *lang, eqf_head head);
/* Name of the operator; of the leaf for a symbol; the spelling for a number. Owned by `lang`. */
const char *eqf_head_name(const eqf_lang *lang, eqf_head head);
bool eqf_head_is_symbol(const eqf_lang *lang, eqf_head head);
/* Is it a number? Then *value is it as a double, and *integer it exactly if *is_int. */
bool eqf_head_is_number(const eqf_lang *lang, eqf_head head, double *value, int64_t *integer,
                        bool *is_int);

/* ---- e-graph ------------------------------------------------------------------------------- */

typedef struct eqf_limits {
    int64_t iterations; /* of one eqf_run; < 0: none */
    int64_t nodes;      /* visible e-nodes; < 0: none */
    int64_t bytes;      /* everything the e-graph and a running search hold; < 0: none */
    double seconds;     /* of one eqf_run; < 0: none */
} eqf_limits;
eqf_limits eqf_limits_default(void); /* 30 iterations, 10,000 e-nodes, 5 s, 1 GiB */
eqf_limits eqf_limits_none(void);

typedef struct eqf_options {
    eqf_limits limits;
    bool explain;                /* keep why each union was made */
    bool (*cancelled)(void *user); /* polled as the limits are; may be NULL */
    void *user;
} eqf_options;

/* NULL options: the defaults. */
eqf_status eqf_egraph_new(eqf_lang *lang, const eqf_options *options, eqf_egraph **out);
void eqf_egraph_free(eqf_egraph *g);
eqf_lang *eqf_egraph_lang(const eqf_egraph *g);
void eqf_egraph_set_limits(eqf_egraph *g, eqf_limits limits);

eqf_status eqf_add_text(eqf_egraph *g, eqf_text term, eqf_class *out);
eqf_status eqf_add(eqf_egraph *g, eqf_head head, const eqf_class *kids, size_t n, eqf_class *out);
/* Adds the e-node to class `into`: as eqf_add and eqf_union, without spending a class. */
eqf_status eqf_add_into(eqf_egraph *g, eqf_class into, eqf_head head, const eqf_class *kids,
                        size_t n, eqf_text reason, bool *changed);
/* `reason` names the axiom in explanations. */
eqf_status eqf_union(eqf_egraph *g, eqf_class a, eqf_class b, eqf_text reason, bool *changed);
/* Adds both terms and unites them; explanations cite the axiom with exactly these terms. */
eqf_status eqf_union_text(eqf_egraph *g, eqf_text left, eqf_text right, eqf_text reason,
                          bool *changed);
/* For analyses that evaluate: unites the class of e-node n with the leaf `leaf`, because n's operator
 * applied to the leaves `kid_leaves` (one per child, each present and in that child's class; where
 * explanations are kept this is checked) is `leaf`. Adds the leaf. */
eqf_status eqf_union_folded(eqf_egraph *g, eqf_node n, const eqf_head *kid_leaves, eqf_head leaf,
                            eqf_text reason, bool *changed);
/* Restores congruence and the analyses. Cost follows what changed since the last call. */
eqf_status eqf_rebuild(eqf_egraph *g);
eqf_class eqf_find(const eqf_egraph *g, eqf_class c);
/* The class of a term that is present (hidden e-nodes included), else 0. Adds nothing. */
eqf_status eqf_lookup_text(eqf_egraph *g, eqf_text term, eqf_class *out);
eqf_class eqf_lookup(const eqf_egraph *g, eqf_head head, const eqf_class *kids, size_t n);
/* Hidden e-nodes are neither matched, extracted nor counted, but adding them finds their class. */
eqf_status eqf_hide(eqf_egraph *g, eqf_node n);

typedef struct eqf_size {
    int64_t nodes;      /* visible e-nodes */
    int64_t classes;    /* classes */
    int64_t bytes;      /* held by the e-graph: e-nodes, hash-cons, indexes, class columns */
    int64_t peak_bytes; /* most held at one time, match buffers included */
} eqf_size;
eqf_size eqf_egraph_size(const eqf_egraph *g);

/* Walks the classes (each canonical one, in order of id) and the e-nodes of a class, dead ones
 * skipped, hidden ones included. Start with 0; 0 at the end. */
eqf_class eqf_next_class(const eqf_egraph *g, eqf_class c);
eqf_node eqf_next_node(const eqf_egraph *g, eqf_class c, eqf_node n);
eqf_head eqf_node_head(const eqf_egraph *g, eqf_node n);
eqf_class eqf_node_class(const eqf_egraph *g, eqf_node n);
/* Child i, i < arity; canonical after a rebuild. */
eqf_class eqf_node_child(const eqf_egraph *g, eqf_node n, unsigned i);
bool eqf_node_hidden(const eqf_egraph *g, eqf_node n);

/* Checks every invariant: O(size). EQF_E_INTERNAL and a diagnostic when one is broken. */
eqf_status eqf_check(eqf_egraph *g);
/* 128-bit digest of the e-graph up to the naming of classes, as 32 hexadecimal digits. */
eqf_status eqf_digest(eqf_egraph *g, char out[33]);

/* ---- analyses ------------------------------------------------------------------------------ */

enum { EQF_INTO_CHANGED = 1, EQF_FROM_DIFFERED = 2, EQF_CONFLICT = 4 };

/* Data of fixed size per class. `merge` is a join: commutative, idempotent, associative. It returns
 * the bits above; EQF_CONFLICT makes the call that merged fail with EQF_E_CONTRADICTION.
 * `modify` may add, union and hide; it is called in eqf_rebuild for classes whose data or e-nodes
 * are new. */
typedef struct eqf_analysis {
    const char *name;
    size_t size;
    void (*make)(void *user, eqf_egraph *g, eqf_node n, void *out);
    unsigned (*merge)(void *user, eqf_egraph *g, void *into, const void *from);
    eqf_status (*modify)(void *user, eqf_egraph *g, eqf_class c); /* may be NULL */
    void *user;
} eqf_analysis;
enum { EQF_MAX_ANALYSES = 8 };
/* Before the first term. *index is what eqf_data takes. */
eqf_status eqf_analysis_add(eqf_egraph *g, const eqf_analysis *analysis, unsigned *index);
/* Data of a class; valid until the next change of the e-graph. NULL: no such analysis or class. */
const void *eqf_data(const eqf_egraph *g, unsigned index, eqf_class c);
/* Joins `data` into the data of class c. */
eqf_status eqf_data_join(eqf_egraph *g, unsigned index, eqf_class c, const void *data);

/* ---- rules --------------------------------------------------------------------------------- */

/* A guard sees the values of its arguments, classes in the order of the text. */
typedef struct eqf_guard {
    const char *name;
    unsigned arity;
    bool (*holds)(void *user, const eqf_egraph *g, const eqf_class *args);
    void *user;
    /* Can it turn true while its classes stay? (It reads analysis data.) Then a change of the data
     * of an argument makes the match new again. */
    bool reads_data;
} eqf_guard;
/* The right side of a (dynamic …) rule: `args` are the variables of the left side in order of
 * first appearance (of a keyword's variable, the payload instead of a class); sets *out to the
 * class to be united with the root, or leaves it 0. */
typedef struct eqf_dynamic {
    const char *name;
    eqf_status (*apply)(void *user, eqf_egraph *g, eqf_class root, const eqf_class *args,
                        unsigned n, eqf_class *out);
    void *user;
} eqf_dynamic;
eqf_status eqf_guard_add(eqf_lang *lang, const eqf_guard *guard);
eqf_status eqf_dynamic_add(eqf_lang *lang, const eqf_dynamic *dynamic);

/* Rules and rule sets of `source`; every error is reported as FILE, LINE:COLUMN, reason. */
eqf_status eqf_rules_load(eqf_lang *lang, const char *file, eqf_text source, eqf_rules **out);
void eqf_rules_free(eqf_rules *rules);
size_t eqf_rules_count(const eqf_rules *rules);
const char *eqf_rule_name(const eqf_rules *rules, size_t i);
/* Its numeric class as written after :fp (exact, reassoc, approx); "" when it has none. */
const char *eqf_rule_class(const eqf_rules *rules, size_t i);

typedef enum eqf_match_mode { EQF_MATCH_AUTO, EQF_MATCH_DELTA, EQF_MATCH_FULL } eqf_match_mode;
typedef enum eqf_scheduler { EQF_BACKOFF, EQF_SIMPLE } eqf_scheduler;
typedef enum eqf_stop {
    EQF_STOP_SATURATED, EQF_STOP_GOAL, EQF_STOP_ITERATIONS, EQF_STOP_NODES, EQF_STOP_BYTES,
    EQF_STOP_TIME, EQF_STOP_CANCELLED, EQF_STOP_ERROR
} eqf_stop;
const char *eqf_stop_name(eqf_stop stop);

typedef struct eqf_schedule {
    eqf_match_mode match;
    eqf_scheduler scheduler;
    int64_t backoff_limit; /* 0: 1,000 */
    int64_t backoff_ban;   /* 0: 5 */
    /* Tested before each iteration; true stops with EQF_STOP_GOAL. May be NULL. Both callbacks may
     * change the e-graph, which is rebuilt then and searched again. */
    bool (*goal)(void *user, eqf_egraph *g);
    /* Called after each iteration's rebuild. May be NULL. */
    void (*after)(void *user, eqf_egraph *g, int64_t iteration);
    void *user;
} eqf_schedule;

typedef struct eqf_rule_stats {
    int64_t searches, matches, applied, nodes, unions, bans;
    double seconds;
} eqf_rule_stats;
typedef struct eqf_report {
    eqf_stop stop;
    int64_t iterations; /* the last, empty one included */
    int64_t matches;    /* found in the whole run */
    bool changed;       /* did the run add an e-node or make a union? */
    double search_s, apply_s, rebuild_s, total_s;
} eqf_run_report;
/* NULL schedule: backoff, automatic match mode. What rules have been searched up to is remembered
 * by the e-graph, so a second run continues. */
eqf_status eqf_run(eqf_egraph *g, const eqf_rules *rules, const eqf_schedule *schedule,
                   eqf_run_report *out);
/* Totals of a rule over all runs on this e-graph; zero if it never ran. */
eqf_rule_stats eqf_rule_statistics(const eqf_egraph *g, const eqf_rules *rules, size_t i);

/* Substitutions of a pattern over all classes, or in class `in` when it is not 0; at most `limit`
 * (< 0: all). */
eqf_status eqf_match_count(eqf_egraph *g, eqf_text pattern, eqf_class in, int64_t limit,
                           int64_t *out);

/* ---- undo ---------------------------------------------------------------------------------- */

typedef struct eqf_mark { uint32_t i; } eqf_mark;
/* Opens a journal. Marks nest; undo and keep close the given one and those inside it. */
eqf_status eqf_mark_open(eqf_egraph *g, eqf_mark *out);
eqf_status eqf_undo(eqf_egraph *g, eqf_mark mark);
eqf_status eqf_keep(eqf_egraph *g, eqf_mark mark);

/* ---- several e-graphs ---------------------------------------------------------------------- */

/* A new e-graph with the terms and equalities that both have (meet) or either has (join). */
eqf_status eqf_meet(eqf_egraph *a, eqf_egraph *b, eqf_egraph **out);
eqf_status eqf_join(eqf_egraph *a, eqf_egraph *b, eqf_egraph **out);

/* ---- extraction ---------------------------------------------------------------------------- */

typedef enum eqf_algo { EQF_TREE, EQF_DAG, EQF_EXACT } eqf_algo;
typedef struct eqf_cost {
    /* Cost of the e-node itself, at least 0 and not NaN; infinity excludes it. NULL: 1. */
    double (*of)(void *user, const eqf_egraph *g, eqf_node n);
    void *user;
    double seconds; /* of EQF_EXACT; <= 0: 10 */
} eqf_cost;
typedef struct eqf_extraction eqf_extraction;
/* Chooses one e-node for each class that the roots need. EQF_E_DATA when a root has no finite
 * choice. cost may be NULL. The extraction reads the e-graph, which must outlive it; what it chose
 * can be written until the e-graph changes. */
eqf_status eqf_extract(eqf_egraph *g, const eqf_class *roots, size_t n, const eqf_cost *cost,
                       eqf_algo algo, eqf_extraction **out);
void eqf_extraction_free(eqf_extraction *x);
/* The e-node chosen for a class; 0 if the roots do not need it. */
eqf_node eqf_chosen(const eqf_extraction *x, eqf_class c);
/* A cost that is too large for a double is the largest double. */
double eqf_tree_cost(const eqf_extraction *x, eqf_class c);
double eqf_dag_cost(const eqf_extraction *x); /* of all roots together */
typedef struct eqf_exact_report {
    double bound;       /* no solution costs less */
    bool optimal;
    int64_t explored;   /* search nodes */
} eqf_exact_report;
eqf_exact_report eqf_extraction_report(const eqf_extraction *x);
/* The chosen term of class c, shared parts written once with (let …) when `shared`; NUL-terminated,
 * owned by x. EQF_E_LIMIT when it would have more than `limit` characters (0: 1,000,000). */
eqf_status eqf_extraction_text(eqf_extraction *x, eqf_class c, bool shared, size_t limit,
                               const char **out);

/* extraction-gym JSON. The e-graph, its roots (the classes named in `root_eclasses`) and its costs,
 * kept as the payload of each e-node, belong to the gym. */
typedef struct eqf_gym eqf_gym;
eqf_status eqf_read_json(eqf_ctx *ctx, const char *file, eqf_text source, eqf_gym **out);
void eqf_gym_free(eqf_gym *gym);
eqf_egraph *eqf_gym_egraph(const eqf_gym *gym);
const eqf_class *eqf_gym_roots(const eqf_gym *gym, size_t *n);
/* The class id of root i as the file spells it. */
const char *eqf_gym_root_name(const eqf_gym *gym, size_t i);
eqf_cost eqf_gym_cost(const eqf_gym *gym);
/* NULL cost: 1 an e-node; infinity has no place in a file. The text is NUL-terminated; free it with eqf_text_free. */
eqf_status eqf_write_json(eqf_egraph *g, const eqf_class *roots, size_t n, const eqf_cost *cost,
                          char **out);
/* The e-graph as re-readable text: a class a line, its e-nodes in canonical order. */
eqf_status eqf_dump(eqf_egraph *g, char **out);
/* Graphviz: a box a class. */
eqf_status eqf_dot(eqf_egraph *g, char **out);
void eqf_text_free(eqf_ctx *ctx, char *text);

/* ---- explanations -------------------------------------------------------------------------- */

typedef enum eqf_form {
    EQF_SHARED, /* a table of terms and steps, each once: linear in the proof */
    EQF_FLAT    /* a list of whole terms, each made from the one before by one step */
} eqf_form;
/* Why two terms are equal; both must be present and in one class (EQF_E_ARGUMENT). The e-graph must
 * have been made with options.explain. Here and in eqf_proof_check a term may also be written with
 * its parts numbered: (shared-term (t 1 HEAD CHILD ...) (t 2 ...) ... ID), children earlier ids. */
eqf_status eqf_explain(eqf_egraph *g, eqf_text a, eqf_text b, eqf_proof **out);
/* Shortens a proof of this e-graph: replaces detours found by a bounded search among its own steps and the e-graph's
 * axioms and congruences. Never lengthens it. */
eqf_status eqf_proof_reduce(eqf_egraph *g, eqf_proof *proof);
void eqf_proof_free(eqf_proof *proof);
/* Terms of the flat form, without building it; saturates. */
int64_t eqf_proof_length(const eqf_proof *proof);
/* Rules and reasons along the flat form, in order; congruence adds none. Owned by the proof.
 * EQF_E_LIMIT when there are more than `limit`. */
eqf_status eqf_proof_reasons(eqf_proof *proof, size_t limit, const char *const **out, size_t *n);
/* EQF_E_LIMIT when the flat form has more than 16 MiB of text, or premises of premises 1,000 deep.
 * Free with eqf_text_free. */
eqf_status eqf_proof_text(eqf_proof *proof, eqf_form form, char **out);

/* What the independent checker may take for granted. `steps` judges what no rule can: an analysis
 * or a dynamic right side named `reason` claims a = b. NULL accepts none. Guards: `guard` judges a
 * guard from the instantiated texts; NULL lists all of them as assumptions. Long terms come as
 * shared-terms, see eqf_explain. */
typedef enum eqf_verdict { EQF_REFUSED, EQF_HOLDS, EQF_ASSUMED } eqf_verdict;
typedef struct eqf_checking {
    eqf_text rules;       /* every rule that a step may cite, as text */
    eqf_text axioms;      /* (axiom REASON A B) … */
    eqf_text commutative; /* names of commutative operators, separated by blanks */
    eqf_verdict (*step)(void *user, const char *reason, const char *a, const char *b);
    eqf_verdict (*guard)(void *user, const char *name, const char *const *args, size_t n);
    void *user;
} eqf_checking;
typedef struct eqf_check_report {
    int64_t steps, assumptions;
} eqf_check_report;
/* Replays `proof` (either form) and compares its claim with a = b. EQF_E_MISMATCH and a diagnostic
 * with line:column when a step does not hold. */
eqf_status eqf_proof_check(eqf_ctx *ctx, eqf_text proof, eqf_text a, eqf_text b,
                           const eqf_checking *checking, eqf_check_report *out);

/* ---- suites -------------------------------------------------------------------------------- */

typedef struct eqf_suite_options {
    const char *const *cases; /* names of cases, of families, of any member of one ("ac-12") */
    size_t case_count;        /* 0: all */
    eqf_match_mode match;
    int64_t bytes;  /* > 0 overrides the cases' limit */
    bool proofs;    /* explain and check every goal and equality */
    int64_t repeat; /* >= 1; times are the best */
} eqf_suite_options;
typedef struct eqf_case_result {
    const char *name;
    bool passed;
    const char *stop;   /* "" when nothing was run */
    int64_t iterations, nodes, classes;
    double search_ms, apply_ms, rebuild_ms, extract_ms, total_ms;
    int64_t bytes, peak_bytes;
    const char *digest;
    const char *reason;    /* "" or the first check that failed: line, found, wanted */
    const char *reference; /* "" or what egg reached, as in the file */
    int64_t proofs, proof_steps, assumptions;
} eqf_case_result;
/* Reads a suite and runs its cases; `each` is called after each. EQF_E_PARSE: nothing was run.
 * EQF_E_MISMATCH: a case failed. EQF_E_ARGUMENT: no case of a given name. */
eqf_status eqf_suite_run(eqf_ctx *ctx, const char *file, eqf_text source,
                         const eqf_suite_options *options,
                         void (*each)(void *user, const eqf_case_result *result), void *user);

#ifdef __cplusplus
}
#endif
#endif
