/* What depends on parameters alone is folded once and read, unless it is far larger than what it is made
 * of and little work: then it is made where it is used. A question of sizes, for each constant. */
#include "extract/impl.h"
#include "ir/check.h"
#include "rules/constants.h"
#include "rules/proved.h"
#include "rules/small.h"
#include "rules/values.h"

static rl_graph *graph_of(arena *a, const ir_program *p, bool explain)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_REASSOCIATED,
                          .explain = explain,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    assert_int_equal(rl_graph_fuse(g, RL_FUSE_LATE).stop, EQF_STOP_SATURATED);
    return g;
}

/* Elements of constants that are folded and read in a run. */
static i64 folded_in(arena *a, ir_program *p)
{
    const bool *constant = ir_constant_terms(a, p, true);
    bool *live = NEW_N(a, bool, p->nodes.n), *is_read = NEW_N(a, bool, p->nodes.n);
    i64 sum = 0;
    for (i64 i = 0; i < p->outputs.n; i++)
        live[p->outputs.at[i].term.i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        for (i64 i = 0; live[k] && i < node->arg_count; i++) {
            live[node->args[i].i] = true;
            is_read[node->args[i].i] |= !constant[k] || node->axes.n > 0;
        }
        bool is_whole = live[k] && constant[k] && is_read[k] && node->axes.n == 0 &&
                        ir_row(node->op)->class_ != IR_LEAF;
        i64 n = is_whole ? 1 : 0;
        for (i64 i = 0; i < node->dims.n; i++)
            n *= ir_extent(p, node->dims.at[i]);
        sum += n;
    }
    return sum;
}

static void check_case(fixture *f, const void *arg)
{
    const char *text = constant_cases[*(const i64 *)arg].text;
    arena *a = f->a;
    ir_program *p = ir_read(a, "constants", text, (i64)strlen(text));
    rl_graph *g = graph_of(a, p, false);
    ex_options x = {.most = 200};
    ex_report r = ex_search(a, g, &x);
    tensor *want = NEW_N(a, tensor, p->outputs.n), *got = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, small_inputs(a, p, 5), a, want, (ir_eval_options){0});
    assert_true(r.n > 0);
    for (i64 i = 0; i < r.n; i++) {
        ir_program *q = r.at[i].program;
        if (folded_in(a, q) != constant_cases[*(const i64 *)arg].folded) {
            str s = str_new(a);
            ir_print(&s, q);
            fail_msg("%lld elements folded: %s", (long long)folded_in(a, q), str_text(&s));
        }
        i64 *tiles = NEW_N(a, i64, q->atoms.n);
        for (i64 d = 0; d < q->atoms.n; d++)
            tiles[d] = 1 + (i + d) % 3;
        ir_eval(q, small_inputs(a, q, 5), a, got, (ir_eval_options){.tiles = tiles});
        assert_true(same_values(arena_ctx(a), &want[0], &got[0]));
    }
}

static void sizes_decide(void **state)
{
    fixture *f = *state;
    for (i64 k = 0; k < COUNT_OF(constant_cases); k++)
        if (attempt(f, check_case, &k) != EQF_OK)
            fail_msg("%s: %s", constant_cases[k].text, last_diag(f).message);
}

/* Tiles that are made are what was read, by rules that are replayed. */
static void check_proofs(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = ir_read(f->a, "constants", constant_cases[0].text, (i64)strlen(constant_cases[0].text));
    rl_graph *g = graph_of(f->a, p, true);
    i64 assumptions = 0;
    str seen = str_new(f->a);
    assert_true(prove_all(g, f->a, &assumptions, &seen) > 20);
    assert_int_equal(assumptions, 0);
    assert_non_null(strstr(str_text(&seen), "view.mul"));
}

static void making_is_proved(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_proofs, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(sizes_decide), TEST(making_is_proved)};
    return cmocka_run_group_tests_name("constants", tests, NULL, NULL);
}
