/* Candidates: every program that extraction proposes has the value of the program that it came
 * from, by the reference interpreter and as kernels. Where masks leave rows of -inf, a candidate
 * has the program's value wherever that is a number or an infinity. */
#include "extract/extract.h"
#include "ir/check.h"
#include "kernel/harness.h"
#include "partition/partition.h"
#include "rules/small.h"

static void compare_value(fixture *f, const char *name, i64 number, const ir_program *p,
                         const tensor *inputs, const tensor *want)
{
    tensor *got = NEW_N(f->a, tensor, p->outputs.n);
    i64 *tiles = NEW_N(f->a, i64, p->atoms.n);
    for (i64 i = 0; i < p->atoms.n; i++)
        tiles[i] = 2;
    ir_eval(p, inputs, f->a, got, (ir_eval_options){.tiles = tiles});
    for (i64 i = 0; i < p->outputs.n; i++) {
        i64 n = tensor_count(f->ctx, want[i].rank, want[i].shape);
        for (i64 k = 0; k < n; k++) {
            f64 x = tensor_get_f64(&got[i], k), y = tensor_get_f64(&want[i], k);
            if (!(fabs(x - y) <= 1e-6 * (1 + fabs(y))) && x != y && !isnan(y)) {
                str s = str_new(f->a);
                ir_print(&s, p);
                fail_msg("%s, candidate %lld: %.12g, wanted %.12g\n%s", name, (long long)number, x,
                         y, str_text(&s));
            }
        }
    }
}

static void compare_kernels(fixture *f, const char *name, i64 number, const ir_program *p,
                           tensor *inputs, const tensor *want)
{
    bench b = {.ctx = f->ctx, .a = f->a, .p = p, .inputs = inputs};
    kn_build(f->a, p, (kn_options){32, 2, true, NULL, false}, &b.plan, &b.kernels);
    assert_int_equal(bench_run(&b), 0);
    for (i64 i = 0; i < p->outputs.n; i++) {
        f64 e = bench_error(&b, i, &want[i]);
        if (!(e <= 2e-3)) {
            str s = str_new(f->a);
            ir_print(&s, p);
            fail_msg("%s, candidate %lld: kernels differ by %g\n%s", name, (long long)number, e,
                     str_text(&s));
        }
    }
}

/* Inputs that masks have been through: rows of -inf, and -inf here and there. */
static const struct masked {
    const char *program, *input;
} masked[] = {{"row_softmax", "X"}, {"row_statistics", "X"}, {"attention_mask", "mask"}};

static bool mask_input(fixture *f, const char *name, const ir_program *p, tensor *inputs,
                       rng *random)
{
    for (i64 i = 0; i < COUNT_OF(masked) * p->inputs.n; i++) {
        const struct masked *m = &masked[i / p->inputs.n];
        tensor *t = &inputs[i % p->inputs.n];
        const char *input = intern_text(p->names, p->inputs.at[i % p->inputs.n].name);
        if (strcmp(m->program, name) != 0 || strcmp(m->input, input) != 0)
            continue;
        i64 n = tensor_count(f->ctx, t->rank, t->shape), row = t->shape[t->rank - 1];
        for (i64 k = 0; k < n; k++)
            if (k / row % 3 == 1 || rng_below(random, 4) == 0)
                tensor_set_f64(t, k, -(f64)INFINITY);
        return true;
    }
    return false;
}

static void check_program(fixture *f, const void *arg)
{
    const char *name = arg;
    ir_program *p = small_program(f->a, name);
    rl_graph_options o = {.rules = rl_ruleset_shipped(f->a),
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default()};
    rl_graph *g = rl_graph_new(f->a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    rl_graph_fuse(g, RL_FUSE_LATE);
    ex_options options = {.most = 40};
    ex_report r = ex_search(f->a, g, &options);
    print_message("%-24s expanded %lld sets %lld tried %lld kept %lld\n", name,
                  (long long)r.expanded, (long long)r.sets, (long long)r.tried, (long long)r.n);
    assert_true(r.n > 0);
    rng random = rng_new(3);
    tensor *inputs = bench_inputs_away_from_0(f->a, p, &random);
    tensor *want = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});
    for (i64 i = 0; i < r.n; i++) {
        if (i < 3)
            print_message("    %lld kernels, bound %.3g us:", (long long)r.at[i].kernels,
                          r.at[i].bound_us);
        for (i64 k = 0; i < 3 && k < r.at[i].reduction_count; k++)
            print_message(" %s over %s%s", r.at[i].reductions[k].name, r.at[i].reductions[k].over,
                          k + 1 < r.at[i].reduction_count ? ";" : "\n");
        compare_value(f, name, i, r.at[i].program, inputs, want);
        compare_kernels(f, name, i, r.at[i].program, inputs, want);
    }
    if (!mask_input(f, name, p, inputs, &random))
        return;
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});
    for (i64 i = 0; i < r.n; i++)
        compare_value(f, name, i, r.at[i].program, inputs, want);
}

/* Parts of layers: candidates of each, put together, have the value of the program. */
static void check_joined(fixture *f, const void *arg)
{
    const char *name = arg;
    ir_program *p = small_program(f->a, name);
    pt_partition x = pt_cut(f->a, p, &(pt_options){.most_reductions = 5});
    assert_true(x.use_count > 1);
    ex_report *found = NEW_N(f->a, ex_report, x.part_count);
    for (i64 i = 0; i < x.part_count; i++) {
        rl_graph_options o = {.rules = rl_ruleset_shipped(f->a),
                              .fp = RL_REASSOCIATED,
                              .limits = eqf_limits_default()};
        rl_graph *g = rl_graph_new(f->a, x.parts[i].program, &o);
        rl_graph_saturate(g, NULL);
        rl_graph_tile(g, NULL);
        rl_graph_fuse(g, RL_FUSE_LATE);
        ex_options options = {.most = 5};
        found[i] = ex_search(f->a, g, &options);
        assert_true(found[i].n > 0);
    }
    rng random = rng_new(3);
    tensor *inputs = bench_inputs(f->a, p, &random);
    tensor *want = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});
    for (i64 k = 0; k < 5; k++) {
        const ir_program **forms = NEW_N(f->a, const ir_program *, x.part_count);
        for (i64 i = 0; i < x.part_count; i++)
            forms[i] = found[i].at[k % found[i].n].program;
        ir_program *q = pt_join(f->a, p, &x, forms);
        compare_value(f, name, k, q, inputs, want);
        compare_kernels(f, name, k, q, inputs, want);
    }
}

static void test_joined(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"decoder_layer", "decoder_layers_2", "decoder_layers_4"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_joined, names[i]) != EQF_OK)
            fail_msg("%s: %s: %s", names[i], last_diag(f).place, last_diag(f).message);
}

/* What is looked up is a kernel of its own, what follows is fused; a masked product by itself. */
static void test_others(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_program, "looked_up") != EQF_OK || attempt(f, check_program, "attention_sigmoid") != EQF_OK)
        fail_msg("%s: %s", last_diag(f).place, last_diag(f).message);
}

static void test_candidates(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(small_names); i++) {
        void *inner = NULL;
        assert_int_equal(fixture_setup(&inner), 0);
        fixture *f = inner;
        if (attempt(f, check_program, small_names[i]) != EQF_OK)
            fail_msg("%s: %s: %s", small_names[i], last_diag(f).place, last_diag(f).message);
        fixture_teardown(&inner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates),
        TEST(test_joined),
        TEST(test_others),
    };
    return cmocka_run_group_tests_name("candidates", tests, NULL, NULL);
}
