/* A convolution and the pool behind it as one step, whose result between the two is in no memory
 * but a few rows of scratch.  Made by the pass fuse_pool, where the device wants it.
 *
 * Inputs: X, W, bias or none, as of a convolution (ops/conv.h) that has nothing but an activation.
 */
#ifndef OPS_CONV_POOL_H
#define OPS_CONV_POOL_H

#include "ops/conv.h"
#include "ops/pool.h"

struct conv_pool_attrs {
    struct conv_attrs conv; /* first: who knows convolutions reads these attributes as theirs */
    struct pool_attrs pool;
    bool average; /* else the largest */
};

/* Numbers of one call; shapes as infer accepted them. */
MUST_CHECK enum status conv_pool_resolve(const struct conv_pool_attrs *attrs, const struct shape *x,
                                         const struct shape *w, struct conv_geometry *out_conv,
                                         struct window *out_pool, struct error *err);

#endif
