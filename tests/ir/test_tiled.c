/* Tiled forms: written programs whose tiled outputs must have the value of the untiled one, for
 * many tile counts and associations; their text, canonical form and types; and that what is wrong
 * is refused.
 *
 * tiled/NAME.eqf: output `Y` is the program, `Y.some-form` a tiled form of it. A precondition "K
 * has 3 tiles" fixes a tile count. */
#include <dirent.h>
#include <math.h>

#include "ir/check.h"

static tensor *random_inputs(fixture *f, const ir_program *p, rng *r)
{
    tensor *inputs = NEW_N(f->a, tensor, p->inputs.n);
    for (i64 k = 0; k < p->inputs.n; k++) {
        const ir_port *port = &p->inputs.at[k];
        i64 *shape = NEW_N(f->a, i64, port->rank);
        for (i64 i = 0; i < port->rank; i++)
            shape[i] = port->dims[i].extent;
        tensor *t = &inputs[k];
        *t = (tensor){.type = dtype_is_float(port->dtype) ? DT_f64 : port->dtype,
                      .rank = port->rank,
                      .shape = shape};
        t->data = arena_alloc(f->a, tensor_bytes(f->ctx, t));
        for (i64 i = 0; i < tensor_count(f->ctx, t->rank, shape); i++)
            if (dtype_is_float(t->type))
                tensor_set_f64(t, i, 4 * rng_f64(r) - 2);
            else
                tensor_set_i64(t, i, (i64)rng_below(r, 9) - 4);
    }
    return inputs;
}

/* The output that another one, `Y.form`, must equal; -1: it is none. */
static i64 reference_of(const ir_program *p, i64 k)
{
    const char *name = intern_text(p->names, p->outputs.at[k].name), *dot = strchr(name, '.');
    if (!dot)
        return -1;
    for (i64 i = 0; i < p->outputs.n; i++) {
        const char *other = intern_text(p->names, p->outputs.at[i].name);
        if ((i64)strlen(other) == dot - name && strncmp(other, name, strlen(other)) == 0)
            return i;
    }
    fail_msg("no output for %s", name);
    return -1;
}

static bool is_close(f64 x, f64 y)
{
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= 1e-9 * MAX(fabs(x), fabs(y)) + 1e-11;
}

static void expect_equal(fixture *f, const ir_program *p, const tensor *outputs, const i64 *tiles,
                         u64 association)
{
    for (i64 k = 0; k < p->outputs.n; k++) {
        i64 want = reference_of(p, k);
        if (want < 0)
            continue;
        i64 n = tensor_count(f->ctx, outputs[k].rank, outputs[k].shape);
        assert_int_equal(n, tensor_count(f->ctx, outputs[want].rank, outputs[want].shape));
        for (i64 i = 0; i < n; i++) {
            f64 x = tensor_get_f64(&outputs[k], i), y = tensor_get_f64(&outputs[want], i);
            if (is_close(x, y))
                continue;
            str s = str_new(f->a);
            for (u32 d = 1; d < (u32)p->atoms.n; d++)
                str_printf(&s, " %s %lld", ir_atom_name(p, (ir_atom){d}), (long long)tiles[d]);
            fail_msg("%s: %s, element %lld: %.17g, wanted %.17g; tiles%s, association %llu",
                     p->file, intern_text(p->names, p->outputs.at[k].name), (long long)i, x, y,
                     str_text(&s), (unsigned long long)association);
        }
    }
}

/* Tile counts of all axes; a precondition may fix one. */
static i64 *random_tiles(fixture *f, const ir_program *p, rng *r)
{
    i64 *tiles = NEW_N(f->a, i64, p->atoms.n);
    for (u32 d = 0; d < (u32)p->atoms.n; d++) {
        i64 n = ir_extent(p, (ir_atom){d}), choices[] = {1, 2, 3, n - 1, n, n + 2};
        tiles[d] = MAX(choices[rng_below(r, 6)], 1);
    }
    for (i64 i = 0; i < p->preconditions.n; i++) {
        char name[32];
        int count;
        if (sscanf(intern_text(p->names, p->preconditions.at[i]), "%31s has %d tiles", name,
                   &count) == 2)
            tiles[ir_atom_find(p, intern_find(p->names, name, (i64)strlen(name))).i] = count;
    }
    return tiles;
}

static const char *const files[] = {
    "rmsnorm-gemm", "swiglu", "layernorm-gemm", "attention", "attention-split", "lora",
    "mla",          "masks",  "row-softmax",    "moments",   "nested",
};

static ir_program *read_file(fixture *f, const char *name)
{
    i64 n;
    const char *path = arena_printf(f->a, "%s/ir/tiled/%s.eqf", EQF_TEST_DIR, name);
    char *text = file_read(f->a, path, 1 << 20, &n);
    return ir_read(f->a, name, text, n);
}

static void evaluate(fixture *f, const ir_program *p, const tensor *inputs, const i64 *tiles,
                     u64 association)
{
    tensor *outputs = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, inputs, f->a, outputs,
            (ir_eval_options){.tiles = tiles, .association = association});
    expect_equal(f, p, outputs, tiles, association);
}

typedef struct file_case {
    const char *name;
    bool *seen; /* operators that were live */
} file_case;

static void check_file(fixture *f, const void *arg)
{
    const file_case *c = arg;
    ir_program *p = read_file(f, c->name);
    ir_verify(p, "reading");
    for (u64 seed = 1; seed <= 25; seed++) {
        rng r = rng_new(seed);
        tensor *inputs = random_inputs(f, p, &r);
        evaluate(f, p, inputs, random_tiles(f, p, &r), seed % 2 ? 0 : seed);
    }
    i64 *one = NEW_N(f->a, i64, p->atoms.n);
    for (i64 d = 0; d < p->atoms.n; d++)
        one[d] = 1;
    rng r = rng_new(7);
    if (p->preconditions.n == 0)
        evaluate(f, p, random_inputs(f, p, &r), one, 0);
    ir_count count = ir_count_program(p);
    for (int op = 0; op < IR_OP_COUNT; op++)
        c->seen[op] = c->seen[op] || count.op_count[op] > 0;
}

static void test_files(void **state)
{
    fixture *f = *state;
    bool seen[IR_OP_COUNT] = {0};
    for (i64 i = 0; i < COUNT_OF(files); i++)
        run_fine_apart(f, check_file, &(file_case){files[i], seen});
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if (ir_row(op)->class_ == IR_TILED && !seen[op])
            fail_msg("no live %s in any file", ir_row(op)->name);
}

/* Every file is listed. */
static void test_all_listed(void **state)
{
    (void)state;
    DIR *folder = opendir(EQF_TEST_DIR "/ir/tiled");
    assert_non_null(folder);
    i64 n = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        n += strstr(entry->d_name, ".eqf") != NULL;
    closedir(folder);
    assert_int_equal(n, COUNT_OF(files));
}

static void check_text(fixture *f, const void *name)
{
    ir_program *p = read_file(f, name);
    const char *once = text_of(f, p);
    ir_program *q = ir_read(f->a, "again", once, (i64)strlen(once));
    ir_verify(q, "reading again");
    assert_string_equal(text_of(f, q), once);
    ir_program *c = ir_canonical(f->a, p);
    ir_verify(c, "canonical form");
    const char *text = text_of(f, c);
    assert_string_equal(text_of(f, ir_canonical(f->a, c)), text);
    assert_string_equal(text_of(f, ir_canonical(f->a, q)), text);
    rng r =
        rng_new(3); /* the canonical form means the same: tiles by name of the first axis do not */
    tensor *inputs = random_inputs(f, c, &r);
    evaluate(f, c, inputs, random_tiles(f, c, &r), 5);
}

static void test_text(void **state)
{
    for (i64 i = 0; i < COUNT_OF(files); i++)
        if (strcmp(files[i], "lora") != 0) /* its tile count names an atom */
            run_fine_apart(*state, check_text, files[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_files), TEST(test_all_listed), TEST(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
