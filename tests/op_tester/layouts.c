/* Tensors packed as kernels want them, and back. */
#include "op_tester/internal.h"

static bool is_activation(const struct shape *shape, bool constant)
{
    return !constant && shape->rank >= 3 && shape->rank <= 5;
}

size_t packed_elements(enum layout layout, unsigned block, const struct shape *shape)
{
    if (layout != LAYOUT_BLOCKED)
        return (size_t)shape_count(shape);
    return (size_t)(shape->dims[0] * ((shape->dims[1] + block - 1) / block * block) *
                    shape_product(shape, 2, shape->rank));
}

/* Where element (n, c, s) of a tensor lies, s counting the spatial positions row-major. */
static int64_t packed_index(enum layout layout, unsigned block, const struct shape *shape,
                            int64_t n, int64_t c, int64_t s)
{
    int64_t channels = shape->dims[1], places = shape_product(shape, 2, shape->rank);

    if (layout == LAYOUT_NHWC)
        return (n * places + s) * channels + c;
    if (layout == LAYOUT_BLOCKED)
        return ((n * ((channels + block - 1) / block) + c / block) * places + s) * block +
               c % block;
    return (n * channels + c) * places + s;
}

void repack(enum layout layout, unsigned block, const struct tensor *tensor, void *packed,
            bool unpack)
{
    const struct shape *shape = &tensor->shape;
    size_t size = dtype_bytes(tensor->dtype);
    int64_t places = shape_product(shape, 2, shape->rank);
    char *plain = (char *)(uintptr_t)tensor->data, *other = packed;

    for (int64_t n = 0; n < shape->dims[0]; n++)
        for (int64_t c = 0; c < shape->dims[1]; c++)
            for (int64_t s = 0; s < places; s++) {
                char *a = plain + (size_t)((n * shape->dims[1] + c) * places + s) * size;
                char *b = other + (size_t)packed_index(layout, block, shape, n, c, s) * size;

                memcpy(unpack ? a : b, unpack ? b : a, size);
            }
}

bool padding_is_zero(unsigned block, const struct tensor *tensor, const void *packed)
{
    const struct shape *shape = &tensor->shape;
    size_t size = dtype_bytes(tensor->dtype);
    int64_t places = shape_product(shape, 2, shape->rank);
    int64_t whole = (shape->dims[1] + block - 1) / block * block;

    for (int64_t n = 0; n < shape->dims[0]; n++)
        for (int64_t c = shape->dims[1]; c < whole; c++)
            for (int64_t s = 0; s < places; s++) {
                int64_t at = packed_index(LAYOUT_BLOCKED, block, shape, n, c, s);
                const char *element = (const char *)packed + (size_t)at * size;

                for (size_t i = 0; i < size; i++)
                    if (element[i] != 0)
                        return false;
            }
    return true;
}

enum layout layout_of(enum layout layout, const struct shape *shape, bool constant)
{
    return is_activation(shape, constant) ? layout : LAYOUT_PLAIN;
}
