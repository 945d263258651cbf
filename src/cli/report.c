/* What the tool says: errors in one line, JSON, types. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"

/* ---- text from outside
 * ------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at s; 0: there is none. */
static int character(const char *s)
{
    const unsigned char *c = (const unsigned char *)s;
    int n = c[0] < 0x80                   ? 1
            : c[0] >= 0xC2 && c[0] < 0xE0 ? 2
            : c[0] >= 0xE0 && c[0] < 0xF0 ? 3
            : c[0] >= 0xF0 && c[0] < 0xF5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    bool longer = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xF0 && c[1] < 0x90);
    bool beyond = (c[0] == 0xED && c[1] >= 0xA0) || (c[0] == 0xF4 && c[1] >= 0x90);
    return longer || beyond ? 0 : n;
}

int put_visible(FILE *to, const char *s)
{
    int printed = 0;
    while (*s) {
        const unsigned char *c = (const unsigned char *)s;
        int n = character(s);
        bool control = n == 0 || c[0] < 0x20 || c[0] == 0x7F || (c[0] == 0xC2 && c[1] < 0xA0);
        if (*s == '\n')
            printed += fputs("\\n", to) < 0 ? 0 : 2;
        else
            for (int i = 0; i < (n ? n : 1); i++)
                printed += control ? fprintf(to, "\\x%02x", c[i]) : fputc(c[i], to) != EOF;
        s += n ? n : 1;
    }
    return printed;
}

void print_name(const char *s, int width)
{
    for (int n = put_visible(stdout, s); n < width; n++)
        putchar(' ');
}

/* ---- errors
 * --------------------------------------------------------------------------------------- */

static const char *code_name(int code)
{
    return code == EXIT_USAGE ? "usage" : code == EXIT_MACHINE ? "machine" : "input";
}

/* One line, whatever the parts hold. */
static void report(const cli_args *args, const char *file, const char *place, const char *reason,
                   const char *code, size_t more)
{
    cli_end_progress();
    fflush(stdout);
    fputs("equiforge: ", stderr);
    const char *const parts[] = {file, place};
    for (int i = 0; i < 2; i++)
        if (parts[i] && parts[i][0]) {
            put_visible(stderr, parts[i]);
            fputs(": ", stderr);
        }
    put_visible(stderr, reason);
    if (more > 0)
        fprintf(stderr, " (and %zu more)", more);
    fputc('\n', stderr);
    if (!args->json)
        return;
    fputs("{\"error\":{\"file\":", stdout);
    json_text(file ? file : "");
    fputs(",\"place\":", stdout);
    json_text(place ? place : "");
    fputs(",\"reason\":", stdout);
    json_text(reason);
    fputs(",\"code\":", stdout);
    json_text(code);
    fputs("}}\n", stdout);
}

void cli_note_unread(const cli_args *args, const char *file, const char *const *names, size_t count)
{
    if (args->quiet || count == 0)
        return;
    cli_end_progress();
    fputs("equiforge: ", stderr);
    put_visible(stderr, file);
    fputs(": nothing reads", stderr);
    for (size_t i = 0; i < count && i < MOST_NOTED; i++) {
        fputs(i ? ", " : " ", stderr);
        put_visible(stderr, names[i]);
    }
    if (count > MOST_NOTED)
        fprintf(stderr, " and %zu more of its tensors", count - MOST_NOTED);
    fputc('\n', stderr);
}

void cli_note(const cli_args *args, const char *about, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (args->quiet)
        return;
    cli_end_progress();
    fputs("equiforge: ", stderr);
    put_visible(stderr, about);
    fputs(": ", stderr);
    put_visible(stderr, text);
    fputc('\n', stderr);
}

int cli_fail(cli_args *args, int code, const char *file, const char *place, const char *format, ...)
{
    char reason[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    report(args, file, place, reason, code_name(code), 0);
    return code;
}

/* `file` is `input`, or something in it. */
static bool is_within(const char *file, const char *input)
{
    size_t n = strlen(input);
    return strncmp(file, input, n) == 0 &&
           (file[n] == 0 || (n > 0 && (file[n] == '/' || input[n - 1] == '/')));
}

static int exit_code(eqf_status status, const char *file, const char *const *inputs)
{
    switch (status) {
    case EQF_OK:
        return EXIT_DONE;
    case EQF_E_PARSE:
    case EQF_E_TYPE:
    case EQF_E_UNSUPPORTED:
    case EQF_E_DATA:
    case EQF_E_NOT_OURS:
    case EQF_E_LIMIT:
    case EQF_E_CONTRADICTION:
        return EXIT_INPUT;
    case EQF_E_ARGUMENT:
        return EXIT_USAGE;
    case EQF_E_IO:
        for (; inputs && *inputs; inputs++)
            if (is_within(file, *inputs))
                return EXIT_INPUT;
        return EXIT_MACHINE;
    case EQF_E_MISMATCH:
        return EXIT_DIFFERENT;
    case EQF_E_INTERRUPTED:
        return EXIT_INTERRUPTED;
    case EQF_E_MACHINE:
    case EQF_E_NO_MEMORY:
    case EQF_E_INTERNAL:
    case EQF_STATUS_COUNT:
        return EXIT_MACHINE;
    }
    return EXIT_MACHINE;
}

int cli_fail_status(cli_args *args, eqf_status status, const char *const *inputs)
{
    size_t n = eqf_diag_count(args->ctx);
    eqf_diag d = {status, "", "", eqf_status_name(status)};
    if (n > 0)
        d = eqf_diag_get(args->ctx, 0);
    report(args, d.file, d.place, d.message, eqf_status_name(status), n > 1 ? n - 1 : 0);
    return exit_code(status, d.file, inputs);
}

/* ---- JSON
 * ----------------------------------------------------------------------------------------- */

/* A byte that is no UTF-8, as paths may hold, becomes U+FFFD: the object stays JSON. */
void json_text(const char *s)
{
    putchar('"');
    while (*s) {
        int n = character(s);
        if (n == 0)
            fputs("\\ufffd", stdout);
        else if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            fwrite(s, 1, (size_t)n, stdout);
        s += n ? n : 1;
    }
    putchar('"');
}

void json_key(const char *key)
{
    printf(",\"%s\":", key);
}

void json_number(double x)
{
    if (isfinite(x))
        printf("%.9g", x);
    else
        printf("null");
}

void json_roofline(double share)
{
    json_key("roofline");
    json_number(share > 1 ? 1 : share);
    json_key("roofline_measured");
    json_number(share);
}

static void print_shape(const eqf_tensor *t, bool as_json)
{
    for (size_t d = 0; d < t->rank; d++) {
        if (d)
            printf(as_json ? "," : ", ");
        if (!t->symbols || !t->symbols[d])
            printf("%lld", (long long)t->shape[d]);
        else if (as_json)
            json_text(t->symbols[d]);
        else
            put_visible(stdout, t->symbols[d]);
    }
}

void print_type(const eqf_tensor *t)
{
    printf("%s [", eqf_dtype_name(t->dtype));
    print_shape(t, false);
    printf("]");
}

void json_tensors(const char *key, const eqf_tensor *at, size_t n, bool with_bytes)
{
    json_key(key);
    putchar('[');
    for (size_t i = 0; i < n; i++) {
        printf(i ? ",{\"name\":" : "{\"name\":");
        json_text(at[i].name);
        printf(",\"dtype\":\"%s\",\"shape\":[", eqf_dtype_name(at[i].dtype));
        print_shape(&at[i], true);
        printf("]");
        if (with_bytes)
            printf(",\"bytes\":%zu", at[i].bytes);
        printf("}");
    }
    putchar(']');
}
