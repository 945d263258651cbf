/* The command line, parsed against a verb's options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const cli_option cli_common[] = {
    {"--json", NULL, "the last line of standard output is one JSON object"},
    {"--quiet", NULL, "errors only on standard error"},
    {"--seed", "N", "of everything random (default 0)"},
    {"--jobs", "N", "processes at a time (default: the processors)"},
    {"--help", NULL, "this text"},
    {NULL, NULL, NULL},
};

static const cli_option *find_option(const cli_option *options, const char *name, size_t n)
{
    for (; options->name; options++)
        if (strlen(options->name) == n && strncmp(options->name, name, n) == 0)
            return options;
    return NULL;
}

/* Letters to insert, drop, change or swap with their neighbour; LONGEST where words are too long. */
enum { LONGEST = 40 };

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), d[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *cli_closest(const char *word, const char *const *names, size_t n)
{
    /* One slip in three letters, two in seven: more, and it is another word. */
    size_t best = (strlen(word) + 1) / 4 + 1;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

static int unknown_option(cli_args *args, const char *word)
{
    const char *names[64];
    size_t n = 0;
    for (const cli_option *o = args->verb->options; o->name; o++)
        names[n++] = o->name;
    for (const cli_option *o = cli_common; o->name; o++)
        names[n++] = o->name;
    const char *near = cli_closest(word, names, n);
    if (near)
        return cli_fail(args, EXIT_USAGE, NULL, word, "unknown option; did you mean %s?", near);
    return cli_fail(args, EXIT_USAGE, NULL, word, "unknown option; see equiforge %s --help",
                    args->verb->name);
}

/* An option, and the word after it where it takes a value. Returns how many words were used, 0
 * after an error. */
static int take_option(cli_args *args, const char *word, const char *next)
{
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const cli_option *o = find_option(args->verb->options, word, n);
    if (!o)
        o = find_option(cli_common, word, n);
    if (!o) {
        unknown_option(args, word);
        return 0;
    }
    if (!o->value && equals) {
        cli_fail(args, EXIT_USAGE, NULL, o->name, "takes no value");
        return 0;
    }
    const char *value = !o->value ? "" : equals ? equals + 1 : next;
    if (!value) {
        cli_fail(args, EXIT_USAGE, NULL, o->name, "needs a value: %s", o->value);
        return 0;
    }
    size_t ends = o->value ? strlen(o->value) : 0;
    bool repeatable = !o->value || (ends > 3 && strcmp(o->value + ends - 3, "...") == 0);
    if (!repeatable && cli_value(args, o->name)) {
        cli_fail(args, EXIT_USAGE, NULL, o->name, "is given twice: %s and %s",
                 cli_value(args, o->name), value);
        return 0;
    }
    args->names[args->count] = o->name;
    args->values[args->count++] = value;
    return o->value && !equals ? 2 : 1;
}

int cli_parse(cli_args *args, const cli_verb *verb, int argc, char **argv)
{
    args->verb = verb;
    /* Known before anything can fail: errors are printed as they were asked for. */
    for (int i = 0; i < argc; i++) {
        args->json = args->json || strcmp(argv[i], "--json") == 0;
        args->quiet = args->quiet || strcmp(argv[i], "--quiet") == 0;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            cli_help(verb);
            return EXIT_DONE;
        }
    }
    bool only_files = false;
    for (int i = 0; i < argc;) {
        char *word = argv[i];
        if (!only_files && strcmp(word, "--") == 0) {
            only_files = true;
            i++;
        } else if (!only_files && word[0] == '-' && word[1]) {
            int used = take_option(args, word, i + 1 < argc ? argv[i + 1] : NULL);
            if (used == 0)
                return EXIT_USAGE;
            i += used;
        } else if (!word[0]) {
            return cli_fail(args, EXIT_USAGE, NULL, NULL, "an operand is empty");
        } else if (args->file_count == verb->most) {
            return cli_fail(args, EXIT_USAGE, NULL, word,
                            verb->most ? "one too many; usage: equiforge %s %s"
                                       : "takes no operand; usage: equiforge %s %s",
                            verb->name, verb->usage);
        } else {
            args->files[args->file_count++] = word;
            i++;
        }
    }
    args->file = args->file_count ? args->files[0] : NULL;
    if (args->file_count < verb->least)
        return cli_fail(args, EXIT_USAGE, NULL, NULL, "one too few; usage: equiforge %s %s", verb->name,
                        verb->usage);
    long long ignored;
    if (!cli_number(args, "--jobs", 1, 4096, 1, &ignored) ||
        !cli_number(args, "--seed", 0, INT64_MAX, 0, &ignored))
        return EXIT_USAGE;
    return -1;
}

const char *cli_value(const cli_args *args, const char *name)
{
    for (int i = 0; i < args->count; i++)
        if (strcmp(args->names[i], name) == 0)
            return args->values[i];
    return NULL;
}

size_t cli_values(const cli_args *args, const char *name, const char **at)
{
    size_t n = 0;
    for (int i = 0; i < args->count; i++)
        if (strcmp(args->names[i], name) == 0)
            at[n++] = args->values[i];
    return n;
}

bool cli_number(cli_args *args, const char *name, long long low, long long high,
                long long otherwise, long long *out)
{
    const char *text = cli_value(args, name);
    *out = otherwise;
    if (!text)
        return true;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    bool starts = text[0] == '-' || (text[0] >= '0' && text[0] <= '9'); /* no space, no plus */
    if (!starts || end == text || *end || errno == ERANGE || v < low || v > high) {
        cli_fail(args, EXIT_USAGE, NULL, name, "%s is not a whole number from %lld to %lld", text,
                 low, high);
        return false;
    }
    *out = v;
    return true;
}

bool cli_duration(cli_args *args, const char *name, double *out)
{
    const char *text = cli_value(args, name);
    if (!text)
        return true;
    char *end;
    double v = strtod(text, &end);
    double unit = strcmp(end, "") == 0 || strcmp(end, "s") == 0 ? 1
                  : strcmp(end, "m") == 0                       ? 60
                  : strcmp(end, "h") == 0                       ? 3600
                                                                : 0;
    if (end == text || unit == 0 || !(v > 0) || v * unit > 1e9) {
        cli_fail(args, EXIT_USAGE, NULL, name, "%s is not a duration, as in 90s, 10m or 4h", text);
        return false;
    }
    *out = v * unit;
    return true;
}

bool cli_choice(cli_args *args, const char *name, const char *const *choices, int *out)
{
    const char *text = cli_value(args, name);
    *out = 0;
    if (!text)
        return true;
    char all[200] = "";
    for (int i = 0; choices[i]; i++) {
        if (choices[i][0] && strcmp(choices[i], text) == 0) {
            *out = i;
            return true;
        }
        size_t n = strlen(all);
        if (choices[i][0]) /* "" stands for an absent option */
            snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", choices[i]);
    }
    cli_fail(args, EXIT_USAGE, NULL, name, "%s is none of: %s", text, all);
    return false;
}

static void help_options(const cli_option *options)
{
    for (; options->name; options++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options->name, options->value ? " " : "",
                 options->value ? options->value : "");
        printf("  %-28s %s\n", left, options->help);
    }
}

void cli_help(const cli_verb *verb)
{
    printf("usage: equiforge %s %s\n\n%s\n\n%s\n\noptions:\n", verb->name, verb->usage,
           verb->summary, verb->help);
    help_options(verb->options);
    help_options(cli_common);
}

bool cli_read_options(cli_args *args, const char *file, const char *inputs, cli_reading *out)
{
    const char **dims = calloc((size_t)args->count + 1, sizeof *dims);
    *out = (cli_reading){.options.dims = dims,
                         .inputs = calloc((size_t)args->count + 4, sizeof *out->inputs)};
    long long seed;
    if (!dims || !out->inputs)
        cli_fail(args, EXIT_MACHINE, NULL, NULL, "out of memory");
    if (!dims || !out->inputs || !cli_number(args, "--seed", 0, INT64_MAX, 0, &seed)) {
        cli_free_reading(out);
        return false;
    }
    out->options = (eqf_read_options){.model = cli_value(args, "--model"),
                                      .dims = dims,
                                      .dim_count = cli_values(args, "--dim", dims),
                                      .inputs = inputs,
                                      .weights = cli_value(args, "--weights"),
                                      .seed = (uint64_t)seed};
    size_t n = out->rule_count = cli_values(args, "--rules", out->inputs);
    out->inputs[n++] = file;
    if (inputs)
        out->inputs[n++] = inputs;
    if (out->options.weights)
        out->inputs[n++] = out->options.weights;
    return true;
}

void cli_free_reading(cli_reading *reading)
{
    free((void *)reading->options.dims);
    free(reading->inputs);
    *reading = (cli_reading){0};
}

static bool is_among(const char *name, const eqf_tensor *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(at[i].name, name) == 0)
            return true;
    return false;
}

/* What is in the file and no port of the program. The program was read, so the file can be. */
static void note_unread(cli_args *args, const char *file, const eqf_tensor *ports, size_t n)
{
    const char *names[MOST_NOTED];
    size_t count = 0;
    eqf_tensors *set;
    if (!file || args->quiet)
        return;
    if (eqf_tensors_read(args->ctx, file, &set) != EQF_OK) {
        eqf_ctx_clear(args->ctx); /* it changed meanwhile: whoever uses it says so */
        return;
    }
    for (size_t i = 0; i < eqf_tensors_count(set); i++) {
        const char *name = eqf_tensors_get(set, i).name;
        if (is_among(name, ports, n))
            continue;
        if (count < MOST_NOTED)
            names[count] = name;
        count++;
    }
    cli_note_unread(args, file, names, count);
    eqf_tensors_free(set);
}

void cli_note_seeded(cli_args *args, const cli_reading *reading, const eqf_program *program)
{
    size_t n = eqf_program_info(program)->seeded_parameters;
    if (n > 0)
        cli_note(args, args->file,
                 "its %zu parameter%s no data: random values (seed %llu) are built in; --weights F "
                 "gives them",
                 n, n == 1 ? " has" : "s have", (unsigned long long)reading->options.seed);
}

void cli_note_files(cli_args *args, const cli_reading *reading, const eqf_program *program)
{
    const eqf_program_summary *s = eqf_program_info(program);
    for (size_t i = 0; i < s->note_count && i < MOST_NOTED; i++)
        cli_note(args, s->file, "%s", s->notes[i]);
    if (s->note_count > MOST_NOTED)
        cli_note(args, s->file, "and %zu more remarks", s->note_count - MOST_NOTED);
    note_unread(args, reading->options.inputs, s->inputs, s->input_count);
    note_unread(args, reading->options.weights, s->parameters, s->parameter_count);
}
