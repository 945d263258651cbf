/* equiforge search: what the e-graph of a program becomes, and the programs in it. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { SHOWN_RULES = 12 };

static void show_progress(void *user, const char *stage)
{
    cli_progress(user, "%s", stage);
}

/* ---- for people
 * ----------------------------------------------------------------------------------- */

static int by_matches(const void *a, const void *b)
{
    const eqf_search_rule *x = a, *y = b;
    if (x->matches != y->matches)
        return x->matches < y->matches ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void print_rules(const eqf_subgraph *g)
{
    eqf_search_rule *sorted = malloc((g->rule_count + 1) * sizeof *sorted);
    if (!sorted || g->rule_count == 0) {
        free(sorted);
        return;
    }
    memcpy(sorted, g->rules, g->rule_count * sizeof *sorted);
    qsort(sorted, g->rule_count, sizeof *sorted, by_matches);
    printf("\n  %-36s %9s %9s %9s %9s\n", "rule", "matches", "applied", "e-nodes", "ms");
    size_t shown = g->rule_count < SHOWN_RULES ? g->rule_count : SHOWN_RULES;
    for (size_t i = 0; i < shown; i++) {
        printf("  ");
        print_name(sorted[i].name, 36);
        printf(" %9lld %9lld %9lld %9.2f\n", (long long)sorted[i].matches,
               (long long)sorted[i].applied, (long long)sorted[i].enodes,
               1e3 * sorted[i].seconds);
    }
    if (shown < g->rule_count)
        printf("  and %zu more\n", g->rule_count - shown);
    free(sorted);
}

static void print_candidates(const eqf_subgraph *g)
{
    const eqf_search_extraction *x = &g->extraction;
    printf("\n  extraction (%s): %lld states expanded, %lld pruned; %lld structures, %lld candidates%s; "
           "%.2f ms\n",
           x->mode, (long long)x->expanded, (long long)x->pruned, (long long)x->structures,
           (long long)x->candidates, x->complete ? ", complete" : "", 1e3 * x->seconds);
    if (g->candidate_count > 0)
        printf("  %4s %8s %10s %10s %10s  %s\n", "id", "kernels", "MFLOP", "MB", "bound us",
               "reductions");
    for (size_t i = 0; i < g->candidate_count; i++) {
        const eqf_search_candidate *c = &g->candidates[i];
        printf("  %4zu %8lld %10.4g %10.4g %10.4g ", i, (long long)c->kernels, 1e-6 * c->flops,
               1e-6 * c->bytes, c->bound_us);
        for (size_t k = 0; k < c->reduction_count; k++) {
            printf("%s%s over ", k ? ", " : " ", c->reductions[k].name);
            put_visible(stdout, c->reductions[k].over);
        }
        putchar('\n');
    }
}

static void print_subgraph(const eqf_subgraph *g)
{
    printf("subgraph %s: %lld use%s, %.3g MB\n", g->hash, (long long)g->uses,
           g->uses == 1 ? "" : "s", 1e-6 * (double)g->bytes);
    printf("  %-10s %9s %9s %10s %9s %9s  %s\n", "phase", "e-nodes", "e-classes", "iterations",
           "matches", "ms", "stop");
    for (size_t i = 0; i < g->phase_count; i++) {
        const eqf_search_phase *p = &g->phases[i];
        if (p->split[0] && strcmp(p->split, g->phases[i - 1].split) != 0) {
            printf("  ");
            put_visible(stdout, p->split);
            printf(", in an e-graph of its own\n");
        }
        printf("  %-10s %9lld %9lld %10lld %9lld %9.2f  %s\n", p->name, (long long)p->enodes,
               (long long)p->eclasses, (long long)p->iterations, (long long)p->matches,
               1e3 * p->seconds, strcmp(p->name, "program") != 0 ? p->stop : "");
    }
    if (g->repaired || g->bundles)
        printf("  reductions put into the loop of those they need: %lld; bundles of others: %lld\n",
               (long long)g->repaired, (long long)g->bundles);
    print_rules(g);
    if (g->phase_count > 0)
        print_candidates(g);
}

/* Candidates as text; a comment before each says which it is. */
static void print_texts(const eqf_subgraph *g, bool kernels)
{
    if (g->candidate_count == 0)
        printf("; subgraph %s: no candidate\n", g->hash);
    for (size_t i = 0; i < g->candidate_count; i++) {
        const eqf_search_candidate *c = &g->candidates[i];
        const char *text = kernels ? c->kernel_text : c->form;
        printf("; subgraph %s, candidate %zu: %lld kernel%s, bound %.4g us%s\n", g->hash, i,
               (long long)c->kernels, c->kernels == 1 ? "" : "s", c->bound_us,
               text ? "" : "; an operator has no kernel");
        fputs(text ? text : "", stdout);
    }
}

/* ---- for scripts
 * ---------------------------------------------------------------------------------- */

static void json_phases(const eqf_subgraph *g)
{
    json_key("phases");
    putchar('[');
    for (size_t i = 0; i < g->phase_count; i++) {
        const eqf_search_phase *p = &g->phases[i];
        printf("%s{\"name\":\"%s\",\"split\":", i ? "," : "", p->name);
        json_text(p->split);
        printf(",\"enodes\":%lld,\"eclasses\":%lld,\"iterations\":%lld,"
               "\"matches\":%lld,\"seconds\":%.9g,\"stop\":\"%s\"}",
               (long long)p->enodes, (long long)p->eclasses, (long long)p->iterations,
               (long long)p->matches, p->seconds, p->stop);
    }
    putchar(']');
}

static void json_rules(const eqf_subgraph *g)
{
    json_key("rules");
    putchar('{');
    for (size_t i = 0; i < g->rule_count; i++) {
        const eqf_search_rule *r = &g->rules[i];
        printf(i ? "," : "");
        json_text(r->name);
        printf(":{\"matches\":%lld,\"applied\":%lld,\"enodes\":%lld,\"seconds\":%.9g}",
               (long long)r->matches, (long long)r->applied, (long long)r->enodes, r->seconds);
    }
    putchar('}');
}

static void json_candidates(const eqf_subgraph *g)
{
    const eqf_search_extraction *x = &g->extraction;
    json_key("extract");
    printf("{\"mode\":\"%s\",\"expanded\":%lld,\"pruned\":%lld,\"structures\":%lld,"
           "\"candidates\":%lld,\"complete\":%s,\"seconds\":%.9g}",
           x->mode, (long long)x->expanded, (long long)x->pruned, (long long)x->structures,
           (long long)x->candidates, x->complete ? "true" : "false", x->seconds);
    json_key("candidates");
    putchar('[');
    for (size_t i = 0; i < g->candidate_count; i++) {
        const eqf_search_candidate *c = &g->candidates[i];
        printf("%s{\"id\":%zu,\"kernels\":%lld,\"flops\":", i ? "," : "", i, (long long)c->kernels);
        json_number(c->flops);
        json_key("bytes");
        json_number(c->bytes);
        json_key("bound_us");
        json_number(c->bound_us);
        json_key("reductions");
        for (size_t k = 0; k < c->reduction_count; k++) {
            putchar(k ? ',' : '[');
            json_text(c->reductions[k].name);
        }
        fputs(c->reduction_count ? "]" : "[]", stdout);
        json_key("over");
        for (size_t k = 0; k < c->reduction_count; k++) {
            putchar(k ? ',' : '[');
            json_text(c->reductions[k].over);
        }
        fputs(c->reduction_count ? "]" : "[]", stdout);
        json_key("form");
        json_text(c->form);
        if (c->kernel_text) {
            json_key("kernel_text");
            json_text(c->kernel_text);
        }
        putchar('}');
    }
    putchar(']');
}

static void print_json(const eqf_search_report *r)
{
    printf("{\"subgraphs\":[");
    for (size_t i = 0; i < r->subgraph_count; i++) {
        const eqf_subgraph *g = &r->subgraphs[i];
        printf("%s{\"hash\":\"%s\",\"uses\":%lld,\"enodes\":%lld,\"eclasses\":%lld,"
               "\"iterations\":%lld,\"matches\":%lld,\"repaired\":%lld,\"bundles\":%lld,"
               "\"bytes\":%lld,\"peak_bytes\":%lld,\"stop\":\"%s\",\"saturate_s\":%.9g",
               i ? "," : "", g->hash, (long long)g->uses, (long long)g->enodes,
               (long long)g->eclasses, (long long)g->iterations, (long long)g->matches,
               (long long)g->repaired, (long long)g->bundles, (long long)g->bytes,
               (long long)g->peak_bytes, g->stop, g->saturate_s);
        json_phases(g);
        json_rules(g);
        json_candidates(g);
        if (g->form) {
            json_key("flops");
            json_number(g->flops);
            json_key("form_flops");
            json_number(g->form_flops);
            json_key("form");
            json_text(g->form);
        }
        putchar('}');
    }
    printf("]}\n");
}

static int show(const cli_args *args, const eqf_search_report *r)
{
    const char *what = cli_value(args, "--print");
    for (size_t i = 0; i < r->subgraph_count && !args->json; i++) {
        const eqf_subgraph *g = &r->subgraphs[i];
        if (!what)
            print_subgraph(g);
        else if (strcmp(what, "tensors") != 0)
            print_texts(g, strcmp(what, "kernels") == 0);
        else if (g->form)
            fputs(g->form, stdout);
    }
    if (args->json)
        print_json(r);
    if (!r->cancelled)
        return EXIT_DONE;
    fflush(stdout);
    fputs("equiforge: interrupted\n", stderr);
    return EXIT_INTERRUPTED;
}

/* ---- the verb
 * ------------------------------------------------------------------------------------- */

static bool read_choices(cli_args *args, eqf_search_options *o)
{
    static const char *const accuracies[] = {"default", "strict", "fast", NULL};
    static const char *const parameters[] = {"constant", "input", NULL};
    static const char *const fuses[] = {"late", "node", "all", NULL};
    static const char *const orders[] = {"best", "paper", NULL};
    static const char *const refines[] = {"maximal", "subsets", NULL};
    static const char *const modes[] = {"early", "after", "none", NULL};
    static const char *const prints[] = {"", "forms", "kernels", "tensors", NULL};
    int accuracy, parameter, fuse, refine, mode, order, print;
    long long limit, enodes, threads;
    if (!cli_choice(args, "--accuracy", accuracies, &accuracy) ||
        !cli_choice(args, "--parameters", parameters, &parameter) ||
        !cli_choice(args, "--fuse", fuses, &fuse) ||
        !cli_choice(args, "--refine", refines, &refine) ||
        !cli_choice(args, "--mode", modes, &mode) ||
        !cli_choice(args, "--order", orders, &order) || !cli_choice(args, "--print", prints, &print) ||
        !cli_duration(args, "--budget", &o->budget_s) ||
        !cli_number(args, "--limit", 1, 10000, 0, &limit) ||
        !cli_number(args, "--threads", 1, 4096, 0, &threads) ||
        !cli_number(args, "--enodes", 1, INT64_MAX, 0, &enodes))
        return false;
    o->accuracy = (eqf_accuracy)accuracy;
    o->parameters_are_inputs = parameter == 1;
    o->order = (eqf_order)order;
    o->fuse = order && !cli_value(args, "--fuse") ? EQF_FUSE_ALL : (eqf_fuse)fuse;
    o->refine = (eqf_refine)refine;
    o->compaction = (eqf_compaction)mode;
    o->kernels = print == 2;
    o->form = print == 3;
    o->most_candidates = limit;
    o->most_enodes = enodes;
    o->threads = (int)threads;
    o->force = cli_value(args, "--force") != NULL;
    return true;
}

int cli_search(cli_args *args)
{
    eqf_search_options options = {
        .progress = show_progress, .user = args, .cancel = &cli_interrupted};
    cli_reading reading;
    if (!read_choices(args, &options) ||
        !cli_read_options(args, args->file, cli_value(args, "--inputs"), &reading))
        return EXIT_USAGE;
    options.rules = reading.inputs;
    options.rule_count = reading.rule_count;
    cli_progress(args, "reading");
    eqf_program *program;
    eqf_status status = eqf_program_read(args->ctx, args->file, &reading.options, &program);
    const eqf_search_report *report;
    cli_poll_interrupts();
    if (status == EQF_OK)
        status = eqf_search(program, &options, &report);
    cli_end_progress();
    if (status == EQF_OK)
        cli_note_files(args, &reading, program);
    int code =
        status == EQF_OK ? show(args, report) : cli_fail_status(args, status, reading.inputs);
    eqf_program_free(program);
    cli_free_reading(&reading);
    return code;
}
