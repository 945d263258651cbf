/* Types of tiled forms: every rule broken once, states as printed, constructors' normal forms,
 * lambdas made of programs, live sets of masks, and what the verifier and the interpreter refuse.
 */
#include "ir/check.h"

#define HEAD                                                                                       \
    "(program p (dims (M 6) (N 3) (K 5) (J 6) (C 4) (B 2) (K.o 2) (K.i 3))"                        \
    " (split K (K.o K.i)) (input X f32 (M K)) (input W f32 (K N)) (input U f32 (M))"               \
    " (input L bool (M)) (input I i64 (K))"                                                        \
    " (let Xt (view X :par {M K})) (let Xk (view X :par K)) (let Wt (view W :par {K N}))"          \
    " (let P (reduce + Xt :axis K)) (let G (reduce + Xk :axis K))"                                 \
    " (let c (comp + P)) (let g (comp max (reduce max Xk :axis K)))"                               \
    " (let Xs (splitdim X :axis K :to (K.o K.i)))"                                                 \
    " (let f0 (formal 0 f32 M)) (let f1 (formal 1 f32 M)) (let f2 (formal 2 f32 M))"               \
    " (let h (lambda (f0 f1 f2) (mul f0 (sub f1 f2))))"                                            \
    " (let x3 (formal 2 f32 {M K})) (let n1 (formal 1 f32 {}))"                                    \
    " (let upd (lambda (f0 n1 x3) (add f0 (reduce + x3 :axis K))))"                                \
    " (let fx (formal 1 f32 {M K})) (let fin (lambda (f0 fx) f0))"                                 \
    " (let zero (lambda () (const f32 0))) (let R (reducer zero upd fin :lanes 1))\n"              \
    "(output Y "

/* Wrong terms in place of ..., and what must be said of them. */
static const char *const wrongs[][2] = {
    {"Xt", "the term still has the axis of M; comb joins tiles"},
    {"P", "the term still has the axis of M"},
    {"(loop c :par K)", "a loop is not a value"},
    {"f0", "it contains a formal parameter outside of its lambda"},
    {"(run g :par K)", "it contains a run outside of its loop"},
    {"(view Xt :par M)", "view: the operand has the axis of M already"},
    {"(view f0 :par M)", "view: a formal parameter outside of its lambda"},
    {"(view (loop c :par K) :par M)", "view: operand 1 is no value"},
    {"(comb X :par M)", "comb: wants a partition over M, the operand is replicate"},
    {"(comb P :par K)", "comb: wants a partition over K, the operand is partial"},
    {"(collection Xt :par K :to C)",
     "collection: wants a partial over K, the operand is partition"},
    {"(collection P :par {M K} :to C)", "collection: wants one axis and one atom"},
    {"(collection P :par K :to M)", "collection: M is already an atom or axis of the operand"},
    {"(reduce + Xt :par K)", "reduce: wants a partial over K, the operand is partition"},
    {"(reduce + X :par K)", "reduce: wants a partial over K, the operand is replicate"},
    {"(reduce + Xt :axis K :par M)", "reduce: wants either :axis or :par"},
    {"(reduce or P :par K)", "reduce: reducer or wants bools, not f32"},
    {"(add Xt X)", "add: tiles do not align: operand 2 has M whole, operand 1 cut"},
    {"(add Xk Xt)", "add: tiles do not align: operand 1 has M whole, operand 2 cut"},
    {"(add P Xt)", "add: operand 1 is partial over K, operand 2 has it"},
    {"(add (view X :par M) P)", "add: operand 2 is partial over K, operand 1 has it"},
    {"(matmul Xt Wt :axis K)", "matmul: wants operands without axes"},
    {"(tile-matmul Xk W :axis K)", "tile-matmul: tiles do not align: operand 2 has K whole"},
    {"(tile-matmul Xt Wt :axis J)", "tile-matmul: J is not an atom of an operand"},
    {"(tile-matmul Xt (view I :par K) :axis K)", "tile-matmul: operands of f32 and i64"},
    {"(rename Xt :axis M :to J)", "rename: wants operands without axes"},
    {"(slice Xt :axis K :start 0)", "slice: K is cut by its axis, and is wanted whole"},
    {"(expand P :to K)", "expand: K is cut by its axis"},
    {"(gather Xt (const i64 0) :axis M)", "gather: M is cut by its axis"},
    {"(scan Xs :axis K.i :reducer +)", "scan: K.i is a part of a split with dead lanes"},
    {"(rename Xs :axis K.i :to N)", "rename: K.i is a part of a split with dead lanes"},
    {"(splitdim X :axis M :to (K.o K.i))", "splitdim: K.o and K.i are not declared as the parts"},
    {"(splitdim X :axis K :to (K.i K.o))", "splitdim: K.i and K.o are not declared as the parts"},
    {"(splitdim X :axis K :to (M N))", "splitdim: M and N are not declared as the parts of K"},
    {"(splitdim U :axis K :to (K.o K.i))", "splitdim: K is not an atom of the operand"},
    {"(splitdim Xk :axis K :to (K.o K.i))", "splitdim: wants an operand without axes"},
    {"(splitdim (expand X :to K.o) :axis K :to (K.o K.i))", "splitdim: K.o is already an atom"},
    {"(exp c)", "exp: operand 1 is a component, not a value"},
    {"(exp (tuple X U))", "exp: operand 1 is a tuple, not a value"},
    {"(exp h)", "exp: operand 1 is a lambda, not a value"},
    {"(exp R)", "exp: operand 1 is a reducer, not a value"},
    {"(comp or P)", "comp: reducer or wants bools, not f32"},
    {"(comp + P h)", "comp: a transport without producers"},
    {"(comp + P c c)", "comp: operand 2 is no lambda"},
    {"(comp + P h X)", "comp: operand 3 is no component"},
    {"(comp + P h g g)", "comp: operand 4 is the same producer again"},
    {"(comp + P upd c)", "comp: formal 1 of the transport has another type than its producer"},
    {"(comp + P zero c)", "comp: the transport has 0 formals and 1 results, wants 3 and 1"},
    {"(comp + (reduce + Xt :axis M) h c)", "comp: formal 0 and the result of the transport want"},
    {"(comp X)", "comp: operand 1 is no reducer"},
    {"(comp + P :result 0)", "comp: :result is for reducer terms"},
    {"(comp R X)", "comp: :result wants one of the 1 results"},
    {"(comp R X :result 1)", "comp: :result wants one of the 1 results"},
    {"(comp R X X :result 0)", "comp: 2 leaves, the reducer has 1"},
    {"(comp R U :result 0)", "comp: leaf 1 has another type than formal 2 of update"},
    {"(loop X :par K)", "loop: operand 1 is no component"},
    {"(loop c)", "loop: :par is empty"},
    {"(loop c :par M)", "loop: wants a partial over M, the operand is partition"},
    {"(loop (comp + U) :par K)", "loop: wants a partial over K, the operand is replicate"},
    {"(loop (comp + P h c) :par K)", "loop: a producer of a component is not in the loop"},
    {"(loop g (comp + (reduce + (sub Xk (run g :par K)) :axis K)) :par K)",
     "loop: a body uses a running result without a transport for it"},
    {"(loop g (comp R (sub Xk (run g :par K)) :result 0) :par K)",
     "loop: a body uses a running result without a transport for it"},
    {"(loop c :par K :visit ((0 K)))", "loop: a visit list that depends on its own axis"},
    {"(loop c :par K :visit ((0 (* 9223372036854775807 M))))",
     "loop: a bound of the visit list does not fit 64 bits"},
    {"(reduce + (tile-matmul Xk (expand (run g :par K) :to N) :axis M) :par K)",
     "reduce: wants a partial over K, the operand is partition"},
    {"(reduce + (reduce + (mul Xk (run g :par K)) :axis K) :par K)",
     "reduce: a run over K below it"},
    {"(comb (sub Xk (run g :par K)) :par K)", "comb: a run over K below it"},
    {"(run X :par K)", "run: operand 1 is no component"},
    {"(run c)", "run: :par is empty"},
    {"(run c :par M)", "run: wants a partial over M, the operand is partition"},
    {"(get X X)", "get: operand 1 is neither a loop nor a tuple"},
    {"(get (loop c :par K) g)", "get: operand 2 is not in it"},
    {"(get (tuple X U) I)", "get: operand 2 is not in it"},
    {"(tuple X c)", "tuple: operand 2 is no value"},
    {"(formal -1 f32 {})", "formal: wants a number"},
    {"(lambda (X) U)", "lambda: operand 1 is not formal 0"},
    {"(lambda (f1) f1)", "lambda: operand 1 is not formal 0"},
    {"(lambda (f0))", "lambda: wants a result"},
    {"(lambda (f0) h)", "lambda: operand 2 is no value"},
    {"(lambda (f0) (add f0 f1))", "lambda: formal 1 of its body is none of its own"},
    {"(lambda (f0) (add f0 (formal 0 f32 N)))", "lambda: formal 0 of its body is none of its own"},
    {"(lambda (f0) (add f0 U))", "lambda: an input in its body"},
    {"(lambda (f0) (comb (view (const f32 0) :par M) :par M))", "comb: wants a partition over M"},
    {"(lambda (f0) (comb (view (cast f32 (iota M)) :par M) :par M))", "lambda: comb in its body"},
    {"(reducer zero upd)", "reducer: wants identity, update, final and perhaps merge"},
    {"(reducer zero upd X)", "reducer: operand 3 is no lambda"},
    {"(reducer zero upd fin :lanes 2)", "reducer: :lanes wants 0 or 1"},
    {"(reducer upd upd fin)", "reducer: identity has formals"},
    {"(reducer zero zero fin)", "reducer: update has 0 formals, the state 1 slots"},
    {"(reducer (lambda () (const f16 0)) upd fin)", "reducer: identity: result 0 wants the dtype"},
    {"(reducer zero (lambda (f0) (neg f0) f0) fin)",
     "reducer: update has 2 results, the state has"},
    {"(reducer zero (lambda (f0) (reduce + f0 :axis M)) fin)",
     "reducer: update: result 0 has another type than the state"},
    {"(reducer zero (lambda (f0 f1) f0) fin :lanes 1)",
     "reducer: update: the number of lanes is a float without dims"},
    {"(reducer zero upd zero :lanes 1)", "reducer: final has 0 formals, wants 2"},
    {"(reducer zero upd (lambda (f0 f1) f0) :lanes 1)",
     "reducer: final: formal 1 has another type than in update"},
    {"(reducer zero upd fin fin :lanes 1)", "reducer: merge has 2 formals, wants 3"},
    {"(reducer zero upd fin (lambda (f0 f1 f2) f0) :lanes 1)",
     "reducer: merge: formal 2 has another type than in update"},
    {"(loop (comp (reducer zero upd (lambda (f0 fx) (add f0 (reduce + fx :axis K))) :lanes 1) "
     "(view X :par K) :result 0) :par K)",
     "loop: final or merge uses leaf 1, which varies with the tile"},
};

static void read_with_term(fixture *f, const void *term)
{
    read_text(f, arena_printf(f->a, "%s%s))", HEAD, (const char *)term));
}

static void test_wrong(void **state)
{
    for (i64 i = 0; i < COUNT_OF(wrongs); i++)
        run_wrong(*state, read_with_term, wrongs[i][0], EQF_E_TYPE, "2:", wrongs[i][1]);
}

/* The reader's own rules. */
static const char *const misspelt[][2] = {
    {"(view X :axis M)", "view has no argument :axis"},
    {"(comb Xt :par (M K))", "a set of dims stands in {}"},
    {"(loop c :par K :visit ())", "expected ranges"},
    {"(loop c :par K :visit (0 1))", "expected (LOW HIGH)"},
    {"(loop c :par K :visit ((0 (- 1))))", "expected an integer, a dim or (* INTEGER NAME)"},
    {"(loop c :par K :visit ((0 (+ M M))))", "M stands twice in a bound"},
    {"(loop c :par K :ints (0))", "loop has no argument :ints"},
    {"(formal x f32 {})", "expected an integer"},
    {"(formal 0 f32)", "expected the dims"},
    {"(lambda f0 f0)", "expected the formals in ()"},
    {"(comp frob P)", "neither an input nor a let above"},
};

static void test_misspelt(void **state)
{
    for (i64 i = 0; i < COUNT_OF(misspelt); i++) {
        fixture *f = *state;
        eqf_status status = attempt(f, read_with_term, misspelt[i][0]);
        assert_true(status == EQF_E_PARSE || status == EQF_E_TYPE);
        if (!strstr(last_diag(f).message, misspelt[i][1]))
            fail_msg("\"%s\", wanted \"%s\"", last_diag(f).message, misspelt[i][1]);
        eqf_ctx_clear(f->ctx);
    }
}

static const struct {
    const char *text, *message;
} splits[] = {
    {"(split K (A A))", "wants three atoms"},
    {"(split K (A B)) (split K (A D))", "an atom is a part of one dim only"},
    {"(split D (A B))", "the parts are declared after the whole"},
    {"(split K (A D))", "the parts have fewer positions than the whole"},
    {"(split K A)", "expected (split WHOLE (OUTER INNER))"},
};

static void read_split(fixture *f, const void *text)
{
    read_text(
        f, arena_printf(f->a, "(program p (dims (K 7) (A 3) (B 3) (D 2)) %s)", (const char *)text));
}

static void test_splits(void **state)
{
    for (i64 i = 0; i < COUNT_OF(splits); i++)
        run_wrong(*state, read_split, splits[i].text,
                  strstr(splits[i].message, "expected") ? EQF_E_PARSE : EQF_E_TYPE,
                  "1:", splits[i].message);
}

/* Terms and their types as printed, for the axes M, K and N. */
static const char *const types[][2] = {
    {"X", "f32 {M K}, M replicate, N replicate, K replicate"},
    {"Xt", "f32 {M K}, M partition, N replicate, K partition"},
    {"P", "f32 M, M partition, N replicate, K partial"},
    {"(tile-matmul Xt Wt :axis K)", "f32 {M N}, M partition, N partition, K partial"},
    {"(reduce + P :par K)", "f32 M, M partition, N replicate, K replicate"},
    {"(collection P :par K :to C)", "f32 {M C}, M partition, N replicate, K replicate"},
    {"(comb Xt :par K)", "f32 {M K}, M partition, N replicate, K replicate"},
    {"(get (loop c :par K) c)", "f32 M, M partition, N replicate, K replicate"},
    {"(run c :par K)", "f32 M, M partition, N replicate, K replicate"},
    {"(get (tuple Xt U) Xt)", "f32 {M K}, M partition, N replicate, K partition"},
    {"c", "f32 M, M partition, N replicate, K partial"},
    {"(loop c :par K)", "loop"},
    {"Xs", "f32 {M K.o K.i}, M replicate, N replicate, K replicate"},
    /* normal forms */
    {"(view X :par {M N})", "f32 {M K}, M partition, N replicate, K replicate"},
};

static void check_type(fixture *f, const void *arg)
{
    const char *const *row = arg;
    ir_program *p = read_text(f, arena_printf(f->a, "%sU) (let t %s))", HEAD, row[0]));
    ir_program *head = read_text(f, arena_printf(f->a, "%sU))", HEAD));
    ir_verify(p, "reading");
    str s = str_new(f->a);
    bool found = false; /* the last term, or one of the head's */
    bool is_new = p->nodes.n > head->nodes.n;
    u32 from = is_new ? (u32)p->nodes.n - 1 : 1;
    for (u32 k = from; k < (u32)p->nodes.n && !found; k++) {
        s.n = 0;
        ir_print_type(&s, p, (ir_term){k}, ir_all_axes(p));
        found = strcmp(str_text(&s), row[1]) == 0;
    }
    if (!found)
        fail_msg("%s: %s, wanted %s", row[0], str_text(&s), row[1]);
}

static void test_types(void **state)
{
    for (i64 i = 0; i < COUNT_OF(types); i++)
        run_fine_apart(*state, check_type, types[i]);
}

/* ---- normal forms -----------------------------------------------------------------------------
 */

static void check_normal_forms(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (M 6) (N 3) (K 7) (A 3) (B 3)) (split K (A B))"
                                 "(input X f32 (M K)))");
    ir_atom m = {1}, n = {2}, k = {3}, a = {4}, b = {5}, both[] = {{1}, {3}};
    ir_term x = p->inputs.at[0].term;
    assert_int_equal(ir_view(p, x, (ir_atoms){&n, 1}).i, x.i);
    assert_int_equal(ir_view(p, x, (ir_atoms){0}).i, x.i);
    assert_int_equal(ir_comb(p, x, (ir_atoms){0}).i, x.i);
    ir_term xm = ir_view(p, x, (ir_atoms){&m, 1}), xk = ir_view(p, x, (ir_atoms){&k, 1});
    ir_term xmk = ir_view(p, x, (ir_atoms){both, 2});
    assert_int_equal(ir_view(p, xm, (ir_atoms){&k, 1}).i, xmk.i);
    assert_int_equal(ir_view(p, xk, (ir_atoms){&m, 1}).i, xmk.i);
    assert_int_equal(ir_state_of(p, xmk, k), IR_PARTITION);
    assert_int_equal(ir_state_of(p, xm, k), IR_REPLICATE);
    ir_term part = ir_reduce(p, IR_SUM, xmk, (ir_atoms){&k, 1});
    assert_int_equal(ir_state_of(p, part, k), IR_PARTIAL);
    assert_int_equal(ir_axes_in(p, part, IR_PARTIAL).n, 1);
    assert_int_equal(ir_axes_in(p, part, IR_PARTITION).at[0].i, m.i);
    /* components are a set */
    ir_term c = ir_comp(p, IR_SUM, part), d = ir_comp(p, IR_MAX, part);
    ir_term l = ir_loop(p, (ir_atoms){&k, 1}, (ir_term[]){d, c, d}, 3, NULL);
    assert_int_equal(l.i, ir_loop(p, (ir_atoms){&k, 1}, (ir_term[]){c, d}, 2, NULL).i);
    assert_int_equal(ir_get(p, l)->arg_count, 2);
    /* equal lambdas are one */
    ir_term f0 = ir_formal(p, 0, DT_f32, (ir_atoms){&m, 1}), neg = ir_1(p, IR_neg, f0), out;
    ir_term lambda = ir_lambda(p, &f0, 1, &neg, 1);
    assert_int_equal(lambda.i, ir_lambda(p, &f0, 1, &neg, 1).i);
    ir_term sum = ir_reduce(p, IR_SUM, x, (ir_atoms){&k, 1});
    ir_apply(p, lambda, &sum, 1, &out);
    assert_int_equal(out.i, ir_1(p, IR_neg, sum).i);
    /* a sum over parts that the operand lacks counts live positions */
    ir_term one = ir_f(p, DT_f32, 1),
            s = ir_reduce(p, IR_SUM, one, (ir_atoms){(ir_atom[]){a, b}, 2});
    assert_int_equal(ir_get(p, s)->op, IR_reduce);
    assert_int_equal(ir_splitdim(p, one, a, b).i, one.i);
    assert_true(ir_is_ragged(p, a) && !ir_is_ragged(p, k));
    ir_add_output(p, (ir_port){.name = intern_cstr(p->names, "count"), .term = s});
    tensor result;
    p->source = (ir_source){0};
    ir_eval(p, NULL, f->a, &result, (ir_eval_options){0});
    assert_true(tensor_get_f64(&result, 0) == 7);
}

static void test_normal_forms(void **state)
{
    run_fine(*state, check_normal_forms, NULL);
}

/* A program as a lambda: formals by port, dims by name, an output repeated along its dims. */
static void check_lambda_of(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (Z 9) (M 4) (K 3)) (input X f32 (M K)))");
    ir_program *b =
        read_text(f, "(program b (dims (M 4) (K 3)) (input x f32 (K M)) (input s f32 (M))"
                     "(output a (add s (reduce + x :axis K)))"
                     "(output b (const f32 2) (M)))");
    ir_atom m = {2}, mk[] = {{2}, {3}};
    ir_term formals[] = {ir_formal(p, 0, DT_f32, (ir_atoms){&m, 1}),
                         ir_formal(p, 1, DT_f32, (ir_atoms){mk, 2})};
    ir_term lambda = ir_lambda_of(p, b, formals, 2, (i64[]){1, 0});
    str s = str_new(f->a);
    ir_print_term(&s, p, lambda);
    assert_string_equal(str_text(&s),
                        "(lambda ((formal 0 f32 M) (formal 1 f32 {M K})) (add (formal 0 f32 M) "
                        "(reduce + (formal 1 f32 {M K}) :axis K)) (expand (const f32 2.0) :to M))");
    assert_int_equal(ir_result_count(p, lambda), 2);
    ir_verify(p, "lambda");
}

static void other_extent(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (M 4)))");
    ir_program *b = read_text(f, "(program b (dims (M 5)) (output a (iota M)))");
    ir_lambda_of(p, b, NULL, 0, NULL);
}

static void test_lambda_of(void **state)
{
    run_fine(*state, check_lambda_of, NULL);
    run_wrong(*state, other_extent, NULL, EQF_E_TYPE, "",
              "lambda: the program has no dim M of extent 5");
}

/* A result that only a leaf without M reaches, whose state has the dim M that another leaf cuts: it
 * is cut along M as the state is. */
static void check_cut_state(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(
        f, "(program p (dims (M 5) (K 7)) (input V f32 (K)) (input X f32 (M K))"
           "(let s (formal 0 f32 M)) (let v (formal 1 f32 K)) (let x (formal 2 f32 {M K}))"
           "(let u (lambda (s v x) (add s (expand (reduce + v :axis K) :to M))))"
           "(let R (reducer (lambda () (const f32 0)) u (lambda (s v x) s)))"
           "(let c (comp R (view V :par K) (view X :par {M K}) :result 0))"
           "(output Y (comb (get (loop c :par K) c) :par M)))");
    ir_verify(p, "reading");
    f32 v[7] = {1, 2, 3, 4, 5, 6, 7}, x[35] = {0};
    tensor inputs[] = {{.type = DT_f32, .rank = 1, .shape = (i64[]){7}, .data = v},
                       {.type = DT_f32, .rank = 2, .shape = (i64[]){5, 7}, .data = x}};
    tensor output;
    i64 tiles[] = {1, 2, 3};
    ir_eval(p, inputs, f->a, &output, (ir_eval_options){.tiles = tiles});
    for (i64 i = 0; i < 5; i++)
        assert_true(tensor_get_f64(&output, i) == 28);
}

static void test_cut_state(void **state)
{
    run_fine(*state, check_cut_state, NULL);
}

static void check_constants(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p =
        read_text(f, "(program p (dims (M 4)) (input X f32 (M)) (parameter W f32 (M) :constant 1)"
                     "(parameter V f32 (M)) (constant C f32 (M)) (let a (add W (mul C 2)))"
                     "(let b (add a X)) (let d (exp V)))");
    bool *is_constant = ir_constant_terms(f->a, p, false);
    static const bool want[] = {false, true, false, true, true, true, true, false, false};
    assert_int_equal(p->nodes.n, 1 + COUNT_OF(want));
    for (i64 k = 0; k < COUNT_OF(want); k++)
        assert_int_equal(is_constant[k + 1], want[k]);
}

static void test_constants(void **state)
{
    run_fine(*state, check_constants, NULL);
}

/* ---- live sets --------------------------------------------------------------------------------
 */

/* Masks over Q and T, their live sets along T as a visit list, exact or not. */
static const struct {
    const char *mask, *ranges;
    bool is_exact;
} lives[] = {
    {"(le t q)", "(0 (+ 1 Q))", true},
    {"(lt t q)", "(0 Q)", true},
    {"(not (le t q))", "((+ 1 Q) 12)", true},
    {"(le (abs (sub q t)) 2)", "((+ -2 Q) (+ 3 Q))", true},
    {"(not (lt 2 (abs (sub q t))))", "((+ -2 Q) (+ 3 Q))", true},
    {"(lt 2 (abs (sub t q)))", "((+ 3 Q) 12) (0 (+ -2 Q))", true},
    {"(and (le (abs (sub q t)) 2) (le t q))", "((+ -2 Q) (+ 1 Q))", true},
    {"(or (lt t 4) (lt 9 t))", "(0 4) (10 12)", true},
    {"(or (lt t 2) (and (lt (sub q t) 3) (le t q)))", "(0 2) ((+ -2 Q) (+ 1 Q))", true},
    {"(eq t q)", "(Q (+ 1 Q))", true},
    {"(ne t 3)", "(0 3) (4 12)", true},
    {"(lt (mul 3 t) 10)", "(0 4)", true},
    {"(lt 10 (mul 3 t))", "(4 12)", true},
    {"(le (mul 2 t) (mul 4 q))", "(0 (+ 1 (* 2 Q)))", true},
    {"(le (mul 2 t) (mul 3 q))", "(0 12)", false},
    {"(lt (add t 3) (add (neg q) 9))", "(0 (+ 6 (* -1 Q)))", true},
    {"(le (cast i32 t) (cast i32 q))", "(0 (+ 1 Q))", true},
    {"(le (cast i8 (mul t 100)) (cast i8 q))", "(0 12)", false}, /* it wraps */
    {"(lt t 12)", "(0 12)", true},
    {"(lt t 0)", "", true},
    {"(and (lt t 2) (lt 5 t))", "", true},
    {"(lt q 3)", "(0 12)", false},
    {"(and (lt t 5) data)", "(0 5)", false},
    {"(or (lt t 5) data)", "(0 5) (0 12)", false},
    {"(not data)", "(0 12)", false},
    {"(and (lt t 8) (le t q))", "(0 8)", false}, /* neither bound is tighter everywhere */
    {"(and (lt t 20) (le t q))", "(0 (+ 1 Q))", true},
    {"(le (add (mul 4 (iota A)) (iota B)) q)", "(0 12)", false},
    {"(view (le t q) :par T)", "(0 (+ 1 Q))", true},
    {"(le (rename (iota U) :axis U :to T) q)", "(0 (+ 1 Q))", true},
    {"(le (slice (iota U) :axis U :start 11 :to T :step -1) q)", "((+ 11 (* -1 Q)) 12)", true},
};

static void add_bound(str *s, const ir_program *p, const ir_affine *x)
{
    i64 n = x->atoms.n, constant = x->constant;
    if (n == 0) {
        str_printf(s, "%lld", (long long)constant);
        return;
    }
    bool bare = n == 1 && constant == 0 && x->factors[0] == 1;
    if (!bare) {
        str_add(s, "(+");
        if (constant)
            str_printf(s, " %lld", (long long)constant);
        str_add(s, " ");
    }
    for (i64 i = 0; i < n; i++)
        if (x->factors[i] == 1)
            str_printf(s, "%s%s", i ? " " : "", ir_atom_name(p, x->atoms.at[i]));
        else
            str_printf(s, "%s(* %lld %s)", i ? " " : "", (long long)x->factors[i],
                       ir_atom_name(p, x->atoms.at[i]));
    str_add(s, bare ? "" : ")");
}

static i64 value_of(const ir_affine *x, i64 q)
{
    return x->constant + (x->atoms.n ? x->factors[0] * q : 0);
}

static void check_live(fixture *f, const void *arg)
{
    i64 k = *(const i64 *)arg;
    ir_program *p = read_text(
        f, arena_printf(f->a,
                        "(program p (dims (Q 9) (T 12) (U 12) (A 3) (B 4)) (input data bool (Q T))"
                        "(let t (iota T)) (let q (iota Q)) (let mask %s) (output Y mask))",
                        strstr(lives[k].mask, "view") ? "(le t q)" : lives[k].mask));
    ir_term mask = p->outputs.at[0].term;
    ir_atom along = {2};
    if (strstr(lives[k].mask, "view"))
        mask = ir_view(p, mask, (ir_atoms){&along, 1});
    ir_live_set set = ir_live(f->a, p, mask, along);
    str s = str_new(f->a);
    str_add(&s, "");
    for (i64 i = 0; i < set.n; i++) {
        str_add(&s, i ? " (" : "(");
        add_bound(&s, p, &set.at[i].low);
        str_add(&s, " ");
        add_bound(&s, p, &set.at[i].high);
        str_add(&s, ")");
    }
    if (strcmp(str_text(&s), lives[k].ranges) != 0 || set.is_exact != lives[k].is_exact)
        fail_msg("%s: %s%s, wanted %s", lives[k].mask, str_text(&s), set.is_exact ? "" : " inexact",
                 lives[k].ranges);
    if (strstr(lives[k].mask, "data") || strstr(lives[k].mask, "(iota A)"))
        return;
    /* against the mask's values */
    tensor y;
    ir_eval(p, NULL, f->a, &y, (ir_eval_options){0});
    bool has_q = ir_has(ir_get(p, mask)->dims, (ir_atom){1});
    bool has_t = ir_has(ir_get(p, mask)->dims, along);
    for (i64 q = 0; q < 9; q++)
        for (i64 t = 0; t < 12; t++) {
            bool inside = false;
            for (i64 i = 0; i < set.n; i++)
                inside = inside ||
                         (value_of(&set.at[i].low, q) <= t && t < value_of(&set.at[i].high, q));
            i64 at = has_q ? (has_t ? q * 12 + t : q) : (has_t ? t : 0);
            bool holds = tensor_get_i64(&y, at) != 0;
            if (set.is_exact ? holds != inside : holds && !inside)
                fail_msg("%s at %lld, %lld", lives[k].mask, (long long)q, (long long)t);
        }
}

static void test_live(void **state)
{
    for (i64 i = 0; i < COUNT_OF(lives); i++)
        run_fine_apart(*state, check_live, &i);
}

/* ---- verifier, interpreter, memory -------------------------------------------------------------
 */

static void partial_use(fixture *f, const void *term)
{
    ir_program *p = read_text(
        f, arena_printf(f->a, "%s(comb (reduce + %s :par K) :par M)))", HEAD, (const char *)term));
    ir_verify(p, "a rule");
}

static void test_partial(void **state)
{
    static const char *const fine[] = {"P",
                                       "(neg P)",
                                       "(mul 2 P)",
                                       "(div P 2)",
                                       "(add P P)",
                                       "(cast f32 P)",
                                       "(where (view L :par M) P 0)"};
    static const char *const bad[] = {"(exp P)", "(mul P P)", "(div 2 P)", "(square P)"};
    for (i64 i = 0; i < COUNT_OF(fine); i++)
        run_fine(*state, partial_use, fine[i]);
    for (i64 i = 0; i < COUNT_OF(bad); i++)
        run_wrong(*state, partial_use, bad[i], EQF_E_TYPE,
                  "2:", "of a value that is partial over K");
}

typedef void damage(ir_program *p);

static void wrong_axes(ir_program *p)
{
    for (i64 k = 1; k < p->nodes.n; k++)
        p->nodes.at[k].axes.n -= p->nodes.at[k].op == IR_view;
}

static void wrong_open(ir_program *p)
{
    p->nodes.at[1].is_open = true;
}

static void wrong_split(ir_program *p)
{
    p->splits.at[0].inner.i = p->splits.at[0].whole.i;
}

static void lost_split(ir_program *p)
{
    p->atoms.at[1].split = 1;
}

static void wrong_par(ir_program *p)
{
    for (i64 k = 1; k < p->nodes.n; k++)
        if (p->nodes.at[k].op == IR_view)
            ((ir_atom *)p->nodes.at[k].attr.par.at)[0].i = (u32)p->atoms.n;
}

static const struct {
    damage *run;
    const char *message;
} damages[] = {
    {wrong_axes, "the axes are not what the operands make"},
    {wrong_open, "runs and formals below it are not what the operands make"},
    {wrong_split, "a split that is none"},
    {lost_split, "an atom is a part of no split"},
    {wrong_par, ":par has something that is no atom of the program"},
};

static void verify_damaged(fixture *f, const void *arg)
{
    ir_program *p = read_text(f, HEAD "(comb (view X :par M) :par M)))");
    (*(damage *const *)arg)(p);
    ir_verify(p, "damage");
}

static void test_damage(void **state)
{
    for (i64 i = 0; i < COUNT_OF(damages); i++)
        run_wrong(*state, verify_damaged, &damages[i].run, EQF_E_INTERNAL, "", damages[i].message);
}

static void run_with_tiles(fixture *f, const void *arg)
{
    ir_program *p = read_text(f, "(program p (dims (K 5) (C 3)) "
                                 "(let x (view (iota K) :par K)) (let s (reduce + x :axis K))"
                                 "(output y (collection s :par K :to C)))");
    tensor y;
    ir_eval(p, NULL, f->a, &y, (ir_eval_options){.tiles = arg});
    assert_int_equal(tensor_get_i64(&y, 0), 1); /* 0 + 1, 2 + 3, 4 */
    assert_int_equal(tensor_get_i64(&y, 2), 4);
}

static void test_tile_counts(void **state)
{
    static const i64 three[] = {1, 3, 1}, two[] = {1, 2, 1}, none[] = {1, 0, 1};
    run_fine(*state, run_with_tiles, three);
    run_wrong(*state, run_with_tiles, two, EQF_E_ARGUMENT,
              "1:", "collection: the axis of K has 2 tiles, C has extent 3");
    run_wrong(*state, run_with_tiles, none, EQF_E_ARGUMENT, "K", "the axis of K with 0 tiles");
}

static void read_and_run(fixture *f, const void *text)
{
    ir_program *p = read_text(f, text), *c = ir_canonical(f->a, p);
    ir_verify(p, "reading");
    str s = str_new(f->a);
    ir_print(&s, c);
    i64 tiles[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    ir_eval(p, NULL, f->a, NEW_N(f->a, tensor, p->outputs.n),
            (ir_eval_options){.tiles = tiles, .association = 3});
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] =
        "(program p (dims (M 3) (T 5) (A 2) (B 3)) (split T (A B))"
        "(let X (cast f32 (add (iota M) (iota T)))) (let Xt (view X :par {M T}))"
        "(let f (formal 0 f32 M)) (let g (formal 1 f32 M)) (let h (formal 2 f32 M))"
        "(let m (comp max (reduce max Xt :axis T)))"
        "(let l (comp + (reduce + (exp (sub Xt (run m :par T))) :axis T)"
        "  (lambda (f g h) (mul f (where (finite g) (exp (sub g h)) (const f32 0)))) m))"
        "(let x (formal 1 f32 {M T})) (let y (formal 2 f32 {M T}))"
        "(let R (reducer (lambda () (const f32 0)) (lambda (f x) (add f (reduce + x :axis T)))"
        "  (lambda (f x) f) (lambda (f g y) (add f g))))"
        "(let s (comp R Xt :result 0)) (let L (loop m l s :par T :visit ((0 (+ 9 M)))))"
        "(output Y (comb (add (get L s) (get L l)) :par M))"
        "(output Z (reduce + (splitdim X :axis T :to (A B)) :axis {A B})))";
    assert_true(run_without_memory(read_and_run, text) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_wrong),        TEST(test_misspelt),  TEST(test_splits),    TEST(test_types),
        TEST(test_normal_forms), TEST(test_lambda_of), TEST(test_constants), TEST(test_live),
        TEST(test_cut_state),    TEST(test_partial),   TEST(test_damage),    TEST(test_tile_counts),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
