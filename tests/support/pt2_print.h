/* pt2_print: a raw program as text, for comparing two readings of one program. */
#ifndef TESTS_SUPPORT_PT2_PRINT_H
#define TESTS_SUPPORT_PT2_PRINT_H

#include "frontend/pt2.h"

/* Everything that belongs to the program's meaning: no file, version, note or source line. Nodes
 * print their named arguments in the order of the names. Weight bytes are read and hashed. */
const char *pt2_print(arena *a, fe_program *p);

#endif
