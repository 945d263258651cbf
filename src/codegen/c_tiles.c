/* `dot` by matrix instructions: bf16 tiles of 16 by 32 with f32 results of 16 by 16, two by two.
 *
 * On x86 their registers are state that the system gives on request (when the library is loaded), and that
 * a thread configures: a kernel saves the configuration of whoever called it, and puts it back. gcc and clang
 * spell the intrinsics differently and the assembler alike, so it is assembler. Without the instructions, or
 * where the system refuses, the same sums are made element by element: right, and slow. Whether there are
 * such instructions is known before kernels are made (kn_options.tiles). */
#include "codegen/c_parts.h"

/* Sums over 32 steps of 32 positions are added to the result: see CHAIN in c_dot.c. */
enum { CHUNKS = 32 };

/* dot_tiles: s[rows][32] = a[chunks][rows][32] x b[chunks][16][32][2]; a: `chunk` elements from chunk to
 * chunk, `row` from row to row; s: rows `across` apart. It comes after the helpers. */
static const char PREAMBLE[] =
    "typedef struct tile_state {\n"
    "    u8 before[64] __attribute__((aligned(64)));\n"
    "    i64 rows;\n"
    "} tile_state;\n"
    "#if defined(__AMX_BF16__) && defined(__linux__) && defined(__x86_64__)\n"
    "static int has_tiles;\n"
    "__attribute__((constructor)) static void ask_for_tiles(void) {\n"
    "    i64 code = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, tile data) */\n"
    "    __asm__ volatile(\"syscall\" : \"+a\"(code) : \"D\"(0x1023LL), \"S\"(18LL) : \"rcx\", \"r11\", \"memory\");\n"
    "    has_tiles = code == 0;\n"
    "}\n"
    "static void set_tiles(tile_state *t, i64 rows) {\n"
    "    u8 c[64] __attribute__((aligned(64))) = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,\n"
    "                                             64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64};\n"
    "    u8 upper = (u8)(rows < 16 ? rows : 16);\n"
    "    u8 lower = (u8)(rows > 16 ? rows - 16 : 1);\n"
    "    c[48] = c[49] = c[52] = upper;\n"
    "    c[50] = c[51] = c[53] = lower;\n"
    "    c[54] = c[55] = 16;\n"
    "    if (t->rows == 0)\n"
    "        __asm__ volatile(\"sttilecfg %0\" : \"=m\"(t->before));\n"
    "    __asm__ volatile(\"ldtilecfg %0\" : : \"m\"(c));\n"
    "    t->rows = rows;\n"
    "}\n"
    "static void leave_tiles(const tile_state *t) {\n"
    "    if (t->rows)\n"
    "        __asm__ volatile(\"ldtilecfg %0\" : : \"m\"(t->before));\n"
    "}\n"
    "static void run_tiles(const u16 *a, i64 chunk, i64 row, i64 rows, const u16 *b, i64 chunks, f32 *s, i64 across) {\n"
    "    i64 of_a = 2 * row;\n"
    "    i64 of_s = 4 * across;\n"
    "    __asm__ volatile(\"tilezero %%tmm0\\n\\ttilezero %%tmm1\\n\\ttilezero %%tmm2\\n\\ttilezero %%tmm3\" : : : \"memory\");\n"
    "    if (rows <= 16) {\n"
    "        for (i64 k = 0; k < chunks; k++)\n"
    "            __asm__ volatile(\"tileloadd (%0,%3,1),%%tmm4\\n\\ttileloadd (%1,%4,1),%%tmm6\\n\\t\"\n"
    "                             \"tdpbf16ps %%tmm6,%%tmm4,%%tmm0\\n\\ttileloadd (%2,%4,1),%%tmm7\\n\\t\"\n"
    "                             \"tdpbf16ps %%tmm7,%%tmm4,%%tmm1\"\n"
    "                             : : \"r\"(a + k * chunk), \"r\"(b + k * 1024), \"r\"(b + k * 1024 + 32), \"r\"(of_a), \"r\"(128LL) : \"memory\");\n"
    "    } else {\n"
    "        for (i64 k = 0; k < chunks; k++)\n"
    "            __asm__ volatile(\"tileloadd (%0,%4,1),%%tmm4\\n\\ttileloadd (%2,%5,1),%%tmm6\\n\\t\"\n"
    "                             \"tdpbf16ps %%tmm6,%%tmm4,%%tmm0\\n\\ttileloadd (%3,%5,1),%%tmm7\\n\\t\"\n"
    "                             \"tdpbf16ps %%tmm7,%%tmm4,%%tmm1\\n\\ttileloadd (%1,%4,1),%%tmm5\\n\\t\"\n"
    "                             \"tdpbf16ps %%tmm6,%%tmm5,%%tmm2\\n\\ttdpbf16ps %%tmm7,%%tmm5,%%tmm3\"\n"
    "                             : : \"r\"(a + k * chunk), \"r\"(a + k * chunk + 16 * row), \"r\"(b + k * 1024), \"r\"(b + k * 1024 + 32), \"r\"(of_a), \"r\"(128LL) : \"memory\");\n"
    "        __asm__ volatile(\"tilestored %%tmm2,(%0,%2,1)\\n\\ttilestored %%tmm3,(%1,%2,1)\"\n"
    "                         : : \"r\"(s + 16 * across), \"r\"(s + 16 * across + 16), \"r\"(of_s) : \"memory\");\n"
    "    }\n"
    "    __asm__ volatile(\"tilestored %%tmm0,(%0,%2,1)\\n\\ttilestored %%tmm1,(%1,%2,1)\"\n"
    "                     : : \"r\"(s), \"r\"(s + 16), \"r\"(of_s) : \"memory\");\n"
    "}\n"
    "#else\n"
    "#define has_tiles 0\n"
    "static void set_tiles(tile_state *t, i64 rows) { t->rows = rows; }\n"
    "static void leave_tiles(const tile_state *t) { (void)t; }\n"
    "static void run_tiles(const u16 *a, i64 chunk, i64 row, i64 rows, const u16 *b, i64 chunks, f32 *s, i64 across) {\n"
    "    (void)a, (void)chunk, (void)row, (void)rows, (void)b, (void)chunks, (void)s, (void)across;\n"
    "}\n"
    "#endif\n"
    "static void dot_tiles(tile_state *t, const u16 *a, i64 chunk, i64 row, i64 rows, const u16 *b, i64 chunks, f32 *s, i64 across) {\n"
    "    if (has_tiles) {\n"
    "        if (t->rows != rows)\n"
    "            set_tiles(t, rows);\n"
    "        run_tiles(a, chunk, row, rows, b, chunks, s, across);\n"
    "        return;\n"
    "    }\n"
    "    for (i64 i = 0; i < rows; i++) {\n"
    "        f32 *c = s + i * across;\n"
    "        for (i64 j = 0; j < 32; j++)\n"
    "            c[j] = 0;\n"
    "        for (i64 k = 0; k < 16 * chunks; k++) {\n"
    "            const u16 *x = a + k / 16 * chunk + i * row + k % 16 * 2;\n"
    "            f32 even = f32_bf16(x[0]);\n"
    "            f32 odd = f32_bf16(x[1]);\n"
    "            for (i64 j = 0; j < 32; j++)\n"
    "                c[j] += even * f32_bf16(b[64 * k + 2 * j]) + odd * f32_bf16(b[64 * k + 2 * j + 1]);\n"
    "        }\n"
    "    }\n"
    "}\n";

const char *c_tiles_preamble(const char *body)
{
    return strstr(body, "dot_tiles(") ? PREAMBLE : "";
}

void c_tiles(c_printer *p, const kn_ins *x, c_rows acc, c_rows out)
{
    const kn_ins *a = kn_def(p->k, x->args[1]), *b = kn_def(p->k, x->args[2]);
    long long rows = x->shape[0], chunks = a->shape[0], chunk = a->stride[0], row = a->stride[1];
    const bool chained = chunks > CHUNKS;
    c_line(p, "{");
    c_line(p, "const u16 *pa = %s;", c_address(p, a->buffer, a->at));
    c_line(p, "const u16 *pb = %s;", c_address(p, b->buffer, b->at));
    if (!acc.base && !chained) {
        c_line(p, "dot_tiles(&tiles, pa, %lld, %lld, %lld, pb, %lld, %s, %lld);", chunk, row, rows, chunks, out.base,
               (long long)out.stride);
        c_line(p, "}");
        return;
    }
    c_line(p, "f32 s[%lld] __attribute__((aligned(64)));", rows * KN_TILE);
    if (chained) {
        c_line(p, "for (i64 kb = 0; kb < %lld; kb += %d) {", chunks, CHUNKS);
        c_line(p, "i64 kc = %lld - kb < %d ? %lld - kb : %d;", chunks, CHUNKS, chunks, CHUNKS);
        c_line(p, "dot_tiles(&tiles, pa + kb * %lld, %lld, %lld, %lld, pb + kb * %d, kc, s, %d);", chunk, chunk, row,
               rows, KN_TILE * KN_TILE, KN_TILE);
    } else {
        c_line(p, "dot_tiles(&tiles, pa, %lld, %lld, %lld, pb, %lld, s, %d);", chunk, row, rows, chunks, KN_TILE);
    }
    char *start = acc.base ? arena_printf(p->a, "(%s)[i * %lld + l]", acc.base, (long long)acc.stride) : "0";
    char *so_far = arena_printf(p->a, "(%s)[i * %lld + l]", out.base, (long long)out.stride);
    const bool in_place = acc.base && strcmp(acc.base, out.base) == 0;
    if (chained && !in_place)
        start = arena_printf(p->a, "(kb == 0 ? %s : %s)", start, so_far);
    c_line(p, "for (i64 i = 0; i < %lld; i++) {", rows);
    c_line(p, "for (i64 l = 0; l < %d; l++)", KN_TILE);
    c_line(p, "    %s = %s + s[i * %d + l];", so_far, start, KN_TILE);
    c_line(p, "}");
    if (chained)
        c_line(p, "}");
    c_line(p, "}");
}
