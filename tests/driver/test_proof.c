/* proof.eqf: derivations of the forms that the search finds, of a whole and of its parts, are written,
 * read back and replayed; a file with one thing changed is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "driver/contest.h"
#include "driver/proof.h"
#include "package/package.h"

static const rt_peaks peaks = {100, 10};

static const char *read_text(arena *a, const char *name, i64 *n)
{
    const char *path = arena_printf(a, "%s/rules/programs/%s.eqf", EQF_TEST_DIR, name);
    const char *written = file_read(a, path, 1 << 20, n);
    ir_program *p = ir_read(a, path, written, *n);
    str text = str_new(a);
    ir_print(&text, p);
    *n = text.n;
    return str_text(&text);
}

static driver_space space_of(arena *a)
{
    return (driver_space){.rules = rl_ruleset_shipped(a), .fp = RL_REASSOCIATED};
}

/* Candidate k of the program, or NULL. */
static const ir_program *form_of(arena *a, const ir_program *p, i64 k)
{
    search_times times;
    ex_report found = driver_candidates(a, p, space_of(a), rt_processors(), 60, k + 1, peaks, &times);
    return k < found.n ? found.at[k].program : NULL;
}

static void add_part(arena *a, proof *p, const ir_program *program, const ir_program *form, i64 uses)
{
    proof_part part = {.program = program, .form = form, .uses = uses};
    if (form)
        part.derivation = driver_derive(a, program, form, space_of(a), 60, &part.why_not);
    vec_push(a, &p->parts, part);
}

static proof start(arena *a, const ir_program *p, const char *text, i64 n)
{
    proof q = {.program = p, .space = space_of(a)};
    digest_hex(text, n, q.digest);
    return q;
}

static const char *printed(arena *a, const proof *p)
{
    str s = str_new(a);
    proof_print(&s, p);
    return str_text(&s);
}

/* Reads and replays it; the parts that were refused, -1: the file was. */
static i64 refused_parts(arena *a, const char *text, const char *program, i64 n, i64 *steps)
{
    proof *volatile p = NULL;
    trap t;
    TRY (arena_ctx(a), t) {
        p = proof_read(a, "proof.eqf", text, (i64)strlen(text), program, n);
        proof_replay(a, p, NULL, NULL);
    }
    if (t.status != EQF_OK)
        return -1;
    i64 count = 0;
    for (i64 i = 0; i < p->parts.n; i++) {
        count += p->parts.at[i].refused != NULL;
        *steps += p->parts.at[i].report.steps;
        assert_int_equal(p->parts.at[i].report.assumptions, 0);
        if (p->parts.at[i].refused)
            print_message("%s\n", p->parts.at[i].refused);
    }
    return count;
}

static const char *whole_proof(arena *a, const char *text, i64 n, i64 k, const char **why)
{
    ir_program *p = ir_read(a, "program.eqf", text, n);
    const ir_program *form = form_of(a, p, k);
    if (!form)
        return NULL;
    proof q = start(a, p, text, n);
    q.computes = form;
    add_part(a, &q, p, form, 1);
    *why = q.parts.at[0].why_not;
    return printed(a, &q);
}

static void wholes_are_proved(void **state)
{
    (void)state;
    static const char *const names[] = {"rmsnorm_gemm", "attention", "row_statistics", "layernorm_gemm",
                                        "attention_causal", "rmsnorm_swiglu", "mla", "lora", "ngpt"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 i = 0; i < COUNT_OF(names); i++)
        for (i64 k = 0; k < 6; k += 3) {
            arena *a = arena_new(ctx, 0);
            i64 n, steps = 0;
            const char *text = read_text(a, names[i], &n), *why;
            const char *file = whole_proof(a, text, n, k, &why);
            if (file && why)
                fail_msg("%s, candidate %lld: %s", names[i], (long long)k, why);
            if (file && refused_parts(a, file, text, n, &steps) != 0)
                fail_msg("%s, candidate %lld: %s", names[i], (long long)k,
                         eqf_diag_count(ctx) ? eqf_diag_get(ctx, 0).message : "refused");
            assert_true(!file || steps > 0);
            arena_free(a);
        }
    eqf_ctx_free(ctx);
}

/* All parts in another form, or all but one. Parts of up to five reductions; or, of larger ones, the
 * first, and those in the others. */
static const char *parts_proof(arena *a, const char *text, i64 n, bool mixed, bool all)
{
    ir_program *p = ir_read(a, "program.eqf", text, n);
    pt_partition large = pt_cut(a, p, &(pt_options){.most_reductions = 14});
    pt_partition cut = pt_cut(a, p, &(pt_options){.most_reductions = 5, .within = &large});
    proof q = start(a, p, text, n);
    for (i64 i = 0; i < cut.use_count; i++)
        if (!mixed || cut.uses[i].to >= large.uses[0].to)
            vec_push(a, &q.ends, cut.uses[i].to);
    assert_true(q.ends.n > 1 && (!mixed || q.ends.n < cut.use_count));
    assert_true(pt_cut_at(a, p, false, q.ends.at, q.ends.n, &cut));
    const ir_program **forms = NEW_N(a, const ir_program *, cut.part_count);
    for (i64 i = 0; i < cut.part_count; i++) {
        const ir_program *form = i == 1 && !all ? NULL : form_of(a, cut.parts[i].program, 0);
        add_part(a, &q, cut.parts[i].program, form, cut.parts[i].uses);
        if (form && q.parts.at[i].why_not)
            fail_msg("part %lld: %s", (long long)i, q.parts.at[i].why_not);
        forms[i] = form ? form : cut.parts[i].program;
    }
    q.computes = pt_join(a, p, &cut, forms);
    return printed(a, &q);
}

static void parts_are_proved(void **state)
{
    (void)state;
    static const char *const names[] = {"decoder_layers_2", "decoder_layer"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        arena *a = arena_new(ctx, 0);
        i64 n, steps = 0;
        const char *text = read_text(a, names[i], &n), *file = parts_proof(a, text, n, i == 0, i == 0);
        if (refused_parts(a, file, text, n, &steps) != 0)
            fail_msg("%s: %s", names[i], eqf_diag_count(ctx) ? eqf_diag_get(ctx, 0).message : "");
        assert_true(steps > 20);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* `text` with the first `from` after `mark` replaced by `to`. */
static const char *changed(arena *a, const char *text, const char *mark, const char *from,
                           const char *to)
{
    const char *at = strstr(text, mark);
    at = at ? strstr(at, from) : NULL;
    assert_non_null(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void changed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *mark, *from, *to;
    } changes[] = {
        {"(program \"", "\"", "\"0"},                          /* another program's */
        {"(rounding", "reassoc", "exact"},                     /* rules that were not admitted */
        {"(derivation", "(derivation", "(derivation (bogus)"},
        {"(proof shared", "square", "exp"},                    /* a term */
        {"(proof shared", "scale-leaves-matmul", "divisor-leaves-matmul"}, /* a rule */
        {"(proof shared", "view.rsqrt", "view.sqrt"},
        {"(computes", "rsqrt", "sqrt"},                        /* the form */
        {"(computes", ":par K", ":par M"},
        {"(claim", "(claim ", "(claim 1 "},
        {"(part 0", "(derivation", "(derivatoin"},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n, steps = 0, looked = 0;
    const char *text = read_text(a, "rmsnorm_gemm", &n), *why, *file = NULL;
    for (i64 k = 0; k < 8 && !file; k++) {
        const char *one = whole_proof(a, text, n, k, &why);
        if (one && strstr(one, "scale-leaves-matmul"))
            file = one;
    }
    assert_non_null(file);
    assert_int_equal(refused_parts(a, file, text, n, &steps), 0);
    for (i64 i = 0; i < COUNT_OF(changes); i++, looked++) {
        const char *other = changed(a, file, changes[i].mark, changes[i].from, changes[i].to);
        if (refused_parts(a, other, text, n, &steps) == 0)
            fail_msg("%s -> %s after %s is accepted", changes[i].from, changes[i].to,
                     changes[i].mark);
        eqf_ctx_clear(ctx);
    }
    const char *older = changed(a, file, "(proof", "3", "2");
    assert_int_equal(refused_parts(a, older, text, n, &steps), -1);
    assert_int_equal(eqf_diag_get(ctx, 0).status, EQF_E_UNSUPPORTED);
    assert_non_null(strstr(eqf_diag_get(ctx, 0).message, "format 2"));
    eqf_ctx_clear(ctx);
    const char *other = changed(a, text, "(program", "K", "K"); /* the same: nothing is wrong */
    assert_int_equal(refused_parts(a, file, other, n, &steps), 0);

    text = read_text(a, "attention", &n); /* what a loop repairs */
    file = NULL;
    for (i64 k = 0; k < 8 && !file; k++) {
        const char *one = whole_proof(a, text, n, k, &why);
        if (one && strstr(one, "(hint"))
            file = one;
    }
    assert_non_null(file);
    assert_int_equal(refused_parts(a, file, text, n, &steps), 0);
    assert_int_not_equal(refused_parts(a, changed(a, file, "(hint", "exp", "neg"), text, n, &steps), 0);
    eqf_ctx_clear(ctx);
    arena_free(a);
    a = arena_new(ctx, 0);
    text = read_text(a, "decoder_layers_2", &n);
    file = parts_proof(a, text, n, false, false);
    static const struct {
        const char *mark, *from, *to;
    } of_parts[] = {{"(cut", " ", " 1 "},
                    {"(cut", " ", " -1 "},
                    {"(cut", " ", " x "},
                    {"(cut", ")", " 9999)"},
                    {"(cut", "(cut", "(cuts"},
                    {"(part 1", "(uses ", "(uses 1"},
                    {"(part 0", "(program", "(program other) (program"},
                    {"(part 0", "(form", "(by-value \"x\") (derivation) (form"}};
    for (i64 i = 0; i < COUNT_OF(of_parts); i++) {
        other = changed(a, file, of_parts[i].mark, of_parts[i].from, of_parts[i].to);
        i64 refused = refused_parts(a, other, text, n, &steps);
        if (refused == 0 && i != 6) /* the last program of a part counts */
            fail_msg("%s after %s is accepted", of_parts[i].to, of_parts[i].mark);
        eqf_ctx_clear(ctx);
    }
    arena_free(a);
    eqf_ctx_free(ctx);
}

/* A package whose proof is replaced: what it says is replayed from its files. */
static void packages_are_explained(void **state)
{
    (void)state;
    char folder[] = "/tmp/eqf-proof-XXXXXX";
    assert_non_null(mkdtemp(folder));
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    const char *source = arena_printf(a, "%s/rows.eqf", folder),
               *package = arena_printf(a, "%s/rows.pkg", folder);
    static const char text[] = "(program rows (dims (M 8) (K 64))\n  (input X f32 (M K))\n"
                               "  (let e (exp (sub X (reduce max X :axis K))))\n"
                               "  (output Y (div e (reduce + e :axis K)) (M K)))\n";
    file_write(ctx, source, text, sizeof text - 1);
    eqf_program *program;
    eqf_optimize_options options = {.budget_s = 1e-3, .threads = 1};
    assert_int_equal(eqf_program_read(ctx, source, NULL, &program), EQF_OK);
    assert_int_equal(eqf_optimize(program, &options, package, NULL), EQF_OK);
    eqf_explain_options replay = {.proof = true};
    eqf_explanation *x;
    assert_int_equal(eqf_package_explain(ctx, package, &replay, &x), EQF_OK);
    assert_string_equal(x->form, "");
    assert_true(x->kernel_count > 2 && x->kernels[0].bytes > 0);
    assert_true(x->checked && x->proved);
    eqf_explanation_free(x);

    const char *own = eqf_program_text(program), *why, *file;
    i64 n = (i64)strlen(own);
    file = whole_proof(a, own, n, 0, &why);
    assert_non_null(file);
    pk_replace(a, package, &(pk_file){"proof.eqf", file}, 1);
    assert_int_equal(eqf_package_explain(ctx, package, &replay, &x), EQF_OK);
    assert_true(x->checked && x->proved && x->part_count == 1);
    assert_true(x->parts[0].changed && x->parts[0].step_count > 3 && x->parts[0].checked > 3);
    assert_true(x->parts[0].steps[0].meaning[0] && x->parts[0].steps[0].from[0]);
    eqf_explanation_free(x);
    eqf_model *model; /* it is a package still */
    assert_int_equal(eqf_model_load(ctx, package, &model), EQF_OK);
    eqf_model_free(model);

    file = changed(a, file, "(proof shared", "view.exp", "view.sub");
    pk_replace(a, package, &(pk_file){"proof.eqf", file}, 1);
    assert_int_equal(eqf_package_explain(ctx, package, NULL, &x), EQF_OK);
    assert_false(x->checked);
    eqf_explanation_free(x);
    assert_int_equal(eqf_package_explain(ctx, package, &replay, &x), EQF_OK);
    assert_false(x->checked || x->proved);
    assert_non_null(strchr(x->parts[0].refused, ':')); /* its place */
    eqf_explanation_free(x);

    file = arena_printf(a, "%s/proof.eqf", package); /* behind plan.json's back */
    file_write(ctx, file, "(proof (format 2))", 18);
    assert_int_equal(eqf_package_explain(ctx, package, &replay, &x), EQF_E_DATA);
    assert_null(x);
    eqf_program_free(program);
    arena_free(a);
    eqf_ctx_free(ctx);
    char line[128];
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wholes_are_proved),
        cmocka_unit_test(parts_are_proved),
        cmocka_unit_test(changed_files_are_refused),
        cmocka_unit_test(packages_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
