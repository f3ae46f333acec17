/* Depthwise convolutions on the blocked layout: every channel by itself, a block of them at a time.
 */
#ifndef DEVICE_CPU_DEPTHWISE_H
#define DEVICE_CPU_DEPTHWISE_H

#include "device/cpu/conv_step.h"

struct depthwise {
    struct epilogue epilogue;
    int64_t planes, blocks; /* of all images; of one image, that is of weights */
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

struct depthwise_ops {
    int64_t block; /* channels */
    conv_member_fn run;
};

#endif
