/* The parts of a program that are searched by themselves.
 *
 * A part is verified and timed on the values that it has in a run of the whole: one more run of the
 * reference interpreter leaves what crosses the borders. A part that stands in several places is built
 * for the first of them. */
#include <stdlib.h>

#include "driver/contest.h"

/* Reductions and products of a part: a product with what is around it, a layer of a model. */
static const i64 sizes[] = {5, 14};
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

static bool same_cut(const pt_partition *x, const pt_partition *y)
{
    bool same = x->use_count == y->use_count && x->part_count == y->part_count;
    for (i64 i = 0; same && i < x->use_count; i++)
        same = x->uses[i].part == y->uses[i].part;
    for (i64 i = 0; same && i < x->part_count; i++)
        same = strcmp(x->parts[i].digest, y->parts[i].digest) == 0;
    return same;
}

static int compare_weights(const void *x, const void *y)
{
    const contest *a = *(contest *const *)x, *b = *(contest *const *)y;
    f64 s = a->best_us * (f64)a->uses, t = b->best_us * (f64)b->uses;
    return s > t ? -1 : s < t;
}

bool parts_is_small(arena *a, const ir_program *p, bool parameters_are_inputs, pt_partition *cut)
{
    pt_options o = {WHOLE_SIZE, parameters_are_inputs};
    *cut = pt_cut(a, p, &o);
    if (cut->use_count <= 1)
        return true;
    o.most_reductions = sizes[COUNT_OF(sizes) - 1];
    *cut = pt_cut(a, p, &o);
    return false;
}

partings parts_find(contest *whole)
{
    making *m = whole->first;
    partings all = {.at = NEW_N(m->a, parting, COUNT_OF(sizes))};
    i64 n = m->ir->nodes.n;
    crossing x = {.terms = NEW_N(m->a, u32, n), .place = NEW_N(m->a, i64, n)};
    for (i64 k = 0; k < COUNT_OF(sizes); k++) {
        pt_options o = {sizes[k], m->options.parameters_are_inputs};
        pt_partition cut = pt_cut(m->a, m->ir, &o);
        bool is_new = cut.use_count > 1;
        for (i64 i = 0; i < all.n; i++)
            is_new = is_new && !same_cut(&all.at[i].cut, &cut);
        if (!is_new)
            continue;
        need(&x, m->ir, &cut);
        all.at[all.n++] = (parting){.size = sizes[k], .cut = cut};
    }
    if (all.n == 0)
        return all;
    x.values = NEW_N(m->a, tensor, x.n + 1);
    if (x.n > 0)
        compute(&x, m);
    VEC(contest *) contests = {0};
    VEC(const char *) digests = {0};
    for (i64 k = 0; k < all.n; k++) {
        parting *p = &all.at[k];
        p->of = NEW_N(m->a, contest *, p->cut.part_count);
        p->joined = NEW_N(m->a, const ir_program *, p->cut.part_count);
        for (i64 i = 0; i < p->cut.part_count; i++) {
            i64 same = 0;
            while (same < digests.n && strcmp(digests.at[same], p->cut.parts[i].digest) != 0)
                same++;
            if (same == digests.n) {
                contest *c = rt_now() < m->deadline ? build_part(whole, &x, &p->cut, i) : NULL;
                vec_push(m->a, &digests, p->cut.parts[i].digest);
                vec_push(m->a, &contests, c);
            }
            p->of[i] = contests.at[same];
            if (p->of[i])
                p->of[i]->uses = MAX(p->of[i]->uses, p->cut.parts[i].uses);
        }
    }
    all.contests = NEW_N(m->a, contest *, contests.n);
    for (i64 i = 0; i < contests.n; i++)
        if (contests.at[i])
            all.contests[all.contest_count++] = contests.at[i];
    if (all.contest_count)
        qsort(all.contests, (size_t)all.contest_count, sizeof *all.contests, compare_weights);
    return all;
}

ir_program *parts_join(arena *a, const ir_program *p, const parting *x)
{
    const ir_program **forms = NEW_N(a, const ir_program *, x->cut.part_count);
    for (i64 i = 0; i < x->cut.part_count; i++) {
        forms[i] = x->of[i] ? x->of[i]->best : x->cut.parts[i].program;
        x->joined[i] = forms[i];
    }
    return pt_join(a, p, &x->cut, forms);
}

f64 parts_estimate_us(const parting *x, bool as_read)
{
    f64 sum = 0;
    for (i64 i = 0; i < x->cut.part_count; i++)
        if (x->of[i])
            sum += (f64)x->cut.parts[i].uses *
                   (as_read ? x->of[i]->first->verified.median_us : x->of[i]->best_us);
    return sum;
}
