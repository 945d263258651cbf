/* Dim splits: an atom becomes two, and every reduction over it goes over the inner part first. The
 * forms stay in the classes of the whole; what reductions over parts allow is found by the ordinary
 * rules (rules/split.rules holds those that are special to parts).           (space.md §6 D) */
#include "rules/graph_impl.h"

ir_atom rl_part_atom(rl_graph *g, ir_atom after, const char *name, i64 extent)
{
    u32 id = intern_find(g->own->names, name, (i64)strlen(name));
    ir_atom d = id ? ir_atom_find(g->own, id) : (ir_atom){0};
    bool is_free = d.i > after.i && ir_extent(g->own, d) == extent && !ir_split_of(g->own, d) &&
                   ((i64)d.i >= g->atom_index.n || !g->atom_index.at[d.i]);
    return is_free ? d : ir_atom_new(g->own, name, extent);
}

static void expect_atom(const rl_graph *g, ir_atom atom)
{
    if ((i64)atom.i >= g->atom_index.n || !g->atom_index.at[atom.i])
        eqf_throw(g->ctx, EQF_E_ARGUMENT, g->p->file, NULL, "no dim of what is optimized");
}

ir_split rl_graph_split(rl_graph *g, ir_atom atom, i64 parts)
{
    expect_atom(g, atom);
    return rl_graph_split_by(g, atom, parts > 0 ? 1 + (ir_extent(g->own, atom) - 1) / parts : 0);
}

ir_split rl_graph_split_by(rl_graph *g, ir_atom atom, i64 inner)
{
    ir_program *own = g->own;
    expect_atom(g, atom);
    i64 extent = ir_extent(own, atom), parts = inner > 0 ? 1 + (extent - 1) / inner : 0;
    const char *name = ir_atom_name(own, atom);
    if (parts < 2 || inner < 2)
        eqf_throw(g->ctx, EQF_E_ARGUMENT, g->p->file, name,
                  "parts of %lld positions of a dim of extent %lld: there have to be two at least, of two "
                  "positions at least",
                  (long long)inner, (long long)extent);
    if (own->splits.n != g->split_count)
        eqf_throw(g->ctx, EQF_E_UNSUPPORTED, g->p->file, name, "the program splits dims itself");
    ir_split s = {atom, rl_part_atom(g, atom, arena_printf(g->a, "%s.o", name), parts),
                  rl_part_atom(g, atom, arena_printf(g->a, "%s.i", name), inner)};
    ir_split_new(own, s.whole, s.outer, s.inner);
    rl_number_atom(g, s.outer);
    rl_number_atom(g, s.inner);
    g->split_count++;
    rl_generate(g);
    return s;
}
