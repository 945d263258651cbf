/* Candidates through the C compiler: the programs that extraction proposes for the named ones, in f32
 * and in bf16, are compiled and have the value of the program that they came from.
 *
 *     test_codegen_candidates [CANDIDATES [PROGRAM.eqf ...]]
 *
 * Every other one has tiles of few lanes, most of which do not divide what they cut.
 * Of each program so many, spread over all that were found (default 4; the long run takes 200). Programs that
 * are given are tried in the place of the named ones, with their own sizes. */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "extract/extract.h"
#include "ir/check.h"
#include "kernel/harness.h"
#include "rules/small.h"

enum { FOUND = 200 };
static i64 most = 4;
static char **given;
static i64 given_count;

/* Beside those of small.h; nothing in them depends on how long a dim is. */
static const char *const further_names[] = {
    "gated_mlp",         "rmsnorm_ffn",      "gqa_decode",         "attention_prefill", "attention_alibi",
    "attention_softcap", "attention_prefix", "attention_document", "attention_sigmoid", "attention_qk_norm"};

/* Those in which something does, small. */
static const struct small_one {
    const char *name, *text;
} small_ones[] = {
    {"window", "(program window (dims (H 2) (D 3) (T 11) (E 5)) (input q f32 (H D)) (input k f32 (H T D))\n"
               " (input v f32 (H T E)) (let s (where (le 6 (iota T)) (matmul q k :axis D) -inf))\n"
               " (let p (exp (sub s (reduce max s :axis T))))\n"
               " (output y (matmul (div p (reduce + p :axis T)) v :axis T) (H E)))"},
    {"band", "(program band (dims (S 7) (D 3) (T 9) (E 5)) (input q f32 (S D)) (input k f32 (T D))\n"
             " (input v f32 (T E)) (let near (and (le (iota T) (iota S)) (lt (iota S) (add (iota T) 3))))\n"
             " (let s (where near (matmul q k :axis D) -inf)) (let p (exp (sub s (reduce max s :axis T))))\n"
             " (output y (matmul (div p (reduce + p :axis T)) v :axis T) (S E)))"},
    {"sinks", "(program sinks (dims (H 2) (D 3) (T 13) (E 5)) (input q f32 (H D)) (input k f32 (H T D))\n"
              " (input v f32 (H T E)) (let seen (or (lt (iota T) 2) (le 9 (iota T))))\n"
              " (let s (where seen (matmul q k :axis D) -inf)) (let p (exp (sub s (reduce max s :axis T))))\n"
              " (output y (matmul (div p (reduce + p :axis T)) v :axis T) (H E)))"},
    {"sink-logit", "(program sink-logit (dims (H 2) (D 3) (T 7) (E 5)) (input q f32 (H D)) (input k f32 (H T D))\n"
                   " (input v f32 (H T E)) (input z f32 (H)) (let s (matmul q k :axis D))\n"
                   " (let m (max (reduce max s :axis T) z)) (let p (exp (sub s m)))\n"
                   " (let l (add (reduce + p :axis T) (exp (sub z m))))\n"
                   " (output y (matmul (div p l) v :axis T) (H E)))"},
    {"probabilities", "(program probabilities (dims (S 4) (D 3) (T 7) (E 5)) (input q f32 (S D)) (input k f32 (T D))\n"
                      " (input v f32 (T E)) (let s (matmul q k :axis D))\n"
                      " (let p (exp (sub s (reduce max s :axis T)))) (let w (div p (reduce + p :axis T)))\n"
                      " (output y (matmul w v :axis T) (S E)) (output w w (S T)))"},
};

typedef struct one {
    const char *name, *text; /* NULL: the named program */
    bool is_given, is_half;
} one;

/* The program, floats as bf16 where that is asked for. */
static ir_program *program_of(arena *a, const one *x)
{
    const char *path = x->is_given ? x->name : arena_printf(a, "%s/rules/programs/%s.eqf", EQF_TEST_DIR, x->name);
    i64 n = x->text ? (i64)strlen(x->text) : 0;
    const char *text = x->text ? x->text : file_read(a, path, 1 << 20, &n);
    str s = str_new(a);
    for (i64 i = 0; i < n; i++) {
        bool is_type = i + 5 <= n && memcmp(text + i, " f32 ", 5) == 0;
        if (x->is_half && is_type) {
            str_add(&s, " bf16 ");
            i += 4;
        } else {
            str_add_char(&s, text[i]);
        }
    }
    return x->text || x->is_given ? ir_read(a, path, str_text(&s), s.n)
                                  : small_text(a, path, str_text(&s), s.n);
}

static ex_report candidates_of(arena *a, ir_program *p)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default()};
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    ex_options options = {.most = FOUND};
    return ex_search(a, g, &options);
}

static void *compile(fixture *f, const str *text)
{
    char folder[] = "/tmp/eqf-candidates-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *c = arena_printf(f->a, "%s/kernels.c", folder);
    char *so = arena_printf(f->a, "%s/kernels.so", folder);
    file_write(f->ctx, c, text->at, text->n);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execlp("cc", "cc", CG_C_FLAGS, "-Wall", "-Wextra", "-Werror", "-march=native", "-O1", "-o", so,
               c, "-lm", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    unlink(so);
    unlink(c);
    rmdir(folder);
    return library;
}

/* Lowers b's program; with `lanes`, unless it cannot be cut so. */
static void build(fixture *f, bench *b, kn_options o, bool cuts, i64 seed)
{
    i64 *lanes = NEW_N(f->a, i64, b->p->atoms.n);
    for (i64 d = 0; d < b->p->atoms.n; d++)
        lanes[d] = 1 + (seed + d) % 5;
    o.lanes = cuts ? lanes : NULL;
    trap t;
    TRY (f->ctx, t)
        kn_build(f->a, b->p, o, &b->plan, &b->kernels);
    if (t.status == EQF_OK)
        return;
    assert_true(cuts && t.status == EQF_E_UNSUPPORTED);
    eqf_ctx_clear(f->ctx);
    b->plan = (rt_plan){0};
    b->kernels = (kn_kernels){0};
    build(f, b, o, false, seed);
}

static void check(fixture *f, const void *arg)
{
    const one *x = arg;
    ir_program *p = program_of(f->a, x);
    ex_report r = candidates_of(f->a, p);
    assert_true(r.n > 0);
    rng random = rng_new(5);
    tensor *inputs = bench_inputs_away_from_0(f->a, p, &random);
    tensor *want = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});

    i64 count = MIN(most, r.n);
    bench *all = NEW_N(f->a, bench, count);
    kn_kernels kernels = {0};
    for (i64 i = 0; i < count; i++) {
        all[i] = (bench){.ctx = f->ctx, .a = f->a, .inputs = inputs};
        all[i].p = r.at[count > 1 ? i * (r.n - 1) / (count - 1) : 0].program;
        i64 vector_bytes = 16 << (i % 3);
        build(f, &all[i], (kn_options){vector_bytes, 2, i / 2 % 2 != 0, NULL, x->is_half}, i % 2 != 0, i / 2);
        for (i64 k = 0; k < all[i].kernels.n; k++) {
            bool known = false;
            for (i64 j = 0; j < kernels.n && !known; j++)
                known = strcmp(kernels.at[j]->name, all[i].kernels.at[k]->name) == 0;
            if (!known)
                vec_push(f->a, &kernels, all[i].kernels.at[k]);
        }
    }
    str text = str_new(f->a);
    cg_c(&text, f->ctx, kernels.at, kernels.n, 64);
    void *library = compile(f, &text);
    for (i64 i = 0; i < count; i++) {
        bench *b = &all[i];
        b->compiled = NEW_N(f->a, rt_kernel, b->kernels.n + 1);
        for (i64 k = 0; k < b->kernels.n; k++) {
            void *symbol = dlsym(library, b->kernels.at[k]->name);
            assert_non_null(symbol);
            memcpy(&b->compiled[k], &symbol, sizeof symbol);
        }
        assert_int_equal(bench_run(b), 0);
        for (i64 o = 0; o < p->outputs.n; o++) {
            f64 e = bench_error(b, o, &want[o]);
            if (e <= (x->is_half ? 5e-2 : 2e-3))
                continue;
            str s = str_new(f->a);
            ir_print(&s, b->p);
            fail_msg("%s%s: output %lld of candidate %lld differs by %g\n%s", x->name,
                     x->is_half ? " in bf16" : "", (long long)o, (long long)i, e, str_text(&s));
        }
    }
    dlclose(library);
    print_message("%-24s %s %lld of %lld candidates, %lld kernels\n", x->name,
                  x->is_half ? "bf16" : "f32 ", (long long)count, (long long)r.n,
                  (long long)kernels.n);
}

static one at(i64 i)
{
    if (given_count)
        return (one){.name = given[i], .is_given = true};
    if (i < COUNT_OF(small_names))
        return (one){.name = small_names[i]};
    i -= COUNT_OF(small_names);
    if (i < COUNT_OF(further_names))
        return (one){.name = further_names[i]};
    i -= COUNT_OF(further_names);
    return (one){.name = small_ones[i].name, .text = small_ones[i].text};
}

static void test_compiled(void **state)
{
    (void)state;
    i64 n = given_count ? given_count
                        : COUNT_OF(small_names) + COUNT_OF(further_names) + COUNT_OF(small_ones);
    for (i64 i = 0; i < 2 * n; i++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        fixture *f = inner;
        one x = at(i / 2);
        x.is_half = i % 2 != 0;
        if (attempt(f, check, &x) != EQF_OK)
            fail_msg("%s: %s: %s", x.name, last_diag(f).place, last_diag(f).message);
        fixture_teardown(&inner);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        most = MAX(strtoll(argv[1], NULL, 10), 1);
    given = argv + MIN(argc, 2);
    given_count = MAX(argc - 2, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiled)};
    return cmocka_run_group_tests_name("codegen_candidates", tests, NULL, NULL);
}
