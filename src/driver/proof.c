/* proof.eqf, written and read. */
#include "driver/proof.h"

#include "partition/partition.h"

#define FORMAT 3 /* of proof.eqf */

/* ---- writing ------------------------------------------------------------------------------------ */

static void add_quoted(str *out, const char *text)
{
    sx quoted = {.kind = SX_STRING, .text = text, .n = (i64)strlen(text)};
    sx_print(out, &quoted);
}

static void print_part(str *out, const proof *p, i64 i)
{
    const proof_part *x = &p->parts.at[i];
    str_printf(out, "(part %lld (uses %lld)\n", (long long)i, (long long)x->uses);
    if (p->ends.n)
        ir_print(out, x->program);
    if (x->form && p->ends.n) {
        str_add(out, "(form\n");
        ir_print(out, x->form);
        str_add(out, ")\n");
    }
    if (x->derivation) {
        str_add(out, x->derivation);
    } else if (x->form) {
        str_add(out, "(by-value ");
        add_quoted(out, x->why_not);
        str_add(out, ")");
    }
    str_add(out, ")\n");
}

/* Those that the product does not have, by file. */
static void print_rules(str *out, const rl_ruleset *set)
{
    for (i64 i = set->shipped; i < set->rules.n; i++) {
        const rl_rule *r = set->rules.at[i], *last = i > set->shipped ? set->rules.at[i - 1] : NULL;
        if (last && last->form == r->form)
            continue;
        if (!last || strcmp(last->file, r->file) != 0) {
            str_add(out, last ? ")\n(rules " : "(rules ");
            add_quoted(out, r->file);
        }
        str_add(out, "\n  ");
        sx_print(out, r->form);
    }
    if (set->rules.n > set->shipped)
        str_add(out, ")\n");
}

void proof_print(str *out, const proof *p)
{
    if (p->computes)
        str_add(out, "; Why the form below computes program.eqf, part by part: `equiforge explain "
                     "--proof` replays it.\n; From the form to the kernels: compared with the "
                     "reference interpreter, by value.\n");
    else
        str_add(out, "; The kernels compute program.eqf as it was read: the derivation has no "
                     "step.\n; They were compared with the reference interpreter, by value.\n");
    str_printf(out, "(proof (format %d)\n(program \"%s\")\n", FORMAT, p->digest);
    if (p->computes) {
        str_printf(out, "(rounding %s) (parameters %s)\n", rl_fp_name(p->space.fp),
                   p->space.parameters_are_inputs ? "input" : "constant");
        print_rules(out, p->space.rules);
        if (p->ends.n)
            str_add(out, "(cut");
        for (i64 i = 0; i < p->ends.n; i++)
            str_printf(out, " %lld", (long long)p->ends.at[i]);
        if (p->ends.n)
            str_add(out, ")\n");
        for (i64 i = 0; i < p->parts.n; i++)
            print_part(out, p, i);
        str_add(out, "(computes\n");
        ir_print(out, p->computes);
        str_add(out, ")");
    }
    str_add(out, ")\n");
}

/* ---- reading ------------------------------------------------------------------------------------ */

static _Noreturn void refuse(const proof *p, arena *a, const sx *at, const char *what)
{
    eqf_throw(arena_ctx(a), EQF_E_MISMATCH, p->file,
              arena_printf(a, "%u:%u", at->line, at->column), "%s", what);
}

/* The last form (KEY ...) inside `x`, or NULL. */
static const sx *find(const sx *x, const char *key)
{
    for (i64 i = x->n - 1; i > 0; i--)
        if (sx_is_form(x->at[i], key))
            return x->at[i];
    return NULL;
}

/* The single word or number of (KEY VALUE), "" when there is none. */
static const char *value_of(const sx *x, const char *key)
{
    const sx *found = find(x, key);
    return found && found->n == 2 && found->at[1]->kind != SX_LIST ? found->at[1]->text : "";
}

static i64 number_of(const sx *x, const char *key)
{
    const sx *found = find(x, key);
    return found && found->n == 2 && found->at[1]->kind == SX_INT ? found->at[1]->i : 0;
}

static const ir_program *program_of(const proof *p, arena *a, const sx *x)
{
    str text = str_new(a);
    sx_print(&text, x);
    ir_program *q = ir_read(a, p->file, str_text(&text), text.n);
    ir_verify(q, "reading a proof");
    return q;
}

static bool same_text(arena *a, const ir_program *x, const ir_program *y)
{
    arena *scratch = arena_child(a);
    str s = str_new(scratch), t = str_new(scratch);
    ir_print(&s, x);
    ir_print(&t, y);
    bool same = s.n == t.n && strcmp(str_text(&s), str_text(&t)) == 0;
    arena_free(scratch);
    return same;
}

/* Equal but for the order in which terms were made, and names of atoms. */
static bool same_program(arena *a, const ir_program *x, const ir_program *y)
{
    arena *scratch = arena_child(a);
    bool same = same_text(scratch, ir_canonical(scratch, x), ir_canonical(scratch, y));
    arena_free(scratch);
    return same;
}

static bool same_names(const ir_program *p, u32 x, const ir_program *q, u32 y)
{
    return strcmp(intern_text(p->names, x), intern_text(q->names, y)) == 0;
}

static bool same_port(const ir_program *p, const ir_port *x, const ir_program *q, const ir_port *y)
{
    bool same = same_names(p, x->name, q, y->name) && x->dtype == y->dtype &&
                x->role == y->role && x->rank == y->rank && x->writes == y->writes &&
                x->is_constant == y->is_constant && !x->term.i == !y->term.i;
    for (i64 i = 0; same && i < x->rank; i++) {
        ir_atoms s = x->dims[i].atoms, t = y->dims[i].atoms;
        same = x->dims[i].extent == y->dims[i].extent && s.n == t.n;
        for (i64 k = 0; same && k < s.n; k++)
            same = s.at[k].i == t.at[k].i;
    }
    return same;
}

/* Has the form the ports of the program, and its atoms under the same ids? */
static bool same_boundary(const ir_program *p, const ir_program *form)
{
    bool same = p->inputs.n == form->inputs.n && p->outputs.n == form->outputs.n &&
                p->atoms.n <= form->atoms.n && p->splits.n <= form->splits.n;
    for (u32 d = 1; same && d < (u32)p->atoms.n; d++)
        same = strcmp(ir_atom_name(p, (ir_atom){d}), ir_atom_name(form, (ir_atom){d})) == 0 &&
               ir_extent(p, (ir_atom){d}) == ir_extent(form, (ir_atom){d});
    for (i64 i = 0; same && i < p->inputs.n; i++)
        same = same_port(p, &p->inputs.at[i], form, &form->inputs.at[i]);
    for (i64 i = 0; same && i < p->outputs.n; i++)
        same = same_port(p, &p->outputs.at[i], form, &form->outputs.at[i]);
    return same;
}

static void read_rules(const proof *p, arena *a, rl_ruleset *set, const sx *x)
{
    if (x->n < 2 || x->at[1]->kind != SX_STRING)
        refuse(p, a, x, "expected (rules \"FILE\" (rule ...) ...)");
    str text = str_new(a);
    for (i64 i = 2; i < x->n; i++) {
        sx_print(&text, x->at[i]);
        str_add(&text, "\n");
    }
    rl_ruleset_read(set, x->at[1]->text, str_text(&text), text.n);
}

static void read_part(proof *p, arena *a, const sx *x)
{
    proof_part part = {.uses = number_of(x, "uses"), .program = p->program};
    const sx *own = find(x, "program"), *form = find(x, "form"), *by_value = find(x, "by-value");
    if (p->ends.n && !own)
        refuse(p, a, x, "a part without its program");
    if (p->ends.n)
        part.program = program_of(p, a, own);
    if (p->ends.n && form && form->n == 2)
        part.form = program_of(p, a, form->at[1]);
    else if (!p->ends.n)
        part.form = p->computes;
    if (part.form && !same_boundary(part.program, part.form))
        refuse(p, a, x, "the form has other inputs or outputs than the program");
    part.steps = find(x, "derivation");
    if (by_value)
        part.why_not = value_of(x, "by-value");
    if (part.form ? !part.steps == !by_value : part.steps || by_value)
        refuse(p, a, x, "expected a form and either its derivation or (by-value \"why\")");
    vec_push(a, &p->parts, part);
}

static void read_cut(proof *p, arena *a, const sx *x)
{
    for (i64 i = 1; i < x->n; i++) {
        if (x->at[i]->kind != SX_INT)
            refuse(p, a, x->at[i], "expected the place where a part ends");
        vec_push(a, &p->ends, x->at[i]->i);
    }
}

/* Is the program cut into these parts, and are they, put together, the program, and their forms what is
 * computed? */
static void check_cut(const proof *p, arena *a, const sx *at)
{
    pt_partition cut;
    if (!pt_cut_at(a, p->program, p->space.parameters_are_inputs, p->ends.at, p->ends.n, &cut))
        refuse(p, a, at, "the program cannot be cut there");
    if (cut.part_count != p->parts.n)
        refuse(p, a, at, "the program has another number of parts");
    const ir_program **as_read = NEW_N(a, const ir_program *, cut.part_count),
                     **forms = NEW_N(a, const ir_program *, cut.part_count);
    for (i64 i = 0; i < cut.part_count; i++) {
        const proof_part *x = &p->parts.at[i];
        if (!same_text(a, cut.parts[i].program, x->program) || cut.parts[i].uses != x->uses)
            refuse(p, a, at, arena_printf(a, "part %lld is another one", (long long)i));
        as_read[i] = x->program;
        forms[i] = x->form ? x->form : x->program;
    }
    if (!same_program(a, pt_join(a, p->program, &cut, as_read), p->program))
        refuse(p, a, at, "the parts are not the program");
    if (!same_program(a, pt_join(a, p->program, &cut, forms), p->computes))
        refuse(p, a, at, "the parts' forms are not what is computed");
}

proof *proof_read(arena *a, const char *file, const char *text, i64 n, const char *program,
                  i64 program_n)
{
    proof *p = NEW(a, proof);
    *p = (proof){.file = file, .text = text, .text_n = n};
    const sx *all = sx_read(a, file, text, n);
    const sx *x = all->n == 1 ? all->at[0] : all;
    i64 format = sx_is_form(x, "proof") ? number_of(x, "format") : 0;
    if (format < 1)
        eqf_throw(arena_ctx(a), EQF_E_PARSE, file, NULL, "expected one (proof (format %d) ...)", FORMAT);
    if (format != FORMAT)
        eqf_throw(arena_ctx(a), EQF_E_UNSUPPORTED, file, NULL,
                  "derivation format %lld; this EquiForge reads format %d: optimize once more",
                  (long long)format, FORMAT);
    digest_hex(program, program_n, p->digest);
    if (strcmp(value_of(x, "program"), p->digest) != 0)
        refuse(p, a, x, "it is about another program");
    p->program = ir_read(a, file, program, program_n);
    const sx *computes = find(x, "computes");
    rl_fp fp = RL_EXACT;
    while (fp <= RL_APPROXIMATE && strcmp(rl_fp_name(fp), value_of(x, "rounding")) != 0)
        fp++;
    if (!computes)
        return p;
    if (fp > RL_APPROXIMATE || computes->n != 2)
        refuse(p, a, x, "expected (rounding ...), parts and (computes (program ...))");
    rl_ruleset *rules = rl_ruleset_shipped(a);
    p->space = (driver_space){.rules = rules,
                              .fp = fp,
                              .parameters_are_inputs = strcmp(value_of(x, "parameters"), "input") == 0};
    for (i64 i = 1; i < x->n; i++)
        if (sx_is_form(x->at[i], "rules"))
            read_rules(p, a, rules, x->at[i]);
    if (find(x, "cut"))
        read_cut(p, a, find(x, "cut"));
    p->computes = program_of(p, a, computes->at[1]);
    for (i64 i = 1; i < x->n; i++)
        if (sx_is_form(x->at[i], "part"))
            read_part(p, a, x->at[i]);
    if (p->ends.n)
        check_cut(p, a, x);
    else if (p->parts.n != 1)
        refuse(p, a, x, "expected one part");
    return p;
}

/* ---- replaying ---------------------------------------------------------------------------------- */

/* The rule of that name, if the product does not have it; or NULL. */
static const rl_rule *find_own(const proof *p, const char *name)
{
    const rl_ruleset *set = p->space.rules;
    for (i64 i = set->shipped; i < set->rules.n; i++)
        if (strcmp(set->rules.at[i]->name, name) == 0)
            return set->rules.at[i];
    return NULL;
}

proof_rules proof_own_rules(arena *a, const proof *p, const proof_part *part)
{
    proof_rules own = {0};
    for (i64 i = 1; part->steps && i < part->steps->n; i++) {
        const sx *output = part->steps->at[i];
        const sx *items = sx_is_form(output, "output") && output->n == 3 ? output->at[2] : NULL;
        for (i64 k = 1; items && items->kind == SX_LIST && k < items->n; k++) {
            const sx *by = sx_is_form(items->at[k], "s") && items->at[k]->n > 4 ? items->at[k]->at[4] : NULL;
            if (!by || !sx_is_form(by, "rule") || by->n < 2 || by->at[1]->kind == SX_LIST)
                continue;
            const rl_rule *r = find_own(p, by->at[1]->text);
            bool is_new = r != NULL;
            for (i64 j = 0; j < own.n; j++)
                is_new = is_new && own.at[j] != r;
            if (is_new)
                vec_push(a, &own, r);
        }
    }
    return own;
}

static const char *refuse_rule(arena *a, const proof *p, const proof_part *part)
{
    proof_rules own = proof_own_rules(a, p, part);
    for (i64 i = 0; i < own.n; i++) {
        const rl_rule *r = own.at[i];
        const char *fault = rulebook_fault(a, r, 0);
        if (fault)
            return arena_printf(a, "rule %s of %s %s", r->name, r->file, fault);
    }
    return NULL;
}

void proof_replay(arena *a, proof *p, bool (*cancelled)(void *user), void *user)
{
    eqf_ctx *ctx = arena_ctx(a);
    rl_graph_options o = {.rules = p->space.rules,
                          .fp = p->space.fp,
                          .parameters_are_inputs = p->space.parameters_are_inputs,
                          .limits = eqf_limits_default(),
                          .cancelled = cancelled,
                          .user = user};
    for (i64 i = 0; i < p->parts.n; i++) {
        proof_part *x = &p->parts.at[i];
        if (!x->steps)
            continue;
        size_t before = eqf_diag_count(ctx);
        trap t;
        TRY (ctx, t)
            x->report = rl_replay(a, x->program, x->form, &o, p->file, p->text, p->text_n, x->steps);
        if (t.status == EQF_OK) {
            x->refused = refuse_rule(a, p, x);
            continue;
        }
        if (t.status == EQF_E_NO_MEMORY || t.status == EQF_E_INTERRUPTED)
            eqf_rethrow(ctx, t.status);
        eqf_diag d = eqf_diag_get(ctx, before);
        x->refused = arena_printf(a, "%s%s%s", d.place, d.place[0] ? ": " : "", d.message);
        eqf_forget_from(ctx, before);
    }
}
