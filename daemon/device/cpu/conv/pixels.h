/* Convolutions in plain layout, a vector of neighbouring pixels at a time: for few output channels,
 * which would leave blocks of channels empty, and for what has no blocked form.
 *
 * A transposed convolution is one convolution for each of its phases (phases.h).
 */
#ifndef DEVICE_CPU_PIXELS_H
#define DEVICE_CPU_PIXELS_H

#include "device/cpu/conv/conv_step.h"
#include "device/cpu/conv/phases.h"

struct pixels_phase {
    int64_t place[2]; /* its first one in the result */
    int64_t taps;
    const int64_t *offsets; /* per tap: floats from a place's first cell in the packed tile */
    int64_t weights;        /* floats into those of a group */
};

struct pixels {
    struct epilogue epilogue;
    int64_t images, groups;
    int64_t in_channels, out_channels; /* of a group */
    struct phases_axis axis[2];        /* down, across */
    /* Tiles of so many places of each phase, down and across; how many of them. */
    int64_t tile[2], tiles[2];
    /* Their input: [channel][row][remainder of the column by the step][column], zeros around. */
    int64_t lane, row, block; /* floats from one remainder, row, channel to the next */
    int64_t group_weights;    /* floats */
    unsigned members;
    int64_t phase_count;
    const struct pixels_phase *phases;
};

struct pixels_ops {
    int64_t vector;
    int64_t rows; /* output channels at a time */
    conv_member_fn run;
};

/* Output channels are taken so many at a time, as evenly as it goes: the first one of part
 * `part`. */
static inline int64_t pixels_part(int64_t channels, int64_t rows, int64_t part)
{
    return channels * part / ((channels + rows - 1) / rows);
}

#endif
