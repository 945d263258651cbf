/* Parts of programs: put together again as they were they are the program, whatever it was and however
 * small the parts; equal layers are one part; no border has more than it needs. */
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

static pt_partition check_cut(arena *a, const ir_program *p, i64 most, const char *name)
{
    pt_partition x = pt_cut(a, p, &(pt_options){.most_reductions = most});
    const ir_program **same = NEW_N(a, const ir_program *, x.part_count);
    i64 uses = 0;
    for (i64 i = 0; i < x.part_count; i++) {
        ir_verify(x.parts[i].program, "cut");
        same[i] = x.parts[i].program;
        uses += x.parts[i].uses;
    }
    assert_int_equal(uses, x.use_count);
    ir_program *q = pt_join(a, p, &x, same);
    const char *want = canonical_text(a, p), *got = canonical_text(a, q);
    if (strcmp(want, got) != 0)
        fail_msg("%s in parts of %d:\n%s\nput together:\n%s", name, (int)most, want, got);
    return x;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_programs),
        TEST(named_programs),
        TEST(equal_layers),
        TEST(narrow_places),
        TEST(growing_values),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
