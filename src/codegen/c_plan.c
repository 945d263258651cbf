/* Before a kernel is printed: which operations share a loop nest, and where each value lives.
 *
 * Consecutive pointwise operations on tiles of one shape are a group. A tile that leaves its group
 * is an array; carried tiles are updated in place where every use of the old value is in the group
 * that makes the new one, or before it. */
#include "codegen/c_parts.h"

bool c_is_lanewise(const kn_ins *x)
{
    if (x->rank == 0)
        return false;
    switch (x->op) {
    case KN_load: case KN_gather: case KN_store: case KN_put: case KN_const: case KN_iota:
    case KN_cast: case KN_ew: case KN_state: case KN_bcast: case KN_trans: case KN_combine:
        return true;
    default:
        return false;
    }
}

bool c_same_shape(const kn_ins *a, const kn_ins *b)
{
    if (a->rank != b->rank)
        return false;
    for (i64 d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

static bool is_inline(const c_printer *p, const kn_ins *x)
{
    return x->op == KN_const || x->op == KN_state ||
           (x->op == KN_bcast && kn_def(p->k, x->args[0])->rank == 0);
}

bool c_same_affine(kn_affine a, kn_affine b)
{
    if (a.base != b.base || a.n != b.n)
        return false;
    for (i64 i = 0; i < a.n; i++)
        if (a.at[i].var.i != b.at[i].var.i || a.at[i].coef != b.at[i].coef)
            return false;
    return true;
}

bool c_is_memory(const kn_ins *x)
{
    return x->op == KN_load || x->op == KN_gather || x->op == KN_store || x->op == KN_put;
}

/* Would running x lane by lane together with the operations [from, to) of the body change what one
 * of them reads? */
static bool conflicts(const kn_body *body, i64 from, i64 to, const kn_ins *x)
{
    if (!c_is_memory(x))
        return false;
    for (i64 i = from; i < to; i++) {
        const kn_ins *y = body->at[i];
        bool stores = x->op == KN_store || x->op == KN_put || y->op == KN_store ||
                      y->op == KN_put;
        if (!c_is_memory(y) || y->buffer != x->buffer || !stores)
            continue;
        bool same = x->op != KN_gather && x->op != KN_put && y->op != KN_gather &&
                    y->op != KN_put && c_same_affine(x->at, y->at);
        for (i64 d = 0; d < x->rank && same; d++)
            same = x->stride[d] == y->stride[d];
        if (!same)
            return true;
    }
    return false;
}

/* Numbers groups, counts uses, finds values that leave their group. */
static void find_groups(c_printer *p, const kn_body *body)
{
    const kn_ins *last = NULL;
    i64 first = 0; /* operation of the group */
    for (i64 i = 0; i < body->n; i++) {
        kn_ins *x = body->at[i];
        i64 group = 0;
        if (c_is_lanewise(x)) {
            if (!last || !c_same_shape(last, x) || conflicts(body, first, i, x)) {
                p->group_count++;
                first = i;
            }
            group = p->group_count;
        }
        last = group ? x : NULL;
        if (x->out.i)
            p->values[x->out.i].group = group;
        for (i64 j = 0; j < x->arg_count; j++) {
            c_value *v = &p->values[x->args[j].i];
            v->uses++;
            bool other_place = x->op == KN_trans || x->op == KN_bcast;
            if (other_place && v->group == group && kn_def(p->k, x->args[j])->rank > 0) {
                p->group_count++; /* its operand must be complete: start a new group */
                group = p->group_count;
                first = i;
                p->values[x->out.i].group = group;
            }
            if (v->group != group || group == 0)
                v->escapes = true;
        }
        p->group_of[x->number] = group;
        if (x->op == KN_loop) {
            find_groups(p, &x->body);
            for (i64 j = 0; j < x->arg_count; j++) {
                p->values[x->yield[j].i].uses++;
                p->values[x->yield[j].i].escapes = true;
            }
        }
    }
}

/* A dot whose only use is the whole, contiguous store that follows it. */
static void find_stored(c_printer *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        find_stored(p, &x->body);
        if (x->op != KN_dot || p->values[x->out.i].uses != 1 || i + 1 == body->n)
            continue;
        const kn_ins *s = body->at[i + 1];
        if (s->op == KN_store && s->args[0].i == x->out.i && s->dtype == x->dtype &&
            s->stride[1] == 1 && s->live[0].end == 0 && s->live[1].end == 0)
            p->values[x->out.i].stored = s;
    }
}

static void choose_homes(c_printer *p)
{
    for (i64 i = 1; i < p->k->defs.n; i++) {
        const kn_ins *x = p->k->defs.at[i];
        c_value *v = &p->values[i];
        v->storage = (u32)i;
        if (v->uses == 0 && x->op != KN_gather && x->op != KN_get && x->op != KN_carry)
            v->home = C_NOWHERE;
        else if (x->op == KN_ref || v->stored)
            v->home = C_PLACE;
        else if (is_inline(p, x))
            v->home = C_INLINE;
        else if (x->rank == 0)
            v->home = C_SCALAR;
        else if (v->group != 0 && !v->escapes)
            v->home = C_LANE;
        else
            v->home = C_ARRAY;
    }
}

static bool uses_value(const kn_ins *x, kn_value v)
{
    for (i64 j = 0; j < x->arg_count; j++)
        if (x->args[j].i == v.i)
            return true;
    if (x->op == KN_loop) {
        for (i64 j = 0; j < x->arg_count; j++)
            if (x->yield[j].i == v.i)
                return true;
        for (i64 i = 0; i < x->body.n; i++)
            if (uses_value(x->body.at[i], v))
                return true;
    }
    return false;
}

/* May the value that ends as carried value j be computed into the carried value's own storage? */
static bool in_place(const c_printer *p, const kn_ins *loop, i64 j)
{
    kn_value y = loop->yield[j], c = loop->carried[j];
    const kn_ins *def = kn_def(p->k, y);
    if (p->values[y.i].home != C_ARRAY || p->values[y.i].storage != y.i)
        return false;
    for (i64 i = 0; i < loop->arg_count; i++)
        if (loop->yield[i].i == c.i || (i != j && loop->yield[i].i == y.i))
            return false;
    i64 place = -1;
    for (i64 i = 0; i < loop->body.n; i++)
        if (loop->body.at[i] == def)
            place = i;
    if (place < 0 || (p->values[y.i].group == 0 && def->op != KN_dot && def->op != KN_get))
        return false;
    if (def->op == KN_get) /* of an inner loop that carries it on */
        return false;
    for (i64 i = place + 1; i < loop->body.n; i++) {
        const kn_ins *x = loop->body.at[i];
        bool same_group = c_is_lanewise(x) && p->values[y.i].group != 0 && x->out.i != 0 &&
                          p->values[x->out.i].group == p->values[y.i].group;
        if (uses_value(x, c) && !same_group)
            return false;
    }
    return true;
}

/* Joins the storage of carried values, what they become, and the loop's results. */
static void share_storage(c_printer *p, const kn_body *body)
{
    for (i64 i = 0; i < body->n; i++) {
        const kn_ins *x = body->at[i];
        if (x->op == KN_get) {
            for (i64 k = i - 1; k >= 0; k--)
                if (body->at[k]->op == KN_loop && body->at[k]->var.i == x->var.i) {
                    u32 c = body->at[k]->carried[x->axis].i;
                    p->values[x->out.i].storage = p->values[c].storage;
                    break;
                }
        }
        if (x->op != KN_loop)
            continue;
        for (i64 j = 0; j < x->arg_count; j++) {
            c_value *from = &p->values[x->args[j].i], *c = &p->values[x->carried[j].i];
            const kn_ins *def = kn_def(p->k, x->args[j]);
            bool own = def->op != KN_carry && def->op != KN_get;
            if (c->home == C_ARRAY && from->home == C_ARRAY && from->uses == 1 && own)
                c->storage = from->storage;
        }
        for (i64 j = 0; j < x->arg_count; j++)
            if (in_place(p, x, j))
                p->values[x->yield[j].i].storage = p->values[x->carried[j].i].storage;
        share_storage(p, &x->body);
    }
}

void c_plan(c_printer *p)
{
    const kn_kernel *k = p->k;
    find_groups(p, &k->body);
    find_stored(p, &k->body);
    choose_homes(p);
    share_storage(p, &k->body);
}
