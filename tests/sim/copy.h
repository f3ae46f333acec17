/* What copies do when they run, and the marks for written bytes. */
#ifndef SLUICE_TESTS_SIM_COPY_H
#define SLUICE_TESTS_SIM_COPY_H

#include "shadow.h"
#include "stream.h"

void copy_run(const struct copy_work *copy);
void set_run(const struct set_work *set);
CUresult sim_cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);

#endif
