/* Small helpers of the tests of ir: a context that ends with the test, and expected errors. */
#ifndef TESTS_IR_CHECK_H
#define TESTS_IR_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/ir.h"

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
    const void *user;
} fixture;

static inline int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    f->ctx = eqf_ctx_new(NULL);
    f->a = f->ctx ? arena_new(f->ctx, 0) : NULL;
    *state = f;
    return f->a ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
    fixture *f = *state;
    arena_free(f->a);
    eqf_ctx_free(f->ctx);
    free(f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* The diagnostic that must be there, or a failed test. */
static inline eqf_diag last_diag(fixture *f)
{
    size_t n = eqf_diag_count(f->ctx);
    assert_true(n > 0);
    return eqf_diag_get(f->ctx, n - 1);
}

/* Runs a body that may throw. */
typedef void body(fixture *f, const void *arg);
static inline eqf_status attempt(fixture *f, body *run, const void *arg)
{
    trap t;
    TRY (f->ctx, t)
        run(f, arg);
    return t.status;
}

/* The body must not throw. */
static inline void run_fine(fixture *f, body *run, const void *arg)
{
    if (attempt(f, run, arg) == EQF_OK)
        return;
    eqf_diag d = last_diag(f);
    fail_msg("%s at %s: %s", eqf_status_name(d.status), d.place, d.message);
}

/* The body must throw this status; place and message of the diagnostic contain the texts. */
static inline void run_wrong(fixture *f, body *run, const void *arg, eqf_status status,
                             const char *place, const char *message)
{
    eqf_status got = attempt(f, run, arg);
    if (got != status)
        fail_msg("%s, wanted %s: \"%s\"", eqf_status_name(got), eqf_status_name(status), message);
    eqf_diag d = last_diag(f);
    if (!strstr(d.place, place) || !strstr(d.message, message))
        fail_msg("at \"%s\": \"%s\", wanted \"%s\": \"%s\"", d.place, d.message, place, message);
    eqf_ctx_clear(f->ctx);
}

/* The same body with an arena of its own. */
static inline void run_fine_apart(fixture *f, body *run, const void *arg)
{
    fixture own = {.ctx = f->ctx, .a = arena_new(f->ctx, 0)};
    assert_non_null(own.a);
    run_fine(&own, run, arg);
    arena_free(own.a);
}

/* ---- memory running out --------------------------------------------------------------------- */

typedef struct meter {
    i64 left, live;
} meter;

static inline void *metered(void *user, void *p, size_t old_size, size_t size)
{
    meter *m = user;
    if (size == 0) {
        m->live -= (i64)old_size;
        free(p);
        return NULL;
    }
    if (m->left-- <= 0)
        return NULL;
    void *q = realloc(p, size);
    if (q)
        m->live += (i64)size - (i64)old_size;
    return q;
}

/* Status of the body with an allocator that refuses after n blocks; nothing may leak. */
static inline eqf_status with_memory(i64 n, body *run, const void *arg)
{
    meter m = {n, 0};
    eqf_status status = EQF_E_NO_MEMORY;
    fixture own = {.ctx = eqf_ctx_new(&(eqf_allocator){metered, &m})};
    if (own.ctx && (own.a = arena_new(own.ctx, 0)))
        status = attempt(&own, run, arg);
    arena_free(own.a);
    eqf_ctx_free(own.ctx);
    assert_int_equal(m.live, 0);
    return status;
}

/* Lets each allocation of the body fail in turn, until it succeeds; returns how many it makes. */
static inline i64 run_without_memory(body *run, const void *arg)
{
    i64 n = 0;
    eqf_status status;
    while ((status = with_memory(n, run, arg)) != EQF_OK) {
        assert_string_equal(eqf_status_name(status), "EQF_E_NO_MEMORY");
        n++;
    }
    return n;
}

static inline const char *text_of(fixture *f, const ir_program *p)
{
    str s = str_new(f->a);
    ir_print(&s, p);
    return str_text(&s);
}

static inline ir_program *read_text(fixture *f, const char *text)
{
    return ir_read(f->a, "test.eqf", text, (i64)strlen(text));
}

#endif
