/* What a package says about itself: where it comes from, what was verified, how fast it was. */
#include <stdio.h>

#include "driver/making.h"
#include "driver/proof.h"

void describe_package(making *m)
{
    const eqf_program *p = m->program;
    rt_package *k = &m->package;
    const char *slash = strrchr(p->path, '/');
    k->name = p->summary.name;
    k->version = EQF_VERSION;
    k->backend = "c";
    k->arch = rt_arch();
    k->compiler = m->compiler.version;
    for (i64 i = 0; i < m->compiler.features.n; i++)
        vec_push(m->a, &k->features, m->compiler.features.at[i]);
    k->source = slash ? slash + 1 : p->path;
    memcpy(k->source_digest, p->digest, sizeof k->source_digest);
    memcpy(k->parameters_digest, p->data_digest, sizeof k->parameters_digest);
    str rebuild = str_new(m->a);
    str_printf(&rebuild, "equiforge optimize %s -o PACKAGE", k->source);
    for (i64 i = 0; i < p->report.n_sizes; i++)
        if (!p->report.sizes[i].depends_on_data)
            str_printf(&rebuild, " --dim %s=%lld", p->report.sizes[i].name,
                       (long long)p->report.sizes[i].value);
    if (m->options.parameters_are_inputs)
        str_add(&rebuild, " --parameters input");
    k->rebuild = str_text(&rebuild);
    k->seed = (i64)(p->seed & INT64_MAX);
    k->has_inputs = p->inputs_given;
    for (i64 i = 0; i < m->ir->inputs.n; i++)
        if (m->ir->inputs.at[i].role == IR_INPUT)
            vec_push(m->a, &k->ranges, p->ranges[i]);
    for (i64 i = 0; i < m->ir->outputs.n; i++)
        vec_push(m->a, &k->tolerances, compare_tolerance((dtype)m->ir->outputs.at[i].dtype));
}

/* The reference, rounded once: half types to f32, so that it stays exact beside them. */
static tensor stored_reference(arena *a, const ir_port *port, const tensor *exact)
{
    tensor t = *exact;
    t.type = port->dtype == DT_f16 || port->dtype == DT_bf16 ? DT_f32 : (dtype)port->dtype;
    i64 n = tensor_count(arena_ctx(a), t.rank, t.shape);
    t.data = rt_big_alloc(a, n * dtype_bytes(t.type));
    for (i64 i = 0; i < n; i++)
        if (dtype_is_float(t.type))
            tensor_set_f64(&t, i, tensor_get_f64(exact, i));
        else
            tensor_set_i64(&t, i, tensor_get_i64(exact, i));
    return t;
}

void describe_reference(making *m)
{
    arena *scratch = arena_child(m->a);
    VEC(tensor) set = {0};
    for (i64 i = 0; i < m->ir->inputs.n && m->program->inputs_given; i++)
        if (m->ir->inputs.at[i].role == IR_INPUT) {
            tensor t = m->data[i];
            t.name = arena_printf(scratch, CHECK_INPUTS "%s", t.name);
            vec_push(scratch, &set, t);
        }
    for (i64 i = 0; i < m->ir->outputs.n; i++) {
        const ir_port *port = &m->ir->outputs.at[i];
        tensor t = stored_reference(scratch, port, &m->reference.outputs[i]);
        t.name = arena_printf(scratch, CHECK_OUTPUTS "%s", intern_text(m->ir->names, port->name));
        vec_push(scratch, &set, t);
    }
    file_part *parts;
    i64 n = safetensors_parts(scratch, RT_CHECK_FILE, set.at, set.n, &parts);
    pk_add_parts(m->writer, RT_CHECK_FILE, parts, n);
    arena_free(scratch);
}

void describe_texts(making *m)
{
    const eqf_program *p = m->program;
    pk_add(m->writer, "program.eqf", p->text, (i64)strlen(p->text));
    /* whole and true from the start; improve.c replaces it once the search is over */
    proof why = {.computes = m->ir == p->ir ? NULL : m->ir,
                 .space = make_space(m)};
    memcpy(why.digest, p->digest, sizeof why.digest);
    vec_push(m->a, &why.parts,
             (proof_part){.uses = 1, .form = m->ir, .why_not = "the search was not over"});
    str text = str_new(m->a);
    proof_print(&text, &why);
    pk_add(m->writer, "proof.eqf", str_text(&text), text.n);
    str header = str_new(m->a);
    pk_print_header(&header, &m->package);
    pk_add(m->writer, "equiforge_model.h", str_text(&header), header.n);
}

void describe_report(making *m)
{
    const eqf_optimize_report *r = &m->report;
    str text = str_new(m->a), *s = &text;
    str_printf(s,
               "{\"format\":\"equiforge-report\",\"version\":1,\n"
               "\"candidates\":%lld,\"families\":%lld,\"measured\":%lld,\"kernels\":%lld,"
               "\"failed\":%lld,\"seeded_parameters\":%lld,\n"
               "\"time_us\":{\"unfused\":%.6g,\"best\":%.6g},\"roofline\":%.6g,\n"
               "\"peaks\":{\"gflops\":%.6g,\"gbps\":%.6g},\"threads\":%d,\n\"outputs\":[",
               (long long)r->candidates, (long long)r->families, (long long)r->measured,
               (long long)r->kernels, (long long)r->failed, (long long)r->seeded_parameters,
               r->unfused_us, r->best_us, r->roofline,
               m->verified.peaks.gflops, m->verified.peaks.gbps, m->threads);
    for (i64 i = 0; i < m->ir->outputs.n; i++) {
        str_add(s, i ? ",\n {\"name\":" : "\n {\"name\":");
        str_add_json(s, intern_text(m->ir->names, m->ir->outputs.at[i].name));
        str_printf(s, ",\"rel_l2\":%.6g,\"tolerance\":%.6g}", m->verified.rel_l2[i],
                   m->verified.tolerances[i]);
    }
    str_add(s, "]}\n");
    pk_add(m->writer, "report.json", str_text(s), s->n);
}
