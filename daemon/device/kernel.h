/* A kernel: one way to compute an operator on a device.
 *
 * For each operator a device lists kernels, best first (kernels.def); the first that does not
 * refuse wins, and the refusals before it are kept for --explain-plan.  After prepare() nothing is
 * allocated and nothing waits.
 *
 * Layouts.  PLAIN is row-major.  BLOCKED is n, C/b, spatial…, b (oneDNN's nChw8c / nChw16c, also
 * nCw8c and nCdhw8c) with b = device->channel_block and rank ≥ 3; the channels are padded to a
 * multiple of b and THE PADDING IS ALWAYS ZERO: a kernel writing BLOCKED must leave it zero
 * (sigmoid(0) is not!). NHWC is channels last.  Data type and logical shape are the same in every
 * layout.
 *
 * Same bits: how a kernel blocks its loops and in which order it sums depends on the geometry of
 * one row (everything behind dimension 0), never on the batch, the threads or the addresses.
 */
#ifndef DEVICE_KERNEL_H
#define DEVICE_KERNEL_H

#include "device/device.h"
#include "ops/epilogue.h"
#include "ops/op.h"

enum layout { LAYOUT_PLAIN, LAYOUT_BLOCKED, LAYOUT_NHWC, LAYOUT_COUNT };
const char *layout_name(enum layout layout);
/* Bytes of a tensor in this layout, padding included. */
size_t layout_bytes(enum layout layout, unsigned channel_block, enum dtype dtype,
                    const struct shape *shape);

/* What is known of an operand when a plan is made. */
struct operand {
    enum dtype dtype;
    enum layout layout;
    struct shape shape;
    /* Elements from one index of dimension 0 to the next, when the value is a part of a larger one
     * whose rows lie between its own (engine/share.c).  0: dense.  Only given to kernels with
     * KERNEL_STRIDED, that do not refuse it. */
    int64_t outer_stride;
    /* Its elements when they never change (PLAIN, dense); else NULL.  Those of large weights may be
     * out of memory: prepare() reads them only to fill a piece that weights_share() said is new. */
    const void *constant;
    void *constant_key; /* identity of the constant, for weights_share(); else NULL */
};

struct kernel_call {
    const struct op_def *op;
    const void *attrs; /* lives as long as the plan */
    size_t inputs;
    const struct operand *const *in; /* NULL entries: left out */
    size_t outputs;
    const struct operand *const *out; /* NULL entries: not wanted */
    struct device *device;
    unsigned threads;
};

/* Elements from one index of dimension 0 to the next; `dense`: where nothing lies between. */
static inline int64_t operand_stride(const struct operand *operand, int64_t dense)
{
    return operand->outer_stride != 0 ? operand->outer_stride : dense;
}

/* An operand as the operators' rules see it. */
static inline struct tensor operand_tensor(const struct operand *operand)
{
    return (struct tensor){operand->dtype, operand->shape, operand->constant};
}

/* The inputs as the operators' rules see them: in[i] is NULL or one of `tensors`; room for all. */
static inline void call_tensors(const struct kernel_call *call, struct tensor *tensors,
                                const struct tensor **in)
{
    for (size_t i = 0; i < call->inputs; i++) {
        in[i] = call->in[i] != NULL ? &tensors[i] : NULL;
        if (call->in[i] != NULL)
            tensors[i] = operand_tensor(call->in[i]);
    }
}

/* Packed weights, shared by all plans of a model: made once by key, counted in bytes. */
struct weights_cache;
/* Finds the packed form of constant `key` in format `format` (any text that names how it is packed:
 * "gemm k=… n=…"), or makes room for it: *out_is_new says that the caller must fill `bytes` bytes.
 * Lives until the model goes; 64-byte aligned; in memory of the device's mem_source.
 * Another thread may still be filling a piece that is not new when its key is a scalar or a vector
 * of floats: prepare() may not look at what is in it.
 * STATUS_NO_MEMORY: nothing changed.  On a device without host_memory the piece is filled by
 * weights_write(). */
MUST_CHECK enum status weights_share(struct weights_cache *cache, const void *key,
                                     const char *format, size_t bytes, void **out_packed,
                                     bool *out_is_new);
/* Fills a new piece from host memory, wherever the piece is.  Kernels of devices whose memory is
 * the host's may write to it themselves. */
MUST_CHECK enum status weights_write(struct weights_cache *cache, void *packed, const void *from,
                                     size_t bytes);
/* Takes back a piece that weights_share() just made and that could not be filled, or that nothing
 * uses any more. */
void weights_drop(struct weights_cache *cache, const void *key, const char *format);

/* Memory for the time of prepare() only, to try ways to compute in: booked as the model's, 64-byte
 * aligned, nothing in it.  STATUS_NO_MEMORY: nothing changed. */
MUST_CHECK enum status weights_borrow(struct weights_cache *cache, size_t bytes, void **out_memory);
void weights_return(struct weights_cache *cache, void *memory);

struct kernel_prepare {
    struct kernel_call call;
    struct weights_cache *weights;
    /* out, zeroed before: */
    void *state; /* the kernel's own; passed to enqueue and release */
    size_t
        scratch_bytes; /* wanted behind run->scratch each time; 64-byte aligned; part of the peak */
    uint32_t constants_used; /* bit i: the elements of constant input i are still read at run time.
                                Constants that no kernel reads any more are dropped from memory. */
    size_t host_bytes;  /* about what `state` takes of the host's memory: counts for the plan */
    bool batch_inexact; /* as KERNEL_BATCH_INEXACT, of this one alone */
    char note[96];      /* for explain-plan: "winograd f4x4", "jit:avx512 …" */
};

/* Strings made while running: owned by the run, gone with it. */
struct string_heap;
struct string_heap *string_heap_create(void);       /* NULL when malloc refuses */
void string_heap_destroy(struct string_heap *heap); /* NULL is fine */
/* Room for `size` bytes, or NULL when memory is short. */
char *string_heap_take(struct string_heap *heap, size_t size);

struct kernel_run {
    const void *const *in; /* NULL entries: left out.  Constants too when constants_used says so */
    void *const *out;
    void *scratch;
    struct device_lane *lane;
    /* For outputs whose shape was a bound: the kernel states the true one.  NULL where none is. */
    struct shape *out_shapes;
    struct string_heap *strings;
};

enum kernel_flag {
    KERNEL_IN_PLACE = 1 << 0,      /* out[0] may be the very buffer of in[0] (same bytes) */
    KERNEL_IN_PLACE_1 = 1 << 1,    /* … of in[1] */
    KERNEL_IN_PLACE_LAST = 1 << 2, /* … of the last input (a fused residual that is not added
                                      behind an activation) */
    KERNEL_STRIDED = 1 << 3,       /* honours every outer_stride that it does not refuse */
    KERNEL_BATCH_INEXACT = 1 << 4, /* cannot keep "same row, same bits" (a scale over all rows …) */
    KERNEL_LAYOUT_CHANGE =
        1 << 5,             /* reorder: in[0] and out[0] may have any two layouts of `layouts` */
    KERNEL_PASSES = 1 << 6, /* out[0] has the bytes of in[0]; nothing is done where both are one */
};

struct kernel {
    const char *name; /* "cpu:dnnl", "cpu:gemm" */
    uint32_t flags;   /* enum kernel_flag */
    /* Layouts in which this kernel takes its 3-D to 5-D activations in and out (bit per enum
     * layout). All activations of a step share one layout, but for `layout_change` kernels
     * (reorder). Operands of other ranks, and constants, are always PLAIN.  0 means PLAIN only. */
    uint32_t layouts;
    /* Exceptions, 0 for none.  in[0] alone may also come in one of `in_layouts` while everything
     * else of the step has one of `layouts` (a first convolution: 3 plain channels in, blocked
     * out), and a transposition takes it in any of them.  When `out_layouts` is not 0, out[0] has
     * one of those instead, whatever the inputs have (a global pool: blocked in, plain [N,C,1,1]
     * out).  refuses() sees the layouts and has the last word. */
    uint32_t in_layouts;
    uint32_t out_layouts;
    /* NULL when it can do it, else why not (borrowed text).  Cheap; called before prepare. */
    const char *(*refuses)(const struct kernel_call *call);
    enum status (*prepare)(struct kernel_prepare *prepare,
                           struct error *err); /* NULL: nothing to do */
    /* Computes.  No allocation, no logging, and no waiting but for what out_shapes says. */
    enum status (*enqueue)(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run);
    void (*release)(void *state); /* NULL is fine */
    /* For explain-plan, behind the note: what may change after prepare().  NULL: nothing. */
    void (*describe)(const void *state, char *text, size_t room);
};

#endif
