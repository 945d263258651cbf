/* The e-graph stays small: every program of programs/ and blocks with biases and residual sums, one
 * to four of them in a row, at large extents and small ones, saturate in every phase; and what a
 * block adds does not depend on how many stand before it. So do long chains, many turns and many heads. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/graph.h"

enum { ALGEBRA, TILES, FUSED, STAGES };
typedef struct sizes {
    i64 at[STAGES];
} sizes;

static eqf_ctx *ctx;

static void check_stop(const char *name, const char *stage, eqf_stop stop)
{
    if (stop != EQF_STOP_SATURATED)
        fail_msg("%s: %s: %s", name, stage, eqf_stop_name(stop));
}

/* E-nodes after each phase. */
static sizes grow(arena *a, const char *name, const char *text, bool inputs, rl_fuse_mode mode)
{
    ir_program *p = ir_read(a, name, text, (i64)strlen(text));
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .parameters_are_inputs = inputs,
                          .limits = eqf_limits_none()};
    o.limits.nodes = 20000;
    rl_graph *g = rl_graph_new(a, p, &o);
    sizes out;
    check_stop(name, "algebra", rl_graph_saturate(g, NULL).stop);
    out.at[ALGEBRA] = eqf_egraph_size(rl_graph_engine(g)).nodes;
    check_stop(name, "tiling", rl_graph_tile(g, NULL).stop);
    out.at[TILES] = eqf_egraph_size(rl_graph_engine(g)).nodes;
    check_stop(name, "fusion", rl_graph_fuse(g, mode).stop);
    out.at[FUSED] = eqf_egraph_size(rl_graph_engine(g)).nodes;
    return out;
}

static void say(const trap *t)
{
    if (t->status && eqf_diag_count(ctx)) {
        eqf_diag d = eqf_diag_get(ctx, 0);
        fail_msg("%s: %s: %s", d.file, d.place, d.message);
    }
}

/* ---- blocks in a row -------------------------------------------------------------------------- */

/* A shift and a scale of rows, with gain and bias. */
static void put_norm(str *s, const char *to, const char *x, int i)
{
    str_printf(s,
               "(parameter g%s%d f32 (C)) (parameter b%s%d f32 (C))\n"
               "(let c%s%d (sub %s (div (reduce + %s :axis C) 768)))\n"
               "(let r%s%d (rsqrt (add (div (reduce + (square c%s%d) :axis C) 768) 1e-5)))\n"
               "(let %s%d (add (mul g%s%d (mul c%s%d r%s%d)) b%s%d))\n",
               to, i, to, i, to, i, x, x, to, i, to, i, to, i, to, i, to, i, to, i, to, i);
}

/* Block i maps x(i-1) to x(i): both halves as (norm, products with biases, residual sum). */
static void put_block(str *s, int i)
{
    char x[16], y[16];
    snprintf(x, sizeof x, "x%d", i - 1);
    snprintf(y, sizeof y, "y%d", i);
    put_norm(s, "n", x, i);
    static const char *const names[] = {"q", "k", "v"}, *const atoms[] = {"H E", "H E", "H D"};
    for (int k = 0; k < 3; k++)
        str_printf(s,
                   "(parameter w%s%d f32 (C %s)) (parameter a%s%d f32 (%s))\n"
                   "(let %s%d (add (matmul n%d w%s%d :axis C) a%s%d))\n",
                   names[k], i, atoms[k], names[k], i, atoms[k], names[k], i, i, names[k], i,
                   names[k], i);
    str_printf(s,
               "(let s%d (mul (matmul q%d (rename k%d :axis S :to T) :axis E) 0.125))\n"
               "(let e%d (exp (sub s%d (reduce max s%d :axis T))))\n"
               "(let o%d (matmul (div e%d (reduce + e%d :axis T)) (rename v%d :axis S :to T) "
               ":axis T))\n"
               "(parameter wo%d f32 (H D C)) (parameter ao%d f32 (C))\n"
               "(let y%d (add (add (matmul o%d wo%d :axis {H D}) ao%d) x%d))\n",
               i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i - 1);
    put_norm(s, "m", y, i);
    str_printf(s,
               "(parameter wu%d f32 (C F)) (parameter au%d f32 (F))\n"
               "(parameter wd%d f32 (F C)) (parameter ad%d f32 (C))\n"
               "(let u%d (add (matmul m%d wu%d :axis C) au%d))\n"
               "(let x%d (add (add (matmul (mul u%d (sigmoid u%d)) wd%d :axis F) ad%d) y%d))\n",
               i, i, i, i, i, i, i, i, i, i, i, i, i, i);
}

static const char *blocks(arena *a, int n, bool small)
{
    str s = str_new(a);
    str_printf(&s, "(program blocks%d (dims %s)\n(input x0 f32 (S C))\n", n,
               small ? "(S 5) (T 5) (C 6) (H 2) (E 3) (D 4) (F 7)"
                     : "(S 512) (T 512) (C 768) (H 12) (E 64) (D 64) (F 3072)");
    for (int i = 1; i <= n; i++)
        put_block(&s, i);
    str_printf(&s, "(output y x%d (S C)))\n", n);
    return str_text(&s);
}

static void test_blocks(void **state)
{
    (void)state;
    trap t;
    TRY (ctx, t)
        for (int variant = 0; variant < 4; variant++) {
            sizes before = {{0}}, added = {{0}};
            for (int n = 1; n <= 4; n++) {
                arena *a = arena_new(ctx, 0);
                const char *text = blocks(a, n, variant & 1);
                sizes now = grow(a, "blocks", text, variant & 2, RL_FUSE_LATE);
                for (int k = 0; k < STAGES; k++) {
                    i64 more = now.at[k] - before.at[k]; /* the first has an input before it */
                    if (n > 1 && more > (n == 2 ? 2 * added.at[k] : added.at[k] + added.at[k] / 10))
                        fail_msg("block %d, stage %d: %lld e-nodes more, the one before it %lld",
                                 n, k, (long long)more, (long long)added.at[k]);
                    added.at[k] = more;
                }
                before = now;
                if (n <= 2)
                    grow(a, "block", text, variant & 2, RL_FUSE_NODE);
                arena_free(a);
            }
        }
    say(&t);
}

/* With the bundles that operators ask for, too, a layer adds what the one before it did. */
static void test_layers(void **state)
{
    (void)state;
    static const char *const names[] = {"decoder_layer", "decoder_layers_2", "decoder_layers_4"};
    trap t;
    TRY (ctx, t)
        for (int variant = 0; variant < 2; variant++) {
            i64 nodes[COUNT_OF(names)];
            for (i64 k = 0; k < COUNT_OF(names); k++) {
                arena *a = arena_new(ctx, 0);
                i64 n;
                const char *path =
                    arena_printf(a, EQF_TEST_DIR "/rules/programs/%s.eqf", names[k]);
                const char *text = file_read(a, path, 1 << 20, &n);
                nodes[k] = grow(a, names[k], text, variant, RL_FUSE_NODE).at[FUSED];
                arena_free(a);
            }
            assert_in_range(nodes[2] - nodes[1], 1, 22 * (nodes[1] - nodes[0]) / 10);
        }
    say(&t);
}

/* ---- long and wide programs -------------------------------------------------------------------- */

/* Rows and columns of a matrix divided by their sums in turns, written out. */
static const char *turns(arena *a, i64 n)
{
    str s = str_new(a);
    str_add(&s, "(program turns (dims (B 64) (I 4) (J 4)) (input X f32 (B I J)) (let p0 (exp X))\n");
    for (i64 i = 1; i <= n; i++)
        str_printf(&s, "(let p%lld (div p%lld (reduce + p%lld :axis %s)))\n", (long long)i,
                   (long long)i - 1, (long long)i - 1, i % 2 ? "I" : "J");
    str_printf(&s, "(output Y p%lld))", (long long)n);
    return str_text(&s);
}

/* Heads that are no dim, each with weights of its own, summed. */
static const char *heads(arena *a, i64 n)
{
    str s = str_new(a), sum = str_new(a);
    str_add(&s, "(program heads (dims (M 128) (T 128) (D 64) (C 512)) (input X f32 (M C)) (input Z f32 (T C))\n");
    for (int i = 1; i <= n; i++) {
        str_printf(&s,
                   "(parameter q%d f32 (C D)) (parameter k%d f32 (C D)) (parameter v%d f32 (C D))\n"
                   "(parameter o%d f32 (D C))\n"
                   "(let S%d (matmul (matmul X q%d :axis C) (matmul Z k%d :axis C) :axis D))\n"
                   "(let P%d (exp (sub S%d (reduce max S%d :axis T))))\n"
                   "(let O%d (matmul (div P%d (reduce + P%d :axis T)) (matmul Z v%d :axis C) :axis T))\n",
                   i, i, i, i, i, i, i, i, i, i, i, i, i, i);
        str_printf(&sum, i == 1 ? "(matmul O%d o%d :axis D)" : " (matmul O%d o%d :axis D))", i, i);
    }
    str_add(&s, "(output Y ");
    for (i64 i = 1; i < n; i++)
        str_add(&s, "(add ");
    str_printf(&s, "%s))", str_text(&sum));
    return str_text(&s);
}

/* Operators on elements, one after another, with what varies along rows, columns and both. */
static const char *operators(arena *a, i64 n)
{
    static const char *const ops[] = {"(tanh p%lld)",     "(add p%lld y)", "(mul p%lld 0.5)",
                                      "(sigmoid p%lld)",  "(sub p%lld z)", "(square p%lld)",
                                      "(max p%lld y)",    "(mul p%lld z)", "(neg p%lld)",
                                      "(div p%lld (add (square z) 1))"};
    str s = str_new(a);
    str_add(&s, "(program operators (dims (M 64) (N 64)) (input X f32 (M N)) (input y f32 (N)) "
                "(input z f32 (M))\n(let p0 X)\n");
    for (i64 i = 1; i <= n; i++) {
        str_printf(&s, "(let p%lld ", (long long)i);
        str_printf(&s, ops[i % COUNT_OF(ops)], (long long)i - 1);
        str_add(&s, ")\n");
    }
    str_printf(&s, "(output Y p%lld))", (long long)n);
    return str_text(&s);
}

/* In one e-graph, what is twice as long has about twice as many e-nodes. */
static void test_wide(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *(*write)(arena *a, i64 n);
        i64 n;
    } cases[] = {{"turns", turns, 100}, {"heads", heads, 32}, {"operators", operators, 250}};
    trap t;
    TRY (ctx, t)
        for (i64 k = 0; k < COUNT_OF(cases); k++) {
            sizes at[2];
            for (i64 i = 0; i < 2; i++) {
                arena *a = arena_new(ctx, 0);
                const char *text = cases[k].write(a, cases[k].n << i);
                at[i] = grow(a, cases[k].name, text, false, RL_FUSE_LATE);
                arena_free(a);
            }
            for (int j = 0; j < STAGES; j++)
                if (at[1].at[j] > 22 * at[0].at[j] / 10)
                    fail_msg("%s: %lld e-nodes, %lld of twice as much", cases[k].name,
                             (long long)at[0].at[j], (long long)at[1].at[j]);
        }
    say(&t);
}

/* ---- long products ----------------------------------------------------------------------------- */

/* A sum of x0 x1 ... whose factors have some of the dims; which of them come first, and which are
 * multiplied with each other, are more ways than there are subsets. */
static void test_factors(void **state)
{
    static const char *const dims[][3] = {
        {"M N", "M", "N"}, {"M N", "M", "M"}, {"M N", "N", "N"}, {"M N", "M N", "M"}};
    (void)state;
    trap t;
    TRY (ctx, t)
        for (i64 k = 0; k < COUNT_OF(dims); k++) {
            arena *a = arena_new(ctx, 0);
            str s = str_new(a);
            str_add(&s, "(program factors (dims (M 64) (N 32))");
            for (int i = 0; i < 10; i++)
                str_printf(&s, " (input x%d f32 (%s))", i, dims[k][i % 3]);
            str_add(&s, "(let p0 x0)");
            for (int i = 1; i < 10; i++)
                str_printf(&s, "(let p%d (mul p%d x%d))", i, i - 1, i);
            str_add(&s, "(output y (reduce + p9 :axis N)))");
            i64 nodes = grow(a, "factors", str_text(&s), false, RL_FUSE_NODE).at[FUSED];
            if (nodes > 1500)
                fail_msg("%s, %s, %s: %lld e-nodes", dims[k][0], dims[k][1], dims[k][2], (long long)nodes);
            arena_free(a);
        }
    say(&t);
}

/* ---- the written programs --------------------------------------------------------------------- */

/* The same text with extents 2, 3, 4 ..., equal ones equal. */
static const char *shrunk(arena *a, const char *text)
{
    str s = str_new(a);
    const char *at = strstr(text, "(dims "), *end = strstr(at, "))") + 1;
    str_printf(&s, "%.*s(dims", (int)(at - text), text);
    i64 extents[64], n = 0;
    for (const char *name = strchr(at + 1, '('); name && name < end; name = strchr(name + 1, '(')) {
        i64 extent = strtoll(strchr(name, ' '), NULL, 10), i = 0;
        while (i < n && extents[i] != extent)
            i++;
        if (i == n)
            extents[n++] = extent;
        str_printf(&s, " %.*s %lld)", (int)strcspn(name, " "), name, (long long)i + 2);
    }
    str_printf(&s, "%s", end);
    return str_text(&s);
}

static void test_programs(void **state)
{
    (void)state;
    DIR *d = opendir(EQF_TEST_DIR "/rules/programs");
    assert_non_null(d);
    int seen = 0;
    trap t;
    TRY (ctx, t)
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
            char path[500];
            if (!strstr(e->d_name, ".eqf"))
                continue;
            snprintf(path, sizeof path, EQF_TEST_DIR "/rules/programs/%s", e->d_name);
            arena *a = arena_new(ctx, 0);
            i64 n;
            const char *text = file_read(a, path, 1 << 20, &n);
            for (int variant = 0; variant < 4; variant++) {
                rl_fuse_mode mode = variant & 1 ? RL_FUSE_NODE : RL_FUSE_LATE;
                grow(a, e->d_name, text, variant & 2, mode);
                if (!strstr(text, "(slice"))
                    grow(a, e->d_name, shrunk(a, text), variant & 2, mode);
            }
            seen++;
            arena_free(a);
        }
    closedir(d);
    say(&t);
    assert_true(seen > 10);
}

static int set_up(void **state)
{
    (void)state;
    ctx = eqf_ctx_new(NULL);
    return ctx ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    eqf_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_programs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
