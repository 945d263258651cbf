/* Structures near the best, where there are too many to look at each.
 *
 * The reductions of a whole layer are chosen nearly independently of one another, so structures are the
 * product of many small choices, and in any order of all of them the first thousands differ in one corner.
 * Here it is the cheapest that changes in one place at a time: it may not have one of its reductions, or
 * has it by another way, or rolls over another set of axes; and what is left is what costs least where what
 * it had before is nearly free. What may be stored is kept and improved tile by tile.
 *
 * The next one to be changed is the cheapest that was not yet, and what it must not have is never had
 * again by those that come from it: so second and third choices of one place are reached too. Nothing
 * depends on time but when it ends. */
#include <math.h>

#include "extract/impl.h"

enum { MOST_TRIED = 1500, SETTLED = 3, THOROUGH = 6 };

typedef struct point {
    ex_structure at;
    u64 rolled;
    ex_set without;
    const i64 *unstored; /* places */
    i64 unstored_count;
    f64 bound_us;
    bool is_changed; /* its neighbours were looked at */
} point;

typedef struct near {
    ex_ranking *q;
    arena *a;
    VEC(point) points;
    VEC(u64) seen; /* hashes of structures */
    i64 end;       /* of what is tried */
    f64 best_us;   /* of those that were changed */
    i64 changed;
} near;

static bool is_over(const near *x)
{
    return x->q->tried >= x->end || ex_is_over(x->q->s);
}

static bool is_in(const i64 *list, i64 n, i64 place)
{
    for (i64 i = 0; i < n; i++)
        if (list[i] == place)
            return true;
    return false;
}

/* What the present structure stores if it leaves out what p does. */
static u32 stored_by(const ex_ranking *q, const point *p)
{
    u32 set = 0;
    for (i64 i = 0; i < q->n; i++)
        set |= is_in(p->unstored, p->unstored_count, q->places[i]) ? 0 : 1u << i;
    return set;
}

static void keep_unstored(const near *x, point *p, u32 set)
{
    const ex_ranking *q = x->q;
    i64 *all = NEW_N(x->a, i64, p->unstored_count + q->n), n = 0;
    for (i64 i = 0; i < p->unstored_count; i++)
        if (!is_in(q->places, q->n, p->unstored[i]))
            all[n++] = p->unstored[i];
    for (i64 i = 0; i < q->n; i++)
        if (!(set >> i & 1))
            all[n++] = q->places[i];
    p->unstored = all;
    p->unstored_count = n;
}

static bool is_new(near *x, const ex_structure *s)
{
    u64 hash = hash_bytes(s, sizeof *s, 0);
    for (i64 i = 0; i < x->seen.n; i++)
        if (x->seen.at[i] == hash)
            return false;
    vec_push(x->a, &x->seen, hash);
    return true;
}

/* Makes the structure the present one, without the reductions that its operators do not need. */
static bool turn_to(near *x, ex_structure *s)
{
    const ex_space *space = x->q->s;
    for (i64 i = 0; i < SETTLED; i++) {
        if (!is_new(x, s))
            return false;
        if (ex_turn_to(x->q, s))
            return true;
        for (i64 k = 0; k < space->reduced.n; k++)
            if (!x->q->chosen[space->reduced.at[k].place].i)
                s->way[k] = -1;
    }
    return false;
}

static void look_at(near *x, point p)
{
    if (!turn_to(x, &p.at))
        return;
    u32 set = stored_by(x->q, &p);
    p.bound_us = ex_consider(x->q, set);
    if (!p.unstored && set) { /* everything is, and nothing was tried yet */
        f64 bound_us = ex_consider(x->q, 0);
        if (bound_us < p.bound_us) {
            p.bound_us = bound_us;
            keep_unstored(x, &p, 0);
        }
    }
    vec_push(x->a, &x->points, p);
}

/* The cheapest structure that is as it is wished for. */
static bool look_for(near *x, const point *from, ex_wish wish, ex_structure *found)
{
    if (is_over(x) || !ex_choose_like(x->q->s, &wish, found))
        return false;
    point p = *from;
    p.at = *found;
    p.rolled = wish.rolled;
    p.without = wish.without;
    p.is_changed = false;
    look_at(x, p);
    return true;
}

/* One tile more or less stored, each in turn, as long as it pays. */
static void sweep(near *x, point *p)
{
    ex_ranking *q = x->q;
    u32 set = stored_by(q, p);
    for (i64 i = 0, same = 0; same < q->n && !is_over(x); i = (i + 1) % q->n, same++) {
        f64 bound_us = ex_consider(q, set ^ 1u << i);
        if (!(bound_us < p->bound_us))
            continue;
        p->bound_us = bound_us;
        set ^= 1u << i;
        same = 0;
    }
    keep_unstored(x, p, set);
}

static void descend(near *x, point *p, u32 set)
{
    f64 best = ex_descend(x->q, &set, x->end);
    if (best < p->bound_us) {
        p->bound_us = best;
        keep_unstored(x, p, set);
    }
}

static void change(near *x, i64 which)
{
    const ex_space *s = x->q->s;
    point p = x->points.at[which];
    ex_structure found;
    bool is_best = p.bound_us < x->best_us;
    if (ex_turn_to(x->q, &p.at) && (is_best || x->changed < THOROUGH)) {
        descend(x, &p, (1u << x->q->n) - 1);
        descend(x, &p, 0);
        x->best_us = MIN(x->best_us, p.bound_us);
    } else {
        sweep(x, &p);
    }
    x->points.at[which] = p;
    x->changed++;
    for (i64 k = 0; k < s->reduced.n; k++) {
        if (p.at.way[k] < 0)
            continue;
        ex_wish wish = {p.rolled, p.without, -1, -1, &p.at, -1};
        ex_put(&wish.without, k);
        look_for(x, &p, wish, &found);
        const ex_reduced *c = &s->reduced.at[k];
        for (i64 w = 0; w < c->ways.n; w++)
            if (w != p.at.way[k] && ex_is_asked_for(c, &c->ways.at[w], p.rolled))
                look_for(x, &p, (ex_wish){p.rolled, p.without, k, w, &p.at, -1}, &found);
    }
    for (u64 left = ex_rolled_atoms(s); left; left &= left - 1)
        look_for(x, &p, (ex_wish){p.rolled ^ (left & -left), p.without, -1, -1, &p.at, -1}, &found);
    for (i64 k = 0; k < s->reduced.n && is_best; k++)
        if (p.at.way[k] < 0 && !ex_has(&p.without, k))
            look_for(x, &p, (ex_wish){p.rolled, p.without, -1, -1, &p.at, k}, &found);
}

/* What each set of axes to roll over suggests by itself. */
static void start(near *x)
{
    ex_space *s = x->q->s;
    u64 modes[EX_MODES];
    i64 n = ex_list_modes(s, ex_rolled_atoms(s), modes);
    for (i64 i = 0; i < n; i++) {
        ex_structure found, again;
        point none = {0};
        ex_wish wish = {.rolled = modes[i], .reduced = -1, .with = -1};
        bool more = look_for(x, &none, wish, &found);
        for (i64 k = 0; k < SETTLED && more; k++) {
            wish.near = &found;
            more = look_for(x, &none, wish, &again) && memcmp(&found, &again, sizeof found) != 0;
            found = again;
        }
    }
}

i64 ex_look_near(ex_ranking *q, const ex_structures *starts)
{
    const ex_space *s = q->s;
    near x = {.q = q, .a = arena_child(s->a), .end = q->tried + MOST_TRIED, .best_us = (f64)INFINITY};
    for (i64 i = 0; i < starts->n && !is_over(&x); i++) {
        point p = {.at = starts->at[i]};
        for (i64 k = 0; k < s->reduced.n; k++)
            if (p.at.way[k] >= 0 && s->reduced.at[k].ways.at[p.at.way[k]].is_rolled)
                p.rolled |= s->reduced.at[k].ways.at[p.at.way[k]].par;
        look_at(&x, p);
    }
    const i64 started = x.points.n;
    start(&x);
    while (!is_over(&x)) {
        i64 next = -1;
        for (i64 i = 0; i < x.points.n; i++)
            if (!x.points.at[i].is_changed &&
                (next < 0 || x.points.at[i].bound_us < x.points.at[next].bound_us))
                next = i;
        if (next < 0)
            break;
        x.points.at[next].is_changed = true;
        change(&x, next);
    }
    const i64 found = x.points.n - started;
    arena_free(x.a);
    return found;
}
