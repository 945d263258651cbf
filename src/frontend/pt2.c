/* pt2: what kind of file it is, and the way through an archive of torch.export.
 *
 * The kind is decided by content, never by the name. ROOT is the folder that holds an
 * `archive_format` of "pt2"; members outside it are ignored. A model is models/NAME.json; its
 * weights and constants have configs of the same NAME. Of everything in the program JSON only the
 * graph, its signature, ranges and guards are kept; the text is freed before this file returns. */
#include "frontend/reader.h"

enum { SCHEMA_MAJOR = 8, SCHEMA_MINOR = 20, SMALL_MEMBER = 4096, MAX_REMARK = 512 };
#define MAX_JSON ((i64)256 << 20)

/* ---- small services ------------------------------------------------------------------------ */

char *fe_member_text(arena *scratch, const fe_archive *ar, const char *name, i64 max, i64 *n)
{
    const fe_zip *z = ar->zip;
    const fe_entry *e = fe_zip_find(z, arena_printf(scratch, "%s%s", ar->root, name));
    if (!e)
        return NULL;
    max = max > 0 ? max : MAX_JSON;
    if (e->size > max)
        eqf_throw(z->ctx, EQF_E_LIMIT, z->file, e->name,
                  "%lld bytes are more than the limit of %lld", (long long)e->size, (long long)max);
    fe_zip_check(z, e);
    char *text = arena_alloc(scratch, e->size + 1);
    fe_zip_read(z, e, EQF_E_PARSE, NULL, text);
    *n = e->size;
    return text;
}

const char *fe_word(fe_reader *r, const char *s, i64 n)
{
    return intern_text(r->words, intern_add(r->words, s, n));
}

void fe_note(fe_reader *r, const char *format, ...)
{
    char text[MAX_REMARK];
    va_list args;
    va_start(args, format);
    fe_format(text, sizeof text, format, args);
    va_end(args);
    vec_push(r->a, &r->notes, arena_strdup(r->a, text));
}

void fe_throw_node(const fe_program *p, const fe_node *n, eqf_status status, const char *format,
                   ...)
{
    char text[MAX_REMARK];
    va_list args;
    va_start(args, format);
    fe_format(text, sizeof text, format, args);
    va_end(args);
    eqf_throw(p->ctx, status, p->file, n->name, "%s: %s%s%s", n->target, text,
              n->source[0] ? " at " : "", n->source);
}

/* ---- kinds of files ------------------------------------------------------------------------ */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Is `name` this member of some root, or of none? */
static bool is_member(const char *name, const char *member)
{
    size_t n = strlen(name), m = strlen(member);
    return ends_with(name, member) && (n == m || name[n - m - 1] == '/');
}

static bool has_body(const fe_zip *z, const fe_entry *e, const char *body)
{
    char text[16];
    i64 n = (i64)strlen(body);
    if (e->size != n)
        return false;
    fe_zip_read(z, e, EQF_E_PARSE, NULL, text);
    return memcmp(text, body, (size_t)n) == 0;
}

/* A zip without a root: say what it is when it is something known. */
static _Noreturn void not_ours(const fe_zip *z)
{
    const char *kind = "a zip archive, but none of torch.export: no archive_format says \"pt2\"";
    for (i64 i = 0; i < z->n; i++) {
        const char *name = z->entries[i].name;
        if (strcmp(name, "serialized_exported_program.json") == 0) {
            kind = "an export of torch <= 2.7: save it again with torch >= 2.9";
            break;
        }
        if (is_member(name, "constants.pkl"))
            kind = "a TorchScript file; torch.export.save writes what is read here";
        else if (is_member(name, "data.pkl") && kind[0] == 'a' && kind[2] == 'z')
            kind = "a file of torch.save (a pickle); torch.export.save writes what is read here";
    }
    eqf_throw(z->ctx, EQF_E_NOT_OURS, z->file, NULL, "%s", kind);
}

static const char *find_root(arena *a, const fe_zip *z)
{
    const fe_entry *found = NULL;
    for (i64 i = 0; i < z->n; i++) {
        const fe_entry *e = &z->entries[i];
        if (!is_member(e->name, "archive_format") || !has_body(z, e, "pt2"))
            continue;
        if (found)
            eqf_throw(z->ctx, EQF_E_PARSE, z->file, e->name,
                      "the archive has two roots; the other is that of %s", found->name);
        found = e;
    }
    if (!found)
        not_ours(z);
    return arena_strndup(a, found->name, (i64)(strlen(found->name) - strlen("archive_format")));
}

/* NAME of ROOT/models/NAME.json, or NULL. */
static const char *model_name(arena *a, const fe_archive *ar, const char *member)
{
    size_t root = strlen(ar->root);
    if (strncmp(member, ar->root, root) != 0 || strncmp(member + root, "models/", 7) != 0)
        return NULL;
    const char *name = member + root + 7;
    if (!ends_with(name, ".json") || strchr(name, '/') || strlen(name) == 5)
        return NULL;
    return arena_strndup(a, name, (i64)strlen(name) - 5);
}

static bool has_folder(const fe_archive *ar, const char *folder)
{
    size_t root = strlen(ar->root);
    for (i64 i = 0; i < ar->zip->n; i++)
        if (strncmp(ar->zip->entries[i].name, ar->root, root) == 0 &&
            strncmp(ar->zip->entries[i].name + root, folder, strlen(folder)) == 0)
            return true;
    return false;
}

static const char *choose_model(arena *a, const fe_archive *ar, const char *wanted)
{
    const fe_zip *z = ar->zip;
    VEC(const char *) models = {0};
    str list = str_new(a);
    for (i64 i = 0; i < z->n; i++) {
        const char *name = model_name(a, ar, z->entries[i].name);
        if (!name)
            continue;
        if (wanted && strcmp(name, wanted) == 0)
            return name;
        if (list.n < 200)
            str_printf(&list, "%s%.64s", models.n ? ", " : "", name);
        vec_push(a, &models, name);
    }
    if (models.n == 0) {
        if (has_folder(ar, "data/aotinductor/"))
            eqf_throw(z->ctx, EQF_E_NOT_OURS, z->file, NULL,
                      "an AOTInductor package: compiled code without the program it came from");
        eqf_throw(z->ctx, EQF_E_PARSE, z->file, NULL,
                  "the archive holds no model: torch.export.save stopped half way");
    }
    if (wanted)
        eqf_throw(z->ctx, EQF_E_ARGUMENT, z->file, NULL, "no model \"%s\"; there is: %s", wanted,
                  str_text(&list));
    if (models.n > 1)
        eqf_throw(z->ctx, EQF_E_ARGUMENT, z->file, NULL,
                  "the archive holds %lld models, choose one with --model: %s", (long long)models.n,
                  str_text(&list));
    return models.at[0];
}

static void check_layout(fe_reader *r, arena *scratch, const char *model)
{
    const fe_archive *ar = r->p->archive;
    const fe_zip *z = ar->zip;
    const char *weights = arena_printf(scratch, "%sdata/weights/%s", ar->root, model);
    if (!fe_zip_find(z, arena_printf(scratch, "%s_weights_config.json", weights)) &&
        fe_zip_find(z, arena_printf(scratch, "%s.pt", weights)))
        eqf_throw(z->ctx, EQF_E_NOT_OURS, z->file, NULL,
                  "an export of torch 2.8 (weights in a pickle): save it again with torch >= 2.9");
    i64 n;
    const char *order = fe_member_text(scratch, ar, "byteorder", SMALL_MEMBER, &n);
    if (order && strcmp(order, "little") != 0)
        eqf_throw(z->ctx, EQF_E_UNSUPPORTED, z->file, "byteorder",
                  "\"%s\": only little-endian archives are read", fe_show(scratch, order, n));
    const char *version = fe_member_text(scratch, ar, "archive_version", SMALL_MEMBER, &n);
    if (version && strcmp(version, "0") != 0)
        eqf_throw(z->ctx, EQF_E_UNSUPPORTED, z->file, "archive_version",
                  "\"%s\": only archives of version 0 are read", fe_show(scratch, version, n));
}

/* ---- the top of the program JSON ----------------------------------------------------------- */

static void read_versions(fe_reader *r, const fe_js *top)
{
    fe_program *p = r->p;
    fe_js schema = fe_js_get(top, "schema_version"), torch = fe_js_opt(top, "torch_version");
    fe_js major = fe_js_get(&schema, "major"), minor = fe_js_get(&schema, "minor");
    p->schema_major = fe_js_i64(&major);
    p->schema_minor = fe_js_i64(&minor);
    p->torch_version = "";
    if (fe_js_is_text(&torch)) {
        i64 n;
        const char *text = fe_js_text(&torch, &n);
        p->torch_version = fe_show(r->a, text, n);
    }
    if (p->schema_major != SCHEMA_MAJOR)
        fe_js_throw(&major, EQF_E_UNSUPPORTED, "schema %lld.%lld: only schema %d is read",
                    (long long)p->schema_major, (long long)p->schema_minor, SCHEMA_MAJOR);
    if (p->schema_minor > SCHEMA_MINOR)
        fe_note(r, "schema %lld.%lld is newer than %d.%d", (long long)p->schema_major,
                (long long)p->schema_minor, SCHEMA_MAJOR, SCHEMA_MINOR);
    fe_js verifiers = fe_js_opt(top, "verifiers");
    p->form = FE_FORM_TRAINING; /* the dialect that promises least */
    for (i64 i = 0; verifiers.v && i < fe_js_items(&verifiers); i++) {
        fe_js one = fe_js_at(&verifiers, i);
        if (strcmp(fe_js_text(&one, NULL), "ATEN") == 0)
            p->form = FE_FORM_FUNCTIONAL;
    }
}

static bool read_bound(const fe_js *range, const char *field, i64 *out)
{
    fe_js x = fe_js_opt(range, field);
    if (!fe_js_is_int(&x))
        return false;
    *out = fe_js_i64(&x);
    return true;
}

static void read_ranges(fe_reader *r, const fe_js *top)
{
    fe_js ranges = fe_js_opt(top, "range_constraints"), one;
    if (!ranges.v)
        return;
    fe_range *all = NEW_N(r->a, fe_range, fe_js_members(&ranges));
    void *it = NULL;
    while (fe_js_next(&ranges, &it, &one)) {
        fe_range *x = &all[r->p->n_ranges++];
        i64 n = (i64)strlen(one.key);
        x->text = fe_show(r->a, one.key, n);
        x->expr = fe_expr_python(r->exprs, one.key, n);
        x->has_min = read_bound(&one, "min_val", &x->min);
        x->has_max = read_bound(&one, "max_val", &x->max);
        if (x->has_min && x->has_max && x->min > x->max)
            fe_js_throw(&one, EQF_E_PARSE, "the range is empty");
    }
    r->p->ranges = all;
}

static void read_guards(fe_reader *r, const fe_js *top)
{
    fe_js guards = fe_js_opt(top, "guards_code");
    if (!guards.v)
        return;
    i64 n = fe_js_items(&guards), bytes;
    fe_guard *all = NEW_N(r->a, fe_guard, n);
    fe_exprs_inputs(r->exprs, r->p->inputs, r->p->n_inputs);
    for (i64 i = 0; i < n; i++) {
        fe_js one = fe_js_at(&guards, i);
        const char *text = fe_js_text(&one, &bytes);
        all[i] = (fe_guard){.text = arena_strndup(r->a, text, bytes),
                            .expr = fe_expr_python(r->exprs, text, bytes)};
    }
    r->p->guards = all;
    r->p->n_guards = n;
}

static void read_program(fe_reader *r, arena *scratch, const char *member, i64 max)
{
    fe_program *p = r->p;
    i64 n;
    arena *passing = arena_child(scratch); /* the text is needed only until it is parsed */
    char *text = fe_member_text(passing, p->archive, member, max, &n);
    fe_doc *d = fe_json_read(scratch, p->file, member, text, n);
    arena_free(passing);
    fe_js top = fe_js_root(d);
    read_versions(r, &top);
    fe_js module = fe_js_get(&top, "graph_module"), graph = fe_js_get(&module, "graph");
    p->graph = fe_read_graph(r, &graph, "", 0);
    fe_read_signature(r, &module);
    read_ranges(r, &top);
    read_guards(r, &top);
}

static fe_program *read_archive(arena *a, fe_zip *z, const fe_options *options)
{
    fe_program *p = NEW(a, fe_program);
    fe_archive *ar = NEW(a, fe_archive);
    fe_reader r = {.a = a, .p = p, .exprs = fe_exprs_new(a), .words = intern_new(a)};
    *ar = (fe_archive){.zip = z, .a = a, .root = find_root(a, z)};
    p->ctx = z->ctx;
    p->file = z->file;
    p->archive = ar;
    p->model = choose_model(a, ar, options ? options->model : NULL);
    arena *scratch = arena_child(a);
    check_layout(&r, scratch, p->model);
    read_program(&r, scratch, arena_printf(scratch, "models/%s.json", p->model),
                 options ? options->max_json_bytes : 0);
    arena_free(scratch);
    fe_read_weights(&r, p->model);
    p->symbols = r.exprs->symbols.at;
    p->n_symbols = r.exprs->symbols.n;
    p->notes = r.notes.at;
    p->n_notes = r.notes.n;
    return p;
}

fe_program *fe_read_pt2(arena *a, const char *path, const fe_options *options)
{
    return read_archive(a, fe_zip_open(a, path), options);
}

fe_program *fe_read_pt2_bytes(arena *a, const char *file, const void *bytes, i64 n,
                              const fe_options *options)
{
    return read_archive(a, fe_zip_open_bytes(a, file, bytes, n), options);
}
