/* What weights.c and weights_copy.c know of each other. */
#ifndef DEVICE_WEIGHTS_COPY_H
#define DEVICE_WEIGHTS_COPY_H

#include "device/weights.h"

/* The saved bytes of a piece; NULL: there are none of that size.  Borrowed. */
const void *weights_copy_find(const struct weights_copy *copy, const void *key, const char *format,
                              size_t bytes);

struct weights_piece {
    const void *key;
    const char *format;
    void *packed;
    size_t bytes;
};
typedef void (*weights_each_fn)(void *arg, const struct weights_piece *piece);
/* Nobody may use the cache meanwhile. */
void weights_each(struct weights_cache *cache, weights_each_fn visit, void *arg);
/* The other way than weights_write(). */
MUST_CHECK enum status weights_read(struct weights_cache *cache, void *to, const void *packed,
                                    size_t bytes);

#endif
