#include "tensor/shape.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct shape shape_make(size_t rank, const int64_t *dims)
{
    struct shape shape = {.rank = rank};

    assert(rank <= SHAPE_MAX_RANK);
    if (rank > 0)
        memcpy(shape.dims, dims, rank * sizeof(*dims));
    return shape;
}

bool shape_is_equal(const struct shape *a, const struct shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

bool shape_is_known(const struct shape *shape)
{
    for (size_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return false;
    return true;
}

bool shape_has_axis(const struct shape *shape, int64_t axis)
{
    return axis >= -(int64_t)shape->rank && axis < (int64_t)shape->rank;
}

size_t shape_axis(const struct shape *shape, int64_t axis)
{
    assert(shape_has_axis(shape, axis));
    return (size_t)(axis < 0 ? axis + (int64_t)shape->rank : axis);
}

int64_t shape_product(const struct shape *shape, size_t from, size_t to)
{
    int64_t product = 1;

    for (size_t i = from; i < to; i++)
        product *= shape->dims[i];
    return product;
}

enum status shape_elements(const struct shape *shape, int64_t *out_count)
{
    const int64_t limit = INT64_C(1) << 48;
    int64_t count = 1;
    bool empty = false;

    for (size_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || shape->dims[i] > limit)
            return STATUS_INVALID;
        if (shape->dims[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(count, shape->dims[i], &count) || count > limit)
            return STATUS_INVALID;
    }
    *out_count = empty ? 0 : count;
    return STATUS_OK;
}

enum status shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out_shape)
{
    struct shape out = {.rank = a->rank > b->rank ? a->rank : b->rank};

    for (size_t i = 0; i < out.rank; i++) { /* i counts from the last dimension */
        int64_t x = i < a->rank ? a->dims[a->rank - 1 - i] : 1;
        int64_t y = i < b->rank ? b->dims[b->rank - 1 - i] : 1;

        if (x != y && x != 1 && y != 1)
            return STATUS_INVALID;
        out.dims[out.rank - 1 - i] = x == 1 ? y : x;
    }
    *out_shape = out;
    return STATUS_OK;
}

const char *shape_format(const struct shape *shape, char text[SHAPE_TEXT_BYTES])
{
    size_t used = 0;

    text[used++] = '[';
    for (size_t i = 0; i < shape->rank; i++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%" PRId64,
                                 i == 0 ? "" : ",", shape->dims[i]);
    text[used++] = ']';
    text[used] = '\0';
    return text;
}
