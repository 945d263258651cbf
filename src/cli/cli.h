/* cli: the command line. A verb is a row of the table in main.c: its name, its options, its help
 * and the function that does it through the public API; no internal header is included here.
 *
 * Results go to standard output, everything else to standard error. With --json the last line of
 * standard output is one object: the result, or the error. */
#ifndef EQF_CLI_CLI_H
#define EQF_CLI_CLI_H

#include <stdio.h>

#include "equiforge.h"

enum { /* exit codes, docs: `equiforge --help` */
       EXIT_DONE = 0,
       EXIT_INPUT = 1,
       EXIT_USAGE = 2,
       EXIT_MACHINE = 3,
       EXIT_DIFFERENT = 4,
       EXIT_INTERRUPTED = 130
};

typedef struct cli_option {
    const char *name;  /* "--seed", "-o" */
    const char *value; /* what --help calls its value; NULL: a flag; ends in "...": repeatable */
    const char *help;
} cli_option;

typedef struct cli_args cli_args;
typedef struct cli_verb {
    const char *name; /* "inspect", or of two words: "rules check" */
    const char *usage, *summary, *help;
    const cli_option *options; /* ends with a NULL name */
    int (*run)(cli_args *args);
    int least, most; /* operands */
} cli_verb;

/* The command line of one verb, parsed. */
struct cli_args {
    const cli_verb *verb;
    const char **files; /* the operands */
    int file_count;
    const char *file;             /* the first, NULL without any */
    const char **names, **values; /* options in order; the value of a flag is "" */
    int count;
    eqf_ctx *ctx;
    bool json, quiet;
};

/* ---- options.c --------------------------------------------------------------------------------
 */

/* The value given for an option, NULL when absent; "" for a flag. */
const char *cli_value(const cli_args *args, const char *name);
/* All values of a repeatable option; returns their number. at: room for args->count. */
size_t cli_values(const cli_args *args, const char *name, const char **at);
/* A number in [low, high]; `otherwise` when absent. False, the error reported, when malformed. */
bool cli_number(cli_args *args, const char *name, long long low, long long high,
                long long otherwise, long long *out);
/* "90s", "10m", "4h", "90"; seconds. */
bool cli_duration(cli_args *args, const char *name, double *out);
/* Index of the option's value among `choices` (NULL-terminated); 0 when absent. */
bool cli_choice(cli_args *args, const char *name, const char *const *choices, int *out);
/* Fills args; returns -1, or the exit code when the verb is not to be run. */
int cli_parse(cli_args *args, const cli_verb *verb, int argc, char **argv);
void cli_help(const cli_verb *verb);
extern const cli_option cli_common[];
/* The closest of n names to `word`, NULL when none is close. */
const char *cli_closest(const char *word, const char *const *names, size_t n);

/* ---- report.c ---------------------------------------------------------------------------------
 */

/* Reports an error and returns `code`. file and place may be NULL. */
int cli_fail(cli_args *args, int code, const char *file, const char *place, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Reports the first diagnostic of the context and returns the exit code of `status`. `inputs`: the
 * files that were only read, NULL-terminated: an I/O error there is the input's fault, elsewhere
 * the machine's. */
int cli_fail_status(cli_args *args, eqf_status status, const char *const *inputs);
/* Text that came from outside, such as a name: it neither ends the line nor commands the terminal.
 * Control characters and bytes that are no UTF-8 become \n or \x1b. Returns the bytes printed. */
int put_visible(FILE *to, const char *s);
/* The same on standard output, followed by spaces up to `width`. */
void print_name(const char *s, int width);
void json_text(const char *s);
/* "key": with the comma that follows an earlier member. */
void json_key(const char *key);
void json_number(double x); /* null where it is not finite */
/* ,"roofline":share, at most 1, and ,"roofline_measured": the same as it was measured. */
void json_roofline(double share);
/* A line about a file on standard error, if not --quiet. */
__attribute__((format(printf, 3, 4))) void cli_note(const cli_args *args, const char *about,
                                                    const char *format, ...);
/* Says on standard error, if not --quiet, that a file holds `count` tensors that nothing reads;
 * names: the first of them, count or MOST_NOTED. */
enum { MOST_NOTED = 4 };
void cli_note_unread(const cli_args *args, const char *file, const char *const *names,
                     size_t count);
/* "f32 [16, 4096]" */
void print_type(const eqf_tensor *t);
void json_tensors(const char *key, const eqf_tensor *at, size_t n, bool with_bytes);
/* ---- signals.c --------------------------------------------------------------------------------
 */

/* What each verb starts with: an interrupt, or a mapped file that is lost, ends the tool at once as
 * an error does. */
void cli_catch_signals(bool json);
/* From now on an interrupt only sets this, for calls that poll it; a second one ends the tool. */
extern volatile bool cli_interrupted;
void cli_poll_interrupts(void);
/* What is being done, for whoever waits: one line on a terminal, with the seconds, as soon as the
 * verb has run for two of them. */
void cli_progress(const cli_args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Clears that line, before something else is printed or at the end. */
void cli_end_progress(void);

/* ---- html.c -----------------------------------------------------------------------------------
 */

/* A page about a package; false when it cannot be written. */
bool cli_write_html(FILE *f, const char *package, const eqf_explanation *x, bool replayed);

/* ---- whynot.c ---------------------------------------------------------------------------------
 */

/* Prints what stopped candidates like `form`; an exit code. */
int cli_why_not(cli_args *args, const char *form, const eqf_explanation *x);

/* ---- verbs ------------------------------------------------------------------------------------
 */

int cli_inspect(cli_args *args);
int cli_optimize(cli_args *args);
int cli_search(cli_args *args);
int cli_run(cli_args *args);
int cli_bench(cli_args *args);
int cli_explain(cli_args *args);
int cli_rules_list(cli_args *args);
int cli_rules_show(cli_args *args);
int cli_rules_check(cli_args *args);
int cli_egraph_run(cli_args *args);
int cli_egraph_extract(cli_args *args);

/* Options that describe a program, as the API takes them; to be freed, also after a failure. */
typedef struct cli_reading {
    eqf_read_options options;
    const char **inputs; /* files only read, for cli_fail_status; the first are those of rules */
    size_t rule_count;
} cli_reading;
bool cli_read_options(cli_args *args, const char *file, const char *inputs, cli_reading *out);
void cli_free_reading(cli_reading *reading);
/* Once all went well: remarks of the reader, and what the files of tensors hold beyond the program
 * that was read. */
void cli_note_files(cli_args *args, const cli_reading *reading, const eqf_program *program);
/* That random values stand in for parameters, if they do. */
void cli_note_seeded(cli_args *args, const cli_reading *reading, const eqf_program *program);

#endif
