/* memory --watch: asks at an interval and shows what changed since.
 *
 * On a terminal the picture is drawn over the last one, in the size that the window has then; the
 * cursor comes back and the last picture stays when it ends.  Elsewhere a line an interval.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "chart.h"
#include "memory.h"
#include "proto/admin.pb-c.h"

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define GO_HOME     "\033[H\033[J"

struct watch {
    struct chart chart;
    json_t *last; /* the answer before; NULL: this is the first */
    bool is_terminal;
    char news[256]; /* since the last picture, for a line */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    if (number != SIGWINCH) /* that one only ends the sleep */
        stopped = 1;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGWINCH};
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: sleeps end */

    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        (void)sigaction(numbers[i], &action, NULL);
}

/* ---- what happened ---- */

static void tell(struct watch *watch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(struct watch *watch, const char *format, ...)
{
    char what[CHART_EVENT_BYTES - 16], line[CHART_EVENT_BYTES], clock[16];
    time_t now = time(NULL);
    size_t used = strlen(watch->news);
    struct tm local;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    (void)strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &local));
    (void)snprintf(line, sizeof(line), "%s %s", clock, what);
    chart_add_event(&watch->chart, line);
    (void)snprintf(watch->news + used, sizeof(watch->news) - used, "; %s", what);
}

static uint64_t rise(const json_t *before, const json_t *now, const char *key)
{
    uint64_t was = json_number(before, key), is = json_number(now, key);

    return is > was ? is - was : 0;
}

static void compare(struct watch *watch, const json_t *now)
{
    const json_t *before = watch->last;
    const char *level = json_text(now, "level"), *was = json_text(before, "level");
    uint64_t count;
    char text[TEXT_ROOM];

    watch->news[0] = '\0';
    if (before == NULL)
        return;
    if (strcmp(level, was) != 0)
        tell(watch, "level %s, was %s", level, was);
    if ((count = rise(before, now, "empty_cache_total")) > 0)
        tell(watch, "empty_cache %" PRIu64 " times, %s given back", count,
             text_of_bytes(rise(before, now, "empty_cache_freed_bytes_total"), text));
    if ((count = rise(json_object_get(before, "pressure"), json_object_get(now, "pressure"),
                      "evict_bytes_total")) > 0)
        tell(watch, "idle models asked for %s", text_of_bytes(count, text));
    if ((count = rise(before, now, "reservations_refused_total")) > 0)
        tell(watch, "%" PRIu64 " reservations refused", count);
    if ((count = rise(before, now, "num_ooms")) > 0)
        tell(watch, "%" PRIu64 " times out of memory", count);
    if ((count = rise(before, now, "plan_violations_total")) > 0)
        tell(watch, "%" PRIu64 " plans violated", count);
    if (json_number(now, "budget_bytes") != json_number(before, "budget_bytes"))
        tell(watch, "the limit is %s now", text_of_bytes(json_number(now, "budget_bytes"), text));
}

static void take(struct watch *watch, const json_t *now)
{
    static const char *const names[] = {"low", "high", "critical"};
    const struct chart_sample sample = {.reserved = json_number(now, "reserved_bytes"),
                                        .allocated = json_number(now, "allocated_bytes")};

    watch->chart.budget = json_number(now, "budget_bytes");
    for (size_t i = 0; i < 3; i++)
        watch->chart.marks[i] = json_number(json_object_get(now, "watermarks"), names[i]);
    (void)snprintf(watch->chart.level, sizeof(watch->chart.level), "%s%s", json_text(now, "level"),
                   json_is_true(json_object_get(now, "pinned")) ? " (pinned)" : "");
    chart_add(&watch->chart, &sample);
}

/* ---- showing ---- */

static void draw(const struct watch *watch)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    (void)fputs(GO_HOME, stdout);
    chart_draw(&watch->chart, size.ws_col, size.ws_row - 1U, stdout);
}

static void print_line(const struct watch *watch, const json_t *now)
{
    char clock[16], reserved[TEXT_ROOM], allocated[TEXT_ROOM], cached[TEXT_ROOM], budget[TEXT_ROOM];
    time_t seconds = time(NULL);
    struct tm local;

    (void)strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&seconds, &local));
    (void)printf("%s  reserved %s of %s, allocated %s, cached %s, level %s%s\n", clock,
                 text_of_bytes(json_number(now, "reserved_bytes"), reserved),
                 text_of_bytes(json_number(now, "budget_bytes"), budget),
                 text_of_bytes(json_number(now, "allocated_bytes"), allocated),
                 text_of_bytes(json_number(now, "cached_bytes"), cached), json_text(now, "level"),
                 watch->news);
}

static void show(const struct ctl *ctl, struct watch *watch, const json_t *now)
{
    if (ctl->as_json) {
        (void)json_dumpf(now, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        (void)putchar('\n');
    } else if (watch->is_terminal) {
        draw(watch);
    } else {
        print_line(watch, now);
    }
    (void)fflush(stdout);
}

/* ---- the loop ---- */

static double monotonic_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Sleeps until then; a window that changed its size is drawn again meanwhile. */
static void wait_until(const struct ctl *ctl, const struct watch *watch, double then_s)
{
    double left_s;

    while (!stopped && (left_s = then_s - monotonic_s()) > 0) {
        const struct timespec left = {.tv_sec = (time_t)left_s,
                                      .tv_nsec = (long)(fmod(left_s, 1) * 1e9)};

        if (nanosleep(&left, NULL) == 0 || errno != EINTR || stopped)
            continue;
        if (watch->is_terminal && !ctl->as_json) {
            draw(watch);
            (void)fflush(stdout);
        }
    }
}

static int look(struct ctl *ctl, struct watch *watch)
{
    static const Sluice__V1__AdminRequest request = SLUICE__V1__ADMIN_REQUEST__INIT;
    json_t *now;
    int exit_status = ctl_admin(ctl, "Memory", &request, &now);

    if (exit_status != EXIT_DONE)
        return exit_status;
    compare(watch, now);
    take(watch, now);
    show(ctl, watch, now);
    json_decref(watch->last);
    watch->last = now;
    return EXIT_DONE;
}

int memory_watch(struct ctl *ctl, const struct watch_options *options)
{
    struct watch watch = {.is_terminal = isatty(STDOUT_FILENO) == 1};
    double next_s = monotonic_s();
    int exit_status = EXIT_DONE;

    catch_signals();
    if (watch.is_terminal && !ctl->as_json)
        (void)fputs(HIDE_CURSOR, stdout);
    for (uint64_t i = 0; !stopped && (options->count == 0 || i < options->count); i++) {
        if (i > 0)
            wait_until(ctl, &watch, next_s);
        if (stopped || (exit_status = look(ctl, &watch)) != EXIT_DONE || ferror(stdout) != 0)
            break;
        next_s += options->interval_s;
    }
    if (watch.is_terminal && !ctl->as_json)
        (void)fputs(SHOW_CURSOR, stdout);
    json_decref(watch.last);
    return stopped ? EXIT_DONE : exit_status; /* a call cut short by Ctrl-C is no failure */
}
