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
typedef f32 f32x16 __attribute__((vector_size(64)));
typedef f32 f32x16_at __attribute__((vector_size(64), aligned(4), may_alias));
static inline i32 live_lanes(i64 n, i32 lanes) {
    return n < 0 ? 0 : n < lanes ? (i32)n : lanes;
}

/* 2:12 */
int kbca50ed25744268c(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    f32 *restrict b1 = buf[1];
    for (i64 p = p0; p < p1; p++) {
        {
            const f32 *a0 = b0;
            f32 *a1 = b1;
            i32 m0_0 = live_lanes(50 - (0), 64);
            for (i64 l0 = 0; l0 < 64; l0++) {
                for (i64 l1 = 0; l1 < 40; l1++) {
                    f32 v1 = (i32)l0 < m0_0 ? a0[l0 * 40 + l1] : 0.0f;
                    a1[l0 + l1 * 64] = v1;
                }
            }
        }
    }
    return 0;
}

/* 2:12 */
int k522e055770ce96f6(void *const *buf, i64 p0, i64 p1)
{
    f32 *restrict b0 = buf[0];
    const f32 *restrict b1 = buf[1];
    const f32 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        f32 t4[192] __attribute__((aligned(64)));
        {
            const f32 *pa = b1;
            const f32 *pb = b2;
            f32x16 c0_0 = {0};
            f32x16 c0_1 = {0};
            f32x16 c0_2 = {0};
            f32x16 c0_3 = {0};
            f32x16 c1_0 = {0};
            f32x16 c1_1 = {0};
            f32x16 c1_2 = {0};
            f32x16 c1_3 = {0};
            f32x16 c2_0 = {0};
            f32x16 c2_1 = {0};
            f32x16 c2_2 = {0};
            f32x16 c2_3 = {0};
            for (i64 k = 0, ke = 40; k < ke; k++) {
                f32x16 y0 = *(const f32x16_at *)(pb + k * 64 + 0);
                PIN(y0);
                f32x16 y1 = *(const f32x16_at *)(pb + k * 64 + 16);
                PIN(y1);
                f32x16 y2 = *(const f32x16_at *)(pb + k * 64 + 32);
                PIN(y2);
                f32x16 y3 = *(const f32x16_at *)(pb + k * 64 + 48);
                PIN(y3);
                f32 x0 = pa[k + 0];
                c0_0 += x0 * y0;
                c0_1 += x0 * y1;
                c0_2 += x0 * y2;
                c0_3 += x0 * y3;
                f32 x1 = pa[k + 40];
                c1_0 += x1 * y0;
                c1_1 += x1 * y1;
                c1_2 += x1 * y2;
                c1_3 += x1 * y3;
                f32 x2 = pa[k + 80];
                c2_0 += x2 * y0;
                c2_1 += x2 * y1;
                c2_2 += x2 * y2;
                c2_3 += x2 * y3;
            }
            *(f32x16_at *)(t4 + 0) = c0_0;
            *(f32x16_at *)(t4 + 16) = c0_1;
            *(f32x16_at *)(t4 + 32) = c0_2;
            *(f32x16_at *)(t4 + 48) = c0_3;
            *(f32x16_at *)(t4 + 64) = c1_0;
            *(f32x16_at *)(t4 + 80) = c1_1;
            *(f32x16_at *)(t4 + 96) = c1_2;
            *(f32x16_at *)(t4 + 112) = c1_3;
            *(f32x16_at *)(t4 + 128) = c2_0;
            *(f32x16_at *)(t4 + 144) = c2_1;
            *(f32x16_at *)(t4 + 160) = c2_2;
            *(f32x16_at *)(t4 + 176) = c2_3;
        }
        {
            f32 *a0 = b0;
            i64 n1 = 50 - (0);
            n1 = n1 < 64 ? n1 : 64;
            for (i64 l0 = 0; l0 < 3; l0++) {
                for (i64 l1 = 0; l1 < n1; l1++) {
                    a0[l0 * 50 + l1] = t4[l0 * 64 + l1];
                }
            }
        }
    }
    return 0;
}
