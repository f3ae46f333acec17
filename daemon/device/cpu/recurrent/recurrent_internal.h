/* Between recurrent.c, which runs the steps, and recurrent_matrices.c, which packs W and R. */
#ifndef DEVICE_CPU_RECURRENT_INTERNAL_H
#define DEVICE_CPU_RECURRENT_INTERNAL_H

#include "device/cpu/recurrent/recurrent.h"

enum kind { LSTM = 4, GRU = 3, RNN = 1 }; /* the value is the number of gates */
enum { DIRECTIONS = 2 };

/* R is one product, but for a GRU that resets the state before its last gate. */
enum matrix { MATRIX_W, MATRIX_R, MATRIX_R_LAST, MATRICES };

struct recurrent_state {
    enum kind kind;
    enum cpu_isa isa;
    const struct recurrent_ops *ops;
    size_t directions;
    bool reverse; /* the first direction */
    bool linear_before_reset;
    bool batch_first;
    int64_t times, batch, input, hidden, chunk; /* chunk: steps at once */
    struct recurrent_cell cells[DIRECTIONS];
    const float *packed[DIRECTIONS][MATRICES]; /* NULL: made at run time */
};

/* Columns (outputs) of a matrix of one direction, and where they begin among all gates. */
int64_t recurrent_columns(const struct recurrent_state *state, enum matrix matrix,
                          int64_t *out_first);
/* Of the packed matrix; 0: there is none. */
size_t recurrent_packed_bytes(const struct recurrent_state *state, enum matrix matrix);
/* `weights` is all of W or R: [directions, gates * hidden, k]. */
void recurrent_pack(const struct recurrent_state *state, size_t direction, enum matrix matrix,
                    const float *weights, float *packed);
/* Packs a constant matrix once for all plans: state->packed.  Nothing to do for others. */
MUST_CHECK enum status recurrent_share_matrix(struct kernel_prepare *prepare,
                                              struct recurrent_state *state, size_t direction,
                                              enum matrix matrix);

#endif
