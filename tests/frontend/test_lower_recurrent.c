/* Recurrent layers whose arguments do not fit: one edit each of an archive that does. What is
 * merely not unrolled is a boundary; what no exporter writes is an error at the node. That layers
 * which fit mean what PyTorch computes is seen by the fixtures. */
#include <unistd.h>

#include "fixtures.h"
#include "frontend/reader.h"
#include "support/pt2_writer.c"

#define FIXTURE "modules/recurrent_layers.T.pt2"
#define MODEL "recurrent_layers.T/models/model.json"

/* The fixture, each member stored. */
static void copy_archive(arena *a, pw_archive *w)
{
    const fe_zip *z = fe_zip_open(a, FIXTURES FIXTURE);
    pw_init(w);
    for (i64 i = 0; i < z->n; i++) {
        u8 *content = arena_alloc(a, z->entries[i].size + 1);
        fe_zip_read(z, &z->entries[i], EQF_E_PARSE, NULL, content);
        pw_add(w, z->entries[i].name, content, z->entries[i].size);
    }
}

#define PARAMETERS "`params`,`arg`:{`as_tensors`:["

static void edits(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        eqf_status status;
        const char *says; /* NULL: it fits */
    } cases[] = {
        {"`as_int`:1", "`as_int`:1", EQF_OK, NULL},
        {"`num_layers`,`arg`:{`as_int`:1}", "`num_layers`,`arg`:{`as_int`:0}", EQF_E_TYPE,
         "0 layers"},
        {"`num_layers`,`arg`:{`as_int`:1}", "`num_layers`,`arg`:{`as_int`:2}", EQF_E_TYPE,
         "2 layers and 2 directions"},
        {"`num_layers`,`arg`:{`as_int`:1}", "`num_layers`,`arg`:{`as_int`:4611686018427387904}",
         EQF_E_TYPE, "4611686018427387904 layers"},
        {"`bidirectional`,`arg`:{`as_bool`:true}", "`bidirectional`,`arg`:{`as_bool`:false}",
         EQF_E_TYPE, "1 directions"},
        {"`batch_first`,`arg`:{`as_bool`:true}", "`batch_first`,`arg`:{`as_bool`:false}", EQF_OK,
         "types and shapes"},
        {"`has_biases`,`arg`:{`as_bool`:true}", "`has_biases`,`arg`:{`as_bool`:false}", EQF_OK,
         "types and shapes"},
        {",{`name`:`p_lstm_weight_hr_l0_reverse`}]", "]", EQF_E_TYPE, "9 parameters"},
        {PARAMETERS "{`name`:`p_lstm_weight_ih_l0`}", PARAMETERS "{`name`:`x`}", EQF_OK,
         "types and shapes"},
        {"`hx`,`arg`:{`as_tensors`:[{`name`:`zeros`},", "`hx`,`arg`:{`as_tensors`:[", EQF_E_TYPE,
         "1 states"},
        {"{`name`:`zeros_1`}]", "{`name`:`x`}]", EQF_E_TYPE, "a state"},
        {"`hx`,`arg`:{`as_tensor`:{`name`:`h`}}", "`hx`,`arg`:{`as_none`:true}", EQF_E_TYPE, "hx"},
        {"`as_float`:0.0},`kind`:1},{`name`:`train`,`arg`:{`as_bool`:false}",
         "`as_float`:0.5},`kind`:1},{`name`:`train`,`arg`:{`as_bool`:true}", EQF_OK, NULL},
        {"`x`:{`dtype`:7,`sizes`:[{`as_int`:3},{`as_int`:2}",
         "`x`:{`dtype`:7,`sizes`:[{`as_int`:3},{`as_int`:513}", EQF_OK, "513 steps in 2 layers"},
    };
    char path[] = "/tmp/eqf-recurrent-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        arena *a = arena_new(ctx, 0);
        fe_report report = {0};
        trap t;
        TRY (ctx, t) {
            pw_archive w;
            copy_archive(a, &w);
            assert_true(pw_edit(pw_find(&w, MODEL), cases[i].from, cases[i].to));
            assert_true(pw_file(&w, path));
            pw_free(&w);
            fe_read(a, path, NULL, &report);
        }
        const char *said = t.status == EQF_OK
                               ? report.n_boundaries ? report.boundaries[0].reason : NULL
                               : eqf_diag_get(ctx, 0).message;
        if (t.status != cases[i].status || !said != !cases[i].says ||
            (said && !strstr(said, cases[i].says)))
            fail_msg("%s: %s: %s, wanted %s: %s", cases[i].to, eqf_status_name(t.status),
                     said ? said : "-", eqf_status_name(cases[i].status),
                     cases[i].says ? cases[i].says : "-");
        arena_free(a);
        eqf_ctx_free(ctx);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(edits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
