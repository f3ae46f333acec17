/* One step of LSTM, GRU or RNN: from the sums of the gates to the state. */
#ifndef DEVICE_CUDA_KERNELS_RECURRENT_H
#define DEVICE_CUDA_KERNELS_RECURRENT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* The functions of gates, in the order of ops/recurrent.h. */
enum gate_act {
    GATE_SIGMOID,
    GATE_TANH,
    GATE_RELU,
    GATE_AFFINE,
    GATE_LEAKY_RELU,
    GATE_THRESHOLDED_RELU,
    GATE_SCALED_TANH,
    GATE_HARD_SIGMOID,
    GATE_ELU,
    GATE_SOFTSIGN,
    GATE_SOFTPLUS
};

struct gate_function {
    uint32_t act; /* enum gate_act */
    float alpha, beta;
};

enum cell_kind {
    CELL_LSTM,
    CELL_RNN,
    CELL_GRU_LINEAR, /* the reset gate multiplies the state's product */
    CELL_GRU_GATES,  /* otherwise: first two gates, and the state times the reset gate, … */
    CELL_GRU_FINISH  /* … of which the product goes into the last gate */
};

struct cell {
    uint32_t kind; /* enum cell_kind */
    uint32_t input_forget;
    int64_t batch, hidden;
    int64_t time, times;
    struct gate_function functions[3];
    float clip;             /* 0: none */
    const float *input;     /* the input's products of this step: row by row, see input_step */
    int64_t input_step;     /* elements from row to row */
    const float *state;     /* the state's products: [batch, gates, hidden] */
    float *update;          /* GRU: the update gate, [batch, hidden], from GATES to FINISH */
    float *reset;           /* GRU: the state times the reset gate, [batch, hidden] */
    float *h, *c;           /* [batch, hidden] */
    const float *peephole;  /* LSTM: [3, hidden] of the gates i, o, f; NULL: none */
    const int32_t *lengths; /* of the sequences; NULL: all are full */
    float *out;             /* row by row, see out_step; NULL: not wanted */
    int64_t out_step;
    uint32_t *fault;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_cell(const struct cell *cell, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
