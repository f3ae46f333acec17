/* A device: memory, lanes, kernels.  One table, filled by device/cpu, device/null (and
 * device/cuda).
 *
 * Ownership: device_open() owns it until device_close(); lanes and models must be gone before.
 * Threads:   calls on one lane by one thread at a time; everything else by any.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/error.h"
#include "memory/mem_source.h"
#include "tensor/tensor.h"

struct op_def; /* ops/op.h */
struct device;
struct device_recording;
struct host_pool;
struct device_lane; /* a place where one batch at a time runs: CPU threads, a CUDA stream */
struct kernel;
struct attention_attrs;

struct device_config {
    const char *name;      /* "cpu", "null", "cuda:0", "auto" */
    unsigned lanes;        /* ≥ 1 */
    unsigned threads;      /* compute threads over all lanes; 0: the machine's cores */
    const char *precision; /* "strict", "tf32", … ; the CPU knows "strict", "default" and "int8" */
    const char *cache_folder; /* where what is compiled at run time is kept; NULL: nowhere */
};

/* Whether the device of this name may be given this precision, as far as that shows without opening
 * it: "auto" has what the CPU or a CUDA device has.  NULL is "default". */
MUST_CHECK enum status device_check_precision(const char *name, const char *precision,
                                              struct error *err);

/* The most that one lane does in a second, measured on it. */
struct device_peaks {
    double flops;        /* multiplications and additions of 32-bit floats */
    double bytes;        /* read from memory, or from the last cache where that holds as much */
    double cached_bytes; /* read from the caches of its own */
    uint64_t cache_size; /* what they hold; 0: they are not told apart */
};

struct device_import {
    const void *handle;
    size_t handle_bytes;
    int64_t device_id; /* as the exporter numbers the devices */
    uint64_t bytes;
};

struct device_ops {
    const char *name;
    enum status (*open)(const struct device_config *config, struct device **out_device,
                        struct error *err);
    void (*close)(struct device *device);
    enum status (*lane_open)(struct device *device, unsigned index, struct device_lane **out_lane);
    void (*lane_close)(struct device_lane *lane);
    /* Must be called by the thread that is about to run kernels on the lane (thread teams are bound
     * to threads); cheap when nothing changed. */
    void (*lane_enter)(struct device_lane *lane);
    /* Waits for what the lane was given.  STATUS_DEVICE_LOST: nothing on this device works any
     * more. */
    enum status (*lane_wait)(struct device_lane *lane);
    /* Copies between host and device in lane order; on the CPU a memcpy. */
    enum status (*copy_in)(struct device_lane *lane, void *device_to, const void *host_from,
                           size_t bytes);
    enum status (*copy_out)(struct device_lane *lane, void *host_to, const void *device_from,
                            size_t bytes);
    /* Copies within the device in lane order; on the CPU a memcpy. */
    enum status (*copy)(struct device_lane *lane, void *to, const void *from, size_t bytes);
    /* Recording: between begin and end the lane's work is noted instead of done; replay does it
     * again with the very same addresses, at less cost.  STATUS_UNSUPPORTED from end: something in
     * between cannot be recorded, the lane is as before.  NULL where there is no such thing. */
    enum status (*record_begin)(struct device_lane *lane);
    enum status (*record_end)(struct device_lane *lane, struct device_recording **out_recording);
    enum status (*replay)(struct device_lane *lane, struct device_recording *recording);
    void (*recording_destroy)(
        struct device_recording *recording); /* its runs are over; NULL is fine */
    /* Locks the pages of host memory that requests and answers lie in, so that copies need not be
     * staged.  A wish: without it copies are slower.  NULL: nothing to do. */
    enum status (*pin)(struct device *device, void *base, size_t bytes);
    void (*unpin)(struct device *device, void *base);
    /* Memory of the device that another process exported (CUDA: a cudaIpcMemHandle_t), mapped here:
     * at least `bytes`, all accessible.  The other may write to it at any time.  STATUS_INVALID:
     * the handle is none, of another device, or of less memory.  import_close() when nothing uses
     * it any more.  NULL: there is no such thing. */
    enum status (*import_open)(struct device *device, const struct device_import *import,
                               void **out_address, struct error *err);
    void (*import_close)(struct device *device, void *address);
    /* Device bytes that this process holds besides what `memory` gave out (context, modules), as
     * far as it can be told: by what the device has free.  What changes between fixed_mark() and
     * the next fixed_bytes() counts as ours; without a mark it tells what is known.  NULL: none. */
    uint64_t (*fixed_bytes)(struct device *device);
    void (*fixed_mark)(struct device *device);
    /* Kernels that implement `op`, best first, NULL at the end; NULL when there are none. */
    const struct kernel *const *(*kernels)(struct device *device, const struct op_def *op);
    /* One line: "cpu: Intel Xeon …, 2 cores, avx512". */
    void (*describe)(struct device *device, char *text, size_t room);
    /* Measures, on the lane, in some tens of milliseconds; reads `bytes` at `room`, device memory
     * whose elements do not matter.  NULL: not known. */
    void (*measure_peaks)(struct device_lane *lane, const void *room, size_t bytes,
                          struct device_peaks *out_peaks);
    /* Whether some call, whoever made it, found that nothing on this device works any more.  NULL:
     * only lane_wait() tells. */
    bool (*is_lost)(struct device *device);
    /* Blocks until what prepared kernels had it make in the background is made.  NULL: it makes
     * nothing there. */
    void (*settle)(struct device *device);
    /* Whether it has a kernel for attention in one step in this 16-bit type, or in float32 with
     * boolean masks and causal, now and as long as it is open (graph/pass.h: pass_attention_fn).
     * NULL: in none. */
    bool (*takes_attention)(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes);
    bool host_memory; /* kernels read and write host addresses: no copies in or out */
};

struct device {
    const struct device_ops *ops;
    struct mem_source *memory;
    struct mem_source *faulty; /* around the device's own, for tests; NULL: none */
    enum dtype narrow;     /* wants float32 products in this 16-bit type; DTYPE_NONE: as they are */
    bool multiplies_bytes; /* has kernels for quantised operators: models become such steps */
    bool weighs_bytes;     /* … and for float products whose weights stay bytes */
    bool demands_bytes;    /* was opened for quantised models alone (Precision=int8) */
    bool fuses_chains;     /* wants element-wise operators in a row as one step (ops/chain.h) */
    bool fuses_attention;  /* … and attention that is spelled out (ops/attention.h) */
    bool guards_attention; /* … also where a softmax that is not a number counts as zeros */
    bool fuses_preludes; /* … BatchNormalization before a convolution as part of it (ops/conv.h) */
    bool fuses_pools;    /* … a pool behind a convolution as part of it (ops/conv_pool.h) */
    bool fuses_shuffles; /* … a shuffle of channels as one step (ops/mix_channels.h) or part of one
                          */
    bool fuses_separable; /* … a depthwise convolution and the 1x1 around it (ops/separable_conv.h)
                           */
    bool fuses_narrow;    /* … residual and activation behind a product in 16-bit types, too */
    bool spreads_rows; /* values may be parts of larger ones with a stride (operand.outer_stride) */
    unsigned view_alignment; /* bytes: what lies inside of another value begins at a multiple of
                              * them, or is copied; 0: anywhere */
    bool lays_narrow_last;   /* its kernels take 16-bit floats and bytes channels last, too */
    unsigned channel_block;  /* channels a block in LAYOUT_BLOCKED: 8 or 16; 0: does not know it */
    unsigned lanes;
    unsigned threads_per_lane;
    /* Raised when a kernel that was prepared before runs by better code from now on: what was
     * recorded runs the old. */
    _Atomic unsigned kernels_changed;
    /* Without host_memory: the CPU, for operators that this device has no kernel for; opened and
     * closed with it by device_open() and device_close().  NULL: there is none. */
    struct device *host;
};

struct device_lane {
    struct device *device;
    unsigned index;
    unsigned threads;
    struct device_lane *host; /* of device->host, opened by device_lane_open_host(); else NULL */
    void *host_memory;        /* see device_lane_host_memory() */
    size_t host_bytes;
    /* What that is taken from and counted in, whose pins are the device's; borrowed.  NULL: the
     * system.  Set by who opened the lane, before its first run. */
    struct host_pool *host_pool;
};

/* Rows: the devices a program was linked with, given by main to device_register(). */
void device_register(const struct device_ops *ops);
/* "auto" takes cuda when it opens, else cpu.  STATUS_NOT_FOUND names the known ones.  With
 * SLUICE_FAULT in the environment its memory fails as ordered (device/faulty_source.h). */
MUST_CHECK enum status device_open(const struct device_config *config, struct device **out_device,
                                   struct error *err);
void device_close(struct device *device); /* NULL is fine */
/* What was decommitted and kept for the next commit goes back to the device itself.  Threads: any.
 */
void device_give_back(struct device *device);
/* Whether it is known that nothing on the device works any more.  Threads: any. */
bool device_is_lost(struct device *device);
/* Blocks until no better code is on its way to kernels that were prepared.  Threads: any. */
void device_settle(struct device *device);
/* For lane_open() and lane_close() of devices without host_memory. */
MUST_CHECK enum status device_lane_open_host(struct device_lane *lane);
void device_lane_close_host(struct device_lane *lane);
/* At least `bytes` of page-locked host memory, the lane's until it is given back, for what runs on
 * the host; a call that asks for more than the ones before gets other memory, and nothing may use
 * the former.  STATUS_NO_MEMORY: the lane has none.  Threads: the lane's. */
MUST_CHECK enum status device_lane_host_memory(struct device_lane *lane, size_t bytes,
                                               void **out_base);
/* Gives it back: all that the lane was given to do is done.  None is fine. */
void device_lane_give_host_memory(struct device_lane *lane);

#endif
