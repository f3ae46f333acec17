/* The outcome of whatever can fail.
 *
 * One enum for the whole program; rows in status.def.  Every function returning it is MUST_CHECK:
 * a dropped failure is a warning, `(void)` the visible way to ignore one on purpose.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#define MUST_CHECK __attribute__((warn_unused_result))
#if defined(__clang__)
enum __attribute__((warn_unused_result)) status {
#else
enum status {
#endif
#define STATUS(name, grpc, http, words) STATUS_##name,
#include "base/status.def"
#undef STATUS
    STATUS_COUNT
};

/* "INVALID"; borrowed, for ever. */
const char *status_name(enum status status);
/* "invalid argument"; borrowed, for ever. */
const char *status_words(enum status status);
int status_grpc_code(enum status status);
int status_http_code(enum status status);

/* Leaves the function with the status of `call` unless it is OK.  Only where nothing is held. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (call);                                                          \
        if (try_status_ != STATUS_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)

#endif
