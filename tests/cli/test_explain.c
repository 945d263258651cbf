/* The verb `explain` from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/tool.h"

static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-explain-XXXXXX");
    if (!mkdtemp(tool_folder))
        return -1;
    tool_put("rows.eqf", "(program rows (dims (M 64) (K 512))\n  (input X f32 (M K))\n"
                         "  (let e (exp (sub X (reduce max X :axis K))))\n"
                         "  (output Y (div e (reduce + e :axis K)) (M K)))\n");
    static said s;
    return tool(&s, "$E optimize rows.eqf -o read.pkg --budget 0.01s --threads 1 && "
                    "$E optimize rows.eqf -o best.pkg --budget 4s --threads 1");
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", tool_folder);
    return system(command);
}

static said s;

static void packages_as_they_were_read(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "$E explain read.pkg --proof"), 0);
    assert_non_null(strstr(s.out, "as it was read"));
    assert_non_null(strstr(s.out, "checked"));
    assert_int_equal(tool(&s, "$E explain read.pkg --form"), 0);
    assert_non_null(strstr(s.out, "(program rows"));
}

/* Whatever won, what the package says of it holds. */
static void what_was_chosen_is_explained(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "$E explain best.pkg --proof --json"), 0);
    json_t *o = json_loads(last_line(s.out), 0, NULL);
    assert_non_null(o);
    assert_true(json_is_true(json_object_get(o, "checked")));
    assert_string_equal(json_string_value(json_object_get(o, "source")), "rows.eqf");
    assert_true(json_array_size(json_object_get(o, "kernels")) >= 1);
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(o, "parts"), i, part)
    {
        bool changed = json_is_true(json_object_get(part, "changed"));
        bool by_value = json_string_length(json_object_get(part, "by_value")) > 0;
        size_t steps = json_array_size(json_object_get(part, "steps"));
        assert_true(changed ? by_value || steps > 0 : steps == 0);
        assert_true(!steps || json_integer_value(json_object_get(part, "checked")) > 0);
    }
    json_decref(o);
    assert_int_equal(tool(&s, "$E explain best.pkg && $E run best.pkg --check"), 0);
    assert_int_equal(tool(&s, "$E explain best.pkg --html page.html && cat page.html"), 0);
    const char *page = strstr(s.out, "<!DOCTYPE html>");
    assert_non_null(page);
    assert_non_null(strstr(page, "</html>"));
    assert_null(strstr(page, "<script"));
    assert_int_equal(tool(&s, "$E explain best.pkg --html missing/page.html --json"), 3);
    assert_non_null(strstr(last_line(s.out), "\"error\""));
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "$E explain rows.eqf"), 1);
    assert_int_equal(tool(&s, "$E explain"), 2);
    assert_int_equal(tool(&s, "cp -r best.pkg bad.pkg && sed -i 's/program/progam/' bad.pkg/proof.eqf && "
                              "$E explain bad.pkg --proof"),
                     1);
    assert_non_null(strstr(s.err, "bad.pkg/proof.eqf: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_as_they_were_read),
        cmocka_unit_test(what_was_chosen_is_explained),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
