/* masks: constant masks, recognised by what they hold.
 *
 * A buffer that is constant along every diagonal and takes one value on a band lo <= j - i <= hi of
 * them and another elsewhere (triangles, windows, as bools or as 0 and -inf) is the predicate, and
 * with two numbers a choice between them. Everything that knows about positions then applies to it,
 * as if the program had computed it. */
#include "frontend/lower.h"

enum { MAX_ELEMENTS = 1 << 24 };

typedef struct plane {
    i64 rows, columns;
    const tensor *t;
} plane;

static bool is_same(const plane *p, i64 a, i64 b)
{
    if (!dtype_is_float(p->t->type))
        return tensor_get_i64(p->t, a) == tensor_get_i64(p->t, b);
    return tensor_get_f64(p->t, a) == tensor_get_f64(p->t, b);
}

/* Position of the first element of the diagonal j - i = d. */
static i64 first_of(const plane *p, i64 d)
{
    return d >= 0 ? d : -d * p->columns;
}

static bool is_toeplitz(const plane *p)
{
    for (i64 i = 1; i < p->rows; i++)
        for (i64 j = 1; j < p->columns; j++)
            if (!is_same(p, i * p->columns + j, (i - 1) * p->columns + j - 1))
                return false;
    return true;
}

/* The band of diagonals that differ from the corner's; false when they are no band, or none. */
static bool find_band(const plane *p, i64 *low, i64 *high)
{
    i64 lowest = 1 - p->rows, highest = p->columns - 1, corner = first_of(p, highest);
    i64 inside = -1;
    *low = *high = 0;
    for (i64 d = lowest; d <= highest; d++) {
        i64 at = first_of(p, d);
        if (is_same(p, at, corner))
            continue;
        if (inside < 0)
            inside = at, *low = d;
        else if (d != *high + 1 || !is_same(p, at, inside))
            return false;
        *high = d;
    }
    return inside >= 0;
}

static fe_tensor *element(fe_lower *l, const plane *p, i64 at)
{
    u8 type = (u8)p->t->type;
    return dtype_is_float(p->t->type) ? fe_num(l, type, tensor_get_f64(p->t, at))
                                      : fe_int(l, type, tensor_get_i64(p->t, at));
}

fe_tensor *fe_mask_of(fe_lower *l, const fe_tensor *in, const fe_weight *w)
{
    i64 dims[2] = {0, 0}, n = 0;
    for (i64 d = 0; d < in->rank; d++)
        if (in->dims[d].extent > 1 && n++ < 2)
            dims[n - 1] = d;
    if (n != 2 || !in->term || in->is_foreign || w->is_absent || w->count > MAX_ELEMENTS)
        return NULL;
    i64 shape[2] = {in->dims[dims[0]].extent, in->dims[dims[1]].extent};
    tensor t = {w->fqn, (dtype)in->dtype, 2, shape, NULL};
    t.data = arena_alloc(l->a, w->bytes);
    fe_weight_read(l->source, w, t.data);
    plane p = {shape[0], shape[1], &t};
    i64 low, high;
    if (!is_toeplitz(&p) || !find_band(&p, &low, &high))
        return NULL;
    fe_tensor *at = fe_op2(l, IR_sub, fe_positions(l, in, dims[1]), fe_positions(l, in, dims[0]));
    fe_tensor *hit = NULL;
    if (low > 1 - p.rows)
        hit = fe_op2(l, IR_le, fe_int(l, DT_i64, low), at);
    if (high < p.columns - 1) {
        fe_tensor *below = fe_op2(l, IR_le, at, fe_int(l, DT_i64, high));
        hit = hit ? fe_op2(l, IR_and, hit, below) : below;
    }
    if (!hit)
        return NULL;
    fe_tensor *m = fe_where(l, hit, element(l, &p, first_of(&p, low)),
                            element(l, &p, first_of(&p, p.columns - 1)));
    return fe_tensor_new(l, m->term, in->dtype, in->rank, in->dims);
}
