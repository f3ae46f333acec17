/* NonZero, Compress, and the sum of counts that tells where each part's results begin. */
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/indexed.cuh"
#include "device/cuda/kernels/scan.cuh"
#include "device/cuda/kernels/select.h"

__device__ static inline bool is_wanted(const struct selected &s, int64_t i)
{
    switch (s.dtype) {
    case DTYPE_FLOAT:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
    case DTYPE_DOUBLE:
        return element_load<double>(s.dtype, s.in, i) != 0;
    default:
        return element_load<int64_t>(s.dtype, s.in, i) != 0;
    }
}

/* ---- counting ---- */

__global__ void __launch_bounds__(BLOCK_THREADS)
    count_kernel(const __grid_constant__ struct selected s)
{
    __shared__ int64_t shared[BLOCK_THREADS];

    for (int64_t part = blockIdx.x; part < s.parts; part += gridDim.x) {
        int64_t mine = 0, total;

        for (int i = (int)threadIdx.x; i < SELECT_PART; i += BLOCK_THREADS)
            if (part * SELECT_PART + i < s.count)
                mine += is_wanted(s, part * SELECT_PART + i);
        (void)block_scan(mine, shared, &total);
        if (threadIdx.x == 0)
            s.offsets[part] = total;
    }
}

/* One block. */
__global__ void __launch_bounds__(BLOCK_THREADS)
    scan_kernel(int64_t *counts, int64_t count, int64_t *found)
{
    __shared__ int64_t shared[BLOCK_THREADS];
    int64_t before = 0;

    for (int64_t first = 0; first < count; first += BLOCK_THREADS) {
        const int64_t i = first + threadIdx.x;
        const int64_t value = i < count ? counts[i] : 0;
        int64_t total;
        const int64_t sum = block_scan(value, shared, &total);

        if (i < count)
            counts[i] = before + sum - value;
        before += total;
    }
    if (threadIdx.x == 0) {
        counts[count] = before;
        *found = before;
    }
}

/* ---- writing ---- */

/* Calls put(element, its number among those that count), for all elements. */
template <class PUT> __device__ static inline void each_selected(const struct selected &s, PUT put)
{
    __shared__ int64_t shared[BLOCK_THREADS];

    for (int64_t part = blockIdx.x; part < s.parts; part += gridDim.x) {
        int64_t before = s.offsets[part];

        for (int first = 0; first < SELECT_PART; first += BLOCK_THREADS) {
            const int64_t i = part * SELECT_PART + first + threadIdx.x;
            const bool wanted = i < s.count && is_wanted(s, i);
            int64_t total;
            const int64_t rank = block_scan(wanted ? 1 : 0, shared, &total);

            if (wanted)
                put(i, before + rank - 1);
            before += total;
        }
    }
}

struct put_indices {
    const struct nonzero &n;
    int64_t total;

    __device__ void operator()(int64_t element, int64_t number) const
    {
        int64_t rest = element;

        for (uint32_t axis = n.rank; axis-- > 0; rest /= n.dims[axis])
            n.out[axis * total + number] = rest % n.dims[axis];
    }
};

__global__ void __launch_bounds__(BLOCK_THREADS)
    nonzero_kernel(const __grid_constant__ struct nonzero n)
{
    each_selected(n.selected, put_indices{n, n.selected.offsets[n.selected.parts]});
}

struct put_place {
    int64_t *places;

    __device__ void operator()(int64_t element, int64_t number) const
    {
        places[number] = element;
    }
};

__global__ void __launch_bounds__(BLOCK_THREADS)
    places_kernel(const __grid_constant__ struct compress c)
{
    each_selected(c.selected, put_place{c.places});
}

template <class U>
__global__ void __launch_bounds__(BLOCK_THREADS)
    compress_kernel(const __grid_constant__ struct compress c)
{
    const int64_t kept = c.selected.offsets[c.selected.parts];

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < c.outer * kept * c.slice;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t unit = i % c.slice, line = i / c.slice;
        const int64_t from = (line / kept * c.length + c.places[line % kept]) * c.slice + unit;

        ((U *)c.out)[i] = ((const U *)c.in)[from];
    }
}

extern "C" cudaError_t cuda_scan(int64_t *counts, int64_t count, int64_t *found,
                                 cudaStream_t stream)
{
    scan_kernel<<<1, BLOCK_THREADS, 0, stream>>>(counts, count, found);
    return cudaGetLastError();
}

static cudaError_t count(const struct selected *s, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;

    if (s->parts > 0) {
        count_kernel<<<grid_of(s->parts), BLOCK_THREADS, 0, stream>>>(*s);
        error = cudaGetLastError();
    }
    return error == cudaSuccess ? cuda_scan(s->offsets, s->parts, s->found, stream) : error;
}

extern "C" cudaError_t cuda_nonzero(const struct nonzero *nonzero, cudaStream_t stream)
{
    const int64_t parts = nonzero->selected.parts;
    const cudaError_t error = count(&nonzero->selected, stream);

    if (error != cudaSuccess || parts == 0)
        return error;
    nonzero_kernel<<<grid_of(parts), BLOCK_THREADS, 0, stream>>>(*nonzero);
    return cudaGetLastError();
}

static cudaError_t move_slices(const struct compress *compress, cudaStream_t stream)
{
    BY_BYTES(compress_kernel, compress->outer * compress->selected.count * compress->slice,
             compress)
}

extern "C" cudaError_t cuda_compress(const struct compress *compress, cudaStream_t stream)
{
    const int64_t parts = compress->selected.parts;
    cudaError_t error = count(&compress->selected, stream);

    if (error != cudaSuccess || parts == 0)
        return error;
    places_kernel<<<grid_of(parts), BLOCK_THREADS, 0, stream>>>(*compress);
    error = cudaGetLastError();
    return error == cudaSuccess ? move_slices(compress, stream) : error;
}
