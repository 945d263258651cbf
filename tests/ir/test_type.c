/* Types: what every operator makes, every rule of the type system broken once, hash-consing, the
 * short forms, and the verifier on damaged programs. */
#include <math.h>

#include "ir/check.h"

#define HEAD                                                                                       \
    "(program p (dims (M 4) (N 3) (K 2) (J 4) (L 12) (T 5))\n"                                     \
    "(input X f32 (M N)) (input I i64 (K)) (input C bool (M)) (input H f16 (M K)) (input Z f32 "   \
    "(N J))\n(output Y "

/* Wrong terms in place of ..., and what must be said of them. */
static const char *const wrongs[][2] = {
    {"(add X I)", "add: operands of f32 and i64; cast one of them"},
    {"(add X)", "add: 1 operands, wants 2"},
    {"(add X X X)", "add: 3 operands, wants 2"},
    {"(exp I)", "exp: operand of i64, wants floats"},
    {"(div I I)", "div: operand of i64, wants floats"},
    {"(bitnot X)", "bitnot: operand of f32, wants integers"},
    {"(bitnot C)", "bitnot: operand of bool, wants integers"},
    {"(and X X)", "and: operand of f32, wants integers or bools"},
    {"(not I)", "not: operand of i64, wants bools"},
    {"(finite I)", "finite: operand of i64, wants floats"},
    {"(sub C C)", "sub: operand of bool, wants numbers"},
    {"(neg C)", "neg: operand of bool, wants numbers"},
    {"(where X X X)", "where: the condition is f32, not bool"},
    {"(where C X I)", "where: operands of f32 and i64"},
    {"(lt C I)", "lt: operands of bool and i64"},
    {"(iota (M N))", "iota: wants one atom"},
    {"(reduce + X :axis {})", "reduce: :axis is empty"},
    {"(reduce + X)", "reduce: :axis is empty"},
    {"(reduce + X :axis K)", "reduce: K is not an atom of the operand"},
    {"(reduce + X :axis {M M})", "reduce: :axis is not a sorted set"},
    {"(reduce or X :axis M)", "reduce: reducer or wants bools, not f32"},
    {"(matmul X H :axis M)", "matmul: operands of f32 and f16"},
    {"(matmul X Z :axis K)", "matmul: K is not an atom of an operand"},
    {"(matmul X X :axis {})", "share 2 dims"},
    {"(rename X :axis M :to (J K))", "rename: :axis has 1 atoms, :to has 2"},
    {"(rename X :axis M :to K)", "rename: M and K have different extents"},
    {"(rename X :axis J :to M)", "rename: J is not an atom of the operand"},
    {"(rename Z :axis N :to J)", "rename: J is already an atom of the operand"},
    {"(rename X :axis (M M) :to (J J))", "rename: :axis names M twice"},
    {"(rename X)", "rename: :to is empty"},
    {"(slice X :axis K :start 0)", "slice: K is not an atom of the operand"},
    {"(slice X :axis (M N) :start 0)", "slice: :axis wants one atom"},
    {"(slice X :axis M :start 0 :to K)", "slice: wants a start, and a step"},
    {"(slice X :axis M :start 0 :to K :step 0)", "slice: the step of K is 0"},
    {"(slice X :axis M :start 4)", "slice: reads outside of M, which has extent 4"},
    {"(slice X :axis M :start -1)", "slice: reads outside of M"},
    {"(slice X :axis M :start 1 :to K :step 3)", "slice: reads outside of M"},
    {"(slice X :axis M :start 1 :to K :step -2)", "slice: reads outside of M"},
    {"(slice X :axis M :start 1 :to L :step 9223372036854775807)", "slice: reads outside of M"},
    {"(slice X :axis M :start 0 :to (K K) :step (1 1))", "slice: :to names K twice"},
    {"(concat X X :axis N :to L)", "concat: :axis wants one atom (or -) an operand"},
    {"(concat X X :axis (N N))", "concat: :to wants one atom"},
    {"(concat X I :axis (N K) :to T)", "concat: operands of f32 and i64"},
    {"(concat X X :axis (N N) :to L)", "concat: the operands have 6 positions, L has 12"},
    {"(concat X X :axis (K N) :to T)", "concat: K is not an atom of its operand"},
    {"(concat X X :axis (N -) :to M)", "concat: M is already an atom of an operand"},
    {"(reshape X :axis M :to K)", "reshape: :axis and :to have different products"},
    {"(reshape X :to K)", "reshape: :axis is empty"},
    {"(reshape X :axis (M N))", "reshape: :to is empty"},
    {"(reshape X :axis M :to N)", "reshape: N is already an atom of the operand"},
    {"(expand X :to M)", "expand: M is already an atom of the operand"},
    {"(expand X)", "expand: :to is empty"},
    {"(gather X :axis M)", "gather: wants an index"},
    {"(gather X I :axis (M N))", "gather: :axis wants one atom an index"},
    {"(gather X X :axis M)", "gather: an index of f32; wants integers"},
    {"(gather X C :axis M)", "gather: an index of bool; wants integers"},
    {"(gather X I :axis K)", "gather: K is not an atom of the operand"},
    {"(gather X I I :axis (M M))", "gather: :axis names M twice"},
    {"(scatter X X :axis M)", "scatter: wants an index"},
    {"(scatter X I I :axis M)", "scatter: a value of i64 for a base of f32"},
    {"(scatter X I X :axis K)", "scatter: K is not an atom of the base"},
    {"(scatter X I X :axis M :reducer and)", "scatter: reducer and wants bools, not f32"},
    {"(argsort X :axis M)", "argsort: :ints wants (0), ascending, or (1), descending"},
    {"(argsort X :axis M :ints (2))", "argsort: :ints wants (0)"},
    {"(argsort X :axis N :to J :ints (0))", "argsort: J is longer than N"},
    {"(argsort X :axis N :to M :ints (0))", "argsort: M is already an atom of the operand"},
    {"(argsort X :axis N :to (M K) :ints (0))", "argsort: :to wants one atom at most"},
    {"(argsort X :axis K :ints (0))", "argsort: K is not an atom of the operand"},
    {"(scan X :axis M)", "scan: wants a reducer"},
    {"(scan X :axis K :reducer +)", "scan: K is not an atom of the operand"},
    {"(scan X :axis (M N) :reducer +)", "scan: :axis wants one atom"},
    {"(scan X :axis M :reducer and)", "scan: reducer and wants bools, not f32"},
    {"(opaque X :name f :dtype f32)", "opaque: :ints wants the number of the result"},
    {"(opaque X :name f :ints (0))", "opaque: wants a dtype"},
    {"(opaque :name f :dtype f32 :ints (0))", "opaque: 0 operands, wants at least 1"},
};

static void read_with_term(fixture *f, const void *term)
{
    read_text(f, arena_printf(f->a, "%s%s))", HEAD, (const char *)term));
}

static void test_wrong(void **state)
{
    for (i64 i = 0; i < COUNT_OF(wrongs); i++)
        run_wrong(*state, read_with_term, wrongs[i][0], EQF_E_TYPE, "3:11", wrongs[i][1]);
}

/* Terms, their dtypes and their atoms in the order of declaration. */
static const char *const types[][3] = {
    {"(add X Z)", "f32", "M N J"},
    {"(lt X 1)", "bool", "M N"},
    {"(finite H)", "bool", "M K"},
    {"(where C X 0)", "f32", "M N"},
    {"(cast i8 X)", "i8", "M N"},
    {"(and C C)", "bool", "M"},
    {"(xor I 3)", "i64", "K"},
    {"(iota L)", "i64", "L"},
    {"(const f64 1)", "f64", ""},
    {"(reduce max H :axis {K M})", "f16", ""},
    {"(reduce and C :axis M)", "bool", ""},
    {"(matmul X Z)", "f32", "M J"},
    {"(matmul X Z :axis M)", "f32", "N J"},
    {"(matmul X Z :axis {M N J})", "f32", ""},
    {"(rename X :axis (M N) :to (J N))", "f32", "N J"},
    {"(slice X :axis M :start 1)", "f32", "N"},
    {"(slice X :axis M :start 1 :to N :step 1)", "f32", "N"},    /* a diagonal */
    {"(slice X :axis M :start 3 :to M :step -1)", "f32", "M N"}, /* reversed */
    {"(slice X :axis M :start 0 :to (K) :step 2)", "f32", "N K"},
    {"(concat X (const f32 0) (reduce + X :axis N) :axis (N - -) :to T)", "f32", "M T"},
    {"(reshape X :axis (N M) :to L)", "f32", "L"},
    {"(expand H :to {L N})", "f16", "M N K L"},
    {"(gather X I :axis M)", "f32", "N K"},
    {"(gather X I I :axis (N M))", "f32", "K"},
    {"(scatter X I (expand Z :to K) :axis M)", "f32", "M N"},
    {"(argsort X :axis M :to K :ints (0))", "i64", "N K"},
    {"(argsort X :axis M :ints (1))", "i64", "N"},
    {"(scan X :axis M :reducer max)", "f32", "M N"},
    {"(opaque X I :name f :dtype i32 :to {L J} :ints (0))", "i32", "J L"},
};

static void check_types(fixture *f, const void *arg)
{
    (void)arg;
    for (i64 i = 0; i < COUNT_OF(types); i++) {
        ir_program *p = read_text(f, arena_printf(f->a, "%s%s))", HEAD, types[i][0]));
        const ir_node *node = ir_get(p, p->outputs.at[0].term);
        str s = str_new(f->a);
        for (i64 k = 0; k < node->dims.n; k++)
            str_printf(&s, "%s%s", k ? " " : "", ir_atom_name(p, node->dims.at[k]));
        if (strcmp(dtype_name(node->dtype), types[i][1]) != 0 ||
            strcmp(str_text(&s), types[i][2]) != 0)
            fail_msg("%s is %s {%s}", types[i][0], dtype_name(node->dtype), str_text(&s));
    }
}

static void test_types(void **state)
{
    run_fine(*state, check_types, NULL);
}

static ir_program *small(fixture *f)
{
    return read_text(f, "(program p (dims (M 4) (N 3) (K 4)) (input X f32 (M N)) (input B bool (M))"
                        "(input H f16 (M)) (input I i8 (M)))");
}

static ir_term input(const ir_program *p, i64 i)
{
    return p->inputs.at[i].term;
}

static void check_consing(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = small(f);
    ir_term x = input(p, 0);
    ir_atom m = {1}, n = {2}, k = {3};
    assert_int_equal(ir_1(p, IR_exp, x).i, ir_1(p, IR_exp, x).i);
    assert_int_not_equal(ir_1(p, IR_exp, x).i, ir_1(p, IR_sin, x).i);
    assert_int_not_equal(ir_f(p, DT_f32, 0.0).i, ir_f(p, DT_f32, -0.0).i);
    assert_int_not_equal(ir_f(p, DT_f32, 1.0).i, ir_f(p, DT_f16, 1.0).i);
    assert_int_equal(ir_f(p, DT_f32, (f64)NAN).i, ir_f(p, DT_f32, -(f64)NAN).i);
    /* Sets and pairs have one order. */
    ir_atoms mn = {(ir_atom[]){m, n}, 2}, nm = {(ir_atom[]){n, m}, 2};
    assert_int_equal(ir_reduce(p, IR_SUM, x, mn).i, ir_reduce(p, IR_SUM, x, nm).i);
    ir_atom d = ir_atom_new(p, NULL, 3);
    ir_atoms kd = {(ir_atom[]){k, d}, 2}, dk = {(ir_atom[]){d, k}, 2};
    assert_int_equal(ir_rename(p, x, mn, kd).i, ir_rename(p, x, nm, dk).i);
    ir_term square = ir_2(p, IR_mul, x, x);
    for (int i = 0; i < 1000; i++) /* across growth of the table */
        ir_f(p, DT_f64, i);
    assert_int_equal(ir_2(p, IR_mul, x, x).i, square.i);
    ir_verify(p, "consing");
}

static void test_consing(void **state)
{
    run_fine(*state, check_consing, NULL);
}

static const char *term_text(fixture *f, const ir_program *p, ir_term t)
{
    str s = str_new(f->a);
    ir_print_term(&s, p, t);
    return str_text(&s);
}

static void check_short_forms(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = small(f);
    ir_term x = input(p, 0), b = input(p, 1), h = input(p, 2), i8_ = input(p, 3);
    ir_atom m = {1}, n = {2}, k = {3};
    ir_atoms none = {0}, just_k = {&k, 1}, mk = {(ir_atom[]){m, k}, 2}, just_m = {&m, 1};
    assert_int_equal(ir_cast(p, DT_f32, x).i, x.i);
    assert_int_equal(ir_reduce(p, IR_SUM, x, none).i, x.i);
    assert_int_equal(ir_rename(p, x, just_k, just_k).i, x.i);
    assert_int_equal(ir_rename(p, x, just_m, just_m).i, x.i);
    assert_int_equal(ir_slice(p, x, m, 0, just_m, (i64[]){1}).i, x.i);
    assert_string_equal(term_text(f, p, ir_slice(p, x, m, 0, just_k, (i64[]){1})),
                        "(rename X :axis M :to K)");
    assert_string_equal(term_text(f, p, ir_slice(p, x, m, 2, none, NULL)),
                        "(slice X :axis M :start 2)");
    /* Reductions over what the operand lacks. */
    assert_string_equal(term_text(f, p, ir_reduce(p, IR_SUM, x, just_k)), "(mul X 4.0)");
    assert_string_equal(term_text(f, p, ir_reduce(p, IR_SUM, x, mk)),
                        "(mul (reduce + X :axis M) 4.0)");
    assert_string_equal(term_text(f, p, ir_reduce(p, IR_PROD, i8_, just_k)),
                        "(mul (mul I I) (mul I I))");
    assert_int_equal(ir_reduce(p, IR_MAX, x, just_k).i, x.i);
    assert_int_equal(ir_reduce(p, IR_SUM, b, just_k).i, b.i);
    assert_string_equal(term_text(f, p, ir_reduce(p, IR_SUM, h, just_k)),
                        "(cast f16 (mul (cast f32 H) 4.0))");
    ir_atom big = ir_atom_new(p, "big", 300);
    assert_string_equal(term_text(f, p, ir_reduce(p, IR_SUM, i8_, (ir_atoms){&big, 1})),
                        "(mul I 44)");
    /* Products. */
    assert_string_equal(term_text(f, p, ir_matmul(p, x, x, none)), "(mul X X)");
    assert_string_equal(term_text(f, p, ir_matmul(p, x, x, mk)), "(mul (matmul X X :axis M) 4.0)");
    assert_string_equal(term_text(f, p, ir_matmul(p, x, x, (ir_atoms){&n, 1})),
                        "(matmul X X :axis N)");
    /* Names of atoms are unique. */
    assert_string_equal(ir_atom_name(p, ir_atom_new(p, "M", 7)), "M_1");
    assert_string_equal(ir_atom_name(p, ir_atom_new(p, "M", 7)), "M_2");
    assert_string_equal(ir_atom_name(p, ir_atom_new(p, NULL, 7)), "d7");
    ir_verify(p, "short forms");
}

static void test_short_forms(void **state)
{
    run_fine(*state, check_short_forms, NULL);
}

/* ---- the verifier --------------------------------------------------------------------------- */

typedef void damage(ir_program *p, ir_node *last);

static void wrong_dtype(ir_program *p, ir_node *last)
{
    (void)p;
    last->dtype = DT_f64;
}

static void wrong_dims(ir_program *p, ir_node *last)
{
    (void)p;
    last->dims.n--;
}

static void wrong_operand(ir_program *p, ir_node *last)
{
    ((ir_term *)last->args)[0].i = (u32)p->nodes.n - 1; /* itself */
}

static void wrong_reducer(ir_program *p, ir_node *last)
{
    (void)p;
    last->attr.reducer = IR_REDUCER_COUNT;
}

static void wrong_atom(ir_program *p, ir_node *last)
{
    ((ir_atom *)last->attr.axis.at)[0].i = (u32)p->atoms.n;
}

static void wrong_extent(ir_program *p, ir_node *last)
{
    (void)last;
    p->atoms.at[1].extent = 1;
}

static void wrong_port(ir_program *p, ir_node *last)
{
    (void)last;
    p->outputs.at[0].rank = 0;
}

static void wrong_input(ir_program *p, ir_node *last)
{
    (void)last;
    p->inputs.at[0].term.i = 0;
}

static void wrong_twin(ir_program *p, ir_node *last)
{
    (void)p;
    last->attr.reducer = IR_SUM; /* now equal to the node before it */
}

static const struct {
    damage *run;
    const char *message;
} damages[] = {
    {wrong_dtype, "the dtype is not what the operands make"},
    {wrong_dims, "the dims are not what the operands make"},
    {wrong_operand, "an operand does not come before its user"},
    {wrong_reducer, "wants a reducer"},
    {wrong_atom, "no atom of the program"},
    {wrong_extent, "an atom with an extent below 2"},
    {wrong_port, "the term varies along N"},
    {wrong_input, "an input with elements and without a term"},
    {wrong_twin, "an equal node exists already"},
};

static void verify_damaged(fixture *f, const void *arg)
{
    ir_program *p = read_text(f, "(program p (dims (M 4) (N 3)) (input X f32 (M N))\n"
                                 "  (let a (reduce + X :axis M))\n"
                                 "  (output Y (reduce max X :axis M)))");
    (*(damage *const *)arg)(p, &p->nodes.at[p->nodes.n - 1]);
    ir_verify(p, "damage");
}

static void test_verify(void **state)
{
    for (i64 i = 0; i < COUNT_OF(damages); i++)
        run_wrong(*state, verify_damaged, &damages[i].run, EQF_E_INTERNAL, "", damages[i].message);
    run_wrong(*state, verify_damaged, &damages[0].run, EQF_E_INTERNAL, "3:13",
              "after damage: node 3 (reduce, from 3:13)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_wrong), TEST(test_types), TEST(test_consing),
                                       TEST(test_short_forms), TEST(test_verify)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
