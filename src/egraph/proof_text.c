/* Proofs as text, for people and for the checker.
 *
 *     (proof shared 1
 *       (t ID HEAD CHILD ...)                        a term; children are ids
 *       (s ID FROM TO (rule NAME K (?x TERM) ...) REF ...)   conclusion K of a rule; REF: premises
 *       (s ID FROM TO (axiom REASON))
 *       (s ID FROM TO (congruence REF ...))          one a child, 0: identical
 *       (s ID FROM TO (swap))                        operands of a commutative operator
 *       (s ID FROM TO (chain REF ...))
 *       (claim FROM TO REF))                         REF: id, -id for the reverse, 0 for none
 *
 *     (proof flat 1 TERM (by STEP AT) TERM (by STEP AT) TERM ...)
 *     STEP: (rule NAME K => | <= (?x TERM) ...) then premises as (proof flat ...), or
 *           (axiom REASON => | <=), or (swap);  AT: (child index ...) from the root */
#include <stdlib.h>

#include "egraph/explain.h"

#define MAX_FLAT (16 << 20)

/* A term whose operands are being written, or a step whose parts are. */
typedef struct unfinished {
    i32 id;
    u32 next;
} unfinished;

typedef struct writer {
    eqf_proof *p;
    str out;
    u8 *term_done, *step_done;
    VEC(unfinished) open; /* of print_term */
    int nested; /* flat proofs being written, each a premise of the one before */
} writer;
enum { MOST_NESTED = 1000 }; /* more than the reader takes */

/* As deep as the term is: no recursion. */
static void print_term(writer *w, u32 term)
{
    const eqf_proof *p = w->p;
    w->open.n = 0;
    vec_push(p->a, &w->open, (unfinished){(i32)term, 0});
    while (w->open.n) {
        unfinished *top = &w->open.at[w->open.n - 1];
        const pf_term *t = &p->terms.at[top->id];
        if (w->out.n > MAX_FLAT)
            eqf_throw(p->ctx, EQF_E_LIMIT, NULL, NULL, "the flat proof has more than 16 MiB");
        if (!top->next) {
            str_add(&w->out, t->n ? "(" : "");
            eg_print_head(p->lang, &w->out, t->head);
        }
        if (top->next == t->n) {
            eg_print_payload(p->lang, &w->out, t->head);
            str_add(&w->out, t->n ? ")" : "");
            w->open.n--;
            continue;
        }
        str_add_char(&w->out, ' ');
        i32 kid = (i32)t->kids[top->next++];
        vec_push(p->a, &w->open, (unfinished){kid, 0});
    }
}

static void print_symbol(writer *w, const char *name)
{
    sx x = {.kind = SX_STRING, .text = name, .n = (i64)strlen(name)};
    sx_print(&w->out, &x);
}

/* The datum of a payload variable: what its operator prints, without the keyword. */
static void print_payload_value(writer *w, const eg_rule *r, u32 v, u32 payload)
{
    const eg_atom *atom = &r->atoms.at[r->site[v].atom];
    const eg_payload_form *form = w->p->lang->ops.at[atom->op].payload;
    str s = str_new(w->p->a);
    form->print(form->user, &s, payload);
    const char *text = str_text(&s), *at = strchr(text, ':');
    while (at && *at && *at != ' ')
        at++;
    str_add(&w->out, at ? at + 1 : text);
}

static void print_values(writer *w, const pf_step *s, bool whole)
{
    const eg_rule *r = s->rule;
    for (u32 v = 0; v < r->nvars; v++) {
        if (!r->var_name[v] || !s->values[v])
            continue;
        str_printf(&w->out, " (%s ", r->var_name[v]);
        if (r->var_payload[v])
            print_payload_value(w, r, v, s->values[v]);
        else if (whole)
            print_term(w, s->values[v]);
        else
            str_printf(&w->out, "%u", s->values[v]);
        str_add_char(&w->out, ')');
    }
}

/* ---- shared -------------------------------------------------------------------------------- */

/* Writes the terms and steps that `ref` stands on, each once, older first. An explicit stack: proofs
 * can be deep. */
static void need_term(writer *w, u32 term)
{
    VEC(u32) stack = {0};
    vec_push(w->p->a, &stack, term);
    while (stack.n) {
        u32 t = stack.at[stack.n - 1];
        const pf_term *pt = &w->p->terms.at[t];
        bool ready = true;
        for (u32 i = 0; i < pt->n && !w->term_done[t]; i++) {
            if (!w->term_done[pt->kids[i]]) {
                ready = false;
                vec_push(w->p->a, &stack, pt->kids[i]);
            }
        }
        if (!ready)
            continue;
        stack.n--;
        if (w->term_done[t])
            continue;
        w->term_done[t] = 1;
        str_printf(&w->out, "  (t %u ", t);
        eg_print_head(w->p->lang, &w->out, pt->head);
        for (u32 i = 0; i < pt->n; i++)
            str_printf(&w->out, " %u", pt->kids[i]);
        eg_print_payload(w->p->lang, &w->out, pt->head);
        str_add(&w->out, ")\n");
    }
}

static void print_refs(writer *w, const pf_step *s)
{
    for (u32 i = 0; i < s->nrefs; i++)
        str_printf(&w->out, " %d", s->refs[i]);
}

static void print_step(writer *w, u32 id)
{
    const pf_step *s = &w->p->steps.at[id];
    need_term(w, s->from);
    need_term(w, s->to);
    for (u32 v = 0; s->kind == PF_RULE && v < s->rule->nvars; v++) {
        if (s->values[v] && s->rule->var_name[v] && !s->rule->var_payload[v])
            need_term(w, s->values[v]);
    }
    str_printf(&w->out, "  (s %u %u %u ", id, s->from, s->to);
    switch (s->kind) {
    case PF_RULE:
        str_add(&w->out, "(rule ");
        print_symbol(w, s->reason);
        str_printf(&w->out, " %u", s->conclusion);
        print_values(w, s, false);
        str_add_char(&w->out, ')');
        print_refs(w, s);
        break;
    case PF_AXIOM:
        str_add(&w->out, "(axiom ");
        print_symbol(w, s->reason);
        str_add_char(&w->out, ')');
        break;
    case PF_SWAP:
        str_add(&w->out, "(swap)");
        break;
    default:
        str_add(&w->out, s->kind == PF_CHAIN ? "(chain" : "(congruence");
        print_refs(w, s);
        str_add_char(&w->out, ')');
    }
    str_add(&w->out, ")\n");
}

static void need_step(writer *w, i32 ref)
{
    VEC(u32) stack = {0};
    if (ref)
        vec_push(w->p->a, &stack, (u32)abs(ref));
    while (stack.n) {
        u32 id = stack.at[stack.n - 1];
        const pf_step *s = &w->p->steps.at[id];
        bool ready = true;
        for (u32 i = 0; i < s->nrefs && !w->step_done[id]; i++) {
            u32 needed = (u32)abs(s->refs[i]);
            if (needed && !w->step_done[needed]) {
                ready = false;
                vec_push(w->p->a, &stack, needed);
            }
        }
        if (!ready)
            continue;
        stack.n--;
        if (w->step_done[id])
            continue;
        w->step_done[id] = 1;
        print_step(w, id);
    }
}

static void write_shared(writer *w)
{
    eqf_proof *p = w->p;
    w->term_done = NEW_N(p->a, u8, p->terms.n);
    w->step_done = NEW_N(p->a, u8, p->steps.n);
    str_add(&w->out, "(proof shared 1\n");
    need_term(w, p->from);
    need_term(w, p->to);
    need_step(w, p->claim);
    str_printf(&w->out, "  (claim %u %u %d))\n", p->from, p->to, p->claim);
}

/* ---- flat ---------------------------------------------------------------------------------- */

typedef struct flat {
    writer *w;
    u32 current;      /* whole term */
    VEC(u32) at;      /* position of the step being written */
    VEC(u32) path;    /* the terms on the way there */
    VEC(const char *) *reasons; /* collect instead of print */
    size_t limit;
} flat;

static void flat_proof(writer *w, u32 from, i32 ref);

/* The whole term with another one at the position. */
static u32 replace(flat *f, u32 with)
{
    eqf_proof *p = f->w->p;
    u32 term = f->current;
    f->path.n = 0;
    for (i64 i = 0; i < f->at.n; i++) {
        vec_push(p->a, &f->path, term);
        term = p->terms.at[term].kids[f->at.at[i]];
    }
    for (i64 i = f->at.n; i-- > 0;) {
        pf_term t = p->terms.at[f->path.at[i]];
        u32 small[8], *kids = t.n > 8 ? NEW_N(p->a, u32, t.n) : small;
        memcpy(kids, t.kids, 4 * (size_t)t.n);
        kids[f->at.at[i]] = with;
        with = pf_term_add(p, t.head, t.n, kids);
    }
    return with;
}

static void elementary(flat *f, const pf_step *s, bool forward)
{
    writer *w = f->w;
    u32 to = forward ? s->to : s->from;
    static const char swap[] = "swap";
    if (f->reasons) {
        if ((size_t)f->reasons->n == f->limit)
            eqf_throw(w->p->ctx, EQF_E_LIMIT, NULL, NULL, "the flat proof has too many steps");
        vec_push(w->p->a, f->reasons, s->kind == PF_SWAP ? swap : s->reason);
        return;
    }
    str_add(&w->out, "\n  (by ");
    if (s->kind == PF_SWAP) {
        str_add(&w->out, "(swap)");
    } else {
        str_add(&w->out, s->kind == PF_RULE ? "(rule " : "(axiom ");
        print_symbol(w, s->reason);
        if (s->kind == PF_RULE)
            str_printf(&w->out, " %u", s->conclusion);
        str_add(&w->out, forward ? " =>" : " <=");
        if (s->kind == PF_RULE)
            print_values(w, s, true);
        str_add_char(&w->out, ')');
    }
    str_add(&w->out, " (");
    for (i64 i = 0; i < f->at.n; i++)
        str_printf(&w->out, "%s%u", i ? " " : "", f->at.at[i]);
    str_add_char(&w->out, ')');
    for (u32 i = 0; s->kind == PF_RULE && i < s->nrefs; i++) {
        str_add_char(&w->out, ' ');
        i32 ref = s->refs[i];
        if (ref)
            flat_proof(w, pf_from(w->p, ref, 0), ref);
        else
            str_add(&w->out, "same");
    }
    str_add(&w->out, ")\n  ");
    f->current = replace(f, to);
    print_term(w, f->current);
}

/* The elementary steps of `ref` in order. */
static void walk(flat *f, i32 ref)
{
    eqf_proof *p = f->w->p;
    VEC(unfinished) open = {0};
    if (ref)
        vec_push(p->a, &open, (unfinished){ref, 0});
    while (open.n) {
        unfinished *top = &open.at[open.n - 1];
        const pf_step *s = &p->steps.at[abs(top->id)];
        bool forward = top->id > 0, chain = s->kind == PF_CHAIN;
        bool parts = chain || s->kind == PF_CONGRUENCE;
        if (!parts)
            elementary(f, s, forward);
        if (!parts || top->next == s->nrefs) {
            open.n--;
            if (open.n && p->steps.at[abs(open.at[open.n - 1].id)].kind == PF_CONGRUENCE)
                f->at.n--;
            continue;
        }
        u32 i = top->next++;
        i32 part = forward ? s->refs[i] : -s->refs[chain ? s->nrefs - 1 - i : i];
        if (!part)
            continue;
        if (!chain)
            vec_push(p->a, &f->at, i);
        vec_push(p->a, &open, (unfinished){part, 0});
    }
}

static void flat_proof(writer *w, u32 from, i32 ref)
{
    flat f = {.w = w, .current = from};
    if (++w->nested > MOST_NESTED)
        eqf_throw(w->p->ctx, EQF_E_LIMIT, NULL, NULL,
                  "the flat proof has premises of premises, %d deep", MOST_NESTED);
    str_add(&w->out, "(proof flat 1\n  ");
    print_term(w, from);
    walk(&f, ref);
    str_add_char(&w->out, ')');
    w->nested--;
}

/* ---- API ----------------------------------------------------------------------------------- */

eqf_status eqf_proof_reasons(eqf_proof *proof, size_t limit, const char *const **out, size_t *n)
{
    *out = NULL;
    *n = 0;
    trap t;
    TRY(proof->ctx, t)
    {
        writer w = {.p = proof};
        VEC(const char *) reasons = {0};
        flat f = {.w = &w, .limit = limit, .reasons = (void *)&reasons};
        walk(&f, proof->claim);
        *out = (const char *const *)reasons.at;
        *n = (size_t)reasons.n;
    }
    return t.status;
}

void eqf_text_free(eqf_ctx *ctx, char *text)
{
    if (text)
        heap_free(ctx, text, (i64)strlen(text) + 1);
}

eqf_status eqf_proof_text(eqf_proof *proof, eqf_form form, char **out)
{
    *out = NULL;
    trap t;
    TRY(proof->ctx, t)
    {
        writer w = {.p = proof, .out = str_new(proof->a)};
        if (form == EQF_SHARED) {
            write_shared(&w);
        } else {
            flat_proof(&w, proof->from, proof->claim);
            str_add_char(&w.out, '\n');
        }
        char *text = heap_alloc(proof->ctx, w.out.n + 1);
        memcpy(text, str_text(&w.out), (size_t)w.out.n + 1);
        *out = text;
    }
    return t.status;
}
