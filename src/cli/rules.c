/* The verbs `rules list`, `rules show NAME` and `rules check FILE...`.
 *
 * Exit: 0 done, 1 a rule is unsound or rejected or a file unreadable, 2 usage, 3 the machine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "eqf_rules.h"

static const char usage[] =
    "usage: equiforge rules list [--document] [--json]\n"
    "       equiforge rules show NAME\n"
    "       equiforge rules check FILE... [--instances N] [--seed N] [--json]\n\n"
    "list prints the rules in force, show one of them. check types the rules of FILE, evaluates "
    "both\n"
    "sides of each on random small shapes and prints a counterexample where they differ.\n";

typedef struct command {
    cli_args args;
    const char **operands;
    size_t count;
    long long instances;
    unsigned long long seed;
    bool document;
} command;

static int usage_error(command *c, const char *what, const char *word)
{
    return cli_fail(&c->args, EXIT_USAGE, NULL, word, "%s; see equiforge rules --help", what);
}

static bool parse_number(const char *text, unsigned long long low, unsigned long long *out)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || x < low)
        return false;
    *out = x;
    return true;
}

/* -1, or the exit code. */
static int parse(command *c, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        c->args.json = c->args.json || strcmp(argv[i], "--json") == 0;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned long long n;
        if (strcmp(word, "--json") == 0) {
            continue;
        } else if (strcmp(word, "--quiet") == 0) {
            c->args.quiet = true;
        } else if (strcmp(word, "--document") == 0) {
            c->document = true;
        } else if (strcmp(word, "--instances") == 0 || strcmp(word, "--seed") == 0 ||
                   strcmp(word, "--jobs") == 0) {
            bool is_seed = strcmp(word, "--seed") == 0;
            if (!parse_number(value, is_seed ? 0 : 1, &n) || (!is_seed && n > 1000000))
                return usage_error(
                    c, is_seed ? "wants a number" : "wants a number from 1 to 1000000", word);
            if (is_seed)
                c->seed = n;
            else if (strcmp(word, "--instances") == 0)
                c->instances = (long long)n;
            i++;
        } else if (word[0] == '-' && word[1]) {
            return usage_error(c, "unknown option", word);
        } else {
            c->operands[c->count++] = word;
        }
    }
    return -1;
}

/* ---- list, show -------------------------------------------------------------------------------
 */

static void print_json_rule(const eqf_rule_info *r)
{
    printf("{\"name\":");
    json_text(r->name);
    json_key("family");
    json_text(r->family);
    json_key("left");
    json_text(r->left);
    json_key("right");
    json_text(r->right);
    json_key("when");
    json_text(r->guard);
    json_key("fp");
    json_text(r->rounding);
    json_key("doc");
    json_text(r->doc);
    putchar('}');
}

static int list(command *c)
{
    eqf_rulebook *book;
    if (c->count)
        return usage_error(c, "list takes no name; did you mean show?", c->operands[0]);
    eqf_status s = eqf_rulebook_shipped(c->args.ctx, &book);
    if (s)
        return cli_fail_status(&c->args, s, NULL);
    size_t n = eqf_rulebook_count(book);
    if (c->document)
        fputs(eqf_rulebook_document(book), stdout);
    else if (c->args.json)
        printf("{\"rules\":[");
    for (size_t i = 0; i < n && !c->document; i++) {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (c->args.json) {
            fputs(i ? "," : "", stdout);
            print_json_rule(&r);
        } else {
            printf("%-10s %-24s %-8s %s => %s%s%s\n", r.family, r.name, r.rounding, r.left, r.right,
                   r.guard[0] ? "  when " : "", r.guard);
        }
    }
    if (c->args.json && !c->document)
        printf("]}\n");
    eqf_rulebook_free(book);
    return EXIT_DONE;
}

static int show(command *c)
{
    eqf_rulebook *book;
    if (c->count != 1)
        return usage_error(c, "show takes the name of a rule", "show");
    eqf_status s = eqf_rulebook_shipped(c->args.ctx, &book);
    if (s)
        return cli_fail_status(&c->args, s, NULL);
    int code = EXIT_DONE;
    size_t n = eqf_rulebook_count(book), i = 0;
    const char **names = calloc(n + 1, sizeof *names);
    while (i < n && strcmp(eqf_rulebook_get(book, i).name, c->operands[0]) != 0)
        i++;
    if (!names) {
        code = cli_fail(&c->args, EXIT_MACHINE, NULL, NULL, "out of memory");
    } else if (i == n) {
        for (size_t k = 0; k < n; k++)
            names[k] = eqf_rulebook_get(book, k).name;
        const char *near = cli_closest(c->operands[0], names, n);
        code = cli_fail(&c->args, EXIT_INPUT, NULL, c->operands[0],
                        near ? "no rule of this name; did you mean %s?"
                             : "no rule of this name; see equiforge rules list",
                        near);
    } else {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (c->args.json) {
            print_json_rule(&r);
            putchar('\n');
        } else {
            printf("%s (%s:%zu)\n  %s\n  => %s\n", r.name, r.file, r.line, r.left, r.right);
            if (r.guard[0])
                printf("  when %s\n", r.guard);
            printf("  rounding: %s\n", r.rounding);
            if (r.doc[0])
                printf("  %s\n", r.doc);
        }
    }
    free(names);
    eqf_rulebook_free(book);
    return code;
}

/* ---- check ------------------------------------------------------------------------------------
 */

typedef struct tally {
    eqf_rule_trial *trials;
    size_t n, sound, unsound, untestable;
} tally;

static void print_rejected(const eqf_rulebook *book)
{
    for (size_t i = 0; i < eqf_rulebook_rejected_count(book); i++) {
        eqf_rejected_rule r = eqf_rulebook_rejected(book, i);
        printf("%s:%zu:%zu: %s%srejected: %s\n", r.file, r.line, r.column, r.name,
               r.name[0] ? " " : "", r.reason);
        for (const char *at = r.excerpt; *at;) {
            size_t length = strcspn(at, "\n");
            printf("    %.*s\n", (int)length, at);
            at += length + (at[length] == '\n');
        }
    }
}

static void print_trial(const eqf_rule_info *r, const eqf_rule_trial *t)
{
    switch (t->verdict) {
    case EQF_RULE_SOUND:
        printf("%s:%zu: %s holds on %lld instances\n", r->file, r->line, r->name,
               (long long)t->instances);
        break;
    case EQF_RULE_UNSOUND:
        printf("%s:%zu: %s is unsound: %s\n", r->file, r->line, r->name, t->counterexample);
        break;
    case EQF_RULE_UNTESTABLE:
        printf("%s:%zu: %s is untestable: %lld instances meet its guards and have a value\n",
               r->file, r->line, r->name, (long long)t->instances);
        break;
    }
}

static void json_list(const eqf_rulebook *book, const tally *t, const char *key,
                      eqf_rule_verdict verdict)
{
    json_key(key);
    putchar('[');
    for (size_t i = 0, n = 0; i < t->n; i++) {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (t->trials[i].verdict != verdict)
            continue;
        printf(n++ ? ",{\"name\":" : "{\"name\":");
        json_text(r.name);
        printf(",\"line\":%zu", r.line);
        if (verdict == EQF_RULE_UNSOUND) {
            json_key("counterexample");
            json_text(t->trials[i].counterexample);
        }
        putchar('}');
    }
    putchar(']');
}

static void print_json(const eqf_rulebook *book, const char *file, const tally *t)
{
    size_t rejected = eqf_rulebook_rejected_count(book);
    printf("{\"file\":");
    json_text(file);
    printf(",\"rules\":%zu,\"sound\":%zu", t->n + rejected, t->sound);
    json_list(book, t, "unsound", EQF_RULE_UNSOUND);
    json_key("rejected");
    putchar('[');
    for (size_t i = 0; i < rejected; i++) {
        eqf_rejected_rule r = eqf_rulebook_rejected(book, i);
        printf(i ? ",{\"name\":" : "{\"name\":");
        json_text(r.name);
        printf(",\"line\":%zu,\"column\":%zu", r.line, r.column);
        json_key("reason");
        json_text(r.reason);
        putchar('}');
    }
    putchar(']');
    json_list(book, t, "untestable", EQF_RULE_UNTESTABLE);
    printf("}\n");
}

static int check_book(command *c, eqf_rulebook *book, const char *file)
{
    tally t = {.n = eqf_rulebook_count(book)};
    t.trials = calloc(t.n + 1, sizeof *t.trials);
    if (!t.trials)
        return cli_fail(&c->args, EXIT_MACHINE, NULL, NULL, "out of memory");
    if (!c->args.json)
        print_rejected(book);
    int code = eqf_rulebook_rejected_count(book) ? EXIT_INPUT : EXIT_DONE;
    for (size_t i = 0; i < t.n; i++) {
        eqf_status s = eqf_rulebook_try(book, i, c->instances, c->seed, &t.trials[i]);
        if (s) {
            code = cli_fail_status(&c->args, s, NULL);
            free(t.trials);
            return code;
        }
        t.sound += t.trials[i].verdict == EQF_RULE_SOUND;
        t.unsound += t.trials[i].verdict == EQF_RULE_UNSOUND;
        t.untestable += t.trials[i].verdict == EQF_RULE_UNTESTABLE;
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (!c->args.json && (t.trials[i].verdict != EQF_RULE_SOUND || !c->args.quiet))
            print_trial(&r, &t.trials[i]);
    }
    if (t.unsound)
        code = EXIT_INPUT;
    if (c->args.json)
        print_json(book, file, &t);
    else if (!c->args.quiet)
        printf("%s: %zu rules: %zu sound, %zu unsound, %zu rejected, %zu untestable\n", file,
               t.n + eqf_rulebook_rejected_count(book), t.sound, t.unsound,
               eqf_rulebook_rejected_count(book), t.untestable);
    free(t.trials);
    return code;
}

static int check(command *c)
{
    int code = EXIT_DONE;
    if (!c->count)
        return usage_error(c, "check takes files", "check");
    for (size_t i = 0; i < c->count; i++) {
        const char *inputs[] = {c->operands[i], NULL};
        eqf_rulebook *book;
        eqf_status s = eqf_rulebook_read(c->args.ctx, c->operands[i], &book);
        int one = s ? cli_fail_status(&c->args, s, inputs) : check_book(c, book, c->operands[i]);
        if (!s)
            eqf_rulebook_free(book);
        code = one > code ? one : code;
        eqf_ctx_clear(c->args.ctx);
    }
    return code;
}

int cli_rules(int argc, char **argv)
{
    command c = {.instances = 200};
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    int rest = argc > 2 ? argc - 2 : 0;
    for (int i = 0; i < rest; i++) {
        if (strcmp(argv[i + 2], "--help") == 0) {
            fputs(usage, stdout);
            return EXIT_DONE;
        }
    }
    c.args.ctx = eqf_ctx_new(NULL);
    c.operands = calloc((size_t)rest + 1, sizeof *c.operands);
    int code;
    if (!c.args.ctx || !c.operands)
        code = cli_fail(&c.args, EXIT_MACHINE, NULL, NULL, "out of memory");
    else if ((code = parse(&c, rest, argv + 2)) < 0)
        code = strcmp(verb, "list") == 0   ? list(&c)
               : strcmp(verb, "show") == 0 ? show(&c)
               : strcmp(verb, "check") == 0
                   ? check(&c)
                   : usage_error(&c, "rules wants list, show or check", verb[0] ? verb : NULL);
    free(c.operands);
    eqf_ctx_free(c.args.ctx);
    return code;
}
