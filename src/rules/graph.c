/* The tensor language on the engine: operators, payloads, leaves, types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "egraph/rules.h"
#include "ir/type.h"
#include "rules/graph_impl.h"

void rl_must(rl_graph *g, eqf_status status)
{
    if (status == EQF_E_CONTRADICTION && g->has_conflict) {
        eqf_forget_from(g->ctx, eqf_diag_count(g->ctx) - 1); /* the engine knows no types */
        eqf_throw(g->ctx, status, g->p->file, g->conflict_rule,
                  "a union of different types: %s and %s",
                  rl_graph_type_text(g, g->a, &g->conflict[0]),
                  rl_graph_type_text(g, g->a, &g->conflict[1]));
    }
    if (status)
        eqf_rethrow(g->ctx, status);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static u64 atom_bit(const rl_graph *g, ir_atom d)
{
    return d.i ? (u64)1 << (g->atom_index.at[d.i] - 1) : 0;
}

u64 rl_mask(const rl_graph *g, ir_atoms set)
{
    u64 mask = 0;
    for (i64 i = 0; i < set.n; i++)
        mask |= atom_bit(g, set.at[i]);
    return mask;
}

ir_atoms rl_unmask(const rl_graph *g, arena *a, u64 mask)
{
    ir_atom *at = NEW_N(a, ir_atom, __builtin_popcountll(mask));
    i64 n = 0;
    for (; mask; mask &= mask - 1)
        at[n++] = g->atom[__builtin_ctzll(mask)];
    return (ir_atoms){at, n};
}

/* ---- payloads -------------------------------------------------------------------------------- */

static bool same_list(ir_atoms a, ir_atoms b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at) == 0);
}

static bool same_attr(const ir_attr *x, const ir_attr *y)
{
    return x->dtype == y->dtype && x->reducer == y->reducer && x->name == y->name &&
           same_list(x->axis, y->axis) && same_list(x->to, y->to) && same_list(x->par, y->par) &&
           x->ints.n == y->ints.n &&
           (x->ints.n == 0 ||
            memcmp(x->ints.at, y->ints.at, (size_t)x->ints.n * sizeof *x->ints.at) == 0);
}

static u32 find_payload(const rl_graph *g, const ir_attr *attr)
{
    for (i64 i = 1; i < g->payloads.n; i++)
        if (same_attr(&g->payloads.at[i].attr, attr))
            return (u32)i;
    return 0;
}

/* Operators of the engine are rows; these, rows with a reducer. */
static bool has_reducer(ir_op op)
{
    return op == IR_reduce || op == IR_comp;
}

u32 rl_payload_id(rl_graph *g, ir_op op, ir_attr attr)
{
    if (has_reducer(op))
        attr.reducer = IR_NO_REDUCER; /* it is in the operator */
    bool is_bare = !attr.dtype && !attr.reducer && !attr.name && attr.axis.n == 0 &&
                   attr.to.n == 0 && attr.par.n == 0 && attr.ints.n == 0;
    if (is_bare)
        return 0;
    u32 known = find_payload(g, &attr);
    if (known)
        return known;
    rl_payload p = {.attr = attr,
                    .axis = rl_mask(g, attr.axis),
                    .to = rl_mask(g, attr.to),
                    .par = rl_mask(g, attr.par)};
    p.attr.axis.at = arena_copy(g->a, attr.axis.at, attr.axis.n * (i64)sizeof(ir_atom));
    p.attr.to.at = arena_copy(g->a, attr.to.at, attr.to.n * (i64)sizeof(ir_atom));
    p.attr.par.at = arena_copy(g->a, attr.par.at, attr.par.n * (i64)sizeof(ir_atom));
    p.attr.ints.at = arena_copy(g->a, attr.ints.at, attr.ints.n * (i64)sizeof(i64));
    p.each = NEW_N(g->a, u64, attr.axis.n);
    for (i64 i = 0; i < attr.axis.n; i++)
        p.each[i] = atom_bit(g, attr.axis.at[i]);
    vec_push(g->a, &g->payloads, p);
    return (u32)g->payloads.n - 1;
}

u32 rl_axis_payload(rl_graph *g, ir_op op, u64 axis)
{
    return rl_payload_id(g, op, (ir_attr){.axis = rl_unmask(g, g->a, axis)});
}

u32 rl_par_payload(rl_graph *g, ir_op op, u64 axes)
{
    return rl_payload_id(g, op, (ir_attr){.par = rl_unmask(g, g->a, axes)});
}

static void print_names(const rl_graph *g, str *out, ir_atoms list, bool blank_first)
{
    for (i64 i = 0; i < list.n; i++) {
        if (i || blank_first)
            str_add_char(out, ' ');
        const char *name = ir_atom_name(g->own, list.at[i]);
        sx quoted = {.kind = SX_STRING, .text = name, .n = (i64)strlen(name)};
        if (strpbrk(name, " \t\n(){}[];\"\\") || !*name)
            sx_print(out, &quoted);
        else
            str_add(out, name);
    }
}

static void print_atoms(const rl_graph *g, str *out, ir_atoms list, const char *brackets)
{
    str_add_char(out, brackets[0]);
    print_names(g, out, list, false);
    str_add_char(out, brackets[1]);
}

/* " :axis {M K}" or " :par {M K}" of a set; " :map (N AXIS... N TO... N INT... dtype reducer name
 * PAR...)" of anything else: flat, because readers may drop brackets around one item. */
static void print_payload(void *user, str *out, u32 payload)
{
    const rl_graph *g = user;
    const ir_attr *x = &g->payloads.at[payload].attr;
    if (!x->to.n && !x->ints.n && !x->dtype && !x->reducer && !x->name &&
        (!x->par.n || !x->axis.n)) {
        str_add(out, x->par.n ? " :par " : " :axis ");
        print_atoms(g, out, x->par.n ? x->par : x->axis, "{}");
        return;
    }
    str_printf(out, " :map (%lld", (long long)x->axis.n);
    print_names(g, out, x->axis, true);
    str_printf(out, " %lld", (long long)x->to.n);
    print_names(g, out, x->to, true);
    str_printf(out, " %lld", (long long)x->ints.n);
    for (i64 i = 0; i < x->ints.n; i++)
        str_printf(out, " %lld", (long long)x->ints.at[i]);
    str_printf(out, " %s %s", dtype_name((dtype)x->dtype), ir_reducer_text((ir_reducer)x->reducer));
    sx name = {.kind = SX_STRING, .text = intern_text(g->own->names, x->name)};
    name.n = (i64)strlen(name.text);
    str_add_char(out, ' ');
    sx_print(out, &name);
    print_names(g, out, x->par, true);
    str_add(out, ")");
}

typedef struct payload_reader {
    rl_graph *g;
    arena *a;
    VEC(const sx *) at;
    i64 next;
    bool failed;
} payload_reader;

static void flatten(payload_reader *r, const sx *x)
{
    if (x->kind != SX_LIST)
        vec_push(r->a, &r->at, x);
    for (i64 i = 0; x->kind == SX_LIST && i < x->n; i++)
        flatten(r, x->at[i]);
}

static const sx *next_item(payload_reader *r)
{
    static const sx none = {.kind = SX_STRING, .text = ""};
    if (r->next < r->at.n)
        return r->at.at[r->next++];
    r->failed = true;
    return &none;
}

static i64 next_int(payload_reader *r)
{
    const sx *x = next_item(r);
    r->failed = r->failed || x->kind != SX_INT;
    return x->i;
}

static i64 next_count(payload_reader *r)
{
    i64 n = next_int(r);
    r->failed = r->failed || n < 0 || n > r->at.n - r->next;
    return r->failed ? 0 : n;
}

static ir_atoms next_atoms(payload_reader *r, i64 n)
{
    ir_atom *at = NEW_N(r->a, ir_atom, n);
    for (i64 i = 0; i < n; i++) {
        const sx *x = next_item(r);
        u32 id = intern_find(r->g->own->names, x->text, x->n);
        at[i] = id ? ir_atom_find(r->g->own, id) : (ir_atom){0};
        if (at[i].i ? (i64)at[i].i >= r->g->atom_index.n || !r->g->atom_index.at[at[i].i]
                    : strcmp(x->text, ir_atom_name(r->g->own, at[i])) != 0)
            r->failed = true;
    }
    return (ir_atoms){at, n};
}

static ir_attr next_map(payload_reader *r)
{
    ir_attr x = {.axis = next_atoms(r, next_count(r))};
    x.to = next_atoms(r, next_count(r));
    i64 n = next_count(r), *ints = NEW_N(r->a, i64, n);
    for (i64 i = 0; i < n; i++)
        ints[i] = next_int(r);
    x.ints.at = ints;
    x.ints.n = n;
    const char *type = next_item(r)->text, *reducer = next_item(r)->text;
    x.dtype = (u8)dtype_find(type);
    for (int k = 0; k < IR_REDUCER_COUNT; k++)
        if (strcmp(ir_reducer_text((ir_reducer)k), reducer) == 0)
            x.reducer = (u8)k;
    const sx *name = next_item(r);
    x.name = intern_find(r->g->own->names, name->text, name->n);
    x.par = next_atoms(r, r->at.n - r->next);
    return x;
}

/* Sets of atoms and numbers alone say nothing that typing does not check; index maps and the like
 * are those of programs. */
static bool may_be_new(const rl_graph *g, const ir_attr *x)
{
    bool is_map = x->axis.n > 0 && (x->to.n > 0 || x->ints.n > 0 || x->par.n > 0);
    return g->reads_payloads && !is_map && !x->dtype && !x->reducer && !x->name;
}

/* Text names payloads that exist: terms and proofs printed by this graph. One that replays the
 * proofs of another makes those that it can check. */
u32 rl_payload_of_text(rl_graph *g, const sx *const *keywords, i64 n)
{
    arena *scratch = arena_child(g->a);
    payload_reader r = {.g = g, .a = scratch};
    for (i64 i = 1; i < n; i++)
        flatten(&r, keywords[i]);
    const char *key = n > 1 && keywords[0]->kind == SX_SYMBOL ? keywords[0]->text : "";
    ir_attr attr = {0};
    if (strcmp(key, ":par") == 0)
        attr.par = next_atoms(&r, r.at.n);
    else if (strcmp(key, ":axis") == 0)
        attr.axis = next_atoms(&r, r.at.n);
    else if (strcmp(key, ":map") == 0)
        attr = next_map(&r);
    else
        r.failed = true;
    u32 payload = r.failed ? 0 : find_payload(g, &attr);
    if (!r.failed && !payload && may_be_new(g, &attr))
        payload = rl_payload_id(g, IR_NO_OP, attr);
    arena_free(scratch);
    return payload;
}

static bool read_payload(void *user, const sx *const *keywords, i64 n, u32 *payload)
{
    *payload = rl_payload_of_text(user, keywords, n);
    return *payload != 0;
}

/* ---- operators and leaves -------------------------------------------------------------------- */

const char *rl_operator_name(arena *a, ir_op op, ir_reducer reducer)
{
    if (has_reducer(op) && reducer != IR_NO_REDUCER)
        return arena_printf(a, "%s.%s", ir_row(op)->name, ir_reducer_text(reducer));
    return ir_row(op)->name;
}

i64 rl_component_set(const rl_graph *g, eqf_class *comps, i64 n)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        eqf_class c = eqf_find(g->engine, comps[i]);
        i64 j = count;
        while (j > 0 && comps[j - 1].i > c.i)
            j--;
        if (j > 0 && comps[j - 1].i == c.i)
            continue;
        memmove(comps + j + 1, comps + j, (size_t)(count - j) * sizeof *comps);
        comps[j] = c;
        count++;
    }
    return count;
}

/* Components of a bundle are a set: its e-node's operands are sorted, each once. */
static bool sort_components(void *user, eg *e, u32 *head, u32 *kids)
{
    rl_graph *g = user;
    i64 n = eg_head_arity(g->lang, *head);
    eqf_class set[1000];
    bool is_sorted = true;
    (void)e;
    for (i64 i = 0; i < n; i++) {
        set[i].i = kids[i];
        is_sorted = is_sorted && (i == 0 || kids[i - 1] < kids[i]);
    }
    if (is_sorted)
        return false;
    i64 count = rl_component_set(g, set, n);
    trap t;
    TRY (g->ctx, t)
        if (count < n)
            *head = rl_operator_head(g, IR_loop, IR_NO_REDUCER, count,
                                     eqf_head_payload(g->lang, (eqf_head){*head}))
                        .i;
    if (t.status) /* no room: it stays as it is, equal and sound */
        return false;
    for (i64 i = 0; i < count; i++)
        kids[i] = set[i].i;
    return true;
}

eqf_head rl_operator_head(rl_graph *g, ir_op op, ir_reducer reducer, i64 arity, u32 payload)
{
    eqf_op id;
    eqf_head head;
    bool unordered = arity == 2 && (ir_row(op)->flags & IR_COMM);
    if (!has_reducer(op))
        reducer = IR_NO_REDUCER;
    rl_must(g, eqf_lang_op(g->lang, rl_operator_name(g->a, op, reducer), (unsigned)arity,
                           unordered ? EQF_COMMUTATIVE : 0, &id));
    if ((i64)id.i >= g->operators.n || g->operators.at[id.i].op == IR_NO_OP) {
        vec_reserve(g->a, &g->operators, (i64)id.i + 1);
        g->operators.n = MAX(g->operators.n, (i64)id.i + 1);
        g->operators.at[id.i] = (rl_operator){op, reducer};
        eg_payload_form *form = NEW(g->a, eg_payload_form);
        *form = (eg_payload_form){read_payload, print_payload, g};
        if (ir_attrs_of(op))
            eg_lang_hooks(g->lang, id.i, op == IR_loop ? sort_components : NULL, g, form);
    }
    rl_must(g, eqf_head_of(g->lang, id, payload, &head));
    return head;
}

eqf_head rl_leaf_head(rl_graph *g, const char *name, rl_leaf leaf)
{
    eqf_head head;
    rl_must(g, eqf_head_symbol(g->lang, eqf_text_of(name), &head));
    if ((i64)head.i >= g->leaves.n || g->leaves.at[head.i].op == IR_NO_OP) {
        vec_reserve(g->a, &g->leaves, (i64)head.i + 1);
        g->leaves.n = MAX(g->leaves.n, (i64)head.i + 1);
        g->leaves.at[head.i] = leaf;
    }
    return head;
}

const rl_leaf *rl_leaf_of(const rl_graph *g, eqf_head head)
{
    if ((i64)head.i >= g->leaves.n || g->leaves.at[head.i].op == IR_NO_OP)
        return NULL;
    return &g->leaves.at[head.i];
}

static eqf_head number_head(rl_graph *g, dtype t, f64 f, i64 i)
{
    str name = str_new(g->a);
    str_add_char(&name, '#');
    if (dtype_is_float(t))
        str_add_f64(&name, f);
    else
        str_printf(&name, "%lld:%s", (long long)i, dtype_name(t));
    rl_label l = {.op = IR_const, .dtype = t, .number = dtype_is_float(t) ? f : (f64)i};
    u64 bad = 0;
    rl_leaf leaf = {IR_const, {.dtype = (u8)t, .f = f, .i = i}, rl_type_of(&l, NULL, 0, &bad), 0};
    return rl_leaf_head(g, str_text(&name), leaf);
}

eqf_head rl_number_head(rl_graph *g, dtype t, f64 value)
{
    return dtype_is_float(t) ? number_head(g, t, value == 0 ? 0 : value, 0)
                             : number_head(g, t, 0, (i64)value);
}

void rl_add_number(rl_graph *g, const char *text)
{
    char *end;
    const char *type = strchr(text, ':');
    if (text[0] != '#')
        return;
    if (!type) {
        f64 value = strtod(text + 1, &end);
        if (end > text + 1 && !*end)
            number_head(g, g->real, value, 0);
        return;
    }
    dtype t = dtype_find(type + 1);
    i64 value = strtoll(text + 1, &end, 10);
    if (end == type && t != DT_NONE && !dtype_is_float(t))
        number_head(g, t, 0, value);
}

static bool is_folded(const rl_graph *g, const ir_port *port, i64 input)
{
    if (g->options.parameters_are_inputs ||
        (port->role != IR_PARAMETER && port->role != IR_CONSTANT))
        return false;
    for (i64 i = 0; i < g->p->outputs.n; i++)
        if (g->p->outputs.at[i].writes == input + 1)
            return false;
    return true;
}

dtype rl_graph_dtype(const rl_graph *g, dtype t)
{
    return dtype_is_float(t) ? g->real : t;
}

eqf_head rl_const_head(rl_graph *g, const ir_node *node)
{
    return number_head(g, rl_graph_dtype(g, (dtype)node->dtype),
                       node->attr.f == 0 ? 0 : node->attr.f, node->attr.i);
}

eqf_head rl_iota_head(rl_graph *g, ir_atom k)
{
    ir_attr attr = {.axis = {arena_copy(g->a, &k, sizeof k), 1}};
    rl_leaf leaf = {
        IR_iota,
        attr,
        {.dims = rl_mask(g, attr.axis), .dtype = DT_i64, .facts = RL_CONSTANT | RL_INDEX | RL_SPREAD},
        0};
    return rl_leaf_head(g, arena_printf(g->a, "#iota:%s", ir_atom_name(g->own, k)), leaf);
}

eqf_head rl_input_head(rl_graph *g, i64 input)
{
    const ir_port *port = &g->p->inputs.at[input];
    const ir_node *node = ir_get(g->p, port->term);
    rl_leaf leaf = {IR_in, node->attr, {.dims = rl_mask(g, node->dims), .facts = RL_LOAD}, input};
    leaf.type.dtype = (u8)rl_graph_dtype(g, (dtype)node->dtype);
    if (is_folded(g, port, input))
        leaf.type.facts |= RL_CONSTANT;
    const char *name = intern_text(g->p->names, node->attr.name);
    if (name[0] == '#' || !name[0])
        name = arena_printf(g->a, "##%s", name);
    return rl_leaf_head(g, name, leaf);
}

/* ---- types ----------------------------------------------------------------------------------- */

rl_label rl_label_of(const rl_graph *g, ir_op op, ir_reducer reducer, u32 payload)
{
    const rl_payload *p = &g->payloads.at[payload];
    return (rl_label){.op = op,
                      .reducer = reducer,
                      .dtype = (dtype)p->attr.dtype,
                      .axis = p->axis,
                      .to = p->to,
                      .each = p->each,
                      .par = p->par,
                      .ragged = g->ragged,
                      .result = op == IR_comp && p->attr.ints.n == 1 ? p->attr.ints.at[0] : 0};
}

rl_label rl_node_label(const rl_graph *g, eqf_head head)
{
    const rl_operator *o = &g->operators.at[eqf_head_op(g->lang, head).i];
    return rl_label_of(g, o->op, o->reducer, eqf_head_payload(g->lang, head));
}

static f64 elements(const rl_graph *g, u64 dims)
{
    f64 n = 1;
    for (; dims; dims &= dims - 1)
        n *= (f64)g->extent[__builtin_ctzll(dims)];
    return n;
}

/* Is a constant of this e-node stored at more than twice the size of what it is made of? */
static bool is_spread(const rl_graph *g, const rl_label *l, const rl_type *t, const rl_type *x, i64 n)
{
    f64 below = 0;
    if (!(t->facts & RL_CONSTANT) || ir_row(l->op)->class_ != IR_EWISE)
        return false;
    for (i64 i = 0; i < n; i++)
        below += x[i].facts & (RL_IS_NUMBER | RL_SPREAD) ? 0 : elements(g, x[i].dims);
    return 2 * below < elements(g, t->dims);
}

static void make_type(void *user, eqf_egraph *e, eqf_node n, void *out)
{
    const rl_graph *g = user;
    eqf_head head = eqf_node_head(e, n);
    const rl_leaf *leaf = rl_leaf_of(g, head);
    rl_type *type = out, few[8], *x = few;
    if (leaf) {
        *type = leaf->type;
        return;
    }
    i64 arity = eqf_head_arity(g->lang, head);
    rl_type many[1000];
    if (arity > COUNT_OF(few))
        x = many;
    for (i64 i = 0; i < arity; i++)
        x[i] = *(const rl_type *)eqf_data(e, g->type_column, eqf_node_child(e, n, (unsigned)i));
    rl_label l = rl_node_label(g, head);
    u64 bad = 0;
    *type = rl_type_of(&l, x, arity, &bad);
    if (bad)
        type->dtype = DT_NONE;
    else if (is_spread(g, &l, type, x, arity))
        type->facts |= RL_SPREAD;
}

static bool is_same_number(f64 a, f64 b)
{
    return a == b || (isnan(a) && isnan(b));
}

static unsigned merge_types(void *user, eqf_egraph *e, void *into, const void *from)
{
    rl_graph *g = user;
    rl_type *a = into;
    const rl_type *b = from;
    u8 facts = a->facts | b->facts;
    bool both = a->facts & b->facts & RL_IS_NUMBER;
    if (a->dims != b->dims || a->axes != b->axes || a->dtype != b->dtype || a->kind != b->kind ||
        a->closed != b->closed || (both && !is_same_number(a->number, b->number))) {
        if (!g->has_conflict) {
            g->has_conflict = true;
            g->conflict[0] = *a;
            g->conflict[1] = *b;
            g->conflict_rule = e->rule_name;
        }
        return EQF_CONFLICT;
    }
    unsigned bits =
        (facts != a->facts ? EQF_INTO_CHANGED : 0u) | (facts != b->facts ? EQF_FROM_DIFFERED : 0u);
    if (!(a->facts & RL_IS_NUMBER))
        a->number = b->number;
    a->facts = facts;
    return bits;
}

/* ---- making one -------------------------------------------------------------------------------
 */

static void number_atoms(rl_graph *g, const bool *live)
{
    const ir_program *p = g->p;
    bool *used = NEW_N(g->a, bool, p->atoms.n);
    for (i64 k = 1; k < p->nodes.n; k++) {
        const ir_node *node = &p->nodes.at[k];
        if (!live[k])
            continue;
        for (i64 i = 0; i < node->dims.n; i++)
            used[node->dims.at[i].i] = true;
        for (i64 i = 0; i < node->attr.axis.n; i++)
            used[node->attr.axis.at[i].i] = true;
        for (i64 i = 0; i < node->attr.to.n; i++)
            used[node->attr.to.at[i].i] = true;
        for (i64 i = 0; i < node->attr.par.n; i++)
            used[node->attr.par.at[i].i] = true;
        if (dtype_is_float((dtype)node->dtype))
            g->real = node->dtype == DT_f64 ? DT_f64 : g->real;
    }
    for (i64 d = 1; d < p->atoms.n; d++) {
        if (used[d])
            rl_number_atom(g, (ir_atom){(u32)d});
    }
}

void rl_number_atom(rl_graph *g, ir_atom d)
{
    if (g->n_atoms == 64)
        eqf_throw(g->ctx, EQF_E_LIMIT, g->p->file, NULL,
                  "more than 64 dims in one subgraph; it has to be cut");
    while (g->atom_index.n <= (i64)d.i)
        vec_push(g->a, &g->atom_index, 0);
    if (ir_is_ragged(g->own, d))
        g->ragged |= (u64)1 << g->n_atoms;
    g->atom[g->n_atoms] = d;
    g->extent[g->n_atoms++] = ir_extent(g->own, d);
    g->atom_index.at[d.i] = (u8)g->n_atoms;
}

static void release(void *p)
{
    rl_graph *g = p;
    for (i64 i = 0; i < g->loaded.n; i++)
        eqf_rules_free(g->loaded.at[i]);
    eqf_egraph_free(g->engine);
    eqf_lang_free(g->lang);
}

rl_graph *rl_graph_new(arena *a, const ir_program *p, const rl_graph_options *options)
{
    rl_graph *g = NEW(a, rl_graph);
    g->a = a;
    g->ctx = arena_ctx(a);
    g->p = p;
    g->options = *options;
    g->real = DT_f32;
    g->own = ir_program_new(a, p->file, "");
    rl_copy_atoms(g->own, p);
    g->classes = NEW_N(a, eqf_class, p->nodes.n);
    vec_push(a, &g->payloads, (rl_payload){0});
    bool *live = NEW_N(a, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        live[p->outputs.at[i].term.i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--)
        for (i64 i = 0; live[k] && i < p->nodes.at[k].arg_count; i++)
            live[p->nodes.at[k].args[i].i] = true;
    live[0] = false;
    number_atoms(g, live);
    arena_defer(a, release, g);
    rl_must(g, eqf_lang_new(g->ctx, &g->lang));
    eqf_options engine = {.limits = options->limits,
                          .explain = options->explain,
                          .cancelled = options->cancelled,
                          .user = options->user};
    rl_must(g, eqf_egraph_new(g->lang, &engine, &g->engine));
    eqf_analysis types = {.name = "type",
                          .size = sizeof(rl_type),
                          .make = make_type,
                          .merge = merge_types,
                          .user = g};
    rl_must(g, eqf_analysis_add(g->engine, &types, &g->type_column));
    rl_enter(g);
    rl_must(g, eqf_rebuild(g->engine));
    rl_arm(g);
    return g;
}

/* ---- questions ------------------------------------------------------------------------------- */

eqf_egraph *rl_graph_engine(const rl_graph *g)
{
    return g->engine;
}

const eqf_rules *rl_graph_rules(const rl_graph *g)
{
    return g->rules;
}

i64 rl_graph_rule_counts(const rl_graph *g, arena *a, rl_rule_count **out)
{
    const eqf_egraph *e = g->engine;
    rl_rule_count *at = *out = NEW_N(a, rl_rule_count, e->nrules);
    i64 n = 0;
    for (u32 k = 0; k < e->nrules; k++) {
        const char *name = ((const eg_rule *)e->rule[k].rule)->name;
        const eqf_rule_stats *s = &e->rule[k].stats;
        i64 i = 0; /* a rule that was loaded again has a state for each time */
        while (i < n && strcmp(at[i].name, name) != 0)
            i++;
        if (i == n)
            at[n++] = (rl_rule_count){.name = name};
        at[i].stats.searches += s->searches;
        at[i].stats.matches += s->matches;
        at[i].stats.applied += s->applied;
        at[i].stats.nodes += s->nodes;
        at[i].stats.unions += s->unions;
        at[i].stats.bans += s->bans;
        at[i].stats.seconds += s->seconds;
    }
    return n;
}

eqf_class rl_graph_class(const rl_graph *g, ir_term t)
{
    eqf_class c = g->classes[t.i];
    return c.i ? eqf_find(g->engine, c) : c;
}

rl_type rl_graph_type(const rl_graph *g, eqf_class c)
{
    return *(const rl_type *)eqf_data(g->engine, g->type_column, c);
}

const char *rl_graph_type_text(const rl_graph *g, arena *a, const rl_type *t)
{
    str s = str_new(a);
    static const char *const kinds[] = {[IR_A_COMPONENT] = "component ",
                                        [IR_A_BUNDLE] = "bundle ",
                                        [IR_A_LAMBDA] = "lambda ",
                                        [IR_A_REDUCER] = "reducer "};
    if (t->kind != IR_A_VALUE)
        str_add(&s, kinds[t->kind]);
    str_printf(&s, "%s ", dtype_name((dtype)t->dtype));
    print_atoms(g, &s, rl_unmask(g, a, t->dims), "{}");
    ir_atoms axes = rl_unmask(g, a, t->axes);
    for (i64 i = 0; i < axes.n; i++)
        str_printf(&s, ", %s %s", ir_atom_name(g->own, axes.at[i]),
                   rl_mask(g, (ir_atoms){&axes.at[i], 1}) & t->dims ? "partition" : "partial");
    if (t->facts & RL_IS_NUMBER) {
        str_add(&s, " = ");
        str_add_f64(&s, t->number);
    }
    return str_text(&s);
}

f64 rl_graph_flops(const rl_graph *g, eqf_node n)
{
    eqf_head head = eqf_node_head(g->engine, n);
    if (rl_leaf_of(g, head) || (rl_graph_type(g, eqf_node_class(g->engine, n)).facts & RL_CONSTANT))
        return 0;
    u64 dims = rl_graph_type(g, eqf_node_class(g->engine, n)).dims;
    rl_label l = rl_node_label(g, head);
    u8 class = ir_row(l.op)->class_;
    if (class == IR_EWISE || (l.op == IR_comp && l.reducer != IR_NO_REDUCER))
        return elements(g, dims);
    if (class == IR_MATMUL || l.op == IR_tile_matmul)
        return 2 * elements(g, dims | l.axis);
    if (class == IR_REDUCE)
        return elements(g, dims | l.axis);
    return l.op == IR_scan || l.op == IR_opaque ? elements(g, dims) : 0;
}

eqf_run_report rl_graph_saturate(rl_graph *g, const eqf_schedule *schedule)
{
    return rl_run(g, g->rules, schedule);
}

eqf_run_report rl_graph_algebra(rl_graph *g)
{
    eqf_limits all = g->options.limits, own = all;
    if (own.nodes > 0)
        own.nodes = MAX(own.nodes / 4, 1);
    eqf_egraph_set_limits(g->engine, own);
    eqf_run_report report = rl_graph_saturate(g, NULL);
    eqf_egraph_set_limits(g->engine, all);
    return report;
}

eqf_run_report rl_run(rl_graph *g, const eqf_rules *rules, const eqf_schedule *schedule)
{
    eqf_run_report report;
    g->has_conflict = false;
    rl_must(g, eqf_run(g->engine, rules, schedule, &report));
    return report;
}
