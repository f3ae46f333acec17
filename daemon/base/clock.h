/* Time in microseconds.  Protocol, batching and governing code is given `now_us`, it never asks. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

int64_t clock_now_us(void);  /* CLOCK_MONOTONIC */
int64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
int64_t clock_wall_ms(void); /* CLOCK_REALTIME, since 1970 */

/* A condition that is waited for until a time of this clock. */
void clock_cond_init(pthread_cond_t *condition);
/* Returns when it was signalled, at `until_us` (CLOCK_NEVER: not before), or for no reason. */
void clock_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_us);

#endif
