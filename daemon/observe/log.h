/* The log: one line an event, to the journal (structured) or stderr, by component and level.
 *
 * SLUICE_LOG=batch:trace,device:debug sets levels per component; levels mean frequency: error,
 * warn, info per process event, debug per model and batch, trace per node.  Whoever turns a status
 * into an outcome logs it once.  Threads: any.
 */
#ifndef OBSERVE_LOG_H
#define OBSERVE_LOG_H

#include <stdbool.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE
};

/* Reads SLUICE_LOG and finds out whether stderr is the journal.  Later calls change levels. */
void log_init(const char *levels); /* NULL: the environment's */
bool log_is_on(enum log_level level, const char *component);
void log_write(enum log_level level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A file that logs says once: #define LOG_COMPONENT "batch" before including this. */
#ifndef LOG_COMPONENT
#define LOG_COMPONENT "sluice"
#endif
#define LOG_AT(level, ...)                                                                         \
    do {                                                                                           \
        if (log_is_on((level), LOG_COMPONENT))                                                     \
            log_write((level), LOG_COMPONENT, __VA_ARGS__);                                        \
    } while (0)
#define log_error(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_trace(...) LOG_AT(LOG_LEVEL_TRACE, __VA_ARGS__)

#endif
