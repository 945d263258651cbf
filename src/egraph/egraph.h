/* egraph: the engine of equality saturation. It knows no tensor.
 *
 * What comes in: a language (operators, leaves), terms, rules, analyses. What goes out: classes of
 * equal terms, extractions, derivations. The story of one run: `add` interns e-nodes, `match` runs
 * the compiled patterns over new tuples, `run` applies the matches under budgets, `rebuild` restores
 * congruence, and again. `explain` reads the edges that unions left behind; `check_proof` replays
 * them and shares only the reader with the rest.
 *
 * Layout. An e-node is a record of u32 words in a segment of its arity (0..4, or longer ones),
 * in chunks that never move once full:
 *
 *     head | class | next member | stamp | arity x { child, next use }
 *
 * Its id carries the segment in the top 3 bits. Members of a class and uses of a class are lists
 * through the records, newest first, ended by 0. A use is a cell (e-node, slot),
 * numbered index * arity + slot. stamp = time << 6 | what changed then | hidden << 1 | dead.
 * parent[c] is the next class towards the root, or BODY | index of the body of a canonical class;
 * bodies of classes merged away are used again, so an old class id costs four bytes.
 *
 * Invariants (check.c): children and class of a live e-node are canonical after a rebuild; it is in
 * the hash-cons under exactly that key, once; it is once in the member list of its class and once
 * per slot in the use list of its child; no two live e-nodes have one key; every live e-node has
 * exactly one entry in the log of its operator whose epoch is its stamp.
 *
 * Memory. All of it comes from the context's allocator through eg_resize, which counts bytes against
 * the limit and never throws: reserve first, then commit. */
#ifndef EG_EGRAPH_H
#define EG_EGRAPH_H

#include "base/base.h"
#include "eqf_egraph.h"

typedef eqf_egraph eg;
typedef eqf_lang eg_lang;

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- language (lang.c) --------------------------------------------------------------------- */

enum { EG_OP_CLASSES = 0, EG_OP_SYMBOL = 1, EG_OP_NUMBER = 2, EG_OP_FIRST = 3 };

/* May replace (head, kids) of an e-node about to be stored by an equal one of at most the same arity;
 * returns whether it did. Runs at insertion and again when a child changes. In proofs the axiom
 * "normalise" says that the replaced e-node over the new one's children is the new one. */
typedef bool (*eg_normalise)(void *user, eg *g, u32 *head, u32 *kids);
/* The payload of an operator in text: the keywords after its operands. */
typedef struct eg_payload_form {
    bool (*read)(void *user, const sx *const *keywords, i64 n, u32 *payload);
    void (*print)(void *user, str *out, u32 payload);
    void *user;
} eg_payload_form;

typedef struct eg_op {
    u32 name, arity, flags;
    u32 plain; /* head with payload 0, or 0 */
    u32 nheads;
    eg_normalise normalise;
    void *normalise_user;
    const eg_payload_form *payload;
} eg_op;

typedef struct eg_number {
    bool is_int;
    i64 i;
    f64 f; /* also set for integers */
} eg_number;

typedef struct eg_headrow {
    u32 op, payload;
} eg_headrow;

struct eqf_lang {
    eqf_ctx *ctx;
    arena *a;
    intern *names;
    VEC(eg_op) ops;
    VEC(eg_headrow) heads;
    VEC(eg_number) numbers;
    VEC(eqf_guard) guards;
    VEC(eqf_dynamic) dynamics;
    u32 *op_slots, *head_slots, *number_slots; /* open addressing, 0 empty */
    u32 op_mask, head_mask, number_mask;
    bool closed;
    u64 rule_serial;
};

/* These throw when memory is out (call under TRY). */
u32 eg_lang_op(eg_lang *l, const char *name, u32 arity); /* 0 when closed and unknown */
u32 eg_lang_head(eg_lang *l, u32 op, u32 payload);
u32 eg_lang_symbol(eg_lang *l, const char *name, i64 n);
u32 eg_lang_number(eg_lang *l, eg_number v);
eg_number eg_number_int(i64 i);
eg_number eg_number_real(f64 f);
/* Sets the hooks of an operator. */
void eg_lang_hooks(eg_lang *l, u32 op, eg_normalise normalise, void *user,
                   const eg_payload_form *payload);
/* Head of the e-node written as the list or atom `x` (operands are items 1..*arity); throws
 * EQF_E_PARSE at its place. *arity counts operands, payload keywords excluded. */
u32 eg_head_of_sx(eg_lang *l, const char *file, const sx *x, u32 *arity);
/* Spelling of a head without operands; payload keywords separately by eg_print_payload. */
void eg_print_head(const eg_lang *l, str *out, u32 head);
void eg_print_payload(const eg_lang *l, str *out, u32 head);
static inline u32 eg_head_arity(const eg_lang *l, u32 head)
{
    return l->ops.at[l->heads.at[head].op].arity;
}

/* ---- the e-graph --------------------------------------------------------------------------- */

#define EG_SHIFT 16
#define EG_CHUNK (1u << EG_SHIFT)
#define EG_PAGE (32 * EG_CHUNK) /* bytes: a chunk of most records, a large page of most machines */
#define EG_MAX_ARITY 999
#define EG_INDEX 0x1FFFFFFFu
#define EG_BODY 0x80000000u
#define EG_LONG 5u
enum { N_HEAD, N_CLASS, N_NEXT, N_STAMP, N_KIDS };
enum { S_DEAD = 1, S_HIDDEN = 2, S_FLAGS = 3 };
/* What changed at an e-node's stamp: it was made, touched, or a child beyond the second is another;
 * its class is another; its first or second child is. */
enum { S_MADE = 4, S_MOVED = 8, S_KID = 16, S_WHAT = 60, S_TIME = 6 };
/* A run ends before an iteration that no stamp could tell from earlier ones. */
enum { EG_LAST_TIME = (1 << 26) - 1 };

/* Column of elements of `elem` bytes in chunks of EG_CHUNK; the last one may be shorter. A chunk of
 * binary e-nodes or of bodies is a large page. */
typedef struct eg_col {
    char **chunk;
    u32 n, cap; /* elements used, elements allocated */
    u32 elem, chunks_cap;
} eg_col;

static inline void *eg_at(const eg_col *c, u32 i)
{
    return c->chunk[i >> EG_SHIFT] + (size_t)(i & (EG_CHUNK - 1)) * c->elem;
}

typedef struct eg_body {
    u32 members, uses; /* first of each list, 0 empty */
    u32 nmembers, nuses;
    u32 stamp; /* time << 2 | queued */
    u32 self;  /* the class */
    u64 mask;  /* bit 0: a symbol leaf; bit 1 + op % 63: an e-node of that operator */
} eg_body;

typedef struct eg_epoch {
    u32 stamp, start;
} eg_epoch;
/* The e-nodes of one operator in order of their stamps. An entry counts when its epoch is the
 * e-node's stamp; others are left over from before it was stamped again. */
typedef struct eg_log {
    u32 *at;
    u32 n, cap;
    u32 alive, visible; /* e-nodes not dead; not hidden either */
    eg_epoch *epoch;
    u32 nepochs, epoch_cap;
    bool broken; /* an append failed: rebuild from the records before use */
} eg_log;

typedef struct eg_vec {
    u32 *at;
    u32 n, cap;
} eg_vec;

typedef struct eg_rule_state {
    const void *rule; /* key: rules object */
    u64 serial;
    u32 watermark;
    u32 banned_until, times_banned;
    eqf_rule_stats stats;
} eg_rule_state;

enum { EG_SWEEP_MIN = 256 };

struct eqf_egraph {
    eqf_ctx *ctx;
    eg_lang *lang;
    eqf_options options;

    eg_col seg[6];
    u32 *parent;
    u32 class_ids, parent_cap;
    eg_col body;
    eg_vec free_bodies;
    u32 nclasses;
    u64 *slot; /* hash << 32 | e-node; 0 empty */
    u32 slot_mask, slot_used;
    u32 grown; /* when it last grew: a stamp */
    eg_log *log; /* by operator; [EG_OP_CLASSES] holds classes */
    u32 nlogs;
    u32 now;
    u32 alive, visible, dead;
    u32 unions; /* so far, wrapping: tells a batch that a class id may be stale */

    eg_vec dirty; /* loser, its use list */
    eg_vec queue; /* classes whose data or members are new */
    u32 queue_head;
    eqf_analysis analysis[EQF_MAX_ANALYSES];
    eg_col data[EQF_MAX_ANALYSES];
    u32 nanalyses;
    bool has_modify;

    /* explanations: by segment the original children (e-nodes) and the edge {to, why} */
    eg_col orig[6], edge[6];
    eg_col rep;  /* by class id: the e-node that made it */
    eg_vec rows; /* rows of reasons; an edge's `why` is an offset | direction bit */
    eg_vec extra; /* a, b, row: axioms between terms that were equal already */

    eg_vec record;    /* e-nodes added by a dynamic right side: class, e-node, head, n, kids */
    bool recording;

    eg_vec journal;
    u32 marks;
    bool journal_lost; /* memory ran out under a mark */
    eg_vec mark_state;

    eg_rule_state *rule;
    u32 nrules, rules_cap;

    struct eg_page *spare; /* pages kept for the next use (mem.c) */
    u32 spare_pages, spare_most;

    i64 bytes, peak_bytes;
    i64 scratch_bytes;
    eqf_status fail; /* why the last reservation was refused */
    eqf_status conflict;
    const char *rule_name; /* being applied, for diagnostics; NULL outside */
    struct {               /* the first conflict since the last rebuild */
        u32 analysis, node[2]; /* e-nodes of the two sides; 0: what a caller joined */
        const char *rule;
    } refused;
};

/* mem.c. Counted, limited, never throwing. Returns NULL and sets g->fail. */
void *eg_resize(eg *g, void *p, i64 old_size, i64 size);
void eg_free(eg *g, void *p, i64 size);
/* Gives back spare pages; what is refused is asked for again after this. */
void eg_spare_free(eg *g);
bool eg_col_grow(eg *g, eg_col *c);
void eg_col_free(eg *g, eg_col *c);
bool eg_vec_grow(eg *g, eg_vec *v, u32 need);
/* Give back chunks that are not used; what is not used. */
void eg_col_drop(eg *g, eg_col *c);
void eg_col_trim(eg *g, eg_col *c);
void eg_vec_trim(eg *g, eg_vec *v);
void eg_vec_free(eg *g, eg_vec *v);
/* Room for one more element. */
static inline bool eg_col_room(eg *g, eg_col *c)
{
    return LIKELY(c->n < c->cap) || eg_col_grow(g, c);
}
static inline bool eg_vec_room(eg *g, eg_vec *v, u32 more)
{
    return LIKELY(v->cap - v->n >= more) || eg_vec_grow(g, v, v->n + more);
}
/* A diagnostic for g->fail; returns it. */
eqf_status eg_failed(eg *g, const char *what);

/* ---- access -------------------------------------------------------------------------------- */

static inline u32 *eg_rec(const eg *g, u32 n)
{
    return eg_at(&g->seg[n >> 29], n & EG_INDEX);
}
static inline u32 eg_node_arity(const eg *g, u32 n, const u32 *rec)
{
    u32 seg = n >> 29;
    return LIKELY(seg < EG_LONG) ? seg : eg_head_arity(g->lang, rec[N_HEAD]);
}
/* Words from one child to the next. */
static inline u32 eg_step(u32 n)
{
    return (n >> 29) == EG_LONG ? 4 : 2;
}
static inline u32 eg_find(const eg *g, u32 c)
{
    u32 p;
    while (!((p = g->parent[c]) & EG_BODY))
        c = p;
    return c;
}
static inline u32 eg_find_halving(eg *g, u32 c)
{
    u32 p;
    while (!((p = g->parent[c]) & EG_BODY)) {
        u32 q = g->parent[p];
        if (q & EG_BODY)
            return p;
        if (!g->marks)
            g->parent[c] = q;
        c = q;
    }
    return c;
}
static inline eg_body *eg_body_at(const eg *g, u32 i)
{
    return (eg_body *)g->body.chunk[i >> EG_SHIFT] + (i & (EG_CHUNK - 1));
}
/* `c` is canonical. */
static inline eg_body *eg_body_of(const eg *g, u32 c)
{
    return eg_body_at(g, g->parent[c] & ~EG_BODY);
}
static inline u64 eg_op_bit(u32 op)
{
    return op == EG_OP_SYMBOL ? 1 : (u64)2 << (op % 63);
}
/* The e-node and slot of a use cell. */
static inline u32 eg_cell_node(const eg *g, u32 cell, u32 *slot)
{
    u32 i = cell & EG_INDEX, seg = cell >> 29;
    switch (seg) {
    case 1: *slot = 0; return cell;
    case 2: *slot = i & 1; return 2u << 29 | i >> 1;
    case 3: *slot = i % 3; return 3u << 29 | i / 3;
    case 4: *slot = i & 3; return 4u << 29 | i >> 2;
    default: {
        const u32 *unit = eg_at(&g->seg[EG_LONG], i);
        *slot = unit[2];
        return EG_LONG << 29 | (i - 1 - unit[2]);
    }
    }
}
static inline u32 eg_cell_next(const eg *g, u32 cell)
{
    u32 slot, n = eg_cell_node(g, cell, &slot);
    return eg_rec(g, n)[N_KIDS + eg_step(n) * slot + 1];
}
static inline u32 eg_cell(u32 node, u32 slot)
{
    u32 i = node & EG_INDEX, seg = node >> 29;
    return seg << 29 | (seg == EG_LONG ? i + 1 + slot : i * seg + slot);
}
/* Does an entry of an epoch of this stamp count? */
static inline bool eg_log_counts(const eg *g, u32 op, u32 id, u32 stamp)
{
    if (op == EG_OP_CLASSES)
        return (g->parent[id] & EG_BODY) && eg_body_of(g, id)->stamp >> 2 == stamp;
    u32 s = eg_rec(g, id)[N_STAMP];
    return (s >> S_TIME == stamp) & !(s & S_DEAD);
}
static inline u32 eg_log_first(const eg_log *l, u32 watermark)
{
    u32 k = l->nepochs;
    while (k > 0 && l->epoch[k - 1].stamp >= watermark)
        k--;
    return k;
}

/* What an e-graph has; any change that is not undone again shows in it. */
typedef struct eg_state {
    u32 class_ids, nclasses, alive, visible, dead;
} eg_state;
static inline eg_state eg_state_of(const eg *g)
{
    return (eg_state){g->class_ids, g->nclasses, g->alive, g->visible, g->dead};
}
static inline bool eg_state_is(const eg *g, const eg_state *s)
{
    eg_state now = eg_state_of(g);
    return memcmp(&now, s, sizeof now) == 0;
}
static inline bool eg_class_exists(const eg *g, u32 c)
{
    return c > 0 && c < g->class_ids;
}
/* Is there a record of this id? */
static inline bool eg_node_exists(const eg *g, u32 n)
{
    u32 seg = n >> 29;
    return n && seg <= EG_LONG && (n & EG_INDEX) < g->seg[seg].n && eg_rec(g, n)[N_HEAD];
}
/* The diagnostic of a rebuild that ended in a contradiction: both terms, the analysis and the rule.
 * Returns EQF_E_CONTRADICTION. */
eqf_status eg_contradiction(eg *g);
/* EQF_E_ARGUMENT and a diagnostic that names `call` when there is no such class. */
eqf_status eg_check_class(const eg *g, eqf_class c, const char *call);

/* ---- graph.c ------------------------------------------------------------------------------- */

/* Internal classes and e-nodes are u32. kids need not be canonical. With `into` the e-node joins
 * that class. Returns the e-node, new or found, or 0 with g->fail set (nothing changed). kid_nodes
 * (may be NULL) are the e-nodes that stand for the children in explanations. */
u32 eg_add(eg *g, u32 head, u32 arity, const u32 *kids, const u32 *kid_nodes, u32 into,
           bool *is_new);
/* Live e-node with exactly this key; kids canonical. 0: none. */
u32 eg_lookup(const eg *g, u32 head, u32 arity, const u32 *kids);
/* Reserves what eg_union can need. */
bool eg_union_reserve(eg *g);
/* Merges two classes; false when they are one already. Reserve first. */
bool eg_union(eg *g, u32 a, u32 b);
eqf_status eg_rebuild(eg *g);
void eg_hide(eg *g, u32 n);
/* Joins `data` into analysis k of canonical class c. Reserve as for a union first. */
void eg_join_data(eg *g, u32 k, u32 c, const void *data);
/* Takes a live e-node out for good; its class keeps others. No mark is open, nothing is explained. */
void eg_remove(eg *g, u32 n);
/* Drops dead records: live ones move into their places (unless explanations name them), all lists
 * are made anew. E-node ids change; no mark is open. eg_rebuild calls it once the dead are a good
 * part of the graph. */
void eg_sweep(eg *g);
/* Gives back memory that growth left over, after a run. */
void eg_trim(eg *g);
/* Rebuilds a log whose append failed, or compacts it. */
bool eg_log_repair(eg *g, u32 op);
/* Enlarges the table of logs to the operators of the language. */
bool eg_logs_room(eg *g);

/* A term given as S-expression: adds it, or looks it up (0 when absent). Throws EQF_E_PARSE on a
 * malformed term; a full memory comes back as 0 with g->fail. */
u32 eg_add_sx(eg *g, const char *file, const sx *x, u32 *node);
u32 eg_lookup_sx(eg *g, const char *file, const sx *x, u32 *node);

/* ---- explanations (forest.c, explain.c) ---------------------------------------------------- */

/* Kinds of row: first word of a row in g->rows. */
enum { EG_ROW_RULE, EG_ROW_AXIOM, EG_ROW_NORMALISE };
enum {
    EG_WHY_GIVEN = 0xFFFFFFFCu, /* an equality taken over from another e-graph */
    EG_WHY_SWAPPED = 0xFFFFFFFDu, /* congruence with the operands exchanged */
    EG_WHY_CONGRUENCE = 0xFFFFFFFEu,
    EG_WHY_NONE = 0xFFFFFFFFu
};
typedef struct eg_edge {
    u32 to;  /* e-node, 0 at the root of a tree */
    u32 why; /* offset of a row << 1 | 1 when the row reads from `to` to here; or EG_WHY_* */
} eg_edge;
static inline eg_edge *eg_edge_of(const eg *g, u32 n)
{
    return eg_at(&g->edge[n >> 29], n & EG_INDEX);
}
static inline u32 *eg_orig(const eg *g, u32 n)
{
    return eg_at(&g->orig[n >> 29], n & EG_INDEX);
}
/* Links the trees of a and b (different classes so far, or b fresh): the row reads from a to b. */
void eg_link(eg *g, u32 a, u32 b, u32 row);
/* Offset of a new row, EG_WHY_NONE when there is no room. */
u32 eg_row(eg *g, const u32 *words, u32 n);
/* Number of a reason's text. 0 with g->fail when there is no room. */
u32 eg_reason(eg *g, const char *text, i64 n);
/* An instance of a term as a flat list in prefix order: head, e-node, head, e-node … EG_SWAP in the
 * head: the e-node has the two operands exchanged. */
#define EG_SWAP 0x80000000u
#define EG_WHOLE 0x7FFFFFFFu /* instead of a head: the e-node's own term */
eqf_status eg_axiom(eg *g, const u32 *left, u32 nleft, const u32 *right, u32 nright, u32 reason,
                    bool *changed);
/* Writes the instance of `x`, whose sub-terms are all present; false when there is no room. */
bool eg_instance(eg *g, const char *file, const sx *x, eg_vec *out);
/* Adds both terms and unites them; the axiom `reason` is recorded with exactly these terms. */
eqf_status eg_union_sx(eg *g, const char *file, const sx *left, const sx *right, eqf_text reason,
                       bool *changed);

/* ---- journal.c ----------------------------------------------------------------------------- */

enum { J_NODE, J_BODY, J_PARENT, J_INSERT, J_REMOVE, J_DATA, J_EDGE, J_RULE };
void eg_journal_node(eg *g, u32 n, u32 word, u32 old);
void eg_journal_body(eg *g, u32 body);
void eg_journal_parent(eg *g, u32 c);
void eg_journal_slot(eg *g, u32 kind, u32 hash, u32 n);
void eg_journal_edge(eg *g, u32 n);
void eg_journal_data(eg *g, u32 analysis, u32 body);
void eg_journal_rule(eg *g, u32 rule);
/* Hash-cons without keys: for undo. */
void eg_slot_insert(eg *g, u32 hash, u32 n);
void eg_slot_remove(eg *g, u32 hash, u32 n);

#endif
