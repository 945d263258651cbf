/* Programs for the parts put together again: each use of a part is a copy of its form, in which the
 * ports are the terms that the parts before it left. */
#include "partition/partition.h"

static void place(ir_copy *whole, arena *scratch, const pt_use *u, const ir_program *part,
                  const ir_program *form)
{
    ir_copy c = ir_copy_new(scratch, whole->to, form);
    for (i64 d = 1; d < part->atoms.n; d++)
        c.atoms[d] = ir_copy_atom(whole, u->atoms[d]);
    for (i64 i = 0; i < form->inputs.n; i++)
        c.terms[form->inputs.at[i].term.i] = whole->terms[u->inputs[i].i];
    ir_copy_outputs(&c);
    for (i64 i = 0; i < form->outputs.n; i++) {
        ir_term t = c.terms[form->outputs.at[i].term.i];
        whole->terms[u->outputs[i].i] = ir_cast(whole->to, (dtype)form->outputs.at[i].dtype, t);
    }
}

ir_program *pt_join(arena *a, const ir_program *p, const pt_partition *x,
                    const ir_program *const *forms)
{
    arena *scratch = arena_child(a);
    ir_program *to = ir_program_new(a, p->file, intern_text(p->names, p->name));
    ir_copy c = ir_copy_new(scratch, to, p);
    c.keeps_names = true;
    for (u32 d = 1; d < (u32)p->atoms.n; d++)
        ir_copy_atom(&c, (ir_atom){d});
    for (i64 i = 0; i < p->inputs.n; i++)
        ir_copy_input(&c, i);
    for (i64 i = 0; i < x->use_count; i++) {
        arena *own = arena_child(scratch);
        i64 part = x->uses[i].part;
        place(&c, own, &x->uses[i], x->parts[part].program, forms[part]);
        arena_free(own);
    }
    ir_copy_outputs(&c); /* what depends on constants alone, where an output is that */
    for (i64 i = 0; i < p->outputs.n; i++) {
        ir_port port = ir_copy_port(&c, &p->outputs.at[i]);
        port.term = c.terms[p->outputs.at[i].term.i];
        ir_add_output(to, port);
    }
    ir_copy_assumptions(&c);
    arena_free(scratch);
    ir_verify(to, "joining parts");
    return to;
}

static const ir_term *terms_of(arena *a, const ir_port *ports, i64 n)
{
    ir_term *at = NEW_N(a, ir_term, n);
    for (i64 i = 0; i < n; i++)
        at[i] = ports[i].term;
    return at;
}

const ir_program *pt_form_for(arena *a, const ir_program *form, const pt_part *of, const pt_part *to)
{
    i64 n = to->program->atoms.n - 1;
    if (memcmp(of->order, to->order, (size_t)n * sizeof *to->order) == 0)
        return form;
    arena *scratch = arena_child(a);
    ir_atom *numbered = NEW_N(scratch, ir_atom, n), *atoms = NEW_N(scratch, ir_atom, n + 1);
    for (i64 i = 0; i < n; i++)
        numbered[to->order[i]] = (ir_atom){(u32)i + 1};
    for (i64 i = 0; i < n; i++)
        atoms[i + 1] = numbered[of->order[i]];
    pt_part part = *of;
    const ir_program *p = to->program;
    pt_use use = {.inputs = terms_of(scratch, p->inputs.at, p->inputs.n),
                  .outputs = terms_of(scratch, p->outputs.at, p->outputs.n),
                  .atoms = atoms};
    pt_partition x = {.parts = &part, .uses = &use, .part_count = 1, .use_count = 1};
    ir_program *q = pt_join(a, p, &x, &form);
    arena_free(scratch);
    return q;
}
