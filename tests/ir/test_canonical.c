/* The canonical form: equal text for programs built in another order, with other names and
 * exchanged commutative operands; the same meaning; unequal text for unequal programs. */
#include "ir/check.h"
#include "ir/generate.h"

/* The same program from atoms in a random order under new names, terms in a random topological
 * order among some that are dead, commutative operands exchanged at random. */
typedef struct shuffler {
    const ir_program *p;
    ir_program *q;
    arena *a;
    rng r;
    ir_atom *atoms;
    ir_term *terms;
} shuffler;

static ir_atoms shuffled_atoms(shuffler *s, ir_atoms list)
{
    ir_atom *at = NEW_N(s->a, ir_atom, list.n);
    for (i64 i = 0; i < list.n; i++)
        at[i] = s->atoms[list.at[i].i];
    return (ir_atoms){at, list.n};
}

static void swap_pair(ir_attr *attr, i64 i, i64 j, bool has_axis)
{
    ir_atom *axis = (ir_atom *)attr->axis.at, *to = (ir_atom *)attr->to.at, d = to[i];
    to[i] = to[j];
    to[j] = d;
    if (has_axis) {
        d = axis[i];
        axis[i] = axis[j];
        axis[j] = d;
    }
}

static void build_term(shuffler *s, u32 k)
{
    const ir_node *node = ir_get(s->p, (ir_term){k});
    ir_attr attr = node->attr;
    attr.axis = shuffled_atoms(s, attr.axis);
    attr.to = shuffled_atoms(s, attr.to);
    attr.name = intern_cstr(s->q->names, intern_text(s->p->names, attr.name));
    if (node->op == IR_rename && attr.to.n > 1) /* pairs in any order */
        swap_pair(&attr, 0, attr.to.n - 1, true);
    if (node->op == IR_expand && attr.to.n > 1)
        swap_pair(&attr, 0, attr.to.n - 1, false);
    ir_term *args = NEW_N(s->a, ir_term, node->arg_count);
    for (i64 i = 0; i < node->arg_count; i++)
        args[i] = s->terms[node->args[i].i];
    if ((ir_row(node->op)->flags & IR_COMM) && rng_below(&s->r, 2)) {
        ir_term t = args[0];
        args[0] = args[1];
        args[1] = t;
    }
    s->q->origin = intern_cstr(s->q->names, arena_printf(s->a, "node %u", k));
    s->terms[k] = ir_make(s->q, node->op, attr, args, node->arg_count);
    if (rng_below(&s->r, 4) == 0)
        ir_reduce(s->q, IR_MAX, s->terms[k], ir_get(s->q, s->terms[k])->dims); /* dead */
}

static ir_port shuffled_port(shuffler *s, ir_port port)
{
    ir_dim *dims = NEW_N(s->a, ir_dim, port.rank);
    for (i64 i = 0; i < port.rank; i++)
        dims[i] = (ir_dim){port.dims[i].extent, shuffled_atoms(s, port.dims[i].atoms)};
    port.dims = dims;
    port.name = intern_cstr(s->q->names, intern_text(s->p->names, port.name));
    port.key = intern_cstr(s->q->names, intern_text(s->p->names, port.key));
    port.term = s->terms[port.term.i];
    return port;
}

static ir_program *shuffled(arena *a, const ir_program *p, u64 seed)
{
    shuffler s = {.p = p, .a = a, .r = rng_new(seed)};
    s.q = ir_program_new(a, "shuffled", intern_text(p->names, p->name));
    s.atoms = NEW_N(a, ir_atom, p->atoms.n);
    s.terms = NEW_N(a, ir_term, p->nodes.n);
    for (i64 left = p->atoms.n - 1; left > 0; left--) { /* the nth one left */
        i64 n = (i64)rng_below(&s.r, (u64)left);
        for (u32 d = 1; d < (u32)p->atoms.n; d++)
            if (!s.atoms[d].i && n-- == 0) {
                s.atoms[d] = ir_atom_new(s.q, arena_printf(a, "x%llu", (unsigned long long)left),
                                         ir_extent(p, (ir_atom){d}));
                break;
            }
    }
    for (i64 i = 0; i < p->inputs.n; i++) {
        ir_port port = shuffled_port(&s, p->inputs.at[i]);
        i64 k = ir_add_input(s.q, port);
        s.terms[p->inputs.at[i].term.i] = s.q->inputs.at[k].term;
    }
    for (bool is_done = false; !is_done;) {
        is_done = true;
        for (u32 k = 1; k < (u32)p->nodes.n; k++) {
            const ir_node *node = ir_get(p, (ir_term){k});
            bool is_ready = !s.terms[k].i && node->op != IR_in;
            is_done = is_done && !is_ready;
            for (i64 i = 0; i < node->arg_count; i++)
                is_ready = is_ready && s.terms[node->args[i].i].i;
            if (is_ready && rng_below(&s.r, 3) == 0)
                build_term(&s, k);
        }
    }
    for (i64 i = 0; i < p->outputs.n; i++)
        ir_add_output(s.q, shuffled_port(&s, p->outputs.at[i]));
    return s.q;
}

static void check_shuffled(fixture *f, const void *arg)
{
    u64 seed = *(const u64 *)arg;
    ir_program *p = gen_program(f->a, seed, 40, true);
    ir_program *c = ir_canonical(f->a, p);
    ir_verify(c, "canonical");
    const char *text = text_of(f, c);
    assert_string_equal(text_of(f, ir_canonical(f->a, c)), text); /* idempotent */
    for (u64 i = 0; i < 3; i++) {
        ir_program *q = shuffled(f->a, p, 10 * seed + i);
        ir_verify(q, "shuffling");
        assert_string_equal(text_of(f, ir_canonical(f->a, q)), text);
    }
}

static void test_shuffled(void **state)
{
    for (u64 seed = 0; seed < 300; seed++)
        run_fine_apart(*state, check_shuffled, &seed);
}

/* Pairs that are one program (equal) or two. */
static const struct {
    bool equal;
    const char *a, *b;
} pairs[] = {
    /* Two renames of one input differ only by how they are used, two steps away. */
    {true,
     "(program p (dims (S 4) (K 4) (D 2) (U 4)) (input X f32 (S D))\n"
     "  (let a (rename X :axis S :to K)) (let b (rename X :axis S :to U))\n"
     "  (output Y (matmul (exp (matmul X a :axis D)) (tanh (matmul X b :axis D)) :axis {K U})))",
     "(program p (dims (U 4) (D 2) (S 4) (K 4)) (input X f32 (S D))\n"
     "  (let b (rename X :axis S :to U)) (let a (rename X :axis S :to K))\n"
     "  (output Y (matmul (exp (matmul X b :axis D)) (tanh (matmul X a :axis D)) :axis {K U})))"},
    /* Symmetric atoms: any of them may be first. */
    {true,
     "(program p (dims (S 4) (K 4) (U 4)) (input X f32 (S))\n"
     "  (output Y (reduce + (mul (rename X :axis S :to K) (rename X :axis S :to U)) :axis {K U})))",
     "(program p (dims (U 4) (S 4) (K 4)) (input X f32 (S))\n"
     "  (output Y (reduce + (mul (rename X :axis S :to U) (rename X :axis S :to K)) :axis {K "
     "U})))"},
    {true, "(program p (dims (M 4)) (input X f32 (M)) (output Y (add (exp X) (tanh X))))",
     "(program p (dims (N 4) (Q 9)) (input X f32 (N)) (let u (sin X))\n"
     "  (output Y (add (tanh X) (exp X))))"},
    {false, "(program p (dims (M 4)) (input X f32 (M)) (output Y (sub (exp X) (tanh X))))",
     "(program p (dims (M 4)) (input X f32 (M)) (output Y (sub (tanh X) (exp X))))"},
    {false, "(program p (dims (M 4) (N 4)) (input X f32 (M N)) (output Y (reduce + X :axis M)))",
     "(program p (dims (M 4) (N 4)) (input X f32 (M N)) (output Y (reduce + X :axis N)))"},
    {false, "(program p (dims (M 4) (N 4)) (input X f32 (M N)) (output Y X (M N)))",
     "(program p (dims (M 4) (N 4)) (input X f32 (M N)) (output Y X (N M)))"},
    {false, "(program p (dims (M 4)) (input X f32 (M)) (output Y (pow X 2)))",
     "(program p (dims (M 4)) (input X f32 (M)) (output Y (pow X 3)))"},
    {false, "(program p (dims (M 4)) (input X f32 (M) :symbols (s)) (output Y X))",
     "(program p (dims (M 4)) (input X f32 (M)) (output Y X))"},
};

static void check_pairs(fixture *f, const void *arg)
{
    (void)arg;
    for (i64 i = 0; i < COUNT_OF(pairs); i++) {
        const char *a = text_of(f, ir_canonical(f->a, read_text(f, pairs[i].a)));
        const char *b = text_of(f, ir_canonical(f->a, read_text(f, pairs[i].b)));
        if ((strcmp(a, b) == 0) != pairs[i].equal)
            fail_msg("%s texts:\n%s\n%s", pairs[i].equal ? "unequal" : "equal", a, b);
    }
}

static void test_pairs(void **state)
{
    run_fine(*state, check_pairs, NULL);
}

/* A chain of 100,000 terms needs neither a deep stack nor quadratic time. */
static void check_deep(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (M 4)) (input X f32 (M)))");
    ir_term x = p->inputs.at[0].term;
    vec_reserve(f->a, &p->nodes, 100002);
    for (int i = 0; i < 100000; i++)
        x = ir_1(p, i % 2 ? IR_exp : IR_neg, x);
    ir_dim dim = {4, ir_get(p, x)->dims};
    ir_add_output(p, (ir_port){.rank = 1, .dims = &dim, .term = x});
    ir_program *c = ir_canonical(f->a, p);
    assert_int_equal(c->nodes.n, p->nodes.n);
    assert_string_equal(text_of(f, ir_canonical(f->a, c)), text_of(f, c));
}

static void test_deep(void **state)
{
    run_fine(*state, check_deep, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_shuffled), TEST(test_pairs), TEST(test_deep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
