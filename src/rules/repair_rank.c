/* Why there is no repair, by numbers: the separable rank of F on 20 tile values times 20 results.
 * A sum with finitely many accumulators has the rank of its factors, so a high rank says that none
 * exists; a low one beside "none" says that the solver has missed a form. A maximum with one
 * accumulator orders the tile values alike for all results. */
#include <math.h>

#include "rules/repair_impl.h"

enum { POINTS = 20 };

static f64 random_real(rng *g, bool is_positive)
{
    f64 u = rng_f64(g) + 1e-300, v = rng_f64(g);
    f64 x = 2 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    return is_positive ? 0.3 + fabs(x) : x;
}

/* F(x_i, s_j) on tiles of one position; false when some value is no number. */
static bool sample(solver *s, ir_term body, f64 at[POINTS][POINTS], bool positive)
{
    ir_program *w = s->f->w;
    arena *a = arena_child(s->a);
    for (i64 d = 1; d < w->atoms.n; d++)
        w->atoms.at[d].extent = 1;
    i64 n = w->inputs.n;
    tensor *in = NEW_N(a, tensor, n);
    static const i64 ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (i64 i = 0; i < n; i++) {
        ir_port *port = &w->inputs.at[i];
        ir_dim *dims = arena_copy(w->a, port->dims, port->rank * (i64)sizeof(ir_dim));
        for (i64 k = 0; k < port->rank; k++)
            dims[k].extent = 1;
        port->dims = dims;
        dtype t = dtype_is_float((dtype)port->dtype) ? DT_f64 : (dtype)port->dtype;
        in[i] = (tensor){NULL, t, port->rank, ones, arena_alloc(a, 16)};
    }
    ir_dim *dims = NEW_N(w->a, ir_dim, ir_get(w, body)->dims.n);
    for (i64 i = 0; i < ir_get(w, body)->dims.n; i++)
        dims[i] = (ir_dim){1, {&ir_get(w, body)->dims.at[i], 1}};
    w->outputs.n = 0;
    const char *name = positive ? "blocked+" : "blocked";
    ir_add_output(w, (ir_port){.name = intern_cstr(w->names, name),
                               .term = body,
                               .rank = ir_get(w, body)->dims.n,
                               .dims = dims});
    bool valid = true;
    for (i64 k = 0; k < POINTS * POINTS && valid; k++) {
        /* one stream a leaf and index: equal indices give equal values */
        for (i64 i = 0; i < n; i++) {
            u8 dep = rl_form_dep(s->f, w->inputs.at[i].term);
            i64 index = dep & DEP_X ? k / POINTS : dep & DEP_S ? k % POINTS : 0;
            rng g = rng_new((u64)(i * 1000 + index));
            if (!dtype_is_float(in[i].type))
                tensor_set_i64(&in[i], 0, (i64)rng_below(&g, 2));
            else
                tensor_set_f64(
                    &in[i], 0,
                    w->inputs.at[i].term.i == s->f->lanes.i
                        ? 1
                        : random_real(&g, positive ||
                                              rl_form_sign(s->f, w->inputs.at[i].term) != RL_ANY));
        }
        tensor out;
        ir_eval(w, in, a, &out, (ir_eval_options){0});
        f64 x = tensor_get_f64(&out, 0);
        at[k / POINTS][k % POINTS] = x;
        valid = isfinite(x);
    }
    arena_free(a);
    return valid;
}

/* By elimination with complete pivoting; what is left below 1e-11 of the first pivot is 0. */
static i64 rank_of(f64 m[POINTS][POINTS])
{
    f64 first = 0;
    for (i64 r = 0; r < POINTS; r++) {
        i64 row = r, column = r;
        for (i64 i = r; i < POINTS; i++)
            for (i64 j = r; j < POINTS; j++)
                if (fabs(m[i][j]) > fabs(m[row][column])) {
                    row = i;
                    column = j;
                }
        f64 pivot = m[row][column];
        first = r == 0 ? fabs(pivot) : first;
        if (fabs(pivot) <= 1e-11 * first || pivot == 0)
            return r;
        for (i64 j = 0; j < POINTS; j++) {
            f64 t = m[r][j];
            m[r][j] = m[row][j];
            m[row][j] = t;
        }
        for (i64 i = 0; i < POINTS; i++) {
            f64 t = m[i][r];
            m[i][r] = m[i][column];
            m[i][column] = t;
        }
        for (i64 i = r + 1; i < POINTS; i++) {
            f64 q = m[i][r] / pivot;
            for (i64 j = r; j < POINTS; j++)
                m[i][j] -= q * m[r][j];
        }
    }
    return POINTS;
}

static bool orders_alike(f64 m[POINTS][POINTS])
{
    for (i64 a = 0; a < POINTS; a++)
        for (i64 b = 0; b < a; b++) {
            bool up = false, down = false;
            for (i64 j = 0; j < POINTS; j++) {
                up = up || m[a][j] > m[b][j];
                down = down || m[a][j] < m[b][j];
            }
            if (up && down)
                return false;
        }
    return true;
}

const char *rl_explain_by_numbers(solver *s, i64 k)
{
    f64 m[POINTS][POINTS];
    for (i64 i = 1; i < s->f->w->nodes.n; i++)
        if (s->f->w->nodes.at[i].op == IR_opaque)
            return "";
    if (!sample(s, s->body[k], m, false) && !sample(s, s->body[k], m, true))
        return "";
    if (s->system->at[k].op != IR_SUM)
        return orders_alike(m) ? "; not found, although one order holds at all points"
                               : "; no single accumulator can do";
    i64 rank = rank_of(m);
    if (rank == 0)
        return "";
    if (rank > FORM_MAX_DEGREE + 2)
        return arena_printf(s->a, "; no repair exists: separable rank at least %lld",
                            (long long)rank);
    return arena_printf(s->a, "; not found: the separable rank is %lld", (long long)rank);
}
