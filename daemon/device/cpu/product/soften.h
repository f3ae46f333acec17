/* Rows of scores on their way through a softmax, one table for each instruction set. */
#ifndef DEVICE_CPU_SOFTEN_H
#define DEVICE_CPU_SOFTEN_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"

enum { SOFTEN_MASKS = 2 };

struct soften_rows {
    float *scores;  /* in: scores; out: e^(score + masks - the largest of the row) */
    int64_t stride; /* of a row: `keys` floats and as many more as make whole vectors */
    int64_t rows, keys;
    const float *mask[SOFTEN_MASKS]; /* `keys` floats a row; NULL: none, and none behind it */
    int64_t mask_stride[SOFTEN_MASKS];
    float *factors; /* out: one over the sum of each row */
};

struct soften_ops {
    void (*soften)(const struct soften_rows *rows);
    /* y[r] *= factors[r], rows of `width` floats */
    void (*scale)(float *y, int64_t stride, int64_t rows, int64_t width, const float *factors);
};

const struct soften_ops *soften_ops_for(enum cpu_isa isa);

#endif
