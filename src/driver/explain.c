/* eqf_package_explain: what a package says about itself, for people. Its files alone are read; plan.json
 * says which they are and what they hold. */
#include <jansson.h>

#include "driver/proof.h"

enum { MOST_BYTES = 1 << 30, MOST_SHOWN = 160, MOST_NESTED = 60 };

typedef struct explained {
    eqf_explanation shown; /* first: what the caller has */
    arena *a;
} explained;

typedef struct explaining {
    explained *e;
    arena *a; /* of the result */
    const rl_ruleset *rules; /* the product's and the proof's own */
    const volatile bool *cancel;
} explaining;

/* ---- steps in words ----------------------------------------------------------------------------- */

/* Rules whose names start so; the first that fits. Those of files explain themselves. */
static const struct {
    const char *prefix, *meaning;
} meanings[] = {
    {"combine", "a value that is computed by tiles is the combination of its tiles"},
    {"view-of-combination", "a tile of a combination is that tile"},
    {"view.reduce.", "a reduction is done inside tiles, and then over them"},
    {"view.matmul", "a product is summed inside tiles, and then over them"},
    {"view.", "a tile of the result is computed from tiles of the operands"},
    {"refine.", "a reduction to a number is done inside tiles, and then over them"},
    {"whole.", "a tile of the result is computed from whole operands along what is summed"},
    {"join-products", "a sum of products is one product, over a dim made of both that were contracted"},
    {"split.", "a reduction is done part by part, and then over the parts"},
    {"rename.", "dims are renamed in the operands instead of the result"},
    {"slice.", "operands are read at the index map instead of the result"},
    {"splitdim.", "a dim is split in the operands instead of the result"},
    {"loop.", "a reduction that needs others over the same axes shares their loop: it uses their "
              "results so far, and what was accumulated moves along when they change"},
    {"part.", "a reduction over one part uses the part's own results, and what was accumulated is moved "
              "to those of all parts once"},
    {"bundle", "reductions over the same axes share a loop"},
    {"visit", "tiles in which the mask holds nowhere are left out"},
    {"normalise", "components of a loop are a set"},
    {"unrounded", "values are kept in f32 where the program rounds them to a half type on its way; those "
                  "are rounded that are stored so (relaxed: never less exact)"},
};

static const char *meaning_of(const explaining *x, const char *rule)
{
    const rl_rule *r = rl_ruleset_find(x->rules, rule);
    if (r) {
        str s = str_new(x->a);
        sx_print(&s, r->left_text);
        str_add(&s, " => ");
        sx_print(&s, r->right_text);
        if (r->doc && r->doc[0])
            str_printf(&s, "; %s", r->doc);
        return str_text(&s);
    }
    for (i64 i = 0; i < COUNT_OF(meanings); i++)
        if (strncmp(rule, meanings[i].prefix, strlen(meanings[i].prefix)) == 0)
            return meanings[i].meaning;
    return "";
}

/* The terms (t ID HEAD CHILD ...) of a proof, by id. */
typedef struct table {
    const sx **at;
    i64 n;
} table;

static table table_of(arena *a, const sx *items)
{
    table t = {NULL, 1};
    for (int fill = 0; fill < 2; fill++) {
        for (i64 i = 1; i < items->n; i++) {
            const sx *x = items->at[i];
            if (!sx_is_form(x, "t") || x->n < 3 || x->at[1]->kind != SX_INT || x->at[1]->i < 0 ||
                x->at[1]->i > 10 * MAX(items->n, 1000))
                continue;
            if (fill)
                t.at[x->at[1]->i] = x;
            else
                t.n = MAX(t.n, x->at[1]->i + 1);
        }
        if (!fill)
            t.at = NEW_N(a, const sx *, t.n);
    }
    return t;
}

static void show_term(const table *t, str *out, const sx *id, i64 depth)
{
    const sx *x = id->kind == SX_INT && id->i >= 0 && id->i < t->n ? t->at[id->i] : NULL;
    if (!x || depth > MOST_NESTED || out->n > MOST_SHOWN) {
        str_add(out, "...");
        return;
    }
    bool is_leaf = x->n == 3, keywords = false;
    if (!is_leaf)
        str_add_char(out, '(');
    sx_print(out, x->at[2]);
    for (i64 i = 3; i < x->n; i++) {
        str_add_char(out, ' ');
        keywords = keywords || (x->at[i]->kind == SX_SYMBOL && x->at[i]->text[0] == ':');
        if (keywords)
            sx_print(out, x->at[i]);
        else
            show_term(t, out, x->at[i], depth + 1);
    }
    if (!is_leaf)
        str_add_char(out, ')');
}

static const char *term_text(const explaining *x, const table *t, const sx *id)
{
    str s = str_new(x->a);
    show_term(t, &s, id, 0);
    return str_text(&s);
}

typedef VEC(eqf_derived_step) steps;

static void list_steps(const explaining *x, const sx *derivation, steps *out)
{
    for (i64 i = 1; i < derivation->n; i++) {
        const sx *output = derivation->at[i];
        if (sx_is_form(output, "unrounded") && output->n == 4 && output->at[1]->kind != SX_LIST &&
            output->at[2]->kind == SX_INT && output->at[3]->kind == SX_INT) {
            eqf_derived_step step = {
                .rule = "unrounded",
                .meaning = meaning_of(x, "unrounded"),
                .output = output->at[1]->text,
                .from = arena_printf(x->a, "%lld rounded on the way", (long long)output->at[2]->i),
                .to = arena_printf(x->a, "%lld rounded on the way", (long long)output->at[3]->i)};
            vec_push(x->a, out, step);
            continue;
        }
        if (!sx_is_form(output, "output") || output->n != 3 || output->at[1]->kind == SX_LIST ||
            output->at[2]->kind != SX_LIST)
            continue;
        table t = table_of(x->a, output->at[2]);
        for (i64 k = 1; k < output->at[2]->n; k++) {
            const sx *s = output->at[2]->at[k];
            if (!sx_is_form(s, "s") || s->n < 5)
                continue;
            const sx *by = s->at[4];
            if (!(sx_is_form(by, "rule") || sx_is_form(by, "axiom")) || by->n < 2 ||
                by->at[1]->kind == SX_LIST)
                continue;
            eqf_derived_step step = {.rule = by->at[1]->text,
                                     .meaning = meaning_of(x, by->at[1]->text),
                                     .output = output->at[1]->text,
                                     .from = term_text(x, &t, s->at[2]),
                                     .to = term_text(x, &t, s->at[3])};
            vec_push(x->a, out, step);
        }
    }
}

/* ---- files -------------------------------------------------------------------------------------- */

static const char *read_member(const explaining *x, const char *path, const rt_package *package,
                               const char *name, i64 *n)
{
    const char *file = arena_printf(x->a, "%s/%s", path, name);
    const rt_file *listed = NULL;
    for (i64 i = 0; i < package->files.n; i++)
        if (strcmp(package->files.at[i].name, name) == 0)
            listed = &package->files.at[i];
    if (!listed)
        eqf_throw(arena_ctx(x->a), EQF_E_DATA, file, NULL, "the package has no such file");
    const char *text = file_read(x->a, file, MOST_BYTES, n);
    char digest[33];
    digest_hex(text, *n, digest);
    if (strcmp(digest, listed->digest) != 0)
        eqf_throw(arena_ctx(x->a), EQF_E_DATA, file, NULL,
                  "is damaged: its digest is not the one in plan.json");
    return text;
}

static f64 number_in(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

typedef struct freed {
    json_t *root;
} freed;

static void free_json(void *p)
{
    freed *f = p;
    json_decref(f->root);
}

static i64 count_in(const json_t *object, const char *key)
{
    return (i64)json_integer_value(json_object_get(object, key));
}

static const char *text_in(const explaining *x, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? arena_strdup(x->a, text) : "";
}

static const eqf_try *read_tries(const explaining *x, const json_t *list)
{
    size_t n = json_array_size(list);
    eqf_try *at = NEW_N(x->a, eqf_try, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(list, i);
        at[i] = (eqf_try){number_in(t, "bound_us"),
                          number_in(t, "us"),
                          count_in(t, "kernels"),
                          json_is_true(json_object_get(t, "taken")),
                          json_is_true(json_object_get(t, "failed")),
                          json_is_true(json_object_get(t, "rolls")),
                          text_in(x, t, "reductions"),
                          text_in(x, t, "why")};
    }
    return at;
}

static void read_search(const explaining *x, const json_t *from, eqf_searched *out)
{
    const json_t *tries = json_object_get(from, "tries"), *rules = json_object_get(from, "rules");
    out->of = text_in(x, from, "of");
    out->as_read_us = number_in(from, "as_read_us");
    out->try_count = json_array_size(tries);
    out->rule_count = json_array_size(rules);
    out->looked_at = count_in(from, "looked_at");
    out->complete = json_is_true(json_object_get(from, "complete"));
    out->tries = read_tries(x, tries);
    out->untried = read_tries(x, json_object_get(from, "untried"));
    out->untried_count = json_array_size(json_object_get(from, "untried"));
    const json_t *least = json_object_get(from, "least");
    eqf_least *kinds = NEW_N(x->a, eqf_least, json_array_size(least));
    for (size_t i = 0; i < json_array_size(least); i++) {
        const json_t *k = json_array_get(least, i);
        kinds[i] = (eqf_least){count_in(k, "kernels"), json_is_true(json_object_get(k, "rolls")),
                               number_in(k, "bound_us")};
    }
    out->least = kinds;
    out->least_count = json_array_size(least);
    eqf_growth *rule = NEW_N(x->a, eqf_growth, out->rule_count);
    for (size_t i = 0; i < out->rule_count; i++) {
        const json_t *r = json_array_get(rules, i);
        rule[i] = (eqf_growth){text_in(x, r, "name"), count_in(r, "matches"), count_in(r, "enodes")};
    }
    out->rules = rule;
}

static void read_searches(const explaining *x, const json_t *root)
{
    const json_t *list = json_object_get(root, "searches");
    size_t n = json_array_size(list);
    eqf_searched *all = NEW_N(x->a, eqf_searched, n);
    for (size_t i = 0; i < n; i++)
        read_search(x, json_array_get(list, i), &all[i]);
    x->e->shown.searches = all;
    x->e->shown.search_count = n;
}

/* Times and peaks; zeros where the report does not say. */
static rt_peaks read_report(const explaining *x, const char *text, i64 n)
{
    freed *f = NEW(x->a, freed);
    f->root = json_loadb(text, (size_t)n, 0, NULL);
    arena_defer(x->a, free_json, f);
    const json_t *times = json_object_get(f->root, "time_us"),
                 *peaks = json_object_get(f->root, "peaks");
    eqf_explanation *out = &x->e->shown;
    out->unfused_us = number_in(times, "unfused");
    out->best_us = number_in(times, "best");
    out->roofline = number_in(f->root, "roofline");
    read_searches(x, f->root);
    return (rt_peaks){number_in(peaks, "gflops"), number_in(peaks, "gbps")};
}

static void list_kernels(const explaining *x, const rt_plan *plan, rt_peaks peaks)
{
    VEC(eqf_kernel) all = {0};
    for (i64 i = 0; i < plan->launches.n; i++) {
        const rt_launch *l = &plan->launches.at[i];
        if (!l->symbol[0])
            continue;
        eqf_kernel k = {l->symbol, l->origin, l->flops, l->bytes, 0};
        if (peaks.gflops > 0 && peaks.gbps > 0)
            k.bound_us = MAX((f64)l->flops / (1e3 * peaks.gflops), (f64)l->bytes / (1e3 * peaks.gbps));
        vec_push(x->a, &all, k);
    }
    x->e->shown.kernels = all.at;
    x->e->shown.kernel_count = (size_t)all.n;
}

/* ---- the derivation ------------------------------------------------------------------------------ */

static const char *program_text(arena *a, const ir_program *p)
{
    str s = str_new(a);
    ir_print(&s, p);
    return str_text(&s);
}

static bool is_cancelled(void *user)
{
    const explaining *x = user;
    return x->cancel && *x->cancel;
}

static void list_parts(const explaining *x, const proof *p, bool replayed)
{
    eqf_explanation *out = &x->e->shown;
    eqf_derived_part *parts = NEW_N(x->a, eqf_derived_part, p->parts.n);
    out->checked = out->proved = replayed;
    for (i64 i = 0; i < p->parts.n; i++) {
        const proof_part *q = &p->parts.at[i];
        steps all = {0};
        if (q->steps)
            list_steps(x, q->steps, &all);
        proof_rules own = proof_own_rules(x->a, p, q);
        const char **names = NEW_N(x->a, const char *, own.n);
        for (i64 k = 0; k < own.n; k++)
            names[k] = arena_printf(x->a, "%s of %s", own.at[k]->name, own.at[k]->file);
        parts[i] = (eqf_derived_part){.uses = q->uses,
                                      .changed = q->form != NULL,
                                      .by_value = q->why_not ? q->why_not : "",
                                      .program = program_text(x->a, q->program),
                                      .form = q->form ? program_text(x->a, q->form) : "",
                                      .steps = all.at,
                                      .step_count = (size_t)all.n,
                                      .checked = q->report.steps,
                                      .assumptions = q->report.assumptions,
                                      .own_rules = names,
                                      .own_rule_count = (size_t)own.n,
                                      .refused = q->refused ? q->refused : ""};
        out->checked = out->checked && !q->refused;
        out->proved = out->proved && !q->refused && (!q->form || q->steps);
    }
    out->parts = parts;
    out->part_count = (size_t)p->parts.n;
}

static void explain(explaining *x, const char *path, bool replays)
{
    i64 n, program_n;
    const char *plan = arena_printf(x->a, "%s/" RT_PLAN_FILE, path);
    const char *text = file_read(x->a, plan, MOST_BYTES, &n);
    const rt_package *package = rt_plan_read(x->a, plan, text, n);
    eqf_explanation *out = &x->e->shown;
    out->source = package->source;
    out->program = read_member(x, path, package, "program.eqf", &program_n);
    const char *report = read_member(x, path, package, "report.json", &n);
    list_kernels(x, &package->plan, read_report(x, report, n));
    const char *derivation = read_member(x, path, package, "proof.eqf", &n);
    proof *p = proof_read(x->a, arena_printf(x->a, "%s/proof.eqf", path), derivation, n,
                          out->program, program_n);
    x->rules = p->space.rules;
    out->form = p->computes ? program_text(x->a, p->computes) : "";
    if (replays)
        proof_replay(x->a, p, is_cancelled, x);
    if (is_cancelled(x))
        eqf_throw(arena_ctx(x->a), EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
    list_parts(x, p, replays);
}

eqf_status eqf_package_explain(eqf_ctx *ctx, const char *path, const eqf_explain_options *options,
                               eqf_explanation **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, path, NULL);
        explained *e = NEW(a, explained);
        e->a = a;
        explaining x = {.e = e, .a = a};
        x.cancel = options ? options->cancel : NULL;
        explain(&x, path, options && options->proof);
        *out = &e->shown;
    }
    if (t.status != EQF_OK) {
        *out = NULL;
        arena_free(a);
    }
    return t.status;
}

void eqf_explanation_free(eqf_explanation *explanation)
{
    if (explanation)
        arena_free(((explained *)explanation)->a);
}
