/* Recorded operator calls, a topic an archive: every overload with its odd arguments, in each form,
 * against the numbers of PyTorch. */
#include "fixtures.h"

static void every_call_has_its_value(void **state)
{
    (void)state;
    json_t *manifest = json_load_file(FIXTURES "manifest.json", 0, NULL);
    assert_non_null(manifest);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    fixture_count count = {0};
    i64 bad = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(json_object_get(manifest, "fixtures"), name, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "folder")), "calls") != 0)
            continue;
        char *texts[3];
        arena *keep = arena_new(ctx, 0);
        bad += fixture_run(ctx, keep, "calls", name, entry, texts, &count);
        if (texts[0] && texts[1] && strcmp(texts[0], texts[1]) != 0) {
            print_error("%s: the training and the functional form differ\n", name);
            bad++;
        }
        arena_free(keep);
    }
    print_message("%lld archives, %lld evaluated, %lld outputs\n", (long long)count.programs,
                  (long long)count.evaluated, (long long)count.outputs);
    assert_int_equal(bad, 0);
    assert_true(count.evaluated > 0);
    eqf_ctx_free(ctx);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_has_its_value)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
