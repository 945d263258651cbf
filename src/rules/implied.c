/* The rules that operators' rows imply, written out for readers: one a row and way of passing, as
 * transfer.c builds them. The engine gets them from generate.c; nothing reads this text. */
#include "rules/graph_impl.h"

typedef struct lister {
    arena *a;
    rl_implied_list *out;
    const char *source; /* of what is listed now */
} lister;

static void list(const lister *l, const char *family, const char *name, rl_fp fp, const char *left,
                 const char *right, const char *when, const char *doc)
{
    rl_implied one = {arena_strdup(l->a, name), family, left, right, when, doc, l->source, fp};
    vec_push(l->a, l->out, one);
}

static const char *const variables[] = {"?x", "?y", "?z"};
static const char mapped[] = "an operand without the dims of the map stays as it is";

/* `around` applied to each operand, as in (op (view ?x ...) (view ?y ...)). */
static const char *over(const lister *l, const char *name, i64 n, bool is_any, const char *before,
                        const char *after, const char *keywords)
{
    str s = str_new(l->a);
    str_printf(&s, "(%s", name);
    for (i64 i = 0; i < n; i++) {
        str_printf(&s, " %s%s", before, variables[i]);
        for (const char *c = after; *c; c++) /* @: the operand */
            if (*c == '@')
                str_add(&s, variables[i]);
            else
                str_add_char(&s, *c);
    }
    str_printf(&s, "%s%s)", is_any ? " ..." : "", keywords);
    return str_text(&s);
}

/* What the rule about an index map asks of operands beside `guard`: others stay as they are. */
static const char *when_mapped(const lister *l, i64 n, const char *guard)
{
    str s = str_new(l->a);
    str_printf(&s, "%s%s", *guard || n > 1 ? "(and " : "", guard);
    for (i64 i = 0; i < n; i++)
        str_printf(&s, "%s(within (from ?P) %s)", i || *guard ? " " : "", variables[i]);
    str_add(&s, *guard || n > 1 ? ")" : "");
    return str_text(&s);
}

static const char *when_whole(const lister *l, i64 n)
{
    return over(l, "whole", n, false, "", "", "");
}

static void list_pointwise(const lister *l, ir_op op)
{
    static const struct {
        const char *outer, *family, *keywords, *inside;
    } ways[] = {
        {"view", "propagation", " :par ?V", " :par (meet ?V @))"},
        {"rename", "propagation", " :map ?P", " :map ?P)"},
        {"slice", "propagation", " :map ?P", " :map ?P)"},
        {"splitdim", "split", " :map ?P", " :map ?P)"},
    };
    const ir_op_row *row = ir_row(op);
    i64 n = MIN(row->arity, (i64)COUNT_OF(variables));
    for (i64 i = 0; i < COUNT_OF(ways); i++) {
        const char *inner = over(l, row->name, n, false, "", "", "");
        list(l, ways[i].family, arena_printf(l->a, "%s.%s", ways[i].outer, row->name), RL_EXACT,
             arena_printf(l->a, "(%s %s%s)", ways[i].outer, inner, ways[i].keywords),
             over(l, row->name, n, false, arena_printf(l->a, "(%s ", ways[i].outer), ways[i].inside,
                  ""),
             i == 0 ? "" : when_mapped(l, n, ""), i == 0 ? "" : mapped);
    }
}

/* Reductions and products: `name` over operands, contracted along ?K; `tile` the same inside a
 * tile, `combine` what joins the tiles' contributions. */
static void list_contracting(const lister *l, const char *name, i64 n, const char *pattern,
                             const char *tile, const char *combine)
{
    static const char *const outer[] = {"rename", "slice", "splitdim"};
    const char *inner = over(l, pattern, n, false, "", "", " :axis ?K");
    const char *tiles =
        over(l, tile, n, false, "(view ", " :par (meet (join ?V ?K) @))", " :axis ?K");
    list(l, "refinement", arena_printf(l->a, "view.%s", name), RL_REASSOCIATED,
         arena_printf(l->a, "(view %s :par ?V)", inner),
         arena_printf(l->a, "(reduce %s %s :par ?K)", combine, tiles), when_whole(l, n), "");
    tiles = over(l, tile, n, false, "(view ", " :par (meet ?K @))", " :axis ?K");
    list(l, "refinement", arena_printf(l->a, "refine.%s", name), RL_REASSOCIATED, inner,
         arena_printf(l->a, "(reduce %s %s :par ?K)", combine, tiles), when_whole(l, n),
         "where the result has no dims, so that there is no view of it");
    list(l, "refinement", arena_printf(l->a, "whole.%s", name), RL_EXACT,
         arena_printf(l->a, "(view %s :par ?V)", inner),
         over(l, tile, n, false, "(view ", " :par (meet ?V @))", " :axis ?K"), "",
         "where every set of axes is tried");
    for (i64 i = 0; i < COUNT_OF(outer); i++)
        list(l, i < 2 ? "propagation" : "split", arena_printf(l->a, "%s.%s", outer[i], name),
             RL_EXACT, arena_printf(l->a, "(%s %s :map ?P)", outer[i], inner),
             over(l, pattern, n, false, arena_printf(l->a, "(%s ", outer[i]), " :map ?P)",
                  " :axis ?K"),
             when_mapped(l, n, "(free (join (from ?P) (to ?P)) ?K)"), mapped);
    tiles = over(l, pattern, n, false, "(splitdim ", " :map ?P)",
                 " :axis (join (minus ?K (from ?P)) inner)");
    list(l, "split", arena_printf(l->a, "split.%s", name), RL_REASSOCIATED, inner,
         arena_printf(l->a, "(reduce %s %s :axis outer)", combine, tiles), "",
         "for the dim of ?K whose parts are outer and inner");
}

static void list_gather(const lister *l)
{
    list(l, "propagation", "view.gather", RL_EXACT, "(view (gather ?x ?i ... :axis ?K) :par ?V)",
         "(gather (view ?x :par (minus (meet ?V ?x) ?K)) (view ?i :par (meet ?V ?i)) ... :axis ?K)",
         "", "the dims that are looked up stay whole");
    static const char *const outer[] = {"rename", "slice", "splitdim"};
    for (i64 i = 0; i < COUNT_OF(outer); i++)
        list(l, i < 2 ? "propagation" : "split", arena_printf(l->a, "%s.gather", outer[i]),
             RL_EXACT, arena_printf(l->a, "(%s (gather ?x ?i ... :axis ?K) :map ?P)", outer[i]),
             arena_printf(l->a, "(gather (%s ?x :map ?P) (%s ?i :map ?P) ... :axis ?K)", outer[i],
                          outer[i]),
             "(free (join (from ?P) (to ?P)) ?K)", mapped);
}

/* Steps that are derived, not matched: what is found in one file is judged by fuse_prove.c. */
static void list_fusion(lister *l)
{
    static const char reduction[] = "(reduce R ?x :par ?P)";
    l->source = "src/rules/bundle.c";
    list(l, "fusion", "bundle.plain", RL_EXACT, reduction,
         "(get (loop (comp R ?x) (comp Q ?y) ... :par ?P) (comp R ?x))", "",
         "beside reductions over the same axes that need not each other's results");
    list(l, "fusion", "bundle.join", RL_EXACT, "(get (loop ?c :par ?P) ?c)",
         "(get (loop ?c ?d ... :par ?P) ?c)", "", "plain components of two loops in one");
    list(l, "fusion", "bundle.rolled", RL_EXACT, "(get (loop ?s ?c :par ?P) ?c)",
         "(get (loop ?s ?c ?d ... :par ?P) ?c)", "",
         "rolled ones, with the producers that both need, each once");
    l->source = "src/rules/fuse.c";
    list(l, "fusion", "bundle.single", RL_EXACT, "(get (loop (comp R ?x) ... :par ?P) (comp R ?x))",
         reduction, "", "a component that uses no other is its reduction");
    l->source = "src/rules/chain.c";
    list(l, "fusion", "loop.rolled", RL_REASSOCIATED, reduction,
         "(get (loop ?s (comp R ?y ?h ?s) :par ?P) (comp R ?y ?h ?s))", "",
         "where ?x needs the result of ?s: ?y is ?x with results so far, ?h moves what was "
         "accumulated; several producers alike");
    list(l, "fusion", "loop.split", RL_REASSOCIATED, reduction,
         "(op (get (loop ?s (comp R ?y) :par ?P) (comp R ?y)) (get ... ?s))", "",
         "where what ?x has of the result is a factor that can wait for the end");
    list(l, "fusion", "loop.reducer", RL_REASSOCIATED, reduction,
         "(get (loop (comp REDUCER ?leaf ... :result k) ... :par ?P) ...)", "",
         "any other repair: a state of several slots");
    l->source = "src/rules/part.c";
    list(l, "fusion", "part", RL_REASSOCIATED, reduction, "(op (reduce Q ?y :par ?P) ... ?s ?r)", "",
         "over one part of a split, where ?x needs results ?s over all parts: ?y needs those of the part, "
         "?r, and what it makes is moved from these to ?s");
    l->source = "src/rules/visit.c";
    list(l, "fusion", "visit", RL_EXACT, "(loop ?c ... :par ?P)",
         "(loop ?c ... :par ?P :visit RANGES)", "",
         "where a mask leaves other tiles without effect");
    list(l, "fusion", "visit.approx", RL_APPROXIMATE, "(loop ?c ... :par ?P)",
         "(loop ?c ... :par ?P :visit RANGES)", "",
         "the same for a mask with a large negative number, where every row has a live position");
}

/* What holds by how e-nodes are made, and what extraction decides. */
static void list_structure(lister *l)
{
    static const char unordered[] = "operands of an unordered operator come in one order";
    l->source = "src/rules/graph.c";
    list(l, "structural", "normalise", RL_EXACT, "(loop ?d ?c ?c ... :par ?P)",
         "(loop ?c ?d ... :par ?P)", "", "components are a set");
    list(l, "structural", "commute", RL_EXACT, "(op ?y ?x)", "(op ?x ?y)", "", unordered);
    l->source = "src/rules/generate.c";
    list(l, "structural", "view-of-combination", RL_EXACT, "(view (comb ?t :par ?V) :par ?V)",
         "?t", "", "a tile of a combination is that tile");
    l->source = "src/rules/transfer.c";
    list(l, "structural", "view-of-less", RL_EXACT, "(view ?x :par ?V)",
         "(view ?x :par (meet ?V ?x))", "", "axes whose dim a value lacks cut nothing");
    list(l, "structural", "map-of-less", RL_EXACT, "(map ?x :map ?P)", "?x", "(free (from ?P) ?x)",
         "a map of dims that a value lacks does nothing");
    list(l, "structural", "rename.rename", RL_EXACT, "(rename (rename ?x :map ?P) :map ?Q)",
         "(rename ?x :map PQ)", "", "a renaming of a renaming is one");
    l->source = "src/ir/tile.c";
    list(l, "structural", "view-of-view", RL_EXACT, "(view (view ?x :par ?V) :par ?W)",
         "(view ?x :par (join ?V ?W))", "", "a view of a view is one view, when a program is made");
    l->source = "src/rules/enter.c";
    list(l, "structural", "member-of-tuple", RL_EXACT, "(get (tuple ?x ...) ?x)", "?x", "",
         "tuples leave no e-node");
    list(l, "structural", "spell-square", RL_EXACT, "(mul ?x ?x)", "(square ?x)", "",
         "one spelling when a program is read; (pow ?x 2) likewise");
    list(l, "structural", "spell-recip", RL_REASSOCIATED, "(div 1 ?x)", "(recip ?x)", "",
         "and (recip (sqrt ?x)) is (rsqrt ?x)");
    list(l, "structural", "unrounded", RL_REASSOCIATED, "(cast T ?x)", "?x", "",
         "a value that is rounded to another float type on its way is kept as it is; what is stored "
         "is rounded where the program rounds it before every reader");
    l->source = "src/extract/form.c";
    list(l, "storage", "store", RL_EXACT, "?t", "(view (comb ?t :par ?V) :par ?V)", "(same ?V ?t)",
         "a tile may be stored and read again: no e-node, a bit that extraction sets");
}

void rl_list_implied(arena *a, rl_implied_list *out)
{
    lister l = {a, out, ""};
    list_fusion(&l);
    list_structure(&l);
    l.source = "src/rules/join.c";
    list(&l, "algebra", "join-products", RL_REASSOCIATED,
         "(add (matmul ?x ?a :axis ?K) (matmul ?y ?b :axis ?L))",
         "(matmul (concat ?x ?y :axis (?K ?L) :to ?K+?L) (concat ?a ?b :axis (?K ?L) :to ?K+?L) "
         ":axis ?K+?L)",
         "(and (const ?a ?b) (not (const ?x)) (not (const ?y)))",
         "each contracts one dim, which the other product does not have");
    l.source = "src/rules/generate.c";
    list(&l, "refinement", "combine", RL_EXACT, "?x", "(comb (view ?x :par ?V) :par ?V)",
         "(same ?V ?x)", "where it has a view along all of its dims, and is computed");
    l.source = "";
    for (ir_op op = IR_NO_OP + 1; op < IR_OP_COUNT; op++) {
        switch (rl_transfer_of(op)) {
        case RL_POINTWISE:
            list_pointwise(&l, op);
            break;
        case RL_REDUCES:
            for (ir_reducer r = IR_NO_REDUCER + 1; r < IR_REDUCER_COUNT; r++) {
                const char *text = ir_reducer_text(r);
                const char *full = arena_printf(a, "reduce %s", text);
                list_contracting(&l, rl_operator_name(a, op, r), 1, full, full, text);
            }
            break;
        case RL_MULTIPLIES:
            list_contracting(&l, "matmul", 2, "matmul", "tile-matmul", "+");
            break;
        case RL_GATHERS:
            list_gather(&l);
            break;
        default:
            break;
        }
    }
}
