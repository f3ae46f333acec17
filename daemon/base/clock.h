/* Time in microseconds.  Protocol, batching and governing code is given `now_us`, it never asks. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

int64_t clock_now_us(void);  /* CLOCK_MONOTONIC */
int64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
int64_t clock_wall_ms(void); /* CLOCK_REALTIME, since 1970 */

#endif
