/* Attributes of the element-wise operators. */
#ifndef OPS_ELEMENTWISE_H
#define OPS_ELEMENTWISE_H

#include "ops/op.h"

/* LeakyRelu, Elu, Celu, ThresholdedRelu, Swish, QuickGelu: alpha.  HardSigmoid: alpha, beta.
 * Selu: alpha, gamma.  Shrink: bias, lambd. */
struct alpha_attrs {
    float alpha;
};
struct hard_sigmoid_attrs {
    float alpha;
    float beta;
};
struct selu_attrs {
    float alpha;
    float gamma;
};
struct shrink_attrs {
    float bias;
    float lambd;
};

enum gelu_approximate { GELU_NONE, GELU_TANH };
struct gelu_attrs {
    int approximate; /* enum gelu_approximate */
};

struct is_inf_attrs {
    int64_t detect_negative;
    int64_t detect_positive;
};

struct dropout_attrs {
    int64_t seed; /* not used: there is no training here */
};

struct cast_attrs {
    int64_t to;       /* enum dtype; CastLike has none */
    int64_t saturate; /* only means something for 8-bit floats */
    const char *round_mode;
};

struct mod_attrs {
    int64_t fmod;
};

enum shift_direction { SHIFT_LEFT, SHIFT_RIGHT };
struct bit_shift_attrs {
    int direction; /* enum shift_direction */
};

#endif
