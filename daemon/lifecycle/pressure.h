/* The system's own word that memory is short, as the event loop hears it.
 *
 * In this order: what systemd says (MEMORY_PRESSURE_WATCH and MEMORY_PRESSURE_WRITE, as in
 * https://systemd.io/MEMORY_PRESSURE: a PSI file, a FIFO or a Unix socket; /dev/null turns it off),
 * else our cgroup's memory.pressure, else /proc/pressure/memory, the latter two with a trigger of
 * 200 ms of stall in 2 s.  Where none can be had, only the counters are left: pressure_poll() looks
 * whether our cgroup ran into memory.high or memory.max since.
 * Threads: the loop's.
 */
#ifndef LIFECYCLE_PRESSURE_H
#define LIFECYCLE_PRESSURE_H

#include <stdbool.h>

#include "base/error.h"

struct event_base;
struct pressure;

/* Calls `pressed` on the loop whenever the system reports pressure.  What cannot be watched is
 * logged and left out: only STATUS_NO_MEMORY fails. */
MUST_CHECK enum status pressure_create(struct event_base *base, void (*pressed)(void *arg),
                                       void *arg, struct pressure **out_pressure);
void pressure_destroy(struct pressure *pressure); /* NULL is fine */
/* Whether the cgroup's counters rose since the last call. */
bool pressure_poll(struct pressure *pressure);
/* What is watched: a path, or "nothing". */
const char *pressure_watched(const struct pressure *pressure);

#endif
