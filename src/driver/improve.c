/* Packages of other forms, while time is left.
 *
 * Forms of the whole compete, where it is small enough for one search, and so do forms of its parts,
 * cut in several ways that overlap. Rounds try one form of each; now and then the best of the parts is
 * put together and competes as a form of the whole. What was not looked at when the budget ends was the
 * least promising. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/contest.h"
#include "driver/improve.h"
#include "driver/proof.h"

#define SEARCH_SHARE 0.2 /* of the budget */
#define MOST_CANDIDATES 16
#define PROOF_SHARE 0.05 /* of the budget, for deriving and checking what was chosen */
#define PROOF_S 5.0      /* no more than that */
#define SMALL_SHARE 0.02 /* of a run; a part below it gets a try or two */

typedef struct improving {
    contest *whole;
    making *m;
    partings parts;
    f64 started, budget, build_s; /* of the whole, as it is */
    f64 proof_s;                  /* for deriving and checking what was chosen */
    VEC(const composed *) joined; /* the parts, as they were put together so far */
    const composed *chosen;       /* the best of the whole is put together so; NULL: in one piece */
} improving;

static f64 left(const improving *x)
{
    return x->started + x->budget - rt_now();
}

/* ---- search ----------------------------------------------------------------------------------- */

static void search_all(improving *x)
{
    making *m = x->m;
    f64 end = rt_now() + SEARCH_SHARE * x->budget;
    for (i64 i = -1; i < x->parts.contest_count; i++) {
        contest *c = i < 0 ? x->whole : x->parts.contests[i];
        f64 seconds = MIN(end, x->started + x->budget) - rt_now();
        if (seconds <= 0)
            return;
        make_begin(m, i < 0 ? "searching"
                            : arena_printf(m->a, "searching part %lld of %lld", (long long)i + 1,
                                           (long long)x->parts.contest_count));
        pt_partition cut;
        if (i >= 0 || parts_is_small(m->a, m->ir, m->options.parameters_are_inputs, &cut))
            contest_search(c, seconds / (f64)(x->parts.contest_count - i), MOST_CANDIDATES);
        m->report.candidates += c->found.n;
        m->report.families += c->found.sets;
        if (c == x->whole)
            continue;
        m->report.saturate_s += c->first->report.saturate_s;
        m->report.extract_s += c->first->report.extract_s;
    }
}

/* ---- the parts together ----------------------------------------------------------------------- */

static bool is_new(const improving *x, const composed *c)
{
    bool new = !parts_as_read(c);
    for (i64 i = 0; i < x->joined.n; i++)
        new = new && !parts_same(c, x->joined.at[i]);
    return new;
}

/* The best of all parts, and, since what parts save need not add up, that of each way to cut. */
static void join_parts(improving *x)
{
    making *m = x->m;
    for (i64 i = -1; i < x->parts.n && x->parts.n > 0 && left(x) > 0; i++) {
        composed *c = NEW(m->a, composed);
        *c = parts_compose(m->a, &x->parts, i);
        if (!is_new(x, c))
            continue;
        vec_push(m->a, &x->joined, c);
        make_begin(m, arena_printf(m->a, "putting %lld parts together, best %.3g us, as read %.3g us",
                                   (long long)c->cut.use_count, m->report.best_us,
                                   m->report.unfused_us));
        m->subgraphs = c->cut.use_count;
        m->distinct_subgraphs = c->cut.part_count;
        if (contest_try(x->whole, pt_join(m->a, m->ir, &c->cut, c->forms), NULL))
            x->chosen = c;
        m->subgraphs = m->distinct_subgraphs = 1;
        m->report.candidates++;
    }
}

/* For what comes at the end: most of what is put together, and all that runs again, has been compiled
 * by then. */
static f64 reserve(const improving *x)
{
    const int races = (x->parts.n > 0) + (x->whole->best != x->m->ir);
    return races * x->build_s / 2;
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static f64 share(const improving *x, const contest *c)
{
    if (c == x->whole)
        return 1;
    return c->first->verified.median_us * (f64)c->uses / MAX(x->m->report.unfused_us, 1e-3);
}

/* One form of each; false when there was none. Time to put parts together is kept. */
static bool try_round(improving *x, i64 round)
{
    making *m = x->m;
    bool any = false;
    for (i64 i = -1; i < x->parts.contest_count; i++) {
        contest *c = i < 0 ? x->whole : x->parts.contests[i];
        if (c->next >= c->found.n || (round >= 2 && share(x, c) < SMALL_SHARE))
            continue;
        if (left(x) <= reserve(x))
            return any;
        const char *of = i < 0 ? "" : arena_printf(m->a, " of part %lld of %lld", (long long)i + 1,
                                                   (long long)x->parts.contest_count);
        make_begin(m, arena_printf(m->a, "trying %lld of %lld%s, best %.3g us, as read %.3g us",
                                   (long long)c->next + 1, (long long)c->found.n, of,
                                   m->report.best_us, m->report.unfused_us));
        const ex_candidate *form = &c->found.at[c->next++];
        if (contest_try(c, form->program, form) && c == x->whole)
            x->chosen = NULL;
        any = true;
    }
    return any;
}

/* ---- once more -------------------------------------------------------------------------------- */

#define RUNNERS_UP 3
#define CLOSE 1.1 /* times the best, by what each took in its first race */

/* The fastest of the whole's forms that ran `before` and lost, but not by far; NULL: none is left. */
static const tried *runner_up(const improving *x, const tried *before)
{
    const tried *next = NULL;
    for (i64 i = 0; i < x->whole->tries.n; i++) {
        const tried *t = &x->whole->tries.at[i];
        bool ran = t->form && !t->failed && !t->why[0] && t->form->program != x->whole->best;
        if (ran && t->us < CLOSE * x->whole->best_us && (!before || t->us > before->us) &&
            (!next || t->us < next->us))
            next = t;
    }
    return next;
}

/* Each winner beat only the one before it, and in a short race: chance adds up. So those that came
 * close, and at last the program as it is, race the best again, for longer. */
static void race_again(improving *x)
{
    making *m = x->m;
    const ex_candidate *forms[RUNNERS_UP + 1] = {0};
    i64 n = 0;
    for (const tried *t = NULL; n < RUNNERS_UP && (t = runner_up(x, t)) != NULL;)
        forms[n++] = t->form;
    for (i64 i = 0; i <= n && left(x) > 0; i++) {
        const ir_program *form = i < n ? forms[i]->program : m->ir;
        if (form == x->whole->best)
            continue;
        make_begin(m, arena_printf(m->a, "once more, %lld of %lld, best %.3g us, as read %.3g us",
                                   (long long)i + 1, (long long)n + 1, m->report.best_us,
                                   m->report.unfused_us));
        verified v;
        if (contest_try_again(x->whole, form, forms[i], &v))
            x->chosen = NULL;
        if (i == n && v.median_us > 0) { /* times of one moment compare, those of two may not */
            f64 best = m->report.best_us;
            m->report.unfused_us = v.median_us;
            m->report.best_us = x->whole->best == m->ir ? v.median_us : v.rival_median_us;
            m->report.roofline *= best / m->report.best_us;
        }
    }
}

static void count_parts(improving *x)
{
    eqf_optimize_report *r = &x->m->report;
    for (i64 i = 0; i < x->parts.contest_count; i++) {
        const eqf_optimize_report *p = &x->parts.contests[i]->first->report;
        r->measured += p->measured;
        r->verify_s += p->verify_s;
        if (p->failed && !r->failed)
            r->failure = p->failure;
        r->failed += p->failed;
    }
}

static void run_rounds(improving *x)
{
    eqf_optimize_report *r = &x->m->report;
    f64 tuning = rt_now();
    for (i64 round = 0; left(x) > 0; round++) {
        bool any = try_round(x, round);
        if (!any || (round & (round + 1)) == 0) /* after 1, 2, 4 ... rounds */
            join_parts(x);
        r->tune_s = rt_now() - tuning;
        if (!any) {
            r->stop = left(x) > reserve(x) ? "exhausted" : "budget";
            break;
        }
    }
    race_again(x);
    r->tune_s = rt_now() - tuning;
}

/* ---- why it is right ---------------------------------------------------------------------------- */

typedef struct patience {
    f64 deadline;
    const volatile bool *cancel;
} patience;

static bool is_spent(void *user)
{
    const patience *p = user;
    return rt_now() > p->deadline || (p->cancel && *p->cancel);
}

static proof_part part_of(const improving *x, i64 i)
{
    const ir_program *as_read = x->chosen ? x->chosen->cut.parts[i].program : x->m->ir;
    const ir_program *form = x->chosen ? x->chosen->forms[i] : x->whole->best;
    return (proof_part){.program = as_read,
                        .form = form == as_read ? NULL : form,
                        .uses = x->chosen ? x->chosen->cut.parts[i].uses : 1};
}

/* Only what was checked is claimed: proofs that a reader of the package would refuse are left out. */
static void keep_what_holds(improving *x, proof *p, arena *a, patience *patient)
{
    const eqf_program *program = x->m->program;
    str text = str_new(a);
    proof_print(&text, p);
    trap t;
    const char *volatile why = NULL;
    proof *volatile read = NULL;
    TRY (x->m->ctx, t) {
        read = proof_read(a, "proof.eqf", str_text(&text), text.n, program->text,
                          (i64)strlen(program->text));
        proof_replay(a, read, is_spent, patient);
    }
    if (t.status == EQF_E_NO_MEMORY || t.status == EQF_E_INTERRUPTED)
        eqf_rethrow(x->m->ctx, t.status);
    if (t.status != EQF_OK) {
        why = arena_strdup(a, eqf_diag_get(x->m->ctx, 0).message);
        eqf_ctx_clear(x->m->ctx);
    }
    for (i64 i = 0; i < p->parts.n; i++) {
        const char *refused = why ? why : read->parts.at[i].refused;
        if (!p->parts.at[i].derivation || !refused)
            continue;
        p->parts.at[i].derivation = NULL;
        p->parts.at[i].why_not = refused;
    }
}

/* proof.eqf of the best; NULL: that of the package as it was read is whole. */
static const char *derivation(improving *x, arena *a)
{
    making *m = x->m;
    if (x->whole->best == m->ir)
        return NULL;
    make_begin(m, "proving");
    patience patient = {rt_now() + x->proof_s, m->options.cancel};
    proof p = {.computes = x->whole->best, .space = make_space(m)};
    memcpy(p.digest, m->program->digest, sizeof p.digest);
    for (i64 i = 0; x->chosen && i < x->chosen->cut.use_count; i++)
        vec_push(a, &p.ends, x->chosen->cut.uses[i].to);
    for (i64 i = 0; i < (x->chosen ? x->chosen->cut.part_count : 1); i++) {
        proof_part part = part_of(x, i);
        f64 seconds = (patient.deadline - rt_now()) / 2; /* the other half is for checking */
        if (part.form && seconds > 0)
            part.derivation =
                driver_derive(a, part.program, part.form, make_space(m), seconds, &part.why_not);
        else if (part.form)
            part.why_not = "the time for it was over";
        vec_push(a, &p.parts, part);
    }
    keep_what_holds(x, &p, a, &patient);
    str text = str_new(a);
    proof_print(&text, &p);
    return str_text(&text);
}

static const char *boolean(bool x)
{
    return x ? "true" : "false";
}

/* What the search says of a candidate, without the end; NULL: parts that were put together. */
static void add_form(str *s, const ex_candidate *c)
{
    str_printf(s, "{\"bound_us\":%.6g,\"rolls\":%s,\"reductions\":\"", c ? c->bound_us : 0,
               boolean(c && c->rolls));
    for (i64 i = 0; c && i < c->reduction_count; i++)
        str_printf(s, "%s%s over %s", i ? ", " : "", c->reductions[i].name, c->reductions[i].over);
    str_add(s, "\"");
}

static void add_contest(str *s, const char *of, const contest *c)
{
    str_printf(s, "{\"of\":\"%s\",\"as_read_us\":%.6g,\"looked_at\":%lld,\"complete\":%s,\n \"tries\":[", of,
               c->first->verified.median_us, (long long)c->found.distinct, boolean(c->found.is_exhaustive));
    for (i64 i = 0; i < c->tries.n; i++) {
        const tried *t = &c->tries.at[i];
        str_add(s, i ? ",\n  " : "");
        add_form(s, t->form);
        str_printf(s, ",\"us\":%.6g,\"kernels\":%lld,\"taken\":%s,\"failed\":%s,\"why\":", t->us,
                   (long long)t->kernels, boolean(t->taken), boolean(t->failed));
        str_add_json(s, t->why);
        str_add(s, "}");
    }
    str_add(s, "],\n \"untried\":[");
    for (i64 i = c->next; i < c->found.n; i++) {
        str_add(s, i > c->next ? ",\n  " : "");
        add_form(s, &c->found.at[i]);
        str_printf(s, ",\"kernels\":%lld}", (long long)c->found.at[i].kernels);
    }
    str_add(s, "],\n \"least\":[");
    for (i64 i = 0; i < c->found.least_count; i++) {
        const ex_least *x = &c->found.least[i];
        str_printf(s, "%s{\"kernels\":%lld,\"rolls\":%s,\"bound_us\":%.6g}", i ? "," : "",
                   (long long)x->kernels, boolean(x->rolls), x->bound_us);
    }
    str_add(s, "],\n \"rules\":[");
    for (i64 i = 0, n = 0; i < c->rule_count; i++) {
        if (!c->rules[i].stats.matches)
            continue;
        str_add(s, n++ ? ",{\"name\":" : "{\"name\":");
        str_add_json(s, c->rules[i].name);
        str_printf(s, ",\"matches\":%lld,\"enodes\":%lld}",
                   (long long)c->rules[i].stats.matches, (long long)c->rules[i].stats.nodes);
    }
    str_add(s, "]}");
}

static void release_json(void *root)
{
    json_decref(root);
}

static void release_text(void *text)
{
    free(text);
}

/* What report.json says, with what is known now that the search is over; the last brace is left out. */
static const char *now_known(const improving *x, arena *a, const char *text, i64 n)
{
    const eqf_optimize_report *r = &x->m->report;
    json_t *root = json_loadb(text, (size_t)n, 0, NULL);
    if (!root)
        eqf_throw(x->m->ctx, EQF_E_IO, "report.json", NULL, "it was changed, or memory is full");
    arena_defer(a, release_json, root);
    json_object_set_new(root, "candidates", json_integer(r->candidates));
    json_object_set_new(root, "families", json_integer(r->families));
    json_object_set_new(root, "measured", json_integer(r->measured));
    json_object_set_new(root, "failed", json_integer(r->failed));
    json_object_set_new(root, "roofline", json_real(r->roofline));
    json_t *times = json_object_get(root, "time_us");
    json_object_set_new(times, "unfused", json_real(r->unfused_us));
    json_object_set_new(times, "best", json_real(r->best_us));
    char *out = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!out)
        eqf_throw(x->m->ctx, EQF_E_NO_MEMORY, NULL, NULL, "out of memory");
    arena_defer(a, release_text, out);
    *strrchr(out, '}') = 0;
    return out;
}

/* report.json of the package at the path, with what was searched and tried. */
static const char *whole_report(improving *x, arena *a, const char *path)
{
    i64 n;
    char *text = file_read(a, arena_printf(a, "%s/report.json", path), 1 << 30, &n);
    str s = str_new(a);
    str_add(&s, now_known(x, a, text, n));
    str_add(&s, ",\n\"searches\":[");
    add_contest(&s, "the program", x->whole);
    for (i64 i = 0; i < x->parts.contest_count; i++) {
        str_add(&s, ",\n ");
        add_contest(&s, arena_printf(a, "part %lld", (long long)i + 1), x->parts.contests[i]);
    }
    str_add(&s, "]}\n");
    return str_text(&s);
}

/* The package at the path gets the derivation of its form, and says what else was tried. */
static void complete(improving *x, const char *path)
{
    arena *a = arena_child(x->m->a);
    const char *proof_text = derivation(x, a);
    pk_file files[] = {{"report.json", whole_report(x, a, path)}, {"proof.eqf", proof_text}};
    pk_replace(a, path, files, proof_text ? 2 : 1);
    arena_free(a);
}

static void look_for_faster(improving *x)
{
    x->parts = parts_find(x->whole);
    search_all(x);
    run_rounds(x);
}

/* A disk that is full, or memory that is, ends the search and not the call: the package at the path is
 * whole, and its proof claims no more than was checked. Allocates nothing. Rethrows the rest, such as
 * data that changed under the search: what is there now belongs to no program. */
static void end_search(making *m, eqf_status status)
{
    if (status == EQF_OK)
        return;
    if (status != EQF_E_IO && status != EQF_E_NO_MEMORY)
        eqf_rethrow(m->ctx, status);
    eqf_program *p = m->program;
    eqf_diag d = eqf_diag_get(m->ctx, 0);
    snprintf(p->stop_reason, sizeof p->stop_reason, "%s%s%s%s%s", d.file, d.file[0] ? ": " : "",
             d.place, d.place[0] ? ": " : "",
             status == EQF_E_NO_MEMORY ? "out of memory" : d.message); /* no room for its own */
    eqf_ctx_clear(m->ctx);
    m->report.stop = "machine";
    m->report.stop_reason = p->stop_reason;
    program_expect_unchanged(p);
}

void improve(making *m, const char *path, f64 started, f64 budget)
{
    improving x = {.m = m, .started = started, .budget = budget, .build_s = rt_now() - started};
    m->report.stop = m->package.kernel_count == 0 ? "exhausted" : "budget";
    if (m->package.kernel_count == 0 || left(&x) <= 0)
        return;
    x.proof_s = MIN(PROOF_SHARE * budget, PROOF_S);
    x.budget -= x.proof_s;
    m->deadline = started + x.budget;
    make_begin(m, "searching");
    trap t;
    TRY (m->ctx, t) {
        x.whole = contest_new(m, path, true);
        look_for_faster(&x);
    }
    count_parts(&x);
    if (t.status != EQF_OK) {
        end_search(m, t.status);
        return;
    }
    TRY (m->ctx, t)
        complete(&x, path);
    end_search(m, t.status);
}
