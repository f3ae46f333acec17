/* Attributes of the normalisations. */
#ifndef OPS_NORMALIZE_H
#define OPS_NORMALIZE_H

#include "ops/op.h"

struct layer_norm_attrs { /* LayerNormalization, RMSNormalization */
    int64_t axis;         /* the first of the normalised dimensions */
    float epsilon;
    int64_t stash_type; /* DTYPE_FLOAT; the CPU computes in float at least */
};

struct group_norm_attrs {
    float epsilon;
    int64_t num_groups;
    int64_t stash_type;
};

struct epsilon_attrs { /* InstanceNormalization, SkipLayerNormalization and its kin */
    float epsilon;
};

struct batch_norm_attrs {
    float epsilon;
    float momentum;
    int64_t training_mode; /* refused unless 0 */
};

struct mvn_attrs {
    struct ints axes; /* not given: 0, 2, 3 */
};

/* Two passes for mean and variance, a difference, a factor, scale and bias. */
uint64_t normalize_flops(const struct op_call *call);

#endif
