/* safetensors: what is written reads back, files of other writers, and hostile ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
    char path[64];
    const tensor *tensors; /* to write */
    i64 count;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    f->ctx = eqf_ctx_new(NULL);
    f->a = arena_new(f->ctx, 0);
    strcpy(f->path, P_tmpdir "/eqf_test_XXXXXX");
    int fd = mkstemp(f->path);
    if (fd < 0)
        return -1;
    close(fd);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->path);
    arena_free(f->a);
    eqf_ctx_free(f->ctx);
    free(f);
    return 0;
}

static void read_file(fixture *f)
{
    i64 n;
    safetensors_read(f->a, f->path, &n);
}

static void write_file(fixture *f)
{
    safetensors_write(f->ctx, f->path, f->tensors, f->count);
}

static void expect(fixture *f, void (*body)(fixture *f), eqf_status status, const char *place,
                   const char *message)
{
    trap t;
    TRY (f->ctx, t)
        body(f);
    assert_string_equal(eqf_status_name(t.status), eqf_status_name(status));
    eqf_diag d = eqf_diag_get(f->ctx, eqf_diag_count(f->ctx) - 1);
    if (strcmp(d.place, place) != 0 || !strstr(d.message, message))
        fail_msg("at \"%s\": \"%s\", wanted \"%s\": \"%s\"", d.place, d.message, place, message);
    eqf_ctx_clear(f->ctx);
}

/* A file of a header and that many bytes of data. */
static void put(fixture *f, const char *header, u64 length, i64 data)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 0xFF), file);
    fputs(header, file);
    for (i64 i = 0; i < data; i++)
        fputc((int)i, file);
    assert_int_equal(fclose(file), 0);
}

static void put_exact(fixture *f, const char *header, i64 data)
{
    put(f, header, strlen(header), data);
}

static void test_round_trip(void **state)
{
    fixture *f = *state;
    const i64 two[] = {2}, matrix[] = {2, 3}, empty[] = {0, 5};
    u8 bools[] = {1, 0};
    u16 halves[] = {0x3C00, 0xFC00, 0x7E00, 1, 0, 0x8000};
    f64 doubles[] = {0.1, -1e300};
    i64 scalar = INT64_MIN;
    const tensor out[] = {
        {"z \"q\" \\ \xC3\xA9\n", DT_bool, 1, two, bools},
        {"a", DT_f16, 2, matrix, halves},
        {"m", DT_f64, 1, two, doubles},
        {"", DT_i64, 0, NULL, &scalar},
        {"e", DT_f32, 2, empty, bools},
    };
    safetensors_write(f->ctx, f->path, out, COUNT_OF(out));
    i64 n;
    tensor *in = safetensors_read(f->a, f->path, &n);
    assert_int_equal(n, COUNT_OF(out));
    for (i64 i = 0; i < n; i++) {
        assert_string_equal(in[i].name, out[i].name);
        assert_int_equal(in[i].type, out[i].type);
        assert_int_equal(in[i].rank, out[i].rank);
        for (i64 k = 0; k < in[i].rank; k++)
            assert_int_equal(in[i].shape[k], out[i].shape[k]);
        assert_int_equal((uintptr_t)in[i].data % (uintptr_t)dtype_bytes(in[i].type), 0);
        assert_memory_equal(in[i].data, out[i].data, (size_t)tensor_bytes(f->ctx, &out[i]));
    }
    safetensors_write(f->ctx, f->path, NULL, 0);
    safetensors_read(f->a, f->path, &n);
    assert_int_equal(n, 0);
}

/* Metadata, padding, keys that nobody knows, data that is not aligned. */
static void test_other_writers(void **state)
{
    fixture *f = *state;
    put_exact(f,
              "{\"__metadata__\":{\"format\":\"pt\"},"
              "\"b\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[1,5],\"x\":null},"
              "\"a\":{\"dtype\":\"BOOL\",\"shape\":[1,1],\"data_offsets\":[0,1]}}     ",
              5);
    i64 n;
    tensor *in = safetensors_read(f->a, f->path, &n);
    assert_int_equal(n, 2);
    assert_string_equal(in[0].name, "b");
    assert_int_equal((uintptr_t)in[0].data % 4, 0);
    assert_int_equal(tensor_get_i64(&in[0], 0), 0x04030201);
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *header;
    i64 data;
    eqf_status status;
    const char *place, *message;
} hostile[] = {
    {"", 0, EQF_E_PARSE, "", "no JSON"},
    {"{", 0, EQF_E_PARSE, "", "no JSON"},
    {"[]", 0, EQF_E_PARSE, "", "no JSON object"},
    {"{} x", 0, EQF_E_PARSE, "", "no JSON"},
    {"{\"t\":3}", 0, EQF_E_PARSE, "t", "is no object"},
    {"{\"t\":{},\"t\":{}}", 0, EQF_E_PARSE, "", "duplicate object key near '\"t\"'"},
    {"{\"t\":{}}", 0, EQF_E_PARSE, "t", "no \"dtype\""},
    {T("7", "[]", "[0,4]"), 4, EQF_E_PARSE, "t", "no \"dtype\""},
    {T("\"F8_E4M3\"", "[4]", "[0,4]"), 4, EQF_E_UNSUPPORTED, "t", "dtype F8_E4M3"},
    {T("\"\"", "[4]", "[0,4]"), 4, EQF_E_UNSUPPORTED, "t", "dtype"},
    {T("\"F32\"", "3", "[0,4]"), 4, EQF_E_PARSE, "t", "no \"shape\""},
    {T("\"F32\"", "[-1]", "[0,4]"), 4, EQF_E_PARSE, "t", "an extent that is no size"},
    {T("\"F32\"", "[1.0]", "[0,4]"), 4, EQF_E_PARSE, "t", "an extent that is no size"},
    {T("\"F32\"", "[99999999999999999999]", "[0,4]"), 4, EQF_E_PARSE, "", "no JSON"},
    {T("\"F32\"", "[1]", "[0]"), 4, EQF_E_PARSE, "t", "no \"data_offsets\""},
    {T("\"F32\"", "[1]", "[0,\"4\"]"), 4, EQF_E_PARSE, "t", "no \"data_offsets\""},
    {T("\"F32\"", "[1]", "{}"), 4, EQF_E_PARSE, "t", "no \"data_offsets\""},
    {T("\"F32\"", "[1]", "[-4,0]"), 4, EQF_E_PARSE, "t", "outside of the 4 bytes"},
    {T("\"F32\"", "[1]", "[4,0]"), 4, EQF_E_PARSE, "t", "outside of the 4 bytes"},
    {T("\"F32\"", "[1]", "[4,8]"), 4, EQF_E_PARSE, "t", "outside of the 4 bytes"},
    {T("\"F32\"", "[1]", "[0,9223372036854775807]"), 4, EQF_E_PARSE, "t", "outside of the 4"},
    {T("\"F32\"", "[2]", "[0,4]"), 4, EQF_E_PARSE, "t", "not what its shape and dtype make"},
    {T("\"F64\"", "[4294967296,4294967296]", "[0,0]"), 0, EQF_E_PARSE, "t", "not what its shape"},
    {T("\"F32\"", "[1]", "[0,4]"), 5, EQF_E_PARSE, "", "1 bytes of data belong to no tensor"},
    {T("\"F32\"", "[1]", "[1,5]"), 5, EQF_E_PARSE, "t", "leaves a hole before it"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"u\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     7, EQF_E_PARSE, "u", "overlaps another one"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"u\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, EQF_E_PARSE, "u", "overlaps another one"},
};

static void test_hostile(void **state)
{
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(hostile); i++) {
        put_exact(f, hostile[i].header, hostile[i].data);
        expect(f, read_file, hostile[i].status, hostile[i].place, hostile[i].message);
    }
    put(f, "{}", 3, 0);
    expect(f, read_file, EQF_E_PARSE, "", "the header has 3 bytes, the file only 2");
    put(f, "{}", 100000001, 0);
    expect(f, read_file, EQF_E_PARSE, "", "not safetensors");
    put(f, "{}", UINT64_MAX, 0);
    expect(f, read_file, EQF_E_PARSE, "", "not safetensors");
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    fputs("{}", file);
    assert_int_equal(fclose(file), 0);
    expect(f, read_file, EQF_E_PARSE, "", "2 bytes are too few");
    unlink(f->path);
    expect(f, read_file, EQF_E_IO, "", "cannot open");
}

static void test_refused(void **state)
{
    fixture *f = *state;
    f32 x = 0;
    const tensor twice[] = {{"x", DT_f32, 0, NULL, &x}, {"x", DT_f32, 0, NULL, &x}};
    const tensor latin[] = {{"\xE9", DT_f32, 0, NULL, &x}};
    const tensor unnamed[] = {{NULL, DT_f32, 0, NULL, &x}};
    const tensor metadata[] = {{"__metadata__", DT_f32, 0, NULL, &x}};
    const tensor typeless[] = {{"x", DT_NONE, 0, NULL, &x}};
    f->count = 2;
    f->tensors = twice;
    expect(f, write_file, EQF_E_ARGUMENT, "x", "two tensors are called \"x\"");
    f->count = 1;
    f->tensors = latin;
    expect(f, write_file, EQF_E_ARGUMENT, "\xE9", "not UTF-8");
    f->tensors = unnamed;
    expect(f, write_file, EQF_E_ARGUMENT, "", "needs another name");
    f->tensors = metadata;
    expect(f, write_file, EQF_E_ARGUMENT, "", "needs another name");
    f->tensors = typeless;
    expect(f, write_file, EQF_E_ARGUMENT, "x", "has no dtype");
    strcpy(f->path, "/no/such/folder");
    f->count = 0;
    expect(f, write_file, EQF_E_IO, "", "cannot write");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
