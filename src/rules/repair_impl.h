/* What the files of the repair solver share: the normal form and the workspace.
 *
 * A value is a polynomial over factors: a sum of rational coefficients times monomials, a monomial
 * a sorted list of (factor, rational exponent). Factors are leaves, exponentials of a monomial,
 * logarithms, absolute values, sums that belong together, indicators and reductions inside the
 * tile. Factors and monomials are numbered in order of first appearance; equal content has one
 * number. Each factor has a term of the workspace that is its value. */
#ifndef EQF_RULES_REPAIR_IMPL_H
#define EQF_RULES_REPAIR_IMPL_H

#include "rules/repair.h"

typedef struct rat {
    i64 n, d; /* lowest terms, d > 0 */
} rat;

typedef struct power {
    u32 factor;
    rat q;
} power;

typedef struct mono {
    const power *at; /* by factor number */
    i64 n;
    u64 hash;
    u8 dep;
} mono;

typedef struct pterm {
    u32 mono;
    rat c;
} pterm;

typedef struct poly {
    const pterm *at; /* by monomial number */
    i64 n;
} poly;

enum { DEP_X = 1, DEP_S = 2, DEP_MIXED = 3 };

typedef enum factor_kind {
    FACTOR_LEAF,      /* an input, or an operator that the form does not look into */
    FACTOR_EXP,       /* exp of `mono` */
    FACTOR_LOG,       /* log of factor `inner` */
    FACTOR_ABS,       /* |inner| */
    FACTOR_SUM,       /* `sum`, two terms or more */
    FACTOR_INDICATOR, /* 1 where the bool `test` holds, else 0 */
    FACTOR_ROW        /* reduction of `sum` over `axis` inside the tile */
} factor_kind;

typedef struct factor {
    u8 kind, dep, sign, op;
    u32 mono, inner;
    poly sum;
    ir_atoms axis;
    ir_term term, test;
} factor;

typedef struct judgement {
    bool known;
    const char *row; /* of the table of normal forms */
    poly p;
} judgement;

enum { FORM_MAX_TERMS = 96, FORM_MAX_DEGREE = 6 };

typedef struct form {
    arena *a;
    ir_program *w;
    dtype real;
    ir_atoms axis;
    ir_term lanes; /* the count of live positions, an input of the workspace */
    u32 lanes_factor;
    VEC(factor) factors; /* [0] unused */
    VEC(mono) monos;     /* [0] is 1 */
    VEC(judgement) by_term;
    VEC(u8) deps, signs; /* by term, +1; 0: not computed */
    const char *stop;    /* the form left its limits; everything after is meaningless */
} form;

/* repair_form.c: arithmetic and the rows */
rat rl_rat_of(i64 n, i64 d);
rat rl_rat_add(form *f, rat a, rat b);
rat rl_rat_mul(form *f, rat a, rat b);
bool rl_rat_is(rat a, i64 n);
bool rl_rat_eq(rat a, rat b);
bool rl_rat_is_int(rat a);
f64 rl_rat_value(rat a);

form *rl_form_new(arena *a, ir_program *w, dtype real, ir_atoms axis);
/* What an `in` term stands for; DEP_X, DEP_S or 0. */
void rl_form_leaf(form *f, ir_term t, u8 dep, rl_sign sign);
u8 rl_form_dep(form *f, ir_term t);
rl_sign rl_form_sign(form *f, ir_term t);
/* The normal form of a float term. */
poly rl_form_of(form *f, ir_term t);

u32 rl_mono_of(form *f, const power *at, i64 n);
u32 rl_mono_mul(form *f, u32 a, u32 b);
u32 rl_mono_pow(form *f, u32 m, rat q);
rat rl_mono_exponent(const form *f, u32 m, u32 factor);
/* The powers of `m` whose factor has exactly the dependence given by mask: (dep & mask) == want. */
u32 rl_mono_part(form *f, u32 m, u8 mask, u8 want);
u8 rl_mono_dep(const form *f, u32 m);
ir_atoms rl_mono_dims(form *f, u32 m);

poly rl_poly_zero(void);
poly rl_poly_mono(form *f, u32 m, rat c);
poly rl_poly_add(form *f, poly a, poly b);
poly rl_poly_scale(form *f, poly a, rat c, u32 m);
poly rl_poly_sub(form *f, poly a, poly b);
/* Plain product, nothing grouped. */
poly rl_poly_mul(form *f, poly a, poly b);
bool rl_poly_eq(poly a, poly b);
/* a = c * b for a rational c? */
bool rl_poly_ratio(form *f, poly a, poly b, rat *c);
u8 rl_poly_dep(const form *f, poly p);
/* Factors that are single sums are replaced by their terms. */
poly rl_poly_flat(form *f, poly p);
/* The exponents that all terms share, of factors that depend on earlier results. */
u32 rl_poly_common(form *f, poly p);
u32 rl_factor_leaf(form *f, ir_term t);
u32 rl_factor_exp(form *f, u32 m);

/* repair_print.c: terms */
ir_term rl_tm_real(form *f, f64 x);
ir_term rl_tm_1(form *f, ir_op op, ir_term a);
/* With 0 and 1 and constants folded. */
ir_term rl_tm_2(form *f, ir_op op, ir_term a, ir_term b);
ir_term rl_tm_where(form *f, ir_term c, ir_term a, ir_term b);
bool rl_tm_is_const(const form *f, ir_term t, f64 *value);
/* Sum or extremum inside the tile; atoms of the axis that x lacks count the live positions. None
 * when x lacks some atoms of the axis and has others. */
ir_term rl_tm_reduce(form *f, ir_reducer op, ir_term x, ir_atoms axis);
/* The operator again with other operands, simplified by tm_2. */
ir_term rl_tm_again(form *f, ir_term t, const ir_term *args);
ir_term rl_print_mono(form *f, rat c, u32 m);
ir_term rl_print_poly(form *f, poly p);

/* Replaces the `in` leaves of terms. */
typedef struct substitution {
    form *f;
    ir_term (*leaf)(void *user, ir_term leaf, bool under_power);
    void *user;
    VEC(ir_term) done[2]; /* by term, and whether it stands under a power, a log or a division */
} substitution;
/* `under`: t stands under a power, a logarithm or a division. */
ir_term rl_substitute(substitution *s, ir_term t, bool under);

/* ---- the solver's result, before it is written as lambdas --------------------------------------
 */

/* An accumulator: the `op`-combination over tiles of `term`, in which s leaves stand for
 * references. */
typedef struct accumulator {
    ir_reducer op;
    ir_term term;
    poly target; /* its normal form, which `term` was checked against */
    i64 reduction;
    i64 block; /* index into blocks, -1: no transport */
    bool is_count, is_added;
} accumulator;

/* A use of an accumulator: a rational times it. */
typedef struct slot_use {
    i64 slot;
    rat c;
} slot_use;

typedef struct coordinate {
    poly tau;
} coordinate;

/* Accumulators that one transport moves: f_j, j in the down-closed set. */
typedef struct block {
    i64 reduction;
    u32 roll;  /* monomial that follows the reference: exponentials and powers */
    i64 proof; /* s leaf whose value -inf proves that all contributions are 0, or -1 */
    poly wait; /* applied at the end */
    i64 coordinate_count;
    coordinate coordinates[4];
    i64 count;
    u8 (*index)[4]; /* multi-index of each f_j */
    slot_use *use;
    poly *targets;
} term_block;

/* An s leaf of the workspace: a reduction's result, a cut value or an added maximum. */
typedef struct s_leaf {
    ir_term leaf;
    i64 reduction;         /* -1: cut or added */
    ir_term cut;           /* the cut value in other s leaves */
    ir_term reference_cut; /* the same with the extent replaced by the count */
    i64 slot;              /* added: its accumulator */
    i64 stored;            /* slot that holds the reference, or -1 */
    bool is_reference;     /* some contribution or transport uses it */
} s_leaf;

typedef struct solver {
    arena *a;
    form *f;
    const rl_system *system;
    rl_want want;
    VEC(s_leaf) leaves;
    VEC(accumulator) accs;
    VEC(term_block) blocks;
    VEC(ir_term) imported;           /* by term of the system */
    VEC(ir_term) ports;              /* workspace leaf -> term of the system, by workspace term */
    ir_term body[RL_MAX_REDUCTIONS]; /* F_k in the workspace */
    ir_term cut_body[RL_MAX_REDUCTIONS]; /* with cut values as leaves */
    ir_term readout[RL_MAX_REDUCTIONS];  /* in slot leaves and s leaves */
    i64 s_of[RL_MAX_REDUCTIONS];         /* index into leaves */
    ir_term slot_leaf[RL_MAX_SLOTS];
    rl_how how[RL_MAX_REDUCTIONS];
    const char *reason;
    ir_term blocking;
} solver;

/* ---- sums on the way to accumulators ------------------------------------------------------------
 */

typedef struct sigma {
    poly s; /* in results only */
    poly g; /* in the tile and invariants */
} sigma;

typedef VEC(sigma) sigmas;

/* sigma_i = scale_i * base * tau^degree_i */
typedef struct shape {
    poly base; /* waits */
    i64 dims;
    poly tau[4];
    u8 (*degree)[4]; /* of each term */
    rat *scale;      /* sigma_i = scale_i * base * tau^degree_i */
} shape;

/* A block before it has accumulators. */
typedef struct draft {
    i64 k;
    sigmas terms; /* sigma without the rolling part that the program has */
    u32 own_roll, roll;
    i64 proof;
    poly u;
    bool is_only;
} draft;

/* repair_cut.c: the body with cut values as leaves, where no other term of a sum in it uses theirs
 */
ir_term rl_cut_body(solver *s, i64 k);
bool rl_mentions(const form *f, ir_term t, ir_term leaf);

/* repair_author.c */
/* Exponentials of results, and powers of a maximum that protect from overflow. */
u32 rl_rolling_part(solver *s, u32 m);
u32 rl_exponential_part(form *f, u32 m);
u32 rl_inverse(form *f, u32 m);
/* b / part */
u32 rl_without(form *f, u32 b, u32 part);
/* The sum inside the tile among the factors of a monomial, or NULL. */
const factor *rl_row_of(const form *f, u32 m, i64 *position);
/* Does t exponentiate a result? */
bool rl_has_result_exp(form *f, ir_term t);
/* A term of the tile with the normal form `target`, which is the draft's accumulator j; or none. */
ir_term rl_contribution(solver *s, const draft *d, const shape *sh, const u8 *j, poly target);

/* The leaf that stands for accumulator `slot` in readouts. */
ir_term rl_slot_leaf(solver *s, i64 slot);
i64 rl_leaf_index(const solver *s, ir_term t);
/* Finds or adds an accumulator of reduction k with this normal form. -1: too many. */
slot_use rl_add_accumulator(solver *s, i64 k, ir_reducer op, ir_term term, poly target, i64 block);
/* A cut value with the extent of the axis replaced by the count of positions so far, which makes it
 * a good reference before all tiles are seen. */
ir_term rl_with_count(solver *s, i64 k, ir_term t);
bool rl_solve_order(solver *s, i64 k);
bool rl_solve_sum(solver *s, i64 k);
/* After "none": what numbers say about it, as the end of the sentence. The workspace is spent. */
const char *rl_explain_by_numbers(solver *s, i64 k);
void rl_build_lambdas(solver *s, rl_repair *out);
const char *rl_write_certificate(solver *s);
/* "PREFIX.K", made different from every input of the system. */
const char *rl_fresh_name(solver *s, const char *prefix, i64 k);
const char *rl_term_text(arena *a, const ir_program *p, ir_term t);

#endif
