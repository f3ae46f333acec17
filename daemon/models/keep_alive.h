/* How long a model may be idle before its weights leave the device, as Ollama's users write it.
 *
 *   "5m"  "1h30m"  "250ms"  "90"  90      a Go duration, or a number of seconds
 *   "0"   0                               at once after the answer
 *   "-1"  -1  "-1m"                       anything negative: for ever
 */
#ifndef MODELS_KEEP_ALIVE_H
#define MODELS_KEEP_ALIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nobody said: the model's own, or the configuration's. */
#define KEEP_ALIVE_DEFAULT INT64_MIN
#define KEEP_ALIVE_WORDS   "a duration like \"5m\", seconds, 0 (at once) or -1 (for ever)"

/* Microseconds, CLOCK_NEVER for ever.  False: it is neither a duration nor a number. */
bool keep_alive_parse(const char *text, size_t size, int64_t *out_us);
/* The same of a number of seconds; false: it is no number. */
bool keep_alive_from_seconds(double seconds, int64_t *out_us);

#endif
