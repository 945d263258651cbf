/* The verbs about rules from outside: what they print, exit codes, JSON as the manual has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/tool.h"

static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-rules-XXXXXX");
    return mkdtemp(tool_folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", tool_folder);
    return system(line);
}

static json_t *parse(said *s)
{
    json_t *x = json_loads(last_line(s->out), 0, NULL);
    if (!x)
        fail_msg("no JSON: %s", s->out);
    return x;
}

static json_int_t number(json_t *x, const char *key)
{
    return json_integer_value(json_object_get(x, key));
}

static size_t length(json_t *x, const char *key)
{
    return json_array_size(json_object_get(x, key));
}

static void test_list_and_show(void **state)
{
    (void)state;
    said s;
    assert_int_equal(tool(&s, "$E rules list"), 0);
    assert_non_null(strstr(s.out, "scale-leaves-matmul"));
    assert_int_equal(tool(&s, "$E rules list --json"), 0);
    json_t *x = parse(&s);
    assert_true(length(x, "rules") >= 30 + 109); /* rules of files, and those that rows imply */
    json_decref(x);
    assert_int_equal(tool(&s, "$E rules show scale-leaves-matmul"), 0);
    assert_non_null(strstr(s.out, "when (free ?f ?K)"));
    assert_int_equal(tool(&s, "$E rules show view.matmul"), 0);
    assert_non_null(strstr(s.out, "(reduce + (tile-matmul (view ?x :par"));
    assert_int_equal(tool(&s, "$E rules show scale-leaves-matmull"), 1);
    assert_non_null(strstr(s.err, "did you mean scale-leaves-matmul?"));
    assert_int_equal(tool(&s, "$E rules list --document"), 0);
    assert_non_null(strstr(s.out, "# Rules\n"));
}

static void test_check(void **state)
{
    (void)state;
    said s;
    tool_put("mine.rules", "(rule good (neg (neg ?x)) => ?x :fp exact)\n"
                           "(rule bad (neg ?x) => ?x :fp exact)\n"
                           "(rule ugly (neg ?x) => ?y :fp exact)\n"
                           "(rule never (neg ?x) => ?x :when (and (some ?x) (scalar ?x)) "
                           ":fp exact)\n");
    assert_int_equal(tool(&s, "$E rules check mine.rules --json"), 1);
    json_t *x = parse(&s);
    assert_string_equal(json_string_value(json_object_get(x, "file")), "mine.rules");
    assert_int_equal(number(x, "rules"), 4);
    assert_int_equal(number(x, "sound"), 1);
    assert_int_equal(length(x, "unsound"), 1);
    assert_int_equal(length(x, "rejected"), 1);
    assert_int_equal(length(x, "untestable"), 1);
    json_t *bad = json_array_get(json_object_get(x, "unsound"), 0);
    assert_string_equal(json_string_value(json_object_get(bad, "name")), "bad");
    assert_int_equal(number(bad, "line"), 2);
    assert_non_null(strstr(json_string_value(json_object_get(bad, "counterexample")), "left "));
    json_t *ugly = json_array_get(json_object_get(x, "rejected"), 0);
    assert_int_equal(number(ugly, "line"), 3);
    assert_non_null(strstr(json_string_value(json_object_get(ugly, "reason")), "?y"));
    json_decref(x);
    assert_int_equal(tool(&s, "$E rules check mine.rules"), 1);
    assert_non_null(strstr(s.out, "mine.rules:3:24: ugly rejected: unbound variable ?y"));
    assert_non_null(strstr(s.out, "\n                           ^\n"));
    said again;
    assert_int_equal(tool(&again, "$E rules check mine.rules"), 1);
    assert_string_equal(s.out, again.out); /* equal seeds, equal reports */
    tool_put("fine.rules", "(rule good (neg (neg ?x)) => ?x :fp exact)\n");
    assert_int_equal(tool(&s, "$E rules check fine.rules"), 0);
    assert_int_equal(tool(&s, "$E rules check fine.rules mine.rules"), 1);
    assert_int_equal(tool(&s, "$E rules check fine.rules --instances 5 --seed 9"), 0);
    assert_non_null(strstr(s.out, "good holds on 5 instances"));
}

static void test_errors(void **state)
{
    (void)state;
    said s;
    tool_put("broken.rules", "(rule a\n(");
    assert_int_equal(tool(&s, "$E rules check broken.rules"), 1);
    assert_non_null(strstr(s.err, "equiforge: broken.rules: "));
    assert_int_equal(tool(&s, "$E rules check broken.rules --json"), 1);
    json_t *x = parse(&s);
    assert_non_null(json_object_get(x, "error"));
    json_decref(x);
    assert_int_equal(tool(&s, "$E rules check absent.rules"), 1);
    assert_int_equal(tool(&s, "$E rules check"), 2);
    assert_int_equal(tool(&s, "$E rules"), 2);
    assert_int_equal(tool(&s, "$E rules frob"), 2);
    assert_int_equal(tool(&s, "$E rules check x --instances 0"), 2);
    assert_int_equal(tool(&s, "$E rules list --frob"), 2);
    assert_int_equal(tool(&s, "$E rules --help"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_show),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
