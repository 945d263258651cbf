typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

/* 2:12 */
int kcc437813907e48cf(void *const *buf, i64 p0, i64 p1)
{
    const f32 *restrict b0 = buf[0];
    const i64 *restrict b1 = buf[1];
    f32 *restrict b2 = buf[2];
    for (i64 p = p0; p < p1; p++) {
        int bad = 0;
        for (i64 g1 = 0; g1 < 4; g1++) {
            {
                const i64 *a0 = b1 + (g1);
                f32 *a2 = b2 + (6 * g1);
                for (i64 l0 = 0; l0 < 6; l0++) {
                    i64 v1 = a0[0];
                    f32 v2 = 0.0f;
                    {
                        i64 q0 = v1;
                        int w0 = q0 < 0 || q0 >= 9;
                        if (w0)
                            bad = 1;
                        else
                            v2 = b0[0 + l0 + q0 * 6];
                    }
                    a2[l0] = v2;
                }
            }
        }
        if (bad) {
            return (int)(p + 1);
        }
    }
    return 0;
}
