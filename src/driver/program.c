/* Reading a program and its data. Symbolic sizes take their values from --dim, then from the shapes
 * of --inputs, then from the exporter's example; the last is good enough to look at a program, and
 * eqf_optimize and eqf_search refuse it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"

typedef VEC(fe_dim_value) dim_values;

bool program_is_text(const eqf_program *p)
{
    return strcmp(p->report.form, "text") == 0;
}

static const i64 *shape_of(arena *a, const ir_port *port)
{
    i64 *shape = NEW_N(a, i64, port->rank);
    for (i64 d = 0; d < port->rank; d++)
        shape[d] = port->dims[d].extent;
    return shape;
}

const i64 *program_shape(const eqf_program *p, const ir_port *port)
{
    return shape_of(p->a, port);
}

/* ---- symbolic sizes -----------------------------------------------------------------------------
 */

static bool has_dim(const dim_values *dims, const char *name)
{
    for (i64 i = 0; i < dims->n; i++)
        if (strcmp(dims->at[i].name, name) == 0)
            return true;
    return false;
}

static void parse_dims(arena *a, const eqf_read_options *o, dim_values *dims)
{
    for (size_t i = 0; i < o->dim_count; i++) {
        const char *text = o->dims[i], *equals = strchr(text, '=');
        char *end = NULL;
        errno = 0;
        long long value = equals ? strtoll(equals + 1, &end, 10) : 0;
        if (!equals || equals == text || equals[1] < '0' || equals[1] > '9' || *end)
            eqf_throw(arena_ctx(a), EQF_E_ARGUMENT, NULL, text,
                      "not a dim and its value, as in B=8");
        if (errno == ERANGE)
            eqf_throw(arena_ctx(a), EQF_E_ARGUMENT, NULL, text, "the value is larger than 2^63 - 1");
        const char *name = arena_strndup(a, text, equals - text);
        if (has_dim(dims, name))
            eqf_throw(arena_ctx(a), EQF_E_ARGUMENT, NULL, text, "the dim %s is given twice", name);
        vec_push(a, dims, (fe_dim_value){name, value});
    }
}

void program_check_sizes(const eqf_program *p)
{
    const fe_report *r = &p->report;
    for (i64 i = 0; i < r->n_sizes; i++)
        if (r->sizes[i].is_hint && !r->sizes[i].depends_on_data)
            eqf_throw(p->ctx, EQF_E_ARGUMENT, p->path, r->sizes[i].name,
                      "this symbolic dim has no value: give it one (--dim %s=%lld)",
                      r->sizes[i].name, (long long)r->sizes[i].value);
}

static const tensor *find_tensor(const tensor *set, i64 n, const char *name)
{
    for (i64 i = 0; i < n; i++)
        if (strcmp(set[i].name, name) == 0)
            return &set[i];
    return NULL;
}

/* Is `extent` the size `name`, or one number times or plus it? Then the size for which it is
 * `value` is stored, -1 where no size is. */
static bool solve(const char *extent, const char *name, i64 value, i64 *out)
{
    static const char *const operators[] = {"*", " + "};
    *out = value;
    if (strcmp(extent, name) == 0)
        return true;
    for (i64 i = 0; i < COUNT_OF(operators); i++) {
        const char *at = strstr(extent, operators[i]);
        const char *right = at ? at + strlen(operators[i]) : NULL;
        size_t left = at ? (size_t)(at - extent) : 0;
        bool name_first = at && strlen(name) == left && strncmp(extent, name, left) == 0;
        if (!at || !(name_first || strcmp(right, name) == 0))
            continue;
        char *end;
        i64 number = strtoll(name_first ? right : extent, &end, 10);
        if (name_first ? *end != 0 : end != at)
            continue;
        *out = -1;
        if (i == 0 && number > 0 && value % number == 0)
            *out = value / number;
        if (i == 1 && (__builtin_sub_overflow(value, number, out) || *out < 0))
            *out = -1;
        return true;
    }
    return false;
}

/* Sizes that the shapes of the given inputs fix and `dims` does not. */
static void dims_from_inputs(const eqf_program *p, dim_values *dims)
{
    for (i64 i = 0; i < p->ir->inputs.n; i++) {
        const ir_port *port = &p->ir->inputs.at[i];
        const tensor *t =
            find_tensor(p->inputs, p->input_count, intern_text(p->ir->names, port->name));
        for (i64 d = 0; t && port->symbols && t->rank == port->rank && d < port->rank; d++) {
            i64 value;
            for (i64 k = 0; k < p->report.n_sizes && port->symbols[d]; k++) {
                const fe_size *size = &p->report.sizes[k];
                if (size->is_hint && !has_dim(dims, size->name) &&
                    solve(port->symbols[d], size->name, t->shape[d], &value) && value >= 0)
                    vec_push(p->a, dims, (fe_dim_value){arena_strdup(p->a, size->name), value});
            }
        }
    }
}

/* ---- the summary --------------------------------------------------------------------------------
 */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does an extent, as the reader spells it, depend on a size without a value? */
static bool depends_on_open(const eqf_program *p, const char *extent)
{
    for (i64 i = 0; i < p->report.n_sizes; i++) {
        const char *name = p->report.sizes[i].name;
        size_t n = strlen(name);
        if (!p->report.sizes[i].is_hint)
            continue;
        for (const char *at = extent; (at = strstr(at, name)); at++)
            if ((at == extent || !is_letter(at[-1])) && !is_letter(at[n]))
                return true;
    }
    return false;
}

static eqf_tensor show_port(const eqf_program *p, const ir_port *port)
{
    tensor t = {.name = intern_text(p->ir->names, port->name),
                .type = (dtype)port->dtype,
                .rank = port->rank,
                .shape = shape_of(p->a, port)};
    eqf_about(p->ctx, p->path, t.name);
    eqf_tensor shown = driver_show(p->ctx, &t);
    eqf_about(p->ctx, p->path, NULL);
    i64 *shape = NEW_N(p->a, i64, port->rank);
    const char **symbols = NEW_N(p->a, const char *, port->rank);
    bool any = false;
    for (i64 d = 0; d < port->rank; d++) {
        bool open = port->symbols && port->symbols[d] && depends_on_open(p, port->symbols[d]);
        shape[d] = open ? -1 : port->dims[d].extent;
        symbols[d] = open ? port->symbols[d] : NULL;
        any = any || open;
    }
    shown.shape = shape;
    shown.symbols = any ? symbols : NULL;
    return shown;
}

static void summarize_ports(eqf_program *p)
{
    const ir_program *ir = p->ir;
    eqf_tensor *inputs = NEW_N(p->a, eqf_tensor, ir->inputs.n);
    eqf_tensor *parameters = NEW_N(p->a, eqf_tensor, ir->inputs.n);
    eqf_tensor *outputs = NEW_N(p->a, eqf_tensor, ir->outputs.n);
    eqf_program_summary *s = &p->summary;
    for (i64 i = 0; i < ir->inputs.n; i++)
        if (ir->inputs.at[i].role == IR_INPUT)
            inputs[s->input_count++] = show_port(p, &ir->inputs.at[i]);
        else
            parameters[s->parameter_count++] = show_port(p, &ir->inputs.at[i]);
    for (i64 i = 0; i < ir->outputs.n; i++)
        outputs[s->output_count++] = show_port(p, &ir->outputs.at[i]);
    if (program_is_text(p) && !p->weights_path)
        s->seeded_parameters = s->parameter_count;
    s->inputs = inputs;
    s->parameters = parameters;
    s->outputs = outputs;
}

/* The boundaries of a text program, which no exporter named: terms without a meaning, and those
 * that only a plain kernel runs. */
static void find_boundaries(eqf_program *p)
{
    const ir_program *ir = p->ir;
    VEC(fe_boundary) found = {0};
    for (i64 i = 1; i < ir->nodes.n; i++) {
        const ir_node *n = &ir->nodes.at[i];
        bool opaque = ir_row((ir_op)n->op)->class_ == IR_OPAQUE;
        bool plain =
            ir_row((ir_op)n->op)->class_ == IR_PLAIN || ir_row((ir_op)n->op)->class_ == IR_GATHER;
        fe_boundary b = {.node = intern_text(ir->names, n->origin), .source = "", .runs = plain};
        b.op = opaque ? intern_text(ir->names, n->attr.name) : ir_row((ir_op)n->op)->name;
        b.reason = opaque ? "has no meaning here" : "indices are data";
        if (opaque || plain)
            vec_push(p->a, &found, b);
    }
    p->report.boundaries = found.at;
    p->report.n_boundaries = found.n;
}

static void summarize(eqf_program *p)
{
    eqf_program_summary *s = &p->summary;
    const fe_report *r = &p->report;
    s->name = intern_text(p->ir->names, p->ir->name);
    s->file = p->path;
    s->schema = program_is_text(p) ? ""
                                   : arena_printf(p->a, "%lld.%lld", (long long)r->schema_major,
                                                  (long long)r->schema_minor);
    s->torch = r->torch_version ? r->torch_version : "";
    ir_count count = ir_count_program(p->ir);
    eqf_op_count *ops = NEW_N(p->a, eqf_op_count, IR_OP_COUNT);
    for (int op = 1; op < IR_OP_COUNT; op++)
        if (count.op_count[op] > 0 && ir_row((ir_op)op)->class_ != IR_LEAF)
            ops[s->op_count++] = (eqf_op_count){ir_row((ir_op)op)->name, count.op_count[op]};
    s->ops = ops;
    summarize_ports(p);
    eqf_boundary *b = NEW_N(p->a, eqf_boundary, r->n_boundaries);
    for (i64 i = 0; i < r->n_boundaries; i++)
        b[i] = (eqf_boundary){r->boundaries[i].node, r->boundaries[i].op, r->boundaries[i].reason,
                              r->boundaries[i].runs};
    s->boundaries = b;
    s->boundary_count = (size_t)r->n_boundaries;
    if (!add_i64(count.flops, count.opaque_flops, &s->flops))
        s->flops = INT64_MAX;
    s->bytes = count.bytes;
    s->notes = r->notes;
    s->note_count = (size_t)r->n_notes;
    s->coverage = s->flops > 0 ? (f64)count.flops / (f64)s->flops : 1;
}

/* ---- what is given ------------------------------------------------------------------------------
 */

static void print_shape(str *out, const eqf_tensor *t)
{
    for (size_t d = 0; d < t->rank; d++)
        if (t->shape[d] < 0)
            str_printf(out, "%s%s", d ? ", " : "", t->symbols[d]);
        else
            str_printf(out, d ? ", %lld" : "%lld", (long long)t->shape[d]);
}

/* Can an extent with a size that is open be `value`? */
static bool may_be(const eqf_program *p, const char *extent, i64 value)
{
    i64 size;
    for (i64 k = 0; k < p->report.n_sizes; k++)
        if (p->report.sizes[k].is_hint && solve(extent, p->report.sizes[k].name, value, &size))
            return size >= 0;
    return true;
}

/* The tensor of this name in the file, of the type and shape wanted. */
static const tensor *take_given(const eqf_program *p, const char *file, const tensor *given, i64 n,
                                const eqf_tensor *want)
{
    const tensor *found = find_tensor(given, n, want->name);
    if (!found)
        eqf_throw(p->ctx, EQF_E_DATA, file, want->name, "is not in the file");
    eqf_tensor got = driver_show(p->ctx, found);
    bool same = got.dtype == want->dtype && got.rank == want->rank;
    for (size_t d = 0; d < got.rank && same; d++)
        same = want->shape[d] < 0 ? may_be(p, want->symbols[d], got.shape[d])
                                  : got.shape[d] == want->shape[d];
    if (same)
        return found;
    str has = str_new(p->a), wants = str_new(p->a);
    print_shape(&has, &got);
    print_shape(&wants, want);
    eqf_throw(p->ctx, EQF_E_TYPE, file, want->name, "is %s [%s], the program wants %s [%s]",
              eqf_dtype_name(got.dtype), str_text(&has), eqf_dtype_name(want->dtype),
              str_text(&wants));
}

static void check_given(const eqf_program *p)
{
    const eqf_program_summary *s = &p->summary;
    for (size_t i = 0; i < s->input_count && p->inputs; i++)
        take_given(p, p->inputs_path, p->inputs, p->input_count, &s->inputs[i]);
    for (size_t i = 0; i < s->parameter_count && p->weights; i++)
        take_given(p, p->weights_path, p->weights, p->weight_count, &s->parameters[i]);
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static void read_program(eqf_program *p, const eqf_read_options *o)
{
    f64 start = rt_now();
    const char *const paths[] = {p->path, p->inputs_path, p->weights_path};
    for (i64 i = 0; i < COUNT_OF(paths); i++)
        if (paths[i] && stat(paths[i], &p->seen[i]) != 0)
            p->seen[i] = (struct stat){0}; /* whoever opens it says why it cannot be */
    dim_values dims = {0};
    parse_dims(p->a, o, &dims);
    fe_read_options options = {.model = o->model, .use_hints = true};
    options.dims = dims.at;
    options.n_dims = dims.n;
    p->ir = fe_read(p->a, p->path, &options, &p->report);
    i64 given = dims.n;
    if (o->inputs) {
        p->inputs = safetensors_read(p->a, p->inputs_path, &p->input_count);
        dims_from_inputs(p, &dims);
    }
    if (dims.n > given) {
        options.dims = dims.at;
        options.n_dims = dims.n;
        p->ir = fe_read(p->a, p->path, &options, &p->report);
    }
    if (o->weights && !program_is_text(p))
        eqf_throw(p->ctx, EQF_E_ARGUMENT, p->path, NULL,
                  "an archive has its own weights: a weights file is for text programs");
    if (o->weights)
        p->weights = safetensors_read(p->a, p->weights_path, &p->weight_count);
    ir_verify(p->ir, "read");
    if (program_is_text(p))
        find_boundaries(p);
    str text = str_new(p->a);
    ir_print(&text, p->ir);
    p->text = str_text(&text);
    digest_hex(p->text, text.n, p->digest);
    summarize(p);
    check_given(p);
    p->read_s = rt_now() - start;
}

eqf_status eqf_program_read(eqf_ctx *ctx, const char *path, const eqf_read_options *options,
                            eqf_program **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    eqf_read_options chosen = {0};
    if (options)
        memcpy(&chosen, options, sizeof chosen);
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, path, NULL);
        eqf_program *p = NEW(a, eqf_program);
        p->ctx = ctx;
        p->a = a;
        p->path = arena_strdup(a, path);
        p->inputs_path = chosen.inputs ? arena_strdup(a, chosen.inputs) : NULL;
        p->weights_path = chosen.weights ? arena_strdup(a, chosen.weights) : NULL;
        p->seed = chosen.seed;
        read_program(p, &chosen);
        *out = p;
    }
    if (t.status != EQF_OK) {
        *out = NULL;
        arena_free(a);
    }
    return t.status;
}

void eqf_program_free(eqf_program *program)
{
    if (program)
        arena_free(program->a);
}

const eqf_program_summary *eqf_program_info(const eqf_program *program)
{
    return &program->summary;
}

const char *eqf_program_text(const eqf_program *program)
{
    return program->text;
}

/* ---- data ---------------------------------------------------------------------------------------
 */

void program_expect_unchanged(const eqf_program *p)
{
    const char *const paths[] = {p->path, p->inputs_path, p->weights_path};
    for (i64 i = 0; i < COUNT_OF(paths); i++) {
        struct stat now;
        const struct stat *seen = &p->seen[i];
        bool is_same = paths[i] && stat(paths[i], &now) == 0 && now.st_dev == seen->st_dev &&
                       now.st_ino == seen->st_ino; /* another file of this name does no harm */
        if (is_same &&
            (now.st_size != seen->st_size || now.st_mtim.tv_sec != seen->st_mtim.tv_sec ||
             now.st_mtim.tv_nsec != seen->st_mtim.tv_nsec))
            eqf_throw(p->ctx, EQF_E_IO, paths[i], NULL, "was written to while it was being read");
    }
}

static void load_port(eqf_program *p, i64 i, const tensor *given, i64 n, const char *file,
                      pool *threads)
{
    const ir_port *port = &p->ir->inputs.at[i];
    tensor *t = &p->data[i];
    t->name = intern_text(p->ir->names, port->name);
    t->type = (dtype)port->dtype;
    t->rank = port->rank;
    t->shape = shape_of(p->a, port);
    if (given) {
        eqf_tensor want = driver_show(p->ctx, t); /* no size is open now */
        t->data = take_given(p, file, given, n, &want)->data;
        return;
    }
    const ir_source *source = &p->ir->source;
    bool is_stored = port->role != IR_INPUT && !program_is_text(p);
    if (is_stored && source->map) /* only read: nothing writes to the data of a program */
        t->data = (void *)(uintptr_t)source->map(source->user, p->ctx, i);
    if (t->data)
        return;
    eqf_about(p->ctx, p->path, t->name);
    t->data = rt_big_alloc(p->a, tensor_bytes(p->ctx, t));
    if (!is_stored)
        rt_seeded(p->ctx, t, p->seed, p->ranges[i], threads);
    else if (tensor_count(p->ctx, t->rank, t->shape) > 0)
        source->read(source->user, p->ctx, i, t->data);
}

const tensor *program_data(eqf_program *p, pool *threads)
{
    if (p->data)
        return p->data;
    const ir_program *ir = p->ir;
    p->inputs_given = p->inputs != NULL;
    p->ranges = driver_ranges(p->a, ir);
    tensor *data = NEW_N(p->a, tensor, ir->inputs.n);
    p->data = data;
    str digests = str_new(p->a);
    trap t;
    TRY (p->ctx, t) {
        for (i64 i = 0; i < ir->inputs.n; i++) {
            if (ir->inputs.at[i].role == IR_INPUT) {
                load_port(p, i, p->inputs, p->input_count, p->inputs_path, threads);
                continue;
            }
            load_port(p, i, p->weights, p->weight_count, p->weights_path, threads);
            char digest[33];
            digest_hex(data[i].data, tensor_bytes(p->ctx, &data[i]), digest);
            str_add(&digests, digest);
        }
    }
    if (t.status != EQF_OK) {
        p->data = NULL;
        eqf_rethrow(p->ctx, t.status);
    }
    digest_hex(str_text(&digests), digests.n, p->data_digest);
    return data;
}
