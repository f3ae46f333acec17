/* Sizes along the batch axis for which plans are made: 1 2 3 4 6 8 12 16 24 32 …, and the largest
 * batch itself.  A batch padded to the next size is never more than a third padding, and a model
 * needs few plans.  Pure. */
#ifndef BATCH_BUCKET_H
#define BATCH_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

/* The smallest size ≥ rows, at most `largest` unless rows itself is more. */
int64_t bucket_up(int64_t rows, int64_t largest);
/* The largest size ≤ rows; 1 at least. */
int64_t bucket_down(int64_t rows, int64_t largest);
bool bucket_is(int64_t rows, int64_t largest);

#endif
