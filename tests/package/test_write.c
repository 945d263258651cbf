/* Writing: a package appears whole or not at all, replaces nothing but packages, and what is
 * damaged afterwards is refused before any of it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "package/handmade.h"

static char folder[64], package[96];
static eqf_ctx *ctx;

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    strcpy(folder, "/tmp/eqf-write-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(package, sizeof package, "%s/pkg", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eqf_ctx_free(ctx);
    return hm_shell("rm -rf %s", folder);
}

/* The note of the package at `package`; "" with the status when it cannot be loaded. */
static eqf_status load(char *note, size_t size)
{
    trap t;
    note[0] = 0;
    TRY (ctx, t) {
        rt_model *m = rt_load(ctx, package);
        snprintf(note, size, "%s", rt_model_package(m)->compiler);
        rt_unload(m);
    }
    return t.status;
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void expect_note(const char *wanted)
{
    char note[64];
    assert_int_equal(load(note, sizeof note), EQF_OK);
    assert_string_equal(note, wanted);
}

static void test_replace(void **state)
{
    (void)state;
    assert_int_equal(hm_make(ctx, package, "first"), EQF_OK);
    expect_note("first");
    assert_int_equal(entries(folder), 1);
    assert_int_equal(hm_make(ctx, package, "second"), EQF_OK);
    expect_note("second");
    assert_int_equal(entries(folder), 1);
    char slashes[128], link[128];
    snprintf(slashes, sizeof slashes, "%s//", package);
    assert_int_equal(hm_make(ctx, slashes, "third"), EQF_OK);
    expect_note("third");
    /* Through a link the package that it names is replaced, not the link. */
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("pkg", link), 0);
    assert_int_equal(hm_make(ctx, link, "fourth"), EQF_OK);
    expect_note("fourth");
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(entries(folder), 2);
}

static void test_stranger(void **state)
{
    (void)state;
    static const char *const made[] = {
        "touch %s",
        "mkdir -p %s/kernels",
        "mkdir %s && touch %s/plan.json",
        "mkdir %s && echo '{\"format\":\"other\"}' >%s/plan.json",
        "ln -s /tmp %s",
        "mkfifo %s",
    };
    for (i64 i = 0; i < COUNT_OF(made); i++) {
        assert_int_equal(hm_shell(made[i], package, package), 0);
        eqf_ctx_clear(ctx);
        assert_int_equal(hm_make(ctx, package, "x"), EQF_E_ARGUMENT);
        assert_int_equal(access(package, F_OK), 0);
        assert_int_equal(entries(folder), 1);
        assert_int_equal(hm_shell("rm -rf %s", package), 0);
    }
    assert_int_equal(hm_shell("mkdir %s", package), 0);
    assert_int_equal(hm_make(ctx, package, "x"), EQF_OK);
    assert_int_equal(entries(folder), 1);
    assert_int_equal(hm_shell("rm -rf %s", package), 0);
    /* A package in which the user keeps something: replacing would delete it. */
    assert_int_equal(hm_make(ctx, package, "x"), EQF_OK);
    assert_int_equal(hm_shell("echo precious >%s/notes.txt", package), 0);
    eqf_ctx_clear(ctx);
    assert_int_equal(hm_make(ctx, package, "y"), EQF_E_ARGUMENT);
    assert_string_equal(eqf_diag_get(ctx, 0).place, "notes.txt");
    expect_note("x");
    /* No name at all. */
    assert_int_equal(hm_make(ctx, "", "x"), EQF_E_ARGUMENT);
    assert_int_equal(hm_make(ctx, "/", "x"), EQF_E_ARGUMENT);
    assert_int_equal(hm_make(ctx, "..", "x"), EQF_E_ARGUMENT);
    char nowhere[128];
    snprintf(nowhere, sizeof nowhere, "%s/none/pkg", folder);
    assert_int_equal(hm_make(ctx, nowhere, "x"), EQF_E_IO);
}

/* A file that cannot grow past `limit` bytes stands for a full disk. */
static void test_no_space(void **state)
{
    (void)state;
    assert_int_equal(hm_make(ctx, package, "old"), EQF_OK);
    int seen_io = 0;
    for (long limit = 0; limit < 12000; limit += 500) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)limit, (rlim_t)limit});
            eqf_ctx *mine = eqf_ctx_new(NULL);
            eqf_status s = hm_make(mine, package, "new");
            _exit(s == EQF_OK ? 0 : s == EQF_E_IO ? 10 : s == EQF_E_MACHINE ? 11 : 12);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11);
        seen_io += WEXITSTATUS(status) == 10;
        assert_int_equal(entries(folder), 1);
        expect_note("old");
    }
    assert_true(seen_io > 0);
}

static void test_kill(void **state)
{
    (void)state;
    f64 start = rt_now();
    assert_int_equal(hm_make(ctx, package, "package 0"), EQF_OK);
    f64 whole_us = 1e6 * (rt_now() - start);
    int kept = 0, changed = 0;
    char note[64], last[64] = "package 0";
    for (int n = 1; n <= 25; n++) {
        char name[64];
        snprintf(name, sizeof name, "package %d", n);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            eqf_ctx *mine = eqf_ctx_new(NULL);
            hm_make(mine, package, name);
            _exit(0);
        }
        /* From the first mkdir to after the exchange, most of them late. */
        usleep((useconds_t)(whole_us * (0.3 + 1.2 * n / 25)));
        if (n < 25)
            kill(pid, SIGKILL); /* the last one may finish */
        waitpid(pid, NULL, 0);
        assert_int_equal(load(note, sizeof note), EQF_OK);
        if (strcmp(note, last) == 0)
            kept++;
        else
            changed++;
        assert_true(strcmp(note, last) == 0 || strcmp(note, name) == 0);
        strcpy(last, note);
    }
    assert_true(kept > 0 && changed > 0);
    print_message("killed while writing: %d old, %d new\n", kept, changed);
    assert_int_equal(hm_make(ctx, package, "end"), EQF_OK);
    expect_note("end");
    assert_int_equal(entries(folder), 1); /* and the dead writers' folders are gone */
}

/* What killed writers of other packages left beside this one goes, too; what nobody here wrote stays. A
 * package that had stepped aside for a writer that then died is back in its place. */
static void test_leftovers(void **state)
{
    (void)state;
    static const char *const names[] = {"pkg", "other", "b.equiforge-1-2", "with space"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            eqf_ctx *mine = eqf_ctx_new(NULL);
            arena *a = arena_new(mine, 0);
            char path[128];
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            pk_writer *w = pk_begin(a, path);
            hm_write(a, w, "lost");
            kill(getpid(), SIGKILL);
        }
        waitpid(pid, NULL, 0);
        assert_int_equal(entries(folder), 1); /* the next removes it */
    }
    static const char *const strangers[] = {".a.equiforge-", ".a.equiforge-1", ".a.equiforge-1-2x",
                                            "a.equiforge-1-2", ".equiforge-1-2", ".a.equiforge-x-2"};
    for (i64 i = 0; i < COUNT_OF(strangers); i++)
        assert_int_equal(hm_shell("mkdir %s/%s", folder, strangers[i]), 0);
    assert_int_equal(hm_make(ctx, package, "first"), EQF_OK);
    assert_int_equal(entries(folder), COUNT_OF(strangers) + 1);
    assert_int_equal(hm_shell("cd %s && rmdir .a.* .equiforge-1-2 a.*", folder), 0);
    /* aside, with and without something in its place; what is no package is none to bring back */
    char other[128];
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(hm_shell("mv %s %s/.pkg.equiforge-7-0-old", package, folder), 0);
    assert_int_equal(hm_make(ctx, other, "second"), EQF_OK);
    expect_note("first");
    assert_int_equal(entries(folder), 2);
    assert_int_equal(hm_shell("cp -r %s %s/.pkg.equiforge-7-0-old", other, folder), 0);
    assert_int_equal(hm_shell("mkdir %s/.third.equiforge-7-0-old", folder), 0);
    assert_int_equal(hm_make(ctx, other, "third"), EQF_OK);
    expect_note("first");
    assert_int_equal(entries(folder), 2);
}

static void test_living_writers_stay(void **state)
{
    (void)state;
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        pk_writer *w = pk_begin(a, package);
        hm_write(a, w, "slow");
        /* A second one for the same name finishes meanwhile. */
        eqf_ctx *other = eqf_ctx_new(NULL);
        assert_int_equal(hm_make(other, package, "quick"), EQF_OK);
        char neighbour[128]; /* and one for another name */
        snprintf(neighbour, sizeof neighbour, "%s/other", folder);
        assert_int_equal(hm_make(other, neighbour, "quick"), EQF_OK);
        eqf_ctx_free(other);
        pk_commit(w);
    }
    assert_int_equal(t.status, EQF_OK);
    arena_free(a);
    expect_note("slow");
    assert_int_equal(entries(folder), 2);
}

/* ---- damage -------------------------------------------------------------------------------------
 */

typedef void (*each_file)(const char *path, const char *name);

static void for_each_file(each_file body)
{
    static const char *const folders[] = {"", "/kernels"};
    for (i64 i = 0; i < COUNT_OF(folders); i++) {
        char at[200], names[32][64];
        int n = 0;
        snprintf(at, sizeof at, "%s%s", package, folders[i]);
        DIR *d = opendir(at);
        assert_non_null(d);
        struct dirent *e;
        while ((e = readdir(d)))
            if (e->d_type == DT_REG && n < 32)
                snprintf(names[n++], 64, "%.63s", e->d_name);
        closedir(d);
        assert_true(n > 0);
        for (int k = 0; k < n; k++) {
            char path[300];
            assert_true(snprintf(path, sizeof path, "%.200s/%.63s", at, names[k]) < 300);
            body(path, names[k]);
            expect_note("whole"); /* restored */
        }
    }
}

/* The package is refused, and the message names the file. */
static void expect_refusal(const char *name)
{
    char note[64];
    eqf_ctx_clear(ctx);
    eqf_status s = load(note, sizeof note);
    assert_int_not_equal(s, EQF_OK);
    assert_int_not_equal(s, EQF_E_INTERNAL);
    eqf_diag d = eqf_diag_get(ctx, 0);
    if (!strstr(d.file, name) && !strstr(d.message, name))
        fail_msg("%s: %s: %s does not name %s", d.file, d.place, d.message, name);
    eqf_ctx_clear(ctx);
}

static void damage(const char *path, const char *name)
{
    i64 n;
    arena *a = arena_new(ctx, 0);
    char *data = file_read(a, path, INT64_MAX, &n);
    i64 cuts[] = {0, 1, n / 2, n - 1};
    for (i64 i = 0; i < COUNT_OF(cuts); i++) {
        if (cuts[i] >= n)
            continue;
        file_write(ctx, path, data, cuts[i]);
        expect_refusal(name);
    }
    for (i64 i = 0; i < 24; i++) {
        i64 at = i * (n - 1) / 23;
        data[at] = (char)(data[at] ^ (1 << (i % 8)));
        file_write(ctx, path, data, n);
        expect_refusal(name);
        data[at] = (char)(data[at] ^ (1 << (i % 8)));
    }
    char *grown = arena_alloc(a, n + 1);
    memcpy(grown, data, (size_t)n);
    file_write(ctx, path, grown, n + 1);
    expect_refusal(name);
    assert_int_equal(unlink(path), 0);
    expect_refusal(name);
    /* A link, even to the right bytes, leads out of the package. */
    char outside[128];
    snprintf(outside, sizeof outside, "%s/outside", folder);
    file_write(ctx, outside, data, n);
    assert_int_equal(symlink(outside, path), 0);
    expect_refusal(name);
    assert_int_equal(unlink(path), 0);
    file_write(ctx, path, data, n);
    arena_free(a);
}

static void test_damage(void **state)
{
    (void)state;
    assert_int_equal(hm_make(ctx, package, "whole"), EQF_OK);
    for_each_file(damage);
    char note[64];
    eqf_ctx_clear(ctx);
    assert_int_equal(
        hm_shell("mv %s/kernels %s/k && ln -s %s/k %s/kernels", package, folder, folder, package),
        0);
    assert_int_equal(load(note, sizeof note), EQF_E_DATA);
}

/* A name that is not the digest could be taken for a library that is loaded already. */
static void test_library_name(void **state)
{
    (void)state;
    char note[64];
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        pk_writer *w = pk_begin(a, package);
        rt_package *p = hm_write(a, w, "x");
        p->library = "kernels/hand.so";
        pk_add(w, p->library, "no digest of this", 17);
        pk_seal(w, p);
        pk_commit(w);
    }
    arena_free(a);
    assert_int_equal(t.status, EQF_OK);
    assert_int_equal(load(note, sizeof note), EQF_E_DATA);
    assert_non_null(strstr(eqf_diag_get(ctx, 0).file, "hand.so"));
}

/* The reference is read when it is wanted, and is then the one that was loaded. */
static void test_held_reference(void **state)
{
    (void)state;
    static const char first[] = "\x1a\0\0\0\0\0\0\0{\"__metadata__\":{\"n\":\"a\"}}";
    arena *a = arena_new(ctx, 0);
    rt_model *m = NULL;
    i64 n = -1;
    trap t;
    TRY (ctx, t) {
        for (int i = 0; i < 2; i++) {
            pk_writer *w = pk_begin(a, package);
            rt_package *p = hm_write(a, w, i ? "second" : "first");
            pk_add(w, RT_CHECK_FILE, i ? "no tensors" : first, i ? 10 : (i64)sizeof first - 1);
            pk_seal(w, p);
            pk_commit(w);
            if (i == 0)
                m = rt_load(ctx, package);
        }
        rt_model_check(m, a, &n);
    }
    if (t.status != EQF_OK)
        fail_msg("%s", eqf_diag_get(ctx, 0).message);
    assert_int_equal(n, 0);
    rt_unload(m);
    arena_free(a);
}

static void test_not_a_package(void **state)
{
    (void)state;
    char note[64];
    assert_int_equal(load(note, sizeof note), EQF_E_IO);
    assert_int_equal(hm_shell("mkdir %s", package), 0);
    assert_int_equal(load(note, sizeof note), EQF_E_NOT_OURS);
    assert_int_equal(hm_shell("rmdir %s && touch %s", package, package), 0);
    assert_int_equal(load(note, sizeof note), EQF_E_NOT_OURS);
}

/* Written for a machine that has what no machine has. */
static void make_foreign(const char *arch, const char *feature)
{
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        pk_writer *w = pk_begin(a, package);
        rt_package *p = hm_package(a, "foreign");
        p->arch = arch;
        vec_push(a, &p->features, feature);
        /* Were it opened, it would fail in another way. */
        pk_add(w, "kernels/none.so", "not a library", 13);
        p->library = "kernels/none.so";
        pk_add(w, RT_WEIGHTS_FILE, arena_alloc(a, p->plan.weights_bytes), p->plan.weights_bytes);
        pk_seal(w, p);
        pk_commit(w);
    }
    assert_int_equal(t.status, EQF_OK);
    arena_free(a);
}

static void test_other_machine(void **state)
{
    (void)state;
    char note[64];
    make_foreign(rt_arch(), "avx4096");
    assert_int_equal(load(note, sizeof note), EQF_E_MACHINE);
    eqf_diag d = eqf_diag_get(ctx, 0);
    assert_non_null(strstr(d.message, "avx4096"));
    assert_non_null(strstr(d.message, "equiforge optimize hand.eqf -o PACKAGE"));
    eqf_ctx_clear(ctx);
    make_foreign("vax", "fpd");
    assert_int_equal(load(note, sizeof note), EQF_E_MACHINE);
    assert_non_null(strstr(eqf_diag_get(ctx, 0).message, "vax"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stranger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_space, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftovers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_living_writers_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_library_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_held_reference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_a_package, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_machine, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
