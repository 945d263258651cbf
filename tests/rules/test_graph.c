/* The tensor language on the engine: programs in and out, every e-node of every class worth the
 * same, contradictions named, proofs replayed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "egraph/egraph.h"
#include "rules/graph.h"
#include "rules/proved.h"
#include "rules/small.h"
#include "rules/values.h"

static rl_graph_options options_of(arena *a)
{
    eqf_limits limits = eqf_limits_default();
    limits.seconds = -1; /* so that no clock decides */
    return (rl_graph_options){
        .rules = rl_ruleset_shipped(a), .fp = RL_APPROXIMATE, .limits = limits};
}

/* ---- every e-node is worth what its class is ---------------------------------------------------
 */

static void add_output(ir_program *p, const char *name, ir_term t)
{
    ir_atoms d = ir_get(p, t)->dims;
    ir_dim *dims = NEW_N(p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(p, d.at[i]), {&d.at[i], 1}};
    ir_add_output(
        p, (ir_port){.name = intern_cstr(p->names, name), .rank = d.n, .dims = dims, .term = t});
}

typedef struct worth {
    i64 nodes, classes;
} worth;

static worth check_values(rl_graph *g, arena *a, const char *name)
{
    eqf_egraph *e = rl_graph_engine(g);
    eqf_ctx *ctx = arena_ctx(a);
    VEC(eqf_class) all = {0};
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c))
        vec_push(a, &all, c);
    eqf_extraction *x;
    assert_int_equal(eqf_extract(e, all.at, (size_t)all.n, NULL, EQF_TREE, &x), EQF_OK);
    rl_writer *w = rl_writer_new(g, a, x);
    ir_program *p = rl_writer_program(w);
    VEC(i64) first = {0}; /* output of each class; its e-nodes follow */
    for (i64 k = 0; k < all.n; k++) {
        vec_push(a, &first, p->outputs.n);
        add_output(p, arena_printf(a, "c%u", all.at[k].i), rl_write_class(w, all.at[k]));
        i64 j = 0;
        for (eqf_node n = eqf_next_node(e, all.at[k], (eqf_node){0}); n.i;
             n = eqf_next_node(e, all.at[k], n))
            add_output(p, arena_printf(a, "c%u.%lld", all.at[k].i, (long long)j++),
                       rl_write_node(w, n));
    }
    vec_push(a, &first, p->outputs.n);
    ir_verify(p, "writing all e-nodes");
    tensor *out = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, small_inputs(a, p, 11), a, out, (ir_eval_options){0});
    worth sum = {0, all.n};
    for (i64 k = 0; k < all.n; k++) {
        for (i64 i = first.at[k] + 1; i < first.at[k + 1]; i++) {
            sum.nodes++;
            if (same_values(ctx, &out[first.at[k]], &out[i]))
                continue;
            str s = str_new(a);
            ir_print_term(&s, p, p->outputs.at[first.at[k]].term);
            str_add(&s, "\n");
            ir_print_term(&s, p, p->outputs.at[i].term);
            fail_msg("%s: class %u holds different values:\n%s", name, all.at[k].i, str_text(&s));
        }
    }
    eqf_extraction_free(x);
    return sum;
}

static void check_form(rl_graph *g, arena *a, const ir_program *p, eqf_algo algo)
{
    rl_extracted form = rl_graph_form(g, a, algo);
    tensor *x = NEW_N(a, tensor, p->outputs.n), *y = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, small_inputs(a, p, 5), a, x, (ir_eval_options){0});
    ir_eval(form.program, small_inputs(a, form.program, 5), a, y, (ir_eval_options){0});
    for (i64 i = 0; i < p->outputs.n; i++)
        assert_true(same_values(arena_ctx(a), &x[i], &y[i]));
}

static void named_programs(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(small_names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_program(a, small_names[k]);
        rl_graph_options o = options_of(a);
        rl_graph *g = rl_graph_new(a, p, &o);
        check_form(g, a, p, EQF_DAG);
        eqf_run_report run = rl_graph_saturate(g, NULL);
        assert_int_equal(run.stop, EQF_STOP_SATURATED);
        assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
        worth w = check_values(g, a, small_names[k]);
        assert_int_equal(w.nodes, eqf_egraph_size(rl_graph_engine(g)).nodes);
        check_form(g, a, p, EQF_TREE);
        check_form(g, a, p, EQF_DAG);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* ---- random programs ---------------------------------------------------------------------------
 */

typedef struct maker {
    rng g;
    ir_program *p;
    ir_atom atom[4];
    ir_term pool[40];
    i64 n;
} maker;

static ir_term pick(maker *m)
{
    return m->pool[rng_below(&m->g, (u64)m->n)];
}

static ir_atoms some_atoms(maker *m, ir_atoms from)
{
    ir_atom *at = NEW_N(m->p->a, ir_atom, from.n);
    i64 n = 0;
    for (i64 i = 0; i < from.n; i++)
        if (rng_u64(&m->g) & 1)
            at[n++] = from.at[i];
    return (ir_atoms){at, n};
}

static ir_term grow(maker *m)
{
    ir_program *p = m->p;
    ir_term x = pick(m), y = pick(m);
    ir_term one = ir_f(p, DT_f32, 1);
    switch (rng_below(&m->g, 12)) {
    case 0:
        return ir_2(p, IR_add, x, y);
    case 1:
        return ir_2(p, IR_sub, x, y);
    case 2:
    case 3:
        return ir_2(p, IR_mul, x, y);
    case 4: /* a divisor that is no sum of both signs */
        return ir_2(p, IR_div, x, ir_2(p, IR_add, ir_1(p, IR_square, y), one));
    case 5:
        return ir_1(p, IR_neg, x);
    case 6:
        return ir_1(p, IR_square, x);
    case 7:
        return ir_1(p, IR_sigmoid, x);
    case 8:
        return ir_reduce(p, IR_SUM, x, some_atoms(m, ir_get(p, x)->dims));
    case 9:
        return ir_reduce(p, IR_MAX, x, some_atoms(m, ir_get(p, x)->dims));
    default:
        return ir_matmul(p, x, y,
                         some_atoms(m, ir_atoms_union(p, ir_get(p, x)->dims, ir_get(p, y)->dims)));
    }
}

static ir_program *random_program(arena *a, u64 seed)
{
    maker m = {.g = rng_new(seed), .p = ir_program_new(a, "random", "random")};
    for (i64 i = 0; i < 4; i++)
        m.atom[i] = ir_atom_new(m.p, arena_printf(a, "%c", 'A' + (int)i), i + 2);
    ir_atoms all = {m.atom, 4};
    for (i64 i = 0; i < 5; i++) {
        ir_atoms d = some_atoms(&m, all);
        ir_dim *dims = NEW_N(a, ir_dim, d.n);
        for (i64 k = 0; k < d.n; k++)
            dims[k] = (ir_dim){ir_extent(m.p, d.at[k]), {&d.at[k], 1}};
        i64 port = ir_add_input(
            m.p, (ir_port){.name = intern_cstr(m.p->names, arena_printf(a, "x%d", (int)i)),
                           .role = i < 2 ? IR_PARAMETER : IR_INPUT,
                           .dtype = DT_f32,
                           .rank = d.n,
                           .dims = dims});
        m.pool[m.n++] = m.p->inputs.at[port].term;
    }
    m.pool[m.n++] = ir_f(m.p, DT_f32, 2);
    for (i64 i = 0; i < 9; i++) {
        ir_term t = grow(&m);
        m.pool[m.n++] = t;
    }
    for (i64 i = 1; i <= 5; i++)
        add_output(m.p, arena_printf(a, "y%lld", (long long)i), m.pool[m.n - i]);
    return m.p;
}

static void random_programs(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 nodes = 0, grown = 0;
    for (u64 seed = 1; seed <= 150; seed++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = random_program(a, seed);
        rl_graph_options o = options_of(a);
        o.limits.nodes = 600;
        o.limits.iterations = 6;
        rl_graph *g = rl_graph_new(a, p, &o);
        i64 before = eqf_egraph_size(rl_graph_engine(g)).nodes;
        rl_graph_saturate(g, NULL);
        assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
        worth w = check_values(g, a, arena_printf(a, "random %lld", (long long)seed));
        nodes += w.nodes;
        grown += w.nodes > before;
        check_form(g, a, p, EQF_DAG);
        arena_free(a);
    }
    assert_true(grown > 75);
    assert_true(nodes > 3000);
    eqf_ctx_free(ctx);
}

/* ---- what extraction finds ---------------------------------------------------------------------
 */

static f64 flops_of(const ir_program *p)
{
    return (f64)ir_count_program(p).flops;
}

/* MLA: the key projection is absorbed, nothing of size T*H*D is left. */
static void expensive_forms_are_left(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *path = EQF_TEST_DIR "/rules/programs/mla.eqf";
    const char *text = file_read(a, path, 1 << 20, &n);
    ir_program *p = ir_read(a, path, text, n);
    rl_graph_options o = options_of(a);
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_extracted form = rl_graph_form(g, a, EQF_DAG);
    assert_true(form.flops < flops_of(p) / 50);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static const char lora_text[] =
    "(program lora (dims (M 4) (K 64) (N 32) (R 8)) (input X f32 (M K)) (parameter W f32 (K N)) "
    "(parameter A f32 (K R)) (parameter B f32 (R N)) "
    "(output Y (add (matmul X W) (mul (matmul (matmul X A) B) 2))))";

/* With constant parameters W + 2AB is folded; with parameters as inputs nothing is. */
static void constants_are_folded(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = ir_read(a, "lora", lora_text, (i64)strlen(lora_text));
    rl_graph_options o = options_of(a);
    for (int inputs = 0; inputs < 2; inputs++) {
        o.parameters_are_inputs = inputs;
        rl_graph *g = rl_graph_new(a, p, &o);
        rl_graph_saturate(g, NULL);
        f64 flops = rl_graph_form(g, a, EQF_DAG).flops, product = 2.0 * 4 * 64 * 32;
        if (inputs)
            assert_true(flops > product);
        else
            assert_true(flops == product);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Halves become one dtype inside and come back at the ports. */
static void half_types_come_back(void **state)
{
    (void)state;
    static const char text[] =
        "(program half (dims (M 3) (K 4)) (input X f16 (M K)) (parameter w bf16 (K)) "
        "(output Y (mul X (cast f16 (mul w w)))) (output Z (cast f16 (cast f32 X))))";
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = ir_read(a, "half", text, (i64)strlen(text));
    rl_graph_options o = options_of(a);
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_class(g, p->outputs.at[1].term).i,
                     rl_graph_class(g, p->inputs.at[0].term).i);
    rl_extracted form = rl_graph_form(g, a, EQF_DAG);
    assert_int_equal(form.program->outputs.at[0].dtype, DT_f16);
    check_form(g, a, p, EQF_DAG);
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

/* A rule that the loader would have refused, put past it: the run ends and says what was united. */
static void contradictions_name_types(void **state)
{
    (void)state;
    static const char text[] = "(rule r (reduce + (square ?x) :axis ?K) => (neg (reduce + (square "
                               "?x) :axis ?K)) :fp exact)";
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = small_program(a, "rmsnorm_gemm");
    rl_graph_options o = options_of(a);
    rl_ruleset *set = rl_ruleset_new(a);
    rl_ruleset_read(set, "r", text, (i64)strlen(text));
    set->rules.at[0]->right = set->rules.at[0]->left->kids[0];
    o.rules = set;
    rl_graph *g = rl_graph_new(a, p, &o);
    trap t;
    TRY (ctx, t)
        rl_graph_saturate(g, NULL);
    assert_int_equal(t.status, EQF_E_CONTRADICTION);
    eqf_diag d = eqf_diag_get(ctx, eqf_diag_count(ctx) - 1);
    assert_string_equal(d.place, "r");
    assert_non_null(strstr(d.message, "f32 {M}"));
    assert_non_null(strstr(d.message, "f32 {M K}"));
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void many_dims_are_refused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    ir_program *p = ir_program_new(a, "wide", "wide");
    ir_term sum = {0};
    for (int i = 0; i < 65; i++) {
        ir_atom d = ir_atom_new(p, NULL, 2);
        ir_term x = ir_reduce(p, IR_SUM, ir_cast(p, DT_f32, ir_iota(p, d)), (ir_atoms){&d, 1});
        sum = i ? ir_2(p, IR_add, sum, x) : x;
    }
    add_output(p, "sum", sum);
    rl_graph_options o = options_of(a);
    trap t;
    TRY (ctx, t)
        rl_graph_new(a, p, &o);
    assert_int_equal(t.status, EQF_E_LIMIT);
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* ---- proofs ------------------------------------------------------------------------------------
 */

static const char *form_text(rl_graph *g, arena *a, eqf_class root, eqf_cost *cost)
{
    eqf_extraction *x;
    const char *text;
    assert_int_equal(eqf_extract(rl_graph_engine(g), &root, 1, cost, EQF_TREE, &x), EQF_OK);
    assert_int_equal(eqf_extraction_text(x, root, false, 0, &text), EQF_OK);
    text = arena_strdup(a, text);
    eqf_extraction_free(x);
    return text;
}

static double flops_cost(void *user, const eqf_egraph *e, eqf_node n)
{
    (void)e;
    return rl_graph_flops(user, n) + 1e-3;
}

static void proofs_are_replayed(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm_mlp", "layernorm_gemm", "lora",
                                        "attention",   "self_attention", "mla"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 steps = 0;
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_program(a, names[k]);
        rl_graph_options o = options_of(a);
        o.explain = true;
        rl_graph *g = rl_graph_new(a, p, &o);
        eqf_class root = rl_graph_class(g, p->outputs.at[0].term);
        eqf_cost cost = {.of = flops_cost, .user = g};
        const char *from = form_text(g, a, root, &cost);
        rl_graph_saturate(g, NULL);
        const char *to = form_text(g, a, root, &cost);
        eqf_proof *proof;
        assert_int_equal(
            eqf_explain(rl_graph_engine(g), eqf_text_of(from), eqf_text_of(to), &proof), EQF_OK);
        for (int form = EQF_SHARED; form <= EQF_FLAT; form++) {
            char *text;
            assert_int_equal(eqf_proof_text(proof, (eqf_form)form, &text), EQF_OK);
            eqf_check_report report;
            eqf_status s = replay(g, text, from, to, &report);
            if (s)
                fail_msg("%s: %s: %s", names[k], eqf_diag_get(ctx, 0).place,
                         eqf_diag_get(ctx, 0).message);
            steps += report.steps;
            eqf_text_free(ctx, text);
        }
        eqf_proof_free(proof);
        arena_free(a);
    }
    assert_true(steps > 30);
    eqf_ctx_free(ctx);
}

/* Why each e-node is in its class, for all e-nodes that saturation made. */
static void every_equality_is_proved(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm_gemm", "layernorm_gemm", "lora", "attention"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 proofs = 0, assumptions = 0;
    arena *all = arena_new(ctx, 0);
    str seen = str_new(all);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        rl_graph_options o = options_of(a);
        o.explain = true;
        rl_graph *g = rl_graph_new(a, small_program(a, names[k]), &o);
        rl_graph_saturate(g, NULL);
        proofs += prove_all(g, a, &assumptions, &seen);
        arena_free(a);
    }
    assert_true(proofs > 120);
    assert_non_null(strstr(str_text(&seen), "sum-over-"));
    assert_non_null(strstr(str_text(&seen), "square-of-shift"));
    arena_free(all);
    eqf_ctx_free(ctx);
}

/* The judges alone: what they accept, and the same with one thing wrong. */
static void judges_refuse(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    rl_graph_options o = options_of(a);
    rl_graph *g = rl_graph_new(a, small_program(a, "layernorm_gemm"), &o);
    rl_graph_saturate(g, NULL);
    eqf_checking c = rl_graph_checking(g);
    const char *left = "(reduce.+ (sub X (div (reduce.+ X :axis {K}) #768.0)) :axis {K})";
    const char *right =
        "(sub (reduce.+ X :axis {K}) (mul (div (reduce.+ X :axis {K}) #768.0) #3.0))";
    assert_int_equal(c.step(c.user, "build.sum-over-shift", left, right), EQF_HOLDS);
    assert_int_equal(
        c.step(c.user, "build.sum-over-shift", left,
               "(sub (reduce.+ X :axis {K}) (mul #3.0 (div (reduce.+ X :axis {K}) #768.0)))"),
        EQF_HOLDS); /* unordered operands */
    assert_int_equal(c.step(c.user, "build.sum-over-shift", left, left), EQF_REFUSED);
    assert_int_equal(c.step(c.user, "build.sum-over-add", left, right), EQF_REFUSED);
    assert_int_equal(c.step(c.user, "sum-over-shift", left, right), EQF_REFUSED);
    assert_int_equal(c.step(c.user, "build.sum-over-shift", left,
                            "(sub (reduce.+ X :axis {K}) (mul (div (reduce.+ X :axis {K}) #768.0) "
                            "#768.0))"),
                     EQF_REFUSED);
    assert_int_equal(c.step(c.user, "build.sum-over-shift", "(frob X)", right), EQF_REFUSED);
    const char *scale = "when.scale-leaves-matmul";
    const char *good[] = {"X", "(reduce.+ X :axis {K})", "W", "{K}"},
               *bad[] = {"X", "X", "W", "{K}"};
    assert_int_equal(c.guard(c.user, scale, good, 4), EQF_HOLDS);
    assert_int_equal(c.guard(c.user, scale, bad, 4), EQF_REFUSED);
    assert_int_equal(c.guard(c.user, scale, good, 3), EQF_REFUSED);
    assert_int_equal(c.guard(c.user, "when.no-such-rule", good, 4), EQF_REFUSED);
    const char *sum[] = {"X", "c", "(square X)"}; /* known to be constant from another form? */
    assert_int_equal(c.guard(c.user, "when.constants-sum", sum, 3), EQF_ASSUMED);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_programs),           cmocka_unit_test(random_programs),
        cmocka_unit_test(expensive_forms_are_left), cmocka_unit_test(constants_are_folded),
        cmocka_unit_test(half_types_come_back),     cmocka_unit_test(contradictions_name_types),
        cmocka_unit_test(many_dims_are_refused),    cmocka_unit_test(proofs_are_replayed),
        cmocka_unit_test(every_equality_is_proved), cmocka_unit_test(judges_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
