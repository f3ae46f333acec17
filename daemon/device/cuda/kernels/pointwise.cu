/* The interpreter of pointwise programs, and Where.
 *
 * A step whose code is long stands there once and the four values are turned through it.
 */
#include "device/cuda/kernels/pointwise.cuh"

/* ---- steps, by their numbers ---- */

#define STEP_each_(T, expression)                                                                  \
    _Pragma("unroll") for (int k = 0; k < GROUP; k++)                                              \
    {                                                                                              \
        const T x = value[k], y = operand[k];                                                      \
        value[k] = expression;                                                                     \
    }
/* The values go round: each passes place 0 once and comes back to its own. */
#define STEP_once_(T, expression)                                                                  \
    _Pragma("unroll 1") for (int k = 0; k < GROUP; k++)                                            \
    {                                                                                              \
        const T x = value[0], y = operand[0];                                                      \
        const T result = expression;                                                               \
        turn(value, result);                                                                       \
        turn(operand, y);                                                                          \
    }

template <class T> __device__ static inline void turn(T (&values)[GROUP], T last)
{
    values[0] = values[1];
    values[1] = values[2];
    values[2] = values[3];
    values[3] = last;
}

template <class T>
__device__ static inline void apply_real(const struct pointwise_step &step, T (&value)[GROUP],
                                         T (&operand)[GROUP])
{
    const T a = (T)step.a, b = (T)step.b;

    switch (step.op) {
#define REAL(name, where, expression)                                                              \
    case PW_##name:                                                                                \
        STEP_##where##_(T, real_step<PW_##name>::of(x, y, a, b)) break;
#define WHOLE(name, where, expression)
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    default:
        break;
    }
}

template <class T>
__device__ static inline void apply_whole(const struct pointwise_step &step, T (&value)[GROUP],
                                          T (&operand)[GROUP])
{
    const double a = step.a, b = step.b;

    switch (step.op) {
#define REAL(name, where, expression)
#define WHOLE(name, where, expression)                                                             \
    case PW_WHOLE_##name:                                                                          \
        STEP_##where##_(T, whole_step<PW_WHOLE_##name>::of(x, y, a, b)) break;
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    default:
        break;
    }
}

__device__ static inline void apply(const struct pointwise_step &step, float (&value)[GROUP],
                                    float (&operand)[GROUP])
{
    apply_real(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, double (&value)[GROUP],
                                    double (&operand)[GROUP])
{
    apply_real(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, int64_t (&value)[GROUP],
                                    int64_t (&operand)[GROUP])
{
    apply_whole(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, uint64_t (&value)[GROUP],
                                    uint64_t (&operand)[GROUP])
{
    apply_whole(step, value, operand);
}

/* ---- the kernel ---- */

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    pointwise_kernel(const __grid_constant__ struct pointwise p)
{
    pointwise_groups<T>(p, [&p](struct group<T, GROUP, false> &g) {
        for (uint32_t i = 0; i < p.steps; i++) {
            const struct pointwise_step &step = p.step[i];

            if (step.from < POINTWISE_INPUTS)
                load_group<facts_none>(p, step.from, g);
            else if (step.from == PW_FROM_SAVED)
                g.take_saved();
            apply(step, g.value, g.operand);
            if (step.saves)
                g.save();
        }
    });
}

extern "C" cudaError_t cuda_pointwise(const struct pointwise *program, cudaStream_t stream)
{
    const unsigned blocks = grid_for((program->walk.count + GROUP - 1) / GROUP);

    if (program->walk.count == 0)
        return cudaSuccess;
    switch (program->type) {
    case PW_FLOAT:
        pointwise_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    case PW_DOUBLE:
        pointwise_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    case PW_SIGNED:
        pointwise_kernel<int64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    default:
        pointwise_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
    }
    return cudaGetLastError();
}

/* ---- Where ---- */

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    choose_kernel(const __grid_constant__ struct choose c)
{
    for (GRID_STRIDE(i, c.walk.count)) {
        int64_t offsets[4];

        walk_offsets<4>(c.walk, c.strides, i, offsets);
        ((E *)c.out)[offsets[0]] = c.condition[offsets[1]] != 0 ? ((const E *)c.a)[offsets[2]]
                                                                : ((const E *)c.b)[offsets[3]];
    }
}

extern "C" cudaError_t cuda_choose(const struct choose *choose, cudaStream_t stream)
{
    const unsigned blocks = grid_for(choose->walk.count);

    if (choose->walk.count == 0)
        return cudaSuccess;
    switch (choose->bytes) {
    case 1:
        choose_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 2:
        choose_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 4:
        choose_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 8:
        choose_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
