/* Loading a package directory. Everything is checked before anything of it runs: format, version,
 * the plan's own digest, then for each file that it is a regular file inside the directory (no
 * link), its size and digest, then the architecture and CPU features; only then is the kernel
 * library opened. Its name holds its digest, so a package replaced under the same path is never
 * mistaken for the one already in memory. Weights are copied into huge pages when they are large
 * enough to gain from it, else mapped. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>

#include "runtime/runtime.h"

#define MAX_PLAN_BYTES ((i64)256 << 20)
#define COPY_WEIGHTS_FROM ((i64)4 << 20) /* bytes: from two huge pages on */

struct rt_model {
    arena *a;
    eqf_ctx *ctx;
    const char *directory;
    rt_package *package;
    const u8 *weights;
    rt_kernel *kernels;
};

static void close_library(void *p)
{
    dlclose(p);
}

static const char *path_of(const rt_model *m, const char *name)
{
    return arena_printf(m->a, "%s/%s", m->directory, name);
}

/* No part of the package may lead out of its directory. */
static void check_inside(const rt_model *m, const char *path, bool folder)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        eqf_throw(m->ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    if (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        eqf_throw(m->ctx, EQF_E_DATA, path, NULL,
                  "not a %s of the package (links are not followed)", folder ? "folder" : "file");
}

static void check_files(rt_model *m)
{
    for (i64 i = 0; i < m->package->files.n; i++) {
        const rt_file *f = &m->package->files.at[i];
        const char *path = path_of(m, f->name);
        if (strchr(f->name, '/'))
            check_inside(m, path_of(m, RT_KERNELS_DIR), true);
        check_inside(m, path, false);
        arena *scratch = arena_child(m->a);
        i64 n;
        const void *data = file_map(scratch, path, &n);
        if (n != f->bytes)
            eqf_throw(m->ctx, EQF_E_DATA, path, NULL, "damaged: %lld bytes, written with %lld",
                      (long long)n, (long long)f->bytes);
        char digest[33];
        digest_hex(data, n, digest);
        if (memcmp(digest, f->digest, 32) != 0)
            eqf_throw(m->ctx, EQF_E_DATA, path, NULL,
                      "damaged: its digest is not the one it was written with");
        arena_free(scratch);
    }
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

static void load_weights(rt_model *m)
{
    i64 wanted = m->package->plan.weights_bytes, n = 0;
    if (wanted == 0) {
        m->weights = (const u8 *)"";
        return;
    }
    const char *path = path_of(m, RT_WEIGHTS_FILE);
    check_inside(m, path, false);
    bool copies = wanted >= COPY_WEIGHTS_FROM;
    arena *a = copies ? arena_child(m->a) : m->a;
    m->weights = file_map(a, path, &n);
    if (n != wanted)
        eqf_throw(m->ctx, EQF_E_DATA, path, NULL, "damaged: %lld bytes, written with %lld",
                  (long long)n, (long long)wanted);
    if (copies) {
        u8 *copy = rt_big_alloc(m->a, n);
        memcpy(copy, m->weights, (size_t)n);
        m->weights = copy;
        arena_free(a);
    }
}

static void load_kernels(rt_model *m)
{
    const rt_plan *plan = &m->package->plan;
    m->kernels = NEW_N(m->a, rt_kernel, plan->launches.n);
    void *library = NULL;
    if (m->package->library[0]) {
        const char *path = path_of(m, m->package->library);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            eqf_throw(m->ctx, EQF_E_MACHINE, path, NULL, "cannot load: %s", dlerror());
        arena_defer(m->a, close_library, library);
    }
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

rt_model *rt_load(eqf_ctx *ctx, const char *directory)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, directory, NULL, "out of memory");
    rt_model *volatile made = NULL;
    trap t;
    TRY (ctx, t) {
        rt_model *m = NEW(a, rt_model);
        m->a = a;
        m->ctx = ctx;
        m->directory = arena_strdup(a, directory);
        struct stat st;
        if (stat(directory, &st) != 0)
            eqf_throw(ctx, EQF_E_IO, directory, NULL, "cannot open: %s", strerror(errno));
        const char *path = path_of(m, RT_PLAN_FILE);
        struct stat plan;
        if (!S_ISDIR(st.st_mode) || (lstat(path, &plan) != 0 && errno == ENOENT))
            eqf_throw(ctx, EQF_E_NOT_OURS, directory, NULL, "not a package (no %s in it)",
                      RT_PLAN_FILE);
        check_inside(m, path, false);
        i64 n;
        char *text = file_read(a, path, MAX_PLAN_BYTES, &n);
        m->package = rt_plan_read(a, path, text, n);
        check_files(m);
        check_machine(m);
        load_weights(m);
        load_kernels(m);
        made = m;
    }
    if (t.status != EQF_OK) {
        arena_free(a);
        eqf_rethrow(ctx, t.status);
    }
    return made;
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

rt_kernel rt_model_kernel(const rt_model *m, i64 launch)
{
    return m->kernels[launch];
}
