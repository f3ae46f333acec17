/* Findings of the checkers and notices: one line each on stderr, and the last kept for tests. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1024, NOTICES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long count;
static char last[TEXT_BYTES];
static char *notices[NOTICES];

void finding(const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&lock);
    va_start(arguments, format);
    vsnprintf(last, sizeof(last), format, arguments);
    va_end(arguments);
    count++;
    fprintf(stderr, "sim: %s\n", last);
    pthread_mutex_unlock(&lock);
}

void finding_forget(void)
{
    pthread_mutex_lock(&lock);
    count = 0;
    last[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void notice(const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < NOTICES; i++) {
        if (notices[i] != NULL && strcmp(notices[i], text) == 0)
            break;
        if (notices[i] == NULL) {
            notices[i] = strdup(text);
            fprintf(stderr, "sim: %s\n", text);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

unsigned long sim_findings(void)
{
    pthread_mutex_lock(&lock);
    unsigned long found = count;
    pthread_mutex_unlock(&lock);
    return found;
}

const char *sim_last_finding(void)
{
    static _Thread_local char copy[TEXT_BYTES];

    pthread_mutex_lock(&lock);
    memcpy(copy, last, sizeof(copy));
    pthread_mutex_unlock(&lock);
    return copy;
}
