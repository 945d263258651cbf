/* Candidates where values are stored because operators take them whole: all are worth the program, and
 * what is stored for one form is not computed for another. Of loops that differ in what they visit the
 * shortest is taken. */
#include "extract/impl.h"
#include "ir/check.h"
#include "rules/small.h"
#include "rules/values.h"
#include "rules/wide.h"

static rl_graph_options options_of(arena *a)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_REASSOCIATED,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    return o;
}

/* `parts`: of the first dim, 0: it is not split. */
static rl_graph *searched(arena *a, const ir_program *p, const rl_graph_options *o, i64 parts)
{
    rl_graph *g = rl_graph_new(a, p, o);
    if (parts)
        rl_graph_split(g, (ir_atom){1}, parts);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    assert_int_equal(rl_graph_fuse(g, RL_FUSE_LATE).stop, EQF_STOP_SATURATED);
    return g;
}

static ex_report candidates_of(arena *a, const ir_program *p)
{
    rl_graph_options o = options_of(a);
    ex_options x = {.most = 200};
    return ex_search(a, searched(a, p, &o, 0), &x);
}

static void check_values(fixture *f, const ir_program *p, const char *name)
{
    arena *a = arena_child(f->a);
    ex_report r = candidates_of(a, p);
    tensor *want = NEW_N(a, tensor, p->outputs.n), *got = NEW_N(a, tensor, p->outputs.n);
    assert_true(r.n > 0);
    ir_eval(p, small_inputs(a, p, 5), a, want, (ir_eval_options){0});
    for (i64 i = 0; i < r.n; i++) {
        ir_program *q = r.at[i].program;
        i64 *tiles = NEW_N(a, i64, q->atoms.n);
        for (i64 d = 0; d < q->atoms.n; d++)
            tiles[d] = 1 + (i + d) % 2;
        ir_eval(q, small_inputs(a, q, 5), a, got, (ir_eval_options){.tiles = tiles});
        for (i64 k = 0; k < p->outputs.n; k++)
            if (!same_values(arena_ctx(a), &want[k], &got[k]))
                fail_msg("%s: candidate %lld", name, (long long)i);
    }
    arena_free(a);
}

static void check_tiles(fixture *f, const void *arg)
{
    static const char *const names[] = {"joined", "looked-up", "packed", "rotated", "summed", "windows"};
    (void)arg;
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        i64 n;
        const char *path = arena_printf(f->a, "%s/rules/tiles/%s.eqf", EQF_TEST_DIR, names[k]);
        const char *text = file_read(f->a, path, 1 << 20, &n);
        check_values(f, ir_read(f->a, path, text, n), names[k]);
    }
    check_values(f, small_program(f->a, "lora"), "lora");
}

static void values(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_tiles, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

static i64 count(const char *text, const char *what)
{
    i64 n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

/* Weights are no constants of one another here, so that nothing folds into one product: both products
 * in one kernel, the inner one stored, and both side by side, which stores it too. */
static void check_adapters(fixture *f, const void *arg)
{
    static const char text[] =
        "(program adapters (dims (M 16) (K 256) (N 256) (R 64)) (input X f32 (M K)) "
        "(parameter W f32 (K N)) (parameter A f32 (K R)) (parameter B f32 (R N)) "
        "(output Y (add (matmul X W) (matmul (tanh (matmul X A)) B))))";
    (void)arg;
    ex_report r = candidates_of(f->a, ir_read(f->a, "adapters", text, sizeof text - 1));
    i64 alone = 0, stored = 0, joined = 0;
    for (i64 i = 0; i < r.n; i++) {
        str s = str_new(f->a);
        ir_print(&s, r.at[i].program);
        const char *form = str_text(&s);
        bool is_joined = count(form, "(concat ") == 2;
        joined += is_joined && r.at[i].kernels == 2 && count(form, "(tile-matmul ") == 2;
        stored += !is_joined && r.at[i].kernels == 2 && count(form, "(comb ") == 2;
        alone += !is_joined && r.at[i].kernels == 1 && count(form, "(comb ") == 1;
    }
    assert_true(r.complete);
    assert_int_equal(alone, 1);
    assert_int_equal(stored, 1);
    assert_int_equal(joined, 1);
}

static void stored_where_it_is_used(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_adapters, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* What several parts of one product are used for: it is made once, stored, and read at each. */
static void check_shared(fixture *f, const void *arg)
{
    static const struct {
        const char *text;
        i64 products; /* that there have to be */
    } cases[] = {
        {"(program halves (dims (M 64) (C 512) (H 4) (D 64) (A 32) (B 32) (T 64)) (input X f32 (M C)) "
         "(parameter W f32 (H D C)) (parameter S f32 (M D)) (parameter Z f32 (M D)) "
         "(input Q f32 (H M D)) (let k (matmul X W :axis C)) "
         "(let r (concat (neg (slice k :axis D :start 32 :to A :step 1)) "
         "(slice k :axis D :start 0 :to B :step 1) :axis (A B) :to D)) "
         "(output Y (matmul Q (rename (add (mul k S) (mul r Z)) :axis M :to T) :axis D) (H M T)))",
         2},
        {"(program packed (dims (M 64) (C 512) (J 96) (D 32) (E 32) (F 32)) (input X f32 (M C)) "
         "(parameter W f32 (J C)) (let k (matmul X W :axis C)) "
         "(output Q (exp (slice k :axis J :start 0 :to D :step 1))) "
         "(output K (sigmoid (slice k :axis J :start 32 :to E :step 1))) "
         "(output V (tanh (slice k :axis J :start 64 :to F :step 1))))",
         1},
    };
    (void)arg;
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        const ir_program *p = ir_read(f->a, "shared", cases[k].text, (i64)strlen(cases[k].text));
        ex_report r = candidates_of(f->a, p);
        i64 found = 0;
        for (i64 i = 0; i < r.n; i++) {
            str s = str_new(f->a);
            ir_print(&s, r.at[i].program);
            found += count(str_text(&s), "(tile-matmul ") == cases[k].products;
        }
        if (!found)
            fail_msg("%lld: no candidate makes %lld products", (long long)k,
                     (long long)cases[k].products);
        check_values(f, p, "shared");
    }
}

static void made_once(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_shared, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* What is looked up may have no dim but the one that it is looked up by, and be a number. */
static void check_tables(fixture *f, const void *arg)
{
    static const char *const terms[] = {
        "(sigmoid (gather (mul X 2) i :axis D))",
        "(gather (mul X (reduce + Z :axis {C D})) i :axis D)",
        "(matmul (gather (mul X 2) i :axis D) (gather (square X) i :axis D) :axis A)",
        "(sigmoid (gather (mul X 2) n :axis D))",
        "(mul (reduce + X :axis D) (gather (exp X) (reduce max i :axis A) :axis D))",
        "(gather (scan (mul X 2) :axis D :reducer +) (add n -1) :axis D)",
        "(gather (mul Z 2) n i :axis (C D))",
        "(sub (gather (reduce + Z :axis C) n :axis D) (gather (reduce max Z :axis D) n :axis C))"};
    (void)arg;
    for (i64 k = 0; k < COUNT_OF(terms); k++) {
        const char *text =
            arena_printf(f->a, "(program tables (dims (A 2) (C 4) (D 5)) (input X f32 (D)) "
                               "(input Z f32 (C D)) (input i i64 (A)) (input n i64 ()) (output Y %s))",
                         terms[k]);
        check_values(f, ir_read(f->a, "tables", text, (i64)strlen(text)), terms[k]);
    }
}

static void tables(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_tables, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* Whatever operators stand on one another. */
static void check_random(fixture *f, const void *arg)
{
    (void)arg;
    for (u64 seed = 1; seed <= 150; seed++)
        check_values(f, wide_program(f->a, seed), arena_printf(f->a, "seed %d", (int)seed));
}

static void random_values(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_random, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* Some candidates of each program are derived, and replayed by a graph that knows both alone. */
static void check_derived(fixture *f, const ir_program *p, i64 parts, const char *name)
{
    arena *a = arena_child(f->a);
    rl_graph_options o = options_of(a);
    o.explain = true;
    rl_graph *g = searched(a, p, &o, parts);
    ex_options x = {.most = 12};
    ex_report r = ex_search(a, g, &x);
    for (i64 i = 0; i < r.n; i++) {
        const char *why = "", *text = rl_graph_derive(g, a, r.at[i].program, &why);
        if (!text)
            fail_msg("%s, candidate %lld: %s", name, (long long)i, why);
        i64 n = (i64)strlen(text);
        eqf_check_report report = rl_replay(a, p, r.at[i].program, &o, "derivation", text, n,
                                            sx_read(a, "derivation", text, n)->at[0]);
        assert_int_equal(report.assumptions, 0);
    }
    arena_free(a);
}

/* On the way there may be numbers that neither program has. */
static void check_derivations(fixture *f, const void *arg)
{
    static const char text[] =
        "(program numbers (dims (A 2) (B 3) (D 5)) (input x f32 (B D)) (input p f32 ()) "
        "(parameter z f32 (A D)) (let u (sub z (div (reduce + z :axis {A D}) 10))) "
        "(let n (mul u (rsqrt (add (div (reduce + (square u) :axis {A D}) 10) 1e-5)))) "
        "(let t (matmul p x :axis B)) (let s (add n -1.5)) "
        "(output y0 s (A D)) (output y1 (matmul (matmul s t :axis {A D}) t :axis D) ()) "
        "(output y2 (reduce + n :axis D) (A)))";
    /* forms of a split dim that cut it nowhere, or whose proofs cut it elsewhere */
    static const char split[] =
        "(program uncut (dims (K 4) (M 3) (N 2) (T 5)) (input x f32 (K)) "
        "(parameter z f32 (M K N) :constant 1) (input s f32 ()) (input b bool (T)) "
        "(let e (where (lt (iota T) 4) (neg z) -inf)) "
        "(let p (exp (sub e (reduce max e :axis {M K})))) "
        "(output y0 (matmul (mul x s) s :axis K) ()) "
        "(output y1 (div p (reduce + p :axis {M K})) (T N M K)) "
        "(output y2 (matmul x (mul x s) :axis K) ()))";
    (void)arg;
    check_derived(f, ir_read(f->a, "numbers", text, sizeof text - 1), 0, "numbers");
    check_derived(f, ir_read(f->a, "uncut", split, sizeof split - 1), 2, "uncut");
    for (u64 seed = 1; seed <= 40; seed++)
        check_derived(f, wide_program(f->a, seed), 0, arena_printf(f->a, "seed %d", (int)seed));
}

static void derivations(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_derivations, NULL) != EQF_OK)
        fail_msg("%s: %s", last_diag(f).place, last_diag(f).message);
}

/* A window as one mask inside another: the loop may visit what each of them leaves, or what both do. */
static void check_window(fixture *f, const void *arg)
{
    static const char text[] =
        "(program window (dims (M 512) (T 512) (E 64)) (input S f32 (M T)) (input V f32 (T E)) "
        "(let it (iota T)) (let iq (iota M)) "
        "(let A (where (le it iq) (where (lt (sub iq it) 64) S -inf) -inf)) "
        "(let P (exp (sub A (reduce max A :axis T)))) "
        "(output O (matmul (div P (reduce + P :axis T)) V :axis T)))";
    (void)arg;
    ex_report r = candidates_of(f->a, ir_read(f->a, "window", text, sizeof text - 1));
    i64 lists = 0;
    for (i64 i = 0; i < r.n; i++) {
        str s = str_new(f->a);
        ir_print(&s, r.at[i].program);
        i64 both = count(str_text(&s), ":visit (((+ -63 M) (+ 1 M)))");
        assert_int_equal(count(str_text(&s), ":visit"), both);
        lists += both;
    }
    assert_true(lists > 0);
}

/* What is masked is visited where the mask holds by every candidate, in a loop of its own too; unless what
 * shares the loop goes everywhere. */
static void check_single(fixture *f, const void *arg)
{
    static const char text[] =
        "(program single (dims (M 512) (T 512) (E 64)) (input S f32 (M T)) (input V f32 (T E)) "
        "(output O (matmul (sigmoid (where (le (iota T) (iota M)) S -inf)) V :axis T)) "
        "(output l (reduce + (where (lt (iota T) 100) S 0) :axis T)) "
        "(output s (reduce + (where (lt (iota T) 100) S 1) :axis T)))";
    (void)arg;
    const ir_program *p = ir_read(f->a, "single", text, sizeof text - 1);
    ex_report r = candidates_of(f->a, p);
    assert_true(r.n > 0);
    for (i64 i = 0; i < r.n; i++) {
        str s = str_new(f->a);
        ir_print(&s, r.at[i].program);
        assert_int_equal(count(str_text(&s), ":visit ((0 (+ 1 M)))"), 1);
        assert_int_equal(count(str_text(&s), ":visit ((0 100))"), 1);
        assert_int_equal(count(str_text(&s), ":visit"), 2);
    }
}

static void the_shortest_list(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_single, NULL) != EQF_OK || attempt(f, check_window, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(values), TEST(stored_where_it_is_used), TEST(made_once),
                                       TEST(the_shortest_list), TEST(tables), TEST(random_values),
                                       TEST(derivations)};
    return cmocka_run_group_tests_name("stored", tests, NULL, NULL);
}
