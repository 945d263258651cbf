/* pt2_signature: what the inputs and outputs of the graph stand for, and their names.
 *
 * Specs pair with graph inputs and outputs by position and must name the same values. Names for
 * people come from the calling convention, a pytree whose JSON stands in a string and whose
 * contexts (the keys of a dict) are JSON in strings again. A leaf directly inside a dict or named
 * tuple has its key as name, any other is outN, N counting all leaves of the result. */
#include "frontend/reader.h"

enum { MAX_PATH_BYTES = 256 };

typedef struct leaf {
    const char *key;  /* its own key or field; NULL: none */
    const char *path; /* "['a'][0]" from the argument on; NULL: too long to matter */
    const char *root; /* the keyword of its argument; NULL: positional */
    i64 child;        /* which child of args or kwargs it lies below; -1: neither */
    bool is_keyword;  /* below kwargs */
} leaf;

typedef struct tree {
    arena *scratch;
    const fe_program *p;
    const char *member;
    fe_js fields; /* treespec_namedtuple_fields; v NULL: none */
    VEC(leaf) leaves;
} tree;

/* ---- pytrees ------------------------------------------------------------------------------- */

/* Has `list` exactly n items, all of them usable as keys? */
static bool is_key_list(const fe_js *list, i64 n)
{
    if (!fe_js_is_array(list) || fe_js_items(list) != n)
        return false;
    for (i64 i = 0; i < n; i++) {
        fe_js item = fe_js_at(list, i);
        if (!fe_js_is_text(&item) && !fe_js_is_int(&item))
            return false;
    }
    return true;
}

static const char **key_texts(tree *t, const fe_js *list, i64 n)
{
    const char **keys = NEW_N(t->scratch, const char *, n);
    for (i64 i = 0; i < n; i++) {
        fe_js item = fe_js_at(list, i);
        if (fe_js_is_int(&item)) {
            keys[i] = arena_printf(t->scratch, "%lld", (long long)fe_js_i64(&item));
            continue;
        }
        i64 bytes;
        const char *text = fe_js_text(&item, &bytes);
        /* A file of tensors has no room for that one: it is its header's own. */
        bool is_free = fe_is_plain_name(text, bytes) && strcmp(text, "__metadata__") != 0;
        keys[i] = is_free ? text : NULL;
    }
    return keys;
}

/* Keys of the n children: fields of a named tuple, the keys in a dict's context (a list, or a list
 * inside a list for data classes, or inside an object for default dicts); NULL for sequences. */
static const char **child_keys(tree *t, const fe_js *context, i64 n)
{
    if (n > 0 && fe_js_is_object(context)) {
        fe_js inner = fe_js_opt(context, "dict_context");
        return is_key_list(&inner, n) ? key_texts(t, &inner, n) : NULL;
    }
    if (!fe_js_is_text(context) || n == 0)
        return NULL;
    i64 bytes;
    const char *text = fe_js_text(context, &bytes);
    fe_doc *d = fe_json_try(t->scratch, t->p->file, t->member, text, bytes);
    fe_js root = d ? fe_js_root(d) : (fe_js){0};
    if (fe_js_is_text(&root))
        text = fe_js_text(&root, NULL);
    if (fe_js_is_object(&t->fields)) {
        fe_js tuple = fe_js_opt(&t->fields, text);
        fe_js names = {0};
        if (fe_js_is_object(&tuple))
            names = fe_js_opt(&tuple, "field_names");
        if (is_key_list(&names, n))
            return key_texts(t, &names, n);
    }
    if (!fe_js_is_array(&root))
        return NULL;
    if (is_key_list(&root, n))
        return key_texts(t, &root, n);
    for (i64 i = 0; i < fe_js_items(&root); i++) {
        fe_js inner = fe_js_at(&root, i);
        if (is_key_list(&inner, n))
            return key_texts(t, &inner, n);
    }
    return NULL;
}

static void walk(tree *t, const fe_js *spec, leaf at, int depth)
{
    if (depth > FE_MAX_DEPTH)
        fe_js_throw(spec, EQF_E_LIMIT, "nested more than %d deep", FE_MAX_DEPTH);
    fe_js type = fe_js_opt(spec, "type");
    if (!type.v) {
        vec_push(t->scratch, &t->leaves, at);
        return;
    }
    fe_js children = fe_js_get(spec, "children_spec"), context = fe_js_opt(spec, "context");
    i64 n = fe_js_items(&children);
    const char **keys = child_keys(t, &context, n);
    for (i64 i = 0; i < n; i++) {
        leaf below = at;
        below.key = keys ? keys[i] : NULL;
        if (depth == 1) {
            below.child = i;
            below.root = keys ? keys[i] : NULL;
        } else if (depth == 0) {
            below.is_keyword = i == 1;
        } else if (at.path) {
            below.path = keys && keys[i]
                             ? arena_printf(t->scratch, "%s['%s']", at.path, keys[i])
                             : arena_printf(t->scratch, "%s[%lld]", at.path, (long long)i);
        }
        if (below.path && strlen(below.path) > MAX_PATH_BYTES)
            below.path = NULL;
        fe_js child = fe_js_at(&children, i);
        walk(t, &child, below, depth + 1);
    }
}

/* The leaves of `[1, {…}]`. False when there is no such spec or it is of another protocol. */
static bool read_tree(tree *t, const fe_js *signature, const char *field)
{
    if (!fe_js_is_object(signature))
        return false;
    fe_js spec = fe_js_opt(signature, field);
    if (!spec.v)
        return false;
    i64 n;
    const char *text = fe_js_text(&spec, &n);
    t->member = arena_printf(t->scratch, "%s:%s", signature->doc->member, field);
    fe_js root = fe_js_root(fe_json_read(t->scratch, t->p->file, t->member, text, n));
    if (fe_js_items(&root) != 2)
        fe_js_throw(&root, EQF_E_PARSE, "expected [1, {...}]");
    fe_js protocol = fe_js_at(&root, 0), top = fe_js_at(&root, 1);
    if (fe_js_i64(&protocol) != 1)
        return false;
    t->leaves.n = 0;
    walk(t, &top, (leaf){.path = "", .child = -1}, 0);
    return true;
}

/* The signature of the module itself among those of its parts. */
static fe_js find_signature(const fe_js *calls)
{
    for (i64 i = 0; calls->v && i < fe_js_items(calls); i++) {
        fe_js call = fe_js_at(calls, i), fqn = fe_js_get(&call, "fqn");
        if (fe_js_text(&fqn, NULL)[0] != 0)
            continue;
        fe_js signature = fe_js_opt(&call, "signature");
        signature.up = NULL; /* `call` goes away */
        return signature;
    }
    return (fe_js){.doc = calls->doc};
}

/* ---- specs --------------------------------------------------------------------------------- */

static _Noreturn void unknown_spec(const fe_reader *r, const fe_js *one)
{
    fe_js_throw(one, EQF_E_UNSUPPORTED, "\"%s\" is not read (schema %lld.%lld)",
                fe_show(one->doc->a, one->key, (i64)strlen(one->key)),
                (long long)r->p->schema_major, (long long)r->p->schema_minor);
}

static bool is_value(const fe_arg *a)
{
    return a->kind == FE_ARG_TENSOR || a->kind == FE_ARG_SYM_INT || a->kind == FE_ARG_SYM_REAL ||
           a->kind == FE_ARG_SYM_BOOL || a->kind == FE_ARG_OBJECT;
}

/* `name` must be that of the value that the graph has at this position. */
static void check_name(const fe_reader *r, const fe_js *name, const fe_arg *a)
{
    const char *found = fe_js_name(name);
    const char *own = is_value(a) ? r->p->graph->values[a->value.i].name : "a constant";
    if (!is_value(a) || strcmp(found, own) != 0)
        fe_js_throw(name, EQF_E_PARSE,
                    "\"%s\" is named here, the graph has \"%s\" at this position", found, own);
}

/* {arg: {name}} of weights and mutations: always a tensor. */
static void check_tensor(const fe_reader *r, const fe_js *spec, const fe_arg *a)
{
    fe_js arg = fe_js_get(spec, "arg"), name = fe_js_get(&arg, "name");
    check_name(r, &name, a);
    if (a->kind != FE_ARG_TENSOR)
        fe_js_throw(&name, EQF_E_PARSE, "\"%s\" is no tensor", fe_js_name(&name));
}

/* {arg: Argument} of user inputs and outputs. */
static void check_arg(const fe_reader *r, const fe_js *spec, const fe_arg *a)
{
    fe_js arg = fe_js_get(spec, "arg"), one = fe_js_only(&arg), name = {0};
    if (fe_js_is_object(&one)) {
        name = fe_js_opt(&one, "name");
        if (!name.v)
            name = fe_js_opt(&one, "as_name");
    }
    if (name.v)
        check_name(r, &name, a);
    else if (is_value(a))
        fe_js_throw(&arg, EQF_E_PARSE, "a constant here, the graph has \"%s\" at this position",
                    r->p->graph->values[a->value.i].name);
    if (a->kind == FE_ARG_OBJECT)
        fe_js_throw(&arg, EQF_E_UNSUPPORTED, "script objects are not read");
}

static void read_input(fe_reader *r, const fe_js *spec, fe_input *in)
{
    static const struct {
        const char *tag, *fqn;
        u8 kind;
    } WEIGHTS[] = {{"parameter", "parameter_name", FE_IN_PARAMETER},
                   {"buffer", "buffer_name", FE_IN_BUFFER},
                   {"tensor_constant", "tensor_constant_name", FE_IN_TENSOR}};
    fe_js one = fe_js_only(spec);
    for (i64 i = 0; i < COUNT_OF(WEIGHTS); i++) {
        if (strcmp(one.key, WEIGHTS[i].tag) != 0)
            continue;
        fe_js fqn = fe_js_get(&one, WEIGHTS[i].fqn), persistent = fe_js_opt(&one, "persistent");
        check_tensor(r, &one, &in->arg);
        in->kind = WEIGHTS[i].kind;
        in->fqn = in->name = arena_strdup(r->a, fe_js_name(&fqn));
        in->is_persistent = in->kind == FE_IN_BUFFER && (!persistent.v || fe_js_bool(&persistent));
        return;
    }
    if (strcmp(one.key, "user_input") == 0) {
        check_arg(r, &one, &in->arg);
        in->kind = is_value(&in->arg) ? FE_IN_USER : FE_IN_CONSTANT;
        in->name = is_value(&in->arg) ? r->p->graph->values[in->arg.value.i].name : "";
    } else if (strcmp(one.key, "constant_input") == 0) {
        fe_js name = fe_js_get(&one, "name");
        if (is_value(&in->arg))
            fe_js_throw(&one, EQF_E_PARSE, "a constant here, the graph has \"%s\" at this position",
                        r->p->graph->values[in->arg.value.i].name);
        in->kind = FE_IN_CONSTANT;
        in->name = arena_strdup(r->a, fe_js_name(&name));
    } else {
        unknown_spec(r, &one);
    }
}

/* What mutations may write to: weights by qualified name, user inputs by name. */
typedef struct targets {
    intern *weights, *users; /* id = 1 + position in the vector */
    VEC(i64) weight_inputs;
    VEC(i64) user_inputs;
    bool *is_written; /* by input */
} targets;

static void add_target(fe_reader *r, arena *scratch, targets *t, const fe_js *spec, i64 i)
{
    const fe_input *in = &r->p->inputs[i];
    if (in->kind == FE_IN_USER) {
        /* Names of values are unique already. */
        intern_cstr(t->users, in->name);
        vec_push(scratch, &t->user_inputs, i);
    } else if (in->kind != FE_IN_CONSTANT) {
        if (intern_cstr(t->weights, in->fqn) <= t->weight_inputs.n)
            fe_js_throw(spec, EQF_E_PARSE, "two inputs are called \"%s\"", in->fqn);
        vec_push(scratch, &t->weight_inputs, i);
    }
}

static i64 find_target(const fe_reader *r, const targets *t, const fe_js *name, fe_input_kind kind)
{
    const char *text = fe_js_name(name);
    u32 id = intern_find(kind == FE_IN_USER ? t->users : t->weights, text, (i64)strlen(text));
    i64 i = id == 0              ? -1
            : kind == FE_IN_USER ? t->user_inputs.at[id - 1]
                                 : t->weight_inputs.at[id - 1];
    if (i < 0 || r->p->inputs[i].kind != kind)
        fe_js_throw(name, EQF_E_PARSE, "no input \"%s\" to write to", text);
    return i;
}

static void read_output(fe_reader *r, const fe_js *spec, const targets *t, fe_output *out)
{
    static const struct {
        const char *tag, *target;
        u8 kind;
    } MUTATIONS[] = {{"buffer_mutation", "buffer_name", FE_IN_BUFFER},
                     {"parameter_mutation", "parameter_name", FE_IN_PARAMETER},
                     {"user_input_mutation", "user_input_name", FE_IN_USER}};
    fe_js one = fe_js_only(spec);
    for (i64 i = 0; i < COUNT_OF(MUTATIONS); i++) {
        if (strcmp(one.key, MUTATIONS[i].tag) != 0)
            continue;
        fe_js target = fe_js_get(&one, MUTATIONS[i].target);
        check_tensor(r, &one, &out->arg);
        out->kind = FE_OUT_MUTATION;
        out->target = find_target(r, t, &target, MUTATIONS[i].kind);
        out->want = r->p->inputs[out->target].name;
        if (t->is_written[out->target])
            fe_js_throw(&target, EQF_E_PARSE, "\"%s\" is written twice", out->want);
        t->is_written[out->target] = true;
        return;
    }
    if (strcmp(one.key, "user_output") != 0)
        unknown_spec(r, &one);
    check_arg(r, &one, &out->arg);
    out->kind = FE_OUT_USER;
    out->target = -1;
}

/* ---- names --------------------------------------------------------------------------------- */

void fe_name_outputs(arena *a, fe_output *outputs, i64 n)
{
    intern *taken = intern_new(a);
    VEC(i64) next = {0}; /* by id: the suffix to try next */
    vec_push(a, &next, 0);
    for (i64 i = 0; i < n; i++) {
        fe_output *o = &outputs[i];
        o->name = "";
        if (o->arg.kind == FE_ARG_NONE || o->arg.kind == FE_ARG_STRING)
            continue;
        u32 id = intern_cstr(taken, o->want);
        if (id == next.n) {
            vec_push(a, &next, 1);
            o->name = o->want;
            continue;
        }
        while (o->name[0] == 0) {
            char *name = arena_printf(a, "%s.%lld", o->want, (long long)next.at[id]++);
            if (intern_cstr(taken, name) == next.n) {
                vec_push(a, &next, 1);
                o->name = name;
            }
        }
    }
}

/* Where each user input stands in the call, and the keys of user outputs. */
static void apply_tree(fe_reader *r, tree *t, const fe_js *signature)
{
    fe_program *p = r->p;
    fe_js roots = {0};
    if (fe_js_is_object(signature))
        roots = fe_js_opt(signature, "forward_arg_names");
    i64 k = 0;
    bool has_tree = read_tree(t, signature, "in_spec");
    for (i64 i = 0; i < p->n_inputs; i++) {
        fe_input *in = &p->inputs[i];
        if (in->kind != FE_IN_USER && in->kind != FE_IN_CONSTANT)
            continue;
        const leaf *l = has_tree && k < t->leaves.n ? &t->leaves.at[k] : NULL;
        k++;
        fe_js root = {0};
        if (l && !l->is_keyword && fe_js_is_array(&roots) && l->child < fe_js_items(&roots))
            root = fe_js_at(&roots, l->child);
        const char *name = !l                       ? in->name
                           : l->is_keyword          ? l->root
                           : fe_js_is_text(&root)   ? fe_js_text(&root, NULL)
                           : l->path && !l->path[0] ? in->name
                                                    : NULL;
        if (name && (!l || l->path))
            in->path = arena_printf(r->a, "%.256s%s", name, l ? l->path : "");
        if (in->name[0] == 0 && name)
            in->name = arena_printf(r->a, "%.256s", name);
    }
    if (has_tree && k != t->leaves.n)
        fe_js_throw(signature, EQF_E_PARSE, "in_spec has %lld leaves, the program %lld inputs",
                    (long long)t->leaves.n, (long long)k);
    k = 0;
    has_tree = read_tree(t, signature, "out_spec");
    for (i64 i = 0; i < p->n_outputs; i++) {
        fe_output *o = &p->outputs[i];
        if (o->kind != FE_OUT_USER)
            continue;
        const char *key = has_tree && k < t->leaves.n ? t->leaves.at[k].key : NULL;
        o->want = key ? arena_strdup(r->a, key) : arena_printf(r->a, "out%lld", (long long)k);
        k++;
    }
    if (has_tree && k != t->leaves.n)
        fe_js_throw(signature, EQF_E_PARSE, "out_spec has %lld leaves, the program %lld outputs",
                    (long long)t->leaves.n, (long long)k);
}

void fe_read_signature(fe_reader *r, const fe_js *module)
{
    fe_program *p = r->p;
    fe_js signature = fe_js_get(module, "signature");
    fe_js inputs = fe_js_get(&signature, "input_specs");
    fe_js outputs = fe_js_get(&signature, "output_specs");
    p->n_inputs = p->graph->n_inputs;
    p->n_outputs = p->graph->n_outputs;
    if (fe_js_items(&inputs) != p->n_inputs)
        fe_js_throw(&inputs, EQF_E_PARSE, "%lld specs for %lld inputs",
                    (long long)fe_js_items(&inputs), (long long)p->n_inputs);
    if (fe_js_items(&outputs) != p->n_outputs)
        fe_js_throw(&outputs, EQF_E_PARSE, "%lld specs for %lld outputs",
                    (long long)fe_js_items(&outputs), (long long)p->n_outputs);
    p->inputs = NEW_N(r->a, fe_input, p->n_inputs);
    p->outputs = NEW_N(r->a, fe_output, p->n_outputs);
    arena *scratch = arena_child(r->a);
    targets to = {.weights = intern_new(scratch),
                  .users = intern_new(scratch),
                  .is_written = NEW_N(scratch, bool, p->n_inputs)};
    for (i64 i = 0; i < p->n_inputs; i++) {
        fe_js spec = fe_js_at(&inputs, i);
        p->inputs[i].arg = p->graph->inputs[i];
        read_input(r, &spec, &p->inputs[i]);
        add_target(r, scratch, &to, &spec, i);
    }
    for (i64 i = 0; i < p->n_outputs; i++) {
        fe_js spec = fe_js_at(&outputs, i);
        p->outputs[i].arg = p->graph->outputs[i];
        read_output(r, &spec, &to, &p->outputs[i]);
    }
    fe_js calls = fe_js_opt(module, "module_call_graph");
    tree t = {.scratch = scratch, .p = p};
    t.fields = fe_js_opt(module, "treespec_namedtuple_fields");
    fe_js own = find_signature(&calls);
    apply_tree(r, &t, &own);
    fe_name_outputs(r->a, p->outputs, p->n_outputs);
    arena_free(scratch);
}
