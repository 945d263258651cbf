/* equiforge run: a package on inputs from a file, or on the ones it was verified with. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

typedef struct running {
    cli_args *args;
    eqf_model *model;
    eqf_exec *exec;
    eqf_tensors *given; /* -i, or the package's own */
    const void **inputs;
    void **outputs;
    eqf_program *source;
    const eqf_check_result *check;
} running;

static bool same_shape(const eqf_tensor *a, const eqf_tensor *b)
{
    if (a->rank != b->rank)
        return false;
    for (size_t d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return a->dtype == b->dtype;
}

static void describe(char *out, size_t size, const eqf_tensor *t)
{
    size_t n = (size_t)snprintf(out, size, "%s [", eqf_dtype_name(t->dtype));
    for (size_t d = 0; d < t->rank && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, d ? ", %lld" : "%lld", (long long)t->shape[d]);
    if (n < size)
        snprintf(out + n, size - n, "]");
}

static int wrong_type(running *r, const char *file, const eqf_tensor *found,
                      const eqf_tensor *wanted)
{
    char a[200], b[200];
    describe(a, sizeof a, found);
    describe(b, sizeof b, wanted);
    return cli_fail(r->args, EXIT_INPUT, file, wanted->name, "is %s, the package wants %s", a, b);
}

static bool is_port(const running *r, const char *name)
{
    return eqf_model_find_input(r->model, name) >= 0 || eqf_model_find_parameter(r->model, name) >= 0;
}

/* What of the file no port has the name of: the first `most`, and how many there are. */
static size_t find_unread(const running *r, const char **names, size_t most)
{
    size_t count = 0;
    for (size_t k = 0; k < eqf_tensors_count(r->given); k++) {
        const char *name = eqf_tensors_get(r->given, k).name;
        if (is_port(r, name))
            continue;
        if (count < most)
            names[count] = name;
        count++;
    }
    return count;
}

/* Inputs by name, and parameters that the package lets be replaced. Where one of these is left as it is
 * stored, a name that nothing has may be meant for it. */
static int bind_given(running *r, const char *file)
{
    for (size_t i = 0; i < eqf_model_input_count(r->model); i++) {
        eqf_tensor wanted = eqf_model_input(r->model, i);
        ptrdiff_t k = eqf_tensors_find(r->given, wanted.name);
        if (k < 0)
            return cli_fail(r->args, EXIT_INPUT, file, wanted.name,
                            "this input is not in the file");
        eqf_tensor found = eqf_tensors_get(r->given, (size_t)k);
        if (!same_shape(&found, &wanted))
            return wrong_type(r, file, &found, &wanted);
        r->inputs[i] = found.data;
    }
    const char *unread = NULL, *unbound = NULL;
    for (size_t i = 0; i < eqf_model_parameter_count(r->model); i++) {
        eqf_tensor wanted = eqf_model_parameter(r->model, i);
        ptrdiff_t k = eqf_tensors_find(r->given, wanted.name);
        if (k < 0) {
            unbound = unbound ? unbound : wanted.name;
            continue;
        }
        eqf_tensor found = eqf_tensors_get(r->given, (size_t)k);
        if (!same_shape(&found, &wanted))
            return wrong_type(r, file, &found, &wanted);
        eqf_status s = eqf_exec_set_parameter(r->exec, i, found.data, found.bytes);
        if (s != EQF_OK)
            return cli_fail_status(r->args, s, NULL);
    }
    if (unbound && find_unread(r, &unread, 1) > 0)
        return cli_fail(r->args, EXIT_INPUT, file, unread,
                        "the package has no input or parameter of this name; \"%s\", which it has, is "
                        "not in the file",
                        unbound);
    return EXIT_DONE;
}

static int load(running *r, const char *in, int threads)
{
    const char *const read[] = {r->args->file, NULL};
    eqf_status s = eqf_model_load(r->args->ctx, r->args->file, &r->model);
    if (s == EQF_OK)
        s = eqf_exec_new(r->args->ctx, r->model, threads, &r->exec);
    if (s != EQF_OK)
        return cli_fail_status(r->args, s, read);
    const char *const read_in[] = {in, NULL};
    s = in ? eqf_tensors_read(r->args->ctx, in, &r->given)
           : eqf_model_inputs(r->args->ctx, r->model, &r->given);
    if (s != EQF_OK)
        return cli_fail_status(r->args, s, in ? read_in : read);
    size_t n = eqf_model_output_count(r->model);
    r->inputs = calloc(eqf_model_input_count(r->model) + 1, sizeof *r->inputs);
    r->outputs = calloc(n + 1, sizeof *r->outputs);
    bool memory = r->inputs && r->outputs;
    for (size_t i = 0; i < n && memory; i++) {
        size_t bytes = eqf_model_output(r->model, i).bytes;
        r->outputs[i] = aligned_alloc(64, (bytes + 64) / 64 * 64);
        memory = r->outputs[i] != NULL;
    }
    if (!memory)
        return cli_fail(r->args, EXIT_MACHINE, NULL, NULL, "out of memory");
    return bind_given(r, in ? in : r->args->file);
}

static int check(running *r, const char *in, const char *source)
{
    if (source) {
        cli_reading reading;
        if (!cli_read_options(r->args, source, in, &reading))
            return EXIT_USAGE;
        if (!cli_value(r->args, "--seed"))
            reading.options.seed = eqf_model_seed(r->model);
        cli_progress(r->args, "computing a reference");
        eqf_status s = eqf_program_read(r->args->ctx, source, &reading.options, &r->source);
        int code = s != EQF_OK ? cli_fail_status(r->args, s, reading.inputs) : EXIT_DONE;
        cli_free_reading(&reading);
        if (s != EQF_OK)
            return code;
    }
    eqf_status s =
        eqf_exec_check(r->exec, r->source, r->inputs, (const void *const *)r->outputs, &r->check);
    if (s != EQF_OK)
        return cli_fail_status(
            r->args, s,
            (const char *const[]){source ? source : r->args->file, r->args->file, NULL});
    if (!r->check->passed)
        return cli_fail(r->args, EXIT_DIFFERENT, r->args->file, NULL,
                        "differs from the reference: %s", r->check->first);
    return EXIT_DONE;
}

static int save(running *r, const char *out)
{
    size_t n = eqf_model_output_count(r->model);
    eqf_tensor *set = calloc(n + 1, sizeof *set);
    if (!set)
        return cli_fail(r->args, EXIT_MACHINE, NULL, NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        set[i] = eqf_model_output(r->model, i);
        set[i].data = r->outputs[i];
    }
    eqf_status s = eqf_tensors_write(r->args->ctx, out, set, n);
    free(set);
    return s == EQF_OK ? EXIT_DONE : cli_fail_status(r->args, s, NULL);
}

static void print_summary(const running *r)
{
    size_t n = eqf_model_output_count(r->model);
    for (size_t i = 0; i < n; i++) {
        eqf_tensor t = eqf_model_output(r->model, i);
        print_name(t.name, 24);
        putchar(' ');
        print_type(&t);
        if (r->check)
            printf("  relative L2 %.3g (allowed %.3g)", r->check->rel_l2[i],
                   r->check->tolerance[i]);
        printf("\n");
    }
}

static void print_json(const running *r)
{
    size_t n = eqf_model_output_count(r->model);
    eqf_tensor *set = calloc(n + 1, sizeof *set);
    for (size_t i = 0; set && i < n; i++)
        set[i] = eqf_model_output(r->model, i);
    printf("{\"package\":");
    json_text(r->args->file);
    json_tensors("outputs", set, set ? n : 0, true);
    free(set);
    json_key("check");
    if (r->check) {
        printf("{\"passed\":true,\"rel_l2\":[");
        for (size_t i = 0; i < n; i++) {
            printf(i ? "," : "");
            json_number(r->check->rel_l2[i]);
        }
        printf("],\"tolerance\":[");
        for (size_t i = 0; i < n; i++) {
            printf(i ? "," : "");
            json_number(r->check->tolerance[i]);
        }
        printf("]}");
    } else {
        printf("null");
    }
    printf("}\n");
}

static int run(running *r)
{
    cli_args *args = r->args;
    const char *in = cli_value(args, "-i"), *out = cli_value(args, "-o");
    const char *source = cli_value(args, "--source");
    bool checks = cli_value(args, "--check") != NULL;
    long long threads;
    if (!cli_number(args, "--threads", 1, 4096, 0, &threads))
        return EXIT_USAGE;
    if (checks && in && !source)
        return cli_fail(args, EXIT_USAGE, NULL, "--check",
                        "with -i the reference is computed anew: --source FILE names the program");
    if (source && !checks)
        return cli_fail(args, EXIT_USAGE, NULL, "--source", "is for --check");
    static const char *const reading[] = {"--dim", "--model", "--weights"};
    for (size_t i = 0; i < sizeof reading / sizeof *reading && !source; i++)
        if (cli_value(args, reading[i]))
            return cli_fail(args, EXIT_USAGE, NULL, reading[i], "is about the program of --source");
    cli_progress(args, "loading and running");
    int code = load(r, in, (int)threads);
    if (code != EXIT_DONE)
        return code;
    eqf_status s = eqf_exec_run(r->exec, r->inputs, r->outputs);
    if (s != EQF_OK)
        return cli_fail_status(args, s, NULL);
    if (checks && (code = check(r, in, source)) != EXIT_DONE)
        return code;
    if (out && (code = save(r, out)) != EXIT_DONE)
        return code;
    cli_end_progress();
    const char *unread[MOST_NOTED];
    if (in)
        cli_note_unread(args, in, unread, find_unread(r, unread, MOST_NOTED));
    if (args->json)
        print_json(r);
    else if (!args->quiet || !out)
        print_summary(r);
    return EXIT_DONE;
}

int cli_run(cli_args *args)
{
    running r = {.args = args};
    int code = run(&r);
    eqf_program_free(r.source);
    for (size_t i = 0; r.outputs && i < eqf_model_output_count(r.model); i++)
        free(r.outputs[i]);
    free(r.outputs);
    free(r.inputs);
    eqf_tensors_free(r.given);
    eqf_exec_free(r.exec);
    eqf_model_free(r.model);
    return code;
}
