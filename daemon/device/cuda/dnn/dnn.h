/* cuDNN, opened when the first convolution is planned and never linked against.
 *
 * Ownership: a device owns its struct dnn, made by dnn_get() and ended by dnn_close() when the
 *            device closes, after all plans are gone.  The library itself stays loaded.
 * Threads:   dnn_get() any.  A handle is one thread's at a time: each lane has one, and those who
 *            make plans take turns over `maker` (dnn_plan_make() does).
 */
#ifndef DEVICE_CUDA_DNN_DNN_H
#define DEVICE_CUDA_DNN_DNN_H

#include <cudnn.h>
#include <pthread.h>

#include "device/cuda/cuda.h"

struct dnn {
#define FUNCTION(name) __typeof__(&name) name;
#include "device/cuda/dnn/dnn.def"
#undef FUNCTION
    pthread_mutex_t lock; /* over maker */
    cudnnHandle_t maker;
    /* Instead of a handle: a device that is only described, for plans that will not run. */
    cudnnBackendDescriptor_t properties;
    size_t lanes;
    cudnnHandle_t *lane;             /* by lane index */
    struct dnn_decisions *decisions; /* compiled.h */
    struct cuda_device *cuda;        /* whose it is */
};

/* The device's cuDNN.  NULL: `*out_why` says why in borrowed words ("libcudnn.so.9 is not here"),
 * which are the same at every later call. */
const struct dnn *dnn_get(struct cuda_device *cuda, const char **out_why);
void dnn_close(struct cuda_device *cuda); /* without one is fine */
/* Opens the library only: no handles.  NULL, or why not. */
const char *dnn_open_library(struct dnn *dnn, const char *path);

/* UNSUPPORTED for what the library does not do, NO_MEMORY, DEVICE_LOST, else INTERNAL. */
enum status dnn_status(cudnnStatus_t status);

#endif
