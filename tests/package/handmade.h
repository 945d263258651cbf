/* A package made by hand, for tests of everything that handles packages and makes none:
 *
 *     y[i] = x[i] * w[i] + s[i]        s'[i] = s[i] + x[i]        z = t[k]  (gather)
 *
 * with inputs x f32[N] and k i64[], a weight w, a state s, a parameter t that the caller may
 * replace, and outputs s (becomes the state), y, z and an empty one. The kernels are C text. */
#ifndef EQF_TEST_HANDMADE_H
#define EQF_TEST_HANDMADE_H

#include <stdio.h>
#include <stdlib.h>

#include "package/package.h"
#include "tune/tune.h"

enum { HM_N = 1000, HM_T = 8 };
static const i64 hm_n[] = {HM_N}, hm_t[] = {HM_T}, hm_empty[] = {0, 3};

static const char hm_source[] =
    "int k_axpy(void *const *b, long p0, long p1)\n"
    "{\n"
    "    const float *x = b[0], *w = b[1], *s = b[2];\n"
    "    float *y = b[3], *t = b[4];\n"
    "    for (long i = p0; i < p1; i++) { t[i] = x[i] * w[i]; y[i] = t[i] + s[i]; }\n"
    "    return 0;\n"
    "}\n"
    "int k_next(void *const *b, long p0, long p1)\n"
    "{\n"
    "    const float *x = b[0], *s = b[1];\n"
    "    float *y = b[2];\n"
    "    for (long i = p0; i < p1; i++) y[i] = s[i] + x[i];\n"
    "    return 0;\n"
    "}\n"
    "int k_gather(void *const *b, long p0, long p1)\n"
    "{\n"
    "    const float *t = b[0];\n"
    "    const long long *k = b[1];\n"
    "    float *z = b[2];\n"
    "    (void)p1;\n"
    "    if (*k < 0 || *k >= 8) return 1 + (int)p0;\n"
    "    *z = t[*k];\n"
    "    return 0;\n"
    "}\n";

static inline f32 hm_weight(i64 i)
{
    return 0.5f + (f32)(i % 7);
}

static inline f32 hm_state(i64 i)
{
    return (f32)(i % 3);
}

static inline f32 hm_parameter(i64 i)
{
    return 100.0f + (f32)i;
}

static inline rt_package *hm_package(arena *a, const char *note)
{
    rt_package *p = NEW(a, rt_package);
    *p = (rt_package){.name = "hand made", .version = "0.1.0", .backend = "c", .arch = rt_arch()};
    p->compiler = note;
    p->source = "hand.eqf";
    p->rebuild = "equiforge optimize hand.eqf -o PACKAGE";
    memset(p->source_digest, 'a', 32);
    memset(p->parameters_digest, 'b', 32);
    p->seed = 1;
    p->kernel_count = 3;
    rt_plan *plan = &p->plan;
    enum { X, K, W, S, T, S_NEW, Y, Z, SCRATCH, BUFFERS };
    rt_buffer buffers[BUFFERS] = {
        [X] = {.name = "x", .type = DT_f32, .count = HM_N, .bytes = 4 * HM_N, .role = RT_INPUT},
        [K] = {.name = "k", .type = DT_i64, .count = 1, .bytes = 8, .role = RT_INPUT, .port = 1},
        [W] = {.name = "w", .type = DT_f32, .count = HM_N, .bytes = 4 * HM_N, .role = RT_WEIGHT},
        [S] = {.name = "s",
               .type = DT_f32,
               .count = HM_N,
               .bytes = 4 * HM_N,
               .role = RT_STATE,
               .offset = 4096},
        [T] = {.name = "t",
               .type = DT_f32,
               .count = HM_T,
               .bytes = 4 * HM_T,
               .role = RT_WEIGHT,
               .offset = 8192},
        [S_NEW] =
            {.name = "s'", .type = DT_f32, .count = HM_N, .bytes = 4 * HM_N, .role = RT_OUTPUT},
        [Y] = {.name = "y",
               .type = DT_f32,
               .count = HM_N,
               .bytes = 4 * HM_N,
               .role = RT_OUTPUT,
               .port = 1},
        [Z] = {.name = "z", .type = DT_f32, .count = 1, .bytes = 4, .role = RT_OUTPUT, .port = 2},
        [SCRATCH] =
            {.name = "xw", .type = DT_f32, .count = HM_N, .bytes = 4 * HM_N, .role = RT_SCRATCH},
    };
    for (i64 i = 0; i < BUFFERS; i++)
        vec_push(a, &plan->buffers, buffers[i]);
    plan->arena_bytes = 4096;
    plan->weights_bytes = 8192 + 64;
    vec_push(a, &plan->inputs, (rt_port){"x", DT_f32, 1, hm_n, X, 0});
    vec_push(a, &plan->inputs, (rt_port){"k", DT_i64, 0, NULL, K, 0});
    vec_push(a, &plan->outputs, (rt_port){"s", DT_f32, 1, hm_n, S_NEW, 3});
    vec_push(a, &plan->outputs, (rt_port){"y", DT_f32, 1, hm_n, Y, 1});
    vec_push(a, &plan->outputs, (rt_port){"z", DT_f32, 0, NULL, Z, 0});
    vec_push(a, &plan->outputs, (rt_port){"nothing", DT_f32, 2, hm_empty, -1, 0});
    vec_push(a, &plan->states, (rt_port){"s", DT_f32, 1, hm_n, S, 0});
    vec_push(a, &plan->parameters, (rt_port){"t", DT_f32, 1, hm_t, T, 0});
    static const rt_arg axpy[] = {{X, 0}, {W, 0}, {S, 0}, {Y, 0}, {SCRATCH, 0}};
    static const rt_arg next[] = {{X, 0}, {S, 0}, {S_NEW, 0}};
    static const rt_arg gather[] = {{T, 0}, {K, 0}, {Z, 0}};
    /* flops large enough to be shared among threads */
    vec_push(a, &plan->launches, (rt_launch){"k_axpy", "mul", HM_N, axpy, 5, 0, 1 << 20, 1});
    vec_push(a, &plan->launches, (rt_launch){"k_next", "add", HM_N, next, 3, 0, 1 << 20, 1});
    vec_push(a, &plan->launches, (rt_launch){"k_gather", "the gather", 1, gather, 3, 0, 0, 1});
    vec_push(a, &p->ranges, (rt_range){.high = 7});
    vec_push(a, &p->ranges, (rt_range){.high = HM_T - 1});
    for (i64 i = 0; i < plan->outputs.n; i++)
        vec_push(a, &p->tolerances, 1e-5);
    return p;
}

/* Writes the package into the writer, up to the commit. `note` makes two packages differ. */
static inline rt_package *hm_write(arena *a, pk_writer *w, const char *note)
{
    rt_package *p = hm_package(a, note);
    tn_compiler cc = tn_probe(a, "cc", NULL);
    for (i64 i = 0; i < cc.features.n; i++)
        vec_push(a, &p->features, cc.features.at[i]);
    pk_add(w, "kernels/hand.c", hm_source, (i64)sizeof hm_source - 1);
    static const char *const files[] = {"kernels/hand.c"};
    tn_sources sources = {
        .directory = pk_directory(w), .files = files, .n = 1, .library = "kernels/new.so"};
    tn_compile(arena_ctx(a), &cc, sources, 1, NULL);
    p->library = pk_adopt_as_digest(w, "kernels/new.so", "kernels/", ".so");
    u8 *image = arena_alloc(a, p->plan.weights_bytes);
    for (i64 i = 0; i < HM_N; i++) {
        ((f32 *)(void *)image)[i] = hm_weight(i);
        ((f32 *)(void *)(image + 4096))[i] = hm_state(i);
    }
    for (i64 i = 0; i < HM_T; i++)
        ((f32 *)(void *)(image + 8192))[i] = hm_parameter(i);
    pk_add(w, RT_WEIGHTS_FILE, image, p->plan.weights_bytes);
    pk_add(w, "program.eqf", "(program hand)\n", 15);
    str header = str_new(a);
    pk_print_header(&header, p);
    pk_add(w, "equiforge_model.h", str_text(&header), header.n);
    pk_seal(w, p);
    return p;
}

/* Status of the whole of it. */
static inline eqf_status hm_make(eqf_ctx *ctx, const char *path, const char *note)
{
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        pk_writer *w = pk_begin(a, path);
        hm_write(a, w, note);
        pk_commit(w);
    }
    arena_free(a);
    return t.status;
}

/* Runs a shell command made from the format; its exit status. */
static inline int hm_shell(const char *format, ...)
{
    char command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    int status = system(command);
    return status < 0 ? status : status >> 8;
}

#endif
