#include "device/kernel.h"

#include <assert.h>

const char *layout_name(enum layout layout)
{
    static const char *const names[LAYOUT_COUNT] = {
        [LAYOUT_PLAIN] = "plain", [LAYOUT_BLOCKED] = "blocked", [LAYOUT_NHWC] = "nhwc"};

    return (unsigned)layout < LAYOUT_COUNT ? names[layout] : "none";
}

size_t layout_bytes(enum layout layout, unsigned channel_block, enum dtype dtype,
                    const struct shape *shape)
{
    size_t elements = (size_t)shape_count(shape);

    if (layout == LAYOUT_BLOCKED && elements > 0) {
        size_t channels = (size_t)shape->dims[1];

        assert(shape->rank >= 3 && channel_block > 0);
        elements =
            elements / channels * ((channels + channel_block - 1) / channel_block * channel_block);
    }
    return elements * dtype_bytes(dtype);
}
