/* The rules that come with the product (the .rules files of rules/, embedded by the build) and the
 * page of documentation about rules. */
#include "rules/rule.h"

typedef struct shipped {
    const char *name;
    const unsigned char *text;
    i64 n;
} shipped;

#define BYTES(...) ((const unsigned char[]){__VA_ARGS__})
#define RULE_FILE(name, ...) {name, BYTES(__VA_ARGS__), (i64)sizeof(BYTES(__VA_ARGS__))},
static const shipped files[] = {
#include "rules/shipped.def"
};

rl_ruleset *rl_ruleset_shipped(arena *a)
{
    rl_ruleset *set = rl_ruleset_new(a);
    for (i64 i = 0; i < COUNT_OF(files); i++)
        rl_ruleset_read(set, files[i].name, (const char *)files[i].text, files[i].n);
    if (set->rejected.n) {
        const rl_rejected *r = &set->rejected.at[0];
        eqf_throw(arena_ctx(a), EQF_E_INTERNAL, r->file,
                  arena_printf(a, "%u:%u", r->line, r->column), "%s", r->reason);
    }
    set->shipped = set->rules.n;
    return set;
}

static void document_rule(str *out, const char *name, const char *left, const char *right,
                          const char *when, const char *doc, rl_fp fp)
{
    str_printf(out, "| %s | `%s` → `%s`", name, left, right);
    if (*when)
        str_printf(out, " when `%s`", when);
    str_printf(out, " | %s | %s |\n", doc, rl_fp_name(fp));
}

/* Those that no file has and no operator's row implies. */
static void document_engine(str *out, arena *a)
{
    rl_implied_list all = {0};
    rl_list_implied(a, &all);
    str_add(out, "\n## Rules of the engine\n\nThey make dims, loops and ranges, or hold by how terms are "
                 "made; `R` and `Q` stand for reducers, `op` and `map` for operators.\n\n"
                 "| rule | | what for | rounding |\n|---|---|---|---|\n");
    for (i64 i = 0; i < all.n; i++) {
        const rl_implied *r = &all.at[i];
        if (!*r->source)
            continue;
        document_rule(out, arena_printf(a, "%s (%s, `%s`)", r->name, r->family, r->source), r->left,
                      r->right, r->when, r->doc, r->fp);
    }
}

void rl_ruleset_document(str *out, const rl_ruleset *set)
{
    str_add(out,
            "# Rules\n\n"
            "Made by `equiforge rules list --document` from `rules/*.rules`; edit those. "
            "`docs/language.md` says what the\noperators mean. `?x` stands for a term, `?K` "
            "after `:axis` for a set of dims, `?P` after `:par` for a set\nof axes, after `:map` for "
            "an index map. A rule with `:par` or `tile-matmul` is about values of every state, others "
            "are about whole\ntensors. A rule holds for floats, taken as reals, unless `:for` says "
            "otherwise; for integers where they wrap, too. `=>` adds\n"
            "the right side to the left side's class; both stay.\n\n"
            "## Guards\n\nIn a guard a term variable means the set of its dims; `axes`, `meet`, "
            "`minus`, `join`, `from`, `to` make other sets.\n`and`, `or`, `not` combine "
            "guards.\n\n| guard | holds when |\n|---|---|\n");
    for (rl_test t = 0; t < RL_TEST_COUNT; t++)
        str_printf(out, "| `%s` | %s |\n", rl_test_at(t)->name, rl_test_at(t)->doc);
    str_add(out, "\nGuards with a variable of dims alone decide soundness with the types: a rule "
                 "whose sides would differ in type\nfor some dims is refused when it is read.\n");
    const char *family = "";
    for (i64 i = 0; i < set->rules.n; i++) {
        const rl_rule *r = set->rules.at[i];
        if (strcmp(family, r->family) != 0) {
            family = r->family;
            str_printf(out, "\n## %s (`%s`)\n\n| rule | | what for | rounding |\n|---|---|---|---|\n",
                       family, r->file);
        }
        str s[3] = {str_new(set->a), str_new(set->a), str_new(set->a)};
        sx_print(&s[0], r->left_text);
        sx_print(&s[1], r->right_text);
        if (r->when_text)
            sx_print(&s[2], r->when_text);
        document_rule(out, r->name, str_text(&s[0]), str_text(&s[1]), r->when_text ? str_text(&s[2]) : "",
                      r->doc ? r->doc : "", r->fp);
    }
    document_engine(out, set->a);
    str_add(
        out,
        "\n## Rules that operators imply\n\n"
        "How views and index maps pass an operator follows from its class, for every row of the "
        "operator table;\n`equiforge rules list` prints them all. `V` is a set of axes: an "
        "operand is cut along those whose dim it has.\n\n"
        "| operator | is, cut along V | index maps (`rename`, `slice`, `splitdim`) |\n"
        "|---|---|---|\n"
        "| pointwise `(op x y ...)` | `(op (view x V) (view y V) ...)` | "
        "`(op (map x) (map y) ...)` |\n"
        "| `(reduce R x :axis K)` | `(reduce R (reduce R (view x V+K) :axis K) :par K)` | "
        "`(reduce R (map x) :axis K)` when the map has no dim of K |\n"
        "| `(matmul a b :axis K)` | `(reduce + (tile-matmul (view a V+K) (view b V+K) :axis K) "
        ":par K)` | `(matmul (map a) (map b) :axis K)` when the map has no dim of K |\n"
        "| `(gather x i ... :axis K)` | `(gather (view x V-K) (view i V) ... :axis K)` | "
        "`(gather (map x) (map i) ... :axis K)` when the map has no dim of K |\n"
        "| inputs, what is made of parameters | is read | is read |\n"
        "| anything else | is stored, then read | is stored, then read |\n\n"
        "A value that is computed by tiles is their combination: `x` = `(comb (view x V) V)`, V "
        "the axes of all its dims.\nWhere a dim of K is split into an outer and an inner part, "
        "every reduction over K goes over the inner part first.\n");
}
