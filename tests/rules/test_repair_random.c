/* Random consumers of the family: whatever is built from tile values, shifted exponentials, centred
 * and divided terms, waiting factors and masks has a repair, its folded value is the direct
 * reduction's, and the checker agrees. Rolling and split forms both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/consumers.h"
#include "rules/fold.h"

static f64 gauss(rng *g)
{
    f64 u = rng_f64(g) + 1e-300, v = rng_f64(g);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static bool same_values(arena *a, const rl_system *s, const rl_repair *r, rng *g)
{
    ir_program *p = (ir_program *)(uintptr_t)s->p;
    fold_data data = {NEW_N(a, f64 *, p->inputs.n)};
    tensor *in = NEW_N(a, tensor, p->inputs.n), *got = NEW_N(a, tensor, s->n);
    for (i64 i = 0; i < p->inputs.n; i++) {
        in[i] = fold_tensor(a, p, i);
        data.at[i] = in[i].data;
        for (i64 k = 0; k < tensor_count(p->ctx, in[i].rank, in[i].shape); k++)
            data.at[i][k] = gauss(g);
    }
    tensor *want = NEW_N(a, tensor, p->outputs.n);
    ir_eval(p, in, a, want, (ir_eval_options){0});
    fold_run(a, s, &data, r, g, true, false, got);
    f64 size = 1;
    for (i64 i = 0; i < 3; i++)
        size = fmax(size, fabs(tensor_get_f64(&want[0], i)));
    for (i64 i = 0; i < 3; i++) {
        f64 x = tensor_get_f64(&want[0], i), y = tensor_get_f64(&got[s->n - 1], i);
        if (!(fabs(x - y) <= 1e-8 * size))
            return false;
    }
    return true;
}

static u64 programs = 150; /* argument 1; the long run takes more */

/* Beyond the short run: a cube of a mean in the normal form's print, which must not be guarded as a
 * divisor is where the mean is 0. */
static const u64 also[] = {1876};

static void random_consumers(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 found[2] = {0, 0}, limited = 0, failures = 0;
    for (u64 number = 1; number <= programs + COUNT_OF(also); number++) {
        u64 seed = number > programs ? also[number - programs - 1] : number;
        arena *a = arena_new(ctx, 0);
        rng g = rng_new(seed);
        const char *text = consumer_text(a, &g);
        ir_program *p = ir_read(a, "random", text, (i64)strlen(text));
        ir_atom axis = {2};
        rl_system system;
        assert_true(rl_system_of_program(a, p, ir_atoms_set(p, &axis, 1), &system));
        for (int want = RL_WANT_ROLLING; want <= RL_WANT_SPLIT; want++) {
            rl_repair r = rl_solve_repair(a, &system, (rl_want)want);
            if (!r.found) {
                if (!strstr(r.reason, "more than 16 accumulators"))
                    print_error("seed %d: %s: %s\n", (int)seed, r.reason, strstr(text, "(output")),
                        failures++;
                limited++;
                continue;
            }
            found[want]++;
            const char *refused = rl_check_repair(a, &system, &r, seed);
            if (refused)
                print_error("seed %d: the checker says %s: %s\n", (int)seed, refused,
                            strstr(text, "(output")),
                    failures++;
            if (!same_values(a, &system, &r, &g))
                print_error("seed %d: other values: %s\n", (int)seed, strstr(text, "(output")),
                    failures++;
        }
        arena_free(a);
    }
    print_message("  %d rolling, %d split, %d beyond the limits\n", (int)found[0], (int)found[1],
                  (int)limited);
    assert_int_equal(failures, 0);
    assert_true(found[0] > (i64)programs * 4 / 5 && found[1] > (i64)programs * 9 / 10);
    eqf_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        programs = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_consumers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
