/* frontend: programs from files.
 *
 * A `.pt2` archive (any of the exporter's three forms) or an `.eqf` text becomes an ir_program in
 * canonical form: the three exports of one module give the same text. Symbolic sizes are fixed
 * before anything is lowered, by the caller or, for looking only, by the example the exporter saw.
 *
 * What has no meaning in the IR is not an error here: it becomes an `opaque` term and a boundary in
 * the report, so that `inspect` can show all of them at once. Errors are malformed input, sizes
 * that break the program's own guards, and unsupported features of the format (pt2.h).
 *
 * The program's source delivers parameters from the archive, which stays open as long as the arena.
 */
#ifndef EQF_FRONTEND_H
#define EQF_FRONTEND_H

#include "ir/ir.h"

typedef struct fe_dim_value {
    const char *name; /* as inspect prints it, "s77" */
    i64 value;
} fe_dim_value;

typedef struct fe_read_options {
    const char *model; /* which of several; NULL: the only one */
    const fe_dim_value *dims;
    i64 n_dims;
    /* Sizes that `dims` leaves open get the example's value; otherwise they are an error. */
    bool use_hints;
    /* Read constant masks (buffers and constants that nothing writes): one that is a band along the
     * diagonals becomes a predicate of positions. Touches their bytes; off for looking only. */
    bool use_constants;
    bool keep_spelling; /* skip the normal form (to see what lowering alone gives) */
} fe_read_options;

/* A place where optimisation ends. */
typedef struct fe_boundary {
    const char *node, *op, *reason;
    const char *source; /* "model.py:42", "" when unknown */
    bool runs;          /* a plain kernel of ours runs it */
} fe_boundary;

typedef struct fe_size {
    const char *name;
    i64 value;
    bool is_hint, depends_on_data;
} fe_size;

typedef struct fe_report {
    const char *torch_version; /* "" for text */
    i64 schema_major, schema_minor;
    const char *form; /* "training", "functional", "text" */
    i64 n_sizes, n_boundaries, n_notes;
    const fe_size *sizes;
    const fe_boundary *boundaries; /* in program order */
    const char *const *notes;
} fe_report;

/* Reads the program of `path` into the arena. options and report may be NULL. Throws (pt2.h says
 * what); EQF_E_ARGUMENT for a size that is missing, unknown or violates a guard. */
ir_program *fe_read(arena *a, const char *path, const fe_read_options *options, fe_report *report);

#endif
