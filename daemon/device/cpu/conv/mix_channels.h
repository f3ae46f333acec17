/* Channels of blocked values in another order: a vector of the result is put together from the
 * vectors that hold its channels. */
#ifndef DEVICE_CPU_MIX_CHANNELS_H
#define DEVICE_CPU_MIX_CHANNELS_H

#include "device/cpu/cpu.h"

enum { MIX_LANES = 16 /* of the widest vector */ };

/* A block of channels that gives some to a block of the result. */
struct mix_source {
    size_t input;
    size_t block;             /* of an image of the input */
    int32_t lane[MIX_LANES];  /* of the source, for each of the result's */
    int32_t taken[MIX_LANES]; /* -1: that lane is from here; 0: not */
};

/* `cells` pixels of a block of the result; x[i]: the same pixels of source i. */
typedef void (*mix_fn)(const struct mix_source *sources, size_t count, const float *const *x,
                       size_t cells, float *y);

struct mix_ops {
    size_t vector; /* channels a block */
    mix_fn mix;
};

#endif
