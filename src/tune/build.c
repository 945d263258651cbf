/* The system's C compiler, run as a child. It is asked once what it is and what -march=native means
 * to it: the macros that it predefines name the CPU features its code may use, and the package
 * records them. Vector widths other than the target's are legal C and only slower. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "runtime/runtime.h"
#include "tune/tune.h"

static const tn_limits compile_limits = {.cpu_s = 300, .wall_s = 600, .memory_bytes = (i64)8 << 30};
static const tn_limits probe_limits = {.cpu_s = 20, .wall_s = 60, .memory_bytes = (i64)2 << 30};

#if defined(__x86_64__)
static const char *const native_flags[] = {"-march=native", "-mprefer-vector-width=512"};
#define NATIVE_FLAGS COUNT_OF(native_flags)
#else
/* No list of features to check at load time: code for the architecture's baseline. */
static const char *const native_flags[] = {""};
#define NATIVE_FLAGS 0
#endif

static const char *const code_flags[] = {CG_C_FLAGS, "-O2", "-pipe", "-w"};

typedef VEC(const char *) arguments;

static void add_all(arena *a, arguments *to, const char *const *at, i64 n)
{
    for (i64 i = 0; i < n; i++)
        vec_push(a, to, at[i]);
}

static const char *first_line(arena *a, const char *text)
{
    return arena_strndup(a, text, (i64)strcspn(text, "\n"));
}

/* The first line that says what is missing or wrong, else the first. */
static const char *complaint(arena *a, const char *text)
{
    static const char *const signs[] = {"No space left", "undefined reference", "error"};
    const char *at = NULL;
    for (i64 i = 0; i < COUNT_OF(signs) && !at; i++)
        at = strstr(text, signs[i]);
    while (at && at > text && at[-1] != '\n')
        at--;
    return first_line(a, at ? at : text);
}

static void split(arena *a, const char *command, tn_compiler *cc)
{
    arguments argv = {0};
    for (const char *at = command + strspn(command, " "); *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        vec_push(a, &argv, arena_strndup(a, at, (i64)n));
        at += n;
    }
    if (argv.n == 0)
        vec_push(a, &argv, "cc");
    cc->argv = argv.at;
    cc->argc = argv.n;
}

static tn_end ask(arena *a, const tn_compiler *cc, const char *const *more, i64 n,
                  const volatile bool *cancel)
{
    arguments argv = {0};
    add_all(a, &argv, cc->argv, cc->argc);
    add_all(a, &argv, more, n);
    vec_push(a, &argv, NULL);
    tn_end end = tn_wait(tn_start_program(a, argv.at, probe_limits), cancel);
    if (!tn_succeeded(end))
        eqf_throw(arena_ctx(a), EQF_E_MACHINE, NULL, cc->argv[0],
                  "this C compiler does not work (%s: %s); install gcc or clang, or set CC",
                  tn_describe(a, end), complaint(a, end.output));
    return end;
}

tn_compiler tn_probe(arena *a, const char *command, const volatile bool *cancel)
{
    tn_compiler cc = {.vector_bytes = 16};
    split(a, command ? command : "cc", &cc);
    static const char *const version[] = {"--version"};
    cc.version = first_line(a, ask(a, &cc, version, 1, cancel).output);
    arguments macros = {0};
    add_all(a, &macros, native_flags, NATIVE_FLAGS);
    static const char *const dump[] = {"-dM", "-E", "-x", "c", "/dev/null"};
    add_all(a, &macros, dump, COUNT_OF(dump));
    const char *text = ask(a, &cc, macros.at, macros.n, cancel).output;
    for (const char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        char macro[128];
        if (sscanf(at, "#define %127s", macro) != 1)
            continue;
        const char *feature = rt_feature_of_macro(macro);
        if (!feature)
            continue;
        vec_push(a, &cc.features, feature);
        if (strcmp(feature, "avx512f") == 0)
            cc.vector_bytes = 64;
        if (strcmp(feature, "avx") == 0)
            cc.vector_bytes = MAX(cc.vector_bytes, 32);
    }
    return cc;
}

static const char *object_of(arena *a, tn_sources s, i64 i)
{
    return arena_printf(a, "%s/%.*s.o", s.directory, (int)strlen(s.files[i]) - 2, s.files[i]);
}

static void expect_success(arena *a, const tn_compiler *cc, tn_end end, const char *what,
                           const char *written)
{
    if (!tn_succeeded(end))
        eqf_throw(arena_ctx(a), EQF_E_MACHINE, what, cc->argv[0], "compiling failed (%s): %s",
                  tn_describe(a, end), complaint(a, end.output));
    if (access(written, F_OK) != 0)
        eqf_throw(arena_ctx(a), EQF_E_MACHINE, what, cc->argv[0],
                  "this C compiler ends well and writes nothing; install gcc or clang, or set CC");
}

static tn_child *start_one(arena *a, const tn_compiler *cc, tn_sources s, i64 i)
{
    arguments argv = {0};
    add_all(a, &argv, cc->argv, cc->argc);
    add_all(a, &argv, code_flags, COUNT_OF(code_flags));
    add_all(a, &argv, native_flags, NATIVE_FLAGS);
    const char *const tail[] = {"-c", "-o", object_of(a, s, i),
                                arena_printf(a, "%s/%s", s.directory, s.files[i]), NULL};
    add_all(a, &argv, tail, COUNT_OF(tail));
    return tn_start_program(a, argv.at, compile_limits);
}

static void compile_all(arena *a, const tn_compiler *cc, tn_sources s, int jobs,
                        const volatile bool *cancel)
{
    tn_child **running = NEW_N(a, tn_child *, s.n);
    i64 started = 0, finished = 0;
    while (finished < s.n) {
        for (; started < s.n && started < finished + MAX(jobs, 1); started++)
            running[started] = start_one(a, cc, s, started);
        /* In order: the error reported is that of the first file, whoever ends first. */
        expect_success(a, cc, tn_wait(running[finished], cancel), s.files[finished],
                       object_of(a, s, finished));
        finished++;
    }
}

static void link_all(arena *a, const tn_compiler *cc, tn_sources s, const volatile bool *cancel)
{
    arguments argv = {0};
    add_all(a, &argv, cc->argv, cc->argc);
    vec_push(a, &argv, "-shared");
    vec_push(a, &argv, "-Wl,-z,defs"); /* what is missing is missing now, not when it is loaded */
    vec_push(a, &argv, "-o");
    vec_push(a, &argv, arena_printf(a, "%s/%s", s.directory, s.library));
    for (i64 i = 0; i < s.n; i++)
        vec_push(a, &argv, object_of(a, s, i));
    vec_push(a, &argv, "-lm");
    vec_push(a, &argv, NULL);
    tn_end end = tn_wait(tn_start_program(a, argv.at, compile_limits), cancel);
    expect_success(a, cc, end, s.library, arena_printf(a, "%s/%s", s.directory, s.library));
    for (i64 i = 0; i < s.n; i++)
        if (unlink(object_of(a, s, i)) != 0)
            eqf_throw(arena_ctx(a), EQF_E_IO, object_of(a, s, i), NULL, "cannot remove: %s",
                      strerror(errno));
}

void tn_compile(eqf_ctx *ctx, const tn_compiler *cc, tn_sources sources, int jobs,
                const volatile bool *cancel)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        eqf_throw(ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        compile_all(a, cc, sources, jobs, cancel);
        link_all(a, cc, sources, cancel);
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
