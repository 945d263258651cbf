/* equiforge optimize: from a program to a package. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void show_progress(void *user, const char *stage)
{
    cli_progress(user, "%s", stage);
}

static double largest(const double *at, size_t n)
{
    double x = 0;
    for (size_t i = 0; i < n; i++)
        x = at[i] > x ? at[i] : x;
    return x;
}

static void print_summary(const eqf_optimize_report *r)
{
    print_name(r->package, 0);
    printf(": %lld kernel%s, verified (relative L2 %.2g)\n", (long long)r->kernels,
           r->kernels == 1 ? "" : "s", largest(r->rel_l2, r->output_count));
    printf("time %.4g us, %.3g%% of the roofline; unfused %.4g us", r->best_us, 100 * r->roofline,
           r->unfused_us);
    if (r->best_us == r->unfused_us) /* it is the program as it was read */
        printf("; nothing faster found (%lld tried)", (long long)r->measured - 1);
    printf("\n");
    printf("%lld candidates, %lld measured; %.2f s (verifying %.2f s); search ended: %s\n",
           (long long)r->candidates, (long long)r->measured, r->total_s, r->verify_s, r->stop);
}

static void print_json(const eqf_optimize_report *r)
{
    printf("{\"package\":");
    json_text(r->package);
    json_key("backend");
    json_text(r->backend);
    printf(",\"verified\":%s,\"rel_l2\":[", r->verified ? "true" : "false");
    for (size_t i = 0; i < r->output_count; i++) {
        printf(i ? "," : "");
        json_number(r->rel_l2[i]);
    }
    printf("],\"kernels\":%lld,\"subgraphs\":%lld,\"distinct_subgraphs\":%lld,"
           "\"candidates\":%lld,\"families\":%lld,\"measured\":%lld,\"failed\":%lld",
           (long long)r->kernels, (long long)r->subgraphs, (long long)r->distinct_subgraphs,
           (long long)r->candidates, (long long)r->families, (long long)r->measured,
           (long long)r->failed);
    json_key("failure");
    json_text(r->failure);
    printf(",\"time_us\":{\"unfused\":");
    json_number(r->unfused_us);
    json_key("best");
    json_number(r->best_us);
    printf("}");
    json_roofline(r->roofline);
    printf(",\"seconds\":{\"read\":");
    json_number(r->read_s);
    json_key("saturate");
    json_number(r->saturate_s);
    json_key("extract");
    json_number(r->extract_s);
    json_key("tune");
    json_number(r->tune_s);
    json_key("verify");
    json_number(r->verify_s);
    json_key("total");
    json_number(r->total_s);
    printf("},\"stop\":");
    json_text(r->stop);
    json_key("stop_reason");
    json_text(r->stop_reason);
    printf(",\"seeded_parameters\":%lld}\n", (long long)r->seeded_parameters);
}

static bool read_choices(cli_args *args, eqf_optimize_options *o)
{
    static const char *const backends[] = {"c", NULL};
    static const char *const accuracies[] = {"default", "strict", "fast", NULL};
    static const char *const parameters[] = {"constant", "input", NULL};
    int backend, accuracy, parameter;
    long long threads, jobs;
    if (!cli_choice(args, "--backend", backends, &backend) ||
        !cli_choice(args, "--accuracy", accuracies, &accuracy) ||
        !cli_choice(args, "--parameters", parameters, &parameter) ||
        !cli_duration(args, "--budget", &o->budget_s) ||
        !cli_number(args, "--threads", 1, 4096, 0, &threads) ||
        !cli_number(args, "--jobs", 1, 4096, 0, &jobs))
        return false;
    o->accuracy = (eqf_accuracy)accuracy;
    o->parameters_are_inputs = parameter == 1;
    o->threads = (int)threads;
    o->jobs = (int)jobs;
    return true;
}

int cli_optimize(cli_args *args)
{
    const char *package = cli_value(args, "-o");
    if (!package)
        return cli_fail(args, EXIT_USAGE, NULL, NULL, "where to? -o PKG is missing");
    eqf_optimize_options options = {
        .compiler = getenv("CC"),
        .progress = show_progress,
        .user = args,
        .cancel = &cli_interrupted,
    };
    if (options.compiler && !options.compiler[0])
        options.compiler = NULL;
    cli_reading reading;
    if (!read_choices(args, &options) ||
        !cli_read_options(args, args->file, cli_value(args, "--inputs"), &reading))
        return EXIT_USAGE;
    options.rules = reading.inputs;
    options.rule_count = reading.rule_count;
    options.force = cli_value(args, "--force") != NULL;
    cli_progress(args, "reading");
    eqf_program *program;
    eqf_status status = eqf_program_read(args->ctx, args->file, &reading.options, &program);
    const eqf_optimize_report *report = NULL;
    cli_poll_interrupts();
    if (status == EQF_OK)
        status = eqf_optimize(program, &options, package, &report);
    cli_end_progress();
    int code = EXIT_DONE;
    if (status == EQF_OK) {
        cli_note_files(args, &reading, program);
        cli_note_seeded(args, &reading, program);
        if (report->left_behind[0])
            cli_note(args, package,
                     "the package that was there could not be removed: what is left is now %s",
                     report->left_behind);
        if (report->stop_reason[0])
            cli_note(args, package, "the search ended early, this is the best so far: %s",
                     report->stop_reason);
    }
    if (status != EQF_OK)
        code = cli_fail_status(args, status, reading.inputs);
    else if (args->json)
        print_json(report);
    else
        print_summary(report);
    eqf_program_free(program);
    cli_free_reading(&reading);
    return code;
}
