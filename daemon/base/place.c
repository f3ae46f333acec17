#include "base/place.h"

#include <sched.h>

int place_now(void)
{
    return sched_getcpu();
}

/* Processors are numbered from 0; CPU_SETSIZE of them at most, else nobody is moved. */
static int behind(const cpu_set_t *allowed, int cpu, unsigned steps)
{
    while (steps > 0) {
        cpu = (cpu + 1) % CPU_SETSIZE;
        if (CPU_ISSET((unsigned)cpu, allowed))
            steps--;
    }
    return cpu;
}

void place_apart(int cpu, unsigned steps)
{
    cpu_set_t allowed, there;

    if (cpu < 0 || cpu >= CPU_SETSIZE || place_now() != cpu ||
        sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    CPU_ZERO(&there);
    CPU_SET((unsigned)behind(&allowed, cpu, steps), &there);
    if (sched_setaffinity(0, sizeof(there), &there) == 0)
        (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}
