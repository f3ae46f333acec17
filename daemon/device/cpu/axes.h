/* Some dimensions of a tensor, walked as one: an index among them to an offset in elements. */
#ifndef DEVICE_CPU_AXES_H
#define DEVICE_CPU_AXES_H

#include "tensor/shape.h"

enum { AXES_MAX_RANK = SHAPE_MAX_RANK + 1 };

struct axes {
    size_t rank;
    size_t dims[AXES_MAX_RANK];
    size_t strides[AXES_MAX_RANK];
    size_t count; /* product of dims; starts at 1 */
};

static inline size_t axes_offset(const struct axes *axes, size_t index)
{
    size_t offset = 0;

    for (size_t i = axes->rank; i-- > 0;) {
        offset += index % axes->dims[i] * axes->strides[i];
        index /= axes->dims[i];
    }
    return offset;
}

/* Adds an inner dimension, merged with the one before when both are walked as one. */
static inline void axes_add(struct axes *axes, size_t dim, size_t stride)
{
    size_t last = axes->rank - 1;

    if (axes->rank > 0 && axes->strides[last] == dim * stride) {
        axes->dims[last] *= dim;
        axes->strides[last] = stride;
    } else {
        axes->dims[axes->rank] = dim;
        axes->strides[axes->rank++] = stride;
    }
    axes->count *= dim;
}

#endif
