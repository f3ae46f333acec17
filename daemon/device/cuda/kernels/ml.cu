/* Linear models: a thread a score, then a thread a row. */
#include <math.h>

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/ml.h"

__device__ static inline int64_t first_of_grid()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ static inline int64_t grid_step()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Rounded twice, as on the CPU. */
__device__ static inline double add_product(double sum, double a, double b)
{
    return __dadd_rn(sum, __dmul_rn(a, b));
}

__global__ void __launch_bounds__(BLOCK_THREADS) scale_kernel(const __grid_constant__ ml_scaling s)
{
    for (int64_t i = first_of_grid(); i < s.x.rows * s.x.features; i += grid_step()) {
        const int64_t feature = i % s.x.features;
        const float x = (float)element_load<double>(s.x.dtype, s.x.data, i);

        s.out[i] = (x - s.offset[feature]) * s.scale[feature];
    }
}

__device__ static inline double norm_of(const ml_norming &n, int64_t first)
{
    double sum = 0, top = -INFINITY;

    for (int64_t i = 0; i < n.x.features; i++) {
        const double x = element_load<double>(n.x.dtype, n.x.data, first + i);

        top = x > top ? x : top;
        sum = n.norm == ML_NORM_L1 ? sum + fabs(x) : add_product(sum, x, x);
    }
    return n.norm == ML_NORM_MAX ? top : n.norm == ML_NORM_L1 ? sum : sqrt(sum);
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    normalize_rows_kernel(const __grid_constant__ ml_norming n)
{
    for (int64_t row = first_of_grid(); row < n.x.rows; row += grid_step()) {
        const int64_t first = row * n.x.features;
        const double norm = norm_of(n, first);

        for (int64_t i = first; i < first + n.x.features; i++) {
            const double x = element_load<double>(n.x.dtype, n.x.data, i);

            n.out[i] = (float)(norm != 0 ? x / norm : x);
        }
    }
}

__global__ void __launch_bounds__(BLOCK_THREADS) score_kernel(const __grid_constant__ ml_linear l)
{
    for (int64_t i = first_of_grid(); i < l.x.rows * l.targets; i += grid_step()) {
        const int64_t row = i / l.targets, target = i % l.targets;
        const float *by = l.coefficients + target * l.x.features;
        double sum = l.intercepts != nullptr ? (double)l.intercepts[target] : 0.0;

        for (int64_t k = 0; k < l.x.features; k++)
            sum =
                add_product(sum, element_load<double>(l.x.dtype, l.x.data, row * l.x.features + k),
                            (double)by[k]);
        l.scores[i] = sum;
    }
}

__device__ static inline int64_t best_of(const double *scores, int64_t count)
{
    int64_t best = 0;

    for (int64_t i = 1; i < count; i++)
        if (scores[i] > scores[best])
            best = i;
    return best;
}

/* With `keep_zeros` a score of zero stays zero and does not count. */
__device__ static inline void soften(double *scores, int64_t count, bool keep_zeros)
{
    double top = -INFINITY, sum = 0;

    for (int64_t i = 0; i < count; i++)
        top = scores[i] > top ? scores[i] : top;
    for (int64_t i = 0; i < count; i++) {
        if (keep_zeros && fabs(scores[i]) <= 1e-7) {
            scores[i] *= exp(-top);
            continue;
        }
        scores[i] = exp(scores[i] - top);
        sum += scores[i];
    }
    for (int64_t i = 0; i < count && sum > 0; i++)
        scores[i] /= sum;
}

__global__ void __launch_bounds__(BLOCK_THREADS) answer_kernel(const __grid_constant__ ml_linear l)
{
    for (int64_t row = first_of_grid(); row < l.x.rows; row += grid_step()) {
        double *scores = l.scores + row * l.targets;

        if (l.names != nullptr)
            l.labels[row] = l.names[best_of(scores, l.targets)];
        if (l.out == nullptr)
            continue;
        if (l.post == ML_POST_SOFTMAX || l.post == ML_POST_SOFTMAX_ZERO)
            soften(scores, l.targets, l.post == ML_POST_SOFTMAX_ZERO);
        for (int64_t i = 0; i < l.targets; i++)
            l.out[row * l.targets + i] =
                (float)(l.post == ML_POST_LOGISTIC ? 1 / (1 + exp(-scores[i])) : scores[i]);
    }
}

extern "C" cudaError_t cuda_ml_scale(const struct ml_scaling *s, cudaStream_t stream)
{
    if (s->x.rows * s->x.features == 0)
        return cudaSuccess;
    scale_kernel<<<grid_for(s->x.rows * s->x.features), BLOCK_THREADS, 0, stream>>>(*s);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_ml_normalize(const struct ml_norming *n, cudaStream_t stream)
{
    if (n->x.rows * n->x.features == 0)
        return cudaSuccess;
    normalize_rows_kernel<<<grid_for(n->x.rows), BLOCK_THREADS, 0, stream>>>(*n);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_ml_linear(const struct ml_linear *l, cudaStream_t stream)
{
    if (l->x.rows * l->targets == 0)
        return cudaSuccess;
    score_kernel<<<grid_for(l->x.rows * l->targets), BLOCK_THREADS, 0, stream>>>(*l);
    answer_kernel<<<grid_for(l->x.rows), BLOCK_THREADS, 0, stream>>>(*l);
    return cudaGetLastError();
}
