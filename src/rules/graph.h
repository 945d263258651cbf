/* The tensor language on the e-graph engine: a program's terms as e-nodes, rules as the engine runs
 * them, forms back as programs.
 *
 * An e-node's operator is a row of ops.def (a reduction's with its reducer); its payload is what
 * the row carries besides operands, interned, with the sets of atoms as masks. Leaves (inputs,
 * numbers, iotas) are symbols. Commutative rows and matmul are unordered: operands align by atom,
 * so order says nothing.
 *
 * Tiled forms are e-nodes too: `loop` over the set of its components, `get`, `run`, `comp.R` over
 * its body and, when it is rolled, its transport and producers, `comp` over a reducer and leaves.
 * Lambdas and reducers are leaves that name an interned closed term. Tuples leave no e-node.
 *
 * Atoms are numbered within one graph, at most 64. Float dtypes are one: f64 if any value of the
 * program is f64, else f32. Casts between floats leave no e-node; they come back where an input, an
 * output or a stored value has another float (stored.c). Algebra is over the reals; rounding is judged
 * where kernels are.
 *
 * Each class has a type (rule.h) as data of the engine: computed for every e-node, equal throughout
 * a class. A union of different types is a contradiction and ends the run with both types named; a
 * rule that passed the loader cannot cause one. */
#ifndef EQF_RULES_GRAPH_H
#define EQF_RULES_GRAPH_H

#include "eqf_egraph.h"
#include "rules/rule.h"

/* Which cuts of a value are tried. One tile an axis is legal, so the largest cut stands for all;
 * the others are forms of their own for comparison. */
typedef enum rl_refine {
    RL_REFINE_MAXIMAL, /* along all of its axes; every contraction too */
    RL_REFINE_SUBSETS  /* an output along every set of its axes, every contraction cut and not */
} rl_refine;

typedef struct rl_graph_options {
    const rl_ruleset *rules;    /* NULL: none */
    rl_fp fp;                   /* the least exact class admitted; zeroed: exact rules only */
    bool parameters_are_inputs; /* else what depends on parameters alone is folded once */
    rl_refine refine;
    bool explain;
    eqf_limits limits;
    bool (*cancelled)(void *user); /* polled as the limits are; may be NULL */
    void *user;
} rl_graph_options;

typedef struct rl_graph rl_graph;
/* The terms that the outputs need. Lives in the arena; the program must outlive it. Throws
 * EQF_E_LIMIT when they have more than 64 atoms. */
rl_graph *rl_graph_new(arena *a, const ir_program *p, const rl_graph_options *options);
eqf_egraph *rl_graph_engine(const rl_graph *g);
/* The rules as the engine knows them, in the order of the set; those not admitted are left out. */
const eqf_rules *rl_graph_rules(const rl_graph *g);
/* What a rule did so far, in all runs; the generated ones, which tile, are among them. */
typedef struct rl_rule_count {
    const char *name;
    eqf_rule_stats stats;
} rl_rule_count;
/* The rules that ran, in the order in which they first did; how many. Allocated in `a`. */
i64 rl_graph_rule_counts(const rl_graph *g, arena *a, rl_rule_count **out);
/* Runs the rules until nothing changes or a limit is reached. Throws EQF_E_CONTRADICTION naming the
 * rule and both types. */
eqf_run_report rl_graph_saturate(rl_graph *g, const eqf_schedule *schedule);
/* The same before values are tiled, within a quarter of the e-nodes: every value has tiles, and loops
 * come on top, so that there is something to extract whatever the rules find. */
eqf_run_report rl_graph_algebra(rl_graph *g);
/* Declares a split of an atom of the graph's program into `parts` outer positions (fewer when the
 * last ones would be empty), and lets every reduction over it be done part by part: the rules, run
 * again, find what follows. Throws EQF_E_ARGUMENT for parts of fewer than two positions,
 * EQF_E_LIMIT when there are more than 64 atoms, EQF_E_UNSUPPORTED when the program itself has
 * splits. */
ir_split rl_graph_split(rl_graph *g, ir_atom atom, i64 parts);
/* The same with parts of `inner` positions, the last one of what is left. */
ir_split rl_graph_split_by(rl_graph *g, ir_atom atom, i64 inner);
/* Tiles the outputs: to every value that they need from a value cut along all its axes. Tiles are
 * computed by the operator over its operands' tiles, down to inputs and to values that have to be
 * stored. To be run after (or with) the rules; leaves the e-graph saturated unless a limit is
 * reached. */
eqf_run_report rl_graph_tile(rl_graph *g, const eqf_schedule *schedule);
/* 0 when the outputs do not need the term. */
eqf_class rl_graph_class(const rl_graph *g, ir_term t);
/* The class of a term of another program, whose inputs and atoms are the graph's of the same name;
 * 0 when no class holds it. Adds no e-node. */
eqf_class rl_graph_find(rl_graph *g, const ir_program *q, ir_term t);
rl_type rl_graph_type(const rl_graph *g, eqf_class c);
/* "f32 {M K}, K partition" */
const char *rl_graph_type_text(const rl_graph *g, arena *a, const rl_type *t);
/* Operations of one e-node, as ir_node_flops counts them (one tile an axis); 0 where the result is
 * folded once. */
f64 rl_graph_flops(const rl_graph *g, eqf_node n);

/* ---- fusion (fuse.c) --------------------------------------------------------------------------
 */

typedef enum rl_fuse_mode {
    RL_FUSE_LATE, /* repaired reductions only: which loops are one is decided when kernels are built
                   */
    RL_FUSE_NODE, /* and the bundles of the reductions that operators use */
    RL_FUSE_ALL   /* and of all others over the same axes, up to a number; for comparison */
} rl_fuse_mode;
typedef struct rl_fuse_report {
    i64 rounds, systems, repairs, bundles;
    i64 parts; /* reductions over one part of a split, freed from results over all */
    i64 iterations, matches; /* of the rules that ran between the rounds */
    eqf_stop stop;
} rl_fuse_report;
/* Puts reductions over the same axes into loops until nothing new comes, and saturates. The e-graph
 * is tiled already. Throws as rl_graph_saturate. */
rl_fuse_report rl_graph_fuse(rl_graph *g, rl_fuse_mode mode);

/* ---- forms back to programs (form.c) --------------------------------------------------------- */

typedef struct rl_extracted {
    ir_program *program;
    f64 flops; /* a run's; shared parts once */
} rl_extracted;
/* The form of least FLOPs that the algorithm finds, as a program with the ports and atoms of the
 * graph's, verified. Ties go to fewer e-nodes. */
rl_extracted rl_graph_form(rl_graph *g, arena *a, eqf_algo algo);

/* Writes chosen e-nodes as terms of a program. */
typedef struct rl_writer rl_writer;
/* A program with the graph's inputs and no outputs; choices are those of `x`, whose roots must need
 * what is written. */
rl_writer *rl_writer_new(const rl_graph *g, arena *a, const eqf_extraction *x);
ir_program *rl_writer_program(const rl_writer *w);
ir_term rl_write_class(rl_writer *w, eqf_class c);
/* The e-node itself over the choices for its children. */
ir_term rl_write_node(rl_writer *w, eqf_node n);

/* What stands for each class: an e-node of it, and whether its tiles are stored (combined into a
 * tensor, of which users read tiles). */
typedef struct rl_choices {
    eqf_node (*node)(void *user, eqf_class c);
    bool (*is_stored)(void *user, eqf_class c);
    void *user;
} rl_choices;
/* The outputs as chosen, as a program with the ports and atoms of the graph's. */
ir_program *rl_write_program(rl_graph *g, arena *a, const rl_choices *choices);

/* ---- proofs (prove.c) -------------------------------------------------------------------------
 */

/* What eqf_proof_check needs to replay a proof of this graph: its rules, and judges that type the
 * terms in the text themselves, evaluate every guard again and build computed right sides again.
 * What a guard asks beyond types (a term is constant, positive) is judged from the term; where the
 * e-graph knew it from another form it counts as an assumption. */
eqf_checking rl_graph_checking(rl_graph *g);

/* ---- derivations (derive.c) ---------------------------------------------------------------------
 */

/* Why the outputs of a form, a program with the ports of the graph's, equal those of the program: text
 * (derivation ...) in `a`. NULL, and *why_not, when the e-graph does not hold the form up to what it
 * stores. The graph has been made with `explain`, and has been searched. */
const char *rl_graph_derive(rl_graph *g, arena *a, const ir_program *form, const char **why_not);
/* Replays a derivation with the independent checker, knowing the two programs and the rules alone.
 * `derivation` was read from `text`, a file called `file`. Dims that the form splits are split first.
 * Throws EQF_E_MISMATCH with the place in it where a step does not hold; EQF_E_LIMIT. */
eqf_check_report rl_replay(arena *a, const ir_program *p, const ir_program *form,
                           const rl_graph_options *options, const char *file, const char *text,
                           i64 text_n, const sx *derivation);

#endif
