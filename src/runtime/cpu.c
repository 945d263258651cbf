/* What this CPU can run. A package records the features that its compiler was free to use (the
 * macros it predefines under -march=native); loading compares them with cpuid and with what the
 * operating system saves on a context switch. On other architectures code is compiled for the
 * architecture's baseline and the list is empty. */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
enum { PLAIN, AVX, AVX512, AMX }; /* which registers the system must save */

typedef struct feature {
    const char *name, *macro;
    u32 leaf, subleaf;
    u8 reg, bit, saved;
} feature;

/* clang-format off */
static const feature features[] = {
    {"sse3",       "__SSE3__",       1, 0, ECX, 0, PLAIN},
    {"pclmul",     "__PCLMUL__",     1, 0, ECX, 1, PLAIN},
    {"ssse3",      "__SSSE3__",      1, 0, ECX, 9, PLAIN},
    {"fma",        "__FMA__",        1, 0, ECX, 12, AVX},
    {"cx16",       "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16", 1, 0, ECX, 13, PLAIN},
    {"sse4_1",     "__SSE4_1__",     1, 0, ECX, 19, PLAIN},
    {"sse4_2",     "__SSE4_2__",     1, 0, ECX, 20, PLAIN},
    {"movbe",      "__MOVBE__",      1, 0, ECX, 22, PLAIN},
    {"popcnt",     "__POPCNT__",     1, 0, ECX, 23, PLAIN},
    {"aes",        "__AES__",        1, 0, ECX, 25, PLAIN},
    {"avx",        "__AVX__",        1, 0, ECX, 28, AVX},
    {"f16c",       "__F16C__",       1, 0, ECX, 29, AVX},
    {"rdrnd",      "__RDRND__",      1, 0, ECX, 30, PLAIN},
    {"bmi1",       "__BMI__",        7, 0, EBX, 3, PLAIN},
    {"avx2",       "__AVX2__",       7, 0, EBX, 5, AVX},
    {"bmi2",       "__BMI2__",       7, 0, EBX, 8, PLAIN},
    {"avx512f",    "__AVX512F__",    7, 0, EBX, 16, AVX512},
    {"avx512dq",   "__AVX512DQ__",   7, 0, EBX, 17, AVX512},
    {"adx",        "__ADX__",        7, 0, EBX, 19, PLAIN},
    {"avx512ifma", "__AVX512IFMA__", 7, 0, EBX, 21, AVX512},
    {"avx512cd",   "__AVX512CD__",   7, 0, EBX, 28, AVX512},
    {"sha",        "__SHA__",        7, 0, EBX, 29, PLAIN},
    {"avx512bw",   "__AVX512BW__",   7, 0, EBX, 30, AVX512},
    {"avx512vl",   "__AVX512VL__",   7, 0, EBX, 31, AVX512},
    {"avx512vbmi", "__AVX512VBMI__", 7, 0, ECX, 1, AVX512},
    {"avx512vbmi2", "__AVX512VBMI2__", 7, 0, ECX, 6, AVX512},
    {"gfni",       "__GFNI__",       7, 0, ECX, 8, PLAIN},
    {"vaes",       "__VAES__",       7, 0, ECX, 9, AVX},
    {"vpclmulqdq", "__VPCLMULQDQ__", 7, 0, ECX, 10, AVX},
    {"avx512vnni", "__AVX512VNNI__", 7, 0, ECX, 11, AVX512},
    {"avx512bitalg", "__AVX512BITALG__", 7, 0, ECX, 12, AVX512},
    {"avx512vpopcntdq", "__AVX512VPOPCNTDQ__", 7, 0, ECX, 14, AVX512},
    {"movdiri",    "__MOVDIRI__",    7, 0, ECX, 27, PLAIN},
    {"movdir64b",  "__MOVDIR64B__",  7, 0, ECX, 28, PLAIN},
    {"avx512vp2intersect", "__AVX512VP2INTERSECT__", 7, 0, EDX, 8, AVX512},
    {"serialize",  "__SERIALIZE__",  7, 0, EDX, 14, PLAIN},
    {"amx_bf16",   "__AMX_BF16__",   7, 0, EDX, 22, AMX},
    {"avx512fp16", "__AVX512FP16__", 7, 0, EDX, 23, AVX512},
    {"amx_tile",   "__AMX_TILE__",   7, 0, EDX, 24, AMX},
    {"amx_int8",   "__AMX_INT8__",   7, 0, EDX, 25, AMX},
    {"avxvnni",    "__AVXVNNI__",    7, 1, EAX, 4, AVX},
    {"avx512bf16", "__AVX512BF16__", 7, 1, EAX, 5, AVX512},
    {"lzcnt",      "__LZCNT__",      0x80000001, 0, ECX, 5, PLAIN},
    {"sse4a",      "__SSE4A__",      0x80000001, 0, ECX, 6, PLAIN},
    {"xop",        "__XOP__",        0x80000001, 0, ECX, 11, AVX},
    {"fma4",       "__FMA4__",       0x80000001, 0, ECX, 16, AVX},
    {"tbm",        "__TBM__",        0x80000001, 0, ECX, 21, PLAIN},
};
/* clang-format on */

#define FEATURES COUNT_OF(features)

const char *rt_arch(void)
{
    return "x86_64";
}

static bool system_saves(int registers)
{
    if (registers == PLAIN)
        return true;
    u32 a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE */
        return false;
    u32 low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    u32 want = registers == AVX ? 0x6 : registers == AVX512 ? 0xE6 : 0x60000;
    return (low & want) == want;
}

static bool present(const feature *f)
{
    u32 r[4];
    return __get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[f->reg] >> f->bit & 1) && system_saves(f->saved);
}

#else

typedef struct feature {
    const char *name, *macro;
} feature;
static const feature features[] = {{"", ""}};
#define FEATURES 0

const char *rt_arch(void)
{
#if defined(__aarch64__)
    return "aarch64";
#elif defined(__riscv)
    return "riscv";
#else
    return "unknown";
#endif
}

static bool present(const feature *f)
{
    (void)f;
    return false;
}

#endif

bool rt_ask_for_tiles(void)
{
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

i64 rt_feature_count(void)
{
    return FEATURES;
}

i64 rt_features(const char **at)
{
    i64 n = 0;
    for (i64 i = 0; i < FEATURES; i++)
        if (present(&features[i]))
            at[n++] = features[i].name;
    return n;
}

const char *rt_feature_of_macro(const char *macro)
{
    for (i64 i = 0; i < FEATURES; i++)
        if (strcmp(features[i].macro, macro) == 0)
            return features[i].name;
    return NULL;
}

bool rt_has_feature(const char *name)
{
    for (i64 i = 0; i < FEATURES; i++)
        if (strcmp(features[i].name, name) == 0)
            return present(&features[i]);
    return false;
}

int rt_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return MAX(CPU_COUNT(&set), 1);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
