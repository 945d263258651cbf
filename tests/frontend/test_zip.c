/* The archive layer alone: what is listed, that names and sizes are those of the file, that reads
 * are exact and checked, and files that the system refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/reader.h"
#include "support/pt2_writer.c"

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eqf_ctx_new(NULL);
    f->a = arena_new(f->ctx, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    arena_free(f->a);
    eqf_ctx_free(f->ctx);
    free(f);
    return 0;
}

/* The archive of `w` opened from memory; the bytes are given to the arena. */
static fe_zip *open_archive(fixture *f, const pw_archive *w)
{
    i64 n;
    uint8_t *bytes = pw_bytes(w, &n);
    void *kept = arena_copy(f->a, bytes, n);
    free(bytes);
    fe_zip *volatile z = NULL;
    trap t;
    TRY (f->ctx, t) {
        z = fe_zip_open_bytes(f->a, "memory.zip", kept, n);
    }
    return z;
}

static void test_members(void **state)
{
    fixture *f = *state;
    pw_archive w;
    pw_init(&w);
    pw_add_text(&w, "a/one", "first");
    pw_add_text(&w, "a/", "");
    pw_add_text(&w, "two", "second member")->deflate = true;
    fe_zip *z = open_archive(f, &w);
    pw_free(&w);
    assert_non_null(z);
    assert_int_equal(z->n, 3);
    assert_string_equal(z->entries[0].name, "a/one");
    assert_int_equal(z->entries[0].size, 5);
    assert_int_equal(z->entries[2].method, 8);
    assert_int_equal(z->entries[2].packed, 13 + 5);
    assert_ptr_equal(fe_zip_find(z, "two"), &z->entries[2]);
    assert_null(fe_zip_find(z, "three"));
    assert_null(fe_zip_find(z, ""));
    char text[16] = {0};
    fe_zip_read(z, &z->entries[2], EQF_E_PARSE, NULL, text);
    assert_string_equal(text, "second member");
    /* A second time, and in another order. */
    fe_zip_read(z, &z->entries[0], EQF_E_PARSE, NULL, text);
    assert_memory_equal(text, "first", 5);
    fe_zip_read(z, &z->entries[1], EQF_E_PARSE, NULL, text);
}

static void test_wide_directory(void **state)
{
    fixture *f = *state;
    pw_archive w;
    pw_init(&w);
    pw_add_text(&w, "first", "xyz");
    pw_add_text(&w, "wide", "some data")->wide = true;
    fe_zip *z = open_archive(f, &w);
    assert_non_null(z);
    assert_int_equal(z->entries[1].size, 9);
    assert_int_equal(z->entries[1].packed, 9);
    char text[9];
    fe_zip_read(z, &z->entries[1], EQF_E_PARSE, NULL, text);
    assert_memory_equal(text, "some data", 9);
    /* Sizes that only 64 bits can hold, and lies. */
    static const int64_t LIES[] = {1LL << 40, INT64_MAX, -2};
    for (int i = 0; i < 3; i++) {
        w.at[1].lie_packed = LIES[i] < 0 ? -1 : LIES[i];
        w.at[1].lie_offset = LIES[i] < 0 ? INT64_MAX - 10 : -1;
        assert_null(open_archive(f, &w));
    }
    pw_free(&w);
}

/* More members than the short end record can count. */
static void test_many_members(void **state)
{
    fixture *f = *state;
#ifdef EQF_STRESS
    skip(); /* vectors that move at every growth would take 70,000 copies of it */
#endif
    pw_archive w;
    pw_init(&w);
    for (int i = 0; i < 70000; i++) {
        char name[16];
        snprintf(name, sizeof name, "m/%d", i);
        pw_add(&w, name, name, 4);
    }
    fe_zip *z = open_archive(f, &w);
    pw_free(&w);
    assert_non_null(z);
    assert_int_equal(z->n, 70000);
    char text[5] = {0};
    fe_zip_read(z, fe_zip_find(z, "m/69999"), EQF_E_PARSE, NULL, text);
    assert_string_equal(text, "m/69");
}

/* torch starts the data of every member on 64 bytes; the writer must do as it does. */
static void test_alignment(void **state)
{
    fixture *f = *state;
    pw_archive w;
    pw_init(&w);
    pw_add_text(&w, "x", "data");
    pw_add_text(&w, "longer/name", "data");
    i64 n;
    uint8_t *bytes = pw_bytes(&w, &n);
    for (uint8_t *at = bytes; (at = memmem(at, (size_t)(bytes + n - at), "data", 4)); at++)
        assert_int_equal((at - bytes) % 64, 0);
    fe_zip *z = open_archive(f, &w);
    assert_int_equal(z->entries[1].header % 64 != 0, 1);
    free(bytes);
    pw_free(&w);
}

static void test_reads_name_the_place(void **state)
{
    fixture *f = *state;
    pw_archive w;
    pw_init(&w);
    pw_add_text(&w, "x", "data")->lie_crc = 1;
    fe_zip *z = open_archive(f, &w);
    pw_free(&w);
    char text[4];
    trap t;
    TRY (f->ctx, t) {
        fe_zip_read(z, &z->entries[0], EQF_E_DATA, NULL, text);
    }
    assert_int_equal(t.status, EQF_E_DATA);
    assert_string_equal(eqf_diag_get(f->ctx, 0).place, "x");
    TRY (f->ctx, t) {
        fe_zip_read(z, &z->entries[0], EQF_E_PARSE, "layer.weight", text);
    }
    assert_int_equal(t.status, EQF_E_PARSE);
    assert_string_equal(eqf_diag_get(f->ctx, 1).place, "layer.weight");
}

static eqf_status open_status(fixture *f, const char *path)
{
    trap t;
    TRY (f->ctx, t) {
        fe_zip_open(f->a, path);
    }
    return t.status;
}

static void test_files(void **state)
{
    fixture *f = *state;
    char folder[] = "/tmp/eqf-zip-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(open_status(f, folder), EQF_E_IO);
    snprintf(path, sizeof path, "%s/none", folder);
    assert_int_equal(open_status(f, path), EQF_E_IO);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(open_status(f, path), EQF_E_IO); /* and does not wait for a writer */
    unlink(path);
    pw_archive w;
    pw_init(&w);
    pw_add_text(&w, "x", "data");
    snprintf(path, sizeof path, "%s/good", folder);
    assert_true(pw_file(&w, path));
    pw_free(&w);
    assert_int_equal(open_status(f, path), EQF_OK);
    unlink(path);
    rmdir(folder);
}

static void test_names(void **state)
{
    (void)state;
    assert_true(fe_is_plain_name("a", 1));
    assert_true(fe_is_plain_name("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9));
    static const char *const BAD[] = {"",         "a\nb",         "\x7F",     "\xC2\x85",
                                      "\xC0\x80", "\xED\xA0\x80", "\xE2\x82", "\xF4\x90\x80\x80",
                                      "\xFF"};
    for (i64 i = 0; i < COUNT_OF(BAD); i++)
        assert_false(fe_is_plain_name(BAD[i], (i64)strlen(BAD[i])));
}

static void test_show(void **state)
{
    fixture *f = *state;
    assert_string_equal(fe_show(f->a, "a\n\xFF\xC3\xA9", 5), "a\\x0a\\xff\xC3\xA9");
    assert_string_equal(fe_show(f->a, "", 0), "");
    char text[200];
    memset(text, 'x', sizeof text);
    const char *shown = fe_show(f->a, text, sizeof text);
    assert_true(strlen(shown) < 110);
    assert_string_equal(shown + strlen(shown) - 3, "...");
}

static void format(char *out, i64 size, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    fe_format(out, size, text, args);
    va_end(args);
}

static void test_format_keeps_characters(void **state)
{
    (void)state;
    char out[8];
    format(out, 8, "%s", "1234567");
    assert_string_equal(out, "1234567");
    format(out, 8, "%s", "123456\xC3\xA9");
    assert_string_equal(out, "123456");
    format(out, 8, "%s", "12345\xC3\xA9z");
    assert_string_equal(out, "12345\xC3\xA9");
    format(out, 8, "%s", "1234\xF0\x9F\x98\x80");
    assert_string_equal(out, "1234");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_members, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wide_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_members, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_alignment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reads_name_the_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_show, set_up, tear_down),
        cmocka_unit_test(test_format_keeps_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
