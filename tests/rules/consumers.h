/* Random programs in which a sum over T uses earlier reductions over T: tile values, shifted
 * exponentials, centred and divided terms, waiting factors and masks. */
#ifndef EQF_TEST_RULES_CONSUMERS_H
#define EQF_TEST_RULES_CONSUMERS_H

#include "base/base.h"

static const char *const consumer_producers =
    "(program p (dims (M 3) (T 23)) (input x f64 (M T)) (input y f64 (M T)) (input w f64 (T))"
    "(input k f64 (M))"
    "(let m (reduce max x :axis {T}))"
    "(let l (reduce + (exp (sub x m)) :axis {T}))"
    "(let mu (div (reduce + x :axis {T}) (const f64 23)))"
    "(let q (reduce + (square y) :axis {T}))"
    "(let d (reduce + (mul (div (exp (sub x m)) l) y) :axis {T}))"
    "(let big (reduce max (abs y) :axis {T}))";

/* Factors of a product: tile values, then those that use results. */
static const char *const consumer_tile_factors[] = {"x",
                                           "y",
                                           "(tanh y)",
                                           "(mul w k)",
                                           "(abs x)",
                                           "(add y (const f64 2))",
                                           "(cast f64 (iota T))",
                                           "(where (le (iota T) (const i64 11)) y w)",
                                           "(exp (mul (const f64 0.25) w))"};
static const char *const consumer_result_factors[] = {
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

static inline void consumer_product(str *s, rng *g)
{
    i64 n = 1 + (i64)rng_below(g, 2), used = 0;
    const char *pick[4];
    pick[used++] = consumer_tile_factors[rng_below(g, COUNT_OF(consumer_tile_factors))];
    for (i64 i = 0; i < n; i++)
        pick[used++] = consumer_result_factors[rng_below(g, COUNT_OF(consumer_result_factors))];
    for (i64 i = 0; i < used - 1; i++)
        str_add(s, "(mul ");
    for (i64 i = 0; i < used; i++) {
        str_add(s, pick[i]);
        str_add(s, i ? ") " : " ");
    }
}

static inline const char *consumer_text(arena *a, rng *g)
{
    str s = str_new(a);
    str_add(&s, consumer_producers);
    str_add(&s, "(output o (reduce + ");
    i64 terms = 1 + (i64)rng_below(g, 2);
    if (terms == 2)
        str_add(&s, rng_below(g, 2) ? "(add " : "(sub ");
    for (i64 i = 0; i < terms; i++)
        consumer_product(&s, g);
    str_add(&s, terms == 2 ? ") :axis {T})))" : " :axis {T})))");
    return str_text(&s);
}

/* The same with sums over two atoms; iotas have one. */
static inline const char *consumer_two_atoms(arena *a, const char *text)
{
    static const char *const changes[][2] = {{"(T 23)", "(T 4) (U 5)"},
                                             {"(M T))", "(M T U))"},
                                             {"f64 (T))", "f64 (T U))"},
                                             {":axis {T}", ":axis {T U}"},
                                             {"f64 23)", "f64 20)"}};
    str s = str_new(a);
    while (*text) {
        i64 k = 0;
        while (k < COUNT_OF(changes) && strncmp(text, changes[k][0], strlen(changes[k][0])) != 0)
            k++;
        if (k < COUNT_OF(changes)) {
            str_add(&s, changes[k][1]);
            text += strlen(changes[k][0]);
        } else {
            str_add_char(&s, *text++);
        }
    }
    return str_text(&s);
}

#endif
