/* The interpreter on small cases: pointwise values where PyTorch 2.13 has opinions (its CPU results
 * are written out here), rounding, casts, index operators by hand, boundaries, errors. */
#include <math.h>

#include "ir/check.h"

#define INF ((f64)INFINITY)
#define NOT ((f64)NAN)
#define V(...) (const f64[]){__VA_ARGS__}, COUNT_OF(((const f64[]){__VA_ARGS__}))

typedef struct numbers {
    const f64 *at;
    i64 n;
} numbers;

typedef struct eval_case {
    const char *text; /* a program; its first output is compared */
    numbers in[3];
    numbers want;
    bool round;
} eval_case;

static const tensor *make_inputs(fixture *f, const ir_program *p, const numbers *in)
{
    tensor *inputs = NEW_N(f->a, tensor, p->inputs.n);
    for (i64 k = 0; k < p->inputs.n; k++) {
        const ir_port *port = &p->inputs.at[k];
        i64 *shape = NEW_N(f->a, i64, port->rank);
        for (i64 i = 0; i < port->rank; i++)
            shape[i] = port->dims[i].extent;
        inputs[k] = (tensor){.type = port->dtype, .rank = port->rank, .shape = shape};
        i64 n = tensor_count(f->ctx, port->rank, shape);
        assert_int_equal(n, in[k].n);
        inputs[k].data = arena_alloc(f->a, tensor_bytes(f->ctx, &inputs[k]));
        for (i64 i = 0; i < n; i++)
            if (dtype_is_float(port->dtype))
                tensor_set_f64(&inputs[k], i, in[k].at[i]);
            else
                tensor_set_i64(&inputs[k], i, (i64)in[k].at[i]);
    }
    return inputs;
}

static bool is_same(f64 x, f64 y)
{
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (x == 0 && y == 0)
        return signbit(x) == signbit(y);
    return x == y || fabs(x - y) <= 1e-15 * fabs(y);
}

static void check_case(fixture *f, const void *arg)
{
    const eval_case *c = arg;
    ir_program *p = read_text(f, c->text);
    ir_verify(p, "reading");
    tensor *outputs = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, make_inputs(f, p, c->in), f->a, outputs, (ir_eval_options){.round = c->round});
    assert_int_equal(tensor_count(f->ctx, outputs[0].rank, outputs[0].shape), c->want.n);
    for (i64 i = 0; i < c->want.n; i++)
        if (!is_same(tensor_get_f64(&outputs[0], i), c->want.at[i]))
            fail_msg("element %lld is %.17g, wanted %.17g, of\n%s", (long long)i,
                     tensor_get_f64(&outputs[0], i), c->want.at[i], c->text);
}

static void check_cases(void **state, const eval_case *cases, i64 n)
{
    for (i64 i = 0; i < n; i++)
        run_fine(*state, check_case, &cases[i]);
}

/* ---- pointwise ------------------------------------------------------------------------------ */

static const f64 points[] = {-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, INF, -INF, NOT};

static const struct {
    const char *op;
    f64 want[10];
} unary[] = {
    {"round", {-2, -2, -0.0, -0.0, 0, 2, 2, INF, -INF, NOT}},
    {"floor", {-3, -2, -1, -0.0, 0, 1, 2, INF, -INF, NOT}},
    {"ceil", {-2, -1, -0.0, -0.0, 1, 2, 3, INF, -INF, NOT}},
    {"trunc", {-2, -1, -0.0, -0.0, 0, 1, 2, INF, -INF, NOT}},
    {"sign", {-1, -1, -1, 0, 1, 1, 1, 1, -1, 0}},
    {"abs", {2.5, 1.5, 0.5, 0, 0.5, 1.5, 2.5, INF, INF, NOT}},
    {"neg", {2.5, 1.5, 0.5, 0, -0.5, -1.5, -2.5, -INF, INF, NOT}},
    {"square", {6.25, 2.25, 0.25, 0, 0.25, 2.25, 6.25, INF, INF, NOT}},
    {"finite", {1, 1, 1, 1, 1, 1, 1, 0, 0, 0}},
    {"exp",
     {0.0820849986238988, 0.22313016014842982, 0.6065306597126334, 1, 1.6487212707001282,
      4.4816890703380645, 12.182493960703473, INF, 0, NOT}},
    {"exp2",
     {0.17677669529663687, 0.35355339059327379, 0.70710678118654757, 1, 1.4142135623730951,
      2.8284271247461903, 5.656854249492381, INF, 0, NOT}},
    {"expm1",
     {-0.9179150013761012, -0.7768698398515702, -0.3934693402873666, -0.0, 0.6487212707001282,
      3.481689070338065, 11.182493960703473, INF, -1, NOT}},
    {"log",
     {NOT, NOT, NOT, -INF, -0.6931471805599453, 0.4054651081081644, 0.9162907318741551, INF, NOT,
      NOT}},
    {"log2", {NOT, NOT, NOT, -INF, -1, 0.58496250072115618, 1.3219280948873624, INF, NOT, NOT}},
    {"log1p",
     {NOT, NOT, -0.6931471805599453, -0.0, 0.4054651081081644, 0.9162907318741551,
      1.252762968495368, INF, NOT, NOT}},
    {"sqrt",
     {NOT, NOT, NOT, -0.0, 0.7071067811865476, 1.224744871391589, 1.5811388300841898, INF, NOT,
      NOT}},
    {"rsqrt",
     {NOT, NOT, NOT, -INF, 1.414213562373095, 0.8164965809277261, 0.6324555320336759, 0, NOT, NOT}},
    {"recip", {-0.4, -0.6666666666666666, -2, -INF, 2, 0.6666666666666666, 0.4, 0, -0.0, NOT}},
    {"sigmoid",
     {0.07585818002124355, 0.18242552380635635, 0.3775406687981454, 0.5, 0.6224593312018546,
      0.8175744761936437, 0.9241418199787566, 1, 0, NOT}},
    {"tanh",
     {-0.9866142981514303, -0.9051482536448664, -0.46211715726000974, -0.0, 0.46211715726000974,
      0.9051482536448664, 0.9866142981514303, 1, -1, NOT}},
    {"erf",
     {-0.999593047982555, -0.9661051464753108, -0.5204998778130465, -0.0, 0.5204998778130465,
      0.9661051464753108, 0.999593047982555, 1, -1, NOT}},
    {"log10",
     {NOT, NOT, NOT, -INF, -0.3010299956639812, 0.17609125905568124, 0.3979400086720376, INF,
      NOT, NOT}},
    {"erfc",
     {1.999593047982555, 1.9661051464753108, 1.5204998778130465, 1, 0.4795001221869535,
      0.033894853524689274, 0.0004069520174449589, 0, 2, NOT}},
    {"sinh",
     {-6.0502044810397875, -2.1292794550948173, -0.5210953054937474, -0.0, 0.5210953054937474,
      2.1292794550948173, 6.0502044810397875, INF, -INF, NOT}},
    {"cosh",
     {6.132289479663686, 2.352409615243247, 1.1276259652063807, 1, 1.1276259652063807,
      2.352409615243247, 6.132289479663686, INF, INF, NOT}},
    {"asinh",
     {-1.6472311463710958, -1.1947632172871094, -0.48121182505960347, -0.0, 0.48121182505960347,
      1.1947632172871094, 1.6472311463710958, INF, -INF, NOT}},
    {"acosh",
     {NOT, NOT, NOT, NOT, NOT, 0.9624236501192069, 1.566799236972411, INF, NOT, NOT}},
    {"atanh",
     {NOT, NOT, -0.5493061443340548, -0.0, 0.5493061443340548, NOT, NOT, NOT, NOT, NOT}},
    {"tan",
     {0.7470222972386603, -14.101419947171719, -0.5463024898437905, -0.0, 0.5463024898437905,
      14.101419947171719, -0.7470222972386603, NOT, NOT, NOT}},
    {"asin",
     {NOT, NOT, -0.5235987755982989, -0.0, 0.5235987755982989, NOT, NOT, NOT, NOT, NOT}},
    {"acos",
     {NOT, NOT, 2.0943951023931957, 1.5707963267948966, 1.0471975511965979, NOT, NOT, NOT, NOT,
      NOT}},
    {"atan",
     {-1.1902899496825317, -0.982793723247329, -0.4636476090008061, -0.0, 0.4636476090008061,
      0.982793723247329, 1.1902899496825317, 1.5707963267948966, -1.5707963267948966, NOT}},
    {"sin",
     {-0.59847214410395655, -0.99749498660405445, -0.47942553860420301, -0.0, 0.47942553860420301,
      0.99749498660405445, 0.59847214410395655, NOT, NOT, NOT}},
    {"cos",
     {-0.80114361554693370, 0.070737201667702906, 0.87758256189037276, 1, 0.87758256189037276,
      0.070737201667702906, -0.80114361554693370, NOT, NOT, NOT}},
};

static void test_unary(void **state)
{
    fixture *f = *state;
    for (i64 i = 0; i < COUNT_OF(unary); i++) {
        const char *text = arena_printf(
            f->a, "(program p (dims (M 10)) (input X f64 (M)) (output Y (%s X)))", unary[i].op);
        run_fine(f, check_case, &(eval_case){text, {{points, 10}}, {unary[i].want, 10}, false});
    }
}

#define F_LEFT V(5.5, -5.5, 5.5, -5.5, 0, -0.0, 1, -1, INF, 3, -3, 1, NOT, 2)
#define F_RIGHT V(2, 2, -2, -2, 3, 3, 0, 0, 2, INF, INF, 0.1, 1, NOT)
#define F_CASE(op, ...)                                                                            \
    {                                                                                              \
        "(program p (dims (M 14)) (input X f64 (M)) (input Y f64 (M)) (output Z (" op " X Y)))",   \
            {{F_LEFT}, {F_RIGHT}}, {V(__VA_ARGS__)}, false                                         \
    }
#define I_LEFT V(7, -7, 7, -7, -0x1p63, 0, 1, -1, 2, -2)
#define I_RIGHT V(3, 3, -3, -3, 3, 5, -1, 2, 63, 64)
#define I_CASE(op, ...)                                                                            \
    {                                                                                              \
        "(program p (dims (M 10)) (input X i64 (M)) (input Y i64 (M)) (output Z (" op " X Y)))",   \
            {{I_LEFT}, {I_RIGHT}}, {V(__VA_ARGS__)}, false                                         \
    }

static void test_binary(void **state)
{
    const eval_case floats[] = {
        F_CASE("mod", 1.5, 0.5, -0.5, -1.5, 0, -0.0, NOT, NOT, NOT, 3, INF, 0.09999999999999995,
               NOT, NOT),
        F_CASE("fmod", 1.5, -1.5, 1.5, -1.5, 0, -0.0, NOT, NOT, NOT, 3, -3, 0.09999999999999995,
               NOT, NOT),
        F_CASE("floordiv", 2, -3, -3, 2, 0, -0.0, INF, -INF, NOT, 0, -1, 9, NOT, NOT),
        F_CASE("truncdiv", 2, -2, -2, 2, 0, -0.0, INF, -INF, INF, 0, -0.0, 10, NOT, NOT),
        F_CASE("pow", 30.25, 30.25, 0.03305785123966942, 0.03305785123966942, 0, -0.0, 1, 1, INF,
               INF, INF, 1, NOT, NOT),
        F_CASE("max", 5.5, 2, 5.5, -2, 3, 3, 1, 0, INF, INF, INF, 1, NOT, NOT),
        F_CASE("min", 2, -5.5, -2, -5.5, 0, -0.0, 0, -1, 2, 3, -3, 0.1, NOT, NOT),
        F_CASE("div", 2.75, -2.75, -2.75, 2.75, 0, -0.0, INF, -INF, INF, 0, -0.0, 10, NOT, NOT),
        F_CASE("eq", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        F_CASE("ne", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
        F_CASE("lt", 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0),
        F_CASE("le", 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0),
        F_CASE("atan2", 1.2220253232109897, -1.2220253232109897, 1.9195673303788037,
               -1.9195673303788037, 0, -0.0, 1.5707963267948966, -1.5707963267948966,
               1.5707963267948966, 0, -0.0, 1.4711276743037345, NOT, NOT),
        F_CASE("hypot", 5.852349955359813, 5.852349955359813, 5.852349955359813, 5.852349955359813,
               3, 3, 1, 1, INF, INF, INF, 1.004987562112089, NOT, NOT),
        F_CASE("copysign", 5.5, 5.5, -5.5, -5.5, 0, 0, 1, 1, INF, 3, 3, 1, NOT, 2),
        I_CASE("shl", 56, -56, 0, 0, 0, 0, 0, -4, 0, 0),
        I_CASE("shr", 0, -1, 0, -1, -1152921504606846976.0, 0, 0, -1, 0, -1),
        I_CASE("mod", 1, 2, -2, -1, 1, 0, 0, 1, 2, 62),
        I_CASE("fmod", 1, -1, 1, -1, -2, 0, 0, -1, 2, -2),
        I_CASE("floordiv", 2, -3, -3, 2, -3074457345618258603.0, 0, -1, -1, 0, -1),
        I_CASE("truncdiv", 2, -2, -2, 2, -3074457345618258602.0, 0, -1, 0, 0, 0),
        I_CASE("pow", 343, -343, 0, 0, 0, 0, 1, 1, -0x1p63, 0),
        I_CASE("xor", 4, -6, -6, 4, -9223372036854775805.0, 5, -2, -3, 61, -66),
    };
    check_cases(state, floats, COUNT_OF(floats));
}

#define IN(types, outputs) "(program p (dims (M 4) (N 3) (K 2)) " types " (output Z " outputs "))"

/* Narrow integers wrap after every operator; bools stay 0 or 1; casts are those of eager. */
static void test_integers(void **state)
{
    const eval_case cases[] = {
        {IN("(input X i8 (M))", "(add X X)"), {{V(127, -128, 100, -1)}}, {V(-2, 0, -56, -2)}, 0},
        {IN("(input X i8 (M))", "(mul X X)"), {{V(127, -128, 100, -1)}}, {V(1, 0, 16, 1)}, 0},
        {IN("(input X i8 (M))", "(neg X)"), {{V(127, -128, 100, -1)}}, {V(-127, -128, -100, 1)}, 0},
        {IN("(input X i8 (M))", "(abs X)"), {{V(127, -128, 100, -1)}}, {V(127, -128, 100, 1)}, 0},
        {IN("(input X i8 (M))", "(pow X 3)"), {{V(127, -128, 100, -1)}}, {V(127, 0, 64, -1)}, 0},
        {IN("(input X i8 (M))", "(bitnot X)"),
         {{V(127, -128, 100, -1)}},
         {V(-128, 127, -101, 0)},
         0},
        {IN("(input X i8 (M))", "(floordiv X -1)"),
         {{V(127, -128, 100, -1)}},
         {V(-127, -128, -100, 1)},
         0},
        {IN("(input X i32 (M))", "(add X 1)"),
         {{V(2147483647, -2147483648.0, 0, 1)}},
         {V(-2147483648.0, -2147483647, 1, 2)},
         0},
        {IN("(input X i8 (M))", "(reduce + X :axis M)"), {{V(127, 127, 127, 3)}}, {V(-128)}, 0},
        {IN("(input X i8 (M))", "(reduce max (min X -100) :axis M)"),
         {{V(127, -128, 100, -1)}},
         {V(-100)},
         0},
        {IN("(input X bool (M)) (input Y bool (M))", "(add X Y)"),
         {{V(0, 0, 1, 1)}, {V(0, 1, 0, 1)}},
         {V(0, 1, 1, 1)},
         0},
        {IN("(input X bool (M)) (input Y bool (M))", "(mul X Y)"),
         {{V(0, 0, 1, 1)}, {V(0, 1, 0, 1)}},
         {V(0, 0, 0, 1)},
         0},
        {IN("(input X bool (M))", "(not X)"), {{V(0, 1, 2, 0)}}, {V(1, 0, 0, 1)}, 0},
        {IN("(input X bool (M))", "(reduce + X :axis M)"), {{V(1, 1, 1, 1)}}, {V(1)}, 0},
        {IN("(input X bool (M))", "(reduce + (cast i64 X) :axis M)"), {{V(1, 0, 1, 1)}}, {V(3)}, 0},
        {IN("(input X bool (M))", "(reduce and X :axis M)"), {{V(1, 1, 1, 1)}}, {V(1)}, 0},
        {IN("(input X bool (M))", "(reduce or X :axis M)"), {{V(0, 0, 0, 0)}}, {V(0)}, 0},
        {IN("(input X f32 (M))", "(cast i64 X)"),
         {{V(1.9, -1.9, NOT, -INF)}},
         {V(1, -1, -0x1p63, -0x1p63)},
         0},
        {IN("(input X f64 (M))", "(cast i64 X)"),
         {{V(0x1p63, -0x1p63, 1e300, -3.5)}},
         {V(-0x1p63, -0x1p63, -0x1p63, -3)},
         0},
        {IN("(input X f64 (M))", "(cast i32 X)"),
         {{V(2147483648.0, -2147483648.5, 2147483647.5, NOT)}},
         {V(-2147483648.0, -2147483648.0, 2147483647, -2147483648.0)},
         0},
        {IN("(input X f64 (M))", "(cast i8 X)"),
         {{V(300.7, -129, 3e9, INF)}},
         {V(44, 127, 0, 0)},
         0},
        {IN("(input X f64 (M))", "(cast bool X)"), {{V(0, -0.0, 0.1, NOT)}}, {V(0, 0, 1, 1)}, 0},
        {IN("(input X i64 (M))", "(cast i8 X)"),
         {{V(300, -129, 128, 7)}},
         {V(44, 127, -128, 7)},
         0},
        {IN("(input X i64 (M))", "(cast bool X)"), {{V(0, 256, -1, 1)}}, {V(0, 1, 1, 1)}, 0},
        {IN("(input X bool (M))", "(cast f16 X)"), {{V(0, 1, 1, 0)}}, {V(0, 1, 1, 0)}, 1},
    };
    check_cases(state, cases, COUNT_OF(cases));
}

/* With `round`, what eager stores; without, what real arithmetic in f64 gives. */
static void test_rounding(void **state)
{
    const eval_case cases[] = {
        {IN("(input X f16 (M))", "(div X 3)"),
         {{V(1, 3, 65504, 1e-7)}},
         {V(0.333251953125, 1, 21840, 5.960464477539063e-08)},
         1},
        {IN("(input X f16 (M))", "(mul X X)"),
         {{V(1, 3, 65504, 0.1)}},
         {V(1, 9, INF, 0.0099945068359375)},
         1},
        {IN("(input X f16 (M))", "(exp X)"),
         {{V(1, 3, 65504, 0.1)}},
         {V(2.71875, 20.078125, INF, 1.10546875)},
         1},
        {IN("(input X f16 (M))", "(mul X X)"),
         {{V(1, 3, 65504, 2)}},
         {V(1, 9, 4290774016.0, 4)},
         0},
        {IN("(input X bf16 (M))", "(div X 3)"),
         {{V(1, 3, 3e38, 0.1)}},
         {V(0.333984375, 1, 1.0035671368176115e+38, 0.033447265625)},
         1},
        {IN("(input X bf16 (M))", "(add X X)"),
         {{V(1, 3, 3e38, 1e-40)}},
         {V(2, 6, INF, 1.8367099231598242e-40)},
         1},
        {IN("(input X f64 (M))", "(cast f16 X)"),
         {{V(0.1, 1e-8, 65519.9, 65520)}},
         {V(0.0999755859375, 0, 65504, INF)},
         1},
        {IN("(input X f64 (M))", "(cast f16 X)"),
         {{V(0.1, 1e-8, 65519.9, 65520)}},
         {V(0.1, 1e-8, 65519.9, 65520)},
         0},
        {IN("(input X f32 (M))", "(add X 16777216)"),
         {{V(1, 3, 5, -1)}},
         {V(16777216, 16777220, 16777220, 16777215)},
         1},
        {IN("(input X i64 (M))", "(cast f32 X)"),
         {{V(16777217, 33554435, 0x1p53, 3)}},
         {V(16777216, 33554436, 0x1p53, 3)},
         1},
        {IN("(input X bf16 (N M))", "(reduce + X :axis M)"),
         {{V(-2, -1.6328125, -1.2578125, -0.890625, -0.51953125, -0.150390625, 0.2197265625,
             0.58984375, 0.9609375, 1.328125, 1.703125, 2.0625)}},
         {V(-5.78125, 0.1396484375, 6.0625)},
         1},
        {IN("(input X bf16 (N M)) (input Y bf16 (M K))", "(matmul X Y) (N K)"),
         {{V(-2, -1.6328125, -1.2578125, -0.890625, -0.51953125, -0.150390625, 0.2197265625,
             0.58984375, 0.9609375, 1.328125, 1.703125, 2.0625)},
          {V(-3, -2.171875, -1.34375, -0.51171875, 0.3203125, 1.1484375, 1.9765625, 2.8125)}},
         {V(6.03125, 1.2265625, 3, 3.109375, -0.04541015625, 5)},
         1},
        /* Sums of halves are not rounded on the way. */
        {IN("(input X f16 (M))", "(reduce + X :axis M)"), {{V(2048, 1, 1, 1)}}, {V(2052)}, 1},
        {IN("", "(const bf16 0.1)"), {{0}}, {V(0.10009765625)}, 1},
        {IN("", "(const bf16 0.1)"), {{0}}, {V(0.1)}, 0},
    };
    check_cases(state, cases, COUNT_OF(cases));
}

/* ---- reductions, index operators ------------------------------------------------------------ */

#define GRID V(0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32) /* [M][N] */

static void test_structure(void **state)
{
    const eval_case cases[] = {
        {IN("(input X f32 (M N))", "X (N M)"),
         {{GRID}},
         {V(0, 10, 20, 30, 1, 11, 21, 31, 2, 12, 22, 32)},
         0},
        {IN("(input X f32 (M N))", "(reduce + X :axis M)"), {{GRID}}, {V(60, 64, 68)}, 0},
        {IN("(input X f32 (M N))", "(reduce * (slice X :axis M :start 1) :axis N)"),
         {{GRID}},
         {V(1320)},
         0},
        {IN("(input X f32 (M N))", "(reduce + X :axis {M N})"), {{GRID}}, {V(192)}, 0},
        {IN("(input X f32 (M))", "(reduce max X :axis M)"), {{V(1, NOT, 2, 3)}}, {V(NOT)}, 0},
        {IN("(input X f32 (M))", "(reduce min X :axis M)"), {{V(NOT, 1, 2, 3)}}, {V(NOT)}, 0},
        {IN("(input X f32 (M))", "(reduce max X :axis M)"),
         {{V(-INF, -INF, -INF, -INF)}},
         {V(-INF)},
         0},
        /* A contraction over atoms of both, one and the other operand. */
        {IN("(input X f32 (M N)) (input Y f32 (N K))", "(matmul X Y :axis {M N K})"),
         {{GRID}, {V(1, 2, 3, 4, 5, 6)}},
         {V(60 * 3 + 64 * 7 + 68 * 11)},
         0},
        {IN("(input X f32 (M N)) (input Y f32 (N K))", "(matmul X Y) (M K)"),
         {{GRID}, {V(1, 2, 3, 4, 5, 6)}},
         {V(13, 16, 103, 136, 193, 256, 283, 376)},
         0},
        {IN("(input X i8 (N)) (input Y i8 (N))", "(matmul X Y)"),
         {{V(100, 2, 3)}, {V(2, 3, 50)}},
         {V(100)},
         0}, /* 356 modulo 256 */
        {IN("(input X f32 (M N))", "(slice X :axis M :start 3 :to (K) :step -2) (K N)"),
         {{GRID}},
         {V(30, 31, 32, 10, 11, 12)},
         0},
        {IN("(input X f32 (M N))", "(slice X :axis M :start 1 :to N :step 1)"),
         {{GRID}},
         {V(10, 21, 32)},
         0},
        {IN("(input X f32 (M N))", "(slice X :axis M :start 3 :to M :step -1) (M N)"),
         {{GRID}},
         {V(30, 31, 32, 20, 21, 22, 10, 11, 12, 0, 1, 2)},
         0},
        {"(program p (dims (M 4) (N 3) (A 2) (B 2)) (input X f32 (M N))\n"
         "  (output Z (slice X :axis M :start 0 :to (A B) :step (1 2)) (A B N)))",
         {{GRID}},
         {V(0, 1, 2, 20, 21, 22, 10, 11, 12, 30, 31, 32)},
         0},
        {"(program p (dims (M 4) (N 3) (L 12)) (input X f32 (M N))\n"
         "  (output Z (reshape X :axis (N M) :to L)))",
         {{GRID}},
         {V(0, 10, 20, 30, 1, 11, 21, 31, 2, 12, 22, 32)},
         0},
        {"(program p (dims (M 4) (N 3) (A 2) (B 6)) (input X f32 (M N))\n"
         "  (output Z (reshape X :axis (M N) :to (B A)) (A B)))",
         {{GRID}},
         {V(0, 2, 11, 20, 22, 31, 1, 10, 12, 21, 30, 32)},
         0},
        {"(program p (dims (M 4) (N 3) (T 5)) (input X f32 (M N)) (input Y f32 (M))\n"
         "  (output Z (concat X Y (const f32 7) :axis (N - -) :to T) (M T)))",
         {{GRID}, {V(-1, -2, -3, -4)}},
         {V(0, 1, 2, -1, 7, 10, 11, 12, -2, 7, 20, 21, 22, -3, 7, 30, 31, 32, -4, 7)},
         0},
        {IN("(input X f32 (N))", "(expand X :to K) (N K)"),
         {{V(1, 2, 3)}},
         {V(1, 1, 2, 2, 3, 3)},
         0},
        {IN("(input X f32 (N))", "X (K N 1)"), {{V(1, 2, 3)}}, {V(1, 2, 3, 1, 2, 3)}, 0},
        {IN("(input X f32 (M N)) (input I i64 (K))", "(gather X I :axis M) (K N)"),
         {{GRID}, {V(3, 0)}},
         {V(30, 31, 32, 0, 1, 2)},
         0},
        {IN("(input X f32 (M N)) (input I i32 (N))", "(gather X I :axis M)"),
         {{GRID}, {V(3, 0, 2)}},
         {V(30, 1, 22)},
         0}, /* aligned along N */
        {IN("(input X f32 (M N)) (input I i64 (K)) (input J i64 (K))",
            "(gather X I J :axis (M N))"),
         {{GRID}, {V(3, 1)}, {V(0, 2)}},
         {V(30, 12)},
         0},
        {IN("(input X f32 (M)) (input I i64 (M))", "(gather X I :axis M)"),
         {{V(5, 6, 7, 8)}, {V(3, 3, 0, 1)}},
         {V(8, 8, 5, 6)},
         0},
        {IN("(input X f32 (M)) (input I i64 (K)) (input Y f32 (K))", "(scatter X I Y :axis M)"),
         {{V(1, 2, 3, 4)}, {V(2, 0)}, {V(8, 9)}},
         {V(9, 2, 8, 4)},
         0},
        {IN("(input X f32 (M)) (input I i64 (K)) (input Y f32 (K))", "(scatter X I Y :axis M)"),
         {{V(1, 2, 3, 4)}, {V(2, 2)}, {V(8, 9)}},
         {V(1, 2, 9, 4)},
         0}, /* the last wins */
        {IN("(input X f32 (M)) (input I i64 (K)) (input Y f32 (K))",
            "(scatter X I Y :axis M :reducer +)"),
         {{V(1, 2, 3, 4)}, {V(2, 2)}, {V(8, 9)}},
         {V(1, 2, 20, 4)},
         0},
        {IN("(input X f32 (M N)) (input I i64 (K))", "(scatter X I 5 :axis N :reducer max) (M N)"),
         {{GRID}, {V(0, 2)}},
         {V(5, 1, 5, 10, 11, 12, 20, 21, 22, 30, 31, 32)},
         0},
        {"(program p (dims (T 5)) (input X f32 (T)) (output Z (argsort X :axis T :to T :ints "
         "(1))))",
         {{V(1, NOT, -1, INF, 1)}},
         {V(1, 3, 0, 4, 2)},
         0},
        {"(program p (dims (T 5)) (input X f32 (T)) (output Z (argsort X :axis T :to T :ints "
         "(0))))",
         {{V(1, NOT, -1, INF, 1)}},
         {V(2, 0, 4, 3, 1)},
         0},
        {"(program p (dims (T 5) (K 2)) (input X i64 (T))\n"
         "  (output Z (argsort X :axis T :to K :ints (1))))",
         {{V(3, 9, 9, 1, 9)}},
         {V(1, 2)},
         0},
        {IN("(input X f32 (M N))", "(argsort X :axis M :ints (1))"), {{GRID}}, {V(3, 3, 3)}, 0},
        {IN("(input X f32 (M))", "(scan X :axis M :reducer +)"),
         {{V(1, 2, NOT, 4)}},
         {V(1, 3, NOT, NOT)},
         0},
        {IN("(input X f32 (M))", "(scan X :axis M :reducer max)"),
         {{V(1, 3, 2, 5)}},
         {V(1, 3, 3, 5)},
         0},
        {IN("(input X f32 (M N))", "(scan X :axis M :reducer +) (M N)"),
         {{GRID}},
         {V(0, 1, 2, 10, 12, 14, 30, 33, 36, 60, 64, 68)},
         0},
        {IN("", "(iota M)"), {{0}}, {V(0, 1, 2, 3)}, 0},
        {IN("(input X f32 ((K N)))", "X (N K)"), {{V(0, 1, 2, 3, 4, 5)}}, {V(0, 3, 1, 4, 2, 5)}, 0},
    };
    check_cases(state, cases, COUNT_OF(cases));
}

/* ---- boundaries and errors ------------------------------------------------------------------ */

static void check_output_types(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p =
        read_text(f, "(program p (dims (M 2)) (input X f16 (M)) (input E f32 (0 M))\n"
                     "(output A X) (output B (lt X 0)) (output C (iota M))\n"
                     "(output D (cast i8 X)) (output F - i8 (M 0)) (output G - f16 (0)))");
    u16 half[] = {0x3C00, 0xBC00};
    const i64 shape[] = {2}, empty[] = {0, 2};
    const tensor inputs[] = {{.type = DT_f16, .rank = 1, .shape = shape, .data = half},
                             {.type = DT_f32, .rank = 2, .shape = empty}};
    tensor out[6];
    ir_eval(p, inputs, f->a, out, (ir_eval_options){0});
    static const dtype types[] = {DT_f64, DT_bool, DT_i64, DT_i64, DT_i64, DT_f64};
    for (int i = 0; i < 6; i++)
        assert_int_equal(out[i].type, types[i]);
    assert_string_equal(out[1].name, "B");
    assert_int_equal(((const u8 *)out[1].data)[0], 0);
    assert_int_equal(((const u8 *)out[1].data)[1], 1);
    assert_int_equal(tensor_get_i64(&out[3], 1), -1);
    assert_int_equal(out[4].rank, 2);
    assert_int_equal(out[4].shape[1], 0);
    /* f64 data is fine for a float port, and rounded when that is asked for. */
    f64 wide[] = {0.1, 1.0 / 3};
    const tensor wide_inputs[] = {{.type = DT_f64, .rank = 1, .shape = shape, .data = wide},
                                  inputs[1]};
    ir_eval(p, wide_inputs, f->a, out, (ir_eval_options){0});
    assert_true(tensor_get_f64(&out[0], 0) == 0.1);
    ir_eval(p, wide_inputs, f->a, out, (ir_eval_options){.round = true});
    assert_true(tensor_get_f64(&out[0], 0) == 0.0999755859375);
}

static void test_output_types(void **state)
{
    run_fine(*state, check_output_types, NULL);
}

static void stored(void *user, eqf_ctx *ctx, i64 i, void *out)
{
    (void)ctx;
    f32 values[2] = {(f32)i, *(const f32 *)user};
    memcpy(out, values, sizeof values);
}

static void check_source(fixture *f, const void *arg)
{
    (void)arg;
    ir_program *p = read_text(f, "(program p (dims (M 2)) (input X f32 (1)) (parameter W f32 (M))\n"
                                 "(output Y (add X W)))");
    f32 x = 1, stored_value = 5;
    const i64 one[] = {1};
    const tensor inputs[] = {{.type = DT_f32, .rank = 1, .shape = one, .data = &x}, {0}};
    tensor out;
    p->source = (ir_source){.read = stored, .user = &stored_value};
    ir_eval(p, inputs, f->a, &out, (ir_eval_options){0});
    assert_true(tensor_get_f64(&out, 0) == 2 && tensor_get_f64(&out, 1) == 6);
}

static void test_source(void **state)
{
    run_fine(*state, check_source, NULL);
}

typedef struct wrong_case {
    const char *text;
    numbers in[3];
    eqf_status status;
    const char *place, *message;
} wrong_case;

static void evaluate_wrong(fixture *f, const void *arg)
{
    const wrong_case *c = arg;
    ir_program *p = read_text(f, c->text);
    tensor *outputs = NEW_N(f->a, tensor, p->outputs.n);
    ir_eval(p, make_inputs(f, p, c->in), f->a, outputs, (ir_eval_options){0});
}

static void test_wrong(void **state)
{
    const wrong_case cases[] = {
        {"(program p (dims (M 2)) (input X i64 (M))\n (output Z (exp (cast f32 (floordiv X X)))))",
         {{V(1, 0)}},
         EQF_E_DATA,
         "2:27",
         "floordiv: integer division by zero"},
        {"(program p (dims (M 2)) (input X i8 (M)) (output Z (mod X 0)))",
         {{V(1, 2)}},
         EQF_E_DATA,
         "1:52",
         "mod: integer division by zero"},
        {"(program p (dims (M 2)) (input X i64 (M)) (output Z (fmod X 0)))",
         {{V(1, 2)}},
         EQF_E_DATA,
         "1:53",
         "fmod: integer division by zero"},
        {"(program p (dims (M 2)) (input X i64 (M)) (output Z (truncdiv X 0)))",
         {{V(1, 2)}},
         EQF_E_DATA,
         "1:53",
         "truncdiv: integer division by zero"},
        {"(program p (dims (M 2) (N 3)) (input X i64 (N)) (input I i64 (M))\n"
         " (output Z (gather X I :axis N)))",
         {{V(1, 2, 3)}, {V(0, 3)}},
         EQF_E_DATA,
         "2:12",
         "gather: index 3 along N is outside of [0, 3)"},
        {"(program p (dims (M 2) (N 3)) (input X i64 (N)) (input I i64 (M))\n"
         " (output Z (scatter X I 0 :axis N)))",
         {{V(1, 2, 3)}, {V(-1, 0)}},
         EQF_E_DATA,
         "2:12",
         "scatter: index -1 along N is outside of [0, 3)"},
        {"(program p (input X f32 ()) (output Z (opaque X :name aten.foo :dtype f32 :ints (0))))",
         {{V(1)}},
         EQF_E_UNSUPPORTED,
         "1:39",
         "opaque: \"aten.foo\" has no meaning here"},
        {"(program p (dims (A 1000000000) (B 1000000000) (C 1000000000))\n"
         "  (output Z (expand (const f32 1) :to {A B C}) ((A B) C)))",
         {{0}},
         EQF_E_LIMIT,
         "2:13",
         "expand: more elements than memory can have"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        run_wrong(*state, evaluate_wrong, &cases[i], cases[i].status, cases[i].place,
                  cases[i].message);
}

typedef struct input_case {
    tensor input;
    bool cancel;
} input_case;

static void evaluate_input(fixture *f, const void *arg)
{
    const input_case *c = arg;
    ir_program *p = read_text(f, "(program p (dims (M 2)) (input X f32 (M 1)) (output Y X))");
    tensor out;
    ir_eval(p, &c->input, f->a, &out, (ir_eval_options){.cancel = &c->cancel});
}

static void test_wrong_inputs(void **state)
{
    f32 data[2] = {0};
    const i64 right[] = {2, 1}, flat[] = {2}, other[] = {1, 2};
    run_wrong(*state, evaluate_input, &(input_case){{"X", DT_f32, 1, flat, data}, false},
              EQF_E_ARGUMENT, "X", "input \"X\" has another shape than [2, 1]");
    run_wrong(*state, evaluate_input, &(input_case){{"X", DT_f32, 2, other, data}, false},
              EQF_E_ARGUMENT, "X", "another shape than [2, 1]");
    run_wrong(*state, evaluate_input, &(input_case){{"X", DT_i32, 2, right, data}, false},
              EQF_E_ARGUMENT, "X", "input \"X\" is i32, wants f32");
    run_wrong(*state, evaluate_input, &(input_case){{"X", DT_f32, 2, right, NULL}, false},
              EQF_E_DATA, "X", "no stored data");
    run_wrong(*state, evaluate_input, &(input_case){{"X", DT_f32, 2, right, data}, true},
              EQF_E_INTERRUPTED, "", "interrupted");
    run_fine(*state, evaluate_input, &(input_case){{"X", DT_f32, 2, right, data}, false});
}

/* Every allocation fails in turn. */
static void test_no_memory(void **state)
{
    (void)state;
    const eval_case c = {IN("(input X bf16 (M N)) (input I i64 (K))",
                            "(lt (scatter (scan (mul (matmul X X :axis M) (reduce max X :axis M)) "
                            ":axis N :reducer +) I 1 :axis N) 0)"),
                         {{GRID}, {V(0, 2)}},
                         {V(0, 0, 0)},
                         true};
    assert_true(run_without_memory(check_case, &c) > 10);
}

/* ---- matrix products with every kind of block ----------------------------------------------- */

typedef struct product_case {
    i64 b, m, n, k;
    bool transposed;
    pool *threads;
} product_case;

static void check_product(fixture *f, const void *arg)
{
    const product_case *c = arg;
    ir_program *p = ir_program_new(f->a, "product", "p");
    ir_atom b = c->b > 1 ? ir_atom_new(p, "B", c->b) : (ir_atom){0};
    ir_atom m = c->m > 1 ? ir_atom_new(p, "M", c->m) : (ir_atom){0};
    ir_atom k = ir_atom_new(p, "K", c->k);
    ir_atom n = c->n > 1 ? ir_atom_new(p, "N", c->n) : (ir_atom){0};
    const ir_dim bd = {c->b, {&b, b.i ? 1 : 0}}, md = {c->m, {&m, m.i ? 1 : 0}};
    const ir_dim kd = {c->k, {&k, 1}}, nd = {c->n, {&n, n.i ? 1 : 0}};
    ir_dim x_dims[] = {bd, md, kd}, y_dims[] = {bd, kd, nd}, z_dims[] = {bd, md, nd};
    if (c->transposed) {
        y_dims[1] = nd;
        y_dims[2] = kd;
    }
    ir_port x = {.name = intern_cstr(p->names, "X"), .dtype = DT_f64, .rank = 3, .dims = x_dims};
    ir_port y = {.name = intern_cstr(p->names, "Y"), .dtype = DT_f64, .rank = 3, .dims = y_dims};
    ir_add_input(p, x);
    ir_add_input(p, y);
    ir_term z = ir_matmul(p, p->inputs.at[0].term, p->inputs.at[1].term, (ir_atoms){&k, 1});
    ir_add_output(p, (ir_port){.rank = 3, .dims = z_dims, .term = z});

    i64 x_shape[] = {c->b, c->m, c->k}, y_shape[] = {c->b, y_dims[1].extent, y_dims[2].extent};
    f64 *xs = NEW_N(f->a, f64, c->b * c->m * c->k), *ys = NEW_N(f->a, f64, c->b * c->k * c->n);
    rng r = rng_new((u64)(c->m * 1000 + c->n));
    for (i64 i = 0; i < c->b * c->m * c->k; i++)
        xs[i] = (f64)rng_below(&r, 17) - 8; /* sums are exact */
    for (i64 i = 0; i < c->b * c->k * c->n; i++)
        ys[i] = (f64)rng_below(&r, 17) - 8;
    const tensor inputs[] = {{"X", DT_f64, 3, x_shape, xs}, {"Y", DT_f64, 3, y_shape, ys}};
    tensor out;
    ir_eval(p, inputs, f->a, &out, (ir_eval_options){.threads = c->threads});
    for (i64 ib = 0; ib < c->b; ib++)
        for (i64 im = 0; im < c->m; im++)
            for (i64 in = 0; in < c->n; in++) {
                f64 sum = 0;
                for (i64 ik = 0; ik < c->k; ik++)
                    sum += xs[(ib * c->m + im) * c->k + ik] *
                           ys[c->transposed ? (ib * c->n + in) * c->k + ik
                                            : (ib * c->k + ik) * c->n + in];
                if (tensor_get_f64(&out, (ib * c->m + im) * c->n + in) != sum)
                    fail_msg("%lld x %lld x %lld x %lld: wrong at %lld %lld %lld", (long long)c->b,
                             (long long)c->m, (long long)c->n, (long long)c->k, (long long)ib,
                             (long long)im, (long long)in);
            }
}

static void test_products(void **state)
{
    fixture *f = *state;
    static const i64 sizes[][4] = {
        {1, 1, 1, 2},    {1, 1, 300, 7},   {1, 300, 1, 7},   {3, 4, 8, 256}, {2, 5, 9, 257},
        {1, 131, 17, 3}, {1, 3, 263, 600}, {1, 130, 260, 2}, {40, 2, 3, 5},  {1, 8, 4, 513},
    };
    pool *threads = pool_new(f->ctx, 3);
    assert_non_null(threads);
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            const i64 *s = sizes[i];
            run_fine_apart(f, check_product,
                           &(product_case){s[0], s[1], s[2], s[3], transposed != 0,
                                           transposed ? threads : NULL});
        }
    pool_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_unary),        TEST(test_binary),       TEST(test_integers),  TEST(test_rounding),
        TEST(test_structure),    TEST(test_output_types), TEST(test_source),    TEST(test_wrong),
        TEST(test_wrong_inputs), TEST(test_products),     TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
