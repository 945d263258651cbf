/* pt2_writer: zip archives as torch writes them, and as it never would.
 *
 * An archive is a list of members. By default the bytes come out like torch's own: every member
 * stored, flags 0x808 with sizes in a data descriptor, an FB field that pads the data to 64 bytes,
 * a ZIP64 end record. The fields named `lie_*` replace what the directory should say, so that each
 * kind of damage is one assignment. */
#ifndef TESTS_SUPPORT_PT2_WRITER_H
#define TESTS_SUPPORT_PT2_WRITER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pw_member {
    char *name;
    int64_t name_bytes; /* of a name with a NUL in it */
    uint8_t *data;      /* NULL: `size` zero bytes */
    int64_t size;
    bool deflate; /* method 8, in stored blocks */
    bool omit;    /* leave it out */
    bool wide;    /* sizes and offset in a ZIP64 field of the directory */
    int64_t lie_size, lie_packed, lie_offset; /* -1: the truth */
    int64_t lie_crc;                          /* -1: the truth */
    int lie_method, lie_flags;                /* -1: the truth */
    const char *lie_local_name;               /* NULL: the truth */
} pw_member;

typedef struct pw_archive {
    pw_member *at;
    int64_t n, cap;
    bool no_zip64;       /* only the short end record */
    bool no_alignment;   /* no FB field */
    int64_t lie_entries; /* -1: the truth; in both end records */
    int disk;            /* number of this disk */
} pw_archive;

void pw_init(pw_archive *a);
void pw_free(pw_archive *a);
/* Copies of name and data. */
pw_member *pw_add(pw_archive *a, const char *name, const void *data, int64_t size);
pw_member *pw_add_text(pw_archive *a, const char *name, const char *text);
/* NULL when there is none. */
pw_member *pw_find(pw_archive *a, const char *name);
void pw_set_text(pw_member *m, const char *text);
/* Replaces the first `from` in the text of the member; false when there is none. A backtick stands
 * for a quotation mark in both, so that JSON reads well in C. */
bool pw_edit(pw_member *m, const char *from, const char *to);
/* The archive; freed by the caller. */
uint8_t *pw_bytes(const pw_archive *a, int64_t *n);
/* Into a file, zeros as holes. False when the system refused. */
bool pw_file(const pw_archive *a, const char *path);

/* The model of tests/hostile/model.json with its weights; `folder` is that folder. */
void pw_base(pw_archive *a, const char *folder);
uint32_t pw_crc32(uint32_t crc, const uint8_t *data, int64_t n);

#endif
