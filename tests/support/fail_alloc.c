#include "support/fail_alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The linker option --wrap=f sends calls of f to __wrap_f and names the true one __real_f. */
#define WRAPPED(result, name, params)                                                              \
    result __real_##name params;                                                                   \
    result __wrap_##name params;                                                                   \
    result __wrap_##name params

static _Thread_local unsigned countdown; /* 1: the next allocation fails; 0: none will */
static atomic_int
    countdown_anywhere; /* the same for all threads; 1: the next one fails; at most 0: none will */
static atomic_bool has_fired;

static bool fails(void)
{
    bool here = countdown > 0 && --countdown == 0;
    bool anywhere =
        atomic_load(&countdown_anywhere) > 0 && atomic_fetch_sub(&countdown_anywhere, 1) == 1;

    if (!here && !anywhere)
        return false;
    atomic_store(&has_fired, true);
    errno = ENOMEM;
    return true;
}

WRAPPED(void *, malloc, (size_t bytes))
{
    return fails() ? NULL : __real_malloc(bytes);
}

WRAPPED(void *, calloc, (size_t count, size_t bytes))
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

WRAPPED(void *, realloc, (void *old, size_t bytes))
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

WRAPPED(void *, reallocarray, (void *old, size_t count, size_t bytes))
{
    return fails() ? NULL : __real_reallocarray(old, count, bytes);
}

WRAPPED(void *, aligned_alloc, (size_t alignment, size_t bytes))
{
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

WRAPPED(int, posix_memalign, (void **out, size_t alignment, size_t bytes))
{
    return fails() ? ENOMEM : __real_posix_memalign(out, alignment, bytes);
}

WRAPPED(char *, strdup, (const char *text))
{
    return fails() ? NULL : __real_strdup(text);
}

WRAPPED(char *, strndup, (const char *text, size_t length))
{
    return fails() ? NULL : __real_strndup(text, length);
}

WRAPPED(void *, mmap, (void *at, size_t bytes, int prot, int flags, int fd, off_t offset))
{
    return fails() ? MAP_FAILED : __real_mmap(at, bytes, prot, flags, fd, offset);
}

WRAPPED(FILE *, open_memstream, (char **out_text, size_t *out_bytes))
{
    return fails() ? NULL : __real_open_memstream(out_text, out_bytes);
}

WRAPPED(int, vasprintf, (char **out_text, const char *format, va_list args))
{
    return fails() ? -1 : __real_vasprintf(out_text, format, args);
}

int __wrap_asprintf(char **out_text, const char *format, ...);
int __wrap_asprintf(char **out_text, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = __wrap_vasprintf(out_text, format, args);
    va_end(args);
    return length;
}

void fail_alloc_arm(unsigned nth)
{
    atomic_store(&has_fired, false);
    countdown = nth;
}

void fail_alloc_arm_anywhere(unsigned nth)
{
    atomic_store(&has_fired, false);
    atomic_store(&countdown_anywhere, (int)nth);
}

bool fail_alloc_disarm(void)
{
    countdown = 0;
    atomic_store(&countdown_anywhere, 0);
    return atomic_load(&has_fired);
}

unsigned fail_each_alloc(enum status (*fn)(void *arg), void *arg)
{
    for (unsigned nth = 1;; nth++) {
        enum status status;
        bool fired;

        fail_alloc_arm(nth);
        status = fn(arg);
        fired = fail_alloc_disarm();
        if (!fired && status == STATUS_OK)
            return nth - 1;
        if (fired && (status == STATUS_NO_MEMORY || status == STATUS_OK))
            continue;
        fprintf(stderr, "fail_each_alloc: with %s %u refused the status is %s\n",
                fired ? "allocation" : "no allocation, after", nth, status_name(status));
        abort();
    }
}
