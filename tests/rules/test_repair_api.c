/* The solver's interface: bodies of one tile with inputs as results, stray uses refused, the split
 * form beside the rolling one, equal systems giving equal lambdas, and other dtypes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/fold.h"

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
} fixture;

static fixture open_fixture(void)
{
    fixture f = {eqf_ctx_new(NULL), NULL};
    f.a = arena_new(f.ctx, 0);
    return f;
}

static void close_fixture(fixture f)
{
    arena_free(f.a);
    eqf_ctx_free(f.ctx);
}

static ir_program *read(fixture f, const char *text)
{
    return ir_read(f.a, "test", text, (i64)strlen(text));
}

static rl_system system_of(fixture f, const ir_program *p)
{
    ir_atom t = {0};
    for (u32 i = 1; i < (u32)p->atoms.n; i++)
        if (strcmp(ir_atom_name(p, (ir_atom){i}), "T") == 0)
            t.i = i;
    rl_system s;
    assert_true(rl_system_of_program(f.a, p, (ir_atoms){arena_copy(f.a, &t, 4), 1}, &s));
    return s;
}

/* As the e-graph asks: the producers' results are inputs of the bodies. */
static void inputs_as_results(void **state)
{
    (void)state;
    fixture f = open_fixture();
    ir_program *p =
        read(f, "(program p (dims (M 3) (T 8) (E 2)) (input x f16 (M T)) (input v f16 (T E))"
                "(input m f32 (M)) (input l f32 (M))"
                "(let z (cast f32 x))"
                "(output a (reduce max z :axis {T}))"
                "(output b (reduce + (exp (sub z m)) :axis {T}))"
                "(output c (matmul (div (exp (sub z m)) l) (cast f32 v) :axis {T})))");
    rl_reduction at[3] = {{IR_MAX, p->outputs.at[0].term, p->inputs.at[2].term},
                          {IR_SUM, p->outputs.at[1].term, p->inputs.at[3].term},
                          {IR_SUM, p->outputs.at[2].term, p->outputs.at[2].term}};
    ir_atom t = {2};
    rl_system s = {.p = p, .axis = {&t, 1}, .at = at, .n = 3};
    rl_repair r = rl_solve_repair(f.a, &s, RL_WANT_ROLLING);
    assert_true(r.found);
    assert_int_equal(r.slot_count, 3);
    assert_int_equal(r.how[2].form, RL_ROLLING);
    assert_null(rl_check_repair(f.a, &s, &r, 3));
    assert_int_equal(r.update.leaf_count, 2);
    assert_int_equal(r.update.p->inputs.at[4].dtype, DT_f16); /* leaves keep their dtype */
    assert_int_equal(r.update.p->inputs.at[0].dtype, DT_f32); /* states are f32 */
    close_fixture(f);
}

static void refused_systems(void **state)
{
    (void)state;
    fixture f = open_fixture();
    ir_program *p = read(f, "(program p (dims (M 3) (T 8)) (input x f32 (M T))"
                            "(let m (reduce max x :axis {T}))"
                            "(output l (reduce + (exp (sub x m)) :axis {T}))"
                            "(output e (exp (sub x m))))");
    rl_system s = system_of(f, p);
    rl_reduction swapped[2] = {s.at[1], s.at[0]}, open = {IR_SUM, p->outputs.at[1].term, {0}};
    rl_system bad[4] = {s, s, s, s};
    bad[0].at = swapped;
    bad[1].n = 0;
    bad[2].axis.n = 0;
    bad[3].at = &open;
    bad[3].n = 1;
    for (volatile int i = 0; i < 4; i++) {
        trap t;
        TRY (f.ctx, t) {
            rl_solve_repair(f.a, &bad[i], RL_WANT_ROLLING);
        }
        assert_int_equal(t.status, EQF_E_ARGUMENT);
    }
    close_fixture(f);
}

static void split_forms(void **state)
{
    (void)state;
    fixture f = open_fixture();
    ir_program *p = read(f, "(program p (dims (M 3) (T 8)) (input x f32 (M T)) (input w f32 (T))"
                            "(let q (reduce + (square x) :axis {T}))"
                            "(output o (reduce + (mul (mul x (rsqrt q)) w) :axis {T})))");
    rl_system s = system_of(f, p);
    rl_repair r = rl_solve_repair(f.a, &s, RL_WANT_SPLIT);
    assert_true(r.found && r.how[1].form == RL_SPLIT && !r.how[1].cancels && !r.how[1].overflows);
    assert_int_equal(r.how[1].fp, RL_REASSOCIATED);
    p = read(f, "(program p (dims (M 3) (T 8)) (input x f32 (M T))"
                "(let mu (div (reduce + x :axis {T}) (const f32 8)))"
                "(output o (reduce + (square (sub x mu)) :axis {T})))");
    s = system_of(f, p);
    r = rl_solve_repair(f.a, &s, RL_WANT_SPLIT);
    assert_true(r.found && r.how[1].form == RL_SPLIT && r.how[1].cancels);
    assert_int_equal(r.how[1].fp, RL_APPROXIMATE);
    p = read(f, "(program p (dims (M 3) (T 8)) (input x f32 (M T))"
                "(let m (reduce max x :axis {T}))"
                "(output o (reduce + (exp (sub x m)) :axis {T})))");
    s = system_of(f, p);
    r = rl_solve_repair(f.a, &s, RL_WANT_SPLIT);
    assert_true(r.found && r.how[1].form == RL_SPLIT && r.how[1].overflows);
    assert_int_equal(r.how[1].fp, RL_APPROXIMATE);
    r = rl_solve_repair(f.a, &s, RL_WANT_ROLLING);
    assert_int_equal(r.how[0].fp, RL_EXACT);
    assert_int_equal(r.how[1].fp, RL_REASSOCIATED);
    close_fixture(f);
}

static const char *lambda_text(fixture f, const rl_lambda *l)
{
    str s = str_new(f.a);
    ir_print(&s, ir_canonical(f.a, l->p));
    return str_text(&s);
}

/* Spelling does not matter: the lambdas of equal reducers are equal programs. */
static void equal_lambdas(void **state)
{
    (void)state;
    fixture f = open_fixture();
    const char *texts[3] = {
        "(program p (dims (M 3) (T 8)) (input x f32 (M T)) (let m (reduce max x :axis {T}))"
        "(output o (reduce + (exp (sub x m)) :axis {T})))",
        "(program q (dims (M 3) (T 8)) (input x f32 (M T)) (let m (reduce max x :axis {T}))"
        "(output u (add m m)) (output o (reduce + (exp (sub x m)) :axis {T})))",
        "(program q (dims (M 3) (T 8)) (input x f32 (M T)) (let m (reduce max x :axis {T}))"
        "(output o (reduce + (square (exp (sub x m))) :axis {T})))"};
    const char *update[3], *merge[3];
    for (int i = 0; i < 3; i++) {
        rl_system s = system_of(f, read(f, texts[i]));
        rl_repair r = rl_solve_repair(f.a, &s, RL_WANT_ROLLING);
        assert_true(r.found);
        update[i] = lambda_text(f, &r.update);
        merge[i] = lambda_text(f, &r.merge);
        rl_repair again = rl_solve_repair(f.a, &s, RL_WANT_ROLLING);
        assert_string_equal(r.certificate, again.certificate);
    }
    assert_string_equal(update[0], update[1]);
    assert_string_equal(merge[0], merge[1]);
    assert_string_not_equal(update[0], update[2]);
    close_fixture(f);
}

/* Inputs may have the names that the solver would use. */
static void taken_names(void **state)
{
    (void)state;
    fixture f = open_fixture();
    ir_program *p = read(
        f, "(program p (dims (M 3) (T 8)) (input a.0 f32 (M T)) (input s.0 f32 (T))"
           "(input lanes.0 f32 (M)) (input b.1 f32 (M T))"
           "(let m (reduce max a.0 :axis {T}))"
           "(output o (reduce + (mul (exp (sub a.0 m)) (mul s.0 (mul lanes.0 b.1))) :axis {T})))");
    rl_system s = system_of(f, p);
    rl_repair r = rl_solve_repair(f.a, &s, RL_WANT_ROLLING);
    assert_true(r.found);
    assert_null(rl_check_repair(f.a, &s, &r, 1));
    close_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_as_results), cmocka_unit_test(refused_systems),
        cmocka_unit_test(split_forms),       cmocka_unit_test(equal_lambdas),
        cmocka_unit_test(taken_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
