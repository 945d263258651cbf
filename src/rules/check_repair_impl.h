/* What the two halves of the certificate checker share. Nothing here comes from the solver: its
 * polynomials, its reading of the certificate and its evaluation are its own; of the rest of the
 * program it uses base, the reader and printer of terms, and the interpreter. */
#ifndef EQF_RULES_CHECK_REPAIR_IMPL_H
#define EQF_RULES_CHECK_REPAIR_IMPL_H

#include "rules/repair.h"

typedef struct ck_rat {
    i64 n, d;
} ck_rat;

typedef struct ck_exponent {
    u32 factor;
    ck_rat q;
} ck_exponent;

typedef struct ck_term {
    ck_rat c;
    const ck_exponent *at; /* sorted by factor */
    i64 n;
} ck_term;

typedef struct ck_poly {
    const ck_term *at; /* sorted by monomial */
    i64 n;
} ck_poly;

typedef enum ck_kind {
    CK_LEAF,
    CK_EXP,
    CK_LOG,
    CK_ABS,
    CK_SUM,
    CK_INDICATOR,
    CK_ROW,
    CK_FRESH
} ck_kind;

enum { CK_X = 1, CK_S = 2 };

typedef struct ck_factor {
    u8 kind, dep, op;
    ir_term term, test; /* of the ledger; none for the checker's own row factors */
    u32 inner;
    ck_poly p; /* EXP: its monomial; SUM, ROW */
    ir_atoms axis, dims;
} ck_factor;

typedef struct ck_block {
    ck_poly roll, wait;
    ck_poly tau[4];
    i64 tau_count, count;
    u8 (*index)[4];
    i64 *slot;
    ck_rat *c;
    ck_poly *f;
} ck_block;

typedef struct ck_reduction {
    ir_reducer op;
    ir_term body, cut_body, readout;
    VEC(ck_block) blocks;
} ck_reduction;

typedef struct ck_slot {
    ir_reducer op;
    ir_term leaf, term;
    ck_poly p;
} ck_slot;

typedef struct ck_judgement {
    ir_term term;
    const char *row;
    ck_poly p;
} ck_judgement;

typedef struct checker {
    arena *a;
    const rl_system *system;
    const rl_repair *repair;
    ir_program *w; /* the ledger */
    ir_atoms axis;
    ir_term lanes;
    u32 lanes_factor;
    VEC(ck_factor) factors; /* [0] unused */
    i64 given;              /* factors of the certificate; later ones are the checker's */
    VEC(ck_judgement) judgements;
    i64 *by_term; /* judgement of a term, +1 */
    VEC(ck_slot) slots;
    VEC(ir_term) results, cut_leaves, cuts;
    VEC(ck_reduction) reductions;
    u8 *deps;
    bool *keeps; /* atoms whose extent the values need as it is */
    const char *wrong;
} checker;

/* Records the first thing that does not hold. */
bool ck_refuse(checker *c, const char *format, ...) PRINTF_LIKE(2, 3);
#define CK_ONE ((ck_rat){1, 1})
#define CK_MINUS_ONE ((ck_rat){-1, 1})

/* check_repair_poly.c */
ck_rat ck_reduced(checker *c, i64 n, i64 d);
ck_rat ck_times(checker *c, ck_rat a, ck_rat b);
ck_rat ck_plus(checker *c, ck_rat a, ck_rat b);
bool ck_same_rat(ck_rat a, ck_rat b);
ck_poly ck_number(checker *c, ck_rat q);
ck_poly ck_factor_power(checker *c, u32 k, ck_rat q);
ck_poly ck_add_polys(checker *c, ck_poly a, ck_poly b);
ck_poly ck_multiply(checker *c, ck_poly a, ck_poly b);
ck_poly ck_scaled(checker *c, ck_poly a, ck_rat q);
ck_poly ck_power(checker *c, ck_poly p, i64 n);
bool ck_equal(ck_poly a, ck_poly b);
/* The canonical form. */
ck_poly ck_expand(checker *c, ck_poly p);
/* Sum over `axis` of a polynomial in canonical form. */
ck_poly ck_contract(checker *c, ir_atoms axis, ck_poly p);
bool ck_same_value(checker *c, ck_poly a, ck_poly b);
bool ck_overlaps(ir_atoms a, ir_atoms b);
bool ck_same_atoms(ir_atoms a, ir_atoms b);

/* check_repair_value.c: factors and judgements at random points; extremum readouts; the lambdas. */
bool ck_values(checker *c, u64 seed);
bool ck_lambdas(checker *c, u64 seed);

#endif
