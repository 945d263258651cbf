/* Reading suites: rule sets, cases, families. See suite.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "egraph/suite.h"

#define FAIL(s, at, ...) sx_throw((s)->ctx, (s)->file, (at), __VA_ARGS__)

static bool is_keyword(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == ':';
}

const sx *eg_keyword(const sx *form, i64 from, const char *key)
{
    for (i64 i = from; i + 1 < form->n; i++) {
        if (sx_is(form->at[i], key))
            return form->at[i + 1];
    }
    return NULL;
}

static const char *name_of(const eg_suite *s, const sx *form)
{
    if (form->n < 2 || form->at[1]->kind == SX_LIST || is_keyword(form->at[1]) ||
        form->at[1]->text[0] == '?')
        FAIL(s, form, "expected (%s NAME ...)", form->at[0]->text);
    return form->at[1]->text;
}

i64 eg_suite_find_set(const eg_suite *s, const char *name)
{
    for (i64 i = 0; i < s->sets.n; i++) {
        if (strcmp(s->sets.at[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* ---- operators of rule sets ---------------------------------------------------------------- */

static void declare_ops(const eg_suite *s, eqf_lang *lang, const sx *ops)
{
    for (i64 i = 1; i < ops->n; i++) {
        const sx *o = ops->at[i];
        if (o->kind != SX_LIST || o->n != 2 || o->at[0]->kind == SX_LIST ||
            o->at[1]->kind != SX_INT || o->at[1]->i < 0 || o->at[1]->i > 999)
            FAIL(s, o, "expected (OPERATOR ARITY), arity 0 to 999");
        eqf_op op;
        eqf_status st = eqf_lang_op(lang, o->at[0]->text, (unsigned)o->at[1]->i, 0, &op);
        if (st)
            eqf_rethrow(s->ctx, st);
    }
}

/* Parents first. */
static void declare_set_ops(const eg_suite *s, eqf_lang *lang, i64 set)
{
    const eg_ruleset *r = &s->sets.at[set];
    if (r->parent >= 0)
        declare_set_ops(s, lang, r->parent);
    for (i64 i = 2; i < r->form->n; i++) {
        if (sx_is_form(r->form->at[i], "ops"))
            declare_ops(s, lang, r->form->at[i]);
    }
}

static void read_set_rules(const eg_suite *s, eqf_lang *lang, arena *a, i64 set,
                           eg_rule_list *out)
{
    const eg_ruleset *r = &s->sets.at[set];
    if (r->parent >= 0)
        read_set_rules(s, lang, a, r->parent, out);
    for (i64 i = 2; i < r->form->n; i++) {
        if (eg_is_rule(r->form->at[i]))
            eg_rule_read(lang, a, s->file, r->form->at[i], out);
    }
}

/* Runs body(user) with a fresh language that has the built-ins. */
static eqf_lang *new_lang(eqf_ctx *ctx, arena *a, eg_builtins **b)
{
    eqf_lang *lang;
    eqf_status st = eqf_lang_new(ctx, &lang);
    if (st)
        eqf_rethrow(ctx, st);
    arena_defer(a, (void (*)(void *))eqf_lang_free, lang);
    *b = eg_builtins_new(lang, a);
    return lang;
}

static void read_ruleset(eg_suite *s, const sx *form)
{
    eg_ruleset r = {name_of(s, form), form, -1, false};
    if (eg_suite_find_set(s, r.name) >= 0)
        FAIL(s, form->at[1], "rule set %s is defined twice", r.name);
    bool own_ops = false;
    for (i64 i = 2; i < form->n; i++) {
        const sx *x = form->at[i];
        if (sx_is(x, ":extends")) {
            if (i + 1 == form->n)
                FAIL(s, x, "keyword :extends needs a value");
            if (r.parent >= 0)
                FAIL(s, x, "a rule set extends one other");
            const sx *p = form->at[++i];
            r.parent = p->kind == SX_LIST ? -1 : eg_suite_find_set(s, p->text);
            if (r.parent < 0)
                FAIL(s, p, "no rule set of this name is defined before");
            r.closed |= s->sets.at[r.parent].closed;
        } else if (sx_is_form(x, "ops")) {
            if (own_ops)
                FAIL(s, x, "the operators are listed twice");
            own_ops = r.closed = true;
        } else if (!eg_is_rule(x)) {
            FAIL(s, x, "expected :extends, (ops ...) or a rule");
        }
    }
    vec_push(s->a, &s->sets, r);
    /* read once now, to report errors where they stand */
    arena *a = arena_child(s->a);
    eg_builtins *b;
    eqf_lang *lang = new_lang(s->ctx, a, &b);
    declare_set_ops(s, lang, s->sets.n - 1);
    if (r.closed)
        eqf_lang_close(lang);
    eg_rule_list rules = {0};
    read_set_rules(s, lang, a, s->sets.n - 1, &rules);
    for (i64 i = 0; i < rules.n; i++) {
        for (i64 k = 0; k < i; k++) {
            if (strcmp(rules.at[i]->name, rules.at[k]->name) == 0)
                FAIL(s, rules.at[i]->source, "rule %s is defined twice", rules.at[i]->name);
        }
    }
    arena_free(a);
}

/* ---- families ------------------------------------------------------------------------------ */

typedef struct columns {
    const sx *names, *row; /* row NULL: only the first column has a value */
    i64 n;
} columns;

static sx *number_sx(arena *a, const sx *at, i64 i)
{
    sx *x = NEW(a, sx);
    *x = *at;
    x->kind = SX_INT;
    x->i = i;
    x->f = (f64)i;
    x->text = arena_printf(a, "%lld", (long long)i);
    x->n = (i64)strlen(x->text);
    return x;
}

/* NULL: the clause has a column without a value and is left out. */
static const sx *substitute(eg_suite *s, const sx *x, const columns *c)
{
    if (x->kind == SX_SYMBOL && x->text[0] == '$' && c) {
        if (strcmp(x->text, "$right") == 0 || strcmp(x->text, "$nest") == 0)
            return x;
        for (i64 i = 1; i < c->names->n; i++) {
            if (strcmp(c->names->at[i]->text, x->text + 1) != 0)
                continue;
            if (i == 1)
                return number_sx(s->a, x, c->n);
            return c->row && !sx_is(c->row->at[i], "-") ? c->row->at[i] : NULL;
        }
        FAIL(s, x, "no column is called %s", x->text + 1);
    }
    if (x->kind != SX_LIST)
        return x;
    sx *y = arena_copy(s->a, x, sizeof *x);
    y->at = NEW_N(s->a, sx *, x->n);
    for (i64 i = 0; i < x->n; i++) {
        const sx *item = substitute(s, x->at[i], c);
        if (!item)
            return NULL;
        y->at[i] = arena_copy(s->a, item, sizeof *item);
    }
    return y;
}

static sx *list_of(arena *a, const sx *at, sx *const *items, i64 n)
{
    sx *x = NEW(a, sx);
    *x = (sx){.kind = SX_LIST, .bracket = '(', .line = at->line, .column = at->column, .n = n};
    x->at = arena_copy(a, items, n * (i64)sizeof *items);
    return x;
}

/* Writes ($right …) and ($nest …) out. */
static sx *expand(eg_suite *s, sx *x)
{
    if (x->kind != SX_LIST)
        return x;
    if (sx_is_form(x, "$right")) {
        if (x->n != 4 || x->at[1]->kind == SX_LIST || x->at[2]->kind != SX_INT ||
            x->at[3]->kind != SX_INT)
            FAIL(s, x, "expected ($right OPERATOR FROM TO)");
        i64 from = x->at[2]->i, to = x->at[3]->i, step = from <= to ? 1 : -1;
        if (from < -1000000 || from > 1000000 || to < -1000000 || to > 1000000 ||
            (to - from) * step > 4000)
            FAIL(s, x, "$right has at most 4,000 operands");
        sx *t = number_sx(s->a, x, to);
        for (i64 i = to; i != from; i -= step)
            t = list_of(s->a, x, (sx *[]){x->at[1], number_sx(s->a, x, i - step), t}, 3);
        return t;
    }
    if (sx_is_form(x, "$nest")) {
        if (x->n != 4 || x->at[1]->kind == SX_LIST || x->at[2]->kind != SX_INT)
            FAIL(s, x, "expected ($nest OPERATOR TIMES TERM)");
        if (x->at[2]->i < 0 || x->at[2]->i > 4000)
            FAIL(s, x, "$nest is applied 0 to 4,000 times");
        sx *t = expand(s, x->at[3]);
        for (i64 i = 0; i < x->at[2]->i; i++)
            t = list_of(s->a, x, (sx *[]){x->at[1], t}, 2);
        return t;
    }
    for (i64 i = 0; i < x->n; i++)
        x->at[i] = expand(s, x->at[i]);
    return x;
}

static void add_clause(eg_suite *s, eg_case_form *f, const sx *clause, const columns *c)
{
    const sx *x = substitute(s, clause, c);
    if (x)
        vec_push(s->a, &f->clauses, expand(s, arena_copy(s->a, x, sizeof *x)));
}

typedef struct family {
    const sx *columns;
    i64 from, to, first_clause;
} family;

static i64 family_bound(eg_suite *s, const sx *form, const char *key)
{
    const sx *v = eg_keyword(form, 2, key);
    if (!v)
        FAIL(s, form, "a family needs %s", key);
    if (v->kind != SX_INT || v->i < 0 || v->i > 1000000)
        FAIL(s, v, "%s takes an integer from 0 to 1,000,000", key);
    return v->i;
}

static family family_head(eg_suite *s, const sx *form)
{
    family f = {NULL, family_bound(s, form, ":from"), family_bound(s, form, ":to"), 2};
    if (f.to < f.from || f.to - f.from > 1000)
        FAIL(s, form, "a family has 1 to 1,001 members");
    while (f.first_clause < form->n && is_keyword(form->at[f.first_clause])) {
        const sx *key = form->at[f.first_clause];
        if (!sx_is(key, ":from") && !sx_is(key, ":to"))
            FAIL(s, key, "unknown keyword %s", key->text);
        f.first_clause += 2;
    }
    for (i64 i = f.first_clause; i < form->n; i++) {
        const sx *x = form->at[i];
        if (sx_is_form(x, "columns")) {
            if (f.columns)
                FAIL(s, x, "the columns are listed twice");
            f.columns = x;
            if (x->n < 2)
                FAIL(s, x, "a family has at least one column");
            for (i64 k = 1; k < x->n; k++) {
                if (x->at[k]->kind != SX_SYMBOL)
                    FAIL(s, x->at[k], "a column's name is a symbol");
            }
        } else if (sx_is_form(x, "row")) {
            if (!f.columns)
                FAIL(s, x, "(columns ...) comes before the rows");
            if (x->n != f.columns->n)
                FAIL(s, x, "a row has %lld values here, found %lld", (long long)f.columns->n - 1,
                     (long long)x->n - 1);
            for (i64 k = 1; k < x->n; k++) {
                if (x->at[k]->kind != SX_INT && !(k > 1 && sx_is(x->at[k], "-")))
                    FAIL(s, x->at[k], "a row's values are integers or -");
            }
            for (i64 k = f.first_clause; k < i; k++) {
                if (sx_is_form(form->at[k], "row") && form->at[k]->at[1]->i == x->at[1]->i)
                    FAIL(s, x, "the row of %lld is given twice", (long long)x->at[1]->i);
            }
        }
    }
    if (!f.columns)
        FAIL(s, form, "a family needs (columns ...)");
    return f;
}

static eg_case_form family_member(eg_suite *s, const sx *form, i64 n)
{
    family f = family_head(s, form);
    columns c = {f.columns, NULL, n};
    for (i64 i = f.first_clause; i < form->n; i++) {
        if (sx_is_form(form->at[i], "row") && form->at[i]->at[1]->i == n)
            c.row = form->at[i];
    }
    eg_case_form out = {
        .name = arena_printf(s->a, "%s-%lld", form->at[1]->text, (long long)n), .form = form};
    for (i64 i = f.first_clause; i < form->n; i++) {
        if (!sx_is_form(form->at[i], "row") && !sx_is_form(form->at[i], "columns"))
            add_clause(s, &out, form->at[i], &c);
    }
    return out;
}

bool eg_suite_member(eg_suite *s, const char *name, eg_case_form *out)
{
    const char *dash = strrchr(name, '-');
    if (!dash || dash[1] < '0' || dash[1] > '9' || strlen(dash + 1) > 6)
        return false;
    char *end;
    long n = strtol(dash + 1, &end, 10);
    if (*end)
        return false;
    for (i64 i = 0; i < s->families.n; i++) {
        const char *family_name = s->families.at[i]->at[1]->text;
        if (strlen(family_name) == (size_t)(dash - name) &&
            strncmp(family_name, name, (size_t)(dash - name)) == 0) {
            *out = family_member(s, s->families.at[i], n);
            return true;
        }
    }
    return false;
}

/* ---- cases --------------------------------------------------------------------------------- */

static i64 integer(eg_case *c, const sx *x, const char *what)
{
    if (x->kind != SX_INT || x->i < 0)
        FAIL(c->suite, x, "%s takes an integer of 0 or more", what);
    return x->i;
}

/* The integer that must follow `key` in `form`. */
static i64 required(eg_case *c, const sx *form, const char *key)
{
    const sx *v = eg_keyword(form, 1, key);
    if (!v)
        FAIL(c->suite, form, "%s is missing", key);
    return integer(c, v, key);
}

static void shape(eg_case *c, const sx *x, i64 least, i64 most, const char *form)
{
    if (x->n < least || (most >= 0 && x->n > most))
        FAIL(c->suite, x, "expected %s", form);
}

/* Items from `from` on are pairs of a keyword out of `allowed` (separated by blanks) and a datum. */
static void keywords(eg_case *c, const sx *x, i64 from, const char *allowed)
{
    for (i64 i = from; i < x->n; i += 2) {
        const sx *k = x->at[i];
        if (!is_keyword(k))
            FAIL(c->suite, k, "expected a keyword");
        const char *at = strstr(allowed, k->text);
        size_t n = strlen(k->text);
        if (!at || (at[n] != ' ' && at[n] != 0) || n < 2)
            FAIL(c->suite, k, "unknown keyword %s", k->text);
        if (i + 1 == x->n)
            FAIL(c->suite, k, "keyword %s needs a value", k->text);
        for (i64 j = from; j < i; j += 2) {
            if (sx_is(x->at[j], k->text))
                FAIL(c->suite, k, "keyword %s is given twice", k->text);
        }
    }
}

static void check_term(eg_case *c, const sx *x)
{
    u32 arity;
    eg_head_of_sx(c->lang, c->suite->file, x, &arity);
    for (u32 i = 0; i < arity; i++)
        check_term(c, x->at[i + 1]);
}

static eg_rule *check_pattern(eg_case *c, const sx *x)
{
    return eg_pattern_read(c->lang, c->a, c->suite->file, x);
}

eg_rule_list *eg_case_set_named(eg_case *c, const sx *at)
{
    i64 set = at->kind == SX_LIST ? -1 : eg_suite_find_set(c->suite, at->text);
    if (set < 0)
        FAIL(c->suite, at, "no rule set of this name is defined before");
    const char *name = c->suite->sets.at[set].name;
    for (i64 i = 0; i < c->sets.n; i++) {
        if (c->sets.at[i].name == name)
            return &c->sets.at[i].rules;
    }
    eg_case_set fresh = {.name = name};
    read_set_rules(c->suite, c->lang, c->a, set, &fresh.rules);
    vec_push(c->a, &c->sets, fresh);
    return &c->sets.at[c->sets.n - 1].rules;
}

static void read_rules_clause(eg_case *c, const sx *x)
{
    for (i64 i = 1; i < x->n; i++) {
        const sx *y = x->at[i];
        if (eg_is_rule(y)) {
            eg_rule_read(c->lang, c->a, c->suite->file, y, &c->rules);
        } else if (sx_is_form(y, "only")) {
            shape(c, y, 3, -1, "(only RULESET NAME ...)");
            const eg_rule_list *set = eg_case_set_named(c, y->at[1]);
            for (i64 k = 2; k < y->n; k++) {
                eg_rule *found = NULL;
                for (i64 j = 0; j < set->n && y->at[k]->kind != SX_LIST; j++) {
                    if (strcmp(set->at[j]->name, y->at[k]->text) == 0)
                        found = set->at[j];
                }
                if (!found)
                    FAIL(c->suite, y->at[k], "rule set %s has no such rule", y->at[1]->text);
                vec_push(c->a, &c->rules, found);
            }
        } else if (y->kind == SX_LIST) {
            FAIL(c->suite, y, "expected a rule set, (only ...) or a rule");
        } else {
            const eg_rule_list *set = eg_case_set_named(c, y);
            for (i64 k = 0; k < set->n; k++)
                vec_push(c->a, &c->rules, set->at[k]);
        }
    }
    for (i64 i = 0; i < c->rules.n; i++) {
        for (i64 k = 0; k < i; k++) {
            if (strcmp(c->rules.at[i]->name, c->rules.at[k]->name) == 0)
                FAIL(c->suite, x, "rule %s comes in twice", c->rules.at[i]->name);
        }
    }
}

static void read_limits(eg_case *c, const sx *x)
{
    keywords(c, x, 1, ":iterations :nodes :seconds :bytes");
    for (i64 i = 1; i < x->n; i += 2) {
        const sx *key = x->at[i], *v = x->at[i + 1];
        bool none = sx_is(v, "none");
        if (sx_is(key, ":seconds")) {
            if (!none && ((v->kind != SX_INT && v->kind != SX_FLOAT) || !(v->f >= 0)))
                FAIL(c->suite, v, "a limit is a number of 0 or more, or none");
            c->limits.seconds = none ? -1 : v->f;
            continue;
        }
        if (!none && (v->kind != SX_INT || v->i < 0))
            FAIL(c->suite, v, "a limit is an integer of 0 or more, or none");
        i64 *field = sx_is(key, ":iterations") ? &c->limits.iterations
                     : sx_is(key, ":nodes")    ? &c->limits.nodes
                                               : &c->limits.bytes;
        *field = none ? -1 : v->i;
    }
}

static void read_scheduler(eg_case *c, const sx *x)
{
    shape(c, x, 2, -1, "(scheduler simple) or (scheduler backoff ...)");
    if (sx_is(x->at[1], "simple")) {
        shape(c, x, 2, 2, "(scheduler simple)");
        c->schedule.scheduler = EQF_SIMPLE;
    } else if (sx_is(x->at[1], "backoff")) {
        keywords(c, x, 2, ":limit :ban");
        const sx *limit = eg_keyword(x, 2, ":limit"), *ban = eg_keyword(x, 2, ":ban");
        c->schedule.scheduler = EQF_BACKOFF;
        if (limit)
            c->schedule.backoff_limit = integer(c, limit, ":limit");
        if (ban)
            c->schedule.backoff_ban = integer(c, ban, ":ban");
    } else {
        FAIL(c->suite, x->at[1], "expected simple or backoff");
    }
}

/* Settings come first, whatever their order in the case. True when it was one. */
static bool read_setting(eg_case *c, const sx *x)
{
    if (sx_is_form(x, "scheduler")) {
        read_scheduler(c, x);
    } else if (sx_is_form(x, "limits")) {
        read_limits(c, x);
    } else if (sx_is_form(x, "analysis")) {
        shape(c, x, 2, -1, "(analysis NAME ...)");
        for (i64 i = 1; i < x->n; i++) {
            if (x->at[i]->kind == SX_LIST || !eg_builtins_is_analysis(x->at[i]->text))
                FAIL(c->suite, x->at[i], "no analysis of this name");
            vec_push(c->a, &c->analyses, x->at[i]->text);
        }
    } else if (sx_is_form(x, "match")) {
        shape(c, x, 2, 2, "(match full) or (match delta)");
        if (!sx_is(x->at[1], "full") && !sx_is(x->at[1], "delta"))
            FAIL(c->suite, x->at[1], "expected full or delta");
        c->schedule.match = sx_is(x->at[1], "full") ? EQF_MATCH_FULL : EQF_MATCH_DELTA;
        c->has_match = true;
    } else {
        return false;
    }
    return true;
}

static bool is_stop(const sx *x)
{
    for (int k = 0; k <= EQF_STOP_TIME; k++) {
        if (sx_is(x, eqf_stop_name((eqf_stop)k)))
            return true;
    }
    return false;
}

static bool check_of_terms(eg_case *c, const sx *x)
{
    if (sx_is_form(x, "equal") || sx_is_form(x, "notequal")) {
        shape(c, x, 3, 3, "(equal A B) or (notequal A B)");
        check_term(c, x->at[1]);
        check_term(c, x->at[2]);
    } else if (sx_is_form(x, "goal") || sx_is_form(x, "nogoal")) {
        shape(c, x, 2, 2, "(goal PATTERN) or (nogoal PATTERN)");
        eg_rule *p = check_pattern(c, x->at[1]);
        if (sx_is_form(x, "goal"))
            vec_push(c->a, &c->goals, p);
    } else if (sx_is_form(x, "matches")) {
        shape(c, x, 3, -1, "(matches PATTERN COUNT ...)");
        check_pattern(c, x->at[1]);
        integer(c, x->at[2], "matches");
        keywords(c, x, 3, ":in :limit :expect");
        const sx *in = eg_keyword(x, 3, ":in"), *limit = eg_keyword(x, 3, ":limit");
        const sx *expect = eg_keyword(x, 3, ":expect");
        if (in)
            check_term(c, in);
        if (!limit != !expect)
            FAIL(c->suite, x, ":limit and :expect come together");
        if (limit) {
            integer(c, limit, ":limit");
            integer(c, expect, ":expect");
        }
    } else if (sx_is_form(x, "best")) {
        shape(c, x, 2, 2, "(best TERM)");
        check_term(c, x->at[1]);
    } else if (sx_is_form(x, "bounds") || sx_is_form(x, "bound")) {
        shape(c, x, 4, 4, "(bounds TERM LO HI)");
        check_term(c, x->at[1]);
        for (i64 i = 2; i < 4; i++) {
            if ((x->at[i]->kind != SX_INT && x->at[i]->kind != SX_FLOAT) || isnan(x->at[i]->f))
                FAIL(c->suite, x->at[i], "expected a number");
        }
        if (x->at[2]->f > x->at[3]->f)
            FAIL(c->suite, x->at[3], "the upper bound lies below the lower one");
        bool interval = false;
        for (i64 i = 0; i < c->analyses.n; i++)
            interval |= strcmp(c->analyses.at[i], "interval") == 0;
        if (!interval)
            FAIL(c->suite, x, "bounds need (analysis interval)");
    } else if (sx_is_form(x, "explain")) {
        shape(c, x, 3, -1, "(explain A B ...)");
        check_term(c, x->at[1]);
        check_term(c, x->at[2]);
        keywords(c, x, 3, ":flat :reduced :reasons");
        const sx *reasons = eg_keyword(x, 3, ":reasons");
        if (eg_keyword(x, 3, ":flat"))
            integer(c, eg_keyword(x, 3, ":flat"), ":flat");
        if (eg_keyword(x, 3, ":reduced"))
            integer(c, eg_keyword(x, 3, ":reduced"), ":reduced");
        if (reasons && reasons->kind != SX_LIST)
            FAIL(c->suite, reasons, ":reasons takes a list");
        for (i64 i = 0; reasons && i < reasons->n; i++) {
            if (reasons->at[i]->kind == SX_LIST)
                FAIL(c->suite, reasons->at[i], "a reason is a name");
        }
        c->wants_proof = true;
    } else {
        return false;
    }
    return true;
}

static void check_check(eg_case *c, const sx *x)
{
    if (check_of_terms(c, x))
        return;
    if (sx_is_form(x, "size")) {
        keywords(c, x, 1, ":nodes :classes");
        required(c, x, ":nodes");
        required(c, x, ":classes");
    } else if (sx_is_form(x, "at-most")) {
        keywords(c, x, 1, ":nodes");
        required(c, x, ":nodes");
    } else if (sx_is_form(x, "trace-size")) {
        shape(c, x, 2, -1, "(trace-size (NODES CLASSES) ...)");
        for (i64 i = 1; i < x->n; i++) {
            if (x->at[i]->kind != SX_LIST || x->at[i]->n != 2)
                FAIL(c->suite, x->at[i], "expected (NODES CLASSES)");
            integer(c, x->at[i]->at[0], "trace-size");
            integer(c, x->at[i]->at[1], "trace-size");
        }
        c->wants_trace = true;
    } else if (sx_is_form(x, "found") || sx_is_form(x, "iterations") ||
               sx_is_form(x, "dag-cost")) {
        shape(c, x, 2, 2, "one number");
        integer(c, x->at[1], x->at[0]->text);
    } else if (sx_is_form(x, "stop")) {
        shape(c, x, 2, 2, "(stop REASON)");
        if (!is_stop(x->at[1]))
            FAIL(c->suite, x->at[1], "no such reason to stop");
    } else if (sx_is_form(x, "cost")) {
        shape(c, x, 2, -1, "(cost N ...)");
        for (i64 i = 1; i < x->n; i++)
            integer(c, x->at[i], "cost");
    } else if (sx_is_form(x, "reference")) {
        keywords(c, x, 1, ":iterations :nodes :classes");
    } else {
        FAIL(c->suite, x, "unknown clause");
    }
}

/* term, union, bound: true when it was one. */
static bool check_action(eg_case *c, const sx *x, bool collect)
{
    if (sx_is_form(x, "term")) {
        shape(c, x, 2, -1, "(term E ...)");
        for (i64 i = 1; i < x->n; i++) {
            check_term(c, x->at[i]);
            if (collect)
                vec_push(c->a, &c->terms, x->at[i]);
        }
    } else if (sx_is_form(x, "union")) {
        shape(c, x, 3, -1, "(union A B [:reason NAME])");
        check_term(c, x->at[1]);
        check_term(c, x->at[2]);
        keywords(c, x, 3, ":reason");
        const sx *reason = eg_keyword(x, 3, ":reason");
        if (reason && reason->kind == SX_LIST)
            FAIL(c->suite, reason, "a reason is a name");
    } else if (sx_is_form(x, "bound")) {
        check_of_terms(c, x);
    } else {
        return false;
    }
    return true;
}

typedef struct names {
    VEC(const char *) marks;
    VEC(const char *) graphs;
} names;

static bool known_name(eg_case *c, const sx *x, const char *const *list, i64 n)
{
    if (x->kind != SX_SYMBOL)
        FAIL(c->suite, x, "expected a name");
    for (i64 i = 0; i < n; i++) {
        if (strcmp(list[i], x->text) == 0)
            return true;
    }
    return false;
}

static void check_steps(eg_case *c, const sx *form, i64 from, names *n, bool collect);

static void check_step(eg_case *c, const sx *x, names *n, bool collect)
{
    if (check_action(c, x, collect))
        return;
    if (sx_is_form(x, "rebuild")) {
        shape(c, x, 1, 1, "(rebuild)");
    } else if (sx_is_form(x, "run")) {
        i64 i = 1;
        for (; i < x->n && !is_keyword(x->at[i]); i++)
            eg_case_set_named(c, x->at[i]);
        keywords(c, x, i, ":iterations :until");
        if (eg_keyword(x, i, ":iterations"))
            integer(c, eg_keyword(x, i, ":iterations"), ":iterations");
        if (eg_keyword(x, i, ":until"))
            check_check(c, eg_keyword(x, i, ":until"));
    } else if (sx_is_form(x, "repeat")) {
        shape(c, x, 3, -1, "(repeat N STEP ...)");
        integer(c, x->at[1], "repeat");
        check_steps(c, x, 2, n, false);
    } else if (sx_is_form(x, "saturate")) {
        shape(c, x, 2, -1, "(saturate STEP ...)");
        check_steps(c, x, 1, n, false);
    } else if (sx_is_form(x, "mark")) {
        shape(c, x, 2, 2, "(mark NAME)");
        known_name(c, x->at[1], NULL, 0);
        vec_push(c->a, &n->marks, x->at[1]->text);
    } else if (sx_is_form(x, "undo") || sx_is_form(x, "keep")) {
        shape(c, x, 2, 2, "(undo NAME) or (keep NAME)");
        if (!known_name(c, x->at[1], n->marks.at, n->marks.n))
            FAIL(c->suite, x->at[1], "no mark of this name is open");
        while (strcmp(n->marks.at[--n->marks.n], x->at[1]->text) != 0) {
        }
    } else if (sx_is_form(x, "graph") || sx_is_form(x, "meet") || sx_is_form(x, "join")) {
        bool graph = sx_is_form(x, "graph");
        shape(c, x, graph ? 2 : 4, graph ? -1 : 4, "(graph NAME STEP ...) or (meet NAME A B)");
        if (known_name(c, x->at[1], n->graphs.at, n->graphs.n))
            FAIL(c->suite, x->at[1], "e-graph %s exists", x->at[1]->text);
        for (i64 i = 2; i < 4 && !graph; i++) {
            if (!known_name(c, x->at[i], n->graphs.at, n->graphs.n))
                FAIL(c->suite, x->at[i], "no e-graph of this name");
        }
        if (graph) { /* its marks are its own */
            names inside = *n;
            inside.marks = (names){0}.marks;
            check_steps(c, x, 2, &inside, false);
            n->graphs = inside.graphs;
        }
        vec_push(c->a, &n->graphs, x->at[1]->text);
    } else if (sx_is_form(x, "in")) {
        shape(c, x, 3, -1, "(in GRAPH CHECK ...)");
        if (!known_name(c, x->at[1], n->graphs.at, n->graphs.n))
            FAIL(c->suite, x->at[1], "no e-graph of this name");
        for (i64 i = 2; i < x->n; i++)
            check_check(c, x->at[i]);
    } else {
        check_check(c, x);
    }
}

static void check_steps(eg_case *c, const sx *form, i64 from, names *n, bool collect)
{
    for (i64 i = from; i < form->n; i++)
        check_step(c, form->at[i], n, collect);
}

static void open_language(eg_case *c)
{
    bool any = false, open = false;
    for (i64 i = 0; i < c->form->clauses.n; i++) {
        const sx *x = c->form->clauses.at[i];
        if (!sx_is_form(x, "rules"))
            continue;
        for (i64 k = 1; k < x->n; k++) {
            const sx *name = x->at[k];
            if (sx_is_form(name, "only") && name->n > 1)
                name = name->at[1];
            i64 set = name->kind == SX_LIST ? -1 : eg_suite_find_set(c->suite, name->text);
            any = true;
            if (set < 0 || !c->suite->sets.at[set].closed)
                open = true;
            if (set >= 0)
                declare_set_ops(c->suite, c->lang, set);
        }
    }
    c->closed = any && !open;
    if (c->closed)
        eqf_lang_close(c->lang);
}

eg_case *eg_case_read(eg_suite *s, arena *a, const eg_case_form *form)
{
    eg_case *c = NEW(a, eg_case);
    c->suite = s;
    c->a = a;
    c->form = form;
    c->limits = eqf_limits_default();
    c->limits.bytes = -1;
    c->lang = new_lang(s->ctx, a, &c->builtins);
    open_language(c);
    for (i64 i = 0; i < form->clauses.n; i++) {
        const sx *x = form->clauses.at[i];
        if (x->kind != SX_LIST || x->n == 0)
            FAIL(s, x, "expected a clause (NAME ...)");
        if (sx_is_form(x, "rules"))
            read_rules_clause(c, x);
        else
            read_setting(c, x);
    }
    names n = {0};
    for (i64 i = 0; i < form->clauses.n; i++) {
        const sx *x = form->clauses.at[i];
        if (sx_is_form(x, "steps")) {
            if (c->steps)
                FAIL(s, x, "a case has one (steps ...)");
            c->steps = x;
            check_steps(c, x, 1, &n, true);
        } else if (sx_is_form(x, "roots")) {
            shape(c, x, 2, -1, "(roots E ...)");
            for (i64 k = 1; k < x->n; k++) {
                check_term(c, x->at[k]);
                vec_push(c->a, &c->roots, x->at[k]);
            }
        } else if (!sx_is_form(x, "rules") && !sx_is_form(x, "scheduler") &&
                   !sx_is_form(x, "limits") && !sx_is_form(x, "analysis") &&
                   !sx_is_form(x, "match") && !check_action(c, x, true)) {
            check_check(c, x);
        }
    }
    if (c->goals.n && !c->terms.n && !c->roots.n)
        FAIL(s, form->form, "a goal needs a term");
    return c;
}

/* ---- the file ------------------------------------------------------------------------------ */

static void check_name_free(eg_suite *s, const sx *form, const char *name)
{
    for (i64 i = 0; i < s->cases.n; i++) {
        if (strcmp(s->cases.at[i].name, name) == 0)
            FAIL(s, form->at[1], "case %s is defined twice", name);
    }
}

static void read_case_form(eg_suite *s, const eg_case_form *f)
{
    check_name_free(s, f->form, f->name);
    vec_push(s->a, &s->cases, *f);
    arena *a = arena_child(s->a);
    eg_case_read(s, a, f);
    arena_free(a);
}

eg_suite *eg_suite_read(eqf_ctx *ctx, arena *a, const char *file, eqf_text source)
{
    eg_suite *s = NEW(a, eg_suite);
    *s = (eg_suite){.ctx = ctx, .a = a, .file = file};
    const sx *all = sx_read(a, file, source.at, (i64)source.n);
    if (all->n == 0)
        FAIL(s, all, "the file has no form");
    for (i64 i = 0; i < all->n; i++) {
        const sx *x = all->at[i];
        if (sx_is_form(x, "ruleset")) {
            read_ruleset(s, x);
        } else if (sx_is_form(x, "case")) {
            eg_case_form f = {.name = name_of(s, x), .form = x};
            for (i64 k = 2; k < x->n; k++)
                add_clause(s, &f, x->at[k], NULL);
            read_case_form(s, &f);
        } else if (sx_is_form(x, "family")) {
            name_of(s, x);
            family fam = family_head(s, x);
            for (i64 k = 0; k < s->families.n; k++) {
                if (strcmp(s->families.at[k]->at[1]->text, x->at[1]->text) == 0)
                    FAIL(s, x->at[1], "family %s is defined twice", x->at[1]->text);
            }
            vec_push(s->a, &s->families, x);
            for (i64 n = fam.from; n <= fam.to; n++) {
                eg_case_form f = family_member(s, x, n);
                read_case_form(s, &f);
            }
        } else {
            FAIL(s, x, "expected (ruleset ...), (case ...) or (family ...)");
        }
    }
    return s;
}
