/* Programs to launch plans: inputs, terms in order, outputs, memory.
 *
 * Each term gets a location; a term whose location is not a view of its operand's gets one kernel
 * or more, in the order of the terms. What depends on constants alone is computed in `prepare`, or where
 * it is used (in_place.c). A
 * kernel writes an output's buffer directly where the output is its term, or a renaming or cut of
 * it that this layout can express. */
#include "kernel/lower.h"

/* ---- buffers and locations ------------------------------------------------------------------- */

static i32 add_buffer(kn_lower *l, const char *name, dtype t, i64 count, rt_role role, i64 port)
{
    i64 bytes;
    if (!mul_i64(count, dtype_bytes(t), &bytes))
        eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "a buffer of too many bytes");
    vec_push(l->a, &l->plan->buffers,
             (rt_buffer){.name = name, .type = t, .count = count, .bytes = bytes,
                         .role = (u8)role, .port = port});
    return (i32)(l->plan->buffers.n - 1);
}

i32 kn_buffer_new(kn_lower *l, dtype t, i64 count)
{
    char *name = arena_printf(l->a, "t%lld", (long long)l->plan->buffers.n);
    return add_buffer(l, name, t, count, RT_SCRATCH, -1);
}

kn_loc kn_loc_new(kn_lower *l, dtype t, const ir_atom *order, i64 n)
{
    i64 *stride = NEW_N(l->a, i64, n + 1), count = 1;
    for (i64 i = n - 1; i >= 0; i--) {
        stride[i] = count;
        if (!mul_i64(count, kn_extent(l, order[i]), &count))
            eqf_throw(l->ctx, EQF_E_LIMIT, NULL, NULL, "a value with too many elements");
    }
    ir_atoms dims = {arena_copy(l->a, order, n * (i64)sizeof *order), n};
    return (kn_loc){.where = KN_MEMORY, .dtype = (u8)t, .buffer = kn_buffer_new(l, t, count),
                    .dims = dims, .stride = stride};
}

kn_loc kn_result(kn_lower *l, u32 term, const ir_atom *order, i64 n)
{
    if (l->want[term].where == KN_MEMORY)
        return l->want[term];
    return kn_loc_new(l, (dtype)l->lies[term], order, n);
}

void kn_order_like(kn_lower *l, ir_atoms dims, const kn_loc *x, ir_atom *order)
{
    (void)l;
    for (i64 i = 0; i < dims.n; i++) {
        i64 s = kn_stride(x, dims.at[i]), place = i;
        s = s < 0 ? -s : s;
        for (; place > 0; place--) {
            i64 t = kn_stride(x, order[place - 1]);
            t = t < 0 ? -t : t;
            if (t == 0 || (s != 0 && t >= s))
                break;
            order[place] = order[place - 1];
        }
        order[place] = dims.at[i];
    }
}

/* Row-major strides of a port. Dims of extent 1 have no atoms; `dims` may repeat no atom. */
static kn_loc port_loc(kn_lower *l, const ir_port *port, i32 buffer)
{
    i64 n = 0, count = 1;
    for (i64 i = 0; i < port->rank; i++)
        n += port->dims[i].atoms.n;
    ir_atom *atoms = NEW_N(l->a, ir_atom, n + 1);
    i64 *stride = NEW_N(l->a, i64, n + 1);
    i64 place = n;
    for (i64 i = port->rank - 1; i >= 0; i--)
        for (i64 j = port->dims[i].atoms.n - 1; j >= 0; j--) {
            place--;
            atoms[place] = port->dims[i].atoms.at[j];
            stride[place] = count;
            count *= kn_extent(l, atoms[place]);
        }
    return (kn_loc){.where = KN_MEMORY, .dtype = port->dtype, .buffer = buffer,
                    .dims = {atoms, n}, .stride = stride};
}

static i64 port_count(kn_lower *l, const ir_port *port, const i64 **shape)
{
    i64 *s = NEW_N(l->a, i64, port->rank + 1);
    for (i64 i = 0; i < port->rank; i++)
        s[i] = port->dims[i].extent;
    *shape = s;
    return tensor_count(l->ctx, port->rank, s);
}

/* ---- kernels being made ---------------------------------------------------------------------- */

kn_job kn_job_new(kn_lower *l, u32 term)
{
    const char *origin = intern_text(l->p->names, l->p->nodes.at[term].origin);
    if (!origin || !origin[0])
        origin = l->p->nodes.at[term].op == IR_in ? "copy" : ir_row((ir_op)l->p->nodes.at[term].op)->name;
    return (kn_job){.l = l, .m = kn_maker_new(l->a, origin), .term = term,
                    .constant = l->constant[term]};
}

kn_operand kn_job_bind(kn_job *j, const kn_loc *loc, kn_access access)
{
    if (loc->where != KN_MEMORY)
        return (kn_operand){.loc = loc, .buffer = -1, .base = loc->offset};
    i64 low = 0, high = 0, width = dtype_bytes(loc->dtype);
    for (i64 i = 0; i < loc->dims.n; i++) {
        ir_atom d = loc->dims.at[i];
        const ir_split *s = loc->is_ragged ? kn_ragged_split(j->l, d) : NULL;
        if (s && d.i == s->outer.i)
            continue;
        i64 reach = (kn_extent(j->l, s ? s->whole : d) - 1) * loc->stride[i];
        low += MIN(reach, 0);
        high += MAX(reach, 0);
    }
    if (loc->span > 0)
        high = loc->span - 1;
    i64 start = loc->offset + low;
    start -= start % (64 / width); /* offsets of arguments are multiples of 64 bytes */
    vec_push(j->l->a, &j->args, (rt_arg){loc->buffer, start * width});
    i64 count = loc->offset + high + 1 - start;
    j->bytes += count * width;
    return (kn_operand){loc, kn_add_buffer(&j->m, access, loc->dtype, count),
                        loc->offset - start};
}

void kn_job_launch(kn_job *j)
{
    kn_lower *l = j->l;
    kn_kernel *k = kn_finish(&j->m);
    i64 made = intern_count(l->made);
    intern_cstr(l->made, k->name);
    if (intern_count(l->made) > made) {
        kn_verify(l->ctx, k);
        vec_push(l->a, l->kernels, k);
    }
    rt_launch launch = {.symbol = k->name, .origin = k->origin, .parts = kn_parts(k),
                        .args = j->args.at, .arg_count = j->args.n, .flops = j->flops,
                        .bytes = j->bytes};
    if (j->constant)
        vec_push(l->a, &l->plan->prepare, launch);
    else
        vec_push(l->a, &l->plan->launches, launch);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

static bool is_written(const ir_program *p, i64 input)
{
    for (i64 i = 0; i < p->outputs.n; i++)
        if (p->outputs.at[i].writes == input + 1)
            return true;
    return false;
}

static void copy_source(kn_lower *l, i32 from, i32 to, const char *origin)
{
    rt_arg *args = NEW_N(l->a, rt_arg, 2);
    args[0].buffer = from;
    args[1].buffer = to;
    vec_push(l->a, &l->plan->prepare,
             (rt_launch){.symbol = "", .origin = origin, .parts = 1, .args = args, .arg_count = 2,
                         .copy_bytes = l->plan->buffers.at[from].bytes,
                         .bytes = 2 * l->plan->buffers.at[from].bytes});
}

/* Makes the buffers of input port i and gives its term a location. writes[i] becomes what an
 * output's `writes` says when it replaces this input; states are counted from 1 below. */
static void lower_input(kn_lower *l, i64 i, i64 *state_of)
{
    const ir_port *port = &l->p->inputs.at[i];
    const char *name = intern_text(l->p->names, port->name);
    rt_port r = {.name = name, .type = port->dtype, .rank = port->rank, .buffer = -1};
    i64 count = port_count(l, port, &r.shape);
    bool user = port->role == IR_INPUT, state = !user && is_written(l->p, i);
    if (count > 0 && user) {
        r.buffer = add_buffer(l, name, port->dtype, count, RT_INPUT, l->plan->inputs.n);
    } else if (count > 0) {
        r.buffer = add_buffer(l, name, port->dtype, count, RT_SOURCE, i);
        bool replaceable = !l->o.constants && port->role != IR_CONSTANT;
        if (state || replaceable) {
            i32 source = r.buffer;
            r.buffer = add_buffer(l, name, port->dtype, count, state ? RT_STATE : RT_WEIGHT, i);
            copy_source(l, source, r.buffer, name);
        }
        if (!state && replaceable)
            vec_push(l->a, &l->plan->parameters, r);
    }
    if (user)
        vec_push(l->a, &l->plan->inputs, r);
    if (state) {
        vec_push(l->a, &l->plan->states, r);
        state_of[i] = l->plan->states.n;
    }
    if (port->term.i == 0)
        return;
    kn_loc loc = port_loc(l, port, r.buffer);
    l->at[port->term.i] = loc;
    l->constant[port->term.i] = l->o.constants && !user && !state;
}

/* ---- outputs ----------------------------------------------------------------------------------- */

static bool has_kernel(const ir_program *p, u32 term)
{
    u8 class_ = ir_row((ir_op)p->nodes.at[term].op)->class_;
    return class_ != IR_LEAF && (class_ != IR_INDEX || p->nodes.at[term].op == IR_concat);
}

/* Asks the kernel behind an output to write `loc`, through renamings and cuts. */
static void want_output(kn_lower *l, u32 term, kn_loc loc)
{
    const ir_node *node = &l->p->nodes.at[term];
    if (node->dims.n != loc.dims.n || l->lies[term] != loc.dtype || l->constant[term])
        return;
    if (node->op == IR_cast && l->lies[node->args[0].i] == loc.dtype && !l->deferred[node->args[0].i]) {
        want_output(l, node->args[0].i, loc);
        return;
    }
    if (has_kernel(l->p, term)) {
        if (l->want[term].where == KN_ABSENT)
            l->want[term] = loc;
        return;
    }
    if (node->op != IR_rename && node->op != IR_reshape)
        return;
    u32 below = node->args[0].i;
    const ir_node *from = &l->p->nodes.at[below];
    ir_atoms axis = node->attr.axis, to = node->attr.to;
    i64 *cut = NEW_N(l->a, i64, axis.n + 1), *stride = NEW_N(l->a, i64, from->dims.n + 1);
    if (node->op == IR_rename)
        for (i64 i = 0; i < axis.n; i++)
            cut[i] = kn_stride(&loc, to.at[i]);
    else if (!kn_reshape_strides(l, &loc, to, axis, cut))
        return;
    for (i64 i = 0; i < from->dims.n; i++) {
        stride[i] = kn_stride(&loc, from->dims.at[i]);
        for (i64 k = 0; k < axis.n; k++)
            if (axis.at[k].i == from->dims.at[i].i)
                stride[i] = cut[k];
    }
    loc.dims = from->dims;
    loc.stride = stride;
    want_output(l, below, loc);
}

static _Noreturn void refuse_ragged(const kn_lower *l, u32 t)
{
    const ir_node *node = &l->p->nodes.at[t];
    eqf_throw(l->ctx, EQF_E_UNSUPPORTED, l->p->file, intern_text(l->p->names, node->origin),
              "operator %s: parts of unequal size are read by kernels of tiles only",
              ir_row((ir_op)node->op)->name);
}

static void make_output(kn_lower *l, i64 i, const i64 *state_of)
{
    const ir_port *port = &l->p->outputs.at[i];
    const char *name = intern_text(l->p->names, port->name);
    rt_port r = {.name = name, .type = port->dtype, .rank = port->rank, .buffer = -1};
    i64 count = port_count(l, port, &r.shape);
    if (count > 0)
        r.buffer = add_buffer(l, name, port->dtype, count, RT_OUTPUT, l->plan->outputs.n);
    if (port->writes > 0) {
        i64 w = port->writes - 1, input = 0;
        for (i64 k = 0; k < w; k++)
            input += l->p->inputs.at[k].role == IR_INPUT;
        bool user = l->p->inputs.at[w].role == IR_INPUT;
        r.writes = user ? 1 + input : l->plan->inputs.n + state_of[w];
    }
    vec_push(l->a, &l->plan->outputs, r);
    if (port->term.i != 0 && r.buffer >= 0)
        want_output(l, port->term.i, port_loc(l, port, r.buffer));
}

static void finish_output(kn_lower *l, i64 i)
{
    const ir_port *port = &l->p->outputs.at[i];
    i32 buffer = l->plan->outputs.at[i].buffer;
    if (port->term.i == 0 || buffer < 0)
        return;
    const kn_loc *have = &l->at[port->term.i];
    if (have->where == KN_MEMORY && have->buffer == buffer)
        return;
    if (have->is_ragged)
        refuse_ragged(l, port->term.i);
    kn_loc out = port_loc(l, port, buffer);
    bool constant = l->constant[port->term.i];
    l->constant[port->term.i] = false;
    kn_copy(l, port->term.i, &out, KN_OUT, have);
    l->constant[port->term.i] = constant;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static void find_live(kn_lower *l)
{
    const ir_program *p = l->p;
    for (i64 i = 0; i < p->outputs.n; i++)
        l->live[p->outputs.at[i].term.i] = true;
    for (i64 t = p->nodes.n - 1; t > 0; t--)
        for (i64 j = 0; l->live[t] && j < p->nodes.at[t].arg_count; j++)
            l->live[p->nodes.at[t].args[j].i] = true;
}

static void find_constants(kn_lower *l)
{
    for (i64 t = 1; t < l->p->nodes.n; t++) {
        const ir_node *node = &l->p->nodes.at[t];
        if (node->op == IR_in)
            continue;
        bool constant = l->o.constants;
        for (i64 j = 0; j < node->arg_count; j++)
            constant &= l->constant[node->args[j].i];
        l->constant[t] = constant;
    }
}

bool kn_is_tensor(const ir_node *node)
{
    return ir_kind_of((ir_op)node->op) == IR_A_VALUE && node->axes.n == 0 && !node->is_open &&
           node->runs.n == 0;
}

/* Tensors that are combined from tiles without a `comb`: they have no dims that were cut. Operators
 * on them join their kernel. */
static void find_deferred(kn_lower *l)
{
    for (i64 t = 1; t < l->p->nodes.n; t++) {
        const ir_node *node = &l->p->nodes.at[t];
        if (!kn_is_tensor(node))
            continue;
        bool is_part = node->op == IR_get || node->op == IR_run ||
                       (node->op == IR_reduce && node->attr.par.n > 0);
        for (i64 i = 0; i < node->arg_count; i++)
            is_part |= l->deferred[node->args[i].i] &&
                       ir_row((ir_op)node->op)->class_ == IR_EWISE;
        l->deferred[t] = is_part;
    }
}

static void lower_term(kn_lower *l, u32 t)
{
    const ir_node *node = &l->p->nodes.at[t];
    for (i64 i = 0; node->op != IR_comb && i < node->arg_count; i++)
        if (l->deferred[node->args[i].i] && l->at[node->args[i].i].where == KN_ABSENT)
            kn_lower_tiles(l, node->args[i].i, node->args[i].i);
    for (i64 i = 0; node->op != IR_comb && i < node->arg_count; i++)
        if (l->at[node->args[i].i].is_ragged)
            refuse_ragged(l, t);
    switch (ir_row((ir_op)node->op)->class_) {
    case IR_LEAF:
        if (node->op == IR_const) {
            l->at[t] = (kn_loc){.where = KN_NUMBER, .dtype = node->dtype, .f = node->attr.f,
                                .i = node->attr.i};
        } else if (node->op == IR_iota) {
            i64 *one = NEW(l->a, i64);
            *one = 1;
            l->at[t] = (kn_loc){.where = KN_SERIES, .dtype = DT_i64, .dims = node->dims,
                                .stride = one};
        }
        break;
    case IR_EWISE: kn_lower_ewise(l, t); break;
    case IR_REDUCE: kn_lower_reduce(l, t); break;
    case IR_MATMUL: kn_lower_matmul(l, t); break;
    case IR_INDEX: kn_lower_index(l, t); break;
    case IR_GATHER:
        if (node->op == IR_scatter)
            kn_lower_scatter(l, t);
        else
            kn_lower_gather(l, t);
        break;
    case IR_PLAIN: kn_lower_plain(l, t); break;
    case IR_TILED:
        if (node->op == IR_comb)
            kn_lower_tiles(l, t, node->args[0].i);
        else
            kn_lower_index(l, t);
        break;
    default:
        eqf_throw(l->ctx, EQF_E_UNSUPPORTED, l->p->file,
                  intern_text(l->p->names, node->origin), "operator %s cannot be compiled",
                  intern_text(l->p->names, node->attr.name));
    }
}

/* Sources that the run reads become weights, copied once. */
static void keep_sources(kn_lower *l)
{
    rt_plan *plan = l->plan;
    i64 n = plan->buffers.n;
    i32 *weight = NEW_N(l->a, i32, n);
    for (i64 i = 0; i < plan->launches.n; i++) {
        rt_arg *args = arena_copy(l->a, plan->launches.at[i].args,
                                  plan->launches.at[i].arg_count * (i64)sizeof *args);
        for (i64 j = 0; j < plan->launches.at[i].arg_count; j++) {
            i32 b = args[j].buffer;
            if (plan->buffers.at[b].role != RT_SOURCE)
                continue;
            if (weight[b] == 0) {
                const rt_buffer *s = &plan->buffers.at[b];
                weight[b] = add_buffer(l, s->name, s->type, s->count, RT_WEIGHT, s->port);
                copy_source(l, b, weight[b], plan->buffers.at[b].name);
            }
            args[j].buffer = weight[b];
        }
        plan->launches.at[i].args = args;
    }
}

void kn_build(arena *a, const ir_program *p, kn_options options, rt_plan *plan,
              kn_kernels *kernels)
{
    kn_lower l = {.a = a, .ctx = arena_ctx(a), .p = p, .o = options, .plan = plan,
                  .kernels = kernels, .made = intern_new(a)};
    l.at = NEW_N(a, kn_loc, p->nodes.n);
    l.live = NEW_N(a, bool, p->nodes.n);
    l.constant = NEW_N(a, bool, p->nodes.n);
    l.want = NEW_N(a, kn_loc, p->nodes.n);
    l.deferred = NEW_N(a, bool, p->nodes.n);
    i64 *state_of = NEW_N(a, i64, p->inputs.n + 1);
    for (i64 i = 0; i < p->inputs.n; i++)
        lower_input(&l, i, state_of);
    l.lies = ir_memory_dtypes(a, p);
    find_live(&l);
    find_constants(&l);
    find_deferred(&l);
    kn_find_in_place(&l);
    for (i64 i = 0; i < p->outputs.n; i++)
        make_output(&l, i, state_of);
    for (u32 t = 1; t < (u32)p->nodes.n; t++)
        if (l.live[t] && kn_is_tensor(&p->nodes.at[t]) && !l.deferred[t] && !l.in_place[t])
            lower_term(&l, t);
    for (i64 i = 0; i < p->outputs.n; i++) {
        u32 t = p->outputs.at[i].term.i;
        if (l.deferred[t] && l.at[t].where == KN_ABSENT)
            kn_lower_tiles(&l, t, t);
    }
    for (i64 i = 0; i < p->outputs.n; i++)
        finish_output(&l, i);
    keep_sources(&l);
    kn_plan_memory(&l);
    for (i64 i = 0; i < p->preconditions.n; i++)
        vec_push(a, &plan->preconditions, intern_text(p->names, p->preconditions.at[i]));
}
