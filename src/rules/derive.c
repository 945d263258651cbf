/* Derivations: why the outputs of a form equal those of the graph's program, as text that a graph made
 * of the program alone replays.
 *
 *     (derivation
 *       (hint 3 (shared-term ...))                    what the steps called loop.3 repair
 *       (unrounded "Y" 5 2)                           values below it rounded to half types: in the program, in the form
 *       (output "Y" (proof shared 1 ...)) ...)        one an output with elements, in order
 *
 * Terms are those of proof_text.c. What a form stores, (view (comb T :par P) :par P), is T here: which
 * tiles are stored is no equality to be derived. A hint says where to look and is not believed. Casts
 * between floats leave no term, so a derivation is over the reals, as the e-graph is. What a form keeps in f32
 * and the program rounds is said, where the program rounds anything on its way; a form that rounds to a half type
 * to which the program does not is refused. */
#include <stdlib.h>

#include "rules/fuse_impl.h"

/* ---- programs as records ----------------------------------------------------------------------- */

typedef struct spelling {
    rl_terms *t;
    const ir_program *p;
    bool respells;
    u32 *done; /* by term: its record */
} spelling;

static u32 leaf_of(const spelling *s, ir_term at)
{
    rl_graph *g = s->t->g;
    const ir_node *node = ir_get(s->p, at);
    if (node->op == IR_const)
        return rl_terms_leaf(s->t, rl_const_head(g, node));
    if (node->op == IR_lambda || node->op == IR_reducer) {
        ir_term own = rl_copy_closed(g->own, s->p, at, g->real);
        return own.i ? rl_terms_leaf(s->t, rl_closed_head(g, own)) : 0;
    }
    ir_atoms atoms = node->op == IR_iota ? node->attr.axis : node->dims;
    if (!rl_graph_atoms(s->t->g, s->p, &atoms))
        return 0;
    if (node->op == IR_iota)
        return rl_terms_leaf(s->t, rl_iota_head(g, atoms.at[0]));
    const char *name = intern_text(s->p->names, node->attr.name);
    u32 id = intern_find(g->p->names, name, (i64)strlen(name));
    i64 input = id ? ir_input_find(g->p, id) : -1;
    if (input < 0)
        return 0;
    const ir_node *there = ir_get(g->p, g->p->inputs.at[input].term);
    return rl_mask(g, atoms) == rl_mask(g, there->dims) && there->dtype == node->dtype
               ? rl_terms_leaf(s->t, rl_input_head(g, input))
               : 0;
}

static bool is_number(const rl_terms *t, u32 id, f64 value)
{
    const rl_type *x = &t->at.at[id].type;
    return (x->facts & RL_IS_NUMBER) && x->number == value;
}

/* One spelling for what means the same, as enter.c has it. */
static void respell(const rl_terms *t, ir_op *op, u32 *x, i64 *n)
{
    bool is_float = *n > 0 && dtype_is_float((dtype)t->at.at[x[0]].type.dtype);
    if ((*op == IR_mul && rl_terms_same(t, x[0], x[1])) ||
        (*op == IR_pow && is_number(t, x[1], 2) && is_float)) {
        *op = IR_square;
        *n = 1;
    } else if (*op == IR_div && is_number(t, x[0], 1)) {
        *op = IR_recip;
        *n = 1;
        x[0] = x[1];
    }
    if (*op == IR_recip && t->at.at[x[0]].op == IR_sqrt) {
        *op = IR_rsqrt;
        x[0] = t->at.at[x[0]].kids[0];
    }
}

static u32 record_of(const spelling *s, ir_term at)
{
    rl_terms *t = s->t;
    rl_graph *g = t->g;
    const ir_node *node = ir_get(s->p, at);
    i64 n = node->arg_count;
    if (ir_row(node->op)->class_ == IR_LEAF || node->op == IR_lambda || node->op == IR_reducer)
        return leaf_of(s, at);
    if (node->op == IR_tuple)
        return 0;
    if (node->op == IR_get && ir_get(s->p, node->args[0])->op == IR_tuple)
        return s->done[node->args[1].i];
    u32 *x = NEW_N(t->a, u32, n);
    for (i64 i = 0; i < n; i++) {
        x[i] = s->done[node->args[i].i];
        if (!x[i])
            return 0;
    }
    ir_op op = (ir_op)node->op;
    ir_attr attr = node->attr;
    if (!rl_graph_atoms(s->t->g, s->p, &attr.axis) || !rl_graph_atoms(s->t->g, s->p, &attr.to) || !rl_graph_atoms(s->t->g, s->p, &attr.par))
        return 0;
    attr.name = intern_cstr(g->own->names, intern_text(s->p->names, attr.name));
    attr.dtype = (u8)rl_graph_dtype(g, (dtype)attr.dtype);
    if (op == IR_cast && t->at.at[x[0]].type.dtype == attr.dtype)
        return x[0];
    const rl_record *inner = &t->at.at[x[0]];
    if (op == IR_view && inner->op == IR_comb &&
        g->payloads.at[inner->payload].par == rl_mask(g, attr.par))
        return inner->kids[0]; /* stored */
    if (s->respells)
        respell(t, &op, x, &n);
    ir_reducer reducer = (ir_reducer)node->attr.reducer;
    u32 payload = rl_payload_id(g, op, attr);
    rl_operator_head(g, op, reducer, n, payload);
    return rl_terms_make(t, op, reducer, payload, x, n);
}

/* Records of everything that the outputs need, by term; 0 for what the graph's language lacks. Programs
 * are respelled as they enter an e-graph; forms that come out of one are what they are. */
static u32 *spell(rl_terms *t, const ir_program *p, bool respells)
{
    spelling s = {t, p, respells, NEW_N(t->a, u32, p->nodes.n)};
    bool *live = NEW_N(t->a, bool, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++)
        live[p->outputs.at[i].term.i] = true;
    for (i64 k = p->nodes.n - 1; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (live[k] && node->op != IR_lambda && node->op != IR_reducer)
            for (i64 i = 0; i < node->arg_count; i++)
                live[node->args[i].i] = true;
    }
    for (i64 k = 1; k < p->nodes.n; k++)
        if (live[k])
            s.done[k] = record_of(&s, (ir_term){(u32)k});
    return s.done;
}

/* ---- records as text ----------------------------------------------------------------------------- */

/* What the engine knows a record by. */
typedef struct placed {
    u32 number;
    eqf_class class_;
} placed;

static void mark(const rl_terms *t, u32 id, u8 *needed)
{
    if (needed[id])
        return;
    needed[id] = 1;
    for (i64 i = 0; i < t->at.at[id].n; i++)
        mark(t, t->at.at[id].kids[i], needed);
}

/* A bundle's components in the order of its e-node: by class, each once. */
static i64 sort_components(const placed *at, u32 *kids, i64 n)
{
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        u32 kid = kids[i];
        i64 j = count;
        while (j > 0 && at[kids[j - 1]].class_.i > at[kid].class_.i)
            j--;
        if (j > 0 && at[kids[j - 1]].class_.i == at[kid].class_.i)
            continue;
        memmove(kids + j + 1, kids + j, (size_t)(count - j) * sizeof *kids);
        kids[j] = kid;
        count++;
    }
    return count;
}

/* (shared-term ...) of a record. `where`, unless NULL: its class; NULL when the e-graph has none. */
static const char *text_of(const rl_terms *t, arena *a, u32 id, eqf_class *where)
{
    bool searched = where != NULL;
    rl_graph *g = t->g;
    arena *scratch = arena_child(a);
    u8 *needed = NEW_N(scratch, u8, t->at.n);
    placed *at = NEW_N(scratch, placed, t->at.n);
    mark(t, id, needed);
    str s = str_new(a);
    str_add(&s, "(shared-term");
    u32 numbers = 0;
    bool found = true;
    for (i64 k = 1; k <= (i64)id && found; k++) {
        const rl_record *x = &t->at.at[k];
        if (!needed[k])
            continue;
        u32 *kids = arena_copy(scratch, x->kids, x->n * (i64)sizeof *kids);
        i64 n = x->op == IR_loop && searched ? sort_components(at, kids, x->n) : x->n;
        eqf_head head = x->op == IR_NO_OP
                            ? x->head
                            : rl_operator_head(g, x->op, x->reducer, n, x->payload);
        eqf_class *classes = NEW_N(scratch, eqf_class, n);
        for (i64 i = 0; i < n; i++)
            classes[i] = at[kids[i]].class_;
        if (searched)
            at[k].class_ = eqf_lookup(g->engine, head, classes, (size_t)n);
        found = !searched || at[k].class_.i;
        at[k].class_ = found && searched ? eqf_find(g->engine, at[k].class_) : at[k].class_;
        at[k].number = ++numbers;
        str_printf(&s, " (t %u ", at[k].number);
        eg_print_head(g->lang, &s, head.i);
        for (i64 i = 0; i < n; i++)
            str_printf(&s, " %u", at[kids[i]].number);
        eg_print_payload(g->lang, &s, head.i);
        str_add(&s, ")");
    }
    str_printf(&s, " %u)", numbers);
    if (searched)
        *where = at[id].class_;
    arena_free(scratch);
    return found ? str_text(&s) : NULL;
}

/* ---- making one ---------------------------------------------------------------------------------- */

static const char *const hinted[] = {"loop.", "part."};

/* The number of the hint that a step (s ID FROM TO (axiom loop.N)), or part.N, cites, or -1. */
static i64 hint_cited(const rl_graph *g, const sx *step)
{
    if (!sx_is_form(step, "s") || step->n < 5 || !sx_is_form(step->at[4], "axiom") ||
        step->at[4]->n < 2 || step->at[4]->at[1]->kind == SX_LIST)
        return -1;
    const char *reason = step->at[4]->at[1]->text;
    for (i64 i = 0; i < COUNT_OF(hinted); i++) {
        if (strncmp(reason, hinted[i], strlen(hinted[i])) != 0)
            continue;
        char *end;
        long k = strtol(reason + strlen(hinted[i]), &end, 10);
        return *end || k < 0 || k >= g->chains.n ? -1 : k;
    }
    return -1;
}

/* Hints that the proofs cite; where one speaks of a loop that an earlier one made, all before it. */
static void add_hints(rl_graph *g, arena *a, str *out, const char *proofs, i64 n)
{
    arena *scratch = arena_child(a);
    bool *cited = NEW_N(scratch, bool, g->chains.n + 1);
    const sx *all = sx_read(scratch, "derivation", proofs, n);
    for (i64 i = 0; i < all->n; i++)
        for (i64 k = 3; all->at[i]->n > 2 && k < all->at[i]->at[2]->n; k++) {
            i64 hint = hint_cited(g, all->at[i]->at[2]->at[k]);
            if (hint >= 0)
                cited[hint] = true;
        }
    const char **text = NEW_N(scratch, const char *, g->chains.n + 1);
    for (i64 k = g->chains.n - 1; k >= 0; k--) {
        if (!cited[k] || !g->chains.at[k])
            continue;
        text[k] = text_of(g->hints, scratch, g->chains.at[k], NULL);
        bool is_nested = strstr(text[k], "#lambda:") || strstr(text[k], "#reducer:");
        for (i64 i = 0; i < k && is_nested; i++)
            cited[i] = true;
    }
    for (i64 k = 0; k < g->chains.n; k++)
        if (text[k])
            str_printf(out, "  (hint %lld %s)\n", (long long)k, text[k]);
    arena_free(scratch);
}

static const char *output_name(const ir_program *p, i64 i)
{
    return intern_text(p->names, p->outputs.at[i].name);
}

static void add_name(str *out, const char *name)
{
    sx quoted = {.kind = SX_STRING, .text = name, .n = (i64)strlen(name)};
    sx_print(out, &quoted);
}

static void add_proof(rl_graph *g, str *out, const char *from, const char *to)
{
    eqf_proof *proof;
    char *text = NULL;
    rl_must(g, eqf_explain(g->engine, eqf_text_of(from), eqf_text_of(to), &proof));
    eqf_status status = eqf_proof_text(proof, EQF_SHARED, &text);
    if (status == EQF_OK)
        str_add(out, text);
    eqf_proof_free(proof);
    eqf_text_free(g->ctx, text);
    rl_must(g, status);
}

/* What the program and the form round on the way to an output. */
typedef struct unrounded {
    i64 program, form;
    bool is_narrower; /* to a type to which the program rounds nothing */
} unrounded;

static unrounded count_unrounded(arena *a, const ir_program *p, ir_term of_p, const ir_program *form, ir_term of_form)
{
    rl_roundings x = rl_roundings_below(a, p, of_p), y = rl_roundings_below(a, form, of_form);
    return (unrounded){x.f16 + x.bf16, y.f16 + y.bf16, (y.f16 && !x.f16) || (y.bf16 && !x.bf16)};
}

/* The proof of one output, or false: the e-graph has no such term, or in another class. */
static bool derive_output(rl_graph *g, const rl_terms *t, str *proofs, const char *name, u32 whole,
                          u32 form)
{
    eqf_class x, y;
    const char *from = whole ? text_of(t, t->a, whole, &x) : NULL,
               *to = form ? text_of(t, t->a, form, &y) : NULL;
    if (!from || !to || x.i != y.i)
        return false;
    str_add(proofs, "  (output ");
    add_name(proofs, name);
    str_add_char(proofs, ' ');
    add_proof(g, proofs, from, to);
    str_add(proofs, ")\n");
    return true;
}

const char *rl_graph_derive(rl_graph *g, arena *a, const ir_program *form, const char **why_not)
{
    rl_must(g, eqf_rebuild(g->engine));
    rl_terms *t = rl_terms_new(g, arena_child(a));
    const u32 *left = spell(t, g->p, true), *right = spell(t, form, false),
              *respelled = spell(t, form, true);
    str proofs = str_new(t->a), out = str_new(a);
    *why_not = NULL;
    for (i64 i = 0; i < g->p->outputs.n && !*why_not; i++) {
        u32 whole = g->p->outputs.at[i].term.i, other = form->outputs.at[i].term.i;
        const char *name = output_name(g->p, i);
        unrounded n = count_unrounded(t->a, g->p, (ir_term){whole}, form, (ir_term){other});
        if (whole && n.program > 0) {
            str_add(&proofs, "  (unrounded ");
            add_name(&proofs, name);
            str_printf(&proofs, " %lld %lld)\n", (long long)n.program, (long long)n.form);
        }
        if (whole && n.is_narrower)
            *why_not = arena_printf(a, "output %s of the form is rounded on the way where the program is not", name);
        else if (whole && !derive_output(g, t, &proofs, name, left[whole], right[other]) &&
            !derive_output(g, t, &proofs, name, left[whole], respelled[other]))
            *why_not = arena_printf(a, "output %s of the form is not in the e-graph", name);
    }
    if (!*why_not) {
        str_add(&out, "(derivation\n");
        add_hints(g, a, &out, str_text(&proofs), proofs.n);
        str_add(&out, str_text(&proofs));
        str_add(&out, ")\n");
    }
    arena_free(t->a);
    return *why_not ? NULL : str_text(&out);
}

/* ---- replaying one ------------------------------------------------------------------------------- */

typedef struct replaying {
    rl_graph *g;
    arena *a;
    const char *file;
    const char *text; /* that `derivation` was read from */
    i64 text_n;
    const sx *derivation;
} replaying;

static _Noreturn void refuse(const replaying *r, const sx *at, const char *what)
{
    eqf_throw(r->g->ctx, EQF_E_MISMATCH, r->file, arena_printf(r->a, "%u:%u", at->line, at->column),
              "%s", what);
}

/* An operator by the engine's name: the row and its reducer. */
static bool find_operator(arena *a, const char *name, ir_op *op, ir_reducer *reducer)
{
    for (*op = IR_NO_OP + 1; *op < IR_OP_COUNT; (*op)++)
        for (int k = IR_NO_REDUCER; k < IR_REDUCER_COUNT; k++) {
            *reducer = (ir_reducer)k;
            if (ir_row(*op)->name && strcmp(rl_operator_name(a, *op, *reducer), name) == 0)
                return true;
        }
    return false;
}

/* An atom of the graph by its name in the form or in a proof; or none. */
static ir_atom atom_called(const rl_graph *g, const char *name)
{
    u32 id = intern_find(g->own->names, name, (i64)strlen(name));
    ir_atom d = id ? ir_atom_find(g->own, id) : (ir_atom){0};
    return d.i && (i64)d.i < g->atom_index.n && g->atom_index.at[d.i] ? d : (ir_atom){0};
}

/* The dim that K and L make together, unless it is there; what it is follows from them. */
static void make_joint(rl_graph *g, const char *k, const char *l, const char *joint)
{
    ir_atom x = atom_called(g, k), y = atom_called(g, l);
    if (x.i && y.i && !atom_called(g, joint).i)
        rl_joint_payload(g, x, y);
}

/* Makes the operators of the items known: rules are generated for what is known. */
static void declare(const replaying *r, const sx *list)
{
    arena *scratch = arena_child(r->a);
    for (i64 i = 1; i < list->n; i++) {
        const sx *x = list->at[i];
        ir_op op;
        ir_reducer reducer;
        if (!sx_is_form(x, "t") || x->n < 4 || x->at[2]->kind == SX_LIST)
            continue;
        i64 n = 0;
        while (3 + n < x->n && x->at[3 + n]->kind == SX_INT)
            n++;
        if (!find_operator(scratch, x->at[2]->text, &op, &reducer))
            refuse(r, x, "there is no such operator");
        if (n == 0 || n > 999 || (ir_row(op)->arity >= 0 && ir_row(op)->arity != n))
            refuse(r, x, "an operator with another number of operands");
        rl_operator_head(r->g, op, reducer, n, 0);
        const sx *map = x->at[x->n - 1]; /* (2 K L 1 K+L ...) */
        if (op == IR_concat && n == 2 && map->kind == SX_LIST && map->n > 5)
            make_joint(r->g, map->at[1]->text, map->at[2]->text, map->at[4]->text);
    }
    arena_free(scratch);
}

/* Hints: their terms, and the lambdas and reducers that their repairs are made of. */
static void take_hints(replaying *r)
{
    rl_graph *g = r->g;
    g->hints = rl_terms_new(g, g->a);
    for (i64 i = 1; i < r->derivation->n; i++) {
        const sx *x = r->derivation->at[i];
        if (!sx_is_form(x, "hint"))
            continue;
        if (x->n != 3 || x->at[1]->kind != SX_INT || x->at[1]->i < g->chains.n ||
            x->at[1]->i > 100000 || !sx_is_form(x->at[2], "shared-term"))
            refuse(r, x, "expected (hint N (shared-term ...)), N rising");
        const sx *table = x->at[2];
        const sx *last = table->at[table->n - 1];
        u32 id = table->n > 2 && last->kind == SX_INT
                     ? rl_terms_read_table(g->hints, table, 1, table->n - 1, last->i)
                     : 0;
        rl_chain chain;
        if (!id || rl_chain_check(g->hints, id, &chain))
            refuse(r, x, "no repair of a reduction follows from this");
        while (g->chains.n < x->at[1]->i)
            vec_push(g->a, &g->chains, 0);
        vec_push(g->a, &g->chains, id);
    }
}

/* Makes the dims that the form has and the program does not: parts of those that it splits, and what
 * two make that are contracted as one. What proofs say of them follows from that alone. */
static void take_dims(const replaying *r, const ir_program *form)
{
    rl_graph *g = r->g;
    for (i64 k = 1; k < form->nodes.n; k++) {
        const ir_node *node = &form->nodes.at[k];
        if (node->op != IR_concat || node->arg_count != 2)
            continue;
        const ir_attr *map = &node->attr;
        make_joint(g, ir_atom_name(form, map->axis.at[0]), ir_atom_name(form, map->axis.at[1]),
                   ir_atom_name(form, map->to.at[0]));
    }
    for (i64 i = g->p->splits.n; i < form->splits.n; i++) {
        ir_split s = form->splits.at[i];
        ir_atoms whole = {&s.whole, 1};
        if (!rl_atoms_by_name(g->own, form, whole, &whole))
            continue;
        s = rl_graph_split_by(g, whole.at[0], ir_extent(form, s.inner));
        /* the form's terms may not cut it, and the way to them nevertheless */
        rl_payload_id(g, IR_splitdim,
                      (ir_attr){.axis = whole, .to = {(ir_atom[]){s.outer, s.inner}, 2}});
    }
}

/* The proof's text where it stands, so that places in it are those of the file. */
static eqf_text in_place(const replaying *r, const sx *proof)
{
    char *copy = arena_strndup(r->a, r->text, r->text_n);
    u32 line = 1, column = 1;
    i64 from = 0;
    for (; from < r->text_n && (line != proof->line || column != proof->column); from++) {
        column = copy[from] == '\n' ? 1 : column + 1;
        line += copy[from] == '\n';
        if (copy[from] != '\n')
            copy[from] = ' ';
    }
    i64 end = from, depth = 0;
    bool quoted = false, comment = false;
    for (; end < r->text_n; end++) {
        char c = copy[end];
        if (comment) {
            comment = c != '\n';
        } else if (quoted) {
            quoted = c != '"';
            end += c == '\\';
        } else if (c == ';') {
            comment = true;
        } else if (c == '"') {
            quoted = true;
        } else {
            depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        }
        if (depth == 0 && !quoted && !comment)
            break;
    }
    return (eqf_text){copy, (size_t)MIN(end + 1, r->text_n)};
}

/* One side of the claim: the proof's own table of terms up to that one. */
static const char *side_of(const replaying *r, const sx *proof, const sx *id)
{
    str s = str_new(r->a);
    str_add(&s, "(shared-term");
    for (i64 i = 3; i < proof->n; i++)
        if (sx_is_form(proof->at[i], "t")) {
            str_add_char(&s, ' ');
            sx_print(&s, proof->at[i]);
        }
    str_printf(&s, " %lld)", (long long)id->i);
    return str_text(&s);
}

/* `to`: the form's output as it is, and respelled. */
static eqf_check_report replay_output(const replaying *r, rl_terms *t, const sx *proof, u32 from,
                                      const u32 to[2])
{
    rl_graph *g = r->g;
    const sx *claim = proof->n > 3 ? proof->at[proof->n - 1] : proof;
    if (!sx_is_form(claim, "claim") || claim->n != 4 || claim->at[1]->kind != SX_INT ||
        claim->at[2]->kind != SX_INT)
        refuse(r, claim, "expected the claim of the proof");
    u32 x = rl_terms_read_table(t, proof, 3, proof->n, claim->at[1]->i);
    u32 y = rl_terms_read_table(t, proof, 3, proof->n, claim->at[2]->i);
    if (!x || !from || !rl_terms_same(t, x, from))
        refuse(r, claim, "the proof does not start at the program's output");
    if (!y || !((to[0] && rl_terms_same(t, y, to[0])) || (to[1] && rl_terms_same(t, y, to[1]))))
        refuse(r, claim, "the proof does not end at the form's output");
    eqf_checking judges = rl_graph_checking(g);
    eqf_check_report report;
    size_t before = eqf_diag_count(g->ctx);
    eqf_status status =
        eqf_proof_check(g->ctx, in_place(r, proof), eqf_text_of(side_of(r, proof, claim->at[1])),
                        eqf_text_of(side_of(r, proof, claim->at[2])), &judges, &report);
    if (status == EQF_E_MISMATCH && eqf_diag_count(g->ctx) > before) {
        eqf_diag d = eqf_diag_get(g->ctx, before);
        const char *place = arena_strdup(r->a, d.place), *what = arena_strdup(r->a, d.message);
        eqf_forget_from(g->ctx, before);
        eqf_throw(g->ctx, status, r->file, place, "%s", what);
    }
    rl_must(g, status);
    return report;
}

/* (unrounded NAME PROGRAM FORM) */
static bool said_rightly(const sx *x, const char *name, unrounded n)
{
    return x && x->n == 4 && x->at[1]->kind != SX_LIST && strcmp(x->at[1]->text, name) == 0 &&
           x->at[2]->kind == SX_INT && x->at[2]->i == n.program && x->at[3]->kind == SX_INT &&
           x->at[3]->i == n.form;
}

eqf_check_report rl_replay(arena *a, const ir_program *p, const ir_program *form,
                           const rl_graph_options *options, const char *file, const char *text,
                           i64 text_n, const sx *derivation)
{
    arena *own = arena_child(a);
    rl_graph_options o = *options;
    o.explain = false;
    rl_graph *g = rl_graph_new(own, p, &o);
    g->reads_payloads = true;
    replaying r = {g, own, file, text, text_n, derivation};
    take_dims(&r, form);
    rl_terms *t = rl_terms_new(g, own);
    if (form->outputs.n != p->outputs.n)
        refuse(&r, derivation, "the form has another number of outputs");
    const u32 *left = spell(t, p, true), *right = spell(t, form, false),
              *respelled = spell(t, form, true);
    VEC(const sx *) proofs = {0}, kept = {0};
    for (i64 i = 1; i < derivation->n; i++) {
        const sx *x = derivation->at[i];
        if (sx_is_form(x, "unrounded")) {
            vec_push(own, &kept, x);
            continue;
        }
        bool is_hint = sx_is_form(x, "hint");
        if (!is_hint && !sx_is_form(x, "output"))
            refuse(&r, x, "expected (hint ...) or (output ...)");
        if (x->n != 3 || x->at[1]->kind == SX_LIST || x->at[2]->kind != SX_LIST)
            refuse(&r, x, "malformed");
        declare(&r, x->at[2]);
        if (!is_hint)
            vec_push(own, &proofs, x);
    }
    rl_generate(g);
    take_hints(&r);
    eqf_check_report sum = {0};
    i64 next = 0, next_kept = 0;
    for (i64 i = 0; i < p->outputs.n; i++) {
        if (!p->outputs.at[i].term.i)
            continue;
        unrounded n = count_unrounded(own, p, p->outputs.at[i].term, form, form->outputs.at[i].term);
        const sx *said = n.program > 0 && next_kept < kept.n ? kept.at[next_kept++] : NULL;
        if (n.is_narrower)
            refuse(&r, derivation, "the form rounds to a half type to which the program does not");
        if (n.program > 0 && !said_rightly(said, output_name(p, i), n))
            refuse(&r, said ? said : derivation, "says otherwise what is kept unrounded");
        if (next == proofs.n)
            refuse(&r, derivation, "an output has no proof");
        const sx *x = proofs.at[next++];
        if (strcmp(x->at[1]->text, output_name(p, i)) != 0 || !sx_is_form(x->at[2], "proof"))
            refuse(&r, x, "expected the proofs of the outputs, in their order");
        u32 other = form->outputs.at[i].term.i, to[] = {right[other], respelled[other]};
        eqf_check_report one =
            replay_output(&r, t, x->at[2], left[p->outputs.at[i].term.i], to);
        sum.steps += one.steps;
        sum.assumptions += one.assumptions;
    }
    if (next < proofs.n)
        refuse(&r, proofs.at[next], "there is no such output");
    if (next_kept < kept.n)
        refuse(&r, kept.at[next_kept], "nothing is rounded on the way to this");
    arena_free(own);
    return sum;
}
