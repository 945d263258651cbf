/* The tool from outside: exit codes, what is printed where, JSON, packages on a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>

#include <jansson.h>

#include <cmocka.h>

#include "cli/tool.h"

static said s;

static const char small[] = "(program small (dims (M 16) (K 64) (N 32))\n"
                            "  (input X f32 (M K)) (parameter W f32 (K N))\n"
                            "  (let s (recip (add (reduce + (square X) :axis K) 1)))\n"
                            "  (output Y (matmul (mul X s) W) (M N)))\n";

static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-tool-XXXXXX");
    if (!mkdtemp(tool_folder))
        return -1;
    tool_put("small.eqf", small);
    tool_put("opaque.eqf",
             "(program o (dims (K 3)) (input x f32 (K))\n"
             "  (output y (opaque x :name \"my.op\" :dtype f32 :to K :ints (0)) (K)))\n");
    tool_put("gather.eqf", "(program g (dims (V 6) (T 4)) (parameter t f32 (V)) (input i i64 (T))\n"
                           "  (output y (gather t i :axis V) (T)))\n");
    tool_put("w.eqf",
             "(program w (dims (M 16) (K 64) (N 32)) (input A f32 (M K)) (input B f32 (K N))\n"
             "  (output X A (M K)) (output W (add B 1) (K N)))\n");
    tool_put("bad.eqf", "(program x\n  (input y f33 ()))\n");
    return tool(&s, "$E optimize --budget 0.01 small.eqf -o small.pkg");
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", tool_folder);
    return system(command);
}

static void expect(int code, const char *command)
{
    if (tool(&s, command) != code)
        fail_msg("%s: exit %d, wanted %d\n%s%s", command, s.code, code, s.out, s.err);
}

/* The last line of output as an object. */
static json_t *object(void)
{
    json_error_t error;
    json_t *o = json_loads(last_line(s.out), JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(o))
        fail_msg("not an object: %s (%s)", last_line(s.out), error.text);
    return o;
}

/* An error is one line on standard error that starts as every error does and names `what`; with
 * --json also an object. Nothing else is printed. */
static void expect_error(int code, const char *command, const char *what)
{
    char line[3000];
    expect(code, command);
    assert_string_equal(s.out, "");
    if (strncmp(s.err, "equiforge: ", 11) != 0 || strchr(s.err, '\n') != s.err + strlen(s.err) - 1)
        fail_msg("%s: not one line: %s", command, s.err);
    if (!strstr(s.err, what))
        fail_msg("%s: says nothing of %s: %s", command, what, s.err);
    if (strchr(command, ';') || strchr(command, '|'))
        return;
    snprintf(line, sizeof line, "%.2900s --json", command);
    expect(code, line);
    json_t *o = object(), *error = json_object_get(o, "error");
    static const char *const fields[] = {"file", "place", "reason", "code"};
    for (size_t i = 0; i < 4; i++)
        assert_true(json_is_string(json_object_get(error, fields[i])));
    assert_true(json_string_length(json_object_get(error, "reason")) > 0);
    json_decref(o);
}

static void test_usage(void **state)
{
    (void)state;
    static const struct {
        const char *command, *what;
    } cases[] = {
        {"$E inspcet small.eqf", "did you mean inspect?"},
        {"$E inspect small.eqf --texx", "did you mean --text?"},
        {"$E optimize small.eqf -o p --bugdet 3s", "did you mean --budget?"},
        {"$E inspect small.eqf --frobnicate", "--help"},
        {"$E inspect small.eqf bad.eqf", "bad.eqf"},
        {"$E inspect --text", "usage: equiforge inspect FILE"},
        {"$E optimize --budget 0.01 small.eqf", "-o"},
        {"$E run small.pkg --threads", "--threads"},
        {"$E run small.pkg --threads 0", "--threads"},
        {"$E run small.pkg --threads 1x", "1x"},
        {"$E run small.pkg --check=yes", "--check"},
        {"$E inspect small.eqf --seed -1", "--seed"},
        {"$E inspect small.eqf --seed 99999999999999999999", "--seed"},
        {"$E inspect small.eqf --jobs 0", "--jobs"},
        {"$E optimize small.eqf -o p --budget 3x", "3x"},
        {"$E optimize small.eqf -o p --budget -3s", "-3s"},
        {"$E optimize --budget 0.01 small.eqf -o p --accuracy some", "some"},
        {"$E optimize --budget 0.01 small.eqf -o p --parameters none", "none"},
        {"$E optimize --budget 0.01 small.eqf -o p --backend fortran", "fortran"},
        {"$E bench small.pkg --against torch", "none of: unfused"},
        {"$E bench small.pkg --against ''", "none of: unfused"},
        {"$E run small.pkg --dim B=3", "--source"},
        {"$E run small.pkg --weights nowhere", "--source"},
        {"$E optimize --budget 0.01 small.eqf -o small.pkg/inner", "inside another package"},
        {"$E inspect small.eqf --dim B", "B"},
        {"$E inspect small.eqf --dim B=x", "B=x"},
        {"$E inspect small.eqf --dim =3", "=3"},
        {"$E inspect small.eqf --dim B=3", "B"},
        {"$E optimize --budget 0.01 small.eqf -o small.eqf", "small.eqf"},
        {"$E optimize --budget 0.01 small.eqf -o .", "is no package"},
        {"$E run small.pkg -i x.safetensors --check", "--source"},
        {"$E run small.pkg --source small.eqf", "--check"},
        {"mkdir -p folder/full; $E optimize --budget 0.01 small.eqf -o folder", "folder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(2, cases[i].command, cases[i].what);
    expect(2, "$E");
    assert_true(s.err[0] != 0);
}

static void test_input_errors(void **state)
{
    (void)state;
    static const struct {
        const char *command, *what;
    } cases[] = {
        {"$E inspect nowhere.eqf", "nowhere.eqf"},
        {"$E inspect .", "equiforge: .: "},
        {"$E inspect bad.eqf", "bad.eqf: 2:12: "},
        {"$E optimize --budget 0.01 nowhere.pt2 -o p", "nowhere.pt2"},
        {"$E optimize --budget 0.01 opaque.eqf -o p", "my.op"},
        {"$E optimize --budget 0.01 small.eqf -o p --inputs nowhere.safetensors", "nowhere.safetensors"},
        {"$E optimize --budget 0.01 small.eqf -o p --weights nowhere.safetensors", "nowhere.safetensors"},
        {"$E optimize --budget 0.01 small.eqf -o p --inputs small.eqf", "small.eqf"},
        {"$E run nowhere", "nowhere"},
        {"$E run small.eqf", "not a package"},
        {"$E bench .", "not a package"},
        {"$E run small.pkg -i nowhere.safetensors", "nowhere.safetensors"},
        {"$E run small.pkg -i small.pkg/check.safetensors", "X"},
        {"$E run small.pkg -i small.eqf", "small.eqf"},
        {"$E inspect \"$(printf 'no\\nsuch\\033[31m')\"", "no\\nsuch\\x1b[31m: "},
        {"$E inspect \"$(printf 'no\\377such')\"", "such: "},
        {"printf x >garbage.pt2; $E inspect garbage.pt2", "garbage.pt2"},
        {": >empty.eqf; $E inspect empty.eqf", "empty.eqf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(1, cases[i].command, cases[i].what);
    expect(1, "test -e p");
}

static void test_help(void **state)
{
    (void)state;
    static const char *const verbs[] = {"inspect", "optimize", "run", "bench"};
    expect(0, "$E --help");
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(strstr(s.out, verbs[i]));
        char command[100];
        snprintf(command, sizeof command, "$E %s --help", verbs[i]);
        said general = s;
        expect(0, command);
        assert_non_null(strstr(s.out, "usage: equiforge"));
        assert_non_null(strstr(s.out, "--json"));
        s = general;
    }
    expect(0, "$E --version");
    assert_int_equal(strncmp(s.out, "equiforge 0.", 12), 0);
}

static void test_inspect(void **state)
{
    (void)state;
    expect(0, "$E inspect small.eqf --json");
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "file")), "small.eqf");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "ops"), "matmul")), 1);
    assert_int_equal(json_array_size(json_object_get(o, "inputs")), 1);
    json_t *w = json_array_get(json_object_get(o, "parameters"), 0);
    assert_string_equal(json_string_value(json_object_get(w, "name")), "W");
    assert_string_equal(json_string_value(json_object_get(w, "dtype")), "f32");
    assert_int_equal(json_integer_value(json_object_get(w, "bytes")), 4 * 64 * 32);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(w, "shape"), 1)), 32);
    assert_int_equal(json_array_size(json_object_get(o, "boundaries")), 0);
    assert_true(json_number_value(json_object_get(o, "coverage")) == 1);
    assert_true(json_integer_value(json_object_get(o, "flops")) >= 2 * 16 * 64 * 32);
    assert_int_equal(json_integer_value(json_object_get(o, "bytes")),
                     4 * (16 * 64 + 64 * 32 + 16 * 32));
    json_decref(o);
    expect(0, "$E inspect opaque.eqf --json");
    o = object();
    json_t *b = json_array_get(json_object_get(o, "boundaries"), 0);
    assert_string_equal(json_string_value(json_object_get(b, "op")), "my.op");
    assert_true(json_is_false(json_object_get(b, "runs")));
    assert_true(json_number_value(json_object_get(o, "coverage")) == 0);
    json_decref(o);
    expect(0, "$E inspect gather.eqf --json");
    o = object();
    b = json_array_get(json_object_get(o, "boundaries"), 0);
    assert_string_equal(json_string_value(json_object_get(b, "op")), "gather");
    assert_true(json_is_true(json_object_get(b, "runs")));
    assert_true(json_number_value(json_object_get(o, "coverage")) == 1);
    json_decref(o);
    /* The text reads back to the same program. */
    expect(0, "$E inspect small.eqf --text >again.eqf && $E inspect again.eqf --text >more.eqf && "
              "cmp again.eqf more.eqf");
}

/* An empty folder is as good as none; a package that this user may replace and not remove is named. */
static void test_replacing(void **state)
{
    (void)state;
    expect(0, "mkdir empty && $E optimize --budget 0.01 --quiet small.eqf -o empty && "
              "$E run empty --check");
    expect(2, "mkdir linked && ln -s nowhere linked/x && "
              "$E optimize --budget 0.01 small.eqf -o linked");
    tool_put("as.sh", "test $(id -u) != 0 && exec \"$@\"\n"
                      "exec setpriv --reuid 65534 --clear-groups \"$@\"\n");
    expect(0, "mkdir theirs && cp small.eqf theirs && chmod 777 . theirs");
    if (tool(&s, "cd theirs && sh ../as.sh $E optimize --budget 0.01 small.eqf -o p") != 0) {
        print_message("skipped: the tool cannot be run as an ordinary user\n");
        skip();
    }
    expect(0, "cd theirs && chmod 555 p/kernels && "
              "sh ../as.sh $E optimize --budget 0.01 small.eqf -o p && $E run p --check --quiet");
    const char *at = strstr(s.err, "p: the package that was there could not be removed: what is left is now ");
    assert_non_null(at);
    assert_null(strstr(at + 1, "p: the package")); /* once */
    char command[300], name[200] = "";
    assert_int_equal(sscanf(strstr(at, "now ") + 4, "%199s", name), 1);
    snprintf(command, sizeof command, "cd theirs && test -d %s/kernels && chmod -R 777 %s", name, name);
    expect(0, command);
}

static json_t *find_report(const char *key)
{
    json_t *o = object(), *x = json_incref(json_object_get(o, key));
    json_decref(o);
    return x;
}

/* Values that nobody gave are said to be so, everywhere, and only then. */
static void test_seeded_parameters(void **state)
{
    (void)state;
    tool_put("six.eqf", "(program six (dims (K 3)) (input x f32 (K))\n"
                        "  (parameter a f32 (K)) (parameter b f32 (K)) (buffer c f32 (K))\n"
                        "  (output y (mul (add x a) (add b c)) (K)))\n");
    tool_put("make6.eqf", "(program m (dims (K 3)) (input x f32 (K)) (output a x (K))\n"
                          "  (output b (exp x) (K)) (output c (neg x) (K)))\n");
    expect(0, "$E optimize --budget 0.01 make6.eqf -o make6.pkg && "
              "$E run make6.pkg -o six.safetensors");
    static const char *const verbs[] = {"inspect six.eqf", "optimize --budget 0.01 six.eqf -o six.pkg"};
    static const char said_so[] = "equiforge: six.eqf: its 3 parameters have no data: random values "
                                  "(seed 5) are built in; --weights F gives them\n";
    for (int i = 0; i < 4; i++) {
        int given = i % 2;
        char command[300];
        snprintf(command, sizeof command, "$E %s --seed 5 --json %s", verbs[i / 2],
                 given ? "--weights six.safetensors" : "");
        expect(0, command);
        assert_string_equal(s.err, given ? "" : said_so);
        json_t *n = find_report("seeded_parameters");
        assert_true(json_is_integer(n));
        assert_int_equal(json_integer_value(n), given ? 0 : 3);
        json_decref(n);
        snprintf(command, sizeof command, "grep -q '\"seeded_parameters\":%d' six.pkg/report.json",
                 given ? 0 : 3);
        if (i / 2)
            expect(0, command);
        snprintf(command, sizeof command, "$E %s %s --quiet", verbs[i / 2],
                 given ? "--weights six.safetensors" : "");
        expect(0, command);
        assert_string_equal(s.err, "");
        if (i / 2 == 0)
            assert_int_equal(strstr(s.out, "random values") == NULL, given);
    }
    char command[300];
    snprintf(command, sizeof command, "$E inspect %s/fixtures/modules/dynamic_even.C.pt2 --json",
             EQF_TEST_DIR);
    expect(0, command);
    assert_string_equal(s.err, "");
}

/* A program without kernels leaves nothing to search; one that nothing beats says so. */
static void test_nothing_faster(void **state)
{
    (void)state;
    tool_put("copy.eqf", "(program c (input x f32 (0)) (output y - f32 (0)))\n");
    expect(0, "$E optimize copy.eqf -o copy.pkg --json");
    json_t *stop = find_report("stop");
    assert_string_equal(json_string_value(stop), "exhausted");
    json_decref(stop);
    expect(0, "$E optimize copy.eqf -o copy.pkg");
    assert_non_null(strstr(s.out, "nothing faster found (0 tried)"));
}

static void test_optimize_json(void **state)
{
    (void)state;
    expect(0, "$E optimize small.eqf -o json.pkg --json --budget 5s --jobs 1 --quiet");
    assert_string_equal(s.err, "");
    json_t *o = object();
    static const char *const integers[] = {"kernels",    "subgraphs", "distinct_subgraphs",
                                           "candidates", "families",  "measured"};
    for (size_t i = 0; i < 6; i++)
        assert_true(json_integer_value(json_object_get(o, integers[i])) >= 1);
    assert_string_equal(json_string_value(json_object_get(o, "package")), "json.pkg");
    assert_string_equal(json_string_value(json_object_get(o, "backend")), "c");
    assert_true(json_is_true(json_object_get(o, "verified")));
    json_t *errors = json_object_get(o, "rel_l2");
    assert_int_equal(json_array_size(errors), 1);
    assert_true(json_number_value(json_array_get(errors, 0)) <= 1e-5);
    json_t *times = json_object_get(o, "time_us");
    assert_true(json_number_value(json_object_get(times, "best")) > 0);
    assert_true(json_number_value(json_object_get(times, "unfused")) > 0);
    double roofline = json_number_value(json_object_get(o, "roofline"));
    assert_true(roofline > 0 && roofline <= 1);
    static const char *const seconds[] = {"read", "saturate", "extract", "tune", "verify", "total"};
    for (size_t i = 0; i < 6; i++)
        assert_true(json_is_real(json_object_get(json_object_get(o, "seconds"), seconds[i])) ||
                    json_is_integer(json_object_get(json_object_get(o, "seconds"), seconds[i])));
    assert_true(json_is_string(json_object_get(o, "stop")));
    json_decref(o);
    expect(0, "for f in plan.json program.eqf proof.eqf weights.bin check.safetensors report.json "
              "equiforge_model.h; do test -s json.pkg/$f || exit 1; done; ls json.pkg/kernels/*.c "
              "json.pkg/kernels/*.so");
}

/* The program as it was read is built whatever it takes; a candidate's compiler that does not come
 * to an end is stopped with the budget. */
static void test_budget(void **state)
{
    (void)state;
    tool_put("slow.sh", "#!/bin/sh\n[ -e slow.pkg/plan.json ] && exec sleep 100\nexec cc \"$@\"\n");
    expect(0, "chmod +x slow.sh; CC=./slow.sh timeout 60 $E optimize --budget 2 small.eqf -o slow.pkg "
              "--json");
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "stop")), "budget");
    assert_int_equal(json_integer_value(json_object_get(o, "failed")), 0);
    json_decref(o);
    expect(0, "$E run slow.pkg --check && test -z \"$(ls -d .slow.pkg* 2>/dev/null)\"");
}

static void test_run(void **state)
{
    (void)state;
    expect(0, "$E run small.pkg --check --json");
    json_t *o = object();
    json_t *check = json_object_get(o, "check");
    assert_true(json_is_true(json_object_get(check, "passed")));
    json_decref(o);
    /* On the inputs of a file, with a reference computed anew. */
    expect(0, "$E optimize --budget 0.01 small.eqf -o other.pkg --seed 0 && $E run small.pkg -o out.safetensors "
              "--threads 1 && $E run other.pkg -o out2.safetensors --threads 2 && "
              "cmp out.safetensors out2.safetensors");
    expect_error(1, "$E run small.pkg -i out.safetensors --check --source small.eqf", "X");
    expect_error(1, "$E run small.pkg -i out.safetensors", "X");
}

/* What a caller does: inputs from one program's outputs, a check against the source. */
/* Where outputs go may be anything that can be written: nothing but a file is replaced. */
static void test_run_output(void **state)
{
    (void)state;
    expect(0, "$E run small.pkg -o to.safetensors && ln -s to.safetensors to.link && "
              "printf x >to.safetensors && $E run small.pkg -o to.link && test -L to.link && "
              "test $(wc -c <to.safetensors) -gt 1");
    expect(0, "mkfifo to.pipe && { cat to.pipe >copy.safetensors & } && "
              "$E run small.pkg -o to.pipe && wait && test -p to.pipe && "
              "cmp copy.safetensors to.safetensors");
    expect(0, "test -z \"$(ls -d ./.*.equiforge-* 2>/dev/null)\"");
    expect_error(3, "mkdir to.folder; $E run small.pkg -o to.folder", "to.folder");
    expect(3, "$E run small.pkg >&-");
    expect(0, "$E run small.pkg --quiet -o to.safetensors <&- >&- 2>&-");
    /* A device: made where that is allowed; /dev/null itself is never put at risk. */
    if (tool(&s, "mknod to.null c 1 3 && printf x >to.null") == 0)
        expect(0, "$E run small.pkg -o to.null && test -c to.null");
}

static void test_run_with_inputs(void **state)
{
    (void)state;
    tool_put("make.eqf", "(program make (dims (M 16) (K 64)) (input A f32 (M K))\n"
                         "  (output X (mul A 3) (M K)))\n");
    expect(0, "$E optimize --budget 0.01 make.eqf -o make.pkg && $E run make.pkg -o in.safetensors");
    expect(0, "$E run small.pkg -i in.safetensors -o y.safetensors --check --source small.eqf");
    expect(0, "$E optimize --budget 0.01 small.eqf --inputs in.safetensors -o given.pkg && "
              "$E run given.pkg --check && $E run given.pkg -o y2.safetensors && "
              "cmp y.safetensors y2.safetensors");
    tool_put("other.eqf", "(program small (dims (M 16) (K 64) (N 32))\n"
                          "  (input X f32 (M K)) (parameter W f32 (K N))\n"
                          "  (output Y (matmul X W) (M N)))\n");
    expect_error(1, "$E run small.pkg -i in.safetensors --check --source other.eqf", "other.eqf");
    expect_error(1, "$E run small.pkg -i in.safetensors --check --source small.eqf --seed 5",
                 "other parameters");
    expect(0, "$E optimize --budget 0.01 small.eqf --seed 5 -o five.pkg && "
              "$E run five.pkg -i in.safetensors --check --source small.eqf");
}

static void test_check_finds_differences(void **state)
{
    (void)state;
    /* The reference, not the kernels: swap it for that of another seed, with the right digest. */
    expect(0, "$E optimize --budget 0.01 small.eqf -o seed1.pkg --seed 1 && rm -rf mixed.pkg && "
              "cp -r small.pkg mixed.pkg && cp seed1.pkg/check.safetensors mixed.pkg/");
    expect_error(1, "$E run mixed.pkg --check", "check.safetensors");
    /* Parameters as inputs: other values, other results. */
    expect(0,
           "$E optimize --budget 0.01 small.eqf -o param.pkg --parameters input && $E run param.pkg --check && "
           "$E optimize --budget 0.01 w.eqf -o w.pkg && $E run w.pkg -o w.safetensors");
    expect_error(4, "$E run param.pkg -i w.safetensors --check --source small.eqf", "Y");
    expect(0,
           "$E run param.pkg -i w.safetensors --check --source small.eqf --weights w.safetensors "
           "2>/dev/null || test $? = 1");
}

static void test_index_error(void **state)
{
    (void)state;
    tool_put("ids.eqf", "(program ids (dims (T 4)) (input a i64 (T))\n"
                        "  (output i (add (mul a 0) 6) (T)))\n");
    expect(0, "$E optimize --budget 0.01 gather.eqf -o gather.pkg && $E run gather.pkg --check && "
              "$E optimize --budget 0.01 ids.eqf -o ids.pkg && $E run ids.pkg -o ids.safetensors");
    expect_error(1, "$E run gather.pkg -i ids.safetensors", "out of range");
    assert_non_null(strstr(s.err, "; input i holds 6 to 6"));
    assert_null(strstr(s.err, "part 1 of 1"));
    tool_put("div.eqf", "(program div (dims (N 40)) (input a i64 (N)) (input b i64 (N))\n"
                        "  (output q (floordiv a (add b (const i64 0)))) (output r (mod a b)))\n");
    expect(0, "$E optimize --budget 0.01 div.eqf -o div.pkg && $E run div.pkg --check");
    /* so do forms of it, which are programs as well */
    expect(0, "$E search div.eqf --print forms --limit 1 >form.eqf && grep -q 'view b' form.eqf && "
              "$E optimize --budget 0.01 form.eqf -o div.pkg && $E run div.pkg --check");
    expect_error(1, "$E optimize --budget 0.01 gather.eqf -o g2.pkg --inputs ids.safetensors", "gather");
    expect(1, "test -e g2.pkg");
}

/* Floats that become indices through one operator after another hold what makes them valid; where a
 * condition on themselves decides, both sides are still seen. */
static void test_float_indices(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "x",
        "(mul x 5.0)",
        "(mul -5.0 x)",
        "(mul (add x -3.0) 2.0)",
        "(div x 0.125)",
        "(sub x 0.5)",
        "(sub 4.5 (neg x))",
        "(floor (mul x 3.0))",
        "(ceil (mul (sub 1.0 x) 5.0))",
        "(round (div x 0.1))",
        "(trunc x)",
        "(where (lt b 0.0) (mul x 4.0) 5.0)",
        "(cast f32 (cast i64 (mul x 5.0)))",
        "(cast f64 x)",
        "(reduce max (concat x (mul b 0.0) :axis (- -) :to K) :axis K)",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[1000];
        snprintf(text, sizeof text,
                 "(program f (dims (V 6) (T 500) (K 2)) (parameter t f32 (V)) (input x f32 (T))\n"
                 "  (input b f32 (T)) (output y (gather t (cast i64 %s) :axis V) (T)))\n", ways[i]);
        tool_put("way.eqf", text);
        expect(0, "$E optimize --budget 0.01 way.eqf -o way.pkg && $E run way.pkg --check && "
                  "grep -q '\"ranges\":\\[\\[0,7,' way.pkg/plan.json");
    }
    tool_put("own.eqf", "(program o (dims (V 6) (T 500)) (parameter t f32 (V)) (input x f32 (T))\n"
                        "  (let in (and (lt 0.0 x) (lt x 6.0)))\n"
                        "  (output y (gather t (cast i64 (where in x 0.0)) :axis V) (T)))\n");
    expect(0, "$E optimize --budget 0.01 own.eqf -o own.pkg && $E run own.pkg --check && "
              "grep -q '\"ranges\":\\[\\[0,7\\]\\]' own.pkg/plan.json");
}

static void test_machine_errors(void **state)
{
    (void)state;
    expect_error(3, "CC=/nowhere/cc; export CC; $E optimize --budget 0.01 small.eqf -o p", "CC");
    expect_error(3, "CC=false; export CC; $E optimize --budget 0.01 small.eqf -o p", "false");
    expect_error(3, "CC=true; export CC; $E optimize --budget 0.01 small.eqf -o p", "writes nothing");
    tool_put("rubbish.sh", "#!/bin/sh\n"
                           "for last; do test \"$before\" = -o && echo '\1\2' >$last; before=$last; done\n");
    expect_error(3, "chmod +x rubbish.sh; CC=./rubbish.sh $E optimize --budget 0.01 small.eqf -o p",
                 "./rubbish.sh: this C compiler ends well, but");
    expect_error(3, "$E optimize --budget 0.01 small.eqf -o nowhere/p", "nowhere/p");
    expect_error(3, "$E optimize --budget 0.01 small.eqf -o small.eqf.d/p", "small.eqf.d/p");
    /* The limit holds for what the tool says as well, so only its exit is seen. */
    expect(3, "(ulimit -f 0; $E run small.pkg -o out.safetensors)");
    expect(1, "ls -d .*.equiforge-* 2>/dev/null || exit 1");
    expect_error(3, "$E run small.pkg -o nowhere/out.safetensors", "nowhere/out.safetensors");
    expect(1, "test -e p");
    expect(3, "$E inspect small.eqf >/dev/full");
    expect(0, "CC=gcc $E optimize --budget 0.01 small.eqf -o p && $E run p --check && rm -r p");
    if (tool(&s, "command -v clang") == 0)
        expect(0, "CC=clang $E optimize --budget 0.01 small.eqf -o p && $E run p --check && rm -r p");
}

/* A real full disk, where this process may mount one. */
static void test_full_disk(void **state)
{
    (void)state;
    tool_put("big.eqf",
             "(program big (dims (K 1000) (N 1000)) (input x f32 (K)) (parameter w f32 (K N))\n"
             "  (output y (matmul x w) (N)))\n");
    if (tool(&s, "mkdir -p disk && unshare -m true") != 0) {
        print_message("skipped: no permission to mount a small disk\n");
        skip();
    }
    expect(0, "unshare -m sh -c 'mount -t tmpfs -o size=1m none disk || exit 77; "
              "$E optimize --budget 0.01 small.eqf -o disk/p || exit 10; "
              "$E optimize --budget 0.01 big.eqf -o disk/p; test $? = 3 || exit 11; "
              "$E run disk/p --check || exit 12; "
              "test \"$(ls -A disk)\" = p || exit 13; "
              "$E optimize --budget 0.01 big.eqf -o disk/q; test $? = 3 || exit 14; "
              "test \"$(ls -A disk)\" = p || exit 15'");
    expect(3, "unshare -m sh -c 'mount -t tmpfs -o noexec none disk || exit 77; "
              "$E optimize --budget 0.01 small.eqf -o disk/p'");
    assert_non_null(strstr(s.err, "is the file system mounted noexec?"));
}

static void test_interrupt(void **state)
{
    (void)state;
    /* Interrupted at any moment: 130, and the package is the old one, or whole and new. */
    expect(0, "$E optimize --budget 0.01 small.eqf -o int.pkg");
    for (int ms = 0; ms < 1000; ms += 90) {
        char command[400];
        snprintf(command, sizeof command,
                 "$E optimize --budget 0.01 small.eqf -o int.pkg >o2.txt 2>e2.txt & p=$!; sleep 0.%03d; "
                 "kill -INT $p; wait $p",
                 ms);
        tool(&s, command);
        /* 128 + SIGINT before the handler is there is the same number. */
        if (s.code != 130 && s.code != 0)
            fail_msg("after %d ms: exit %d\n%s", ms, s.code, s.err);
        expect(0, "$E run int.pkg --check");
    }
    /* Also while the compiler does not answer. */
    tool_put("hang.sh", "#!/bin/sh\nsleep 30\n");
    expect(130, "chmod +x hang.sh; CC=./hang.sh $E optimize --budget 0.01 small.eqf -o int.pkg & p=$!; "
                "sleep 1; kill -INT $p; sleep 5; kill -9 $p 2>/dev/null; wait $p");
    expect(0, "$E optimize --budget 0.01 small.eqf -o int.pkg && test -z \"$(ls -d .int.pkg* 2>/dev/null)\"");
}

/* Killed at any moment of building, searching, replacing and proving: the package is whole, and a run
 * for another one in the same folder removes what the dead ones left. */
static void test_killed(void **state)
{
    (void)state;
    expect(0, "mkdir killed && $E optimize --budget 0.01 small.eqf -o killed/a");
    int left = 0;
    for (int ms = 50; ms < 2500; ms += 270) {
        char command[400];
        snprintf(command, sizeof command,
                 "$E optimize --budget 2 small.eqf -o killed/a --seed %d >/dev/null 2>&1 & p=$!; "
                 "sleep %d.%03d; kill -9 $p; wait $p",
                 ms, ms / 1000, ms % 1000);
        tool(&s, command);
        if (s.code != 137 && s.code != 0)
            fail_msg("after %d ms: exit %d\n%s", ms, s.code, s.err);
        expect(0, "$E run killed/a --check");
        left += tool(&s, "test \"$(ls -A killed)\" = a") != 0;
    }
    assert_true(left > 0); /* else this shows nothing */
    expect(0, "$E optimize --budget 0.01 small.eqf -o killed/b && test \"$(ls -A killed | tr '\\n' ' ')\" = 'a b '");
}

static void test_bench(void **state)
{
    (void)state;
    expect(0, "$E bench small.pkg --budget 0.2s --threads 1");
    assert_non_null(strstr(s.out, "roofline"));
    expect(0, "$E bench small.pkg --budget 0.2s --threads 1 --against unfused --json");
    json_t *o = object();
    assert_true(json_number_value(json_object_get(o, "median_us")) > 0);
    json_t *spread = json_object_get(o, "spread");
    assert_true(json_number_value(json_object_get(spread, "low")) <=
                json_number_value(json_object_get(spread, "high")));
    assert_true(json_integer_value(json_object_get(o, "bytes")) > 0);
    assert_int_equal(json_integer_value(json_object_get(o, "threads")), 1);
    double share = json_number_value(json_object_get(o, "roofline_measured"));
    double bound = json_number_value(json_object_get(o, "bound_us"));
    double median = json_number_value(json_object_get(o, "median_us"));
    assert_true(share > 0.999 * bound / median && share < 1.001 * bound / median);
    double roofline = json_number_value(json_object_get(o, "roofline"));
    assert_true(roofline == (share > 1 ? 1 : share));
    json_t *unfused = json_object_get(json_object_get(o, "against"), "unfused");
    assert_true(json_number_value(json_object_get(unfused, "speedup")) > 0);
    json_decref(o);
    /* Four rows of a table that counts as a whole: faster than what the machine would need for it. */
    tool_put("rows.eqf", "(program rows (dims (V 60000) (D 64) (T 4)) (input table f32 (V D))\n"
                         "  (input ids i64 (T)) (output y (gather table ids :axis V) (T D)))\n");
    expect(0, "$E optimize --budget 0.01 rows.eqf -o rows.pkg --json");
    o = object();
    assert_true(json_number_value(json_object_get(o, "roofline_measured")) > 1);
    assert_true(json_number_value(json_object_get(o, "roofline")) == 1);
    json_decref(o);
    expect(0, "$E bench rows.pkg --budget 0.2s --json");
    o = object();
    assert_true(json_number_value(json_object_get(o, "roofline_measured")) > 1);
    assert_true(json_number_value(json_object_get(o, "roofline")) == 1);
    json_decref(o);
}

/* `run` starts from the stored state each time; its outputs carry the new one. */
static void test_state(void **state)
{
    (void)state;
    tool_put("state.eqf", "(program s (dims (K 4)) (input x f32 (K)) (buffer t f32 (K))\n"
                          "  (output t (add t x) (K) :writes t))\n");
    expect(0, "$E optimize --budget 0.01 state.eqf -o state.pkg && $E run state.pkg --check -o a.safetensors && "
              "$E run state.pkg --check -o b.safetensors && cmp a.safetensors b.safetensors");
}

/* Symbolic sizes of an exported program: shown by name, fixed by --dim or by the shapes of inputs,
 * one that stands in an expression (2*s) included. */
static void test_symbolic(void **state)
{
    (void)state;
    char command[1000];
    snprintf(command, sizeof command, "$E inspect %s/fixtures/modules/dynamic_even.C.pt2 --json",
             EQF_TEST_DIR);
    expect(0, command);
    json_t *o = object();
    json_t *shape = json_object_get(json_array_get(json_object_get(o, "inputs"), 0), "shape");
    assert_true(json_is_string(json_array_get(shape, 0)));
    assert_true(json_is_integer(json_array_get(shape, 1)));
    json_decref(o);
    snprintf(command, sizeof command,
             "$E optimize --budget 0.01 %s/fixtures/modules/dynamic_even.C.pt2 -o even.pkg", EQF_TEST_DIR);
    expect_error(2, command, "--dim");
    /* An extent that no size gives, for every verb. */
    tool_put("odd.eqf", "(program odd (dims (M 11) (N 6)) (input a f32 (M N))\n"
                        "  (output x (mul a 2) (M N)))\n");
    expect(0, "$E optimize --budget 0.01 odd.eqf -o odd.pkg && $E run odd.pkg -o odd.safetensors");
    static const char *const verbs[] = {"inspect", "search", "optimize -o even.pkg"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        snprintf(command, sizeof command,
                 "$E %s %s/fixtures/modules/dynamic_even.C.pt2 --inputs odd.safetensors", verbs[i],
                 EQF_TEST_DIR);
        expect_error(1, command, "x: is f32 [11, 6], the program wants f32 [2*s44, 6]");
    }
    snprintf(command, sizeof command,
             "M=%s/fixtures/modules/dynamic_even; $E optimize --budget 0.01 $M.C.pt2 -o even.pkg --inputs "
             "$M.in.safetensors && $E run even.pkg -i $M.in.safetensors --check --source $M.T.pt2",
             EQF_TEST_DIR);
    expect(0, command);
}

/* An archive that is written to while its weights are mapped: an error that names it, no crash and
 * no package. The compiler is where the test comes in between. */
static void test_changed_archive(void **state)
{
    (void)state;
    char command[1000];
    tool_put("meddle.sh", "#!/bin/sh\ncase \"$*\" in *' -c '*) eval \"$MEDDLE\" ;; esac\n"
                          "exec cc \"$@\"\n");
    static const struct {
        const char *meddle, *options, *what;
    } cases[] = {
        {"truncate -s 300 now.pt2", "", "now.pt2: was written to"},
        {"touch now.pt2", "", "now.pt2: was written to"},
        {"printf x | dd of=now.pt2 bs=1 seek=90000 conv=notrunc status=none", "",
         "now.pt2: was written to"},
        {"touch now.pt2", "--parameters input", "now.pt2: was written to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command,
                 "chmod +x meddle.sh && cp %s/../examples/llama_block.pt2 now.pt2 && "
                 "export MEDDLE='%s' CC=./meddle.sh && $E optimize --budget 0.01 now.pt2 -o now.pkg %s",
                 EQF_TEST_DIR, cases[i].meddle, cases[i].options);
        expect_error(1, command, cases[i].what);
        expect(0, "test ! -e now.pkg");
    }
    /* Where this process itself reads what is gone. */
    expect(0, "$E optimize --budget 0.01 small.eqf -o now.pkg --parameters input && $E optimize --budget 0.01 w.eqf -o w.pkg && "
              "$E run w.pkg -o w.safetensors && rm -r now.pkg");
    expect_error(1, "cp w.safetensors now.safetensors && "
                    "export MEDDLE='truncate -s 0 now.safetensors' CC=./meddle.sh && "
                    "$E optimize --budget 0.01 small.eqf --weights now.safetensors --parameters input -o now.pkg",
                 "cut short");
    expect(0, "test ! -e now.pkg");
    /* Another file of its name does no harm. */
    snprintf(command, sizeof command,
             "cp %s/../examples/llama_block.pt2 now.pt2 && cp now.pt2 new.pt2 && "
             "export MEDDLE='cp now.pt2 new.pt2; mv new.pt2 now.pt2' CC=./meddle.sh && "
             "$E optimize --budget 0.01 now.pt2 -o now.pkg && $E run now.pkg --check",
             EQF_TEST_DIR);
    expect(0, command);
    expect(0, "rm -rf .now.pkg.* && $E optimize --budget 0.01 small.eqf -o now.pkg && "
              "test -z \"$(ls -d .now.pkg* 2>/dev/null)\"");
}

static void test_egraph(void **state)
{
    (void)state;
    expect(0, "$E egraph --help");
    assert_non_null(strstr(s.out, "egraph run"));
    expect(1, "$E egraph run nowhere.eqf");
    expect(2, "$E egraph frobnicate");
    tool_put("suite.eqf",
             "(case one (rules (rule r (f ?x) => (g ?x))) (term (f a)) (equal (f a) (g a)))\n"
             "(family two :from 1 :to 3 (columns n nodes) (row 2 9)\n"
             "  (term ($nest f $n a)) (size :nodes $nodes :classes $nodes))\n");
    expect(0, "$E egraph run suite.eqf --case one --proofs");
    assert_non_null(strstr(s.out, "2 proofs"));
    expect(4, "$E egraph run suite.eqf --json");
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "case")), "two-3");
    json_decref(o);
    expect(4, "$E egraph run suite.eqf --case two"); /* a family by its name */
    assert_null(strstr(s.out, "one"));
    assert_non_null(strstr(s.out, "two-1"));
    assert_non_null(strstr(s.out, "line 3: found 3 e-nodes in 3 classes, wanted 9 in 9"));
    expect(0, "$E egraph run suite.eqf --case two-7 --case one"); /* any member */
    expect_error(2, "$E egraph run suite.eqf --case two-x", "suite.eqf: two-x: no such case");
    tool_put("cycle.json", "{\"nodes\": {\"a\": {\"op\": \"f\", \"children\": [\"a\"], "
                           "\"eclass\": \"round\"}, \"b\": {\"op\": \"g\", \"eclass\": \"well\", "
                           "\"cost\": 2}}, \"root_eclasses\": [\"well\", \"round\"]}");
    expect_error(1, "$E egraph extract cycle.json", "cycle.json: round: ");
    tool_put("rootless.json", "{\"nodes\": {\"b\": {\"op\": \"g\", \"eclass\": \"1\"}}}");
    expect_error(1, "$E egraph extract rootless.json", "rootless.json: root_eclasses: ");
    tool_put("plain.json", "{\"nodes\": {\"b\": {\"op\": \"g\", \"eclass\": \"1\", \"cost\": 2}}, "
                           "\"root_eclasses\": [\"1\"]}");
    expect(0, "$E egraph extract plain.json --method exact");
    assert_non_null(strstr(s.out, "tree cost 2, DAG cost 2"));
}

/* The commands of an example's comment, after those that build. */
static void run_example(const char *name)
{
    char command[2000];
    snprintf(
        command, sizeof command,
        "S=%s/.. && mkdir -p tree && ln -sfn $(dirname $E) tree/build && "
        "ln -sfn $S/include tree/include && ln -sfn $S/examples tree/examples && cd tree && "
        "sed -n 's/^ [*]     //p' examples/c/%s.c >all.sh && "
        "grep -q 'cmake --build .*--target .*equiforge_shared$' all.sh && "
        "{ echo 'cc() { command %s -std=c99 -Wall -Wextra -Werror \"$@\"; }'; sed 1d all.sh; } >run.sh && "
        "sh -e run.sh",
        EQF_TEST_DIR, name, EQF_TEST_CC);
    expect(0, command);
}

static void test_c_egraph(void **state)
{
    (void)state;
    run_example("egraph");
    assert_non_null(strstr(s.out, "saturated after "));
    assert_non_null(strstr(s.out, ": (+ y y), cost 3\n"));
    assert_non_null(strstr(s.out, "steps, 0 assumed\n"));
    assert_non_null(strstr(s.out, "factor-rev reassoc "));
    expect(0, "cd tree && $E egraph extract egraph.json");
    assert_non_null(strstr(s.out, "dag: tree cost 3, DAG cost 2"));
    expect(0, "cd tree && ./egraph '(pow (+ 1 1) 2)'");
    assert_non_null(strstr(s.out, "1 assumed\n"));
    expect(1, "cd tree && ./egraph '(+ x'");
    assert_non_null(strstr(s.err, "egraph: 1:1: bracket is not closed\n"));
}

static void test_c_caller(void **state)
{
    (void)state;
    run_example("caller");
    assert_non_null(strstr(s.out, "y = 10 40 90 160, total = 300\n"
                                  "y = 10 40 90 160, total = 600\n"
                                  "y = 10 40 90 160, total = 900\n"));
    expect(1, "cd tree && ./caller nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_input_errors),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_replacing),
        cmocka_unit_test(test_seeded_parameters),
        cmocka_unit_test(test_nothing_faster),
        cmocka_unit_test(test_optimize_json),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_run_output),
        cmocka_unit_test(test_run_with_inputs),
        cmocka_unit_test(test_check_finds_differences),
        cmocka_unit_test(test_index_error),
        cmocka_unit_test(test_float_indices),
        cmocka_unit_test(test_machine_errors),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_symbolic),
        cmocka_unit_test(test_changed_archive),
        cmocka_unit_test(test_egraph),
        cmocka_unit_test(test_c_caller),
        cmocka_unit_test(test_c_egraph),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
