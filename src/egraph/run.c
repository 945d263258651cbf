/* A run: search all rules on the frozen graph, apply all matches in rule order, rebuild; again until
 * a reason to stop. Limits are tested inside search and apply; reaching one leaves a rebuilt graph.
 * The backoff scheduler decides as egg's does (Willsey et al. 2021; egraph.md 6). */
#include <time.h>

#include "egraph/apply.h"

static const char *const stop_names[] = {"saturated", "goal", "iterations", "nodes",
                                         "bytes", "time", "cancelled", "error"};

const char *eqf_stop_name(eqf_stop stop)
{
    static const char none[] = "";
    return (unsigned)stop < COUNT_OF(stop_names) ? stop_names[stop] : none;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- limits -------------------------------------------------------------------------------- */

void eg_stop_for(run *r, eqf_stop why)
{
    if (!r->stopping)
        r->stop = why;
    r->stopping = true;
}

bool eg_poll(void *user)
{
    run *r = user;
    const eqf_options *o = &r->g->options;
    if (r->deadline >= 0 && now_s() > r->deadline)
        eg_stop_for(r, EQF_STOP_TIME);
    if (o->cancelled && o->cancelled(o->user))
        eg_stop_for(r, EQF_STOP_CANCELLED);
    return r->stopping;
}

void eg_stop_for_memory(run *r)
{
    if (r->g->fail == EQF_E_LIMIT) {
        eg_stop_for(r, EQF_STOP_BYTES);
    } else {
        eg_stop_for(r, EQF_STOP_ERROR);
        r->status = r->g->fail ? r->g->fail : EQF_E_NO_MEMORY;
    }
}

/* ---- rule state ---------------------------------------------------------------------------- */

static bool find_states(run *r)
{
    eg *g = r->g;
    u64 newest = 0; /* serials grow: a later one is a rule that this e-graph has not seen */
    for (u32 k = 0; k < g->nrules; k++)
        newest = MAX(newest, g->rule[k].serial);
    for (u32 i = 0; i < r->nrules; i++) {
        u64 serial = r->rules[i]->serial;
        u32 k = i ? r->state[i - 1] + 1 : 0; /* rules tend to come back in the same order */
        if (k >= g->nrules || g->rule[k].serial != serial) {
            for (k = serial > newest ? g->nrules : 0; k < g->nrules; k++) {
                if (g->rule[k].serial == serial)
                    break;
            }
        }
        if (k == g->nrules) {
            if (g->nrules == g->rules_cap) {
                u32 cap = MAX(16, 2 * g->rules_cap);
                eg_rule_state *p =
                    eg_resize(g, g->rule, (i64)sizeof *p * g->rules_cap, (i64)sizeof *p * cap);
                if (!p)
                    return false;
                g->rule = p;
                g->rules_cap = cap;
            }
            g->rule[g->nrules++] =
                (eg_rule_state){.rule = r->rules[i], .serial = r->rules[i]->serial};
        }
        newest = MAX(newest, serial);
        r->state[i] = k;
        g->rule[k].banned_until = g->rule[k].times_banned = 0;
    }
    return true;
}

eqf_rule_stats eqf_rule_statistics(const eqf_egraph *g, const eqf_rules *rules, size_t i)
{
    for (u32 k = 0; k < g->nrules && i < (size_t)rules->rules.n; k++) {
        if (g->rule[k].serial == rules->rules.at[i]->serial)
            return g->rule[k].stats;
    }
    return (eqf_rule_stats){0};
}

/* ---- search -------------------------------------------------------------------------------- */

/* base << times, or the largest number there is. */
static i64 doubled(i64 base, u32 times)
{
    return times < 63 && base <= INT64_MAX >> times ? base << times : INT64_MAX;
}

/* Returns its work. */
static u64 search_rule(run *r, u32 i, i64 iteration)
{
    eg *g = r->g;
    const eg_rule *rule = r->rules[i];
    eg_rule_state *st = &g->rule[r->state[i]];
    bool backoff = r->sched->scheduler == EQF_BACKOFF;
    r->cut[i] = 0;
    if (backoff && iteration < (i64)st->banned_until) {
        r->cut[i] = 1;
        return 0;
    }
    i64 limit = -1;
    if (backoff)
        limit = doubled(r->backoff_limit, st->times_banned);
    eg_search s = {.g = g, .rule = rule, .watermark = st->watermark,
                   .full = r->sched->match == EQF_MATCH_FULL,
                   .delta_only = r->sched->match == EQF_MATCH_DELTA,
                   .wide = g->options.explain || rule->hide_left,
                   .limit = limit, .out = &r->matches[i],
                   .indexes = &r->indexes, .poll = eg_poll, .poll_user = r};
    eg_search_run(&s);
    st->stats.searches++;
    st->stats.matches += s.found;
    r->report.matches += s.found;
    if (s.failed) {
        if (!r->stopping)
            eg_stop_for_memory(r);
        r->cut[i] = 1;
    } else if (s.cut) {
        eg_matches_free(g, &r->matches[i]);
        i64 ban = doubled(r->backoff_ban, st->times_banned);
        st->banned_until = (u32)MIN(ban, (i64)UINT32_MAX - iteration); /* iteration < 2^26 */
        st->banned_until += (u32)iteration;
        st->times_banned++;
        st->stats.bans++;
        r->cut[i] = 1;
    }
    return s.work;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static bool banned(const run *r, i64 iteration, i64 *earliest)
{
    *earliest = INT64_MAX;
    for (u32 i = 0; i < r->nrules; i++) {
        i64 until = r->g->rule[r->state[i]].banned_until;
        if (until > iteration)
            *earliest = MIN(*earliest, until);
    }
    return *earliest != INT64_MAX;
}

/* Reading the clock takes as long as a small search, so the parts of a run share their readings. */
static double lap(run *r, double *seconds)
{
    double now = now_s();
    *seconds += now - r->lap;
    r->lap = now;
    return now;
}

/* What little rules did before counts for the first that makes it this much work. */
enum { WORTH_TIMING = 64 };

/* Pages kept for the next use during a run. */
enum { SPARE_PAGES = 8 };

/* What passed since `before` was for rule i. Returns the time. */
static double count_seconds(run *r, u32 i, double before)
{
    double now = now_s();
    r->g->rule[r->state[i]].stats.seconds += now - before;
    return now;
}

static void iterate(run *r, i64 iteration)
{
    eg *g = r->g;
    double before = r->lap;
    u64 work = 0;
    r->changed = false;
    for (u32 i = 0; i < r->nrules && !r->stopping; i++) {
        work += search_rule(r, i, iteration);
        if (work < WORTH_TIMING)
            continue;
        before = count_seconds(r, i, before);
        work = 0;
    }
    eg_index_drop(g, &r->indexes);
    before = lap(r, &r->report.search_s);
    if (r->stopping) { /* nothing applied: every rule keeps its watermark */
        for (u32 i = 0; i < r->nrules; i++)
            eg_matches_free(g, &r->matches[i]);
        return;
    }
    g->now++;
    work = 0;
    for (u32 i = 0; i < r->nrules; i++) {
        if (r->matches[i].count) {
            bool calls = r->rules[i]->dynamic >= 0 || r->rules[i]->guards.n; /* who knows for how long */
            work += calls ? WORTH_TIMING : WORTH_TIMING / 16 * (u64)r->matches[i].count;
            eg_apply(r, i);
            if (work >= WORTH_TIMING) {
                before = count_seconds(r, i, before);
                work = 0;
            }
        } else if (r->stopping) {
            r->cut[i] = 1;
        }
        if (r->cut[i])
            continue;
        if (g->marks)
            eg_journal_rule(g, r->state[i]);
        g->rule[r->state[i]].watermark = g->now;
    }
    for (u32 i = 0; i < r->nrules; i++)
        eg_matches_free(g, &r->matches[i]);
    lap(r, &r->report.apply_s);
}

static void rebuild(run *r, i64 margin)
{
    eg *g = r->g;
    g->options.limits.bytes += margin;
    eqf_status s = eg_rebuild(g);
    g->options.limits.bytes -= margin;
#ifndef NDEBUG
    if (!s)
        s = eqf_check(g);
#endif
    if (s == EQF_E_LIMIT) { /* whatever else: what is owed then counts most */
        r->stop = EQF_STOP_BYTES;
        r->stopping = true;
    } else if (s) {
        eg_stop_for(r, EQF_STOP_ERROR);
        r->status = s;
    }
    lap(r, &r->report.rebuild_s);
}

/* A callback that changed the e-graph has taken part in the run. True when it did. */
static bool called_back(run *r, const eg_state *before, i64 margin)
{
    r->lap = now_s(); /* the caller's time is not ours */
    if (eg_state_is(r->g, before))
        return false;
    rebuild(r, margin);
    return r->report.changed = true;
}

static void loop(run *r, i64 margin)
{
    eg *g = r->g;
    const eqf_limits *limits = &g->options.limits;
    for (i64 it = 0;; it++) {
        r->report.iterations = it;
        eg_state before = eg_state_of(g);
        bool met = r->sched->goal && r->sched->goal(r->sched->user, g), touched = false;
        if (r->sched->goal)
            touched = called_back(r, &before, margin);
        if (r->stopping)
            return;
        if (met) {
            r->stop = EQF_STOP_GOAL;
            return;
        }
        if ((limits->iterations >= 0 && it >= limits->iterations) || g->now == EG_LAST_TIME) {
            r->stop = EQF_STOP_ITERATIONS;
            return;
        }
        if (limits->nodes >= 0 && g->visible > limits->nodes) {
            r->stop = EQF_STOP_NODES;
            return;
        }
        if (eg_poll(r))
            return;
        iterate(r, it);
        rebuild(r, margin);
        r->report.changed |= r->changed;
        r->report.iterations = it + 1;
        if (r->stopping)
            return;
        before = eg_state_of(g);
        if (r->sched->after) {
            r->sched->after(r->sched->user, g, it + 1);
            touched |= called_back(r, &before, margin);
        }
        if (r->stopping)
            return;
        if (r->changed || touched)
            continue;
        i64 earliest;
        if (r->sched->scheduler == EQF_SIMPLE || !banned(r, it, &earliest)) {
            r->stop = EQF_STOP_SATURATED;
            return;
        }
        for (u32 i = 0; i < r->nrules; i++) { /* go straight to the first release */
            eg_rule_state *st = &g->rule[r->state[i]];
            if (st->banned_until > it)
                st->banned_until -= (u32)(earliest - it);
        }
    }
}

eqf_status eg_run(eg *g, eg_rule *const *rules, u32 n, const eqf_schedule *schedule,
                  eqf_run_report *out)
{
    static const eqf_schedule defaults = {0};
    run r = {.g = g, .rules = rules, .nrules = n, .sched = schedule ? schedule : &defaults};
    r.backoff_limit = r.sched->backoff_limit > 0 ? r.sched->backoff_limit : 1000;
    r.backoff_ban = r.sched->backoff_ban > 0 ? r.sched->backoff_ban : 5;
    double t0 = r.lap = now_s();
    r.deadline = g->options.limits.seconds >= 0 ? t0 + g->options.limits.seconds : -1;
    *out = (eqf_run_report){.stop = EQF_STOP_ERROR};
    i64 size = (i64)(sizeof *r.matches + sizeof *r.state + 1) * MAX(n, 1);
    char *block = eg_resize(g, NULL, 0, size);
    if (!block && g->fail == EQF_E_LIMIT) {
        out->stop = EQF_STOP_BYTES;
        return EQF_OK;
    }
    if (!block)
        return eg_failed(g, "starting a run");
    g->scratch_bytes += size;
    g->spare_most = SPARE_PAGES;
    memset(block, 0, (size_t)size);
    r.matches = (eg_matches *)block;
    r.state = (u32 *)(block + (i64)sizeof *r.matches * MAX(n, 1));
    r.cut = (u8 *)(r.state + MAX(n, 1));
    /* what a rebuild may need is kept back from search and apply */
    i64 limit = g->options.limits.bytes, margin = limit > 0 ? MIN(limit / 16, 4 << 20) : 0;
    if (find_states(&r)) {
        g->fail = EQF_OK;
        rebuild(&r, 0);
        g->options.limits.bytes -= margin;
        if (!r.stopping)
            loop(&r, margin);
        g->options.limits.bytes += margin;
    } else {
        eg_stop_for_memory(&r);
    }
    eg_index_free(g, &r.indexes);
    eg_trim(g);
    g->spare_most = 0;
    eg_spare_free(g);
    r.report.total_s = lap(&r, &r.report.rebuild_s) - t0;
    r.report.stop = r.stop;
    *out = r.report;
    eg_free(g, block, size);
    g->scratch_bytes -= size;
    if (r.status == EQF_E_CONTRADICTION)
        return eg_contradiction(g);
    if (r.status == EQF_E_NO_MEMORY)
        return eg_failed(g, "running rules");
    return r.status;
}

eqf_status eqf_run(eqf_egraph *g, const eqf_rules *rules, const eqf_schedule *schedule,
                   eqf_run_report *out)
{
    if (rules->lang != g->lang)
        return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, "eqf_run",
                          "the rules are of another language than the e-graph");
    return eg_run(g, rules->rules.at, (u32)rules->rules.n, schedule, out);
}

eqf_status eg_match_count(eg *g, const eg_rule *pattern, u32 in, i64 limit, i64 *out)
{
    *out = 0;
    eqf_status status = eqf_rebuild(g);
    if (status)
        return status;
    eg_search s = {.g = g, .rule = pattern, .full = true, .limit = limit,
                   .in_class = in ? eg_find(g, in) : 0};
    eg_search_run(&s);
    *out = s.found;
    return s.failed ? eg_failed(g, "matching a pattern") : EQF_OK;
}

eqf_status eqf_match_count(eqf_egraph *g, eqf_text pattern, eqf_class in, int64_t limit,
                           int64_t *out)
{
    *out = 0;
    eqf_status status = in.i ? eg_check_class(g, in, "eqf_match_count") : EQF_OK;
    if (status)
        return status;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        const sx *all = sx_read(a, NULL, pattern.at, (i64)pattern.n);
        if (all->n != 1)
            sx_throw(g->ctx, NULL, all, "expected one pattern, found %lld", (long long)all->n);
        eqf_status s =
            eg_match_count(g, eg_pattern_read(g->lang, a, NULL, all->at[0]), in.i, limit, out);
        if (s)
            eqf_rethrow(g->ctx, s);
    }
    arena_free(a);
    return t.status;
}
