/* plan.json: what is written reads back; damage is found; a plan whose digest is right but whose
 * numbers do not fit together is refused before anything could follow them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/runtime.h"

static const i64 shape23[] = {2, 3}, shape0[] = {0, 5};

static rt_package *sample(arena *a)
{
    rt_package *p = NEW(a, rt_package);
    *p =
        (rt_package){.name = "a \"name\"\n", .version = "0.1.0", .backend = "c", .arch = rt_arch()};
    p->compiler = "cc 1";
    p->source = "x.pt2";
    p->rebuild = "equiforge optimize x.pt2 -o PACKAGE";
    p->library = "kernels/abc.so";
    memset(p->source_digest, 'a', 32);
    memset(p->parameters_digest, 'b', 32);
    vec_push(a, &p->features, "avx2");
    rt_file library = {.name = p->library, .bytes = 3},
            weights = {.name = "weights.bin", .bytes = 64};
    memset(library.digest, 'c', 32);
    memset(weights.digest, 'd', 32);
    vec_push(a, &p->files, library);
    vec_push(a, &p->files, weights);
    p->seed = 7;
    p->kernel_count = 1;
    rt_plan *plan = &p->plan;
    plan->arena_bytes = 128;
    plan->weights_bytes = 64;
    vec_push(a, &plan->buffers,
             (rt_buffer){.name = "x", .type = DT_f32, .count = 6, .bytes = 24, .role = RT_INPUT});
    vec_push(a, &plan->buffers,
             (rt_buffer){.name = "y", .type = DT_f32, .count = 6, .bytes = 24, .role = RT_OUTPUT});
    vec_push(a, &plan->buffers,
             (rt_buffer){.name = "w", .type = DT_f32, .count = 6, .bytes = 24, .role = RT_STATE});
    vec_push(a, &plan->buffers,
             (rt_buffer){.name = "t",
                         .type = DT_f32,
                         .count = 16,
                         .bytes = 64,
                         .role = RT_SCRATCH,
                         .offset = 64});
    vec_push(a, &plan->inputs, (rt_port){"x", DT_f32, 2, shape23, 0, 0});
    vec_push(a, &plan->inputs, (rt_port){"none", DT_i64, 2, shape0, -1, 0});
    vec_push(a, &plan->outputs, (rt_port){"y", DT_f32, 2, shape23, 1, 3});
    vec_push(a, &plan->states, (rt_port){"w", DT_f32, 2, shape23, 2, 0});
    rt_arg *args = NEW_N(a, rt_arg, 3);
    args[0] = (rt_arg){0, 0};
    args[1] = (rt_arg){3, 32};
    args[2] = (rt_arg){1, 0};
    vec_push(a, &plan->launches,
             (rt_launch){.symbol = "k1",
                         .origin = "node",
                         .parts = 2,
                         .args = args,
                         .arg_count = 3,
                         .flops = 5,
                         .bytes = 6});
    vec_push(a, &plan->preconditions, "s0 == 2");
    vec_push(a, &p->ranges, (rt_range){.low = -3, .high = 9});
    vec_push(a, &p->ranges, (rt_range){.high = 7, .is_bounded = true, .from = -0.1, .to = 8});
    vec_push(a, &p->tolerances, 1.25e-5);
    return p;
}

static void test_round_trip(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    str text = str_new(a), again = str_new(a);
    rt_plan_print(&text, sample(a));
    trap t;
    TRY (ctx, t) {
        rt_package *p = rt_plan_read(a, "plan.json", str_text(&text), text.n);
        rt_plan_print(&again, p);
        assert_string_equal(p->name, "a \"name\"\n");
        assert_int_equal(p->plan.outputs.at[0].writes, 3);
        assert_int_equal(p->ranges.at[0].low, -3);
        assert_true(p->ranges.at[1].is_bounded && !p->ranges.at[0].is_bounded);
        assert_true(p->ranges.at[1].from == -0.1 && p->ranges.at[1].to == 8);
        assert_true(p->tolerances.at[0] == 1.25e-5);
        assert_int_equal(p->plan.launches.at[0].args[1].offset, 32);
    }
    assert_int_equal(t.status, EQF_OK);
    assert_string_equal(str_text(&text), str_text(&again));
    arena_free(a);
    eqf_ctx_free(ctx);
}

static eqf_status read_status(eqf_ctx *ctx, const char *text, i64 n)
{
    arena *a = arena_new(ctx, 0);
    trap t;
    TRY (ctx, t) {
        rt_plan_read(a, "plan.json", text, n);
    }
    if (t.status != EQF_OK) {
        assert_int_not_equal(eqf_diag_count(ctx), 0);
        assert_string_equal(eqf_diag_get(ctx, 0).file, "plan.json");
    }
    eqf_ctx_clear(ctx);
    arena_free(a);
    return t.status;
}

static void test_damage(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    str text = str_new(a);
    rt_plan_print(&text, sample(a));
    for (i64 n = 0; n < text.n; n++)
        assert_int_not_equal(read_status(ctx, str_text(&text), n), EQF_OK);
    char *copy = arena_copy(a, str_text(&text), text.n + 1);
    for (i64 i = 0; i < text.n * 8; i++) {
        copy[i / 8] = (char)(copy[i / 8] ^ (1 << (i % 8)));
        assert_int_not_equal(read_status(ctx, copy, text.n), EQF_OK);
        copy[i / 8] = (char)(copy[i / 8] ^ (1 << (i % 8)));
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* Replaces `from` with `to` in the body and gives the text the right digest again. */
static const char *forge(arena *a, const char *text, const char *from, const char *to, i64 *n)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *forged = arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    *n = (i64)strlen(forged);
    char *digest = strstr(forged, "\"digest\":\"") + strlen("\"digest\":\"");
    char right[33];
    digest_hex(digest + 34, forged + *n - (digest + 34), right);
    memcpy(digest, right, 32);
    return forged;
}

static void test_forged(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        eqf_status status;
    } cases[] = {
        {"\"version\":2", "\"version\":1", EQF_E_UNSUPPORTED},
        {"equiforge-plan", "equiforge-plot", EQF_E_NOT_OURS},
        {"kernels/abc.so", "kernels/../abc.so", EQF_E_PARSE},
        {"\"name\":\"weights.bin\"", "\"name\":\"/etc/passwd\"", EQF_E_PARSE},
        {"\"name\":\"weights.bin\"", "\"name\":\"../weights.bin\"", EQF_E_PARSE},
        {"\"name\":\"weights.bin\"", "\"name\":\"kernels/abc.so\"", EQF_E_PARSE},
        {"\"name\":\"weights.bin\"", "\"name\":\"other.bin\"", EQF_E_PARSE},
        {"\"library\":\"kernels/abc.so\"", "\"library\":\"kernels/x.so\"", EQF_E_PARSE},
        {"\"arena_bytes\":128", "\"arena_bytes\":127", EQF_E_PARSE},
        {"\"weights_bytes\":64", "\"weights_bytes\":23", EQF_E_PARSE},
        {"\"weights_bytes\":64", "\"weights_bytes\":-1", EQF_E_PARSE},
        {"[3,32]", "[3,65]", EQF_E_PARSE},
        {"[3,32]", "[3,-1]", EQF_E_PARSE},
        {"[3,32]", "[4,0]", EQF_E_PARSE},
        {"[3,32]", "[3]", EQF_E_PARSE},
        {"\"buffer\":1", "\"buffer\":0", EQF_E_PARSE},
        {"\"buffer\":1", "\"buffer\":9", EQF_E_PARSE},
        {"\"buffer\":1", "\"buffer\":-1", EQF_E_PARSE},
        {"\"writes\":3", "\"writes\":4", EQF_E_PARSE},
        {"\"writes\":3", "\"writes\":2", EQF_E_PARSE},
        {"\"role\":\"scratch\"", "\"role\":\"source\"", EQF_E_PARSE},
        {"\"count\":16", "\"count\":17", EQF_E_PARSE},
        {"\"shape\":[2,3]", "\"shape\":[2,4]", EQF_E_PARSE},
        {"\"shape\":[2,3]", "\"shape\":[4611686018427387904,8]", EQF_E_PARSE},
        {"\"kernel\":\"k1\"", "\"kernel\":\"k 1\"", EQF_E_PARSE},
        {"\"kernel\":\"k1\"", "\"kernel\":\"\"", EQF_E_PARSE},
        {"\"ranges\":[[-3,9],", "\"ranges\":[", EQF_E_PARSE},
        {"-0.10000000000000001,8]", "-0.1,-8]", EQF_E_PARSE},
        {"[-3,9]", "[9,-3]", EQF_E_PARSE},
        {"\"seed\":7", "\"seed\":7.5", EQF_E_PARSE},
        {"\"dtype\":\"f32\"", "\"dtype\":\"f31\"", EQF_E_PARSE},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    str text = str_new(a);
    rt_plan_print(&text, sample(a));
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        i64 n;
        const char *forged = forge(a, str_text(&text), cases[i].from, cases[i].to, &n);
        eqf_status s = read_status(ctx, forged, n);
        if (s != cases[i].status)
            fail_msg("%s -> %s: %s, wanted %s", cases[i].from, cases[i].to, eqf_status_name(s),
                     eqf_status_name(cases[i].status));
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "weights.bin", "kernels/a-b_c.so", "A.0"};
    static const char *const bad[] = {
        "",   ".",   "..",   "a/b",     "kernels/", "kernels/..", "kernels/a/b",
        "/a", "a b", "a\\b", "kernels", ".hidden",  "kernels/.x", "\xC3\xA9"};
    for (i64 i = 0; i < COUNT_OF(good); i++)
        assert_true(rt_name_ok(good[i]));
    for (i64 i = 0; i < COUNT_OF(bad); i++)
        assert_false(rt_name_ok(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
