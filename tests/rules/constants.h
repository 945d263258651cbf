/* Programs with constants that are folded once and read, or are far larger than what they are made of
 * and little work: then they are made where they are used. */
#ifndef EQF_TEST_RULES_CONSTANTS_H
#define EQF_TEST_RULES_CONSTANTS_H

#include "base/base.h"

#define DIMS "(program constants (dims (H 4) (M 12) (T 10) (D 6) (N 9)) "
#define SCORES "(input S f32 (H M T)) (parameter slope f32 (H)) (parameter b f32 (T)) (parameter w f32 (M T)) "
#define ROWS "(let P (exp (sub A (reduce max A :axis T)))) (output O (div P (reduce + P :axis T))))"
#define DISTANCE "(cast f32 (abs (sub (iota M) (iota T))))"

static const struct {
    const char *text;
    i64 folded; /* elements */
    bool is_product; /* whose factor is packed */
} constant_cases[] = {
    {DIMS SCORES "(let A (sub S (mul slope " DISTANCE "))) " ROWS, 0, false},
    {DIMS SCORES "(let A (sub S (mul 0.5 " DISTANCE "))) " ROWS, 0, false},
    {DIMS SCORES "(let A (add S (where (le (iota T) (iota M)) b -1))) " ROWS, 0, false},
    {DIMS SCORES "(let A (where (le (iota T) (iota M)) S -inf)) " ROWS, 0, false},
    {DIMS SCORES "(let A (add S (mul slope b))) " ROWS, 0, false},
    {DIMS SCORES "(let A (add S (mul slope (exp " DISTANCE ")))) " ROWS, 12 * 10, false}, /* work: once */
    {DIMS SCORES "(let A (add S (exp (mul slope " DISTANCE ")))) " ROWS, 4 * 12 * 10, false},
    {DIMS SCORES "(let A (where (and (le (iota T) (iota M)) (lt (sub (iota M) (iota T)) 5)) S -inf)) " ROWS,
     12 * 10, false}, /* a byte an element */
    {DIMS SCORES "(let A (add S (add w (mul 0.5 " DISTANCE ")))) " ROWS, 12 * 10, false}, /* no larger */
    {DIMS "(input X f32 (M D)) (parameter W f32 (D N)) (parameter g f32 (D)) "
          "(output Y (matmul (mul X g) W :axis D)))",
     6 * 9, true}, /* one product */
    {DIMS "(input X f32 (M D)) (parameter u f32 (D)) (parameter v f32 (N)) "
          "(output Y (matmul X (max (mul u v) 0) :axis D)))",
     6 * 9, true}, /* a factor is packed */
};

#endif
