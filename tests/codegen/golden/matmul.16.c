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
#elif defined(__SSE2__)
#define PIN(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define PIN(x) __asm__("" : "+w"(x))
#else
#define PIN(x) (void)0
#endif
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef f32 f32x4_at __attribute__((vector_size(16), aligned(4), may_alias));
static inline i32 live_lanes(i64 n, i32 lanes) {
    return n < 0 ? 0 : n < lanes ? (i32)n : lanes;
}

/* 2:12 */
int kc0be7af2fcd4d967(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    f32 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        for (i64 g1 = 0; g1 < 5; g1++) {
            {
                const f32 *a0 = b0 + (480 * g1);
                f32 *a1 = b1 + (480 * g1);
                if (12 <= 50 - (12 * g1)) {
                    for (i64 n = 0; n < 12; n += 4) {
                        for (i64 k = 0; k < 40; k += 4) {
                            f32x4 r0 = *(const f32x4_at *)(a0 + (n + 0) * 40 + k);
                            f32x4 r1 = *(const f32x4_at *)(a0 + (n + 1) * 40 + k);
                            f32x4 r2 = *(const f32x4_at *)(a0 + (n + 2) * 40 + k);
                            f32x4 r3 = *(const f32x4_at *)(a0 + (n + 3) * 40 + k);
                            f32x4 s0 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
                            f32x4 s1 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
                            f32x4 s2 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
                            f32x4 s3 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
                            *(f32x4_at *)(a1 + n + (k + 0) * 12) = __builtin_shufflevector(s0, s1, 0, 1, 4, 5);
                            *(f32x4_at *)(a1 + n + (k + 1) * 12) = __builtin_shufflevector(s0, s1, 2, 3, 6, 7);
                            *(f32x4_at *)(a1 + n + (k + 2) * 12) = __builtin_shufflevector(s2, s3, 0, 1, 4, 5);
                            *(f32x4_at *)(a1 + n + (k + 3) * 12) = __builtin_shufflevector(s2, s3, 2, 3, 6, 7);
                        }
                    }
                } else {
                    i32 m0_0 = live_lanes(50 - (12 * g1), 12);
                    for (i64 l0 = 0; l0 < 12; l0++) {
                        for (i64 l1 = 0; l1 < 40; l1++) {
                            f32 v1 = (i32)l0 < m0_0 ? a0[l0 * 40 + l1] : 0.0f;
                            a1[l0 + l1 * 12] = v1;
                        }
                    }
                }
            }
        }
    }
    return 0;
}

/* 2:12 */
int kf69bf067abf303b2(void *const *buf, i64 p0, i64 p1)
{
    f32 *restrict b0 = buf[0];
    const f32 *restrict b1 = buf[1];
    const f32 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        f32 t4[36] __attribute__((aligned(64)));
        for (i64 g1 = 0; g1 < 60; g1 += 12) {
            {
                const f32 *pa = b1;
                const f32 *pb = b2 + (40 * g1);
                f32x4 c0_0 = {0};
                f32x4 c0_1 = {0};
                f32x4 c0_2 = {0};
                f32x4 c1_0 = {0};
                f32x4 c1_1 = {0};
                f32x4 c1_2 = {0};
                f32x4 c2_0 = {0};
                f32x4 c2_1 = {0};
                f32x4 c2_2 = {0};
                for (i64 k = 0, ke = 40; k < ke; k++) {
                    f32x4 y0 = *(const f32x4_at *)(pb + k * 12 + 0);
                    PIN(y0);
                    f32x4 y1 = *(const f32x4_at *)(pb + k * 12 + 4);
                    PIN(y1);
                    f32x4 y2 = *(const f32x4_at *)(pb + k * 12 + 8);
                    PIN(y2);
                    f32 x0 = pa[k + 0];
                    c0_0 += x0 * y0;
                    c0_1 += x0 * y1;
                    c0_2 += x0 * y2;
                    f32 x1 = pa[k + 40];
                    c1_0 += x1 * y0;
                    c1_1 += x1 * y1;
                    c1_2 += x1 * y2;
                    f32 x2 = pa[k + 80];
                    c2_0 += x2 * y0;
                    c2_1 += x2 * y1;
                    c2_2 += x2 * y2;
                }
                *(f32x4_at *)(t4 + 0) = c0_0;
                *(f32x4_at *)(t4 + 4) = c0_1;
                *(f32x4_at *)(t4 + 8) = c0_2;
                *(f32x4_at *)(t4 + 12) = c1_0;
                *(f32x4_at *)(t4 + 16) = c1_1;
                *(f32x4_at *)(t4 + 20) = c1_2;
                *(f32x4_at *)(t4 + 24) = c2_0;
                *(f32x4_at *)(t4 + 28) = c2_1;
                *(f32x4_at *)(t4 + 32) = c2_2;
            }
            {
                f32 *a0 = b0 + (g1);
                i64 n1 = 50 - (g1);
                n1 = n1 < 12 ? n1 : 12;
                for (i64 l0 = 0; l0 < 3; l0++) {
                    for (i64 l1 = 0; l1 < n1; l1++) {
                        a0[l0 * 50 + l1] = t4[l0 * 12 + l1];
                    }
                }
            }
        }
    }
    return 0;
}
