#include "support/shifted_clock.h"

#include <stdatomic.h>

static _Atomic int64_t ahead_us;

int64_t __real_clock_now_us(void);
int64_t __wrap_clock_now_us(void);

int64_t __wrap_clock_now_us(void)
{
    return __real_clock_now_us() + atomic_load(&ahead_us);
}

void clock_shift(int64_t us)
{
    (void)atomic_fetch_add(&ahead_us, us);
}

void clock_unshift(void)
{
    atomic_store(&ahead_us, 0);
}
