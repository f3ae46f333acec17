/* Graphs that cuDNN has no precompiled engine for: it writes and compiles code for each of them and
 * each size of it, which takes one to three seconds.  Nobody waits for that.
 *
 *     asked for, not on disk ── refused, for this process's life ── the background compiles it and
 *                                                                   keeps it on disk
 *     asked for, on disk ────── loaded in some milliseconds; another number of images of it that is
 *                               not there is compiled at once
 *
 * Same bits: such an engine sums in another order than a precompiled one.  So whether a graph runs
 * compiled is decided once a process for all numbers of images, when the first is asked for, and by
 * whether the graph of DNN_IMAGES images is on disk.  What is compiled in the background comes into
 * force with the next start.
 *
 * On disk (disk_cache.h) the key is cuDNN's version, the device and the graph in words.
 *
 * Ownership: a device's struct dnn owns its decisions.  Threads: any.
 */
#ifndef DEVICE_CUDA_DNN_COMPILED_H
#define DEVICE_CUDA_DNN_COMPILED_H

#include "device/cuda/dnn/plan.h"

struct dnn_decisions;
struct dnn_decisions *dnn_decisions_create(void); /* NULL: no memory */
void dnn_decisions_destroy(struct dnn_decisions *decisions);

/* A plan of a graph with `compiled`, as dnn_plan_make().  STATUS_UNSUPPORTED: the caller does
 * without; the sentence says whether it may come. */
MUST_CHECK enum status dnn_compiled_make(struct cuda_device *cuda, const struct dnn *dnn,
                                         const struct dnn_graph *graph, struct dnn_plan *out_plan,
                                         struct error *err);

#endif
