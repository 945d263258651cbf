/* What the files of the fusion of reductions share.
 *
 * An *item* is a class that is a reduction over a set of axes: `(reduce R x :par P)`. Reductions
 * over one set can share a loop when none needs another's result, or when what it needs of it can
 * be repaired (repair.h). */
#ifndef EQF_RULES_FUSE_IMPL_H
#define EQF_RULES_FUSE_IMPL_H

#include "rules/graph_impl.h"

/* ---- what every form of a class needs (reach.c) ----------------------------------------------- */

/* An e-node that is not hidden; classes are named by their places in the snapshot. */
typedef struct rl_enode {
    eqf_node node;
    u32 place;
    bool is_usable; /* can be computed from tiles of inputs and constants, and other such */
    bool is_unordered;
    rl_label label; /* op IR_NO_OP: a leaf */
    u64 name;
    i64 arity;
    const u32 *kids;
} rl_enode;

/* A class that is a reduction over axes. */
typedef struct rl_item {
    i64 place;
    u64 par;
} rl_item;

/* For each class a form of least size: operators, each time they occur. Ties go by a number made of
 * the form's text, so that they do not depend on the order of classes. */
typedef struct rl_smallest {
    i64 *size;
    u64 *name;
    eqf_node *node; /* 0: no form */
} rl_smallest;

/* A snapshot of a rebuilt e-graph; changing the e-graph makes it stale. */
typedef struct rl_reach {
    const rl_graph *g;
    arena *a;
    eqf_class *classes; /* by place */
    i64 n;
    u32 *place;          /* by class: place + 1; 0: not canonical */
    VEC(rl_enode) nodes; /* of a place: from first[place] up to first[place + 1] */
    i64 *first;
    bool *is_given;      /* by place: read or folded once; no form of it is looked into */
    VEC(rl_item) items; /* of a place: from first_item[place] on */
    i64 *first_item;
    u64 *must, *near; /* by place, `words` of bits by item */
    i64 words;
    rl_smallest forms; /* of usable e-nodes */
} rl_reach;
rl_reach *rl_reach_new(arena *a, const rl_graph *g);
i64 rl_place_of(const rl_reach *r, eqf_class c);
/* Is the value known tile by tile: every atom cut, or none? */
bool rl_is_cut(const rl_type *t);
/* Items that every usable form of the class needs, itself included. */
const u64 *rl_reach_must(const rl_reach *r, i64 place);
/* The same, left out what lies behind reductions over other axes. */
const u64 *rl_reach_near(const rl_reach *r, i64 place);
/* -1 when the class is no reduction over exactly these axes. */
i64 rl_item_find(const rl_reach *r, i64 place, u64 par);
/* Smallest forms made of the e-nodes that `admits` lets in; a leaf counts without its operands. Of
 * the places that forms of `root` can be made of; root < 0: of all. *out lives in `a`. */
typedef enum rl_admit { RL_OUT, RL_INNER, RL_LEAF } rl_admit;
typedef rl_admit rl_admits(void *user, const rl_enode *n);
void rl_reach_smallest(const rl_reach *r, arena *a, rl_admits *admits, void *user, i64 root,
                       rl_smallest *out);

/* ---- one reduction whose body needs others over the same axes (chain.c) ------------------------ */

typedef struct rl_chain {
    bool found;
    const char *reason; /* not found: why */
    i64 n;              /* reductions, in order of dependency; the last is the one asked for */
    u32 reduction[RL_MAX_REDUCTIONS]; /* terms (reduce R body :par P) */
    u32 value[RL_MAX_REDUCTIONS];     /* equal terms over one loop */
    rl_fp fp;
} rl_chain;
/* Reads the term and the reductions over the same axes inside its body as a system, repairs it and
 * writes the repaired form. Looks at the term alone: where an e-graph made it and where a proof's
 * text says it the result is the same. */
rl_chain rl_chain_of(rl_terms *t, u32 term);
/* The same, and NULL when the certificate of the repair holds; else what does not. */
const char *rl_chain_check(rl_terms *t, u32 term, rl_chain *out);

/* ---- a reduction over one part of a split (part.c) ---------------------------------------------- */

/* The reduction `term` over a part, whose body uses results over all parts, as a term over reductions that
 * use results of the part alone; 0: none. *fp: at least the repair's. */
u32 rl_part_of(rl_terms *t, u32 term, rl_fp *fp);
/* Does that make `value` of `term`, and do the certificate and values agree? */
bool rl_part_check(rl_terms *t, u32 term, u32 value);

/* ---- a round (fuse.c, bundle.c) --------------------------------------------------------------- */

typedef struct rl_fuser {
    rl_graph *g;
    arena *a; /* of the round */
    rl_reach *r;
    rl_terms *t;
    u8 *state;   /* by item: 0 unknown, 1 being searched, 2 known */
    u32 *record; /* by item: its smallest (reduce R body); 0: none */
    VEC(eqf_node) added; /* by record: its e-node; 0: not in the e-graph yet */
} rl_fuser;
/* The e-node as a record that is not looked into. */
u32 rl_fuse_opaque(rl_fuser *f, eqf_node n);
/* Operand i as it was when the e-node was made: what explanations start from. */
eqf_node rl_fuse_kid(const rl_fuser *f, eqf_node n, i64 i);
/* Adds both and unites them, by the axiom `reason` over exactly these terms; was anything new? */
bool rl_fuse_unite(rl_fuser *f, u32 left, u32 right, const char *reason);
/* Gives loops whose masks leave tiles without effect a visit list (visit.c); was one new? */
bool rl_visit_round(rl_fuser *f);
/* What is known of a value on tiles in which a mask holds nowhere. */
typedef struct rl_fact {
    bool is_known, is_finite, is_mask; /* finite: known to be, whatever its value */
    bool is_fixed;                     /* a leaf that is the same on every tile */
    f64 value;                         /* when known */
} rl_fact;
/* Of an operator's result. `guards`: of (where (finite z) z c); `lossy`: a large negative number counts
 * as -inf. */
rl_fact rl_fact_of(const rl_label *l, const rl_fact *x, i64 n, bool guards, bool lossy);
/* Does the reducer's state stay what it is on such a tile? (rest.c) */
bool rl_reducer_rests(rl_graph *g, const rl_closed *reducer, const rl_fact *leaves, i64 leaf_count);
/* Is `right` the loop `left` that visits only the tiles where a mask in its bodies may hold, and do
 * the others add nothing? `lossy`: next to nothing, beside a position that is live for sure. */
bool rl_visits_follow(rl_terms *t, u32 left, u32 right, bool lossy);
/* Bundles for the operators that use several reductions; or also of any over the same axes. */
bool rl_bundle_round(rl_fuser *f, bool any, rl_fuse_report *report);

#endif
