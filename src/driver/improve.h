/* Packages of other forms. */
#ifndef EQF_DRIVER_IMPROVE_H
#define EQF_DRIVER_IMPROVE_H

#include "driver/making.h"

/* While `budget` seconds since `started` are not over, a form that is faster than the package at the
 * path, and right, becomes it. `m` was built as it is and published. The report says why it stopped:
 * once there is a package, EQF_E_IO and EQF_E_NO_MEMORY end the search, not the call. Throws
 * EQF_E_INTERRUPTED, and what else is wrong with the machine. */
void improve(making *m, const char *path, f64 started, f64 budget);

#endif
