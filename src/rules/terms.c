/* Terms by themselves, outside of any e-graph: what a proof's text says, typed from its own
 * operators and leaves. Equal terms are one record; a record also knows the one spelling of all
 * terms that differ from it in the order of unordered operands. */
#include "rules/graph_impl.h"

enum { MOST_NESTED = 2000 }; /* of terms that are read from a table */

rl_terms *rl_terms_new(rl_graph *g, arena *a)
{
    rl_terms *t = NEW(a, rl_terms);
    t->g = g;
    t->a = a;
    vec_push(a, &t->at, (rl_record){0});
    return t;
}

static u64 hash_of(const rl_record *x)
{
    u64 h = 14695981039346656037u;
    u32 head[4] = {x->op, x->reducer, x->payload, x->head.i};
    for (i64 i = 0; i < 4 + x->n; i++)
        h = (h ^ (i < 4 ? head[i] : x->kids[i - 4])) * 1099511628211u;
    return h ^ h >> 29;
}

static bool is_same(const rl_record *x, const rl_record *y)
{
    return x->op == y->op && x->reducer == y->reducer && x->payload == y->payload &&
           x->head.i == y->head.i && x->n == y->n &&
           (x->n == 0 || memcmp(x->kids, y->kids, (size_t)x->n * sizeof *x->kids) == 0);
}

/* Where the record is or belongs. */
static u32 *slot_of(rl_terms *t, const rl_record *x)
{
    i64 i = (i64)(hash_of(x) & (u64)(t->slot_count - 1));
    while (t->slots[i] && !is_same(&t->at.at[t->slots[i]], x))
        i = (i + 1) & (t->slot_count - 1);
    return &t->slots[i];
}

static void grow(rl_terms *t)
{
    if (2 * t->at.n < t->slot_count)
        return;
    t->slot_count = MAX(64, 4 * t->slot_count);
    t->slots = NEW_N(t->a, u32, t->slot_count);
    for (i64 i = 1; i < t->at.n; i++)
        *slot_of(t, &t->at.at[i]) = (u32)i;
}

static u32 add(rl_terms *t, rl_record x)
{
    grow(t);
    u32 *slot = slot_of(t, &x);
    if (*slot)
        return *slot;
    x.kids = arena_copy(t->a, x.kids, x.n * (i64)sizeof *x.kids);
    *slot = (u32)t->at.n;
    vec_push(t->a, &t->at, x);
    return *slot;
}

u32 rl_terms_leaf(rl_terms *t, eqf_head head)
{
    const rl_leaf *leaf = rl_leaf_of(t->g, head);
    if (!leaf)
        return 0;
    u32 id = add(t, (rl_record){.type = leaf->type, .head = head});
    t->at.at[id].spelling = id;
    return id;
}

u32 rl_terms_opaque(rl_terms *t, rl_type type, u32 number)
{
    u32 id = add(t, (rl_record){.type = type, .payload = number});
    t->at.at[id].spelling = id;
    return id;
}

/* Components of a loop are a set. */
static i64 sort_set(u32 *kids, i64 n)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        u32 kid = kids[i];
        i64 j = count;
        while (j > 0 && kids[j - 1] > kid)
            j--;
        if (j > 0 && kids[j - 1] == kid)
            continue;
        memmove(kids + j + 1, kids + j, (size_t)(count - j) * sizeof *kids);
        kids[j] = kid;
        count++;
    }
    return count;
}

static u32 with_spelling(rl_terms *t, rl_record x)
{
    u32 *kids = NEW_N(t->a, u32, x.n), id = add(t, x);
    if (t->at.at[id].spelling)
        return id;
    for (i64 i = 0; i < x.n; i++)
        kids[i] = t->at.at[x.kids[i]].spelling;
    if (x.n == 2 && (ir_row(x.op)->flags & IR_COMM) && kids[0] > kids[1]) {
        u32 first = kids[0];
        kids[0] = kids[1];
        kids[1] = first;
    }
    i64 n = x.op == IR_loop ? sort_set(kids, x.n) : x.n;
    bool is_it = n == x.n;
    for (i64 i = 0; i < n; i++)
        is_it = is_it && kids[i] == x.kids[i];
    x.kids = kids;
    x.n = n;
    u32 spelling = is_it ? id : with_spelling(t, x);
    t->at.at[id].spelling = spelling;
    return id;
}

u32 rl_terms_make(rl_terms *t, ir_op op, ir_reducer reducer, u32 payload, const u32 *kids, i64 n)
{
    const rl_payload *p = &t->g->payloads.at[payload];
    if (op != IR_reduce && op != IR_comp)
        reducer = IR_NO_REDUCER;
    rl_label l = rl_label_of(t->g, op, reducer, payload);
    if (op == IR_concat && p->attr.axis.n != n)
        return 0;
    rl_type *x = NEW_N(t->a, rl_type, n);
    for (i64 i = 0; i < n; i++)
        x[i] = t->at.at[kids[i]].type;
    u64 bad = 0;
    rl_type type = rl_type_of(&l, x, n, &bad);
    if (bad || type.dtype == DT_NONE)
        return 0;
    return with_spelling(t, (rl_record){.type = type,
                                        .op = op,
                                        .reducer = reducer,
                                        .payload = payload,
                                        .kids = kids,
                                        .n = n});
}

/* An operator over records, with its payload from the text: 0 when there is none such. */
static u32 read_operator(rl_terms *t, const char *name, const u32 *kids, i64 n,
                         struct sx *const *keywords, i64 keyword_count)
{
    u32 payload = 0;
    if (keyword_count > 0) {
        payload = rl_payload_of_text(t->g, (const sx *const *)keywords, keyword_count);
        if (!payload)
            return 0;
    }
    for (i64 k = 0; k < t->g->operators.n; k++) {
        const rl_operator *o = &t->g->operators.at[k];
        if (o->op != IR_NO_OP &&
            strcmp(rl_operator_name(t->a, o->op, o->reducer), name) == 0)
            return n == 0 || (ir_row(o->op)->arity >= 0 && ir_row(o->op)->arity != n)
                       ? 0
                       : rl_terms_make(t, o->op, o->reducer, payload, kids, n);
    }
    return 0;
}

static i64 count_operands(const sx *x, i64 from)
{
    i64 n = 0;
    while (from + n < x->n &&
           !(x->at[from + n]->kind == SX_SYMBOL && x->at[from + n]->text[0] == ':'))
        n++;
    return n;
}

static u32 read(rl_terms *t, const sx *x)
{
    if (x->kind == SX_SYMBOL || x->kind == SX_STRING) {
        eqf_head head;
        rl_must(t->g, eqf_head_symbol(t->g->lang, (eqf_text){x->text, (size_t)x->n}, &head));
        if (!rl_leaf_of(t->g, head)) /* a number that the program does not have */
            rl_add_number(t->g, x->text);
        return rl_terms_leaf(t, head);
    }
    if (x->kind != SX_LIST || x->n < 2 || x->at[0]->kind == SX_LIST)
        return 0;
    i64 n = count_operands(x, 1);
    u32 *kids = NEW_N(t->a, u32, n);
    for (i64 i = 0; i < n; i++) {
        kids[i] = read(t, x->at[1 + i]);
        if (!kids[i])
            return 0;
    }
    return read_operator(t, x->at[0]->text, kids, n, x->at + 1 + n, x->n - 1 - n);
}

/* (t ID HEAD CHILD ...) as an item of a table; `known` maps ids to records. */
static u32 read_item(rl_terms *t, const sx *x, const u32 *known, i64 n_known)
{
    if (!sx_is_form(x, "t") || x->n < 3 || x->at[1]->kind != SX_INT)
        return 0;
    if (x->n == 3)
        return read(t, x->at[2]);
    i64 n = count_operands(x, 3);
    u32 *kids = NEW_N(t->a, u32, n);
    for (i64 i = 0; i < n; i++) {
        const sx *kid = x->at[3 + i];
        if (kid->kind != SX_INT || kid->i < 0 || kid->i >= n_known || !known[kid->i])
            return 0;
        kids[i] = known[kid->i];
    }
    return x->at[2]->kind == SX_LIST
               ? 0
               : read_operator(t, x->at[2]->text, kids, n, x->at + 3 + n, x->n - 3 - n);
}

u32 rl_terms_read_table(rl_terms *t, const sx *list, i64 from, i64 to, i64 id)
{
    i64 size = 1;
    for (i64 i = from; i < to; i++)
        if (sx_is_form(list->at[i], "t") && list->at[i]->n > 2 && list->at[i]->at[1]->i < 10000000)
            size = MAX(size, 1 + list->at[i]->at[1]->i);
    u32 *known = NEW_N(t->a, u32, size), *depth = NEW_N(t->a, u32, size);
    for (i64 i = from; i < to; i++) {
        const sx *x = list->at[i];
        u32 made = sx_is_form(x, "t") ? read_item(t, x, known, size) : 0, deepest = 0;
        if (!made || x->at[1]->i < 0 || x->at[1]->i >= size || known[x->at[1]->i])
            continue;
        for (i64 k = 0, n = x->n > 3 ? count_operands(x, 3) : 0; k < n; k++)
            deepest = MAX(deepest, depth[x->at[3 + k]->i]);
        depth[x->at[1]->i] = deepest + 1;
        if (deepest < MOST_NESTED) /* what reads terms goes down by recursion */
            known[x->at[1]->i] = made;
    }
    return id >= 0 && id < size ? known[id] : 0;
}

u32 rl_terms_read(rl_terms *t, const char *text)
{
    const sx *all = sx_read(t->a, "proof", text, (i64)strlen(text));
    if (all->n != 1)
        return 0;
    const sx *x = all->at[0];
    if (sx_is_form(x, "shared-term") && x->n > 2 && x->at[x->n - 1]->kind == SX_INT)
        return rl_terms_read_table(t, x, 1, x->n - 1, x->at[x->n - 1]->i);
    return read(t, x);
}

static u32 copy(rl_terms *t, const rl_terms *from, u32 id, u32 *done)
{
    const rl_record *x = &from->at.at[id];
    if (done[id] || !id)
        return done[id];
    if (x->op == IR_NO_OP)
        return done[id] = x->head.i ? rl_terms_leaf(t, x->head)
                                    : rl_terms_opaque(t, x->type, x->payload);
    u32 *kids = NEW_N(t->a, u32, x->n);
    for (i64 i = 0; i < x->n; i++) {
        kids[i] = copy(t, from, x->kids[i], done);
        if (!kids[i])
            return 0;
    }
    return done[id] = rl_terms_make(t, x->op, x->reducer, x->payload, kids, x->n);
}

u32 rl_terms_copy(rl_terms *t, const rl_terms *from, u32 id)
{
    return copy(t, from, id, NEW_N(t->a, u32, from->at.n));
}

bool rl_terms_same(const rl_terms *t, u32 x, u32 y)
{
    return t->at.at[x].spelling == t->at.at[y].spelling;
}
