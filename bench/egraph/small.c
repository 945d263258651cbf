/* What bench.py cannot see from outside: an empty search over 120 rules, tiny runs, one iteration of
 * micro-10 and its undo, runs with explanations beside runs without, extraction alone. Best of several,
 * alternating; a line each, its name and the number, which bench.py reads.
 *
 *     small SUITE [REPEAT]      SUITE is tests/conformance/egg-suite.eqf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "egraph/builtins.h"

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

static void say(const char *name, double value)
{
    printf("%s %.4g\n", name, value);
}

/* With an analysis of the suite's, or NULL. */
static bench start_with(const char *rules, bool explain, const char *analysis)
{
    bench b = {.ctx = eqf_ctx_new(NULL)};
    must(b.ctx, eqf_lang_new(b.ctx, &b.lang));
    eg_builtins *builtins = analysis ? eg_builtins_new(b.lang, b.lang->a) : NULL;
    must(b.ctx, eqf_rules_load(b.lang, "rules", eqf_text_of(rules), &b.rules));
    eqf_options o = {.limits = eqf_limits_none(), .explain = explain};
    must(b.ctx, eqf_egraph_new(b.lang, &o, &b.g));
    if (analysis)
        must(b.ctx, eg_builtins_attach(builtins, b.g, &analysis, 1));
    return b;
}

static bench start(const char *rules, bool explain)
{
    return start_with(rules, explain, NULL);
}

static void stop(bench *b)
{
    eqf_egraph_free(b->g);
    eqf_rules_free(b->rules);
    eqf_lang_free(b->lang);
    eqf_ctx_free(b->ctx);
}

static eqf_class add(bench *b, const char *term)
{
    eqf_class c;
    must(b->ctx, eqf_add_text(b->g, eqf_text_of(term), &c));
    return c;
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
    say("empty search, 120 rules us", best);
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
    say(name, best);
}

typedef struct goal {
    eqf_class root;
    const char *term;
} goal;

static bool is_reached(void *user, eqf_egraph *g)
{
    const goal *x = user;
    eqf_class c;
    return !eqf_lookup_text(g, eqf_text_of(x->term), &c) && c.i &&
           eqf_find(g, c).i == eqf_find(g, x->root).i;
}

/* The suite's case math-simplify-add: to its goal, backoff scheduler, constants folded. */
static void simplify_add(const char *rules, int repeat)
{
    double best = 1e9;
    for (int k = 0; k < 200 * repeat; k++) {
        bench b = start_with(rules, false, "math-fold");
        goal x = {add(&b, "(+ x (+ x (+ x x)))"), "(* 4 x)"};
        eqf_schedule s = {.goal = is_reached, .user = &x};
        eqf_run_report r;
        double t = now_us();
        must(b.ctx, eqf_run(b.g, b.rules, &s, &r));
        best = least(best, now_us() - t);
        if (r.stop != EQF_STOP_GOAL)
            exit(1);
        stop(&b);
    }
    say("math-simplify-add us", best);
}

static void extraction(const char *rules, const char *terms, int repeat)
{
    bench b = start(rules, false);
    eqf_class root = add(&b, "(i (ln x) x)");
    add_terms(&b, terms);
    run(&b, 11);
    double best[2] = {1e9, 1e9};
    for (int k = 0; k < 2 * repeat; k++) {
        eqf_extraction *x;
        double t = now_us();
        must(b.ctx, eqf_extract(b.g, &root, 1, NULL, k & 1 ? EQF_DAG : EQF_TREE, &x));
        best[k & 1] = least(best[k & 1], now_us() - t);
        eqf_extraction_free(x);
    }
    say("micro-11 tree extraction ms", best[0] / 1e3);
    say("micro-11 dag extraction ms", best[1] / 1e3);
    stop(&b);
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
    say("micro-10 iteration ms", iteration / 1e3);
    say("micro-10 iteration under a mark ms", marked / 1e3);
    say("micro-10 undo ms", undone / 1e3);
    say("micro-10 undo / iteration", undone / iteration);
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
    char line[64];
    snprintf(line, sizeof line, "%s explained ms", name);
    say(line, best[1] / 1e3);
    snprintf(line, sizeof line, "%s explained / not", name);
    say(line, best[1] / best[0]);
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
    tiny("simple2 us", simple, "(+ 0 (* 1 foo))", repeat);
    free(simple);
    char *math = inner(suite, "(ruleset math ", "rule"), *all = calloc(1 << 16, 1);
    if (!all)
        return 1;
    snprintf(all, 1 << 16, "%s%s", micro, math); /* math extends micro */
    simplify_add(all, repeat);
    free(math);
    free(all);
    extraction(micro, roots, repeat);
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
