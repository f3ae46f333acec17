/* One sentence for a person: what, where, found, allowed.
 *
 * Cold paths (load, config, request checks) take a `struct error *err` last and may be given NULL.
 * Hot paths return the bare status.  Caller's memory; nothing to free.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "base/status.h"

#define ERROR_TEXT_BYTES 768

struct error {
    enum status status;
    char text[ERROR_TEXT_BYTES]; /* always terminated; cut at a UTF-8 border when too long */
};

/* Fills `err` (NULL is fine) and returns `status`, so that `return error_set(…)` reads as one. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "where: " before the text of `err` and returns its status; for callers that know more. */
enum status error_prefix(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
