/* The independent proof checker. It shares the S-expression reader with the engine and nothing else:
 * its own terms, its own reading of rules, its own matching. It replays either form of proof (see
 * proof_text.c) and accepts a claim only when every step is literally what it says:
 *
 *   rule         the left side under the substitution is the one term, the right side the other;
 *                premises (several left patterns, eq guards) are proved; guards are judged by the
 *                caller or counted as assumptions
 *   axiom        it was given with exactly these terms, or the caller's judge accepts it
 *   congruence   same operator, each child proved equal
 *   swap         the operator is commutative */
#include <stdio.h>

#include "base/base.h"
#include "eqf_egraph.h"

typedef struct term {
    const char *atom; /* with a prefix: # number, $ symbol */
    i64 n;
    const u32 *kids;
    i64 size, depth; /* as a tree; the size saturates */
} term;

enum { MOST_TREE = 4000, MOST_SIZE = 1 << 30, MOST_DEPTH = 2000, MOST_ID = 10000000 };

typedef struct proved {
    u32 from, to; /* 0: not defined */
} proved;

typedef struct checker {
    eqf_ctx *ctx;
    arena *a;
    const eqf_checking *given;
    VEC(term) terms;
    VEC(u32) slots; /* open addressing over terms */
    const sx *rules, *axioms;
    VEC(u32) ids;      /* term of each id of a shared proof */
    VEC(proved) steps; /* of each id */
    eqf_check_report report;
} checker;

typedef struct binding {
    const char *name;
    u32 value;
} binding;
typedef VEC(binding) bindings;

#define REFUSE(c, at, ...)                                                                         \
    do {                                                                                           \
        char place_[40];                                                                           \
        snprintf(place_, sizeof place_, "%u:%u", (at)->line, (at)->column);                        \
        eqf_throw((c)->ctx, EQF_E_MISMATCH, "proof", place_, __VA_ARGS__);                         \
    } while (0)


/* ---- terms --------------------------------------------------------------------------------- */

static u32 add_term(checker *c, const char *atom, i64 n, const u32 *kids)
{
    if (2 * (c->terms.n + 1) > c->slots.n) {
        i64 size = MAX(64, 2 * c->slots.n);
        c->slots.at = NEW_N(c->a, u32, size);
        c->slots.n = c->slots.cap = size;
        for (i64 k = 1; k < c->terms.n; k++) {
            const term *t = &c->terms.at[k];
            u64 h = hash_bytes(t->kids, 4 * t->n, hash_bytes(t->atom, (i64)strlen(t->atom), 0));
            i64 i = (i64)(h & (u64)(size - 1));
            while (c->slots.at[i])
                i = (i + 1) & (size - 1);
            c->slots.at[i] = (u32)k;
        }
    }
    u64 h = hash_bytes(kids, 4 * n, hash_bytes(atom, (i64)strlen(atom), 0));
    i64 i = (i64)(h & (u64)(c->slots.n - 1));
    for (; c->slots.at[i]; i = (i + 1) & (c->slots.n - 1)) {
        const term *t = &c->terms.at[c->slots.at[i]];
        if (t->n == n && strcmp(t->atom, atom) == 0 &&
            (n == 0 || memcmp(t->kids, kids, 4 * (size_t)n) == 0))
            return c->slots.at[i];
    }
    term t = {arena_strdup(c->a, atom), n, arena_copy(c->a, kids, 4 * n), 1, 1};
    for (i64 k = 0; k < n; k++) {
        t.size = MIN(t.size + c->terms.at[kids[k]].size, MOST_SIZE);
        t.depth = MAX(t.depth, 1 + c->terms.at[kids[k]].depth);
    }
    vec_push(c->a, &c->terms, t);
    c->slots.at[i] = (u32)c->terms.n - 1;
    return c->slots.at[i];
}

static const char *atom_of(checker *c, const sx *x)
{
    if (x->kind == SX_LIST)
        REFUSE(c, x, "expected an atom");
    if (x->kind == SX_INT)
        return arena_printf(c->a, "#%lld", (long long)x->i);
    if (x->kind == SX_FLOAT && x->f < 9e18 && x->f > -9e18 && x->f == (f64)(i64)x->f)
        return arena_printf(c->a, "#%lld", (long long)x->f);
    if (x->kind == SX_FLOAT)
        return arena_printf(c->a, "#%.17g", x->f);
    return arena_printf(c->a, "$%s", x->text);
}

static bool is_variable(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == '?';
}

static const binding *find_binding(const bindings *b, const char *name)
{
    for (i64 i = 0; b && i < b->n; i++) {
        if (strcmp(b->at[i].name, name) == 0)
            return &b->at[i];
    }
    return NULL;
}

/* The term `x` under a substitution; NULL: no variables allowed. Keywords count as children. */
static u32 instantiate(checker *c, const sx *x, const bindings *b, const sx *at)
{
    if (is_variable(x)) {
        const binding *found = find_binding(b, x->text);
        if (!found)
            REFUSE(c, at, "variable %s has no value", x->text);
        return found->value;
    }
    if (x->kind != SX_LIST)
        return add_term(c, atom_of(c, x), 0, NULL);
    if (x->n == 0 || x->at[0]->kind == SX_LIST)
        REFUSE(c, at, "a term begins with the name of its operator");
    u32 *kids = NEW_N(c->a, u32, x->n);
    for (i64 i = 1; i < x->n; i++)
        kids[i - 1] = instantiate(c, x->at[i], b, at);
    return add_term(c, atom_of(c, x->at[0]), x->n - 1, kids);
}

static void print_atom(str *out, const char *name)
{
    sx atom = {.kind = SX_STRING, .text = name + 1, .n = (i64)strlen(name) - 1};
    if (name[0] == '#' || (name[1] && !strpbrk(name + 1, " ()[]{};\"\\\n\t")))
        str_add(out, name + 1);
    else
        sx_print(out, &atom);
}

static void print_term(const checker *c, str *out, u32 t)
{
    const term *u = &c->terms.at[t];
    if (u->n)
        str_add_char(out, '(');
    print_atom(out, u->atom);
    for (i64 i = 0; i < u->n; i++) {
        str_add_char(out, ' ');
        print_term(c, out, u->kids[i]);
    }
    if (u->n)
        str_add_char(out, ')');
}

/* A term as an operand of others has its place in the table, a keyword and what follows it not. */
static void print_shared(const checker *c, str *out, u32 t, u32 *ids, u32 *next)
{
    const term *u = &c->terms.at[t];
    if (ids[t])
        return;
    i64 operands = 0;
    while (operands < u->n && strncmp(c->terms.at[u->kids[operands]].atom, "$:", 2) != 0)
        print_shared(c, out, u->kids[operands++], ids, next);
    ids[t] = ++*next;
    str_printf(out, " (t %u ", ids[t]);
    print_atom(out, u->atom);
    for (i64 i = 0; i < operands; i++)
        str_printf(out, " %u", ids[u->kids[i]]);
    for (i64 i = operands; i < u->n; i++) {
        str_add_char(out, ' ');
        print_term(c, out, u->kids[i]);
    }
    str_add_char(out, ')');
}

/* What a judge sees: one term, or when that were long, (shared-term (t ID HEAD CHILD ...) ... ID). */
static const char *text_of(const checker *c, u32 t)
{
    str s = str_new(c->a);
    if (c->terms.at[t].depth > MOST_DEPTH)
        eqf_throw(c->ctx, EQF_E_LIMIT, "proof", NULL, "a judged term is nested too deeply");
    if (c->terms.at[t].size < MOST_TREE) {
        print_term(c, &s, t);
        return str_text(&s);
    }
    arena *scratch = arena_child(c->a);
    u32 next = 0, *ids = NEW_N(scratch, u32, c->terms.n);
    str_add(&s, "(shared-term");
    print_shared(c, &s, t, ids, &next);
    str_printf(&s, " %u)", ids[t]);
    arena_free(scratch);
    return str_text(&s);
}

/* ---- rules --------------------------------------------------------------------------------- */

static bool guard_has_shape(const sx *g)
{
    if (g->kind != SX_LIST || g->n == 0 || g->at[0]->kind != SX_SYMBOL)
        return false;
    bool all = true;
    for (i64 i = 1; i < g->n && sx_is(g->at[0], "and"); i++)
        all = all && guard_has_shape(g->at[i]);
    if (sx_is(g->at[0], "and"))
        return all;
    return sx_is(g->at[0], "eq") || sx_is(g->at[0], "distinct") ? g->n == 3 : g->n <= 9;
}

/* (multi NAME (?v P ...) ... => (?v P ...) ... KEYWORDS): where the keywords begin, 0: it is none. */
static i64 multi_shape(const sx *r)
{
    i64 arrow = 0, i = 2;
    for (; i < r->n && (r->at[i]->kind == SX_LIST || (!arrow && sx_is(r->at[i], "=>"))); i++) {
        const sx *side = r->at[i];
        if (side->kind != SX_LIST)
            arrow = i;
        else if (side->n < (arrow ? 2 : 1) || !is_variable(side->at[0]))
            return 0;
    }
    return arrow > 2 && i > arrow + 1 ? i : 0;
}

/* What is taken apart later has the parts. The rules come from whoever asks, but as text. */
static void check_shape(const checker *c, const sx *r)
{
    bool rule = sx_is_form(r, "rule"), dynamic = sx_is_form(r, "dynamic");
    i64 end = 0;
    if (rule || dynamic)
        end = r->n >= 5 && (sx_is(r->at[3], "=>") || (rule && sx_is(r->at[3], "<=>"))) ? 5 : 0;
    else if (sx_is_form(r, "multi"))
        end = multi_shape(r);
    bool good = end && r->at[1]->kind != SX_LIST && (r->n - end) % 2 == 0 &&
                !(dynamic && r->at[4]->kind != SX_SYMBOL);
    for (i64 i = end; good && i < r->n; i += 2) {
        good = r->at[i]->kind == SX_SYMBOL && r->at[i]->text[0] == ':' &&
               (!sx_is(r->at[i], ":when") || guard_has_shape(r->at[i + 1]));
    }
    if (!good)
        sx_throw(c->ctx, "rules", r, "this is no rule");
}

static const sx *find_rule(checker *c, const char *name, bool *reverse)
{
    size_t n = strlen(name);
    bool rev = n > 4 && strcmp(name + n - 4, "-rev") == 0;
    for (i64 i = 0; i < c->rules->n; i++) {
        const sx *r = c->rules->at[i];
        const char *own = r->at[1]->text;
        *reverse = false;
        if (strcmp(own, name) == 0)
            return r;
        *reverse = true;
        if (rev && sx_is(r->at[3], "<=>") && strlen(own) == n - 4 && strncmp(own, name, n - 4) == 0)
            return r;
    }
    return NULL;
}

static const sx *keyword(const sx *r, const char *key)
{
    for (i64 i = 2; i + 1 < r->n; i++) {
        if (sx_is(r->at[i], key))
            return r->at[i + 1];
    }
    return NULL;
}

/* A premise that was cited: it has to prove from = to. */
typedef struct premises {
    const proved *at;
    i64 n, next;
} premises;

static void use_premise(checker *c, premises *p, u32 from, u32 to, const sx *at)
{
    if (p->next == p->n)
        REFUSE(c, at, "a premise is missing");
    proved q = p->at[p->next++];
    if (q.from == 0 && q.to == 0) {
        if (from != to)
            REFUSE(c, at, "a premise is said to be trivial and is not");
    } else if (q.from != from || q.to != to) {
        REFUSE(c, at, "premise %lld proves another equality", (long long)p->next);
    }
}

static void check_guard(checker *c, const sx *g, const bindings *b, premises *p, const sx *at)
{
    if (sx_is_form(g, "and")) {
        for (i64 i = 1; i < g->n; i++)
            check_guard(c, g->at[i], b, p, at);
        return;
    }
    if (sx_is_form(g, "eq")) {
        u32 x = instantiate(c, g->at[1], b, at), y = instantiate(c, g->at[2], b, at);
        use_premise(c, p, x, y, at);
        return;
    }
    const char *args[8];
    u32 value[8];
    for (i64 i = 1; i < g->n; i++) {
        value[i - 1] = instantiate(c, g->at[i], b, at);
        args[i - 1] = text_of(c, value[i - 1]);
    }
    eqf_verdict v = EQF_ASSUMED;
    if (sx_is_form(g, "distinct"))
        v = value[0] == value[1] ? EQF_REFUSED : EQF_ASSUMED;
    else if (c->given->guard)
        v = c->given->guard(c->given->user, g->at[0]->text, args, (size_t)g->n - 1);
    if (v == EQF_REFUSED)
        REFUSE(c, at, "guard %s does not hold", g->at[0]->text);
    c->report.assumptions += v == EQF_ASSUMED;
}

static bool mentions(const sx *x, const char *name)
{
    if (x->kind != SX_LIST)
        return x->kind == SX_SYMBOL && strcmp(x->text, name) == 0;
    for (i64 i = 0; i < x->n; i++) {
        if (mentions(x->at[i], name))
            return true;
    }
    return false;
}

/* A class that is new on the right is that of its first pattern, whatever the proof says. */
static void bind_new(checker *c, const sx *r, i64 arrow, bindings *b, const sx *at)
{
    for (i64 i = arrow + 1; i < r->n && r->at[i]->kind == SX_LIST; i++) {
        const char *name = r->at[i]->at[0]->text;
        bool known = false;
        for (i64 k = 2; k < i && !known; k++)
            known = k < arrow ? mentions(r->at[k], name)
                              : k > arrow && strcmp(r->at[k]->at[0]->text, name) == 0;
        if (known)
            continue;
        u32 value = instantiate(c, r->at[i]->at[1], b, at);
        const binding *claimed = find_binding(b, name);
        if (claimed && claimed->value != value)
            REFUSE(c, at, "variable %s is not what the rule makes", name);
        if (!claimed)
            vec_push(c->a, b, (binding){name, value});
    }
}

static void check_multi(checker *c, const sx *r, i64 conclusion, bindings *b, premises *p,
                        u32 from, u32 to, const sx *at)
{
    i64 arrow = 2, k = 0;
    while (arrow < r->n && !sx_is(r->at[arrow], "=>"))
        arrow++;
    for (i64 i = 2; i < arrow; i++) {
        const sx *side = r->at[i];
        u32 class_term = instantiate(c, side->at[0], b, at);
        if (side->n == 1)
            use_premise(c, p, class_term, class_term, at);
        for (i64 j = 1; j < side->n; j++)
            use_premise(c, p, class_term, instantiate(c, side->at[j], b, at), at);
    }
    const sx *guard = keyword(r, ":when");
    if (guard)
        check_guard(c, guard, b, p, at);
    bind_new(c, r, arrow, b, at);
    for (i64 i = arrow + 1; i < r->n && r->at[i]->kind == SX_LIST; i++) {
        const sx *side = r->at[i];
        for (i64 j = 1; j < side->n; j++, k++) {
            if (k != conclusion)
                continue;
            u32 left = instantiate(c, side->at[0], b, at);
            if (left != from || instantiate(c, side->at[j], b, at) != to)
                REFUSE(c, at, "rule %s under this substitution says something else",
                       r->at[1]->text);
            return;
        }
    }
    REFUSE(c, at, "rule %s has no conclusion %lld", r->at[1]->text, (long long)conclusion);
}

/* `cite` is (rule NAME K … (?x VALUE) …), its bindings read already. */
static void check_rule(checker *c, const sx *cite, bindings *b, premises *p, u32 from, u32 to)
{
    bool reverse;
    if (cite->n < 3 || cite->at[1]->kind == SX_LIST || cite->at[2]->kind != SX_INT)
        REFUSE(c, cite, "expected (rule NAME CONCLUSION ...)");
    const sx *r = find_rule(c, cite->at[1]->text, &reverse);
    if (!r)
        REFUSE(c, cite, "no rule is called %s", cite->at[1]->text);
    if (sx_is_form(r, "multi")) {
        check_multi(c, r, cite->at[2]->i, b, p, from, to, cite);
    } else {
        const sx *left = r->at[reverse ? 4 : 2], *right = r->at[reverse ? 2 : 4];
        if (instantiate(c, left, b, cite) != from)
            REFUSE(c, cite, "the left side of %s under this substitution is another term",
                   cite->at[1]->text);
        if (sx_is_form(r, "dynamic")) {
            eqf_verdict v = c->given->step ? c->given->step(c->given->user, right->text,
                                                            text_of(c, from), text_of(c, to))
                                           : EQF_REFUSED;
            if (v == EQF_REFUSED)
                REFUSE(c, cite, "%s does not give this right side", right->text);
            c->report.assumptions += v == EQF_ASSUMED;
        } else if (cite->at[2]->i != 0 || instantiate(c, right, b, cite) != to) {
            REFUSE(c, cite, "the right side of %s under this substitution is another term",
                   cite->at[1]->text);
        }
        const sx *guard = keyword(r, ":when");
        if (guard)
            check_guard(c, guard, b, p, cite);
    }
    if (p->next != p->n)
        REFUSE(c, cite, "there are premises that %s does not have", cite->at[1]->text);
    for (i64 i = 0; i < b->n; i++) {
        if (!mentions(r, b->at[i].name))
            REFUSE(c, cite, "%s has no variable %s", cite->at[1]->text, b->at[i].name);
    }
}

/* Reads (?VARIABLE TERM); `value` is the term. */
static void bind(checker *c, bindings *b, const sx *y, u32 value)
{
    if (find_binding(b, y->at[0]->text))
        REFUSE(c, y, "variable %s is given twice", y->at[0]->text);
    vec_push(c->a, b, (binding){y->at[0]->text, value});
}

static void check_binding(const checker *c, const sx *y)
{
    if (y->kind != SX_LIST || y->n != 2 || !is_variable(y->at[0]))
        REFUSE(c, y, "expected (?VARIABLE TERM)");
}

static void check_axiom(checker *c, const sx *cite, u32 from, u32 to)
{
    if (cite->n < 2 || cite->at[1]->kind == SX_LIST) /* a flat one has a direction, too */
        REFUSE(c, cite, "expected (axiom REASON)");
    const char *reason = cite->at[1]->text;
    for (i64 i = 0; i < c->axioms->n; i++) {
        const sx *x = c->axioms->at[i];
        if (!sx_is_form(x, "axiom") || x->n != 4 || x->at[1]->kind == SX_LIST ||
            strcmp(x->at[1]->text, reason) != 0)
            continue;
        if (instantiate(c, x->at[2], NULL, cite) == from &&
            instantiate(c, x->at[3], NULL, cite) == to)
            return;
    }
    eqf_verdict v = c->given->step ? c->given->step(c->given->user, reason, text_of(c, from),
                                                    text_of(c, to))
                                   : EQF_REFUSED;
    if (v == EQF_REFUSED)
        REFUSE(c, cite, "%s is not an axiom for these terms", reason);
    c->report.assumptions += v == EQF_ASSUMED;
}

static void check_swap(checker *c, const sx *at, u32 from, u32 to)
{
    const term *x = &c->terms.at[from], *y = &c->terms.at[to];
    const char *name = x->atom + 1;
    size_t n = strlen(name);
    bool commutes = false;
    for (size_t i = 0; i + n <= c->given->commutative.n; i++) {
        const char *p = c->given->commutative.at + i;
        commutes |= strncmp(p, name, n) == 0 && (i == 0 || p[-1] == ' ') &&
                    (i + n == c->given->commutative.n || p[n] == ' ');
    }
    bool same = x->n == y->n && x->n >= 2 && strcmp(x->atom, y->atom) == 0 &&
                x->kids[0] == y->kids[1] && x->kids[1] == y->kids[0];
    if (same && x->n > 2) /* after two operands there may be keywords only */
        same = strncmp(c->terms.at[x->kids[2]].atom, "$:", 2) == 0;
    for (i64 i = 2; same && i < x->n; i++)
        same = x->kids[i] == y->kids[i];
    if (!commutes || !same)
        REFUSE(c, at, "this is no exchange of operands");
}

/* ---- the shared form ----------------------------------------------------------------------- */

static u32 shared_id(checker *c, const sx *x, i64 *out)
{
    if (x->kind != SX_INT || x->i < 0 || x->i > MOST_ID)
        REFUSE(c, x, "expected an id");
    *out = x->i;
    return (u32)x->i;
}

static u32 shared_term(checker *c, const sx *x)
{
    i64 id;
    shared_id(c, x, &id);
    if (id >= c->ids.n || !c->ids.at[id])
        REFUSE(c, x, "term %lld is not defined", (long long)id);
    return c->ids.at[id];
}

static proved shared_ref(checker *c, const sx *x)
{
    if (x->kind != SX_INT)
        REFUSE(c, x, "expected a step");
    i64 id = x->i < 0 ? -x->i : x->i;
    if (id == 0)
        return (proved){0, 0};
    if (id >= c->steps.n || !c->steps.at[id].from)
        REFUSE(c, x, "step %lld is not defined", (long long)id);
    proved p = c->steps.at[id];
    return x->i < 0 ? (proved){p.to, p.from} : p;
}

static void define_term(checker *c, const sx *x)
{
    i64 id;
    if (x->n < 3 || x->at[2]->kind == SX_LIST)
        REFUSE(c, x, "expected (t ID HEAD CHILD ...)");
    shared_id(c, x->at[1], &id);
    u32 *kids = NEW_N(c->a, u32, x->n);
    bool keywords = false;
    for (i64 i = 3; i < x->n; i++) {
        keywords |= x->at[i]->kind == SX_SYMBOL && x->at[i]->text[0] == ':';
        kids[i - 3] = keywords ? instantiate(c, x->at[i], NULL, x) : shared_term(c, x->at[i]);
    }
    while (c->ids.n <= id)
        vec_push(c->a, &c->ids, 0);
    if (c->ids.at[id])
        REFUSE(c, x, "term %lld is defined twice", (long long)id);
    c->ids.at[id] = add_term(c, atom_of(c, x->at[2]), x->n - 3, kids);
}

static void shared_rule(checker *c, const sx *x, const sx *cite, u32 from, u32 to)
{
    bindings b = {0};
    for (i64 i = 3; i < cite->n; i++) {
        const sx *y = cite->at[i];
        check_binding(c, y);
        bind(c, &b, y, y->at[1]->kind == SX_INT ? shared_term(c, y->at[1])
                                                : instantiate(c, y->at[1], NULL, y));
    }
    proved *refs = NEW_N(c->a, proved, x->n);
    premises p = {refs, x->n - 5, 0};
    for (i64 i = 5; i < x->n; i++)
        refs[i - 5] = shared_ref(c, x->at[i]);
    check_rule(c, cite, &b, &p, from, to);
}

static void shared_congruence(checker *c, const sx *cite, u32 from, u32 to)
{
    const term s = c->terms.at[from], t = c->terms.at[to];
    if (strcmp(s.atom, t.atom) != 0 || s.n != t.n || cite->n - 1 > s.n)
        REFUSE(c, cite, "the operators differ");
    for (i64 i = 0; i < s.n; i++) {
        proved p = i + 1 < cite->n ? shared_ref(c, cite->at[i + 1]) : (proved){0, 0};
        if (p.from ? p.from != s.kids[i] || p.to != t.kids[i] : s.kids[i] != t.kids[i])
            REFUSE(c, cite, "child %lld is not proved equal", (long long)i);
    }
}

static void shared_chain(checker *c, const sx *cite, u32 from, u32 to)
{
    for (i64 i = 1; i < cite->n; i++) {
        proved p = shared_ref(c, cite->at[i]);
        if (p.from && p.from != from)
            REFUSE(c, cite->at[i], "the chain is broken here");
        if (p.from)
            from = p.to;
    }
    if (from != to)
        REFUSE(c, cite, "the chain ends at another term");
}

static void define_step(checker *c, const sx *x)
{
    i64 id;
    if (x->n < 5 || x->at[4]->kind != SX_LIST || x->at[4]->n < 1)
        REFUSE(c, x, "expected (s ID FROM TO (KIND ...) ...)");
    shared_id(c, x->at[1], &id);
    u32 from = shared_term(c, x->at[2]), to = shared_term(c, x->at[3]);
    const sx *cite = x->at[4];
    if (sx_is_form(cite, "rule"))
        shared_rule(c, x, cite, from, to);
    else if (x->n > 5)
        REFUSE(c, x->at[5], "only a rule has premises");
    else if (sx_is_form(cite, "axiom") && cite->n == 2)
        check_axiom(c, cite, from, to);
    else if (sx_is_form(cite, "congruence"))
        shared_congruence(c, cite, from, to);
    else if (sx_is_form(cite, "swap") && cite->n == 1)
        check_swap(c, cite, from, to);
    else if (sx_is_form(cite, "chain"))
        shared_chain(c, cite, from, to);
    else
        REFUSE(c, cite, "unknown kind of step");
    while (c->steps.n <= id)
        vec_push(c->a, &c->steps, (proved){0, 0});
    if (c->steps.at[id].from || id == 0)
        REFUSE(c, x, "step %lld is defined twice", (long long)id);
    c->steps.at[id] = (proved){from, to};
    c->report.steps++;
}

static proved check_shared(checker *c, const sx *proof)
{
    for (i64 i = 3; i < proof->n; i++) {
        const sx *x = proof->at[i];
        if (sx_is_form(x, "t")) {
            define_term(c, x);
        } else if (sx_is_form(x, "s")) {
            define_step(c, x);
        } else if (sx_is_form(x, "claim") && x->n == 4 && i + 1 == proof->n) {
            proved claim = {shared_term(c, x->at[1]), shared_term(c, x->at[2])};
            proved by = shared_ref(c, x->at[3]);
            if (by.from ? by.from != claim.from || by.to != claim.to : claim.from != claim.to)
                REFUSE(c, x, "the last step proves another equality");
            return claim;
        } else {
            REFUSE(c, x, "expected (t ...), (s ...) or a last (claim FROM TO STEP)");
        }
    }
    REFUSE(c, proof, "the proof claims nothing");
}

/* ---- the flat form ------------------------------------------------------------------------- */

static proved check_flat(checker *c, const sx *proof);

/* The sub-terms at a position of two terms that agree everywhere else. */
static void focus(checker *c, const sx *at, u32 *from, u32 *to)
{
    if (at->kind != SX_LIST)
        REFUSE(c, at, "expected a position (CHILD ...)");
    for (i64 i = 0; i < at->n; i++) {
        const term s = c->terms.at[*from], t = c->terms.at[*to];
        if (at->at[i]->kind != SX_INT || at->at[i]->i < 0 || at->at[i]->i >= s.n ||
            s.n != t.n || strcmp(s.atom, t.atom) != 0)
            REFUSE(c, at, "the terms have no such position in common");
        for (i64 k = 0; k < s.n; k++) {
            if (k != at->at[i]->i && s.kids[k] != t.kids[k])
                REFUSE(c, at, "the terms differ outside the position");
        }
        *from = s.kids[at->at[i]->i];
        *to = t.kids[at->at[i]->i];
    }
}

static void flat_step(checker *c, const sx *by, u32 from, u32 to)
{
    if (!sx_is_form(by, "by") || by->n < 3 || by->at[1]->kind != SX_LIST)
        REFUSE(c, by, "expected (by (KIND ...) (POSITION ...))");
    focus(c, by->at[2], &from, &to);
    const sx *cite = by->at[1];
    i64 arrow = sx_is_form(cite, "rule") ? 3 : 2;
    if (!sx_is_form(cite, "swap")) {
        if (cite->n <= arrow || (!sx_is(cite->at[arrow], "=>") && !sx_is(cite->at[arrow], "<=")))
            REFUSE(c, cite, "expected a direction");
        if (sx_is(cite->at[arrow], "<=")) {
            u32 t = from;
            from = to;
            to = t;
        }
    }
    if (!sx_is_form(cite, "rule") && by->n != 3)
        REFUSE(c, by, "only a rule has premises");
    if (sx_is_form(cite, "swap") && cite->n == 1) {
        check_swap(c, cite, from, to);
    } else if (sx_is_form(cite, "axiom") && cite->n == 3) {
        check_axiom(c, cite, from, to);
    } else if (sx_is_form(cite, "rule")) {
        bindings b = {0};
        for (i64 i = 4; i < cite->n; i++) {
            const sx *y = cite->at[i];
            check_binding(c, y);
            bind(c, &b, y, instantiate(c, y->at[1], NULL, y));
        }
        proved *refs = NEW_N(c->a, proved, by->n);
        premises p = {refs, by->n - 3, 0};
        for (i64 i = 3; i < by->n; i++) {
            if (!sx_is(by->at[i], "same"))
                refs[i - 3] = check_flat(c, by->at[i]);
        }
        check_rule(c, cite, &b, &p, from, to);
    } else {
        REFUSE(c, cite, "unknown kind of step");
    }
    c->report.steps++;
}

static proved check_flat(checker *c, const sx *proof)
{
    if (!sx_is_form(proof, "proof") || proof->n < 4 || (proof->n & 1) ||
        !sx_is(proof->at[1], "flat") || proof->at[2]->kind != SX_INT || proof->at[2]->i != 1)
        REFUSE(c, proof, "expected (proof flat 1 TERM (by ...) TERM ...)");
    u32 first = instantiate(c, proof->at[3], NULL, proof), from = first;
    for (i64 i = 4; i < proof->n; i += 2) {
        u32 to = instantiate(c, proof->at[i + 1], NULL, proof->at[i + 1]);
        flat_step(c, proof->at[i], from, to);
        from = to;
    }
    return (proved){first, from};
}

/* ---- API ----------------------------------------------------------------------------------- */

static const sx *read_text(const checker *c, const char *what, eqf_text text)
{
    static const char none[] = "";
    return sx_read(c->a, what, text.at ? text.at : none, (i64)text.n);
}

/* (shared-term (t ID HEAD CHILD ...) ... ID): its ids are its own. */
static u32 shared_whole(checker *c, const sx *x)
{
    c->ids.n = 0;
    if (x->n < 3)
        REFUSE(c, x, "expected (shared-term (t ID HEAD CHILD ...) ... ID)");
    for (i64 i = 1; i + 1 < x->n; i++) {
        if (!sx_is_form(x->at[i], "t"))
            REFUSE(c, x->at[i], "expected (t ID HEAD CHILD ...)");
        define_term(c, x->at[i]);
    }
    return shared_term(c, x->at[x->n - 1]);
}

/* After the proof was read. */
static u32 whole_term(checker *c, eqf_text text)
{
    const sx *x = read_text(c, "claim", text);
    if (x->n != 1)
        REFUSE(c, x, "expected one term");
    if (sx_is_form(x->at[0], "shared-term"))
        return shared_whole(c, x->at[0]);
    return instantiate(c, x->at[0], NULL, x->at[0]);
}

eqf_status eqf_proof_check(eqf_ctx *ctx, eqf_text proof, eqf_text a, eqf_text b,
                           const eqf_checking *checking, eqf_check_report *out)
{
    *out = (eqf_check_report){0};
    arena *mem = arena_new(ctx, 0);
    if (!mem)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(ctx, t)
    {
        checker *c = NEW(mem, checker);
        c->ctx = ctx;
        c->a = mem;
        c->given = checking;
        vec_push(mem, &c->terms, (term){0});
        c->rules = read_text(c, "rules", checking->rules);
        for (i64 i = 0; i < c->rules->n; i++)
            check_shape(c, c->rules->at[i]);
        c->axioms = read_text(c, "axioms", checking->axioms);
        const sx *all = read_text(c, "proof", proof);
        if (all->n != 1 || !sx_is_form(all->at[0], "proof") || all->at[0]->n < 4 ||
            all->at[0]->at[2]->kind != SX_INT || all->at[0]->at[2]->i != 1)
            REFUSE(c, all, "expected one (proof shared|flat 1 ...)");
        proved claim = sx_is(all->at[0]->at[1], "shared") ? check_shared(c, all->at[0])
                                                          : check_flat(c, all->at[0]);
        if (claim.from != whole_term(c, a) || claim.to != whole_term(c, b))
            REFUSE(c, all->at[0], "the proof is of another equality");
        *out = c->report;
    }
    arena_free(mem);
    return t.status;
}
