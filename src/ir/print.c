/* Programs as text, in the grammar of docs/language.md. Every term that is used twice, or whose
 * line would get long, is bound by `let`, so the text is linear in the program; reading it gives
 * the same program, and printing that the same text. */
#include "ir/type.h"

#define LINE 76 /* longest term written inside another */
#define MAX_DEPTH 200
#define MAX_TEXT 65536

static bool is_plain(const char *s)
{
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_'))
        return false;
    for (const char *q = s; *q; q++)
        if (!((*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z') || (*q >= '0' && *q <= '9') ||
              strchr("_.'/-", *q)))
            return false;
    return strcmp(s, "inf") != 0 && strcmp(s, "nan") != 0;
}

static void add_quoted(str *out, const char *s)
{
    sx x = {.kind = SX_STRING, .text = s, .n = (i64)strlen(s)};
    sx_print(out, &x);
}

static void add_name(str *out, const char *s)
{
    if (is_plain(s))
        str_add(out, s);
    else
        add_quoted(out, s);
}

static void add_atom(str *out, const ir_program *p, ir_atom d)
{
    if (d.i)
        add_name(out, ir_atom_name(p, d));
    else
        str_add_char(out, '-');
}

/* One atom bare, otherwise in the given brackets. */
static void add_atoms(str *out, const ir_program *p, ir_atoms list, const char *brackets)
{
    if (list.n == 1) {
        add_atom(out, p, list.at[0]);
        return;
    }
    str_add_char(out, brackets[0]);
    for (i64 i = 0; i < list.n; i++) {
        if (i)
            str_add_char(out, ' ');
        add_atom(out, p, list.at[i]);
    }
    str_add_char(out, brackets[1]);
}

static void add_ints(str *out, const i64 *at, i64 n)
{
    str_add_char(out, '(');
    for (i64 i = 0; i < n; i++)
        str_printf(out, "%s%lld", i ? " " : "", (long long)at[i]);
    str_add_char(out, ')');
}

static void add_number(str *out, const ir_node *node)
{
    if (dtype_is_float(node->dtype))
        str_add_f64(out, node->attr.f);
    else
        str_printf(out, "%lld", (long long)node->attr.i);
}

/* Does the dtype of a bare literal as operand `i` follow from another operand? */
static bool is_bare(const ir_program *p, const ir_node *node, i64 i)
{
    if (p->nodes.at[node->args[i].i].op != IR_const || !ir_is_sibling(node->op, i, node->arg_count))
        return false;
    for (i64 j = 0; j < node->arg_count; j++)
        if (ir_is_sibling(node->op, j, node->arg_count) &&
            p->nodes.at[node->args[j].i].op != IR_const)
            return true;
    return false;
}

/* A constant, an atom, or a sum of such and of multiples. */
static void add_affine(str *out, const ir_program *p, const i64 *at, ir_atoms atoms)
{
    i64 parts = at[0] != 0, last = 0;
    for (i64 i = 0; i < atoms.n; i++)
        if (at[1 + i] != 0) {
            parts++;
            last = i;
        }
    if (parts == 0 || (parts == 1 && at[0] != 0)) {
        str_printf(out, "%lld", (long long)at[0]);
        return;
    }
    if (parts == 1 && at[1 + last] == 1) {
        add_atom(out, p, atoms.at[last]);
        return;
    }
    str_add(out, "(+");
    if (at[0] != 0)
        str_printf(out, " %lld", (long long)at[0]);
    for (i64 i = 0; i < atoms.n; i++) {
        if (at[1 + i] == 0)
            continue;
        if (at[1 + i] != 1)
            str_printf(out, " (* %lld", (long long)at[1 + i]);
        str_add_char(out, ' ');
        add_atom(out, p, atoms.at[i]);
        if (at[1 + i] != 1)
            str_add_char(out, ')');
    }
    str_add_char(out, ')');
}

static void add_visits(str *out, const ir_program *p, const ir_attr *x)
{
    i64 bound = 1 + x->to.n;
    str_add(out, " :visit (");
    for (i64 i = 0; i < x->ints.n; i += 2 * bound) {
        str_add(out, i ? " (" : "(");
        add_affine(out, p, x->ints.at + i, x->to);
        str_add_char(out, ' ');
        add_affine(out, p, x->ints.at + i + bound, x->to);
        str_add_char(out, ')');
    }
    str_add_char(out, ')');
}

static void add_tiled_attributes(str *out, const ir_program *p, const ir_node *node)
{
    const ir_attr *x = &node->attr;
    if (node->op == IR_splitdim) {
        str_add(out, " :axis ");
        add_atoms(out, p, x->axis, "()");
    }
    if (x->par.n > 0) {
        str_add(out, " :par ");
        add_atoms(out, p, x->par, "{}");
    }
    if (node->op == IR_splitdim || node->op == IR_collection) {
        str_add(out, " :to ");
        add_atoms(out, p, x->to, "()");
    }
    if (node->op == IR_loop && x->ints.n > 0)
        add_visits(out, p, x);
    if (node->op == IR_comp && x->reducer == IR_NO_REDUCER)
        str_printf(out, " :result %lld", (long long)x->ints.at[0]);
    if (node->op == IR_reducer && x->ints.at[0] != 0)
        str_add(out, " :lanes 1");
}

static void add_attributes(str *out, const ir_program *p, const ir_node *node)
{
    const ir_attr *x = &node->attr;
    u32 has = ir_attrs_of(node->op);
    if ((ir_row(node->op)->class_ == IR_TILED && node->op != IR_tile_matmul) || x->par.n > 0) {
        add_tiled_attributes(out, p, node);
        return;
    }
    if (node->op == IR_opaque) {
        str_add(out, " :name ");
        add_name(out, intern_text(p->names, x->name));
        str_printf(out, " :dtype %s", dtype_name(x->dtype));
    }
    if ((has & IR_HAS_AXIS) && node->op != IR_iota) {
        str_add(out, " :axis ");
        add_atoms(out, p, x->axis, ir_axis_is_set(node->op) ? "{}" : "()");
    }
    if (node->op == IR_slice)
        str_printf(out, " :start %lld", (long long)x->ints.at[0]);
    if ((has & IR_HAS_TO) && x->to.n > 0) {
        str_add(out, " :to ");
        add_atoms(out, p, x->to, ir_to_is_set(node->op) ? "{}" : "()");
    }
    if (node->op == IR_slice && x->to.n > 0) {
        str_add(out, " :step ");
        if (x->to.n == 1)
            str_printf(out, "%lld", (long long)x->ints.at[1]);
        else
            add_ints(out, x->ints.at + 1, x->to.n);
    }
    if ((has & IR_HAS_REDUCER) && node->op != IR_reduce && x->reducer)
        str_printf(out, " :reducer %s", ir_reducer_text(x->reducer));
    if ((has & IR_HAS_INTS) && node->op != IR_slice) {
        str_add(out, " :ints ");
        add_ints(out, x->ints.at, x->ints.n);
    }
}

typedef struct printer {
    const ir_program *p;
    str *out;
    const char **text; /* of a term as an operand; NULL: terms are written out in place */
    int depth;
    i64 start;
} printer;

static void add_operand(printer *pr, ir_term t);

static void add_node(printer *pr, ir_term t)
{
    const ir_program *p = pr->p;
    const ir_node *node = &p->nodes.at[t.i];
    str *out = pr->out;
    if (node->op == IR_in) {
        add_name(out, intern_text(p->names, node->attr.name));
        return;
    }
    str_printf(out, "(%s", ir_row(node->op)->name);
    if (node->op == IR_const || node->op == IR_cast)
        str_printf(out, " %s", dtype_name(node->attr.dtype));
    if (node->op == IR_const) {
        str_add_char(out, ' ');
        add_number(out, node);
    }
    if (node->op == IR_iota) {
        str_add_char(out, ' ');
        add_atom(out, p, node->attr.axis.at[0]);
    }
    if (node->op == IR_reduce || (node->op == IR_comp && node->attr.reducer))
        str_printf(out, " %s", ir_reducer_text(node->attr.reducer));
    if (node->op == IR_formal) {
        str_printf(out, " %lld %s ", (long long)node->attr.i, dtype_name(node->dtype));
        add_atoms(out, p, node->attr.to, "{}");
    }
    i64 formals = node->op == IR_lambda ? node->attr.ints.at[0] : -1;
    if (formals == 0)
        str_add(out, " ()");
    for (i64 i = 0; i < node->arg_count; i++) {
        str_add(out, i == 0 && formals > 0 ? " (" : i == formals && i > 0 ? ") " : " ");
        if (is_bare(p, node, i))
            add_number(out, &p->nodes.at[node->args[i].i]);
        else
            add_operand(pr, node->args[i]);
    }
    add_attributes(out, p, node);
    str_add_char(out, ')');
}

static void add_operand(printer *pr, ir_term t)
{
    if (pr->text) {
        str_add(pr->out, pr->text[t.i]);
        return;
    }
    if (pr->depth >= MAX_DEPTH || pr->out->n - pr->start > MAX_TEXT) {
        str_add(pr->out, "...");
        return;
    }
    pr->depth++;
    add_node(pr, t);
    pr->depth--;
}

void ir_print_term(str *out, const ir_program *p, ir_term t)
{
    printer pr = {.p = p, .out = out, .start = out->n};
    add_operand(&pr, t);
}

static void add_state(str *out, const ir_program *p, const ir_node *node, ir_atom axis)
{
    add_atom(out, p, axis);
    str_add(out, !ir_has(node->axes, axis)  ? " replicate"
                 : ir_has(node->dims, axis) ? " partition"
                                            : " partial");
}

void ir_print_type(str *out, const ir_program *p, ir_term t, ir_atoms axes)
{
    const ir_node *node = &p->nodes.at[t.i];
    if (ir_kind_of(node->op) == IR_A_VALUE || node->op == IR_comp) {
        str_printf(out, "%s ", dtype_name(node->dtype));
        add_atoms(out, p, node->dims, "{}");
    } else {
        str_add(out, ir_row(node->op)->name);
        return;
    }
    for (i64 i = 0; i < axes.n; i++) {
        str_add(out, ", ");
        add_state(out, p, node, axes.at[i]);
    }
}

/* ---- whole programs ------------------------------------------------------------------------- */

static void add_dims(str *out, const ir_program *p, const ir_port *port)
{
    str_add(out, " (");
    for (i64 i = 0; i < port->rank; i++) {
        const ir_dim *dim = &port->dims[i];
        if (i)
            str_add_char(out, ' ');
        if (dim->atoms.n == 0)
            str_add_char(out, dim->extent == 0 ? '0' : '1');
        else
            add_atoms(out, p, dim->atoms, "()");
    }
    str_add_char(out, ')');
}

static void add_input(str *out, const ir_program *p, const ir_port *port)
{
    static const char *const roles[] = {"input", "parameter", "buffer", "constant"};
    str_printf(out, "\n  (%s ", roles[port->role]);
    add_name(out, intern_text(p->names, port->name));
    str_printf(out, " %s", dtype_name(port->dtype));
    add_dims(out, p, port);
    if (port->symbols) {
        str_add(out, " :symbols (");
        for (i64 i = 0; i < port->rank; i++) {
            if (i)
                str_add_char(out, ' ');
            if (port->symbols[i])
                add_name(out, port->symbols[i]);
            else
                str_add_char(out, '-');
        }
        str_add_char(out, ')');
    }
    if (port->key) {
        str_add(out, " :key ");
        add_name(out, intern_text(p->names, port->key));
    }
    if (port->is_constant)
        str_add(out, " :constant 1");
    str_add_char(out, ')');
}

static void add_atom_declarations(str *out, const ir_program *p)
{
    if (p->atoms.n == 1)
        return;
    str_add(out, "\n  (dims");
    i64 line = out->n - 6;
    for (i64 i = 1; i < p->atoms.n; i++) {
        if (out->n - line > 84) {
            line = out->n;
            str_add(out, "\n       ");
        }
        str_add(out, " (");
        add_atom(out, p, (ir_atom){(u32)i});
        str_printf(out, " %lld)", (long long)p->atoms.at[i].extent);
    }
    str_add_char(out, ')');
}

static void add_splits(str *out, const ir_program *p)
{
    for (i64 i = 0; i < p->splits.n; i++) {
        ir_split s = p->splits.at[i];
        str_add(out, "\n  (split ");
        add_atom(out, p, s.whole);
        str_add_char(out, ' ');
        add_atoms(out, p, (ir_atoms){(ir_atom[]){s.outer, s.inner}, 2}, "()");
        str_add_char(out, ')');
    }
}

/* Axes that live terms have, for the comments. */
static ir_atoms live_axes(arena *a, const ir_program *p, const i64 *uses)
{
    ir_atoms all = {0};
    for (i64 k = 1; k < p->nodes.n; k++)
        if (uses[k] > 0 && p->nodes.at[k].axes.n > 0)
            all = ir_type_union(a, all, p->nodes.at[k].axes);
    return all;
}

/* References from live terms and outputs; 0: dead. */
static i64 *count_uses(arena *a, const ir_program *p)
{
    i64 *uses = NEW_N(a, i64, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        uses[p->outputs.at[i].term.i]++;
    for (i64 k = p->nodes.n - 1; k > 0; k--)
        for (i64 i = 0; uses[k] > 0 && i < p->nodes.at[k].arg_count; i++)
            uses[p->nodes.at[k].args[i].i]++;
    return uses;
}

void ir_print(str *out, const ir_program *p)
{
    str_add(out, "(program ");
    add_name(out, intern_text(p->names, p->name));
    add_atom_declarations(out, p);
    add_splits(out, p);
    for (i64 i = 0; i < p->inputs.n; i++)
        add_input(out, p, &p->inputs.at[i]);

    arena *a = arena_child(out->a);
    i64 *uses = count_uses(a, p), lets = 0;
    const char **text = NEW_N(a, const char *, p->nodes.n);
    ir_atoms axes = live_axes(a, p, uses);
    for (i64 k = 1; k < p->nodes.n; k++) {
        if (uses[k] == 0)
            continue;
        str line = str_new(a);
        printer pr = {.p = p, .out = &line, .text = text};
        add_node(&pr, (ir_term){(u32)k});
        text[k] = str_text(&line);
        if (ir_row(p->nodes.at[k].op)->class_ == IR_LEAF || (uses[k] == 1 && line.n <= LINE))
            continue;
        const char *name;
        u32 id;
        do {
            name = arena_printf(a, "t%lld", (long long)++lets);
            id = intern_find(p->names, name, (i64)strlen(name));
        } while (id && ir_input_find(p, id) >= 0);
        str_printf(out, "\n  (let %s %s)", name, text[k]);
        if (p->nodes.at[k].axes.n > 0 && p->nodes.at[k].op != IR_loop) {
            str_add(out, " ; ");
            ir_print_type(out, p, (ir_term){(u32)k}, axes);
        }
        text[k] = name;
    }
    for (i64 i = 0; i < p->outputs.n; i++) {
        const ir_port *port = &p->outputs.at[i];
        str_add(out, "\n  (output ");
        add_name(out, intern_text(p->names, port->name));
        if (port->term.i)
            str_printf(out, " %s", text[port->term.i]);
        else
            str_printf(out, " - %s", dtype_name(port->dtype));
        add_dims(out, p, port);
        if (port->writes) {
            str_add(out, " :writes ");
            add_name(out, intern_text(p->names, p->inputs.at[port->writes - 1].name));
        }
        str_add_char(out, ')');
    }
    for (i64 i = 0; i < p->preconditions.n; i++) {
        str_add(out, "\n  (precondition ");
        add_quoted(out, intern_text(p->names, p->preconditions.at[i]));
        str_add_char(out, ')');
    }
    str_add(out, ")\n");
    arena_free(a);
}
