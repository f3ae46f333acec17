/* The driver's functions that manage virtual memory; found through cudaGetDriverEntryPoint. */
#ifndef SLUICE_TESTS_SIM_VMM_H
#define SLUICE_TESTS_SIM_VMM_H

#include "core.h"

CUresult sim_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option);
CUresult sim_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr wish,
                                 unsigned long long flags);
CUresult sim_cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *prop, unsigned long long flags);
CUresult sim_cuMemRelease(CUmemGenericAllocationHandle value);
CUresult sim_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle value, unsigned long long flags);
CUresult sim_cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult sim_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                            size_t count);
CUresult sim_cuMemGetAccess(unsigned long long *out, const CUmemLocation *location,
                            CUdeviceptr address);
CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                    CUmemGenericAllocationHandle value);
CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address);

#endif
