/* Spelling of types, numbers and pointwise operators in C. One row an operator: its text on floats
 * and on integers, with $a $b $c for the operands and @ for the name of their dtype (the helpers of
 * c_helpers.def and the macros of the preamble end in it).
 *
 * A product is rounded as it is in every other kernel, also where the next operation adds to it: of two
 * kernels that compute the same value, one contracts and the other cannot, and what one subtracts from
 * the other's is then a rounding error where it should be nothing. Hence `+ none_@`, a -0 that the
 * compiler does not know to be one: exact, and no instruction more where there are fused ones. */
#include <math.h>
#include <stdio.h>

#include "codegen/c_parts.h"

typedef struct spelling {
    const char *on_float, *on_int;
} spelling;

/* clang-format off */
static const spelling SPELL[IR_OP_COUNT] = {
    [IR_add]      = {"$a + $b",              "add_@($a, $b)"},
    [IR_sub]      = {"$a - $b",              "sub_@($a, $b)"},
    [IR_mul]      = {"$a * $b + none_@",     "mul_@($a, $b)"},
    [IR_div]      = {"$a / $b",              NULL},
    [IR_max]      = {"max_@($a, $b)",        "$a > $b ? $a : $b"},
    [IR_min]      = {"min_@($a, $b)",        "$a < $b ? $a : $b"},
    [IR_pow]      = {"pow_@($a, $b)",        "(@)pow_i64($a, $b)"},
    [IR_floordiv] = {"floordiv_@($a, $b)",   "(@)floordiv_i64($a, $b)"},
    [IR_truncdiv] = {"LIBM_@(trunc)($a / $b)", "(@)truncdiv_i64($a, $b)"},
    [IR_mod]      = {"mod_@($a, $b)",        "(@)mod_i64($a, $b)"},
    [IR_fmod]     = {"LIBM_@(fmod)($a, $b)", "(@)fmod_i64($a, $b)"},
    [IR_atan2]    = {"atan2_@($a, $b)", NULL},
    [IR_hypot]    = {"LIBM_@(hypot)($a, $b)", NULL},
    [IR_copysign] = {"LIBM_@(copysign)($a, $b)", NULL},
    [IR_shl]      = {NULL,                   "(@)shl_i64($a, $b)"},
    [IR_shr]      = {NULL,                   "(@)shr_i64($a, $b)"},
    [IR_lt]       = {"$a < $b",              "$a < $b"},
    [IR_le]       = {"$a <= $b",             "$a <= $b"},
    [IR_eq]       = {"$a == $b",             "$a == $b"},
    [IR_ne]       = {"$a != $b",             "$a != $b"},
    [IR_and]      = {NULL,                   "(@)($a & $b)"},
    [IR_or]       = {NULL,                   "(@)($a | $b)"},
    [IR_xor]      = {NULL,                   "(@)($a ^ $b)"},
    [IR_not]      = {NULL,                   "!$a"},
    [IR_bitnot]   = {NULL,                   "(@)~$a"},
    [IR_neg]      = {"-$a",                  "sub_@(0, $a)"},
    [IR_abs]      = {"LIBM_@(fabs)($a)",     "$a < 0 ? sub_@(0, $a) : $a"},
    [IR_sign]     = {"sign_@($a)",           "(@)(($a > 0) - ($a < 0))"},
    [IR_exp]      = {"exp_@($a)",            NULL},
    [IR_exp2]     = {"exp2_@($a)",           NULL},
    [IR_expm1]    = {"expm1_@($a)",          NULL},
    [IR_log]      = {"log_@($a)",            NULL},
    [IR_log2]     = {"log2_@($a)",           NULL},
    [IR_log10]    = {"log10_@($a)",          NULL},
    [IR_log1p]    = {"log1p_@($a)",          NULL},
    [IR_sqrt]     = {"LIBM_@(sqrt)($a)",     NULL},
    [IR_rsqrt]    = {"1 / LIBM_@(sqrt)($a)", NULL},
    [IR_recip]    = {"1 / $a",               NULL},
    [IR_square]   = {"$a * $a + none_@",     "mul_@($a, $a)"},
    [IR_sigmoid]  = {"sigmoid_@($a)",        NULL},
    [IR_tanh]     = {"tanh_@($a)",           NULL},
    [IR_erf]      = {"erf_@($a)",            NULL},
    [IR_erfc]     = {"LIBM_@(erfc)($a)",     NULL},
    [IR_sinh]     = {"sinh_@($a)",           NULL},
    [IR_cosh]     = {"cosh_@($a)",           NULL},
    [IR_asinh]    = {"asinh_@($a)",          NULL},
    [IR_acosh]    = {"acosh_@($a)",          NULL},
    [IR_atanh]    = {"atanh_@($a)",          NULL},
    [IR_tan]      = {"tan_@($a)",            NULL},
    [IR_asin]     = {"asin_@($a)",           NULL},
    [IR_acos]     = {"acos_@($a)",           NULL},
    [IR_atan]     = {"atan_@($a)",           NULL},
    [IR_sin]      = {"sin_@($a)",            NULL},
    [IR_cos]      = {"cos_@($a)",            NULL},
    [IR_floor]    = {"LIBM_@(floor)($a)",    "$a"},
    [IR_ceil]     = {"LIBM_@(ceil)($a)",     "$a"},
    [IR_round]    = {"LIBM_@(rint)($a)",     "$a"},
    [IR_trunc]    = {"LIBM_@(trunc)($a)",    "$a"},
    [IR_finite]   = {"LIBM_@(fabs)($a) <= MAX_@", NULL},
    [IR_where]    = {"$a ? $b : $c",         "$a ? $b : $c"},
};
/* On bool, arithmetic is that of truth values. */
static const spelling SPELL_BOOL[IR_OP_COUNT] = {
    [IR_add] = {NULL, "$a | $b"}, [IR_mul] = {NULL, "$a & $b"}, [IR_max] = {NULL, "$a | $b"},
    [IR_min] = {NULL, "$a & $b"}, [IR_and] = {NULL, "$a & $b"}, [IR_or]  = {NULL, "$a | $b"},
    [IR_xor] = {NULL, "$a ^ $b"}, [IR_square] = {NULL, "$a"},   [IR_abs] = {NULL, "$a"},
    [IR_sign] = {NULL, "$a"},     [IR_neg] = {NULL, "$a"},      [IR_sub] = {NULL, "$a ^ $b"},
    [IR_pow] = {NULL, "$a | (!$b)"}, [IR_lt] = {NULL, "(!$a) & $b"}, [IR_le] = {NULL, "(!$a) | $b"},
};
/* clang-format on */

const char *c_type(dtype t)
{
    switch (t) {
    case DT_bool: return "u8";
    case DT_i8: return "i8";
    case DT_i32: return "i32";
    case DT_i64: return "i64";
    case DT_f16:
    case DT_bf16: return "u16";
    case DT_f32: return "f32";
    case DT_f64: return "f64";
    default: return "void";
    }
}

void c_line(c_printer *p, const char *format, ...)
{
    char *text;
    va_list v;
    va_start(v, format);
    int n = vsnprintf(NULL, 0, format, v);
    va_end(v);
    text = arena_alloc(p->a, n + 1);
    va_start(v, format);
    vsnprintf(text, (size_t)n + 1, format, v);
    va_end(v);
    if (text[0] == '}')
        p->indent--;
    if (text[0] != '#' && text[0] != '\0')
        for (i64 i = 0; i < p->indent; i++)
            str_add(&p->s, "    ");
    str_add(&p->s, text);
    str_add_char(&p->s, '\n');
    if (n > 0 && text[n - 1] == '{')
        p->indent++;
}

char *c_affine(c_printer *p, kn_affine x)
{
    str s = str_new(p->a);
    for (i64 i = 0; i < x.n; i++) {
        i64 c = x.at[i].coef;
        if (i > 0)
            str_add(&s, c < 0 ? " - " : " + ");
        else if (c < 0)
            str_add(&s, "-");
        if (c != 1 && c != -1)
            str_printf(&s, "%lld * ", (long long)(c < 0 ? -c : c));
        str_printf(&s, "g%u", x.at[i].var.i);
    }
    if (x.n == 0)
        str_printf(&s, "%lld", (long long)x.base);
    else if (x.base != 0)
        str_printf(&s, " %c %lld", x.base < 0 ? '-' : '+',
                   (long long)(x.base < 0 ? -x.base : x.base));
    return s.at;
}

char *c_address(c_printer *p, i32 buffer, kn_affine at)
{
    if (at.n == 0 && at.base == 0)
        return arena_printf(p->a, "b%d", buffer);
    return arena_printf(p->a, at.n > 0 ? "b%d + (%s)" : "b%d + %s", buffer, c_affine(p, at));
}

char *c_number(c_printer *p, dtype t, f64 f, i64 i)
{
    if (t == DT_f16)
        return arena_printf(p->a, "0x%x", f16_of_f64(f));
    if (t == DT_bf16)
        return arena_printf(p->a, "0x%x", bf16_of_f64(f));
    if (!dtype_is_float(t)) {
        if (i == INT64_MIN)
            return arena_printf(p->a, "(-9223372036854775807 - 1)");
        return arena_printf(p->a, i < 0 ? "(%lld)" : "%lld", (long long)i);
    }
    const char *suffix = t == DT_f32 ? "f" : "";
    if (t == DT_f32)
        f = (f64)(f32)f;
    if (isnan(f))
        return arena_printf(p->a, "__builtin_nan%s(\"\")", suffix);
    if (isinf(f))
        return arena_printf(p->a, f < 0 ? "(-__builtin_inf%s())" : "__builtin_inf%s()", suffix);
    char *text = arena_printf(p->a, t == DT_f32 ? "%.9g" : "%.17g", f);
    const char *point = strpbrk(text, ".e") ? "" : ".0";
    return arena_printf(p->a, signbit(f) ? "(%s%s%s)" : "%s%s%s", text, point, suffix);
}

char *c_cast(c_printer *p, dtype from, dtype to, const char *text)
{
    if (from == to)
        return arena_strdup(p->a, text);
    bool from_half = from == DT_f16 || from == DT_bf16, to_half = to == DT_f16 || to == DT_bf16;
    if (from_half) {
        char *wide = arena_printf(p->a, "f32_%s(%s)", dtype_name(from), text);
        return c_cast(p, DT_f32, to, wide);
    }
    if (to_half)
        return arena_printf(p->a, from == DT_f32 ? "%s_f32(%s)" : "%s_f32((f32)(%s))",
                            dtype_name(to), text);
    if (to == DT_bool)
        return arena_printf(p->a, "(%s) != 0", text);
    if (dtype_is_float(from) && !dtype_is_float(to)) {
        const char *wide = to == DT_i64 ? "i64" : "i32"; /* i8 by way of i32 */
        return arena_printf(p->a, to == DT_i8 ? "(i8)%s_%s(%s)" : "%s_%s(%s)", wide,
                            dtype_name(from), text);
    }
    return arena_printf(p->a, "(%s)(%s)", c_type(to), text);
}

static char *fill(c_printer *p, const char *pattern, dtype t, char *const *args)
{
    str s = str_new(p->a);
    for (const char *c = pattern; *c; c++) {
        if (*c == '$') {
            str_add(&s, args[c[1] - 'a']);
            c++;
        } else if (*c == '@') {
            str_add(&s, c_type(t));
        } else {
            str_add_char(&s, *c);
        }
    }
    return s.at;
}

char *c_ew(c_printer *p, ir_op op, dtype of_args, char *const *args)
{
    const spelling *row = &SPELL[op];
    if (of_args == DT_bool && SPELL_BOOL[op].on_int)
        row = &SPELL_BOOL[op];
    const char *pattern = dtype_is_float(of_args) ? row->on_float : row->on_int;
    if (!pattern)
        eqf_bug(p->ctx, "%s has no spelling on %s", ir_row(op)->name, dtype_name(of_args));
    return fill(p, pattern, of_args, args);
}

char *c_combine(c_printer *p, ir_reducer r, dtype t, const char *a, const char *b)
{
    static const ir_op STEP[IR_REDUCER_COUNT] = {[IR_SUM] = IR_add, [IR_PROD] = IR_mul,
                                                 [IR_MAX] = IR_max, [IR_MIN] = IR_min,
                                                 [IR_OR] = IR_or,   [IR_AND] = IR_and};
    char *args[2] = {arena_strdup(p->a, a), arena_strdup(p->a, b)};
    return c_ew(p, STEP[r], t, args);
}

char *c_identity(c_printer *p, ir_reducer r, dtype t)
{
    return dtype_is_float(t) ? c_number(p, t, ir_reducer_identity_f64(r), 0)
                             : c_number(p, t, 0, ir_reducer_identity_i64(r, t));
}
