#ifndef SLUICE_TESTS_SIM_POOL_H
#define SLUICE_TESTS_SIM_POOL_H

#include "space.h"

/* A wait has ended: pools give back what they keep beyond their threshold. */
void pools_settle(void);
/* The work of cudaFreeAsync. */
void pool_free_run(struct region *region);

#endif
