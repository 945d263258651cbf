/* Between the files that lower tiled forms: lanes.c chooses tiles, tiled.c makes the kernel. */
#ifndef EQF_KERNEL_TILED_H
#define EQF_KERNEL_TILED_H

#include "kernel/lower.h"

/* Lanes a tile has along each atom's axis (by atom, at least 1) in the kernel that computes `root`,
 * whose tiles go to `out`. */
const i64 *kn_choose_lanes(kn_lower *l, u32 root, const kn_loc *out);
/* The kernel of `term`: the tiles of `root` joined (a `comb`), or `root` itself. */
void kn_lower_tiles(kn_lower *l, u32 term, u32 root);

#endif
