/* Dim variables: unify, split, pin, what must stay apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "frontend/lower.h"

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
    fe_space *s;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    f.ctx = eqf_ctx_new(NULL);
    f.a = arena_new(f.ctx, 0);
    f.s = fe_space_new(f.a);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    arena_free(f->a);
    eqf_ctx_free(f->ctx);
    return 0;
}

static fe_vars flat(fixture *f, u32 v)
{
    u32 *at = NEW(f->a, u32);
    *at = v;
    return fe_flat(f->s, (fe_vars){at, 1});
}

static void equal_extents_unify(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 6), b = fe_var_new(f->s, 6), c = fe_var_new(f->s, 5);
    assert_false(fe_unify(f->s, a, c));
    assert_true(fe_unify(f->s, b, a));
    assert_int_equal(flat(f, b).at[0], a); /* the older one stands for both */
}

static void what_one_value_holds_stays_apart(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 6), b = fe_var_new(f->s, 6), c = fe_var_new(f->s, 6);
    fe_keep_apart(f->s, (fe_vars){(u32[]){a, b}, 2});
    assert_false(fe_unify(f->s, a, b));
    assert_true(fe_unify(f->s, b, c));
    assert_false(fe_unify(f->s, c, a)); /* inherited */
}

static void a_split_reaches_what_was_unified(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 12), b = fe_var_new(f->s, 12);
    assert_true(fe_unify(f->s, a, b));
    assert_true(fe_split(f->s, b, (i64[]){3, 4}, 2));
    fe_vars v = flat(f, a);
    assert_int_equal(v.n, 2);
    assert_int_equal(fe_var_extent(f->s, v.at[0]), 3);
    assert_int_equal(fe_var_extent(f->s, v.at[1]), 4);
}

static void parts_inherit_what_the_whole_was_apart_from(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 12), b = fe_var_new(f->s, 4), c = fe_var_new(f->s, 4);
    fe_keep_apart(f->s, (fe_vars){(u32[]){a, b}, 2});
    assert_true(fe_split(f->s, a, (i64[]){3, 4}, 2));
    assert_false(fe_unify(f->s, flat(f, a).at[1], b));
    assert_true(fe_unify(f->s, flat(f, a).at[1], c));
}

static void parts_of_one_variable_stay_apart(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 16);
    assert_true(fe_split(f->s, a, (i64[]){4, 4}, 2));
    fe_vars v = flat(f, a);
    assert_false(fe_unify(f->s, v.at[0], v.at[1]));
}

static void a_pinned_variable_is_not_split(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 12), b = fe_var_new(f->s, 12);
    fe_pin(f->s, a);
    assert_true(fe_unify(f->s, b, a));
    assert_true(fe_is_pinned(f->s, b));
    assert_false(fe_split(f->s, b, (i64[]){3, 4}, 2));
}

static void linked_variables_are_split_alike(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 12), b = fe_var_new(f->s, 12), c = fe_var_new(f->s, 3);
    fe_keep_apart(f->s, (fe_vars){(u32[]){a, b}, 2});
    fe_link(f->s, a, b);
    assert_true(fe_split(f->s, b, (i64[]){3, 4}, 2));
    assert_int_equal(flat(f, a).n, 2);
    assert_false(fe_unify(f->s, flat(f, a).at[0], flat(f, b).at[0]));
    assert_true(fe_unify(f->s, flat(f, a).at[0], c));
    /* a part of a linked pair splits in both */
    u32 d = flat(f, b).at[1];
    assert_true(fe_split(f->s, d, (i64[]){2, 2}, 2));
    assert_int_equal(flat(f, a).n, 3);
}

static void a_pin_holds_for_linked_variables(void **state)
{
    fixture *f = *state;
    u32 a = fe_var_new(f->s, 12), b = fe_var_new(f->s, 12);
    fe_link(f->s, a, b);
    fe_pin(f->s, b);
    assert_false(fe_split(f->s, a, (i64[]){3, 4}, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_extents_unify, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_one_value_holds_stays_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_split_reaches_what_was_unified, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_inherit_what_the_whole_was_apart_from, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(parts_of_one_variable_stay_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pinned_variable_is_not_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(linked_variables_are_split_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pin_holds_for_linked_variables, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
