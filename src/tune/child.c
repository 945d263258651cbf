/* Child processes with limits. A child leads its own process group, so that a compiler's helpers
 * end with it and Ctrl-C reaches the parent alone; the kernel kills it when the parent dies. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tune/tune.h"

#define OUTPUT_LIMIT (64 << 10)
#define LOOK_S 0.25 /* most that counts between two looks at a child */

/* AddressSanitizer reserves terabytes of address space: no limit on it can be met. */
#if defined(__SANITIZE_ADDRESS__)
#define LIMITS_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define LIMITS_MEMORY 0
#endif
#endif
#ifndef LIMITS_MEMORY
#define LIMITS_MEMORY 1
#endif

struct tn_child {
    arena *a;
    pid_t pid;
    int fd; /* its output; -1 once closed */
    bool reaped, too_long;
    int status; /* of waitpid */
    tn_limits limits;
    f64 looked_s; /* now_s() when it was last looked at */
    f64 waited_s; /* for it, see tn_limits.wall_s */
    char *output;
    i64 output_bytes;
};

static void release(void *p)
{
    tn_child *c = p;
    if (!c->reaped) {
        kill(-c->pid, SIGKILL);
        kill(c->pid, SIGKILL); /* it may not lead its group yet */
        while (waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR)
            continue;
        c->reaped = true;
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* The limit `value`, or what is left of it under the one in force; `slack` more before the kernel
 * kills without a word. */
static struct rlimit lowered(struct rlimit now, i64 value, i64 slack)
{
    rlim_t soft = MIN((rlim_t)value, now.rlim_max);
    return (struct rlimit){soft, MIN(soft + (rlim_t)slack, now.rlim_max)};
}

/* Address space in use now, from the system's own count. */
static i64 address_space(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    i64 pages = 0;
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        pages = pages * 10 + (text[i] - '0');
    return pages * sysconf(_SC_PAGESIZE);
}

/* In the child, before it does anything: async-signal-safe calls only. */
static void become_child(int output, pid_t parent, tn_limits limits, bool keeps_memory)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126); /* the parent died meanwhile */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(output, 1);
    dup2(output, 2);
    /* A limit that cannot be set leaves the wall clock to stop the child. */
    struct rlimit r;
    if (getrlimit(RLIMIT_CORE, &r) == 0) {
        r = lowered(r, 0, 0);
        (void)setrlimit(RLIMIT_CORE, &r);
    }
    if (limits.cpu_s > 0 && getrlimit(RLIMIT_CPU, &r) == 0) {
        r = lowered(r, (i64)limits.cpu_s + 1, 1);
        (void)setrlimit(RLIMIT_CPU, &r);
    }
    if (limits.memory_bytes > 0 && LIMITS_MEMORY && getrlimit(RLIMIT_AS, &r) == 0) {
        r = lowered(r, limits.memory_bytes + (keeps_memory ? address_space() : 0), 0);
        (void)setrlimit(RLIMIT_AS, &r);
    }
}

static f64 now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (f64)t.tv_sec + 1e-9 * (f64)t.tv_nsec;
}

/* This process's, with another place for temporary files. */
static char **environment(arena *a, const char *temporary)
{
    if (!temporary)
        return environ;
    VEC(char *) all = {0};
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, "TMPDIR=", 7) != 0)
            vec_push(a, &all, *e);
    vec_push(a, &all, arena_printf(a, "TMPDIR=%s", temporary));
    vec_push(a, &all, NULL);
    return all.at;
}

static tn_child *start(arena *a, const char *const *argv, int (*body)(void *), void *user,
                       tn_limits limits)
{
    eqf_ctx *ctx = arena_ctx(a);
    tn_child *c = NEW(a, tn_child);
    c->a = a;
    c->limits = limits;
    c->output = arena_alloc(a, OUTPUT_LIMIT + 1);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        eqf_throw(ctx, EQF_E_MACHINE, NULL, NULL, "cannot make a pipe: %s", strerror(errno));
    pid_t parent = getpid();
    char **with = environment(a, limits.temporary);
    c->pid = fork();
    if (c->pid < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        eqf_throw(ctx, EQF_E_MACHINE, NULL, NULL, "cannot start a process: %s", strerror(error));
    }
    if (c->pid == 0) {
        become_child(ends[1], parent, limits, body != NULL);
        if (body)
            _exit(body(user));
        /* argv is only read; the interface lacks the const. */
        execvpe(argv[0], (char *const *)(uintptr_t)argv, with);
        const char *why = strerror(errno);
        if (write(2, argv[0], strlen(argv[0])) >= 0 && write(2, ": ", 2) >= 0 &&
            write(2, why, strlen(why)) >= 0)
            _exit(127);
        _exit(127);
    }
    setpgid(c->pid, c->pid);
    close(ends[1]);
    c->fd = ends[0];
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->looked_s = now_s();
    arena_defer(a, release, c);
    return c;
}

tn_child *tn_start_program(arena *a, const char *const *argv, tn_limits limits)
{
    return start(a, argv, NULL, NULL, limits);
}

tn_child *tn_start_body(arena *a, int (*body)(void *user), void *user, tn_limits limits)
{
    return start(a, NULL, body, user, limits);
}

/* Takes what it wrote; what exceeds the limit is read and dropped, so that it never blocks. */
static void drain(tn_child *c)
{
    char spill[4096];
    for (;;) {
        bool full = c->output_bytes == OUTPUT_LIMIT;
        char *to = full ? spill : c->output + c->output_bytes;
        size_t room = full ? sizeof spill : (size_t)(OUTPUT_LIMIT - c->output_bytes);
        ssize_t n = read(c->fd, to, room);
        if (n > 0 && !full)
            c->output_bytes += n;
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (n == 0) {
            close(c->fd);
            c->fd = -1;
        }
        return;
    }
}

bool tn_ended(tn_child *c, int timeout_ms)
{
    if (c->reaped)
        return true;
    struct pollfd wait = {.fd = c->fd, .events = POLLIN};
    if (c->fd >= 0) {
        poll(&wait, 1, timeout_ms);
        drain(c);
    } else if (timeout_ms > 0) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pid_t r = waitpid(c->pid, &c->status, WNOHANG);
    if (r == c->pid) {
        if (c->fd >= 0)
            drain(c);
        /* Helpers that outlive their leader are of no use. */
        kill(-c->pid, SIGKILL);
        c->reaped = true;
        return true;
    }
    if (r < 0 && errno == ECHILD)
        eqf_throw(arena_ctx(c->a), EQF_E_MACHINE, NULL, NULL,
                  "a child process cannot be waited for: this process ignores SIGCHLD");
    f64 now = now_s();
    c->waited_s += MIN(now - c->looked_s, LOOK_S);
    c->looked_s = now;
    bool is_over = c->limits.until > 0 && now >= c->limits.until;
    if (!c->too_long && (is_over || (c->limits.wall_s > 0 && c->waited_s >= c->limits.wall_s))) {
        c->too_long = true;
        kill(-c->pid, SIGKILL);
    }
    return false;
}

tn_end tn_wait(tn_child *c, const volatile bool *cancel)
{
    do {
        if (cancel && *cancel) {
            release(c);
            eqf_throw(arena_ctx(c->a), EQF_E_INTERRUPTED, NULL, NULL, "interrupted");
        }
    } while (!tn_ended(c, 50));
    tn_end end = {.output = c->output, .output_bytes = c->output_bytes};
    if (WIFEXITED(c->status)) {
        end.how = TN_EXITED;
        end.code = WEXITSTATUS(c->status);
    } else {
        end.how = c->too_long || WTERMSIG(c->status) == SIGXCPU ? TN_TOO_LONG : TN_SIGNALLED;
        end.code = WTERMSIG(c->status);
        end.limit_s = c->too_long ? MIN(c->waited_s, c->limits.wall_s) : c->limits.cpu_s;
    }
    return end;
}

bool tn_succeeded(tn_end end)
{
    return end.how == TN_EXITED && end.code == 0;
}

bool tn_ran_out(tn_end end, f64 seconds)
{
    return end.how == TN_TOO_LONG && seconds > 0 && end.limit_s >= seconds;
}

const char *tn_describe(arena *a, tn_end end)
{
    switch (end.how) {
    case TN_EXITED:
        return arena_printf(a, "exit status %d", end.code);
    case TN_SIGNALLED:
        return arena_printf(a, "signal %d (%s)", end.code, strsignal(end.code));
    default:
        return arena_printf(a, "stopped after %.3g s", end.limit_s);
    }
}
