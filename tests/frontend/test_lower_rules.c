/* The rules of the normal form, one small program each: before and after. A rule that must not fire
 * has the same text twice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "frontend/lower.h"

typedef struct rule_case {
    const char *name, *before, *after;
} rule_case;

#define INPUTS                                                                                     \
    "(program p (dims (A 3) (B 4) (C 4) (K 8) (D 2) (D3 3) (E 3) (P 12) (R 8) (S 7)) (input x "    \
    "f32 (A B)) (input y "                                                                         \
    "f32 (A B))"                                                                                   \
    " (input w f32 (B K)) (input h bf16 (A B)) (input g bf16 (B K)) (input m bool (A B))"          \
    " (input i i64 (A)) "

static const rule_case cases[] = {
    {"times one", "(mul x 1)", "x"},
    {"plus zero", "(add x 0)", "x"},
    {"minus number", "(sub x 2)", "(add x -2)"},
    {"own product", "(mul x x)", "(square x)"},
    {"square as power", "(pow x 2)", "(square x)"},
    {"cube", "(pow x 3)", "(mul x (square x))"},
    {"root as power", "(pow x 0.5)", "(sqrt x)"},
    {"inverse root", "(recip (sqrt x))", "(rsqrt x)"},
    {"inverse root as power", "(pow x -0.5)", "(rsqrt x)"},
    {"division by number", "(div x 4)", "(mul x 0.25)"},
    {"product with inverse", "(mul y (recip x))", "(div y x)"},
    {"number over", "(mul 2 (recip x))", "(div 2 x)"},
    {"numbers meet", "(mul (mul x 2) 3)", "(mul x 6)"},
    {"number leaves product", "(mul (mul x 2) y)", "(mul (mul x y) 2)"},
    {"negation leaves product", "(mul (neg x) y)", "(neg (mul x y))"},
    {"double negation", "(neg (neg x))", "x"},
    {"plus negated", "(add x (neg y))", "(sub x y)"},
    {"negated difference", "(neg (sub x y))", "(sub y x)"},
    {"square of negated", "(square (neg x))", "(square x)"},
    {"number leaves sum", "(reduce + (mul x 2) :axis B)", "(mul (reduce + x :axis B) 2)"},
    {"number leaves matmul", "(matmul (mul x 2) (mul w 3) :axis B)",
     "(mul (matmul x w :axis B) 6)"},
    {"number leaves rename", "(rename (mul x 2) :axis B :to C)",
     "(mul (rename x :axis B :to C) 2)"},
    {"number leaves reshape", "(reshape (mul w 2) :axis K :to (D C))",
     "(mul (reshape w :axis K :to (D C)) 2)"},
    {"product with itself", "(matmul x x :axis B)", "(reduce + (square x) :axis B)"},
    {"sum of sum", "(reduce + (reduce + x :axis B) :axis A)", "(reduce + x :axis {A B})"},
    {"sum of product", "(reduce + (mul x y) :axis B)", "(matmul x y :axis B)"},
    {"max of product stays", "(reduce max (mul x y) :axis B)", "(reduce max (mul x y) :axis B)"},
    {"rename of rename", "(rename (rename x :axis B :to C) :axis C :to B)", "x"},
    {"casts join", "(cast f32 (cast f64 x))", "x"},
    {"cast of bool", "(cast f32 (cast i64 m))", "(cast f32 m)"},
    {"bool of number of bool", "(ne (cast f32 m) 0)", "m"},
    {"not not", "(cast f32 (not (not m)))", "(cast f32 m)"},
    {"not of comparison", "(cast f32 (not (eq x y)))", "(cast f32 (ne x y))"},
    {"not of float order stays", "(cast f32 (not (lt x y)))", "(cast f32 (not (lt x y)))"},
    {"not of and", "(cast f32 (not (and m (eq x y))))", "(cast f32 (or (not m) (ne x y)))"},
    {"affine order", "(where (le (sub (iota B) (iota A)) 0) x y)",
     "(where (le (iota B) (iota A)) x y)"},
    {"affine strict", "(where (lt (iota B) (add (iota A) 1)) x y)",
     "(where (le (iota B) (iota A)) x y)"},
    {"affine window", "(where (lt 1 (sub (iota A) (iota B))) x y)",
     "(where (lt (add (iota B) 1) (iota A)) x y)"},
    {"order within bounds", "(where (lt (add (iota B) 5) (add (iota A) 3)) x y)", "y"},
    {"remainder of positions", "(where (eq i (mod (iota A) 3)) x y)",
     "(where (eq i (iota A)) x y)"},
    {"remainder that matters", "(where (eq i (mod (iota A) 2)) x y)",
     "(where (eq i (mod (iota A) 2)) x y)"},
    {"order of sums", "(sub (exp (add x y)) (log (add y x)))",
     "(sub (exp (add x y)) (log (add x y)))"},
    {"affine equation", "(where (eq (sub (iota A) (iota B)) 0) x y)",
     "(where (eq (iota A) (iota B)) x y)"},
    {"order that is known", "(where (le (iota A) (iota A)) x y)", "x"},
    {"mask added", "(add x (where m (const f32 0) (const f32 -inf)))", "(where m x -inf)"},
    {"constant branch last", "(where m -inf x)", "(where (not m) x -inf)"},
    {"mask of mask", "(where m (where (eq x y) x -inf) -inf)", "(where (and m (eq x y)) x -inf)"},
    {"same condition", "(where m (where m x y) y)", "(where m x y)"},
    {"indicator", "(where m (const f32 1) (const f32 0))", "(cast f32 m)"},
    {"any not -inf", "(cast f32 (reduce or (not (eq x -inf)) :axis B))",
     "(cast f32 (ne (reduce max x :axis B) -inf))"},
    {"live row of a product",
     "(where (eq (reduce max (matmul x w :axis B) :axis K) -inf) 0.0 (reduce + x :axis B))",
     "(reduce + x :axis B)"},
    {"live row under a causal mask",
     "(where (eq (reduce max (where (le (iota K) (iota A)) (matmul x w :axis B) -inf) :axis K) "
     "-inf)"
     " 0.0 (reduce + x :axis B))",
     "(reduce + x :axis B)"},
    {"dead row under a strict mask",
     "(where (ne (reduce max (where (lt (iota K) (iota A)) (matmul x w :axis B) -inf) :axis K) "
     "-inf)"
     " (reduce + x :axis B) 0.0)",
     "(where (ne (reduce max (where (lt (iota K) (iota A)) (matmul x w :axis B) -inf) :axis K) "
     "-inf)"
     " (reduce + x :axis B) 0.0)"},
    {"row of an input may be dead",
     "(where (ne (reduce max x :axis B) -inf) (reduce + x :axis B) 0.0)",
     "(where (ne (reduce max x :axis B) -inf) (reduce + x :axis B) 0.0)"},
    {"picked along a computed axis", "(gather (exp x) i :axis B)",
     "(reduce + (where (eq i (iota B)) (exp x) 0.0) :axis B)"},
    {"rows of an input stay a gather", "(gather w i :axis B)", "(gather w i :axis B)"},
    {"known gather", "(rename (gather x (add (iota C) 0) :axis B) :axis C :to B)", "x"},
    {"slice of a cast",
     "(matmul (slice (cast f64 x) :axis B :start 1 :to D :step 1)"
     " (cast f64 (const f32 2)) :axis D)",
     "(mul (reduce + (cast f64 (slice x :axis B :start 1 :to D :step 1)) :axis D) 2)"},
    {"roll as a gather", "(gather w (fmod (add (iota C) 3) (const i64 4)) :axis B)",
     "(concat (slice w :axis B :start 3) (slice w :axis B :start 0 :to E :step 1) :axis (- E) :to "
     "C)"},
    {"roll as a gather, in parts",
     "(gather w (fmod (add (add (iota C) (mul (iota D) 4)) 1) (const i64 8)) :axis K)",
     "(reshape (concat (slice w :axis K :start 1 :to S :step 1) (slice w :axis K :start 0)"
     " :axis (S -) :to R) :axis R :to (D C))"},
    {"slice of a repeated", "(slice (expand w :to A) :axis A :start 1)", "w"},
    {"slice under a repeat", "(slice (expand w :to A) :axis K :start 1)",
     "(expand (slice w :axis K :start 1) :to A)"},
    {"rename of a repeated", "(rename (expand w :to D3) :axis (D3 B) :to (A C))",
     "(expand (rename w :axis B :to C) :to A)"},
    {"repeat that says nothing", "(mul (expand x :to K) (exp w))", "(mul x (exp w))"},
    {"slice within a product",
     "(slice (reshape x :axis (A B) :to P) :axis P :start 9 :to D :step 1)",
     "(slice (slice x :axis A :start 2) :axis B :start 1 :to D :step 1)"},
    {"slice across a product",
     "(slice (reshape x :axis (A B) :to P) :axis P :start 7 :to D :step 1)",
     "(slice (reshape x :axis (A B) :to P) :axis P :start 7 :to D :step 1)"},
    {"cut after slice", "(slice (reshape w :axis K :to (D C)) :axis B :start 1)",
     "(reshape (slice w :axis B :start 1) :axis K :to (D C))"},
    {"cut after concatenation",
     "(concat (reshape w :axis K :to (D C)) (reshape (exp w) :axis K :to (D C))"
     " :axis (B B) :to R)",
     "(reshape (concat w (exp w) :axis (B B) :to R) :axis K :to (D C))"},
    {"slice of what became still", "(add x (slice (where (le (iota K) 7) y w) :axis K :start 1))",
     "(add x y)"},
    {"reshape of what became still",
     "(add w (reduce max (reshape (where (le (iota K) 7) y w) :axis K :to (D C)) :axis {A C D}))",
     "(add w (reduce max y :axis A))"},
    {"part of a concatenation",
     "(slice (concat x y :axis (B B) :to K) :axis K :start 4 :to B :step 1)", "y"},
    {"slice of a slice", "(slice (slice w :axis K :start 2 :to D3 :step 2) :axis D3 :start 1)",
     "(slice w :axis K :start 4)"},
    {"slice of a diagonal stays",
     "(slice (slice (matmul x w :axis B) :axis K :start 1 :to A :step 1) :axis A :start 1)",
     "(slice (slice (matmul x w :axis B) :axis K :start 1 :to A :step 1) :axis A :start 1)"},
    {"read of a masked write", "(slice (where (eq (iota A) 1) y x) :axis A :start 1)",
     "(slice y :axis A :start 1)"},
    {"half between floats", "(cast f32 (mul h h))", "(square (cast f32 h))"},
    {"half product between floats", "(cast f32 (matmul h g :axis B))",
     "(matmul (cast f32 h) (cast f32 g) :axis B)"},
    {"half from float", "(matmul (cast bf16 (exp x)) g :axis B)",
     "(cast bf16 (matmul (exp x) (cast f32 g) :axis B))"},
    {"half alone stays", "(exp h)", "(exp h)"},
};

static char *normal(arena *a, const char *term, bool apply)
{
    char *text = arena_printf(a, INPUTS "(output o %s))", term);
    ir_program *p = ir_read(a, "case", text, (i64)strlen(text));
    if (apply)
        fe_normalize(p);
    ir_verify(p, "normalize");
    str s = str_new(a);
    ir_print(&s, ir_canonical(a, p));
    return s.at;
}

static void each_rule(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 bad = 0;
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        arena *a = arena_new(ctx, 0);
        trap t;
        TRY (ctx, t) {
            char *found = normal(a, cases[i].before, true),
                 *want = normal(a, cases[i].after, false);
            if (strcmp(found, want) != 0) {
                print_error("%s:\n%s\nwanted:\n%s\n", cases[i].name, found, want);
                bad++;
            }
        }
        if (t.status) {
            print_error("%s: %s\n", cases[i].name, eqf_diag_get(ctx, 0).message);
            eqf_ctx_clear(ctx);
            bad++;
        }
        arena_free(a);
    }
    assert_int_equal(bad, 0);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
