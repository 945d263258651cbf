/* Forms of one program compete. */
#include <stdio.h>

#include "driver/contest.h"

#define FASTER 0.97 /* less is noise */
#define LAST_RACE_S 0.5

contest *contest_new(making *first, const char *path, bool is_published)
{
    contest *c = NEW(first->a, contest);
    *c = (contest){.first = first,
                   .path = path,
                   .is_published = is_published,
                   .best = first->ir,
                   .best_directory = is_published ? path : pk_directory(first->writer),
                   .best_us = first->verified.median_us,
                   .uses = 1};
    return c;
}

void contest_search(contest *c, f64 seconds, i64 most)
{
    making *m = c->first;
    search_times times = {0};
    trap t;
    TRY (m->ctx, t)
        c->found = driver_candidates(m->a, m->ir, make_space(m), m->threads, seconds, most,
                                     m->verified.peaks, &times);
    c->rules = times.rules;
    c->rule_count = times.rule_count;
    m->report.saturate_s += times.saturate_s;
    m->report.extract_s += times.extract_s;
    if (t.status == EQF_OK)
        return;
    c->found = (ex_report){0};
    if (t.status != EQF_E_LIMIT && t.status != EQF_E_UNSUPPORTED)
        eqf_rethrow(m->ctx, t.status);
    eqf_ctx_clear(m->ctx); /* too large for one search: it stays as it is */
}

static bool is_faster(const making *x)
{
    const verified *v = &x->verified;
    return v->least_us < FASTER * v->rival_least_us && v->median_us <= v->rival_median_us;
}

static bool is_accurate(const making *first, const making *x)
{
    f64 factor = first->options.accuracy == EQF_STRICT ? 1.1 : 2;
    for (i64 i = 0; i < x->ir->outputs.n && first->options.accuracy != EQF_FAST; i++) {
        f64 floor = (dtype)x->ir->outputs.at[i].dtype == DT_f32
                        ? 1e-6
                        : compare_tolerance((dtype)x->ir->outputs.at[i].dtype) / 2;
        if (first->options.accuracy == EQF_STRICT)
            floor /= 10;
        if (x->verified.rel_l2[i] > MAX(factor * first->verified.rel_l2[i], floor))
            return false;
    }
    return true;
}

/* Did an integer or a bool differ? A form is equal over the reals; where floats are rounded another way
 * a comparison may be decided another way, so such a form is none, and nothing is wrong with it. */
static bool is_decision(const making *first, eqf_status status)
{
    const ir_program *p = first->ir;
    const char *place = eqf_diag_count(first->ctx) ? eqf_diag_get(first->ctx, 0).place : "";
    for (i64 i = 0; i < p->outputs.n && status == EQF_E_MISMATCH; i++)
        if (strcmp(intern_text(p->names, p->outputs.at[i].name), place) == 0)
            return !dtype_is_float((dtype)p->outputs.at[i].dtype);
    return false;
}

static void count_failure(making *first)
{
    eqf_diag d = eqf_diag_get(first->ctx, 0);
    if (first->report.failed++ == 0)
        first->report.failure =
            arena_printf(first->a, "%s%s%s", d.place, d.place[0] ? ": " : "", d.message);
}

/* A candidate that takes too long to compile is none; the file is not tried again. */
static void refuse(making *first)
{
    const char *file = eqf_diag_get(first->ctx, 0).file;
    for (i64 i = 0; i < first->refused->n; i++)
        if (strcmp(first->refused->at[i], file) == 0)
            return;
    vec_push(first->shared, first->refused, arena_strdup(first->shared, file));
}

static bool race(contest *c, const ir_program *form, const ex_candidate *from, f64 seconds,
                 verified *out)
{
    making *first = c->first;
    eqf_ctx *ctx = first->ctx;
    making *m = NEW(first->a, making);
    *m = *first;
    m->a = arena_child(first->a);
    m->ir = form;
    m->writer = NULL;
    m->kernels = (kn_kernels){0};
    m->package = (rt_package){0};
    m->rival = c->best_directory;
    m->race_s = seconds;
    volatile bool taken = false;
    const char *volatile against = NULL;
    trap t;
    TRY (ctx, t) {
        make_package(m, c->path);
        if (!is_accurate(first, m))
            against = "its error is larger than is allowed";
        else if (is_faster(m))
            against = reference_refuse_large(&m->reference, &m->verified, first->deadline);
        taken = !against && is_faster(m);
        if (taken && c->is_published)
            make_publish(m, c->path);
    }
    *out = t.status ? (verified){0} : m->verified;
    const char *why = t.status && eqf_diag_count(ctx) ? eqf_diag_get(ctx, 0).message
                      : t.status                      ? "it could not be built"
                      : against                       ? against
                                                      : "";
    /* beside its rival, since the machine may be busier than it was */
    const f64 us = t.status ? 0
                            : c->best_us * m->verified.median_us / MAX(m->verified.rival_median_us, 1e-3);
    vec_push(first->a, &c->tries,
             ((tried){from, us,
                      from ? from->kernels : m->package.kernel_count,
                      taken && !t.status, t.status != EQF_OK, arena_strdup(first->a, why)}));
    first->reference = m->reference;
    first->report.verify_s = m->report.verify_s;
    if (taken && t.status == EQF_OK) {
        c->best = form;
        c->best_us = MAX(us, m->verified.least_us);
        if (!c->is_published) {
            if (c->best_arena)
                arena_free(c->best_arena);
            c->best_arena = m->a;
            c->best_directory = pk_directory(m->writer);
        }
        first->report.best_us = m->report.best_us;
        first->report.roofline = m->report.roofline;
        first->report.kernels = m->report.kernels;
        first->report.subgraphs = m->report.subgraphs;
        first->report.distinct_subgraphs = m->report.distinct_subgraphs;
    }
    if (m->a != c->best_arena)
        arena_free(m->a);
    if (t.status == EQF_OK)
        return taken;
    if (t.status == EQF_E_INTERRUPTED || t.status == EQF_E_NO_MEMORY || t.status == EQF_E_IO)
        eqf_rethrow(ctx, t.status);
    if (t.status == EQF_E_LIMIT && rt_now() < first->deadline)
        refuse(first);
    else if (t.status != EQF_E_LIMIT && !is_decision(first, t.status))
        count_failure(first);
    eqf_ctx_clear(ctx);
    return false;
}

bool contest_try(contest *c, const ir_program *form, const ex_candidate *from)
{
    verified v;
    c->first->report.measured++;
    return race(c, form, from, RACE_S, &v);
}

bool contest_try_again(contest *c, const ir_program *form, const ex_candidate *from, verified *out)
{
    return race(c, form, from, LAST_RACE_S, out);
}
