/* One self-contained page about a package: program, form, derivation, kernels, what grew the e-graphs,
 * and candidates as a scatter of what a model expected against what was measured. No script, nothing
 * loaded. */
#include <math.h>
#include <string.h>

#include "cli/cli.h"

enum { WIDTH = 560, HEIGHT = 360, LEFT = 70, BOTTOM = 40, SHOWN_RULES = 24, BAR = 320 };

static void text(FILE *f, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '&')
            fputs("&amp;", f);
        else if (c == '<')
            fputs("&lt;", f);
        else if (c == '>')
            fputs("&gt;", f);
        else if (c == '"')
            fputs("&quot;", f);
        else if (c >= ' ' || c == '\n')
            fputc(c, f);
        else
            fputc('?', f);
    }
}

static void program(FILE *f, const char *title, const char *source)
{
    fprintf(f, "<h2>%s</h2>\n<pre>", title);
    text(f, source);
    fputs("</pre>\n", f);
}

/* ---- derivation --------------------------------------------------------------------------------- */

static void part(FILE *f, const eqf_derived_part *p, size_t i, size_t n, bool replayed)
{
    fputs("<h3>", f);
    if (n > 1)
        fprintf(f, "Piece %zu of %zu, %lld times", i + 1, n, (long long)p->uses);
    else
        fputs("The program", f);
    fprintf(f, ": %s</h3>\n",
            !p->changed ? "as it was read" : p->by_value[0] ? "by value only" : "derived");
    if (p->by_value[0]) {
        fputs("<p>", f);
        text(f, p->by_value);
        fputs("</p>\n", f);
    }
    if (p->refused[0]) {
        fputs("<p class=bad>Refused at ", f);
        text(f, p->refused);
        fputs("</p>\n", f);
    } else if (replayed && p->step_count) {
        fprintf(f, "<p>Checked: %lld elementary steps replayed, %lld assumptions.</p>\n",
                (long long)p->checked, (long long)p->assumptions);
    }
    for (size_t k = 0; k < p->own_rule_count; k++) {
        fprintf(f, k ? ", " : "<p>By rules of the package's own, %s: ",
                replayed ? "tested" : "not tested");
        text(f, p->own_rules[k]);
    }
    if (p->own_rule_count)
        fputs("</p>\n", f);
    if (p->step_count)
        fputs("<ol>\n", f);
    for (size_t k = 0; k < p->step_count; k++) {
        fputs("<li><b>", f);
        text(f, p->steps[k].rule);
        fputs("</b> ", f);
        text(f, p->steps[k].meaning);
        fputs("<pre>  ", f);
        text(f, p->steps[k].from);
        fputs("\n= ", f);
        text(f, p->steps[k].to);
        fputs("</pre></li>\n", f);
    }
    if (p->step_count)
        fputs("</ol>\n", f);
}

/* ---- kernels ------------------------------------------------------------------------------------ */

static void kernels(FILE *f, const eqf_explanation *x)
{
    double bound = 0;
    for (size_t i = 0; i < x->kernel_count; i++)
        bound += x->kernels[i].bound_us;
    fprintf(f,
            "<h2>Kernels</h2>\n<p>%.4g us when the package was made, %.3g%% of the roofline; one "
            "kernel an operator: %.4g us.</p>\n<table><tr><th>kernel<th>computes<th>FLOP<th>bytes"
            "<th>bound us<th>share</tr>\n",
            x->best_us, 100 * x->roofline, x->unfused_us);
    for (size_t i = 0; i < x->kernel_count; i++) {
        const eqf_kernel *k = &x->kernels[i];
        fputs("<tr><td>", f);
        text(f, k->name);
        fputs("<td>", f);
        text(f, k->origin);
        fprintf(f, "<td class=n>%lld<td class=n>%lld<td class=n>%.4g<td class=n>%.1f%%</tr>\n",
                (long long)k->flops, (long long)k->bytes, k->bound_us,
                bound > 0 ? 100 * k->bound_us / bound : 0.0);
    }
    fputs("</table>\n", f);
}

/* ---- searches ----------------------------------------------------------------------------------- */

typedef struct axis {
    double low, high; /* decimal logarithms */
    int from, to;     /* pixels */
} axis;

static void stretch(axis *a, double value)
{
    if (value <= 0)
        return;
    a->low = fmin(a->low, log10(value));
    a->high = fmax(a->high, log10(value));
}

static double place(const axis *a, double value)
{
    double part = (log10(value) - a->low) / fmax(a->high - a->low, 1e-9);
    return a->from + part * (a->to - a->from);
}

static void ticks(FILE *f, const axis *a, bool vertical)
{
    static const double steps[] = {1, 2, 5};
    for (int decade = (int)floor(a->low); decade <= (int)ceil(a->high); decade++)
        for (size_t i = 0; i < 3; i++) {
            double value = steps[i] * pow(10, decade);
            if (log10(value) < a->low || log10(value) > a->high)
                continue;
            double at = place(a, value);
            if (vertical)
                fprintf(f,
                        "<path class=grid d='M%d %.1fH%d'/>"
                        "<text x=%d y=%.1f text-anchor=end>%.4g</text>\n",
                        LEFT, at, WIDTH, LEFT - 6, at + 4, value);
            else
                fprintf(f,
                        "<path class=grid d='M%.1f 10V%d'/>"
                        "<text x=%.1f y=%d text-anchor=middle>%.4g</text>\n",
                        at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 16, value);
        }
}

static void scatter(FILE *f, const eqf_searched *s)
{
    axis x = {1e9, -1e9, LEFT, WIDTH - 10}, y = {1e9, -1e9, HEIGHT - BOTTOM, 10};
    size_t shown = 0;
    stretch(&y, s->as_read_us);
    for (size_t i = 0; i < s->try_count; i++) {
        if (s->tries[i].us <= 0 || s->tries[i].bound_us <= 0)
            continue;
        shown++;
        stretch(&x, s->tries[i].bound_us);
        stretch(&y, s->tries[i].us);
    }
    if (!shown)
        return;
    x.low -= 0.05, x.high += 0.05, y.low -= 0.05, y.high += 0.05;
    fprintf(f, "<svg width=%d height=%d>\n", WIDTH + 10, HEIGHT);
    ticks(f, &x, false);
    ticks(f, &y, true);
    if (s->as_read_us > 0)
        fprintf(f,
                "<path class=read d='M%d %.1fH%d'><title>as it was read: %.4g us</title></path>\n",
                LEFT, place(&y, s->as_read_us), WIDTH, s->as_read_us);
    for (size_t i = 0; i < s->try_count; i++) {
        const eqf_try *t = &s->tries[i];
        if (t->us <= 0 || t->bound_us <= 0)
            continue;
        fprintf(f,
                "<circle class=%s cx=%.1f cy=%.1f r=5><title>candidate %zu: bound %.4g us, measured "
                "%.4g us, %lld kernels%s</title></circle>\n",
                t->taken ? "taken" : "tried", place(&x, t->bound_us), place(&y, t->us), i + 1,
                t->bound_us, t->us, (long long)t->kernels, t->taken ? ", the best until then" : "");
    }
    fprintf(f,
            "<text x=%d y=%d text-anchor=middle>bound of the model, us</text><text x=12 y=%d "
            "transform='rotate(-90 12 %d)' text-anchor=middle>measured, us</text></svg>\n",
            (LEFT + WIDTH) / 2, HEIGHT - 6, HEIGHT / 2, HEIGHT / 2);
}

/* The rules that added most e-nodes; a selection sort of a short list. */
static void growth(FILE *f, const eqf_searched *s)
{
    long long most = 0;
    for (size_t i = 0; i < s->rule_count; i++)
        most = s->rules[i].enodes > most ? (long long)s->rules[i].enodes : most;
    if (!most)
        return;
    fputs("<table><tr><th>rule<th>matches<th>e-nodes<th></tr>\n", f);
    long long below = most + 1;
    int shown = 0;
    while (shown < SHOWN_RULES) {
        long long next = 0;
        for (size_t i = 0; i < s->rule_count; i++)
            if (s->rules[i].enodes < below && s->rules[i].enodes > next)
                next = (long long)s->rules[i].enodes;
        if (!next)
            break;
        for (size_t i = 0; i < s->rule_count && shown < SHOWN_RULES; i++) {
            if (s->rules[i].enodes != next)
                continue;
            fputs("<tr><td>", f);
            text(f, s->rules[i].rule);
            fprintf(f,
                    "<td class=n>%lld<td class=n>%lld"
                    "<td><div class=bar style='width:%lldpx'></div></tr>\n",
                    (long long)s->rules[i].matches, next, BAR * next / most);
            shown++;
        }
        below = next;
    }
    fputs("</table>\n", f);
}

static void search(FILE *f, const eqf_searched *s)
{
    size_t taken = 0, failed = 0;
    for (size_t i = 0; i < s->try_count; i++) {
        taken += s->tries[i].taken;
        failed += s->tries[i].failed;
    }
    fputs("<h3>", f);
    text(f, s->of);
    fprintf(f,
            "</h3>\n<p>%zu candidates were built: %zu became the best, %zu failed. "
            "As it was read: %.4g us.</p>\n",
            s->try_count, taken, failed, s->as_read_us);
    scatter(f, s);
    growth(f, s);
}

/* ---- the page ----------------------------------------------------------------------------------- */

static const char head[] =
    "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
    "content='width=device-width'>\n<style>body{font:15px/1.5 sans-serif;max-width:70em;margin:2em "
    "auto;padding:0 1em;color:#222}pre{background:#f4f4f4;padding:.6em;overflow-x:auto;font-size:13px}"
    "table{border-collapse:collapse;margin:1em 0}th,td{padding:.15em .8em;text-align:left;"
    "border-bottom:1px solid #ddd}.n{text-align:right}.bar{background:#4a7fb5;height:.8em}"
    ".grid{stroke:#ddd}.read{stroke:#b54a4a;stroke-width:2}svg text{font-size:12px;fill:#444}"
    ".tried{fill:#4a7fb5;fill-opacity:.6}.taken{fill:#2f9e44}.bad{color:#b00}</style>\n";

bool cli_write_html(FILE *f, const char *package, const eqf_explanation *x, bool replayed)
{
    fputs(head, f);
    fputs("<title>", f);
    text(f, package);
    fputs("</title></head><body>\n<h1>", f);
    text(f, package);
    fputs("</h1>\n<p>Made from ", f);
    text(f, x->source);
    fputs(".</p>\n", f);
    kernels(f, x);
    program(f, "Program", x->program);
    if (x->form[0])
        program(f, "What the kernels compute", x->form);
    fputs("<h2>Derivation</h2>\n", f);
    if (!x->part_count)
        fputs("<p>The program is computed as it was read, one kernel an operator.</p>\n", f);
    for (size_t i = 0; i < x->part_count; i++)
        part(f, &x->parts[i], i, x->part_count, replayed);
    if (x->search_count)
        fputs("<h2>Search</h2>\n<p>Each point is a candidate; green: the best until then; the red "
              "line: the program as it was read. Below, the rules by the e-nodes that they "
              "added.</p>\n",
              f);
    for (size_t i = 0; i < x->search_count; i++)
        search(f, &x->searches[i]);
    fputs("</body></html>\n", f);
    return fflush(f) == 0 && !ferror(f);
}
