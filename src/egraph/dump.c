/* The e-graph for people: text that reads back (a class a line, its e-nodes as terms over class
 * names) and Graphviz. */
#include "egraph/egraph.h"

static eqf_status finish(eqf_ctx *ctx, const str *s, char **out)
{
    char *text = heap_try_resize(ctx, NULL, 0, s->n + 1);
    if (!text)
        return EQF_E_NO_MEMORY;
    memcpy(text, str_text(s), (size_t)s->n + 1);
    *out = text;
    return EQF_OK;
}

static void print_node(str *s, const eg *g, u32 n)
{
    const u32 *rec = eg_rec(g, n);
    u32 arity = eg_node_arity(g, n, rec);
    str_add_char(s, '(');
    eg_print_head(g->lang, s, rec[N_HEAD]);
    for (u32 i = 0; i < arity; i++)
        str_printf(s, " c%u", rec[N_KIDS + eg_step(n) * i]);
    eg_print_payload(g->lang, s, rec[N_HEAD]);
    str_add_char(s, ')');
}

static void dump(str *s, eg *g)
{
    str_add(s, "(egraph 1\n");
    for (eqf_class c = {0}; (c = eqf_next_class(g, c)).i;) {
        str_printf(s, "  (class c%u", c.i);
        for (eqf_node n = {0}; (n = eqf_next_node(g, c, n)).i;) {
            str_add(s, eqf_node_hidden(g, n) ? " (hidden " : " ");
            print_node(s, g, n.i);
            if (eqf_node_hidden(g, n))
                str_add_char(s, ')');
        }
        str_add(s, ")\n");
    }
    str_add(s, ")\n");
}

static void dot_text(str *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_add_char(s, '\\');
        str_add_char(s, *text);
    }
}

static void dot(str *s, eg *g, arena *a)
{
    str_add(s, "digraph egraph {\n  compound=true; clusterrank=local; node [shape=box];\n");
    for (eqf_class c = {0}; (c = eqf_next_class(g, c)).i;) {
        str_printf(s, "  subgraph cluster_%u { label=\"c%u\"; style=rounded;\n", c.i, c.i);
        for (eqf_node n = {0}; (n = eqf_next_node(g, c, n)).i;) {
            str label = str_new(a);
            eg_print_head(g->lang, &label, eg_rec(g, n.i)[N_HEAD]);
            eg_print_payload(g->lang, &label, eg_rec(g, n.i)[N_HEAD]);
            str_printf(s, "    n%u [label=\"", n.i);
            dot_text(s, str_text(&label));
            str_printf(s, "\"%s];\n", eqf_node_hidden(g, n) ? " style=dotted" : "");
        }
        str_add(s, "  }\n");
    }
    for (eqf_class c = {0}; (c = eqf_next_class(g, c)).i;) {
        for (eqf_node n = {0}; (n = eqf_next_node(g, c, n)).i;) {
            u32 arity = eg_node_arity(g, n.i, eg_rec(g, n.i));
            for (u32 i = 0; i < arity; i++) {
                eqf_class kid = eqf_node_child(g, n, i);
                eqf_node first = eqf_next_node(g, kid, (eqf_node){0});
                str_printf(s, "  n%u -> n%u [lhead=cluster_%u label=\"%u\"];\n", n.i, first.i,
                           kid.i, i);
            }
        }
    }
    str_add(s, "}\n");
}

static eqf_status write(eqf_egraph *g, bool graphviz, char **out)
{
    *out = NULL;
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        str text = str_new(a);
        if (graphviz)
            dot(&text, g, a);
        else
            dump(&text, g);
        s = finish(g->ctx, &text, out);
        if (s)
            eqf_rethrow(g->ctx, s);
    }
    arena_free(a);
    return t.status;
}

eqf_status eqf_dump(eqf_egraph *g, char **out)
{
    return write(g, false, out);
}

eqf_status eqf_dot(eqf_egraph *g, char **out)
{
    return write(g, true, out);
}
