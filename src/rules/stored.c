/* In which dtype a value is stored where a form stores it: the one that the program gives it. Casts between
 * floats leave no e-node, so a class may hold a value, its rounding to a half type and what is made of
 * that. It is stored in a half type where all that the program reads of it is rounded to that type
 * already; what some reader has in f32 stays in f32, as does what the program does not have. */
#include "rules/graph_impl.h"

static bool is_half(u8 t)
{
    return t == DT_f16 || t == DT_bf16;
}

/* Has b every value of a? */
static bool is_exact(u8 a, u8 b)
{
    return a == b || (is_half(a) && !is_half(b)) || (a == DT_f32 && b == DT_f64);
}

/* The narrowest float that has every value of both. */
static u8 join(u8 a, u8 b)
{
    if (a == DT_NONE || is_exact(a, b))
        return b;
    return b == DT_NONE || is_exact(b, a) ? a : DT_f32;
}

static bool is_float(const ir_program *p, ir_term t)
{
    return dtype_is_float((dtype)ir_get(p, t)->dtype);
}

static bool is_float_cast(const ir_program *p, const ir_node *n)
{
    return n->op == IR_cast && dtype_is_float((dtype)n->dtype) && is_float(p, n->args[0]);
}

static bool moves(const ir_node *n)
{
    return ir_row((ir_op)n->op)->class_ == IR_INDEX;
}

/* By term: the narrowest float that has all values which it may have. */
static u8 *find_held(arena *a, const ir_program *p)
{
    u8 *held = NEW_N(a, u8, p->nodes.n);
    for (i64 t = 1; t < p->nodes.n; t++) {
        const ir_node *n = &p->nodes.at[t];
        held[t] = n->dtype;
        if (is_float_cast(p, n)) {
            u8 x = held[n->args[0].i];
            held[t] = is_exact(x, n->dtype) ? x : n->dtype;
        } else if (moves(n) || n->op == IR_gather) {
            held[t] = held[n->args[0].i];
            for (i64 i = 1; i < n->arg_count && n->op == IR_concat; i++)
                held[t] = join(held[t], held[n->args[i].i]);
        }
    }
    return held;
}

/* By term: what its readers, outputs among them, have of it; DT_NONE where there are none. */
static u8 *find_read(arena *a, const ir_program *p, const u8 *held)
{
    u8 *read = NEW_N(a, u8, p->nodes.n);
    for (i64 i = 0; i < p->outputs.n; i++) {
        u32 t = p->outputs.at[i].term.i;
        read[t] = held[t];
    }
    for (i64 t = p->nodes.n - 1; t > 0; t--) {
        const ir_node *n = &p->nodes.at[t];
        bool passes = is_float_cast(p, n) || moves(n);
        for (i64 i = 0; i < n->arg_count && read[t] != DT_NONE; i++) {
            u32 x = n->args[i].i;
            if (is_float(p, n->args[i]))
                read[x] = join(read[x], passes && is_exact(read[t], held[x]) ? read[t] : held[x]);
            else
                read[x] = ir_get(p, n->args[i])->dtype;
        }
    }
    return read;
}

u8 *rl_stored_dtypes(const rl_graph *g, arena *a)
{
    const ir_program *p = g->p;
    arena *scratch = arena_child(a);
    const u8 *read = find_read(scratch, p, find_held(scratch, p));
    u8 *stored = NEW_N(a, u8, g->engine->class_ids);
    for (i64 t = 1; t < p->nodes.n; t++) {
        bool is_value = read[t] != DT_NONE && g->classes[t].i && is_float(p, (ir_term){(u32)t});
        u32 c = is_value ? eqf_find(g->engine, g->classes[t]).i : 0;
        stored[c] = c ? join(stored[c], read[t]) : DT_NONE;
    }
    for (u32 c = 0; c < g->engine->class_ids; c++) /* others would be casts of their own */
        stored[c] = g->real == DT_f32 && is_half(stored[c]) ? stored[c] : DT_NONE;
    arena_free(scratch);
    return stored;
}

u8 rl_stored_dtype_of_tiles(const rl_graph *g, const u8 *stored, eqf_class tiles)
{
    u8 found = DT_NONE;
    for (eqf_node n = eqf_next_node(g->engine, tiles, (eqf_node){0}); n.i;
         n = eqf_next_node(g->engine, tiles, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (rl_leaf_of(g, head) || rl_node_label(g, head).op != IR_view)
            continue;
        eqf_class whole = eqf_find(g->engine, eqf_node_child(g->engine, n, 0));
        if (!rl_graph_type(g, whole).axes)
            found = join(found, stored[whole.i]);
    }
    return is_half(found) ? found : DT_NONE;
}
