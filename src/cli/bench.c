/* equiforge bench: how fast a package is, and how fast this machine would let it be. */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

static void print_summary(const char *package, const eqf_bench_result *r,
                          const eqf_bench_result *against)
{
    print_name(package, 0);
    printf(": median %.4g us (quartiles %.4g to %.4g, best %.4g, %lld runs, %d thread%s)\n",
           r->median_us, r->low_us, r->high_us, r->min_us, (long long)r->runs, r->threads,
           r->threads == 1 ? "" : "s");
    printf("%lld kernel%s, %.4g MFLOP, %.4g MB: %.4g GFLOP/s, %.4g GB/s\n", (long long)r->kernels,
           r->kernels == 1 ? "" : "s", 1e-6 * (double)r->flops, 1e-6 * (double)r->bytes, 1e-3 * (double)r->flops / r->median_us,
           1e-3 * (double)r->bytes / r->median_us);
    printf("this machine now: %.4g GFLOP/s, %.4g GB/s, so at least %.4g us: %.3g%% of the "
           "roofline\n",
           r->peak_gflops, r->peak_gbps, r->bound_us, 100 * r->roofline);
    if (against)
        printf("unfused: median %.4g us, %.3gx\n", against->median_us,
               against->median_us / r->median_us);
}

static void print_json(const char *package, const eqf_bench_result *r,
                       const eqf_bench_result *against)
{
    printf("{\"package\":");
    json_text(package);
    json_key("median_us");
    json_number(r->median_us);
    printf(",\"spread\":{\"low\":");
    json_number(r->low_us);
    json_key("high");
    json_number(r->high_us);
    json_key("min");
    json_number(r->min_us);
    printf("},\"runs\":%lld,\"threads\":%d,\"kernels\":%lld,\"flops\":%lld,\"bytes\":%lld",
           (long long)r->runs, r->threads, (long long)r->kernels, (long long)r->flops,
           (long long)r->bytes);
    printf(",\"peaks\":{\"gflops\":");
    json_number(r->peak_gflops);
    json_key("gbps");
    json_number(r->peak_gbps);
    printf("},\"bound_us\":");
    json_number(r->bound_us);
    json_roofline(r->roofline);
    if (against) {
        printf(",\"against\":{\"unfused\":{\"median_us\":");
        json_number(against->median_us);
        json_key("speedup");
        json_number(against->median_us / r->median_us);
        printf("}}");
    }
    printf("}\n");
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* The package's program with one kernel an operator, built in a folder of its own. The data of
 * parameters is random where the text has none: it does not change the time. */
static eqf_status build_unfused(cli_args *args, const char *source, const char *package)
{
    eqf_optimize_options options = {.compiler = getenv("CC"), /* no time for candidates */
                                    .budget_s = 1e-3,
                                    .cancel = &cli_interrupted};
    if (options.compiler && !options.compiler[0])
        options.compiler = NULL;
    eqf_program *program;
    eqf_status s = eqf_program_read(args->ctx, source, NULL, &program);
    if (s == EQF_OK)
        s = eqf_optimize(program, &options, package, NULL);
    eqf_program_free(program);
    return s;
}

static eqf_status time_unfused(cli_args *args, const char *folder,
                               const eqf_bench_options *options, eqf_bench_result *out)
{
    char package[4200], source[4200];
    snprintf(source, sizeof source, "%s/program.eqf", args->file);
    snprintf(package, sizeof package, "%s/unfused", folder);
    eqf_model *model = NULL;
    eqf_status s = build_unfused(args, source, package);
    if (s == EQF_OK)
        s = eqf_model_load(args->ctx, package, &model);
    if (s == EQF_OK)
        s = eqf_bench(args->ctx, model, options, out);
    eqf_model_free(model);
    return s;
}

int cli_bench(cli_args *args)
{
    static const char *const baselines[] = {"", "unfused", NULL};
    long long threads;
    int against;
    if (!cli_number(args, "--threads", 1, 4096, 0, &threads) ||
        !cli_choice(args, "--against", baselines, &against))
        return EXIT_USAGE;
    eqf_bench_options options = {.threads = (int)threads, .cancel = &cli_interrupted};
    if (!cli_duration(args, "--budget", &options.budget_s))
        return EXIT_USAGE;
    const char *where = getenv("TMPDIR");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/equiforge-bench.XXXXXX", where && where[0] ? where : "/tmp");
    if (against && !mkdtemp(folder))
        return cli_fail(args, EXIT_MACHINE, folder, NULL, "cannot be made: %s", strerror(errno));
    cli_poll_interrupts();
    cli_progress(args, "timing");
    const char *const read[] = {args->file, NULL};
    eqf_model *model;
    eqf_bench_result result, baseline;
    eqf_status s = eqf_model_load(args->ctx, args->file, &model);
    if (s == EQF_OK)
        s = eqf_bench(args->ctx, model, &options, &result);
    if (s == EQF_OK && against) {
        cli_progress(args, "building the program as it was read");
        s = time_unfused(args, folder, &options, &baseline);
    }
    cli_end_progress();
    eqf_model_free(model);
    if (against)
        nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (s != EQF_OK)
        return cli_fail_status(args, s, read);
    if (args->json)
        print_json(args->file, &result, against ? &baseline : NULL);
    else
        print_summary(args->file, &result, against ? &baseline : NULL);
    return EXIT_DONE;
}
