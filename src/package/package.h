/* package: writing package directories.
 *
 * Everything goes into a temporary sibling of the target, each file synced; one rename, or one
 * exchange with the package that is there, makes it appear. Whatever happens before leaves the
 * target as it was. The writer holds a lock on its temporary directory; directories of writers
 * that were killed are unlocked, and the next writer for the same target removes them. */
#ifndef EQF_PACKAGE_PACKAGE_H
#define EQF_PACKAGE_PACKAGE_H

#include "runtime/runtime.h"

typedef struct pk_writer pk_writer;

/* Prepares to write the package `path`. The writer is removed, with what it wrote, when the arena
 * is freed before pk_commit. Throws EQF_E_ARGUMENT when `path` exists and is neither a package
 * nor an empty folder, or holds something that no package holds; EQF_E_IO. */
pk_writer *pk_begin(arena *a, const char *path);
/* The temporary directory. */
const char *pk_directory(const pk_writer *w);
/* Writes a file (rt_name_ok), replacing one of that name. Throws EQF_E_IO. */
void pk_add(pk_writer *w, const char *name, const void *data, i64 n);
/* The same from several pieces of memory, one after another. */
void pk_add_parts(pk_writer *w, const char *name, const file_part *parts, i64 count);
/* Gives a file that was written into the directory the name PREFIX<digest>SUFFIX and takes it in;
 * returns the name. */
const char *pk_adopt_as_digest(pk_writer *w, const char *name, const char *prefix,
                               const char *suffix);
/* Writes plan.json with the list of files so far; package->files is set. The directory can be
 * loaded from now on. May be called again after more files were added. */
void pk_seal(pk_writer *w, rt_package *package);
/* Makes the package appear at its path. What was there is removed; where that fails, because it is
 * somebody else's, the name that it has now is returned; else NULL. */
const char *pk_commit(pk_writer *w);

/* Replaces files of the package at `path`, or adds them: a new package with the others as they are
 * appears in its place. */
typedef struct pk_file {
    const char *name, *text;
} pk_file;
void pk_replace(arena *a, const char *path, const pk_file *files, i64 n);

/* The header for C callers (header.c): names, indices and a typed call for one model. */
void pk_print_header(str *out, const rt_package *package);

#endif
