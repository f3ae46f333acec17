/* How several operands of different shapes are walked together to fill one output.
 *
 * The dimensions are those in memory (a blocked tensor has its lanes as one more), runs that every
 * operand walks alike are merged, and a repeated operand has stride 0.  What is left is handed out
 * as tiles, rows x columns, in which each operand goes by 0 or 1 elements from column to column.
 *
 *     [8,64,56,56] + [64,1,1]  ──>  512 rows of 3136 columns; strides (3136, 1) and (1, 0)
 */
#ifndef DEVICE_CPU_BROADCAST_H
#define DEVICE_CPU_BROADCAST_H

#include "device/kernel.h"

enum { BROADCAST_IN = 3, BROADCAST_RANK = SHAPE_MAX_RANK + 1 };

struct broadcast {
    size_t count; /* operands in */
    size_t rank;  /* ≥ 1; outermost first */
    int64_t dims[BROADCAST_RANK];
    int64_t in_strides[BROADCAST_IN][BROADCAST_RANK]; /* elements */
    int64_t out_strides[BROADCAST_RANK];
};

/* Elements of rows and columns, the same for all types; columns of the output lie together. */
struct tile {
    size_t rows;
    size_t columns;
    ptrdiff_t row_strides[BROADCAST_IN];
    ptrdiff_t column_strides[BROADCAST_IN]; /* 0 or 1 */
    ptrdiff_t out_row_stride;
};

typedef void (*tile_fn)(void *arg, const struct tile *tile, const void *const *in, void *out);

/* NULL when operands of these layouts can be walked together, else why not. */
const char *broadcast_refuses(const struct operand *out, size_t count,
                              const struct operand *const *in);
/* Constants that have channels come packed in the layout of `out`, see broadcast_pack(). */
void broadcast_make(struct broadcast *broadcast, const struct operand *out, size_t count,
                    const struct operand *const *in, const struct device *device);
/* Whether constant `in` must be packed for a blocked output, and doing it (shared in the model). */
bool broadcast_wants_pack(const struct operand *out, const struct operand *in);
enum status broadcast_pack(const struct kernel_prepare *prepare, const struct operand *out,
                           const struct operand *in, const void **out_packed);

/* Calls fn for all tiles, shared among `threads` when the work is worth it. */
void broadcast_run(const struct broadcast *broadcast, const void *const *in, const size_t *in_bytes,
                   void *out, size_t out_bytes, unsigned threads, double ns_each, tile_fn fn,
                   void *arg);

#endif
