/* reader: what the files behind pt2.h share with each other and with their tests.
 *
 * fe_zip is a checked archive: what fe_zip_open returns has sane names, sizes and offsets, and
 * reading a member verifies its CRC. fe_js is a cursor into JSON that knows where it stands, so
 * that every accessor can throw a message with a place. Expression text, in sympy's and in
 * Python's spelling, becomes fe_expr trees over one table of symbols. */
#ifndef EQF_FRONTEND_READER_H
#define EQF_FRONTEND_READER_H

#include "frontend/pt2.h"

/* ---- zip.c --------------------------------------------------------------------------------- */

enum {
    FE_MAX_NAME = 4096,
    FE_MAX_ENTRIES = 1 << 20,
    FE_MAX_RATIO = 1100, /* deflate cannot do better than 1032 */
    FE_MAX_DEPTH = 256   /* nesting of expressions and of calling conventions */
};

typedef struct fe_entry {
    const char *name;
    i64 size;   /* of the content */
    i64 packed; /* bytes in the file */
    i64 header; /* offset of the local header */
    i64 data;   /* offset of the packed bytes */
    u16 method; /* 0 stored, 8 deflated; others are refused by fe_zip_check */
    u16 flags;
    i64 storage; /* pt2_weights.c: 1 + number of the storage it holds; 0: none yet */
} fe_entry;

typedef struct fe_zip {
    eqf_ctx *ctx;
    const char *file;
    i64 n;
    fe_entry *entries; /* in the order of the central directory */
    intern *names;     /* id of a name = 1 + index of its entry */
    void *handle;      /* of libzip */
    const u8 *bytes;   /* the whole file, mapped; NULL where the system does not map it */
} fe_zip;

/* A regular file; or n bytes, which must outlive `a`. Throws EQF_E_NOT_OURS when it is no zip
 * archive, EQF_E_PARSE when it is a broken one, EQF_E_UNSUPPORTED for several disks. */
fe_zip *fe_zip_open(arena *a, const char *path);
fe_zip *fe_zip_open_bytes(arena *a, const char *file, const void *bytes, i64 n);
/* NULL when absent. */
fe_entry *fe_zip_find(const fe_zip *z, const char *name);
/* Throws unless the member can be read: method, encryption, ratio. */
void fe_zip_check(const fe_zip *z, const fe_entry *e);
/* The content where it lies in the file, valid as long as the archive; NULL when it is compressed
 * or cannot be mapped. Not checked: see fe_zip_read. */
const u8 *fe_zip_content(const fe_zip *z, const fe_entry *e);
/* Exactly e->size bytes; `out` NULL only checks them. Throws `damaged` when the data is shorter,
 * longer or fails its CRC. `place` is what the message names; NULL: the member. */
void fe_zip_read(const fe_zip *z, const fe_entry *e, eqf_status damaged, const char *place,
                 void *out);

/* Is the text valid UTF-8, not empty, at most FE_MAX_NAME bytes, free of control characters? */
bool fe_is_plain_name(const char *s, i64 n);
/* At most ~100 bytes of a text for a message, control characters as \xNN, always one line. */
const char *fe_show(arena *a, const char *s, i64 n);
/* vsnprintf that never cuts a character of UTF-8 in two. */
void fe_format(char *out, i64 size, const char *format, va_list args);

/* ---- json.c -------------------------------------------------------------------------------- */

/* One JSON text. `node`, when set, is the node being read: the place of errors. */
typedef struct fe_doc {
    arena *a; /* of messages and copied strings */
    eqf_ctx *ctx;
    const char *file;
    const char *member;
    const char *node;
    void *root;
} fe_doc;

/* A value and the way to it. Lives on the stack; `up` must outlive it. v NULL: absent or null. */
typedef struct fe_js {
    fe_doc *doc;
    const struct fe_js *up;
    const char *key; /* NULL: item number `index` */
    i64 index;
    void *v;
} fe_js;

/* Parses n bytes; the tree is freed with `a`. Throws EQF_E_PARSE at MEMBER:LINE:COLUMN. */
fe_doc *fe_json_read(arena *a, const char *file, const char *member, const char *text, i64 n);
/* As above, but NULL when the text is malformed. */
fe_doc *fe_json_try(arena *a, const char *file, const char *member, const char *text, i64 n);
fe_js fe_js_root(fe_doc *d);

_Noreturn void fe_js_throw(const fe_js *x, eqf_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Member of an object; the accessors throw when `o` is none. get: must be there and not null. */
fe_js fe_js_get(const fe_js *o, const char *key);
fe_js fe_js_opt(const fe_js *o, const char *key);
/* The one member of a tagged union. */
fe_js fe_js_only(const fe_js *o);
/* Calls for each member in order: void *it = NULL; while (fe_js_next(o, &it, &member)) … */
bool fe_js_next(const fe_js *o, void **it, fe_js *member);
i64 fe_js_members(const fe_js *o);
i64 fe_js_items(const fe_js *array);
fe_js fe_js_at(const fe_js *array, i64 i);
bool fe_js_is_object(const fe_js *x);
bool fe_js_is_array(const fe_js *x);
bool fe_js_is_text(const fe_js *x);
bool fe_js_is_int(const fe_js *x);

i64 fe_js_i64(const fe_js *x);
/* A number, or one of the strings "Infinity", "-Infinity", "NaN". */
f64 fe_js_f64(const fe_js *x);
bool fe_js_bool(const fe_js *x);
/* Belongs to the document. n may be NULL. */
const char *fe_js_text(const fe_js *x, i64 *n);
/* A text that passes fe_is_plain_name. */
const char *fe_js_name(const fe_js *x);

/* ---- srepr.c, guards.c --------------------------------------------------------------------- */

/* The symbols of a program and its expressions by text. */
typedef struct fe_exprs {
    arena *a;
    intern *names; /* id = 1 + index of the symbol */
    VEC(fe_symbol) symbols;
    intern *texts; /* id = 1 + index into known */
    VEC(const fe_expr *) known;
    intern *paths; /* id = 1 + index into path_inputs */
    VEC(u32) path_inputs;
    const fe_input *inputs;
} fe_exprs;

fe_exprs *fe_exprs_new(arena *a);
const fe_expr *fe_expr_const(fe_exprs *x, i64 value);
/* A new tree node with room for n arguments. */
fe_expr *fe_expr_new(fe_exprs *x, fe_expr_op op, i64 n);
u32 fe_expr_symbol(fe_exprs *x, const char *name, i64 n);
/* sympy's srepr. Equal texts give one tree; what is not understood is FE_EXPR_OPAQUE. hint may be
 * NULL. NULL when the text is no expression at all. */
const fe_expr *fe_expr_srepr(fe_exprs *x, const char *text, i64 n, const i64 *hint);
/* What L[…] means in Python text from now on. */
void fe_exprs_inputs(fe_exprs *x, const fe_input *inputs, i64 n);
/* A Python condition or expression over symbols and L[…]; NULL when not understood. */
const fe_expr *fe_expr_python(fe_exprs *x, const char *text, i64 n);

/* ---- the parts of a program ---------------------------------------------------------------- */

/* One record of weight bytes. */
typedef struct fe_storage {
    fe_entry *entry;
    i64 uses;
    u8 *bytes; /* kept once read when several weights share it */
    bool is_good; /* its CRC was found to fit */
} fe_storage;

typedef struct fe_archive {
    fe_zip *zip;
    const char *root; /* "" or "NAME/" */
    arena *a;
    VEC(fe_storage) storages;
} fe_archive;

/* State of one reading; counts are of the whole program. */
typedef struct fe_reader {
    arena *a; /* of the program */
    fe_program *p;
    fe_exprs *exprs;
    intern *words; /* targets, argument names, sources */
    VEC(const char *) notes;
    i64 nodes, values, args;
} fe_reader;

/* pt2_graph.c: graph_module.graph, with its sub-graphs. */
fe_graph *fe_read_graph(fe_reader *r, const fe_js *graph, const char *name, int depth);
/* pt2_signature.c: specs, names of inputs and outputs. */
void fe_read_signature(fe_reader *r, const fe_js *module);
/* pt2_weights.c: binds p->inputs to records. */
void fe_read_weights(fe_reader *r, const char *model);

/* Text of a member below the root, or NULL; n may be NULL. Thrown away with `scratch`. */
char *fe_member_text(arena *scratch, const fe_archive *ar, const char *name, i64 max, i64 *n);
const char *fe_word(fe_reader *r, const char *s, i64 n);
void fe_note(fe_reader *r, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
