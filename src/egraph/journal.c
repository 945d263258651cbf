/* Undo by journal. While a mark is open every overwritten word is logged; undo replays the log
 * backwards and truncates what was appended, so it costs what was changed and copies nothing.
 * Entries are written payload first, tag last. Hash-cons slots are logged as (hash, e-node) put in
 * or taken out, which holds across growth of the table. Records, bodies and log entries are only
 * appended under a mark: nothing is recycled or compacted. */
#include "egraph/egraph.h"

/* Words; false marks the journal as incomplete, and undo will refuse. */
static bool push(eg *g, const u32 *words, u32 n)
{
    if (g->journal_lost || !eg_vec_room(g, &g->journal, n)) {
        g->journal_lost = true;
        return false;
    }
    memcpy(g->journal.at + g->journal.n, words, 4 * (size_t)n);
    g->journal.n += n;
    return true;
}

void eg_journal_node(eg *g, u32 n, u32 word, u32 old)
{
    push(g, (u32[]){n, word, old, J_NODE}, 4);
}

void eg_journal_body(eg *g, u32 body)
{
    u32 words[sizeof(eg_body) / 4 + 2];
    memcpy(words, eg_body_at(g, body), sizeof(eg_body));
    words[sizeof(eg_body) / 4] = body;
    words[sizeof(eg_body) / 4 + 1] = J_BODY;
    push(g, words, sizeof words / 4);
}

void eg_journal_parent(eg *g, u32 c)
{
    push(g, (u32[]){c, g->parent[c], J_PARENT}, 3);
}

void eg_journal_slot(eg *g, u32 kind, u32 hash, u32 n)
{
    push(g, (u32[]){hash, n, kind}, 3);
}

void eg_journal_edge(eg *g, u32 n)
{
    const eg_edge *e = eg_edge_of(g, n);
    push(g, (u32[]){n, e->to, e->why, J_EDGE}, 4);
}

void eg_journal_data(eg *g, u32 analysis, u32 body)
{
    u32 words[40], n = g->data[analysis].elem / 4;
    memcpy(words, eg_at(&g->data[analysis], body), 4 * (size_t)n);
    words[n] = analysis;
    words[n + 1] = body;
    words[n + 2] = J_DATA;
    push(g, words, n + 3);
}

void eg_journal_rule(eg *g, u32 rule)
{
    push(g, (u32[]){rule, g->rule[rule].watermark, J_RULE}, 3);
}

/* Takes back the last entry. */
static void undo_entry(eg *g)
{
    u32 *top = g->journal.at + g->journal.n, kind = top[-1], used;
    switch (kind) {
    case J_NODE:
        eg_rec(g, top[-4])[top[-3]] = top[-2];
        used = 4;
        break;
    case J_BODY:
        used = sizeof(eg_body) / 4 + 2;
        memcpy(eg_body_at(g, top[-2]), top - used, sizeof(eg_body));
        break;
    case J_PARENT:
        g->parent[top[-3]] = top[-2];
        used = 3;
        break;
    case J_INSERT:
        eg_slot_remove(g, top[-3], top[-2]);
        used = 3;
        break;
    case J_REMOVE:
        eg_slot_insert(g, top[-3], top[-2]);
        used = 3;
        break;
    case J_EDGE:
        *eg_edge_of(g, top[-4]) = (eg_edge){top[-3], top[-2]};
        used = 4;
        break;
    case J_DATA: {
        u32 n = g->data[top[-3]].elem / 4;
        used = n + 3;
        memcpy(eg_at(&g->data[top[-3]], top[-2]), top - used, 4 * (size_t)n);
        break;
    }
    default:
        g->rule[top[-3]].watermark = top[-2];
        used = 3;
        break;
    }
    g->journal.n -= used;
}

/* ---- marks --------------------------------------------------------------------------------- */

/* What a mark saves besides the journal: how far everything had grown. */
typedef struct counts {
    u32 seg[6], class_ids, body, nclasses, now, alive, visible, dead, rows, extra, journal, nrules,
        nlogs;
} counts;
enum { COUNT_WORDS = sizeof(counts) / 4, LOG_WORDS = 4 };

eqf_status eqf_mark_open(eqf_egraph *g, eqf_mark *out)
{
    out->i = 0;
    eqf_status s = eqf_rebuild(g);
    if (s)
        return s;
    counts c = {.class_ids = g->class_ids, .body = g->body.n, .nclasses = g->nclasses,
                .now = g->now, .alive = g->alive, .visible = g->visible, .dead = g->dead,
                .rows = g->rows.n, .extra = g->extra.n, .journal = g->journal.n, .nrules = g->nrules,
                .nlogs = g->nlogs};
    for (u32 k = 0; k < 6; k++)
        c.seg[k] = g->seg[k].n;
    u32 need = COUNT_WORDS + LOG_WORDS * g->nlogs + 1;
    if (!eg_vec_room(g, &g->mark_state, need))
        return eg_failed(g, "opening a mark");
    for (u32 op = 0; op < g->nlogs; op++) { /* a broken log cannot be truncated */
        if (g->log[op].broken && !eg_log_repair(g, op))
            return eg_failed(g, "opening a mark");
    }
    eg_vec *v = &g->mark_state;
    for (u32 op = 0; op < g->nlogs; op++) {
        const eg_log *l = &g->log[op];
        u32 words[LOG_WORDS] = {l->n, l->nepochs, l->alive, l->visible};
        memcpy(v->at + v->n, words, sizeof words);
        v->n += LOG_WORDS;
    }
    memcpy(v->at + v->n, &c, sizeof c);
    v->n += COUNT_WORDS;
    out->i = ++g->marks;
    return EQF_OK;
}

static counts pop_mark(eg *g, const u32 **logs)
{
    eg_vec *v = &g->mark_state;
    counts c;
    v->n -= COUNT_WORDS;
    memcpy(&c, v->at + v->n, sizeof c);
    v->n -= LOG_WORDS * c.nlogs;
    *logs = v->at + v->n;
    return c;
}

static eqf_status check_mark(eg *g, eqf_mark mark, const char *call)
{
    if (mark.i >= 1 && mark.i <= g->marks)
        return EQF_OK;
    return eqf_report(g->ctx, EQF_E_ARGUMENT, NULL, call, "mark %u is not open", mark.i);
}

eqf_status eqf_undo(eqf_egraph *g, eqf_mark mark)
{
    eqf_status s = check_mark(g, mark, "eqf_undo");
    if (s)
        return s;
    if (g->journal_lost)
        return eqf_report(g->ctx, EQF_E_NO_MEMORY, NULL, "eqf_undo",
                          "memory ran out while the mark was open; the e-graph is sound, but the "
                          "journal is incomplete");
    const u32 *logs = NULL;
    counts c = {0};
    while (g->marks >= mark.i) {
        c = pop_mark(g, &logs);
        g->marks--;
    }
    while (g->journal.n > c.journal)
        undo_entry(g);
    for (u32 k = 0; k < 6; k++)
        g->seg[k].n = c.seg[k];
    g->class_ids = c.class_ids;
    for (u32 k = 0; k < g->nanalyses; k++)
        g->data[k].n = c.body;
    g->body.n = c.body;
    g->nclasses = c.nclasses;
    g->now = c.now;
    g->alive = c.alive;
    g->visible = c.visible;
    g->dead = c.dead;
    g->rows.n = c.rows;
    g->extra.n = c.extra;
    g->nrules = c.nrules;
    for (u32 op = 0; op < g->nlogs; op++) {
        eg_log *l = &g->log[op];
        const u32 *w = logs + LOG_WORDS * op;
        bool had = op < c.nlogs;
        l->n = had ? w[0] : 0;
        l->nepochs = had ? w[1] : 0;
        l->alive = had ? w[2] : 0;
        l->visible = had ? w[3] : 0;
        l->broken = false;
    }
    g->dirty.n = g->queue.n = g->queue_head = 0;
    g->conflict = EQF_OK;
    return EQF_OK;
}

eqf_status eqf_keep(eqf_egraph *g, eqf_mark mark)
{
    eqf_status s = check_mark(g, mark, "eqf_keep");
    if (s)
        return s;
    const u32 *logs;
    while (g->marks >= mark.i) {
        pop_mark(g, &logs);
        g->marks--;
    }
    if (!g->marks) {
        g->journal.n = 0;
        g->journal_lost = false;
    }
    return EQF_OK;
}
