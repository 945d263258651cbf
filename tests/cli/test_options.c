/* Hostile command lines of every verb: whatever is missing, malformed, too large or no file of ours
 * is one line that names it, with --json also an object, and the exit code that the help promises.
 * Nothing waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <cmocka.h>

#include "cli/tool.h"

static said s;

static const char *const verbs[] = {"inspect", "search",      "optimize -o p", "run",
                                    "bench",   "rules check", "egraph run",    "egraph extract",
                                    "explain"};
enum { VERBS = sizeof verbs / sizeof *verbs };

static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-options-XXXXXX");
    if (!mkdtemp(tool_folder))
        return -1;
    tool_put("small.eqf", "(program small (dims (M 16)) (input X f32 (M))\n"
                          "  (output Y (mul X 2) (M)))\n");
    tool_put("fine.rules", "(rule good (neg (neg ?x)) => ?x :fp exact)\n");
    tool_put("suite.eqf", "(ruleset r (rule drop (f ?x) => ?x))\n"
                          "(case one (rules r) (term (f a)) (goal a))\n");
    tool_put("large.eqf", "(program large (dims (M 256) (N 256) (K 256)) (input X f32 (M K))\n"
                          "  (parameter W f32 (K N)) (output Y (matmul X W) (M N)))\n");
    return tool(&s, "$E optimize small.eqf -o small.pkg && $E optimize large.eqf -o large.pkg && "
                    "$E egraph run suite.eqf && mkdir folder && mkfifo pipe && "
                    ": >empty && printf x >x && truncate -s 3T huge");
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", tool_folder);
    return system(command);
}

/* One line that starts as every error does and holds `what`. */
static void expect_line(const char *command, int code, const char *what)
{
    if (s.code != code)
        fail_msg("%s: exit %d, wanted %d\n%s%s", command, s.code, code, s.out, s.err);
    const char *end = strchr(s.err, '\n');
    if (strncmp(s.err, "equiforge: ", 11) != 0 || !end || end[1])
        fail_msg("%s: not one line: %s", command, s.err);
    if (!strstr(s.err, what))
        fail_msg("%s: says nothing of %s: %s", command, what, s.err);
}

static void expect_error(int code, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void expect_error(int code, const char *what, const char *format, ...)
{
    char words[1000], command[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    snprintf(command, sizeof command, "timeout 20 $E %s", words);
    tool(&s, command);
    expect_line(command, code, what);
    if (s.out[0])
        fail_msg("%s: printed %s", command, s.out);
    snprintf(command, sizeof command, "timeout 20 $E %s --json", words);
    tool(&s, command);
    expect_line(command, code, what);
    json_t *o = json_loads(last_line(s.out), JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(json_object_get(o, "error")))
        fail_msg("%s: no error object: %s", command, s.out);
    json_decref(o);
}

/* What is no file of ours, for every verb that reads one. */
static void test_files(void **state)
{
    (void)state;
    static const char *const files[] = {"nowhere", "folder", "pipe", "/dev/null", "/dev/zero",
                                        "nowhere/x", "small.eqf/x", "huge", "x"};
    for (int v = 0; v < VERBS; v++) {
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (strcmp(verbs[v], "rules check") != 0 || strcmp(files[i], "x") != 0) /* is text */
                expect_error(1, files[i], "%s %s", verbs[v], files[i]);
        expect_error(2, "empty", "%s ''", verbs[v]);
    }
    for (int v = 0; v < VERBS; v++)
        if (strncmp(verbs[v], "rules", 5) != 0 && strcmp(verbs[v], "egraph run") != 0)
            expect_error(1, "empty", "%s empty", verbs[v]);
    /* Files that options name. */
    static const char *const readers[] = {"optimize small.eqf -o p --inputs", "run small.pkg -i",
                                          "optimize small.eqf -o p --weights",
                                          "run small.pkg --check --source",
                                          "search small.eqf --inputs"};
    for (size_t r = 0; r < sizeof readers / sizeof *readers; r++)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            expect_error(1, files[i], "%s %s", readers[r], files[i]);
    assert_int_equal(tool(&s, "test ! -e p"), 0);
}

static void test_options(void **state)
{
    (void)state;
    static const struct {
        const char *verb, *numbers[4], *others[6];
    } rows[] = {
        {"inspect small.eqf", {"--seed", "--jobs"}, {"--dim", "--inputs", "--model", "--weights"}},
        {"search small.eqf",
         {"--seed", "--jobs", "--limit"},
         {"--budget", "--accuracy", "--fuse", "--print", "--rules", "--dim"}},
        {"optimize small.eqf -o p",
         {"--seed", "--jobs", "--threads"},
         {"--budget", "--parameters", "--accuracy", "--backend", "-o"}},
        {"run small.pkg", {"--seed", "--jobs", "--threads"}, {"-i", "-o", "--source"}},
        {"bench small.pkg", {"--seed", "--jobs", "--threads"}, {"--budget", "--against"}},
        {"rules check fine.rules", {"--seed", "--jobs", "--instances"}, {0}},
        {"rules list", {"--seed", "--jobs"}, {0}},
        {"rules show x", {"--seed", "--jobs"}, {0}},
        {"egraph run suite.eqf",
         {"--seed", "--jobs", "--bytes", "--repeat"},
         {"--case", "--match"}},
        {"egraph extract x", {"--seed", "--jobs"}, {"--method", "--seconds"}},
    };
    static const char *const bad[] = {"-1", "''", "x", "1x", "1.5", "0x10", "' 1'", "+1", "1e3",
                                      "99999999999999999999", "-99999999999999999999", "nan"};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (int i = 0; i < 4 && rows[r].numbers[i]; i++) {
            for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
                expect_error(2, rows[r].numbers[i], "%s %s %s", rows[r].verb, rows[r].numbers[i],
                             bad[b]);
            expect_error(2, rows[r].numbers[i], "%s %s=", rows[r].verb, rows[r].numbers[i]);
        }
        /* A value is missing: nothing follows. (Without --json, which would be taken for it.) */
        for (int i = 0; i < 6 && rows[r].others[i]; i++) {
            char command[300];
            snprintf(command, sizeof command, "$E %s %s", rows[r].verb, rows[r].others[i]);
            tool(&s, command);
            expect_line(command, 2, rows[r].others[i]);
        }
        /* Twice: one of the two would be lost. */
        for (int i = 0; i < 10; i++) {
            const char *name = i < 4 ? rows[r].numbers[i] : rows[r].others[i - 4];
            if (!name)
                continue;
            bool repeats = strcmp(name, "--dim") == 0 || strcmp(name, "--rules") == 0 ||
                           strcmp(name, "--case") == 0;
            char command[300];
            snprintf(command, sizeof command, "$E %s %s b %s c --no-such", rows[r].verb, name,
                     name);
            tool(&s, command);
            expect_line(command, 2, repeats ? "--no-such" : name);
            if (!repeats && !strstr(s.err, "is given twice"))
                fail_msg("%s: %s", command, s.err);
        }
        expect_error(2, "--frobnicate", "%s --frobnicate", rows[r].verb);
        expect_error(2, "-q", "%s -q", rows[r].verb);
        expect_error(2, "--quiet", "%s --quiet=yes", rows[r].verb);
    }
    static const char *const durations[] = {"0", "-1", "nan", "inf", "1e300", "x", "''", "3d"};
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        expect_error(2, "--seconds", "egraph extract x --seconds %s", durations[i]);
        expect_error(2, "--budget", "bench small.pkg --budget %s", durations[i]);
        expect_error(2, "--budget", "search small.eqf --budget %s", durations[i]);
    }
    expect_error(2, "none of", "egraph run suite.eqf --match some");
    expect_error(2, "none of", "egraph extract x --method some");
    static const char *const choices[] = {"--accuracy", "--fuse", "--print", "--parameters"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        expect_error(2, "none of", "search small.eqf %s some", choices[i]);
    expect_error(2, "nosuch", "egraph run suite.eqf --case nosuch");
}

/* A file of f32 or f64 tensors of rank 1, all 0. */
static void put_tensors(const char *file, const char *const *names, const int *counts, int n,
                        bool wide)
{
    static const char zeros[1024];
    char header[1000] = "{", path[200];
    int size = wide ? 8 : 4, end = 0;
    for (int i = 0; i < n; i++) {
        size_t at = strlen(header);
        snprintf(header + at, sizeof header - at,
                 "%s\"%s\":{\"dtype\":\"F%d\",\"shape\":[%d],\"data_offsets\":[%d,%d]}",
                 i ? "," : "", names[i], 8 * size, counts[i], end, end + size * counts[i]);
        end += size * counts[i];
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    snprintf(path, sizeof path, "%s/%s", tool_folder, file);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(&length, 8, 1, f) != 1 || fputs(header, f) < 0 ||
        fwrite(zeros, (size_t)end, 1, f) != 1 || fclose(f) != 0)
        abort();
}

/* Files of tensors: every verb says the same of those that do not fit, and names what it leaves. */
static void test_tensors(void **state)
{
    (void)state;
    tool_put("sum.eqf", "(program sum (dims (M 16)) (input X f32 (M)) (parameter W f32 (M))\n"
                        "  (output Y (add X W) (M)))\n");
    static const int counts[] = {16, 16, 16, 16, 16, 16, 16}, few[] = {8};
    static const char *const names[] = {"X", "W", "a", "b", "c", "d", "e\\n"};
    put_tensors("fit.safetensors", names, counts, 1, false);
    put_tensors("weights.safetensors", names + 1, counts, 1, false);
    put_tensors("more.safetensors", names, counts, 7, false);
    put_tensors("few.safetensors", names, few, 1, false);
    put_tensors("few-w.safetensors", names + 1, few, 1, false);
    put_tensors("wide.safetensors", names, counts, 1, true);
    static const char nothing[] =
        "equiforge: more.safetensors: nothing reads W, a, b, c and 2 more of its tensors\n";
    static const char *const readers[] = {"inspect sum.eqf", "search sum.eqf",
                                          "optimize sum.eqf -o sum.pkg --budget 0.01"};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const char *r = readers[i];
        expect_error(1, "few.safetensors: X: is f32 [8], the program wants f32 [16]",
                     "%s --inputs few.safetensors", r);
        expect_error(1, "wide.safetensors: X: is f64 [16], the program wants f32 [16]",
                     "%s --inputs wide.safetensors", r);
        expect_error(1, "weights.safetensors: X: is not in the file",
                     "%s --inputs weights.safetensors", r);
        expect_error(1, "few-w.safetensors: W: is f32 [8], the program wants f32 [16]",
                     "%s --weights few-w.safetensors", r);
        expect_error(1, "fit.safetensors: W: is not in the file",
                     "%s --weights fit.safetensors", r);
        char command[300];
        snprintf(command, sizeof command,
                 "$E %s --inputs fit.safetensors --weights weights.safetensors", r);
        assert_int_equal(tool(&s, command), 0);
        assert_string_equal(s.err, "");
        snprintf(command, sizeof command, "$E %s --inputs more.safetensors --weights weights.safetensors", r);
        assert_int_equal(tool(&s, command), 0);
        assert_string_equal(s.err, nothing);
        strcat(command, " --quiet");
        assert_int_equal(tool(&s, command), 0);
        assert_string_equal(s.err, "");
    }
    assert_int_equal(tool(&s, "$E run sum.pkg -i more.safetensors"), 0);
    assert_string_equal(s.err, nothing);
    assert_int_equal(tool(&s, "$E optimize sum.eqf -o q.pkg --budget 0.01 --parameters input && "
                              "$E run q.pkg -i more.safetensors"), 0);
    assert_non_null(strstr(s.err, ": nothing reads a, b, c, d and 1 more of its tensors\n"));
    /* with a parameter left as it is stored, another name may be that one misspelt */
    assert_int_equal(tool(&s, "$E run q.pkg -i fit.safetensors"), 0);
    assert_string_equal(s.err, "");
    static const char *const misspelt[] = {"X", "w", "Y"};
    put_tensors("misspelt.safetensors", misspelt, counts, 3, false);
    expect_error(1, "misspelt.safetensors: w: the package has no input or parameter of this name; "
                    "\"W\", which it has, is not in the file",
                 "run q.pkg -i misspelt.safetensors --quiet");
    expect_error(1, "few.safetensors: X: is f32 [8], the package wants f32 [16]",
                 "run sum.pkg -i few.safetensors");
}

static void test_words(void **state)
{
    (void)state;
    expect_error(2, "which verb", " ");
    expect_error(2, "did you mean inspect?", "inspcet small.eqf");
    expect_error(2, "did you mean bench?", "bnech small.pkg");
    expect_error(2, "run, extract", "egraph");
    expect_error(2, "did you mean egraph run?", "egraph rnu suite.eqf");
    expect_error(2, "list, show, check", "rules frobnicate");
    expect_error(2, "usage: equiforge rules check", "rules check");
    expect_error(2, "usage: equiforge rules show", "rules show");
    expect_error(2, "takes no operand", "rules list x");
    expect_error(2, "one too many", "rules show a b");
    expect_error(2, "one too many", "egraph run suite.eqf suite.eqf");
    /* A guess only where it is close. */
    static const char *const far[] = {"xyz", "r", "explain", "help me", "opt", "-x", "ruse"};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        char command[100];
        snprintf(command, sizeof command, "$E '%s'", far[i]);
        assert_int_equal(tool(&s, command), 2);
        if (strstr(s.err, "did you mean"))
            fail_msg("%s: %s", far[i], s.err);
    }
    assert_int_equal(tool(&s, "$E rules show matmul"), 1);
    assert_null(strstr(s.err, "did you mean"));
    static const char *const helps[] = {"rules", "egraph", "rules list", "egraph run"};
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++) {
        char command[100];
        snprintf(command, sizeof command, "$E %s --help", helps[i]);
        assert_int_equal(tool(&s, command), 0);
        assert_non_null(strstr(s.out, "usage: equiforge"));
    }
    /* `help WORDS` is `WORDS --help`. */
    static const char *const subjects[] = {"inspect",    "search",     "optimize",
                                           "run",        "bench",      "explain",    "rules",
                                           "rules list", "rules show", "rules check",
                                           "egraph",     "egraph run", "egraph extract"};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        char command[200];
        snprintf(command, sizeof command,
                 "$E help %s >a.txt && $E %s --help >b.txt && cmp a.txt b.txt", subjects[i],
                 subjects[i]);
        if (tool(&s, command) != 0)
            fail_msg("%s: %s%s", command, s.out, s.err);
    }
    expect_error(2, "did you mean inspect?", "help inspcet");
    expect_error(2, "did you mean egraph run?", "help egraph rnu");
    assert_int_equal(tool(&s, "$E help >a.txt && $E --help >b.txt && cmp a.txt b.txt"), 0);
}

/* What the reader of an archive remarks is not kept from the user. */
static void test_remarks(void **state)
{
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "cp %s/fixtures/odd/absent_weights.pt2 absent.pt2 && $E inspect absent.pt2",
             EQF_TEST_DIR);
    assert_int_equal(tool(&s, command), 0);
    assert_string_equal(s.err, "equiforge: absent.pt2: 0.weight: exported without data\n"
                               "equiforge: absent.pt2: 0.bias: exported without data\n"
                               "equiforge: absent.pt2: 2.weight: exported without data\n");
    assert_int_equal(tool(&s, "$E inspect absent.pt2 --quiet"), 0);
    assert_string_equal(s.err, "");
}

/* Sizes of symbolic dims. */
static void test_dims(void **state)
{
    (void)state;
    char file[300];
    snprintf(file, sizeof file, "%s/fixtures/modules/dynamic_even.C.pt2", EQF_TEST_DIR);
    static const char *const bad[] = {"s=-1", "s=", "=1", "s", "s=1.5", "s=' 1'", "s=+1", "s=0x4",
                                      "s=9223372036854775808", "s=99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(2, "s", "inspect %s --dim %s", file, bad[i]);
    expect_error(2, "2^63", "inspect %s --dim s=9223372036854775808", file);
    expect_error(2, "twice", "inspect %s --dim s=4 --dim t=2 --dim s=6", file);
    expect_error(2, "twice", "inspect %s --dim s=4 --dim s=4", file);
}

/* More than any memory has: exit 3 where it could be had elsewhere, 1 where no number holds it; the
 * file is named, and the tensor or operator where there is one. */
static void test_memory(void **state)
{
    (void)state;
    tool_put("out.eqf", "(program o (dims (M 1000000) (N 1000000)) (input X f32 (M))\n"
                        "  (input Y f32 (N)) (output Z (mul X Y) (M N)))\n");
    tool_put("in.eqf", "(program i (dims (M 1000000) (N 1000000)) (input X f32 (M N))\n"
                       "  (output Z (reduce + X :axis M) (N)))\n");
    tool_put("beyond.eqf", "(program b (dims (M 4000000000) (N 4000000000)) (input X f32 (M N))\n"
                           "  (output Z (reduce + X :axis M) (N)))\n");
    tool(&s, "$E optimize out.eqf -o p");
    if (strstr(s.err, "Sanitizer")) { /* its allocator ends the process, or speaks by itself */
        print_message("skipped: the sanitizer's allocator has a say of its own\n");
        skip();
    }
    expect_error(3, "out.eqf: 2:31: out of memory", "optimize out.eqf -o p");
    expect_error(3, "in.eqf: X: out of memory", "optimize in.eqf -o p");
    expect_error(1, "beyond.eqf: X: ", "inspect beyond.eqf");
    assert_int_equal(tool(&s, "test ! -e p"), 0);
    /* A package that a smaller machine cannot hold, at whatever it runs out. */
    tool_put("mid.eqf", "(program m (dims (M 3000) (N 3000)) (input X f32 (M N))\n"
                        "  (parameter W f32 (N M)) (output Z (matmul (mul X 2) W :axis N)))\n");
    assert_int_equal(tool(&s, "$E optimize mid.eqf -o mid.pkg"), 0);
    int refused = 0;
    for (int kib = 20000; kib < 200000; kib += 10000) {
        char command[200];
        snprintf(command, sizeof command, "ulimit -v %d; $E run mid.pkg --check --threads 1", kib);
        if (tool(&s, command) == 0)
            continue;
        if (s.code == 127 || strstr(s.err, "shared libraries") || strstr(s.err, "Sanitizer"))
            continue; /* the tool itself did not start */
        refused++;
        expect_line(command, 3, "mid.pkg");
        assert_non_null(strstr(s.err, "memory"));
    }
    if (!refused)
        print_message("no limit on memory holds here: its errors were not seen\n");
}

/* Names of a program may hold anything; what reaches a terminal commands it nothing. */
static void test_names(void **state)
{
    (void)state;
    tool_put("odd.eqf", "(program \"a\nb\" (dims (M 4)) (input \"x\x1b[31m\" f32 (M))\n"
                        "  (output \"y\tz\xc2\x9bq\" (mul \"x\x1b[31m\" 2) (M)))\n");
    if (tool(&s, "$E inspect odd.eqf") != 0) {
        /* Refused as names: then nothing of them is printed raw either. */
        assert_null(strchr(s.err, '\x1b'));
        return;
    }
    static const char *const commands[] = {
        "$E inspect odd.eqf", "$E search odd.eqf", "$E optimize odd.eqf -o \"$(printf 'p\\033k')\"",
        "$E run \"$(printf 'p\\033k')\" --check", "$E bench \"$(printf 'p\\033k')\" --budget 0.1s"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (tool(&s, commands[i]) != 0)
            fail_msg("%s: %s", commands[i], s.err);
        if (strchr(s.out, '\x1b') || strstr(s.out, "\xc2\x9b") || strchr(s.out, '\t'))
            fail_msg("%s: %s", commands[i], s.out);
        char command[200];
        snprintf(command, sizeof command, "%s --json", commands[i]);
        assert_int_equal(tool(&s, command), 0);
        json_t *o = json_loads(last_line(s.out), JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(o));
        json_decref(o);
    }
}

/* What a command prints where its standard error is a terminal. */
static void on_terminal(const char *command, char *shown, size_t size)
{
    char line[500];
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const char *name = ptsname(terminal);
    assert_non_null(name);
    int other = open(name, O_RDWR | O_NOCTTY); /* what was printed stays while this is open */
    snprintf(line, sizeof line, "%s 2>%s", command, name);
    tool(&s, line);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    size_t all = 0;
    for (ssize_t n; (n = read(terminal, shown + all, size - 1 - all)) > 0;)
        all += (size_t)n; /* one read is not all of it */
    shown[all] = 0;
    close(other);
    close(terminal);
}

/* After two seconds whoever watches a terminal sees what is done, and at the end nothing of it. */
static void test_progress(void **state)
{
    (void)state;
    static const char *const slow[] = {
        "$E bench large.pkg --budget 3.5s",
        "timeout -s INT 4 $E rules check fine.rules --instances 1000000",
        "timeout -s INT 4 $E egraph run " EQF_TEST_DIR "/conformance/egg-suite.eqf --repeat 300",
    };
    char shown[4096];
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        on_terminal(slow[i], shown, sizeof shown);
        if (!strstr(shown, " ... 3 s"))
            fail_msg("%s: showed %s", slow[i], shown);
        const char *last = shown; /* what follows the last clearing of the line */
        for (const char *at = shown; (at = strstr(at, "\r\033[K")); last = at)
            at += 4;
        if (strstr(last, " ... "))
            fail_msg("%s: left %s", slow[i], last);
    }
    /* A second that ends while the tool leaves: its last word is the last. */
    for (int i = 0; i < 10; i++) {
        on_terminal("{ trap '' ALRM; $E rules check fine.rules --instances 1000000 & p=$!; "
                    "sleep 0.3; for i in 1 2 3 4 5; do kill -ALRM $p; done; "
                    "while kill -INT $p; do kill -ALRM $p; kill -ALRM $p; sleep 0.1; done "
                    "2>/dev/null; wait $p; }",
                    shown, sizeof shown);
        const char *last = strstr(shown, "equiforge: interrupted\r\n");
        if (!last || last[strlen("equiforge: interrupted\r\n")] ||
            (last > shown && strncmp(last - 4, "\r\033[K", 4) != 0))
            fail_msg("%d: showed %s", i, shown);
    }
    on_terminal("$E bench large.pkg --budget 2.5s --quiet", shown, sizeof shown);
    assert_string_equal(shown, "");
    assert_int_equal(tool(&s, "$E bench large.pkg --budget 2.5s"), 0);
    assert_string_equal(s.err, "");
}

/* Interrupted while it works: 130, one line, and what was found so far stays. */
static void test_interrupt(void **state)
{
    (void)state;
    tool_put("slow.rules", "(rule one (neg (neg ?x)) => ?x :fp exact)\n"
                           "(rule two (neg (neg ?x)) => ?x :fp exact)\n");
    static const struct {
        const char *command;
        bool keeps;
    } cases[] = {
        {"bench large.pkg --budget 1h", false},
        {"rules check slow.rules --instances 1000000", false},
        {"egraph run " EQF_TEST_DIR "/conformance/egg-suite.eqf --repeat 1000 --match full", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int json = 0; json < 2; json++) {
            char command[500];
            snprintf(command, sizeof command,
                     "$E %s %s & p=$!; sleep 1; while kill -INT $p 2>/dev/null; do sleep 1; done; "
                     "wait $p",
                     cases[i].command, json ? "--json" : "");
            tool(&s, command);
            expect_line(command, 130, "interrupted");
            if (cases[i].keeps && !strchr(s.out, '\n'))
                fail_msg("%s: nothing was kept", command);
            json_t *o = json ? json_loads(last_line(s.out), JSON_REJECT_DUPLICATES, NULL) : NULL;
            if (json && !json_is_object(json_object_get(o, "error")))
                fail_msg("%s: no error object: %s", command, s.out);
            json_decref(o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),  cmocka_unit_test(test_options),
        cmocka_unit_test(test_words),  cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_remarks), cmocka_unit_test(test_dims),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_progress),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
