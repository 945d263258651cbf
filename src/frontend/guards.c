/* guards: expressions over symbols and inputs, evaluated.
 *
 * Guards and the keys of range constraints are Python text: integers, names of symbols,
 * L['x'].size()[0] and L['d']['a'][0].shape[1] for the extents of inputs, L['n'] for a number that
 * is an input, + - * / // % **, comparisons (chained too), and, or, not, parentheses, and a few
 * functions (FUNCTIONS). What lies outside that gives NULL; the caller reports the text.
 *
 * Evaluation is exact over 64-bit rationals as long as nothing turns real (true division, a float);
 * anything that would not fit has no value. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/reader.h"

/* ---- evaluation ---------------------------------------------------------------------------- */

/* p/q in lowest terms with q >= 1; or a real when q is 0. */
typedef struct number {
    i64 p, q;
    f64 f;
} number;

static f64 as_real(number x)
{
    return x.q == 0 ? x.f : (f64)x.p / (f64)x.q;
}

static number real_number(f64 f)
{
    return (number){.f = f};
}

static number whole(i64 i)
{
    return (number){.p = i, .q = 1};
}

static u64 magnitude(i64 x)
{
    return x < 0 ? 0 - (u64)x : (u64)x;
}

static i64 gcd(i64 a, i64 b)
{
    u64 x = magnitude(a), y = magnitude(b);
    while (y) {
        u64 r = x % y;
        x = y;
        y = r;
    }
    return x > INT64_MAX ? 1 : (i64)x;
}

static bool reduce(i64 p, i64 q, number *out)
{
    if (q == 0 || (q < 0 && (q == INT64_MIN || p == INT64_MIN)))
        return false;
    i64 g = gcd(p, q);
    *out = (number){.p = (q < 0 ? -p : p) / g, .q = (q < 0 ? -q : q) / g};
    return true;
}

static bool add(number a, number b, number *out)
{
    if (a.q == 0 || b.q == 0) {
        *out = real_number(as_real(a) + as_real(b));
        return true;
    }
    i64 x, y, q, p;
    return mul_i64(a.p, b.q, &x) && mul_i64(b.p, a.q, &y) && mul_i64(a.q, b.q, &q) &&
           add_i64(x, y, &p) && reduce(p, q, out);
}

static bool multiply(number a, number b, number *out)
{
    if (a.q == 0 || b.q == 0) {
        *out = real_number(as_real(a) * as_real(b));
        return true;
    }
    i64 g = gcd(a.p, b.q), h = gcd(b.p, a.q), p, q;
    g = g == 0 ? 1 : g;
    h = h == 0 ? 1 : h;
    return mul_i64(a.p / g, b.p / h, &p) && mul_i64(a.q / h, b.q / g, &q) && reduce(p, q, out);
}

/* -1, 0, 1; 2 when not comparable (NaN) or beyond 64 bits. */
static int compare(number a, number b)
{
    if (a.q == 0 || b.q == 0) {
        f64 x = as_real(a), y = as_real(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    i64 x, y;
    if (!mul_i64(a.p, b.q, &x) || !mul_i64(b.p, a.q, &y))
        return 2;
    return (x > y) - (x < y);
}

/* Toward minus infinity; q >= 1. */
static i64 floor_quotient(i64 p, i64 q)
{
    return p / q - (p % q < 0);
}

static bool round_number(number x, fe_expr_op op, number *out)
{
    if (x.q > 0) {
        i64 down = floor_quotient(x.p, x.q);
        bool up = x.q > 1 && (op == FE_EXPR_CEIL || (op == FE_EXPR_TRUNC && x.p < 0));
        *out = whole(down + up);
        return true;
    }
    f64 f = op == FE_EXPR_FLOOR ? floor(x.f) : op == FE_EXPR_CEIL ? ceil(x.f) : trunc(x.f);
    if (!(f >= -0x1p63 && f < 0x1p63))
        return false;
    *out = whole((i64)f);
    return true;
}

static bool invert(number x, number *out)
{
    return x.q == 0 ? (*out = real_number(1.0 / x.f), true) : reduce(x.q, x.p, out);
}

static bool divide_floor(number a, number b, fe_expr_op op, number *out)
{
    number inverse, quotient, minus;
    if (as_real(b) == 0.0 || !invert(b, &inverse) || !multiply(a, inverse, &quotient) ||
        !round_number(quotient, op == FE_EXPR_CEILDIV ? FE_EXPR_CEIL : FE_EXPR_FLOOR, &quotient))
        return false;
    if (op != FE_EXPR_MOD) {
        *out = quotient;
        return true;
    }
    return multiply(whole(-1), quotient, &minus) && multiply(minus, b, &minus) &&
           add(a, minus, out);
}

static bool power(number a, number b, number *out)
{
    if (a.q == 0 || b.q != 1) {
        *out = real_number(pow(as_real(a), as_real(b)));
        return true;
    }
    number base = a, result = whole(1);
    if (b.p < 0 && !invert(a, &base))
        return false;
    /* Any base but 0 and ±1 leaves 64 bits within 63 factors, so the loop is short. */
    for (u64 n = magnitude(b.p); n > 0; n >>= 1) {
        if ((n & 1) && !multiply(result, base, &result))
            return false;
        if (n > 1 && !multiply(base, base, &base))
            return false;
    }
    *out = result;
    return true;
}

static bool eval(const fe_expr *e, const fe_env *env, number *out);

static bool truth(number x)
{
    return x.q == 0 ? x.f != 0.0 : x.p != 0;
}

static bool eval_leaf(const fe_expr *e, const fe_env *env, number *out)
{
    fe_number value;
    i64 i;
    switch ((fe_expr_op)e->op) {
    case FE_EXPR_INT:
        *out = whole(e->i);
        return true;
    case FE_EXPR_REAL:
        *out = real_number(e->f);
        return true;
    case FE_EXPR_SYMBOL:
        if (!env->symbol || !env->symbol(env->user, e->symbol, &i))
            return false;
        *out = whole(i);
        return true;
    case FE_EXPR_SIZE:
        if (!env->size || !env->size(env->user, e->input, e->i, &i))
            return false;
        *out = whole(i);
        return true;
    case FE_EXPR_VALUE:
        if (!env->value || !env->value(env->user, e->input, &value))
            return false;
        *out = value.is_real ? real_number(value.f) : whole(value.i);
        return true;
    default:
        return false;
    }
}

static bool eval_compare(fe_expr_op op, number a, number b, number *out)
{
    int c = compare(a, b);
    if (c == 2 && a.q > 0 && b.q > 0)
        return false;
    bool holds = op == FE_EXPR_EQ   ? c == 0
                 : op == FE_EXPR_NE ? c != 0
                 : op == FE_EXPR_LT ? c == -1
                 : op == FE_EXPR_LE ? c == -1 || c == 0
                 : op == FE_EXPR_GT ? c == 1
                                    : c == 1 || c == 0;
    *out = whole(holds);
    return true;
}

static bool eval_fold(const fe_expr *e, const fe_env *env, number *out)
{
    number acc, x;
    if (!eval(e->at[0], env, &acc))
        return false;
    for (u32 i = 1; i < e->n; i++) {
        bool take;
        if (!eval(e->at[i], env, &x))
            return false;
        switch ((fe_expr_op)e->op) {
        case FE_EXPR_ADD:
            if (!add(acc, x, &acc))
                return false;
            break;
        case FE_EXPR_MUL:
            if (!multiply(acc, x, &acc))
                return false;
            break;
        default: /* MAX, MIN */
            if (compare(x, acc) == 2)
                return false;
            take = compare(x, acc) == (e->op == FE_EXPR_MAX ? 1 : -1);
            acc = take ? x : acc;
        }
    }
    *out = acc;
    return true;
}

/* A known false decides an `and`, a known true an `or`, whatever the other sides are. */
static bool eval_logic(const fe_expr *e, const fe_env *env, number *out)
{
    bool decides = e->op == FE_EXPR_OR, all_known = true;
    for (u32 i = 0; i < e->n; i++) {
        number x;
        if (!eval(e->at[i], env, &x)) {
            all_known = false;
        } else if (truth(x) == decides) {
            *out = whole(decides);
            return true;
        }
    }
    *out = whole(!decides);
    return all_known;
}

static bool eval(const fe_expr *e, const fe_env *env, number *out)
{
    number x, y = whole(0);
    switch ((fe_expr_op)e->op) {
    case FE_EXPR_INT:
    case FE_EXPR_REAL:
    case FE_EXPR_SYMBOL:
    case FE_EXPR_SIZE:
    case FE_EXPR_VALUE:
        return eval_leaf(e, env, out);
    case FE_EXPR_OPAQUE:
        return false;
    case FE_EXPR_ADD:
    case FE_EXPR_MUL:
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
        return eval_fold(e, env, out);
    case FE_EXPR_AND:
    case FE_EXPR_OR:
        return eval_logic(e, env, out);
    case FE_EXPR_WHERE:
        return eval(e->at[0], env, &x) && eval(e->at[truth(x) ? 1 : 2], env, out);
    default:
        break;
    }
    if (!eval(e->at[0], env, &x) || (e->n > 1 && !eval(e->at[1], env, &y)))
        return false;
    switch ((fe_expr_op)e->op) {
    case FE_EXPR_NEG:
        return multiply(whole(-1), x, out);
    case FE_EXPR_ABS:
        return multiply(whole(compare(x, whole(0)) == -1 ? -1 : 1), x, out);
    case FE_EXPR_FLOOR:
    case FE_EXPR_CEIL:
    case FE_EXPR_TRUNC:
        return round_number(x, (fe_expr_op)e->op, out);
    case FE_EXPR_TO_REAL:
        *out = real_number(as_real(x));
        return true;
    case FE_EXPR_NOT:
        *out = whole(!truth(x));
        return true;
    case FE_EXPR_POW:
        return power(x, y, out);
    case FE_EXPR_FLOORDIV:
    case FE_EXPR_CEILDIV:
    case FE_EXPR_MOD:
        return divide_floor(x, y, (fe_expr_op)e->op, out);
    case FE_EXPR_TRUEDIV:
        if (as_real(y) == 0.0)
            return false;
        *out = real_number(as_real(x) / as_real(y));
        return true;
    default:
        return eval_compare((fe_expr_op)e->op, x, y, out);
    }
}

bool fe_expr_eval(const fe_expr *e, const fe_env *env, fe_number *out)
{
    number x;
    if (!eval(e, env, &x))
        return false;
    *out = x.q == 1 ? (fe_number){.i = x.p} : (fe_number){.is_real = true, .f = as_real(x)};
    return true;
}

bool fe_expr_int(const fe_expr *e, const fe_env *env, i64 *out)
{
    number x;
    if (!eval(e, env, &x))
        return false;
    if (x.q == 0 && x.f == floor(x.f) && !round_number(x, FE_EXPR_FLOOR, &x))
        return false;
    if (x.q != 1)
        return false;
    *out = x.p;
    return true;
}

fe_guard_result fe_guard_check(const fe_guard *g, const fe_env *env)
{
    number x;
    if (!g->expr || !eval(g->expr, env, &x))
        return FE_GUARD_UNKNOWN;
    return truth(x) ? FE_GUARD_HOLDS : FE_GUARD_FAILS;
}

/* ---- Python's spelling --------------------------------------------------------------------- */

typedef struct parser {
    fe_exprs *x;
    const char *at, *end;
    int depth;
    int nodes; /* a chain a+b+c is as deep as it is long, and evaluation recurses */
} parser;

enum { MAX_NODES = 1024 };

typedef struct function {
    const char *name;
    u8 op;
    i8 arity; /* -1: one or more */
} function;

static const function FUNCTIONS[] = {
    {"torch.sym_float", FE_EXPR_TO_REAL, 1},
    {"float", FE_EXPR_TO_REAL, 1},
    {"ToFloat", FE_EXPR_TO_REAL, 1},
    {"torch.sym_int", FE_EXPR_TRUNC, 1},
    {"math.trunc", FE_EXPR_TRUNC, 1},
    {"int", FE_EXPR_TRUNC, 1},
    {"TruncToInt", FE_EXPR_TRUNC, 1},
    {"math.floor", FE_EXPR_FLOOR, 1},
    {"FloorToInt", FE_EXPR_FLOOR, 1},
    {"math.ceil", FE_EXPR_CEIL, 1},
    {"CeilToInt", FE_EXPR_CEIL, 1},
    {"abs", FE_EXPR_ABS, 1},
    {"Abs", FE_EXPR_ABS, 1},
    {"max", FE_EXPR_MAX, -1},
    {"Max", FE_EXPR_MAX, -1},
    {"torch.sym_max", FE_EXPR_MAX, -1},
    {"min", FE_EXPR_MIN, -1},
    {"Min", FE_EXPR_MIN, -1},
    {"torch.sym_min", FE_EXPR_MIN, -1},
    {"Mod", FE_EXPR_MOD, 2},
    {"PythonMod", FE_EXPR_MOD, 2},
    {"FloorDiv", FE_EXPR_FLOORDIV, 2},
    {"CleanDiv", FE_EXPR_FLOORDIV, 2},
    {"CeilDiv", FE_EXPR_CEILDIV, 2},
    {"IntTrueDiv", FE_EXPR_TRUEDIV, 2},
    {"torch.sym_not", FE_EXPR_NOT, 1},
    {"Eq", FE_EXPR_EQ, 2},
    {"Ne", FE_EXPR_NE, 2},
    {"torch.sym_ite", FE_EXPR_WHERE, 3},
};

static const fe_expr *parse_or(parser *p);

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n'))
        p->at++;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Takes `token`; one that ends in a letter must not run on. */
static bool accept(parser *p, const char *token)
{
    skip_space(p);
    i64 n = (i64)strlen(token);
    if (p->end - p->at < n || memcmp(p->at, token, (size_t)n) != 0)
        return false;
    if (is_name_char(token[n - 1]) && p->end - p->at > n && is_name_char(p->at[n]))
        return false;
    p->at += n;
    return true;
}

static const fe_expr *node(parser *p, fe_expr_op op, const fe_expr *a, const fe_expr *b)
{
    if (!a || !b || ++p->nodes > MAX_NODES)
        return NULL;
    fe_expr *e = fe_expr_new(p->x, op, 2);
    e->at[0] = a;
    e->at[1] = b;
    return e;
}

static const fe_expr *unary(parser *p, fe_expr_op op, const fe_expr *a)
{
    if (!a)
        return NULL;
    fe_expr *e = fe_expr_new(p->x, op, 1);
    e->at[0] = a;
    return e;
}

static const fe_expr *parse_number(parser *p)
{
    char text[32] = {0};
    i64 n = 0;
    bool is_real = false;
    while (p->at < p->end && n < (i64)sizeof text - 1) {
        char c = *p->at;
        bool sign = (c == '-' || c == '+') && n > 0 && (text[n - 1] == 'e' || text[n - 1] == 'E');
        if (!(c >= '0' && c <= '9') && c != '.' && c != 'e' && c != 'E' && !sign)
            break;
        is_real |= !(c >= '0' && c <= '9');
        text[n++] = *p->at++;
    }
    char *stop;
    errno = 0;
    if (!is_real) {
        i64 i = strtoll(text, &stop, 10);
        return *stop == 0 && errno == 0 && n > 0 ? fe_expr_const(p->x, i) : NULL;
    }
    fe_expr *e = fe_expr_new(p->x, FE_EXPR_REAL, 0);
    e->f = strtod(text, &stop);
    return *stop == 0 ? e : NULL;
}

static bool parse_index(parser *p, i64 *out)
{
    const fe_expr *e = accept(p, "[") ? parse_number(p) : NULL;
    if (!e || e->op != FE_EXPR_INT || !accept(p, "]"))
        return false;
    *out = e->i;
    return true;
}

/* One [0] or ['a'] into `path`, which spells quotes as '. */
static bool parse_key(parser *p, str *path, bool is_first)
{
    if (!accept(p, "["))
        return false;
    bool is_quoted = p->at < p->end && (*p->at == '\'' || *p->at == '"');
    if (is_first && !is_quoted)
        return false;
    char close = is_quoted ? *p->at++ : ']';
    const char *from = p->at;
    while (p->at < p->end && *p->at != close && *p->at != '\\')
        p->at++;
    i64 n = p->at - from;
    if (n > FE_MAX_NAME || p->at >= p->end || *p->at != close)
        return false;
    p->at += is_quoted;
    if (is_first)
        str_add_n(path, from, n);
    else
        str_printf(path, is_quoted ? "['%.*s']" : "[%.*s]", (int)n, from);
    return accept(p, "]");
}

/* L['d']['a'][0] is the path d['a'][0] of an input; then follows which extent. */
static const fe_expr *parse_input(parser *p)
{
    str path = str_new(p->x->a);
    bool is_first = true;
    while (p->at < p->end && *p->at == '[') {
        if (!parse_key(p, &path, is_first))
            return NULL;
        is_first = false;
    }
    u32 id = intern_find(p->x->paths, str_text(&path), path.n);
    if (id == 0)
        return NULL;
    u32 input = p->x->path_inputs.at[id - 1];
    bool is_tensor = p->x->inputs[input].arg.kind == FE_ARG_TENSOR;
    fe_expr *e = fe_expr_new(p->x, is_tensor ? FE_EXPR_SIZE : FE_EXPR_VALUE, 0);
    e->input = input;
    if (!is_tensor)
        return e;
    return (accept(p, ".size()") || accept(p, ".shape")) && parse_index(p, &e->i) ? e : NULL;
}

static const fe_expr *parse_call(parser *p, const char *name, i64 n)
{
    VEC(const fe_expr *) args = {0};
    do {
        const fe_expr *e = parse_or(p);
        if (!e)
            return NULL;
        vec_push(p->x->a, &args, e);
    } while (accept(p, ","));
    if (!accept(p, ")"))
        return NULL;
    for (i64 i = 0; i < COUNT_OF(FUNCTIONS); i++) {
        const function *f = &FUNCTIONS[i];
        if ((i64)strlen(f->name) != n || memcmp(f->name, name, (size_t)n) != 0)
            continue;
        if (f->arity >= 0 && args.n != f->arity)
            return NULL;
        fe_expr *e = fe_expr_new(p->x, f->op, args.n);
        memcpy(e->at, args.at, (size_t)args.n * sizeof *args.at);
        return e;
    }
    return NULL;
}

static const fe_expr *parse_atom(parser *p)
{
    skip_space(p);
    if (p->at >= p->end)
        return NULL;
    if (accept(p, "(")) {
        const fe_expr *e = parse_or(p);
        return e && accept(p, ")") ? e : NULL;
    }
    if (*p->at >= '0' && *p->at <= '9')
        return parse_number(p);
    const char *from = p->at;
    while (p->at < p->end && (is_name_char(*p->at) || (*p->at == '.' && p->at > from)))
        p->at++;
    i64 n = p->at - from;
    if (n == 1 && *from == 'L' && p->at < p->end && *p->at == '[')
        return parse_input(p);
    if (n > 0 && accept(p, "("))
        return parse_call(p, from, n);
    if ((n == 4 && memcmp(from, "True", 4) == 0) || (n == 5 && memcmp(from, "False", 5) == 0))
        return fe_expr_const(p->x, n == 4);
    u32 id = intern_find(p->x->names, from, n);
    bool looks_like_one = n > 1 && strchr("su", *from) && from[1] >= '0' && from[1] <= '9';
    if (n == 0 || (id == 0 && !looks_like_one))
        return NULL;
    fe_expr *e = fe_expr_new(p->x, FE_EXPR_SYMBOL, 0);
    e->symbol = fe_expr_symbol(p->x, from, n);
    return e;
}

static const fe_expr *parse_unary(parser *p)
{
    if (p->depth >= FE_MAX_DEPTH)
        return NULL;
    p->depth++;
    const fe_expr *e;
    if (accept(p, "-")) {
        e = unary(p, FE_EXPR_NEG, parse_unary(p));
    } else {
        e = parse_atom(p);
        if (e && accept(p, "**"))
            e = node(p, FE_EXPR_POW, e, parse_unary(p));
    }
    p->depth--;
    return e;
}

static const fe_expr *parse_product(parser *p)
{
    const fe_expr *e = parse_unary(p);
    while (e) {
        if (accept(p, "//"))
            e = node(p, FE_EXPR_FLOORDIV, e, parse_unary(p));
        else if (accept(p, "/"))
            e = node(p, FE_EXPR_TRUEDIV, e, parse_unary(p));
        else if (accept(p, "%"))
            e = node(p, FE_EXPR_MOD, e, parse_unary(p));
        else if (accept(p, "*"))
            e = node(p, FE_EXPR_MUL, e, parse_unary(p));
        else
            break;
    }
    return e;
}

static const fe_expr *parse_sum(parser *p)
{
    const fe_expr *e = parse_product(p);
    while (e) {
        if (accept(p, "+"))
            e = node(p, FE_EXPR_ADD, e, parse_product(p));
        else if (accept(p, "-"))
            e = node(p, FE_EXPR_ADD, e, unary(p, FE_EXPR_NEG, parse_product(p)));
        else
            break;
    }
    return e;
}

/* a < b <= c is (a < b) and (b <= c). */
static const fe_expr *parse_comparison(parser *p)
{
    static const struct {
        const char *token;
        u8 op;
    } COMPARE[] = {{"==", FE_EXPR_EQ}, {"!=", FE_EXPR_NE}, {"<=", FE_EXPR_LE},
                   {">=", FE_EXPR_GE}, {"<", FE_EXPR_LT},  {">", FE_EXPR_GT}};
    const fe_expr *left = parse_sum(p), *all = NULL;
    for (;;) {
        i64 i = 0;
        while (left && i < COUNT_OF(COMPARE) && !accept(p, COMPARE[i].token))
            i++;
        if (!left || i == COUNT_OF(COMPARE))
            return left && all ? all : left;
        const fe_expr *right = parse_sum(p);
        const fe_expr *one = node(p, COMPARE[i].op, left, right);
        all = all ? node(p, FE_EXPR_AND, all, one) : one;
        left = right;
    }
}

static const fe_expr *parse_not(parser *p)
{
    if (p->depth >= FE_MAX_DEPTH)
        return NULL;
    p->depth++;
    const fe_expr *e = accept(p, "not") ? unary(p, FE_EXPR_NOT, parse_not(p)) : parse_comparison(p);
    p->depth--;
    return e;
}

static const fe_expr *parse_and(parser *p)
{
    const fe_expr *e = parse_not(p);
    while (e && accept(p, "and"))
        e = node(p, FE_EXPR_AND, e, parse_not(p));
    return e;
}

static const fe_expr *parse_or(parser *p)
{
    const fe_expr *e = parse_and(p);
    while (e && accept(p, "or"))
        e = node(p, FE_EXPR_OR, e, parse_and(p));
    return e;
}

void fe_exprs_inputs(fe_exprs *x, const fe_input *inputs, i64 n)
{
    x->inputs = inputs;
    for (i64 i = 0; i < n; i++) {
        if (inputs[i].kind != FE_IN_USER || !inputs[i].path || inputs[i].path[0] == 0)
            continue;
        if (intern_cstr(x->paths, inputs[i].path) > x->path_inputs.n)
            vec_push(x->a, &x->path_inputs, (u32)i);
    }
}

const fe_expr *fe_expr_python(fe_exprs *x, const char *text, i64 n)
{
    parser p = {.x = x, .at = text, .end = text + n};
    const fe_expr *e = parse_or(&p);
    skip_space(&p);
    return e && p.at == p.end ? e : NULL;
}
