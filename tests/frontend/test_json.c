/* The JSON accessors: values come out exactly, and every mismatch names its path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/reader.h"

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

static fe_js parse(fixture *f, const char *text)
{
    return fe_js_root(fe_json_read(f->a, "file", "member", text, (i64)strlen(text)));
}

static void test_values(void **state)
{
    fixture *f = *state;
    fe_js root =
        parse(f, "{\"min\": -9223372036854775808, \"max\": 9223372036854775807, \"half\": "
                 "0.5, \"whole\": 3, \"inf\": \"Infinity\", \"ninf\": \"-Infinity\", "
                 "\"nan\": \"NaN\", \"yes\": true, \"nothing\": null, \"text\": \"\\u00e9\"}");
    fe_js x = fe_js_get(&root, "min");
    assert_true(fe_js_i64(&x) == INT64_MIN);
    x = fe_js_get(&root, "max");
    assert_true(fe_js_i64(&x) == INT64_MAX);
    x = fe_js_get(&root, "half");
    assert_true(fe_js_f64(&x) == 0.5);
    x = fe_js_get(&root, "whole");
    assert_true(fe_js_f64(&x) == 3.0);
    x = fe_js_get(&root, "inf");
    assert_true(fe_js_f64(&x) > 1e308);
    x = fe_js_get(&root, "ninf");
    assert_true(fe_js_f64(&x) < -1e308);
    x = fe_js_get(&root, "nan");
    assert_true(isnan(fe_js_f64(&x)));
    x = fe_js_get(&root, "yes");
    assert_true(fe_js_bool(&x));
    assert_null(fe_js_opt(&root, "nothing").v);
    assert_null(fe_js_opt(&root, "absent").v);
    x = fe_js_get(&root, "text");
    i64 n;
    assert_string_equal(fe_js_text(&x, &n), "\xC3\xA9");
    assert_int_equal(n, 2);
    assert_int_equal(fe_js_members(&root), 10);
}

static void test_order(void **state)
{
    fixture *f = *state;
    fe_js root = parse(f, "{\"z\": 1, \"a\": 2, \"m\": 3}"), x;
    const char *expected[] = {"z", "a", "m"};
    void *it = NULL;
    for (int i = 0; i < 3; i++) {
        assert_true(fe_js_next(&root, &it, &x));
        assert_string_equal(x.key, expected[i]);
        assert_int_equal(fe_js_i64(&x), i + 1);
    }
    assert_false(fe_js_next(&root, &it, &x));
}

/* Each reads something that is not there. */
static void want_object(const fe_js *x)
{
    fe_js_get(x, "k");
}
static void want_array(const fe_js *x)
{
    fe_js_items(x);
}
static void want_int(const fe_js *x)
{
    fe_js_i64(x);
}
static void want_number(const fe_js *x)
{
    fe_js_f64(x);
}
static void want_truth(const fe_js *x)
{
    fe_js_bool(x);
}
static void want_text(const fe_js *x)
{
    fe_js_text(x, NULL);
}
static void want_union(const fe_js *x)
{
    fe_js_only(x);
}
static void want_name(const fe_js *x)
{
    fe_js_name(x);
}

static void test_mismatches(void **state)
{
    static const struct {
        const char *value;
        void (*want)(const fe_js *x);
        const char *words;
    } CASES[] = {
        {"3", want_object, "a.b[1]: expected an object, found an integer"},
        {"{}", want_object, "a.b[1]: the field \"k\" is missing"},
        {"{\"k\": null}", want_object, "a.b[1]: the field \"k\" is missing"},
        {"{}", want_array, "a.b[1]: expected an array, found an object"},
        {"2.0", want_int, "a.b[1]: expected an integer, found a real number"},
        {"\"inf\"", want_number, "a.b[1]: expected a number, found \"inf\""},
        {"[]", want_number, "a.b[1]: expected a number, found an array"},
        {"1", want_truth, "a.b[1]: expected a truth value, found an integer"},
        {"null", want_text, "a.b[1]: expected a string, found nothing"},
        {"{}", want_union, "one member, found 0"},
        {"{\"x\": 1, \"y\": 2}", want_union, "one member, found 2"},
        {"\"\"", want_name, "a.b[1]: \"\" is no name"},
        {"\"\\u001b[2J\"", want_name, "a.b[1]: \"\\x1b[2J\" is no name"},
    };
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++) {
        eqf_ctx_clear(f->ctx);
        fe_js root = parse(f, arena_printf(f->a, "{\"a\": {\"b\": [0, %s]}}", CASES[i].value));
        fe_js a = fe_js_get(&root, "a"), b = fe_js_get(&a, "b"), x = fe_js_at(&b, 1);
        trap t;
        TRY (f->ctx, t) {
            CASES[i].want(&x);
        }
        assert_int_equal(t.status, EQF_E_PARSE);
        eqf_diag d = eqf_diag_get(f->ctx, 0);
        assert_string_equal(d.file, "file");
        assert_string_equal(d.place, "member");
        if (!strstr(d.message, CASES[i].words))
            fail_msg("found \"%s\", expected \"%s\"", d.message, CASES[i].words);
    }
}

/* Inside a node its name is the place, and the message says where in the text. */
static void test_node_place(void **state)
{
    fixture *f = *state;
    fe_js root = parse(f, "{\"a\": 1}"), a = fe_js_get(&root, "a");
    root.doc->node = "linear_3";
    trap t;
    TRY (f->ctx, t) {
        fe_js_text(&a, NULL);
    }
    eqf_diag d = eqf_diag_get(f->ctx, 0);
    assert_string_equal(d.place, "linear_3");
    assert_string_equal(d.message, "expected a string, found an integer (member: a)");
}

static void test_malformed(void **state)
{
    static const struct {
        const char *text, *place;
    } CASES[] = {
        {"", "member:1:0"},     {"{\"a\": 1,\n \"a\": 2}", "member:2:"}, {"[1, 2", "member:1:"},
        {"[1] 2", "member:1:"}, {"{\"a\": \"\xFF\"}", "member:1:"},      {"[-]", "member:1:"},
    };
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++) {
        eqf_ctx_clear(f->ctx);
        trap t;
        TRY (f->ctx, t) {
            parse(f, CASES[i].text);
        }
        assert_int_equal(t.status, EQF_E_PARSE);
        eqf_diag d = eqf_diag_get(f->ctx, 0);
        if (strncmp(d.place, CASES[i].place, strlen(CASES[i].place)) != 0)
            fail_msg("%s: place %s", CASES[i].text, d.place);
        assert_true(fe_is_plain_name(d.message, (i64)strlen(d.message)));
        assert_null(fe_json_try(f->a, "f", "m", CASES[i].text, (i64)strlen(CASES[i].text)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mismatches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_node_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_malformed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
