/* The rows of ops.def, tiled.def and reducers.def as data. */
#include <math.h>

#include "ir/type.h"

enum {
    COMM = IR_COMM,
    ASSOC = IR_ASSOC,
    UNIT0 = IR_UNIT0,
    UNIT1 = IR_UNIT1,
    MONOTONE = IR_MONOTONE,
    LINEAR = IR_LINEAR,
    IDEMPOTENT = IR_IDEMPOTENT
};

#define IS_SOME(text) (__builtin_strcmp(text, "NONE") != 0)

static const ir_op_row rows[IR_OP_COUNT] = {
    [IR_NO_OP] = {.name = "none", .doc = "no operator"},
#define OP(name, arity, class_, rule, fexpr, iexpr, flags, doc)                                    \
    [IR_##name] = {#name,           arity, IR_##class_, IR_##rule, IS_SOME(#fexpr),                \
                   IS_SOME(#iexpr), flags, #fexpr,      #iexpr,    doc},
#include "ir/ops.def"
#undef OP
#define TILED(name, text, arity, flags, doc)                                                       \
    [IR_##name] = {text, arity, IR_TILED, IR_OWN, false, false, flags, "NONE", "NONE", doc},
#include "ir/tiled.def"
#undef TILED
};

const ir_op_row *ir_row(ir_op op)
{
    return &rows[(unsigned)op < IR_OP_COUNT ? op : IR_NO_OP];
}

ir_op ir_op_find(const char *name)
{
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++)
        if (strcmp(rows[op].name, name) == 0)
            return op;
    return IR_NO_OP;
}

typedef struct reducer_row {
    const char *text;
    f64 identity_f64;
    i64 identity_i64;
} reducer_row;

static const reducer_row reducers[IR_REDUCER_COUNT] = {
    [IR_NO_REDUCER] = {"none", 0, 0},
#define REDUCER(name, text, f, i, idf, idi, doc) [IR_##name] = {text, (f64)(idf), idi},
#include "ir/reducers.def"
#undef REDUCER
};

const char *ir_reducer_text(ir_reducer r)
{
    return reducers[(unsigned)r < IR_REDUCER_COUNT ? r : IR_NO_REDUCER].text;
}

ir_reducer ir_reducer_find(const char *text)
{
    for (ir_reducer r = IR_NO_REDUCER + 1; r < IR_REDUCER_COUNT; r++)
        if (strcmp(reducers[r].text, text) == 0)
            return r;
    return IR_NO_REDUCER;
}

f64 ir_reducer_identity_f64(ir_reducer r)
{
    return reducers[r].identity_f64;
}

i64 ir_reducer_identity_i64(ir_reducer r, dtype t)
{
    i64 low = INT64_MIN, high = INT64_MAX;
    if (t == DT_bool) {
        low = 0;
        high = 1;
    } else if (t == DT_i8) {
        low = INT8_MIN;
        high = INT8_MAX;
    } else if (t == DT_i32) {
        low = INT32_MIN;
        high = INT32_MAX;
    }
    return MIN(MAX(reducers[r].identity_i64, low), high);
}

ir_kind ir_kind_of(ir_op op)
{
    switch (op) {
    case IR_comp:
        return IR_A_COMPONENT;
    case IR_loop:
        return IR_A_BUNDLE;
    case IR_tuple:
        return IR_A_TUPLE;
    case IR_lambda:
        return IR_A_LAMBDA;
    case IR_reducer:
        return IR_A_REDUCER;
    default:
        return IR_A_VALUE;
    }
}

u32 ir_attrs_of(ir_op op)
{
    switch (op) {
    case IR_in:
        return IR_HAS_NAME;
    case IR_const:
        return IR_HAS_DTYPE | IR_HAS_VALUE;
    case IR_cast:
        return IR_HAS_DTYPE;
    case IR_iota:
    case IR_matmul:
    case IR_tile_matmul:
    case IR_gather:
        return IR_HAS_AXIS;
    case IR_reduce:
        return IR_HAS_AXIS | IR_HAS_REDUCER | IR_HAS_PAR;
    case IR_scatter:
    case IR_scan:
        return IR_HAS_AXIS | IR_HAS_REDUCER;
    case IR_rename:
    case IR_concat:
    case IR_reshape:
    case IR_splitdim:
        return IR_HAS_AXIS | IR_HAS_TO;
    case IR_view:
    case IR_comb:
    case IR_run:
        return IR_HAS_PAR;
    case IR_collection:
        return IR_HAS_PAR | IR_HAS_TO;
    case IR_comp:
        return IR_HAS_REDUCER | IR_HAS_INTS;
    case IR_loop:
        return IR_HAS_PAR | IR_HAS_TO | IR_HAS_INTS;
    case IR_formal:
        return IR_HAS_DTYPE | IR_HAS_TO | IR_HAS_VALUE;
    case IR_lambda:
    case IR_reducer:
        return IR_HAS_INTS;
    case IR_expand:
        return IR_HAS_TO;
    case IR_slice:
    case IR_argsort:
        return IR_HAS_AXIS | IR_HAS_TO | IR_HAS_INTS;
    case IR_opaque:
        return IR_HAS_NAME | IR_HAS_DTYPE | IR_HAS_TO | IR_HAS_INTS;
    default: /* pointwise */
        return 0;
    }
}

bool ir_axis_is_set(ir_op op)
{
    return op == IR_reduce || op == IR_matmul || op == IR_tile_matmul;
}

bool ir_to_is_set(ir_op op)
{
    return op == IR_expand || op == IR_opaque || op == IR_formal;
}

bool ir_is_sibling(ir_op op, i64 i, i64 n)
{
    switch (op) {
    case IR_where:
        return i > 0;
    case IR_scatter:
        return i == 0 || i == n - 1;
    case IR_concat:
    case IR_matmul:
    case IR_tile_matmul:
        return true;
    default:
        return rows[op].class_ == IR_EWISE && rows[op].arity == 2;
    }
}
