/* The reader on good archives: what it finds in the base model, that valid rewrites of an archive
 * change nothing, that every fixture reads with the names its tensor files use, and that reading is
 * cheap however large the weights are. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zip.h>

#include "support/pt2_print.c"
#include "support/pt2_writer.c"

#define BASE EQF_TEST_DIR "/hostile"
#define MODEL "base/models/model.json"

/* ---- helpers ------------------------------------------------------------------------------- */

/* NULL with *status set when reading fails; the program lives in `a`. */
static fe_program *try_read(arena *a, const uint8_t *bytes, i64 n, const fe_options *options,
                            eqf_status *status)
{
    eqf_ctx *ctx = arena_ctx(a);
    fe_program *volatile p = NULL;
    trap t;
    TRY (ctx, t) {
        p = fe_read_pt2_bytes(a, "test.pt2", bytes, n, options);
    }
    *status = t.status;
    return p;
}

static void fail_with_diagnostic(eqf_ctx *ctx)
{
    if (eqf_diag_count(ctx) == 0)
        fail_msg("no diagnostic");
    eqf_diag d = eqf_diag_get(ctx, 0);
    fail_msg("%s: %s: %s: %s", eqf_status_name(d.status), d.file, d.place, d.message);
}

static fe_program *must_read(arena *a, const uint8_t *bytes, i64 n, const char *model)
{
    eqf_status status;
    fe_program *p = try_read(a, bytes, n, &(fe_options){.model = model}, &status);
    if (status != EQF_OK)
        fail_with_diagnostic(arena_ctx(a));
    return p;
}

typedef struct fixture {
    eqf_ctx *ctx;
    arena *a;
    pw_archive w;
    uint8_t *bytes;
    i64 n;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->ctx = eqf_ctx_new(NULL);
    f->a = arena_new(f->ctx, 0);
    pw_base(&f->w, BASE);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    arena_free(f->a);
    eqf_ctx_free(f->ctx);
    pw_free(&f->w);
    free(f->bytes);
    free(f);
    return 0;
}

static fe_program *read_base(fixture *f)
{
    f->bytes = pw_bytes(&f->w, &f->n);
    return must_read(f->a, f->bytes, f->n, NULL);
}

/* ---- the base model ------------------------------------------------------------------------ */

static void test_program(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    assert_string_equal(p->model, "model");
    assert_string_equal(p->torch_version, "2.13.0+cpu");
    assert_int_equal(p->schema_minor, 20);
    assert_int_equal(p->form, FE_FORM_FUNCTIONAL);
    assert_int_equal(p->n_inputs, 10);
    assert_int_equal(p->graph->n_nodes, 10);
    static const char *const INPUTS[] = {"fc.weight", "head", "ghost", "steps", "mask",
                                         "one",       "x",    "d_m",   "k",     "flag"};
    for (i64 i = 0; i < 10; i++)
        assert_string_equal(p->inputs[i].name, INPUTS[i]);
    assert_string_equal(p->inputs[7].path, "d['m']");
    assert_int_equal(p->inputs[9].kind, FE_IN_CONSTANT);
    assert_int_equal(p->inputs[9].arg.i, 7);
    static const char *const OUTPUTS[] = {"steps", "y", "out1", "", "out3", "cat"};
    for (i64 i = 0; i < 6; i++)
        assert_string_equal(p->outputs[i].name, OUTPUTS[i]);
    assert_int_equal(p->outputs[0].target, 3);
}

static void test_nodes(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    const fe_graph *g = p->graph;
    const fe_node *linear = &g->nodes[1], *where = &g->nodes[2], *expand = &g->nodes[4];
    assert_string_equal(linear->target, "aten.linear.default");
    assert_string_equal(linear->source, "net.py:11");
    assert_string_equal(linear->module, "fc");
    const fe_arg *weight = fe_find_arg(linear, "weight");
    assert_string_equal(g->values[weight->value.i].name, "p_fc_weight");
    assert_null(fe_find_arg(linear, "bias"));
    const fe_arg *other = fe_find_arg(where, "other");
    assert_int_equal(other->kind, FE_ARG_REAL);
    assert_true(other->f < -1e308);
    const fe_arg *size = fe_find_arg(expand, "size");
    assert_int_equal(size->n, 2);
    assert_int_equal(size->items[0].kind, FE_ARG_SYM_INT);
    assert_int_equal(size->items[1].kind, FE_ARG_INT);
    assert_int_equal(size->items[1].i, 3);
    const fe_node *split = &g->nodes[5], *wrap = &g->nodes[7], *full = &g->nodes[9];
    assert_int_equal(split->outputs[0].kind, FE_ARG_LIST);
    assert_int_equal(split->outputs[0].n, 2);
    const fe_value *piece = &g->values[split->outputs[0].items[1].value.i];
    assert_string_equal(piece->name, "getitem_1");
    assert_int_equal(piece->node, 5);
    assert_int_equal(piece->uses, 0);
    assert_int_equal(piece->sizes[1]->i, 1);
    assert_int_equal(wrap->inputs[1].kind, FE_ARG_GRAPH);
    assert_int_equal(wrap->inputs[1].graph->n_nodes, 1);
    assert_string_equal(wrap->inputs[1].graph->nodes[0].target, "aten.sin.default");
    assert_string_equal(fe_find_arg(full, "device")->text, "cuda:0");
    assert_int_equal(fe_find_arg(full, "dtype")->i, FE_F32);
    const fe_value *mul = &g->values[g->nodes[8].outputs[0].value.i];
    assert_int_equal(mul->kind, FE_VALUE_INT);
    assert_int_equal(mul->number->hint, 15);
}

static void test_symbols(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    assert_int_equal(p->n_symbols, 2);
    assert_string_equal(p->symbols[0].name, "s77");
    assert_int_equal(p->symbols[0].hint, 5);
    /* Equal sizes are one tree. */
    const fe_value *x = &p->graph->values[p->inputs[6].arg.value.i];
    const fe_value *linear = &p->graph->values[p->outputs[1].arg.value.i];
    assert_ptr_equal(x->sizes[0], linear->sizes[0]);
    assert_int_equal(p->n_ranges, 2);
    assert_int_equal(p->ranges[0].max, 64);
    assert_false(p->ranges[1].has_max);
    assert_int_equal(p->ranges[1].expr->op, FE_EXPR_MUL);
    assert_int_equal(p->n_guards, 3);
    assert_non_null(p->guards[0].expr);
    assert_non_null(p->guards[1].expr);
    assert_null(p->guards[2].expr); /* any(...) is reported, not evaluated */
}

static void test_weights(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    const fe_weight *w = p->weights;
    float out[12];
    assert_int_equal(p->n_weights, 6);
    fe_weight_read(p, &w[0], out); /* 3x4, strides 1 and 3, offset 2 */
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            assert_true(out[4 * i + k] == (float)(2 + i + 3 * k));
    fe_weight_read(p, &w[1], out); /* 2x3, strides 0 and 2, offset 19: the same record */
    assert_int_equal(w[1].storage, w[0].storage);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == (float)(19 + 2 * (i % 3)));
    int64_t steps;
    fe_weight_read(p, &w[3], &steps);
    assert_int_equal(steps, 1);
    uint8_t mask[6];
    fe_weight_read(p, &w[4], mask);
    assert_memory_equal(mask, "\1\1\0\1\0\1", 6);
    fe_weight_read(p, &w[5], out);
    assert_true(out[0] == 1.0f);
}

/* What can be used where it lies: whole or a part of a record, not strided, compressed or absent. */
static void test_mapped_weights(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    const fe_weight *w = p->weights;
    int mapped = 0;
    for (int64_t i = 0; i < p->n_weights; i++) {
        const void *at = fe_weight_map(p, &w[i]);
        if (!at)
            continue;
        uint8_t out[64];
        assert_true(w[i].bytes <= (int64_t)sizeof out);
        fe_weight_read(p, &w[i], out);
        assert_memory_equal(at, out, (size_t)w[i].bytes);
        mapped++;
    }
    assert_true(mapped >= 1);
    assert_null(fe_weight_map(p, &w[0])); /* strided */
    assert_null(fe_weight_map(p, &w[1]));
    assert_null(fe_weight_map(p, &w[2])); /* absent */
    assert_non_null(fe_weight_map(p, &w[3]));
}

static void test_compressed_weights(void **state)
{
    fixture *f = *state;
    for (int64_t i = 0; i < f->w.n; i++)
        f->w.at[i].deflate = f->w.at[i].size > 0;
    fe_program *p = read_base(f);
    for (int64_t i = 0; i < p->n_weights; i++)
        assert_null(fe_weight_map(p, &p->weights[i]));
}

static void test_damaged_mapped_weight(void **state)
{
    fixture *f = *state;
    pw_find(&f->w, "base/data/weights/weight_1")->lie_crc = 0x12345678;
    fe_program *p = read_base(f);
    trap t;
    TRY (f->ctx, t) {
        fe_weight_map(p, &p->weights[3]);
    }
    assert_int_equal(t.status, EQF_E_DATA);
    assert_string_equal(eqf_diag_get(f->ctx, 0).place, p->weights[3].fqn);
}

static void test_absent_weight(void **state)
{
    fixture *f = *state;
    fe_program *p = read_base(f);
    assert_true(p->weights[2].is_absent);
    assert_int_equal(p->n_notes, 1);
    assert_non_null(strstr(p->notes[0], "ghost"));
    float out[5];
    trap t;
    TRY (f->ctx, t) {
        fe_weight_read(p, &p->weights[2], out);
    }
    assert_int_equal(t.status, EQF_E_DATA);
    assert_string_equal(eqf_diag_get(f->ctx, 0).place, "ghost");
}

static void test_absent_weights_are_no_ties(void **state)
{
    fixture *f = *state;
    pw_member *m = pw_find(&f->w, "base/data/weights/model_weights_config.json");
    assert_true(pw_edit(m, "`path_name`: `weight_1`", "`path_name`: `weight_2`"));
    fe_program *p = read_base(f);
    assert_true(p->weights[2].is_absent && p->weights[3].is_absent);
    assert_int_not_equal(p->weights[2].storage, p->weights[3].storage);
}

/* Bytes are verified when they are read, and not before. */
static void test_damaged_weight(void **state)
{
    fixture *f = *state;
    pw_find(&f->w, "base/data/weights/weight_0")->lie_crc = 0x12345678;
    fe_program *p = read_base(f);
    float out[12];
    trap t;
    TRY (f->ctx, t) {
        fe_weight_read(p, &p->weights[1], out);
    }
    assert_int_equal(t.status, EQF_E_DATA);
    eqf_diag d = eqf_diag_get(f->ctx, 0);
    assert_string_equal(d.place, "head");
    assert_non_null(strstr(d.message, "weight_0"));
}

static void test_output_names(void **state)
{
    fixture *f = *state;
    fe_output o[5] = {{.want = "a"}, {.want = "a"}, {.want = "a.1"}, {.want = "a"}, {.want = "b"}};
    for (int i = 0; i < 4; i++)
        o[i].arg.kind = FE_ARG_TENSOR;
    fe_name_outputs(f->a, o, 5);
    assert_string_equal(o[0].name, "a");
    assert_string_equal(o[1].name, "a.1");
    assert_string_equal(o[2].name, "a.1.1");
    assert_string_equal(o[3].name, "a.2");
    assert_string_equal(o[4].name, ""); /* None is no output */
}

/* The keys of a dict of every kind name its outputs; what stands deeper has its position. */
static void test_output_keys(void **state)
{
    fixture *f = *state;
#define KEY(k) "\\\\\\`" k "\\\\\\`"
#define LIST "[" KEY("y") ", " KEY("parts") ", " KEY("cat") "]"
#define SPEC(type, context) "`out_spec`: `[1, {\\`type\\`: \\`" type "\\`, \\`context\\`: " context
    static const char *const contexts[] = {
        SPEC("collections.OrderedDict", "\\`" LIST "\\`"),
        SPEC("collections.defaultdict",
             "{\\`default_factory_module\\`: \\`builtins\\`, \\`default_factory_name\\`: \\`int\\`, "
             "\\`dict_context\\`: [\\`y\\`, \\`parts\\`, \\`cat\\`]}"),
        SPEC("a_data_class", "\\`[" LIST ", []]\\`"),
        SPEC("builtins.list", "\\`null\\`"),
        SPEC("collections.defaultdict", "{\\`dict_context\\`: [\\`y\\`]}"), /* not of three */
        SPEC("builtins.dict", "\\`[" KEY("__metadata__") ", " KEY("parts") ", " KEY("__metadata__") "]\\`"),
    };
    static const bool has_keys[] = {true, true, true, false, false, false};
    const char *now = SPEC("builtins.dict", "\\`" LIST "\\`");
    for (i64 i = 0; i < COUNT_OF(contexts); i++) {
        assert_true(pw_edit(pw_find(&f->w, MODEL), now, contexts[i]));
        now = contexts[i];
        fe_program *p = read_base(f);
        assert_string_equal(p->outputs[1].name, has_keys[i] ? "y" : "out0");
        assert_string_equal(p->outputs[2].name, "out1");
        assert_string_equal(p->outputs[5].name, has_keys[i] ? "cat" : "out4");
        free(f->bytes);
        f->bytes = NULL;
    }
}

/* ---- valid rewrites ------------------------------------------------------------------------ */

/* What torch.save or any zip tool could do to an archive without changing the program. */
static void deflate_all(pw_archive *w)
{
    for (int64_t i = 0; i < w->n; i++)
        w->at[i].deflate = true;
}

static void strip_container(pw_archive *w)
{
    w->no_zip64 = w->no_alignment = true;
}

static void reverse_members(pw_archive *w)
{
    for (int64_t i = 0; i < w->n / 2; i++) {
        pw_member m = w->at[i];
        w->at[i] = w->at[w->n - 1 - i];
        w->at[w->n - 1 - i] = m;
    }
}

static void other_root(pw_archive *w)
{
    for (int64_t i = 0; i < w->n; i++) {
        char name[256];
        snprintf(name, sizeof name, "a.b \xC3\xA9/%s", w->at[i].name + strlen("base/"));
        free(w->at[i].name);
        w->at[i].name = strdup(name);
        w->at[i].name_bytes = (int64_t)strlen(name);
    }
}

static void foreign_members(pw_archive *w)
{
    pw_add_text(w, "README", "hello");
    pw_add_text(w, "__MACOSX/base/", "");
    pw_add_text(w, "other/archive_format", "pt3");
    pw_add_text(w, "other/models/model.json", "{");
    pw_add_text(w, "base/extra/notes", "anything");
    pw_add_text(w, "base/data/weights/", "");
    pw_add_text(w, "secret", "x")->lie_flags = 0x809;
}

static void swap_arguments(pw_archive *w)
{
    assert_true(pw_edit(pw_find(w, MODEL),
                        "{`name`: `input`, `arg`: {`as_tensor`: {`name`: `x`}}, `kind`: 1},\n"
                        "      {`name`: `weight`, `arg`: {`as_tensor`: {`name`: `p_fc_weight`}}, "
                        "`kind`: 1}",
                        "{`name`: `weight`, `arg`: {`as_tensor`: {`name`: `p_fc_weight`}}, "
                        "`kind`: 2},\n"
                        "      {`name`: `input`, `arg`: {`as_tensor`: {`name`: `x`}}, `kind`: 2}"));
}

static void drop_fields(pw_archive *w)
{
    pw_member *m = pw_find(w, MODEL);
    while (pw_edit(m, ",\n     `is_hop_single_tensor_return`: null", ""))
        ;
    assert_true(pw_edit(m, "`opset_version`: {`aten`: 10},", ""));
    assert_true(pw_edit(m, "`custom_obj_values`: {},", ""));
    assert_true(pw_edit(m, "`sym_bool_values`: {},", "`sym_bool_values`: null,"));
    assert_true(pw_edit(m, "`torch_version`: `2.13.0+cpu`,", ""));
    assert_true(pw_edit(m, "`layout`: 7", "`layout`: null"));
    assert_true(pw_edit(m, ",\n     `name`: `linear`", ""));
    pw_find(w, "base/archive_version")->omit = true;
    pw_find(w, "base/byteorder")->omit = true;
    pw_find(w, "base/data/sample_inputs/model.pt")->omit = true;
}

static void add_unknown_fields(pw_archive *w)
{
    pw_member *m = pw_find(w, MODEL);
    assert_true(pw_edit(m, "`nodes`: [", "`future`: {`as_new`: [1]}, `nodes`: ["));
    assert_true(pw_edit(m, "`dtype`: 7,", "`dtype`: 7, `quantum`: true,"));
    assert_true(pw_edit(m, "`kind`: 1}", "`kind`: 1, `hint`: null}"));
    assert_true(pw_edit(m, "`verifiers`", "`provenance`: [], `verifiers`"));
}

static void newer_minor(pw_archive *w)
{
    assert_true(pw_edit(pw_find(w, MODEL), "`minor`: 20", "`minor`: 99"));
}

static void unreferenced_values(pw_archive *w)
{
    assert_true(pw_edit(pw_find(w, MODEL), "`tensor_values`: {",
                        "`tensor_values`: {`dead`: {`dtype`: 200, `sizes`: [{`as_int`: -1}]}, "
                        "`junk`: 7, "));
}

static void odd_metadata(pw_archive *w)
{
    pw_member *m = pw_find(w, MODEL);
    assert_true(pw_edit(m,
                        "\"stack_trace\": \"File \\\"/home/u/net.py\\\", line 10, in forward\\n "
                        "   code\"",
                        "`stack_trace`: {`not`: `text`}"));
    assert_true(pw_edit(m, "L__self__,,net.Net;L__self__fc,fc,torch.nn.Linear", ";;,\\n,<class>"));
}

static void all_optional_tensors(pw_archive *w)
{
    assert_true(pw_edit(pw_find(w, MODEL),
                        "{`as_tensors`: [{`name`: `linear`}, {`name`: `expand`}]}",
                        "{`as_optional_tensors`: [{`as_tensor`: {`name`: `linear`}}, "
                        "{`as_tensor`: {`name`: `expand`}}]}"));
    assert_true(pw_edit(pw_find(w, MODEL), "`as_ints`: [2]", "`as_sym_ints`: [{`as_int`: 2}]"));
}

static void test_rewrites(void **state)
{
    static const struct {
        const char *name;
        void (*edit)(pw_archive *w);
    } REWRITES[] = {
        {"deflate", deflate_all},
        {"no ZIP64 record, no alignment", strip_container},
        {"other order of members", reverse_members},
        {"other root", other_root},
        {"foreign members", foreign_members},
        {"arguments swapped, keyword kinds", swap_arguments},
        {"optional fields dropped", drop_fields},
        {"unknown fields", add_unknown_fields},
        {"minor 99", newer_minor},
        {"values that nothing defines", unreferenced_values},
        {"odd metadata", odd_metadata},
        {"optional and symbolic lists", all_optional_tensors},
    };
    fixture *f = *state;
    const char *expected = pt2_print(f->a, read_base(f));
    for (i64 i = 0; i < COUNT_OF(REWRITES); i++) {
        pw_archive w;
        pw_base(&w, BASE);
        REWRITES[i].edit(&w);
        i64 n;
        uint8_t *bytes = pw_bytes(&w, &n);
        arena *a = arena_new(f->ctx, 0);
        const char *found = pt2_print(a, must_read(a, bytes, n, NULL));
        if (strcmp(found, expected) != 0)
            fail_msg("%s: the program changed\n%s\nexpected\n%s", REWRITES[i].name, found,
                     expected);
        arena_free(a);
        free(bytes);
        pw_free(&w);
    }
}

/* libzip compresses for real, with Huffman codes. */
static void test_rezipped(void **state)
{
    fixture *f = *state;
    const char *expected = pt2_print(f->a, read_base(f));
    char path[] = "/tmp/eqf-rezip-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    for (int64_t i = 0; i < f->w.n; i++) {
        pw_member *m = &f->w.at[i];
        zip_source_t *s = zip_source_buffer(z, m->data, (zip_uint64_t)m->size, 0);
        zip_int64_t at = zip_file_add(z, m->name, s, ZIP_FL_ENC_UTF_8);
        assert_int_equal(zip_set_file_compression(z, (zip_uint64_t)at, ZIP_CM_DEFLATE, 9), 0);
    }
    assert_int_equal(zip_close(z), 0);
    fe_program *volatile p = NULL;
    trap t;
    TRY (f->ctx, t) {
        p = fe_read_pt2(f->a, path, NULL);
        assert_string_equal(pt2_print(f->a, p), expected);
    }
    unlink(path);
    if (t.status)
        fail_with_diagnostic(f->ctx);
}

static void test_two_models(void **state)
{
    fixture *f = *state;
    const char *expected = pt2_print(f->a, read_base(f));
    const char *parts[] = {"models/%s.json", "data/weights/%s_weights_config.json",
                           "data/constants/%s_constants_config.json"};
    for (int i = 0; i < 3; i++) {
        char from[128] = "base/", to[128] = "base/";
        snprintf(from + 5, sizeof from - 5, parts[i], "model");
        snprintf(to + 5, sizeof to - 5, parts[i], "b");
        pw_add_text(&f->w, to, (char *)pw_find(&f->w, from)->data);
    }
    assert_true(pw_edit(pw_find(&f->w, "base/models/b.json"), "`target`: `_operator.mul`",
                        "`target`: `_operator.add`"));
    free(f->bytes);
    f->bytes = pw_bytes(&f->w, &f->n);
    eqf_status status;
    assert_null(try_read(f->a, f->bytes, f->n, NULL, &status));
    assert_int_equal(status, EQF_E_ARGUMENT);
    assert_non_null(strstr(eqf_diag_get(f->ctx, 0).message, "model, b"));
    eqf_ctx_clear(f->ctx);
    assert_null(try_read(f->a, f->bytes, f->n, &(fe_options){.model = "c"}, &status));
    assert_int_equal(status, EQF_E_ARGUMENT);
    eqf_ctx_clear(f->ctx);
    fe_program *p = must_read(f->a, f->bytes, f->n, "b");
    assert_string_equal(p->model, "b");
    assert_string_equal(p->graph->nodes[8].target, "_operator.add");
    assert_string_equal(pt2_print(f->a, must_read(f->a, f->bytes, f->n, "model")), expected);
}

/* A dead value may be of a dtype that nobody knows. */
static void test_unknown_dtype(void **state)
{
    fixture *f = *state;
    assert_true(pw_edit(pw_find(&f->w, MODEL), "`full`: {\n     `dtype`: 7",
                        "`full`: {\n     `dtype`: 77"));
    fe_program *p = read_base(f);
    const fe_value *full = &p->graph->values[p->graph->nodes[9].outputs[0].value.i];
    assert_int_equal(full->dtype, 77);
    assert_non_null(strstr(full->problem, "77"));
}

static void test_dialect_8_15(void **state)
{
    fixture *f = *state;
    pw_member *m = pw_find(&f->w, MODEL);
    assert_true(pw_edit(m, "`minor`: 20", "`minor`: 15"));
    assert_true(pw_edit(m, ",\n     `name`: `split`", ""));
    assert_true(pw_edit(m, ",\n     `name`: `wrap`", ""));
    fe_program *p = read_base(f);
    assert_string_equal(p->graph->nodes[5].name, "getitem");
    assert_string_equal(p->graph->nodes[7].name, "sin");
}

/* ---- fixtures ------------------------------------------------------------------------------ */

/* Names in FILE, in the order of the file, must be a suffix of `names` (n of them). */
static void compare_names(arena *a, const char *file, const char **names, i64 n, bool whole)
{
    i64 count = 0;
    tensor *t = safetensors_read(a, file, &count);
    if (whole ? count != n : count < n)
        fail_msg("%s: %lld tensors, the program has %lld", file, (long long)count, (long long)n);
    for (i64 i = 0; i < n; i++)
        if (strcmp(t[count - n + i].name, names[i]) != 0)
            fail_msg("%s: %s where the program has %s", file, t[count - n + i].name, names[i]);
}

static void check_fixture(eqf_ctx *ctx, const char *folder, const char *name, char form)
{
    char path[1024], tensors[1024];
    arena *a = arena_new(ctx, 0);
    trap t;
    snprintf(path, sizeof path, "%s/%s.%c.pt2", folder, name, form);
    TRY (ctx, t) {
        fe_program *p = fe_read_pt2(a, path, NULL);
        assert_true((p->form == FE_FORM_TRAINING) == (form == 'T'));
        pt2_print(a, p); /* reads every weight */
        VEC(const char *) in = {0}, out = {0};
        for (i64 i = 0; i < p->n_inputs; i++)
            if (p->inputs[i].kind == FE_IN_USER)
                vec_push(a, &in, p->inputs[i].name);
        for (i64 i = 0; i < p->n_outputs; i++)
            if (p->outputs[i].name[0])
                vec_push(a, &out, p->outputs[i].name);
        for (i64 i = 0; i < p->n_guards; i++)
            if (!p->guards[i].expr)
                fail_msg("%s: guard not understood: %s", path, p->guards[i].text);
        snprintf(tensors, sizeof tensors, "%s/%s.in.safetensors", folder, name);
        compare_names(a, tensors, in.at, in.n, true);
        /* In training form mutations are no outputs yet; they come first in the file. */
        snprintf(tensors, sizeof tensors, "%s/%s.eager.safetensors", folder, name);
        compare_names(a, tensors, out.at, out.n, form != 'T');
    }
    arena_free(a);
    if (t.status)
        fail_with_diagnostic(ctx);
    eqf_ctx_clear(ctx);
}

static void test_fixtures(void **state)
{
    fixture *f = *state;
    static const char *const FOLDERS[] = {EQF_TEST_DIR "/fixtures/modules",
                                          EQF_TEST_DIR "/fixtures/calls"};
    int seen = 0;
    for (i64 i = 0; i < COUNT_OF(FOLDERS); i++) {
        DIR *d = opendir(FOLDERS[i]);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            size_t n = strlen(e->d_name);
            if (n < 7 || strcmp(e->d_name + n - 4, ".pt2") != 0)
                continue;
            char form = e->d_name[n - 5];
            e->d_name[n - 6] = 0;
            check_fixture(f->ctx, FOLDERS[i], e->d_name, form);
            seen++;
        }
        closedir(d);
    }
    assert_true(seen >= 24);
}

/* ---- size ---------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif

static void add(char **at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *at += vsprintf(*at, format, args);
    va_end(args);
}

/* 2,000 nodes with fat metadata, 64 weights of 16 MiB each. */
static void write_big(const char *path)
{
    enum { NODES = 2000, WEIGHTS = 64, SIDE = 2048 };
    pw_archive w;
    pw_init(&w);
    char *text = malloc(32 << 20), *p = text;
    const char *meta =
        "{\"dtype\": 7, \"sizes\": [{\"as_int\": 2048}, {\"as_int\": 2048}], "
        "\"strides\": [{\"as_int\": 2048}, {\"as_int\": 1}], \"storage_offset\": "
        "{\"as_int\": 0}, \"requires_grad\": false, \"device\": {\"type\": \"cpu\"}, "
        "\"layout\": 7}";
    char padding[1200];
    memset(padding, 'x', sizeof padding - 1);
    padding[sizeof padding - 1] = 0;
    add(&p, "{\"schema_version\": {\"major\": 8, \"minor\": 20}, \"verifiers\": [\"ATEN\"], "
            "\"graph_module\": {\"graph\": {\"inputs\": [");
    for (int i = 0; i < WEIGHTS; i++)
        add(&p, "%s{\"as_tensor\": {\"name\": \"w%d\"}}", i ? ", " : "", i);
    add(&p, "], \"outputs\": [{\"as_tensor\": {\"name\": \"n%d\"}}], \"nodes\": [", NODES - 1);
    for (int i = 0; i < NODES; i++)
        add(&p,
            "%s{\"target\": \"torch.ops.aten.add.Tensor\", \"inputs\": [{\"name\": \"self\", "
            "\"arg\": {\"as_tensor\": {\"name\": \"%s%d\"}}, \"kind\": 1}, {\"name\": \"other\", "
            "\"arg\": {\"as_tensor\": {\"name\": \"w%d\"}}, \"kind\": 1}], \"outputs\": "
            "[{\"as_tensor\": {\"name\": \"n%d\"}}], \"metadata\": {\"stack_trace\": \"File "
            "\\\"a.py\\\", line %d, in f\", \"from_node\": \"%s\"}}",
            i ? ", " : "", i ? "n" : "w", i ? i - 1 : 0, i % WEIGHTS, i, i + 1, padding);
    add(&p, "], \"tensor_values\": {");
    for (int i = 0; i < WEIGHTS; i++)
        add(&p, "\"w%d\": %s, ", i, meta);
    for (int i = 0; i < NODES; i++)
        add(&p, "%s\"n%d\": %s", i ? ", " : "", i, meta);
    add(&p, "}}, \"signature\": {\"input_specs\": [");
    for (int i = 0; i < WEIGHTS; i++)
        add(&p, "%s{\"parameter\": {\"arg\": {\"name\": \"w%d\"}, \"parameter_name\": \"w.%d\"}}",
            i ? ", " : "", i, i);
    add(&p,
        "], \"output_specs\": [{\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": "
        "\"n%d\"}}}}]}}}",
        NODES - 1);
    pw_add(&w, "big/models/m.json", text, p - text);
    p = text;
    add(&p, "{\"config\": {");
    for (int i = 0; i < WEIGHTS; i++)
        add(&p,
            "%s\"w.%d\": {\"path_name\": \"weight_%d\", \"is_param\": true, \"use_pickle\": "
            "false, \"tensor_meta\": %s}",
            i ? ", " : "", i, i, meta);
    add(&p, "}}");
    pw_add(&w, "big/data/weights/m_weights_config.json", text, p - text);
    for (int i = 0; i < WEIGHTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "big/data/weights/weight_%d", i);
        pw_add(&w, name, NULL, (int64_t)4 * SIDE * SIDE);
    }
    pw_add_text(&w, "big/archive_format", "pt2");
    assert_true(pw_file(&w, path));
    pw_free(&w);
    free(text);
}

static void test_big(void **state)
{
    fixture *f = *state;
    char path[] = "/tmp/eqf-big-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_big(path);
    struct rusage before, after;
    struct timespec t0, t1;
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    fe_program *volatile p = NULL;
    trap t;
    TRY (f->ctx, t) {
        p = fe_read_pt2(f->a, path, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    getrusage(RUSAGE_SELF, &after);
    unlink(path);
    if (t.status)
        fail_with_diagnostic(f->ctx);
    double seconds = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    long grown_mb = (after.ru_maxrss - before.ru_maxrss) / 1024;
    print_message("1 GiB of weights, 2,000 nodes: %.3f s, %ld MB more resident, %lld kB kept\n",
                  seconds, grown_mb, (long long)arena_bytes(f->a) / 1024);
    assert_int_equal(p->graph->n_nodes, 2000);
    assert_int_equal(p->weights[63].bytes, 16 << 20);
    assert_true(arena_bytes(f->a) < 8 << 20);
#ifndef IS_SANITIZED
    assert_true(seconds < 1.0);
    assert_true(grown_mb < 100);
#endif
}

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct meter {
    long left; /* allocations that still succeed */
    long live;
} meter;

static void *metered(void *user, void *p, size_t old_size, size_t size)
{
    (void)old_size;
    meter *m = user;
    if (size == 0) {
        m->live -= p != NULL;
        free(p);
        return NULL;
    }
    if (m->left-- <= 0)
        return NULL;
    m->live += p == NULL;
    return realloc(p, size);
}

/* Whichever allocation fails, reading ends with that status and gives everything back. */
static void test_no_memory(void **state)
{
    fixture *f = *state;
    f->bytes = pw_bytes(&f->w, &f->n);
    for (long allowed = 1;; allowed++) {
        meter m = {.left = 1000000};
        eqf_ctx *ctx = eqf_ctx_new(&(eqf_allocator){metered, &m});
        m.left = allowed;
        arena *a = arena_new(ctx, 0);
        eqf_status status = EQF_E_NO_MEMORY;
        if (a)
            try_read(a, f->bytes, f->n, NULL, &status);
        arena_free(a);
        eqf_ctx_free(ctx);
        assert_int_equal(m.live, 0);
        if (status == EQF_OK) {
            assert_true(allowed > 5);
            return;
        }
        assert_int_equal(status, EQF_E_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nodes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_symbols, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mapped_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_compressed_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_mapped_weight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_absent_weight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_absent_weights_are_no_ties, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_weight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rewrites, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rezipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_dtype, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dialect_8_15, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fixtures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_big, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
