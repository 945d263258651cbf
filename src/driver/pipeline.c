/* The compiler's table of contents: the program as it was read becomes a package, one kernel an
 * operator, and then other forms of it while time is left. Stages share one `making`; each fills its
 * part of it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/improve.h"

#define DEFAULT_BUDGET_S 60

/* One error for all operators that nothing here can run. */
static void check_boundaries(const making *m)
{
    const fe_report *r = &m->program->report;
    const fe_boundary *first = NULL;
    i64 count = 0;
    str names = str_new(m->a);
    for (i64 i = 0; i < r->n_boundaries; i++) {
        const fe_boundary *b = &r->boundaries[i];
        if (b->runs)
            continue;
        first = first ? first : b;
        bool is_new = true;
        for (i64 k = 0; k < i; k++)
            is_new = is_new && (r->boundaries[k].runs || strcmp(r->boundaries[k].op, b->op) != 0);
        if (is_new)
            str_printf(&names, "%s%s", names.n ? ", " : "", b->op);
        count++;
    }
    if (first)
        eqf_throw(m->ctx, EQF_E_UNSUPPORTED, m->program->path, first->node,
                  "nothing here can run %s (%lld of the program's operators): %s", str_text(&names),
                  (long long)count, first->reason);
}

static void free_pool(void *p)
{
    pool_free(p);
}

static void optimize(making *m, const char *path)
{
    f64 started = rt_now();
    program_check_sizes(m->program);
    check_boundaries(m);
    make_begin(m, "testing rules");
    m->rules = rulebook_join(m->shared, m->options.rules, (i64)m->options.rule_count,
                             m->options.force, m->program->seed, m->options.cancel);
    m->compiler = tn_probe(m->a, m->options.compiler, m->options.cancel);
    m->pool = m->threads > 1 ? pool_new(m->ctx, m->threads) : NULL;
    if (m->pool)
        arena_defer(m->a, free_pool, m->pool);
    make_begin(m, "loading data");
    m->data = program_data(m->program, m->pool);
    m->subgraphs = m->distinct_subgraphs = 1;
    m->objects = pk_directory(pk_begin(m->a, path)); /* never committed */
    m->refused = NEW(m->a, named_files);
    make_package(m, path);
    eqf_optimize_report *r = &m->report;
    r->candidates = r->families = r->measured = 1;
    r->failure = r->stop_reason = r->left_behind = "";
    r->unfused_us = m->verified.median_us;
    r->seeded_parameters = (int64_t)m->program->summary.seeded_parameters;
    r->read_s = m->program->read_s;
    r->stop = "budget";
    make_publish(m, path);
    trap t;
    TRY (m->ctx, t)
        improve(m, path, started,
                m->options.budget_s > 0 ? m->options.budget_s : DEFAULT_BUDGET_S);
    const double *rel_l2 = m->program->optimized.rel_l2; /* of the package that is there */
    const char *package = m->program->optimized.package;
    r->total_s = r->read_s + rt_now() - started;
    if (t.status == EQF_E_INTERRUPTED)
        r->stop = "interrupted";
    m->program->optimized = *r;
    m->program->optimized.rel_l2 = rel_l2;
    m->program->optimized.package = package;
    m->program->optimized.failure =
        r->failure[0] ? arena_strdup(m->program->result, r->failure) : "";
    if (t.status == EQF_E_INTERRUPTED) {
        eqf_ctx_clear(m->ctx);
        eqf_throw(m->ctx, t.status, path, NULL,
                  "interrupted: the package is the best so far (%.4g us, as read %.4g us)",
                  r->best_us, r->unfused_us);
    }
    if (t.status != EQF_OK)
        eqf_rethrow(m->ctx, t.status);
}

/* The path; absolute where the working directory is in what it names, which goes when it is replaced. */
static const char *lasting(arena *a, const char *path)
{
    char real[PATH_MAX], here[PATH_MAX];
    if (!realpath(path, real) || !getcwd(here, sizeof here))
        return path;
    size_t n = strlen(real);
    bool is_inside = strncmp(here, real, n) == 0 && (here[n] == '/' || here[n] == 0);
    return is_inside ? arena_strdup(a, real) : path;
}

eqf_status eqf_optimize(eqf_program *program, const eqf_optimize_options *options, const char *path,
                        const eqf_optimize_report **out)
{
    eqf_ctx *ctx = program->ctx;
    if (out)
        *out = NULL;
    if (program->result)
        arena_free(program->result);
    program->result = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return eqf_report(ctx, EQF_E_NO_MEMORY, path, NULL, "out of memory");
    trap t;
    TRY (ctx, t) {
        eqf_about(ctx, program->path, NULL);
        making *m = NEW(a, making);
        m->program = program;
        m->ir = program->ir;
        m->a = m->shared = a;
        m->ctx = ctx;
        m->race_s = RACE_S;
        if (options)
            m->options = *options;
        m->threads = m->options.threads > 0 ? m->options.threads : rt_processors();
        m->jobs = m->options.jobs > 0 ? m->options.jobs : rt_processors();
        optimize(m, lasting(a, path));
    }
    arena_free(a);
    if (t.status == EQF_OK && out)
        *out = &program->optimized;
    return t.status;
}
