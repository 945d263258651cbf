/* Compiling: what works, what the compiler says when it does not, what the machine is recorded as.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/runtime.h"
#include "tune/tune.h"

static eqf_ctx *ctx;
static arena *a;
static char folder[64];

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    a = arena_new(ctx, 0);
    strcpy(folder, "/tmp/eqf-build-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    int failed = system(command);
    arena_free(a);
    eqf_ctx_free(ctx);
    return failed;
}

static void put(const char *name, const char *text)
{
    file_write(ctx, arena_printf(a, "%s/%s", folder, name), text, (i64)strlen(text));
}

static bool exists(const char *name)
{
    return access(arena_printf(a, "%s/%s", folder, name), F_OK) == 0;
}

static tn_sources sources(const char *const *files, i64 n)
{
    return (tn_sources){.directory = folder, .files = files, .n = n, .library = "lib.so"};
}

static void count(void *user, i64 compiled)
{
    i64 *seen = user;
    assert_int_equal(compiled, *seen);
    ++*seen;
}

static void test_compile(void **state)
{
    (void)state;
    trap t;
    int (*volatile answer)(void *const *, i64, i64) = NULL;
    TRY (ctx, t) {
        tn_compiler cc = tn_probe(a, "cc", NULL);
        assert_true(cc.version[0] != 0);
        for (i64 i = 0; i < cc.features.n; i++)
            assert_true(rt_has_feature(cc.features.at[i]));
#if defined(__x86_64__)
        assert_true(cc.features.n > 0);
#endif
        put("one.c", "int helper(int x) { return x + 1; }\n");
        put("two.c", "int helper(int);\nint k(void *const *b, long p0, long p1)"
                     "{ (void)b; return helper((int)(p1 - p0)); }\n");
        put("three.c", "double root(double x) { return __builtin_pow(x, 0.3); }\n");
        static const char *const files[] = {"one.c", "two.c", "three.c"};
        static const char *const symbols[] = {"k", "root"};
        tn_sources s = sources(files, 3);
        s.symbols = symbols;
        s.symbol_count = 2;
        i64 seen = 0;
        s.progress = count;
        s.user = &seen;
        tn_compile(ctx, &cc, s, 2, NULL);
        assert_int_equal(seen, 3);
        void *library = dlopen(arena_printf(a, "%s/lib.so", folder), RTLD_NOW);
        assert_non_null(library);
        void *symbol = dlsym(library, "k");
        assert_non_null(symbol);
        memcpy((void *)&answer, &symbol, sizeof symbol);
        assert_int_equal(answer(NULL, 3, 44), 42);
        dlclose(library);
    }
    assert_int_equal(t.status, EQF_OK);
    assert_false(exists("one.o"));
    assert_false(exists("two.o"));
}

static void test_error(void **state)
{
    (void)state;
    trap t;
    TRY (ctx, t) {
        tn_compiler cc = tn_probe(a, "cc", NULL);
        put("good.c", "int f(void) { return 1; }\n");
        put("bad.c", "int g(void) { return undeclared; }\n");
        static const char *const files[] = {"good.c", "bad.c"};
        tn_compile(ctx, &cc, sources(files, 2), 2, NULL);
    }
    assert_int_equal(t.status, EQF_E_MACHINE);
    eqf_diag d = eqf_diag_get(ctx, 0);
    assert_string_equal(d.file, "bad.c");
    assert_non_null(strstr(d.message, "undeclared"));
    assert_null(strchr(d.message, '\n'));
    assert_false(exists("lib.so"));
}

static void test_no_compiler(void **state)
{
    (void)state;
    static const char *const commands[] = {"no-such-compiler-here", "false"};
    for (i64 i = 0; i < COUNT_OF(commands); i++) {
        trap t;
        eqf_ctx_clear(ctx);
        TRY (ctx, t) {
            tn_probe(a, commands[i], NULL);
        }
        assert_int_equal(t.status, EQF_E_MACHINE);
        assert_non_null(strstr(eqf_diag_get(ctx, 0).message, "CC"));
    }
}

/* Compilers that say that all is well, or nothing at all: each is named, in one line. */
static void test_bad_compilers(void **state)
{
    (void)state;
    static const char *const names[] = {"k"};
    static const char *const files[] = {"k.c"};
    static const struct {
        const char *script, *says;
        f64 seconds;
        eqf_status status;
    } cases[] = {
        {"", "writes nothing", 0, EQF_E_MACHINE},
        {"for last; do test \"$before\" = -o && echo rubbish >$last; before=$last; done",
         "cannot be loaded", 0, EQF_E_MACHINE},
        {"for last; do test \"$before\" = -o && : >$last; before=$last; done", "cannot be loaded",
         0, EQF_E_MACHINE},
        {"for last; do test \"$before\" = -o && break; before=$last; done\n"
         "cc -shared -x c /dev/null -o $last",
         "k is missing", 0, EQF_E_MACHINE},
        {"for last; do test \"$before\" = -o && break; before=$last; done\n"
         "echo 'int k; void _exit(int); __attribute__((constructor)) static void f(void) { _exit(9); }' |"
         "cc -fPIC -shared -x c - -o $last",
         "cannot be loaded", 0, EQF_E_MACHINE},
        {"printf 'error: \\001\\377\\n'; exit 3", "exit status 3", 0, EQF_E_MACHINE},
        {"kill -SEGV $$", "signal 11", 0, EQF_E_MACHINE},
        {"echo '/usr/bin/ld: cannot find -lx: No such file or directory'\n"
         "echo 'collect2: error: ld returned 1 exit status'; exit 1",
         "cannot find -lx", 0, EQF_E_MACHINE},
        {"echo 'ld: final link failed: bad value'\n"
         "echo 'clang: error: linker command failed with exit code 1'; exit 1",
         "bad value", 0, EQF_E_MACHINE},
        {"echo 'collect2: error: ld returned 1 exit status'; exit 1", "ld returned 1", 0,
         EQF_E_MACHINE},
        {"echo $TMPDIR; exit 5", "eqf-", 0, EQF_E_MACHINE}, /* what it leaves goes with the folder */
        {"sleep 100", "does not come to an end (stopped after 0.5", 0, EQF_E_MACHINE},
        {"while :; do :; done", "compiling was stopped after", 0.1, EQF_E_LIMIT},
    };
    put("k.c", "int k(void) { return 1; }\n");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        put("bad.sh", arena_printf(a, "#!/bin/sh\n%s\n", cases[i].script));
        const char *path = arena_printf(a, "%s/bad.sh", folder);
        const char *const argv[] = {"sh", path, NULL};
        tn_compiler cc = {.argv = argv, .argc = 2, .patience_s = cases[i].seconds > 0 ? 60 : 0.5};
        tn_sources s = sources(files, 1);
        s.symbols = names;
        s.symbol_count = 1;
        s.seconds = cases[i].seconds;
        trap t;
        eqf_ctx_clear(ctx);
        TRY (ctx, t)
            tn_compile(ctx, &cc, s, 1, NULL);
        eqf_diag d = eqf_diag_get(ctx, 0);
        if (t.status != cases[i].status || strcmp(d.place, "sh") != 0 ||
            !strstr(d.message, cases[i].says) || strchr(d.message, '\n'))
            fail_msg("%s: %s: %s: %s", cases[i].script, eqf_status_name(t.status), d.place,
                     d.message);
        unlink(arena_printf(a, "%s/k.o", folder));
        unlink(arena_printf(a, "%s/lib.so", folder));
    }
}

/* The time is that of all files together. */
static void test_until(void **state)
{
    (void)state;
    static const char *const files[] = {"a.c", "b.c", "c.c", "d.c", "e.c", "f.c"};
    for (i64 i = 0; i < COUNT_OF(files); i++)
        put(files[i], "static int x;\n");
    put("slow.sh", "#!/bin/sh\nsleep 0.2; exec cc \"$@\"\n");
    const char *const argv[] = {"sh", arena_printf(a, "%s/slow.sh", folder), NULL};
    tn_compiler cc = {.argv = argv, .argc = 2, .patience_s = 60};
    tn_sources s = sources(files, COUNT_OF(files));
    s.until = rt_now() + 0.7;
    trap t;
    TRY (ctx, t)
        tn_compile(ctx, &cc, s, 1, NULL);
    assert_int_equal(t.status, EQF_E_LIMIT);
    assert_false(exists("f.o"));
}

static void test_command_with_arguments(void **state)
{
    (void)state;
    trap t;
    TRY (ctx, t) {
        tn_compiler cc = tn_probe(a, "  env  cc ", NULL);
        assert_int_equal(cc.argc, 2);
        assert_string_equal(cc.argv[1], "cc");
    }
    assert_int_equal(t.status, EQF_OK);
}

static void test_interrupt(void **state)
{
    (void)state;
    trap t;
    volatile bool cancel = true;
    TRY (ctx, t) {
        tn_compiler cc = tn_probe(a, "cc", NULL);
        put("good.c", "int f(void) { return 1; }\n");
        static const char *const files[] = {"good.c"};
        tn_compile(ctx, &cc, sources(files, 1), 1, &cancel);
    }
    assert_int_equal(t.status, EQF_E_INTERRUPTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_compile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_compiler, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_compilers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_until, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_command_with_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_interrupt, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
