/* Children: how they end, what they say, what stops them. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/runtime.h"
#include "tune/tune.h"

/* Under it address space cannot be limited. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define HAS_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define HAS_ADDRESS_SANITIZER 0
#endif

static eqf_ctx *ctx;
static arena *a;

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    a = arena_new(ctx, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(a);
    eqf_ctx_free(ctx);
    return 0;
}

static tn_end shell(const char *script, tn_limits limits)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    return tn_wait(tn_start_program(a, argv, limits), NULL);
}

static void test_ends(void **state)
{
    (void)state;
    tn_end end = shell("echo out; echo err >&2; exit 3", (tn_limits){0});
    assert_int_equal(end.how, TN_EXITED);
    assert_int_equal(end.code, 3);
    assert_false(tn_succeeded(end));
    assert_string_equal(end.output, "out\nerr\n");
    assert_string_equal(tn_describe(a, end), "exit status 3");
    assert_true(tn_succeeded(shell("exit 0", (tn_limits){0})));
    end = shell("kill -SEGV $$", (tn_limits){0});
    assert_int_equal(end.how, TN_SIGNALLED);
    assert_int_equal(end.code, SIGSEGV);
    const char *const missing[] = {"no-such-program-here", NULL};
    end = tn_wait(tn_start_program(a, missing, (tn_limits){0}), NULL);
    assert_int_equal(end.code, 127);
    assert_non_null(strstr(end.output, "no-such-program-here"));
}

static void test_output_is_bounded(void **state)
{
    (void)state;
    tn_end end = shell("i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done",
                       (tn_limits){.wall_s = 60});
    assert_true(tn_succeeded(end));
    assert_int_equal(end.output_bytes, 64 << 10);
    assert_int_equal(end.output[64 << 10], 0);
}

static void test_limits(void **state)
{
    (void)state;
    tn_end end = shell("sleep 100", (tn_limits){.wall_s = 0.5});
    assert_int_equal(end.how, TN_TOO_LONG);
    end = shell("while :; do :; done", (tn_limits){.cpu_s = 0.5, .wall_s = 60});
    assert_int_equal(end.how, TN_TOO_LONG);
}

/* A job that is suspended is not over when it goes on: its child had no more of the time than it. */
static void test_suspended(void **state)
{
    (void)state;
    const char *const argv[] = {"sh", "-c", "sleep 2.5", NULL};
    tn_child *c = tn_start_program(a, argv, (tn_limits){.wall_s = 1.5});
    usleep(2000000); /* nobody looks */
    assert_true(tn_succeeded(tn_wait(c, NULL)));
    /* but what has to be over by then is */
    c = tn_start_program(a, argv, (tn_limits){.wall_s = 60, .until = rt_now() + 0.1});
    usleep(200000);
    assert_int_equal(tn_wait(c, NULL).how, TN_TOO_LONG);
}

#if !HAS_ADDRESS_SANITIZER
static int eat_memory(void *user)
{
    (void)user;
    for (i64 i = 0; i < 64; i++) {
        char *p = malloc(64 << 20);
        if (!p)
            return 7;
        memset(p, 1, 64 << 20);
    }
    return 0;
}
#endif

static int answer(void *user)
{
    return *(int *)user;
}

static int crash(void *user)
{
    (void)user;
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return 0;
}

static void test_bodies(void **state)
{
    (void)state;
    int value = 42;
    tn_end end = tn_wait(tn_start_body(a, answer, &value, (tn_limits){0}), NULL);
    assert_int_equal(end.code, 42);
    end = tn_wait(tn_start_body(a, crash, NULL, (tn_limits){0}), NULL);
    assert_int_equal(end.how, TN_SIGNALLED);
#if !HAS_ADDRESS_SANITIZER
    end = tn_wait(tn_start_body(a, eat_memory, NULL, (tn_limits){.memory_bytes = 512 << 20}), NULL);
    assert_int_equal(end.code, 7);
#endif
}

/* 1: leaves a number; 2: throws; 3: crashes. */
static void errand(eqf_ctx *own, arena *b, void *user)
{
    int *shared = user;
    assert_ptr_equal(arena_ctx(b), own);
    if (*shared == 3)
        crash(NULL);
    if (*shared == 2)
        eqf_throw(own, EQF_E_DATA, NULL, "here", "%s is wrong", arena_strdup(b, "it"));
    *shared = 7;
}

/* With a context of its own, whatever state this one is in. */
static void test_apart(void **state)
{
    (void)state;
    eqf_report(ctx, EQF_E_DATA, "file", NULL, "an error of before");
    static const char *const messages[] = {"", "", "here: it is wrong"};
    for (int what = 1; what <= 3; what++) {
        int *shared = tn_shared(a, (i64)sizeof *shared);
        assert_int_equal(*shared, 0);
        *shared = what;
        tn_outcome o = tn_run_apart(a, errand, shared, (tn_limits){0}, NULL);
        assert_int_equal(tn_succeeded(o.end), what < 3);
        assert_int_equal(*shared, what == 1 ? 7 : what);
        if (what < 3) {
            assert_int_equal(o.status, what == 1 ? EQF_OK : EQF_E_DATA);
            assert_string_equal(o.message, messages[what]);
        }
    }
    assert_int_equal(eqf_diag_count(ctx), 1);
    eqf_ctx_clear(ctx);
}

static void test_cancel(void **state)
{
    (void)state;
    volatile bool cancel = true;
    const char *const argv[] = {"sleep", "100", NULL};
    trap t;
    TRY (ctx, t) {
        tn_wait(tn_start_program(a, argv, (tn_limits){0}), &cancel);
    }
    assert_int_equal(t.status, EQF_E_INTERRUPTED);
}

/* A child and its helpers end with the arena it was started on. */
static void test_arena(void **state)
{
    (void)state;
    char path[] = "/tmp/eqf-child-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    arena *mine = arena_new(ctx, 0);
    char script[200];
    snprintf(script, sizeof script, "sleep 100 & echo $! >%s; wait", path);
    const char *const argv[] = {"sh", "-c", script, NULL};
    tn_child *c = tn_start_program(mine, argv, (tn_limits){0});
    long helper = 0;
    for (int i = 0; i < 500 && helper == 0; i++) {
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%ld", &helper) != 1)
            helper = 0;
        if (f)
            fclose(f);
        assert_false(tn_ended(c, 20));
    }
    assert_true(helper > 0);
    assert_int_equal(kill((pid_t)helper, 0), 0);
    arena_free(mine);
    /* The helper is gone, or a zombie that nobody has taken yet. */
    char stat_path[64], stat_text[256] = "";
    snprintf(stat_path, sizeof stat_path, "/proc/%ld/stat", helper);
    bool gone = false;
    for (int i = 0; i < 200 && !gone; i++) {
        FILE *f = fopen(stat_path, "r");
        if (!f) {
            gone = true;
            break;
        }
        size_t n = fread(stat_text, 1, sizeof stat_text - 1, f);
        stat_text[n] = 0;
        fclose(f);
        const char *after = strrchr(stat_text, ')');
        gone = after && after[1] && after[2] == 'Z';
        usleep(10000);
    }
    assert_true(gone);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_suspended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bodies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arena, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
