/* The base model of tests/hostile with one of its JSON members replaced: the first byte of the
 * input says which ('0' program, '1' weights, '2' constants), the rest is the text. */
#include "frontend/pt2.h"
#include "replay.h"
#include "support/pt2_writer.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || data[0] < '0' || data[0] > '2')
        return 0;
    pw_archive w;
    pw_base(&w, EQF_TEST_DIR "/hostile");
    pw_member *m = &w.at[data[0] - '0'];
    free(m->data);
    m->size = (int64_t)size - 1;
    m->data = memcpy(malloc(size), data + 1, size - 1);
    i64 n;
    uint8_t *bytes = pw_bytes(&w, &n);
    pw_free(&w);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 64 << 20);
    trap t;
    TRY (ctx, t) {
        fe_program *p = fe_read_pt2_bytes(a, "fuzz.pt2", bytes, n, NULL);
        for (i64 i = 0; i < p->n_weights; i++)
            if (!p->weights[i].is_absent && fe_dtype_bytes(p->weights[i].dtype) > 0)
                fe_weight_read(p, &p->weights[i], arena_alloc(a, p->weights[i].bytes));
    }
    arena_free(a);
    eqf_ctx_free(ctx);
    free(bytes);
    return 0;
}
