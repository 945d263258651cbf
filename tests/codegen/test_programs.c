/* Compiled C against the kernels' interpreter's oracle: random programs and chosen shapes, through
 * every compiler that is installed, warnings being errors, one of the builds with undefined
 * behaviour trapped. Many programs share a translation unit. */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "ir/check.h"
#include "ir/generate.h"
#include "kernel/harness.h"

enum { PROGRAMS = 24 };
static u64 first_seed = 7000; /* argument 1; the long run takes others */

static const char *const SHAPES[] = {
    "(program p (dims (B 6) (M 40) (N 70) (K 100)) (input X f32 (B M K)) (input W f32 (B N K))\n"
    " (output Y (matmul X W :axis {K}) (B M N)))",
    "(program p (dims (M 391) (N 192) (K 530)) (input X f32 (M K)) (parameter W f32 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (M 13) (N 70) (K 600)) (input X f32 (M K)) (parameter W f32 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)) (output Z (matmul X W :axis {K}) (N M)))",
    "(program p (dims (M 397) (N 33) (K 20)) (input X f32 (M K)) (parameter W f32 (K N))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (M 91) (N 150) (K 201)) (input X f32 (M K)) (input W f32 (K N))\n"
    " (input V bf16 (K N)) (input U bf16 (M K)) (output Y (matmul X W :axis {K}) (M N))\n"
    " (output Z (matmul U V :axis {K}) (M N)) (output T X (K M)))",
    "(program p (dims (M 70) (N 300) (K 70)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (M 17) (N 100) (K 300)) (input X f16 (M K)) (parameter W f16 (K N))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (N 1100) (K 77)) (input X f16 (K)) (input W f16 (K N)) (input V f16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (N)) (output Z (matmul X V :axis {K}) (N)))",
    "(program p (dims (N 1100) (K 77)) (input X f32 (K)) (input W f32 (K N)) (input V f32 (N K))\n"
    " (output Y (matmul X W :axis {K}) (N)) (output Z (matmul X V :axis {K}) (N)))",
    "(program p (dims (B 3) (H 2) (S 9) (T 11) (D 8)) (input Q f64 (B S H D))\n"
    " (input K f64 (B T H D)) (input V f64 (B T H D))\n"
    " (output Y (matmul (matmul Q K :axis {D}) V :axis {T}) (B S H D)))",
    "(program p (dims (M 9) (N 30) (K 20)) (input X i64 (M K)) (input W i64 (N K))\n"
    " (input A i8 (M K)) (input B bool (M K)) (input C bool (K N))\n"
    " (output Y (matmul X W :axis {K}) (M N)) (output Z (matmul A A :axis {K}) (M))\n"
    " (output U (matmul B C :axis {K}) (N M)))",
    "(program p (dims (N 300000)) (input X f32 (N)) (output S (reduce + X :axis {N}) ())\n"
    " (output T (reduce max X :axis {N}) ()))",
    "(program p (dims (A 600) (B 270)) (input X f16 (A B)) (output S (reduce + X :axis {A}) (B))\n"
    " (output T (reduce + X :axis {B}) (A)) (output U (neg X) (B A)))",
    "(program p (dims (A 2) (B 3) (C 4) (D 5) (E 2) (F 3) (G 2) (H 7))\n"
    " (input X f32 (A B C D E F G H))\n"
    " (output Y (add X (reduce + X :axis {B E H})) (H A G B F C E D)))",
    "(program p (dims (A 1500) (R 20)) (input X f32 (R A))\n"
    " (output Y (argsort X :axis A :to A :ints (1)) (A R)) (output Z (scan X :axis A :reducer +) (R A)))",
    "(program p (dims (A 100) (B 3)) (input X f32 (A)) (input I i64 (B))\n"
    " (output Y (gather X (add I 100) :axis A) (B)))",
    "(program p (dims (B 3)) (input I i32 (B)) (output Y (floordiv I (sub I I)) (B)))",
    /* matrix instructions: rows, columns and depths that fill tiles and that do not, one block and several */
    "(program p (dims (M 5) (N 40) (K 70)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (M 45) (N 96) (K 64)) (input X bf16 (K M)) (parameter W bf16 (K N)) (input V bf16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (N M)) (output Z (matmul X V :axis {K}) (M N)))",
    "(program p (dims (M 16) (N 64) (K 2144)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (M 130) (N 300) (K 1100)) (input X bf16 (M K)) (parameter W bf16 (N K))\n"
    " (output Y (matmul X W :axis {K}) (M N)))",
    "(program p (dims (B 3) (H 2) (S 40) (T 50) (D 64)) (input Q bf16 (B S H D)) (input K bf16 (B T H D))\n"
    " (output Y (matmul Q K :axis {D}) (B H S T)))",
    /* in tiles: few columns, operands copied to panels on both sides, tiles left out */
    "(program p (dims (M 9) (N 2) (K 6)) (input X f32 (M K)) (input W f32 (K N))\n"
    " (output Y (comb (reduce + (tile-matmul (view X :par {M K}) (view W :par {K N}) :axis K) :par K)"
    " :par {M N}) (M N)))",
    "(program p (dims (M 9) (N 6) (K 4)) (input X f32 (M K)) (input W f32 (K N))\n"
    " (output Y (comb (reduce + (tile-matmul (view X :par {M K}) (view W :par {K N}) :axis K) :par K)"
    " :par {M N}) (M N)))",
    "(program p (dims (M 160) (N 320) (K 200)) (input X f32 (M K)) (input W f32 (N K))\n"
    " (output Y (comb (reduce + (tile-matmul (view X :par {M K}) (view W :par {K N}) :axis K) :par K)"
    " :par {M N}) (M N)))",
    "(program p (dims (M 3) (N 70) (K 2)) (input X f64 (M K)) (input W f64 (N K))\n"
    " (output Y (comb (reduce + (tile-matmul (view X :par {M K}) (view W :par {K N}) :axis K) :par K)"
    " :par {M N}) (M N)))",
    "(program p (dims (M 70) (T 300)) (input x f32 (M T))\n"
    " (let s (comp + (reduce + (where (view (le (iota T) (iota M)) :par {M T})"
    " (view x :par {M T}) 0) :axis T)))\n"
    " (output y (comb (get (loop s :par T :visit ((0 (+ 1 M)))) s) :par {M}) (M)))",
};

/* Long sums, in every way that there is: along rows, columns, and products of all kinds. */
static const char *const LONG[] = {
    "(program p (dims (K 300007) (B 3)) (input X f32 (K B)) (input Z f32 (K))\n"
    " (output S (reduce + X :axis {K}) (B)) (output T (reduce + Z :axis {K}) ())\n"
    " (output U (scan Z :axis K :reducer +) (K)))",
    "(program p (dims (K 100003) (M 4) (N 3)) (input X f32 (K M)) (input Y f32 (K N))\n"
    " (output S (matmul X Y :axis {K}) (M N)))",
    "(program p (dims (K 100003) (M 4) (N 48)) (input X f32 (M K)) (input Y f32 (K N))\n"
    " (output S (matmul X Y :axis {K}) (M N)))",
    "(program p (dims (K 100003) (M 4) (N 3)) (input X f32 (M K)) (input Y f32 (N K)) (input Z f32 (K))\n"
    " (output S (matmul X Y :axis {K}) (M N)) (output T (matmul Z Y :axis {K}) (N)))",
    "(program p (dims (K 20011) (M 70) (N 50)) (input X f32 (M K)) (parameter Y f32 (N K))\n"
    " (output S (matmul X Y :axis {K}) (M N)))",
    /* results so far: what was summed moves along, over two thousand tiles */
    "(program rolling (dims (D 2) (T 131072) (E 16)) (input q f32 (D)) (input k f32 (T D)) (input v f32 (T E))"
    " (let s (reduce + (tile-matmul (view q :par D) (view k :par {T D}) :axis D) :par D))"
    " (let m (comp max (reduce max s :axis T))) (let now (run m :par T)) (let p (exp (sub s now)))"
    " (let c0 (formal 0 f32 {})) (let c1 (formal 0 f32 E)) (let x (formal 1 f32 {})) (let z (formal 2 f32 {}))"
    " (let ratio (where (finite x) (exp (sub x z)) (const f32 0)))"
    " (let l (comp + (reduce + p :axis T) (lambda (c0 x z) (mul c0 ratio)) m))"
    " (let a (comp + (tile-matmul p (view v :par {T E}) :axis T) (lambda (c1 x z) (mul c1 ratio)) m))"
    " (let R (loop m l a :par T)) (output o (comb (div (get R a) (get R l)) :par E) (E)))",
};

/* P is the product of X and Y, or the square of X, as it is rounded in their type: nothing is left of the
 * two, in whatever text the second is. */
static const char *const PRODUCTS[] = {
    "(program p (dims (A 5) (B 70)) (input X f32 (A B)) (input Y f32 (B)) (input P f32 (A B))\n"
    " (output S (sub (mul X Y) P) (A B)) (output T (sub P (mul Y X)) (A B))\n"
    " (output U (add (neg P) (mul X Y)) (B A)) (output V (reduce max (abs (sub (mul X Y) P)) :axis B) (A))\n"
    " (output W (reduce + (exp (sub (mul X Y) P)) :axis {A B}) ()))",
    "(program p (dims (B 33)) (input X f64 (B)) (input Y f64 (B)) (input P f64 (B))\n"
    " (output S (add (neg (mul X Y)) P) (B)) (output T (sub (mul X (mul Y 1.0)) P) (B)))",
    "(program p (dims (B 19)) (input X f32 (B)) (input P f32 (B))\n"
    " (output S (sub (square X) P) (B)) (output T (where (lt X 0) (sub P (mul X X)) (sub (mul X X) P)) (B)))",
    "(program p (input X f32 ()) (input Y f32 ()) (input P f32 ()) (output S (sub (mul X Y) P) ()))",
    "(program p (dims (B 40)) (input X f32 (B)) (input Y f32 ()) (input P f32 (B))\n"
    " (output S (comb (sub (mul (view X :par B) (view Y :par B)) (view P :par B)) :par B) (B)))",
};

/* What printed helpers compute; @ is one of these. Y holds what X does, so nothing is left. */
static const char *const HELPERS[] = {"exp",  "exp2", "expm1", "log",  "log2", "log10", "log1p", "tanh",
                                      "erf",  "sin",  "cos",   "tan",  "sinh", "cosh",  "asinh", "atanh",
                                      "asin", "acos", "atan",  "sigmoid"};
#define X_OR_Y(x) "(view " x " :par {A B})"
#define DIFFERENCE(name, text, ports) " (output " name " (comb " text " :par {A B}) " ports ")\n"
static const char HELPER_TWICE[] =
    "(program p (dims (A 7) (B 83)) (input X f32 (A B)) (input Y f32 (A B))\n"
    " (let t (comb (@ " X_OR_Y("X") ") :par {A B}))\n"
    DIFFERENCE("S", "(sub (@ " X_OR_Y("Y") ") " X_OR_Y("t") ")", "(A B)")
    DIFFERENCE("T", "(sub " X_OR_Y("t") " (@ " X_OR_Y("Y") "))", "(B A)")
    DIFFERENCE("U", "(sub (mul (@ " X_OR_Y("Y") ") 0.3) (mul 0.3 " X_OR_Y("t") "))", "(A B)")
    DIFFERENCE("V", "(sub (mul (@ " X_OR_Y("Y") ") 3.0) (mul " X_OR_Y("t") " 3.0))", "(B A)")
    DIFFERENCE("W", "(sub (exp (mul (sub (@ " X_OR_Y("Y") ") " X_OR_Y("t") ") 7.0)) 1.0)", "(B A)") ")";

typedef struct unit {
    bench *at[PROGRAMS + COUNT_OF(SHAPES)];
    tensor *want[PROGRAMS + COUNT_OF(SHAPES)];
    f64 most_error; /* 0: by dtype */
    i64 n;
    str text;
    kn_kernels all;
    i64 vector_bytes;
} unit;

static void add_program(fixture *f, unit *u, const ir_program *p, u64 seed)
{
    bench *b = NEW(f->a, bench);
    *b = (bench){.ctx = f->ctx, .a = f->a, .p = p};
    rng r = rng_new(seed);
    b->inputs = bench_inputs(f->a, p, &r);
    kn_options o = {u->vector_bytes, 1 + (i64)(seed % 4), seed % 2 != 0, NULL, u->vector_bytes == 64};
    kn_build(f->a, p, o, &b->plan, &b->kernels);
    for (i64 i = 0; i < b->kernels.n; i++) {
        bool known = false;
        for (i64 k = 0; k < u->all.n && !known; k++)
            known = strcmp(u->all.at[k]->name, b->kernels.at[i]->name) == 0;
        if (!known)
            vec_push(f->a, &u->all, b->kernels.at[i]);
    }
    u->at[u->n++] = b;
}

static void print_unit(fixture *f, unit *u)
{
    u->text = str_new(f->a);
    cg_c(&u->text, f->ctx, u->all.at, u->all.n, u->vector_bytes);
}

/* Runs the compiler; skips aloud when it is not installed. */
static bool compile(fixture *f, const char *cc, const char *const *extra, const char *c,
                    const char *so)
{
    const char *args[40] = {cc, CG_C_FLAGS, "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
                            "-Werror", "-march=native"};
    i64 n = 0;
    while (args[n])
        n++;
    for (; *extra; extra++)
        args[n++] = *extra;
    const char *tail[] = {"-o", so, c, "-lm"};
    for (i64 i = 0; i < COUNT_OF(tail); i++)
        args[n++] = tail[i];
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execvp(cc, (char *const *)(uintptr_t)args);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        print_message("skipped: %s is not installed\n", cc);
        return false;
    }
    (void)f;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

static f64 tolerance(dtype t)
{
    return t == DT_f16 || t == DT_bf16 ? 3e-2 : 1e-4;
}

static void check_unit(fixture *f, unit *u, void *library)
{
    for (i64 i = 0; i < u->n; i++) {
        bench *b = u->at[i];
        b->compiled = NEW_N(f->a, rt_kernel, b->kernels.n + 1);
        for (i64 k = 0; k < b->kernels.n; k++) {
            void *symbol = dlsym(library, b->kernels.at[k]->name);
            assert_non_null(symbol);
            memcpy(&b->compiled[k], &symbol, sizeof symbol);
        }
        int code = bench_run(b);
        assert_int_equal(code, u->want[i] ? 0 : 1);
        for (i64 o = 0; u->want[i] && o < b->p->outputs.n; o++) {
            f64 e = bench_error(b, o, &u->want[i][o]);
            if (!(e <= (u->most_error > 0 ? u->most_error : tolerance(b->p->outputs.at[o].dtype))))
                fail_msg("program %lld, output %lld differs by %g", (long long)i, (long long)o, e);
        }
    }
}

static void make_unit(fixture *f, const void *arg)
{
    unit *u = (unit *)(uintptr_t)arg;
    for (u64 seed = 0; seed < PROGRAMS; seed++)
        add_program(f, u, gen_program(f->a, first_seed + 1000 * (u64)u->vector_bytes + seed, 14, false),
                    seed);
    for (i64 i = 0; i < COUNT_OF(SHAPES); i++)
        add_program(f, u, ir_read(f->a, "shape", SHAPES[i], (i64)strlen(SHAPES[i])), (u64)i);
    print_unit(f, u);
}

typedef struct oracle {
    unit *u;
    i64 i;
} oracle;

static void evaluate(fixture *f, const void *arg)
{
    const oracle *o = arg;
    const bench *b = o->u->at[o->i];
    tensor *want = NEW_N(f->a, tensor, b->p->outputs.n);
    ir_eval(b->p, b->inputs, f->a, want, (ir_eval_options){.round = true});
    o->u->want[o->i] = want;
}

static void test_made(fixture *f, unit *u, body *make)
{
    i64 vector_bytes = u->vector_bytes;
    run_fine(f, make, u);
    bool tiles = make == make_unit && vector_bytes == 64;
    assert_true(tiles == (strstr(str_text(&u->text), "dot_tiles(") != NULL));
    for (i64 i = 0; i < u->n; i++) {
        oracle o = {u, i};
        eqf_status status = attempt(f, evaluate, &o); /* a bad index has no value */
        assert_true(status == EQF_OK || status == EQF_E_DATA);
    }
    char folder[] = "/tmp/eqf-codegen-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *c = arena_printf(f->a, "%s/kernels.c", folder);
    file_write(f->ctx, c, u->text.at, u->text.n);
    const char *const plain[] = {"-O2", "-ftree-vectorize", NULL};
    const char *const full[] = {"-O3", NULL};
    const char *const checked[] = {"-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error",
#if defined(__x86_64__) /* what stands in for matrix instructions */
                                   "-mno-amx-bf16",
#endif
                                   NULL};
    const struct {
        const char *cc;
        const char *const *flags;
    } builds[] = {{"gcc", vector_bytes == 32 ? full : plain}, {"clang", plain}, {"gcc", checked}};
    for (i64 i = 0; i < COUNT_OF(builds); i++) {
        char *so = arena_printf(f->a, "%s/kernels%lld.so", folder, (long long)i);
        if (!compile(f, builds[i].cc, builds[i].flags, c, so))
            continue;
        void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            fail_msg("%s", dlerror());
        check_unit(f, u, library);
        dlclose(library);
        unlink(so);
    }
    unlink(c);
    rmdir(folder);
}

static void test_unit(fixture *f, i64 vector_bytes)
{
    unit *u = NEW(f->a, unit);
    u->vector_bytes = vector_bytes;
    test_made(f, u, make_unit);
}

static void make_long(fixture *f, const void *arg)
{
    unit *u = (unit *)(uintptr_t)arg;
    for (i64 i = 0; i < COUNT_OF(LONG); i++)
        add_program(f, u, ir_read(f->a, "long", LONG[i], (i64)strlen(LONG[i])), (u64)i);
    for (i64 i = 0; i < u->n; i++)
        for (i64 k = 0; k < u->at[i]->p->inputs.n; k++) {
            tensor *t = &u->at[i]->inputs[k];
            for (i64 e = 0; e < tensor_count(f->ctx, t->rank, t->shape); e++)
                tensor_set_f64(t, e, fabs(tensor_get_f64(t, e)));
        }
    print_unit(f, u);
}

/* Sums of a hundred thousand numbers of one sign keep their digits. */
static void test_long_sums(void **state)
{
    fixture *f = *state;
    unit *u = NEW(f->a, unit);
    u->vector_bytes = 32;
    u->most_error = 1e-6;
    test_made(f, u, make_long);
}

static void make_products(fixture *f, const void *arg)
{
    unit *u = (unit *)(uintptr_t)arg;
    for (i64 i = 0; i < COUNT_OF(PRODUCTS); i++)
        add_program(f, u, ir_read(f->a, "products", PRODUCTS[i], (i64)strlen(PRODUCTS[i])), (u64)i);
    for (i64 i = 0; i < u->n; i++) {
        tensor *x = u->at[i]->inputs, *p = &x[u->at[i]->p->inputs.n - 1];
        i64 n = tensor_count(f->ctx, p->rank, p->shape), n0 = tensor_count(f->ctx, x->rank, x->shape);
        const tensor *y = p == x + 1 ? x : x + 1;
        i64 n1 = tensor_count(f->ctx, y->rank, y->shape);
        for (i64 e = 0; e < n; e++) { /* the product of two f32 is exact in f64; that of f64 in f64 is rounded */
            volatile f64 product = tensor_get_f64(x, e % n0) * tensor_get_f64(y, e % n1);
            tensor_set_f64(p, e, product);
        }
    }
    print_unit(f, u);
}

/* What two kernels have for a product is the same. */
static void test_products(void **state)
{
    for (i64 vector_bytes = 16; vector_bytes <= 64; vector_bytes *= 2) {
        fixture *f = *state;
        unit *u = NEW(f->a, unit);
        u->vector_bytes = vector_bytes;
        u->most_error = 1e-30;
        test_made(f, u, make_products);
    }
}

static void make_helpers(fixture *f, const void *arg)
{
    unit *u = (unit *)(uintptr_t)arg;
    for (i64 i = 0; i < COUNT_OF(HELPERS); i++) {
        str text = str_new(f->a);
        for (const char *c = HELPER_TWICE; *c; c++)
            if (*c == '@')
                str_add(&text, HELPERS[i]);
            else
                str_add_char(&text, *c);
        add_program(f, u, ir_read(f->a, HELPERS[i], text.at, text.n), (u64)i);
        tensor *in = u->at[i]->inputs;
        for (i64 e = 0; e < tensor_count(f->ctx, in->rank, in->shape); e++)
            for (i64 k = 0; k < 2; k++)
                tensor_set_f64(&in[k], e, fmod(0.003 + 0.618033988749895 * (f64)e, 1));
    }
    print_unit(f, u);
}

/* What two kernels have for a function is the same, in whatever text they have it. */
static void test_helpers(void **state)
{
    fixture *f = *state;
    unit *u = NEW(f->a, unit);
    u->vector_bytes = 16;
    u->most_error = 1e-30;
    test_made(f, u, make_helpers);
}

static void test_16(void **state)
{
    test_unit(*state, 16);
}

static void test_32(void **state)
{
    test_unit(*state, 32);
}

static void test_64(void **state)
{
    test_unit(*state, 64);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {TEST(test_16), TEST(test_32), TEST(test_64), TEST(test_long_sums), TEST(test_products), TEST(test_helpers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
