/* Where the elements of a tensor are, for tests of operators that move them. */
#ifndef TESTS_DEVICE_CPU_PLACES_H
#define TESTS_DEVICE_CPU_PLACES_H

#include "tensor/shape.h"

/* Row-major index of the place at `at`. */
static inline int64_t offset_of(const struct shape *shape, const int64_t *at)
{
    int64_t offset = 0;

    for (size_t i = 0; i < shape->rank; i++)
        offset = offset * shape->dims[i] + at[i];
    return offset;
}

/* The place of element `index`. */
static inline void place_of(const struct shape *shape, int64_t index, int64_t *at)
{
    for (size_t i = shape->rank; i-- > 0; index /= shape->dims[i])
        at[i] = index % shape->dims[i];
}

#endif
