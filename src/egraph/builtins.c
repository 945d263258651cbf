/* See builtins.h. Facts about the built-ins stand at the head of the conformance suite. */
#include <math.h>

#include "egraph/builtins.h"

/* ---- math-fold ----------------------------------------------------------------------------- */

typedef struct math_data {
    u64 known;
    f64 value;
} math_data;

static bool math_eval(const char *op, u32 arity, const f64 *x, f64 *out)
{
    f64 v;
    if (arity != 2 || op[0] == 0 || op[1] != 0)
        return false;
    switch (op[0]) {
    case '+': v = x[0] + x[1]; break;
    case '-': v = x[0] - x[1]; break;
    case '*': v = x[0] * x[1]; break;
    case '/':
        if (x[1] == 0)
            return false;
        v = x[0] / x[1];
        break;
    default: return false;
    }
    *out = v == 0 ? 0 : v;
    return isfinite(v);
}

static const math_data *math_of(const eg_builtins *b, const eqf_egraph *g, eqf_class c)
{
    return eqf_data(g, (unsigned)b->math, c);
}

static void math_make(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    const eg_builtins *b = user;
    math_data *d = out;
    eqf_head head = eqf_node_head(g, n);
    int64_t i;
    bool is_int;
    if (eqf_head_is_number(b->lang, head, &d->value, &i, &is_int)) {
        d->known = 1;
        return;
    }
    u32 arity = eqf_head_arity(b->lang, head);
    if (arity != 2)
        return;
    f64 x[2];
    for (u32 k = 0; k < 2; k++) {
        const math_data *kid = math_of(b, g, eqf_node_child(g, n, k));
        if (!kid->known)
            return;
        x[k] = kid->value;
    }
    d->known = math_eval(eqf_head_name(b->lang, head), arity, x, &d->value);
}

static unsigned math_merge(void *user, eqf_egraph *g, void *into, const void *from)
{
    (void)user;
    (void)g;
    math_data *a = into;
    const math_data *b = from;
    if (a->known && b->known)
        return a->value == b->value ? 0 : EQF_CONFLICT;
    if (b->known) {
        *a = *b;
        return EQF_INTO_CHANGED;
    }
    return a->known ? EQF_FROM_DIFFERED : 0;
}

/* Unites c with its leaf, citing an e-node of c whose children are leaves, if there is one. */
static eqf_status fold(eqf_egraph *g, eqf_class c, eqf_head leaf, const char *reason,
                       bool (*kid_leaf)(void *user, eqf_egraph *g, eqf_class kid, eqf_head *out),
                       bool (*evaluates)(void *user, eqf_egraph *g, eqf_node n), void *user)
{
    eqf_class have = eqf_lookup(g, leaf, NULL, 0);
    if (have.i && eqf_find(g, have).i == eqf_find(g, c).i)
        return EQF_OK;
    for (eqf_node n = {0}; (n = eqf_next_node(g, c, n)).i;) {
        eqf_head kids[4];
        u32 arity = eqf_head_arity(eqf_egraph_lang(g), eqf_node_head(g, n)), k = 0;
        if (arity == 0 || arity > 3 || !evaluates(user, g, n))
            continue;
        for (; k < arity; k++) {
            eqf_class kid = eqf_node_child(g, n, k), at;
            if (!kid_leaf(user, g, kid, &kids[k]) ||
                !(at = eqf_lookup(g, kids[k], NULL, 0)).i || eqf_find(g, at).i != kid.i)
                break;
        }
        if (k == arity)
            return eqf_union_folded(g, n, kids, leaf, eqf_text_of(reason), NULL);
    }
    eqf_class added;
    eqf_status s = eqf_add(g, leaf, NULL, 0, &added);
    return s ? s : eqf_union(g, c, added, eqf_text_of(reason), NULL);
}

static bool math_leaf(void *user, eqf_egraph *g, eqf_class kid, eqf_head *out)
{
    const eg_builtins *b = user;
    const math_data *d = math_of(b, g, kid);
    return d->known && eqf_head_real(b->lang, d->value, out) == EQF_OK;
}

static bool math_evaluates(void *user, eqf_egraph *g, eqf_node n)
{
    math_data d = {0};
    math_make(user, g, n, &d);
    return d.known;
}

static eqf_status math_modify(void *user, eqf_egraph *g, eqf_class c)
{
    const eg_builtins *b = user;
    const math_data *d = math_of(b, g, c);
    if (!d->known)
        return EQF_OK;
    eqf_head leaf;
    eqf_status s = eqf_head_real(b->lang, d->value, &leaf);
    if (!s)
        s = fold(g, c, leaf, "math-fold", math_leaf, math_evaluates, user);
    /* the number says it all: the rest is hidden, or rules would never be done with it */
    for (eqf_node n = {0}; !s && (n = eqf_next_node(g, c, n)).i;) {
        if (eqf_head_arity(b->lang, eqf_node_head(g, n)) > 0)
            s = eqf_hide(g, n);
    }
    return s;
}

/* ---- prop-fold ----------------------------------------------------------------------------- */

enum { P_UNKNOWN, P_FALSE, P_TRUE };
typedef struct prop_data {
    u64 value;
} prop_data;

static u64 prop_leaf_value(const char *name)
{
    return strcmp(name, "true") == 0 ? P_TRUE : strcmp(name, "false") == 0 ? P_FALSE : P_UNKNOWN;
}

static u64 prop_eval(const char *op, u32 arity, const u64 *x)
{
    for (u32 i = 0; i < arity; i++) {
        if (x[i] == P_UNKNOWN)
            return P_UNKNOWN;
    }
    bool a = x[0] == P_TRUE, b = arity > 1 && x[1] == P_TRUE, v;
    if (arity == 1 && strcmp(op, "~") == 0)
        v = !a;
    else if (arity == 2 && strcmp(op, "&") == 0)
        v = a && b;
    else if (arity == 2 && strcmp(op, "|") == 0)
        v = a || b;
    else if (arity == 2 && strcmp(op, "->") == 0)
        v = !a || b;
    else
        return P_UNKNOWN;
    return v ? P_TRUE : P_FALSE;
}

static void prop_make(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    const eg_builtins *b = user;
    prop_data *d = out;
    eqf_head head = eqf_node_head(g, n);
    u32 arity = eqf_head_arity(b->lang, head);
    const char *name = eqf_head_name(b->lang, head);
    if (arity == 0) {
        d->value = eqf_head_is_symbol(b->lang, head) ? prop_leaf_value(name) : P_UNKNOWN;
        return;
    }
    if (arity > 2)
        return;
    u64 x[2] = {0};
    for (u32 k = 0; k < arity; k++)
        x[k] = ((const prop_data *)eqf_data(g, (unsigned)b->prop, eqf_node_child(g, n, k)))->value;
    d->value = prop_eval(name, arity, x);
}

static unsigned prop_merge(void *user, eqf_egraph *g, void *into, const void *from)
{
    (void)user;
    (void)g;
    prop_data *a = into;
    const prop_data *b = from;
    if (a->value && b->value)
        return a->value == b->value ? 0 : EQF_CONFLICT;
    if (b->value) {
        *a = *b;
        return EQF_INTO_CHANGED;
    }
    return a->value ? EQF_FROM_DIFFERED : 0;
}

static eqf_status prop_head(const eg_builtins *b, u64 value, eqf_head *out)
{
    return eqf_head_symbol(b->lang, eqf_text_of(value == P_TRUE ? "true" : "false"), out);
}

static bool prop_leaf(void *user, eqf_egraph *g, eqf_class kid, eqf_head *out)
{
    const eg_builtins *b = user;
    const prop_data *d = eqf_data(g, (unsigned)b->prop, kid);
    return d->value && prop_head(b, d->value, out) == EQF_OK;
}

static bool prop_evaluates(void *user, eqf_egraph *g, eqf_node n)
{
    prop_data d = {0};
    prop_make(user, g, n, &d);
    return d.value;
}

static eqf_status prop_modify(void *user, eqf_egraph *g, eqf_class c)
{
    const eg_builtins *b = user;
    const prop_data *d = eqf_data(g, (unsigned)b->prop, c);
    if (!d->value)
        return EQF_OK;
    eqf_head leaf;
    eqf_status s = prop_head(b, d->value, &leaf);
    return s ? s : fold(g, c, leaf, "prop-fold", prop_leaf, prop_evaluates, user);
}

/* ---- lambda -------------------------------------------------------------------------------- */

enum { L_NONE, L_INT, L_BOOL };
typedef struct lambda_data {
    u32 kind;
    i32 value;
    u32 free; /* set */
    u32 pad;
} lambda_data;

/* Interns the sorted set made[0..n). */
static u32 intern_set(eg_builtins *b, const u32 *made, u32 n)
{
    for (u32 k = 0; k < (u32)b->sets.n; k++) {
        if (b->sets.at[k][0] == n &&
            (n == 0 || memcmp(b->sets.at[k] + 1, made, 4 * (size_t)n) == 0))
            return k;
    }
    u32 *s = NEW_N(b->a, u32, n + 1);
    s[0] = n;
    if (n)
        memcpy(s + 1, made, 4 * (size_t)n);
    vec_push(b->a, &b->sets, s);
    return (u32)b->sets.n - 1;
}

enum { MAX_FREE = 4096 };

/* Members of set s, canonical and sorted, into out[0..); returns how many. */
static u32 load_set(const eg_builtins *b, const eqf_egraph *g, u32 s, u32 *out)
{
    const u32 *set = b->sets.at[s];
    u32 n = 0;
    for (u32 i = 1; i <= set[0]; i++) {
        u32 c = eqf_find(g, (eqf_class){set[i]}).i, k = n;
        while (k > 0 && out[k - 1] > c)
            k--;
        if (k > 0 && out[k - 1] == c)
            continue;
        memmove(out + k + 1, out + k, 4 * (size_t)(n - k));
        out[k] = c;
        n++;
    }
    return n;
}

static u32 set_union(eg_builtins *b, const eqf_egraph *g, u32 s, u32 t)
{
    u32 x[2 * MAX_FREE], y[MAX_FREE], n, m = load_set(b, g, t, y);
    if (s == t || b->sets.at[t][0] == 0)
        return s;
    n = load_set(b, g, s, x);
    for (u32 i = 0; i < m && n < MAX_FREE; i++) {
        u32 k = n;
        while (k > 0 && x[k - 1] > y[i])
            k--;
        if (k > 0 && x[k - 1] == y[i])
            continue;
        memmove(x + k + 1, x + k, 4 * (size_t)(n - k));
        x[k] = y[i];
        n++;
    }
    return intern_set(b, x, n);
}

/* keep: members of t stay; else they go. */
static u32 set_filter(eg_builtins *b, const eqf_egraph *g, u32 s, const u32 *t, u32 m, bool keep)
{
    u32 x[MAX_FREE], n = load_set(b, g, s, x), out = 0;
    for (u32 i = 0; i < n; i++) {
        bool in = false;
        for (u32 k = 0; k < m && !in; k++)
            in = t[k] == x[i];
        if (in == keep)
            x[out++] = x[i];
    }
    return intern_set(b, x, out);
}

static const lambda_data *lambda_of(const eg_builtins *b, const eqf_egraph *g, eqf_class c)
{
    return eqf_data(g, (unsigned)b->lambda, c);
}

static void lambda_constant(const char *op, u32 arity, const lambda_data *x, const lambda_data *y,
                            lambda_data *d)
{
    i32 sum;
    if (arity != 2 || !x->kind || !y->kind)
        return;
    if (strcmp(op, "+") == 0 && x->kind == L_INT && y->kind == L_INT &&
        !__builtin_add_overflow(x->value, y->value, &sum)) {
        d->kind = L_INT;
        d->value = sum;
    } else if (strcmp(op, "=") == 0) {
        d->kind = L_BOOL;
        d->value = x->kind == y->kind && x->value == y->value;
    }
}

static void lambda_leaf_constant(const eg_builtins *b, eqf_head head, lambda_data *d)
{
    f64 f;
    int64_t i;
    bool is_int;
    if (eqf_head_is_number(b->lang, head, &f, &i, &is_int)) {
        if (is_int && i == (i32)i) {
            d->kind = L_INT;
            d->value = (i32)i;
        }
        return;
    }
    u64 v = prop_leaf_value(eqf_head_name(b->lang, head));
    if (v) {
        d->kind = L_BOOL;
        d->value = v == P_TRUE;
    }
}

static void lambda_make(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    eg_builtins *b = user;
    lambda_data *d = out;
    eqf_head head = eqf_node_head(g, n);
    u32 arity = eqf_head_arity(b->lang, head);
    const char *op = eqf_head_name(b->lang, head);
    if (arity == 0) {
        lambda_leaf_constant(b, head, d);
        return;
    }
    eqf_class k0 = eqf_node_child(g, n, 0);
    if (arity == 1 && strcmp(op, "var") == 0) {
        d->free = intern_set(b, &k0.i, 1);
        return;
    }
    bool binds = (arity == 2 && (strcmp(op, "lam") == 0 || strcmp(op, "fix") == 0)) ||
                 (arity == 3 && strcmp(op, "let") == 0);
    if (binds) {
        u32 body = lambda_of(b, g, eqf_node_child(g, n, arity - 1))->free;
        d->free = set_filter(b, g, body, &k0.i, 1, false);
        if (arity == 3)
            d->free = set_union(b, g, d->free, lambda_of(b, g, eqf_node_child(g, n, 1))->free);
        return;
    }
    for (u32 k = 0; k < arity; k++)
        d->free = set_union(b, g, d->free, lambda_of(b, g, eqf_node_child(g, n, k))->free);
    if (arity == 2)
        lambda_constant(op, 2, lambda_of(b, g, k0), lambda_of(b, g, eqf_node_child(g, n, 1)), d);
}

static unsigned lambda_merge(void *user, eqf_egraph *g, void *into, const void *from)
{
    eg_builtins *b = user;
    lambda_data *x = into;
    const lambda_data *y = from;
    unsigned bits = 0;
    if (x->free != y->free) {
        u32 t[MAX_FREE], m = load_set(b, g, y->free, t), u[MAX_FREE];
        u32 before = load_set(b, g, x->free, u);
        u32 both = set_filter(b, g, x->free, t, m, true), after = b->sets.at[both][0];
        bits |= after != before ? EQF_INTO_CHANGED : 0;
        bits |= after != m ? EQF_FROM_DIFFERED : 0;
        if (after != before)
            x->free = both;
    }
    if (x->kind && y->kind)
        return bits | (x->kind == y->kind && x->value == y->value ? 0 : EQF_CONFLICT);
    if (y->kind) {
        x->kind = y->kind;
        x->value = y->value;
        return bits | EQF_INTO_CHANGED;
    }
    return bits | (x->kind ? EQF_FROM_DIFFERED : 0);
}

static eqf_status lambda_head(const eg_builtins *b, const lambda_data *d, eqf_head *out)
{
    if (d->kind == L_INT)
        return eqf_head_int(b->lang, d->value, out);
    return eqf_head_symbol(b->lang, eqf_text_of(d->value ? "true" : "false"), out);
}

static bool lambda_leaf(void *user, eqf_egraph *g, eqf_class kid, eqf_head *out)
{
    const eg_builtins *b = user;
    const lambda_data *d = lambda_of(b, g, kid);
    return d->kind && lambda_head(b, d, out) == EQF_OK;
}

static bool lambda_evaluates(void *user, eqf_egraph *g, eqf_node n)
{
    lambda_data d = {0};
    lambda_make(user, g, n, &d);
    return d.kind;
}

static eqf_status lambda_modify(void *user, eqf_egraph *g, eqf_class c)
{
    const eg_builtins *b = user;
    const lambda_data *d = lambda_of(b, g, c);
    if (!d->kind)
        return EQF_OK;
    eqf_head leaf;
    eqf_status s = lambda_head(b, d, &leaf);
    return s ? s : fold(g, c, leaf, "lambda", lambda_leaf, lambda_evaluates, user);
}

/* ---- interval ------------------------------------------------------------------------------ */

typedef struct interval_data {
    u64 made; /* zeroed data says nothing: both ends infinite */
    f64 lo, hi;
} interval_data;

static interval_data interval_of(const eg_builtins *b, const eqf_egraph *g, eqf_class c)
{
    interval_data d = *(const interval_data *)eqf_data(g, (unsigned)b->interval, c);
    if (!d.made) {
        d.lo = -(f64)INFINITY;
        d.hi = (f64)INFINITY;
    }
    return d;
}

static void interval_make(void *user, eqf_egraph *g, eqf_node n, void *out)
{
    const eg_builtins *b = user;
    interval_data *d = out;
    eqf_head head = eqf_node_head(g, n);
    int64_t i;
    bool is_int;
    d->made = 1;
    d->lo = -(f64)INFINITY;
    d->hi = (f64)INFINITY;
    if (eqf_head_is_number(b->lang, head, &d->lo, &i, &is_int)) {
        d->hi = d->lo;
        return;
    }
    const char *op = eqf_head_name(b->lang, head);
    if (eqf_head_arity(b->lang, head) != 2 || op[1] != 0)
        return;
    eqf_class cx = eqf_node_child(g, n, 0), cy = eqf_node_child(g, n, 1);
    interval_data x = interval_of(b, g, cx), y = interval_of(b, g, cy);
    if (op[0] == '+') {
        d->lo = x.lo + y.lo;
        d->hi = x.hi + y.hi;
    } else if (op[0] == '*') {
        f64 p[4] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
        f64 lo = p[0], hi = p[0];
        for (int k = 0; k < 4; k++) {
            f64 v = isnan(p[k]) ? 0 : p[k]; /* 0 times infinity */
            lo = fmin(lo, v);
            hi = fmax(hi, v);
        }
        if (cx.i == cy.i) {
            f64 a = x.lo * x.lo, c = x.hi * x.hi;
            lo = x.lo <= 0 && x.hi >= 0 ? 0 : fmin(a, c);
            hi = fmax(a, c);
        }
        d->lo = lo;
        d->hi = hi;
    }
}

static unsigned interval_merge(void *user, eqf_egraph *g, void *into, const void *from)
{
    (void)user;
    (void)g;
    interval_data *a = into, b = *(const interval_data *)from;
    if (!b.made)
        return a->made ? EQF_FROM_DIFFERED : 0;
    if (!a->made) {
        *a = b;
        return EQF_INTO_CHANGED;
    }
    f64 lo = fmax(a->lo, b.lo), hi = fmin(a->hi, b.hi);
    if (lo > hi)
        return EQF_CONFLICT;
    unsigned bits = lo != a->lo || hi != a->hi ? EQF_INTO_CHANGED : 0;
    bits |= lo != b.lo || hi != b.hi ? EQF_FROM_DIFFERED : 0;
    a->lo = lo;
    a->hi = hi;
    return bits;
}

eqf_status eg_builtins_bound(eg_builtins *b, eqf_egraph *g, eqf_class c, f64 lo, f64 hi)
{
    interval_data d = {1, lo, hi};
    return eqf_data_join(g, (unsigned)b->interval, c, &d);
}

void eg_builtins_bounds(const eg_builtins *b, const eqf_egraph *g, eqf_class c, f64 *lo, f64 *hi)
{
    interval_data d = interval_of(b, g, c);
    *lo = d.lo;
    *hi = d.hi;
}

/* ---- guards -------------------------------------------------------------------------------- */

static bool known(const eg_builtins *b, const eqf_egraph *g, eqf_class c)
{
    if (b->math >= 0 && math_of(b, g, c)->known)
        return true;
    if (b->lambda >= 0 && lambda_of(b, g, c)->kind)
        return true;
    return b->prop >= 0 && ((const prop_data *)eqf_data(g, (unsigned)b->prop, c))->value;
}

static bool has_symbol(const eqf_egraph *g, eqf_class c)
{
    return eg_body_of(g, eg_find(g, c.i))->mask & 1;
}

static bool is_const(void *user, const eqf_egraph *g, const eqf_class *args)
{
    return known(user, g, args[0]);
}

static bool is_sym(void *user, const eqf_egraph *g, const eqf_class *args)
{
    (void)user;
    return has_symbol(g, args[0]);
}

static bool not_zero(void *user, const eqf_egraph *g, const eqf_class *args)
{
    const eg_builtins *b = user;
    if (b->math >= 0 && math_of(b, g, args[0])->known)
        return math_of(b, g, args[0])->value != 0;
    if (b->lambda >= 0 && lambda_of(b, g, args[0])->kind == L_INT)
        return lambda_of(b, g, args[0])->value != 0;
    return true;
}

static bool const_or_distinct(void *user, const eqf_egraph *g, const eqf_class *args)
{
    return eqf_find(g, args[0]).i != eqf_find(g, args[1]).i &&
           (known(user, g, args[0]) || has_symbol(g, args[0]));
}

/* ---- dynamic right sides ------------------------------------------------------------------- */

static eqf_status add_op(eqf_egraph *g, const char *name, const eqf_class *kids, u32 n,
                         eqf_class *out)
{
    eqf_lang *l = eqf_egraph_lang(g);
    eqf_op op;
    eqf_head head;
    eqf_status s = eqf_lang_op(l, name, n, 0, &op);
    if (!s)
        s = eqf_head_of(l, op, 0, &head);
    return s ? s : eqf_add(g, head, kids, n, out);
}

/* (let ?v1 ?e (lam ?v2 ?body)): rename ?v2 when it would capture. */
static eqf_status let_lam_diff(void *user, eqf_egraph *g, eqf_class root, const eqf_class *args,
                               unsigned n, eqf_class *out)
{
    eg_builtins *b = user;
    if (n != 4 || b->lambda < 0)
        return EQF_OK;
    eqf_class v1 = args[0], e = args[1], v2 = args[2], body = args[3], inner;
    u32 free[MAX_FREE], m = load_set(b, g, lambda_of(b, g, e)->free, free);
    bool captures = false;
    for (u32 i = 0; i < m; i++)
        captures |= free[i] == eqf_find(g, v2).i;
    eqf_status s = EQF_OK;
    if (captures) {
        char name[24];
        u32 digits = 0, id = root.i; /* the class names the symbol: again on a second visit */
        for (name[0] = '_'; id || !digits; id /= 10)
            name[++digits] = (char)('0' + id % 10);
        eqf_head head;
        eqf_class fresh = {0}, use;
        s = eqf_head_symbol(b->lang, (eqf_text){name, digits + 1}, &head);
        if (!s)
            s = eqf_add(g, head, NULL, 0, &fresh);
        if (!s)
            s = add_op(g, "var", &fresh, 1, &use);
        if (!s)
            s = add_op(g, "let", (eqf_class[]){v2, use, body}, 3, &body);
        v2 = fresh;
    }
    if (!s)
        s = add_op(g, "let", (eqf_class[]){v1, e, body}, 3, &inner);
    return s ? s : add_op(g, "lam", (eqf_class[]){v2, inner}, 2, out);
}

static const char *leaf_name(const eqf_egraph *g, eqf_class c)
{
    for (eqf_node n = {0}; (n = eqf_next_node(g, c, n)).i;) {
        eqf_head head = eqf_node_head(g, n);
        if (eqf_head_is_symbol(eqf_egraph_lang(g), head))
            return eqf_head_name(eqf_egraph_lang(g), head);
    }
    return NULL;
}

static eqf_status append(void *user, eqf_egraph *g, eqf_class root, const eqf_class *args,
                         unsigned n, eqf_class *out)
{
    (void)root;
    eg_builtins *b = user;
    const char *x = n == 2 ? leaf_name(g, args[0]) : NULL;
    const char *y = n == 2 ? leaf_name(g, args[1]) : NULL;
    if (!x || !y)
        return EQF_OK;
    char name[512];
    size_t nx = strlen(x), ny = strlen(y);
    if (nx + ny > sizeof name)
        return EQF_OK;
    memcpy(name, x, nx);
    memcpy(name + nx, y, ny);
    eqf_head head;
    eqf_status s = eqf_head_symbol(b->lang, (eqf_text){name, nx + ny}, &head);
    return s ? s : eqf_add(g, head, NULL, 0, out);
}

/* ---- registration -------------------------------------------------------------------------- */

eg_builtins *eg_builtins_new(eqf_lang *lang, arena *a)
{
    eg_builtins *b = NEW(a, eg_builtins);
    *b = (eg_builtins){.lang = lang, .a = a, .math = -1, .prop = -1, .lambda = -1,
                       .interval = -1};
    intern_set(b, NULL, 0);
    const eqf_guard guards[] = {{"is-const", 1, is_const, b, true},
                                {"is-sym", 1, is_sym, b, true},
                                {"not-zero", 1, not_zero, b, true},
                                {"const-or-distinct", 2, const_or_distinct, b, true}};
    const eqf_dynamic dynamics[] = {{"let-lam-diff", let_lam_diff, b}, {"append", append, b}};
    for (i64 i = 0; i < COUNT_OF(guards); i++) {
        eqf_status s = eqf_guard_add(lang, &guards[i]);
        if (s)
            eqf_rethrow(lang->ctx, s);
    }
    for (i64 i = 0; i < COUNT_OF(dynamics); i++) {
        eqf_status s = eqf_dynamic_add(lang, &dynamics[i]);
        if (s)
            eqf_rethrow(lang->ctx, s);
    }
    return b;
}

bool eg_builtins_is_analysis(const char *name)
{
    return strcmp(name, "math-fold") == 0 || strcmp(name, "prop-fold") == 0 ||
           strcmp(name, "lambda") == 0 || strcmp(name, "interval") == 0;
}

eqf_status eg_builtins_attach(eg_builtins *b, eqf_egraph *g, const char *const *names, i64 n)
{
    const struct {
        eqf_analysis analysis;
        i32 *index;
    } table[] = {
        {{"math-fold", sizeof(math_data), math_make, math_merge, math_modify, b}, &b->math},
        {{"prop-fold", sizeof(prop_data), prop_make, prop_merge, prop_modify, b}, &b->prop},
        {{"lambda", sizeof(lambda_data), lambda_make, lambda_merge, lambda_modify, b}, &b->lambda},
        {{"interval", sizeof(interval_data), interval_make, interval_merge, NULL, b},
         &b->interval},
    };
    for (i64 i = 0; i < n; i++) {
        for (i64 k = 0; k < COUNT_OF(table); k++) {
            if (strcmp(table[k].analysis.name, names[i]) != 0)
                continue;
            unsigned index;
            eqf_status s = eqf_analysis_add(g, &table[k].analysis, &index);
            if (s)
                return s;
            *table[k].index = (i32)index;
        }
    }
    return EQF_OK;
}

/* ---- judging steps ------------------------------------------------------------------------- */

static bool sx_same(const sx *a, const sx *b)
{
    if (a->kind == SX_LIST || b->kind == SX_LIST) {
        if (a->kind != b->kind || a->n != b->n)
            return false;
        for (i64 i = 0; i < a->n; i++) {
            if (!sx_same(a->at[i], b->at[i]))
                return false;
        }
        return true;
    }
    if (a->kind == SX_INT || a->kind == SX_FLOAT)
        return (b->kind == SX_INT || b->kind == SX_FLOAT) && a->f == b->f;
    return a->n == b->n && memcmp(a->text, b->text, (size_t)a->n) == 0;
}

static bool step_math(const sx *x, const sx *y)
{
    f64 v[2], out;
    if (x->kind != SX_LIST || x->n != 3 || (y->kind != SX_INT && y->kind != SX_FLOAT))
        return false;
    for (i64 i = 0; i < 2; i++) {
        if (x->at[i + 1]->kind != SX_INT && x->at[i + 1]->kind != SX_FLOAT)
            return false;
        v[i] = x->at[i + 1]->f;
    }
    return math_eval(x->at[0]->text, 2, v, &out) && out == y->f;
}

static bool step_prop(const sx *x, const sx *y)
{
    u64 v[2] = {0};
    if (x->kind != SX_LIST || x->n < 2 || x->n > 3 || y->kind == SX_LIST)
        return false;
    for (i64 i = 1; i < x->n; i++) {
        if (x->at[i]->kind == SX_LIST)
            return false;
        v[i - 1] = prop_leaf_value(x->at[i]->text);
    }
    u64 r = prop_eval(x->at[0]->text, (u32)x->n - 1, v);
    return r && r == prop_leaf_value(y->text);
}

static lambda_data step_leaf(const sx *x)
{
    lambda_data d = {0};
    if (x->kind == SX_INT && x->i == (i32)x->i) {
        d.kind = L_INT;
        d.value = (i32)x->i;
    } else if (x->kind == SX_SYMBOL && prop_leaf_value(x->text)) {
        d.kind = L_BOOL;
        d.value = prop_leaf_value(x->text) == P_TRUE;
    }
    return d;
}

static bool step_lambda(const sx *x, const sx *y)
{
    if (x->kind != SX_LIST || x->n != 3 || x->at[0]->kind == SX_LIST)
        return false;
    lambda_data p = step_leaf(x->at[1]), q = step_leaf(x->at[2]), want = step_leaf(y), d = {0};
    lambda_constant(x->at[0]->text, 2, &p, &q, &d);
    return d.kind && d.kind == want.kind && d.value == want.value;
}

static bool is_op(const sx *x, const char *name, i64 n)
{
    return sx_is_form(x, name) && x->n == n + 1;
}

/* The renamed form must use a symbol that the left side has not; the plain form is only right
 * when ?v2 is not free in ?e, which a term does not show: an assumption. */
static eqf_verdict step_let_lam(const sx *x, const sx *y)
{
    if (!is_op(x, "let", 3) || !is_op(x->at[3], "lam", 2) || !is_op(y, "lam", 2) ||
        !is_op(y->at[2], "let", 3))
        return EQF_REFUSED;
    const sx *v1 = x->at[1], *e = x->at[2], *v2 = x->at[3]->at[1], *body = x->at[3]->at[2];
    const sx *let = y->at[2], *inner = let->at[3];
    if (!sx_same(let->at[1], v1) || !sx_same(let->at[2], e))
        return EQF_REFUSED;
    if (sx_same(y->at[1], v2) && sx_same(inner, body))
        return EQF_ASSUMED;
    bool renames = is_op(inner, "let", 3) && sx_same(inner->at[1], v2) &&
                   is_op(inner->at[2], "var", 1) && sx_same(inner->at[2]->at[1], y->at[1]) &&
                   sx_same(inner->at[3], body) && y->at[1]->kind == SX_SYMBOL;
    return renames ? EQF_ASSUMED : EQF_REFUSED;
}

/* Leaves of a term from left to right, at most n of them into out; how many there are. */
static i64 leaves_of(const sx *x, const sx **out, i64 n)
{
    i64 count = 0;
    for (i64 i = 1; x->kind == SX_LIST && i < x->n; i++)
        count += leaves_of(x->at[i], out + MIN(count, n), MAX(n - count, 0));
    if (x->kind != SX_LIST && n)
        *out = x;
    return count + (x->kind != SX_LIST);
}

/* What the two variables of the left side hold is all that it holds. */
static bool step_append(const sx *x, const sx *y)
{
    const sx *part[2];
    if (leaves_of(x, part, 2) != 2 || y->kind == SX_LIST)
        return false;
    i64 n = part[0]->n, m = part[1]->n;
    return y->n == n + m && memcmp(y->text, part[0]->text, (size_t)n) == 0 &&
           memcmp(y->text + n, part[1]->text, (size_t)m) == 0;
}

eqf_verdict eg_builtins_step(void *user, const char *reason, const char *left, const char *right)
{
    const eg_builtins *b = user;
    arena *a = arena_new(b->lang->ctx, 0);
    if (!a)
        return EQF_REFUSED;
    trap t;
    volatile eqf_verdict v = EQF_REFUSED;
    TRY(b->lang->ctx, t)
    {
        const sx *x = sx_read(a, NULL, left, (i64)strlen(left));
        const sx *y = sx_read(a, NULL, right, (i64)strlen(right));
        if (x->n == 1 && y->n == 1) {
            x = x->at[0];
            y = y->at[0];
            bool holds = (strcmp(reason, "math-fold") == 0 && step_math(x, y)) ||
                         (strcmp(reason, "prop-fold") == 0 && step_prop(x, y)) ||
                         (strcmp(reason, "lambda") == 0 && step_lambda(x, y)) ||
                         (strcmp(reason, "append") == 0 && step_append(x, y));
            v = holds ? EQF_HOLDS
                : strcmp(reason, "let-lam-diff") == 0 ? step_let_lam(x, y) : EQF_REFUSED;
        }
    }
    arena_free(a);
    return v;
}
