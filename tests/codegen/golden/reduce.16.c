typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
static inline i32 live_lanes(i64 n, i32 lanes) {
    return n < 0 ? 0 : n < lanes ? (i32)n : lanes;
}
static inline u32 bits_f32(f32 x) {
    union { f32 f; u32 u; } c = {.f = x};
    return c.u;
}
static inline f32 f32_bits(u32 x) {
    union { u32 u; f32 f; } c = {.u = x};
    return c.f;
}
static inline f32 f32_f16(u16 h) {
    u32 w = h;
    u32 em = bits_f32(f32_bits((w & 0x7fffu) << 13) * 0x1p112f);
    em |= (w & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return f32_bits(em | ((w & 0x8000u) << 16));
}
static inline u16 f16_f32(f32 x) {
    u32 w = bits_f32(x);
    f32 base = (__builtin_fabsf(x) * 0x1p112f) * 0x1p-110f;
    u32 twice = w + w;
    u32 bias = twice & 0xff000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    u32 b = bits_f32(f32_bits((bias >> 1) + 0x07800000u) + base);
    u32 r = ((b >> 13) & 0x7c00u) + (b & 0xfffu);
    return (u16)((w >> 16 & 0x8000u) | (twice > 0xff000000u ? 0x7e00u : r));
}
static inline f32 max_f32(f32 a, f32 b) {
    return a > b || a != a ? a : b;
}

/* 2:12 */
int k3b629a72054773e9(void *const *buf, i64 p0, i64 p1)
{
    const u16 *restrict b0 = buf[0];
    u16 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        f32 t2[16] __attribute__((aligned(64)));
        f32 t9[16] __attribute__((aligned(64)));
        for (i64 g1 = 0; g1 < 40; g1++) {
            for (i64 l = 0; l < 16; l++)
                t2[l] = (-__builtin_inff());
            for (i64 g2 = 0; g2 < 64; g2 += 16) {
                {
                    const u16 *a0 = b0 + (70 * g1 + g2);
                    for (i64 l0 = 0; l0 < 16; l0++) {
                        u16 v3 = a0[l0];
                        f32 v4 = f32_f16(v3);
                        f32 v5 = max_f32(t2[l0], v4);
                        t2[l0] = v5;
                    }
                }
            }
            {
                const u16 *a0 = b0 + (70 * g1 + 64);
                i32 m0_0 = live_lanes(70 - (64), 16);
                for (i64 l0 = 0; l0 < 16; l0++) {
                    u16 v7 = (i32)l0 < m0_0 ? a0[l0] : 0xfc00;
                    f32 v8 = f32_f16(v7);
                    f32 v9 = max_f32(t2[l0], v8);
                    t9[l0] = v9;
                }
            }
            f32 v10 = t9[0];
            for (i64 j = 0; j < 1; j++) {
                f32 s[4];
                for (i64 l = 0; l < 4; l++)
                    s[l] = t9[j * 16 + l];
                for (i64 k = 4; k < 16; k += 4)
                    for (i64 l = 0; l < 4; l++)
                        s[l] = max_f32(s[l], t9[j * 16 + k + l]);
                for (i64 l = 0; l < 2; l++)
                    s[l] = max_f32(s[l], s[l + 2]);
                for (i64 l = 0; l < 1; l++)
                    s[l] = max_f32(s[l], s[l + 1]);
                v10 = s[0];
            }
            u16 v11 = f16_f32(v10);
            b1[g1] = v11;
        }
    }
    return 0;
}

/* 2:52 */
int k6074dd0637f00605(void *const *buf, i64 p0, i64 p1)
{
    const u16 *restrict b0 = buf[0];
    u16 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        f32 t2[70] __attribute__((aligned(64)));
        for (i64 l = 0; l < 70; l++)
            t2[l] = 0.0f;
        for (i64 g1 = 0; g1 < 40; g1++) {
            {
                const u16 *a0 = b0 + (70 * g1);
                for (i64 l0 = 0; l0 < 70; l0++) {
                    u16 v3 = a0[l0];
                    f32 v4 = f32_f16(v3);
                    f32 v5 = t2[l0] + v4;
                    t2[l0] = v5;
                }
            }
        }
        {
            u16 *a1 = b1;
            for (i64 l0 = 0; l0 < 70; l0++) {
                u16 v7 = f16_f32(t2[l0]);
                a1[l0] = v7;
            }
        }
    }
    return 0;
}
