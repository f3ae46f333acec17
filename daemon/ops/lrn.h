/* LRN: local response normalisation across channels. */
#ifndef OPS_LRN_H
#define OPS_LRN_H

#include "ops/op.h"

struct lrn_attrs {
    float alpha;
    float beta;
    float bias;
    int64_t size;
};

#endif
