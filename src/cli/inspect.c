/* equiforge inspect: what was read. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void print_list(const char *title, const eqf_tensor *at, size_t n)
{
    printf("%s\n", title);
    for (size_t i = 0; i < n; i++) {
        printf("  ");
        print_name(at[i].name, 24);
        putchar(' ');
        print_type(&at[i]);
        printf("\n");
    }
}

static double megabytes(const eqf_tensor *at, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 1e-6 * (double)at[i].bytes;
    return sum;
}

static void print_summary(const eqf_program_summary *s)
{
    print_name(s->file, 0);
    printf(": program ");
    print_name(s->name, 0);
    if (s->schema[0]) {
        printf(" (schema %s, torch ", s->schema);
        print_name(s->torch, 0);
        putchar(')');
    }
    printf("\n");
    print_list("inputs", s->inputs, s->input_count);
    print_list("outputs", s->outputs, s->output_count);
    printf("parameters: %zu, %.3g MB%s\n", s->parameter_count,
           megabytes(s->parameters, s->parameter_count),
           s->seeded_parameters ? " without data: random values stand in" : "");
    printf("operators:");
    for (size_t i = 0; i < s->op_count; i++)
        printf(" %s %lld%s", s->ops[i].op, (long long)s->ops[i].count,
               i + 1 < s->op_count ? "," : "");
    printf("\nwork: %.4g MFLOP, %.4g MB; %.3g%% of the FLOPs can be optimized\n",
           1e-6 * (double)s->flops, 1e-6 * (double)s->bytes, 100 * s->coverage);
    for (size_t i = 0; i < s->boundary_count; i++) {
        const eqf_boundary *b = &s->boundaries[i];
        const char *const parts[] = {"boundary", b->node, b->op, b->reason};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            printf(k ? ": " : "");
            print_name(parts[k], 0);
        }
        printf(" (%s)\n", b->runs ? "a plain kernel runs it" : "nothing here can run it");
    }
}

static void print_json(const eqf_program_summary *s)
{
    printf("{\"file\":");
    json_text(s->file);
    json_key("name");
    json_text(s->name);
    json_key("schema");
    json_text(s->schema);
    json_key("torch");
    json_text(s->torch);
    json_key("ops");
    printf("{");
    for (size_t i = 0; i < s->op_count; i++)
        printf("%s\"%s\":%lld", i ? "," : "", s->ops[i].op, (long long)s->ops[i].count);
    printf("}");
    json_tensors("inputs", s->inputs, s->input_count, false);
    json_tensors("outputs", s->outputs, s->output_count, false);
    json_tensors("parameters", s->parameters, s->parameter_count, true);
    printf(",\"seeded_parameters\":%zu", s->seeded_parameters);
    json_key("boundaries");
    printf("[");
    for (size_t i = 0; i < s->boundary_count; i++) {
        printf(i ? ",{\"node\":" : "{\"node\":");
        json_text(s->boundaries[i].node);
        json_key("op");
        json_text(s->boundaries[i].op);
        json_key("reason");
        json_text(s->boundaries[i].reason);
        printf(",\"runs\":%s}", s->boundaries[i].runs ? "true" : "false");
    }
    printf("]");
    json_key("coverage");
    json_number(s->coverage);
    printf(",\"flops\":%lld,\"bytes\":%lld}\n", (long long)s->flops, (long long)s->bytes);
}

int cli_inspect(cli_args *args)
{
    cli_reading reading;
    if (!cli_read_options(args, args->file, cli_value(args, "--inputs"), &reading))
        return EXIT_USAGE;
    eqf_program *program;
    cli_progress(args, "reading %s", args->file);
    eqf_status status = eqf_program_read(args->ctx, args->file, &reading.options, &program);
    if (status != EQF_OK) {
        int code = cli_fail_status(args, status, reading.inputs);
        cli_free_reading(&reading);
        return code;
    }
    cli_end_progress();
    cli_note_files(args, &reading, program);
    cli_note_seeded(args, &reading, program);
    bool text = cli_value(args, "--text") != NULL;
    if (text)
        fputs(eqf_program_text(program), stdout);
    if (args->json)
        print_json(eqf_program_info(program));
    else if (!text)
        print_summary(eqf_program_info(program));
    eqf_program_free(program);
    cli_free_reading(&reading);
    return EXIT_DONE;
}
