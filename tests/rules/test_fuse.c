/* Fusion: the loops of every derivation are found, with proofs that are replayed; everything in the
 * e-graph is worth what its class is; steps with one thing wrong are refused.
 *
 * derivations/NAME.eqf: outputs without a dot are the program; `Y.some-form` is a form that must be
 * found in the class of `Y`; where NAME ends in _reassoc without rules of class approx. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rules/consumers.h"
#include "rules/fuse_impl.h"
#include "rules/listed.h"
#include "rules/proved.h"
#include "rules/wide.h"
#include "rules/worth.h"

static const char *const derivations[] = {
    "attention",          "attention_causal",
    "attention_split",    "attention_bounded",
    "attention_sink",     "attention_probabilities",
    "decoder_layer",      "lora",
    "lora_split",         "layernorm_gemm",
    "mla",                "layernorm_gemm_reassoc",
    "moments",            "differential_attention",
    "ngpt",               "rmsnorm_gemm",
    "rmsnorm_gemm_split", "rmsnorm_mlp",
    "rmsnorm_swiglu",     "rmsnorm_swiglu_gain",
    "row_softmax",        "self_attention",
    "sinks",              "window",
    "moments_split",      "balanced",
    "logsumexp",          "normalised_product",
    "softmax_squares",    "attention_sink_split",
    "logsumexp_split"};

static ir_program *read_derivation(arena *a, const char *name)
{
    i64 n;
    const char *path = arena_printf(a, "%s/rules/derivations/%s.eqf", EQF_TEST_DIR, name);
    const char *text = file_read(a, path, 1 << 20, &n);
    return ir_read(a, path, text, n);
}

static const char *output_name(const ir_program *p, i64 i)
{
    return intern_text(p->names, p->outputs.at[i].name);
}

/* The program alone: outputs without a dot, and without the parts of the dims that forms split, which
 * are declared last. */
static ir_program *without_forms(arena *a, const ir_program *p, bool small)
{
    ir_program *q = arena_copy(a, p, sizeof *p);
    memset(&q->outputs, 0, sizeof q->outputs);
    for (i64 i = 0; i < p->outputs.n; i++)
        if (!strchr(output_name(p, i), '.'))
            vec_push(a, &q->outputs, p->outputs.at[i]);
    if (!p->splits.n)
        return q;
    q->atoms.n = p->splits.at[0].outer.i;
    q->splits.n = 0;
    str s = str_new(a);
    ir_print(&s, q);
    return small ? small_text(a, p->file, str_text(&s), s.n) : ir_read(a, p->file, str_text(&s), s.n);
}

/* The rules that a derivation may use. */
static rl_fp class_of_rules(const ir_program *p)
{
    return strstr(p->file, "_reassoc.") ? RL_REASSOCIATED : RL_APPROXIMATE;
}

/* The output that `Y.some-form` is a form of. */
static i64 base_of(const ir_program *p, i64 form)
{
    const char *name = output_name(p, form), *dot = strchr(name, '.');
    for (i64 i = 0; dot && i < p->outputs.n; i++)
        if ((i64)strlen(output_name(p, i)) == dot - name &&
            strncmp(output_name(p, i), name, (size_t)(dot - name)) == 0)
            return i;
    return -1;
}

/* `forms`: the program whose forms are looked for, which may say that an atom is split. */
static rl_graph *fused(arena *a, const ir_program *forms, bool small, rl_fuse_mode mode,
                       bool explain)
{
    const ir_program *p = without_forms(a, forms, small);
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = class_of_rules(forms),
                          .limits = eqf_limits_default(),
                          .explain = explain};
    o.limits.seconds = -1;
    o.limits.iterations = 100;
    rl_graph *g = rl_graph_new(a, p, &o);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    if (forms->splits.n) {
        rl_graph_split(g, forms->splits.at[0].whole, small ? 2 : 8);
        assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    }
    assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_fuse(g, mode).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
    return g;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

/* The program with the form of one output in its place. */
static ir_program *with_form(arena *a, const ir_program *p, i64 base, i64 form)
{
    ir_program *q = arena_copy(a, p, sizeof *p);
    memset(&q->outputs, 0, sizeof q->outputs);
    for (i64 i = 0; i < p->outputs.n; i++)
        if (!strchr(output_name(p, i), '.'))
            vec_push(a, &q->outputs, p->outputs.at[i]);
    for (i64 i = 0; i < q->outputs.n; i++)
        if (q->outputs.at[i].name == p->outputs.at[base].name)
            q->outputs.at[i].term = p->outputs.at[form].term;
    return q;
}

/* Why the form is the program, replayed on an e-graph of the program alone; its text. */
static const char *derive(rl_graph *g, arena *a, const ir_program *p, i64 base, i64 form)
{
    const char *why;
    const ir_program *q = with_form(a, p, base, form);
    const char *text = rl_graph_derive(g, a, q, &why);
    if (!text)
        fail_msg("%s: %s: %s", p->file, output_name(p, form), why);
    i64 n = (i64)strlen(text);
    rl_graph_options o = {
        .rules = rl_ruleset_shipped(a), .fp = class_of_rules(p), .limits = eqf_limits_default()};
    eqf_check_report r = rl_replay(a, without_forms(a, p, false), q, &o, "derivation", text, n,
                                   sx_read(a, "derivation", text, n)->at[0]);
    assert_int_equal(r.assumptions, 0);
    assert_true(r.steps > 0);
    return text;
}

/* From the program alone, with all rules, every written form is in its class. */
static void derivations_are_found(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 found = 0;
    for (i64 k = 0; k < COUNT_OF(derivations); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_derivation(a, derivations[k]);
        rl_graph *g = fused(a, p, false, RL_FUSE_NODE, true);
        i64 size = eqf_egraph_size(g->engine).nodes;
        assert_true(eqf_egraph_size(g->engine).peak_bytes < 200 << 20);
        for (i64 i = 0; i < p->outputs.n; i++) {
            i64 base = base_of(p, i);
            if (base < 0)
                continue;
            ir_term whole = p->outputs.at[base].term, form = p->outputs.at[i].term;
            eqf_class c = rl_graph_find(g, p, form);
            if (!c.i || c.i != rl_graph_find(g, p, whole).i)
                fail_msg("%s: %s is not found", derivations[k], output_name(p, i));
            const char *proof = derive(g, a, p, base, i);
            bool fuses = strstr(proof, "loop.") || strstr(proof, "bundle");
            bool has_loop = strstr(output_name(p, i), ".one-") || strstr(output_name(p, i), "roll");
            assert_true(fuses || !has_loop);
            found++;
        }
        assert_int_equal(eqf_egraph_size(g->engine).nodes, size);
        arena_free(a);
    }
    assert_true(found >= 51);
    eqf_ctx_free(ctx);
}

/* No phases: algebra, tiling and fusion take turns, two iterations at a time. */
static void order_does_not_matter(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k < COUNT_OF(derivations); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_derivation(a, derivations[k]);
        rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                              .fp = class_of_rules(p),
                              .limits = eqf_limits_default()};
        o.limits.seconds = -1;
        o.limits.iterations = 2;
        if (p->splits.n) { /* splits come after algebra */
            arena_free(a);
            continue;
        }
        rl_graph *g = rl_graph_new(a, without_forms(a, p, false), &o);
        bool is_done = false;
        for (i64 turn = 0; turn < 40 && !is_done; turn++) {
            bool saturated = rl_graph_tile(g, NULL).stop == EQF_STOP_SATURATED;
            rl_fuse_report report = rl_graph_fuse(g, RL_FUSE_NODE);
            is_done = saturated && report.stop == EQF_STOP_SATURATED && report.rounds == 1;
        }
        assert_true(is_done);
        for (i64 i = 0; i < p->outputs.n; i++) {
            i64 base = base_of(p, i);
            eqf_class c = rl_graph_find(g, p, p->outputs.at[i].term);
            if (base >= 0 &&
                (!c.i ||
                 eqf_find(g->engine, c).i != rl_graph_class(g, p->outputs.at[base].term).i))
                fail_msg("%s: %s is not found", derivations[k], output_name(p, i));
        }
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* ---- forms ----------------------------------------------------------------------------------- */

typedef struct drawing {
    u64 seed;
    const rl_graph *g;
    i64 loops;
    eqf_extraction *x;
} drawing;

/* A random weight of the e-node; whole tensors are heavy, so that tiles are taken, and single
 * reductions, so that loops are. */
static double random_cost(void *user, const eqf_egraph *e, eqf_node n)
{
    const drawing *d = user;
    eqf_head head = eqf_node_head(e, n);
    rl_type t = rl_graph_type(d->g, eqf_node_class(e, n));
    bool is_leaf = rl_leaf_of(d->g, head);
    rl_label l = is_leaf ? (rl_label){0} : rl_node_label(d->g, head);
    bool is_single = l.op == IR_reduce && l.par && d->seed % 3;
    bool is_whole = t.kind == IR_A_VALUE && !t.axes && t.dims && !is_leaf && l.op != IR_comb;
    rng r = rng_new(d->seed * 1000003 + n.i);
    rng_u64(&r);
    return rng_f64(&r) + (is_whole && d->seed % 4 ? 1e6 : is_single ? 1e3 : 0);
}

static eqf_node drawn(void *user, eqf_class c)
{
    drawing *d = user;
    eqf_node n = eqf_chosen(d->x, c);
    eqf_head head = eqf_node_head(d->g->engine, n);
    d->loops += !rl_leaf_of(d->g, head) && rl_node_label(d->g, head).op == IR_loop;
    return n;
}

static bool never(void *user, eqf_class c)
{
    (void)user;
    (void)c;
    return false;
}

/* Chooses an e-node for each class, and fails when that program is worth something else than `want`.
 * Returns the loops that were chosen. */
static i64 check_random_form(rl_graph *g, arena *a, const ir_program *p, const char *name,
                             const tensor *want, u64 seed)
{
    drawing d = {.seed = seed, .g = g};
    eqf_cost cost = {.of = random_cost, .user = &d};
    VEC(eqf_class) roots = {0};
    for (i64 i = 0; i < p->outputs.n; i++)
        vec_push(a, &roots, rl_graph_class(g, p->outputs.at[i].term));
    assert_int_equal(eqf_extract(g->engine, roots.at, (size_t)roots.n, &cost, EQF_TREE, &d.x), EQF_OK);
    rl_choices choices = {drawn, never, &d};
    ir_program *q = rl_write_program(g, a, &choices);
    ir_verify(q, "a random form");
    tensor *got = NEW_N(a, tensor, p->outputs.n);
    i64 *tiles = NEW_N(a, i64, q->atoms.n);
    for (i64 i = 0; i < q->atoms.n; i++)
        tiles[i] = 1 + (i64)((seed + (u64)i) % 3);
    ir_eval(q, small_inputs(a, q, 5), a, got,
            (ir_eval_options){.tiles = tiles, .association = seed & 1});
    for (i64 i = 0; i < p->outputs.n; i++)
        if (!same_values(arena_ctx(a), &want[i], &got[i])) {
            str s = str_new(a);
            ir_print(&s, q);
            fail_msg("%s, seed %d: %s", name, (int)seed, str_text(&s));
        }
    eqf_extraction_free(d.x);
    return d.loops;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void everything_is_worth_its_class(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 nodes = 0;
    for (i64 k = 0; k < COUNT_OF(small_names) + COUNT_OF(derivations); k++) {
        arena *a = arena_new(ctx, 0);
        bool is_named = k < COUNT_OF(small_names);
        const char *name = is_named ? small_names[k] : derivations[k - COUNT_OF(small_names)];
        bool is_split = strstr(name, "_split");
        const char *path = arena_printf(a, "%s/rules/%s/%s.eqf", EQF_TEST_DIR,
                                        is_named ? "programs" : "derivations", name);
        ir_program *p = is_split ? read_derivation(a, name) : small_file(a, path);
        rl_graph *g = fused(a, p, true, k & 1 ? RL_FUSE_NODE : RL_FUSE_LATE, false);
        for (u64 seed = 0; seed < 3; seed++) {
            worth w = check_worth(g, a, name, seed);
            assert_true(w.nodes + w.inside + 30 > eqf_egraph_size(g->engine).nodes / 2);
            nodes += w.nodes;
        }
        arena_free(a);
    }
    assert_true(nodes > 5000);
    eqf_ctx_free(ctx);
}

static ir_program *read_or_null(arena *a, const char *text)
{
    ir_program *volatile p = NULL;
    trap t;
    TRY (arena_ctx(a), t)
        p = ir_read(a, "chain", text, (i64)strlen(text));
    assert_true(p || t.status == EQF_E_TYPE);
    return p;
}

/* NULL: a sum over two atoms of a term that lacks one is no program. `even`: T has 24 positions. */
static ir_program *random_chain(arena *a, rng *r, bool two_atoms, bool even)
{
    char *text = arena_strdup(a, consumer_text(a, r));
    for (char *at = text; even && (at = strstr(at, "23")); at += 2)
        at[1] = '4';
    if (two_atoms)
        return read_or_null(a, consumer_two_atoms(a, text));
    return ir_read(a, "chain", text, (i64)strlen(text));
}

/* The operator of an e-node; IR_NO_OP: a leaf. */
static rl_label label_of(const rl_graph *g, eqf_node n)
{
    eqf_head head = eqf_node_head(g->engine, n);
    return rl_leaf_of(g, head) ? (rl_label){0} : rl_node_label(g, head);
}

static i64 arity_of(const rl_graph *g, eqf_node n)
{
    return eqf_head_arity(g->lang, eqf_node_head(g->engine, n));
}

/* Some e-node of the operator in the class; none. */
static eqf_node node_in(const rl_graph *g, eqf_class c, ir_op op)
{
    eqf_node n = eqf_next_node(g->engine, c, (eqf_node){0});
    while (n.i && label_of(g, n).op != op)
        n = eqf_next_node(g->engine, c, n);
    return n;
}

/* Is the result of a repair an operator over a component that reduces by itself? */
static bool waits_for(const rl_graph *g, eqf_class readout)
{
    const eqf_egraph *e = g->engine;
    eqf_class c = eqf_find(e, readout);
    for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
        ir_op op = label_of(g, n).op;
        i64 plain = 0, others = 0;
        for (unsigned i = 0; op != IR_NO_OP && ir_row(op)->class_ == IR_EWISE && i < arity_of(g, n); i++) {
            eqf_node get = node_in(g, eqf_node_child(e, n, i), IR_get);
            eqf_node comp = get.i ? node_in(g, eqf_node_child(e, get, 1), IR_comp) : get;
            bool is_plain = comp.i && arity_of(g, comp) == 1 && label_of(g, comp).reducer;
            plain += is_plain;
            others += comp.i && !is_plain;
        }
        if (plain > 0 && !others)
            return true;
    }
    return false;
}

/* The loops that a component is in: how many components the smallest and the largest have. */
typedef struct membership {
    i64 loops, least, most;
} membership;

/* What fusion made, by the rule that makes such: one instance for the program in which there was
 * some to be compared. */
static void count_made(const rl_graph *g, arena *a, const rl_fuse_report *report, listed_counts *counts)
{
    enum { PLAIN, JOIN, ROLLED_JOIN, SINGLE, ROLLED, STATE, SPLIT, PART, MADE };
    static const char *const names[MADE] = {"bundle.plain",  "bundle.join", "bundle.rolled",
                                            "bundle.single", "loop.rolled", "loop.reducer",
                                            "loop.split",    "part"};
    const eqf_egraph *e = g->engine;
    bool made[MADE] = {0};
    membership *in = NEW_N(a, membership, g->engine->class_ids);
    for (eqf_class c = eqf_next_class(e, (eqf_class){0}); c.i; c = eqf_next_class(e, c))
        for (eqf_node n = eqf_next_node(e, c, (eqf_node){0}); n.i; n = eqf_next_node(e, c, n)) {
            rl_label l = label_of(g, n);
            i64 arity = arity_of(g, n), plain = 0;
            if (l.op == IR_comp) {
                made[STATE] = made[STATE] || !l.reducer;
                made[ROLLED] = made[ROLLED] || (l.reducer && arity > 1);
            }
            if (l.op == IR_get && node_in(g, c, IR_reduce).i)
                made[SINGLE] = true;
            for (i64 i = 0; l.op == IR_loop && i < arity; i++) {
                eqf_class kid = eqf_find(e, eqf_node_child(e, n, (unsigned)i));
                eqf_node comp = node_in(g, kid, IR_comp);
                bool is_rolled = comp.i && arity_of(g, comp) > 1 && label_of(g, comp).reducer;
                plain += comp.i && arity_of(g, comp) == 1;
                if (!comp.i)
                    continue;
                membership *m = &in[kid.i];
                m->least = m->loops ? MIN(m->least, arity) : arity;
                m->most = MAX(m->most, arity);
                m->loops++;
                made[is_rolled ? ROLLED_JOIN : JOIN] =
                    made[is_rolled ? ROLLED_JOIN : JOIN] || m->least < m->most;
            }
            made[PLAIN] = made[PLAIN] || plain > 1;
        }
    made[PART] = report->parts > 0;
    for (i64 i = 0; i < g->readouts.n; i++)
        made[SPLIT] = made[SPLIT] || waits_for(g, g->readouts.at[i]);
    for (i64 k = 0; k < MADE; k++)
        listed_count(counts, names[k], made[k]);
}

/* Random chains of reductions, and random programs over most operators: every e-node of every class
 * and every form is worth what it should. */
static void random_programs(void **state)
{
    const i64 *range = *state, count = range[0];
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 repairs = 0, proofs = 0;
    listed_counts counts = {.a = arena_new(ctx, 0)};
    for (i64 seed = range[1]; seed < range[1] + count; seed++) {
        arena *a = arena_new(ctx, 0);
        rng r = rng_new((u64)seed);
        ir_program *p = seed % 4 ? random_chain(a, &r, seed % 8 == 5, seed % 16 == 3) : wide_program(a, (u64)seed);
        if (!p) {
            arena_free(a);
            continue;
        }
        bool proved = seed % 16 == 6 || seed % 24 == 4 || seed == 5;
        rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                              .fp = RL_APPROXIMATE,
                              .limits = eqf_limits_default(),
                              .explain = proved};
        o.limits.seconds = -1;
        o.limits.nodes = 1000;
        o.limits.iterations = 6;
        rl_graph *g = rl_graph_new(a, p, &o);
        rl_graph_saturate(g, NULL);
        if (seed % 8 == 3) { /* in parts, the last of which is short */
            rl_graph_split(g, ir_atom_find(p, intern_find(p->names, "T", 1)), 3);
            o.limits.nodes = 2000;
            eqf_egraph_set_limits(rl_graph_engine(g), o.limits);
            rl_graph_saturate(g, NULL);
        }
        rl_graph_tile(g, NULL);
        rl_fuse_report report = rl_graph_fuse(g, seed & 2 ? RL_FUSE_NODE : RL_FUSE_LATE);
        repairs += report.repairs;
        assert_int_equal(eqf_check(rl_graph_engine(g)), EQF_OK);
        count_made(g, a, &report, &counts);
        const char *name = arena_printf(a, "random %lld", (long long)seed);
        for (u64 cut = 0; cut < 3; cut++)
            check_worth(g, a, name, cut);
        tensor *want = NEW_N(a, tensor, p->outputs.n);
        ir_eval(p, small_inputs(a, p, 5), a, want, (ir_eval_options){0});
        for (u64 turn = 0; turn < 2; turn++)
            check_random_form(g, a, p, name, want, (u64)seed + turn);
        i64 assumptions = 0;
        if (proved)
            proofs += prove_all(g, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    assert_true(repairs > 2 * count && proofs > 5 * count);
    assert_int_equal(listed_check(&counts, LISTED_FUSED, count < 48 ? 0 : count < 10000 ? 1 : 200), 8);
    arena_free(counts.a);
    eqf_ctx_free(ctx);
}

/* Whatever is chosen for each class, the program is worth what it was. */
static void random_forms_are_worth_the_program(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 loops = 0;
    for (i64 k = 0; k < COUNT_OF(small_names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = small_program(a, small_names[k]);
        rl_graph *g = fused(a, p, true, RL_FUSE_NODE, false);
        tensor *want = NEW_N(a, tensor, p->outputs.n);
        ir_eval(p, small_inputs(a, p, 5), a, want, (ir_eval_options){0});
        for (u64 seed = 1; seed <= 12; seed++)
            loops += check_random_form(g, a, p, small_names[k], want, seed);
        arena_free(a);
    }
    assert_true(loops > 100);
    eqf_ctx_free(ctx);
}

#define CASES EQF_TEST_DIR "/rules/repair/cases.eqf"

static const sx *read_cases(arena *a)
{
    i64 n;
    const char *text = file_read(a, CASES, 1 << 20, &n);
    return sx_read(a, CASES, text, n);
}

/* (case NAME PROGRAM ...) */
static ir_program *program_of_case(arena *a, const sx *c)
{
    str program = str_new(a);
    sx_print(&program, c->at[2]);
    return ir_read(a, CASES, str_text(&program), program.n);
}

/* The golden cases of the solver as whole programs: algebra, tiles, and then the loop; what has no
 * repair gets none. */
static void solver_cases_are_fused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *all = arena_new(ctx, 0);
    i64 found = 0, none = 0;
    const sx *cases = read_cases(all);
    for (i64 k = 0; k < cases->n; k++) {
        arena *a = arena_new(ctx, 0);
        const sx *c = cases->at[k];
        bool has_none = false;
        for (i64 i = 3; i < c->n; i++)
            has_none = has_none || sx_is_form(c->at[i], "none");
        rl_graph_options o = {.limits = eqf_limits_default(), .fp = RL_APPROXIMATE};
        rl_graph *g = rl_graph_new(a, program_of_case(a, c), &o);
        rl_graph_tile(g, NULL);
        rl_fuse_report report = rl_graph_fuse(g, RL_FUSE_NODE);
        if (has_none != (report.repairs < report.systems))
            fail_msg("%s: %lld of %lld systems repaired", c->at[1]->text,
                     (long long)report.repairs, (long long)report.systems);
        for (u64 cut = 1; cut < 4; cut++)
            check_worth(g, a, c->at[1]->text, cut);
        found += report.repairs;
        none += has_none;
        arena_free(a);
    }
    assert_true(found > 60 && none > 10);
    arena_free(all);
    eqf_ctx_free(ctx);
}

/* What counts of a form: loops over some atoms; it has none over others, and whole tensors are no loops. */
typedef struct counting {
    const rl_graph *g;
    u64 counted, refused;
} counting;

enum { A_LOOP = 1000 };
static double loop_cost(void *user, const eqf_egraph *e, eqf_node n)
{
    const counting *d = user;
    eqf_head head = eqf_node_head(e, n);
    if (rl_leaf_of(d->g, head))
        return 1;
    rl_type t = rl_graph_type(d->g, eqf_node_class(e, n));
    rl_label l = rl_node_label(d->g, head);
    bool is_whole = t.kind == IR_A_VALUE && !t.axes && t.dims && l.op != IR_comb;
    bool is_loop = l.op == IR_loop || l.op == IR_reduce;
    if ((is_whole && !(t.facts & (RL_LOAD | RL_CONSTANT))) || (is_loop && l.par & d->refused))
        return (double)INFINITY;
    return is_loop && l.par & d->counted ? A_LOOP : 1;
}

/* The least loops in a form of all outputs; fewer cannot be when `how` is exact. */
static i64 least_loops(arena *a, counting d, eqf_algo how)
{
    const ir_program *p = d.g->p;
    eqf_cost cost = {.of = loop_cost, .user = &d, .seconds = 60};
    VEC(eqf_class) roots = {0};
    for (i64 i = 0; i < p->outputs.n; i++)
        vec_push(a, &roots, rl_graph_class(d.g, p->outputs.at[i].term));
    eqf_extraction *x;
    assert_int_equal(eqf_extract(d.g->engine, roots.at, (size_t)roots.n, &cost, how, &x), EQF_OK);
    assert_true(how != EQF_EXACT || eqf_extraction_report(x).optimal);
    i64 loops = (i64)eqf_dag_cost(x) / A_LOOP;
    eqf_extraction_free(x);
    return loops;
}

/* Loops over the reduced atom that a case expects; 0: nothing repairs it. */
static i64 loops_wanted(const sx *c)
{
    i64 want = 1;
    for (i64 i = 3; i < c->n; i++) {
        if (sx_is_form(c->at[i], "none"))
            return 0;
        want = sx_is_form(c->at[i], "loops") ? c->at[i]->at[1]->i : want;
    }
    return want;
}

/* The same with all rules that do not cancel: a form of the outputs goes over the axis once, and why is
 * replayed; what has no repair keeps its loops. */
static void solver_cases_are_one_loop(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *all = arena_new(ctx, 0);
    const sx *cases = read_cases(all);
    for (i64 k = 0; k < cases->n; k++) {
        arena *a = arena_new(ctx, 0);
        const sx *c = cases->at[k];
        rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                              .fp = RL_REASSOCIATED,
                              .explain = true,
                              .limits = eqf_limits_default()};
        o.limits.seconds = -1;
        o.limits.iterations = 100;
        rl_graph *g = rl_graph_new(a, program_of_case(a, c), &o);
        assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
        assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
        assert_int_equal(rl_graph_fuse(g, RL_FUSE_NODE).stop, EQF_STOP_SATURATED);
        ir_atom T = ir_atom_find(g->p, intern_find(g->p->names, "T", 1));
        counting over = {.g = g, .counted = rl_mask(g, (ir_atoms){&T, 1})};
        i64 loops = least_loops(a, over, EQF_EXACT), want = loops_wanted(c), assumptions = 0;
        if (want ? loops != want : loops < 2)
            fail_msg("%s: %lld loops", c->at[1]->text, (long long)loops);
        prove_all(g, a, &assumptions, NULL);
        assert_int_equal(assumptions, 0);
        arena_free(a);
    }
    arena_free(all);
    eqf_ctx_free(ctx);
}

/* The case with T split into three parts, of equal size or the last one short. */
static rl_graph *split_case(arena *a, const sx *c, bool even, ir_split *split)
{
    ir_program *p = program_of_case(a, c);
    str text = str_new(a);
    ir_print(&text, p);
    char *own = arena_strdup(a, str_text(&text));
    for (char *at = own; even && (at = strstr(at, "37")); at += 2) /* its extent, and means over it */
        at[1] = '6';
    p = ir_read(a, CASES, own, text.n);
    rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                          .fp = RL_REASSOCIATED,
                          .explain = even,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    o.limits.iterations = 100;
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    *split = rl_graph_split(g, ir_atom_find(p, intern_find(p->names, "T", 1)), 3);
    assert_int_equal(rl_graph_saturate(g, NULL).stop, EQF_STOP_SATURATED);
    assert_int_equal(rl_graph_tile(g, NULL).stop, EQF_STOP_SATURATED);
    i64 tiled = eqf_egraph_size(g->engine).nodes;
    assert_int_equal(rl_graph_fuse(g, RL_FUSE_NODE).stop, EQF_STOP_SATURATED);
    assert_int_equal(eqf_check(g->engine), EQF_OK);
    assert_true(eqf_egraph_size(g->engine).nodes < 3 * tiled);
    return g;
}

/* Split over the keys: each part goes over its positions as often as the whole would, and needs nothing of
 * the others; why is replayed. With a last part that is short, too, everything is worth its class. */
static void solver_cases_are_split(void **state)
{
    static const struct {
        const char *name;
        i64 loops; /* 0: the exact search for the least is long */
    } others[] = {{"weighted-variance", 2}, {"softmax-difference", 0}, {"kl-divergence", 0}};
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *all = arena_new(ctx, 0);
    const sx *cases = read_cases(all);
    i64 moved = 0;
    for (i64 k = 0; k < 2 * cases->n; k++) {
        arena *a = arena_new(ctx, 0);
        const sx *c = cases->at[k / 2];
        bool even = k & 1, has_none = loops_wanted(c) == 0;
        i64 want = loops_wanted(c), assumptions = 0;
        for (i64 i = 0; i < COUNT_OF(others); i++)
            want = strcmp(others[i].name, c->at[1]->text) == 0 ? others[i].loops : want;
        ir_split s;
        rl_graph *g = has_none ? NULL : split_case(a, c, even, &s);
        for (u64 cut = 1; cut < 3 && g; cut++)
            check_worth(g, a, c->at[1]->text, cut);
        if (g && even) {
            counting over = {g, rl_mask(g, (ir_atoms){&s.inner, 1}), rl_mask(g, (ir_atoms){&s.whole, 1})};
            i64 loops = least_loops(a, over, want ? EQF_EXACT : EQF_DAG);
            if (want && loops != want)
                fail_msg("%s: %lld loops", c->at[1]->text, (long long)loops);
            str seen = str_new(a);
            prove_all(g, a, &assumptions, &seen);
            assert_int_equal(assumptions, 0);
            moved += strstr(str_text(&seen), "part.") != NULL;
        }
        arena_free(a);
    }
    assert_true(moved >= 18);
    arena_free(all);
    eqf_ctx_free(ctx);
}

/* Attention over a cache and a gated product, one layer after another. */
static ir_program *layers(arena *a, i64 n)
{
    str s = str_new(a);
    str_add(&s, "(program layers (dims (C 3) (H 2) (D 2) (E 3) (T 5) (F 4)) (input z0 f32 (C))");
    for (i64 i = 1; i <= n; i++) {
        int k = (int)i;
        str_printf(&s, "(input K%d f32 (H T D)) (input V%d f32 (H T E)) (parameter q%d f32 (C H D))",
                   k, k, k);
        str_printf(&s, "(parameter o%d f32 (H E C)) (parameter u%d f32 (C F))", k, k);
        str_printf(&s, "(parameter d%d f32 (F C))", k);
    }
    for (i64 i = 1; i <= n; i++) {
        int k = (int)i, before = k - 1;
        str_printf(&s, "(let n%d (mul z%d (rsqrt (reduce + (square z%d) :axis C))))", k, before,
                   before);
        str_printf(&s, "(let S%d (matmul (matmul n%d q%d :axis C) K%d :axis D))", k, k, k, k);
        str_printf(&s, "(let P%d (exp (sub S%d (reduce max S%d :axis T))))", k, k, k);
        str_printf(&s, "(let O%d (matmul (div P%d (reduce + P%d :axis T)) V%d :axis T))", k, k, k,
                   k);
        str_printf(&s, "(let y%d (add z%d (matmul O%d o%d :axis {H E})))", k, before, k, k);
        str_printf(&s, "(let m%d (mul y%d (rsqrt (reduce + (square y%d) :axis C))))", k, k, k);
        str_printf(&s, "(let z%d (add y%d (matmul (sigmoid (matmul m%d u%d :axis C)) d%d :axis F)))",
                   k, k, k, k, k);
    }
    str_printf(&s, "(output Z z%d))", (int)n);
    return ir_read(a, "layers", str_text(&s), s.n);
}

/* What a layer before used over the same axes is none of a chain's results. */
static void every_layer_is_fused(void **state)
{
    (void)state;
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    arena *a = arena_new(ctx, 0);
    i64 repairs[4] = {0};
    for (i64 n = 1; n <= 3; n++) {
        rl_graph_options o = {.rules = rl_ruleset_shipped(a),
                              .fp = RL_REASSOCIATED,
                              .limits = eqf_limits_default(),
                              .explain = n == 3};
        o.limits.seconds = -1;
        rl_graph *g = rl_graph_new(a, layers(a, n), &o);
        rl_graph_saturate(g, NULL);
        rl_graph_tile(g, NULL);
        rl_fuse_report report = rl_graph_fuse(g, RL_FUSE_LATE);
        assert_int_equal(report.stop, EQF_STOP_SATURATED);
        repairs[n] = report.repairs;
        for (u64 cut = 0; cut < 2 && n < 3; cut++)
            check_worth(g, a, "layers", cut);
        for (i64 i = 0; i < g->chains.n; i++) { /* the last layer's terms are long as text */
            rl_terms *t = rl_terms_new(g, a);
            rl_chain chain;
            const char *wrong =
                rl_chain_check(t, rl_terms_copy(t, g->hints, g->chains.at[i]), &chain);
            if (wrong)
                fail_msg("layers: repair %lld: %s", (long long)i, wrong);
        }
        assert_true(n < 3 || g->chains.n == report.repairs);
    }
    assert_true(repairs[1] >= 3);
    assert_int_equal(repairs[2] - repairs[1], repairs[3] - repairs[2]);
    assert_true(repairs[2] - repairs[1] >= 3);
    arena_free(a);
    eqf_ctx_free(ctx);
}

static eqf_class class_of(rl_graph *g, const char *text)
{
    eqf_class c;
    if (eqf_add_text(g->engine, eqf_text_of(text), &c))
        fail_msg("%s: %s", text, eqf_diag_get(g->ctx, eqf_diag_count(g->ctx) - 1).message);
    return c;
}

/* Unions that are wrong are seen by their values: another reducer, a transport without its factor,
 * a result from a loop that has less. */
static void wrong_unions_are_noticed(void **state)
{
    (void)state;
#define ROW "(reduce.max (view X :par {M T}) :axis {T})"
#define SUM "(reduce.+ (exp (sub (view X :par {M T}) (reduce.max " ROW " :par {T}))) :axis {T})"
    static const char *const wrong[][2] = {
        {"(reduce.max " ROW " :par {T})", "(get (loop (comp.+ " ROW ") :par {T}) (comp.+ " ROW "))"},
        {"(reduce.+ " SUM " :par {T})", "(get (loop (comp.max " SUM ") :par {T}) (comp.max " SUM "))"},
        {"(reduce.+ " SUM " :par {T})", "(get (loop (comp.+ " ROW ") :par {T}) (comp.+ " ROW "))"},
        {"(view X :par {M T})", "(exp (view X :par {M T}))"},
    };
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    for (i64 k = 0; k <= COUNT_OF(wrong); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p =
            small_file(a, arena_printf(a, "%s/rules/derivations/row_softmax.eqf", EQF_TEST_DIR));
        rl_graph *g = fused(a, p, true, RL_FUSE_NODE, false);
        bool changed = false;
        rl_operator_head(g, IR_loop, IR_NO_REDUCER, 1, 0); /* so that texts may name them */
        rl_operator_head(g, IR_comp, IR_SUM, 1, 0);
        rl_operator_head(g, IR_comp, IR_MAX, 1, 0);
        if (k < COUNT_OF(wrong))
            assert_int_equal(eqf_union(g->engine, class_of(g, wrong[k][0]), class_of(g, wrong[k][1]),
                                       eqf_text_of("told"), &changed),
                             EQF_OK);
        assert_int_equal(changed, k < COUNT_OF(wrong));
        assert_int_equal(eqf_rebuild(g->engine), EQF_OK);
        assert_int_equal(worth_of(g, a, 2).wrong != NULL, changed);
        arena_free(a);
    }
    eqf_ctx_free(ctx);
}

/* ---- steps with one thing wrong ---------------------------------------------------------------
 */

typedef struct step {
    const char *reason, *left, *right;
} step;
typedef struct recorder {
    arena *a;
    eqf_checking judges;
    VEC(step) steps;
} recorder;

static eqf_verdict record_step(void *user, const char *reason, const char *left, const char *right)
{
    recorder *r = user;
    bool is_new = strcmp(reason, "bundle") == 0 || strncmp(reason, "loop.", 5) == 0 ||
                  strncmp(reason, "part.", 5) == 0;
    for (i64 i = 0; i < r->steps.n && is_new; i++)
        is_new = strcmp(r->steps.at[i].left, left) != 0 || strcmp(r->steps.at[i].right, right) != 0;
    if (is_new)
        vec_push(r->a, &r->steps,
                 (step){arena_strdup(r->a, reason), arena_strdup(r->a, left),
                        arena_strdup(r->a, right)});
    return r->judges.step(r->judges.user, reason, left, right);
}

static eqf_verdict record_guard(void *user, const char *name, const char *const *args, size_t n)
{
    recorder *r = user;
    return r->judges.guard(r->judges.user, name, args, n);
}

/* Proves why every e-node is in its class; keeps the steps of fusion on the way. */
static i64 record_steps(rl_graph *g, recorder *r)
{
    i64 assumptions = 0;
    eqf_checking judges = r->judges;
    judges.step = record_step;
    judges.guard = record_guard;
    judges.user = r;
    i64 proofs = prove_all_by(g, r->a, &judges, &assumptions, NULL);
    assert_int_equal(assumptions, 0);
    return proofs;
}

static void exchange(rng *g, sx *x, bool *done)
{
    for (i64 i = 1; x->kind == SX_LIST && i < x->n && !*done; i++)
        exchange(g, x->at[i], done);
    if (*done || (!sx_is_form(x, "sub") && !sx_is_form(x, "div") && !sx_is_form(x, "where")) ||
        rng_below(g, 3))
        return;
    sx *last = x->at[x->n - 1];
    x->at[x->n - 1] = x->at[x->n - 2];
    x->at[x->n - 2] = last;
    *done = true;
}

/* The text with one thing changed: an operator, a leaf, the order of operands. */
static const char *spoiled(arena *a, rng *g, const char *text)
{
    static const char *const swaps[][2] = {
        {"(sub ", "(div "},       {"(exp ", "(neg "},         {"(reduce.max ", "(reduce.min "},
        {"(comp.+ ", "(comp.max "}, {"(reduce.+ ", "(reduce.max "}, {"(comp.max ", "(comp.+ "},
        {"(add ", "(mul "},       {" #0.0", " #1.0"},         {"(square ", "(abs "},
        {"(mul ", "(add "},       {" 1 0 none", " 1 1 none"}, {"#lambda:", "#reducer:"}};
    i64 k = (i64)rng_below(g, COUNT_OF(swaps) + 3);
    str out = str_new(a);
    if (k >= COUNT_OF(swaps)) {
        sx *x = sx_read(a, "step", text, (i64)strlen(text))->at[0];
        bool done = false;
        exchange(g, x, &done);
        if (done)
            sx_print(&out, x);
        return done ? str_text(&out) : NULL;
    }
    const char *at = NULL, *next = strstr(text, swaps[k][0]);
    for (; next && (!at || rng_below(g, 2)); next = strstr(next + 1, swaps[k][0]))
        at = next;
    if (!at)
        return NULL;
    str_printf(&out, "%.*s%s%s", (int)(at - text), text, swaps[k][1], at + strlen(swaps[k][0]));
    return str_text(&out);
}

/* Steps with one thing wrong that were refused; fails at one that is not. */
static i64 spoil_steps(rl_graph *g, recorder *r, rng *random, const char *name)
{
    i64 refused = 0;
    for (i64 j = 0; j < r->steps.n; j++)
        for (i64 times = 0; times < 40; times++) {
            step s = r->steps.at[j];
            /* what else a bundle holds is its own affair */
            bool is_bundle = strcmp(s.reason, "bundle") == 0, is_left = times & 1;
            if (is_bundle && (!is_left || strncmp(s.left, "(reduce", 7) != 0))
                continue;
            const char *bad = spoiled(r->a, random, is_left ? s.left : s.right);
            rl_terms *t = rl_terms_new(g, r->a);
            u32 x = bad ? rl_terms_read(t, bad) : 0;
            if (!x || rl_terms_same(t, x, rl_terms_read(t, is_left ? s.left : s.right)))
                continue;
            eqf_verdict v = r->judges.step(r->judges.user, s.reason, is_left ? bad : s.left,
                                           is_left ? s.right : bad);
            if (v != EQF_REFUSED)
                fail_msg("%s: accepted %s\n%s\n%s", name, s.reason, is_left ? bad : s.left,
                         is_left ? s.right : bad);
            refused++;
        }
    return refused;
}

/* Operators that the graph has not, so that texts may name them. */
static void name_operators(rl_graph *g)
{
    static const ir_op others[] = {IR_div, IR_add, IR_mul, IR_neg, IR_abs};
    rl_number_head(g, g->real, 1);
    for (i64 j = 0; j < COUNT_OF(others); j++)
        rl_operator_head(g, others[j], IR_NO_REDUCER, ir_row(others[j])->arity, 0);
    for (ir_reducer red = IR_SUM; red <= IR_MIN; red++) {
        rl_operator_head(g, IR_reduce, red, 1, 0);
        rl_operator_head(g, IR_comp, red, 1, 0);
        rl_operator_head(g, IR_comp, red, 3, 0);
    }
}

static void wrong_steps_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"attention", "moments", "rmsnorm_mlp", "row_softmax"};
    static const char *const split[] = {"third-moment", "nll", "max-tanh-centred"};
    eqf_ctx *ctx = eqf_ctx_new(NULL);
    i64 refused = 0, proofs = 0, of_parts = 0;
    rng random = rng_new(3);
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        arena *a = arena_new(ctx, 0);
        ir_program *p = read_derivation(a, names[k]);
        rl_graph *g = fused(a, p, false, RL_FUSE_NODE, true);
        name_operators(g);
        recorder r = {.a = a, .judges = rl_graph_checking(g)};
        proofs += record_steps(g, &r);
        assert_true(r.steps.n > 1);
        refused += spoil_steps(g, &r, &random, names[k]);
        arena_free(a);
    }
    arena *all = arena_new(ctx, 0);
    const sx *cases = read_cases(all);
    for (i64 k = 0; k < COUNT_OF(split) * cases->n; k++) {
        const sx *c = cases->at[k / COUNT_OF(split)];
        if (strcmp(c->at[1]->text, split[k % COUNT_OF(split)]) != 0)
            continue;
        arena *a = arena_new(ctx, 0);
        ir_split s;
        rl_graph *g = split_case(a, c, true, &s);
        name_operators(g);
        recorder r = {.a = a, .judges = rl_graph_checking(g)};
        record_steps(g, &r);
        i64 n = 0; /* those about parts alone */
        for (i64 i = 0; i < r.steps.n; i++)
            if (strncmp(r.steps.at[i].reason, "part.", 5) == 0)
                r.steps.at[n++] = r.steps.at[i];
        r.steps.n = n;
        assert_true(n > 0);
        of_parts += spoil_steps(g, &r, &random, c->at[1]->text);
        arena_free(a);
    }
    assert_true(proofs > 100);
    assert_true(refused > 100 && of_parts > 20);
    arena_free(all);
    eqf_ctx_free(ctx);
}

/* test_rules_fuse [PROGRAMS [FIRST-SEED]] */
int main(int argc, char **argv)
{
    i64 range[] = {argc > 1 ? atoll(argv[1]) : 48, argc > 2 ? atoll(argv[2]) : 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_programs, range),
        cmocka_unit_test(random_forms_are_worth_the_program),
        cmocka_unit_test(solver_cases_are_fused),
        cmocka_unit_test(solver_cases_are_one_loop),
        cmocka_unit_test(solver_cases_are_split),
        cmocka_unit_test(derivations_are_found),
        cmocka_unit_test(every_layer_is_fused),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(everything_is_worth_its_class),
        cmocka_unit_test(wrong_unions_are_noticed),
        cmocka_unit_test(wrong_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
