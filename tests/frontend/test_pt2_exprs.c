/* Symbolic expressions in both spellings, against values computed by hand (Python's rules). */
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
    fe_exprs *x;
    fe_input inputs[4];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eqf_ctx_new(NULL);
    f->a = arena_new(f->ctx, 0);
    f->x = fe_exprs_new(f->a);
    static const char *const PATHS[] = {"x", "d['a']", "l[0]['k k']", "n"};
    for (int i = 0; i < 4; i++) {
        f->inputs[i] = (fe_input){.kind = FE_IN_USER, .path = PATHS[i]};
        f->inputs[i].arg.kind = i == 3 ? FE_ARG_SYM_INT : FE_ARG_TENSOR;
    }
    fe_exprs_inputs(f->x, f->inputs, 4);
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

/* s0 = 7, s1 = -7, all others unknown. */
static bool symbol(void *user, u32 id, i64 *out)
{
    fixture *f = user;
    const char *name = f->x->symbols.at[id].name;
    *out = strcmp(name, "s0") == 0 ? 7 : -7;
    return strcmp(name, "s0") == 0 || strcmp(name, "s1") == 0;
}

/* Extent d of input i is 10 * (i + 1) + d; rank 2. */
static bool size(void *user, u32 input, i64 dim, i64 *out)
{
    (void)user;
    *out = 10 * ((i64)input + 1) + dim;
    return dim >= 0 && dim < 2;
}

static bool value(void *user, u32 input, fe_number *out)
{
    (void)user;
    *out = (fe_number){.i = 5};
    return input == 3;
}

typedef struct int_case {
    const char *text;
    bool has_value;
    i64 expected;
} int_case;

static void check_ints(fixture *f, const int_case *cases, i64 n, bool is_python)
{
    fe_env env = {.user = f, .symbol = symbol, .size = size, .value = value};
    for (i64 i = 0; i < n; i++) {
        i64 length = (i64)strlen(cases[i].text), got = 0;
        const fe_expr *e = is_python ? fe_expr_python(f->x, cases[i].text, length)
                                     : fe_expr_srepr(f->x, cases[i].text, length, NULL);
        if (!e)
            fail_msg("%s: not understood", cases[i].text);
        bool has_value = fe_expr_int(e, &env, &got);
        if (has_value != cases[i].has_value || (has_value && got != cases[i].expected))
            fail_msg("%s = %lld (%d), expected %lld (%d)", cases[i].text, (long long)got, has_value,
                     (long long)cases[i].expected, cases[i].has_value);
    }
}

#define A "Symbol('s0', positive=True, integer=True)"
#define B "Symbol('s1', integer=True)"

static void test_srepr(void **state)
{
    static const int_case CASES[] = {
        {"Integer(-3)", true, -3},
        {A, true, 7},
        {"Symbol('u3')", false, 0},
        {"Add(" A ", Integer(2), Integer(1))", true, 10},
        {"Mul(Integer(-1), " A ")", true, -7},
        {"Pow(" A ", Integer(2))", true, 49},
        {"Pow(" A ", Integer(-1))", false, 0},
        {"Mul(Rational(1, 49), Pow(" A ", Integer(2)))", true, 1},
        {"Mul(Rational(1, 3), " A ")", false, 0},
        {"Mul(Integer(3), Rational(1, 3), " A ")", true, 7},
        {"FloorDiv(" B ", Integer(2))", true, -4},
        {"CeilDiv(" B ", Integer(2))", true, -3},
        {"Mod(" B ", Integer(3))", true, 2},
        {"PythonMod(" A ", Integer(-3))", true, -2},
        {"Mod(" A ", Integer(0))", false, 0},
        {"FloorDiv(" A ", Integer(0))", false, 0},
        {"Max(" A ", " B ", Integer(3))", true, 7},
        {"Min(" A ", " B ")", true, -7},
        {"IntTrueDiv(" A ", Integer(7))", true, 1},
        {"IntTrueDiv(" A ", Integer(2))", false, 0},
        {"TruncToInt(IntTrueDiv(" B ", Integer(2)))", true, -3},
        {"FloorToInt(IntTrueDiv(" B ", Integer(2)))", true, -4},
        {"CeilToInt(Float('2.5', precision=53))", true, 3},
        {"StrictGreaterThan(" A ", Integer(6))", true, 1},
        {"GreaterThan(" A ", Integer(8))", true, 0},
        {"LessThan(" B ", Integer(-7))", true, 1},
        {"Equality(" A ", Integer(7))", true, 1},
        {"Unequality(" A ", Integer(7))", true, 0},
        {"And(true, Equality(" A ", Integer(7)))", true, 1},
        {"Or(false, Symbol('u1'), true)", true, 1},
        {"And(Symbol('u1'), true)", false, 0},
        {"Not(false)", true, 1},
        {"Where(false, Symbol('u1'), Integer(4))", true, 4},
        {"Mul(Integer(9223372036854775807), " A ")", false, 0},
        {"Pow(Integer(2), Integer(62))", true, 1LL << 62},
        {"Pow(Integer(2), Integer(64))", false, 0},
        {"Pow(Integer(-1), Integer(9223372036854775807))", true, -1},
        {"Integer(9223372036854775808)", false, 0},
        {"Mul(Integer(-9223372036854775808), Integer(-1))", false, 0},
        {"Abs(Integer(-9223372036854775808))", false, 0},
        {"FloorDiv(Integer(-9223372036854775808), Integer(-1))", false, 0},
        {"Identity(" A ")", false, 0},
        {"Add(oo, Integer(1))", false, 0},
        {"Mystery(Tuple(Integer(1), [1, 2]), key='v')", false, 0},
    };
    check_ints(*state, CASES, COUNT_OF(CASES), false);
}

static void test_srepr_malformed(void **state)
{
    static const char *const CASES[] = {
        "",
        "Add(",
        "Add(Integer(1)",
        "Integer(1))",
        "Symbol('s0",
        "Add(,)",
        "'text'",
        "Add(a=b=1)",
        "Integer(1) junk",
        "(1",
        "Add(Integer(1),)",
        "\xFF",
        "x=Integer(1)",
    };
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++)
        for (int again = 0; again < 2; again++)
            if (fe_expr_srepr(f->x, CASES[i], (i64)strlen(CASES[i]), NULL))
                fail_msg("%s was understood", CASES[i]);
}

static void test_sharing(void **state)
{
    fixture *f = *state;
    i64 hint = 12;
    const char *text = "Mul(Integer(2), " A ")";
    const fe_expr *e = fe_expr_srepr(f->x, text, (i64)strlen(text), &hint);
    assert_ptr_equal(e, fe_expr_srepr(f->x, text, (i64)strlen(text), NULL));
    assert_int_equal(e->hint, 12);
    assert_string_equal(e->text, text);
    assert_ptr_equal(fe_expr_const(f->x, 2), e->at[0]);
    i64 seven = 7;
    const fe_expr *s = fe_expr_srepr(f->x, A, (i64)strlen(A), &seven);
    assert_int_equal(f->x->symbols.at[s->symbol].hint, 7);
    /* One symbol whatever the assumptions say, told apart from those that depend on data. */
    const fe_expr *same = fe_expr_srepr(f->x, "Symbol('s0')", 12, NULL);
    assert_int_equal(same->symbol, s->symbol);
    assert_false(f->x->symbols.at[s->symbol].depends_on_data);
    static const char *const DATA[] = {"Symbol('u12')", "Symbol('zuf0')"};
    for (int i = 0; i < 2; i++) {
        const fe_expr *u = fe_expr_srepr(f->x, DATA[i], (i64)strlen(DATA[i]), NULL);
        assert_true(f->x->symbols.at[u->symbol].depends_on_data);
    }
}

static void test_python(void **state)
{
    static const int_case CASES[] = {
        {"1 + 2*3", true, 7},
        {"(1 + 2)*3", true, 9},
        {"7 - 2 - 1", true, 4},
        {"-7 // 2", true, -4},
        {"-7 % 3", true, 2},
        {"7 % -3", true, -2},
        {"2**3**2", true, 512},
        {"-2**2", true, -4},
        {"2*s0", true, 14},
        {"L['x'].size()[0]", true, 10},
        {"L['d']['a'].size()[1]", true, 21},
        {"L['l'][0]['k k'].shape[0]", true, 30},
        {"L[\"d\"][\"a\"].size()[0] == 20", true, 1},
        {"L['x'].size()[2]", false, 0},
        {"L['n'] + 1", true, 6},
        {"L['x'].size()[0] == 10 and L['d']['a'].size()[0] != 20", true, 0},
        {"L['x'].size()[0] > 99 or L['n'] <= 5", true, 1},
        {"not L['n'] == 5", true, 0},
        {"1 < L['n'] <= 5 < 6", true, 1},
        {"1 < L['n'] <= 4", true, 0},
        {"10 % (L['n'] - 5) == 0", false, 0},
        {"math.trunc(torch.sym_float(L['x'].size()[0]) / 4.0)", true, 2},
        {"math.trunc((-7)/2)", true, -3},
        {"math.ceil(7/2)", true, 4},
        {"torch.sym_max(L['n'], 3)", true, 5},
        {"Max(1, s0, 3)", true, 7},
        {"Mod(L['n'], 3)", true, 2},
        {"int(1.5e1)", true, 15},
        {"True", true, 1},
        {"9223372036854775807 + 1", false, 0},
    };
    check_ints(*state, CASES, COUNT_OF(CASES), true);
}

static void test_python_not_understood(void **state)
{
    static const char *const CASES[] = {
        "",
        "1 +",
        "(1",
        "any(L['x'])",
        "L['y'].size()[0]",
        "L[0]",
        "L['x']",
        "L['x",
        "L['x'].size()[-1]",
        "L['x'].stride()[0]",
        "a if b else c",
        "s0 << 2",
        "1 = 1",
        "x",
        "Max()",
        "Mod(1)",
        "99999999999999999999",
        "L['x'].size()[0] ==",
        "lambda: 1",
        "1..2",
    };
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++)
        if (fe_expr_python(f->x, CASES[i], (i64)strlen(CASES[i])))
            fail_msg("%s was understood", CASES[i]);
}

static void test_guards(void **state)
{
    fixture *f = *state;
    fe_env env = {.user = f, .symbol = symbol, .size = size, .value = value};
    static const struct {
        const char *text;
        fe_guard_result result;
    } CASES[] = {
        {"L['x'].size()[0] == 10", FE_GUARD_HOLDS},
        {"L['x'].size()[0] == 18", FE_GUARD_FAILS},
        {"L['x'].size()[7] == 18", FE_GUARD_UNKNOWN},
        {"L['x'].size()[7] == 18 or L['n'] == 5", FE_GUARD_HOLDS},
        {"f(L['x'])", FE_GUARD_UNKNOWN},
    };
    for (i64 i = 0; i < COUNT_OF(CASES); i++) {
        fe_guard g = {CASES[i].text,
                      fe_expr_python(f->x, CASES[i].text, (i64)strlen(CASES[i].text))};
        if (fe_guard_check(&g, &env) != CASES[i].result)
            fail_msg("%s", g.text);
    }
}

static void test_reals(void **state)
{
    fixture *f = *state;
    fe_env env = {.user = f, .symbol = symbol};
    fe_number x;
    const fe_expr *e = fe_expr_python(f->x, "7 / 2", 5);
    assert_true(fe_expr_eval(e, &env, &x) && x.is_real && x.f == 3.5);
    e = fe_expr_python(f->x, "7 // 2", 6);
    assert_true(fe_expr_eval(e, &env, &x) && !x.is_real && x.i == 3);
    e = fe_expr_srepr(f->x, "Float('0.1', precision=53)", 26, NULL);
    assert_true(fe_expr_eval(e, &env, &x) && x.is_real && x.f == 0.1);
    e = fe_expr_srepr(f->x, "Pow(Integer(2), Float('0.5', precision=53))", 43, NULL);
    assert_true(fe_expr_eval(e, &env, &x) && fabs(x.f - 1.4142135623730951) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_srepr, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_srepr_malformed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sharing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_python, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_python_not_understood, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_guards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
