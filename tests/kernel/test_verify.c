/* The verifier: a correct kernel with one thing changed must be refused, with the right reason. The
 * reader: malformed text is refused with its place. */
#include "ir/check.h"
#include "kernel/kernel.h"

/* Rows of 8 summed with two accumulators of 4, a scaled copy in chunks of 4 with a ragged end, and a
 * dot; 3 parts. */
static const char TEXT[] =
    "(kernel k\n"
    "  (buffers (in f32 24) (out f32 3) (out f32 18) (into f32 12) (local f32 8) (in i64 6))\n"
    "  (grid 3)\n"
    "  (state v1 f32 [4] () :sub +)\n"
    "  (loop - - [] (v1) :var 2 :from (0) :range [2 4 0] :carried (v2) :yield (v4)\n"
    "    (load v3 f32 [4] () :buffer 0 :at (0 (1 8) (2 1)) :stride [1])\n"
    "    (combine v4 f32 [4] (v2 v3) :sub +)\n"
    "  )\n"
    "  (get v5 f32 [4] () :var 2)\n"
    "  (reduce v6 f32 [] (v5) :sub +)\n"
    "  (store - f32 [] (v6) :buffer 1 :at (0 (1 1)))\n"
    "  (loop - - [] () :var 3 :from (0) :range [2 4 0] :carried () :yield ()\n"
    "    (load v7 f32 [4] () :buffer 0 :at (0 (1 8) (3 1)) :stride [1] :live [(6 (0 (3 1)))])\n"
    "    (ew v8 f32 [4] (v7) :sub neg)\n"
    "    (store - f32 [4] (v8) :buffer 2 :at (0 (1 6) (3 1)) :stride [1] :live [(6 (0 (3 1)))])\n"
    "  )\n"
    "  (load v9 f32 [8] () :buffer 0 :at (0 (1 8)) :stride [1])\n"
    "  (store - f32 [8] (v9) :buffer 4 :stride [1])\n"
    "  (state v10 f32 [2 2] () :sub +)\n"
    "  (ref v11 f32 [2 4] () :buffer 4 :stride [4 1])\n"
    "  (ref v12 f32 [4 2] () :buffer 4 :stride [2 1])\n"
    "  (dot v13 f32 [2 2] (v10 v11 v12) :sub fma)\n"
    "  (store - f32 [2 2] (v13) :buffer 3 :at (0 (1 4)) :stride [2 1])\n"
    "  (load v14 i64 [2] () :buffer 5 :at (0 (1 2)) :stride [1])\n"
    "  (gather v15 f32 [2] (v14) :buffer 0 :stride [0] :index [8] :extent [3])\n"
    ")\n";

/* A product by matrix instructions. */
static const char TILES[] =
    "(kernel k\n"
    "  (buffers (in bf16 4096) (in bf16 4096) (out f32 640))\n"
    "  (grid)\n"
    "  (state v1 f32 [20 32] () :sub +)\n"
    "  (ref v2 bf16 [2 20 32] () :buffer 0 :stride [32 64 1])\n"
    "  (ref v3 bf16 [32 32 2] () :buffer 1 :stride [64 2 1])\n"
    "  (dot v4 f32 [20 32] (v1 v2 v3) :sub tiles)\n"
    "  (store - f32 [20 32] (v4) :buffer 2 :stride [32 1])\n"
    ")\n";

/* The text with one occurrence of `from` replaced. */
static char *changed_in(fixture *f, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    return arena_printf(f->a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static char *changed(fixture *f, const char *from, const char *to)
{
    return changed_in(f, TEXT, from, to);
}

static void verify_text(fixture *f, const void *arg)
{
    const char *text = arg;
    kn_kernel *k = kn_read(f->a, "kernel", text, (i64)strlen(text));
    kn_verify(f->ctx, k);
}

typedef struct mutation {
    const char *from, *to, *message;
} mutation;

/* Each of them is a mistake. */
static void refuse_all(fixture *f, const char *text, const mutation *cases, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        if (attempt(f, verify_text, changed_in(f, text, cases[i].from, cases[i].to)) == EQF_OK)
            fail_msg("accepted: %s", cases[i].to);
        eqf_diag d = last_diag(f);
        if (!strstr(d.message, cases[i].message))
            fail_msg("\"%s\" for %s, wanted \"%s\"", d.message, cases[i].to, cases[i].message);
        eqf_ctx_clear(f->ctx);
    }
}

static void test_correct(void **state)
{
    fixture *f = *state;
    run_fine(f, verify_text, TEXT);
    kn_kernel *k = kn_read(f->a, "kernel", TEXT, (i64)strlen(TEXT));
    str s = str_new(f->a);
    kn_print(&s, k);
    assert_string_equal(s.at, TEXT);

    f32 in[24], sums[3], copies[18], products[12];
    i64 index[6] = {0, 1, 2, 0, 1, 2};
    for (int i = 0; i < 24; i++)
        in[i] = (f32)i;
    void *args[] = {in, sums, copies, products, index};
    assert_int_equal(kn_run(f->ctx, k, args, 0, 3), 0);
    assert_true(sums[0] == 28 && sums[2] == 156 && copies[0] == 0 && copies[11] == -13);
    /* [[8 9 10 11] [12 13 14 15]] x [[8 9] [10 11] [12 13] [14 15]] */
    assert_true(products[4] == 428 && products[7] == 658);
    index[5] = 3;
    assert_int_equal(kn_run(f->ctx, k, args, 0, 3), 3);
}

/* Iterations that meet no span are left out: of part 0 the first, of part 2 the second (spans [5, 100),
 * [2, 51), [-1, 2)). */
static void test_spans(void **state)
{
    fixture *f = *state;
    const char *text = changed(f, ":range [2 4 0] :carried (v2)",
                               ":range [2 4 0] :spans (((5 (1 -3)) (100 (1 -49)))) :carried (v2)");
    run_fine(f, verify_text, text);
    kn_kernel *k = kn_read(f->a, "kernel", text, (i64)strlen(text));
    str s = str_new(f->a);
    kn_print(&s, k);
    assert_string_equal(s.at, text);
    f32 in[24], sums[3], copies[18], products[12];
    i64 index[6] = {0};
    for (int i = 0; i < 24; i++)
        in[i] = (f32)i;
    void *args[] = {in, sums, copies, products, index};
    assert_int_equal(kn_run(f->ctx, k, args, 0, 3), 0);
    assert_true(sums[0] == 4 + 5 + 6 + 7 && sums[1] == 92 && sums[2] == 16 + 17 + 18 + 19);
}

/* A value that keeps only itself going, what reads it, and a loop that is left with nothing go; a
 * gather, whose index may be wrong, stays. */
static void test_pruned(void **state)
{
    fixture *f = *state;
    static const char before[] =
        "(kernel k\n"
        "  (buffers (in f32 8) (out f32 4) (in i64 4))\n"
        "  (grid)\n"
        "  (state v1 f32 [4] () :sub +)\n"
        "  (state v2 f32 [4] () :sub max)\n"
        "  (loop - - [] (v2 v1) :var 1 :from (0) :range [2 4 0] :carried (v3 v4) :yield (v6 v7)\n"
        "    (load v5 f32 [4] () :buffer 0 :at (0 (1 1)) :stride [1])\n"
        "    (combine v6 f32 [4] (v3 v5) :sub max)\n"
        "    (combine v7 f32 [4] (v4 v5) :sub +)\n"
        "  )\n"
        "  (get v8 f32 [4] () :var 1)\n"
        "  (get v9 f32 [4] () :axis 1 :var 1)\n"
        "  (ew v10 f32 [4] (v8) :sub neg)\n"
        "  (loop - - [] (v10) :var 2 :from (0) :range [2 4 0] :carried (v11) :yield (v12)\n"
        "    (ew v12 f32 [4] (v11) :sub neg)\n"
        "  )\n"
        "  (get v13 f32 [4] () :var 2)\n"
        "  (load v14 i64 [4] () :buffer 2 :stride [1])\n"
        "  (gather v15 f32 [4] (v14) :buffer 0 :stride [0] :index [1] :extent [8])\n"
        "  (store - f32 [4] (v9) :buffer 1 :stride [1])\n"
        ")\n";
    static const char after[] =
        "(kernel k\n"
        "  (buffers (in f32 8) (out f32 4) (in i64 4))\n"
        "  (grid)\n"
        "  (state v1 f32 [4] () :sub +)\n"
        "  (loop - - [] (v1) :var 1 :from (0) :range [2 4 0] :carried (v2) :yield (v4)\n"
        "    (load v3 f32 [4] () :buffer 0 :at (0 (1 1)) :stride [1])\n"
        "    (combine v4 f32 [4] (v2 v3) :sub +)\n"
        "  )\n"
        "  (get v5 f32 [4] () :var 1)\n"
        "  (load v6 i64 [4] () :buffer 2 :stride [1])\n"
        "  (gather v7 f32 [4] (v6) :buffer 0 :stride [0] :index [1] :extent [8])\n"
        "  (store - f32 [4] (v5) :buffer 1 :stride [1])\n"
        ")\n";
    run_fine(f, verify_text, before);
    kn_kernel *k = kn_read(f->a, "kernel", before, (i64)strlen(before));
    kn_prune(f->a, k);
    str s = str_new(f->a);
    kn_print(&s, k);
    assert_string_equal(s.at, after);
    run_fine(f, verify_text, after);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    static const mutation cases[] = {
        /* bounds */
        {"(grid 3)", "(grid 4)", "outside the buffer"},
        {"(in f32 24)", "(in f32 23)", "outside the buffer"},
        {":at (0 (1 8) (2 1))", ":at (1 (1 8) (2 1))", "outside the buffer"},
        {":at (0 (1 8) (2 1))", ":at (-1 (1 8) (2 1))", "outside the buffer"},
        {":range [2 4 0] :carried (v2)", ":range [3 4 0] :carried (v2)", "outside the buffer"},
        {":stride [1] :live [(6 (0 (3 1)))])\n    (ew", ":stride [2] :live [(6 (0 (3 1)))])\n    (ew",
         "outside the buffer"},
        {"(local f32 8)", "(local f32 7)", "outside the buffer"},
        {":extent [3]", ":extent [4]", "outside the buffer"},
        {":at (0 (1 8) (2 1))", ":at (0 (1 4611686018427387904) (2 1))", "overflows"},
        /* every element once */
        {"(out f32 3)", "(out f32 4)", "never stored"},
        {":buffer 1 :at (0 (1 1))", ":buffer 1", "stored twice"},
        {":live [(6 (0 (3 1)))])\n  )", ":live [(5 (0 (3 1)))])\n  )", "never stored"},
        {":buffer 3 :at (0 (1 4))", ":buffer 3 :at (0 (1 3))", "stored twice"},
        {":range [2 4 0] :carried () ", ":range [2 4 0] :spans (((0) (8))) :carried () ",
         "leaves iterations out stores"},
        /* scope */
        {"(reduce v6 f32 [] (v5)", "(reduce v6 f32 [] (v4)", "not there"},
        {"(combine v4 f32 [4] (v2 v3)", "(combine v4 f32 [4] (v2 v8)", "not there"},
        {":buffer 1 :at (0 (1 1))", ":buffer 1 :at (0 (1 1) (2 0))", "outside its loop"},
        {"(get v5 f32 [4] () :var 2)", "(get v5 f32 [4] () :var 3)", "finished loop"},
        {":yield (v4)", ":yield (v8)", "not there"},
        /* types */
        {"(combine v4 f32 [4]", "(combine v4 f32 [5]", "wrong operands"},
        {"(reduce v6 f32 []", "(reduce v6 f64 []", "wrong operand"},
        {"(ew v8 f32 [4] (v7) :sub neg)", "(ew v8 f32 [4] (v7) :sub add)", "number of operands"},
        {"(ew v8 f32 [4] (v7) :sub neg)", "(ew v8 f32 [4] (v7) :sub not)", "no such operator"},
        {"(ew v8 f32 [4] (v7) :sub neg)", "(ew v8 bool [4] (v7) :sub neg)", "dtype of the result"},
        {"(ew v8 f32 [4] (v7) :sub neg)", "(ew v8 f32 [4] (v7) :sub cast)", "not a pointwise"},
        {"(state v1 f32 [4] ()", "(state v1 f32 [3] ()", "wrong operands"},
        {"(load v14 i64 [2]", "(load v14 i32 [2]", "another dtype than the buffer"},
        {"(load v14 i64 [2] () :buffer 5", "(load v14 f32 [2] () :buffer 0", "wrong index"},
        {"(ref v11 f32 [2 4]", "(ref v11 f32 [2 3]", "shapes do not multiply"},
        {":stride [2 1])\n  (dot", ":stride [1 2])\n  (dot", "contiguous columns"},
        {"(dot v13 f32 [2 2] (v10 v11 v12) :sub fma)", "(dot v13 f32 [2 2] (v10 v11 v12) :sub rowdot)",
         "contiguous rows"},
        /* access */
        {"(store - f32 [8] (v9) :buffer 4", "(store - f32 [8] (v9) :buffer 0", "store to an input"},
        {"(load v9 f32 [8] () :buffer 0 :at (0 (1 8))", "(load v9 f32 [8] () :buffer 2",
         "load from an output"},
        {"(gather v15 f32 [2] (v14)", "(gather v15 f32 [2] (v11)", "only dot reads a reference"},
        /* loops */
        {":from (0) :range [2 4 0] :carried (v2)", ":from (0) :range [2 0 0] :carried (v2)",
         "wrong range"},
        {":from (0) :range [2 4 0] :carried (v2)", ":from (-4) :range [2 4 0] :carried (v2)",
         "below 0"},
        {":var 3 :from", ":var 2 :from", "two loops"},
    };
    refuse_all(f, TEXT, cases, COUNT_OF(cases));
}

static void test_tiles(void **state)
{
    fixture *f = *state;
    run_fine(f, verify_text, TILES);
    static const mutation cases[] = {
        {"[2 20 32]", "[3 20 32]", "shapes are not those of tiles"},
        {"[2 20 32]", "[2 19 32]", "shapes are not those of tiles"},
        {"[32 32 2]", "[64 32 1]", "shapes are not those of tiles"},
        {"[32 64 1]", "[32 64 2]", "dense rows"},
        {"[64 2 1]", "[66 2 1]", "dense rows"},
        {"(ref v3", "(load v3", "bf16 in memory"},
        {"(in bf16 4096) (in bf16 4096)", "(in bf16 1000) (in bf16 4096)", "outside the buffer"},
        {":sub tiles", ":sub fma", "shapes do not multiply"},
    };
    refuse_all(f, TILES, cases, COUNT_OF(cases));
}

static void test_malformed(void **state)
{
    fixture *f = *state;
    static const mutation cases[] = {
        {"(kernel k", "(kernels k", "expected one (kernel"},
        {"(grid 3)", "(grit 3)", "expected (buffers ...) and (grid ...)"},
        {"(in f32 24)", "(in f33 24)", "expected (access dtype count)"},
        {"(reduce v6", "(reduces v6", "unknown operation"},
        {"(reduce v6", "(reduce w6", "expected a name"},
        {"(reduce v6", "(reduce -", "a result expected"},
        {":sub neg", ":sub neck", "unknown name"},
        {":sub neg", ":sup neg", "unknown field"},
        {":range [2 4 0]", ":range [2 4 0 0]", "at most 3 integers"},
        {":carried (v2)", ":carried ()", "as many values"},
        {":extent [3]", ":extent", "missing"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        run_wrong(f, verify_text, changed(f, cases[i].from, cases[i].to), EQF_E_PARSE, ":",
                  cases[i].message);
}

/* What only a run can notice. */
static void run_text(fixture *f, const void *arg)
{
    const char *text = arg;
    kn_kernel *k = kn_read(f->a, "kernel", text, (i64)strlen(text));
    f32 in[24] = {0}, sums[3], copies[18], products[12];
    i64 index[6] = {0};
    void *args[] = {in, sums, copies, products, index};
    kn_run(f->ctx, k, args, 0, 3);
}

static void test_run(void **state)
{
    fixture *f = *state;
    run_fine(f, run_text, TEXT);
    run_wrong(f, run_text, changed(f, "(store - f32 [8] (v9) :buffer 4 :stride [1])\n", ""),
              EQF_E_INTERNAL, "", "read before it is stored");
    run_wrong(f, run_text, changed(f, ":buffer 1 :at (0 (1 1))", ":buffer 1"), EQF_E_INTERNAL, "",
              "stored twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_correct), TEST(test_spans), TEST(test_pruned), TEST(test_refused), TEST(test_tiles), TEST(test_malformed), TEST(test_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
