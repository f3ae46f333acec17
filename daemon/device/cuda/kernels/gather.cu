/* Elements picked by index, and those made of a few numbers. */
#include "device/cuda/kernels/activate.cuh"
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/indexed.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/walk.cuh"

/* ---- Gather ---- */

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    gather_kernel(const __grid_constant__ struct gather g)
{
    for (GRID_STRIDE(i, g.outer * g.picks * g.slice)) {
        const int64_t row = i / g.slice, at = i % g.slice;
        const int64_t index =
            index_resolve(index_load(g.index_dtype, g.indices, row % g.picks), g.length, g.fault);

        if (index >= 0)
            ((E *)g.to)[i] = ((const E *)g.from)[(row / g.picks * g.length + index) * g.slice + at];
    }
}

extern "C" cudaError_t cuda_gather(const struct gather *gather, cudaStream_t stream)
{
    const int64_t count = gather->outer * gather->picks * gather->slice;

    BY_BYTES(gather_kernel, count, gather)
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    gather_elements_kernel(const __grid_constant__ struct gather_elements g)
{
    for (GRID_STRIDE(i, g.walk.count)) {
        const int64_t index =
            index_resolve(index_load(g.index_dtype, g.indices, i), g.length, g.fault);

        if (index >= 0)
            ((E *)g.to)[i] =
                ((const E *)g.from_data)[walk_offset(g.walk, g.from, i) + index * g.stride];
    }
}

extern "C" cudaError_t cuda_gather_elements(const struct gather_elements *gather,
                                            cudaStream_t stream)
{
    BY_BYTES(gather_elements_kernel, gather->walk.count, gather)
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    gather_nd_kernel(const __grid_constant__ struct gather_nd g)
{
    for (GRID_STRIDE(i, g.batches * g.picks * g.slice)) {
        const int64_t pick = i / g.slice;
        const int64_t offset = tuple_offset(g.tuples, pick, g.fault);

        if (offset >= 0)
            ((E *)g.to)[i] =
                ((const E *)g.from)[pick / g.picks * g.batch_stride + offset + i % g.slice];
    }
}

extern "C" cudaError_t cuda_gather_nd(const struct gather_nd *gather, cudaStream_t stream)
{
    const int64_t count = gather->batches * gather->picks * gather->slice;

    BY_BYTES(gather_nd_kernel, count, gather)
}

/* ---- OneHot ---- */

/* Indices of any type, cut towards zero; -1 is none. */
__device__ static inline int64_t hot_index(const struct one_hot &o, int64_t i)
{
    int64_t index;

    switch (o.index_dtype) {
    case DTYPE_FLOAT:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
    case DTYPE_DOUBLE: {
        const double real = element_load<double>(o.index_dtype, o.indices, i);

        if (!(real > -(double)o.depth - 1 && real < (double)o.depth))
            return -1;
        index = (int64_t)real;
        break;
    }
    case DTYPE_UINT64: {
        const uint64_t wide = ((const uint64_t *)o.indices)[i];

        return wide < (uint64_t)o.depth ? (int64_t)wide : -1;
    }
    default:
        index = element_load<int64_t>(o.index_dtype, o.indices, i);
        if (index < -o.depth)
            return -1;
    }
    index += index < 0 ? o.depth : 0;
    return index >= 0 && index < o.depth ? index : -1;
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    one_hot_kernel(const __grid_constant__ struct one_hot o)
{
    for (GRID_STRIDE(i, o.outer * o.depth * o.inner)) {
        const int64_t inner = i % o.inner, outer = i / o.inner / o.depth;
        const bool is_on = hot_index(o, outer * o.inner + inner) == i / o.inner % o.depth;

        ((E *)o.to)[i] = ((const E *)o.values)[is_on];
    }
}

extern "C" cudaError_t cuda_one_hot(const struct one_hot *one_hot, cudaStream_t stream)
{
    const int64_t count = one_hot->outer * one_hot->depth * one_hot->inner;

    BY_BYTES(one_hot_kernel, count, one_hot)
}

/* ---- ReverseSequence ---- */

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    reverse_sequence_kernel(const __grid_constant__ struct reverse_sequence r)
{
    for (GRID_STRIDE(i, r.times * r.batches * r.slice)) {
        const int64_t row = i / r.slice;
        const int64_t time = r.time_first ? row / r.batches : row % r.times;
        const int64_t batch = r.time_first ? row % r.batches : row / r.times;
        const int64_t length = r.lengths[batch];
        const int64_t from = time < length ? length - 1 - time : time;

        if (length < 0 || length > r.times)
            *r.fault = 1;
        else
            ((E *)r.to)[i] =
                ((const E *)
                     r.from)[(r.time_first ? from * r.batches + batch : batch * r.times + from) *
                                 r.slice +
                             i % r.slice];
    }
}

extern "C" cudaError_t cuda_reverse_sequence(const struct reverse_sequence *reverse,
                                             cudaStream_t stream)
{
    const int64_t count = reverse->times * reverse->batches * reverse->slice;

    BY_BYTES(reverse_sequence_kernel, count, reverse)
}

/* ---- Range ---- */

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    sequence_kernel(const __grid_constant__ struct sequence s)
{
    const T start = element_load<T>(s.dtype, s.start, 0),
            step = element_load<T>(s.dtype, s.step, 0);

    for (GRID_STRIDE(i, s.count))
        element_store<T>(s.dtype, s.to, i, start + (T)i * step);
}

extern "C" cudaError_t cuda_sequence(const struct sequence *sequence, cudaStream_t stream)
{
    const unsigned blocks = grid_for(sequence->count);

    if (sequence->count == 0)
        return cudaSuccess;
    switch (sequence->dtype) {
    case DTYPE_FLOAT:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
        sequence_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*sequence);
        break;
    case DTYPE_DOUBLE:
        sequence_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*sequence);
        break;
    default:
        sequence_kernel<int64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*sequence);
    }
    return cudaGetLastError();
}

/* ---- EyeLike, Trilu ---- */

__global__ void __launch_bounds__(BLOCK_THREADS)
    eye_kernel(const __grid_constant__ struct triangle t)
{
    for (GRID_STRIDE(i, t.count))
        element_store<int64_t>(t.dtype, t.to, i, i % t.columns - i / t.columns == t.k);
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    triangle_kernel(const __grid_constant__ struct triangle t)
{
    int64_t k = t.k_data != nullptr ? *t.k_data : t.k;

    k = k < -t.rows - t.columns ? -t.rows - t.columns : k; /* what is beyond overflows */
    k = k > t.rows + t.columns ? t.rows + t.columns : k;
    for (GRID_STRIDE(i, t.count)) {
        const int64_t beyond = i % t.columns - i / t.columns % t.rows - k;
        const bool stays = t.how == TRIANGLE_UPPER ? beyond >= 0 : beyond <= 0;

        ((E *)t.to)[i] = stays ? ((const E *)t.from)[i] : (E)0;
    }
}

extern "C" cudaError_t cuda_triangle(const struct triangle *triangle, cudaStream_t stream)
{
    const unsigned blocks = grid_for(triangle->count);

    if (triangle->count == 0)
        return cudaSuccess;
    if (triangle->how == TRIANGLE_EYE)
        eye_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*triangle);
    else if (triangle->bytes == 1)
        triangle_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*triangle);
    else if (triangle->bytes == 2)
        triangle_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*triangle);
    else if (triangle->bytes == 4)
        triangle_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*triangle);
    else
        triangle_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*triangle);
    return cudaGetLastError();
}

/* ---- Embedding ---- */

__global__ void __launch_bounds__(BLOCK_THREADS)
    embedding_kernel(const __grid_constant__ struct embedding e)
{
    for (GRID_STRIDE(i, e.count * e.columns)) {
        const int64_t column = i % e.columns;
        int64_t id = index_load(e.index_dtype, e.ids, i / e.columns);
        float value = 0;

        if (id < 0 && e.wraps)
            id += e.rows;
        if (id >= 0 && id < e.rows)
            value = element_load<float>(e.dtype, e.b, id * e.row_step + column * e.column_step) *
                    (float)e.scale;
        if (e.bias != nullptr)
            value += element_load<float>(e.dtype, e.bias, column);
        element_store<float>(e.dtype, e.to, i, activate(e.act, value, e.act_a, e.act_b));
    }
}

extern "C" cudaError_t cuda_embedding(const struct embedding *embedding, cudaStream_t stream)
{
    const int64_t count = embedding->count * embedding->columns;

    if (count == 0)
        return cudaSuccess;
    embedding_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*embedding);
    return cudaGetLastError();
}
