/* Blocks keep what they hold while they grow and shrink past the size from which they are mappings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

static u8 byte_at(i64 i)
{
    return (u8)(i * 31 + (i >> 12) * 7 + (i >> 20));
}

static void test_resize(void **state)
{
    (void)state;
    static const i64 sizes[] = {1,        70000,    1 << 20,  (2 << 20) - 1, 2 << 20, (2 << 20) + 1,
                                5 << 20,  33 << 20, 34000001, 9 << 20,       3 << 20, 100,
                                8 << 20,  4097,     600000,   900000,        7 << 20, 700000,
                                1500000,  524287};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    u8 *p = NULL;
    i64 held = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        p = heap_try_resize(ctx, p, held, sizes[k]);
        assert_non_null(p);
        heap_touch(p, held, sizes[k]);
        for (i64 i = 0; i < MIN(held, sizes[k]); i++) {
            if (p[i] != byte_at(i))
                fail_msg("%lld to %lld bytes: byte %lld", (long long)held, (long long)sizes[k],
                         (long long)i);
        }
        for (i64 i = held; i < sizes[k]; i++)
            p[i] = byte_at(i);
        held = sizes[k];
    }
    heap_free(ctx, p, held);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resize)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
