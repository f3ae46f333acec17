/* A map from names to pointers: open addressing, grows, nothing is removed. */
#ifndef ONNX_NAMES_H
#define ONNX_NAMES_H

#include "base/status.h"
#include "tensor/dtype.h"

struct name_slot {
    const char *name; /* borrowed; NULL: empty */
    size_t length;
    void *item;
};

struct names {
    struct name_slot *slots;
    size_t room; /* a power of two, or 0 */
    size_t used;
    uint64_t seed; /* so that nobody can write a file whose names all meet in one slot */
};

void names_init(struct names *names, uint64_t seed);
void names_deinit(struct names *names);
/* NULL when there is none. */
void *names_find(const struct names *names, struct bytes name);
/* STATUS_EXISTS leaves the first one. */
MUST_CHECK enum status names_add(struct names *names, struct bytes name, void *item);

#endif
