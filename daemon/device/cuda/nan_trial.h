/* Whether an activation that a library computes along with its product gives NaN for NaN.
 *
 * ONNX's Relu of NaN is NaN, and so is the CPU's.  cuBLASLt's epilogue is known to give 0; what
 * cuDNN's engines give is nowhere said: they have a note for engines that promise it
 * (STRICT_NAN_PROP), and none of those it offers carries that.  A network whose values ran over
 * must not look sound, so the device is asked: what was planned runs once on nothing but NaN.  If
 * anything else comes out, the activation is left to a pass of our own behind the product.
 *
 * The answer is kept by the problem in words, whatever the size of its batch, for the device's
 * life: so all plans of it do the same, and a row has the same bits in each.  Where there is no
 * memory to ask in, or the run fails, the answer is no, for as long.
 *
 * Threads: any.
 */
#ifndef DEVICE_CUDA_NAN_TRIAL_H
#define DEVICE_CUDA_NAN_TRIAL_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "base/list.h"
#include "device/kernel.h"

/* The answers; a device's. */
struct nan_answers {
    pthread_mutex_t lock;
    struct list all;
    size_t count;
};

void nan_answers_init(struct nan_answers *answers);
void nan_answers_deinit(struct nan_answers *answers);

struct nan_trial {
    const char *key;       /* the problem in words */
    const void *plan, *of; /* run()'s */
    size_t in_bytes;       /* of its largest operand; all of them are one piece of memory */
    size_t out_bytes, workspace_bytes;
    size_t shift; /* bytes that the operands' and the result's addresses are out of line by */
    enum dtype dtype;
    enum status (*run)(const struct nan_trial *trial, const void *in, void *out, void *workspace,
                       cudaStream_t stream);
};

/* `weights` lends the memory; NULL: no.  Waits for the device the first time a key is seen. */
bool nan_is_kept(struct nan_answers *answers, const struct nan_trial *trial,
                 struct weights_cache *weights);

#endif
