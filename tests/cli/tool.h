/* Runs the tool and keeps what it said. */
#ifndef EQF_TEST_TOOL_H
#define EQF_TEST_TOOL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef EQF_TOOL
#error "the build says where the tool is"
#endif

typedef struct said {
    int code;
    char out[1 << 18], err[8192];
} said;

static char tool_folder[64];

static inline void tool_slurp(const char *name, char *to, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", tool_folder, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, size - 1, f) : 0;
    to[n] = 0;
    if (f)
        fclose(f);
}

/* A shell command in the test's folder, where $E is the tool; what it printed is in *s. */
static inline int tool(said *s, const char *command)
{
    char line[4096];
    snprintf(line, sizeof line, "cd %s && E=%s && export E && { %s\n} >out.txt 2>err.txt",
             tool_folder, EQF_TOOL, command);
    int status = system(line);
    s->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    tool_slurp("out.txt", s->out, sizeof s->out);
    tool_slurp("err.txt", s->err, sizeof s->err);
    return s->code;
}

static inline void tool_put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", tool_folder, name);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        abort();
}

static inline const char *last_line(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = 0;
    char *at = strrchr(text, '\n');
    return at ? at + 1 : text;
}

#endif
