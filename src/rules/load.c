/* .rules files to rules. A form that is wrong is rejected with its place and the others are read
 * on; only text that is no sequence of S-expressions ends the reading. */
#include <setjmp.h>
#include <stdio.h>

#include "egraph/rules.h"
#include "rules/rule.h"

typedef struct loader {
    rl_ruleset *set;
    arena *a;
    const char *file, *text;
    rl_rule *r;
    jmp_buf out;
    rl_problem problem;
    bool left; /* variables may be bound here */
} loader;

static _Noreturn void PRINTF_LIKE(3, 4) refuse(loader *l, const sx *x, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->problem = (rl_problem){arena_strdup(l->a, text), x->line, x->column};
    longjmp(l->out, 1);
}

static bool is_variable(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == '?';
}

static bool is_keyword(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == ':';
}

/* ---- variables ------------------------------------------------------------------------------- */

static i64 find_variable(const loader *l, const char *name)
{
    for (i64 v = 0; v < l->r->n_vars; v++)
        if (strcmp(l->r->vars[v].name, name) == 0)
            return v;
    return -1;
}

static i64 new_variable(loader *l, const sx *x, rl_var v)
{
    if (l->r->n_vars == RL_MAX_VARS)
        refuse(l, x, "a rule has at most %d variables", RL_MAX_VARS);
    l->r->vars[l->r->n_vars] = v;
    return l->r->n_vars++;
}

static i64 variable(loader *l, const sx *x, rl_var_kind kind)
{
    static const char *const as[] = {"a term", "a set", "a set of axes", "an index map"};
    if (x->n < 2)
        refuse(l, x, "a variable needs a name after ?");
    i64 v = find_variable(l, x->text);
    if (v < 0) {
        if (!l->left)
            refuse(l, x, "unbound variable %s: it does not occur on the left", x->text);
        return new_variable(l, x, (rl_var){.name = arena_strdup(l->a, x->text), .kind = (u8)kind});
    }
    if (l->r->vars[v].kind != kind)
        refuse(l, x, "variable %s stands for %s and for %s", x->text, as[l->r->vars[v].kind],
               as[kind]);
    return v;
}

/* ---- sets ------------------------------------------------------------------------------------ */

static rl_set *read_set(loader *l, const sx *x)
{
    rl_set *s = NEW(l->a, rl_set);
    if (is_variable(x)) {
        s->kind = RL_SET_VAR;
        s->var = find_variable(l, x->text);
        if (s->var < 0 && l->left)
            s->var = variable(l, x, RL_VAR_AXES);
        if (s->var < 0)
            refuse(l, x, "unbound variable %s: it does not occur on the left", x->text);
        if (l->r->vars[s->var].kind == RL_VAR_MAP)
            refuse(l, x, "%s is an index map; write (from %s) or (to %s)", x->text, x->text,
                   x->text);
        return s;
    }
    if (x->kind != SX_LIST || x->bracket != '(' || x->n == 0 || x->at[0]->kind != SX_SYMBOL)
        refuse(l, x, "expected a set: a variable, or (meet|minus|join SET SET), (from|to MAP), (axes TERM)");
    const char *name = x->at[0]->text;
    if ((strcmp(name, "from") == 0 || strcmp(name, "to") == 0) && x->n == 2) {
        s->kind = name[0] == 'f' ? RL_SET_FROM : RL_SET_TO;
        if (!is_variable(x->at[1]))
            refuse(l, x->at[1], "expected the variable of an index map");
        s->var = variable(l, x->at[1], RL_VAR_MAP);
        return s;
    }
    if (strcmp(name, "axes") == 0 && x->n == 2) {
        s->kind = RL_SET_CUT;
        if (!is_variable(x->at[1]))
            refuse(l, x->at[1], "expected the variable of a term");
        s->var = variable(l, x->at[1], RL_VAR_TERM);
        return s;
    }
    static const char *const names[] = {"meet", "minus", "join"};
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        if (strcmp(name, names[k]) != 0 || x->n != 3)
            continue;
        s->kind = (u8)(RL_SET_MEET + k);
        s->a = read_set(l, x->at[1]);
        s->b = read_set(l, x->at[2]);
        return s;
    }
    refuse(l, x->at[0], "no set is made by %s with %lld arguments", name, (long long)x->n - 1);
}

/* ---- terms ----------------------------------------------------------------------------------- */

static rl_term *read_term(loader *l, const sx *x);

static rl_term *term_at(loader *l, const sx *x, rl_term_kind kind)
{
    rl_term *t = NEW(l->a, rl_term);
    t->kind = (u8)kind;
    t->var = -1;
    t->line = x->line;
    t->column = x->column;
    return t;
}

static rl_term *read_number(loader *l, const sx *x)
{
    f64 value = x->f;
    if (!l->left) {
        rl_term *t = term_at(l, x, RL_TERM_NUMBER);
        t->number = value;
        return t;
    }
    rl_term *t = term_at(l, x, RL_TERM_VAR);
    t->var = new_variable(l, x,
                          (rl_var){.name = arena_printf(l->a, "?=%lld", (long long)l->r->n_vars),
                                   .number = value,
                                   .is_number = true});
    return t;
}

static ir_reducer read_reducer(loader *l, const sx *x, i64 *first)
{
    if (*first >= x->n)
        refuse(l, x, "reduce wants a reducer");
    const sx *at = x->at[(*first)++];
    ir_reducer r = at->kind == SX_SYMBOL ? ir_reducer_find(at->text) : IR_NO_REDUCER;
    if (!r)
        refuse(l, at, "expected a reducer (+ * max min or and)");
    return r;
}

static bool is_rewritable(ir_op op)
{
    u8 class = ir_row(op)->class_;
    return (class == IR_EWISE && op != IR_cast) || class == IR_REDUCE || class == IR_MATMUL ||
           class == IR_INDEX || op == IR_view || op == IR_comb || op == IR_tile_matmul;
}

static void read_keyword(loader *l, rl_term *t, const sx *key, const sx *value)
{
    bool takes_axis = t->op == IR_reduce || t->op == IR_matmul || t->op == IR_tile_matmul;
    bool takes_par = t->op == IR_reduce || t->op == IR_view || t->op == IR_comb;
    bool takes_map = ir_row(t->op)->class_ == IR_INDEX;
    bool is_axis = takes_axis && sx_is(key, ":axis"), is_par = takes_par && sx_is(key, ":par");
    if ((is_axis || is_par) && !t->axis && !t->par) {
        if (l->left && !is_variable(value))
            refuse(l, value, "on the left, %s takes a variable", key->text);
        if (l->left)
            variable(l, value, is_par ? RL_VAR_PAR : RL_VAR_AXES);
        *(is_par ? &t->par : &t->axis) = read_set(l, value);
        l->r->is_tiled |= is_par || t->op == IR_tile_matmul;
        return;
    }
    if (!takes_map || !sx_is(key, ":map") || t->var >= 0)
        refuse(l, key, "%s takes %s", ir_row(t->op)->name,
               takes_axis && takes_par ? ":axis SET or :par SET, once"
               : takes_axis            ? ":axis SET, once"
               : takes_par             ? ":par SET, once"
               : takes_map             ? ":map VARIABLE, once"
                                       : "no keyword");
    if (!is_variable(value))
        refuse(l, value, ":map takes a variable");
    t->var = variable(l, value, RL_VAR_MAP);
    rl_var *v = &l->r->vars[t->var];
    i64 parts = t->op == IR_concat ? t->n : 1;
    if (v->map_of && (v->map_of != t->op || v->map_parts != parts))
        refuse(l, value, "%s is the index map of another operator", v->name);
    v->map_of = t->op;
    v->map_parts = parts;
}

static rl_term *read_operator(loader *l, const sx *x)
{
    if (x->kind != SX_LIST || x->bracket != '(' || x->n == 0 || x->at[0]->kind != SX_SYMBOL)
        refuse(l, x, "expected a term: a variable, a number or (operator operands ...)");
    const sx *name = x->at[0];
    if (sx_is(name, "extent")) {
        if (l->left || x->n != 2)
            refuse(l, x, "(extent SET) stands on the right and takes one set");
        rl_term *t = term_at(l, x, RL_TERM_EXTENT);
        t->axis = read_set(l, x->at[1]);
        return t;
    }
    rl_term *t = term_at(l, x, RL_TERM_OP);
    t->op = ir_op_find(name->text);
    if (t->op == IR_NO_OP)
        refuse(l, name, "unknown operator %s", name->text);
    if (!is_rewritable(t->op))
        refuse(l, name, "%s has no place in a rule", name->text);
    i64 first = 1;
    if (t->op == IR_reduce)
        t->reducer = read_reducer(l, x, &first);
    while (first + t->n < x->n && !is_keyword(x->at[first + t->n]))
        t->n++;
    i64 arity = ir_row(t->op)->arity;
    if (arity >= 0 ? t->n != arity : t->n < 1 || t->n > RL_MAX_PARTS)
        refuse(l, x, "%s takes %lld operands, found %lld", name->text,
               (long long)(arity < 0 ? RL_MAX_PARTS : arity), (long long)t->n);
    t->kids = NEW_N(l->a, rl_term *, t->n);
    for (i64 i = 0; i < t->n; i++)
        t->kids[i] = read_term(l, x->at[first + i]);
    for (i64 i = first + t->n; i < x->n; i += 2) {
        if (!is_keyword(x->at[i]) || i + 1 == x->n)
            refuse(l, x->at[i], "expected a keyword and its value");
        read_keyword(l, t, x->at[i], x->at[i + 1]);
    }
    bool has_set = t->axis || t->par;
    if (!has_set && (t->op == IR_reduce || t->op == IR_matmul || t->op == IR_tile_matmul))
        refuse(l, x, "%s wants :axis in a rule", name->text);
    if (!has_set && (t->op == IR_view || t->op == IR_comb))
        refuse(l, x, "%s wants :par in a rule", name->text);
    if (ir_row(t->op)->class_ == IR_INDEX && t->var < 0)
        refuse(l, x, "%s wants :map in a rule", name->text);
    return t;
}

static rl_term *read_term(loader *l, const sx *x)
{
    if (is_variable(x)) {
        rl_term *t = term_at(l, x, RL_TERM_VAR);
        t->var = variable(l, x, RL_VAR_TERM);
        return t;
    }
    if (x->kind == SX_INT || x->kind == SX_FLOAT)
        return read_number(l, x);
    return read_operator(l, x);
}

/* ---- guards ---------------------------------------------------------------------------------- */

static rl_guard *read_guard(loader *l, const sx *x);

static void read_test(loader *l, const sx *x, rl_guard *g)
{
    const char *name = x->at[0]->text;
    for (g->test = 0; g->test < RL_TEST_COUNT; g->test++)
        if (strcmp(rl_test_at(g->test)->name, name) == 0)
            break;
    if (g->test == RL_TEST_COUNT)
        refuse(l, x->at[0], "no guard is called %s", name);
    const rl_test_row *row = rl_test_at(g->test);
    g->n = x->n - 1;
    if (g->n < row->least || g->n > row->most)
        refuse(l, x, "guard %s takes %d to %d arguments, found %lld", name, row->least, row->most,
               (long long)g->n);
    for (i64 i = 0; i < g->n; i++) {
        const sx *arg = x->at[i + 1];
        if (row->kind == RL_SETS) {
            g->sets[i] = read_set(l, arg);
        } else if (row->kind == RL_TERMS || row->kind == RL_AXES) {
            if (!is_variable(arg))
                refuse(l, arg, "guard %s takes variables of terms", name);
            g->vars[i] = variable(l, arg, RL_VAR_TERM);
        } else {
            if (arg->kind != SX_INT && arg->kind != SX_FLOAT)
                refuse(l, arg, "guard %s takes a number", name);
            g->factor = arg->f;
        }
    }
}

static rl_guard *read_guard(loader *l, const sx *x)
{
    if (x->kind != SX_LIST || x->bracket != '(' || x->n == 0 || x->at[0]->kind != SX_SYMBOL)
        refuse(l, x, "expected a guard (NAME ARGUMENT ...)");
    rl_guard *g = NEW(l->a, rl_guard);
    bool is_not = sx_is(x->at[0], "not"), is_and = sx_is(x->at[0], "and");
    if (!is_not && !is_and && !sx_is(x->at[0], "or")) {
        g->kind = RL_GUARD_TEST;
        read_test(l, x, g);
        return g;
    }
    g->kind = is_not ? RL_GUARD_NOT : is_and ? RL_GUARD_AND : RL_GUARD_OR;
    g->n = x->n - 1;
    if (is_not ? g->n != 1 : g->n < 1)
        refuse(l, x, "%s takes %s", x->at[0]->text, is_not ? "one guard" : "guards");
    g->kids = NEW_N(l->a, rl_guard *, g->n);
    for (i64 i = 0; i < g->n; i++)
        g->kids[i] = read_guard(l, x->at[i + 1]);
    return g;
}

/* ---- equal up to renaming -------------------------------------------------------------------- */

typedef struct renaming {
    str out;
    i64 name[RL_MAX_VARS], n;
} renaming;

static void print_variable(renaming *w, i64 v)
{
    if (!w->name[v])
        w->name[v] = ++w->n;
    str_printf(&w->out, "?%lld", (long long)w->name[v]);
}

static void print_set(renaming *w, const rl_set *s)
{
    static const char *const names[] = {"", "axes", "from", "to", "meet", "minus", "join"};
    str_printf(&w->out, "%s(", names[s->kind]);
    if (s->a) {
        print_set(w, s->a);
        print_set(w, s->b);
    } else {
        print_variable(w, s->var);
    }
    str_add(&w->out, ")");
}

static u64 shape_of_set(const renaming *names, const rl_set *s)
{
    u64 h = hash_u64(s->kind, 3);
    if (!s->a)
        return hash_u64(names ? (u64)names->name[s->var] : 0, h);
    return hash_u64(shape_of_set(names, s->a), hash_u64(shape_of_set(names, s->b), h));
}

/* Without the names of variables, or with those that have been given so far. */
static u64 shape_of(const renaming *names, const rl_rule *r, const rl_term *t)
{
    u64 h = hash_u64(t->kind, hash_u64(t->op, t->reducer));
    f64 number = t->kind == RL_TERM_VAR && r->vars[t->var].is_number ? r->vars[t->var].number : t->number;
    h = hash_u64(hash_bytes(&number, sizeof number, 1), h);
    if (t->var >= 0 && !r->vars[t->var].is_number)
        h = hash_u64(names ? (u64)names->name[t->var] : 0, h);
    if (t->axis)
        h = hash_u64(shape_of_set(names, t->axis), h);
    if (t->par)
        h = hash_u64(shape_of_set(names, t->par), h + 1);
    if (t->n == 2 && ir_row(t->op)->flags & IR_COMM) {
        u64 x = shape_of(names, r, t->kids[0]), y = shape_of(names, r, t->kids[1]);
        return hash_u64(MIN(x, y), hash_u64(MAX(x, y), h));
    }
    for (i64 i = 0; i < t->n; i++)
        h = hash_u64(shape_of(names, r, t->kids[i]), h);
    return h;
}

/* Operands of a commutative operator come in an order that does not depend on names: by shape, then
 * by the numbers that variables have got so far. */
static bool is_swapped(const renaming *w, const rl_rule *r, const rl_term *t)
{
    if (t->n != 2 || !(ir_row(t->op)->flags & IR_COMM))
        return false;
    u64 x = shape_of(NULL, r, t->kids[0]), y = shape_of(NULL, r, t->kids[1]);
    if (x == y) {
        x = shape_of(w, r, t->kids[0]);
        y = shape_of(w, r, t->kids[1]);
    }
    return x > y;
}

static void print_term(renaming *w, const rl_rule *r, const rl_term *t)
{
    switch ((rl_term_kind)t->kind) {
    case RL_TERM_VAR:
        if (r->vars[t->var].is_number)
            str_add_f64(&w->out, r->vars[t->var].number);
        else
            print_variable(w, t->var);
        return;
    case RL_TERM_NUMBER:
        str_add_f64(&w->out, t->number);
        return;
    case RL_TERM_EXTENT:
        str_add(&w->out, "(extent ");
        break;
    case RL_TERM_OP:
        str_printf(&w->out, "(%s%s ", ir_row(t->op)->name,
                   t->reducer ? ir_reducer_text(t->reducer) : "");
        break;
    }
    bool swap = is_swapped(w, r, t);
    for (i64 i = 0; i < t->n; i++) {
        print_term(w, r, t->kids[swap ? 1 - i : i]);
        str_add(&w->out, " ");
    }
    if (t->axis)
        print_set(w, t->axis);
    if (t->par)
        str_add(&w->out, " par ");
    if (t->par)
        print_set(w, t->par);
    if (t->var >= 0)
        print_variable(w, t->var);
    str_add(&w->out, ")");
}

static void print_guard(renaming *w, const rl_guard *g)
{
    str_printf(&w->out, "(%d %d ", g->kind, g->kind == RL_GUARD_TEST ? (int)g->test : -1);
    for (i64 i = 0; i < g->n; i++) {
        if (g->kind != RL_GUARD_TEST)
            print_guard(w, g->kids[i]);
        else if (rl_test_at(g->test)->kind == RL_SETS)
            print_set(w, g->sets[i]);
        else if (rl_test_at(g->test)->kind != RL_FACTOR)
            print_variable(w, g->vars[i]);
        else
            str_add_f64(&w->out, g->factor);
    }
    str_add(&w->out, ")");
}

static const char *signature(arena *a, const rl_rule *r)
{
    renaming w = {.out = str_new(a)};
    print_term(&w, r, r->left);
    str_add(&w.out, " => ");
    print_term(&w, r, r->right);
    if (r->when)
        print_guard(&w, r->when);
    str_printf(&w.out, " %u", r->kinds);
    return str_text(&w.out);
}

/* ---- forms ----------------------------------------------------------------------------------- */

/* Is the set other than a variable of this kind, whose payload can be taken over? */
static bool is_computed(const rl_rule *r, const rl_set *s, rl_var_kind kind)
{
    return s && (s->kind != RL_SET_VAR || r->vars[s->var].kind != kind);
}

static bool computes(const rl_rule *r, const rl_term *t)
{
    if (t->kind == RL_TERM_NUMBER || t->kind == RL_TERM_EXTENT ||
        is_computed(r, t->axis, RL_VAR_AXES) || is_computed(r, t->par, RL_VAR_PAR))
        return true;
    for (i64 i = 0; i < t->n; i++)
        if (computes(r, t->kids[i]))
            return true;
    return false;
}

static void read_options(loader *l, const sx *form, const sx **when)
{
    rl_rule *r = l->r;
    bool has_fp = false, has_for = false;
    for (i64 i = 5; i < form->n; i += 2) {
        const sx *key = form->at[i];
        if (!is_keyword(key) || i + 1 == form->n)
            refuse(l, key, "expected a keyword and its value");
        const sx *value = form->at[i + 1];
        if (sx_is(key, ":when") && !*when) {
            *when = value;
        } else if (sx_is(key, ":fp") && !has_fp) {
            has_fp = true;
            for (r->fp = RL_EXACT; r->fp <= RL_APPROXIMATE; r->fp++)
                if (sx_is(value, rl_fp_name(r->fp)))
                    break;
            if (r->fp > RL_APPROXIMATE)
                refuse(l, value, ":fp takes exact, reassoc or approx");
        } else if (sx_is(key, ":for") && !has_for) {
            has_for = true;
            static const char *const names[] = {"floats", "integers", "bools", "numbers", "any"};
            static const u8 kinds[] = {RL_FLOATS, RL_INTEGERS, RL_BOOLS, RL_FLOATS | RL_INTEGERS,
                                       RL_FLOATS | RL_INTEGERS | RL_BOOLS};
            r->kinds = 0;
            for (i64 k = 0; k < COUNT_OF(names); k++)
                if (sx_is(value, names[k]))
                    r->kinds = kinds[k];
            if (!r->kinds)
                refuse(l, value, ":for takes floats, integers, bools, numbers or any");
        } else if (sx_is(key, ":doc") && !r->doc) {
            if (value->kind != SX_STRING)
                refuse(l, value, ":doc takes a text in quotes");
            r->doc = arena_strdup(l->a, value->text);
        } else {
            refuse(l, key, "unknown or repeated keyword %s", key->text);
        }
    }
    if (!has_fp)
        refuse(l, form, "a rule says what it does to rounding: :fp exact, reassoc or approx");
}

static i64 operators(const rl_term *t)
{
    i64 n = t->kind != RL_TERM_VAR;
    for (i64 i = 0; i < t->n; i++)
        n += operators(t->kids[i]);
    return n;
}

/* What the engine matches and builds. */
static void check_size(loader *l, const sx *at, const rl_term *side, i64 most)
{
    if (operators(side) > most)
        refuse(l, at, "this side has %lld operators, more than %lld", (long long)operators(side),
               (long long)most);
}

static void check_new(loader *l, const sx *name)
{
    rl_rule *r = l->r;
    arena *scratch = arena_child(l->a);
    const char *mine = signature(scratch, r), *found = NULL;
    for (i64 i = 0; i < l->set->rules.n && !found; i++)
        if (strcmp(signature(scratch, l->set->rules.at[i]), mine) == 0)
            found = l->set->rules.at[i]->name;
    arena_free(scratch);
    if (found)
        refuse(l, name, "it is rule %s, with other names of variables", found);
}

static void read_direction(loader *l, const sx *form, const char *name, i64 left, i64 right)
{
    rl_rule *r = l->r = NEW(l->a, rl_rule);
    const sx *when = NULL;
    r->name = name;
    r->file = l->file;
    r->line = form->line;
    r->column = form->column;
    r->form = form;
    r->kinds = RL_FLOATS;
    const char *slash = strrchr(l->file, '/'), *stem = slash ? slash + 1 : l->file;
    const char *dot = strchr(stem, '.');
    r->family = arena_strndup(l->a, stem, dot ? dot - stem : (i64)strlen(stem));
    r->left_text = form->at[left];
    r->right_text = form->at[right];
    read_options(l, form, &when);
    r->when_text = when;
    l->left = true;
    r->left = read_term(l, form->at[left]);
    if (r->left->kind != RL_TERM_OP)
        refuse(l, form->at[left], "the left side is no operator: it would match everything");
    l->left = false;
    r->right = read_term(l, form->at[right]);
    check_size(l, form->at[left], r->left, EG_MAX_ATOMS);
    r->computes = computes(r, r->right);
    if (!r->computes)
        check_size(l, form->at[right], r->right, EG_MAX_BUILT);
    if (when)
        r->when = read_guard(l, when);
    rl_check_types(l->a, r, &l->problem);
    if (l->problem.text)
        longjmp(l->out, 1);
    check_new(l, form->at[1]);
    vec_push(l->a, &l->set->rules, r);
}

static void read_form(loader *l, const sx *form)
{
    if (!sx_is_form(form, "rule") || form->bracket != '(')
        refuse(l, form, "expected (rule NAME LEFT => RIGHT ...)");
    if (form->n < 5 || form->at[1]->kind != SX_SYMBOL || is_keyword(form->at[1]) ||
        is_variable(form->at[1]))
        refuse(l, form, "expected (rule NAME LEFT => RIGHT ...)");
    bool both = sx_is(form->at[3], "<=>");
    if (!both && !sx_is(form->at[3], "=>"))
        refuse(l, form->at[3], "expected => or <=>");
    const char *name = arena_strdup(l->a, form->at[1]->text);
    for (i64 i = 0; i < l->set->rules.n; i++)
        if (strcmp(l->set->rules.at[i]->name, name) == 0)
            refuse(l, form->at[1], "rule %s is defined twice, first at %s:%u", name,
                   l->set->rules.at[i]->file, l->set->rules.at[i]->line);
    read_direction(l, form, name, 2, 4);
    if (both)
        read_direction(l, form, arena_printf(l->a, "%s-back", name), 4, 2);
}

static const char *excerpt(arena *a, const char *text, i64 n, u32 line, u32 column)
{
    const char *p = text, *end = text + n;
    for (u32 k = 1; k < line && p < end; k++) {
        const char *next = memchr(p, '\n', (size_t)(end - p));
        p = next ? next + 1 : end;
    }
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    str s = str_new(a);
    str_add_n(&s, p, (stop ? stop : end) - p);
    str_add(&s, "\n");
    for (u32 k = 1; k < column; k++)
        str_add_char(&s, p + k - 1 < end && p[k - 1] == '\t' ? '\t' : ' ');
    str_add(&s, "^");
    return str_text(&s);
}

rl_ruleset *rl_ruleset_new(arena *a)
{
    rl_ruleset *set = NEW(a, rl_ruleset);
    set->a = a;
    return set;
}

static const char *form_name(arena *a, const sx *form)
{
    if (form->kind == SX_LIST && form->n > 1 && form->at[1]->kind == SX_SYMBOL)
        return arena_strdup(a, form->at[1]->text);
    return "";
}

void rl_ruleset_read(rl_ruleset *set, const char *file, const char *text, i64 n)
{
    const sx *all = sx_read(set->a, file, text, n);
    loader *l = NEW(set->a, loader);
    *l = (loader){.set = set, .a = set->a, .file = arena_strdup(set->a, file), .text = text};
    for (volatile i64 i = 0; i < all->n; i++) {
        l->problem = (rl_problem){0};
        if (setjmp(l->out) == 0) {
            read_form(l, all->at[i]);
            continue;
        }
        rl_problem p = l->problem;
        vec_push(set->a, &set->rejected,
                 (rl_rejected){form_name(set->a, all->at[i]), l->file, p.line, p.column, p.text,
                               excerpt(set->a, text, n, p.line, p.column)});
    }
}

const rl_rule *rl_ruleset_find(const rl_ruleset *set, const char *name)
{
    for (i64 i = 0; i < set->rules.n; i++)
        if (strcmp(set->rules.at[i]->name, name) == 0)
            return set->rules.at[i];
    return NULL;
}

const char *rl_fp_name(rl_fp fp)
{
    static const char *const names[] = {"exact", "reassoc", "approx"};
    return fp <= RL_APPROXIMATE ? names[fp] : "";
}

void rl_rule_print(str *out, const rl_rule *r)
{
    sx_print(out, r->left_text);
    str_add(out, " => ");
    sx_print(out, r->right_text);
    if (r->when_text) {
        str_add(out, " :when ");
        sx_print(out, r->when_text);
    }
    str_printf(out, " :fp %s", rl_fp_name(r->fp));
}
