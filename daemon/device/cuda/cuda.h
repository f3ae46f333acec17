/* What the files of the CUDA device share.
 *
 *   plug-in ── device ── lanes (a stream each) ── kernels: a row here, a launcher in kernels/
 *
 * Rules that keep the kernels checkable without a GPU (tests/sim):
 *   - a .cu file includes only headers of device/cuda/kernels/, plain C structs and functions;
 *   - a launcher is `extern "C" cudaError_t cuda_<name>(const struct … *args, cudaStream_t stream)`
 *     and does nothing but launch on that stream and return cudaGetLastError();
 *   - a kernel takes one packed struct or plain scalars by value;
 *   - no managed memory, textures, __device__ variables, device-side launches, default stream;
 *     inline PTX in one header only; no allocation after prepare() and no synchronisation, but by
 *     cuda_lane_found() where a kernel has to tell the true shape of its result;
 *   - scratch comes from the plan (kernel_prepare.scratch_bytes → kernel_run.scratch).
 *
 * Operands are device addresses, 64-byte aligned but for views into others (16 bytes then; tests of
 * kernels go down to the element).  Constants that a kernel reads at run time (constants_used) are
 * device addresses too; their elements on the host are operand.constant, in prepare() only.
 *
 * Threads: a lane by one thread at a time, after lane_enter() made the device current for it.
 */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "base/list.h"
#include "device/cuda/background.h"
#include "device/cuda/disk_cache.h"
#include "device/cuda/fixed.h"
#include "device/cuda/library.h"
#include "device/cuda/nan_trial.h"
#include "device/cuda/rtc/table.h"
#include "device/kernel.h"

/* What the arithmetic of float32 operators may be done in; see Precision= in sluice.conf, of which
 * fp16 and bf16 are rewritten graphs (graph/narrow.h) before any kernel is asked. */
enum cuda_precision { CUDA_STRICT, CUDA_TF32 };

struct cuda_device {
    struct device device;
    struct mem_source *source; /* its own, whatever stands before it in device.memory */
    struct cuda_fixed fixed;
    int ordinal;
    enum cuda_precision precision;
    int capability;      /* 75, 80, 86 … */
    int processors;      /* streaming multiprocessors */
    size_t shared_bytes; /* a block may have at most, after it asked for it */
    char name[256];      /* "NVIDIA H200" */
    char bus[32];        /* "0000:81:00.0" */
    /* Opened by the first kernel that wants them (blas/lt.h, dnn/dnn.h, rtc/rtc.h). */
    struct cuda_library_slot lt, dnn, rtc;
    struct nan_answers nan;
    /* What is compiled while the program runs, and where it is kept; see rtc/fused.h. */
    struct background background;
    struct disk_cache cache;
    struct fused_table fused;
};

/* Page-locked memory that kernels of a lane write. */
struct cuda_words {
    /* Not 0 when data was not valid (an index out of range).  Looked at and cleared when the lane
     * is waited for. */
    volatile uint32_t fault;
    /* How many there are of what a kernel counted, where its result's shape is but a bound. */
    volatile int64_t found;
};

struct cuda_lane {
    struct device_lane lane;
    cudaStream_t stream; /* kernels and copies of a batch, in order */
    cudaEvent_t done;    /* the end of what was given to the lane so far */
    struct cuda_words *words;
};

extern const struct device_ops device_cuda_ops;

static inline struct cuda_device *cuda_device_of(const struct device *device)
{
    return CONTAINER_OF(device, struct cuda_device, device);
}

static inline struct cuda_lane *cuda_lane_of(const struct device_lane *lane)
{
    return CONTAINER_OF(lane, struct cuda_lane, lane);
}

/* For enqueue(): the stream to launch on. */
static inline cudaStream_t cuda_stream(const struct kernel_run *run)
{
    return cuda_lane_of(run->lane)->stream;
}

/* Waits for what the lane was given, and tells what its last counting kernel found. */
enum status cuda_lane_found(struct device_lane *lane, int64_t *out_found);

/* ---- error.c ---- */

/* OK, NO_MEMORY, DEVICE_LOST for what no call of this process can recover from, else INTERNAL.
 * What is not OK is also logged (debug) with the runtime's words. */
enum status cuda_status(cudaError_t error);
/* The same with a sentence: "CUDA: <what>: <the runtime's words>". */
enum status cuda_error(struct error *err, cudaError_t error, const char *what);
bool cuda_is_lost(cudaError_t error);
/* Asks the context itself: libraries have a runtime of their own inside, whose errors the plug-in's
 * does not know of.  Puts nothing into a stream. */
bool cuda_context_is_lost(void);
/* Whether cuda_status() or cuda_error() met such an error since cuda_forget_loss(): it is the
 * process that lost its device, whichever call was told. */
bool cuda_was_lost(void);
void cuda_forget_loss(void);

/* Leaves the function with the status of a runtime call unless it succeeded.  Only where nothing is
 * held. */
#define CU_TRY(call) TRY(cuda_status(call))

/* ---- kernels.def ---- */

#define KERNEL(operator, variant) extern const struct kernel kernel_##operator##_##variant;
#include "device/cuda/kernels.def"
#undef KERNEL

/* The list of `op`, best first; NULL: none. */
const struct kernel *const *cuda_kernels(struct device *device, const struct op_def *op);

#endif
