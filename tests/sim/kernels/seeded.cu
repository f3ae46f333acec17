#include "seeded.h"

#include <assert.h>
#include <cuda_pipeline.h>

template <int BUG> __global__ void block_sum(float *out, const float *in)
{
    __shared__ float part[256];
    unsigned t = threadIdx.x;

    part[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned step = 128; step > 0; step /= 2) {
        if (t < step)
            part[t] += part[t + step];
        if (!BUG || step != 64)
            __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

template <int BUG> __global__ void warp_sum(float *out, const float *in)
{
    __shared__ volatile float part[32];
    unsigned t = threadIdx.x;

    part[t] = in[t];
    __syncwarp();
    for (unsigned step = 16; step > 0; step /= 2) {
        float more = part[(t + step) % 32];
        __syncwarp();
        if (t < step)
            part[t] = part[t] + more;
        if (!BUG)
            __syncwarp();
    }
    if (t == 0)
        out[0] = part[0];
}

template <int BUG> __global__ void doubled(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (BUG == 1 ? i <= n : i < n)
        out[i] = 2 * in[BUG == 2 ? i + 1 : i < n ? i : 0];
}

template <int BUG> __global__ void divergent(float *out, const float *in, int n)
{
    __shared__ float cell[256];
    int t = threadIdx.x;

    cell[t] = t < n ? in[t] : 0;
    if (BUG) {
        if (t < n)
            __syncthreads();
        else
            cell[t] = 1;
    }
    __syncthreads();
    if (t < n)
        out[t] = cell[n - 1 - t];
}

template <int BUG> __global__ void transpose(float *out, const float *in, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;

    if (x < columns && y < rows)
        out[x * (BUG ? columns : rows) + y] = in[y * columns + x];
}

template <int BUG> __global__ void vector_read(float *out, const float *in, int n)
{
    int i = threadIdx.x;

    if (4 * i < n) {
        float4 v = *reinterpret_cast<const float4 *>(in + 4 * i + BUG);
        out[i] = v.x + v.y + v.z + v.w;
    }
}

template <int BUG> __global__ void uninitialised(int *out, const int *in)
{
    __shared__ int cell[64];
    int t = threadIdx.x;

    if (!BUG || t != 7)
        cell[t] = in[t];
    __syncthreads();
    if (cell[63 - t] > 0)
        out[t] = 1;
    else
        out[t] = 0;
}

__global__ void scatter(int *out, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        out[index[i]] = i;
}

template <int BUG> __global__ void async_copy(float *out, const float *in)
{
    __shared__ float4 cell[64];
    int t = threadIdx.x;

    for (int turn = 0; turn < 2; turn++) {
        __pipeline_memcpy_async(&cell[t], in + 4 * t, sizeof(float4));
        __pipeline_commit();
        if (BUG != 1)
            __pipeline_wait_prior(BUG == 4 ? 1 : 0);
        if (BUG != 2)
            __syncthreads();
        float4 v = cell[63 - t];
        out[t] = v.x + v.w > 0 ? v.x : v.y;
        if (BUG != 3)
            __syncthreads();
    }
}

template <int BUG> __global__ void shuffle(int *out)
{
    int t = threadIdx.x;
    int v = t;

    if (BUG == 1) {
        if (t < 16)
            v = __shfl_xor_sync(~0u, v, 1);
    } else {
        v = __shfl_xor_sync(BUG == 2 ? 0xFFFF : ~0u, v, 1);
    }
    out[t] = v;
}

template <int BUG> __global__ void count(int *out, const int *in)
{
    __shared__ int cells[4];
    int t = threadIdx.x;

    if (t < 4)
        cells[t] = 0;
    __syncthreads();
    if (BUG)
        cells[in[t] & 3] += 1;
    else
        atomicAdd(&cells[in[t] & 3], 1);
    __syncthreads();
    if (t < 4)
        out[t] = cells[t];
}

template <int BUG> __global__ void dynamic(float *out, int n)
{
    extern __shared__ float cells[];
    int t = threadIdx.x;

    cells[BUG ? t + 1 : t] = (float)t;
    __syncthreads();
    out[t] = cells[n - 1 - t + (BUG ? 1 : 0)];
}

__global__ void endless(volatile int *out)
{
    while (out[0] == 0)
        ;
}

__global__ void increment(int *out, const int *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        out[i] = in[i] + 1;
}

__global__ void asserts(const int *in)
{
    assert(in[0] == 0);
}

__global__ void traps(const int *in)
{
    if (in[0] != 0)
        __trap();
}

__global__ void __launch_bounds__(512) shape(int *out)
{
    extern __shared__ float cells[];

    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0)
        out[0] = (int)blockDim.x;
    if (out == nullptr)
        cells[0] = 1;
}

#define BOTH(kernel, grid, block, shared, ...)                                                     \
    do {                                                                                           \
        if (bug)                                                                                   \
            kernel<1><<<grid, block, shared, stream>>>(__VA_ARGS__);                               \
        else                                                                                       \
            kernel<0><<<grid, block, shared, stream>>>(__VA_ARGS__);                               \
        return cudaGetLastError();                                                                 \
    } while (0)

int seeded_block_sum(float *out, const float *in, int blocks, int bug, cudaStream_t stream)
{
    BOTH(block_sum, blocks, 256, 0, out, in);
}

int seeded_warp_sum(float *out, const float *in, int bug, cudaStream_t stream)
{
    BOTH(warp_sum, 1, 32, 0, out, in);
}

int seeded_double(float *out, const float *in, int n, int bug, cudaStream_t stream)
{
    int blocks = n / 64 + 1;

    if (bug == 2)
        doubled<2><<<blocks, 64, 0, stream>>>(out, in, n);
    else
        BOTH(doubled, blocks, 64, 0, out, in, n);
    return cudaGetLastError();
}

int seeded_divergent(float *out, const float *in, int n, int bug, cudaStream_t stream)
{
    BOTH(divergent, 1, 256, 0, out, in, n);
}

int seeded_transpose(float *out, const float *in, int rows, int columns, int bug,
                     cudaStream_t stream)
{
    dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    BOTH(transpose, grid, dim3(16, 16), 0, out, in, rows, columns);
}

int seeded_vector(float *out, const float *in, int n, int bug, cudaStream_t stream)
{
    BOTH(vector_read, 1, 64, 0, out, in, n);
}

int seeded_uninitialised(int *out, const int *in, int bug, cudaStream_t stream)
{
    BOTH(uninitialised, 1, 64, 0, out, in);
}

int seeded_scatter(int *out, const int *index, int n, cudaStream_t stream)
{
    scatter<<<(n + 63) / 64, 64, 0, stream>>>(out, index, n);
    return cudaGetLastError();
}

int seeded_async(float *out, const float *in, int bug, cudaStream_t stream)
{
    switch (bug) {
    case 2:
        async_copy<2><<<1, 64, 0, stream>>>(out, in);
        return cudaGetLastError();
    case 3:
        async_copy<3><<<1, 64, 0, stream>>>(out, in);
        return cudaGetLastError();
    case 4:
        async_copy<4><<<1, 64, 0, stream>>>(out, in);
        return cudaGetLastError();
    default:
        BOTH(async_copy, 1, 64, 0, out, in);
    }
}

int seeded_shuffle(int *out, int bug, cudaStream_t stream)
{
    if (bug == 2) {
        shuffle<2><<<1, 32, 0, stream>>>(out);
        return cudaGetLastError();
    }
    BOTH(shuffle, 1, 32, 0, out);
}

int seeded_count(int *out, const int *in, int bug, cudaStream_t stream)
{
    BOTH(count, 1, 128, 0, out, in);
}

int seeded_dynamic(float *out, int n, int bug, cudaStream_t stream)
{
    BOTH(dynamic, 1, n, n * sizeof(float), out, n);
}

int seeded_endless(int *out, cudaStream_t stream)
{
    endless<<<1, 32, 0, stream>>>(out);
    return cudaGetLastError();
}

int plain_increment(int *out, const int *in, int n, cudaStream_t stream)
{
    increment<<<(n + 127) / 128, 128, 0, stream>>>(out, in, n);
    return cudaGetLastError();
}

int plain_assert(const int *in, cudaStream_t stream)
{
    asserts<<<1, 1, 0, stream>>>(in);
    return cudaGetLastError();
}

int plain_trap(const int *in, cudaStream_t stream)
{
    traps<<<1, 32, 0, stream>>>(in);
    return cudaGetLastError();
}

int plain_shape(int *out, int blocks_y, int threads, int shared_bytes, cudaStream_t stream)
{
    shape<<<dim3(1, blocks_y), threads, shared_bytes, stream>>>(out);
    return cudaGetLastError();
}

int plain_allow_shared(int bytes)
{
    return cudaFuncSetAttribute(shape, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

int plain_attributes(int *out_static_shared, int *out_max_threads)
{
    cudaFuncAttributes attributes;
    int error = cudaFuncGetAttributes(&attributes, block_sum<0>);

    *out_static_shared = (int)attributes.sharedSizeBytes;
    *out_max_threads = attributes.maxThreadsPerBlock;
    return error;
}
