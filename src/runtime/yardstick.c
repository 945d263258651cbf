/* What this machine can do, measured on the spot: the ends of the roofline.
 *
 * Compute: independent chains of multiply-add on vector accumulators of f32: 24 where there are 32
 * registers, 12 where there are 16; either covers the latency of its cores. Memory: each thread
 * sums its own slice of an array of a given size; 192 MB is more than caches hold. Both run on the
 * threads of the pool for a set time, best of several rounds, since what is wanted is a limit. The
 * FMA loop is compiled once for each vector width, the widest that the CPU has is used. */
#include <time.h>

#include "runtime/runtime.h"

#define FMA_ROUNDS 4096
#define READ_BYTES ((i64)192 << 20)
#define MIN_READ_BYTES ((i64)64 << 10) /* a thread; less would measure the pool */

f64 rt_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (f64)t.tv_sec + 1e-9 * (f64)t.tv_nsec;
}

/* The registers are pinned by an empty asm, so the compiler can neither vectorise further nor fold
 * the chains together. */
#if defined(__x86_64__)
#define VECTOR_REGISTER "+v"
#elif defined(__aarch64__)
#define VECTOR_REGISTER "+w"
#else
#define VECTOR_REGISTER "+m"
#endif

#define FMA_LOOP(name, bytes, chains, attributes)                                                  \
    attributes static f32 name(i64 rounds)                                                         \
    {                                                                                              \
        typedef f32 vec __attribute__((vector_size(bytes)));                                       \
        vec acc[chains], a = {0}, b = {0}, sum = {0};                                              \
        a += 1.0f;                                                                                 \
        b += 1e-9f;                                                                                \
        __asm__ volatile("" : VECTOR_REGISTER(a), VECTOR_REGISTER(b));                             \
        UNROLL for (int i = 0; i < chains; i++) acc[i] = b * (f32)i;                               \
        for (i64 r = 0; r < rounds; r++) {                                                         \
            UNROLL for (int i = 0; i < chains; i++) acc[i] = acc[i] * a + b;                       \
        }                                                                                          \
        UNROLL for (int i = 0; i < chains; i++) sum += acc[i];                                     \
        return sum[0];                                                                             \
    }

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 24")
#endif

#if defined(__x86_64__)
FMA_LOOP(fma_16, 16, 12, )
FMA_LOOP(fma_32, 32, 12, __attribute__((target("avx2,fma"))))
FMA_LOOP(fma_64, 64, 24, __attribute__((target("avx512f,fma"))))
#else
FMA_LOOP(fma_16, 16, 24, )
#endif

typedef struct fma_job {
    f32 (*loop)(i64 rounds);
    volatile f32 sink;
} fma_job;

static void fma_piece(void *user, i64 piece)
{
    fma_job *j = user;
    f32 x = j->loop(FMA_ROUNDS);
    if (piece < 0) /* never; keeps the result alive */
        j->sink = x;
}

typedef struct read_job {
    const u64 *at;
    i64 words; /* of a piece */
    _Atomic u64 sink;
} read_job;

static void read_piece(void *user, i64 piece)
{
    read_job *j = user;
    typedef u64 vec __attribute__((vector_size(64)));
    const vec *at = (const vec *)(const void *)(j->at + piece * j->words);
    i64 n = j->words / 8;
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (i64 i = 0; i + 3 < n; i += 4) {
        s0 += at[i];
        s1 += at[i + 1];
        s2 += at[i + 2];
        s3 += at[i + 3];
    }
    s0 += s1 + s2 + s3;
    j->sink += s0[0] + s0[1] + s0[2] + s0[3] + s0[4] + s0[5] + s0[6] + s0[7];
}

rt_peaks rt_yardstick(eqf_ctx *ctx, pool *p, f64 seconds, i64 read_bytes)
{
    rt_peaks best = {0};
    i64 threads = pool_threads(p);
    fma_job fma = {.loop = fma_16};
    i64 work = 4 * 24; /* multiply-adds in a round */
#if defined(__x86_64__)
    work = 4 * 12;
    if (rt_has_feature("avx512f"))
        fma.loop = fma_64, work = 16 * 24;
    else if (rt_has_feature("avx2") && rt_has_feature("fma"))
        fma.loop = fma_32, work = 8 * 12;
#endif
    i64 pieces = threads * 4;
    f64 flops = 2.0 * FMA_ROUNDS * (f64)(work * pieces);
    f64 end = rt_now() + seconds / 2;
    do {
        f64 start = rt_now();
        pool_run(p, pieces, fma_piece, &fma);
        best.gflops = MAX(best.gflops, 1e-9 * flops / (rt_now() - start));
    } while (rt_now() < end);

    i64 bytes = MIN(MAX(read_bytes, MIN_READ_BYTES * threads), READ_BYTES);
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        u64 *data = rt_big_alloc(a, bytes);
        memset(data, 1, (size_t)bytes);
        read_job read = {.at = data};
        read.words = bytes / 8 / pieces / 32 * 32;
        end = rt_now() + seconds / 2;
        do {
            f64 start = rt_now();
            pool_run(p, pieces, read_piece, &read);
            best.gbps = MAX(best.gbps, 1e-9 * (f64)(read.words * 8 * pieces) / (rt_now() - start));
        } while (rt_now() < end);
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
    return best;
}
