/* Forms that compete with a program that is slow on purpose, so that each of them wins by far. All have the
 * program's value over the reals; those that lose it on larger inputs, where the program does not, are
 * refused. */
#include <unistd.h>

#include "driver/contest.h"
#include "ir/check.h"

/* What takes long and comes to nothing. */
#define SLOW "(mul (reduce + (sin (mul Z 0.001)) :axis {P Q}) 0.0)"

typedef struct rivals {
    const char *what;
    const char *ports; /* with Z, which only the program as it was read makes use of */
    const char *program, *form; /* of the one output's value */
    const char *output; /* its axes */
    bool stays;
} rivals;

#define SOFTMAX_PORTS "(dims (M 4) (N 96) (P 1500) (Q 200)) (input X f32 (M N)) (input Z f32 (P Q))"
#define SCORES "(dims (M 4) (N 96) (K 40) (P 1500) (Q 200)) (input A f32 (M K)) (input B f32 (N K)) (input Z f32 (P Q))"
#define DOT "(mul (matmul A B :axis K) 0.171)"
#define DOT_AGAIN "(matmul A (mul B 0.171) :axis K)"
#define SHIFTED(s) "(exp (sub " s " (reduce max " DOT " :axis N)))"

static const rivals all[] = {
    {"a softmax without its maximum", SOFTMAX_PORTS,
     "(let e (exp (sub X (reduce max X :axis N)))) (let y (div e (reduce + e :axis N)))",
     "(let e (exp X)) (let y (div e (reduce + e :axis N)))", "(M N)", false},
    {"a softmax as it was", SOFTMAX_PORTS,
     "(let e (exp (sub X (reduce max X :axis N)))) (let y (div e (reduce + e :axis N)))",
     "(let e (exp (sub X (reduce max X :axis N)))) (let y (mul e (recip (reduce + e :axis N))))", "(M N)", true},
    {"a denominator from scores that are rounded in another way", SCORES,
     "(let e " SHIFTED(DOT) ") (let y (div e (reduce + e :axis N)))",
     "(let y (div " SHIFTED(DOT) " (reduce + " SHIFTED(DOT_AGAIN) " :axis N)))", "(M N)", false},
    {"scores that are rounded in another way throughout", SCORES,
     "(let e " SHIFTED(DOT) ") (let y (div e (reduce + e :axis N)))",
     "(let s " DOT_AGAIN ") (let e (exp (sub s (reduce max s :axis N)))) (let y (div e (reduce + e :axis N)))",
     "(M N)", true},
    /* both overflow: nothing is asked of the form */
    {"what the program does not keep either", SOFTMAX_PORTS,
     "(let e (exp X)) (let y (div e (reduce + e :axis N)))",
     "(let e (exp (mul X 1.0))) (let y (mul e (recip (reduce + e :axis N))))", "(M N)", true},
    {"bf16", "(dims (M 4) (N 96) (P 1500) (Q 200)) (input X bf16 (M N)) (input Z f32 (P Q))",
     "(let x (cast f32 X)) (let e (exp (sub x (reduce max x :axis N)))) (let y (div e (reduce + e :axis N)))",
     "(let x (cast f32 X)) (let e (exp x)) (let y (div e (reduce + e :axis N)))", "(M N)", false},
    /* places in a table, by numbers that are no places any more when they are larger */
    {"indices that are floats", "(dims (M 4) (N 8) (P 1500) (Q 200)) (input X f32 (N)) (input I f32 (M)) (input Z f32 (P Q))",
     "(let y (gather X (cast i64 I) :axis N))", "(let y (mul (gather X (cast i64 I) :axis N) 1.0))", "(M)", true},
    /* no float input but the slow one's */
    {"integers", "(dims (M 4) (N 96) (P 1500) (Q 200)) (input X i32 (M N)) (input Z f32 (P Q))",
     "(let x (cast f32 X)) (let y (div x (add 1.0 (abs x))))", "(let x (cast f32 X)) (let y (mul x (recip (add 1.0 (abs x)))))",
     "(M N)", true},
};

static char folder[64];

static void free_pool(void *p)
{
    pool_free(p);
}

/* The program, built as it was read: as eqf_optimize does before it searches. */
static making *built(fixture *f, const char *text)
{
    char *path = arena_printf(f->a, "%s/program.eqf", folder);
    file_write(f->ctx, path, text, (i64)strlen(text));
    eqf_program *p;
    if (eqf_program_read(f->ctx, path, NULL, &p) != EQF_OK)
        fail_msg("%s: %s", eqf_diag_get(f->ctx, 0).message, text);
    making *m = NEW(f->a, making);
    *m = (making){.program = p, .ir = p->ir, .a = f->a, .shared = f->a, .ctx = f->ctx, .race_s = RACE_S,
                  .threads = 2, .jobs = 2, .subgraphs = 1, .distinct_subgraphs = 1};
    m->rules = rl_ruleset_shipped(f->a);
    m->compiler = tn_probe(f->a, NULL, NULL);
    m->pool = pool_new(f->ctx, m->threads);
    arena_defer(f->a, free_pool, m->pool);
    m->data = program_data(p, m->pool);
    char *package = arena_printf(f->a, "%s/package", folder);
    m->objects = pk_directory(pk_begin(f->a, package));
    m->refused = NEW(f->a, named_files);
    make_package(m, package);
    m->report.failure = "";
    m->report.unfused_us = m->verified.median_us;
    return m;
}

static bool has_time = true; /* to compute the reference again */

static void compete(fixture *f, const void *arg)
{
    const rivals *x = arg;
    char *text = arena_printf(f->a, "(program p %s %s (output out (add y " SLOW ") %s))", x->ports, x->program,
                              x->output);
    making *m = built(f, text);
    if (!has_time) {
        m->deadline = rt_now() + 1000;
        m->reference.seconds = 2000;
    }
    contest *c = contest_new(m, arena_printf(f->a, "%s/package", folder), false);
    text = arena_printf(f->a, "(program p %s %s (output out y %s))", x->ports, x->form, x->output);
    bool taken = contest_try(c, ir_read(f->a, "form", text, (i64)strlen(text)), NULL);
    assert_int_equal(c->tries.n, 1);
    const tried *t = &c->tries.at[0];
    if (taken != x->stays || t->failed || 
        (!taken && strstr(t->why, has_time ? "inputs are larger" : "no time was left") == NULL) || (taken && t->why[0]))
        fail_msg("%s: %s%s (%s)", x->what, taken ? "taken" : "not taken", t->failed ? ", failed" : "", t->why);
    eqf_program_free(m->program);
}

static void run(const rivals *x)
{
    void *inner = NULL;
    assert_int_equal(fixture_setup(&inner), 0);
    fixture *f = inner;
    snprintf(folder, sizeof folder, "/tmp/eqf-contest-XXXXXX");
    assert_non_null(mkdtemp(folder));
    if (attempt(f, compete, x) != EQF_OK)
        fail_msg("%s: %s: %s", x->what, last_diag(f).place, last_diag(f).message);
    fixture_teardown(&inner);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_larger_inputs(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(all); i++)
        run(&all[i]);
}

/* What needs a look at the exact program does not stay without. */
static void test_no_time(void **state)
{
    (void)state;
    has_time = false;
    for (i64 i = 0; i < COUNT_OF(all); i++)
        if (!all[i].stays)
            run(&all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_larger_inputs), cmocka_unit_test(test_no_time)};
    return cmocka_run_group_tests_name("contest", tests, NULL, NULL);
}
