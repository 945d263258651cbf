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

/* The winner of many short races meets the program as it is once more, and the times that are told are
 * of that race. */
static void the_last_race_is_against_the_program_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "cat best.pkg/report.json"), 0);
    json_t *report = json_loads(s.out, 0, NULL);
    const json_t *search = json_array_get(json_object_get(report, "searches"), 0);
    const json_t *tries = json_object_get(search, "tries"), *t = NULL;
    bool taken = false;
    for (size_t i = 0; i < json_array_size(tries); i++) {
        t = json_array_get(tries, i);
        taken |= json_is_true(json_object_get(t, "taken"));
    }
    const json_t *times = json_object_get(report, "time_us");
    double best = json_number_value(json_object_get(times, "best"));
    double unfused = json_number_value(json_object_get(times, "unfused"));
    assert_true(best > 0 && unfused > 0);
    if (taken) {
        assert_int_equal(json_string_length(json_object_get(t, "reductions")), 0);
        if (json_is_true(json_object_get(t, "taken")))
            assert_true(best == unfused);
    } else {
        assert_true(best == unfused);
    }
    json_decref(report);
}

static json_t *why_not(const char *form)
{
    char command[200];
    snprintf(command, sizeof command, "$E explain best.pkg --json --why-not '%s'", form);
    assert_int_equal(tool(&s, command), 0);
    json_t *o = json_loads(last_line(s.out), 0, NULL);
    assert_non_null(o);
    assert_int_equal(json_array_size(json_object_get(o, "searches")), 1);
    return o;
}

static const char *status_in(const json_t *o)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(o, "searches"), 0), "status"));
}

/* A candidate of the report that is as it is asked for, in so many kernels, or rolling; NULL: none. */
static const json_t *reported(const json_t *search, long long kernels, bool rolling)
{
    static const char *const lists[] = {"tries", "untried"};
    size_t i;
    json_t *t;
    for (int k = 0; k < 2; k++)
        json_array_foreach(json_object_get(search, lists[k]), i, t)
            if (json_string_length(json_object_get(t, "reductions")) &&
                (!kernels || json_integer_value(json_object_get(t, "kernels")) == kernels) &&
                (!rolling || json_is_true(json_object_get(t, "rolls"))))
                return t;
    return NULL;
}

/* What is said of a form is what the report has of the candidates that are so. */
static void what_was_not_chosen_is_explained(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "cat best.pkg/report.json"), 0);
    json_t *report = json_loads(s.out, 0, NULL);
    assert_non_null(report);
    const json_t *search = json_array_get(json_object_get(report, "searches"), 0);
    assert_true(json_integer_value(json_object_get(search, "looked_at")) >= 4);
    assert_true(json_array_size(json_object_get(search, "least")) >= 2);
    static const struct {
        const char *form;
        long long kernels;
        bool rolling;
    } forms[] = {{"one kernel", 1, false},  {"1 kernel", 1, false},
                 {"rolling", 0, true},      {"two kernels and rolling", 2, true},
                 {"nine kernels", 9, false}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        json_t *o = why_not(forms[i].form);
        const json_t *a = json_array_get(json_object_get(o, "searches"), 0);
        const json_t *nearest = json_object_get(a, "nearest");
        bool is_so = json_is_true(json_object_get(a, "is_so"));
        assert_int_equal(is_so, reported(search, forms[i].kernels, forms[i].rolling) != NULL);
        assert_true(json_is_object(nearest));
        if (is_so && forms[i].kernels)
            assert_int_equal(json_integer_value(json_object_get(nearest, "kernels")), forms[i].kernels);
        if (is_so && forms[i].rolling)
            assert_true(json_is_true(json_object_get(nearest, "rolls")));
        const char *status = status_in(o);
        bool says_absent = strcmp(status, "dearer") == 0 || strcmp(status, "not found") == 0 ||
                           strcmp(status, "not reached") == 0;
        assert_int_equal(says_absent, !is_so);
        assert_true(json_string_length(json_object_get(a, "reason")) > 0);
        json_decref(o);
    }
    json_t *o = why_not("nine kernels"); /* the space of so small a program is looked at whole */
    assert_string_equal(status_in(o), "not found");
    json_decref(o);
    o = why_not("max over K");
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(o, "searches"), 0), "is_so")));
    json_decref(o);
    o = why_not("min over K");
    assert_string_equal(status_in(o), "not found");
    json_decref(o);
    json_decref(report);
    assert_int_equal(tool(&s, "$E explain best.pkg --why-not 'one kernel'"), 0);
    assert_non_null(strstr(s.out, "the program: why not one kernel"));
    assert_int_equal(tool(&s, "$E explain read.pkg --why-not 'one kernel'"), 0);
    assert_non_null(strstr(s.out, "without a search"));
    assert_int_equal(tool(&s, "$E explain best.pkg --why-not 'one kernle'"), 2);
    assert_int_equal(tool(&s, "$E explain best.pkg --why-not 'zero kernels'"), 2);
    assert_int_equal(tool(&s, "$E explain best.pkg --why-not ''"), 2);
}

/* A candidate without reductions is one, too; parts that were put together are something else. */
static void pointwise_programs_are_explained(void **state)
{
    (void)state;
    tool_put("points.eqf", "(program points (dims (N 1000)) (input x f32 (N))\n"
                           "  (let t (exp x)) (output y (mul t (tanh t)) (N)))\n");
    assert_int_equal(tool(&s, "$E optimize points.eqf -o points.pkg --budget 4s --threads 1"), 0);
    assert_int_equal(tool(&s, "$E explain points.pkg --why-not 'one kernel and nothing rolling'"), 0);
    assert_null(strstr(s.out, "put together"));
    assert_non_null(strstr(s.out, "1 kernel"));
    assert_non_null(strstr(s.out, "no reduction"));
    assert_null(strstr(s.out, "none is so"));
    assert_int_equal(tool(&s, "$E explain points.pkg --why-not 'two kernels'"), 0);
    assert_non_null(strstr(s.out, "of 1 candidate that was looked at none is so"));
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

/* Rules of a user's: tested before they are used, written into the package, and named by what uses
 * them; one that is right only for the values here proves nothing. */
static void rules_of_the_users(void **state)
{
    (void)state;
    tool_put("abs.eqf", "(program abs (dims (M 2048) (N 512))\n  (input X f32 (M N))\n"
                        "  (output Y (abs (mul (exp X) (exp X)))))\n");
    tool_put("square.rules", "(rule of-square (abs (square ?x)) => (square ?x) :fp exact)\n");
    tool_put("plain.rules", "(rule of-all (abs ?x) => ?x :fp exact)\n");
    assert_int_equal(tool(&s, "$E optimize abs.eqf -o own.pkg --budget 5s --rules square.rules"), 0);
    assert_int_equal(tool(&s, "$E explain own.pkg --proof --json"), 0);
    json_t *o = json_loads(last_line(s.out), 0, NULL);
    json_t *part = json_array_get(json_object_get(o, "parts"), 0);
    assert_true(json_is_true(json_object_get(o, "checked")));
    if (part && strstr(s.out, "\"of-square\"")) { /* the form that it leads to was faster */
        assert_int_equal(json_array_size(json_object_get(part, "own_rules")), 1);
        assert_string_equal(
            json_string_value(json_array_get(json_object_get(part, "own_rules"), 0)),
            "of-square of square.rules");
        assert_int_equal(tool(&s, "$E explain own.pkg"), 0);
        assert_non_null(strstr(s.out, "of-square of square.rules"));
    } else {
        print_message("the form by the rule was not faster here\n");
    }
    json_decref(o);
    assert_int_equal(tool(&s, "$E optimize abs.eqf -o no.pkg --budget 5s --rules plain.rules"), 1);
    assert_non_null(strstr(s.err, "of-all is unsound"));
    assert_int_equal(tool(&s, "test ! -e no.pkg"), 0);
    assert_int_equal(
        tool(&s, "$E optimize abs.eqf -o no.pkg --budget 5s --rules plain.rules --force"), 0);
    assert_int_equal(tool(&s, "$E explain no.pkg --proof --json"), 0);
    o = json_loads(last_line(s.out), 0, NULL);
    part = json_array_get(json_object_get(o, "parts"), 0);
    if (part && json_is_true(json_object_get(part, "changed"))) {
        assert_non_null(strstr(json_string_value(json_object_get(part, "by_value")),
                               "rule of-all of plain.rules is unsound"));
        assert_false(json_is_true(json_object_get(o, "proved")));
    }
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_as_they_were_read),
        cmocka_unit_test(what_was_chosen_is_explained),
        cmocka_unit_test(the_last_race_is_against_the_program_as_it_is),
        cmocka_unit_test(rules_of_the_users),
        cmocka_unit_test(what_was_not_chosen_is_explained),
        cmocka_unit_test(pointwise_programs_are_explained),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
