/* Masks as ranges: loops that leave out tiles in which a mask holds nowhere are found, worth the
 * same, and proved; where a masked tile adds something, or nothing is known of it, there are none.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/fuse_impl.h"
#include "rules/listed.h"
#include "rules/proved.h"
#include "rules/small.h"
#include "rules/worth.h"

static rl_graph *fused(arena *a, const ir_program *p, rl_fuse_mode mode, bool explain)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default(),
                          .explain = explain};
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_fuse(g, mode).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    return g;
}

/* Visit lists of the loops, each once, sorted: constant and factor of the outer atom, low and high. */
static const char *visits_in(rl_graph *g, arena *a)
{
    str s = str_new(a);
    str_add(&s, "");
    VEC(const char *) lines = {0};
    for (i64 k = 0; k < g->payloads.n; k++) {
        const ir_attr *attr = &g->payloads.at[k].attr;
        bool is_used = false;
        for (eqf_class c = eqf_next_class(g->engine, (eqf_class){0}); c.i;
             c = eqf_next_class(g->engine, c))
            for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i;
                 n = eqf_next_node(g->engine, c, n)) {
                eqf_head head = eqf_node_head(g->engine, n);
                is_used =
                    is_used || (!rl_leaf_of(g, head) && rl_node_label(g, head).op == IR_loop &&
                                eqf_head_payload(g->lang, head) == (u32)k);
            }
        str line = str_new(a);
        for (i64 i = 0; is_used && i < attr->ints.n; i++)
            str_printf(&line, "%lld ", (long long)attr->ints.at[i]);
        if (is_used && attr->ints.n)
            vec_push(a, &lines, str_text(&line));
        for (i64 i = lines.n - 1; i > 0 && strcmp(lines.at[i - 1], lines.at[i]) > 0; i--) {
            const char *later = lines.at[i - 1];
            lines.at[i - 1] = lines.at[i];
            lines.at[i] = later;
        }
    }
    for (i64 i = 0; i < lines.n; i++)
        str_printf(&s, "%s\n", lines.at[i]);
    return str_text(&s);
}

static const char softmax[] =
    "(program masked (dims (M 9) (T 9) (E 3)) (input S f32 (M T)) (input V f32 (T E)) "
    "(input b bool (M T)) (let it (iota T)) (let iq (iota M)) (let A %s) "
    "(let P (exp (sub A (reduce max A :axis T)))) "
    "(output O (matmul (div P (reduce + P :axis T)) V :axis T)))";

static const struct {
    const char *scores, *visits;
} masks[] = {
    {"(where (and (le (abs (sub iq it)) 2) (le it iq)) S -inf)", "-2 1 1 1 \n"},
    {"(where (and (or (lt it 2) (lt (sub iq it) 3)) (le it iq)) S -inf)", "-2 1 1 1 0 0 2 0 \n"},
    {"(where (le it iq) (mul S 0.5) -inf)", "0 0 1 1 \n"},
    {"(where (le it iq) (where (lt (sub iq it) 4) S -inf) -inf)", /* each, and both */
     "-3 1 1 1 \n-3 1 9 0 \n0 0 1 1 \n"},
    {"(add (where (lt (sub iq it) 4) (const f32 0) -inf) (add (where (le it iq) (const f32 0) -inf) S))",
     "-3 1 1 1 \n-3 1 9 0 \n0 0 1 1 \n"},
    {"(add (where (le it iq) (const f32 0) -inf) S)", "0 0 1 1 \n"},
    {"(where (le it iq) S -1e30)", "0 0 1 1 \n"}, /* every row has a live position */
    {"(where (lt it iq) S -1e30)", ""},           /* the first one has none */
    {"(where (and (le (sub iq it) 2) (le it iq)) S -65504)", "-2 1 1 1 \n"},
    {"(where (lt it 5) S -inf)", "0 5 \n"},
    {"S", ""},
    {"(where (le it iq) S 0)", ""},
    {"(where (le it iq) S -1000)", ""},
    {"(where (and (or b (le iq it)) (le it iq)) S -inf)", "0 0 1 1 \n"}, /* whatever the data is */
    {"(where (and (or b (eq it iq)) (and (le it iq) (lt (sub iq it) 4))) S -inf)", "-3 1 1 1 \n"},
    {"(where (or (and b (lt it 3)) (lt it 5)) S -inf)", "0 3 0 5 \n"},
    {"(where (or b (le it iq)) S -inf)", ""},
    {"(where (not (and b (lt it iq))) S -inf)", ""},
    {"(where (or b (eq it iq)) S -inf)", ""},
    {"(where (and b (le it iq)) S -1e30)", ""}, /* some rows may have no live position */
    {"(where (lt it 20) S -inf)", ""}, /* restricts nothing */
};

static void masks_become_ranges(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(masks); k++) {
        arena *a = arena_new(ctx, 0);
        char text[1000];
        int n = snprintf(text, sizeof text, softmax, masks[k].scores);
        rl_graph *g = fused(a, ir_read(a, "masked", text, n), RL_FUSE_NODE, true);
        if (strcmp(visits_in(g, a), masks[k].visits) != 0)
            fail_msg("%s:\n%s", masks[k].scores, visits_in(g, a));
        for (u64 seed = 0; seed < 5; seed++)
            check_worth(g, a, masks[k].scores, seed);
        i64 assumptions = 0;
        str seen = str_new(a);
        prove_all(g, a, &assumptions, &seen);
        assert_int_equal(assumptions, 0);
        assert_int_equal(strstr(str_text(&seen), "visit") != NULL, masks[k].visits[0] != 0);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

static const char single[] =
    "(program single (dims (M 9) (T 9) (E 3)) (input S f32 (M T)) (input V f32 (T E)) "
    "(input b bool (M T)) (let it (iota T)) (let iq (iota M)) "
    "(let m (and (le it iq) (lt (sub iq it) 4))) (output O %s))";

/* Reductions by themselves. */
static const struct {
    const char *result, *visits;
} singles[] = {
    {"(reduce + (where m S 0) :axis T)", "-3 1 1 1 \n"},
    {"(reduce * (where m S 1) :axis T)", "-3 1 1 1 \n"},
    {"(reduce max (where m S -inf) :axis T)", "-3 1 1 1 \n"},
    {"(reduce min (neg (where m S -inf)) :axis T)", "-3 1 1 1 \n"},
    {"(reduce + (where (and b m) S 0) :axis T)", "-3 1 1 1 \n"},
    {"(matmul (where m S 0) V :axis T)", "-3 1 1 1 \n"},
    {"(matmul (sigmoid (where m S -inf)) V :axis T)", "-3 1 1 1 \n"},
    {"(reduce + (mul 2 (sqrt (where m (square S) 0))) :axis T)", "-3 1 1 1 \n"},
    {"(matmul (div (where m S 0) (add 1 (square S))) V :axis T)", "-3 1 1 1 \n"},
    {"(reduce + (add (atan (where m S 0)) (where (lt it 3) S 0)) :axis T)",
     "-3 1 1 1 \n0 3 \n"}, /* a sum each */
    {"(matmul (mul S (cast f32 m)) V :axis T)", "-3 1 1 1 \n"},
    {"(reduce + (cast i64 (and b m)) :axis T)", "-3 1 1 1 \n"},
    {"(reduce + (sub 1 (cast f32 m)) :axis T)", ""},
    {"(reduce max (mul S (cast f32 m)) :axis T)", ""},
    {"(reduce + (where m S 1) :axis T)", ""},
    {"(reduce * (where m S 0) :axis T)", ""},
    {"(reduce max (where m S 0) :axis T)", ""},
    {"(reduce + (cos (where m S 0)) :axis T)", ""},
    {"(reduce + (tanh (where m S -inf)) :axis T)", ""},
    {"(reduce + (div S (where m S 0)) :axis T)", ""},
    {"(reduce + S :axis T)", ""},
};

static void reductions_by_themselves(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < 2 * COUNT_OF(singles); k++) {
        arena *a = arena_new(ctx, 0);
        const char *result = singles[k / 2].result, *visits = singles[k / 2].visits;
        const char *text = arena_printf(a, single, result);
        rl_graph *g = fused(a, ir_read(a, "single", text, (i64)strlen(text)),
                            k % 2 ? RL_FUSE_LATE : RL_FUSE_NODE, true);
        if (strcmp(visits_in(g, a), visits) != 0)
            fail_msg("%s:\n%s", result, visits_in(g, a));
        for (u64 seed = 0; seed < 5; seed++)
            check_worth(g, a, result, seed);
        i64 assumptions = 0;
        str seen = str_new(a);
        prove_all(g, a, &assumptions, &seen);
        assert_int_equal(assumptions, 0);
        assert_int_equal(strstr(str_text(&seen), "visit") != NULL, visits[0] != 0);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* A random condition on positions and data, one inside another. */
static void add_condition(str *s, rng *g, i64 depth)
{
    static const char *const atoms[] = {"(le it iq)",
                                        "(le iq it)",
                                        "(lt (sub iq it) %lld)",
                                        "(lt (sub it iq) %lld)",
                                        "(le (abs (sub iq it)) %lld)",
                                        "(lt it %lld)",
                                        "(le %lld it)",
                                        "(eq it iq)",
                                        "(le (mul 2 it) (add iq %lld))",
                                        "b"};
    u64 k = depth ? rng_below(g, 4) : 3;
    if (k == 3) {
        str_printf(s, atoms[rng_below(g, COUNT_OF(atoms))], (long long)rng_below(g, 9));
        return;
    }
    str_add(s, k == 0 ? "(or " : "(and ");
    add_condition(s, g, depth - 1);
    str_add(s, " ");
    add_condition(s, g, depth - 1);
    str_add(s, ")");
}

/* Is the e-node a loop over ranges, with a state of several slots among its components or anything? */
static bool has_ranges(const rl_graph *g, eqf_node n, bool with_state)
{
    const eqf_egraph *e = g->engine;
    eqf_head head = eqf_node_head(e, n);
    if (rl_leaf_of(g, head) || rl_node_label(g, head).op != IR_loop ||
        !g->payloads.at[eqf_head_payload(g->lang, head)].attr.ints.n)
        return false;
    bool has_state = false;
    for (unsigned i = 0; i < eqf_head_arity(g->lang, head); i++) {
        eqf_node comp = eqf_next_node(e, eqf_node_child(e, n, i), (eqf_node){0});
        rl_label l = rl_node_label(g, eqf_node_head(e, comp));
        has_state = has_state || (l.op == IR_comp && !l.reducer);
    }
    return has_state || !with_state;
}

static i64 count_ranges(const rl_graph *g, bool with_state)
{
    i64 found = 0;
    for (eqf_class c = eqf_next_class(g->engine, (eqf_class){0}); c.i; c = eqf_next_class(g->engine, c))
        for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i;
             n = eqf_next_node(g->engine, c, n))
            found += has_ranges(g, n, with_state);
    return found;
}

static i64 loops_with_ranges(const rl_graph *g)
{
    return count_ranges(g, false);
}

static bool states_with_ranges(const rl_graph *g)
{
    return count_ranges(g, true) > 0;
}

/* Statistics of the live positions of a row: states with a reference that is a mean of these. */
#define MOMENTS                                                                                    \
    "(program masked (dims (M 9) (T 9)) (input S f32 (M T)) (input w f32 (M T)) (input v f32 (T)) "   \
    "(input b bool (M T)) (let it (iota T)) (let iq (iota M)) (let c (or (eq it iq) %s)) "             \
    "(let n (reduce + (where c (const f32 1) (const f32 0)) :axis T)) "                               \
    "(let mu (div (reduce + (where c S 0) :axis T) n)) "
static const char *const statistics[] = {
    MOMENTS "(output q (div (reduce + (where c (square (sub S mu)) 0) :axis T) n)))",
    MOMENTS "(let nu (div (reduce + (where c w 0) :axis T) n)) "
            "(output q (reduce + (where c (mul (sub S mu) (sub w nu)) 0) :axis T)))",
    MOMENTS "(let d (where c (sub S mu) 0)) (let s (rsqrt (add (div (reduce + (square d) :axis T) n) 0.01))) "
            "(output q (reduce + (mul (mul d s) v) :axis T)))",
};

/* Whatever the mask, what is left out adds nothing; and every tenth is proved. */
static void random_masks(void **state)
{
    const i64 count = *(const i64 *)*state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 loops = 0, states = 0;
    listed_counts counts = {.a = arena_new(ctx, 0)};
    for (i64 seed = 1; seed <= count; seed++) {
        arena *a = arena_new(ctx, 0);
        rng g = rng_new((u64)seed);
        str scores = str_new(a);
        str_add(&scores, "(where (or (eq it iq) "); /* the formula has no value for a row without any */
        add_condition(&scores, &g, 2);
        bool is_finite = seed / 2 % 2; /* every row has a live position */
        str_add(&scores, is_finite ? ") S -1e30)" : ") S -inf)");
        const char *text = arena_printf(a, softmax, str_text(&scores));
        const char *form = seed % 3 ? NULL : statistics[seed / 3 % COUNT_OF(statistics)];
        if (form) {
            str c = str_new(a);
            add_condition(&c, &g, 2);
            text = arena_printf(a, form, str_text(&c));
            is_finite = false;
        }
        bool proved = seed % 10 == 0;
        rl_graph *r = fused(a, ir_read(a, "masked", text, (i64)strlen(text)),
                            seed & 1 ? RL_FUSE_NODE : RL_FUSE_LATE, proved);
        i64 found = loops_with_ranges(r);
        loops += form ? 0 : found;
        states += form && states_with_ranges(r);
        listed_count(&counts, is_finite ? "visit.approx" : "visit", found > 0);
        for (u64 cut = 0; cut < 3; cut++)
            check_worth(r, a, text, (u64)seed + cut);
        i64 assumptions = 0;
        if (proved)
            prove_all(r, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    assert_true(loops > count && states > count / 20);
    assert_int_equal(listed_check(&counts, LISTED_VISITED, count / 10), 2); /* 200 of 2,000 */
    arena_free(counts.a);
    eqf_ctx_free(ctx);
}

/* The same of reductions by themselves, rows without a live position among them. */
static void random_singles(void **state)
{
    static const char *const results[] = {"(reduce + (where %s S 0) :axis T)",
                                          "(matmul (mul S (cast f32 %s)) V :axis T)",
                                          "(reduce max (where %s S -inf) :axis T)",
                                          "(matmul (sigmoid (where %s S -inf)) V :axis T)"};
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 loops = 0, count = 200;
    for (i64 seed = 1; seed <= count; seed++) {
        arena *a = arena_new(ctx, 0);
        rng g = rng_new((u64)seed);
        str condition = str_new(a);
        add_condition(&condition, &g, 2);
        const char *result = arena_printf(a, results[seed % COUNT_OF(results)], str_text(&condition));
        const char *text = arena_printf(a, single, result);
        bool proved = seed % 10 < 2;
        rl_graph *r = fused(a, ir_read(a, "single", text, (i64)strlen(text)), RL_FUSE_LATE, proved);
        loops += loops_with_ranges(r);
        for (u64 cut = 0; cut < 3; cut++)
            check_worth(r, a, text, (u64)seed + cut);
        i64 assumptions = 0;
        if (proved)
            prove_all(r, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    print_message("  %lld loops\n", (long long)loops);
    assert_true(loops > count / 2);
    eqf_ctx_free(ctx);
}

#define ROWS "(program rows (dims (M 9) (T 9)) (input S f32 (M T)) (input v f32 (T)) (input w f32 (M T)) "
#define CAUSAL "(let A (where (le (iota T) (iota M)) S -inf)) "
#define WEIGHTS "(let P (exp (sub A (reduce max A :axis T)))) (let l (reduce + P :axis T)) "
#define MEAN "(let mu (div (reduce + (mul P v) :axis T) l)) "
#define LIVE "(let c (le (iota T) (iota M))) (let n (reduce + (where c (const f32 1) (const f32 0)) :axis T)) "
#define LIVE_MEAN "(let nu (div (reduce + (where c S 0) :axis T) n)) "

/* States of several slots: those that a masked tile leaves alone, and those that count it. */
static const struct {
    const char *text, *visits;
    bool has_reducer, rests; /* a state of several slots is over ranges */
} states[] = {
    {ROWS CAUSAL WEIGHTS MEAN "(output q (div (reduce + (mul P (square (sub v mu))) :axis T) l)))",
     "0 0 1 1 \n", true, true},
    {ROWS CAUSAL WEIGHTS MEAN
     "(output q (div (reduce + (mul P (mul (sub v mu) (mul (sub v mu) (sub v mu)))) :axis T) l)))",
     "0 0 1 1 \n", true, true},
    {ROWS "(let A S) " WEIGHTS MEAN
          "(output q (div (reduce + (mul P (square (sub v mu))) :axis T) l)))",
     "", true, false}, /* no mask */
    {ROWS "(let A (where (le (iota T) (iota M)) S 1)) (let mu (div (reduce + A :axis T) 9)) "
          "(output q (reduce + (square (sub A mu)) :axis T)))",
     "", true, false}, /* masked positions count in the mean */
    {ROWS LIVE LIVE_MEAN "(output q (reduce + (where c (square (sub S nu)) 0) :axis T)))", "0 0 1 1 \n", true, true},
    {ROWS LIVE "(let nu (div (reduce + (where c S 0) :axis T) (cast f32 (add (iota M) 1)))) "
               "(output q (reduce + (where c (square (sub S nu)) 0) :axis T)))",
     "0 0 1 1 \n", true, true},
    {ROWS LIVE LIVE_MEAN "(let d (where c (sub S nu) 0)) (let s (rsqrt (add (div (reduce + (square d) "
                         ":axis T) n) 0.001))) (output q (reduce + (mul (mul d s) v) :axis T)))",
     "0 0 1 1 \n", true, true},
    /* all positions are counted, so that each tile moves the reference: the sums by themselves rest */
    {ROWS LIVE "(let nu (div (reduce + (where c S 0) :axis T) 9)) "
               "(output q (reduce + (where c (square (sub S nu)) 0) :axis T)))",
     "0 0 1 1 \n", true, false},
    {ROWS CAUSAL WEIGHTS "(let D (div (reduce + (mul P w) :axis T) l)) "
                         "(output q (reduce + (mul (mul (div P l) (sub w D)) v) :axis T)))",
     "0 0 1 1 \n", false, true},
};

/* The reducer rests when its masked leaf is -inf, whatever the other is; not otherwise. */
static void check_rest(rl_graph *g)
{
    static const rl_fact lowest = {.is_known = true, .value = (f64)-INFINITY},
                         zero = {.is_known = true, .is_finite = true}, some = {.is_finite = true};
    const rl_closed *reducer = NULL;
    for (i64 i = 0; i < g->closed.n && !reducer; i++)
        if (g->closed.at[i]->is_reducer && g->closed.at[i]->formal_count == 2)
            reducer = g->closed.at[i];
    assert_non_null(reducer);
    i64 masked = __builtin_popcountll(reducer->formals[0].dims) == 2 ? 0 : 1;
    rl_fact leaves[2];
    for (i64 k = 0; k < 4; k++) {
        leaves[masked] = k == 0 ? lowest : k == 1 ? zero : k == 2 ? some : (rl_fact){0};
        leaves[1 - masked] = k == 3 ? zero : (rl_fact){0};
        assert_int_equal(rl_reducer_rests(g, reducer, leaves, 2), k == 0);
    }
}

static void states_rest(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(states); k++) {
        arena *a = arena_new(ctx, 0);
        const char *text = states[k].text;
        rl_graph *g = fused(a, ir_read(a, "rows", text, (i64)strlen(text)), RL_FUSE_NODE, true);
        bool has_reducer = false;
        for (i64 i = 0; i < g->closed.n; i++)
            has_reducer = has_reducer || g->closed.at[i]->is_reducer;
        if (strcmp(visits_in(g, a), states[k].visits) != 0)
            fail_msg("%s:\n%s", text, visits_in(g, a));
        assert_true(has_reducer || !states[k].has_reducer);
        if (states_with_ranges(g) != states[k].rests)
            fail_msg("%s: %s", text, states[k].rests ? "all tiles are visited" : "some are not");
        if (k == 0)
            check_rest(g);
        for (u64 seed = 0; seed < 5; seed++)
            check_worth(g, a, text, seed);
        i64 assumptions = 0;
        str seen = str_new(a);
        prove_all(g, a, &assumptions, &seen);
        assert_int_equal(assumptions, 0);
        assert_int_equal(strstr(str_text(&seen), "visit") != NULL, states[k].visits[0] != 0);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Loops with one component, as text: the judge reads the mask off the body. */
static void wrong_lists_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *left, *right;
        bool holds;
    } cases[] = {
        {"(reduce.max (where (le t m) s i) :axis {T})",
         "(reduce.max (where (le t m) s i) :axis {T})", true},
        {"(reduce.max (where (le t m) s i) :axis {T})",
         "(reduce.max (where (le t m) s z) :axis {T})", false},
        {"(reduce.max (where (le t m) s z) :axis {T})",
         "(reduce.max (where (le t m) s z) :axis {T})", false},
        {"(reduce.max (where (le m t) s i) :axis {T})",
         "(reduce.max (where (le m t) s i) :axis {T})", false},
        {"(reduce.max (where (le t m) i s) :axis {T})",
         "(reduce.max (where (le t m) i s) :axis {T})", false},
        {"(reduce.max s :axis {T})", "(reduce.max s :axis {T})", false},
        {"(reduce.max (exp (where (le t m) s i)) :axis {T})",
         "(reduce.max (exp (where (le t m) s i)) :axis {T})", false},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    char text[1000];
    int n = snprintf(text, sizeof text, softmax, masks[2].scores);
    rl_graph *g = fused(a, ir_read(a, "masked", text, n), RL_FUSE_NODE, false);
    const char *list = NULL;
    for (i64 k = 0; k < g->payloads.n; k++)
        if (g->payloads.at[k].attr.ints.n == 4) {
            str s = str_new(a);
            eg_print_payload(g->lang, &s, rl_operator_head(g, IR_loop, IR_NO_REDUCER, 1, (u32)k).i);
            list = str_text(&s);
        }
    assert_non_null(list);
    eqf_checking c = rl_graph_checking(g);
    for (i64 k = 0; k < COUNT_OF(cases); k++) {
        str side[2] = {str_new(a), str_new(a)};
        for (int i = 0; i < 2; i++) {
            str_add(&side[i], "(loop (comp.max ");
            bool in_name = false; /* the one-letter names are short for terms */
            for (const char *x = i ? cases[k].right : cases[k].left; *x; x++) {
                const char *next = x + 1;
                bool is_one = !in_name && !strchr("() :{}.", *x) && strchr("() ", *next);
                in_name = !strchr("() ", *x);
                if (is_one && *x == 't')
                    str_add(&side[i], "(view #iota:T :par {T})");
                else if (is_one && *x == 'm')
                    str_add(&side[i], "(view #iota:M :par {M})");
                else if (is_one && *x == 's')
                    str_add(&side[i], "(view S :par {M T})");
                else if (is_one && *x == 'i')
                    str_add(&side[i], "#-inf");
                else if (is_one && *x == 'z')
                    str_add(&side[i], "#0.0");
                else
                    str_add_char(&side[i], *x);
            }
            str_printf(&side[i], ")%s)", i ? list : " :par {T}");
        }
        eqf_verdict v = c.step(c.user, "visit", str_text(&side[0]), str_text(&side[1]));
        if (v != (cases[k].holds ? EQF_HOLDS : EQF_REFUSED))
            fail_msg("%s = %s", str_text(&side[0]), str_text(&side[1]));
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void derivations(void **state)
{
    (void)state;
    static const char *const names[] = {"window", "sinks"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        i64 n;
        const char *path = arena_printf(a, "%s/rules/derivations/%s.eqf", EQF_TEST_DIR, names[k]);
        const char *text = file_read(a, path, 1 << 20, &n);
        ir_program *p = ir_read(a, path, text, n), *q = ir_read(a, path, text, n);
        p->outputs.n = 1;
        rl_graph *g = fused(a, p, RL_FUSE_NODE, false);
        for (i64 i = 0; i < q->outputs.n; i++)
            if (rl_graph_find(g, q, q->outputs.at[i].term).i !=
                rl_graph_class(g, p->outputs.at[0].term).i)
                fail_msg("%s: %s is not found", names[k],
                         intern_text(q->names, q->outputs.at[i].name));
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    i64 count = argc > 1 ? atoll(argv[1]) : 100;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_masks, &count),
        cmocka_unit_test(derivations),
        cmocka_unit_test(masks_become_ranges),
        cmocka_unit_test(reductions_by_themselves),
        cmocka_unit_test(random_singles),
        cmocka_unit_test(states_rest),
        cmocka_unit_test(wrong_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
