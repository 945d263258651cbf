/* The language of an e-graph: operators (name and arity), heads (operator and payload) and the
 * numbers among them. Everything is interned, so equal payloads are equal heads and no comparison
 * in the engine looks at a payload. Symbols and numbers are leaves of two built-in operators. */
#include <math.h>
#include <stdio.h>

#include "egraph/egraph.h"

eqf_text eqf_text_of(const char *s)
{
    return (eqf_text){s, strlen(s)};
}

/* ---- interning ----------------------------------------------------------------------------- */

static u32 pair_hash(u64 a, u64 b)
{
    return (u32)(hash_u64(a, b * 0x9E3779B97F4A7C15u) >> 32);
}

static u64 number_bits(const eg_number *v)
{
    u64 bits;
    memcpy(&bits, &v->f, sizeof bits);
    return v->is_int ? (u64)v->i : bits;
}

static void grow_slots(eg_lang *l, u32 **slots, u32 *mask, i64 count, int table)
{
    if (*slots && 2 * count <= (i64)*mask)
        return;
    u32 size = *slots ? 2 * (*mask + 1) : 64;
    *slots = NEW_N(l->a, u32, size);
    *mask = size - 1;
    i64 n = table == 0 ? l->ops.n : table == 1 ? l->heads.n : l->numbers.n;
    for (u32 k = 1; k < (u32)n; k++) {
        u32 h = table == 0   ? pair_hash(l->ops.at[k].name, l->ops.at[k].arity)
                : table == 1 ? pair_hash(l->heads.at[k].op, l->heads.at[k].payload)
                             : pair_hash(number_bits(&l->numbers.at[k]), l->numbers.at[k].is_int);
        u32 i = h & *mask;
        while ((*slots)[i])
            i = (i + 1) & *mask;
        (*slots)[i] = k;
    }
}

static u32 find_op(const eg_lang *l, u32 name, u32 arity, u32 *slot)
{
    u32 i = pair_hash(name, arity) & l->op_mask;
    for (; l->op_slots[i]; i = (i + 1) & l->op_mask) {
        const eg_op *o = &l->ops.at[l->op_slots[i]];
        if (o->name == name && o->arity == arity && l->op_slots[i] >= EG_OP_FIRST)
            return l->op_slots[i];
    }
    *slot = i;
    return 0;
}

static u32 add_op(eg_lang *l, const char *name, u32 arity)
{
    u32 slot, id = intern_cstr(l->names, name);
    u32 op = find_op(l, id, arity, &slot);
    if (op)
        return op;
    grow_slots(l, &l->op_slots, &l->op_mask, l->ops.n + 1, 0);
    vec_push(l->a, &l->ops, (eg_op){.name = id, .arity = arity});
    op = (u32)l->ops.n - 1;
    find_op(l, id, arity, &slot);
    l->op_slots[slot] = op;
    return op;
}

u32 eg_lang_op(eg_lang *l, const char *name, u32 arity)
{
    u32 slot;
    if (l->closed)
        return find_op(l, intern_find(l->names, name, (i64)strlen(name)), arity, &slot);
    return add_op(l, name, arity);
}

u32 eg_lang_head(eg_lang *l, u32 op, u32 payload)
{
    u32 i = pair_hash(op, payload) & l->head_mask;
    for (; l->head_slots[i]; i = (i + 1) & l->head_mask) {
        const eg_headrow *h = &l->heads.at[l->head_slots[i]];
        if (h->op == op && h->payload == payload)
            return l->head_slots[i];
    }
    u32 head = (u32)l->heads.n;
    vec_push(l->a, &l->heads, (eg_headrow){op, payload});
    l->ops.at[op].nheads++;
    if (2 * l->heads.n > (i64)l->head_mask)
        grow_slots(l, &l->head_slots, &l->head_mask, l->heads.n, 1);
    else
        l->head_slots[i] = head;
    return head;
}

u32 eg_lang_symbol(eg_lang *l, const char *name, i64 n)
{
    return eg_lang_head(l, EG_OP_SYMBOL, intern_add(l->names, name, n));
}

eg_number eg_number_int(i64 i)
{
    return (eg_number){true, i, (f64)i};
}

eg_number eg_number_real(f64 f)
{
    if (f >= -9223372036854775808.0 && f < 9223372036854775808.0 && f == floor(f))
        return eg_number_int((i64)f);
    if (isnan(f))
        f = (f64)NAN;
    return (eg_number){false, 0, f};
}

u32 eg_lang_number(eg_lang *l, eg_number v)
{
    u64 bits = number_bits(&v);
    u32 i = pair_hash(bits, v.is_int) & l->number_mask;
    for (; l->number_slots[i]; i = (i + 1) & l->number_mask) {
        const eg_number *o = &l->numbers.at[l->number_slots[i]];
        if (o->is_int == v.is_int && number_bits(o) == bits)
            return eg_lang_head(l, EG_OP_NUMBER, l->number_slots[i]);
    }
    u32 number = (u32)l->numbers.n;
    vec_push(l->a, &l->numbers, v);
    if (2 * l->numbers.n > (i64)l->number_mask)
        grow_slots(l, &l->number_slots, &l->number_mask, l->numbers.n, 2);
    else
        l->number_slots[i] = number;
    return eg_lang_head(l, EG_OP_NUMBER, number);
}

/* ---- API ----------------------------------------------------------------------------------- */

eqf_status eqf_lang_new(eqf_ctx *ctx, eqf_lang **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(ctx, t)
    {
        eg_lang *l = NEW(a, eg_lang);
        l->ctx = ctx;
        l->a = a;
        l->names = intern_new(a);
        vec_push(a, &l->ops, (eg_op){0});
        vec_push(a, &l->ops, (eg_op){.name = intern_cstr(l->names, "symbol")});
        vec_push(a, &l->ops, (eg_op){.name = intern_cstr(l->names, "number")});
        vec_push(a, &l->heads, (eg_headrow){0});
        vec_push(a, &l->numbers, (eg_number){0});
        grow_slots(l, &l->op_slots, &l->op_mask, l->ops.n, 0);
        grow_slots(l, &l->head_slots, &l->head_mask, l->heads.n, 1);
        grow_slots(l, &l->number_slots, &l->number_mask, l->numbers.n, 2);
        *out = l;
    }
    if (t.status)
        arena_free(a);
    return t.status;
}

void eqf_lang_free(eqf_lang *lang)
{
    if (lang)
        arena_free(lang->a);
}

eqf_ctx *eqf_lang_ctx(const eqf_lang *lang)
{
    return lang->ctx;
}

eqf_status eqf_lang_op(eqf_lang *lang, const char *name, unsigned arity, unsigned flags,
                       eqf_op *out)
{
    trap t;
    TRY(lang->ctx, t)
    {
        i64 before = lang->ops.n;
        u32 op = add_op(lang, name, arity);
        eg_op *o = &lang->ops.at[op];
        if ((flags & EQF_COMMUTATIVE) && arity != 2)
            eqf_throw(lang->ctx, EQF_E_ARGUMENT, NULL, name,
                      "a commutative operator has two operands, not %u", arity);
        if (op < (u32)before && flags != o->flags)
            eqf_throw(lang->ctx, EQF_E_ARGUMENT, NULL, name, "declared before with other flags");
        o->flags = flags;
        *out = (eqf_op){op};
    }
    return t.status;
}

void eqf_lang_close(eqf_lang *lang)
{
    lang->closed = true;
}

void eg_lang_hooks(eg_lang *l, u32 op, eg_normalise normalise, void *user,
                   const eg_payload_form *payload)
{
    eg_op *o = &l->ops.at[op];
    o->normalise = normalise;
    o->normalise_user = user;
    o->payload = payload;
}

eqf_status eqf_head_of(eqf_lang *lang, eqf_op op, uint32_t payload, eqf_head *out)
{
    out->i = 0;
    if (op.i < EG_OP_FIRST || op.i >= (u32)lang->ops.n)
        return eqf_report(lang->ctx, EQF_E_ARGUMENT, NULL, "eqf_head_of",
                          "operator %u does not exist", op.i);
    trap t;
    TRY(lang->ctx, t)
        out->i = eg_lang_head(lang, op.i, payload);
    return t.status;
}

eqf_status eqf_head_symbol(eqf_lang *lang, eqf_text name, eqf_head *out)
{
    out->i = 0;
    if (name.n && memchr(name.at, 0, name.n))
        return eqf_report(lang->ctx, EQF_E_ARGUMENT, NULL, "eqf_head_symbol",
                          "a symbol has no NUL byte");
    trap t;
    TRY(lang->ctx, t)
        out->i = eg_lang_symbol(lang, name.at, (i64)name.n);
    return t.status;
}

eqf_status eqf_head_int(eqf_lang *lang, int64_t value, eqf_head *out)
{
    trap t;
    TRY(lang->ctx, t)
        out->i = eg_lang_number(lang, eg_number_int(value));
    return t.status;
}

eqf_status eqf_head_real(eqf_lang *lang, double value, eqf_head *out)
{
    trap t;
    TRY(lang->ctx, t)
        out->i = eg_lang_number(lang, eg_number_real(value));
    return t.status;
}

eqf_op eqf_head_op(const eqf_lang *lang, eqf_head head)
{
    return (eqf_op){lang->heads.at[head.i].op};
}

uint32_t eqf_head_payload(const eqf_lang *lang, eqf_head head)
{
    return lang->heads.at[head.i].payload;
}

unsigned eqf_head_arity(const eqf_lang *lang, eqf_head head)
{
    return eg_head_arity(lang, head.i);
}

bool eqf_head_is_symbol(const eqf_lang *lang, eqf_head head)
{
    return lang->heads.at[head.i].op == EG_OP_SYMBOL;
}

bool eqf_head_is_number(const eqf_lang *lang, eqf_head head, double *value, int64_t *integer,
                        bool *is_int)
{
    const eg_headrow *h = &lang->heads.at[head.i];
    if (h->op != EG_OP_NUMBER)
        return false;
    const eg_number *v = &lang->numbers.at[h->payload];
    *value = v->f;
    *integer = v->i;
    *is_int = v->is_int;
    return true;
}

const char *eqf_head_name(const eqf_lang *lang, eqf_head head)
{
    const eg_headrow *h = &lang->heads.at[head.i];
    if (h->op == EG_OP_SYMBOL)
        return intern_text(lang->names, h->payload);
    return intern_text(lang->names, lang->ops.at[h->op].name);
}

eqf_status eqf_guard_add(eqf_lang *lang, const eqf_guard *guard)
{
    if (!guard->holds || strcmp(guard->name, "and") == 0 || strcmp(guard->name, "eq") == 0 ||
        strcmp(guard->name, "distinct") == 0)
        return eqf_report(lang->ctx, EQF_E_ARGUMENT, NULL, guard->name,
                          "a guard needs a function, and a name other than and, eq, distinct");
    trap t;
    TRY(lang->ctx, t)
        vec_push(lang->a, &lang->guards, *guard);
    return t.status;
}

eqf_status eqf_dynamic_add(eqf_lang *lang, const eqf_dynamic *dynamic)
{
    if (!dynamic->apply)
        return eqf_report(lang->ctx, EQF_E_ARGUMENT, NULL, dynamic->name,
                          "a right side needs a function");
    trap t;
    TRY(lang->ctx, t)
        vec_push(lang->a, &lang->dynamics, *dynamic);
    return t.status;
}

/* ---- text ---------------------------------------------------------------------------------- */

/* Would the reader take `s` for something else than this symbol? */
static bool needs_quotes(const char *s)
{
    const char *d = s + (*s == '-' || *s == '+');
    if (*s == 0 || *s == '?' || *s == ':' || *s == '$' || (*d >= '0' && *d <= '9') || *d == '.')
        return true;
    if (strcmp(s, "inf") == 0 || strcmp(s, "-inf") == 0 || strcmp(s, "nan") == 0 ||
        strcmp(s, "=>") == 0 || strcmp(s, "<=>") == 0)
        return true;
    for (; *s; s++) {
        if ((u8)*s <= ' ' || (u8)*s == 127 || strchr("(){}[];\"\\", *s))
            return true;
    }
    return false;
}

static void print_name(str *out, const char *name)
{
    if (needs_quotes(name)) {
        sx quoted = {.kind = SX_STRING, .text = name, .n = (i64)strlen(name)};
        sx_print(out, &quoted);
    } else {
        str_add(out, name);
    }
}

void eg_print_head(const eg_lang *l, str *out, u32 head)
{
    const eg_headrow *h = &l->heads.at[head];
    if (h->op == EG_OP_SYMBOL) {
        print_name(out, intern_text(l->names, h->payload));
    } else if (h->op == EG_OP_NUMBER) {
        const eg_number *v = &l->numbers.at[h->payload];
        if (v->is_int)
            str_printf(out, "%lld", (long long)v->i);
        else
            str_add_f64(out, v->f);
    } else {
        print_name(out, intern_text(l->names, l->ops.at[h->op].name));
    }
}

void eg_print_payload(const eg_lang *l, str *out, u32 head)
{
    const eg_headrow *h = &l->heads.at[head];
    const eg_payload_form *p = l->ops.at[h->op].payload;
    if (p && h->payload)
        p->print(p->user, out, h->payload);
}

u32 eg_head_of_sx(eg_lang *l, const char *file, const sx *x, u32 *arity)
{
    *arity = 0;
    switch (x->kind) {
    case SX_INT:
        return eg_lang_number(l, eg_number_int(x->i));
    case SX_FLOAT:
        if (!isfinite(x->f))
            sx_throw(l->ctx, file, x, "expected a finite number, found %s", x->text);
        return eg_lang_number(l, eg_number_real(x->f));
    case SX_SYMBOL:
        if (x->text[0] == '?')
            sx_throw(l->ctx, file, x, "a variable (%s) has no place in a term", x->text);
        if (x->text[0] == ':')
            sx_throw(l->ctx, file, x, "keyword %s has no place here", x->text);
        if (x->text[0] == '$')
            sx_throw(l->ctx, file, x, "%s stands outside a family or names no column", x->text);
        return eg_lang_symbol(l, x->text, x->n);
    case SX_STRING:
        if (memchr(x->text, 0, (size_t)x->n))
            sx_throw(l->ctx, file, x, "a symbol has no NUL byte");
        return eg_lang_symbol(l, x->text, x->n);
    default:
        break;
    }
    if (x->bracket != '(')
        sx_throw(l->ctx, file, x, "a term is written in (), not in %c", x->bracket);
    if (x->n == 0)
        sx_throw(l->ctx, file, x, "expected an operator, found ()");
    const sx *name = x->at[0];
    if (name->kind == SX_LIST || (name->kind == SX_SYMBOL && strchr("?:$", name->text[0])))
        sx_throw(l->ctx, file, name, "expected the name of an operator");
    i64 n = 1;
    while (n < x->n && !(x->at[n]->kind == SX_SYMBOL && x->at[n]->text[0] == ':'))
        n++;
    *arity = (u32)(n - 1);
    if (n > 1000)
        sx_throw(l->ctx, file, x, "an operator has at most 999 operands, found %lld",
                 (long long)n - 1);
    if (x->n == 1) /* (f) is the leaf f */
        return eg_head_of_sx(l, file, name, arity);
    u32 op = eg_lang_op(l, name->text, *arity);
    if (!op)
        sx_throw(l->ctx, file, x, "no operator %s with %u operands is declared", name->text,
                 *arity);
    u32 payload = 0;
    if (n < x->n) {
        const eg_payload_form *p = l->ops.at[op].payload;
        if (!p)
            sx_throw(l->ctx, file, x->at[n], "operator %s takes no %s", name->text,
                     x->at[n]->text);
        if (!p->read(p->user, (const sx *const *)&x->at[n], x->n - n, &payload))
            sx_throw(l->ctx, file, x->at[n], "cannot read %s of operator %s", x->at[n]->text,
                     name->text);
    }
    return eg_lang_head(l, op, payload);
}
