/* codegen: kernel IR as source text. Printers decide nothing: sizes, order, rounding points and
 * implementation choices are those of the kernel IR.
 *
 * cg_c prints C for gcc and clang (`-std=gnu17`, vector extensions, no header but <stddef.h>-free
 * builtins; libm is used for f64 functions and pow). One exported function a kernel, named
 * kn_kernel.name, with the ABI rt_kernel; a preamble holds the helpers that these kernels use.
 * Compile with CG_C_FLAGS; the text is free of warnings under -Wall -Wextra -Wconversion -Wshadow. */
#ifndef EQF_CODEGEN_H
#define EQF_CODEGEN_H

#include "kernel/kernel.h"

/* Flags the text relies on; optimisation level and target are the caller's. */
#define CG_C_FLAGS                                                                                 \
    "-std=gnu17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared"

/* Appends one translation unit with the kernels. vector_bytes as the kernels were built for. */
void cg_c(str *out, eqf_ctx *ctx, kn_kernel *const *kernels, i64 n, i64 vector_bytes);

#endif
