/* Whole programs: the training, functional and core exports of one module are one canonical
 * program, with the numbers of PyTorch. */
#include "fixtures.h"

/* Programs whose forms cannot be equal: an operator without meaning here has another name or other
 * pieces in another form, or only the training form has it. */
static const char *const differ[] = {
    "attn_vmap_mask",
    "batch_norm_training",
    "boundaries_many",
    "uint8_values",
};

static bool may_differ(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(differ); i++)
        if (!strcmp(differ[i], name))
            return true;
    return false;
}

static void every_form_gives_one_program(void **state)
{
    (void)state;
    json_t *manifest = json_load_file(FIXTURES "manifest.json", 0, NULL);
    assert_non_null(manifest);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    fixture_count count = {0};
    i64 bad = 0, equal = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(json_object_get(manifest, "fixtures"), name, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "folder")), "modules") != 0)
            continue;
        char *texts[3];
        arena *keep = arena_new(ctx, 0);
        bad += fixture_run(ctx, keep, "modules", name, entry, texts, &count);
        for (int f = 1; f < 3; f++) {
            bool is_equal = !texts[0] || !texts[f] || !strcmp(texts[0], texts[f]);
            equal += is_equal && texts[0] && texts[f];
            if (is_equal || may_differ(name))
                continue;
            print_error("%s: the training and the %s form differ\n", name,
                        f == 1 ? "functional" : "core");
            bad++;
        }
        arena_free(keep);
    }
    print_message("%lld programs, %lld evaluated, %lld outputs, %lld equal to the training form\n",
                  (long long)count.programs, (long long)count.evaluated, (long long)count.outputs,
                  (long long)equal);
    assert_int_equal(bad, 0);
    assert_true(count.evaluated > 0);
    eqf_ctx_free(ctx);
    json_decref(manifest);
}

/* With masks read by their content the numbers stay, and GPT-2's buffer is a comparison of
 * positions. */
static void constant_masks_become_predicates(void **state)
{
    (void)state;
    json_t *manifest = json_load_file(FIXTURES "manifest.json", 0, NULL);
    assert_non_null(manifest);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    fixture_count count = {0};
    i64 bad = 0;
    bool is_found = false;
    const char *name;
    json_t *entry;
    json_object_foreach(json_object_get(manifest, "fixtures"), name, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "folder")), "modules") != 0)
            continue;
        char *text;
        arena *keep = arena_new(ctx, 0);
        bad += fixture_form(ctx, keep, "modules", name, 'T', entry,
                            (fe_read_options){.use_constants = true}, &text, &count);
        if (!strcmp(name, "gpt2_block") && text)
            is_found = !strstr(text, "(slice mask") && strstr(text, "(where (le (iota ");
        arena_free(keep);
    }
    assert_int_equal(bad, 0);
    assert_true(is_found);
    eqf_ctx_free(ctx);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_gives_one_program),
                                       cmocka_unit_test(constant_masks_become_predicates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
