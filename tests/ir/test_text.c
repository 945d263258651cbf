/* Programs as text: round trips of written and random programs and of the examples in
 * docs/language.md, errors with their places, and every allocation failing in turn. */
#include "ir/check.h"
#include "ir/generate.h"

static void expect_round_trip(fixture *f, const ir_program *p)
{
    const char *once = text_of(f, p);
    ir_program *q = ir_read(f->a, "again", once, (i64)strlen(once));
    ir_verify(q, "reading");
    assert_string_equal(text_of(f, q), once);
}

/* Reading the left gives the program that prints as the right. */
static const char *const written[][2] = {
    {"(program p)", "(program p)\n"},
    {"(program \"a b\" (precondition \"n > \\\"0\\\"\"))",
     "(program \"a b\"\n  (precondition \"n > \\\"0\\\"\"))\n"},
    {"(program p (dims (M 4) (\"x y\" 3)) (input X f32 (M \"x y\") :symbols (s0 -) :key w)\n"
     "  (output Y (add X 1)))",
     "(program p\n"
     "  (dims (M 4) (\"x y\" 3))\n"
     "  (input X f32 (M \"x y\") :symbols (s0 -) :key w)\n"
     "  (output Y (add X 1.0) (M \"x y\")))\n"},
    /* Roles, composite, unit and empty dims, an output that writes. */
    {"(program p (dims (H 2) (D 3)) (parameter W f16 ((H D) 1 () 1)) (buffer B i64 (0 H))\n"
     "  (constant C bool ()) (input S f16 (1 H))\n"
     "  (output O - i64 (0 H) :writes B) (output W2 W (1 (D H)))\n"
     "  (output S2 S (1 H) :writes S))",
     "(program p\n"
     "  (dims (H 2) (D 3))\n"
     "  (parameter W f16 ((H D) 1 1 1))\n"
     "  (buffer B i64 (0 H))\n"
     "  (constant C bool ())\n"
     "  (input S f16 (1 H))\n"
     "  (output O - i64 (0 H) :writes B)\n"
     "  (output W2 W (1 (D H)))\n"
     "  (output S2 S (1 H) :writes S))\n"},
    /* Literals take the dtype of a sibling; without one they keep their own. */
    {"(program p (dims (M 4)) (input X bf16 (M)) (input I i8 (M)) (input C bool (M))\n"
     "  (output A (sub 2 X)) (output B (where C 1 X)) (output D (max I -128))\n"
     "  (output E (xor C 1)) (output F (add (const f64 1) 0.5))\n"
     "  (output G (where (lt X -inf) (const f32 nan) (const f32 -0.0))))",
     "(program p\n"
     "  (dims (M 4))\n"
     "  (input X bf16 (M))\n"
     "  (input I i8 (M))\n"
     "  (input C bool (M))\n"
     "  (output A (sub 2.0 X) (M))\n"
     "  (output B (where C 1.0 X) (M))\n"
     "  (output D (max I -128) (M))\n"
     "  (output E (xor C 1) (M))\n"
     "  (output F (add (const f64 1.0) (const f64 0.5)) ())\n"
     "  (output G (where (lt X -inf) (const f32 nan) (const f32 -0.0)) (M)))\n"},
    /* Every operator that is not pointwise; `let` where a term is used twice. */
    {"(program p (dims (M 4) (N 3) (K 2) (J 4) (R 2) (L 12) (T 8))\n"
     "  (input X f32 (M N)) (input Y f32 (N K)) (input I i32 (K))\n"
     "  (let a (matmul X Y)) (let b (matmul X X :axis {N M}))\n"
     "  (output O1 a (K M)) (output O2 (rename a :axis (K M) :to (R J)))\n"
     "  (output O3 (slice X :axis M :start 1 :to R :step 2) ((N R)))\n"
     "  (output O4 (slice X :axis M :start 3)) (output O5 (slice X :axis M :start 3 :to (R K) "
     ":step (-1 -2)))\n"
     "  (output O6 (concat X (slice X :axis N :start 0) (const f32 0) X :axis (N - - N) :to T))\n"
     "  (output O7 (reshape X :axis (N M) :to L)) (output O8 (expand b :to {K M}))\n"
     "  (output O9 (gather X I :axis N))\n"
     "  (output P1 (scatter X I Y :axis M :reducer max)) (output P2 (scatter X I 0.5 :axis M))\n"
     "  (output P3 (argsort X :axis M :to K :ints (1))) (output P4 (argsort X :axis M :ints 0))\n"
     "  (output P5 (scan X :axis M :reducer +)) (output P6 (reduce * X :axis {M N}))\n"
     "  (output P7 (opaque X I :name aten.foo :dtype f16 :to {N M} :ints (1)))\n"
     "  (output P8 (opaque X :name \"no such\" :dtype bool :ints (0)))\n"
     "  (output P9 (cast i8 (iota M))))",
     "(program p\n"
     "  (dims (M 4) (N 3) (K 2) (J 4) (R 2) (L 12) (T 8))\n"
     "  (input X f32 (M N))\n"
     "  (input Y f32 (N K))\n"
     "  (input I i32 (K))\n"
     "  (let t1 (matmul X Y :axis N))\n"
     "  (output O1 t1 (K M))\n"
     "  (output O2 (rename t1 :axis (M K) :to (J R)) (J R))\n"
     "  (output O3 (slice X :axis M :start 1 :to R :step 2) ((N R)))\n"
     "  (output O4 (slice X :axis M :start 3) (N))\n"
     "  (output O5 (slice X :axis M :start 3 :to (K R) :step (-2 -1)) (N K R))\n"
     "  (output O6 (concat X (slice X :axis N :start 0) 0.0 X :axis (N - - N) :to T) (M T))\n"
     "  (output O7 (reshape X :axis (N M) :to L) (L))\n"
     "  (output O8 (expand (matmul X X :axis {M N}) :to {M K}) (M K))\n"
     "  (output O9 (gather X I :axis N) (M K))\n"
     "  (output P1 (scatter X I Y :axis M :reducer max) (M N))\n"
     "  (output P2 (scatter X I 0.5 :axis M) (M N))\n"
     "  (output P3 (argsort X :axis M :to K :ints (1)) (N K))\n"
     "  (output P4 (argsort X :axis M :ints (0)) (N))\n"
     "  (output P5 (scan X :axis M :reducer +) (M N))\n"
     "  (output P6 (reduce * X :axis {M N}) ())\n"
     "  (output P7 (opaque X I :name aten.foo :dtype f16 :to {M N} :ints (1)) (M N))\n"
     "  (output P8 (opaque X :name \"no such\" :dtype bool :ints (0)) ())\n"
     "  (output P9 (cast i8 (iota M)) (M)))\n"},
    /* The printer's own names avoid those of inputs; names that are no symbols are quoted. */
    {"(program p (dims (M 4)) (input t1 f32 (M)) (input \"1x\" f32 (M)) (input \"\" f32 (M))\n"
     "  (let \"?\" (exp t1)) (output Y (add (mul \"?\" \"1x\") (sub \"?\" \"\"))))",
     "(program p\n"
     "  (dims (M 4))\n"
     "  (input t1 f32 (M))\n"
     "  (input \"1x\" f32 (M))\n"
     "  (input \"\" f32 (M))\n"
     "  (let t2 (exp t1))\n"
     "  (output Y (add (mul t2 \"1x\") (sub t2 \"\")) (M)))\n"},
};

static void check_written(fixture *f, const void *arg)
{
    const char *const *pair = arg;
    ir_program *p = read_text(f, pair[0]);
    ir_verify(p, "reading");
    assert_string_equal(text_of(f, p), pair[1]);
    expect_round_trip(f, p);
}

static void test_written(void **state)
{
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(written); i++)
        run_fine(f, check_written, written[i]);
}

typedef struct random_case {
    u64 seed;
    bool *seen; /* operators that were live */
} random_case;

static void check_random(fixture *f, const void *arg)
{
    const random_case *c = arg;
    ir_program *p = gen_program(f->a, c->seed, 40, true);
    ir_verify(p, "generating");
    expect_round_trip(f, p);
    ir_count count = ir_count_program(p);
    for (int op = 0; op < IR_OP_COUNT; op++)
        c->seen[op] = c->seen[op] || count.op_count[op];
}

static void test_random(void **state)
{
    fixture *f = *state;
    bool seen[IR_OP_COUNT] = {0};
    for (u64 seed = 0; seed < 300; seed++)
        run_fine_apart(f, check_random, &(random_case){seed, seen});
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if (!seen[op] && ir_row(op)->class_ != IR_TILED) /* those: test_tiled.c */
            fail_msg("no live %s in any random program", ir_row(op)->name);
}

/* Text of a program grows with the program, not with its unfolded terms. */
static void check_linear_size(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (M 4)) (input X f32 (M)))");
    ir_term x = p->inputs.at[0].term;
    for (int i = 0; i < 200; i++)
        x = ir_2(p, IR_add, ir_1(p, IR_exp, x), x);
    ir_dim dim = {4, ir_get(p, x)->dims};
    ir_add_output(
        p, (ir_port){.name = intern_cstr(p->names, "Y"), .rank = 1, .dims = &dim, .term = x});
    expect_round_trip(f, p);
    assert_true(strlen(text_of(f, p)) < 200 * 50);
    str s = str_new(f->a);
    ir_print_term(&s, p, x); /* 2^200 parts: cut off */
    assert_true(s.n < 1000000);
}

static void test_linear_size(void **state)
{
    run_fine(*state, check_linear_size, NULL);
}

/* Programs in docs/language.md: blocks of ``` that open with (program. */
static void check_documentation(fixture *f, const void *arg)
{
    (void)arg;
    int examples = 0;
    i64 n;
    char *text = file_read(f->a, EQF_TEST_DIR "/../docs/language.md", 1 << 20, &n);
    for (char *at = text; (at = strstr(at, "```\n(program"));) {
        at += 4;
        char *end = strstr(at, "```");
        assert_non_null(end);
        ir_program *p = ir_read(f->a, "docs/language.md", at, end - at);
        ir_verify(p, "reading");
        expect_round_trip(f, p);
        examples++;
        at = end;
    }
    assert_true(examples >= 4);
}

static void test_documentation(void **state)
{
    run_fine(*state, check_documentation, NULL);
}

typedef struct wrong {
    const char *text;
    eqf_status status;
    const char *place, *message;
} wrong;

#define HEAD "(program p (dims (M 4) (N 3) (K 2)) (input X f32 (M N)) (input I i64 (K))\n"

#define LOOP(text) HEAD "(let a (formal 0 f32 {M N})) (output Y (iterate " text ")))"

static const wrong wrongs[] = {
    {LOOP(""), EQF_E_PARSE, "2:40", "how many turns"},
    {LOOP("x (lambda (a) a) X"), EQF_E_PARSE, "2:49", "expected an integer"},
    {LOOP("-1 (lambda (a) a) X"), EQF_E_TYPE, "2:49", "0 to 1024 turns"},
    {LOOP("1025 (lambda (a) a) X"), EQF_E_TYPE, "2:49", "0 to 1024 turns"},
    {LOOP("2 X X"), EQF_E_TYPE, "2:51", "expected a lambda"},
    {LOOP("2 (lambda (a) a)"), EQF_E_TYPE, "2:40", "wants so many states"},
    {LOOP("2 (lambda (a) a (exp a)) X"), EQF_E_TYPE, "2:40", "wants so many states"},
    {LOOP("2 (lambda (a) a) I"), EQF_E_TYPE, "2:40", "of another type"},
    {LOOP("2 (lambda (a) (cast i64 a)) X"), EQF_E_TYPE, "2:40", "of another type"},
    {HEAD "(let a (formal 0 f32 {M N})) (let f (lambda (a) (iterate 1000 (lambda (a) (exp a)) a)))"
          "(let g (lambda (a) (iterate 1000 f a))) (output Y (iterate 1000 g X)))",
     EQF_E_LIMIT, "2:138", "too many turns"},
    {"", EQF_E_PARSE, "1:1", "expected one (program"},
    {"(program p) (program q)", EQF_E_PARSE, "1:13", "expected one (program"},
    {"[program p]", EQF_E_PARSE, "1:1", "expected one (program"},
    {"(program)", EQF_E_PARSE, "1:1", "the program's name"},
    {"(program p", EQF_E_PARSE, "1:1", "not closed"},
    {"(program p (dims (M 1)))", EQF_E_TYPE, "1:21", "extent 2 or more"},
    {"(program p (dims (M x)))", EQF_E_PARSE, "1:21", "expected an integer"},
    {"(program p (dims (M 4) (M 4)))", EQF_E_TYPE, "1:25", "declared twice"},
    {"(program p (dims M))", EQF_E_PARSE, "1:18", "(NAME EXTENT)"},
    {"(program p (dims (- 4)))", EQF_E_PARSE, "1:19", "expected a name"},
    {"(program p (frob))", EQF_E_PARSE, "1:12", "expected dims, input"},
    {"(program p (input X f33 ()))", EQF_E_PARSE, "1:21", "expected a dtype"},
    {"(program p (input X f32 (Q)))", EQF_E_TYPE, "1:26", "not declared"},
    {"(program p (input X f32 (2)))", EQF_E_PARSE, "1:26", "1 or 0"},
    {"(program p (input X f32 M))", EQF_E_PARSE, "1:25", "expected the dims"},
    {"(program p (input X f32))", EQF_E_PARSE, "1:12", "expected the dims"},
    {"(program p (input X f32 () :frob 1))", EQF_E_PARSE, "1:28", ":symbols or :key"},
    {"(program p (input X f32 () :symbols (a)))", EQF_E_PARSE, "1:37", "each of the 0"},
    {"(program p (input X f32 ()) (input X f32 ()))", EQF_E_TYPE, "1:29", "of this name"},
    {"(program p (dims (M 4)) (input X f32 (M M)))", EQF_E_TYPE, "1:25", "M stands twice"},
    {"(program p (dims (M 4) (A 4611686018427387904)) (input X f32 ((M A))))", EQF_E_TYPE, "1:63",
     "64 bits"},
    {"(program p (precondition 3))", EQF_E_PARSE, "1:12", "expected dims, input"},
    {HEAD "(let X (exp X)))", EQF_E_TYPE, "2:6", "has a meaning already"},
    {HEAD "(let a (exp X)) (let a X))", EQF_E_TYPE, "2:22", "has a meaning already"},
    {HEAD "(let a (exp X)) (input a f32 ()))", EQF_E_TYPE, "2:24", "is a let above"},
    {HEAD "(let a 3))", EQF_E_TYPE, "2:8", "write (const f32 3)"},
    {HEAD "(let a))", EQF_E_PARSE, "2:1", "(let NAME TERM)"},
    {HEAD "(output Y Z))", EQF_E_TYPE, "2:11", "neither an input nor a let"},
    {HEAD "(output Y X (M)))", EQF_E_TYPE, "2:1", "varies along N"},
    {HEAD "(output Y X (M N)) (output Y X))", EQF_E_TYPE, "2:20", "output of this name"},
    {HEAD "(output Y X (M N) :writes I))", EQF_E_TYPE, "2:1", "another dtype or shape"},
    {HEAD "(output Y X (M N) :writes J))", EQF_E_TYPE, "2:27", "no input"},
    {HEAD "(output Y X (M N) :frob I))", EQF_E_PARSE, "2:19", ":writes INPUT"},
    {HEAD "(output Y X (M N 0)))", EQF_E_TYPE, "2:1", "without elements"},
    {HEAD "(output Y - f32 (M)))", EQF_E_TYPE, "2:1", "no term"},
    {HEAD "(output Y -))", EQF_E_PARSE, "2:1", "dtype of an output"},
    {HEAD "(input E f32 (0)) (output Y (exp E)))", EQF_E_TYPE, "2:34", "has no elements"},
    {HEAD "(output Y (frob X)))", EQF_E_TYPE, "2:12", "no operator"},
    {HEAD "(output Y (in X)))", EQF_E_TYPE, "2:12", "no operator"},
    {HEAD "(output Y ()))", EQF_E_PARSE, "2:11", "expected a term"},
    {HEAD "(output Y {exp X}))", EQF_E_PARSE, "2:11", "expected a term"},
    {HEAD "(output Y (add X :axis M)))", EQF_E_PARSE, "2:18", "has no argument :axis"},
    {HEAD "(output Y (reduce + X :axis M :axis N)))", EQF_E_PARSE, "2:31", "given twice"},
    {HEAD "(output Y (reduce + X :axis M N)))", EQF_E_PARSE, "2:31", "expected a keyword"},
    {HEAD "(output Y (reduce + X :axis)))", EQF_E_PARSE, "2:11", "value after the keyword"},
    {HEAD "(output Y (reduce frob X :axis M)))", EQF_E_PARSE, "2:19", "expected a reducer"},
    {HEAD "(output Y (reduce + X :axis (M N))))", EQF_E_PARSE, "2:29", "stands in {}"},
    {HEAD "(output Y (rename X :axis {M N} :to (M N))))", EQF_E_PARSE, "2:27", "stands in ()"},
    {HEAD "(output Y (reduce + X :axis -)))", EQF_E_PARSE, "2:29", "name of a dim"},
    {HEAD "(output Y (cast X)))", EQF_E_PARSE, "2:17", "expected a dtype"},
    {HEAD "(output Y (const f32)))", EQF_E_PARSE, "2:11", "expected a number"},
    {HEAD "(output Y (const f32 1 2)))", EQF_E_PARSE, "2:24", "number only"},
    {HEAD "(output Y (const i32 1.5)))", EQF_E_TYPE, "2:22", "no value of i32"},
    {HEAD "(output Y (const i8 200)))", EQF_E_TYPE, "2:21", "does not fit i8"},
    {HEAD "(output Y (const bool 2)))", EQF_E_TYPE, "2:23", "does not fit bool"},
    {HEAD "(output Y (add I 1.5)))", EQF_E_TYPE, "2:18", "no value of i64"},
    {HEAD "(output Y (add 1 2)))", EQF_E_TYPE, "2:16", "not known here"},
    {HEAD "(output Y (exp 1)))", EQF_E_TYPE, "2:16", "not known here"},
    {HEAD "(output Y (slice X :axis M)))", EQF_E_PARSE, "2:11", "wants :start"},
    {HEAD "(output Y (matmul X X)))", EQF_E_TYPE, "2:11", "share 2 dims"},
    {HEAD "(output Y (matmul X (const f32 1))))", EQF_E_TYPE, "2:11", "share 0 dims"},
    {HEAD "(output Y (exp\n (add X\n I))))", EQF_E_TYPE, "3:2", "f32 and i64"},
};

static void read_only(fixture *f, const void *text)
{
    read_text(f, text);
}

static void test_errors(void **state)
{
    for (i64 i = 0; i < COUNT_OF(wrongs); i++)
        run_wrong(*state, read_only, wrongs[i].text, wrongs[i].status, wrongs[i].place,
                  wrongs[i].message);
}

static void read_source(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (parameter W f32 (1)))");
    f32 x;
    p->source.read(p->source.user, f->ctx, 0, &x);
}

static void test_missing_data(void **state)
{
    run_wrong(*state, read_source, NULL, EQF_E_DATA, "W", "no stored data");
}

/* ---- memory running out --------------------------------------------------------------------- */

static void print_generated(fixture *f, const void *arg)
{
    (void)arg;
    str text = str_new(f->a);
    ir_print(&text, gen_program(f->a, 7, 400, true)); /* long enough for tables to grow */
    f->user = str_text(&text);
}

static void read_verify_print(fixture *f, const void *text)
{
    ir_program *p = read_text(f, text);
    ir_verify(p, "reading");
    str again = str_new(f->a);
    ir_print(&again, ir_canonical(f->a, p));
}

static void test_no_memory(void **state)
{
    fixture *f = *state;
    run_fine(f, print_generated, NULL);
    assert_true(run_without_memory(read_verify_print, f->user) > 10);
}

#define SMALL "(program p (dims (M 4)) (input X f32 (M)) (input Y f32 (M)) "
#define FORMALS "(let a (formal 0 f32 M)) (let b (formal 1 f32 M)) (let c (formal 2 f32 M)) "

/* Loops are what they do, written out; the last of several states and what stays the same, too. */
static void check_iterated(fixture *f, const void *arg)
{
    static const struct {
        const char *loop, *plain;
    } same[] = {
        {"(iterate 0 (lambda (a) (exp a)) X)", "X"},
        {"(iterate 3 (lambda (a) (exp a)) X)", "(exp (exp (exp X)))"},
        {"(iterate 2 (lambda (a b) (mul (exp a) b)) X Y)", "(mul (exp (mul (exp X) Y)) Y)"},
        {"(iterate 2 (lambda (a b) b (add a b)) X Y)", "(add X Y)"},
        {"(iterate 2 (lambda (a b c) b (add a c)) X Y (exp X))", "(add X (exp X))"},
    };
    (void)arg;
    for (i64 k = 0; k < COUNT_OF(same); k++) {
        ir_program *p = read_text(f, arena_printf(f->a, SMALL FORMALS "(output l %s) (output r %s))",
                                                  same[k].loop, same[k].plain));
        if (p->outputs.at[0].term.i != p->outputs.at[1].term.i)
            fail_msg("%s", same[k].loop);
        ir_verify(p, "reading");
    }
}

static void test_iterated(void **state)
{
    run_fine(*state, check_iterated, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_iterated),      TEST(test_written),       TEST(test_random), TEST(test_linear_size),
        TEST(test_documentation), TEST(test_errors), TEST(test_missing_data),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
