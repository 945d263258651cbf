/* What the files of the tensor graph share. */
#ifndef EQF_RULES_GRAPH_IMPL_H
#define EQF_RULES_GRAPH_IMPL_H

#include "egraph/egraph.h"
#include "rules/graph.h"

/* An engine operator. */
typedef struct rl_operator {
    ir_op op; /* IR_NO_OP: none of ours */
    ir_reducer reducer;
} rl_operator;

/* What an e-node carries, interned: id 0 is nothing. `attr` holds atoms and names of `own`. */
typedef struct rl_payload {
    ir_attr attr;
    u64 axis, to, par, *each;
} rl_payload;

typedef struct rl_leaf {
    ir_op op; /* IR_in, IR_const, IR_iota, IR_lambda, IR_reducer; IR_NO_OP: no leaf of ours */
    ir_attr attr;
    rl_type type;
    i64 input; /* of IR_in: port */
} rl_leaf;

/* A rule as the engine runs it. */
typedef struct rl_armed {
    rl_graph *g;
    const rl_rule *rule;
} rl_armed;

struct rl_graph {
    arena *a;
    eqf_ctx *ctx;
    const ir_program *p;
    ir_program *own; /* the atoms of p under the same ids, further ones, splits; closed terms */
    rl_graph_options options;
    dtype real;
    i64 n_atoms, extent[64];
    ir_atom atom[64];
    u64 ragged;         /* parts of a split with dead lanes */
    i64 split_count;    /* splits of `own` that reductions follow: those asked for */
    VEC(u8) atom_index; /* by atom: number + 1 */
    VEC(const rl_closed *) closed;
    eqf_lang *lang;
    eqf_egraph *engine;
    eqf_rules *rules;
    u32 type_column;
    VEC(rl_operator) operators; /* by engine operator */
    VEC(rl_payload) payloads;
    VEC(rl_leaf) leaves; /* by head of the symbol */
    rl_armed *armed;
    VEC(const struct rl_generated *) generated;
    str moving_text, tiling_text;
    eqf_rules *tiling;       /* `rules` are those of whole tensors: files', and index maps moving */
    VEC(eqf_rules *) loaded; /* all ever: explanations refer to earlier sets too */
    const char *rules_text, *tiled_rules_text; /* those of files, as the engine reads them */
    eqf_class *classes;      /* by term */
    struct rl_terms *hints;   /* for proofs: where to look, never what to believe */
    VEC(u32) chains;          /* reductions that were repaired, terms of `hints` */
    VEC(u64) tried;           /* hashes of those that were looked at */
    VEC(eqf_class) readouts;  /* of those that became operators over a loop's results */
    bool reads_payloads; /* text may name payloads that are not there yet */
    bool has_conflict;
    rl_type conflict[2];
    const char *conflict_rule; /* that was being applied, or NULL */
};

/* Throws with the diagnostics that the engine left. */
void rl_must(rl_graph *g, eqf_status status);
u64 rl_mask(const rl_graph *g, ir_atoms set);
/* Ascending by number. */
ir_atoms rl_unmask(const rl_graph *g, arena *a, u64 mask);
u32 rl_payload_id(rl_graph *g, ir_op op, ir_attr attr);
/* The payload of reduce or matmul over a set; of view, comb, run or reduce over axes. */
u32 rl_axis_payload(rl_graph *g, ir_op op, u64 axis);
u32 rl_par_payload(rl_graph *g, ir_op op, u64 axes);
/* Gives the atom of `own` a bit in the masks. Throws EQF_E_LIMIT for the 65th. */
void rl_number_atom(rl_graph *g, ir_atom d);
dtype rl_graph_dtype(const rl_graph *g, dtype t);
/* Canonical, sorted, each once: how a loop has its operands. Returns how many. */
i64 rl_component_set(const rl_graph *g, eqf_class *comps, i64 n);
eqf_head rl_operator_head(rl_graph *g, ir_op op, ir_reducer reducer, i64 arity, u32 payload);
eqf_head rl_number_head(rl_graph *g, dtype t, f64 value);
/* Makes the number with this text a leaf, when there is one. */
void rl_add_number(rl_graph *g, const char *text);
const rl_leaf *rl_leaf_of(const rl_graph *g, eqf_head head);
eqf_head rl_leaf_head(rl_graph *g, const char *name, rl_leaf leaf);
eqf_head rl_const_head(rl_graph *g, const ir_node *node);
eqf_head rl_iota_head(rl_graph *g, ir_atom k);
eqf_head rl_input_head(rl_graph *g, i64 input);
rl_label rl_label_of(const rl_graph *g, ir_op op, ir_reducer reducer, u32 payload);
rl_label rl_node_label(const rl_graph *g, eqf_head head);
const char *rl_operator_name(arena *a, ir_op op, ir_reducer reducer);
u32 rl_payload_of_text(rl_graph *g, const sx *const *keywords, i64 n); /* 0: none such */
u32 rl_set_payload(rl_graph *g, const rl_label *label); /* of :par or :axis, whichever it has */
/* `kind`: of the variable that it is bound to. */
void rl_bind_payload(const rl_graph *g, u8 kind, u32 payload, rl_binding *b);
/* Are the values whole where the rule is about whole tensors, and the sets of the kind it says? */
bool rl_states_fit(const rl_graph *g, const rl_rule *r, const rl_env *env);
/* Have the variables dtypes that the rule is for, and are its numbers what it says? */
bool rl_dtypes_fit(const rl_rule *r, const rl_env *env);
/* Runs rules to saturation; throws as rl_graph_saturate. */
eqf_run_report rl_run(rl_graph *g, const eqf_rules *rules, const eqf_schedule *schedule);
/* Loads the admitted rules into the engine (arm.c). */
void rl_arm(rl_graph *g);
/* An atom of `own` for what is made of others, not numbered yet: one that the program declares under
 * this name, after `after`, and does not use, or a new one. */
ir_atom rl_part_atom(rl_graph *g, ir_atom after, const char *name, i64 extent);
/* Adds e-nodes: what rl_build needs; `user` is the graph. */
u32 rl_add_node(void *user, const rl_label *l, u32 map, const u32 *kids, i64 n);

/* ---- rules that operators' rows imply (transfer.c, generate.c, tile.c) -------------------------
 */

/* An e-node or term with its operands. */
typedef struct rl_shape {
    ir_op op;
    ir_reducer reducer;
    u32 payload;
    const rl_built *kids;
    i64 n;
} rl_shape;
/* How an operator passes what stands above it on to its operands. */
typedef enum rl_transfer {
    RL_NO_TRANSFER, /* it is no operator of whole tensors */
    RL_STOPS,       /* works on whole values only: its operands are stored, and so is its result */
    RL_POINTWISE,
    RL_REDUCES,
    RL_MULTIPLIES,
    RL_GATHERS, /* of its first operand the atoms :axis are whole */
    RL_MOVES    /* an index map, which itself moves towards inputs */
} rl_transfer;
rl_transfer rl_transfer_of(ir_op op);
/* `outer` over `inner`, passed on to the operands of `inner`: a view or an index map. With the
 * outer operator IR_NO_OP the value has no atoms: a reduction of it is cut all the same. What is
 * contracted is cut, or with `keeps_whole` not. 0 when it does not pass. */
u32 rl_pass_on(rl_graph *g, const rl_builder *b, ir_op outer, u32 outer_payload, bool keeps_whole,
               const rl_shape *inner);
/* Can tiles of the value be read, whatever else computes them? */
bool rl_is_load(const rl_type *t);

/* Reduces over the parts of a split atom, the inner one first. 0 when the operator is no reduction
 * over the atom. */
u32 rl_split_reduction(rl_graph *g, const rl_builder *b, i64 split, const rl_shape *inner);

/* A generated rule; what it does is found from the two operators. */
typedef struct rl_generated {
    rl_graph *g;
    const char *name;
    ir_op outer, op; /* outer: view, rename, slice, splitdim, or none */
    i64 split;       /* outer none: index of the split of `own` + 1, or 0 */
    bool keeps_whole;
    ir_reducer reducer;
    eqf_op engine_op; /* of `op` with the reducer */
    i64 arity;
    bool has_payload;
} rl_generated;
/* Generates the rules for the operators and splits that the graph knows and has none for yet;
 * g->rules and g->tiling are then complete. */
void rl_generate(rl_graph *g);
/* Both as one set. */
eqf_rules *rl_all_rules(rl_graph *g);
/* Tiles the outputs by a set of rules that holds those of g->tiling. */
eqf_run_report rl_tile_with(rl_graph *g, const eqf_rules *rules, const eqf_schedule *schedule);
/* Judges of their steps and guards; false when no generated rule has this name. */
bool rl_generated_step(rl_graph *g, const char *reason, const char *left, const char *right,
                       eqf_verdict *out);
bool rl_generated_guard(rl_graph *g, const char *name, const char *const *args, size_t n,
                        eqf_verdict *out);

/* ---- sums of products as one (join.c) -----------------------------------------------------------
 */

/* The payload of (concat ... :axis (K L) :to K+L), with the atom K+L; 0: there is no room for one. */
u32 rl_joint_payload(rl_graph *g, ir_atom k, ir_atom l);
/* Adds the rule's text, unless only exact rules are admitted. */
void rl_generate_joining(rl_graph *g, str *out);
/* Judges; false when it is not this rule's. */
bool rl_joining_step(rl_graph *g, const char *reason, const char *left, const char *right,
                     eqf_verdict *out);
bool rl_joining_guard(const char *guard);

/* ---- programs in (enter.c, closed.c) ----------------------------------------------------------
 */

/* Adds the terms that the outputs of the graph's program need. */
void rl_enter(rl_graph *g);
/* Atoms and splits of `from` under the same ids in the empty program `to`. */
void rl_copy_atoms(ir_program *to, const ir_program *from);
/* A lambda or reducer of `from` as a term of `to`, whose atoms of the same name it uses; floats
 * become `real` (DT_NONE: stay); unordered operands are sorted, so that lambdas which differ in
 * nothing else are one. None when `to` lacks an atom. */
ir_term rl_copy_closed(ir_program *to, const ir_program *from, ir_term t, dtype real);
/* The atoms of `to` with the names and extents of a list of `from`'s; false when it lacks one. */
bool rl_atoms_by_name(ir_program *to, const ir_program *from, ir_atoms list, ir_atoms *out);
/* The atoms of the graph for a list of the program's, itself or by name; false when it lacks one. */
bool rl_graph_atoms(const rl_graph *g, const ir_program *p, ir_atoms *list);
/* The leaf that stands for a closed term of `own`. */
eqf_head rl_closed_head(rl_graph *g, ir_term t);

/* ---- how values are stored (stored.c) ---------------------------------------------------------
 */

/* By canonical class, the half type to which the program rounds its value before every reader, or DT_NONE. */
u8 *rl_stored_dtypes(const rl_graph *g, arena *a);
typedef struct rl_choice {
    eqf_node (*node)(void *user, eqf_class c); /* none: nothing is chosen there */
    bool (*is_stored)(void *user, eqf_class c); /* tiles that are stored, and read again by all */
    void *user;
} rl_choice;
/* By class of the form that a choice makes, tiles too: the half type in which its value is stored, or
 * DT_NONE: as it is computed. */
u8 *rl_form_dtypes(const rl_graph *g, arena *a, const rl_choice *choice);
/* Values below an output that are rounded to a half type, itself left out: a port rounds anyway. */
typedef struct rl_roundings {
    i64 f16, bf16;
} rl_roundings;
rl_roundings rl_roundings_below(arena *a, const ir_program *p, ir_term out);

/* ---- terms outside of the e-graph (terms.c) ---------------------------------------------------
 */

typedef struct rl_record {
    rl_type type;
    ir_op op; /* IR_NO_OP: the leaf `head` */
    ir_reducer reducer;
    u32 payload, spelling;
    eqf_head head;
    const u32 *kids;
    i64 n;
} rl_record;
typedef struct rl_terms {
    rl_graph *g;
    arena *a;
    VEC(rl_record) at; /* [0]: no term */
    u32 *slots;
    i64 slot_count;
} rl_terms;
/* Everything lives in `a`. Functions that make a term return 0 when it has no type. */
rl_terms *rl_terms_new(rl_graph *g, arena *a);
u32 rl_terms_leaf(rl_terms *t, eqf_head head);
u32 rl_terms_make(rl_terms *t, ir_op op, ir_reducer reducer, u32 payload, const u32 *kids, i64 n);
/* A term that is not looked into; equal numbers are one term. */
u32 rl_terms_opaque(rl_terms *t, rl_type type, u32 number);
/* 0 also for text that is no term of the graph's language. */
u32 rl_terms_read(rl_terms *t, const char *text);
/* The term `id` of the items (t ID HEAD CHILD ...) among list->at[from ... to - 1]; children have
 * earlier items. 0 for none. */
u32 rl_terms_read_table(rl_terms *t, const sx *list, i64 from, i64 to, i64 id);
/* A term of another table, 0 for none. */
u32 rl_terms_copy(rl_terms *t, const rl_terms *from, u32 id);
/* Equal but for the order of unordered operands. */
bool rl_terms_same(const rl_terms *t, u32 x, u32 y);

/* Judges the steps "loop.N" and "bundle" of a proof from their texts (fuse_prove.c). */
eqf_verdict rl_judge_fusion(rl_graph *g, const char *reason, const char *left, const char *right);

#endif
