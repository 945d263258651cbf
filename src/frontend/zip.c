/* zip: archives that may be hostile.
 *
 * The central directory is scanned here before libzip sees the file, because libzip offers neither
 * offsets (so overlapping members would pass) nor limits. After the scan every member has a plain,
 * unique, relative name, and its header and data lie inside the file, before the directory, apart
 * from all others. libzip then opens the same descriptor with its own consistency check and does
 * what it is good at: inflating and checking CRCs.
 *
 * Nothing is allocated in a size that the file only declares: counts and lengths are compared with
 * the bytes that are there first. Layout of the records: APPNOTE.TXT 6.3.10, sections 4.3.6 on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include "frontend/reader.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    PIECE_BYTES = 1 << 16,
    MAX_CENTRAL = 256 << 20,
    IS_ENCRYPTED = 1,
    ZIP64_FIELD = 1
};

/* Where the bytes come from: a descriptor, or memory when `memory` is set. */
typedef struct source {
    eqf_ctx *ctx;
    const char *file;
    int fd;
    const u8 *memory;
    i64 n;
} source;

typedef struct directory {
    i64 entries, offset, bytes, end; /* end: where the end-of-directory record stands */
} directory;

static u16 get16(const u8 *p)
{
    return (u16)(p[0] | p[1] << 8);
}

static u32 get32(const u8 *p)
{
    return (u32)get16(p) | (u32)get16(p + 2) << 16;
}

/* A 64-bit field as an offset or a size: -1 when it cannot be one. */
static i64 get64(const u8 *p)
{
    u64 v = (u64)get32(p) | (u64)get32(p + 4) << 32;
    return v > INT64_MAX ? -1 : (i64)v;
}

#define malformed(s, place, ...) eqf_throw((s)->ctx, EQF_E_PARSE, (s)->file, (place), __VA_ARGS__)

/* ---- names --------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at s[0, n), 0 when it is none (RFC 3629). */
static int utf8_length(const u8 *s, i64 n)
{
    int length = s[0] < 0x80   ? 1
                 : s[0] < 0xC2 ? 0
                 : s[0] < 0xE0 ? 2
                 : s[0] < 0xF0 ? 3
                 : s[0] < 0xF5 ? 4
                               : 0;
    if (length > n)
        return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if (length == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)))
        return 0;
    if (length == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)))
        return 0;
    return length;
}

bool fe_is_plain_name(const char *s, i64 n)
{
    if (n < 1 || n > FE_MAX_NAME)
        return false;
    const u8 *p = (const u8 *)s;
    for (i64 i = 0; i < n;) {
        int length = utf8_length(p + i, n - i);
        if (length == 0 || p[i] < 0x20 || p[i] == 0x7F)
            return false;
        /* C1 control characters: some terminals obey them. */
        if (p[i] == 0xC2 && p[i + 1] < 0xA0)
            return false;
        i += length;
    }
    return true;
}

const char *fe_show(arena *a, const char *s, i64 n)
{
    str out = str_new(a);
    str_add_n(&out, "", 0);
    i64 i = 0;
    while (i < n && out.n < 96) {
        int length = utf8_length((const u8 *)s + i, n - i);
        if (length > 0 && fe_is_plain_name(s + i, length)) {
            str_add_n(&out, s + i, length);
            i += length;
        } else {
            str_printf(&out, "\\x%02x", (unsigned)(u8)s[i]);
            i++;
        }
    }
    if (i < n)
        str_add(&out, "...");
    return str_text(&out);
}

void fe_format(char *out, i64 size, const char *format, va_list args)
{
    int n = vsnprintf(out, (size_t)size, format, args);
    if (n < size)
        return;
    /* Cut between characters. */
    i64 end = size - 1, last = end;
    while (last > 0 && last > end - 4 && ((u8)out[last - 1] & 0xC0) == 0x80)
        last--;
    if (last > 0 && utf8_length((const u8 *)out + last - 1, end - last + 1) != end - last + 1)
        out[last - 1] = 0;
}

/* What is wrong with the name of a member, or NULL. */
static const char *name_fault(const char *s, i64 n)
{
    if (n == 0)
        return "is empty";
    if (n > FE_MAX_NAME)
        return "is longer than 4096 bytes";
    if (memchr(s, 0, (size_t)n))
        return "contains a NUL byte";
    if (!fe_is_plain_name(s, n))
        return "is not plain UTF-8 text";
    if (s[0] == '/')
        return "is an absolute path";
    if (memchr(s, '\\', (size_t)n))
        return "contains a backslash";
    for (i64 i = 0; i < n;) {
        const char *slash = memchr(s + i, '/', (size_t)(n - i));
        i64 part = slash ? slash - (s + i) : n - i;
        if (part == 2 && s[i] == '.' && s[i + 1] == '.')
            return "contains '..'";
        i += part + 1;
    }
    return NULL;
}

/* ---- the scan ------------------------------------------------------------------------------ */

static void read_at(const source *s, i64 offset, void *out, i64 n)
{
    if (offset < 0 || n < 0 || offset > s->n - n)
        malformed(s, NULL, "truncated zip archive");
    if (s->memory) {
        if (n > 0)
            memcpy(out, s->memory + offset, (size_t)n);
        return;
    }
    for (i64 done = 0; done < n;) {
        ssize_t got = pread(s->fd, (u8 *)out + done, (size_t)(n - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            eqf_throw(s->ctx, EQF_E_IO, s->file, NULL, "cannot read: %s",
                      got < 0 ? strerror(errno) : "the file became shorter");
        done += got;
    }
}

/* The 64-bit end record, when there is one, has the last word; where the short record is not
 * saturated both must agree. */
static void read_end64(const source *s, directory *d)
{
    u8 locator[LOCATOR_BYTES], end[END64_BYTES];
    i64 at = d->end - LOCATOR_BYTES;
    if (at < 0)
        return;
    read_at(s, at, locator, LOCATOR_BYTES);
    if (get32(locator) != 0x07064b50)
        return;
    i64 end_at = get64(locator + 8);
    if (get32(locator + 4) != 0 || get32(locator + 16) > 1)
        eqf_throw(s->ctx, EQF_E_UNSUPPORTED, s->file, NULL, "the zip archive spans several disks");
    if (end_at < 0 || end_at > at - END64_BYTES)
        malformed(s, NULL, "damaged zip archive: its ZIP64 locator points outside the file");
    read_at(s, end_at, end, END64_BYTES);
    if (get32(end) != 0x06064b50)
        malformed(s, NULL, "damaged zip archive: no ZIP64 end record where the locator points");
    directory wide = {get64(end + 32), get64(end + 48), get64(end + 40), end_at};
    if (get32(end + 16) != 0 || get32(end + 20) != 0 || get64(end + 24) != wide.entries)
        eqf_throw(s->ctx, EQF_E_UNSUPPORTED, s->file, NULL, "the zip archive spans several disks");
    if ((d->entries != 0xFFFF && d->entries != wide.entries) ||
        (d->bytes != 0xFFFFFFFF && d->bytes != wide.bytes) ||
        (d->offset != 0xFFFFFFFF && d->offset != wide.offset))
        malformed(s, NULL, "damaged zip archive: its two end records contradict each other");
    *d = wide;
}

static directory find_directory(arena *scratch, const source *s)
{
    i64 tail = MIN(s->n, (i64)END_BYTES + MAX_COMMENT);
    u8 *p = arena_alloc(scratch, tail);
    read_at(s, s->n - tail, p, tail);
    i64 at = tail - END_BYTES;
    while (at >= 0 && !(get32(p + at) == 0x06054b50 && get16(p + at + 20) == tail - END_BYTES - at))
        at--;
    if (at < 0)
        malformed(s, NULL, "truncated zip archive: the directory at its end is missing");
    const u8 *end = p + at;
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != get16(end + 10))
        eqf_throw(s->ctx, EQF_E_UNSUPPORTED, s->file, NULL, "the zip archive spans several disks");
    directory d = {get16(end + 10), get32(end + 16), get32(end + 12), s->n - tail + at};
    read_end64(s, &d);
    if (d.entries < 0 || d.offset < 0 || d.bytes < 0 || d.bytes > d.end ||
        d.offset > d.end - d.bytes)
        malformed(s, NULL, "damaged zip archive: its directory lies outside the file");
    if (d.entries > FE_MAX_ENTRIES)
        eqf_throw(s->ctx, EQF_E_LIMIT, s->file, NULL,
                  "the zip archive has %lld members, more than the %d that are read",
                  (long long)d.entries, FE_MAX_ENTRIES);
    if (d.entries > d.bytes / CENTRAL_BYTES)
        malformed(s, NULL, "damaged zip archive: %lld members do not fit its directory",
                  (long long)d.entries);
    if (d.bytes > MAX_CENTRAL)
        eqf_throw(s->ctx, EQF_E_LIMIT, s->file, NULL,
                  "the directory of the zip archive is larger than 256 MiB");
    return d;
}

/* Replaces saturated 32-bit fields by those of the ZIP64 extra field. */
static void widen(const source *s, const char *name, const u8 *extra, i64 n, fe_entry *e)
{
    i64 *field[3] = {&e->size, &e->packed, &e->header};
    for (i64 i = 0; i + 4 <= n;) {
        i64 id = get16(extra + i), bytes = get16(extra + i + 2);
        if (bytes > n - i - 4)
            break; /* libzip judges foreign extra fields */
        if (id == ZIP64_FIELD) {
            i64 at = i + 4, end = at + bytes;
            for (int k = 0; k < 3; k++) {
                if (*field[k] != 0xFFFFFFFF)
                    continue;
                if (at + 8 > end)
                    malformed(s, name, "its ZIP64 sizes are incomplete");
                *field[k] = get64(extra + at);
                at += 8;
            }
            return;
        }
        i += 4 + bytes;
    }
}

static int by_header(const void *a, const void *b)
{
    const fe_entry *x = *(fe_entry *const *)a, *y = *(fe_entry *const *)b;
    return (x->header > y->header) - (x->header < y->header);
}

/* Every member's header and data must end before the next one begins. */
static void check_extents(arena *scratch, const source *s, const fe_zip *z, i64 directory_at)
{
    fe_entry **order = NEW_N(scratch, fe_entry *, z->n);
    for (i64 i = 0; i < z->n; i++)
        order[i] = &z->entries[i];
    if (z->n > 1)
        qsort(order, (size_t)z->n, sizeof *order, by_header);
    for (i64 i = 0; i < z->n; i++) {
        fe_entry *e = order[i];
        i64 limit = i + 1 < z->n ? order[i + 1]->header : directory_at;
        u8 local[LOCAL_BYTES];
        if (e->header > directory_at - LOCAL_BYTES)
            malformed(s, e->name, "its header lies outside the file");
        read_at(s, e->header, local, LOCAL_BYTES);
        if (get32(local) != 0x04034b50)
            malformed(s, e->name, "no header where its data should be");
        i64 data = e->header + LOCAL_BYTES + get16(local + 26) + get16(local + 28);
        if (data > directory_at || e->packed > directory_at - data)
            malformed(s, e->name, "its %lld bytes do not fit into the file", (long long)e->packed);
        if (data + e->packed > limit)
            malformed(s, e->name, "overlaps %s",
                      i + 1 < z->n ? order[i + 1]->name : "the directory");
        e->data = data;
    }
}

static void scan(arena *a, const source *s, fe_zip *z)
{
    arena *scratch = arena_child(a);
    u8 head[4] = {0};
    read_at(s, 0, head, MIN(s->n, 4));
    if (!fe_looks_like_zip(head, s->n))
        eqf_throw(s->ctx, EQF_E_NOT_OURS, s->file, NULL,
                  "not a zip archive, so no .pt2 file of torch.export.save");
    directory d = find_directory(scratch, s);
    u8 *p = arena_alloc(scratch, d.bytes);
    read_at(s, d.offset, p, d.bytes);
    z->n = d.entries;
    z->entries = NEW_N(a, fe_entry, d.entries);
    i64 at = 0;
    for (i64 i = 0; i < d.entries; i++) {
        if (d.bytes - at < CENTRAL_BYTES || get32(p + at) != 0x02014b50)
            malformed(s, NULL, "damaged zip archive: no directory record for member %lld",
                      (long long)i);
        const u8 *c = p + at;
        i64 name_bytes = get16(c + 28), extra_bytes = get16(c + 30), tail = get16(c + 32);
        if (name_bytes + extra_bytes + tail > d.bytes - at - CENTRAL_BYTES)
            malformed(s, NULL, "damaged zip archive: the record of member %lld is cut off",
                      (long long)i);
        const char *name = (const char *)c + CENTRAL_BYTES;
        const char *fault = name_fault(name, name_bytes);
        if (fault)
            malformed(s, fe_show(a, name, name_bytes), "the name of member %lld %s", (long long)i,
                      fault);
        fe_entry *e = &z->entries[i];
        u32 id = intern_add(z->names, name, name_bytes);
        *e = (fe_entry){.name = intern_text(z->names, id),
                        .size = get32(c + 24),
                        .packed = get32(c + 20),
                        .header = get32(c + 42),
                        .method = get16(c + 10),
                        .flags = get16(c + 8)};
        if (id != i + 1)
            malformed(s, e->name, "the archive has two members of this name");
        widen(s, e->name, c + CENTRAL_BYTES + name_bytes, extra_bytes, e);
        if (e->size < 0 || e->packed < 0 || e->header < 0)
            malformed(s, e->name, "its sizes are beyond 63 bits");
        if (get16(c + 34) != 0)
            eqf_throw(s->ctx, EQF_E_UNSUPPORTED, s->file, e->name, "it lies on another disk");
        at += CENTRAL_BYTES + name_bytes + extra_bytes + tail;
    }
    check_extents(scratch, s, z, d.offset);
    arena_free(scratch);
}

/* ---- opening and reading ------------------------------------------------------------------- */

bool fe_looks_like_zip(const void *head, i64 n)
{
    /* PK\5\6 starts an empty archive. */
    return n >= 4 && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0);
}

static void release_handle(void *p)
{
    zip_discard(p);
}

static void release_fd(void *p)
{
    close(*(int *)p);
}

typedef struct mapping {
    void *at;
    size_t n;
} mapping;

static void release_mapping(void *p)
{
    mapping *m = p;
    munmap(m->at, m->n);
}

/* Costs address space only. Where the system does not map the file, members are read. */
static void map_file(arena *a, fe_zip *z, int fd, i64 n)
{
    mapping *m = NEW(a, mapping);
    void *at = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return;
    *m = (mapping){at, (size_t)n};
    arena_defer(a, release_mapping, m);
    z->bytes = at;
}

/* Takes over what zip_open and zip_fdopen return. */
static void attach(arena *a, fe_zip *z, zip_t *handle, const zip_error_t *error)
{
    if (!handle) {
        int code = zip_error_code_zip(error);
        if (code == ZIP_ER_MEMORY)
            eqf_throw(z->ctx, EQF_E_NO_MEMORY, z->file, NULL, "out of memory");
        /* With its consistency check on, libzip calls a lying size "not a zip archive". */
        eqf_throw(z->ctx, EQF_E_PARSE, z->file, NULL,
                  code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS
                      ? "damaged zip archive: headers and directory contradict each other"
                      : "damaged zip archive (libzip error %d)",
                  code);
    }
    z->handle = handle;
    arena_defer(a, release_handle, handle);
    if (zip_get_num_entries(handle, 0) != z->n)
        eqf_throw(z->ctx, EQF_E_PARSE, z->file, NULL, "damaged zip archive: two directories");
}

static fe_zip *new_zip(arena *a, const char *file)
{
    fe_zip *z = NEW(a, fe_zip);
    *z = (fe_zip){.ctx = arena_ctx(a), .file = arena_strdup(a, file), .names = intern_new(a)};
    return z;
}

fe_zip *fe_zip_open(arena *a, const char *path)
{
    fe_zip *z = new_zip(a, path);
    int *fd = NEW(a, int);
    /* O_NONBLOCK: a pipe without a writer must not hang us. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        eqf_throw(z->ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    arena_defer(a, release_fd, fd);
    struct stat st;
    if (fstat(*fd, &st) != 0)
        eqf_throw(z->ctx, EQF_E_IO, path, NULL, "cannot open: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        eqf_throw(z->ctx, EQF_E_IO, path, NULL, "not a regular file");
    scan(a, &(source){.ctx = z->ctx, .file = z->file, .fd = *fd, .n = st.st_size}, z);
    map_file(a, z, *fd, st.st_size);
    /* The same descriptor, so that what was scanned is what is read. */
    int copy = dup(*fd), code = 0;
    zip_t *handle = copy < 0 ? NULL : zip_fdopen(copy, ZIP_CHECKCONS, &code);
    if (!handle && copy >= 0)
        close(copy);
    zip_error_t error;
    zip_error_init_with_code(&error, copy < 0 ? ZIP_ER_MEMORY : code);
    attach(a, z, handle, &error);
    zip_error_fini(&error);
    return z;
}

fe_zip *fe_zip_open_bytes(arena *a, const char *file, const void *bytes, i64 n)
{
    fe_zip *z = new_zip(a, file);
    scan(a, &(source){.ctx = z->ctx, .file = z->file, .memory = bytes, .n = n}, z);
    z->bytes = bytes;
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *from = zip_source_buffer_create(bytes, (zip_uint64_t)n, 0, &error);
    zip_t *handle = from ? zip_open_from_source(from, ZIP_RDONLY | ZIP_CHECKCONS, &error) : NULL;
    if (from && !handle)
        zip_source_free(from);
    attach(a, z, handle, &error);
    zip_error_fini(&error);
    return z;
}

fe_entry *fe_zip_find(const fe_zip *z, const char *name)
{
    u32 id = intern_find(z->names, name, (i64)strlen(name));
    return id == 0 ? NULL : &z->entries[id - 1];
}

void fe_zip_check(const fe_zip *z, const fe_entry *e)
{
    if (e->flags & IS_ENCRYPTED)
        eqf_throw(z->ctx, EQF_E_UNSUPPORTED, z->file, e->name, "the member is encrypted");
    if (e->method != ZIP_CM_STORE && e->method != ZIP_CM_DEFLATE)
        eqf_throw(z->ctx, EQF_E_UNSUPPORTED, z->file, e->name,
                  "compressed by method %d; only stored and deflated members are read", e->method);
    if (e->method == ZIP_CM_STORE && e->size != e->packed)
        eqf_throw(z->ctx, EQF_E_PARSE, z->file, e->name,
                  "stored, yet %lld bytes in the file give %lld", (long long)e->packed,
                  (long long)e->size);
    if (e->size / FE_MAX_RATIO > e->packed)
        eqf_throw(z->ctx, EQF_E_PARSE, z->file, e->name, "%lld bytes in the file cannot give %lld",
                  (long long)e->packed, (long long)e->size);
}

const u8 *fe_zip_content(const fe_zip *z, const fe_entry *e)
{
    return z->bytes && e->method == ZIP_CM_STORE ? z->bytes + e->data : NULL;
}

/* False when the data is not exactly e->size bytes of the recorded CRC. */
static bool read_all(zip_file_t *f, u8 *out, i64 size)
{
    u8 piece[PIECE_BYTES];
    for (i64 done = 0; done < size;) {
        i64 room = MIN(size - done, out ? (i64)1 << 30 : PIECE_BYTES);
        zip_int64_t got = zip_fread(f, out ? out + done : piece, (zip_uint64_t)room);
        if (got <= 0)
            return false;
        done += got;
    }
    u8 more;
    return zip_fread(f, &more, 1) == 0; /* only this call looks at the CRC */
}

void fe_zip_read(const fe_zip *z, const fe_entry *e, eqf_status damaged, const char *place,
                 void *out)
{
    fe_zip_check(z, e);
    zip_stat_t st;
    zip_uint64_t index = (zip_uint64_t)(e - z->entries);
    bool good = zip_stat_index(z->handle, index, 0, &st) == 0 && st.size == (zip_uint64_t)e->size;
    zip_file_t *f = good ? zip_fopen_index(z->handle, index, 0) : NULL;
    good = f && read_all(f, out, e->size);
    if (f)
        zip_fclose(f);
    if (good)
        return;
    if (!place)
        eqf_throw(z->ctx, damaged, z->file, e->name,
                  "damaged: size or checksum do not fit its data");
    eqf_throw(z->ctx, damaged, z->file, place,
              "damaged: size or checksum do not fit the data of %s", e->name);
}
