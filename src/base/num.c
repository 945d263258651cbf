/* Hashes, checked arithmetic, random numbers, half types. */
#include <math.h>
#include <stdio.h>
#define XXH_STATIC_LINKING_ONLY /* the state's size, so that it lies in an arena */
#include <xxhash.h>

#include "base/base.h"

u64 hash_bytes(const void *p, i64 n, u64 seed)
{
    return XXH3_64bits_withSeed(n > 0 ? p : "", (size_t)n, seed);
}

u64 hash_u64(u64 x, u64 seed)
{
    x += seed * 0x9E3779B97F4A7C15u + 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void print_digest(XXH128_hash_t h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void digest_hex(const void *p, i64 n, char out[33])
{
    print_digest(XXH3_128bits(n > 0 ? p : "", (size_t)n), out);
}

struct hasher {
    XXH3_state_t state;
};

hasher *digest_new(arena *a)
{
    enum { ALIGNMENT = _Alignof(hasher) };
    u8 *at = arena_alloc(a, (i64)sizeof(hasher) + ALIGNMENT);
    hasher *h = (hasher *)(void *)(at + (ALIGNMENT - (uintptr_t)at % ALIGNMENT) % ALIGNMENT);
    XXH3_128bits_reset(&h->state);
    return h;
}

void digest_add(hasher *h, const void *p, i64 n)
{
    if (n > 0)
        XXH3_128bits_update(&h->state, p, (size_t)n);
}

void digest_end(const hasher *h, char out[33])
{
    print_digest(XXH3_128bits_digest(&h->state), out);
}

bool add_i64(i64 a, i64 b, i64 *out)
{
    i64 r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool mul_i64(i64 a, i64 b, i64 *out)
{
    i64 r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

rng rng_new(u64 seed)
{
    rng r;
    for (u64 i = 0; i < 4; i++)
        r.s[i] = hash_u64(i, seed);
    return r;
}

static u64 rotl(u64 x, int k)
{
    return (x << k) | (x >> (64 - k));
}

u64 rng_u64(rng *r)
{
    u64 *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

u64 rng_below(rng *r, u64 n)
{
    u64 limit = UINT64_MAX - UINT64_MAX % n, x; /* reject the incomplete last block */
    do
        x = rng_u64(r);
    while (x >= limit);
    return x % n;
}

f64 rng_f64(rng *r)
{
    return (f64)(rng_u64(r) >> 11) * 0x1p-53;
}

/* Rounds |x| of an f64 to a format with `mant` stored mantissa bits, smallest normal exponent
 * `emin` and largest finite exponent `emax`; ties to even. Returns the bits without sign. */
static u32 round_bits(f64 x, int mant, int emin, int emax, int exp_bits)
{
    u32 inf = ((1u << exp_bits) - 1) << mant;
    if (isnan(x))
        return inf | 1u << (mant - 1);
    x = fabs(x);
    if (isinf(x))
        return inf;
    if (x == 0)
        return 0;
    int e;
    frexp(x, &e); /* x = m * 2^e, m in [1/2, 1) */
    int exponent = MAX(e - 1, emin);
    f64 scaled = ldexp(x, mant - exponent); /* exact: below 2^(mant+1) */
    f64 q = nearbyint(scaled);              /* default mode: ties to even */
    u32 r = (u32)q;
    if (r >> (mant + 1)) { /* rounded up to the next power of two */
        r >>= 1;
        exponent++;
    }
    if (exponent > emax)
        return inf;
    if (!(r >> mant))
        return r; /* subnormal */
    return ((u32)(exponent - emin + 1) << mant) | (r & ((1u << mant) - 1));
}

u16 f16_of_f64(f64 x)
{
    return (u16)(round_bits(x, 10, -14, 15, 5) | (signbit(x) ? 0x8000u : 0));
}

u16 bf16_of_f64(f64 x)
{
    return (u16)(round_bits(x, 7, -126, 127, 8) | (signbit(x) ? 0x8000u : 0));
}

u16 f16_of_f32(f32 x)
{
    return f16_of_f64((f64)x);
}

u16 bf16_of_f32(f32 x)
{
    u32 b;
    memcpy(&b, &x, 4);
    if ((b & 0x7FFFFFFFu) > 0x7F800000u)
        return (u16)(b >> 16 | 0x40);
    return (u16)((b + 0x7FFFu + (b >> 16 & 1)) >> 16);
}

f32 f32_of_bf16(u16 h)
{
    u32 b = (u32)h << 16;
    f32 x;
    memcpy(&x, &b, 4);
    return x;
}

f32 f32_of_f16(u16 h)
{
    u32 sign = (u32)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mant = h & 0x3FFu, b;
    if (exponent == 31)
        b = sign | 0x7F800000u | mant << 13;
    else if (exponent)
        b = sign | (exponent + 112) << 23 | mant << 13;
    else {
        f32 x = (f32)mant * 0x1p-24f;
        return sign ? -x : x;
    }
    f32 x;
    memcpy(&x, &b, 4);
    return x;
}
