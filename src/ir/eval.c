/* The reference interpreter: every live term in order, each value dropped after its last use.
 * Floats are f64 and integers exact i64 throughout; with `round` every result is rounded to what
 * its dtype stores. Terms with axes are computed for every coordinate (eval_tiled.c); terms that
 * depend on a running result belong to their loop, and bodies of lambdas to who applies them
 * (eval_loop.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/scalar.h"

_Noreturn void eval_throw(const eval *e, u32 node, eqf_status status, const char *format, ...)
{
    const ir_program *p = e->p;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const char *origin = intern_text(p->names, p->nodes.at[node].origin);
    const char *op = ir_row(p->nodes.at[node].op)->name;
    eqf_throw(e->ctx, status, p->file, *origin ? origin : op, "%s: %s", op, message);
}

void eval_poll(const eval *e)
{
    if (e->options.cancel && *e->options.cancel)
        eqf_throw(e->ctx, EQF_E_INTERRUPTED, e->p->file, NULL, "interrupted");
}

static i64 count_of(const eval *e, ir_atoms dims)
{
    i64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        if (!mul_i64(n, eval_extent(e, dims.at[i]), &n)) /* an extent of 0 may still come */
            n = INT64_MAX;
    return n;
}

i64 eval_count(const eval *e, ir_atoms dims)
{
    i64 n = count_of(e, dims);
    if (n > INT64_MAX / 64)
        eqf_throw(e->ctx, EQF_E_LIMIT, e->p->file, NULL, "a value with more elements than memory");
    return n;
}

static void free_value(const eval *e, value *v)
{
    heap_free(e->ctx, v->p, MAX(v->count, 1) * (i64)sizeof(i64));
    v->p = NULL;
}

value *eval_new(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    value *home = &e->values[k];
    if (e->cells[k].at)
        home = &e->cells[k].at[eval_index_of(e, node->axes)];
    if (home->p)
        free_value(e, home);
    i64 count = count_of(e, node->dims);
    if (count > INT64_MAX / 64)
        eval_throw(e, k, EQF_E_LIMIT, "more elements than memory can have");
    *home = (value){.dims = node->dims,
                    .dtype = node->dtype,
                    .is_float = dtype_is_float(node->dtype),
                    .count = count};
    const char *origin = intern_text(e->p->names, node->origin);
    eqf_about(e->ctx, e->p->file, *origin ? origin : ir_row(node->op)->name);
    home->p = heap_alloc(e->ctx, MAX(count, 1) * (i64)sizeof(i64));
    e->values[k] = *home;
    return &e->values[k];
}

void eval_drop(eval *e, u32 k)
{
    if (e->p->nodes.at[k].op == IR_formal) {
        e->values[k].p = NULL; /* it was lent */
    } else if (e->cells[k].at) {
        for (i64 i = 0; i < e->cells[k].n; i++)
            free_value(e, &e->cells[k].at[i]);
        e->cells[k].at = NULL;
        e->values[k].p = NULL;
    } else {
        free_value(e, &e->values[k]);
    }
}

void eval_settle(const eval *e, value *v, i64 offset, i64 n)
{
    if (v->is_float) {
        f64 *x = v->f + offset;
        if (!e->options.round || v->dtype == DT_f64)
            return;
        if (v->dtype == DT_f32)
            for (i64 j = 0; j < n; j++)
                x[j] = (f64)(f32)x[j];
        else
            for (i64 j = 0; j < n; j++)
                x[j] = eqf_round_float(v->dtype, x[j]);
    } else if (v->dtype != DT_i64) {
        i64 *x = v->i + offset;
        for (i64 j = 0; j < n; j++)
            x[j] = eqf_wrap(v->dtype, x[j]);
    }
}

/* ---- boundary ------------------------------------------------------------------------------- */

/* The atoms of a port in the order of its dims: a dense row-major tensor is a value over them. */
static ir_atoms port_order(eval *e, const ir_port *port)
{
    VEC(ir_atom) all = {0};
    for (i64 i = 0; i < port->rank; i++)
        for (i64 j = 0; j < port->dims[i].atoms.n; j++)
            vec_push(e->scratch, &all, port->dims[i].atoms.at[j]);
    return (ir_atoms){all.at, all.n};
}

static void check_input(const eval *e, i64 index, const tensor *t)
{
    const ir_program *p = e->p;
    const ir_port *port = &p->inputs.at[index];
    const char *name = intern_text(p->names, port->name);
    bool is_wide = dtype_is_float(port->dtype) && t->type == DT_f64;
    if (t->type != port->dtype && !is_wide)
        eqf_throw(e->ctx, EQF_E_ARGUMENT, p->file, name, "input \"%s\" is %s, wants %s", name,
                  dtype_name(t->type), dtype_name(port->dtype));
    bool is_same = t->rank == port->rank;
    for (i64 i = 0; is_same && i < port->rank; i++)
        is_same = t->shape[i] == port->dims[i].extent;
    if (is_same)
        return;
    str wanted = str_new(e->scratch);
    for (i64 i = 0; i < port->rank; i++)
        str_printf(&wanted, "%s%lld", i ? ", " : "", (long long)port->dims[i].extent);
    eqf_throw(e->ctx, EQF_E_ARGUMENT, p->file, name, "input \"%s\" has another shape than [%s]",
              name, str_text(&wanted));
}

typedef struct widening {
    const eval *e;
    const nest *t; /* operands: the value, the stored tensor */
    const tensor *from;
    value *to;
} widening;

static void widen_row(void *user, i64 n, const i64 *offset)
{
    const widening *w = user;
    i64 to = offset[0], at = offset[1], step = nest_step(w->t, 1);
    if (w->from->type == DT_f32) {
        const f32 *from = w->from->data;
        for (i64 j = 0; j < n; j++)
            w->to->f[to + j] = (f64)from[at + j * step];
    } else if (w->to->is_float) {
        for (i64 j = 0; j < n; j++)
            w->to->f[to + j] = tensor_get_f64(w->from, at + j * step);
    } else {
        for (i64 j = 0; j < n; j++)
            w->to->i[to + j] = tensor_get_i64(w->from, at + j * step);
    }
    eval_settle(w->e, w->to, to, n);
}

static void load(eval *e, u32 k)
{
    const tensor *inputs = e->inputs;
    const ir_node *node = &e->p->nodes.at[k];
    i64 index = ir_input_find(e->p, node->attr.name);
    const ir_port *port = &e->p->inputs.at[index];
    value *v = eval_new(e, k);
    value dense = *v;
    dense.dims = port_order(e, port);
    i64 *shape = NEW_N(e->scratch, i64, port->rank);
    for (i64 i = 0; i < port->rank; i++)
        shape[i] = port->dims[i].extent;
    tensor stored = {.type = port->dtype, .rank = port->rank, .shape = shape};
    if (inputs && inputs[index].data) {
        stored = inputs[index];
        check_input(e, index, &stored);
    } else {
        stored.data = arena_alloc(e->scratch, tensor_bytes(e->ctx, &stored));
        e->p->source.read(e->p->source.user, e->ctx, index, stored.data);
    }
    nest t = nest_over(e, v->dims, (const value *[]){v, &dense}, 2);
    widening w = {e, &t, &stored, v};
    nest_run(e, &t, 1, widen_row, &w);
}

static void store(eval *e, i64 index, arena *out, tensor *result)
{
    const ir_port *port = &e->p->outputs.at[index];
    i64 *shape = NEW_N(out, i64, port->rank);
    for (i64 i = 0; i < port->rank; i++)
        shape[i] = port->dims[i].extent;
    bool is_float = dtype_is_float(port->dtype), is_bool = port->dtype == DT_bool;
    *result = (tensor){.name = arena_strdup(out, intern_text(e->p->names, port->name)),
                       .type = is_float  ? DT_f64
                               : is_bool ? DT_bool
                                         : DT_i64,
                       .rank = port->rank,
                       .shape = shape};
    result->data = arena_alloc(out, tensor_bytes(e->ctx, result));
    if (!port->term.i)
        return;
    const value *v = &e->values[port->term.i];
    value dense = {.dims = port_order(e, port)};
    dense.count = eval_count(e, dense.dims);
    dense.p = is_bool ? (void *)NEW_N(e->scratch, i64, dense.count) : result->data;
    nest t = nest_over(e, dense.dims, (const value *[]){&dense, v}, 2);
    nest_copy(e, &t, dense.p, v->p);
    for (i64 i = 0; is_bool && i < dense.count; i++)
        ((u8 *)result->data)[i] = dense.i[i] != 0;
}

/* ---- the run -------------------------------------------------------------------------------- */

static void leaf(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    if (node->op == IR_in) {
        load(e, k);
        return;
    }
    value *v = eval_new(e, k);
    if (node->op == IR_iota) /* in a lambda, where its dim may be cut: positions of the whole dim */
        for (i64 i = 0; i < v->count; i++)
            v->i[i] = e->offset[node->attr.axis.at[0].i] + i;
    else if (v->is_float)
        v->f[0] = node->attr.f;
    else
        v->i[0] = node->attr.i;
    eval_settle(e, v, 0, v->count);
}

/* See ir_eval_options.stray. What it computed with goes into the hash: sums of tiles share a place. */
static void lead_astray(const eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    ir_class class = (ir_class)ir_row(node->op)->class_;
    bool sums = class == IR_MATMUL || node->op == IR_tile_matmul ||
                ((class == IR_REDUCE || node->op == IR_scan) && node->attr.reducer == IR_SUM);
    const value *v = &e->values[k];
    i64 terms = sums ? eval_count(e, node->attr.axis) : 0;
    if (!sums || !v->is_float || terms < 2)
        return;
    f64 most = sqrt((f64)terms) * (v->dtype == DT_f64 ? 0x1p-52 : 0x1p-23);
    for (i64 j = 0; j < v->count; j++) {
        u64 bits;
        memcpy(&bits, &v->f[j], sizeof bits);
        u64 h = hash_u64(hash_u64(bits, e->options.stray), ((u64)k << 40) + (u64)j);
        v->f[j] *= 1 + most * ((f64)(h >> 11) * 0x1p-52 - 1);
    }
}

void eval_plain(eval *e, u32 k)
{
    const ir_node *node = &e->p->nodes.at[k];
    switch ((ir_class)ir_row(node->op)->class_) {
    case IR_LEAF:
        leaf(e, k);
        break;
    case IR_EWISE:
        eval_pointwise(e, k);
        break;
    case IR_REDUCE:
        eval_reduce(e, k);
        break;
    case IR_MATMUL:
        eval_matmul(e, k);
        break;
    case IR_INDEX:
        eval_index(e, k);
        break;
    case IR_GATHER:
        if (node->op == IR_gather)
            eval_gather(e, k);
        else
            eval_scatter(e, k);
        break;
    case IR_PLAIN:
        if (node->op == IR_scan)
            eval_scan(e, k);
        else
            eval_argsort(e, k);
        break;
    case IR_OPAQUE:
        eval_throw(e, k, EQF_E_UNSUPPORTED, "\"%s\" has no meaning here",
                   intern_text(e->p->names, node->attr.name));
    case IR_TILED:
        if (node->op == IR_tile_matmul)
            eval_matmul(e, k);
        else if (node->op == IR_splitdim)
            eval_splitdim(e, k);
        break;
    }
    if (e->options.stray)
        lead_astray(e, k);
}

/* Is it computed by the sweep over all terms? */
static bool is_swept(const ir_node *node)
{
    ir_kind kind = ir_kind_of(node->op);
    return !node->is_open && node->runs.n == 0 && (kind == IR_A_VALUE || kind == IR_A_BUNDLE);
}

/* Uses by live terms. What a loop computes by itself never gives its operands back. */
static i64 *count_uses(arena *own, const ir_program *p)
{
    i64 *uses = NEW_N(own, i64, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        uses[p->outputs.at[i].term.i]++;
    for (i64 k = p->nodes.n - 1; k > 0; k--)
        for (i64 i = 0; uses[k] > 0 && i < p->nodes.at[k].arg_count; i++)
            if (p->nodes.at[k].op != IR_lambda)
                uses[p->nodes.at[k].args[i].i]++;
    return uses;
}

/* Inputs that only the sweep reads are widened when the first reader comes: parameters, twice as
 * large in f64, are not all there at once. */
static bool *find_late(arena *own, const ir_program *p)
{
    bool *late = NEW_N(own, bool, p->nodes.n);
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        late[k] = node->op == IR_in && is_swept(node);
        for (i64 i = 0; !is_swept(node) && i < node->arg_count; i++)
            late[node->args[i].i] = false;
    }
    for (i64 i = 0; i < p->outputs.n; i++)
        late[p->outputs.at[i].term.i] = false;
    return late;
}

static void run(eval *e, arena *out, tensor *outputs)
{
    const ir_program *p = e->p;
    i64 *uses = count_uses(e->own, p);
    const bool *late = find_late(e->own, p);
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        if (uses[k] == 0 || !is_swept(node) || late[k])
            continue;
        eval_poll(e);
        for (i64 i = 0; i < node->arg_count; i++)
            if (late[node->args[i].i] && !e->values[node->args[i].i].p)
                eval_node(e, node->args[i].i);
        eval_node(e, (u32)k);
        for (i64 i = 0; i < node->arg_count; i++)
            if (--uses[node->args[i].i] == 0)
                eval_drop(e, node->args[i].i);
    }
    e->scratch = arena_child(e->own);
    for (i64 i = 0; i < p->outputs.n; i++)
        store(e, i, out, &outputs[i]);
}

static void check_tiles(const eval *e)
{
    for (i64 d = 1; e->options.tiles && d < e->p->atoms.n; d++)
        if (e->options.tiles[d] < 1)
            eqf_throw(e->ctx, EQF_E_ARGUMENT, e->p->file, ir_atom_name(e->p, (ir_atom){(u32)d}),
                      "the axis of %s with %lld tiles; wants at least 1",
                      ir_atom_name(e->p, (ir_atom){(u32)d}), (long long)e->options.tiles[d]);
}

void ir_eval(const ir_program *p, const tensor *inputs, arena *out, tensor *outputs,
             ir_eval_options options)
{
    eqf_ctx *ctx = arena_ctx(out);
    arena *own = arena_child(out);
    eval *e = NEW(own, eval);
    *e = (eval){.p = p, .ctx = ctx, .options = options, .inputs = inputs, .own = own};
    value *values = e->values = NEW_N(own, value, p->nodes.n);
    cells *all = e->cells = NEW_N(own, cells, p->nodes.n);
    e->inner_values = NEW_N(own, value, p->nodes.n);
    e->inner_cells = NEW_N(own, cells, p->nodes.n);
    e->extent = NEW_N(own, i64, p->atoms.n);
    e->offset = NEW_N(own, i64, p->atoms.n);
    e->coord = NEW_N(own, i64, p->atoms.n);
    e->pinned = NEW_N(own, bool, p->atoms.n);
    e->running = NEW_N(own, const struct loop_state *, p->nodes.n);
    e->bodies = NEW_N(own, eval_body, p->nodes.n);
    e->random = rng_new(options.association);
    for (i64 d = 0; d < p->atoms.n; d++)
        e->extent[d] = p->atoms.at[d].extent;
    trap t;
    TRY (ctx, t) {
        check_tiles(e);
        run(e, out, outputs);
    }
    value *inner = e->values == values ? e->inner_values : e->values; /* thrown inside a lambda */
    cells *inner_cells = e->cells == all ? e->inner_cells : e->cells;
    for (i64 k = 1; k < p->nodes.n; k++) {
        e->values = values;
        e->cells = all;
        eval_drop(e, (u32)k);
        e->values = inner;
        e->cells = inner_cells;
        eval_drop(e, (u32)k);
    }
    arena_free(own);
    if (t.status != EQF_OK)
        eqf_rethrow(ctx, t.status);
}
