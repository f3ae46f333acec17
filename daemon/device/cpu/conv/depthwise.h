/* Depthwise convolutions on the blocked layout: every channel by itself, a block of them at a time.
 */
#ifndef DEVICE_CPU_DEPTHWISE_H
#define DEVICE_CPU_DEPTHWISE_H

#include "device/cpu/conv/conv_step.h"

struct depthwise {
    struct epilogue epilogue;
    int64_t channels, filter_shuffle; /* as in struct conv_attrs */
    int64_t planes, blocks;           /* of all images; of one image, that is of weights */
    /* Axes: down, across. */
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2];
    /* A small plane is copied first, with zeros around it: then no window hangs over its edge.
     * Else 0. */
    int64_t padded[2];
    int64_t alike;           /* rows at a time, at most */
    int64_t inside, insides; /* places of a row whose windows hang over no edge: first, how many */
    unsigned members;
    bool by_planes; /* members share planes, not the rows of images */
};

/* What rows of the result of one block of channels are computed from. */
struct depthwise_plane {
    const float *x;
    int64_t in[2], pad[2];   /* rows and columns of x, and places before its first ones */
    int64_t inside, insides; /* as in struct depthwise */
    const float *weights, *bias;
};

struct depthwise_ops {
    int64_t block; /* channels */
    conv_member_fn run;
    /* Rows [from, to), laid one behind the other from y on; no residual. */
    void (*rows)(const struct depthwise *p, const struct depthwise_plane *plane, int64_t from,
                 int64_t to, float *y);
};

/* NULL: `call` is one that this can compute. */
const char *depthwise_refuses(const struct kernel_call *call);
const struct depthwise_ops *depthwise_ops_for(enum cpu_isa isa);
void depthwise_make_plan(const struct kernel_call *call, struct depthwise *out_plan);
/* Fills the step's weights and bias. */
MUST_CHECK enum status depthwise_share(struct kernel_prepare *prepare, const struct depthwise *plan,
                                       struct conv_step *step);

#endif
