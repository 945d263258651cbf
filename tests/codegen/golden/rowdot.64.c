typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
#if defined(__AVX512F__)
#define PIN(x) __asm__("" : "+v"(x))
#else
#define PIN(x) (void)0
#endif
typedef u16 f16x16 __attribute__((vector_size(32)));
typedef u16 f16x16_at __attribute__((vector_size(32), aligned(2), may_alias));
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef f32 f32x4_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef f32 f32x16 __attribute__((vector_size(64)));
typedef f32 f32x16_at __attribute__((vector_size(64), aligned(4), may_alias));
#define sum4_f32x16(a, b, c, d) ({ \
    f32x16 x_ = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31); \
    f32x16 y_ = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + __builtin_shufflevector(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31); \
    f32x16 s_ = __builtin_shufflevector(x_, y_, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) + __builtin_shufflevector(x_, y_, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31); \
    s_ += __builtin_shufflevector(s_, s_, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13); \
    s_ += __builtin_shufflevector(s_, s_, 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12); \
    __builtin_shufflevector(s_, s_, 0, 4, 8, 12); })
#define sum_f32x16(x) ({ f32x16 s_ = (x); \
    s_ += __builtin_shufflevector(s_, s_, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7); \
    s_ += __builtin_shufflevector(s_, s_, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3); \
    s_ += __builtin_shufflevector(s_, s_, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1); \
    s_ += __builtin_shufflevector(s_, s_, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0); \
    s_[0]; })
typedef u32 u32x16 __attribute__((vector_size(64)));
#if defined(__AVX512F__) && defined(__clang__)
#define widen_f16x16(h) ((f32x16)__builtin_ia32_vcvtph2ps512_mask((short __attribute__((vector_size(32))))(h), (f32x16){0}, (u16)-1, 4))
#elif defined(__AVX512F__)
#define widen_f16x16(h) ((f32x16)__builtin_ia32_vcvtph2ps512_mask((short __attribute__((vector_size(32))))(h), (f32x16){0}, -1, 4))
#else
#define widen_f16x16(h) ({ u32x16 w_ = __builtin_convertvector(h, u32x16); \
    u32x16 m_ = (u32x16)((f32x16)((w_ & 0x7fffu) << 13) * 0x1p112f); \
    m_ |= (u32x16)((w_ & 0x7c00u) == 0x7c00u) & 0x7f800000u; \
    (f32x16)(m_ | ((w_ & 0x8000u) << 16)); })
#endif
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

/* 2:20 */
int k77657d6c97fa963c(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    u16 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        {
            const f32 *a0 = b0;
            u16 *a2 = b1;
            for (i64 l0 = 0; l0 < 40; l0++) {
                f32 v1 = a0[l0];
                u16 v2 = f16_f32(v1);
                a2[l0] = v2;
            }
        }
    }
    return 0;
}

/* 2:12 */
int k9c7f8a57427449f0(void *const *buf, i64 p0, i64 p1)
{
    u16 *restrict b0 = buf[0];
    const u16 *restrict b1 = buf[1];
    const u16 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        f32 t4[8] __attribute__((aligned(64)));
        {
            const u16 *pa = b1;
            const u16 *pb = b2;
            f32x4 s0_0 = {0};
            f32x4 s0_1 = {0};
            f32x16 c0_0 = {0};
            f32x16 c0_1 = {0};
            f32x16 c0_2 = {0};
            f32x16 c0_3 = {0};
            f32x16 c0_4 = {0};
            f32x16 c0_5 = {0};
            f32x16 c0_6 = {0};
            f32x16 c0_7 = {0};
            for (i64 k = 0; k < 32; k += 16) {
                f32x16 x0 = widen_f16x16(*(const f16x16_at *)(pa + 0 + k));
                PIN(x0);
                f32x16 y0 = widen_f16x16(*(const f16x16_at *)(pb + 0 + k));
                c0_0 += x0 * y0;
                f32x16 y1 = widen_f16x16(*(const f16x16_at *)(pb + 40 + k));
                c0_1 += x0 * y1;
                f32x16 y2 = widen_f16x16(*(const f16x16_at *)(pb + 80 + k));
                c0_2 += x0 * y2;
                f32x16 y3 = widen_f16x16(*(const f16x16_at *)(pb + 120 + k));
                c0_3 += x0 * y3;
                f32x16 y4 = widen_f16x16(*(const f16x16_at *)(pb + 160 + k));
                c0_4 += x0 * y4;
                f32x16 y5 = widen_f16x16(*(const f16x16_at *)(pb + 200 + k));
                c0_5 += x0 * y5;
                f32x16 y6 = widen_f16x16(*(const f16x16_at *)(pb + 240 + k));
                c0_6 += x0 * y6;
                f32x16 y7 = widen_f16x16(*(const f16x16_at *)(pb + 280 + k));
                c0_7 += x0 * y7;
            }
            s0_0 += sum4_f32x16(c0_0, c0_1, c0_2, c0_3);
            s0_1 += sum4_f32x16(c0_4, c0_5, c0_6, c0_7);
            for (i64 k = 32; k < 40; k++) {
                s0_0[0] += f32_f16(pa[0 + k]) * f32_f16(pb[0 + k]);
                s0_0[1] += f32_f16(pa[0 + k]) * f32_f16(pb[40 + k]);
                s0_0[2] += f32_f16(pa[0 + k]) * f32_f16(pb[80 + k]);
                s0_0[3] += f32_f16(pa[0 + k]) * f32_f16(pb[120 + k]);
                s0_1[0] += f32_f16(pa[0 + k]) * f32_f16(pb[160 + k]);
                s0_1[1] += f32_f16(pa[0 + k]) * f32_f16(pb[200 + k]);
                s0_1[2] += f32_f16(pa[0 + k]) * f32_f16(pb[240 + k]);
                s0_1[3] += f32_f16(pa[0 + k]) * f32_f16(pb[280 + k]);
            }
            *(f32x4_at *)(t4 + 0) = s0_0;
            *(f32x4_at *)(t4 + 4) = s0_1;
        }
        {
            u16 *a1 = b0;
            for (i64 l0 = 0; l0 < 1; l0++) {
                for (i64 l1 = 0; l1 < 8; l1++) {
                    u16 v5 = f16_f32(t4[l0 * 8 + l1]);
                    a1[l1] = v5;
                }
            }
        }
    }
    return 0;
}

/* 2:12 */
int kfbbbc12536439b04(void *const *buf, i64 p0, i64 p1)
{
    u16 *restrict b0 = buf[0];
    const u16 *restrict b1 = buf[1];
    const u16 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        f32 t4[5] __attribute__((aligned(64)));
        {
            const u16 *pa = b1;
            const u16 *pb = b2 + 320;
            f32 s0_0 = {0};
            f32 s0_1 = {0};
            f32 s0_2 = {0};
            f32 s0_3 = {0};
            f32 s0_4 = {0};
            f32x16 c0_0 = {0};
            f32x16 c0_1 = {0};
            f32x16 c0_2 = {0};
            f32x16 c0_3 = {0};
            f32x16 c0_4 = {0};
            for (i64 k = 0; k < 32; k += 16) {
                f32x16 x0 = widen_f16x16(*(const f16x16_at *)(pa + 0 + k));
                PIN(x0);
                f32x16 y0 = widen_f16x16(*(const f16x16_at *)(pb + 0 + k));
                c0_0 += x0 * y0;
                f32x16 y1 = widen_f16x16(*(const f16x16_at *)(pb + 40 + k));
                c0_1 += x0 * y1;
                f32x16 y2 = widen_f16x16(*(const f16x16_at *)(pb + 80 + k));
                c0_2 += x0 * y2;
                f32x16 y3 = widen_f16x16(*(const f16x16_at *)(pb + 120 + k));
                c0_3 += x0 * y3;
                f32x16 y4 = widen_f16x16(*(const f16x16_at *)(pb + 160 + k));
                c0_4 += x0 * y4;
            }
            s0_0 += sum_f32x16(c0_0);
            s0_1 += sum_f32x16(c0_1);
            s0_2 += sum_f32x16(c0_2);
            s0_3 += sum_f32x16(c0_3);
            s0_4 += sum_f32x16(c0_4);
            for (i64 k = 32; k < 40; k++) {
                s0_0 += f32_f16(pa[0 + k]) * f32_f16(pb[0 + k]);
                s0_1 += f32_f16(pa[0 + k]) * f32_f16(pb[40 + k]);
                s0_2 += f32_f16(pa[0 + k]) * f32_f16(pb[80 + k]);
                s0_3 += f32_f16(pa[0 + k]) * f32_f16(pb[120 + k]);
                s0_4 += f32_f16(pa[0 + k]) * f32_f16(pb[160 + k]);
            }
            *(f32 *)(t4 + 0) = s0_0;
            *(f32 *)(t4 + 1) = s0_1;
            *(f32 *)(t4 + 2) = s0_2;
            *(f32 *)(t4 + 3) = s0_3;
            *(f32 *)(t4 + 4) = s0_4;
        }
        {
            u16 *a1 = b0 + 8;
            for (i64 l0 = 0; l0 < 1; l0++) {
                for (i64 l1 = 0; l1 < 5; l1++) {
                    u16 v5 = f16_f32(t4[l0 * 5 + l1]);
                    a1[l1] = v5;
                }
            }
        }
    }
    return 0;
}
