/* Depthwise convolutions of 3x3 taps over the bytes themselves: VNNI multiplies the three of a
 * column, and a nothing, at a time.
 *
 * A group of up to 64 channels goes along a line of results.  Of each column its three cells are
 * interleaved once and serve all windows that they lie in.  What sums start with takes the zero
 * point away: sum (x - zero) w = sum x w - zero sum w. */
#ifndef DEVICE_CPU_BYTE_QUADS_H
#define DEVICE_CPU_BYTE_QUADS_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"
#include "device/cpu/loops.h"

enum { BYTE_QUADS_TAPS = 9 };

/* One line of results. */
struct byte_quads {
    int64_t channels, places;
    const int64_t *offsets; /* bytes from a window's first byte to each tap */
    int64_t stride;         /* bytes from place to place */
    const uint8_t *x;       /* 64 bytes behind its end are readable */
    const int8_t *weights;  /* byte_quads_pack() */
    const int32_t *starts;  /* of byte_quads_columns(), at byte_quads_place() */
    const float *scales;    /* the same */
    struct byte_range range;
    uint8_t *y; /* [places][channels] */
};

struct byte_quads_ops {
    int64_t widest; /* channels of a group, a power of two; narrower ones end the channels */
    void (*run)(const struct byte_quads *line);
};

/* NULL where the machine, up to `isa`, has no VNNI. */
const struct byte_quads_ops *byte_quads_for(enum cpu_isa isa);

/* Channels to whole groups of 16. */
static inline int64_t byte_quads_columns(int64_t channels)
{
    return (channels + 15) / 16 * 16;
}
/* Channels of the group that begins at `channel`. */
static inline int64_t byte_quads_group(int64_t widest, int64_t channels, int64_t channel)
{
    int64_t group = widest;

    while (group > 16 && channel + group > channels)
        group /= 2;
    return group;
}
/* Weights, and behind them their sums, one a channel at byte_quads_place(). */
static inline size_t byte_quads_bytes(int64_t channels)
{
    return (size_t)byte_quads_columns(channels) * (12 + sizeof(int32_t));
}
static inline const int32_t *byte_quads_sums(int64_t channels, const void *packed)
{
    return (const int32_t *)(const void *)((const char *)packed +
                                           (size_t)byte_quads_columns(channels) * 12);
}
/* Where starts and scales of a channel stand. */
int64_t byte_quads_place(const struct byte_quads_ops *ops, int64_t channels, int64_t channel);
/* w: [channels][9] bytes of type `dtype`, int8 from 0 or uint8 from 128. */
void byte_quads_pack(const struct byte_quads_ops *ops, int64_t channels, enum dtype dtype,
                     const uint8_t *w, void *packed);

#endif
