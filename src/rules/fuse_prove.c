/* Judges of fusion: they see the texts of both sides, derive the right one from the left one again
 * and replay the certificate of a repair. The term that a reason "loop.N" refers to is a hint, it
 * says where to look: nothing in it is taken for granted. */
#include <stdlib.h>

#include "rules/fuse_impl.h"

static const rl_record *at(const rl_terms *t, u32 id)
{
    return &t->at.at[id];
}

static u64 par_of(const rl_terms *t, const rl_record *x)
{
    return t->g->payloads.at[x->payload].par;
}

static bool is_in(const rl_terms *t, const rl_record *loop, u32 comp)
{
    for (i64 i = 0; i < loop->n; i++)
        if (rl_terms_same(t, loop->kids[i], comp))
            return true;
    return false;
}

/* Every component that runs over these axes below the term is in the loop, and so are theirs. */
static bool is_closed(const rl_terms *t, const rl_record *loop, u32 id, u8 *seen)
{
    const rl_record *x = at(t, id);
    if (seen[id])
        return true;
    seen[id] = 1;
    if (x->op == IR_run && par_of(t, x) == par_of(t, loop) && !is_in(t, loop, x->kids[0]))
        return false;
    const rl_record *inner = x->op == IR_get ? at(t, x->kids[0]) : x;
    if (inner->op == IR_loop && par_of(t, inner) & par_of(t, loop))
        return true; /* one of its own inside, or its result */
    bool is_producer = x->op == IR_comp && x->n > 2 && x->reducer != IR_NO_REDUCER;
    for (i64 i = 0; i < x->n; i++) {
        if (is_producer && i >= 2 && !is_in(t, loop, x->kids[i]))
            return false;
        if (!is_closed(t, loop, x->kids[i], seen))
            return false;
    }
    return true;
}

/* The component's own operands: what it needs of the loop is there. */
static bool stands_in(const rl_terms *t, u32 loop, u32 comp)
{
    const rl_record *l = at(t, loop);
    return l->op == IR_loop && is_in(t, l, comp) &&
           is_closed(t, l, comp, NEW_N(t->a, u8, t->at.n));
}

static bool visits_some(const rl_terms *t, const rl_record *loop)
{
    return t->g->payloads.at[loop->payload].attr.ints.n > 0;
}

/* A reduction as a component of any loop over its axes; a component in one loop and in another. */
static bool is_bundle(const rl_terms *t, u32 left, u32 right)
{
    const rl_record *x = at(t, left), *y = at(t, right);
    if (y->op != IR_get || !stands_in(t, y->kids[0], y->kids[1]))
        return false;
    const rl_record *comp = at(t, y->kids[1]), *loop = at(t, y->kids[0]);
    if (visits_some(t, loop) || (x->op == IR_get && visits_some(t, at(t, x->kids[0]))))
        return false;
    if (x->op == IR_reduce)
        return comp->n == 1 && comp->reducer == x->reducer && par_of(t, x) == par_of(t, loop) &&
               rl_terms_same(t, comp->kids[0], x->kids[0]);
    return x->op == IR_get && rl_terms_same(t, x->kids[1], y->kids[1]) &&
           par_of(t, at(t, x->kids[0])) == par_of(t, loop) &&
           stands_in(t, x->kids[0], x->kids[1]);
}

/* The term of the chain of this number; 0: there is none. */
static u32 chain_of(rl_terms *t, const char *number)
{
    rl_graph *g = t->g;
    char *end;
    long k = strtol(number, &end, 10);
    if (end == number || *end || k < 0 || k >= g->chains.n)
        return 0;
    return rl_terms_copy(t, g->hints, g->chains.at[k]);
}

static bool is_repaired(rl_terms *t, const char *number, u32 left, u32 right)
{
    u32 term = chain_of(t, number);
    rl_chain chain;
    if (!term || rl_chain_check(t, term, &chain))
        return false;
    for (i64 i = 0; i < chain.n; i++)
        if (rl_terms_same(t, chain.reduction[i], left) && rl_terms_same(t, chain.value[i], right))
            return true;
    return false;
}

static bool is_shifted(rl_terms *t, const char *number, u32 left, u32 right)
{
    u32 term = chain_of(t, number);
    return term && rl_terms_same(t, term, left) && rl_part_check(t, term, right);
}

eqf_verdict rl_judge_fusion(rl_graph *g, const char *reason, const char *left, const char *right)
{
    rl_terms *t = rl_terms_new(g, arena_child(g->a));
    u32 x = rl_terms_read(t, left), y = rl_terms_read(t, right);
    bool holds = false;
    if (x && y && strcmp(reason, "bundle") == 0)
        holds = is_bundle(t, x, y);
    else if (x && y && strcmp(reason, "visit") == 0)
        holds = rl_visits_follow(t, x, y, false);
    else if (x && y && strcmp(reason, "visit.approx") == 0)
        holds = g->options.fp >= RL_APPROXIMATE && rl_visits_follow(t, x, y, true);
    else if (x && y && strncmp(reason, "loop.", 5) == 0)
        holds = is_repaired(t, reason + 5, x, y);
    else if (x && y && strncmp(reason, "part.", 5) == 0)
        holds = is_shifted(t, reason + 5, x, y);
    arena_free(t->a);
    return holds ? EQF_HOLDS : EQF_REFUSED;
}
