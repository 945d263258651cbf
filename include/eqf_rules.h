/* Rewrite rules as a user meets them: the rules of the product, a user's own files, the rule lab.
 *
 * Contexts, failure and ownership are those of equiforge.h. The language of rules is described in
 * docs/rules.md. */
#ifndef EQF_RULES_H
#define EQF_RULES_H

#include "eqf_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct eqf_rulebook eqf_rulebook;
/* The rules of the product. */
eqf_status eqf_rulebook_shipped(eqf_ctx *ctx, eqf_rulebook **out);
/* The rules of a file. A rule that is malformed or ill-typed is no error but `rejected`. Errors:
 * EQF_E_IO; EQF_E_PARSE when the file is no sequence of S-expressions. */
eqf_status eqf_rulebook_read(eqf_ctx *ctx, const char *path, eqf_rulebook **out);
void eqf_rulebook_free(eqf_rulebook *book);

/* Strings belong to the book. */
typedef struct eqf_rule_info {
    const char *name;
    const char *family; /* the name of its file without ".rules"; what kind of rule it is */
    const char *left, *right;
    const char *guard;    /* "" when it always applies */
    const char *rounding; /* "exact", "reassoc" or "approx" */
    const char *doc;      /* "" when there is none */
    const char *file; /* "" for a rule that an operator's row implies: shipped ones end with those */
    size_t line;
} eqf_rule_info;
size_t eqf_rulebook_count(const eqf_rulebook *book);
/* i < eqf_rulebook_count. */
eqf_rule_info eqf_rulebook_get(const eqf_rulebook *book, size_t i);

typedef struct eqf_rejected_rule {
    const char *name; /* "" when it has none */
    const char *file, *reason;
    size_t line, column;
    const char *excerpt; /* the source line, and below it a caret at the place */
} eqf_rejected_rule;
size_t eqf_rulebook_rejected_count(const eqf_rulebook *book);
eqf_rejected_rule eqf_rulebook_rejected(const eqf_rulebook *book, size_t i);
/* All rules as a page in Markdown; belongs to the book. */
const char *eqf_rulebook_document(eqf_rulebook *book);

typedef enum eqf_rule_verdict {
    EQF_RULE_SOUND,
    EQF_RULE_UNSOUND,
    EQF_RULE_UNTESTABLE
} eqf_rule_verdict;
typedef struct eqf_rule_trial {
    eqf_rule_verdict verdict;
    int64_t instances;          /* that were compared */
    const char *counterexample; /* "" unless unsound; belongs to the book */
} eqf_rule_trial;
/* Evaluates both sides of rule i on `instances` random small instances. Equal seeds, equal results.
 */
eqf_status eqf_rulebook_try(eqf_rulebook *book, size_t i, int64_t instances, uint64_t seed,
                            eqf_rule_trial *out);

#ifdef __cplusplus
}
#endif
#endif
