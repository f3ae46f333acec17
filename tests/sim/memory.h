/* What device memory costs: the one place that knows how much is free. */
#ifndef SLUICE_TESTS_SIM_MEMORY_H
#define SLUICE_TESTS_SIM_MEMORY_H

#include "core.h"
#include "space.h"

/* Charges bytes of the device; false when others, the context or this process hold too much. */
bool charge(size_t bytes);
void discharge(size_t bytes);
/* What cudaMemGetInfo says. */
void memory_info(size_t *out_free, size_t *out_total);

/* Charge of one cudaMalloc, in the blocks that drivers cut. */
size_t charge_of(size_t bytes);

#endif
