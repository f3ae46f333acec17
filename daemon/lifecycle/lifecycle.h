/* The process: start, ready, reload, drain, stop; signals, systemd, watchdog.  Everything is built
 * bottom-up here and torn down in reverse. */
#ifndef LIFECYCLE_LIFECYCLE_H
#define LIFECYCLE_LIFECYCLE_H

#include "config/config.h"

/* Runs the daemon until it is told to stop.  Returns the process's exit status: 0 after a drain, 1
 * on a failure of the start (said in the log), 78 for a bad configuration, 75 when the device was
 * lost. */
int lifecycle_run(const struct config_source *source);

#endif
