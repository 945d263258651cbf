/* One matrix product, built, compiled and run: the half of the matmul benchmark that run.py loads.
 *
 * The program is linear(X [batch M K], W) with W [N K] (form 0) or [K N] (form 1), both with the
 * batch dim when batch > 1. Handles are never freed: the process ends after the table. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "codegen/codegen.h"
#include "kernel/kernel.h"

typedef struct bench {
    eqf_ctx *ctx;
    arena *a;
    rt_plan plan;
    kn_kernels kernels;
    rt_kernel *code;
    void **memory;
    pool *threads;
} bench;

typedef struct region {
    rt_kernel code;
    void *const *args;
} region;

static void run_part(void *user, i64 part)
{
    const region *r = user;
    r->code(r->args, part, part + 1);
}

static void launch(bench *b, const rt_launch *x)
{
    void *args[64];
    for (i64 i = 0; i < x->arg_count; i++)
        args[i] = (char *)b->memory[x->args[i].buffer] + x->args[i].offset;
    if (x->symbol[0] == '\0') {
        memcpy(args[1], args[0], (size_t)x->copy_bytes);
        return;
    }
    i64 k = 0;
    while (strcmp(b->kernels.at[k]->name, x->symbol) != 0)
        k++;
    region r = {b->code[k], args};
    pool_run(b->threads, x->parts, run_part, &r);
}

static void *allocate(i64 bytes)
{
    size_t n = (size_t)((bytes + (1 << 21)) >> 21 << 21);
    void *p = aligned_alloc(1 << 21, n);
    madvise(p, n, MADV_HUGEPAGE); /* as the runtime does; a hint */
    return p;
}

static ir_program *make_program(arena *a, i64 batch, i64 m, i64 n, i64 k, dtype t, bool k_first,
                                bool input_weight)
{
    ir_program *p = ir_program_new(a, "matmul", "matmul");
    ir_atom d[4];
    i64 extents[4] = {batch, m, n, k};
    for (i64 i = 0; i < 4; i++)
        d[i] = extents[i] > 1 ? ir_atom_new(p, NULL, extents[i]) : (ir_atom){0};
    i64 order[3][3] = {{0, 1, 3}, {0, k_first ? 3 : 2, k_first ? 2 : 3}, {0, 1, 2}};
    ir_port ports[3];
    static const char *const names[] = {"x", "w", "y"};
    for (i64 i = 0; i < 3; i++) {
        ir_dim *dims = NEW_N(a, ir_dim, 3);
        for (i64 j = 0; j < 3; j++) {
            ir_atom *at = NEW(a, ir_atom);
            *at = d[order[i][j]];
            dims[j] = (ir_dim){extents[order[i][j]], {at, at->i ? 1 : 0}};
        }
        ports[i] = (ir_port){.name = intern_cstr(p->names, names[i]), .dtype = (u8)t, .rank = 3,
                             .dims = dims};
    }
    ports[1].role = input_weight ? IR_INPUT : IR_PARAMETER;
    i64 x = ir_add_input(p, ports[0]), w = ir_add_input(p, ports[1]);
    ports[2].term = ir_matmul(p, p->inputs.at[x].term, p->inputs.at[w].term,
                              ir_atoms_set(p, &d[3], 1));
    ir_add_output(p, ports[2]);
    return p;
}

/* NULL when anything fails (the reason is printed). Weights are read by bm_prepare. */
bench *bm_new(i64 batch, i64 m, i64 n, i64 k, const char *type, int k_first, int constant,
              i64 vector_bytes, int threads, const char *cc, const char *folder)
{
    bench *b = calloc(1, sizeof *b);
    b->ctx = eqf_ctx_new(NULL);
    b->a = arena_new(b->ctx, 0);
    trap t;
    TRY(b->ctx, t)
    {
        ir_program *p = make_program(b->a, batch, m, n, k, dtype_find(type), k_first != 0,
                                     batch > 1 && !constant);
        kn_options o = {vector_bytes, threads, constant != 0, NULL, false};
        kn_build(b->a, p, o, &b->plan, &b->kernels);
        str s = str_new(b->a);
        cg_c(&s, b->ctx, b->kernels.at, b->kernels.n, vector_bytes);
        char *c = arena_printf(b->a, "%s/kernels.c", folder);
        char *so = arena_printf(b->a, "%s/%s.so", folder, b->kernels.at[b->kernels.n - 1]->name);
        file_write(b->ctx, c, s.at, s.n);
        char *command = arena_printf(b->a,
                                     "%s -O2 -march=native -mprefer-vector-width=512 "
                                     "-std=gnu17 -fno-math-errno -fno-trapping-math "
                                     "-ffp-contract=fast -fPIC -shared -o %s %s -lm", cc, so, c);
        if (system(command) != 0)
            eqf_throw(b->ctx, EQF_E_IO, c, NULL, "%s failed", cc);
        void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            eqf_throw(b->ctx, EQF_E_IO, so, NULL, "%s", dlerror());
        b->code = NEW_N(b->a, rt_kernel, b->kernels.n);
        for (i64 i = 0; i < b->kernels.n; i++)
            b->code[i] = (rt_kernel)dlsym(library, b->kernels.at[i]->name);
        b->threads = pool_new(b->ctx, threads);
        b->memory = NEW_N(b->a, void *, b->plan.buffers.n);
        char *weights = allocate(b->plan.weights_bytes), *scratch = allocate(b->plan.arena_bytes);
        memset(scratch, 0, (size_t)b->plan.arena_bytes);
        for (i64 i = 0; i < b->plan.buffers.n; i++) {
            rt_buffer *x = &b->plan.buffers.at[i];
            b->memory[i] = x->role == RT_WEIGHT    ? weights + x->offset
                           : x->role == RT_SCRATCH ? scratch + x->offset
                                                   : NULL;
        }
    }
    if (t.status != EQF_OK) {
        for (size_t i = 0; i < eqf_diag_count(b->ctx); i++)
            fprintf(stderr, "%s\n", eqf_diag_get(b->ctx, i).message);
        return NULL;
    }
    return b;
}

/* Binds memory of the caller and runs `prepare`. */
void bm_bind(bench *b, void *x, void *w, void *y)
{
    for (i64 i = 0; i < b->plan.buffers.n; i++) {
        rt_buffer *o = &b->plan.buffers.at[i];
        if (o->role == RT_OUTPUT)
            b->memory[i] = y;
        else if (o->role == RT_SOURCE)
            b->memory[i] = w;
        else if (o->role == RT_INPUT)
            b->memory[i] = o->port == 0 ? x : w;
    }
    for (i64 i = 0; i < b->plan.prepare.n; i++)
        launch(b, &b->plan.prepare.at[i]);
}

void bm_run(bench *b)
{
    for (i64 i = 0; i < b->plan.launches.n; i++)
        launch(b, &b->plan.launches.at[i]);
}
