/* Tensors out of nothing: constants, ranges, identity. Their dims are fresh variables, so that a
 * mask built from ranges takes on the dims of what it meets. */
#include <math.h>

#include "frontend/lower.h"

static fe_scalar whole(i64 i)
{
    return (fe_scalar){DK_INT, i, (f64)i};
}

static fe_tensor *filled(fe_call *c, i64 n, const i64 *sizes, fe_scalar v)
{
    for (i64 d = 0; d < n; d++)
        if (sizes[d] < 0)
            fe_fail(c->l, "a size of %lld", (long long)sizes[d]);
    return fe_full(c->l, fe_out_dtype(c, 0), v, n, sizes);
}

void fe_lower_full(fe_call *c) /* size fill_value dtype */
{
    i64 n, *sizes = fe_is(c, 0, &n);
    fe_ret(c, filled(c, n, sizes, fe_sc(c, 1)));
}

void fe_lower_full_fixed(fe_call *c) /* zeros, ones, empty: code is the value */
{
    i64 n, *sizes = fe_is(c, 0, &n);
    fe_ret(c, filled(c, n, sizes, whole(c->row->code)));
}

/* Its elements are those of a like tensor's dims: variables are shared. */
void fe_lower_full_like(fe_call *c)
{
    fe_tensor *v = fe_full(c->l, fe_out_dtype(c, 0), fe_sc(c, 1), 0, NULL);
    fe_ret(c, fe_fill_like(c->l, fe_t(c, 0), v));
}

void fe_lower_fixed_like(fe_call *c)
{
    fe_tensor *v = fe_full(c->l, fe_out_dtype(c, 0), whole(c->row->code), 0, NULL);
    fe_ret(c, fe_fill_like(c->l, fe_t(c, 0), v));
}

void fe_lower_new_full(fe_call *c) /* self size fill_value */
{
    i64 n, *sizes = fe_is(c, 1, &n);
    fe_ret(c, filled(c, n, sizes, fe_sc(c, 2)));
}

void fe_lower_new_fixed(fe_call *c)
{
    i64 n, *sizes = fe_is(c, 1, &n);
    fe_ret(c, filled(c, n, sizes, whole(c->row->code)));
}

void fe_lower_scalar_tensor(fe_call *c)
{
    fe_ret(c, filled(c, 0, NULL, fe_sc(c, 0)));
}

/* start + i * step, i < n, in dtype t. */
static fe_tensor *ramp(fe_lower *l, u8 t, i64 n, fe_scalar start, fe_scalar step)
{
    u8 in = dtype_is_float((dtype)t) ? fe_wide(t) : DT_i64;
    fe_tensor *i = fe_cast(l, in, fe_iota(l, n));
    if (step.f != 1.0)
        i = fe_op2(l, IR_mul, i, fe_full(l, in, step, 0, NULL));
    if (start.f != 0.0)
        i = fe_op2(l, IR_add, i, fe_full(l, in, start, 0, NULL));
    return fe_cast(l, t, i);
}

static void arange(fe_call *c, fe_scalar start, fe_scalar end, fe_scalar step)
{
    u8 t = fe_out_dtype(c, 0);
    bool is_whole = start.kind != DK_FLOAT && end.kind != DK_FLOAT && step.kind != DK_FLOAT;
    if (step.f == 0.0)
        fe_fail(c->l, "a step of 0");
    f64 count = ceil((end.f - start.f) / step.f);
    if (!(count < 0x1p62) || fabs(start.f) > 0x1p62 || fabs(end.f) > 0x1p62 ||
        fabs(step.f) > 0x1p62)
        fe_fail(c->l, "a range that does not fit 64 bits");
    i64 n = count > 0 ? (i64)count : 0;
    if (is_whole) {
        i64 span = step.i > 0 ? end.i - start.i : start.i - end.i,
            by = step.i > 0 ? step.i : -step.i;
        n = span > 0 ? (span - 1) / by + 1 : 0;
    }
    if (!is_whole && !dtype_is_float((dtype)t))
        fe_decline(c->l, "a range of integers with a step that is none");
    fe_ret(c, ramp(c->l, t, n, start, step));
}

void fe_lower_arange(fe_call *c)
{
    arange(c, whole(0), fe_sc(c, 0), whole(1));
}

void fe_lower_arange_start(fe_call *c) /* code 1: with a step */
{
    arange(c, fe_sc(c, 0), fe_sc(c, 1), c->row->code ? fe_sc(c, 2) : whole(1));
}

void fe_lower_linspace(fe_call *c) /* start end steps */
{
    fe_lower *l = c->l;
    i64 n = fe_i(c, 2);
    u8 t = fe_out_dtype(c, 0), in = fe_wide(t);
    if (!dtype_is_float((dtype)t))
        fe_decline(l, "a linspace of integers");
    /* From the nearer end, as eager does: exact at both. */
    f64 start = fe_f(c, 0), end = fe_f(c, 1), step = n > 1 ? (end - start) / (f64)(n - 1) : 0;
    if (n < 2) {
        fe_ret(c, fe_full(l, t, (fe_scalar){DK_FLOAT, 0, start}, 1, &n));
        return;
    }
    fe_tensor *i = fe_iota(l, n), *left = fe_cast(l, in, i);
    fe_tensor *right = fe_cast(l, in, fe_op2(l, IR_sub, fe_int(l, DT_i64, n - 1), i));
    fe_tensor *is_first = fe_op2n(l, IR_lt, left, (f64)n / 2);
    left = fe_op2(l, IR_add, fe_num(l, in, start), fe_op2n(l, IR_mul, left, step));
    right = fe_op2(l, IR_sub, fe_num(l, in, end), fe_op2n(l, IR_mul, right, step));
    fe_ret(c, fe_cast(l, t, fe_where(l, is_first, left, right)));
}

void fe_lower_eye(fe_call *c) /* n; code 1: n m */
{
    fe_lower *l = c->l;
    i64 n = fe_i(c, 0), m = c->row->code ? fe_i(c, 1) : n;
    fe_tensor *i = fe_unsqueeze(l, fe_iota(l, n), 1), *j = fe_unsqueeze(l, fe_iota(l, m), 0);
    fe_ret(c, fe_cast(l, fe_out_dtype(c, 0), fe_op2(l, IR_eq, i, j)));
}

void fe_lower_one_hot(fe_call *c) /* self num_classes */
{
    fe_lower *l = c->l;
    fe_tensor *x = fe_t(c, 0);
    i64 n = fe_i(c, 1);
    if (n < 0)
        fe_decline(l, "the number of classes depends on data");
    fe_tensor *hit = fe_op2(l, IR_eq, fe_unsqueeze(l, x, x->rank), fe_iota(l, n));
    fe_ret(c, fe_cast(l, DT_i64, hit));
}

/* Rows and columns of the places on one side of a diagonal, row by row; code 0: lower, 1: upper.
 * Whole rows are counted off by division. In the trapezoid, row r of the lower side starts at
 * r (2 first + r - 1) / 2, where `first` is the length of its first row: the root of that. */
void fe_lower_triangle_indices(fe_call *c) /* row col offset */
{
    fe_lower *l = c->l;
    i64 rows = fe_i(c, 0), columns = fe_i(c, 1), offset = fe_i(c, 2);
    bool is_upper = c->row->code;
    enum { MOST = 1 << 20 }; /* keeps everything below exact in f64 */
    if (rows < 0 || columns < 0 || rows > MOST || columns > MOST || offset < -MOST || offset > MOST)
        fe_decline(l, "a triangle of %lld x %lld", (long long)rows, (long long)columns);
    i64 edge = is_upper ? offset - 1 : offset; /* the last diagonal of the lower side */
    i64 first = edge > 0 ? MIN(columns, 1 + edge) : rows + edge > 0;
    i64 last = MAX(0, MIN(columns, rows + edge)), filled = MAX(0, MIN(rows, rows + edge));
    i64 slope = last - first + 1, trapezoid = (first + last) * slope / 2;
    i64 whole = MAX(0, (filled - slope) * columns), skipped = MAX(0, -offset);
    if (!rows || !columns)
        trapezoid = whole = 0;
    if (is_upper) {
        i64 total = rows * columns - trapezoid - whole;
        whole = MAX(0, MIN(rows, -offset) * columns);
        trapezoid = total - whole;
        first = offset > 0 ? MAX(0, columns - offset) : columns;
    }
    f64 b = is_upper ? -0.5 - (f64)first : (f64)first - 0.5, sign = is_upper ? -1 : 1;
    fe_tensor *k = fe_cast(l, DT_f64, fe_iota(l, trapezoid));
    fe_tensor *root = fe_op1(
        l, IR_sqrt, fe_op2n(l, IR_add, fe_op2n(l, IR_mul, k, 2 * sign), b * b));
    fe_tensor *row = fe_op1(l, IR_floor, fe_op2n(l, IR_add, fe_op2n(l, IR_mul, root, sign), -b));
    fe_tensor *before = fe_op2n(l, IR_add, fe_op2n(l, IR_mul, row, sign), 2 * (f64)first - 1);
    before = fe_op2n(l, IR_mul, fe_op2(l, IR_mul, before, row), 0.5);
    fe_tensor *slanted[2] = {fe_cast(l, DT_i64, row),
                             fe_cast(l, DT_i64, fe_op1(l, IR_floor, fe_op2(l, IR_sub, k, before)))};
    fe_tensor *i = fe_iota(l, whole), *width = fe_int(l, DT_i64, MAX(columns, 1)), *both[2];
    fe_tensor *full[2] = {fe_op2(l, IR_floordiv, i, width), fe_op2(l, IR_mod, i, width)};
    i64 add[2] = {is_upper ? whole / MAX(columns, 1) : skipped, is_upper ? MAX(0, offset) : 0};
    i64 below = is_upper ? 0 : slope + skipped;
    u8 t = fe_out_dtype(c, 0);
    for (int side = 0; side < 2; side++) {
        fe_tensor *a = fe_op2(l, IR_add, slanted[side], fe_int(l, DT_i64, add[side]));
        fe_tensor *f = side ? full[1] : fe_op2(l, IR_add, full[0], fe_int(l, DT_i64, below));
        fe_tensor *parts[2] = {is_upper ? f : a, is_upper ? a : f};
        both[side] = fe_unsqueeze(l, fe_cast(l, t, fe_cat(l, parts, 2, 0)), 0);
    }
    fe_ret(c, fe_cat(l, both, 2, 0));
}
