/* `dot` in C: register tiles of named vectors.
 *
 * Accumulators are named variables, one per (row, vector) or (row, column), the tile fully
 * unrolled, one loop over k around it: arrays here make both compilers spill. A vector used by
 * several rows is pinned in a register by an empty asm, or gcc folds the load into every use. Half
 * operands are widened after the load; accumulation is in the dtype of the accumulator. */
#include "codegen/c_parts.h"

/* Where operand `v` of a dot lies: pointer name, strides, dtype. */
typedef struct operand {
    char *base;
    i64 stride[2];
    u8 dtype;
} operand;

static operand find_operand(c_printer *p, kn_value v)
{
    const kn_ins *d = kn_def(p->k, v);
    const c_value *c = &p->values[v.i];
    operand o = {.dtype = d->dtype};
    if (c->home == C_PLACE) {
        o.base = c_address(p, d->buffer, d->at);
        o.stride[0] = d->stride[0];
        o.stride[1] = d->stride[1];
    } else {
        o.base = arena_printf(p->a, "t%u", c->storage);
        o.stride[0] = d->shape[1];
        o.stride[1] = 1;
    }
    return o;
}

/* Largest power of two that divides n, at most the lanes of a vector of dtype t. */
static i64 lanes_for(const c_printer *p, dtype t, i64 n)
{
    i64 most = p->vector_bytes / dtype_bytes(t), lanes = 1;
    while (lanes * 2 <= most && n % (lanes * 2) == 0)
        lanes *= 2;
    return lanes;
}

static const char *vector_type(c_printer *p, dtype t, i64 lanes)
{
    if (lanes == 1)
        return c_type(t);
    i64 log2 = 0;
    while ((1 << log2) < lanes)
        log2++;
    p->vectors[t * C_LANES + log2] = true;
    if (t == DT_f16 || t == DT_bf16)
        return arena_printf(p->a, "%sx%lld", dtype_name(t), (long long)lanes);
    return arena_printf(p->a, "%sx%lld", c_type(t), (long long)lanes);
}

/* Vector (or scalar) at `address`, in dtype `to`. */
static char *load_vector(c_printer *p, dtype from, dtype to, i64 lanes, const char *address)
{
    if (lanes == 1)
        return c_cast(p, from, to, arena_printf(p->a, "*(%s)", address));
    const char *type = vector_type(p, from, lanes);
    if (from == to)
        return arena_printf(p->a, "*(const %s_at *)(%s)", type, address);
    vector_type(p, to, lanes);
    return arena_printf(p->a, "widen_%s(*(const %s_at *)(%s))", type, type, address);
}

static char *scaled(c_printer *p, const char *var, i64 stride)
{
    if (stride == 1)
        return arena_strdup(p->a, var);
    return arena_printf(p->a, "%s * %lld", var, (long long)stride);
}

static void declare_pointers(c_printer *p, const operand *a, const operand *b)
{
    c_line(p, "const %s *pa = %s;", c_type(a->dtype), a->base);
    c_line(p, "const %s *pb = %s;", c_type(b->dtype), b->base);
}

/* What one register tile needs: operands and results from its first row and column on. */
typedef struct block {
    const kn_ins *x;
    operand a, b;
    c_rows acc, out;
    i64 m, n, k;
    const char *number; /* expression: which of the dot's tiles; NULL: the first */
    i64 tiles;
    const char *row, *column; /* expressions: its first; NULL: 0 */
} block;

enum { PINNED = 16 }; /* bytes */

/* Terms that one accumulator sums before it is added to the result: the error of a sum grows with its
 * longest chain of additions. */
enum { CHAIN = 1024 };

static const char *LIVE[] = {"dm", "dn", "dk"};

static bool has_live(const kn_ins *x)
{
    return x->live[0].end > 0 || x->live[1].end > 0 || x->live[2].end > 0;
}

/* How many of its positions the block sums: none where no row or no column of it exists. */
static char *depth_text(c_printer *p, const block *of)
{
    const kn_live *live = of->x->live;
    char *depth = live[2].end > 0 ? arena_strdup(p->a, LIVE[2])
                                  : arena_printf(p->a, "%lld", (long long)of->k);
    const char *from[] = {of->row, of->column};
    for (i64 d = 0; d < 2; d++)
        if (live[d].end > 0)
            depth = arena_printf(p->a, "(%s < %s ? %s : 0)", from[d] ? from[d] : "0", LIVE[d], depth);
    return depth;
}

/* acc[m][n] + a[m][k] b[k][n], vectors along n. */
static void print_fma(c_printer *p, const block *of)
{
    const kn_ins *x = of->x;
    operand a = of->a, b = of->b;
    c_rows acc = of->acc, out = of->out;
    dtype t = x->dtype;
    i64 m = of->m, n = of->n, k = of->k;
    i64 lanes = lanes_for(p, t, n), nv = n / lanes;
    const char *type = vector_type(p, t, lanes);
    const char *at = lanes > 1 ? "_at" : "", *step = "k";
    bool chained = k > CHAIN;
    c_line(p, "{");
    if (chained) {
        for (i64 i = 0; i < m && !(acc.base && strcmp(acc.base, out.base) == 0); i++)
            for (i64 j = 0; j < nv; j++) {
                char *from = acc.base ? arena_printf(p->a, "*(const %s%s *)(%s + %lld)", type, at,
                                                     acc.base, (long long)(i * acc.stride + j * lanes))
                                      : arena_printf(p->a, "(%s){0}", type);
                c_line(p, "*(%s%s *)(%s + %lld) = %s;", type, at, out.base,
                       (long long)(i * out.stride + j * lanes), from);
            }
        acc = out;
        step = "(kb + k)";
        a.base = arena_printf(p->a, "%s + kb * %lld", a.base, (long long)a.stride[1]);
        b.base = arena_printf(p->a, "%s + kb * %lld", b.base, (long long)b.stride[0]);
        c_line(p, "for (i64 kb = 0; kb < %lld; kb += %d) {", (long long)k, CHAIN);
    }
    declare_pointers(p, &a, &b);
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < nv; j++)
            c_line(p, lanes > 1 ? "%s c%lld_%lld = {0};" : "%s c%lld_%lld = 0;", type, (long long)i,
                   (long long)j);
    if (chained && k % CHAIN != 0)
        c_line(p, "for (i64 k = 0; k < (%lld - kb < %d ? %lld - kb : %d); k++) {", (long long)k, CHAIN,
               (long long)k, CHAIN);
    else if (chained)
        c_line(p, "for (i64 k = 0; k < %d; k++) {", CHAIN);
    else
        c_line(p, "for (i64 k = 0, ke = %s; k < ke; k++) {", depth_text(p, of));
    if (x->axis > 0) {
        /* each tile fetches its share */
        i64 line = 64 / dtype_bytes(b.dtype), share = (x->axis + of->tiles - 1) / of->tiles;
        char *base = c_address(p, x->buffer, x->at);
        if (of->number)
            base = arena_printf(p->a, "%s + (%s) * %lld", base, of->number, (long long)(k * share));
        for (i64 j = 0; j < share; j += line)
            c_line(p, "__builtin_prefetch(%s + %s * %lld + %lld);", base, step, (long long)share,
                   (long long)j);
    }
    for (i64 j = 0; j < nv; j++) {
        char *address = arena_printf(p->a, "pb + %s + %lld", scaled(p, "k", b.stride[0]),
                                     (long long)(j * lanes));
        c_line(p, "%s y%lld = %s;", type, (long long)j,
               load_vector(p, b.dtype, t, lanes, address));
        if (m > 1 && lanes * dtype_bytes(t) >= PINNED) /* clang has no register for less */
            c_line(p, "PIN(y%lld);", (long long)j);
    }
    for (i64 i = 0; i < m; i++) {
        char *element = arena_printf(p->a, "pa[%s + %lld]", scaled(p, "k", a.stride[1]),
                                     (long long)(i * a.stride[0]));
        c_line(p, "%s x%lld = %s;", c_type(t), (long long)i, c_cast(p, a.dtype, t, element));
        for (i64 j = 0; j < nv; j++)
            c_line(p, "c%lld_%lld += x%lld * y%lld;", (long long)i, (long long)j, (long long)i,
                   (long long)j);
    }
    c_line(p, "}");
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < nv; j++) {
            char *start = acc.base ? arena_printf(p->a, "*(const %s%s *)(%s + %lld) + ", type, at, acc.base,
                                                  (long long)(i * acc.stride + j * lanes))
                                   : "";
            c_line(p, "*(%s%s *)(%s + %lld) = %sc%lld_%lld;", type, at, out.base,
                   (long long)(i * out.stride + j * lanes), start, (long long)i, (long long)j);
        }
    if (chained)
        c_line(p, "}");
    c_line(p, "}");
}

/* Sums that lie side by side are summed across lanes four at a time, where there are so many. */
enum { QUAD = 4 };

/* Element j of row i of a block that is summed by `quads` of columns, or one by one. */
static char *sum_at(c_printer *p, bool quads, i64 i, i64 j)
{
    if (!quads)
        return arena_printf(p->a, "s%lld_%lld", (long long)i, (long long)j);
    return arena_printf(p->a, "s%lld_%lld[%lld]", (long long)i, (long long)(j / QUAD), (long long)(j % QUAD));
}

/* acc[m][n] + a[m][k] b[n][k]^T, vectors along k; what is left of k by scalars. */
static void print_rowdot(c_printer *p, const block *of)
{
    operand a = of->a, b = of->b;
    c_rows acc = of->acc, out = of->out;
    dtype t = of->x->dtype;
    i64 m = of->m, n = of->n, k = of->k;
    i64 lanes = p->vector_bytes / dtype_bytes(t), body = k - k % lanes;
    const char *type = vector_type(p, t, lanes);
    bool quads = n % QUAD == 0 && lanes >= QUAD;
    const i64 wide = quads ? QUAD : 1;
    const char *sum_type = quads ? vector_type(p, t, QUAD) : c_type(t);
    const char *at = quads ? "_at" : "";
    i64 chain = CHAIN * lanes;
    bool chained = body > chain;
    c_line(p, "{");
    declare_pointers(p, &a, &b);
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n / wide; j++) {
            char *start = acc.base ? arena_printf(p->a, "*(const %s%s *)(%s + %lld)", sum_type, at, acc.base,
                                                  (long long)(i * acc.stride + j * wide))
                                   : "{0}";
            c_line(p, "%s s%lld_%lld = %s;", sum_type, (long long)i, (long long)j, start);
        }
    if (chained)
        c_line(p, "for (i64 kb = 0; kb < %lld; kb += %lld) {", (long long)body, (long long)chain);
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n; j++)
            c_line(p, "%s c%lld_%lld = {0};", type, (long long)i, (long long)j);
    if (chained)
        c_line(p, "for (i64 k = kb; k < %lld && k < kb + %lld; k += %lld) {", (long long)body,
               (long long)chain, (long long)lanes);
    else
        c_line(p, "for (i64 k = 0; k < %lld; k += %lld) {", (long long)body, (long long)lanes);
    for (i64 i = 0; i < m; i++) {
        char *address = arena_printf(p->a, "pa + %lld + k", (long long)(i * a.stride[0]));
        c_line(p, "%s x%lld = %s;", type, (long long)i, load_vector(p, a.dtype, t, lanes, address));
        if (n > 1)
            c_line(p, "PIN(x%lld);", (long long)i);
    }
    for (i64 j = 0; j < n; j++) {
        char *address = arena_printf(p->a, "pb + %lld + k", (long long)(j * b.stride[1]));
        c_line(p, "%s y%lld = %s;", type, (long long)j, load_vector(p, b.dtype, t, lanes, address));
        if (m > 1)
            c_line(p, "PIN(y%lld);", (long long)j);
        for (i64 i = 0; i < m; i++)
            c_line(p, "c%lld_%lld += x%lld * y%lld;", (long long)i, (long long)j, (long long)i,
                   (long long)j);
    }
    c_line(p, "}");
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n / wide; j++) {
            str sums = str_new(p->a);
            for (i64 q = 0; q < wide; q++)
                str_printf(&sums, "%sc%lld_%lld", q ? ", " : "", (long long)i, (long long)(j * wide + q));
            c_line(p, "s%lld_%lld += sum%s_%s(%s);", (long long)i, (long long)j, quads ? "4" : "", type,
                   str_text(&sums));
        }
    if (chained)
        c_line(p, "}");
    if (body < k) {
        c_line(p, "for (i64 k = %lld; k < %lld; k++) {", (long long)body, (long long)k);
        for (i64 i = 0; i < m; i++)
            for (i64 j = 0; j < n; j++) {
                char *l = arena_printf(p->a, "pa[%lld + k]", (long long)(i * a.stride[0]));
                char *r = arena_printf(p->a, "pb[%lld + k]", (long long)(j * b.stride[1]));
                c_line(p, "%s += %s * %s;", sum_at(p, quads, i, j), c_cast(p, a.dtype, t, l),
                       c_cast(p, b.dtype, t, r));
            }
        c_line(p, "}");
    }
    for (i64 i = 0; i < m; i++)
        for (i64 j = 0; j < n / wide; j++)
            c_line(p, "*(%s%s *)(%s + %lld) = s%lld_%lld;", sum_type, at, out.base,
                   (long long)(i * out.stride + j * wide), (long long)i, (long long)j);
    c_line(p, "}");
}

/* The block from row `row` and column `column` (expressions, NULL: 0) on. */
static block block_at(c_printer *p, const block *all, const char *row, i64 m, const char *column,
                      i64 n)
{
    block b = *all;
    b.m = m;
    b.n = n;
    b.row = row;
    b.column = column;
    if (row) {
        b.a.base = arena_printf(p->a, "%s + (%s) * %lld", b.a.base, row,
                                (long long)b.a.stride[0]);
        if (b.acc.base)
            b.acc.base = arena_printf(p->a, "%s + (%s) * %lld", b.acc.base, row,
                                      (long long)b.acc.stride);
        b.out.base = arena_printf(p->a, "%s + (%s) * %lld", b.out.base, row,
                                  (long long)b.out.stride);
    }
    if (column) {
        b.b.base = arena_printf(p->a, "%s + (%s) * %lld", b.b.base, column,
                                (long long)b.b.stride[1]);
        if (b.acc.base)
            b.acc.base = arena_printf(p->a, "%s + %s", b.acc.base, column);
        b.out.base = arena_printf(p->a, "%s + %s", b.out.base, column);
    }
    return b;
}

static void print_block(c_printer *p, const block *b)
{
    if (b->x->sub == KN_DOT_ROWDOT)
        print_rowdot(p, b);
    else
        print_fma(p, b);
}

static i64 columns_of(const block *all)
{
    return all->x->block[1] > 0 ? MIN(all->x->block[1], all->n) : all->n;
}

/* All register tiles of some rows; `number` is that of the first. */
static void print_columns(c_printer *p, const block *all, const char *row, i64 m, const char *number)
{
    i64 width = columns_of(all), whole = all->n / width * width;
    const char *before = number ? number : "0";
    block b;
    if (whole == width) {
        b = block_at(p, all, row, m, NULL, width);
        b.number = number;
        print_block(p, &b);
    } else {
        c_line(p, "for (i64 jb = 0; jb < %lld; jb += %lld) {", (long long)whole,
               (long long)width);
        b = block_at(p, all, row, m, "jb", width);
        b.number = arena_printf(p->a, "%s + jb / %lld", before, (long long)width);
        print_block(p, &b);
        c_line(p, "}");
    }
    if (whole == all->n)
        return;
    b = block_at(p, all, row, m, arena_printf(p->a, "%lld", (long long)whole), all->n - whole);
    b.number = arena_printf(p->a, "%s + %lld", before, (long long)(whole / width));
    print_block(p, &b);
}

static void print_blocks(c_printer *p, block *all)
{
    i64 height = all->x->block[0] > 0 ? MIN(all->x->block[0], all->m) : all->m;
    i64 whole = all->m / height * height, width = columns_of(all);
    i64 across = (all->n + width - 1) / width;
    all->tiles = (all->m + height - 1) / height * across;
    if (whole == height) {
        print_columns(p, all, NULL, height, NULL);
    } else {
        c_line(p, "for (i64 ib = 0; ib < %lld; ib += %lld) {", (long long)whole,
               (long long)height);
        print_columns(p, all, "ib", height,
                      arena_printf(p->a, "ib / %lld * %lld", (long long)height, (long long)across));
        c_line(p, "}");
    }
    if (whole < all->m)
        print_columns(p, all, arena_printf(p->a, "%lld", (long long)whole), all->m - whole,
                      arena_printf(p->a, "%lld", (long long)(whole / height * across)));
}

/* Any strides, any dtype: row by row, k outside the columns. */
static void print_plain(c_printer *p, const kn_ins *x, c_rows acc, c_rows out)
{
    operand a = find_operand(p, x->args[1]), b = find_operand(p, x->args[2]);
    dtype t = x->dtype;
    long long m = x->shape[0], n = x->shape[1], k = kn_def(p->k, x->args[1])->shape[1];
    c_line(p, "{");
    declare_pointers(p, &a, &b);
    c_line(p, "%s *pc = %s;", c_type(t), out.base);
    c_line(p, "for (i64 i = 0; i < %lld; i++) {", m);
    if (!acc.base || strcmp(acc.base, out.base) != 0) {
        c_line(p, "for (i64 j = 0; j < %lld; j++)", n);
        char *from = acc.base ? arena_printf(p->a, "(%s)[i * %lld + j]", acc.base,
                                             (long long)acc.stride)
                              : "0";
        c_line(p, "    pc[i * %lld + j] = %s;", (long long)out.stride, from);
    }
    bool chained = dtype_is_float(t) && k > CHAIN;
    if (chained) {
        c_line(p, "for (i64 kb = 0; kb < %lld; kb += %d) {", k, CHAIN);
        c_line(p, "%s s[%lld] = {0};", c_type(t), n);
        c_line(p, "for (i64 k = kb; k < %lld && k < kb + %d; k++) {", k, CHAIN);
    } else {
        c_line(p, "for (i64 k = 0; k < %lld; k++) {", k);
    }
    char *l = arena_printf(p->a, "pa[i * %lld + k * %lld]", (long long)a.stride[0],
                           (long long)a.stride[1]);
    char *r = arena_printf(p->a, "pb[k * %lld + %s]", (long long)b.stride[0],
                           scaled(p, "j", b.stride[1]));
    c_line(p, "%s x = %s;", c_type(t), c_cast(p, a.dtype, t, l));
    c_line(p, "for (i64 j = 0; j < %lld; j++) {", n);
    char *to = arena_printf(p->a, "pc[i * %lld + j]", (long long)out.stride);
    char *at = chained ? "s[j]" : to;
    char *product = c_ew(p, IR_mul, t, (char *[]){"x", c_cast(p, b.dtype, t, r)});
    if (t == DT_bool)
        product = arena_printf(p->a, "(%s)", product);
    c_line(p, t == DT_bool ? "%s = (u8)(%s);" : "%s = %s;", at,
           c_combine(p, IR_SUM, t, at, product));
    c_line(p, "}");
    c_line(p, "}");
    if (chained) {
        c_line(p, "for (i64 j = 0; j < %lld; j++)", n);
        c_line(p, "    %s += s[j];", to);
        c_line(p, "}");
    }
    c_line(p, "}");
    c_line(p, "}");
}

void c_dot(c_printer *p, const kn_ins *x)
{
    const c_value *c = &p->values[x->args[0].i], *r = &p->values[x->out.i];
    const kn_ins *def = kn_def(p->k, x->args[0]);
    if (r->home == C_NOWHERE)
        return;
    c_rows acc = {NULL, x->shape[1]}, out = {NULL, x->shape[1]};
    if (c->home == C_ARRAY) {
        acc.base = arena_printf(p->a, "t%u", c->storage);
    } else if (c->home == C_PLACE) {
        acc.base = c_address(p, def->buffer, def->at);
        acc.stride = def->stride[0];
    }
    if (r->stored) {
        out.base = c_address(p, r->stored->buffer, r->stored->at);
        out.stride = r->stored->stride[0];
    } else {
        out.base = arena_printf(p->a, "t%u", r->storage);
    }
    if (x->sub == KN_DOT_TILES) {
        c_tiles(p, x, acc, out);
        return;
    }
    if (x->sub == KN_DOT_PLAIN) {
        print_plain(p, x, acc, out);
        return;
    }
    block all = {x, find_operand(p, x->args[1]), find_operand(p, x->args[2]), acc, out,
                 x->shape[0], x->shape[1], kn_def(p->k, x->args[1])->shape[1], NULL, 1, NULL, NULL};
    if (!has_live(x) || x->sub != KN_DOT_FMA || all.k > CHAIN) {
        print_blocks(p, &all);
        return;
    }
    const i64 lanes[] = {all.m, all.n, all.k};
    c_line(p, "{");
    for (i64 d = 0; d < 3; d++)
        if (x->live[d].end > 0)
            c_line(p, "i64 %s = live_lanes(%lld - (%s), %lld);", LIVE[d], (long long)x->live[d].end,
                   c_affine(p, x->live[d].start), (long long)lanes[d]);
    print_blocks(p, &all);
    c_line(p, "}");
}
