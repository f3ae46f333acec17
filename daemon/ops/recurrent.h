/* Attributes of LSTM, GRU, RNN and DynamicQuantizeLSTM. */
#ifndef OPS_RECURRENT_H
#define OPS_RECURRENT_H

#include "ops/op.h"

enum recurrent_direction { RECURRENT_FORWARD, RECURRENT_REVERSE, RECURRENT_BIDIRECTIONAL };

/* Functions that the gates may use; alpha and beta where they have any. */
enum recurrent_activation {
    RECURRENT_SIGMOID,
    RECURRENT_TANH,
    RECURRENT_RELU,
    RECURRENT_AFFINE,
    RECURRENT_LEAKY_RELU,
    RECURRENT_THRESHOLDED_RELU,
    RECURRENT_SCALED_TANH,
    RECURRENT_HARD_SIGMOID,
    RECURRENT_ELU,
    RECURRENT_SOFTSIGN,
    RECURRENT_SOFTPLUS,
};

struct recurrent_function {
    enum recurrent_activation activation;
    float alpha;
    float beta;
};

struct recurrent_attrs {
    struct floats activation_alpha;
    struct floats activation_beta;
    struct strings activations;
    float clip; /* 0: none */
    int direction;
    int64_t hidden_size; /* 0: taken from the weights */
    int64_t layout;
    int64_t input_forget;        /* LSTM only */
    int64_t linear_before_reset; /* GRU only */
};

/* Positions of the inputs; from the cell's state on they are LSTM's, from the first scale on
 * DynamicQuantizeLSTM's. */
enum recurrent_input {
    RECURRENT_X,
    RECURRENT_W,
    RECURRENT_R,
    RECURRENT_BIAS,
    RECURRENT_LENGTHS,
    RECURRENT_H,
    RECURRENT_C,
    RECURRENT_P,
    RECURRENT_W_SCALE,
    RECURRENT_W_ZERO,
    RECURRENT_R_SCALE,
    RECURRENT_R_ZERO,
    RECURRENT_INPUTS,
};

size_t recurrent_directions(const struct recurrent_attrs *attrs);

/* What the gates of each operator use unless told otherwise. */
extern const enum recurrent_activation recurrent_lstm_functions[3];
extern const enum recurrent_activation recurrent_gru_functions[2];
extern const enum recurrent_activation recurrent_rnn_functions[1];

/* The functions of all gates: `each` per direction, in ONNX's order.  Defaults where none is given.
 */
MUST_CHECK enum status recurrent_functions(const struct recurrent_attrs *attrs, size_t each,
                                           const enum recurrent_activation *standard,
                                           struct recurrent_function *out_functions,
                                           struct error *err);

#endif
