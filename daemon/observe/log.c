/* Lines go to stderr, or to the journal with their fields when stderr is the journal's socket
 * (systemd says so in JOURNAL_STREAM).  Levels are a short list of component:level, read without a
 * lock: the list is replaced only by log_init(), and a reader that sees half of a change logs by
 * one of both. */
#include "observe/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

/* The journal's C call would like to know our file and line; ours is a component. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

enum { COMPONENTS = 32, NAME_BYTES = 24, LINE_BYTES = 2048 };

static const struct level {
    const char *name;
    int priority; /* syslog's */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", LOG_ERR},   [LOG_LEVEL_WARN] = {"warn", LOG_WARNING},
    [LOG_LEVEL_INFO] = {"info", LOG_INFO},    [LOG_LEVEL_DEBUG] = {"debug", LOG_DEBUG},
    [LOG_LEVEL_TRACE] = {"trace", LOG_DEBUG},
};
enum { LEVELS = sizeof(levels) / sizeof(levels[0]) };

struct rule {
    char component[NAME_BYTES];
    enum log_level level;
};

struct table {
    enum log_level standard; /* of components without a rule */
    size_t rules;
    struct rule rule[COMPONENTS];
    struct table *former;
};

static struct table first_table = {.standard = LOG_LEVEL_INFO};
static _Atomic(struct table *) table_now = &first_table;
static atomic_bool to_journal;

static int level_by_name(const char *name, size_t length)
{
    for (int i = 0; i < LEVELS; i++) {
        if (strlen(levels[i].name) == length && strncasecmp(levels[i].name, name, length) == 0)
            return i;
    }
    return -1;
}

/* One item of the list: "level" or "component:level". */
static bool read_item(struct table *table, const char *item, size_t length)
{
    const char *colon = memchr(item, ':', length);
    size_t name = colon == NULL ? 0 : (size_t)(colon - item);
    const char *word = colon == NULL ? item : colon + 1;
    int level = level_by_name(word, length - (size_t)(word - item));

    if (level < 0 || name >= NAME_BYTES || table->rules == COMPONENTS)
        return false;
    if (colon == NULL) {
        table->standard = (enum log_level)level;
        return true;
    }
    memcpy(table->rule[table->rules].component, item, name);
    table->rule[table->rules++].level = (enum log_level)level;
    return true;
}

static void read_levels(struct table *table, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ", ");

        if (length > 0 && !read_item(table, text, length))
            log_write(LOG_LEVEL_WARN, "observe",
                      "SLUICE_LOG: '%.*s' is not LEVEL or COMPONENT:LEVEL with a level of error, "
                      "warn, info, debug, trace, ignoring",
                      (int)length, text);
        text += length;
        text += strspn(text, ", ");
    }
}

/* systemd.exec(5): JOURNAL_STREAM is "device:inode" of what it connected to the journal. */
static bool is_stderr_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device, inode;
    struct stat facts;

    return stream != NULL && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &facts) == 0 && facts.st_dev == device && facts.st_ino == inode;
}

void log_init(const char *text)
{
    struct table *table = calloc(1, sizeof(*table));

    atomic_store(&to_journal, is_stderr_journal());
    if (text == NULL)
        text = getenv("SLUICE_LOG");
    if (table == NULL)
        return; /* the levels stay as they are */
    table->standard = LOG_LEVEL_INFO;
    if (text != NULL)
        read_levels(table, text);
    table->former = atomic_load(&table_now);
    atomic_store(&table_now, table);
}

bool log_is_on(enum log_level level, const char *component)
{
    const struct table *table = atomic_load_explicit(&table_now, memory_order_acquire);
    enum log_level limit = table->standard;

    for (size_t i = 0; i < table->rules; i++) {
        if (strcmp(table->rule[i].component, component) == 0)
            limit = table->rule[i].level;
    }
    return level <= limit;
}

static void write_line(enum log_level level, const char *component, const char *text)
{
    char line[LINE_BYTES + 128];
    struct timespec now;
    struct tm calendar;
    char stamp[32];
    int length;
    ssize_t written;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &calendar);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &calendar);
    length = snprintf(line, sizeof(line), "%s.%03ldZ %-5s %s: %s\n", stamp, now.tv_nsec / 1000000,
                      levels[level].name, component, text);
    /* One write, so that lines of several threads do not mix; a log that cannot be written is lost.
     */
    do
        written = write(STDERR_FILENO, line, (size_t)length);
    while (written < 0 && errno == EINTR);
}

static bool send_to_journal(enum log_level level, const char *component, const char *text)
{
    return sd_journal_send("MESSAGE=%s: %s", component, text, "PRIORITY=%i", levels[level].priority,
                           "SLUICE_COMPONENT=%s", component, "SLUICE_LEVEL=%s", levels[level].name,
                           "SYSLOG_IDENTIFIER=sluiced", NULL) == 0;
}

void log_write(enum log_level level, const char *component, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') /* a peer's bytes must not make lines of their own */
            *c = ' ';
    }
    if (!atomic_load_explicit(&to_journal, memory_order_relaxed) ||
        !send_to_journal(level, component, text))
        write_line(level, component, text);
}
