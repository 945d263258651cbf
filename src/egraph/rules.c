/* Reading rules: forms to pattern trees, pattern trees to atoms. Every error has its place. */
#include "egraph/rules.h"

typedef struct scope {
    eg_lang *l;
    arena *a;
    const char *file;
    eg_rule *r;
} scope;

static u32 new_var(scope *s, const sx *at, const char *name)
{
    eg_rule *r = s->r;
    if (r->nvars == EG_MAX_VARS)
        sx_throw(s->l->ctx, s->file, at, "a rule has at most %d variables and sub-patterns",
                 EG_MAX_VARS);
    r->var_name[r->nvars] = name;
    r->site[r->nvars] = (eg_site){EG_ROOT, EG_ROOT};
    return r->nvars++;
}

static u32 find_var(const scope *s, const char *name)
{
    for (u32 v = 0; v < s->r->nvars; v++) {
        if (s->r->var_name[v] && strcmp(s->r->var_name[v], name) == 0)
            return v;
    }
    return EG_ROOT;
}

static bool is_variable(const sx *x)
{
    return x->kind == SX_SYMBOL && x->text[0] == '?';
}

static u32 variable(scope *s, const sx *x, bool may_create, bool payload)
{
    if (x->n < 2)
        sx_throw(s->l->ctx, s->file, x, "a variable needs a name after ?");
    u32 v = find_var(s, x->text);
    if (v == EG_ROOT) {
        if (!may_create)
            sx_throw(s->l->ctx, s->file, x, "variable %s does not occur on the left", x->text);
        v = new_var(s, x, arena_strdup(s->a, x->text));
        s->r->var_payload[v] = payload;
    } else if (s->r->var_payload[v] != payload) {
        sx_throw(s->l->ctx, s->file, x, "variable %s stands for an operand and for a keyword",
                 x->text);
    }
    return v;
}

/* Variables of the pattern may be created when `left`. */
static eg_term *pattern(scope *s, const sx *x, bool left)
{
    eg_term *t = NEW(s->a, eg_term);
    if (is_variable(x)) {
        t->is_var = true;
        t->var = variable(s, x, left, false);
        return t;
    }
    /* a payload variable makes the keywords a pattern: read the head without them */
    sx plain;
    const sx *payload = NULL;
    if (x->kind == SX_LIST && x->n >= 3 && is_variable(x->at[x->n - 1]) &&
        x->at[x->n - 2]->kind == SX_SYMBOL && x->at[x->n - 2]->text[0] == ':') {
        payload = x->at[x->n - 1];
        plain = *x;
        plain.n -= 2;
        x = arena_copy(s->a, &plain, sizeof plain);
    }
    u32 head = eg_head_of_sx(s->l, s->file, x, &t->arity);
    if (t->arity > EG_MAX_VARS)
        sx_throw(s->l->ctx, s->file, x, "a pattern has at most %d operands", EG_MAX_VARS);
    t->op = s->l->heads.at[head].op;
    t->head = head;
    t->kids = NEW_N(s->a, eg_term *, t->arity);
    for (u32 i = 0; i < t->arity; i++)
        t->kids[i] = pattern(s, x->at[i + 1], left);
    if (payload) {
        if (t->op < EG_OP_FIRST || !s->l->ops.at[t->op].payload)
            sx_throw(s->l->ctx, s->file, x, "this operator takes no keyword");
        t->payload_var = variable(s, payload, left, true) + 1;
        t->head = 0;
    }
    return t;
}

/* ---- atoms --------------------------------------------------------------------------------- */

static void note_site(eg_rule *r, u32 v, u32 atom, u32 slot)
{
    if (r->site[v].atom == EG_ROOT)
        r->site[v] = (eg_site){atom, slot};
}

/* Flattens a left pattern; its class is variable `cvar`. */
static void flatten(scope *s, const sx *at, eg_term *t, u32 cvar)
{
    eg_rule *r = s->r;
    if (r->atoms.n == EG_MAX_ATOMS)
        sx_throw(s->l->ctx, s->file, at, "a left side has at most %d operators", EG_MAX_ATOMS);
    u32 index = (u32)r->atoms.n;
    t->index = index;
    t->var = cvar;
    eg_atom atom = {.op = t->op, .head = t->head, .payload_var = t->payload_var,
                    .arity = t->arity, .cvar = cvar,
                    .commutative = s->l->ops.at[t->op].flags & EQF_COMMUTATIVE,
                    .kids = NEW_N(s->a, u32, t->arity)};
    vec_push(s->a, &r->atoms, atom);
    r->ops_mask |= eg_op_bit(t->op);
    note_site(r, cvar, index, EG_ROOT);
    for (u32 i = 0; i < t->arity; i++) {
        eg_term *kid = t->kids[i];
        u32 v = kid->is_var ? kid->var : new_var(s, at, NULL);
        atom.kids[i] = v;
        note_site(r, v, index, i);
        if (!kid->is_var)
            flatten(s, at, kid, v);
    }
    if (t->payload_var)
        note_site(r, t->payload_var - 1, index, EG_ROOT - 1);
}

static void bare_atom(scope *s, u32 v)
{
    eg_rule *r = s->r;
    note_site(r, v, (u32)r->atoms.n, EG_ROOT);
    vec_push(s->a, &r->atoms, (eg_atom){.op = EG_OP_CLASSES, .cvar = v});
}

/* ---- guards -------------------------------------------------------------------------------- */

static void read_guard(scope *s, const sx *x)
{
    eqf_ctx *ctx = s->l->ctx;
    if (x->kind != SX_LIST || x->n == 0 || x->at[0]->kind != SX_SYMBOL)
        sx_throw(ctx, s->file, x, "expected a guard (NAME ARGUMENT ...)");
    const sx *name = x->at[0];
    if (sx_is(name, "and")) {
        for (i64 i = 1; i < x->n; i++)
            read_guard(s, x->at[i]);
        return;
    }
    if (sx_is(name, "eq")) {
        if (x->n != 3)
            sx_throw(ctx, s->file, x, "eq takes two patterns, found %lld", (long long)x->n - 1);
        for (i64 i = 1; i <= 2; i++) {
            eg_side side = {0, pattern(s, x->at[i], false)};
            vec_push(s->a, &s->r->equal, side);
        }
        return;
    }
    eg_use use = {.guard = EG_GUARD_DISTINCT};
    u32 arity = 2;
    if (!sx_is(name, "distinct")) {
        use.guard = -2;
        for (i64 k = 0; k < s->l->guards.n; k++) {
            if (strcmp(s->l->guards.at[k].name, name->text) == 0) {
                use.guard = (i32)k;
                arity = s->l->guards.at[k].arity;
                s->r->reads_data |= s->l->guards.at[k].reads_data;
            }
        }
        if (use.guard == -2)
            sx_throw(ctx, s->file, name, "no guard is called %s", name->text);
    }
    if (x->n - 1 != arity || arity > 8)
        sx_throw(ctx, s->file, x, "guard %s takes %u arguments, found %lld", name->text, arity,
                 (long long)x->n - 1);
    for (i64 i = 1; i < x->n; i++) {
        if (!is_variable(x->at[i]))
            sx_throw(ctx, s->file, x->at[i], "a guard takes variables");
        u32 v = find_var(s, x->at[i]->text);
        if (v == EG_ROOT)
            sx_throw(ctx, s->file, x->at[i], "variable %s does not occur on the left",
                     x->at[i]->text);
        use.args[use.nargs++] = v;
    }
    vec_push(s->a, &s->r->guards, use);
}

/* ---- forms --------------------------------------------------------------------------------- */

static void keep_var(eg_rule *r, u32 v)
{
    if (r->where[v] != EG_ROOT)
        return;
    r->where[v] = r->nsave;
    r->save[r->nsave++] = v;
}

static void keep_term(eg_rule *r, eg_term *t)
{
    if (t->is_var) {
        if (r->site[t->var].atom != EG_ROOT) /* else it is new on the right */
            keep_var(r, t->var);
        return;
    }
    if (t->payload_var)
        keep_var(r, t->payload_var - 1);
    for (u32 i = 0; i < t->arity; i++)
        keep_term(r, t->kids[i]);
    t->index = r->nbuilt++; /* children first: the order in which e-nodes are built */
}

static bool flat_right(const scope *s, eg_rule *r, const eg_term *t)
{
    if (t->is_var)
        return true;
    if (!t->head || t->arity > 4 || s->l->ops.at[t->op].normalise)
        return false;
    eg_make *m = &r->make[t->index];
    m->head = t->head;
    m->op = t->op;
    m->commutative = s->l->ops.at[t->op].flags & EQF_COMMUTATIVE;
    m->arity = t->arity;
    for (u32 i = 0; i < t->arity; i++) {
        if (!flat_right(s, r, t->kids[i]))
            return false;
        m->var[i] = t->kids[i]->is_var ? t->kids[i]->var : 0;
        m->from[i] = t->kids[i]->is_var ? r->where[m->var[i]] : EG_BUILT | t->kids[i]->index;
    }
    return true;
}

/* Most rules are of one kind that run.c applies in batches. */
static void compile_right(scope *s)
{
    eg_rule *r = s->r;
    if (r->multi || r->dynamic >= 0 || r->hide_left || r->right.n != 1 ||
        r->right.at[0].term->is_var)
        return;
    r->make = NEW_N(s->a, eg_make, r->nbuilt);
    if (!flat_right(s, r, r->right.at[0].term))
        r->make = NULL;
}

static void note_shapes(eg_rule *r)
{
    for (i64 k = 0; k < r->atoms.n; k++) {
        eg_atom *a = &r->atoms.at[k];
        a->indexable = a->head && a->arity >= 1 && a->arity <= 4;
        for (i64 i = 0; i < r->atoms.n; i++) {
            for (u32 j = 0; j < r->atoms.at[i].arity; j++)
                a->inner |= r->atoms.at[i].kids[j] == a->cvar;
        }
    }
}

/* What atoms watch: columns whose variable is in another column, too, or is read by a guard; then a
 * change of it can make a match that was not there before. */
static void watch_columns(eg_rule *r)
{
    u32 seen[EG_MAX_VARS] = {0};
    for (i64 k = 0; k < r->atoms.n; k++) {
        const eg_atom *a = &r->atoms.at[k];
        seen[a->cvar]++;
        for (u32 j = 0; j < a->arity; j++)
            seen[a->kids[j]]++;
    }
    for (i64 i = 0; i < r->guards.n; i++) {
        const eg_use *use = &r->guards.at[i];
        for (u32 k = 0; k < use->nargs && use->guard != EG_GUARD_DISTINCT; k++)
            seen[use->args[k]] = 2;
    }
    for (i64 k = 0; k < r->atoms.n; k++) {
        eg_atom *a = &r->atoms.at[k];
        a->watch = S_MADE | (seen[a->cvar] > 1 ? S_MOVED : 0);
        for (u32 j = 0; j < MIN(a->arity, 2); j++) {
            if (seen[a->kids[j]] > 1)
                a->watch |= a->commutative ? 3 * S_KID : (u32)S_KID << j;
        }
        if (r->dynamic >= 0 || r->hide_left) /* who knows what it reads; it hides what it finds */
            a->watch = S_WHAT;
    }
}

/* Left patterns and eq guards into atoms, then what a match must carry. */
static void finish(scope *s, const sx *at, u32 nleft_vars)
{
    eg_rule *r = s->r;
    for (i64 i = 0; i < r->left.n; i++) {
        eg_side *side = &r->left.at[i];
        if (!side->term) {
            continue; /* a bare class variable of a multipattern: below */
        } else if (side->term->is_var) {
            if (side->term->var != side->var)
                sx_throw(s->l->ctx, s->file, at, "a variable cannot hold another variable");
        } else {
            flatten(s, at, side->term, side->var);
        }
    }
    for (i64 i = 0; i < r->equal.n; i += 2) {
        eg_side *p = &r->equal.at[i], *q = &r->equal.at[i + 1];
        if (p->term->is_var && q->term->is_var)
            sx_throw(s->l->ctx, s->file, at, "eq compares instances; write one operator at least");
        u32 v = p->term->is_var ? p->term->var : q->term->is_var ? q->term->var
                                                                  : new_var(s, at, NULL);
        p->var = q->var = v;
        if (!p->term->is_var)
            flatten(s, at, p->term, v);
        if (!q->term->is_var)
            flatten(s, at, q->term, v);
    }
    for (i64 i = 0; i < r->left.n; i++) {
        eg_side *side = &r->left.at[i];
        if ((!side->term || side->term->is_var) && r->site[side->var].atom == EG_ROOT)
            bare_atom(s, side->var);
    }
    for (u32 v = 0; v < EG_MAX_VARS; v++)
        r->where[v] = EG_ROOT;
    if (r->left.n)
        keep_var(r, r->left.at[0].var);
    for (i64 i = 0; i < r->guards.n; i++) {
        for (u32 k = 0; k < r->guards.at[i].nargs; k++)
            keep_var(r, r->guards.at[i].args[k]);
    }
    if (r->dynamic >= 0) {
        for (u32 v = 0; v < nleft_vars; v++) {
            if (r->var_name[v])
                keep_var(r, v);
        }
    }
    for (i64 i = 0; i < r->right.n; i++) {
        keep_term(r, r->right.at[i].term);
        if (r->nbuilt > EG_MAX_BUILT)
            sx_throw(s->l->ctx, s->file, at, "a right side has at most %d operators",
                     EG_MAX_BUILT);
        if (r->site[r->right.at[i].var].atom != EG_ROOT)
            keep_var(r, r->right.at[i].var);
    }
    note_shapes(r);
    watch_columns(r);
    compile_right(s);
}

static eg_rule *new_rule(scope *s, const sx *form, const char *name)
{
    eg_rule *r = NEW(s->a, eg_rule);
    static const char no_file[] = "";
    r->name = name;
    r->file = s->file ? s->file : no_file;
    r->line = form->line;
    r->column = form->column;
    r->dynamic = -1;
    r->serial = ++s->l->rule_serial;
    r->source = form;
    s->r = r;
    return r;
}

static bool is_arrow(const sx *x)
{
    return sx_is(x, "=>") || sx_is(x, "<=>");
}

typedef struct options {
    const sx *when;
    bool hide_left;
    const char *fp;
} options;

static options read_options(scope *s, const sx *form, i64 from)
{
    eqf_ctx *ctx = s->l->ctx;
    options o = {0};
    for (i64 i = from; i < form->n; i += 2) {
        const sx *key = form->at[i];
        if (key->kind != SX_SYMBOL || key->text[0] != ':')
            sx_throw(ctx, s->file, key, "expected a keyword such as :when after the rule");
        if (i + 1 == form->n)
            sx_throw(ctx, s->file, key, "keyword %s needs a value", key->text);
        const sx *value = form->at[i + 1];
        if (sx_is(key, ":when") && !o.when) {
            o.when = value;
        } else if (sx_is(key, ":hide") && !o.hide_left) {
            if (!sx_is(value, "lhs"))
                sx_throw(ctx, s->file, value, ":hide takes lhs");
            o.hide_left = true;
        } else if (sx_is(key, ":fp") && !o.fp) {
            if (!sx_is(value, "exact") && !sx_is(value, "reassoc") && !sx_is(value, "approx"))
                sx_throw(ctx, s->file, value, ":fp takes exact, reassoc or approx");
            o.fp = arena_strdup(s->a, value->text);
        } else {
            sx_throw(ctx, s->file, key, "unknown or repeated keyword %s", key->text);
        }
    }
    return o;
}

static const sx *rule_name(scope *s, const sx *form)
{
    if (form->n < 2 || form->at[1]->kind == SX_LIST || form->at[1]->text[0] == '?' ||
        form->at[1]->text[0] == ':' || is_arrow(form->at[1]))
        sx_throw(s->l->ctx, s->file, form, "expected (%s NAME ...)", form->at[0]->text);
    return form->at[1];
}

static void read_single(scope *s, const sx *form, const char *name, const sx *lhs, const sx *rhs,
                        const options *o, eg_rule_list *out)
{
    eg_rule *r = new_rule(s, form, name);
    eg_term *left = pattern(s, lhs, true);
    u32 named = r->nvars;
    eg_side side = {left->is_var ? left->var : new_var(s, lhs, NULL), left};
    vec_push(s->a, &r->left, side);
    if (o->when)
        read_guard(s, o->when);
    r->hide_left = o->hide_left;
    r->fp = o->fp;
    if (sx_is_form(form, "dynamic")) {
        for (i64 k = 0; k < s->l->dynamics.n; k++) {
            if (rhs->kind == SX_SYMBOL && strcmp(s->l->dynamics.at[k].name, rhs->text) == 0)
                r->dynamic = (i32)k;
        }
        if (r->dynamic < 0)
            sx_throw(s->l->ctx, s->file, rhs, "no dynamic right side of this name is registered");
    } else {
        eg_side right = {side.var, pattern(s, rhs, false)};
        vec_push(s->a, &r->right, right);
    }
    if (o->hide_left && left->is_var)
        sx_throw(s->l->ctx, s->file, lhs, ":hide lhs needs an operator on the left");
    finish(s, form, named);
    vec_push(s->a, out, r);
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

static void read_multi_side(scope *s, const sx *x, bool left)
{
    eqf_ctx *ctx = s->l->ctx;
    if (x->kind != SX_LIST || x->n == 0 || !is_variable(x->at[0]))
        sx_throw(ctx, s->file, x, "expected (?CLASS PATTERN ...)");
    eg_rule *r = s->r;
    if (!left && x->n > 1 && find_var(s, x->at[0]->text) == EG_ROOT &&
        mentions(x->at[1], x->at[0]->text))
        sx_throw(ctx, s->file, x->at[1], "variable %s is made by this pattern", x->at[0]->text);
    u32 v = variable(s, x->at[0], true, false);
    if (x->n == 1) {
        if (!left)
            sx_throw(ctx, s->file, x, "a class on the right needs a pattern");
        eg_side bare = {v, NULL};
        vec_push(s->a, &r->left, bare);
    }
    for (i64 i = 1; i < x->n; i++) {
        eg_side side = {v, NULL};
        if (left) {
            if (is_variable(x->at[i]))
                sx_throw(ctx, s->file, x->at[i],
                         "a class on the left holds operators; use one variable for both");
            side.term = pattern(s, x->at[i], true);
            vec_push(s->a, &r->left, side);
        } else {
            side.term = pattern(s, x->at[i], false);
            vec_push(s->a, &r->right, side);
        }
    }
}

static void read_multi(scope *s, const sx *form, const char *name, i64 arrow, eg_rule_list *out)
{
    eg_rule *r = new_rule(s, form, name);
    eqf_ctx *ctx = s->l->ctx;
    r->multi = true;
    for (i64 i = 2; i < arrow; i++)
        read_multi_side(s, form->at[i], true);
    u32 named = r->nvars;
    i64 end = arrow + 1;
    while (end < form->n && form->at[end]->kind == SX_LIST)
        end++;
    if (arrow == 2 || end == arrow + 1)
        sx_throw(ctx, s->file, form, "a multipattern needs classes on both sides of =>");
    options o = read_options(s, form, end);
    if (o.hide_left)
        sx_throw(ctx, s->file, form, ":hide lhs is for single patterns");
    if (o.when)
        read_guard(s, o.when);
    for (i64 i = arrow + 1; i < end; i++) {
        /* a variable that is new here names the class of its first pattern */
        for (i64 k = 1; k < form->at[i]->n && form->at[i]->kind == SX_LIST; k++) {
            const sx *p = form->at[i]->at[k];
            if (is_variable(p) && find_var(s, p->text) == EG_ROOT)
                sx_throw(ctx, s->file, p, "variable %s does not occur on the left", p->text);
        }
        read_multi_side(s, form->at[i], false);
    }
    r->fp = o.fp;
    finish(s, form, named);
    vec_push(s->a, out, r);
}

bool eg_is_rule(const sx *form)
{
    return sx_is_form(form, "rule") || sx_is_form(form, "multi") || sx_is_form(form, "dynamic");
}

static void check_unique(scope *s, const sx *at, const eg_rule_list *list, i64 from)
{
    for (i64 i = from; i < list->n; i++) {
        for (i64 k = 0; k < i; k++) {
            if (strcmp(list->at[i]->name, list->at[k]->name) == 0)
                sx_throw(s->l->ctx, s->file, at, "rule %s is defined twice", list->at[i]->name);
        }
    }
}

void eg_rule_read(eg_lang *l, arena *a, const char *file, const sx *form, eg_rule_list *out)
{
    scope s = {l, a, file, NULL};
    const sx *name_at = rule_name(&s, form);
    const char *name = arena_strdup(a, name_at->text);
    i64 arrow = 2, from = out->n;
    while (arrow < form->n && !is_arrow(form->at[arrow]))
        arrow++;
    if (arrow == form->n)
        sx_throw(l->ctx, file, form, "rule %s has no =>", name);
    bool both = sx_is(form->at[arrow], "<=>");
    if (both && !sx_is_form(form, "rule"))
        sx_throw(l->ctx, file, form->at[arrow], "<=> is for (rule ...) only");
    if (sx_is_form(form, "multi")) {
        read_multi(&s, form, name, arrow, out);
        check_unique(&s, form, out, from);
        return;
    }
    if (arrow != 3 || form->n < 5)
        sx_throw(l->ctx, file, form, "expected (%s NAME PATTERN => %s ...)", form->at[0]->text,
                 sx_is_form(form, "dynamic") ? "BUILT-IN" : "PATTERN");
    options o = read_options(&s, form, 5);
    if (both && o.hide_left)
        sx_throw(l->ctx, file, form, ":hide lhs has no meaning with <=>");
    read_single(&s, form, name, form->at[2], form->at[4], &o, out);
    if (both)
        read_single(&s, form, arena_printf(a, "%s-rev", name), form->at[4], form->at[2], &o, out);
    check_unique(&s, form, out, from);
}

eg_rule *eg_pattern_read(eg_lang *l, arena *a, const char *file, const sx *form)
{
    scope s = {l, a, file, NULL};
    static const char name[] = "pattern";
    eg_rule *r = new_rule(&s, form, name);
    eg_term *t = pattern(&s, form, true);
    eg_side side = {t->is_var ? t->var : new_var(&s, form, NULL), t};
    vec_push(a, &r->left, side);
    finish(&s, form, r->nvars);
    return r;
}

/* ---- API ----------------------------------------------------------------------------------- */

static eqf_status load_form(eqf_rules *rules, const char *file, const sx *form)
{
    eqf_lang *lang = rules->lang;
    trap t;
    TRY(lang->ctx, t)
    {
        if (!eg_is_rule(form))
            sx_throw(lang->ctx, file, form, "expected (rule ...), (multi ...) or (dynamic ...)");
        eg_rule_read(lang, rules->a, file, form, &rules->rules);
    }
    return t.status;
}

eqf_status eqf_rules_load(eqf_lang *lang, const char *file, eqf_text source, eqf_rules **out)
{
    *out = NULL;
    arena *a = arena_new(lang->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(lang->ctx, t)
    {
        eqf_rules *rules = NEW(a, eqf_rules);
        rules->lang = lang;
        rules->a = a;
        const sx *all = sx_read(a, file, source.at, (i64)source.n);
        eqf_status first = EQF_OK;
        for (i64 i = 0; i < all->n; i++) {
            eqf_status s = load_form(rules, file, all->at[i]);
            if (s && s != EQF_E_PARSE)
                eqf_rethrow(lang->ctx, s);
            if (!first)
                first = s;
        }
        if (first)
            eqf_rethrow(lang->ctx, first);
        *out = rules;
    }
    if (t.status)
        arena_free(a);
    return t.status;
}

void eqf_rules_free(eqf_rules *rules)
{
    if (rules)
        arena_free(rules->a);
}

size_t eqf_rules_count(const eqf_rules *rules)
{
    return (size_t)rules->rules.n;
}

const char *eqf_rule_name(const eqf_rules *rules, size_t i)
{
    static const char none[] = "";
    return i < (size_t)rules->rules.n ? rules->rules.at[i]->name : none;
}

const char *eqf_rule_class(const eqf_rules *rules, size_t i)
{
    static const char none[] = "";
    return i < (size_t)rules->rules.n && rules->rules.at[i]->fp ? rules->rules.at[i]->fp : none;
}
