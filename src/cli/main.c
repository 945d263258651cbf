/* equiforge: the tool. A verb is one row of the table below. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* clang-format off */
#define READING                                                                                    \
    {"--dim", "NAME=N...", "fixes a symbolic dim"},                                                \
    {"--model", "NAME", "which program of an archive with several"},                               \
    {"--weights", "F.safetensors", "data for the parameters of a text program"}
/* clang-format on */

static const cli_option inspect_options[] = {
    {"--text", NULL, "prints the program as .eqf, which reads back to the same program"},
    {"--inputs", "F.safetensors", "inputs whose shapes fix symbolic dims"},
    READING,
    {NULL, NULL, NULL},
};

#define RULES                                                                                      \
    {"--rules", "F...", "a file of further rules, tested first"},                                  \
    {"--force", NULL, "uses rules that the test shows to be unsound"}

#define SEARCHING                                                                                  \
    {"--parameters", "constant|input",                                                             \
     "constant (default): folded and packed once; input: replaceable"},                            \
    {"--accuracy", "strict|default|fast", "fast: also rewrites that cancel on some inputs"}

static const cli_option search_options[] = {
    RULES,
    {"--fuse", "late|node|all",
     "which loops are one: late (default), reductions and those they need; node, also independent "
     "ones of an operator; all, any over the same axes, for comparison"},
    {"--refine", "maximal|subsets",
     "values are cut along all their axes (default), or along every set of them, for comparison"},
    {"--mode", "early|after|none",
     "equal and dominated candidates are left out before they are expanded (default), when all are "
     "there, or never"},
    {"--order", "best|paper",
     "structures of reductions, most promising first (default), or every selection of e-nodes with "
     "operands unsorted and --fuse all, for comparison"},
    {"--budget", "TIME", "wall time: 90s, 10m, 4h (default 60s)"},
    {"--limit", "N", "candidates of a subgraph to list (default 16)"},
    {"--threads", "N", "threads that share a kernel (default 8): long dims are done in parts for them"},
    {"--enodes", "N", "most e-nodes of a subgraph (default 100000)"},
    {"--print", "forms|kernels|tensors",
     "prints .eqf, which reads back, or kernel IR of the candidates; tensors: the form of least FLOPs "
     "of whole tensors"},
    {"--inputs", "F.safetensors", "inputs whose shapes fix symbolic dims"},
    SEARCHING,
    READING,
    {NULL, NULL, NULL},
};

static const cli_option optimize_options[] = {
    {"-o", "PKG", "the package directory to write; an existing package is replaced"},
    {"--inputs", "F.safetensors", "inputs to verify with; their shapes fix symbolic dims"},
    {"--budget", "TIME",
     "wall time of the search: 90s, 10m, 4h (default 60s); the first package is always built"},
    {"--threads", "N", "threads the package is meant for (default: the processors)"},
    RULES,
    SEARCHING,
    {"--backend", "c", "what kernels are written in"},
    READING,
    {NULL, NULL, NULL},
};

static const cli_option run_options[] = {
    {"-i", "F.safetensors", "inputs by name (default: those the package was verified with)"},
    {"-o", "F.safetensors", "where outputs go"},
    {"--check", NULL, "compares with the stored reference; with -i and --source, with a new one"},
    {"--source", "FILE", "the program that --check interprets"},
    {"--threads", "N", "default: the processors"},
    READING,
    {NULL, NULL, NULL},
};

static const cli_option bench_options[] = {
    {"--threads", "N", "default: the processors"},
    {"--budget", "TIME", "how long to measure (default 2s)"},
    {"--against", "unfused", "also times the same program with one kernel an operator"},
    {NULL, NULL, NULL},
};

static const cli_option explain_options[] = {
    {"--proof", NULL, "replays the derivation with the independent checker"},
    {"--html", "F", "writes a page with all of it, candidates and e-graphs"},
    {"--form", NULL, "also prints what the kernels compute, as .eqf"},
    {"--why-not", "FORM",
     "which candidate is most like FORM, and what stopped it: \"one kernel\", \"3 kernels and rolling\", "
     "\"nothing rolling\", \"max over T\""},
    {NULL, NULL, NULL},
};

static const cli_option rules_list_options[] = {
    {"--document", NULL, "prints them as the page docs/rules.md"},
    {NULL, NULL, NULL},
};

static const cli_option no_options[] = {{NULL, NULL, NULL}};

static const cli_option rules_check_options[] = {
    {"--instances", "N", "random instances to compare for each rule (default 200)"},
    {NULL, NULL, NULL},
};

static const cli_option egraph_run_options[] = {
    {"--case", "NAME...", "only this case, this family, or this member of one (ac-12)"},
    {"--match", "full|delta|auto", "what is matched in each iteration (default auto)"},
    {"--bytes", "N", "limit on memory, instead of the cases' own"},
    {"--proofs", NULL, "explains and checks every goal and equality"},
    {"--repeat", "N", "runs each case so often; times are the best"},
    {NULL, NULL, NULL},
};

static const cli_option egraph_extract_options[] = {
    {"--method", "tree|dag|exact", "(default dag)"},
    {"--seconds", "TIME", "limit of the exact method (default 10s)"},
    {NULL, NULL, NULL},
};

static const cli_verb verbs[] = {
    {"inspect", "FILE [--text] [--dim NAME=N]...", "Shows what is in a program.",
     "FILE is a .pt2 archive (torch.export.save) or a text program (.eqf). Lists inputs, outputs,\n"
     "parameters and operators, and the boundaries: operators that have no meaning here.\n\n"
     "  equiforge inspect model.pt2\n"
     "  equiforge inspect model.pt2 --text >model.eqf      the program itself",
     inspect_options, cli_inspect, 1, 1},
    {"optimize", "FILE -o PKG [options]", "Compiles a program into a verified package.",
     "Reads FILE, writes kernels, compiles them with the system's C compiler (CC, else cc), runs\n"
     "them in a child process on fresh inputs, compares with the reference interpreter, and only\n"
     "then lets the package appear. Symbolic dims need values (--dim, or --inputs).\n\n"
     "  equiforge optimize model.pt2 -o model.pkg\n"
     "  equiforge optimize model.pt2 -o model.pkg --dim s0=16 --inputs in.safetensors",
     optimize_options, cli_optimize, 1, 1},
    {"search", "FILE [options]", "Shows what the search finds in a program.",
     "Puts the program into an e-graph, runs the rewrite rules, tiling and fusion to saturation, and\n"
     "extracts candidates; nothing is compiled. A program too large for one e-graph is cut, and equal\n"
     "parts are searched once. Prints the e-graph's size after each phase, the rules that matched most,\n"
     "and the candidates, most promising first. A limit that is reached, or an interrupt, ends it with\n"
     "what there is.\n\n"
     "  equiforge search model.pt2\n"
     "  equiforge search model.pt2 --print forms --limit 1 >best.eqf      as a program\n"
     "  equiforge search model.pt2 --rules my.rules --json",
     search_options, cli_search, 1, 1},
    {"run", "PKG [-i in.safetensors] [-o out.safetensors] [--check]", "Runs a package.",
     "Needs neither Python nor a compiler. State starts from the stored values.\n\n"
     "  equiforge run model.pkg --check           on its own inputs, against its reference\n"
     "  equiforge run model.pkg -i in.safetensors -o out.safetensors",
     run_options, cli_run, 1, 1},
    {"bench", "PKG [--threads N]", "Times a package.",
     "Median and quartiles of single runs, beside what this machine's multiply-add rate and read\n"
     "bandwidth, measured on the spot, would allow (the roofline).\n\n"
     "  equiforge bench model.pkg --threads 1",
     bench_options, cli_bench, 1, 1},
    {"explain", "PKG [--proof] [--html F] [--why-not FORM]", "Shows how a package was derived.",
     "The parts that were searched, the steps from each to the form that was chosen, by rule, and\n"
     "the kernels with their work. --proof replays every step from the package's files alone, with\n"
     "a checker that shares no code with the search; exit 4 when one does not hold. From the form to\n"
     "the kernels the evidence is numeric: `run --check` repeats it.\n\n"
     "  equiforge explain model.pkg\n"
     "  equiforge explain model.pkg --proof\n"
     "  equiforge explain model.pkg --why-not \"one kernel\"",
     explain_options, cli_explain, 1, 1},
    {"rules list", "[--document]", "Lists the rewrite rules in force.",
     "A rule's family, name, what it does to rounding, its two sides and its guards.",
     rules_list_options, cli_rules_list, 0, 0},
    {"rules show", "NAME", "Shows one rule.", "With the place it comes from.", no_options,
     cli_rules_show, 1, 1},
    {"rules check", "FILE...", "Is each rule of a file sound?",
     "Types the rules, evaluates both sides of each on random small shapes and prints a\n"
     "counterexample where they differ. Exit 1 when a rule is unsound or rejected.",
     rules_check_options, cli_rules_check, 1, INT_MAX},
    {"egraph run", "FILE", "Runs a suite of the e-graph engine alone.",
     "Each case is a line, with --json an object. Exit 4 when a case fails.", egraph_run_options,
     cli_egraph_run, 1, 1},
    {"egraph extract", "FILE.json", "Extracts from an e-graph (extraction-gym's JSON).",
     "Prints the cost as a tree, the cost with shared parts counted once, and the time.",
     egraph_extract_options, cli_egraph_extract, 1, 1},
};

#define VERBS (sizeof verbs / sizeof verbs[0])

static void general_help(void)
{
    printf("equiforge compiles tensor programs into packages of verified kernels.\n\n"
           "usage: equiforge VERB [options] [FILE]\n\n");
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-14s %s\n", verbs[i].name, verbs[i].summary);
    printf("\nFirst steps:\n"
           "  equiforge inspect model.pt2               what is in it, can it be compiled\n"
           "  equiforge optimize model.pt2 -o out       compile, verify, write the package\n"
           "  equiforge run out --check                 run it, compare with the reference\n"
           "  equiforge bench out                       time it\n\n"
           "equiforge VERB --help says more. --json makes the last line of output one object.\n\n"
           "Exit codes: 0 done; 1 the input is at fault; 2 usage; 3 the machine is at fault;\n"
           "4 verification or --check found a difference; 130 interrupted.\n");
}

/* Is `word` the first of a verb's two? */
static bool is_group(const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < VERBS; i++)
        if (strncmp(verbs[i].name, word, n) == 0 && verbs[i].name[n] == ' ')
            return true;
    return false;
}

static void group_help(const char *word)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strncmp(verbs[i].name, word, strlen(word)) == 0)
            printf("%s equiforge %s %s\n       %s\n", "usage:", verbs[i].name, verbs[i].usage,
                   verbs[i].summary);
    printf("\nequiforge %s WORD --help says more.\n", word);
}

/* No verb of this name; `word` may be the first of two. */
static int unknown_verb(cli_args *args, const char *word, const char *next)
{
    const char *names[VERBS];
    size_t n = 0;
    bool group = is_group(word);
    char all[200] = "";
    for (size_t i = 0; i < VERBS; i++) {
        const char *space = strchr(verbs[i].name, ' ');
        if (!group) {
            names[n++] = verbs[i].name;
            continue;
        }
        if (strncmp(verbs[i].name, word, strlen(word)) != 0)
            continue;
        names[n++] = space + 1;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", all[0] ? ", " : "",
                 space + 1);
    }
    if (group && (!next || next[0] == '-'))
        return cli_fail(args, EXIT_USAGE, NULL, word, "what? one of: %s", all);
    const char *near = cli_closest(group ? next : word, names, n);
    if (near)
        return cli_fail(args, EXIT_USAGE, NULL, group ? next : word,
                        "unknown verb; did you mean %s%s%s?", group ? word : "", group ? " " : "",
                        near);
    if (group)
        return cli_fail(args, EXIT_USAGE, NULL, next, "unknown verb; one of: %s", all);
    return cli_fail(args, EXIT_USAGE, NULL, word, "unknown verb; see equiforge --help");
}

/* The verb that the first word, or the first two, name; *words: how many. */
static const cli_verb *find_verb(const char *word, const char *next, int *words)
{
    for (size_t i = 0; i < VERBS; i++) {
        const char *space = strchr(verbs[i].name, ' ');
        size_t n = space ? (size_t)(space - verbs[i].name) : strlen(verbs[i].name);
        if (strlen(word) != n || strncmp(verbs[i].name, word, n) != 0)
            continue;
        *words = space ? 2 : 1;
        if (!space || (next && strcmp(space + 1, next) == 0))
            return &verbs[i];
    }
    return NULL;
}

/* `help`, or `help` and the words of a verb. */
static int help_about(cli_args *args, const char *word, const char *next)
{
    int words;
    const cli_verb *verb = word ? find_verb(word, next, &words) : NULL;
    if (verb)
        cli_help(verb);
    else if (!word || word[0] == '-')
        general_help();
    else if (is_group(word) && !next)
        group_help(word);
    else
        return unknown_verb(args, word, next);
    return EXIT_DONE;
}

static int run_verb(const cli_verb *verb, int argc, char **argv)
{
    cli_args args = {0};
    args.names = calloc((size_t)argc + 1, sizeof *args.names);
    args.values = calloc((size_t)argc + 1, sizeof *args.values);
    args.files = calloc((size_t)argc + 1, sizeof *args.files);
    args.ctx = eqf_ctx_new(NULL);
    int code;
    if (!args.names || !args.values || !args.files || !args.ctx) {
        code = cli_fail(&args, EXIT_MACHINE, NULL, NULL, "out of memory");
    } else {
        code = cli_parse(&args, verb, argc, argv);
        if (code < 0) {
            cli_catch_signals(args.json);
            code = verb->run(&args);
            cli_end_progress();
        }
    }
    eqf_ctx_free(args.ctx);
    free(args.names);
    free(args.values);
    free(args.files);
    return code;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* What the caller closed stays closed to output, but no file opened later gets its number. A limit
 * on the size of files is an error of the write, not the end of the process. */
static void settle(void)
{
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY))
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
    signal(SIGXFSZ, SIG_IGN);
}

int main(int argc, char **argv)
{
    settle();
    int code = EXIT_DONE, words = 0;
    const char *word = argc > 1 ? argv[1] : "", *next = argc > 2 ? argv[2] : NULL;
    const cli_verb *verb = find_verb(word, next, &words);
    cli_args args = {0};
    for (int i = 1; i < argc; i++)
        args.json = args.json || strcmp(argv[i], "--json") == 0;
    if (verb)
        code = run_verb(verb, argc - 1 - words, argv + 1 + words);
    else if (is_help(word))
        code = help_about(&args, next, next && argc > 3 ? argv[3] : NULL);
    else if (strcmp(word, "--version") == 0)
        printf("equiforge %s\n", eqf_version());
    else if (is_group(word) && next && is_help(next))
        group_help(word);
    else if (argc < 2 || strcmp(word, "--json") == 0)
        code = cli_fail(&args, EXIT_USAGE, NULL, NULL, "which verb? see equiforge --help");
    else
        code = unknown_verb(&args, word, next);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        fprintf(stderr, "equiforge: standard output: cannot be written\n");
        code = EXIT_MACHINE;
    }
    return code;
}
