/* Parts of several sizes compete: what is put together is what saves most, whichever cut it comes from,
 * computes the program, and costs one search for each part however often that stands. Times are made
 * up. */
#include <unistd.h>

#include "ir/check.h"
#define bench_run run_plan /* the driver has one of its own */
#include "kernel/harness.h"
#undef bench_run
#include "driver/contest.h"

/* `first` layers of one kind, then `second` of another; dims of every other layer in another order. */
static ir_program *two_kinds(arena *a, i64 first, i64 second, bool mirrored)
{
    str s = str_new(a);
    str_add(&s, "(program kinds (dims (B 6) (C 16) (F 24)");
    if (mirrored)
        str_add(&s, " (G 24) (E 16)");
    str_add(&s, ") (input x0 f32 (B C))\n");
    for (int i = 1; i <= first + second; i++) {
        const char *c = mirrored && i % 2 == 0 ? "E" : "C", *f = mirrored && i % 2 == 0 ? "G" : "F";
        str_printf(&s, "(parameter u%d f32 (%s %s)) (parameter d%d f32 (%s %s))\n", i, c, f, i, f, c);
        const char *x = arena_printf(a, "x%d", i - 1);
        if (mirrored && i > 1) /* what was C is E now, or the other way */
            x = arena_printf(a, "(rename x%d :axis %s :to %s)", i - 1, i % 2 == 0 ? "C" : "E", c);
        str_printf(&s, "(let r%d %s)\n", i, x);
        if (i <= first)
            str_printf(&s, "(let n%d (mul r%d (rsqrt (add (reduce + (square r%d) :axis %s) 1.0))))\n", i, i,
                       i, c);
        else
            str_printf(&s,
                       "(let m%d (sub r%d (div (reduce + r%d :axis %s) 16)))\n"
                       "(let n%d (mul m%d (rsqrt (add (reduce + (square m%d) :axis %s) 1.0))))\n",
                       i, i, i, c, i, i, i, c);
        str_printf(&s, "(let a%d (matmul n%d u%d :axis %s))\n", i, i, i, c);
        str_printf(&s, "(let x%d (add r%d (matmul (%s a%d) d%d :axis %s)))\n", i, i,
                   i <= first ? "tanh" : "sigmoid", i, i, f);
    }
    i64 n = first + second;
    str_printf(&s, "(output y x%lld (B %s)))", (long long)n, mirrored && n % 2 == 0 ? "E" : "C");
    return ir_read(a, "kinds", str_text(&s), s.n);
}

/* Contests for all parts, as if they had been searched and timed: each has another form, that saves
 * nothing so far. */
static partings price(fixture *f, const ir_program *p)
{
    static const i64 sizes[] = {14, 5};
    partings x = {.whole = p, .cuts = NEW_N(f->a, pt_partition, 2), .n = 2};
    x.contests = NEW_N(f->a, contest *, 100);
    for (i64 k = 0; k < 2; k++) {
        x.cuts[k] = pt_cut(f->a, p, &(pt_options){sizes[k], false, k ? &x.cuts[0] : NULL});
        for (i64 i = 0; i < x.cuts[k].part_count; i++) {
            const pt_part *part = &x.cuts[k].parts[i];
            bool is_new = true;
            for (i64 c = 0; c < x.contest_count; c++)
                is_new = is_new && strcmp(x.contests[c]->part->digest, part->digest) != 0;
            if (!is_new)
                continue;
            driver_space space = {.rules = rl_ruleset_shipped(f->a), .fp = RL_REASSOCIATED};
            search_times times = {0};
            ex_report found = driver_candidates(f->a, part->program, space, 2, 60, 3,
                                                (rt_peaks){.gflops = 100, .gbps = 10}, &times);
            assert_true(found.n > 0);
            making *m = NEW(f->a, making);
            m->ir = part->program;
            m->verified.median_us = 100;
            contest *c = NEW(f->a, contest);
            *c = (contest){.first = m, .part = part, .best = found.at[found.n - 1].program, .best_us = 100};
            x.contests[x.contest_count++] = c;
        }
    }
    return x;
}

static void set_saved(partings *x, const pt_part *part, f64 us)
{
    for (i64 i = 0; i < x->contest_count; i++)
        if (strcmp(x->contests[i]->part->digest, part->digest) == 0)
            x->contests[i]->best_us = 100 - us;
}

static bool is_inside(const pt_use *x, const pt_use *y)
{
    return x->from >= y->from && x->to <= y->to;
}

/* The program's value, by the interpreter and as kernels with buffers planned. */
static void check_value(fixture *f, const ir_program *p, const ir_program *q)
{
    rng random = rng_new(5);
    tensor *inputs = bench_inputs(f->a, p, &random);
    tensor *want = NEW_N(f->a, tensor, p->outputs.n), *got = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, want, (ir_eval_options){0});
    ir_eval(q, inputs, f->a, got, (ir_eval_options){0});
    bench b = {.ctx = f->ctx, .a = f->a, .inputs = inputs, .p = q};
    kn_build(f->a, q, (kn_options){32, 2, true, NULL, false}, &b.plan, &b.kernels);
    assert_int_equal(run_plan(&b), 0);
    for (i64 i = 0; i < p->outputs.n; i++) {
        for (i64 k = 0; k < tensor_count(f->ctx, want[i].rank, want[i].shape); k++) {
            f64 x = tensor_get_f64(&got[i], k), y = tensor_get_f64(&want[i], k);
            assert_true(fabs(x - y) <= 1e-9 * (1 + fabs(y)));
        }
        assert_true(bench_error(&b, i, &want[i]) <= 1e-4);
    }
}

static void check_composed(fixture *f, const ir_program *p, const composed *c)
{
    assert_false(parts_as_read(c));
    check_value(f, p, pt_join(f->a, p, &c->cut, c->forms));
}

/* Where a large part saves more than the small ones in it, it stands; elsewhere they do. */
static void best_of_both(void **state)
{
    fixture *f = *state;
    ir_program *p = two_kinds(f->a, 4, 3, false);
    partings x = price(f, p);
    const pt_partition *large = &x.cuts[0], *small = &x.cuts[1];
    assert_true(large->use_count == 2 && large->part_count == 2 && small->use_count > 3);
    for (i64 whole = 0; whole < 2; whole++) { /* which of the large ones */
        for (i64 k = 0; k < 2; k++)
            set_saved(&x, &large->parts[large->uses[k].part], k == whole ? 50 : 20);
        i64 in[2] = {0}, uses = 0;
        for (i64 i = 0; i < small->use_count; i++)
            for (i64 k = 0; k < 2; k++)
                in[k] += is_inside(&small->uses[i], &large->uses[k]);
        for (i64 i = 0; i < small->use_count; i++) {
            bool inside = is_inside(&small->uses[i], &large->uses[whole]);
            set_saved(&x, &small->parts[small->uses[i].part],
                      (inside ? 48.0 : 22.0) / (f64)in[inside ? whole : 1 - whole]);
        }
        composed c = parts_compose(f->a, &x, -1);
        assert_int_equal(c.cut.use_count, 1 + in[1 - whole]);
        for (i64 i = 0; i < c.cut.use_count; i++)
            uses += c.cut.uses[i].from == large->uses[whole].from &&
                    c.cut.uses[i].to == large->uses[whole].to;
        assert_int_equal(uses, 1);
        check_composed(f, p, &c);
        for (i64 k = 0; k < 2; k++) {
            composed own = parts_compose(f->a, &x, k);
            assert_int_equal(own.cut.use_count, x.cuts[k].use_count);
            assert_false(parts_same(&own, &c));
            check_composed(f, p, &own);
        }
        composed again = parts_compose(f->a, &x, -1);
        assert_true(parts_same(&again, &c));
    }
    for (i64 i = 0; i < x.contest_count; i++)
        x.contests[i]->best = x.contests[i]->part->program;
    composed c = parts_compose(f->a, &x, -1);
    assert_true(parts_as_read(&c));
}

/* A form that was found for one place stands in another, whose dims come in another order. */
static void other_places(void **state)
{
    fixture *f = *state;
    ir_program *p = two_kinds(f->a, 8, 0, true);
    partings x = price(f, p);
    assert_true(x.cuts[0].use_count > 1);
    i64 moved = 0;
    for (i64 i = -1; i < x.n; i++) {
        composed c = parts_compose(f->a, &x, i);
        check_composed(f, p, &c);
    }
    /* those of one cut in the middle of the other's, by their digests */
    for (i64 first = 0; first < x.cuts[1].use_count; first++) {
        i64 end = x.cuts[1].uses[x.cuts[1].use_count - 1].to, ends[3], n = 0;
        const pt_use *u = &x.cuts[1].uses[first];
        if (u->from)
            ends[n++] = u->from;
        ends[n++] = u->to;
        if (u->to < end)
            ends[n++] = end;
        partings y = x;
        y.cuts = NEW(f->a, pt_partition);
        y.n = 1;
        assert_true(pt_cut_at(f->a, p, false, ends, n, y.cuts));
        composed c = parts_compose(f->a, &y, -1);
        for (i64 k = 0; k < c.cut.part_count; k++)
            moved += c.best[k] && c.forms[k] != c.best[k];
        check_composed(f, p, &c);
    }
    assert_true(moved > 0);
}

/* ---- one search for each part ------------------------------------------------------------------ */

static i64 count_text(const char *text, const char *what)
{
    i64 n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Equal layers are searched once, by `search` and `optimize`; so is what they are cut into. */
static void equal_layers(void **state)
{
    fixture *f = *state;
    char folder[] = "/tmp/eqf-parts-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *source = arena_printf(f->a, "%s/p.eqf", folder);
    const char *package = arena_printf(f->a, "%s/p.pkg", folder);
    size_t searched[2];
    for (i64 k = 0; k < 2; k++) {
        str text = str_new(f->a);
        ir_print(&text, two_kinds(f->a, k ? 32 : 12, 0, false));
        FILE *out = fopen(source, "w");
        assert_non_null(out);
        fputs(str_text(&text), out);
        assert_int_equal(fclose(out), 0);
        eqf_program *p;
        const eqf_search_report *r;
        assert_int_equal(eqf_program_read(f->ctx, source, NULL, &p), EQF_OK);
        assert_int_equal(eqf_search(p, NULL, &r), EQF_OK);
        searched[k] = r->subgraph_count;
        i64 uses = 0;
        for (size_t i = 0; i < r->subgraph_count; i++)
            uses += r->subgraphs[i].uses;
        assert_true(uses >= (k ? 8 : 3));
        if (k) {
            eqf_optimize_options o = {.budget_s = 8, .compiler = "cc"};
            const eqf_optimize_report *best;
            assert_int_equal(eqf_optimize(p, &o, package, &best), EQF_OK);
            assert_true(best->verified && best->failed == 0);
            i64 n;
            const char *report = file_read(f->a, arena_printf(f->a, "%s/report.json", package), 1 << 26, &n);
            i64 parts = count_text(report, "{\"of\":\"part ");
            print_message("  32 layers: %lld searches of parts, %lld kernels\n", (long long)parts,
                          (long long)best->kernels);
            assert_true(parts <= 8); /* two cuts; the first and the last part of each may be others */
        }
        eqf_program_free(p);
    }
    assert_true(searched[0] <= 4 && searched[1] <= 4);
    assert_int_equal(system(arena_printf(f->a, "rm -rf %s", folder)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(best_of_both),
        TEST(other_places),
        TEST(equal_layers),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
