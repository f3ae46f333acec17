#include "device/cpu/team.h"

#include <omp.h>

void team_run(unsigned threads, team_fn fn, void *arg)
{
    if (threads <= 1) {
        fn(arg, 0, 1);
        return;
    }
#pragma omp parallel num_threads((int)threads)
    fn(arg, (unsigned)omp_get_thread_num(), (unsigned)omp_get_num_threads());
}

void team_barrier(void)
{
#pragma omp barrier
}
