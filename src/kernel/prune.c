/* What no store, and no error, depends on leaves a kernel: operations, and values that loops carry. A
 * lowering may make a value before it knows whether anything uses it; the state of a bundle that only
 * keeps itself going is one too. Values are numbered anew, in the order of the text. */
#include "kernel/kernel.h"

typedef struct pruning {
    arena *a;
    kn_kernel *k;
    const kn_ins **loop_of; /* by variable */
    bool *live;             /* by value */
    VEC(kn_value) work;     /* live, operands not yet looked at */
} pruning;

/* Does it do anything but make its value? */
static bool has_effect(const kn_ins *x)
{
    switch (x->op) {
    case KN_store:
    case KN_put:
    case KN_sort:
    case KN_gather: /* an index may be wrong */
        return true;
    default:
        return kn_divides(x);
    }
}

static void use(pruning *p, kn_value v)
{
    if (p->live[v.i])
        return;
    p->live[v.i] = true;
    vec_push(p->a, &p->work, v);
}

static void use_operands(pruning *p, const kn_ins *x)
{
    for (i64 i = 0; i < x->arg_count; i++)
        use(p, x->args[i]);
}

static void use_effects(pruning *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->op == KN_loop) {
            p->loop_of[x->var.i] = x;
            use_effects(p, &x->body);
        } else if (has_effect(x)) {
            use_operands(p, x);
        }
    }
}

static void find_live(pruning *p)
{
    use_effects(p, &p->k->body);
    while (p->work.n > 0) {
        const kn_ins *x = kn_def(p->k, p->work.at[--p->work.n]);
        if (x->op == KN_get) {
            use(p, p->loop_of[x->var.i]->carried[x->axis]);
        } else if (x->op == KN_carry) {
            const kn_ins *loop = p->loop_of[x->var.i];
            use(p, loop->args[x->axis]);
            use(p, loop->yield[x->axis]);
        } else {
            use_operands(p, x);
        }
    }
}

static bool is_kept(const pruning *p, const kn_ins *x)
{
    if (x->op == KN_loop) /* nothing left inside: pruned before */
        return x->body.n > 0;
    return has_effect(x) || (x->out.i && p->live[x->out.i]);
}

/* Leaves the loop the carried values that are used; places in what it carries are counted anew. */
static void prune_carried(const pruning *p, kn_ins *loop)
{
    i64 n = 0, *number = NEW_N(p->a, i64, loop->arg_count + 1);
    kn_value *args = NEW_N(p->a, kn_value, loop->arg_count + 1);
    kn_value *carried = NEW_N(p->a, kn_value, loop->arg_count + 1);
    kn_value *yield = NEW_N(p->a, kn_value, loop->arg_count + 1);
    for (i64 j = 0; j < loop->arg_count; j++) {
        number[j] = n;
        if (!p->live[loop->carried[j].i])
            continue;
        args[n] = loop->args[j];
        carried[n] = loop->carried[j];
        yield[n++] = loop->yield[j];
    }
    for (i64 i = 0; i < loop->body.n; i++)
        if (loop->body.at[i]->op == KN_carry)
            loop->body.at[i]->axis = number[loop->body.at[i]->axis];
    for (i64 v = 1; v < p->k->defs.n; v++) {
        kn_ins *x = p->k->defs.at[v];
        if (x->op == KN_get && x->var.i == loop->var.i)
            x->axis = number[x->axis];
    }
    loop->args = args;
    loop->carried = carried;
    loop->yield = yield;
    loop->arg_count = n;
}

static void prune_body(const pruning *p, kn_body *body)
{
    i64 n = 0;
    for (i64 i = 0; i < body->n; i++) {
        kn_ins *x = body->at[i];
        if (x->op == KN_loop) {
            prune_carried(p, x);
            prune_body(p, &x->body);
        }
        if (is_kept(p, x))
            body->at[n++] = x;
    }
    body->n = n;
}

/* Numbers by old number; defs by new one. */
static void number_body(pruning *p, kn_body *body, u32 *number, u32 *next, kn_ins **defs)
{
    for (i64 i = 0; i < body->n; i++) {
        kn_ins *x = body->at[i];
        number_body(p, &x->body, number, next, defs);
        if (x->out.i) {
            number[x->out.i] = *next;
            defs[(*next)++] = x;
        }
    }
}

static const kn_value *renumbered(const pruning *p, const kn_value *at, i64 n, const u32 *number)
{
    kn_value *out = NEW_N(p->a, kn_value, n + 1);
    for (i64 i = 0; i < n; i++)
        out[i].i = number[at[i].i];
    return out;
}

static void rename_body(const pruning *p, kn_body *body, const u32 *number)
{
    for (i64 i = 0; i < body->n; i++) {
        kn_ins *x = body->at[i];
        x->out.i = number[x->out.i];
        x->args = renumbered(p, x->args, x->arg_count, number);
        if (x->op != KN_loop)
            continue;
        x->carried = renumbered(p, x->carried, x->arg_count, number);
        x->yield = renumbered(p, x->yield, x->arg_count, number);
        rename_body(p, &x->body, number);
    }
}

void kn_prune(arena *a, kn_kernel *k)
{
    pruning p = {.a = a, .k = k};
    p.loop_of = NEW_N(a, const kn_ins *, k->var_count + 1);
    p.live = NEW_N(a, bool, k->defs.n + 1);
    find_live(&p);
    prune_body(&p, &k->body);
    u32 *number = NEW_N(a, u32, k->defs.n + 1), next = 1;
    kn_ins **defs = NEW_N(a, kn_ins *, k->defs.n + 1);
    number_body(&p, &k->body, number, &next, defs);
    rename_body(&p, &k->body, number);
    for (i64 v = 1; v < (i64)next; v++)
        k->defs.at[v] = defs[v];
    k->defs.n = MAX((i64)next, 1);
}
