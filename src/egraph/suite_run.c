/* Running suite cases. Everything goes through the public interface, except that patterns and terms
 * come as S-expressions that were read and checked before. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "egraph/suite.h"

typedef struct mark_name {
    const char *name;
    const eqf_egraph *g; /* that it is of */
    eqf_mark mark;
} mark_name;

typedef struct size_pair {
    i64 nodes, classes;
} size_pair;

typedef struct runner {
    eqf_ctx *ctx;
    arena *a;
    eg_case *c;
    const eqf_suite_options *options;
    VEC(eg_case_graph) graphs; /* [0] is the case's own */
    VEC(mark_name) marks;
    VEC(size_pair) trace;
    eg_case_graph *at; /* the e-graph that steps act on */
    eqf_run_report last;
    bool ran;
    i64 found, steps; /* steps: taken so far */
    double search_s, apply_s, rebuild_s, extract_s, total_s;
    i64 proofs, proof_steps, assumptions;
    str reason; /* first failure */
    bool failed;
    const sx *until;
    eqf_status goal_status; /* of a goal that could not be tested */
} runner;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *file_of(const runner *r)
{
    return r->c->suite->file;
}

PRINTF_LIKE(3, 4) static void fail(runner *r, const sx *at, const char *format, ...)
{
    if (r->failed)
        return;
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->failed = true;
    str_printf(&r->reason, "line %u: %s", at->line, text);
}

/* A status that is no failed check but ends the case. */
static void must(runner *r, eqf_status s)
{
    if (s)
        eqf_rethrow(r->ctx, s);
}

static const char *text_of(runner *r, const sx *x)
{
    str s = str_new(r->a);
    sx_print(&s, x);
    return str_text(&s);
}

/* ---- e-graphs ------------------------------------------------------------------------------ */

static eg_case_graph *new_graph(runner *r, const char *name)
{
    eqf_options o = {.limits = r->c->limits};
    if (r->options->bytes > 0)
        o.limits.bytes = r->options->bytes;
    o.explain = r->options->proofs || r->c->wants_proof;
    eg_case_graph g = {.name = name};
    must(r, eqf_egraph_new(r->c->lang, &o, &g.g));
    arena_defer(r->a, (void (*)(void *))eqf_egraph_free, g.g);
    must(r, eg_builtins_attach(r->c->builtins, g.g, r->c->analyses.at, r->c->analyses.n));
    vec_reserve(r->a, &r->graphs, 64); /* they are pointed at */
    if (r->graphs.n == 64)
        eqf_throw(r->ctx, EQF_E_LIMIT, file_of(r), r->c->form->name, "more than 64 e-graphs");
    vec_push(r->a, &r->graphs, g);
    return &r->graphs.at[r->graphs.n - 1];
}

/* NULL, and the case fails, when the step that makes it was not taken. */
static eg_case_graph *graph_named(runner *r, const sx *name)
{
    for (i64 i = 1; i < r->graphs.n; i++) {
        if (strcmp(r->graphs.at[i].name, name->text) == 0)
            return &r->graphs.at[i];
    }
    fail(r, name, "no e-graph %s has been made", name->text);
    return NULL;
}

static eqf_class add(runner *r, const sx *term)
{
    u32 c = eg_add_sx(r->at->g, file_of(r), term, NULL);
    if (!c)
        must(r, eg_failed(r->at->g, "adding a term"));
    return (eqf_class){c};
}

static eqf_class look_up(runner *r, const sx *term)
{
    return (eqf_class){eg_lookup_sx(r->at->g, file_of(r), term, NULL)};
}

static bool holds_equal(runner *r, const sx *a, const sx *b)
{
    eqf_class x = look_up(r, a), y = look_up(r, b);
    return x.i && y.i && eqf_find(r->at->g, x).i == eqf_find(r->at->g, y).i;
}

/* Roots of the case: (roots …), or every term. */
static eqf_class *roots(runner *r, i64 *n)
{
    const eg_case *c = r->c;
    const sx *const *list = c->roots.n ? c->roots.at : c->terms.at;
    *n = c->roots.n ? c->roots.n : c->terms.n;
    eqf_class *out = NEW_N(r->a, eqf_class, *n);
    for (i64 i = 0; i < *n; i++) {
        out[i] = look_up(r, list[i]);
        if (!out[i].i)
            eqf_throw(r->ctx, EQF_E_DATA, file_of(r), c->form->name, "root %s is absent",
                      text_of(r, list[i]));
    }
    return out;
}

static bool goal_holds(runner *r, const eg_rule *pattern)
{
    i64 n, found;
    eqf_class *at = roots(r, &n);
    must(r, eg_match_count(r->at->g, pattern, at[0].i, 1, &found));
    return found > 0;
}

/* ---- proofs -------------------------------------------------------------------------------- */

static bool proved_in(runner *r, eg_case_graph *g, const char *a, const char *b);

/* What an equality of a meet or join stands on: proofs in the e-graphs it was made from. */
static eqf_verdict judge(void *user, const char *reason, const char *a, const char *b)
{
    runner *r = user;
    eg_case_graph *g = r->at;
    if (strcmp(reason, "given") != 0 || !g->left)
        return eg_builtins_step(r->c->builtins, reason, a, b);
    bool left = proved_in(r, g->left, a, b);
    bool holds = g->meet ? left && proved_in(r, g->right, a, b)
                         : left || proved_in(r, g->right, a, b);
    return holds ? EQF_HOLDS : EQF_REFUSED;
}

static void check_proof(runner *r, const sx *at, const char *a, const char *b, eqf_proof *proof,
                        eqf_form form)
{
    char *text;
    if (form == EQF_FLAT && eqf_proof_length(proof) > 2000)
        return; /* the shared form says the same */
    eqf_status written = eqf_proof_text(proof, form, &text);
    if (written == EQF_E_LIMIT && form == EQF_FLAT)
        return; /* the same */
    must(r, written);
    str axioms = str_new(r->a), rules = str_new(r->a);
    for (i64 i = 0; i < r->at->axioms.n; i++) {
        const sx *x = r->at->axioms.at[i];
        const sx *reason = eg_keyword(x, 3, ":reason");
        str_add(&axioms, "(axiom ");
        if (reason)
            sx_print(&axioms, reason);
        else
            str_add(&axioms, "axiom");
        str_add(&axioms, " ");
        sx_print(&axioms, x->at[1]);
        str_add(&axioms, " ");
        sx_print(&axioms, x->at[2]);
        str_add(&axioms, ")\n");
    }
    for (i64 i = 0; i < r->c->rules.n; i++) {
        sx_print(&rules, r->c->rules.at[i]->source);
        str_add(&rules, "\n");
    }
    for (i64 k = 0; k < r->c->sets.n; k++) {
        for (i64 i = 0; i < r->c->sets.at[k].rules.n; i++) {
            sx_print(&rules, r->c->sets.at[k].rules.at[i]->source);
            str_add(&rules, "\n");
        }
    }
    eqf_checking checking = {.rules = {str_text(&rules), (size_t)rules.n},
                             .axioms = {str_text(&axioms), (size_t)axioms.n},
                             .step = judge,
                             .user = r};
    eqf_check_report report;
    size_t before = eqf_diag_count(r->ctx);
    eqf_status s = eqf_proof_check(r->ctx, eqf_text_of(text), eqf_text_of(a), eqf_text_of(b),
                                   &checking, &report);
    if (s) {
        size_t n = eqf_diag_count(r->ctx);
        fail(r, at, "the checker refuses the proof of %s = %s: %s", a, b,
             n > before ? eqf_diag_get(r->ctx, n - 1).message : eqf_status_name(s));
    } else if (form == EQF_SHARED) {
        r->proofs++;
        r->proof_steps += report.steps;
        r->assumptions += report.assumptions;
    }
    eqf_text_free(r->ctx, text);
}

static eqf_proof *explain(runner *r, const sx *at, const char *a, const char *b);

static bool proved_in(runner *r, eg_case_graph *g, const char *a, const char *b)
{
    eqf_class x, y;
    if (eqf_lookup_text(g->g, eqf_text_of(a), &x) || eqf_lookup_text(g->g, eqf_text_of(b), &y) ||
        !x.i || !y.i || eqf_find(g->g, x).i != eqf_find(g->g, y).i)
        return false;
    eg_case_graph *outer = r->at;
    bool failed = r->failed;
    r->at = g;
    eqf_proof *proof = explain(r, r->c->form->form, a, b);
    bool ok = proof && r->failed == failed;
    eqf_proof_free(proof);
    r->at = outer;
    return ok;
}

static eqf_proof *explain(runner *r, const sx *at, const char *a, const char *b)
{
    eqf_proof *proof = NULL;
    size_t before = eqf_diag_count(r->ctx);
    eqf_status s = eqf_explain(r->at->g, eqf_text_of(a), eqf_text_of(b), &proof);
    if (s) {
        size_t n = eqf_diag_count(r->ctx);
        fail(r, at, "cannot explain %s = %s: %s", a, b,
             n > before ? eqf_diag_get(r->ctx, n - 1).message : eqf_status_name(s));
        return NULL;
    }
    check_proof(r, at, a, b, proof, EQF_SHARED);
    check_proof(r, at, a, b, proof, EQF_FLAT);
    return proof;
}

/* --proofs: an equality that holds is explained, checked, shortened, checked. */
static void prove(runner *r, const sx *at, const char *a, const char *b)
{
    if (!r->options->proofs || r->failed)
        return;
    eqf_proof *proof = explain(r, at, a, b);
    if (!proof)
        return;
    i64 length = eqf_proof_length(proof);
    must(r, eqf_proof_reduce(r->at->g, proof));
    if (eqf_proof_length(proof) > length)
        fail(r, at, "reduction lengthened a proof from %lld terms to %lld", (long long)length,
             (long long)eqf_proof_length(proof));
    check_proof(r, at, a, b, proof, EQF_SHARED);
    eqf_proof_free(proof);
}

/* The instance of a goal that the root's class holds, as text; "" when a variable has none. */
static const char *goal_instance(runner *r, const eg_rule *pattern, eqf_class root);

static void check_explain(runner *r, const sx *x)
{
    eqf_proof *proof = explain(r, x, text_of(r, x->at[1]), text_of(r, x->at[2]));
    if (!proof)
        return;
    const sx *flat = eg_keyword(x, 3, ":flat"), *reduced = eg_keyword(x, 3, ":reduced");
    const sx *reasons = eg_keyword(x, 3, ":reasons");
    if (flat && eqf_proof_length(proof) != flat->i)
        fail(r, x, "found a proof of %lld terms, wanted %lld", (long long)eqf_proof_length(proof),
             (long long)flat->i);
    if (reasons) {
        const char *const *list;
        size_t n;
        must(r, eqf_proof_reasons(proof, 100000, &list, &n));
        bool same = (i64)n == reasons->n;
        str s = str_new(r->a);
        for (size_t i = 0; i < n; i++) {
            same = same && strcmp(list[i], reasons->at[i]->text) == 0;
            str_printf(&s, "%s%s", i ? " " : "", list[i]);
        }
        if (!same)
            fail(r, x, "found the reasons (%s), wanted %s", str_text(&s), text_of(r, reasons));
    }
    i64 length = eqf_proof_length(proof);
    must(r, eqf_proof_reduce(r->at->g, proof));
    if (eqf_proof_length(proof) > length)
        fail(r, x, "reduction lengthened the proof");
    if (reduced && eqf_proof_length(proof) != reduced->i)
        fail(r, x, "found a reduced proof of %lld terms, wanted %lld",
             (long long)eqf_proof_length(proof), (long long)reduced->i);
    check_proof(r, x, text_of(r, x->at[1]), text_of(r, x->at[2]), proof, EQF_SHARED);
    check_proof(r, x, text_of(r, x->at[1]), text_of(r, x->at[2]), proof, EQF_FLAT);
    eqf_proof_free(proof);
}

/* ---- checks -------------------------------------------------------------------------------- */

static void check_matches(runner *r, const sx *x)
{
    const sx *in = eg_keyword(x, 3, ":in"), *limit = eg_keyword(x, 3, ":limit");
    const sx *expect = eg_keyword(x, 3, ":expect");
    eqf_class root = {0};
    if (in) {
        root = look_up(r, in);
        if (!root.i) {
            fail(r, x, "%s is absent", text_of(r, in));
            return;
        }
    }
    const eg_rule *p = eg_pattern_read(r->c->lang, r->a, file_of(r), x->at[1]);
    i64 found;
    must(r, eg_match_count(r->at->g, p, root.i, limit ? limit->i : -1, &found));
    i64 want = limit ? expect->i : x->at[2]->i;
    if (found != want)
        fail(r, x, "found %lld matches, wanted %lld", (long long)found, (long long)want);
}

static eqf_extraction *extract(runner *r, eqf_algo algo)
{
    i64 n;
    eqf_class *at = roots(r, &n);
    eqf_extraction *x;
    double t0 = now_s();
    must(r, eqf_extract(r->at->g, at, (size_t)n, NULL, algo, &x));
    r->extract_s += now_s() - t0;
    return x;
}

static void check_best(runner *r, const sx *x)
{
    i64 n;
    eqf_class *at = roots(r, &n);
    eqf_extraction *e = extract(r, EQF_TREE);
    const char *found, *want = text_of(r, x->at[1]);
    eqf_status s = eqf_extraction_text(e, at[0], false, 0, &found);
    if (s)
        fail(r, x, "the best term cannot be written");
    else if (strcmp(found, want) != 0)
        fail(r, x, "found %s, wanted %s", found, want);
    else
        prove(r, x, text_of(r, r->c->roots.n ? r->c->roots.at[0] : r->c->terms.at[0]), want);
    eqf_extraction_free(e);
}

static void check_costs(runner *r, const sx *x)
{
    i64 n;
    eqf_class *at = roots(r, &n);
    if (sx_is_form(x, "dag-cost")) {
        eqf_extraction *e = extract(r, EQF_EXACT);
        if (eqf_dag_cost(e) != x->at[1]->f || !eqf_extraction_report(e).optimal)
            fail(r, x, "found DAG cost %g%s, wanted %g", eqf_dag_cost(e),
                 eqf_extraction_report(e).optimal ? "" : " (not proved)", x->at[1]->f);
        eqf_extraction_free(e);
        return;
    }
    if (n != x->n - 1) {
        fail(r, x, "found %lld roots, wanted %lld costs", (long long)n, (long long)x->n - 1);
        return;
    }
    eqf_extraction *e = extract(r, EQF_TREE);
    for (i64 i = 0; i < n; i++) {
        f64 cost = eqf_tree_cost(e, at[i]);
        if (cost != x->at[i + 1]->f)
            fail(r, x, "found cost %g for root %lld, wanted %g", cost, (long long)i + 1,
                 x->at[i + 1]->f);
    }
    eqf_extraction_free(e);
}

static void check_trace(runner *r, const sx *x)
{
    for (i64 i = 1; i < x->n; i++) {
        i64 nodes = x->at[i]->at[0]->i, classes = x->at[i]->at[1]->i;
        if (i > r->trace.n) {
            fail(r, x, "found %lld iterations, wanted %lld", (long long)r->trace.n,
                 (long long)x->n - 1);
            return;
        }
        const size_pair *p = &r->trace.at[i - 1];
        if (p->nodes != nodes || p->classes != classes)
            fail(r, x, "after iteration %lld found %lld e-nodes in %lld classes, wanted %lld in "
                       "%lld",
                 (long long)i, (long long)p->nodes, (long long)p->classes, (long long)nodes,
                 (long long)classes);
    }
}

static bool full_search(const runner *r)
{
    return (r->c->has_match ? r->c->schedule.match : r->options->match) == EQF_MATCH_FULL;
}

static void check_numbers(runner *r, const sx *x)
{
    eqf_size size = eqf_egraph_size(r->at->g);
    if (sx_is_form(x, "size")) {
        i64 n = eg_keyword(x, 1, ":nodes")->i, c = eg_keyword(x, 1, ":classes")->i;
        if (size.nodes != n || size.classes != c)
            fail(r, x, "found %lld e-nodes in %lld classes, wanted %lld in %lld",
                 (long long)size.nodes, (long long)size.classes, (long long)n, (long long)c);
    } else if (sx_is_form(x, "at-most")) {
        if (size.nodes > eg_keyword(x, 1, ":nodes")->i)
            fail(r, x, "found %lld e-nodes, wanted at most %lld", (long long)size.nodes,
                 (long long)eg_keyword(x, 1, ":nodes")->i);
    } else if (sx_is_form(x, "found")) {
        if (full_search(r) && r->found != x->at[1]->i)
            fail(r, x, "found %lld matches in the run, wanted %lld", (long long)r->found,
                 (long long)x->at[1]->i);
    } else if (sx_is_form(x, "stop")) {
        const char *stop = r->ran ? eqf_stop_name(r->last.stop) : "no run";
        if (!sx_is(x->at[1], stop))
            fail(r, x, "found stop %s, wanted %s", stop, x->at[1]->text);
    } else if (sx_is_form(x, "iterations")) {
        if (r->last.iterations != x->at[1]->i)
            fail(r, x, "found %lld iterations, wanted %lld", (long long)r->last.iterations,
                 (long long)x->at[1]->i);
    }
}

static void check_goal(runner *r, const sx *x)
{
    const eg_rule *p = eg_pattern_read(r->c->lang, r->a, file_of(r), x->at[1]);
    bool holds = goal_holds(r, p), wanted = sx_is_form(x, "goal");
    if (holds != wanted) {
        fail(r, x, "%s %s the first root's class", text_of(r, x->at[1]),
             holds ? "is in" : "is not in");
    } else if (wanted && r->options->proofs) {
        i64 n;
        eqf_class *at = roots(r, &n);
        const char *instance = goal_instance(r, p, at[0]);
        prove(r, x, text_of(r, r->c->roots.n ? r->c->roots.at[0] : r->c->terms.at[0]), instance);
    }
}

static void check(runner *r, const sx *x)
{
    if (r->failed)
        return;
    must(r, eqf_rebuild(r->at->g));
    if (sx_is_form(x, "equal")) {
        if (!holds_equal(r, x->at[1], x->at[2]))
            fail(r, x, "%s and %s are not equal", text_of(r, x->at[1]), text_of(r, x->at[2]));
        else
            prove(r, x, text_of(r, x->at[1]), text_of(r, x->at[2]));
    } else if (sx_is_form(x, "notequal")) {
        if (holds_equal(r, x->at[1], x->at[2]))
            fail(r, x, "%s and %s are equal", text_of(r, x->at[1]), text_of(r, x->at[2]));
    } else if (sx_is_form(x, "goal") || sx_is_form(x, "nogoal")) {
        check_goal(r, x);
    } else if (sx_is_form(x, "matches")) {
        check_matches(r, x);
    } else if (sx_is_form(x, "best")) {
        check_best(r, x);
    } else if (sx_is_form(x, "cost") || sx_is_form(x, "dag-cost")) {
        check_costs(r, x);
    } else if (sx_is_form(x, "trace-size")) {
        check_trace(r, x);
    } else if (sx_is_form(x, "explain")) {
        check_explain(r, x);
    } else if (sx_is_form(x, "bounds")) {
        eqf_class c = look_up(r, x->at[1]);
        f64 lo = (f64)NAN, hi = (f64)NAN;
        if (c.i)
            eg_builtins_bounds(r->c->builtins, r->at->g, c, &lo, &hi);
        if (!(lo == x->at[2]->f && hi == x->at[3]->f))
            fail(r, x, "found bounds %g %g, wanted %g %g", lo, hi, x->at[2]->f, x->at[3]->f);
    } else {
        check_numbers(r, x);
    }
}

/* ---- runs ---------------------------------------------------------------------------------- */

/* Would the check hold now? Used for :until, which reports nothing. */
static bool would_hold(runner *r, const sx *x)
{
    runner probe = *r;
    eqf_suite_options quiet = *r->options;
    quiet.proofs = false;
    probe.options = &quiet;
    probe.failed = false;
    probe.reason = str_new(r->a);
    check(&probe, x);
    return !probe.failed;
}

static bool goals_hold(runner *r)
{
    if (r->until)
        return would_hold(r, r->until);
    for (i64 i = 0; i < r->c->goals.n; i++) {
        if (!goal_holds(r, r->c->goals.at[i]))
            return false;
    }
    return true;
}

/* Called by the engine, through which nothing may be thrown. */
static bool run_goal(void *user, eqf_egraph *g)
{
    (void)g;
    runner *r = user;
    volatile bool hold = true; /* also what ends the run */
    trap t;
    TRY(r->ctx, t)
        hold = goals_hold(r);
    r->goal_status = t.status;
    return hold;
}

static void run_after(void *user, eqf_egraph *g, int64_t iteration)
{
    (void)iteration;
    runner *r = user;
    eqf_size s = eqf_egraph_size(g);
    size_pair p = {s.nodes, s.classes};
    vec_push(r->a, &r->trace, p);
}

static bool run_rules(runner *r, const eg_rule_list *rules, i64 iterations, const sx *until)
{
    eqf_schedule s = r->c->schedule;
    if (!r->c->has_match)
        s.match = r->options->match;
    s.user = r;
    s.goal = until || r->c->goals.n ? run_goal : NULL;
    s.after = r->c->wants_trace ? run_after : NULL;
    r->until = until;
    r->goal_status = EQF_OK;
    r->trace.n = 0;
    eqf_limits saved = r->at->g->options.limits, limits = saved;
    if (iterations >= 0)
        limits.iterations = iterations;
    eqf_egraph_set_limits(r->at->g, limits);
    eqf_run_report report;
    eqf_status st = eg_run(r->at->g, rules->at, (u32)rules->n, &s, &report);
    eqf_egraph_set_limits(r->at->g, saved);
    must(r, r->goal_status ? r->goal_status : st);
    r->last = report;
    r->ran = true;
    r->found += report.matches;
    r->search_s += report.search_s;
    r->apply_s += report.apply_s;
    r->rebuild_s += report.rebuild_s;
    r->until = NULL;
    return report.changed;
}

static void unite(runner *r, const sx *x)
{
    const sx *reason = eg_keyword(x, 3, ":reason");
    static const char axiom[] = "axiom";
    must(r, eg_union_sx(r->at->g, file_of(r), x->at[1], x->at[2],
                        eqf_text_of(reason ? reason->text : axiom), NULL));
    vec_push(r->a, &r->at->axioms, x);
}

static bool act(runner *r, const sx *x)
{
    if (sx_is_form(x, "term")) {
        for (i64 i = 1; i < x->n; i++)
            add(r, x->at[i]);
    } else if (sx_is_form(x, "union")) {
        unite(r, x);
    } else if (sx_is_form(x, "bound")) {
        eqf_class c = add(r, x->at[1]);
        must(r, eg_builtins_bound(r->c->builtins, r->at->g, c, x->at[2]->f, x->at[3]->f));
    } else {
        return false;
    }
    return true;
}

static bool steps(runner *r, const sx *form, i64 from);

/* Takes a mark of this e-graph, and its later ones, off the list. NULL, and the case fails, when
 * the step that opens it was not taken, or another closed it. */
static const eqf_mark *take_mark(runner *r, const sx *name)
{
    i64 i = r->marks.n, kept = 0;
    while (i-- > 0) {
        if (r->marks.at[i].g == r->at->g && strcmp(r->marks.at[i].name, name->text) == 0)
            break;
    }
    if (i < 0) {
        fail(r, name, "no mark %s is open", name->text);
        return NULL;
    }
    eqf_mark *mark = arena_copy(r->a, &r->marks.at[i].mark, sizeof *mark);
    for (i64 k = 0; k < r->marks.n; k++) {
        if (k < i || r->marks.at[k].g != r->at->g)
            r->marks.at[kept++] = r->marks.at[k];
    }
    r->marks.n = kept;
    return mark;
}

static bool step_run(runner *r, const sx *x)
{
    eg_rule_list rules = {0};
    i64 i = 1;
    for (; i < x->n && x->at[i]->text && x->at[i]->text[0] != ':'; i++) {
        const eg_rule_list *set = eg_case_set_named(r->c, x->at[i]);
        for (i64 k = 0; k < set->n; k++)
            vec_push(r->a, &rules, set->at[k]);
    }
    const sx *n = eg_keyword(x, i, ":iterations");
    return run_rules(r, i > 1 ? &rules : &r->c->rules, n ? n->i : -1, eg_keyword(x, i, ":until"));
}

static void step_graph(runner *r, const sx *x)
{
    eg_case_graph *outer = r->at;
    const char *name = x->at[1]->text;
    for (i64 i = 1; i < r->graphs.n; i++) {
        if (strcmp(r->graphs.at[i].name, name) == 0) {
            fail(r, x->at[1], "e-graph %s has been made already", name);
            return;
        }
    }
    if (sx_is_form(x, "graph")) {
        r->at = new_graph(r, name);
        steps(r, x, 2);
        must(r, eqf_rebuild(r->at->g));
    } else {
        eg_case_graph g = {.name = name, .left = graph_named(r, x->at[2]),
                           .right = graph_named(r, x->at[3]), .meet = sx_is_form(x, "meet")};
        if (!g.left || !g.right)
            return;
        must(r, g.meet ? eqf_meet(g.left->g, g.right->g, &g.g)
                       : eqf_join(g.left->g, g.right->g, &g.g));
        arena_defer(r->a, (void (*)(void *))eqf_egraph_free, g.g);
        if (r->graphs.n == 64)
            eqf_throw(r->ctx, EQF_E_LIMIT, file_of(r), r->c->form->name, "more than 64 e-graphs");
        vec_push(r->a, &r->graphs, g);
    }
    r->at = outer;
}

/* A case ends, also one that repeats repetitions. */
enum { MOST_STEPS = 1000000 };

/* Returns whether anything changed, as far as runs tell. */
static bool step(runner *r, const sx *x)
{
    if (++r->steps > MOST_STEPS) {
        fail(r, x, "the case takes more than %d steps", MOST_STEPS);
        return false;
    }
    if (act(r, x))
        return true;
    if (sx_is_form(x, "rebuild")) {
        must(r, eqf_rebuild(r->at->g));
    } else if (sx_is_form(x, "run")) {
        return step_run(r, x);
    } else if (sx_is_form(x, "repeat")) {
        bool changed = false;
        for (i64 k = 0; k < x->at[1]->i && !r->failed; k++)
            changed |= steps(r, x, 2);
        return changed;
    } else if (sx_is_form(x, "saturate")) {
        bool changed = false;
        while (!r->failed && steps(r, x, 1))
            changed = true;
        return changed;
    } else if (sx_is_form(x, "mark")) {
        mark_name m = {.name = x->at[1]->text, .g = r->at->g};
        must(r, eqf_mark_open(r->at->g, &m.mark));
        vec_push(r->a, &r->marks, m);
    } else if (sx_is_form(x, "undo")) {
        const eqf_mark *mark = take_mark(r, x->at[1]);
        if (mark)
            must(r, eqf_undo(r->at->g, *mark));
    } else if (sx_is_form(x, "keep")) {
        const eqf_mark *mark = take_mark(r, x->at[1]);
        if (mark)
            must(r, eqf_keep(r->at->g, *mark));
    } else if (sx_is_form(x, "graph") || sx_is_form(x, "meet") || sx_is_form(x, "join")) {
        step_graph(r, x);
    } else if (sx_is_form(x, "in")) {
        eg_case_graph *outer = r->at;
        r->at = graph_named(r, x->at[1]);
        for (i64 i = 2; i < x->n && r->at; i++)
            check(r, x->at[i]);
        r->at = outer;
    } else {
        check(r, x);
    }
    return false;
}

static bool steps(runner *r, const sx *form, i64 from)
{
    bool changed = false;
    for (i64 i = from; i < form->n && !r->failed; i++)
        changed |= step(r, form->at[i]);
    return changed;
}

static void run_clauses(runner *r)
{
    const eg_case *c = r->c;
    static const char main_graph[] = "";
    r->at = new_graph(r, main_graph);
    double t0 = now_s();
    for (i64 i = 0; i < c->form->clauses.n; i++)
        act(r, c->form->clauses.at[i]);
    if (c->steps) {
        steps(r, c->steps, 1);
    } else {
        must(r, eqf_rebuild(r->at->g));
        run_rules(r, &c->rules, -1, NULL);
    }
    r->total_s = now_s() - t0;
    for (i64 i = 0; i < c->form->clauses.n; i++) {
        const sx *x = c->form->clauses.at[i];
        static const char *const others[] = {"rules", "scheduler", "limits", "analysis",
                                             "match", "term", "union", "bound",
                                             "steps", "roots", "reference"};
        bool is_check = true;
        for (i64 k = 0; k < COUNT_OF(others); k++)
            is_check = is_check && !sx_is_form(x, others[k]);
        if (is_check)
            check(r, x);
    }
}

/* A pattern with the term of each variable in its place. */
static void print_instance(str *out, const sx *x, const eg_rule *r, const char *const *term)
{
    if (x->kind == SX_LIST) {
        for (i64 i = 0; i < x->n; i++) {
            str_add_char(out, i ? ' ' : '(');
            print_instance(out, x->at[i], r, term);
        }
        str_add_char(out, ')');
        return;
    }
    for (u32 v = 0; v < r->nvars && x->kind == SX_SYMBOL; v++) {
        if (r->var_name[v] && sx_is(x, r->var_name[v])) {
            str_add(out, term[v]);
            return;
        }
    }
    sx_print(out, x);
}

/* The first match of a pattern in a class, written as a term that is present. */
static const char *goal_instance(runner *r, const eg_rule *pattern, eqf_class root)
{
    eqf_egraph *g = r->at->g;
    eg_rule all = *pattern; /* keep every variable of the match */
    for (u32 v = 0; v < all.nvars; v++) {
        if (all.where[v] == EG_ROOT) {
            all.where[v] = all.nsave;
            all.save[all.nsave++] = v;
        }
    }
    eg_matches found = {0};
    eg_search s = {.g = g, .rule = &all, .full = true, .limit = 1, .out = &found,
                   .in_class = eqf_find(g, root).i};
    eg_search_run(&s);
    if (!found.first)
        eqf_bug(r->ctx, "a goal that held has no match");
    const u32 *row = found.first->at;
    /* any tree of each variable's class will do: the cheapest */
    eqf_class *classes = NEW_N(r->a, eqf_class, all.nvars + 1);
    i64 n = 0;
    for (u32 v = 0; v < all.nvars; v++) {
        if (all.var_name[v])
            classes[n++].i = row[all.where[v]];
    }
    eqf_extraction *x;
    const char **term = NEW_N(r->a, const char *, all.nvars + 1);
    eqf_status status = eqf_extract(g, classes, (size_t)n, NULL, EQF_TREE, &x);
    for (u32 v = 0; v < all.nvars && !status; v++) {
        const char *text;
        if (!all.var_name[v])
            continue;
        status = eqf_extraction_text(x, (eqf_class){row[all.where[v]]}, false, 0, &text);
        term[v] = status ? NULL : arena_strdup(r->a, text);
    }
    eqf_extraction_free(x);
    eg_matches_free(g, &found);
    must(r, status);
    str built = str_new(r->a);
    print_instance(&built, pattern->source, pattern, term);
    return str_text(&built);
}

/* ---- results ------------------------------------------------------------------------------- */

static const char *reference(runner *r)
{
    for (i64 i = 0; i < r->c->form->clauses.n; i++) {
        if (sx_is_form(r->c->form->clauses.at[i], "reference"))
            return text_of(r, r->c->form->clauses.at[i]);
    }
    static const char none[] = "";
    return none;
}

/* One run of a case; the result's strings live in `a`. */
static void run_once(eg_suite *s, arena *a, const eg_case_form *form,
                     const eqf_suite_options *options, eqf_case_result *out)
{
    arena *mine = arena_child(a);
    runner *r = NEW(mine, runner);
    r->ctx = s->ctx;
    r->a = mine;
    r->options = options;
    r->reason = str_new(a);
    static const char none[] = "";
    *out = (eqf_case_result){.name = form->name, .stop = none, .digest = none, .reason = none,
                             .reference = none};
    trap t;
    size_t before = eqf_diag_count(s->ctx);
    TRY(s->ctx, t)
    {
        r->c = eg_case_read(s, mine, form);
        run_clauses(r);
    }
    if (t.status == EQF_E_NO_MEMORY)
        eqf_rethrow(s->ctx, t.status);
    if (t.status && !r->failed) {
        size_t n = eqf_diag_count(s->ctx);
        r->failed = true;
        str_printf(&r->reason, "line %u: %s: %s", form->form->line, eqf_status_name(t.status),
                   n > before ? eqf_diag_get(s->ctx, n - 1).message : "");
    }
    out->passed = !r->failed;
    out->reason = str_text(&r->reason);
    if (r->ran)
        out->stop = eqf_stop_name(r->last.stop);
    out->iterations = r->last.iterations;
    out->search_ms = 1e3 * r->search_s;
    out->apply_ms = 1e3 * r->apply_s;
    out->rebuild_ms = 1e3 * r->rebuild_s;
    out->extract_ms = 1e3 * r->extract_s;
    out->total_ms = 1e3 * r->total_s;
    out->proofs = r->proofs;
    out->proof_steps = r->proof_steps;
    out->assumptions = r->assumptions;
    if (r->graphs.n) {
        eqf_egraph *g = r->graphs.at[0].g;
        eqf_size size = eqf_egraph_size(g);
        out->nodes = size.nodes;
        out->classes = size.classes;
        out->bytes = size.bytes;
        out->peak_bytes = size.peak_bytes;
        char digest[33];
        if (eqf_digest(g, digest) == EQF_OK)
            out->digest = arena_strdup(a, digest);
    }
    if (r->c)
        out->reference = arena_strdup(a, reference(r));
    arena_free(mine);
}

static void run_case(eg_suite *s, const eg_case_form *form, const eqf_suite_options *options,
                     eqf_case_result *out, arena *a)
{
    run_once(s, a, form, options, out);
    for (i64 k = 1; k < options->repeat; k++) {
        eqf_case_result again;
        run_once(s, a, form, options, &again);
        out->search_ms = fmin(out->search_ms, again.search_ms);
        out->apply_ms = fmin(out->apply_ms, again.apply_ms);
        out->rebuild_ms = fmin(out->rebuild_ms, again.rebuild_ms);
        out->extract_ms = fmin(out->extract_ms, again.extract_ms);
        out->total_ms = fmin(out->total_ms, again.total_ms);
        if (strcmp(again.digest, out->digest) != 0) {
            static const char differs[] = "a repetition gave another digest";
            out->passed = false;
            out->reason = differs;
        }
    }
}

typedef VEC(eg_case_form) case_list;

/* The case of that name, else the members of that family, else any one member of a family. */
static void add_named(eg_suite *s, const char *name, case_list *out)
{
    i64 before = out->n;
    for (i64 k = 0; k < s->cases.n && out->n == before; k++) {
        if (strcmp(s->cases.at[k].name, name) == 0)
            vec_push(s->a, out, s->cases.at[k]);
    }
    for (i64 k = 0, was = out->n; k < s->cases.n && was == before; k++) {
        const sx *form = s->cases.at[k].form;
        if (sx_is_form(form, "family") && strcmp(form->at[1]->text, name) == 0)
            vec_push(s->a, out, s->cases.at[k]);
    }
    eg_case_form member = {0};
    if (out->n == before && eg_suite_member(s, name, &member))
        vec_push(s->a, out, member);
    if (out->n == before)
        eqf_throw(s->ctx, EQF_E_ARGUMENT, s->file, name, "no such case");
}

static bool run_all(eg_suite *s, const eqf_suite_options *options,
                    void (*each)(void *user, const eqf_case_result *result), void *user)
{
    bool passed = true;
    case_list list = {0};
    for (size_t i = 0; i < options->case_count; i++)
        add_named(s, options->cases[i], &list);
    for (i64 i = 0; i < s->cases.n && !options->case_count; i++)
        vec_push(s->a, &list, s->cases.at[i]);
    for (i64 i = 0; i < list.n; i++) {
        arena *a = arena_child(s->a);
        eqf_case_result result;
        run_case(s, &list.at[i], options, &result, a);
        passed = passed && result.passed;
        if (each)
            each(user, &result);
        arena_free(a);
    }
    return passed;
}

eqf_status eqf_suite_run(eqf_ctx *ctx, const char *file, eqf_text source,
                         const eqf_suite_options *options,
                         void (*each)(void *user, const eqf_case_result *result), void *user)
{
    arena *a = arena_new(ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(ctx, t)
    {
        eg_suite *s = eg_suite_read(ctx, a, file, source);
        if (!run_all(s, options, each, user))
            eqf_rethrow(ctx, EQF_E_MISMATCH);
    }
    arena_free(a);
    return t.status;
}
