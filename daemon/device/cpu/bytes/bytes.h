/* Inner loops on quantised bytes, channels side by side; one table for each instruction set. */
#ifndef DEVICE_CPU_BYTES_H
#define DEVICE_CPU_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

/* What sums of a depthwise convolution become bytes with: one a channel, at byte_factor_place(). */
struct byte_factors {
    const int32_t *starts;
    const float *scales;
    struct byte_range range;
};

/* One line of results of a depthwise convolution over 16-bit differences. */
struct byte_depthwise {
    int64_t taps, channels, places;
    const int64_t *offsets; /* bytes from a window's first element to each tap */
    int64_t stride;         /* elements from place to place */
    const int16_t *x;       /* readable to whole vectors of channels */
    const int16_t *weights; /* [taps, to an even number][byte_columns()], zeros behind the last */
    const struct byte_factors *factors;
    uint8_t *y; /* [places][channels] */
};

/* q = saturate(round(x / scale) + zero) of x = (a - zero) * scale + (b - zero) * scale, or of the
 * product, each step rounded to float as DequantizeLinear, Add and QuantizeLinear would.
 *
 * a * a_factor + b * b_factor + offset, for products (a - zero) * (b - zero) * a_factor, is off
 * from what is rounded by less than `off`: only nearer than that to a half the steps are gone
 * through. */
struct byte_pair {
    bool multiplies;
    bool a_signed, b_signed;
    int32_t a_zero, b_zero;
    float a_scale, b_scale, y_scale;
    struct byte_range range;
    float a_factor, b_factor, offset, off; /* byte_pair_complete() */
};

/* Weights of a float product: (byte - zero) * scale in float, rows of `stride` bytes; all columns
 * to whole vectors. */
struct byte_weights {
    const uint8_t *bytes;
    const int32_t *zeros;
    const float *scales;
    int64_t k, stride;
    bool is_signed;
};

struct byte_loops {
    int64_t channels; /* of a vector */
    void (*depthwise)(const struct byte_depthwise *line);
    /* y[i] = the larger of y[i] and x[i] */
    void (*maximum)(const uint8_t *x, uint8_t *y, size_t count, bool is_signed);
    void (*combine)(const struct byte_pair *pair, const uint8_t *a, const uint8_t *b, uint8_t *y,
                    size_t count);
    /* Row `row` of the weights as floats, columns [from, from + count) to whole vectors. */
    void (*unpack)(const struct byte_weights *weights, int64_t row, int64_t from, int64_t count,
                   float *to);
    /* c[m rows][columns from … to) = a[m][k] times weights, started from the bias (NULL: 0), summed
     * in rising order of k. */
    void (*weigh)(const struct byte_weights *weights, int64_t m, const float *a, const float *bias,
                  int64_t from, int64_t to, float *c, int64_t ldc);
    /* y[i] = table[x[i]], of 256 */
    void (*look_up)(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t count);
};

const struct byte_loops *byte_loops_for(enum cpu_isa isa);

/* Fills the last line of the struct from the others. */
void byte_pair_complete(struct byte_pair *pair);

/* Channels to whole vectors. */
int64_t byte_columns(const struct byte_loops *loops, int64_t channels);
size_t byte_depthwise_bytes(const struct byte_loops *loops, int64_t taps, int64_t channels);
/* Starts and scales together. */
size_t byte_factor_bytes(const struct byte_loops *loops, int64_t channels);
int64_t byte_factor_place(const struct byte_loops *loops, int64_t channel);

#endif
