/* cuBLASLt, opened when the first product is planned and never linked against.
 *
 * Ownership: a device owns its struct lt, made by lt_get() and ended by lt_close() when the device
 *            closes, after all plans are gone.  The library itself stays loaded.
 * Threads:   lt_get() any; the handle may be used by all threads at once (each call names its
 *            stream and its workspace).
 */
#ifndef DEVICE_CUDA_BLAS_LT_H
#define DEVICE_CUDA_BLAS_LT_H

#include <cublasLt.h>

#include "device/cuda/cuda.h"

struct lt_choices; /* blas/choose.h */

struct lt {
    cublasLtHandle_t handle;
#define FUNCTION(name) __typeof__(&name) name;
#include "device/cuda/blas/lt.def"
#undef FUNCTION
    struct lt_choices *choices;
    struct nan_answers *nan; /* the device's */
};

/* The device's cuBLASLt.  NULL: `*out_why` says why in borrowed words ("libcublasLt.so.13 is not
 * here"), which are the same at every later call. */
const struct lt *lt_get(struct cuda_device *cuda, const char **out_why);
void lt_close(struct cuda_device *cuda); /* without one is fine */

/* NO_MEMORY, UNSUPPORTED for what the library has no algorithm for, DEVICE_LOST when a kernel could
 * not be started because the device is gone, else INTERNAL. */
enum status lt_status(cublasStatus_t status);

#endif
