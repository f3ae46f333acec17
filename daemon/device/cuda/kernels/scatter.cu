/* ScatterElements, ScatterND and MaxUnpool.
 *
 * Updates that meet must give what they give one after the other.  Where the last one stays, each
 * place first learns which update that is (a maximum of numbers, the same in any order), then only
 * that one writes.  Otherwise one thread makes the updates of a line.
 */
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/indexed.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/walk.cuh"

/* Of update `update` of line `line`: where it goes (-1: nowhere), in elements. */
__device__ static inline int64_t scatter_target(const struct scatter &s, int64_t line_index,
                                                int64_t update)
{
    int64_t index;

    if (s.index_step == 0) /* tuples, the same for all lines */
        return tuple_offset(s.tuples, update, s.fault);
    index = index_resolve(index_load(s.index_dtype, s.indices, line_index + update * s.index_step),
                          s.tuples.lengths[0], s.fault);
    return index < 0 ? -1 : index * s.tuples.strides[0];
}

template <class T> __device__ static inline T combine(uint32_t how, T a, T b)
{
    switch (how) {
    case SCATTER_BY_ADD:
        return a + b;
    case SCATTER_BY_MUL:
        return a * b;
    case SCATTER_BY_MAX:
        return b > a || b != b ? b : a;
    case SCATTER_BY_MIN:
        return b < a || b != b ? b : a;
    default:
        return b;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    scatter_lines_kernel(const __grid_constant__ struct scatter s)
{
    for (GRID_STRIDE(line, s.lines.count)) {
        const int64_t to = walk_offset(s.lines, s.line_to, line);
        const int64_t from = walk_offset(s.lines, s.line_from, line);
        const int64_t index = walk_offset(s.lines, s.line_index, line);

        for (int64_t u = 0; u < s.updates; u++) {
            const int64_t target = scatter_target(s, index, u);

            if (target < 0)
                continue;
            element_store<T>(s.dtype, s.to, to + target,
                             combine(s.how, element_load<T>(s.dtype, s.to, to + target),
                                     element_load<T>(s.dtype, s.from, from + u * s.update_step)));
        }
    }
}

/* ---- the last one stays ---- */

__global__ void __launch_bounds__(BLOCK_THREADS)
    scatter_find_kernel(const __grid_constant__ struct scatter s)
{
    for (GRID_STRIDE(i, s.lines.count * s.updates)) {
        const int64_t line = i % s.lines.count, update = i / s.lines.count;
        const int64_t target = scatter_target(s, walk_offset(s.lines, s.line_index, line), update);

        if (target >= 0)
            atomicMax(s.last + walk_offset(s.lines, s.line_to, line) + target, (int)update);
    }
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    scatter_put_kernel(const __grid_constant__ struct scatter s)
{
    for (GRID_STRIDE(i, s.lines.count * s.updates)) {
        const int64_t line = i % s.lines.count, update = i / s.lines.count;
        const int64_t target = scatter_target(s, walk_offset(s.lines, s.line_index, line), update);
        const int64_t to = walk_offset(s.lines, s.line_to, line) + target;

        if (target >= 0 && s.last[to] == (int)update)
            ((E *)s.to)[to] =
                ((const E *)
                     s.from)[walk_offset(s.lines, s.line_from, line) + update * s.update_step];
    }
}

static cudaError_t scatter_last(const struct scatter *scatter, cudaStream_t stream)
{
    const int64_t count = scatter->lines.count * scatter->updates;
    cudaError_t error =
        cudaMemsetAsync(scatter->last, 0xFF, (size_t)scatter->count * sizeof(int32_t), stream);

    if (error != cudaSuccess)
        return error;
    scatter_find_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*scatter);
    BY_BYTES(scatter_put_kernel, count, scatter)
}

extern "C" cudaError_t cuda_scatter(const struct scatter *scatter, cudaStream_t stream)
{
    const unsigned blocks = grid_for(scatter->lines.count);

    if (scatter->lines.count * scatter->updates == 0)
        return cudaSuccess;
    if (scatter->how == SCATTER_BY_LAST)
        return scatter_last(scatter, stream);
    switch (scatter->type) {
    case PW_FLOAT:
        scatter_lines_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*scatter);
        break;
    case PW_DOUBLE:
        scatter_lines_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*scatter);
        break;
    case PW_SIGNED:
        scatter_lines_kernel<int64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*scatter);
        break;
    default:
        scatter_lines_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*scatter);
    }
    return cudaGetLastError();
}
