/* What our own convolutions have in common: an epilogue, packed weights, a bias for whole blocks,
 * and one function that all members of a team run at the same time. */
#ifndef DEVICE_CPU_CONV_STEP_H
#define DEVICE_CPU_CONV_STEP_H

#include "device/cpu/cpu.h"
#include "ops/conv.h"

struct conv_run { /* what a member is given */
    const void *plan;
    const float *x, *weights;
    const float *bias;     /* padded to whole blocks */
    const float *residual; /* NULL: none */
    float *y;
    float *scratch; /* of all members */
};
/* One member's part; the others run the same at the same time. */
typedef void (*conv_member_fn)(const struct conv_run *run, unsigned member, unsigned members);

struct conv_step {
    const struct epilogue *epilogue;
    const void *plan;
    conv_member_fn run;
    unsigned members; /* at most */
    const float *weights, *bias;
};

/* Writes the elements of a constant in the form that the kernel of `state` reads. */
typedef enum status (*conv_pack_fn)(const void *state, const float *weights, float *packed);

/* Fills the step's weights and its bias, padded with zeros to `bias_count`.  `format` names all by
 * which two forms of the same weights can differ; plans of a model share them. */
MUST_CHECK enum status conv_step_share(struct kernel_prepare *prepare, const char *format,
                                       size_t packed_bytes, conv_pack_fn pack, const void *state,
                                       size_t bias_count, struct conv_step *step);

/* Runs it, and leaves zeros in the padding of a blocked result. */
enum status conv_step_run(const struct conv_step *step, const struct kernel_call *call,
                          const struct kernel_run *run);

#endif
