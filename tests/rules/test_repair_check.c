/* The certificate checker refuses what was changed: each coefficient and exponent of a certificate,
 * each sum, product and guard of the lambdas, identities, and certificates of other systems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/fold.h"

typedef struct subject {
    const char *name, *text; /* a program in which T is the axis */
    /* Some changes of the lambdas are no errors: first-order accumulators are 0 at a mean, and any
     * reference is legal while nothing overflows. */
    bool has_idle_terms;
} subject;

static const subject subjects[] = {
    {"softmax",
     "(program p (dims (M 3) (T 37) (E 2)) (input x f64 (M T)) (input v f64 (T E))"
     "(let m (reduce max x :axis {T})) (let e (exp (sub x m)))"
     "(let l (reduce + e :axis {T})) (output o (matmul (div e l) v :axis {T})))",
     false},
    {"variance",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T))"
     "(let mu (div (reduce + x :axis {T}) (const f64 37)))"
     "(output o (reduce + (square (sub x mu)) :axis {T})))",
     true},
    {"entropy",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T))"
     "(let m (reduce max x :axis {T})) (let e (exp (sub x m)))"
     "(let l (reduce + e :axis {T})) (let p (div e l))"
     "(output o (reduce + (mul p (log p)) :axis {T})))",
     false},
    {"covariance",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T)) (input y f64 (M T))"
     "(let mu (div (reduce + x :axis {T}) (const f64 37)))"
     "(let nu (div (reduce + y :axis {T}) (const f64 37)))"
     "(output o (reduce + (mul (sub x mu) (sub y nu)) :axis {T})))",
     true},
    {"nll",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T)) (input y f64 (M T))"
     "(let m (reduce max x :axis {T})) (let l (reduce + (exp (sub x m)) :axis {T}))"
     "(output o (reduce + (mul y (sub (sub x m) (log l))) :axis {T})))",
     false},
    {"max-abs",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T))"
     "(let mu (div (reduce + x :axis {T}) (const f64 37)))"
     "(output o (reduce max (abs (sub x mu)) :axis {T})))",
     false},
    {"shifted",
     "(program p (dims (M 3) (T 37)) (input x f64 (M T))"
     "(let mu (div (reduce + x :axis {T}) (const f64 37)))"
     "(output o (reduce + (exp (sub x mu)) :axis {T})))",
     true},
};

static rl_repair solve(arena *a, const subject *s, rl_system *system)
{
    ir_program *p = ir_read(a, s->name, s->text, (i64)strlen(s->text));
    ir_atom axis = {0};
    for (u32 i = 1; i < (u32)p->atoms.n; i++)
        if (strcmp(ir_atom_name(p, (ir_atom){i}), "T") == 0)
            axis.i = i;
    assert_true(rl_system_of_program(a, p, ir_atoms_set(p, &axis, 1), system));
    rl_repair r = rl_solve_repair(a, system, RL_WANT_ROLLING);
    assert_true(r.found);
    return r;
}

/* A rational `(N D)` of a polynomial; not one inside the ledger, which is terms. */
typedef struct spot {
    i64 from, to;
    i64 n, d;
} spot;

static i64 find_spots(const char *text, spot *at, i64 max)
{
    const char *start = strstr(text, "(factors");
    i64 count = 0;
    for (const char *c = start; *c; c++) {
        long long n, d;
        int used = 0;
        if (*c == '(' && sscanf(c, "(%lld %lld)%n", &n, &d, &used) == 2 && used && count < max)
            at[count++] = (spot){c - text, c - text + used, n, d};
    }
    return count;
}

static const char *with_change(arena *a, const char *text, const spot *s, int kind)
{
    i64 n = kind == 0 ? -s->n : s->n + 1;
    if (n == 0)
        n = 2;
    return arena_printf(a, "%.*s(%lld %lld)%s", (int)s->from, text, (long long)n, (long long)s->d,
                        text + s->to);
}

static void certificates(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 changed = 0;
    for (i64 i = 0; i < COUNT_OF(subjects); i++) {
        arena *a = arena_new(ctx, 0);
        rl_system system;
        rl_repair r = solve(a, &subjects[i], &system);
        assert_null(rl_check_repair(a, &system, &r, 1));
        spot *spots = NEW_N(a, spot, 4096);
        i64 n = find_spots(r.certificate, spots, 4096);
        assert_true(n > 10);
        for (i64 k = 0; k < n; k++)
            for (int kind = 0; kind < 2; kind++) {
                arena *b = arena_child(a);
                rl_repair bad = r;
                bad.certificate = with_change(b, r.certificate, &spots[k], kind);
                if (!rl_check_repair(b, &system, &bad, 1))
                    fail_msg("%s: accepted with a change at %d: %.60s", subjects[i].name,
                             (int)spots[k].from, r.certificate + MAX(spots[k].from - 30, 0));
                changed++;
                arena_free(b);
            }
        arena_free(a);
    }
    print_message("  %d changed certificates refused\n", (int)changed);
    assert_true(changed > 300);
    eqf_ctx_free(ctx);
}

/* The k-th occurrence of `from` in the lambda's text replaced. */
static bool change_lambda(arena *a, rl_lambda *l, const char *from, const char *to, i64 k)
{
    str text = str_new(a);
    ir_print(&text, l->p);
    const char *c = strstr(str_text(&text), "(let");
    if (!c)
        c = strstr(str_text(&text), "(output");
    for (c = c ? strstr(c, from) : NULL; c && k > 0; k--)
        c = strstr(c + 1, from);
    if (!c)
        return false;
    const char *changed = arena_printf(a, "%.*s%s%s", (int)(c - str_text(&text)), str_text(&text),
                                       to, c + strlen(from));
    l->p = ir_read(a, "changed", changed, (i64)strlen(changed));
    return true;
}

static void lambdas(void **state)
{
    (void)state;
    static const char *const swaps[][2] = {{"(sub ", "(add "},
                                           {"(mul ", "(add "},
                                           {"(add ", "(sub "},
                                           {"(max ", "(min "},
                                           {"(reduce max", "(reduce min"}};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 changed = 0;
    for (i64 i = 0; i < COUNT_OF(subjects); i++)
        for (int which = 0; which < 3 && !subjects[i].has_idle_terms; which++)
            for (i64 w = 0; w < COUNT_OF(swaps); w++)
                for (i64 k = 0;; k++) {
                    arena *a = arena_new(ctx, 0);
                    rl_system system;
                    rl_repair r = solve(a, &subjects[i], &system);
                    rl_lambda *l = which == 0 ? &r.update : which == 1 ? &r.merge : &r.final;
                    bool found = change_lambda(a, l, swaps[w][0], swaps[w][1], k);
                    if (found && !rl_check_repair(a, &system, &r, 1))
                        fail_msg("%s: accepted with %s for %s number %d in %s", subjects[i].name,
                                 swaps[w][1], swaps[w][0], (int)k,
                                 which == 0   ? "update"
                                 : which == 1 ? "merge"
                                              : "final");
                    arena_free(a);
                    if (!found)
                        break;
                    changed++;
                }
    print_message("  %d changed lambdas refused\n", (int)changed);
    assert_true(changed > 40);
    eqf_ctx_free(ctx);
}

static void others(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_system systems[COUNT_OF(subjects)];
    rl_repair r[COUNT_OF(subjects)];
    for (i64 i = 0; i < COUNT_OF(subjects); i++)
        r[i] = solve(a, &subjects[i], &systems[i]);
    for (i64 i = 0; i < COUNT_OF(subjects); i++)
        for (i64 j = 0; j < COUNT_OF(subjects); j++)
            assert_int_equal(rl_check_repair(a, &systems[i], &r[j], 1) == NULL, i == j);
    rl_slot *slots = arena_copy(a, r[0].slots, r[0].slot_count * (i64)sizeof *slots);
    slots[0].identity = 0;
    rl_repair bad = r[0];
    bad.slots = slots;
    assert_non_null(rl_check_repair(a, &systems[0], &bad, 1));
    bad = r[0];
    bad.certificate = "(repair-certificate 2)";
    assert_non_null(rl_check_repair(a, &systems[0], &bad, 1));
    bad.certificate = "(repair";
    assert_non_null(rl_check_repair(a, &systems[0], &bad, 1));
    bad.certificate = "";
    assert_non_null(rl_check_repair(a, &systems[0], &bad, 1));
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* What is not a number at some random points, or on one of two tiles, proves nothing there, whatever
 * points are drawn. */
static void any_points(void **state)
{
    (void)state;
    static const subject roots = {
        "roots",
        "(program p (dims (M 2) (T 2)) (input x f64 (M T)) (input v f64 (T))"
        "(let z (mul x (rsqrt v)))"
        "(let mu (div (reduce + z :axis {T}) (const f64 2)))"
        "(output o (reduce + (square (sub z mu)) :axis {T})))",
        true};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_system system;
    rl_repair r = solve(a, &roots, &system);
    for (u64 seed = 1; seed <= 60; seed++) {
        const char *refused = rl_check_repair(a, &system, &r, seed);
        if (refused)
            fail_msg("seed %d: %s", (int)seed, refused);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates),
        cmocka_unit_test(lambdas),
        cmocka_unit_test(others),
        cmocka_unit_test(any_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
