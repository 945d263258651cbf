/* Programs: atoms, ports, and the hash-consing constructor that every other one goes through. */
#include <math.h>
#include <stdio.h>

#include "ir/type.h"

static void no_data(void *user, eqf_ctx *ctx, i64 i, void *out)
{
    (void)out;
    const ir_program *p = user;
    const char *name = i >= 0 && i < p->inputs.n ? intern_text(p->names, p->inputs.at[i].name) : "";
    eqf_throw(ctx, EQF_E_DATA, p->file, name, "input \"%s\" has no stored data", name);
}

ir_program *ir_program_new(arena *a, const char *file, const char *name)
{
    ir_program *p = NEW(a, ir_program);
    p->a = a;
    p->ctx = arena_ctx(a);
    p->names = intern_new(a);
    p->file = arena_strdup(a, file ? file : "");
    p->name = intern_cstr(p->names, name ? name : "");
    vec_push(a, &p->atoms, (ir_atom_info){.extent = 1});
    vec_push(a, &p->nodes, (ir_node){0});
    p->source = (ir_source){.read = no_data, .user = p};
    p->slot_count = 64;
    p->slots = NEW_N(a, u32, p->slot_count);
    return p;
}

static ir_name_info *name_info(ir_program *p, u32 name)
{
    if ((i64)name >= p->by_name.n) {
        vec_reserve(p->a, &p->by_name, intern_count(p->names));
        p->by_name.n = intern_count(p->names); /* new entries are zeroed arena memory */
    }
    return &p->by_name.at[name];
}

static ir_name_info name_info_if_any(const ir_program *p, u32 name)
{
    return (i64)name < p->by_name.n ? p->by_name.at[name] : (ir_name_info){0};
}

ir_atom ir_atom_find(const ir_program *p, u32 name)
{
    return (ir_atom){name_info_if_any(p, name).atom};
}

i64 ir_input_find(const ir_program *p, u32 name)
{
    return (i64)name_info_if_any(p, name).input - 1;
}

ir_atom ir_atom_new(ir_program *p, const char *name, i64 extent)
{
    if (extent < 2)
        eqf_throw(p->ctx, EQF_E_TYPE, p->file, name, "an atom of extent %lld; wants at least 2",
                  (long long)extent);
    if (p->atoms.n >= UINT32_MAX)
        eqf_throw(p->ctx, EQF_E_LIMIT, p->file, name, "too many atoms");
    u32 wanted, id;
    if (name) {
        wanted = id = intern_cstr(p->names, name);
    } else {
        wanted = intern_cstr(p->names, "d");
        id = intern_cstr(p->names, arena_printf(p->a, "d%lld", (long long)p->atoms.n));
    }
    while (name_info(p, id)->atom) {
        u32 suffix = ++name_info(p, wanted)->suffix;
        id = intern_cstr(p->names,
                         arena_printf(p->a, "%s_%u", intern_text(p->names, wanted), suffix));
    }
    ir_atom d = {(u32)p->atoms.n};
    vec_push(p->a, &p->atoms, (ir_atom_info){.name = id, .extent = extent});
    name_info(p, id)->atom = d.i;
    return d;
}

const char *ir_atom_name(const ir_program *p, ir_atom d)
{
    return d.i ? intern_text(p->names, p->atoms.at[d.i].name) : "-";
}

i64 ir_extent(const ir_program *p, ir_atom d)
{
    return p->atoms.at[d.i].extent;
}

const ir_node *ir_get(const ir_program *p, ir_term t)
{
    return &p->nodes.at[t.i];
}

/* ---- the constructor ------------------------------------------------------------------------ */

static bool same_atoms(ir_atoms a, ir_atoms b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at) == 0);
}

static bool same_node(const ir_node *node, ir_op op, const ir_attr *x, const ir_term *args, i64 n)
{
    const ir_attr *y = &node->attr;
    return node->op == op && node->arg_count == n &&
           (n == 0 || memcmp(node->args, args, (size_t)n * sizeof *args) == 0) &&
           x->dtype == y->dtype && x->reducer == y->reducer && x->name == y->name && x->i == y->i &&
           memcmp(&x->f, &y->f, sizeof x->f) == 0 && same_atoms(x->axis, y->axis) &&
           same_atoms(x->to, y->to) && same_atoms(x->par, y->par) && x->ints.n == y->ints.n &&
           (x->ints.n == 0 ||
            memcmp(x->ints.at, y->ints.at, (size_t)x->ints.n * sizeof *x->ints.at) == 0);
}

u64 ir_hash_attr(ir_op op, const ir_attr *x)
{
    u64 bits;
    memcpy(&bits, &x->f, sizeof bits);
    u64 h = hash_u64((u64)op << 16 | (u64)x->dtype << 8 | x->reducer, x->name);
    h = hash_u64(h ^ bits, (u64)x->i);
    h = hash_bytes(x->axis.at, x->axis.n * (i64)sizeof(ir_atom), h);
    h = hash_bytes(x->to.at, x->to.n * (i64)sizeof(ir_atom), h);
    if (x->par.n > 0)
        h = hash_bytes(x->par.at, x->par.n * (i64)sizeof(ir_atom), h);
    return hash_bytes(x->ints.at, x->ints.n * (i64)sizeof(i64), h);
}

static u64 hash_node(ir_op op, const ir_attr *x, const ir_term *args, i64 n)
{
    return hash_bytes(args, n * (i64)sizeof(ir_term), ir_hash_attr(op, x));
}

static u32 *find_slot(const ir_program *p, ir_op op, const ir_attr *x, const ir_term *args, i64 n)
{
    u64 mask = (u64)p->slot_count - 1, i = hash_node(op, x, args, n) & mask;
    while (p->slots[i] && !same_node(&p->nodes.at[p->slots[i]], op, x, args, n))
        i = (i + 1) & mask;
    return &p->slots[i];
}

bool ir_is_consed(const ir_program *p, u32 k)
{
    const ir_node *node = &p->nodes.at[k];
    return *find_slot(p, node->op, &node->attr, node->args, node->arg_count) == k;
}

static void grow_slots(ir_program *p)
{
    i64 count = 2 * p->slot_count;
    u32 *slots = NEW_N(p->a, u32, count);
    p->slots = slots;
    p->slot_count = count;
    for (u32 k = 1; k < (u32)p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        *find_slot(p, node->op, &node->attr, node->args, node->arg_count) = k;
    }
}

static bool is_sorted(ir_atoms list)
{
    for (i64 i = 1; i < list.n; i++)
        if (list.at[i - 1].i > list.at[i].i)
            return false;
    return true;
}

/* Sorts the list `key` by atom; `other` and `steps`, where given, keep step with it. */
static void sort_lists(arena *a, ir_atoms *key, ir_atoms *other, ir_ints *ints)
{
    if (is_sorted(*key))
        return;
    i64 n = key->n;
    ir_atom *k = arena_copy(a, key->at, n * (i64)sizeof *k), *o = NULL;
    i64 *v = NULL;
    if (other)
        o = arena_copy(a, other->at, n * (i64)sizeof *o);
    if (ints)
        v = arena_copy(a, ints->at, ints->n * (i64)sizeof *v);
    for (i64 i = 1; i < n; i++) {
        for (i64 j = i; j > 0 && k[j - 1].i > k[j].i; j--) {
            ir_atom d = k[j];
            k[j] = k[j - 1];
            k[j - 1] = d;
            if (o) {
                d = o[j];
                o[j] = o[j - 1];
                o[j - 1] = d;
            }
            if (v) { /* v[0] is the start */
                i64 step = v[j + 1];
                v[j + 1] = v[j];
                v[j] = step;
            }
        }
    }
    key->at = k;
    if (other)
        other->at = o;
    if (ints)
        ints->at = v;
}

/* Components of a loop, sorted and each once. */
static const ir_term *sort_set(arena *a, const ir_term *args, i64 *count)
{
    ir_term *out = arena_copy(a, args, *count * (i64)sizeof *out);
    i64 n = 0;
    for (i64 i = 0; i < *count; i++) {
        i64 j = n;
        while (j > 0 && out[j - 1].i > args[i].i)
            j--;
        if (j > 0 && out[j - 1].i == args[i].i)
            continue;
        memmove(out + j + 1, out + j, (size_t)(n - j) * sizeof *out);
        out[j] = args[i];
        n++;
    }
    *count = n;
    return out;
}

/* One spelling for attributes that mean the same. Lists of unequal length are left for the type
 * rule to refuse, and so are long ones. */
static void normalise(ir_program *p, ir_op op, ir_attr *x)
{
    if (x->axis.n > 1000 || x->to.n > 1000 || x->par.n > 1000)
        return;
    sort_lists(p->a, &x->par, NULL, NULL);
    if (ir_axis_is_set(op))
        sort_lists(p->a, &x->axis, NULL, NULL);
    if (ir_to_is_set(op))
        sort_lists(p->a, &x->to, NULL, NULL);
    if (op == IR_rename && x->axis.n == x->to.n)
        sort_lists(p->a, &x->axis, &x->to, NULL);
    if (op == IR_slice && x->ints.n == x->to.n + 1)
        sort_lists(p->a, &x->to, NULL, &x->ints);
    if (isnan(x->f))
        x->f = (f64)NAN;
}

ir_term ir_make(ir_program *p, ir_op op, ir_attr attr, const ir_term *args, i64 arg_count)
{
    normalise(p, op, &attr);
    if (op == IR_loop)
        args = sort_set(p->a, args, &arg_count);
    u32 *slot = find_slot(p, op, &attr, args, arg_count);
    if (*slot)
        return (ir_term){*slot};
    ir_type type = ir_type_of(p, p->a, op, &attr, args, arg_count);
    if (type.wrong)
        eqf_throw(p->ctx, EQF_E_TYPE, p->file, intern_text(p->names, p->origin), "%s: %s",
                  ir_row(op)->name, type.wrong);
    if (p->nodes.n >= UINT32_MAX)
        eqf_throw(p->ctx, EQF_E_LIMIT, p->file, NULL, "too many terms");
    attr.axis.at = arena_copy(p->a, attr.axis.at, attr.axis.n * (i64)sizeof(ir_atom));
    attr.to.at = arena_copy(p->a, attr.to.at, attr.to.n * (i64)sizeof(ir_atom));
    attr.ints.at = arena_copy(p->a, attr.ints.at, attr.ints.n * (i64)sizeof(i64));
    attr.par.at = arena_copy(p->a, attr.par.at, attr.par.n * (i64)sizeof(ir_atom));
    ir_node node = {
        .op = (u16)op,
        .dtype = (u8)type.dtype,
        .attr = attr,
        .args = arena_copy(p->a, args, arg_count * (i64)sizeof *args),
        .arg_count = arg_count,
        .dims = type.dims,
        .origin = p->origin,
        .axes = type.axes,
        .runs = type.runs,
        .is_open = type.is_open,
    };
    if (op == IR_run) {
        ir_term *self = NEW(p->a, ir_term);
        self->i = (u32)p->nodes.n;
        node.runs = ir_terms_union(p->a, type.runs, (ir_terms){self, 1});
    }
    if (2 * (p->nodes.n + 1) > p->slot_count) {
        grow_slots(p);
        slot = find_slot(p, op, &attr, args, arg_count);
    }
    ir_term t = {(u32)p->nodes.n};
    vec_push(p->a, &p->nodes, node);
    *slot = t.i;
    return t;
}

/* ---- ports ---------------------------------------------------------------------------------- */

static ir_port copy_port(ir_program *p, const ir_port *port)
{
    ir_port copy = *port;
    ir_dim *dims = NEW_N(p->a, ir_dim, port->rank);
    for (i64 i = 0; i < port->rank; i++) {
        ir_atoms atoms = port->dims[i].atoms;
        dims[i] = port->dims[i];
        dims[i].atoms.at = arena_copy(p->a, atoms.at, atoms.n * (i64)sizeof(ir_atom));
    }
    copy.dims = dims;
    copy.symbols = NULL;
    if (port->symbols) {
        const char **symbols = NEW_N(p->a, const char *, port->rank);
        for (i64 i = 0; i < port->rank; i++)
            symbols[i] = port->symbols[i] ? arena_strdup(p->a, port->symbols[i]) : NULL;
        copy.symbols = symbols;
    }
    return copy;
}

static _Noreturn void port_throw(ir_program *p, const ir_port *port, const char *what,
                                 const char *wrong)
{
    const char *origin = intern_text(p->names, p->origin),
               *name = intern_text(p->names, port->name);
    eqf_throw(p->ctx, EQF_E_TYPE, p->file, *origin ? origin : name, "%s %s: %s", what, name, wrong);
}

i64 ir_add_input(ir_program *p, ir_port port)
{
    const char *wrong = ir_port_wrong(p, p->a, &port, false);
    if (!wrong && port.role > IR_CONSTANT)
        wrong = "no such role";
    if (!wrong && name_info(p, port.name)->input)
        wrong = "there is an input of this name already";
    if (wrong)
        port_throw(p, &port, "input", wrong);
    port = copy_port(p, &port);
    port.term = (ir_term){0};
    port.writes = 0;
    bool is_empty = false;
    for (i64 i = 0; i < port.rank; i++)
        is_empty = is_empty || port.dims[i].extent == 0;
    i64 index = p->inputs.n;
    if (index >= UINT32_MAX - 1)
        eqf_throw(p->ctx, EQF_E_LIMIT, p->file, NULL, "too many inputs");
    vec_push(p->a, &p->inputs, port);
    name_info(p, port.name)->input = (u32)index + 1;
    if (!is_empty) {
        ir_term t = ir_make(p, IR_in, (ir_attr){.name = port.name}, NULL, 0);
        p->inputs.at[index].term = t;
    }
    return index;
}

void ir_add_output(ir_program *p, ir_port port)
{
    if (port.dtype == DT_NONE && port.term.i && (i64)port.term.i < p->nodes.n)
        port.dtype = p->nodes.at[port.term.i].dtype;
    const char *wrong = ir_port_wrong(p, p->a, &port, true);
    if (!wrong && name_info(p, port.name)->output)
        wrong = "there is an output of this name already";
    if (wrong)
        port_throw(p, &port, "output", wrong);
    if (p->outputs.n >= UINT32_MAX - 1)
        eqf_throw(p->ctx, EQF_E_LIMIT, p->file, NULL, "too many outputs");
    vec_push(p->a, &p->outputs, copy_port(p, &port));
    name_info(p, port.name)->output = (u32)p->outputs.n;
}
