/* A Lagrangian relaxation of DAG extraction.
 *
 * Choosing an e-node in class p that uses class k asks that k be chosen. That demand, one for each pair
 * (p, k), is priced instead of kept: an e-node costs its own cost and the prices of its demands, a
 * class earns the prices of all demands on it. Then every class decides alone: it is chosen if it is a
 * root or earns more than its cheapest e-node costs. The sum is a lower bound for any prices >= 0, at
 * its best the bound of the linear program. Prices follow the subgradient with Polyak's step (Held,
 * Wolfe, Crowder 1974); cycles are allowed here, which only lowers the bound. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "egraph/exact.h"

enum { ROUNDS = 1500, PATIENCE = 30 };

typedef struct relaxation {
    cls *at;
    const u8 *root;
    u32 n, nlinks;
    u32 *first, *kid;      /* links of class c: first[c] .. first[c + 1]; the class demanded */
    u32 *use;              /* links of all choices, in order */
    f64 *price, *earned;   /* by link, by class */
    f64 *cheapest;         /* by class: least cost with prices */
    u32 *pick;             /* by class: the choice that has it */
} relaxation;

static f64 now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (f64)t.tv_sec + 1e-9 * (f64)t.tv_nsec;
}

static int by_u32(const void *a, const void *b)
{
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return (x > y) - (x < y);
}

static void make_links(relaxation *r, arena *a)
{
    i64 uses = 0, most = 0;
    for (u32 c = 0; c < r->n; c++) {
        i64 mine = 0;
        for (u32 i = 0; i < r->at[c].n; i++)
            mine += r->at[c].at[i].nkids;
        uses += mine;
        most = MAX(most, mine);
    }
    r->first = NEW_N(a, u32, r->n + 1u);
    r->kid = NEW_N(a, u32, uses);
    r->use = NEW_N(a, u32, uses);
    u32 *all = NEW_N(a, u32, most), links = 0;
    i64 at = 0;
    for (u32 c = 0; c < r->n; c++) {
        u32 n = 0;
        for (u32 i = 0; i < r->at[c].n; i++) {
            for (u32 j = 0; j < r->at[c].at[i].nkids; j++)
                all[n++] = r->at[c].at[i].kids[j];
        }
        qsort(all, n, sizeof *all, by_u32);
        r->first[c] = links;
        for (u32 i = 0; i < n; i++) {
            if (i == 0 || all[i] != all[i - 1])
                r->kid[links++] = all[i];
        }
        for (u32 i = 0; i < r->at[c].n; i++) {
            const choice *o = &r->at[c].at[i];
            u32 link = r->first[c];
            for (u32 j = 0; j < o->nkids; j++) { /* both are sorted */
                while (r->kid[link] != o->kids[j])
                    link++;
                r->use[at++] = link;
            }
        }
    }
    r->first[r->n] = links;
    r->nlinks = links;
}

/* Each class's cheapest choice under the prices; the bound. */
static f64 evaluate(relaxation *r)
{
    memset(r->earned, 0, sizeof(f64) * r->n);
    for (u32 l = 0; l < r->nlinks; l++)
        r->earned[r->kid[l]] += r->price[l];
    const u32 *use = r->use;
    f64 sum = 0;
    for (u32 c = 0; c < r->n; c++) {
        const cls *k = &r->at[c];
        f64 least = (f64)INFINITY;
        for (u32 i = 0; i < k->n; i++) {
            f64 cost = k->at[i].cost;
            for (u32 j = 0; j < k->at[i].nkids; j++)
                cost += r->price[*use++];
            if (cost < least) {
                least = cost;
                r->pick[c] = i;
            }
        }
        r->cheapest[c] = least;
        if (r->root[c] || least < r->earned[c])
            sum += least - r->earned[c];
    }
    return sum;
}

static bool chosen(const relaxation *r, u32 c)
{
    return r->root[c] || r->cheapest[c] < r->earned[c];
}

/* Demands met minus made, and the square of their length. */
static f64 subgradient(const relaxation *r, f64 *g)
{
    for (u32 c = 0; c < r->n; c++) {
        for (u32 l = r->first[c]; l < r->first[c + 1]; l++)
            g[l] = chosen(r, r->kid[l]) ? -1 : 0;
        if (!chosen(r, c))
            continue;
        const choice *o = &r->at[c].at[r->pick[c]];
        u32 link = r->first[c];
        for (u32 j = 0; j < o->nkids; j++) {
            while (r->kid[link] != o->kids[j])
                link++;
            g[link] += 1;
        }
    }
    f64 square = 0;
    for (u32 l = 0; l < r->nlinks; l++) {
        if (g[l] < 0 && r->price[l] <= 0)
            g[l] = 0;
        square += g[l] * g[l];
    }
    return square;
}

/* A start that costs little: what a class costs, shared by those that may demand it. */
static void first_prices(relaxation *r)
{
    u32 *users = r->pick;
    memset(users, 0, sizeof *users * r->n);
    for (u32 l = 0; l < r->nlinks; l++)
        users[r->kid[l]]++;
    for (u32 c = 0; c < r->n; c++)
        r->cheapest[c] = r->at[c].least;
    for (int round = 0; round < 20; round++) {
        for (u32 c = r->n; c-- > 0;) {
            f64 least = (f64)INFINITY;
            for (u32 i = 0; i < r->at[c].n; i++) {
                const choice *o = &r->at[c].at[i];
                f64 cost = o->cost;
                for (u32 j = 0; j < o->nkids; j++)
                    cost += r->cheapest[o->kids[j]] / users[o->kids[j]];
                least = fmin(least, cost);
            }
            r->cheapest[c] = least;
        }
    }
    for (u32 l = 0; l < r->nlinks; l++)
        r->price[l] = r->cheapest[r->kid[l]] / users[r->kid[l]];
}

/* Takes out choices that cost too much even so; at least one stays in each class. */
static void take_out(relaxation *r, f64 bound, f64 limit)
{
    const u32 *use = r->use;
    for (u32 c = 0; c < r->n; c++) {
        cls *k = &r->at[c];
        f64 forced = bound + (chosen(r, c) ? 0 : r->cheapest[c] - r->earned[c]);
        u32 kept = 0;
        for (u32 i = 0; i < k->n; i++) {
            f64 cost = k->at[i].cost;
            for (u32 j = 0; j < k->at[i].nkids; j++)
                cost += r->price[*use++];
            if (forced + cost - r->cheapest[c] < limit || i == r->pick[c])
                k->at[kept++] = k->at[i];
        }
        k->n = kept;
        k->least = (f64)INFINITY;
        for (u32 i = 0; i < kept; i++)
            k->least = fmin(k->least, k->at[i].cost);
    }
}

f64 eg_relax(arena *parent, cls *at, u32 n, const u8 *root, f64 best, f64 slack, f64 deadline)
{
    arena *a = arena_child(parent);
    relaxation r = {.at = at, .root = root, .n = n};
    bool whole = true; /* whole costs: so is the optimum */
    for (u32 c = 0; c < n; c++) {
        for (u32 i = 0; i < at[c].n; i++)
            whole = whole && at[c].at[i].cost == floor(at[c].at[i].cost);
    }
    whole = whole && best < 1e9;
    f64 limit = whole ? best - 1 + 1e-6 : best - slack;
    make_links(&r, a);
    r.price = NEW_N(a, f64, r.nlinks);
    r.earned = NEW_N(a, f64, n);
    r.cheapest = NEW_N(a, f64, n);
    r.pick = NEW_N(a, u32, n);
    f64 *g = NEW_N(a, f64, r.nlinks), *top = NEW_N(a, f64, r.nlinks), bound = 0, scale = 1.5;
    first_prices(&r);
    u32 since = 0;
    for (u32 round = 0; round < ROUNDS && bound <= limit; round++) {
        f64 now = evaluate(&r);
        if (now > bound) {
            bound = now;
            memcpy(top, r.price, sizeof *top * r.nlinks);
            since = 0;
        } else if (++since == PATIENCE) {
            scale /= 2;
            since = 0;
        }
        f64 square = subgradient(&r, g);
        if (square == 0 || scale < 1e-4 || ((round & 15) == 15 && now_s() > deadline))
            break;
        f64 step = scale * (best - now) / square;
        for (u32 l = 0; l < r.nlinks; l++)
            r.price[l] = fmax(0, r.price[l] + step * g[l]);
    }
    memcpy(r.price, top, sizeof *top * r.nlinks);
    bound = fmax(0, evaluate(&r));
    if (bound <= limit)
        take_out(&r, bound, limit);
    arena_free(a);
    return whole ? ceil(bound - 1e-6) : bound;
}
