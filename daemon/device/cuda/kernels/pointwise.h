/* Pointwise programs: what the element-wise operators, alone or in chains, are to the device.
 *
 * A program is a list of steps on one value an element: x = step(x, operand).  It runs in one
 * kernel, which reads every input and writes the output once.  All of it is one argument of the
 * kernel.  Types of inputs and output may differ; what is computed in is one of four wide types.
 */
#ifndef DEVICE_CUDA_KERNELS_POINTWISE_H
#define DEVICE_CUDA_KERNELS_POINTWISE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

/* Steps on real numbers and on integers have numbers of their own. */
enum pointwise_real_op {
#define REAL(name, where, expression) PW_##name,
#define WHOLE(name, where, expression)
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    PW_REAL_OPS
};
enum pointwise_whole_op {
#define REAL(name, where, expression)
#define WHOLE(name, where, expression) PW_WHOLE_##name,
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    PW_WHOLE_OPS
};

enum { POINTWISE_INPUTS = 8, POINTWISE_STEPS = 26 };
/* Where a step's operand comes from, beside inputs 0 … POINTWISE_INPUTS - 1. */
enum { PW_FROM_NOTHING = 254, PW_FROM_SAVED = 255 };

struct pointwise_step {
    uint8_t op;
    uint8_t from;  /* an input, PW_FROM_SAVED or PW_FROM_NOTHING */
    uint8_t saves; /* 1: the result is also kept as the saved value */
    double a, b;
};

enum pointwise_type { PW_FLOAT, PW_DOUBLE, PW_SIGNED, PW_UNSIGNED };

struct pointwise_operand {
    void *data;
    uint32_t dtype; /* enum dtype */
    /* 1: four neighbours of a group can be moved at once (alignment and strides allow it) */
    uint32_t vector;
    struct walk_strides strides;
};

struct pointwise {
    struct walk walk; /* over the output, in the order of its memory */
    uint32_t type;    /* enum pointwise_type */
    uint32_t steps;
    uint32_t inputs;
    /* 1: elements 4 k … 4 k + 3 are neighbours on the innermost axis (but for the very last). */
    uint32_t grouped;
    struct pointwise_operand out;
    struct pointwise_operand in[POINTWISE_INPUTS];
    struct pointwise_step step[POINTWISE_STEPS];
};

#ifdef __cplusplus
extern "C" {
#endif
/* Puts the program on the stream.  Nothing happens for no elements. */
cudaError_t cuda_pointwise(const struct pointwise *program, cudaStream_t stream);

/* out = condition ? a : b, elements of `bytes` (1, 2, 4, 8, 16) moved as they are. */
struct choose {
    struct walk walk;
    struct walk_strides strides[4]; /* out, condition, a, b */
    void *out;
    const uint8_t *condition;
    const void *a, *b;
    uint32_t bytes;
};
cudaError_t cuda_choose(const struct choose *choose, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
