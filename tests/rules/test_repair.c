/* The golden cases of the repair solver (repair/cases.eqf): accumulators, the way they are moved,
 * values in every regime, certificates; and for "none" the subterm that blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rules/fold.h"

typedef enum regime {
    NORMAL,
    LARGE,
    CONSTANT,
    ZEROS,
    RAMP,
    FAR_MEAN,
    SPARSE,
    MASKED_ROWS,
    HUGE_VALUES,
    SMALL,
    REGIMES
} regime;
static const char *const regime_names[] = {"normal",   "large",  "constant",    "zeros", "ramp",
                                           "far-mean", "sparse", "masked-rows", "huge",  "small"};

typedef struct golden {
    const char *name;
    const sx *form;
    ir_program *p;
    rl_system system;
    bool positive_w, huge, small;
    f64 tolerance;
    i64 first_output;
} golden;

static f64 normal(rng *g)
{
    f64 u = rng_f64(g) + 1e-300, v = rng_f64(g);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static const sx *find(const sx *form, const char *head)
{
    for (i64 i = 0; i < form->n; i++)
        if (sx_is_form(form->at[i], head))
            return form->at[i];
    return NULL;
}

static bool is_listed(const sx *list, const char *name)
{
    for (i64 i = 1; list && i < list->n; i++)
        if (strcmp(list->at[i]->text, name) == 0)
            return true;
    return false;
}

/* As written, or with every f64 an f32. */
static golden read_golden(arena *a, const sx *form, bool is_f32)
{
    golden c = {.name = form->at[1]->text, .form = form, .tolerance = 1e-12};
    str text = str_new(a);
    sx_print(&text, find(form, "program"));
    for (char *at = text.at; is_f32 && (at = strstr(at, "f64")) != NULL;)
        memcpy(at, "f32", 3);
    c.p = ir_read(a, c.name, str_text(&text), text.n);
    ir_atom axis = {0};
    for (i64 i = 1; i < c.p->atoms.n; i++)
        if (strcmp(ir_atom_name(c.p, (ir_atom){(u32)i}), "T") == 0)
            axis.i = (u32)i;
    assert_true(rl_system_of_program(a, c.p, ir_atoms_set(c.p, &axis, 1), &c.system));
    u8 *signs = NEW_N(a, u8, c.p->inputs.n);
    for (i64 i = 0; i < c.p->inputs.n; i++)
        if (is_listed(find(form, "positive"), intern_text(c.p->names, c.p->inputs.at[i].name)))
            signs[i] = RL_POSITIVE;
    c.system.signs = signs;
    const sx *regimes = find(form, "regimes"), *tolerance = find(form, "tolerance");
    c.positive_w = is_listed(regimes, "positive-w");
    c.huge = is_listed(regimes, "huge");
    c.small = is_listed(regimes, "small");
    if (tolerance)
        c.tolerance = tolerance->at[1]->f;
    c.first_output = c.p->outputs.n;
    for (i64 k = 0; k < c.system.n; k++) {
        ir_term t = c.system.at[k].value;
        ir_atoms d = ir_get(c.p, t)->dims;
        ir_dim *dims = NEW_N(a, ir_dim, d.n);
        for (i64 i = 0; i < d.n; i++)
            dims[i] = (ir_dim){ir_extent(c.p, d.at[i]), {&d.at[i], 1}};
        ir_add_output(c.p, (ir_port){.name = intern_cstr(
                                         c.p->names, arena_printf(a, "direct.%lld", (long long)k)),
                                     .rank = d.n,
                                     .dims = dims,
                                     .term = t});
    }
    return c;
}

/* Only what has both a row and the axis is a logit; other inputs stay normal. */
static f64 *make_values(arena *a, const golden *c, i64 port, regime r, rng *g)
{
    const ir_port *x = &c->p->inputs.at[port];
    ir_atoms dims = ir_get(c->p, x->term)->dims;
    i64 n = fold_count(c->p, dims), t = 1;
    bool is_logit = x->rank == 2 && x->dims[1].atoms.at[0].i == c->system.axis.at[0].i;
    if (is_logit)
        t = x->dims[1].extent;
    const char *name = intern_text(c->p->names, x->name);
    bool positive = c->system.signs[port] == RL_POSITIVE || (c->positive_w && name[0] == 'w');
    f64 *at = NEW_N(a, f64, n);
    for (i64 i = 0; i < n; i++)
        at[i] = normal(g) * (r == SMALL ? 0.5 : 1);
    for (i64 i = 0; is_logit && i < n; i++) {
        i64 row = i / t, k = i % t;
        f64 base = row % 2 ? 2000 : -2000;
        bool masked = r == MASKED_ROWS && (row == 0 || (row == 1 && k < t / 2));
        switch (r) {
        case LARGE:
            at[i] = base + 300 * normal(g);
            break;
        case CONSTANT:
            at[i] = 1.25;
            break;
        case ZEROS:
            at[i] = 0;
            break;
        case RAMP:
            at[i] = (f64)(k - t / 2) * 20;
            break;
        case FAR_MEAN:
            at[i] = (f64)(row + 1) * 1e4 + normal(g);
            break;
        case SPARSE:
            at[i] = rng_below(g, 10) < 6 ? -(f64)INFINITY : at[i];
            break;
        case MASKED_ROWS:
            at[i] = masked ? -(f64)INFINITY : at[i];
            break;
        case HUGE_VALUES:
            at[i] *= 1e200;
            break;
        default:
            break;
        }
    }
    for (i64 i = 0; positive && i < n; i++)
        at[i] = 0.25 + fabs(at[i] > -1e300 ? at[i] : 1);
    return at;
}

static tensor *direct(arena *a, const golden *c, const fold_data *data, bool rounds)
{
    tensor *in = NEW_N(a, tensor, c->p->inputs.n), *out = NEW_N(a, tensor, c->p->outputs.n);
    for (i64 i = 0; i < c->p->inputs.n; i++) {
        in[i] = fold_tensor(a, c->p, i);
        in[i].data = data->at[i];
    }
    ir_eval(c->p, in, a, out, (ir_eval_options){.round = rounds});
    return out + c->first_output;
}

enum { NEARBY = 4 };

static tensor *direct_nearby(arena *a, const golden *c, const fold_data *data, f64 ulp, rng *g)
{
    fold_data moved = {NEW_N(a, f64 *, c->p->inputs.n)};
    for (i64 i = 0; i < c->p->inputs.n; i++) {
        i64 n = fold_count(c->p, ir_get(c->p, c->p->inputs.at[i].term)->dims);
        moved.at[i] = arena_copy(a, data->at[i], n * 8);
        for (i64 k = 0; k < n; k++)
            moved.at[i][k] *= 1 + (rng_below(g, 2) ? ulp : -ulp / 2);
    }
    return direct(a, c, &moved, false);
}

/* The worst error, relative to the value and to what rounding of the inputs alone may move: the
 * direct results on inputs an ulp away. Non-finite results must be non-finite in both, except that
 * a row without any live position may have a value where the formula as written has none. */
static f64 compare(const tensor *wants, tensor *const *near, i64 k, const tensor *got, bool masked,
                   bool *bad)
{
    const tensor *want = &wants[k];
    f64 worst = 0, noise = 0;
    i64 n = 1;
    for (i64 j = 0; j < k; j++) { /* results so far are rounded, too */
        i64 size = 1;
        for (i64 i = 0; i < wants[j].rank; i++)
            size *= wants[j].shape[i];
        for (i64 i = 0; i < size; i++)
            if (isfinite(tensor_get_f64(&wants[j], i)))
                noise = fmax(noise, 1e-18 * fabs(tensor_get_f64(&wants[j], i)));
    }
    for (i64 i = 0; i < want->rank; i++)
        n *= want->shape[i];
    for (i64 i = 0; i < n; i++) {
        for (int j = 0; j < NEARBY; j++) {
            f64 d = fabs(tensor_get_f64(&near[j][k], i) - tensor_get_f64(want, i));
            if (isfinite(d))
                noise = fmax(noise, d);
        }
    }
    for (i64 i = 0; i < n; i++) {
        f64 w = tensor_get_f64(want, i), g = tensor_get_f64(got, i);
        if (!isfinite(w)) {
            bool same = !isfinite(g) || (isnan(w) && masked);
            *bad = *bad || !same;
        } else if (!isfinite(g)) {
            *bad = true;
        } else if (fabs(w - g) > 64 * noise) {
            worst = fmax(worst, (fabs(w - g) - 64 * noise) / (fabs(w) + 1e-300));
        }
    }
    return worst;
}

static bool regime_applies(const golden *c, regime r)
{
    if (c->small)
        return r == NORMAL || r == SMALL || r == CONSTANT || r == ZEROS;
    if (r == HUGE_VALUES)
        return c->huge;
    return r != SMALL;
}

static int check_values(arena *parent, golden *c, const rl_repair *r)
{
    int failures = 0;
    f64 worst = 0;
    for (regime g = NORMAL; g < REGIMES; g++)
        for (u64 seed = 1; seed <= 6 && regime_applies(c, g); seed++) {
            arena *a = arena_child(parent);
            rng random = rng_new(seed * 1000 + g);
            fold_data data = {NEW_N(a, f64 *, c->p->inputs.n)};
            for (i64 i = 0; i < c->p->inputs.n; i++)
                data.at[i] = make_values(a, c, i, g, &random);
            tensor *want = direct(a, c, &data, false), *got = NEW_N(a, tensor, c->system.n);
            tensor *near[NEARBY];
            for (int j = 0; j < NEARBY; j++)
                near[j] = direct_nearby(a, c, &data, 2.3e-16, &random);
            fold_run(a, &c->system, &data, r, &random, seed > 3, false, got);
            for (i64 k = 0; k < c->system.n; k++) {
                bool bad = false;
                bool no_value =
                    g == MASKED_ROWS || g == SPARSE || (g == ZEROS && r->how[k].form == RL_ROLLING);
                f64 e = compare(want, near, k, &got[k], no_value, &bad);
                worst = fmax(worst, e);
                if (bad || e > c->tolerance) {
                    if (failures++ < 6)
                        print_error("%s: %s, seed %d, reduction %d: error %g%s\n", c->name,
                                    regime_names[g], (int)seed, (int)k, e,
                                    bad ? ", non-finite" : "");
                }
            }
            arena_free(a);
        }
    print_message("  %-32s slots %d  worst error %.1e\n", c->name, (int)r->slot_count, worst);
    return failures;
}

static const char *found_text(arena *a, const golden *c, const rl_repair *r)
{
    static const char *const forms[] = {"plain", "split", "rolling", "centred"};
    str s = str_new(a);
    str_add(&s, "(accumulators");
    for (i64 i = 0; i < r->slot_count; i++)
        if (r->slots[i].op != IR_NO_REDUCER)
            str_printf(&s, " %s", r->slots[i].is_count ? "n" : ir_reducer_text(r->slots[i].op));
    str_add(&s, ") (how");
    for (i64 k = 0; k < c->system.n; k++) {
        str_printf(&s, " (%s", forms[r->how[k].form]);
        if (r->how[k].degree)
            str_printf(&s, " degree %d", (int)r->how[k].degree);
        if (r->how[k].blocks > 1)
            str_printf(&s, " blocks %d", (int)r->how[k].blocks);
        if (r->how[k].adds_max)
            str_add(&s, " adds-max");
        if (r->how[k].overflows)
            str_add(&s, " overflows");
        if (r->how[k].cancels)
            str_add(&s, " cancels");
        str_add(&s, ")");
    }
    str_add(&s, ")");
    return str_text(&s);
}

static int run_case(arena *a, const sx *form, const char *only, bool folds)
{
    golden c = read_golden(a, form, false);
    if (only && strcmp(only, c.name) != 0)
        return 0;
    rl_repair r = rl_solve_repair(a, &c.system, RL_WANT_ROLLING);
    const sx *none = find(form, "none");
    if (none) {
        if (!r.found && strcmp(r.blocking, none->at[1]->text) == 0 &&
            strstr(r.reason, none->at[2]->text)) {
            print_message("  %s\n", r.reason);
            return 0;
        }
        print_error("%s: %s\n", c.name, r.found ? "found a repair" : r.reason);
        return 1;
    }
    if (!r.found) {
        print_error("%s: %s\n", c.name, r.reason);
        return 1;
    }
    str want = str_new(a);
    sx_print(&want, find(form, "accumulators"));
    str_add(&want, " ");
    sx_print(&want, find(form, "how"));
    const char *got = found_text(a, &c, &r);
    int failures = 0;
    if (strcmp(str_text(&want), got) != 0) {
        print_error("%s: wants %s\n    has   %s\n", c.name, str_text(&want), got);
        failures++;
    }
    if (only) {
        str s = str_new(a);
        ir_print(&s, r.update.p);
        ir_print(&s, r.merge.p);
        ir_print(&s, r.final.p);
        puts(str_text(&s));
        puts(r.certificate);
    }
    ir_verify(r.update.p, "repair");
    ir_verify(r.merge.p, "repair");
    ir_verify(r.final.p, "repair");
    const char *refused = rl_check_repair(a, &c.system, &r, 1);
    if (refused) {
        print_error("%s: the checker says: %s\n", c.name, refused);
        failures++;
    }
    return failures + (folds ? check_values(a, &c, &r) : 0);
}

static void run_table(const char *path, i64 count, bool folds)
{
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *only = getenv("CASE");
    char *text = file_read(a, path, 1 << 20, &n);
    sx *cases = sx_read(a, path, text, n);
    assert_int_equal(cases->n, count);
    volatile int failures = 0;
    for (volatile i64 i = 0; i < cases->n; i++) {
        trap t;
        TRY (ctx, t) {
            arena *b = arena_child(a);
            failures += run_case(b, cases->at[i], only, folds) != 0;
        }
        if (t.status) {
            failures++;
            print_error("%s: %s\n", cases->at[i]->at[1]->text,
                        eqf_diag_get(ctx, eqf_diag_count(ctx) - 1).message);
        }
    }
    assert_int_equal(failures, 0);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static void golden_cases(void **state)
{
    (void)state;
    run_table(EQF_TEST_DIR "/rules/repair/cases.eqf", 53, true);
}

static void further_programs(void **state)
{
    (void)state;
    run_table(EQF_TEST_DIR "/rules/repair/programs.eqf", 17, false);
}

/* The error of the reducer in f32 over the largest of: the program's own error in f32, what an ulp
 * of the inputs moves, an ulp of the result or of 1 (divergences of equal rows are exactly 0). */
static f64 rounding_ratio(arena *parent, golden *c, const rl_repair *r)
{
    static const regime regimes[] = {NORMAL, LARGE, CONSTANT, ZEROS, RAMP, FAR_MEAN, SPARSE};
    f64 worst = 0;
    for (i64 i = 0; i < COUNT_OF(regimes); i++)
        for (u64 seed = 1; seed <= 3 && regime_applies(c, regimes[i]); seed++) {
            arena *a = arena_child(parent);
            rng random = rng_new(seed * 77 + (u64)i);
            fold_data data = {NEW_N(a, f64 *, c->p->inputs.n)};
            for (i64 k = 0; k < c->p->inputs.n; k++) {
                data.at[k] = make_values(a, c, k, regimes[i], &random);
                i64 n = fold_count(c->p, ir_get(c->p, c->p->inputs.at[k].term)->dims);
                for (i64 e = 0; e < n; e++)
                    data.at[k][e] = (f64)(f32)data.at[k][e];
            }
            tensor *want = direct(a, c, &data, false), *eager = direct(a, c, &data, true);
            tensor *near[NEARBY], *got = NEW_N(a, tensor, c->system.n);
            for (int j = 0; j < NEARBY; j++)
                near[j] = direct_nearby(a, c, &data, 1.2e-7, &random);
            fold_run(a, &c->system, &data, r, &random, seed == 2, true, got);
            for (i64 k = 0; k < c->system.n; k++) {
                i64 n = tensor_count(c->p->ctx, want[k].rank, want[k].shape);
                f64 size = 0, own = 0, error = 0;
                for (i64 e = 0; e < n; e++) {
                    f64 w = tensor_get_f64(&want[k], e);
                    if (!isfinite(w))
                        continue;
                    size = fmax(size, fabs(w));
                    own = fmax(own, fabs(tensor_get_f64(&eager[k], e) - w));
                    for (int j = 0; j < NEARBY; j++)
                        own = fmax(own, fabs(tensor_get_f64(&near[j][k], e) - w));
                    error = fmax(error, fabs(tensor_get_f64(&got[k], e) - w));
                }
                f64 floor = fmax(own, 6e-8 * fmax(size, 1));
                if (isfinite(own) && !isnan(error))
                    worst = fmax(worst, error / floor);
                else if (isnan(error) && isfinite(own))
                    worst = (f64)INFINITY;
            }
            arena_free(a);
        }
    return worst;
}

static void rounding(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 n;
    const char *path = EQF_TEST_DIR "/rules/repair/cases.eqf", *only = getenv("CASE");
    char *text = file_read(a, path, 1 << 20, &n);
    sx *cases = sx_read(a, path, text, n);
    int failures = 0;
    for (i64 i = 0; i < cases->n; i++) {
        arena *b = arena_child(a);
        golden c = read_golden(b, cases->at[i], true);
        rl_repair r = rl_solve_repair(b, &c.system, RL_WANT_ROLLING);
        if (r.found && (!only || strcmp(only, c.name) == 0)) {
            f64 ratio = rounding_ratio(b, &c, &r);
            print_message("  %-32s %.1f times the program's own error\n", c.name, ratio);
            failures += !(ratio <= 16);
        }
        arena_free(b);
    }
    assert_int_equal(failures, 0);
    arena_free(a);
    eqf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases),
        cmocka_unit_test(further_programs),
        cmocka_unit_test(rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
