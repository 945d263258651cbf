/* A complete C caller of a package: loads it, runs it, replaces a parameter, carries state.
 *
 *     cmake --preset release && cmake --build --preset release --target equiforge equiforge_shared
 *     build/equiforge optimize examples/c/counter.eqf -o counter.pkg --parameters input
 *     cc examples/c/caller.c -I include -I counter.pkg -L build -lequiforge \
 *         -Wl,-rpath,build -o caller
 *     ./caller counter.pkg
 *
 * The program is counter.eqf: y = x * scale, and total += the sum of y. equiforge_model.h comes
 * with the package and has the names and a typed call. */
#include <stdio.h>

#include "equiforge_model.h"

static int fail(eqf_ctx *ctx)
{
    for (size_t i = 0; i < eqf_diag_count(ctx); i++) {
        eqf_diag d = eqf_diag_get(ctx, i);
        fprintf(stderr, "caller: %s: %s: %s\n", d.file, d.place, d.message);
    }
    eqf_ctx_free(ctx);
    return 1;
}

int main(int argc, char **argv)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_model *model = NULL;
    eqf_exec *exec = NULL;
    if (argc != 2 || !ctx) {
        fprintf(stderr, "usage: caller PACKAGE\n");
        return 2;
    }
    if (eqf_model_load(ctx, argv[1], &model) != EQF_OK ||
        eqf_exec_new(ctx, model, 1, &exec) != EQF_OK)
        return fail(ctx);

    float x[4] = {1, 2, 3, 4}, y[4], total, scale[4] = {10, 20, 30, 40}, zero = 0;
    if (eqf_exec_set_parameter(exec, counter_PARAMETER_scale, scale, sizeof scale) != EQF_OK ||
        eqf_exec_set_state(exec, counter_STATE_total, &zero, sizeof zero) != EQF_OK)
        return fail(ctx);
    for (int i = 0; i < 3; i++) {
        if (counter_run(exec, x, &total, y) != EQF_OK)
            return fail(ctx);
        printf("y = %g %g %g %g, total = %g\n", (double)y[0], (double)y[1], (double)y[2],
               (double)y[3], (double)total);
    }

    eqf_exec_free(exec);
    eqf_model_free(model);
    eqf_ctx_free(ctx);
    return 0;
}
