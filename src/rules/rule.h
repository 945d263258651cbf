/* Rewrite rules as data: what a .rules file says, checked.
 *
 *     (rule scale-leaves-matmul
 *       (matmul (mul ?x ?f) ?b :axis ?K) => (mul (matmul ?x ?b :axis ?K) ?f)
 *       :when (free ?f ?K) :fp reassoc)
 *
 * A variable stands for a term (as an operand), for a set of atoms (after :axis), for a set of axes
 * (after :par; an axis is named by the atom that it cuts), or for the whole index map of an operator
 * (after :map). Rules with :par are about values of every state; the others about whole tensors. Sets may be computed on the right and in guards from other
 * sets; a term variable there means the set of its atoms. `(extent S)` is the product of the
 * extents of S as a number. On the right, a reduction, view or combination over the empty set is its
 * operand, a product over the empty set is the elementwise one.
 *
 * The loader types every rule. A rule is a statement about each atom alone: whether an atom is in
 * each variable's set decides whether it is in either side's. So both sides are typed once over an
 * artificial universe with one atom for every way of membership, sets as bit masks; the sides
 * differ in type if and only if they differ there. (space.md §6; docs/rules.md) */
#ifndef EQF_RULES_RULE_H
#define EQF_RULES_RULE_H

#include "ir/ir.h"
#include "rules/repair.h"

enum { RL_MAX_VARS = 8, RL_MAX_PARTS = 4, RL_MAX_BITS = 14 };

/* ---- types ----------------------------------------------------------------------------------- */

enum { /* what is known of a value beyond its type; more may become known, never less */
       RL_CONSTANT = 1,    /* depends on parameters and numbers only */
       RL_IS_POSITIVE = 2, /* every element is above 0 */
       RL_IS_NUMBER = 4,   /* it is the number `number` */
       RL_INDEX = 8,       /* made of iotas and numbers only: costs nothing to compute anywhere */
       RL_LOAD = 16,       /* an input seen through index maps: a tile of it can be read */
       RL_STORED = 32,     /* the same of what an operator made that works on whole values only */
       RL_SPREAD = 64      /* constant, and far larger than what it is made of by arithmetic */
};

/* A closed lambda or reducer, as the typing of components sees it. A reducer's formals are its
 * leaves, its results those of `final`. */
typedef struct rl_closed {
    ir_term term; /* in the program of the graph's closed terms */
    bool is_reducer;
    i64 formal_count, result_count;
    const struct rl_type *formals, *results;
    /* Of each result of a reducer: bit i: leaf i reaches it; atoms of the terms on the way. */
    const u64 *leaves, *met;
} rl_closed;

typedef struct rl_type {
    u64 dims; /* the set D; bit i is atom i of the universe at hand; of a bundle, its axes :par */
    u64 axes; /* the set A; bit i is the axis that cuts atom i */
    f64 number;
    const rl_closed *closed; /* of lambdas and reducers */
    u8 dtype; /* DT_NONE: none, the operands do not fit the operator; DT_bool where there is no
                 value */
    u8 facts;
    u8 kind; /* ir_kind */
} rl_type;

/* An operator with what it carries besides operands, sets as masks. */
typedef struct rl_label {
    ir_op op;
    ir_reducer reducer;
    dtype dtype;     /* of cast, const, opaque */
    u64 axis, to;    /* the members of :axis and :to */
    const u64 *each; /* concat: the atom of each operand */
    f64 number;
    u64 par;    /* the axes :par */
    u64 ragged; /* atoms of the universe that are parts of a split with dead lanes */
    i64 result; /* of comp: :result */
} rl_label;
/* Bits of *bad: the atoms at which the operator cannot take these operands. */
rl_type rl_type_of(const rl_label *label, const rl_type *x, i64 n, u64 *bad);
/* The same where axes are involved (typing_tiled.c): operators of tiled.def and reductions over
 * axes; and what ordinary operators do with cut operands. */
void rl_type_tiled(const rl_label *label, const rl_type *x, i64 n, rl_type *out, u64 *bad);
void rl_type_spread(const rl_label *label, const rl_type *x, i64 n, rl_type *out, u64 *bad);

/* ---- rules ----------------------------------------------------------------------------------- */

typedef enum rl_var_kind { RL_VAR_TERM, RL_VAR_AXES, RL_VAR_PAR, RL_VAR_MAP } rl_var_kind;
typedef struct rl_var {
    const char *name; /* with its ? */
    u8 kind;
    ir_op map_of;  /* operator of a map */
    i64 map_parts; /* concat: operands; else 1 */
    i64 slot;      /* terms: which dtype variable */
    f64 number;    /* a number on the left is a nameless variable that must be it */
    bool is_number;
} rl_var;

typedef enum rl_set_kind {
    RL_SET_VAR, /* a set variable, or the atoms of a term variable */
    RL_SET_CUT, /* the axes of a term variable */
    RL_SET_FROM,
    RL_SET_TO,
    RL_SET_MEET,
    RL_SET_MINUS,
    RL_SET_JOIN
} rl_set_kind;
typedef struct rl_set {
    u8 kind;
    i64 var;
    const struct rl_set *a, *b;
} rl_set;

typedef enum rl_term_kind { RL_TERM_VAR, RL_TERM_OP, RL_TERM_NUMBER, RL_TERM_EXTENT } rl_term_kind;
typedef struct rl_term {
    u8 kind;
    i64 var; /* of a variable; of an operator: its map, or -1 */
    ir_op op;
    ir_reducer reducer;
    f64 number;
    const rl_set *axis; /* of reduce, matmul, tile-matmul, extent */
    const rl_set *par;  /* of view, comb; of reduce in place of `axis` */
    struct rl_term **kids;
    i64 n, slot; /* dtype variable of the value */
    u32 line, column;
} rl_term;

typedef enum rl_test {
#define GUARD(name, least, most, kind, bad, some, doc) RL_TEST_##name,
#include "rules/guards.def"
#undef GUARD
    RL_TEST_COUNT
} rl_test;
enum { RL_SETS, RL_TERMS, RL_AXES, RL_FACTOR }; /* what a guard takes */
typedef struct rl_test_row {
    const char *name;
    i8 least, most;
    u8 kind;
    const char *doc;
} rl_test_row;
const rl_test_row *rl_test_at(rl_test t);

typedef enum rl_guard_kind { RL_GUARD_TEST, RL_GUARD_AND, RL_GUARD_OR, RL_GUARD_NOT } rl_guard_kind;
typedef struct rl_guard {
    u8 kind;
    rl_test test;
    const rl_set *sets[RL_MAX_PARTS];
    i64 vars[RL_MAX_PARTS];
    f64 factor;
    struct rl_guard **kids;
    i64 n; /* sets, vars or kids */
} rl_guard;

enum { RL_FLOATS = 1, RL_INTEGERS = 2, RL_BOOLS = 4 };
enum { RL_MAX_SLOTS_DTYPE = 32 };
typedef struct rl_rule {
    const char *name, *file, *family, *doc;
    u32 line, column;
    rl_var vars[RL_MAX_VARS];
    i64 n_vars;
    rl_term *left, *right;
    const rl_guard *when; /* NULL: none */
    rl_fp fp;
    u8 kinds;                     /* dtypes that a free dtype variable takes */
    u8 slots[RL_MAX_SLOTS_DTYPE]; /* dtype of each dtype variable, DT_NONE: free */
    bool computes;                /* the right side has more than operators and variables */
    bool is_tiled;                /* it has :par, so that values may be cut */
    const sx *form, *left_text, *right_text, *when_text; /* both directions of <=> share a form */
} rl_rule;

typedef struct rl_rejected {
    const char *name, *file;
    u32 line, column;
    const char *reason;
    const char *excerpt; /* the source line, a newline, and a caret below the place */
} rl_rejected;

typedef struct rl_ruleset {
    arena *a;
    VEC(rl_rule *) rules;
    i64 shipped; /* of those, the first, which come with the product */
    VEC(rl_rejected) rejected;
} rl_ruleset;

rl_ruleset *rl_ruleset_new(arena *a);
/* Adds the rules of `text`; what is wrong with a rule goes to `rejected`. Throws EQF_E_PARSE when
 * the text is no sequence of S-expressions. */
void rl_ruleset_read(rl_ruleset *set, const char *file, const char *text, i64 n);
/* The rules that come with the product, all of them; throws EQF_E_INTERNAL if one is rejected. */
rl_ruleset *rl_ruleset_shipped(arena *a);
const rl_rule *rl_ruleset_find(const rl_ruleset *set, const char *name);
const char *rl_fp_name(rl_fp fp);
/* "=>" with both sides, then :when and :fp, on one line. */
void rl_rule_print(str *out, const rl_rule *r);
/* The rules as a page of documentation. */
void rl_ruleset_document(str *out, const rl_ruleset *set);

/* The rules that operators' rows imply: for readers (implied.c). */
typedef struct rl_implied {
    const char *name, *family, *left, *right, *when, *doc; /* "" where there is none */
    const char *source; /* the file that has it; "": it follows from an operator's row */
    rl_fp fp;
} rl_implied;
typedef VEC(rl_implied) rl_implied_list;
void rl_list_implied(arena *a, rl_implied_list *out);

/* ---- what a rule says, for given variables --------------------------------------------------- */

/* One variable's value. */
typedef struct rl_binding {
    rl_type type;           /* terms; type.dims also for sets */
    u64 part[RL_MAX_PARTS]; /* maps: the atom of each operand */
    u64 to;                 /* maps */
    u32 id;                 /* for the builder */
} rl_binding;

typedef struct rl_env {
    const rl_rule *rule;
    rl_binding at[RL_MAX_VARS];
    const i64 *extent; /* by atom; NULL where sets are artificial */
    u64 ragged;        /* parts of a split with dead lanes: how many count is no one number */
} rl_env;

u64 rl_set_value(const rl_env *env, const rl_set *s);
/* Label and type of a term; *bad as rl_type_of, over all of its parts. */
rl_type rl_term_type(const rl_env *env, const rl_term *t, u64 *bad);
bool rl_guard_holds(const rl_env *env, const rl_guard *g);
/* Atoms at which the parts of the guard that are about each atom alone fail. */
u64 rl_guard_bad(const rl_env *env, const rl_guard *g);
/* May it turn true while types stay (it asks for facts)? */
bool rl_guard_reads_facts(const rl_guard *g);
/* Floating point operations of one evaluation, shared parts counted once each time they occur. */
f64 rl_term_flops(const rl_env *env, const rl_term *t);
dtype rl_slot_dtype(const rl_rule *r, i64 slot, dtype free);

/* Building a side somewhere: in an e-graph, in a program. */
typedef struct rl_builder {
    /* id of the operator over operands; `map`: id of the binding that is its index map, or 0. */
    u32 (*make)(void *user, const rl_label *label, u32 map, const u32 *kids, i64 n);
    void *user;
    bool literally; /* keep sums with 0 and products with 1 */
} rl_builder;
typedef struct rl_built {
    u32 id; /* 0: refused */
    rl_type type;
} rl_built;
/* The operator over at most RL_MAX_VARS operands, if they have types that fit. */
rl_built rl_make(const rl_builder *b, const rl_label *label, u32 map, const rl_built *kids, i64 n);
/* 0 when the builder made none. */
u32 rl_build(const rl_env *env, const rl_term *t, dtype free, const rl_builder *b);

/* ---- loading, between its files -------------------------------------------------------------- */

/* Reads one (rule …) form into *r; NULL, or why not, with the place. */
typedef struct rl_problem {
    const char *text;
    u32 line, column;
} rl_problem;
/* The places of a rule that hold a set: one a variable, for an index map one an operand and one for
 * what they become, for a term of a rule about cut values its axes. A number on the left has none. */
enum { RL_MAX_PLACES = RL_MAX_VARS * (RL_MAX_PARTS + 1) };
typedef struct rl_place {
    u64 *at;       /* in the environment */
    i64 var, part; /* part: of a map, -1 for the one that it makes; of a term, 1 for its axes */
} rl_place;
i64 rl_places(const rl_rule *r, rl_env *env, rl_place *out);
/* The ways of membership (bit i: in place i) that an atom can have: the left side is well-typed at
 * it and no guard about atoms alone excludes it. Ascending; count in *n. */
u32 *rl_valid_ways(arena *a, const rl_rule *r, dtype free, i64 *n);
/* Infers dtypes and proves that both sides have one type. problem->text NULL: it is fine. */
void rl_check_types(arena *a, rl_rule *r, rl_problem *problem);

#endif
