/* The certificate: everything that check_repair.c needs to replay the derivation without this
 * solver. One program, the ledger, holds all terms as outputs; the rest is lists that name them.
 *
 *   (repair-certificate 1
 *     (program ledger ...)                 inputs: leaves, results s, cut values, slots, lanes
 *     (results NAME ...) (slot-leaves NAME ...) (lanes NAME)
 *     (cuts (NAME TERM) ...)               what a cut value stands for
 *     (factors (leaf TERM) (exp TERM MONO) (log TERM F) (abs TERM F) (sum TERM POLY)
 *              (indicator TERM TEST) (row TERM REDUCER (DIM ...) POLY) ...)      numbered from 1
 *     (judgements (TERM ROW POLY) ...)     operands before users
 *     (slots (REDUCER TERM POLY) ...)
 *     (reductions (REDUCER BODY CUT-BODY READOUT (block ROLL WAIT (POLY ...) (f (J ...) SLOT RAT
 * POLY) ...) ...) ...))
 *
 * POLY is ((RAT MONO) ...), MONO ((F RAT) ...), RAT (N D). SLOT is -1 where f_j is 0. */
#include "rules/repair_impl.h"

typedef struct writer {
    solver *s;
    str out;
    VEC(u32) names; /* output number by term, +1 */
    i64 count;
    u8 *seen;
    VEC(ir_term) judged;
} writer;

static void add_rat(writer *w, rat q)
{
    str_printf(&w->out, "(%lld %lld)", (long long)q.n, (long long)q.d);
}

static void add_mono(writer *w, u32 m)
{
    mono x = w->s->f->monos.at[m];
    str_add(&w->out, "(");
    for (i64 i = 0; i < x.n; i++) {
        str_printf(&w->out, "%s(%u ", i ? " " : "", x.at[i].factor);
        add_rat(w, x.at[i].q);
        str_add(&w->out, ")");
    }
    str_add(&w->out, ")");
}

static void add_poly(writer *w, poly p)
{
    str_add(&w->out, "(");
    for (i64 i = 0; i < p.n; i++) {
        str_add(&w->out, i ? " (" : "(");
        add_rat(w, p.at[i].c);
        str_add(&w->out, " ");
        add_mono(w, p.at[i].mono);
        str_add(&w->out, ")");
    }
    str_add(&w->out, ")");
}

/* Makes a term an output of the ledger, once, and writes its name. */
static void add_term(writer *w, ir_term t)
{
    form *f = w->s->f;
    while (w->names.n <= (i64)t.i)
        vec_push(w->s->a, &w->names, 0);
    if (!w->names.at[t.i]) {
        ir_atoms d = ir_get(f->w, t)->dims;
        ir_dim *dims = NEW_N(w->s->a, ir_dim, d.n);
        for (i64 i = 0; i < d.n; i++)
            dims[i] = (ir_dim){ir_extent(f->w, d.at[i]), {&d.at[i], 1}};
        const char *name = arena_printf(w->s->a, "o%lld", (long long)w->count);
        ir_add_output(f->w, (ir_port){.name = intern_cstr(f->w->names, name),
                                      .term = t,
                                      .rank = d.n,
                                      .dims = dims});
        w->names.at[t.i] = (u32)++w->count;
    }
    str_printf(&w->out, "o%u", w->names.at[t.i] - 1);
}

static void add_name(writer *w, ir_term leaf)
{
    const ir_program *p = w->s->f->w;
    str_printf(&w->out, " \"%s\"", intern_text(p->names, ir_get(p, leaf)->attr.name));
}

static void find_judged(writer *w, ir_term t)
{
    form *f = w->s->f;
    if (w->seen[t.i])
        return;
    w->seen[t.i] = 1;
    const ir_node *n = ir_get(f->w, t);
    for (i64 i = 0; i < n->arg_count; i++)
        find_judged(w, n->args[i]);
    if ((i64)t.i < f->by_term.n && f->by_term.at[t.i].known)
        vec_push(w->s->a, &w->judged, t);
}

static void add_factor(writer *w, const factor *k)
{
    static const char *const kinds[] = {"leaf", "exp", "log", "abs", "sum", "indicator", "row"};
    const ir_program *p = w->s->f->w;
    str_printf(&w->out, "\n    (%s ", kinds[k->kind]);
    add_term(w, k->term);
    str_add(&w->out, " ");
    switch ((factor_kind)k->kind) {
    case FACTOR_LEAF:
        break;
    case FACTOR_EXP:
        add_mono(w, k->mono);
        break;
    case FACTOR_LOG:
    case FACTOR_ABS:
        str_printf(&w->out, "%u", k->inner);
        break;
    case FACTOR_SUM:
        add_poly(w, k->sum);
        break;
    case FACTOR_INDICATOR:
        add_term(w, k->test);
        break;
    case FACTOR_ROW:
        str_printf(&w->out, "%s (", ir_reducer_text((ir_reducer)k->op));
        for (i64 i = 0; i < k->axis.n; i++)
            str_printf(&w->out, "%s\"%s\"", i ? " " : "", ir_atom_name(p, k->axis.at[i]));
        str_add(&w->out, ") ");
        add_poly(w, k->sum);
        break;
    }
    str_add(&w->out, ")");
}

static void add_block(writer *w, const term_block *b)
{
    str_add(&w->out, "\n      (block ");
    add_mono(w, b->roll);
    str_add(&w->out, " ");
    add_poly(w, b->wait);
    str_add(&w->out, " (");
    for (i64 c = 0; c < b->coordinate_count; c++)
        add_poly(w, b->coordinates[c].tau);
    str_add(&w->out, ")");
    for (i64 j = 0; j < b->count; j++) {
        str_add(&w->out, "\n        (f (");
        for (i64 c = 0; c < b->coordinate_count; c++)
            str_printf(&w->out, "%s%d", c ? " " : "", b->index[j][c]);
        str_printf(&w->out, ") %lld ", (long long)b->use[j].slot);
        add_rat(w, b->use[j].c);
        str_add(&w->out, " ");
        add_poly(w, b->targets[j]);
        str_add(&w->out, ")");
    }
    str_add(&w->out, ")");
}

const char *rl_write_certificate(solver *s)
{
    form *f = s->f;
    writer *w = NEW(s->a, writer);
    w->s = s;
    w->out = str_new(s->a);
    w->seen = NEW_N(s->a, u8, f->w->nodes.n);
    str_add(&w->out, "\n  (results");
    for (i64 k = 0; k < s->system->n; k++)
        add_name(w, s->leaves.at[s->s_of[k]].leaf);
    str_add(&w->out, ")\n  (slot-leaves");
    for (i64 i = 0; i < s->accs.n; i++)
        add_name(w, rl_slot_leaf(s, i));
    str_add(&w->out, ")\n  (lanes");
    add_name(w, f->lanes);
    str_add(&w->out, ")\n  (cuts");
    for (i64 i = 0; i < s->leaves.n; i++)
        if (s->leaves.at[i].cut.i) {
            str_add(&w->out, " (");
            add_name(w, s->leaves.at[i].leaf);
            str_add(&w->out, " ");
            add_term(w, s->leaves.at[i].cut);
            str_add(&w->out, ")");
        }
    str_add(&w->out, ")\n  (factors");
    for (i64 i = 1; i < f->factors.n; i++)
        add_factor(w, &f->factors.at[i]);
    str_add(&w->out, ")\n  (judgements");
    for (i64 k = 0; k < s->system->n; k++)
        if (s->system->at[k].op == IR_SUM)
            find_judged(w, s->cut_body[k]);
    for (i64 i = 0; i < s->accs.n; i++)
        if (s->accs.at[i].op == IR_SUM)
            find_judged(w, s->accs.at[i].term);
    for (i64 i = 0; i < w->judged.n; i++) {
        str_add(&w->out, "\n    (");
        add_term(w, w->judged.at[i]);
        str_printf(&w->out, " %s ", f->by_term.at[w->judged.at[i].i].row);
        add_poly(w, f->by_term.at[w->judged.at[i].i].p);
        str_add(&w->out, ")");
    }
    str_add(&w->out, ")\n  (slots");
    for (i64 i = 0; i < s->accs.n; i++) {
        str_printf(&w->out, "\n    (%s ", ir_reducer_text(s->accs.at[i].op));
        add_term(w, s->accs.at[i].term);
        str_add(&w->out, " ");
        add_poly(w, s->accs.at[i].op == IR_SUM ? s->accs.at[i].target : rl_poly_zero());
        str_add(&w->out, ")");
    }
    str_add(&w->out, ")\n  (reductions");
    for (i64 k = 0; k < s->system->n; k++) {
        str_printf(&w->out, "\n    (%s ", ir_reducer_text(s->system->at[k].op));
        add_term(w, s->body[k]);
        str_add(&w->out, " ");
        add_term(w, s->system->at[k].op == IR_SUM ? s->cut_body[k] : s->body[k]);
        str_add(&w->out, " ");
        add_term(w, s->readout[k]);
        for (i64 i = 0; i < s->blocks.n; i++)
            if (s->blocks.at[i].reduction == k)
                add_block(w, &s->blocks.at[i]);
        str_add(&w->out, ")");
    }
    str_add(&w->out, "))\n");
    str text = str_new(s->a);
    str_add(&text, "(repair-certificate 1\n");
    ir_print(&text, f->w);
    str_add(&text, str_text(&w->out));
    return str_text(&text);
}
