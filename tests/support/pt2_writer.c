#include "support/pt2_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCAL = 30, CENTRAL = 46, DESCRIPTOR = 16, END64 = 56, LOCATOR = 20, END = 22, ALIGN = 64 };

/* ---- bytes --------------------------------------------------------------------------------- */

/* A growing buffer; with a file, runs of zeros are skipped instead. */
typedef struct sink {
    uint8_t *at;
    int64_t n, cap;
    int fd; /* -1: memory */
    bool failed;
} sink;

static void put(sink *s, const void *data, int64_t n)
{
    if (s->fd >= 0) {
        if (data && pwrite(s->fd, data, (size_t)n, (off_t)s->n) != n)
            s->failed = true;
    } else {
        while (s->cap - s->n < n) {
            s->cap = s->cap ? 2 * s->cap : 4096;
            s->at = realloc(s->at, (size_t)s->cap);
        }
        if (data)
            memcpy(s->at + s->n, data, (size_t)n);
        else
            memset(s->at + s->n, 0, (size_t)n);
    }
    s->n += n;
}

static void put_le(sink *s, uint64_t v, int bytes)
{
    uint8_t b[8];
    for (int i = 0; i < bytes; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    put(s, b, bytes);
}

uint32_t pw_crc32(uint32_t crc, const uint8_t *data, int64_t n)
{
    crc = ~crc;
    for (int64_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* Deflate without compression: RFC 1951, section 3.2.4. */
static uint8_t *store_blocks(const uint8_t *data, int64_t n, int64_t *packed)
{
    sink s = {.fd = -1};
    int64_t done = 0;
    do {
        int64_t part = n - done < 65535 ? n - done : 65535;
        put_le(&s, done + part == n, 1);
        put_le(&s, (uint64_t)part, 2);
        put_le(&s, (uint64_t)part ^ 0xFFFF, 2);
        put(&s, data + done, part);
        done += part;
    } while (done < n);
    *packed = s.n;
    return s.at;
}

/* ---- archives ------------------------------------------------------------------------------ */

void pw_init(pw_archive *a)
{
    *a = (pw_archive){.lie_entries = -1};
}

void pw_free(pw_archive *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        free(a->at[i].name);
        free(a->at[i].data);
    }
    free(a->at);
    pw_init(a);
}

pw_member *pw_add(pw_archive *a, const char *name, const void *data, int64_t size)
{
    if (a->n == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 16;
        a->at = realloc(a->at, (size_t)a->cap * sizeof *a->at);
    }
    pw_member *m = &a->at[a->n++];
    *m = (pw_member){.name = strdup(name),
                     .name_bytes = (int64_t)strlen(name),
                     .size = size,
                     .lie_size = -1,
                     .lie_packed = -1,
                     .lie_offset = -1,
                     .lie_crc = -1,
                     .lie_method = -1,
                     .lie_flags = -1};
    if (data) {
        m->data = malloc((size_t)size + 1);
        memcpy(m->data, data, (size_t)size);
        m->data[size] = 0;
    }
    return m;
}

pw_member *pw_add_text(pw_archive *a, const char *name, const char *text)
{
    return pw_add(a, name, text, (int64_t)strlen(text));
}

pw_member *pw_find(pw_archive *a, const char *name)
{
    for (int64_t i = 0; i < a->n; i++)
        if (strcmp(a->at[i].name, name) == 0)
            return &a->at[i];
    return NULL;
}

void pw_set_text(pw_member *m, const char *text)
{
    free(m->data);
    m->data = (uint8_t *)strdup(text);
    m->size = (int64_t)strlen(text);
}

static char *quoted(const char *s)
{
    char *out = strdup(s);
    for (char *p = out; *p; p++)
        *p = *p == '`' ? '"' : *p;
    return out;
}

bool pw_edit(pw_member *m, const char *from, const char *to)
{
    char *f = quoted(from), *t = quoted(to);
    char *text = (char *)m->data, *at = strstr(text, f);
    if (at) {
        int64_t cut = (int64_t)strlen(f), add = (int64_t)strlen(t), before = at - text;
        uint8_t *out = malloc((size_t)(m->size - cut + add) + 1);
        memcpy(out, text, (size_t)before);
        memcpy(out + before, t, (size_t)add);
        memcpy(out + before + add, at + cut, (size_t)(m->size - before - cut) + 1);
        free(m->data);
        m->data = out;
        m->size += add - cut;
    }
    free(f);
    free(t);
    return at != NULL;
}

/* ---- writing ------------------------------------------------------------------------------- */

typedef struct record {
    int64_t offset, packed;
    uint32_t crc;
    int method, flags;
} record;

static void write_member(sink *s, const pw_archive *a, const pw_member *m, record *r)
{
    const uint8_t *data = m->data;
    uint8_t *own = NULL;
    r->packed = m->size;
    /* The CRC of zeros that nobody will read is left out. */
    r->crc = data ? pw_crc32(0, data, m->size) : 0;
    if (m->deflate)
        data = own = store_blocks(data, m->size, &r->packed);
    r->method = m->lie_method >= 0 ? m->lie_method : m->deflate ? 8 : 0;
    r->flags = m->lie_flags >= 0 ? m->lie_flags : 0x808;
    r->offset = s->n;
    const char *name = m->lie_local_name ? m->lie_local_name : m->name;
    int64_t name_bytes = m->lie_local_name ? (int64_t)strlen(name) : m->name_bytes;
    int64_t before = s->n + LOCAL + name_bytes;
    int64_t pad = a->no_alignment ? 0 : (ALIGN - (before + 4) % ALIGN) % ALIGN + 4;
    put_le(s, 0x04034b50, 4);
    put_le(s, 0, 2);
    put_le(s, (uint64_t)r->flags, 2);
    put_le(s, (uint64_t)r->method, 2);
    put_le(s, 0, 4); /* date */
    put_le(s, 0, 8); /* CRC and packed size: in the descriptor */
    put_le(s, 0, 4);
    put_le(s, (uint64_t)name_bytes, 2);
    put_le(s, (uint64_t)pad, 2);
    put(s, name, name_bytes);
    if (pad > 0) {
        static const uint8_t zeros[ALIGN + 4] = {0};
        put(s, "FB", 2);
        put_le(s, (uint64_t)pad - 4, 2);
        put(s, zeros, pad - 4);
    }
    put(s, data, r->packed);
    put_le(s, 0x08074b50, 4);
    put_le(s, r->crc, 4);
    put_le(s, (uint64_t)r->packed, 4);
    put_le(s, (uint64_t)m->size, 4);
    free(own);
}

static void write_central(sink *s, const pw_member *m, const record *r)
{
    put_le(s, 0x02014b50, 4);
    put_le(s, 0, 4); /* versions */
    put_le(s, (uint64_t)r->flags, 2);
    put_le(s, (uint64_t)r->method, 2);
    put_le(s, 0, 4); /* date */
    put_le(s, m->lie_crc >= 0 ? (uint64_t)m->lie_crc : r->crc, 4);
    uint64_t packed = (uint64_t)(m->lie_packed >= 0 ? m->lie_packed : r->packed);
    uint64_t size = (uint64_t)(m->lie_size >= 0 ? m->lie_size : m->size);
    uint64_t offset = (uint64_t)(m->lie_offset >= 0 ? m->lie_offset : r->offset);
    put_le(s, m->wide ? UINT32_MAX : packed, 4);
    put_le(s, m->wide ? UINT32_MAX : size, 4);
    put_le(s, (uint64_t)m->name_bytes, 2);
    put_le(s, m->wide ? 28 : 0, 2);
    put_le(s, 0, 2); /* comment, disk, attributes */
    put_le(s, 0, 8);
    put_le(s, m->wide ? UINT32_MAX : offset, 4);
    put(s, m->name, m->name_bytes);
    if (!m->wide)
        return;
    put_le(s, 1, 2);
    put_le(s, 24, 2);
    put_le(s, size, 8);
    put_le(s, packed, 8);
    put_le(s, offset, 8);
}

static void write_archive(sink *s, const pw_archive *a)
{
    record *records = calloc((size_t)a->n + 1, sizeof *records);
    uint64_t entries = 0, disk = (uint64_t)a->disk;
    for (int64_t i = 0; i < a->n; i++)
        if (!a->at[i].omit)
            write_member(s, a, &a->at[i], &records[i]);
    int64_t start = s->n;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->at[i].omit)
            continue;
        write_central(s, &a->at[i], &records[i]);
        entries++;
    }
    int64_t end = s->n;
    uint64_t shown = a->lie_entries >= 0 ? (uint64_t)a->lie_entries : entries;
    if (!a->no_zip64) {
        put_le(s, 0x06064b50, 4);
        put_le(s, END64 - 12, 8);
        put_le(s, 0, 4); /* versions */
        put_le(s, disk, 4);
        put_le(s, disk, 4);
        put_le(s, shown, 8);
        put_le(s, shown, 8);
        put_le(s, (uint64_t)(end - start), 8);
        put_le(s, (uint64_t)start, 8);
        put_le(s, 0x07064b50, 4);
        put_le(s, disk, 4);
        put_le(s, (uint64_t)end, 8);
        put_le(s, disk + 1, 4);
    }
    put_le(s, 0x06054b50, 4);
    put_le(s, disk, 2);
    put_le(s, disk, 2);
    put_le(s, shown > 0xFFFF ? 0xFFFF : shown, 2);
    put_le(s, shown > 0xFFFF ? 0xFFFF : shown, 2);
    put_le(s, (uint64_t)(end - start), 4);
    put_le(s, (uint64_t)start, 4);
    put_le(s, 0, 2);
    free(records);
}

uint8_t *pw_bytes(const pw_archive *a, int64_t *n)
{
    sink s = {.fd = -1};
    write_archive(&s, a);
    *n = s.n;
    return s.at;
}

bool pw_file(const pw_archive *a, const char *path)
{
    sink s = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)};
    if (s.fd < 0)
        return false;
    write_archive(&s, a);
    return (close(s.fd) == 0) & !s.failed;
}

/* ---- the base model ------------------------------------------------------------------------ */

static char *read_text(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot open %s\n", path);
        abort();
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    n = (long)fread(text, 1, (size_t)n, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static void add_file(pw_archive *a, const char *name, const char *folder, const char *file)
{
    char *text = read_text(folder, file);
    pw_add_text(a, name, text);
    free(text);
}

void pw_base(pw_archive *a, const char *folder)
{
    float storage[24];
    for (int i = 0; i < 24; i++)
        storage[i] = (float)i;
    pw_init(a);
    add_file(a, "base/models/model.json", folder, "model.json");
    add_file(a, "base/data/weights/model_weights_config.json", folder, "weights.json");
    add_file(a, "base/data/constants/model_constants_config.json", folder, "constants.json");
    pw_add(a, "base/data/weights/weight_0", storage, sizeof storage);
    pw_add(a, "base/data/weights/weight_1", "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16);
    pw_add(a, "base/data/weights/weight_2", "", 0);
    pw_add(a, "base/data/constants/tensor_0", "\1\1\0\1\0\1", 6);
    pw_add(a, "base/data/constants/tensor_1", "\0\0\200\77", 4);
    pw_add(a, "base/data/sample_inputs/model.pt", "PK not a pickle", 15);
    pw_add_text(a, "base/archive_format", "pt2");
    pw_add_text(a, "base/archive_version", "0");
    pw_add_text(a, "base/.data/version", "6\n");
    pw_add_text(a, "base/byteorder", "little");
    pw_add_text(a, "base/.data/serialization_id", "0123456789012345678901234567890123456789");
}
