/* equiforge: the tool. A verb is one row of the table below. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* clang-format off */
#define READING                                                                                    \
    {"--dim", "NAME=N", "fixes a symbolic dim (repeatable)"},                                      \
    {"--model", "NAME", "which program of an archive with several"},                               \
    {"--weights", "F.safetensors", "data for the parameters of a text program"}
/* clang-format on */

static const cli_option inspect_options[] = {
    {"--text", NULL, "prints the program as .eqf, which reads back to the same program"},
    {"--inputs", "F.safetensors", "inputs whose shapes fix symbolic dims"},
    READING,
    {NULL, NULL, NULL},
};

static const cli_option optimize_options[] = {
    {"-o", "PKG", "the package directory to write; an existing package is replaced"},
    {"--inputs", "F.safetensors", "inputs to verify with; their shapes fix symbolic dims"},
    {"--budget", "TIME", "wall time for everything: 90s, 10m, 4h (default 60s)"},
    {"--threads", "N", "threads the package is meant for (default: the processors)"},
    {"--parameters", "constant|input",
     "constant (default): folded and packed once; input: replaceable"},
    {"--accuracy", "strict|default|fast", "which rewrites are admitted"},
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

static const cli_option no_options[] = {{NULL, NULL, NULL}};

static const cli_verb verbs[] = {
    {"inspect", "FILE [--text] [--dim NAME=N]...", "Shows what is in a program.",
     "FILE is a .pt2 archive (torch.export.save) or a text program (.eqf). Lists inputs, outputs,\n"
     "parameters and operators, and the boundaries: operators that have no meaning here.\n\n"
     "  equiforge inspect model.pt2\n"
     "  equiforge inspect model.pt2 --text >model.eqf      the program itself",
     inspect_options, cli_inspect, NULL},
    {"optimize", "FILE -o PKG [options]", "Compiles a program into a verified package.",
     "Reads FILE, writes kernels, compiles them with the system's C compiler (CC, else cc), runs\n"
     "them in a child process on fresh inputs, compares with the reference interpreter, and only\n"
     "then lets the package appear. Symbolic dims need values (--dim, or --inputs).\n\n"
     "  equiforge optimize model.pt2 -o model.pkg\n"
     "  equiforge optimize model.pt2 -o model.pkg --dim s0=16 --inputs in.safetensors",
     optimize_options, cli_optimize, NULL},
    {"run", "PKG [-i in.safetensors] [-o out.safetensors] [--check]", "Runs a package.",
     "Needs neither Python nor a compiler. State starts from the stored values.\n\n"
     "  equiforge run model.pkg --check           on its own inputs, against its reference\n"
     "  equiforge run model.pkg -i in.safetensors -o out.safetensors",
     run_options, cli_run, NULL},
    {"bench", "PKG [--threads N]", "Times a package.",
     "Median and quartiles of single runs, beside what this machine's multiply-add rate and read\n"
     "bandwidth, measured on the spot, would allow (the roofline).\n\n"
     "  equiforge bench model.pkg --threads 1",
     bench_options, cli_bench, NULL},
    {"rules", "list|show NAME|check FILE...", "The rewrite rules: which there are, is one sound.",
     "Lists or shows rules; types and tests the rules of a file.", no_options, NULL, cli_rules},
    {"egraph", "run|extract FILE [options]", "The e-graph engine alone.",
     "Runs a suite of cases, or extracts from a given e-graph.", no_options, NULL, cli_egraph},
};

#define VERBS (sizeof verbs / sizeof verbs[0])

static void general_help(void)
{
    printf("equiforge compiles tensor programs into packages of verified kernels.\n\n"
           "usage: equiforge VERB [options] [FILE]\n\n");
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].summary);
    printf("\nFirst steps:\n"
           "  equiforge inspect model.pt2               what is in it, can it be compiled\n"
           "  equiforge optimize model.pt2 -o out       compile, verify, write the package\n"
           "  equiforge run out --check                 run it, compare with the reference\n"
           "  equiforge bench out                       time it\n\n"
           "equiforge VERB --help says more. --json makes the last line of output one object.\n\n"
           "Exit codes: 0 done; 1 the input is at fault; 2 usage; 3 the machine is at fault;\n"
           "4 verification or --check found a difference; 130 interrupted.\n");
}

static int unknown_verb(const char *word, int argc, char **argv)
{
    cli_args args = {0};
    const char *names[VERBS];
    for (size_t i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    for (int i = 0; i < argc; i++)
        args.json = args.json || strcmp(argv[i], "--json") == 0;
    const char *near = cli_closest(word, names, VERBS);
    if (near)
        return cli_fail(&args, EXIT_USAGE, NULL, word, "unknown verb; did you mean %s?", near);
    return cli_fail(&args, EXIT_USAGE, NULL, word, "unknown verb; see equiforge --help");
}

static int run_verb(const cli_verb *verb, int argc, char **argv)
{
    if (verb->raw)
        return verb->raw(argc + 1, argv - 1); /* its own name first */
    cli_args args = {0};
    args.names = calloc((size_t)argc + 1, sizeof *args.names);
    args.values = calloc((size_t)argc + 1, sizeof *args.values);
    args.ctx = eqf_ctx_new(NULL);
    int code;
    if (!args.names || !args.values || !args.ctx) {
        code = cli_fail(&args, EXIT_MACHINE, NULL, NULL, "out of memory");
    } else {
        code = cli_parse(&args, verb, argc, argv);
        if (code < 0)
            code = verb->run(&args);
    }
    eqf_ctx_free(args.ctx);
    free(args.names);
    free(args.values);
    return code;
}

/* Files are mapped. One that is cut short meanwhile ends the tool here, with what an error has: a
 * line, an exit code, an object where one is wanted. Nothing was written to where results go. */
static volatile bool wants_json;

static void on_lost_file(int signal_number)
{
    static const char line[] = "equiforge: a file was cut short, or lost, while it was being read\n";
    static const char object[] =
        "{\"error\":{\"file\":\"\",\"place\":\"\",\"reason\":\"a file was cut short, or lost, while "
        "it was being read\",\"code\":\"EQF_E_IO\"}}\n";
    (void)signal_number;
    ssize_t told = write(STDERR_FILENO, line, sizeof line - 1);
    if (wants_json)
        told += write(STDOUT_FILENO, object, sizeof object - 1);
    _exit(told < 0 ? EXIT_MACHINE : EXIT_INPUT);
}

/* What the caller closed stays closed to output, but no file opened later gets its number. A limit
 * on the size of files is an error of the write, not the end of the process. */
static void settle(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        wants_json = wants_json || strcmp(argv[i], "--json") == 0;
    struct sigaction action = {.sa_handler = on_lost_file};
    sigaction(SIGBUS, &action, NULL);
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY))
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
    signal(SIGXFSZ, SIG_IGN);
}

int main(int argc, char **argv)
{
    settle(argc, argv);
    int code = EXIT_USAGE;
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        fprintf(stderr, "equiforge: which verb? see equiforge --help\n");
    } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
               strcmp(word, "help") == 0) {
        general_help();
        code = EXIT_DONE;
    } else if (strcmp(word, "--version") == 0) {
        printf("equiforge %s\n", eqf_version());
        code = EXIT_DONE;
    } else {
        size_t i = 0;
        while (i < VERBS && strcmp(verbs[i].name, word) != 0)
            i++;
        code = i < VERBS ? run_verb(&verbs[i], argc - 2, argv + 2)
                         : unknown_verb(word, argc - 2, argv + 2);
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        fprintf(stderr, "equiforge: standard output: cannot be written\n");
        code = EXIT_MACHINE;
    }
    return code;
}
