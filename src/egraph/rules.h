/* Rules as the engine runs them: pattern trees for explanations and right sides, flattened into
 * atoms for matching. A pattern is a conjunction of atoms  class = op(children)  over variables;
 * several trees, shared variables and (eq P Q) guards all become atoms of one query. */
#ifndef EG_RULES_H
#define EG_RULES_H

#include "egraph/egraph.h"

#define EG_MAX_VARS 64
#define EG_MAX_ATOMS 32
#define EG_MAX_BUILT 32

/* A pattern: a variable, or an operator over patterns. */
typedef struct eg_term {
    bool is_var;
    u32 var;         /* of a variable; of an operator on the left: its class */
    u32 op, head;    /* head 0: the payload is a variable */
    u32 payload_var; /* + 1; 0 none */
    u32 arity, index; /* atom on the left, number among the built e-nodes on the right */
    struct eg_term **kids;
} eg_term;

typedef struct eg_atom {
    u32 op; /* EG_OP_CLASSES: a bare variable, any class */
    u32 head, payload_var, arity, cvar;
    bool commutative, indexable; /* indexable: its head is fixed, it has 1 to 4 operands */
    bool inner;                  /* its class is a child of an atom */
    u32 watch; /* changes of a tuple that can make a match (S_MADE …) */
    u32 *kids; /* variables */
} eg_atom;

/* Where a variable is found first: the class of an atom (slot EG_ROOT) or a child of one. */
typedef struct eg_site {
    u32 atom, slot;
} eg_site;
enum { EG_ROOT = 0xFFFFFFFFu };

typedef struct eg_side {
    u32 var; /* the class that holds the pattern */
    eg_term *term;
} eg_side;

enum { EG_GUARD_DISTINCT = -1 };
typedef struct eg_use {
    i32 guard; /* index in the language, or EG_GUARD_DISTINCT */
    u32 nargs, args[8];
} eg_use;

/* One e-node of a right side: where its children come from. */
typedef struct eg_make {
    u32 head, op, arity;
    bool commutative;
    u32 from[4]; /* position in save, or EG_BUILT | number of an e-node built before */
    u32 var[4];  /* the variable, for explanations */
} eg_make;
#define EG_BUILT 0x80000000u

typedef struct eg_rule {
    const char *name, *file;
    u32 line, column;
    u64 serial; /* unique in the language */
    u32 nvars;
    const char *var_name[EG_MAX_VARS]; /* NULL: made by the compiler */
    bool var_payload[EG_MAX_VARS];
    eg_site site[EG_MAX_VARS];
    VEC(eg_side) left, right;
    VEC(eg_side) equal; /* pairs (P, Q) of eq guards: items 2i and 2i+1 share a class */
    VEC(eg_use) guards;
    VEC(eg_atom) atoms;
    u32 nsave, save[EG_MAX_VARS]; /* variables written with each match; save[0]: root class */
    u32 where[EG_MAX_VARS];       /* position in save, or EG_ROOT */
    u32 nbuilt;
    eg_make *make; /* a right side that is one tree of plain operators, in building order; or NULL */
    i32 dynamic; /* index in the language, or -1 */
    bool multi, hide_left, reads_data;
    u64 ops_mask; /* of all atoms */
    const char *fp; /* numeric class, as written, or NULL */
    const sx *source;
} eg_rule;

typedef VEC(eg_rule *) eg_rule_list;

struct eqf_rules {
    eqf_lang *lang;
    arena *a;
    eg_rule_list rules;
};

/* Is it (rule …), (multi …) or (dynamic …)? */
bool eg_is_rule(const sx *form);
/* Reads one form, appends one or two rules. Throws EQF_E_PARSE. */
void eg_rule_read(eg_lang *l, arena *a, const char *file, const sx *form, eg_rule_list *out);
/* A pattern as a rule without a right side; root class in save[0]. Throws. */
eg_rule *eg_pattern_read(eg_lang *l, arena *a, const char *file, const sx *form);

/* ---- match.c, rows.c ----------------------------------------------------------------------- */

typedef struct eg_block {
    struct eg_block *next;
    u32 used, cap;
    u32 at[];
} eg_block;

/* Rows found for one rule: save values, then (wide) a swap mask and the e-node of each atom. */
typedef struct eg_matches {
    eg_block *first, *last;
    u32 width;
    i64 count;
} eg_matches;

/* Is a tuple new since the watermark, for an atom that watches some changes? Its stamp says what
 * changed at that time only, so a rule that slept through one takes any change. */
static inline bool eg_is_new(u32 stamp, u32 watermark, u32 watch)
{
    u32 time = stamp >> S_TIME;
    return time > watermark || (time == watermark && (stamp & watch));
}

/* ---- index.c ------------------------------------------------------------------------------- */

/* The e-nodes of one operator by class, or by the child in one slot, on a frozen e-graph: one run of
 * memory instead of a walk through lists. Tuples that are new (eg_is_new) stand last. */
typedef struct eg_range {
    u32 first, fresh, end;
} eg_range;
typedef struct eg_class_index {
    u32 op, by; /* by: EG_ROOT (its class), or a slot */
    u32 watch, watermark, class_ids, n, arity;
    u64 work; /* spent on lists since the last search without the index */
    eg_range *range; /* by class id; NULL: not made */
    u32 *kids, *node; /* by a slot: the class stands where that child would; node: if asked for */
} eg_class_index;
typedef struct eg_indexes {
    eg_class_index *at;
    u32 n, cap;
} eg_indexes;
/* Room for `more` indexes, so that a search can hold pointers to them. */
bool eg_index_room(eg *g, eg_indexes *all, u32 more);
/* The index of an operator with one head and 1 to 4 operands, or NULL while lists that cost `work`
 * more are cheaper than making it, and when there is no room. */
const eg_class_index *eg_index_ask(eg *g, eg_indexes *all, u32 op, u32 by, u32 watch, u32 watermark,
                                   bool nodes, u32 work);
/* The e-graph is going to change. */
void eg_index_drop(eg *g, eg_indexes *all);
void eg_index_free(eg *g, eg_indexes *all);

/* The e-nodes of one operator by (class, child in one slot). */
typedef struct eg_pair_index {
    u32 *heads, *chain; /* chain: e-node, next entry */
    u32 mask, slot;
    i64 size;
} eg_pair_index;
/* Without room heads stays NULL, and the lists do. */
void eg_pair_make(eg *g, eg_pair_index *x, u32 op, u32 slot);
void eg_pair_free(eg *g, eg_pair_index *x);
static inline u32 eg_pair_hash(u32 c, u32 kid)
{
    return (u32)((((u64)c << 32 | kid) * 0x9E3779B97F4A7C15u) >> 40);
}
static inline u32 eg_pair_first(const eg_pair_index *x, u32 c, u32 kid)
{
    return x->heads[eg_pair_hash(c, kid) & x->mask];
}

typedef struct eg_search {
    eg *g;
    const eg_rule *rule;
    u32 watermark; /* > 0: only matches with a tuple stamped at or after it */
    bool full;     /* with a watermark: find old matches too (egg's search) */
    bool delta_only; /* always by variants */
    bool wide;
    u32 in_class;  /* restrict the root to this class, 0 all */
    i64 limit;     /* stop after so many; < 0 none */
    eg_matches *out; /* NULL: count only */
    eg_indexes *indexes; /* shared by the searches of one frozen e-graph, or NULL */
    i64 found;
    u64 work;      /* steps taken and matches found */
    bool cut;      /* limit reached */
    bool failed;   /* no room, time over, cancelled: see status of the poll */
    bool (*poll)(void *user);
    void *poll_user;
} eg_search;
void eg_search_run(eg_search *s);
void eg_matches_free(eg *g, eg_matches *m);
/* Frees the first block. */
void eg_matches_drop(eg *g, eg_matches *m);

/* ---- run.c --------------------------------------------------------------------------------- */

/* eqf_run over any list of rules. */
eqf_status eg_run(eg *g, eg_rule *const *rules, u32 n, const eqf_schedule *schedule,
                  eqf_run_report *out);
/* Matches of a pattern; the e-graph is rebuilt. */
eqf_status eg_match_count(eg *g, const eg_rule *pattern, u32 in, i64 limit, i64 *out);
/* The e-node a variable stood for in a match: `nodes` as written by a wide search. */
u32 eg_site_node(const eg *g, const eg_rule *r, const u32 *nodes, u32 swaps, u32 var);

#endif
