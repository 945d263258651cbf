/* Loading a package directory. Everything is checked before anything of it runs: format, version,
 * the plan's own digest, the architecture and CPU features, then for each file that it is a regular
 * file inside the directory (no link), its size and digest; only then is the kernel library opened.
 *
 * A package may be replaced while it is loaded. Files are therefore opened below one directory that
 * is held open, and bytes that are used are the bytes that were hashed. What the new package's
 * writer has already removed is missing then, and the new package is loaded instead.
 *
 * Weights are copied, into huge pages when they are large enough to gain from it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/runtime.h"

#define MAX_PLAN_BYTES ((i64)256 << 20)
#define HASHED_AT_ONCE ((i64)1 << 18) /* bytes */
#define MAX_ATTEMPTS 100              /* each of them outrun by a new package */

struct rt_model {
    arena *a;
    eqf_ctx *ctx;
    const char *directory;
    arena *held;        /* while it is loaded: */
    int at, kernels_at; /* the directory and its kernels/; -1: none */
    rt_package *package;
    const u8 *weights;
    const rt_file *check; /* NULL: the package has none */
    int check_fd;         /* held open: its name may be another package's tomorrow */
    rt_kernel *kernels;
};

static void close_library(void *p)
{
    dlclose(p);
}

static void close_fd(void *p)
{
    close((int)(intptr_t)p);
}

/* Models are shared between threads, their arena is not: once loaded, `a` is the caller's. */
static const char *path_of(const rt_model *m, arena *a, const char *name)
{
    return arena_printf(a, "%s/%s", m->directory, name);
}

/* Opens NAME below the directory `at`, closed with `a`. No part of the package may lead out of its
 * directory. `path` is for messages. */
static int open_inside(arena *a, int at, const char *name, const char *path, bool folder,
                       i64 *bytes)
{
    eqf_ctx *ctx = arena_ctx(a);
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (folder ? O_DIRECTORY : 0);
    int fd = openat(at, name, flags);
    bool other = fd < 0 && (errno == ELOOP || errno == ENOTDIR || errno == ENXIO);
    if (fd < 0 && !other)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    if (fd >= 0)
        arena_defer(a, close_fd, (void *)(intptr_t)fd);
    struct stat st;
    if (!other && fstat(fd, &st) != 0)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    if (other || (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
        eqf_throw(ctx, EQF_E_DATA, path, NULL,
                  "not a %s of the package (links are not followed)", folder ? "folder" : "file");
    if (bytes)
        *bytes = (i64)st.st_size;
    return fd;
}

/* The digest of an open file. */
static void hash_file(arena *a, int fd, const char *path, i64 n, char out[33])
{
    hasher *h = digest_new(a);
    u8 *piece = arena_alloc(a, MIN(n, HASHED_AT_ONCE));
    for (i64 at = 0; at < n; at += HASHED_AT_ONCE) {
        i64 length = MIN(n - at, HASHED_AT_ONCE);
        file_read_at(arena_ctx(a), fd, path, piece, length, at);
        digest_add(h, piece, length);
    }
    digest_end(h, out);
}

static void check_digest(eqf_ctx *ctx, const rt_file *f, const char *path, const char digest[33])
{
    if (memcmp(digest, f->digest, 32) != 0)
        eqf_throw(ctx, EQF_E_DATA, path, NULL,
                  "damaged: its digest is not the one it was written with");
}

/* A file of the package as memory of `a`; its size is known to be f->bytes. */
static u8 *take_bytes(arena *a, int fd, const rt_file *f, const char *path)
{
    eqf_about(arena_ctx(a), path, NULL);
    u8 *bytes = rt_big_alloc(a, f->bytes);
    file_read_at(arena_ctx(a), fd, path, bytes, f->bytes, 0);
    char digest[33];
    digest_hex(bytes, f->bytes, digest);
    check_digest(arena_ctx(a), f, path, digest);
    return bytes;
}

static void take_file(rt_model *m, const rt_file *f)
{
    const char *path = path_of(m, m->a, f->name), *slash = strchr(f->name, '/');
    if (slash && m->kernels_at < 0)
        m->kernels_at = open_inside(m->held, m->at, RT_KERNELS_DIR,
                                    path_of(m, m->held, RT_KERNELS_DIR), true, NULL);
    bool is_check = strcmp(f->name, RT_CHECK_FILE) == 0;
    arena *scratch = arena_child(m->a);
    i64 n;
    int fd = open_inside(is_check ? m->a : scratch, slash ? m->kernels_at : m->at,
                         slash ? slash + 1 : f->name, path, false, &n);
    if (n != f->bytes)
        eqf_throw(m->ctx, EQF_E_DATA, path, NULL, "damaged: %lld bytes, written with %lld",
                  (long long)n, (long long)f->bytes);
    if (is_check) {
        m->check = f;
        m->check_fd = fd;
    }
    if (strcmp(f->name, RT_WEIGHTS_FILE) == 0) {
        m->weights = take_bytes(m->a, fd, f, path);
        eqf_about(m->ctx, m->directory, NULL);
    } else {
        char digest[33];
        hash_file(scratch, fd, path, n, digest);
        check_digest(m->ctx, f, path, digest);
    }
    arena_free(scratch);
}

static void take_files(rt_model *m)
{
    const rt_package *p = m->package;
    i64 wanted = p->plan.weights_bytes, found = 0;
    for (i64 i = 0; i < p->files.n; i++) {
        take_file(m, &p->files.at[i]);
        if (strcmp(p->files.at[i].name, RT_WEIGHTS_FILE) == 0)
            found = p->files.at[i].bytes;
    }
    if (found != wanted)
        eqf_throw(m->ctx, EQF_E_DATA, path_of(m, m->a, RT_WEIGHTS_FILE), NULL,
                  "damaged: %lld bytes, the plan wants %lld", (long long)found, (long long)wanted);
    if (wanted == 0)
        m->weights = (const u8 *)"";
}

static void check_machine(const rt_model *m)
{
    const rt_package *p = m->package;
    if (strcmp(p->backend, "c") != 0)
        eqf_throw(m->ctx, EQF_E_UNSUPPORTED, m->directory, NULL, "made for the backend %s",
                  p->backend);
    str missing = str_new(m->a);
    if (strcmp(p->arch, rt_arch()) != 0)
        str_printf(&missing, " %s", p->arch);
    else
        for (i64 i = 0; i < p->features.n; i++)
            if (!rt_has_feature(p->features.at[i]))
                str_printf(&missing, " %s", p->features.at[i]);
    if (missing.n)
        eqf_throw(m->ctx, EQF_E_MACHINE, m->directory, NULL,
                  "made for another machine: this %s CPU lacks%s; rebuild it here with: %s",
                  rt_arch(), str_text(&missing), p->rebuild);
}

/* The library is opened below the directory that is held open, as long as the system shows it there.
 * Its name is its digest: the dynamic linker, which takes a known name for a known library, cannot
 * mistake one package's for another's. */
static void *open_library(rt_model *m)
{
    const rt_package *p = m->package;
    if (!p->library[0])
        return NULL;
    const rt_file *f = NULL;
    for (i64 i = 0; i < p->files.n && !f; i++)
        f = strcmp(p->files.at[i].name, p->library) == 0 ? &p->files.at[i] : NULL;
    const char *path = path_of(m, m->a, p->library);
    if (!f || strcmp(f->name, arena_printf(m->a, RT_KERNELS_DIR "/%s.so", f->digest)) != 0)
        eqf_throw(m->ctx, EQF_E_DATA, path, NULL, "the name of the library is not its digest");
    const char *held = arena_printf(m->a, "/proc/self/fd/%d/%s.so", m->kernels_at, f->digest);
    void *library = dlopen(access(held, F_OK) == 0 ? held : path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        eqf_throw(m->ctx, EQF_E_MACHINE, path, NULL, "cannot load: %s", dlerror());
    arena_defer(m->a, close_library, library);
    return library;
}

static void load_kernels(rt_model *m)
{
    const rt_plan *plan = &m->package->plan;
    m->kernels = NEW_N(m->a, rt_kernel, plan->launches.n);
    void *library = open_library(m);
    for (i64 i = 0; i < plan->launches.n; i++) {
        const rt_launch *l = &plan->launches.at[i];
        if (!l->symbol[0])
            continue;
        void *symbol = library ? dlsym(library, l->symbol) : NULL;
        if (!symbol)
            eqf_throw(m->ctx, EQF_E_DATA, m->directory, l->symbol, "no such kernel in the package");
        memcpy(&m->kernels[i], &symbol, sizeof symbol);
    }
}

static void load(rt_model *m)
{
    eqf_ctx *ctx = m->ctx;
    const char *path = path_of(m, m->a, RT_PLAN_FILE);
    m->held = arena_child(m->a);
    int at = open(m->directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (at < 0 && errno != ENOTDIR)
        eqf_throw(ctx, EQF_E_IO, m->directory, NULL, "cannot open: %s", strerror(errno));
    if (at >= 0) {
        m->at = at;
        arena_defer(m->held, close_fd, (void *)(intptr_t)at);
    }
    if (at < 0 || (faccessat(at, RT_PLAN_FILE, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT))
        eqf_throw(ctx, EQF_E_NOT_OURS, m->directory, NULL, "not a package (no %s in it)",
                  RT_PLAN_FILE);
    arena *scratch = arena_child(m->a);
    i64 n;
    int fd = open_inside(scratch, at, RT_PLAN_FILE, path, false, &n);
    if (n > MAX_PLAN_BYTES)
        eqf_throw(ctx, EQF_E_LIMIT, path, NULL, "%lld bytes, more than the limit of %lld",
                  (long long)n, (long long)MAX_PLAN_BYTES);
    char *text = arena_alloc(scratch, n + 1);
    file_read_at(ctx, fd, path, text, n, 0);
    m->package = rt_plan_read(m->a, path, text, n);
    arena_free(scratch);
    check_machine(m);
    take_files(m);
    load_kernels(m);
    arena_free(m->held);
    m->at = m->kernels_at = -1;
}

/* Does the directory's name belong to another directory by now? */
static bool is_replaced(const rt_model *m)
{
    struct stat held, now;
    return m->at >= 0 && fstat(m->at, &held) == 0 && stat(m->directory, &now) == 0 &&
           (held.st_dev != now.st_dev || held.st_ino != now.st_ino);
}

/* One attempt; *replaced: it failed, and the directory's name is another one's by now. */
static eqf_status try_load(eqf_ctx *ctx, const char *directory, rt_model **out, bool *replaced)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, directory, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        rt_model *m = NEW(a, rt_model);
        *m = (rt_model){.a = a, .ctx = ctx, .at = -1, .kernels_at = -1, .check_fd = -1};
        m->directory = arena_strdup(a, directory);
        *out = m;
        eqf_about(ctx, directory, NULL);
        load(m);
    }
    if (t.status != EQF_OK) {
        *replaced = *out && is_replaced(*out);
        arena_free(a);
    }
    return t.status;
}

rt_model *rt_load(eqf_ctx *ctx, const char *directory)
{
    size_t reported = eqf_diag_count(ctx);
    for (int attempt = 1;; attempt++) {
        rt_model *m = NULL;
        bool replaced = false;
        eqf_status s = try_load(ctx, directory, &m, &replaced);
        if (s == EQF_OK)
            return m;
        if (!replaced || attempt == MAX_ATTEMPTS)
            eqf_rethrow(ctx, s);
        eqf_forget_from(ctx, reported);
    }
}

void rt_unload(rt_model *m)
{
    if (m)
        arena_free(m->a);
}

const rt_package *rt_model_package(const rt_model *m)
{
    return m->package;
}

const char *rt_model_directory(const rt_model *m)
{
    return m->directory;
}

const u8 *rt_model_weights(const rt_model *m)
{
    return m->weights;
}

const tensor *rt_model_check(const rt_model *m, arena *a, i64 *count)
{
    const char *path = path_of(m, a, RT_CHECK_FILE);
    if (!m->check)
        eqf_throw(arena_ctx(a), EQF_E_DATA, path, NULL, "the package has no such file");
    const u8 *bytes = take_bytes(a, m->check_fd, m->check, path);
    eqf_about(arena_ctx(a), m->directory, NULL);
    return safetensors_parse(a, path, bytes, m->check->bytes, count);
}

rt_kernel rt_model_kernel(const rt_model *m, i64 launch)
{
    return m->kernels[launch];
}
