/* Attributes of operators along one axis. */
#ifndef OPS_SOFTMAX_H
#define OPS_SOFTMAX_H

#include "ops/op.h"

struct softmax_attrs { /* Softmax, LogSoftmax, Hardmax */
    int64_t axis;
};

struct lp_attrs { /* LpNormalization; `axis` first, as above */
    int64_t axis;
    int64_t p; /* 1 or 2 */
};

#endif
