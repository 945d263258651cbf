/* plan.json: printed and read here, side by side.
 *
 * The file starts with a head of fixed length,
 *     {"format":"equiforge-plan","version":2,"digest":"<32 hexadecimal digits>",
 * whose digest covers every byte after it; so damage in the plan itself is found before it is
 * parsed, and another version is named even when the rest means something else. The reader trusts
 * nothing that it can check: indices, offsets and sizes are verified against one another. */
#include <jansson.h>
#include <stdio.h>

#include "runtime/runtime.h"

#define HEAD "{\"format\":\"equiforge-plan\",\"version\":"
#define DIGEST ",\"digest\":\""
#define MAX_RANK 64

static const char *const role_names[] = {
    [RT_INPUT] = "input", [RT_OUTPUT] = "output",   [RT_WEIGHT] = "weight",
    [RT_STATE] = "state", [RT_SCRATCH] = "scratch", [RT_SOURCE] = "source",
};

bool rt_name_ok(const char *name)
{
    static const char folder[] = RT_KERNELS_DIR "/";
    if (strcmp(name, RT_KERNELS_DIR) == 0)
        return false;
    if (strncmp(name, folder, sizeof folder - 1) == 0)
        name += sizeof folder - 1;
    size_t n = strlen(name);
    if (n == 0 || n > 200 || name[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_text(str *s, const char *key, const char *value)
{
    str_printf(s, "\"%s\":", key);
    str_add_json(s, value ? value : "");
    str_add_char(s, ',');
}

static void print_ports(str *s, const char *key, const rt_port *ports, i64 n)
{
    str_printf(s, "\"%s\":[", key);
    for (i64 i = 0; i < n; i++) {
        const rt_port *p = &ports[i];
        str_add(s, i ? ",\n {\"name\":" : "\n {\"name\":");
        str_add_json(s, p->name);
        str_printf(s, ",\"dtype\":\"%s\",\"shape\":[", dtype_name(p->type));
        for (i64 d = 0; d < p->rank; d++)
            str_printf(s, d ? ",%lld" : "%lld", (long long)p->shape[d]);
        str_printf(s, "],\"buffer\":%d", p->buffer);
        if (p->writes)
            str_printf(s, ",\"writes\":%lld", (long long)p->writes);
        str_add_char(s, '}');
    }
    str_add(s, "],\n");
}

static void print_buffers(str *s, const rt_plan *plan)
{
    str_add(s, "\"buffers\":[");
    for (i64 i = 0; i < plan->buffers.n; i++) {
        const rt_buffer *b = &plan->buffers.at[i];
        str_add(s, i ? ",\n {\"name\":" : "\n {\"name\":");
        str_add_json(s, b->name ? b->name : "");
        str_printf(s, ",\"dtype\":\"%s\",\"count\":%lld,\"bytes\":%lld,\"role\":\"%s\"",
                   dtype_name(b->type), (long long)b->count, (long long)b->bytes,
                   role_names[b->role]);
        if (b->role == RT_INPUT || b->role == RT_OUTPUT || b->role == RT_SOURCE)
            str_printf(s, ",\"port\":%lld}", (long long)b->port);
        else
            str_printf(s, ",\"offset\":%lld}", (long long)b->offset);
    }
    str_add(s, "],\n");
}

static void print_launches(str *s, const rt_plan *plan)
{
    str_add(s, "\"launches\":[");
    for (i64 i = 0; i < plan->launches.n; i++) {
        const rt_launch *l = &plan->launches.at[i];
        str_add(s, i ? ",\n {\"kernel\":" : "\n {\"kernel\":");
        str_add_json(s, l->symbol);
        str_add(s, ",\"origin\":");
        str_add_json(s, l->origin ? l->origin : "");
        str_printf(s, ",\"parts\":%lld,\"args\":[", (long long)l->parts);
        for (i64 k = 0; k < l->arg_count; k++)
            str_printf(s, k ? ",[%d,%lld]" : "[%d,%lld]", l->args[k].buffer,
                       (long long)l->args[k].offset);
        str_printf(s, "],\"copy_bytes\":%lld,\"flops\":%lld,\"bytes\":%lld}",
                   (long long)l->copy_bytes, (long long)l->flops, (long long)l->bytes);
    }
    str_add(s, "],\n");
}

void rt_plan_print(str *out, const rt_package *p)
{
    const rt_plan *plan = &p->plan;
    str body = str_new(out->a), *s = &body;
    str_add_char(s, '\n');
    print_text(s, "equiforge", p->version);
    print_text(s, "name", p->name);
    print_text(s, "backend", p->backend);
    print_text(s, "arch", p->arch);
    print_text(s, "compiler", p->compiler);
    str_add(s, "\n\"features\":[");
    for (i64 i = 0; i < p->features.n; i++) {
        str_add(s, i ? "," : "");
        str_add_json(s, p->features.at[i]);
    }
    str_add(s, "],\n");
    print_text(s, "source", p->source);
    print_text(s, "source_digest", p->source_digest);
    print_text(s, "parameters_digest", p->parameters_digest);
    print_text(s, "rebuild", p->rebuild);
    print_text(s, "library", p->library);
    str_printf(s, "\n\"kernels\":%lld,\"arena_bytes\":%lld,\"weights_bytes\":%lld,\n",
               (long long)p->kernel_count, (long long)plan->arena_bytes,
               (long long)plan->weights_bytes);
    str_add(s, "\"files\":[");
    for (i64 i = 0; i < p->files.n; i++) {
        const rt_file *f = &p->files.at[i];
        str_add(s, i ? ",\n {\"name\":" : "\n {\"name\":");
        str_add_json(s, f->name);
        str_printf(s, ",\"bytes\":%lld,\"digest\":\"%s\"}", (long long)f->bytes, f->digest);
    }
    str_add(s, "],\n");
    print_ports(s, "inputs", plan->inputs.at, plan->inputs.n);
    print_ports(s, "outputs", plan->outputs.at, plan->outputs.n);
    print_ports(s, "states", plan->states.at, plan->states.n);
    print_ports(s, "parameters", plan->parameters.at, plan->parameters.n);
    str_add(s, "\"guards\":[");
    for (i64 i = 0; i < plan->preconditions.n; i++) {
        str_add(s, i ? "," : "");
        str_add_json(s, plan->preconditions.at[i]);
    }
    str_add(s, "],\n");
    print_buffers(s, plan);
    print_launches(s, plan);
    str_printf(s, "\"seed\":%lld,\"stored_inputs\":%s,\"ranges\":[", (long long)p->seed,
               p->has_inputs ? "true" : "false");
    for (i64 i = 0; i < p->ranges.n; i++) {
        const rt_range *range = &p->ranges.at[i];
        str_printf(s, i ? ",[%lld,%lld" : "[%lld,%lld", (long long)range->low,
                   (long long)range->high);
        if (range->is_bounded)
            str_printf(s, ",%.17g,%.17g", range->from, range->to);
        str_add(s, "]");
    }
    str_add(s, "],\"tolerances\":[");
    for (i64 i = 0; i < p->tolerances.n; i++)
        str_printf(s, i ? ",%.17g" : "%.17g", p->tolerances.at[i]);
    str_add(s, "]}\n");
    char digest[33];
    digest_hex(str_text(s), s->n, digest);
    str_printf(out, HEAD "%d" DIGEST "%s\",", RT_PLAN_VERSION, digest);
    str_add_n(out, str_text(s), s->n);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    arena *a;
    eqf_ctx *ctx;
    const char *file;
} reader;

static _Noreturn void malformed(const reader *r, const char *place, const char *what)
{
    eqf_throw(r->ctx, EQF_E_PARSE, r->file, place, "malformed plan: %s", what);
}

static const json_t *field(const reader *r, const json_t *object, const char *key, json_type type)
{
    const json_t *v = json_object_get(object, key);
    if (!v || (json_typeof(v) != type))
        malformed(r, key, "absent, or of the wrong type");
    return v;
}

static i64 read_int(const reader *r, const json_t *object, const char *key, i64 low, i64 high)
{
    i64 v = (i64)json_integer_value(field(r, object, key, JSON_INTEGER));
    if (v < low || v > high)
        malformed(r, key, "out of range");
    return v;
}

/* As read_int; 0 when the field is absent. */
static i64 read_int_or_0(const reader *r, const json_t *object, const char *key, i64 low, i64 high)
{
    return json_object_get(object, key) ? read_int(r, object, key, low, high) : 0;
}

static const char *read_text(const reader *r, const json_t *object, const char *key)
{
    return arena_strdup(r->a, json_string_value(field(r, object, key, JSON_STRING)));
}

static i64 item_int(const reader *r, const json_t *array, size_t i, const char *place, i64 low,
                    i64 high)
{
    const json_t *v = json_array_get(array, i);
    if (!json_is_integer(v) || json_integer_value(v) < low || json_integer_value(v) > high)
        malformed(r, place, "out of range");
    return (i64)json_integer_value(v);
}

static void read_digest(const reader *r, const json_t *object, const char *key, char out[33])
{
    const char *s = json_string_value(field(r, object, key, JSON_STRING));
    if (strlen(s) != 32 || strspn(s, "0123456789abcdef") != 32)
        malformed(r, key, "no digest");
    memcpy(out, s, 33);
}

static bool listed(const rt_package *p, const char *name)
{
    for (i64 k = 0; k < p->files.n; k++)
        if (strcmp(p->files.at[k].name, name) == 0)
            return true;
    return false;
}

static void read_files(const reader *r, const json_t *root, rt_package *p)
{
    const json_t *files = field(r, root, "files", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *o = json_array_get(files, i);
        rt_file f = {.name = read_text(r, o, "name"),
                     .bytes = read_int(r, o, "bytes", 0, INT64_MAX)};
        read_digest(r, o, "digest", f.digest);
        if (!rt_name_ok(f.name) || strcmp(f.name, RT_PLAN_FILE) == 0)
            malformed(r, f.name, "not a name that a package may hold");
        if (listed(p, f.name))
            malformed(r, f.name, "listed twice");
        vec_push(r->a, &p->files, f);
    }
    if (p->library[0] && !listed(p, p->library))
        malformed(r, "library", "not among the files");
    if (p->plan.weights_bytes > 0 && !listed(p, RT_WEIGHTS_FILE))
        malformed(r, RT_WEIGHTS_FILE, "not among the files");
}

static void read_buffers(const reader *r, const json_t *root, rt_plan *plan)
{
    const json_t *list = field(r, root, "buffers", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        rt_buffer b = {.name = read_text(r, o, "name")};
        b.type = dtype_find(json_string_value(field(r, o, "dtype", JSON_STRING)));
        b.count = read_int(r, o, "count", 0, INT64_MAX / 16);
        b.bytes = read_int(r, o, "bytes", 0, INT64_MAX / 2);
        const char *role = json_string_value(field(r, o, "role", JSON_STRING));
        i64 k = 0;
        while (k < COUNT_OF(role_names) && strcmp(role_names[k], role) != 0)
            k++;
        if (k == COUNT_OF(role_names) || k == RT_SOURCE || b.type == DT_NONE)
            malformed(r, b.name, "unknown role or dtype");
        b.role = (u8)k;
        if (b.bytes < b.count * dtype_bytes(b.type))
            malformed(r, b.name, "fewer bytes than elements");
        if (b.role == RT_INPUT)
            b.port = read_int(r, o, "port", 0, plan->inputs.n - 1);
        else if (b.role == RT_OUTPUT)
            b.port = read_int(r, o, "port", 0, plan->outputs.n - 1);
        else {
            i64 room = b.role == RT_SCRATCH ? plan->arena_bytes : plan->weights_bytes;
            if (b.bytes > room)
                malformed(r, b.name, "larger than what holds it");
            b.offset = read_int(r, o, "offset", 0, room - b.bytes);
        }
        vec_push(r->a, &plan->buffers, b);
    }
}

/* The ports of one list; their buffers are checked by check_ports once buffers are known. */
static i64 read_ports(const reader *r, const json_t *root, const char *key, rt_port **out)
{
    const json_t *list = field(r, root, key, JSON_ARRAY);
    i64 n = (i64)json_array_size(list);
    *out = NEW_N(r->a, rt_port, n);
    for (i64 i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        rt_port *p = &(*out)[i];
        p->name = read_text(r, o, "name");
        p->type = dtype_find(json_string_value(field(r, o, "dtype", JSON_STRING)));
        const json_t *shape = field(r, o, "shape", JSON_ARRAY);
        p->rank = (i64)json_array_size(shape);
        if (p->type == DT_NONE || p->rank > MAX_RANK)
            malformed(r, p->name, "unknown dtype or rank");
        i64 *extents = NEW_N(r->a, i64, p->rank);
        for (i64 d = 0; d < p->rank; d++)
            extents[d] = item_int(r, shape, (size_t)d, p->name, 0, INT64_MAX);
        p->shape = extents;
        p->buffer = (i32)read_int(r, o, "buffer", -1, INT32_MAX);
        p->writes = read_int_or_0(r, o, "writes", 0, INT32_MAX);
    }
    return n;
}

/* Elements of a port; their bytes fit as well. */
static i64 count_of(const reader *r, const rt_port *p)
{
    i64 n = 1, bytes;
    for (i64 d = 0; d < p->rank; d++)
        if (!mul_i64(n, p->shape[d], &n))
            malformed(r, p->name, "too large");
    if (!mul_i64(n, dtype_bytes(p->type), &bytes))
        malformed(r, p->name, "too large");
    return n;
}

static void check_ports(const reader *r, const rt_plan *plan, const rt_port *ports, i64 n, u8 role)
{
    for (i64 i = 0; i < n; i++) {
        const rt_port *p = &ports[i];
        i64 count = count_of(r, p);
        if (p->buffer < 0) {
            if (count != 0)
                malformed(r, p->name, "has elements and no buffer");
            continue;
        }
        if (p->buffer >= plan->buffers.n)
            malformed(r, p->name, "no such buffer");
        const rt_buffer *b = &plan->buffers.at[p->buffer];
        if (b->role != role || b->type != p->type || b->count != count ||
            ((role == RT_INPUT || role == RT_OUTPUT) && b->port != i))
            malformed(r, p->name, "disagrees with its buffer");
        if (p->writes < 0 || p->writes > (role == RT_OUTPUT ? plan->inputs.n + plan->states.n : 0))
            malformed(r, p->name, "writes nothing that exists");
    }
}

/* An output becomes an input or a state of the same type and size. */
static void check_writes(const reader *r, const rt_plan *plan)
{
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *o = &plan->outputs.at[i];
        if (o->writes == 0)
            continue;
        const rt_port *t = o->writes <= plan->inputs.n
                               ? &plan->inputs.at[o->writes - 1]
                               : &plan->states.at[o->writes - 1 - plan->inputs.n];
        if (t->type != o->type || count_of(r, t) != count_of(r, o))
            malformed(r, o->name, "is not like what it writes");
    }
}

static bool identifier(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n < 100 && !(s[0] >= '0' && s[0] <= '9') &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

static void read_launches(const reader *r, const json_t *root, rt_plan *plan)
{
    const json_t *list = field(r, root, "launches", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        rt_launch l = {.symbol = read_text(r, o, "kernel"), .origin = read_text(r, o, "origin")};
        l.parts = read_int(r, o, "parts", 0, INT64_MAX);
        l.copy_bytes = read_int(r, o, "copy_bytes", 0, INT64_MAX);
        l.flops = read_int(r, o, "flops", 0, INT64_MAX);
        l.bytes = read_int(r, o, "bytes", 0, INT64_MAX);
        const json_t *args = field(r, o, "args", JSON_ARRAY);
        l.arg_count = (i64)json_array_size(args);
        rt_arg *at = NEW_N(r->a, rt_arg, l.arg_count);
        i64 room = INT64_MAX;
        for (i64 k = 0; k < l.arg_count; k++) {
            const json_t *pair = json_array_get(args, (size_t)k);
            if (json_array_size(pair) != 2)
                malformed(r, l.symbol, "an argument is a buffer and an offset");
            at[k].buffer = (i32)item_int(r, pair, 0, l.symbol, 0, plan->buffers.n - 1);
            i64 bytes = plan->buffers.at[at[k].buffer].bytes;
            at[k].offset = item_int(r, pair, 1, l.symbol, 0, bytes);
            room = MIN(room, bytes - at[k].offset);
        }
        l.args = at;
        if (l.symbol[0] ? !identifier(l.symbol) : l.arg_count != 2 || l.copy_bytes > room)
            malformed(r, l.symbol, "no kernel, or a copy past the end of a buffer");
        vec_push(r->a, &plan->launches, l);
    }
}

static void read_check(const reader *r, const json_t *root, rt_package *p)
{
    p->seed = read_int(r, root, "seed", 0, INT64_MAX);
    p->has_inputs = json_is_true(json_object_get(root, "stored_inputs"));
    const json_t *ranges = field(r, root, "ranges", JSON_ARRAY);
    const json_t *tolerances = field(r, root, "tolerances", JSON_ARRAY);
    if ((i64)json_array_size(ranges) != p->plan.inputs.n ||
        (i64)json_array_size(tolerances) != p->plan.outputs.n)
        malformed(r, "ranges", "one an input, and one tolerance an output");
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *pair = json_array_get(ranges, i);
        rt_range v = {.low = item_int(r, pair, 0, "ranges", INT64_MIN, INT64_MAX),
                      .high = item_int(r, pair, 1, "ranges", INT64_MIN, INT64_MAX),
                      .is_bounded = json_is_number(json_array_get(pair, 3)),
                      .from = json_number_value(json_array_get(pair, 2)),
                      .to = json_number_value(json_array_get(pair, 3))};
        if (v.low > v.high || v.from > v.to)
            malformed(r, "ranges", "empty");
        vec_push(r->a, &p->ranges, v);
    }
    for (size_t i = 0; i < json_array_size(tolerances); i++)
        vec_push(r->a, &p->tolerances, json_number_value(json_array_get(tolerances, i)));
}

static void decref(void *p)
{
    json_decref(p);
}

/* The body after the head; the head's version and digest are checked. */
static const char *check_head(const reader *r, const char *text, i64 n)
{
    size_t head = strlen(HEAD);
    if (n < (i64)head || memcmp(text, HEAD, head) != 0)
        eqf_throw(r->ctx, EQF_E_NOT_OURS, r->file, NULL, "not the plan of a package");
    int version = 0, used = 0;
    if (sscanf(text + head, "%9d%n", &version, &used) != 1)
        eqf_throw(r->ctx, EQF_E_NOT_OURS, r->file, NULL, "not the plan of a package");
    if (version != RT_PLAN_VERSION)
        eqf_throw(r->ctx, EQF_E_UNSUPPORTED, r->file, NULL,
                  "package format %d; this is EquiForge %s, which reads format %d", version,
                  EQF_VERSION, RT_PLAN_VERSION);
    const char *at = text + head + used;
    size_t length = strlen(DIGEST);
    char digest[33];
    if (text + n - at < (i64)length + 34 || memcmp(at, DIGEST, length) != 0)
        eqf_throw(r->ctx, EQF_E_DATA, r->file, NULL, "damaged: the file is cut short");
    const char *body = at + length + 34;
    digest_hex(body, text + n - body, digest);
    if (memcmp(at + length, digest, 32) != 0)
        eqf_throw(r->ctx, EQF_E_DATA, r->file, NULL,
                  "damaged: its digest is not the one it was written with");
    return body;
}

rt_package *rt_plan_read(arena *a, const char *file, const char *text, i64 n)
{
    reader reading = {a, arena_ctx(a), file}, *r = &reading;
    check_head(r, text, n);
    arena *scratch = arena_child(a);
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        eqf_throw(r->ctx, EQF_E_PARSE, file, NULL, "line %d: %s", error.line, error.text);
    arena_defer(scratch, decref, root);
    rt_package *p = NEW(a, rt_package);
    rt_plan *plan = &p->plan;
    p->version = read_text(r, root, "equiforge");
    p->name = read_text(r, root, "name");
    p->backend = read_text(r, root, "backend");
    p->arch = read_text(r, root, "arch");
    p->compiler = read_text(r, root, "compiler");
    const json_t *features = field(r, root, "features", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(features); i++) {
        const char *f = json_string_value(json_array_get(features, i));
        vec_push(a, &p->features, arena_strdup(a, f ? f : ""));
    }
    p->source = read_text(r, root, "source");
    read_digest(r, root, "source_digest", p->source_digest);
    read_digest(r, root, "parameters_digest", p->parameters_digest);
    p->rebuild = read_text(r, root, "rebuild");
    p->library = read_text(r, root, "library");
    p->kernel_count = read_int(r, root, "kernels", 0, INT32_MAX);
    plan->arena_bytes = read_int(r, root, "arena_bytes", 0, INT64_MAX / 2);
    plan->weights_bytes = read_int(r, root, "weights_bytes", 0, INT64_MAX / 2);
    read_files(r, root, p);
    plan->inputs.n = plan->inputs.cap = read_ports(r, root, "inputs", &plan->inputs.at);
    plan->outputs.n = plan->outputs.cap = read_ports(r, root, "outputs", &plan->outputs.at);
    plan->states.n = plan->states.cap = read_ports(r, root, "states", &plan->states.at);
    plan->parameters.n = plan->parameters.cap =
        read_ports(r, root, "parameters", &plan->parameters.at);
    read_buffers(r, root, plan);
    check_ports(r, plan, plan->inputs.at, plan->inputs.n, RT_INPUT);
    check_ports(r, plan, plan->outputs.at, plan->outputs.n, RT_OUTPUT);
    check_ports(r, plan, plan->states.at, plan->states.n, RT_STATE);
    check_ports(r, plan, plan->parameters.at, plan->parameters.n, RT_WEIGHT);
    check_writes(r, plan);
    const json_t *guards = field(r, root, "guards", JSON_ARRAY);
    for (size_t i = 0; i < json_array_size(guards); i++) {
        const char *g = json_string_value(json_array_get(guards, i));
        vec_push(a, &plan->preconditions, arena_strdup(a, g ? g : ""));
    }
    read_launches(r, root, plan);
    read_check(r, root, p);
    arena_free(scratch);
    return p;
}
