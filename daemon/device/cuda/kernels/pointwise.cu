/* A thread takes every gridDim-th element, so that any count fits any grid. */
#include "device/cuda/kernels/pointwise.h"

constexpr int64_t BLOCK = 256, MAX_BLOCKS = 4096;

template <int function> static __global__ void pointwise(struct pointwise args)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < args.count; i += step) {
        float a = args.a[i];

        if (function == POINTWISE_RELU)
            args.out[i] = a > 0 || a != a ? a : 0;
        else
            args.out[i] = a + args.b[i];
    }
}

extern "C" cudaError_t cuda_pointwise(const struct pointwise *args, cudaStream_t stream)
{
    int64_t blocks = (args->count + BLOCK - 1) / BLOCK;
    unsigned grid = (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);

    if (args->function == POINTWISE_RELU)
        pointwise<POINTWISE_RELU><<<grid, BLOCK, 0, stream>>>(*args);
    else
        pointwise<POINTWISE_ADD><<<grid, BLOCK, 0, stream>>>(*args);
    return cudaGetLastError();
}
