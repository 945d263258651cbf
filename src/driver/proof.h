/* proof.eqf: why what a package's kernels compute is what program.eqf says.
 *
 *     (proof (format 3)
 *       (program "DIGEST")                  of program.eqf
 *       (rounding reassoc) (parameters constant)      rules that were admitted; what is folded once
 *       (rules "my.rules" (rule ...) ...)   further rules, for those of each file
 *       (cut 14 28 40)                      where parts end, in the order of src/partition/order.c; absent:
 *                                           one part, the whole
 *       (part 0 (uses 2)
 *         (program ...)                     the part, for a whole that was cut
 *         (form (program ...))              absent: as it was read
 *         (derivation ...))                 rules/derive.c; or (by-value "why there is none")
 *       ...
 *       (computes (program ...)))           the parts' forms in their places; absent: program.eqf itself
 *
 * What a reader checks: the program is cut into these parts again, which put together are the program;
 * the forms put together are what is computed; each derivation is replayed. The step from there to the
 * kernels, and parts that are by value, were compared with the reference interpreter alone. */
#ifndef EQF_DRIVER_PROOF_H
#define EQF_DRIVER_PROOF_H

#include "driver/driver.h"
#include "rules/graph.h"

typedef struct proof_part {
    const ir_program *program, *form; /* form NULL: as it was read */
    i64 uses;
    const char *derivation; /* when written; NULL: by value */
    const char *why_not;    /* by value, and why */
    const sx *steps;        /* when read: the derivation */
    eqf_check_report report; /* once replayed */
    const char *refused;     /* "place: reason", or what is wrong with a rule of its own; NULL: it
                                holds, or there is none */
} proof_part;

typedef struct proof {
    const ir_program *program;  /* of program.eqf */
    const ir_program *computes; /* NULL: as it was read */
    char digest[33];
    driver_space space; /* the rules are those of the product and then the proof's own */
    VEC(i64) ends; /* of the uses of parts; none: not cut */
    VEC(proof_part) parts;
    const char *file, *text; /* when read */
    i64 text_n;
} proof;

void proof_print(str *out, const proof *p);
/* Reads `text` and checks everything but the derivations, against the text of program.eqf. Throws
 * EQF_E_PARSE, EQF_E_MISMATCH with a place. Everything is in `a`. */
proof *proof_read(arena *a, const char *file, const char *text, i64 n, const char *program,
                  i64 program_n);
/* The rules of the proof's own that the part's derivation uses, each once. */
typedef VEC(const rl_rule *) proof_rules;
proof_rules proof_own_rules(arena *a, const proof *p, const proof_part *part);
/* Replays all derivations, and tests the rules of their own that they use as the rule lab does;
 * `cancelled` (may be NULL) is polled, EQF_E_LIMIT. Which parts were refused stands in them. */
void proof_replay(arena *a, proof *p, bool (*cancelled)(void *user), void *user);

#endif
