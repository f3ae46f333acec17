/* What the code that nvcc writes into an object calls: no header of the toolkit declares it for C.
 */
#ifndef SLUICE_TESTS_SIM_REGISTRATION_H
#define SLUICE_TESTS_SIM_REGISTRATION_H

#include <cuda_runtime_api.h>
#include <stddef.h>

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
char __cudaInitModule(void **module);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
                            int *warp);
void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external,
                       size_t bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *out_grid, dim3 *out_block, size_t *out_shared_bytes,
                                       void *out_stream);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream);

#endif
