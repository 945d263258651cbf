/* The verb `search` from outside: what it prints, exit codes, JSON as the manual has it; rules of
 * users, limits, symbolic dims, boundaries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/tool.h"

static said s;

/* A product of three: cheaper from the right. */
static const char chain[] = "(program chain (dims (M 64) (K 32) (N 16) (P 3))\n"
                            "  (input X f32 (M K)) (input W f32 (K N)) (input V f32 (N P))\n"
                            "  (output Y (matmul (matmul X W) V) (M P)))\n";
/* Sound, and never at its end: x^2 = (x+1)^2 - 2x - 1. */
static const char endless[] =
    "(rule climb (square ?x) => (sub (square (add ?x 1)) (add (mul ?x 2) 1)) :fp reassoc)\n";

static int set_up(void **state)
{
    (void)state;
    strcpy(tool_folder, "/tmp/eqf-search-XXXXXX");
    if (!mkdtemp(tool_folder))
        return -1;
    tool_put("chain.eqf", chain);
    tool_put("square.eqf", "(program square (dims (M 16)) (input X f32 (M))\n"
                           "  (output Y (square X) (M)))\n");
    tool_put("neg.eqf", "(program neg (dims (M 16)) (input X f32 (M))\n"
                        "  (output Y (exp (neg X)) (M)))\n");
    tool_put("endless.rules", endless);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", tool_folder);
    return system(line);
}

/* The object on the last line of a command that exits with `code`. */
static json_t *object_of(const char *command, int code)
{
    char line[2000];
    snprintf(line, sizeof line, "$E search %s --json", command);
    if (tool(&s, line) != code)
        fail_msg("%s: exit %d, wanted %d: %s%s", line, s.code, code, s.out, s.err);
    json_t *x = json_loads(last_line(s.out), JSON_REJECT_DUPLICATES, NULL);
    if (!x)
        fail_msg("%s: no JSON: %s", line, s.out);
    return x;
}

static json_t *subgraph(json_t *x)
{
    return json_array_get(json_object_get(x, "subgraphs"), 0);
}

static json_int_t number(json_t *x, const char *key)
{
    json_t *value = json_object_get(x, key);
    if (!json_is_integer(value))
        fail_msg("%s is no integer", key);
    return json_integer_value(value);
}

static const char *text(json_t *x, const char *key)
{
    json_t *value = json_object_get(x, key);
    if (!json_is_string(value))
        fail_msg("%s is no text", key);
    return json_string_value(value);
}

static void expect_stop(const char *command, int code, const char *stop)
{
    json_t *x = object_of(command, code);
    assert_string_equal(text(subgraph(x), "stop"), stop);
    json_t *phases = json_object_get(subgraph(x), "phases"), *p;
    size_t i, early = 0;
    json_array_foreach(phases, i, p) {
        bool is_complete = strcmp(text(p, "stop"), "saturated") == 0;
        if (!is_complete)
            assert_string_equal(text(p, "stop"), stop);
        early += !is_complete;
    }
    assert_int_equal(early > 0, i > 0 && strcmp(stop, "saturated") != 0);
    json_decref(x);
}

static void test_json(void **state)
{
    (void)state;
    static const char *const names[] = {"program", "algebra", "tiling", "fusion"};
    json_t *x = object_of("chain.eqf", 0), *g = subgraph(x);
    assert_int_equal(json_array_size(json_object_get(x, "subgraphs")), 1);
    assert_int_equal(strlen(text(g, "hash")), 32);
    assert_int_equal(number(g, "uses"), 1);
    assert_string_equal(text(g, "stop"), "saturated");
    assert_true(json_is_number(json_object_get(g, "saturate_s")));
    assert_null(json_object_get(g, "form"));
    json_t *phases = json_object_get(g, "phases");
    assert_int_equal(json_array_size(phases), 4);
    json_int_t iterations = 0, matches = 0, enodes = 0;
    for (size_t i = 0; i < 4; i++) {
        json_t *p = json_array_get(phases, i);
        assert_string_equal(text(p, "name"), names[i]);
        assert_true(number(p, "enodes") >= enodes); /* saturation only adds */
        enodes = number(p, "enodes");
        iterations += number(p, "iterations");
        matches += number(p, "matches");
    }
    assert_int_equal(number(json_array_get(phases, 0), "enodes"), 5); /* X, W, V, two products */
    assert_true(number(json_array_get(phases, 1), "enodes") > 5);
    assert_int_equal(number(g, "enodes"), enodes);
    assert_int_equal(number(g, "iterations"), iterations);
    assert_int_equal(number(g, "matches"), matches);
    json_t *rules = json_object_get(g, "rules"), *r;
    const char *name;
    json_int_t sum = 0;
    double seconds = 0;
    json_object_foreach(rules, name, r) {
        sum += number(r, "matches");
        assert_true(number(r, "applied") <= number(r, "matches"));
        seconds += json_number_value(json_object_get(r, "seconds"));
    }
    assert_true(seconds > 0);
    assert_true(seconds <= json_number_value(json_object_get(g, "saturate_s")));
    assert_true(number(json_object_get(rules, "view.matmul"), "enodes") > 0);
    assert_int_equal(sum, matches); /* every match is some rule's, and counted once */
    assert_true(number(json_object_get(rules, "matmul-associates"), "applied") > 0);
    json_decref(x);
}

/* A long dim that leaves threads idle is also done in parts, as many as threads; its candidates are
 * among the others. */
static void test_split(void **state)
{
    (void)state;
    tool_put("long.eqf", "(program long (dims (M 2) (K 262144))\n  (input X f32 (M K))\n"
                         "  (let m (reduce max X :axis K))\n"
                         "  (output Y (log (reduce + (exp (sub X m)) :axis K)) (M)))\n");
    static const struct {
        const char *options, *split; /* NULL: none */
    } cases[] = {{"--limit 200", "K in 8 parts"},
                 {"--threads 4 --limit 200", "K in 4 parts"},
                 {"--threads 1", NULL}, /* two rows are enough work for one */
                 {"--order paper --limit 2", NULL},
                 {"--refine subsets --limit 2", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[200];
        snprintf(command, sizeof command, "long.eqf %s", cases[i].options);
        json_t *x = object_of(command, 0), *g = subgraph(x), *p, *c;
        size_t k, split = 0, forms = 0;
        json_array_foreach(json_object_get(g, "phases"), k, p)
        {
            bool is_split = text(p, "split")[0] != 0;
            assert_string_equal(text(p, "split"), is_split ? cases[i].split : "");
            split += is_split;
        }
        assert_int_equal(split, cases[i].split ? 4 : 0);
        json_array_foreach(json_object_get(g, "candidates"), k, c)
            forms += strstr(text(c, "form"), "(split ") != NULL;
        if ((forms > 0) != (cases[i].split != NULL))
            fail_msg("%s: %zu candidates with a split", command, forms);
        json_decref(x);
    }
}

/* What is printed does not depend on anything but the program, times aside. */
static void test_table(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "$E search chain.eqf"), 0);
    static const char *const wanted[] = {"subgraph ", "phase", "algebra", "tiling", "fusion",
                                         "saturated", "matmul-associates"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(s.out, wanted[i]))
            fail_msg("%s is not in %s", wanted[i], s.out);
    assert_string_equal(s.err, "");
}

/* The last `size` bytes of a file. */
static void read_data(const char *name, void *to, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", tool_folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, -(long)size, SEEK_END) != 0 || fread(to, 1, size, f) != size)
        fail_msg("%s: too short", name);
    fclose(f);
}

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(tool(&s, "$E search chain.eqf --print tensors >form.eqf && "
                              "$E inspect form.eqf --text >again.eqf && cmp form.eqf again.eqf && "
                              "$E inspect chain.eqf --json && $E inspect form.eqf --json"),
                     0);
    json_t *better = json_loads(last_line(s.out), 0, NULL);
    json_t *x = object_of("chain.eqf --print tensors", 0), *g = subgraph(x);
    double flops = json_number_value(json_object_get(g, "form_flops"));
    assert_true(flops == 2.0 * 32 * 16 * 3 + 2.0 * 64 * 32 * 3); /* W V first */
    assert_true(json_number_value(json_object_get(g, "flops")) ==
                2.0 * 64 * 32 * 16 + 2.0 * 64 * 16 * 3);
    assert_true((double)number(better, "flops") == flops);
    assert_non_null(strstr(text(g, "form"), "(program chain"));
    json_decref(better);
    json_decref(x);
    /* The form computes what the program does. */
    assert_int_equal(tool(&s, "$E optimize chain.eqf -o a.pkg && $E optimize form.eqf -o b.pkg && "
                              "$E run a.pkg -o a.safetensors && $E run b.pkg -o b.safetensors"),
                     0);
    float a[64 * 3], b[64 * 3];
    double difference = 0, size = 0;
    read_data("a.safetensors", a, sizeof a);
    read_data("b.safetensors", b, sizeof b);
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
        difference += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)a[i] * (double)a[i];
    }
    assert_true(size > 0 && difference <= 1e-10 * size);
}

/* What is at `key` in each of the first subgraph's candidates, as one text. */
static char *all_of(const char *command, const char *key)
{
    json_t *x = object_of(command, 0), *c, *list = json_array();
    size_t i;
    json_array_foreach(json_object_get(subgraph(x), "candidates"), i, c)
        json_array_append(list, json_object_get(c, key));
    char *out = json_dumps(list, 0);
    json_decref(list);
    json_decref(x);
    return out;
}

static const char softmax[] = "(program rows (dims (M 16) (K 64) (N 8))\n"
                              "  (input X f32 (M K)) (parameter W f32 (K N))\n"
                              "  (let e (exp (sub X (reduce max X :axis K))))\n"
                              "  (output Y (matmul (div e (reduce + e :axis K)) W) (M N)))\n";

static void test_candidates(void **state)
{
    (void)state;
    tool_put("rows.eqf", softmax);
    json_t *x = object_of("rows.eqf --limit 5", 0), *g = subgraph(x), *c;
    json_t *extract = json_object_get(g, "extract"), *candidates = json_object_get(g, "candidates");
    assert_string_equal(text(extract, "mode"), "early");
    assert_true(json_is_true(json_object_get(extract, "complete")));
    assert_true(number(extract, "expanded") >= number(extract, "structures"));
    assert_true(number(extract, "pruned") >= 0);
    assert_true(number(extract, "candidates") >= number(extract, "structures"));
    assert_true(json_is_real(json_object_get(extract, "seconds")));
    assert_int_equal(json_array_size(candidates), 5);
    size_t i;
    bool rolls = false;
    json_array_foreach(candidates, i, c) {
        assert_int_equal(number(c, "id"), i);
        assert_true(number(c, "kernels") >= 1);
        assert_true(json_number_value(json_object_get(c, "flops")) > 0);
        assert_true(json_number_value(json_object_get(c, "bytes")) >= 4 * (16 * 64 + 64 * 8 + 16 * 8));
        assert_true(json_number_value(json_object_get(c, "bound_us")) > 0);
        json_t *reductions = json_object_get(c, "reductions"), *r;
        assert_true(json_array_size(reductions) > 0);
        assert_int_equal(json_array_size(json_object_get(c, "over")), json_array_size(reductions));
        size_t k;
        json_array_foreach(reductions, k, r)
            rolls |= strncmp(json_string_value(r), "rolling(max,+", 13) == 0;
        assert_ptr_equal(strstr(text(c, "form"), "(program rows"), text(c, "form"));
    }
    assert_true(rolls);
    json_decref(x);
    assert_int_equal(tool(&s, "$E search rows.eqf --limit 5"), 0);
    assert_non_null(strstr(s.out, "extraction (early)"));
    assert_non_null(strstr(s.out, "rolling(max,+"));
    /* A list is the beginning of a longer one. */
    char *five = all_of("rows.eqf --limit 5 --mode none", "kernels");
    assert_non_null(strchr(five, ','));
    free(five);
}

/* What is left out is left out at whatever time; without, there is more. */
static void test_modes(void **state)
{
    (void)state;
    static const char statistics[] = EQF_TEST_DIR "/rules/programs/row_statistics.eqf";
    char command[400];
    json_int_t structures[3], expanded[3];
    char *forms[3];
    static const char *const modes[] = {"early", "after", "none"};
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "%s --mode %s --limit 30", statistics, modes[i]);
        json_t *x = object_of(command, 0), *extract = json_object_get(subgraph(x), "extract");
        assert_string_equal(text(extract, "mode"), modes[i]);
        structures[i] = number(extract, "structures");
        expanded[i] = number(extract, "expanded");
        json_decref(x);
        forms[i] = all_of(command, "form");
    }
    assert_int_equal(structures[0], structures[1]);
    assert_true(structures[2] > structures[0]);
    assert_true(expanded[1] > expanded[0]);
    assert_string_equal(forms[0], forms[1]);
    for (int i = 0; i < 3; i++)
        free(forms[i]);
    /* Other cuts are forms more, and the same candidates: those cut along all axes. */
    char *first = all_of("rows.eqf --limit 50", "form");
    char *second = all_of("rows.eqf --limit 50 --refine subsets", "form");
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "(program"));
    free(first);
    free(second);
    json_t *maximal = object_of("rows.eqf", 0), *subsets = object_of("rows.eqf --refine subsets", 0);
    assert_true(number(subgraph(subsets), "enodes") > number(subgraph(maximal), "enodes"));
    json_decref(maximal);
    json_decref(subsets);
}

/* The paper's order: every selection of e-nodes, in an e-graph with all bundles. What is left out early is
 * left out at the end, after many times as many states. */
static void test_paper(void **state)
{
    (void)state;
    static const char mlp[] = EQF_TEST_DIR "/rules/programs/rmsnorm_mlp.eqf";
    static const char *const modes[] = {"early", "after"};
    char command[400];
    json_int_t selections[2], expanded[2];
    char *bounds[2];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s --order paper --mode %s --limit 1000", mlp, modes[i]);
        json_t *x = object_of(command, 0), *extract = json_object_get(subgraph(x), "extract");
        assert_string_equal(text(extract, "mode"), modes[i]);
        assert_true(json_is_true(json_object_get(extract, "complete")));
        selections[i] = number(extract, "structures");
        expanded[i] = number(extract, "expanded");
        assert_int_equal(number(extract, "candidates"), selections[i]);
        json_decref(x);
        bounds[i] = all_of(command, "bound_us");
    }
    assert_true(selections[0] > 50 && selections[0] == selections[1]);
    assert_true(expanded[1] > 5 * expanded[0]);
    assert_string_equal(bounds[0], bounds[1]);
    for (int i = 0; i < 2; i++)
        free(bounds[i]);
    snprintf(command, sizeof command, "$E search %s --order paper --print forms --limit 1 >form.eqf && "
                                      "$E inspect form.eqf", mlp);
    assert_int_equal(tool(&s, command), 0);
    static const char *const fuses[] = {"--fuse late", "--fuse node", "--fuse all", "--order paper",
                                        "--order paper --fuse late"};
    json_int_t enodes[5];
    for (int i = 0; i < 5; i++) {
        snprintf(command, sizeof command, "%s %s", mlp, fuses[i]);
        json_t *x = object_of(command, 0);
        assert_string_equal(text(subgraph(x), "stop"), "saturated");
        enodes[i] = number(subgraph(x), "enodes");
        json_decref(x);
    }
    assert_true(enodes[0] < enodes[1] && enodes[1] <= enodes[2]);
    assert_int_equal(enodes[2], enodes[3]);
    assert_int_equal(enodes[0], enodes[4]);
    assert_int_equal(tool(&s, "$E search rows.eqf --order worst"), 2);
    assert_int_equal(tool(&s, "$E search rows.eqf --fuse every"), 2);
}

/* The text of a candidate is a program, and computes the same; kernels are printed as kernel IR. */
static void test_texts(void **state)
{
    (void)state;
    tool_put("rows.eqf", softmax);
    assert_int_equal(tool(&s, "$E search rows.eqf --print forms --limit 1 >best.eqf && "
                              "$E optimize rows.eqf -o c.pkg --budget 1s && "
                              "$E optimize best.eqf -o d.pkg --budget 1s && "
                              "$E run c.pkg -o c.safetensors && $E run d.pkg -o d.safetensors"),
                     0);
    float a[16 * 8], b[16 * 8];
    double difference = 0, size = 0;
    read_data("c.safetensors", a, sizeof a);
    read_data("d.safetensors", b, sizeof b);
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
        difference += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)a[i] * (double)a[i];
    }
    assert_true(size > 0 && difference <= 1e-10 * size);
    assert_int_equal(tool(&s, "$E search rows.eqf --print kernels --limit 2"), 0);
    int kernels = 0, candidates = 0;
    for (const char *at = s.out; (at = strstr(at, "\n(kernel ")) != NULL; at++)
        kernels++;
    for (const char *at = s.out; (at = strstr(at, ", candidate ")) != NULL; at++)
        candidates++;
    assert_int_equal(candidates, 2);
    assert_true(kernels >= 2);
    char *texts = all_of("rows.eqf --print kernels --limit 1", "kernel_text");
    assert_non_null(strstr(texts, "(kernel "));
    free(texts);
    /* An operator that nothing runs has no kernel. */
    tool_put("strange.eqf", "(program strange (dims (M 16)) (input X f32 (M))\n"
                            "  (output Y (exp (opaque X :name f :dtype f32 :to {M} :ints (0))) (M)))\n");
    assert_int_equal(tool(&s, "$E search strange.eqf --print kernels"), 0);
    assert_non_null(strstr(s.out, "no kernel"));
}

static void test_accuracy_and_parameters(void **state)
{
    (void)state;
    tool_put("weights.eqf", "(program weights (dims (M 4) (K 32) (N 16) (P 32))\n"
                            "  (input X f32 (M K)) (parameter W f32 (K N)) (parameter V f32 (N P))\n"
                            "  (output Y (matmul (matmul X W) V) (M P)))\n");
    json_t *folded = object_of("weights.eqf --print tensors", 0);
    json_t *kept = object_of("weights.eqf --print tensors --parameters input", 0);
    double folds = json_number_value(json_object_get(subgraph(folded), "form_flops"));
    double keeps = json_number_value(json_object_get(subgraph(kept), "form_flops"));
    assert_true(folds == 2.0 * 4 * 32 * 32); /* W V is computed once */
    assert_true(keeps == 2.0 * 4 * 32 * 16 + 2.0 * 4 * 16 * 32);
    json_decref(folded);
    json_decref(kept);
    tool_put("rough.rules", "(rule rough (neg (neg ?x)) => ?x :fp approx)\n");
    tool_put("twice.eqf", "(program twice (dims (M 16)) (input X f32 (M))\n"
                          "  (output Y (exp (neg (neg X))) (M)))\n");
    static const struct {
        const char *accuracy;
        bool is_used;
    } rows[] = {{"strict", false}, {"default", false}, {"fast", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char command[200];
        snprintf(command, sizeof command, "twice.eqf --rules rough.rules --accuracy %s",
                 rows[i].accuracy);
        json_t *x = object_of(command, 0);
        json_t *rule = json_object_get(json_object_get(subgraph(x), "rules"), "rough");
        assert_true((rule != NULL) == rows[i].is_used);
        json_decref(x);
    }
}

/* Limits are reasons to stop, not errors. */
static void test_limits(void **state)
{
    (void)state;
    expect_stop("square.eqf --rules endless.rules --enodes 500", 0, "nodes");
    expect_stop("square.eqf --rules endless.rules --enodes 100000000 --budget 0.2s", 0, "time");
    expect_stop("chain.eqf --enodes 1", 0, "nodes");
    json_t *x = object_of("square.eqf --rules endless.rules --enodes 500 --print tensors", 0);
    assert_non_null(strstr(text(subgraph(x), "form"), "(square X)"));
    /* rules that do not end leave room for tiles: there is something to choose from */
    assert_true(json_array_size(json_object_get(subgraph(x), "candidates")) > 0);
    json_decref(x);
}

static void test_interrupt(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        char command[300];
        snprintf(command, sizeof command,
                 "$E search square.eqf --rules endless.rules --enodes 100000000 --budget 1h %s & "
                 "p=$!; sleep 1; kill -INT $p; wait $p",
                 json ? "--json" : "");
        if (tool(&s, command) != 130)
            fail_msg("exit %d: %s", s.code, s.err);
        assert_string_equal(s.err, "equiforge: interrupted\n");
        assert_non_null(strstr(s.out, "cancelled"));
        json_t *x = json ? json_loads(last_line(s.out), 0, NULL) : NULL;
        if (json)
            assert_string_equal(text(subgraph(x), "stop"), "cancelled");
        json_decref(x);
    }
}

/* A file of rules is used as a whole, or refused with the first of its faults. */
static void test_rules(void **state)
{
    (void)state;
    tool_put("bad.rules", "(rule good (neg (neg ?x)) => ?x :fp exact)\n"
                          "(rule bad (neg ?x) => ?x :fp exact)\n");
    tool_put("ugly.rules", "(rule ugly (neg ?x) => ?y :fp exact)\n"
                           "(rule bad (neg ?x) => ?x :fp exact)\n");
    tool_put("rare.rules", "(rule never (neg ?x) => ?x :when (and (some ?x) (scalar ?x)) "
                           ":fp exact)\n");
    tool_put("broken.rules", "(rule a\n(");
    static const struct {
        const char *files, *says[3];
    } refused[] = {
        {"--rules bad.rules", {"bad.rules: 2:", "bad is unsound: ", "left "}},
        {"--rules rare.rules --rules bad.rules", {"bad.rules: 2:", "bad is unsound: "}},
        {"--rules ugly.rules", {"ugly.rules: 1:24: ugly is rejected: ", "?y", "and 1 more"}},
        {"--rules broken.rules", {"broken.rules: "}},
        {"--rules broken.rules --force", {"broken.rules: "}},
        {"--rules absent.rules", {"absent.rules: "}},
        /* two of one name, within a file or across them */
        {"--rules endless.rules --rules endless.rules", {"endless.rules: 1:", "climb"}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char command[200];
        snprintf(command, sizeof command, "neg.eqf %s", refused[i].files);
        json_t *x = object_of(command, 1);
        assert_non_null(json_object_get(x, "error"));
        for (int k = 0; k < 3 && refused[i].says[k]; k++)
            if (!strstr(s.err, refused[i].says[k]))
                fail_msg("%s: %s: no %s", command, s.err, refused[i].says[k]);
        assert_ptr_equal(strchr(s.err, '\n'), s.err + strlen(s.err) - 1); /* one line */
        json_decref(x);
    }
    /* What nobody can test is not unsound. */
    json_decref(object_of("neg.eqf --rules rare.rules", 0));
    /* Forced: the unsound rule is used, the ill-typed one is not. */
    static const char *const forced[] = {"bad.rules", "ugly.rules"};
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++) {
        char command[200];
        snprintf(command, sizeof command, "neg.eqf --rules %s --force --print tensors", forced[i]);
        json_t *x = object_of(command, 0);
        json_t *rules = json_object_get(subgraph(x), "rules");
        assert_true(number(json_object_get(rules, "bad"), "applied") > 0);
        assert_null(json_object_get(rules, "ugly"));
        assert_non_null(strstr(text(subgraph(x), "form"), "(exp X)"));
        json_decref(x);
    }
}

/* Rules that were forced may say that two numbers are equal: an error of the input. */
static void test_contradiction(void **state)
{
    (void)state;
    tool_put("two.eqf", "(program two (dims (M 16)) (input X f32 (M))\n"
                        "  (output Y (mul X (exp (const f32 2.0))) (M)))\n");
    tool_put("numbers.rules", "(rule three (exp 2) => 3 :fp exact)\n"
                              "(rule four (exp 2) => 4 :fp exact)\n");
    json_t *x = object_of("two.eqf --rules numbers.rules --force", 1);
    json_t *error = json_object_get(x, "error");
    assert_string_equal(text(error, "code"), "EQF_E_CONTRADICTION");
    assert_string_equal(text(error, "file"), "two.eqf");
    assert_non_null(strstr(text(error, "reason"), "= 3"));
    assert_non_null(strstr(text(error, "reason"), "= 4"));
    json_decref(x);
}

static void test_symbolic_dims(void **state)
{
    (void)state;
    static const char form[] = EQF_TEST_DIR "/fixtures/modules/dynamic_batch.C.pt2";
    char command[500];
    json_decref(object_of(form, 2));
    assert_non_null(strstr(s.err, "--dim s77="));
    for (int n = 3; n < 9; n += 5) { /* the sizes of the e-graph are those of no batch size */
        snprintf(command, sizeof command, "%s --dim s77=%d", form, n);
        json_t *x = object_of(command, 0);
        assert_string_equal(text(subgraph(x), "stop"), "saturated");
        json_decref(x);
    }
    snprintf(command, sizeof command, "%s --inputs %s/fixtures/modules/dynamic_batch.in.safetensors",
             form, EQF_TEST_DIR);
    json_decref(object_of(command, 0));
    snprintf(command, sizeof command, "%s --dim s78=4", form);
    json_decref(object_of(command, 2));
}

/* An operator without meaning is kept as it is; what stands around it is searched. */
static void test_boundaries(void **state)
{
    (void)state;
    tool_put("around.eqf", "(program around (dims (M 64) (K 32) (N 16) (P 3))\n"
                           "  (input X f32 (M K)) (input W f32 (K N)) (input V f32 (N P))\n"
                           "  (let t (opaque (matmul (matmul X W) V) :name f :dtype f32 "
                           ":to {M P} :ints (0)))\n"
                           "  (output Y (reduce + (exp (neg (neg t))) :axis P) (M)))\n");
    json_t *x = object_of("around.eqf --print tensors", 0), *g = subgraph(x);
    assert_string_equal(text(g, "stop"), "saturated");
    assert_non_null(strstr(text(g, "form"), "(opaque"));
    assert_true(json_number_value(json_object_get(g, "form_flops")) <
                json_number_value(json_object_get(g, "flops")));
    /* Both sides are tiled: the operand along M, P and the sums, the result along M and P. */
    json_t *rules = json_object_get(g, "rules");
    assert_true(number(json_object_get(rules, "view.matmul"), "applied") > 0);
    assert_true(number(json_object_get(rules, "view.exp"), "applied") > 0);
    assert_null(json_object_get(rules, "view.opaque"));
    json_decref(x);
    /* And one that only a plain kernel runs. */
    json_decref(object_of(EQF_TEST_DIR "/fixtures/modules/cache_copy_slice.C.pt2", 0));
}

/* `operator`, with a %d for the number, on each of n inputs of one dim each. */
static void put_wide(const char *name, int n, const char *operator, const char *dims)
{
    char program[32768], *at = program, *end = program + sizeof program;
    at += snprintf(at, (size_t)(end - at), "(program wide (dims");
    for (int i = 0; i < n; i++)
        at += snprintf(at, (size_t)(end - at), " (D%d %d)", i, i + 2);
    at += snprintf(at, (size_t)(end - at), ")\n");
    for (int i = 0; i < n; i++)
        at += snprintf(at, (size_t)(end - at), "(input X%d f32 (D%d))\n", i, i);
    for (int i = 0; i < n; i++) {
        char term[100], ports[20];
        snprintf(term, sizeof term, operator, i, i);
        snprintf(ports, sizeof ports, dims, i);
        at += snprintf(at, (size_t)(end - at), "(output Y%d %s %s)\n", i, term, ports);
    }
    snprintf(at, (size_t)(end - at), ")\n");
    tool_put(name, program);
}

/* What a program may be without any operator, or with more dims than one e-graph holds. */
static void test_sizes(void **state)
{
    (void)state;
    tool_put("same.eqf", "(program same (dims (M 16)) (input X f32 (M)) (output Y X (M)))\n");
    expect_stop("same.eqf --fuse node", 0, "saturated");
    tool_put("scalar.eqf", "(program scalar (input X f32 ()) (output Y (exp X) ()))\n");
    expect_stop("scalar.eqf --fuse node", 0, "saturated");
    for (int n = 64; n <= 65; n++) {
        put_wide("many.eqf", n, "(reduce max X%d :axis D%d)", "()");
        json_t *x = object_of("many.eqf", 0), *parts = json_object_get(x, "subgraphs"), *part;
        size_t k;
        assert_true(json_array_size(parts) > 1);
        json_array_foreach(parts, k, part)
            assert_string_equal(text(part, "stop"), "saturated");
        json_decref(x);
    }
    /* Nothing to cut: reported, not refused. */
    put_wide("copies.eqf", 65, "X%d", "(D%d)");
    json_t *x = object_of("copies.eqf", 0);
    assert_string_equal(text(subgraph(x), "stop"), "dims");
    assert_int_equal(json_array_size(json_object_get(subgraph(x), "phases")), 0);
    json_decref(x);
}

/* Equal layers are one subgraph, and the same one as in a program of one layer. */
static void test_layers(void **state)
{
    (void)state;
    json_t *one = object_of(EQF_TEST_DIR "/rules/programs/decoder_layer.eqf", 0);
    json_t *four = object_of(EQF_TEST_DIR "/rules/programs/decoder_layers_4.eqf", 0);
    assert_int_equal(json_array_size(json_object_get(one, "subgraphs")), 1);
    assert_int_equal(json_array_size(json_object_get(four, "subgraphs")), 1);
    assert_int_equal(number(subgraph(one), "uses"), 1);
    assert_int_equal(number(subgraph(four), "uses"), 4);
    assert_string_equal(text(subgraph(one), "hash"), text(subgraph(four), "hash"));
    assert_int_equal(number(subgraph(one), "enodes"), number(subgraph(four), "enodes"));
    assert_int_equal(number(subgraph(one), "matches"), number(subgraph(four), "matches"));
    json_decref(one);
    json_decref(four);
}

/* Kernels of the candidate that has fewest, of a program with one subgraph. */
static json_int_t fewest_kernels(const char *module, char form)
{
    char command[1000];
    snprintf(command, sizeof command, "%s/fixtures/modules/%s.%c.pt2 --threads 2", EQF_TEST_DIR, module, form);
    json_t *x = object_of(command, 0), *list = json_object_get(subgraph(x), "candidates"), *c;
    json_int_t fewest = 0;
    size_t i;
    json_array_foreach(list, i, c)
    {
        json_int_t n = number(c, "kernels");
        fewest = i == 0 || n < fewest ? n : fewest;
    }
    json_decref(x);
    return fewest;
}

/* Exported modules in half types need no more kernels than those in f32, whatever the form has of casts. */
static void test_half_twins(void **state)
{
    (void)state;
    static const struct {
        const char *half, *wide; /* NULL: one kernel */
    } twins[] = {
        {"lora_bf16", "lora"},           {"rmsnorm_swiglu_bf16", "rmsnorm_swiglu"},
        {"gated_mlp_f16", "gated_mlp"},  {"llama_block_bf16", "llama_block"},
        {"gemma_block_bf16", "gemma_block"}, {"attn_gqa_decode_bf16", NULL},
        {"attn_prefill_f16", NULL},      {"layernorm_f16", NULL},
        {"rmsnorm_bf16_torch", NULL},    {"rmsnorm_bf16_cast_before_gain", NULL},
        {"rmsnorm_bf16_cast_after_gain", NULL},
    };
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        for (const char *form = "FC"; *form; form++) {
            json_int_t wide = twins[i].wide ? fewest_kernels(twins[i].wide, *form) : 1;
            json_int_t half = fewest_kernels(twins[i].half, *form);
            if (half > wide) /* which forms of a layer are listed follows the traffic, so there may be fewer */
                fail_msg("%s.%c: %lld kernels, in f32 %lld", twins[i].half, *form, (long long)half, (long long)wide);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_accuracy_and_parameters),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_contradiction),
        cmocka_unit_test(test_symbolic_dims),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_half_twins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
