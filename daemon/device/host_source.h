/* A mem_source over the process's own memory: mmap, mprotect, madvise.
 *
 * Shared by the devices whose kernels read host addresses.  Ranges of 2 MiB and more ask for large
 * pages.  A decommitted page is really gone from the resident size.
 */
#ifndef DEVICE_HOST_SOURCE_H
#define DEVICE_HOST_SOURCE_H

#include "memory/mem_source.h"

/* One for the whole process; stateless. */
struct mem_source *host_source(void);

/* Gives back what this process holds and does not need: pages of freed memory that malloc kept, and
 * the pages of programs and libraries (code and tables) that will be read from the system's cache
 * when they run again.  After a load, whose code and scraps are wanted no more; takes about a
 * millisecond. */
void host_trim(void);

#endif
