/* dims: the variables that positional dims are made of.
 *
 * Two forests. `parent` is the union-find of equal variables. A root may be split into an ordered
 * product of parts; a root without parts is a leaf, and leaves become atoms. `shape` is the
 * union-find of variables that are cut alike (equal ones, and the two sides of a rename); it holds
 * the pin and the members that a split must reach.
 *
 * Two leaves are *apart* when some value has both: they must never become one. This is the
 * interference graph of register coalescing; parts inherit the neighbours of what was split, and
 * are apart among themselves. Representatives are the oldest variables, so the outcome depends on
 * the order of the program alone. */
#include "frontend/lower.h"

typedef VEC(u32) id_list;

typedef struct var {
    u32 parent, shape;
    i64 extent;
    id_list parts;      /* of a root that was split */
    id_list members;    /* of a shape root: the roots to split (may hold stale ids) */
    id_list neighbours; /* of a root: what it is apart from (may hold stale ids) */
    i64 pins;           /* of a shape root: the terms that need it whole */
} var;

struct fe_space {
    arena *a;
    VEC(var) vars;
    u64 *edges; /* open addressing over (low, high) pairs; 0: free */
    i64 edge_slots, edge_count;
};

fe_space *fe_space_new(arena *a)
{
    fe_space *s = NEW(a, fe_space);
    s->a = a;
    vec_push(a, &s->vars, (var){0});
    s->edge_slots = 1024;
    s->edges = NEW_N(a, u64, s->edge_slots);
    return s;
}

u32 fe_var_new(fe_space *s, i64 extent)
{
    u32 id = (u32)s->vars.n;
    vec_push(s->a, &s->vars, (var){.parent = id, .shape = id, .extent = extent});
    vec_push(s->a, &s->vars.at[id].members, id);
    return id;
}

i64 fe_var_extent(const fe_space *s, u32 v)
{
    return s->vars.at[v].extent;
}

static u32 find(fe_space *s, u32 v)
{
    while (s->vars.at[v].parent != v) {
        s->vars.at[v].parent = s->vars.at[s->vars.at[v].parent].parent;
        v = s->vars.at[v].parent;
    }
    return v;
}

static u32 find_shape(fe_space *s, u32 v)
{
    v = find(s, v);
    while (s->vars.at[v].shape != v) {
        s->vars.at[v].shape = s->vars.at[s->vars.at[v].shape].shape;
        v = s->vars.at[v].shape;
    }
    return v;
}

static void flatten(fe_space *s, u32 v, id_list *out)
{
    v = find(s, v);
    if (!s->vars.at[v].parts.n) {
        vec_push(s->a, out, v);
        return;
    }
    for (i64 i = 0; i < s->vars.at[v].parts.n; i++)
        flatten(s, s->vars.at[v].parts.at[i], out);
}

fe_vars fe_flat(fe_space *s, fe_vars vars)
{
    bool is_flat = true;
    for (i64 i = 0; i < vars.n && is_flat; i++)
        is_flat = s->vars.at[vars.at[i]].parent == vars.at[i] && !s->vars.at[vars.at[i]].parts.n;
    if (is_flat)
        return vars;
    id_list out = {0};
    for (i64 i = 0; i < vars.n; i++)
        flatten(s, vars.at[i], &out);
    return (fe_vars){out.at, out.n};
}

/* ---- apart --------------------------------------------------------------------------------- */

static u64 edge_key(u32 a, u32 b)
{
    return a < b ? (u64)a << 32 | b : (u64)b << 32 | a;
}

static bool edge_has(const fe_space *s, u32 a, u32 b)
{
    u64 key = edge_key(a, b);
    for (u64 h = hash_u64(key, 0);; h++) {
        u64 at = s->edges[h & (u64)(s->edge_slots - 1)];
        if (at == key || !at)
            return at == key;
    }
}

static void edge_put(u64 *edges, i64 slots, u64 key)
{
    u64 h = hash_u64(key, 0);
    while (edges[h & (u64)(slots - 1)])
        h++;
    edges[h & (u64)(slots - 1)] = key;
}

static void edge_add(fe_space *s, u32 a, u32 b)
{
    if (a == b || edge_has(s, a, b))
        return;
    if (++s->edge_count * 2 > s->edge_slots) {
        u64 *edges = NEW_N(s->a, u64, s->edge_slots * 2);
        for (i64 i = 0; i < s->edge_slots; i++)
            if (s->edges[i])
                edge_put(edges, s->edge_slots * 2, s->edges[i]);
        s->edges = edges;
        s->edge_slots *= 2;
    }
    edge_put(s->edges, s->edge_slots, edge_key(a, b));
    vec_push(s->a, &s->vars.at[a].neighbours, b);
    vec_push(s->a, &s->vars.at[b].neighbours, a);
}

void fe_keep_apart(fe_space *s, fe_vars vars)
{
    vars = fe_flat(s, vars);
    for (i64 i = 0; i < vars.n; i++)
        for (i64 k = 0; k < i; k++)
            edge_add(s, vars.at[i], vars.at[k]);
}

/* ---- unify, split, pin --------------------------------------------------------------------- */

static void join_shapes(fe_space *s, u32 a, u32 b)
{
    a = find_shape(s, a), b = find_shape(s, b);
    if (a == b)
        return;
    if (b < a) {
        u32 t = a;
        a = b, b = t;
    }
    s->vars.at[b].shape = a;
    s->vars.at[a].pins += s->vars.at[b].pins;
    for (i64 i = 0; i < s->vars.at[b].members.n; i++)
        vec_push(s->a, &s->vars.at[a].members, s->vars.at[b].members.at[i]);
}

bool fe_unify(fe_space *s, u32 a, u32 b)
{
    a = find(s, a), b = find(s, b);
    if (a == b)
        return true;
    if (s->vars.at[a].extent != s->vars.at[b].extent || edge_has(s, a, b))
        return false;
    join_shapes(s, a, b);
    if (b < a) {
        u32 t = a;
        a = b, b = t;
    }
    /* The shape of a root is found through the root, so the younger one hands its link over. */
    u32 shape = find_shape(s, a);
    s->vars.at[b].parent = a;
    if (shape == b) {
        s->vars.at[a].shape = a;
        s->vars.at[a].members = s->vars.at[b].members;
        s->vars.at[a].pins = s->vars.at[b].pins;
    }
    for (i64 i = 0; i < s->vars.at[b].neighbours.n; i++)
        edge_add(s, a, find(s, s->vars.at[b].neighbours.at[i]));
    return true;
}

void fe_link(fe_space *s, u32 a, u32 b)
{
    join_shapes(s, a, b);
}

bool fe_is_pinned(fe_space *s, u32 v)
{
    return s->vars.at[find_shape(s, v)].pins > 0;
}

void fe_pin(fe_space *s, u32 v)
{
    s->vars.at[find_shape(s, v)].pins++;
}

void fe_unpin(fe_space *s, u32 v)
{
    s->vars.at[find_shape(s, v)].pins--;
}

bool fe_split(fe_space *s, u32 v, const i64 *extents, i64 n)
{
    u32 shape = find_shape(s, v);
    if (s->vars.at[shape].pins > 0)
        return false;
    id_list members = s->vars.at[shape].members;
    u32 *first = NEW_N(s->a, u32, n); /* part i of the first member split: its siblings' shape */
    for (i64 m = 0; m < members.n; m++) {
        u32 root = find(s, members.at[m]);
        if (s->vars.at[root].parts.n)
            continue; /* a stale id of a root that is split by now */
        id_list parts = {0};
        for (i64 i = 0; i < n; i++) {
            u32 part = fe_var_new(s, extents[i]);
            vec_push(s->a, &parts, part);
            if (first[i])
                join_shapes(s, first[i], part);
            else
                first[i] = part;
        }
        for (i64 i = 0; i < n; i++) {
            for (i64 k = 0; k < i; k++)
                edge_add(s, parts.at[i], parts.at[k]);
            for (i64 k = 0; k < s->vars.at[root].neighbours.n; k++) {
                id_list leaves = {0};
                flatten(s, s->vars.at[root].neighbours.at[k], &leaves);
                for (i64 j = 0; j < leaves.n; j++)
                    edge_add(s, parts.at[i], leaves.at[j]);
            }
        }
        s->vars.at[root].parts = parts;
    }
    return true;
}
