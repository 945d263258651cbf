/* equiforge explain: how a package was derived, and what its kernels do. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"

/* ---- for people --------------------------------------------------------------------------------- */

static void print_part(const eqf_explanation *x, size_t i, bool replayed)
{
    const eqf_derived_part *p = &x->parts[i];
    /* Not the parts that --why-not counts: those were searched, these are what the package has. */
    if (x->part_count > 1)
        printf("\npiece %zu of %zu, %lld use%s: ", i + 1, x->part_count, (long long)p->uses,
               p->uses == 1 ? "" : "s");
    else
        printf("\nthe program: ");
    if (!p->changed) {
        printf("computed as it was read\n");
        return;
    }
    if (p->by_value[0]) {
        printf("another form, verified by value only (");
        put_visible(stdout, p->by_value);
        printf(")\n");
    } else {
        printf("another form, derived in %zu step%s\n", p->step_count,
               p->step_count == 1 ? "" : "s");
    }
    for (size_t k = 0; k < p->step_count; k++) {
        const eqf_derived_step *s = &p->steps[k];
        printf("  %zu. ", k + 1);
        put_visible(stdout, s->rule);
        printf(", for ");
        put_visible(stdout, s->output);
        if (s->meaning[0]) {
            printf(": ");
            put_visible(stdout, s->meaning);
        }
        printf("\n       ");
        put_visible(stdout, s->from);
        printf("\n     = ");
        put_visible(stdout, s->to);
        putchar('\n');
    }
    if (p->refused[0]) {
        printf("  REFUSED at ");
        put_visible(stdout, p->refused);
        putchar('\n');
    } else if (replayed && p->step_count) {
        printf("  checked: %lld elementary steps replayed", (long long)p->checked);
        if (p->assumptions)
            printf(", %lld guards taken for granted", (long long)p->assumptions);
        putchar('\n');
    }
    for (size_t k = 0; k < p->own_rule_count; k++) {
        printf(k ? ", " : "  by rules of the package's own, %s: ",
               replayed ? "tested as `rules check` does" : "not tested");
        put_visible(stdout, p->own_rules[k]);
    }
    if (p->own_rule_count)
        putchar('\n');
}

static void print_kernels(const eqf_explanation *x)
{
    double bound = 0;
    for (size_t i = 0; i < x->kernel_count; i++)
        bound += x->kernels[i].bound_us;
    printf("\n%zu kernel%s", x->kernel_count, x->kernel_count == 1 ? "" : "s");
    if (x->best_us > 0)
        printf(", %.4g us when it was made (%.3g%% of the roofline; one kernel an operator: %.4g us)",
               x->best_us, 100 * x->roofline, x->unfused_us);
    printf("\n  %-40s %12s %12s %10s %7s  computes\n", "kernel", "FLOP", "bytes", "bound us",
           "share");
    for (size_t i = 0; i < x->kernel_count; i++) {
        const eqf_kernel *k = &x->kernels[i];
        printf("  ");
        print_name(k->name, 40);
        printf(" %12lld %12lld %10.4g %6.1f%%  ", (long long)k->flops, (long long)k->bytes,
               k->bound_us, bound > 0 ? 100 * k->bound_us / bound : 0.0);
        put_visible(stdout, k->origin);
        putchar('\n');
    }
}

static void print_explanation(const cli_args *args, const eqf_explanation *x, bool replayed)
{
    print_name(args->file, 0);
    printf(": made from ");
    put_visible(stdout, x->source);
    putchar('\n');
    if (!x->form[0])
        printf("\nthe program: computed as it was read, one kernel an operator\n");
    for (size_t i = 0; i < x->part_count; i++)
        print_part(x, i, replayed);
    if (cli_value(args, "--form")) {
        putchar('\n');
        fputs(x->form[0] ? x->form : x->program, stdout);
    }
    print_kernels(x);
    if (!replayed)
        return;
    printf("\n%s\n", !x->form[0]   ? "checked: there is nothing to derive; the kernels: by value (run --check)"
                     : !x->checked ? "refused: a step of the derivation does not hold"
                     : x->proved ? "checked: the form equals the program, over the reals; from it to "
                                   "the kernels: by value (run --check)"
                                 : "checked where there is a derivation; the rest is by value only");
}

/* ---- for scripts -------------------------------------------------------------------------------- */

static void json_string(const char *key, const char *value)
{
    json_key(key);
    json_text(value);
}

static void json_part(const eqf_derived_part *p, bool replayed)
{
    printf("{\"uses\":%lld,\"changed\":%s", (long long)p->uses, p->changed ? "true" : "false");
    json_string("by_value", p->by_value);
    json_string("program", p->program);
    json_string("form", p->form);
    if (replayed) {
        printf(",\"checked\":%lld,\"assumptions\":%lld", (long long)p->checked,
               (long long)p->assumptions);
        json_string("refused", p->refused);
    }
    printf(",\"own_rules\":[");
    for (size_t k = 0; k < p->own_rule_count; k++) {
        printf(k ? "," : "");
        json_text(p->own_rules[k]);
    }
    printf("],\"steps\":[");
    for (size_t k = 0; k < p->step_count; k++) {
        printf("%s{\"rule\":", k ? "," : "");
        json_text(p->steps[k].rule);
        json_string("meaning", p->steps[k].meaning);
        json_string("output", p->steps[k].output);
        json_string("from", p->steps[k].from);
        json_string("to", p->steps[k].to);
        putchar('}');
    }
    printf("]}");
}

static void print_json(const cli_args *args, const eqf_explanation *x, bool replayed)
{
    printf("{\"package\":");
    json_text(args->file);
    json_string("source", x->source);
    if (replayed)
        printf(",\"checked\":%s,\"proved\":%s", x->checked ? "true" : "false",
               x->proved ? "true" : "false");
    json_string("form", x->form);
    printf(",\"parts\":[");
    for (size_t i = 0; i < x->part_count; i++) {
        if (i)
            putchar(',');
        json_part(&x->parts[i], replayed);
    }
    printf("],\"kernels\":[");
    for (size_t i = 0; i < x->kernel_count; i++) {
        const eqf_kernel *k = &x->kernels[i];
        printf("%s{\"name\":", i ? "," : "");
        json_text(k->name);
        json_string("origin", k->origin);
        printf(",\"flops\":%lld,\"bytes\":%lld", (long long)k->flops, (long long)k->bytes);
        json_key("bound_us");
        json_number(k->bound_us);
        putchar('}');
    }
    printf("],\"time_us\":{\"unfused\":");
    json_number(x->unfused_us);
    json_key("best");
    json_number(x->best_us);
    printf("}");
    json_roofline(x->roofline);
    printf("}\n");
}

static int write_page(cli_args *args, const char *path, const eqf_explanation *x, bool replayed)
{
    FILE *f = fopen(path, "w");
    bool written = f && cli_write_html(f, args->file, x, replayed);
    int error = errno;
    if (f && fclose(f) != 0 && written) {
        written = false;
        error = errno;
    }
    return written ? EXIT_DONE
                   : cli_fail(args, EXIT_MACHINE, path, NULL, "cannot be written: %s",
                              strerror(error));
}

int cli_explain(cli_args *args)
{
    bool replays = cli_value(args, "--proof") != NULL;
    eqf_explain_options options = {.proof = replays, .cancel = &cli_interrupted};
    eqf_explanation *x;
    const char *const read[] = {args->file, NULL};
    cli_poll_interrupts();
    cli_progress(args, "explaining");
    eqf_status s = eqf_package_explain(args->ctx, args->file, &options, &x);
    cli_end_progress();
    if (s != EQF_OK)
        return cli_fail_status(args, s, read);
    const char *page = cli_value(args, "--html");
    int code = page ? write_page(args, page, x, replays) : EXIT_DONE;
    const char *form = cli_value(args, "--why-not");
    if (code == EXIT_DONE && form)
        code = cli_why_not(args, form, x);
    else if (code == EXIT_DONE)
        (args->json ? print_json : print_explanation)(args, x, replays);
    bool holds = !replays || x->checked;
    eqf_explanation_free(x);
    return code ? code : holds ? EXIT_DONE : EXIT_DIFFERENT;
}
