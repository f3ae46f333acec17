/* The cells of LSTM, GRU and RNN, one state element a thread.  A sequence that is over keeps its
 * state and gives zeros. */
#include <math.h>

#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/recurrent.h"
#include "device/cuda/kernels/walk.cuh"

__device__ static inline float gate(const struct gate_function &function, float x)
{
    const float alpha = function.alpha, beta = function.beta;

    switch (function.act) {
    case GATE_SIGMOID:
        return 1 / (1 + expf(-x));
    case GATE_TANH:
        return tanhf(x);
    case GATE_AFFINE:
        return alpha * x + beta;
    case GATE_LEAKY_RELU:
        return x < 0 ? alpha * x : x;
    case GATE_THRESHOLDED_RELU:
        return x < alpha ? 0 : x;
    case GATE_SCALED_TANH:
        return alpha * tanhf(beta * x);
    case GATE_HARD_SIGMOID:
        x = alpha * x + beta;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    case GATE_ELU:
        return x < 0 ? alpha * expm1f(x) : x;
    case GATE_SOFTSIGN:
        return x / (1 + fabsf(x));
    case GATE_SOFTPLUS:
        return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
    default:
        return x < 0 ? 0 : x;
    }
}

__device__ static inline float clipped(const struct cell &cell, float x)
{
    const float low = x < -cell.clip ? -cell.clip : x;

    return cell.clip > 0 ? (low > cell.clip ? cell.clip : low) : x;
}

/* One state element: its row and place, and where the sums of its gates are. */
struct spot {
    int64_t row, place;
    const float *input, *state;
};

__device__ static inline float sum_of(const struct cell &cell, const struct spot &spot, int number)
{
    return spot.input[number * cell.hidden] + spot.state[number * cell.hidden];
}

__device__ static inline float peep(const struct cell &cell, const struct spot &spot, int number,
                                    float state, float x)
{
    return cell.peephole == nullptr ? x
                                    : x + cell.peephole[number * cell.hidden + spot.place] * state;
}

__device__ static inline float lstm(const struct cell &cell, const struct spot &spot, int64_t at)
{
    float state = cell.c[at];
    const float i =
        gate(cell.functions[0], clipped(cell, peep(cell, spot, 0, state, sum_of(cell, spot, 0))));
    const float f = cell.input_forget
                        ? 1 - i
                        : gate(cell.functions[0],
                               clipped(cell, peep(cell, spot, 2, state, sum_of(cell, spot, 2))));
    const float g = gate(cell.functions[1], clipped(cell, sum_of(cell, spot, 3)));
    float o;

    state = f * state + i * g;
    o = gate(cell.functions[0], clipped(cell, peep(cell, spot, 1, state, sum_of(cell, spot, 1))));
    cell.c[at] = state;
    return o * gate(cell.functions[2], state);
}

__device__ static inline float gru_linear(const struct cell &cell, const struct spot &spot,
                                          int64_t at)
{
    const float z = gate(cell.functions[0], clipped(cell, sum_of(cell, spot, 0)));
    const float r = gate(cell.functions[0], clipped(cell, sum_of(cell, spot, 1)));
    const float candidate = gate(cell.functions[1], clipped(cell, r * spot.state[2 * cell.hidden] +
                                                                      spot.input[2 * cell.hidden]));

    return z * cell.h[at] + (1 - z) * candidate;
}

__device__ static inline float gru_finish(const struct cell &cell, const struct spot &spot,
                                          int64_t at)
{
    const float candidate = gate(cell.functions[1], clipped(cell, sum_of(cell, spot, 2)));
    const float z = cell.update[at];

    return z * cell.h[at] + (1 - z) * candidate;
}

__device__ static inline float next_state(const struct cell &cell, const struct spot &spot,
                                          int64_t at)
{
    switch (cell.kind) {
    case CELL_LSTM:
        return lstm(cell, spot, at);
    case CELL_GRU_LINEAR:
        return gru_linear(cell, spot, at);
    case CELL_GRU_FINISH:
        return gru_finish(cell, spot, at);
    default:
        return gate(cell.functions[0], clipped(cell, sum_of(cell, spot, 0)));
    }
}

__device__ static inline bool is_over(const struct cell &cell, int64_t row)
{
    int64_t length;

    if (cell.lengths == nullptr)
        return false;
    length = cell.lengths[row];
    if (length < 0 || length > cell.times)
        *cell.fault = 1;
    return cell.time >= length;
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    cell_kernel(const __grid_constant__ struct cell cell)
{
    const int gates = cell.kind == CELL_LSTM ? 4 : cell.kind == CELL_RNN ? 1 : 3;

    for (GRID_STRIDE(i, cell.batch * cell.hidden)) {
        const int64_t row = i / cell.hidden, place = i % cell.hidden;
        const struct spot spot = {row, place, cell.input + row * cell.input_step + place,
                                  cell.state + row * gates * cell.hidden + place};
        const bool over = is_over(cell, row);
        const bool empty = over && cell.lengths[row] == 0; /* ends in zeros, not in its state */

        if (cell.kind == CELL_GRU_GATES) {
            cell.update[i] = gate(cell.functions[0], clipped(cell, sum_of(cell, spot, 0)));
            cell.reset[i] =
                gate(cell.functions[0], clipped(cell, sum_of(cell, spot, 1))) * cell.h[i];
            continue;
        }
        if (!over || empty)
            cell.h[i] = empty ? 0 : next_state(cell, spot, i);
        if (empty && cell.kind == CELL_LSTM)
            cell.c[i] = 0;
        if (cell.out != nullptr)
            cell.out[row * cell.out_step + place] = over ? 0 : cell.h[i];
    }
}

extern "C" cudaError_t cuda_cell(const struct cell *cell, cudaStream_t stream)
{
    const int64_t count = cell->batch * cell->hidden;

    if (count == 0)
        return cudaSuccess;
    cell_kernel<<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*cell);
    return cudaGetLastError();
}
