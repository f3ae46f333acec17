/* What every launcher needs: sizes of grids. */
#ifndef DEVICE_CUDA_KERNELS_LAUNCH_CUH
#define DEVICE_CUDA_KERNELS_LAUNCH_CUH

#include <cuda_runtime.h>

/* Builds with tests have fewer, so that loops come round. */
#ifndef SLUICE_GRID_BLOCKS
#define SLUICE_GRID_BLOCKS 8192
#endif

enum { BLOCK_THREADS = 256, GRID_BLOCKS = SLUICE_GRID_BLOCKS };

/* A grid of `blocks`, or of fewer that go on in a loop. */
static inline unsigned grid_of(int64_t blocks)
{
    return (unsigned)(blocks < (int64_t)GRID_BLOCKS ? blocks : (int64_t)GRID_BLOCKS);
}

/* The grid for `count` threads' work in a grid-stride loop. */
static inline unsigned grid_for(int64_t count)
{
    return grid_of((count + BLOCK_THREADS - 1) / BLOCK_THREADS);
}

#endif
