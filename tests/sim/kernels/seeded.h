/* Kernels with a mistake sown in (bug != 0) and without: each launches on a stream and returns the
 * error of the launch.  Sizes are the smallest that show the mistake. */
#ifndef SLUICE_TESTS_SIM_SEEDED_H
#define SLUICE_TESTS_SIM_SEEDED_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[block] = sum of in[256 block .. + 256).  bug: a barrier is missing. */
int seeded_block_sum(float *out, const float *in, int blocks, int bug, cudaStream_t stream);
/* The same through the lanes of one warp and shared memory.  bug: no __syncwarp(). */
int seeded_warp_sum(float *out, const float *in, int bug, cudaStream_t stream);
/* out[i] = 2 in[i].  bug 1 writes one too many, 2 reads one too many. */
int seeded_double(float *out, const float *in, int n, int bug, cudaStream_t stream);
/* bug: the barrier stands where only some threads come. */
int seeded_divergent(float *out, const float *in, int n, int bug, cudaStream_t stream);
/* out = in transposed, rows x columns.  bug: out has the stride of in. */
int seeded_transpose(float *out, const float *in, int rows, int columns, int bug,
                     cudaStream_t stream);
/* Reads in as float4.  bug: 4 bytes off. */
int seeded_vector(float *out, const float *in, int n, int bug, cudaStream_t stream);
/* Shared memory is read before anybody wrote it.  bug: a thread's cell is skipped. */
int seeded_uninitialised(int *out, const int *in, int bug, cudaStream_t stream);
/* out[index[i]] = i; the kernel itself is right: whether index was written is the caller's. */
int seeded_scatter(int *out, const int *index, int n, cudaStream_t stream);
/* Copies in to out through cp.async, twice.  bug 1: no wait; 2: no barrier behind it; 3: none
 * before the next copy; 4: it waits for all but the newest group. */
int seeded_async(float *out, const float *in, int bug, cudaStream_t stream);
/* A shuffle.  bug 1: half of the lanes never come; 2: a lane is not in its own mask. */
int seeded_shuffle(int *out, int bug, cudaStream_t stream);
/* Counts in shared memory.  bug: without atomics. */
int seeded_count(int *out, const int *in, int bug, cudaStream_t stream);
/* Stores more dynamic shared memory than it has.  bug: one float more. */
int seeded_dynamic(float *out, int n, int bug, cudaStream_t stream);
/* Never ends. */
int seeded_endless(int *out, cudaStream_t stream);
/* out[i] = in[i] + 1. */
int plain_increment(int *out, const int *in, int n, cudaStream_t stream);
/* assert(in[0] == 0), trap. */
int plain_assert(const int *in, cudaStream_t stream);
int plain_trap(const int *in, cudaStream_t stream);
/* Threads a block and bytes of dynamic shared memory as asked, for the limits. */
int plain_shape(int *out, int blocks_y, int threads, int shared_bytes, cudaStream_t stream);
int plain_allow_shared(int bytes);
int plain_attributes(int *out_static_shared, int *out_max_threads);

#ifdef __cplusplus
}
#endif
#endif
