/* The verbs `egraph run FILE` and `egraph extract FILE.json`: the engine alone.
 *
 * Exit: 0 done, 1 the input is at fault, 2 usage, 3 the machine, 4 a case failed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "eqf_egraph.h"

static const char usage[] =
    "usage: equiforge egraph run FILE [--case NAME]... [--match full|delta|auto] [--bytes N]\n"
    "                                 [--proofs] [--repeat N] [--json]\n"
    "       equiforge egraph extract FILE.json [--method tree|dag|exact] [--seconds S] [--json]\n";

static int exit_code(eqf_status s)
{
    switch (s) {
    case EQF_OK: return 0;
    case EQF_E_ARGUMENT: return 2;
    case EQF_E_NO_MEMORY:
    case EQF_E_MACHINE:
    case EQF_E_INTERNAL: return 3;
    case EQF_E_MISMATCH: return 4;
    default: return 1;
    }
}

static int usage_error(const char *what, const char *argument)
{
    fprintf(stderr, "equiforge: %s%s%s\n%s", what, argument ? ": " : "", argument ? argument : "",
            usage);
    return 2;
}

static void print_json_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 32)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

/* Diagnostics to standard error, the first one with their number. */
static void print_errors(eqf_ctx *ctx, const char *file, eqf_status status, bool json)
{
    size_t n = eqf_diag_count(ctx);
    eqf_diag d = {status, "", "", eqf_status_name(status)};
    if (n)
        d = eqf_diag_get(ctx, 0);
    const char *at = d.file[0] ? d.file : file;
    fprintf(stderr, "equiforge: %s: %s%s%s", at, d.place, d.place[0] ? ": " : "", d.message);
    if (n > 1)
        fprintf(stderr, " (and %zu more)", n - 1);
    fputc('\n', stderr);
    if (json) {
        printf("{\"error\": {\"file\": ");
        print_json_text(at);
        printf(", \"place\": ");
        print_json_text(d.place);
        printf(", \"reason\": ");
        print_json_text(d.message);
        printf(", \"code\": ");
        print_json_text(eqf_status_name(status));
        printf("}}\n");
    }
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t cap = 1 << 16, used = 0;
    char *text = malloc(cap);
    while (text) {
        size_t got = fread(text + used, 1, cap - used, f);
        used += got;
        if (used < cap)
            break;
        char *more = realloc(text, 2 * cap);
        if (!more) {
            free(text);
            text = NULL;
        } else {
            text = more;
            cap *= 2;
        }
    }
    if (text && ferror(f)) {
        free(text);
        text = NULL;
    }
    fclose(f);
    *n = used;
    return text;
}

static void print_case(void *user, const eqf_case_result *r)
{
    bool json = *(bool *)user;
    if (!json) {
        printf("%-4s %-24s %-10s %3lld it %9lld e-nodes %8lld classes %9.2f ms", r->passed ? "ok"
                                                                                         : "FAIL",
               r->name, r->stop, (long long)r->iterations, (long long)r->nodes,
               (long long)r->classes, r->search_ms + r->apply_ms + r->rebuild_ms);
        if (r->nodes)
            printf(" %4lld B/e-node", (long long)(r->bytes / r->nodes));
        if (r->proofs)
            printf(" %lld proofs, %lld steps, %lld assumed", (long long)r->proofs,
                   (long long)r->proof_steps, (long long)r->assumptions);
        printf("%s%s%s%s\n", r->reference[0] ? "  " : "", r->reference, r->passed ? "" : "  ",
               r->reason);
    } else {
        printf("{\"case\": ");
        print_json_text(r->name);
        printf(", \"status\": \"%s\", \"stop\": \"%s\", \"iterations\": %lld, \"nodes\": %lld, "
               "\"classes\": %lld, \"ms\": {\"search\": %.3f, \"apply\": %.3f, \"rebuild\": %.3f, "
               "\"extract\": %.3f, \"total\": %.3f}, \"bytes\": %lld, \"peak_bytes\": %lld, "
               "\"digest\": \"%s\", \"proofs\": %lld, \"proof_steps\": %lld, \"assumptions\": "
               "%lld, \"reason\": ",
               r->passed ? "pass" : "fail", r->stop, (long long)r->iterations,
               (long long)r->nodes, (long long)r->classes, r->search_ms, r->apply_ms,
               r->rebuild_ms, r->extract_ms, r->total_ms, (long long)r->bytes,
               (long long)r->peak_bytes, r->digest, (long long)r->proofs,
               (long long)r->proof_steps, (long long)r->assumptions);
        print_json_text(r->reason);
        printf("}\n");
    }
    fflush(stdout);
}

/* A decimal integer of at least `least`. */
static bool parse_count(const char *s, long long least, long long *out)
{
    char *end;
    errno = 0;
    long long v = s ? strtoll(s, &end, 10) : 0;
    if (!s || *s == 0 || *end || errno || v < least)
        return false;
    *out = v;
    return true;
}

static int run_suite(const char *file, const eqf_suite_options *options, bool json)
{
    size_t n = 0;
    char *text = read_file(file, &n);
    if (!text) {
        fprintf(stderr, "equiforge: %s: cannot be read: %s\n", file, strerror(errno));
        return 1;
    }
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    if (!ctx) {
        free(text);
        return 3;
    }
    eqf_status s =
        eqf_suite_run(ctx, file, (eqf_text){text, n}, options, print_case, &json);
    if (s && s != EQF_E_MISMATCH)
        print_errors(ctx, file, s, json);
    eqf_ctx_free(ctx);
    free(text);
    return exit_code(s);
}

static int verb_run(int argc, char **argv)
{
    eqf_suite_options o = {.match = EQF_MATCH_AUTO, .repeat = 1};
    const char **cases = calloc((size_t)argc + 1, sizeof *cases);
    const char *file = NULL;
    bool json = false;
    int code = 0;
    if (!cases)
        return 3;
    o.cases = cases;
    for (int i = 0; i < argc && !code; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        long long count = 0;
        if (strcmp(arg, "--json") == 0) {
            json = true;
        } else if (strcmp(arg, "--quiet") == 0) {
            continue;
        } else if (strcmp(arg, "--proofs") == 0) {
            o.proofs = true;
        } else if (strcmp(arg, "--case") == 0 && value) {
            cases[o.case_count++] = value;
            i++;
        } else if (strcmp(arg, "--match") == 0 && value) {
            if (strcmp(value, "full") == 0)
                o.match = EQF_MATCH_FULL;
            else if (strcmp(value, "delta") == 0)
                o.match = EQF_MATCH_DELTA;
            else if (strcmp(value, "auto") != 0)
                code = usage_error("--match takes full, delta or auto", value);
            i++;
        } else if (strcmp(arg, "--bytes") == 0) {
            if (!parse_count(value, 1, &count))
                code = usage_error("--bytes takes a positive integer", value);
            o.bytes = count;
            i++;
        } else if (strcmp(arg, "--repeat") == 0) {
            if (!parse_count(value, 1, &count))
                code = usage_error("--repeat takes a positive integer", value);
            o.repeat = count;
            i++;
        } else if (strcmp(arg, "--seed") == 0 || strcmp(arg, "--jobs") == 0) {
            if (!parse_count(value, 0, &count))
                code = usage_error("expected an integer", value);
            i++;
        } else if (arg[0] == '-' && arg[1]) {
            code = usage_error("unknown option", arg);
        } else if (file) {
            code = usage_error("one file, please", arg);
        } else {
            file = arg;
        }
    }
    if (!code)
        code = file ? run_suite(file, &o, json) : usage_error("no file given", NULL);
    free(cases);
    return code;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static eqf_status extract_text(eqf_ctx *ctx, const char *file, eqf_text text, eqf_algo algo,
                               const char *method, double seconds, bool json)
{
    eqf_gym *gym;
    eqf_status s = eqf_read_json(ctx, file, text, &gym);
    if (s)
        return s;
    size_t n;
    const eqf_class *roots = eqf_gym_roots(gym, &n);
    eqf_cost cost = eqf_gym_cost(gym);
    cost.seconds = seconds;
    eqf_extraction *x;
    double t0 = now_s();
    s = eqf_extract(eqf_gym_egraph(gym), roots, n, &cost, algo, &x);
    double ms = 1e3 * (now_s() - t0);
    if (!s) {
        double tree = 0;
        for (size_t i = 0; i < n; i++)
            tree += eqf_tree_cost(x, roots[i]);
        eqf_exact_report r = eqf_extraction_report(x);
        eqf_size size = eqf_egraph_size(eqf_gym_egraph(gym));
        if (json) {
            printf("{\"file\": ");
            print_json_text(file);
            printf(", \"method\": \"%s\", \"nodes\": %lld, \"classes\": %lld, \"tree\": %.17g, "
                   "\"dag\": %.17g, \"ms\": %.3f",
                   method, (long long)size.nodes, (long long)size.classes, tree, eqf_dag_cost(x),
                   ms);
            if (algo == EQF_EXACT)
                printf(", \"bound\": %.17g, \"optimal\": %s, \"explored\": %lld", r.bound,
                       r.optimal ? "true" : "false", (long long)r.explored);
            printf("}\n");
        } else {
            printf("%s: %s: tree cost %.10g, DAG cost %.10g, %.2f ms", file, method, tree,
                   eqf_dag_cost(x), ms);
            if (algo == EQF_EXACT)
                printf(", %s, bound %.10g, %lld explored", r.optimal ? "optimal" : "not proved",
                       r.bound, (long long)r.explored);
            putchar('\n');
        }
        eqf_extraction_free(x);
    }
    eqf_gym_free(gym);
    return s;
}

static int verb_extract(int argc, char **argv)
{
    static const char *const methods[] = {"tree", "dag", "exact"};
    const char *file = NULL;
    int method = 1;
    bool json = false;
    double seconds = 10;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(arg, "--json") == 0) {
            json = true;
        } else if (strcmp(arg, "--quiet") == 0) {
            continue;
        } else if (strcmp(arg, "--method") == 0 && value) {
            for (method = 0; method < 3 && strcmp(value, methods[method]) != 0; method++) {
            }
            if (method == 3)
                return usage_error("--method takes tree, dag or exact", value);
            i++;
        } else if (strcmp(arg, "--seconds") == 0 && value) {
            char *end;
            seconds = strtod(value, &end);
            if (*end || !(seconds > 0))
                return usage_error("--seconds takes a positive number", value);
            i++;
        } else if (arg[0] == '-' && arg[1]) {
            return usage_error("unknown option", arg);
        } else if (file) {
            return usage_error("one file, please", arg);
        } else {
            file = arg;
        }
    }
    if (!file)
        return usage_error("no file given", NULL);
    size_t n = 0;
    char *text = read_file(file, &n);
    if (!text) {
        fprintf(stderr, "equiforge: %s: cannot be read: %s\n", file, strerror(errno));
        return 1;
    }
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    eqf_status s = EQF_E_NO_MEMORY;
    if (ctx) {
        s = extract_text(ctx, file, (eqf_text){text, n}, (eqf_algo)method, methods[method],
                         seconds, json);
        if (s)
            print_errors(ctx, file, s, json);
        eqf_ctx_free(ctx);
    }
    free(text);
    return exit_code(s);
}

int cli_egraph(int argc, char **argv)
{
    if (argc < 2)
        return usage_error("egraph needs run or extract", NULL);
    if (strcmp(argv[1], "run") == 0)
        return verb_run(argc - 2, argv + 2);
    if (strcmp(argv[1], "extract") == 0)
        return verb_extract(argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    return usage_error("unknown verb after egraph", argv[1]);
}
