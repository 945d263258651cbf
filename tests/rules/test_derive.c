/* Derivations: those of the forms that must be found are written, and replayed by a graph that knows
 * the two programs alone; with one thing changed they are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "rules/graph.h"

static const char *const names[] = {
    "attention",      "attention_causal", "attention_split", "decoder_layer",
    "lora",           "layernorm_gemm",   "mla",             "differential_attention",
    "moments",        "ngpt",             "rmsnorm_gemm",    "rmsnorm_mlp",
    "rmsnorm_swiglu", "row_softmax",      "self_attention",  "rmsnorm_swiglu_gain",
    "sinks",          "window",           "moments_split", "balanced"};

static ir_program *read_file(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, "%s/rules/derivations/%s.eqf", EQF_TEST_DIR, name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static const char *output_name(const ir_program *p, i64 i)
{
    return intern_text(p->names, p->outputs.at[i].name);
}

/* The outputs without a dot; or, of each, the k-th form that is written, while there are some. */
static ir_program *outputs_of(arena *a, const ir_program *p, i64 k, bool *any)
{
    ir_program *q = arena_copy(a, p, sizeof *p);
    memset(&q->outputs, 0, sizeof q->outputs);
    *any = false;
    for (i64 i = 0; i < p->outputs.n; i++) {
        const char *name = output_name(p, i);
        if (strchr(name, '.'))
            continue;
        ir_port port = p->outputs.at[i];
        for (i64 j = 0, left = k; j < p->outputs.n; j++) {
            const char *form = output_name(p, j);
            if (strncmp(form, name, strlen(name)) == 0 && form[strlen(name)] == '.' &&
                left-- == 0) {
                port.term = p->outputs.at[j].term;
                *any = true;
            }
        }
        vec_push(a, &q->outputs, port);
    }
    return q;
}

/* The program alone: without the parts of the dims that forms split, which are declared last. */
static ir_program *program_of(arena *a, const ir_program *all)
{
    bool any;
    ir_program *p = outputs_of(a, all, INT64_MAX, &any);
    if (p->splits.n)
        p->atoms.n = p->splits.at[0].outer.i;
    p->splits.n = 0;
    str s = str_new(a);
    ir_print(&s, p);
    return ir_read(a, "program", str_text(&s), s.n);
}

static rl_graph_options options_of(arena *a, bool explain)
{
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default(),
                          .explain = explain};
    o.limits.seconds = -1;
    o.limits.iterations = 100;
    return o;
}

/* `forms`: says which dims are split. */
static rl_graph *searched(arena *a, const ir_program *p, const ir_program *forms)
{
    rl_graph_options o = options_of(a, true);
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    for (i64 i = 0; i < forms->splits.n; i++) {
        ir_split s = forms->splits.at[i];
        rl_graph_split(g, s.whole, ir_extent(forms, s.outer));
        rl_graph_saturate(g, NULL);
    }
    rl_graph_tile(g, NULL);
    assert_int_equal(rl_graph_fuse(g, RL_FUSE_NODE).stop, EQF_STOP_SATURATED);
    return g;
}

/* Replays it with programs that were read again. */
static eqf_status replay(arena *a, const ir_program *p, const ir_program *form, const char *text,
                         eqf_check_report *report)
{
    eqf_ctx *ctx = arena_ctx(a);
    arena *own = arena_child(a);
    str s[2] = {str_new(own), str_new(own)};
    ir_print(&s[0], p);
    ir_print(&s[1], form);
    trap t;
    TRY (ctx, t) {
        ir_program *x = ir_read(own, "program", str_text(&s[0]), s[0].n),
                   *y = ir_read(own, "form", str_text(&s[1]), s[1].n);
        const sx *all = sx_read(own, "derivation", text, (i64)strlen(text));
        rl_graph_options o = options_of(own, false);
        if (all->n != 1)
            eqf_throw(ctx, EQF_E_MISMATCH, NULL, NULL, "no derivation");
        *report = rl_replay(own, x, y, &o, "derivation", text, (i64)strlen(text), all->at[0]);
    }
    arena_free(own);
    return t.status;
}

static void forms_are_derived(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 count = 0;
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        bool any;
        ir_program *all = read_file(a, names[k]);
        ir_program *p = program_of(a, all);
        rl_graph *g = searched(a, p, all);
        for (i64 form = 0;; form++) {
            ir_program *q = outputs_of(a, all, form, &any);
            if (!any)
                break;
            const char *why, *text = rl_graph_derive(g, a, q, &why);
            if (!text)
                fail_msg("%s, form %lld: %s", names[k], (long long)form, why);
            eqf_check_report report;
            if (replay(a, p, q, text, &report) != EQF_OK)
                fail_msg("%s, form %lld: %s: %s", names[k], (long long)form,
                         eqf_diag_get(ctx, 0).place, eqf_diag_get(ctx, 0).message);
            assert_true(report.steps > 0);
            assert_int_equal(report.assumptions, 0);
            count++;
            ir_program *other = outputs_of(a, all, form + 1, &any);
            if (any) { /* of another form */
                assert_int_equal(replay(a, p, other, text, &report), EQF_E_MISMATCH);
                eqf_ctx_clear(ctx);
            }
        }
        arena_free(a);
    }
    assert_true(count >= 20);
    eqf_ctx_free(ctx);
}

/* Every token changed into another one of its kind, one at a time: refused, or the same proof. */
static void changed_derivations_are_refused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    static const char *const some[] = {"rmsnorm_gemm", "row_softmax"};
    for (i64 k = 0; k < COUNT_OF(some); k++) {
        arena *a = arena_new(ctx, 0);
        bool any;
        ir_program *all = read_file(a, some[k]), *p = program_of(a, all),
                   *q = outputs_of(a, all, 0, &any);
        const char *why, *text = rl_graph_derive(searched(a, p, all), a, q, &why);
        assert_non_null(text);
        i64 n = (i64)strlen(text), tried = 0, refused = 0;
        rng r = rng_new(7);
        for (i64 turn = 0; turn < 150; turn++) {
            arena *own = arena_child(a);
            char *changed = arena_strdup(own, text);
            i64 at = (i64)rng_below(&r, (u64)n);
            while (at < n && strchr(" \n()", changed[at]))
                at++;
            if (at == n)
                continue;
            char c = changed[at];
            changed[at] = c >= '0' && c < '9' ? (char)(c + 1) : c == '9' ? '0' : c == 'K' ? 'M' : 'x';
            eqf_check_report report;
            eqf_status status = changed[at] == c ? EQF_E_MISMATCH
                                                 : replay(own, p, q, changed, &report);
            tried++;
            refused += status != EQF_OK;
            eqf_ctx_clear(ctx);
            arena_free(own);
        }
        print_message("%s: %lld of %lld changes refused\n", some[k], (long long)refused,
                      (long long)tried);
        assert_true(refused > tried * 8 / 10);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Terms nested by the hundred thousand, in a hint and in a proof. */
static void deep_terms_are_refused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (int k = 0; k < 2; k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = program_of(a, read_file(a, "rmsnorm_gemm"));
        str s = str_new(a);
        i64 n = 200000;
        str_add(&s, k ? "(derivation (output \"Y\" (proof shared 1" : "(derivation (hint 0 (shared-term");
        str_add(&s, " (t 1 X)");
        for (i64 i = 2; i <= n; i++)
            str_printf(&s, " (t %lld neg %lld)", (long long)i, (long long)i - 1);
        if (k)
            str_printf(&s, " (s 1 %lld 1 (axiom loop.0)) (claim %lld 1 1))))", (long long)n,
                       (long long)n);
        else
            str_printf(&s, " %lld)))", (long long)n);
        eqf_check_report report;
        eqf_status status = replay(a, p, p, str_text(&s), &report);
        assert_true(status == EQF_E_MISMATCH || status == EQF_E_LIMIT);
        eqf_ctx_clear(ctx);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_derived),
        cmocka_unit_test(changed_derivations_are_refused),
        cmocka_unit_test(deep_terms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
