/* What fe_read refuses, and what it says: status and place of the first diagnostic. */
#include "fixtures.h"

typedef struct refusal {
    const char *fixture;
    fe_dim_value dims[2];
    i64 n_dims;
    bool use_hints;
    eqf_status status;
    const char *place, *says;
} refusal;

static const refusal refusals[] = {
    {"dynamic_attention", {{"batch", 3}}, 1, true, EQF_E_ARGUMENT, "batch", "name; there are s"},
    {"dynamic_attention", {{"s77", 1}}, 1, true, EQF_E_ARGUMENT, "s77", "outside of what"},
    {"dynamic_attention", {{"s77", 3}}, 1, false, EQF_E_ARGUMENT, "s27", "without a value"},
    {"dynamic_even", {{"s44", 1}}, 1, true, EQF_E_ARGUMENT, "2*s44", "outside of what"},
};

static void sizes_that_do_not_fit(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 i = 0; i < COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        arena *a = arena_new(ctx, 0);
        const char *path = arena_printf(a, FIXTURES "modules/%s.F.pt2", r->fixture);
        fe_read_options o = {.dims = r->dims, .n_dims = r->n_dims, .use_hints = r->use_hints};
        trap t;
        TRY (ctx, t) {
            fe_read(a, path, &o, NULL);
        }
        assert_int_equal(t.status, r->status);
        eqf_diag d = eqf_diag_get(ctx, 0);
        assert_string_equal(d.place, r->place);
        assert_non_null(strstr(d.message, r->says));
        eqf_ctx_clear(ctx);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Every operator without a meaning is in the report, once, with its reason; none is an error. */
static void boundaries_are_reported(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    fe_report report = {0};
    i64 opaque = 0, plain = 0;
    trap t;
    TRY (ctx, t) {
        fe_read(a, FIXTURES "modules/boundaries_many.F.pt2", NULL, &report);
    }
    assert_int_equal(t.status, EQF_OK);
    for (i64 i = 0; i < report.n_boundaries; i++) {
        const fe_boundary *b = &report.boundaries[i];
        *(b->runs ? &plain : &opaque) += 1;
        if (!strcmp(b->op, "aten.conv_transpose1d.default"))
            assert_non_null(strstr(b->reason, "convolution"));
        if (!strcmp(b->op, "aten.topk.default"))
            assert_true(b->runs);
        for (i64 k = 0; k < i; k++)
            assert_string_not_equal(report.boundaries[k].node, b->node);
    }
    assert_int_equal(opaque, 3);
    assert_true(plain >= 3);
    assert_string_equal(report.form, "functional");
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Sizes keep their names on both ends; those of a result may be expressions. */
static void sizes_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name;
        i64 output, dim;
    } cases[] = {
        {"dynamic_attention.T.pt2", "s77", 0, 0},
        {"dynamic_attention.C.pt2", "s27", 0, 1},
        {"dynamic_attention.F.pt2", NULL, 0, 2},
        {"strided_inputs.T.pt2", NULL, 0, 0},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        arena *a = arena_new(ctx, 0);
        trap t;
        TRY (ctx, t) {
            const char *path = arena_printf(a, FIXTURES "modules/%s", cases[i].file);
            fe_read_options options = {.use_hints = true};
            const ir_program *p = fe_read(a, path, &options, NULL);
            const ir_port *out = &p->outputs.at[cases[i].output];
            const char *name = out->symbols ? out->symbols[cases[i].dim] : NULL;
            assert_true(name ? cases[i].name && !strcmp(name, cases[i].name) : !cases[i].name);
        }
        assert_int_equal(t.status, EQF_OK);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* Baked-in arguments are assumptions of the result. */
static void constants_become_preconditions(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    bool is_found = false;
    trap t;
    TRY (ctx, t) {
        fe_read_options o = {.use_hints = true};
        ir_program *p = fe_read(a, FIXTURES "modules/integer_input.T.pt2", &o, NULL);
        for (i64 i = 0; i < p->preconditions.n; i++)
            is_found =
                is_found || !strcmp(intern_text(p->names, p->preconditions.at[i]), "factor == 3");
    }
    assert_int_equal(t.status, EQF_OK);
    assert_true(is_found);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_do_not_fit),
        cmocka_unit_test(boundaries_are_reported),
        cmocka_unit_test(sizes_have_names),
        cmocka_unit_test(constants_become_preconditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
