/* Files: whole reads with a limit, atomic writes, read-only mappings. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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

void file_write(eqf_ctx *ctx, const char *path, const void *data, i64 n)
{
    file_write_parts(ctx, path, &(file_part){data, n}, 1);
}

void file_write_parts(eqf_ctx *ctx, const char *path, const file_part *parts, i64 count)
{
    char temporary[4096];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
    if (length < 0 || length >= (int)sizeof temporary)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "the path is too long");
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot write: %s", strerror(errno));
    int error = 0;
    for (i64 i = 0; i < count && !error; i++) {
        i64 done = 0;
        while (done < parts[i].size && !error) {
            ssize_t w = write(fd, (const char *)parts[i].data + done, (size_t)(parts[i].size - done));
            if (w >= 0)
                done += w;
            else if (errno != EINTR)
                error = errno;
        }
    }
    if (!error && fsync(fd) != 0)
        error = errno;
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) != 0)
        error = errno;
    if (error) {
        unlink(temporary);
        eqf_throw(ctx, EQF_E_IO, path, NULL, "cannot write: %s", strerror(error));
    }
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
