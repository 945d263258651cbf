/* The system's C compiler, run as a child. It is asked once what it is and what -march=native means
 * to it: the macros that it predefines name the CPU features its code may use, and the package
 * records them. Vector widths other than the target's are legal C and only slower. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "runtime/runtime.h"
#include "tune/tune.h"

#define MEMORY_BYTES ((i64)8 << 30)
#define PATIENCE_S 60
#define ADVICE "install gcc or clang, or set CC"

static const tn_limits probe_limits = {.cpu_s = 20, .wall_s = 20, .memory_bytes = (i64)2 << 30};
static const tn_limits load_limits = {.cpu_s = 20, .wall_s = 60, .memory_bytes = MEMORY_BYTES};

#if defined(__x86_64__)
static const char *const native_flags[] = {"-march=native", "-mprefer-vector-width=512"};
#define NATIVE_FLAGS COUNT_OF(native_flags)
#else
/* No list of features to check at load time: code for the architecture's baseline. */
static const char *const native_flags[] = {""};
#define NATIVE_FLAGS 0
#endif

/* Asked for by name: by itself the -O2 of gcc vectorizes no loop with a rest or a choice between
 * lanes, so none with an exp. -O3 takes up to four times as long to compile a fused kernel. */
static const char *const code_flags[] = {CG_C_FLAGS, "-O2", "-ftree-vectorize", "-pipe", "-w"};

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

/* The compiler's last word, about a linker that has said more. */
static bool is_summary(const char *line)
{
    return strstr(line, "ld returned ") || strstr(line, "linker command failed");
}

/* The first line with `sign` that is no summary; NULL: there is none. */
static const char *line_with(arena *a, const char *text, const char *sign)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        const char *line = first_line(a, text);
        if (line[0] && strstr(line, sign) && !is_summary(line))
            return line;
    }
    return NULL;
}

/* ": " and the first line that says what is missing or wrong, else the first; "" without any. */
static const char *complaint(arena *a, const char *text)
{
    static const char *const signs[] = {"No space left", "undefined reference", "error", "cannot", ""};
    const char *line = NULL;
    for (i64 i = 0; i < COUNT_OF(signs) && !line; i++)
        line = line_with(a, text, signs[i]);
    line = line ? line : first_line(a, text);
    return line[0] ? arena_printf(a, ": %s", line) : "";
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
                  "this C compiler does not work (%s%s); " ADVICE,
                  tn_describe(a, end), complaint(a, end.output));
    return end;
}

tn_compiler tn_probe(arena *a, const char *command, const volatile bool *cancel)
{
    tn_compiler cc = {.vector_bytes = 16, .patience_s = PATIENCE_S};
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
        if (strcmp(feature, "amx_bf16") == 0)
            cc.tiles = rt_ask_for_tiles();
        if (strcmp(feature, "avx512f") == 0)
            cc.vector_bytes = 64;
        if (strcmp(feature, "avx") == 0)
            cc.vector_bytes = MAX(cc.vector_bytes, 32);
    }
    return cc;
}

static const char *object_of(arena *a, tn_sources s, i64 i)
{
    const char *file = s.files[i], *slash = s.objects ? strrchr(file, '/') : NULL;
    file = slash ? slash + 1 : file;
    return arena_printf(a, "%s/%.*s.o", s.objects ? s.objects : s.directory, (int)strlen(file) - 2,
                        file);
}

/* Where it is written: an object that is there under its own name is whole. */
static const char *draft_of(arena *a, tn_sources s, i64 i)
{
    return arena_printf(a, "%s.new", object_of(a, s, i));
}

/* A compiler that works needs a small part of a second for a kilobyte; more of them than processors
 * wait for one another. */
static tn_limits limits_of(const tn_compiler *cc, tn_sources s, i64 bytes, i64 together)
{
    f64 patience = cc->patience_s + 1e-3 * (f64)bytes;
    f64 crowd = MAX((f64)together / rt_processors(), 1);
    tn_limits limits = {.cpu_s = patience,
                        .wall_s = patience * crowd,
                        .until = s.until,
                        .memory_bytes = MEMORY_BYTES,
                        .temporary = s.objects ? s.objects : s.directory};
    if (s.seconds > 0)
        limits.cpu_s = MIN(limits.cpu_s, s.seconds);
    return limits;
}

static void expect_success(arena *a, const tn_compiler *cc, tn_sources s, tn_end end,
                           const char *what, const char *written)
{
    eqf_ctx *ctx = arena_ctx(a);
    bool is_over = end.how == TN_TOO_LONG && s.until > 0 && rt_now() >= s.until;
    bool is_dear = end.how == TN_TOO_LONG && s.seconds > 0 && end.limit_s <= s.seconds;
    if (is_over || is_dear)
        eqf_throw(ctx, EQF_E_LIMIT, what, cc->argv[0], "compiling was %s", tn_describe(a, end));
    if (end.how == TN_TOO_LONG)
        eqf_throw(ctx, EQF_E_MACHINE, what, cc->argv[0],
                  "this C compiler does not come to an end (%s); " ADVICE, tn_describe(a, end));
    if (!tn_succeeded(end))
        eqf_throw(ctx, EQF_E_MACHINE, what, cc->argv[0], "compiling failed (%s)%s",
                  tn_describe(a, end), complaint(a, end.output));
    if (access(written, F_OK) != 0)
        eqf_throw(ctx, EQF_E_MACHINE, what, cc->argv[0],
                  "this C compiler ends well and writes nothing; " ADVICE);
}

static tn_child *start_one(arena *a, const tn_compiler *cc, tn_sources s, i64 i,
                           i64 together)
{
    arguments argv = {0};
    struct stat source = {0};
    const char *path = arena_printf(a, "%s/%s", s.directory, s.files[i]);
    add_all(a, &argv, cc->argv, cc->argc);
    add_all(a, &argv, code_flags, COUNT_OF(code_flags));
    add_all(a, &argv, native_flags, NATIVE_FLAGS);
    const char *const tail[] = {"-c", "-o", draft_of(a, s, i), path, NULL};
    add_all(a, &argv, tail, COUNT_OF(tail));
    (void)stat(path, &source); /* whether it is there is the compiler's to say */
    return tn_start_program(a, argv.at, limits_of(cc, s, source.st_size, together));
}

static void compile_all(arena *a, const tn_compiler *cc, tn_sources s, int jobs,
                        const volatile bool *cancel)
{
    tn_child **running = NEW_N(a, tn_child *, s.n);
    i64 started = 0, finished = 0, together = MIN(MAX(jobs, 1), s.n);
    while (finished < s.n) {
        for (; started < s.n && started < finished + together; started++)
            if (!s.objects || access(object_of(a, s, started), F_OK) != 0)
                running[started] = start_one(a, cc, s, started, together);
        if (s.progress)
            s.progress(s.user, finished);
        /* In order: the error reported is that of the first file, whoever ends first. */
        if (running[finished]) {
            const char *draft = draft_of(a, s, finished), *object = object_of(a, s, finished);
            expect_success(a, cc, s, tn_wait(running[finished], cancel), s.files[finished], draft);
            if (rename(draft, object) != 0)
                eqf_throw(arena_ctx(a), EQF_E_IO, object, NULL, "cannot write: %s",
                          strerror(errno));
        }
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
    tn_end end = tn_wait(tn_start_program(a, argv.at, limits_of(cc, s, s.n << 10, 1)), cancel);
    expect_success(a, cc, s, end, s.library, arena_printf(a, "%s/%s", s.directory, s.library));
    for (i64 i = 0; i < s.n && !s.objects; i++)
        if (unlink(object_of(a, s, i)) != 0)
            eqf_throw(arena_ctx(a), EQF_E_IO, object_of(a, s, i), NULL, "cannot remove: %s",
                      strerror(errno));
}

/* In a child: what a compiler wrote may be anything, and loading it runs it. */
static int load_body(void *user)
{
    const tn_sources *s = user;
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", s->directory, s->library);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    for (i64 i = 0; i < s->symbol_count && library && !why; i++)
        if (!dlsym(library, s->symbols[i]))
            why = s->symbols[i];
    if (!why)
        return 0;
    dprintf(STDERR_FILENO, library ? "%s is missing\n" : "%s\n", why);
    return 1;
}

static void expect_loads(arena *a, const tn_compiler *cc, tn_sources s, const volatile bool *cancel)
{
    tn_end end = tn_wait(tn_start_body(a, load_body, &s, load_limits), cancel);
    if (tn_succeeded(end))
        return;
    bool is_noexec = strstr(end.output, "failed to map segment") != NULL;
    eqf_throw(arena_ctx(a), EQF_E_MACHINE, s.library, cc->argv[0],
              "this C compiler ends well, but what it writes cannot be loaded (%s%s); %s",
              tn_describe(a, end), complaint(a, end.output),
              is_noexec ? "is the file system mounted noexec? choose a folder on another" : ADVICE);
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
        expect_loads(a, cc, sources, cancel);
    }
    arena_free(a);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
