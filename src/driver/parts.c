/* The parts of a program that are searched by themselves.
 *
 * A part is verified and timed on the values that it has in a run of the whole: one more run of the
 * reference interpreter leaves what crosses the borders. A part that stands in several places is built
 * for the first of them.
 *
 * Parts of different sizes overlap, and compete: smaller ones are cut within larger ones, and for each
 * stretch of the program those are chosen whose forms save most. What a form saves is measured beside
 * the part as it was read, so the start of a run, which a part has for itself alone, does not count. */
#include <stdlib.h>

#include "driver/contest.h"

/* Reductions and products of a part: a layer of a model, a product with what is around it. */
static const i64 sizes[] = {14, 5};
#define WHOLE_SIZE 28 /* of a program that is searched as a whole too */

/* ---- values that cross ------------------------------------------------------------------------ */

static tensor in_dtype(arena *a, const tensor *x, dtype type)
{
    tensor t = *x;
    i64 n = tensor_count(arena_ctx(a), t.rank, t.shape);
    t.type = type;
    t.data = rt_big_alloc(a, n * dtype_bytes(type));
    for (i64 i = 0; i < n; i++)
        if (dtype_is_float(type))
            tensor_set_f64(&t, i, tensor_get_f64(x, i));
        else
            tensor_set_i64(&t, i, tensor_get_i64(x, i));
    return t;
}

typedef struct crossing {
    u32 *terms; /* of the whole */
    i64 n;
    i64 *place; /* by term: in `terms` + 1 */
    tensor *values;
} crossing;

/* Adds what the first use of each part needs. */
static void need(crossing *x, const ir_program *p, const pt_partition *cut)
{
    for (i64 part = 0; part < cut->part_count; part++) {
        i64 u = 0;
        while (cut->uses[u].part != part)
            u++;
        for (i64 i = 0; i < cut->parts[part].program->inputs.n; i++) {
            ir_term t = cut->uses[u].inputs[i];
            if (pt_constant_port(p, t.i) || x->place[t.i])
                continue;
            x->terms[x->n++] = t.i;
            x->place[t.i] = x->n;
        }
    }
}

static void compute(crossing *x, const making *whole)
{
    arena *scratch = arena_child(whole->a);
    const ir_program *p = whole->ir;
    ir_program *q = ir_program_new(scratch, p->file, "crossing");
    ir_copy c = ir_copy_new(scratch, q, p);
    for (i64 i = 0; i < p->inputs.n; i++)
        ir_copy_input(&c, i);
    ir_copy_assumptions(&c);
    ir_copy_terms(&c, x->terms, x->n);
    for (i64 i = 0; i < x->n; i++) {
        const char *name = arena_printf(scratch, "x%lld", (long long)i);
        ir_port port = ir_copy_value_port(&c, name, x->terms[i]);
        port.term = c.terms[x->terms[i]];
        ir_add_output(q, port);
    }
    tensor *exact = NEW_N(scratch, tensor, x->n);
    ir_eval(q, whole->data, scratch, exact,
            (ir_eval_options){.threads = whole->pool, .cancel = whole->options.cancel});
    for (i64 i = 0; i < x->n; i++) {
        exact[i].shape = arena_copy(whole->a, exact[i].shape,
                                    exact[i].rank * (i64)sizeof *exact[i].shape);
        x->values[i] = in_dtype(whole->a, &exact[i], (dtype)p->nodes.at[x->terms[i]].dtype);
    }
    arena_free(scratch);
}

/* ---- a part as it is -------------------------------------------------------------------------- */

/* What is asked for, of a part: its text and data in the place of the whole's. */
static eqf_program *as_asked(arena *a, const eqf_program *whole, ir_program *part)
{
    eqf_program *p = NEW(a, eqf_program);
    *p = *whole;
    str text = str_new(a);
    ir_print(&text, part);
    p->ir = part;
    p->text = str_text(&text);
    p->report = (fe_report){0};
    p->ranges = driver_ranges(a, part);
    p->inputs_given = false;
    return p;
}

/* NULL when it cannot be built by itself. */
static contest *build_part(contest *whole, const crossing *x, const pt_partition *cut, i64 part)
{
    making *of = whole->first;
    arena *a = arena_child(of->a);
    making *m = NEW(a, making);
    ir_program *p = cut->parts[part].program;
    *m = *of;
    m->a = a;
    m->program = as_asked(a, of->program, p);
    m->ir = p;
    m->writer = NULL;
    m->kernels = (kn_kernels){0};
    m->package = (rt_package){0};
    m->reference = (reference){0};
    m->report = (eqf_optimize_report){.failure = ""};
    i64 u = 0;
    while (cut->uses[u].part != part)
        u++;
    tensor *data = NEW_N(a, tensor, p->inputs.n);
    for (i64 i = 0; i < p->inputs.n; i++) {
        ir_term t = cut->uses[u].inputs[i];
        const ir_port *port = pt_constant_port(of->ir, t.i);
        data[i] = port ? of->data[port - of->ir->inputs.at] : x->values[x->place[t.i] - 1];
        data[i].name = intern_text(p->names, p->inputs.at[i].name);
    }
    m->data = data;
    contest *volatile c = NULL;
    trap t;
    TRY (m->ctx, t) {
        make_package(m, whole->path);
        c = contest_new(m, whole->path, false);
        c->part = &cut->parts[part];
    }
    if (t.status == EQF_OK)
        return c;
    if (t.status == EQF_E_INTERRUPTED || t.status == EQF_E_NO_MEMORY || t.status == EQF_E_IO)
        eqf_rethrow(of->ctx, t.status);
    eqf_ctx_clear(of->ctx);
    arena_free(a);
    return NULL;
}

/* ---- ways to cut ------------------------------------------------------------------------------ */

static bool is_finer(const pt_partition *x, const pt_partition *than)
{
    return x->use_count > MAX(than->use_count, 1);
}

static int compare_weights(const void *x, const void *y)
{
    const contest *a = *(contest *const *)x, *b = *(contest *const *)y;
    f64 s = a->best_us * (f64)a->uses, t = b->best_us * (f64)b->uses;
    return s > t ? -1 : s < t;
}

bool parts_is_small(arena *a, const ir_program *p, bool parameters_are_inputs, pt_partition *cut)
{
    pt_options o = {.most_reductions = WHOLE_SIZE, .parameters_are_inputs = parameters_are_inputs};
    *cut = pt_cut(a, p, &o);
    if (cut->use_count <= 1)
        return true;
    o.most_reductions = sizes[0];
    *cut = pt_cut(a, p, &o);
    return false;
}

static contest *contest_of(const partings *x, const pt_part *part)
{
    for (i64 i = 0; i < x->contest_count; i++)
        if (strcmp(x->contests[i]->part->digest, part->digest) == 0)
            return x->contests[i];
    return NULL;
}

static void build_parts(partings *all, contest *whole, const crossing *x)
{
    making *m = whole->first;
    VEC(contest *) contests = {0};
    VEC(const char *) failed = {0};
    for (i64 k = 0; k < all->n; k++)
        for (i64 i = 0; i < all->cuts[k].part_count; i++) {
            const pt_part *part = &all->cuts[k].parts[i];
            contest *c = contest_of(all, part);
            bool is_new = !c && rt_now() < m->deadline;
            for (i64 f = 0; f < failed.n; f++)
                is_new = is_new && strcmp(failed.at[f], part->digest) != 0;
            if (is_new && (c = build_part(whole, x, &all->cuts[k], i))) {
                vec_push(m->a, &contests, c);
                all->contests = contests.at;
                all->contest_count = contests.n;
            } else if (is_new) {
                vec_push(m->a, &failed, part->digest);
            }
            if (c)
                c->uses = MAX(c->uses, part->uses);
        }
    if (all->contest_count)
        qsort(all->contests, (size_t)all->contest_count, sizeof *all->contests, compare_weights);
}

partings parts_find(contest *whole)
{
    making *m = whole->first;
    bool parameters_are_inputs = m->options.parameters_are_inputs;
    partings all = {.whole = m->ir,
                    .parameters_are_inputs = parameters_are_inputs,
                    .cuts = NEW_N(m->a, pt_partition, COUNT_OF(sizes))};
    i64 n = m->ir->nodes.n;
    crossing x = {.terms = NEW_N(m->a, u32, n), .place = NEW_N(m->a, i64, n)};
    pt_partition coarse = {0};
    for (i64 k = 0; k < COUNT_OF(sizes); k++) {
        pt_partition *within = all.n ? &all.cuts[all.n - 1] : NULL;
        pt_options o = {sizes[k], parameters_are_inputs, within};
        pt_partition cut = pt_cut(m->a, m->ir, &o);
        if (!is_finer(&cut, &coarse))
            continue;
        need(&x, m->ir, &cut);
        coarse = all.cuts[all.n++] = cut;
    }
    if (all.n == 0)
        return all;
    x.values = NEW_N(m->a, tensor, x.n + 1);
    if (x.n > 0)
        compute(&x, m);
    build_parts(&all, whole, &x);
    return all;
}

/* ---- put together ----------------------------------------------------------------------------- */

/* A part costs what its form does not save. */
static i64 best_ends(arena *a, const partings *x, i64 *ends)
{
    const f64 **costs = NEW_N(a, const f64 *, x->n);
    for (i64 k = 0; k < x->n; k++) {
        f64 *at = NEW_N(a, f64, x->cuts[k].part_count);
        for (i64 i = 0; i < x->cuts[k].part_count; i++) {
            const contest *c = contest_of(x, &x->cuts[k].parts[i]);
            at[i] = c ? c->best_us - c->first->verified.median_us : 0;
        }
        costs[k] = at;
    }
    return pt_mix(a, x->cuts, x->n, costs, ends);
}

composed parts_compose(arena *a, const partings *x, i64 i)
{
    composed c = {.cut = x->cuts[MAX(i, 0)]};
    if (i < 0) {
        i64 uses = 0;
        for (i64 k = 0; k < x->n; k++)
            uses += x->cuts[k].use_count;
        i64 *ends = NEW_N(a, i64, uses), n = best_ends(a, x, ends);
        pt_cut_at(a, x->whole, x->parameters_are_inputs, ends, n, &c.cut);
    }
    c.best = NEW_N(a, const ir_program *, c.cut.part_count);
    c.forms = NEW_N(a, const ir_program *, c.cut.part_count);
    for (i64 k = 0; k < c.cut.part_count; k++) {
        const pt_part *part = &c.cut.parts[k];
        const contest *of = contest_of(x, part);
        c.best[k] = of && of->best != of->part->program ? of->best : NULL;
        c.forms[k] = c.best[k] ? pt_form_for(a, c.best[k], of->part, part) : part->program;
    }
    return c;
}

bool parts_as_read(const composed *c)
{
    bool same = true;
    for (i64 i = 0; i < c->cut.part_count; i++)
        same = same && !c->best[i];
    return same;
}

bool parts_same(const composed *x, const composed *y)
{
    bool same = x->cut.use_count == y->cut.use_count;
    for (i64 i = 0; same && i < x->cut.use_count; i++) {
        const pt_use *u = &x->cut.uses[i], *v = &y->cut.uses[i];
        same = u->to == v->to && x->best[u->part] == y->best[v->part];
    }
    return same;
}
