/* Packages that are replaced while they are run: what a run sees is one package, the old or the
 * new, and never a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "cli/tool.h"

enum { RUNS = 120 };

static said s;

static void expect(int code, const char *command)
{
    if (tool(&s, command) != code)
        fail_msg("%s: exit %d, wanted %d\n%s%s", command, s.code, code, s.out, s.err);
}

/* Packages of one program with other weights, and of another program with the same inputs: weights,
 * kernels and references of different ones do not go together. */
static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-replace-XXXXXX");
    if (!mkdtemp(tool_folder))
        return -1;
    static const char form[] = "(program p (dims (M 16) (K 64) (N 96))\n"
                               "  (input X f32 (M K)) (parameter W f32 (K N))\n"
                               "  (output Y (%s (matmul X W)) (M N)))\n";
    char text[400];
    snprintf(text, sizeof text, form, "sin");
    tool_put("a.eqf", text);
    snprintf(text, sizeof text, form, "cos");
    tool_put("b.eqf", text);
    return tool(&s, "$E optimize --budget 0.01 a.eqf -o a0 && $E optimize --budget 0.01 a.eqf -o a1 --seed 1 && "
                    "$E optimize --budget 0.01 b.eqf -o b0 && for p in a0 a1 b0; do "
                    "$E run $p --check -o $p.safetensors || exit 9; done && "
                    "cp -r a0 now && cp -r a1 other");
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", tool_folder);
    return system(command);
}

static int swap(const char *a, const char *b)
{
    char from[128], to[128];
    snprintf(from, sizeof from, "%s/%s", tool_folder, a);
    snprintf(to, sizeof to, "%s/%s", tool_folder, b);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 2 /* RENAME_EXCHANGE */);
}

/* Two packages change places as fast as the system allows. */
static void exchange(void)
{
    for (;;) {
        swap("now", "other");
        usleep(50);
    }
}

/* What a writer does: one that is complete takes the place, the old one is removed. */
static void replace(void)
{
    char command[400];
    static const char *const kinds[] = {"a0", "a1", "b0"};
    for (int i = 0;; i++) {
        snprintf(command, sizeof command, "cp -al %s/%s %s/new", tool_folder, kinds[i % 3],
                 tool_folder);
        if (system(command) != 0 || swap("new", "now") != 0)
            _exit(1);
        snprintf(command, sizeof command, "rm -r %s/new", tool_folder);
        if (system(command) != 0)
            _exit(1);
    }
}

static void run_against(void (*disturb)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        disturb();
    for (int i = 0; i < RUNS; i++) {
        int code = tool(&s, "$E run now --check -o got.safetensors && { cmp -s got.safetensors "
                            "a0.safetensors || cmp -s got.safetensors a1.safetensors || "
                            "cmp -s got.safetensors b0.safetensors; }");
        if (code != 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            fail_msg("run %d: exit %d: %s%s", i, code, s.out, s.err);
        }
    }
    int status;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* it was there to the end */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_exchange(void **state)
{
    (void)state;
    if (swap("now", "other") != 0) {
        print_message("skipped: this file system exchanges no folders\n");
        skip();
    }
    run_against(exchange);
}

static void test_replace(void **state)
{
    (void)state;
    if (swap("now", "other") != 0) {
        print_message("skipped: this file system exchanges no folders\n");
        skip();
    }
    run_against(replace);
    expect(0, "rm -rf new && $E run now --check");
}

/* The package that one stands in: every step of the search replaces that folder. */
static void test_within(void **state)
{
    (void)state;
    tool_put("row.eqf", "(program row (dims (M 64) (K 512)) (input x f32 (M K))\n"
                        "  (let e (exp (sub x (reduce max x :axis K))))\n"
                        "  (output y (div e (reduce + e :axis K)) (M K)))\n");
    expect(0, "$E optimize row.eqf -o within --budget 0.01s && cd within && "
              "$E optimize ../row.eqf -o . --budget 4s");
    assert_string_equal(s.err, "");
    assert_null(strstr(s.out, "ended: machine"));
    expect(0, "$E run within --check && $E explain within --why-not 'one kernel'");
    assert_null(strstr(s.out, "without a search"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_within),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
