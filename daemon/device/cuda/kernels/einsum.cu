/* Einsum of any equation, Col2Im, and filling: one output element a thread. */
#include "device/cuda/kernels/einsum.h"
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/walk.cuh"

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    einsum_kernel(const __grid_constant__ struct einsum e)
{
    for (GRID_STRIDE(i, e.out.count)) {
        T sum = 0;

        for (int64_t k = 0; k < e.sum.count; k++) {
            T product = 1;

            for (uint32_t n = 0; n < e.inputs; n++)
                product *= element_load<T>(e.dtype, e.in[n],
                                           walk_offset(e.out, e.out_strides[n], i) +
                                               walk_offset(e.sum, e.sum_strides[n], k));
            sum += product;
        }
        element_store<T>(e.dtype, e.to, i, sum);
    }
}

extern "C" cudaError_t cuda_einsum(const struct einsum *einsum, cudaStream_t stream)
{
    const unsigned blocks = grid_for(einsum->out.count);

    if (einsum->out.count == 0)
        return cudaSuccess;
    switch (einsum->type) {
    case PW_FLOAT:
        einsum_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*einsum);
        break;
    case PW_DOUBLE:
        einsum_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*einsum);
        break;
    case PW_SIGNED:
        einsum_kernel<int64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*einsum);
        break;
    default:
        einsum_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*einsum);
    }
    return cudaGetLastError();
}

/* ---- Col2Im: each cell looks for the blocks that cover it, in the order of their elements ---- */

/* The place whose block has its element `element` on cell `cell` of a plane; -1: none. */
__device__ static inline int64_t place_of(const struct fold &f, int64_t cell, int64_t element)
{
    int64_t place = 0, unit = 1;

    for (uint32_t i = f.axes; i-- > 0;) {
        const int64_t at = cell % f.image[i] + f.pad[i] - element % f.block[i] * f.dilation[i];

        if (at < 0 || at % f.stride[i] != 0 || at / f.stride[i] >= f.along[i])
            return -1;
        place += at / f.stride[i] * unit;
        unit *= f.along[i];
        cell /= f.image[i];
        element /= f.block[i];
    }
    return place;
}

__global__ void __launch_bounds__(BLOCK_THREADS) fold_kernel(const __grid_constant__ struct fold f)
{
    int64_t cells = 1;

    for (uint32_t i = 0; i < f.axes; i++)
        cells *= f.image[i];
    for (GRID_STRIDE(i, f.planes * cells)) {
        float sum = 0;

        for (int64_t element = 0; element < f.elements; element++) {
            const int64_t place = place_of(f, i % cells, element);

            if (place >= 0)
                sum += f.from[(i / cells * f.elements + element) * f.places + place];
        }
        f.to[i] = sum;
    }
}

extern "C" cudaError_t cuda_fold(const struct fold *fold, cudaStream_t stream)
{
    int64_t count = fold->planes;

    for (uint32_t i = 0; i < fold->axes; i++)
        count *= fold->image[i];
    if (count == 0)
        return cudaSuccess;
    fold_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*fold);
    return cudaGetLastError();
}

/* ---- filling ---- */

template <class E> __global__ void __launch_bounds__(BLOCK_THREADS) fill_kernel(const struct fill f)
{
    for (GRID_STRIDE(i, f.count))
        ((E *)f.to)[i] = (E)f.bits;
}

extern "C" cudaError_t cuda_fill(const struct fill *fill, cudaStream_t stream)
{
    const unsigned blocks = grid_for(fill->count);

    if (fill->count == 0)
        return cudaSuccess;
    if (fill->bytes == 1)
        fill_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*fill);
    else if (fill->bytes == 2)
        fill_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*fill);
    else if (fill->bytes == 4)
        fill_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*fill);
    else
        fill_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*fill);
    return cudaGetLastError();
}
