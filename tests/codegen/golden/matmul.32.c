typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef f32 f32x8 __attribute__((vector_size(32)));
typedef f32 f32x8_at __attribute__((vector_size(32), aligned(4), may_alias));
static inline i32 live_lanes(i64 n, i32 lanes) {
    return n < 0 ? 0 : n < lanes ? (i32)n : lanes;
}

/* 2:12 */
int kdb85f0fa672035c0(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    f32 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        {
            const f32 *a0 = b0;
            f32 *a1 = b1;
            i32 m0_0 = live_lanes(50 - (0), 56);
            for (i64 l0 = 0; l0 < 56; l0++) {
                for (i64 l1 = 0; l1 < 40; l1++) {
                    f32 v1 = (i32)l0 < m0_0 ? a0[l0 * 40 + l1] : 0.0f;
                    a1[l0 + l1 * 56] = v1;
                }
            }
        }
    }
    return 0;
}

/* 2:12 */
int ke8002443b3b0a582(void *const *buf, i64 p0, i64 p1)
{
    f32 *restrict b0 = buf[0];
    const f32 *restrict b1 = buf[1];
    const f32 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        f32 t4[56] __attribute__((aligned(64)));
        for (i64 g1 = 0; g1 < 3; g1++) {
            {
                const f32 *pa = b1 + (40 * g1);
                const f32 *pb = b2;
                f32x8 c0_0 = {0};
                f32x8 c0_1 = {0};
                f32x8 c0_2 = {0};
                f32x8 c0_3 = {0};
                f32x8 c0_4 = {0};
                f32x8 c0_5 = {0};
                f32x8 c0_6 = {0};
                for (i64 k = 0, ke = 40; k < ke; k++) {
                    f32x8 y0 = *(const f32x8_at *)(pb + k * 56 + 0);
                    f32x8 y1 = *(const f32x8_at *)(pb + k * 56 + 8);
                    f32x8 y2 = *(const f32x8_at *)(pb + k * 56 + 16);
                    f32x8 y3 = *(const f32x8_at *)(pb + k * 56 + 24);
                    f32x8 y4 = *(const f32x8_at *)(pb + k * 56 + 32);
                    f32x8 y5 = *(const f32x8_at *)(pb + k * 56 + 40);
                    f32x8 y6 = *(const f32x8_at *)(pb + k * 56 + 48);
                    f32 x0 = pa[k + 0];
                    c0_0 += x0 * y0;
                    c0_1 += x0 * y1;
                    c0_2 += x0 * y2;
                    c0_3 += x0 * y3;
                    c0_4 += x0 * y4;
                    c0_5 += x0 * y5;
                    c0_6 += x0 * y6;
                }
                *(f32x8_at *)(t4 + 0) = c0_0;
                *(f32x8_at *)(t4 + 8) = c0_1;
                *(f32x8_at *)(t4 + 16) = c0_2;
                *(f32x8_at *)(t4 + 24) = c0_3;
                *(f32x8_at *)(t4 + 32) = c0_4;
                *(f32x8_at *)(t4 + 40) = c0_5;
                *(f32x8_at *)(t4 + 48) = c0_6;
            }
            {
                f32 *a0 = b0 + (50 * g1);
                i64 n1 = 50 - (0);
                n1 = n1 < 56 ? n1 : 56;
                for (i64 l0 = 0; l0 < 1; l0++) {
                    for (i64 l1 = 0; l1 < n1; l1++) {
                        a0[l0 * 50 + l1] = t4[l0 * 56 + l1];
                    }
                }
            }
        }
    }
    return 0;
}
