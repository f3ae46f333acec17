/* The element-wise half of LSTM, GRU and RNN; compiled once per instruction set. */
#ifndef DEVICE_CPU_RECURRENT_H
#define DEVICE_CPU_RECURRENT_H

#include "device/cpu/cpu.h"
#include "ops/recurrent.h"

struct recurrent_cell {
    int64_t hidden;
    struct recurrent_function functions[3]; /* of one direction */
    float clip;                             /* 0: none */
    bool input_forget;
    const float *peephole; /* i, o, f: `hidden` each; NULL: none */
};

/* One row (one sequence of the batch) of one step each.  Gates come as sums. */
struct recurrent_ops {
    /* gates: i, o, f, c.  Replaces c and h. */
    void (*lstm)(const struct recurrent_cell *cell, const float *gates, float *c, float *h);
    /* x: sums of z, r (and the candidate).  Leaves z in x and the reset state in `reset`. */
    void (*gru_gates)(const struct recurrent_cell *cell, float *x, const float *h, float *reset);
    /* x: z (done) and the sum of the candidate.  Replaces h. */
    void (*gru_finish)(const struct recurrent_cell *cell, const float *x, float *h);
    /* linear_before_reset: z, r and candidate of the input in x, of the state in `state`.
     * Replaces h. */
    void (*gru_linear)(const struct recurrent_cell *cell, const float *x, const float *state,
                       float *h);
    void (*rnn)(const struct recurrent_cell *cell, const float *sums, float *h);
};
const struct recurrent_ops *recurrent_ops_for(enum cpu_isa isa);

/* Scratch is laid out the same way when it is measured and when it is used. */
struct room {
    char *base; /* NULL: only measuring */
    size_t used;
};

static inline void *room_take(struct room *room, size_t bytes)
{
    void *piece = room->base != NULL ? room->base + room->used : NULL;

    room->used += (bytes + 63) / 64 * 64;
    return piece;
}

#endif
