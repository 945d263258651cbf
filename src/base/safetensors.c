/* The safetensors format: eight bytes of header length (little-endian), a JSON object
 * {name: {dtype, shape, data_offsets}}, then the data, which the tensors cover without holes or
 * overlaps. Nothing in a file is believed before it is checked.
 * Source: the format's description in the safetensors repository, README, "Format". */
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"

#define MAX_HEADER 100000000 /* as the reference implementation */
#define MAX_RANK 64

static const char *const spellings[DT_COUNT] = {
    [DT_NONE] = "",
#define DTYPE(name, ctype, bytes, kind, st) [DT_##name] = st,
#include "base/dtypes.def"
#undef DTYPE
};

static void release_json(void *p)
{
    json_decref(p);
}

typedef struct span {
    i64 begin, end, index;
} span;

typedef struct reading {
    eqf_ctx *ctx;
    arena *a;
    const char *path;
    const char *data;
    i64 data_size;
} reading;

static dtype read_dtype(const reading *r, const char *name, const json_t *x)
{
    if (!json_is_string(x))
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name, "tensor \"%s\" has no \"dtype\"", name);
    for (dtype t = DT_NONE + 1; t < DT_COUNT; t++)
        if (strcmp(spellings[t], json_string_value(x)) == 0)
            return t;
    eqf_throw(r->ctx, EQF_E_UNSUPPORTED, r->path, name,
              "tensor \"%s\" has dtype %.20s, which nothing here can use", name,
              json_string_value(x));
}

static void read_shape(const reading *r, const char *name, const json_t *x, tensor *t)
{
    size_t rank = json_array_size(x);
    if (!json_is_array(x) || rank > MAX_RANK)
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name,
                  "tensor \"%s\" has no \"shape\" of at most %d extents", name, MAX_RANK);
    i64 *shape = NEW_N(r->a, i64, rank);
    for (size_t i = 0; i < rank; i++) {
        const json_t *extent = json_array_get(x, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            eqf_throw(r->ctx, EQF_E_PARSE, r->path, name,
                      "tensor \"%s\" has an extent that is no size", name);
        shape[i] = json_integer_value(extent);
    }
    t->rank = (i64)rank;
    t->shape = shape;
}

/* Bytes of the tensor; -1 when 64 bits do not hold the number. */
static i64 byte_count(const tensor *t)
{
    i64 n = dtype_bytes(t->type);
    for (i64 i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            return 0;
    for (i64 i = 0; i < t->rank; i++)
        if (!mul_i64(n, t->shape[i], &n))
            return -1;
    return n;
}

static span read_tensor(const reading *r, const char *name, const json_t *x, tensor *t)
{
    if (!json_is_object(x))
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name, "tensor \"%s\" is no object", name);
    t->name = arena_strdup(r->a, name);
    t->type = read_dtype(r, name, json_object_get(x, "dtype"));
    read_shape(r, name, json_object_get(x, "shape"), t);
    const json_t *offsets = json_object_get(x, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name,
                  "tensor \"%s\" has no \"data_offsets\" of two integers", name);
    span s = {json_integer_value(begin), json_integer_value(end), 0};
    if (s.begin < 0 || s.end < s.begin || s.end > r->data_size)
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name,
                  "tensor \"%s\" reaches from %lld to %lld, outside of the %lld bytes of data",
                  name, (long long)s.begin, (long long)s.end, (long long)r->data_size);
    if (byte_count(t) != s.end - s.begin)
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, name,
                  "tensor \"%s\" has %lld bytes, not what its shape and dtype make", name,
                  (long long)(s.end - s.begin));
    const char *data = r->data + s.begin;
    if ((uintptr_t)data % (uintptr_t)dtype_bytes(t->type) != 0)
        data = arena_copy(r->a, data, s.end - s.begin); /* the writer did not align it */
    t->data = (void *)(uintptr_t)data;
    return s;
}

static int by_begin(const void *p, const void *q)
{
    const span *a = p, *b = q;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static void check_cover(const reading *r, span *spans, i64 n, const tensor *tensors)
{
    if (n > 0)
        qsort(spans, (size_t)n, sizeof *spans, by_begin);
    i64 covered = 0;
    for (i64 i = 0; i < n; i++) {
        const char *name = tensors[spans[i].index].name;
        if (spans[i].begin != covered)
            eqf_throw(r->ctx, EQF_E_PARSE, r->path, name, "tensor \"%s\" %s", name,
                      spans[i].begin < covered ? "overlaps another one"
                                               : "leaves a hole before it");
        covered = spans[i].end;
    }
    if (covered != r->data_size)
        eqf_throw(r->ctx, EQF_E_PARSE, r->path, NULL, "%lld bytes of data belong to no tensor",
                  (long long)(r->data_size - covered));
}

tensor *safetensors_read(arena *a, const char *path, i64 *count)
{
    i64 size;
    const void *file = file_map(a, path, &size);
    return safetensors_parse(a, path, file, size, count);
}

tensor *safetensors_parse(arena *a, const char *path, const void *bytes, i64 size, i64 *count)
{
    reading r = {.ctx = arena_ctx(a), .a = a, .path = arena_strdup(a, path)};
    arena *scratch = arena_child(a);
    const char *file = bytes;
    if (size < 8)
        eqf_throw(r.ctx, EQF_E_PARSE, path, NULL, "%lld bytes are too few for safetensors",
                  (long long)size);
    u64 length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (u8)file[i];
    if (length > MAX_HEADER)
        eqf_throw(r.ctx, EQF_E_PARSE, path, NULL,
                  "not safetensors: a header of %llu bytes, more than %d",
                  (unsigned long long)length, MAX_HEADER);
    if ((i64)length > size - 8)
        eqf_throw(r.ctx, EQF_E_PARSE, path, NULL, "the header has %lld bytes, the file only %lld",
                  (long long)length, (long long)(size - 8));
    r.data = file + 8 + length;
    r.data_size = size - 8 - (i64)length;

    json_error_t error;
    json_t *header = json_loadb(file + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!header && json_error_code(&error) == json_error_out_of_memory)
        eqf_throw(r.ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    if (!header)
        eqf_throw(r.ctx, EQF_E_PARSE, path, NULL, "the header is no JSON: %s", error.text);
    arena_defer(scratch, release_json, header);
    if (!json_is_object(header))
        eqf_throw(r.ctx, EQF_E_PARSE, path, NULL, "the header is no JSON object");

    i64 n = 0;
    tensor *tensors = NEW_N(a, tensor, json_object_size(header));
    span *spans = NEW_N(scratch, span, json_object_size(header));
    for (void *it = json_object_iter(header); it; it = json_object_iter_next(header, it)) {
        const char *name = json_object_iter_key(it);
        if (strcmp(name, "__metadata__") == 0)
            continue;
        spans[n] = read_tensor(&r, name, json_object_iter_value(it), &tensors[n]);
        spans[n].index = n;
        n++;
    }
    check_cover(&r, spans, n, tensors);
    arena_free(scratch);
    *count = n;
    return tensors;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void release_text(void *p)
{
    free(p);
}

static json_t *entry_of(const tensor *t, i64 begin, i64 end)
{
    json_t *shape = json_array();
    for (i64 i = 0; i < t->rank; i++)
        if (json_array_append_new(shape, json_integer(t->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", spellings[t->type], "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

i64 safetensors_parts(arena *a, const char *path, const tensor *tensors, i64 count,
                      file_part **out)
{
    eqf_ctx *ctx = arena_ctx(a);
    arena *scratch = arena_child(a);
    /* Data by falling element size keeps every tensor aligned; the header keeps the order. */
    i64 *begin = NEW_N(scratch, i64, count), *bytes = NEW_N(scratch, i64, count), end = 0, n = 1;
    file_part *parts = NEW_N(a, file_part, count + 1);
    for (i64 width = 8; width >= 1; width /= 2) {
        for (i64 i = 0; i < count; i++) {
            if (dtype_bytes(tensors[i].type) != width)
                continue;
            bytes[i] = tensor_bytes(ctx, &tensors[i]);
            begin[i] = end;
            if (!add_i64(end, bytes[i], &end))
                eqf_throw(ctx, EQF_E_LIMIT, path, NULL, "more than 2^63 bytes");
            parts[n++] = (file_part){tensors[i].data, bytes[i]};
        }
    }
    json_t *header = json_object();
    if (!header)
        eqf_throw(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    arena_defer(scratch, release_json, header);
    for (i64 i = 0; i < count; i++) {
        const char *name = tensors[i].name;
        if (!name || strcmp(name, "__metadata__") == 0)
            eqf_throw(ctx, EQF_E_ARGUMENT, path, NULL, "tensor %lld needs another name",
                      (long long)i);
        if (dtype_kind_of(tensors[i].type) == DK_NONE)
            eqf_throw(ctx, EQF_E_ARGUMENT, path, name, "tensor \"%s\" has no dtype", name);
        if (json_object_get(header, name))
            eqf_throw(ctx, EQF_E_ARGUMENT, path, name, "two tensors are called \"%s\"", name);
        json_t *entry = entry_of(&tensors[i], begin[i], begin[i] + bytes[i]);
        if (!entry)
            eqf_throw(ctx, EQF_E_NO_MEMORY, path, name, "out of memory");
        if (json_object_set_new(header, name, entry) != 0)
            eqf_throw(ctx, EQF_E_ARGUMENT, path, name, "the name of tensor %lld is not UTF-8",
                      (long long)i);
    }
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text)
        eqf_throw(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    arena_defer(scratch, release_text, text);
    i64 length = (i64)strlen(text), padded = (length + 7) / 8 * 8;
    char *head = NEW_N(a, char, 8 + padded);
    memset(head + 8, ' ', (size_t)padded);
    memcpy(head + 8, text, (size_t)length);
    for (int i = 0; i < 8; i++)
        head[i] = (char)((u64)padded >> (8 * i) & 0xFF);
    parts[0] = (file_part){head, 8 + padded};
    arena_free(scratch);
    *out = parts;
    return n;
}

void safetensors_write(eqf_ctx *ctx, const char *path, const tensor *tensors, i64 count)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        file_part *parts;
        i64 n = safetensors_parts(a, path, tensors, count, &parts);
        file_write_parts(ctx, path, parts, n);
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
