/* Any text as JSON, walked to its leaves; its strings and the whole also as expressions. */
#include "frontend/reader.h"
#include "replay.h"

static void expression(fe_exprs *x, const char *s, i64 n)
{
    const fe_expr *e[2] = {fe_expr_srepr(x, s, n, NULL), fe_expr_python(x, s, n)};
    for (int i = 0; i < 2; i++)
        if (e[i])
            fe_expr_eval(e[i], &(fe_env){0}, &(fe_number){0});
}

static void walk(fe_exprs *x, const fe_js *v)
{
    fe_js below;
    if (fe_js_is_text(v))
        expression(x, fe_js_text(v, NULL), (i64)strlen(fe_js_text(v, NULL)));
    for (void *it = NULL; fe_js_is_object(v) && fe_js_next(v, &it, &below);)
        walk(x, &below);
    for (i64 i = 0; fe_js_is_array(v) && i < fe_js_items(v); i++)
        walk(x, (below = fe_js_at(v, i), &below));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 64 << 20);
    trap t;
    TRY (ctx, t) {
        fe_exprs *x = fe_exprs_new(a);
        expression(x, (const char *)data, (i64)size);
        fe_js root = fe_js_root(fe_json_read(a, "f", "m", (const char *)data, (i64)size));
        walk(x, &root);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
    return 0;
}
