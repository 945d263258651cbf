/* Where there are too many structures to look at each: what is found near the best is no worse than what
 * looking at all of them finds, where that can be done; it has the value of the program; no two candidates
 * have the same kernels; and the first are unlike one another. */
#include "extract/extract.h"
#include "ir/check.h"
#include "rules/small.h"
#include "rules/values.h"

static rl_graph *graph_of(arena *a, const ir_program *p)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_REASSOCIATED,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    return g;
}

/* With sizes as they are written. */
static ir_program *whole_program(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, "%s/rules/programs/%s.eqf", EQF_TEST_DIR, name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static const char *printed(arena *a, const ir_program *p)
{
    str s = str_new(a);
    ir_print(&s, p);
    return str_text(&s);
}

/* So few structures are enumerated that the others must be found near them. */
static ex_report look_near(arena *a, rl_graph *g, i64 most)
{
    ex_options o = {.most = most, .most_sets = 1};
    ex_report r = ex_search(a, g, &o);
    assert_true(r.is_cut_short && !r.complete && r.n > 0);
    return r;
}

static void check_best(fixture *f, const void *arg)
{
    const char *name = arg;
    rl_graph *g = graph_of(f->a, whole_program(f->a, name));
    ex_report all = ex_search(f->a, g, &(ex_options){.most = 64});
    ex_report near = look_near(f->a, g, 64);
    print_message("  %s: the best of %lld structures %.4g us, found near others %.4g us\n", name,
                  (long long)all.sets, all.at[0].bound_us, near.at[0].bound_us);
    assert_true(all.complete);
    assert_true(near.at[0].bound_us <= 1.001 * all.at[0].bound_us);
}

/* Of many structures each is looked at too, though not with every set of tiles that it may store, which the
 * report does not claim. */
static void check_many(fixture *f, const void *arg)
{
    const char *name = arg;
    rl_graph *g = graph_of(f->a, whole_program(f->a, name));
    ex_report all = ex_search(f->a, g, &(ex_options){.most = 64});
    print_message("  %s: %lld structures, %lld candidates\n", name, (long long)all.sets,
                  (long long)all.distinct);
    assert_true(all.sets > 32 && all.complete && !all.is_exhaustive && all.distinct >= all.sets);
}

static void many_are_looked_at(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"self_attention", "differential_attention", "layer_sinks", "mla",
                                        "decoder_layer"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_many, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

static void the_best_is_found(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"rmsnorm_swiglu", "layernorm_gemm", "attention",
                                        "attention_causal", "gqa_decode"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_best, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

static bool is_in(const ex_candidate *c, u64 digest)
{
    for (i64 i = 0; i < c->kernels; i++)
        if (c->kernel[i].digest == digest)
            return true;
    return false;
}

static void expect_unlike(const ex_report *r)
{
    i64 kernels = 0;
    for (i64 i = 0; i < r->n; i++) {
        const ex_candidate *c = &r->at[i];
        f64 us = 0;
        for (i64 k = 0; k < c->kernels; k++) {
            us += c->kernel[k].us;
            assert_true(k == 0 || c->kernel[k - 1].digest <= c->kernel[k].digest);
        }
        assert_true(us <= 1.0001 * c->bound_us && us >= 0.9999 * c->bound_us);
        for (i64 k = 0; k < i; k++) {
            bool same = c->kernels == r->at[k].kernels;
            for (i64 j = 0; j < c->kernels && same; j++)
                same = c->kernel[j].digest == r->at[k].kernel[j].digest;
            assert_false(same && c->bound_us == r->at[k].bound_us);
        }
        for (i64 k = 0; k < c->kernels && i < 16; k++) {
            bool is_old = false;
            for (i64 j = 0; j < i; j++)
                is_old |= is_in(&r->at[j], c->kernel[k].digest);
            kernels += !is_old;
        }
    }
    print_message("  %lld kernels in the first 16, %lld in the first\n", (long long)kernels,
                  (long long)r->at[0].kernels);
    assert_true(kernels >= 2 * r->at[0].kernels);
}

static void check_unlike(fixture *f, const void *arg)
{
    rl_graph *g = graph_of(f->a, whole_program(f->a, arg));
    ex_report r = look_near(f->a, g, 32), again = look_near(f->a, g, 32);
    expect_unlike(&r);
    assert_int_equal(r.n, again.n);
    for (i64 i = 0; i < r.n; i++)
        assert_string_equal(printed(f->a, r.at[i].program), printed(f->a, again.at[i].program));
}

static void candidates_are_unlike(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"differential_attention", "decoder_layer", "layer_mla"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_unlike, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

static void check_values(fixture *f, const void *arg)
{
    ir_program *p = small_program(f->a, arg);
    ex_report r = look_near(f->a, graph_of(f->a, p), 32);
    tensor *inputs = small_inputs(f->a, p, 5);
    tensor *want = NEW_N(f->a, tensor, p->outputs.n), *got = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});
    for (i64 i = 0; i < r.n; i++) {
        ir_eval(r.at[i].program, inputs, f->a, got, (ir_eval_options){0});
        for (i64 k = 0; k < p->outputs.n; k++)
            if (!same_values(f->ctx, &got[k], &want[k]))
                fail_msg("%s: candidate %lld", (const char *)arg, (long long)i);
    }
}

static void they_compute_the_program(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"mla", "differential_attention", "decoder_layer",
                                        "self_attention"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_values, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

/* Two products in one kernel: the first is computed again for each of the tiles of the result along D. That the
 * first sums over D, too, does not change that. */
static void check_repeats(fixture *f, const void *arg)
{
    (void)arg;
    for (int same = 0; same < 2; same++) {
        const char *out = same ? "D" : "E";
        const char *text = arena_printf(
            f->a, "(program two (dims (R 128) (D 512) (E 512) (H 1024))\n"
                  "  (parameter U f32 (D H)) (parameter W f32 (H %s)) (input x f32 (R D))\n"
                  "  (let h (matmul x U :axis D))\n"
                  "  (output y (matmul (exp h) W :axis H) (R %s)))", out, out);
        ir_program *p = ir_read(f->a, "two", text, (i64)strlen(text));
        ex_report r = ex_search(f->a, graph_of(f->a, p), &(ex_options){.most = 512});
        f64 one = 0, two = 0;
        for (i64 i = 0; i < r.n; i++) {
            f64 *least = r.at[i].kernels == 1 ? &one : &two;
            *least = *least > 0 ? MIN(*least, r.at[i].flops) : r.at[i].flops;
        }
        print_message("  to %s: %.4g operations in one kernel, %.4g in more\n", out, one, two);
        assert_true(two > 0 && one > 1.8 * two);
    }
}

/* The least operations and bytes of a program in one kernel, and operations in as many as there may be. */
typedef struct least {
    f64 one, one_bytes, more;
} least;

static least least_of(fixture *f, const char *text)
{
    ir_program *p = ir_read(f->a, "rows", text, (i64)strlen(text));
    ex_report r = ex_search(f->a, graph_of(f->a, p), &(ex_options){.most = 512});
    least x = {0};
    for (i64 i = 0; i < r.n; i++) {
        f64 *flops = r.at[i].kernels == 1 ? &x.one : &x.more;
        *flops = *flops > 0 ? MIN(*flops, r.at[i].flops) : r.at[i].flops;
        if (r.at[i].kernels == 1)
            x.one_bytes = x.one_bytes > 0 ? MIN(x.one_bytes, r.at[i].bytes) : r.at[i].bytes;
    }
    return x;
}

/* What rows are divided by is computed once a row, though the row is gone through in tiles: by kernels
 * (kernel/tiled.c), and so by the model. Where rows and columns are both reduced, columns are not: their
 * sums are computed for each tile of rows. */
static void check_rows(fixture *f, const void *arg)
{
    (void)arg;
    static const char *const rows[] = {
        "(program rows (dims (M 64) (K 8192)) (input X f32 (M K))\n"
        "  (let n (sqrt (reduce + (square X) :axis K)))\n  (output Y (div X n) (M K)))",
        "(program rows (dims (M 64) (K 8192)) (input X f32 (M K))\n"
        "  (let m (reduce max X :axis K)) (let e (exp (sub X m)))\n"
        "  (output Y (div e (reduce + e :axis K)) (M K)))",
        "(program rows (dims (M 64) (T 8192) (D 64)) (input Q f32 (M D)) (input K f32 (T D))\n"
        "  (let s (matmul Q K :axis D)) (output Y (div s (reduce max s :axis T)) (M T)))"};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        least x = least_of(f, rows[i]);
        print_message("  rows: %.4g operations in one kernel, %.4g in more\n", x.one, x.more);
        assert_true(x.one > 0 && x.one < 3 * x.more);
    }
    least x = least_of(f, "(program both (dims (M 8192) (K 8192)) (input X f32 (M K))\n"
                          "  (let r (reduce + X :axis K)) (let c (reduce + X :axis M))\n"
                          "  (output Y (mul X (mul r c)) (M K)))");
    assert_true(x.one > 10 * x.more);
}

/* Of what loops leave tiles out of, the rest is not read. */
static void check_visits(fixture *f, const void *arg)
{
    (void)arg;
    f64 bytes[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        const char *text = arena_printf(
            f->a, "(program window (dims (D 64) (E 64) (T 16384)) (input Q f32 (D)) (input K f32 (T D))\n"
                  "  (input V f32 (T E)) (let S (where (le %d (iota T)) (matmul Q K :axis D) -inf))\n"
                  "  (let P (exp (sub S (reduce max S :axis T))))\n"
                  "  (output O (matmul (div P (reduce + P :axis T)) V :axis T)))", narrow ? 12288 : 4096);
        bytes[narrow] = least_of(f, text).one_bytes;
    }
    print_message("  windows: %.4g bytes of 12288 positions, %.4g of 4096\n", bytes[0], bytes[1]);
    assert_true(bytes[0] > 2.8 * bytes[1] && bytes[1] > 2 * 4096 * 64 * 4);
}

static void what_is_repeated_counts(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_repeats, NULL) != EQF_OK || attempt(f, check_rows, NULL) != EQF_OK ||
        attempt(f, check_visits, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(the_best_is_found), TEST(many_are_looked_at),
                                       TEST(candidates_are_unlike),
                                       TEST(they_compute_the_program),
                                       TEST(what_is_repeated_counts)};
    return cmocka_run_group_tests_name("near", tests, NULL, NULL);
}
