/* The bodies of the plug-in's kernels, compiled by the host's compiler and run under its
 * sanitizers.
 *
 * One thread of the device is one fiber.  Threads of a block run one after another, each until a
 * barrier or its end; blocks run one after another.  A launch ends before it returns.
 *
 * Under ThreadSanitizer every thread of a block has a fiber of its own, which it is told of, and
 * nothing but barriers orders the threads: what two of them touch without one between is a race,
 * in shared memory as in global memory.  Blocks are ordered, for they share what is __shared__.
 *
 * Threads: launches from several at once wait for each other.
 */
#ifndef TESTS_SIM_BODIES_H
#define TESTS_SIM_BODIES_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who runs: of the fiber that has the processor. */
struct bodies_self {
    uint3 thread, block;
    dim3 threads, blocks;
};
__attribute__((visibility("default"))) extern struct bodies_self bodies_self;

__attribute__((visibility("default"))) void bodies_run(dim3 blocks, dim3 threads,
                                                       void (*body)(void *arg), void *arg);
/* A barrier of the block.  A thread that has ended counts as having come. */
__attribute__((visibility("default"))) void bodies_barrier(void);

#ifdef __cplusplus
}
#endif
#endif
