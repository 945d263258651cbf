/* Structures against brute force, on random programs, and on random e-graphs: those of programs in which
 * some values of one type are taken for equal, so that reductions need one another in circles.
 *
 * Brute force looks at every choice of reductions and of ways, and computes what it can. What it leaves
 * after compaction must be, one for one, what early pruning finds, and what compaction at the end finds;
 * whatever is found without compaction must be computable. Candidates written from both are the same
 * programs. */
#include "extract/impl.h"
#include "ir/check.h"
#include "rules/small.h"

enum { MOST_ASSIGNMENTS = 2048, MOST_POLLS = 4000, MOST = 1 << 12 };

typedef struct making {
    rng g;
    ir_program *p;
    VEC(ir_term) at;
} making;

static i64 below(making *m, i64 n)
{
    return (i64)rng_below(&m->g, (u64)n);
}

/* The latest more often: programs are deep. */
static ir_term pick(making *m)
{
    i64 n = m->at.n, back = below(m, below(m, 2) ? n : MIN(n, 3));
    return m->at.at[n - 1 - back];
}

static ir_term grow(making *m)
{
    static const ir_op unary[] = {IR_exp, IR_neg, IR_square, IR_tanh};
    static const ir_op binary[] = {IR_add, IR_sub, IR_mul, IR_div, IR_max};
    ir_term x = pick(m), y = pick(m);
    ir_atoms dims = ir_get(m->p, x)->dims, both = {0};
    ir_atom k = dims.n ? dims.at[below(m, dims.n)] : (ir_atom){0};
    if (k.i && ir_has(ir_get(m->p, y)->dims, k))
        both = (ir_atoms){&k, 1};
    switch (below(m, 8)) {
    case 0:
        return ir_1(m->p, unary[below(m, COUNT_OF(unary))], x);
    case 1:
    case 2:
    case 3:
        return ir_2(m->p, binary[below(m, COUNT_OF(binary))], x, y);
    case 4:
    case 5:
        if (both.n)
            return ir_matmul(m->p, x, y, both);
        /* fall through */
    default:
        return k.i ? ir_reduce(m->p, below(m, 4) ? IR_SUM : IR_MAX, x, (ir_atoms){&k, 1}) : x;
    }
}

static ir_dim *port_dims(ir_program *p, ir_atoms d)
{
    ir_dim *dims = NEW_N(p->a, ir_dim, d.n);
    for (i64 i = 0; i < d.n; i++)
        dims[i] = (ir_dim){ir_extent(p, d.at[i]), {&d.at[i], 1}};
    return dims;
}

static ir_program *random_program(arena *a, u64 seed)
{
    making m = {.g = rng_new(seed), .p = ir_program_new(a, "random", "random")};
    ir_atom atoms[3];
    for (int i = 0; i < 3; i++)
        atoms[i] = ir_atom_new(m.p, arena_printf(a, "%c", 'K' + i), 2 + i);
    for (int i = 0; i < 3; i++) {
        ir_atom two[2] = {atoms[MIN(i, (i + 1) % 3)], atoms[MAX(i, (i + 1) % 3)]};
        ir_atoms d = ir_atoms_union(m.p, (ir_atoms){two, 2}, (ir_atoms){two, 1});
        i64 port = ir_add_input(m.p, (ir_port){.name = intern_cstr(m.p->names, arena_printf(a, "x%d", i)),
                                               .role = i == 2 ? IR_PARAMETER : IR_INPUT,
                                               .dtype = DT_f32,
                                               .rank = 2,
                                               .dims = port_dims(m.p, d)});
        vec_push(a, &m.at, m.p->inputs.at[port].term);
    }
    i64 steps = 6 + below(&m, 8);
    for (i64 i = 0; i < steps; i++)
        vec_push(a, &m.at, grow(&m));
    for (i64 i = 1; i <= 2; i++) {
        ir_term t = m.at.at[m.at.n - i];
        ir_atoms d = ir_get(m.p, t)->dims;
        ir_add_output(m.p, (ir_port){.name = intern_cstr(m.p->names, arena_printf(a, "y%lld", (long long)i)),
                                     .term = t,
                                     .rank = d.n,
                                     .dims = port_dims(m.p, d)});
    }
    return m.p;
}

static rl_graph *graph_with(arena *a, const rl_ruleset *rules, const ir_program *p, bool repairs)
{
    rl_graph_options o = {.rules = rules,
                          .fp = RL_APPROXIMATE,
                          .limits = eqf_limits_default()};
    o.limits.seconds = -1;
    o.limits.nodes = 1500;
    rl_graph *g = rl_graph_new(a, p, &o);
    rl_graph_saturate(g, NULL);
    rl_graph_tile(g, NULL);
    if (repairs)
        rl_graph_fuse(g, RL_FUSE_LATE);
    return g;
}

static rl_graph *graph_of(arena *a, const rl_ruleset *rules, const ir_program *p)
{
    return graph_with(a, rules, p, true);
}

/* By place: does some form of it use the running results of a loop? It means nothing outside. */
static bool *find_open(arena *a, const rl_reach *r)
{
    bool *is_open = NEW_N(a, bool, r->n);
    for (bool more = true; more;) {
        more = false;
        for (i64 i = 0; i < r->nodes.n; i++) {
            const rl_enode *n = &r->nodes.at[i];
            bool open = n->label.op == IR_run;
            for (i64 k = 0; k < n->arity && n->label.op != IR_get; k++)
                open |= is_open[n->kids[k]];
            more |= open && !is_open[n->place];
            is_open[n->place] |= open;
        }
    }
    return is_open;
}

/* Takes two tiles of one type for equal. */
static void confuse(arena *a, rl_graph *g, rng *r)
{
    rl_reach *reach = rl_reach_new(a, g);
    bool *is_open = find_open(a, reach);
    VEC(i64) tiles = {0};
    for (i64 k = 0; k < reach->n; k++) {
        rl_type t = rl_graph_type(g, reach->classes[k]);
        if (t.kind == IR_A_VALUE && !(t.dims & ~t.axes) && !t.facts && !is_open[k])
            vec_push(a, &tiles, k);
    }
    for (i64 tries = 0; tries < 20 && tiles.n > 1; tries++) {
        eqf_class x = reach->classes[tiles.at[rng_below(r, (u64)tiles.n)]];
        eqf_class y = reach->classes[tiles.at[rng_below(r, (u64)tiles.n)]];
        rl_type s = rl_graph_type(g, x), t = rl_graph_type(g, y);
        bool changed;
        if (x.i == y.i || s.dims != t.dims || s.axes != t.axes || s.dtype != t.dtype)
            continue;
        rl_must(g, eqf_union(rl_graph_engine(g), x, y, eqf_text_of("confused"), &changed));
        break;
    }
    rl_must(g, eqf_rebuild(rl_graph_engine(g)));
}

/* ---- brute force ----------------------------------------------------------------------------- */

static bool is_way_node(const ex_space *s, const ex_structure *x, const rl_enode *n)
{
    i64 k = s->number[n->place] - 1;
    u8 kind = rl_graph_type(s->g, s->r->classes[n->place]).kind;
    if (kind == IR_A_BUNDLE || kind == IR_A_COMPONENT)
        return n->label.op == (kind == IR_A_BUNDLE ? IR_loop : IR_comp);
    if (k < 0 || x->way[k] < 0)
        return ex_is_glue(s, n);
    const ex_way *w = &s->reduced.at[k].ways.at[x->way[k]];
    for (i64 i = 0; i < w->nodes.n; i++)
        if (&s->r->nodes.at[w->nodes.at[i]] == n)
            return true;
    return false;
}

/* Are the outputs, from what is given, by these reductions and operators between them? */
static bool is_computable(arena *a, const ex_space *s, const ex_structure *x)
{
    const rl_reach *r = s->r;
    arena *scratch = arena_child(a);
    bool *known = NEW_N(scratch, bool, r->n);
    for (i64 k = 0; k < r->n; k++) {
        u8 kind = rl_graph_type(s->g, r->classes[k]).kind;
        known[k] = r->is_given[k] || kind == IR_A_LAMBDA || kind == IR_A_REDUCER;
    }
    for (bool more = true; more;) {
        more = false;
        for (i64 i = 0; i < r->nodes.n; i++) {
            const rl_enode *n = &r->nodes.at[i];
            if (known[n->place] || !is_way_node(s, x, n))
                continue;
            bool all = true;
            for (i64 k = 0; k < n->arity && n->label.op != IR_run; k++)
                all &= known[n->kids[k]];
            known[n->place] = all;
            more |= all;
        }
    }
    bool all = true;
    for (i64 i = 0; i < s->roots.n; i++)
        all &= known[s->roots.at[i]];
    arena_free(scratch);
    return all;
}

static bool next_assignment(const ex_space *s, ex_structure *x)
{
    for (i64 i = 0; i < s->reduced.n; i++) {
        if (x->way[i] + 1 < s->reduced.at[i].ways.n) {
            x->way[i]++;
            return true;
        }
        x->way[i] = -1;
    }
    return false;
}

static bool is_asked_for(const ex_space *s, const ex_structure *x, u64 atoms)
{
    for (i64 i = 0; i < s->reduced.n; i++)
        if (x->way[i] >= 0 &&
            !ex_is_asked_for(&s->reduced.at[i], &s->reduced.at[i].ways.at[x->way[i]], atoms))
            return false;
    return true;
}

/* False when there are too many. */
static bool brute_force(arena *a, const ex_space *s, ex_structures *out)
{
    u64 rolled = ex_rolled_atoms(s);
    f64 n = 1;
    for (i64 i = 0; i < s->reduced.n; i++)
        n *= (f64)s->reduced.at[i].ways.n + 1;
    if (n > MOST_ASSIGNMENTS || __builtin_popcountll(rolled) > 4)
        return false;
    ex_structure x;
    memset(x.way, -1, sizeof x.way);
    do {
        bool in_space = false;
        for (u64 atoms = rolled;; atoms = (atoms - 1) & rolled) {
            in_space |= is_asked_for(s, &x, atoms);
            if (atoms == 0)
                break;
        }
        if (in_space && is_computable(a, s, &x))
            vec_push(a, out, x);
    } while (next_assignment(s, &x));
    return true;
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool is_in(const ex_structures *list, const ex_structure *x)
{
    for (i64 i = 0; i < list->n; i++)
        if (memcmp(&list->at[i], x, sizeof *x) == 0)
            return true;
    return false;
}

/* Some programs have very many ways that are the same in the end. */
static bool is_long(void *user)
{
    i64 *polls = user;
    return ++*polls > MOST_POLLS;
}

/* What a mode finds; false when it met a limit. */
static bool find(arena *a, rl_graph *g, ex_mode mode, ex_structures *out, ex_counts *counts)
{
    i64 polls = 0;
    ex_options o = {.mode = mode, .is_over = is_long, .user = &polls};
    ex_space *s = ex_space_new(a, g, &o);
    ex_structures all = {0};
    ex_enumerate(s, mode, MOST, &all, counts);
    if (s->is_cut_short)
        return false;
    polls = 0;
    eqf_node *chosen = NEW_N(a, eqf_node, s->r->n);
    for (i64 i = 0; i < all.n; i++)
        if (ex_choose(s, &all.at[i], chosen))
            vec_push(a, out, all.at[i]);
    if (mode != EX_NONE)
        ex_compact(s, out);
    return true;
}

typedef struct tally {
    i64 compared, structures, circles, none, kept, expanded[3];
    i64 reductions;
} tally;

static const char *describe(arena *a, const ex_space *s, const ex_structure *x)
{
    str text = str_new(a);
    str_add(&text, "{");
    for (i64 i = 0; i < s->reduced.n; i++)
        if (x->way[i] >= 0)
            str_printf(&text, " %lld:%d", (long long)i, x->way[i]);
    str_add(&text, " }");
    return str_text(&text);
}

static void expect_same(arena *a, const ex_space *s, const char *name, const char *mode,
                        const ex_structures *got, const ex_structures *want)
{
    for (i64 i = 0; i < want->n; i++)
        if (!is_in(got, &want->at[i]))
            fail_msg("%s, %s: %s is not found", name, mode, describe(a, s, &want->at[i]));
    for (i64 i = 0; i < got->n; i++)
        if (!is_in(want, &got->at[i]))
            fail_msg("%s, %s: %s is found, and none", name, mode, describe(a, s, &got->at[i]));
}

/* Can some reduction need itself? */
static bool has_circle(ex_space *s)
{
    arena *a = s->a;
    i64 n = s->reduced.n;
    ex_set *may = NEW_N(a, ex_set, n);
    for (i64 k = 0; k < n; k++)
        for (i64 w = 0; w < s->reduced.at[k].ways.n; w++)
            for (i64 i = 0; i < s->reduced.at[k].ways.at[w].bodies.n; i++)
                may[k] = ex_union(&may[k], &s->reduced.at[k].ways.at[w].bodies.at[i]);
    for (i64 t = 0; t < n; t++)
        for (i64 k = 0; k < n; k++)
            if (ex_has(&may[k], t))
                may[k] = ex_union(&may[k], &may[t]);
    for (i64 k = 0; k < n; k++)
        if (ex_has(&may[k], k))
            return true;
    return false;
}

static void compare(arena *a, rl_graph *g, const char *name, tally *t)
{
    ex_structures want = {0}, computable = {0}, early = {0}, after = {0}, none = {0}, all = {0};
    ex_counts counts[3] = {0};
    ex_options o = {.mode = EX_EARLY};
    ex_space *s = ex_space_new(a, g, &o);
    if (!brute_force(a, s, &computable) || !find(a, g, EX_EARLY, &early, &counts[0]))
        return;
    for (i64 i = 0; i < computable.n; i++)
        vec_push(a, &want, computable.at[i]);
    ex_compact(s, &want);
    expect_same(a, s, name, "early", &early, &want);
    t->compared++;
    t->structures += want.n;
    t->reductions += s->reduced.n;
    ex_enumerate(s, EX_EARLY, MOST, &all, &counts[2]); /* for the bodies */
    t->circles += has_circle(s);
    counts[2] = (ex_counts){0};
    if (!find(a, g, EX_AFTER, &after, &counts[1]))
        return;
    expect_same(a, s, name, "after", &after, &want);
    t->expanded[0] += counts[0].expanded;
    t->expanded[1] += counts[1].expanded;
    if (!find(a, g, EX_NONE, &none, &counts[2]))
        return;
    t->none++;
    for (i64 i = 0; i < none.n; i++)
        if (!is_in(&computable, &none.at[i]))
            fail_msg("%s, none: %s is found, and none", name, describe(a, s, &none.at[i]));
    t->kept += none.n;
    ex_compact(s, &none);
    expect_same(a, s, name, "none, compacted", &none, &want);
}

static void say(const char *what, const tally *t)
{
    print_message("  %s: %lld e-graphs, %lld of them circular, %lld reductions, %lld structures, %lld where "
                  "all are kept; states: after %lld, early %lld\n",
                  what, (long long)t->compared, (long long)t->circles, (long long)t->reductions,
                  (long long)t->structures, (long long)t->kept, (long long)t->expanded[1],
                  (long long)t->expanded[0]);
}

static void check_structures(fixture *f, const void *arg)
{
    (void)arg;
    const rl_ruleset *rules = rl_ruleset_shipped(f->a);
    tally programs = {0}, graphs = {0};
    for (u64 seed = 1; seed <= 1200; seed++) {
        arena *a = arena_child(f->a);
        rng r = rng_new(seed + 77);
        rl_graph *g = graph_of(a, rules, random_program(a, seed));
        const char *name = arena_printf(a, "seed %llu", (unsigned long long)seed);
        compare(a, g, name, &programs);
        for (int i = 0; i < 3; i++) {
            confuse(a, g, &r);
            compare(a, g, arena_printf(a, "%s, confused %d", name, i), &graphs);
        }
        arena_free(a);
    }
    say("programs", &programs);
    say("random e-graphs", &graphs);
    assert_true(programs.compared >= 1000 && programs.reductions > 2 * programs.compared);
    assert_true(graphs.compared >= 1000 && graphs.circles >= 50);
    assert_true(programs.none >= 800 && graphs.none >= 800);
}

static void random_structures(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_structures, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* ---- candidates ------------------------------------------------------------------------------ */

static const char **texts(arena *a, const ex_report *r)
{
    const char **at = NEW_N(a, const char *, r->n);
    for (i64 i = 0; i < r->n; i++) {
        str s = str_new(a);
        ir_print(&s, r->at[i].program);
        at[i] = str_text(&s);
    }
    return at;
}

/* Sets of what the structures may store. */
static i64 count_sets(arena *a, rl_graph *g)
{
    ex_options o = {.mode = EX_EARLY};
    ex_space *s = ex_space_new(a, g, &o);
    ex_structures all = {0}, computable = {0};
    ex_counts counts = {0};
    ex_enumerate(s, EX_EARLY, MOST, &all, &counts);
    eqf_node *chosen = NEW_N(a, eqf_node, s->r->n);
    for (i64 i = 0; i < all.n; i++)
        if (ex_choose(s, &all.at[i], chosen))
            vec_push(a, &computable, all.at[i]);
    ex_compact(s, &computable);
    i64 sum = 0, places[EX_STORABLE];
    for (i64 i = 0; i < computable.n; i++) {
        ex_choose(s, &computable.at[i], chosen);
        sum += (i64)1 << ex_storable(s, chosen, places, EX_STORABLE);
    }
    return sum;
}

/* Whatever is left out early is left out at the end: the lists are equal, program by program. Where the
 * report says that there are no other candidates, each structure was looked at with all that it may store. */
static void check_candidates(fixture *f, const void *arg)
{
    (void)arg;
    const rl_ruleset *rules = rl_ruleset_shipped(f->a);
    i64 compared = 0, candidates = 0, more = 0, exhaustive = 0;
    for (u64 seed = 1; seed <= 200; seed++) {
        arena *a = arena_child(f->a);
        rl_graph *g = graph_of(a, rules, random_program(a, seed));
        ex_report r[3];
        bool complete = true;
        for (int mode = 0; mode < 3; mode++) {
            i64 polls = 0;
            ex_options o = {
                .most = 200, .mode = (ex_mode)mode, .is_over = is_long, .user = &polls};
            r[mode] = ex_search(a, g, &o);
            complete &= r[mode].complete || mode == EX_NONE;
        }
        if (complete) {
            const char **early = texts(a, &r[0]), **after = texts(a, &r[1]);
            assert_int_equal(r[0].sets, r[1].sets);
            assert_int_equal(r[0].distinct, r[1].distinct);
            assert_int_equal(r[0].n, r[1].n);
            for (i64 i = 0; i < r[0].n; i++) {
                i64 k = 0;
                while (k < r[1].n && strcmp(early[i], after[k]) != 0)
                    k++;
                if (k == r[1].n)
                    fail_msg("seed %llu: not found at the end:\n%s", (unsigned long long)seed, early[i]);
                for (k = 0; k < i; k++)
                    assert_string_not_equal(early[i], early[k]);
            }
            assert_true(r[2].sets >= r[0].sets);
            i64 sets = count_sets(a, g);
            assert_true(r[0].distinct <= sets && r[0].is_exhaustive == r[1].is_exhaustive);
            assert_true(r[0].distinct == sets || !r[0].is_exhaustive);
            exhaustive += r[0].is_exhaustive;
            compared++;
            candidates += r[0].n;
            more += r[2].sets > r[0].sets;
        }
        arena_free(a);
    }
    print_message("  %lld programs, %lld candidates, %lld with more where all is kept, %lld without others\n",
                  (long long)compared, (long long)candidates, (long long)more, (long long)exhaustive);
    assert_true(compared >= 120 && candidates > compared && more > 10);
    assert_true(exhaustive > 100 && exhaustive < compared);
}

static void candidates(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_candidates, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* ---- selections of e-nodes ------------------------------------------------------------------- */

static int compare_bounds(const void *x, const void *y)
{
    f64 a = *(const f64 *)x, b = *(const f64 *)y;
    return a < b ? -1 : a > b;
}

static f64 *bounds_of(arena *a, const ex_report *r)
{
    f64 *at = NEW_N(a, f64, r->n + 1);
    for (i64 i = 0; i < r->n; i++)
        at[i] = r->at[i].bound_us;
    if (r->n)
        qsort(at, (size_t)r->n, sizeof *at, compare_bounds);
    return at;
}

/* By Algorithm 1, states left out early lose no selection: the same number is left in the end, of the same
 * costs; each was found where everything is kept, often many times. */
static void check_selections(fixture *f, const void *arg)
{
    (void)arg;
    const rl_ruleset *rules = rl_ruleset_shipped(f->a);
    i64 compared = 0, found = 0, expanded[2] = {0}, kept = 0;
    for (u64 seed = 1; seed <= 200; seed++) {
        arena *a = arena_child(f->a);
        rng random = rng_new(seed + 7);
        rl_graph *g = graph_of(a, rules, random_program(a, seed));
        for (int i = 0; i < 2; i++) {
            ex_report r[3];
            bool complete = true;
            for (int mode = 0; mode < 3 && complete; mode++) {
                i64 polls = MOST_POLLS - 500; /* few of some hundred states */
                ex_options o = {.order = EX_PAPER, .mode = (ex_mode)mode, .most = 512, .is_over = is_long,
                                .user = &polls};
                r[mode] = ex_search(a, g, &o);
                complete = r[mode].complete && r[mode].sets <= 512;
            }
            if (complete) {
                assert_int_equal(r[0].sets, r[1].sets);
                assert_true(r[2].sets >= r[1].sets);
                assert_true(r[0].expanded <= r[1].expanded && r[1].expanded == r[2].expanded);
                assert_int_equal(r[0].n, r[1].n);
                const f64 *early = bounds_of(a, &r[0]), *after = bounds_of(a, &r[1]);
                for (i64 k = 0; k < r[0].n; k++)
                    assert_true(early[k] == after[k]);
                compared++;
                found += r[0].sets;
                kept += r[2].sets;
                expanded[0] += r[0].expanded;
                expanded[1] += r[1].expanded;
            }
            confuse(a, g, &random);
        }
        arena_free(a);
    }
    print_message("  %lld e-graphs, %lld selections, %lld where all are kept; states: after %lld, early %lld\n",
                  (long long)compared, (long long)found, (long long)kept, (long long)expanded[1],
                  (long long)expanded[0]);
    assert_true(compared >= 150 && found > 2 * compared && kept > 2 * found);
    assert_true(expanded[1] > 2 * expanded[0]);
}

static void selections(void **state)
{
    fixture *f = *state;
    if (attempt(f, check_selections, NULL) != EQF_OK)
        fail_msg("%s", last_diag(f).message);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

static bool is_spent(void *user)
{
    i64 *left = user;
    return --*left < 0;
}

/* Whenever time is over, what was found is kept; and it is less than everything. */
static void check_interrupts(fixture *f, const void *arg)
{
    const char *name = arg;
    const rl_ruleset *rules = rl_ruleset_shipped(f->a);
    rl_graph *g = graph_of(f->a, rules, small_program(f->a, name));
    for (int mode = 0; mode < 2; mode++) {
        i64 some = 0;
        for (i64 polls = 1; polls < 5000; polls += polls / 12 + 1) {
            i64 left = polls;
            ex_options o = {.mode = (ex_mode)mode, .is_over = is_spent, .user = &left};
            ex_report r = ex_search(f->a, g, &o);
            if (!r.is_cut_short) {
                assert_true(r.n > 0);
                break;
            }
            assert_true(!r.complete);
            some += r.n > 0;
            for (i64 i = 0; i < r.n; i++)
                assert_true(r.at[i].kernels > 0 && r.at[i].bound_us > 0);
        }
        assert_true(some >= 2);
    }
}

static void interrupts(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"attention", "differential_attention"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_interrupts, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

/* A reduction that uses the running results of others is what the solver found, and nothing else. */
static void check_rolling(fixture *f, const void *arg)
{
    const rl_ruleset *rules = rl_ruleset_shipped(f->a);
    for (int repairs = 0; repairs < 2; repairs++) {
        rl_graph *g = graph_with(f->a, rules, small_program(f->a, arg), repairs);
        ex_report r = ex_search(f->a, g, &(ex_options){.most = 200});
        i64 rolling = 0;
        for (i64 i = 0; i < r.n; i++)
            rolling += r.at[i].rolls;
        assert_true(r.n > 0);
        assert_int_equal(rolling > 0, repairs);
    }
}

static void rolling(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"attention", "attention_causal", "row_softmax", "gqa_decode",
                                        "self_attention", "differential_attention", "mla"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (attempt(f, check_rolling, names[i]) != EQF_OK)
            fail_msg("%s: %s", names[i], last_diag(f).message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(random_structures), TEST(candidates), TEST(selections),
                                       TEST(interrupts), TEST(rolling)};
    return cmocka_run_group_tests_name("structures", tests, NULL, NULL);
}
