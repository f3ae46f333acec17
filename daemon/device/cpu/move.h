/* Copying a box of elements between two strided places: what Transpose, Concat, Split, Slice, Pad,
 * Expand, Tile and the depth/space operators all are.
 *
 * A box says for each axis how far apart neighbours are on either side.  move_plan() brings it into
 * one form: axes in the order of the destination, neighbours merged, the innermost contiguous run
 * taken as one piece; move_run() then picks plain copies, strided loops or a blocked transposition.
 */
#ifndef DEVICE_CPU_MOVE_H
#define DEVICE_CPU_MOVE_H

#include "device/kernel.h"

/* Tile doubles the axes of a tensor; the blocked layout adds one. */
enum { MOVE_MAX_RANK = 2 * SHAPE_MAX_RANK + 1 };

struct move_box {
    size_t rank;
    int64_t dims[MOVE_MAX_RANK];
    int64_t from[MOVE_MAX_RANK]; /* elements; may be 0 (repeat) or negative */
    int64_t to[MOVE_MAX_RANK];   /* elements; > 0 wherever the axis is longer than one */
    size_t bytes;                /* of an element: 1, 2, 4, 8 or 16 */
};

/* The planned form.  dims[rank - 2] x dims[rank - 1] is the plane that one loop nest handles. */
struct move {
    size_t rank; /* ≥ 2 */
    int64_t dims[MOVE_MAX_RANK + 2];
    int64_t from[MOVE_MAX_RANK + 2]; /* bytes */
    int64_t to[MOVE_MAX_RANK + 2];   /* bytes */
    size_t run_bytes;                /* contiguous on both sides */
    int64_t planes;                  /* product of the axes before the plane */
    int64_t slab_rows;               /* a plane is shared out in slabs of so many rows … */
    int64_t slab_columns;            /* … and columns */
    uint64_t total_bytes;
    void (*plane)(const struct move *move, const char *from, char *to, int64_t rows,
                  int64_t columns);
};

void move_plan(struct move *move, const struct move_box *box);
/* Nothing happens for an empty box. */
void move_run(const struct move *move, const void *from, void *to, unsigned threads);

/* Where the elements of an operand are: logical axes with their strides in elements.  In BLOCKED,
 * axis 1 counts whole blocks, and one more axis (the last) runs through a block. */
struct geometry {
    size_t rank;
    int64_t dims[SHAPE_MAX_RANK + 1];
    int64_t strides[SHAPE_MAX_RANK + 1];
};
void geometry_of(const struct operand *operand, const struct device *device, struct geometry *out);

/* Element `i` of INT32 or INT64 data, which need not be aligned. */
static inline int64_t read_index(enum dtype dtype, const void *data, int64_t i)
{
    if (dtype == DTYPE_INT32) {
        int32_t value;

        __builtin_memcpy(&value, (const char *)data + i * 4, sizeof(value));
        return value;
    } else {
        int64_t value;

        __builtin_memcpy(&value, (const char *)data + i * 8, sizeof(value));
        return value;
    }
}

/* Refusals that many movement kernels share; NULL when all is well.  Values that decide shapes must
 * be known: bit i of `inputs`. */
const char *refuse_unknown_values(const struct kernel_call *call, uint32_t inputs);

#endif
