/* Parts of programs: put together again as they were they are the program, whatever it was and however
 * small the parts; equal layers are one part; no border has more than it needs. Parts of several
 * partitions, whichever are chosen, are a partition; the cheapest is chosen. */
#include <dirent.h>

#include "ir/check.h"
#include "ir/generate.h"
#include "partition/partition.h"

/* Twice: x + y beside y + x are two terms at first, and colour each other. */
static const char *canonical_text(arena *a, const ir_program *p)
{
    str s = str_new(a);
    ir_print(&s, ir_canonical(a, ir_canonical(a, p)));
    return str_text(&s);
}

static void check_partition(arena *a, const ir_program *p, const pt_partition *x, const char *name)
{
    const ir_program **same = NEW_N(a, const ir_program *, x->part_count);
    i64 uses = 0, end = 0;
    for (i64 i = 0; i < x->part_count; i++) {
        ir_verify(x->parts[i].program, "cut");
        same[i] = x->parts[i].program;
        uses += x->parts[i].uses;
    }
    assert_int_equal(uses, x->use_count);
    for (i64 i = 0; i < x->use_count; i++) {
        assert_int_equal(x->uses[i].from, end);
        end = x->uses[i].to;
    }
    ir_program *q = pt_join(a, p, x, same);
    const char *want = canonical_text(a, p), *got = canonical_text(a, q);
    if (strcmp(want, got) != 0)
        fail_msg("%s in %d parts:\n%s\nput together:\n%s", name, (int)x->use_count, want, got);
}

static pt_partition cut_within(arena *a, const ir_program *p, i64 most, const pt_partition *within,
                               const char *name)
{
    pt_partition x = pt_cut(a, p, &(pt_options){.most_reductions = most, .within = within});
    check_partition(a, p, &x, name);
    i64 *ends = NEW_N(a, i64, x.use_count);
    for (i64 i = 0; i < x.use_count; i++)
        ends[i] = x.uses[i].to;
    pt_partition same;
    assert_true(pt_cut_at(a, p, false, ends, x.use_count, &same));
    assert_int_equal(same.part_count, x.part_count);
    for (i64 i = 0; i < x.part_count; i++)
        assert_string_equal(same.parts[i].digest, x.parts[i].digest);
    for (i64 i = 0, k = 0; within && i < within->use_count; i++) {
        while (k < x.use_count && x.uses[k].to < within->uses[i].to)
            k++;
        assert_int_equal(x.uses[k].to, within->uses[i].to);
    }
    return x;
}

static pt_partition check_cut(arena *a, const ir_program *p, i64 most, const char *name)
{
    return cut_within(a, p, most, NULL, name);
}

static void random_programs(void **state)
{
    fixture *f = *state;
    i64 parts = 0, shared = 0;
    for (u64 seed = 1; seed <= 400; seed++) {
        arena *a = arena_child(f->a);
        ir_program *p = gen_program(a, seed, 40, true);
        for (i64 most = 1; most <= 16; most *= 4) {
            pt_partition x =
                check_cut(a, p, most, arena_printf(a, "seed %llu", (unsigned long long)seed));
            parts += x.part_count;
            shared += x.use_count - x.part_count;
        }
        arena_free(a);
    }
    print_message("  %lld parts, %lld more uses\n", (long long)parts, (long long)shared);
    assert_true(parts > 1000);
}

static ir_program *read_file(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, EQF_TEST_DIR "/rules/programs/%s", name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static void named_programs(void **state)
{
    fixture *f = *state;
    DIR *d = opendir(EQF_TEST_DIR "/rules/programs");
    assert_non_null(d);
    i64 count = 0;
    for (struct dirent *e; (e = readdir(d)); count++) {
        if (!strstr(e->d_name, ".eqf"))
            continue;
        arena *a = arena_child(f->a);
        ir_program *p = read_file(a, e->d_name);
        for (i64 most = 2; most <= 32; most *= 2)
            check_cut(a, p, most, e->d_name);
        arena_free(a);
    }
    closedir(d);
    assert_true(count > 25);
}

/* Layers one after another, each with parameters of its own. */
static const char *layers(arena *a, i64 n)
{
    str s = str_new(a);
    str_add(&s, "(program layers (dims (B 8) (C 64) (D 64) (F 256))\n"
                "(input t f32 (B C)) (input m f32 (B))\n(let r (rename t :axis C :to D))\n");
    str_add(&s, "(let mask (sigmoid m))\n(let x0 (mul t 2.0))\n");
    for (int i = 1; i <= n; i++) {
        str_printf(&s, "(parameter g%d f32 (C)) (parameter u%d f32 (C F)) (parameter d%d f32 (F C))\n", i, i, i);
        str_printf(&s,
                   "(let n%d (mul (mul x%d (rsqrt (add (div (reduce + (square x%d) :axis C) 64) 1e-5))) g%d))\n",
                   i, i - 1, i - 1, i);
        str_printf(&s, "(let a%d (matmul n%d u%d :axis C))\n", i, i, i);
        str_printf(&s,
                   "(let x%d (add x%d (mul mask (matmul (mul a%d (sigmoid a%d)) d%d :axis F))))\n", i,
                   i - 1, i, i, i);
    }
    str_printf(&s, "(output y (mul 0.5 x%lld) (B C)) (output z r (B D)))", (long long)n);
    return str_text(&s);
}

static void equal_layers(void **state)
{
    fixture *f = *state;
    i64 parts[2] = {0};
    for (int k = 0; k < 2; k++) {
        i64 n = k ? 32 : 8;
        const char *text = layers(f->a, n);
        ir_program *p = ir_read(f->a, "layers", text, (i64)strlen(text));
        for (i64 most = 3; most <= 6; most += 3) {
            pt_partition x = check_cut(f->a, p, most, "layers");
            print_message("  %lld layers, most %lld: %lld parts in %lld places\n", (long long)n,
                          (long long)most, (long long)x.part_count, (long long)x.use_count);
            assert_true(x.part_count <= 4);
            assert_true(x.use_count >= n / 2);
            parts[k] = MAX(parts[k], x.part_count);
        }
        pt_partition coarse = check_cut(f->a, p, 6, "layers");
        pt_partition fine = cut_within(f->a, p, 3, &coarse, "layers");
        assert_true(fine.use_count > coarse.use_count && fine.part_count <= 4);
    }
    assert_int_equal(parts[0], parts[1]);
}

/* A chain is cut where it is narrow. */
static void narrow_places(void **state)
{
    fixture *f = *state;
    const char *text = "(program p (dims (M 8) (K 512) (N 16) (J 512))"
                       "(input x f32 (M K)) (parameter a f32 (K N)) (parameter b f32 (N J))"
                       "(let w (matmul (sigmoid x) a :axis K))"
                       "(let y (matmul (sigmoid w) b :axis N))"
                       "(output z (reduce + (sigmoid y) :axis J) (M)))";
    ir_program *p = ir_read(f->a, "chain", text, (i64)strlen(text));
    pt_partition x = check_cut(f->a, p, 2, "chain");
    assert_int_equal(x.use_count, 2);
    const ir_node *first = ir_get(p, x.uses[0].outputs[0]);
    assert_int_equal(first->dims.n, 2);
    assert_string_equal(ir_atom_name(p, first->dims.at[1]), "N");
}

/* Values that only grow have no narrow place: the limit alone cuts. */
static void growing_values(void **state)
{
    fixture *f = *state;
    str s = str_new(f->a);
    str_add(&s, "(program grow (dims (A 2)");
    for (int i = 0; i < 12; i++)
        str_printf(&s, " (K%d %d)", i, 3 + i);
    str_add(&s, ") (input x f32 (A K0))");
    for (int i = 1; i < 12; i++)
        str_printf(&s, "(parameter w%d f32 (K%d K%d)) (let y%d (matmul %s w%d :axis K%d))", i, i - 1, i, i,
                   i == 1 ? "x" : arena_printf(f->a, "y%d", i - 1), i, i - 1);
    str_add(&s, "(output z y11 (A K11)))");
    ir_program *p = ir_read(f->a, "grow", str_text(&s), s.n);
    for (i64 most = 1; most <= 4; most++) {
        pt_partition x = check_cut(f->a, p, most, "grow");
        assert_true(x.use_count >= 11 / most);
    }
}

/* ---- parts of several partitions -------------------------------------------------------------- */

enum { CUTS = 4 };

/* The least that parts from `from` to the end cost; counts the ways. */
static f64 least(const pt_partition *cuts, const f64 *const *costs, i64 from, i64 end, i64 *ways)
{
    f64 best = from == end ? 0 : -1;
    *ways += from == end;
    for (i64 k = 0; k < CUTS; k++)
        for (i64 i = 0; i < cuts[k].use_count; i++) {
            const pt_use *u = &cuts[k].uses[i];
            if (u->from != from)
                continue;
            f64 cost = costs[k][u->part] + least(cuts, costs, u->to, end, ways);
            best = best < 0 || cost < best ? cost : best;
        }
    return best;
}

/* Whole numbers, so that sums are exact; equal parts cost the same in all. */
static f64 cost_of(const char *digest, u64 seed)
{
    u64 h = seed;
    for (i64 i = 0; digest[i]; i++)
        h = hash_u64(h, (u64)digest[i]);
    return (f64)(h % 13);
}

/* What the parts that end there cost, each as one of `cuts`; -1: one is in none. */
static f64 sum_of(const pt_partition *x, const pt_partition *cuts, u64 seed)
{
    f64 sum = 0;
    for (i64 i = 0; i < x->use_count; i++) {
        bool found = false;
        for (i64 k = 0; k < CUTS; k++)
            for (i64 j = 0; j < cuts[k].use_count; j++)
                found = found || (cuts[k].uses[j].from == x->uses[i].from &&
                                  cuts[k].uses[j].to == x->uses[i].to);
        if (!found)
            return -1;
        sum += cost_of(x->parts[x->uses[i].part].digest, seed);
    }
    return sum;
}

/* Each value of a few of the latest ones, so that there is much to cut. */
static ir_program *deep_program(arena *a, u64 seed)
{
    rng r = rng_new(seed);
    str s = str_new(a);
    str_add(&s, "(program deep (dims (B 4) (C 6) (D 5)) (input v0 f32 (B C)) (input v1 f32 (B C))\n"
                "(parameter p f32 (C D)) (parameter q f32 (D C))\n");
    int n = 12 + (int)rng_below(&r, 12);
    for (int i = 2; i < n; i++) {
        int x = i - 1 - (int)rng_below(&r, 2), y = i - 1 - (int)rng_below(&r, (u64)MIN(i, 4));
        switch (rng_below(&r, 5)) {
        case 0: str_printf(&s, "(let v%d (tanh v%d))\n", i, x); break;
        case 1: str_printf(&s, "(let v%d (add v%d v%d))\n", i, x, y); break;
        case 2: str_printf(&s, "(let v%d (mul v%d (reduce + v%d :axis C)))\n", i, x, y); break;
        default:
            str_printf(&s, "(let v%d (matmul (matmul v%d p :axis C) q :axis D))\n", i, x);
        }
    }
    str_printf(&s, "(output y v%d (B C)) (output z v%d (C B)))", n - 1, n - 2);
    return ir_read(a, "deep", str_text(&s), s.n);
}

/* Against all ways to put parts side by side, two of the partitions one within the other and one by
 * itself. */
static void cheapest_parts(void **state)
{
    fixture *f = *state;
    i64 mixed = 0, all_ways = 0;
    for (u64 seed = 1; seed <= 300; seed++) {
        arena *a = arena_child(f->a);
        ir_program *p = seed % 3 ? deep_program(a, seed) : gen_program(a, seed, 100, true);
        pt_partition cuts[CUTS];
        const char *name = arena_printf(a, "seed %llu", (unsigned long long)seed);
        cuts[0] = check_cut(a, p, 6, name);
        cuts[1] = cut_within(a, p, 3, &cuts[0], name);
        cuts[2] = cut_within(a, p, 1, &cuts[1], name);
        cuts[3] = check_cut(a, p, 2, name);
        i64 n = 0, ways = 0, end = 0;
        const f64 *costs[CUTS];
        for (i64 k = 0; k < CUTS; k++) {
            f64 *at = NEW_N(a, f64, cuts[k].part_count);
            for (i64 i = 0; i < cuts[k].part_count; i++)
                at[i] = cost_of(cuts[k].parts[i].digest, seed);
            costs[k] = at;
            n += cuts[k].use_count;
            if (cuts[k].use_count)
                end = cuts[k].uses[cuts[k].use_count - 1].to;
        }
        i64 *ends = NEW_N(a, i64, n), count = pt_mix(a, cuts, CUTS, costs, ends);
        pt_partition x;
        assert_true(pt_cut_at(a, p, false, ends, count, &x));
        check_partition(a, p, &x, name);
        assert_true(sum_of(&x, cuts, seed) == least(cuts, costs, 0, end, &ways));
        bool is_own = false;
        for (i64 k = 0; k < CUTS; k++) {
            bool same = cuts[k].use_count == x.use_count;
            for (i64 i = 0; same && i < x.use_count; i++)
                same = cuts[k].uses[i].to == x.uses[i].to;
            is_own = is_own || same;
        }
        mixed += !is_own;
        all_ways += ways;
        arena_free(a);
    }
    print_message("  %lld of 300 from several partitions, %lld ways\n", (long long)mixed,
                  (long long)all_ways);
    assert_true(mixed > 30);
}

/* Places that are none of a program's are refused. */
static void other_places(void **state)
{
    fixture *f = *state;
    ir_program *p = read_file(f->a, "decoder_layer.eqf");
    pt_partition x = check_cut(f->a, p, 5, "decoder_layer"), y;
    i64 end = x.uses[x.use_count - 1].to;
    assert_true(pt_cut_at(f->a, p, false, &end, 1, &y));
    assert_int_equal(y.use_count, 1);
    const i64 bad[][3] = {{end + 1}, {end - 1}, {0, end}, {-1, end}, {4, 4, end}, {8, 4, end}, {4, end, end}};
    const i64 counts[] = {1, 1, 2, 2, 3, 3, 3};
    for (i64 i = 0; i < COUNT_OF(bad); i++)
        assert_false(pt_cut_at(f->a, p, false, bad[i], counts[i], &y));
    assert_false(pt_cut_at(f->a, p, false, NULL, 0, &y));
}

/* Equal parts whose atoms come in another order: a form of one is a form of the other. */
static void other_orders(void **state)
{
    fixture *f = *state;
    static const char *const dims[] = {"(B 8) (C 64) (F 96) (D 64) (G 96)",
                                       "(G 96) (D 64) (F 96) (C 64) (B 8)",
                                       "(F 96) (B 8) (D 64) (G 96) (C 64)"};
    i64 moved = 0;
    for (i64 k = 0; k < COUNT_OF(dims); k++) {
        const char *text = arena_printf(
            f->a,
            "(program p (dims %s) (input x f32 (B C))\n"
            "(parameter a f32 (C F)) (parameter b f32 (F D)) (parameter c f32 (D G)) (parameter d f32 (G D))"
            "(let y (matmul (exp (matmul (tanh x) a :axis C)) b :axis F))\n"
            "(let z (matmul (exp (matmul (tanh y) c :axis D)) d :axis G))\n"
            "(output o z (B D)))",
            dims[k]);
        ir_program *p = ir_read(f->a, "orders", text, (i64)strlen(text));
        pt_partition coarse = check_cut(f->a, p, 2, "orders");
        pt_partition x = cut_within(f->a, p, 1, &coarse, "orders");
        const pt_partition *both[] = {&coarse, &x};
        for (i64 i = 0; i < 2; i++) /* each use alone is a first one, with an order of its own */
            for (i64 u = 0; u < both[i]->use_count; u++) {
                const pt_use *use = &both[i]->uses[u];
                i64 end = both[i]->uses[both[i]->use_count - 1].to, ends[3], n = 0;
                if (use->from > 0)
                    ends[n++] = use->from;
                ends[n++] = use->to;
                if (use->to < end)
                    ends[n++] = end;
                pt_partition y;
                assert_true(pt_cut_at(f->a, p, false, ends, n, &y));
                for (i64 j = 0; j < y.part_count; j++) {
                    const pt_part *of = &both[i]->parts[use->part], *to = &y.parts[j];
                    if (strcmp(of->digest, to->digest) != 0)
                        continue;
                    const ir_program *form = pt_form_for(f->a, of->program, of, to);
                    assert_string_equal(text_of(f, form), text_of(f, to->program));
                    moved += form != of->program;
                }
            }
    }
    assert_true(moved > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_programs),
        TEST(named_programs),
        TEST(equal_layers),
        TEST(narrow_places),
        TEST(growing_values),
        TEST(cheapest_parts),
        TEST(other_places),
        TEST(other_orders),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
