/* Every allocation of a piece of code failing in turn.
 *
 *     static enum status make_it(void *arg)
 *     {
 *         struct thing *thing = NULL;
 *         enum status status = thing_create(arg, &thing);
 *
 *         if (status != STATUS_OK)
 *             assert_null(thing);          // outputs are written only on success
 *         thing_destroy(thing);
 *         return status;
 *     }
 *     …
 *     fail_each_alloc(make_it, arg);
 *
 * runs make_it() with its first allocation failing, then its second, and so on until a run meets no
 * failure.  A run that met one must answer STATUS_NO_MEMORY, or STATUS_OK if the code can do
 * without; the last one must answer STATUS_OK.  Anything else, a crash, or (under the preset asan)
 * a leak fails the test.
 *
 * What counts: malloc, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, strdup,
 * strndup, mmap, open_memstream, asprintf and vasprintf, called by our code (the linker wraps them:
 * calls inside shared libraries are theirs) on the thread that runs `fn`.
 */
#ifndef TESTS_SUPPORT_FAIL_ALLOC_H
#define TESTS_SUPPORT_FAIL_ALLOC_H

#include <stdbool.h>

#include "base/status.h"

/* Returns how many allocations a run makes. */
unsigned fail_each_alloc(enum status (*fn)(void *arg), void *arg);

/* By hand: the nth allocation (from 1) of this thread fails, once. */
void fail_alloc_arm(unsigned nth);
/* … the nth of all threads: for what workers allocate. */
void fail_alloc_arm_anywhere(unsigned nth);
/* Back to normal; true when an allocation was refused since. */
bool fail_alloc_disarm(void);

#endif
