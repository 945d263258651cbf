/* The verbs `egraph run FILE` and `egraph extract FILE.json`: the engine alone. */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "eqf_egraph.h"

#define MAX_FILE_BYTES ((long long)1 << 30)

/* A whole regular file; the caller frees it. NULL, the error reported, its exit code in *code. */
static char *read_file(cli_args *args, size_t *n, int *code)
{
    const char *path = args->file;
    struct stat st;
    *code = EXIT_INPUT;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* waits for no writer of a pipe */
    if (fd < 0 || fstat(fd, &st) != 0) {
        cli_fail(args, EXIT_INPUT, path, NULL, "cannot open: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    char *text = NULL;
    if (!S_ISREG(st.st_mode)) {
        cli_fail(args, EXIT_INPUT, path, NULL, "not a regular file");
    } else if (st.st_size > MAX_FILE_BYTES) {
        cli_fail(args, EXIT_INPUT, path, NULL, "%lld bytes, more than the limit of %lld",
                 (long long)st.st_size, MAX_FILE_BYTES);
    } else if (!(text = malloc((size_t)st.st_size + 1))) {
        *code = cli_fail(args, EXIT_MACHINE, path, NULL, "out of memory");
    } else {
        *n = 0;
        ssize_t got = 1;
        while (got > 0 && *n < (size_t)st.st_size) {
            got = read(fd, text + *n, (size_t)st.st_size - *n);
            *n += got > 0 ? (size_t)got : 0;
            got = got < 0 && errno == EINTR ? 1 : got;
        }
        if (got < 0) {
            cli_fail(args, EXIT_INPUT, path, NULL, "cannot read: %s", strerror(errno));
            free(text);
            text = NULL;
        }
    }
    close(fd);
    return text;
}

/* ---- run ----------------------------------------------------------------------------------------
 */

static void print_line(const eqf_case_result *r)
{
    printf("%-4s ", r->passed ? "ok" : "FAIL");
    print_name(r->name, 24);
    printf(" %-10s %3lld it %9lld e-nodes %8lld classes %9.2f ms", r->stop,
           (long long)r->iterations, (long long)r->nodes, (long long)r->classes,
           r->search_ms + r->apply_ms + r->rebuild_ms);
    if (r->nodes)
        printf(" %4lld B/e-node", (long long)(r->bytes / r->nodes));
    if (r->proofs)
        printf(" %lld proofs, %lld steps, %lld assumed", (long long)r->proofs,
               (long long)r->proof_steps, (long long)r->assumptions);
    printf(r->reference[0] ? "  " : "");
    print_name(r->reference, 0);
    printf(r->passed ? "" : "  ");
    print_name(r->reason, 0);
    putchar('\n');
}

static void print_object(const eqf_case_result *r)
{
    printf("{\"case\":");
    json_text(r->name);
    printf(",\"status\":\"%s\",\"stop\":\"%s\",\"iterations\":%lld,\"nodes\":%lld,"
           "\"classes\":%lld,\"ms\":{\"search\":%.3f,\"apply\":%.3f,\"rebuild\":%.3f,"
           "\"extract\":%.3f,\"total\":%.3f},\"bytes\":%lld,\"peak_bytes\":%lld,"
           "\"digest\":\"%s\",\"proofs\":%lld,\"proof_steps\":%lld,\"assumptions\":%lld",
           r->passed ? "pass" : "fail", r->stop, (long long)r->iterations, (long long)r->nodes,
           (long long)r->classes, r->search_ms, r->apply_ms, r->rebuild_ms, r->extract_ms,
           r->total_ms, (long long)r->bytes, (long long)r->peak_bytes, r->digest,
           (long long)r->proofs, (long long)r->proof_steps, (long long)r->assumptions);
    json_key("reason");
    json_text(r->reason);
    printf("}\n");
}

static void print_case(void *user, const eqf_case_result *r)
{
    cli_args *args = user;
    cli_end_progress();
    if (args->json)
        print_object(r);
    else
        print_line(r);
    fflush(stdout); /* an interrupt keeps what was found */
    cli_progress(args, "%s: after %s", args->file, r->name);
}

int cli_egraph_run(cli_args *args)
{
    static const char *const matches[] = {"auto", "full", "delta", NULL};
    static const eqf_match_mode modes[] = {EQF_MATCH_AUTO, EQF_MATCH_FULL, EQF_MATCH_DELTA};
    int match, code;
    long long bytes, repeat;
    if (!cli_choice(args, "--match", matches, &match) ||
        !cli_number(args, "--bytes", 1, INT64_MAX, 0, &bytes) ||
        !cli_number(args, "--repeat", 1, 1000000, 1, &repeat))
        return EXIT_USAGE;
    size_t n;
    char *text = read_file(args, &n, &code);
    if (!text)
        return code;
    const char **cases = calloc((size_t)args->count + 1, sizeof *cases);
    if (!cases) {
        free(text);
        return cli_fail(args, EXIT_MACHINE, NULL, NULL, "out of memory");
    }
    eqf_suite_options options = {.cases = cases,
                                 .case_count = cli_values(args, "--case", cases),
                                 .match = modes[match],
                                 .bytes = bytes,
                                 .proofs = cli_value(args, "--proofs") != NULL,
                                 .repeat = repeat};
    cli_progress(args, "%s", args->file);
    eqf_status s = eqf_suite_run(args->ctx, args->file, (eqf_text){text, n}, &options, print_case,
                                 args);
    cli_end_progress();
    const char *const inputs[] = {args->file, NULL};
    code = s == EQF_OK           ? EXIT_DONE
           : s == EQF_E_MISMATCH ? EXIT_DIFFERENT /* the case's own line says it */
                                 : cli_fail_status(args, s, inputs);
    free(cases);
    free(text);
    return code;
}

/* ---- extract ------------------------------------------------------------------------------------
 */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *const methods[] = {"dag", "tree", "exact", NULL};
static const eqf_algo algorithms[] = {EQF_DAG, EQF_TREE, EQF_EXACT};

static void print_extraction(cli_args *args, const eqf_gym *gym, const eqf_extraction *x,
                             int method, double ms)
{
    size_t n;
    const eqf_class *roots = eqf_gym_roots(gym, &n);
    double tree = 0;
    for (size_t i = 0; i < n; i++)
        tree = fmin(tree + eqf_tree_cost(x, roots[i]), DBL_MAX);
    bool exact = algorithms[method] == EQF_EXACT;
    eqf_exact_report r = eqf_extraction_report(x);
    eqf_size size = eqf_egraph_size(eqf_gym_egraph(gym));
    if (args->json) {
        printf("{\"file\":");
        json_text(args->file);
        printf(",\"method\":\"%s\",\"nodes\":%lld,\"classes\":%lld,\"tree\":%.17g,\"dag\":%.17g,"
               "\"ms\":%.3f",
               methods[method], (long long)size.nodes, (long long)size.classes, tree,
               eqf_dag_cost(x), ms);
        if (exact)
            printf(",\"bound\":%.17g,\"optimal\":%s,\"explored\":%lld", r.bound,
                   r.optimal ? "true" : "false", (long long)r.explored);
        printf("}\n");
        return;
    }
    print_name(args->file, 0);
    printf(": %s: tree cost %.10g, DAG cost %.10g, %.2f ms", methods[method], tree,
           eqf_dag_cost(x), ms);
    if (exact)
        printf(", %s, bound %.10g, %lld explored", r.optimal ? "optimal" : "not proved", r.bound,
               (long long)r.explored);
    putchar('\n');
}

/* The first root without a term of finite cost. */
static size_t hopeless_root(const eqf_gym *gym, const eqf_class *roots, size_t n)
{
    eqf_cost cost = eqf_gym_cost(gym);
    size_t i = 0;
    for (; i + 1 < n; i++) {
        eqf_extraction *x;
        if (eqf_extract(eqf_gym_egraph(gym), &roots[i], 1, &cost, EQF_TREE, &x))
            break;
        eqf_extraction_free(x);
    }
    return i;
}

static int extract(cli_args *args, eqf_text text, int method, double seconds)
{
    const char *const inputs[] = {args->file, NULL};
    eqf_gym *gym;
    eqf_status s = eqf_read_json(args->ctx, args->file, text, &gym);
    if (s)
        return cli_fail_status(args, s, inputs);
    size_t n;
    const eqf_class *roots = eqf_gym_roots(gym, &n);
    eqf_cost cost = eqf_gym_cost(gym);
    cost.seconds = seconds;
    eqf_extraction *x = NULL;
    int code = EXIT_DONE;
    if (n == 0) {
        code = cli_fail(args, EXIT_INPUT, args->file, "root_eclasses", "no root to extract from");
        eqf_gym_free(gym);
        return code;
    }
    double start = now_s();
    s = eqf_extract(eqf_gym_egraph(gym), roots, n, &cost, algorithms[method], &x);
    double ms = 1e3 * (now_s() - start);
    cli_end_progress();
    if (s == EQF_E_DATA)
        code = cli_fail(args, EXIT_INPUT, args->file,
                        eqf_gym_root_name(gym, hopeless_root(gym, roots, n)),
                        "this root has no term: each choice for it leads back to itself");
    else if (s)
        code = cli_fail_status(args, s, inputs);
    else
        print_extraction(args, gym, x, method, ms);
    eqf_extraction_free(x);
    eqf_gym_free(gym);
    return code;
}

int cli_egraph_extract(cli_args *args)
{
    int method, code;
    double seconds = 10;
    if (!cli_choice(args, "--method", methods, &method) ||
        !cli_duration(args, "--seconds", &seconds))
        return EXIT_USAGE;
    size_t n;
    char *text = read_file(args, &n, &code);
    if (!text)
        return code;
    cli_progress(args, "%s", args->file);
    code = extract(args, (eqf_text){text, n}, method, seconds);
    free(text);
    return code;
}
