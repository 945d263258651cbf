/* Package directories that appear whole or not at all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "package/package.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define ASIDE "-old"

struct pk_writer {
    arena *a;
    eqf_ctx *ctx;
    const char *target, *parent, *base; /* target = parent/base */
    const char *directory;              /* the temporary sibling */
    int lock;                           /* descriptor of it, locked */
    int old;                            /* the same of what it replaces, where that steps aside */
    bool kept;                          /* committed: nothing to remove */
    VEC(rt_file) files;
};

/* What a package directory may hold. */
static const char *const members[] = {
    RT_PLAN_FILE,    "program.eqf", "proof.eqf",   RT_KERNELS_DIR,
    RT_WEIGHTS_FILE, RT_CHECK_FILE, "report.json", "equiforge_model.h",
};

static _Noreturn void io_error(const pk_writer *w, const char *path, const char *what)
{
    eqf_throw(w->ctx, EQF_E_IO, path, NULL, "cannot %s: %s", what, strerror(errno));
}

/* What a file of the package will be called: the temporary folder means nothing to the user. */
static const char *shown(const pk_writer *w, const char *name)
{
    return arena_printf(w->a, "%s/%s", w->target, name);
}

/* ---- removing ----------------------------------------------------------------------------------
 */

/* Removes a directory of ours, two levels deep; best effort, since what stays is found again. */
static void remove_tree(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        unlinkat(at, name, 0);
        return;
    }
    struct dirent *e;
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) != 0 && depth > 0)
            remove_tree(fd, e->d_name, depth - 1);
    }
    closedir(d);
    unlinkat(at, name, AT_REMOVEDIR);
}

static void release(void *p)
{
    pk_writer *w = p;
    if (w->directory && !w->kept)
        remove_tree(AT_FDCWD, w->directory, 1);
    if (w->lock >= 0)
        close(w->lock);
    if (w->old >= 0)
        close(w->old);
    w->lock = w->old = -1;
}

/* ---- the target --------------------------------------------------------------------------------
 */

static bool is_member(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(members); i++)
        if (strcmp(members[i], name) == 0)
            return true;
    return false;
}

/* The folder has a plan that starts as one. */
static bool is_package(const pk_writer *w, const char *folder)
{
    static const char head[] = "{\"format\":\"equiforge-plan\"";
    char text[sizeof head] = "";
    const char *plan = arena_printf(w->a, "%s/%s", folder, RT_PLAN_FILE);
    int fd = open(plan, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ours = read(fd, text, sizeof head - 1) == (ssize_t)sizeof head - 1 &&
                memcmp(text, head, sizeof head - 1) == 0;
    close(fd);
    return ours;
}

/* Removes directories of writers that are gone, for whatever target beside this one. A package that had
 * stepped aside for one of them goes back to its place. */
static void remove_leftovers(const pk_writer *w)
{
    DIR *d = opendir(w->parent);
    if (!d)
        io_error(w, w->target, "write, its folder cannot be opened");
    struct dirent *e;
    while ((e = readdir(d))) {
        const char *rest;
        i64 length = file_temporary(e->d_name, &rest);
        bool is_aside = length > 0 && strcmp(rest, ASIDE) == 0;
        if (length < 0 || (*rest && !is_aside))
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        /* A writer that lives has it locked; the name may be that writer's next folder by now. */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && file_is_at(dirfd(d), e->d_name, fd)) {
            char base[sizeof e->d_name] = "";
            memcpy(base, e->d_name + 1, (size_t)length);
            struct stat st;
            bool is_missed = is_aside && fstatat(dirfd(d), base, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
                             is_package(w, arena_printf(w->a, "%s/%s", w->parent, e->d_name));
            if (!is_missed || renameat(dirfd(d), e->d_name, dirfd(d), base) != 0)
                remove_tree(dirfd(d), e->d_name, 1);
        }
        close(fd);
    }
    closedir(d);
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e = NULL;
    while (d && (e = readdir(d)) && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        ;
    if (d)
        closedir(d);
    return d && !e;
}

/* Replacing must destroy nothing but a package: the plan's head, and no file that no package has; or
 * an empty folder. */
static void check_target(const pk_writer *w)
{
    struct stat st;
    if (is_package(w, w->parent))
        eqf_throw(w->ctx, EQF_E_ARGUMENT, w->target, NULL,
                  "is inside another package, which could not be replaced any more");
    if (lstat(w->target, &st) != 0) {
        if (errno != ENOENT)
            io_error(w, w->target, "look at");
        return;
    }
    if (S_ISDIR(st.st_mode) && is_empty(w->target))
        return;
    if (!S_ISDIR(st.st_mode) || !is_package(w, w->target))
        eqf_throw(w->ctx, EQF_E_ARGUMENT, w->target, NULL,
                  "exists and is no package; it is left alone: choose another name, or remove it");
    DIR *d = opendir(w->target);
    if (!d)
        io_error(w, w->target, "open");
    char stranger[256] = "";
    struct dirent *e;
    while ((e = readdir(d)) && !stranger[0])
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !is_member(e->d_name))
            snprintf(stranger, sizeof stranger, "%.255s", e->d_name);
    closedir(d);
    if (stranger[0])
        eqf_throw(w->ctx, EQF_E_ARGUMENT, w->target, stranger,
                  "is no part of a package; move it away before the package is replaced");
}

/* Splits `path`; an existing target is resolved first, so that a link keeps pointing at it. */
static void find_target(pk_writer *w, const char *path)
{
    char real[PATH_MAX];
    char *target = arena_strdup(w->a, realpath(path, real) ? real : path);
    i64 n = (i64)strlen(target);
    while (n > 1 && target[n - 1] == '/')
        target[--n] = 0;
    char *slash = strrchr(target, '/');
    w->target = target;
    w->base = slash ? slash + 1 : target;
    w->parent = !slash ? "." : slash == target ? "/" : arena_strndup(w->a, target, slash - target);
    if (n == 0 || w->base[0] == 0 || strcmp(w->base, "..") == 0 || strcmp(w->base, ".") == 0)
        eqf_throw(w->ctx, EQF_E_ARGUMENT, path, NULL, "no name for a package");
}

pk_writer *pk_begin(arena *a, const char *path)
{
    pk_writer *w = NEW(a, pk_writer);
    w->a = a;
    w->ctx = arena_ctx(a);
    w->lock = w->old = -1;
    find_target(w, path);
    remove_leftovers(w);
    check_target(w);
    arena_defer(a, release, w);
    for (int attempt = 0; attempt < 100; attempt++) {
        const char *name =
            arena_printf(a, "%s/.%s" FILE_MARK "%ld-%d", w->parent, w->base, (long)getpid(), attempt);
        if (mkdir(name, 0777) != 0) {
            if (errno == EEXIST)
                continue;
            io_error(w, w->target, "write");
        }
        int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* Another writer may have taken it for a leftover before it was locked. Where folders
         * cannot be locked at all, nobody removes leftovers either. */
        bool locked = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
        if (locked && file_is_at(AT_FDCWD, name, fd)) {
            w->directory = name;
            w->lock = fd;
            break;
        }
        if (fd >= 0)
            close(fd);
    }
    if (!w->directory)
        eqf_throw(w->ctx, EQF_E_IO, w->target, NULL, "cannot make a temporary folder beside it");
    if (mkdir(arena_printf(a, "%s/%s", w->directory, RT_KERNELS_DIR), 0777) != 0)
        io_error(w, w->target, "write");
    return w;
}

const char *pk_directory(const pk_writer *w)
{
    return w->directory;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static void list(pk_writer *w, const char *name, i64 bytes, const char digest[33])
{
    rt_file f = {.name = arena_strdup(w->a, name), .bytes = bytes};
    memcpy(f.digest, digest, sizeof f.digest);
    for (i64 i = 0; i < w->files.n; i++)
        if (strcmp(w->files.at[i].name, name) == 0) {
            w->files.at[i] = f;
            return;
        }
    vec_push(w->a, &w->files, f);
}

/* Some file systems cannot sync a folder (EINVAL); then there is nothing to wait for. */
static void sync_folder(const pk_writer *w, const char *path, const char *name)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        io_error(w, name, "open");
    int failed = fsync(fd);
    close(fd);
    if (failed && errno != EINVAL)
        io_error(w, name, "write");
}

/* Nothing sees the folder before it is whole, so its files are written in place. */
static void put(pk_writer *w, const char *name, const file_part *parts, i64 count)
{
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(w->lock, name, flags, 0666);
    if (fd < 0)
        io_error(w, shown(w, name), "write");
    errno = file_put(fd, parts, count);
    if (!errno)
        (void)fsync(fd); /* sets errno */
    int error = errno;
    if (close(fd) != 0 || error) {
        errno = error ? error : errno;
        io_error(w, shown(w, name), "write");
    }
}

void pk_add_parts(pk_writer *w, const char *name, const file_part *parts, i64 count)
{
    if (!rt_name_ok(name))
        eqf_bug(w->ctx, "%s is not a name for a package's file", name);
    put(w, name, parts, count);
    arena *scratch = arena_child(w->a);
    hasher *h = digest_new(scratch);
    i64 bytes = 0;
    for (i64 i = 0; i < count; i++) {
        digest_add(h, parts[i].data, parts[i].size);
        bytes += parts[i].size;
    }
    char digest[33];
    digest_end(h, digest);
    list(w, name, bytes, digest);
    arena_free(scratch);
}

void pk_add(pk_writer *w, const char *name, const void *data, i64 n)
{
    pk_add_parts(w, name, &(file_part){data, n}, 1);
}

static void take(pk_writer *w, int from, const char *path, const rt_file *f)
{
    if (linkat(from, f->name, w->lock, f->name, 0) == 0) { /* nothing writes to it any more */
        list(w, f->name, f->bytes, f->digest);
        return;
    }
    arena *scratch = arena_child(w->a);
    i64 n;
    const void *data = file_map(scratch, arena_printf(scratch, "%s/%s", path, f->name), &n);
    pk_add(w, f->name, data, n);
    arena_free(scratch);
}

static bool is_among(const pk_file *files, i64 n, const char *name)
{
    for (i64 i = 0; i < n; i++)
        if (strcmp(files[i].name, name) == 0)
            return true;
    return false;
}

void pk_replace(arena *a, const char *path, const pk_file *files, i64 n)
{
    arena *own = arena_child(a);
    i64 size;
    const char *plan = arena_printf(own, "%s/" RT_PLAN_FILE, path);
    const char *text = file_read(own, plan, 1 << 30, &size);
    rt_package *package = rt_plan_read(own, plan, text, size);
    pk_writer *w = pk_begin(own, path);
    int from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        io_error(w, path, "open");
    trap t;
    TRY (w->ctx, t)
        for (i64 i = 0; i < package->files.n; i++)
            if (!is_among(files, n, package->files.at[i].name))
                take(w, from, path, &package->files.at[i]);
    close(from);
    if (t.status)
        eqf_rethrow(w->ctx, t.status);
    for (i64 i = 0; i < n; i++)
        pk_add(w, files[i].name, files[i].text, (i64)strlen(files[i].text));
    pk_seal(w, package);
    pk_commit(w);
    arena_free(own);
}

const char *pk_adopt_as_digest(pk_writer *w, const char *name, const char *prefix,
                               const char *suffix)
{
    int fd = openat(w->lock, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        io_error(w, shown(w, name), "open");
    bool good = fstat(fd, &st) == 0 && fsync(fd) == 0;
    close(fd);
    if (!good)
        io_error(w, shown(w, name), "write");
    arena *scratch = arena_child(w->a);
    i64 n;
    char digest[33];
    const void *data = file_map(scratch, arena_printf(w->a, "%s/%s", w->directory, name), &n);
    digest_hex(data, n, digest);
    arena_free(scratch);
    const char *result = arena_printf(w->a, "%s%s%s", prefix, digest, suffix);
    if (renameat(w->lock, name, w->lock, result) != 0)
        io_error(w, shown(w, name), "rename");
    list(w, result, n, digest);
    return result;
}

void pk_seal(pk_writer *w, rt_package *package)
{
    memset(&package->files, 0, sizeof package->files);
    for (i64 i = 0; i < w->files.n; i++)
        vec_push(w->a, &package->files, w->files.at[i]);
    str text = str_new(w->a);
    rt_plan_print(&text, package);
    put(w, RT_PLAN_FILE, &(file_part){str_text(&text), text.n}, 1);
}

/* ---- the moment it appears ----------------------------------------------------------------------
 */

static int exchange(const char *a, const char *b)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

const char *pk_commit(pk_writer *w)
{
    const char *old = NULL;
    sync_folder(w, arena_printf(w->a, "%s/%s", w->directory, RT_KERNELS_DIR), w->target);
    sync_folder(w, w->directory, w->target);
    struct stat st;
    bool exists = lstat(w->target, &st) == 0;
    if (!exists) {
        if (rename(w->directory, w->target) != 0)
            io_error(w, w->target, "write");
        w->kept = true;
    } else {
        check_target(w); /* it may be something else by now */
        if (exchange(w->directory, w->target) == 0) {
            old = w->directory; /* it has that name now, and is removed with the writer */
        } else if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP || errno == EXDEV) {
            /* No exchange on this file system: the old one steps aside, and comes back should the
             * second rename fail; should this process die between the two, by the next writer. */
            const char *aside = arena_printf(w->a, "%s" ASIDE, w->directory);
            w->old = open(w->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (w->old >= 0)
                (void)flock(w->old, LOCK_EX | LOCK_NB);
            if (rename(w->target, aside) != 0)
                io_error(w, w->target, "replace");
            if (rename(w->directory, w->target) != 0) {
                int error = errno;
                if (rename(aside, w->target) != 0)
                    eqf_throw(w->ctx, EQF_E_IO, w->target, NULL,
                              "cannot be replaced; the old package is now %s", aside);
                errno = error;
                io_error(w, w->target, "replace");
            }
            remove_tree(AT_FDCWD, aside, 1);
            old = aside;
            w->kept = true;
        } else {
            io_error(w, w->target, "replace");
        }
    }
    sync_folder(w, w->parent, w->target);
    release(w);
    w->kept = true;
    return old && lstat(old, &st) == 0 ? old : NULL;
}
