/* The public functions of eqf_rules.h: the loader and the rule lab behind handles and statuses; and
 * the rules that a search runs. */
#include "driver/driver.h"
#include "eqf_rules.h"
#include "rules/lab.h"

struct eqf_rulebook {
    eqf_ctx *ctx;
    arena *a;
    rl_ruleset *set;
    rl_implied_list implied; /* after the rules of `set` */
    eqf_rule_info *info;
    const char *page;
};

enum { MAX_FILE = 16 << 20, INSTANCES = 200 };

static const char *text_of(arena *a, const sx *x)
{
    if (!x)
        return "";
    str s = str_new(a);
    sx_print(&s, x);
    return str_text(&s);
}

static void fill(eqf_rulebook *b)
{
    b->info = NEW_N(b->a, eqf_rule_info, b->set->rules.n + b->implied.n);
    for (i64 i = 0; i < b->set->rules.n; i++) {
        const rl_rule *r = b->set->rules.at[i];
        b->info[i] = (eqf_rule_info){.name = r->name,
                                     .family = r->family,
                                     .left = text_of(b->a, r->left_text),
                                     .right = text_of(b->a, r->right_text),
                                     .guard = text_of(b->a, r->when_text),
                                     .rounding = rl_fp_name(r->fp),
                                     .doc = r->doc ? r->doc : "",
                                     .file = r->file,
                                     .line = r->line};
    }
    for (i64 i = 0; i < b->implied.n; i++) {
        const rl_implied *r = &b->implied.at[i];
        b->info[b->set->rules.n + i] = (eqf_rule_info){.name = r->name,
                                                       .family = r->family,
                                                       .left = r->left,
                                                       .right = r->right,
                                                       .guard = r->when,
                                                       .rounding = rl_fp_name(r->fp),
                                                       .doc = r->doc,
                                                       .file = ""};
    }
}

/* path NULL: the shipped rules. */
static eqf_status make(eqf_ctx *ctx, const char *path, eqf_rulebook **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_rulebook *b = NEW(a, eqf_rulebook);
        b->ctx = ctx;
        b->a = a;
        if (path) {
            i64 n;
            const char *text = file_read(a, path, MAX_FILE, &n);
            b->set = rl_ruleset_new(a);
            rl_ruleset_read(b->set, path, text, n);
        } else {
            b->set = rl_ruleset_shipped(a);
            rl_list_implied(a, &b->implied);
        }
        fill(b);
        *out = b;
    }
    if (t.status)
        arena_free(a);
    return t.status;
}

eqf_status eqf_rulebook_shipped(eqf_ctx *ctx, eqf_rulebook **out)
{
    return make(ctx, NULL, out);
}

eqf_status eqf_rulebook_read(eqf_ctx *ctx, const char *path, eqf_rulebook **out)
{
    return make(ctx, path, out);
}

void eqf_rulebook_free(eqf_rulebook *book)
{
    if (book)
        arena_free(book->a);
}

size_t eqf_rulebook_count(const eqf_rulebook *book)
{
    return (size_t)(book->set->rules.n + book->implied.n);
}

eqf_rule_info eqf_rulebook_get(const eqf_rulebook *book, size_t i)
{
    return book->info[i];
}

size_t eqf_rulebook_rejected_count(const eqf_rulebook *book)
{
    return (size_t)book->set->rejected.n;
}

eqf_rejected_rule eqf_rulebook_rejected(const eqf_rulebook *book, size_t i)
{
    const rl_rejected *r = &book->set->rejected.at[i];
    return (eqf_rejected_rule){r->name, r->file, r->reason, r->line, r->column, r->excerpt};
}

const char *eqf_rulebook_document(eqf_rulebook *book)
{
    trap t;
    TRY (book->ctx, t) {
        str s = str_new(book->a);
        rl_ruleset_document(&s, book->set);
        book->page = str_text(&s);
    }
    return t.status ? "" : book->page;
}

eqf_status eqf_rulebook_try(eqf_rulebook *book, size_t i, int64_t instances, uint64_t seed,
                            eqf_rule_trial *out)
{
    *out = (eqf_rule_trial){.counterexample = ""};
    if (i >= eqf_rulebook_count(book) || instances < 1)
        return eqf_report(book->ctx, EQF_E_ARGUMENT, NULL, NULL,
                          "no such rule, or no instances asked for");
    out->verdict = EQF_RULE_UNTESTABLE; /* of what rows imply, the engine reads no text */
    if (i >= (size_t)book->set->rules.n)
        return EQF_OK;
    trap t;
    TRY (book->ctx, t) {
        arena *scratch = arena_child(book->a);
        rl_trial r = rl_try_rule(scratch, book->set->rules.at[i], instances, seed);
        out->verdict = (eqf_rule_verdict)r.verdict;
        out->instances = r.instances;
        if (r.counterexample)
            out->counterexample = arena_strdup(book->a, r.counterexample);
        arena_free(scratch);
    }
    return t.status;
}

/* ---- rules for a search
 * --------------------------------------------------------------------------- */

const char *rulebook_fault(arena *a, const rl_rule *r, u64 seed)
{
    arena *scratch = arena_child(a);
    rl_trial t = rl_try_rule(scratch, r, INSTANCES, seed);
    const char *fault = t.verdict == RL_UNSOUND
                            ? arena_printf(a, "is unsound: %.*s",
                                           (int)strcspn(t.counterexample, "\n"), t.counterexample)
                            : NULL;
    arena_free(scratch);
    return fault;
}

/* Reports what is wrong with the rules that are not the product's. */
static eqf_status report_bad(arena *a, const rl_ruleset *set, u64 seed, const volatile bool *cancel)
{
    eqf_ctx *ctx = arena_ctx(a);
    eqf_status status = EQF_OK;
    for (i64 i = 0; i < set->rejected.n; i++) {
        const rl_rejected *r = &set->rejected.at[i];
        status = eqf_report(ctx, EQF_E_DATA, r->file,
                            arena_printf(a, "%u:%u", r->line, r->column), "%s%srejected: %s",
                            r->name, r->name[0] ? " is " : "", r->reason);
    }
    for (i64 i = set->shipped; i < set->rules.n; i++) {
        const rl_rule *r = set->rules.at[i];
        if (cancel && *cancel)
            eqf_throw(ctx, EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
        const char *fault = rulebook_fault(a, r, seed);
        if (fault)
            status = eqf_report(ctx, EQF_E_DATA, r->file,
                                arena_printf(a, "%u:%u", r->line, r->column), "%s %s", r->name,
                                fault);
    }
    return status;
}

rl_ruleset *rulebook_join(arena *a, const char *const *files, i64 n, bool force, u64 seed,
                          const volatile bool *cancel)
{
    rl_ruleset *set = rl_ruleset_shipped(a);
    for (i64 i = 0; i < n; i++) {
        i64 length;
        const char *text = file_read(a, files[i], MAX_FILE, &length);
        rl_ruleset_read(set, arena_strdup(a, files[i]), text, length);
    }
    eqf_status status = force ? EQF_OK : report_bad(a, set, seed, cancel);
    if (status)
        eqf_rethrow(arena_ctx(a), status);
    return set;
}
