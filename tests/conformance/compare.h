/* Whether an answer is right, by the rule of ONNX's own runner: same type, same shape, strings and
 * integers equal, floats within rtol and atol. */
#ifndef CONFORMANCE_COMPARE_H
#define CONFORMANCE_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/tensor.h"

/* ONNX's own numbers.  Sums taken in blocks (convolutions, long reductions) round differently from
 * NumPy's: BLOCKED_SUM_SLACK of the largest element of the answer is allowed for that. */
#define RTOL              1e-3
#define ATOL              1e-7
#define BLOCKED_SUM_SLACK 2e-6
/* The same where operands are rounded to 11 (tf32, fp16) or 8 bits (bf16) before they are
 * multiplied: a few roundings, 2^-11 and 2^-8 each, of sums that may be larger than their result.
 */
#define HALF_SLACK     4e-3
#define BFLOAT16_SLACK 3e-2

/* False with one sentence in `why`.  slack: what is allowed besides, a part of the largest element
 * of the answer. */
bool tensor_agrees(const struct tensor *got, const struct tensor *want, double slack, char *why,
                   size_t room);

#endif
