/* Printed C, whole files: one small program a class of kernels, for each vector size. Run with
 * --bless to rewrite the files; the difference is reviewed like code. */
#include "codegen/codegen.h"
#include "ir/check.h"

static const struct {
    const char *name, *text;
} CASES[] = {
    {"pointwise", "(program p (dims (M 40) (N 50)) (input X f32 (M N)) (input B bf16 (N))\n"
                  " (output Y (add X (cast f32 B)) (M N)) (output Z (exp X) (N M)))"},
    {"reduce", "(program p (dims (M 40) (N 70)) (input X f16 (M N))\n"
               " (output Y (reduce max X :axis {N}) (M)) (output Z (reduce + X :axis {M}) (N)))"},
    {"matmul", "(program p (dims (M 3) (N 50) (K 40)) (input X f32 (M K)) (parameter W f32 (N K))\n"
               " (output Y (matmul X W :axis {K}) (M N)))"},
    {"rowdot", "(program p (dims (N 13) (K 40)) (input X f32 (K)) (input W f16 (N K))\n"
               " (output Y (matmul (cast f16 X) W :axis {K}) (N)))"},
    {"gather", "(program p (dims (V 9) (N 6) (S 4)) (input T f32 (V N)) (input I i64 (S))\n"
               " (output Y (gather T I :axis V) (S N)))"},
};

static bool blessing;

typedef struct printing {
    i64 i, vector_bytes;
    str text;
} printing;

static void print(fixture *f, const void *arg)
{
    printing *p = (printing *)(uintptr_t)arg;
    const char *text = CASES[p->i].text;
    ir_program *program = ir_read(f->a, CASES[p->i].name, text, (i64)strlen(text));
    rt_plan plan = {0};
    kn_kernels kernels = {0};
    kn_build(f->a, program, (kn_options){p->vector_bytes, 1, true, NULL, false}, &plan, &kernels);
    p->text = str_new(f->a);
    cg_c(&p->text, f->ctx, kernels.at, kernels.n, p->vector_bytes);
}

static void test_golden(void **state)
{
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++)
        for (i64 bytes = 16; bytes <= 64; bytes *= 2) {
            printing p = {.i = i, .vector_bytes = bytes};
            run_fine(f, print, &p);
            char *path = arena_printf(f->a, EQF_TEST_DIR "/codegen/golden/%s.%lld.c", CASES[i].name,
                                      (long long)bytes);
            if (blessing) {
                file_write(f->ctx, path, p.text.at, p.text.n);
                continue;
            }
            i64 n;
            const char *want = file_read(f->a, path, 1 << 24, &n);
            if (strcmp(want, p.text.at) != 0)
                fail_msg("%s differs from what is printed now", path);
        }
}

int main(int argc, char **argv)
{
    blessing = argc > 1 && strcmp(argv[1], "--bless") == 0;
    const struct CMUnitTest tests[] = {TEST(test_golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
