/* NumPy's .npy files: version 1 to 3, C order, numbers and booleans. */
#ifndef CONFORMANCE_NPY_H
#define CONFORMANCE_NPY_H

#include "base/error.h"
#include "tensor/tensor.h"

/* out_tensor->data is the caller's to free. */
MUST_CHECK enum status npy_read(const char *path, struct tensor *out_tensor, struct error *err);
MUST_CHECK enum status npy_write(const char *path, const struct tensor *tensor, struct error *err);

#endif
