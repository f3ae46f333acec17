/* Launches a kernel that turns a row round in shared memory. */
#ifndef TESTS_SIM_BODIES_SEEDED_H
#define TESTS_SIM_BODIES_SEEDED_H

#include <stdbool.h>

enum { SEEDED_THREADS = 96 };

#ifdef __cplusplus
extern "C"
#endif
    void
    seeded_run(float *out, bool overruns, bool lacks_barrier);

#endif
