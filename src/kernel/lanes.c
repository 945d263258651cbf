/* How many lanes a tile has along each axis of a kernel: a schedule by rule of thumb, from where
 * values lie and what products sum.
 *
 * Atoms that both operands of a product have and that it does not sum get one lane, as do all but
 * one of its rows, of its columns and of what it sums. Then tiles are cut until every value has at
 * most three dims and few enough elements to stay in the first-level cache. */
#include "kernel/tiled.h"

enum { LONG = 256, SUMMED = 64, ALONG = 4096, STREAMED = 1 << 16, FEW = 16, COLUMNS = 64, WIDE = 128, ROW = 1024, ROWS = 32, FEW_ROWS = 8, LARGEST = 4096, VECTOR = 16 };

typedef struct roles {
    kn_lower *l;
    bool *seen;        /* by term: part of the kernel */
    bool *referred;    /* by term: in memory, and only products read it, where it lies */
    bool *streamed;    /* by term: read once, by a product with few rows */
    bool *cut;         /* by atom: has an axis here */
    bool *combined;    /* by atom: a loop here runs over it */
    bool *multiplied;  /* by term: a product here is made for it */
    bool *costly;      /* by atom: for each tile of it a product is made anew */
    i64 *least;        /* by atom: fewer lanes cost more than a thread more brings; 0: 1 */
    i64 *lanes;
} roles;

static i64 extent(const roles *r, ir_atom d)
{
    return ir_extent(r->l->p, d);
}

/* n cut into equal tiles of at most `most`, of whole vectors if that can be, or unequal ones when that
 * would make small tiles. */
static i64 fit(i64 n, i64 most)
{
    if (n <= most)
        return n;
    for (i64 d = most / VECTOR * VECTOR; d > 0 && d >= most / 2; d -= VECTOR)
        if (n % d == 0)
            return d;
    for (i64 d = most; d > most / 2; d--)
        if (n % d == 0)
            return d;
    return most;
}

static void find_terms(roles *r, u32 root)
{
    const ir_program *p = r->l->p;
    r->seen[root] = true;
    for (u32 k = root; k > 0; k--) {
        const ir_node *node = &p->nodes.at[k];
        if (!r->seen[k] || (node->axes.n == 0 && r->l->at[k].where != KN_ABSENT))
            continue;
        for (i64 i = 0; i < node->axes.n; i++)
            r->cut[node->axes.at[i].i] = true;
        bool combines = node->op == IR_loop || node->op == IR_reduce;
        for (i64 i = 0; combines && i < node->attr.par.n; i++)
            r->combined[node->attr.par.at[i].i] = true;
        for (i64 i = 0; i < node->arg_count; i++)
            r->seen[node->args[i].i] = true;
    }
}

/* Dims along which an operand of a product lies whose other operand is made by a product. */
static void find_costly(roles *r, u32 root)
{
    const ir_program *p = r->l->p;
    for (u32 k = 1; k <= root; k++) {
        const ir_node *node = &p->nodes.at[k];
        if (!r->seen[k] || (node->axes.n == 0 && r->l->at[k].where != KN_ABSENT))
            continue;
        bool is_product = node->op == IR_tile_matmul || node->op == IR_matmul;
        r->multiplied[k] = is_product;
        for (i64 i = 0; i < node->arg_count; i++)
            r->multiplied[k] |= r->multiplied[node->args[i].i];
        for (i64 o = 0; is_product && o < 2; o++) {
            const ir_node *x = &p->nodes.at[node->args[o].i];
            for (i64 i = 0; i < x->dims.n && r->multiplied[node->args[1 - o].i]; i++)
                r->costly[x->dims.at[i].i] = true;
        }
    }
}

/* Views that nothing but products uses. */
static void find_referred(roles *r, u32 root)
{
    const ir_program *p = r->l->p;
    for (u32 k = 1; k <= root; k++)
        r->referred[k] = p->nodes.at[k].op == IR_view;
    for (u32 k = 1; k <= root; k++) {
        const ir_node *node = &p->nodes.at[k];
        for (i64 i = 0; r->seen[k] && node->op != IR_tile_matmul && i < node->arg_count; i++)
            r->referred[node->args[i].i] = false;
    }
}

/* Did it have more? */
static bool limit(roles *r, ir_atom d, i64 most)
{
    if (!r->cut[d.i] || r->lanes[d.i] <= most)
        return false;
    r->lanes[d.i] = fit(extent(r, d), most);
    return true;
}

/* Leaves lanes to the atom of the list with the most positions only. */
static void keep_one(roles *r, const ir_atom *at, i64 n, i64 most)
{
    i64 best = -1;
    for (i64 i = 0; i < n; i++)
        if (r->lanes[at[i].i] > 1 &&
            (best < 0 || !r->cut[at[i].i] || extent(r, at[i]) > extent(r, at[best])))
            best = i;
    for (i64 i = 0; i < n; i++)
        limit(r, at[i], i == best ? most : 1);
}

static i64 rows_of(const roles *r, const ir_atom *at, i64 n)
{
    i64 rows = 1;
    for (i64 i = 0; i < n; i++)
        rows *= r->lanes[at[i].i];
    return rows;
}

static void limit_product(roles *r, const ir_node *node)
{
    const ir_program *p = r->l->p;
    const ir_node *x[2] = {&p->nodes.at[node->args[0].i], &p->nodes.at[node->args[1].i]};
    i64 n[3] = {0};
    ir_atom *at[3];
    for (i64 i = 0; i < 3; i++)
        at[i] = NEW_N(r->l->a, ir_atom, x[0]->dims.n + x[1]->dims.n + 1);
    for (i64 o = 0; o < 2; o++)
        for (i64 i = 0; i < x[o]->dims.n; i++) {
            ir_atom d = x[o]->dims.at[i];
            bool shared = ir_has(x[1 - o]->dims, d);
            if (!ir_has(node->attr.axis, d)) {
                if (shared)
                    limit(r, d, 1);
                else
                    at[o][n[o]++] = d;
            } else if (o == 0 || !shared) {
                at[2][n[2]++] = d;
            }
        }
    /* what is computed on one side is computed again for each tile of the other's dim; that is long where
     * a product makes few rows */
    bool is_made[2] = {r->multiplied[node->args[0].i], r->multiplied[node->args[1].i]};
    for (i64 o = 0; o < 2; o++) {
        bool is_read = x[1 - o]->op == IR_view;
        i64 rows = rows_of(r, at[1 - o], n[1 - o]), most = is_read ? COLUMNS : WIDE;
        keep_one(r, at[o], n[o], is_made[1 - o] ? MAX(MIN(LARGEST / rows, ROW), WIDE) : most);
        r->streamed[node->args[o].i] |= is_made[1 - o] && rows <= FEW_ROWS;
        for (i64 i = 0; i < n[o]; i++)
            r->least[at[o][i].i] = MAX(r->least[at[o][i].i], is_read ? VECTOR : WIDE);
    }
    i64 one = rows_of(r, at[0], n[0]) == 1 ? 0 : rows_of(r, at[1], n[1]) == 1 ? 1 : -1;
    bool few = MIN(rows_of(r, at[0], n[0]), rows_of(r, at[1], n[1])) < 8;
    keep_one(r, at[2], n[2], one >= 0 ? ALONG : few ? 4 * SUMMED : SUMMED);
    if (one < 0)
        return;
    /* one row: of the other side each row is a stream, as long as can be, and few at a time */
    i64 along = MAX(rows_of(r, at[2], n[2]), 1);
    for (i64 i = 0; i < n[1 - one] && !is_made[one]; i++)
        limit(r, at[1 - one][i], MIN(MAX(STREAMED / along, FEW), COLUMNS));
    r->streamed[node->args[1 - one].i] = true;
}

static i64 lanes_in(const roles *r, const ir_node *node, ir_atom d)
{
    bool is_cut = node->is_open ? r->cut[d.i] : ir_has(node->axes, d);
    return is_cut ? r->lanes[d.i] : extent(r, d);
}

/* Cuts the tile of one value: first to three dims, then in size. False when it is small enough, or
 * cannot be cut. */
static bool cut_value(roles *r, u32 k)
{
    const ir_node *node = &r->l->p->nodes.at[k];
    i64 dims = 0, size = 1, most = -1, least = -1;
    for (i64 i = 0; i < node->dims.n; i++) {
        ir_atom d = node->dims.at[i];
        i64 lanes = lanes_in(r, node, d);
        if (lanes == 1)
            continue;
        dims++;
        size *= lanes;
        if (!r->cut[d.i] || lanes != r->lanes[d.i])
            continue;
        if (most < 0 || lanes > lanes_in(r, node, node->dims.at[most]))
            most = i;
        if (least < 0 || lanes < lanes_in(r, node, node->dims.at[least]))
            least = i;
    }
    if (dims > KN_RANK && least >= 0)
        return limit(r, node->dims.at[least], 1);
    i64 largest = !r->referred[k] ? LARGEST : r->streamed[k] ? INT64_MAX : 2 * LARGEST;
    if (size > largest && most >= 0)
        return limit(r, node->dims.at[most], MAX(lanes_in(r, node, node->dims.at[most]) / 2, 1));
    return false;
}

/* Cuts the result into at least as many parts as there are threads, where that is cheap. */
static void spread(roles *r, const ir_node *root)
{
    for (;;) {
        i64 parts = 1, most = -1;
        for (i64 i = 0; i < root->dims.n; i++) {
            ir_atom d = root->dims.at[i];
            if (!r->cut[d.i] || r->combined[d.i])
                continue;
            parts *= (extent(r, d) + r->lanes[d.i] - 1) / r->lanes[d.i];
            if (r->lanes[d.i] > MAX(r->least[d.i], 1) &&
                (most < 0 || r->lanes[d.i] > r->lanes[root->dims.at[most].i]))
                most = i;
        }
        if (parts >= r->l->o.threads || most < 0)
            return;
        ir_atom d = root->dims.at[most];
        limit(r, d, MAX(r->lanes[d.i] / 2, MAX(r->least[d.i], 1)));
    }
}

/* Parts of unequal size: one at a time, in tiles that are whole but for the end of the last part. */
static bool is_part(const roles *r, ir_atom d, bool inner)
{
    const ir_split *s = r->cut[d.i] ? kn_ragged_split(r->l, d) : NULL;
    return s && d.i == (inner ? s->inner.i : s->outer.i);
}

const i64 *kn_choose_lanes(kn_lower *l, u32 root, const kn_loc *out)
{
    const ir_program *p = l->p;
    roles r = {.l = l};
    r.seen = NEW_N(l->a, bool, p->nodes.n);
    r.referred = NEW_N(l->a, bool, p->nodes.n);
    r.streamed = NEW_N(l->a, bool, p->nodes.n);
    r.cut = NEW_N(l->a, bool, p->atoms.n);
    r.combined = NEW_N(l->a, bool, p->atoms.n);
    r.multiplied = NEW_N(l->a, bool, p->nodes.n);
    r.costly = NEW_N(l->a, bool, p->atoms.n);
    r.least = NEW_N(l->a, i64, p->atoms.n);
    r.lanes = NEW_N(l->a, i64, p->atoms.n);
    find_terms(&r, root);
    find_costly(&r, root);
    find_referred(&r, root);
    for (u32 d = 1; d < (u32)p->atoms.n; d++) {
        ir_atom atom = {d};
        i64 n = extent(&r, atom);
        bool outer = ir_has(p->nodes.at[root].dims, atom) && kn_stride(out, atom) != 1;
        r.lanes[d] = is_part(&r, atom, false) ? 1
                     : r.cut[d]               ? fit(n, !outer ? (r.costly[d] ? ROW : LONG) : r.costly[d] ? WIDE : ROWS)
                                              : n;
    }
    for (u32 k = 1; k <= root; k++)
        if (r.seen[k] && (p->nodes.at[k].op == IR_tile_matmul || p->nodes.at[k].op == IR_matmul))
            limit_product(&r, &p->nodes.at[k]);
    for (u32 k = 1; k <= root; k++)
        while (r.seen[k] && ir_kind_of((ir_op)p->nodes.at[k].op) == IR_A_VALUE &&
               l->at[k].where == KN_ABSENT && cut_value(&r, k)) {
        }
    spread(&r, &p->nodes.at[root]);
    for (u32 d = 1; d < (u32)p->atoms.n; d++)
        while (is_part(&r, (ir_atom){d}, true) && extent(&r, (ir_atom){d}) % r.lanes[d] != 0)
            r.lanes[d]--;
    if (l->o.lanes)
        for (u32 d = 1; d < (u32)p->atoms.n; d++)
            if (r.cut[d] && l->o.lanes[d] > 0)
                r.lanes[d] = MIN(l->o.lanes[d], extent(&r, (ir_atom){d}));
    return r.lanes;
}
