/* Half types in candidates. The twin of a program whose ports are half types has its fused forms, as many
 * kernels and its value. Where a program rounds here and there, no candidate is less exact than it is:
 * none stores in a half type what the program has in f32. Conversions to integers stay.
 *
 *     test_kernel_half [PROGRAMS]      random ones (default 40) */
#include "extract/extract.h"
#include "ir/check.h"
#include "kernel/harness.h"
#include "rules/small.h"

static i64 random_programs = 40;

/* ---- programs with casts ------------------------------------------------------------------------ */

/* Where a copy rounds: ports, and with a generator some values too, for some of their readers. */
typedef struct rounding {
    dtype ports, inside;
    rng *random; /* NULL: at the ports alone */
} rounding;

static ir_term narrow(ir_program *q, dtype half, ir_term t)
{
    return ir_cast(q, DT_f32, ir_cast(q, half, t));
}

static bool is_hit(const rounding *r, u32 of)
{
    return r->random && rng_below(r->random, of) == 0;
}

static ir_program *copy_rounded(arena *a, const ir_program *p, const rounding *r)
{
    ir_program *q = ir_program_new(a, p->file, "rounded");
    ir_term *exact = NEW_N(a, ir_term, p->nodes.n), *rounded = NEW_N(a, ir_term, p->nodes.n);
    for (i64 d = 1; d < p->atoms.n; d++)
        ir_atom_new(q, ir_atom_name(p, (ir_atom){(u32)d}), p->atoms.at[d].extent);
    for (i64 i = 0; i < p->inputs.n; i++) {
        ir_port port = p->inputs.at[i];
        ir_term from = port.term;
        port.name = intern_cstr(q->names, intern_text(p->names, port.name));
        port.key = 0;
        bool is_half = port.dtype == DT_f32 && (!r->random || is_hit(r, 2));
        port.dtype = is_half ? (u8)r->ports : port.dtype;
        i64 k = ir_add_input(q, port);
        ir_term in = q->inputs.at[k].term;
        exact[from.i] = rounded[from.i] = is_half ? ir_cast(q, DT_f32, in) : in;
    }
    for (i64 t = 1; t < p->nodes.n; t++) {
        const ir_node *n = &p->nodes.at[t];
        if (exact[t].i)
            continue;
        ir_term args[64];
        assert_true(n->arg_count <= 64);
        for (i64 i = 0; i < n->arg_count; i++)
            args[i] = is_hit(r, 2) ? rounded[n->args[i].i] : exact[n->args[i].i];
        ir_attr attr = n->attr;
        attr.name = 0;
        exact[t] = rounded[t] = ir_make(q, (ir_op)n->op, attr, args, n->arg_count);
        if (n->dtype == DT_f32 && is_hit(r, 3))
            rounded[t] = narrow(q, r->inside, exact[t]);
    }
    for (i64 i = 0; i < p->outputs.n; i++) {
        ir_port port = p->outputs.at[i];
        port.name = intern_cstr(q->names, intern_text(p->names, port.name));
        ir_term t = rounded[port.term.i];
        bool is_half = port.dtype == DT_f32 && (!r->random || is_hit(r, 4));
        port.dtype = is_half ? (u8)r->ports : port.dtype;
        port.term = is_half ? ir_cast(q, r->ports, t) : t;
        ir_add_output(q, port);
    }
    ir_verify(q, "rounded");
    return q;
}

static rl_graph_options options_of(arena *a)
{
    return (rl_graph_options){ /* none that cancel, which would be less exact for that */
        .rules = rl_ruleset_shipped(a), .fp = RL_REASSOCIATED, .limits = eqf_limits_default()};
}

static rl_graph *searched(arena *a, const ir_program *p, const rl_graph_options *o)
{
    rl_graph *g = rl_graph_new(a, p, o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    return g;
}

static ex_report candidates_of(arena *a, ir_program *p, i64 most)
{
    rl_graph_options o = options_of(a);
    ex_options options = {.most = most};
    return ex_search(a, searched(a, p, &o), &options);
}

/* The one of fewest kernels. */
static const ex_candidate *fewest(const ex_report *r)
{
    const ex_candidate *best = &r->at[0];
    for (i64 i = 1; i < r->n; i++)
        best = r->at[i].kernels < best->kernels ? &r->at[i] : best;
    return best;
}

static tensor *inputs_of(fixture *f, const ir_program *p)
{
    rng random = rng_new(3);
    return bench_inputs_away_from_0(f->a, p, &random);
}

static bench run_kernels(fixture *f, const ir_program *p, tensor *inputs, bool constants)
{
    bench b = {.ctx = f->ctx, .a = f->a, .p = p, .inputs = inputs};
    kn_build(f->a, p, (kn_options){32, 2, constants, NULL, true}, &b.plan, &b.kernels);
    assert_int_equal(bench_run(&b), 0);
    return b;
}

static _Noreturn void fail_with(fixture *f, const char *name, const ir_program *p, const char *what, f64 e)
{
    str s = str_new(f->a);
    ir_print(&s, p);
    fail_msg("%s: %s (%g)\n%s", name, what, e, str_text(&s));
    abort();
}

/* ---- twins -------------------------------------------------------------------------------------- */

typedef struct twin {
    const char *name;
    dtype half;
} twin;

/* Does some value have no place in the type? */
static bool is_too_large(fixture *f, const tensor *x, dtype t)
{
    for (i64 k = 0; k < tensor_count(f->ctx, x->rank, x->shape); k++)
        if (t == DT_f16 && fabs(tensor_get_f64(x, k)) > 65504)
            return true;
    return false;
}

static void check_twin(fixture *f, const void *arg)
{
    const twin *x = arg;
    ir_program *p = small_program(f->a, x->name);
    ir_program *q = copy_rounded(f->a, p, &(rounding){.ports = x->half});
    ex_report wide = candidates_of(f->a, p, 40), half = candidates_of(f->a, q, 40);
    const ex_candidate *of_wide = fewest(&wide), *of_half = fewest(&half);
    print_message("%-24s %s %lld kernels, f32 %lld\n", x->name, dtype_name(x->half),
                  (long long)of_half->kernels, (long long)of_wide->kernels);
    assert_int_equal(of_half->kernels, of_wide->kernels);
    tensor *inputs = inputs_of(f, q), *want = NEW_N(f->a, tensor, q->outputs.n);
    ir_eval(q, inputs, f->a, want, (ir_eval_options){0});
    bench b = run_kernels(f, of_half->program, inputs, true);
    bench w = run_kernels(f, of_wide->program, inputs_of(f, p), true);
    assert_int_equal(b.plan.launches.n, w.plan.launches.n);
    for (i64 i = 0; i < q->outputs.n; i++) {
        assert_int_equal(of_half->program->outputs.at[i].dtype, q->outputs.at[i].dtype);
        f64 e = bench_error(&b, i, &want[i]);
        if (!(e <= 1e-2) && !is_too_large(f, &want[i], x->half))
            fail_with(f, x->name, of_half->program, "kernels differ", e);
    }
    /* and unfused, as it was read: a kernel for each that the f32 program has */
    bench plain = run_kernels(f, q, inputs, true), as_wide = run_kernels(f, p, inputs_of(f, p), true);
    assert_int_equal(plain.plan.launches.n, as_wide.plan.launches.n);
}

static void twins(void **state)
{
    for (i64 i = 0; i < 2 * COUNT_OF(small_names); i++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        twin x = {small_names[i / 2], i % 2 ? DT_f16 : DT_bf16};
        if (attempt(inner, check_twin, &x) != EQF_OK)
            fail_msg("%s: %s: %s", x.name, last_diag(inner).place, last_diag(inner).message);
        fixture_teardown(&inner);
    }
    (void)state;
}

/* ---- roundings anywhere ------------------------------------------------------------------------- */

/* Largest difference of outputs, as bench_error has it. */
static f64 error_of(fixture *f, const tensor *x, const tensor *want)
{
    f64 worst = 0;
    for (i64 k = 0; k < tensor_count(f->ctx, x->rank, x->shape); k++) {
        f64 y = tensor_get_f64(want, k);
        worst = MAX(worst, fabs(tensor_get_f64(x, k) - y) / (1 + fabs(y)));
    }
    return worst;
}

static void check_random(fixture *f, const void *arg)
{
    i64 seed = *(const i64 *)arg;
    rng random = rng_new((u64)seed);
    const char *name = small_names[rng_below(&random, COUNT_OF(small_names))];
    dtype halves[] = {DT_f16, DT_bf16};
    rounding how = {halves[rng_below(&random, 2)], halves[rng_below(&random, 2)], &random};
    ir_program *q = copy_rounded(f->a, small_program(f->a, name), &how);
    ex_report r = candidates_of(f->a, q, 8);
    assert_true(r.n > 0);
    tensor *inputs = inputs_of(f, q);
    tensor *want = NEW_N(f->a, tensor, q->outputs.n), *own = NEW_N(f->a, tensor, q->outputs.n);
    ir_eval(q, inputs, f->a, want, (ir_eval_options){0});
    ir_eval(q, inputs, f->a, own, (ir_eval_options){.round = true});
    for (i64 i = 0; i <= r.n; i++) {
        const ir_program *c = i < r.n ? r.at[i].program : q;
        ir_verify(c, "candidate");
        bench b = run_kernels(f, c, inputs, seed % 2 == 0);
        for (i64 o = 0; o < q->outputs.n; o++) {
            assert_int_equal(c->outputs.at[o].dtype, q->outputs.at[o].dtype);
            f64 e = bench_error(&b, o, &want[o]), most = 4 * error_of(f, &own[o], &want[o]) + 2e-5;
            if (!(e <= most)) {
                str s = str_new(f->a);
                ir_print(&s, q);
                print_message("%s\nmay differ by %g\n", str_text(&s), most);
                fail_with(f, name, c, "is less exact than the program", e);
            }
        }
    }
}

static void roundings_anywhere(void **state)
{
    for (i64 seed = 1; seed <= random_programs; seed++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        if (attempt(inner, check_random, &seed) != EQF_OK)
            fail_msg("seed %lld: %s: %s", (long long)seed, last_diag(inner).place, last_diag(inner).message);
        fixture_teardown(&inner);
    }
    (void)state;
}

/* ---- what is stored, and what stays ------------------------------------------------------------- */

#define MODEL "(dims (M 3) (K 4) (N 5)) (input X bf16 (M K)) (parameter W bf16 (K N) :constant 1) "

/* Of a program, a piece of text that the candidates must have, or must not. */
static const struct says {
    const char *what, *text, *piece;
    bool all, any; /* all candidates have it; any does */
} says[] = {
    {"what is rounded before every use is stored so",
     "(program p " MODEL "(let h (cast bf16 (matmul (cast f32 X) (cast f32 W))))"
     " (let y (cast f32 h)) (output Y (cast bf16 (div y (reduce + y :axis N))) (M N)))",
     "(cast bf16 (comb", false, true},
    {"what is also used as it was is stored as it was",
     "(program p " MODEL "(let h (matmul (cast f32 X) (cast f32 W)))"
     " (let y (cast f32 (cast bf16 h))) (output Y (div y (reduce + (square h) :axis N)) (M N)))",
     "bf16 (comb", false, false},
    {"what the program has in f32 is stored in f32",
     "(program p " MODEL "(let h (matmul (cast f32 X) (cast f32 W)))"
     " (output Y (div h (reduce + (square h) :axis N)) (M N)))",
     "bf16 (comb", false, false},
    {"another half type is no substitute",
     "(program p " MODEL "(let h (matmul (cast f32 X) (cast f32 W)))"
     " (let y (cast f32 (cast f16 h))) (let z (cast f32 (cast bf16 h)))"
     " (output Y (div y (reduce + z :axis N)) (M N)))",
     "16 (comb", false, false},
    {"a quantisation stays",
     "(program p " MODEL "(let s (div (reduce max (abs (cast f32 X)) :axis K) 127))"
     " (let q (cast i8 (round (div (cast f32 X) s))))"
     " (output Y (cast bf16 (matmul (mul (cast f32 q) s) (cast f32 W))) (M N)))",
     "(cast i8 ", true, true},
    {"so does a conversion to an index",
     "(program p (dims (M 3) (V 7)) (input X bf16 (M)) (parameter E bf16 (V) :constant 1)"
     " (output Y (gather E (cast i64 (mul (cast f32 X) 1)) :axis V) (M)))",
     "(cast i64 ", true, true},
    {"and a condition",
     "(program p " MODEL "(let b (cast bool (cast bf16 (sub (cast f32 X) 1))))"
     " (output Y (cast bf16 (matmul (where b (cast f32 X) 0) (cast f32 W))) (M N)))",
     "(where ", true, true},
};

static void check_text(fixture *f, const void *arg)
{
    const struct says *x = arg;
    ir_program *p = ir_read(f->a, "says", x->text, (i64)strlen(x->text));
    ex_report r = candidates_of(f->a, p, 40);
    assert_true(r.n > 0);
    bool all = true, any = false;
    for (i64 i = 0; i < r.n; i++) {
        str s = str_new(f->a);
        ir_print(&s, r.at[i].program);
        bool has = strstr(str_text(&s), x->piece) != NULL;
        all = all && has;
        any = any || has;
    }
    if ((x->all && !all) || x->any != any)
        fail_with(f, x->what, r.at[0].program, "candidates, the first of which follows, say otherwise", (f64)r.n);
}

static void what_is_stored(void **state)
{
    for (i64 i = 0; i < COUNT_OF(says); i++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        if (attempt(inner, check_text, &says[i]) != EQF_OK)
            fail_msg("%s: %s: %s", says[i].what, last_diag(inner).place, last_diag(inner).message);
        fixture_teardown(&inner);
    }
    (void)state;
}

/* ---- proofs ------------------------------------------------------------------------------------- */

typedef struct claim {
    const ir_program *p, *form;
    const rl_graph_options *o;
    const char *text;
} claim;

static void replay(fixture *f, const void *arg)
{
    const claim *c = arg;
    i64 n = (i64)strlen(c->text);
    rl_replay(f->a, c->p, c->form, c->o, "derivation", c->text, n, sx_read(f->a, "derivation", c->text, n)->at[0]);
}

/* The text with `from` once replaced. */
static const char *changed(arena *a, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

/* What is kept unrounded is a step of its own, which holds as it is and not otherwise. */
static void what_is_kept_is_said(void **state)
{
    fixture *f = *state;
    static const char text[] =
        "(program p " MODEL "(let h (cast bf16 (matmul (cast f32 X) (cast f32 W))))"
        " (let y (cast f32 h)) (let z (cast f32 (cast f16 (square y))))"
        " (output Y (cast bf16 (div y (reduce + z :axis N))) (M N)))";
    ir_program *p = ir_read(f->a, "p", text, (i64)strlen(text));
    rl_graph_options o = options_of(f->a);
    o.explain = true;
    rl_graph *g = searched(f->a, p, &o);
    ex_report r = ex_search(f->a, g, &(ex_options){.most = 20});
    bool has_stored = false, has_none = false, refused = false;
    for (i64 i = 0; i < r.n; i++) {
        const ir_program *form = r.at[i].program;
        const char *why = "", *proof = rl_graph_derive(g, f->a, form, &why);
        if (!proof)
            fail_msg("candidate %lld: %s", (long long)i, why);
        claim c = {p, form, &o, proof};
        assert_int_equal(attempt(f, replay, &c), EQF_OK);
        const char *said = strstr(proof, "(unrounded ");
        assert_non_null(said);
        said = arena_strndup(f->a, said, (i64)strcspn(said, ")") + 1);
        i64 rounded = said[strlen(said) - 2] - '0'; /* of both values, those that the form rounds */
        assert_string_equal(said, arena_printf(f->a, "(unrounded \"Y\" 2 %lld)", (long long)rounded));
        has_stored |= rounded > 0;
        has_none |= rounded == 0;
        c.text = changed(f->a, proof, said, arena_printf(f->a, "(unrounded \"Y\" 2 %lld)", (long long)rounded + 1));
        assert_int_equal(attempt(f, replay, &c), EQF_E_MISMATCH);
        eqf_ctx_clear(f->ctx);
        c.text = changed(f->a, proof, "(unrounded", "(hint");
        assert_int_equal(attempt(f, replay, &c), EQF_E_MISMATCH);
        eqf_ctx_clear(f->ctx);
        /* a program that rounds nothing to bf16 has no form that does */
        const char *narrow = changed(f->a, text, "(cast bf16 (matmul", "(cast f16 (matmul");
        c = (claim){ir_read(f->a, "p", narrow, (i64)strlen(narrow)), form, &o, proof};
        str s = str_new(f->a);
        ir_print(&s, form);
        bool is_narrower = strstr(str_text(&s), "(cast f32 (cast bf16") != NULL;
        assert_int_equal(attempt(f, replay, &c), is_narrower ? EQF_E_MISMATCH : EQF_OK);
        refused |= is_narrower;
        eqf_ctx_clear(f->ctx);
    }
    assert_true(has_stored && has_none && refused);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        random_programs = MAX(strtoll(argv[1], NULL, 10), 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(twins), cmocka_unit_test(roundings_anywhere),
                                       cmocka_unit_test(what_is_stored), TEST(what_is_kept_is_said)};
    return cmocka_run_group_tests_name("kernel_half", tests, NULL, NULL);
}
