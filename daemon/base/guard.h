/* Mappings of files that somebody else may truncate.
 *
 * An access behind the end of such a file is a SIGBUS, which ends a process.  Here it ends the
 * mapping instead: the handler puts memory of zeros in the place of all of it and notes that it is
 * broken.  Whoever was reading goes on with zeros, whoever was writing writes into nothing, and the
 * one who asks guard_is_whole() afterwards throws the result away.
 *
 * Threads: add and remove by any, when nobody uses the bytes; faults by any.
 */
#ifndef BASE_GUARD_H
#define BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { GUARD_SLOTS = 4096 };

/* From now on the mapping of whole pages is guarded.  Sees to it that the handler of SIGBUS
 * is this one, for good; faults anywhere else go to whoever had it before.  A thread that uses the
 * bytes must not block the signal.  STATUS_NO_MEMORY: all slots
 * are taken; STATUS_IO: there can be no handler. */
MUST_CHECK enum status guard_add(void *base, size_t bytes, unsigned *out_slot);
bool guard_is_whole(unsigned slot);
/* Before the mapping is taken away. */
void guard_remove(unsigned slot);

#endif
