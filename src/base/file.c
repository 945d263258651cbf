/* Files: whole reads with a limit, atomic writes, read-only mappings. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static void close_fd(void *p)
{
    close((int)(intptr_t)p);
}

static int open_regular(arena *a, const char *path, i64 *size)
{
    eqf_ctx *ctx = arena_ctx(a);
    /* A pipe without a writer is refused, not waited for. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    arena_defer(a, close_fd, (void *)(intptr_t)fd);
    struct stat st;
    if (fstat(fd, &st) != 0)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        eqf_throw(ctx, EQF_E_IO, path, NULL, "not a regular file");
    *size = (i64)st.st_size;
    return fd;
}

char *file_read(arena *a, const char *path, i64 max, i64 *n)
{
    eqf_ctx *ctx = arena_ctx(a);
    arena *scratch = arena_child(a);
    i64 size;
    int fd = open_regular(scratch, path, &size);
    if (size > max)
        eqf_throw(ctx, EQF_E_LIMIT, path, NULL, "%lld bytes, more than the limit of %lld",
                  (long long)size, (long long)max);
    char *data = arena_alloc(a, size + 1);
    i64 got = 0;
    while (got < size) {
        ssize_t r = read(fd, data + got, (size_t)(size - got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot read: %s", strerror(errno));
        if (r == 0)
            break; /* shortened meanwhile */
        got += r;
    }
    data[got] = 0;
    *n = got;
    arena_free(scratch);
    return data;
}

void file_read_at(eqf_ctx *ctx, int fd, const char *path, void *to, i64 n, i64 offset)
{
    i64 got = 0;
    while (got < n) {
        ssize_t r = pread(fd, (char *)to + got, (size_t)(n - got), (off_t)(offset + got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot read: %s", strerror(errno));
        if (r == 0)
            eqf_throw(ctx, EQF_E_IO, path, NULL, "ends after %lld of %lld bytes",
                      (long long)(offset + got), (long long)(offset + n));
        got += r;
    }
}

void file_write(eqf_ctx *ctx, const char *path, const void *data, i64 n)
{
    file_write_parts(ctx, path, &(file_part){data, n}, 1);
}

int file_put(int fd, const file_part *parts, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        i64 done = 0;
        while (done < parts[i].size) {
            ssize_t w = write(fd, (const char *)parts[i].data + done, (size_t)(parts[i].size - done));
            if (w < 0 && errno != EINTR)
                return errno;
            done += w > 0 ? w : 0;
        }
    }
    return 0;
}

/* ---- replacing ----------------------------------------------------------------------------------
 *
 * A file is written beside its place as .NAME.equiforge-PID-N, synced, then renamed, so that it
 * appears whole or not at all. Its writer holds a lock on it; what a killed one left is unlocked,
 * and the next writer in the same folder removes it. */

#define LONGEST_NAME 200 /* of NAME's beginning: the whole stays within what systems allow */

i64 file_temporary(const char *name, const char **rest)
{
    const char *mark = name[0] == '.' ? strstr(name + 1, FILE_MARK) : NULL;
    for (const char *more = mark; more && (more = strstr(more + 1, FILE_MARK));)
        mark = more;
    if (!mark)
        return -1;
    const char *at = mark + strlen(FILE_MARK);
    size_t pid = strspn(at, "0123456789");
    if (pid == 0 || at[pid] != '-')
        return -1;
    size_t n = strspn(at + pid + 1, "0123456789");
    *rest = at + pid + 1 + n;
    return n > 0 ? mark - name - 1 : -1;
}

bool file_is_at(int folder, const char *name, int fd)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* Best effort: what stays is found again. */
static void remove_leftovers(int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d) {
        if (copy >= 0)
            close(copy);
        return;
    }
    struct dirent *e;
    while ((e = readdir(d))) {
        struct stat st;
        const char *rest;
        if (file_temporary(e->d_name, &rest) < 0 || *rest)
            continue;
        int fd = openat(folder, e->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            file_is_at(folder, e->d_name, fd))
            unlinkat(folder, e->d_name, 0);
        close(fd);
    }
    closedir(d);
}

/* A new file, locked; its name in `name`. -1 with errno. */
static int open_temporary(int folder, const char *base, char *name, size_t size)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(name, size, ".%.*s" FILE_MARK "%ld-%d", LONGEST_NAME, base, (long)getpid(), attempt);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return -1;
        /* Another writer may have taken it for a leftover before it was locked. Where nothing can
         * be locked, nobody removes leftovers either. */
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && file_is_at(folder, name, fd))
            return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

static int replace_in(int folder, const char *base, const file_part *parts, i64 count)
{
    char name[LONGEST_NAME + 64];
    remove_leftovers(folder);
    int fd = open_temporary(folder, base, name, sizeof name);
    if (fd < 0)
        return errno;
    int error = file_put(fd, parts, count);
    if (!error && fsync(fd) != 0)
        error = errno;
    if (!error && renameat(folder, name, folder, base) != 0)
        error = errno;
    if (error)
        unlinkat(folder, name, 0);
    /* Errors of a write that some systems tell only now: the new content may not be there. */
    if (close(fd) != 0 && !error)
        error = errno;
    return error;
}

/* 0, or errno. */
static int replace(const char *path, const file_part *parts, i64 count)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder)
        return ENAMETOOLONG;
    memcpy(folder, path, n);
    folder[n] = 0;
    int fd = open(n ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = slash && !slash[1] ? EISDIR : replace_in(fd, slash ? slash + 1 : path, parts, count);
    close(fd);
    return error;
}

/* A device or a pipe is written to: it is not a file that could be replaced. */
static int write_through(const char *path, const file_part *parts, i64 count)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return errno;
    int error = file_put(fd, parts, count);
    return close(fd) != 0 && !error ? errno : error;
}

void file_write_parts(eqf_ctx *ctx, const char *path, const file_part *parts, i64 count)
{
    char real[PATH_MAX];
    struct stat st;
    bool exists = stat(path, &st) == 0;
    /* A link keeps pointing at what it points at. */
    const char *target = exists && S_ISREG(st.st_mode) && realpath(path, real) ? real : path;
    int error = exists && S_ISDIR(st.st_mode)    ? EISDIR
                : exists && !S_ISREG(st.st_mode) ? write_through(path, parts, count)
                                                 : replace(target, parts, count);
    if (error)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot write: %s", strerror(error));
}

typedef struct mapping {
    void *at;
    size_t size;
} mapping;

static void unmap(void *p)
{
    mapping *m = p;
    munmap(m->at, m->size);
}

const void *file_map(arena *a, const char *path, i64 *n)
{
    eqf_ctx *ctx = arena_ctx(a);
    arena *scratch = arena_child(a);
    i64 size;
    int fd = open_regular(scratch, path, &size);
    *n = size;
    const void *result = "";
    if (size > 0) {
        mapping *m = NEW(a, mapping);
        void *at = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            eqf_throw(ctx, errno == ENOMEM ? EQF_E_NO_MEMORY : EQF_E_IO, path, NULL,
                      "cannot map %lld bytes: %s", (long long)size, strerror(errno));
        *m = (mapping){at, (size_t)size};
        arena_defer(a, unmap, m);
        result = at;
    }
    arena_free(scratch);
    return result;
}
