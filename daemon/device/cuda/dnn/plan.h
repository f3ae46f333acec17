/* Plans: one operation graph of cuDNN's, an engine for it, and its workspace.
 *
 * The graphs are those that cuDNN has precompiled engines for; others are compiled for every shape,
 * for one to three seconds each (compiled.h):
 *
 *     convolution       conv(x, w) [+ z] + bias [relu] → y
 *       compiled        conv(x, w) [+ z] + bias [activation] [+ z] → y, channels last
 *     transposed        data gradient of w at dy → dx; x is dy and y is dx
 *     pool              resample(x) → y
 *     attention         softmax(scale q kᵀ) v → out, compiled
 *
 * Engines are chosen by the notes they carry: none that needs runtime compilation, none that adds
 * in an order of its own each time, and no tensor cores, Winograd or down-conversion in strict
 * float32.  Heuristic A is asked first, the fallback (the only one that knows pools) after it.
 *
 * Same bits: cuDNN's heuristic looks at the number of images.  The engine and its knobs are
 * therefore chosen with DNN_IMAGES images, whatever the batch is, and put on the graph of the real
 * size; an engine with its knobs fixed sums in one order, so an image has the same bits in every
 * batch.
 *
 * Sizes are elements; tensors have `spatial` + 2 dimensions, N C then space, at most two or three
 * of space (one dimension is two with the first of size 1).
 */
#ifndef DEVICE_CUDA_DNN_PLAN_H
#define DEVICE_CUDA_DNN_PLAN_H

#include "device/cuda/dnn/dnn.h"
#include "ops/epilogue.h"

enum { DNN_IMAGES = 8, DNN_RANK = 5, DNN_SPATIAL = 3, DNN_ALIGNMENT = 16 };

enum dnn_kind {
    DNN_CONV,
    DNN_TRANSPOSED,
    DNN_AVERAGE_POOL,
    DNN_AVERAGE_POOL_PADDED,
    DNN_ATTENTION
};

/* Attention's matrices: [sequences, heads, rows, columns]; columns lie side by side. */
enum { DNN_Q, DNN_K, DNN_V, DNN_OUT, DNN_MATRICES };
struct dnn_matrix {
    int64_t sizes[4], strides[4];
};

struct dnn_graph {
    enum dnn_kind kind;
    size_t spatial; /* 2 or 3 */
    int64_t x[DNN_RANK], w[DNN_RANK],
        y[DNN_RANK]; /* w: output channels, input channels a group, … */
    int64_t pad_begin[DNN_SPATIAL], pad_end[DNN_SPATIAL];
    int64_t stride[DNN_SPATIAL], dilation[DNN_SPATIAL];
    int64_t window[DNN_SPATIAL]; /* pools */
    bool channels_last;          /* of all tensors */
    bool has_z, relu;            /* convolutions; a bias is always there */
    bool compiled;               /* takes engines that are compiled at run time */
    bool z_behind;               /* with `compiled`: z is added behind the activation … */
    enum activation act;         /* … which is this one, if it is not `relu` */
    enum dtype dtype;            /* float32, float16, bfloat16; computed in float32 */
    enum cuda_precision precision;
    int64_t alignment;                      /* of all addresses, bytes */
    struct dnn_matrix matrix[DNN_MATRICES]; /* attention; always compiled.  Nothing else above but
                                             * dtype and alignment */
};

struct dnn_plan {
    const struct dnn *dnn;
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t *parts; /* all descriptors, owned */
    size_t count, room;
    int64_t workspace_bytes;
    int64_t engine;   /* cuDNN's number of it */
    int64_t engines;  /* offered by the heuristic … */
    int64_t rejected; /* … and passed over */
    /* An engine that DNN_IMAGES would run on does not take the real number: other batches may have
     * other bits. */
    bool inexact;
    /* An engine was passed over for want of memory, of a library or of a device that works: another
     * time there may be one. */
    bool hindered;
};

/* STATUS_UNSUPPORTED: no engine, in a sentence; of `*out_plan` only `hindered` has a meaning then.
 * Threads: any. */
MUST_CHECK enum status dnn_plan_make(const struct dnn *dnn, const struct dnn_graph *graph,
                                     struct dnn_plan *out_plan, struct error *err);
/* The graph with DNN_IMAGES images. */
struct dnn_graph dnn_graph_canonical(const struct dnn_graph *graph);
/* "conv float32 nchw relu x=1x64x56x56 w=64x64x3x3 …": all that decides the plan, but alignment. */
void dnn_graph_format(const struct dnn_graph *graph, char *text, size_t room);
void dnn_plan_free(struct dnn_plan *plan); /* zeroed is fine */
/* Whether a compiled graph may have it. */
bool dnn_knows_activation(enum activation act, float a);

/* A plan as bytes, the caller's to free, and back.  The library does not look at what it is given
 * (it dies of a damaged plan), so they must be whole, and of the same library and device. */
MUST_CHECK enum status dnn_plan_save(const struct dnn_plan *plan, void **out_bytes,
                                     size_t *out_count);
MUST_CHECK enum status dnn_plan_load(const struct dnn *dnn, const void *bytes, size_t count,
                                     struct dnn_plan *out_plan);

struct dnn_operands {
    const void *x, *w, *z, *bias; /* those that the graph has */
    void *y;
    /* Attention: x, w and bias are q, k and v, and z is the scale, a float of the host. */
};
enum status dnn_plan_run(const struct dnn_plan *plan, const struct dnn_operands *operands,
                         void *workspace, size_t lane, cudaStream_t stream);
/* The same on a stream that is no lane's, while a plan is made. */
enum status dnn_plan_try(const struct dnn_plan *plan, const struct dnn_operands *operands,
                         void *workspace, cudaStream_t stream);
/* Whether the activation in a plan of `graph` gives NaN for NaN (nan_trial.h), which the device is
 * asked once for the graph with any number of images; true where there is none. */
bool dnn_plan_keeps_nan(const struct dnn_plan *plan, const struct dnn_graph *graph,
                        struct weights_cache *weights);

#endif
