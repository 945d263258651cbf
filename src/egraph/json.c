/* extraction-gym's JSON: {"nodes": {ID: {"op", "children": [node ids], "eclass", "cost",
 * "subsumed"}}, "root_eclasses": [class ids], "class_data": …}. A child names an e-node; what counts
 * is its class. Unknown keys are skipped. Errors carry line and column, so the reader is our own.
 *
 * A gym graph need not be congruence-closed and its e-nodes have costs of their own. An e-node is
 * stored as (op, row), a row for each pair of cost and class, so that nothing merges which the file
 * keeps apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "egraph/egraph.h"

typedef struct reader {
    eqf_ctx *ctx;
    arena *a;
    const char *file, *p, *end, *line_start;
    u32 line, depth;
} reader;

typedef struct place {
    u32 line, column;
} place;

static place here(const reader *r)
{
    return (place){r->line, (u32)(r->p - r->line_start) + 1};
}

#define FAIL_AT(r, at, ...)                                                                        \
    do {                                                                                           \
        char place_[40];                                                                           \
        snprintf(place_, sizeof place_, "%u:%u", (at).line, (at).column);                          \
        eqf_throw((r)->ctx, EQF_E_PARSE, (r)->file, place_, __VA_ARGS__);                          \
    } while (0)

static void blank(reader *r)
{
    for (; r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r');
         r->p++) {
        if (*r->p == '\n') {
            r->line++;
            r->line_start = r->p + 1;
        }
    }
}

static bool at_char(reader *r, char c)
{
    blank(r);
    return r->p < r->end && *r->p == c;
}

static void expect(reader *r, char c)
{
    if (!at_char(r, c))
        FAIL_AT(r, here(r), "expected %c", c);
    r->p++;
}

static void add_utf8(str *s, u32 c)
{
    if (c < 0x80) {
        str_add_char(s, (char)c);
    } else if (c < 0x800) {
        str_add_char(s, (char)(0xC0 | c >> 6));
        str_add_char(s, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        str_add_char(s, (char)(0xE0 | c >> 12));
        str_add_char(s, (char)(0x80 | (c >> 6 & 63)));
        str_add_char(s, (char)(0x80 | (c & 63)));
    } else {
        str_add_char(s, (char)(0xF0 | c >> 18));
        str_add_char(s, (char)(0x80 | (c >> 12 & 63)));
        str_add_char(s, (char)(0x80 | (c >> 6 & 63)));
        str_add_char(s, (char)(0x80 | (c & 63)));
    }
}

static u32 hex4(reader *r)
{
    u32 v = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        char c = r->p < r->end ? *r->p : 0;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
            FAIL_AT(r, here(r), "expected four hexadecimal digits");
        v = v * 16 + (u32)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static const char *string(reader *r)
{
    expect(r, '"');
    str s = str_new(r->a);
    str_add_n(&s, "", 0);
    for (;;) {
        if (r->p == r->end || (u8)*r->p < 32)
            FAIL_AT(r, here(r), "the string is not closed");
        char c = *r->p++;
        if (c == '"')
            return str_text(&s);
        if (c != '\\') {
            str_add_char(&s, c);
            continue;
        }
        c = r->p < r->end ? *r->p++ : 0;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *at = c ? strchr(from, c) : NULL;
        if (at) {
            str_add_char(&s, to[at - from]);
        } else if (c == 'u') {
            u32 u = hex4(r);
            if (u >= 0xD800 && u < 0xE000) { /* half of a character: the other half follows */
                bool more = u < 0xDC00 && r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u';
                r->p += more ? 2 : 0;
                u32 low = more ? hex4(r) : 0;
                if (low < 0xDC00 || low >= 0xE000)
                    FAIL_AT(r, here(r), "half a surrogate pair");
                u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
            }
            if (u == 0)
                FAIL_AT(r, here(r), "a name has no NUL");
            add_utf8(&s, u);
        } else {
            r->p--;
            FAIL_AT(r, here(r), "unknown escape");
        }
    }
}

static f64 number(reader *r)
{
    blank(r);
    place at = here(r);
    char text[400]; /* more than any double needs */
    i64 n = 0;
    while (r->p < r->end && n < (i64)sizeof text - 1 && (strchr("+-.eE", *r->p) || (*r->p >= '0' && *r->p <= '9')) &&
           *r->p)
        text[n++] = *r->p++;
    text[n] = 0;
    char *stop;
    f64 v = strtod(text, &stop);
    if (n == 0 || *stop || text[0] == '+' || text[0] == '.')
        FAIL_AT(r, at, "expected a number");
    if (!isfinite(v))
        FAIL_AT(r, at, "the number is not finite");
    return v;
}

static bool word(reader *r, const char *w)
{
    blank(r);
    i64 n = (i64)strlen(w);
    if (r->end - r->p < n || memcmp(r->p, w, (size_t)n) != 0)
        return false;
    r->p += n;
    return true;
}

static void skip_value(reader *r)
{
    if (++r->depth > 500)
        FAIL_AT(r, here(r), "nesting is deeper than 500");
    if (at_char(r, '"')) {
        string(r);
    } else if (at_char(r, '{') || at_char(r, '[')) {
        bool object = *r->p == '{';
        char close = object ? '}' : ']';
        r->p++;
        if (!at_char(r, close)) {
            do {
                if (object) {
                    string(r);
                    expect(r, ':');
                }
                skip_value(r);
            } while (at_char(r, ',') && r->p++);
        }
        expect(r, close);
    } else if (!word(r, "true") && !word(r, "false") && !word(r, "null")) {
        number(r);
    }
    r->depth--;
}

/* ---- the graph ----------------------------------------------------------------------------- */

typedef struct gym_node {
    const char *op;
    u32 class_name; /* interned */
    f64 cost;
    bool subsumed;
    u32 *kids; /* interned node ids */
    place *kid_at;
    i64 n;
} gym_node;

typedef struct gym_row {
    f64 cost;
    u64 class_name;
} gym_row;

struct eqf_gym {
    eqf_ctx *ctx;
    arena *a;
    eqf_lang *lang;
    eg *g;
    VEC(f64) costs; /* by row */
    VEC(eqf_class) roots;
    VEC(const char *) root_names;
    eg_payload_form form;
};

static void print_row(void *user, str *out, u32 payload)
{
    const eqf_gym *gym = user;
    str_add(out, " :cost ");
    str_add_f64(out, gym->costs.at[payload - 1]);
}

typedef struct loading {
    reader r;
    eqf_gym *gym;
    intern *node_names, *class_names, *rows;
    VEC(gym_node) nodes; /* by interned id; op NULL: not defined */
    VEC(u32) order;      /* ids in order of the file */
    VEC(u32) root_names;
    VEC(place) root_at;
} loading;

static gym_node *node_slot(loading *l, u32 id)
{
    while (l->nodes.n <= id)
        vec_push(l->r.a, &l->nodes, (gym_node){0});
    return &l->nodes.at[id];
}

static void read_node(loading *l)
{
    reader *r = &l->r;
    blank(r);
    place at = here(r);
    const char *name = string(r);
    if (!*name)
        FAIL_AT(r, at, "an e-node needs a name");
    u32 id = intern_cstr(l->node_names, name);
    if (node_slot(l, id)->op)
        FAIL_AT(r, at, "e-node %s is defined twice", name);
    gym_node n = {.cost = 1};
    expect(r, ':');
    expect(r, '{');
    VEC(u32) kids = {0};
    VEC(place) kid_at = {0};
    bool has_class = false, first = true;
    while (!at_char(r, '}')) {
        if (!first)
            expect(r, ',');
        first = false;
        const char *key = string(r);
        expect(r, ':');
        if (strcmp(key, "op") == 0) {
            n.op = string(r);
        } else if (strcmp(key, "eclass") == 0) {
            const char *c = string(r);
            has_class = *c != 0;
            n.class_name = intern_cstr(l->class_names, c);
        } else if (strcmp(key, "cost") == 0) {
            blank(r);
            place cost_at = here(r);
            n.cost = number(r);
            if (n.cost < 0)
                FAIL_AT(r, cost_at, "a cost is 0 or more");
        } else if (strcmp(key, "subsumed") == 0) {
            n.subsumed = word(r, "true");
            if (!n.subsumed && !word(r, "false"))
                FAIL_AT(r, here(r), "expected true or false");
        } else if (strcmp(key, "children") == 0) {
            expect(r, '[');
            while (!at_char(r, ']')) {
                if (kids.n)
                    expect(r, ',');
                blank(r);
                vec_push(r->a, &kid_at, here(r));
                u32 kid = intern_cstr(l->node_names, string(r));
                vec_push(r->a, &kids, kid);
            }
            r->p++;
        } else {
            skip_value(r);
        }
    }
    r->p++;
    if (!n.op || !has_class)
        FAIL_AT(r, at, "e-node %s needs op and eclass", name);
    if (kids.n > 999)
        FAIL_AT(r, at, "e-node %s has more than 999 children", name);
    n.kids = kids.at;
    n.kid_at = kid_at.at;
    n.n = kids.n;
    *node_slot(l, id) = n;
    vec_push(r->a, &l->order, id);
}

static void read_top(loading *l)
{
    reader *r = &l->r;
    bool nodes = false, first = true;
    expect(r, '{');
    while (!at_char(r, '}')) {
        if (!first)
            expect(r, ',');
        first = false;
        blank(r);
        place at = here(r);
        const char *key = string(r);
        expect(r, ':');
        if (strcmp(key, "nodes") == 0) {
            if (nodes)
                FAIL_AT(r, at, "nodes are given twice");
            nodes = true;
            expect(r, '{');
            while (!at_char(r, '}')) {
                if (l->order.n)
                    expect(r, ',');
                read_node(l);
            }
            r->p++;
        } else if (strcmp(key, "root_eclasses") == 0) {
            expect(r, '[');
            bool more = false;
            while (!at_char(r, ']')) {
                if (more)
                    expect(r, ',');
                more = true;
                blank(r);
                vec_push(r->a, &l->root_at, here(r));
                u32 root = intern_cstr(l->class_names, string(r));
                vec_push(r->a, &l->root_names, root);
            }
            r->p++;
        } else {
            skip_value(r);
        }
    }
    r->p++;
    blank(r);
    if (r->p != r->end)
        FAIL_AT(r, here(r), "text after the object");
    if (l->order.n == 0)
        FAIL_AT(r, here(r), "the file has no nodes");
}

static void must(eg *g, bool ok)
{
    if (!ok)
        eqf_rethrow(g->ctx, eg_failed(g, "reading an e-graph"));
}

static void add_node(loading *l, const gym_node *n, const u32 *classes)
{
    eqf_gym *gym = l->gym;
    eg *g = gym->g;
    u32 *kids = NEW_N(l->r.a, u32, n->n);
    for (i64 i = 0; i < n->n; i++)
        kids[i] = classes[l->nodes.at[n->kids[i]].class_name];
    u32 op = eg_lang_op(gym->lang, n->op, (u32)n->n), c = classes[n->class_name];
    eg_lang_hooks(gym->lang, op, NULL, NULL, &gym->form);
    gym_row key = {n->cost + 0.0, n->class_name}; /* -0 is 0 */
    u32 row = intern_add(l->rows, (const char *)&key, sizeof key);
    while (gym->costs.n <= row)
        vec_push(gym->a, &gym->costs, key.cost);
    bool is_new;
    u32 head = eg_lang_head(gym->lang, op, row + 1);
    u32 node = eg_add(g, head, (u32)n->n, kids, NULL, c, &is_new);
    must(g, node != 0);
    if (n->subsumed && is_new)
        eg_hide(g, node);
}

static void build(loading *l)
{
    eqf_gym *gym = l->gym;
    reader *r = &l->r;
    for (i64 i = 0; i < l->order.n; i++) {
        const gym_node *n = &l->nodes.at[l->order.at[i]];
        for (i64 k = 0; k < n->n; k++) {
            if (n->kids[k] >= l->nodes.n || !l->nodes.at[n->kids[k]].op)
                FAIL_AT(r, n->kid_at[k], "child %s is not defined",
                        intern_text(l->node_names, n->kids[k]));
        }
    }
    eqf_options o = {.limits = eqf_limits_none()};
    eqf_status s = eqf_egraph_new(gym->lang, &o, &gym->g);
    if (s)
        eqf_rethrow(gym->ctx, s);
    eg *g = gym->g;
    /* each class starts as a leaf of its own, taken out again when its e-nodes are in */
    u32 *classes = NEW_N(r->a, u32, intern_count(l->class_names));
    VEC(u32) leaves = {0};
    for (i64 i = 0; i < l->order.n; i++) {
        u32 name = l->nodes.at[l->order.at[i]].class_name;
        if (classes[name])
            continue;
        bool is_new;
        const char *text = intern_text(l->class_names, name);
        u32 head = eg_lang_symbol(gym->lang, text, (i64)strlen(text));
        u32 leaf = eg_add(g, head, 0, NULL, NULL, 0, &is_new);
        must(g, leaf != 0);
        classes[name] = eg_rec(g, leaf)[N_CLASS];
        vec_push(r->a, &leaves, leaf);
    }
    for (i64 i = 0; i < l->order.n; i++)
        add_node(l, &l->nodes.at[l->order.at[i]], classes);
    for (i64 i = 0; i < leaves.n; i++)
        eg_remove(g, leaves.at[i]);
    eg_sweep(g);
    for (i64 i = 0; i < l->root_names.n; i++) {
        u32 c = classes[l->root_names.at[i]];
        if (!c)
            FAIL_AT(r, l->root_at.at[i], "root class %s has no e-node",
                    intern_text(l->class_names, l->root_names.at[i]));
        vec_push(gym->a, &gym->roots, (eqf_class){c});
        vec_push(gym->a, &gym->root_names,
                 arena_strdup(gym->a, intern_text(l->class_names, l->root_names.at[i])));
    }
}

eqf_status eqf_read_json(eqf_ctx *ctx, const char *file, eqf_text source, eqf_gym **out)
{
    *out = NULL;
    arena *a = arena_new(ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    eqf_gym *volatile made = NULL;
    trap t;
    TRY(ctx, t)
    {
        eqf_gym *gym = NEW(a, eqf_gym);
        made = gym;
        gym->ctx = ctx;
        gym->a = a;
        gym->form = (eg_payload_form){NULL, print_row, gym};
        eqf_status s = eqf_lang_new(ctx, &gym->lang);
        if (s)
            eqf_rethrow(ctx, s);
        arena *scratch = arena_child(a);
        loading *l = NEW(scratch, loading);
        l->r = (reader){.ctx = ctx, .a = scratch, .file = file, .p = source.at,
                        .end = source.at + source.n, .line_start = source.at, .line = 1};
        l->gym = gym;
        l->node_names = intern_new(scratch);
        l->class_names = intern_new(scratch);
        l->rows = intern_new(scratch);
        read_top(l);
        build(l);
        arena_free(scratch);
        *out = gym;
    }
    if (t.status && made)
        eqf_gym_free(made);
    else if (t.status)
        arena_free(a);
    return t.status;
}

void eqf_gym_free(eqf_gym *gym)
{
    if (!gym)
        return;
    eqf_egraph_free(gym->g);
    eqf_lang_free(gym->lang);
    arena_free(gym->a);
}

eqf_egraph *eqf_gym_egraph(const eqf_gym *gym)
{
    return gym->g;
}

const eqf_class *eqf_gym_roots(const eqf_gym *gym, size_t *n)
{
    *n = (size_t)gym->roots.n;
    return gym->roots.at;
}

const char *eqf_gym_root_name(const eqf_gym *gym, size_t i)
{
    static const char none[] = "";
    return i < (size_t)gym->roots.n ? gym->root_names.at[i] : none;
}

static double gym_cost(void *user, const eqf_egraph *g, eqf_node n)
{
    const eqf_gym *gym = user;
    u32 row = g->lang->heads.at[eg_rec(g, n.i)[N_HEAD]].payload;
    return gym->costs.at[row - 1];
}

eqf_cost eqf_gym_cost(const eqf_gym *gym)
{
    return (eqf_cost){.of = gym_cost, .user = (void *)(uintptr_t)gym};
}

/* ---- writing ------------------------------------------------------------------------------- */

static void json_string(str *s, const char *text)
{
    str_add_char(s, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            str_add_char(s, '\\');
            str_add_char(s, *text);
        } else if ((u8)*text < 32) {
            str_printf(s, "\\u%04x", (unsigned)(u8)*text);
        } else {
            str_add_char(s, *text);
        }
    }
    str_add_char(s, '"');
}

/* Index of the first live e-node of each class is 0: a child is written as `class__0`. */
static void write_node(str *s, eg *g, u32 n, u32 c, u32 index, const eqf_cost *cost, arena *a)
{
    const u32 *rec = eg_rec(g, n);
    u32 arity = eg_node_arity(g, n, rec);
    str op = str_new(a);
    eg_print_head(g->lang, &op, rec[N_HEAD]);
    bool quoted = str_text(&op)[0] == '"';
    str_printf(s, "    \"%u__%u\": {\"op\": ", c, index);
    json_string(s, quoted ? eqf_head_name(g->lang, (eqf_head){rec[N_HEAD]}) : str_text(&op));
    str_add(s, ", \"children\": [");
    for (u32 i = 0; i < arity; i++)
        str_printf(s, "%s\"%u__0\"", i ? ", " : "", rec[N_KIDS + eg_step(n) * i]);
    str_printf(s, "], \"eclass\": \"%u\", \"cost\": ", c);
    f64 v = cost && cost->of ? cost->of(cost->user, g, (eqf_node){n}) : 1;
    if (!(v >= 0 && v < (f64)INFINITY))
        eqf_throw(g->ctx, EQF_E_ARGUMENT, NULL, eqf_head_name(g->lang, (eqf_head){rec[N_HEAD]}),
                  "the cost of an e-node is %g; in a file it must be 0 or more, and finite", v);
    str_add_f64(s, v);
    if (rec[N_STAMP] & S_HIDDEN)
        str_add(s, ", \"subsumed\": true");
    str_add_char(s, '}');
}

eqf_status eqf_write_json(eqf_egraph *g, const eqf_class *roots, size_t n, const eqf_cost *cost,
                          char **out)
{
    *out = NULL;
    eqf_status status = eqf_rebuild(g);
    for (size_t i = 0; i < n && !status; i++)
        status = eg_check_class(g, roots[i], "eqf_write_json");
    if (status)
        return status;
    arena *a = arena_new(g->ctx, 0);
    if (!a)
        return EQF_E_NO_MEMORY;
    trap t;
    TRY(g->ctx, t)
    {
        str s = str_new(a);
        bool first = true;
        str_add(&s, "{\n  \"nodes\": {\n");
        for (eqf_class c = {0}; (c = eqf_next_class(g, c)).i;) {
            u32 index = 0;
            for (eqf_node m = {0}; (m = eqf_next_node(g, c, m)).i;) {
                if (!first)
                    str_add(&s, ",\n");
                first = false;
                write_node(&s, g, m.i, c.i, index++, cost, a);
            }
        }
        str_add(&s, "\n  },\n  \"root_eclasses\": [");
        for (size_t i = 0; i < n; i++)
            str_printf(&s, "%s\"%u\"", i ? ", " : "", eg_find(g, roots[i].i));
        str_add(&s, "]\n}\n");
        char *text = heap_alloc(g->ctx, s.n + 1);
        memcpy(text, str_text(&s), (size_t)s.n + 1);
        *out = text;
    }
    arena_free(a);
    return t.status;
}
