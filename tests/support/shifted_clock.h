/* The program's clock, ahead of the real one by as much as a test says: what takes an hour has
 * happened at once, on a machine of any speed.  Whoever sleeps until a time must be woken to see
 * that it has come, and sleeps by the real clock.
 *
 * A test program gets it by linking test_clock (tests/CMakeLists.txt).
 */
#ifndef TESTS_SUPPORT_SHIFTED_CLOCK_H
#define TESTS_SUPPORT_SHIFTED_CLOCK_H

#include <stdint.h>

/* So much time passes now.  Any thread. */
void clock_shift(int64_t us);
/* Back to the real time.  Nobody may remember another. */
void clock_unshift(void);

#define HOUR_US INT64_C(3600000000)

#endif
