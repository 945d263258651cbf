typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
static inline u32 bits_f32(f32 x) {
    union { f32 f; u32 u; } c = {.f = x};
    return c.u;
}
static inline f32 f32_bits(u32 x) {
    union { u32 u; f32 f; } c = {.u = x};
    return c.f;
}
static inline f32 f32_bf16(u16 h) {
    return f32_bits((u32)h << 16);
}
static inline f32 pow2_f32(i32 n) {
    return f32_bits((u32)(n + 127) << 23);
}
static inline f32 scale_f32(f32 x, i32 n) {
    return x * pow2_f32(n >> 1) * pow2_f32(n - (n >> 1));
}
static inline i32 nearest_f32(f32 x) {
    return (i32)bits_f32(x + 0x1.8p23f) - 0x4b400000;
}
static inline f32 exp_poly_f32(f32 r) {
    f32 p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}
static inline f32 exp_f32(f32 x) {
    f32 y = x < -104.0f ? 0.0f : x;
    y = y > 89.0f ? 89.0f : y;
    i32 n = nearest_f32(y == y ? y * 1.44269504f : 0.0f);
    f32 k = (f32)n;
    f32 r = (y - k * 0.693359375f) - k * -2.12194440e-4f;
    f32 e = scale_f32(exp_poly_f32(r) + 1, n);
    return x < -104.0f ? 0.0f : e;
}

/* 2:12 */
int k085f14575f6442d9(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    const u16 *restrict b1 = buf[1];
    f32 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        for (i64 g1 = 0; g1 < 40; g1++) {
            {
                const f32 *a0 = b0 + (50 * g1);
                const u16 *a1 = b1;
                f32 *a4 = b2 + (50 * g1);
                for (i64 l0 = 0; l0 < 50; l0++) {
                    f32 v1 = a0[l0];
                    u16 v2 = a1[l0];
                    f32 v3 = f32_bf16(v2);
                    f32 v4 = v1 + v3;
                    a4[l0] = v4;
                }
            }
        }
    }
    return 0;
}

/* 2:50 */
int k4cf8e2004b1b019f(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    f32 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        for (i64 g1 = 0; g1 < 64; g1 += 16) {
            for (i64 g2 = 0; g2 < 48; g2 += 16) {
                {
                    const f32 *a0 = b0 + (g1 + 50 * g2);
                    f32 *a2 = b1 + (40 * g1 + g2);
                    i64 n0 = 50 - (g1);
                    n0 = n0 < 16 ? n0 : 16;
                    i64 n1 = 40 - (g2);
                    n1 = n1 < 16 ? n1 : 16;
                    for (i64 l0 = 0; l0 < n0; l0++) {
                        for (i64 l1 = 0; l1 < n1; l1++) {
                            f32 v1 = a0[l0 + l1 * 50];
                            f32 v2 = exp_f32(v1);
                            a2[l0 * 40 + l1] = v2;
                        }
                    }
                }
            }
        }
    }
    return 0;
}
