/* NonMaxSuppression, a block a class of an image.
 *
 * A thread keeps the candidates it found as keys, of score and place, in slots of its own, so the
 * block meets only to agree on the best.  What the best overlaps is dropped in the same pass that
 * looks for the next one.  Areas and their quotient are rounded step by step, as on the CPU:
 * whether two boxes overlap must not depend on where that is asked.
 */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/nms.h"
#include "device/cuda/kernels/select.h"

static_assert((int)NMS_THREADS == (int)BLOCK_THREADS, "slots are for the threads of a block");

struct box {
    float top, left, bottom, right, area;
};

/* Corners may come in any order. */
__device__ static inline struct box load_box(const struct nms &n, const float *boxes, int64_t i)
{
    const float *v = boxes + 4 * i;
    struct box box;

    if (n.centered != 0) { /* x, y, width, height */
        box.top = __fsub_rn(v[1], v[3] / 2);
        box.left = __fsub_rn(v[0], v[2] / 2);
        box.bottom = __fadd_rn(v[1], v[3] / 2);
        box.right = __fadd_rn(v[0], v[2] / 2);
    } else {
        box.top = v[0] < v[2] ? v[0] : v[2];
        box.bottom = v[0] < v[2] ? v[2] : v[0];
        box.left = v[1] < v[3] ? v[1] : v[3];
        box.right = v[1] < v[3] ? v[3] : v[1];
    }
    box.area = __fmul_rn(__fsub_rn(box.bottom, box.top), __fsub_rn(box.right, box.left));
    return box;
}

__device__ static inline bool overlaps(const struct box &a, const struct box &b, float threshold)
{
    const float top = a.top > b.top ? a.top : b.top;
    const float left = a.left > b.left ? a.left : b.left;
    const float bottom = a.bottom < b.bottom ? a.bottom : b.bottom;
    const float right = a.right < b.right ? a.right : b.right;
    float common, both;

    if (bottom <= top || right <= left || a.area <= 0 || b.area <= 0)
        return false;
    common = __fmul_rn(__fsub_rn(bottom, top), __fsub_rn(right, left));
    both = __fsub_rn(__fadd_rn(a.area, b.area), common);
    return both > 0 && __fdiv_rn(common, both) > threshold;
}

/* Greater for greater scores, and for earlier boxes of one score; never 0.  No NaN comes here. */
__device__ static inline uint64_t key_of(float score, int64_t box)
{
    const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f)); /* both zeros are one */
    const uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;

    return (uint64_t)order << 32 | (0xFFFFFFFFu - (uint32_t)box);
}

__device__ static inline int64_t box_of(uint64_t key)
{
    return (int64_t)(0xFFFFFFFFu - (uint32_t)key);
}

/* The greatest of all threads', for each of them. */
__device__ static inline uint64_t greatest(uint64_t key, uint64_t (&shared)[BLOCK_THREADS])
{
    shared[threadIdx.x] = key;
    __syncthreads();
    for (unsigned step = BLOCK_THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step && shared[threadIdx.x + step] > shared[threadIdx.x])
            shared[threadIdx.x] = shared[threadIdx.x + step];
        __syncthreads();
    }
    key = shared[0];
    __syncthreads();
    return key;
}

/* A thread's candidates of one class, and the best of them. */
struct candidates {
    uint64_t *keys; /* BLOCK_THREADS apart */
    int64_t count;
    uint64_t best; /* 0: there is none */

    __device__ void add(uint64_t key)
    {
        keys[count++ * BLOCK_THREADS] = key;
        best = key > best ? key : best;
    }
};

__device__ static inline void collect(const struct nms &n, const float *scores,
                                      struct candidates &candidates)
{
    candidates.count = 0;
    candidates.best = 0;
    for (int64_t i = threadIdx.x; i < n.boxes; i += BLOCK_THREADS) {
        const float score = scores[i];

        if (score == score && (n.least == nullptr || score > *n.least))
            candidates.add(key_of(score, i));
    }
}

/* Without `chosen` and what it overlaps. */
__device__ static inline void thin(const struct nms &n, const float *boxes, uint64_t chosen,
                                   float overlap, struct candidates &candidates)
{
    const struct box box = load_box(n, boxes, box_of(chosen));
    const int64_t count = candidates.count;

    candidates.count = 0;
    candidates.best = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t key = candidates.keys[i * BLOCK_THREADS];

        if (key != chosen && !overlaps(load_box(n, boxes, box_of(key)), box, overlap))
            candidates.add(key);
    }
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    suppress_kernel(const __grid_constant__ struct nms n)
{
    __shared__ uint64_t shared[BLOCK_THREADS];
    const float overlap = n.overlap != nullptr ? *n.overlap : 0.0f;
    const int64_t asked = n.most != nullptr ? *n.most : 0;
    const int64_t most = asked < n.room ? asked : n.room;

    for (int64_t line = blockIdx.x; line < n.images * n.classes; line += gridDim.x) {
        const float *boxes = n.box_data + line / n.classes * n.boxes * 4;
        struct candidates candidates = {n.candidates + blockIdx.x * n.slots + threadIdx.x, 0, 0};
        int64_t kept = 0;

        collect(n, n.score_data + line * n.boxes, candidates);
        while (kept < most) {
            const uint64_t chosen = greatest(candidates.best, shared);

            if (chosen == 0)
                break;
            if (threadIdx.x == 0)
                n.kept[line * n.room + kept] = (int32_t)box_of(chosen);
            kept++;
            thin(n, boxes, chosen, overlap, candidates);
        }
        if (threadIdx.x == 0)
            n.counts[line] = kept;
    }
}

/* counts[line] is where a line's boxes begin by now. */
__global__ void __launch_bounds__(BLOCK_THREADS) gather_kernel(const __grid_constant__ struct nms n)
{
    for (int64_t line = blockIdx.x; line < n.images * n.classes; line += gridDim.x) {
        const int64_t first = n.counts[line], count = n.counts[line + 1] - first;

        for (int64_t i = threadIdx.x; i < count; i += BLOCK_THREADS) {
            int64_t *out = n.out + (first + i) * 3;

            out[0] = line / n.classes;
            out[1] = line % n.classes;
            out[2] = n.kept[line * n.room + i];
        }
    }
}

extern "C" cudaError_t cuda_nms(const struct nms *nms, cudaStream_t stream)
{
    const int64_t lines = nms->images * nms->classes;
    cudaError_t error = cudaSuccess;

    if (lines > 0) {
        suppress_kernel<<<nms->blocks, BLOCK_THREADS, 0, stream>>>(*nms);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        error = cuda_scan(nms->counts, lines, nms->found, stream);
    if (error != cudaSuccess || lines == 0)
        return error;
    gather_kernel<<<grid_of(lines), BLOCK_THREADS, 0, stream>>>(*nms);
    return cudaGetLastError();
}
