/* equiforge_model.h: what a C caller of one package needs beside equiforge.h. Names of the program
 * become identifiers; a name that is none is spelled with underscores, and made unique. */
#include <ctype.h>
#include <stdio.h>

#include "package/package.h"

static const char *const c_types[DT_COUNT] = {
    [DT_bool] = "uint8_t", [DT_i8] = "int8_t",     [DT_i32] = "int32_t", [DT_i64] = "int64_t",
    [DT_f16] = "uint16_t", [DT_bf16] = "uint16_t", [DT_f32] = "float",   [DT_f64] = "double",
};

static const char *const keywords[] = {
    "auto",     "break",  "case",   "char",     "const",    "continue", "default",  "do",
    "double",   "else",   "enum",   "extern",   "float",    "for",      "goto",     "if",
    "inline",   "int",    "long",   "register", "restrict", "return",   "short",    "signed",
    "sizeof",   "static", "struct", "switch",   "typedef",  "union",    "unsigned", "void",
    "volatile", "while",  "bool",   "class",    "new",      "this",     "template", "exec_",
};

typedef struct namer {
    arena *a;
    intern *used;
} namer;

static const char *identifier(namer *n, const char *name)
{
    str s = str_new(n->a);
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        str_add_char(&s, '_');
    for (const char *c = name; *c; c++)
        str_add_char(&s, isalnum((unsigned char)*c) && (unsigned char)*c < 128 ? *c : '_');
    for (i64 i = 0; i < COUNT_OF(keywords); i++)
        if (strcmp(keywords[i], str_text(&s)) == 0)
            str_add_char(&s, '_');
    const char *base = str_text(&s), *result = base;
    for (int k = 1; intern_find(n->used, result, (i64)strlen(result)); k++)
        result = arena_printf(n->a, "%s_%d", base, k);
    intern_cstr(n->used, result);
    return result;
}

static void print_enum(str *out, arena *a, const char *model, const char *kind,
                       const rt_port *ports, i64 n)
{
    namer names = {a, intern_new(a)};
    str_printf(out, "enum {\n");
    for (i64 i = 0; i < n; i++) {
        const rt_port *p = &ports[i];
        str_printf(out, "    %s_%s_%s = %lld, /* %s [", model, kind, identifier(&names, p->name),
                   (long long)i, dtype_name(p->type));
        for (i64 d = 0; d < p->rank; d++)
            str_printf(out, d ? ", %lld" : "%lld", (long long)p->shape[d]);
        str_printf(out, "] */\n");
    }
    str_printf(out, "    %s_%s_COUNT = %lld\n};\n", model, kind, (long long)n);
}

static i64 elements(arena *a, const rt_port *p)
{
    return tensor_count(arena_ctx(a), p->rank, p->shape);
}

static void print_call(str *out, arena *a, const char *model, const rt_plan *plan)
{
    namer names = {a, intern_new(a)};
    const char **in = NEW_N(a, const char *, plan->inputs.n);
    const char **to = NEW_N(a, const char *, plan->outputs.n);
    str_printf(out,
               "\n/* Runs once: eqf_exec_run with types. Arrays are dense and row-major; outputs "
               "that are\n * not wanted may be NULL. */\n"
               "static inline eqf_status %s_run(eqf_exec *exec_",
               model);
    for (i64 i = 0; i < plan->inputs.n; i++) {
        const rt_port *p = &plan->inputs.at[i];
        in[i] = identifier(&names, arena_printf(a, "in_%s", p->name));
        str_printf(out, ",\n    const %s *%s /* [%lld] */", c_types[p->type], in[i],
                   (long long)elements(a, p));
    }
    for (i64 i = 0; i < plan->outputs.n; i++) {
        const rt_port *p = &plan->outputs.at[i];
        to[i] = identifier(&names, arena_printf(a, "out_%s", p->name));
        str_printf(out, ",\n    %s *%s /* [%lld] */", c_types[p->type], to[i],
                   (long long)elements(a, p));
    }
    str_printf(out, ")\n{\n    const void *inputs_[] = {");
    for (i64 i = 0; i < plan->inputs.n; i++)
        str_printf(out, "%s, ", in[i]);
    str_printf(out, "0};\n    void *outputs_[] = {");
    for (i64 i = 0; i < plan->outputs.n; i++)
        str_printf(out, "%s, ", to[i]);
    str_printf(out, "0};\n    return eqf_exec_run(exec_, inputs_, outputs_);\n}\n");
}

void pk_print_header(str *out, const rt_package *package)
{
    arena *a = arena_child(out->a);
    namer none = {a, intern_new(a)};
    const char *model = identifier(&none, package->name[0] ? package->name : "model");
    const rt_plan *plan = &package->plan;
    str_printf(out,
               "/* The model %s, for C callers: load the package with eqf_model_load, make an\n"
               " * eqf_exec, call %s_run. f16 and bf16 are passed as their bits. */\n"
               "#ifndef EQUIFORGE_MODEL_%s\n#define EQUIFORGE_MODEL_%s\n\n"
               "#include \"equiforge.h\"\n\n",
               model, model, model, model);
    print_enum(out, a, model, "INPUT", plan->inputs.at, plan->inputs.n);
    print_enum(out, a, model, "OUTPUT", plan->outputs.at, plan->outputs.n);
    if (plan->parameters.n)
        print_enum(out, a, model, "PARAMETER", plan->parameters.at, plan->parameters.n);
    if (plan->states.n)
        print_enum(out, a, model, "STATE", plan->states.at, plan->states.n);
    print_call(out, a, model, plan);
    str_printf(out, "\n#endif\n");
    arena_free(a);
}
