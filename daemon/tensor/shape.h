/* Shapes: a rank and its dimensions, by value.
 *
 * SHAPE_UNKNOWN (-1) stands for a dimension that the model leaves open; a plan has none.
 */
#ifndef TENSOR_SHAPE_H
#define TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SHAPE_MAX_RANK = 8 };
#define SHAPE_UNKNOWN INT64_C(-1)

struct shape {
    size_t rank; /* 0: a scalar */
    int64_t dims[SHAPE_MAX_RANK];
};

struct shape shape_make(size_t rank, const int64_t *dims);
bool shape_is_equal(const struct shape *a, const struct shape *b);
bool shape_is_known(const struct shape *shape);               /* no dimension is SHAPE_UNKNOWN */
bool shape_has_axis(const struct shape *shape, int64_t axis); /* -rank ≤ axis < rank */
size_t shape_axis(const struct shape *shape,
                  int64_t axis); /* axis, negatives counted from the end */

/* Product of dims [from, to); 1 when empty.  Only for known shapes that shape_elements() accepted.
 */
int64_t shape_product(const struct shape *shape, size_t from, size_t to);
static inline int64_t shape_count(const struct shape *shape)
{
    return shape_product(shape, 0, shape->rank);
}
/* The number of elements, checked: STATUS_INVALID on an unknown or negative dimension or overflow
 * of 2^48, which no device holds and which keeps every later byte count within int64. */
MUST_CHECK enum status shape_elements(const struct shape *shape, int64_t *out_count);

/* NumPy broadcasting of two shapes (ONNX Broadcasting.md): STATUS_INVALID when they do not meet. */
MUST_CHECK enum status shape_broadcast(const struct shape *a, const struct shape *b,
                                       struct shape *out_shape);

/* "[1,3,224,224]", unknown as -1; returns `text`. */
enum { SHAPE_TEXT_BYTES = SHAPE_MAX_RANK * 21 + 3 };
const char *shape_format(const struct shape *shape, char text[SHAPE_TEXT_BYTES]);

#endif
