/* What the files of extraction share. */
#ifndef EQF_EXTRACT_IMPL_H
#define EQF_EXTRACT_IMPL_H

#include "extract/extract.h"
#include "rules/fuse_impl.h"

enum { EX_WORDS = 4, EX_REDUCED = 64 * EX_WORDS };

/* A set of reduced classes. */
typedef struct ex_set {
    u64 at[EX_WORDS];
} ex_set;

typedef VEC(ex_set) ex_sets;

/* A way to compute a reduced class: its e-nodes of one kind. */
typedef struct ex_way {
    u64 par;
    bool is_rolled;
    VEC(i64) nodes; /* places among the snapshot's e-nodes */
    ex_sets bodies; /* that they end at, known once structures are enumerated */
} ex_way;

typedef struct ex_reduced {
    i64 place;
    VEC(ex_way) ways;
    f64 least_work; /* operations, known once structures are enumerated */
} ex_reduced;

typedef struct ex_space {
    arena *a;
    rl_graph *g;
    rl_reach *r;
    VEC(ex_reduced) reduced;
    i64 *number;    /* by place: index among the reduced + 1 */
    ex_sets *stops; /* by place: sets of reduced classes that its operators end at */
    bool has_all;   /* all of them, else the minimal ones */
    VEC(i64) roots; /* places of the outputs' tiles */
    i64 *order;     /* e-nodes: operands first, but for circles */
    f64 *own_cost;  /* by e-node: operations */
    eqf_node *tile; /* by place: of a constant's tiles, how they come: read, or made; 0: none such */
    f64 *folded;    /* by place: of a constant, what reading it costs more than reading weights */
    i64 whole_words;
    const ex_options *options;
    bool is_cut_short; /* some number was too large */
    bool is_over;      /* the time was */
} ex_space;

ex_space *ex_space_new(arena *a, rl_graph *g, const ex_options *options);
bool ex_is_over(ex_space *s);
/* Is the e-node an operator on tiles (or a leaf), neither a reduction over axes nor of a loop? */
bool ex_is_glue(const ex_space *s, const rl_enode *n);
/* The e-node that combines tiles cut along every dim into the class of whole values, NULL: none. */
const rl_enode *ex_comb_of(const ex_space *s, i64 place);
/* Those tiles, -1: none. */
i64 ex_tiles_of(const ex_space *s, i64 place);
/* The e-node of a whole value that reads another one, which has tiles, at an index map; or NULL. */
const rl_enode *ex_index_node(const ex_space *s, i64 place);
/* The e-nodes whose operands the way's e-node computes in its loop: bodies, as sets of what they
 * end at; into *out. */
void ex_body_sets(ex_space *s, const rl_enode *n, ex_sets *out);
bool ex_has(const ex_set *s, i64 i);
void ex_put(ex_set *s, i64 i);
bool ex_within(const ex_set *x, const ex_set *y);
bool ex_same(const ex_set *x, const ex_set *y);
ex_set ex_union(const ex_set *x, const ex_set *y);
/* The operator that makes a whole value that is stored, NULL: the value is none. */
const rl_enode *ex_stored_node(const ex_space *s, i64 place);
/* The sets that all outputs together end at. */
void ex_root_sets(ex_space *s, ex_sets *out);

/* A structure: for each reduced class the way, -1: not used. */
typedef struct ex_structure {
    i8 way[EX_REDUCED];
} ex_structure;
typedef VEC(ex_structure) ex_structures;
typedef struct ex_counts {
    i64 expanded, pruned; /* states */
} ex_counts;
/* At most `most` structures, those of least work in their reductions first, in a fixed order; what of
 * them can be computed is for ex_choose to say. EX_NONE has some several times. (enumerate.c) */
void ex_enumerate(ex_space *s, ex_mode mode, i64 most, ex_structures *out, ex_counts *counts);
/* Atoms over whose axes something can be rolled. */
u64 ex_rolled_atoms(const ex_space *s);
/* Sets of atoms over whose axes what can be rolled is: all while they are few. At most EX_MODES. */
enum { EX_MODES = 16 };
i64 ex_list_modes(ex_space *s, u64 atoms, u64 *modes);
/* Is the way one of a structure in which over these atoms' axes what can be rolled is, and nothing else? */
bool ex_is_asked_for(const ex_reduced *x, const ex_way *w, u64 atoms);
/* Leaves out structures that others are a part of; of very many some may stay when time is over. */
void ex_compact(ex_space *s, ex_structures *x);

f64 ex_own_cost(const ex_space *s, const rl_enode *n);
/* Fills s->tile: a constant is folded once and its tiles are read, unless making them takes less. */
void ex_find_constants(ex_space *s);
/* The cheapest operators for a structure: an e-node for each place that is needed, 0 elsewhere.
 * False when the structure cannot be computed, or does not need all of its reductions. */
bool ex_choose(const ex_space *s, const ex_structure *x, eqf_node *chosen);
/* What a structure should be like. */
typedef struct ex_wish {
    u64 rolled;               /* atoms over whose axes what can be rolled is, and nothing else */
    ex_set without;           /* reduced classes that it has not */
    i64 reduced, way;         /* this one by this way, if it has it; -1: none */
    const ex_structure *near; /* what that has is cheap; NULL: nothing is */
    i64 with;                 /* this one is free; -1: none */
} ex_wish;
/* The cheapest operators and reductions, each counted where it is used: a structure as is wished for. False
 * when there is none. Whether it is one is for ex_choose to say. */
bool ex_choose_like(const ex_space *s, const ex_wish *wish, ex_structure *out);
/* Places of tiles that may be stored, given the choice; at most `most`, those that save most work
 * first. */
i64 ex_storable(const ex_space *s, const eqf_node *chosen, i64 *out, i64 most);
/* The program with the tiles at `stored` stored. */
ir_program *ex_write(const ex_space *s, arena *a, const eqf_node *chosen, const i64 *stored,
                     i64 n_stored);

/* ---- candidates (search.c) -------------------------------------------------------------------- */

enum { EX_STORABLE = 31 };
/* A candidate before its program is kept. */
typedef struct ex_ranked {
    const eqf_node *chosen;
    u32 stored;        /* of the places that it may store */
    ex_candidate cost; /* no program */
} ex_ranked;
/* Those that were considered, the best of them. */
typedef struct ex_ranking {
    arena *a; /* of what is considered */
    ex_space *s;
    const ex_options *options;
    i64 most, tried, distinct;
    VEC(ex_ranked) best; /* cheapest first */
    VEC(ex_least) least; /* fewest kernels first */
    /* the present structure, or selection */
    eqf_node *chosen;
    const eqf_node *kept; /* of that, once a candidate of it is */
    i64 places[EX_STORABLE], n; /* tiles that may be stored */
    u64 identity;               /* of that and of no other */
    u64 *seen;                  /* what was considered: identities and sets, an open table */
    i64 seen_count, seen_capacity;
    bool is_exhaustive; /* of each structure all sets that it may store were considered */
} ex_ranking;
/* Makes it the present one; false when it cannot be computed. */
bool ex_turn_to(ex_ranking *q, const ex_structure *x);
/* The same of what q->chosen has. */
void ex_turn_to_chosen(ex_ranking *q);
/* Microseconds with this set of `places` stored, bit i place i. */
f64 ex_price(ex_ranking *q, u32 set);
/* The same, and into the list where it belongs there. */
f64 ex_consider(ex_ranking *q, u32 set);
/* From these places stored on, the change of one that pays most, as long as one does; what a change was
 * worth before is believed until it would be made. Microseconds of what is left in *set; stops when
 * `end` candidates were tried. */
f64 ex_descend(ex_ranking *q, u32 *set, i64 end);
/* Considers every selection of e-nodes: by Algorithm 1, see selections.c; their number into *selections. False
 * when it met a limit. */
bool ex_select(ex_ranking *q, ex_mode mode, ex_counts *counts, i64 *selections);
/* Considers structures near the cheapest, from these on, and what each may store; how many there were
 * beside these (near.c). */
i64 ex_look_near(ex_ranking *q, const ex_structures *starts);

/* Fills kernel, kernels, flops, bytes, bound_us, reductions. */
void ex_model(arena *a, const ir_program *p, const ex_rates *rates, bool parameters_are_inputs,
              ex_candidate *out);

#endif
