/* The verbs `rules list`, `rules show NAME` and `rules check FILE...`. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "eqf_rules.h"

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

static void print_rule(const eqf_rule_info *r)
{
    print_name(r->family, 10);
    putchar(' ');
    print_name(r->name, 24);
    putchar(' ');
    print_name(r->rounding, 8);
    putchar(' ');
    print_name(r->left, 0);
    printf(" => ");
    print_name(r->right, 0);
    printf(r->guard[0] ? "  when " : "");
    print_name(r->guard, 0);
    putchar('\n');
}

int cli_rules_list(cli_args *args)
{
    eqf_rulebook *book;
    eqf_status s = eqf_rulebook_shipped(args->ctx, &book);
    if (s)
        return cli_fail_status(args, s, NULL);
    size_t n = eqf_rulebook_count(book);
    bool document = cli_value(args, "--document") != NULL;
    if (document)
        fputs(eqf_rulebook_document(book), stdout);
    if (args->json)
        printf("{\"rules\":[");
    for (size_t i = 0; i < n; i++) {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (args->json) {
            fputs(i ? "," : "", stdout);
            print_json_rule(&r);
        } else if (!document) {
            print_rule(&r);
        }
    }
    if (args->json)
        printf("]}\n");
    eqf_rulebook_free(book);
    return EXIT_DONE;
}

static int no_such_rule(cli_args *args, const eqf_rulebook *book)
{
    size_t n = eqf_rulebook_count(book);
    const char **names = calloc(n + 1, sizeof *names);
    if (!names)
        return cli_fail(args, EXIT_MACHINE, NULL, NULL, "out of memory");
    for (size_t i = 0; i < n; i++)
        names[i] = eqf_rulebook_get(book, i).name;
    const char *near = cli_closest(args->file, names, n);
    free(names);
    return near ? cli_fail(args, EXIT_INPUT, NULL, args->file,
                           "no rule of this name; did you mean %s?", near)
                : cli_fail(args, EXIT_INPUT, NULL, args->file,
                           "no rule of this name; see equiforge rules list");
}

int cli_rules_show(cli_args *args)
{
    eqf_rulebook *book;
    eqf_status s = eqf_rulebook_shipped(args->ctx, &book);
    if (s)
        return cli_fail_status(args, s, NULL);
    int code = EXIT_DONE;
    size_t n = eqf_rulebook_count(book), i = 0;
    while (i < n && strcmp(eqf_rulebook_get(book, i).name, args->file) != 0)
        i++;
    if (i == n) {
        code = no_such_rule(args, book);
    } else {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        if (args->json) {
            print_json_rule(&r);
            putchar('\n');
        } else {
            if (r.file[0])
                printf("%s (%s:%zu)\n", r.name, r.file, r.line);
            else
                printf("%s (implied by the operator's row)\n", r.name);
            printf("  %s\n  => %s\n", r.left, r.right);
            if (r.guard[0])
                printf("  when %s\n", r.guard);
            printf("  rounding: %s\n", r.rounding);
            if (r.doc[0])
                printf("  %s\n", r.doc);
        }
    }
    eqf_rulebook_free(book);
    return code;
}

/* ---- check ------------------------------------------------------------------------------------
 */

typedef struct tally {
    eqf_rule_trial *trials;
    size_t n, sound, unsound, untestable;
} tally;

/* Lines of a file, each indented. */
static void print_lines(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[400]; /* an excerpt is no longer than a terminal is wide */
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        printf("    ");
        print_name(line, 0);
        putchar('\n');
        text += length + (text[length] == '\n');
    }
}

static void print_rejected(const eqf_rulebook *book)
{
    for (size_t i = 0; i < eqf_rulebook_rejected_count(book); i++) {
        eqf_rejected_rule r = eqf_rulebook_rejected(book, i);
        print_name(r.file, 0);
        printf(":%zu:%zu: ", r.line, r.column);
        print_name(r.name, 0);
        printf(r.name[0] ? " rejected: " : "rejected: ");
        print_name(r.reason, 0);
        putchar('\n');
        print_lines(r.excerpt);
    }
}

static void print_trial(const eqf_rule_info *r, const eqf_rule_trial *t)
{
    print_name(r->file, 0);
    printf(":%zu: ", r->line);
    print_name(r->name, 0);
    switch (t->verdict) {
    case EQF_RULE_SOUND:
        printf(" holds on %lld instances\n", (long long)t->instances);
        break;
    case EQF_RULE_UNSOUND:
        printf(" is unsound: ");
        print_name(t->counterexample, 0);
        putchar('\n');
        break;
    case EQF_RULE_UNTESTABLE:
        printf(" is untestable: %lld instances meet its guards and have a value\n",
               (long long)t->instances);
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

static int check_book(cli_args *args, eqf_rulebook *book, const char *file, long long instances,
                      long long seed)
{
    tally t = {.n = eqf_rulebook_count(book)};
    t.trials = calloc(t.n + 1, sizeof *t.trials);
    if (!t.trials)
        return cli_fail(args, EXIT_MACHINE, NULL, NULL, "out of memory");
    cli_end_progress();
    if (!args->json)
        print_rejected(book);
    int code = eqf_rulebook_rejected_count(book) ? EXIT_INPUT : EXIT_DONE;
    for (size_t i = 0; i < t.n; i++) {
        eqf_rule_info r = eqf_rulebook_get(book, i);
        cli_progress(args, "%s: rule %zu of %zu", file, i + 1, t.n);
        eqf_status s =
            eqf_rulebook_try(book, i, instances, (unsigned long long)seed, &t.trials[i]);
        if (s) {
            code = cli_fail_status(args, s, NULL);
            free(t.trials);
            return code;
        }
        t.sound += t.trials[i].verdict == EQF_RULE_SOUND;
        t.unsound += t.trials[i].verdict == EQF_RULE_UNSOUND;
        t.untestable += t.trials[i].verdict == EQF_RULE_UNTESTABLE;
        if (args->json || (t.trials[i].verdict == EQF_RULE_SOUND && args->quiet))
            continue;
        cli_end_progress();
        print_trial(&r, &t.trials[i]);
        fflush(stdout); /* an interrupt keeps what was found */
    }
    cli_end_progress();
    if (t.unsound)
        code = EXIT_INPUT;
    if (args->json) {
        print_json(book, file, &t);
    } else if (!args->quiet) {
        print_name(file, 0);
        printf(": %zu rules: %zu sound, %zu unsound, %zu rejected, %zu untestable\n",
               t.n + eqf_rulebook_rejected_count(book), t.sound, t.unsound,
               eqf_rulebook_rejected_count(book), t.untestable);
    }
    free(t.trials);
    return code;
}

int cli_rules_check(cli_args *args)
{
    long long instances, seed;
    if (!cli_number(args, "--instances", 1, 1000000, 200, &instances) ||
        !cli_number(args, "--seed", 0, INT64_MAX, 0, &seed))
        return EXIT_USAGE;
    int code = EXIT_DONE;
    for (int i = 0; i < args->file_count; i++) {
        const char *const inputs[] = {args->files[i], NULL};
        eqf_rulebook *book;
        cli_progress(args, "reading %s", args->files[i]);
        eqf_status s = eqf_rulebook_read(args->ctx, args->files[i], &book);
        int one = s ? cli_fail_status(args, s, inputs)
                    : check_book(args, book, args->files[i], instances, seed);
        if (!s)
            eqf_rulebook_free(book);
        code = one > code ? one : code;
        eqf_ctx_clear(args->ctx);
    }
    return code;
}
