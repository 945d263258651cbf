/* pt2_weights: which bytes of the archive a parameter, buffer or constant is.
 *
 * A config maps qualified names to records and to strided views of them. Records hold whole
 * storages, so several names may share one (ties, slices), and a view may start anywhere in it.
 * Everything is checked from sizes alone when the program is read; bytes are fetched, and their CRC
 * verified, only by fe_weight_read. */
#include "frontend/reader.h"

/* A view may repeat its record (stride 0), but not without end. */
#define MAX_REPEATED ((i64)1 << 30)

typedef struct config {
    fe_doc *doc; /* NULL: the archive has none */
    const char *folder;
    fe_js root, entries;
} config;

static void open_config(fe_reader *r, arena *scratch, const char *folder, const char *model,
                        const char *kind, config *c)
{
    const fe_archive *ar = r->p->archive;
    const char *name = arena_printf(scratch, "data/%s/%s_%s_config.json", folder, model, kind);
    i64 n;
    char *text = fe_member_text(scratch, ar, name, 0, &n);
    *c = (config){.folder = arena_printf(scratch, "data/%s/", folder)};
    if (!text)
        return;
    c->doc = fe_json_read(scratch, r->p->file, name, text, n);
    c->root = fe_js_root(c->doc);
    c->entries = fe_js_get(&c->root, "config");
    fe_js_members(&c->entries);
}

static i64 *read_ints(fe_reader *r, const fe_js *list, const char *what, i64 *n)
{
    *n = fe_js_items(list);
    if (*n > 64)
        fe_js_throw(list, EQF_E_LIMIT, "rank %lld is more than 64", (long long)*n);
    i64 *out = NEW_N(r->a, i64, *n);
    for (i64 i = 0; i < *n; i++) {
        fe_js item = fe_js_at(list, i), one = fe_js_only(&item);
        if (strcmp(one.key, "as_int") != 0)
            fe_js_throw(&one, EQF_E_PARSE, "a %s of a weight must be a number", what);
        out[i] = fe_js_i64(&one);
        if (out[i] < 0)
            fe_js_throw(&one, EQF_E_PARSE, "the %s %lld is negative", what, (long long)out[i]);
    }
    return out;
}

/* count, bytes; last: index of the last element in the storage, -1 when there is none. */
static void measure(const fe_js *meta, fe_weight *w, i64 *last)
{
    i64 item = fe_dtype_bytes(w->dtype), reach;
    bool fits = true;
    w->count = 1;
    *last = w->offset;
    for (i64 i = 0; i < w->rank; i++)
        w->count = w->sizes[i] == 0 ? 0 : w->count;
    if (w->count == 0) {
        *last = -1;
        return;
    }
    for (i64 i = 0; i < w->rank && fits; i++)
        fits = mul_i64(w->count, w->sizes[i], &w->count) &&
               mul_i64(w->sizes[i] - 1, w->strides[i], &reach) && add_i64(*last, reach, last);
    if (!fits || !mul_i64(w->count, MAX(item, 1), &w->bytes))
        fe_js_throw(meta, EQF_E_PARSE, "the weight has more than 2^63 bytes");
    w->bytes = item == 0 ? 0 : w->bytes;
}

/* One storage a record; records without data are never shared. */
static u32 storage_of(fe_archive *ar, fe_entry *e, bool is_absent)
{
    if (e->storage == 0 || is_absent) {
        vec_push(ar->a, &ar->storages, (fe_storage){.entry = e});
        if (is_absent)
            return (u32)(ar->storages.n - 1);
        e->storage = ar->storages.n;
    }
    u32 id = (u32)(e->storage - 1);
    ar->storages.at[id].uses++;
    return id;
}

static void check_view(fe_reader *r, const fe_js *meta, const fe_entry *e, i64 last, fe_weight *w)
{
    i64 item = fe_dtype_bytes(w->dtype);
    if (e->size == 0 && w->count > 0) {
        w->is_absent = true;
        fe_note(r, "%s: exported without data", w->fqn);
        return;
    }
    if (item == 0)
        return; /* an unknown dtype: the value carries the problem */
    if (e->size % item != 0)
        fe_js_throw(meta, EQF_E_DATA, "%s has %lld bytes, which is no multiple of %lld", e->name,
                    (long long)e->size, (long long)item);
    if (w->bytes > e->size && w->bytes > MAX_REPEATED)
        fe_js_throw(meta, EQF_E_LIMIT, "a view of %lld bytes repeats a record of %lld",
                    (long long)w->bytes, (long long)e->size);
    if (last >= e->size / item)
        fe_js_throw(meta, EQF_E_DATA, "the view reaches element %lld, but %s has %lld",
                    (long long)last, e->name, (long long)(e->size / item));
}

/* The graph's own type of the value must be the weight's. */
static void check_value(const fe_js *meta, const fe_value *v, const fe_weight *w)
{
    bool same = v->dtype == w->dtype && v->rank == w->rank;
    for (i64 i = 0; same && i < w->rank; i++)
        same = v->sizes[i]->op != FE_EXPR_INT || v->sizes[i]->i == w->sizes[i];
    if (!same)
        fe_js_throw(meta, EQF_E_PARSE, "dtype or shape differ from those of \"%s\" in the graph",
                    v->name);
}

static void read_weight(fe_reader *r, const config *c, const fe_js *entry, const fe_value *v,
                        fe_weight *w)
{
    fe_archive *ar = r->p->archive;
    fe_js pickle = fe_js_opt(entry, "use_pickle"), path = fe_js_get(entry, "path_name");
    if (pickle.v && fe_js_bool(&pickle))
        fe_js_throw(
            entry, EQF_E_UNSUPPORTED,
            "the weight is a tensor subclass and stored as a pickle, which is never opened");
    const char *name = fe_js_name(&path);
    if (strchr(name, '/') || strchr(name, '\\'))
        fe_js_throw(&path, EQF_E_PARSE, "\"%s\" is no plain member name",
                    fe_show(c->doc->a, name, (i64)strlen(name)));
    fe_js meta = fe_js_get(entry, "tensor_meta");
    fe_js type = fe_js_get(&meta, "dtype"), sizes = fe_js_get(&meta, "sizes");
    fe_js strides = fe_js_get(&meta, "strides"), offset = fe_js_get(&meta, "storage_offset");
    fe_js only = fe_js_only(&offset);
    i64 code = fe_js_i64(&type), n_strides, last;
    w->dtype = code > 0 && code <= UINT32_MAX ? (u32)code : 0;
    w->sizes = read_ints(r, &sizes, "size", &w->rank);
    w->strides = read_ints(r, &strides, "stride", &n_strides);
    w->offset = fe_js_i64(&only);
    if (n_strides != w->rank)
        fe_js_throw(&strides, EQF_E_PARSE, "%lld strides for rank %lld", (long long)n_strides,
                    (long long)w->rank);
    if (w->offset < 0)
        fe_js_throw(&offset, EQF_E_PARSE, "the storage offset %lld is negative",
                    (long long)w->offset);
    measure(&meta, w, &last);
    fe_entry *e =
        fe_zip_find(ar->zip, arena_printf(c->doc->a, "%s%s%s", ar->root, c->folder, name));
    if (!e)
        fe_js_throw(&path, EQF_E_DATA, "its data, %s%s, is not in the archive", c->folder, name);
    fe_zip_check(ar->zip, e);
    w->storage_bytes = e->size;
    check_view(r, &meta, e, last, w);
    check_value(&meta, v, w);
    w->storage = storage_of(ar, e, w->is_absent);
}

/* The config that has `fqn`: its own kind's first. */
static bool find_entry(const config c[2], int first, const char *fqn, const config **in, fe_js *out)
{
    for (int i = 0; i < 2; i++) {
        *in = &c[first ^ i];
        if (!(*in)->doc)
            continue;
        *out = fe_js_opt(&(*in)->entries, fqn);
        if (out->v)
            return true;
    }
    return false;
}

void fe_read_weights(fe_reader *r, const char *model)
{
    fe_program *p = r->p;
    arena *scratch = arena_child(r->a);
    config c[2];
    open_config(r, scratch, "weights", model, "weights", &c[0]);
    open_config(r, scratch, "constants", model, "constants", &c[1]);
    i64 n = 0;
    for (i64 i = 0; i < p->n_inputs; i++)
        n += p->inputs[i].fqn != NULL;
    fe_weight *weights = NEW_N(r->a, fe_weight, n);
    p->weights = weights;
    for (i64 i = 0; i < p->n_inputs; i++) {
        fe_input *in = &p->inputs[i];
        if (!in->fqn)
            continue;
        bool in_constants =
            in->kind == FE_IN_TENSOR || (in->kind == FE_IN_BUFFER && !in->is_persistent);
        fe_weight *w = &weights[p->n_weights++];
        const config *found;
        fe_js entry;
        w->fqn = in->fqn;
        if (!find_entry(c, in_constants, in->fqn, &found, &entry))
            eqf_throw(p->ctx, EQF_E_DATA, p->file, in->fqn,
                      "the archive has no data for this %s: it is in no config",
                      in->kind == FE_IN_PARAMETER ? "parameter"
                      : in->kind == FE_IN_BUFFER  ? "buffer"
                                                  : "constant");
        found->doc->node = in->fqn;
        read_weight(r, found, &entry, &p->graph->values[in->arg.value.i], w);
        found->doc->node = NULL;
        in->weight = w;
    }
    arena_free(scratch);
}

/* ---- reading bytes ------------------------------------------------------------------------- */

/* Do its elements lie in row-major order without gaps? */
static bool is_dense(const fe_weight *w)
{
    i64 stride = 1;
    for (i64 i = w->rank; i-- > 0;) {
        if (w->sizes[i] != 1 && w->strides[i] != stride)
            return false;
        stride *= w->sizes[i];
    }
    return true;
}

static bool is_whole(const fe_weight *w)
{
    return is_dense(w) && w->offset == 0 && w->bytes == w->storage_bytes;
}

/* Row-major copy of the view; count > 0. Runs of stride 1 in the last dim are copied at once. */
static void gather(const fe_weight *w, i64 item, const u8 *from, u8 *to)
{
    i64 at[64] = {0}, source = w->offset;
    i64 rank = w->rank, run = 1;
    if (rank > 0 && (w->strides[rank - 1] == 1 || w->sizes[rank - 1] == 1))
        run = w->sizes[--rank];
    for (i64 done = 0; done < w->count; done += run) {
        memcpy(to + done * item, from + source * item, (size_t)(run * item));
        for (i64 d = rank; d-- > 0;) {
            source += w->strides[d];
            if (++at[d] < w->sizes[d])
                break;
            source -= w->sizes[d] * w->strides[d];
            at[d] = 0;
        }
    }
}

void fe_weight_read(fe_program *p, const fe_weight *w, void *out)
{
    fe_archive *ar = p->archive;
    fe_storage *s = &ar->storages.at[w->storage];
    i64 item = fe_dtype_bytes(w->dtype);
    if (w->is_absent)
        eqf_throw(p->ctx, EQF_E_DATA, p->file, w->fqn,
                  "exported without data (from fake or meta tensors)");
    if (item == 0)
        eqf_throw(p->ctx, EQF_E_UNSUPPORTED, p->file, w->fqn, "dtype code %u is unknown", w->dtype);
    if (w->count == 0)
        return;
    if (is_whole(w) && s->uses == 1) {
        fe_zip_read(ar->zip, s->entry, EQF_E_DATA, w->fqn, out);
        return;
    }
    arena *own = s->uses > 1 ? NULL : arena_child(ar->a);
    u8 *bytes = s->bytes;
    if (!bytes) {
        bytes = arena_alloc(own ? own : ar->a, s->entry->size);
        fe_zip_read(ar->zip, s->entry, EQF_E_DATA, w->fqn, bytes);
        if (!own)
            s->bytes = bytes;
    }
    gather(w, item, bytes, out);
    if (own)
        arena_free(own);
}

const void *fe_weight_map(fe_program *p, const fe_weight *w)
{
    fe_archive *ar = p->archive;
    fe_storage *s = &ar->storages.at[w->storage];
    i64 item = fe_dtype_bytes(w->dtype);
    if (w->is_absent || item == 0 || w->count == 0 || !is_dense(w))
        return NULL;
    const u8 *bytes = fe_zip_content(ar->zip, s->entry);
    if (!bytes || (uintptr_t)bytes % (uintptr_t)item != 0)
        return NULL;
    if (!s->is_good)
        fe_zip_read(ar->zip, s->entry, EQF_E_DATA, w->fqn, NULL);
    s->is_good = true;
    return bytes + w->offset * item;
}
