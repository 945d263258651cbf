/* The certificate checker, exact half: the certificate is read, its terms compared literally with
 * the system, and each step that is ring arithmetic replayed in the checker's own.
 *
 * Sums are expanded fully and reductions inside the tile are pulled apart by linearity, so two
 * values are equal here iff their canonical polynomials over leaves and opaque factors are. For
 * each block the identity that carries the repair is decided in that ring:
 *
 *     f_j / roll at tau' = sum over k >= j of C(k, j) (tau' - tau)^(k-j) f_k / roll at tau,
 *
 * with fresh factors for every result at the new reference, and F = sum of wait * f_0.
 * Rows that are no ring steps rest on values (check_repair_value.c).       (docs/repair.md, §11) */
#include <stdio.h>

#include "rules/check_repair_impl.h"

bool ck_refuse(checker *c, const char *format, ...)
{
    if (c->wrong)
        return false;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->wrong = arena_strdup(c->a, text);
    return false;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static const sx *at(checker *c, const sx *x, i64 i)
{
    static const sx nothing = {.kind = SX_LIST, .bracket = '(', .text = ""};
    if (x->kind == SX_LIST && i < x->n)
        return x->at[i];
    ck_refuse(c, "the certificate ends early at %u:%u", x->line, x->column);
    return &nothing;
}

static const sx *section(checker *c, const sx *x, const char *name)
{
    for (i64 i = 0; i < x->n; i++)
        if (sx_is_form(x->at[i], name))
            return x->at[i];
    ck_refuse(c, "the certificate has no %s", name);
    return at(c, x, x->n);
}

static i64 read_number(checker *c, const sx *x, i64 low, i64 high)
{
    if (x->kind != SX_INT || x->i < low || x->i >= high) {
        ck_refuse(c, "a number out of range at %u:%u", x->line, x->column);
        return low;
    }
    return x->i;
}

static ck_rat read_rat(checker *c, const sx *x)
{
    const i64 big = (i64)1 << 62;
    i64 n = read_number(c, at(c, x, 0), -big, big), d = read_number(c, at(c, x, 1), 1, big);
    return ck_reduced(c, n, d);
}

static ck_poly read_mono(checker *c, const sx *x, ck_rat coefficient)
{
    ck_poly p = ck_number(c, coefficient);
    for (i64 i = 0; i < x->n && !c->wrong; i++) {
        u32 k = (u32)read_number(c, at(c, at(c, x, i), 0), 1, c->factors.n);
        ck_rat q = read_rat(c, at(c, at(c, x, i), 1));
        if (q.n == 0)
            ck_refuse(c, "an exponent of 0 at %u:%u", x->line, x->column);
        else
            p = ck_multiply(c, p, ck_factor_power(c, k, q));
    }
    return p;
}

static ck_poly read_poly(checker *c, const sx *x)
{
    ck_poly p = {0};
    for (i64 i = 0; i < x->n && !c->wrong; i++) {
        const sx *t = at(c, x, i);
        p = ck_add_polys(c, p, read_mono(c, at(c, t, 1), read_rat(c, at(c, t, 0))));
    }
    return p;
}

static ir_term read_term(checker *c, const sx *x)
{
    u32 name = x->kind == SX_SYMBOL ? intern_find(c->w->names, x->text, x->n) : 0;
    for (i64 i = 0; name && i < c->w->outputs.n; i++)
        if (c->w->outputs.at[i].name == name)
            return c->w->outputs.at[i].term;
    ck_refuse(c, "the ledger has no term \"%s\"", x->text ? x->text : "");
    return (ir_term){0};
}

static ir_term find_input(checker *c, const sx *x)
{
    u32 name = x->text ? intern_find(c->w->names, x->text, x->n) : 0;
    for (i64 i = 0; name && i < c->w->inputs.n; i++)
        if (c->w->inputs.at[i].name == name)
            return c->w->inputs.at[i].term;
    ck_refuse(c, "the ledger has no input \"%s\"", x->text ? x->text : "");
    return (ir_term){0};
}

static ir_atom find_atom(checker *c, const char *name)
{
    for (u32 i = 1; i < (u32)c->w->atoms.n; i++)
        if (strcmp(ir_atom_name(c->w, (ir_atom){i}), name) == 0)
            return (ir_atom){i};
    ck_refuse(c, "the ledger has no dim \"%s\"", name);
    return (ir_atom){0};
}

static u8 dep_of(checker *c, ir_term t)
{
    if (c->deps[t.i])
        return (u8)(c->deps[t.i] - 1);
    const ir_node *n = ir_get(c->w, t);
    u8 dep = 0;
    bool is_leaf = n->op == IR_in || n->op == IR_iota;
    if (is_leaf && ck_overlaps(n->op == IR_in ? n->dims : n->attr.axis, c->axis))
        dep |= CK_X;
    if (t.i == c->lanes.i)
        dep |= CK_X;
    for (i64 i = 0; i < c->results.n; i++)
        if (c->results.at[i].i == t.i)
            dep |= CK_S;
    for (i64 i = 0; i < c->cut_leaves.n; i++)
        if (c->cut_leaves.at[i].i == t.i)
            dep |= CK_S;
    for (i64 i = 0; i < c->slots.n; i++)
        if (c->slots.at[i].leaf.i == t.i)
            dep |= CK_S;
    for (i64 i = 0; i < n->arg_count; i++)
        dep |= dep_of(c, n->args[i]);
    c->deps[t.i] = (u8)(dep + 1);
    return dep;
}

static void read_factor(checker *c, const sx *x)
{
    ck_factor f = {.term = read_term(c, at(c, x, 1))};
    if (c->wrong)
        return;
    f.dims = ir_get(c->w, f.term)->dims;
    f.dep = dep_of(c, f.term);
    u8 parts = 0;
    if (sx_is_form(x, "leaf")) {
        f.kind = CK_LEAF;
        parts = f.dep;
    } else if (sx_is_form(x, "exp")) {
        f.kind = CK_EXP;
        f.p = read_mono(c, at(c, x, 2), CK_ONE);
    } else if (sx_is_form(x, "log") || sx_is_form(x, "abs")) {
        f.kind = sx_is_form(x, "log") ? CK_LOG : CK_ABS;
        f.inner = (u32)read_number(c, at(c, x, 2), 1, c->factors.n);
        parts = c->factors.at[f.inner].dep;
    } else if (sx_is_form(x, "sum")) {
        f.kind = CK_SUM;
        f.p = read_poly(c, at(c, x, 2));
    } else if (sx_is_form(x, "indicator")) {
        f.kind = CK_INDICATOR;
        f.test = read_term(c, at(c, x, 2));
        parts = f.test.i ? dep_of(c, f.test) : 0;
    } else if (sx_is_form(x, "row")) {
        f.kind = CK_ROW;
        f.op = (u8)ir_reducer_find(at(c, x, 2)->text);
        const sx *dims = at(c, x, 3);
        ir_atom *list = NEW_N(c->a, ir_atom, dims->n);
        for (i64 i = 0; i < dims->n; i++)
            list[i] = find_atom(c, at(c, dims, i)->text);
        f.p = read_poly(c, at(c, x, 4));
        if (!c->wrong)
            f.axis = ir_atoms_set(c->w, list, dims->n);
    } else {
        ck_refuse(c, "no such factor at %u:%u", x->line, x->column);
    }
    for (i64 i = 0; i < f.p.n; i++)
        for (i64 j = 0; j < f.p.at[i].n; j++)
            parts |= c->factors.at[f.p.at[i].at[j].factor].dep;
    /* The term decides; what it is made of may not depend on more. */
    if (parts & ~f.dep)
        ck_refuse(c, "a factor depends on more than its term at %u:%u", x->line, x->column);
    vec_push(c->a, &c->factors, f);
}

static void read_block(checker *c, const sx *x, ck_reduction *r)
{
    ck_block b = {.roll = read_mono(c, at(c, x, 1), CK_ONE), .wait = read_poly(c, at(c, x, 2))};
    const sx *taus = at(c, x, 3);
    b.tau_count = taus->n;
    if (b.tau_count > 4) {
        ck_refuse(c, "a block of more than four coordinates");
        return;
    }
    for (i64 i = 0; i < b.tau_count; i++)
        b.tau[i] = read_poly(c, taus->at[i]);
    i64 n = x->n - 4;
    b.index = arena_alloc_n(c->a, MAX(n, 1), 4);
    b.slot = NEW_N(c->a, i64, n);
    b.c = NEW_N(c->a, ck_rat, n);
    b.f = NEW_N(c->a, ck_poly, n);
    for (i64 j = 0; j < n && !c->wrong; j++) {
        const sx *f = x->at[4 + j], *index = at(c, f, 1);
        if (!sx_is_form(f, "f") || index->n != b.tau_count)
            ck_refuse(c, "a malformed accumulator at %u:%u", f->line, f->column);
        for (i64 d = 0; d < b.tau_count && !c->wrong; d++)
            b.index[j][d] = (u8)read_number(c, at(c, index, d), 0, 7);
        b.slot[j] = read_number(c, at(c, f, 2), -1, c->slots.n);
        b.c[j] = read_rat(c, at(c, f, 3));
        b.f[j] = read_poly(c, at(c, f, 4));
        b.count++;
    }
    vec_push(c->a, &r->blocks, b);
}

static void read_certificate(checker *c)
{
    const char *text = c->repair->certificate;
    const sx *all = sx_read(c->a, "certificate", text, (i64)strlen(text));
    const sx *x = at(c, all, 0);
    if (c->wrong || !sx_is_form(x, "repair-certificate") || !sx_is(at(c, x, 1), "1")) {
        if (!c->wrong && (at(c, x, 1)->kind != SX_INT || at(c, x, 1)->i != 1))
            ck_refuse(c, "no certificate of version 1");
    }
    str program = str_new(c->a);
    sx_print(&program, section(c, x, "program"));
    if (c->wrong)
        return;
    c->w = ir_read(c->a, "certificate", str_text(&program), program.n);
    c->deps = NEW_N(c->a, u8, c->w->nodes.n);
    c->keeps = NEW_N(c->a, bool, c->w->atoms.n);
    ir_atom *axis = NEW_N(c->a, ir_atom, c->system->axis.n);
    for (i64 i = 0; i < c->system->axis.n; i++)
        axis[i] = find_atom(c, ir_atom_name(c->system->p, c->system->axis.at[i]));
    if (c->wrong)
        return;
    c->axis = ir_atoms_set(c->w, axis, c->system->axis.n);
    c->lanes = find_input(c, at(c, section(c, x, "lanes"), 1));
    const sx *list = section(c, x, "results");
    for (i64 i = 1; i < list->n; i++)
        vec_push(c->a, &c->results, find_input(c, list->at[i]));
    list = section(c, x, "cuts");
    for (i64 i = 1; i < list->n; i++) {
        vec_push(c->a, &c->cut_leaves, find_input(c, at(c, list->at[i], 0)));
        vec_push(c->a, &c->cuts, read_term(c, at(c, list->at[i], 1)));
    }
    list = section(c, x, "slot-leaves");
    for (i64 i = 1; i < list->n; i++)
        vec_push(c->a, &c->slots, (ck_slot){.leaf = find_input(c, list->at[i])});
    vec_push(c->a, &c->factors, (ck_factor){0});
    list = section(c, x, "factors");
    for (i64 i = 1; i < list->n && !c->wrong; i++)
        read_factor(c, list->at[i]);
    c->given = c->factors.n;
    for (u32 k = 1; k < (u32)c->given; k++)
        if (c->factors.at[k].kind == CK_LEAF && c->factors.at[k].term.i == c->lanes.i)
            c->lanes_factor = k;
    if (!c->lanes_factor)
        ck_refuse(c, "the certificate has no factor for the count of positions");
    c->by_term = NEW_N(c->a, i64, c->w->nodes.n);
    list = section(c, x, "judgements");
    for (i64 i = 1; i < list->n && !c->wrong; i++) {
        const sx *j = list->at[i];
        ck_judgement judgement = {read_term(c, at(c, j, 0)), at(c, j, 1)->text,
                                  read_poly(c, at(c, j, 2))};
        vec_push(c->a, &c->judgements, judgement);
        c->by_term[judgement.term.i] = c->judgements.n;
    }
    list = section(c, x, "slots");
    if (list->n - 1 != c->slots.n)
        ck_refuse(c, "slots and their leaves differ in number");
    for (i64 i = 1; i < list->n && !c->wrong; i++) {
        ck_slot *s = &c->slots.at[i - 1];
        s->op = ir_reducer_find(at(c, list->at[i], 0)->text);
        s->term = read_term(c, at(c, list->at[i], 1));
        s->p = read_poly(c, at(c, list->at[i], 2));
    }
    list = section(c, x, "reductions");
    for (i64 i = 1; i < list->n && !c->wrong; i++) {
        const sx *r = list->at[i];
        ck_reduction red = {.op = ir_reducer_find(at(c, r, 0)->text)};
        red.body = read_term(c, at(c, r, 1));
        red.cut_body = read_term(c, at(c, r, 2));
        red.readout = read_term(c, at(c, r, 3));
        for (i64 j = 4; j < r->n && !c->wrong; j++)
            read_block(c, r->at[j], &red);
        vec_push(c->a, &c->reductions, red);
    }
    if (!c->wrong && (c->reductions.n != c->system->n || c->results.n != c->system->n))
        ck_refuse(c, "the certificate is of another system: %lld reductions",
                  (long long)c->reductions.n);
}

/* ---- literally ----------------------------------------------------------------------------------
 */

static bool same_names(checker *c, ir_atoms a, ir_atoms b)
{
    if (a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (strcmp(ir_atom_name(c->system->p, a.at[i]), ir_atom_name(c->w, b.at[i])) != 0 ||
            ir_extent(c->system->p, a.at[i]) != ir_extent(c->w, b.at[i]))
            return false;
    return true;
}

/* Float casts change no value over the reals. */
static ir_term skip_casts(const ir_program *p, ir_term t)
{
    const ir_node *n = ir_get(p, t);
    while (n->op == IR_cast && dtype_is_float((dtype)n->dtype) &&
           dtype_is_float((dtype)ir_get(p, n->args[0])->dtype)) {
        t = n->args[0];
        n = ir_get(p, t);
    }
    return t;
}

/* Is the ledger's term `b` the system's `a`, with results for the values of reductions before k? */
static bool is_term(checker *c, ir_term a, ir_term b, i64 k, bool is_root)
{
    const ir_program *p = c->system->p;
    for (i64 j = 0; j < k && !is_root; j++)
        if (a.i == c->system->at[j].value.i)
            return skip_casts(c->w, b).i == c->results.at[j].i;
    if (skip_casts(p, a).i != a.i)
        return is_term(c, ir_get(p, a)->args[0], b, k, false);
    b = skip_casts(c->w, b);
    const ir_node *x = ir_get(p, a), *y = ir_get(c->w, b);
    if (x->op != y->op || x->arg_count != y->arg_count)
        return false;
    if (x->op == IR_in)
        return strcmp(intern_text(p->names, x->attr.name),
                      intern_text(c->w->names, y->attr.name)) == 0;
    bool same = x->attr.reducer == y->attr.reducer && x->attr.i == y->attr.i &&
                memcmp(&x->attr.f, &y->attr.f, sizeof x->attr.f) == 0 &&
                same_names(c, x->attr.axis, y->attr.axis) &&
                same_names(c, x->attr.to, y->attr.to) && x->attr.ints.n == y->attr.ints.n;
    for (i64 i = 0; same && i < x->attr.ints.n; i++)
        same = x->attr.ints.at[i] == y->attr.ints.at[i];
    for (i64 i = 0; same && i < x->arg_count; i++)
        same = is_term(c, x->args[i], y->args[i], k, false);
    return same;
}

/* Is `cut` the term `whole` with some subterms replaced by cut leaves that stand for them? */
static bool is_cut_of(checker *c, ir_term cut, ir_term whole)
{
    if (cut.i == whole.i)
        return true;
    for (i64 i = 0; i < c->cut_leaves.n; i++)
        if (c->cut_leaves.at[i].i == cut.i)
            return c->cuts.at[i].i == whole.i;
    const ir_node *x = ir_get(c->w, cut), *y = ir_get(c->w, whole);
    if (x->op != y->op || x->arg_count != y->arg_count || x->arg_count == 0 ||
        x->attr.reducer != y->attr.reducer || x->attr.dtype != y->attr.dtype ||
        !ck_same_atoms(x->attr.axis, y->attr.axis) || !ck_same_atoms(x->attr.to, y->attr.to))
        return false;
    for (i64 i = 0; i < x->arg_count; i++)
        if (!is_cut_of(c, x->args[i], y->args[i]))
            return false;
    return true;
}

static void check_literally(checker *c)
{
    for (i64 k = 0; k < c->reductions.n && !c->wrong; k++) {
        const ck_reduction *r = &c->reductions.at[k];
        if (r->op != c->system->at[k].op || !is_term(c, c->system->at[k].body, r->body, k, true))
            ck_refuse(c, "reduction %lld is not the system's", (long long)k);
        else if (!is_cut_of(c, r->cut_body, r->body))
            ck_refuse(c, "reduction %lld: cut values do not stand for what they replace",
                      (long long)k);
    }
    /* A cut value is made of earlier results alone. */
    for (i64 i = 0; i < c->cuts.n && !c->wrong; i++)
        if (dep_of(c, c->cuts.at[i]) & CK_X)
            ck_refuse(c, "a cut value depends on the tile");
}

/* ---- judgements ---------------------------------------------------------------------------------
 */

static ck_poly operand(checker *c, ir_term t, i64 i)
{
    const ir_node *n = ir_get(c->w, t);
    i64 j = c->by_term[n->args[i].i];
    if (j == 0 || c->judgements.at[j - 1].term.i != n->args[i].i) {
        ck_refuse(c, "an operand of %s has no judgement", ir_row((ir_op)n->op)->name);
        return (ck_poly){0};
    }
    return ck_expand(c, c->judgements.at[j - 1].p);
}

static bool constant_of(const checker *c, ir_term t, f64 *x)
{
    const ir_node *n = ir_get(c->w, t);
    if (n->op != IR_const || !dtype_is_float((dtype)n->dtype))
        return false;
    *x = n->attr.f;
    return true;
}

/* exp of a sum: the exponents of a product of exponentials, and of powers as logarithms. */
static bool is_exp(checker *c, ck_poly p, ck_poly of)
{
    if (p.n == 0) {
        for (i64 i = 0; i < of.n; i++) {
            f64 x;
            const ck_term *t = &of.at[i];
            if (t->c.n > 0 && t->n == 1 && ck_same_rat(t->at[0].q, CK_ONE) &&
                constant_of(c, c->factors.at[t->at[0].factor].term, &x) && x < -1e308)
                return true;
        }
        return false;
    }
    if (p.n != 1 || !ck_same_rat(p.at[0].c, CK_ONE))
        return false;
    ck_poly sum = {0};
    for (i64 i = 0; i < p.at[0].n; i++) {
        ck_exponent x = p.at[0].at[i];
        const ck_factor *f = &c->factors.at[x.factor];
        ck_poly t = {0};
        if (f->kind == CK_EXP) {
            t = ck_expand(c, f->p);
        } else {
            for (u32 k = 1; k < (u32)c->given; k++)
                if (c->factors.at[k].kind == CK_LOG && c->factors.at[k].inner == x.factor)
                    t = ck_factor_power(c, k, CK_ONE);
        }
        if (t.n == 0)
            return false;
        sum = ck_add_polys(c, sum, ck_scaled(c, t, x.q));
    }
    return ck_equal(sum, of);
}

static bool is_leaf_of(checker *c, ck_poly p, ir_term t)
{
    return p.n == 1 && ck_same_rat(p.at[0].c, CK_ONE) && p.at[0].n == 1 &&
           ck_same_rat(p.at[0].at[0].q, CK_ONE) &&
           c->factors.at[p.at[0].at[0].factor].term.i == t.i;
}

static i64 small_power(const checker *c, const ir_node *n)
{
    f64 x = 0;
    if (n->op == IR_square)
        return 2;
    if (n->op == IR_pow && constant_of(c, n->args[1], &x) && x >= 1 && x <= 6 && x == (f64)(i64)x)
        return (i64)x;
    return 0;
}

/* Rows that are steps in the ring are decided; the others rest on values. */
static bool check_judgement(checker *c, const ck_judgement *j)
{
    const ir_node *n = ir_get(c->w, j->term);
    ck_poly p = ck_expand(c, j->p), q;
    f64 x;
    if (!dtype_is_float((dtype)n->dtype))
        return ck_refuse(c, "a judgement about no real number");
    if (is_leaf_of(c, j->p, j->term))
        return true;
    switch (n->op) {
    case IR_const:
        x = n->attr.f;
        if (p.n > 1 || (p.n == 1 && p.at[0].n) ||
            x != (p.n ? (f64)p.at[0].c.n / (f64)p.at[0].c.d : 0))
            return ck_refuse(c, "a literal is not its value");
        return true;
    case IR_add:
    case IR_sub:
        q = ck_scaled(c, operand(c, j->term, 1), n->op == IR_sub ? CK_MINUS_ONE : CK_ONE);
        q = ck_add_polys(c, operand(c, j->term, 0), q);
        break;
    case IR_neg:
        q = ck_scaled(c, operand(c, j->term, 0), CK_MINUS_ONE);
        break;
    case IR_cast:
    case IR_expand:
        q = operand(c, j->term, 0);
        break;
    case IR_mul:
        q = ck_multiply(c, operand(c, j->term, 0), operand(c, j->term, 1));
        break;
    case IR_matmul:
        q = ck_multiply(c, operand(c, j->term, 0), operand(c, j->term, 1));
        q = ck_contract(c, n->attr.axis, q);
        break;
    case IR_reduce:
        if (n->attr.reducer != IR_SUM)
            return true;
        q = ck_contract(c, n->attr.axis, operand(c, j->term, 0));
        break;
    case IR_square:
    case IR_pow:
        if (!small_power(c, n))
            return true;
        q = operand(c, j->term, 0);
        if (q.n == 1 && q.at[0].n == 1)
            return true; /* one factor to a power, |a|^2 = a^2 among them: by value */
        q = ck_expand(c, ck_power(c, q, small_power(c, n)));
        break;
    case IR_div:
        q = operand(c, j->term, 1);
        if (q.n != 1)
            return true;
        p = ck_multiply(c, p, q);
        q = operand(c, j->term, 0);
        break;
    case IR_exp:
        if (!is_exp(c, j->p, operand(c, j->term, 0)))
            return ck_refuse(c, "exp: the exponents of a product do not add up");
        return true;
    default:
        return true;
    }
    if (c->wrong)
        return false;
    if (!ck_equal(ck_expand(c, p), ck_expand(c, q)))
        return ck_refuse(c, "%s: the judgement of %s does not follow from its operands'", j->row,
                         ir_row((ir_op)n->op)->name);
    return true;
}

/* ---- blocks -------------------------------------------------------------------------------------
 */

static u8 poly_deps(const checker *c, ck_poly p)
{
    u8 dep = 0;
    for (i64 i = 0; i < p.n; i++)
        for (i64 j = 0; j < p.at[i].n; j++)
            dep |= c->factors.at[p.at[i].at[j].factor].dep;
    return dep;
}

/* A fresh factor for factor k at the new reference. */
static u32 fresh(checker *c, u32 k)
{
    for (u32 i = (u32)c->given; i < (u32)c->factors.n; i++)
        if (c->factors.at[i].kind == CK_FRESH && c->factors.at[i].inner == k)
            return i;
    ck_factor f = {.kind = CK_FRESH, .inner = k, .dep = CK_S, .dims = c->factors.at[k].dims};
    vec_push(c->a, &c->factors, f);
    return (u32)c->factors.n - 1;
}

/* p with every factor of results at the new reference. */
static ck_poly renamed(checker *c, ck_poly p)
{
    ck_poly sum = {0};
    for (i64 i = 0; i < p.n; i++) {
        ck_poly t = ck_number(c, p.at[i].c);
        for (i64 j = 0; j < p.at[i].n; j++) {
            ck_exponent x = p.at[i].at[j];
            u32 k = c->factors.at[x.factor].dep == CK_S ? fresh(c, x.factor) : x.factor;
            t = ck_multiply(c, t, ck_factor_power(c, k, x.q));
        }
        sum = ck_add_polys(c, sum, t);
    }
    return sum;
}

static ck_poly inverse_of(checker *c, ck_poly mono)
{
    ck_poly p = ck_number(c, CK_ONE);
    for (i64 i = 0; mono.n == 1 && i < mono.at[0].n; i++) {
        ck_rat q = mono.at[0].at[i].q;
        p = ck_multiply(c, p, ck_factor_power(c, mono.at[0].at[i].factor, (ck_rat){-q.n, q.d}));
    }
    return p;
}

static i64 choose(i64 n, i64 k)
{
    i64 r = 1;
    for (i64 i = 0; i < k; i++)
        r = r * (n - i) / (i + 1);
    return r;
}

static i64 find_index(const ck_block *b, const u8 *index)
{
    for (i64 j = 0; j < b->count; j++)
        if (memcmp(b->index[j], index, 4) == 0)
            return j;
    return -1;
}

/* Every accumulator that a transport reads is kept: then the transports of transports compose. */
static bool is_closed(const ck_block *b)
{
    for (i64 j = 0; j < b->count; j++)
        for (i64 d = 0; d < b->tau_count; d++) {
            u8 below[4];
            memcpy(below, b->index[j], sizeof below);
            if (below[d] == 0)
                continue;
            below[d]--;
            if (find_index(b, below) < 0)
                return false;
        }
    return b->count > 0 && find_index(b, (u8[4]){0}) == 0;
}

static bool check_block(checker *c, const ck_block *b, i64 k)
{
    if (poly_deps(c, b->roll) & CK_X || poly_deps(c, b->wait) & CK_X)
        return ck_refuse(c, "reduction %lld: a factor of the results depends on the tile",
                         (long long)k);
    if (!is_closed(b))
        return ck_refuse(c, "reduction %lld: an accumulator that a transport reads is missing",
                         (long long)k);
    ck_poly part[64], delta[4];
    ck_poly down = inverse_of(c, b->roll);
    if (b->count > 64)
        return ck_refuse(c, "reduction %lld: more than 64 accumulators", (long long)k);
    for (i64 j = 0; j < b->count; j++) {
        part[j] = ck_multiply(c, ck_expand(c, b->f[j]), down);
        if (b->slot[j] < 0
                ? b->f[j].n != 0
                : !ck_same_value(c, b->f[j], ck_scaled(c, c->slots.at[b->slot[j]].p, b->c[j])))
            return ck_refuse(c, "reduction %lld: an accumulator is not its slot's", (long long)k);
        if (b->slot[j] >= 0 && c->slots.at[b->slot[j]].op != IR_SUM)
            return ck_refuse(c, "reduction %lld: a sum in a slot that does not add", (long long)k);
    }
    for (i64 d = 0; d < b->tau_count; d++) {
        if (poly_deps(c, b->tau[d]) & CK_X)
            return ck_refuse(c, "reduction %lld: a coordinate depends on the tile", (long long)k);
        ck_poly tau = ck_expand(c, b->tau[d]);
        delta[d] = ck_add_polys(c, renamed(c, tau), ck_scaled(c, tau, CK_MINUS_ONE));
    }
    for (i64 j = 0; j < b->count && !c->wrong; j++) {
        ck_poly sum = {0};
        for (i64 l = 0; l < b->count; l++) {
            ck_poly t = part[l];
            bool is_above = true;
            i64 scale = 1;
            for (i64 d = 0; d < b->tau_count; d++)
                is_above = is_above && b->index[l][d] >= b->index[j][d];
            for (i64 d = 0; d < b->tau_count && is_above; d++) {
                scale *= choose(b->index[l][d], b->index[j][d]);
                t = ck_multiply(c, t, ck_power(c, delta[d], b->index[l][d] - b->index[j][d]));
            }
            if (is_above)
                sum = ck_add_polys(c, sum, ck_scaled(c, t, (ck_rat){scale, 1}));
        }
        if (!ck_equal(renamed(c, part[j]), sum))
            return ck_refuse(c, "reduction %lld: accumulator %lld is not moved by its transport",
                             (long long)k, (long long)j);
    }
    return !c->wrong;
}

static void check_reductions(checker *c)
{
    for (i64 k = 0; k < c->reductions.n && !c->wrong; k++) {
        const ck_reduction *r = &c->reductions.at[k];
        if (r->op != IR_SUM)
            continue;
        ck_poly sum = {0};
        for (i64 i = 0; i < r->blocks.n && !c->wrong; i++) {
            const ck_block *b = &r->blocks.at[i];
            if (check_block(c, b, k))
                sum = ck_add_polys(c, sum, ck_multiply(c, b->wait, b->f[0]));
        }
        i64 j = c->by_term[r->cut_body.i];
        if (c->wrong)
            return;
        if (!j)
            ck_refuse(c, "reduction %lld has no judgement", (long long)k);
        else if (!ck_same_value(c, c->judgements.at[j - 1].p, sum))
            ck_refuse(c, "reduction %lld is not the sum of its blocks", (long long)k);
    }
    for (i64 i = 0; i < c->slots.n && !c->wrong; i++) {
        const ck_slot *s = &c->slots.at[i];
        i64 j = c->by_term[s->term.i];
        if (s->op == IR_SUM && (!j || !ck_same_value(c, c->judgements.at[j - 1].p, s->p)))
            ck_refuse(c, "slot %lld does not hold its contribution", (long long)i);
        if (s->op != IR_SUM && s->op != IR_MAX && s->op != IR_MIN)
            ck_refuse(c, "slot %lld combines by no known reducer", (long long)i);
    }
}

static void check_slots_of_repair(checker *c)
{
    const rl_repair *r = c->repair;
    if (r->slot_count < c->slots.n)
        ck_refuse(c, "the reducer has fewer slots than the certificate");
    for (i64 i = 0; i < c->slots.n && !c->wrong; i++)
        if (r->slots[i].op != c->slots.at[i].op ||
            r->slots[i].identity != ir_reducer_identity_f64(c->slots.at[i].op))
            ck_refuse(c, "slot %lld starts or combines otherwise than certified", (long long)i);
}

const char *rl_check_repair(arena *a, const rl_system *system, const rl_repair *repair, u64 seed)
{
    checker *c = NEW(a, checker);
    *c = (checker){.a = a, .system = system, .repair = repair};
    if (!repair->found)
        return "there is no repair to check";
    trap t;
    TRY (arena_ctx(a), t) {
        read_certificate(c);
        if (!c->wrong)
            check_literally(c);
        for (i64 i = 0; i < c->judgements.n && !c->wrong; i++)
            check_judgement(c, &c->judgements.at[i]);
        if (!c->wrong)
            check_reductions(c);
        if (!c->wrong)
            check_slots_of_repair(c);
        if (!c->wrong)
            ck_values(c, seed);
        if (!c->wrong)
            ck_lambdas(c, seed);
    }
    if (t.status == EQF_E_NO_MEMORY || t.status == EQF_E_INTERRUPTED)
        eqf_rethrow(arena_ctx(a), t.status);
    if (t.status && !c->wrong)
        return "the certificate or a lambda cannot be read";
    return c->wrong;
}
