#include "support/pt2_print.h"

#include <stdlib.h>

static void print_graph(str *s, const fe_graph *g);

static void print_arg(str *s, const fe_graph *g, const fe_arg *x)
{
    if (x->name[0])
        str_printf(s, "%s=", x->name);
    switch ((fe_arg_kind)x->kind) {
    case FE_ARG_NONE:
        str_add(s, "none");
        break;
    case FE_ARG_TENSOR:
    case FE_ARG_SYM_INT:
    case FE_ARG_SYM_REAL:
    case FE_ARG_SYM_BOOL:
    case FE_ARG_OBJECT:
        str_printf(s, "%%%s", g->values[x->value.i].name);
        break;
    case FE_ARG_REAL:
        str_add_f64(s, x->f);
        break;
    case FE_ARG_COMPLEX:
        str_printf(s, "(%g, %g)", x->f, x->imaginary);
        break;
    case FE_ARG_STRING:
    case FE_ARG_DEVICE:
    case FE_ARG_OPERATOR:
        str_printf(s, "'%s'", x->text);
        break;
    case FE_ARG_GRAPH:
        print_graph(s, x->graph);
        break;
    case FE_ARG_LIST:
        str_add(s, "[");
        for (i64 i = 0; i < x->n; i++) {
            str_add(s, i ? ", " : "");
            print_arg(s, g, &x->items[i]);
        }
        str_add(s, "]");
        break;
    default:
        str_printf(s, "%d:%lld", x->kind, (long long)x->i);
    }
}

static int by_name(const void *a, const void *b)
{
    const fe_arg *x = *(fe_arg *const *)a, *y = *(fe_arg *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y); /* nameless ones keep their places */
}

static void print_graph(str *s, const fe_graph *g)
{
    const fe_arg *order[64];
    str_printf(s, "graph '%s' {\n", g->name);
    for (i64 i = 1; i < g->n_values; i++) {
        const fe_value *v = &g->values[i];
        str_printf(s, "  %s: %d dtype %u at %lld uses %lld [", v->name, v->kind, v->dtype,
                   (long long)v->node, (long long)v->uses);
        for (int d = 0; d < v->rank; d++)
            str_printf(s, " %s", v->sizes[d]->text);
        str_printf(s, "] %s\n", v->number ? v->number->text : "");
    }
    for (i64 i = 0; i < g->n_nodes; i++) {
        const fe_node *n = &g->nodes[i];
        str_printf(s, "  %s:", n->target);
        for (i64 k = 0; k < n->n_inputs; k++)
            order[k] = &n->inputs[k];
        qsort(order, (size_t)n->n_inputs, sizeof *order, by_name);
        for (i64 k = 0; k < n->n_inputs; k++) {
            str_add(s, " ");
            print_arg(s, g, order[k]);
        }
        str_add(s, " ->");
        for (i64 k = 0; k < n->n_outputs; k++) {
            str_add(s, " ");
            print_arg(s, g, &n->outputs[k]);
        }
        str_add(s, "\n");
    }
    str_add(s, "}\n");
}

static void print_weight(str *s, fe_program *p, const fe_weight *w)
{
    str_printf(s, " weight %s dtype %u storage %u bytes %lld", w->fqn, w->dtype, w->storage,
               (long long)w->bytes);
    if (w->is_absent) {
        str_add(s, " absent");
        return;
    }
    void *data = arena_alloc(s->a, w->bytes + 1);
    fe_weight_read(p, w, data);
    char hex[33];
    digest_hex(data, w->bytes, hex);
    str_printf(s, " %s", hex);
}

const char *pt2_print(arena *a, fe_program *p)
{
    str s = str_new(a);
    str_printf(&s, "form %d\n", p->form);
    for (i64 i = 0; i < p->n_inputs; i++) {
        const fe_input *in = &p->inputs[i];
        str_printf(&s, "input %s kind %d path %s ", in->name, in->kind, in->path ? in->path : "-");
        print_arg(&s, p->graph, &in->arg);
        if (in->weight)
            print_weight(&s, p, in->weight);
        str_add(&s, "\n");
    }
    for (i64 i = 0; i < p->n_outputs; i++) {
        const fe_output *o = &p->outputs[i];
        str_printf(&s, "output '%s' kind %d target %lld ", o->name, o->kind, (long long)o->target);
        print_arg(&s, p->graph, &o->arg);
        str_add(&s, "\n");
    }
    for (i64 i = 0; i < p->n_ranges; i++) {
        const fe_range *r = &p->ranges[i];
        str_printf(&s, "range %s %d %d %lld %lld\n", r->text, r->has_min, r->has_max,
                   (long long)r->min, (long long)r->max);
    }
    for (i64 i = 0; i < p->n_guards; i++)
        str_printf(&s, "guard %s %d\n", p->guards[i].text, p->guards[i].expr != NULL);
    for (i64 i = 0; i < p->n_symbols; i++)
        str_printf(&s, "symbol %s %lld\n", p->symbols[i].name, (long long)p->symbols[i].hint);
    print_graph(&s, p->graph);
    return str_text(&s);
}
