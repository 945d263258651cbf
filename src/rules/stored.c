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

/* By canonical class, what the program's terms in it say; DT_NONE: no half type. */
static u8 *find_declared(const rl_graph *g, arena *a, const u8 *read)
{
    const ir_program *p = g->p;
    u8 *stored = NEW_N(a, u8, g->engine->class_ids);
    for (i64 t = 1; t < p->nodes.n; t++) {
        bool is_value = read[t] != DT_NONE && g->classes[t].i && is_float(p, (ir_term){(u32)t});
        u32 c = is_value ? eqf_find(g->engine, g->classes[t]).i : 0;
        stored[c] = c ? join(stored[c], read[t]) : DT_NONE;
    }
    for (u32 c = 0; c < g->engine->class_ids; c++) /* others would be casts of their own */
        stored[c] = g->real == DT_f32 && is_half(stored[c]) ? stored[c] : DT_NONE;
    return stored;
}

u8 *rl_stored_dtypes(const rl_graph *g, arena *a)
{
    arena *scratch = arena_child(a);
    u8 *stored = find_declared(g, a, find_read(scratch, g->p, find_held(scratch, g->p)));
    arena_free(scratch);
    return stored;
}

/* ---- in a form ----------------------------------------------------------------------------------
 *
 * Rules find that one value can be made of another of which the program does not make it: then a value that
 * the program reads rounded everywhere would have a reader in the form that is exact in the program. And errors
 * cancel where two readers see one rounded value (a maximum that is subtracted above and below a fraction
 * bar), but not where one of them sees it unrounded, in the loop that makes it, say. So a value is stored in
 * a half type where the program's values that the form makes of what is stored are just those that the program
 * makes of the rounded one. */

typedef struct form_user {
    u32 user, next; /* class; index + 1 */
} form_user;

typedef struct form_walk {
    const rl_graph *g;
    arena *a;
    const u8 *declared, *held; /* by class; by term */
    const u8 *read;            /* by term */
    u32 *first_term, *next_term; /* by class, by term: the program's terms in a class */
    u32 *origin;               /* by class: the class of whole values that it is, or has the tiles of; 0: none of the program's */
    u32 *first_user;           /* by class: index + 1 */
    u32 *place; /* by class: index among `classes` + 1 */
    VEC(form_user) users;
    VEC(u32) classes; /* of the form, those that were seen */
} form_walk;

static u32 origin_of(const form_walk *w, eqf_class c)
{
    if (w->first_term[c.i])
        return c.i;
    const rl_graph *g = w->g;
    for (eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0}); n.i; n = eqf_next_node(g->engine, c, n)) {
        eqf_head head = eqf_node_head(g->engine, n);
        if (rl_leaf_of(g, head) || rl_node_label(g, head).op != IR_view)
            continue;
        eqf_class whole = eqf_find(g->engine, eqf_node_child(g->engine, n, 0));
        if (w->first_term[whole.i] && !rl_graph_type(g, whole).axes)
            return whole.i;
    }
    return 0;
}

static void see(form_walk *w, eqf_class c)
{
    if (w->place[c.i])
        return;
    w->origin[c.i] = origin_of(w, c);
    vec_push(w->a, &w->classes, c.i);
    w->place[c.i] = (u32)w->classes.n;
}

/* Classes of the form from its outputs down, with their users. */
static void walk_form(form_walk *w, const rl_choice *choice)
{
    eqf_egraph *e = w->g->engine;
    for (i64 i = 0; i < w->g->p->outputs.n; i++)
        if (w->g->p->outputs.at[i].term.i)
            see(w, rl_graph_class(w->g, w->g->p->outputs.at[i].term));
    for (i64 k = 0; k < w->classes.n; k++) {
        u32 user = w->classes.at[k];
        eqf_node n = choice->node(choice->user, (eqf_class){user});
        if (!n.i)
            continue;
        unsigned arity = (unsigned)eqf_head_arity(w->g->lang, eqf_node_head(e, n));
        for (unsigned i = 0; i < arity; i++) {
            eqf_class kid = eqf_find(e, eqf_node_child(e, n, i));
            see(w, kid);
            vec_push(w->a, &w->users, ((form_user){user, w->first_user[kid.i]}));
            w->first_user[kid.i] = (u32)w->users.n;
        }
    }
}

/* By term: is it made of what the class holds rounded? */
static bool *made_of_rounded(const form_walk *w, u32 class_)
{
    const ir_program *p = w->g->p;
    bool *made = NEW_N(w->a, bool, p->nodes.n);
    for (u32 t = w->first_term[class_]; t; t = w->next_term[t])
        made[t] = w->held[t] == w->declared[class_];
    for (i64 t = 1; t < p->nodes.n; t++)
        for (i64 i = 0; i < p->nodes.at[t].arg_count && !made[t]; i++)
            made[t] = made[p->nodes.at[t].args[i].i];
    return made;
}

/* Has the class of the form a reader that does not see what is stored: an operator on tiles that are not, or
 * one that runs along in the loop that makes it? */
static bool is_read_unstored(const form_walk *w, const rl_choice *choice, u32 c)
{
    const rl_graph *g = w->g;
    eqf_node made = choice->node(choice->user, (eqf_class){c});
    bool is_tile = rl_graph_type(g, (eqf_class){c}).axes != 0;
    for (u32 i = w->first_user[c]; i && is_tile && !choice->is_stored(choice->user, (eqf_class){c});
         i = w->users.at[i - 1].next) {
        eqf_node user = choice->node(choice->user, (eqf_class){w->users.at[i - 1].user});
        if (rl_node_label(g, eqf_node_head(g->engine, user)).op != IR_comb)
            return true;
    }
    if (!made.i || rl_leaf_of(g, eqf_node_head(g->engine, made)) ||
        rl_node_label(g, eqf_node_head(g->engine, made)).op != IR_get)
        return false;
    u32 component = eqf_find(g->engine, eqf_node_child(g->engine, made, 1)).i;
    for (u32 i = w->first_user[component]; i; i = w->users.at[i - 1].next) {
        eqf_node user = choice->node(choice->user, (eqf_class){w->users.at[i - 1].user});
        ir_op op = rl_node_label(g, eqf_node_head(g->engine, user)).op;
        if (op != IR_loop && op != IR_get)
            return true;
    }
    return false;
}

/* Are the program's values that the form makes of it those that the program makes of it rounded? */
static bool may_be_narrow(form_walk *w, const rl_choice *choice, u32 class_)
{
    const bool *made = made_of_rounded(w, class_);
    bool *queued = NEW_N(w->a, bool, w->classes.n + 1); /* by place */
    VEC(u32) open = {0};
    for (i64 k = 0; k < w->classes.n; k++)
        if (w->origin[w->classes.at[k]] == class_) {
            if (is_read_unstored(w, choice, w->classes.at[k]))
                return false;
            vec_push(w->a, &open, w->classes.at[k]);
            queued[k + 1] = true;
        }
    for (i64 k = 0; k < open.n; k++)
        for (u32 i = w->first_user[open.at[k]]; i; i = w->users.at[i - 1].next) {
            u32 user = w->users.at[i - 1].user, origin = w->origin[user];
            for (u32 t = origin == class_ ? 0 : w->first_term[origin]; t; t = w->next_term[t])
                if (!made[t])
                    return false;
            if (!queued[w->place[user]]) {
                vec_push(w->a, &open, user);
                queued[w->place[user]] = true;
            }
        }
    for (i64 k = 0; k < w->classes.n; k++)
        for (u32 t = queued[k + 1] ? 0 : w->first_term[w->origin[w->classes.at[k]]]; t; t = w->next_term[t])
            if (made[t])
                return false;
    return true;
}

u8 *rl_form_dtypes(const rl_graph *g, arena *a, const rl_choice *choice)
{
    const ir_program *p = g->p;
    u32 classes = g->engine->class_ids;
    u8 *stored = NEW_N(a, u8, classes);
    form_walk w = {.g = g, .a = arena_child(a)};
    w.held = find_held(w.a, p);
    w.read = find_read(w.a, p, w.held);
    w.declared = find_declared(g, w.a, w.read);
    bool any = false;
    for (u32 c = 0; c < classes; c++)
        any = any || w.declared[c] != DT_NONE;
    if (any) {
        w.first_term = NEW_N(w.a, u32, classes);
        w.next_term = NEW_N(w.a, u32, p->nodes.n);
        w.origin = NEW_N(w.a, u32, classes);
        w.first_user = NEW_N(w.a, u32, classes);
        w.place = NEW_N(w.a, u32, classes);
        for (u32 t = 1; t < (u32)p->nodes.n; t++) {
            if (w.read[t] == DT_NONE || !g->classes[t].i)
                continue;
            u32 c = eqf_find(g->engine, g->classes[t]).i;
            w.next_term[t] = w.first_term[c];
            w.first_term[c] = t;
        }
        walk_form(&w, choice);
        u8 *narrow = NEW_N(w.a, u8, classes); /* 1: may be, 2: may not */
        for (i64 k = 0; k < w.classes.n; k++) {
            u32 c = w.classes.at[k], of = w.origin[c];
            if (w.declared[of] == DT_NONE)
                continue;
            if (!narrow[of])
                narrow[of] = may_be_narrow(&w, choice, of) ? 1 : 2;
            stored[c] = narrow[of] == 1 ? w.declared[of] : DT_NONE;
        }
    }
    arena_free(w.a);
    return stored;
}

/* ---- what is rounded on the way ---------------------------------------------------------------- */

/* Does it lose what its operands hold? Arithmetic in a half type rounds its result. */
static bool rounds(const ir_program *p, const u8 *held, const ir_node *n)
{
    u8 class_ = ir_row((ir_op)n->op)->class_;
    if (is_float_cast(p, n))
        return !is_exact(held[n->args[0].i], n->dtype);
    return is_half(n->dtype) && (class_ == IR_EWISE || class_ == IR_REDUCE || class_ == IR_MATMUL);
}

rl_roundings rl_roundings_below(arena *a, const ir_program *p, ir_term out)
{
    arena *scratch = arena_child(a);
    const u8 *held = find_held(scratch, p);
    bool *below = NEW_N(scratch, bool, p->nodes.n);
    rl_roundings r = {0};
    below[out.i] = true;
    for (u32 t = out.i; t > 0; t--) {
        const ir_node *n = &p->nodes.at[t];
        for (i64 i = 0; below[t] && i < n->arg_count; i++)
            below[n->args[i].i] = true;
        bool is_one = below[t] && t != out.i && rounds(p, held, n);
        r.f16 += is_one && n->dtype == DT_f16;
        r.bf16 += is_one && n->dtype == DT_bf16;
    }
    arena_free(scratch);
    return r;
}
