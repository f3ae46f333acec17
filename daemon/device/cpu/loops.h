/* Inner loops on floats, one table for each instruction set; the device's choice decides. */
#ifndef DEVICE_CPU_LOOPS_H
#define DEVICE_CPU_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/broadcast.h"
#include "device/cpu/cpu.h"

enum { LOOPS_CHUNK = 512 }; /* 16-bit floats are widened on the stack, so many at a time */

enum unary_loop {
#define LOOP(name, ns, on_vectors, on_doubles) UNARY_##name,
#include "device/cpu/elements/unary_loops.def"
#undef LOOP
    UNARY_LOOPS
};

enum binary_loop {
#define LOOP(name, ns, on_vectors, on_doubles) BINARY_##name,
#include "device/cpu/elements/binary_loops.def"
#undef LOOP
    BINARY_LOOPS
};

enum reduce_loop {
#define REDUCE(name, mapped, combine, neutral) REDUCE_##name,
#include "device/cpu/lines/reduce_loops.def"
#undef REDUCE
    REDUCE_LOOPS
};

/* What whole numbers are moved by and cut off at to become bytes (of either sign). */
struct byte_range {
    float zero, low, high;
};

/* y[i] = f(x[i]); x and y may be the same. */
typedef void (*unary_fn)(const float *x, float *y, size_t count, float a, float b);

struct loops {
    unary_fn unary[UNARY_LOOPS];
    tile_fn binary[BINARY_LOOPS]; /* out = f(in[0], in[1]); out may be either of them */
    /* The reduction of a row; of nothing: its neutral element.  Loops named _from take `shift`. */
    double (*row[REDUCE_LOOPS])(const float *x, size_t count, float shift);
    /* Takes one more row into running totals, one a column. */
    void (*columns[REDUCE_LOOPS])(const float *x, float *totals, size_t count, const float *shifts);
    /* y = e^(x - shift); returns the sum. */
    double (*exp_row)(const float *x, float *y, size_t count, float shift);
    void (*softmax_columns)(const float *x, float *y, size_t count, size_t stride, size_t columns,
                            bool logarithm);
    /* y = (x - mean) * factor * scale + bias; scale and bias may be NULL. */
    void (*normalize_row)(const float *x, float *y, size_t count, float mean, float factor,
                          const float *scale, const float *bias);
    /* y = (x - mean) * factor + bias */
    void (*affine_row)(const float *x, float *y, size_t count, float mean, float factor,
                       float bias);
    /* y = x * scale + shift, a scale and a shift for each column */
    void (*affine_columns)(const float *x, float *y, size_t rows, size_t columns,
                           const float *scale, const float *shift);
    /* y = weight * x, or more when they are `added`. */
    void (*weigh)(const float *x, float weight, float *y, size_t count, bool added);
    /* Columns for each of `places`: y[place] = sum of weight[place][tap] * x[index[place][tap]]. */
    void (*stretch)(const float *x, const int32_t *index, const float *weight, size_t taps,
                    size_t places, size_t columns, float *y);
    void (*float_from_half)(const uint16_t *x, float *y, size_t count);
    void (*half_from_float)(const float *x, uint16_t *y, size_t count);
    /* y = saturate(round(x / scale) + zero); of NaN the zero point */
    void (*quantize_bytes)(const float *x, uint8_t *y, size_t count, float scale,
                           const struct byte_range *range);
    /* y = saturate(round((x + bias) * scale) + zero), a bias and a scale for each */
    void (*requantize_bytes)(const int32_t *x, uint8_t *y, size_t count, const int32_t *bias,
                             const float *scale, const struct byte_range *range);
};

extern const struct loops loops_base, loops_avx2, loops_avx512;

const struct loops *loops_for(const struct device *device);

/* Converts a run of 16-bit floats of either kind. */
void widen(const struct loops *loops, enum dtype dtype, const void *x, float *y, size_t count);
void narrow(const struct loops *loops, enum dtype dtype, const float *x, void *y, size_t count);
/* y[i] = f(x[i]) on elements of type FLOAT, FLOAT16 or BFLOAT16. */
void loops_unary(const struct loops *loops, enum dtype dtype, enum unary_loop loop, float a,
                 float b, const void *x, void *y, size_t count);

#endif
