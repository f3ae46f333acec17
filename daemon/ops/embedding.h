/* Rows of a matrix picked by number, as a product with a one-hot matrix picks them. */
#ifndef OPS_EMBEDDING_H
#define OPS_EMBEDDING_H

#include "ops/matmul.h"

/* Inputs: ids (INT32 or INT64), and the product's B [k,n] and bias [n] or none. */
enum { EMBEDDING_IDS, EMBEDDING_B = MATMUL_B, EMBEDDING_BIAS = MATMUL_BIAS };

struct embedding_attrs {
    /* Of the product it stands for: trans_b, scale, bias and activation; no residual. */
    struct matmul_attrs product;
    bool over_last; /* ids have a last dimension of 1, in whose place the row comes; else behind */
    bool wraps;     /* ids of -k … -1 count from the end, as OneHot's do */
};

#endif
