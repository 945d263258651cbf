/* explain --why-not FORM: the candidate that is most like what is asked about, and what stopped it. From
 * what the package's report says of its searches; nothing is searched again.
 *
 *     FORM    item [and item]...
 *     item    one kernel | N kernels | rolling | nothing rolling | a reduction, or part of one, as search
 *             prints it: "max over T", "rolling(max,+)" */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { MOST_ITEMS = 8, MOST_TEXT = 400 };

typedef struct asked {
    const char *form;
    long long kernels; /* 0: any */
    int rolls;         /* -1: any */
    char text[MOST_TEXT];
    const char *reductions[MOST_ITEMS];
    int count;
} asked;

/* ---- what is asked ------------------------------------------------------------------------------ */

static long long number_of(const char *word)
{
    static const char *const words[] = {"",     "one", "two",   "three", "four", "five", "six",
                                        "seven", "eight", "nine", "ten"};
    char *end;
    long long n = strtoll(word, &end, 10);
    if (end != word && *end == 0)
        return n;
    for (size_t i = 1; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return (long long)i;
    return 0;
}

/* One item; false when it is none. */
static bool read_item(asked *a, char *item)
{
    char *space = strchr(item, ' ');
    if (strcmp(item, "rolling") == 0 || strcmp(item, "nothing rolling") == 0) {
        a->rolls = strcmp(item, "rolling") == 0;
        return true;
    }
    if (space && (strcmp(space, " kernel") == 0 || strcmp(space, " kernels") == 0)) {
        *space = 0;
        a->kernels = number_of(item);
        return a->kernels > 0;
    }
    bool is_reduction = strstr(item, " over ") || strchr(item, '(');
    if (is_reduction && a->count < MOST_ITEMS)
        a->reductions[a->count++] = item;
    return is_reduction && a->count <= MOST_ITEMS;
}

static int read_asked(cli_args *args, const char *form, asked *a)
{
    *a = (asked){.form = form, .rolls = -1};
    if (strlen(form) >= sizeof a->text)
        return cli_fail(args, EXIT_USAGE, NULL, "--why-not", "is too long");
    strcpy(a->text, form);
    for (char *item = a->text, *next; item; item = next) {
        next = strstr(item, " and ");
        if (next) {
            *next = 0;
            next += strlen(" and ");
        }
        if (!read_item(a, item))
            return cli_fail(args, EXIT_USAGE, NULL, "--why-not",
                            "'%s' is none of: one kernel, N kernels, rolling, nothing rolling, or a "
                            "reduction as search prints it; several are joined by `and`",
                            item);
    }
    return EXIT_DONE;
}

/* ---- what is most like it ----------------------------------------------------------------------- */

/* Parts that were put together: what is in them is not known. A candidate has a bound. */
static bool is_assembled(const eqf_try *t)
{
    return !t->reductions[0] && t->bound_us <= 0;
}

/* How far a candidate is from what is asked, 0: it is so. */
static long long distance(const asked *a, const eqf_try *t)
{
    long long d = 0;
    if (a->kernels)
        d += 10 * llabs(a->kernels - (long long)t->kernels);
    if (is_assembled(t))
        return d + 5 * (a->rolls >= 0) + 3 * a->count;
    d += a->rolls >= 0 && a->rolls != t->rolls ? 5 : 0;
    for (int i = 0; i < a->count; i++)
        d += strstr(t->reductions, a->reductions[i]) ? 0 : 3;
    return d;
}

typedef struct answer {
    const eqf_try *nearest, *best; /* NULL: none; best: NULL: as it was read */
    const char *status, *verdict;  /* of the nearest */
    bool is_so, was_tried;
    size_t number;                 /* among those tried, or those that were not */
    double least_us;               /* what a model expects at least of one that is so; 0: there is none */
} answer;

/* Chosen before measured, fast before slow, measured before what failed or was not tried. */
static int standing(const answer *x, const eqf_try *t, bool was_tried)
{
    return t == x->best ? 0 : was_tried && !t->failed ? 1 : was_tried ? 2 : 3;
}

static void consider(const asked *a, answer *x, const eqf_try *list, size_t n, bool was_tried)
{
    for (size_t i = 0; i < n; i++) {
        const eqf_try *t = &list[i];
        long long d = distance(a, t), old = x->nearest ? distance(a, x->nearest) : d + 1;
        int s = standing(x, t, was_tried),
            r = x->nearest ? standing(x, x->nearest, x->was_tried) : s + 1;
        bool faster = x->nearest && (t->us > 0 ? t->us < x->nearest->us : t->bound_us < x->nearest->bound_us);
        if (d > old || (d == old && (s > r || (s == r && x->nearest && !faster))))
            continue;
        x->nearest = t;
        x->number = i + 1;
        x->was_tried = was_tried;
        x->is_so = d == 0;
    }
}

static void judge(const eqf_searched *s, answer *x)
{
    const eqf_try *t = x->nearest;
    if (!t) {
        bool searched = s->least_count > 0;
        x->status = searched ? "untried" : "unsearched";
        x->verdict = searched ? "no candidate was kept" : "it was not searched: it is too large for one search, or the budget was over";
    } else if (t == x->best) {
        x->status = "chosen", x->verdict = "it is the best that was found";
    } else if (!x->was_tried) {
        x->status = "untried", x->verdict = "the budget was over before it was its turn";
    } else if (t->failed) {
        x->status = "failed", x->verdict = t->why;
    } else if (t->why[0]) {
        x->status = "inaccurate", x->verdict = t->why;
    } else if (t->taken) {
        x->status = "slower", x->verdict = "it was the best until a faster one was found";
    } else {
        x->status = "slower", x->verdict = "what was the best by then was faster, or as fast";
    }
}

static answer answer_of(const asked *a, const eqf_searched *s)
{
    answer x = {0};
    for (size_t i = 0; i < s->try_count; i++)
        if (s->tries[i].taken)
            x.best = &s->tries[i];
    consider(a, &x, s->tries, s->try_count, true);
    consider(a, &x, s->untried, s->untried_count, false);
    judge(s, &x);
    for (size_t i = 0; i < s->least_count && a->count == 0; i++) {
        const eqf_least *k = &s->least[i];
        if ((!a->kernels || a->kernels == k->kernels) && (a->rolls < 0 || a->rolls == k->rolls) &&
            (x.least_us == 0 || k->bound_us < x.least_us))
            x.least_us = k->bound_us;
    }
    return x;
}

/* Why none of those that were built is so. */
static const char *absence_of(const eqf_searched *s, const answer *x)
{
    if (x->is_so || s->least_count == 0)
        return NULL;
    if (x->least_us > 0)
        return "dearer";
    return s->complete ? "not found" : "not reached";
}

/* ---- for people --------------------------------------------------------------------------------- */

static void print_candidate(const answer *x)
{
    const eqf_try *t = x->nearest;
    printf("%lld kernel%s", (long long)t->kernels, t->kernels == 1 ? "" : "s");
    if (t->bound_us > 0)
        printf(", bound %.4g us", t->bound_us);
    if (t->us > 0)
        printf(", measured %.4g us", t->us);
    printf("; ");
    put_visible(stdout, is_assembled(t)    ? "parts that were put together"
                        : t->reductions[0] ? t->reductions
                                           : "no reduction");
}

static void print_answer(const asked *a, const eqf_searched *s)
{
    answer x = answer_of(a, s);
    const char *absence = absence_of(s, &x);
    put_visible(stdout, s->of);
    printf(": why not ");
    put_visible(stdout, a->form);
    putchar('\n');
    if (absence && strcmp(absence, "dearer") == 0)
        printf("  dearer: one that is so would take %.4g us by the model, and was not among the most "
               "promising that were kept\n",
               x.least_us);
    else if (absence)
        printf("  %s: of %lld candidate%s that %s looked at none is so%s\n", absence,
               (long long)s->looked_at, s->looked_at == 1 ? "" : "s", s->looked_at == 1 ? "was" : "were",
               s->complete ? ", and there are no others"
                           : "; limits were met, so there may be others");
    if (!x.nearest) {
        printf("  %s: %s\n", x.status, x.verdict);
        return;
    }
    printf("  %s%s: %s\n    ", absence ? "the nearest, " : "", x.status, x.verdict);
    print_candidate(&x);
    putchar('\n');
    if (x.best == x.nearest)
        return;
    answer best = {.nearest = x.best};
    printf("  the best%s: ", x.best ? "" : ", as it was read");
    if (x.best)
        print_candidate(&best);
    else
        printf("%.4g us", s->as_read_us);
    putchar('\n');
}

/* ---- for scripts -------------------------------------------------------------------------------- */

static void json_try(const char *key, const eqf_try *t)
{
    json_key(key);
    if (!t) {
        printf("null");
        return;
    }
    printf("{\"kernels\":%lld", (long long)t->kernels);
    json_key("bound_us");
    json_number(t->bound_us);
    json_key("us");
    json_number(t->us);
    printf(",\"rolls\":%s", t->rolls ? "true" : "false");
    json_key("reductions");
    json_text(t->reductions);
    putchar('}');
}

static void json_answer(const asked *a, const eqf_searched *s)
{
    answer x = answer_of(a, s);
    const char *absence = absence_of(s, &x);
    printf("{\"of\":");
    json_text(s->of);
    json_key("status");
    json_text(absence ? absence : x.status);
    json_key("reason");
    json_text(x.verdict);
    printf(",\"is_so\":%s,\"looked_at\":%lld,\"complete\":%s", x.is_so ? "true" : "false",
           (long long)s->looked_at, s->complete ? "true" : "false");
    json_key("least_us");
    json_number(x.least_us);
    json_key("nearest_status");
    json_text(x.status);
    json_try("nearest", x.nearest);
    json_try("best", x.best);
    putchar('}');
}

int cli_why_not(cli_args *args, const char *form, const eqf_explanation *x)
{
    asked a;
    int code = read_asked(args, form, &a);
    if (code)
        return code;
    if (args->json) {
        printf("{\"package\":");
        json_text(args->file);
        json_key("why_not");
        json_text(form);
        printf(",\"searches\":[");
        for (size_t i = 0; i < x->search_count; i++) {
            printf(i ? "," : "");
            json_answer(&a, &x->searches[i]);
        }
        printf("]}\n");
        return EXIT_DONE;
    }
    if (!x->search_count)
        printf("the package was made without a search: it is computed as it was read\n");
    for (size_t i = 0; i < x->search_count; i++)
        print_answer(&a, &x->searches[i]);
    return EXIT_DONE;
}
