/* A depthwise convolution with the 1x1 behind it and, maybe, the 1x1 in front of it, as one step:
 *
 *     project(depthwise(expand(X))) [+ residual]
 *
 * Made by a pass only (graph/pass_fuse_separable.c), for devices that have a kernel for it: what is
 * between the convolutions need not be in memory as a whole.
 *
 * Inputs: X [N,C,spatial…], then W and bias (or none) of each convolution, as Conv has them, then
 * the residual when project's epilogue has one.  No W of expand: there is none. */
#ifndef OPS_SEPARABLE_CONV_H
#define OPS_SEPARABLE_CONV_H

#include "ops/conv.h"

enum {
    SEPARABLE_X,
    SEPARABLE_EXPAND, /* its W; the bias is the next one */
    SEPARABLE_DEPTHWISE = 3,
    SEPARABLE_PROJECT = 5,
    SEPARABLE_RESIDUAL = 7
};

struct separable_conv_attrs {
    struct conv_attrs expand, depthwise, project;
};

#endif
