/* What reaches the tool from outside while it works: interrupts, files that vanish under a mapping,
 * and the second hand of whoever watches. Handlers use nothing but async-signal-safe calls. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli/cli.h"

#define PATIENCE_S 2 /* before progress is shown */

volatile bool cli_interrupted;

static volatile sig_atomic_t wants_json, is_polled;

/* The line on the terminal. The handler leaves it alone while it is being changed. */
static char label[80];
static volatile sig_atomic_t is_timed, is_shown, is_changing, seconds;

static void put_text(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t w = write(fd, text, n);
        if (w < 0 && errno != EINTR)
            return;
        text += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
}

static void clear_line(void)
{
    if (is_shown)
        put_text(STDERR_FILENO, "\r\033[K");
    is_shown = 0;
}

/* The end, as an error has it: a line, an exit code, an object where one is wanted. */
static _Noreturn void leave(int code, const char *line, const char *object)
{
    clear_line();
    put_text(STDERR_FILENO, line);
    if (wants_json)
        put_text(STDOUT_FILENO, object);
    _exit(code);
}

#define REASON(name, reason, status)                                                               \
    static const char name##_line[] = "equiforge: " reason "\n";                                   \
    static const char name##_object[] =                                                            \
        "{\"error\":{\"file\":\"\",\"place\":\"\",\"reason\":\"" reason "\",\"code\":\"" status "\"}}\n"

REASON(interrupt, "interrupted", "EQF_E_INTERRUPTED");
REASON(lost, "a file was cut short, or lost, while it was being read", "EQF_E_IO");

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (!is_polled || cli_interrupted) /* asked twice: at once */
        leave(EXIT_INTERRUPTED, interrupt_line, interrupt_object);
    cli_interrupted = true;
}

/* Files are mapped; nothing was written to where results go when one is cut short. */
static void on_lost_file(int signal_number)
{
    (void)signal_number;
    leave(EXIT_INPUT, lost_line, lost_object);
}

/* One handler at a time: the second hand must not draw its line again below a last word. */
static void catch(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGBUS);
    sigaction(signal_number, &action, NULL);
}

void cli_catch_signals(bool json)
{
    wants_json = json;
    catch (SIGINT, on_interrupt);
    catch (SIGTERM, on_interrupt);
    catch (SIGHUP, on_interrupt);
    catch (SIGBUS, on_lost_file);
}

void cli_poll_interrupts(void)
{
    is_polled = 1;
}

/* ---- progress -----------------------------------------------------------------------------------
 */

static void draw(void)
{
    char number[16], *at = number + sizeof number;
    is_shown = 1; /* before the first letter: whoever leaves now clears what there is */
    *--at = 0;
    for (int n = seconds; n > 0 || *at == 0; n /= 10)
        *--at = (char)('0' + n % 10);
    put_text(STDERR_FILENO, "\r\033[K");
    put_text(STDERR_FILENO, label);
    put_text(STDERR_FILENO, " ... ");
    put_text(STDERR_FILENO, at);
    put_text(STDERR_FILENO, " s");
}

static void on_second(int signal_number)
{
    (void)signal_number;
    int error = errno;
    seconds++;
    if (!is_changing && seconds >= PATIENCE_S && label[0])
        draw();
    errno = error;
}

void cli_progress(const cli_args *args, const char *format, ...)
{
    if (args->quiet || !isatty(STDERR_FILENO))
        return;
    is_changing = 1;
    if (!is_timed) {
        is_timed = 1;
        catch (SIGALRM, on_second);
        setitimer(ITIMER_REAL, &(struct itimerval){{1, 0}, {1, 0}}, NULL);
    }
    va_list list;
    va_start(list, format);
    vsnprintf(label, sizeof label, format, list);
    va_end(list);
    for (char *c = label; *c; c++) /* names may be anything, and may have been cut */
        *c = *c < 0x20 || *c >= 0x7F ? '?' : *c;
    if (seconds >= PATIENCE_S)
        draw();
    is_changing = 0;
}

void cli_end_progress(void)
{
    is_changing = 1;
    label[0] = 0;
    clear_line();
    is_changing = 0;
}
