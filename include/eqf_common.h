/* What both public headers of EquiForge share: statuses, the context, diagnostics.
 *
 * A context carries the allocator and the diagnostics of the calls made with it. It is not locked:
 * use one context per thread. Every other handle is created from a context and must be destroyed
 * before it. The library never prints, exits or aborts on behalf of its user. */
#ifndef EQF_COMMON_H
#define EQF_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum eqf_status {
    EQF_OK = 0,
    EQF_E_PARSE,         /* malformed text, JSON or archive */
    EQF_E_TYPE,          /* well-formed, but types, shapes or names disagree */
    EQF_E_UNSUPPORTED,   /* valid, but nothing here can run it */
    EQF_E_ARGUMENT,      /* the caller broke a precondition or gave a wrong name or size */
    EQF_E_DATA,          /* data absent, or a value out of range (an index, say) */
    EQF_E_NOT_OURS,      /* a file of another kind */
    EQF_E_LIMIT,         /* a budget of time, bytes or counts was reached */
    EQF_E_IO,            /* the operating system refused: no file, no space, no permission */
    EQF_E_MACHINE,       /* no compiler, no device, a missing CPU feature */
    EQF_E_MISMATCH,      /* a verification found a difference */
    EQF_E_CONTRADICTION, /* an analysis of the e-graph found two terms that cannot be equal */
    EQF_E_INTERRUPTED,
    EQF_E_NO_MEMORY,
    EQF_E_INTERNAL,      /* a defect of this library */
    EQF_STATUS_COUNT
} eqf_status;

/* Memory comes from here. `size` 0 frees; `p` NULL allocates; NULL means "no memory". Aligned as
 * malloc's. Must be callable from any thread that uses the context. */
typedef struct eqf_allocator {
    void *(*resize)(void *user, void *p, size_t old_size, size_t size);
    void *user;
} eqf_allocator;

typedef struct eqf_ctx eqf_ctx;

/* One thing that went wrong. Strings belong to the context and live until eqf_ctx_clear. */
typedef struct eqf_diag {
    eqf_status status;
    const char *file;    /* "" when it concerns no file */
    const char *place;   /* a node, an archive member, "line:column", a rule; "" when unknown */
    const char *message; /* what was expected, what was found, what to do */
} eqf_diag;

/* NULL allocator: the C library's. Returns NULL when there is no memory. */
eqf_ctx *eqf_ctx_new(const eqf_allocator *allocator);
void eqf_ctx_free(eqf_ctx *ctx);
size_t eqf_diag_count(const eqf_ctx *ctx);
/* i < eqf_diag_count. */
eqf_diag eqf_diag_get(const eqf_ctx *ctx, size_t i);
/* Forget all diagnostics. */
void eqf_ctx_clear(eqf_ctx *ctx);
/* "EQF_E_PARSE" and so on; never NULL. */
const char *eqf_status_name(eqf_status status);

#ifdef __cplusplus
}
#endif
#endif
