/* Element-wise kernels see their operands flat: rows of elements, whatever the layout.
 *
 * A dense operand is one row.  One that is a slice of a larger value (outer_stride) has a row for
 * each index of dimension 0.  In LAYOUT_BLOCKED the padding is part of the row; it must be zero
 * again when the kernel is done.
 */
#ifndef DEVICE_CPU_FLAT_H
#define DEVICE_CPU_FLAT_H

#include "device/kernel.h"

/* struct kernel.layouts of a kernel that works on flat operands. */
enum { FLAT_LAYOUTS = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC };

/* Elements an operand has in memory, padding included. */
size_t operand_elements(const struct operand *operand, const struct device *device);

struct flat {
    size_t rows;
    size_t row_elements;
    size_t in_stride; /* elements from row to row */
    size_t out_stride;
};

struct flat flat_make(const struct operand *in, const struct operand *out,
                      const struct device *device);

/* Computes `count` elements that lie together. */
typedef void (*flat_fn)(void *arg, const void *in, void *out, size_t count);

/* Calls fn over all rows, cut in pieces, by `threads` members when the work (nanoseconds an
 * element) is worth it. */
void flat_run(const struct flat *flat, const void *in, size_t in_bytes, void *out, size_t out_bytes,
              unsigned threads, double ns_each, flat_fn fn, void *arg);

/* Zeroes the channels that pad the last block.  Nothing to do in other layouts. */
void operand_zero_padding(const struct operand *operand, const struct device *device, void *data);

#endif
