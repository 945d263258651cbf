/* What bench.py cannot see from outside: an empty search over 120 rules, a tiny run, one iteration of
 * micro-10 and its undo, runs with explanations beside runs without. Best of several, alternating.
 *
 *     small SUITE [REPEAT]      SUITE is tests/conformance/egg-suite.eqf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eqf_egraph.h"

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void must(eqf_ctx *ctx, eqf_status s)
{
    if (!s)
        return;
    size_t n = eqf_diag_count(ctx);
    fprintf(stderr, "%s: %s\n", eqf_status_name(s), n ? eqf_diag_get(ctx, n - 1).message : "");
    exit(1);
}

static const char *end_of(const char *form)
{
    int depth = 0;
    do {
        depth += *form == '(';
        depth -= *form == ')';
        form++;
    } while (depth > 0 && *form);
    return form;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    size_t cap = 1 << 20;
    char *text = calloc(cap, 1);
    if (!text || fread(text, 1, cap - 1, f) == 0)
        exit(1);
    fclose(f);
    return text;
}

/* The forms (NAME …) inside a form of the suite, one after the other. */
static char *inner(const char *suite, const char *form, const char *name)
{
    const char *at = strstr(suite, form);
    char *out = calloc(1 << 16, 1), head[32];
    if (!at || !out)
        exit(1);
    snprintf(head, sizeof head, "(%s ", name);
    for (const char *end = end_of(at); (at = strstr(at + 1, head)) && at < end;)
        strncat(out, at, (size_t)(end_of(at) - at));
    return out;
}

typedef struct bench {
    eqf_ctx *ctx;
    eqf_lang *lang;
    eqf_rules *rules;
    eqf_egraph *g;
} bench;

static bench start(const char *rules, bool explain)
{
    bench b = {.ctx = eqf_ctx_new(NULL)};
    must(b.ctx, eqf_lang_new(b.ctx, &b.lang));
    must(b.ctx, eqf_rules_load(b.lang, "rules", eqf_text_of(rules), &b.rules));
    eqf_options o = {.limits = eqf_limits_none(), .explain = explain};
    must(b.ctx, eqf_egraph_new(b.lang, &o, &b.g));
    return b;
}

static void stop(bench *b)
{
    eqf_egraph_free(b->g);
    eqf_rules_free(b->rules);
    eqf_lang_free(b->lang);
    eqf_ctx_free(b->ctx);
}

static void add(bench *b, const char *term)
{
    eqf_class c;
    must(b->ctx, eqf_add_text(b->g, eqf_text_of(term), &c));
}

/* Terms as (term E) forms. */
static void add_terms(bench *b, const char *terms)
{
    char copy[4096];
    for (const char *at = terms; (at = strstr(at, "(term ")) != NULL;) {
        const char *end = end_of(at);
        snprintf(copy, sizeof copy, "%.*s", (int)(end - at - 7), at + 6);
        add(b, copy);
        at = end;
    }
}

typedef struct countdown {
    int64_t left;
} countdown;

static bool is_over(void *user, eqf_egraph *g)
{
    (void)g;
    countdown *c = user;
    return c->left-- == 0;
}

/* Runs `iterations`, < 0 until saturated; microseconds. */
static double run(bench *b, int64_t iterations)
{
    countdown c = {iterations};
    eqf_schedule s = {.scheduler = EQF_SIMPLE, .goal = iterations < 0 ? NULL : is_over, .user = &c};
    eqf_run_report r;
    double t = now_us();
    must(b->ctx, eqf_run(b->g, b->rules, &s, &r));
    return now_us() - t;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void empty_search(int repeat)
{
    char *rules = calloc(1 << 16, 1);
    for (int i = 0; i < 120; i++)
        sprintf(rules + strlen(rules), "(rule r%d (f%d ?a (g%d ?b ?c)) => (g%d ?a ?b))", i, i, i, i);
    bench b = start(rules, false);
    add(&b, "(h x (k y z))");
    run(&b, -1);
    double best = 1e9;
    for (int k = 0; k < 100 * repeat; k++)
        best = least(best, run(&b, -1));
    printf("empty search over 120 rules      %8.2f us\n", best);
    stop(&b);
    free(rules);
}

static void tiny(const char *name, const char *rules, const char *term, int repeat)
{
    double best = 1e9;
    for (int k = 0; k < 1000 * repeat; k++) {
        bench b = start(rules, false);
        add(&b, term);
        best = least(best, run(&b, -1));
        stop(&b);
    }
    printf("%-9s                       %8.2f us\n", name, best);
}

static void undo(const char *rules, const char *terms, int repeat)
{
    double iteration = 1e9, marked = 1e9, undone = 1e9;
    for (int k = 0; k < repeat; k++) {
        bench b = start(rules, false);
        add_terms(&b, terms);
        run(&b, 9);
        eqf_mark m;
        must(b.ctx, eqf_mark_open(b.g, &m));
        marked = least(marked, run(&b, 1));
        double t = now_us();
        must(b.ctx, eqf_undo(b.g, m));
        undone = least(undone, now_us() - t);
        iteration = least(iteration, run(&b, 1));
        stop(&b);
    }
    printf("micro-10, last iteration         %8.2f ms, under a mark %.2f ms, its undo %.2f ms\n",
           iteration / 1e3, marked / 1e3, undone / 1e3);
}

static void proofs(const char *name, const char *rules, const char *terms, int64_t iterations,
                   int repeat)
{
    double best[2] = {1e9, 1e9};
    for (int k = 0; k < 2 * repeat; k++) {
        bench b = start(rules, k & 1);
        add_terms(&b, terms);
        best[k & 1] = least(best[k & 1], run(&b, iterations));
        stop(&b);
    }
    printf("%-9s explained             %8.2f ms, %.2f x of %.2f ms\n", name, best[1] / 1e3,
           best[1] / best[0], best[0] / 1e3);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: small SUITE [REPEAT]\n");
        return 2;
    }
    int repeat = argc > 2 ? atoi(argv[2]) : 5;
    char *suite = read_file(argv[1]);
    char *ac = inner(suite, "(ruleset ac ", "rule"), *micro = inner(suite, "(ruleset micro", "rule");
    char *roots = inner(suite, "(family micro ", "term");
    empty_search(repeat);
    char *simple = inner(suite, "(ruleset simple ", "rule");
    tiny("simple2", simple, "(+ 0 (* 1 foo))", repeat);
    free(simple);
    undo(micro, roots, repeat);
    for (int n = 8; n <= 10; n++) {
        char name[16], term[256] = "(term ";
        for (int i = 1; i < n; i++)
            sprintf(term + strlen(term), "(+ %d ", i);
        sprintf(term + strlen(term), "%d", n);
        for (int i = 0; i < n; i++)
            strcat(term, ")");
        snprintf(name, sizeof name, "ac-%d", n);
        proofs(name, ac, term, -1, repeat);
    }
    proofs("micro-10", micro, roots, 10, repeat);
    free(ac);
    free(micro);
    free(roots);
    free(suite);
    return 0;
}
