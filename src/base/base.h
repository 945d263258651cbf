/* base: what every other folder stands on.
 *
 * Memory. Everything that lives as long as a problem comes from an `arena` and is freed with it.
 * Arena memory is zeroed, and zeroed memory is a valid empty value of every type here. Growing
 * arrays are `vec`s inside an arena (the old copy is left behind and freed with the arena) or
 * `heap` blocks where that would waste too much.
 *
 * Errors. A context collects diagnostics. Code below an API function may leave with `eqf_throw`,
 * which records a diagnostic and jumps to the innermost `trap` of that context; a full memory
 * arrives the same way. What must be released on the way (a zip handle, a mapping) is registered
 * with `arena_defer` on an arena that the trap's owner frees. Worker threads never throw.
 *
 *     trap t;
 *     arena *a = arena_new(ctx, 0);               // NULL: no memory
 *     TRY(ctx, t) { ...; }                        // body may throw
 *     arena_free(a);                              // runs deferred releases
 *     return t.status;                            // EQF_OK when nothing was thrown
 *
 * Locals changed inside the body and read after it must be volatile or live in memory.
 *
 * Determinism. Maps iterate in insertion order; hashing is fixed; no address decides anything. */
#ifndef EQF_BASE_H
#define EQF_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "eqf_common.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;

#define COUNT_OF(a) ((i64)(sizeof(a) / sizeof((a)[0])))
#define PRINTF_LIKE(f, v) __attribute__((format(printf, f, v)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- context, diagnostics, traps (ctx.c) -------------------------------------------------- */

typedef struct trap {
    jmp_buf jump;
    struct trap *outer;
    eqf_ctx *ctx;
    const char *file, *place; /* of eqf_about, outside */
    eqf_status status;
} trap;

void trap_push(eqf_ctx *ctx, trap *t);
void trap_pop(trap *t);
/* Runs the statement that follows; a throw inside it ends it with t.status set. No `break`,
 * `goto` or `return` may leave the statement. */
#define TRY(ctx, t)                                                                                \
    for (int try_once_ = (trap_push((ctx), &(t)), setjmp((t).jump) == 0);                          \
         (try_once_ ? 1 : (trap_pop(&(t)), 0)); try_once_ = 0)

/* Records a diagnostic and jumps to the innermost trap. file and place may be NULL. */
_Noreturn void eqf_throw(eqf_ctx *ctx, eqf_status status, const char *file, const char *place,
                         const char *format, ...) PRINTF_LIKE(5, 6);
/* Jumps without a new diagnostic (the cause has been reported already). */
_Noreturn void eqf_rethrow(eqf_ctx *ctx, eqf_status status);
/* Records a diagnostic and returns `status`. */
eqf_status eqf_report(eqf_ctx *ctx, eqf_status status, const char *file, const char *place,
                      const char *format, ...) PRINTF_LIKE(5, 6);
/* What is worked on until the innermost trap ends, or something else is said; both may be NULL. A
 * diagnostic about memory or a limit that names no file gets it: those strike anywhere. */
void eqf_about(eqf_ctx *ctx, const char *file, const char *place);
/* Forgets the diagnostics from the n-th on: of an attempt that another one replaces. */
void eqf_forget_from(eqf_ctx *ctx, size_t n);
/* An invariant of ours is broken. */
#define eqf_bug(ctx, ...) eqf_throw((ctx), EQF_E_INTERNAL, __FILE__, NULL, __VA_ARGS__)

/* ---- memory (arena.c) --------------------------------------------------------------------- */

/* malloc, realloc, free through the context's allocator. Throw on failure; free(NULL) is fine. */
void *heap_alloc(eqf_ctx *ctx, i64 size);
void *heap_resize(eqf_ctx *ctx, void *p, i64 old_size, i64 size);
void heap_free(eqf_ctx *ctx, void *p, i64 size);
/* As heap_resize, but NULL (and `p` untouched) when memory is out. size >= 1. */
void *heap_try_resize(eqf_ctx *ctx, void *p, i64 old_size, i64 size);
/* Bytes from..to of a block are going to be written soon: pages for them are taken at once rather
 * than one by one. Does nothing where few are new or the pages are large. */
void heap_touch(void *p, i64 from, i64 to);

typedef struct arena arena;
/* `limit` bytes at most (0: none); reaching it throws EQF_E_LIMIT. NULL when memory is out. */
arena *arena_new(eqf_ctx *ctx, i64 limit);
/* As above, but throws; freed when `parent` is freed or earlier by arena_free. */
arena *arena_child(arena *parent);
void arena_free(arena *a);
/* Zeroed, aligned to 16 bytes. Throws when memory is out. size >= 0. */
void *arena_alloc(arena *a, i64 size);
/* count * size with the product checked. */
void *arena_alloc_n(arena *a, i64 count, i64 size);
/* Calls release(p) when the arena is freed, in reverse order; at once, before it throws, when there
 * is no memory to remember it. */
void arena_defer(arena *a, void (*release)(void *), void *p);
eqf_ctx *arena_ctx(const arena *a);
i64 arena_bytes(const arena *a);
#define NEW(a, T) ((T *)arena_alloc((a), (i64)sizeof(T)))
#define NEW_N(a, T, n) ((T *)arena_alloc_n((a), (i64)(n), (i64)sizeof(T)))

char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, i64 n);
char *arena_printf(arena *a, const char *format, ...) PRINTF_LIKE(2, 3);
void *arena_copy(arena *a, const void *p, i64 size);

/* Growing array of T in an arena: VEC(T) names; zeroed is empty. */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        i64 n, cap;                                                                                \
    }
void vec_grow_(arena *a, void *v, i64 item_size, i64 need);
#define vec_reserve(a, v, need)                                                                    \
    ((need) > (v)->cap ? vec_grow_((a), (v), (i64)sizeof(*(v)->at), (need)) : (void)0)
#define vec_push(a, v, ...)                                                                        \
    (vec_reserve((a), (v), (v)->n + 1), (v)->at[(v)->n] = (__VA_ARGS__), (v)->n++)

/* ---- text (str.c) ------------------------------------------------------------------------- */

/* Text being built; `at` is always NUL-terminated once something was added. */
typedef struct str {
    arena *a;
    char *at;
    i64 n, cap;
} str;
str str_new(arena *a);
void str_add(str *s, const char *text);
void str_add_n(str *s, const char *text, i64 n);
void str_add_char(str *s, char c);
void str_printf(str *s, const char *format, ...) PRINTF_LIKE(2, 3);
/* Shortest decimal that reads back to the same double; "inf", "-inf", "nan". */
void str_add_f64(str *s, f64 x);
/* As a JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void str_add_json(str *s, const char *text);
const char *str_text(const str *s);

/* Interned strings: equal text, equal id; 0 is "". Ids count up in order of first use. */
typedef struct intern intern;
intern *intern_new(arena *a);
u32 intern_add(intern *t, const char *s, i64 n);
u32 intern_cstr(intern *t, const char *s);
/* 0 when absent (and for ""). */
u32 intern_find(const intern *t, const char *s, i64 n);
const char *intern_text(const intern *t, u32 id);
i64 intern_count(const intern *t);

/* ---- numbers (num.c) ---------------------------------------------------------------------- */

u64 hash_bytes(const void *p, i64 n, u64 seed);
u64 hash_u64(u64 x, u64 seed);
/* 128-bit digest as 32 hexadecimal digits and a NUL. */
void digest_hex(const void *p, i64 n, char out[33]);
/* The same of bytes that come in pieces. */
typedef struct hasher hasher;
hasher *digest_new(arena *a);
void digest_add(hasher *h, const void *p, i64 n);
void digest_end(const hasher *h, char out[33]);

/* Checked arithmetic: false and *out untouched when the result does not fit. */
bool add_i64(i64 a, i64 b, i64 *out);
bool mul_i64(i64 a, i64 b, i64 *out);

/* splitmix64-seeded xoshiro256**; equal seeds, equal streams, on every machine. */
typedef struct rng {
    u64 s[4];
} rng;
rng rng_new(u64 seed);
u64 rng_u64(rng *r);
/* Uniform in [0, n); n >= 1. */
u64 rng_below(rng *r, u64 n);
/* Uniform in [0, 1). */
f64 rng_f64(rng *r);

/* IEEE half and bfloat16, round to nearest even; f16 overflows to infinity. */
u16 f16_of_f32(f32 x);
f32 f32_of_f16(u16 h);
u16 bf16_of_f32(f32 x);
f32 f32_of_bf16(u16 h);
/* Correctly rounded from f64 in one step. */
u16 f16_of_f64(f64 x);
u16 bf16_of_f64(f64 x);

/* ---- S-expressions (sexpr.c) -------------------------------------------------------------- */

/* One reader for programs, rules, dumps, derivations, suites and tests.
 * Atoms: symbols (`?x`, `:axis`, `+`, `aten.add`), numbers, "strings" with \" \\ \n \t escapes.
 * Lists in (), sets in {} and vectors in [] keep their bracket. `;` starts a comment. */
typedef enum sx_kind { SX_SYMBOL, SX_INT, SX_FLOAT, SX_STRING, SX_LIST } sx_kind;
typedef struct sx {
    u8 kind;
    char bracket;    /* '(' '{' '[' for a list */
    u32 line, column; /* from 1 */
    i64 n;           /* items of a list, bytes of text */
    const char *text; /* spelling of an atom, NUL-terminated; the content of a string */
    i64 i;           /* SX_INT */
    f64 f;           /* SX_INT and SX_FLOAT */
    struct sx **at;  /* items of a list */
} sx;
/* All top-level forms of `text` (n bytes) as one list. Throws EQF_E_PARSE with line:column.
 * Nesting at most 4,096. */
sx *sx_read(arena *a, const char *file, const char *text, i64 n);
bool sx_is(const sx *x, const char *symbol);
/* Is `x` a list whose first item is the symbol `head`? */
bool sx_is_form(const sx *x, const char *head);
/* Throws EQF_E_PARSE at the place of `x`. */
_Noreturn void sx_throw(eqf_ctx *ctx, const char *file, const sx *x, const char *format, ...)
    PRINTF_LIKE(4, 5);
void sx_print(str *out, const sx *x);

/* ---- files (file.c) ----------------------------------------------------------------------- */

/* Whole file into the arena, NUL-terminated past *n. Throws EQF_E_IO; EQF_E_LIMIT above `max`. */
char *file_read(arena *a, const char *path, i64 max, i64 *n);
/* The n bytes at `offset` of an open file. Throws EQF_E_IO, naming `path`, also when there are fewer. */
void file_read_at(eqf_ctx *ctx, int fd, const char *path, void *to, i64 n, i64 offset);
/* Writes beside `path`, syncs, renames; what a link points at is replaced, not the link. A device or a
 * pipe is written to. Throws EQF_E_IO; nothing is left behind then, and what a killed writer left in
 * the folder is removed. */
void file_write(eqf_ctx *ctx, const char *path, const void *data, i64 n);
/* The same from several pieces of memory, one after another. */
typedef struct file_part {
    const void *data;
    i64 size;
} file_part;
void file_write_parts(eqf_ctx *ctx, const char *path, const file_part *parts, i64 count);
/* Writes the pieces to an open file; 0, or errno. */
int file_put(int fd, const file_part *parts, i64 count);
/* What is not whole yet stands beside its place as .NAME.equiforge-PID-N, locked by who writes it. If a
 * file or folder is called so: the length of NAME, and what follows N (""); else -1. */
#define FILE_MARK ".equiforge-"
i64 file_temporary(const char *name, const char **rest);
/* Does `name` in the open folder (or AT_FDCWD) still stand for the open file or folder? To ask after
 * locking it: who held the lock before may use the name for the next one. */
bool file_is_at(int folder, const char *name, int fd);
/* Read-only mapping, unmapped with the arena. An empty file gives a non-NULL pointer. */
const void *file_map(arena *a, const char *path, i64 *n);

/* ---- data types and tensors (tensor.c, safetensors.c) ------------------------------------- */

typedef enum dtype {
    DT_NONE,
#define DTYPE(name, ctype, bytes, kind, st) DT_##name,
#include "base/dtypes.def"
#undef DTYPE
    DT_COUNT
} dtype;
typedef enum dtype_kind { DK_NONE, DK_BOOL, DK_INT, DK_FLOAT } dtype_kind;
const char *dtype_name(dtype t);
/* DT_NONE when there is no such name. */
dtype dtype_find(const char *name);
i64 dtype_bytes(dtype t);
dtype_kind dtype_kind_of(dtype t);
bool dtype_is_float(dtype t);

/* A dense row-major tensor in storage format. Rank 0 has one element. */
typedef struct tensor {
    const char *name; /* may be NULL */
    dtype type;
    i64 rank;
    const i64 *shape;
    void *data;
} tensor;
/* Product of the extents; throws EQF_E_LIMIT when it or the bytes overflow. */
i64 tensor_count(eqf_ctx *ctx, i64 rank, const i64 *shape);
i64 tensor_bytes(eqf_ctx *ctx, const tensor *t);
/* Element i as f64 (floats), or exactly as i64 (integers and bool). */
f64 tensor_get_f64(const tensor *t, i64 i);
i64 tensor_get_i64(const tensor *t, i64 i);
/* Rounded to nearest even once from f64; integers must be in range. */
void tensor_set_f64(tensor *t, i64 i, f64 x);
void tensor_set_i64(tensor *t, i64 i, i64 x);

/* A .safetensors file: every tensor in the order of the header, data mapped read-only and valid as
 * long as the arena. Throws EQF_E_PARSE naming the tensor; EQF_E_UNSUPPORTED for other dtypes. */
tensor *safetensors_read(arena *a, const char *path, i64 *count);
/* The same of a file in memory, which lives as long as the tensors; `path` is for messages. */
tensor *safetensors_parse(arena *a, const char *path, const void *bytes, i64 size, i64 *count);
/* The pieces of such a file, in *parts, data where the tensors have it; returns their number. Throws
 * EQF_E_ARGUMENT for names that cannot stand in one. `path` is for messages. */
i64 safetensors_parts(arena *a, const char *path, const tensor *tensors, i64 count,
                      file_part **parts);
/* Written as file_write does. */
void safetensors_write(eqf_ctx *ctx, const char *path, const tensor *tensors, i64 count);

/* ---- threads (pool.c) --------------------------------------------------------------------- */

/* A region of `parts` pieces, run by the caller and the pool's workers; the caller waits for
 * pieces, never for workers. Workers spin briefly, then sleep. One region at a time. */
typedef struct pool pool;
/* threads >= 1 counts the caller. NULL when threads cannot be started. */
pool *pool_new(eqf_ctx *ctx, int threads);
void pool_free(pool *p);
int pool_threads(const pool *p);
/* body(user, piece) for each piece in [0, parts). p may be NULL: the caller does all. */
void pool_run(pool *p, i64 parts, void (*body)(void *user, i64 piece), void *user);

#endif
