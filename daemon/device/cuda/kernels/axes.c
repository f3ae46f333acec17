#include "device/cuda/kernels/axes.h"

#include <stdlib.h>
#include <string.h>

void operand_strides(const struct operand *operand, int64_t strides[SHAPE_MAX_RANK])
{
    const struct shape *shape = &operand->shape;
    bool nhwc = operand->layout == LAYOUT_NHWC;
    int64_t stride = nhwc ? shape->dims[1] : 1;

    for (size_t i = shape->rank; i-- > 0;) {
        if (nhwc && i == 1) {
            strides[1] = 1;
            continue;
        }
        strides[i] = stride;
        stride *= shape->dims[i];
    }
    if (operand->outer_stride != 0 && shape->rank > 0)
        strides[0] = operand->outer_stride;
}

size_t operand_walked_axis(const struct operand *operand, size_t place)
{
    if (operand->layout != LAYOUT_NHWC || place == 0)
        return place;
    return place + 1 == operand->shape.rank ? 1 : place + 1;
}

void axes_add(struct axes *axes, int64_t size, const int64_t *strides)
{
    axes->sizes[axes->rank] = size;
    for (size_t i = 0; i < axes->operands; i++)
        axes->strides[i][axes->rank] = strides[i];
    axes->rank++;
}

/* The stride of axis `axis` of the output in an operand that is broadcast to it. */
static int64_t broadcast_stride(const struct operand *operand, const int64_t *strides, size_t axis,
                                size_t out_rank)
{
    size_t missing = out_rank - operand->shape.rank;

    if (axis < missing || operand->shape.dims[axis - missing] == 1)
        return 0;
    return strides[axis - missing];
}

void axes_broadcast(struct axes *axes, const struct operand *out, size_t count,
                    const struct operand *const *in)
{
    int64_t own[WALK_OPERANDS][SHAPE_MAX_RANK];

    *axes = (struct axes){.operands = count + 1};
    operand_strides(out, own[0]);
    for (size_t k = 0; k < count; k++)
        operand_strides(in[k], own[k + 1]);
    for (size_t i = 0; i < out->shape.rank; i++) {
        int64_t strides[WALK_OPERANDS] = {own[0][i]};

        for (size_t k = 0; k < count; k++)
            strides[k + 1] = broadcast_stride(in[k], own[k + 1], i, out->shape.rank);
        axes_add(axes, out->shape.dims[i], strides);
    }
}

static void move_axis(struct axes *axes, size_t from, size_t to)
{
    axes->sizes[to] = axes->sizes[from];
    for (size_t i = 0; i < axes->operands; i++)
        axes->strides[i][to] = axes->strides[i][from];
}

static void swap_axes(struct axes *axes, size_t a, size_t b)
{
    int64_t size = axes->sizes[a];

    axes->sizes[a] = axes->sizes[b];
    axes->sizes[b] = size;
    for (size_t i = 0; i < axes->operands; i++) {
        int64_t stride = axes->strides[i][a];

        axes->strides[i][a] = axes->strides[i][b];
        axes->strides[i][b] = stride;
    }
}

static void drop_single_axes(struct axes *axes)
{
    size_t kept = 0;

    for (size_t i = 0; i < axes->rank; i++)
        if (axes->sizes[i] != 1)
            move_axis(axes, i, kept++);
    axes->rank = kept;
    if (kept == 0) {
        const int64_t none[WALK_OPERANDS] = {0};

        axes_add(axes, 1, none);
    }
}

/* Few axes, and those that are in order already must stay so: by insertion. */
static void sort_axes(struct axes *axes, size_t by)
{
    for (size_t i = 1; i < axes->rank; i++)
        for (size_t k = i; k > 0; k--) {
            if (llabs(axes->strides[by][k - 1]) >= llabs(axes->strides[by][k]))
                break;
            swap_axes(axes, k - 1, k);
        }
}

/* Whether every operand walks axis `i` and the one behind as one. */
static bool can_merge(const struct axes *axes, size_t i)
{
    for (size_t k = 0; k < axes->operands; k++)
        if (axes->strides[k][i] != axes->strides[k][i + 1] * axes->sizes[i + 1])
            return false;
    return true;
}

void axes_simplify(struct axes *axes, int by)
{
    size_t kept = 0;

    drop_single_axes(axes);
    if (by >= 0)
        sort_axes(axes, (size_t)by);
    for (size_t i = 1; i < axes->rank; i++) {
        if (kept + 1 != i)
            move_axis(axes, i, kept + 1);
        if (can_merge(axes, kept)) {
            int64_t size = axes->sizes[kept] * axes->sizes[kept + 1];

            move_axis(axes, kept + 1, kept);
            axes->sizes[kept] = size;
        } else {
            kept++;
        }
    }
    axes->rank = kept + 1;
}

/* Division of n < 2^31 by `size`: Granlund and Montgomery, "Division by invariant integers". */
static void set_division(struct walk *walk, size_t axis)
{
    uint64_t size = (uint64_t)walk->sizes[axis];
    uint32_t shift = 0;

    if (size == 0 || size > UINT64_C(1) << 31)
        return;
    while (UINT64_C(1) << shift < size)
        shift++;
    walk->shifts[axis] = shift;
    walk->multipliers[axis] =
        (uint32_t)((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - size) / size + 1);
}

bool axes_finish(const struct axes *axes, struct walk *walk, struct walk_strides *strides)
{
    memset(walk, 0, sizeof(*walk));
    if (axes->rank > WALK_RANK)
        return false;
    walk->rank = (uint32_t)axes->rank;
    walk->count = 1;
    memset(strides, 0, axes->operands * sizeof(*strides));
    for (size_t i = 0; i < axes->rank; i++) {
        walk->sizes[i] = axes->sizes[i];
        walk->count *= axes->sizes[i];
        set_division(walk, i);
        for (size_t k = 0; k < axes->operands; k++)
            strides[k].of[i] = axes->strides[k][i];
    }
    walk->wide = walk->count > INT32_MAX;
    return true;
}
