/* A float product whose weights stay bytes: out = A w + bias, w = (B - zero) * scale in float.
 *
 * Made by a pass (graph/pass_fuse_weights.c).  Attributes and the places of bias and residual are
 * MatMul's, so that the same fusions serve both; trans_b says how B lies. */
#ifndef OPS_MATMUL_BYTES_H
#define OPS_MATMUL_BYTES_H

#include "ops/matmul.h"

enum {
    MATMUL_BYTES_SCALE = MATMUL_RESIDUAL + 1, /* float: one number or one for each column */
    MATMUL_BYTES_ZERO,                        /* of B's type, alike, or none */
    MATMUL_BYTES_INPUTS
};

#endif
