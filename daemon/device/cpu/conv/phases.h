/* Convolutions of both kinds, seen from their result.
 *
 * The places of a transposed convolution's result fall into *phases* by their remainders to the
 * strides: within one, the same taps meet cells, and neighbours meet neighbouring cells, as in a
 * convolution of stride 1.  A convolution has one phase.
 */
#ifndef DEVICE_CPU_PHASES_H
#define DEVICE_CPU_PHASES_H

#include "device/cpu/cpu.h"
#include "ops/conv.h"

struct phases_form {
    bool transposed;
    struct conv_geometry geometry; /* of two dimensions: down, across */
    struct epilogue epilogue;
};

struct phases_axis {
    int64_t in, out; /* cells of the input, of the result */
    int64_t phases;  /* 1; transposed: the stride.  Places of one phase are so far apart */
    int64_t step;    /* cells from a place of a phase to the next: the stride; transposed: 1 */
    int64_t base;    /* cell under the first tap of place 0; negative: in the padding */
    int64_t reach;   /* cells from the first tap to the last */
};

/* False: the shapes do not fit, or there are more than two dimensions. */
bool phases_resolve(const struct kernel_call *call, struct phases_form *out_form);
struct phases_axis phases_axis(const struct phases_form *form, size_t axis);
/* The cell that tap k meets at the place `first` of a phase, from that of the phase's first tap on;
 * false: none. */
bool phases_meet(const struct phases_form *form, const struct phases_axis *axes, size_t axis,
                 int64_t first, int64_t k, int64_t *out_cell);

/* Names the order of weights packed phase by phase, for weights_share(): empty for convolutions. */
enum { PHASES_FORMAT_BYTES = 128 };
void phases_format(const struct phases_form *form, char text[PHASES_FORMAT_BYTES]);

/* Places of the phase that begins at `first`; at 0: of the largest. */
static inline int64_t phases_places(const struct phases_axis *axis, int64_t first)
{
    return (axis->out - first + axis->phases - 1) / axis->phases;
}

#endif
