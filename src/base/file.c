/* Files: whole reads with a limit, atomic writes, read-only mappings. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

/* 0, or errno. */
static int write_all(int fd, const file_part *parts, i64 count)
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

/* Beside `path`, synced, then given its name; so that it appears whole or not at all. */
static int replace(const char *path, const char *temporary, const file_part *parts, i64 count)
{
    unlink(temporary); /* of a process of the same number that was killed */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int error = write_all(fd, parts, count);
    if (!error && fsync(fd) != 0)
        error = errno;
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) != 0)
        error = errno;
    if (error)
        unlink(temporary);
    return error;
}

/* A device or a pipe is written to: it is not a file that could be replaced. */
static int write_through(const char *path, const file_part *parts, i64 count)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return errno;
    int error = write_all(fd, parts, count);
    return close(fd) != 0 && !error ? errno : error;
}

void file_write_parts(eqf_ctx *ctx, const char *path, const file_part *parts, i64 count)
{
    char real[PATH_MAX], temporary[PATH_MAX + 40];
    struct stat st;
    bool exists = stat(path, &st) == 0;
    /* A link keeps pointing at what it points at. */
    const char *target = exists && S_ISREG(st.st_mode) && realpath(path, real) ? real : path;
    int length = snprintf(temporary, sizeof temporary, "%s.tmp-%ld", target, (long)getpid());
    if (length < 0 || length >= (int)sizeof temporary)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "the path is too long");
    int error = exists && S_ISDIR(st.st_mode)    ? EISDIR
                : exists && !S_ISREG(st.st_mode) ? write_through(path, parts, count)
                                                 : replace(target, temporary, parts, count);
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
            eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot map: %s", strerror(errno));
        *m = (mapping){at, (size_t)size};
        arena_defer(a, unmap, m);
        result = at;
    }
    arena_free(scratch);
    return result;
}
