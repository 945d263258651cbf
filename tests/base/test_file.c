/* Files that are replaced: whole or not at all, nothing left behind, errors that name the path that
 * was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char folder[64];
static eqf_ctx *ctx;

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    strcpy(folder, "/tmp/eqf-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    eqf_ctx_free(ctx);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char *in_folder(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static eqf_status write_text(const char *path, const char *text)
{
    trap t;
    eqf_ctx_clear(ctx);
    TRY (ctx, t) {
        file_write(ctx, path, text, (i64)strlen(text));
    }
    return t.status;
}

static void expect_text(const char *path, const char *wanted)
{
    arena *a = arena_new(ctx, 0);
    i64 n = 0;
    char *text = file_read(a, path, 1 << 20, &n);
    assert_string_equal(text, wanted);
    arena_free(a);
}

static int entries(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(in_folder(name), &st) == 0;
}

static void make(const char *name)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    close(fd);
}

/* What a killed writer leaves goes with the next write to its folder, whatever is written; what
 * belongs to a living one, or only looks alike, stays. */
static void test_leftovers(void **state)
{
    (void)state;
    static const char *const dead[] = {".out.equiforge-99999-0", ".other.x.equiforge-1-17",
                                       "..equiforge-5-5", ".a.equiforge-b.equiforge-7-0"};
    static const char *const alike[] = {"out.equiforge-99999-0",  ".out.equiforge-99999",
                                        ".out.equiforge-",        ".out.equiforge-9-",
                                        ".out.equiforge-9-0.txt", ".equiforge-notes-1"};
    for (i64 i = 0; i < COUNT_OF(dead); i++)
        make(dead[i]);
    for (i64 i = 0; i < COUNT_OF(alike); i++)
        make(alike[i]);
    make(".living.equiforge-3-0");
    int living = open(in_folder(".living.equiforge-3-0"), O_RDONLY);
    assert_int_equal(flock(living, LOCK_EX), 0);
    assert_int_equal(mkdir(in_folder(".folder.equiforge-3-0"), 0777), 0);
    assert_int_equal(mkfifo(in_folder(".pipe.equiforge-3-0"), 0666), 0);
    assert_int_equal(symlink("out.equiforge-99999-0", in_folder(".link.equiforge-3-0")), 0);

    assert_int_equal(write_text(in_folder("new"), "content"), EQF_OK);
    expect_text(in_folder("new"), "content");
    for (i64 i = 0; i < COUNT_OF(dead); i++)
        assert_false(exists(dead[i]));
    for (i64 i = 0; i < COUNT_OF(alike); i++)
        assert_true(exists(alike[i]));
    assert_true(exists(".living.equiforge-3-0"));
    assert_true(exists(".folder.equiforge-3-0"));
    assert_true(exists(".pipe.equiforge-3-0"));
    assert_true(exists(".link.equiforge-3-0"));
    close(living);
    assert_int_equal(write_text(in_folder("new"), "again"), EQF_OK);
    assert_false(exists(".living.equiforge-3-0"));
}

/* Killed at any moment: the old text or the new one, and one more write leaves nothing else. */
static void test_kill(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    char *text = malloc(BYTES + 1);
    assert_non_null(text);
    memset(text, 'x', BYTES);
    text[BYTES] = 0;
    assert_int_equal(write_text(in_folder("out"), text), EQF_OK);
    int left = 0;
    for (int n = 0; n < 30; n++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            for (;;)
                write_text(in_folder("out"), text);
        usleep((useconds_t)(500 + 700 * n));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        left += entries() > 1;
        struct stat st;
        assert_int_equal(stat(in_folder("out"), &st), 0);
        assert_int_equal(st.st_size, BYTES);
    }
    print_message("killed while writing: %d of 30 left something\n", left);
    assert_true(left > 0);
    assert_int_equal(write_text(in_folder("out"), "end"), EQF_OK);
    assert_int_equal(entries(), 1);
    free(text);
}

/* Writers of one name at once: each complete, none takes another's file for a leftover. */
static void test_together(void **state)
{
    (void)state;
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] > 0)
            continue;
        for (int n = 0; n < 200; n++)
            if (write_text(in_folder("out"), "one text") != EQF_OK)
                _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        assert_int_equal(status, 0);
    }
    expect_text(in_folder("out"), "one text");
    assert_int_equal(entries(), 1);
}

static void expect_error(const char *path)
{
    assert_int_equal(write_text(path, "text"), EQF_E_IO);
    assert_int_equal(eqf_diag_count(ctx), 1);
    assert_string_equal(eqf_diag_get(ctx, 0).file, path);
    assert_null(strstr(eqf_diag_get(ctx, 0).message, "equiforge-"));
}

static void test_names(void **state)
{
    (void)state;
    char longest[300];
    memset(longest, 'n', 255);
    longest[255] = 0;
    assert_int_equal(write_text(in_folder(longest), "long"), EQF_OK); /* as long as names may be */
    expect_text(in_folder(longest), "long");
    longest[255] = 'n';
    longest[256] = 0;
    expect_error(in_folder(longest));
    expect_error(in_folder("nowhere/out"));
    expect_error(in_folder("none/"));
    expect_error(folder);
    expect_error("");
    make("file");
    expect_error(in_folder("file/out"));
    assert_int_equal(entries(), 2);
}

static void test_no_space(void **state)
{
    (void)state;
    assert_int_equal(write_text(in_folder("out"), "old"), EQF_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){2, 2});
        expect_error(in_folder("out"));
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    expect_text(in_folder("out"), "old");
    assert_int_equal(entries(), 1);
}

static eqf_status read_or_map(const char *path, bool map)
{
    arena *a = arena_new(ctx, 0);
    i64 n;
    trap t;
    TRY (ctx, t) {
        if (map)
            file_map(a, path, &n);
        else
            file_read(a, path, 100, &n);
    }
    arena_free(a);
    return t.status;
}

/* What cannot be read is refused at once, with its name. */
static void test_reading(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_folder("pipe"), 0666), 0);
    static const char *const names[] = {"pipe", "none", ".", ""};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        for (int map = 0; map < 2; map++) {
            const char *path = names[i][0] ? in_folder(names[i]) : "/dev/zero";
            assert_int_equal(read_or_map(path, map), EQF_E_IO);
            assert_string_equal(eqf_diag_get(ctx, 0).file, path);
            eqf_ctx_clear(ctx);
        }
}

/* A digest of pieces is the digest of the whole. */
static void test_digest(void **state)
{
    (void)state;
    arena *a = arena_new(ctx, 0);
    u8 *bytes = arena_alloc(a, 5000);
    for (i64 i = 0; i < 5000; i++)
        bytes[i] = (u8)(i * 7 + i / 256);
    static const i64 sizes[] = {0, 1, 63, 64, 240, 241, 1024, 5000}, steps[] = {1, 7, 64, 999, 5000};
    for (i64 s = 0; s < COUNT_OF(sizes); s++)
        for (i64 t = 0; t < COUNT_OF(steps); t++) {
            char whole[33], pieces[33];
            digest_hex(bytes, sizes[s], whole);
            hasher *h = digest_new(a);
            for (i64 at = 0; at < sizes[s]; at += steps[t])
                digest_add(h, bytes + at, MIN(steps[t], sizes[s] - at));
            digest_end(h, pieces);
            assert_string_equal(whole, pieces);
        }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_leftovers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_space, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reading, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_digest, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
