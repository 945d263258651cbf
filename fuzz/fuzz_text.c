/* Any text as a program. What can be read is sound, prints to text that reads back to the same
 * text, has a canonical form that is its own, and runs when it is small: with one tile an axis,
 * with two and with three, in order and merged. */
#include <stdlib.h>

#include "ir/ir.h"
#include "replay.h"

static const char *print(arena *a, const ir_program *p, i64 *n)
{
    str s = str_new(a);
    ir_print(&s, p);
    *n = s.n;
    return str_text(&s);
}

static void zeros(void *user, eqf_ctx *ctx, i64 i, void *out)
{
    const ir_program *p = user;
    const ir_port *port = &p->inputs.at[i];
    i64 n = dtype_bytes(port->dtype);
    (void)ctx;
    for (i64 k = 0; k < port->rank; k++)
        n *= port->dims[k].extent;
    memset(out, 0, (size_t)n);
}

static bool is_small(const ir_program *p)
{
    for (u32 k = 1; k < (u32)p->nodes.n; k++)
        if (ir_count_elements(p, ir_get(p, (ir_term){k})->dims) > 4096 ||
            ir_node_flops(p, (ir_term){k}) > 65536)
            return false;
    ir_count c = ir_count_program(p);
    return c.bytes < 1 << 20;
}

static bool has_axes(const ir_program *p)
{
    for (u32 k = 1; k < (u32)p->nodes.n; k++)
        if (ir_get(p, (ir_term){k})->attr.par.n > 0)
            return true;
    return false;
}

/* Values of terms with many axes are many: their number, at three tiles each. */
static bool has_few_tiles(const ir_program *p)
{
    for (u32 k = 1; k < (u32)p->nodes.n; k++)
        if (ir_get(p, (ir_term){k})->axes.n + ir_get(p, (ir_term){k})->attr.par.n > 6)
            return false;
    return true;
}

static void run(arena *a, const ir_program *p, i64 count, u64 association)
{
    i64 *tiles = NEW_N(a, i64, p->atoms.n);
    for (i64 d = 0; d < p->atoms.n; d++)
        tiles[d] = count;
    ir_eval(p, NULL, a, NEW_N(a, tensor, p->outputs.n),
            (ir_eval_options){.round = true, .tiles = tiles, .association = association});
}

static void check(arena *a, const char *text, i64 n)
{
    ir_program *p = ir_read(a, "text", text, n);
    ir_verify(p, "reading");
    i64 once_n, twice_n;
    const char *once = print(a, p, &once_n);
    const char *twice = print(a, ir_read(a, "again", once, once_n), &twice_n);
    if (strcmp(once, twice) != 0)
        abort();
    ir_program *c = ir_canonical(a, p);
    ir_verify(c, "canonical");
    if (strcmp(print(a, c, &once_n), print(a, ir_canonical(a, c), &twice_n)) != 0)
        abort();
    if (is_small(p) && has_few_tiles(p)) {
        p->source = (ir_source){.read = zeros, .user = p};
        run(a, p, 1, 0);
        if (has_axes(p)) {
            run(a, p, 2, 0);
            run(a, p, 3, 7);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 256 << 20);
    trap t;
    TRY (ctx, t)
        check(a, (const char *)data, (i64)size);
    if (t.status == EQF_E_INTERNAL)
        abort();
    arena_free(a);
    eqf_ctx_free(ctx);
    return 0;
}
