/* Any bytes as an archive: open, look up and read every member. */
#include "frontend/reader.h"
#include "replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 64 << 20);
    trap t;
    TRY (ctx, t) {
        fe_zip *z = fe_zip_open_bytes(a, "fuzz.zip", data, (i64)size);
        for (i64 i = 0; i < z->n; i++) {
            const fe_entry *e = fe_zip_find(z, z->entries[i].name);
            if (e != &z->entries[i] || e->packed > (i64)size)
                __builtin_trap();
            fe_zip_check(z, e);
            fe_zip_read(z, e, EQF_E_DATA, NULL, arena_alloc(a, e->size));
        }
    }
    arena_free(a);
    eqf_ctx_free(ctx);
    return 0;
}
