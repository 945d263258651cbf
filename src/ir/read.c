/* Programs from text; the grammar is docs/language.md. Names of dims and of values are separate;
 * a value is an input or a `let` and must stand before its use. Every term remembers the line and
 * column of its form as its origin, which is also the place that type errors name. */
#include <stdio.h>

#include "ir/type.h"

typedef struct reader {
    ir_program *p;
    arena *scratch;
    VEC(ir_term) by_name; /* `let`s by interned name */
    i64 looked_at; /* terms, by loops that were written out */
} reader;

static _Noreturn void fail(reader *r, eqf_status status, const sx *x, const char *format, ...)
    PRINTF_LIKE(4, 5);
static _Noreturn void fail(reader *r, eqf_status status, const sx *x, const char *format, ...)
{
    char place[40];
    va_list args;
    va_start(args, format);
    str message = str_new(r->scratch);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    str_add(&message, text);
    snprintf(place, sizeof place, "%u:%u", x->line, x->column);
    eqf_throw(r->p->ctx, status, r->p->file, place, "%s", str_text(&message));
}

static void set_origin(reader *r, const sx *x)
{
    char place[40];
    snprintf(place, sizeof place, "%u:%u", x->line, x->column);
    r->p->origin = intern_cstr(r->p->names, place);
}

static bool is_name(const sx *x)
{
    return x->kind == SX_STRING || (x->kind == SX_SYMBOL && x->text[0] != ':' && !sx_is(x, "-"));
}

static u32 read_name(reader *r, const sx *x)
{
    if (!is_name(x))
        fail(r, EQF_E_PARSE, x, "expected a name");
    return intern_add(r->p->names, x->text, x->n);
}

static const sx *item(reader *r, const sx *form, i64 i, const char *what)
{
    if (i >= form->n)
        fail(r, EQF_E_PARSE, form, "expected %s", what);
    return form->at[i];
}

static bool is_list(const sx *x, char bracket)
{
    return x->kind == SX_LIST && x->bracket == bracket;
}

static bool is_keyword(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == ':';
}

static dtype read_dtype(reader *r, const sx *x)
{
    dtype t = x->kind == SX_SYMBOL ? dtype_find(x->text) : DT_NONE;
    if (t == DT_NONE)
        fail(r, EQF_E_PARSE, x, "expected a dtype (bool i8 i32 i64 f16 bf16 f32 f64)");
    return t;
}

static i64 read_int(reader *r, const sx *x)
{
    if (x->kind != SX_INT)
        fail(r, EQF_E_PARSE, x, "expected an integer");
    return x->i;
}

static ir_atom read_atom(reader *r, const sx *x, bool none_allowed)
{
    if (none_allowed && sx_is(x, "-"))
        return (ir_atom){0};
    if (!is_name(x))
        fail(r, EQF_E_PARSE, x, "expected the name of a dim");
    ir_atom d = {0};
    u32 id = intern_find(r->p->names, x->text, x->n);
    if (id || x->n == 0)
        d = ir_atom_find(r->p, id);
    if (!d.i)
        fail(r, EQF_E_TYPE, x, "\"%s\" is not declared in (dims ...)", x->text);
    return d;
}

/* One atom bare, or several in `bracket`. */
static ir_atoms read_atoms(reader *r, const sx *x, char bracket, bool none_allowed)
{
    if (x->kind == SX_LIST && x->bracket != bracket)
        fail(r, EQF_E_PARSE, x,
             bracket == '{' ? "a set of dims stands in {}"
                            : "an ordered list of dims stands in ()");
    i64 n = x->kind == SX_LIST ? x->n : 1;
    ir_atom *at = NEW_N(r->scratch, ir_atom, n);
    for (i64 i = 0; i < n; i++)
        at[i] = read_atom(r, x->kind == SX_LIST ? x->at[i] : x, none_allowed);
    return (ir_atoms){at, n};
}

static ir_ints read_ints(reader *r, const sx *x)
{
    if (x->kind == SX_LIST && x->bracket != '(')
        fail(r, EQF_E_PARSE, x, "integers stand in ()");
    i64 n = x->kind == SX_LIST ? x->n : 1;
    i64 *at = NEW_N(r->scratch, i64, n);
    for (i64 i = 0; i < n; i++)
        at[i] = read_int(r, x->kind == SX_LIST ? x->at[i] : x);
    return (ir_ints){at, n};
}

/* ---- terms ---------------------------------------------------------------------------------- */

static ir_term read_term(reader *r, const sx *x);

static bool is_number(const sx *x)
{
    return x->kind == SX_INT || x->kind == SX_FLOAT;
}

static ir_term read_number(reader *r, dtype t, const sx *x)
{
    if (!is_number(x))
        fail(r, EQF_E_PARSE, x, "expected a number");
    set_origin(r, x);
    if (dtype_is_float(t))
        return ir_f(r->p, t, x->f);
    if (x->kind != SX_INT)
        fail(r, EQF_E_TYPE, x, "%s is no value of %s", x->text, dtype_name(t));
    return ir_i(r->p, t, x->i);
}

static ir_term read_value(reader *r, const sx *x)
{
    u32 id = intern_find(r->p->names, x->text, x->n);
    if (id || x->n == 0) {
        if ((i64)id < r->by_name.n && r->by_name.at[id].i)
            return r->by_name.at[id];
        i64 i = ir_input_find(r->p, id);
        if (i >= 0 && r->p->inputs.at[i].term.i == 0)
            fail(r, EQF_E_TYPE, x, "input \"%s\" has no elements", x->text);
        if (i >= 0)
            return r->p->inputs.at[i].term;
    }
    fail(r, EQF_E_TYPE, x, "\"%s\" is neither an input nor a let above", x->text);
}

static bool is_tiled(ir_op op)
{
    return ir_row(op)->class_ == IR_TILED && op != IR_tile_matmul;
}

static ir_reducer read_reducer(reader *r, const sx *x)
{
    ir_reducer reducer = x->kind == SX_SYMBOL ? ir_reducer_find(x->text) : IR_NO_REDUCER;
    if (!reducer)
        fail(r, EQF_E_PARSE, x, "expected a reducer (+ * max min or and)");
    return reducer;
}

/* ---- visit lists ---- */

typedef struct affine {
    i64 constant;
    VEC(ir_atom) atoms;
    VEC(i64) factors;
} affine;

static void add_part(reader *r, affine *out, const sx *x)
{
    if (x->kind == SX_INT) {
        if (!add_i64(out->constant, x->i, &out->constant))
            fail(r, EQF_E_TYPE, x, "the bound does not fit 64 bits");
        return;
    }
    bool is_product = is_list(x, '(') && x->n == 3 && sx_is(x->at[0], "*");
    if (x->kind == SX_LIST && !is_product)
        fail(r, EQF_E_PARSE, x, "expected an integer, a dim or (* INTEGER NAME)");
    ir_atom d = read_atom(r, is_product ? x->at[2] : x, false);
    for (i64 i = 0; i < out->atoms.n; i++)
        if (out->atoms.at[i].i == d.i)
            fail(r, EQF_E_PARSE, x, "%s stands twice in a bound", ir_atom_name(r->p, d));
    vec_push(r->scratch, &out->atoms, d);
    vec_push(r->scratch, &out->factors, is_product ? read_int(r, x->at[1]) : 1);
}

static ir_affine read_affine(reader *r, const sx *x)
{
    affine out = {0};
    bool is_sum = is_list(x, '(') && x->n > 0 && sx_is(x->at[0], "+");
    for (i64 i = is_sum ? 1 : 0; i < (is_sum ? x->n : 1); i++)
        add_part(r, &out, is_sum ? x->at[i] : x);
    return (ir_affine){out.constant, out.factors.at, {out.atoms.at, out.atoms.n}};
}

static ir_live_set read_visits(reader *r, const sx *x)
{
    if (!is_list(x, '(') || x->n == 0)
        fail(r, EQF_E_PARSE, x, "expected ranges, ((LOW HIGH) ...)");
    ir_range *at = NEW_N(r->scratch, ir_range, x->n);
    for (i64 i = 0; i < x->n; i++) {
        const sx *range = x->at[i];
        if (!is_list(range, '(') || range->n != 2)
            fail(r, EQF_E_PARSE, range, "expected (LOW HIGH)");
        at[i] = (ir_range){read_affine(r, range->at[0]), read_affine(r, range->at[1])};
    }
    return (ir_live_set){at, x->n, true};
}

/* The keyword arguments of one operator. */
static void read_keyword(reader *r, ir_op op, ir_attr *attr, const sx *key, const sx *x)
{
    u32 has = ir_attrs_of(op);
    if (sx_is(key, ":axis") && (has & IR_HAS_AXIS) && op != IR_iota)
        attr->axis = read_atoms(r, x, ir_axis_is_set(op) ? '{' : '(', op == IR_concat);
    else if (sx_is(key, ":par") && (has & IR_HAS_PAR))
        attr->par = read_atoms(r, x, '{', false);
    else if (sx_is(key, op == IR_comp ? ":result" : ":lanes") &&
             (op == IR_comp || op == IR_reducer)) {
        i64 *one = NEW(r->scratch, i64);
        *one = read_int(r, x);
        attr->ints = (ir_ints){one, 1};
    } else if (sx_is(key, ":to") && (has & IR_HAS_TO) && op != IR_loop && op != IR_formal)
        attr->to = read_atoms(r, x, ir_to_is_set(op) ? '{' : '(', false);
    else if (sx_is(key, ":ints") && (has & IR_HAS_INTS) && op != IR_slice && !is_tiled(op))
        attr->ints = read_ints(r, x);
    else if (sx_is(key, ":name") && op == IR_opaque)
        attr->name = read_name(r, x);
    else if (sx_is(key, ":dtype") && op == IR_opaque)
        attr->dtype = (u8)read_dtype(r, x);
    else if (sx_is(key, ":reducer") && (has & IR_HAS_REDUCER) && op != IR_reduce && op != IR_comp)
        attr->reducer = (u8)read_reducer(r, x);
    else
        fail(r, EQF_E_PARSE, key, "%s has no argument %s", ir_row(op)->name, key->text);
}

/* `:start` and `:step` of a slice make its ints. */
typedef struct slice_ints {
    bool has_start;
    i64 start;
    ir_ints steps;
} slice_ints;

static ir_ints join_slice(reader *r, const slice_ints *s, const sx *form)
{
    if (!s->has_start)
        fail(r, EQF_E_PARSE, form, "slice wants :start");
    i64 *at = NEW_N(r->scratch, i64, s->steps.n + 1);
    at[0] = s->start;
    for (i64 i = 0; i < s->steps.n; i++)
        at[i + 1] = s->steps.at[i];
    return (ir_ints){at, s->steps.n + 1};
}

static void shared_axis(reader *r, ir_attr *attr, const ir_term *args, const sx *form)
{
    ir_atoms a = ir_get(r->p, args[0])->dims, b = ir_get(r->p, args[1])->dims;
    ir_atom *at = NEW_N(r->scratch, ir_atom, 1);
    i64 n = 0;
    for (i64 i = 0; i < a.n; i++)
        if (ir_has(b, a.at[i])) {
            at[0] = a.at[i];
            n++;
        }
    if (n != 1)
        fail(r, EQF_E_TYPE, form, "matmul without :axis, and the operands share %lld dims",
             (long long)n);
    attr->axis = (ir_atoms){at, 1};
}

/* Operands, literals last: they take the dtype of a sibling. */
static void read_operands(reader *r, ir_op op, const sx *const *x, i64 n, ir_term *args)
{
    dtype t = DT_NONE;
    for (i64 i = 0; i < n; i++) {
        if (is_number(x[i]))
            continue;
        args[i] = read_term(r, x[i]);
        if (t == DT_NONE && ir_is_sibling(op, i, n))
            t = ir_get(r->p, args[i])->dtype;
    }
    for (i64 i = 0; i < n; i++) {
        if (!is_number(x[i]))
            continue;
        if (t == DT_NONE || !ir_is_sibling(op, i, n))
            fail(r, EQF_E_TYPE, x[i], "the dtype of %s is not known here: write (const f32 %s)",
                 x[i]->text, x[i]->text);
        args[i] = read_number(r, t, x[i]);
    }
}

/* (lambda (FORMAL*) RESULT RESULT*) */
static ir_term read_lambda(reader *r, const sx *form)
{
    const sx *formals = item(r, form, 1, "the formals");
    if (!is_list(formals, '('))
        fail(r, EQF_E_PARSE, formals, "expected the formals in ()");
    i64 n = formals->n, count = form->n - 2;
    ir_term *args = NEW_N(r->scratch, ir_term, n + count);
    for (i64 i = 0; i < n; i++)
        args[i] = read_term(r, formals->at[i]);
    for (i64 i = 0; i < count; i++)
        args[n + i] = read_term(r, form->at[2 + i]);
    set_origin(r, form);
    return ir_lambda(r->p, args, n, args + n, count);
}

enum { MOST_TURNS = 1024, MOST_ITERATED = 1 << 20, MOST_LOOKED_AT = 1 << 26 };

/* (iterate TURNS LAMBDA STATE* OTHER*): the first state after so many turns. A loop of a known number
 * of turns is what it does, written out: everything that passes its operators passes it. */
static ir_term read_iterate(reader *r, const sx *form)
{
    i64 turns = read_int(r, item(r, form, 1, "how many turns"));
    const sx *body = item(r, form, 2, "a lambda");
    ir_term lambda = read_term(r, body);
    i64 n = form->n - 3;
    if (turns < 0 || turns > MOST_TURNS)
        fail(r, EQF_E_TYPE, form->at[1], "a loop takes 0 to %d turns", MOST_TURNS);
    if (ir_get(r->p, lambda)->op != IR_lambda)
        fail(r, EQF_E_TYPE, body, "expected a lambda");
    r->looked_at += turns * (i64)lambda.i;
    if (r->looked_at > MOST_LOOKED_AT)
        fail(r, EQF_E_LIMIT, form, "too many turns for a program of this size");
    i64 states = ir_result_count(r->p, lambda);
    if (states < 1 || states > n)
        fail(r, EQF_E_TYPE, form, "a lambda with %lld results wants so many states first",
             (long long)states);
    ir_term *args = NEW_N(r->scratch, ir_term, n);
    ir_term *next = NEW_N(r->scratch, ir_term, states);
    for (i64 i = 0; i < n; i++)
        args[i] = read_term(r, form->at[3 + i]);
    for (i64 turn = 0; turn < turns; turn++) {
        set_origin(r, form);
        ir_apply(r->p, lambda, args, n, next);
        memcpy(args, next, (size_t)states * sizeof *args);
        if (r->p->nodes.n > MOST_ITERATED)
            fail(r, EQF_E_LIMIT, form, "more than %d operators", MOST_ITERATED);
    }
    return args[0];
}

static ir_term read_operator(reader *r, const sx *form)
{
    if (form->n == 0 || form->bracket != '(' || form->at[0]->kind != SX_SYMBOL)
        fail(r, EQF_E_PARSE, form, "expected a term, (operator operands ...)");
    if (sx_is(form->at[0], "iterate"))
        return read_iterate(r, form);
    ir_op op = ir_op_find(form->at[0]->text);
    if (op == IR_NO_OP || op == IR_in)
        fail(r, EQF_E_TYPE, form->at[0], "there is no operator \"%s\"", form->at[0]->text);
    ir_attr attr = {0};
    slice_ints slice = {0};
    i64 first = 1;
    if (op == IR_const) {
        dtype t = read_dtype(r, item(r, form, 1, "a dtype"));
        const sx *number = item(r, form, 2, "a number");
        if (form->n > 3)
            fail(r, EQF_E_PARSE, form->at[3], "const has a dtype and a number only");
        return read_number(r, t, number);
    }
    if (op == IR_cast) {
        attr.dtype = (u8)read_dtype(r, item(r, form, first++, "a dtype"));
    } else if (op == IR_iota) {
        const sx *x = item(r, form, first++, "a dim");
        attr.axis = read_atoms(r, x, '(', false);
    } else if (op == IR_reduce) {
        attr.reducer = (u8)read_reducer(r, item(r, form, first++, "a reducer"));
    } else if (op == IR_comp && form->n > 1 && form->at[1]->kind == SX_SYMBOL &&
               ir_reducer_find(form->at[1]->text)) {
        attr.reducer = (u8)read_reducer(r, form->at[first++]);
    } else if (op == IR_formal) {
        attr.i = read_int(r, item(r, form, first++, "a number"));
        attr.dtype = (u8)read_dtype(r, item(r, form, first++, "a dtype"));
        attr.to = read_atoms(r, item(r, form, first++, "the dims"), '{', false);
    } else if (op == IR_lambda) {
        return read_lambda(r, form);
    } else if (op == IR_reducer) {
        attr.ints = (ir_ints){NEW(r->scratch, i64), 1};
    }
    ir_live_set visit = {0};
    i64 n = 0;
    while (first + n < form->n && !is_keyword(form->at[first + n]))
        n++;
    for (i64 i = first + n; i < form->n; i += 2) {
        const sx *key = form->at[i];
        if (!is_keyword(key))
            fail(r, EQF_E_PARSE, key, "expected a keyword such as :axis");
        for (i64 j = first + n; j < i; j += 2)
            if (strcmp(form->at[j]->text, key->text) == 0)
                fail(r, EQF_E_PARSE, key, "%s is given twice", key->text);
        const sx *x = item(r, form, i + 1, "a value after the keyword");
        if (op == IR_slice && sx_is(key, ":start")) {
            slice.start = read_int(r, x);
            slice.has_start = true;
        } else if (op == IR_slice && sx_is(key, ":step")) {
            slice.steps = read_ints(r, x);
        } else if (op == IR_loop && sx_is(key, ":visit")) {
            visit = read_visits(r, x);
        } else {
            read_keyword(r, op, &attr, key, x);
        }
    }
    if (op == IR_slice)
        attr.ints = join_slice(r, &slice, form);
    ir_term *args = NEW_N(r->scratch, ir_term, n);
    read_operands(r, op, (const sx *const *)(form->at + first), n, args);
    if (op == IR_matmul && attr.axis.n == 0 && n == 2)
        shared_axis(r, &attr, args, form);
    set_origin(r, form);
    if (op == IR_view && n == 1 && ir_kind_of(ir_get(r->p, args[0])->op) == IR_A_VALUE)
        return ir_view(r->p, args[0], attr.par);
    if (op == IR_comb && n == 1)
        return ir_comb(r->p, args[0], attr.par);
    if (op == IR_loop && visit.n > 0)
        return ir_loop(r->p, attr.par, args, n, &visit);
    return ir_make(r->p, op, attr, args, n);
}

static ir_term read_term(reader *r, const sx *x)
{
    if (is_name(x))
        return read_value(r, x);
    if (is_number(x))
        fail(r, EQF_E_TYPE, x, "the dtype of %s is not known here: write (const f32 %s)", x->text,
             x->text);
    return read_operator(r, x);
}

/* ---- declarations --------------------------------------------------------------------------- */

static void read_atom_declarations(reader *r, const sx *form)
{
    for (i64 i = 1; i < form->n; i++) {
        const sx *x = form->at[i];
        if (!is_list(x, '(') || x->n != 2)
            fail(r, EQF_E_PARSE, x, "expected (NAME EXTENT)");
        u32 name = read_name(r, x->at[0]);
        i64 extent = read_int(r, x->at[1]);
        if (extent < 2)
            fail(r, EQF_E_TYPE, x->at[1],
                 "a dim has extent 2 or more; write 1 or 0 where it would stand");
        if (ir_atom_find(r->p, name).i)
            fail(r, EQF_E_TYPE, x->at[0], "dim \"%s\" is declared twice", x->at[0]->text);
        ir_atom_new(r->p, intern_text(r->p->names, name), extent);
    }
}

/* (split WHOLE (OUTER INNER)) */
static void read_split(reader *r, const sx *form)
{
    if (form->n != 3 || !is_list(form->at[2], '(') || form->at[2]->n != 2)
        fail(r, EQF_E_PARSE, form, "expected (split WHOLE (OUTER INNER))");
    set_origin(r, form);
    ir_split_new(r->p, read_atom(r, form->at[1], false), read_atom(r, form->at[2]->at[0], false),
                 read_atom(r, form->at[2]->at[1], false));
}

static ir_dim read_dim(reader *r, const sx *x)
{
    if (x->kind == SX_INT) {
        if (x->i != 0 && x->i != 1)
            fail(r, EQF_E_PARSE, x, "expected the name of a dim, or 1 or 0");
        return (ir_dim){.extent = x->i};
    }
    ir_dim dim = {1, read_atoms(r, x, '(', false)};
    for (i64 i = 0; i < dim.atoms.n; i++)
        if (!mul_i64(dim.extent, ir_extent(r->p, dim.atoms.at[i]), &dim.extent))
            fail(r, EQF_E_TYPE, x, "the extent does not fit 64 bits");
    return dim;
}

static void read_dims(reader *r, const sx *x, ir_port *port)
{
    if (!is_list(x, '('))
        fail(r, EQF_E_PARSE, x, "expected the dims, such as (M (H D) 1)");
    ir_dim *dims = NEW_N(r->scratch, ir_dim, x->n);
    for (i64 i = 0; i < x->n; i++)
        dims[i] = read_dim(r, x->at[i]);
    port->rank = x->n;
    port->dims = dims;
}

static const char *const *read_symbols(reader *r, const sx *x, i64 rank)
{
    if (!is_list(x, '(') || x->n != rank)
        fail(r, EQF_E_PARSE, x, "expected a name or - for each of the %lld dims", (long long)rank);
    const char **symbols = NEW_N(r->scratch, const char *, rank);
    for (i64 i = 0; i < rank; i++)
        symbols[i] = sx_is(x->at[i], "-") ? NULL : intern_text(r->p->names, read_name(r, x->at[i]));
    return symbols;
}

static void read_input(reader *r, const sx *form, ir_role role)
{
    ir_port port = {.role = (u8)role};
    const sx *name = item(r, form, 1, "a name");
    port.name = read_name(r, name);
    port.dtype = (u8)read_dtype(r, item(r, form, 2, "a dtype"));
    read_dims(r, item(r, form, 3, "the dims"), &port);
    for (i64 i = 4; i < form->n; i += 2) {
        const sx *key = form->at[i], *x = item(r, form, i + 1, "a value after the keyword");
        if (sx_is(key, ":symbols"))
            port.symbols = read_symbols(r, x, port.rank);
        else if (sx_is(key, ":key"))
            port.key = read_name(r, x);
        else if (sx_is(key, ":constant")) {
            if (x->kind != SX_INT || x->i < 0 || x->i > 1)
                fail(r, EQF_E_PARSE, x, "expected 0 or 1");
            port.is_constant = x->i != 0;
        } else
            fail(r, EQF_E_PARSE, key, "expected :symbols or :key or :constant");
    }
    if ((i64)port.name < r->by_name.n && r->by_name.at[port.name].i)
        fail(r, EQF_E_TYPE, name, "\"%s\" is a let above", name->text);
    set_origin(r, form);
    ir_add_input(r->p, port);
}

static void read_let(reader *r, const sx *form)
{
    if (form->n != 3)
        fail(r, EQF_E_PARSE, form, "expected (let NAME TERM)");
    u32 name = read_name(r, form->at[1]);
    if (ir_input_find(r->p, name) >= 0 || ((i64)name < r->by_name.n && r->by_name.at[name].i))
        fail(r, EQF_E_TYPE, form->at[1], "\"%s\" has a meaning already", form->at[1]->text);
    ir_term t = read_term(r, form->at[2]);
    vec_reserve(r->scratch, &r->by_name, (i64)name + 1);
    r->by_name.n = MAX(r->by_name.n, (i64)name + 1);
    r->by_name.at[name] = t;
}

/* The atoms of the term, one a dim, in the order of their declaration. */
static void default_dims(reader *r, ir_port *port)
{
    ir_atoms dims = ir_get(r->p, port->term)->dims;
    ir_dim *at = NEW_N(r->scratch, ir_dim, dims.n);
    for (i64 i = 0; i < dims.n; i++)
        at[i] = (ir_dim){ir_extent(r->p, dims.at[i]), {&dims.at[i], 1}};
    port->rank = dims.n;
    port->dims = at;
}

static void read_output(reader *r, const sx *form)
{
    ir_port port = {0};
    port.name = read_name(r, item(r, form, 1, "a name"));
    const sx *value = item(r, form, 2, "a term");
    i64 next = 3;
    if (sx_is(value, "-")) {
        port.dtype =
            (u8)read_dtype(r, item(r, form, next++, "the dtype of an output without elements"));
        item(r, form, next, "the dims");
    } else {
        port.term = read_term(r, value);
    }
    if (next < form->n && !is_keyword(form->at[next]))
        read_dims(r, form->at[next++], &port);
    else
        default_dims(r, &port);
    if (next < form->n) {
        if (!sx_is(form->at[next], ":writes") || form->n != next + 2)
            fail(r, EQF_E_PARSE, form->at[next], "expected :writes INPUT");
        const sx *x = form->at[next + 1];
        port.writes = ir_input_find(r->p, read_name(r, x)) + 1;
        if (port.writes == 0)
            fail(r, EQF_E_TYPE, x, "there is no input \"%s\"", x->text);
    }
    set_origin(r, form);
    ir_add_output(r->p, port);
}

static void read_form(reader *r, const sx *form)
{
    static const char *const roles[] = {"input", "parameter", "buffer", "constant"};
    if (!is_list(form, '('))
        fail(r, EQF_E_PARSE, form, "expected a declaration, such as (input X f32 (M K))");
    for (ir_role role = IR_INPUT; role <= IR_CONSTANT; role++)
        if (sx_is_form(form, roles[role])) {
            read_input(r, form, role);
            return;
        }
    if (sx_is_form(form, "dims"))
        read_atom_declarations(r, form);
    else if (sx_is_form(form, "split"))
        read_split(r, form);
    else if (sx_is_form(form, "let"))
        read_let(r, form);
    else if (sx_is_form(form, "output"))
        read_output(r, form);
    else if (sx_is_form(form, "precondition") && form->n == 2 && form->at[1]->kind == SX_STRING)
        vec_push(r->p->a, &r->p->preconditions, read_name(r, form->at[1]));
    else
        fail(r, EQF_E_PARSE, form,
             "expected dims, input, parameter, buffer, constant, let, output, precondition or "
             "split");
}

ir_program *ir_read(arena *a, const char *file, const char *text, i64 n)
{
    arena *scratch = arena_child(a);
    const sx *all = sx_read(scratch, file, text, n);
    reader r = {.scratch = scratch, .p = ir_program_new(a, file, NULL)};
    if (all->n != 1 || !sx_is_form(all->at[0], "program") || all->at[0]->bracket != '(')
        fail(&r, EQF_E_PARSE, all->n > 1 ? all->at[1] : all, "expected one (program ...) form");
    const sx *form = all->at[0];
    r.p->name = read_name(&r, item(&r, form, 1, "the program's name"));
    for (i64 i = 2; i < form->n; i++)
        read_form(&r, form->at[i]);
    r.p->origin = 0;
    arena_free(scratch);
    return r.p;
}
