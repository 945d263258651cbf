/* Seeded tensors: the values that a package is verified with when the user gives none. They depend
 * on the seed, the name and the position alone, so that `run` makes them again from plan.json: each
 * block of elements has a stream of its own, and threads may draw them in any order. */
#include <math.h>

#include "runtime/runtime.h"

#define BLOCK 16384 /* elements of one stream */
#define PAIRS 64    /* normal values are drawn in so many pairs */

typedef struct drawing {
    tensor *t;
    i64 n;
    u64 seed; /* of this name */
    rt_range range;
} drawing;

static f64 f64_of_bits(u64 bits)
{
    f64 x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static u64 bits_of_f64(f64 x)
{
    u64 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* -2 log(x) of a normal x, to nine digits: the shape of a distribution needs no more. Without a
 * branch or a call, so that compilers make vectors of it, and equal on all machines. */
static inline f64 minus_twice_log(f64 x)
{
    const u64 one = 0x3FF0000000000000, half_root = 0x3FE6A09E667F3BCD;
    u64 bits = bits_of_f64(x), power = (bits + (one - half_root)) >> 52; /* biased */
    f64 m = f64_of_bits(bits - (power << 52) + one);                     /* sqrt(1/2) to sqrt(2) */
    f64 exponent = f64_of_bits(power | 0x4330000000000000) - (0x1p52 + 1023);
    f64 z = (m - 1) / (m + 1), q = z * z;
    f64 log_m = 2 * z * (1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9)))));
    return -2 * (log_m + exponent * 0.69314718055994531);
}

/* Pairs of normal values (Box and Muller), of 64 bits each: 32 for the radius, 30 for an angle of
 * the first quadrant, two for the signs. */
static void draw_normal(rng *r, f64 x[2 * PAIRS])
{
    u64 bits[PAIRS];
    f64 radius[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        bits[i] = rng_u64(r);
    for (int i = 0; i < PAIRS; i++)
        radius[i] = minus_twice_log(
            (f64_of_bits(bits[i] >> 32 | 0x4330000000000000) - 0x1p52 + 0.5) * 0x1p-32);
    for (int i = 0; i < PAIRS; i++)
        radius[i] = sqrt(radius[i]);
    for (int i = 0; i < PAIRS; i++) {
        f64 unit = f64_of_bits((bits[i] & 0x3FFFFFFF) | 0x4330000000000000) - 0x1p52;
        f64 a = unit * (0x1p-30 * 1.5707963267948966), q = a * a;
        f64 sine = a * (1 + q * (-1.0 / 6 +
                                 q * (1.0 / 120 +
                                      q * (-1.0 / 5040 + q * (1.0 / 362880 + q * (-1.0 / 39916800))))));
        f64 cosine =
            1 + q * (-1.0 / 2 +
                     q * (1.0 / 24 +
                          q * (-1.0 / 720 + q * (1.0 / 40320 + q * (-1.0 / 3628800 + q * (1.0 / 479001600))))));
        x[i] = f64_of_bits(bits_of_f64(radius[i] * cosine) ^ (bits[i] >> 30 & 1) << 63);
        x[PAIRS + i] = f64_of_bits(bits_of_f64(radius[i] * sine) ^ (bits[i] >> 31 & 1) << 63);
    }
}

static void fill_normal(tensor *t, rng *r, i64 from, i64 to)
{
    f64 x[2 * PAIRS];
    for (i64 i = from; i < to; i += 2 * PAIRS) {
        i64 n = MIN(2 * PAIRS, to - i);
        draw_normal(r, x);
        if (t->type == DT_f32)
            for (i64 k = 0; k < n; k++)
                ((f32 *)t->data)[i + k] = (f32)x[k];
        else
            for (i64 k = 0; k < n; k++)
                tensor_set_f64(t, i + k, x[k]);
    }
}

static void fill_block(void *user, i64 block)
{
    const drawing *d = user;
    tensor *t = d->t;
    const rt_range *range = &d->range;
    i64 from = block * BLOCK, to = MIN(from + BLOCK, d->n);
    rng r = rng_new(hash_u64((u64)block, d->seed));
    u64 span = (u64)range->high - (u64)range->low + 1; /* 0: all of i64 */
    switch (dtype_kind_of(t->type)) {
    case DK_FLOAT:
        if (!range->is_bounded)
            fill_normal(t, &r, from, to);
        for (i64 i = from; i < to && range->is_bounded; i++)
            tensor_set_f64(t, i, range->from + (range->to - range->from) * rng_f64(&r));
        break;
    case DK_BOOL:
        for (i64 i = from; i < to; i++)
            tensor_set_i64(t, i, (i64)rng_below(&r, 2));
        break;
    default:
        for (i64 i = from; i < to; i++)
            tensor_set_i64(t, i,
                           (i64)((u64)range->low + (span ? rng_below(&r, span) : rng_u64(&r))));
    }
}

void rt_seeded(eqf_ctx *ctx, tensor *t, u64 seed, rt_range range, pool *threads)
{
    const char *name = t->name ? t->name : "";
    drawing d = {.t = t,
                 .n = tensor_count(ctx, t->rank, t->shape),
                 .seed = hash_bytes(name, (i64)strlen(name), seed),
                 .range = range};
    pool_run(threads, (d.n + BLOCK - 1) / BLOCK, fill_block, &d);
}
