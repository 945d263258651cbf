/* Random consumers of the family: whatever is built from tile values, shifted exponentials, centred
 * and divided terms, waiting factors and masks has a repair, its folded value is the direct
 * reduction's, and the checker agrees. Rolling and split forms both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/fold.h"

static const char *const producers =
    "(program p (dims (M 3) (T 23)) (input x f64 (M T)) (input y f64 (M T)) (input w f64 (T))"
    "(input k f64 (M))"
    "(let m (reduce max x :axis {T}))"
    "(let l (reduce + (exp (sub x m)) :axis {T}))"
    "(let mu (div (reduce + x :axis {T}) (const f64 23)))"
    "(let q (reduce + (square y) :axis {T}))"
    "(let d (reduce + (mul (div (exp (sub x m)) l) y) :axis {T}))"
    "(let big (reduce max (abs y) :axis {T}))";

/* Factors of a product: tile values, then those that use results. */
static const char *const tile_factors[] = {"x",
                                           "y",
                                           "(tanh y)",
                                           "(mul w k)",
                                           "(abs x)",
                                           "(add y (const f64 2))",
                                           "(cast f64 (iota T))",
                                           "(where (le (iota T) (const i64 11)) y w)",
                                           "(exp (mul (const f64 0.25) w))"};
static const char *const result_factors[] = {
    "(exp (sub x m))",
    "(sub x mu)",
    "(recip l)",
    "(rsqrt (add (div q (const f64 23)) (const f64 1)))",
    "(sub y d)",
    "(sub (sub x m) (log l))",
    "(div y big)",
    "(exp (mul (const f64 2) (sub x m)))",
    "(where (le (iota T) (const i64 9)) (exp (sub x m)) (const f64 0))",
    "(square (sub x mu))",
    "d",
    "(exp (sub x (max m k)))",
    "(sub (max (sub x m) (sub y m)) w)",
    "(div (exp (sub x m)) l)"};

static void add_product(str *s, rng *g)
{
    i64 n = 1 + (i64)rng_below(g, 2), used = 0;
    const char *pick[4];
    pick[used++] = tile_factors[rng_below(g, COUNT_OF(tile_factors))];
    for (i64 i = 0; i < n; i++)
        pick[used++] = result_factors[rng_below(g, COUNT_OF(result_factors))];
    for (i64 i = 0; i < used - 1; i++)
        str_add(s, "(mul ");
    for (i64 i = 0; i < used; i++) {
        str_add(s, pick[i]);
        str_add(s, i ? ") " : " ");
    }
}

static const char *random_program(arena *a, rng *g)
{
    str s = str_new(a);
    str_add(&s, producers);
    str_add(&s, "(output o (reduce + ");
    i64 terms = 1 + (i64)rng_below(g, 2);
    if (terms == 2)
        str_add(&s, rng_below(g, 2) ? "(add " : "(sub ");
    for (i64 i = 0; i < terms; i++)
        add_product(&s, g);
    str_add(&s, terms == 2 ? ") :axis {T})))" : " :axis {T})))");
    return str_text(&s);
}

static f64 gauss(rng *g)
{
    f64 u = rng_f64(g) + 1e-300, v = rng_f64(g);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static bool same_values(arena *a, const rl_system *s, const rl_repair *r, rng *g)
{
    ir_program *p = (ir_program *)(uintptr_t)s->p;
    fold_data data = {NEW_N(a, f64 *, p->inputs.n)};
    tensor *in = NEW_N(a, tensor, p->inputs.n), *got = NEW_N(a, tensor, s->n);
    for (i64 i = 0; i < p->inputs.n; i++) {
        in[i] = fold_tensor(a, p, i);
        data.at[i] = in[i].data;
        for (i64 k = 0; k < tensor_count(p->ctx, in[i].rank, in[i].shape); k++)
            data.at[i][k] = gauss(g);
    }
    tensor *want = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, in, a, want, (ir_eval_options){0});
    fold_run(a, s, &data, r, g, true, false, got);
    f64 size = 1;
    for (i64 i = 0; i < 3; i++)
        size = fmax(size, fabs(tensor_get_f64(&want[0], i)));
    for (i64 i = 0; i < 3; i++) {
        f64 x = tensor_get_f64(&want[0], i), y = tensor_get_f64(&got[s->n - 1], i);
        if (!(fabs(x - y) <= 1e-8 * size))
            return false;
    }
    return true;
}

static u64 programs = 150; /* argument 1; the long run takes more */

static void random_consumers(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 found[2] = {0, 0}, limited = 0, failures = 0;
    for (u64 seed = 1; seed <= programs; seed++) {
        arena *a = arena_new(ctx, 0);
        rng g = rng_new(seed);
        const char *text = random_program(a, &g);
        ir_program *p = ir_read(a, "random", text, (i64)strlen(text));
        ir_atom axis = {2};
        rl_system system;
        assert_true(rl_system_of_program(a, p, ir_atoms_set(p, &axis, 1), &system));
        for (int want = RL_WANT_ROLLING; want <= RL_WANT_SPLIT; want++) {
            rl_repair r = rl_solve_repair(a, &system, (rl_want)want);
            if (!r.found) {
                if (!strstr(r.reason, "more than 16 accumulators"))
                    print_error("seed %d: %s: %s\n", (int)seed, r.reason, strstr(text, "(output")),
                        failures++;
                limited++;
                continue;
            }
            found[want]++;
            const char *refused = rl_check_repair(a, &system, &r, seed);
            if (refused)
                print_error("seed %d: the checker says %s: %s\n", (int)seed, refused,
                            strstr(text, "(output")),
                    failures++;
            if (!same_values(a, &system, &r, &g))
                print_error("seed %d: other values: %s\n", (int)seed, strstr(text, "(output")),
                    failures++;
        }
        arena_free(a);
    }
    print_message("  %d rolling, %d split, %d beyond the limits\n", (int)found[0], (int)found[1],
                  (int)limited);
    assert_int_equal(failures, 0);
    assert_true(found[0] > (i64)programs * 4 / 5 && found[1] > (i64)programs * 9 / 10);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        programs = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_consumers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
