/* The certificate checker, numeric half. Factors, judgements and readouts are evaluated at random
 * points of the ledger; the lambdas are read back from their text and folded over random tiles in
 * random order and random merge trees, with masked rows and zeros among the inputs, and compared
 * with the direct reductions. Extents are made small where no step depends on them. */
#include <math.h>

#include "rules/check_repair_impl.h"

/* ---- evaluating a program read from text ------------------------------------------------------
 */

static void set_extent(ir_program *p, u32 atom, i64 n)
{
    p->atoms.at[atom].extent = n;
    for (int side = 0; side < 2; side++) {
        i64 count = side ? p->outputs.n : p->inputs.n;
        for (i64 i = 0; i < count; i++) {
            ir_port *port = side ? &p->outputs.at[i] : &p->inputs.at[i];
            ir_dim *dims = arena_copy(p->a, port->dims, port->rank * (i64)sizeof(ir_dim));
            for (i64 k = 0; k < port->rank; k++)
                if (dims[k].atoms.n == 1 && dims[k].atoms.at[0].i == atom)
                    dims[k].extent = n;
            port->dims = dims;
        }
    }
}

static u32 atom_named(const ir_program *p, const char *name)
{
    for (u32 i = 1; i < (u32)p->atoms.n; i++)
        if (strcmp(ir_atom_name(p, (ir_atom){i}), name) == 0)
            return i;
    return 0;
}

static i64 size_of(const ir_program *p, ir_atoms dims)
{
    i64 n = 1;
    for (i64 i = 0; i < dims.n; i++)
        n *= ir_extent(p, dims.at[i]);
    return n;
}

static tensor new_tensor(arena *a, const ir_port *port)
{
    i64 *shape = NEW_N(a, i64, port->rank), n = 1;
    for (i64 i = 0; i < port->rank; i++) {
        shape[i] = port->dims[i].extent;
        n *= shape[i];
    }
    bool is_float = dtype_is_float((dtype)port->dtype);
    dtype t = is_float ? DT_f64 : (dtype)port->dtype;
    return (tensor){NULL, t, port->rank, shape,
                    arena_alloc_n(a, MAX(n, 1), is_float ? 8 : dtype_bytes(t))};
}

static f64 element(const tensor *t, i64 i)
{
    return dtype_is_float(t->type) ? tensor_get_f64(t, i) : (f64)tensor_get_i64(t, i);
}

static i64 count_of(const tensor *t)
{
    i64 n = 1;
    for (i64 i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

static f64 gauss(rng *g)
{
    f64 u = rng_f64(g) + 1e-300, v = rng_f64(g);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- points of the ledger
 * ------------------------------------------------------------------------ */

typedef struct point {
    arena *a;
    checker *c;
    tensor *in, *out;
} point;

static i64 input_of(const checker *c, ir_term t)
{
    for (i64 i = 0; i < c->w->inputs.n; i++)
        if (c->w->inputs.at[i].term.i == t.i)
            return i;
    return -1;
}

static const tensor *value_of(const point *p, ir_term t)
{
    for (i64 i = 0; i < p->c->w->outputs.n; i++)
        if (p->c->w->outputs.at[i].term.i == t.i)
            return &p->out[i];
    return NULL;
}

static bool is_declared_positive(const checker *c, const char *name)
{
    const ir_program *p = c->system->p;
    for (i64 i = 0; c->system->signs && i < p->inputs.n; i++)
        if (strcmp(intern_text(p->names, p->inputs.at[i].name), name) == 0)
            return c->system->signs[i] != RL_ANY;
    return false;
}

/* Roots and logarithms have values at every other point at least. */
static bool all_are_positive(u64 round)
{
    return round % 2 == 0;
}

/* Is the term of the ledger never negative? A fact of the program, which random results respect. */
static bool is_never_negative(const checker *c, ir_term t)
{
    const ir_node *n = ir_get(c->w, t);
    if (!dtype_is_float((dtype)n->dtype))
        return false;
    switch (n->op) {
    case IR_const:
        return n->attr.f >= 0;
    case IR_exp:
    case IR_exp2:
    case IR_sigmoid:
    case IR_square:
    case IR_abs:
    case IR_sqrt:
    case IR_rsqrt:
        return true;
    case IR_in:
        for (i64 k = 0; k < c->results.n; k++)
            if (c->results.at[k].i == t.i)
                return k < c->reductions.n && is_never_negative(c, c->reductions.at[k].body);
        return is_declared_positive(c, intern_text(c->w->names, n->attr.name));
    case IR_max:
        return is_never_negative(c, n->args[0]) || is_never_negative(c, n->args[1]);
    case IR_reduce:
    case IR_cast:
    case IR_recip:
    case IR_tanh:
    case IR_erf:
    case IR_expand:
        return is_never_negative(c, n->args[0]);
    case IR_where:
        return is_never_negative(c, n->args[1]) && is_never_negative(c, n->args[2]);
    case IR_pow: {
        const ir_node *q = ir_get(c->w, n->args[1]);
        return is_never_negative(c, n->args[0]) || (q->op == IR_const && fmod(q->attr.f, 2) == 0);
    }
    case IR_add:
    case IR_mul:
    case IR_div:
    case IR_min:
    case IR_matmul:
        if (n->op == IR_mul && n->args[0].i == n->args[1].i)
            return true;
        return is_never_negative(c, n->args[0]) && is_never_negative(c, n->args[1]);
    default:
        return false;
    }
}

static void fill(const checker *c, tensor *t, const ir_port *port, const ir_program *p, rng *g,
                 bool positive)
{
    i64 n = count_of(t);
    positive = positive || is_declared_positive(c, intern_text(p->names, port->name)) ||
               (p == c->w && is_never_negative(c, port->term));
    for (i64 i = 0; i < n; i++) {
        if (dtype_is_float(t->type)) {
            f64 x = gauss(g);
            tensor_set_f64(t, i, positive ? 0.2 + fabs(x) : x);
        } else {
            tensor_set_i64(t, i, (i64)rng_below(g, 2));
        }
    }
}

static void evaluate(point *p)
{
    p->out = NEW_N(p->a, tensor, p->c->w->outputs.n);
    ir_eval(p->c->w, p->in, p->a, p->out, (ir_eval_options){0});
}

static void set_input(point *p, ir_term leaf, const tensor *value)
{
    tensor *t = &p->in[input_of(p->c, leaf)];
    i64 n = count_of(t), m = count_of(value);
    for (i64 i = 0; i < n; i++)
        tensor_set_f64(t, i, element(value, m == n ? i : 0));
}

static i64 tile_size(const checker *c)
{
    return size_of(c->w, c->axis);
}

/* Random leaves and results; cut values are what they stand for. */
static point new_point(checker *c, arena *a, rng *g, u64 round)
{
    point p = {a, c, NEW_N(a, tensor, c->w->inputs.n), NULL};
    for (i64 i = 0; i < c->w->inputs.n; i++) {
        p.in[i] = new_tensor(a, &c->w->inputs.at[i]);
        fill(c, &p.in[i], &c->w->inputs.at[i], c->w, g, all_are_positive(round));
    }
    tensor_set_f64(&p.in[input_of(c, c->lanes)], 0, (f64)tile_size(c));
    evaluate(&p);
    for (i64 i = 0; i < c->cuts.n; i++) {
        set_input(&p, c->cut_leaves.at[i], value_of(&p, c->cuts.at[i]));
        evaluate(&p);
    }
    return p;
}

/* ---- polynomials by value
 * ------------------------------------------------------------------------ */

typedef struct place {
    ir_atoms dims;
    i64 at[16];
} place;

static i64 offset(const checker *c, const place *x, ir_atoms dims)
{
    i64 o = 0;
    for (i64 i = 0; i < dims.n; i++) {
        i64 k = 0;
        while (k < x->dims.n && x->dims.at[k].i != dims.at[i].i)
            k++;
        o = o * ir_extent(c->w, dims.at[i]) + (k < x->dims.n ? x->at[k] : 0);
    }
    return o;
}

static f64 term_at(const point *p, ir_term t, const place *x)
{
    return element(value_of(p, t), offset(p->c, x, ir_get(p->c->w, t)->dims));
}

typedef struct amount {
    f64 value, size; /* size: the sum of the terms' magnitudes */
} amount;

static amount poly_at(const point *p, ck_poly q, const place *x)
{
    amount sum = {0, 0};
    for (i64 i = 0; i < q.n; i++) {
        f64 v = (f64)q.at[i].c.n / (f64)q.at[i].c.d;
        for (i64 j = 0; j < q.at[i].n; j++) {
            ck_exponent f = q.at[i].at[j];
            f64 b = term_at(p, p->c->factors.at[f.factor].term, x);
            v *= f.q.n == f.q.d ? b : pow(b, (f64)f.q.n / (f64)f.q.d);
        }
        sum.value += v;
        sum.size += fabs(v);
    }
    return sum;
}

static ir_atoms dims_of_poly(const checker *c, ck_poly q, ir_atoms dims)
{
    for (i64 i = 0; i < q.n; i++)
        for (i64 j = 0; j < q.at[i].n; j++)
            dims = ir_atoms_union(c->w, dims,
                                  ir_get(c->w, c->factors.at[q.at[i].at[j].factor].term)->dims);
    return dims;
}

static bool next_place(const checker *c, place *x)
{
    for (i64 k = x->dims.n - 1; k >= 0; k--) {
        if (++x->at[k] < ir_extent(c->w, x->dims.at[k]))
            return true;
        x->at[k] = 0;
    }
    return false;
}

/* Neither proves anything where a value is not a number. */
static bool agree(f64 a, f64 b, f64 size, bool *tested)
{
    if (isnan(a) || isnan(b))
        return true;
    *tested = true;
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= 1e-9 * (size + fabs(a) + fabs(b)) + 1e-290;
}

static amount factor_at(const point *p, const ck_factor *f, const place *x)
{
    amount v = {0, 0};
    switch ((ck_kind)f->kind) {
    case CK_EXP:
        v = poly_at(p, f->p, x);
        v.value = exp(v.value);
        break;
    case CK_LOG:
        v.value = log(term_at(p, p->c->factors.at[f->inner].term, x));
        break;
    case CK_ABS:
        v.value = fabs(term_at(p, p->c->factors.at[f->inner].term, x));
        break;
    case CK_SUM:
        v = poly_at(p, f->p, x);
        break;
    case CK_INDICATOR:
        v.value = term_at(p, f->test, x) != 0;
        break;
    case CK_ROW: {
        place y = {ir_atoms_union(p->c->w, x->dims, f->axis), {0}};
        place inner = {f->axis, {0}};
        v.value = ir_reducer_identity_f64((ir_reducer)f->op);
        do {
            for (i64 k = 0; k < y.dims.n; k++) {
                y.at[k] = 0;
                for (i64 i = 0; i < x->dims.n; i++)
                    if (x->dims.at[i].i == y.dims.at[k].i)
                        y.at[k] = x->at[i];
                for (i64 i = 0; i < inner.dims.n; i++)
                    if (inner.dims.at[i].i == y.dims.at[k].i)
                        y.at[k] = inner.at[i];
            }
            amount t = poly_at(p, f->p, &y);
            v.value = f->op == IR_SUM   ? v.value + t.value
                      : f->op == IR_MAX ? fmax(v.value, t.value)
                                        : fmin(v.value, t.value);
            v.size += t.size;
        } while (next_place(p->c, &inner));
        break;
    }
    case CK_LEAF:
    case CK_FRESH:
        break;
    }
    return v;
}

static bool check_factors(const point *p, bool *tested)
{
    checker *c = p->c;
    for (i64 k = 1; k < c->given; k++) {
        const ck_factor *f = &c->factors.at[k];
        if (f->kind == CK_LEAF)
            continue;
        place x = {
            dims_of_poly(c, f->kind == CK_ROW ? (ck_poly){0} : f->p, ir_get(c->w, f->term)->dims),
            {0}};
        do {
            amount v = factor_at(p, f, &x);
            if (!agree(term_at(p, f->term, &x), v.value, v.size, &tested[k]))
                return ck_refuse(c, "factor %lld is not the value of its term", (long long)k);
        } while (next_place(c, &x));
    }
    return true;
}

static bool check_judgements(const point *p, bool *tested)
{
    checker *c = p->c;
    for (i64 i = 0; i < c->judgements.n; i++) {
        const ck_judgement *j = &c->judgements.at[i];
        place x = {dims_of_poly(c, j->p, ir_get(c->w, j->term)->dims), {0}};
        do {
            amount v = poly_at(p, j->p, &x);
            if (!agree(term_at(p, j->term, &x), v.value, v.size, &tested[i]))
                return ck_refuse(c, "%s: a judgement is not the value of its term", j->row);
        } while (next_place(c, &x));
    }
    return true;
}

/* ---- readouts
 * ------------------------------------------------------------------------------------ */

static bool mentions(const checker *c, ir_term t, ir_term leaf)
{
    const ir_node *n = ir_get(c->w, t);
    if (t.i == leaf.i)
        return true;
    for (i64 i = 0; i < n->arg_count; i++)
        if (mentions(c, n->args[i], leaf))
            return true;
    return false;
}

/* A slot that sums refer to: their reference, which stays as it is while slots are filled. */
static bool is_reference(const checker *c, const ck_slot *s)
{
    if (s->op == IR_SUM)
        return false;
    for (i64 i = 0; i < c->slots.n; i++)
        if (c->slots.at[i].op == IR_SUM && mentions(c, c->slots.at[i].term, s->leaf))
            return true;
    for (i64 k = 0; k < c->reductions.n; k++)
        if (c->reductions.at[k].op == IR_SUM && mentions(c, c->reductions.at[k].readout, s->leaf))
            return true;
    return false;
}

static f64 combined(ir_reducer op, f64 a, f64 b)
{
    return op == IR_SUM ? a + b : op == IR_MAX ? fmax(a, b) : fmin(a, b);
}

/* The reducers' readouts: of one tile's contributions, the reduction of that tile; of two tiles'
 * combined, the two results combined. `sums` says which reductions are looked at. */
static bool check_readouts(checker *c, arena *a, rng *g, u64 round, bool sums)
{
    point tile[2];
    tile[0] = new_point(c, a, g, round);
    tile[1] = (point){a, c, NEW_N(a, tensor, c->w->inputs.n), NULL};
    for (i64 i = 0; i < c->w->inputs.n; i++) {
        const ir_port *port = &c->w->inputs.at[i];
        bool varies = false;
        for (i64 k = 0; k < c->axis.n; k++)
            varies = varies || ir_has(ir_get(c->w, port->term)->dims, c->axis.at[k]);
        tile[1].in[i] = tile[0].in[i];
        if (varies) {
            tile[1].in[i] = new_tensor(a, port);
            fill(c, &tile[1].in[i], port, c->w, g, all_are_positive(round));
        }
    }
    evaluate(&tile[1]);
    point filled[3];
    for (int k = 0; k < 3; k++) {
        filled[k] =
            (point){a, c, arena_copy(a, tile[0].in, c->w->inputs.n * (i64)sizeof(tensor)), NULL};
        for (i64 i = 0; i < c->slots.n; i++) {
            const ck_slot *s = &c->slots.at[i];
            if (sums && is_reference(c, s))
                continue;
            i64 port = input_of(c, s->leaf);
            tensor t = new_tensor(a, &c->w->inputs.at[port]);
            const tensor *x = value_of(&tile[0], s->term), *y = value_of(&tile[1], s->term);
            for (i64 n = count_of(&t), e = 0; e < n; e++) {
                f64 u = element(x, count_of(x) == n ? e : 0),
                    v = element(y, count_of(y) == n ? e : 0);
                tensor_set_f64(&t, e, k == 0 ? u : k == 1 ? v : combined(s->op, u, v));
            }
            filled[k].in[port] = t;
        }
        evaluate(&filled[k]);
    }
    for (i64 k = 0; k < c->reductions.n; k++) {
        const ck_reduction *r = &c->reductions.at[k];
        if ((r->op == IR_SUM) != sums)
            continue;
        place x = {ir_get(c->w, r->body)->dims, {0}};
        do {
            f64 one = term_at(&filled[0], r->readout, &x),
                two = term_at(&filled[1], r->readout, &x);
            f64 both = term_at(&filled[2], r->readout, &x);
            bool tested = false;
            f64 size = (isfinite(one) ? fabs(one) : 0) + (isfinite(two) ? fabs(two) : 0);
            if (!agree(one, term_at(&tile[0], r->body, &x), size, &tested) ||
                !agree(two, term_at(&tile[1], r->body, &x), size, &tested))
                return ck_refuse(c, "reduction %lld: the readout of a tile is not its reduction",
                                 (long long)k);
            if (!agree(combined(r->op, one, two), both, size, &tested))
                return ck_refuse(c, "reduction %lld: the readout does not distribute",
                                 (long long)k);
        } while (next_place(c, &x));
    }
    return true;
}

/* Atoms that an index map or an opaque operator ties to their extent stay as they are. */
static void keep_indexed(checker *c)
{
    for (i64 i = 1; i < c->w->nodes.n; i++) {
        const ir_node *n = &c->w->nodes.at[i];
        ir_class class_ = (ir_class)ir_row((ir_op)n->op)->class_;
        if (class_ != IR_INDEX && class_ != IR_GATHER && class_ != IR_PLAIN && class_ != IR_OPAQUE)
            continue;
        for (i64 k = 0; k < n->dims.n; k++)
            c->keeps[n->dims.at[k].i] = true;
        for (i64 j = 0; j < n->arg_count; j++)
            for (i64 k = 0; k < ir_get(c->w, n->args[j])->dims.n; k++)
                c->keeps[ir_get(c->w, n->args[j])->dims.at[k].i] = true;
    }
}

bool ck_values(checker *c, u64 seed)
{
    keep_indexed(c);
    for (u32 i = 1; i < (u32)c->w->atoms.n; i++)
        if (!c->keeps[i])
            set_extent(c->w, i, MIN(ir_extent(c->w, (ir_atom){i}), 2 + (i64)i % 3));
    rng g = rng_new(seed);
    bool *factor_tested = NEW_N(c->a, bool, c->given + 1);
    bool *tested = NEW_N(c->a, bool, c->judgements.n + 1);
    for (u64 round = 0; round < 4 && !c->wrong; round++) {
        arena *a = arena_child(c->a);
        point p = new_point(c, a, &g, round);
        if (check_factors(&p, factor_tested) && check_judgements(&p, tested) &&
            check_readouts(c, a, &g, round, true))
            check_readouts(c, a, &g, round, false);
        arena_free(a);
    }
    for (i64 i = 0; i < c->judgements.n && !c->wrong; i++)
        if (!tested[i])
            ck_refuse(c, "%s: a judgement has no value at any random point",
                      c->judgements.at[i].row);
    return !c->wrong;
}

/* ---- the lambdas
 * --------------------------------------------------------------------------------- */

typedef enum weather { FAIR, WIDE, ZERO, MASKED, WEATHERS } weather;

typedef struct folder {
    checker *c;
    arena *a;
    ir_program *update, *merge, *final;
    tensor *leaves; /* by input port of the system, of the whole axis */
    i64 *order;     /* of the positions */
    i64 total;
    rng *g;
    f64 *largest; /* finite number that a lambda returned */
} folder;

static ir_program *read_back(checker *c, const ir_program *p)
{
    str text = str_new(c->a);
    ir_print(&text, p);
    ir_program *q = ir_read(c->a, "lambda", str_text(&text), text.n);
    for (u32 i = 1; i < (u32)q->atoms.n; i++) {
        u32 j = atom_named(c->w, ir_atom_name(q, (ir_atom){i}));
        if (j)
            set_extent(q, i, ir_extent(c->w, (ir_atom){j}));
    }
    return q;
}

static void set_tile(checker *c, ir_program *p, i64 n)
{
    u32 i = atom_named(p, ir_atom_name(c->w, c->axis.at[0]));
    if (i)
        set_extent(p, i, n);
}

/* Positions [from, from+n) of a leaf of the system. */
static void take_leaf(const folder *f, ir_term leaf, i64 from, const ir_port *port,
                      const ir_program *p, tensor *out)
{
    const ir_program *sys = f->c->system->p;
    i64 count = count_of(out);
    if (ir_get(sys, leaf)->op == IR_iota) {
        for (i64 i = 0; i < count; i++)
            tensor_set_i64(out, i, f->order[from + i]);
        return;
    }
    i64 source = 0;
    while (sys->inputs.at[source].term.i != leaf.i)
        source++;
    const ir_port *whole = &sys->inputs.at[source];
    const tensor *in = &f->leaves[source];
    for (i64 i = 0; i < count; i++) {
        i64 rest = i, index[16], o = 0;
        for (i64 k = out->rank - 1; k >= 0; k--) {
            index[k] = rest % out->shape[k];
            rest /= out->shape[k];
        }
        i64 dim = 0;
        for (i64 k = 0; k < whole->rank; k++)
            for (i64 l = 0; l < whole->dims[k].atoms.n; l++, dim++) {
                ir_atom d = whole->dims[k].atoms.at[l];
                i64 at = 0;
                for (i64 j = 0; j < port->rank; j++)
                    if (strcmp(ir_atom_name(sys, d), ir_atom_name(p, port->dims[j].atoms.at[0])) ==
                        0)
                        at = d.i == f->c->system->axis.at[0].i ? f->order[from + index[j]]
                                                               : index[j];
                o = o * in->shape[dim] + at;
            }
        if (dtype_is_float(out->type))
            tensor_set_f64(out, i, tensor_get_f64(in, o));
        else
            tensor_set_i64(out, i, tensor_get_i64(in, o));
    }
}

static tensor *call(const folder *f, ir_program *p, const rl_lambda *l, const tensor *const *states,
                    i64 from, i64 n)
{
    set_tile(f->c, p, n);
    tensor *in = NEW_N(f->a, tensor, p->inputs.n), *out = NEW_N(f->a, tensor, p->outputs.n);
    i64 port = 0;
    for (i64 k = 0; k < l->states; k++)
        for (i64 i = 0; i < f->c->repair->slot_count; i++)
            in[port++] = states[k][i];
    if (l->has_lanes) {
        in[port] = new_tensor(f->a, &p->inputs.at[port]);
        tensor_set_f64(&in[port++], 0, (f64)n);
    }
    for (i64 i = 0; i < l->leaf_count; i++, port++) {
        in[port] = new_tensor(f->a, &p->inputs.at[port]);
        take_leaf(f, l->leaves[i], from, &p->inputs.at[port], p, &in[port]);
    }
    ir_eval(p, in, f->a, out, (ir_eval_options){0});
    for (i64 i = 0; i < p->outputs.n; i++)
        for (i64 k = 0; k < count_of(&out[i]); k++)
            if (isfinite(element(&out[i], k)))
                *f->largest = fmax(*f->largest, fabs(element(&out[i], k)));
    return out;
}

static tensor *initial(const folder *f)
{
    i64 n = f->c->repair->slot_count;
    tensor *s = NEW_N(f->a, tensor, n);
    for (i64 i = 0; i < n; i++) {
        s[i] = new_tensor(f->a, &f->final->inputs.at[i]);
        for (i64 k = 0; k < count_of(&s[i]); k++)
            tensor_set_f64(&s[i], k, f->c->repair->slots[i].identity);
    }
    return s;
}

static tensor *fold(const folder *f)
{
    const rl_repair *r = f->c->repair;
    tensor *parts[32];
    i64 count = 1;
    parts[0] = initial(f);
    for (i64 from = 0; from < f->total;) {
        i64 n = 1 + (i64)rng_below(f->g, (u64)(f->total / 6 + 1));
        n = MIN(n, f->total - from);
        if (count < 32 && rng_below(f->g, 3) == 0)
            parts[count++] = initial(f);
        parts[count - 1] =
            call(f, f->update, &r->update, (const tensor *const *)&parts[count - 1], from, n);
        from += n;
    }
    while (count > 1) {
        i64 i = (i64)rng_below(f->g, (u64)count), j = (i64)rng_below(f->g, (u64)count - 1);
        j += j >= i;
        const tensor *pair[2] = {parts[i], parts[j]};
        parts[MIN(i, j)] = call(f, f->merge, &r->merge, pair, 0, f->total);
        parts[MAX(i, j)] = parts[--count];
    }
    return call(f, f->final, &r->final, (const tensor *const *)&parts[0], 0, f->total);
}

static tensor random_leaf(const folder *f, i64 i, weather kind)
{
    const ir_program *sys = f->c->system->p;
    const ir_port *port = &sys->inputs.at[i];
    i64 *shape = NEW_N(f->a, i64, 16), rank = 0, n = 1;
    bool varies = false;
    for (i64 k = 0; k < port->rank; k++)
        for (i64 l = 0; l < port->dims[k].atoms.n && rank < 16; l++, rank++) {
            ir_atom d = port->dims[k].atoms.at[l];
            u32 own = atom_named(f->c->w, ir_atom_name(sys, d));
            shape[rank] = own ? ir_extent(f->c->w, (ir_atom){own}) : ir_extent(sys, d);
            varies = varies || d.i == f->c->system->axis.at[0].i;
            n *= shape[rank];
        }
    bool is_float = dtype_is_float((dtype)port->dtype);
    dtype t = is_float ? DT_f64 : (dtype)port->dtype;
    tensor x = {NULL, t, rank, shape,
                arena_alloc_n(f->a, MAX(n, 1), is_float ? 8 : dtype_bytes(t))};
    fill(f->c, &x, port, sys, f->g, false);
    if (!is_float || !varies || rank < 2 ||
        is_declared_positive(f->c, intern_text(sys->names, port->name)))
        return x;
    /* the first row is wholly masked where rows are masked, of the others two in five */
    i64 row = n / shape[0];
    for (i64 k = 0; k < n; k++) {
        f64 v = tensor_get_f64(&x, k);
        bool masked = kind == MASKED && (k < row || rng_below(f->g, 5) < 2);
        tensor_set_f64(&x, k,
                       masked         ? -(f64)INFINITY
                       : kind == ZERO ? 0
                       : kind == WIDE ? 150 * v
                                      : v);
    }
    return x;
}

/* The reductions one after another on the whole axis: the ledger's bodies as one tile. */
static tensor *direct(const folder *f)
{
    checker *c = f->c;
    point p = {f->a, c, NEW_N(f->a, tensor, c->w->inputs.n), NULL};
    i64 *natural = NEW_N(f->a, i64, f->total);
    for (i64 i = 0; i < f->total; i++)
        natural[i] = i;
    folder whole = *f;
    whole.order = natural;
    for (i64 i = 0; i < c->w->inputs.n; i++) {
        const ir_port *port = &c->w->inputs.at[i];
        p.in[i] = new_tensor(f->a, port);
        const ir_program *sys = c->system->p;
        for (i64 k = 0; k < sys->inputs.n; k++)
            if (sys->inputs.at[k].term.i && strcmp(intern_text(sys->names, sys->inputs.at[k].name),
                                                   intern_text(c->w->names, port->name)) == 0)
                take_leaf(&whole, sys->inputs.at[k].term, 0, port, c->w, &p.in[i]);
    }
    tensor_set_f64(&p.in[input_of(c, c->lanes)], 0, (f64)f->total);
    tensor *out = NEW_N(f->a, tensor, c->reductions.n);
    for (i64 k = 0; k < c->reductions.n; k++) {
        evaluate(&p);
        out[k] = *value_of(&p, c->reductions.at[k].body);
        set_input(&p, c->results.at[k], &out[k]);
    }
    return out;
}

/* What cancels is known to the rounding of the largest number on the way. */
static bool compare_folds(checker *c, const tensor *want, const tensor *got, f64 largest, i64 k)
{
    f64 size = 0;
    i64 n = count_of(want), m = count_of(got);
    for (i64 i = 0; i < n; i++)
        if (isfinite(element(want, i)))
            size = fmax(size, fabs(element(want, i)));
    for (i64 i = 0; i < n; i++) {
        f64 a = element(want, i), b = element(got, m == n ? i : 0);
        /* where the program has no number the reducer may have one (a row without live positions)
         */
        if (isfinite(a) && !(fabs(a - b) <= 1e-6 * (fabs(a) + 1e-3 * size) + 1e-12 * fmax(1, largest)))
            return ck_refuse(c, "reduction %lld: folded tiles give another value", (long long)k);
    }
    return true;
}

bool ck_lambdas(checker *c, u64 seed)
{
    const rl_repair *r = c->repair;
    i64 total = ir_extent(c->system->p, c->system->axis.at[0]);
    if (c->axis.n != 1)
        return ck_refuse(c, "an axis of several atoms is not folded");
    /* Constants may hold the extent, so it stays, unless no reference counts and it is long. */
    bool counts = false;
    for (i64 i = 0; i < r->slot_count; i++)
        counts = counts || r->slots[i].is_count;
    if (!counts && !c->keeps[c->axis.at[0].i])
        total = MIN(total, 48);
    set_extent(c->w, c->axis.at[0].i, total);
    rng g = rng_new(seed ^ 0x5eed);
    bool overflows = false;
    for (i64 k = 0; k < c->reductions.n; k++)
        overflows = overflows || r->how[k].overflows;
    for (weather kind = FAIR; kind < WEATHERS && !c->wrong; kind++)
        for (int round = 0; round < 2 && !c->wrong; round++) {
            if (kind == WIDE && overflows)
                continue; /* as the reducer says of itself */
            arena *a = arena_child(c->a);
            f64 largest = 0;
            folder f = {.c = c, .a = a, .total = total, .g = &g, .largest = &largest};
            f.update = read_back(c, r->update.p);
            f.merge = read_back(c, r->merge.p);
            f.final = read_back(c, r->final.p);
            f.order = NEW_N(a, i64, total);
            for (i64 i = 0; i < total; i++) {
                i64 j = (i64)rng_below(&g, (u64)i + 1);
                f.order[i] = f.order[j];
                f.order[j] = i;
            }
            f.leaves = NEW_N(a, tensor, c->system->p->inputs.n);
            for (i64 i = 0; i < c->system->p->inputs.n; i++)
                f.leaves[i] = random_leaf(&f, i, kind);
            tensor *want = direct(&f), *got = fold(&f);
            for (i64 k = 0; k < c->reductions.n && !c->wrong; k++)
                compare_folds(c, &want[k], &got[k], largest, k);
            arena_free(a);
        }
    return !c->wrong;
}
