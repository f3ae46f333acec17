/* A tensor: type, shape and (perhaps) where its elements are.  Row-major and dense. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "tensor/dtype.h"
#include "tensor/shape.h"

struct tensor {
    enum dtype dtype;
    struct shape shape;
    const void *data; /* NULL: only type and shape are known.  Borrowed. */
};

/* Bytes of all elements; for a STRING tensor those of its `struct bytes` array. */
static inline size_t tensor_bytes(const struct tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_bytes(tensor->dtype);
}

#endif
