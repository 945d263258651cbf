/* Archives that somebody broke, by accident or on purpose. Each case is the base model of
 * tests/hostile with one edit, and must end with the given status, at the given place, with the
 * given words, in one line, without reading or allocating what the file only claims to hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/pt2.h"
#include "support/pt2_writer.c"

#define BASE EQF_TEST_DIR "/hostile"
#define MODEL "models/model.json"
#define WEIGHTS "data/weights/model_weights_config.json"
#define CONSTANTS "data/constants/model_constants_config.json"

/* What an archive of 20 kB may cost; nothing here comes near it. */
enum { BUDGET = 16 << 20 };

/* The status of reading the bytes; the first diagnostic must have this place and these words. */
static bool expect(const char *label, const uint8_t *bytes, i64 n, eqf_status status,
                   const char *place, const char *words)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, BUDGET);
    trap t;
    TRY (ctx, t) {
        fe_program *p = fe_read_pt2_bytes(a, "hostile.pt2", bytes, n, NULL);
        /* Some damage shows only in the bytes. */
        for (i64 i = 0; i < p->n_weights; i++) {
            const fe_weight *w = &p->weights[i];
            if (!w->is_absent)
                fe_weight_read(p, w, arena_alloc(a, w->bytes));
        }
    }
    eqf_diag d = {.file = "", .place = "", .message = ""};
    if (eqf_diag_count(ctx) > 0)
        d = eqf_diag_get(ctx, 0);
    bool good = t.status == status && d.status == status && strcmp(d.file, "hostile.pt2") == 0 &&
                strncmp(d.place, place, strlen(place)) == 0 && strstr(d.message, words) &&
                !strchr(d.message, '\n') && !strchr(d.place, '\n');
    if (!good)
        print_error("%s\n  found    %s at '%s': %s\n  expected %s at '%s': %s\n", label,
                    eqf_status_name(t.status), d.place, d.message, eqf_status_name(status), place,
                    words);
    arena_free(a);
    eqf_ctx_free(ctx);
    return good;
}

static bool expect_archive(const char *label, pw_archive *w, eqf_status status, const char *place,
                           const char *words)
{
    i64 n;
    uint8_t *bytes = pw_bytes(w, &n);
    bool good = expect(label, bytes, n, status, place, words);
    free(bytes);
    pw_free(w);
    return good;
}

static pw_member *member(pw_archive *w, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "base/%s", name);
    pw_member *m = pw_find(w, path);
    assert_non_null(m);
    return m;
}

/* ---- text: one replacement in one member --------------------------------------------------- */

typedef struct text_case {
    const char *member, *from, *to;
    eqf_status status;
    const char *place, *words;
} text_case;

#define HUGE_INT "9223372036854775807"

static const text_case TEXTS[] = {
    /* JSON */
    {MODEL, "`graph_module`", "graph_module", EQF_E_PARSE, "models/model.json:2:", "expected"},
    {MODEL, "`graph_module`", "`graph_module`: 1, `graph_module`", EQF_E_PARSE,
     "models/model.json:", "duplicate"},
    {MODEL, "`major`: 8", "`major`: 8e999", EQF_E_PARSE, "models/model.json:", "overflow"},
    {MODEL, "`major`: 8", "`major`: NaN", EQF_E_PARSE, "models/model.json:", ""},
    {MODEL, "`as_int`: 7", "`as_int`: 9223372036854775808", EQF_E_PARSE,
     "models/model.json:", "big"},
    {MODEL, "`name`: `x`", "`name`: `x\\u0000y`", EQF_E_PARSE, "models/model.json:", "NUL"},
    {MODEL, "`name`: `x`", "`name`: `\\ud800`", EQF_E_PARSE, "models/model.json:", "Unicode"},
    {MODEL, "`name`: `x`", "`name`: `x\\ny`", EQF_E_PARSE, "models/model.json", "x\\x0ay"},
    {WEIGHTS, "`config`: {", "`config`: [", EQF_E_PARSE, "data/weights/model_weights_config", ""},
    {WEIGHTS, "{\n `config`", "[] {\n `config`", EQF_E_PARSE, "data/weights/model_weights", "end"},
    /* versions and shape of the whole */
    {MODEL, "`major`: 8", "`major`: 9", EQF_E_UNSUPPORTED, MODEL, "schema 9.20"},
    {MODEL, "`schema_version`", "`scheme_version`", EQF_E_PARSE, MODEL, "schema_version"},
    {MODEL, "`nodes`: [", "`knots`: [", EQF_E_PARSE, MODEL, "\"nodes\" is missing"},
    {MODEL, "`tensor_values`: {\n    `p_fc_weight`", "`tensor_values`: 3, `other`: {`p_fc_weight`",
     EQF_E_PARSE, MODEL, "expected an object, found an integer"},
    {"byteorder", "little", "big", EQF_E_UNSUPPORTED, "byteorder", "big"},
    {"archive_version", "0", "999", EQF_E_UNSUPPORTED, "archive_version",
     "\"999\": only archives of version 0 are read"},
    /* types */
    {MODEL, "`linear`: {\n     `dtype`: 7,\n     `sizes`: [\n",
     "`linear`: {\n     `dtype`: 7,\n     `sizes`: [{`as_int`: -3},\n", EQF_E_PARSE, "linear",
     "size -3 is negative"},
    {MODEL, "`full`: {\n     `dtype`: 7,\n     `sizes`: [{`as_int`: 2}]",
     "`full`: {`dtype`: 7, `sizes`: [{`as_int`: " HUGE_INT "}, {`as_int`: 8}]", EQF_E_PARSE, "full",
     "more than 2^63 bytes"},
    {MODEL, "`full`: {\n     `dtype`: 7,\n     `sizes`: [{`as_int`: 2}]",
     "`full`: {`dtype`: 7, `sizes`: [{`as_float`: 2.0}]", EQF_E_UNSUPPORTED, "full",
     "unknown kind of size \"as_float\" in schema 8.20"},
    {MODEL, "Symbol('s77', positive=True, integer=True)`, `hint`", "Symbol('s77`, `hint`",
     EQF_E_PARSE, "wrap", "no symbolic expression"},
    {MODEL, "`x`: {\n     `dtype`: 7", "`x`: {\n     `dtype`: `f32`", EQF_E_PARSE, MODEL,
     "expected an integer, found a string"},
    {MODEL, "`where`: {", "`wherever`: {", EQF_E_PARSE, "where", "no type for \"where\""},
    /* names */
    {MODEL, "`as_tensor`: {`name`: `b_steps`}}, `kind`", "`as_tensor`: {`name`: `cat`}}, `kind`",
     EQF_E_PARSE, "add_", "\"cat\" is used before anything defines it"},
    {MODEL, "`as_tensor`: {`name`: `b_steps`}}, `kind`", "`as_tensor`: {`name`: `add_`}}, `kind`",
     EQF_E_PARSE, "add_", "\"add_\" is used before"},
    {MODEL, "{`as_tensor`: {`name`: `linear`}}],\n     `metadata`",
     "{`as_tensor`: {`name`: `x`}}],\n     `metadata`", EQF_E_PARSE, "linear", "defined twice"},
    {MODEL, "{`as_tensor`: {`name`: `p_head`}},\n    {`as_tensor`",
     "{`as_tensor`: {`name`: `p_meta`}},\n    {`as_tensor`", EQF_E_PARSE, MODEL, "defined twice"},
    {MODEL, "`as_name`: `sym_size_int`}, {`as_int`: 3}", "`as_name`: `x`}, {`as_int`: 3}",
     EQF_E_PARSE, "expand", "\"x\" is a tensor, but used as a symbolic int"},
    {MODEL, "{`as_tensor`: {`name`: `a`}}, `kind`: 1}", "{`as_tensor`: {`name`: `x`}}, `kind`: 1}",
     EQF_E_PARSE, "sin", "\"x\" is used before"},
    {MODEL, "`target`: `torch.ops.aten.linear.default`", "`target`: ``", EQF_E_PARSE, MODEL,
     "no name"},
    {MODEL, "{`name`: `other`, `arg`: {`as_int`: 1}", "{`name`: `self`, `arg`: {`as_int`: 1}",
     EQF_E_PARSE, "add_", "given twice"},
    /* arguments */
    {MODEL, "{`as_float`: `-Infinity`}", "{`as_hologram`: 3}", EQF_E_UNSUPPORTED, "where",
     "unknown kind of argument \"as_hologram\" in schema 8.20"},
    {MODEL, "{`as_float`: `-Infinity`}", "{`as_float`: `-infinity`}", EQF_E_PARSE, "where",
     "expected a number"},
    {MODEL, "{`as_float`: `-Infinity`}", "{`as_float`: 1.0, `as_int`: 1}", EQF_E_PARSE, "where",
     "one member, found 2"},
    {MODEL, "{`as_float`: `-Infinity`}", "{`as_string_to_argument`: {}}", EQF_E_UNSUPPORTED,
     "where", "not read"},
    {MODEL, "`as_ints`: [2]", "`as_ints`: [2.5]", EQF_E_PARSE, "full", "expected an integer"},
    {MODEL, "{`as_tensors`: [{`name`: `getitem`}",
     "{`as_graph`: {`name`: `g`, `graph`: {}}}, "
     "{`as_tensors`: [{`name`: `getitem`}",
     EQF_E_PARSE, "split", "\"inputs\" is missing"},
    /* signature */
    {MODEL, "{`user_input`: {`arg`: {`as_tensor`: {`name`: `d_m`}}}},", "", EQF_E_PARSE, MODEL,
     "9 specs for 10 inputs"},
    {MODEL, "{`user_input`: {`arg`: {`as_tensor`: {`name`: `d_m`}}}}",
     "{`user_input`: {`arg`: {`as_tensor`: {`name`: `d_n`}}}}", EQF_E_PARSE, MODEL,
     "\"d_n\" is named here, the graph has \"d_m\""},
    {MODEL, "{`user_input`: {`arg`: {`as_tensor`: {`name`: `d_m`}}}}",
     "{`token`: {`arg`: {`name`: `d_m`}}}", EQF_E_UNSUPPORTED, MODEL, "\"token\" is not read"},
    {MODEL, "{`user_input`: {`arg`: {`as_tensor`: {`name`: `d_m`}}}}",
     "{`custom_obj`: {`arg`: {`name`: `d_m`, `class_fqn`: `x`}, `custom_obj_name`: `o`}}",
     EQF_E_UNSUPPORTED, MODEL, "custom_obj"},
    {MODEL, "`buffer_name`: `steps`}},\n    {`user_output`",
     "`buffer_name`: `stops`}},\n    {`user_output`", EQF_E_PARSE, MODEL,
     "no input \"stops\" to write to"},
    {MODEL, "{`buffer_mutation`: {`arg`: {`name`: `add_`}, `buffer_name`: `steps`}}",
     "{`loss_output`: {`arg`: {`name`: `add_`}}}", EQF_E_UNSUPPORTED, MODEL, "loss_output"},
    {MODEL, "`parameter_name`: `head`", "`parameter_name`: `fc.weight`", EQF_E_PARSE, MODEL,
     "two inputs are called \"fc.weight\""},
    {MODEL, "`out_spec`: `[1, ", "`out_spec`: `[1, [", EQF_E_PARSE, "models/model.json:out_spec",
     ""},
    {MODEL, "`in_spec`: `[1, {\\`type\\`: \\`builtins.tuple\\`",
     "`in_spec`: `[1, {\\`type\\`: null", EQF_E_PARSE, MODEL, "in_spec has 1 leaves"},
    {MODEL, "{`min_val`: 2, `max_val`: 64}", "{`min_val`: 2, `max_val`: 1}", EQF_E_PARSE, MODEL,
     "the range is empty"},
    /* weights */
    {WEIGHTS, "`fc.weight`", "`fc.wait`", EQF_E_DATA, "fc.weight", "in no config"},
    {WEIGHTS, "`path_name`: `weight_1`", "`path_name`: `weight_9`", EQF_E_DATA, "steps",
     "weight_9, is not in the archive"},
    {WEIGHTS, "`path_name`: `weight_1`", "`path_name`: `../../models/model.json`", EQF_E_PARSE,
     "steps", "no plain member name"},
    {WEIGHTS, "`path_name`: `weight_1`", "`path_name`: `/etc/passwd`", EQF_E_PARSE, "steps",
     "no plain member name"},
    {WEIGHTS, "`use_pickle`: false", "`use_pickle`: true", EQF_E_UNSUPPORTED, "fc.weight",
     "pickle"},
    {WEIGHTS, "`strides`: [{`as_int`: 0}", "`strides`: [{`as_int`: -1}", EQF_E_PARSE, "head",
     "stride -1 is negative"},
    {WEIGHTS, "`strides`: [{`as_int`: 0}", "`strides`: [{`as_int`: 1}", EQF_E_DATA, "head",
     "reaches element 24, but base/data/weights/weight_0 has 24"},
    {WEIGHTS, "`strides`: [{`as_int`: 0}", "`strides`: [{`as_int`: " HUGE_INT "}", EQF_E_PARSE,
     "head", "more than 2^63"},
    {WEIGHTS, "`strides`: [{`as_int`: 0}, ", "`strides`: [", EQF_E_PARSE, "head",
     "1 strides for rank 2"},
    {WEIGHTS, "`storage_offset`: {`as_int`: 19}", "`storage_offset`: {`as_int`: -19}", EQF_E_PARSE,
     "head", "offset -19 is negative"},
    {WEIGHTS, "`storage_offset`: {`as_int`: 19}", "`storage_offset`: {`as_int`: " HUGE_INT "}",
     EQF_E_PARSE, "head", "more than 2^63"},
    {WEIGHTS, "`sizes`: [{`as_int`: 2}, {`as_int`: 3}]",
     "`sizes`: [{`as_int`: 1099511627776}, {`as_int`: 3}]", EQF_E_LIMIT, "head", "repeats"},
    {WEIGHTS, "`sizes`: [{`as_int`: 2}, {`as_int`: 3}]",
     "`sizes`: [{`as_int`: 4294967296}, {`as_int`: 4294967296}]", EQF_E_PARSE, "head",
     "more than 2^63"},
    {WEIGHTS, "`sizes`: [{`as_int`: 2}, {`as_int`: 3}]", "`sizes`: [{`as_int`: 2}, {`as_int`: 2}]",
     EQF_E_PARSE, "head", "differ from those of \"p_head\""},
    {WEIGHTS, "`sizes`: [{`as_int`: 2}, {`as_int`: 3}]",
     "`sizes`: [{`as_expr`: {`expr_str`: `Symbol('s77')`}}, {`as_int`: 3}]", EQF_E_PARSE, "head",
     "must be a number"},
    {WEIGHTS, "`dtype`: 5", "`dtype`: 7", EQF_E_PARSE, "steps", "differ from those"},
    {WEIGHTS, "`tensor_meta`", "`tensor_mata`", EQF_E_PARSE, "fc.weight", "tensor_meta"},
    {CONSTANTS, "`mask`", "`musk`", EQF_E_DATA, "mask", "no data for this buffer"},
};

static void test_texts(void **state)
{
    (void)state;
    int failed = 0;
    for (i64 i = 0; i < COUNT_OF(TEXTS); i++) {
        const text_case *c = &TEXTS[i];
        char label[512];
        snprintf(label, sizeof label, "%s: %s -> %s", c->member, c->from, c->to);
        pw_archive w;
        pw_base(&w, BASE);
        if (!pw_edit(member(&w, c->member), c->from, c->to))
            fail_msg("nothing to edit in %s", label);
        failed += !expect_archive(label, &w, c->status, c->place, c->words);
    }
    assert_int_equal(failed, 0);
}

/* ---- archives: one change of the container ------------------------------------------------- */

static void encrypted(pw_archive *w)
{
    member(w, MODEL)->lie_flags = 0x809;
}
static void other_method(pw_archive *w)
{
    member(w, "data/weights/weight_0")->lie_method = 12;
}
static void absolute_name(pw_archive *w)
{
    pw_add_text(w, "/etc/passwd", "x");
}
static void climbing_name(pw_archive *w)
{
    pw_add_text(w, "base/../../x", "x");
}
static void backslash_name(pw_archive *w)
{
    pw_add_text(w, "base\\x", "x");
}
static void control_name(pw_archive *w)
{
    pw_add_text(w, "base/\033[2Jx", "x");
}
static void nul_name(pw_archive *w)
{
    pw_add_text(w, "base/xxx", "x")->name[6] = 0;
}
static void long_name(pw_archive *w)
{
    static char name[5001];
    memset(name, 'n', 5000);
    pw_add_text(w, name, "x");
}
static void invalid_utf8_name(pw_archive *w)
{
    pw_add_text(w, "base/\xC0\xAF", "x");
}
static void duplicate_member(pw_archive *w)
{
    pw_add_text(w, "base/models/model.json", "{}");
}
static void overlap(pw_archive *w)
{
    member(w, "archive_version")->lie_offset = 0;
}
/* One byte past the header of the last member. */
static void offset_past_header(pw_archive *w)
{
    const char *name = ".data/serialization_id";
    i64 n;
    uint8_t *bytes = pw_bytes(w, &n);
    uint8_t *at = memmem(bytes, (size_t)n, "base/.data/serialization_id", 27);
    member(w, name)->lie_offset = at - bytes - LOCAL + 1;
    free(bytes);
}
static void offset_outside(pw_archive *w)
{
    member(w, "archive_version")->lie_offset = 0x7FFFFFFF;
}
static void packed_too_large(pw_archive *w)
{
    pw_member *m = member(w, "data/weights/weight_0");
    m->lie_packed = m->lie_size = 0x7FFFFFF0;
}
static void stored_sizes_differ(pw_archive *w)
{
    member(w, "data/weights/weight_0")->lie_size = 1 << 30;
}
static void bomb(pw_archive *w)
{
    pw_member *m = member(w, "data/weights/weight_0");
    m->deflate = true;
    m->lie_size = 4000000000;
}
static void deflated_size_too_large(pw_archive *w)
{
    pw_member *m = member(w, "data/weights/weight_0");
    m->deflate = true;
    m->lie_size = m->size + 4;
}
static void deflated_size_too_small(pw_archive *w)
{
    pw_member *m = member(w, MODEL);
    m->deflate = true;
    m->lie_size = m->size - 1;
}
static void broken_deflate(pw_archive *w)
{
    member(w, "data/weights/weight_0")->lie_method = 8;
}
static void local_name_differs(pw_archive *w)
{
    member(w, "byteorder")->lie_local_name = "base/byteorders";
}
static void json_crc(pw_archive *w)
{
    member(w, MODEL)->lie_crc = 7;
}
static void weight_crc(pw_archive *w)
{
    member(w, "data/constants/tensor_0")->lie_crc = 7;
}
static void short_record(pw_archive *w)
{
    member(w, "data/weights/weight_0")->size = 92;
}
static void odd_record(pw_archive *w)
{
    member(w, "data/weights/weight_0")->size = 95;
}
static void missing_record(pw_archive *w)
{
    member(w, "data/weights/weight_0")->omit = true;
}
static void missing_config(pw_archive *w)
{
    member(w, WEIGHTS)->omit = true;
}
static void too_many_entries(pw_archive *w)
{
    w->lie_entries = INT64_MAX;
}
static void more_entries(pw_archive *w)
{
    w->lie_entries = 100;
}
static void fewer_entries(pw_archive *w)
{
    w->lie_entries = 3;
}
static void other_disk(pw_archive *w)
{
    w->disk = 1;
}
static void two_roots(pw_archive *w)
{
    pw_add_text(w, "second/archive_format", "pt2");
}
static void other_format(pw_archive *w)
{
    pw_set_text(member(w, "archive_format"), "pt3");
}
static void no_model(pw_archive *w)
{
    member(w, MODEL)->omit = true;
}
static void inductor(pw_archive *w)
{
    member(w, MODEL)->omit = true;
    pw_add_text(w, "base/data/aotinductor/model/x.so", "");
}
static void torch_2_8(pw_archive *w)
{
    member(w, WEIGHTS)->omit = true;
    pw_add_text(w, "base/data/weights/model.pt", "\200\2}q\0.");
}
static void torch_2_7(pw_archive *w)
{
    member(w, "archive_format")->omit = true;
    pw_add_text(w, "serialized_exported_program.json", "{}");
}
static void torchscript(pw_archive *w)
{
    member(w, "archive_format")->omit = true;
    pw_add_text(w, "base/data.pkl", "");
    pw_add_text(w, "base/constants.pkl", "");
}
static void torch_save(pw_archive *w)
{
    member(w, "archive_format")->omit = true;
    pw_add_text(w, "base/data.pkl", "");
}
static void empty_json(pw_archive *w)
{
    pw_set_text(member(w, MODEL), "");
}
static void deep_json(pw_archive *w)
{
    static char text[10001];
    memset(text, '[', 10000);
    pw_set_text(member(w, MODEL), text);
}

static void test_archives(void **state)
{
    static const struct {
        const char *name;
        void (*edit)(pw_archive *w);
        eqf_status status;
        const char *place, *words;
    } CASES[] = {
        {"encrypted", encrypted, EQF_E_UNSUPPORTED, "base/models/model.json", "encrypted"},
        {"other method", other_method, EQF_E_UNSUPPORTED, "base/data/weights/weight_0",
         "method 12"},
        {"absolute name", absolute_name, EQF_E_PARSE, "/etc/passwd", "absolute"},
        {"climbing name", climbing_name, EQF_E_PARSE, "base/../../x", "'..'"},
        {"backslash", backslash_name, EQF_E_PARSE, "base\\x", "backslash"},
        {"control character", control_name, EQF_E_PARSE, "base/\\x1b[2Jx", "plain"},
        {"NUL in a name", nul_name, EQF_E_PARSE, "base/x\\x00x", "NUL"},
        {"long name", long_name, EQF_E_PARSE, "nnnn", "longer than 4096"},
        {"invalid UTF-8", invalid_utf8_name, EQF_E_PARSE, "base/\\xc0\\xaf", "UTF-8"},
        {"duplicate member", duplicate_member, EQF_E_PARSE, "base/models/model.json",
         "two members"},
        {"overlap", overlap, EQF_E_PARSE, "base/", "overlaps base/"},
        {"offset past the header", offset_past_header, EQF_E_PARSE, "base/.data/serialization_id",
         "no header"},
        {"offset outside", offset_outside, EQF_E_PARSE, "base/archive_version", "outside"},
        {"packed size beyond the file", packed_too_large, EQF_E_PARSE, "base/data/weights/weight_0",
         "do not fit"},
        {"stored, sizes differ", stored_sizes_differ, EQF_E_PARSE, "base/data/weights/weight_0",
         "stored"},
        {"zip bomb", bomb, EQF_E_PARSE, "base/data/weights/weight_0", "cannot give 4000000000"},
        {"deflated, size too large", deflated_size_too_large, EQF_E_DATA, "fc.weight", "damaged"},
        {"deflated, size too small", deflated_size_too_small, EQF_E_PARSE, "base/models/model.json",
         "damaged"},
        {"broken deflate", broken_deflate, EQF_E_DATA, "fc.weight", "damaged"},
        {"local name differs", local_name_differs, EQF_E_PARSE, "", "contradict"},
        {"CRC of JSON", json_crc, EQF_E_PARSE, "base/models/model.json", "checksum"},
        {"CRC of a weight", weight_crc, EQF_E_DATA, "mask", "checksum"},
        {"short record", short_record, EQF_E_DATA, "head", "reaches element 23"},
        {"odd record", odd_record, EQF_E_DATA, "fc.weight", "multiple of 4"},
        {"missing record", missing_record, EQF_E_DATA, "fc.weight", "not in the archive"},
        {"missing config", missing_config, EQF_E_DATA, "fc.weight", "in no config"},
        {"2^63 members", too_many_entries, EQF_E_LIMIT, "", "1048576"},
        {"more members", more_entries, EQF_E_PARSE, "", "member"},
        {"fewer members", fewer_entries, EQF_E_PARSE, "", "damaged"},
        {"other disk", other_disk, EQF_E_UNSUPPORTED, "", "disks"},
        {"two roots", two_roots, EQF_E_PARSE, "second/archive_format", "two roots"},
        {"other format", other_format, EQF_E_NOT_OURS, "", "none of torch.export"},
        {"no model", no_model, EQF_E_PARSE, "", "half way"},
        {"AOTInductor", inductor, EQF_E_NOT_OURS, "", "AOTInductor"},
        {"torch 2.8", torch_2_8, EQF_E_NOT_OURS, "", "torch 2.8"},
        {"torch 2.7", torch_2_7, EQF_E_NOT_OURS, "", "torch <= 2.7"},
        {"TorchScript", torchscript, EQF_E_NOT_OURS, "", "TorchScript"},
        {"torch.save", torch_save, EQF_E_NOT_OURS, "", "torch.save"},
        {"empty JSON", empty_json, EQF_E_PARSE, "models/model.json:", ""},
        {"deep JSON", deep_json, EQF_E_PARSE, "models/model.json:", "depth"},
    };
    (void)state;
    int failed = 0;
    for (i64 i = 0; i < COUNT_OF(CASES); i++) {
        pw_archive w;
        pw_base(&w, BASE);
        CASES[i].edit(&w);
        failed +=
            !expect_archive(CASES[i].name, &w, CASES[i].status, CASES[i].place, CASES[i].words);
    }
    assert_int_equal(failed, 0);
}

/* ---- nesting and counts -------------------------------------------------------------------- */

static char *repeated(const char *head, const char *part, int n, const char *tail)
{
    size_t h = strlen(head), p = strlen(part), t = strlen(tail);
    char *out = malloc(h + p * (size_t)n + t + 1);
    memcpy(out, head, h);
    for (int i = 0; i < n; i++)
        memcpy(out + h + p * (size_t)i, part, p);
    memcpy(out + h + p * (size_t)n, tail, t + 1);
    return out;
}

static void expect_edit(const char *label, const char *from, const char *to, eqf_status status,
                        const char *place, const char *words)
{
    pw_archive w;
    pw_base(&w, BASE);
    assert_true(pw_edit(member(&w, MODEL), from, to));
    assert_true(expect_archive(label, &w, status, place, words));
}

static void test_nesting(void **state)
{
    (void)state;
    char *rank =
        repeated("`full`: {`dtype`: 7, `sizes`: [{`as_int`: 1}", ", {`as_int`: 1}", 64, "]");
    expect_edit("rank 65", "`full`: {\n     `dtype`: 7,\n     `sizes`: [{`as_int`: 2}]", rank,
                EQF_E_LIMIT, "full", "rank 65");
    free(rank);
    char *symbol = repeated("`expr_str`: `", "Add(", 5000, "`");
    expect_edit("deep expression", "`expr_str`: `Symbol('s77', positive=True, integer=True)`",
                symbol, EQF_E_PARSE, "wrap", "no symbolic expression");
    free(symbol);
    char *sub = repeated(
        "",
        "{`as_graph`: {`name`: `g`, `graph`: {`inputs`: [], `outputs`: [], `nodes`: [{`target`: "
        "`t`, `outputs`: [], `inputs`: [{`name`: ``, `arg`: ",
        17, "{`as_none`: true}");
    char *closed = repeated(sub, "}]}]}}}", 17, "");
    expect_edit("deep sub-graphs", "{`as_float`: `-Infinity`}", closed, EQF_E_LIMIT, "t#0",
                "more than 16 deep");
    free(sub);
    free(closed);
    char *tree = repeated("`out_spec`: `[1, ", "{\\`type\\`: \\`t\\`, \\`children_spec\\`: [", 300,
                          "{\\`type\\`: null}");
    char *tail = repeated(tree, "]}", 300, "]`, `was`: `");
    expect_edit("deep calling convention", "`out_spec`: `", tail, EQF_E_LIMIT,
                "models/model.json:out_spec", "256 deep");
    free(tree);
    free(tail);
    char *args =
        repeated("`as_float`: 0.5}, `kind`: 1}", ", {`name`: `n`, `arg`: {`as_int`: 1}}", 2, "");
    expect_edit("argument given twice", "`as_float`: 0.5}, `kind`: 1}", args, EQF_E_PARSE, "full",
                "\"n\" is given twice");
    free(args);
}

/* A guard is as deep as its chain is long; beyond 1,024 parts it is only text. */
static void test_long_guard(void **state)
{
    (void)state;
    char *guard = repeated("`guards_code`: [`L['k'] > 0", " + 1", 100000, "`, ");
    pw_archive w;
    pw_base(&w, BASE);
    assert_true(pw_edit(member(&w, MODEL), "`guards_code`: [", guard));
    free(guard);
    i64 n;
    uint8_t *bytes = pw_bytes(&w, &n);
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, BUDGET);
    trap t;
    TRY (ctx, t) {
        fe_program *p = fe_read_pt2_bytes(a, "long.pt2", bytes, n, NULL);
        assert_null(p->guards[0].expr);
        assert_int_equal(fe_guard_check(&p->guards[0], &(fe_env){0}), FE_GUARD_UNKNOWN);
    }
    assert_int_equal(t.status, EQF_OK);
    arena_free(a);
    eqf_ctx_free(ctx);
    free(bytes);
    pw_free(&w);
}

/* ---- files that are no archives, and archives cut anywhere --------------------------------- */

static void test_other_files(void **state)
{
    (void)state;
    assert_true(
        expect("empty file", (const uint8_t *)"", 0, EQF_E_NOT_OURS, "", "not a zip archive"));
    assert_true(expect("text", (const uint8_t *)"(program p)", 11, EQF_E_NOT_OURS, "",
                       "not a zip archive"));
    assert_true(expect("pickle", (const uint8_t *)"\200\2}q\0.", 6, EQF_E_NOT_OURS, "",
                       "not a zip archive"));
    assert_true(expect("empty zip", (const uint8_t *)"PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                       22, EQF_E_NOT_OURS, "", "none of torch.export"));
    assert_true(expect("only a header", (const uint8_t *)"PK\3\4\0\0\0\0", 8, EQF_E_PARSE, "",
                       "truncated"));
}

static void test_truncated(void **state)
{
    (void)state;
    pw_archive w;
    pw_base(&w, BASE);
    i64 n;
    uint8_t *bytes = pw_bytes(&w, &n);
    pw_free(&w);
    for (i64 cut = 4; cut < n; cut += cut < n - 200 ? 997 : 1) {
        uint8_t *part = malloc((size_t)cut); /* exactly: overreads show */
        memcpy(part, bytes, (size_t)cut);
        assert_true(expect("truncated", part, cut, EQF_E_PARSE, "", "truncated"));
        free(part);
    }
    free(bytes);
}

/* Any single flipped byte of directory and headers: whatever the verdict, no crash, and what is
 * accepted still holds the promises of pt2.h. */
static void test_flipped_bytes(void **state)
{
    (void)state;
    pw_archive w;
    pw_base(&w, BASE);
    i64 n;
    uint8_t *bytes = pw_bytes(&w, &n);
    pw_free(&w);
    i64 accepted = 0, refused = 0;
    for (i64 at = 0; at < n; at += at < 200 || at > n - 1400 ? 1 : 131) {
        eqf_ctx *ctx = eqf_ctx_new(NULL);
        arena *a = arena_new(ctx, BUDGET);
        bytes[at] ^= 0x41;
        trap t;
        TRY (ctx, t) {
            fe_program *p = fe_read_pt2_bytes(a, "flipped.pt2", bytes, n, NULL);
            for (i64 i = 0; i < p->n_weights; i++)
                if (!p->weights[i].is_absent)
                    fe_weight_read(p, &p->weights[i], arena_alloc(a, p->weights[i].bytes));
        }
        bytes[at] ^= 0x41;
        if (t.status == EQF_OK)
            accepted++;
        else
            refused++;
        assert_int_equal(eqf_diag_count(ctx), t.status != EQF_OK);
        arena_free(a);
        eqf_ctx_free(ctx);
    }
    free(bytes);
    assert_true(refused > 1000 && accepted > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),         cmocka_unit_test(test_archives),
        cmocka_unit_test(test_nesting),       cmocka_unit_test(test_long_guard),
        cmocka_unit_test(test_other_files),   cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
