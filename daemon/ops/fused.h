/* Attributes of the com.microsoft operators that exporters write for transformers. */
#ifndef OPS_FUSED_H
#define OPS_FUSED_H

#include "ops/op.h"

struct skip_norm_attrs { /* SkipLayerNormalization, SkipSimplifiedLayerNormalization */
    float epsilon;
};

#endif
